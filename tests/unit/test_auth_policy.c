/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The policy engine on cases of its own: patterns and their cost, variables, every condition operator, principals, the
 * whole decision, what a document may not say, limits.
 */
#include "policy.h"
#include "shared_data.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static tarn_arena *ARENA;
static tarn_err_detail DETAIL;
static const tarn_identity ROOT = {.root = true, .access_key = {"rootkey", 7}, .name = {"rootkey", 7}, .canonical_id = {"c0", 2}};
static const tarn_identity ALICE = {.access_key = {"alice", 5}, .name = {"alice", 5}, .canonical_id = {"c1", 2}};
static const tarn_identity STAR = {.access_key = {"*", 1}, .name = {"*", 1}, .canonical_id = {"c2", 2}};
static const tarn_identity NOBODY = {.anonymous = true};

static int before(void **state)
{
    (void)state;
    ARENA = tarn_arena_new(4 << 20);
    return ARENA ? 0 : -1;
}

static int after(void **state)
{
    (void)state;
    tarn_arena_free(ARENA);
    return 0;
}

static tarn_err parse(tarn_policy_kind kind, const char *json, tarn_policy **out)
{
    DETAIL = (tarn_err_detail){.fields_n = 0};
    *out = NULL;
    return tarn_policy_parse(kind, tarn_str_of(json), TARN_STR("bkt"), out, ARENA, &DETAIL);
}

static const char *fmt(const char *f, ...) TARN_PRINTF(1, 2);
static const char *fmt(const char *f, ...)
{
    tarn_sb b;
    va_list ap;
    va_start(ap, f);
    tarn_sb_init(&b, 1 << 20);
    tarn_sb_vfmt(&b, f, ap);
    va_end(ap);
    char *out = tarn_arena_cstr(ARENA, tarn_sb_view(&b));
    tarn_sb_free(&b);
    assert_non_null(out);
    return out;
}

/* ------------------------------------------------------------------ patterns */
static void test_wild(void **state)
{
    (void)state;
    static const struct {
        const char *pattern, *text;
        bool match;
    } cases[] = {
        {"", "", true},
        {"", "a", false},
        {"*", "", true},
        {"*", "a/b", true},
        {"?", "", false},
        {"?", "/", true},
        {"a*", "a", true},
        {"a*c", "abbc", true},
        {"a*c", "abbd", false},
        {"*a*b*", "xxaxxbxx", true},
        {"*a*b*", "xxbxxa", false},
        {"a?c", "ac", false},
        {"**", "x", true},
        {"[ab]", "a", false},
        {"[ab]", "[ab]", true},
        {"a\\*", "a*", false},
        {"*.parquet", "a/b.parquet", true},
        {"%20", " ", false},
        {"abc", "abcd", false},
        {"abcd", "abc", false},
        {"a*a", "a", false},
        {"*aab", "aaaab", true},
    };
    for (size_t i = 0; i < TARN_ARRAY_LEN(cases); i++) {
        if (policy_wild(tarn_str_of(cases[i].pattern), tarn_str_of(cases[i].text), false) != cases[i].match) {
            fail_msg("%s against %s", cases[i].pattern, cases[i].text);
        }
    }
    assert_true(policy_wild(TARN_STR("S3:get*"), TARN_STR("s3:GetObject"), true));
    assert_false(policy_wild(TARN_STR("S3:get*"), TARN_STR("s3:GetObject"), false));
}

/* Many stars: a matcher that tries everything would not end in this life. */
static void test_wild_cost(void **state)
{
    (void)state;
    static char pattern[2000];
    static char text[1024];
    for (size_t i = 0; i < sizeof pattern; i += 2) {
        memcpy(pattern + i, "*a", 2);
    }
    pattern[sizeof pattern - 1] = 'b';
    memset(text, 'a', sizeof text);
    uint64_t t = tarn_mono_ns();
    assert_false(policy_wild((tarn_str){pattern, sizeof pattern}, (tarn_str){text, sizeof text}, false));
    assert_true(tarn_mono_ns() - t < UINT64_C(1000000000));
}

/* ------------------------------------------------------------------ one statement, one request */
static tarn_decision ask(const char *json, const tarn_identity *id, const char *action, const char *resource, const tarn_pair *c, size_t n)
{
    tarn_policy *p;
    tarn_err e = parse(TARN_POLICY_IDENTITY, json, &p);
    if (e != TARN_OK) {
        fail_msg("%s: %.*s", json, TARN_STR_ARG(DETAIL.message));
    }
    tarn_policy_request r = {.action = action, .resource = tarn_str_of(resource), .identity = id, .conditions = c, .conditions_n = n};
    tarn_decision d = tarn_policy_eval(p, &r);
    tarn_policy_unref(p);
    return d;
}

static bool allowed(const char *resource_pattern, const tarn_identity *id, const char *resource)
{
    const char *json =
        fmt("{\"Version\":\"2012-10-17\",\"Statement\":{\"Effect\":\"Allow\",\"Action\":\"s3:GetObject\",\"Resource\":\"%s\"}}",
            resource_pattern);
    return ask(json, id, "s3:GetObject", resource, NULL, 0) == TARN_DECISION_ALLOW;
}

