/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Connected sockets of a loop.
 *
 * Each socket is in the loop's epoll once, edge-triggered, for both directions. `readable` and `writable` remember what
 * epoll has said and are taken back only when the kernel answers "again" (or, for reading, delivers less than asked
 * for, which saves the call that would answer "again"): so the kernel is asked first and the fiber parks only when
 * there is truly nothing to do.
 *
 * Invariants:
 *  1. A direction whose flag is false gets an edge before there is something to do in it again.
 *  2. At most one fiber waits for each direction.
 *  3. The peer's end (RDHUP, HUP, ERR) keeps `readable` true for ever: a read then tells what happened.
 *
 * Ownership: the struct and its descriptor belong to the caller of attach until tarn_sock_close. What is still open when
 * its loop is destroyed is closed there. Threads: the loop's only.
 */
#include <errno.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "io_internal.h"

typedef struct sock_side {
    bool ready;
    bool interrupted; /* for the fiber that was parked when tarn_sock_interrupt came */
    tarn_fiber *waiter;
} sock_side;

struct tarn_sock {
    tarn_source source;
    tarn_loop *loop;
    tarn_link link; /* loop->socks */
    int fd;
    bool peer_ended; /* nothing more will come */
    sock_side in, out;
};

/* ------------------------------------------------------------------ life */
static void side_wake(sock_side *side)
{
    if (!side->waiter)
        return;
    tarn_fiber_wake(side->waiter);
    side->waiter = NULL;
}

static void on_events(tarn_source *source, uint32_t events)
{
    tarn_sock *s = TARN_CONTAINER_OF(source, tarn_sock, source);
    if (events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR))
        s->peer_ended = true;
    if (events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR)) {
        s->in.ready = true;
        side_wake(&s->in);
    }
    if (events & (EPOLLOUT | EPOLLHUP | EPOLLERR)) {
        s->out.ready = true;
        side_wake(&s->out);
    }
}

tarn_err tarn_sock_attach(tarn_loop *loop, int fd, tarn_sock **out)
{
    int one = 1;
    tarn_loop_assert_mine(loop);
    tarn_sock *s = tarn_calloc(1, sizeof *s);
    if (!s)
        return TARN_E_NO_MEMORY;
    s->loop = loop;
    s->fd = fd;
    s->source.fn = on_events;
    s->in.ready = s->out.ready = true;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one); /* a socket of another family does without */
    int rc = tarn_loop_watch(loop, fd, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, &s->source);
    if (rc < 0) {
        tarn_free(s);
        return tarn_err_from_errno(-rc);
    }
    tarn_list_push(&loop->socks, &s->link);
    *out = s;
    return TARN_OK;
}

static void bury(tarn_source *source)
{
    tarn_free(TARN_CONTAINER_OF(source, tarn_sock, source));
}

void tarn_sock_close(tarn_sock *s)
{
    if (!s)
        return;
    TARN_ASSERT(s->in.waiter == NULL && s->out.waiter == NULL);
    /* Taken out by hand: a child between fork and exec may hold the descriptor open for a moment. */
    tarn_loop_unwatch(s->loop, s->fd);
    (void)close(s->fd);
    s->fd = -1;
    s->source.fn = NULL;
    tarn_list_remove(&s->link);
    tarn_source_retire(s->loop, &s->source, bury);
}

void tarn_sock_destroy_all(tarn_loop *loop)
{
    while (!tarn_list_empty(&loop->socks)) {
        tarn_sock *s = TARN_CONTAINER_OF(loop->socks.next, tarn_sock, link);
        s->in.waiter = s->out.waiter = NULL; /* fibers that will never run again */
        tarn_sock_close(s);
    }
}

int tarn_sock_fd(const tarn_sock *s)
{
    return s->fd;
}

bool tarn_sock_peer_gone(tarn_sock *s)
{
    return s->peer_ended;
}

void tarn_sock_interrupt(tarn_sock *s)
{
    if (s->in.waiter)
        s->in.interrupted = true;
    if (s->out.waiter)
        s->out.interrupted = true;
    side_wake(&s->in);
    side_wake(&s->out);
}

/* ------------------------------------------------------------------ waiting */
/* Parks until the side is ready. */
static tarn_err side_wait(sock_side *side, uint64_t deadline_ns)
{
    TARN_ASSERT(side->waiter == NULL);
    side->interrupted = false;
    while (!side->ready) {
        side->waiter = tarn_fiber_current();
        TARN_ASSERT(side->waiter != NULL);
        bool late = tarn_fiber_park_until(deadline_ns);
        side->waiter = NULL;
        if (side->interrupted)
            return TARN_E_CLOSED;
        if (late && !side->ready)
            return TARN_E_TIMED_OUT;
    }
    return TARN_OK;
}

