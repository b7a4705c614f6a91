/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ways of authentication that exclude each other, anonymous requests, presigned URLs of version 4 and 2.
 */
#include "auth_fixture.h"

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

/* The host isn't signed, so the bucket in it has to be: a URL of one bucket must open no other one. */
static void test_v2_bucket_of_the_host(void **state)
{
    (void)state;
    const char *q = v2_query("GET\n\n\n1369354000\n/photos/a/b", "");
    static const struct {
        const char *host, *path;
        tarn_err err;
    } cases[] = {
        {"127.0.0.1:9000", "/photos/a/b", TARN_OK},
        {"s3.test", "/photos/a/b", TARN_OK},
        {"photos.s3.test", "/a/b", TARN_OK},
        {"photos.S3.Test:9000", "/a/b", TARN_OK},
        {"other.s3.test", "/photos/a/b", TARN_E_SIGNATURE_DOES_NOT_MATCH},
        {"photos.s3.test", "/photos/a/b", TARN_E_SIGNATURE_DOES_NOT_MATCH},
        {"photos.nots3.test", "/a/b", TARN_E_SIGNATURE_DOES_NOT_MATCH},
        {"127.0.0.1:9000", "/a/b", TARN_E_SIGNATURE_DOES_NOT_MATCH},
    };
    R.method = "GET";
    R.query = q;
    for (size_t i = 0; i < TARN_ARRAY_LEN(cases); i++) {
        set_header("host", cases[i].host);
        R.path = cases[i].path;
        assert_int_equal(verify(), cases[i].err);
    }
}

static void test_host_bucket(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"b.s3.test", "b"}, {"b.c.s3.test:80", "b.c"}, {"B.S3.TEST", "B"}, {"b.other.test", "b"}, {"s3.test", ""},
        {".s3.test", ""},   {"xs3.test", ""},          {"[::1]:9000", ""}, {"[::1]", ""},         {"", ""},
        {":", ""},          {"b.s3.test.", ""},
    };
    for (size_t i = 0; i < TARN_ARRAY_LEN(cases); i++) {
        assert_true(tarn_str_eqc(tarn_auth_host_bucket(A, tarn_str_of(cases[i][0])), cases[i][1]));
    }
    assert_int_equal(tarn_auth_host_bucket(A_ANY, TARN_STR("b.s3.test")).n, 0); /* no domains */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(test_ways),
        T(test_anonymous),
        T(test_presigned),
        T(test_presigned_expires),
        T(test_presigned_parameters),
        T(test_presigned_headers),
        T(test_presigned_payload),
        T(test_v2_published),
        T(test_v2_parts),
        T(test_v2_bucket_of_the_host),
        T(test_host_bucket),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
