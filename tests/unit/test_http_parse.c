/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The parser of request heads: what is taken, what is refused, the maxima and one past each, and that splitting the bytes
 * anywhere changes nothing.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "http_parse.h"

typedef struct parsed {
    tarn_err err;
    const char *why;
    tarn_http_head head;
    size_t end;
    bool complete;
} parsed;

static tarn_arena *arena;

static int set_up(void **state)
{
    (void)state;
    arena = tarn_arena_new(8u << 20);
    return arena == NULL;
}

static int tear_down(void **state)
{
    (void)state;
    tarn_arena_free(arena);
    return 0;
}

/* Feeds the bytes in pieces of `step`. */
static parsed parse_stepped(tarn_str in, size_t step)
{
    parsed p = {.err = TARN_OK};
    tarn_http_scanner s = {0};
    for (size_t n = step < in.n ? step : in.n;; n = n + step < in.n ? n + step : in.n) {
        p.err = tarn_http_scan(&s, in.p, n, &p.why);
        if (p.err != TARN_OK || s.complete || n == in.n) {
            break;
        }
    }
    p.complete = s.complete;
    p.end = s.end;
    if (p.err == TARN_OK && s.complete) {
        p.err = tarn_http_parse_head((tarn_str){in.p + s.start, s.end - s.start}, s.lines, arena, &p.head, &p.why);
    }
    return p;
}

static parsed parse(tarn_str in)
{
    return parse_stepped(in, in.n);
}

static void assert_str(tarn_str got, const char *want)
{
    if (!tarn_str_eqc(got, want)) {
        fail_msg("got \"%.*s\", wanted \"%s\"", TARN_STR_ARG(got), want);
    }
}

static void a_plain_request(void **state)
{
    (void)state;
    parsed p = parse(
        TARN_STR("PUT /b/k%20x?uploads&a=b HTTP/1.1\r\nHost: h:9000\r\nX-Empty:\r\nContent-Length: 5\r\nx-two: \t a b \t\r\n\r\nhello"));
    assert_int_equal(p.err, TARN_OK);
    assert_true(p.complete);
    assert_str(p.head.method, "PUT");
    assert_str(p.head.raw_path, "/b/k%20x");
    assert_str(p.head.raw_query, "uploads&a=b");
    assert_int_equal(p.head.headers_n, 4);
    assert_str(p.head.headers[1].name, "X-Empty");
    assert_str(p.head.headers[1].value, "");
    assert_str(p.head.headers[3].value, "a b");
    assert_true(p.head.has_content_length);
    assert_int_equal(p.head.content_length, 5);
    assert_int_equal(p.head.minor, 1);
    assert_false(p.head.has_transfer_encoding);
}

static void query_is_told_from_no_query(void **state)
{
    (void)state;
    assert_null(parse(TARN_STR("GET /b HTTP/1.1\r\nHost: h\r\n\r\n")).head.raw_query.p);
    parsed p = parse(TARN_STR("GET /b? HTTP/1.1\r\nHost: h\r\n\r\n"));
    assert_non_null(p.head.raw_query.p);
    assert_int_equal(p.head.raw_query.n, 0);
    assert_str(parse(TARN_STR("GET /b?a?b HTTP/1.1\r\nHost: h\r\n\r\n")).head.raw_query, "a?b");
}

static void every_split_gives_the_same(void **state)
{
    (void)state;
    tarn_str in = TARN_STR("\r\n\r\nPOST /a?b HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: Chunked\r\nExpect: 100-Continue\r\n\r\nrest");
    for (size_t step = 1; step <= in.n; step++) {
        parsed p = parse_stepped(in, step);
        assert_int_equal(p.err, TARN_OK);
        assert_true(p.complete);
        assert_int_equal(p.end, in.n - 4);
        assert_true(p.head.has_transfer_encoding && p.head.expect_continue);
        assert_str(p.head.raw_path, "/a");
    }
}

