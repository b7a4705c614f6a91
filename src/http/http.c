/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The engine of one loop: pools, acceptors, drain.
 *
 * Invariants:
 *  1. A pool never holds more than its maximum; what comes back past it is freed.
 *  2. `connections` counts from tarn_http_conn_start() to the end of the connection's fiber.
 * Everything runs on the loop's thread but tarn_http_adopt() and tarn_http_connections().
 */
#include <unistd.h>

#include "http_private.h"

/* ------------------------------------------------------------------ pools */

char *tarn_http_buffer_take(tarn_http *h)
{
    if (h->buffers_n > 0) {
        return h->buffers[--h->buffers_n];
    }
    return tarn_malloc(TARN_HTTP_BUFFER_BYTES);
}

void tarn_http_buffer_give(tarn_http *h, char *buffer)
{
    if (h->buffers_n < TARN_HTTP_POOL_BUFFERS_MAX) {
        h->buffers[h->buffers_n++] = buffer;
    } else {
        tarn_free(buffer);
    }
}

tarn_arena *tarn_http_arena_take(tarn_http *h)
{
    if (h->arenas_n > 0) {
        return h->arenas[--h->arenas_n];
    }
    return tarn_arena_new(TARN_HTTP_ARENA_BYTES_MAX);
}

void tarn_http_arena_give(tarn_http *h, tarn_arena *a)
{
    if (h->arenas_n < TARN_HTTP_POOL_ARENAS_MAX) {
        tarn_arena_reset(a);
        h->arenas[h->arenas_n++] = a;
    } else {
        tarn_arena_free(a);
    }
}

/* The lines that every answer has; made once a second. */
tarn_str tarn_http_common_headers(tarn_http *h, int64_t now_ms)
{
    int64_t now_s = now_ms / 1000;
    if (h->common_n == 0 || h->date_s != now_s) {
        tarn_sb b;
        tarn_sb_init_fixed(&b, h->common, sizeof h->common);
        tarn_sb_cstr(&b, "\r\nServer: ");
        tarn_sb_cstr(&b, h->opt.server_name);
        tarn_sb_cstr(&b, "\r\nDate: ");
        tarn_sb_http_date(&b, now_ms);
        tarn_sb_cstr(&b, "\r\nx-amz-request-id: ");
        TARN_ASSERT(!b.failed);
        h->common_n = b.n;
        h->date_s = now_s;
    }
    return (tarn_str){h->common, h->common_n};
}

/* ------------------------------------------------------------------ life */

tarn_err tarn_http_new(tarn_loop *loop, const tarn_http_options *opt, tarn_http **out)
{
    TARN_ASSERT(opt->handler != NULL && opt->edge_error != NULL && opt->connections_max > 0);
    tarn_http *h = tarn_calloc(1, sizeof *h);
    if (h == NULL) {
        return TARN_E_NO_MEMORY;
    }
    h->scratch = tarn_malloc(TARN_HTTP_SCRATCH_BYTES);
    if (h->scratch == NULL) {
        tarn_free(h);
        return TARN_E_NO_MEMORY;
    }
    h->loop = loop;
    h->opt = *opt;
    if (h->opt.server_name == NULL) {
        h->opt.server_name = "tarn";
    }
    h->id_state = tarn_random_u64();
    tarn_list_init(&h->conns);
    atomic_init(&h->connections, 0);
    *out = h;
    return TARN_OK;
}

static void pause_accepting(tarn_http *h, bool paused)
{
    if (h->paused == paused) {
        return;
    }
    h->paused = paused;
    for (size_t i = 0; i < h->acceptors_n; i++) {
        tarn_accept_pause(h->acceptors[i], paused);
    }
}

static void on_accept(void *ctx, tarn_sock *sock, const tarn_addr *peer)
{
    tarn_http *h = ctx;
    if (h->draining) {
        tarn_sock_close(sock);
        return;
    }
    tarn_http_conn_start(h, sock, peer);
    if (tarn_http_connections(h) >= h->opt.connections_max) {
        pause_accepting(h, true);
    }
}

void tarn_http_conn_gone(tarn_http *h)
{
    unsigned before = atomic_fetch_sub_explicit(&h->connections, 1, memory_order_relaxed);
    TARN_ASSERT(before > 0);
    tarn_metric_add(TARN_M_HTTP_CONNECTIONS, -1);
    if (before - 1 < h->opt.connections_max && !h->draining) {
        pause_accepting(h, false);
    }
}

tarn_err tarn_http_listen(tarn_http *h, int fd)
{
    if (h->acceptors_n == TARN_HTTP_ACCEPTORS_MAX) {
        (void)close(fd);
        return TARN_E_LIMIT;
    }
    tarn_err e = tarn_accept_start(h->loop, fd, on_accept, h, &h->acceptors[h->acceptors_n]);
    if (e == TARN_OK) {
        h->acceptors_n++;
    }
    return e;
}

unsigned tarn_http_connections(const tarn_http *h)
{
    return atomic_load_explicit(&h->connections, memory_order_relaxed);
}

void tarn_http_drain(tarn_http *h)
{
    bool again = h->draining;
    h->draining = true;
    for (size_t i = 0; i < h->acceptors_n; i++) {
        tarn_accept_stop(h->acceptors[i]);
    }
    h->acceptors_n = 0;
    for (tarn_link *l = h->conns.next; l != &h->conns; l = l->next) {
        tarn_http_conn *c = TARN_CONTAINER_OF(l, tarn_http_conn, link);
        if (c->idle || again) {
            tarn_sock_interrupt(c->sock);
        }
    }
}

unsigned tarn_http_busy(const tarn_http *h)
{
    return h->busy;
}

void tarn_http_free(tarn_http *h)
{
    if (h == NULL) {
        return;
    }
    TARN_ASSERT(h->acceptors_n == 0 || !h->draining);
    for (size_t i = 0; i < h->acceptors_n; i++) {
        tarn_accept_stop(h->acceptors[i]);
    }
    while (h->buffers_n > 0) {
        tarn_free(h->buffers[--h->buffers_n]);
    }
    while (h->arenas_n > 0) {
        tarn_arena_free(h->arenas[--h->arenas_n]);
    }
    tarn_free(h->scratch);
    tarn_free(h);
}