static void test_variables(void **state)
{
    (void)state;
    assert_true(allowed("arn:aws:s3:::bkt/${aws:username}/*", &ALICE, "arn:aws:s3:::bkt/alice/x"));
    assert_true(allowed("arn:aws:s3:::bkt/${AWS:UserName}/*", &ALICE, "arn:aws:s3:::bkt/alice/x"));
    assert_false(allowed("arn:aws:s3:::bkt/${aws:username}/*", &ALICE, "arn:aws:s3:::bkt/bob/x"));
    assert_false(allowed("arn:aws:s3:::bkt/${aws:username}/*", &STAR, "arn:aws:s3:::bkt/bob/x")); /* a name is no pattern */
    assert_true(allowed("arn:aws:s3:::bkt/${aws:username}/*", &STAR, "arn:aws:s3:::bkt/*/x"));
    assert_false(allowed("arn:aws:s3:::bkt/${aws:username}/*", &NOBODY, "arn:aws:s3:::bkt//x")); /* missing: no match */
    assert_false(allowed("arn:aws:s3:::bkt/${no:such}*", &ALICE, "arn:aws:s3:::bkt/x"));
    assert_true(allowed("arn:aws:s3:::bkt/${no:such, 'team'}/*", &ALICE, "arn:aws:s3:::bkt/team/x"));
    assert_true(allowed("arn:aws:s3:::bkt/${aws:username, 'team'}/*", &ALICE, "arn:aws:s3:::bkt/alice/x"));
    assert_true(allowed("arn:aws:s3:::bkt/a${*}b", &ALICE, "arn:aws:s3:::bkt/a*b"));
    assert_false(allowed("arn:aws:s3:::bkt/a${*}b", &ALICE, "arn:aws:s3:::bkt/axb"));
    assert_true(allowed("arn:aws:s3:::bkt/${?}${$}", &ALICE, "arn:aws:s3:::bkt/?$"));
    assert_true(allowed("arn:aws:s3:::bkt/${open", &ALICE, "arn:aws:s3:::bkt/${open"));
    /* The older version knows no variables. */
    const char *json = "{\"Version\":\"2008-10-17\",\"Statement\":{\"Effect\":\"Allow\",\"Action\":\"s3:GetObject\",\"Resource\":\"arn:aws:"
                       "s3:::bkt/${aws:username}/x\"}}";
    assert_int_equal(ask(json, &ALICE, "s3:GetObject", "arn:aws:s3:::bkt/alice/x", NULL, 0), TARN_DECISION_NONE);
    assert_int_equal(ask(json, &ALICE, "s3:GetObject", "arn:aws:s3:::bkt/${aws:username}/x", NULL, 0), TARN_DECISION_ALLOW);
}

/* A value that holds ${…} is not looked at again; long values need memory and, without it, are denied. */
static void test_variable_values(void **state)
{
    (void)state;
    static char longest[5000];
    memset(longest, 'v', sizeof longest);
    tarn_pair c[] = {{TARN_STR("jwt:sub"), TARN_STR("${aws:username}")}};
    const char *json =
        "{\"Version\":\"2012-10-17\",\"Statement\":{\"Effect\":\"Allow\",\"Action\":\"*\",\"Resource\":\"arn:aws:s3:::bkt/${jwt:sub}\"}}";
    assert_int_equal(ask(json, &ALICE, "s3:GetObject", "arn:aws:s3:::bkt/alice", c, 1), TARN_DECISION_NONE);
    assert_int_equal(ask(json, &ALICE, "s3:GetObject", "arn:aws:s3:::bkt/${aws:username}", c, 1), TARN_DECISION_ALLOW);
    c[0].value = (tarn_str){longest, sizeof longest};
    const char *resource = fmt("arn:aws:s3:::bkt/%.*s", (int)sizeof longest, longest);
    assert_int_equal(ask(json, &ALICE, "s3:GetObject", resource, c, 1), TARN_DECISION_ALLOW);
    tarn_policy *p;
    assert_int_equal(parse(TARN_POLICY_IDENTITY, json, &p), TARN_OK);
    tarn_policy_request r = {
        .action = "s3:GetObject", .resource = tarn_str_of(resource), .identity = &ALICE, .conditions = c, .conditions_n = 1};
    tarn_alloc_fail_after(1);
    assert_int_equal(tarn_policy_eval(p, &r), TARN_DECISION_DENY);
    tarn_alloc_fail_after(0);
    tarn_policy_unref(p);
}

/* ------------------------------------------------------------------ conditions */
typedef struct cond_case {
    const char *op, *key, *want; /* want: JSON */
    const char *have[3];         /* the request's values, NULL: no more */
    bool holds;
} cond_case;

