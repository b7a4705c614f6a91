/* SPDX-License-Identifier: Apache-2.0 */
/* Tags, lifecycle rules and CORS patterns: parsing with their limits, writing back, and what they mean. Times; the route table. */
#include "lifecycle.h"
#include "s3_fake.h"

/* ------------------------------------------------------------------ tags */
static void tag_headers(void **state)
{
    fake *f = *state;
    tarn_str packed;
    uint32_t n;
    tarn_pair *tags;
    size_t count;
    fake_header(f, "x-amz-tagging", "a=1&b%20c=x+y%2B&empty=&bare");
    assert_int_equal(s3_tags_from_header(&f->c, &packed, &n), TARN_OK);
    assert_int_equal(n, 4);
    assert_int_equal(tarn_tags_unpack(packed, f->r.a, &tags, &count), TARN_OK);
    assert_int_equal(count, 4);
    assert_str(tags[1].name, "b c");
    assert_str(tags[1].value, "x y+");
    assert_str(tags[3].name, "bare");
    assert_str(tags[3].value, "");
    static const struct {
        const char *text;
        tarn_err want;
    } t[] = {{"k1=&k2=&k3=&k4=&k5=&k6=&k7=&k8=&k9=&k10=", TARN_OK},
             {"k1=&k2=&k3=&k4=&k5=&k6=&k7=&k8=&k9=&k10=&k11=", TARN_E_BAD_REQUEST},
             {"k1=&k2=&k3=&k4=&k5=&k6=&k7=&k8=&k9=&k10=&k11=&k12=&k13=", TARN_E_BAD_REQUEST},
             {"a=%zz", TARN_E_INVALID_ARGUMENT},
             {"a=1&a=2", TARN_E_INVALID_ARGUMENT},
             {"&&a=1&", TARN_OK},
             {"a=%C3%A4+-%2B._:/@%3D", TARN_OK},
             {"a=%3B", TARN_E_INVALID_TAG},
             {"a%0A=1", TARN_E_INVALID_TAG},
             {"=1", TARN_E_INVALID_ARGUMENT},
             {"aws:x=1", TARN_E_INVALID_TAG},
             {"a=%FF", TARN_E_INVALID_TAG}};
    for (size_t i = 0; i < TARN_ARRAY_LEN(t); i++) {
        fake_reset(f);
        fake_header(f, "x-amz-tagging", t[i].text);
        tarn_err e = s3_tags_from_header(&f->c, &packed, &n);
        if (e != t[i].want)
            fail_msg("%s gave %s", t[i].text, tarn_err_get(e)->name);
    }
    fake_reset(f);
    assert_int_equal(s3_tags_from_header(&f->c, &packed, &n), TARN_OK);
    assert_int_equal(n, 0);
}

static tarn_err one_tag(fake *f, tarn_str key, tarn_str value)
{
    tarn_pair t = {key, value};
    return s3_tags_check(&f->c, &t, 1, 10);
}

/* Lengths are counted in characters, not in bytes. */
static void tag_lengths(void **state)
{
    fake *f = *state;
    assert_int_equal(one_tag(f, fake_repeat(f, "\xC3\xA4", S3_TAG_KEY_CHARS_MAX), TARN_STR("")), TARN_OK);
    assert_int_equal(one_tag(f, fake_repeat(f, "a", S3_TAG_KEY_CHARS_MAX + 1), TARN_STR("")), TARN_E_INVALID_TAG);
    assert_int_equal(one_tag(f, TARN_STR("a"), fake_repeat(f, "\xE2\x82\xAC", S3_TAG_VALUE_CHARS_MAX)), TARN_OK);
    assert_int_equal(one_tag(f, TARN_STR("a"), fake_repeat(f, "a", S3_TAG_VALUE_CHARS_MAX + 1)), TARN_E_INVALID_TAG);
    assert_int_equal(one_tag(f, TARN_STR(""), TARN_STR("v")), TARN_E_INVALID_TAG);
}

