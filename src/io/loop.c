/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The loop: one thread's turn through ready fibers, posts, timers, operations and descriptors.
 *
 * A turn: resume ready fibers (bounded) → operations on simulated files → posts and operations from other threads →
 * timers → descriptors and the ring; the last step sleeps when the others left nothing to do.
 *
 * Sleeping and other threads. A poster links its node, then takes `asleep`; only if it was set does it write the
 * eventfd. The loop sets `asleep`, then looks at the lists once more before it sleeps. All of it is sequentially
 * consistent, so that one of the two sees the other: many posts cost one write. The eventfd is edge-triggered and never
 * read: each write is an edge of its own.
 *
 * Ending: after the stop every parked fiber is woken once (parks are loops that check, so this is harmless), and the
 * loop goes on until no fiber and no operation is left or the grace time has passed. Operations in the kernel are then
 * waited for, because they write to memory that is about to go.
 *
 * Invariants:
 *  1. tarn_loop_current() is the loop only between the begin and the end of tarn_loop_run on that thread.
 *  2. Descriptors' owners are freed only outside the hand-out of events (graveyard).
 */
#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "io_internal.h"

#if TARN_TSAN
#include <sanitizer/tsan_interface.h>
#endif

static _Thread_local tarn_loop *this_loop;

tarn_loop *tarn_loop_current(void)
{
    return this_loop;
}

void tarn_loop_assert_mine(const tarn_loop *loop)
{
    TARN_ASSERT(this_loop == loop || (this_loop == NULL && !loop->begun));
}

tarn_io_backend tarn_loop_backend(const tarn_loop *loop)
{
    return loop->backend;
}

/* ------------------------------------------------------------------ from other threads */
static void kick_always(tarn_loop *loop)
{
    uint64_t one = 1;
    ssize_t rc;
    do {
        rc = write(loop->event_fd, &one, sizeof one);
    } while (rc < 0 && errno == EINTR);
}

void tarn_loop_kick(tarn_loop *loop)
{
    if (atomic_load(&loop->asleep) && atomic_exchange(&loop->asleep, false))
        kick_always(loop);
}

void tarn_loop_post(tarn_loop *loop, tarn_post *post)
{
    tarn_post *head = atomic_load_explicit(&loop->posts, memory_order_relaxed);
    do {
        post->next = head;
    } while (!atomic_compare_exchange_weak(&loop->posts, &head, post));
    tarn_loop_kick(loop);
}

void tarn_loop_stop(tarn_loop *loop)
{
    int saved = errno; /* may run in a signal handler */
    atomic_store(&loop->stop, true);
    kick_always(loop);
    errno = saved;
}

bool tarn_loop_stopping(const tarn_loop *loop)
{
    return atomic_load_explicit(&loop->stop, memory_order_relaxed);
}

static void take_posts(tarn_loop *loop)
{
    if (!atomic_load_explicit(&loop->posts, memory_order_relaxed))
        return;
    tarn_post *post = atomic_exchange(&loop->posts, NULL);
    tarn_post *first = NULL; /* in the order in which they came */
    while (post) {
        tarn_post *next = post->next;
        post->next = first;
        first = post;
        post = next;
    }
    while (first) {
        post = first;
        first = post->next;
        post->next = NULL;
        post->fn(post); /* the node is its owner's again */
    }
}

/* ------------------------------------------------------------------ descriptors */
int tarn_loop_watch(tarn_loop *loop, int fd, uint32_t events, tarn_source *s)
{
    struct epoll_event e = {.events = events, .data.ptr = s};
    return epoll_ctl(loop->epoll_fd, EPOLL_CTL_ADD, fd, &e) == 0 ? 0 : -errno;
}

void tarn_loop_unwatch(tarn_loop *loop, int fd)
{
    (void)epoll_ctl(loop->epoll_fd, EPOLL_CTL_DEL, fd, NULL);
}

void tarn_source_retire(tarn_loop *loop, tarn_source *s, void (*bury)(tarn_source *self))
{
    if (!loop->dispatching) {
        bury(s);
        return;
    }
    s->bury = bury;
    s->next = loop->graveyard;
    loop->graveyard = s;
}

