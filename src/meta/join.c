/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A copy that joins while the store is open: a drive was replaced, or is back.
 *
 *   REBUILDING on disk → from now on all that goes to the databases of the others goes there too → the database is copied,
 *   JOIN_STEP_BYTES between two groups of commits → its sync, the log → DIRTY on disk, and it counts
 *
 * What is written to the database while it is being copied reaches the new copy at once; a later step copies the same again.
 * The log is copied in the last step, where nothing is being written: as far as SQLite has it, each frame proven by the sums
 * that run through it (wal.c). A crash before the end leaves REBUILDING: the next start makes the copy anew.
 *
 * Invariant: a copy counts only when it has, durably, what every other one has.
 * Threads: steps run on the committer's thread; the caller waits for each (a fiber parks).
 */
#include "vfs.h"

#include "frames.h"
#include "page.h"
#include "wal.h"

#include <errno.h>

#define JOIN_STEP_BYTES (2u * 1024 * 1024)
#define JOIN_CHUNK_BYTES (256u * 1024)
#define JOIN_RETRY_MS 10

typedef struct join {
    tarn_meta *m;
    meta_mirror *v;
    meta_copy copy;
    uint64_t off; /* of the database: copied up to here */
    bool done;
    int error; /* negative errno */
    uint8_t *buf;
} join;

static int sync_now(tarn_file *f)
{
    return tarn_file_fs(f)->sync(tarn_file_fs(f), tarn_file_handle(f), false);
}

static int size_now(meta_mirror *v, uint64_t *out)
{
    tarn_fs_stat st = {0};
    size_t n = v->n;
    int e = -EIO;

    for (size_t i = 0; i < n && e != 0; i++) {
        if (!atomic_load(&v->copies[i].good))
            continue;
        e = v->fs->fstat(v->fs, tarn_file_handle(v->copies[i].files[META_DB]), &st);
    }
    *out = st.size_bytes;
    return e;
}

/* n bytes of the database from the others, of pages that pass their check. */
static int take(join *j, size_t n, uint64_t off)
{
    int64_t got = meta_mirror_read(j->v, META_DB, j->buf, n, off, NULL);

    if (got != (int64_t)n)
        return got < 0 ? (int)got : -EIO;
    for (size_t at = 0; at + META_PAGE_BYTES <= n; at += META_PAGE_BYTES) {
        if (meta_page_check(j->buf + at, META_PAGE_BYTES, off + at) && !meta_page_blank(j->buf + at, META_PAGE_BYTES) &&
            meta_pages_right(j->v->pages, j->buf + at, off + at))
            continue;
        got = meta_mirror_read(j->v, META_DB, j->buf + at, META_PAGE_BYTES, off + at, meta_page_check);
        if (got < 0)
            return (int)got;
    }
    return 0;
}

static int put(join *j, meta_which which, const void *p, size_t n, uint64_t off)
{
    int64_t done = tarn_file_pwrite_sync(j->copy.files[which], p, n, off);

    return done == (int64_t)n ? 0 : done < 0 ? (int)done : -EIO;
}

static int copy_range(join *j, uint64_t off, uint64_t end)
{
    int e = 0;

    while (e == 0 && off < end) {
        size_t n = end - off < JOIN_CHUNK_BYTES ? (size_t)(end - off) : JOIN_CHUNK_BYTES;
        e = take(j, n, off);
        if (e == 0)
            e = put(j, META_DB, j->buf, n, off);
        off += n;
    }
    return e;
}

static int put_log(void *ctx, const uint8_t *p, size_t n, uint64_t off)
{
    return put(ctx, META_WAL, p, n, off);
}

/* The log of the others, of which at least the frames that SQLite counts must be right. */
static int copy_log(join *j)
{
    meta_mirror *v = j->v;
    uint64_t frames = meta_vfs_log_frames(j->m->vfs);
    int e = frames > 0 ? -EBADMSG : 0; /* none: it has just started over */

    for (size_t i = 0; i < v->n && e != 0; i++) {
        meta_wal_copies logs = {.n = 0};
        meta_wal_extent log;
        for (size_t k = 0; k < v->n; k++) {
            const meta_copy *c = &v->copies[(i + k) % v->n];
            if (atomic_load(&c->good))
                logs.files[logs.n++] = c->files[META_WAL];
        }
        e = meta_wal_scan(&logs, &log);
        if (e == 0)
            e = log.frames >= frames ? meta_wal_walk(&logs, &log, NULL, put_log, j) : -EBADMSG;
    }
    return e;
}

static int write_record(join *j, meta_gen_state state)
{
    meta_gen *g = &j->copy.gen;

    g->state = state;
    g->generation = j->v->generation;
    g->copies_n = j->v->record_copies;
    g->write_quorum = j->v->record_quorum;
    g->needed = (uint16_t)j->v->write_quorum;
    g->log_over = j->v->log_over;
    __builtin_memcpy(g->deployment, j->v->deployment, META_DEPLOYMENT_BYTES);
    return meta_gen_write(j->copy.gen_file, g);
}

/* ------------------------------------------------------------------ steps, on the committer's thread */
static void step_begin(void *arg)
{
    join *j = arg;
    meta_mirror *v = j->v;

    if (atomic_load(&v->quorum_lost) || v->joining != NULL || v->n >= TARN_META_DRIVES_MAX) {
        j->error = v->joining != NULL ? -EBUSY : -EMFILE;
        return;
    }
    j->copy.index = v->n;
    j->error = write_record(j, META_GEN_REBUILDING);
    for (int w = 0; w < META_WHICH_COUNT && j->error == 0; w++)
        j->error = v->fs->truncate(v->fs, tarn_file_handle(j->copy.files[w]), 0);
    if (j->error == 0) {
        v->join_error = 0;
        v->joining = &j->copy;
    }
}

