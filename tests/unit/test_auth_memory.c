/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory that runs out at every place, limits of the options, the key cache when it is full, lookups.
 */
#include "auth_fixture.h"

#include <pthread.h>

static void test_arena_too_small(void **state)
{
    (void)state;
    sign_request(&R, HASH_HELLO);
    tarn_auth_view v = sign_view(&R);
    size_t refused = 0;
    for (size_t max = 16; max < 16384; max += 64) {
        tarn_arena *small = tarn_arena_new(max);
        tarn_err e = tarn_auth_verify(A, TARN_API_S3, &v, SIGN_NOW_MS, small, &RESULT, &DETAIL);
        assert_true(e == TARN_OK || e == TARN_E_NO_MEMORY);
        refused += e != TARN_OK;
        tarn_arena_free(small);
    }
    assert_true(refused > 0);
}

static void allocation_loop(void (*make)(void), tarn_auth_api api)
{
    for (uint64_t n = 1; n < 200; n++) {
        tarn_arena_free(ARENA);
        ARENA = tarn_arena_new(4 << 20);
        make();
        tarn_arena *fresh = tarn_arena_new(1 << 20);
        tarn_auth_view v = sign_view(&R);
        tarn_alloc_fail_after(n);
        uint64_t before_count = tarn_alloc_count();
        tarn_err e = tarn_auth_verify(A, api, &v, SIGN_NOW_MS, fresh, &RESULT, &DETAIL);
        bool hit = tarn_alloc_count() - before_count >= n;
        tarn_alloc_fail_after(0);
        tarn_arena_free(fresh);
        assert_true(e == TARN_OK || (hit && e == TARN_E_NO_MEMORY));
        if (!hit) {
            return;
        }
    }
    fail_msg("too many allocations");
}

static void make_header(void)
{
    R.headers_n = 1;
    R.query = "a=%2f&b=c";
    R.canonical_query = "a=%2F&b=c";
    sign_request(&R, HASH_HELLO);
}

static void make_presigned(void)
{
    presign_fresh("GET", "900");
}

static void test_allocation_failures(void **state)
{
    (void)state;
    allocation_loop(make_header, TARN_API_S3);
    allocation_loop(make_presigned, TARN_API_S3);
}

static void test_new_allocation_failures(void **state)
{
    (void)state;
    tarn_auth_options opt = {.root_access_key = TARN_STR(SIGN_ACCESS),
                             .root_secret_key = TARN_STR(SIGN_SECRET),
                             .users = USERS,
                             .users_n = 1,
                             .domains = DOMAINS,
                             .domains_n = 2};
    for (uint64_t n = 1; n < 50; n++) {
        tarn_auth *a = NULL;
        tarn_alloc_fail_after(n);
        tarn_err e = tarn_auth_new(&opt, &a);
        tarn_alloc_fail_after(0);
        if (e == TARN_OK) {
            tarn_auth_free(a);
            assert_true(n > 3);
            return;
        }
        assert_int_equal(e, TARN_E_NO_MEMORY);
        assert_null(a);
    }
    fail_msg("too many allocations");
}

static void test_options_limits(void **state)
{
    (void)state;
    char ak[TARN_ACCESS_KEY_BYTES_MAX + 1];
    char sk[TARN_SECRET_KEY_BYTES_MAX + 1];
    memset(ak, 'a', sizeof ak);
    memset(sk, 's', sizeof sk);
    static const struct {
        size_t ak_n, sk_n;
        tarn_err err;
    } cases[] = {{3, 8, TARN_OK},
                 {2, 8, TARN_E_INVALID},
                 {3, 7, TARN_E_INVALID},
                 {TARN_ACCESS_KEY_BYTES_MAX, TARN_SECRET_KEY_BYTES_MAX, TARN_OK},
                 {TARN_ACCESS_KEY_BYTES_MAX + 1, 8, TARN_E_INVALID},
                 {3, TARN_SECRET_KEY_BYTES_MAX + 1, TARN_E_INVALID}};
    for (size_t i = 0; i < TARN_ARRAY_LEN(cases); i++) {
        tarn_auth *a = NULL;
        tarn_auth_options opt = {.root_access_key = {ak, cases[i].ak_n}, .root_secret_key = {sk, cases[i].sk_n}};
        assert_int_equal(tarn_auth_new(&opt, &a), cases[i].err);
        tarn_auth_free(a);
    }
    static tarn_pair many[TARN_AUTH_USERS_MAX + 1];
    static char names[TARN_AUTH_USERS_MAX + 1][16];
    for (size_t i = 0; i <= TARN_AUTH_USERS_MAX; i++) {
        tarn_sb b;
        tarn_sb_init_fixed(&b, names[i], sizeof names[i]);
        tarn_sb_fmt(&b, "user%zu", i);
        many[i] = (tarn_pair){{names[i], b.n}, {sk, 8}};
    }
    for (size_t n = TARN_AUTH_USERS_MAX; n <= TARN_AUTH_USERS_MAX + 1; n++) {
        tarn_auth *a = NULL;
        tarn_auth_options opt = {.root_access_key = {ak, 3}, .root_secret_key = {sk, 8}, .users = many, .users_n = n};
        assert_int_equal(tarn_auth_new(&opt, &a), n == TARN_AUTH_USERS_MAX ? TARN_OK : TARN_E_LIMIT);
        tarn_auth_free(a);
    }
    static tarn_str domains[TARN_AUTH_DOMAINS_MAX + 1];
    for (size_t n = 0; n <= TARN_AUTH_DOMAINS_MAX; n++) {
        domains[n] = TARN_STR("s3.test");
    }
    for (size_t n = TARN_AUTH_DOMAINS_MAX; n <= TARN_AUTH_DOMAINS_MAX + 1; n++) {
        tarn_auth *a = NULL;
        tarn_auth_options opt = {.root_access_key = {ak, 3}, .root_secret_key = {sk, 8}, .domains = domains, .domains_n = n};
        assert_int_equal(tarn_auth_new(&opt, &a), n == TARN_AUTH_DOMAINS_MAX ? TARN_OK : TARN_E_LIMIT);
        tarn_auth_free(a);
    }
    many[1] = many[0];
    tarn_auth *a = NULL;
    tarn_auth_options twice = {.root_access_key = {ak, 3}, .root_secret_key = {sk, 8}, .users = many, .users_n = 2};
    assert_int_equal(tarn_auth_new(&twice, &a), TARN_E_ALREADY_EXISTS);
}

