/* SPDX-License-Identifier: Apache-2.0 */
/* The string builder and the reader of packed records. */
#include "tarn/base.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>

static void puts_things_together(void **state)
{
    (void)state;
    tarn_sb b;
    tarn_sb_init(&b, 1000);
    assert_int_equal(tarn_sb_view(&b).n, 0);
    assert_non_null(tarn_sb_view(&b).p);
    tarn_sb_cstr(&b, "a");
    tarn_sb_cstr(&b, NULL);
    tarn_sb_char(&b, '-');
    tarn_sb_str(&b, TARN_STR("bc"));
    tarn_sb_bytes(&b, NULL, 0);
    tarn_sb_u64(&b, 0);
    tarn_sb_char(&b, ' ');
    tarn_sb_u64(&b, UINT64_MAX);
    tarn_sb_char(&b, ' ');
    tarn_sb_i64(&b, INT64_MIN);
    tarn_sb_i64(&b, 5);
    tarn_sb_hex(&b, "\x00\xAF", 2);
    tarn_sb_fmt(&b, "[%s:%d]", "x", -3);
    assert_string_equal(b.p, "a-bc0 18446744073709551615 -9223372036854775808500af[x:-3]");
    assert_true(tarn_str_eqc(tarn_sb_view(&b), b.p));
    tarn_sb_reset(&b);
    assert_int_equal(b.n, 0);
    assert_string_equal(b.p, "");
    tarn_sb_free(&b);
    assert_null(b.p);
}

static void numbers_agree_with_printf(void **state)
{
    (void)state;
    char mem[32];
    char expected[32];
    tarn_random_seed(7);
    for (unsigned i = 0; i < 2000; i++) {
        uint64_t v = tarn_random_u64() >> (tarn_random_u64() % 64);
        tarn_sb b;
        tarn_sb_init_fixed(&b, mem, sizeof mem);
        tarn_sb_u64(&b, v);
        assert_true(snprintf(expected, sizeof expected, "%llu", (unsigned long long)v) > 0);
        assert_string_equal(b.p, expected);
        tarn_sb_reset(&b);
        tarn_sb_i64(&b, (int64_t)v);
        assert_true(snprintf(expected, sizeof expected, "%lld", (long long)v) > 0);
        assert_string_equal(b.p, expected);
        int64_t back;
        assert_true(tarn_str_to_i64(tarn_sb_view(&b), &back));
        assert_true(back == (int64_t)v);
    }
    tarn_random_seed(0);
}

static void maximum_and_one_past(void **state)
{
    (void)state;
    for (size_t max = 0; max < 400; max++) {
        tarn_sb b;
        tarn_sb_init(&b, max);
        for (size_t i = 0; i < max; i++) {
            tarn_sb_char(&b, 'x');
        }
        assert_false(b.failed);
        assert_int_equal(tarn_sb_view(&b).n, max);
        tarn_sb_char(&b, 'y');
        assert_true(b.failed);
        assert_int_equal(tarn_sb_view(&b).n, 0);
        tarn_sb_cstr(&b, "");
        assert_true(b.failed); /* sticky */
        tarn_sb_reset(&b);
        assert_false(b.failed);
        tarn_sb_fmt(&b, "%*s", (int)max, "");
        assert_false(b.failed);
        assert_int_equal(b.n, max);
        tarn_sb_reset(&b);
        tarn_sb_fmt(&b, "%*s", (int)max + 1, "");
        assert_true(b.failed);
        tarn_sb_free(&b);
    }
}

static void fixed_memory(void **state)
{
    (void)state;
    char mem[9];
    memset(mem, '#', sizeof mem);
    tarn_sb b;
    uint64_t before = tarn_alloc_count();
    tarn_sb_init_fixed(&b, mem, 8);
    tarn_sb_cstr(&b, "1234567");
    assert_false(b.failed);
    assert_string_equal(mem, "1234567");
    tarn_sb_char(&b, '8');
    assert_true(b.failed);
    tarn_sb_reset(&b);
    tarn_sb_fmt(&b, "%s", "12345678");
    assert_true(b.failed);
    assert_string_equal(mem, ""); /* no half of it stays */
    tarn_sb_reset(&b);
    tarn_sb_hex(&b, "abc", 3);
    tarn_sb_hex(&b, "a", 1);
    assert_true(b.failed);
    tarn_sb_reset(&b);
    tarn_sb_cstr(&b, "123456");
    tarn_sb_i64(&b, -1);
    assert_true(b.failed);
    assert_int_equal(b.n, 6); /* no sign without its number */
    assert_int_equal(mem[8], '#');
    tarn_sb_free(&b);
    tarn_sb_init_fixed(&b, mem, 0);
    assert_true(b.failed);
    tarn_sb_reset(&b);
    assert_true(b.failed);
    tarn_sb_char(&b, 'x');
    assert_int_equal(mem[0], '1');
    tarn_sb_init_fixed(&b, mem, 1);
    assert_false(b.failed);
    tarn_sb_char(&b, 'x');
    assert_true(b.failed);
    assert_int_equal(tarn_alloc_count(), before);
}

static void reserve(void **state)
{
    (void)state;
    tarn_sb b;
    tarn_sb_init(&b, 200);
    char *p = tarn_sb_reserve(&b, 150);
    assert_non_null(p);
    memset(p, 'r', 150);
    b.n += 150;
    assert_int_equal(b.p[150], 0);
    assert_non_null(tarn_sb_reserve(&b, 50));
    assert_null(tarn_sb_reserve(&b, 51));
    assert_true(b.failed);
    assert_null(tarn_sb_reserve(&b, 0));
    tarn_sb_free(&b);
    tarn_sb_init(&b, SIZE_MAX);
    assert_null(tarn_sb_reserve(&b, SIZE_MAX));
    assert_true(b.failed);
    tarn_sb_free(&b);
}

