/* SPDX-License-Identifier: Apache-2.0 */
/* The erasure code: against a field multiplication by definition, every loss that the code promises to bear, and one more. */
#include "private.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define SHARD_BYTES_MAX 8192
static uint8_t truth[TARN_EC_SHARDS_MAX][SHARD_BYTES_MAX];
static uint8_t work[TARN_EC_SHARDS_MAX][SHARD_BYTES_MAX];
static uint8_t *truth_at[TARN_EC_SHARDS_MAX];
static uint8_t *work_at[TARN_EC_SHARDS_MAX];

static int fill(void **state)
{
    (void)state;
    tarn_random_seed(2024);
    for (size_t i = 0; i < TARN_EC_SHARDS_MAX; i++) {
        truth_at[i] = truth[i];
        work_at[i] = work[i];
    }
    return 0;
}

static int unseed(void **state)
{
    (void)state;
    tarn_random_seed(0);
    return 0;
}

/* Multiplication in GF(2^8) modulo x^8+x^4+x^3+x^2+1, bit by bit. */
static uint8_t gf_times(uint8_t a, uint8_t b)
{
    unsigned product = 0;
    unsigned x = a;
    for (unsigned y = b; y != 0; y >>= 1) {
        product ^= (y & 1) != 0 ? x : 0;
        x = (x << 1) ^ ((x & 0x80) != 0 ? 0x11Du : 0);
    }
    return (uint8_t)product;
}

static uint8_t gf_inverse(uint8_t a)
{
    for (unsigned b = 1; b < 256; b++) {
        if (gf_times(a, (uint8_t)b) == 1) {
            return (uint8_t)b;
        }
    }
    fail();
    return 0;
}

static tarn_ec *make(unsigned k, unsigned m)
{
    tarn_ec *ec = NULL;
    assert_int_equal(tarn_ec_new(k, m, &ec), TARN_OK);
    assert_non_null(ec);
    return ec;
}

static void encode_random(const tarn_ec *ec, unsigned k, size_t n)
{
    for (unsigned i = 0; i < k; i++) {
        tarn_random(truth[i], n);
    }
    tarn_ec_encode(ec, n, truth_at, truth_at + k);
}

static void limits(void **state)
{
    (void)state;
    tarn_ec *ec = NULL;
    assert_int_equal(tarn_ec_new(0, 1, &ec), TARN_E_LIMIT);
    assert_int_equal(tarn_ec_new(17, 0, &ec), TARN_E_LIMIT);
    assert_int_equal(tarn_ec_new(16, 1, &ec), TARN_E_LIMIT);
    assert_int_equal(tarn_ec_new(13, 4, &ec), TARN_E_LIMIT);
    assert_int_equal(tarn_ec_new(1, 16, &ec), TARN_E_LIMIT);
    assert_int_equal(tarn_ec_new(1, UINT32_MAX, &ec), TARN_E_LIMIT);
    assert_int_equal(tarn_ec_new(UINT32_MAX, 2, &ec), TARN_E_LIMIT);
    tarn_alloc_fail_after(1);
    assert_int_equal(tarn_ec_new(4, 2, &ec), TARN_E_NO_MEMORY);
    assert_null(ec);
    tarn_ec_free(make(16, 0));
    tarn_ec_free(make(1, 15));
    tarn_ec_free(make(15, 1));
    tarn_ec_free(make(8, 8));
    tarn_ec_free(NULL);
}

static void parity_of_the_design(void **state)
{
    (void)state;
    static const unsigned expected[] = {0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 4, 4, 4, 4, 4, 4, 4};
    for (unsigned d = 0; d < TARN_ARRAY_LEN(expected); d++) {
        assert_int_equal(tarn_ec_parity_for(d), expected[d]);
    }
}

