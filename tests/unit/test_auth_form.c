/* SPDX-License-Identifier: Apache-2.0 */
/*
 * POST forms: the published example, each field missing or altered, the older signature, and what a POST policy demands.
 */
#include "auth_private.h"
#include "auth_sign.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

#define NOW_MS INT64_C(1451347200000) /* 2015-12-29T00:00:00Z */
#define CREDENTIAL SIGN_ACCESS "/20151229/us-east-1/s3/aws4_request"
/* The published example of a browser upload. */
#define POLICY                                                                                                                             \
    "eyAiZXhwaXJhdGlvbiI6ICIyMDE1LTEyLTMwVDEyOjAwOjAwLjAwMFoiLA0KICAiY29uZGl0aW9ucyI6IFsNCiAgICB7ImJ1Y2tldCI6ICJzaWd2NGV4YW1wbGVidWNrZXQi" \
    "fSwNCiAgICBbInN0YXJ0cy13aXRoIiwgIiRrZXkiLCAidXNlci91c2VyMS8iXSwNCiAgICB7ImFjbCI6ICJwdWJsaWMtcmVhZCJ9LA0KICAgIHsic3VjY2Vzc19hY3Rpb25f" \
    "cmVkaXJlY3QiOiAiaHR0cDovL3NpZ3Y0ZXhhbXBsZWJ1Y2tldC5zMy5hbWF6b25hd3MuY29tL3N1Y2Nlc3NmdWxfdXBsb2FkLmh0bWwifSwNCiAgICBbInN0YXJ0cy13aXRo" \
    "IiwgIiRDb250ZW50LVR5cGUiLCAiaW1hZ2UvIl0sDQogICAgeyJ4LWFtei1tZXRhLXV1aWQiOiAiMTQzNjUxMjM2NTEyNzQifSwNCiAgICB7IngtYW16LXNlcnZlci1zaWRl" \
    "LWVuY3J5cHRpb24iOiAiQUVTMjU2In0sDQogICAgWyJzdGFydHMtd2l0aCIsICIkeC1hbXotbWV0YS10YWciLCAiIl0sDQoNCiAgICB7IngtYW16LWNyZWRlbnRpYWwiOiAi" \
    "QUtJQUlPU0ZPRE5ON0VYQU1QTEUvMjAxNTEyMjkvdXMtZWFzdC0xL3MzL2F3czRfcmVxdWVzdCJ9LA0KICAgIHsieC1hbXotYWxnb3JpdGhtIjogIkFXUzQtSE1BQy1TSEEy" \
    "NTYifSwNCiAgICB7IngtYW16LWRhdGUiOiAiMjAxNTEyMjlUMDAwMDAwWiIgfQ0KICBdDQp9"
#define SIGNATURE "8afdbf4008c03f22c2cd3cdb72e4afbb1f6a588f3255ac628749a66d7f09699e"

static tarn_auth *A;
static tarn_auth *A_NO_V2;
static tarn_arena *ARENA;
static tarn_auth_result RESULT;
static tarn_err_detail DETAIL;

static int set_up(void **state)
{
    (void)state;
    tarn_auth_options opt = {.root_access_key = TARN_STR(SIGN_ACCESS),
                             .root_secret_key = TARN_STR(SIGN_SECRET),
                             .region = TARN_STR("us-east-1"),
                             .sigv2_query = true};
    ARENA = tarn_arena_new(4 << 20);
    if (tarn_auth_new(&opt, &A) != TARN_OK) {
        return -1;
    }
    opt.sigv2_query = false;
    return tarn_auth_new(&opt, &A_NO_V2) == TARN_OK ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    tarn_auth_free(A);
    tarn_auth_free(A_NO_V2);
    tarn_arena_free(ARENA);
    return 0;
}

