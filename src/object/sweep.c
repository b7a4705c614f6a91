/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sweeper: frees what no row refers to, that is what crashes, lost races and drives that were away have left.
 *
 * Files: each name says whose data it is; it goes when that data is not referenced, not pinned, and old enough.
 * Segments: those that nobody may append to any more are candidates. One walk over uploads, versions and, last, garbage
 * marks the pages that live records touch; then the other pages are punched out, a segment without any is removed, and
 * what was allocated behind the last record is given back.
 *
 * Invariants:
 *  1. A candidate gets no new references: new records go to open segments only, and parts keep their place when their
 *     upload becomes a version. Hence the order of the walk: what moves (upload → version → garbage) moves forward in it.
 *  2. An error anywhere in the walk ends the pass before anything is freed.
 * Threads: one pass at a time; folders and files are touched on helper threads.
 */
#include "private.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#define SEGMENTS_PER_PASS 4096
#define NAMES_PER_FOLDER_MAX (1u << 20)
#define PARTS_FOLDERS 64

/* ------------------------------------------------------------------ segments: candidates */
typedef struct candidate {
    uint64_t id;
    uint8_t *live; /* bit per page */
    size_t live_n; /* bytes of live */
    uint64_t end;  /* of the last live record */
    bool any;
} candidate;

typedef struct sweep {
    tarn_store *s;
    obj_stop_fn stop;
    int64_t age_ms;
    candidate *c; /* in the order of ids once they are all listed */
    size_t c_n;
} sweep;

static bool take_segment(void *ctx, const char *name, bool is_dir)
{
    sweep *w = ctx;
    uint64_t id = 0;
    if (is_dir || strlen(name) != 16 || !tarn_hex_to_u64(tarn_str_of(name), &id)) {
        return true;
    }
    for (size_t i = 0; i < w->c_n; i++) {
        if (w->c[i].id == id) {
            return true;
        }
    }
    if (w->c_n < SEGMENTS_PER_PASS && !obj_seg_in_use(w->s, id)) {
        w->c[w->c_n++] = (candidate){.id = id};
    }
    return w->c_n < SEGMENTS_PER_PASS;
}

static void list_segments(void *arg)
{
    sweep *w = arg;
    char path[TARN_PATH_BYTES_MAX];
    for (size_t i = 0; i < w->s->drives_n; i++) {
        if (obj_drive_writable(&w->s->drives[i]) && obj_path(&w->s->drives[i], "segments", path)) {
            (void)w->s->fs->list(w->s->fs, path, take_segment, w); /* a drive that fails here is met again when it is written */
        }
    }
}

static int by_id(const void *a, const void *b)
{
    uint64_t x = ((const candidate *)a)->id, y = ((const candidate *)b)->id;
    return x < y ? -1 : x > y ? 1 : 0;
}

static candidate *find_candidate(sweep *w, uint64_t id)
{
    candidate wanted = {.id = id};
    return bsearch(&wanted, w->c, w->c_n, sizeof wanted, by_id);
}

/* ------------------------------------------------------------------ segments: the walk */
static tarn_err mark_pages(candidate *c, uint64_t from, uint64_t to)
{
    size_t last = (size_t)((to - 1) / OBJ_PAGE_BYTES);
    if (last / 8 >= c->live_n) {
        size_t n = last / 8 + 4096;
        uint8_t *more = tarn_realloc(c->live, n);
        if (!more) {
            return TARN_E_NO_MEMORY;
        }
        memset(more + c->live_n, 0, n - c->live_n);
        c->live = more;
        c->live_n = n;
    }
    for (size_t p = (size_t)(from / OBJ_PAGE_BYTES); p <= last; p++) {
        c->live[p / 8] |= (uint8_t)(1u << (p % 8));
    }
    c->any = true;
    c->end = to > c->end ? to : c->end;
    return TARN_OK;
}

static tarn_err mark_layout(sweep *w, tarn_str layout)
{
    obj_blob b;
    if (obj_layout_class(layout) != OBJ_CLASS_SEGMENT) {
        return TARN_OK;
    }
    tarn_err err = obj_blob_unpack(layout, &b);
    if (err) {
        return err;
    }
    candidate *c = find_candidate(w, b.segment);
    return c ? mark_pages(c, b.offset, b.offset + obj_record_bytes(&b)) : TARN_OK;
}

static tarn_err mark_part(void *ctx, const tarn_part_row *row)
{
    return mark_layout(ctx, row->layout);
}

static tarn_err mark_version(void *ctx, const tarn_version_row *row)
{
    sweep *w = ctx;
    return row->parts_n > 0 ? obj_scan_parts(w->s, row->data_id, mark_part, w) : mark_layout(w, row->layout);
}

#define IDS_PER_PAGE 256
typedef struct id_page {
    uint64_t ids[IDS_PER_PAGE];
    size_t n;
    uint64_t last_id;
    sweep *w;
    tarn_err err;
} id_page;