/* Parity by definition: row i of the matrix holds 1/(i ⊕ j) in column j. Every length, so that no tail is forgotten. */
static void parity_by_definition(void **state)
{
    (void)state;
    static const unsigned codes[][2] = {{1, 1}, {2, 1}, {3, 1}, {2, 2}, {4, 2}, {5, 3}, {6, 3}, {8, 4}, {12, 4}, {8, 8}, {1, 3}, {10, 6}};
    static const size_t long_ones[] = {1000, 1023, 1024, 1025, 4096, 8191, 8192};
    for (size_t c = 0; c < TARN_ARRAY_LEN(codes); c++) {
        unsigned k = codes[c][0];
        unsigned m = codes[c][1];
        tarn_ec *ec = make(k, m);
        for (size_t step = 0; step < 300 + TARN_ARRAY_LEN(long_ones); step++) {
            size_t n = step < 300 ? step : long_ones[step - 300];
            for (unsigned i = k; i < k + m; i++) {
                memset(truth[i], 0xEE, sizeof truth[i]);
            }
            encode_random(ec, k, n);
            for (unsigned i = k; i < k + m; i++) {
                uint8_t expected[SHARD_BYTES_MAX] = {0};
                for (unsigned j = 0; j < k; j++) {
                    uint8_t by[256];
                    uint8_t factor = gf_inverse((uint8_t)(i ^ j));
                    for (unsigned v = 0; v < 256; v++) {
                        by[v] = gf_times(factor, (uint8_t)v);
                    }
                    for (size_t b = 0; b < n; b++) {
                        expected[b] ^= by[truth[j][b]];
                    }
                }
                assert_memory_equal(truth[i], expected, n);
                if (n < SHARD_BYTES_MAX) {
                    assert_int_equal(truth[i][n], 0xEE); /* nothing is written behind the end */
                }
            }
        }
        tarn_ec_free(ec);
    }
}

static void mirror(void **state)
{
    (void)state;
    tarn_ec *ec = make(1, 1);
    encode_random(ec, 1, 1000);
    assert_memory_equal(truth[0], truth[1], 1000);
    tarn_ec_free(ec);
}

static void no_parity(void **state)
{
    (void)state;
    static const unsigned ks[] = {1, 16};
    for (size_t i = 0; i < TARN_ARRAY_LEN(ks); i++) {
        tarn_ec *ec = make(ks[i], 0);
        bool have[TARN_EC_SHARDS_MAX];
        bool want[TARN_EC_SHARDS_MAX];
        for (unsigned j = 0; j < TARN_EC_SHARDS_MAX; j++) {
            have[j] = true;
            want[j] = true;
        }
        tarn_ec_encode(ec, 100, truth_at, NULL);
        assert_int_equal(tarn_ec_rebuild(ec, 100, truth_at, have, want), TARN_OK);
        have[ks[i] - 1] = false;
        assert_int_equal(tarn_ec_rebuild(ec, 100, truth_at, have, want), TARN_E_CORRUPT);
        tarn_ec_free(ec);
    }
}

/* Bit i of `lost`: shard i is gone. Bit i of `wanted`: it is asked for. */
static void lose_and_rebuild(const tarn_ec *ec, unsigned k, unsigned m, size_t n, unsigned lost, unsigned wanted)
{
    bool have[TARN_EC_SHARDS_MAX] = {false};
    bool want[TARN_EC_SHARDS_MAX] = {false};
    for (unsigned i = 0; i < k + m; i++) {
        have[i] = (lost >> i & 1) == 0;
        want[i] = (wanted >> i & 1) != 0;
        memcpy(work[i], truth[i], n);
        if (!have[i]) {
            memset(work[i], 0xDD, n);
        }
    }
    tarn_err e = tarn_ec_rebuild(ec, n, work_at, have, want);
    if ((unsigned)__builtin_popcount(lost) > m) {
        assert_int_equal(e, TARN_E_CORRUPT);
        return;
    }
    assert_int_equal(e, TARN_OK);
    for (unsigned i = 0; i < k + m; i++) {
        if (have[i] || want[i]) {
            assert_memory_equal(work[i], truth[i], n);
        } else { /* what nobody asked for stays as it was */
            for (size_t b = 0; b < n; b++) {
                assert_int_equal(work[i][b], 0xDD);
            }
        }
    }
}

