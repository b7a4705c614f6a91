/* SPDX-License-Identifier: Apache-2.0 */
/*
 * aws-chunked bodies: every way to split them gives the same answer; altered, reordered, missing and surplus parts are
 * refused; limits and one past them.
 */
#include "auth_private.h"
#include "auth_sign.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#define DATA_BYTES 140000

static uint8_t DATA[DATA_BYTES];
static tarn_auth_result RESULT;
static tarn_arena *ARENA;
static char CRC_LINE[64]; /* the right CRC32 of all data */

typedef struct body {
    tarn_sb b;
    char previous[65];
} body;

static int before(void **state)
{
    (void)state;
    for (size_t i = 0; i < DATA_BYTES; i++) {
        DATA[i] = (uint8_t)(i * 7 + i / 251);
    }
    ARENA = tarn_arena_new(4 << 20);
    RESULT = (tarn_auth_result){.payload = TARN_PAYLOAD_SIGNED_CHUNKS,
                                .has_decoded_length = true,
                                .decoded_length = DATA_BYTES,
                                .region = TARN_STR("us-east-1"),
                                .service = TARN_STR("s3"),
                                .amz_date = TARN_STR("20130524T000000Z")};
    memset(RESULT.signing_key, 7, sizeof RESULT.signing_key);
    memset(RESULT.seed_signature, 'a', 64);
    snprintf(CRC_LINE, sizeof CRC_LINE, "x-amz-checksum-crc32:AAAAAA==");
    return 0;
}

static int after(void **state)
{
    (void)state;
    tarn_arena_free(ARENA);
    return 0;
}

static void mode(tarn_payload_mode m)
{
    RESULT.payload = m;
    RESULT.trailer_names = m == TARN_PAYLOAD_SIGNED_CHUNKS ? TARN_STR_NULL : TARN_STR("x-amz-checksum-crc32");
}

/* The signature over the two last lines, which becomes the previous one. */
static void chain(body *x, const char *kind, const char *lines)
{
    char text[1024];
    uint8_t mac[32];
    snprintf(text, sizeof text, "%s\n20130524T000000Z\n20130524/us-east-1/s3/aws4_request\n%s\n%s", kind, x->previous, lines);
    sign_mac(RESULT.signing_key, 32, text, mac);
    sign_hex(mac, 32, x->previous);
}

static void start(body *x)
{
    tarn_sb_init(&x->b, 1 << 20);
    memcpy(x->previous, RESULT.seed_signature, 65);
}

static void chunk(body *x, const void *p, size_t n)
{
    char hash[65];
    char lines[200];
    if (RESULT.payload == TARN_PAYLOAD_UNSIGNED_TRAILER) {
        tarn_sb_fmt(&x->b, "%zx\r\n", n);
    } else {
        sign_sha(p, n, hash);
        snprintf(lines, sizeof lines, SIGN_EMPTY "\n%s", hash);
        chain(x, "AWS4-HMAC-SHA256-PAYLOAD", lines);
        tarn_sb_fmt(&x->b, "%zx;chunk-signature=%s\r\n", n, x->previous);
    }
    tarn_sb_bytes(&x->b, p, n);
    tarn_sb_cstr(&x->b, n > 0 ? "\r\n" : "");
}

static void trailer(body *x, const char *line, const char *end)
{
    char hash[65];
    char signed_text[256];
    tarn_sb_fmt(&x->b, "%s%s", line, end);
    if (RESULT.payload == TARN_PAYLOAD_SIGNED_CHUNKS_TRAILER) {
        int n = snprintf(signed_text, sizeof signed_text, "%s\n", line);
        sign_sha(signed_text, (size_t)n, hash);
        chain(x, "AWS4-HMAC-SHA256-TRAILER", hash);
        tarn_sb_fmt(&x->b, "x-amz-trailer-signature:%s\r\n", x->previous);
    }
}

