/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ring of a loop, and the probe that says whether this machine lets us have one.
 *
 * A ring is made disabled and enabled on the thread that runs the loop: with SINGLE_ISSUER that thread is the only one
 * that may submit. With DEFER_TASKRUN completions appear only when the thread enters the kernel for them, so that
 * nothing interrupts a running fiber.
 *
 * One operation is in the ring at a time for each tarn_op. `moved` counts what a transfer has moved so far; for
 * TARN_OP_SYNC_DIR, which is open + fsync + close, it is 0 while the folder is being opened, then its descriptor + 1.
 *
 * Sleeping. The loop's epoll descriptor is polled through the ring one-shot (a multishot poll on an epoll descriptor
 * loses wake-ups). While the poll is armed and has not fired, epoll has nothing. With no operation in the ring the loop
 * sleeps in epoll_wait instead, which is one system call less.
 *
 * Invariants:
 *  1. in_kernel <= in_kernel_max, which leaves room in the completion queue for the poll; the rest waits in `waiting`.
 *  2. An operation that waits has had no effect yet, or (continued transfers) what `moved` says.
 *
 * Ownership: the ring owns nothing but its descriptors. Threads: the loop's, but for the probe, which runs once on any.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "io_internal.h"

#define POLL_TAG 1 /* user_data of the poll; operations are pointers */
#define CQ_SPARE 8

/* ------------------------------------------------------------------ set-up */
static int setup(struct io_uring *u)
{
    /* From what new kernels have to what all have. */
    static const unsigned flags[] = {
        IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_TASKRUN_FLAG | IORING_SETUP_SUBMIT_ALL,
        IORING_SETUP_COOP_TASKRUN | IORING_SETUP_TASKRUN_FLAG | IORING_SETUP_SUBMIT_ALL,
        0,
    };
    int rc = -EINVAL;
    for (size_t i = 0; i < TARN_ARRAY_LEN(flags) && rc == -EINVAL; i++) {
        struct io_uring_params p = {.flags = flags[i] | IORING_SETUP_R_DISABLED | IORING_SETUP_CLAMP};
        rc = io_uring_queue_init_params(TARN_LOOP_RING_ENTRIES, u, &p);
    }
    return rc;
}

/* Debian 12's liburing declares io_uring_enable_rings() and does not export it. 0 or a negative errno. */
static int enable(struct io_uring *u)
{
    long rc = syscall(__NR_io_uring_register, u->ring_fd, IORING_REGISTER_ENABLE_RINGS, NULL, 0);
    return rc < 0 ? -errno : 0;
}

tarn_err tarn_ring_open(tarn_ring *r)
{
    int rc = setup(&r->uring);
    if (rc < 0)
        return rc == -ENOMEM ? TARN_E_NO_MEMORY : TARN_E_UNSUPPORTED;
    r->there = true;
    r->poll_armed = false;
    r->in_kernel = 0;
    r->in_kernel_max = *r->uring.cq.kring_entries - CQ_SPARE;
    r->waiting = (tarn_op_queue){NULL, NULL};
    return TARN_OK;
}

void tarn_ring_enable(tarn_ring *r)
{
    int rc = enable(&r->uring);
    TARN_ASSERT(rc == 0);
    (void)io_uring_register_ring_fd(&r->uring);       /* saves a look-up per call; kernels without it do as well */
    unsigned workers[2] = {TARN_RING_WORKERS_MAX, 0}; /* bounded; 0 leaves the other kind as it is */
    (void)io_uring_register_iowq_max_workers(&r->uring, workers);
}

void tarn_ring_close(tarn_ring *r)
{
    if (r->there)
        io_uring_queue_exit(&r->uring);
    r->there = false;
}

/* ------------------------------------------------------------------ probe */
static char refusal[160];
static pthread_once_t probe_once = PTHREAD_ONCE_INIT;

static void refuse(const char *what, int errno_value)
{
    tarn_sb b;
    tarn_sb_init_fixed(&b, refusal, sizeof refusal);
    tarn_sb_cstr(&b, what);
    if (errno_value != 0) {
        char text[96];
        tarn_sb_cstr(&b, ": ");
        tarn_sb_cstr(&b, strerror_r(errno_value, text, sizeof text));
    }
}