static tarn_err mark_upload(void *ctx, uint64_t upload_id)
{
    sweep *w = ctx;
    return obj_scan_parts(w->s, upload_id, mark_part, w);
}

static bool take_garbage(void *ctx, const tarn_garbage_row *row)
{
    id_page *p = ctx;
    p->last_id = row->id;
    if (row->layout.n > 0) {
        p->err = mark_layout(p->w, row->layout);
    } else {
        p->ids[p->n++] = row->data_id;
    }
    return p->err == TARN_OK && p->n < IDS_PER_PAGE;
}

static tarn_err mark_garbage(sweep *w)
{
    id_page *p = tarn_calloc(1, sizeof *p);
    tarn_err err = p ? TARN_OK : TARN_E_NO_MEMORY;
    while (!err) {
        p->w = w;
        p->n = 0;
        err = tarn_meta_garbage_list(w->s->meta, p->last_id, take_garbage, p);
        err = err ? err : p->err;
        for (size_t i = 0; !err && i < p->n; i++) {
            err = obj_scan_parts(w->s, p->ids[i], mark_part, w);
        }
        if (p->n < IDS_PER_PAGE) {
            break;
        }
    }
    tarn_free(p);
    return err;
}

/* ------------------------------------------------------------------ segments: freeing */
static int punch_dead(sweep *w, const candidate *c, tarn_file *f, uint64_t size)
{
    uint64_t pages = size / OBJ_PAGE_BYTES, from = 0;
    int rc = 0;
    for (uint64_t p = 0; rc == 0 && p <= pages; p++) {
        bool dead = p < pages && (p / 8 >= c->live_n || !(c->live[p / 8] & (1u << (p % 8))));
        if (dead) {
            continue;
        }
        if (p > from) {
            rc = w->s->fs->punch(w->s->fs, tarn_file_handle(f), from * OBJ_PAGE_BYTES, (p - from) * OBJ_PAGE_BYTES);
        }
        from = p + 1;
    }
    return rc == -EOPNOTSUPP ? 0 : rc;
}

static int sweep_segment(sweep *w, const candidate *c, const obj_drive *d)
{
    char path[TARN_PATH_BYTES_MAX];
    tarn_file *f = NULL;
    tarn_fs_stat st;
    if (!obj_path_segment(d, c->id, path)) {
        return 0;
    }
    int rc = tarn_file_open_sync(w->s->fs, path, O_RDWR | O_CLOEXEC, 0, &f);
    if (rc < 0) {
        return rc == -ENOENT ? 0 : rc;
    }
    rc = w->s->fs->fstat(w->s->fs, tarn_file_handle(f), &st);
    if (rc == 0 && !c->any) {
        rc = w->s->fs->truncate(w->s->fs, tarn_file_handle(f), 0); /* others may have it open */
        rc = rc == 0 ? w->s->fs->unlink(w->s->fs, path) : rc;
    } else if (rc == 0) {
        if (st.size_bytes > c->end) {
            rc = w->s->fs->truncate(w->s->fs, tarn_file_handle(f), c->end);
            st.size_bytes = c->end;
        }
        rc = rc == 0 ? punch_dead(w, c, f, st.size_bytes) : rc;
    }
    tarn_file_unref(f);
    return rc;
}

static void sweep_segments(void *arg)
{
    sweep *w = arg;
    for (size_t i = 0; i < w->c_n; i++) {
        for (size_t j = 0; j < w->s->drives_n; j++) {
            obj_drive *d = &w->s->drives[j];
            int rc = obj_drive_writable(d) ? sweep_segment(w, &w->c[i], d) : 0;
            if (rc < 0) {
                obj_drive_error(w->s, d, "sweeping a segment", -rc);
            }
        }
    }
}

static tarn_err pass_segments(sweep *w)
{
    w->c = tarn_calloc(SEGMENTS_PER_PASS, sizeof *w->c);
    if (!w->c) {
        return TARN_E_NO_MEMORY;
    }
    obj_offload(w->s, list_segments, w);
    tarn_err err = TARN_OK;
    if (w->c_n > 0) {
        qsort(w->c, w->c_n, sizeof *w->c, by_id);
        err = obj_scan_uploads(w->s, mark_upload, w);
        if (!err) {
            err = obj_scan_versions(w->s, w->stop, mark_version, w);
        }
        if (!err) {
            err = mark_garbage(w);
        }
        if (!err) {
            obj_offload(w->s, sweep_segments, w);
        }
    }
    for (size_t i = 0; i < w->c_n; i++) {
        tarn_free(w->c[i].live);
    }
    tarn_free(w->c);
    w->c = NULL;
    return err;
}

/* ------------------------------------------------------------------ files */
typedef struct name {
    uint64_t data_id, blob_id;
    uint32_t part;
    bool dead;
} name;

typedef struct folder {
    sweep *w;
    const obj_drive *d;
    unsigned number;
    name *names;
    size_t n, cap;
    int64_t before_ms;
} folder;

