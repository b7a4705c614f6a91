/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests to the catalog: the paths, queries and payload hashes that its clients sign, and bearer tokens.
 */
#include "auth_fixture.h"

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
    catalog("POST", "/_iceberg/v1/w/namespaces", NULL, "s3");
    sign_header(&R, "x-amz-content-sha256", "UNSIGNED-PAYLOAD"); /* not signed at all: the route answers 401 */
    assert_int_equal(verify_at(A, TARN_API_CATALOG, SIGN_NOW_MS), TARN_OK);
    assert_true(RESULT.identity.anonymous && RESULT.deferred == NULL);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(test_catalog_paths), T(test_catalog_queries), T(test_catalog_payload), T(test_catalog_bearer), T(test_catalog_presigned),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