static const cond_case CONDS[] = {
    {"StringEquals", "s3:prefix", "\"a\"", {"a"}, true},
    {"StringEquals", "s3:prefix", "\"a\"", {"A"}, false},
    {"StringEquals", "s3:prefix", "[\"x\",\"a\"]", {"a"}, true},
    {"StringEquals", "s3:prefix", "\"a*\"", {"ab"}, false},
    {"StringEquals", "s3:prefix", "\"\"", {""}, true},
    {"StringEquals", "s3:prefix", "\"a\"", {NULL}, false},
    {"stringequals", "S3:Prefix", "\"a\"", {"a"}, true},
    {"StringNotEquals", "s3:prefix", "[\"x\",\"a\"]", {"a"}, false},
    {"StringNotEquals", "s3:prefix", "[\"x\",\"y\"]", {"a"}, true},
    {"StringNotEquals", "s3:prefix", "\"a\"", {NULL}, true},
    {"StringEqualsIgnoreCase", "s3:prefix", "\"aB\"", {"Ab"}, true},
    {"StringNotEqualsIgnoreCase", "s3:prefix", "\"aB\"", {"Ab"}, false},
    {"StringLike", "s3:prefix", "\"a*\"", {"ab"}, true},
    {"StringLike", "s3:prefix", "\"*\"", {NULL}, false},
    {"StringLike", "s3:prefix", "\"${aws:username}/*\"", {"alice/x"}, true},
    {"StringNotLike", "s3:prefix", "\"a*\"", {"ab"}, false},
    {"StringEqualsIfExists", "s3:prefix", "\"a\"", {NULL}, true},
    {"StringEqualsIfExists", "s3:prefix", "\"a\"", {"b"}, false},
    {"StringNotEqualsIfExists", "s3:prefix", "\"a\"", {NULL}, true},
    {"NumericEquals", "s3:max-keys", "10", {"10"}, true},
    {"NumericEquals", "s3:max-keys", "\"10.0\"", {"10"}, true},
    {"NumericEquals", "s3:max-keys", "10", {"1e1"}, false},
    {"NumericNotEquals", "s3:max-keys", "10", {"10"}, false},
    {"NumericNotEquals", "s3:max-keys", "10", {NULL}, true},
    {"NumericLessThan", "s3:max-keys", "10", {"9"}, true},
    {"NumericLessThan", "s3:max-keys", "10", {"10"}, false},
    {"NumericLessThanEquals", "s3:max-keys", "10", {"10"}, true},
    {"NumericGreaterThan", "s3:max-keys", "10", {"10"}, false},
    {"NumericGreaterThan", "s3:max-keys", "-1", {"0"}, true},
    {"NumericGreaterThanEquals", "s3:max-keys", "10", {"10"}, true},
    {"NumericLessThan", "s3:max-keys", "10", {"abc"}, false},
    {"NumericLessThan", "s3:max-keys", "10", {""}, false},
    {"NumericGreaterThanEqualsIfExists", "s3:max-keys", "10", {NULL}, true},
    {"DateLessThan", "aws:CurrentTime", "\"2026-01-01T00:00:00Z\"", {"2025-12-31T23:59:59Z"}, true},
    {"DateLessThan", "aws:CurrentTime", "\"2026-01-01T00:00:00Z\"", {"2026-01-01T00:00:00Z"}, false},
    {"DateLessThanEquals", "aws:CurrentTime", "\"2026-01-01\"", {"2026-01-01T01:00:00+01:00"}, true},
    {"DateGreaterThan", "aws:CurrentTime", "\"2026-01-01T00:00:00Z\"", {"1767225601"}, true},
    {"DateGreaterThanEquals", "aws:CurrentTime", "1767225600", {"2026-01-01T00:00:00Z"}, true},
    {"DateEquals", "aws:CurrentTime", "\"2026-01-01T00:00:00Z\"", {"2026-01-01T00:00:00.000Z"}, true},
    {"DateNotEquals", "aws:CurrentTime", "\"2026-01-01T00:00:00Z\"", {"2026-01-01T00:00:00Z"}, false},
    {"DateLessThan", "aws:CurrentTime", "\"2026-01-01T00:00:00Z\"", {"soon"}, false},
    {"Bool", "aws:SecureTransport", "\"true\"", {"true"}, true},
    {"Bool", "aws:SecureTransport", "true", {"TRUE"}, true},
    {"Bool", "aws:SecureTransport", "false", {"true"}, false},
    {"Bool", "aws:SecureTransport", "false", {NULL}, false},
    {"BoolIfExists", "aws:SecureTransport", "false", {NULL}, true},
    {"BinaryEquals", "aws:test", "\"AQID\"", {"AQID"}, true},
    {"BinaryEquals", "aws:test", "\"AQID\"", {"AQIE"}, false},
    {"BinaryEquals", "aws:test", "\"AQID\"", {"!"}, false},
    {"IpAddress", "aws:SourceIp", "\"10.0.0.0/8\"", {"10.255.0.1"}, true},
    {"IpAddress", "aws:SourceIp", "\"10.0.0.0/8\"", {"11.0.0.1"}, false},
    {"IpAddress", "aws:SourceIp", "\"10.1.2.3\"", {"10.1.2.3"}, true},
    {"IpAddress", "aws:SourceIp", "\"10.1.2.0/25\"", {"10.1.2.128"}, false},
    {"IpAddress", "aws:SourceIp", "\"10.1.2.0/25\"", {"10.1.2.127"}, true},
    {"IpAddress", "aws:SourceIp", "\"0.0.0.0/0\"", {"1.2.3.4"}, true},
    {"IpAddress", "aws:SourceIp", "\"0.0.0.0/0\"", {"2001:db8::1"}, false},
    {"IpAddress", "aws:SourceIp", "\"2001:db8::/32\"", {"2001:db8:1::1"}, true},
    {"IpAddress", "aws:SourceIp", "\"2001:db8::/32\"", {"2001:db9::1"}, false},
    {"IpAddress", "aws:SourceIp", "\"10.0.0.0/8\"", {"::ffff:10.1.1.1"}, true},
    {"IpAddress", "aws:SourceIp", "\"::/0\"", {"10.1.1.1"}, false},
    {"IpAddress", "aws:SourceIp", "\"10.0.0.0/8\"", {"10.0.0.1/8"}, false},
    {"IpAddress", "aws:SourceIp", "\"10.0.0.0/8\"", {"rubbish"}, false},
    {"NotIpAddress", "aws:SourceIp", "\"10.0.0.0/8\"", {"10.0.0.1"}, false},
    {"NotIpAddress", "aws:SourceIp", "\"10.0.0.0/8\"", {NULL}, true},
    {"ArnLike", "aws:SourceArn", "\"arn:aws:s3:::b*\"", {"arn:aws:s3:::bkt"}, true},
    {"ArnEquals", "aws:SourceArn", "\"arn:aws:s3:*:*:bkt\"", {"arn:aws:s3:::bkt"}, true},
    {"ArnLike", "aws:SourceArn", "\"arn:*:bkt\"", {"arn:aws:s3:::bkt"}, false}, /* a star stays in its part */
    {"ArnLike", "aws:SourceArn", "\"arn:aws:s3:::bkt\"", {"bkt"}, false},
    {"ArnNotLike", "aws:SourceArn", "\"arn:aws:s3:::b*\"", {"arn:aws:s3:::bkt"}, false},
    {"ArnNotEquals", "aws:SourceArn", "\"arn:aws:s3:::b*\"", {NULL}, true},
    {"Null", "s3:prefix", "\"true\"", {NULL}, true},
    {"Null", "s3:prefix", "true", {""}, false},
    {"Null", "s3:prefix", "false", {""}, true},
    {"Null", "s3:prefix", "false", {NULL}, false},
    {"ForAllValues:StringEquals", "s3:RequestObjectTagKeys", "[\"a\",\"b\"]", {"a", "b"}, true},
    {"ForAllValues:StringEquals", "s3:RequestObjectTagKeys", "[\"a\",\"b\"]", {"a", "c"}, false},
    {"ForAllValues:StringEquals", "s3:RequestObjectTagKeys", "[\"a\",\"b\"]", {NULL}, true},
    {"ForAllValues:StringEquals", "s3:RequestObjectTagKeys", "[\"a\",\"b\"]", {""}, true},
    {"ForAllValues:StringNotEquals", "s3:RequestObjectTagKeys", "[\"a\",\"b\"]", {"c", "a"}, false},
    {"ForAllValues:StringNotEquals", "s3:RequestObjectTagKeys", "[\"a\",\"b\"]", {"c", "d"}, true},
    {"ForAnyValue:StringEquals", "s3:RequestObjectTagKeys", "[\"a\",\"b\"]", {"c", "a"}, true},
    {"ForAnyValue:StringEquals", "s3:RequestObjectTagKeys", "[\"a\",\"b\"]", {"c", "d"}, false},
    {"ForAnyValue:StringEquals", "s3:RequestObjectTagKeys", "[\"a\",\"b\"]", {NULL}, false},
    {"ForAnyValue:StringNotEquals", "s3:RequestObjectTagKeys", "[\"a\",\"b\"]", {"a", "c"}, true},
    {"ForAnyValue:StringNotEquals", "s3:RequestObjectTagKeys", "[\"a\",\"b\"]", {"a", "b"}, false},
    {"ForAnyValue:StringNotEquals", "s3:RequestObjectTagKeys", "[\"a\",\"b\"]", {NULL}, false},
    {"ForAnyValue:StringEqualsIfExists", "s3:RequestObjectTagKeys", "\"a\"", {NULL}, true},
    {"StringEquals", "s3:RequestObjectTagKeys", "\"a\"", {"c", "a"}, true}, /* plain operator, several values */
    {"StringNotEquals", "s3:RequestObjectTagKeys", "\"a\"", {"c", "a"}, false},
    {"StringEquals", "s3:ExistingObjectTag/Team", "\"a\"", {"a"}, true},
    {"StringEquals", "aws:username", "\"alice\"", {NULL}, true}, /* known without the request's saying so */
    {"StringEquals", "aws:PrincipalType", "\"User\"", {NULL}, true},
    {"DateGreaterThan", "aws:CurrentTime", "\"2020-01-01\"", {NULL}, true},
    {"NumericGreaterThan", "aws:EpochTime", "1000000000", {NULL}, true},
};

