/* SPDX-License-Identifier: Apache-2.0 */
/* Operations on files: round trips, short transfers, batches, more operations than the ring takes, a refused ring. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io_check.h"
#include "io_internal.h"
#include "io_refuse.h"

#define MS UINT64_C(1000000)

static char dir[128];

static const char *in_dir(const char *name, char *out, size_t out_bytes)
{
    tarn_sb b;
    tarn_sb_init_fixed(&b, out, out_bytes);
    tarn_sb_fmt(&b, "%s/%s", dir, name);
    TARN_ASSERT(!b.failed);
    return out;
}

static int set_up(void **state)
{
    (void)state;
    const char *tmp = getenv("TMPDIR");
    tarn_sb b;
    tarn_sb_init_fixed(&b, dir, sizeof dir);
    tarn_sb_fmt(&b, "%s/tarn-op-XXXXXX", tmp ? tmp : "/tmp");
    return b.failed || !mkdtemp(dir);
}

static int tear_down(void **state)
{
    (void)state;
    return rmdir(dir); /* every test clears what it made */
}

/* ------------------------------------------------------------------ a file system that moves little at a time */
/* Over the real one; `real` is false, so that the loop runs its operations itself. */
static struct fake {
    size_t piece_max;    /* bytes per call; 0 = as asked */
    unsigned interrupts; /* EINTR and EAGAIN in turn before each success */
    unsigned interrupts_left;
    int fail_after; /* calls until EIO; negative: never */
    unsigned calls_n;
    bool write_nothing;
} fake;

static int64_t fake_answer(size_t *n)
{
    fake.calls_n++;
    if (fake.fail_after >= 0 && fake.fail_after-- == 0)
        return -EIO;
    if (fake.interrupts_left > 0)
        return fake.interrupts_left-- % 2 ? -EINTR : -EAGAIN;
    fake.interrupts_left = fake.interrupts;
    if (fake.piece_max && *n > fake.piece_max)
        *n = fake.piece_max;
    return 0;
}

static int64_t fake_pread(tarn_fs *fs, int64_t handle, void *buf, size_t n, uint64_t off)
{
    (void)fs;
    int64_t rc = fake_answer(&n);
    return rc < 0 ? rc : tarn_fs_posix()->pread(tarn_fs_posix(), handle, buf, n, off);
}

static int64_t fake_pwrite(tarn_fs *fs, int64_t handle, const void *buf, size_t n, uint64_t off)
{
    (void)fs;
    int64_t rc = fake_answer(&n);
    if (rc == 0 && fake.write_nothing)
        return 0;
    return rc < 0 ? rc : tarn_fs_posix()->pwrite(tarn_fs_posix(), handle, buf, n, off);
}

static tarn_fs *fake_fs(void)
{
    static tarn_fs fs;
    fs = *tarn_fs_posix();
    fs.name = "fake";
    fs.real = false;
    fs.pread = fake_pread;
    fs.pwrite = fake_pwrite;
    memset(&fake, 0, sizeof fake);
    fake.fail_after = -1;
    return &fs;
}

static tarn_file *open_new(tarn_fs *fs, const char *name)
{
    char path[256];
    tarn_file *f = NULL;
    CHECK(tarn_file_open(fs, in_dir(name, path, sizeof path), O_RDWR | O_CREAT | O_EXCL, 0600, &f) == 0);
    CHECK(tarn_fs_unlink(fs, path) == 0); /* the descriptor stays */
    return f;
}