static void test_lookup(void **state)
{
    (void)state;
    tarn_identity id;
    char want[65];
    assert_true(tarn_auth_lookup(A, TARN_STR("alt-access"), &id));
    assert_false(id.root);
    sign_sha("tarn-canonical-id:alt-access", 28, want);
    assert_true(tarn_str_eqc(id.canonical_id, want));
    assert_false(tarn_auth_lookup(A, TARN_STR("nobody"), &id));
    assert_false(tarn_auth_lookup(A, TARN_STR(""), &id));
    assert_true(tarn_auth_root(A)->root);
    assert_true(tarn_str_eqc(tarn_auth_region(A), "us-east-1"));
}

/* More scopes than the cache has room for: right all the same. */
static void test_cache_overflow(void **state)
{
    (void)state;
    for (size_t round = 0; round < 2; round++) {
        for (size_t i = 0; i < 300; i++) {
            tarn_arena_free(ARENA);
            ARENA = tarn_arena_new(1 << 20);
            R.headers_n = 1;
            R.region = text("region-%zu", i);
            sign_request(&R, HASH_HELLO);
            assert_int_equal(verify_at(A_ANY, TARN_API_S3, SIGN_NOW_MS), TARN_OK);
            alter_signature_last();
            assert_int_equal(verify_at(A_ANY, TARN_API_S3, SIGN_NOW_MS), TARN_E_SIGNATURE_DOES_NOT_MATCH);
        }
    }
}

#define THREADS 4
#define THREAD_ROUNDS 400

static void *verify_often(void *arg)
{
    static _Thread_local sign_req mine;
    size_t *wrong = arg;
    for (size_t i = 0; i < THREAD_ROUNDS; i++) {
        tarn_arena *arena = tarn_arena_new(1 << 20);
        tarn_auth_result result;
        tarn_err_detail detail;
        char region[32];
        tarn_sb b;
        tarn_sb_init_fixed(&b, region, sizeof region);
        tarn_sb_fmt(&b, "region-%zu", i % 200);
        mine = (sign_req){.method = "GET", .path = "/bucket/key", .region = region};
        sign_header(&mine, "Host", "127.0.0.1:9000");
        sign_request(&mine, SIGN_EMPTY);
        tarn_auth_view v = sign_view(&mine);
        tarn_err e = arena ? tarn_auth_verify(A_ANY, TARN_API_S3, &v, SIGN_NOW_MS, arena, &result, &detail) : TARN_E_NO_MEMORY;
        *wrong += e != TARN_OK;
        tarn_arena_free(arena);
    }
    return NULL;
}

/* All workers share the cache. */
static void test_threads(void **state)
{
    (void)state;
    pthread_t threads[THREADS];
    size_t wrong[THREADS] = {0};
    for (size_t i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, verify_often, &wrong[i]), 0);
    }
    for (size_t i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        assert_int_equal(wrong[i], 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(test_arena_too_small),
        T(test_allocation_failures),
        T(test_new_allocation_failures),
        T(test_options_limits),
        T(test_lookup),
        T(test_cache_overflow),
        T(test_threads),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
