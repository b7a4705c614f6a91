/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SHA-256, HMAC-SHA-256 and comparison in constant time: by the processor's instructions where it has them (sha256.c), else on
 * OpenSSL's EVP.
 *
 * Looking an algorithm up by name costs more than hashing a short text, so each is looked up once for the process; and
 * each thread keeps one context, so that the four short HMACs of a signature allocate nothing.
 *
 * Invariant 1: digest_scratch() is in use within one call only: nothing switches fibers between its first and last use.
 * Invariant 2: key material that lay in the stack is wiped before a function returns.
 * A digest that OpenSSL refuses to compute ends the process: no caller could go on without it.
 * Memory: the algorithms live as long as the process, a scratch context as long as its thread. Threads: any.
 */
#include "private.h"

#include <openssl/crypto.h>
#include <pthread.h>
#include <string.h>

#define HMAC_BLOCK_BYTES 64

static pthread_once_t once = PTHREAD_ONCE_INIT;
static EVP_MD *fetched[DIGEST_ALGORITHM_COUNT];
static pthread_key_t scratch_key;
static _Thread_local EVP_MD_CTX *scratch;

static void free_scratch(void *ctx)
{
    EVP_MD_CTX_free(ctx);
}

static void set_up(void)
{
    static const char *const names[DIGEST_ALGORITHM_COUNT] = {[DIGEST_SHA1] = "SHA1", [DIGEST_SHA256] = "SHA256"};
    for (size_t i = 0; i < DIGEST_ALGORITHM_COUNT; i++) {
        fetched[i] = EVP_MD_fetch(NULL, names[i], NULL);
        TARN_ASSERT(fetched[i] != NULL);
    }
    TARN_ASSERT(pthread_key_create(&scratch_key, free_scratch) == 0);
}

const EVP_MD *digest_md(digest_algorithm a)
{
    TARN_ASSERT(pthread_once(&once, set_up) == 0);
    return fetched[a];
}

EVP_MD_CTX *digest_scratch(void)
{
    if (!scratch) {
        TARN_ASSERT(pthread_once(&once, set_up) == 0);
        scratch = EVP_MD_CTX_new();
        TARN_ASSERT(scratch != NULL);
        TARN_ASSERT(pthread_setspecific(scratch_key, scratch) == 0);
    }
    return scratch;
}

void tarn_sha256(const void *p, size_t n, uint8_t out[TARN_SHA256_BYTES])
{
    if (sha256_own()) {
        tarn_sha256_state s;
        sha256_init(&s);
        sha256_update(&s, p, n);
        sha256_final(&s, out);
        tarn_wipe(&s, sizeof s); /* it may have been a long key */
        return;
    }
    EVP_MD_CTX *ctx = digest_scratch();
    TARN_ASSERT(EVP_DigestInit_ex2(ctx, digest_md(DIGEST_SHA256), NULL) == 1);
    TARN_ASSERT(n == 0 || EVP_DigestUpdate(ctx, p, n) == 1);
    TARN_ASSERT(EVP_DigestFinal_ex(ctx, out, NULL) == 1);
}

void tarn_sha256_hex(const void *p, size_t n, char out[65])
{
    uint8_t digest[TARN_SHA256_BYTES];
    tarn_sha256(p, n, digest);
    tarn_sb b;
    tarn_sb_init_fixed(&b, out, 65);
    tarn_sb_hex(&b, digest, sizeof digest);
    TARN_ASSERT(!b.failed);
}

/* digest(key ⊕ pad ‖ message), one half of an HMAC. */
static void hmac_half(const uint8_t key[HMAC_BLOCK_BYTES], uint8_t pad, const void *p, size_t n, uint8_t out[TARN_SHA256_BYTES])
{
    uint8_t block[HMAC_BLOCK_BYTES];
    for (size_t i = 0; i < sizeof block; i++) {
        block[i] = key[i] ^ pad;
    }
    if (sha256_own()) {
        tarn_sha256_state s;
        sha256_init(&s);
        sha256_update(&s, block, sizeof block);
        sha256_update(&s, p, n);
        sha256_final(&s, out);
        tarn_wipe(&s, sizeof s);
    } else {
        EVP_MD_CTX *ctx = digest_scratch();
        TARN_ASSERT(EVP_DigestInit_ex2(ctx, digest_md(DIGEST_SHA256), NULL) == 1);
        TARN_ASSERT(EVP_DigestUpdate(ctx, block, sizeof block) == 1);
        TARN_ASSERT(n == 0 || EVP_DigestUpdate(ctx, p, n) == 1);
        TARN_ASSERT(EVP_DigestFinal_ex(ctx, out, NULL) == 1);
    }
    tarn_wipe(block, sizeof block);
}

void tarn_hmac_sha256(const void *key, size_t key_n, const void *p, size_t n, uint8_t out[TARN_SHA256_BYTES])
{
    uint8_t padded[HMAC_BLOCK_BYTES] = {0};
    uint8_t inner[TARN_SHA256_BYTES];
    if (key_n > sizeof padded) {
        tarn_sha256(key, key_n, padded);
    } else if (key_n > 0) {
        memcpy(padded, key, key_n);
    }
    hmac_half(padded, 0x36, p, n, inner);
    hmac_half(padded, 0x5C, inner, sizeof inner, out);
    tarn_wipe(padded, sizeof padded);
    tarn_wipe(inner, sizeof inner);
}

bool tarn_equal_ct(const void *a, const void *b, size_t n)
{
    return n == 0 || CRYPTO_memcmp(a, b, n) == 0;
}
