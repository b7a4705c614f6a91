/* SPDX-License-Identifier: Apache-2.0 */
/*
 * MD5 of one stream, MD5 and SHA-256 of many: RFC 1321, and OpenSSL over random lengths, splits, numbers of streams and
 * instructions.
 */
#include "private.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define TEXT_BYTES 200000
#define STREAMS_MAX 50
static uint8_t text[TEXT_BYTES];

static int fill(void **state)
{
    (void)state;
    tarn_random_seed(123);
    tarn_random(text, sizeof text);
    return 0;
}

static int unseed(void **state)
{
    (void)state;
    tarn_random_seed(0);
    hash_choose_way(HASH_WAY_BEST);
    return 0;
}

static void expect(const tarn_md5_state *s, const uint8_t *p, size_t n)
{
    uint8_t got[TARN_MD5_BYTES];
    uint8_t expected[TARN_MD5_BYTES];
    unsigned expected_n;
    tarn_md5_final(s, got);
    assert_int_equal(EVP_Digest(p, n, expected, &expected_n, EVP_md5(), NULL), 1);
    assert_memory_equal(got, expected, sizeof got);
}

static void expect_sha256(const tarn_sum *s, const uint8_t *p, size_t n)
{
    uint8_t got[TARN_DIGEST_BYTES_MAX];
    uint8_t expected[TARN_DIGEST_BYTES_MAX];
    unsigned expected_n;
    tarn_sum_peek(s, got);
    assert_int_equal(EVP_Digest(p, n, expected, &expected_n, EVP_sha256(), NULL), 1);
    assert_memory_equal(got, expected, sizeof got);
}

static void rfc1321_vectors(void **state)
{
    (void)state;
    static const char *const rows[][2] = {
        {"", "d41d8cd98f00b204e9800998ecf8427e"},
        {"a", "0cc175b9c0f1b6a831c399e269772661"},
        {"abc", "900150983cd24fb0d6963f7d28e17f72"},
        {"message digest", "f96b697d7cb7938d525a2f31aaf161d0"},
        {"abcdefghijklmnopqrstuvwxyz", "c3fcd3d76192e4007dfb496cca67e13b"},
        {"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789", "d174ab98d277d9f5a5611c2c9f419d9f"},
        {"12345678901234567890123456789012345678901234567890123456789012345678901234567890", "57edf4a22be3c955ac49da2e2107b67a"},
    };
    for (size_t i = 0; i < TARN_ARRAY_LEN(rows); i++) {
        uint8_t got[TARN_MD5_BYTES];
        uint8_t expected[TARN_MD5_BYTES];
        assert_true(tarn_hex_decode(tarn_str_of(rows[i][1]), expected, sizeof expected));
        tarn_md5(rows[i][0], strlen(rows[i][0]), got);
        assert_memory_equal(got, expected, sizeof got);
    }
}

static void one_stream_of_every_length(void **state)
{
    (void)state;
    for (size_t n = 0; n < 700; n++) {
        tarn_md5_state s;
        tarn_md5_init(&s);
        for (size_t at = 0; at < n;) {
            size_t step = tarn_random_u64() % 150;
            step = step < n - at ? step : n - at;
            tarn_md5_update(&s, text + at, step);
            at += step;
            expect(&s, text, at); /* the state goes on after a final */
        }
        expect(&s, text, n);
    }
}

/* The count of bits has 64 bits: what goes past 32 bits of bytes still shows in the digest. */
static void many_bytes_before(void **state)
{
    (void)state;
    tarn_md5_state a;
    tarn_md5_state b;
    tarn_md5_init(&a);
    tarn_md5_init(&b);
    a.total_bytes = UINT64_C(1) << 32;
    uint8_t x[TARN_MD5_BYTES];
    uint8_t y[TARN_MD5_BYTES];
    tarn_md5_final(&a, x);
    tarn_md5_final(&b, y);
    assert_memory_not_equal(x, y, sizeof x);
}

/* How many of the streams want SHA-256 as well. */
typedef enum sha_share { SHA_NONE, SHA_SOME, SHA_ALL } sha_share;

/* Whether a sum is the processor's or OpenSSL's is decided when it begins. */
static bool begin_sha256(tarn_sum *sum, sha_share share, hash_way way)
{
    if (share == SHA_NONE || (share == SHA_SOME && tarn_random_u64() % 2 == 0)) {
        return false;
    }
    hash_choose_way(share == SHA_SOME && tarn_random_u64() % 3 == 0 ? HASH_WAY_PLAIN : way);
    assert_int_equal(tarn_sum_begin(sum, TARN_SUM_SHA256), TARN_OK);
    hash_choose_way(way);
    return true;
}

