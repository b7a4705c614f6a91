/* SPDX-License-Identifier: Apache-2.0 */
/*
 * CRC-64/NVME: reflected polynomial 0x9A6C9329AC4BC9B5, all ones in and out. isa-l of our oldest platform lacks it.
 *
 * Two ways: carry-less multiplication folds 64 bytes at a time into 16 (x86-64 with PCLMULQDQ), and a table of eight
 * slices does the rest, or all of it on other processors.
 *
 * Folding: a 128-bit piece at distance d bits from where it is folded to contributes its low half (the earlier bytes, so
 * the higher powers) times x^(d+63) and its high half times x^(d-1), both mod P and reflected; the missing factor x is
 * what a carry-less product of reflected operands supplies by itself. d = 512 for the four accumulators, 128 to join them.
 *
 * Invariant 1: the register between steps is the CRC without its final inversion.
 * Memory: the tables are static, made once. Threads: any.
 */
#include "private.h"

#include <pthread.h>
#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#define NVME_POLY 0x9A6C9329AC4BC9B5u
#define SLICES 8
#define FOLD_BYTES_MIN 128 /* shorter texts are faster by table */

static uint64_t slices[SLICES][256];
static bool can_fold;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void set_up(void)
{
    for (unsigned i = 0; i < 256; i++) {
        uint64_t v = i;
        for (unsigned bit = 0; bit < 8; bit++) {
            v = (v & 1) != 0 ? v >> 1 ^ NVME_POLY : v >> 1;
        }
        slices[0][i] = v;
    }
    for (unsigned s = 1; s < SLICES; s++) {
        for (unsigned i = 0; i < 256; i++) {
            uint64_t before = slices[s - 1][i];
            slices[s][i] = before >> 8 ^ slices[0][before & 0xFF];
        }
    }
#if defined(__x86_64__)
    can_fold = __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1");
#endif
}

static uint64_t by_table(uint64_t reg, const uint8_t *p, size_t n)
{
    for (; n >= 8; n -= 8, p += 8) {
        uint64_t word = 0;
        for (unsigned i = 0; i < 8; i++) {
            word |= (uint64_t)p[i] << (8 * i);
        }
        word ^= reg;
        reg = 0;
        for (unsigned i = 0; i < SLICES; i++) {
            reg ^= slices[SLICES - 1 - i][word >> (8 * i) & 0xFF];
        }
    }
    for (size_t i = 0; i < n; i++) {
        reg = reg >> 8 ^ slices[0][(reg ^ p[i]) & 0xFF];
    }
    return reg;
}

#if defined(__x86_64__)
#define FOLD_TARGET __attribute__((target("pclmul,sse4.1")))
#define FOLD_64_LOW 0x0C32CDB31E18A84Au
#define FOLD_64_HIGH 0x62242240ACE5045Au
#define FOLD_16_LOW 0xEADC41FD2BA3D420u
#define FOLD_16_HIGH 0x21E9761E252621ACu

FOLD_TARGET static inline __m128i load(const uint8_t *p)
{
    return _mm_loadu_si128((const __m128i *)(const void *)p);
}

FOLD_TARGET static inline __m128i fold(__m128i acc, __m128i factors, __m128i next)
{
    __m128i low = _mm_clmulepi64_si128(acc, factors, 0x00);
    __m128i high = _mm_clmulepi64_si128(acc, factors, 0x11);
    return _mm_xor_si128(_mm_xor_si128(low, high), next);
}

/* n ≥ 64; takes all of it. */
FOLD_TARGET static uint64_t by_folding(uint64_t reg, const uint8_t *p, size_t n)
{
    const __m128i by_64 = _mm_set_epi64x((int64_t)FOLD_64_HIGH, (int64_t)FOLD_64_LOW);
    const __m128i by_16 = _mm_set_epi64x((int64_t)FOLD_16_HIGH, (int64_t)FOLD_16_LOW);
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
    for (; n >= 16; n -= 16, p += 16) {
        a = fold(a, by_16, load(p));
    }
    uint8_t rest[16];
    _mm_storeu_si128((__m128i *)(void *)rest, a);
    return by_table(by_table(0, rest, sizeof rest), p, n);
}
#endif

uint64_t crc64nvme_by_table(uint64_t crc, const void *p, size_t n)
{
    TARN_ASSERT(pthread_once(&once, set_up) == 0);
    return ~by_table(~crc, p, n);
}

uint64_t crc64nvme(uint64_t crc, const void *p, size_t n)
{
#if defined(__x86_64__)
    if (n >= FOLD_BYTES_MIN) {
        TARN_ASSERT(pthread_once(&once, set_up) == 0);
        if (can_fold) {
            return ~by_folding(~crc, p, n);
        }
    }
#endif
    return crc64nvme_by_table(crc, p, n);
}