/* ------------------------------------------------------------------ round trips */
#define TRIP_BYTES (1 << 20)
static void round_trip(tarn_fs *fs)
{
    static unsigned char model[TRIP_BYTES], got[TRIP_BYTES];
    tarn_file *f = open_new(fs, "trip");
    memset(model, 0, sizeof model);
    CHECK(tarn_file_write(f, model, sizeof model, 0) == TRIP_BYTES);
    for (int i = 0; i < 200; i++) {
        uint64_t x = tarn_random_u64();
        size_t off = (size_t)(x % TRIP_BYTES);
        size_t n = (size_t)((x >> 32) % (TRIP_BYTES - off) / 8);
        tarn_random(model + off, n);
        CHECK(tarn_file_write(f, model + off, n, off) == (int64_t)n);
        off = (size_t)(x >> 12) % TRIP_BYTES;
        n = TRIP_BYTES - off < 5000 ? TRIP_BYTES - off : 5000;
        CHECK(tarn_file_read(f, got, n, off) == (int64_t)n && memcmp(got, model + off, n) == 0);
    }
    CHECK(tarn_file_sync(f) == 0);
    CHECK(tarn_file_read(f, got, sizeof got, 0) == TRIP_BYTES && memcmp(got, model, sizeof got) == 0);
    /* The end of the file is the one reason for a short read. */
    CHECK(tarn_file_read(f, got, 100, TRIP_BYTES - 40) == 40);
    CHECK(tarn_file_read(f, got, 100, TRIP_BYTES) == 0);
    CHECK(tarn_file_read(f, got, 0, 0) == 0);
    CHECK(tarn_file_write(f, got, 0, 0) == 0);
    tarn_file_unref(f);
}

static void round_trip_real(void *arg)
{
    (void)arg;
    round_trip(tarn_fs_posix());
}

static void round_trip_short(void *arg)
{
    (void)arg;
    tarn_fs *fs = fake_fs();
    fake.piece_max = 1000;
    fake.interrupts = 3;
    round_trip(fs);
    CHECK(fake.calls_n > TRIP_BYTES / 1000);
}

static void test_round_trip(void **state)
{
    (void)state;
    check_in_fiber(round_trip_real, NULL);
    round_trip_real(NULL); /* in a plain thread, synchronously */
    check_in_fiber(round_trip_short, NULL);
    round_trip_short(NULL);
    assert_int_equal(atomic_exchange(&check_failures, 0), 0);
}

/* ------------------------------------------------------------------ failures */
static void failures(void *arg)
{
    (void)arg;
    char buf[64], path[256];
    tarn_fs *fs = fake_fs();
    tarn_file *f = open_new(fs, "fail"), *none = NULL;
    fake.piece_max = 10;
    fake.fail_after = 3; /* in the middle of a transfer */
    CHECK(tarn_file_write(f, "0123456789012345678901234567890123456789", 40, 0) == -EIO);
    fake.fail_after = -1;
    fake.write_nothing = true;
    CHECK(tarn_file_write(f, "x", 1, 0) == -EIO);
    fake.write_nothing = false;
    fake.interrupts_left = TARN_TRANSFER_RETRIES_MAX; /* at the limit */
    CHECK(tarn_file_read(f, buf, 10, 0) == 10);
    fake.interrupts_left = TARN_TRANSFER_RETRIES_MAX + 1; /* and past it */
    int64_t rc = tarn_file_read(f, buf, 10, 0);
    CHECK(rc == -EINTR || rc == -EAGAIN);
    tarn_file_unref(f);
    tarn_file_unref(NULL);
    fs = tarn_fs_posix();
    CHECK(tarn_file_open(fs, in_dir("no/such", path, sizeof path), O_RDONLY, 0, &none) == -ENOENT && none == NULL);
    CHECK(tarn_fs_unlink(fs, in_dir("none", path, sizeof path)) == -ENOENT);
    f = NULL;
    CHECK(tarn_file_open(fs, "/dev/null", O_RDONLY, 0, &f) == 0);
    CHECK(tarn_file_write(f, "x", 1, 0) == -EBADF);
    tarn_file_unref(f);
    tarn_alloc_fail_after(1);
    CHECK(tarn_file_open(fs, "/dev/null", O_RDONLY, 0, &none) == -ENOMEM && none == NULL);
    tarn_alloc_fail_after(0);
}

static void test_failures(void **state)
{
    (void)state;
    check_in_fiber(failures, NULL);
    failures(NULL);
    assert_int_equal(atomic_exchange(&check_failures, 0), 0);
}

