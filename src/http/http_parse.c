/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parser of a request's head. See http_parse.h.
 *
 * Format: METHOD SP target SP HTTP/1.x CRLF *( name ":" OWS value OWS CRLF ) CRLF.
 * Invariants:
 *  1. A line end is CRLF and nothing else: a bare LF is seen by the scan, a bare CR by the byte tables below.
 *  2. At most one Content-Length, all digits, at most 2^63 - 1; at most one Transfer-Encoding, "chunked"; never both.
 *  3. HTTP/1.1 has exactly one Host.
 * Owns nothing; runs on the connection's fiber.
 */
#include <string.h>

#include "http_parse.h"

/* One bit per byte: what may stand where. */
enum { B_TOKEN = 1, B_TARGET = 2, B_VALUE = 4, B_HOST = 8 };

static uint8_t byte_class(unsigned char c)
{
    uint8_t m = 0;
    bool alnum = (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
    if (alnum || (c != 0 && strchr("!#$%&'*+-.^_`|~", c) != NULL)) {
        m |= B_TOKEN;
    }
    if (c > 0x20 && c != 0x7f && c != '#') {
        m |= B_TARGET; /* raw bytes over 0x7f too: S3 clients send them; the layers above see them as they are */
    }
    if (c == '\t' || (c >= 0x20 && c != 0x7f)) {
        m |= B_VALUE;
    }
    if (alnum || (c != 0 && strchr("-._~:[]%!$&'()*+,;=", c) != NULL)) {
        m |= B_HOST;
    }
    return m;
}

static uint8_t classes[256];

/* Filled before main: the table is read by every worker, written by nobody after that. */
__attribute__((constructor)) static void classes_init(void)
{
    for (unsigned i = 0; i < 256; i++) {
        classes[i] = byte_class((unsigned char)i);
    }
}

static bool all_of(tarn_str s, uint8_t bit)
{
    uint8_t m = bit;
    for (size_t i = 0; i < s.n; i++) {
        m &= classes[(unsigned char)s.p[i]];
    }
    return m == bit;
}

bool tarn_http_is_token(tarn_str s)
{
    return s.n > 0 && all_of(s, B_TOKEN);
}

tarn_err tarn_http_scan(tarn_http_scanner *s, const char *p, size_t n, const char **why)
{
    TARN_ASSERT(!s->complete && s->seen <= n);
    while (s->seen < n) {
        const char *lf = memchr(p + s->seen, '\n', n - s->seen);
        if (lf == NULL) {
            s->seen = n;
            break;
        }
        size_t at = (size_t)(lf - p);
        if (at == s->line_start || p[at - 1] != '\r') {
            *why = "A line of the request head does not end in CR LF.";
            return TARN_E_HTTP_BAD_REQUEST;
        }
        s->seen = at + 1;
        bool empty = at - s->line_start == 1;
        s->line_start = at + 1;
        if (!empty) {
            s->lines++;
        } else if (s->lines == 0) {
            s->start = at + 1;
        } else {
            s->end = at + 1;
            s->complete = true;
            break;
        }
        if (s->lines > TARN_HTTP_HEADERS_MAX + 1) {
            *why = "The request has too many header fields.";
            return TARN_E_HEADER_TOO_LARGE;
        }
    }
    if (s->lines == 0 && n > s->start && (classes[(unsigned char)p[s->start]] & B_TOKEN) == 0 && p[s->start] != '\r') {
        *why = "This is not an HTTP/1.1 request.";
        return TARN_E_HTTP_BAD_REQUEST;
    }
    if (s->lines == 0 && n - s->start > TARN_HTTP_LINE_BYTES_MAX) {
        *why = "The request line is too long.";
        return TARN_E_INVALID_URI;
    }
    if ((s->complete ? s->end : n) - s->start > TARN_HTTP_HEAD_BYTES_MAX) {
        *why = "The request line and header fields are too large.";
        return TARN_E_HEADER_TOO_LARGE;
    }
    return TARN_OK;
}

/* ------------------------------------------------------------------ request line */

static tarn_err bad(const char **why, const char *text)
{
    *why = text;
    return TARN_E_HTTP_BAD_REQUEST;
}

static tarn_err parse_version(tarn_str v, int *minor, const char **why)
{
    bool form =
        v.n == 8 && tarn_str_starts(v, "HTTP/") && v.p[5] >= '0' && v.p[5] <= '9' && v.p[6] == '.' && v.p[7] >= '0' && v.p[7] <= '9';
    if (!form) {
        return bad(why, "The request line has no valid HTTP version.");
    }
    if (v.p[5] != '1' || v.p[7] > '1') {
        *why = "Only HTTP/1.1 and HTTP/1.0 are served here.";
        return TARN_E_HTTP_VERSION;
    }
    *minor = v.p[7] - '0';
    return TARN_OK;
}

static void split_query(tarn_str target, tarn_http_head *out)
{
    ptrdiff_t q = tarn_str_chr(target, '?');
    out->raw_path = target;
    out->raw_query = TARN_STR_NULL;
    if (q >= 0) {
        out->raw_path.n = (size_t)q;
        out->raw_query = (tarn_str){target.p + q + 1, target.n - (size_t)q - 1};
    }
    if (out->raw_path.n == 0) {
        out->raw_path = TARN_STR("/"); /* "http://host?x" */
    }
}

static tarn_err parse_target(tarn_str target, tarn_http_head *out, tarn_str *authority, const char **why)
{
    if (target.n == 0 || !all_of(target, B_TARGET)) {
        return bad(why, "The request target is empty or holds a byte that must be percent-encoded.");
    }
    if (target.n > TARN_HTTP_TARGET_BYTES_MAX) {
        *why = "The request target is too long.";
        return TARN_E_INVALID_URI;
    }
    if (target.p[0] == '/') {
        split_query(target, out);
        return TARN_OK;
    }
    if (tarn_str_eqc(target, "*") && tarn_str_eqc(out->method, "OPTIONS")) {
        out->raw_path = target;
        return TARN_OK;
    }
    size_t scheme = tarn_str_istarts(target, "http://") ? 7 : tarn_str_istarts(target, "https://") ? 8 : 0;
    if (scheme == 0) {
        return bad(why, "The request target must begin with a slash.");
    }
    tarn_str rest = tarn_str_sub(target, scheme, target.n);
    size_t n = 0;
    while (n < rest.n && rest.p[n] != '/' && rest.p[n] != '?') {
        n++;
    }
    *authority = tarn_str_sub(rest, 0, n);
    if (n == 0 || !all_of(*authority, B_HOST)) {
        return bad(why, "The authority of the request target is not valid.");
    }
    split_query(tarn_str_sub(rest, n, rest.n), out);
    return TARN_OK;
}

tarn_err tarn_http_parse_line(tarn_str line, tarn_http_head *out, tarn_str *authority, const char **why)
{
    tarn_str method, rest;
    *authority = TARN_STR_NULL;
    if (!tarn_str_split(line, ' ', &method, &rest) || !tarn_http_is_token(method)) {
        return bad(why, "The request line must be: method, blank, target, blank, version.");
    }
    if (method.n > TARN_HTTP_METHOD_BYTES_MAX) {
        return bad(why, "The method's name is too long.");
    }
    ptrdiff_t blank = tarn_str_rchr(rest, ' ');
    if (blank < 0) {
        return bad(why, "The request line must be: method, blank, target, blank, version.");
    }
    out->method = method;
    /* The target first: an answer about the version is to be in the form that the path asks for. Only the preface of HTTP/2,
     * whose target is none of ours, is told that the version is what is wrong with it. */
    tarn_err e = parse_target(tarn_str_sub(rest, 0, (size_t)blank), out, authority, why);
    if (e != TARN_OK && !tarn_str_eqc(method, "PRI")) {
        return e;
    }
    const char *target_why = e != TARN_OK ? *why : NULL;
    tarn_err version = parse_version(tarn_str_sub(rest, (size_t)blank + 1, rest.n), &out->minor, why);
    if (version == TARN_OK && e != TARN_OK) {
        *why = target_why;
    }
    return version != TARN_OK ? version : e;
}

/* ------------------------------------------------------------------ header fields */

static tarn_err take_content_length(tarn_http_head *h, tarn_str v, const char **why)
{
    uint64_t n = 0;
    if (h->has_content_length) {
        return bad(why, "Content-Length was sent more than once.");
    }
    if (!tarn_str_to_u64(v, &n) || n > TARN_HTTP_CONTENT_LENGTH_MAX) {
        return bad(why, "Content-Length is not a valid number.");
    }
    h->has_content_length = true;
    h->content_length = n;
    return TARN_OK;
}

static tarn_err take_transfer_encoding(tarn_http_head *h, tarn_str v, const char **why)
{
    if (h->has_transfer_encoding) {
        return bad(why, "Transfer-Encoding was sent more than once.");
    }
    if (!tarn_str_ieqc(v, "chunked")) {
        return bad(why, "The only transfer coding that is understood is chunked.");
    }
    h->has_transfer_encoding = true;
    return TARN_OK;
}

static tarn_err take_host(tarn_http_head *h, tarn_str v, const char **why)
{
    if (h->has_host) {
        return bad(why, "Host was sent more than once.");
    }
    if (!all_of(v, B_HOST)) {
        return bad(why, "Host is not valid.");
    }
    h->has_host = true;
    h->host = v;
    return TARN_OK;
}

static void take_connection(tarn_http_head *h, tarn_str v)
{
    while (v.n > 0) {
        tarn_str item, rest;
        if (!tarn_str_split(v, ',', &item, &rest)) {
            item = v;
            rest = TARN_STR_NULL;
        }
        item = tarn_str_trim(item);
        h->connection_close = h->connection_close || tarn_str_ieqc(item, "close");
        h->connection_keep_alive = h->connection_keep_alive || tarn_str_ieqc(item, "keep-alive");
        v = rest;
    }
}

static tarn_err take_expect(tarn_http_head *h, tarn_str v, const char **why)
{
    if (!tarn_str_ieqc(v, "100-continue")) {
        *why = "The only expectation that can be met is 100-continue.";
        return TARN_E_EXPECTATION_FAILED;
    }
    h->expect_continue = true;
    return TARN_OK;
}

/* The few fields that decide about framing and the connection; told apart by length first. */
static tarn_err take_special(tarn_http_head *h, tarn_str name, tarn_str v, const char **why)
{
    switch (name.n) {
    case 4:
        return tarn_str_ieqc(name, "host") ? take_host(h, v, why) : TARN_OK;
    case 6:
        return tarn_str_ieqc(name, "expect") ? take_expect(h, v, why) : TARN_OK;
    case 10:
        if (tarn_str_ieqc(name, "connection")) {
            take_connection(h, v);
        }
        return TARN_OK;
    case 14:
        return tarn_str_ieqc(name, "content-length") ? take_content_length(h, v, why) : TARN_OK;
    case 17:
        return tarn_str_ieqc(name, "transfer-encoding") ? take_transfer_encoding(h, v, why) : TARN_OK;
    default:
        return TARN_OK;
    }
}

static tarn_err parse_field(tarn_http_head *h, tarn_str line, const char **why)
{
    tarn_pair *f = &h->headers[h->headers_n];
    ptrdiff_t colon = tarn_str_chr(line, ':');
    if (line.p[0] == ' ' || line.p[0] == '\t') {
        return bad(why, "Folded header lines are not understood.");
    }
    if (colon < 0) {
        return bad(why, "A header line has no colon.");
    }
    f->name = tarn_str_sub(line, 0, (size_t)colon);
    f->value = tarn_str_sub(line, (size_t)colon + 1, line.n);
    if (!tarn_http_is_token(f->name)) {
        return bad(why, "The name of a header field is not valid.");
    }
    if (!all_of(f->value, B_VALUE)) {
        return bad(why, "The value of a header field holds a control byte.");
    }
    f->value = tarn_str_trim(f->value);
    h->headers_n++;
    return take_special(h, f->name, f->value, why);
}

static tarn_err check_framing(const tarn_http_head *h, tarn_str authority, const char **why)
{
    if (h->has_content_length && h->has_transfer_encoding) {
        return bad(why, "Content-Length and Transfer-Encoding were both sent.");
    }
    if (h->has_transfer_encoding && h->minor == 0) {
        return bad(why, "Transfer-Encoding does not exist in HTTP/1.0.");
    }
    if (!h->has_host && h->minor == 1) {
        return bad(why, "The Host header is missing.");
    }
    if (authority.n > 0 && h->has_host && !tarn_str_ieq(authority, h->host)) {
        return bad(why, "The request target and the Host header name different hosts.");
    }
    return TARN_OK;
}

/* Cuts the next line off; the scan has made sure that each ends in CRLF. */
static tarn_str next_line(tarn_str *rest)
{
    const char *lf = memchr(rest->p, '\n', rest->n);
    TARN_ASSERT(lf != NULL && lf > rest->p && lf[-1] == '\r');
    tarn_str line = {rest->p, (size_t)(lf - rest->p) - 1};
    *rest = (tarn_str){lf + 1, rest->n - (size_t)(lf - rest->p) - 1};
    return line;
}

tarn_err tarn_http_parse_head(tarn_str head, size_t lines, tarn_arena *arena, tarn_http_head *out, const char **why)
{
    TARN_ASSERT(lines >= 1 && lines <= TARN_HTTP_HEADERS_MAX + 1);
    tarn_str authority;
    *out = (tarn_http_head){.minor = 1};
    tarn_err e = tarn_http_parse_line(next_line(&head), out, &authority, why);
    if (e != TARN_OK) {
        return e;
    }
    out->headers = tarn_arena_alloc(arena, sizeof(tarn_pair) * lines);
    if (out->headers == NULL) {
        *why = "The server is out of memory.";
        return TARN_E_NO_MEMORY;
    }
    for (size_t i = 1; i < lines; i++) {
        e = parse_field(out, next_line(&head), why);
        if (e != TARN_OK) {
            return e;
        }
    }
    return check_framing(out, authority, why);
}
