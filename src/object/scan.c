/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Walking over everything that there is, for upkeep: page by page, so that no read is held while the walker waits, and the
 * loop's other fibers get their turn between pages.
 *
 * Invariant: a version that is there from the beginning of a walk to its end is seen (once, unless it moves within its key).
 * Memory: a page's rows are in an arena that is reset with the next page. Threads: any.
 */
#include "upkeep.h"

#include <string.h>

#define PAGE_ARENA_BYTES_MAX (64u << 20)
#define BUCKETS_PAGE 64

void obj_offload(tarn_store *s, void (*fn)(void *arg), void *arg)
{
    if (s->fs->real && tarn_fiber_current()) {
        tarn_fiber_offload(fn, arg);
    } else {
        fn(arg);
    }
}

bool obj_keep_str(tarn_arena *a, tarn_str *s)
{
    if (s->n > 0) {
        *s = tarn_arena_str(a, *s);
    }
    return s->n == 0 || s->p;
}

bool obj_keep_version(tarn_arena *a, tarn_version_row *r)
{
    return obj_keep_str(a, &r->key) && obj_keep_str(a, &r->etag) && obj_keep_str(a, &r->layout) && obj_keep_str(a, &r->attrs) &&
           obj_keep_str(a, &r->tags);
}

/* ------------------------------------------------------------------ versions */
static bool take_version(void *ctx, const tarn_version_row *row)
{
    obj_version_page *p = ctx;
    tarn_version_row *r = &p->rows[p->n];
    *r = *row;
    if (!obj_keep_version(p->arena, r)) {
        p->err = p->n == 0 ? TARN_E_NO_MEMORY : TARN_OK; /* a page may be cut short, but not to nothing */
        return false;
    }
    p->n++;
    return p->n < OBJ_PAGE_ROWS;
}

bool obj_no_prefix(void *ctx, tarn_str prefix)
{
    (void)ctx;
    (void)prefix;
    return true;
}

obj_version_page *obj_version_page_new(void)
{
    obj_version_page *p = tarn_calloc(1, sizeof *p);
    if (p && !(p->arena = tarn_arena_new(PAGE_ARENA_BYTES_MAX))) {
        tarn_free(p);
        p = NULL;
    }
    return p;
}

void obj_version_page_free(obj_version_page *p)
{
    if (p) {
        tarn_arena_free(p->arena);
    }
    tarn_free(p);
}

tarn_err obj_version_page_read(tarn_store *s, const tarn_list_query *from, obj_version_page *p)
{
    tarn_list_query q = *from;
    tarn_list_sink sink = {take_version, obj_no_prefix, p};
    q.versions = true;
    q.columns_all = true;
    tarn_arena_reset(p->arena);
    p->n = 0;
    p->err = TARN_OK;
    tarn_err err = tarn_meta_list(s->meta, &q, &sink);
    return err ? err : p->err;
}

typedef struct scan {
    tarn_store *s;
    obj_stop_fn stop;
    tarn_err (*fn)(void *ctx, const tarn_version_row *row);
    void *ctx;
    obj_version_page *page;
} scan;

static tarn_err scan_bucket(scan *sc, uint64_t bucket_id)
{
    char key[TARN_KEY_BYTES_MAX];
    tarn_sb after;
    uint64_t seq = 0;
    tarn_sb_init_fixed(&after, key, sizeof key);
    tarn_sb_reset(&after);
    do {
        tarn_list_query from = {.bucket_id = bucket_id, .after = tarn_sb_view(&after), .after_seq = seq};
        tarn_err err = obj_version_page_read(sc->s, &from, sc->page);
        for (size_t i = 0; !err && i < sc->page->n; i++) {
            err = sc->stop && sc->stop(sc->s) ? TARN_E_CANCELED : sc->fn(sc->ctx, &sc->page->rows[i]);
        }
        if (err) {
            return err;
        }
        if (sc->page->n > 0) {
            const tarn_version_row *last = &sc->page->rows[sc->page->n - 1];
            tarn_sb_reset(&after);
            tarn_sb_str(&after, last->key);
            seq = last->seq;
        }
        if (tarn_fiber_current()) {
            tarn_fiber_yield();
        }
    } while (sc->page->n > 0);
    return TARN_OK;
}

typedef struct bucket_page {
    uint64_t ids[BUCKETS_PAGE];
    size_t n;
    char last[TARN_BUCKET_NAME_BYTES_MAX + 1];
    size_t last_n;
} bucket_page;

static bool take_bucket(void *ctx, const tarn_bucket_row *row)
{
    bucket_page *p = ctx;
    tarn_sb b;
    tarn_sb_init_fixed(&b, p->last, sizeof p->last);
    tarn_sb_str(&b, row->name);
    p->last_n = b.n;
    p->ids[p->n++] = row->id;
    return p->n < BUCKETS_PAGE;
}

tarn_err obj_scan_buckets(tarn_store *s, tarn_err (*fn)(void *ctx, uint64_t bucket_id), void *ctx)
{
    bucket_page page = {0};
    do {
        page.n = 0;
        char after_mem[TARN_BUCKET_NAME_BYTES_MAX + 1];
        tarn_sb after;
        tarn_sb_init_fixed(&after, after_mem, sizeof after_mem);
        tarn_sb_bytes(&after, page.last, page.last_n);
        tarn_err err = tarn_meta_bucket_list(s->meta, NULL, tarn_sb_view(&after), TARN_STR(""), false, take_bucket, &page);
        for (size_t i = 0; !err && i < page.n; i++) {
            err = fn(ctx, page.ids[i]);
        }
        if (err) {
            return err;
        }
    } while (page.n == BUCKETS_PAGE);
    return TARN_OK;
}

