/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A walk over versions that can be told where to begin, for work that is interrupted and goes on later: bucket by bucket in
 * the order of names, key by key, newest version first, page by page, so that no read is held while the walker waits.
 *
 * Invariant: pos names the last version that fn has been called for; a walk from there on calls fn for what comes behind it.
 * Memory: a page's rows lie in an arena that is reset with the next page. Threads: any; fn may park.
 */
#include "upkeep.h"

#include <string.h>

static tarn_err read_page(const obj_walk *w, uint64_t bucket_id, obj_version_page *p)
{
    tarn_list_query from = {.bucket_id = bucket_id, .prefix = w->prefix, .after = {w->pos.key, w->pos.key_n}, .after_seq = w->pos.seq};
    return obj_version_page_read(w->s, &from, p);
}

static tarn_err walk_bucket(obj_walk *w, const tarn_bucket_row *bucket, obj_version_page *p)
{
    do {
        tarn_err err = read_page(w, bucket->id, p);
        for (size_t i = 0; !err && i < p->n; i++) {
            const tarn_version_row *row = &p->rows[i];
            err = w->fn(w->ctx, bucket, row);
            if (!err) {
                memcpy(w->pos.key, row->key.p, row->key.n);
                w->pos.key_n = row->key.n;
                w->pos.seq = row->seq;
            }
        }
        if (err) {
            return err;
        }
        if (tarn_fiber_current()) {
            tarn_fiber_yield();
        }
    } while (p->n > 0);
    return TARN_OK;
}

typedef struct next_bucket {
    tarn_arena *arena;
    tarn_bucket_row row;
    bool found, failed;
} next_bucket;

static bool take_bucket(void *ctx, const tarn_bucket_row *row)
{
    next_bucket *b = ctx;
    b->row = *row;
    b->found = true;
    b->failed = !obj_keep_str(b->arena, &b->row.name) || !obj_keep_str(b->arena, &b->row.owner) ||
                !obj_keep_str(b->arena, &b->row.warehouse_uuid) || !obj_keep_str(b->arena, &b->row.warehouse_properties);
    return false;
}

/* The bucket that pos is in, or the first one behind it. */
static tarn_err find_bucket(obj_walk *w, tarn_arena *a, next_bucket *out)
{
    tarn_str at = {w->pos.bucket, w->pos.bucket_n};
    *out = (next_bucket){.arena = a};
    if (w->bucket.n > 0) {
        out->found = w->pos.bucket_n == 0 || tarn_str_eq(at, w->bucket);
        return out->found ? tarn_meta_bucket_get(w->s->meta, NULL, w->bucket, a, &out->row) : TARN_OK;
    }
    tarn_err err = at.n > 0 ? tarn_meta_bucket_get(w->s->meta, NULL, at, a, &out->row) : TARN_E_NO_SUCH_BUCKET;
    out->found = err == TARN_OK;
    if (err == TARN_E_NO_SUCH_BUCKET) {
        w->pos.key_n = 0;
        w->pos.seq = 0;
        err = tarn_meta_bucket_list(w->s->meta, NULL, at, TARN_STR(""), false, take_bucket, out);
    }
    return err ? err : out->failed ? TARN_E_NO_MEMORY : TARN_OK;
}

/* The first bucket behind the one that is done. */
static tarn_err leave_bucket(obj_walk *w, tarn_arena *a, next_bucket *out)
{
    tarn_str at = {w->pos.bucket, w->pos.bucket_n};
    *out = (next_bucket){.arena = a};
    w->pos.key_n = 0;
    w->pos.seq = 0;
    if (w->bucket.n > 0) {
        return TARN_OK;
    }
    tarn_err err = tarn_meta_bucket_list(w->s->meta, NULL, at, TARN_STR(""), false, take_bucket, out);
    return err ? err : out->failed ? TARN_E_NO_MEMORY : TARN_OK;
}

tarn_err obj_walk_run(obj_walk *w)
{
    next_bucket b;
    obj_version_page *p = obj_version_page_new();
    tarn_arena *a = tarn_arena_new(4 * TARN_BUCKET_CONFIG_BYTES_MAX);
    tarn_err err = TARN_E_NO_MEMORY;
    if (p && a) {
        err = find_bucket(w, a, &b);
    }
    while (!err && b.found) {
        TARN_ASSERT(b.row.name.n <= TARN_BUCKET_NAME_BYTES_MAX);
        memcpy(w->pos.bucket, b.row.name.p, b.row.name.n);
        w->pos.bucket_n = b.row.name.n;
        err = walk_bucket(w, &b.row, p);
        if (!err) {
            tarn_arena_reset(a);
            err = leave_bucket(w, a, &b);
        }
    }
    tarn_arena_free(a);
    obj_version_page_free(p);
    return err;
}

/* ------------------------------------------------------------------ counting */
#define COUNT_PAGE 4096

typedef struct counting {
    tarn_store *s;
    tarn_str prefix;
    uint64_t n, page_n;
    char key[TARN_KEY_BYTES_MAX + 1];
    size_t key_n;
    uint64_t seq;
} counting;

static bool count_version(void *ctx, const tarn_version_row *row)
{
    counting *c = ctx;
    if (++c->page_n < COUNT_PAGE) {
        return true;
    }
    memcpy(c->key, row->key.p, row->key.n);
    c->key_n = row->key.n;
    c->seq = row->seq;
    return false;
}

static tarn_err count_bucket(void *ctx, uint64_t bucket_id)
{
    counting *c = ctx;
    c->key_n = 0;
    c->seq = 0;
    do {
        tarn_list_query q = {
            .bucket_id = bucket_id, .prefix = c->prefix, .after = {c->key, c->key_n}, .after_seq = c->seq, .versions = true};
        tarn_list_sink sink = {count_version, obj_no_prefix, c};
        c->page_n = 0;
        tarn_err err = tarn_meta_list(c->s->meta, &q, &sink);
        if (err) {
            return err;
        }
        c->n += c->page_n;
        if (tarn_fiber_current()) {
            tarn_fiber_yield();
        }
    } while (c->page_n == COUNT_PAGE);
    return TARN_OK;
}

tarn_err obj_walk_count(tarn_store *s, tarn_str bucket, tarn_str prefix, uint64_t *out)
{
    counting *c = tarn_calloc(1, sizeof *c);
    tarn_arena *a = tarn_arena_new(2 * TARN_BUCKET_CONFIG_BYTES_MAX);
    tarn_bucket_row row;
    tarn_err err = TARN_E_NO_MEMORY;
    if (c && a) {
        *c = (counting){.s = s, .prefix = prefix};
        err = bucket.n > 0 ? tarn_meta_bucket_get(s->meta, NULL, bucket, a, &row) : obj_scan_buckets(s, count_bucket, c);
    }
    if (!err && bucket.n > 0) {
        err = count_bucket(c, row.id);
    }
    if (!err) {
        *out = c->n;
    }
    tarn_arena_free(a);
    tarn_free(c);
    return err;
}
