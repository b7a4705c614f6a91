/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SQLite's VFS on the mirror. One VFS a store; two files: the database and its WAL, each one shared object for all
 * connections. There is no rollback journal (a new database is prepared with the journal in memory) and no -shm file.
 *
 * Writes are collected: frames of the WAL follow one another and are written with one call, together with the sync; pages
 * of a checkpoint are collected until it ends. What is collected is never visible to another connection before it has been
 * written: SQLite publishes frames after the sync of the WAL (synchronous=FULL), and reads checkpointed pages from the WAL
 * until after the checkpoint. The writer itself reads through flush().
 *
 * Invariants:
 *  1. Collected bytes are contiguous (WAL) or whole pages (database); flushed before any sync, truncate or size question.
 *  2. A database page is sealed with its checksum on the way to the drives and checked on the way back; so is the page of
 *     a frame of the log, whose sum is kept in memory (frames.c). What was written since the opening must also be the page that
 *     was written last.
 *  3. A failure while flushing where SQLite does not look sticks to the file (`failed`): at the end of a checkpoint for good
 *     (SQLite takes those pages for copied; the log has them until the next start), in a read of the log until the
 *     transaction has been rolled back.
 *
 *  4. The log does not start over, and is not cut, before the database has been synced up to its last checkpoint. That sync
 *     may run in the background: until it is done whoever wants to start the log over finds it busy, and appends.
 *
 * Threads: writing methods on the committer's (or opener's) thread; reading ones on any.
 */
#include "vfs.h"

#include "frames.h"
#include "page.h"
#include "shm.h"
#include "wal.h"

#include <errno.h>
#include <string.h>

#define SECTOR_BYTES 4096
#define WAL_FILL_BYTES (1024 * 1024) /* the log's file grows in such steps */
#define WAL_ZEROES_BYTES (128 * 1024)
#define WAL_INDEX_FRAMES_OFFSET 16 /* mxFrame in the header of the index, in the byte order of the machine: sqlite.org/walformat.html */
#define SHM_READ_LOCK_1 4          /* SQLite's WAL_READ_LOCK(1): it locks this one and those behind it to start the log over */
#ifndef PAGE_RUN_BYTES_MAX
#define PAGE_RUN_BYTES_MAX 16384
#endif
#define RUNS_MAX (META_WRITE_BUFFER_BYTES / META_PAGE_BYTES)

/* A file of the store, shared by its connections. */
typedef struct shared_file {
    meta_which which;
    atomic_ullong size;   /* with what is collected */
    pthread_mutex_t lock; /* the collected bytes */
    uint8_t *buf;
    atomic_size_t buf_n;
    atomic_ullong buf_off;        /* WAL: where the bytes go */
    atomic_ullong buf_end;        /* the end of the range that is touched */
    meta_page_run runs[RUNS_MAX]; /* database: each page's place */
    size_t runs_n;
    uint64_t filled; /* the log: bytes that the file has, zeroes at its end included */
    bool unsynced;   /* something was written since the last sync */
    int failed;      /* an SQLITE_ error that SQLite has not been told, or must not forget */
    int no_room;     /* the room for the running checkpoint could not be had: SQLITE_ error */
} shared_file;

struct meta_vfs {
    sqlite3_vfs vfs;
    char name[META_VFS_NAME_BYTES];
    bool registered;
    meta_mirror mirror;
    meta_shm shm;
    bool shm_made;
    shared_file files[META_WHICH_COUNT];
    meta_frames frames;
    meta_pages pages;
    bool files_made;
    pthread_mutex_t lock_lock; /* the locks of the database file */
    int shared_n;
    const void *reserved_by, *exclusive_by;
    bool fresh;
    bool defer_sync;
};

/* One connection's view: what SQLite allocates (szOsFile). */
typedef struct open_file {
    sqlite3_file base;
    meta_vfs *v;
    shared_file *f;
    int lock_level;
    bool checkpointing;
    meta_shm_held held;
} open_file;

static open_file *of(sqlite3_file *file)
{
    return (open_file *)(void *)file;
}

