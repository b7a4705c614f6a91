/* SPDX-License-Identifier: Apache-2.0 */
/* Deterministic object content.
 *
 * One pattern, a 64-bit counter run through a mixing function, is shared by all objects. An object of `size` bytes
 * is `size - 32` bytes of the pattern from a window that its key chooses, and then 32 bytes that only this key (and
 * this size and seed) has. So nothing is copied for a connection, any flipped, missing, moved or foreign byte is
 * seen by a comparison, and the SHA-256 of an object costs two blocks: the state after the shared bytes is kept. */
#include "lg.h"

#define STRIDE 64u

static unsigned char *pattern;
static uint32_t windows;
static size_t largest;
static SHA256_CTX *lead_state; /* [window][size]: after the shared bytes */
static SHA256_CTX *part_state; /* [window][part]: of one part's shared bytes */
static size_t nparts;

static size_t tail_of(size_t size)
{
    return size < TAIL ? size : TAIL;
}

void content_init(bool with_hashes)
{
    largest = 0;
    for (uint32_t i = 0; i < g.nsizes; i++)
        if (g.sizes[i] > largest)
            largest = g.sizes[i];
    /* depends on --size and nothing else, so that another run can check what this one wrote */
    windows = 256;
    while (windows > 2 && largest * windows > (size_t)256 << 20)
        windows /= 2;
    size_t len = (largest + STRIDE * windows + 7) / 8 * 8;
    free(pattern);
    pattern = malloc(len);
    if (!pattern)
        die("out of memory for a pattern of %zu bytes", len);
    uint64_t base = mix64(g.seed + 0x6c6f616467656eu);
    for (size_t i = 0; i < len / 8; i++) {
        uint64_t w = mix64(base + i * 0x9e3779b97f4a7c15u);
        memcpy(pattern + 8 * i, &w, 8);
    }
    if (!with_hashes)
        return;
    free(lead_state);
    free(part_state);
    lead_state = xalloc(sizeof *lead_state * windows * g.nsizes);
    nparts = g.part_size ? (largest + g.part_size - 1) / g.part_size : 0;
    part_state = nparts ? xalloc(sizeof *part_state * windows * nparts) : NULL;
    for (uint32_t w = 0; w < windows; w++) {
        const unsigned char *p = pattern + (size_t)w * STRIDE;
        for (size_t k = 0; k < nparts; k++) { /* multipart has one size: the last part ends before the tail */
            size_t from = k * g.part_size, to = from + g.part_size, end = largest - tail_of(largest);
            if (to > end)
                to = end;
            SHA256_CTX *c = &part_state[w * nparts + k];
            SHA256_Init(c);
            if (to > from)
                SHA256_Update(c, p + from, to - from);
        }
        if (nparts)
            continue;
        SHA256_CTX c;
        SHA256_Init(&c);
        size_t done = 0;
        for (uint32_t i = 0; i < g.nsizes; i++) { /* sizes ascend */
            size_t lead = g.sizes[i] - tail_of(g.sizes[i]);
            SHA256_Update(&c, p + done, lead - done);
            done = lead;
            lead_state[w * g.nsizes + i] = c;
        }
    }
}

void content_for(struct content *o, const char *key, size_t n)
{
    uint64_t h = hash64(key, n, g.seed);
    o->hash = h;
    o->iwin = (uint32_t)(h % windows);
    o->isize = (uint32_t)((h >> 32) % g.nsizes);
    o->size = g.sizes[o->isize];
    o->ntail = (uint32_t)tail_of(o->size);
    o->lead = o->size - o->ntail;
    o->win = pattern + (size_t)o->iwin * STRIDE;
    uint64_t s = h ^ mix64(o->size + 1), w[TAIL / 8];
    for (size_t i = 0; i < TAIL / 8; i++)
        w[i] = rng_next(&s);
    memcpy(o->tail, w, TAIL);
}

bool content_check(const struct content *o, size_t pos, const char *p, size_t n)
{
    if (pos > o->size || n > o->size - pos)
        return false;
    if (pos < o->lead) {
        size_t k = o->lead - pos < n ? o->lead - pos : n;
        if (memcmp(p, o->win + pos, k) != 0)
            return false;
        pos += k;
        p += k;
        n -= k;
    }
    return n == 0 || memcmp(p, o->tail + (pos - o->lead), n) == 0;
}

static void finish(SHA256_CTX c, const void *p, size_t n, char out[64])
{
    unsigned char d[32];
    SHA256_Update(&c, p, n);
    SHA256_Final(d, &c);
    hex(out, d, 32);
}

void content_sha(const struct content *o, char out[64])
{
    finish(lead_state[o->iwin * g.nsizes + o->isize], o->tail, o->ntail, out);
}

void content_part_sha(const struct content *o, size_t part, char out[64])
{
    size_t from = part * g.part_size, to = from + g.part_size, skip = from > o->lead ? from - o->lead : 0;
    size_t n = to > o->lead ? (to < o->size ? to : o->size) - o->lead - skip : 0;
    finish(part_state[o->iwin * nparts + part], o->tail + skip, n, out);
}