static tarn_form_auth good(void)
{
    return (tarn_form_auth){.policy_base64 = TARN_STR(POLICY),
                            .algorithm = TARN_STR("AWS4-HMAC-SHA256"),
                            .credential = TARN_STR(CREDENTIAL),
                            .amz_date = TARN_STR("20151229T000000Z"),
                            .signature = TARN_STR(SIGNATURE)};
}

static tarn_err verify(const tarn_form_auth *f, int64_t now_ms)
{
    return tarn_auth_verify_form(A, f, now_ms, ARENA, &RESULT, &DETAIL);
}

static void test_published(void **state)
{
    (void)state;
    tarn_form_auth f = good();
    assert_int_equal(verify(&f, NOW_MS), TARN_OK);
    assert_int_equal(RESULT.mode, TARN_AUTH_POST_FORM);
    assert_true(RESULT.identity.root);
    assert_int_equal(verify(&f, NOW_MS), TARN_OK); /* key from the cache */
    assert_int_equal(verify(&f, NOW_MS - TARN_CLOCK_SKEW_MS_MAX), TARN_OK);
    assert_int_equal(verify(&f, NOW_MS - TARN_CLOCK_SKEW_MS_MAX - 1), TARN_E_ACCESS_DENIED);
    assert_int_equal(verify(&f, NOW_MS + INT64_C(604800000)), TARN_OK);
    assert_int_equal(verify(&f, NOW_MS + INT64_C(604800001)), TARN_E_ACCESS_DENIED);
}

static void test_fields(void **state)
{
    (void)state;
    for (size_t i = 0; i < 5; i++) {
        tarn_form_auth f = good();
        tarn_str *const fields[] = {&f.policy_base64, &f.algorithm, &f.credential, &f.amz_date, &f.signature};
        static const char *const names[] = {"policy", "x-amz-algorithm", "x-amz-credential", "x-amz-date", "x-amz-signature"};
        *fields[i] = TARN_STR_NULL;
        assert_int_equal(verify(&f, NOW_MS), TARN_E_INVALID_ARGUMENT);
        assert_true(tarn_str_eqc(sign_detail(&DETAIL, "ArgumentName"), names[i]));
        *fields[i] = TARN_STR("x");
        tarn_err e = verify(&f, NOW_MS);
        assert_true(e == TARN_E_INVALID_ARGUMENT || e == TARN_E_SIGNATURE_DOES_NOT_MATCH);
    }
    tarn_form_auth f = {.policy_base64 = TARN_STR(POLICY)};
    assert_int_equal(verify(&f, NOW_MS), TARN_E_INVALID_ARGUMENT); /* a policy nobody signed */
    f = (tarn_form_auth){.policy_base64 = TARN_STR_NULL};
    assert_int_equal(verify(&f, NOW_MS), TARN_OK);
    assert_int_equal(RESULT.mode, TARN_AUTH_ANONYMOUS);
    assert_true(RESULT.identity.anonymous);
}

static void test_altered(void **state)
{
    (void)state;
    tarn_form_auth f = good();
    f.signature = TARN_STR("8afdbf4008c03f22c2cd3cdb72e4afbb1f6a588f3255ac628749a66d7f09699f");
    assert_int_equal(verify(&f, NOW_MS), TARN_E_SIGNATURE_DOES_NOT_MATCH);
    assert_true(tarn_str_eqc(sign_detail(&DETAIL, "AWSAccessKeyId"), SIGN_ACCESS));
    f = good();
    f.policy_base64 = TARN_STR("e30=");
    assert_int_equal(verify(&f, NOW_MS), TARN_E_SIGNATURE_DOES_NOT_MATCH);
    f = good();
    f.credential = TARN_STR("AKIANOBODY/20151229/us-east-1/s3/aws4_request");
    assert_int_equal(verify(&f, NOW_MS), TARN_E_INVALID_ACCESS_KEY_ID);
    f = good();
    f.credential = TARN_STR(SIGN_ACCESS "/20151229/mars-1/s3/aws4_request");
    assert_int_equal(verify(&f, NOW_MS), TARN_E_INVALID_ARGUMENT);
    assert_true(tarn_str_eqc(sign_detail(&DETAIL, "Region"), "us-east-1"));
    f = good();
    f.credential = TARN_STR(SIGN_ACCESS "/20151228/us-east-1/s3/aws4_request");
    assert_int_equal(verify(&f, NOW_MS), TARN_E_INVALID_ARGUMENT);
    f = good();
    f.algorithm = TARN_STR("AWS4-HMAC-SHA1");
    assert_int_equal(verify(&f, NOW_MS), TARN_E_INVALID_ARGUMENT);
    f = good();
    f.security_token = TARN_STR("x");
    assert_int_equal(verify(&f, NOW_MS), TARN_E_INVALID_TOKEN);
    f = good();
    f.v2_signature = TARN_STR("x");
    assert_int_equal(verify(&f, NOW_MS), TARN_E_INVALID_ARGUMENT);
}

