/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SHA-256 with the processor's own instructions (SHA-NI), alone and together with MD5 of the same bytes.
 *
 * A signed upload needs both digests. Each is one chain of steps that wait for each other, and they use different units: MD5
 * of one or two streams the whole-number units, SHA-256 one vector unit. Woven into each other, the shorter one costs nothing.
 * Measured on one core (Zen 3, gcc -O2), GB/s of all streams together:
 *   streams                           1      2      4
 *   MD5 (one by one, two, 4 of 8)     0.70   1.31   1.70
 *   SHA-256 (one by one, two, two)    1.60   3.08   3.08
 *   one after the other, before       0.49   0.56   0.83   (MD5 in lanes of AVX2, SHA-256 stream by stream)
 *   woven                             0.72   1.25   1.67
 * Eight streams are two times four; no gain over one after the other is left with eight lanes of MD5.
 *
 * Nothing here may use the 256-bit registers: these instructions have no VEX form, and the processor measured takes 100 ns to go
 * from one kind to the other. So the targets name SSE4.1, and four lanes of MD5 are 128 bits wide.
 *
 * In registers a state is ABEF and CDGH, as the instructions want it; a group is four rounds, of which there are 16.
 *
 * Memory: the caller's. Threads: any. Called only where sha256_ni_there().
 */
#include "private.h"

#if defined(__x86_64__)
#include "md5_steps.h"

#include <cpuid.h>
#include <immintrin.h>

#define TARGET __attribute__((target("sha,sse4.1,bmi")))
#define INLINE __attribute__((target("sha,sse4.1,bmi"), always_inline)) static inline

/* The first 32 bits of the fractions of the cube roots of the first 64 primes. */
static const _Alignas(16) uint32_t constants[64] = {
    0x428A2F98, 0x71374491, 0xB5C0FBCF, 0xE9B5DBA5, 0x3956C25B, 0x59F111F1, 0x923F82A4, 0xAB1C5ED5, 0xD807AA98, 0x12835B01, 0x243185BE,
    0x550C7DC3, 0x72BE5D74, 0x80DEB1FE, 0x9BDC06A7, 0xC19BF174, 0xE49B69C1, 0xEFBE4786, 0x0FC19DC6, 0x240CA1CC, 0x2DE92C6F, 0x4A7484AA,
    0x5CB0A9DC, 0x76F988DA, 0x983E5152, 0xA831C66D, 0xB00327C8, 0xBF597FC7, 0xC6E00BF3, 0xD5A79147, 0x06CA6351, 0x14292967, 0x27B70A85,
    0x2E1B2138, 0x4D2C6DFC, 0x53380D13, 0x650A7354, 0x766A0ABB, 0x81C2C92E, 0x92722C85, 0xA2BFE8A1, 0xA81A664B, 0xC24B8B70, 0xC76C51A3,
    0xD192E819, 0xD6990624, 0xF40E3585, 0x106AA070, 0x19A4C116, 0x1E376C08, 0x2748774C, 0x34B0BCB5, 0x391C0CB3, 0x4ED8AA4A, 0x5B9CCA4F,
    0x682E6FF3, 0x748F82EE, 0x78A5636F, 0x84C87814, 0x8CC70208, 0x90BEFFFA, 0xA4506CEB, 0xBEF9A3F7, 0xC67178F2,
};

bool sha256_ni_there(void)
{
    unsigned a, b, c, d, basic_c;
    if (!__get_cpuid(1, &a, &b, &basic_c, &d) || !__get_cpuid_count(7, 0, &a, &b, &c, &d)) {
        return false;
    }
    return (basic_c & bit_SSE4_1) != 0 && (b & bit_SHA) != 0 && (b & bit_BMI) != 0;
}

/* ------------------------------------------------------------------ the rounds */
typedef struct sha_block {
    __m128i abef, cdgh;
    __m128i w[4]; /* message words, 16 at a time */
} sha_block;

