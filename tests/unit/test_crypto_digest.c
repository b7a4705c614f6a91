/* SPDX-License-Identifier: Apache-2.0 */
/* SHA-256, HMAC, SipHash and comparison: vectors of FIPS 180, RFC 4231 and the SipHash paper; many threads. */
#include "private.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <openssl/hmac.h>
#include <pthread.h>
#include <string.h>

static void sha256_vectors(void **state)
{
    (void)state;
    char hex[65];
    tarn_sha256_hex(NULL, 0, hex);
    assert_string_equal(hex, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    tarn_sha256_hex("abc", 3, hex);
    assert_string_equal(hex, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    tarn_sha256_hex("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", 56, hex);
    assert_string_equal(hex, "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
}

typedef struct hmac_case {
    const char *key;
    size_t key_n; /* 0: the text's length */
    const char *text;
    const char *mac;
} hmac_case;

static void rfc4231_vectors(void **state)
{
    (void)state;
    static char aa[132];
    memset(aa, 0xAA, 131);
    const hmac_case cases[] = {
        {"\x0b\x0b\x0b\x0b\x0b\x0b\x0b\x0b\x0b\x0b\x0b\x0b\x0b\x0b\x0b\x0b\x0b\x0b\x0b\x0b", 20, "Hi There",
         "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7"},
        {"Jefe", 4, "what do ya want for nothing?", "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"},
        {aa, 131, "Test Using Larger Than Block-Size Key - Hash Key First",
         "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54"},
        {aa, 131,
         "This is a test using a larger than block-size key and a larger than block-size data. The key needs to be hashed before being "
         "used "
         "by the HMAC algorithm.",
         "9b09ffa71b942fcb27635fbcd5b0e944bfdc63644f0713938a7f51535c3a35e2"},
    };
    for (size_t i = 0; i < TARN_ARRAY_LEN(cases); i++) {
        uint8_t mac[TARN_SHA256_BYTES];
        uint8_t expected[TARN_SHA256_BYTES];
        tarn_hmac_sha256(cases[i].key, cases[i].key_n, cases[i].text, strlen(cases[i].text), mac);
        assert_true(tarn_hex_decode(tarn_str_of(cases[i].mac), expected, sizeof expected));
        assert_memory_equal(mac, expected, sizeof mac);
    }
}

/* Every length of key around the block, and messages around it, against OpenSSL's own. */
static void hmac_agrees_with_openssl(void **state)
{
    (void)state;
    uint8_t key[140];
    uint8_t text[300];
    tarn_random_seed(5);
    tarn_random(key, sizeof key);
    tarn_random(text, sizeof text);
    for (size_t key_n = 0; key_n <= sizeof key; key_n++) {
        size_t n = key_n * 2 % sizeof text;
        uint8_t mac[TARN_SHA256_BYTES];
        uint8_t expected[TARN_SHA256_BYTES];
        unsigned expected_n;
        tarn_hmac_sha256(key_n > 0 ? key : NULL, key_n, n > 0 ? text : NULL, n, mac);
        assert_non_null(HMAC(EVP_sha256(), key, (int)key_n, text, n, expected, &expected_n));
        assert_memory_equal(mac, expected, sizeof mac);
    }
    tarn_random_seed(0);
}

/* The same with OpenSSL's SHA-256 where the processor's own is used otherwise. */
static void without_instructions_for_sha256(void **state)
{
    hash_choose_way(HASH_WAY_PLAIN);
    assert_false(sha256_own());
    sha256_vectors(state);
    rfc4231_vectors(state);
    hmac_agrees_with_openssl(state);
    hash_choose_way(HASH_WAY_BEST);
}

/* Every length around the blocks and the padding. */
static void sha256_agrees_with_openssl(void **state)
{
    (void)state;
    uint8_t text[1000];
    tarn_random_seed(6);
    tarn_random(text, sizeof text);
    for (size_t n = 0; n <= sizeof text; n++) {
        uint8_t got[TARN_SHA256_BYTES];
        uint8_t expected[TARN_SHA256_BYTES];
        tarn_sha256(text, n, got);
        assert_int_equal(EVP_Digest(text, n, expected, NULL, EVP_sha256(), NULL), 1);
        assert_memory_equal(got, expected, sizeof got);
    }
    tarn_random_seed(0);
}

static void siphash_vectors(void **state)
{
    (void)state;
    uint8_t key[16];
    uint8_t text[64];
    for (unsigned i = 0; i < sizeof text; i++) {
        text[i] = (uint8_t)i;
        key[i % 16] = (uint8_t)(i % 16);
    }
    /* The first bytes of the authors' table for texts 00 01 02 …, read as little-endian numbers, and the paper's own for 15 bytes. */
    assert_true(tarn_siphash(key, NULL, 0) == 0x726FDB47DD0E0E31u);
    assert_true(tarn_siphash(key, text, 1) == 0x74F839C593DC67FDu);
    assert_true(tarn_siphash(key, text, 7) == 0xAB0200F58B01D137u);
    assert_true(tarn_siphash(key, text, 8) == 0x93F5F5799A932462u);
    assert_true(tarn_siphash(key, text, 15) == 0xA129CA6149BE45E5u);
    assert_true(tarn_siphash(key, text, 63) == 0x958A324CEB064572u);
    key[15] ^= 1;
    assert_false(tarn_siphash(key, text, 15) == 0xA129CA6149BE45E5u);
}

static void equality(void **state)
{
    (void)state;
    uint8_t a[33] = {0};
    uint8_t b[33] = {0};
    assert_true(tarn_equal_ct(a, b, sizeof a));
    for (size_t i = 0; i < sizeof a; i++) {
        b[i] = 0x80;
        assert_false(tarn_equal_ct(a, b, sizeof a));
        assert_true(tarn_equal_ct(a, b, i));
        b[i] = 0;
    }
    assert_true(tarn_equal_ct(NULL, NULL, 0));
}

enum { THREADS = 4, ROUNDS = 3000 };

static void *hash_much(void *arg)
{
    uint8_t text[200];
    uint8_t first[TARN_SHA256_BYTES];
    uint8_t again[TARN_SHA256_BYTES];
    memset(text, *(int *)arg, sizeof text);
    tarn_hmac_sha256(text, 20, text, sizeof text, first);
    for (unsigned i = 0; i < ROUNDS; i++) {
        tarn_sha256(text, i % sizeof text, again);
        tarn_hmac_sha256(text, 20, text, sizeof text, again);
        if (memcmp(first, again, sizeof first) != 0) {
            return arg;
        }
    }
    return NULL;
}

static void threads_have_contexts_of_their_own(void **state)
{
    (void)state;
    pthread_t threads[THREADS];
    int seeds[THREADS];
    for (int i = 0; i < THREADS; i++) {
        seeds[i] = i;
        assert_int_equal(pthread_create(&threads[i], NULL, hash_much, &seeds[i]), 0);
    }
    for (unsigned i = 0; i < THREADS; i++) {
        void *bad;
        assert_int_equal(pthread_join(threads[i], &bad), 0);
        assert_null(bad);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_have_contexts_of_their_own), /* first, so that the set-up races too */
        cmocka_unit_test(sha256_vectors),
        cmocka_unit_test(rfc4231_vectors),
        cmocka_unit_test(hmac_agrees_with_openssl),
        cmocka_unit_test(without_instructions_for_sha256),
        cmocka_unit_test(sha256_agrees_with_openssl),
        cmocka_unit_test(siphash_vectors),
        cmocka_unit_test(equality),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
