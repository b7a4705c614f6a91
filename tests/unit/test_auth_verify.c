/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tarn_auth_verify over requests signed in their header by a client of its own (auth_sign.h): each part altered after
 * signing, each limit and one past it, the error's code and its extra fields.
 */
#include "auth_fixture.h"

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

static bool list_valid(tarn_str list)
{
    auth_names names;
    return auth_names_parse(ARENA, list, &names) && names.v;
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
        assert_true(list_valid(tarn_sb_view(&b)) == (extra == 0));
        tarn_sb_free(&b);
    }
    /* Out of order is taken as it is, twice is not. */
    assert_true(list_valid(TARN_STR("b;a;c")));
    assert_false(list_valid(TARN_STR("b;a;b")));
    assert_false(list_valid(TARN_STR("")));
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
    static const char *const lower[] = {"x-amz-meta-evil",      "x-amz-copy-source", "x-amz-acl", "x-amz-bypass-governance-retention",
                                        "x-amz-security-token", "x-amz-tagging"};
    for (size_t i = 0; i < TARN_ARRAY_LEN(names); i++) {
        R.headers_n = 1;
        sign_request(&R, HASH_HELLO);
        sign_header(&R, names[i], "1");
        assert_int_equal(verify(), TARN_E_ACCESS_DENIED);
        assert_field("HeadersNotSigned", lower[i]);
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
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
