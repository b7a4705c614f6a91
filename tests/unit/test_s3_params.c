/* SPDX-License-Identifier: Apache-2.0 */
/* Parameters and headers: ranges, ETag lists, conditions, checksums, names, copy sources, version ids, user metadata. */
#include "s3_fake.h"

static void ranges(void **state)
{
    static const struct {
        const char *header;
        uint64_t size;
        s3_range_result want;
        uint64_t off, len;
    } t[] = {
        {"bytes=0-0", 1, S3_RANGE_OK, 0, 1},
        {"bytes=0-9", 10, S3_RANGE_OK, 0, 10},
        {"bytes=0-10", 10, S3_RANGE_OK, 0, 10},
        {"bytes=9-9", 10, S3_RANGE_OK, 9, 1},
        {"bytes=10-10", 10, S3_RANGE_UNSATISFIABLE, 0, 0},
        {"bytes=3-", 10, S3_RANGE_OK, 3, 7},
        {"bytes=10-", 10, S3_RANGE_UNSATISFIABLE, 0, 0},
        {"bytes=-3", 10, S3_RANGE_OK, 7, 3},
        {"bytes=-10", 10, S3_RANGE_OK, 0, 10},
        {"bytes=-11", 10, S3_RANGE_OK, 0, 10},
        {"bytes=-0", 10, S3_RANGE_UNSATISFIABLE, 0, 0},
        {"bytes=0-", 0, S3_RANGE_UNSATISFIABLE, 0, 0},
        {"bytes=-1", 0, S3_RANGE_NONE, 0, 0},
        {"bytes=0-18446744073709551615", 10, S3_RANGE_OK, 0, 10},
        {"bytes=1-99999999999999999999999", 10, S3_RANGE_OK, 1, 9},
        {"bytes=-99999999999999999999999", 10, S3_RANGE_OK, 0, 10},
        {"bytes=99999999999999999999999-", 10, S3_RANGE_UNSATISFIABLE, 0, 0},
        {"BYTES=1-2", 10, S3_RANGE_OK, 1, 2},
        {"bytes= 1-2", 10, S3_RANGE_NONE, 0, 0},
        {"bytes=1 -2", 10, S3_RANGE_NONE, 0, 0},
        /* what is no single range of bytes is not looked at */
        {"bytes=5-3", 10, S3_RANGE_NONE, 0, 0},
        {"bytes=0-1,3-4", 10, S3_RANGE_NONE, 0, 0},
        {"bytes=", 10, S3_RANGE_NONE, 0, 0},
        {"bytes=-", 10, S3_RANGE_NONE, 0, 0},
        {"bytes=a-b", 10, S3_RANGE_NONE, 0, 0},
        {"bytes=1", 10, S3_RANGE_NONE, 0, 0},
        {"bytes=+1-2", 10, S3_RANGE_NONE, 0, 0},
        {"bytes=--1", 10, S3_RANGE_NONE, 0, 0},
        {"lines=0-1", 10, S3_RANGE_NONE, 0, 0},
        {"", 10, S3_RANGE_NONE, 0, 0},
    };
    (void)state;
    for (size_t i = 0; i < TARN_ARRAY_LEN(t); i++) {
        uint64_t off = 0, len = 0;
        s3_range_result got = s3_range_parse(tarn_str_of(t[i].header), t[i].size, &off, &len);
        if (got != t[i].want || (got == S3_RANGE_OK && (off != t[i].off || len != t[i].len)))
            fail_msg("%s of %llu: %d %llu %llu", t[i].header, (unsigned long long)t[i].size, (int)got, (unsigned long long)off,
                     (unsigned long long)len);
    }
    assert_int_equal(s3_range_parse(TARN_STR_NULL, 10, &(uint64_t){0}, &(uint64_t){0}), S3_RANGE_NONE);
}

static void etags(void **state)
{
    tarn_str t;
    (void)state;
    assert_true(s3_etag_strip(TARN_STR("\"abc\""), &t));
    assert_str(t, "abc");
    assert_true(s3_etag_strip(TARN_STR(" W/\"abc\" "), &t));
    assert_str(t, "abc");
    assert_true(s3_etag_strip(TARN_STR("abc"), &t));
    assert_str(t, "abc");
    assert_true(s3_etag_strip(TARN_STR("*"), &t));
    assert_str(t, "*");
    assert_true(s3_etag_strip(TARN_STR("\""), &t)); /* a lone quote is a text of its own */
    assert_false(s3_etag_strip(TARN_STR("\"\""), &t));
    assert_false(s3_etag_strip(TARN_STR("  "), &t));
    assert_false(s3_etag_strip(TARN_STR_NULL, &t));
}

