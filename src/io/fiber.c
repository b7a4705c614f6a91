/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fibers: straight code on stacks of their own, and the ready queue of a loop.
 *
 *   NEW ──adopted──▶ READY ◀──wake, deadline── PARKED
 *                    │  ▲                        ▲
 *             resumed▼  │yield                   │park (no token)
 *                   RUNNING ─────────────────────┘
 *                    │ fn returned
 *                    ▼
 *                   DEAD (free list)
 *
 * Invariants:
 *  1. At most one fiber of a loop is RUNNING, and only on the loop's thread.
 *  2. A wake is never lost: it makes a PARKED fiber READY; a fiber that is READY by a wake has not yet looked at what it
 *     waits for, so that a second wake is the same one; in every other state the wake is kept in `token`.
 *  3. A fiber's timer may be armed with a key that is earlier than deadline_ns (a deadline that was given up is not
 *     taken out of the heap: most deadlines of a server move on and never come). It then fires, sees the real deadline
 *     and arms itself again: at most one idle wake-up for each armed timer, and no heap work for each park.
 *
 * Ownership: the loop owns fibers and stacks. A stack is mapped with a page below it that nothing may touch.
 * Threads: spawn_remote and wake_remote are for any thread, the rest for the loop's.
 */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "io_internal.h"

#if TARN_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#define STACK_BYTES (4 * (size_t)TARN_FIBER_STACK_BYTES)
#else
#define STACK_BYTES ((size_t)TARN_FIBER_STACK_BYTES)
#endif
#if TARN_TSAN
#include <sanitizer/tsan_interface.h>
#endif

#define GUARD_BYTES ((size_t)65536) /* a multiple of every page size in use */

/* ------------------------------------------------------------------ stacks */
/* The pool links idle stacks through their last word: that page is in memory anyway. */
static void **stack_link(char *stack)
{
    return (void **)(void *)(stack + STACK_BYTES - sizeof(void *));
}