static void test_version_2(void **state)
{
    (void)state;
    uint8_t mac[20];
    unsigned n = 0;
    char sig[64];
    HMAC(EVP_sha1(), SIGN_SECRET, (int)strlen(SIGN_SECRET), (const unsigned char *)POLICY, strlen(POLICY), mac, &n);
    EVP_EncodeBlock((unsigned char *)sig, mac, 20);
    tarn_form_auth f = {.policy_base64 = TARN_STR(POLICY), .v2_access_key = TARN_STR(SIGN_ACCESS), .v2_signature = tarn_str_of(sig)};
    assert_int_equal(verify(&f, NOW_MS), TARN_OK);
    assert_true(RESULT.identity.root);
    assert_int_equal(RESULT.mode, TARN_AUTH_POST_FORM);
    assert_int_equal(tarn_auth_verify_form(A_NO_V2, &f, NOW_MS, ARENA, &RESULT, &DETAIL), TARN_E_INVALID_REQUEST);
    f.v2_access_key = TARN_STR("nobody");
    assert_int_equal(verify(&f, NOW_MS), TARN_E_INVALID_ACCESS_KEY_ID);
    f.v2_access_key = TARN_STR_NULL;
    assert_int_equal(verify(&f, NOW_MS), TARN_E_INVALID_ARGUMENT);
    f.v2_access_key = TARN_STR(SIGN_ACCESS);
    sig[3] = sig[3] == 'A' ? 'B' : 'A';
    assert_int_equal(verify(&f, NOW_MS), TARN_E_SIGNATURE_DOES_NOT_MATCH);
    f.v2_signature = TARN_STR_NULL;
    assert_int_equal(verify(&f, NOW_MS), TARN_E_INVALID_ARGUMENT);
}

/* ------------------------------------------------------------------ the policy */
static const tarn_pair FIELDS[] = {
    {{"key", 3}, {"user/x.png", 10}}, {{"acl", 3}, {"private", 7}}, {{"content-type", 12}, {"image/png", 9}},
    {{"x-ignore-me", 11}, {"1", 1}},  {{"policy", 6}, {"abc", 3}},  {{"x-amz-signature", 15}, {"abc", 3}},
};

static tarn_err check_with(const char *conditions, const tarn_pair *fields, size_t n, uint64_t bytes)
{
    char json[8192];
    tarn_sb b;
    tarn_sb_init_fixed(&b, json, sizeof json);
    tarn_sb_fmt(&b, "{\"expiration\":\"2016-01-01T00:00:00Z\",\"conditions\":[{\"bucket\":\"bkt\"}%s%s]}", conditions[0] ? "," : "",
                conditions);
    assert_false(b.failed);
    DETAIL.fields_n = 0;
    return tarn_post_policy_check(tarn_sb_view(&b), fields, n, TARN_STR("bkt"), bytes, NOW_MS, ARENA, &DETAIL);
}

