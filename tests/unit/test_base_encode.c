/* SPDX-License-Identifier: Apache-2.0 */
/* Base64, hexadecimal and percent-encoding: RFC vectors, every kind of broken text, random round trips. */
#include "tarn/base.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <string.h>

static char text[8192];
static tarn_sb out;

static const char *base64(const char *s)
{
    tarn_sb_init_fixed(&out, text, sizeof text);
    tarn_sb_base64(&out, s, strlen(s));
    assert_false(out.failed);
    return text;
}

static void rfc4648_vectors(void **state)
{
    (void)state;
    assert_string_equal(base64(""), "");
    assert_string_equal(base64("f"), "Zg==");
    assert_string_equal(base64("fo"), "Zm8=");
    assert_string_equal(base64("foo"), "Zm9v");
    assert_string_equal(base64("foob"), "Zm9vYg==");
    assert_string_equal(base64("fooba"), "Zm9vYmE=");
    assert_string_equal(base64("foobar"), "Zm9vYmFy");
    assert_string_equal(base64("\xFB\xEF\xFF"), "++//");
    tarn_sb_reset(&out);
    tarn_sb_base64url(&out,
                      "\xFB\xEF\xFF"
                      "fo",
                      5);
    assert_string_equal(text, "--__Zm8");
}

static bool decodes(tarn_str s)
{
    uint8_t bytes[64];
    size_t n;
    return tarn_base64_decode(s, bytes, sizeof bytes, &n);
}

static void base64_strictness(void **state)
{
    (void)state;
    assert_true(decodes(TARN_STR("")));
    assert_true(decodes(TARN_STR("Zg==")));
    assert_false(decodes(TARN_STR("Zg=")));
    assert_false(decodes(TARN_STR("Zg")));
    assert_false(decodes(TARN_STR("Zh=="))); /* a bit behind the last byte */
    assert_false(decodes(TARN_STR("Zm9=")));
    assert_false(decodes(TARN_STR("Z===")));
    assert_false(decodes(TARN_STR("====")));
    assert_false(decodes(TARN_STR("Zg==Zg==")));
    assert_false(decodes(TARN_STR("Zm9v\n")));
    assert_false(decodes(TARN_STR("Zm 9v==")));
    assert_false(decodes(TARN_STR("Zm9-")));
    assert_false(decodes(TARN_STR("Zm9_")));
    assert_false(decodes(TARN_STR("Zm=v")));
    assert_false(decodes(TARN_STR("Zm9\0")));
    uint8_t bytes[3];
    size_t n = 99;
    assert_true(tarn_base64_decode(TARN_STR("Zm9v"), bytes, 3, &n));
    assert_int_equal(n, 3);
    n = 99;
    assert_false(tarn_base64_decode(TARN_STR("Zm9v"), bytes, 2, &n)); /* one byte too few */
    assert_int_equal(n, 99);
    assert_true(tarn_base64url_decode(TARN_STR("Zg"), bytes, 1, &n));
    assert_false(tarn_base64url_decode(TARN_STR("Zg=="), bytes, 3, &n));
    assert_false(tarn_base64url_decode(TARN_STR("Z"), bytes, 3, &n));
    assert_false(tarn_base64url_decode(TARN_STR("Zh"), bytes, 3, &n));
    assert_false(tarn_base64url_decode(TARN_STR("++++"), bytes, 3, &n));
    assert_true(tarn_base64url_decode(TARN_STR("-_-_"), bytes, 3, &n));
}

static void random_round_trips(void **state)
{
    (void)state;
    static uint8_t in[1024];
    static uint8_t back[1024];
    tarn_arena *a = tarn_arena_new(1 << 20);
    assert_non_null(a);
    tarn_random_seed(11);
    for (size_t n = 0; n < 1024; n++) {
        tarn_random(in, n);
        size_t got = 0;
        tarn_sb_init_fixed(&out, text, sizeof text);
        tarn_sb_base64(&out, in, n);
        assert_true(tarn_base64_decode(tarn_sb_view(&out), back, n, &got));
        assert_int_equal(got, n);
        assert_memory_equal(in, back, n);
        tarn_sb_reset(&out);
        tarn_sb_base64url(&out, in, n);
        assert_true(tarn_base64url_decode(tarn_sb_view(&out), back, n, &got));
        assert_memory_equal(in, back, n);
        tarn_sb_reset(&out);
        tarn_sb_hex(&out, in, n);
        assert_true(tarn_hex_decode(tarn_sb_view(&out), back, n));
        assert_memory_equal(in, back, n);
        tarn_sb_reset(&out);
        tarn_sb_urlencode(&out, (tarn_str){(const char *)in, n}, n % 2 == 0);
        tarn_str decoded;
        tarn_arena_reset(a);
        assert_true(tarn_urldecode(a, tarn_sb_view(&out), true, &decoded));
        assert_int_equal(decoded.n, n);
        assert_memory_equal(decoded.p, in, n);
    }
    tarn_random_seed(0);
    tarn_arena_free(a);
}