static bool probe_ops(struct io_uring *u)
{
    static const int needed[] = {IORING_OP_READ,     IORING_OP_WRITE,     IORING_OP_FSYNC,   IORING_OP_POLL_ADD, IORING_OP_OPENAT,
                                 IORING_OP_UNLINKAT, IORING_OP_FALLOCATE, IORING_OP_MKDIRAT, IORING_OP_TIMEOUT};
    const unsigned features = IORING_FEAT_NODROP | IORING_FEAT_SUBMIT_STABLE | IORING_FEAT_EXT_ARG;
    if ((u->features & features) != features) {
        refuse("io_uring: the kernel lacks needed features", 0);
        return false;
    }
    struct io_uring_probe *p = io_uring_get_probe_ring(u);
    if (!p) {
        refuse("io_uring_register: the probe of operations was refused", 0);
        return false;
    }
    bool all = true;
    for (size_t i = 0; i < TARN_ARRAY_LEN(needed); i++)
        all = all && io_uring_opcode_supported(p, needed[i]);
    io_uring_free_probe(p);
    if (!all)
        refuse("io_uring: the kernel lacks needed operations", 0);
    return all;
}

/* Some sandboxes allow the set-up and then fail: only a read that brings the right bytes is believed. */
static bool probe_read_from(struct io_uring *u, int fd, const char *want, size_t n)
{
    char got[16] = {0};
    struct io_uring_cqe *cqe = NULL;
    struct __kernel_timespec limit = {.tv_sec = 5};
    struct io_uring_sqe *sqe = io_uring_get_sqe(u);
    TARN_ASSERT(sqe != NULL && n <= sizeof got);
    io_uring_prep_read(sqe, fd, got, (unsigned)n, 0);
    int rc = io_uring_submit_and_wait_timeout(u, &cqe, 1, &limit, NULL);
    if (rc < 0 || !cqe) {
        refuse("io_uring_enter", rc < 0 ? -rc : ETIME);
        return false;
    }
    int res = cqe->res;
    io_uring_cqe_seen(u, cqe);
    if (res != (int)n || memcmp(got, want, n) != 0) {
        refuse("io_uring: a test read failed", res < 0 ? -res : EIO);
        return false;
    }
    return true;
}

static bool probe_read(struct io_uring *u)
{
    static const char want[] = "tarn probe";
    int fd = memfd_create("tarn-probe", MFD_CLOEXEC);
    if (fd < 0 || pwrite(fd, want, sizeof want, 0) != (ssize_t)sizeof want) {
        refuse("io_uring: no file for a test read", errno);
        if (fd >= 0)
            (void)close(fd);
        return false;
    }
    bool ok = probe_read_from(u, fd, want, sizeof want);
    (void)close(fd);
    return ok;
}

static void probe(void)
{
    struct io_uring u;
    int rc = setup(&u);
    if (rc < 0) {
        refuse("io_uring_setup", -rc);
        return;
    }
    rc = enable(&u);
    if (rc < 0)
        refuse("io_uring_register", -rc);
    else if (probe_ops(&u))
        (void)probe_read(&u);
    io_uring_queue_exit(&u);
}

const char *tarn_io_uring_refusal(void)
{
    (void)pthread_once(&probe_once, probe);
    return refusal;
}

/* ------------------------------------------------------------------ submission */
static struct io_uring_sqe *take_sqe(tarn_ring *r)
{
    struct io_uring_sqe *sqe = io_uring_get_sqe(&r->uring);
    if (!sqe) {
        (void)io_uring_submit(&r->uring);
        sqe = io_uring_get_sqe(&r->uring);
    }
    return sqe;
}

static void prep_transfer(struct io_uring_sqe *sqe, tarn_op *op)
{
    int fd = (int)op->file->handle;
    size_t left = op->len - op->moved;
    unsigned n = (unsigned)(left < TARN_TRANSFER_BYTES_MAX ? left : TARN_TRANSFER_BYTES_MAX);
    if (op->code == TARN_OP_READ)
        io_uring_prep_read(sqe, fd, (char *)op->buf + op->moved, n, op->off + op->moved);
    else
        io_uring_prep_write(sqe, fd, (char *)op->buf + op->moved, n, op->off + op->moved);
}