static tarn_err tags_xml(fake *f, const char *text, size_t *n)
{
    s3_node *root;
    tarn_pair *tags;
    tarn_err e = s3_xml_parse(tarn_str_of(text), f->r.a, &root);
    return e == TARN_OK ? s3_tags_from_xml(root, f->r.a, &tags, n) : e;
}

static void tag_documents(void **state)
{
    size_t n = 99;
    assert_int_equal(
        tags_xml(*state, "<Tagging><TagSet><Tag><Key>a</Key><Value>1</Value></Tag><Tag><Key/><Value/></Tag></TagSet></Tagging>", &n),
        TARN_OK);
    assert_int_equal(n, 2);
    assert_int_equal(tags_xml(*state, "<Tagging><TagSet/></Tagging>", &n), TARN_OK);
    assert_int_equal(n, 0);
    static const char *const bad[] = {"<Tags><TagSet/></Tags>", "<Tagging/>", "<Tagging><TagSet><Tag><Key>a</Key></Tag></TagSet></Tagging>",
                                      "<Tagging><TagSet><Tag><Value>a</Value></Tag></TagSet></Tagging>",
                                      "<Tagging><TagSet><X/></TagSet></Tagging>"};
    for (size_t i = 0; i < TARN_ARRAY_LEN(bad); i++)
        assert_int_equal(tags_xml(*state, bad[i], &n), TARN_E_MALFORMED_XML);
}

/* ------------------------------------------------------------------ lifecycle */
static tarn_err rules_of(fake *f, tarn_str text, lc_rule **rules, size_t *n)
{
    s3_node *root;
    tarn_err e = s3_xml_parse(text, f->r.a, &root);
    return e == TARN_OK ? lc_parse(NULL, root, f->r.a, rules, n) : e;
}

static tarn_err rule(fake *f, const char *inner, lc_rule *out)
{
    lc_rule *rules;
    size_t n;
    tarn_str text = tarn_arena_fmt(f->r.a, "<LifecycleConfiguration><Rule>%s</Rule></LifecycleConfiguration>", inner);
    tarn_err e = rules_of(f, text, &rules, &n);
    if (e == TARN_OK && out != NULL)
        *out = rules[0];
    return e;
}

#define ON "<ID>x</ID><Status>Enabled</Status>"
#define DAYS "<Expiration><Days>1</Days></Expiration>"

static void rules_that_are_good(void **state)
{
    lc_rule r;
    assert_int_equal(rule(*state, ON "<Filter/>" DAYS, &r), TARN_OK);
    assert_true(r.enabled && r.days == 1 && !r.has_prefix);
    assert_str(r.id, "x");
    assert_int_equal(rule(*state, "<Status>Disabled</Status><Prefix>p/</Prefix>" DAYS, &r), TARN_OK);
    assert_true(!r.enabled && r.legacy_prefix && r.id.n == 36); /* an id was made */
    assert_int_equal(rule(*state,
                          ON
                          "<Filter><And><Prefix>p</Prefix><Tag><Key>k</Key><Value>v</Value></Tag>"
                          "<ObjectSizeGreaterThan>1</ObjectSizeGreaterThan><ObjectSizeLessThan>9</ObjectSizeLessThan></And></Filter>" DAYS,
                          &r),
                     TARN_OK);
    assert_true(r.has_and && r.tags_n == 1 && r.greater_bytes == 1 && r.less_bytes == 9);
    assert_int_equal(rule(*state, ON "<Filter/><Expiration><Date>2030-01-01T00:00:00Z</Date></Expiration>", &r), TARN_OK);
    assert_int_equal(r.date_ms, 1893456000000ll);
    assert_int_equal(rule(*state, ON "<Filter/><Expiration><ExpiredObjectDeleteMarker>true</ExpiredObjectDeleteMarker></Expiration>", &r),
                     TARN_OK);
    assert_true(r.expired_marker);
    assert_int_equal(
        rule(*state,
             ON
             "<Filter/><NoncurrentVersionExpiration><NoncurrentDays>3</NoncurrentDays><NewerNoncurrentVersions>2</NewerNoncurrentVersions>"
             "</NoncurrentVersionExpiration><AbortIncompleteMultipartUpload><DaysAfterInitiation>7</DaysAfterInitiation></"
             "AbortIncompleteMultipartUpload>",
             &r),
        TARN_OK);
    assert_true(r.has_noncurrent && r.noncurrent_days == 3 && r.newer_noncurrent == 2 && r.abort_days == 7);
    assert_int_equal(rule(*state, ON "<Filter/><Expiration><Days>2147483647</Days></Expiration>", &r), TARN_OK);
}

