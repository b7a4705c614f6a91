/* SPDX-License-Identifier: Apache-2.0 */
/*
 * iceberg, purge: what a dropped table or view leaves is deleted on a fiber of its own, after the answer. All versions of
 * everything below the entity's location go, and its metadata files wherever they lie. What can't be deleted (a lock, a
 * drive) stays and is logged.
 *
 * Invariants: (1) nothing is deleted below a location that another entity's location overlaps; (2) nothing outside the
 * warehouse's bucket is touched; (3) the running purges of a bucket are counted, so that deleting the warehouse can wait.
 * A purge that a crash interrupts leaves its files: they are ordinary objects that nobody refers to.
 */
#include <string.h>

#include "catalog.h"

#define PURGE_BATCH 500
#define PURGE_ARENA_BYTES_MAX (16u * 1024 * 1024)
#define PURGE_NAMESPACES_MAX 100000

typedef struct purge {
    tarn_iceberg *ice;
    uint64_t bucket_id;
    tarn_arena *a;   /* its own: names and lists */
    tarn_str prefix; /* of keys, ends with a slash; "" = everything */
    tarn_str entity; /* location of the dropped entity, for the overlap */
    tarn_str *files; /* keys of single files */
    size_t files_n;
    uint64_t deleted, failed;
} purge;

/* ------------------------------------------------------------------ counting */
static ice_purge_count *count_of(tarn_iceberg *ice, uint64_t bucket_id)
{
    for (size_t i = 0; i < ice->purges_n; i++)
        if (ice->purges[i].bucket_id == bucket_id)
            return &ice->purges[i];
    return NULL;
}

static bool count_up(tarn_iceberg *ice, uint64_t bucket_id)
{
    pthread_mutex_lock(&ice->lock);
    ice_purge_count *c = count_of(ice, bucket_id);
    if (!c && ice->purges_n < ICE_PURGES_MAX) {
        c = &ice->purges[ice->purges_n++];
        *c = (ice_purge_count){.bucket_id = bucket_id};
    }
    if (c)
        c->running++;
    pthread_mutex_unlock(&ice->lock);
    return c != NULL;
}

static void count_down(tarn_iceberg *ice, uint64_t bucket_id)
{
    pthread_mutex_lock(&ice->lock);
    ice_purge_count *c = count_of(ice, bucket_id);
    TARN_ASSERT(c && c->running > 0);
    if (--c->running == 0)
        *c = ice->purges[--ice->purges_n];
    pthread_mutex_unlock(&ice->lock);
}

bool ice_purge_wait(tarn_iceberg *ice, uint64_t bucket_id, uint64_t timeout_ms)
{
    uint64_t end = tarn_mono_ns() + timeout_ms * 1000000;
    for (;;) {
        pthread_mutex_lock(&ice->lock);
        bool running = count_of(ice, bucket_id) != NULL;
        pthread_mutex_unlock(&ice->lock);
        if (!running)
            return true;
        if (tarn_mono_ns() > end)
            return false;
        tarn_sleep_ms(5);
    }
}

/* ------------------------------------------------------------------ who else lies there */
typedef struct paths {
    tarn_arena *a;
    tarn_str *p;
    uint64_t *ids;
    size_t n, cap;
    bool failed;
} paths;

static bool collect_ns(void *ctx, const tarn_ns_row *row)
{
    paths *l = ctx;
    if (l->n == l->cap) {
        l->failed = true;
        return false;
    }
    l->ids[l->n] = row->id;
    l->p[l->n] = tarn_arena_str(l->a, row->path);
    l->failed = l->p[l->n].p == NULL;
    l->n++;
    return !l->failed;
}

typedef struct overlap {
    tarn_str location;
    bool found;
} overlap;

static bool below(tarn_str a, tarn_str b) /* is a below b, or b itself? */
{
    return a.n >= b.n && memcmp(a.p, b.p, b.n) == 0 && (a.n == b.n || a.p[b.n] == '/');
}

static bool check_overlap(void *ctx, const tarn_entity_row *row)
{
    overlap *o = ctx;
    tarn_str mine_bucket, mine, other_bucket, other;
    if (ice_s3_split(row->location, &other_bucket, &other) && ice_s3_split(o->location, &mine_bucket, &mine))
        o->found = o->found || below(mine, other) || below(other, mine);
    return !o->found;
}