static void test_conditions(void **state)
{
    (void)state;
    for (size_t i = 0; i < TARN_ARRAY_LEN(CONDS); i++) {
        const cond_case *k = &CONDS[i];
        tarn_pair c[3];
        size_t n = 0;
        while (n < 3 && k->have[n]) {
            c[n] = (tarn_pair){tarn_str_of(k->key), tarn_str_of(k->have[n])};
            n++;
        }
        const char *json = fmt("{\"Version\":\"2012-10-17\",\"Statement\":{\"Effect\":\"Allow\",\"Action\":\"*\",\"Resource\":\"*\","
                               "\"Condition\":{\"%s\":{\"%s\":%s}}}}",
                               k->op, k->key, k->want);
        if ((ask(json, &ALICE, "s3:ListBucket", "arn:aws:s3:::bkt", c, n) == TARN_DECISION_ALLOW) != k->holds) {
            fail_msg("%s %s %s against %s", k->op, k->key, k->want, k->have[0] ? k->have[0] : "nothing");
        }
    }
    /* A tag's key is compared exactly. */
    const tarn_pair tag[] = {{TARN_STR("s3:existingobjecttag/team"), TARN_STR("a")}};
    assert_int_equal(ask("{\"Version\":\"2012-10-17\",\"Statement\":{\"Effect\":\"Allow\",\"Action\":\"*\",\"Resource\":\"*\","
                         "\"Condition\":{\"StringEquals\":{\"s3:ExistingObjectTag/Team\":\"a\"}}}}",
                         &ALICE, "s3:GetObject", "arn:aws:s3:::bkt/x", tag, 1),
                     TARN_DECISION_NONE);
}

/* ------------------------------------------------------------------ principals and the decision */
static tarn_err decide(const char *bucket_json, const tarn_identity *id, const char *action, const char *resource, bool owner)
{
    tarn_policy *p = NULL;
    if (bucket_json) {
        tarn_err e = parse(TARN_POLICY_BUCKET, bucket_json, &p);
        if (e != TARN_OK) {
            fail_msg("%s: %.*s", bucket_json, TARN_STR_ARG(DETAIL.message));
        }
    }
    tarn_policy_request r = {.action = action, .resource = tarn_str_of(resource), .identity = id, .owner = owner};
    tarn_err e = tarn_authorise(p, &r);
    tarn_policy_unref(p);
    return e;
}

static const char *grant(const char *effect, const char *principal, const char *action)
{
    return fmt("{\"Version\":\"2012-10-17\",\"Statement\":[{\"Effect\":\"%s\",%s,\"Action\":\"%s\",\"Resource\":[\"arn:aws:s3:::bkt\","
               "\"arn:aws:s3:::bkt/*\"]}]}",
               effect, principal, action);
}

static bool grants(const char *principal, const tarn_identity *id)
{
    return decide(grant("Allow", principal, "s3:GetObject"), id, "s3:GetObject", "arn:aws:s3:::bkt/x", false) == TARN_OK;
}

