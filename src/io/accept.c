/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Accepting connections. A listening descriptor is in epoll level-triggered and exclusive: when several loops listen on
 * one socket only one of them is woken, and a turn takes at most TARN_ACCEPTS_PER_TURN_MAX connections, so that a flood
 * of new ones does not starve those that are there.
 *
 * It is taken out of epoll while paused: by the caller (back-pressure), or for TARN_ACCEPT_RETRY_MS when the process is
 * out of descriptors or the kernel of memory (the connection would stay ready, and the loop would spin).
 *
 * Ownership: the acceptor owns its descriptor. Threads: the loop's only.
 */
#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "io_internal.h"

struct tarn_acceptor {
    tarn_source source;
    tarn_loop *loop;
    tarn_link link; /* loop->acceptors */
    tarn_timer retry;
    int fd;
    bool watched;
    bool paused;  /* by the caller */
    bool starved; /* no descriptors: until `retry` */
    bool stopped;
    uint64_t logged_ns;
    void (*on_accept)(void *ctx, tarn_sock *sock, const tarn_addr *peer);
    void *ctx;
};

/* Brings epoll in line with the flags. */
static int update_watch(tarn_acceptor *a)
{
    bool want = !a->paused && !a->starved && !a->stopped;
    if (want == a->watched)
        return 0;
    if (!want) {
        tarn_loop_unwatch(a->loop, a->fd);
        a->watched = false;
        return 0;
    }
    int rc = tarn_loop_watch(a->loop, a->fd, EPOLLIN | EPOLLEXCLUSIVE, &a->source);
    a->watched = rc == 0;
    return rc;
}

static void starve(tarn_acceptor *a, int errno_value)
{
    uint64_t now = tarn_mono_ns();
    if (a->logged_ns == 0 || now - a->logged_ns >= TARN_ACCEPT_LOG_MS * TARN_NS_PER_MS) {
        char text[96];
        a->logged_ns = now;
        tarn_log(TARN_LOG_WARN, "cannot accept connections at the moment", "error", strerror_r(errno_value, text, sizeof text), NULL);
    }
    a->starved = true;
    tarn_timer_arm(a->loop, &a->retry, now + TARN_ACCEPT_RETRY_MS * TARN_NS_PER_MS);
    (void)update_watch(a);
}

static void on_retry(tarn_timer *t)
{
    tarn_acceptor *a = TARN_CONTAINER_OF(t, tarn_acceptor, retry);
    a->starved = false;
    int rc = update_watch(a);
    if (rc < 0)
        starve(a, -rc);
}

/* One connection. False when there is none at the moment. */
static bool accept_one(tarn_acceptor *a)
{
    tarn_addr peer = {.len = sizeof peer.ss};
    int fd = accept4(a->fd, (struct sockaddr *)(void *)&peer.ss, &peer.len, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0) {
        if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS)
            starve(a, errno);
        /* Anything else but "again" is about that one connection. */
        return errno != EAGAIN && !a->starved;
    }
    tarn_sock *sock = NULL;
    tarn_err err = tarn_sock_attach(a->loop, fd, &sock);
    if (err != TARN_OK) {
        (void)close(fd);
        starve(a, ENOMEM);
        return false;
    }
    a->on_accept(a->ctx, sock, &peer);
    return true;
}

static void on_listen_event(tarn_source *source, uint32_t events)
{
    (void)events;
    tarn_acceptor *a = TARN_CONTAINER_OF(source, tarn_acceptor, source);
    for (int i = 0; i < TARN_ACCEPTS_PER_TURN_MAX; i++) {
        /* on_accept may pause or stop. */
        if (a->paused || a->stopped || !accept_one(a))
            return;
    }
}

tarn_err tarn_accept_start(tarn_loop *loop, int fd, void (*on_accept)(void *ctx, tarn_sock *sock, const tarn_addr *peer), void *ctx,
                           tarn_acceptor **out)
{
    tarn_acceptor *a = tarn_calloc(1, sizeof *a);
    if (!a)
        return TARN_E_NO_MEMORY;
    a->source.fn = on_listen_event;
    a->retry.fn = on_retry;
    a->loop = loop;
    a->fd = fd;
    a->on_accept = on_accept;
    a->ctx = ctx;
    int rc = update_watch(a);
    if (rc < 0) {
        tarn_free(a);
        return tarn_err_from_errno(-rc);
    }
    tarn_list_push(&loop->acceptors, &a->link);
    *out = a;
    return TARN_OK;
}

void tarn_accept_pause(tarn_acceptor *a, bool paused)
{
    a->paused = paused;
    int rc = update_watch(a);
    if (rc < 0)
        starve(a, -rc);
}

static void bury(tarn_source *source)
{
    tarn_free(TARN_CONTAINER_OF(source, tarn_acceptor, source));
}

void tarn_accept_stop(tarn_acceptor *a)
{
    if (!a)
        return;
    TARN_ASSERT(!a->stopped);
    a->stopped = true;
    (void)update_watch(a);
    tarn_timer_disarm(a->loop, &a->retry);
    tarn_list_remove(&a->link);
    (void)close(a->fd);
    a->source.fn = NULL;
    tarn_source_retire(a->loop, &a->source, bury);
}

void tarn_accept_destroy_all(tarn_loop *loop)
{
    while (!tarn_list_empty(&loop->acceptors))
        tarn_accept_stop(TARN_CONTAINER_OF(loop->acceptors.next, tarn_acceptor, link));
}