/* ------------------------------------------------------------------ writing */
static int write_rc(int e)
{
    if (e == 0)
        return SQLITE_OK;
    return e == -ENOSPC || e == -EDQUOT ? SQLITE_FULL : SQLITE_IOERR_WRITE;
}

/*
 * What is collected for the log, and, when it makes the file longer, zeroes behind it: so most syncs find blocks that are
 * there, and write no inode. (A frame of zeroes ends the log for SQLite, as the end of the file does.)
 */
static void wal_runs(shared_file *f, size_t n)
{
    static const uint8_t zeroes[WAL_ZEROES_BYTES];
    uint64_t off = atomic_load(&f->buf_off), end = off + n;

    f->runs[0] = (meta_page_run){f->buf, n, off};
    f->runs_n = 1;
    if (end <= f->filled)
        return;
    uint64_t fill_to = (end / WAL_FILL_BYTES + 1) * WAL_FILL_BYTES;
    for (uint64_t at = end; at < fill_to; at += WAL_ZEROES_BYTES) {
        size_t part = fill_to - at < WAL_ZEROES_BYTES ? (size_t)(fill_to - at) : WAL_ZEROES_BYTES;
        f->runs[f->runs_n++] = (meta_page_run){zeroes, part, at};
    }
    f->filled = fill_to;
}

/*
 * The drives are full, and SQLite takes the transaction back. On some of them it may be there whole: on one that has room, or where only
 * the zeroes behind it found none. The next start would find it there, after everybody has seen that it was not done: so the log
 * ends before it, durably. A copy where that fails is out.
 */
static void wal_take_back(meta_vfs *v, shared_file *f, uint64_t off)
{
    meta_job job = {.which = META_WAL, .truncate = true, .off = off, .sync = true};

    (void)meta_mirror_run(&v->mirror, &job);
    if (f->filled > off)
        f->filled = off;
    if (atomic_load(&f->size) > off)
        atomic_store(&f->size, off);
}

/* With the lock. Writes what is collected, and syncs in the same step when asked to. */
static int flush(meta_vfs *v, shared_file *f, bool sync)
{
    meta_job job = {.which = f->which, .sync = sync};
    size_t n = atomic_load(&f->buf_n);

    if (n == 0 && !(sync && f->unsynced))
        return SQLITE_OK;
    if (f->which == META_WAL && n > 0)
        wal_runs(f, n);
    job.runs = f->runs;
    job.runs_n = f->runs_n;
    int e = meta_mirror_run(&v->mirror, &job);
    if (e == -ENOSPC && f->which == META_WAL && n > 0)
        wal_take_back(v, f, atomic_load(&f->buf_off));
    atomic_store(&f->buf_n, 0);
    f->runs_n = 0;
    f->unsynced = !sync || e != 0;
    return write_rc(e);
}

/* With the lock: the bytes do not follow what is collected, or there is no room. */
static int write_through(meta_vfs *v, shared_file *f, const void *p, size_t n, uint64_t off)
{
    meta_job job = {.which = f->which, .buf = p, .n = n, .off = off};
    int rc = flush(v, f, false);

    f->unsynced = true;
    if (rc != SQLITE_OK)
        return rc;
    int e = meta_mirror_run(&v->mirror, &job);
    if (e == -ENOSPC && f->which == META_WAL)
        wal_take_back(v, f, off);
    return write_rc(e);
}

static int wal_write(meta_vfs *v, shared_file *f, const void *p, size_t n, uint64_t off)
{
    size_t have = atomic_load(&f->buf_n);

    if (!meta_frames_note(&v->frames, p, n, off))
        return SQLITE_IOERR_NOMEM;
    if (n > META_WRITE_BUFFER_BYTES)
        return write_through(v, f, p, n, off);
    if (have > 0 && (off != atomic_load(&f->buf_off) + have || have + n > META_WRITE_BUFFER_BYTES)) {
        int rc = flush(v, f, false);
        if (rc != SQLITE_OK)
            return rc;
        have = 0;
    }
    memcpy(f->buf + have, p, n);
    if (have == 0)
        atomic_store(&f->buf_off, off);
    atomic_store(&f->buf_end, off + n);
    atomic_store(&f->buf_n, have + n);
    return SQLITE_OK;
}

