/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Backups: a consistent copy of the database as one file, made while commits go on, and the way back.
 *
 * The copy is made by SQLite's backup interface on a connection of its own that holds one snapshot all the time; meanwhile
 * the log can't start over, only grow. The file is written through a small VFS on a tarn_fs, which seals each page with its
 * checksum like the mirror does: so a backup is checked page by page before it is believed, and its bytes are those of a
 * copy of the database.
 *
 * Invariants:
 *  1. A file that tarn_meta_backup() has made is synced; the caller gives it its final name then.
 *  2. tarn_meta_restore() touches no copy before the whole file has been checked.
 * Threads: the caller's; nothing here parks, so that it belongs on a helper thread.
 */
#include "meta_internal.h"
#include "page.h"
#include "vfs.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

#define BACKUP_STEP_PAGES 256
#define BACKUP_CHUNK_BYTES (1024 * 1024)
#define BACKUP_FILE_MODE 0600
#define BACKUP_GENERATION_STEP (UINT64_C(1) << 32) /* no copy that is away today comes near it */
#define SQLITE_HEADER "SQLite format 3"

/* ------------------------------------------------------------------ a VFS of one file */
typedef struct plain_vfs {
    sqlite3_vfs vfs;
    char name[META_VFS_NAME_BYTES];
    tarn_file *file;
    int error; /* the first, negative errno */
} plain_vfs;

typedef struct plain_file {
    sqlite3_file base;
    plain_vfs *v;
} plain_file;

static plain_vfs *pv(sqlite3_file *f)
{
    return ((plain_file *)(void *)f)->v;
}

static int note(plain_vfs *v, int e, int rc)
{
    if (e < 0 && v->error == 0)
        v->error = e;
    return e < 0 ? (e == -ENOSPC || e == -EDQUOT ? SQLITE_FULL : rc) : SQLITE_OK;
}

static int plain_close(sqlite3_file *f)
{
    (void)f;
    return SQLITE_OK;
}

static int plain_read(sqlite3_file *f, void *buf, int n, sqlite3_int64 off)
{
    int64_t got = tarn_file_pread_sync(pv(f)->file, buf, (size_t)n, (uint64_t)off);

    if (got < 0)
        return note(pv(f), (int)got, SQLITE_IOERR_READ);
    if (got < n) {
        memset((uint8_t *)buf + got, 0, (size_t)(n - got));
        return SQLITE_IOERR_SHORT_READ;
    }
    return SQLITE_OK;
}

static int plain_write(sqlite3_file *f, const void *buf, int n, sqlite3_int64 off)
{
    uint8_t page[META_PAGE_BYTES];

    if (n == META_PAGE_BYTES && off % META_PAGE_BYTES == 0) {
        memcpy(page, buf, sizeof(page));
        meta_page_seal(page, sizeof(page), (uint64_t)off);
        buf = page;
    }
    int64_t put = tarn_file_pwrite_sync(pv(f)->file, buf, (size_t)n, (uint64_t)off);
    return note(pv(f), put < 0 ? (int)put : put != n ? -EIO : 0, SQLITE_IOERR_WRITE);
}

static int plain_truncate(sqlite3_file *f, sqlite3_int64 size)
{
    tarn_file *file = pv(f)->file;

    return note(pv(f), tarn_file_fs(file)->truncate(tarn_file_fs(file), tarn_file_handle(file), (uint64_t)size), SQLITE_IOERR_TRUNCATE);
}

static int plain_sync(sqlite3_file *f, int flags)
{
    tarn_file *file = pv(f)->file;

    (void)flags;
    return note(pv(f), tarn_file_fs(file)->sync(tarn_file_fs(file), tarn_file_handle(file), false), SQLITE_IOERR_FSYNC);
}

static int plain_size(sqlite3_file *f, sqlite3_int64 *out)
{
    tarn_fs_stat st = {0};
    tarn_file *file = pv(f)->file;
    int e = tarn_file_fs(file)->fstat(tarn_file_fs(file), tarn_file_handle(file), &st);

    *out = (sqlite3_int64)st.size_bytes;
    return note(pv(f), e, SQLITE_IOERR_FSTAT);
}

static int plain_lock(sqlite3_file *f, int level)
{
    (void)f;
    (void)level;
    return SQLITE_OK; /* nobody else knows the file */
}