/* Headers as "name: value" lines; the object was changed at FAKE_NOW_MS and has the ETag "abc". */
static tarn_err conditions(fake *f, const char *prefix, const char *n1, const char *v1, const char *n2, const char *v2)
{
    const tarn_version_row row = {.etag = TARN_STR("abc"), .mtime_ms = FAKE_NOW_MS + 678};
    fake_reset(f);
    if (n1 != NULL)
        fake_header(f, n1, v1);
    if (n2 != NULL)
        fake_header(f, n2, v2);
    return s3_check_conditions(&f->c, prefix, &row);
}

#define BEFORE "Fri, 02 Jan 2026 03:04:04 GMT"
#define SAME "Fri, 02 Jan 2026 03:04:05 GMT"
#define AFTER "Fri, 02 Jan 2026 03:04:06 GMT"

static void reading_conditions(void **state)
{
    fake *f = *state;
    const tarn_err ok = TARN_OK, failed = TARN_E_PRECONDITION_FAILED, same = TARN_E_NOT_MODIFIED;
    assert_int_equal(conditions(f, "", NULL, NULL, NULL, NULL), ok);
    assert_int_equal(conditions(f, "", "If-Match", "\"abc\"", NULL, NULL), ok);
    assert_int_equal(conditions(f, "", "If-Match", "abc", NULL, NULL), ok);
    assert_int_equal(conditions(f, "", "If-Match", "*", NULL, NULL), ok);
    assert_int_equal(conditions(f, "", "If-Match", "\"x\", \"abc\"", NULL, NULL), ok);
    assert_int_equal(conditions(f, "", "If-Match", "\"x\",\"y\"", NULL, NULL), failed);
    assert_int_equal(conditions(f, "", "If-None-Match", "\"abc\"", NULL, NULL), same);
    assert_int_equal(conditions(f, "", "If-None-Match", "*", NULL, NULL), same);
    assert_int_equal(conditions(f, "", "If-None-Match", "\"x\", \"abc\"", NULL, NULL), same);
    assert_int_equal(conditions(f, "", "If-None-Match", "\"x\"", NULL, NULL), ok);
    assert_int_equal(conditions(f, "", "If-Modified-Since", BEFORE, NULL, NULL), ok);
    assert_int_equal(conditions(f, "", "If-Modified-Since", SAME, NULL, NULL), same);
    assert_int_equal(conditions(f, "", "If-Modified-Since", AFTER, NULL, NULL), same);
    assert_int_equal(conditions(f, "", "If-Modified-Since", "yesterday", NULL, NULL), ok);
    assert_int_equal(conditions(f, "", "If-Unmodified-Since", BEFORE, NULL, NULL), failed);
    assert_int_equal(conditions(f, "", "If-Unmodified-Since", SAME, NULL, NULL), ok);
    assert_int_equal(conditions(f, "", "If-Unmodified-Since", AFTER, NULL, NULL), ok);
    /* a list of tags goes before a date */
    assert_int_equal(conditions(f, "", "If-Match", "\"abc\"", "If-Unmodified-Since", BEFORE), ok);
    assert_int_equal(conditions(f, "", "If-None-Match", "\"x\"", "If-Modified-Since", AFTER), ok);
    assert_int_equal(conditions(f, "", "If-None-Match", "\"abc\"", "If-Modified-Since", BEFORE), same);
    assert_int_equal(conditions(f, "", "If-Match", "\"x\"", "If-None-Match", "\"abc\""), failed);
    /* a copy answers 412 for all */
    assert_int_equal(conditions(f, "x-amz-copy-source-", "x-amz-copy-source-if-none-match", "\"abc\"", NULL, NULL), failed);
    assert_int_equal(conditions(f, "x-amz-copy-source-", "x-amz-copy-source-if-modified-since", AFTER, NULL, NULL), failed);
    assert_int_equal(conditions(f, "x-amz-copy-source-", "x-amz-copy-source-if-match", "\"abc\"", NULL, NULL), ok);
    assert_int_equal(conditions(f, "x-amz-copy-source-", "If-Match", "\"x\"", NULL, NULL), ok); /* the destination's */
}