static int page_write(meta_vfs *v, shared_file *f, const void *p, uint64_t off, bool collect)
{
    size_t have = atomic_load(&f->buf_n);

    if (have + META_PAGE_BYTES > META_WRITE_BUFFER_BYTES || f->runs_n == RUNS_MAX) {
        int rc = flush(v, f, false);
        if (rc != SQLITE_OK)
            return rc;
        have = 0;
    }
    uint8_t *at = f->buf + have;
    memcpy(at, p, META_PAGE_BYTES);
    meta_page_seal(at, META_PAGE_BYTES, off);
    if (!meta_pages_note(&v->pages, at, off))
        return SQLITE_IOERR_NOMEM;
    meta_page_run *last = f->runs_n > 0 ? &f->runs[f->runs_n - 1] : NULL;
    if (last != NULL && last->off + last->n == off && last->n < PAGE_RUN_BYTES_MAX)
        last->n += META_PAGE_BYTES; /* checkpoints write in the order of pages: neighbours become one write */
    else
        f->runs[f->runs_n++] = (meta_page_run){at, META_PAGE_BYTES, off};
    if (have == 0) {
        atomic_store(&f->buf_off, off);
        atomic_store(&f->buf_end, off + META_PAGE_BYTES);
    }
    if (off < atomic_load(&f->buf_off))
        atomic_store(&f->buf_off, off);
    if (off + META_PAGE_BYTES > atomic_load(&f->buf_end))
        atomic_store(&f->buf_end, off + META_PAGE_BYTES);
    atomic_store(&f->buf_n, have + META_PAGE_BYTES);
    return collect ? SQLITE_OK : flush(v, f, false);
}

/* Waits for the sync in the background. */
static int sync_settle(meta_vfs *v)
{
    return meta_mirror_sync_end(&v->mirror) == 0 ? SQLITE_OK : SQLITE_IOERR_FSYNC;
}

/*
 * Before the log starts over, which it does when all its pages are in the databases: that is written down on all copies. A power
 * cut may leave the old log on one of them, and if that one is damaged, what is right of it would be played over the newer
 * database. (SQLite has left the old log for good when it comes here, whether or not the write that follows succeeds.)
 */
static int log_over(meta_vfs *v, uint32_t next)
{
    uint32_t id = meta_frames_log_id(&v->frames);

    id = id == next ? 0 : id; /* of the same name by chance */
    if (id == v->mirror.log_over)
        return SQLITE_OK;
    v->mirror.log_over = id;
    return meta_mirror_mark(&v->mirror, v->mirror.state, false) == 0 ? SQLITE_OK : SQLITE_IOERR_WRITE;
}

static int file_write(sqlite3_file *file, const void *p, int n, sqlite3_int64 off)
{
    open_file *o = of(file);
    shared_file *f = o->f;
    uint64_t at = (uint64_t)off;

    pthread_mutex_lock(&f->lock);
    int rc = f->failed;
    if (rc == SQLITE_OK && f->which == META_WAL) {
        if (at == 0) /* the log starts over */
            rc = sync_settle(o->v);
        if (rc == SQLITE_OK && at == 0)
            rc = log_over(o->v, n == META_WAL_HEADER_BYTES ? meta_log_id(p) : 0);
        if (rc == SQLITE_OK)
            rc = wal_write(o->v, f, p, (size_t)n, at);
    } else if (rc == SQLITE_OK) {
        TARN_ASSERT(n == META_PAGE_BYTES && at % META_PAGE_BYTES == 0); /* SQLite writes its database in pages */
        rc = f->no_room;
        if (rc == SQLITE_OK)
            rc = page_write(o->v, f, p, at, o->checkpointing);
    }
    if (rc == SQLITE_OK && at + (uint64_t)n > atomic_load(&f->size))
        atomic_store(&f->size, at + (uint64_t)n);
    pthread_mutex_unlock(&f->lock);
    return rc;
}

static int db_sync(meta_vfs *v, shared_file *f)
{
    int rc = sync_settle(v);

    if (rc != SQLITE_OK)
        return rc;
    rc = flush(v, f, !v->defer_sync);
    if (rc == SQLITE_OK && v->defer_sync && f->unsynced) {
        meta_mirror_sync_begin(&v->mirror);
        f->unsynced = false;
    }
    return rc;
}

