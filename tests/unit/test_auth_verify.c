/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tarn_auth_verify over requests that a client of its own (auth_sign.h) signed: each part altered after signing, each limit
 * and one past it, each way of authentication, the error's code and its extra fields.
 */
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

static int set_up(void **state)
{
    (void)state;
    tarn_auth_options opt = {.root_access_key = TARN_STR(SIGN_ACCESS),
                             .root_secret_key = TARN_STR(SIGN_SECRET),
                             .region = TARN_STR("us-east-1"),
                             .sigv2_query = true,
                             .users = USERS,
                             .users_n = 1};
    if (tarn_auth_new(&opt, &A) != TARN_OK) {
        return -1;
    }
    opt.region = TARN_STR("");
    opt.sigv2_query = false;
    return tarn_auth_new(&opt, &A_ANY) == TARN_OK ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    tarn_auth_free(A);
    tarn_auth_free(A_ANY);
    return 0;
}

static int before(void **state)
{
    (void)state;
    ARENA = tarn_arena_new(4 << 20);
    memset(&R, 0, sizeof R);
    R.method = "PUT";
    R.path = "/bucket/key";
    sign_header(&R, "Host", "127.0.0.1:9000");
    return ARENA ? 0 : -1;
}

static int after(void **state)
{
    (void)state;
    tarn_auth_result_wipe(&RESULT);
    tarn_arena_free(ARENA);
    return 0;
}

static tarn_err verify_at(tarn_auth *a, tarn_auth_api api, int64_t now_ms)
{
    tarn_auth_view v = sign_view(&R);
    memset(&RESULT, 0, sizeof RESULT);
    memset(&DETAIL, 0, sizeof DETAIL);
    return tarn_auth_verify(a, api, &v, now_ms, ARENA, &RESULT, &DETAIL);
}

static tarn_err verify(void)
{
    return verify_at(A, TARN_API_S3, SIGN_NOW_MS);
}

static void set_header(const char *name, const char *value)
{
    for (size_t i = 0; i < R.headers_n; i++) {
        if (tarn_str_ieqc(R.headers[i].name, name)) {
            R.headers[i].value = tarn_str_of(value);
            return;
        }
    }
    fail_msg("no header %s", name);
}

static void drop_header(const char *name)
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

static const char *text(const char *fmt, ...) TARN_PRINTF(1, 2);
static const char *text(const char *fmt, ...)
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

static void assert_field(const char *name, const char *value)
{
    tarn_str have = sign_detail(&DETAIL, name);
    if (!tarn_str_eqc(have, value)) {
        fail_msg("%s is \"%.*s\"", name, TARN_STR_ARG(have));
    }
}

static void assert_message(const char *part)
{
    if (tarn_str_find(DETAIL.message, tarn_str_of(part)) < 0) {
        fail_msg("message is \"%.*s\"", TARN_STR_ARG(DETAIL.message));
    }
}

/* ------------------------------------------------------------------ what is good */
static void test_good(void **state)
{
    (void)state;
    sign_request(&R, HASH_HELLO);
    assert_int_equal(verify(), TARN_OK);
    assert_int_equal(RESULT.mode, TARN_AUTH_V4_HEADER);
    assert_int_equal(RESULT.payload, TARN_PAYLOAD_SHA256);
    assert_true(RESULT.identity.root);
    assert_false(RESULT.identity.anonymous);
    assert_true(tarn_str_eqc(RESULT.identity.access_key, SIGN_ACCESS));
    assert_int_equal(RESULT.identity.canonical_id.n, 64);
    assert_true(tarn_str_eqc(RESULT.region, "us-east-1"));
    assert_true(tarn_str_eqc(RESULT.service, "s3"));
    assert_int_equal(RESULT.signed_ms, SIGN_NOW_MS);
    /* A second time the key comes from the cache; the answer is the same. */
    assert_int_equal(verify(), TARN_OK);
}

static void test_good_payload_modes(void **state)
{
    (void)state;
    sign_request(&R, "UNSIGNED-PAYLOAD");
    assert_int_equal(verify(), TARN_OK);
    assert_int_equal(RESULT.payload, TARN_PAYLOAD_UNSIGNED);
}

static void test_good_spaces_in_values(void **state)
{
    (void)state;
    sign_header(&R, "X-Amz-Meta-A", "two spaces");
    sign_request(&R, HASH_HELLO);
    set_header("x-amz-meta-a", "  two \t  spaces ");
    assert_int_equal(verify(), TARN_OK);
}

static void test_good_repeated_header(void **state)
{
    (void)state;
    sign_header(&R, "x-amz-meta-a", "1");
    sign_header(&R, "X-AMZ-META-A", "2");
    sign_request(&R, HASH_HELLO);
    assert_int_equal(verify(), TARN_OK);
}

static void test_good_date_header(void **state)
{
    (void)state;
    sign_header(&R, "Date", "Fri, 24 May 2013 00:00:00 GMT");
    sign_request(&R, HASH_HELLO);
    drop_header("x-amz-date");
    /* What was signed named x-amz-date: sign again without it. */
    drop_header("authorization");
    R.signed_headers = "date;host;x-amz-content-sha256";
    sign_compute(&R, HASH_HELLO);
    sign_header(&R, "Authorization",
                text("AWS4-HMAC-SHA256 Credential=%s/%s,SignedHeaders=%s,Signature=%s", SIGN_ACCESS, R.scope, R.signed_list, R.signature));
    assert_int_equal(verify(), TARN_OK);
    assert_true(tarn_str_eqc(RESULT.amz_date, "20130524T000000Z"));
}

static void test_good_unsigned_ordinary_header(void **state)
{
    (void)state;
    sign_request(&R, HASH_HELLO);
    sign_header(&R, "If-None-Match", "*");
    sign_header(&R, "Range", "bytes=0-1");
    assert_int_equal(verify(), TARN_OK);
}

static void test_good_second_user(void **state)
{
    (void)state;
    R.access = "alt-access";
    R.secret = "alt-secret-key";
    sign_request(&R, HASH_HELLO);
    assert_int_equal(verify(), TARN_OK);
    assert_false(RESULT.identity.root);
    assert_true(tarn_str_eqc(RESULT.identity.name, "alt-access"));
    R.headers_n = 1;
    R.secret = SIGN_SECRET; /* another user's secret */
    sign_request(&R, HASH_HELLO);
    assert_int_equal(verify(), TARN_E_SIGNATURE_DOES_NOT_MATCH);
}

static void test_paths(void **state)
{
    (void)state;
    static const char *const good[][2] = {
        /* wire, signed */
        {"/b/a%20b", "/b/a%20b"},         {"/b/a+b", "/b/a%2Bb"},       {"/b/a%2bb", "/b/a%2Bb"}, {"/b/a=b:c@d", "/b/a%3Db%3Ac%40d"},
        {"/b/a=b:c@d", "/b/a=b:c@d"},     {"/b//x/../y", "/b//x/../y"}, {"/b/%2Fx", "/b//x"},     {"/b/%2Fx", "/b/%2Fx"},
        {"/b/%e4%bd%a0", "/b/%E4%BD%A0"}, {"/b/100%", "/b/100%25"},     {"/b/%zz", "/b/%25zz"},   {"/b/%41", "/b/A"},
    };
    for (size_t i = 0; i < TARN_ARRAY_LEN(good); i++) {
        R.headers_n = 1;
        R.path = good[i][0];
        R.canonical_path = good[i][1];
        sign_request(&R, HASH_HELLO);
        if (verify() != TARN_OK) {
            fail_msg("%s signed as %s", good[i][0], good[i][1]);
        }
    }
    /* Never normalised: */
    R.headers_n = 1;
    R.path = "/b/x/../y";
    R.canonical_path = "/b/y";
    sign_request(&R, HASH_HELLO);
    assert_int_equal(verify(), TARN_E_SIGNATURE_DOES_NOT_MATCH);
}