static void hex(void **state)
{
    (void)state;
    uint8_t b[2];
    assert_true(tarn_hex_decode(TARN_STR("0aFf"), b, 2));
    assert_memory_equal(b, "\x0A\xFF", 2);
    assert_false(tarn_hex_decode(TARN_STR("0aF"), b, 2));
    assert_false(tarn_hex_decode(TARN_STR("0aFf0"), b, 2));
    assert_false(tarn_hex_decode(TARN_STR("0g"), b, 1));
    assert_false(tarn_hex_decode(TARN_STR("g0"), b, 1));
    assert_true(tarn_hex_decode(TARN_STR_NULL, b, 0));
    assert_false(tarn_hex_decode(TARN_STR_NULL, b, SIZE_MAX));
}

static void percent(void **state)
{
    (void)state;
    tarn_sb_init_fixed(&out, text, sizeof text);
    tarn_sb_urlencode(&out, TARN_STR("AZaz09-._~ /+%\x00\xC3\xA9"), false);
    assert_string_equal(text, "AZaz09-._~%20%2F%2B%25%00%C3%A9");
    tarn_sb_reset(&out);
    tarn_sb_urlencode(&out, TARN_STR("a/b c"), true);
    assert_string_equal(text, "a/b%20c");
    tarn_arena *a = tarn_arena_new(4096);
    assert_non_null(a);
    tarn_str s = TARN_STR("untouched");
    assert_false(tarn_urldecode(a, TARN_STR("%"), false, &s));
    assert_false(tarn_urldecode(a, TARN_STR("%4"), false, &s));
    assert_false(tarn_urldecode(a, TARN_STR("%4g"), false, &s));
    assert_false(tarn_urldecode(a, TARN_STR("a%%41"), false, &s));
    assert_true(tarn_str_eqc(s, "untouched"));
    assert_true(tarn_urldecode(a, TARN_STR("a%2Bb+c%2f%41"), false, &s));
    assert_true(tarn_str_eqc(s, "a+b+c/A"));
    assert_int_equal(s.p[s.n], 0);
    assert_true(tarn_urldecode(a, TARN_STR("a%2Bb+c"), true, &s));
    assert_true(tarn_str_eqc(s, "a+b c"));
    assert_true(tarn_urldecode(a, TARN_STR_NULL, true, &s));
    assert_int_equal(s.n, 0);
    assert_true(tarn_urldecode(a, TARN_STR("%00"), false, &s));
    assert_int_equal(s.n, 1);
    tarn_arena_free(a);
    a = tarn_arena_new(16);
    assert_true(tarn_urldecode(a, TARN_STR("012345678901234"), false, &s)); /* 15 bytes and the NUL */
    assert_false(tarn_urldecode(a, TARN_STR("0"), false, &s));
    tarn_arena_free(a);
}

static void encoders_stop_at_the_maximum(void **state)
{
    (void)state;
    tarn_sb_init_fixed(&out, text, 5);
    tarn_sb_base64(&out, "foo", 3);
    assert_false(out.failed);
    tarn_sb_reset(&out);
    tarn_sb_base64(&out, "foob", 4);
    assert_true(out.failed);
    tarn_sb_reset(&out);
    tarn_sb_urlencode(&out, TARN_STR("a /"), false);
    assert_true(out.failed);
    tarn_sb_init_fixed(&out, text, sizeof text);
    tarn_sb_base64(&out, "", SIZE_MAX); /* refused before a byte is read */
    assert_true(out.failed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rfc4648_vectors),
        cmocka_unit_test(base64_strictness),
        cmocka_unit_test(random_round_trips),
        cmocka_unit_test(hex),
        cmocka_unit_test(percent),
        cmocka_unit_test(encoders_stop_at_the_maximum),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