static void writing_conditions(void **state)
{
    fake *f = *state;
    tarn_put_conditions c;
    assert_int_equal(s3_put_conditions(&f->c, &c), TARN_OK);
    assert_true(!c.if_none_match_any && c.if_match.n == 0 && c.if_none_match.n == 0);
    fake_header(f, "If-None-Match", "*");
    assert_int_equal(s3_put_conditions(&f->c, &c), TARN_OK);
    assert_true(c.if_none_match_any);
    fake_header(f, "If-Match", "\"abc\"");
    assert_int_equal(s3_put_conditions(&f->c, &c), TARN_E_NOT_IMPLEMENTED);
    fake_reset(f);
    fake_header(f, "If-Match", "\"abc\"");
    assert_int_equal(s3_put_conditions(&f->c, &c), TARN_OK);
    assert_str(c.if_match, "abc");
    fake_reset(f);
    fake_header(f, "If-Match", "\"\"");
    assert_int_equal(s3_put_conditions(&f->c, &c), TARN_E_INVALID_ARGUMENT);
}

static void checksums(void **state)
{
    fake *f = *state;
    tarn_checksum s;
    assert_true(s3_checksum_parse(TARN_SUM_CRC32, TARN_STR("AAECAw=="), &s));
    assert_int_equal(s.type, TARN_SUM_FULL_OBJECT);
    assert_memory_equal(s.value, "\0\1\2\3", 4);
    assert_str(s3_checksum_text(f->r.a, &s), "AAECAw==");
    assert_true(s3_checksum_parse(TARN_SUM_CRC32, TARN_STR(" AAECAw==-10000 "), &s));
    assert_int_equal(s.type, TARN_SUM_COMPOSITE);
    assert_int_equal(s.parts_n, 10000);
    assert_str(s3_checksum_text(f->r.a, &s), "AAECAw==-10000");
    static const char *const bad[] = {"",           "AAECAw",         "AAEC",       "AAECAwQ=", "AAECAw==-",
                                      "AAECAw==-0", "AAECAw==-10001", "AAECAw==-x", "-1",       "!!!!!!=="};
    for (size_t i = 0; i < TARN_ARRAY_LEN(bad); i++)
        assert_false(s3_checksum_parse(TARN_SUM_CRC32, tarn_str_of(bad[i]), &s));
    /* every kind: its own length and no other */
    static const tarn_sum_kind kinds[] = {TARN_SUM_CRC32, TARN_SUM_CRC32C, TARN_SUM_CRC64NVME, TARN_SUM_SHA1, TARN_SUM_SHA256};
    for (size_t i = 0; i < TARN_ARRAY_LEN(kinds); i++) {
        s = (tarn_checksum){.kind = kinds[i], .type = TARN_SUM_FULL_OBJECT};
        for (size_t k = 0; k < sizeof s.value; k++)
            s.value[k] = (uint8_t)(k * 7 + i);
        tarn_checksum back;
        assert_true(s3_checksum_parse(kinds[i], s3_checksum_text(f->r.a, &s), &back));
        assert_memory_equal(back.value, s.value, tarn_sum_bytes(kinds[i]));
    }
    assert_false(s3_checksum_parse(TARN_SUM_SHA256, TARN_STR("AAECAw=="), &s));
}