static void step_last(join *j, uint64_t db_size)
{
    meta_mirror *v = j->v;

    j->error = v->fs->truncate(v->fs, tarn_file_handle(j->copy.files[META_DB]), db_size);
    if (j->error == 0)
        j->error = copy_log(j);
    for (int w = 0; w < META_WHICH_COUNT && j->error == 0; w++)
        j->error = sync_now(j->copy.files[w]);
    if (j->error == 0)
        j->error = write_record(j, META_GEN_DIRTY);
    v->joining = NULL;
    if (j->error == 0)
        j->error = meta_mirror_add(v, &j->copy) == TARN_OK ? 0 : -ENOMEM;
    j->done = j->error == 0;
}

static void step_copy(void *arg)
{
    join *j = arg;
    uint64_t size = 0;

    j->error = atomic_load(&j->v->quorum_lost) ? -EIO : j->v->join_error;
    if (j->error == 0)
        j->error = size_now(j->v, &size);
    if (j->error == 0 && j->off < size) {
        uint64_t end = size - j->off < JOIN_STEP_BYTES ? size : j->off + JOIN_STEP_BYTES;
        j->error = copy_range(j, j->off, end);
        j->off = end;
    } else if (j->error == 0) {
        step_last(j, size);
    }
}

/* A copy of the same folder that has gone out holds its lock still. */
static void step_unlock(void *arg)
{
    join *j = arg;

    for (size_t i = 0; i < j->v->n; i++) {
        meta_copy *c = &j->v->copies[i];
        if (atomic_load(&c->good) || !tarn_str_eqc(tarn_str_of(c->dir), j->copy.dir))
            continue;
        tarn_file_unref(c->lock_file);
        c->lock_file = NULL;
    }
}

static void step_abandon(void *arg)
{
    join *j = arg;

    if (j->v->joining == &j->copy)
        j->v->joining = NULL;
}

/* The queue may be full: that is no reason to give up. */
static tarn_err call(join *j, void (*step)(void *arg))
{
    tarn_err err;

    while ((err = meta_committer_call(j->m->committer, step, j)) == TARN_E_SLOW_DOWN)
        tarn_sleep_ms(JOIN_RETRY_MS);
    return err;
}

/* ------------------------------------------------------------------ for others */
tarn_err tarn_meta_copy_join(tarn_meta *m, const char *dir)
{
    join *j = tarn_calloc(1, sizeof(*j));
    tarn_err err = TARN_E_NO_MEMORY;

    if (m->read_only || j == NULL) {
        tarn_free(j);
        return m->read_only ? TARN_E_QUORUM_WRITE : err;
    }
    j->m = m;
    j->v = meta_vfs_mirror(m->vfs);
    j->buf = tarn_malloc(JOIN_CHUNK_BYTES);
    j->copy.dir = tarn_strdup(tarn_str_of(dir));
    if (j->buf == NULL || j->copy.dir == NULL)
        goto cleanup;
    err = call(j, step_unlock);
    if (err == TARN_OK)
        j->error = meta_copy_open_files(j->v->fs, &j->copy);
    if (err == TARN_OK && j->error == 0)
        err = call(j, step_begin);
    while (err == TARN_OK && j->error == 0 && !j->done)
        err = call(j, step_copy);
    if (!j->done) {
        tarn_err left = call(j, step_abandon);
        TARN_ASSERT(left == TARN_OK);
        err = err != TARN_OK ? err : tarn_err_from_errno(-j->error);
        tarn_log(TARN_LOG_WARN, "metadata copy cannot join", "folder", dir, "error", tarn_err_get(err)->name, NULL);
    } else {
        tarn_logf(TARN_LOG_INFO, "metadata copy joined", "%s: %llu bytes, %zu copies", dir, (unsigned long long)j->off,
                  atomic_load(&j->v->good_n));
    }
cleanup:
    if (!j->done)
        meta_copy_close_files(&j->copy);
    tarn_free(j->buf);
    tarn_free(j);
    return err;
}

typedef struct drop {
    meta_mirror *v;
    size_t index;
    int error;
} drop;

static void step_drop(void *arg)
{
    drop *d = arg;

    d->error = meta_mirror_drop(d->v, d->index);
}

tarn_err tarn_meta_copy_drop(tarn_meta *m, size_t dir_index)
{
    drop d = {.v = meta_vfs_mirror(m->vfs), .index = dir_index};

    TARN_ASSERT(dir_index < d.v->n);
    tarn_err err = meta_committer_call(m->committer, step_drop, &d);
    return err != TARN_OK ? err : d.error != 0 ? TARN_E_QUORUM_WRITE : TARN_OK;
}

size_t tarn_meta_copies_n(const tarn_meta *m)
{
    return meta_vfs_mirror(m->vfs)->n;
}

bool tarn_meta_copy_good(const tarn_meta *m, size_t dir_index)
{
    const meta_mirror *v = meta_vfs_mirror(m->vfs);

    TARN_ASSERT(dir_index < v->n);
    return atomic_load(&v->copies[dir_index].good);
}

unsigned tarn_meta_copy_wrong(const tarn_meta *m, size_t dir_index)
{
    const meta_mirror *v = meta_vfs_mirror(m->vfs);

    TARN_ASSERT(dir_index < v->n);
    return atomic_load_explicit(&v->copies[dir_index].wrong, memory_order_relaxed);
}

bool tarn_meta_copy_behind(const tarn_meta *m, size_t dir_index)
{
    const meta_mirror *v = meta_vfs_mirror(m->vfs);

    TARN_ASSERT(dir_index < v->n);
    return v->copies[dir_index].behind;
}
