/* SPDX-License-Identifier: Apache-2.0 */
/* The real file system's functions, one by one. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io_check.h"
#include "io_internal.h"
#include "io_refuse.h"

static char dir[128];

static const char *in_dir(const char *name)
{
    static char out[4][256];
    static unsigned turn;
    tarn_sb b;
    char *mem = out[turn++ % 4];
    tarn_sb_init_fixed(&b, mem, sizeof out[0]);
    tarn_sb_fmt(&b, "%s/%s", dir, name);
    return mem;
}

static int set_up(void **state)
{
    (void)state;
    const char *tmp = getenv("TMPDIR");
    tarn_sb b;
    tarn_sb_init_fixed(&b, dir, sizeof dir);
    tarn_sb_fmt(&b, "%s/tarn-fs-XXXXXX", tmp ? tmp : "/tmp");
    return b.failed || !mkdtemp(dir);
}

static int tear_down(void **state)
{
    (void)state;
    return rmdir(dir);
}

static void test_files(void **state)
{
    (void)state;
    tarn_fs *fs = tarn_fs_posix();
    int64_t h = -1;
    tarn_fs_stat st;
    char buf[8] = "";
    assert_true(fs->real);
    assert_int_equal(fs->open(fs, in_dir("a"), O_RDWR, 0, &h), -ENOENT);
    assert_int_equal(h, -1);
    assert_int_equal(fs->open(fs, in_dir("a"), O_RDWR | O_CREAT | O_EXCL, 0600, &h), 0);
    assert_int_equal(fcntl((int)h, F_GETFD), FD_CLOEXEC);
    assert_int_equal(fs->pwrite(fs, h, "hello", 5, 3), 5);
    assert_int_equal(fs->pread(fs, h, buf, 8, 0), 8);
    assert_memory_equal(buf, "\0\0\0hello", 8);
    assert_int_equal(fs->pread(fs, h, buf, 8, 8), 0);
    assert_int_equal(fs->sync(fs, h, true), 0);
    assert_int_equal(fs->sync(fs, h, false), 0);
    assert_int_equal(fs->truncate(fs, h, 6), 0);
    assert_int_equal(fs->fstat(fs, h, &st), 0);
    assert_int_equal(st.size_bytes, 6);
    assert_false(st.is_dir);
    assert_true(llabs(st.mtime_ms - tarn_now_ms()) < 60 * 1000);
    assert_int_equal(fs->close(fs, h), 0);
    assert_int_equal(fs->close(fs, h), -EBADF);
    assert_int_equal(fs->pread(fs, h, buf, 8, 0), -EBADF);
    assert_int_equal(fs->pwrite(fs, h, buf, 8, 0), -EBADF);
    assert_int_equal(fs->sync(fs, h, true), -EBADF);
    assert_int_equal(fs->truncate(fs, h, 0), -EBADF);
    assert_int_equal(fs->fstat(fs, h, &st), -EBADF);
    assert_int_equal(fs->rename(fs, in_dir("a"), in_dir("b")), 0);
    assert_int_equal(fs->rename(fs, in_dir("a"), in_dir("b")), -ENOENT);
    assert_int_equal(fs->stat(fs, in_dir("a"), &st), -ENOENT);
    assert_int_equal(fs->stat(fs, in_dir("b"), &st), 0);
    assert_int_equal(st.size_bytes, 6);
    assert_int_equal(fs->unlink(fs, in_dir("b")), 0);
    assert_int_equal(fs->unlink(fs, in_dir("b")), -ENOENT);
}

static void test_space_in_files(void **state)
{
    (void)state;
    tarn_fs *fs = tarn_fs_posix();
    int64_t h = -1;
    tarn_fs_stat st;
    assert_int_equal(fs->open(fs, in_dir("s"), O_RDWR | O_CREAT, 0600, &h), 0);
    assert_int_equal(fs->allocate(fs, h, 0, 1 << 20), 0);
    assert_int_equal(fs->fstat(fs, h, &st), 0);
    assert_int_equal(st.size_bytes, 1 << 20);
    assert_int_equal(fs->allocate(fs, h, 0, 4096), 0); /* does not shrink */
    assert_int_equal(fs->allocate(fs, h, 0, 0), 0);
    int rc = fs->punch(fs, h, 0, 1 << 19);
    assert_true(rc == 0 || rc == -EOPNOTSUPP);
    assert_int_equal(fs->punch(fs, h, 0, 0), 0);
    uint64_t before = st.allocated_bytes;
    assert_int_equal(fs->fstat(fs, h, &st), 0);
    assert_int_equal(st.size_bytes, 1 << 20);
    if (rc == 0 && before > 0)
        assert_true(st.allocated_bytes < before);
    /* At the largest offset and past it. */
    assert_int_equal(fs->allocate(fs, h, INT64_MAX, 1), -EFBIG);
    assert_int_equal(fs->allocate(fs, h, (uint64_t)INT64_MAX + 1, 1), -EFBIG);
    assert_int_equal(fs->punch(fs, h, 1, INT64_MAX), -EFBIG);
    assert_int_not_equal(fs->punch(fs, h, 0, INT64_MAX), -EBADF);
    assert_int_equal(fs->close(fs, h), 0);
    assert_int_equal(fs->unlink(fs, in_dir("s")), 0);
    tarn_fs_space sp = {0, 0};
    assert_int_equal(fs->space(fs, dir, &sp), 0);
    assert_true(sp.total_bytes > 0 && sp.free_bytes <= sp.total_bytes);
    assert_int_equal(fs->space(fs, in_dir("none"), &sp), -ENOENT);
    assert_int_equal(fs->allocate(fs, -1, 0, 1), -EBADF);
}