/* The rules of O_DIRECT, without a file system that has it. */
static void test_direct_continuation(void **state)
{
    (void)state;
    tarn_file direct = {.direct = true};
    size_t moved = 0;
    unsigned retries = 0;
    int64_t result = -1;
    /* Short at a block boundary: goes on there. */
    assert_false(tarn_transfer_step(&direct, true, 65536, &moved, &retries, 8192, &result));
    assert_int_equal(moved, 8192);
    /* Short inside a block, at a sector: goes on at the block. */
    assert_false(tarn_transfer_step(&direct, true, 65536, &moved, &retries, 4096 + 512, &result));
    assert_int_equal(moved, 12288);
    /* The same again: no progress, which is the end of the file. */
    assert_true(tarn_transfer_step(&direct, true, 65536, &moved, &retries, 512, &result));
    assert_int_equal(result, 12800);
    /* Inside a sector is the end of the file at once. */
    moved = 4096;
    assert_true(tarn_transfer_step(&direct, true, 65536, &moved, &retries, 4097, &result));
    assert_int_equal(result, 8193);
    /* A write is repeated from the block boundary; with no progress it has failed. */
    moved = 0;
    assert_false(tarn_transfer_step(&direct, false, 65536, &moved, &retries, 5000, &result));
    assert_int_equal(moved, 4096);
    assert_true(tarn_transfer_step(&direct, false, 65536, &moved, &retries, 100, &result));
    assert_int_equal(result, -EIO);
    /* Without O_DIRECT it goes on where it stopped. */
    tarn_file plain = {.direct = false};
    moved = 0;
    assert_false(tarn_transfer_step(&plain, true, 100, &moved, &retries, 33, &result));
    assert_int_equal(moved, 33);
    assert_true(tarn_transfer_step(&plain, true, 100, &moved, &retries, 67, &result));
    assert_int_equal(result, 100);
}

/* A pipe delivers a read in pieces: the ring has to come back for the rest. */
static void write_later(void *arg)
{
    int fd = *(int *)arg;
    for (int i = 0; i < 10; i++) {
        tarn_sleep_ms(2);
        CHECK(write(fd, "0123456789", 10) == 10);
    }
}

static void ring_short_reads(void *arg)
{
    (void)arg;
    if (tarn_loop_backend(tarn_loop_current()) != TARN_IO_URING)
        return; /* pread does not work on pipes */
    int fds[2];
    char got[100];
    tarn_file *f = NULL;
    CHECK(pipe(fds) == 0);
    CHECK(tarn_file_wrap(tarn_fs_posix(), fds[0], O_RDONLY, &f) == 0);
    CHECK(tarn_fiber_spawn(tarn_loop_current(), write_later, &fds[1], "writer") == TARN_OK);
    CHECK(tarn_file_read(f, got, sizeof got, 0) == 100);
    for (size_t i = 0; i < sizeof got; i++)
        CHECK(got[i] == (char)('0' + i % 10));
    /* What is short because the other end was closed is the end of the file. */
    CHECK(write(fds[1], "abc", 3) == 3 && close(fds[1]) == 0);
    CHECK(tarn_file_read(f, got, sizeof got, 0) == 3);
    tarn_file_unref(f);
}

static void test_ring_short_reads(void **state)
{
    (void)state;
    check_in_fiber(ring_short_reads, NULL);
}

/* ------------------------------------------------------------------ every kind of operation */
static unsigned ends_n;
static void on_end(void *ctx)
{
    ends_n++;
    *(bool *)ctx = true;
}

static int64_t run_by_path(tarn_fs *fs, tarn_opcode code, const char *path, int flags, int mode, tarn_file **out)
{
    tarn_batch *b = tarn_batch_new(1);
    *tarn_batch_add(b) = (tarn_op){.code = code, .fs = fs, .path = path, .flags = flags, .mode = mode, .file_out = out};
    tarn_batch_submit(b);
    size_t ok = tarn_batch_wait(b, 1, TARN_IO_NO_TIMEOUT);
    int64_t result = tarn_batch_op(b, 0)->result;
    CHECK(tarn_batch_op(b, 0)->finished && ok == (result >= 0));
    tarn_batch_release(b);
    return result;
}