INLINE __m128i load16(const uint8_t *p)
{
    return _mm_loadu_si128((const __m128i *)(const void *)p);
}

INLINE __m128i load_be(const uint8_t *p)
{
    return _mm_shuffle_epi8(load16(p), _mm_set_epi64x(0x0C0D0E0F08090A0B, 0x0405060700010203));
}

INLINE void take_block(sha_block *s, const uint8_t *p)
{
    s->w[0] = load_be(p);
    s->w[1] = load_be(p + 16);
    s->w[2] = load_be(p + 32);
    s->w[3] = load_be(p + 48);
}

INLINE void four_rounds(sha_block *s, const unsigned group)
{
    __m128i *w = s->w;
    __m128i k = _mm_load_si128((const __m128i *)(const void *)(constants + 4 * group));
    __m128i wk = _mm_add_epi32(w[group % 4], k);
    s->cdgh = _mm_sha256rnds2_epu32(s->cdgh, s->abef, wk);
    s->abef = _mm_sha256rnds2_epu32(s->abef, s->cdgh, _mm_shuffle_epi32(wk, 0x0E));
    if (group < 12) { /* the words of the group four further on */
        __m128i next = _mm_sha256msg1_epu32(w[group % 4], w[(group + 1) % 4]);
        next = _mm_add_epi32(next, _mm_alignr_epi8(w[(group + 3) % 4], w[(group + 2) % 4], 4));
        w[group % 4] = _mm_sha256msg2_epu32(next, w[(group + 3) % 4]);
    }
}

INLINE void state_load(sha_block *s, const uint32_t h[8])
{
    __m128i cdab = _mm_shuffle_epi32(load16((const uint8_t *)h), 0xB1);
    __m128i efgh = _mm_shuffle_epi32(load16((const uint8_t *)(h + 4)), 0x1B);
    s->abef = _mm_alignr_epi8(cdab, efgh, 8);
    s->cdgh = _mm_blend_epi16(efgh, cdab, 0xF0);
}

INLINE void state_store(const sha_block *s, uint32_t h[8])
{
    __m128i feba = _mm_shuffle_epi32(s->abef, 0x1B);
    __m128i dchg = _mm_shuffle_epi32(s->cdgh, 0xB1);
    _mm_storeu_si128((__m128i *)(void *)h, _mm_blend_epi16(feba, dchg, 0xF0));
    _mm_storeu_si128((__m128i *)(void *)(h + 4), _mm_alignr_epi8(dchg, feba, 8));
}

INLINE void state_add(sha_block *s, __m128i abef, __m128i cdgh)
{
    s->abef = _mm_add_epi32(s->abef, abef);
    s->cdgh = _mm_add_epi32(s->cdgh, cdgh);
}

TARGET void sha256_ni_blocks(uint32_t h[8], const uint8_t *p, size_t blocks)
{
    sha_block s;
    state_load(&s, h);
    for (; blocks > 0; blocks--, p += SHA256_BLOCK_BYTES) {
        __m128i abef = s.abef, cdgh = s.cdgh;
        take_block(&s, p);
        four_rounds(&s, 0);
        four_rounds(&s, 1);
        four_rounds(&s, 2);
        four_rounds(&s, 3);
        four_rounds(&s, 4);
        four_rounds(&s, 5);
        four_rounds(&s, 6);
        four_rounds(&s, 7);
        four_rounds(&s, 8);
        four_rounds(&s, 9);
        four_rounds(&s, 10);
        four_rounds(&s, 11);
        four_rounds(&s, 12);
        four_rounds(&s, 13);
        four_rounds(&s, 14);
        four_rounds(&s, 15);
        state_add(&s, abef, cdgh);
    }
    state_store(&s, h);
}

/* ------------------------------------------------------------------ one stream */
#define STEP_1(round, a, b, c, d, word, shift, constant)                                                                                   \
    a += md5_word(p + 4 * (word)) + constant + MD5_READY_##round(c, d);                                                                    \
    a += MD5_LAST_##round(b, c, d);                                                                                                        \
    a = (a << (shift) | a >> (32 - (shift))) + b;