static void prep_sync_dir(struct io_uring_sqe *sqe, tarn_op *op)
{
    if (op->moved == 0)
        io_uring_prep_openat(sqe, AT_FDCWD, op->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
    else
        io_uring_prep_fsync(sqe, (int)op->moved - 1, 0);
}

static void prep(struct io_uring_sqe *sqe, tarn_op *op)
{
    switch (op->code) {
    case TARN_OP_READ:
    case TARN_OP_WRITE:
        prep_transfer(sqe, op);
        break;
    case TARN_OP_SYNC:
        io_uring_prep_fsync(sqe, (int)op->file->handle, IORING_FSYNC_DATASYNC);
        break;
    case TARN_OP_OPEN:
        io_uring_prep_openat(sqe, AT_FDCWD, op->path, op->flags | O_CLOEXEC, (mode_t)op->mode);
        break;
    case TARN_OP_UNLINK:
        io_uring_prep_unlinkat(sqe, AT_FDCWD, op->path, 0);
        break;
    case TARN_OP_ALLOCATE:
        io_uring_prep_fallocate(sqe, (int)op->file->handle, 0, (off_t)op->off, (off_t)op->len);
        break;
    case TARN_OP_PUNCH:
        io_uring_prep_fallocate(sqe, (int)op->file->handle, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)op->off, (off_t)op->len);
        break;
    case TARN_OP_SYNC_DIR:
        prep_sync_dir(sqe, op);
        break;
    case TARN_OP_MKDIR:
        io_uring_prep_mkdirat(sqe, AT_FDCWD, op->path, (mode_t)op->mode);
        break;
    }
    io_uring_sqe_set_data(sqe, op);
}

/* Puts an operation into the ring; false when there is no room now. */
static bool push(tarn_ring *r, tarn_op *op)
{
    if (r->in_kernel >= r->in_kernel_max)
        return false;
    struct io_uring_sqe *sqe = take_sqe(r);
    if (!sqe)
        return false;
    prep(sqe, op);
    r->in_kernel++;
    return true;
}

void tarn_ring_submit_op(tarn_loop *loop, tarn_op *op)
{
    tarn_ring *r = &loop->ring;
    if (r->waiting.head || !push(r, op))
        tarn_op_queue_push(&r->waiting, op);
}

/* What is refused now (EBUSY, EAGAIN) the next turn submits again. */
void tarn_ring_submit_now(tarn_loop *loop)
{
    if (io_uring_sq_ready(&loop->ring.uring) > 0)
        (void)io_uring_submit(&loop->ring.uring);
}

static void push_waiting(tarn_ring *r)
{
    while (r->waiting.head && push(r, r->waiting.head))
        (void)tarn_op_queue_pop(&r->waiting);
}

/* False when the queue is full because the kernel takes no more at the moment. */
static bool arm_poll(tarn_loop *loop)
{
    tarn_ring *r = &loop->ring;
    if (r->poll_armed)
        return true;
    struct io_uring_sqe *sqe = take_sqe(r);
    if (!sqe)
        return false;
    io_uring_prep_poll_add(sqe, loop->epoll_fd, POLLIN);
    io_uring_sqe_set_data64(sqe, POLL_TAG);
    r->poll_armed = true;
    return true;
}

/* ------------------------------------------------------------------ completion */
/* Each of these: true when the operation has ended with *result, false when a further step has to go into the ring. */
static bool step_transfer(tarn_op *op, int res, int64_t *result)
{
    unsigned retries = (unsigned)(uintptr_t)op->loop_private;
    bool end = tarn_transfer_step(op->file, op->code == TARN_OP_READ, op->len, &op->moved, &retries, res, result);
    op->loop_private = (void *)(uintptr_t)retries;
    return end;
}

static bool step_sync_dir(tarn_op *op, int res, int64_t *result)
{
    if (op->moved == 0 && res >= 0) {
        op->moved = (size_t)res + 1;
        return false;
    }
    if (op->moved > 0)
        (void)close((int)op->moved - 1);
    *result = res;
    return true;
}

static bool step_open(tarn_op *op, int res, int64_t *result)
{
    tarn_file *f = NULL;
    *result = res < 0 ? res : tarn_file_wrap(op->fs, res, op->flags, &f);
    if (f)
        *op->file_out = f;
    return true;
}