static void test_queries(void **state)
{
    (void)state;
    static const char *const good[][2] = {
        {"b=2&a=1", "a=1&b=2"}, {"uploads", "uploads="}, {"a=2&a=1", "a=1&a=2"},     {"a=%2f", "a=%2F"},
        {"a=b+c", "a=b%2Bc"},   {"a=x=y", "a=x%3Dy"},    {"a&b", "a=&b="},           {"A=1&a=1&B=1", "A=1&B=1&a=1"},
        {"a=%", "a=%25"},       {"&&a=1&", "a=1"},       {"a-b=1&a=1", "a=1&a-b=1"}, {"%61=1", "a=1"},
    };
    for (size_t i = 0; i < TARN_ARRAY_LEN(good); i++) {
        R.headers_n = 1;
        R.query = good[i][0];
        R.canonical_query = good[i][1];
        sign_request(&R, HASH_HELLO);
        if (verify() != TARN_OK) {
            fail_msg("%s signed as %s", good[i][0], good[i][1]);
        }
    }
}

static void test_query_params_limit(void **state)
{
    (void)state;
    for (size_t extra = 0; extra < 2; extra++) {
        tarn_sb b;
        tarn_sb_init(&b, 1 << 20);
        for (size_t i = 0; i < AUTH_QUERY_PARAMS_MAX + extra; i++) {
            tarn_sb_fmt(&b, "%sp%06zu=", i ? "&" : "", i);
        }
        R.headers_n = 1;
        R.query = tarn_arena_cstr(ARENA, tarn_sb_view(&b));
        sign_request(&R, HASH_HELLO);
        assert_int_equal(verify(), extra ? TARN_E_INVALID_ARGUMENT : TARN_OK);
        tarn_sb_free(&b);
    }
}

/* ------------------------------------------------------------------ tampering */
typedef void (*alter)(void);
static void alter_method(void)
{
    R.method = "DELETE";
}
static void alter_path(void)
{
    R.path = "/bucket/key2";
}
static void alter_path_case(void)
{
    R.path = "/bucket/Key";
}
static void alter_path_slash(void)
{
    R.path = "/bucket//key";
}
static void alter_query_value(void)
{
    R.query = "a=b%20d&x=1";
}
static void alter_query_added(void)
{
    R.query = "a=b%20c&x=1&acl";
}
static void alter_query_dropped(void)
{
    R.query = NULL;
}
static void alter_query_doubled(void)
{
    R.query = "a=b%20c&a=b%20c&x=1";
}
static void alter_host(void)
{
    set_header("host", "evil.example");
}
static void alter_content_type(void)
{
    set_header("content-type", "text/html");
}
static void alter_meta(void)
{
    set_header("x-amz-meta-color", "red");
}
static void alter_meta_doubled(void)
{
    sign_header(&R, "x-amz-meta-color", "blue");
}
static void alter_meta_dropped(void)
{
    drop_header("x-amz-meta-color");
}
static void alter_date(void)
{
    set_header("x-amz-date", "20130524T000100Z");
}
static void alter_hash(void)
{
    set_header("x-amz-content-sha256", SIGN_EMPTY);
}
static void alter_to_unsigned(void)
{
    set_header("x-amz-content-sha256", "UNSIGNED-PAYLOAD");
}
static void alter_signature_last(void)
{
    size_t n = strlen(R.authorization);
    R.authorization[n - 1] = R.authorization[n - 1] == '0' ? '1' : '0';
}
static void alter_signature_first(void)
{
    char *p = strstr(R.authorization, "Signature=") + 10;
    *p = *p == '0' ? '1' : '0';
}
static void alter_signature_upper(void)
{
    for (char *p = strstr(R.authorization, "Signature=") + 10; *p; p++) {
        *p = (char)(*p >= 'a' && *p <= 'f' ? *p - 32 : *p);
    }
}
static void alter_signature_short(void)
{
    R.authorization[strlen(R.authorization) - 1] = 0;
    set_header("authorization", R.authorization);
}
static void alter_signature_prefix(void)
{
    R.authorization[strlen(R.authorization) - 56] = 0;
    set_header("authorization", R.authorization);
}
static void alter_signature_long(void)
{
    set_header("authorization", text("%s00", R.authorization));
}
static void alter_signature_nul(void)
{
    R.authorization[strlen(R.authorization) - 10] = 0; /* inside: the slice keeps its length */
}

static void test_tampering(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        alter how;
    } cases[] = {
        {"method", alter_method},
        {"path", alter_path},
        {"path case", alter_path_case},
        {"path slash", alter_path_slash},
        {"query value", alter_query_value},
        {"query added", alter_query_added},
        {"query dropped", alter_query_dropped},
        {"query doubled", alter_query_doubled},
        {"host", alter_host},
        {"content type", alter_content_type},
        {"meta", alter_meta},
        {"meta doubled", alter_meta_doubled},
        {"meta dropped", alter_meta_dropped},
        {"date", alter_date},
        {"hash", alter_hash},
        {"to unsigned", alter_to_unsigned},
        {"signature last", alter_signature_last},
        {"signature first", alter_signature_first},
        {"signature upper", alter_signature_upper},
        {"signature short", alter_signature_short},
        {"signature prefix", alter_signature_prefix},
        {"signature long", alter_signature_long},
        {"signature nul", alter_signature_nul},
    };
    for (size_t i = 0; i < TARN_ARRAY_LEN(cases); i++) {
        R.method = "PUT";
        R.path = "/bucket/key";
        R.query = "a=b%20c&x=1";
        R.headers_n = 0;
        sign_header(&R, "Host", "127.0.0.1:9000");
        sign_header(&R, "Content-Type", "text/plain");
        sign_header(&R, "x-amz-meta-color", "green");
        sign_request(&R, HASH_HELLO);
        assert_int_equal(verify(), TARN_OK);
        cases[i].how();
        tarn_err e = verify();
        if (e != TARN_E_SIGNATURE_DOES_NOT_MATCH) {
            fail_msg("%s: %s", cases[i].name, tarn_err_get(e)->name);
        }
        assert_true(RESULT.identity.access_key.n == 0); /* nothing was set */
    }
}

