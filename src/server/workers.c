/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Workers: a thread each, with a loop and an HTTP engine made on that thread. The first one carries the background work
 * too (repair, garbage, lifecycle, purges that were interrupted).
 *
 * State of a worker: starting → running → ended, or failed. `state` and the engine's count of connections are all that
 * other threads look at; everything else goes through posts.
 */
#include <string.h>

#include "server.h"

enum { STARTING, RUNNING, FAILED, ENDED };

static tarn_err make_engine(tarn_worker *w)
{
    tarn_server *s = w->server;
    tarn_io_backend backend = tarn_option_is(&s->opt, TARN_OPT_IO, "uring")     ? TARN_IO_URING
                              : tarn_option_is(&s->opt, TARN_OPT_IO, "threads") ? TARN_IO_THREADS
                                                                                : TARN_IO_AUTO;
    tarn_loop_options lo = {.backend = backend,
                            .threads = (unsigned)tarn_option_number(&s->opt, TARN_OPT_IO_THREADS),
                            .name = w->name,
                            .grace_ms = TARN_GRACE_MS};
    tarn_http_options ho = {
        .handler = tarn_server_handle,
        .edge_error = tarn_server_edge_error,
        .ctx = s,
        .connections_max = s->connections_max,
        .server_name = "tarn",
    };
    tarn_err e = tarn_loop_create(&lo, &w->loop);
    if (e == TARN_OK) {
        e = tarn_http_new(w->loop, &ho, &w->http);
    }
    if (e == TARN_OK && w->index == 0) {
        e = tarn_store_start_background(s->store, w->loop);
    }
    if (e == TARN_OK && w->index == 0) {
        e = tarn_s3_start_lifecycle(s->s3, w->loop);
    }
    if (e == TARN_OK && w->index == 0) {
        e = tarn_iceberg_start_background(s->iceberg, w->loop);
    }
    return e;
}

static void *worker_main(void *arg)
{
    tarn_worker *w = arg;
    w->err = make_engine(w);
    if (w->err == TARN_OK) {
        atomic_store(&w->state, RUNNING);
        tarn_loop_run(w->loop);
    }
    atomic_store(&w->state, w->err == TARN_OK ? ENDED : FAILED);
    return NULL;
}

static void on_drain(tarn_post *post)
{
    tarn_worker *w = TARN_CONTAINER_OF(post, tarn_worker, drain);
    tarn_http_drain(w->http);
    if (w->index == 0) {
        tarn_store_stop_background(w->server->store);
    }
}

static tarn_err start_one(tarn_server *s, unsigned i)
{
    tarn_worker *w = &s->workers[i];
    tarn_sb b;
    w->server = s;
    w->index = i;
    w->drain.fn = on_drain;
    atomic_init(&w->state, STARTING);
    tarn_sb_init_fixed(&b, w->name, sizeof w->name);
    tarn_sb_fmt(&b, "tarn-%u", i);
    if (pthread_create(&w->thread, NULL, worker_main, w) != 0) {
        return TARN_E_LIMIT;
    }
    w->started = true;
    while (atomic_load(&w->state) == STARTING) {
        tarn_sleep_ms(1);
    }
    return atomic_load(&w->state) == RUNNING ? TARN_OK : w->err;
}

tarn_exit tarn_workers_start(tarn_server *s)
{
    s->workers = tarn_calloc(s->workers_n, sizeof *s->workers);
    if (s->workers == NULL) {
        return tarn_complain(TARN_EXIT_FAILED, "out of memory");
    }
    for (unsigned i = 0; i < s->workers_n; i++) {
        tarn_err e = start_one(s, i);
        if (e == TARN_E_UNSUPPORTED) {
            return tarn_complain(TARN_EXIT_LIMITS, "io_uring is not to be had here (%s): leave TARN_IO at auto, or set it to threads",
                                 tarn_io_uring_refusal());
        }
        if (e != TARN_OK) {
            return tarn_complain(TARN_EXIT_LIMITS,
                                 "worker %u does not start: %s Fewer TARN_WORKERS, or higher limits (ulimit -a), may help.", i,
                                 tarn_err_get(e)->message);
        }
    }
    return TARN_EXIT_OK;
}

/* Ties go round: equal workers get connections in turn. */
tarn_worker *tarn_workers_idlest(tarn_server *s)
{
    static unsigned next; /* the main thread's */
    tarn_worker *best = NULL;
    unsigned least = UINT32_MAX;
    for (unsigned i = 0; i < s->workers_n; i++) {
        tarn_worker *w = &s->workers[(next + i) % s->workers_n];
        unsigned n = tarn_http_connections(w->http);
        if (n < least) {
            least = n;
            best = w;
        }
    }
    next = best->index + 1;
    return best;
}

unsigned tarn_workers_connections(const tarn_server *s)
{
    unsigned n = 0;
    for (unsigned i = 0; i < s->workers_n; i++) {
        n += tarn_http_connections(s->workers[i].http);
    }
    return n;
}

void tarn_workers_drain(tarn_server *s)
{
    for (unsigned i = 0; i < s->workers_n; i++) {
        tarn_loop_post(s->workers[i].loop, &s->workers[i].drain);
    }
}

void tarn_workers_stop(tarn_server *s)
{
    for (unsigned i = 0; s->workers != NULL && i < s->workers_n; i++) {
        if (s->workers[i].started && s->workers[i].err == TARN_OK) {
            tarn_loop_stop(s->workers[i].loop);
        }
    }
    for (unsigned i = 0; s->workers != NULL && i < s->workers_n; i++) {
        tarn_worker *w = &s->workers[i];
        if (w->started) {
            (void)pthread_join(w->thread, NULL);
            w->started = false;
        }
    }
}

/* After the store is closed: until then its committer may still be waking a fiber of one of the loops. */
void tarn_workers_free(tarn_server *s)
{
    for (unsigned i = 0; s->workers != NULL && i < s->workers_n; i++) {
        tarn_http_free(s->workers[i].http);
        tarn_loop_destroy(s->workers[i].loop);
    }
    tarn_free(s->workers);
    s->workers = NULL;
}