static int64_t run_by_range(tarn_file *f, tarn_opcode code, uint64_t off, size_t len)
{
    tarn_batch *b = tarn_batch_new(1);
    *tarn_batch_add(b) = (tarn_op){.code = code, .file = f, .off = off, .len = len};
    tarn_batch_submit(b);
    (void)tarn_batch_wait(b, 1, TARN_IO_NO_TIMEOUT);
    int64_t result = tarn_batch_op(b, 0)->result;
    tarn_batch_release(b);
    return result;
}

static void every_kind(void *arg)
{
    tarn_fs *fs = arg;
    char sub[256], path[256], buf[8];
    tarn_fs_stat st;
    tarn_file *f = NULL;
    (void)in_dir("sub", sub, sizeof sub);
    (void)in_dir("sub/file", path, sizeof path);
    CHECK(run_by_path(fs, TARN_OP_MKDIR, sub, 0, 0700, NULL) == 0);
    CHECK(run_by_path(fs, TARN_OP_MKDIR, sub, 0, 0700, NULL) == -EEXIST);
    CHECK(run_by_path(fs, TARN_OP_OPEN, path, O_RDWR | O_CREAT, 0640, &f) == 0 && f != NULL);
    CHECK(tarn_file_fs(f) == fs && fcntl((int)tarn_file_handle(f), F_GETFD) == FD_CLOEXEC);
    CHECK(run_by_range(f, TARN_OP_ALLOCATE, 0, 1 << 20) == 0);
    CHECK(fs->fstat(fs, tarn_file_handle(f), &st) == 0 && st.size_bytes == 1 << 20);
    CHECK(run_by_range(f, TARN_OP_SYNC, 0, 0) == 0);
    CHECK(tarn_file_write(f, "abcdefgh", 8, 4096) == 8);
    int64_t punched = run_by_range(f, TARN_OP_PUNCH, 0, 65536);
    CHECK(punched == 0 || punched == -EOPNOTSUPP);
    if (punched == 0)
        CHECK(tarn_file_read(f, buf, 8, 4096) == 8 && memcmp(buf, "\0\0\0\0\0\0\0\0", 8) == 0);
    CHECK(fs->fstat(fs, tarn_file_handle(f), &st) == 0 && st.size_bytes == 1 << 20);
    CHECK(run_by_path(fs, TARN_OP_SYNC_DIR, sub, 0, 0, NULL) == 0);
    CHECK(run_by_path(fs, TARN_OP_SYNC_DIR, path, 0, 0, NULL) == -ENOTDIR);
    CHECK(run_by_path(fs, TARN_OP_UNLINK, path, 0, 0, NULL) == 0);
    CHECK(run_by_path(fs, TARN_OP_UNLINK, path, 0, 0, NULL) == -ENOENT);
    tarn_file_unref(f);
    CHECK(rmdir(sub) == 0);
}

static int open_descriptors_n(void)
{
    int n = 0;
    for (int fd = 0; fd < 256; fd++)
        n += fcntl(fd, F_GETFD) >= 0;
    return n;
}

static void test_every_kind(void **state)
{
    (void)state;
    int before = open_descriptors_n();
    check_in_fiber(every_kind, tarn_fs_posix());
    check_in_fiber(every_kind, fake_fs());
    every_kind(tarn_fs_posix());
    assert_int_equal(atomic_exchange(&check_failures, 0), 0);
    assert_int_equal(open_descriptors_n(), before);
}

/* ------------------------------------------------------------------ batches */
static void add_sync(tarn_batch *b, tarn_file *f)
{
    tarn_op *op = tarn_batch_add(b);
    CHECK(op != NULL);
    *op = (tarn_op){.code = TARN_OP_SYNC, .file = f};
}