static bool take_name(void *ctx, const char *text, bool is_dir)
{
    folder *f = ctx;
    name nm = {0};
    if (is_dir || !obj_parse_blob_name(text, &nm.data_id, &nm.part, &nm.blob_id)) {
        return true;
    }
    if (f->n == f->cap) {
        size_t cap = f->cap ? f->cap * 2 : 256;
        name *more = cap <= NAMES_PER_FOLDER_MAX ? tarn_realloc(f->names, cap * sizeof *more) : NULL;
        if (!more) {
            return false; /* the rest has its turn in the next pass */
        }
        f->names = more;
        f->cap = cap;
    }
    f->names[f->n++] = nm;
    return true;
}

static bool folder_path(const folder *f, char out[TARN_PATH_BYTES_MAX])
{
    obj_blob b = {.blob_id = f->number};
    return obj_path_blob_dir(f->d, &b, out);
}

static void list_folder(void *arg)
{
    folder *f = arg;
    char path[TARN_PATH_BYTES_MAX];
    if (folder_path(f, path)) {
        (void)f->w->s->fs->list(f->w->s->fs, path, take_name, f);
    }
}

static void unlink_dead(void *arg)
{
    folder *f = arg;
    tarn_fs *fs = f->w->s->fs;
    char path[TARN_PATH_BYTES_MAX];
    for (size_t i = 0; i < f->n; i++) {
        obj_blob b = {.cls = OBJ_CLASS_FILE, .data_id = f->names[i].data_id, .blob_id = f->names[i].blob_id, .part = f->names[i].part};
        tarn_fs_stat st;
        if (f->names[i].dead && obj_path_blob(f->d, &b, path) && fs->stat(fs, path, &st) == 0 && st.mtime_ms <= f->before_ms &&
            fs->unlink(fs, path) == 0) {
            tarn_metric_add(TARN_M_GARBAGE_FREED_BYTES, (int64_t)st.size_bytes);
        }
    }
}

/* Is the file of this name in use? Order matters: an upload unpins after its row is there. */
static tarn_err name_live(tarn_store *s, const name *nm, tarn_arena *a, bool *live)
{
    *live = true;
    if (obj_pinned(s, nm->data_id)) {
        return TARN_OK;
    }
    tarn_err err = tarn_meta_data_referenced(s->meta, nm->data_id, live);
    if (err || !*live || nm->part == 0) {
        return err;
    }
    tarn_part_row row;
    obj_blob b;
    tarn_arena_reset(a);
    err = tarn_meta_part_get(s->meta, NULL, nm->data_id, nm->part, a, &row);
    if (err == TARN_OK && obj_blob_unpack(row.layout, &b) == TARN_OK && b.blob_id == nm->blob_id) {
        return TARN_OK;
    }
    if (err && err != TARN_E_INVALID_PART) {
        return err;
    }
    return tarn_meta_data_referenced(s->meta, nm->blob_id, live); /* a replaced part that waits as garbage */
}

static tarn_err sweep_folder(folder *f, tarn_arena *a)
{
    tarn_store *s = f->w->s;
    bool any = false;
    f->n = 0;
    obj_offload(s, list_folder, f);
    for (size_t i = 0; i < f->n; i++) {
        bool live = true;
        tarn_err err = name_live(s, &f->names[i], a, &live);
        if (err) {
            return err;
        }
        f->names[i].dead = !live;
        any = any || !live;
    }
    if (any) {
        obj_offload(s, unlink_dead, f);
    }
    if (tarn_fiber_current()) {
        tarn_fiber_yield();
    }
    return TARN_OK;
}

static tarn_err pass_files(sweep *w)
{
    folder f = {.w = w, .before_ms = tarn_now_ms() - w->age_ms};
    tarn_arena *a = tarn_arena_new(16u << 20);
    tarn_err err = a ? TARN_OK : TARN_E_NO_MEMORY;
    for (size_t i = 0; !err && i < w->s->drives_n; i++) {
        f.d = &w->s->drives[i];
        for (f.number = 0; !err && f.number < PARTS_FOLDERS && obj_drive_writable(f.d); f.number++) {
            err = w->stop && w->stop(w->s) ? TARN_E_CANCELED : sweep_folder(&f, a);
        }
    }
    tarn_arena_free(a);
    tarn_free(f.names);
    return err;
}

tarn_err obj_sweep_pass(tarn_store *s, int64_t age_ms, obj_stop_fn stop)
{
    sweep w = {.s = s, .stop = stop, .age_ms = age_ms};
    tarn_err err = pass_segments(&w);
    return err ? err : pass_files(&w);
}

tarn_err tarn_store_collect_garbage(tarn_store *s, int64_t older_than_ms)
{
    tarn_err err = obj_garbage_pass(s, older_than_ms, NULL);
    return err ? err : obj_sweep_pass(s, older_than_ms, NULL);
}
