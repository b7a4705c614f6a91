/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The checksums of S3 as one running sum, the CRC of two texts put together, and the checksum of shard blocks.
 *
 * States of a tarn_sum: begin → update* (peek at any point) → end. Which member holds the state depends on `kind`: the
 * CRCs use crc, SHA an EVP_MD_CTX in ctx, SHA-256 by the processor's instructions sha256 (then ctx is NULL), MD5 a tarn_md5_state
 * in ctx.
 * Invariant 1: a CRC in `crc` is a finished one (inverted at the end), so that peek only has to write it down.
 * Memory: ctx belongs to the sum and is wiped and freed by tarn_sum_end. Threads: one at a time for a sum.
 */
#include "private.h"

#include <isa-l/crc.h>
#include <limits.h>
#include <string.h>

typedef struct sum_row {
    const char *name;
    const char *header;
    size_t bytes;
} sum_row;

static const sum_row rows[TARN_SUM_KIND_COUNT] = {
    [TARN_SUM_NONE] = {"NONE", NULL, 0},
    [TARN_SUM_CRC32] = {"CRC32", "x-amz-checksum-crc32", 4},
    [TARN_SUM_CRC32C] = {"CRC32C", "x-amz-checksum-crc32c", 4},
    [TARN_SUM_CRC64NVME] = {"CRC64NVME", "x-amz-checksum-crc64nvme", 8},
    [TARN_SUM_SHA1] = {"SHA1", "x-amz-checksum-sha1", TARN_SHA1_BYTES},
    [TARN_SUM_SHA256] = {"SHA256", "x-amz-checksum-sha256", TARN_SHA256_BYTES},
    [TARN_SUM_MD5] = {"MD5", NULL, TARN_MD5_BYTES},
};

static const sum_row *row_of(tarn_sum_kind k)
{
    TARN_ASSERT((unsigned)k < TARN_SUM_KIND_COUNT);
    return &rows[k];
}

size_t tarn_sum_bytes(tarn_sum_kind k)
{
    return row_of(k)->bytes;
}

const char *tarn_sum_name(tarn_sum_kind k)
{
    return row_of(k)->name;
}

const char *tarn_sum_header(tarn_sum_kind k)
{
    return row_of(k)->header;
}

tarn_sum_kind tarn_sum_by_name(tarn_str name)
{
    for (unsigned k = TARN_SUM_NONE + 1; k < TARN_SUM_KIND_COUNT; k++) {
        if (tarn_str_ieqc(name, rows[k].name)) {
            return (tarn_sum_kind)k;
        }
    }
    return TARN_SUM_NONE;
}

tarn_sum_kind tarn_sum_by_header(tarn_str header_name)
{
    for (unsigned k = TARN_SUM_NONE + 1; k < TARN_SUM_KIND_COUNT; k++) {
        if (rows[k].header && tarn_str_ieqc(header_name, rows[k].header)) {
            return (tarn_sum_kind)k;
        }
    }
    return TARN_SUM_NONE;
}

/* ------------------------------------------------------------------ single CRCs */
static uint32_t crc32_of(uint32_t crc, const void *p, size_t n)
{
    return n > 0 ? crc32_gzip_refl(crc, p, n) : crc;
}

uint32_t tarn_crc32c(uint32_t seed, const void *p, size_t n)
{
    uint32_t reg = ~seed; /* isa-l leaves both inversions of this one to the caller */
    const uint8_t *in = p;
    while (n > 0) {
        int take = n < INT_MAX ? (int)n : INT_MAX;
        /* The parameter lacks its const; the function only reads. */
        reg = crc32_iscsi((unsigned char *)(uintptr_t)in, take, reg);
        in += take;
        n -= (size_t)take;
    }
    return ~reg;
}

/* ------------------------------------------------------------------ the running sum */
static tarn_err begin_sha(tarn_sum *s, digest_algorithm a)
{
    if (a == DIGEST_SHA256 && sha256_own()) {
        sha256_init(&s->sha256);
        return TARN_OK;
    }
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    if (!ctx || EVP_DigestInit_ex2(ctx, digest_md(a), NULL) != 1) {
        EVP_MD_CTX_free(ctx);
        return TARN_E_NO_MEMORY;
    }
    s->ctx = ctx;
    return TARN_OK;
}

static tarn_err begin_md5(tarn_sum *s)
{
    tarn_md5_state *state = tarn_malloc(sizeof *state);
    if (!state) {
        return TARN_E_NO_MEMORY;
    }
    tarn_md5_init(state);
    s->ctx = state;
    return TARN_OK;
}

tarn_err tarn_sum_begin(tarn_sum *s, tarn_sum_kind kind)
{
    *s = (tarn_sum){.kind = kind};
    tarn_err e = TARN_OK;
    if (kind == TARN_SUM_SHA1) {
        e = begin_sha(s, DIGEST_SHA1);
    } else if (kind == TARN_SUM_SHA256) {
        e = begin_sha(s, DIGEST_SHA256);
    } else if (kind == TARN_SUM_MD5) {
        e = begin_md5(s);
    }
    if (e != TARN_OK) {
        *s = (tarn_sum){.kind = TARN_SUM_NONE};
    }
    return e;
}