/* A whole good body in the current mode. */
static void good(body *x)
{
    start(x);
    chunk(x, DATA, 65536);
    chunk(x, DATA + 65536, 65536);
    chunk(x, DATA + 131072, DATA_BYTES - 131072);
    chunk(x, "", 0);
    if (RESULT.payload != TARN_PAYLOAD_SIGNED_CHUNKS) {
        trailer(x, CRC_LINE, "\r\n");
    }
    tarn_sb_cstr(&x->b, "\r\n");
}

/* step(): how many bytes come next. What was handed out is collected in out. */
static tarn_err run(tarn_str in, size_t (*step)(void), tarn_sb *out, size_t *trailers)
{
    tarn_chunked *c = NULL;
    tarn_err e = tarn_chunked_new(&RESULT, ARENA, &c);
    for (size_t at = 0; e == TARN_OK && at < in.n;) {
        tarn_str piece = tarn_str_sub(in, at, step());
        at += piece.n;
        while (e == TARN_OK && piece.n > 0) {
            size_t used = 0;
            tarn_str data;
            e = tarn_chunked_feed(c, piece, &used, &data);
            assert_true(e != TARN_OK || (used > 0 && used <= piece.n));
            if (out) {
                tarn_sb_str(out, data);
            }
            piece = tarn_str_sub(piece, used, SIZE_MAX);
        }
    }
    tarn_err f = c ? tarn_chunked_finish(c) : e;
    assert_true(e == TARN_OK || f == e); /* what failed stays failed */
    if (c && trailers) {
        const tarn_pair *t;
        *trailers = tarn_chunked_trailers(c, &t);
    }
    tarn_chunked_end(c);
    return f;
}

static size_t step_all(void)
{
    return SIZE_MAX;
}
static size_t step_one(void)
{
    return 1;
}
static size_t step_seven(void)
{
    return 7;
}
static size_t step_random(void)
{
    uint64_t r = tarn_random_u64();
    return (size_t)(r % 4 == 0 ? r % 30000 : r % 90) + 1;
}

static tarn_err run_all(const body *x)
{
    tarn_err e = run(tarn_sb_view(&x->b), step_all, NULL, NULL);
    assert_int_equal(run(tarn_sb_view(&x->b), step_one, NULL, NULL), e);
    return e;
}

static const tarn_payload_mode MODES[] = {TARN_PAYLOAD_SIGNED_CHUNKS, TARN_PAYLOAD_SIGNED_CHUNKS_TRAILER, TARN_PAYLOAD_UNSIGNED_TRAILER};

static void test_splits(void **state)
{
    (void)state;
    tarn_random_seed(42);
    for (size_t m = 0; m < TARN_ARRAY_LEN(MODES); m++) {
        mode(MODES[m]);
        body x;
        good(&x);
        for (size_t i = 0; i < 60; i++) {
            size_t (*const steps[])(void) = {step_all, step_one, step_seven, step_random};
            tarn_sb out;
            size_t trailers = 9;
            tarn_sb_init(&out, 1 << 20);
            assert_int_equal(run(tarn_sb_view(&x.b), steps[i < 3 ? i : 3], &out, &trailers), TARN_OK);
            assert_int_equal(out.n, DATA_BYTES);
            assert_memory_equal(out.p, DATA, DATA_BYTES);
            assert_int_equal(trailers, MODES[m] == TARN_PAYLOAD_SIGNED_CHUNKS ? 0 : 1);
            tarn_sb_free(&out);
            tarn_arena_reset(ARENA);
        }
        tarn_sb_free(&x.b);
    }
    tarn_random_seed(0);
}