/* ------------------------------------------------------------------ reading */
/* One recv. CONFLICT: nothing there. */
static tarn_err recv_once(tarn_sock *s, void *buf, size_t n, size_t *got)
{
    ssize_t rc;
    do {
        rc = recv(s->fd, buf, n, 0);
    } while (rc < 0 && errno == EINTR);
    if (rc < 0) {
        if (errno == EAGAIN || errno == EWOULDBLOCK) {
            s->in.ready = false;
            return TARN_E_CONFLICT;
        }
        s->peer_ended = true;
        return errno == ENOMEM ? TARN_E_NO_MEMORY : TARN_E_CLOSED;
    }
    if (rc == 0 && n > 0)
        s->peer_ended = true;
    else if ((size_t)rc < n && !s->peer_ended)
        s->in.ready = false; /* all that was there; an end of the peer that came meanwhile makes an edge */
    *got = (size_t)rc;
    return TARN_OK;
}

tarn_err tarn_sock_recv_now(tarn_sock *s, void *buf, size_t n, size_t *got)
{
    *got = 0;
    return s->in.ready ? recv_once(s, buf, n, got) : TARN_E_CONFLICT;
}

tarn_err tarn_sock_recv(tarn_sock *s, void *buf, size_t n, uint64_t deadline_ns, size_t *got)
{
    for (;;) {
        tarn_err err = s->in.ready ? recv_once(s, buf, n, got) : TARN_E_CONFLICT;
        if (err != TARN_E_CONFLICT)
            return err;
        err = side_wait(&s->in, deadline_ns);
        if (err != TARN_OK)
            return err;
    }
}

/* ------------------------------------------------------------------ writing */
/* Takes `n` sent bytes off the front of the pieces. */
static void advance(struct iovec **iov, size_t *iov_n, size_t n)
{
    while (*iov_n > 0 && n >= (*iov)->iov_len) {
        n -= (*iov)->iov_len;
        (*iov)++;
        (*iov_n)--;
    }
    if (n > 0) {
        TARN_ASSERT(*iov_n > 0);
        (*iov)->iov_base = (char *)(*iov)->iov_base + n;
        (*iov)->iov_len -= n;
    }
}

/* One sendmsg of up to TARN_SEND_IOV_MAX pieces. CONFLICT: no room. */
static tarn_err send_once(tarn_sock *s, struct iovec *iov, size_t iov_n, bool more, size_t *sent)
{
    size_t now = iov_n < TARN_SEND_IOV_MAX ? iov_n : TARN_SEND_IOV_MAX;
    int flags = MSG_NOSIGNAL | (more || now < iov_n ? MSG_MORE : 0);
    ssize_t rc;
    do {
        if (now == 1) {
            rc = send(s->fd, iov->iov_base, iov->iov_len, flags);
        } else {
            struct msghdr m = {.msg_iov = iov, .msg_iovlen = now};
            rc = sendmsg(s->fd, &m, flags);
        }
    } while (rc < 0 && errno == EINTR);
    if (rc >= 0) {
        *sent = (size_t)rc;
        return TARN_OK;
    }
    if (errno == EAGAIN || errno == EWOULDBLOCK) {
        s->out.ready = false;
        return TARN_E_CONFLICT;
    }
    return errno == ENOMEM || errno == ENOBUFS ? TARN_E_NO_MEMORY : TARN_E_CLOSED;
}

tarn_err tarn_sock_sendv(tarn_sock *s, struct iovec *iov, size_t iov_n, bool more, uint64_t deadline_ns)
{
    advance(&iov, &iov_n, 0); /* empty pieces at the front */
    while (iov_n > 0) {
        size_t sent = 0;
        tarn_err err = s->out.ready ? send_once(s, iov, iov_n, more, &sent) : TARN_E_CONFLICT;
        if (err == TARN_E_CONFLICT)
            err = side_wait(&s->out, deadline_ns);
        if (err != TARN_OK)
            return err;
        advance(&iov, &iov_n, sent);
    }
    return TARN_OK;
}

tarn_err tarn_sock_send(tarn_sock *s, const void *buf, size_t n, bool more, uint64_t deadline_ns)
{
    /* An iovec has one pointer for both directions; sending does not change what it points to. */
    union {
        const void *in;
        void *out;
    } u = {.in = buf};
    struct iovec iov = {.iov_base = u.out, .iov_len = n};
    return tarn_sock_sendv(s, &iov, 1, more, deadline_ns);
}
