/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The answer: head building, bodies in one piece or many, connection persistence.
 *
 * A small answer leaves in one system call: head and body in one vector. After tarn_resp_begin() the head waits for the
 * first piece of the body and goes with it.
 * Invariants:
 *  1. Exactly one answer a request; a second one ends the process (it would be taken for the next request's).
 *  2. Never more body than announced; less only when the connection is cut.
 *  3. No header line is made of bytes that could end it.
 * The header lines live in the request's arena; everything runs on the connection's fiber.
 */
#include <string.h>

#include "http_private.h"

#define HEADERS_FIRST_BYTES 1024
#define PREFIX_BYTES_MAX 384
#define SUFFIX_BYTES_MAX 128

const char *tarn_http_reason(int status)
{
    static const struct {
        int status;
        const char *reason;
    } reasons[] = {
        {200, "OK"},
        {201, "Created"},
        {202, "Accepted"},
        {204, "No Content"},
        {206, "Partial Content"},
        {301, "Moved Permanently"},
        {302, "Found"},
        {303, "See Other"},
        {304, "Not Modified"},
        {307, "Temporary Redirect"},
        {400, "Bad Request"},
        {401, "Unauthorized"},
        {403, "Forbidden"},
        {404, "Not Found"},
        {405, "Method Not Allowed"},
        {406, "Not Acceptable"},
        {408, "Request Timeout"},
        {409, "Conflict"},
        {411, "Length Required"},
        {412, "Precondition Failed"},
        {413, "Content Too Large"},
        {414, "URI Too Long"},
        {416, "Range Not Satisfiable"},
        {417, "Expectation Failed"},
        {419, "Authentication Timeout"},
        {422, "Unprocessable Content"},
        {429, "Too Many Requests"},
        {431, "Request Header Fields Too Large"},
        {499, "Client Closed Request"},
        {500, "Internal Server Error"},
        {501, "Not Implemented"},
        {503, "Service Unavailable"},
        {505, "HTTP Version Not Supported"},
        {507, "Insufficient Storage"},
    };
    for (size_t i = 0; i < TARN_ARRAY_LEN(reasons); i++) {
        if (reasons[i].status == status) {
            return reasons[i].reason;
        }
    }
    return "Status";
}

/* ------------------------------------------------------------------ header lines */

/* The engine sets these itself; a second one could break the framing. */
static bool is_own_header(tarn_str name)
{
    static const char *const own[] = {"content-length", "transfer-encoding", "connection", "date", "server", "x-amz-request-id"};
    for (size_t i = 0; i < TARN_ARRAY_LEN(own); i++) {
        if (tarn_str_ieqc(name, own[i])) {
            return true;
        }
    }
    return false;
}

static bool is_line_safe(tarn_str v)
{
    for (size_t i = 0; i < v.n; i++) {
        if (v.p[i] == '\r' || v.p[i] == '\n' || v.p[i] == '\0') {
            return false;
        }
    }
    return true;
}

static bool headers_room(tarn_req *r, size_t n)
{
    if (r->headers.cap - r->headers.n > n) {
        return true;
    }
    size_t cap = r->headers.cap == 0 ? HEADERS_FIRST_BYTES : r->headers.cap;
    while (cap - r->headers.n <= n && cap <= TARN_HTTP_RESPONSE_HEAD_BYTES_MAX) {
        cap *= 2;
    }
    char *mem = cap > TARN_HTTP_RESPONSE_HEAD_BYTES_MAX ? NULL : tarn_arena_alloc(r->arena, cap);
    if (mem == NULL) {
        r->headers_failed = true;
        return false;
    }
    tarn_sb grown;
    tarn_sb_init_fixed(&grown, mem, cap);
    tarn_sb_bytes(&grown, r->headers.p, r->headers.n);
    r->headers = grown;
    return true;
}

void tarn_resp_header(tarn_req *r, const char *name, tarn_str value)
{
    tarn_str n = tarn_str_of(name);
    TARN_ASSERT(r->answer == TARN_HTTP_ANSWER_NONE);
    if (!tarn_http_is_token(n) || !is_line_safe(value) || is_own_header(n) || !headers_room(r, n.n + value.n + 4)) {
        return;
    }
    tarn_sb_bytes(&r->headers, n.p, n.n);
    tarn_sb_bytes(&r->headers, ": ", 2);
    tarn_sb_bytes(&r->headers, value.p, value.n);
    tarn_sb_bytes(&r->headers, "\r\n", 2);
}

void tarn_resp_headerc(tarn_req *r, const char *name, const char *value)
{
    tarn_resp_header(r, name, tarn_str_of(value));
}

void tarn_resp_header_u64(tarn_req *r, const char *name, uint64_t value)
{
    char mem[24];
    tarn_sb b;
    tarn_sb_init_fixed(&b, mem, sizeof mem);
    tarn_sb_u64(&b, value);
    tarn_resp_header(r, name, tarn_sb_view(&b));
}

/* ------------------------------------------------------------------ head */

static void decide_close(tarn_req *r)
{
    bool client_closes = r->head.connection_close || (r->head.minor == 0 && !r->head.connection_keep_alive);
    if (client_closes || r->http->draining || tarn_http_body_hopeless(r)) {
        r->close_after = true;
    }
}

static bool status_has_body(int status)
{
    return status != 204 && status != 304;
}

/* length UINT64_MAX: not known. */
static void build_prefix(tarn_req *r, int status, tarn_sb *b)
{
    tarn_sb_bytes(b, "HTTP/1.1 ", 9);
    tarn_sb_u64(b, (uint64_t)status);
    tarn_sb_char(b, ' ');
    tarn_sb_cstr(b, tarn_http_reason(status));
    tarn_sb_str(b, tarn_http_common_headers(r->http, r->time_ms));
    tarn_sb_bytes(b, r->id, 16);
    tarn_sb_bytes(b, "\r\n", 2);
}

static void build_suffix(tarn_req *r, int status, uint64_t length, tarn_sb *b)
{
    if (r->chunked_out) {
        tarn_sb_cstr(b, "Transfer-Encoding: chunked\r\n");
    } else if (length != UINT64_MAX && status_has_body(status)) {
        tarn_sb_cstr(b, "Content-Length: ");
        tarn_sb_u64(b, length);
        tarn_sb_bytes(b, "\r\n", 2);
    }
    if (r->close_after) {
        tarn_sb_cstr(b, "Connection: close\r\n");
    } else if (r->head.minor == 0) {
        tarn_sb_cstr(b, "Connection: keep-alive\r\n");
    }
    tarn_sb_bytes(b, "\r\n", 2);
}

static tarn_err send_vector(tarn_req *r, struct iovec *iov, size_t n, bool more)
{
    uint64_t bytes = 0;
    if (r->conn->broken) {
        return TARN_E_CLOSED;
    }
    for (size_t i = 0; i < n; i++) {
        bytes += iov[i].iov_len;
    }
    tarn_err e = tarn_sock_sendv(r->conn->sock, iov, n, more, tarn_http_deadline(TARN_HTTP_BODY_TIMEOUT_MS));
    if (e != TARN_OK) {
        r->conn->broken = true;
        return e;
    }
    r->sent_bytes += bytes;
    return TARN_OK;
}

static struct iovec vec(const void *p, size_t n)
{
    return (struct iovec){.iov_base = (void *)(uintptr_t)p, .iov_len = n};
}

/* Head and n bytes of body (which may be none), then what is left of the body in further pieces. */
static tarn_err send_head(tarn_req *r, uint64_t length, const char *body, size_t n, bool more)
{
    char prefix_mem[PREFIX_BYTES_MAX], suffix_mem[SUFFIX_BYTES_MAX], size_mem[24];
    tarn_sb prefix, suffix, size;
    struct iovec iov[6];
    size_t k = 0, first = n < TARN_HTTP_SEND_PIECE_BYTES ? n : TARN_HTTP_SEND_PIECE_BYTES;
    tarn_sb_init_fixed(&prefix, prefix_mem, sizeof prefix_mem);
    tarn_sb_init_fixed(&suffix, suffix_mem, sizeof suffix_mem);
    tarn_sb_init_fixed(&size, size_mem, sizeof size_mem);
    build_prefix(r, r->status, &prefix);
    build_suffix(r, r->status, length, &suffix);
    TARN_ASSERT(!prefix.failed && !suffix.failed);
    r->head_unsent = false;
    iov[k++] = vec(prefix.p, prefix.n);
    if (r->headers.n > 0) {
        iov[k++] = vec(r->headers.p, r->headers.n);
    }
    iov[k++] = vec(suffix.p, suffix.n);
    if (first > 0 && r->chunked_out) {
        tarn_sb_fmt(&size, "%zx\r\n", first);
        iov[k++] = vec(size.p, size.n);
    }
    if (first > 0) {
        iov[k++] = vec(body, first);
        if (r->chunked_out) {
            iov[k++] = vec("\r\n", 2);
        }
    }
    tarn_err e = send_vector(r, iov, k, more || first < n);
    if (e == TARN_OK && r->out_left != UINT64_MAX) {
        r->out_left -= first;
    }
    return e == TARN_OK && first < n ? tarn_resp_write(r, body + first, n - first, more) : e;
}

static tarn_err start_answer(tarn_req *r, int status, tarn_http_answer state)
{
    TARN_ASSERT(r->answer == TARN_HTTP_ANSWER_NONE);
    TARN_ASSERT(status >= 200 && status <= 599);
    if (r->headers_failed) {
        r->headers_failed = false;
        r->headers.n = 0;
        return TARN_E_NO_MEMORY; /* nothing was sent: an error can still be answered */
    }
    r->answer = state;
    r->status = status;
    decide_close(r);
    return TARN_OK;
}

tarn_err tarn_resp_send(tarn_req *r, int status, tarn_str body)
{
    bool with_body = !r->is_head && status_has_body(status);
    tarn_err e = start_answer(r, status, TARN_HTTP_ANSWER_BODY);
    if (e == TARN_OK) {
        r->out_left = with_body ? body.n : 0;
        e = send_head(r, body.n, body.p, (size_t)r->out_left, false);
        r->answer = TARN_HTTP_ANSWER_DONE;
    }
    return e;
}

tarn_err tarn_resp_send_head(tarn_req *r, int status, uint64_t content_length)
{
    tarn_err e = start_answer(r, status, TARN_HTTP_ANSWER_DONE);
    return e == TARN_OK ? send_head(r, content_length, NULL, 0, false) : e;
}

/* ------------------------------------------------------------------ body in pieces */

tarn_err tarn_resp_begin(tarn_req *r, int status, uint64_t length)
{
    tarn_err e = start_answer(r, status, TARN_HTTP_ANSWER_BODY);
    if (e != TARN_OK) {
        return e;
    }
    r->out_left = length;
    r->head_unsent = true;
    if (length == UINT64_MAX && r->head.minor == 1 && status_has_body(status)) {
        r->chunked_out = true;
    } else if (length == UINT64_MAX && status_has_body(status)) {
        r->close_after = true; /* HTTP/1.0: the close is the end */
    }
    return TARN_OK;
}

static tarn_err write_piece(tarn_req *r, const char *p, size_t n, bool more)
{
    char size_mem[24];
    tarn_sb size;
    struct iovec iov[3];
    size_t k = 0;
    if (r->chunked_out) {
        tarn_sb_init_fixed(&size, size_mem, sizeof size_mem);
        tarn_sb_fmt(&size, "%zx\r\n", n);
        iov[k++] = vec(size.p, size.n);
    }
    iov[k++] = vec(p, n);
    if (r->chunked_out) {
        iov[k++] = vec("\r\n", 2);
    }
    tarn_err e = send_vector(r, iov, k, more);
    if (e == TARN_OK && r->out_left != UINT64_MAX) {
        r->out_left -= n;
    }
    return e;
}

tarn_err tarn_resp_write(tarn_req *r, const void *p, size_t n, bool more)
{
    const char *at = p;
    TARN_ASSERT(r->answer == TARN_HTTP_ANSWER_BODY);
    TARN_ASSERT(r->out_left == UINT64_MAX || n <= r->out_left);
    if (r->is_head || !status_has_body(r->status) || n == 0) {
        return r->conn->broken ? TARN_E_CLOSED : TARN_OK;
    }
    if (r->head_unsent) {
        return send_head(r, r->out_left, at, n, more);
    }
    tarn_err e = TARN_OK;
    while (n > 0 && e == TARN_OK) {
        size_t k = n < TARN_HTTP_SEND_PIECE_BYTES ? n : TARN_HTTP_SEND_PIECE_BYTES;
        e = write_piece(r, at, k, more || k < n);
        at += k;
        n -= k;
    }
    return e;
}

tarn_err tarn_resp_end(tarn_req *r)
{
    tarn_err e = TARN_OK;
    TARN_ASSERT(r->answer == TARN_HTTP_ANSWER_BODY);
    if (r->head_unsent) {
        e = send_head(r, r->out_left, NULL, 0, r->chunked_out && !r->is_head);
    }
    bool bodiless = r->is_head || !status_has_body(r->status);
    if (e == TARN_OK && r->chunked_out && !bodiless) {
        struct iovec iov = vec("0\r\n\r\n", 5);
        e = send_vector(r, &iov, 1, false);
    }
    TARN_ASSERT(bodiless || r->conn->broken || r->out_left == UINT64_MAX || r->out_left == 0);
    r->answer = TARN_HTTP_ANSWER_DONE;
    return e;
}

void tarn_resp_abort(tarn_req *r)
{
    r->conn->cut = true;
    r->conn->broken = true;
    r->close_after = true;
    r->answer = TARN_HTTP_ANSWER_DONE;
}

bool tarn_resp_started(const tarn_req *r)
{
    return r->answer != TARN_HTTP_ANSWER_NONE;
}

void tarn_resp_close_after(tarn_req *r)
{
    r->close_after = true;
}