static void hand_out(tarn_loop *loop, const struct epoll_event *events, int n)
{
    loop->dispatching = true;
    for (int i = 0; i < n; i++) {
        tarn_source *s = events[i].data.ptr;
        if (s->fn)
            s->fn(s, events[i].events);
    }
    loop->dispatching = false;
    for (tarn_source *s; (s = loop->graveyard) != NULL;) {
        loop->graveyard = s->next;
        s->bury(s);
    }
}

void tarn_loop_poll(tarn_loop *loop, int timeout_ms)
{
    struct epoll_event events[TARN_EPOLL_EVENTS_MAX];
    int n = epoll_wait(loop->epoll_fd, events, TARN_EPOLL_EVENTS_MAX, timeout_ms);
    TARN_ASSERT(n >= 0 || errno == EINTR);
    if (n > 0)
        hand_out(loop, events, n);
    /* A full batch means that there may be more: the next turn asks again, without sleeping if fibers got ready; if
     * none did, epoll still has the rest and returns at once. */
}

/* ------------------------------------------------------------------ create, destroy */
/* Picks the back end and opens its resources. */
static tarn_err open_backend(tarn_loop *loop, tarn_io_backend want)
{
    tarn_err err = TARN_E_UNSUPPORTED;
    if (want != TARN_IO_THREADS) {
        if (tarn_io_uring_refusal()[0] == '\0')
            err = tarn_ring_open(&loop->ring);
        if (err == TARN_OK) {
            loop->backend = TARN_IO_URING;
            return TARN_OK;
        }
        if (want == TARN_IO_URING)
            return err;
        if (tarn_io_uring_refusal()[0] == '\0')
            tarn_log(TARN_LOG_WARN, "no ring for this loop, threads instead", "loop", loop->name, "error", tarn_err_get(err)->name, NULL);
    }
    loop->backend = TARN_IO_THREADS;
    loop->pool = tarn_pool_new(loop->pool_threads, "tarn-disk");
    return loop->pool ? TARN_OK : TARN_E_NO_MEMORY;
}

static tarn_err open_descriptors(tarn_loop *loop)
{
    loop->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (loop->epoll_fd < 0)
        return tarn_err_from_errno(errno);
    loop->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (loop->event_fd < 0)
        return tarn_err_from_errno(errno);
    int rc = tarn_loop_watch(loop, loop->event_fd, EPOLLIN | EPOLLET, &loop->wake_source);
    return rc == 0 ? TARN_OK : tarn_err_from_errno(-rc);
}

static void set_options(tarn_loop *loop, const tarn_loop_options *opt)
{
    tarn_str name = tarn_str_of(opt->name ? opt->name : "tarn-loop");
    tarn_sb b;
    tarn_sb_init_fixed(&b, loop->name, sizeof loop->name);
    tarn_sb_str(&b, tarn_str_sub(name, 0, sizeof loop->name - 1));
    loop->pool_threads = opt->threads ? opt->threads : TARN_POOL_THREADS_DEFAULT;
    if (loop->pool_threads > TARN_POOL_THREADS_MAX)
        loop->pool_threads = TARN_POOL_THREADS_MAX;
    loop->grace_ns = (opt->grace_ms ? opt->grace_ms : TARN_GRACE_MS_DEFAULT) * TARN_NS_PER_MS;
}

tarn_err tarn_loop_create(const tarn_loop_options *opt, tarn_loop **out)
{
    static const tarn_loop_options defaults = {.backend = TARN_IO_AUTO};
    tarn_loop *loop = tarn_calloc(1, sizeof *loop);
    if (!loop)
        return TARN_E_NO_MEMORY;
    loop->epoll_fd = loop->event_fd = -1;
    tarn_list_init(&loop->fibers);
    tarn_list_init(&loop->socks);
    tarn_list_init(&loop->acceptors);
    atomic_init(&loop->posts, NULL);
    atomic_init(&loop->returned, NULL);
    atomic_init(&loop->asleep, false);
    atomic_init(&loop->stop, false);
    if (!opt)
        opt = &defaults;
    set_options(loop, opt);
    tarn_err err = open_descriptors(loop);
    if (err == TARN_OK)
        err = open_backend(loop, opt->backend);
    if (err != TARN_OK) {
        tarn_loop_destroy(loop);
        return err;
    }
    *out = loop;
    return TARN_OK;
}

