/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Garbage: data whose last reference went in a transaction that left a garbage row. It is freed when it is old enough and
 * nobody reads it, then its rows go. A crash between the two frees it once more, which is harmless: files are gone, and
 * the space of a segment is never used twice.
 *
 * Invariants:
 *  1. Pinned data is left alone.
 *  2. The garbage row goes last.
 * Threads: one pass at a time (the background fiber, or a test); files are touched on helper threads.
 */
#include "manifest.h"

#include <errno.h>
#include <fcntl.h>

#define GARBAGE_PAGE 64
#define GARBAGE_ARENA_BYTES_MAX (64u << 20)
#define PARTS_PER_TX 256

/* ------------------------------------------------------------------ shards */
typedef struct free_job {
    tarn_store *s;
    const obj_blob *blob;
    uint64_t bytes;
} free_job;

static int free_shard(tarn_store *s, const obj_drive *d, const obj_blob *b, uint64_t record_bytes)
{
    char path[TARN_PATH_BYTES_MAX];
    tarn_file *f = NULL;
    if (!obj_path_blob(d, b, path)) {
        return -ENAMETOOLONG;
    }
    int rc = tarn_file_open_sync(s->fs, path, O_RDWR | O_CLOEXEC, 0, &f);
    if (rc < 0) {
        return rc == -ENOENT ? 0 : rc;
    }
    if (b->cls == OBJ_CLASS_SEGMENT) {
        rc = s->fs->punch(s->fs, tarn_file_handle(f), b->offset, record_bytes);
        rc = rc == -EOPNOTSUPP ? 0 : rc;
    } else { /* cut first: other threads may have the file open, and its space is to be free now */
        rc = s->fs->truncate(s->fs, tarn_file_handle(f), 0);
        if (rc == 0) {
            rc = s->fs->unlink(s->fs, path);
        }
    }
    tarn_file_unref(f);
    return rc == -ENOENT ? 0 : rc;
}

static void free_blob(void *arg)
{
    free_job *j = arg;
    const obj_blob *b = j->blob;
    uint64_t bytes = obj_record_bytes(b);
    for (unsigned i = 0; i < (unsigned)(b->k + b->m); i++) {
        obj_drive *d = obj_drive_at(j->s, b->set, obj_blob_drive(b, i, j->s->n));
        if (!obj_drive_writable(d)) {
            continue; /* the sweeper frees it when the drive is back */
        }
        int rc = free_shard(j->s, d, b, bytes);
        if (rc < 0) {
            obj_drive_error(j->s, d, "freeing data", -rc);
        } else {
            j->bytes += bytes;
        }
    }
}

static tarn_err free_layout(tarn_store *s, tarn_str layout)
{
    obj_blob b;
    if (layout.n == 0) {
        return TARN_OK;
    }
    tarn_err err = obj_blob_unpack(layout, &b);
    if (err || b.set >= s->sets || (unsigned)(b.k + b.m) != s->n) {
        return err ? err : TARN_E_FORMAT;
    }
    free_job job = {.s = s, .blob = &b};
    obj_offload(s, free_blob, &job);
    tarn_metric_add(TARN_M_GARBAGE_FREED_BYTES, (int64_t)job.bytes);
    return TARN_OK;
}

/* ------------------------------------------------------------------ the parts of an upload or a multipart object */
typedef struct parts_job {
    tarn_store *s;
    uint64_t data_id;
    struct {
        uint32_t number;
        uint64_t blob_id;
    } done[PARTS_PER_TX];
    size_t n;
} parts_job;

static tarn_err parts_fn(tarn_meta_tx *tx, void *arg)
{
    parts_job *j = arg;
    tarn_err err = TARN_OK;
    for (size_t i = 0; !err && i < j->n; i++) {
        if (j->done[i].blob_id != 0) {
            err = tarn_meta_inline_delete(tx, j->done[i].blob_id);
        }
        if (!err) {
            err = tarn_meta_part_delete(tx, j->data_id, j->done[i].number);
        }
    }
    return err;
}

static tarn_err parts_flush(parts_job *j)
{
    tarn_err err = j->n > 0 ? tarn_meta_commit(j->s->meta, parts_fn, j) : TARN_OK;
    j->n = 0;
    return err;
}

