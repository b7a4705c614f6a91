/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the tests of tarn_auth_verify share: two verifiers (one bound to a region), a signed request that can be altered, and
 * looks at the answer. Each test starts with a fresh arena and a PUT of /bucket/key.
 */
#ifndef TARN_TESTS_AUTH_FIXTURE_H
#define TARN_TESTS_AUTH_FIXTURE_H

#include "auth_private.h"
#include "auth_sign.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#define HASH_HELLO "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"

static sign_req R;
static tarn_auth *A;
static tarn_auth *A_ANY; /* no region set */
static tarn_arena *ARENA;
static tarn_auth_result RESULT;
static tarn_err_detail DETAIL;

static const tarn_pair USERS[] = {{{"alt-access", 10}, {"alt-secret-key", 14}}};

static const tarn_str DOMAINS[] = {{"s3.test", 7}, {"other.test", 10}};

static inline int set_up(void **state)
{
    (void)state;
    tarn_auth_options opt = {.root_access_key = TARN_STR(SIGN_ACCESS),
                             .root_secret_key = TARN_STR(SIGN_SECRET),
                             .region = TARN_STR("us-east-1"),
                             .sigv2_query = true,
                             .users = USERS,
                             .users_n = 1,
                             .domains = DOMAINS,
                             .domains_n = 2};
    if (tarn_auth_new(&opt, &A) != TARN_OK) {
        return -1;
    }
    opt.region = TARN_STR("");
    opt.sigv2_query = false;
    opt.domains_n = 0;
    return tarn_auth_new(&opt, &A_ANY) == TARN_OK ? 0 : -1;
}

static inline int tear_down(void **state)
{
    (void)state;
    tarn_auth_free(A);
    tarn_auth_free(A_ANY);
    return 0;
}

static inline int before(void **state)
{
    (void)state;
    ARENA = tarn_arena_new(4 << 20);
    memset(&R, 0, sizeof R);
    R.method = "PUT";
    R.path = "/bucket/key";
    sign_header(&R, "Host", "127.0.0.1:9000");
    return ARENA ? 0 : -1;
}

static inline int after(void **state)
{
    (void)state;
    tarn_auth_result_wipe(&RESULT);
    tarn_arena_free(ARENA);
    return 0;
}

static inline tarn_err verify_at(tarn_auth *a, tarn_auth_api api, int64_t now_ms)
{
    tarn_auth_view v = sign_view(&R);
    memset(&RESULT, 0, sizeof RESULT);
    memset(&DETAIL, 0, sizeof DETAIL);
    return tarn_auth_verify(a, api, &v, now_ms, ARENA, &RESULT, &DETAIL);
}

static inline tarn_err verify(void)
{
    return verify_at(A, TARN_API_S3, SIGN_NOW_MS);
}

static inline void set_header(const char *name, const char *value)
{
    for (size_t i = 0; i < R.headers_n; i++) {
        if (tarn_str_ieqc(R.headers[i].name, name)) {
            R.headers[i].value = tarn_str_of(value);
            return;
        }
    }
    fail_msg("no header %s", name);
}

static inline void drop_header(const char *name)
{
    size_t n = 0;
    for (size_t i = 0; i < R.headers_n; i++) {
        if (!tarn_str_ieqc(R.headers[i].name, name)) {
            R.headers[n++] = R.headers[i];
        }
    }
    assert_true(n < R.headers_n);
    R.headers_n = n;
}

static inline const char *text(const char *fmt, ...) TARN_PRINTF(1, 2);
static inline const char *text(const char *fmt, ...)
{
    char mem[20000];
    tarn_sb b;
    va_list ap;
    va_start(ap, fmt);
    tarn_sb_init_fixed(&b, mem, sizeof mem);
    tarn_sb_vfmt(&b, fmt, ap);
    va_end(ap);
    assert_false(b.failed);
    return tarn_arena_cstr(ARENA, tarn_sb_view(&b));
}

static inline void assert_field(const char *name, const char *value)
{
    tarn_str have = sign_detail(&DETAIL, name);
    if (!tarn_str_eqc(have, value)) {
        fail_msg("%s is \"%.*s\"", name, TARN_STR_ARG(have));
    }
}

static inline void assert_message(const char *part)
{
    if (tarn_str_find(DETAIL.message, tarn_str_of(part)) < 0) {
        fail_msg("message is \"%.*s\"", TARN_STR_ARG(DETAIL.message));
    }
}

static inline void alter_signature_last(void)
{
    size_t n = strlen(R.authorization);
    R.authorization[n - 1] = R.authorization[n - 1] == '0' ? '1' : '0';
}

static inline void presign_fresh(const char *method, const char *expires)
{
    memset(&R, 0, sizeof R);
    R.method = method;
    R.path = "/bucket/key";
    sign_header(&R, "host", "127.0.0.1:9000");
    sign_presign(&R, expires);
}

#define T(f) cmocka_unit_test_setup_teardown(f, before, after)

#endif