static void rules_that_are_bad(void **state)
{
    static const struct {
        const char *inner;
        tarn_err want;
    } t[] = {
        {ON "<Filter/>", TARN_E_INVALID_REQUEST},
        {ON DAYS, TARN_E_MALFORMED_XML},
        {ON "<Filter/>" DAYS "<Expiration><Date>2030-01-01T00:00:00Z</Date></Expiration>", TARN_E_MALFORMED_XML},
        {ON "<Status>Disabled</Status><Filter/>" DAYS, TARN_E_MALFORMED_XML},
        {ON "<Filter/><Prefix/>" DAYS, TARN_E_MALFORMED_XML},
        {"<Filter/>" DAYS, TARN_E_MALFORMED_XML},
        {"<Status>enabled</Status><Filter/>" DAYS, TARN_E_MALFORMED_XML},
        {ON "<Filter/><Expiration/>", TARN_E_MALFORMED_XML},
        {ON "<Filter/><Expiration><Days>0</Days></Expiration>", TARN_E_INVALID_ARGUMENT},
        {ON "<Filter/><Expiration><Days>-1</Days></Expiration>", TARN_E_INVALID_ARGUMENT},
        {ON "<Filter/><Expiration><Days>x</Days></Expiration>", TARN_E_MALFORMED_XML},
        {ON "<Filter/><Expiration><Days>2147483648</Days></Expiration>", TARN_E_INVALID_ARGUMENT},
        {ON "<Filter/><Expiration><Days>1</Days><Date>2030-01-01T00:00:00Z</Date></Expiration>", TARN_E_MALFORMED_XML},
        {ON "<Filter/><Expiration><Date>2030-01-01T00:00:01Z</Date></Expiration>", TARN_E_INVALID_ARGUMENT},
        {ON "<Filter/><Expiration><Date>soon</Date></Expiration>", TARN_E_MALFORMED_XML},
        {ON "<Filter/><NoncurrentVersionExpiration/>", TARN_E_MALFORMED_XML},
        {ON "<Filter/><NoncurrentVersionExpiration><NoncurrentDays>0</NoncurrentDays></NoncurrentVersionExpiration>",
         TARN_E_INVALID_ARGUMENT},
        {ON "<Filter/><Transition><Days>1</Days><StorageClass>GLACIER</StorageClass></Transition>", TARN_E_NOT_IMPLEMENTED},
        {ON "<Filter><Tag><Key>k</Key><Value>v</Value></Tag></Filter><AbortIncompleteMultipartUpload><DaysAfterInitiation>1</"
            "DaysAfterInitiation></AbortIncompleteMultipartUpload>",
         TARN_E_INVALID_REQUEST},
        {ON "<Filter><Tag><Key>k</Key><Value>v</Value></Tag></Filter><Expiration><ExpiredObjectDeleteMarker>true</"
            "ExpiredObjectDeleteMarker></Expiration>",
         TARN_E_INVALID_REQUEST},
        {ON "<Filter><Prefix>a</Prefix><Tag><Key>k</Key><Value>v</Value></Tag></Filter>" DAYS, TARN_E_MALFORMED_XML},
        {ON "<Filter><And><And/></And></Filter>" DAYS, TARN_E_MALFORMED_XML},
        {ON "<Filter><And><Tag><Key>k</Key><Value>v</Value></Tag><Tag><Key>k</Key><Value>w</Value></Tag></And></Filter>" DAYS,
         TARN_E_INVALID_REQUEST},
        {ON "<Filter><And><ObjectSizeGreaterThan>9</ObjectSizeGreaterThan><ObjectSizeLessThan>9</ObjectSizeLessThan></And></Filter>" DAYS,
         TARN_E_INVALID_REQUEST},
        {ON "<Filter><Surprise/></Filter>" DAYS, TARN_E_MALFORMED_XML},
        {ON "<Filter/><Surprise/>" DAYS, TARN_E_MALFORMED_XML},
    };
    for (size_t i = 0; i < TARN_ARRAY_LEN(t); i++) {
        tarn_err e = rule(*state, t[i].inner, NULL);
        if (e != t[i].want)
            fail_msg("%s gave %s", t[i].inner, tarn_err_get(e)->name);
    }
}

