/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The body of a request, from the wire straight into the caller's memory.
 *
 * What came with the head is in the connection's buffer and goes first; after that the socket writes into the caller's
 * memory itself. With the chunked coding only size lines pass through the connection's buffer, and data where chunks are
 * so small that a receive for each would cost more than a copy.
 * Invariant: never more is received into the caller's memory than is left of the body (or of the chunk), so that the next
 * request's bytes are never lost.
 */
#include <string.h>

#include "http_private.h"

/* Below this much left of a chunk, a whole buffer is received and copied from. */
#define CHUNK_DIRECT_BYTES_MIN 8192

void tarn_http_body_begin(tarn_req *r)
{
    r->body_left = r->head.content_length;
    r->body_done = !r->head.has_transfer_encoding && r->body_left == 0;
    /* Also where the body is empty: botocore mixes the answers up when a final status that came at once is followed, on the
     * same connection, by a request that gets its 100. */
    r->expect_pending = r->head.expect_continue && r->head.minor == 1;
}

static tarn_err body_failed(tarn_req *r, tarn_err e)
{
    r->body_broken = true;
    r->close_after = true;
    if (e == TARN_E_TIMED_OUT || e == TARN_E_HTTP_BAD_REQUEST || e == TARN_E_NO_MEMORY) {
        return e;
    }
    return TARN_E_CLOSED;
}

static tarn_err send_continue(tarn_req *r)
{
    static const char text[] = "HTTP/1.1 100 Continue\r\n\r\n";
    r->expect_pending = false;
    if (r->conn->in != NULL || r->answer != TARN_HTTP_ANSWER_NONE) {
        return TARN_OK; /* the client didn't wait for it, or has its answer already */
    }
    return tarn_sock_send(r->conn->sock, text, sizeof text - 1, false, tarn_http_deadline(TARN_HTTP_BODY_TIMEOUT_MS));
}

/* Up to n bytes of what is next on the connection, from its buffer or straight from the socket. */
static tarn_err take_bytes(tarn_req *r, void *buf, size_t n, size_t *got)
{
    tarn_http_conn *c = r->conn;
    if (c->in != NULL) {
        size_t have = c->end - c->pos;
        *got = have < n ? have : n;
        memcpy(buf, c->in + c->pos, *got);
        tarn_http_conn_consume(c, *got);
        return TARN_OK;
    }
    tarn_err e = tarn_sock_recv(c->sock, buf, n, tarn_http_deadline(TARN_HTTP_BODY_TIMEOUT_MS), got);
    return e == TARN_OK && *got == 0 ? TARN_E_CLOSED : e;
}

static tarn_err read_plain(tarn_req *r, void *buf, size_t n, size_t *got)
{
    size_t want = r->body_left < n ? (size_t)r->body_left : n;
    tarn_err e = take_bytes(r, buf, want, got);
    if (e == TARN_OK) {
        r->body_left -= *got;
        r->body_done = r->body_left == 0;
    }
    return e;
}

static tarn_err read_chunk_data(tarn_req *r, void *buf, size_t n, size_t *got)
{
    tarn_http_conn *c = r->conn;
    size_t want = r->chunks.left < n ? (size_t)r->chunks.left : n;
    tarn_err e = TARN_OK;
    if (c->in == NULL && want < CHUNK_DIRECT_BYTES_MIN) {
        e = tarn_http_conn_fill(c, tarn_http_deadline(TARN_HTTP_BODY_TIMEOUT_MS));
    }
    if (e == TARN_OK) {
        e = take_bytes(r, buf, want, got);
    }
    if (e == TARN_OK) {
        r->chunks.left -= *got;
        if (r->chunks.left == 0) {
            r->chunks.state = TARN_HTTP_CHUNK_DATA_END;
        }
    }
    return e;
}

