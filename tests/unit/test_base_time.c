/* SPDX-License-Identifier: Apache-2.0 */
/* The clock seam and the texts of times, held against the C library over many days. */
#include "tarn/base.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <time.h>

#define MS_PER_DAY INT64_C(86400000)
#define FIRST_MS INT64_C(-62135596800000) /* 0001-01-01 */
#define LAST_MS INT64_C(253402300799999)  /* 9999-12-31T23:59:59.999 */

typedef void writer(tarn_sb *b, int64_t ms);
static char mem[64];

static const char *written(writer *w, int64_t ms)
{
    tarn_sb b;
    tarn_sb_init_fixed(&b, mem, sizeof mem);
    w(&b, ms);
    assert_false(b.failed);
    return mem;
}

static void forms(void **state)
{
    (void)state;
    const int64_t t = INT64_C(1767323045678); /* 2026-01-02, a Friday */
    assert_string_equal(written(tarn_sb_iso8601_ms, t), "2026-01-02T03:04:05.678Z");
    assert_string_equal(written(tarn_sb_iso8601_s, t), "2026-01-02T03:04:05Z");
    assert_string_equal(written(tarn_sb_http_date, t), "Fri, 02 Jan 2026 03:04:05 GMT");
    assert_string_equal(written(tarn_sb_amz_date, t), "20260102T030405Z");
    assert_string_equal(written(tarn_sb_iso8601_ms, 0), "1970-01-01T00:00:00.000Z");
    assert_string_equal(written(tarn_sb_iso8601_ms, -1), "1969-12-31T23:59:59.999Z");
    assert_string_equal(written(tarn_sb_http_date, 0), "Thu, 01 Jan 1970 00:00:00 GMT");
    assert_string_equal(written(tarn_sb_iso8601_ms, FIRST_MS), "0001-01-01T00:00:00.000Z");
    assert_string_equal(written(tarn_sb_iso8601_ms, FIRST_MS - 1), "0001-01-01T00:00:00.000Z");
    assert_string_equal(written(tarn_sb_iso8601_ms, INT64_MIN), "0001-01-01T00:00:00.000Z");
    assert_string_equal(written(tarn_sb_iso8601_ms, LAST_MS), "9999-12-31T23:59:59.999Z");
    assert_string_equal(written(tarn_sb_iso8601_ms, LAST_MS + 1), "9999-12-31T23:59:59.999Z");
    assert_string_equal(written(tarn_sb_iso8601_ms, INT64_MAX), "9999-12-31T23:59:59.999Z");
}

/* Every day from year 1 to 9999 against gmtime, and every form read back. */
static void every_day_agrees_with_the_c_library(void **state)
{
    (void)state;
    char expected[64];
    int64_t second_of_day = 0;
    for (int64_t day = FIRST_MS; day <= LAST_MS; day += MS_PER_DAY) {
        second_of_day = (second_of_day + 7919) % 86400;
        int64_t ms = day + second_of_day * 1000;
        time_t t = (time_t)(ms / 1000);
        struct tm tm;
        assert_non_null(gmtime_r(&t, &tm));
        tm.tm_year += 1900;
        tarn_sb b;
        tarn_sb_init_fixed(&b, expected, sizeof expected);
        tarn_sb_fmt(&b, "%04d-%02d-%02dT%02d:%02d:%02dZ", tm.tm_year, tm.tm_mon + 1, tm.tm_mday, tm.tm_hour, tm.tm_min, tm.tm_sec);
        assert_string_equal(written(tarn_sb_iso8601_s, ms), expected);
        int64_t back = 1;
        assert_true(tarn_parse_iso8601(tarn_str_of(mem), &back));
        assert_int_equal(back, ms);
        (void)written(tarn_sb_http_date, ms);
        static const char days[] = "SunMonTueWedThuFriSat";
        assert_memory_equal(mem, days + 3 * tm.tm_wday, 3);
        assert_true(tarn_parse_http_date(tarn_str_of(mem), &back));
        assert_int_equal(back, ms);
        (void)written(tarn_sb_amz_date, ms);
        assert_true(tarn_parse_amz_date(tarn_str_of(mem), &back));
        assert_int_equal(back, ms);
    }
}

static int64_t iso(const char *s)
{
    int64_t ms = -1;
    return tarn_parse_iso8601(tarn_str_of(s), &ms) ? ms : INT64_MIN;
}