static int plain_reserved(sqlite3_file *f, int *out)
{
    (void)f;
    *out = 0;
    return SQLITE_OK;
}

static int plain_control(sqlite3_file *f, int op, void *arg)
{
    (void)f;
    (void)op;
    (void)arg;
    return SQLITE_NOTFOUND;
}

static int plain_sector(sqlite3_file *f)
{
    (void)f;
    return META_PAGE_BYTES;
}

static int plain_traits(sqlite3_file *f)
{
    (void)f;
    return 0;
}

static int plain_open(sqlite3_vfs *vfs, sqlite3_filename name, sqlite3_file *file, int flags, int *out_flags)
{
    static const sqlite3_io_methods methods = {
        .iVersion = 1,
        .xClose = plain_close,
        .xRead = plain_read,
        .xWrite = plain_write,
        .xTruncate = plain_truncate,
        .xSync = plain_sync,
        .xFileSize = plain_size,
        .xLock = plain_lock,
        .xUnlock = plain_lock,
        .xCheckReservedLock = plain_reserved,
        .xFileControl = plain_control,
        .xSectorSize = plain_sector,
        .xDeviceCharacteristics = plain_traits,
    };
    plain_file *p = (plain_file *)(void *)file;

    (void)name;
    memset(p, 0, sizeof(*p));
    if ((flags & SQLITE_OPEN_MAIN_DB) == 0) /* no journals: the whole file is thrown away when something fails */
        return SQLITE_CANTOPEN;
    p->v = vfs->pAppData;
    p->base.pMethods = &methods;
    if (out_flags != NULL)
        *out_flags = flags;
    return SQLITE_OK;
}

static int plain_delete(sqlite3_vfs *vfs, const char *name, int sync)
{
    (void)vfs;
    (void)name;
    (void)sync;
    return SQLITE_OK;
}

static int plain_access(sqlite3_vfs *vfs, const char *name, int flags, int *out)
{
    (void)vfs;
    (void)name;
    (void)flags;
    *out = 0;
    return SQLITE_OK;
}

static int plain_path(sqlite3_vfs *vfs, const char *name, int n, char *out)
{
    tarn_sb b;

    (void)vfs;
    tarn_sb_init_fixed(&b, out, (size_t)n);
    tarn_sb_cstr(&b, name);
    return b.failed ? SQLITE_CANTOPEN : SQLITE_OK;
}

static int plain_random(sqlite3_vfs *vfs, int n, char *out)
{
    (void)vfs;
    tarn_random(out, (size_t)n);
    return n;
}

static int plain_sleep(sqlite3_vfs *vfs, int us)
{
    (void)vfs;
    return us;
}

static int plain_time(sqlite3_vfs *vfs, double *out)
{
    (void)vfs;
    *out = 2440587.5 + (double)tarn_now_ms() / 86400000.0;
    return SQLITE_OK;
}

static tarn_err plain_register(plain_vfs *v)
{
    static atomic_uint count;
    tarn_sb b;

    tarn_sb_init_fixed(&b, v->name, sizeof(v->name));
    tarn_sb_fmt(&b, "tarn-backup-%u", atomic_fetch_add(&count, 1));
    v->vfs = (sqlite3_vfs){.iVersion = 1,
                           .szOsFile = (int)sizeof(plain_file),
                           .mxPathname = 64,
                           .zName = v->name,
                           .pAppData = v,
                           .xOpen = plain_open,
                           .xDelete = plain_delete,
                           .xAccess = plain_access,
                           .xFullPathname = plain_path,
                           .xRandomness = plain_random,
                           .xSleep = plain_sleep,
                           .xCurrentTime = plain_time};
    return meta_err(sqlite3_vfs_register(&v->vfs, 0));
}

/* ------------------------------------------------------------------ making one */
static tarn_err pages_copy(meta_conn *from, sqlite3 *to, bool (*step)(void *ctx), void *ctx)
{
    sqlite3_backup *b = sqlite3_backup_init(to, "main", from->db, "main");
    int rc = SQLITE_OK;
    bool go = true;

    if (b == NULL)
        return meta_err(sqlite3_errcode(to));
    while (go && (rc = sqlite3_backup_step(b, BACKUP_STEP_PAGES)) == SQLITE_OK)
        go = step == NULL || step(ctx);
    int end = sqlite3_backup_finish(b);
    if (!go)
        return TARN_E_CANCELED;
    return meta_err(rc == SQLITE_DONE ? end : rc);
}

