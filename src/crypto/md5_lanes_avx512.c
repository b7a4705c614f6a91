/* SPDX-License-Identifier: Apache-2.0 */
/*
 * MD5 of 16 streams at once with AVX-512: register a holds word a of all 16 states. Each round function is one ternary
 * logic instruction, and rotation is one instruction too.
 *
 * The message words of 16 lanes are turned over in groups of four words: for each group, four registers collect 16 bytes
 * of four lanes each (lane i, i+4, i+8, i+12), and eight unpacks make of them four registers of one word of 16 lanes.
 *
 * Memory: the caller's. Threads: any. Called only where the processor has AVX-512F.
 */
#include "private.h"

#if defined(__x86_64__)
#include "md5_steps.h"

#include <immintrin.h>

#define LANES 16
#define TARGET __attribute__((target("avx512f")))

/* The truth tables of the round functions, with x, y, z as bits 2, 1, 0 of the index. */
#define TERNARY_F 0xCA /* x ? y : z */
#define TERNARY_G 0xE4 /* z ? x : y */
#define TERNARY_H 0x96 /* x ^ y ^ z */
#define TERNARY_I 0x39 /* y ^ (x | ~z) */

TARGET static inline __m128i load16(const uint8_t *p)
{
    return _mm_loadu_si128((const __m128i *)(const void *)p);
}

TARGET static inline __m512i collect(const uint8_t *const block[LANES], unsigned lane, size_t at)
{
    __m512i v = _mm512_castsi128_si512(load16(block[lane] + at));
    v = _mm512_inserti32x4(v, load16(block[lane + 4] + at), 1);
    v = _mm512_inserti32x4(v, load16(block[lane + 8] + at), 2);
    return _mm512_inserti32x4(v, load16(block[lane + 12] + at), 3);
}

TARGET static inline void load_words(const uint8_t *const block[LANES], size_t at, __m512i m[16])
{
    for (unsigned g = 0; g < 4; g++) {
        __m512i r0 = collect(block, 0, at + 16 * g);
        __m512i r1 = collect(block, 1, at + 16 * g);
        __m512i r2 = collect(block, 2, at + 16 * g);
        __m512i r3 = collect(block, 3, at + 16 * g);
        __m512i low01 = _mm512_unpacklo_epi32(r0, r1);
        __m512i high01 = _mm512_unpackhi_epi32(r0, r1);
        __m512i low23 = _mm512_unpacklo_epi32(r2, r3);
        __m512i high23 = _mm512_unpackhi_epi32(r2, r3);
        m[4 * g] = _mm512_unpacklo_epi64(low01, low23);
        m[4 * g + 1] = _mm512_unpackhi_epi64(low01, low23);
        m[4 * g + 2] = _mm512_unpacklo_epi64(high01, high23);
        m[4 * g + 3] = _mm512_unpackhi_epi64(high01, high23);
    }
}

#define STEP(round, a, b, c, d, word, shift, constant)                                                                                     \
    a = _mm512_add_epi32(a, _mm512_add_epi32(m[word], _mm512_set1_epi32((int)constant)));                                                  \
    a = _mm512_add_epi32(a, _mm512_ternarylogic_epi32(b, c, d, TERNARY_##round));                                                          \
    a = _mm512_add_epi32(_mm512_rol_epi32(a, shift), b);

TARGET void md5_lanes_avx512(md5_lanes *l, size_t blocks)
{
    __m512i a = _mm512_load_si512(l->h[0]);
    __m512i b = _mm512_load_si512(l->h[1]);
    __m512i c = _mm512_load_si512(l->h[2]);
    __m512i d = _mm512_load_si512(l->h[3]);
    for (size_t i = 0; i < blocks; i++) {
        __m512i before[4] = {a, b, c, d};
        __m512i m[16];
        load_words(l->block, i * MD5_BLOCK_BYTES, m);
        MD5_STEPS(STEP)
        a = _mm512_add_epi32(a, before[0]);
        b = _mm512_add_epi32(b, before[1]);
        c = _mm512_add_epi32(c, before[2]);
        d = _mm512_add_epi32(d, before[3]);
    }
    _mm512_store_si512(l->h[0], a);
    _mm512_store_si512(l->h[1], b);
    _mm512_store_si512(l->h[2], c);
    _mm512_store_si512(l->h[3], d);
    for (unsigned i = 0; i < LANES; i++) {
        l->block[i] += blocks * MD5_BLOCK_BYTES;
    }
}
#else
typedef int tarn_md5_lanes_avx512_unused; /* a translation unit may not be empty */
#endif
