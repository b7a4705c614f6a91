/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SipHash-2-4: a keyed hash that a client who doesn't know the key can't aim at one bucket.
 *
 * State: four words; two rounds for each 8 bytes (little-endian), four at the end; the last word carries the length.
 * Memory: the caller's. Threads: any.
 */
#include "tarn/crypto.h"

#include <string.h>

#define BLOCK_ROUNDS 2
#define FINAL_ROUNDS 4

typedef struct sip_state {
    uint64_t v0, v1, v2, v3;
} sip_state;

static inline uint64_t rotate_left(uint64_t x, unsigned k)
{
    return x << k | x >> (64 - k);
}

static inline uint64_t load_le64(const uint8_t *p)
{
    uint64_t v;
    memcpy(&v, p, sizeof v);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    v = __builtin_bswap64(v);
#endif
    return v;
}

static inline void rounds(sip_state *s, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        s->v0 += s->v1;
        s->v2 += s->v3;
        s->v1 = rotate_left(s->v1, 13) ^ s->v0;
        s->v3 = rotate_left(s->v3, 16) ^ s->v2;
        s->v0 = rotate_left(s->v0, 32);
        s->v2 += s->v1;
        s->v0 += s->v3;
        s->v1 = rotate_left(s->v1, 17) ^ s->v2;
        s->v3 = rotate_left(s->v3, 21) ^ s->v0;
        s->v2 = rotate_left(s->v2, 32);
    }
}

static inline void take_word(sip_state *s, uint64_t word)
{
    s->v3 ^= word;
    rounds(s, BLOCK_ROUNDS);
    s->v0 ^= word;
}

uint64_t tarn_siphash(const uint8_t key[16], const void *p, size_t n)
{
    uint64_t k0 = load_le64(key);
    uint64_t k1 = load_le64(key + 8);
    /* The start is the text "somepseudorandomlygeneratedbytes" under the key. */
    sip_state s = {k0 ^ 0x736F6D6570736575u, k1 ^ 0x646F72616E646F6Du, k0 ^ 0x6C7967656E657261u, k1 ^ 0x7465646279746573u};
    const uint8_t *in = p;
    size_t left = n;
    for (; left >= 8; left -= 8, in += 8) {
        take_word(&s, load_le64(in));
    }
    uint64_t last = (uint64_t)n << 56;
    for (size_t i = 0; i < left; i++) {
        last |= (uint64_t)in[i] << (8 * i);
    }
    take_word(&s, last);
    s.v2 ^= 0xFF;
    rounds(&s, FINAL_ROUNDS);
    return s.v0 ^ s.v1 ^ s.v2 ^ s.v3;
}