/* Streams start anywhere in the text and take random pieces, together with others, until each has had its length. */
static void run_streams(size_t streams, size_t piece_max, sha_share share, hash_way way)
{
    static tarn_md5_state states[STREAMS_MAX];
    static tarn_sum sums[STREAMS_MAX];
    bool sha[STREAMS_MAX];
    size_t from[STREAMS_MAX];
    size_t length[STREAMS_MAX];
    size_t done[STREAMS_MAX] = {0};
    for (size_t i = 0; i < streams; i++) {
        from[i] = tarn_random_u64() % 1000;
        length[i] = tarn_random_u64() % 5 == 0 ? 0 : tarn_random_u64() % (10 * piece_max);
        length[i] = length[i] < TEXT_BYTES - from[i] ? length[i] : TEXT_BYTES - from[i];
        tarn_md5_init(&states[i]);
        sha[i] = begin_sha256(&sums[i], share, way);
    }
    for (bool busy = true; busy;) {
        tarn_hash_job jobs[STREAMS_MAX];
        size_t n = 0;
        busy = false;
        for (size_t i = 0; i < streams; i++) {
            size_t left = length[i] - done[i];
            size_t take = tarn_random_u64() % (piece_max + 1);
            take = take < left ? take : left;
            if (left > 0 && tarn_random_u64() % 4 != 0) {
                jobs[n++] = (tarn_hash_job){&states[i], sha[i] ? &sums[i] : NULL, text + from[i] + done[i], take};
                done[i] += take;
            }
            busy = busy || done[i] < length[i];
        }
        tarn_hash_many(jobs, n);
        for (size_t i = 0; i < n; i++) {
            assert_int_equal(jobs[i].n, 0);
        }
    }
    for (size_t i = 0; i < streams; i++) {
        expect(&states[i], text + from[i], length[i]);
        assert_int_equal(states[i].total_bytes, length[i]);
        if (sha[i]) {
            expect_sha256(&sums[i], text + from[i], length[i]);
            tarn_sum_end(&sums[i]);
        }
    }
}

static void many_streams_by(hash_way way)
{
    hash_choose_way(way);
    assert_true(tarn_md5_lanes() == 16 || tarn_md5_lanes() == 8 || tarn_md5_lanes() == 1);
    for (sha_share share = SHA_NONE; share <= SHA_ALL; share++) {
        for (size_t streams = 0; streams <= STREAMS_MAX; streams++) {
            run_streams(streams, 100, share, way);
            run_streams(streams, 5000, share, way);
        }
        for (unsigned i = 0; i < 50; i++) {
            run_streams(1 + tarn_random_u64() % STREAMS_MAX, 1 + tarn_random_u64() % 2000, share, way);
        }
    }
    hash_choose_way(HASH_WAY_BEST);
}

static void best_way(void **state)
{
    (void)state;
    many_streams_by(HASH_WAY_BEST);
}

static void avx2_way(void **state)
{
    (void)state;
    many_streams_by(HASH_WAY_AVX2);
}

/* A SHA-256 that began before the MD5 it goes with, or later, is not for the lanes of both, and right all the same. */
static void sha256_that_is_out_of_step(void **state)
{
    (void)state;
    tarn_md5_state md5;
    tarn_sum sum;
    tarn_md5_init(&md5);
    assert_int_equal(tarn_sum_begin(&sum, TARN_SUM_SHA256), TARN_OK);
    tarn_sum_update(&sum, text, 100);
    tarn_hash_job job = {&md5, &sum, text + 100, 1000};
    tarn_hash_many(&job, 1);
    expect(&md5, text + 100, 1000);
    expect_sha256(&sum, text, 1100);
    tarn_sum_end(&sum);
}

static void plain_way(void **state)
{
    (void)state;
    many_streams_by(HASH_WAY_PLAIN);
    hash_choose_way(HASH_WAY_PLAIN);
    assert_int_equal(tarn_md5_lanes(), 1);
    hash_choose_way(HASH_WAY_BEST);
}

static void no_streams(void **state)
{
    (void)state;
    tarn_hash_many(NULL, 0);
    tarn_md5_state s;
    tarn_md5_init(&s);
    tarn_hash_job job = {&s, NULL, NULL, 0};
    tarn_hash_many(&job, 1);
    expect(&s, text, 0);
}

/* Bytes that end where readable memory ends: no lane reads behind its stream. */
static void nothing_is_read_behind_the_end(void **state)
{
    (void)state;
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    uint8_t *mem = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(mem, MAP_FAILED);
    assert_int_equal(mprotect(mem + page, page, PROT_NONE), 0);
    memcpy(mem, text, page);
    static const hash_way ways[] = {HASH_WAY_BEST, HASH_WAY_AVX2, HASH_WAY_PLAIN};
    for (size_t w = 0; w < TARN_ARRAY_LEN(ways); w++) {
        hash_choose_way(ways[w]);
        for (size_t streams = 1; streams <= 20; streams++) {
            tarn_md5_state states[20];
            tarn_sum sums[20];
            tarn_hash_job jobs[20];
            for (size_t i = 0; i < streams; i++) {
                size_t n = 64 * (i % 7) + i;
                tarn_md5_init(&states[i]);
                assert_int_equal(tarn_sum_begin(&sums[i], TARN_SUM_SHA256), TARN_OK);
                jobs[i] = (tarn_hash_job){&states[i], streams % 2 == 0 ? &sums[i] : NULL, mem + page - n, n};
            }
            tarn_hash_many(jobs, streams);
            for (size_t i = 0; i < streams; i++) {
                size_t n = 64 * (i % 7) + i;
                expect(&states[i], mem + page - n, n);
                if (streams % 2 == 0) {
                    expect_sha256(&sums[i], mem + page - n, n);
                }
                tarn_sum_end(&sums[i]);
            }
        }
    }
    hash_choose_way(HASH_WAY_BEST);
    assert_int_equal(munmap(mem, 2 * page), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rfc1321_vectors),
        cmocka_unit_test(one_stream_of_every_length),
        cmocka_unit_test(many_bytes_before),
        cmocka_unit_test(best_way),
        cmocka_unit_test(avx2_way),
        cmocka_unit_test(plain_way),
        cmocka_unit_test(no_streams),
        cmocka_unit_test(sha256_that_is_out_of_step),
        cmocka_unit_test(nothing_is_read_behind_the_end),
    };
    return cmocka_run_group_tests(tests, fill, unseed);
}