static void every_loss(void **state)
{
    (void)state;
    static const unsigned codes[][2] = {{1, 1}, {2, 1}, {3, 1}, {2, 2}, {3, 2}, {4, 2}, {4, 3}, {6, 3}};
    for (size_t c = 0; c < TARN_ARRAY_LEN(codes); c++) {
        unsigned k = codes[c][0];
        unsigned m = codes[c][1];
        tarn_ec *ec = make(k, m);
        encode_random(ec, k, 257);
        for (unsigned lost = 0; lost < 1u << (k + m); lost++) {
            lose_and_rebuild(ec, k, m, 257, lost, UINT32_MAX);
            lose_and_rebuild(ec, k, m, 100, lost, (1u << k) - 1);              /* a GET wants data only */
            lose_and_rebuild(ec, k, m, 31, lost, (unsigned)tarn_random_u64()); /* any choice */
        }
        tarn_ec_free(ec);
    }
}

static void random_losses(void **state)
{
    (void)state;
    static const unsigned codes[][2] = {{8, 4}, {12, 4}, {10, 6}, {8, 8}, {1, 15}, {15, 1}};
    for (size_t c = 0; c < TARN_ARRAY_LEN(codes); c++) {
        unsigned k = codes[c][0];
        unsigned m = codes[c][1];
        tarn_ec *ec = make(k, m);
        for (unsigned i = 0; i < 1500; i++) {
            size_t n = 1 + tarn_random_u64() % 300;
            if (i % 50 == 0) {
                encode_random(ec, k, 300);
            }
            unsigned lost = 0;
            unsigned losses = (unsigned)(tarn_random_u64() % (m + 2)); /* up to one too many */
            for (unsigned done = 0; done < losses;) {
                unsigned bit = 1u << (tarn_random_u64() % (k + m));
                done += (lost & bit) == 0 ? 1 : 0;
                lost |= bit;
            }
            lose_and_rebuild(ec, k, m, n, lost, i % 2 == 0 ? UINT32_MAX : (unsigned)tarn_random_u64());
        }
        tarn_ec_free(ec);
    }
}

/* Shards that end where memory ends, at any alignment: vectors neither read nor write past it. */
static void stays_within_the_shards(void **state)
{
    (void)state;
    enum { K = 4, M = 2 };
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    uint8_t *ends[K + M];
    uint8_t *maps[K + M];
    for (unsigned i = 0; i < K + M; i++) {
        maps[i] = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        assert_ptr_not_equal(maps[i], MAP_FAILED);
        assert_int_equal(mprotect(maps[i] + page, page, PROT_NONE), 0);
        ends[i] = maps[i] + page;
    }
    tarn_ec *ec = make(K, M);
    for (size_t n = 1; n < 600; n++) {
        uint8_t *shards[K + M];
        const bool have[K + M] = {false, true, true, false, true, true};
        const bool want[K + M] = {true, true, true, true, true, true};
        uint8_t first[600];
        for (unsigned i = 0; i < K + M; i++) {
            shards[i] = ends[i] - n;
        }
        for (unsigned i = 0; i < K; i++) {
            tarn_random(shards[i], n);
        }
        tarn_ec_encode(ec, n, shards, shards + K);
        memcpy(first, shards[0], n);
        memset(shards[0], 0, n);
        assert_int_equal(tarn_ec_rebuild(ec, n, shards, have, want), TARN_OK);
        assert_memory_equal(first, shards[0], n);
    }
    tarn_ec_free(ec);
    for (unsigned i = 0; i < K + M; i++) {
        assert_int_equal(munmap(maps[i], 2 * page), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(limits),
        cmocka_unit_test(parity_of_the_design),
        cmocka_unit_test(parity_by_definition),
        cmocka_unit_test(mirror),
        cmocka_unit_test(no_parity),
        cmocka_unit_test(every_loss),
        cmocka_unit_test(random_losses),
        cmocka_unit_test(stays_within_the_shards),
    };
    return cmocka_run_group_tests(tests, fill, unseed);
}
