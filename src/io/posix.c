/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The real file system: a thin, synchronous skin over the system calls. Handles are descriptors.
 *
 * Everything returns 0 or a count, or a negative errno; EINTR is retried here where the call may simply be made again.
 * Threads: any. Ownership: a handle belongs to whoever opened it.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "io_internal.h"

#define RETRY(rc, call)                                                                                                                    \
    do {                                                                                                                                   \
        (rc) = (call);                                                                                                                     \
    } while ((rc) < 0 && errno == EINTR)

static int status(long rc)
{
    return rc < 0 ? -errno : 0;
}

static int posix_open(tarn_fs *fs, const char *path, int flags, int mode, int64_t *handle)
{
    (void)fs;
    int fd;
    RETRY(fd, open(path, flags | O_CLOEXEC, (mode_t)mode));
    if (fd < 0)
        return -errno;
    *handle = fd;
    return 0;
}

static int posix_close(tarn_fs *fs, int64_t handle)
{
    (void)fs;
    /* Not retried: on Linux the descriptor is free even when close was interrupted. */
    int rc = close((int)handle);
    return rc < 0 && errno != EINTR ? -errno : 0;
}

static int64_t posix_pread(tarn_fs *fs, int64_t handle, void *buf, size_t n, uint64_t off)
{
    (void)fs;
    ssize_t got;
    RETRY(got, pread((int)handle, buf, n, (off_t)off));
    return got < 0 ? -errno : got;
}

static int64_t posix_pwrite(tarn_fs *fs, int64_t handle, const void *buf, size_t n, uint64_t off)
{
    (void)fs;
    ssize_t put;
    RETRY(put, pwrite((int)handle, buf, n, (off_t)off));
    return put < 0 ? -errno : put;
}

static int posix_sync(tarn_fs *fs, int64_t handle, bool data_only)
{
    (void)fs;
    int rc;
    RETRY(rc, data_only ? fdatasync((int)handle) : fsync((int)handle));
    return status(rc);
}

static int posix_truncate(tarn_fs *fs, int64_t handle, uint64_t size_bytes)
{
    (void)fs;
    int rc;
    RETRY(rc, ftruncate((int)handle, (off_t)size_bytes));
    return status(rc);
}

/* Where the file system cannot reserve space the file at least gets its size. */
static int allocate_by_size(int fd, uint64_t end)
{
    struct stat st;
    if (fstat(fd, &st) != 0)
        return -errno;
    if ((uint64_t)st.st_size >= end)
        return 0;
    int rc;
    RETRY(rc, ftruncate(fd, (off_t)end));
    return status(rc);
}

static int posix_allocate(tarn_fs *fs, int64_t handle, uint64_t off, uint64_t n)
{
    (void)fs;
    if (off > INT64_MAX || n > INT64_MAX - off)
        return -EFBIG;
    if (n == 0)
        return 0;
    int rc;
    RETRY(rc, fallocate((int)handle, 0, (off_t)off, (off_t)n));
    if (rc < 0 && (errno == EOPNOTSUPP || errno == ENOSYS))
        return allocate_by_size((int)handle, off + n);
    return status(rc);
}

static int posix_punch(tarn_fs *fs, int64_t handle, uint64_t off, uint64_t n)
{
    (void)fs;
    if (off > INT64_MAX || n > INT64_MAX - off)
        return -EFBIG;
    if (n == 0)
        return 0;
    int rc;
    RETRY(rc, fallocate((int)handle, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)off, (off_t)n));
    return status(rc);
}

static void stat_fill(const struct stat *st, tarn_fs_stat *out)
{
    out->size_bytes = (uint64_t)st->st_size;
    out->allocated_bytes = (uint64_t)st->st_blocks * 512;
    out->mtime_ms = (int64_t)st->st_mtim.tv_sec * 1000 + st->st_mtim.tv_nsec / 1000000;
    out->is_dir = S_ISDIR(st->st_mode);
    out->nameless = st->st_nlink == 0;
}

static int posix_fstat(tarn_fs *fs, int64_t handle, tarn_fs_stat *out)
{
    (void)fs;
    struct stat st;
    if (fstat((int)handle, &st) != 0)
        return -errno;
    stat_fill(&st, out);
    return 0;
}

static int posix_stat(tarn_fs *fs, const char *path, tarn_fs_stat *out)
{
    (void)fs;
    struct stat st;
    if (stat(path, &st) != 0)
        return -errno;
    stat_fill(&st, out);
    return 0;
}

static int posix_unlink(tarn_fs *fs, const char *path)
{
    (void)fs;
    return status(unlink(path));
}

static int posix_rename(tarn_fs *fs, const char *from, const char *to)
{
    (void)fs;
    return status(rename(from, to));
}

static int posix_mkdir(tarn_fs *fs, const char *path, int mode)
{
    (void)fs;
    return status(mkdir(path, (mode_t)mode));
}

static int posix_sync_dir(tarn_fs *fs, const char *path)
{
    (void)fs;
    int fd, rc;
    RETRY(fd, open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (fd < 0)
        return -errno;
    RETRY(rc, fsync(fd));
    rc = status(rc);
    (void)close(fd);
    return rc;
}

static bool entry_is_dir(DIR *dir, const struct dirent *e)
{
    if (e->d_type != DT_UNKNOWN)
        return e->d_type == DT_DIR;
    struct stat st;
    return fstatat(dirfd(dir), e->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode);
}

static int posix_list(tarn_fs *fs, const char *path, bool (*fn)(void *ctx, const char *name, bool is_dir), void *ctx)
{
    (void)fs;
    DIR *dir = opendir(path);
    if (!dir)
        return -errno;
    int rc = 0;
    for (;;) {
        errno = 0;
        const struct dirent *e = readdir(dir);
        if (!e) {
            rc = -errno;
            break;
        }
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
            continue;
        if (!fn(ctx, e->d_name, entry_is_dir(dir, e)))
            break;
    }
    (void)closedir(dir);
    return rc;
}

static int posix_space(tarn_fs *fs, const char *path, tarn_fs_space *out)
{
    (void)fs;
    struct statvfs v;
    int rc;
    RETRY(rc, statvfs(path, &v));
    if (rc < 0)
        return -errno;
    out->total_bytes = (uint64_t)v.f_blocks * v.f_frsize;
    out->free_bytes = (uint64_t)v.f_bavail * v.f_frsize;
    return 0;
}

/* flock belongs to the open file, not to the process: a second open in the same process is refused as well. */
static int posix_lock(tarn_fs *fs, int64_t handle)
{
    (void)fs;
    int rc;
    RETRY(rc, flock((int)handle, LOCK_EX | LOCK_NB));
    return status(rc);
}

static tarn_fs posix_fs = {
    .name = "posix",
    .real = true,
    .open = posix_open,
    .close = posix_close,
    .pread = posix_pread,
    .pwrite = posix_pwrite,
    .sync = posix_sync,
    .truncate = posix_truncate,
    .allocate = posix_allocate,
    .punch = posix_punch,
    .fstat = posix_fstat,
    .stat = posix_stat,
    .unlink = posix_unlink,
    .rename = posix_rename,
    .mkdir = posix_mkdir,
    .sync_dir = posix_sync_dir,
    .list = posix_list,
    .space = posix_space,
    .lock = posix_lock,
};

tarn_fs *tarn_fs_posix(void)
{
    return &posix_fs;
}