static void digests(void **state)
{
    fake *f = *state;
    s3_digests d;
    assert_int_equal(s3_digests_parse(&f->c, &d), TARN_OK);
    fake_header(f, "Content-MD5", "1B2M2Y8AsgTpgAmY7PhCfg==");
    fake_header(f, "x-amz-checksum-crc32", "AAECAw==");
    fake_header(f, "x-amz-checksum-mode", "ENABLED");
    fake_header(f, "x-amz-sdk-checksum-algorithm", "CRC32");
    assert_int_equal(s3_digests_parse(&f->c, &d), TARN_OK);
    assert_true(d.has_md5 && d.checksum.kind == TARN_SUM_CRC32 && d.algorithm == TARN_SUM_CRC32);
    fake_header(f, "x-amz-checksum-sha1", "2jmj7l5rSw0yVb/vlWAYkK/YBwk=");
    assert_int_equal(s3_digests_parse(&f->c, &d), TARN_E_INVALID_REQUEST); /* two of them */

    static const struct {
        const char *name, *value;
        tarn_err want;
    } t[] = {
        {"Content-MD5", "", TARN_E_INVALID_DIGEST},
        {"Content-MD5", "1B2M2Y8AsgTpgAmY7PhCfg", TARN_E_INVALID_DIGEST},
        {"Content-MD5", "AAECAw==", TARN_E_INVALID_DIGEST},
        {"x-amz-checksum-crc32", "AAEC", TARN_E_INVALID_REQUEST},
        {"x-amz-checksum-crc32", "AAECAw==-2", TARN_E_INVALID_REQUEST}, /* of a body: no count of parts */
        {"x-amz-checksum-adler32", "AAECAw==", TARN_E_INVALID_REQUEST},
        {"x-amz-sdk-checksum-algorithm", "CRC32", TARN_E_INVALID_REQUEST}, /* and no checksum */
        {"x-amz-checksum-algorithm", "CRC32", TARN_OK},
        {"x-amz-checksum-algorithm", "ADLER", TARN_E_INVALID_REQUEST},
        {"x-amz-trailer", "x-amz-checksum-crc32c", TARN_OK},
        {"x-amz-trailer", "x-amz-checksum-crc32c,x-amz-checksum-sha1", TARN_E_INVALID_REQUEST},
        {"x-amz-trailer", "x-amz-meta-a", TARN_E_INVALID_REQUEST},
    };
    for (size_t i = 0; i < TARN_ARRAY_LEN(t); i++) {
        fake_reset(f);
        fake_header(f, t[i].name, t[i].value);
        tarn_err e = s3_digests_of_body(&f->c, &d);
        if (e != t[i].want)
            fail_msg("%s: %s gave %s", t[i].name, t[i].value, tarn_err_get(e)->name);
    }
    fake_reset(f);
    fake_header(f, "x-amz-trailer", "x-amz-checksum-crc32c");
    assert_int_equal(s3_digests_parse(&f->c, &d), TARN_OK);
    assert_int_equal(d.trailer_kind, TARN_SUM_CRC32C);
}

static void small_bodies(void **state)
{
    fake *f = *state;
    tarn_str body;
    fake_body(f, TARN_STR("hello"));
    fake_header(f, "Content-MD5", "XUFAKrxLKna5cZ2REBfFkg==");
    assert_int_equal(s3_read_body(&f->c, 5, &body), TARN_OK);
    assert_str(body, "hello");
    assert_int_equal(s3_read_body(&f->c, 4, &body), TARN_E_ENTITY_TOO_LARGE);
    f->r.headers[0].value = TARN_STR("1B2M2Y8AsgTpgAmY7PhCfg==");
    assert_int_equal(s3_read_body(&f->c, 5, &body), TARN_E_BAD_DIGEST);
    fake_reset(f);
    fake_body(f, TARN_STR("hello"));
    fake_header(f, "x-amz-checksum-crc32", "NhCmhg==");
    assert_int_equal(s3_read_body(&f->c, 5, &body), TARN_OK);
    f->r.headers[0].value = TARN_STR("NhCmhw==");
    assert_int_equal(s3_read_body(&f->c, 5, &body), TARN_E_BAD_DIGEST);
    fake_reset(f);
    fake_body(f, TARN_STR("hello"));
    f->c.auth.payload = TARN_PAYLOAD_SHA256;
    assert_int_equal(s3_read_body(&f->c, 5, &body), TARN_E_CONTENT_SHA256_MISMATCH);
    tarn_sha256("hello", 5, f->c.auth.expect_sha256);
    assert_int_equal(s3_read_body(&f->c, 5, &body), TARN_OK);
}

static void lengths(void **state)
{
    fake *f = *state;
    uint64_t n;
    assert_int_equal(s3_payload_length(&f->c, &n), TARN_E_MISSING_CONTENT_LENGTH);
    fake_body(f, TARN_STR(""));
    assert_int_equal(s3_payload_length(&f->c, &n), TARN_OK);
    assert_int_equal(n, 0);
    f->c.auth.has_decoded_length = true;
    f->c.auth.decoded_length = 77;
    f->r.has_length = false;
    assert_int_equal(s3_payload_length(&f->c, &n), TARN_OK);
    assert_int_equal(n, 77);
}