static void test_principals(void **state)
{
    (void)state;
    static const struct {
        const char *principal;
        bool alice, nobody;
    } cases[] = {
        {"\"Principal\":\"*\"", true, true},
        {"\"Principal\":{\"AWS\":\"*\"}", true, true},
        {"\"Principal\":{\"AWS\":[\"*\"]}", true, true},
        {"\"Principal\":{\"AWS\":\"alice\"}", true, false},
        {"\"Principal\":{\"AWS\":\"c1\"}", true, false},
        {"\"Principal\":{\"CanonicalUser\":\"c1\"}", true, false},
        {"\"Principal\":{\"CanonicalUser\":\"c2\"}", false, false},
        {"\"Principal\":{\"AWS\":\"bob\"}", false, false},
        {"\"Principal\":{\"AWS\":\"arn:aws:iam::111122223333:user/alice\"}", true, false},
        {"\"Principal\":{\"AWS\":\"arn:aws:iam:::user/alice\"}", true, false},
        {"\"Principal\":{\"AWS\":\"arn:aws:iam:::user/team/alice\"}", true, false},
        {"\"Principal\":{\"AWS\":\"arn:aws:iam:::user/bob\"}", false, false},
        {"\"Principal\":{\"AWS\":\"arn:aws:iam:::role/alice\"}", false, false},
        {"\"Principal\":{\"AWS\":\"arn:aws:iam:::user/\"}", false, false},
        {"\"Principal\":{\"AWS\":[\"bob\",\"alice\"]}", true, false},
        {"\"Principal\":{\"AWS\":\"111122223333\"}", false, false}, /* the account: its users need an allow of their own */
        {"\"Principal\":{\"AWS\":\"arn:aws:iam::111122223333:root\"}", false, false},
        {"\"Principal\":{\"Service\":\"logging.s3.amazonaws.com\"}", false, false},
    };
    for (size_t i = 0; i < TARN_ARRAY_LEN(cases); i++) {
        if (grants(cases[i].principal, &ALICE) != cases[i].alice || grants(cases[i].principal, &NOBODY) != cases[i].nobody) {
            fail_msg("%s", cases[i].principal);
        }
        /* The same as a deny: it hits whom it names, the account with all its users, and the root too. */
        const char *deny = grant("Deny", cases[i].principal, "s3:GetObject");
        tarn_policy *p;
        assert_int_equal(parse(TARN_POLICY_BUCKET, deny, &p), TARN_OK);
        tarn_policy_unref(p);
    }
    assert_int_equal(decide(grant("Deny", "\"Principal\":{\"AWS\":\"111122223333\"}", "s3:GetObject"), &ALICE, "s3:GetObject",
                            "arn:aws:s3:::bkt/x", true),
                     TARN_E_ACCESS_DENIED);
    assert_int_equal(
        decide(grant("Deny", "\"NotPrincipal\":{\"AWS\":\"alice\"}", "s3:*"), &ALICE, "s3:GetObject", "arn:aws:s3:::bkt/x", true), TARN_OK);
    assert_int_equal(
        decide(grant("Deny", "\"NotPrincipal\":{\"AWS\":\"bob\"}", "s3:*"), &ALICE, "s3:GetObject", "arn:aws:s3:::bkt/x", true),
        TARN_E_ACCESS_DENIED);
}

static void test_decision(void **state)
{
    (void)state;
    const char *deny_all = grant("Deny", "\"Principal\":\"*\"", "s3:*");
    const char *x = "arn:aws:s3:::bkt/x";
    const char *b = "arn:aws:s3:::bkt";
    assert_int_equal(decide(NULL, &ROOT, "s3:GetObject", x, false), TARN_OK);
    assert_int_equal(decide(NULL, &ALICE, "s3:GetObject", x, false), TARN_E_ACCESS_DENIED);
    assert_int_equal(decide(NULL, &ALICE, "s3:GetObject", x, true), TARN_OK); /* owner */
    assert_int_equal(decide(NULL, &NOBODY, "s3:GetObject", x, false), TARN_E_ACCESS_DENIED);
    assert_int_equal(decide(NULL, &NOBODY, "s3:CreateBucket", b, false), TARN_E_ACCESS_DENIED);
    assert_int_equal(decide(NULL, &NOBODY, "s3:ListAllMyBuckets", "*", false), TARN_E_ACCESS_DENIED);
    assert_int_equal(decide(NULL, &ALICE, "s3:CreateBucket", b, false), TARN_OK);
    assert_int_equal(decide(NULL, &ALICE, "s3:ListAllMyBuckets", "*", false), TARN_OK);
    assert_int_equal(decide(NULL, &ALICE, "s3:DeleteBucket", b, false), TARN_E_ACCESS_DENIED);
    assert_int_equal(decide(deny_all, &ROOT, "s3:GetObject", x, false), TARN_E_ACCESS_DENIED);
    assert_int_equal(decide(deny_all, &ALICE, "s3:GetObject", x, true), TARN_E_ACCESS_DENIED);
    static const char *const about[] = {"s3:GetBucketPolicy", "s3:PutBucketPolicy", "s3:DeleteBucketPolicy"};
    for (size_t i = 0; i < TARN_ARRAY_LEN(about); i++) {
        assert_int_equal(decide(deny_all, &ROOT, about[i], b, false), TARN_OK);
        assert_int_equal(decide(deny_all, &ALICE, about[i], b, true), TARN_OK);
        assert_int_equal(decide(deny_all, &ALICE, about[i], b, false), TARN_E_ACCESS_DENIED);
    }
    assert_int_equal(decide(deny_all, &ROOT, "s3:GetBucketPolicyStatus", b, false), TARN_E_ACCESS_DENIED);
    assert_int_equal(decide(deny_all, &ALICE, "s3:CreateBucket", b, false), TARN_E_ACCESS_DENIED);
}