static tarn_err many_rules(fake *f, size_t n)
{
    tarn_sb b;
    lc_rule *rules;
    size_t got;
    tarn_sb_init(&b, 1u << 20);
    tarn_sb_cstr(&b, "<LifecycleConfiguration>");
    for (size_t i = 0; i < n; i++)
        tarn_sb_fmt(&b, "<Rule><ID>%zu</ID><Status>Enabled</Status><Filter/>" DAYS "</Rule>", i);
    tarn_sb_cstr(&b, "</LifecycleConfiguration>");
    tarn_err e = rules_of(f, tarn_sb_view(&b), &rules, &got);
    if (e == TARN_OK)
        assert_int_equal(got, n);
    tarn_sb_free(&b);
    return e;
}

static void rule_limits(void **state)
{
    fake *f = *state;
    lc_rule *rules;
    size_t n;
    assert_int_equal(many_rules(f, LC_RULES_MAX), TARN_OK);
    assert_int_equal(many_rules(f, LC_RULES_MAX + 1), TARN_E_INVALID_REQUEST);
    assert_int_equal(many_rules(f, 0), TARN_E_MALFORMED_XML);
    tarn_str id = fake_repeat(f, "i", LC_ID_CHARS_MAX), longer = fake_repeat(f, "i", LC_ID_CHARS_MAX + 1);
    assert_int_equal(rule(f, tarn_arena_fmt(f->r.a, "<ID>%s</ID><Status>Enabled</Status><Filter/>" DAYS, id.p).p, NULL), TARN_OK);
    assert_int_equal(rule(f, tarn_arena_fmt(f->r.a, "<ID>%s</ID><Status>Enabled</Status><Filter/>" DAYS, longer.p).p, NULL),
                     TARN_E_INVALID_ARGUMENT);
    assert_int_equal(rules_of(f,
                              TARN_STR("<LifecycleConfiguration><Rule>" ON "<Filter/>" DAYS "</Rule><Rule>" ON "<Filter/>" DAYS
                                       "</Rule></LifecycleConfiguration>"),
                              &rules, &n),
                     TARN_E_INVALID_ARGUMENT);
}