void tarn_sum_update(tarn_sum *s, const void *p, size_t n)
{
    if (n == 0) {
        return;
    }
    switch (s->kind) {
    case TARN_SUM_CRC32:
        s->crc = crc32_of((uint32_t)s->crc, p, n);
        break;
    case TARN_SUM_CRC32C:
        s->crc = tarn_crc32c((uint32_t)s->crc, p, n);
        break;
    case TARN_SUM_CRC64NVME:
        s->crc = crc64nvme(s->crc, p, n);
        break;
    case TARN_SUM_SHA1:
    case TARN_SUM_SHA256:
        if (s->ctx) {
            TARN_ASSERT(EVP_DigestUpdate(s->ctx, p, n) == 1);
        } else {
            sha256_update(&s->sha256, p, n);
        }
        break;
    case TARN_SUM_MD5:
        tarn_md5_update(s->ctx, p, n);
        break;
    case TARN_SUM_NONE:
    case TARN_SUM_KIND_COUNT:
        break;
    }
}

static void put_be(uint8_t *out, uint64_t v, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        out[i] = (uint8_t)(v >> (8 * (n - 1 - i)));
    }
}

static uint64_t get_be(const uint8_t *in, size_t n)
{
    uint64_t v = 0;
    for (size_t i = 0; i < n; i++) {
        v = v << 8 | in[i];
    }
    return v;
}

void tarn_sum_peek(const tarn_sum *s, uint8_t out[TARN_DIGEST_BYTES_MAX])
{
    switch (s->kind) {
    case TARN_SUM_CRC32:
    case TARN_SUM_CRC32C:
    case TARN_SUM_CRC64NVME:
        put_be(out, s->crc, tarn_sum_bytes(s->kind));
        break;
    case TARN_SUM_SHA1:
    case TARN_SUM_SHA256:
        if (s->ctx) {
            TARN_ASSERT(EVP_MD_CTX_copy_ex(digest_scratch(), s->ctx) == 1);
            TARN_ASSERT(EVP_DigestFinal_ex(digest_scratch(), out, NULL) == 1);
        } else {
            sha256_final(&s->sha256, out);
        }
        break;
    case TARN_SUM_MD5:
        tarn_md5_final(s->ctx, out);
        break;
    case TARN_SUM_NONE:
    case TARN_SUM_KIND_COUNT:
        break;
    }
}

void tarn_sum_end(tarn_sum *s)
{
    if (s->kind == TARN_SUM_MD5) {
        tarn_wipe(s->ctx, s->ctx ? sizeof(tarn_md5_state) : 0);
        tarn_free(s->ctx);
    } else {
        EVP_MD_CTX_free(s->ctx); /* cleanses; NULL is fine */
    }
    tarn_wipe(s, sizeof *s);
}

/* ------------------------------------------------------------------ CRC of a‖b */
/*
 * With equal inversions at both ends crc(a‖b) = crc(a)·x^(8·|b|) mod P ⊕ crc(b). Polynomials are reflected: the highest of
 * `width` bits is the coefficient of x^0.
 */
typedef struct crc_field {
    unsigned width;
    uint64_t poly;
} crc_field;

static uint64_t multiply(const crc_field *f, uint64_t a, uint64_t b)
{
    uint64_t product = 0;
    for (uint64_t bit = (uint64_t)1 << (f->width - 1); bit != 0; bit >>= 1) {
        if ((b & bit) != 0) {
            product ^= a;
        }
        a = (a & 1) != 0 ? a >> 1 ^ f->poly : a >> 1;
    }
    return product;
}

/* x^(8·bytes) mod P, by repeated squaring. */
static uint64_t shift_factor(const crc_field *f, uint64_t bytes)
{
    uint64_t factor = (uint64_t)1 << (f->width - 1);     /* x^0 */
    uint64_t square = (uint64_t)1 << (f->width - 1 - 8); /* x^8 */
    for (; bytes != 0; bytes >>= 1) {
        if ((bytes & 1) != 0) {
            factor = multiply(f, factor, square);
        }
        square = multiply(f, square, square);
    }
    return factor;
}

void tarn_sum_combine(tarn_sum_kind k, const uint8_t *a, const uint8_t *b, uint64_t b_len_bytes, uint8_t *out)
{
    static const crc_field fields[] = {
        [TARN_SUM_CRC32] = {32, 0xEDB88320u},
        [TARN_SUM_CRC32C] = {32, 0x82F63B78u},
        [TARN_SUM_CRC64NVME] = {64, 0x9A6C9329AC4BC9B5u},
    };
    TARN_ASSERT(k == TARN_SUM_CRC32 || k == TARN_SUM_CRC32C || k == TARN_SUM_CRC64NVME);
    size_t n = tarn_sum_bytes(k);
    uint64_t shifted = multiply(&fields[k], get_be(a, n), shift_factor(&fields[k], b_len_bytes));
    put_be(out, shifted ^ get_be(b, n), n);
}