/* Reads of an empty pipe stand for drives that do not answer. */
static void batch_need_and_deadline(void *arg)
{
    (void)arg;
    if (tarn_loop_backend(tarn_loop_current()) != TARN_IO_URING)
        return;
    int fds[2];
    static char slow[4];
    bool ended = false;
    tarn_file *f = open_new(tarn_fs_posix(), "need"), *p = NULL, *bad = NULL;
    CHECK(pipe(fds) == 0 && tarn_file_wrap(tarn_fs_posix(), fds[0], O_RDONLY, &p) == 0);
    CHECK(tarn_file_open(tarn_fs_posix(), "/dev/null", O_RDONLY, 0, &bad) == 0);
    tarn_batch *b = tarn_batch_new(6);
    for (int i = 0; i < 4; i++)
        add_sync(b, f);
    *tarn_batch_add(b) = (tarn_op){.code = TARN_OP_READ, .file = p, .buf = slow, .len = sizeof slow};
    *tarn_batch_add(b) = (tarn_op){.code = TARN_OP_WRITE, .file = bad, .buf = slow, .len = 1}; /* fails */
    CHECK(tarn_batch_add(b) == NULL);
    CHECK(tarn_batch_count(b) == 6);
    tarn_batch_on_end(b, on_end, &ended);
    tarn_batch_submit(b);
    CHECK(tarn_batch_wait(b, 4, TARN_IO_NO_TIMEOUT) == 4);
    uint64_t t0 = tarn_mono_ns();
    CHECK(tarn_batch_wait(b, 5, t0 + 20 * MS) == 4); /* the deadline */
    CHECK(tarn_mono_ns() - t0 >= 20 * MS);
    CHECK(tarn_batch_wait(b, 4, 0) == 4); /* met already */
    CHECK(!tarn_batch_op(b, 4)->finished && tarn_batch_op(b, 0)->finished);
    CHECK(!ended);
    tarn_batch_release(b); /* with an operation in the kernel */
    tarn_file_unref(p);    /* the operation has its own reference */
    tarn_sleep_ms(5);
    CHECK(!ended);
    CHECK(write(fds[1], "late", 4) == 4);
    for (int i = 0; i < 2000 && !ended; i++)
        tarn_sleep_ms(1);
    CHECK(ended && memcmp(slow, "late", 4) == 0);
    CHECK(close(fds[1]) == 0);
    tarn_file_unref(bad);
    tarn_file_unref(f);
}

static void test_batch_need_and_deadline(void **state)
{
    (void)state;
    check_in_fiber(batch_need_and_deadline, NULL);
}

static unsigned user_done_n;
static void on_user_done(tarn_op *op)
{
    CHECK(op->finished && *(int *)op->ctx == 42);
    user_done_n++;
}

/* All fail: the wait ends although `need` is never met. Operations keep their own done and ctx. */
static void batch_all_fail(void *arg)
{
    (void)arg;
    int forty_two = 42;
    bool ended = false;
    tarn_batch *b = tarn_batch_new(9);
    user_done_n = 0;
    tarn_batch_on_end(b, on_end, &ended);
    for (int i = 0; i < 8; i++) {
        *tarn_batch_add(b) =
            (tarn_op){.code = TARN_OP_UNLINK, .fs = tarn_fs_posix(), .path = "/nowhere/at/all", .done = on_user_done, .ctx = &forty_two};
    }
    tarn_batch_submit(b);
    CHECK(tarn_batch_wait(b, 1, TARN_IO_NO_TIMEOUT) == 0);
    CHECK(user_done_n == 8);
    /* A second round in the same batch: a replacement for what failed. */
    *tarn_batch_add(b) = (tarn_op){.code = TARN_OP_SYNC_DIR, .fs = tarn_fs_posix(), .path = dir};
    tarn_batch_submit(b);
    CHECK(tarn_batch_wait(b, 1, TARN_IO_NO_TIMEOUT) == 1);
    CHECK(!ended);
    tarn_batch_release(b);
    CHECK(ended);
    ended = false;
    b = tarn_batch_new(0); /* nothing to wait for */
    CHECK(tarn_batch_add(b) == NULL);
    tarn_batch_on_end(b, on_end, &ended);
    tarn_batch_submit(b);
    CHECK(tarn_batch_wait(b, 1, TARN_IO_NO_TIMEOUT) == 0);
    tarn_batch_release(b);
    CHECK(ended);
    tarn_batch_release(NULL);
}

static void test_batch_all_fail(void **state)
{
    (void)state;
    check_in_fiber(batch_all_fail, NULL);
    batch_all_fail(NULL);
    assert_int_equal(atomic_exchange(&check_failures, 0), 0);
    assert_null(tarn_batch_new(SIZE_MAX / 8));
    tarn_alloc_fail_after(1);
    assert_null(tarn_batch_new(1));
    tarn_alloc_fail_after(0);
}