/* One snapshot from the first page to the last. */
static tarn_err snapshot_copy(tarn_meta *m, sqlite3 *to, bool (*step)(void *ctx), void *ctx)
{
    meta_conn *c = NULL;
    meta_q q;
    bool row;
    tarn_err err = meta_conn_open(m, false, &c);

    if (err != TARN_OK)
        return err;
    err = meta_exec(c, META_SQL_READ_BEGIN);
    if (err == TARN_OK) {
        err = meta_q_begin(&q, c, META_SQL_SEQ_GET); /* the first read takes the snapshot */
        if (err == TARN_OK)
            err = meta_q_step(&q, &row);
        meta_q_end(&q);
        if (err == TARN_OK)
            err = pages_copy(c, to, step, ctx);
        (void)meta_exec(c, META_SQL_READ_END);
    }
    meta_conn_close(c);
    return err;
}

static int file_sync_now(tarn_file *f)
{
    return tarn_file_fs(f)->sync(tarn_file_fs(f), tarn_file_handle(f), false);
}

tarn_err tarn_meta_backup(tarn_meta *m, tarn_fs *fs, const char *path, bool (*step)(void *ctx), void *ctx)
{
    sqlite3 *to = NULL;
    plain_vfs *v = tarn_calloc(1, sizeof(*v));
    tarn_err err = v == NULL ? TARN_E_NO_MEMORY : TARN_OK;
    int e = 0;

    if (err == TARN_OK) {
        e = tarn_file_open_sync(fs, path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, BACKUP_FILE_MODE, &v->file);
        err = e < 0 ? tarn_err_from_errno(-e) : plain_register(v);
    }
    if (err == TARN_OK) {
        int rc = sqlite3_open_v2("backup", &to, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX, v->name);
        if (rc == SQLITE_OK)
            rc = sqlite3_exec(to, "PRAGMA journal_mode=OFF;PRAGMA cache_size=-1024;", NULL, NULL, NULL);
        err = rc != SQLITE_OK ? meta_err(rc) : snapshot_copy(m, to, step, ctx);
        int closed = sqlite3_close(to);
        TARN_ASSERT(closed == SQLITE_OK);
        (void)sqlite3_vfs_unregister(&v->vfs);
        e = v->error;
        if (err != TARN_OK && e < 0)
            err = tarn_err_from_errno(-e);
    }
    if (err == TARN_OK && (e = file_sync_now(v->file)) < 0)
        err = tarn_err_from_errno(-e);
    if (v != NULL)
        tarn_file_unref(v->file);
    tarn_free(v);
    if (err != TARN_OK)
        tarn_log(TARN_LOG_WARN, "metadata backup failed", "file", path, "error", tarn_err_get(err)->name, NULL);
    return err;
}

