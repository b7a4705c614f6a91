/* SPDX-License-Identifier: Apache-2.0 */
/*
 * io, private: the structures that the files of the module share.
 *
 * Threads: everything in a tarn_loop belongs to the thread that runs it, but for the fields marked "any thread".
 * Memory: a tarn_fiber is never given back before its loop is destroyed (it goes to the loop's free list), so that a
 * wake from another thread that comes after the fiber's end meets a valid struct: at worst it wakes a stranger once,
 * which parks again. Stacks are pooled apart from it.
 */
#ifndef TARN_IO_INTERNAL_H
#define TARN_IO_INTERNAL_H

#include <liburing.h>
#include <pthread.h>
#include <stdatomic.h>

#include "tarn/io.h"

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define TARN_ASAN 1
#endif
#if __has_feature(thread_sanitizer)
#define TARN_TSAN 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__)
#define TARN_ASAN 1
#endif
#if defined(__SANITIZE_THREAD__)
#define TARN_TSAN 1
#endif
#ifndef TARN_ASAN
#define TARN_ASAN 0
#endif
#ifndef TARN_TSAN
#define TARN_TSAN 0
#endif

/* ------------------------------------------------------------------ limits */
#define TARN_NS_PER_MS UINT64_C(1000000)
#define TARN_STACKS_IDLE_MAX 512    /* pooled per loop; more are unmapped */
#define TARN_STACKS_WARM_MAX 64     /* of these keep all their pages; the others only the top */
#define TARN_STACK_WARM_BYTES 16384 /* what a stack beyond them keeps */
#define TARN_TURN_RESUMES_MAX 256   /* fibers resumed before the loop looks at its descriptors again */
#define TARN_EPOLL_EVENTS_MAX 128   /* per epoll_wait */
#define TARN_ACCEPTS_PER_TURN_MAX 16
#define TARN_ACCEPT_RETRY_MS 100 /* pause after the process ran out of descriptors */
#define TARN_ACCEPT_LOG_MS 1000  /* at most one line about it in this time */
#define TARN_POOL_THREADS_DEFAULT 8
#define TARN_POOL_THREADS_MAX 256
#define TARN_OFFLOAD_THREADS_MAX 4
#define TARN_GRACE_MS_DEFAULT 10000
#define TARN_DRAIN_MS_MAX 10000      /* how long the end of a loop waits for operations in the kernel */
#define TARN_TRANSFER_RETRIES_MAX 64 /* EINTR or EAGAIN in a row */
#define TARN_TRANSFER_BYTES_MAX ((size_t)1 << 30)
#define TARN_CACHED_READ_BYTES_MAX 65536 /* read on the loop's own thread when the page cache has it */
#define TARN_RING_WORKERS_MAX 64         /* the kernel's threads for what blocks (syncs): a hung drive must not hold them all */
#define TARN_SEND_IOV_MAX 64             /* pieces per sendmsg */
#define TARN_HOST_BYTES_MAX 255

/* ------------------------------------------------------------------ timers (timer.c): a pairing heap, no allocation */
typedef struct tarn_timer {
    uint64_t key_ns;
    struct tarn_timer *child, *next, *prev; /* prev: the elder sibling, or the parent of a first child */
    bool armed;
    void (*fn)(struct tarn_timer *self); /* called disarmed; may arm itself again */
} tarn_timer;

void tarn_timer_arm(tarn_loop *loop, tarn_timer *t, uint64_t key_ns);
void tarn_timer_disarm(tarn_loop *loop, tarn_timer *t);
/* Fires all that are due at now_ns. */
void tarn_timers_expire(tarn_loop *loop, uint64_t now_ns);

/* ------------------------------------------------------------------ fibers (switch.c, fiber.c) */
typedef enum tarn_fiber_state {
    TARN_FIBER_NEW,   /* made by another thread, not adopted by its loop yet */
    TARN_FIBER_READY, /* in the ready queue */
    TARN_FIBER_RUNNING,
    TARN_FIBER_PARKED,
    TARN_FIBER_DEAD /* in the free list, no stack */
} tarn_fiber_state;

struct tarn_fiber {
    tarn_loop *loop;
    void *sp; /* while it does not run */
    char *stack;
    void (*fn)(void *arg);
    void *arg;
    const char *name;
    tarn_fiber *next; /* ready queue or free list */
    tarn_link all;    /* loop->fibers */
    tarn_timer timer; /* may stay armed, with an earlier key than deadline_ns: see fiber.c */
    uint64_t deadline_ns;
    tarn_fiber_state state;
    bool token;     /* a remembered wake */
    bool by_wake;   /* READY because of a wake: further wakes are the same one */
    bool timed_out; /* READY because of the deadline */
    tarn_post remote;
    atomic_bool remote_pending; /* any thread; true while `remote` is queued */
    void *fake_stack;           /* AddressSanitizer's */
    void *tsan;                 /* ThreadSanitizer's */
};

void *tarn_switch_prepare(char *stack, size_t stack_bytes, void (*entry)(void *arg), void *arg);
/* Saves the running context at *save and continues the one at load. */
void tarn_switch_stack(void **save, void *load);

void tarn_fiber_run_ready(tarn_loop *loop);
void tarn_fiber_wake_all(tarn_loop *loop);
void tarn_fiber_pool_destroy(tarn_loop *loop);

/* ------------------------------------------------------------------ helper threads (pool.c) */
typedef struct tarn_pool tarn_pool;
tarn_pool *tarn_pool_new(unsigned threads_max, const char *name);
void tarn_pool_free(tarn_pool *p); /* runs what is queued, then joins */
void tarn_pool_push_ops(tarn_pool *p, tarn_op *head, tarn_op *tail, size_t n);
void tarn_pool_push_job(tarn_pool *p, tarn_post *job);