static void forms_of_the_target(void **state)
{
    (void)state;
    assert_str(parse(TARN_STR("GET http://h:1/a/b?c HTTP/1.1\r\nHost: H:1\r\n\r\n")).head.raw_path, "/a/b");
    assert_str(parse(TARN_STR("GET HTTPS://h?c HTTP/1.1\r\nHost: h\r\n\r\n")).head.raw_path, "/");
    assert_str(parse(TARN_STR("GET HTTPS://h?c HTTP/1.1\r\nHost: h\r\n\r\n")).head.raw_query, "c");
    assert_str(parse(TARN_STR("OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n")).head.raw_path, "*");
    assert_str(parse(TARN_STR("GET /\xc3\xa9{}|<> HTTP/1.1\r\nHost: h\r\n\r\n")).head.raw_path, "/\xc3\xa9{}|<>");
    assert_str(parse(TARN_STR("GET //a/../b HTTP/1.1\r\nHost: h\r\n\r\n")).head.raw_path, "//a/../b");
}

static void versions(void **state)
{
    (void)state;
    parsed p = parse(TARN_STR("GET / HTTP/1.0\r\n\r\n"));
    assert_int_equal(p.err, TARN_OK);
    assert_int_equal(p.head.minor, 0);
    static const char *const others[] = {"HTTP/2.0", "HTTP/0.9", "HTTP/1.2", "HTTP/9.9"};
    for (size_t i = 0; i < TARN_ARRAY_LEN(others); i++) {
        tarn_str in = tarn_arena_fmt(arena, "GET /path HTTP/1.1\r\nHost: h\r\n\r\n");
        memcpy((char *)(uintptr_t)in.p + 10, others[i], 8);
        p = parse(in);
        assert_int_equal(p.err, TARN_E_HTTP_VERSION);
        assert_str(p.head.raw_path, "/path");
    }
    assert_int_equal(parse(TARN_STR("PRI * HTTP/2.0\r\n\r\n")).err, TARN_E_HTTP_VERSION);
}

static void connection_tokens(void **state)
{
    (void)state;
    assert_true(parse(TARN_STR("GET / HTTP/1.1\r\nHost: h\r\nConnection: x, Close ,y\r\n\r\n")).head.connection_close);
    assert_false(parse(TARN_STR("GET / HTTP/1.1\r\nHost: h\r\nConnection: closed\r\n\r\n")).head.connection_close);
    assert_true(parse(TARN_STR("GET / HTTP/1.0\r\nConnection: TE\r\nconnection: keep-alive\r\n\r\n")).head.connection_keep_alive);
}