static void test_conditions(void **state)
{
    (void)state;
#define ALL "{\"acl\":\"private\"},[\"starts-with\",\"$Content-Type\",\"image/\"]"
    static const struct {
        const char *conditions;
        tarn_err err;
    } cases[] = {
        {"[\"eq\",\"$key\",\"user/x.png\"]," ALL, TARN_OK},
        {"[\"starts-with\",\"$key\",\"user/\"]," ALL, TARN_OK},
        {"[\"StArTs-WiTh\",\"$KeY\",\"user/\"]," ALL, TARN_OK},
        {"[\"starts-with\",\"$key\",\"\"]," ALL, TARN_OK},
        {"{\"key\":\"user/x.png\"}," ALL, TARN_OK},
        {"{\"bucket\":\"bkt\"},{\"key\":\"user/x.png\"}," ALL, TARN_OK},
        {"{\"bUcKeT\":\"bkt\",\"key\":\"user/x.png\"}," ALL, TARN_OK},
        {"{\"bucket\":\"other\"},{\"key\":\"user/x.png\"}," ALL, TARN_E_ACCESS_DENIED},
        {"[\"starts-with\",\"$key\",\"allowed/\"]," ALL, TARN_E_ACCESS_DENIED},
        {"[\"eq\",\"$key\",\"user/\"]," ALL, TARN_E_ACCESS_DENIED},
        {"[\"eq\",\"$key\",\"user/x.png\"],{\"acl\":\"private\"}", TARN_E_ACCESS_DENIED}, /* content-type is not covered */
        {ALL, TARN_E_ACCESS_DENIED},
        {"", TARN_E_ACCESS_DENIED},
        {"[\"starts-with\",\"$key\",\"\"],[\"eq\",\"$x-amz-meta-a\",\"1\"]," ALL, TARN_E_ACCESS_DENIED},
        {"[\"starts-with\",\"$key\",\"\"],[\"starts-with\",\"$x-amz-meta-a\",\"\"]," ALL, TARN_E_ACCESS_DENIED},
        {"[\"starts-with\",\"$key\",\"\"],[\"content-length-range\",10,10]," ALL, TARN_OK},
        {"[\"starts-with\",\"$key\",\"\"],[\"Content-Length-Range\",\"0\",\"10\"]," ALL, TARN_OK},
        {"[\"starts-with\",\"$key\",\"\"],[\"content-length-range\",0,9]," ALL, TARN_E_ENTITY_TOO_LARGE},
        {"[\"starts-with\",\"$key\",\"\"],[\"content-length-range\",11,20]," ALL, TARN_E_ENTITY_TOO_SMALL},
        {"[\"starts-with\",\"$key\",\"\"],[\"content-length-range\",0]," ALL, TARN_E_INVALID_POLICY_DOCUMENT},
        {"[\"starts-with\",\"$key\",\"\"],[\"content-length-range\",-1,0]," ALL, TARN_E_INVALID_POLICY_DOCUMENT},
        {"[\"starts-with\",\"$key\",\"\"],[\"content-length-range\",9,1]," ALL, TARN_E_INVALID_POLICY_DOCUMENT},
        {"[\"starts-with\",\"$key\",\"\"],[\"content-length-range\",0,1.5]," ALL, TARN_E_INVALID_POLICY_DOCUMENT},
        {"{}", TARN_E_INVALID_POLICY_DOCUMENT},
        {"5", TARN_E_INVALID_POLICY_DOCUMENT},
        {"{\"key\":5}", TARN_E_INVALID_POLICY_DOCUMENT},
        {"[\"ends-with\",\"$key\",\"x\"]", TARN_E_INVALID_POLICY_DOCUMENT},
        {"[\"eq\",\"key\",\"x\"]", TARN_E_INVALID_POLICY_DOCUMENT},
        {"[\"eq\",\"$key\"]", TARN_E_INVALID_POLICY_DOCUMENT},
        {"[\"eq\",\"$key\",5]", TARN_E_INVALID_POLICY_DOCUMENT},
        {"[]", TARN_E_INVALID_POLICY_DOCUMENT},
    };
    for (size_t i = 0; i < TARN_ARRAY_LEN(cases); i++) {
        tarn_err e = check_with(cases[i].conditions, FIELDS, TARN_ARRAY_LEN(FIELDS), 10);
        if (e != cases[i].err) {
            fail_msg("%s: %s (%.*s)", cases[i].conditions, tarn_err_get(e)->name, TARN_STR_ARG(DETAIL.message));
        }
    }
}

