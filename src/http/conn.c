/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The connection's fiber: head in, handler, answer out, next.
 *
 * State machine of a connection: idle → head → request (handler) → draining the body → idle | lingering → closed.
 * Invariants:
 *  1. `in` is NULL exactly when pos == end: an idle connection holds no buffer.
 *  2. Between a receive into the loop's scratch buffer and the copy of what it brought, the fiber doesn't park.
 *  3. The head deadline counts from the first byte of the head: trickling doesn't extend it.
 * Ownership: the fiber owns the connection and frees it as its last act.
 */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "http_private.h"

/* ------------------------------------------------------------------ input */

void tarn_http_conn_consume(tarn_http_conn *c, size_t n)
{
    TARN_ASSERT(n <= c->end - c->pos);
    c->pos += n;
    if (c->pos == c->end && c->in != NULL) {
        tarn_http_buffer_give(c->http, c->in);
        c->in = NULL;
        c->pos = c->end = 0;
    }
}

tarn_err tarn_http_conn_fill(tarn_http_conn *c, uint64_t deadline_ns)
{
    size_t got = 0;
    if (c->in == NULL) {
        c->in = tarn_http_buffer_take(c->http);
        if (c->in == NULL) {
            return TARN_E_NO_MEMORY;
        }
        c->pos = c->end = 0;
    } else if (c->end == TARN_HTTP_BUFFER_BYTES) {
        TARN_ASSERT(c->pos > 0);
        memmove(c->in, c->in + c->pos, c->end - c->pos);
        c->end -= c->pos;
        c->pos = 0;
    }
    tarn_err e = tarn_sock_recv(c->sock, c->in + c->end, TARN_HTTP_BUFFER_BYTES - c->end, deadline_ns, &got);
    if (e == TARN_OK && got == 0) {
        e = TARN_E_CLOSED;
    }
    c->end += got;
    if (c->pos == c->end) {
        tarn_http_conn_consume(c, 0);
    }
    return e;
}

/* Keeps n bytes of the scratch buffer as the connection's input. */
static tarn_err keep_input(tarn_http_conn *c, const char *p, size_t n)
{
    TARN_ASSERT(c->in == NULL && n <= TARN_HTTP_BUFFER_BYTES);
    if (n == 0) {
        return TARN_OK;
    }
    c->in = tarn_http_buffer_take(c->http);
    if (c->in == NULL) {
        return TARN_E_NO_MEMORY;
    }
    memcpy(c->in, p, n);
    c->pos = 0;
    c->end = n;
    return TARN_OK;
}

/* ------------------------------------------------------------------ head */

/* A head, or the part of one that an error was found in. */
typedef struct head_input {
    tarn_http_scanner scan;
    const char *p; /* in the scratch buffer or the connection's */
    size_t n;
    bool scratch;
    const char *why;
} head_input;

/* The rest of a head whose first bytes are in c->in. */
static tarn_err receive_rest(tarn_http_conn *c, head_input *hi, uint64_t deadline_ns)
{
    for (;;) {
        size_t skip = hi->scan.start; /* empty lines in front: not kept, not counted */
        if (skip > 0 && hi->scan.lines == 0) {
            tarn_http_conn_consume(c, skip);
            hi->scan.start = 0;
            hi->scan.line_start -= skip;
            hi->scan.seen -= skip;
        }
        c->idle = true;
        tarn_err e = tarn_http_conn_fill(c, deadline_ns);
        c->idle = false;
        if (e != TARN_OK && c->http->draining) {
            e = TARN_E_SHUTTING_DOWN;
        }
        if (e != TARN_OK) {
            hi->p = c->in == NULL ? NULL : c->in + c->pos;
            hi->n = c->end - c->pos;
            hi->why = e == TARN_E_TIMED_OUT ? "The request head did not arrive in time." : "The request head is incomplete.";
            return e == TARN_E_CLOSED && c->in != NULL ? TARN_E_HTTP_BAD_REQUEST : e;
        }
        hi->p = c->in + c->pos;
        hi->n = c->end - c->pos;
        e = tarn_http_scan(&hi->scan, hi->p, hi->n, &hi->why);
        if (e != TARN_OK || hi->scan.complete) {
            return e;
        }
    }
}