static tarn_err scan_one(void *ctx, uint64_t bucket_id)
{
    return scan_bucket(ctx, bucket_id);
}

tarn_err obj_scan_versions(tarn_store *s, obj_stop_fn stop, tarn_err (*fn)(void *ctx, const tarn_version_row *row), void *ctx)
{
    obj_version_page *page = obj_version_page_new();
    scan sc = {s, stop, fn, ctx, page};
    tarn_err err = page ? obj_scan_buckets(s, scan_one, &sc) : TARN_E_NO_MEMORY;
    obj_version_page_free(page);
    return err;
}

/* ------------------------------------------------------------------ uploads */
#define UPLOADS_PAGE 256
typedef struct upload_page {
    tarn_store *s;
    tarn_err (*fn)(void *ctx, uint64_t upload_id);
    void *ctx;
    uint64_t ids[UPLOADS_PAGE];
    size_t n;
    char key[TARN_KEY_BYTES_MAX];
    size_t key_n;
    uint64_t last_id;
} upload_page;

static bool take_upload(void *ctx, const tarn_upload_row *row)
{
    upload_page *p = ctx;
    TARN_ASSERT(row->key.n <= sizeof p->key);
    p->ids[p->n++] = row->upload_id;
    memcpy(p->key, row->key.p, row->key.n);
    p->key_n = row->key.n;
    p->last_id = row->upload_id;
    return p->n < UPLOADS_PAGE;
}

static tarn_err scan_uploads_of(void *ctx, uint64_t bucket_id)
{
    upload_page *p = ctx;
    tarn_err err = TARN_OK;
    p->key_n = 0;
    p->last_id = 0;
    do {
        char after[TARN_KEY_BYTES_MAX];
        size_t after_n = p->key_n;
        memcpy(after, p->key, after_n);
        p->n = 0;
        err = tarn_meta_upload_list(p->s->meta, bucket_id, TARN_STR(""), (tarn_str){after, after_n}, p->last_id, take_upload, p);
        for (size_t i = 0; !err && i < p->n; i++) {
            err = p->fn(p->ctx, p->ids[i]);
        }
    } while (!err && p->n == UPLOADS_PAGE);
    return err;
}

tarn_err obj_scan_uploads(tarn_store *s, tarn_err (*fn)(void *ctx, uint64_t upload_id), void *ctx)
{
    upload_page *p = tarn_calloc(1, sizeof *p);
    if (!p) {
        return TARN_E_NO_MEMORY;
    }
    p->s = s;
    p->fn = fn;
    p->ctx = ctx;
    tarn_err err = obj_scan_buckets(s, scan_uploads_of, p);
    tarn_free(p);
    return err;
}

typedef struct by_seq {
    tarn_arena *arena;
    tarn_str key;
    uint64_t seq;
    tarn_version_row *out;
    tarn_err err;
} by_seq;

static bool take_seq(void *ctx, const tarn_version_row *row)
{
    by_seq *b = ctx;
    if (row->seq == b->seq && tarn_str_eq(row->key, b->key)) {
        tarn_version_row r = *row;
        b->err = obj_keep_version(b->arena, &r) ? TARN_OK : TARN_E_NO_MEMORY;
        *b->out = r;
    }
    return false;
}

tarn_err obj_version_by_seq(tarn_store *s, uint64_t bucket_id, tarn_str key, uint64_t seq, tarn_arena *a, tarn_version_row *out)
{
    by_seq b = {a, key, seq, out, TARN_E_NO_SUCH_VERSION};
    tarn_list_query q = {.bucket_id = bucket_id, .prefix = key, .after = key, .after_seq = seq + 1, .versions = true, .columns_all = true};
    tarn_list_sink sink = {take_seq, obj_no_prefix, &b};
    tarn_err err = tarn_meta_list(s->meta, &q, &sink);
    return err ? err : b.err;
}

/* ------------------------------------------------------------------ parts */
typedef struct part_page {
    tarn_arena *arena;
    tarn_part_row rows[OBJ_PAGE_ROWS];
    size_t n;
    tarn_err err;
} part_page;

static bool take_part(void *ctx, const tarn_part_row *row)
{
    part_page *p = ctx;
    tarn_part_row *r = &p->rows[p->n];
    *r = *row;
    if (!obj_keep_str(p->arena, &r->etag) || !obj_keep_str(p->arena, &r->attrs) || !obj_keep_str(p->arena, &r->layout)) {
        p->err = p->n == 0 ? TARN_E_NO_MEMORY : TARN_OK;
        return false;
    }
    p->n++;
    return p->n < OBJ_PAGE_ROWS;
}

tarn_err obj_scan_parts(tarn_store *s, uint64_t data_id, tarn_err (*fn)(void *ctx, const tarn_part_row *row), void *ctx)
{
    part_page *page = tarn_calloc(1, sizeof *page);
    tarn_err err = TARN_E_NO_MEMORY;
    uint32_t after = 0;
    if (!page || !(page->arena = tarn_arena_new(PAGE_ARENA_BYTES_MAX))) {
        goto out;
    }
    do {
        tarn_arena_reset(page->arena);
        page->n = 0;
        page->err = TARN_OK;
        err = tarn_meta_part_list(s->meta, NULL, data_id, after, true, take_part, page);
        err = err ? err : page->err;
        for (size_t i = 0; !err && i < page->n; i++) {
            after = page->rows[i].number;
            err = fn(ctx, &page->rows[i]);
        }
    } while (!err && page->n > 0);
out:
    if (page) {
        tarn_arena_free(page->arena);
    }
    tarn_free(page);
    return err;
}
