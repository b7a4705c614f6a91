/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The chunked coding: good bodies in any split, what is refused, the maxima and one past each.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "http_private.h"

typedef struct outcome {
    tarn_err err;
    bool done;
    size_t taken;
    tarn_sb data;
} outcome;

/* Lets the decoder see `step` bytes more each time, as a connection would. */
static outcome decode(tarn_str in, size_t step)
{
    outcome o = {.err = TARN_OK};
    tarn_http_chunks c = {0};
    size_t at = 0, seen = 0;
    tarn_sb_init(&o.data, 1u << 20);
    while (o.err == TARN_OK && c.state != TARN_HTTP_CHUNK_DONE) {
        size_t used = 0, before = at;
        if (c.state == TARN_HTTP_CHUNK_DATA) {
            size_t k = seen - at < c.left ? seen - at : (size_t)c.left;
            tarn_sb_bytes(&o.data, in.p + at, k);
            at += k;
            c.left -= k;
            if (c.left == 0) {
                c.state = TARN_HTTP_CHUNK_DATA_END;
            }
        } else {
            o.err = tarn_http_chunks_step(&c, in.p + at, seen - at, &used);
            at += used;
        }
        if (at == before && o.err == TARN_OK && c.state != TARN_HTTP_CHUNK_DONE) {
            if (seen == in.n) {
                break;
            }
            seen = seen + step < in.n ? seen + step : in.n;
        }
    }
    o.done = c.state == TARN_HTTP_CHUNK_DONE;
    o.taken = at;
    return o;
}

static void every_split_gives_the_same(void **state)
{
    (void)state;
    tarn_str in = TARN_STR("5\r\nhello\r\n1;name=\"a b\"\r\n \r\n00005 ; x\r\nworld\r\n0\r\nX-T: a\r\nY: \r\n\r\nNEXT");
    for (size_t step = 1; step <= in.n; step++) {
        outcome o = decode(in, step);
        assert_int_equal(o.err, TARN_OK);
        assert_true(o.done);
        assert_true(tarn_str_eqc(tarn_sb_view(&o.data), "hello world"));
        assert_int_equal(o.taken, in.n - 4);
        tarn_sb_free(&o.data);
    }
}

static void what_is_refused(void **state)
{
    (void)state;
    static const tarn_str bad[] = {
#define B(text) {text, sizeof(text) - 1}
        B("-1\r\nx\r\n0\r\n\r\n"),    B("0x5\r\nhello\r\n0\r\n\r\n"),
        B("FFFFFFFFFFFFFFFFF\r\nx"),  B("FFFFFFFFFFFFFFFF\r\nx"),
        B("8000000000000000\r\nx"),   B("10000000000000005\r\nhello\r\n"),
        B("\r\nhello\r\n"),           B(";x\r\nhello\r\n"),
        B("xyz\r\nhello\r\n"),        B("5\nhello\r\n"),
        B("5 \r\nhello\r\n"),         B(" 5\r\nhello\r\n"),
        B("5;\x01\r\nhello\r\n"),     B("5;a\rb\r\nhello\r\n"),
        B("5\r\nhello0\r\n\r\n"),     B("3\r\nhello\r\n0\r\n\r\n"),
        B("1\r\na\rX0\r\n\r\n"),      B("0\r\nno colon\r\n\r\n"),
        B("0\r\n: x\r\n\r\n"),        B("0\r\nX: a\nY: b\r\n\r\n"),
        B("0\r\n folded: x\r\n\r\n"),
    };
    for (size_t i = 0; i < TARN_ARRAY_LEN(bad); i++) {
        outcome whole = decode(bad[i], bad[i].n), single = decode(bad[i], 1);
        if (whole.err != TARN_E_HTTP_BAD_REQUEST || single.err != TARN_E_HTTP_BAD_REQUEST) {
            fail_msg("row %zu was taken", i);
        }
        tarn_sb_free(&whole.data);
        tarn_sb_free(&single.data);
    }
}

static void the_end_must_come(void **state)
{
    (void)state;
    static const tarn_str open[] = {B("5\r\nhel"), B("5\r\nhello\r\n"), B("5\r\nhello\r\n0\r\n"), B("5"), B("0\r\nX: y\r\n")};
    for (size_t i = 0; i < TARN_ARRAY_LEN(open); i++) {
        outcome o = decode(open[i], 1);
        assert_int_equal(o.err, TARN_OK);
        assert_false(o.done);
        tarn_sb_free(&o.data);
    }
}

static tarn_err with_filler(const char *before, size_t fill, const char *after)
{
    tarn_sb b;
    tarn_sb_init(&b, 1u << 20);
    tarn_sb_cstr(&b, before);
    for (size_t i = 0; i < fill; i++) {
        tarn_sb_char(&b, 'e');
    }
    tarn_sb_cstr(&b, after);
    outcome o = decode(tarn_sb_view(&b), 100);
    tarn_err e = o.err == TARN_OK && !o.done ? TARN_E_INTERNAL : o.err;
    tarn_sb_free(&o.data);
    tarn_sb_free(&b);
    return e;
}

static void maxima_and_one_past(void **state)
{
    (void)state;
    /* "1;" + extension + CRLF */
    assert_int_equal(with_filler("1;", TARN_HTTP_CHUNK_LINE_BYTES_MAX - 4, "\r\na\r\n0\r\n\r\n"), TARN_OK);
    assert_int_equal(with_filler("1;", TARN_HTTP_CHUNK_LINE_BYTES_MAX - 3, "\r\na\r\n0\r\n\r\n"), TARN_E_HTTP_BAD_REQUEST);
    /* "X:" + value + CRLF, and the empty line */
    assert_int_equal(with_filler("0\r\nX:", TARN_HTTP_TRAILER_BYTES_MAX - 6, "\r\n\r\n"), TARN_OK);
    assert_int_equal(with_filler("0\r\nX:", TARN_HTTP_TRAILER_BYTES_MAX - 5, "\r\n\r\n"), TARN_E_HTTP_BAD_REQUEST);
    tarn_http_chunks c = {0};
    size_t used = 0;
    assert_int_equal(tarn_http_chunks_step(&c, "7FFFFFFFFFFFFFFF\r\n", 18, &used), TARN_OK);
    assert_true(c.left == INT64_MAX && used == 18);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_split_gives_the_same),
        cmocka_unit_test(what_is_refused),
        cmocka_unit_test(the_end_must_come),
        cmocka_unit_test(maxima_and_one_past),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