static void test_every_byte(void **state)
{
    (void)state;
    /* A short body with a chunk of 20 bytes: no byte of it may change. */
    for (size_t m = 0; m < TARN_ARRAY_LEN(MODES); m++) {
        mode(MODES[m]);
        RESULT.decoded_length = 20;
        body x;
        start(&x);
        chunk(&x, DATA, 20);
        chunk(&x, "", 0);
        if (MODES[m] != TARN_PAYLOAD_SIGNED_CHUNKS) {
            trailer(&x, CRC_LINE, "\r\n");
        }
        tarn_sb_cstr(&x.b, "\r\n");
        assert_int_equal(run_all(&x), TARN_OK);
        for (size_t i = 0; i < x.b.n; i++) {
            x.b.p[i] = (char)(x.b.p[i] ^ 1);
            tarn_sb out;
            tarn_sb_init(&out, 1000);
            tarn_err e = run(tarn_sb_view(&x.b), step_all, &out, NULL);
            /* Unsigned data and a checksum's value are for the checksum to find. */
            bool same = e != TARN_OK || out.n != 20 || memcmp(out.p, DATA, 20) != 0 || MODES[m] == TARN_PAYLOAD_UNSIGNED_TRAILER;
            if (!same) {
                fail_msg("mode %zu: byte %zu may be altered", m, i);
            }
            tarn_sb_free(&out);
            x.b.p[i] = (char)(x.b.p[i] ^ 1);
            tarn_arena_reset(ARENA);
        }
        /* Cut anywhere: never good. */
        for (size_t i = 0; i < x.b.n; i++) {
            assert_int_not_equal(run(tarn_str_sub(tarn_sb_view(&x.b), 0, i), step_all, NULL, NULL), TARN_OK);
            tarn_arena_reset(ARENA);
        }
        tarn_sb_free(&x.b);
    }
}

static void test_order(void **state)
{
    (void)state;
    body x;
    start(&x);
    chunk(&x, DATA, 65536);
    size_t first = x.b.n;
    chunk(&x, DATA + 65536, 65536);
    size_t second = x.b.n;
    chunk(&x, DATA + 131072, DATA_BYTES - 131072);
    chunk(&x, "", 0);
    tarn_sb_cstr(&x.b, "\r\n");
    assert_int_equal(run_all(&x), TARN_OK);
    tarn_sb y;
    tarn_sb_init(&y, 1 << 20);
    tarn_sb_bytes(&y, x.b.p + first, second - first); /* swapped */
    tarn_sb_bytes(&y, x.b.p, first);
    tarn_sb_bytes(&y, x.b.p + second, x.b.n - second);
    assert_int_equal(run(tarn_sb_view(&y), step_all, NULL, NULL), TARN_E_SIGNATURE_DOES_NOT_MATCH);
    tarn_sb_reset(&y);
    tarn_sb_bytes(&y, x.b.p, first); /* one left out */
    tarn_sb_bytes(&y, x.b.p + second, x.b.n - second);
    assert_int_equal(run(tarn_sb_view(&y), step_all, NULL, NULL), TARN_E_SIGNATURE_DOES_NOT_MATCH);
    tarn_sb_free(&y);
    tarn_sb_free(&x.b);
    /* An end made of another chain. */
    RESULT.decoded_length = 65536;
    start(&x);
    chunk(&x, DATA, 65536);
    memcpy(x.previous, RESULT.seed_signature, 65);
    chunk(&x, "", 0);
    tarn_sb_cstr(&x.b, "\r\n");
    assert_int_equal(run_all(&x), TARN_E_SIGNATURE_DOES_NOT_MATCH);
    tarn_sb_free(&x.b);
}

static void test_decoded_length(void **state)
{
    (void)state;
    for (size_t m = 0; m < TARN_ARRAY_LEN(MODES); m++) {
        static const uint64_t lengths[] = {0, DATA_BYTES - 1, DATA_BYTES + 1, 5, UINT64_MAX};
        mode(MODES[m]);
        body x;
        good(&x);
        for (size_t i = 0; i < TARN_ARRAY_LEN(lengths); i++) {
            RESULT.decoded_length = lengths[i];
            assert_int_equal(run(tarn_sb_view(&x.b), step_all, NULL, NULL), TARN_E_INCOMPLETE_BODY);
        }
        RESULT.decoded_length = DATA_BYTES;
        tarn_sb_free(&x.b);
    }
    RESULT.has_decoded_length = false;
    tarn_chunked *c = NULL;
    assert_int_equal(tarn_chunked_new(&RESULT, ARENA, &c), TARN_E_MISSING_CONTENT_LENGTH);
    RESULT.has_decoded_length = true;
    RESULT.payload = TARN_PAYLOAD_UNSIGNED;
    assert_int_equal(tarn_chunked_new(&RESULT, ARENA, &c), TARN_E_INVALID_REQUEST);
}

