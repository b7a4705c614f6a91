/* SPDX-License-Identifier: Apache-2.0 */
/* Byte slices: comparison, search, splitting, UTF-8 and numbers, at their limits and one past them. */
#include "tarn/base.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

static void equality(void **state)
{
    (void)state;
    assert_true(tarn_str_eq(TARN_STR("abc"), TARN_STR("abc")));
    assert_false(tarn_str_eq(TARN_STR("abc"), TARN_STR("abC")));
    assert_false(tarn_str_eq(TARN_STR("abc"), TARN_STR("ab")));
    assert_true(tarn_str_eq(TARN_STR_NULL, TARN_STR("")));
    assert_true(tarn_str_eqc(TARN_STR("x"), "x"));
    assert_true(tarn_str_eqc(TARN_STR_NULL, NULL));
    assert_true(tarn_str_ieq(TARN_STR("Content-MD5"), TARN_STR("content-md5")));
    assert_false(tarn_str_ieq(TARN_STR("@"), TARN_STR("`"))); /* beside the letters: not folded */
    assert_false(tarn_str_ieq(TARN_STR("["), TARN_STR("{")));
    assert_false(tarn_str_ieqc(TARN_STR("\xC4"), "\xE4")); /* only ASCII folds */
    assert_true(tarn_str_ieqc(TARN_STR("AZ"), "az"));
}

static void order(void **state)
{
    (void)state;
    assert_int_equal(tarn_str_cmp(TARN_STR("a"), TARN_STR("b")), -1);
    assert_int_equal(tarn_str_cmp(TARN_STR("b"), TARN_STR("a")), 1);
    assert_int_equal(tarn_str_cmp(TARN_STR("a"), TARN_STR("a")), 0);
    assert_int_equal(tarn_str_cmp(TARN_STR("a"), TARN_STR("aa")), -1);
    assert_int_equal(tarn_str_cmp(TARN_STR("aa"), TARN_STR("a")), 1);
    assert_int_equal(tarn_str_cmp(TARN_STR_NULL, TARN_STR("")), 0);
    assert_int_equal(tarn_str_cmp(TARN_STR_NULL, TARN_STR("a")), -1);
    assert_int_equal(tarn_str_cmp(TARN_STR("\x7F"), TARN_STR("\x80")), -1); /* bytes are unsigned */
}

static void prefixes_and_suffixes(void **state)
{
    (void)state;
    assert_true(tarn_str_starts(TARN_STR("bucket/key"), "bucket/"));
    assert_false(tarn_str_starts(TARN_STR("bucket"), "bucket/"));
    assert_true(tarn_str_starts(TARN_STR_NULL, ""));
    assert_true(tarn_str_istarts(TARN_STR("Bearer x"), "bearer "));
    assert_false(tarn_str_istarts(TARN_STR("Beare"), "bearer"));
    assert_true(tarn_str_ends(TARN_STR("a.json"), ".json"));
    assert_false(tarn_str_ends(TARN_STR("json"), ".json"));
    assert_true(tarn_str_ends(TARN_STR_NULL, ""));
}

static void parts(void **state)
{
    (void)state;
    tarn_str s = TARN_STR("0123456789");
    assert_true(tarn_str_eqc(tarn_str_sub(s, 2, 3), "234"));
    assert_true(tarn_str_eqc(tarn_str_sub(s, 9, 1), "9"));
    assert_true(tarn_str_eqc(tarn_str_sub(s, 9, SIZE_MAX), "9"));
    assert_int_equal(tarn_str_sub(s, 10, 1).n, 0);
    assert_int_equal(tarn_str_sub(s, SIZE_MAX, SIZE_MAX).n, 0);
    assert_int_equal(tarn_str_sub(TARN_STR_NULL, 1, 1).n, 0);
    assert_true(tarn_str_eqc(tarn_str_trim(TARN_STR(" \t a b\t ")), "a b"));
    assert_int_equal(tarn_str_trim(TARN_STR(" \t ")).n, 0);
    assert_true(tarn_str_eqc(tarn_str_trim(TARN_STR("\r\n")), "\r\n"));
}

static void search(void **state)
{
    (void)state;
    tarn_str s = TARN_STR("a/b/c");
    assert_int_equal(tarn_str_chr(s, '/'), 1);
    assert_int_equal(tarn_str_rchr(s, '/'), 3);
    assert_int_equal(tarn_str_chr(s, 'x'), -1);
    assert_int_equal(tarn_str_rchr(s, 'x'), -1);
    assert_int_equal(tarn_str_chr(TARN_STR_NULL, '\0'), -1);
    assert_int_equal(tarn_str_find(s, TARN_STR("b/c")), 2);
    assert_int_equal(tarn_str_find(s, TARN_STR("a/b/c/")), -1);
    assert_int_equal(tarn_str_find(s, TARN_STR("")), 0);
    assert_int_equal(tarn_str_find(TARN_STR_NULL, TARN_STR("a")), -1);
}

static void splitting(void **state)
{
    (void)state;
    tarn_str head;
    tarn_str rest;
    assert_true(tarn_str_split(TARN_STR("k=v=w"), '=', &head, &rest));
    assert_true(tarn_str_eqc(head, "k"));
    assert_true(tarn_str_eqc(rest, "v=w"));
    assert_true(tarn_str_split(TARN_STR("k="), '=', &head, &rest));
    assert_non_null(rest.p); /* empty, but there */
    assert_int_equal(rest.n, 0);
    assert_false(tarn_str_split(TARN_STR("k"), '=', &head, &rest));
    assert_true(tarn_str_eqc(head, "k"));
    assert_null(rest.p);
}

static bool utf8(const char *s)
{
    return tarn_str_utf8_valid(tarn_str_of(s));
}

