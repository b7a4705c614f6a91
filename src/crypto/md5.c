/* SPDX-License-Identifier: Apache-2.0 */
/*
 * MD5 (RFC 1321) of one stream. It is no protection against anybody, but S3 clients compare it as the ETag.
 *
 * Invariant 1: tail_n = total_bytes mod 64 < 64; the first tail_n bytes of tail wait for their block to be full.
 * Invariant 2: a final works on a copy, so a state can be read at any time and go on.
 * Memory: the caller's. Threads: one at a time for a state.
 */
#include "private.h"
#include "md5_steps.h"

#include <string.h>

#define STEP(round, a, b, c, d, word, shift, constant)                                                                                     \
    a += m[word] + constant + MD5_READY_##round(c, d);                                                                                     \
    a += MD5_LAST_##round(b, c, d);                                                                                                        \
    a = (a << (shift) | a >> (32 - (shift))) + b;

void md5_blocks(uint32_t h[4], const uint8_t *p, size_t blocks)
{
    uint32_t a = h[0];
    uint32_t b = h[1];
    uint32_t c = h[2];
    uint32_t d = h[3];
    for (; blocks > 0; blocks--, p += MD5_BLOCK_BYTES) {
        uint32_t before[4] = {a, b, c, d};
        uint32_t m[16];
        for (unsigned i = 0; i < 16; i++) {
            m[i] = md5_word(p + 4 * i);
        }
        MD5_STEPS(STEP)
        a += before[0];
        b += before[1];
        c += before[2];
        d += before[3];
    }
    h[0] = a;
    h[1] = b;
    h[2] = c;
    h[3] = d;
}

/* One stream waits for each of its steps; two fill the gaps of each other, which lanes of a register don't do as well. */
void md5_lanes_two(md5_lanes *l, size_t blocks)
{
    const uint8_t *p0 = l->block[0], *p1 = l->block[1];
    uint32_t a0 = l->h[0][0], b0 = l->h[1][0], c0 = l->h[2][0], d0 = l->h[3][0];
    uint32_t a1 = l->h[0][1], b1 = l->h[1][1], c1 = l->h[2][1], d1 = l->h[3][1];
    for (; blocks > 0; blocks--, p0 += MD5_BLOCK_BYTES, p1 += MD5_BLOCK_BYTES) {
        uint32_t before[8] = {a0, b0, c0, d0, a1, b1, c1, d1};
        MD5_STEPS(MD5_STEP_2)
        a0 += before[0];
        b0 += before[1];
        c0 += before[2];
        d0 += before[3];
        a1 += before[4];
        b1 += before[5];
        c1 += before[6];
        d1 += before[7];
    }
    const uint32_t after[4][2] = {{a0, a1}, {b0, b1}, {c0, c1}, {d0, d1}};
    for (unsigned i = 0; i < 4; i++) {
        memcpy(l->h[i], after[i], sizeof after[i]);
    }
    l->block[0] = p0;
    l->block[1] = p1;
}

void tarn_md5_init(tarn_md5_state *s)
{
    *s = (tarn_md5_state){.h = {MD5_START_A, MD5_START_B, MD5_START_C, MD5_START_D}};
}

void tarn_md5_update(tarn_md5_state *s, const void *p, size_t n)
{
    if (n == 0) {
        return;
    }
    const uint8_t *in = p;
    s->total_bytes += n;
    if (s->tail_n > 0) {
        size_t take = MD5_BLOCK_BYTES - s->tail_n < n ? MD5_BLOCK_BYTES - s->tail_n : n;
        memcpy(s->tail + s->tail_n, in, take);
        s->tail_n += take;
        in += take;
        n -= take;
        if (s->tail_n < MD5_BLOCK_BYTES) {
            return;
        }
        md5_blocks(s->h, s->tail, 1);
        s->tail_n = 0;
    }
    md5_blocks(s->h, in, n / MD5_BLOCK_BYTES);
    s->tail_n = n % MD5_BLOCK_BYTES;
    memcpy(s->tail, in + (n - s->tail_n), s->tail_n);
}

void tarn_md5_final(const tarn_md5_state *s, uint8_t out[TARN_MD5_BYTES])
{
    uint8_t last[2 * MD5_BLOCK_BYTES] = {0};
    uint32_t h[4];
    TARN_ASSERT(s->tail_n < MD5_BLOCK_BYTES);
    memcpy(h, s->h, sizeof h);
    memcpy(last, s->tail, s->tail_n);
    last[s->tail_n] = 0x80;
    size_t blocks = s->tail_n < MD5_BLOCK_BYTES - 8 ? 1 : 2; /* the length takes 8 bytes */
    uint64_t bits = s->total_bytes << 3;
    for (unsigned i = 0; i < 8; i++) {
        last[blocks * MD5_BLOCK_BYTES - 8 + i] = (uint8_t)(bits >> (8 * i));
    }
    md5_blocks(h, last, blocks);
    for (unsigned i = 0; i < TARN_MD5_BYTES; i++) {
        out[i] = (uint8_t)(h[i / 4] >> (8 * (i % 4)));
    }
}

void tarn_md5(const void *p, size_t n, uint8_t out[TARN_MD5_BYTES])
{
    tarn_md5_state s;
    tarn_md5_init(&s);
    tarn_md5_update(&s, p, n);
    tarn_md5_final(&s, out);
}