/* A batch that is released while its operations wait in the queues of a loop that ends. */
static void leave_batch(void *arg)
{
    (void)arg;
    static char zeroes[4096];
    static bool ended;
    tarn_file *f = open_new(tarn_fs_posix(), "leave");
    tarn_batch *b = tarn_batch_new(100);
    for (unsigned i = 0; i < 100; i++)
        *tarn_batch_add(b) = (tarn_op){.code = TARN_OP_WRITE, .file = f, .buf = zeroes, .len = sizeof zeroes, .off = i * 4096};
    tarn_batch_on_end(b, on_end, &ended);
    tarn_batch_submit(b);
    tarn_batch_release(b);
    tarn_file_unref(f);
}

static void test_leave_batch(void **state)
{
    (void)state;
    ends_n = 0;
    check_in_fiber(leave_batch, NULL);
    assert_true(ends_n >= 1);
}

/* What is in the page cache is read on the spot by the threads back end, and is answered like everything else: later. */
static unsigned cached_done_n;
static void on_cached_done(tarn_op *op)
{
    CHECK(op->result == (int64_t)op->len);
    cached_done_n++;
}

static void cached_reads(void *arg)
{
    (void)arg;
    static char in[2][TARN_CACHED_READ_BYTES_MAX + 1], out[TARN_CACHED_READ_BYTES_MAX + 1];
    tarn_file *f = open_new(tarn_fs_posix(), "cached");
    memset(out, 'c', sizeof out);
    CHECK(tarn_file_write(f, out, sizeof out, 0) == sizeof out);
    /* At the limit of what is read on the spot, and past it. */
    tarn_op ops[2] = {
        {.code = TARN_OP_READ, .file = f, .buf = in[0], .len = TARN_CACHED_READ_BYTES_MAX, .done = on_cached_done},
        {.code = TARN_OP_READ, .file = f, .buf = in[1], .len = TARN_CACHED_READ_BYTES_MAX + 1, .done = on_cached_done},
    };
    cached_done_n = 0;
    tarn_op_submit(ops, 2);
    CHECK(cached_done_n == 0 && !ops[0].finished);
    char one;
    struct iovec iov = {&one, 1};
    bool nowait = preadv2((int)tarn_file_handle(f), &iov, 1, 0, RWF_NOWAIT) == 1; /* not every file system has it */
    if (nowait && tarn_loop_backend(tarn_loop_current()) == TARN_IO_THREADS)
        CHECK(tarn_loop_current()->local_ops.head == &ops[0] && tarn_loop_current()->local_ops.tail == &ops[0]);
    for (int i = 0; i < 5000 && cached_done_n < 2; i++)
        tarn_sleep_ms(1);
    CHECK(cached_done_n == 2);
    CHECK(memcmp(in[0], out, ops[0].len) == 0 && memcmp(in[1], out, ops[1].len) == 0);
    tarn_file_unref(f);
}

static void test_cached_reads(void **state)
{
    (void)state;
    check_in_fiber(cached_reads, NULL);
}

/* A batch may be released by the `done` of its last operation. */
static tarn_batch *released_inside;
static bool released_ended;
static void on_release_inside(tarn_op *op)
{
    (void)op;
    tarn_batch_release(released_inside);
}

static void release_inside(void *arg)
{
    (void)arg;
    released_ended = false;
    released_inside = tarn_batch_new(1);
    *tarn_batch_add(released_inside) = (tarn_op){.code = TARN_OP_SYNC_DIR, .fs = tarn_fs_posix(), .path = dir, .done = on_release_inside};
    tarn_batch_on_end(released_inside, on_end, &released_ended);
    tarn_batch_submit(released_inside);
    for (int i = 0; i < 5000 && !released_ended; i++)
        tarn_sleep_ms(1);
    CHECK(released_ended);
}

static void test_release_inside(void **state)
{
    (void)state;
    check_in_fiber(release_inside, NULL);
}

