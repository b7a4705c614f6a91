/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as a request head. What must hold: bytes in pieces give what they give at once; what is accepted keeps the
 * rules of framing; every slice lies inside the head.
 */
#include <string.h>

#include "http_parse.h"

typedef struct outcome {
    tarn_err err;
    tarn_http_scanner scan;
    tarn_http_head head;
} outcome;

static outcome parse(const char *p, size_t n, size_t step, tarn_arena *arena)
{
    outcome o = {.err = TARN_OK};
    const char *why = NULL;
    for (size_t seen = 0; seen < n && o.err == TARN_OK && !o.scan.complete;) {
        seen = n - seen < step ? n : seen + step;
        o.err = tarn_http_scan(&o.scan, p, seen, &why);
    }
    if (o.err == TARN_OK && o.scan.complete) {
        o.err = tarn_http_parse_head((tarn_str){p + o.scan.start, o.scan.end - o.scan.start}, o.scan.lines, arena, &o.head, &why);
    }
    TARN_ASSERT(o.err == TARN_OK || why != NULL);
    return o;
}

static void check_inside(tarn_str s, const char *p, size_t n)
{
    TARN_ASSERT(s.n == 0 || (s.p >= p && s.p + s.n <= p + n));
}

static void check_accepted(const outcome *o, const char *p)
{
    const tarn_http_head *h = &o->head;
    size_t lengths = 0, codings = 0, hosts = 0;
    for (size_t i = 0; i < h->headers_n; i++) {
        check_inside(h->headers[i].name, p, o->scan.end);
        check_inside(h->headers[i].value, p, o->scan.end);
        TARN_ASSERT(tarn_http_is_token(h->headers[i].name));
        TARN_ASSERT(memchr(h->headers[i].value.p, '\n', h->headers[i].value.n) == NULL);
        TARN_ASSERT(memchr(h->headers[i].value.p, '\r', h->headers[i].value.n) == NULL);
        TARN_ASSERT(memchr(h->headers[i].value.p, '\0', h->headers[i].value.n) == NULL);
        lengths += tarn_str_ieqc(h->headers[i].name, "content-length");
        codings += tarn_str_ieqc(h->headers[i].name, "transfer-encoding");
        hosts += tarn_str_ieqc(h->headers[i].name, "host");
    }
    TARN_ASSERT(lengths + codings <= 1);
    TARN_ASSERT(h->has_content_length == (lengths == 1) && h->has_transfer_encoding == (codings == 1));
    TARN_ASSERT(h->content_length <= INT64_MAX);
    TARN_ASSERT(hosts <= 1 && (hosts == 1 || h->minor == 0));
    TARN_ASSERT(h->raw_path.n > 0 && (h->raw_path.p[0] == '/' || tarn_str_eqc(h->raw_path, "*")));
    TARN_ASSERT(memchr(h->raw_path.p, ' ', h->raw_path.n) == NULL && memchr(h->raw_path.p, '?', h->raw_path.n) == NULL);
    TARN_ASSERT(tarn_http_is_token(h->method));
    TARN_ASSERT(o->scan.end - o->scan.start <= TARN_HTTP_HEAD_BYTES_MAX);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    const char *p = (const char *)data;
    tarn_arena *arena = tarn_arena_new(1u << 20);
    TARN_ASSERT(arena != NULL);
    outcome whole = parse(p, n, n > 0 ? n : 1, arena);
    outcome pieces = parse(p, n, n > 0 ? 1 + data[0] % 17 : 1, arena);
    /* In pieces an error may be seen before a later, different one: but accepted is accepted. */
    TARN_ASSERT((whole.err == TARN_OK && whole.scan.complete) == (pieces.err == TARN_OK && pieces.scan.complete));
    if (whole.err == TARN_OK && whole.scan.complete) {
        TARN_ASSERT(whole.scan.end == pieces.scan.end && whole.head.headers_n == pieces.head.headers_n);
        TARN_ASSERT(whole.head.content_length == pieces.head.content_length);
        check_accepted(&whole, p);
    }
    tarn_arena_free(arena);
    return 0;
}