static void test_empty(void **state)
{
    (void)state;
    for (size_t m = 0; m < TARN_ARRAY_LEN(MODES); m++) {
        mode(MODES[m]);
        RESULT.decoded_length = 0;
        body x;
        start(&x);
        chunk(&x, "", 0);
        if (MODES[m] != TARN_PAYLOAD_SIGNED_CHUNKS) {
            trailer(&x, CRC_LINE, "\r\n");
        }
        tarn_sb_cstr(&x.b, "\r\n");
        assert_int_equal(run_all(&x), TARN_OK);
        tarn_sb_free(&x.b);
    }
    assert_int_equal(run(TARN_STR(""), step_all, NULL, NULL), TARN_E_INCOMPLETE_BODY);
}

static void test_chunk_sizes(void **state)
{
    (void)state;
    static const struct {
        size_t first;
        tarn_err err;
    } cases[] = {{TARN_CHUNK_BYTES_MIN, TARN_OK}, {TARN_CHUNK_BYTES_MIN - 1, TARN_E_INVALID_CHUNK_SIZE}, {1, TARN_E_INVALID_CHUNK_SIZE}};
    for (size_t i = 0; i < TARN_ARRAY_LEN(cases); i++) {
        body x;
        start(&x);
        chunk(&x, DATA, cases[i].first);
        chunk(&x, DATA + cases[i].first, DATA_BYTES - cases[i].first);
        chunk(&x, "", 0);
        tarn_sb_cstr(&x.b, "\r\n");
        assert_int_equal(run_all(&x), cases[i].err);
        tarn_sb_free(&x.b);
    }
    /* Without signatures small chunks cost nothing and are taken. */
    mode(TARN_PAYLOAD_UNSIGNED_TRAILER);
    body x;
    start(&x);
    chunk(&x, DATA, 1);
    chunk(&x, DATA + 1, DATA_BYTES - 1);
    chunk(&x, "", 0);
    trailer(&x, CRC_LINE, "\r\n");
    tarn_sb_cstr(&x.b, "\r\n");
    assert_int_equal(run_all(&x), TARN_OK);
    tarn_sb_free(&x.b);
}

static void test_largest_chunk(void **state)
{
    (void)state;
    char line[256];
    RESULT.decoded_length = UINT64_C(1) << 40;
    for (uint64_t extra = 0; extra < 2; extra++) {
        int n = snprintf(line, sizeof line, "%llx;chunk-signature=%064d\r\n", (unsigned long long)(TARN_CHUNK_BYTES_MAX + extra), 0);
        tarn_err e = run((tarn_str){line, (size_t)n}, step_all, NULL, NULL);
        assert_int_equal(e, extra ? TARN_E_INVALID_CHUNK_SIZE : TARN_E_INCOMPLETE_BODY);
    }
}