/* What is written is read back as the same rules, and written again as the same text. */
static void rules_round_trip(void **state)
{
    fake *f = *state;
    lc_rule *rules;
    size_t n;
    s3_xml x, y;
    tarn_str text = TARN_STR(
        "<LifecycleConfiguration><Rule>" ON
        "<Filter><And><Prefix>a&amp;b</Prefix><Tag><Key>k</Key><Value>v</Value></Tag></And></Filter>" DAYS
        "</Rule><Rule><ID>y</ID><Status>Disabled</Status><Prefix/><Expiration><Date>2030-01-01T00:00:00.000Z</Date></Expiration></Rule>"
        "<Rule><ID>z</ID><Status>Enabled</Status><Filter><ObjectSizeLessThan>5</ObjectSizeLessThan></Filter><NoncurrentVersionExpiration>"
        "<NoncurrentDays>3</NoncurrentDays></NoncurrentVersionExpiration></Rule></LifecycleConfiguration>");
    assert_int_equal(rules_of(f, text, &rules, &n), TARN_OK);
    lc_write(&x, rules, n);
    assert_int_equal(rules_of(f, tarn_sb_view(&x.b), &rules, &n), TARN_OK);
    assert_int_equal(n, 3);
    lc_write(&y, rules, n);
    assert_int_equal(x.b.n, y.b.n);
    assert_memory_equal(x.b.p, y.b.p, x.b.n);
    assert_str(rules[0].prefix, "a&b");
    assert_true(rules[1].legacy_prefix && rules[2].has_less);
    tarn_sb_free(&x.b);
    tarn_sb_free(&y.b);
}

static void rules_match(void **state)
{
    const tarn_pair tags[] = {{TARN_STR("k"), TARN_STR("v")}, {TARN_STR("l"), TARN_STR("w")}};
    lc_rule r;
    assert_int_equal(
        rule(*state,
             ON "<Filter><And><Prefix>a/</Prefix><Tag><Key>k</Key><Value>v</Value></Tag><ObjectSizeGreaterThan>1</ObjectSizeGreaterThan>"
                "<ObjectSizeLessThan>4</ObjectSizeLessThan></And></Filter>" DAYS,
             &r),
        TARN_OK);
    assert_true(lc_matches(&r, TARN_STR("a/b"), 2, tags, 2));
    assert_true(lc_matches(&r, TARN_STR("a/"), 3, tags, 1));
    assert_false(lc_matches(&r, TARN_STR("a/b"), 1, tags, 2));
    assert_false(lc_matches(&r, TARN_STR("a/b"), 4, tags, 2));
    assert_false(lc_matches(&r, TARN_STR("b/a/"), 2, tags, 2));
    assert_false(lc_matches(&r, TARN_STR("a"), 2, tags, 2));
    assert_false(lc_matches(&r, TARN_STR("a/b"), 2, tags + 1, 1));
    assert_false(lc_matches(&r, TARN_STR("a/b"), 2, NULL, 0));
}

static void times(void **state)
{
    const int64_t day = 86400000, midnight = 20000 * day;
    (void)state;
    assert_int_equal(lc_due_ms(midnight, 1, 86400), midnight + day);
    assert_int_equal(lc_due_ms(midnight + 1, 1, 86400), midnight + 2 * day);
    assert_int_equal(lc_due_ms(midnight + day - 1, 1, 86400), midnight + 2 * day);
    assert_int_equal(lc_due_ms(midnight + 1, INT32_MAX, 86400), midnight + ((int64_t)INT32_MAX + 1) * day);
    assert_int_equal(lc_due_ms(midnight + 5, 3, 10), midnight + 5 + 30000);
}