void tarn_loop_destroy(tarn_loop *loop)
{
    if (!loop)
        return;
    TARN_ASSERT(this_loop != loop);
    tarn_pool_free(loop->offload);
    tarn_pool_free(loop->pool);
    tarn_accept_destroy_all(loop);
    tarn_sock_destroy_all(loop);
    tarn_ring_close(&loop->ring);
    if (loop->ops_n > 0) {
        /* The kernel still holds memory of fibers: better leaked than written to after it was given away. */
        tarn_log(TARN_LOG_ERROR, "loop ends with operations in the kernel", "loop", loop->name, NULL);
    } else {
        tarn_fiber_pool_destroy(loop);
    }
    if (loop->event_fd >= 0)
        (void)close(loop->event_fd);
    if (loop->epoll_fd >= 0)
        (void)close(loop->epoll_fd);
    tarn_free(loop);
}

/* ------------------------------------------------------------------ run */
static void see_stop(tarn_loop *loop)
{
    if (loop->stop_seen || !atomic_load(&loop->stop))
        return;
    loop->stop_seen = true;
    loop->grace_end_ns = tarn_mono_ns() + loop->grace_ns;
    tarn_fiber_wake_all(loop);
}

static bool nothing_to_do(tarn_loop *loop)
{
    return !loop->ready_head && !loop->local_ops.head && !atomic_load(&loop->posts) && !atomic_load(&loop->returned) &&
           (loop->stop_seen || !atomic_load(&loop->stop));
}

/* How long the loop may sleep. */
static uint64_t sleep_ns(tarn_loop *loop, uint64_t now)
{
    uint64_t until = loop->timers ? loop->timers->key_ns : TARN_IO_NO_TIMEOUT;
    if (loop->stop_seen && loop->grace_end_ns < until)
        until = loop->grace_end_ns;
    if (until == TARN_IO_NO_TIMEOUT)
        return until;
    return until > now ? until - now : 0;
}

static void wait_for_news(tarn_loop *loop, uint64_t now)
{
    uint64_t timeout = 0;
    if (nothing_to_do(loop)) {
        timeout = sleep_ns(loop, now);
        if (timeout > 0) {
            atomic_store(&loop->asleep, true);
            if (!nothing_to_do(loop))
                timeout = 0;
        }
    }
    tarn_ring_turn(loop, timeout);
    atomic_store_explicit(&loop->asleep, false, memory_order_relaxed);
}

static void turn(tarn_loop *loop)
{
    tarn_fiber_run_ready(loop);
    if (loop->local_ops.head)
        tarn_op_run_local(loop);
    take_posts(loop);
    tarn_op_take_returned(loop);
    see_stop(loop);
    uint64_t now = 0;
    if (loop->timers || loop->stop_seen) {
        now = tarn_mono_ns();
        tarn_timers_expire(loop, now);
    }
    if (loop->stop_seen && loop->fibers_n == 0 && loop->ops_n == 0)
        return;
    wait_for_news(loop, now);
}

static bool over(const tarn_loop *loop)
{
    if (!loop->stop_seen)
        return false;
    return (loop->fibers_n == 0 && loop->ops_n == 0) || tarn_mono_ns() >= loop->grace_end_ns;
}

/* Waits for what the kernel or the pool still holds; fibers run no more. */
static void drain_ops(tarn_loop *loop)
{
    uint64_t end = tarn_mono_ns() + TARN_DRAIN_MS_MAX * TARN_NS_PER_MS;
    while (loop->ops_n > 0 && tarn_mono_ns() < end) {
        tarn_op_run_local(loop);
        tarn_op_take_returned(loop);
        if (loop->ops_n > 0)
            tarn_ring_turn(loop, TARN_NS_PER_MS);
    }
}

void tarn_loop_run(tarn_loop *loop)
{
    TARN_ASSERT(this_loop == NULL && !loop->begun);
    loop->begun = true;
    this_loop = loop;
    if (gettid() != getpid()) /* the first thread's name is the program's */
        (void)pthread_setname_np(pthread_self(), loop->name);
    if (loop->ring.there)
        tarn_ring_enable(&loop->ring);
#if TARN_TSAN
    loop->main_tsan = __tsan_get_current_fiber();
#endif
    while (!over(loop))
        turn(loop);
    if (loop->fibers_n > 0)
        tarn_logf(TARN_LOG_WARN, "loop ends with fibers alive", "%zu fibers on %s", loop->fibers_n, loop->name);
    drain_ops(loop);
    this_loop = NULL;
}