static void utf8_validity(void **state)
{
    (void)state;
    assert_true(tarn_str_utf8_valid(TARN_STR_NULL));
    assert_true(tarn_str_utf8_valid(TARN_STR("nul \0 is a character")));
    assert_true(utf8("\x7F\xC2\x80\xDF\xBF"));
    assert_true(utf8("\xE0\xA0\x80\xED\x9F\xBF\xEE\x80\x80\xEF\xBF\xBF"));
    assert_true(utf8("\xF0\x90\x80\x80\xF4\x8F\xBF\xBF"));
    assert_true(utf8("0123456789abcdef\xE2\x82\xAC"));
    assert_false(utf8("\x80"));                 /* a follower alone */
    assert_false(utf8("\xC0\xAF"));             /* overlong '/' */
    assert_false(utf8("\xC1\xBF"));             /* overlong */
    assert_false(utf8("\xE0\x9F\xBF"));         /* overlong */
    assert_false(utf8("\xF0\x8F\xBF\xBF"));     /* overlong */
    assert_false(utf8("\xED\xA0\x80"));         /* the first surrogate */
    assert_false(utf8("\xED\xBF\xBF"));         /* the last one */
    assert_false(utf8("\xF4\x90\x80\x80"));     /* U+110000 */
    assert_false(utf8("\xF5\x80\x80\x80"));     /* past the lead bytes */
    assert_false(utf8("\xFF"));                 /* never in UTF-8 */
    assert_false(utf8("a\xE2\x82"));            /* cut short */
    assert_false(utf8("\xE2\x28\xA1"));         /* no follower */
    assert_false(utf8("\xE2\x82\x28"));         /* no second follower */
    assert_false(utf8("01234567\xF0\x9F\x98")); /* cut short behind a whole word */
    assert_false(utf8("0123456\x80"
                      "01234567")); /* inside a word */
}

static void unsigned_numbers(void **state)
{
    (void)state;
    uint64_t v = 7;
    assert_true(tarn_str_to_u64(TARN_STR("0"), &v));
    assert_int_equal(v, 0);
    assert_true(tarn_str_to_u64(TARN_STR("18446744073709551615"), &v));
    assert_true(v == UINT64_MAX);
    assert_true(tarn_str_to_u64(TARN_STR("00000000000000000042"), &v)); /* 20 digits */
    assert_int_equal(v, 42);
    v = 7;
    assert_false(tarn_str_to_u64(TARN_STR("18446744073709551616"), &v));
    assert_false(tarn_str_to_u64(TARN_STR("99999999999999999999"), &v));
    assert_false(tarn_str_to_u64(TARN_STR("000000000000000000042"), &v)); /* 21 digits */
    assert_false(tarn_str_to_u64(TARN_STR(""), &v));
    assert_false(tarn_str_to_u64(TARN_STR_NULL, &v));
    assert_false(tarn_str_to_u64(TARN_STR("+1"), &v));
    assert_false(tarn_str_to_u64(TARN_STR("-1"), &v));
    assert_false(tarn_str_to_u64(TARN_STR(" 1"), &v));
    assert_false(tarn_str_to_u64(TARN_STR("1 "), &v));
    assert_false(tarn_str_to_u64(TARN_STR("1:"), &v));
    assert_false(tarn_str_to_u64(TARN_STR("0x1"), &v));
    assert_int_equal(v, 7); /* a failure leaves the number alone */
}

static void signed_numbers(void **state)
{
    (void)state;
    int64_t v = 7;
    assert_true(tarn_str_to_i64(TARN_STR("9223372036854775807"), &v));
    assert_true(v == INT64_MAX);
    assert_true(tarn_str_to_i64(TARN_STR("-9223372036854775808"), &v));
    assert_true(v == INT64_MIN);
    assert_true(tarn_str_to_i64(TARN_STR("-1"), &v));
    assert_int_equal(v, -1);
    assert_true(tarn_str_to_i64(TARN_STR("-0"), &v));
    assert_int_equal(v, 0);
    v = 7;
    assert_false(tarn_str_to_i64(TARN_STR("9223372036854775808"), &v));
    assert_false(tarn_str_to_i64(TARN_STR("-9223372036854775809"), &v));
    assert_false(tarn_str_to_i64(TARN_STR("-"), &v));
    assert_false(tarn_str_to_i64(TARN_STR("--1"), &v));
    assert_false(tarn_str_to_i64(TARN_STR("+1"), &v));
    assert_int_equal(v, 7);
}

static void hex_numbers(void **state)
{
    (void)state;
    uint64_t v = 7;
    assert_true(tarn_hex_to_u64(TARN_STR("ffffffffffffffff"), &v));
    assert_true(v == UINT64_MAX);
    assert_true(tarn_hex_to_u64(TARN_STR("DeadBeef"), &v));
    assert_int_equal(v, 0xDEADBEEF);
    v = 7;
    assert_false(tarn_hex_to_u64(TARN_STR("00000000000000001"), &v)); /* 17 digits */
    assert_false(tarn_hex_to_u64(TARN_STR(""), &v));
    assert_false(tarn_hex_to_u64(TARN_STR("0x1"), &v));
    assert_false(tarn_hex_to_u64(TARN_STR("g"), &v));
    assert_false(tarn_hex_to_u64(TARN_STR("@"), &v));
    assert_int_equal(v, 7);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equality),
        cmocka_unit_test(order),
        cmocka_unit_test(prefixes_and_suffixes),
        cmocka_unit_test(parts),
        cmocka_unit_test(search),
        cmocka_unit_test(splitting),
        cmocka_unit_test(utf8_validity),
        cmocka_unit_test(unsigned_numbers),
        cmocka_unit_test(signed_numbers),
        cmocka_unit_test(hex_numbers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