static void first_expiration(void **state)
{
    fake *f = *state;
    lc_rule *rules;
    size_t n;
    int64_t when = 0;
    tarn_version_row row = {.key = TARN_STR("a/b"), .size = 5, .mtime_ms = 1000};
    assert_int_equal(
        rules_of(
            f,
            TARN_STR(
                "<LifecycleConfiguration><Rule><ID>a</ID><Status>Enabled</Status><Filter/><Expiration><Days>9</Days></Expiration></Rule>"
                "<Rule><ID>b</ID><Status>Enabled</Status><Filter><Prefix>a/</Prefix></Filter><Expiration><Days>2</Days></Expiration></Rule>"
                "<Rule><ID>c</ID><Status>Disabled</Status><Filter/><Expiration><Days>1</Days></Expiration></Rule>"
                "<Rule><ID>d</ID><Status>Enabled</Status><Filter/><AbortIncompleteMultipartUpload><DaysAfterInitiation>1</"
                "DaysAfterInitiation>"
                "</AbortIncompleteMultipartUpload></Rule></LifecycleConfiguration>"),
            &rules, &n),
        TARN_OK);
    const lc_rule *r = lc_expiration(rules, n, &row, NULL, 0, 10, &when);
    assert_non_null(r);
    assert_str(r->id, "b");
    assert_int_equal(when, 21000);
    row.key = TARN_STR("x");
    r = lc_expiration(rules, n, &row, NULL, 0, 10, &when);
    assert_non_null(r);
    assert_str(r->id, "a");
    assert_null(lc_expiration(rules + 2, 2, &row, NULL, 0, 10, &when));
    /* as a header */
    s3_facts facts = {.rules = rules, .rules_n = n};
    f->c.facts = &facts;
    f->s3.lifecycle_day_s = 86400;
    s3_expiration_header(&f->c, &row);
    assert_str(fake_answer(f, "x-amz-expiration"), "expiry-date=\"Sun, 11 Jan 1970 00:00:00 GMT\", rule-id=\"a\"");
}

/* ------------------------------------------------------------------ CORS */
static void cors_patterns(void **state)
{
    (void)state;
    assert_true(s3_cors_glob(TARN_STR("*"), TARN_STR("")));
    assert_true(s3_cors_glob(TARN_STR("*"), TARN_STR("http://a")));
    assert_true(s3_cors_glob(TARN_STR("http://*.x.org"), TARN_STR("http://a.b.x.org")));
    assert_true(s3_cors_glob(TARN_STR("http://*.x.org"), TARN_STR("http://.x.org")));
    assert_false(s3_cors_glob(TARN_STR("http://*.x.org"), TARN_STR("http://x.org")));
    assert_false(s3_cors_glob(TARN_STR("ab*ba"), TARN_STR("aba"))); /* head and tail don't overlap */
    assert_true(s3_cors_glob(TARN_STR("ab*ba"), TARN_STR("abba")));
    assert_false(s3_cors_glob(TARN_STR("a"), TARN_STR("b")));
    assert_true(s3_cors_glob(TARN_STR("a"), TARN_STR("a")));
}

/* ------------------------------------------------------------------ routes */
/* Within a method and resource, a row that asks for less stands behind those that ask for more, or it would hide them. */
static void no_route_hides_another(void **state)
{
    (void)state;
    for (size_t i = 0; i < s3_routes_n; i++) {
        const s3_route *a = &s3_routes[i];
        assert_true(a->action != NULL || (a->flags & S3_F_OWN_AUTH));
        for (size_t k = i + 1; k < s3_routes_n; k++) {
            const s3_route *b = &s3_routes[k];
            if (a->resource != b->resource || strcmp(a->method, b->method) != 0)
                continue;
            bool plain = a->query_key == NULL && a->header == NULL;
            bool same_key = a->query_key != NULL && b->query_key != NULL && strcmp(a->query_key, b->query_key) == 0;
            if (plain || (same_key && a->query_key2 == NULL && a->header == NULL))
                fail_msg("%s hides %s", a->operation, b->operation);
            if (strcmp(a->operation, b->operation) == 0)
                fail_msg("%s is there twice", a->operation);
        }
    }
}

#define T(x) cmocka_unit_test_setup_teardown(x, fake_setup, fake_teardown)
int main(void)
{
    const struct CMUnitTest tests[] = {
        T(tag_headers),      T(tag_lengths), T(tag_documents), T(rules_that_are_good), T(rules_that_are_bad), T(rule_limits),
        T(rules_round_trip), T(rules_match), T(times),         T(first_expiration),    T(cors_patterns),      T(no_route_hides_another),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
