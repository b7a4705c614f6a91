/* SPDX-License-Identifier: Apache-2.0 */
/* The model: what keys, uploads and tables should be. No store in here. */
#include "sim.h"

#include <string.h>

static const char *const names[KEYS_PER_BUCKET] = {
    "a", "b", "dir/a", "dir/b", "dir/sub/c", "dir0", "e/f/g", "e/f/h", "e/f0/\xc3\xa9", "long-name-with-many-letters/x", "z", "z/z"};

const char *key_name(size_t key)
{
    return names[key % KEYS_PER_BUCKET];
}

size_t key_bucket(size_t key)
{
    return key / KEYS_PER_BUCKET;
}

tarn_versioning key_versioning(const model *m, size_t key)
{
    return m->versioning[key_bucket(key)];
}

uint64_t version_size(const mversion *v)
{
    uint64_t n = 0;
    for (size_t i = 0; i < v->pieces_n; i++)
        n += v->pieces[i].size;
    return n;
}

bool version_live(const mkey *k)
{
    return k->n > 0 && !k->v[0].marker;
}

void key_remove(mkey *k, size_t i)
{
    TARN_ASSERT(i < k->n);
    memmove(k->v + i, k->v + i + 1, (k->n - i - 1) * sizeof k->v[0]);
    k->n--;
}

/* A new current version, as the bucket's versioning says. */
mversion *key_push(mkey *k, tarn_versioning versioning, bool marker)
{
    bool null = versioning != TARN_VERSIONING_ENABLED;
    for (size_t i = 0; null && i < k->n; i++) {
        if (k->v[i].null) {
            key_remove(k, i);
            break;
        }
    }
    TARN_ASSERT(k->n < VERSIONS_MAX);
    memmove(k->v + 1, k->v, k->n * sizeof k->v[0]);
    k->n++;
    k->v[0] = (mversion){.marker = marker, .null = null};
    return &k->v[0];
}

void effect_none(effect *e)
{
    *e = (effect){.bucket = -1, .slot = -1, .table = -1, .file = SIZE_MAX};
}

/* ------------------------------------------------------------------ bytes */
void bytes_of(const piece *p, uint64_t off, uint8_t *out, size_t n)
{
    for (size_t i = 0; i < n;) {
        uint64_t word = (off + i) / 8, x = (word + 1) * 0x9E3779B97F4A7C15u ^ p->seed;
        x = (x ^ x >> 29) * 0xBF58476D1CE4E5B9u;
        x ^= x >> 32;
        size_t from = (size_t)((off + i) % 8);
        size_t part = 8 - from < n - i ? 8 - from : n - i;
        memcpy(out + i, (const uint8_t *)&x + from, part);
        i += part;
    }
}

bool bytes_match(const mversion *v, uint64_t off, const uint8_t *p, size_t n)
{
    uint8_t want[4096];
    uint64_t start = 0;
    for (size_t i = 0; i < v->pieces_n && n > 0; start += v->pieces[i++].size) {
        while (n > 0 && off >= start && off < start + v->pieces[i].size) {
            uint64_t left = start + v->pieces[i].size - off;
            size_t part = n < sizeof want ? n : sizeof want;
            part = part < left ? part : (size_t)left;
            bytes_of(&v->pieces[i], off - start, want, part);
            if (memcmp(want, p, part) != 0)
                return false;
            p += part;
            off += part;
            n -= part;
        }
    }
    return n == 0;
}

static void md5_of(const piece *p, uint8_t out[TARN_MD5_BYTES])
{
    uint8_t buf[8192];
    tarn_md5_state md5;
    tarn_md5_init(&md5);
    for (uint64_t at = 0; at < p->size;) {
        size_t n = p->size - at < sizeof buf ? (size_t)(p->size - at) : sizeof buf;
        bytes_of(p, at, buf, n);
        tarn_md5_update(&md5, buf, n);
        at += n;
    }
    tarn_md5_final(&md5, out);
}

void etag_of(const piece *p, char out[64])
{
    uint8_t sum[TARN_MD5_BYTES];
    tarn_sb b;
    md5_of(p, sum);
    tarn_sb_init_fixed(&b, out, 64);
    tarn_sb_hex(&b, sum, sizeof sum);
}

void etag_of_parts(const mupload *u, char out[64])
{
    uint8_t sum[TARN_MD5_BYTES];
    tarn_md5_state md5;
    tarn_sb b;
    unsigned n = 0;
    tarn_md5_init(&md5);
    for (size_t i = 0; i < PARTS; i++) {
        if (u->parts[i].there) {
            TARN_ASSERT(tarn_hex_decode(tarn_str_of(u->parts[i].etag), sum, sizeof sum));
            tarn_md5_update(&md5, sum, sizeof sum);
            n++;
        }
    }
    tarn_md5_final(&md5, sum);
    tarn_sb_init_fixed(&b, out, 64);
    tarn_sb_hex(&b, sum, sizeof sum);
    tarn_sb_fmt(&b, "-%u", n);
}