static void test_own_policy(void **state)
{
    (void)state;
    tarn_policy *own;
    tarn_identity id = ALICE;
    assert_int_equal(parse(TARN_POLICY_IDENTITY,
                           "{\"Version\":\"2012-10-17\",\"Statement\":{\"Effect\":\"Allow\",\"Action\":\"s3:Get*\",\"Resource\":\"*\"}}",
                           &own),
                     TARN_OK);
    id.policy = own;
    assert_int_equal(decide(NULL, &id, "s3:GetObject", "arn:aws:s3:::bkt/x", false), TARN_OK);
    assert_int_equal(decide(NULL, &id, "s3:PutObject", "arn:aws:s3:::bkt/x", false), TARN_E_ACCESS_DENIED);
    assert_int_equal(decide(NULL, &id, "s3:CreateBucket", "arn:aws:s3:::bkt", false),
                     TARN_E_ACCESS_DENIED); /* who has a policy has that one */
    assert_int_equal(decide(grant("Allow", "\"Principal\":{\"AWS\":\"111122223333\"}", "s3:GetObject"), &id, "s3:GetObject",
                            "arn:aws:s3:::bkt/x", false),
                     TARN_OK);
    /* Counted: the last one frees. */
    tarn_policy *again = tarn_policy_ref(own);
    assert_ptr_equal(again, own);
    tarn_policy_unref(own);
    assert_int_equal(decide(NULL, &id, "s3:GetObject", "arn:aws:s3:::bkt/x", false), TARN_OK);
    tarn_policy_unref(again);
    assert_null(tarn_policy_ref(NULL));
    tarn_policy_unref(NULL);
    assert_int_equal(tarn_policy_eval(NULL, &(tarn_policy_request){.action = "s3:GetObject", .identity = &ALICE}), TARN_DECISION_NONE);
}

/* ------------------------------------------------------------------ documents */
#define STMT(inside) "{\"Version\":\"2012-10-17\",\"Statement\":[{" inside "}]}"
#define PRE "\"Effect\":\"Allow\",\"Principal\":\"*\",\"Action\":\"s3:GetObject\""

