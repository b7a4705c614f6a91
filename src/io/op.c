/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operations on files: where they run, how they come back, and batches of them.
 *
 *   real file system, uring     the loop's ring                        → tarn_op_complete
 *   real file system, threads   a pool's thread → `returned` list      → tarn_op_complete
 *     a small read, cached      at once, without blocking → local list → tarn_op_complete
 *   simulated file system       the loop itself, in its next turn      → tarn_op_complete
 *   no loop on this thread      at once, on the caller's thread; `done` is called before tarn_op_submit returns
 *
 * Invariants:
 *  1. On a loop, `done` is never called from within tarn_op_submit.
 *  2. Between submit and done an operation holds a reference to its file.
 *  3. A batch is freed when its owner has released it and all its operations are done; on_end is called right before.
 *
 * Ownership: see tarn/io.h. Threads: submit and done on the loop's; execute and return on any.
 */
#include <sys/uio.h>

#include "io_internal.h"

/* ------------------------------------------------------------------ one operation, synchronously */
static int64_t execute_open(tarn_op *op)
{
    tarn_file *f = NULL;
    int rc = tarn_file_open_sync(op->fs, op->path, op->flags, op->mode, &f);
    if (rc < 0)
        return rc;
    *op->file_out = f;
    return 0;
}

int64_t tarn_op_execute(tarn_op *op)
{
    tarn_file *f = op->file;
    switch (op->code) {
    case TARN_OP_READ:
        return tarn_file_pread_sync(f, op->buf, op->len, op->off);
    case TARN_OP_WRITE:
        return tarn_file_pwrite_sync(f, op->buf, op->len, op->off);
    case TARN_OP_SYNC:
        return f->fs->sync(f->fs, f->handle, true);
    case TARN_OP_OPEN:
        return execute_open(op);
    case TARN_OP_UNLINK:
        return op->fs->unlink(op->fs, op->path);
    case TARN_OP_ALLOCATE:
        return f->fs->allocate(f->fs, f->handle, op->off, op->len);
    case TARN_OP_PUNCH:
        return f->fs->punch(f->fs, f->handle, op->off, op->len);
    case TARN_OP_SYNC_DIR:
        return op->fs->sync_dir(op->fs, op->path);
    case TARN_OP_MKDIR:
        return op->fs->mkdir(op->fs, op->path, op->mode);
    }
    tarn_panic(__FILE__, __LINE__, "unknown operation");
}

static void finish(tarn_op *op, int64_t result)
{
    op->result = result;
    op->finished = true;
    if (op->file)
        tarn_file_unref(op->file);
    if (op->done)
        op->done(op); /* the operation may be gone now */
}

void tarn_op_complete(tarn_loop *loop, tarn_op *op, int64_t result)
{
    TARN_ASSERT(loop->ops_n > 0 && !op->finished);
    loop->ops_n--;
    finish(op, result);
}

/* ------------------------------------------------------------------ submit and return */
static void prepare(tarn_op *op, tarn_loop *loop)
{
    op->loop = loop;
    op->next = NULL;
    op->moved = 0;
    op->loop_private = NULL;
    op->finished = false;
    op->result = 0;
    if (op->file)
        (void)tarn_file_ref(op->file);
}

/* Operations for the pool, gathered so that a batch takes its lock once. */
typedef struct pool_chain {
    tarn_op_queue q;
    size_t n;
} pool_chain;

/* In loop_private of an operation in the local list: it has run already. */
static char ran_already;

/*
 * What the page cache holds is read faster than handed to another thread. Not with O_DIRECT, where the call would wait
 * for the drive, and not when it is long, because the loop's other fibers wait meanwhile.
 */
static bool read_cached(tarn_op *op)
{
    if (op->code != TARN_OP_READ || op->len == 0 || op->len > TARN_CACHED_READ_BYTES_MAX || op->file->direct)
        return false;
    struct iovec iov = {.iov_base = op->buf, .iov_len = op->len};
    ssize_t got = preadv2((int)op->file->handle, &iov, 1, (off_t)op->off, RWF_NOWAIT);
    if (got != (ssize_t)op->len)
        return false; /* a short one may be the end of the file or of what is cached: the pool finds out */
    op->result = got;
    op->loop_private = &ran_already;
    return true;
}