static void bucket_names(void **state)
{
    fake *f = *state;
    static const char *const good[] = {"abc", "a-b", "a.b", "0a0", "my-bucket.example.com", "1.2.3", "1.2.3.4.5", "1.2.3.x"};
    static const char *const bad[] = {"",          "ab",       "-ab",     "ab-",    ".ab",         "ab.",        "a..b",
                                      "ABC",       "a_b",      "a b",     "a/b",    "1.2.3.4",     "xn--ab",     "sthree-ab",
                                      "a-s3alias", "a--ol-s3", "a--x-s3", "a.mrap", "a--table-s3", "\xC3\xA4-bc"};
    for (size_t i = 0; i < TARN_ARRAY_LEN(good); i++)
        if (!tarn_bucket_name_valid(tarn_str_of(good[i])))
            fail_msg("%s is a good name", good[i]);
    for (size_t i = 0; i < TARN_ARRAY_LEN(bad); i++)
        if (tarn_bucket_name_valid(tarn_str_of(bad[i])))
            fail_msg("%s is a bad name", bad[i]);
    assert_true(tarn_bucket_name_valid(fake_repeat(f, "a", TARN_BUCKET_NAME_BYTES_MAX)));
    assert_false(tarn_bucket_name_valid(fake_repeat(f, "a", TARN_BUCKET_NAME_BYTES_MAX + 1)));
    assert_false(tarn_bucket_name_valid(TARN_STR("ab\0c")));
}

static void keys(void **state)
{
    fake *f = *state;
    assert_int_equal(s3_check_key(&f->c, fake_repeat(f, "k", TARN_KEY_BYTES_MAX)), TARN_OK);
    assert_int_equal(s3_check_key(&f->c, fake_repeat(f, "k", TARN_KEY_BYTES_MAX + 1)), TARN_E_KEY_TOO_LONG);
    assert_int_equal(s3_check_key(&f->c, TARN_STR("../a/./b//")), TARN_OK);
    assert_int_equal(s3_check_key(&f->c, TARN_STR("\xC3")), TARN_E_INVALID_URI);
}

static tarn_err copy_source(fake *f, const char *text, const char *bucket, const char *key, tarn_version_sel sel)
{
    tarn_str b, k;
    tarn_version_ref ref;
    fake_reset(f);
    fake_header(f, "x-amz-copy-source", text);
    tarn_err e = s3_copy_source(&f->c, &b, &k, &ref);
    if (e == TARN_OK) {
        assert_str(b, bucket);
        assert_str(k, key);
        assert_int_equal(ref.sel, sel);
    }
    return e;
}

static void copy_sources(void **state)
{
    fake *f = *state;
    const tarn_err bad = TARN_E_INVALID_ARGUMENT;
    assert_int_equal(copy_source(f, "b/k", "b", "k", TARN_VERSION_CURRENT), TARN_OK);
    assert_int_equal(copy_source(f, "/b/k/l", "b", "k/l", TARN_VERSION_CURRENT), TARN_OK);
    assert_int_equal(copy_source(f, "b//k", "b", "/k", TARN_VERSION_CURRENT), TARN_OK);
    assert_int_equal(copy_source(f, "b/../c/k", "b", "../c/k", TARN_VERSION_CURRENT), TARN_OK); /* a key like any other */
    assert_int_equal(copy_source(f, "b%2Fk%20%C3%A4", "b", "k \xC3\xA4", TARN_VERSION_CURRENT), TARN_OK);
    assert_int_equal(copy_source(f, "b/a+b", "b", "a+b", TARN_VERSION_CURRENT), TARN_OK);
    assert_int_equal(copy_source(f, "b/k?versionId=null", "b", "k", TARN_VERSION_NULL), TARN_OK);
    assert_int_equal(copy_source(f, "b/k%3FversionId=null", "b", "k?versionId=null", TARN_VERSION_CURRENT), TARN_OK);
    assert_int_equal(copy_source(f, "b/k?versionId=0123456789abcdef0123456789abcdef", "b", "k", TARN_VERSION_ID), TARN_OK);
    assert_int_equal(copy_source(f, "b/k?versionId=", "", "", TARN_VERSION_CURRENT), bad);
    assert_int_equal(copy_source(f, "b/k?versionId=x", "", "", TARN_VERSION_CURRENT), bad);
    assert_int_equal(copy_source(f, "", "", "", TARN_VERSION_CURRENT), bad);
    assert_int_equal(copy_source(f, "b", "", "", TARN_VERSION_CURRENT), bad);
    assert_int_equal(copy_source(f, "b/", "", "", TARN_VERSION_CURRENT), bad);
    assert_int_equal(copy_source(f, "/", "", "", TARN_VERSION_CURRENT), bad);
    assert_int_equal(copy_source(f, "//k", "", "", TARN_VERSION_CURRENT), bad);
    assert_int_equal(copy_source(f, "b/%zz", "", "", TARN_VERSION_CURRENT), bad);
    assert_int_equal(copy_source(f, "b/a%00b", "", "", TARN_VERSION_CURRENT), bad);
    assert_int_equal(copy_source(f, "b/%FF", "", "", TARN_VERSION_CURRENT), TARN_E_INVALID_URI);
}