static void test_other_secret(void **state)
{
    (void)state;
    static const char *const secrets[] = {"", "x", SIGN_SECRET "x", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKE"};
    for (size_t i = 0; i < TARN_ARRAY_LEN(secrets); i++) {
        R.headers_n = 1;
        R.secret = secrets[i];
        sign_request(&R, HASH_HELLO);
        assert_int_equal(verify(), TARN_E_SIGNATURE_DOES_NOT_MATCH);
    }
}

static void test_mismatch_fields(void **state)
{
    (void)state;
    static const char *const order[] = {"AWSAccessKeyId",    "StringToSign",     "SignatureProvided",
                                        "StringToSignBytes", "CanonicalRequest", "CanonicalRequestBytes"};
    char key_hex[65];
    sign_request(&R, HASH_HELLO);
    sign_hex(R.key, 32, key_hex);
    alter_signature_last();
    assert_int_equal(verify(), TARN_E_SIGNATURE_DOES_NOT_MATCH);
    assert_int_equal(DETAIL.fields_n, TARN_ARRAY_LEN(order));
    for (size_t i = 0; i < TARN_ARRAY_LEN(order); i++) {
        assert_true(tarn_str_eqc(DETAIL.fields[i].name, order[i]));
        tarn_str v = DETAIL.fields[i].value;
        assert_true(v.n > 0);
        assert_true(tarn_str_find(v, TARN_STR(SIGN_SECRET)) < 0);
        assert_true(tarn_str_find(v, tarn_str_of(key_hex)) < 0);
        assert_true(tarn_str_find(v, tarn_str_of(R.signature)) < 0);
    }
    assert_field("AWSAccessKeyId", SIGN_ACCESS);
    assert_field("StringToSign", R.text);
    assert_field("CanonicalRequest", R.canonical);
    assert_true(tarn_str_starts(sign_detail(&DETAIL, "CanonicalRequestBytes"), "50 55 54 0a 2f 62 "));
    assert_true(tarn_str_starts(sign_detail(&DETAIL, "StringToSignBytes"), "41 57 53 34 2d "));
    assert_int_equal(sign_detail(&DETAIL, "CanonicalRequestBytes").n, 3 * strlen(R.canonical) - 1);
}

/* ------------------------------------------------------------------ the order of checks */
static void test_no_date(void **state)
{
    (void)state;
    sign_request(&R, HASH_HELLO);
    drop_header("x-amz-date");
    assert_int_equal(verify(), TARN_E_ACCESS_DENIED);
    assert_message("requires a valid Date or x-amz-date header");
}

static void test_bad_dates(void **state)
{
    (void)state;
    static const char *const dates[] = {
        "nonsense", "", "20130231T000000Z", "20130524T000000", "2013-05-24T00:00:00Z", "20130524T000000Z0", "20130524T250000Z"};
    for (size_t i = 0; i < TARN_ARRAY_LEN(dates); i++) {
        R.headers_n = 1;
        sign_request(&R, HASH_HELLO);
        set_header("x-amz-date", dates[i]);
        assert_int_equal(verify(), TARN_E_ACCESS_DENIED);
    }
}

static void test_skew(void **state)
{
    (void)state;
    sign_request(&R, HASH_HELLO);
    assert_int_equal(verify_at(A, TARN_API_S3, SIGN_NOW_MS + TARN_CLOCK_SKEW_MS_MAX), TARN_OK);
    assert_int_equal(verify_at(A, TARN_API_S3, SIGN_NOW_MS - TARN_CLOCK_SKEW_MS_MAX), TARN_OK);
    assert_int_equal(verify_at(A, TARN_API_S3, SIGN_NOW_MS - TARN_CLOCK_SKEW_MS_MAX - 1), TARN_E_REQUEST_TIME_TOO_SKEWED);
    assert_int_equal(verify_at(A, TARN_API_S3, SIGN_NOW_MS + TARN_CLOCK_SKEW_MS_MAX + 1), TARN_E_REQUEST_TIME_TOO_SKEWED);
    assert_field("RequestTime", "20130524T000000Z");
    assert_field("ServerTime", "2013-05-24T00:15:00Z");
    assert_field("MaxAllowedSkewMilliseconds", "900000");
    /* Before the form of Authorization is looked at: */
    set_header("authorization", "rubbish");
    assert_int_equal(verify_at(A, TARN_API_S3, SIGN_NOW_MS + 3600000), TARN_E_REQUEST_TIME_TOO_SKEWED);
}

static void test_authorization_forms(void **state)
{
    (void)state;
    static const struct {
        const char *value;
        tarn_err err;
    } cases[] = {
        {"", TARN_E_INVALID_ARGUMENT},
        {"AWS4-HMAC-SHA256", TARN_E_INVALID_ARGUMENT},
        {"AWS AKIAIOSFODNN7EXAMPLE:c2lnbmF0dXJl", TARN_E_INVALID_REQUEST},
        {"Basic dXNlcjpwYXNz", TARN_E_INVALID_ARGUMENT},
        {"Bearer eyJhbGciOiJub25lIn0.e30.", TARN_E_INVALID_ARGUMENT},
        {"aws4-hmac-sha256 Credential=x", TARN_E_INVALID_ARGUMENT},
        {"AWS4-ECDSA-P256-SHA256 Credential=x", TARN_E_NOT_IMPLEMENTED},
        {"AWS4-HMAC-SHA256 ,,,,", TARN_E_AUTH_HEADER_MALFORMED},
        {"AWS4-HMAC-SHA256 Credential", TARN_E_AUTH_HEADER_MALFORMED},
    };
    for (size_t i = 0; i < TARN_ARRAY_LEN(cases); i++) {
        R.headers_n = 1;
        sign_request(&R, HASH_HELLO);
        set_header("authorization", cases[i].value);
        tarn_err e = verify();
        if (e != cases[i].err) {
            fail_msg("\"%s\": %s", cases[i].value, tarn_err_get(e)->name);
        }
    }
}

static void authorization(const char *credential, const char *list, const char *signature, const char *more)
{
    set_header("authorization", text("AWS4-HMAC-SHA256 %s%s%s%s", credential, list, signature, more));
}

static void test_parts(void **state)
{
    (void)state;
    sign_request(&R, HASH_HELLO);
    const char *c = text("Credential=%s/%s,", SIGN_ACCESS, R.scope);
    const char *l = text("SignedHeaders=%s,", R.signed_list);
    const char *s = text("Signature=%s", R.signature);
    authorization(c, l, s, "");
    assert_int_equal(verify(), TARN_OK);
    const char *const bad[][4] = {
        {"", l, s, ""},
        {c, "", s, ""},
        {c, l, "", ""},
        {c, l, "Signature=", ""},
        {c, l, s, ",Signature=0"},
        {c, l, s, text(",%s", c)},
        {c, l, s, ",More=1"},
        {"Credential=,", l, s, ""},
        {c, "SignedHeaders=,", s, ""},
        {c, text("SignedHeaders=%s;,", R.signed_list), s, ""},
        {c, text("SignedHeaders=;%s,", R.signed_list), s, ""},
        {c, text("SignedHeaders=%s;host,", R.signed_list), s, ""},
        {c, "SignedHeaders=Host;x-amz-date,", s, ""},
        {c, "SignedHeaders=host x-amz-date,", s, ""},
        {text("Credential=%s/more/%s/x,", SIGN_ACCESS, R.scope), l, s, ""},
        {text("Credential=%s,", SIGN_ACCESS), l, s, ""},
        {text("Credential=/%s,", R.scope), l, s, ""},
        {text("Credential=%s/201305/us-east-1/s3/aws4_request,", SIGN_ACCESS), l, s, ""},
        {text("Credential=%s/2013052x/us-east-1/s3/aws4_request,", SIGN_ACCESS), l, s, ""},
        {text("Credential=%s/20130524/us-east-1//aws4_request,", SIGN_ACCESS), l, s, ""},
    };
    for (size_t i = 0; i < TARN_ARRAY_LEN(bad); i++) {
        authorization(bad[i][0], bad[i][1], bad[i][2], bad[i][3]);
        tarn_err e = verify();
        if (e != TARN_E_AUTH_HEADER_MALFORMED) {
            fail_msg("case %zu: %s", i, tarn_err_get(e)->name);
        }
        assert_true(DETAIL.message.n > 0);
    }
}

static void test_signed_headers_limit(void **state)
{
    (void)state;
    sign_request(&R, HASH_HELLO);
    for (size_t extra = 0; extra < 2; extra++) {
        tarn_sb b;
        tarn_sb_init(&b, 1 << 20);
        for (size_t i = 0; i < AUTH_SIGNED_HEADERS_MAX + extra; i++) {
            tarn_sb_fmt(&b, "%sh%06zu", i ? ";" : "", i);
        }
        assert_true(auth_signed_headers_valid(tarn_sb_view(&b)) == (extra == 0));
        tarn_sb_free(&b);
    }
    /* Out of order is taken as it is, twice is not. */
    assert_true(auth_signed_headers_valid(TARN_STR("b;a;c")));
    assert_false(auth_signed_headers_valid(TARN_STR("b;a;b")));
    assert_false(auth_signed_headers_valid(TARN_STR("")));
}

static void test_scope(void **state)
{
    (void)state;
    R.region = "mars-north-1";
    sign_request(&R, HASH_HELLO);
    assert_int_equal(verify(), TARN_E_AUTH_HEADER_MALFORMED);
    assert_field("Region", "us-east-1");
    assert_message("the region 'mars-north-1' is wrong; expecting 'us-east-1'");
    assert_int_equal(verify_at(A_ANY, TARN_API_S3, SIGN_NOW_MS), TARN_OK);
    assert_int_equal(verify_at(A, TARN_API_ADMIN, SIGN_NOW_MS), TARN_OK);
    R.headers_n = 1;
    R.region = NULL;
    R.service = "ec2";
    sign_request(&R, HASH_HELLO);
    assert_int_equal(verify(), TARN_E_AUTH_HEADER_MALFORMED);
    assert_int_equal(verify_at(A, TARN_API_CATALOG, SIGN_NOW_MS), TARN_E_AUTH_HEADER_MALFORMED);
    assert_int_equal(verify_at(A, TARN_API_ADMIN, SIGN_NOW_MS), TARN_E_AUTH_HEADER_MALFORMED);
    R.headers_n = 1;
    R.service = "s3tables";
    sign_request(&R, HASH_HELLO);
    assert_int_equal(verify(), TARN_E_AUTH_HEADER_MALFORMED);
    assert_int_equal(verify_at(A, TARN_API_CATALOG, SIGN_NOW_MS), TARN_OK);
    R.headers_n = 1;
    R.service = NULL;
    R.terminal = "aws5_request";
    sign_request(&R, HASH_HELLO);
    assert_int_equal(verify(), TARN_E_AUTH_HEADER_MALFORMED);
    R.headers_n = 1;
    R.terminal = NULL;
    R.scope_date = "20130523";
    sign_request(&R, HASH_HELLO);
    assert_int_equal(verify(), TARN_E_AUTH_HEADER_MALFORMED);
    assert_message("Invalid credential date");
}

static void test_unknown_keys(void **state)
{
    (void)state;
    static const char *const keys[] = {"AKIANOBODY0000000000", "x' OR '1'='1", "../../x", "AKIAIOSFODNN7EXAMPL", "akiaiosfodnn7example"};
    for (size_t i = 0; i < TARN_ARRAY_LEN(keys); i++) {
        R.headers_n = 1;
        R.access = keys[i];
        sign_request(&R, HASH_HELLO);
        assert_int_equal(verify(), TARN_E_INVALID_ACCESS_KEY_ID);
        assert_field("AWSAccessKeyId", keys[i]);
    }
}

static void test_payload_header(void **state)
{
    (void)state;
    static const struct {
        const char *value;
        tarn_err err;
    } cases[] = {
        {NULL, TARN_E_INVALID_REQUEST},
        {"nonsense", TARN_E_INVALID_ARGUMENT},
        {"", TARN_E_INVALID_ARGUMENT},
        {"STREAMING-NONSENSE", TARN_E_INVALID_ARGUMENT},
        {"unsigned-payload", TARN_E_INVALID_ARGUMENT},
        {"STREAMING-AWS4-ECDSA-P256-SHA256-PAYLOAD", TARN_E_NOT_IMPLEMENTED},
        {"STREAMING-AWS4-ECDSA-P256-SHA256-PAYLOAD-TRAILER", TARN_E_NOT_IMPLEMENTED},
        {"2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b982", TARN_E_INVALID_ARGUMENT},
        {HASH_HELLO "0", TARN_E_INVALID_ARGUMENT},
        {"LPJNul+wow4m6DsqxbninhsWHlwfp0JecwQzYpOLmCQ=", TARN_E_INVALID_ARGUMENT}, /* base64 is for the catalog */
        {"STREAMING-AWS4-HMAC-SHA256-PAYLOAD", TARN_E_MISSING_CONTENT_LENGTH},
    };
    for (size_t i = 0; i < TARN_ARRAY_LEN(cases); i++) {
        R.headers_n = 1;
        sign_request(&R, cases[i].value);
        tarn_err e = verify();
        if (e != cases[i].err) {
            fail_msg("\"%s\": %s", cases[i].value ? cases[i].value : "(none)", tarn_err_get(e)->name);
        }
    }
}

static void test_payload_twice(void **state)
{
    (void)state;
    sign_request(&R, HASH_HELLO);
    sign_header(&R, "X-Amz-Content-SHA256", "UNSIGNED-PAYLOAD");
    assert_int_equal(verify(), TARN_E_INVALID_ARGUMENT);
}

static void streaming(const char *mode, const char *length, const char *trailer)
{
    R.headers_n = 1;
    if (length) {
        sign_header(&R, "x-amz-decoded-content-length", length);
    }
    if (trailer) {
        sign_header(&R, "x-amz-trailer", trailer);
    }
    sign_request(&R, mode);
}

static void test_streaming_headers(void **state)
{
    (void)state;
    static const char *const S = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD";
    static const char *const ST = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER";
    static const char *const UT = "STREAMING-UNSIGNED-PAYLOAD-TRAILER";
    streaming(S, "5", NULL);
    assert_int_equal(verify(), TARN_OK);
    assert_int_equal(RESULT.payload, TARN_PAYLOAD_SIGNED_CHUNKS);
    assert_true(RESULT.has_decoded_length && RESULT.decoded_length == 5);
    assert_memory_equal(RESULT.signing_key, R.key, 32);
    assert_string_equal(RESULT.seed_signature, R.signature);
    streaming(ST, "5", "x-amz-checksum-crc32");
    assert_int_equal(verify(), TARN_OK);
    assert_int_equal(RESULT.payload, TARN_PAYLOAD_SIGNED_CHUNKS_TRAILER);
    streaming(UT, "5", "X-Amz-Checksum-CRC64NVME");
    assert_int_equal(verify(), TARN_OK);
    assert_int_equal(RESULT.payload, TARN_PAYLOAD_UNSIGNED_TRAILER);
    static const uint8_t zero[32];
    assert_memory_equal(RESULT.signing_key, zero, 32); /* nobody needs it */
    static const char *const lengths[] = {"abc", "-5", "", " 5", "18446744073709551616", "5x"};
    for (size_t i = 0; i < TARN_ARRAY_LEN(lengths); i++) {
        streaming(S, lengths[i], NULL);
        assert_int_equal(verify(), TARN_E_INVALID_ARGUMENT);
    }
    static const char *const trailers[] = {"x-amz-checksum-nonsense", "etag", "x-amz-checksum-crc32,x-amz-checksum-sha1"};
    for (size_t i = 0; i < TARN_ARRAY_LEN(trailers); i++) {
        streaming(UT, "5", trailers[i]);
        assert_int_equal(verify(), TARN_E_INVALID_REQUEST);
    }
    R.method = "GET";
    streaming(S, "5", NULL);
    assert_int_equal(verify(), TARN_E_INVALID_REQUEST);
    /* CVE-2025-31489: the seed signature counts in the unsigned mode too. */
    R.method = "PUT";
    streaming(UT, "5", "x-amz-checksum-crc32");
    alter_signature_last();
    assert_int_equal(verify(), TARN_E_SIGNATURE_DOES_NOT_MATCH);
}

static void test_unsigned_headers(void **state)
{
    (void)state;
    static const char *const names[] = {"x-amz-meta-evil",      "x-amz-copy-source", "X-Amz-Acl", "x-amz-bypass-governance-retention",
                                        "x-amz-security-token", "x-amz-tagging"};
    for (size_t i = 0; i < TARN_ARRAY_LEN(names); i++) {
        R.headers_n = 1;
        sign_request(&R, HASH_HELLO);
        sign_header(&R, names[i], "1");
        assert_int_equal(verify(), TARN_E_ACCESS_DENIED);
        assert_field("HeadersNotSigned", names[i]);
        assert_message("were not signed");
    }
    sign_header(&R, "x-amz-acl", "private");
    assert_int_equal(verify(), TARN_E_ACCESS_DENIED);
    assert_field("HeadersNotSigned", "x-amz-tagging, x-amz-acl");
    R.headers_n = 1;
    R.signed_headers = "x-amz-content-sha256;x-amz-date";
    sign_request(&R, HASH_HELLO);
    assert_int_equal(verify(), TARN_E_ACCESS_DENIED);
    assert_field("HeadersNotSigned", "host");
    /* Exempt ones. */
    R.headers_n = 1;
    R.signed_headers = "host;x-amz-date";
    sign_request(&R, HASH_HELLO);
    sign_header(&R, "x-amz-cf-id", "1");
    sign_header(&R, "x-amz-checksum-algorithm", "CRC32");
    assert_int_equal(verify(), TARN_OK);
    /* A header's namesake in the query signs nothing unless the URL is presigned. */
    R.headers_n = 1;
    R.signed_headers = NULL;
    R.query = "x-amz-acl=public-read";
    sign_request(&R, HASH_HELLO);
    sign_header(&R, "x-amz-acl", "public-read");
    assert_int_equal(verify(), TARN_E_ACCESS_DENIED);
}

static void test_session_token(void **state)
{
    (void)state;
    sign_header(&R, "x-amz-security-token", "nonsense");
    sign_request(&R, HASH_HELLO);
    assert_int_equal(verify(), TARN_E_INVALID_TOKEN);
}

/* ------------------------------------------------------------------ ways that exclude each other */
static void test_ways(void **state)
{
    (void)state;
    sign_request(&R, HASH_HELLO);
    sign_header(&R, "authorization", "AWS4-HMAC-SHA256 Credential=x/y,SignedHeaders=host,Signature=z");
    assert_int_equal(verify(), TARN_E_INVALID_ARGUMENT);
    R.headers_n--;
    assert_int_equal(verify(), TARN_OK);
    static const char *const queries[] = {"X-Amz-Signature=y", "X-Amz-Credential=x", "X-Amz-Algorithm=AWS4-HMAC-SHA256",
                                          "AWSAccessKeyId=x",  "Signature=x",        "X%2DAmz-Credential=x"};
    for (size_t i = 0; i < TARN_ARRAY_LEN(queries); i++) {
        R.query = queries[i];
        assert_int_equal(verify(), TARN_E_INVALID_ARGUMENT);
        assert_message("Only one auth mechanism allowed");
    }
    R.headers_n = 1;
    R.query = "AWSAccessKeyId=x&X-Amz-Credential=y";
    assert_int_equal(verify(), TARN_E_INVALID_ARGUMENT);
}

static void test_anonymous(void **state)
{
    (void)state;
    assert_int_equal(verify(), TARN_OK);
    assert_int_equal(RESULT.mode, TARN_AUTH_ANONYMOUS);
    assert_true(RESULT.identity.anonymous);
    assert_int_equal(RESULT.payload, TARN_PAYLOAD_UNSIGNED);
    sign_header(&R, "x-amz-content-sha256", HASH_HELLO);
    assert_int_equal(verify(), TARN_OK);
    assert_int_equal(RESULT.payload, TARN_PAYLOAD_SHA256);
    set_header("x-amz-content-sha256", "STREAMING-AWS4-HMAC-SHA256-PAYLOAD");
    sign_header(&R, "x-amz-decoded-content-length", "5");
    assert_int_equal(verify(), TARN_E_INVALID_REQUEST);
    set_header("x-amz-content-sha256", "STREAMING-UNSIGNED-PAYLOAD-TRAILER");
    assert_int_equal(verify(), TARN_OK);
    assert_true(RESULT.identity.anonymous);
}

/* ------------------------------------------------------------------ presigned */
static void presign_fresh(const char *method, const char *expires)
{
    memset(&R, 0, sizeof R);
    R.method = method;
    R.path = "/bucket/key";
    sign_header(&R, "host", "127.0.0.1:9000");
    sign_presign(&R, expires);
}

static void test_presigned(void **state)
{
    (void)state;
    presign_fresh("GET", "900");
    assert_int_equal(verify(), TARN_OK);
    assert_int_equal(RESULT.mode, TARN_AUTH_V4_QUERY);
    assert_int_equal(RESULT.payload, TARN_PAYLOAD_UNSIGNED);
    assert_int_equal(RESULT.presign_expires_s, 900);
    assert_int_equal(verify_at(A, TARN_API_S3, SIGN_NOW_MS + 900000), TARN_OK);
    assert_int_equal(verify_at(A, TARN_API_S3, SIGN_NOW_MS + 900001), TARN_E_ACCESS_DENIED);
    assert_message("Request has expired");
    assert_field("X-Amz-Expires", "900");
    assert_field("Expires", "2013-05-24T00:15:00Z");
    assert_field("ServerTime", "2013-05-24T00:15:00Z");
    assert_int_equal(verify_at(A, TARN_API_S3, SIGN_NOW_MS - TARN_CLOCK_SKEW_MS_MAX), TARN_OK);
    assert_int_equal(verify_at(A, TARN_API_S3, SIGN_NOW_MS - TARN_CLOCK_SKEW_MS_MAX - 1), TARN_E_ACCESS_DENIED);
    assert_message("Request is not valid yet");
    R.method = "DELETE";
    assert_int_equal(verify(), TARN_E_SIGNATURE_DOES_NOT_MATCH);
}

static void test_presigned_expires(void **state)
{
    (void)state;
    static const struct {
        const char *value;
        tarn_err err;
    } cases[] = {{"604800", TARN_OK},
                 {"604801", TARN_E_AUTH_QUERY_ERROR},
                 {"0", TARN_OK},
                 {"-1", TARN_E_AUTH_QUERY_ERROR},
                 {"abc", TARN_E_AUTH_QUERY_ERROR},
                 {"18446744073709551676", TARN_E_AUTH_QUERY_ERROR}};
    for (size_t i = 0; i < TARN_ARRAY_LEN(cases); i++) {
        presign_fresh("GET", cases[i].value);
        assert_int_equal(verify(), cases[i].err);
    }
    presign_fresh("GET", "604800");
    assert_int_equal(verify_at(A, TARN_API_S3, SIGN_NOW_MS + INT64_C(604800000)), TARN_OK);
}

/* The query with one parameter taken out or replaced. */
static const char *edited(const char *name, const char *value)
{
    tarn_sb b;
    char mem[20000];
    tarn_str rest = tarn_str_of(R.presigned);
    bool first = true;
    tarn_sb_init_fixed(&b, mem, sizeof mem);
    while (rest.n > 0) {
        tarn_str item;
        tarn_str n;
        tarn_str v;
        tarn_str_split(rest, '&', &item, &rest);
        tarn_str_split(item, '=', &n, &v);
        bool hit = tarn_str_eqc(n, name);
        if (hit && !value) {
            continue;
        }
        tarn_sb_cstr(&b, first ? "" : "&");
        first = false;
        tarn_sb_fmt(&b, "%.*s=%.*s", TARN_STR_ARG(n), TARN_STR_ARG(hit ? tarn_str_of(value) : v));
    }
    return tarn_arena_cstr(ARENA, tarn_sb_view(&b));
}

static void test_presigned_parameters(void **state)
{
    (void)state;
    static const char *const names[] = {"X-Amz-Algorithm", "X-Amz-Credential",    "X-Amz-Date",
                                        "X-Amz-Expires",   "X-Amz-SignedHeaders", "X-Amz-Signature"};
    for (size_t i = 0; i < TARN_ARRAY_LEN(names); i++) {
        presign_fresh("GET", "900");
        R.query = edited(names[i], NULL);
        assert_int_equal(verify(), TARN_E_AUTH_QUERY_ERROR);
        R.query = edited(names[i], "");
        assert_int_equal(verify(), TARN_E_AUTH_QUERY_ERROR);
        R.query = text("%s=x&%s", names[i], R.presigned);
        assert_int_equal(verify(), TARN_E_AUTH_QUERY_ERROR);
    }
    static const struct {
        const char *name, *value;
        tarn_err err;
    } cases[] = {
        {"X-Amz-Algorithm", "AWS4-HMAC-SHA1", TARN_E_AUTH_QUERY_ERROR},
        {"X-Amz-Expires", "604800", TARN_E_SIGNATURE_DOES_NOT_MATCH},
        {"X-Amz-Date", "20130523T235859Z", TARN_E_AUTH_QUERY_ERROR},
        {"X-Amz-Date", "20130524T000001Z", TARN_E_SIGNATURE_DOES_NOT_MATCH},
        {"X-Amz-Date", "nonsense", TARN_E_AUTH_QUERY_ERROR},
        {"X-Amz-Signature", "0000000000000000000000000000000000000000000000000000000000000000", TARN_E_SIGNATURE_DOES_NOT_MATCH},
        {"X-Amz-SignedHeaders", "Host", TARN_E_AUTH_QUERY_ERROR},
        {"X-Amz-SignedHeaders", "date", TARN_E_ACCESS_DENIED},
        {"X-Amz-Credential", "AKIANOBODY%2F20130524%2Fus-east-1%2Fs3%2Faws4_request", TARN_E_INVALID_ACCESS_KEY_ID},
        {"X-Amz-Credential", SIGN_ACCESS "%2F20130524%2Fmars-1%2Fs3%2Faws4_request", TARN_E_AUTH_QUERY_ERROR},
        {"X-Amz-Credential", SIGN_ACCESS "%2F20200101%2Fus-east-1%2Fs3%2Faws4_request", TARN_E_AUTH_QUERY_ERROR},
        {"X-Amz-Credential", SIGN_ACCESS "%2F20130524%2Fus-east-1%2Fsts%2Faws4_request", TARN_E_AUTH_QUERY_ERROR},
        {"X-Amz-Credential", SIGN_ACCESS, TARN_E_AUTH_QUERY_ERROR},
    };
    for (size_t i = 0; i < TARN_ARRAY_LEN(cases); i++) {
        presign_fresh("GET", "900");
        R.query = edited(cases[i].name, cases[i].value);
        tarn_err e = verify();
        if (e != cases[i].err) {
            fail_msg("%s=%s: %s", cases[i].name, cases[i].value, tarn_err_get(e)->name);
        }
    }
    presign_fresh("GET", "900");
    R.query = text("%s&acl", R.presigned);
    assert_int_equal(verify(), TARN_E_SIGNATURE_DOES_NOT_MATCH);
    presign_fresh("GET", "900");
    R.query = text("%s&X-Amz-Security-Token=x", R.presigned);
    assert_int_equal(verify(), TARN_E_INVALID_TOKEN);
}

static void test_presigned_headers(void **state)
{
    (void)state;
    static const char *const names[] = {"x-amz-acl", "x-amz-copy-source", "x-amz-tagging"};
    for (size_t i = 0; i < TARN_ARRAY_LEN(names); i++) {
        presign_fresh("PUT", "900");
        sign_header(&R, names[i], "x");
        assert_int_equal(verify(), TARN_E_ACCESS_DENIED);
        assert_field("HeadersNotSigned", names[i]);
    }
    /* In the query it is signed: the header may repeat it, not change it. */
    memset(&R, 0, sizeof R);
    R.method = "PUT";
    R.path = "/bucket/key";
    R.query = "x-amz-acl=private";
    sign_header(&R, "host", "127.0.0.1:9000");
    sign_presign(&R, "900");
    assert_int_equal(verify(), TARN_OK);
    sign_header(&R, "x-amz-acl", "private");
    assert_int_equal(verify(), TARN_OK);
    set_header("x-amz-acl", "public-read");
    assert_int_equal(verify(), TARN_E_ACCESS_DENIED);
}

static void test_presigned_payload(void **state)
{
    (void)state;
    /* A hash that is not signed may only make it stricter. */
    presign_fresh("PUT", "900");
    sign_header(&R, "x-amz-content-sha256", HASH_HELLO);
    assert_int_equal(verify(), TARN_OK);
    assert_int_equal(RESULT.payload, TARN_PAYLOAD_SHA256);
    set_header("x-amz-content-sha256", "STREAMING-UNSIGNED-PAYLOAD-TRAILER");
    sign_header(&R, "x-amz-decoded-content-length", "1");
    assert_int_equal(verify(), TARN_E_ACCESS_DENIED);
    /* Signed as a header: it stands in the last line. */
    memset(&R, 0, sizeof R);
    R.method = "PUT";
    R.path = "/bucket/key";
    R.payload_line = HASH_HELLO;
    sign_header(&R, "host", "127.0.0.1:9000");
    sign_header(&R, "x-amz-content-sha256", HASH_HELLO);
    sign_presign(&R, "900");
    assert_int_equal(verify(), TARN_OK);
    assert_int_equal(RESULT.payload, TARN_PAYLOAD_SHA256);
    /* In the query: the same, and a header that differs is refused. */
    memset(&R, 0, sizeof R);
    R.method = "PUT";
    R.path = "/bucket/key";
    R.payload_line = HASH_HELLO;
    sign_header(&R, "host", "127.0.0.1:9000");
    sign_presign(&R, "900");
    R.canonical_query = NULL;
    const char *q = text("X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Content-Sha256=" HASH_HELLO
                         "&X-Amz-Credential=%s%%2F20130524%%2Fus-east-1%%2Fs3%%2Faws4_request"
                         "&X-Amz-Date=20130524T000000Z&X-Amz-Expires=900&X-Amz-SignedHeaders=host",
                         SIGN_ACCESS);
    R.canonical_query = q;
    sign_compute(&R, HASH_HELLO);
    R.query = text("%s&X-Amz-Signature=%s", q, R.signature);
    assert_int_equal(verify(), TARN_OK);
    assert_int_equal(RESULT.payload, TARN_PAYLOAD_SHA256);
    sign_header(&R, "x-amz-content-sha256", "UNSIGNED-PAYLOAD");
    assert_int_equal(verify(), TARN_E_INVALID_ARGUMENT);
}

/* ------------------------------------------------------------------ catalog */
static void catalog(const char *method, const char *wire_path, const char *signed_path, const char *service)
{
    memset(&R, 0, sizeof R);
    R.method = method;
    R.path = wire_path;
    R.canonical_path = signed_path;
    R.service = service;
    R.region = "anywhere";
    sign_header(&R, "host", "127.0.0.1:9000");
}

static void test_catalog_paths(void **state)
{
    (void)state;
    static const char *const good[][3] = {
        {"/_iceberg/v1/w/namespaces/a%1Fb", "/_iceberg/v1/w/namespaces/a%251Fb", "s3tables"},
        {"/_iceberg/v1/w/namespaces/a%1Fb", "/_iceberg/v1/w/namespaces/a%1Fb", "s3tables"},
        {"/_iceberg/v1/w%2Fx/n%1F", "/_iceberg/v1/w%252Fx/n%1F", "execute-api"},
        {"/_iceberg/v1//w/./n/../n", "/_iceberg/v1/w/n", "glue"},
        {"/_iceberg/v1/a%1Fb", "/_iceberg/v1/a%1Fb", "s3"},
        {"/_iceberg/v1/a%1fb", "/_iceberg/v1/a%1Fb", "s3"},
        {"/_iceberg/v1/a%1Fb", "/_iceberg/v1/a%251Fb", "s3"},
        {"/_iceberg/v1/a/b/..", "/_iceberg/v1/a", "s3tables"},
        {"/..", "/", "s3tables"},
    };
    for (size_t i = 0; i < TARN_ARRAY_LEN(good); i++) {
        catalog("GET", good[i][0], good[i][1], good[i][2]);
        sign_request(&R, SIGN_EMPTY);
        if (verify_at(A, TARN_API_CATALOG, SIGN_NOW_MS) != TARN_OK) {
            fail_msg("%s signed as %s for %s", good[i][0], good[i][1], good[i][2]);
        }
        assert_true(RESULT.identity.root);
        R.path = "/_iceberg/v1/other";
        assert_int_equal(verify_at(A, TARN_API_CATALOG, SIGN_NOW_MS), TARN_E_SIGNATURE_DOES_NOT_MATCH);
    }
}

static void test_catalog_queries(void **state)
{
    (void)state;
    static const char *const good[][2] = {
        {"b=2&a=1", "a=1&b=2"},
        {"b=2&a=1", "b=2&a=1"},
        {"parent=&pageToken=&a=1", "a=1"},
        {"parent=&a=1", "a=1&parent="},
        {"a=1&a=2", "a=2"},
        {"parent=a+b&x=", "parent=a%20b"},
        {"warehouse=s3://w", "warehouse=s3%3A%2F%2Fw"},
    };
    for (size_t i = 0; i < TARN_ARRAY_LEN(good); i++) {
        catalog("GET", "/_iceberg/v1/config", NULL, "s3tables");
        R.query = good[i][0];
        R.canonical_query = good[i][1];
        sign_request(&R, NULL);
        if (verify_at(A, TARN_API_CATALOG, SIGN_NOW_MS) != TARN_OK) {
            fail_msg("%s signed as %s", good[i][0], good[i][1]);
        }
    }
    R.query = "a=1&b=3";
    assert_int_equal(verify_at(A, TARN_API_CATALOG, SIGN_NOW_MS), TARN_E_SIGNATURE_DOES_NOT_MATCH);
}

static void test_catalog_payload(void **state)
{
    (void)state;
    uint8_t hash[32];
    tarn_sha256("hello", 5, hash);
    /* Base64 in the header, hex in the line. */
    catalog("POST", "/_iceberg/v1/w/namespaces", NULL, "s3tables");
    R.payload_line = HASH_HELLO;
    sign_header(&R, "Content-Length", "5");
    sign_request(&R, "LPJNul+wow4m6DsqxbninhsWHlwfp0JecwQzYpOLmCQ=");
    assert_int_equal(verify_at(A, TARN_API_CATALOG, SIGN_NOW_MS), TARN_OK);
    assert_int_equal(RESULT.payload, TARN_PAYLOAD_SHA256);
    assert_memory_equal(RESULT.expect_sha256, hash, 32);
    /* None: the identity is held back until the body is known. */
    catalog("POST", "/_iceberg/v1/w/namespaces", NULL, "execute-api");
    R.payload_line = HASH_HELLO;
    sign_header(&R, "Content-Length", "5");
    sign_request(&R, NULL);
    assert_int_equal(verify_at(A, TARN_API_CATALOG, SIGN_NOW_MS), TARN_OK);
    assert_int_equal(RESULT.payload, TARN_PAYLOAD_NONE_GIVEN);
    assert_true(RESULT.identity.anonymous);
    assert_int_equal(tarn_auth_finish_body(A, &RESULT, hash, ARENA, &DETAIL), TARN_OK);
    assert_true(RESULT.identity.root);
    assert_false(RESULT.identity.anonymous);
    /* Another body. */
    assert_int_equal(verify_at(A, TARN_API_CATALOG, SIGN_NOW_MS), TARN_OK);
    hash[0] ^= 1;
    assert_int_equal(tarn_auth_finish_body(A, &RESULT, hash, ARENA, &DETAIL), TARN_E_SIGNATURE_DOES_NOT_MATCH);
    assert_true(RESULT.identity.anonymous);
    /* Only once. */
    assert_int_equal(tarn_auth_finish_body(A, &RESULT, hash, ARENA, &DETAIL), TARN_E_INTERNAL);
    catalog("POST", "/_iceberg/v1/w/namespaces", NULL, "s3tables");
    sign_request(&R, "UNSIGNED-PAYLOAD");
    assert_int_equal(verify_at(A, TARN_API_CATALOG, SIGN_NOW_MS), TARN_E_INVALID_REQUEST);
    catalog("POST", "/_iceberg/v1/w/namespaces", NULL, "s3");
    sign_request(&R, "UNSIGNED-PAYLOAD");
    assert_int_equal(verify_at(A, TARN_API_CATALOG, SIGN_NOW_MS), TARN_OK);
    catalog("PUT", "/_iceberg/v1/w/namespaces", NULL, "s3");
    sign_header(&R, "x-amz-decoded-content-length", "5");
    sign_request(&R, "STREAMING-AWS4-HMAC-SHA256-PAYLOAD");
    assert_int_equal(verify_at(A, TARN_API_CATALOG, SIGN_NOW_MS), TARN_E_INVALID_REQUEST);
}

static void test_catalog_bearer(void **state)
{
    (void)state;
    tarn_str token;
    assert_int_equal(tarn_token_issue(A, TARN_STR(SIGN_ACCESS), TARN_STR(SIGN_SECRET), SIGN_NOW_MS, 60, ARENA, &token), TARN_OK);
    catalog("GET", "/_iceberg/v1/config", NULL, "s3tables");
    sign_header(&R, "Authorization", text("Bearer %.*s", TARN_STR_ARG(token)));
    assert_int_equal(verify_at(A, TARN_API_CATALOG, SIGN_NOW_MS), TARN_OK);
    assert_int_equal(RESULT.mode, TARN_AUTH_BEARER);
    assert_true(RESULT.identity.root);
    assert_int_equal(verify_at(A, TARN_API_CATALOG, SIGN_NOW_MS + 60000), TARN_E_ICE_NOT_AUTHORIZED);
    assert_int_equal(verify_at(A, TARN_API_S3, SIGN_NOW_MS), TARN_E_ACCESS_DENIED); /* no date: no SigV4 */
    static const char *const bad[] = {"Bearer ", "Bearer x", "Bearer eyJhbGciOiJub25lIn0.eyJzdWIiOiJyb290In0.", "Bearer a.b.c",
                                      "bearer tarn1.."};
    for (size_t i = 0; i < TARN_ARRAY_LEN(bad); i++) {
        set_header("authorization", bad[i]);
        assert_int_equal(verify_at(A, TARN_API_CATALOG, SIGN_NOW_MS), TARN_E_ICE_NOT_AUTHORIZED);
    }
    /* A delegate's token is nobody's credential. */
    R.headers_n = 1;
    sign_header(&R, "Original-Authorization", "Bearer nonsense");
    sign_request(&R, SIGN_EMPTY);
    assert_int_equal(verify_at(A, TARN_API_CATALOG, SIGN_NOW_MS), TARN_OK);
}

static void test_catalog_presigned(void **state)
{
    (void)state;
    presign_fresh("POST", "900");
    assert_int_equal(verify_at(A, TARN_API_CATALOG, SIGN_NOW_MS), TARN_E_INVALID_REQUEST);
    presign_fresh("GET", "900");
    assert_int_equal(verify_at(A, TARN_API_CATALOG, SIGN_NOW_MS), TARN_OK);
}

/* ------------------------------------------------------------------ memory */
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
    tarn_auth_options opt = {
        .root_access_key = TARN_STR(SIGN_ACCESS), .root_secret_key = TARN_STR(SIGN_SECRET), .users = USERS, .users_n = 1};
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

/* ------------------------------------------------------------------ version 2 */
static void v2_sign(const char *string_to_sign, char out[64])
{
    uint8_t mac[20];
    unsigned n = 0;
    tarn_sb b;
    char enc[64];
    assert_non_null(
        HMAC(EVP_sha1(), SIGN_SECRET, (int)strlen(SIGN_SECRET), (const unsigned char *)string_to_sign, strlen(string_to_sign), mac, &n));
    EVP_EncodeBlock((unsigned char *)enc, mac, 20);
    tarn_sb_init_fixed(&b, out, 64);
    tarn_sb_urlencode(&b, tarn_str_of(enc), false);
}

static const char *v2_query(const char *string_to_sign, const char *more)
{
    char sig[64];
    v2_sign(string_to_sign, sig);
    return text("%sAWSAccessKeyId=%s&Expires=1369354000&Signature=%s", more, SIGN_ACCESS, sig);
}

static void test_v2_published(void **state)
{
    (void)state;
    /* The published example of a version 2 query string. */
    R.method = "GET";
    R.path = "/awsexamplebucket1/photos/puppy.jpg";
    const char *q = v2_query("GET\n\n\n1369354000\n/awsexamplebucket1/photos/puppy.jpg", "");
    R.query = q;
    assert_int_equal(verify(), TARN_OK);
    assert_int_equal(RESULT.mode, TARN_AUTH_V2_QUERY);
    assert_true(RESULT.identity.root);
    assert_int_equal(RESULT.payload, TARN_PAYLOAD_UNSIGNED);
    assert_int_equal(verify_at(A, TARN_API_S3, INT64_C(1369354000000)), TARN_OK);
    assert_int_equal(verify_at(A, TARN_API_S3, INT64_C(1369354000001)), TARN_E_ACCESS_DENIED);
    assert_int_equal(verify_at(A_ANY, TARN_API_S3, SIGN_NOW_MS), TARN_E_INVALID_REQUEST); /* switched off */
    R.method = "PUT";
    assert_int_equal(verify(), TARN_E_SIGNATURE_DOES_NOT_MATCH);
    R.method = "GET";
    R.path = "/awsexamplebucket1/photos/puppy2.jpg";
    assert_int_equal(verify(), TARN_E_SIGNATURE_DOES_NOT_MATCH);
    R.path = "/awsexamplebucket1/photos/puppy.jpg";
    R.query = text("%s&acl", q);
    assert_int_equal(verify(), TARN_E_SIGNATURE_DOES_NOT_MATCH);
    R.query = text("%s&retention", q);
    assert_int_equal(verify(), TARN_E_SIGNATURE_DOES_NOT_MATCH);
    R.query = text("%s&unheard-of", q);
    assert_int_equal(verify(), TARN_E_ACCESS_DENIED);
    R.query = text("%s&prefix=x", q);
    assert_int_equal(verify(), TARN_OK);
    R.query = q;
    sign_header(&R, "x-amz-acl", "public-read");
    assert_int_equal(verify(), TARN_E_SIGNATURE_DOES_NOT_MATCH);
}

static void test_v2_parts(void **state)
{
    (void)state;
    sign_header(&R, "Content-Type", "text/plain");
    sign_header(&R, "X-Amz-Meta-B", "2");
    sign_header(&R, "x-amz-meta-a", "1");
    sign_header(&R, "x-amz-meta-b", "3");
    R.query = v2_query("PUT\n\ntext/plain\n1369354000\nx-amz-meta-a:1\nx-amz-meta-b:2,3\n"
                       "/bucket/key?partNumber=1&response-content-type=a/b&uploadId=x=y",
                       "uploadId=x%3Dy&partNumber=1&response-content-type=a%2Fb&");
    assert_int_equal(verify(), TARN_OK);
    set_header("content-type", "text/html");
    assert_int_equal(verify(), TARN_E_SIGNATURE_DOES_NOT_MATCH);
    /* Headers carried in the query. */
    R.headers_n = 1;
    R.query = v2_query("PUT\n\ntext/plain\n1369354000\nx-amz-acl:private\n/bucket/key", "content-type=text%2Fplain&x-amz-acl=private&");
    assert_int_equal(verify(), TARN_OK);
    static const char *const bad[] = {"AWSAccessKeyId=x&Expires=1",
                                      "AWSAccessKeyId=x&Signature=y",
                                      "Expires=1&Signature=y",
                                      "AWSAccessKeyId=x&Expires=1&Signature=y&Signature=z",
                                      "AWSAccessKeyId=x&Expires=abc&Signature=y",
                                      "AWSAccessKeyId=x&Expires=99999999999999999999&Signature=y",
                                      "AWSAccessKeyId=x&Expires=-1&Signature=y"};
    for (size_t i = 0; i < TARN_ARRAY_LEN(bad); i++) {
        R.query = bad[i];
        assert_int_equal(verify(), TARN_E_ACCESS_DENIED);
    }
    R.query = "AWSAccessKeyId=AKIANOBODY&Expires=1369354000&Signature=y";
    assert_int_equal(verify(), TARN_E_INVALID_ACCESS_KEY_ID);
    /* A streaming body has no place here. */
    R.headers_n = 1;
    sign_header(&R, "x-amz-content-sha256", "STREAMING-UNSIGNED-PAYLOAD-TRAILER");
    R.query = v2_query("PUT\n\n\n1369354000\nx-amz-content-sha256:STREAMING-UNSIGNED-PAYLOAD-TRAILER\n/bucket/key", "");
    assert_int_equal(verify(), TARN_E_INVALID_REQUEST);
    set_header("x-amz-content-sha256", HASH_HELLO);
    R.query = v2_query("PUT\n\n\n1369354000\nx-amz-content-sha256:" HASH_HELLO "\n/bucket/key", "");
    assert_int_equal(verify(), TARN_OK);
    assert_int_equal(RESULT.payload, TARN_PAYLOAD_SHA256);
}

#define T(f) cmocka_unit_test_setup_teardown(f, before, after)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(test_good),
        T(test_good_payload_modes),
        T(test_good_spaces_in_values),
        T(test_good_repeated_header),
        T(test_good_date_header),
        T(test_good_unsigned_ordinary_header),
        T(test_good_second_user),
        T(test_paths),
        T(test_queries),
        T(test_query_params_limit),
        T(test_tampering),
        T(test_other_secret),
        T(test_mismatch_fields),
        T(test_no_date),
        T(test_bad_dates),
        T(test_skew),
        T(test_authorization_forms),
        T(test_parts),
        T(test_signed_headers_limit),
        T(test_scope),
        T(test_unknown_keys),
        T(test_payload_header),
        T(test_payload_twice),
        T(test_streaming_headers),
        T(test_unsigned_headers),
        T(test_session_token),
        T(test_ways),
        T(test_anonymous),
        T(test_presigned),
        T(test_presigned_expires),
        T(test_presigned_parameters),
        T(test_presigned_headers),
        T(test_presigned_payload),
        T(test_catalog_paths),
        T(test_catalog_queries),
        T(test_catalog_payload),
        T(test_catalog_bearer),
        T(test_catalog_presigned),
        T(test_arena_too_small),
        T(test_allocation_failures),
        T(test_new_allocation_failures),
        T(test_options_limits),
        T(test_lookup),
        T(test_cache_overflow),
        T(test_v2_published),
        T(test_v2_parts),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