static int file_sync(sqlite3_file *file, int flags)
{
    open_file *o = of(file);
    shared_file *f = o->f;

    (void)flags;
    pthread_mutex_lock(&f->lock);
    int rc = f->failed;
    if (rc == SQLITE_OK)
        rc = f->which == META_DB ? db_sync(o->v, f) : flush(o->v, f, true);
    pthread_mutex_unlock(&f->lock);
    return rc == SQLITE_IOERR_WRITE ? SQLITE_IOERR_FSYNC : rc;
}

static int truncate_run(meta_vfs *v, shared_file *f, const meta_job *job)
{
    f->unsynced = true;
    return meta_mirror_run(&v->mirror, job) == 0 ? SQLITE_OK : SQLITE_IOERR_TRUNCATE;
}

static int file_truncate(sqlite3_file *file, sqlite3_int64 size)
{
    open_file *o = of(file);
    shared_file *f = o->f;
    /* The log's is synced: the zeroes and the header that follow might else reach a drive and the truncation not, and what is
     * left of the old log, its end wiped out, would be played over the newer database. */
    meta_job job = {.which = f->which, .truncate = true, .off = (uint64_t)size, .sync = f->which == META_WAL};

    pthread_mutex_lock(&f->lock);
    int rc = f->failed != SQLITE_OK ? f->failed : flush(o->v, f, false);
    if (rc == SQLITE_OK && f->which == META_WAL)
        rc = sync_settle(o->v);
    if (rc == SQLITE_OK && f->which == META_WAL && size == 0 && atomic_load(&f->size) > 0)
        rc = log_over(o->v, 0);
    if (rc == SQLITE_OK && (atomic_load(&f->size) != (uint64_t)size || f->filled > (uint64_t)size))
        rc = truncate_run(o->v, f, &job);
    if (rc == SQLITE_OK) {
        atomic_store(&f->size, (uint64_t)size);
        f->filled = (uint64_t)size;
    }
    pthread_mutex_unlock(&f->lock);
    return rc;
}

/* The database is about to grow: room is taken now, where "full" still is an answer that SQLite heeds. */
static void size_hint(meta_vfs *v, shared_file *f, uint64_t size)
{
    uint64_t have = atomic_load(&f->size);

    if (size <= have)
        return;
    meta_job job = {.which = f->which, .allocate = true, .off = have, .n = (size_t)(size - have)};
    pthread_mutex_lock(&f->lock);
    f->unsynced = true;
    f->no_room = write_rc(meta_mirror_run(&v->mirror, &job));
    if (f->no_room == SQLITE_OK)
        atomic_store(&f->size, size);
    pthread_mutex_unlock(&f->lock);
}

/* ------------------------------------------------------------------ reading */
/* A part of a page (SQLite looks at the first bytes before it knows how long a page is): out of a page that is right, where
 * there is one. -ENODATA: there is none. */
static int64_t part_read(meta_mirror *m, void *buf, size_t n, uint64_t off)
{
    uint8_t page[META_PAGE_BYTES];
    size_t in = (size_t)(off % META_PAGE_BYTES);

    if (in + n > META_PAGE_BYTES)
        return -ENODATA;
    int64_t got = meta_mirror_read(m, META_DB, page, sizeof(page), off - in, meta_page_check);
    if (got < 0 && got != -EBADMSG)
        return got;
    if (got < META_PAGE_BYTES) /* also where it is torn in all copies: a checkpoint was cut short, and the log has it whole */
        return -ENODATA;
    memcpy(buf, page + in, n);
    return (int64_t)n;
}