#define GROUP_1(i) four_rounds(&s, i);

TARGET void md5_sha256_one(md5_lanes *l, size_t blocks)
{
    const uint8_t *p = l->block[0];
    uint32_t a = l->h[0][0], b = l->h[1][0], c = l->h[2][0], d = l->h[3][0];
    sha_block s;
    state_load(&s, l->sha[0]);
    for (; blocks > 0; blocks--, p += MD5_BLOCK_BYTES) {
        const uint32_t before[4] = {a, b, c, d};
        __m128i abef = s.abef, cdgh = s.cdgh;
        take_block(&s, p);
        MD5_STEPS_AND(STEP_1, GROUP_1)
        a += before[0];
        b += before[1];
        c += before[2];
        d += before[3];
        state_add(&s, abef, cdgh);
    }
    l->h[0][0] = a;
    l->h[1][0] = b;
    l->h[2][0] = c;
    l->h[3][0] = d;
    state_store(&s, l->sha[0]);
    l->block[0] = p;
}

/* ------------------------------------------------------------------ two streams */
#define GROUP_2(i)                                                                                                                         \
    four_rounds(&s0, i);                                                                                                                   \
    four_rounds(&s1, i);

TARGET void md5_sha256_two(md5_lanes *l, size_t blocks)
{
    const uint8_t *p0 = l->block[0], *p1 = l->block[1];
    uint32_t a0 = l->h[0][0], b0 = l->h[1][0], c0 = l->h[2][0], d0 = l->h[3][0];
    uint32_t a1 = l->h[0][1], b1 = l->h[1][1], c1 = l->h[2][1], d1 = l->h[3][1];
    sha_block s0, s1;
    state_load(&s0, l->sha[0]);
    state_load(&s1, l->sha[1]);
    for (; blocks > 0; blocks--, p0 += MD5_BLOCK_BYTES, p1 += MD5_BLOCK_BYTES) {
        const uint32_t before[8] = {a0, b0, c0, d0, a1, b1, c1, d1};
        __m128i abef0 = s0.abef, cdgh0 = s0.cdgh, abef1 = s1.abef, cdgh1 = s1.cdgh;
        take_block(&s0, p0);
        take_block(&s1, p1);
        MD5_STEPS_AND(MD5_STEP_2, GROUP_2)
        a0 += before[0];
        b0 += before[1];
        c0 += before[2];
        d0 += before[3];
        a1 += before[4];
        b1 += before[5];
        c1 += before[6];
        d1 += before[7];
        state_add(&s0, abef0, cdgh0);
        state_add(&s1, abef1, cdgh1);
    }
    const uint32_t after[4][2] = {{a0, a1}, {b0, b1}, {c0, c1}, {d0, d1}};
    for (unsigned i = 0; i < 4; i++) {
        memcpy(l->h[i], after[i], sizeof after[i]);
    }
    state_store(&s0, l->sha[0]);
    state_store(&s1, l->sha[1]);
    l->block[0] = p0;
    l->block[1] = p1;
}

/* ------------------------------------------------------------------ four streams */
/* Words of four lanes, turned over as in md5_lanes_avx2.c. */
INLINE void load_words(const uint8_t *const block[4], size_t at, __m128i m[16])
{
    for (unsigned g = 0; g < 4; g++) {
        __m128i r0 = load16(block[0] + at + 16 * g);
        __m128i r1 = load16(block[1] + at + 16 * g);
        __m128i r2 = load16(block[2] + at + 16 * g);
        __m128i r3 = load16(block[3] + at + 16 * g);
        __m128i low01 = _mm_unpacklo_epi32(r0, r1);
        __m128i high01 = _mm_unpackhi_epi32(r0, r1);
        __m128i low23 = _mm_unpacklo_epi32(r2, r3);
        __m128i high23 = _mm_unpackhi_epi32(r2, r3);
        m[4 * g] = _mm_unpacklo_epi64(low01, low23);
        m[4 * g + 1] = _mm_unpackhi_epi64(low01, low23);
        m[4 * g + 2] = _mm_unpacklo_epi64(high01, high23);
        m[4 * g + 3] = _mm_unpackhi_epi64(high01, high23);
    }
}

