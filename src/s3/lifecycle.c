/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Carries out lifecycle rules: one fiber walks all buckets that have a configuration, once a round.
 *
 * A round goes bucket by bucket and key by key in listing order, a bounded number of versions a step; between steps it yields to
 * traffic. Deletions go through the object module with the same checks as a client's: locked versions stay, and a
 * current version is deleted only if it still is the one that was looked at (by its ETag in an unversioned bucket, by its
 * version elsewhere, or with a delete marker, which loses nothing).
 */
#include "lifecycle.h"

#include <string.h>

#define STEP_VERSIONS_MAX 500
#define ROUND_PAUSE_MS_MAX (15 * 60 * 1000)
#define ARENA_BYTES_MAX (16u * 1024 * 1024)

typedef struct walk {
    tarn_s3 *s3;
    const tarn_bucket_row *bucket;
    const lc_rule *rules;
    size_t rules_n;
    int64_t now_ms;
    tarn_arena *a;
    tarn_delete_spec doomed[STEP_VERSIONS_MAX];
    size_t doomed_n;
    size_t seen;
    /* within the key that is being walked */
    char key_mem[TARN_KEY_BYTES_MAX];
    tarn_str key;
    uint64_t noncurrent_seen;       /* noncurrent versions of this key so far, newest first */
    int64_t successor_ms;           /* when the version before this one (newer) was made: the time this one became noncurrent */
    tarn_version_row newest_marker; /* current delete marker, until it is known whether it stands alone */
    bool marker_pending;
    /* where the next step begins */
    uint64_t last_seq;
} walk;

static bool due(const walk *w, int64_t from_ms, uint64_t days)
{
    return days > 0 && w->now_ms >= lc_due_ms(from_ms, days, w->s3->lifecycle_day_s);
}

static void doom(walk *w, const tarn_version_row *row, bool by_version)
{
    tarn_delete_spec *d = &w->doomed[w->doomed_n];
    *d = (tarn_delete_spec){.key = tarn_arena_str(w->a, row->key)};
    if (by_version) {
        d->version = row->null_version ? (tarn_version_ref){.sel = TARN_VERSION_NULL}
                                       : (tarn_version_ref){.sel = TARN_VERSION_ID, .seq = row->seq, .nonce = row->nonce};
    } else {
        d->version = (tarn_version_ref){.sel = TARN_VERSION_CURRENT};
        d->if_match = tarn_arena_str(w->a, row->etag);
    }
    if (d->key.p != NULL)
        w->doomed_n++;
}

/* A delete marker that turned out to be the only version of its key. */
static void settle_marker(walk *w)
{
    if (!w->marker_pending)
        return;
    w->marker_pending = false;
    for (size_t i = 0; i < w->rules_n; i++) {
        const lc_rule *r = &w->rules[i];
        if (!r->enabled || !lc_matches(r, w->key, 0, NULL, 0))
            continue;
        bool old = due(w, w->newest_marker.mtime_ms, r->days);
        if (r->expired_marker || old) {
            w->newest_marker.key = w->key;
            doom(w, &w->newest_marker, true);
            return;
        }
    }
}

static void judge_current(walk *w, const tarn_version_row *row, const tarn_pair *tags, size_t tags_n)
{
    for (size_t i = 0; i < w->rules_n; i++) {
        const lc_rule *r = &w->rules[i];
        if (!r->enabled || !lc_matches(r, row->key, row->size, tags, tags_n))
            continue;
        if (due(w, row->mtime_ms, r->days) || (r->date_ms != 0 && w->now_ms >= r->date_ms)) {
            doom(w, row, false);
            return;
        }
    }
}

static void judge_noncurrent(walk *w, const tarn_version_row *row, const tarn_pair *tags, size_t tags_n)
{
    for (size_t i = 0; i < w->rules_n; i++) {
        const lc_rule *r = &w->rules[i];
        if (!r->enabled || !r->has_noncurrent || !lc_matches(r, row->key, row->size, tags, tags_n))
            continue;
        if (w->noncurrent_seen > r->newer_noncurrent && due(w, w->successor_ms, r->noncurrent_days)) {
            doom(w, row, true);
            return;
        }
    }
}