static char *stack_map(void)
{
    void *p = mmap(NULL, GUARD_BYTES + STACK_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
    if (p == MAP_FAILED)
        return NULL;
    char *stack = (char *)p + GUARD_BYTES;
    if (mprotect(stack, STACK_BYTES, PROT_READ | PROT_WRITE) != 0) {
        (void)munmap(p, GUARD_BYTES + STACK_BYTES);
        return NULL;
    }
    return stack;
}

static void stack_unmap(char *stack)
{
    (void)munmap(stack - GUARD_BYTES, GUARD_BYTES + STACK_BYTES);
}

static char *stack_get(tarn_loop *loop)
{
    char *stack = loop->idle_stacks;
    if (!stack)
        return stack_map();
    loop->idle_stacks = *stack_link(stack);
    loop->idle_stacks_n--;
    return stack;
}

static void stack_put(tarn_loop *loop, char *stack)
{
#if TARN_ASAN
    /* The last frames of a fiber are left, not returned from: their red zones would stay. */
    __asan_unpoison_memory_region(stack, STACK_BYTES);
#endif
    if (loop->idle_stacks_n >= TARN_STACKS_IDLE_MAX) {
        stack_unmap(stack);
        return;
    }
    if (loop->idle_stacks_n >= TARN_STACKS_WARM_MAX)
        (void)madvise(stack, STACK_BYTES - TARN_STACK_WARM_BYTES, MADV_DONTNEED);
    *stack_link(stack) = loop->idle_stacks;
    loop->idle_stacks = stack;
    loop->idle_stacks_n++;
}

/* ------------------------------------------------------------------ switching */
static void ready_push(tarn_loop *loop, tarn_fiber *f)
{
    f->state = TARN_FIBER_READY;
    f->next = NULL;
    if (loop->ready_tail)
        loop->ready_tail->next = f;
    else
        loop->ready_head = f;
    loop->ready_tail = f;
}

/* From a fiber back to the loop. `dead`: never to come back. */
static void switch_out(tarn_fiber *f, bool dead)
{
    tarn_loop *loop = f->loop;
    TARN_ASSERT(loop->running == f);
#if TARN_ASAN
    __sanitizer_start_switch_fiber(dead ? NULL : &f->fake_stack, loop->main_stack, loop->main_stack_bytes);
#endif
#if TARN_TSAN
    __tsan_switch_to_fiber(loop->main_tsan, 0);
#endif
    (void)dead;
    tarn_switch_stack(&f->sp, loop->main_sp);
#if TARN_ASAN
    __sanitizer_finish_switch_fiber(f->fake_stack, &loop->main_stack, &loop->main_stack_bytes);
#endif
}

static void fiber_main(void *arg)
{
    tarn_fiber *f = arg;
#if TARN_ASAN
    __sanitizer_finish_switch_fiber(NULL, &f->loop->main_stack, &f->loop->main_stack_bytes);
#endif
    f->fn(f->arg);
    f->state = TARN_FIBER_DEAD;
    switch_out(f, true);
    tarn_panic(__FILE__, __LINE__, "a dead fiber was resumed");
}

static void fiber_bury(tarn_fiber *f)
{
    tarn_loop *loop = f->loop;
    tarn_timer_disarm(loop, &f->timer);
    tarn_list_remove(&f->all);
    TARN_ASSERT(loop->fibers_n > 0);
    loop->fibers_n--;
    stack_put(loop, f->stack);
    f->stack = NULL;
#if TARN_TSAN
    __tsan_destroy_fiber(f->tsan);
    f->tsan = NULL;
#endif
    f->next = loop->free_fibers;
    loop->free_fibers = f;
}

static void fiber_resume(tarn_loop *loop, tarn_fiber *f)
{
    TARN_ASSERT(f->state == TARN_FIBER_READY && loop->running == NULL);
    f->state = TARN_FIBER_RUNNING;
    f->by_wake = false;
    loop->running = f;
#if TARN_ASAN
    __sanitizer_start_switch_fiber(&loop->main_fake_stack, f->stack, STACK_BYTES);
#endif
#if TARN_TSAN
    __tsan_switch_to_fiber(f->tsan, 0);
#endif
    tarn_switch_stack(&loop->main_sp, f->sp);
#if TARN_ASAN
    __sanitizer_finish_switch_fiber(loop->main_fake_stack, NULL, NULL);
#endif
    loop->running = NULL;
    if (f->state == TARN_FIBER_DEAD)
        fiber_bury(f);
}

/* Resumes what is ready, within the turn's budget: fibers that wake each other must not keep the loop from its
 * descriptors. */
void tarn_fiber_run_ready(tarn_loop *loop)
{
    for (unsigned i = 0; i < TARN_TURN_RESUMES_MAX && loop->ready_head; i++) {
        tarn_fiber *f = loop->ready_head;
        loop->ready_head = f->next;
        if (!loop->ready_head)
            loop->ready_tail = NULL;
        fiber_resume(loop, f);
    }
}

/* ------------------------------------------------------------------ spawn */
static void fiber_adopt(tarn_fiber *f)
{
    tarn_loop *loop = f->loop;
#if TARN_TSAN
    f->tsan = __tsan_create_fiber(0);
#endif
    f->token = f->by_wake = f->timed_out = false;
    f->deadline_ns = TARN_IO_NO_TIMEOUT;
    f->sp = tarn_switch_prepare(f->stack, STACK_BYTES, fiber_main, f);
    tarn_list_push(&loop->fibers, &f->all);
    loop->fibers_n++;
    ready_push(loop, f);
}

static void on_remote(tarn_post *post)
{
    tarn_fiber *f = TARN_CONTAINER_OF(post, tarn_fiber, remote);
    /* First: a wake that comes from now on has to be posted anew. */
    atomic_store(&f->remote_pending, false);
    if (f->state == TARN_FIBER_NEW)
        fiber_adopt(f);
    else
        tarn_fiber_wake(f);
}

static void on_deadline(tarn_timer *t)
{
    tarn_fiber *f = TARN_CONTAINER_OF(t, tarn_fiber, timer);
    if (f->state != TARN_FIBER_PARKED || f->deadline_ns == TARN_IO_NO_TIMEOUT)
        return;
    if (f->deadline_ns > t->key_ns) {
        tarn_timer_arm(f->loop, t, f->deadline_ns);
        return;
    }
    f->timed_out = true;
    ready_push(f->loop, f);
}

/* A fresh struct; what is taken from the free list keeps its `remote` as it is: it may be queued. */
static tarn_fiber *fiber_new(tarn_loop *loop)
{
    tarn_fiber *f = tarn_calloc(1, sizeof *f);
    if (!f)
        return NULL;
    f->loop = loop;
    f->timer.fn = on_deadline;
    f->remote.fn = on_remote;
    atomic_init(&f->remote_pending, false);
    tarn_list_init(&f->all);
    return f;
}

static void fiber_assign(tarn_fiber *f, void (*fn)(void *arg), void *arg, const char *name)
{
    f->fn = fn;
    f->arg = arg;
    f->name = name;
}

tarn_err tarn_fiber_spawn(tarn_loop *loop, void (*fn)(void *arg), void *arg, const char *name)
{
    tarn_loop_assert_mine(loop);
    tarn_fiber *f = loop->free_fibers;
    if (f) {
        loop->free_fibers = f->next;
    } else {
        f = fiber_new(loop);
        if (!f)
            return TARN_E_NO_MEMORY;
    }
    f->stack = stack_get(loop);
    if (!f->stack) {
        f->state = TARN_FIBER_DEAD;
        f->next = loop->free_fibers;
        loop->free_fibers = f;
        return TARN_E_NO_MEMORY;
    }
    fiber_assign(f, fn, arg, name);
    fiber_adopt(f);
    return TARN_OK;
}

tarn_err tarn_fiber_spawn_remote(tarn_loop *loop, void (*fn)(void *arg), void *arg, const char *name)
{
    /* Whole here, so that a failure is the caller's: nothing can fail on the loop's side. */
    tarn_fiber *f = fiber_new(loop);
    if (!f)
        return TARN_E_NO_MEMORY;
    f->stack = stack_map();
    if (!f->stack) {
        tarn_free(f);
        return TARN_E_NO_MEMORY;
    }
    fiber_assign(f, fn, arg, name);
    f->state = TARN_FIBER_NEW;
    atomic_store(&f->remote_pending, true);
    tarn_loop_post(loop, &f->remote);
    return TARN_OK;
}

/* What another thread spawned too late for the loop to adopt it. */
static void free_unborn(tarn_loop *loop)
{
    tarn_post *post = atomic_exchange(&loop->posts, NULL);
    while (post) {
        tarn_fiber *f = post->fn == on_remote ? TARN_CONTAINER_OF(post, tarn_fiber, remote) : NULL;
        post = post->next;
        if (f && f->state == TARN_FIBER_NEW) {
            stack_unmap(f->stack);
            tarn_free(f);
        }
    }
}

void tarn_fiber_pool_destroy(tarn_loop *loop)
{
    free_unborn(loop);
    for (tarn_link *l; (l = tarn_list_pop(&loop->fibers)) != NULL;) {
        tarn_fiber *f = TARN_CONTAINER_OF(l, tarn_fiber, all);
        tarn_timer_disarm(loop, &f->timer);
#if TARN_TSAN
        __tsan_destroy_fiber(f->tsan);
#endif
        stack_put(loop, f->stack);
        tarn_free(f);
    }
    for (tarn_fiber *f; (f = loop->free_fibers) != NULL;) {
        loop->free_fibers = f->next;
        tarn_free(f);
    }
    for (char *stack; (stack = loop->idle_stacks) != NULL;) {
        loop->idle_stacks = *stack_link(stack);
        stack_unmap(stack);
    }
    loop->fibers_n = loop->idle_stacks_n = 0;
}

/* ------------------------------------------------------------------ park and wake */
tarn_fiber *tarn_fiber_current(void)
{
    tarn_loop *loop = tarn_loop_current();
    return loop ? loop->running : NULL;
}

tarn_loop *tarn_fiber_loop(const tarn_fiber *f)
{
    return f->loop;
}

bool tarn_fiber_park_until(uint64_t deadline_ns)
{
    tarn_fiber *f = tarn_fiber_current();
    TARN_ASSERT(f != NULL);
    if (f->token) {
        f->token = false;
        return false;
    }
    f->timed_out = false;
    f->deadline_ns = deadline_ns;
    if (deadline_ns != TARN_IO_NO_TIMEOUT && (!f->timer.armed || f->timer.key_ns > deadline_ns))
        tarn_timer_arm(f->loop, &f->timer, deadline_ns);
    f->state = TARN_FIBER_PARKED;
    switch_out(f, false);
    f->deadline_ns = TARN_IO_NO_TIMEOUT;
    return f->timed_out;
}

void tarn_fiber_park(void)
{
    (void)tarn_fiber_park_until(TARN_IO_NO_TIMEOUT);
}

void tarn_fiber_wake(tarn_fiber *f)
{
    tarn_loop_assert_mine(f->loop);
    switch (f->state) {
    case TARN_FIBER_PARKED:
        f->by_wake = true;
        ready_push(f->loop, f);
        break;
    case TARN_FIBER_READY:
        if (!f->by_wake)
            f->token = true;
        break;
    case TARN_FIBER_RUNNING:
        f->token = true;
        break;
    case TARN_FIBER_NEW:
    case TARN_FIBER_DEAD:
        break;
    }
}

void tarn_fiber_wake_remote(tarn_fiber *f)
{
    if (!atomic_exchange(&f->remote_pending, true))
        tarn_loop_post(f->loop, &f->remote);
}

void tarn_fiber_wake_all(tarn_loop *loop)
{
    for (tarn_link *l = loop->fibers.next; l != &loop->fibers; l = l->next)
        tarn_fiber_wake(TARN_CONTAINER_OF(l, tarn_fiber, all));
}

void tarn_fiber_yield(void)
{
    tarn_fiber *f = tarn_fiber_current();
    TARN_ASSERT(f != NULL);
    ready_push(f->loop, f);
    switch_out(f, false);
}

void tarn_sleep_ms(uint64_t ms)
{
    tarn_fiber *f = tarn_fiber_current();
    if (!f) {
        struct timespec t = {(time_t)(ms / 1000), (long)(ms % 1000 * 1000000)};
        while (nanosleep(&t, &t) != 0 && errno == EINTR)
            ;
        return;
    }
    uint64_t now = tarn_mono_ns();
    uint64_t deadline = ms > (UINT64_MAX - 1 - now) / TARN_NS_PER_MS ? UINT64_MAX - 1 : now + ms * TARN_NS_PER_MS;
    /* The stop of the loop ends a sleep that it meets, so that a job sees it soon; one that begins later is slept out,
     * so that a loop that waits by sleeping cannot spin. */
    bool stopping = f->loop->stop_seen;
    while (!tarn_fiber_park_until(deadline)) {
        if (f->loop->stop_seen != stopping)
            break;
    }
}

/* ------------------------------------------------------------------ offload */
typedef struct offload_job {
    tarn_post post;
    void (*fn)(void *arg);
    void *arg;
    tarn_fiber *fiber;
    atomic_bool done;
} offload_job;

static void on_offload(tarn_post *post)
{
    offload_job *job = TARN_CONTAINER_OF(post, offload_job, post);
    tarn_fiber *f = job->fiber;
    job->fn(job->arg);
    /* The job lies on the fiber's stack and is gone once `done` is seen. */
    atomic_store(&job->done, true);
    tarn_fiber_wake_remote(f);
}

void tarn_fiber_offload(void (*fn)(void *arg), void *arg)
{
    tarn_fiber *f = tarn_fiber_current();
    if (f && !f->loop->offload)
        f->loop->offload = tarn_pool_new(TARN_OFFLOAD_THREADS_MAX, "tarn-offload");
    if (!f || !f->loop->offload) {
        fn(arg);
        return;
    }
    offload_job job = {.post = {.fn = on_offload}, .fn = fn, .arg = arg, .fiber = f};
    atomic_init(&job.done, false);
    tarn_pool_push_job(f->loop->offload, &job.post);
    while (!atomic_load(&job.done))
        tarn_fiber_park();
}

/* ------------------------------------------------------------------ lock */
typedef struct lock_waiter {
    tarn_link link;
    tarn_fiber *fiber;
} lock_waiter;

/* Stands for a holder that is no fiber: start-up code before the loops run. */
static tarn_fiber lock_no_fiber;

void tarn_fiber_lock_init(tarn_fiber_lock *l)
{
    l->owner = NULL;
    tarn_list_init(&l->waiters);
}

void tarn_fiber_lock_acquire(tarn_fiber_lock *l)
{
    tarn_fiber *f = tarn_fiber_current();
    if (!l->owner) {
        l->owner = f ? f : &lock_no_fiber;
        return;
    }
    TARN_ASSERT(f != NULL && l->owner != f);
    lock_waiter w = {.fiber = f};
    tarn_list_push(&l->waiters, &w.link);
    while (l->owner != f)
        tarn_fiber_park();
}

void tarn_fiber_lock_release(tarn_fiber_lock *l)
{
    tarn_fiber *f = tarn_fiber_current();
    TARN_ASSERT(l->owner == (f ? f : &lock_no_fiber));
    tarn_link *first = tarn_list_pop(&l->waiters);
    if (!first) {
        l->owner = NULL;
        return;
    }
    l->owner = TARN_CONTAINER_OF(first, lock_waiter, link)->fiber;
    tarn_fiber_wake(l->owner);
}
