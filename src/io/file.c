/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files in use: a counted handle of a tarn_fs, whole transfers, and the one-operation-at-a-time calls of fibers.
 *
 * Short transfers. A read or write that moved less than asked is continued behind what it moved. With O_DIRECT the
 * kernel wants a start at a block boundary, so that the continuation begins at the last one (moving some bytes twice
 * does no harm); a direct read that ends inside a sector has met the end of the file.
 *
 * Ownership: the last tarn_file_unref closes the handle, on whichever thread. Threads: any; the counter is atomic.
 */
#include <errno.h>
#include <fcntl.h>
#include <sys/uio.h>

#include "io_internal.h"

#define SECTOR_BYTES 512
#define BLOCK_BYTES 4096

int tarn_file_wrap(tarn_fs *fs, int64_t handle, int flags, tarn_file **out)
{
    tarn_file *f = tarn_calloc(1, sizeof *f);
    if (!f) {
        (void)fs->close(fs, handle);
        return -ENOMEM;
    }
    atomic_init(&f->refs, 1);
    f->fs = fs;
    f->handle = handle;
    f->direct = (flags & O_DIRECT) != 0;
    *out = f;
    return 0;
}

int tarn_file_open_sync(tarn_fs *fs, const char *path, int flags, int mode, tarn_file **out)
{
    int64_t handle = -1;
    int rc;
    do {
        rc = fs->open(fs, path, flags, mode, &handle);
    } while (rc == -EINTR);
    if (rc < 0)
        return rc;
    return tarn_file_wrap(fs, handle, flags, out);
}

tarn_file *tarn_file_ref(tarn_file *f)
{
    unsigned before = atomic_fetch_add_explicit(&f->refs, 1, memory_order_relaxed);
    TARN_ASSERT(before > 0 && before < UINT32_MAX);
    return f;
}

void tarn_file_unref(tarn_file *f)
{
    if (!f)
        return;
    unsigned before = atomic_fetch_sub_explicit(&f->refs, 1, memory_order_acq_rel);
    TARN_ASSERT(before > 0);
    if (before > 1)
        return;
    (void)f->fs->close(f->fs, f->handle);
    tarn_free(f);
}

tarn_fs *tarn_file_fs(const tarn_file *f)
{
    return f->fs;
}

int64_t tarn_file_handle(const tarn_file *f)
{
    return f->handle;
}

/* ------------------------------------------------------------------ whole transfers */
/* A short direct transfer up to `total`: where to go on. False when it has ended, with *result set. */
static bool direct_resume(bool is_read, size_t moved, size_t total, size_t *resume, int64_t *result)
{
    size_t aligned = total & ~(size_t)(BLOCK_BYTES - 1);
    if ((is_read && total % SECTOR_BYTES != 0) || aligned <= moved) {
        *result = is_read ? (int64_t)total : -EIO;
        return false;
    }
    *resume = aligned;
    return true;
}

bool tarn_transfer_step(const tarn_file *f, bool is_read, size_t len, size_t *moved, unsigned *retries, int64_t got, int64_t *result)
{
    if (got == -EINTR || got == -EAGAIN) {
        if (++*retries <= TARN_TRANSFER_RETRIES_MAX)
            return false;
        *result = got;
        return true;
    }
    if (got < 0) {
        *result = got;
        return true;
    }
    if (got == 0) {
        /* Nothing left to read is the end of the file; nothing written is a drive that takes no more. */
        *result = is_read || len == 0 ? (int64_t)*moved : -EIO;
        return true;
    }
    TARN_ASSERT((uint64_t)got <= len - *moved);
    *retries = 0;
    size_t total = *moved + (size_t)got;
    if (total == len) {
        *result = (int64_t)len;
        return true;
    }
    if (f->direct && !direct_resume(is_read, *moved, total, &total, result))
        return true;
    *moved = total;
    return false;
}

static size_t piece(size_t len, size_t moved)
{
    size_t left = len - moved;
    return left < TARN_TRANSFER_BYTES_MAX ? left : TARN_TRANSFER_BYTES_MAX;
}

int64_t tarn_file_pread_sync(tarn_file *f, void *buf, size_t n, uint64_t off)
{
    size_t moved = 0;
    unsigned retries = 0;
    int64_t result = 0, got;
    do {
        got = f->fs->pread(f->fs, f->handle, (char *)buf + moved, piece(n, moved), off + moved);
    } while (!tarn_transfer_step(f, true, n, &moved, &retries, got, &result));
    return result;
}

int64_t tarn_file_pwrite_sync(tarn_file *f, const void *buf, size_t n, uint64_t off)
{
    size_t moved = 0;
    unsigned retries = 0;
    int64_t result = 0, got;
    do {
        got = f->fs->pwrite(f->fs, f->handle, (const char *)buf + moved, piece(n, moved), off + moved);
    } while (!tarn_transfer_step(f, false, n, &moved, &retries, got, &result));
    return result;
}

bool tarn_file_read_cached(tarn_file *f, void *buf, size_t n, uint64_t off)
{
    size_t got = 0;
    if (!f->fs->real || f->direct || n == 0)
        return false;
    /* A short one may be the end of what is cached, or of the file: the second call tells, and the caller finds out. */
    while (got < n) {
        struct iovec iov = {.iov_base = (char *)buf + got, .iov_len = n - got};
        ssize_t rc = preadv2((int)f->handle, &iov, 1, (off_t)(off + got), RWF_NOWAIT);
        if (rc <= 0)
            return false;
        got += (size_t)rc;
    }
    return true;
}

/* ------------------------------------------------------------------ one operation, waited for */
static void on_one_done(tarn_op *op)
{
    tarn_fiber_wake(op->ctx);
}

/* The operation lies on the fiber's stack, which stays while the loop waits for its operations. */
static int64_t run_one(tarn_op *op)
{
    tarn_fiber *f = tarn_fiber_current();
    if (!f)
        return tarn_op_execute(op);
    op->done = on_one_done;
    op->ctx = f;
    tarn_op_submit(op, 1);
    while (!op->finished)
        tarn_fiber_park();
    return op->result;
}

int64_t tarn_file_read(tarn_file *f, void *buf, size_t n, uint64_t off)
{
    tarn_op op = {.code = TARN_OP_READ, .file = f, .buf = buf, .len = n, .off = off};
    return run_one(&op);
}

int64_t tarn_file_write(tarn_file *f, const void *buf, size_t n, uint64_t off)
{
    /* The operation has one pointer for both directions; a write does not change what it points to. */
    union {
        const void *in;
        void *out;
    } u = {.in = buf};
    tarn_op op = {.code = TARN_OP_WRITE, .file = f, .buf = u.out, .len = n, .off = off};
    return run_one(&op);
}

int tarn_file_sync(tarn_file *f)
{
    tarn_op op = {.code = TARN_OP_SYNC, .file = f};
    return (int)run_one(&op);
}

int tarn_file_open(tarn_fs *fs, const char *path, int flags, int mode, tarn_file **out)
{
    tarn_op op = {.code = TARN_OP_OPEN, .fs = fs, .path = path, .flags = flags, .mode = mode, .file_out = out};
    return (int)run_one(&op);
}

int tarn_fs_unlink(tarn_fs *fs, const char *path)
{
    tarn_op op = {.code = TARN_OP_UNLINK, .fs = fs, .path = path};
    return (int)run_one(&op);
}