#define H "Host: h\r\n"
static const struct refusal {
    tarn_str in;
    tarn_err err;
} refusals[] = {
#define R(text, e)                                                                                                                         \
    {                                                                                                                                      \
        {text, sizeof(text) - 1}, TARN_E_##e                                                                                               \
    }
#define BAD(text) R(text, HTTP_BAD_REQUEST)
    BAD("GET / HTTP/1.1\r\n\r\n"),
    BAD("GET / HTTP/1.1\r\n" H "host: h\r\n\r\n"),
    BAD("GET / HTTP/1.1\r\nHost: a b\r\n\r\n"),
    BAD("GET / HTTP/1.1\r\nHost: a/b\r\n\r\n"),
    BAD("GET / HTTP/1.1\n" H "\r\n"),
    BAD("GET / HTTP/1.1\r\n" H "X: y\n\r\n"),
    BAD("GET / HTTP/1.1\r\n" H "X: a\rb\r\n\r\n"),
    BAD("GET / HTTP/1.1\r\n" H "X: a\0b\r\n\r\n"),
    BAD("GET / HTTP/1.1\r\n" H "X: a\x7f\r\n\r\n"),
    BAD("GET / HTTP/1.1\r\n" H "X\0: a\r\n\r\n"),
    BAD("GET / HTTP/1.1\r\n" H "X : a\r\n\r\n"),
    BAD("GET / HTTP/1.1\r\n" H "X Y: a\r\n\r\n"),
    BAD("GET / HTTP/1.1\r\n" H "X\xc3\xa9: a\r\n\r\n"),
    BAD("GET / HTTP/1.1\r\n" H ": a\r\n\r\n"),
    BAD("GET / HTTP/1.1\r\n" H "nothing\r\n\r\n"),
    BAD("GET / HTTP/1.1\r\n" H "X: a\r\n b\r\n\r\n"),
    BAD("GET / HTTP/1.1\r\n X: a\r\n" H "\r\n"),
    BAD("GET /\r\n\r\n"),
    BAD("GET  / HTTP/1.1\r\n" H "\r\n"),
    BAD("GET /a b HTTP/1.1\r\n" H "\r\n"),
    BAD("GET /a\tb HTTP/1.1\r\n" H "\r\n"),
    BAD("GET /a\x7f HTTP/1.1\r\n" H "\r\n"),
    BAD("GET /a\0b HTTP/1.1\r\n" H "\r\n"),
    BAD("GET /a#b HTTP/1.1\r\n" H "\r\n"),
    BAD("GET a HTTP/1.1\r\n" H "\r\n"),
    BAD("GET * HTTP/1.1\r\n" H "\r\n"),
    BAD("GET ftp://h/a HTTP/1.1\r\n" H "\r\n"),
    BAD("GET http:///a HTTP/1.1\r\n" H "\r\n"),
    BAD("GET http://u@h/a HTTP/1.1\r\nHost: u@h\r\n\r\n"),
    BAD("GET http://other/a HTTP/1.1\r\n" H "\r\n"),
    BAD("PRI * HTTP/1.1\r\n" H "\r\n"),
    BAD("CONNECT h:22 HTTP/1.1\r\n" H "\r\n"),
    BAD("G(T / HTTP/1.1\r\n" H "\r\n"),
    BAD("GET / HTTP/1.1 \r\n" H "\r\n"),
    BAD("GET / http/1.1\r\n" H "\r\n"),
    BAD("GET / HTTP/1.10\r\n" H "\r\n"),
    BAD("GET / HTTP/1,1\r\n" H "\r\n"),
    BAD("\x16\x03\x01\x02"),
    BAD("\n"),
    BAD("PUT / HTTP/1.1\r\n" H "Content-Length: 1\r\nContent-Length: 1\r\n\r\n"),
    BAD("PUT / HTTP/1.1\r\n" H "Content-Length: 1, 1\r\n\r\n"),
    BAD("PUT / HTTP/1.1\r\n" H "Content-Length: -1\r\n\r\n"),
    BAD("PUT / HTTP/1.1\r\n" H "Content-Length: +5\r\n\r\n"),
    BAD("PUT / HTTP/1.1\r\n" H "Content-Length: 0x5\r\n\r\n"),
    BAD("PUT / HTTP/1.1\r\n" H "Content-Length: 5 5\r\n\r\n"),
    BAD("PUT / HTTP/1.1\r\n" H "Content-Length: \r\n\r\n"),
    BAD("PUT / HTTP/1.1\r\n" H "Content-Length: 9223372036854775808\r\n\r\n"),
    BAD("PUT / HTTP/1.1\r\n" H "Content-Length: 18446744073709551616\r\n\r\n"),
    BAD("PUT / HTTP/1.1\r\n" H "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n"),
    BAD("PUT / HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\nContent-Length: 1\r\n\r\n"),
    BAD("PUT / HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n"),
    BAD("PUT / HTTP/1.1\r\n" H "Transfer-Encoding: chunked, identity\r\n\r\n"),
    BAD("PUT / HTTP/1.1\r\n" H "Transfer-Encoding: gzip, chunked\r\n\r\n"),
    BAD("PUT / HTTP/1.1\r\n" H "Transfer-Encoding: \vchunked\r\n\r\n"),
    BAD("PUT / HTTP/1.1\r\n" H "Transfer-Encoding: xchunked\r\n\r\n"),
    BAD("PUT / HTTP/1.1\r\n" H "Transfer-Encoding: \"chunked\"\r\n\r\n"),
    BAD("PUT / HTTP/1.0\r\n" H "Transfer-Encoding: chunked\r\n\r\n"),
    R("GET / HTTP/1.1\r\n" H "Expect: 200-maybe\r\n\r\n", EXPECTATION_FAILED),
    R("GET / HTTP/2.0\r\n" H "\r\n", HTTP_VERSION),
};

static void what_is_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < TARN_ARRAY_LEN(refusals); i++) {
        for (size_t step = 1; step <= refusals[i].in.n; step += refusals[i].in.n - 1 > 0 ? refusals[i].in.n - 1 : 1) {
            parsed p = parse_stepped(refusals[i].in, step);
            if (p.err != refusals[i].err || p.why == NULL) {
                fail_msg("row %zu: \"%.*s\" gave %s", i, TARN_STR_ARG(refusals[i].in), tarn_err_get(p.err)->name);
            }
        }
    }
}