static bool on_version(void *ctx, const tarn_version_row *row)
{
    walk *w = ctx;
    if (w->seen == STEP_VERSIONS_MAX - 1)
        return false;
    w->seen++;
    bool new_key = !tarn_str_eq(row->key, w->key);
    if (new_key) {
        settle_marker(w);
        TARN_ASSERT(row->key.n <= sizeof w->key_mem);
        memcpy(w->key_mem, row->key.p, row->key.n);
        w->key = (tarn_str){w->key_mem, row->key.n};
        w->noncurrent_seen = 0;
    }
    w->last_seq = row->seq;
    w->marker_pending = row->current && row->delete_marker;
    if (w->marker_pending) {
        w->newest_marker = *row;
    } else {
        tarn_pair *tags = NULL;
        size_t tags_n = 0;
        if (row->tags.n > 0 && tarn_tags_unpack(row->tags, w->a, &tags, &tags_n) != TARN_OK)
            tags_n = 0;
        if (!row->current)
            w->noncurrent_seen++;
        if (row->current)
            judge_current(w, row, tags, tags_n);
        else
            judge_noncurrent(w, row, tags, tags_n);
    }
    w->successor_ms = row->mtime_ms;
    return true;
}

static void carry_out(walk *w)
{
    if (w->doomed_n == 0)
        return;
    tarn_delete_result *res = TARN_ARENA_ARRAY(w->a, tarn_delete_result, w->doomed_n);
    if (res == NULL)
        return;
    tarn_err e = tarn_object_delete(w->s3->store, w->bucket, w->doomed, w->doomed_n, res);
    if (e != TARN_OK) {
        tarn_log(TARN_LOG_WARN, "lifecycle: expired objects could not be deleted", "error", tarn_err_get(e)->name, NULL);
        return;
    }
    for (size_t i = 0; i < w->doomed_n; i++)
        if (res[i].err == TARN_OK)
            tarn_metric_add(TARN_M_LIFECYCLE_EXPIRED, 1);
}

/* ------------------------------------------------------------------ uploads */
typedef struct stale_upload {
    tarn_str key;
    uint64_t id, nonce;
} stale_upload;
typedef struct upload_walk {
    walk *w;
    stale_upload found[STEP_VERSIONS_MAX];
    size_t n;
} upload_walk;

static bool on_upload(void *ctx, const tarn_upload_row *row)
{
    upload_walk *u = ctx;
    if (u->n == STEP_VERSIONS_MAX)
        return false;
    for (size_t i = 0; i < u->w->rules_n; i++) {
        const lc_rule *r = &u->w->rules[i];
        if (!r->enabled || !due(u->w, row->initiated_ms, r->abort_days) || !lc_matches(r, row->key, 0, NULL, 0))
            continue;
        tarn_str key = tarn_arena_str(u->w->a, row->key);
        if (key.p != NULL)
            u->found[u->n++] = (stale_upload){key, row->upload_id, row->nonce};
        break;
    }
    return true;
}

static void abort_uploads(walk *w)
{
    upload_walk *u = TARN_ARENA_NEW(w->a, upload_walk);
    if (u == NULL)
        return;
    u->w = w;
    if (tarn_meta_upload_list(w->s3->meta, w->bucket->id, TARN_STR(""), TARN_STR(""), 0, on_upload, u) != TARN_OK)
        return;
    for (size_t i = 0; i < u->n; i++)
        (void)tarn_upload_abort(w->s3->store, w->bucket, u->found[i].key, u->found[i].id, u->found[i].nonce);
}

/* ------------------------------------------------------------------ rounds */
static tarn_err load_rules(tarn_s3 *s, const tarn_bucket_row *b, tarn_arena *a, lc_rule **rules, size_t *n)
{
    tarn_str xml;
    s3_node *root;
    tarn_err e = tarn_meta_bucket_config_get(s->meta, NULL, b->id, TARN_BC_LIFECYCLE, a, &xml);
    if (e == TARN_OK)
        e = s3_xml_parse(xml, a, &root);
    return e == TARN_OK ? lc_parse(NULL, root, a, rules, n) : e;
}