typedef struct names {
    unsigned files, dirs, stop_after;
} names;

static bool on_name(void *ctx, const char *name, bool is_dir)
{
    names *n = ctx;
    assert_true(strcmp(name, ".") != 0 && strcmp(name, "..") != 0);
    if (is_dir)
        n->dirs++;
    else
        n->files++;
    return n->stop_after == 0 || n->files + n->dirs < n->stop_after;
}

static void test_folders(void **state)
{
    (void)state;
    tarn_fs *fs = tarn_fs_posix();
    tarn_fs_stat st;
    names n = {0, 0, 0};
    assert_int_equal(fs->mkdir(fs, in_dir("d"), 0700), 0);
    assert_int_equal(fs->mkdir(fs, in_dir("d"), 0700), -EEXIST);
    assert_int_equal(fs->stat(fs, in_dir("d"), &st), 0);
    assert_true(st.is_dir);
    assert_int_equal(fs->mkdir(fs, in_dir("d/sub"), 0700), 0);
    static const char *const files[] = {"d/1", "d/2", "d/3"};
    for (size_t i = 0; i < TARN_ARRAY_LEN(files); i++) {
        int64_t h;
        assert_int_equal(fs->open(fs, in_dir(files[i]), O_WRONLY | O_CREAT, 0600, &h), 0);
        assert_int_equal(fs->close(fs, h), 0);
    }
    assert_int_equal(fs->list(fs, in_dir("d"), on_name, &n), 0);
    assert_int_equal(n.files, 3);
    assert_int_equal(n.dirs, 1);
    n = (names){0, 0, 2};
    assert_int_equal(fs->list(fs, in_dir("d"), on_name, &n), 0);
    assert_int_equal(n.files + n.dirs, 2);
    assert_int_equal(fs->list(fs, in_dir("none"), on_name, &n), -ENOENT);
    assert_int_equal(fs->list(fs, in_dir("d/1"), on_name, &n), -ENOTDIR);
    assert_int_equal(fs->sync_dir(fs, in_dir("d")), 0);
    assert_int_equal(fs->sync_dir(fs, in_dir("d/1")), -ENOTDIR);
    assert_int_equal(fs->sync_dir(fs, in_dir("none")), -ENOENT);
    for (size_t i = 0; i < TARN_ARRAY_LEN(files); i++)
        assert_int_equal(fs->unlink(fs, in_dir(files[i])), 0);
    assert_int_equal(rmdir(in_dir("d/sub")), 0);
    assert_int_equal(rmdir(in_dir("d")), 0);
}

static void test_lock(void **state)
{
    (void)state;
    tarn_fs *fs = tarn_fs_posix();
    int64_t a, b;
    assert_int_equal(fs->open(fs, in_dir("l"), O_RDWR | O_CREAT, 0600, &a), 0);
    assert_int_equal(fs->open(fs, in_dir("l"), O_RDWR, 0, &b), 0);
    assert_int_equal(fs->lock(fs, a), 0);
    assert_int_equal(fs->lock(fs, a), 0); /* held already */
    assert_int_equal(fs->lock(fs, b), -EWOULDBLOCK);
    assert_int_equal(fs->close(fs, a), 0);
    assert_int_equal(fs->lock(fs, b), 0);
    assert_int_equal(fs->close(fs, b), 0);
    assert_int_equal(fs->unlink(fs, in_dir("l")), 0);
    assert_int_equal(fs->lock(fs, a), -EBADF);
}

/* Where the file system cannot reserve space the file at least gets its size. */
static int without_fallocate(const void *arg)
{
    tarn_fs *fs = tarn_fs_posix();
    int64_t h = -1;
    tarn_fs_stat st;
    (void)arg;
    CHECK(fs->open(fs, in_dir("f"), O_RDWR | O_CREAT, 0600, &h) == 0 && fs->unlink(fs, in_dir("f")) == 0);
    if (!refuse_call(__NR_fallocate, REFUSE_ANY, EOPNOTSUPP))
        return REFUSE_UNSUPPORTED;
    CHECK(fs->allocate(fs, h, 4096, 4096) == 0);
    CHECK(fs->fstat(fs, h, &st) == 0 && st.size_bytes == 8192);
    CHECK(fs->allocate(fs, h, 0, 4096) == 0); /* does not shrink */
    CHECK(fs->fstat(fs, h, &st) == 0 && st.size_bytes == 8192);
    CHECK(fs->punch(fs, h, 0, 4096) == -EOPNOTSUPP); /* the caller decides */
    CHECK(fs->close(fs, h) == 0);
    return 0;
}

static void test_without_fallocate(void **state)
{
    (void)state;
    check_in_child(without_fallocate, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_files), cmocka_unit_test(test_space_in_files),    cmocka_unit_test(test_folders),
        cmocka_unit_test(test_lock),  cmocka_unit_test(test_without_fallocate),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
