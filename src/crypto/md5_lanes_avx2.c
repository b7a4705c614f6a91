/* SPDX-License-Identifier: Apache-2.0 */
/*
 * MD5 of 8 streams at once with AVX2, or better with AVX-512VL: register a holds word a of all 8 states.
 *
 * The message words are turned over in groups of four words: for each group, four registers collect 16 bytes of two lanes
 * each (lane i and i+4), and eight unpacks make of them four registers of one word of 8 lanes.
 *
 * Memory: the caller's. Threads: any. Called only where the processor has AVX2 (AVX-512VL for the second).
 */
#include "private.h"

#if defined(__x86_64__)
#include "md5_steps.h"

#include <immintrin.h>

#define LANES 8
#define TARGET __attribute__((target("avx2")))

TARGET static inline __m128i load16(const uint8_t *p)
{
    return _mm_loadu_si128((const __m128i *)(const void *)p);
}

TARGET static inline __m256i collect(const uint8_t *const block[LANES], unsigned lane, size_t at)
{
    return _mm256_inserti128_si256(_mm256_castsi128_si256(load16(block[lane] + at)), load16(block[lane + 4] + at), 1);
}

TARGET static inline void load_words(const uint8_t *const block[LANES], size_t at, __m256i m[16])
{
    for (unsigned g = 0; g < 4; g++) {
        __m256i r0 = collect(block, 0, at + 16 * g);
        __m256i r1 = collect(block, 1, at + 16 * g);
        __m256i r2 = collect(block, 2, at + 16 * g);
        __m256i r3 = collect(block, 3, at + 16 * g);
        __m256i low01 = _mm256_unpacklo_epi32(r0, r1);
        __m256i high01 = _mm256_unpackhi_epi32(r0, r1);
        __m256i low23 = _mm256_unpacklo_epi32(r2, r3);
        __m256i high23 = _mm256_unpackhi_epi32(r2, r3);
        m[4 * g] = _mm256_unpacklo_epi64(low01, low23);
        m[4 * g + 1] = _mm256_unpackhi_epi64(low01, low23);
        m[4 * g + 2] = _mm256_unpacklo_epi64(high01, high23);
        m[4 * g + 3] = _mm256_unpackhi_epi64(high01, high23);
    }
}

/* As in md5.c, G adds its halves to shorten the chain. */
#define ONES _mm256_set1_epi32(-1)
#define ROUND_F(x, y, z) _mm256_xor_si256(z, _mm256_and_si256(x, _mm256_xor_si256(y, z)))
#define ROUND_G(x, y, z) _mm256_add_epi32(_mm256_andnot_si256(z, y), _mm256_and_si256(x, z))
#define ROUND_H(x, y, z) _mm256_xor_si256(x, _mm256_xor_si256(y, z))
#define ROUND_I(x, y, z) _mm256_xor_si256(y, _mm256_or_si256(x, _mm256_xor_si256(z, ONES)))
#define STEP(round, a, b, c, d, word, shift, constant)                                                                                     \
    a = _mm256_add_epi32(a, _mm256_add_epi32(m[word], _mm256_set1_epi32((int)constant)));                                                  \
    a = _mm256_add_epi32(a, ROUND_##round(b, c, d));                                                                                       \
    a = _mm256_or_si256(_mm256_slli_epi32(a, shift), _mm256_srli_epi32(a, 32 - (shift)));                                                  \
    a = _mm256_add_epi32(a, b);

TARGET static inline __m256i load_state(const uint32_t *h)
{
    return _mm256_load_si256((const __m256i *)(const void *)h);
}

TARGET static inline void store_state(uint32_t *h, __m256i v)
{
    _mm256_store_si256((__m256i *)(void *)h, v);
}

/* With AVX-512VL a round function is one instruction, and so is a rotation; truth tables as in md5_lanes_avx512.c. */
#define TARGET_VL __attribute__((target("avx2,avx512f,avx512vl")))
#define TERNARY_F 0xCA
#define TERNARY_G 0xE4
#define TERNARY_H 0x96
#define TERNARY_I 0x39
#define STEP_VL(round, a, b, c, d, word, shift, constant)                                                                                  \
    a = _mm256_add_epi32(a, _mm256_add_epi32(m[word], _mm256_set1_epi32((int)constant)));                                                  \
    a = _mm256_add_epi32(a, _mm256_ternarylogic_epi32(b, c, d, TERNARY_##round));                                                          \
    a = _mm256_add_epi32(_mm256_rol_epi32(a, shift), b);

TARGET static inline void move_on(md5_lanes *l, size_t blocks)
{
    for (unsigned i = 0; i < LANES; i++) {
        l->block[i] += blocks * MD5_BLOCK_BYTES;
    }
}

TARGET void md5_lanes_avx2(md5_lanes *l, size_t blocks)
{
    __m256i a = load_state(l->h[0]);
    __m256i b = load_state(l->h[1]);
    __m256i c = load_state(l->h[2]);
    __m256i d = load_state(l->h[3]);
    for (size_t i = 0; i < blocks; i++) {
        __m256i before[4] = {a, b, c, d};
        __m256i m[16];
        load_words(l->block, i * MD5_BLOCK_BYTES, m);
        MD5_STEPS(STEP)
        a = _mm256_add_epi32(a, before[0]);
        b = _mm256_add_epi32(b, before[1]);
        c = _mm256_add_epi32(c, before[2]);
        d = _mm256_add_epi32(d, before[3]);
    }
    store_state(l->h[0], a);
    store_state(l->h[1], b);
    store_state(l->h[2], c);
    store_state(l->h[3], d);
    move_on(l, blocks);
}

TARGET_VL void md5_lanes_avx512vl(md5_lanes *l, size_t blocks)
{
    __m256i a = load_state(l->h[0]);
    __m256i b = load_state(l->h[1]);
    __m256i c = load_state(l->h[2]);
    __m256i d = load_state(l->h[3]);
    for (size_t i = 0; i < blocks; i++) {
        __m256i before[4] = {a, b, c, d};
        __m256i m[16];
        load_words(l->block, i * MD5_BLOCK_BYTES, m);
        MD5_STEPS(STEP_VL)
        a = _mm256_add_epi32(a, before[0]);
        b = _mm256_add_epi32(b, before[1]);
        c = _mm256_add_epi32(c, before[2]);
        d = _mm256_add_epi32(d, before[3]);
    }
    store_state(l->h[0], a);
    store_state(l->h[1], b);
    store_state(l->h[2], c);
    store_state(l->h[3], d);
    move_on(l, blocks);
}
#else
typedef int tarn_md5_lanes_avx2_unused; /* a translation unit may not be empty */
#endif