static int file_read(sqlite3_file *file, void *buf, int n, sqlite3_int64 off)
{
    open_file *o = of(file);
    shared_file *f = o->f;
    uint64_t at = (uint64_t)off;
    bool page = f->which == META_DB && n == META_PAGE_BYTES && at % META_PAGE_BYTES == 0;

    if (atomic_load(&f->buf_n) > 0 && at < atomic_load(&f->buf_end) && at + (uint64_t)n > atomic_load(&f->buf_off)) {
        pthread_mutex_lock(&f->lock); /* the writer reads what it has just written (a cache that spilled) */
        int rc = flush(o->v, f, false);
        if (rc != SQLITE_OK && f->failed == SQLITE_OK)
            f->failed = rc;
        pthread_mutex_unlock(&f->lock);
        if (rc != SQLITE_OK)
            return SQLITE_IOERR_READ;
    }
    int64_t got = f->which == META_DB && !page ? part_read(&o->v->mirror, buf, (size_t)n, at) : -ENODATA;
    if (got == -ENODATA)
        got = meta_mirror_read(&o->v->mirror, f->which, buf, (size_t)n, at, page ? meta_page_check : NULL);
    if (got == -EBADMSG)
        return SQLITE_IOERR_DATA;
    if (got < 0)
        return SQLITE_IOERR_READ;
    if (got < n) {
        memset((uint8_t *)buf + got, 0, (size_t)(n - got));
        return SQLITE_IOERR_SHORT_READ;
    }
    return SQLITE_OK;
}

static int file_size(sqlite3_file *file, sqlite3_int64 *out)
{
    *out = (sqlite3_int64)atomic_load(&of(file)->f->size);
    return SQLITE_OK;
}

/* ------------------------------------------------------------------ locks of the database file, within the process */
/* SQLite's table: SHARED any number; RESERVED one beside them; PENDING keeps new ones out; EXCLUSIVE alone. */
static int lock_raise(meta_vfs *v, open_file *o, int level)
{
    if (level == SQLITE_LOCK_SHARED) {
        if (v->exclusive_by != NULL)
            return SQLITE_BUSY;
        v->shared_n++;
        return SQLITE_OK;
    }
    if (v->reserved_by != NULL && v->reserved_by != o)
        return SQLITE_BUSY;
    v->reserved_by = o;
    if (level == SQLITE_LOCK_RESERVED)
        return SQLITE_OK;
    if (v->exclusive_by != NULL && v->exclusive_by != o)
        return SQLITE_BUSY;
    v->exclusive_by = o; /* as PENDING: nobody new comes */
    if (level == SQLITE_LOCK_EXCLUSIVE && v->shared_n > 1) {
        o->lock_level = SQLITE_LOCK_PENDING;
        return SQLITE_BUSY;
    }
    return SQLITE_OK;
}

static int file_lock(sqlite3_file *file, int level)
{
    open_file *o = of(file);
    int rc = SQLITE_OK;

    pthread_mutex_lock(&o->v->lock_lock);
    if (level > o->lock_level) {
        rc = lock_raise(o->v, o, level);
        if (rc == SQLITE_OK)
            o->lock_level = level;
    }
    pthread_mutex_unlock(&o->v->lock_lock);
    return rc;
}

static int file_unlock(sqlite3_file *file, int level)
{
    open_file *o = of(file);
    meta_vfs *v = o->v;

    pthread_mutex_lock(&v->lock_lock);
    if (level < o->lock_level) {
        if (v->exclusive_by == o)
            v->exclusive_by = NULL;
        if (v->reserved_by == o)
            v->reserved_by = NULL;
        if (level == SQLITE_LOCK_NONE)
            v->shared_n--;
        o->lock_level = level;
    }
    pthread_mutex_unlock(&v->lock_lock);
    return SQLITE_OK;
}

static int file_check_reserved(sqlite3_file *file, int *out)
{
    meta_vfs *v = of(file)->v;

    pthread_mutex_lock(&v->lock_lock);
    *out = v->reserved_by != NULL;
    pthread_mutex_unlock(&v->lock_lock);
    return SQLITE_OK;
}

/* ------------------------------------------------------------------ shared memory */
static int file_shm_map(sqlite3_file *file, int region, int bytes, int extend, void volatile **out)
{
    return meta_shm_map(&of(file)->v->shm, region, bytes, extend, out);
}