/* Does any entity of the warehouse lie in, around or at the location? A namespace that is dropped meanwhile holds none. */
static tarn_err overlapped(purge *p, bool *yes)
{
    overlap o = {.location = p->entity};
    paths l = {.a = p->a, .cap = PURGE_NAMESPACES_MAX};
    l.p = TARN_ARENA_ARRAY(p->a, tarn_str, l.cap);
    l.ids = TARN_ARENA_ARRAY(p->a, uint64_t, l.cap);
    if (!l.p || !l.ids)
        return TARN_E_NO_MEMORY;
    tarn_err err = tarn_meta_ns_list(p->ice->meta, p->bucket_id, TARN_STR(""), TARN_STR(""), collect_ns, &l);
    for (size_t i = 0; err == TARN_OK && !l.failed && !o.found && i < l.n; i++) {
        for (int kind = TARN_ENTITY_TABLE; kind <= TARN_ENTITY_VIEW && err == TARN_OK; kind++)
            err = tarn_meta_entity_list(p->ice->meta, p->bucket_id, l.ids[i], (tarn_entity_kind)kind, TARN_STR(""), check_overlap, &o);
        if (err == TARN_OK)
            err = tarn_meta_ns_list(p->ice->meta, p->bucket_id, l.p[i], TARN_STR(""), collect_ns, &l);
        if (err == TARN_E_ICE_NO_NAMESPACE)
            err = TARN_OK;
    }
    *yes = o.found;
    return err == TARN_OK && l.failed ? TARN_E_LIMIT : err;
}

/* ------------------------------------------------------------------ deleting */
typedef struct found {
    tarn_arena *a;
    tarn_delete_spec specs[PURGE_BATCH];
    tarn_delete_result results[PURGE_BATCH];
    size_t n;
    tarn_str last_key;
    uint64_t last_seq;
} found;

static bool take_version(void *ctx, const tarn_version_row *row)
{
    found *f = ctx;
    tarn_str key = tarn_arena_str(f->a, row->key);
    if (f->n == PURGE_BATCH || !key.p)
        return false;
    f->specs[f->n++] = (tarn_delete_spec){
        .key = key,
        .version = {.sel = row->null_version ? TARN_VERSION_NULL : TARN_VERSION_ID, .seq = row->seq, .nonce = row->nonce},
    };
    f->last_key = key;
    f->last_seq = row->seq;
    return true;
}

static bool no_prefix(void *ctx, tarn_str prefix)
{
    (void)ctx;
    (void)prefix;
    return true;
}

static tarn_err delete_batch(purge *p, const tarn_bucket_row *bucket, found *f)
{
    memset(f->results, 0, sizeof f->results);
    tarn_err err = tarn_object_delete(p->ice->store, bucket, f->specs, f->n, f->results);
    for (size_t i = 0; i < f->n; i++) {
        if (err == TARN_OK && f->results[i].err == TARN_OK)
            p->deleted++;
        else
            p->failed++;
    }
    return err;
}

/* Every version below the prefix, batch by batch, always onward: what stays is not met twice. */
static tarn_err delete_below(purge *p, const tarn_bucket_row *bucket)
{
    found *f = TARN_ARENA_NEW(p->a, found);
    tarn_arena *names = tarn_arena_new(PURGE_ARENA_BYTES_MAX);
    tarn_list_query query = {.bucket_id = bucket->id, .prefix = p->prefix, .versions = true};
    tarn_err err = f && names ? TARN_OK : TARN_E_NO_MEMORY;
    char last[TARN_KEY_BYTES_MAX];
    while (err == TARN_OK) {
        tarn_list_sink sink = {.on_version = take_version, .on_prefix = no_prefix, .ctx = f};
        tarn_arena_reset(names);
        f->a = names;
        f->n = 0;
        err = tarn_meta_list(p->ice->meta, &query, &sink);
        if (err != TARN_OK || f->n == 0)
            break;
        err = delete_batch(p, bucket, f);
        memcpy(last, f->last_key.p, f->last_key.n);
        query.after = (tarn_str){last, f->last_key.n};
        query.after_seq = f->last_seq;
    }
    tarn_arena_free(names);
    return err;
}

static tarn_err delete_named(purge *p, const tarn_bucket_row *bucket)
{
    found *f = p->files_n > 0 ? TARN_ARENA_NEW(p->a, found) : NULL;
    tarn_err err = f || p->files_n == 0 ? TARN_OK : TARN_E_NO_MEMORY;
    for (size_t at = 0; at < p->files_n && err == TARN_OK;) {
        for (f->n = 0; f->n < PURGE_BATCH && at < p->files_n; at++)
            f->specs[f->n++] = (tarn_delete_spec){.key = p->files[at]};
        err = delete_batch(p, bucket, f);
    }
    return err;
}

static void run(purge *p)
{
    tarn_bucket_row bucket;
    tarn_err err = tarn_meta_bucket_get_id(p->ice->meta, NULL, p->bucket_id, p->a, &bucket);
    if (err == TARN_OK)
        err = delete_named(p, &bucket);
    bool shared = false;
    if (err == TARN_OK && p->prefix.n > 0)
        err = overlapped(p, &shared);
    if (err == TARN_OK && p->prefix.n > 0 && !shared)
        err = delete_below(p, &bucket);
    if (err != TARN_OK || p->failed > 0)
        tarn_logf(TARN_LOG_WARN, "purge of a dropped table is not complete", "%.*s: %llu objects deleted, %llu left (%s)",
                  TARN_STR_ARG(p->entity), (unsigned long long)p->deleted, (unsigned long long)p->failed, tarn_err_get(err)->name);
}

