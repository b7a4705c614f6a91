/* SPDX-License-Identifier: Apache-2.0 */
/*
 * CRC-64/NVME (reflected polynomial 0x9A6C9329AC4BC9B5) and CRC-64/ECMA (0xC96C5795D7870F42): all ones in and out. isa-l of our
 * oldest platform lacks the first, and has no wide registers for the second.
 *
 * Three ways: carry-less multiplication folds 128 bytes at a time (VPCLMULQDQ, 256 bits wide), or 64 bytes (PCLMULQDQ), and a table
 * of eight slices does the rest, or all of it on other processors. Without the wide way ECMA is isa-l's.
 *
 * Folding: a 128-bit piece at distance d bits from where it is folded to contributes its low half (the earlier bytes, so
 * the higher powers) times x^(d+63) and its high half times x^(d-1), both mod P and reflected; the missing factor x is
 * what a carry-less product of reflected operands supplies by itself. d = 512 or 1024 for the four accumulators, 128 or 256 to
 * join them.
 *
 * Invariant 1: the register between steps is the CRC without its final inversion.
 * Memory: the tables are static, made once. Threads: any.
 */
#include "private.h"

#include <isa-l/crc64.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#define SLICES 8
#define FOLD_BYTES_MIN 128 /* shorter texts are faster by table */
#define WIDE_BYTES_MIN 256

typedef struct fold_factors {
    uint64_t low, high;
} fold_factors;

typedef struct crc64_field {
    uint64_t slices[SLICES][256];
    fold_factors by_16, by_32, by_64, by_128; /* bytes */
} crc64_field;

static crc64_field nvme, ecma;
static bool can_fold, can_fold_wide;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static atomic_bool narrow_only; /* tests */

static void set_up_slices(crc64_field *f, uint64_t poly)
{
    for (unsigned i = 0; i < 256; i++) {
        uint64_t v = i;
        for (unsigned bit = 0; bit < 8; bit++) {
            v = (v & 1) != 0 ? v >> 1 ^ poly : v >> 1;
        }
        f->slices[0][i] = v;
    }
    for (unsigned s = 1; s < SLICES; s++) {
        for (unsigned i = 0; i < 256; i++) {
            uint64_t before = f->slices[s - 1][i];
            f->slices[s][i] = before >> 8 ^ f->slices[0][before & 0xFF];
        }
    }
}

/* x^n mod P, reflected: the highest bit is the coefficient of x^0. */
static uint64_t power_of_x(uint64_t poly, unsigned n)
{
    uint64_t v = (uint64_t)1 << 63;
    for (; n > 0; n--) {
        v = (v & 1) != 0 ? v >> 1 ^ poly : v >> 1;
    }
    return v;
}

static fold_factors factors_for(uint64_t poly, unsigned bytes)
{
    return (fold_factors){.low = power_of_x(poly, 8 * bytes + 63), .high = power_of_x(poly, 8 * bytes - 1)};
}

static void set_up_field(crc64_field *f, uint64_t poly)
{
    set_up_slices(f, poly);
    f->by_16 = factors_for(poly, 16);
    f->by_32 = factors_for(poly, 32);
    f->by_64 = factors_for(poly, 64);
    f->by_128 = factors_for(poly, 128);
}

static void set_up(void)
{
    set_up_field(&nvme, 0x9A6C9329AC4BC9B5U);
    set_up_field(&ecma, 0xC96C5795D7870F42U);
#if defined(__x86_64__)
    can_fold = __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1");
    can_fold_wide = can_fold && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("vpclmulqdq");
#endif
}

static uint64_t by_table(const crc64_field *f, uint64_t reg, const uint8_t *p, size_t n)
{
    for (; n >= 8; n -= 8, p += 8) {
        uint64_t word = 0;
        for (unsigned i = 0; i < 8; i++) {
            word |= (uint64_t)p[i] << (8 * i);
        }
        word ^= reg;
        reg = 0;
        for (unsigned i = 0; i < SLICES; i++) {
            reg ^= f->slices[SLICES - 1 - i][word >> (8 * i) & 0xFF];
        }
    }
    for (size_t i = 0; i < n; i++) {
        reg = reg >> 8 ^ f->slices[0][(reg ^ p[i]) & 0xFF];
    }
    return reg;
}

#if defined(__x86_64__)
#define FOLD_TARGET __attribute__((target("pclmul,sse4.1")))
#define WIDE_TARGET __attribute__((target("pclmul,vpclmulqdq,avx2")))

FOLD_TARGET static inline __m128i load(const uint8_t *p)
{
    return _mm_loadu_si128((const __m128i *)(const void *)p);
}

FOLD_TARGET static inline __m128i factors(fold_factors f)
{
    return _mm_set_epi64x((int64_t)f.high, (int64_t)f.low);
}

FOLD_TARGET static inline __m128i fold(__m128i acc, __m128i factors, __m128i next)
{
    __m128i low = _mm_clmulepi64_si128(acc, factors, 0x00);
    __m128i high = _mm_clmulepi64_si128(acc, factors, 0x11);
    return _mm_xor_si128(_mm_xor_si128(low, high), next);
}