static void dispatch(tarn_loop *loop, tarn_op *op, pool_chain *chain)
{
    tarn_fs *fs = op->file ? op->file->fs : op->fs;
    TARN_ASSERT(fs != NULL);
    loop->ops_n++;
    if (!fs->real || (loop->backend == TARN_IO_THREADS && read_cached(op))) {
        tarn_op_queue_push(&loop->local_ops, op);
    } else if (loop->backend == TARN_IO_URING) {
        tarn_ring_submit_op(loop, op);
    } else {
        tarn_op_queue_push(&chain->q, op);
        chain->n++;
    }
}

/*
 * Hands over what dispatch has gathered: one lock, or one system call. Reads wait for the loop's turn, many to a call: their
 * fiber parks for them at once. A write does not, so that the drive works while other fibers compute (hashing a MiB takes
 * longer than writing it).
 */
static void push_gathered(tarn_loop *loop, const pool_chain *chain, bool any_write)
{
    if (chain->n > 0)
        tarn_pool_push_ops(loop->pool, chain->q.head, chain->q.tail, chain->n);
    if (any_write && loop->backend == TARN_IO_URING)
        tarn_ring_submit_now(loop);
}

static bool writes(const tarn_op *op)
{
    return op->code == TARN_OP_WRITE || op->code == TARN_OP_SYNC;
}

void tarn_op_submit(tarn_op *ops, size_t n)
{
    tarn_loop *loop = tarn_loop_current();
    pool_chain chain = {{NULL, NULL}, 0};
    bool any_write = false;
    for (size_t i = 0; i < n; i++) {
        any_write = any_write || writes(&ops[i]);
        prepare(&ops[i], loop);
        if (loop)
            dispatch(loop, &ops[i], &chain);
        else
            finish(&ops[i], tarn_op_execute(&ops[i]));
    }
    if (loop)
        push_gathered(loop, &chain, any_write);
}

static tarn_op *queue_take(tarn_op_queue *q, size_t i)
{
    tarn_op *before = q->head;
    if (i == 0)
        return tarn_op_queue_pop(q);
    while (--i > 0)
        before = before->next;
    tarn_op *op = before->next;
    before->next = op->next;
    if (q->tail == op)
        q->tail = before;
    op->next = NULL;
    return op;
}

/* A simulated file system that picks among the operations: those it leaves wait for the next turn, before newer ones. */
static void run_picked(tarn_loop *loop, tarn_op_queue *q, tarn_fs *fs)
{
    size_t n = 0;
    for (const tarn_op *op = q->head; op; op = op->next)
        n++;
    while (n > 0) {
        size_t i = fs->pick(fs, q->head, n);
        if (i >= n)
            break;
        tarn_op *op = queue_take(q, i);
        tarn_op_complete(loop, op, tarn_op_execute(op));
        n--;
    }
    if (n == 0)
        return;
    q->tail->next = loop->local_ops.head;
    if (loop->local_ops.head)
        q->tail = loop->local_ops.tail;
    loop->local_ops = *q;
}

/* Only what was queued before this turn: an operation that is submitted from `done` waits for the next one. */
void tarn_op_run_local(tarn_loop *loop)
{
    tarn_op_queue q = loop->local_ops;
    loop->local_ops = (tarn_op_queue){NULL, NULL};
    if (q.head) {
        tarn_fs *fs = q.head->file ? q.head->file->fs : q.head->fs;
        if (fs->pick) {
            run_picked(loop, &q, fs);
            return;
        }
    }
    for (tarn_op *op; (op = tarn_op_queue_pop(&q)) != NULL;)
        tarn_op_complete(loop, op, op->loop_private == &ran_already ? op->result : tarn_op_execute(op));
}

void tarn_op_return(tarn_op *op)
{
    tarn_loop *loop = op->loop; /* the operation is the loop's once it is in the list */
    tarn_op *head = atomic_load_explicit(&loop->returned, memory_order_relaxed);
    do {
        op->next = head;
    } while (!atomic_compare_exchange_weak(&loop->returned, &head, op));
    tarn_loop_kick(loop);
}