/* Gives what it has as soon as going on would mean waiting. */
static tarn_err read_chunked(tarn_req *r, char *buf, size_t n, size_t *got)
{
    tarn_http_conn *c = r->conn;
    size_t total = 0;
    tarn_err e = TARN_OK;
    while (e == TARN_OK && total < n) {
        size_t k = 0;
        if (r->chunks.state == TARN_HTTP_CHUNK_DATA) {
            if (total > 0 && c->in == NULL) {
                break;
            }
            e = read_chunk_data(r, buf + total, n - total, &k);
            total += k;
            continue;
        }
        e = tarn_http_chunks_step(&r->chunks, c->in == NULL ? "" : c->in + c->pos, c->end - c->pos, &k);
        tarn_http_conn_consume(c, k);
        if (e != TARN_OK || r->chunks.state == TARN_HTTP_CHUNK_DONE) {
            r->body_done = e == TARN_OK;
            break;
        }
        if (r->chunks.state != TARN_HTTP_CHUNK_DATA) {
            if (total > 0) {
                break;
            }
            e = tarn_http_conn_fill(c, tarn_http_deadline(TARN_HTTP_BODY_TIMEOUT_MS));
        }
    }
    if (e == TARN_OK) {
        *got = total;
    }
    return e;
}

tarn_err tarn_req_read(tarn_req *r, void *buf, size_t n, size_t *got)
{
    size_t k = 0;
    if (r->body_broken || r->conn->broken) {
        return TARN_E_CLOSED;
    }
    tarn_err e = r->expect_pending ? send_continue(r) : TARN_OK;
    if (e == TARN_OK && (r->body_done || n == 0)) {
        *got = 0;
        return TARN_OK;
    }
    if (e == TARN_OK) {
        e = r->head.has_transfer_encoding ? read_chunked(r, buf, n, &k) : read_plain(r, buf, n, &k);
    }
    if (e != TARN_OK) {
        return body_failed(r, e);
    }
    r->received_bytes += k;
    *got = k;
    return TARN_OK;
}

/* A chunked body has no length before its end: it grows by doubling, what it leaves behind in the arena is bounded by that. */
static tarn_err grow(tarn_req *r, char **buf, size_t used, size_t *cap, size_t max)
{
    size_t to = *cap == 0 ? 4096 : *cap * 2;
    to = to > max ? max : to;
    char *p = to > *cap ? tarn_arena_alloc(r->arena, to) : NULL;
    if (p == NULL) {
        return to > *cap ? TARN_E_NO_MEMORY : TARN_E_ENTITY_TOO_LARGE;
    }
    if (used > 0) {
        memcpy(p, *buf, used);
    }
    *buf = p;
    *cap = to;
    return TARN_OK;
}

tarn_err tarn_req_read_all(tarn_req *r, size_t max_bytes, tarn_str *out)
{
    char *buf = NULL;
    size_t used = 0, cap = 0, got = 0;
    tarn_err e = TARN_OK;
    if (r->body_done) {
        e = tarn_req_read(r, NULL, 0, &got); /* for the 100 that may be waited for */
    }
    if (e == TARN_OK && !r->head.has_transfer_encoding) {
        if (r->body_left > max_bytes) {
            return TARN_E_ENTITY_TOO_LARGE;
        }
        cap = (size_t)r->body_left;
        buf = tarn_arena_alloc(r->arena, cap + 1);
        if (buf == NULL) {
            return TARN_E_NO_MEMORY;
        }
    }
    while (!r->body_done && e == TARN_OK) {
        if (used == cap) {
            e = grow(r, &buf, used, &cap, max_bytes + 1); /* one more, to see that there is more */
        }
        if (e == TARN_OK) {
            e = tarn_req_read(r, buf + used, cap - used, &got);
            used += e == TARN_OK ? got : 0;
        }
        if (used > max_bytes) {
            e = TARN_E_ENTITY_TOO_LARGE;
        }
    }
    if (e == TARN_OK) {
        *out = (tarn_str){buf != NULL ? buf : "", used};
    }
    return e;
}

bool tarn_http_body_hopeless(const tarn_req *r)
{
    if (r->body_done) {
        return false;
    }
    return r->body_broken || r->expect_pending || (!r->head.has_transfer_encoding && r->body_left > TARN_HTTP_DRAIN_BYTES_MAX);
}

bool tarn_http_body_drain(tarn_req *r)
{
    uint64_t left = TARN_HTTP_DRAIN_BYTES_MAX;
    char sink[4096];
    if (tarn_http_body_hopeless(r)) {
        return false;
    }
    while (!r->body_done && left > 0) {
        size_t got = 0;
        if (tarn_req_read(r, sink, sizeof sink, &got) != TARN_OK) {
            return false;
        }
        left -= got < left ? got : left;
    }
    return r->body_done;
}