static void out_of_memory(void **state)
{
    (void)state;
    for (unsigned nth = 1; nth <= 5; nth++) {
        tarn_sb b;
        tarn_sb_init(&b, 1 << 20);
        tarn_alloc_fail_after(nth);
        for (unsigned i = 0; i < 10000; i++) {
            tarn_sb_u64(&b, i);
        }
        assert_true(b.failed);
        assert_int_equal(tarn_sb_view(&b).n, 0);
        tarn_sb_reset(&b);
        tarn_sb_cstr(&b, "good again");
        assert_string_equal(b.p, "good again");
        tarn_sb_free(&b);
    }
    tarn_alloc_fail_after(0);
}

static void growth_is_amortised(void **state)
{
    (void)state;
    tarn_sb b;
    tarn_sb_init(&b, 1 << 20);
    uint64_t before = tarn_alloc_count();
    for (unsigned i = 0; i < 1 << 20; i++) {
        tarn_sb_char(&b, 'x');
    }
    assert_false(b.failed);
    assert_true(tarn_alloc_count() - before < 20);
    tarn_sb_free(&b);
}

static void packed_round_trip(void **state)
{
    (void)state;
    tarn_sb b;
    tarn_sb_init(&b, 10000);
    static const uint64_t numbers[] = {0, 1, 127, 128, 16383, 16384, UINT32_MAX, (uint64_t)1 << 63, UINT64_MAX};
    tarn_sb_char(&b, '\x7E');
    tarn_sb_le16(&b, 0x1234);
    tarn_sb_le32(&b, 0x12345678);
    tarn_sb_le64(&b, 0x123456789ABCDEF0u);
    for (size_t i = 0; i < TARN_ARRAY_LEN(numbers); i++) {
        tarn_sb_varint(&b, numbers[i]);
    }
    tarn_sb_lstr(&b, TARN_STR("key"));
    tarn_sb_lstr(&b, TARN_STR_NULL);
    tarn_sb_cstr(&b, "tail");
    assert_memory_equal(b.p, "\x7E\x34\x12\x78\x56\x34\x12\xF0\xDE\xBC\x9A\x78\x56\x34\x12", 15);
    tarn_rd r = tarn_rd_of(tarn_sb_view(&b));
    assert_int_equal(tarn_rd_u8(&r), 0x7E);
    assert_int_equal(tarn_rd_le16(&r), 0x1234);
    assert_int_equal(tarn_rd_le32(&r), 0x12345678);
    assert_true(tarn_rd_le64(&r) == 0x123456789ABCDEF0u);
    for (size_t i = 0; i < TARN_ARRAY_LEN(numbers); i++) {
        assert_true(tarn_rd_varint(&r) == numbers[i]);
    }
    assert_true(tarn_str_eqc(tarn_rd_lstr(&r), "key"));
    assert_int_equal(tarn_rd_lstr(&r).n, 0);
    assert_true(tarn_str_eqc(tarn_rd_bytes(&r, 4), "tail"));
    assert_false(r.failed);
    assert_int_equal(r.n, 0);
    /* Every record that ends too early is seen, and nothing is read behind its end. */
    for (size_t n = 0; n < b.n; n++) {
        char *cut = tarn_malloc(n);
        memcpy(cut, b.p, n);
        r = tarn_rd_of((tarn_str){cut, n});
        (void)tarn_rd_u8(&r);
        (void)tarn_rd_le16(&r);
        (void)tarn_rd_le32(&r);
        (void)tarn_rd_le64(&r);
        for (size_t i = 0; i < TARN_ARRAY_LEN(numbers); i++) {
            (void)tarn_rd_varint(&r);
        }
        (void)tarn_rd_lstr(&r);
        (void)tarn_rd_lstr(&r);
        (void)tarn_rd_bytes(&r, 4);
        assert_true(r.failed);
        tarn_free(cut);
    }
    tarn_sb_free(&b);
}

static bool varint_is_good(tarn_str s)
{
    tarn_rd r = tarn_rd_of(s);
    uint64_t v = tarn_rd_varint(&r);
    assert_true(!r.failed || v == 0);
    return !r.failed;
}

static void broken_records(void **state)
{
    (void)state;
    assert_true(varint_is_good(TARN_STR("\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x01")));
    assert_false(varint_is_good(TARN_STR("\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x02")));     /* 2^64 */
    assert_false(varint_is_good(TARN_STR("\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x81\x00"))); /* 11 bytes */
    assert_false(varint_is_good(TARN_STR("\x80\x00")));                                     /* not the shortest form */
    assert_false(varint_is_good(TARN_STR("\x80")));
    assert_true(varint_is_good(TARN_STR("\x00")));
    tarn_rd r = tarn_rd_of(TARN_STR("\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x01xyz")); /* a text of 2^64-1 bytes */
    assert_null(tarn_rd_lstr(&r).p);
    assert_true(r.failed);
    assert_int_equal(tarn_rd_u8(&r), 0); /* a failure is sticky */
    r = tarn_rd_of(TARN_STR_NULL);
    assert_int_equal(tarn_rd_bytes(&r, 0).n, 0);
    assert_false(r.failed);
    assert_int_equal(tarn_rd_le64(&r), 0);
    assert_true(r.failed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(puts_things_together),
        cmocka_unit_test(numbers_agree_with_printf),
        cmocka_unit_test(maximum_and_one_past),
        cmocka_unit_test(fixed_memory),
        cmocka_unit_test(reserve),
        cmocka_unit_test(out_of_memory),
        cmocka_unit_test(growth_is_amortised),
        cmocka_unit_test(packed_round_trip),
        cmocka_unit_test(broken_records),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