/* ------------------------------------------------------------------ checking one */
static uint32_t be32(const uint8_t *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static bool first_page_right(const uint8_t *page, uint64_t size)
{
    return memcmp(page, SQLITE_HEADER, sizeof(SQLITE_HEADER)) == 0 && (uint64_t)be32(page + 28) * META_PAGE_BYTES == size;
}

static tarn_err file_check(tarn_file *f, uint64_t *size_out)
{
    tarn_fs_stat st = {0};
    uint8_t *buf = tarn_malloc(BACKUP_CHUNK_BYTES);
    int e = tarn_file_fs(f)->fstat(tarn_file_fs(f), tarn_file_handle(f), &st);
    uint64_t size = st.size_bytes;
    tarn_err err = buf == NULL ? TARN_E_NO_MEMORY : e < 0 ? tarn_err_from_errno(-e) : TARN_OK;

    if (err == TARN_OK && (size == 0 || size % META_PAGE_BYTES != 0))
        err = TARN_E_FORMAT;
    for (uint64_t off = 0; off < size && err == TARN_OK; off += BACKUP_CHUNK_BYTES) {
        size_t n = size - off < BACKUP_CHUNK_BYTES ? (size_t)(size - off) : BACKUP_CHUNK_BYTES;
        int64_t got = tarn_file_pread_sync(f, buf, n, off);
        if (got != (int64_t)n)
            err = got < 0 ? tarn_err_from_errno((int)-got) : TARN_E_CORRUPT;
        else if (off == 0 && !first_page_right(buf, size))
            err = TARN_E_FORMAT;
        for (size_t at = 0; err == TARN_OK && at < n; at += META_PAGE_BYTES) {
            if (!meta_page_check(buf + at, META_PAGE_BYTES, off + at))
                err = TARN_E_CORRUPT;
        }
    }
    tarn_free(buf);
    if (err == TARN_OK)
        *size_out = size;
    return err;
}

tarn_err tarn_meta_backup_check(tarn_fs *fs, const char *path)
{
    tarn_file *f = NULL;
    uint64_t size;
    int e = tarn_file_open_sync(fs, path, O_RDONLY | O_CLOEXEC, 0, &f);

    if (e < 0)
        return tarn_err_from_errno(-e);
    tarn_err err = file_check(f, &size);
    tarn_file_unref(f);
    return err;
}

/* ------------------------------------------------------------------ the way back */
typedef struct target {
    tarn_file *gen, *db, *wal;
    meta_gen old;
} target;

static int open_at(tarn_fs *fs, const char *dir, const char *name, tarn_file **out)
{
    char mem[TARN_PATH_BYTES_MAX];
    tarn_sb b;

    tarn_sb_init_fixed(&b, mem, sizeof(mem));
    tarn_sb_fmt(&b, "%s/%s", dir, name);
    return b.failed ? -ENAMETOOLONG : tarn_file_open_sync(fs, mem, O_RDWR | O_CREAT | O_CLOEXEC, BACKUP_FILE_MODE, out);
}

static int target_open(tarn_fs *fs, const char *dir, target *t)
{
    int e = open_at(fs, dir, META_VFS_GEN_NAME, &t->gen);

    if (e == 0)
        e = meta_gen_read(t->gen, &t->old);
    if (e == 0)
        e = open_at(fs, dir, META_VFS_DB_NAME, &t->db);
    if (e == 0)
        e = open_at(fs, dir, META_VFS_WAL_NAME, &t->wal);
    return e == 0 ? fs->sync_dir(fs, dir) : e;
}

static int bytes_copy(tarn_file *from, tarn_file *to, uint64_t size)
{
    uint8_t *buf = tarn_malloc(BACKUP_CHUNK_BYTES);
    int e = buf == NULL ? -ENOMEM : 0;

    for (uint64_t off = 0; off < size && e == 0; off += BACKUP_CHUNK_BYTES) {
        size_t n = size - off < BACKUP_CHUNK_BYTES ? (size_t)(size - off) : BACKUP_CHUNK_BYTES;
        int64_t got = tarn_file_pread_sync(from, buf, n, off);
        int64_t put = got == (int64_t)n ? tarn_file_pwrite_sync(to, buf, n, off) : got < 0 ? got : -EIO;
        e = put == (int64_t)n ? 0 : put < 0 ? (int)put : -EIO;
    }
    tarn_free(buf);
    return e;
}

/* REBUILDING until its content is synced: a start in between does not believe it. */
static int target_fill(tarn_fs *fs, target *t, tarn_file *from, uint64_t size, meta_gen *g)
{
    g->counter = t->old.counter;
    g->state = META_GEN_REBUILDING;
    int e = meta_gen_write(t->gen, g);
    if (e == 0)
        e = fs->truncate(fs, tarn_file_handle(t->wal), 0);
    if (e == 0)
        e = fs->truncate(fs, tarn_file_handle(t->db), 0);
    if (e == 0)
        e = bytes_copy(from, t->db, size);
    if (e == 0)
        e = file_sync_now(t->wal);
    if (e == 0)
        e = file_sync_now(t->db);
    return e;
}

/* The record that the restored copies get: above everything that is or was there. */
static meta_gen record_make(const tarn_meta_options *opt, const target *t)
{
    meta_gen g = {.copies_n = (uint32_t)opt->dirs_n, .write_quorum = (uint32_t)opt->write_quorum};

    tarn_random(g.deployment, sizeof(g.deployment));
    for (size_t i = 0; i < opt->dirs_n; i++) {
        const meta_gen *old = &t[i].old;
        if (old->state == META_GEN_NONE || old->generation < g.generation)
            continue;
        g.generation = old->generation;
        g.copies_n = old->copies_n > g.copies_n ? old->copies_n : g.copies_n;
        memcpy(g.deployment, old->deployment, sizeof(g.deployment));
    }
    g.generation += BACKUP_GENERATION_STEP;
    return g;
}

static tarn_err targets_fill(const tarn_meta_options *opt, target *t, tarn_file *from, uint64_t size)
{
    meta_gen g = record_make(opt, t);
    int e = 0;

    for (size_t i = 0; i < opt->dirs_n && e == 0; i++)
        e = target_fill(opt->fs, &t[i], from, size, &g);
    for (size_t i = 0; i < opt->dirs_n && e == 0; i++) {
        g.counter = t[i].old.counter + 1;
        g.state = opt->unfinished ? META_GEN_UNFINISHED : META_GEN_CLEAN;
        e = meta_gen_write(t[i].gen, &g);
    }
    return e < 0 ? tarn_err_from_errno(-e) : TARN_OK;
}

tarn_err tarn_meta_restore(const tarn_meta_options *opt, tarn_fs *fs, const char *path)
{
    tarn_file *from = NULL;
    uint64_t size = 0;
    target *t = tarn_calloc(opt->dirs_n, sizeof(*t));
    int e = t == NULL ? -ENOMEM : tarn_file_open_sync(fs, path, O_RDONLY | O_CLOEXEC, 0, &from);
    tarn_err err = e < 0 ? tarn_err_from_errno(-e) : file_check(from, &size);

    for (size_t i = 0; i < opt->dirs_n && err == TARN_OK; i++) {
        e = target_open(opt->fs, opt->dirs[i], &t[i]);
        if (e < 0)
            err = tarn_err_from_errno(-e);
    }
    if (err == TARN_OK)
        err = targets_fill(opt, t, from, size);
    for (size_t i = 0; t != NULL && i < opt->dirs_n; i++) {
        tarn_file_unref(t[i].gen);
        tarn_file_unref(t[i].db);
        tarn_file_unref(t[i].wal);
    }
    tarn_file_unref(from);
    tarn_free(t);
    return err;
}

bool tarn_meta_copy_unfinished(tarn_fs *fs, const char *dir)
{
    char path[TARN_PATH_BYTES_MAX];
    tarn_file *f = NULL;
    meta_gen g = {.state = META_GEN_NONE};
    tarn_sb b;

    tarn_sb_init_fixed(&b, path, sizeof(path));
    tarn_sb_fmt(&b, "%s/" META_VFS_GEN_NAME, dir);
    if (b.failed || tarn_file_open_sync(fs, path, O_RDONLY | O_CLOEXEC, 0, &f) != 0)
        return false;
    if (meta_gen_read(f, &g) != 0)
        g.state = META_GEN_NONE;
    tarn_file_unref(f);
    return g.state == META_GEN_UNFINISHED || g.state == META_GEN_REBUILDING;
}

/* ------------------------------------------------------------------ finishing */
typedef struct finish {
    meta_mirror *v;
    int error;
} finish;

/* One generation higher than what says UNFINISHED: where the power goes in between, one finished copy is enough. */
static void step_finish(void *arg)
{
    finish *f = arg;

    f->v->unfinished = false;
    f->error = meta_mirror_mark(f->v, META_GEN_DIRTY, true);
}

tarn_err tarn_meta_finish(tarn_meta *m)
{
    finish f = {.v = meta_vfs_mirror(m->vfs)};
    tarn_err err = meta_committer_call(m->committer, step_finish, &f);

    return err != TARN_OK ? err : f.error != 0 ? TARN_E_QUORUM_WRITE : TARN_OK;
}

/* ------------------------------------------------------------------ numbers */
tarn_err tarn_meta_tx_seq_skip(tarn_meta_tx *tx, uint64_t by)
{
    meta_q q;
    uint64_t next = tx->seq_next + by, limit = next + META_SEQ_RESERVE;

    if (limit > INT64_MAX || by > INT64_MAX)
        return TARN_E_LIMIT;
    tarn_err err = meta_w_begin(&q, tx, META_SQL_SEQ_PUT);
    if (err != TARN_OK)
        return err;
    meta_q_u64(&q, limit);
    err = meta_q_run(&q, NULL);
    if (err == TARN_OK) {
        tx->seq_next = next;
        tx->seq_limit = limit;
    }
    return err;
}