static int file_shm_lock(sqlite3_file *file, int first, int n, int flags)
{
    open_file *o = of(file);
    int result;

    if ((flags & SQLITE_SHM_LOCK) != 0 && (flags & SQLITE_SHM_EXCLUSIVE) != 0 && first == SHM_READ_LOCK_1 && n > 1) {
        if (meta_mirror_sync_running(&o->v->mirror, &result))
            return SQLITE_BUSY;
        if (result != 0)
            return SQLITE_IOERR_FSYNC;
    }
    return meta_shm_lock(&o->v->shm, &o->held, first, n, flags);
}

static void file_shm_barrier(sqlite3_file *file)
{
    (void)file;
    atomic_thread_fence(memory_order_seq_cst);
}

static int file_shm_unmap(sqlite3_file *file, int remove)
{
    open_file *o = of(file);

    (void)remove; /* the index lives as long as the store: it is the only one that can have it */
    meta_shm_release(&o->v->shm, &o->held);
    return SQLITE_OK;
}

/* ------------------------------------------------------------------ the rest of the file's methods */
static int file_close(sqlite3_file *file)
{
    open_file *o = of(file);

    if (o->lock_level != SQLITE_LOCK_NONE)
        (void)file_unlock(file, SQLITE_LOCK_NONE);
    meta_shm_release(&o->v->shm, &o->held);
    return SQLITE_OK;
}

static int checkpoint_end(open_file *o)
{
    shared_file *f = o->f;

    pthread_mutex_lock(&f->lock);
    int rc = flush(o->v, f, false);
    if (rc != SQLITE_OK) /* SQLite does not look at this answer */
        f->failed = rc;
    f->no_room = SQLITE_OK;
    pthread_mutex_unlock(&f->lock);
    o->checkpointing = false;
    return rc;
}

static int file_control(sqlite3_file *file, int op, void *arg)
{
    open_file *o = of(file);

    switch (op) {
    case SQLITE_FCNTL_CKPT_START:
        o->checkpointing = true;
        o->f->no_room = SQLITE_OK;
        return SQLITE_OK;
    case SQLITE_FCNTL_CKPT_DONE:
        return checkpoint_end(o);
    case SQLITE_FCNTL_SIZE_HINT:
        size_hint(o->v, o->f, (uint64_t) * (sqlite3_int64 *)arg);
        return SQLITE_OK;
    case SQLITE_FCNTL_PERSIST_WAL:
        *(int *)arg = 1;
        return SQLITE_OK;
    default:
        return SQLITE_NOTFOUND;
    }
}

static int file_sector_size(sqlite3_file *file)
{
    (void)file;
    return SECTOR_BYTES;
}

static int file_characteristics(sqlite3_file *file)
{
    (void)file;
    return SQLITE_IOCAP_POWERSAFE_OVERWRITE | SQLITE_IOCAP_UNDELETABLE_WHEN_OPEN;
}

static const sqlite3_io_methods METHODS = {
    .iVersion = 2,
    .xClose = file_close,
    .xRead = file_read,
    .xWrite = file_write,
    .xTruncate = file_truncate,
    .xSync = file_sync,
    .xFileSize = file_size,
    .xLock = file_lock,
    .xUnlock = file_unlock,
    .xCheckReservedLock = file_check_reserved,
    .xFileControl = file_control,
    .xSectorSize = file_sector_size,
    .xDeviceCharacteristics = file_characteristics,
    .xShmMap = file_shm_map,
    .xShmLock = file_shm_lock,
    .xShmBarrier = file_shm_barrier,
    .xShmUnmap = file_shm_unmap,
};

/* ------------------------------------------------------------------ the VFS's own methods */
static meta_vfs *vfs_of(sqlite3_vfs *vfs)
{
    return vfs->pAppData;
}

static int vfs_open(sqlite3_vfs *vfs, const char *path, sqlite3_file *file, int flags, int *out_flags)
{
    open_file *o = of(file);

    memset(o, 0, sizeof(*o));
    if ((flags & (SQLITE_OPEN_MAIN_DB | SQLITE_OPEN_WAL)) == 0 || path == NULL)
        return SQLITE_CANTOPEN; /* no journals and no temporary files: they are kept in memory */
    o->v = vfs_of(vfs);
    o->f = &o->v->files[(flags & SQLITE_OPEN_WAL) != 0 ? META_WAL : META_DB];
    o->base.pMethods = &METHODS;
    if (out_flags != NULL)
        *out_flags = flags;
    return SQLITE_OK;
}