static void test_repeated_field(void **state)
{
    (void)state;
    static const tarn_pair twice[] = {{{"key", 3}, {"a", 1}}, {{"key", 3}, {"a", 1}}};
    static const tarn_pair ignored[] = {{{"key", 3}, {"a", 1}}, {{"x-ignore-a", 10}, {"a", 1}}, {{"x-ignore-a", 10}, {"b", 1}}};
    assert_int_equal(check_with("{\"key\":\"a\"}", twice, 2, 10), TARN_E_ACCESS_DENIED);
    assert_int_equal(check_with("{\"key\":\"a\"}", ignored, 3, 10), TARN_OK);
    /* A field "bucket" does not stand for the bucket that the form was sent to. */
    static const tarn_pair other[] = {{{"key", 3}, {"a", 1}}, {{"bucket", 6}, {"other", 5}}};
    static const tarn_pair same[] = {{{"key", 3}, {"a", 1}}, {{"bucket", 6}, {"bkt", 3}}};
    assert_int_equal(check_with("{\"key\":\"a\"},{\"bucket\":\"other\"}", other, 2, 10), TARN_E_ACCESS_DENIED);
    assert_int_equal(check_with("{\"key\":\"a\"},{\"bucket\":\"bkt\"}", other, 2, 10), TARN_E_ACCESS_DENIED);
    assert_int_equal(check_with("{\"key\":\"a\"},{\"bucket\":\"bkt\"}", same, 2, 10), TARN_OK);
    /* A dollar in a value is itself. */
    static const tarn_pair dollar[] = {{{"key", 3}, {"\\$foo.txt", 9}}};
    assert_int_equal(check_with("[\"starts-with\",\"$key\",\"\\\\$foo\"]", dollar, 1, 10), TARN_OK);
}

static tarn_err check_document(const char *json, int64_t now_ms)
{
    static const tarn_pair field[] = {{{"key", 3}, {"a", 1}}};
    return tarn_post_policy_check(tarn_str_of(json), field, 1, TARN_STR("bkt"), 10, now_ms, ARENA, &DETAIL);
}