static void test_malformed(void **state)
{
    (void)state;
    static const struct {
        const char *json, *message;
    } cases[] = {
        {"", "first byte must be '{'"},
        {"hello", "first byte must be '{'"},
        {"[]", "first byte must be '{'"},
        {"{", "invalid Json"},
        {"{\"Version\":\"2012-10-17\",\"Version\":\"2012-10-17\"}", "invalid Json"},
        {"{\"Version\":\"2012-10-17\"}", "Missing required field Statement"},
        {"{\"Version\":\"2012-10-17\",\"Statement\":[]}", "Statement is empty"},
        {"{\"Version\":\"2012-10-17\",\"Statement\":[5]}", "must be an object"},
        {"{\"Version\":\"2020-01-01\",\"Statement\":[]}", "valid version string"},
        {"{\"Version\":5,\"Statement\":[]}", "valid version string"},
        {"{\"Id\":5,\"Statement\":[{}]}", "Id must be a text"},
        {"{\"Foo\":5,\"Statement\":[{}]}", "Unknown field Foo"},
        {STMT("\"Foo\":1"), "Unknown field Foo"},
        {STMT("\"Effect\":\"allow\""), "Invalid effect: allow"},
        {STMT("\"Principal\":\"*\""), "Invalid effect"},
        {STMT("\"Effect\":\"Allow\""), "Missing required field Principal"},
        {STMT("\"Effect\":\"Allow\",\"Principal\":\"bob\""), "Invalid principal"},
        {STMT("\"Effect\":\"Allow\",\"Principal\":{}"), "Invalid principal"},
        {STMT("\"Effect\":\"Allow\",\"Principal\":{\"Foo\":\"x\"}"), "Invalid principal"},
        {STMT("\"Effect\":\"Allow\",\"Principal\":{\"AWS\":[]}"), "Invalid principal"},
        {STMT("\"Effect\":\"Allow\",\"Principal\":{\"AWS\":5}"), "Invalid principal"},
        {STMT("\"Effect\":\"Allow\",\"Principal\":{\"AWS\":\"arn:aws:iam::*:user/x\"}"), "Invalid principal"},
        {STMT("\"Effect\":\"Allow\",\"Principal\":{\"AWS\":\"arn:aws\"}"), "Invalid principal"},
        {STMT("\"Effect\":\"Allow\",\"NotPrincipal\":{\"AWS\":\"bob\"}"), "NotPrincipal can only be used with Deny"},
        {STMT("\"Effect\":\"Deny\",\"Principal\":\"*\",\"NotPrincipal\":{\"AWS\":\"bob\"}"), "Principal and NotPrincipal"},
        {STMT("\"Effect\":\"Allow\",\"Principal\":\"*\""), "Missing required field Action"},
        {STMT("\"Effect\":\"Allow\",\"Principal\":\"*\",\"Action\":[]"), "invalid action"},
        {STMT("\"Effect\":\"Allow\",\"Principal\":\"*\",\"Action\":\"s3:Nope\""), "invalid action: s3:Nope"},
        {STMT("\"Effect\":\"Allow\",\"Principal\":\"*\",\"Action\":\"s3:Nope*\""), "invalid action"},
        {STMT("\"Effect\":\"Allow\",\"Principal\":\"*\",\"Action\":\"GetObject\""), "invalid action"},
        {STMT("\"Effect\":\"Allow\",\"Principal\":\"*\",\"Action\":\"s3:GetObject\",\"NotAction\":\"s3:PutObject\""),
         "Action and NotAction"},
        {STMT(PRE), "Missing required field Resource"},
        {STMT(PRE ",\"Resource\":\"arn:aws:s3:::bkt/*\",\"NotResource\":\"arn:aws:s3:::bkt/x\""), "Resource and NotResource"},
        {STMT(PRE ",\"Resource\":\"arn:aws:s3:::other/*\""), "invalid resource: arn:aws:s3:::other/*"},
        {STMT(PRE ",\"Resource\":\"arn:aws:s3:::bkt2/*\""), "invalid resource"},
        {STMT(PRE ",\"Resource\":\"arn:aws:s3:::bk/*\""), "invalid resource"},
        {STMT(PRE ",\"Resource\":\"bkt/*\""), "invalid resource"},
        {STMT(PRE ",\"Resource\":\"arn:aws:s3:::bkt\""), "does not apply to any resource"},
        {STMT("\"Effect\":\"Allow\",\"Principal\":\"*\",\"Action\":\"s3:ListBucket\",\"Resource\":\"arn:aws:s3:::bkt/*\""),
         "does not apply to any resource"},
        {STMT(PRE ",\"Resource\":\"arn:aws:s3:::bkt/*\",\"Condition\":5"), "Condition must be an object"},
        {STMT(PRE ",\"Resource\":\"arn:aws:s3:::bkt/*\",\"Condition\":{\"StringFoo\":{\"s3:prefix\":\"x\"}}"),
         "Invalid Condition type : StringFoo"},
        {STMT(PRE ",\"Resource\":\"arn:aws:s3:::bkt/*\",\"Condition\":{\"NullIfExists\":{\"s3:prefix\":\"true\"}}"),
         "Invalid Condition type"},
        {STMT(PRE ",\"Resource\":\"arn:aws:s3:::bkt/*\",\"Condition\":{\"StringEquals\":5}"), "must be an object"},
        {STMT(PRE ",\"Resource\":\"arn:aws:s3:::bkt/*\",\"Condition\":{\"StringEquals\":{\"s3:nope\":\"x\"}}"),
         "invalid condition key: s3:nope"},
        {STMT(PRE ",\"Resource\":\"arn:aws:s3:::bkt/*\",\"Condition\":{\"StringEquals\":{\"s3:prefix\":{}}}"), "invalid condition value"},
        {STMT(PRE ",\"Resource\":\"arn:aws:s3:::bkt/*\",\"Condition\":{\"IpAddress\":{\"aws:SourceIp\":\"1.2.3\"}}"),
         "Invalid value for the condition IpAddress: 1.2.3"},
        {STMT(PRE ",\"Resource\":\"arn:aws:s3:::bkt/*\",\"Condition\":{\"IpAddress\":{\"aws:SourceIp\":\"1.2.3.4/33\"}}"), "Invalid value"},
        {STMT(PRE ",\"Resource\":\"arn:aws:s3:::bkt/*\",\"Condition\":{\"DateLessThan\":{\"aws:CurrentTime\":\"soon\"}}"), "Invalid value"},
        {STMT(PRE ",\"Resource\":\"arn:aws:s3:::bkt/*\",\"Condition\":{\"NumericEquals\":{\"s3:max-keys\":\"x\"}}"), "Invalid value"},
        {STMT(PRE ",\"Resource\":\"arn:aws:s3:::bkt/*\",\"Condition\":{\"Bool\":{\"aws:SecureTransport\":\"maybe\"}}"), "Invalid value"},
        {STMT("\"Sid\":5," PRE ",\"Resource\":\"arn:aws:s3:::bkt/*\""), "Sid must be a text"},
        {"{\"Statement\":[{\"Sid\":\"a\"," PRE ",\"Resource\":\"arn:aws:s3:::bkt/*\"},{\"Sid\":\"a\"," PRE
         ",\"Resource\":\"arn:aws:s3:::bkt/*\"}]}",
         "must be unique: a"},
        {"{\"a\":[[[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]]}", "nested too deeply"},
    };
    for (size_t i = 0; i < TARN_ARRAY_LEN(cases); i++) {
        tarn_policy *p;
        tarn_err e = parse(TARN_POLICY_BUCKET, cases[i].json, &p);
        if (e != TARN_E_MALFORMED_POLICY || tarn_str_find(DETAIL.message, tarn_str_of(cases[i].message)) < 0) {
            fail_msg("%s: %s, %.*s", cases[i].json, tarn_err_get(e)->name, TARN_STR_ARG(DETAIL.message));
        }
    }
    tarn_policy *p;
    assert_int_equal(parse(TARN_POLICY_IDENTITY, STMT(PRE ",\"Resource\":\"*\""), &p), TARN_E_MALFORMED_POLICY); /* a principal */
}

static void test_well_formed(void **state)
{
    (void)state;
    static const char *const good[] = {
        STMT(PRE ",\"Resource\":\"arn:aws:s3:::bkt/*\""),
        " \n" STMT(PRE ",\"Resource\":\"arn:aws:s3:::bkt/*\""),
        STMT(PRE ",\"Resource\":\"arn:aws:s3:::*\""),
        STMT(PRE ",\"Resource\":[\"arn:aws:s3:::*/*\",\"arn:aws:s3:::*\"]"),
        STMT(PRE ",\"Resource\":\"arn:aws:s3:::bkt*\""),
        STMT(PRE ",\"Resource\":\"arn:aws:s3:::bk?/x\""),
        STMT(PRE ",\"Resource\":\"arn:aws:s3:::bkt/${aws:username}\""),
        STMT(PRE ",\"NotResource\":\"arn:aws:s3:::bkt/x\""),
        STMT("\"Effect\":\"Deny\",\"Principal\":\"*\",\"NotAction\":\"s3:GetObject\",\"Resource\":\"arn:aws:s3:::bkt\""),
        STMT("\"Effect\":\"Allow\",\"Principal\":\"*\",\"Action\":\"S3:getobject\",\"Resource\":\"arn:aws:s3:::bkt/x\""),
        STMT("\"Effect\":\"Allow\",\"Principal\":\"*\",\"Action\":[\"s3:*\"],\"Resource\":\"arn:aws:s3:::bkt\""),
        STMT("\"Effect\":\"Allow\",\"Principal\":\"*\",\"Action\":\"*\",\"Resource\":\"arn:aws:s3:::bkt\""),
        STMT(PRE ",\"Resource\":\"arn:aws:s3:::bkt/*\",\"Condition\":{}"),
        STMT("\"Sid\":\"\"," PRE ",\"Resource\":\"arn:aws:s3:::bkt/*\""),
        "{\"Id\":\"x\",\"Statement\":{" PRE ",\"Resource\":\"arn:aws:s3:::bkt/*\"}}",
    };
    for (size_t i = 0; i < TARN_ARRAY_LEN(good); i++) {
        tarn_policy *p;
        if (parse(TARN_POLICY_BUCKET, good[i], &p) != TARN_OK) {
            fail_msg("%s: %.*s", good[i], TARN_STR_ARG(DETAIL.message));
        }
        tarn_policy_unref(p);
    }
}

