/* SPDX-License-Identifier: Apache-2.0 */
/*
 * http: the HTTP/1.1 engine (RFC 9110, 9112) and what a request and an answer look like to the APIs above it.
 *
 * One fiber per connection: read a head, check its framing, call the handler, drain or close, next. Everything ambiguous is
 * refused at this edge: duplicate or malformed Content-Length, Content-Length with Transfer-Encoding, any coding but
 * "chunked", folded headers, bare LF or CR, blanks before a colon, NUL, a missing or repeated Host.
 * Handlers run on the connection's fiber and may park. The request and all it holds lives in its arena until the
 * handler has returned and the answer has been sent.
 */
#ifndef TARN_HTTP_H
#define TARN_HTTP_H

#include "tarn/auth.h"
#include "tarn/io.h"

/* ------------------------------------------------------------------ limits */
#define TARN_HTTP_HEAD_BYTES_MAX (32 * 1024) /* request line and headers: past it 431 (400 RequestHeaderSectionTooLarge for S3) */
#define TARN_HTTP_HEADERS_MAX 200
#define TARN_HTTP_TARGET_BYTES_MAX (16 * 1024)
#define TARN_HTTP_ARENA_BYTES_MAX (32u * 1024 * 1024) /* per request */
#define TARN_HTTP_HEAD_TIMEOUT_MS 30000               /* from the first byte of a head to its end */
#define TARN_HTTP_IDLE_TIMEOUT_MS 120000              /* between requests */
#define TARN_HTTP_BODY_TIMEOUT_MS 60000               /* without a single byte of body, either way */
#define TARN_HTTP_DRAIN_BYTES_MAX (256 * 1024)        /* of a body nobody read, before the connection is closed instead */

typedef struct tarn_req tarn_req;
typedef struct tarn_http tarn_http; /* the server's side: one per loop */

typedef struct tarn_http_options {
    void (*handler)(void *ctx, tarn_req *r); /* must send exactly one answer; if it sends none, 500 is sent for it */
    /* Writes the body for an error that the engine itself finds (framing, limits), by the path if it is known yet. */
    void (*edge_error)(void *ctx, tarn_req *r, tarn_err e, const char *message);
    void *ctx;
    unsigned connections_max; /* per loop */
    const char *server_name;  /* Server: header */
} tarn_http_options;
tarn_err tarn_http_new(tarn_loop *loop, const tarn_http_options *opt, tarn_http **out);
/* fd: a listening descriptor, which the engine then owns. On the loop's thread or before it runs. */
tarn_err tarn_http_listen(tarn_http *h, int fd);
/* Takes a connected descriptor over: any thread. For a server that accepts in one place and spreads by load. */
void tarn_http_adopt(tarn_http *h, int fd, const tarn_addr *peer);
unsigned tarn_http_connections(const tarn_http *h); /* any thread */
/* No new connections; idle ones are closed; busy ones get "Connection: close" with their answer. Called again,
 * it cuts off what is still busy. On the loop's thread. */
void tarn_http_drain(tarn_http *h);
unsigned tarn_http_busy(const tarn_http *h); /* requests in flight */
void tarn_http_free(tarn_http *h);

/* ------------------------------------------------------------------ the request */
tarn_arena *tarn_req_arena(tarn_req *r);
const tarn_auth_view *tarn_req_view(const tarn_req *r); /* method, raw path and query, headers */
tarn_str tarn_req_method(const tarn_req *r);
bool tarn_req_is_head(const tarn_req *r);
tarn_str tarn_req_header(const tarn_req *r, const char *name); /* first value, or {NULL,0} */
const char *tarn_req_id(const tarn_req *r);                    /* 16 upper-case hex digits: x-amz-request-id */
const tarn_addr *tarn_req_peer(const tarn_req *r);
bool tarn_req_tls(const tarn_req *r);
int64_t tarn_req_time_ms(const tarn_req *r); /* wall clock when the head was complete */
/* For the access log: set by the API once they are known. Short fixed texts. */
void tarn_req_set_operation(tarn_req *r, const char *name);
void tarn_req_set_identity(tarn_req *r, tarn_str access_key);

/* A query parsed in wire order: decoded names and values. has_eq tells "?uploads" from "?uploads=". */
typedef struct tarn_param {
    tarn_str name, value;
    bool has_eq;
} tarn_param;
/* Parses at first use (arena); false when an escape is broken. '+' stays '+' unless plus_is_blank. */
bool tarn_req_params(tarn_req *r, const tarn_param **out, size_t *n);
const tarn_param *tarn_req_param(tarn_req *r, const char *name); /* first of that name, or NULL */

/* ------------------------------------------------------------------ its body */
/* Length of the body as framed: false when it is chunked (Transfer-Encoding) or there is none (then *n = 0 and true). */
bool tarn_req_content_length(const tarn_req *r, uint64_t *n);
bool tarn_req_has_body_framing(const tarn_req *r); /* a Content-Length or Transfer-Encoding header was there */
/*
 * Reads up to n bytes of the body (transfer coding removed) into buf: the caller's memory, e.g. a stripe block. Sends
 * "100 Continue" before the first read when it was asked for. *got = 0 at the end of the body. CLOSED when the client went
 * away, TIMED_OUT when it sent nothing for TARN_HTTP_BODY_TIMEOUT_MS, HTTP_BAD_REQUEST for broken chunks.
 */
tarn_err tarn_req_read(tarn_req *r, void *buf, size_t n, size_t *got);
/* The whole body in the arena; ENTITY_TOO_LARGE past max_bytes. */
tarn_err tarn_req_read_all(tarn_req *r, size_t max_bytes, tarn_str *out);
bool tarn_req_body_done(const tarn_req *r);
/* The client has gone: a long handler may stop early. */
bool tarn_req_client_gone(tarn_req *r);

/* ------------------------------------------------------------------ the answer */
/* Headers first (in any number, copied into the arena), then one of send/begin. Values with CR, LF or NUL are dropped. */
void tarn_resp_header(tarn_req *r, const char *name, tarn_str value);
void tarn_resp_headerc(tarn_req *r, const char *name, const char *value);
void tarn_resp_header_u64(tarn_req *r, const char *name, uint64_t value);
/* Status line, Date, Server, x-amz-request-id, Content-Length and the body in one go. HEAD: the body is left out, its
 * length stays. body may be empty; 204 and 304 carry none. */
tarn_err tarn_resp_send(tarn_req *r, int status, tarn_str body);
/* HEAD answers whose Content-Length is that of the GET. */
tarn_err tarn_resp_send_head(tarn_req *r, int status, uint64_t content_length);
/* A body in pieces. length UINT64_MAX: chunked coding (or until close for HTTP/1.0). */
tarn_err tarn_resp_begin(tarn_req *r, int status, uint64_t length);
tarn_err tarn_resp_write(tarn_req *r, const void *p, size_t n, bool more); /* more: another write follows at once */
tarn_err tarn_resp_end(tarn_req *r); /* asserts that all announced bytes were written, unless the connection is broken */
void tarn_resp_abort(tarn_req *r);   /* cut the connection: the answer can't be finished (the client must see it) */
bool tarn_resp_started(const tarn_req *r);
void tarn_resp_close_after(tarn_req *r); /* Connection: close */

/* ------------------------------------------------------------------ paths */
/* Splits off the first segment of a raw path ("/a/b" → "a", "/b"); for routers above. */
bool tarn_path_first(tarn_str raw_path, tarn_str *segment, tarn_str *rest);

#endif