static void test_size_lines(void **state)
{
    (void)state;
    static const char SIG[] = ";chunk-signature=0000000000000000000000000000000000000000000000000000000000000000\r\n";
    static const struct {
        const char *size;
        tarn_err err;
    } cases[] = {
        {"-10000", TARN_E_INVALID_REQUEST},
        {"+5", TARN_E_INVALID_REQUEST},
        {"", TARN_E_INVALID_REQUEST},
        {" 5", TARN_E_INVALID_REQUEST},
        {"5 ", TARN_E_INVALID_REQUEST},
        {"0x5", TARN_E_INVALID_REQUEST},
        {"xyz", TARN_E_INVALID_REQUEST},
        {"10000000000010000", TARN_E_INVALID_REQUEST}, /* 2^64 + 65536 */
        {"00000000000000005", TARN_E_INVALID_REQUEST}, /* 17 digits */
        {"4000000000000000", TARN_E_INCOMPLETE_BODY},
        {"ffffffffffffffff", TARN_E_INCOMPLETE_BODY},
        {"0000000000000005", TARN_E_INCOMPLETE_BODY}, /* good, but nothing follows */
        {"FFFF", TARN_E_INCOMPLETE_BODY},
    };
    for (size_t i = 0; i < TARN_ARRAY_LEN(cases); i++) {
        tarn_sb b;
        tarn_sb_init(&b, 4096);
        tarn_sb_fmt(&b, "%s%s", cases[i].size, SIG);
        tarn_err e = run(tarn_sb_view(&b), step_all, NULL, NULL);
        if (e != cases[i].err) {
            fail_msg("\"%s\": %s", cases[i].size, tarn_err_get(e)->name);
        }
        tarn_sb_free(&b);
    }
    static const char *const lines[] = {
        "5\r\n",
        "5;\r\n",
        "5;chunk-signature\r\n",
        "5;chunk-signature =0000000000000000000000000000000000000000000000000000000000000000\r\n",
        "5;other=1;chunk-signature=0000000000000000000000000000000000000000000000000000000000000000\r\n",
        "5;chunk-signature=0000000000000000000000000000000000000000000000000000000000000000\n",
        "5;chunk-signature=00000000000000000000000000000000\r00000000000000000000000000000000\r\n",
        "\r\n",
        "just some bytes, no framing at all\r\n",
    };
    for (size_t i = 0; i < TARN_ARRAY_LEN(lines); i++) {
        assert_int_equal(run(tarn_str_of(lines[i]), step_all, NULL, NULL), TARN_E_INVALID_REQUEST);
        assert_int_equal(run(tarn_str_of(lines[i]), step_one, NULL, NULL), TARN_E_INVALID_REQUEST);
    }
    assert_int_equal(run(TARN_STR("5;chunk-signature=00000000\r\n"), step_all, NULL, NULL), TARN_E_SIGNATURE_DOES_NOT_MATCH);
    mode(TARN_PAYLOAD_UNSIGNED_TRAILER);
    assert_int_equal(run(TARN_STR("5;a=b\r\n"), step_all, NULL, NULL), TARN_E_INVALID_REQUEST);
    assert_int_equal(run(TARN_STR("5;\r\n"), step_all, NULL, NULL), TARN_E_INVALID_REQUEST);
}

static void test_line_length(void **state)
{
    (void)state;
    static char line[4096];
    memset(line, '0', sizeof line);
    assert_int_equal(run((tarn_str){line, 1024}, step_all, NULL, NULL), TARN_E_INCOMPLETE_BODY); /* still waiting */
    assert_int_equal(run((tarn_str){line, 1025}, step_all, NULL, NULL), TARN_E_INVALID_REQUEST);
    assert_int_equal(run((tarn_str){line, 1025}, step_one, NULL, NULL), TARN_E_INVALID_REQUEST);
    mode(TARN_PAYLOAD_UNSIGNED_TRAILER);
    RESULT.decoded_length = 0;
    memcpy(line, "0\r\nx-amz-checksum-crc32:", 24);
    assert_int_equal(run((tarn_str){line, sizeof line}, step_seven, NULL, NULL), TARN_E_MALFORMED_TRAILER);
}

static tarn_err with_tail(const char *tail)
{
    body x;
    RESULT.decoded_length = 20;
    start(&x);
    chunk(&x, DATA, 20);
    chunk(&x, "", 0);
    tarn_sb_cstr(&x.b, tail);
    tarn_err e = run_all(&x);
    tarn_sb_free(&x.b);
    return e;
}