/* The rest of the text behind an accumulator. */
FOLD_TARGET static uint64_t finish(const crc64_field *f, __m128i a, const uint8_t *p, size_t n)
{
    const __m128i by_16 = factors(f->by_16);
    for (; n >= 16; n -= 16, p += 16) {
        a = fold(a, by_16, load(p));
    }
    uint8_t rest[16];
    _mm_storeu_si128((__m128i *)(void *)rest, a);
    return by_table(f, by_table(f, 0, rest, sizeof rest), p, n);
}

/* n ≥ 64; takes all of it. */
FOLD_TARGET static uint64_t by_folding(const crc64_field *f, uint64_t reg, const uint8_t *p, size_t n)
{
    const __m128i by_64 = factors(f->by_64);
    const __m128i by_16 = factors(f->by_16);
    __m128i a = _mm_xor_si128(load(p), _mm_set_epi64x(0, (int64_t)reg));
    __m128i b = load(p + 16);
    __m128i c = load(p + 32);
    __m128i d = load(p + 48);
    p += 64;
    n -= 64;
    for (; n >= 64; n -= 64, p += 64) {
        a = fold(a, by_64, load(p));
        b = fold(b, by_64, load(p + 16));
        c = fold(c, by_64, load(p + 32));
        d = fold(d, by_64, load(p + 48));
    }
    a = fold(a, by_16, b);
    a = fold(a, by_16, c);
    a = fold(a, by_16, d);
    return finish(f, a, p, n);
}

WIDE_TARGET static inline __m256i load_wide(const uint8_t *p)
{
    return _mm256_loadu_si256((const __m256i *)(const void *)p);
}

WIDE_TARGET static inline __m256i factors_wide(fold_factors f)
{
    return _mm256_set_epi64x((int64_t)f.high, (int64_t)f.low, (int64_t)f.high, (int64_t)f.low);
}

WIDE_TARGET static inline __m256i fold_wide(__m256i acc, __m256i factors, __m256i next)
{
    __m256i low = _mm256_clmulepi64_epi128(acc, factors, 0x00);
    __m256i high = _mm256_clmulepi64_epi128(acc, factors, 0x11);
    return _mm256_xor_si256(_mm256_xor_si256(low, high), next);
}

/* n ≥ 128; takes all of it. */
WIDE_TARGET static uint64_t by_wide_folding(const crc64_field *f, uint64_t reg, const uint8_t *p, size_t n)
{
    const __m256i by_128 = factors_wide(f->by_128);
    const __m256i by_32 = factors_wide(f->by_32);
    __m256i a = _mm256_xor_si256(load_wide(p), _mm256_set_epi64x(0, 0, 0, (int64_t)reg));
    __m256i b = load_wide(p + 32);
    __m256i c = load_wide(p + 64);
    __m256i d = load_wide(p + 96);
    p += 128;
    n -= 128;
    for (; n >= 128; n -= 128, p += 128) {
        a = fold_wide(a, by_128, load_wide(p));
        b = fold_wide(b, by_128, load_wide(p + 32));
        c = fold_wide(c, by_128, load_wide(p + 64));
        d = fold_wide(d, by_128, load_wide(p + 96));
    }
    a = fold_wide(a, by_32, b);
    a = fold_wide(a, by_32, c);
    a = fold_wide(a, by_32, d);
    __m128i joined = fold(_mm256_castsi256_si128(a), factors(f->by_16), _mm256_extracti128_si256(a, 1));
    _mm256_zeroupper(); /* what follows may be code without VEX */
    return finish(f, joined, p, n);
}

static bool wide(size_t n)
{
    TARN_ASSERT(pthread_once(&once, set_up) == 0);
    return n >= WIDE_BYTES_MIN && can_fold_wide && !atomic_load_explicit(&narrow_only, memory_order_relaxed);
}
#endif

void crc64_choose_narrow(bool narrow)
{
    atomic_store(&narrow_only, narrow);
}

uint64_t crc64nvme_by_table(uint64_t crc, const void *p, size_t n)
{
    TARN_ASSERT(pthread_once(&once, set_up) == 0);
    return ~by_table(&nvme, ~crc, p, n);
}

uint64_t crc64nvme(uint64_t crc, const void *p, size_t n)
{
#if defined(__x86_64__)
    if (wide(n)) {
        return ~by_wide_folding(&nvme, ~crc, p, n);
    }
    if (n >= FOLD_BYTES_MIN && can_fold) {
        return ~by_folding(&nvme, ~crc, p, n);
    }
#endif
    return crc64nvme_by_table(crc, p, n);
}

uint64_t tarn_crc64(uint64_t seed, const void *p, size_t n)
{
#if defined(__x86_64__)
    if (wide(n)) {
        return ~by_wide_folding(&ecma, ~seed, p, n);
    }
#endif
    return n > 0 ? crc64_ecma_refl(seed, p, n) : seed;
}