static void test_documents(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "",
        "nonsense",
        "[]",
        "{}",
        "{\"expiration\":\"2016-01-01T00:00:00Z\"}",
        "{\"conditions\":[{\"key\":\"a\"}]}",
        "{\"expiration\":\"2016-01-01T00:00:00Z\",\"CONDITIONS\":[{\"key\":\"a\"}]}",
        "{\"EXPIRATION\":\"2016-01-01T00:00:00Z\",\"conditions\":[{\"key\":\"a\"}]}",
        "{\"expiration\":\"soon\",\"conditions\":[{\"key\":\"a\"}]}",
        "{\"expiration\":\"Fri Jan  1 00:00:00 2016\",\"conditions\":[{\"key\":\"a\"}]}",
        "{\"expiration\":5,\"conditions\":[{\"key\":\"a\"}]}",
        "{\"expiration\":\"2016-01-01T00:00:00Z\",\"conditions\":{\"key\":\"a\"}}",
        "{\"expiration\":\"2016-01-01T00:00:00Z\",\"conditions\":[{\"key\":\"a\"}],\"x\":1}",
        "{\"expiration\":\"2016-01-01T00:00:00Z\",\"conditions\":[{\"key\":\"a\",\"key\":\"b\"}]}",
    };
    for (size_t i = 0; i < TARN_ARRAY_LEN(bad); i++) {
        if (check_document(bad[i], NOW_MS) != TARN_E_INVALID_POLICY_DOCUMENT) {
            fail_msg("%s", bad[i]);
        }
    }
    const char *fine = "{\"expiration\":\"2015-12-29T00:00:01.000Z\",\"conditions\":[{\"key\":\"a\",\"bucket\":\"bkt\"}]}";
    assert_int_equal(check_document(fine, NOW_MS), TARN_OK);
    assert_int_equal(check_document(fine, NOW_MS + 999), TARN_OK);
    assert_int_equal(check_document(fine, NOW_MS + 1000), TARN_E_ACCESS_DENIED);
    assert_true(tarn_str_find(DETAIL.message, TARN_STR("Policy expired.")) >= 0);
    assert_int_equal(check_document("{\"expiration\":\"2016-01-01T00:00:00Z\",\"conditions\":[{\"key\":\"a\"}]}", NOW_MS),
                     TARN_E_ACCESS_DENIED);
    assert_true(tarn_str_find(DETAIL.message, TARN_STR("Extra input fields: bucket")) >= 0);
    /* 100,000 levels: refused before any parser recurses. */
    tarn_sb b;
    tarn_sb_init(&b, 1 << 20);
    tarn_sb_cstr(&b, "{\"expiration\":\"2016-01-01T00:00:00Z\",\"conditions\":");
    for (size_t i = 0; i < 100000; i++) {
        tarn_sb_char(&b, '[');
    }
    assert_int_equal(tarn_post_policy_check(tarn_sb_view(&b), NULL, 0, TARN_STR("bkt"), 10, NOW_MS, ARENA, &DETAIL),
                     TARN_E_INVALID_POLICY_DOCUMENT);
    tarn_sb_free(&b);
}

static void test_condition_limit(void **state)
{
    (void)state;
    for (size_t extra = 0; extra < 2; extra++) {
        tarn_sb b;
        tarn_sb_init(&b, 1 << 20);
        tarn_sb_cstr(&b, "{\"expiration\":\"2016-01-01T00:00:00Z\",\"conditions\":[");
        for (size_t i = 0; i < 256 + extra; i++) {
            tarn_sb_cstr(&b, i ? ",{\"key\":\"a\"}" : "{\"bucket\":\"bkt\"}");
        }
        tarn_sb_cstr(&b, "]}");
        static const tarn_pair field[] = {{{"key", 3}, {"a", 1}}};
        assert_int_equal(tarn_post_policy_check(tarn_sb_view(&b), field, 1, TARN_STR("bkt"), 10, NOW_MS, ARENA, &DETAIL),
                         extra ? TARN_E_INVALID_POLICY_DOCUMENT : TARN_OK);
        tarn_sb_free(&b);
    }
}

static void test_range(void **state)
{
    (void)state;
    uint64_t min = 7;
    uint64_t max = 7;
    assert_false(tarn_post_policy_range(TARN_STR("nonsense"), &min, &max));
    assert_false(tarn_post_policy_range(TARN_STR("{\"conditions\":[{\"key\":\"a\"},5]}"), &min, &max));
    assert_true(min == 7 && max == 7);
    assert_true(tarn_post_policy_range(TARN_STR("{\"conditions\":[[\"content-length-range\",1,100],[\"content-length-range\",5,200]]}"),
                                       &min, &max));
    assert_true(min == 5 && max == 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_published), cmocka_unit_test(test_fields),          cmocka_unit_test(test_altered),
        cmocka_unit_test(test_version_2), cmocka_unit_test(test_conditions),      cmocka_unit_test(test_repeated_field),
        cmocka_unit_test(test_documents), cmocka_unit_test(test_condition_limit), cmocka_unit_test(test_range),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