#define ROUND_F(x, y, z) _mm_xor_si128(z, _mm_and_si128(x, _mm_xor_si128(y, z)))
#define ROUND_G(x, y, z) _mm_add_epi32(_mm_andnot_si128(z, y), _mm_and_si128(x, z))
#define ROUND_H(x, y, z) _mm_xor_si128(x, _mm_xor_si128(y, z))
#define ROUND_I(x, y, z) _mm_xor_si128(y, _mm_or_si128(x, _mm_xor_si128(z, _mm_set1_epi32(-1))))
#define STEP_4(round, a, b, c, d, word, shift, constant)                                                                                   \
    a = _mm_add_epi32(a, _mm_add_epi32(m[word], _mm_set1_epi32((int)constant)));                                                           \
    a = _mm_add_epi32(a, ROUND_##round(b, c, d));                                                                                          \
    a = _mm_or_si128(_mm_slli_epi32(a, shift), _mm_srli_epi32(a, 32 - (shift)));                                                           \
    a = _mm_add_epi32(a, b);

/* MD5's 16 fours of steps go with two times 16 groups of SHA-256, each of two streams. */
#define GROUP_4(i) groups_of_pair(pair, sha + 2 * ((i) / 8), l->block + 2 * ((i) / 8), at, 2 * ((i) % 8));

INLINE void groups_of_pair(sha_block pair[2], sha_block *sha, const uint8_t *const *block, size_t at, const unsigned group)
{
    if (group == 0) {
        pair[0] = sha[0];
        pair[1] = sha[1];
        take_block(&pair[0], block[0] + at);
        take_block(&pair[1], block[1] + at);
    }
    four_rounds(&pair[0], group);
    four_rounds(&pair[1], group);
    four_rounds(&pair[0], group + 1);
    four_rounds(&pair[1], group + 1);
    if (group == 14) {
        state_add(&sha[0], pair[0].abef, pair[0].cdgh);
        state_add(&sha[1], pair[1].abef, pair[1].cdgh);
    }
}

INLINE __m128i load_lanes(const uint32_t *h)
{
    return _mm_load_si128((const __m128i *)(const void *)h);
}

INLINE void store_lanes(uint32_t *h, __m128i v)
{
    _mm_store_si128((__m128i *)(void *)h, v);
}

TARGET void md5_sha256_four(md5_lanes *l, size_t blocks)
{
    __m128i a = load_lanes(l->h[0]), b = load_lanes(l->h[1]), c = load_lanes(l->h[2]), d = load_lanes(l->h[3]);
    sha_block sha[4], pair[2];
    for (unsigned i = 0; i < 4; i++) {
        state_load(&sha[i], l->sha[i]);
    }
    for (size_t at = 0; at < blocks * MD5_BLOCK_BYTES; at += MD5_BLOCK_BYTES) {
        const __m128i before[4] = {a, b, c, d};
        __m128i m[16];
        load_words(l->block, at, m);
        MD5_STEPS_AND(STEP_4, GROUP_4)
        a = _mm_add_epi32(a, before[0]);
        b = _mm_add_epi32(b, before[1]);
        c = _mm_add_epi32(c, before[2]);
        d = _mm_add_epi32(d, before[3]);
    }
    store_lanes(l->h[0], a);
    store_lanes(l->h[1], b);
    store_lanes(l->h[2], c);
    store_lanes(l->h[3], d);
    for (unsigned i = 0; i < 4; i++) {
        state_store(&sha[i], l->sha[i]);
        l->block[i] += blocks * MD5_BLOCK_BYTES;
    }
}
#else
bool sha256_ni_there(void)
{
    return false;
}
#endif