static void iso8601_reading(void **state)
{
    (void)state;
    assert_int_equal(iso("2026-01-02"), INT64_C(1767312000000));
    assert_int_equal(iso("2026-01-02T03:04:05Z"), INT64_C(1767323045000));
    assert_int_equal(iso("2026-01-02t03:04:05z"), INT64_C(1767323045000));
    assert_int_equal(iso("2026-01-02T03:04Z"), INT64_C(1767323040000));
    assert_int_equal(iso("2026-01-02T03:04:05.6Z"), INT64_C(1767323045600));
    assert_int_equal(iso("2026-01-02T03:04:05.6789999999999999999999Z"), INT64_C(1767323045678));
    assert_int_equal(iso("2026-01-02T03:04:05.007+00:00"), INT64_C(1767323045007));
    assert_int_equal(iso("2026-01-02T03:04:05+01:30"), INT64_C(1767323045000) - 90 * 60000);
    assert_int_equal(iso("2026-01-02T03:04:05-01:30"), INT64_C(1767323045000) + 90 * 60000);
    assert_int_equal(iso("2016-12-31T23:59:60Z"), iso("2017-01-01T00:00:00Z"));
    assert_int_equal(iso("2024-02-29"), iso("2024-02-28") + MS_PER_DAY);
    assert_int_not_equal(iso("2000-02-29"), INT64_MIN);
    static const char *const bad[] = {
        "",
        "2026",
        "2026-1-2",
        "2026-01-02T",
        "2026-01-02T03",
        "2026-01-02T03:04:05",
        "2026-01-02T03:04:05.Z",
        "2026-01-02T03:04:05ZZ",
        "2026-01-02T03:04:05Z ",
        " 2026-01-02",
        "2026-01-02 03:04:05Z",
        "2026-01-02T03:04:05+0100",
        "2026-01-02T03:04:05+24:00",
        "2026-01-02T03:04:05+01:60",
        "2026-00-02",
        "2026-13-02",
        "2026-01-00",
        "2026-01-32",
        "2026-02-29",
        "1900-02-29",
        "2026-04-31",
        "0000-01-01",
        "2026-01-02T24:00:00Z",
        "2026-01-02T03:60:05Z",
        "2026-01-02T03:04:61Z",
        "+026-01-02",
        "-026-01-02",
        "2026-+1-02",
        "20260102T030405Z",
    };
    for (size_t i = 0; i < TARN_ARRAY_LEN(bad); i++) {
        if (iso(bad[i]) != INT64_MIN) {
            fail_msg("'%s' was read as a time", bad[i]);
        }
    }
}

static int64_t http(const char *s)
{
    int64_t ms = -1;
    return tarn_parse_http_date(tarn_str_of(s), &ms) ? ms : INT64_MIN;
}

static void http_date_reading(void **state)
{
    (void)state;
    const int64_t t = INT64_C(784111777000); /* the example of RFC 9110 */
    tarn_clock_fake(true, INT64_C(1767323045678));
    assert_int_equal(http("Sun, 06 Nov 1994 08:49:37 GMT"), t);
    assert_int_equal(http("Sunday, 06-Nov-94 08:49:37 GMT"), t);
    assert_int_equal(http("Sun Nov  6 08:49:37 1994"), t);
    assert_int_equal(http("Sun Nov 16 08:49:37 1994"), t + 10 * MS_PER_DAY);
    /* In 2026 "76" is 50 years ahead and stays there; "77" would be 51 and is 1977. */
    assert_int_equal(http("Sunday, 06-Nov-76 08:49:37 GMT"), iso("2076-11-06T08:49:37Z"));
    assert_int_equal(http("Sunday, 06-Nov-77 08:49:37 GMT"), iso("1977-11-06T08:49:37Z"));
    tarn_clock_fake(false, 0);
    static const char *const bad[] = {
        "",
        "Sun, 6 Nov 1994 08:49:37 GMT",
        "Sun, 06 Nov 1994 08:49:37",
        "Sun, 06 Nov 1994 08:49:37 UTC",
        "Sun, 06 Nov 1994 08:49:37 GMT ",
        "Sun, 06 Nov 1994 8:49:37 GMT",
        "Sun, 31 Nov 1994 08:49:37 GMT",
        "Xyz, 06 Nov 1994 08:49:37 GMT",
        "Sun, 06 Xyz 1994 08:49:37 GMT",
        "Xyzday, 06-Nov-94 08:49:37 GMT",
        "Sun, 06-Nov-94 08:49:37 GMT",
        "Sun Nov 6 08:49:37 1994",
        "Sun Nov  6 08:49:37 1994 GMT",
        "1994-11-06T08:49:37Z",
    };
    for (size_t i = 0; i < TARN_ARRAY_LEN(bad); i++) {
        if (http(bad[i]) != INT64_MIN) {
            fail_msg("'%s' was read as a time", bad[i]);
        }
    }
}

static void amz_date_reading(void **state)
{
    (void)state;
    int64_t ms = 5;
    assert_true(tarn_parse_amz_date(TARN_STR("20130524T000000Z"), &ms));
    assert_int_equal(ms, INT64_C(1369353600000));
    static const char *const bad[] = {
        "", "20130524T000000", "20130524T000000z", "20130524T000000Z0", "20130524 000000Z", "2013-05-24T00:00:00Z", "20130524"};
    ms = 5;
    for (size_t i = 0; i < TARN_ARRAY_LEN(bad); i++) {
        assert_false(tarn_parse_amz_date(tarn_str_of(bad[i]), &ms));
    }
    assert_int_equal(ms, 5);
}

static void fake_clock(void **state)
{
    (void)state;
    int64_t real = tarn_now_ms();
    assert_true(real > INT64_C(1700000000000));
    tarn_clock_fake(true, 1000);
    uint64_t mono = tarn_mono_ns();
    assert_int_equal(tarn_now_ms(), 1000);
    tarn_clock_advance(999999); /* not a millisecond yet */
    assert_int_equal(tarn_now_ms(), 1000);
    tarn_clock_advance(1);
    assert_int_equal(tarn_now_ms(), 1001);
    assert_int_equal(tarn_mono_ns() - mono, 1000000);
    tarn_clock_fake(true, 5);
    assert_int_equal(tarn_now_ms(), 5);
    tarn_clock_fake(false, 0);
    assert_true(tarn_now_ms() >= real);
    uint64_t a = tarn_mono_ns();
    assert_true(tarn_mono_ns() >= a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(forms),
        cmocka_unit_test(every_day_agrees_with_the_c_library),
        cmocka_unit_test(iso8601_reading),
        cmocka_unit_test(http_date_reading),
        cmocka_unit_test(amz_date_reading),
        cmocka_unit_test(fake_clock),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