/*
 * Waits for a head. On success hi->p[scan.start..scan.end) is the head; when it is in the scratch buffer the caller must take
 * it before it parks. CLOSED: nothing more comes (no answer is due).
 */
static tarn_err receive_head(tarn_http_conn *c, head_input *hi)
{
    tarn_err e = TARN_OK;
    *hi = (head_input){.p = NULL};
    if (c->in == NULL) {
        c->idle = true;
        e = tarn_sock_recv(c->sock, c->http->scratch, TARN_HTTP_SCRATCH_BYTES, tarn_http_deadline(TARN_HTTP_IDLE_TIMEOUT_MS), &hi->n);
        c->idle = false;
        if (e != TARN_OK || hi->n == 0) {
            return TARN_E_CLOSED;
        }
        hi->p = c->http->scratch;
        hi->scratch = true;
    } else {
        hi->p = c->in + c->pos;
        hi->n = c->end - c->pos;
    }
    e = tarn_http_scan(&hi->scan, hi->p, hi->n, &hi->why);
    if (e != TARN_OK || hi->scan.complete) {
        return e;
    }
    if (hi->scratch) {
        hi->scratch = false;
        e = keep_input(c, hi->p, hi->n);
        if (e != TARN_OK) {
            return TARN_E_CLOSED;
        }
    }
    return receive_rest(c, hi, tarn_http_deadline(TARN_HTTP_HEAD_TIMEOUT_MS));
}

/* ------------------------------------------------------------------ request */