/* ------------------------------------------------------------------ many at once */
#define MANY 5000
static unsigned many_done_n;
static void on_many_done(tarn_op *op)
{
    CHECK(op->finished && op->result == 512);
    many_done_n++;
}

static void many_at_once(void *arg)
{
    (void)arg;
    static tarn_op ops[MANY];
    static unsigned char data[MANY][512], got[512];
    tarn_file *f = open_new(tarn_fs_posix(), "many");
    many_done_n = 0;
    for (unsigned i = 0; i < MANY; i++) {
        memset(data[i], (int)(i * 7), sizeof data[i]);
        ops[i] = (tarn_op){.code = TARN_OP_WRITE, .file = f, .buf = data[i], .len = 512, .off = i * 512, .done = on_many_done};
    }
    tarn_op_submit(ops, MANY);
    CHECK(many_done_n == 0); /* never from within submit */
    for (int i = 0; i < 20000 && many_done_n < MANY; i++)
        tarn_sleep_ms(1);
    CHECK(many_done_n == MANY);
    for (unsigned i = 0; i < MANY; i += 499)
        CHECK(tarn_file_read(f, got, 512, i * 512) == 512 && memcmp(got, data[i], 512) == 0);
    CHECK(tarn_loop_current()->ops_n == 0);
    tarn_file_unref(f);
}

static void test_many_at_once(void **state)
{
    (void)state;
    check_in_fiber(many_at_once, NULL);
}

/* Hundreds of fibers, each with its own part of one file. */
#define WRITERS 400
static tarn_file *shared;
static unsigned writers_done_n;
static void writer(void *arg)
{
    uint64_t me = (uint64_t)(uintptr_t)arg;
    unsigned char out[700], in[700];
    memset(out, (int)me, sizeof out);
    for (int i = 0; i < 5; i++) {
        out[i] = (unsigned char)i;
        CHECK(tarn_file_write(shared, out, sizeof out, me * sizeof out) == sizeof out);
        CHECK(tarn_file_read(shared, in, sizeof in, me * sizeof out) == sizeof in && memcmp(in, out, sizeof in) == 0);
    }
    writers_done_n++;
}

static void many_fibers(void *arg)
{
    (void)arg;
    shared = open_new(tarn_fs_posix(), "shared");
    writers_done_n = 0;
    for (uintptr_t i = 0; i < WRITERS; i++)
        CHECK(tarn_fiber_spawn(tarn_loop_current(), writer, (void *)i, "writer") == TARN_OK);
    for (int i = 0; i < 20000 && writers_done_n < WRITERS; i++)
        tarn_sleep_ms(1);
    CHECK(writers_done_n == WRITERS);
    tarn_file_unref(shared);
}

static void test_many_fibers(void **state)
{
    (void)state;
    check_in_fiber(many_fibers, NULL);
}

/* ------------------------------------------------------------------ operations that outlive the grace time */
static int slow_pipe[2];
static char slow_bytes[4];
static bool slow_ended;

static void waits_for_pipe(void *arg)
{
    (void)tarn_file_read(arg, slow_bytes, sizeof slow_bytes, 0);
    CHECK(false); /* fibers run no more after the grace time */
}

static void leaves_pipe_read(void *arg)
{
    tarn_batch *b = tarn_batch_new(1);
    *tarn_batch_add(b) = (tarn_op){.code = TARN_OP_READ, .file = arg, .buf = slow_bytes, .len = sizeof slow_bytes};
    tarn_batch_on_end(b, on_end, &slow_ended);
    tarn_batch_submit(b);
    tarn_batch_release(b);
    tarn_loop_stop(tarn_loop_current());
}

static void *answers_late(void *arg)
{
    (void)arg;
    tarn_sleep_ms(150); /* three times the grace time */
    CHECK(close(slow_pipe[1]) == 0);
    return NULL;
}

