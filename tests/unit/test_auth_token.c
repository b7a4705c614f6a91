/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bearer tokens: what was issued is accepted until it expires, by the holder of the same key only, and no byte of it may
 * change.
 */
#include "auth_private.h"
#include "auth_sign.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static const uint8_t KEY[32] = {1, 2, 3};
static tarn_auth *A;
static tarn_arena *ARENA;

static int set_up(void **state)
{
    (void)state;
    static const tarn_pair users[] = {{{"alt-access", 10}, {"alt-secret-key", 14}}};
    tarn_auth_options opt = {
        .root_access_key = TARN_STR(SIGN_ACCESS), .root_secret_key = TARN_STR(SIGN_SECRET), .token_key = KEY, .users = users, .users_n = 1};
    ARENA = tarn_arena_new(1 << 20);
    return tarn_auth_new(&opt, &A) == TARN_OK ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    tarn_auth_free(A);
    tarn_arena_free(ARENA);
    return 0;
}

static tarn_str issue(const char *access, const char *secret, uint64_t life_s)
{
    tarn_str token;
    assert_int_equal(tarn_token_issue(A, tarn_str_of(access), tarn_str_of(secret), SIGN_NOW_MS, life_s, ARENA, &token), TARN_OK);
    return token;
}

static void test_life(void **state)
{
    (void)state;
    tarn_identity id;
    tarn_str t = issue(SIGN_ACCESS, SIGN_SECRET, 60);
    assert_int_equal(tarn_token_verify(A, t, SIGN_NOW_MS, &id), TARN_OK);
    assert_true(id.root);
    assert_int_equal(tarn_token_verify(A, t, SIGN_NOW_MS + 59999, &id), TARN_OK);
    assert_int_equal(tarn_token_verify(A, t, SIGN_NOW_MS + 60000, &id), TARN_E_EXPIRED_TOKEN);
    assert_int_equal(tarn_token_verify(A, t, -1, &id), TARN_E_EXPIRED_TOKEN);
    t = issue("alt-access", "alt-secret-key", TARN_TOKEN_LIFE_S_DEFAULT);
    assert_int_equal(tarn_token_verify(A, t, SIGN_NOW_MS, &id), TARN_OK);
    assert_false(id.root);
    assert_true(tarn_str_eqc(id.access_key, "alt-access"));
    assert_true(tarn_str_find(t, TARN_STR("alt-secret-key")) < 0);
}

static void test_issue_refused(void **state)
{
    (void)state;
    static const char *const pairs[][2] = {{SIGN_ACCESS, "alt-secret-key"}, {SIGN_ACCESS, ""},
                                           {"nobody", SIGN_SECRET},         {"", ""},
                                           {"alt-access", SIGN_SECRET},     {SIGN_ACCESS, SIGN_SECRET "x"}};
    tarn_str token;
    for (size_t i = 0; i < TARN_ARRAY_LEN(pairs); i++) {
        assert_int_equal(tarn_token_issue(A, tarn_str_of(pairs[i][0]), tarn_str_of(pairs[i][1]), SIGN_NOW_MS, 60, ARENA, &token),
                         TARN_E_UNAUTHORIZED);
    }
    assert_int_equal(tarn_token_issue(A, TARN_STR(SIGN_ACCESS), TARN_STR(SIGN_SECRET), SIGN_NOW_MS, 0, ARENA, &token), TARN_E_LIMIT);
    assert_int_equal(tarn_token_issue(A, TARN_STR(SIGN_ACCESS), TARN_STR(SIGN_SECRET), SIGN_NOW_MS, 7 * 24 * 3600, ARENA, &token), TARN_OK);
    assert_int_equal(tarn_token_issue(A, TARN_STR(SIGN_ACCESS), TARN_STR(SIGN_SECRET), SIGN_NOW_MS, 7 * 24 * 3600 + 1, ARENA, &token),
                     TARN_E_LIMIT);
}

static void test_every_byte(void **state)
{
    (void)state;
    tarn_identity id;
    tarn_str t = issue(SIGN_ACCESS, SIGN_SECRET, 60);
    char mem[512];
    for (size_t i = 0; i < t.n; i++) {
        for (unsigned bit = 0; bit < 8; bit++) {
            memcpy(mem, t.p, t.n);
            mem[i] = (char)(mem[i] ^ (1 << bit));
            assert_int_equal(tarn_token_verify(A, (tarn_str){mem, t.n}, SIGN_NOW_MS, &id), TARN_E_INVALID_TOKEN);
        }
        assert_int_equal(tarn_token_verify(A, tarn_str_sub(t, 0, i), SIGN_NOW_MS, &id), TARN_E_INVALID_TOKEN);
    }
    memcpy(mem, t.p, t.n);
    mem[t.n] = 'A';
    assert_int_equal(tarn_token_verify(A, (tarn_str){mem, t.n + 1}, SIGN_NOW_MS, &id), TARN_E_INVALID_TOKEN);
}

static void test_strangers(void **state)
{
    (void)state;
    static const char *const tokens[] = {"",
                                         "tarn1.",
                                         "tarn1..",
                                         "tarn1.AAAA.",
                                         "nonsense",
                                         "eyJhbGciOiJub25lIn0.eyJzdWIiOiJyb290In0.",
                                         "tarn1.eyJhbGciOiJub25lIn0.eyJzdWIiOiJyb290In0",
                                         "tarn1.AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA.AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"};
    tarn_identity id;
    for (size_t i = 0; i < TARN_ARRAY_LEN(tokens); i++) {
        assert_int_equal(tarn_token_verify(A, tarn_str_of(tokens[i]), SIGN_NOW_MS, &id), TARN_E_INVALID_TOKEN);
    }
    static char longest[10001];
    memset(longest, 'x', sizeof longest - 1);
    assert_int_equal(tarn_token_verify(A, tarn_str_of(longest), SIGN_NOW_MS, &id), TARN_E_INVALID_TOKEN);
}

static void test_other_deployment(void **state)
{
    (void)state;
    tarn_identity id;
    tarn_auth *b = NULL;
    tarn_auth_options opt = {.root_access_key = TARN_STR(SIGN_ACCESS), .root_secret_key = TARN_STR(SIGN_SECRET)}; /* random token key */
    assert_int_equal(tarn_auth_new(&opt, &b), TARN_OK);
    assert_int_equal(tarn_token_verify(b, issue(SIGN_ACCESS, SIGN_SECRET, 60), SIGN_NOW_MS, &id), TARN_E_INVALID_TOKEN);
    tarn_auth_free(b);
    /* The same key, but the user is gone. */
    opt.token_key = KEY;
    assert_int_equal(tarn_auth_new(&opt, &b), TARN_OK);
    assert_int_equal(tarn_token_verify(b, issue("alt-access", "alt-secret-key", 60), SIGN_NOW_MS, &id), TARN_E_INVALID_TOKEN);
    assert_int_equal(tarn_token_verify(b, issue(SIGN_ACCESS, SIGN_SECRET, 60), SIGN_NOW_MS, &id), TARN_OK);
    tarn_auth_free(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_life),      cmocka_unit_test(test_issue_refused),    cmocka_unit_test(test_every_byte),
        cmocka_unit_test(test_strangers), cmocka_unit_test(test_other_deployment),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
