/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The 64 steps of an MD5 block (RFC 1321), once, for one stream and for many lanes.
 *
 * MD5_STEPS(S) expands to S(round, a, b, c, d, word, shift, constant) in order, where a step means
 *   a = b + rotate_left(a + round(b, c, d) + message[word] + constant, shift)
 * and round is one of F, G, H, I. The roles of the four registers rotate from step to step. The constants are the whole
 * part of 2^32·|sin(step)|, the step in radians counted from 1.
 *
 * MD5_STEPS_AND(S, BETWEEN) puts BETWEEN(0) … BETWEEN(15) in after every fourth step: other work for the units that MD5, one
 * long chain, leaves idle.
 */
#ifndef TARN_CRYPTO_MD5_STEPS_H
#define TARN_CRYPTO_MD5_STEPS_H

#include <stdint.h>
#include <string.h>

/* clang-format off */
#define MD5_STEPS_AND(S, BETWEEN) \
    S(F, a, b, c, d, 0, 7, 0xD76AA478U) \
    S(F, d, a, b, c, 1, 12, 0xE8C7B756U) \
    S(F, c, d, a, b, 2, 17, 0x242070DBU) \
    S(F, b, c, d, a, 3, 22, 0xC1BDCEEEU) \
    BETWEEN(0) \
    S(F, a, b, c, d, 4, 7, 0xF57C0FAFU) \
    S(F, d, a, b, c, 5, 12, 0x4787C62AU) \
    S(F, c, d, a, b, 6, 17, 0xA8304613U) \
    S(F, b, c, d, a, 7, 22, 0xFD469501U) \
    BETWEEN(1) \
    S(F, a, b, c, d, 8, 7, 0x698098D8U) \
    S(F, d, a, b, c, 9, 12, 0x8B44F7AFU) \
    S(F, c, d, a, b, 10, 17, 0xFFFF5BB1U) \
    S(F, b, c, d, a, 11, 22, 0x895CD7BEU) \
    BETWEEN(2) \
    S(F, a, b, c, d, 12, 7, 0x6B901122U) \
    S(F, d, a, b, c, 13, 12, 0xFD987193U) \
    S(F, c, d, a, b, 14, 17, 0xA679438EU) \
    S(F, b, c, d, a, 15, 22, 0x49B40821U) \
    BETWEEN(3) \
    S(G, a, b, c, d, 1, 5, 0xF61E2562U) \
    S(G, d, a, b, c, 6, 9, 0xC040B340U) \
    S(G, c, d, a, b, 11, 14, 0x265E5A51U) \
    S(G, b, c, d, a, 0, 20, 0xE9B6C7AAU) \
    BETWEEN(4) \
    S(G, a, b, c, d, 5, 5, 0xD62F105DU) \
    S(G, d, a, b, c, 10, 9, 0x02441453U) \
    S(G, c, d, a, b, 15, 14, 0xD8A1E681U) \
    S(G, b, c, d, a, 4, 20, 0xE7D3FBC8U) \
    BETWEEN(5) \
    S(G, a, b, c, d, 9, 5, 0x21E1CDE6U) \
    S(G, d, a, b, c, 14, 9, 0xC33707D6U) \
    S(G, c, d, a, b, 3, 14, 0xF4D50D87U) \
    S(G, b, c, d, a, 8, 20, 0x455A14EDU) \
    BETWEEN(6) \
    S(G, a, b, c, d, 13, 5, 0xA9E3E905U) \
    S(G, d, a, b, c, 2, 9, 0xFCEFA3F8U) \
    S(G, c, d, a, b, 7, 14, 0x676F02D9U) \
    S(G, b, c, d, a, 12, 20, 0x8D2A4C8AU) \
    BETWEEN(7) \
    S(H, a, b, c, d, 5, 4, 0xFFFA3942U) \
    S(H, d, a, b, c, 8, 11, 0x8771F681U) \
    S(H, c, d, a, b, 11, 16, 0x6D9D6122U) \
    S(H, b, c, d, a, 14, 23, 0xFDE5380CU) \
    BETWEEN(8) \
    S(H, a, b, c, d, 1, 4, 0xA4BEEA44U) \
    S(H, d, a, b, c, 4, 11, 0x4BDECFA9U) \
    S(H, c, d, a, b, 7, 16, 0xF6BB4B60U) \
    S(H, b, c, d, a, 10, 23, 0xBEBFBC70U) \
    BETWEEN(9) \
    S(H, a, b, c, d, 13, 4, 0x289B7EC6U) \
    S(H, d, a, b, c, 0, 11, 0xEAA127FAU) \
    S(H, c, d, a, b, 3, 16, 0xD4EF3085U) \
    S(H, b, c, d, a, 6, 23, 0x04881D05U) \
    BETWEEN(10) \
    S(H, a, b, c, d, 9, 4, 0xD9D4D039U) \
    S(H, d, a, b, c, 12, 11, 0xE6DB99E5U) \
    S(H, c, d, a, b, 15, 16, 0x1FA27CF8U) \
    S(H, b, c, d, a, 2, 23, 0xC4AC5665U) \
    BETWEEN(11) \
    S(I, a, b, c, d, 0, 6, 0xF4292244U) \
    S(I, d, a, b, c, 7, 10, 0x432AFF97U) \
    S(I, c, d, a, b, 14, 15, 0xAB9423A7U) \
    S(I, b, c, d, a, 5, 21, 0xFC93A039U) \
    BETWEEN(12) \
    S(I, a, b, c, d, 12, 6, 0x655B59C3U) \
    S(I, d, a, b, c, 3, 10, 0x8F0CCC92U) \
    S(I, c, d, a, b, 10, 15, 0xFFEFF47DU) \
    S(I, b, c, d, a, 1, 21, 0x85845DD1U) \
    BETWEEN(13) \
    S(I, a, b, c, d, 8, 6, 0x6FA87E4FU) \
    S(I, d, a, b, c, 15, 10, 0xFE2CE6E0U) \
    S(I, c, d, a, b, 6, 15, 0xA3014314U) \
    S(I, b, c, d, a, 13, 21, 0x4E0811A1U) \
    BETWEEN(14) \
    S(I, a, b, c, d, 4, 6, 0xF7537E82U) \
    S(I, d, a, b, c, 11, 10, 0xBD3AF235U) \
    S(I, c, d, a, b, 2, 15, 0x2AD7D2BBU) \
    S(I, b, c, d, a, 9, 21, 0xEB86D391U) \
    BETWEEN(15)