static int vfs_delete(sqlite3_vfs *vfs, const char *path, int sync_dir)
{
    (void)vfs;
    (void)path;
    (void)sync_dir;
    return SQLITE_IOERR_DELETE_NOENT; /* the files stay for good */
}

static int vfs_access(sqlite3_vfs *vfs, const char *path, int flags, int *out)
{
    meta_vfs *v = vfs_of(vfs);

    (void)flags;
    *out = 0;
    if (tarn_str_ends(tarn_str_of(path), META_VFS_WAL_NAME))
        *out = atomic_load(&v->files[META_WAL].size) > 0;
    else if (tarn_str_ends(tarn_str_of(path), META_VFS_DB_NAME))
        *out = 1;
    return SQLITE_OK;
}

static int vfs_full_path(sqlite3_vfs *vfs, const char *path, int n, char *out)
{
    tarn_sb b;

    (void)vfs;
    tarn_sb_init_fixed(&b, out, (size_t)n);
    tarn_sb_cstr(&b, path);
    return b.failed ? SQLITE_CANTOPEN : SQLITE_OK;
}

static int vfs_randomness(sqlite3_vfs *vfs, int n, char *out)
{
    (void)vfs;
    tarn_random(out, (size_t)n);
    return n;
}

static int vfs_sleep(sqlite3_vfs *vfs, int us)
{
    (void)vfs;
    const struct timespec t = {.tv_sec = us / 1000000, .tv_nsec = us % 1000000 * 1000L};
    (void)nanosleep(&t, NULL);
    return us;
}

static int vfs_time(sqlite3_vfs *vfs, sqlite3_int64 *out)
{
    (void)vfs;
    *out = 210866760000000LL + tarn_now_ms(); /* Julian day of 1970 in milliseconds */
    return SQLITE_OK;
}

static int vfs_time_double(sqlite3_vfs *vfs, double *out)
{
    sqlite3_int64 ms = 0;

    (void)vfs_time(vfs, &ms);
    *out = (double)ms / 86400000.0;
    return SQLITE_OK;
}

static int vfs_last_error(sqlite3_vfs *vfs, int n, char *out)
{
    (void)vfs;
    (void)n;
    (void)out;
    return 0;
}

/* ------------------------------------------------------------------ life */
static tarn_err file_init(meta_vfs *v, meta_which which)
{
    shared_file *f = &v->files[which];

    f->which = which;
    atomic_store(&f->size, v->mirror.bytes[which]); /* that of one drive's file would be an answer of one drive */
    f->filled = v->mirror.bytes[which];
    f->buf = tarn_malloc(META_WRITE_BUFFER_BYTES);
    if (f->buf == NULL)
        return TARN_E_NO_MEMORY;
    if (pthread_mutex_init(&f->lock, NULL) != 0) {
        tarn_free(f->buf);
        f->buf = NULL;
        return TARN_E_NO_MEMORY;
    }
    return TARN_OK;
}

static tarn_err vfs_register(meta_vfs *v)
{
    tarn_sb b;

    tarn_sb_init_fixed(&b, v->name, sizeof(v->name));
    tarn_sb_fmt(&b, "tarn-%llx", (unsigned long long)(uintptr_t)v);
    TARN_ASSERT(!b.failed);
    v->vfs = (sqlite3_vfs){
        .iVersion = 2,
        .szOsFile = sizeof(open_file),
        .mxPathname = 64,
        .zName = v->name,
        .pAppData = v,
        .xOpen = vfs_open,
        .xDelete = vfs_delete,
        .xAccess = vfs_access,
        .xFullPathname = vfs_full_path,
        .xRandomness = vfs_randomness,
        .xSleep = vfs_sleep,
        .xCurrentTime = vfs_time_double,
        .xGetLastError = vfs_last_error,
        .xCurrentTimeInt64 = vfs_time,
    };
    v->registered = sqlite3_vfs_register(&v->vfs, 0) == SQLITE_OK;
    return v->registered ? TARN_OK : TARN_E_NO_MEMORY;
}