static void purge_fiber(void *arg)
{
    purge *p = arg;
    tarn_iceberg *ice = p->ice;
    uint64_t bucket_id = p->bucket_id;
    run(p);
    tarn_arena_free(p->a);
    count_down(ice, bucket_id);
}

/* ------------------------------------------------------------------ start */
static bool add_file(purge *p, const ice_req *q, tarn_str location)
{
    tarn_str bucket, key;
    if (!ice_s3_split(location, &bucket, &key) || !tarn_str_eq(bucket, q->wh.name) || !tarn_str_ends(key, ".metadata.json"))
        return true;
    p->files[p->files_n] = tarn_arena_str(p->a, key);
    return p->files[p->files_n++].p != NULL;
}

/* The metadata files: those of the log, and the one that was current. */
static bool list_files(purge *p, ice_req *q, const tarn_entity_row *row, const json_t *metadata)
{
    const json_t *log = json_object_get(metadata, "metadata-log");
    size_t n = json_array_size(log);
    p->files = TARN_ARENA_ARRAY(p->a, tarn_str, n + 1);
    bool ok = p->files && add_file(p, q, row->pointer);
    for (size_t i = 0; ok && i < n; i++)
        ok = add_file(p, q, ice_string_or_empty(json_array_get(log, i), "metadata-file"));
    return ok;
}

static purge *prepare(ice_req *q, const tarn_entity_row *row)
{
    tarn_arena *a = tarn_arena_new(PURGE_ARENA_BYTES_MAX);
    purge *p = a ? TARN_ARENA_NEW(a, purge) : NULL;
    tarn_str bucket, key;
    ice_state *s = NULL;
    if (!p) {
        tarn_arena_free(a);
        return NULL;
    }
    *p = (purge){.ice = q->ice, .bucket_id = q->wh.id, .a = a, .entity = tarn_arena_str(a, row->location)};
    bool readable = ice_state_load(q, row, &s) == TARN_OK;
    bool keep = readable && tarn_str_ieqc(ice_string_or_empty(json_object_get(s->metadata, "properties"), "gc.enabled"), "false");
    if (ice_s3_split(row->location, &bucket, &key) && tarn_str_eq(bucket, q->wh.name) && key.n > 0)
        p->prefix = tarn_arena_fmt(a, "%.*s/", TARN_STR_ARG(key));
    bool ok = !keep && p->entity.p && list_files(p, q, row, readable ? s->metadata : NULL);
    ice_state_unref(s);
    if (!ok) {
        tarn_arena_free(a);
        return NULL;
    }
    return p;
}

void ice_purge_start(ice_req *q, const tarn_entity_row *row)
{
    purge *p = prepare(q, row);
    if (!p)
        return; /* gc.enabled=false, or out of memory: the files stay */
    if (!count_up(q->ice, q->wh.id)) {
        tarn_arena_free(p->a);
        return;
    }
    if (!tarn_loop_current() || tarn_fiber_spawn(tarn_loop_current(), purge_fiber, p, "purge") != TARN_OK)
        purge_fiber(p);
}

tarn_err ice_purge_all(ice_req *q)
{
    purge p = {.ice = q->ice, .bucket_id = q->wh.id, .a = tarn_arena_new(PURGE_ARENA_BYTES_MAX), .prefix = TARN_STR("")};
    tarn_err err = p.a ? delete_below(&p, &q->wh) : TARN_E_NO_MEMORY;
    tarn_arena_free(p.a);
    return err;
}

void ice_delete_files(ice_req *q, const json_t *locations)
{
    size_t n = json_array_size(locations);
    purge p = {.ice = q->ice, .bucket_id = q->wh.id, .a = tarn_arena_new(PURGE_ARENA_BYTES_MAX)};
    p.files = p.a ? TARN_ARENA_ARRAY(p.a, tarn_str, n + 1) : NULL;
    bool ok = p.files != NULL;
    for (size_t i = 0; ok && i < n; i++)
        ok = add_file(&p, q, ice_str(json_array_get(locations, i)));
    tarn_err err = ok ? delete_named(&p, &q->wh) : TARN_E_NO_MEMORY;
    if (err != TARN_OK || p.failed > 0)
        tarn_logf(TARN_LOG_WARN, "old metadata files were not deleted", "%llu left (%s)", (unsigned long long)p.failed,
                  tarn_err_get(err)->name);
    tarn_arena_free(p.a);
}