/* The loop's end waits for what the kernel still writes to: a fiber's stack, a batch's buffer. */
static void test_drain(void **state)
{
    (void)state;
    tarn_loop *loop = check_loop(TARN_IO_URING, 50);
    tarn_file *f = NULL;
    pthread_t t;
    if (!loop)
        skip();
    slow_ended = false;
    assert_int_equal(pipe(slow_pipe), 0);
    assert_int_equal(tarn_file_wrap(tarn_fs_posix(), slow_pipe[0], O_RDONLY, &f), 0);
    assert_int_equal(tarn_fiber_spawn(loop, waits_for_pipe, f, "waits"), TARN_OK);
    assert_int_equal(tarn_fiber_spawn(loop, leaves_pipe_read, f, "leaves"), TARN_OK);
    assert_int_equal(pthread_create(&t, NULL, answers_late, NULL), 0);
    tarn_loop_run(loop);
    assert_int_equal(pthread_join(t, NULL), 0);
    assert_true(slow_ended);
    assert_int_equal(loop->ops_n, 0);
    assert_int_equal(loop->fibers_n, 1);
    tarn_file_unref(f);
    tarn_loop_destroy(loop);
    assert_int_equal(atomic_exchange(&check_failures, 0), 0);
}

/* ------------------------------------------------------------------ kernels that refuse */
typedef struct refused_ring {
    long nr;
    const char *text;
} refused_ring;

static int round_trip_on(tarn_loop *loop)
{
    check_main m = {round_trip_real, NULL};
    if (tarn_fiber_spawn(loop, check_main_fiber, &m, "main") != TARN_OK)
        return 10;
    tarn_loop_run(loop);
    tarn_loop_destroy(loop);
    return 0;
}

static int without_ring(const void *arg)
{
    const refused_ring *r = arg;
    tarn_loop *loop = NULL;
    tarn_loop_options opt = {.backend = TARN_IO_URING};
    if (!refuse_call(r->nr, REFUSE_ANY, EPERM))
        return REFUSE_UNSUPPORTED;
    if (tarn_loop_create(&opt, &loop) != TARN_E_UNSUPPORTED || loop)
        return 1;
    if (!tarn_str_eqc(tarn_str_of(tarn_io_uring_refusal()), r->text))
        return 2;
    if (tarn_loop_create(NULL, &loop) != TARN_OK || tarn_loop_backend(loop) != TARN_IO_THREADS)
        return 3;
    return round_trip_on(loop);
}

/* The first test: nothing in this process has probed yet. */
static void test_refused_ring(void **state)
{
    (void)state;
    static const refused_ring refused[] = {
        {__NR_io_uring_setup, "io_uring_setup: Operation not permitted"},
        {__NR_io_uring_register, "io_uring_register: Operation not permitted"},
        {__NR_io_uring_enter, "io_uring_enter: Operation not permitted"},
    };
    for (size_t i = 0; i < TARN_ARRAY_LEN(refused); i++)
        check_in_child(without_ring, &refused[i]);
}

/* Not one thread to be had: the loop does the work itself. */
static int without_threads(const void *arg)
{
    (void)arg;
    tarn_loop *loop = NULL;
    tarn_loop_options opt = {.backend = TARN_IO_THREADS, .threads = TARN_POOL_THREADS_MAX + 1};
    if (tarn_loop_create(&opt, &loop) != TARN_OK)
        return 1;
    if (!refuse_call(__NR_clone3, REFUSE_ANY, EAGAIN) || !refuse_call(__NR_clone, REFUSE_ANY, EAGAIN))
        return REFUSE_UNSUPPORTED;
    pthread_t t;
    if (pthread_create(&t, NULL, answers_late, NULL) == 0)
        return 2;
    return round_trip_on(loop);
}

static void test_without_threads(void **state)
{
    (void)state;
    check_in_child(without_threads, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refused_ring),
        cmocka_unit_test(test_without_threads),
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_failures),
        cmocka_unit_test(test_direct_continuation),
        cmocka_unit_test(test_ring_short_reads),
        cmocka_unit_test(test_every_kind),
        cmocka_unit_test(test_batch_need_and_deadline),
        cmocka_unit_test(test_batch_all_fail),
        cmocka_unit_test(test_leave_batch),
        cmocka_unit_test(test_cached_reads),
        cmocka_unit_test(test_release_inside),
        cmocka_unit_test(test_many_at_once),
        cmocka_unit_test(test_many_fibers),
        cmocka_unit_test(test_drain),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