static void test_unsigned_trailers(void **state)
{
    (void)state;
    mode(TARN_PAYLOAD_UNSIGNED_TRAILER);
    static const struct {
        const char *tail;
        tarn_err err;
    } cases[] = {
        {"x-amz-checksum-crc32:AAAAAA==\r\n\r\n", TARN_OK},
        {"x-amz-checksum-crc32: AAAAAA== \r\n\r\n", TARN_OK},
        {"X-Amz-Checksum-CRC32:AAAAAA==\r\n\r\n", TARN_OK},
        {"x-amz-checksum-crc32:AAAAAA==\n\r\n\r\n", TARN_OK}, /* as one client sends it */
        {"x-amz-checksum-crc32:AAAAAA==\r\n\r\n\r\n", TARN_OK},
        {"x-amz-checksum-crc32:AAAAAA==\r\n\r\n\r\n\r\n", TARN_E_INVALID_REQUEST},
        {"x-amz-checksum-crc32:AAAAAA==\r\n\r\n5\r\nhello\r\n", TARN_E_INVALID_REQUEST},
        {"x-amz-checksum-crc32:AAAAAA==\r\n\r\n\r", TARN_E_INCOMPLETE_BODY},
        {"x-amz-checksum-crc32:AAAAAA==\r\n", TARN_E_MALFORMED_TRAILER},
        {"\r\n", TARN_E_MALFORMED_TRAILER}, /* announced, not there */
        {"", TARN_E_MALFORMED_TRAILER},
        {"x-amz-checksum-sha256:MDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDA=\r\n\r\n", TARN_E_MALFORMED_TRAILER}, /* not announced */
        {"x-amz-checksum-crc32:AAAAAA==\r\nx-amz-checksum-crc32:AAAAAA==\r\n\r\n", TARN_E_MALFORMED_TRAILER},
        {"x-amz-checksum-crc32:!!!!!!!!\r\n\r\n", TARN_E_INVALID_REQUEST},
        {"x-amz-checksum-crc32:AAAA\r\n\r\n", TARN_E_INVALID_REQUEST}, /* three bytes */
        {"x-amz-checksum-crc32:\r\n\r\n", TARN_E_INVALID_REQUEST},
        {"x-amz-checksum-crc32\r\n\r\n", TARN_E_MALFORMED_TRAILER},
        {":AAAAAA==\r\n\r\n", TARN_E_MALFORMED_TRAILER},
        {"x-amz-checksum-crc32:AAAA\rAA==\r\n\r\n", TARN_E_MALFORMED_TRAILER},
        {"x-amz-trailer-signature:0000\r\n\r\n", TARN_E_MALFORMED_TRAILER},
    };
    for (size_t i = 0; i < TARN_ARRAY_LEN(cases); i++) {
        tarn_err e = with_tail(cases[i].tail);
        if (e != cases[i].err) {
            fail_msg("case %zu: %s", i, tarn_err_get(e)->name);
        }
    }
    /* None announced: none needed, none taken. */
    RESULT.trailer_names = TARN_STR_NULL;
    assert_int_equal(with_tail("\r\n"), TARN_OK);
    assert_int_equal(with_tail("x-amz-checksum-crc32:AAAAAA==\r\n\r\n"), TARN_E_MALFORMED_TRAILER);
}