void tarn_op_take_returned(tarn_loop *loop)
{
    if (!atomic_load_explicit(&loop->returned, memory_order_relaxed))
        return;
    tarn_op *op = atomic_exchange(&loop->returned, NULL);
    tarn_op *first = NULL; /* in the order in which they came back */
    while (op) {
        tarn_op *next = op->next;
        op->next = first;
        first = op;
        op = next;
    }
    while (first) {
        op = first;
        first = op->next;
        op->next = NULL;
        tarn_op_complete(loop, op, op->result);
    }
}

/* ------------------------------------------------------------------ batches */
typedef struct batch_slot {
    tarn_op op;
    tarn_batch *batch;
    void (*user_done)(tarn_op *op);
} batch_slot;

struct tarn_batch {
    size_t n, max;
    size_t submitted_n, finished_n, succeeded_n;
    size_t need; /* the waiter's */
    tarn_fiber *waiter;
    bool released;
    void (*on_end)(void *ctx);
    void *on_end_ctx;
    batch_slot slots[];
};

tarn_batch *tarn_batch_new(size_t ops_max)
{
    if (ops_max > (SIZE_MAX - sizeof(tarn_batch)) / sizeof(batch_slot))
        return NULL;
    tarn_batch *b = tarn_calloc(1, sizeof *b + ops_max * sizeof(batch_slot));
    if (b)
        b->max = ops_max;
    return b;
}

tarn_op *tarn_batch_add(tarn_batch *b)
{
    if (b->n == b->max)
        return NULL;
    batch_slot *slot = &b->slots[b->n++];
    slot->batch = b;
    return &slot->op;
}

void tarn_batch_on_end(tarn_batch *b, void (*fn)(void *ctx), void *ctx)
{
    b->on_end = fn;
    b->on_end_ctx = ctx;
}

static void batch_end_if_over(tarn_batch *b)
{
    if (!b->released || b->finished_n < b->submitted_n)
        return;
    if (b->on_end)
        b->on_end(b->on_end_ctx);
    tarn_free(b);
}

static bool batch_settled(const tarn_batch *b)
{
    return b->succeeded_n >= b->need || b->finished_n == b->submitted_n;
}

static void on_slot_done(tarn_op *op)
{
    batch_slot *slot = TARN_CONTAINER_OF(op, batch_slot, op);
    tarn_batch *b = slot->batch;
    if (slot->user_done)
        slot->user_done(op);
    /* Counted behind the call: it may release the batch, which must not end before this function. */
    b->finished_n++;
    if (op->result >= 0)
        b->succeeded_n++;
    if (b->waiter && batch_settled(b)) {
        tarn_fiber_wake(b->waiter);
        b->waiter = NULL;
    }
    batch_end_if_over(b);
}

void tarn_batch_submit(tarn_batch *b)
{
    tarn_loop *loop = tarn_loop_current();
    pool_chain chain = {{NULL, NULL}, 0};
    size_t from = b->submitted_n;
    bool any_write = false;
    TARN_ASSERT(!b->released);
    b->submitted_n = b->n;
    for (size_t i = from; i < b->n; i++) {
        batch_slot *slot = &b->slots[i];
        slot->user_done = slot->op.done;
        slot->op.done = on_slot_done;
        any_write = any_write || writes(&slot->op);
        prepare(&slot->op, loop);
        if (loop)
            dispatch(loop, &slot->op, &chain);
        else
            finish(&slot->op, tarn_op_execute(&slot->op));
    }
    if (loop)
        push_gathered(loop, &chain, any_write);
}

size_t tarn_batch_wait(tarn_batch *b, size_t need, uint64_t deadline_ns)
{
    b->need = need;
    while (!batch_settled(b)) {
        TARN_ASSERT(b->waiter == NULL);
        b->waiter = tarn_fiber_current();
        bool late = tarn_fiber_park_until(deadline_ns);
        b->waiter = NULL;
        if (late)
            break;
    }
    return b->succeeded_n;
}

size_t tarn_batch_count(const tarn_batch *b)
{
    return b->n;
}

const tarn_op *tarn_batch_op(const tarn_batch *b, size_t i)
{
    TARN_ASSERT(i < b->n);
    return &b->slots[i].op;
}

void tarn_batch_release(tarn_batch *b)
{
    if (!b)
        return;
    TARN_ASSERT(!b->released && b->waiter == NULL);
    b->released = true;
    batch_end_if_over(b);
}