tarn_err meta_vfs_open(const tarn_meta_options *opt, meta_vfs **out, bool *fresh)
{
    tarn_err err = TARN_E_NO_MEMORY;
    meta_vfs *v = tarn_calloc(1, sizeof(*v));

    if (v == NULL)
        return err;
    v->mirror.fs = opt->fs;
    v->mirror.write_quorum = opt->write_quorum < opt->dirs_n ? opt->write_quorum : opt->dirs_n;
    v->mirror.record_quorum = (uint32_t)opt->write_quorum;
    v->mirror.record_copies = (uint32_t)opt->dirs_n;
    v->mirror.on_drive_failed = opt->on_drive_failed;
    v->mirror.ctx = opt->ctx;
    v->mirror.one_thread = opt->inline_committer;
    v->mirror.unfinished = opt->unfinished;
    v->mirror.frames = &v->frames;
    v->mirror.pages = &v->pages;
    if (pthread_mutex_init(&v->lock_lock, NULL) != 0) {
        tarn_free(v);
        return err;
    }
    v->shm_made = meta_shm_init(&v->shm) == SQLITE_OK;
    if (v->shm_made)
        err = meta_copies_open(&v->mirror, opt, &v->fresh);
    if (err == TARN_OK)
        err = meta_mirror_start(&v->mirror);
    for (int w = 0; w < META_WHICH_COUNT && err == TARN_OK; w++)
        err = file_init(v, (meta_which)w);
    if (err == TARN_OK)
        err = vfs_register(v);
    if (err != TARN_OK) {
        meta_vfs_close(v, false);
        return err;
    }
    *fresh = v->fresh;
    *out = v;
    return TARN_OK;
}

const char *meta_vfs_name(const meta_vfs *v)
{
    return v->name;
}

bool meta_vfs_quorum_lost(const meta_vfs *v)
{
    return atomic_load(&v->mirror.quorum_lost);
}

meta_mirror *meta_vfs_mirror(meta_vfs *v)
{
    return &v->mirror;
}

uint64_t meta_vfs_log_frames(const meta_vfs *v)
{
    const uint8_t *index = atomic_load(&v->shm.regions[0]);
    uint32_t n = 0;

    if (index != NULL)
        memcpy(&n, index + WAL_INDEX_FRAMES_OFFSET, sizeof(n));
    return n;
}

size_t meta_vfs_copies_good(const meta_vfs *v)
{
    return atomic_load(&v->mirror.good_n);
}

void meta_vfs_rolled_back(meta_vfs *v)
{
    v->files[META_WAL].failed = SQLITE_OK;
}

void meta_vfs_sync_defer(meta_vfs *v, bool defer)
{
    v->defer_sync = defer;
}

bool meta_vfs_sync_running(meta_vfs *v)
{
    int result; /* a failure has set quorum_lost, which the next write finds */

    return meta_mirror_sync_running(&v->mirror, &result);
}

tarn_err meta_vfs_in_use(meta_vfs *v)
{
    return meta_mirror_mark(&v->mirror, META_GEN_DIRTY, true) == 0 ? TARN_OK : TARN_E_QUORUM_WRITE;
}

void meta_vfs_close(meta_vfs *v, bool clean)
{
    if (v == NULL)
        return;
    if (v->registered)
        (void)sqlite3_vfs_unregister(&v->vfs);
    if (meta_mirror_sync_end(&v->mirror) != 0)
        clean = false;
    if (clean && !atomic_load(&v->mirror.quorum_lost))
        (void)meta_mirror_mark(&v->mirror, META_GEN_CLEAN, false); /* when it fails the next start looks closer */
    meta_mirror_stop(&v->mirror);
    if (v->mirror.copies != NULL)
        meta_copies_close(&v->mirror);
    for (int w = 0; w < META_WHICH_COUNT; w++) {
        if (v->files[w].buf == NULL)
            continue;
        pthread_mutex_destroy(&v->files[w].lock);
        tarn_free(v->files[w].buf);
    }
    if (v->shm_made)
        meta_shm_free(&v->shm);
    meta_frames_free(&v->frames);
    meta_pages_free(&v->pages);
    pthread_mutex_destroy(&v->lock_lock);
    tarn_free(v);
}