static bool step(tarn_op *op, int res, int64_t *result)
{
    if (res == -EINTR && op->code != TARN_OP_READ && op->code != TARN_OP_WRITE)
        return false;
    switch (op->code) {
    case TARN_OP_READ:
    case TARN_OP_WRITE:
        return step_transfer(op, res, result);
    case TARN_OP_SYNC_DIR:
        return step_sync_dir(op, res, result);
    case TARN_OP_OPEN:
        return step_open(op, res, result);
    case TARN_OP_ALLOCATE:
        /* The file system cannot reserve space: what the synchronous call falls back to is quick. */
        *result = res == -EOPNOTSUPP ? tarn_op_execute(op) : res;
        return true;
    default:
        *result = res;
        return true;
    }
}

static void on_cqe(tarn_loop *loop, uint64_t data, int res)
{
    tarn_ring *r = &loop->ring;
    if (data == POLL_TAG) {
        r->poll_armed = false;
        return;
    }
    if (data == LIBURING_UDATA_TIMEOUT)
        return;
    tarn_op *op = (tarn_op *)(uintptr_t)data;
    int64_t result = 0;
    TARN_ASSERT(r->in_kernel > 0);
    r->in_kernel--;
    if (step(op, res, &result))
        tarn_op_complete(loop, op, result);
    else
        tarn_ring_submit_op(loop, op);
}

static void reap(tarn_loop *loop)
{
    struct io_uring *u = &loop->ring.uring;
    struct io_uring_cqe *cqe;
    unsigned head;
    /* Seen one by one: what a completion submits may need the room. */
    io_uring_for_each_cqe(u, head, cqe)
    {
        uint64_t data = cqe->user_data;
        int res = cqe->res;
        io_uring_cq_advance(u, 1);
        on_cqe(loop, data, res);
    }
    push_waiting(&loop->ring);
}

/* ------------------------------------------------------------------ the turn */
static bool kernel_has_news(struct io_uring *u)
{
    unsigned flags = IO_URING_READ_ONCE(*u->sq.kflags);
    return (flags & (IORING_SQ_TASKRUN | IORING_SQ_CQ_OVERFLOW)) != 0;
}

static void enter_now(tarn_ring *r)
{
    if (io_uring_sq_ready(&r->uring) > 0)
        (void)io_uring_submit_and_get_events(&r->uring);
    else if (kernel_has_news(&r->uring))
        (void)io_uring_get_events(&r->uring);
}

static void enter_wait(tarn_ring *r, uint64_t timeout_ns)
{
    struct io_uring_cqe *cqe;
    struct __kernel_timespec t = {.tv_sec = (long long)(timeout_ns / UINT64_C(1000000000)),
                                  .tv_nsec = (long long)(timeout_ns % UINT64_C(1000000000))};
    /* Failures (EINTR, ETIME, EBUSY while completions wait) are answered by the next turn. */
    (void)io_uring_submit_and_wait_timeout(&r->uring, &cqe, 1, timeout_ns == TARN_IO_NO_TIMEOUT ? NULL : &t, NULL);
}

static int poll_timeout_ms(uint64_t ns)
{
    if (ns == TARN_IO_NO_TIMEOUT)
        return -1;
    uint64_t ms = ns / TARN_NS_PER_MS + (ns % TARN_NS_PER_MS != 0);
    return ms < INT32_MAX ? (int)ms : INT32_MAX;
}

void tarn_ring_turn(tarn_loop *loop, uint64_t timeout_ns)
{
    tarn_ring *r = &loop->ring;
    if (!r->there || (r->in_kernel == 0 && !r->waiting.head && io_uring_sq_ready(&r->uring) == 0)) {
        tarn_loop_poll(loop, poll_timeout_ms(timeout_ns));
        return;
    }
    if (timeout_ns == 0) {
        enter_now(r);
    } else {
        /* Without the poll nobody would tell of a socket: sleep only shortly. */
        if (!arm_poll(loop) && timeout_ns > TARN_NS_PER_MS)
            timeout_ns = TARN_NS_PER_MS;
        enter_wait(r, timeout_ns);
    }
    reap(loop);
    if (!r->poll_armed)
        tarn_loop_poll(loop, 0);
}