static tarn_err free_part(void *ctx, const tarn_part_row *row)
{
    parts_job *j = ctx;
    tarn_err err = free_layout(j->s, row->layout);
    if (!err) {
        j->done[j->n].number = row->number;
        j->done[j->n].blob_id = row->blob_id;
        j->n++;
    }
    return !err && j->n == PARTS_PER_TX ? parts_flush(j) : err;
}

static tarn_err free_parts(tarn_store *s, uint64_t data_id)
{
    parts_job *j = tarn_calloc(1, sizeof *j);
    if (!j) {
        return TARN_E_NO_MEMORY;
    }
    j->s = s;
    j->data_id = data_id;
    tarn_err err = obj_scan_parts(s, data_id, free_part, j);
    tarn_err flushed = parts_flush(j);
    tarn_free(j);
    if (!err && !flushed) {
        obj_manifest_drop(s, data_id);
    }
    return err ? err : flushed;
}

/* ------------------------------------------------------------------ rows */
typedef struct page {
    tarn_arena *arena;
    int64_t until_ms;
    tarn_garbage_row rows[GARBAGE_PAGE];
    size_t n;
    uint64_t last_id;
    tarn_err err;
} page;

static bool take_row(void *ctx, const tarn_garbage_row *row)
{
    page *p = ctx;
    p->last_id = row->id;
    if (row->since_ms > p->until_ms) {
        return true;
    }
    p->rows[p->n] = *row;
    if (row->layout.n > 0) {
        p->rows[p->n].layout = tarn_arena_str(p->arena, row->layout);
        if (!p->rows[p->n].layout.p) {
            p->last_id = row->id - 1; /* the next page begins with it */
            p->err = p->n == 0 ? TARN_E_NO_MEMORY : TARN_OK;
            return false;
        }
    }
    p->n++;
    return p->n < GARBAGE_PAGE;
}

typedef struct rows_job {
    uint64_t ids[GARBAGE_PAGE];
    size_t n;
} rows_job;

static tarn_err rows_fn(tarn_meta_tx *tx, void *arg)
{
    rows_job *j = arg;
    tarn_err err = TARN_OK;
    for (size_t i = 0; !err && i < j->n; i++) {
        err = tarn_meta_garbage_delete(tx, j->ids[i]);
    }
    return err;
}

static tarn_err free_page(tarn_store *s, const page *p, obj_stop_fn stop)
{
    rows_job job = {.n = 0};
    tarn_err err = TARN_OK;
    for (size_t i = 0; !err && i < p->n && !(stop && stop(s)); i++) {
        const tarn_garbage_row *row = &p->rows[i];
        if (obj_pinned(s, row->data_id)) {
            continue;
        }
        err = row->layout.n > 0 ? free_layout(s, row->layout) : free_parts(s, row->data_id);
        if (err == TARN_E_FORMAT) { /* unknown form: left where it is, for somebody who knows it */
            tarn_logf(TARN_LOG_ERROR, "garbage of unknown form", "row %llu", (unsigned long long)row->id);
            err = TARN_OK;
        } else if (!err) {
            job.ids[job.n++] = row->id;
        }
    }
    tarn_err gone = job.n > 0 ? tarn_meta_commit(s->meta, rows_fn, &job) : TARN_OK;
    return err ? err : gone;
}

tarn_err obj_garbage_pass(tarn_store *s, int64_t age_ms, obj_stop_fn stop)
{
    page *p = tarn_calloc(1, sizeof *p);
    tarn_err err = TARN_E_NO_MEMORY;
    if (!p || !(p->arena = tarn_arena_new(GARBAGE_ARENA_BYTES_MAX))) {
        goto out;
    }
    p->until_ms = tarn_now_ms() - age_ms;
    do {
        uint64_t after = p->last_id;
        tarn_arena_reset(p->arena);
        p->n = 0;
        p->err = TARN_OK;
        err = tarn_meta_garbage_list(s->meta, after, take_row, p);
        err = err ? err : p->err;
        if (!err) {
            err = free_page(s, p, stop);
        }
    } while (!err && p->n > 0 && !(stop && stop(s)));
out:
    if (p) {
        tarn_arena_free(p->arena);
    }
    tarn_free(p);
    return err;
}