static void content_length_at_its_maximum(void **state)
{
    (void)state;
    parsed p = parse(TARN_STR("PUT / HTTP/1.1\r\n" H "Content-Length: 9223372036854775807\r\n\r\n"));
    assert_int_equal(p.err, TARN_OK);
    assert_true(p.head.content_length == INT64_MAX);
}

/* "GET /aaa… HTTP/1.1", a Host, and then one header that fills the head up to `bytes`. */
static tarn_str head_of(size_t bytes, size_t target_bytes, size_t headers)
{
    tarn_sb b;
    tarn_sb_init(&b, 1u << 20);
    tarn_sb_cstr(&b, "GET /");
    for (size_t i = 1; i < target_bytes; i++) {
        tarn_sb_char(&b, 'a');
    }
    tarn_sb_cstr(&b, " HTTP/1.1\r\n" H);
    for (size_t i = 1; i < headers; i++) {
        tarn_sb_fmt(&b, "X-%zu: y\r\n", i);
    }
    if (bytes > 0) {
        tarn_sb_cstr(&b, "X-Fill: ");
        while (b.n < bytes - 4) {
            tarn_sb_char(&b, 'f');
        }
        tarn_sb_cstr(&b, "\r\n");
    }
    tarn_sb_cstr(&b, "\r\n");
    assert_false(b.failed);
    tarn_str copy = tarn_arena_str(arena, tarn_sb_view(&b));
    tarn_sb_free(&b);
    assert_true(bytes == 0 || copy.n == bytes);
    return copy;
}

static void maxima_and_one_past(void **state)
{
    (void)state;
    assert_int_equal(parse(head_of(TARN_HTTP_HEAD_BYTES_MAX, 1, 1)).err, TARN_OK);
    assert_int_equal(parse(head_of(TARN_HTTP_HEAD_BYTES_MAX + 1, 1, 1)).err, TARN_E_HEADER_TOO_LARGE);
    assert_int_equal(parse_stepped(head_of(TARN_HTTP_HEAD_BYTES_MAX + 1, 1, 1), 1000).err, TARN_E_HEADER_TOO_LARGE);
    assert_int_equal(parse(head_of(0, TARN_HTTP_TARGET_BYTES_MAX, 1)).err, TARN_OK);
    assert_int_equal(parse(head_of(0, TARN_HTTP_TARGET_BYTES_MAX + 1, 1)).err, TARN_E_INVALID_URI);
    assert_int_equal(parse_stepped(head_of(0, TARN_HTTP_TARGET_BYTES_MAX * 2, 1), 100).err, TARN_E_INVALID_URI);
    assert_int_equal(parse(head_of(0, 1, TARN_HTTP_HEADERS_MAX)).err, TARN_OK);
    assert_int_equal(parse(head_of(0, 1, TARN_HTTP_HEADERS_MAX + 1)).err, TARN_E_HEADER_TOO_LARGE);
    tarn_str longest =
        tarn_arena_fmt(arena, "%.*s / HTTP/1.1\r\n" H "\r\n", TARN_HTTP_METHOD_BYTES_MAX, "ABCDEFGHIJKLMNOPQRSTUVWXYZABCDEFGH");
    assert_int_equal(parse(longest).err, TARN_OK);
    longest = tarn_arena_fmt(arena, "%.*s / HTTP/1.1\r\n" H "\r\n", TARN_HTTP_METHOD_BYTES_MAX + 1, "ABCDEFGHIJKLMNOPQRSTUVWXYZABCDEFGH");
    assert_int_equal(parse(longest).err, TARN_E_HTTP_BAD_REQUEST);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_plain_request, set_up, tear_down),
        cmocka_unit_test_setup_teardown(query_is_told_from_no_query, set_up, tear_down),
        cmocka_unit_test_setup_teardown(every_split_gives_the_same, set_up, tear_down),
        cmocka_unit_test_setup_teardown(forms_of_the_target, set_up, tear_down),
        cmocka_unit_test_setup_teardown(versions, set_up, tear_down),
        cmocka_unit_test_setup_teardown(connection_tokens, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_is_refused, set_up, tear_down),
        cmocka_unit_test_setup_teardown(content_length_at_its_maximum, set_up, tear_down),
        cmocka_unit_test_setup_teardown(maxima_and_one_past, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