static void walk_bucket(tarn_s3 *s, const tarn_bucket_row *b)
{
    tarn_arena *rules_arena = tarn_arena_new(ARENA_BYTES_MAX), *a = tarn_arena_new(ARENA_BYTES_MAX);
    walk *w = tarn_calloc(1, sizeof *w);
    lc_rule *rules;
    size_t n;
    if (rules_arena == NULL || a == NULL || w == NULL || load_rules(s, b, rules_arena, &rules, &n) != TARN_OK)
        goto out;
    *w = (walk){.s3 = s, .bucket = b, .rules = rules, .rules_n = n, .a = a};
    w->key = (tarn_str){w->key_mem, 0};
    tarn_list_query q = {.bucket_id = b->id, .versions = true, .columns_all = true, .after = TARN_STR("")};
    for (;;) {
        tarn_list_sink sink = {.on_version = on_version, .ctx = w};
        w->now_ms = tarn_now_ms();
        w->seen = w->doomed_n = 0;
        if (tarn_meta_list(s->meta, &q, &sink) != TARN_OK || tarn_loop_stopping(tarn_loop_current()))
            break;
        bool end = w->seen < STEP_VERSIONS_MAX - 1;
        if (end)
            settle_marker(w);
        carry_out(w);
        tarn_arena_reset(a);
        if (end)
            break;
        q.after = w->key;
        q.after_seq = w->last_seq;
        tarn_fiber_yield();
    }
    w->now_ms = tarn_now_ms();
    abort_uploads(w);
out:
    tarn_free(w);
    tarn_arena_free(a);
    tarn_arena_free(rules_arena);
}

typedef struct bucket_names {
    tarn_arena *a;
    tarn_bucket_row row;
    bool found;
} bucket_names;

static bool take_first(void *ctx, const tarn_bucket_row *row)
{
    bucket_names *b = ctx;
    b->row = *row;
    b->row.name = tarn_arena_str(b->a, row->name);
    b->row.owner = tarn_arena_str(b->a, row->owner);
    b->row.warehouse_uuid = b->row.warehouse_properties = TARN_STR("");
    b->found = b->row.name.p != NULL;
    return false;
}

static void one_round(tarn_s3 *s)
{
    tarn_arena *a = tarn_arena_new(ARENA_BYTES_MAX);
    char after_mem[TARN_BUCKET_NAME_BYTES_MAX];
    tarn_str after = {after_mem, 0};
    while (a != NULL && !tarn_loop_stopping(tarn_loop_current())) {
        bucket_names b = {.a = a};
        tarn_arena_reset(a);
        if (tarn_meta_bucket_list(s->meta, NULL, after, TARN_STR(""), false, take_first, &b) != TARN_OK || !b.found)
            break;
        walk_bucket(s, &b.row);
        TARN_ASSERT(b.row.name.n <= sizeof after_mem);
        memcpy(after_mem, b.row.name.p, b.row.name.n);
        after.n = b.row.name.n;
        tarn_fiber_yield();
    }
    tarn_arena_free(a);
}

static void lifecycle_main(void *arg)
{
    tarn_s3 *s = arg;
    uint64_t pause_ms = s->lifecycle_day_s * 1000 / 4;
    if (pause_ms > ROUND_PAUSE_MS_MAX)
        pause_ms = ROUND_PAUSE_MS_MAX;
    while (!tarn_loop_stopping(tarn_loop_current())) {
        one_round(s);
        for (uint64_t slept = 0; slept < pause_ms && !tarn_loop_stopping(tarn_loop_current()); slept += 250)
            tarn_sleep_ms(250);
    }
}

tarn_err tarn_s3_start_lifecycle(tarn_s3 *s, tarn_loop *loop)
{
    return tarn_fiber_spawn(loop, lifecycle_main, s, "lifecycle");
}