static void make_id(tarn_http *h, char out[17])
{
    static const char digits[] = "0123456789ABCDEF";
    /* splitmix64 over a random start: unique within the loop, and no system call a request. */
    uint64_t z = (h->id_state += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    z ^= z >> 31;
    for (int i = 15; i >= 0; i--) {
        out[i] = digits[z & 15];
        z >>= 4;
    }
    out[16] = '\0';
}

static tarn_req *request_new(tarn_http_conn *c)
{
    tarn_arena *arena = tarn_http_arena_take(c->http);
    tarn_req *r = arena == NULL ? NULL : TARN_ARENA_NEW(arena, tarn_req);
    if (r == NULL) {
        if (arena != NULL) {
            tarn_http_arena_give(c->http, arena);
        }
        return NULL;
    }
    r->http = c->http;
    r->conn = c;
    r->arena = arena;
    r->time_ms = tarn_now_ms();
    r->start_ns = tarn_mono_ns();
    r->head.minor = 1;
    make_id(c->http, r->id);
    return r;
}

/* Copies the head into the arena, keeps what came behind it, and takes the head apart. */
static tarn_err request_take_head(tarn_req *r, head_input *hi)
{
    tarn_http_conn *c = r->conn;
    size_t n = hi->scan.end - hi->scan.start;
    tarn_str head = tarn_arena_str(r->arena, (tarn_str){hi->p + hi->scan.start, n});
    if (head.p == NULL) {
        hi->why = "The server is out of memory.";
        return TARN_E_NO_MEMORY;
    }
    r->received_bytes = hi->scan.end;
    if (hi->scratch) {
        tarn_err e = keep_input(c, hi->p + hi->scan.end, hi->n - hi->scan.end);
        if (e != TARN_OK) {
            hi->why = "The server is out of memory.";
            return e;
        }
    } else {
        tarn_http_conn_consume(c, hi->scan.end);
    }
    return tarn_http_parse_head(head, hi->scan.lines, r->arena, &r->head, &hi->why);
}

/* The head was refused before its end: its first line may still tell in which form the answer is to be given. */
static void request_guess_line(tarn_req *r, const head_input *hi)
{
    const char *from = hi->p == NULL ? NULL : hi->p + hi->scan.start;
    size_t n = hi->p == NULL ? 0 : hi->n - hi->scan.start;
    const char *lf = from == NULL || hi->scan.lines == 0 ? NULL : memchr(from, '\n', n);
    if (lf != NULL && lf > from && lf[-1] == '\r') {
        const char *why;
        tarn_str authority;
        tarn_str line = tarn_arena_str(r->arena, (tarn_str){from, (size_t)(lf - from) - 1});
        if (line.p == NULL || tarn_http_parse_line(line, &r->head, &authority, &why) != TARN_OK) {
            r->head.minor = 1;
        }
    }
}

static void request_set_view(tarn_req *r)
{
    r->is_head = tarn_str_eqc(r->head.method, "HEAD");
    r->view = (tarn_auth_view){
        .method = r->head.method,
        .raw_path = r->head.raw_path,
        .raw_query = r->head.raw_query,
        .headers = r->head.headers,
        .headers_n = r->head.headers_n,
    };
}

static void refuse(tarn_req *r, tarn_err e, const char *why)
{
    r->close_after = true;
    if (r->answer == TARN_HTTP_ANSWER_NONE) {
        r->http->opt.edge_error(r->http->opt.ctx, r, e, why);
    }
    if (r->answer == TARN_HTTP_ANSWER_NONE) {
        (void)tarn_resp_send(r, tarn_err_get(e)->http_status, TARN_STR_NULL);
    }
}

static void run_handler(tarn_req *r)
{
    r->http->busy++;
    r->http->opt.handler(r->http->opt.ctx, r);
    if (r->answer == TARN_HTTP_ANSWER_NONE) {
        tarn_log(TARN_LOG_ERROR, "request without an answer", "request", r->id, "operation", r->operation ? r->operation : "", NULL);
        refuse(r, TARN_E_INTERNAL, "The request was not answered.");
    } else if (r->answer == TARN_HTTP_ANSWER_BODY) {
        tarn_resp_abort(r);
    }
    r->http->busy--;
}

static void account(tarn_req *r)
{
    tarn_metric_add(TARN_M_HTTP_REQUESTS, 1);
    tarn_metric_add(TARN_M_HTTP_RECEIVED_BYTES, (int64_t)r->received_bytes);
    tarn_metric_add(TARN_M_HTTP_SENT_BYTES, (int64_t)r->sent_bytes);
    if (r->status >= 400) {
        tarn_metric_add(r->status >= 500 ? TARN_M_HTTP_ERRORS_5XX : TARN_M_HTTP_ERRORS_4XX, 1);
    }
    if (tarn_log_enabled(TARN_LOG_DEBUG)) {
        uint64_t us = (tarn_mono_ns() - r->start_ns) / 1000u;
        tarn_logf(TARN_LOG_DEBUG, "request", "%.*s %.*s %d in=%llu out=%llu ms=%llu.%03u id=%s op=%s key=%.*s",
                  TARN_STR_ARG(r->head.method), TARN_STR_ARG(r->head.raw_path), r->status, (unsigned long long)r->received_bytes,
                  (unsigned long long)r->sent_bytes, (unsigned long long)(us / 1000u), (unsigned)(us % 1000u), r->id,
                  r->operation ? r->operation : "-", TARN_STR_ARG(r->access_key));
    }
}

static bool may_keep(const tarn_req *r)
{
    return !r->close_after && !r->conn->broken && !r->conn->cut;
}

/* One request. False: the connection is to be closed. */
static bool serve_one(tarn_http_conn *c)
{
    head_input hi;
    tarn_err e = receive_head(c, &hi);
    if (e == TARN_E_CLOSED) {
        c->broken = true; /* nobody is there to linger for */
        return false;
    }
    tarn_req *r = request_new(c);
    if (r == NULL) {
        tarn_log(TARN_LOG_ERROR, "out of memory for a request", NULL);
        return false;
    }
    if (e == TARN_OK) {
        e = request_take_head(r, &hi);
    } else {
        request_guess_line(r, &hi);
    }
    request_set_view(r);
    tarn_http_body_begin(r);
    if (e == TARN_OK) {
        run_handler(r);
    } else {
        refuse(r, e, hi.why);
    }
    bool keep = may_keep(r) && tarn_http_body_drain(r);
    account(r);
    tarn_http_arena_give(c->http, r->arena);
    return keep && !c->http->draining;
}

/* ------------------------------------------------------------------ end */

/* The peer is to see the answer and not a reset: our side is closed first, then what still comes is read for a while. */
static void linger(tarn_http_conn *c)
{
    uint64_t deadline = tarn_http_deadline(TARN_HTTP_LINGER_MS);
    uint64_t left = TARN_HTTP_LINGER_BYTES_MAX;
    if (shutdown(tarn_sock_fd(c->sock), SHUT_WR) != 0) {
        return;
    }
    c->idle = true; /* a drain needs not wait for it */
    while (left > 0 && !c->http->draining) {
        size_t got = 0;
        tarn_err e = tarn_sock_recv(c->sock, c->http->scratch, TARN_HTTP_SCRATCH_BYTES, deadline, &got);
        if (e != TARN_OK || got == 0) {
            return;
        }
        left -= got < left ? got : left;
    }
}

static void conn_end(tarn_http_conn *c)
{
    tarn_http *h = c->http;
    tarn_http_conn_consume(c, c->end - c->pos);
    if (c->cut) {
        struct linger reset = {.l_onoff = 1, .l_linger = 0};
        (void)setsockopt(tarn_sock_fd(c->sock), SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
    } else if (!c->broken) {
        linger(c);
    }
    tarn_sock_close(c->sock);
    tarn_list_remove(&c->link);
    tarn_free(c);
    tarn_http_conn_gone(h);
}

static void conn_main(void *arg)
{
    tarn_http_conn *c = arg;
    tarn_list_push(&c->http->conns, &c->link);
    while (serve_one(c)) {
        /* Pipelined or very quick requests must not keep the loop to themselves. */
        if (++c->turns >= TARN_HTTP_TURNS_MAX) {
            c->turns = 0;
            tarn_fiber_yield();
        }
    }
    conn_end(c);
}

/* ------------------------------------------------------------------ start */

static tarn_http_conn *conn_new(tarn_http *h, tarn_sock *sock, int fd, const tarn_addr *peer)
{
    tarn_http_conn *c = tarn_calloc(1, sizeof *c);
    if (c != NULL) {
        tarn_list_init(&c->link);
        c->http = h;
        c->sock = sock;
        c->fd = fd;
        c->peer = *peer;
        atomic_fetch_add_explicit(&h->connections, 1, memory_order_relaxed);
        tarn_metric_add(TARN_M_HTTP_CONNECTIONS, 1);
    }
    return c;
}

static void refuse_connection(tarn_sock *sock, int fd, tarn_err e)
{
    if (sock != NULL) {
        tarn_sock_close(sock);
    } else {
        (void)close(fd);
    }
    tarn_log(TARN_LOG_WARN, "connection refused", "error", tarn_err_get(e)->message, NULL);
}

/* On the loop's thread: gives the connection its fiber. */
static void conn_run(tarn_http_conn *c)
{
    tarn_err e = tarn_fiber_spawn(c->http->loop, conn_main, c, "http");
    if (e != TARN_OK) {
        tarn_http *h = c->http;
        refuse_connection(c->sock, c->fd, e);
        tarn_free(c);
        tarn_http_conn_gone(h);
    }
}

void tarn_http_conn_start(tarn_http *h, tarn_sock *sock, const tarn_addr *peer)
{
    tarn_http_conn *c = conn_new(h, sock, -1, peer);
    if (c == NULL) {
        refuse_connection(sock, -1, TARN_E_NO_MEMORY);
        return;
    }
    conn_run(c);
}

static void on_handed_over(tarn_post *post)
{
    tarn_http_conn *c = TARN_CONTAINER_OF(post, tarn_http_conn, post);
    tarn_http *h = c->http;
    tarn_err e = h->draining ? TARN_E_SHUTTING_DOWN : tarn_sock_attach(h->loop, c->fd, &c->sock);
    if (e != TARN_OK) {
        refuse_connection(NULL, c->fd, e);
        tarn_free(c);
        tarn_http_conn_gone(h);
        return;
    }
    c->fd = -1;
    conn_run(c);
}

void tarn_http_adopt(tarn_http *h, int fd, const tarn_addr *peer)
{
    tarn_http_conn *c = conn_new(h, NULL, fd, peer);
    if (c == NULL) {
        refuse_connection(NULL, fd, TARN_E_NO_MEMORY);
        return;
    }
    c->post.fn = on_handed_over;
    tarn_loop_post(h->loop, &c->post);
}