/* clang-format on */
#define MD5_NOTHING(i)
#define MD5_STEPS(S) MD5_STEPS_AND(S, MD5_NOTHING)

/*
 * The rounds for whole numbers, in two terms that are added: READY doesn't wait for the register of the step before (x), LAST
 * does; the chain from step to step is as short as LAST. G's two halves have no bit in common, so that adding them is or-ing
 * them.
 */
#define MD5_READY_F(y, z) 0
#define MD5_LAST_F(x, y, z) ((z) ^ ((x) & ((y) ^ (z))))
#define MD5_READY_G(y, z) (~(z) & (y))
#define MD5_LAST_G(x, y, z) ((x) & (z))
#define MD5_READY_H(y, z) 0
#define MD5_LAST_H(x, y, z) ((x) ^ ((y) ^ (z)))
#define MD5_READY_I(y, z) 0
#define MD5_LAST_I(x, y, z) ((y) ^ ((x) | ~(z)))

/* A step of two streams, in registers a0 … d0 and a1 … d1, which read at p0 and p1. */
#define MD5_STEP_2(round, a, b, c, d, word, shift, constant)                                                                               \
    a##0 += md5_word(p0 + 4 * (word)) + constant + MD5_READY_##round(c##0, d##0);                                                          \
    a##1 += md5_word(p1 + 4 * (word)) + constant + MD5_READY_##round(c##1, d##1);                                                          \
    a##0 += MD5_LAST_##round(b##0, c##0, d##0);                                                                                            \
    a##1 += MD5_LAST_##round(b##1, c##1, d##1);                                                                                            \
    a##0 = (a##0 << (shift) | a##0 >> (32 - (shift))) + b##0;                                                                              \
    a##1 = (a##1 << (shift) | a##1 >> (32 - (shift))) + b##1;

#define MD5_START_A 0x67452301U
#define MD5_START_B 0xEFCDAB89U
#define MD5_START_C 0x98BADCFEU
#define MD5_START_D 0x10325476U

static inline uint32_t md5_word(const uint8_t *p)
{
    uint32_t v;
    memcpy(&v, p, sizeof v);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    v = __builtin_bswap32(v);
#endif
    return v;
}

#endif