static void test_signed_trailers(void **state)
{
    (void)state;
    mode(TARN_PAYLOAD_SIGNED_CHUNKS_TRAILER);
    RESULT.decoded_length = 20;
    body x;
    start(&x);
    chunk(&x, DATA, 20);
    chunk(&x, "", 0);
    size_t chunks = x.b.n;
    /* One client ends the line with LF and sends an empty line before the signature. */
    trailer(&x, CRC_LINE, "\n\r\n");
    tarn_sb_cstr(&x.b, "\r\n");
    assert_int_equal(run_all(&x), TARN_OK);
    char signature[65];
    memcpy(signature, x.previous, 65);
    tarn_sb_free(&x.b);
    assert_true(chunks > 0);
    static const struct {
        const char *fmt; /* %s: the good signature */
        tarn_err err;
    } cases[] = {
        {"x-amz-checksum-crc32:AAAAAA==\r\nx-amz-trailer-signature:%s\r\n\r\n", TARN_OK},
        {"x-amz-checksum-crc32:AAAAAA==\r\nX-Amz-Trailer-Signature: %s\r\n\r\n", TARN_OK},
        {"x-amz-checksum-crc32:AAAAAQ==\r\nx-amz-trailer-signature:%s\r\n\r\n", TARN_E_SIGNATURE_DOES_NOT_MATCH},
        {"x-amz-checksum-crc32:AAAAAA==\r\n\r\n", TARN_E_MALFORMED_TRAILER},
        {"x-amz-checksum-crc32:AAAAAA==\r\nx-amz-trailer-signature:%s0\r\n\r\n", TARN_E_SIGNATURE_DOES_NOT_MATCH},
        {"x-amz-checksum-crc32:AAAAAA==\r\nx-amz-trailer-signature:\r\n\r\n", TARN_E_SIGNATURE_DOES_NOT_MATCH},
        {"x-amz-trailer-signature:%s\r\n\r\n", TARN_E_SIGNATURE_DOES_NOT_MATCH},
        {"x-amz-checksum-crc32:AAAAAA==\r\nx-amz-trailer-signature:%s\r\nx-amz-trailer-signature:%s\r\n\r\n", TARN_E_MALFORMED_TRAILER},
        {"x-amz-checksum-crc32:AAAAAA==\r\nx-amz-trailer-signature:%s\r\n", TARN_E_MALFORMED_TRAILER},
        {"\r\nx-amz-checksum-crc32:AAAAAA==\r\nx-amz-trailer-signature:%s\r\n\r\n", TARN_E_MALFORMED_TRAILER},
        {"x-amz-checksum-crc32:AAAAAA==\r\n\r\n\r\nx-amz-trailer-signature:%s\r\n\r\n", TARN_E_MALFORMED_TRAILER},
    };
    for (size_t i = 0; i < TARN_ARRAY_LEN(cases); i++) {
        char tail[1024];
        tarn_sb b;
        tarn_sb_init_fixed(&b, tail, sizeof tail);
        tarn_str rest = tarn_str_of(cases[i].fmt);
        while (rest.n > 0) {
            ptrdiff_t at = tarn_str_find(rest, TARN_STR("%s"));
            tarn_sb_str(&b, tarn_str_sub(rest, 0, at < 0 ? rest.n : (size_t)at));
            tarn_sb_cstr(&b, at < 0 ? "" : signature);
            rest = tarn_str_sub(rest, at < 0 ? rest.n : (size_t)at + 2, SIZE_MAX);
        }
        tarn_err e = with_tail(tail);
        if (e != cases[i].err) {
            fail_msg("case %zu: %s", i, tarn_err_get(e)->name);
        }
    }
}

static void test_no_trailers_in_plain_mode(void **state)
{
    (void)state;
    assert_int_equal(with_tail("\r\n"), TARN_OK);
    assert_int_equal(with_tail("x-amz-checksum-crc32:AAAAAA==\r\n\r\n"), TARN_E_MALFORMED_TRAILER);
    assert_int_equal(with_tail(""), TARN_E_INCOMPLETE_BODY);
    assert_int_equal(with_tail("\r\n\r\n"), TARN_OK);
    assert_int_equal(with_tail("\r\nhello"), TARN_E_INVALID_REQUEST);
}

static void test_stays_failed(void **state)
{
    (void)state;
    tarn_chunked *c = NULL;
    size_t used = 1;
    tarn_str data;
    assert_int_equal(tarn_chunked_new(&RESULT, ARENA, &c), TARN_OK);
    assert_int_equal(tarn_chunked_feed(c, TARN_STR("zzz\r\n"), &used, &data), TARN_E_INVALID_REQUEST);
    assert_int_equal(tarn_chunked_feed(c, TARN_STR("5"), &used, &data), TARN_E_INVALID_REQUEST);
    assert_int_equal(used, 0);
    assert_int_equal(tarn_chunked_finish(c), TARN_E_INVALID_REQUEST);
    tarn_chunked_end(c);
    tarn_chunked_end(NULL);
}

#define T(f) cmocka_unit_test_setup_teardown(f, before, after)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(test_splits),       T(test_every_byte),        T(test_order),           T(test_decoded_length),
        T(test_empty),        T(test_chunk_sizes),       T(test_largest_chunk),   T(test_size_lines),
        T(test_line_length),  T(test_unsigned_trailers), T(test_signed_trailers), T(test_no_trailers_in_plain_mode),
        T(test_stays_failed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
