/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SHA-256 (FIPS 180-4) of one stream by the processor's own instructions: OpenSSL's is as fast, but an upload's SHA-256 is to be
 * woven into its MD5 (sha256_ni.c), and a short text costs more to set up there than to hash. Without the instructions OpenSSL
 * does it (digest.c, sum.c).
 *
 * Invariant 1: tail_n = total_bytes mod 64 < 64; the first tail_n bytes of tail wait for their block to be full.
 * Invariant 2: a final works on a copy, so a state can be read at any time and go on.
 * Memory: the caller's, who wipes a state that has seen a secret. Threads: one at a time for a state.
 */
#include "private.h"

#include <string.h>

static void blocks_of(uint32_t h[8], const uint8_t *p, size_t blocks)
{
#if defined(__x86_64__)
    sha256_ni_blocks(h, p, blocks);
#else
    (void)h;
    (void)p;
    TARN_ASSERT(blocks == 0); /* sha256_own() is false here */
#endif
}

/* The first 32 bits of the fractions of the square roots of the first eight primes. */
void sha256_init(tarn_sha256_state *s)
{
    *s = (tarn_sha256_state){.h = {0x6A09E667U, 0xBB67AE85U, 0x3C6EF372U, 0xA54FF53AU, 0x510E527FU, 0x9B05688CU, 0x1F83D9ABU, 0x5BE0CD19U}};
}

void sha256_update(tarn_sha256_state *s, const void *p, size_t n)
{
    if (n == 0) {
        return;
    }
    const uint8_t *in = p;
    s->total_bytes += n;
    if (s->tail_n > 0) {
        size_t take = SHA256_BLOCK_BYTES - s->tail_n < n ? SHA256_BLOCK_BYTES - s->tail_n : n;
        memcpy(s->tail + s->tail_n, in, take);
        s->tail_n += take;
        in += take;
        n -= take;
        if (s->tail_n < SHA256_BLOCK_BYTES) {
            return;
        }
        blocks_of(s->h, s->tail, 1);
        s->tail_n = 0;
    }
    blocks_of(s->h, in, n / SHA256_BLOCK_BYTES);
    s->tail_n = n % SHA256_BLOCK_BYTES;
    memcpy(s->tail, in + (n - s->tail_n), s->tail_n);
}

void sha256_final(const tarn_sha256_state *s, uint8_t out[TARN_SHA256_BYTES])
{
    uint8_t last[2 * SHA256_BLOCK_BYTES] = {0};
    uint32_t h[8];
    TARN_ASSERT(s->tail_n < SHA256_BLOCK_BYTES);
    memcpy(h, s->h, sizeof h);
    memcpy(last, s->tail, s->tail_n);
    last[s->tail_n] = 0x80;
    size_t blocks = s->tail_n < SHA256_BLOCK_BYTES - 8 ? 1 : 2; /* the length takes 8 bytes */
    uint64_t bits = s->total_bytes << 3;
    for (unsigned i = 0; i < 8; i++) {
        last[blocks * SHA256_BLOCK_BYTES - 1 - i] = (uint8_t)(bits >> (8 * i));
    }
    blocks_of(h, last, blocks);
    for (unsigned i = 0; i < TARN_SHA256_BYTES; i++) {
        out[i] = (uint8_t)(h[i / 4] >> (24 - 8 * (i % 4)));
    }
    tarn_wipe(last, sizeof last);
}