static void test_limits(void **state)
{
    (void)state;
    for (size_t extra = 0; extra < 2; extra++) {
        tarn_sb b;
        tarn_policy *p = NULL;
        tarn_sb_init(&b, 1 << 20);
        tarn_sb_cstr(&b, STMT(PRE ",\"Resource\":\"arn:aws:s3:::bkt/*\""));
        while (b.n < TARN_POLICY_BYTES_MAX + extra) {
            tarn_sb_char(&b, ' ');
        }
        tarn_err e = tarn_policy_parse(TARN_POLICY_BUCKET, tarn_sb_view(&b), TARN_STR("bkt"), &p, ARENA, &DETAIL);
        assert_int_equal(e, extra ? TARN_E_MALFORMED_POLICY : TARN_OK);
        tarn_policy_unref(p);
        tarn_sb_reset(&b);
        tarn_sb_cstr(&b, "{\"Statement\":{" PRE ",\"Resource\":\"arn:aws:s3:::bkt/");
        while (b.n < sizeof "{\"Statement\":{" PRE ",\"Resource\":\"" - 1 + POLICY_PATTERN_BYTES_MAX + extra) {
            tarn_sb_char(&b, 'k');
        }
        tarn_sb_cstr(&b, "\"}}");
        p = NULL;
        e = tarn_policy_parse(TARN_POLICY_BUCKET, tarn_sb_view(&b), TARN_STR("bkt"), &p, ARENA, &DETAIL);
        assert_int_equal(e, extra ? TARN_E_MALFORMED_POLICY : TARN_OK);
        tarn_policy_unref(p);
        tarn_sb_free(&b);
    }
}

static void test_allocation_failures(void **state)
{
    (void)state;
    const char *json = STMT(PRE ",\"Resource\":\"arn:aws:s3:::bkt/*\",\"Condition\":{\"StringEquals\":{\"s3:prefix\":[\"x\",\"y\"]}}");
    for (uint64_t n = 1; n < 50; n++) {
        tarn_policy *p;
        tarn_alloc_fail_after(n);
        tarn_err e = parse(TARN_POLICY_BUCKET, json, &p);
        tarn_alloc_fail_after(0);
        if (e == TARN_OK) {
            tarn_policy_unref(p);
            assert_true(n > 1);
            return;
        }
        assert_int_equal(e, TARN_E_NO_MEMORY);
        assert_null(p);
    }
    fail_msg("too many allocations");
}

static void test_public(void **state)
{
    (void)state;
    static const struct {
        const char *principal, *condition;
        bool is_public;
    } cases[] = {
        {"\"*\"", "{}", true},
        {"{\"AWS\":\"*\"}", "{}", true},
        {"{\"AWS\":\"alice\"}", "{}", false},
        {"{\"AWS\":\"arn:aws:iam::tenant:root\"}", "{}", false},
        {"\"*\"", "{\"IpAddress\":{\"aws:SourceIp\":\"10.0.0.0/32\"}}", false},
        {"\"*\"", "{\"IpAddress\":{\"aws:SourceIp\":[\"10.0.0.0/24\",\"0.0.0.0/0\"]}}", true},
        {"\"*\"", "{\"NotIpAddress\":{\"aws:SourceIp\":\"10.0.0.0/24\"}}", true},
        {"\"*\"", "{\"StringEquals\":{\"aws:SourceVpc\":\"vpc-1\"}}", false},
        {"\"*\"", "{\"StringLike\":{\"aws:SourceVpc\":\"vpc-*\"}}", true},
        {"\"*\"", "{\"StringEqualsIfExists\":{\"aws:SourceVpc\":\"vpc-1\"}}", true},
        {"\"*\"", "{\"ForAllValues:StringEquals\":{\"aws:PrincipalOrgID\":\"o-1\"}}", true},
        {"\"*\"", "{\"StringEquals\":{\"s3:prefix\":\"x\"}}", true},
    };
    for (size_t i = 0; i < TARN_ARRAY_LEN(cases); i++) {
        tarn_policy *p;
        const char *json = fmt("{\"Statement\":{\"Effect\":\"Allow\",\"Principal\":%s,\"Action\":\"s3:GetObject\",\"Resource\":\"arn:aws:"
                               "s3:::bkt/*\",\"Condition\":%s}}",
                               cases[i].principal, cases[i].condition);
        assert_int_equal(parse(TARN_POLICY_BUCKET, json, &p), TARN_OK);
        if (tarn_policy_is_public(p) != cases[i].is_public) {
            fail_msg("%s", json);
        }
        tarn_policy_unref(p);
    }
    tarn_policy *p;
    assert_int_equal(parse(TARN_POLICY_BUCKET, grant("Deny", "\"Principal\":\"*\"", "s3:*"), &p), TARN_OK);
    assert_false(tarn_policy_is_public(p));
    tarn_policy_unref(p);
    assert_false(tarn_policy_is_public(NULL));
}

#define T(f) cmocka_unit_test_setup_teardown(f, before, after)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(test_wild),     T(test_wild_cost),  T(test_variables), T(test_variable_values), T(test_conditions), T(test_principals),
        T(test_decision), T(test_own_policy), T(test_malformed), T(test_well_formed),     T(test_limits),     T(test_allocation_failures),
        T(test_public),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