static void versions(void **state)
{
    fake *f = *state;
    tarn_version_ref ref;
    assert_int_equal(s3_version_param(&f->c, &ref), TARN_OK);
    assert_int_equal(ref.sel, TARN_VERSION_CURRENT);
    static const struct {
        const char *text;
        tarn_err want;
    } t[] = {{"null", TARN_OK},
             {"0123456789abcdef0123456789abcdef", TARN_OK},
             {"", TARN_E_INVALID_ARGUMENT},
             {"Null", TARN_E_INVALID_ARGUMENT},
             {"0123456789abcdef0123456789abcde", TARN_E_INVALID_ARGUMENT},
             {"0123456789abcdef0123456789abcdef0", TARN_E_INVALID_ARGUMENT},
             {"0123456789abcdef0123456789abcdeg", TARN_E_INVALID_ARGUMENT}};
    for (size_t i = 0; i < TARN_ARRAY_LEN(t); i++) {
        fake_reset(f);
        fake_param(f, "versionId", t[i].text);
        assert_int_equal(s3_version_param(&f->c, &ref), t[i].want);
    }
}

static void numbers(void **state)
{
    fake *f = *state;
    uint64_t n;
    static const struct {
        const char *text;
        tarn_err want;
        uint64_t value;
    } t[] = {{"", TARN_OK, 5},
             {"0", TARN_OK, 0},
             {"1000", TARN_OK, 1000},
             {"1001", TARN_OK, 1000},
             {"2147483647", TARN_OK, 1000},
             {"2147483648", TARN_E_INVALID_ARGUMENT, 0},
             {"-1", TARN_E_INVALID_ARGUMENT, 0},
             {"x", TARN_E_INVALID_ARGUMENT, 0}};
    assert_int_equal(s3_number_param(&f->c, "max-keys", 5, 1000, &n), TARN_OK);
    assert_int_equal(n, 5);
    for (size_t i = 0; i < TARN_ARRAY_LEN(t); i++) {
        fake_reset(f);
        fake_param(f, "max-keys", t[i].text);
        assert_int_equal(s3_number_param(&f->c, "max-keys", 5, 1000, &n), t[i].want);
        if (t[i].want == TARN_OK)
            assert_int_equal(n, t[i].value);
    }
}

static void user_metadata(void **state)
{
    fake *f = *state;
    tarn_attrs a;
    fake_header(f, "x-amz-meta-Color", "red");
    fake_header(f, "X-Amz-Meta-size", "1");
    fake_header(f, "x-amz-meta-COLOR", "blue");
    fake_header(f, "Content-Encoding", "aws-chunked, gzip");
    fake_header(f, "x-amz-storage-class", "STANDARD");
    assert_int_equal(s3_attrs_from_headers(&f->c, &a), TARN_OK);
    assert_int_equal(a.user_meta_n, 2);
    assert_str(a.user_meta[0].name, "color");
    assert_str(a.user_meta[0].value, "red,blue");
    assert_str(a.user_meta[1].name, "size");
    assert_str(a.content_encoding, "gzip");
    assert_int_equal(a.storage_class.n, 0);
    /* 2 KiB of names and values, and one byte more */
    fake_reset(f);
    fake_header(f, "x-amz-meta-abcd", fake_repeat(f, "v", TARN_USER_META_BYTES_MAX - 4).p);
    assert_int_equal(s3_attrs_from_headers(&f->c, &a), TARN_OK);
    fake_header(f, "x-amz-meta-", "1");
    assert_int_equal(s3_attrs_from_headers(&f->c, &a), TARN_E_METADATA_TOO_LARGE);
}