/* ------------------------------------------------------------------ files (file.c) */
struct tarn_file {
    atomic_uint refs; /* any thread */
    tarn_fs *fs;
    int64_t handle;
    bool direct; /* O_DIRECT: short transfers are continued at a block boundary */
};
int tarn_file_wrap(tarn_fs *fs, int64_t handle, int flags, tarn_file **out); /* closes the handle on failure */
/*
 * Takes the outcome `got` of one pread or pwrite of the piece behind *moved. True when the transfer has ended: *result
 * then is its outcome. False: go on at *moved.
 */
bool tarn_transfer_step(const tarn_file *f, bool is_read, size_t len, size_t *moved, unsigned *retries, int64_t got, int64_t *result);

/* ------------------------------------------------------------------ operations (op.c) */
/* Runs one operation to its end on the calling thread. */
int64_t tarn_op_execute(tarn_op *op);
/* On the loop's thread: gives the operation back to its owner. */
void tarn_op_complete(tarn_loop *loop, tarn_op *op, int64_t result);
void tarn_op_run_local(tarn_loop *loop);
/* Any thread: a pool's thread hands over a finished operation (op->result is set). */
void tarn_op_return(tarn_op *op);
void tarn_op_take_returned(tarn_loop *loop);

typedef struct tarn_op_queue {
    tarn_op *head, *tail;
} tarn_op_queue;
static inline void tarn_op_queue_push(tarn_op_queue *q, tarn_op *op)
{
    op->next = NULL;
    if (q->tail)
        q->tail->next = op;
    else
        q->head = op;
    q->tail = op;
}
static inline tarn_op *tarn_op_queue_pop(tarn_op_queue *q)
{
    tarn_op *op = q->head;
    if (op) {
        q->head = op->next;
        if (!q->head)
            q->tail = NULL;
        op->next = NULL;
    }
    return op;
}

/* ------------------------------------------------------------------ descriptors in epoll */
typedef struct tarn_source {
    void (*fn)(struct tarn_source *self, uint32_t events);
    struct tarn_source *next; /* graveyard */
    void (*bury)(struct tarn_source *self);
} tarn_source;
/* Frees the owner of the source with `bury`, but not while events of the same epoll_wait are being handed out. */
void tarn_source_retire(tarn_loop *loop, tarn_source *s, void (*bury)(tarn_source *self));

/* ------------------------------------------------------------------ ring (uring.c) */
typedef struct tarn_ring {
    struct io_uring uring;
    bool there;
    bool poll_armed;    /* the epoll descriptor's one-shot poll is in the ring */
    unsigned in_kernel; /* operations of ours in the ring, without the poll */
    unsigned in_kernel_max;
    tarn_op_queue waiting; /* more than the ring takes */
} tarn_ring;
tarn_err tarn_ring_open(tarn_ring *r);
void tarn_ring_enable(tarn_ring *r); /* on the loop's thread */
void tarn_ring_close(tarn_ring *r);
void tarn_ring_submit_op(tarn_loop *loop, tarn_op *op);
/* What was submitted goes to the kernel now, not in the loop's next turn. */
void tarn_ring_submit_now(tarn_loop *loop);
/* Hands the queue to the kernel and takes completions; waits until timeout_ns (relative; 0: not, NO_TIMEOUT: for ever). */
void tarn_ring_turn(tarn_loop *loop, uint64_t timeout_ns);
static inline bool tarn_ring_busy(const tarn_ring *r)
{
    return r->there && (r->in_kernel > 0 || r->waiting.head != NULL);
}

/* ------------------------------------------------------------------ loop (loop.c) */
struct tarn_loop {
    tarn_io_backend backend;
    char name[16];
    int epoll_fd, event_fd;
    tarn_source wake_source;
    tarn_source *graveyard;
    bool dispatching;

    void *main_sp;
    tarn_fiber *running;
    tarn_fiber *ready_head, *ready_tail;
    tarn_fiber *free_fibers;
    tarn_link fibers; /* alive */
    size_t fibers_n;
    void *idle_stacks;
    size_t idle_stacks_n;
    const void *main_stack; /* sanitizers' */
    size_t main_stack_bytes;
    void *main_fake_stack;
    void *main_tsan;

    tarn_timer *timers;

    tarn_ring ring;
    tarn_op_queue local_ops;
    size_t ops_n; /* operations not given back yet */
    unsigned pool_threads;
    tarn_pool *pool;    /* operations of the threads back end */
    tarn_pool *offload; /* tarn_fiber_offload */
    tarn_link socks, acceptors;

    uint64_t grace_ns, grace_end_ns;
    bool begun; /* runs, or has run */
    bool stop_seen;
    /* any thread */
    _Atomic(tarn_post *) posts;
    _Atomic(tarn_op *) returned;
    atomic_bool asleep;
    atomic_bool stop;
};

/* Any thread: ends the loop's sleep, if it sleeps. */
void tarn_loop_kick(tarn_loop *loop);
/* Asserts that the caller may touch what belongs to the loop: it is its thread, or the loop has not begun. */
void tarn_loop_assert_mine(const tarn_loop *loop);
int tarn_loop_watch(tarn_loop *loop, int fd, uint32_t events, tarn_source *s); /* 0 or negative errno */
void tarn_loop_unwatch(tarn_loop *loop, int fd);
/* Hands out what epoll has; timeout_ms as for epoll_wait. */
void tarn_loop_poll(tarn_loop *loop, int timeout_ms);
void tarn_accept_destroy_all(tarn_loop *loop);
void tarn_sock_destroy_all(tarn_loop *loop);

#endif