static void attributes_that_are_refused(void **state)
{
    static const struct {
        const char *name, *value;
        tarn_err want;
    } t[] = {
        {"x-amz-acl", "private", TARN_OK},
        {"x-amz-acl", "bucket-owner-full-control", TARN_OK},
        {"x-amz-acl", "public-read", TARN_E_ACL_NOT_SUPPORTED},
        {"x-amz-grant-read", "id=1", TARN_E_ACL_NOT_SUPPORTED},
        {"x-amz-storage-class", "STANDARD_IA", TARN_OK},
        {"x-amz-storage-class", "GLACIER", TARN_E_INVALID_STORAGE_CLASS},
        {"x-amz-storage-class", "standard", TARN_E_INVALID_STORAGE_CLASS},
        {"x-amz-server-side-encryption", "AES256", TARN_E_NOT_IMPLEMENTED},
        {"x-amz-server-side-encryption", "aws:kms", TARN_E_NOT_IMPLEMENTED},
        {"x-amz-server-side-encryption", "rot13", TARN_E_INVALID_ENCRYPTION_ALGORITHM},
        {"x-amz-server-side-encryption-aws-kms-key-id", "k", TARN_E_INVALID_ARGUMENT},
        {"x-amz-server-side-encryption-customer-algorithm", "AES256", TARN_E_INVALID_ARGUMENT},
        {"x-amz-server-side-encryption-customer-key", "AAAA", TARN_E_INVALID_ARGUMENT},
    };
    fake *f = *state;
    for (size_t i = 0; i < TARN_ARRAY_LEN(t); i++) {
        tarn_attrs a;
        fake_reset(f);
        fake_header(f, t[i].name, t[i].value);
        tarn_err e = s3_attrs_from_headers(&f->c, &a);
        if (e != t[i].want)
            fail_msg("%s: %s gave %s", t[i].name, t[i].value, tarn_err_get(e)->name);
    }
}

static void keys_of_clients(void **state)
{
    static const char key[] = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=", md5[] = "tJ69+L8qHIp4zvOg6Yk9ow==";
    fake *f = *state;
    uint8_t raw[TARN_SHA256_BYTES], sum[TARN_MD5_BYTES];
    tarn_sb b;
    char right[32];
    for (size_t i = 0; i < sizeof raw; i++)
        raw[i] = (uint8_t)i;
    tarn_md5(raw, sizeof raw, sum);
    tarn_sb_init_fixed(&b, right, sizeof right);
    tarn_sb_base64(&b, sum, sizeof sum);
    for (int good = 0; good < 2; good++) {
        fake_reset(f);
        fake_header(f, "x-amz-server-side-encryption-customer-algorithm", "AES256");
        fake_header(f, "x-amz-server-side-encryption-customer-key", key);
        fake_header(f, "x-amz-server-side-encryption-customer-key-MD5", good ? right : md5);
        assert_int_equal(s3_refuse_encryption(&f->c), good ? TARN_E_NOT_IMPLEMENTED : TARN_E_INVALID_ARGUMENT);
    }
    fake_reset(f);
    fake_header(f, "x-amz-server-side-encryption-customer-algorithm", "AES256");
    assert_int_equal(s3_refuse_read_encryption(&f->c), TARN_E_INVALID_REQUEST);
}

#define T(x) cmocka_unit_test_setup_teardown(x, fake_setup, fake_teardown)
int main(void)
{
    const struct CMUnitTest tests[] = {
        T(ranges),
        T(etags),
        T(reading_conditions),
        T(writing_conditions),
        T(checksums),
        T(digests),
        T(small_bodies),
        T(lengths),
        T(bucket_names),
        T(keys),
        T(copy_sources),
        T(versions),
        T(numbers),
        T(user_metadata),
        T(attributes_that_are_refused),
        T(keys_of_clients),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
