/* SPDX-License-Identifier: Apache-2.0 */
/*
 * iceberg, purge: what a dropped table or view leaves is deleted on a fiber of its own, after the answer. All versions of
 * everything below the entity's location go, and its metadata files wherever they lie. What can't be deleted (a lock, a
 * drive) stays and is logged.
 *
 * Invariants: (1) nothing is deleted below a location that another entity's location overlaps, and nothing at all while another one
 * has the same location or metadata file; (2) nothing outside the
 * warehouse's bucket is touched; (3) the running purges of a bucket are counted, so that deleting the warehouse can wait;
 * (4) the transaction of the drop writes down that there is something to purge, and that goes when nothing is left to do: what a
 * stop or a crash interrupts, or a drive refuses, goes on at the next start; (5) the metadata file that names the others is the
 * last one to go, so that a purge finds its way however often it begins anew.
 *
 * Memory: a purge lives in an arena of its own, which its fiber frees.
 */
#include <string.h>

#include "catalog.h"
#include "entry.h"

#define PURGE_BATCH 500
#define PURGE_ARENA_BYTES_MAX (16u * 1024 * 1024)
#define PURGE_NAMESPACES_MAX 100000
#define PURGE_RESUMED_MAX 65536 /* at one start; the others wait for the next one */

typedef struct purge {
    tarn_iceberg *ice;
    tarn_arena *a;      /* its own: names and lists */
    tarn_purge_row row; /* what was dropped */
    tarn_str prefix;    /* of keys, ends with a slash; "" = everything */
    tarn_str last;      /* key of the metadata file that goes last; "" = none */
    tarn_str *files;    /* keys of single files */
    size_t files_n;
    uint64_t deleted, locked, failed;
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
    const tarn_entity_row *dropped;
    bool found; /* somebody lies in, around or at the location */
    bool same;  /* at it, or with its metadata file: what was dropped has been registered again, or under two names */
} overlap;

static bool below(tarn_str a, tarn_str b) /* is a below b, or b itself? */
{
    return a.n >= b.n && memcmp(a.p, b.p, b.n) == 0 && (a.n == b.n || a.p[b.n] == '/');
}

static bool check_overlap(void *ctx, const tarn_entity_row *row)
{
    overlap *o = ctx;
    tarn_str mine_bucket, mine, other_bucket, other;
    o->same = o->same || tarn_str_eq(row->pointer, o->dropped->pointer);
    if (ice_s3_split(row->location, &other_bucket, &other) && ice_s3_split(o->dropped->location, &mine_bucket, &mine)) {
        o->found = o->found || below(mine, other) || below(other, mine);
        o->same = o->same || tarn_str_eq(mine, other);
    }
    return !o->same;
}

/* Looks through all entities of the warehouse. A namespace that is dropped meanwhile holds none. */
static tarn_err find_overlap(purge *p, overlap *o)
{
    uint64_t bucket_id = p->row.dropped.bucket_id;
    paths l = {.a = p->a, .cap = PURGE_NAMESPACES_MAX};
    *o = (overlap){.dropped = &p->row.dropped};
    l.p = TARN_ARENA_ARRAY(p->a, tarn_str, l.cap);
    l.ids = TARN_ARENA_ARRAY(p->a, uint64_t, l.cap);
    if (!l.p || !l.ids)
        return TARN_E_NO_MEMORY;
    tarn_err err = tarn_meta_ns_list(p->ice->meta, bucket_id, TARN_STR(""), TARN_STR(""), collect_ns, &l);
    for (size_t i = 0; err == TARN_OK && !l.failed && !o->same && i < l.n; i++) {
        for (int kind = TARN_ENTITY_TABLE; kind <= TARN_ENTITY_VIEW && err == TARN_OK; kind++)
            err = tarn_meta_entity_list(p->ice->meta, bucket_id, l.ids[i], (tarn_entity_kind)kind, TARN_STR(""), check_overlap, o);
        if (err == TARN_OK)
            err = tarn_meta_ns_list(p->ice->meta, bucket_id, l.p[i], TARN_STR(""), collect_ns, &l);
        if (err == TARN_E_ICE_NO_NAMESPACE)
            err = TARN_OK;
    }
    return err == TARN_OK && l.failed ? TARN_E_LIMIT : err;
}

/* ------------------------------------------------------------------ deleting */
typedef struct found {
    tarn_arena *a;
    tarn_str but; /* a key that is left out */
    tarn_delete_spec specs[PURGE_BATCH];
    tarn_delete_result results[PURGE_BATCH];
    size_t n;
    tarn_str last_key;
    uint64_t last_seq;
} found;

static bool take_version(void *ctx, const tarn_version_row *row)
{
    found *f = ctx;
    if (f->but.n > 0 && tarn_str_eq(row->key, f->but))
        return true;
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

/* The process ends: what is left is the next one's. */
static bool stopping(void)
{
    return tarn_loop_current() && tarn_loop_stopping(tarn_loop_current());
}

static tarn_err delete_batch(purge *p, const tarn_bucket_row *bucket, found *f)
{
    if (stopping())
        return TARN_E_CANCELED;
    memset(f->results, 0, sizeof f->results);
    tarn_err err = tarn_object_delete(p->ice->store, bucket, f->specs, f->n, f->results);
    for (size_t i = 0; i < f->n; i++) {
        if (err == TARN_OK && f->results[i].err == TARN_OK)
            p->deleted++;
        else if (err == TARN_OK && f->results[i].err == TARN_E_ACCESS_DENIED)
            p->locked++;
        else
            p->failed++;
    }
    return err;
}

/* Every version below the prefix, but those of one key, batch by batch, always onward: what stays is not met twice. */
static tarn_err delete_below(purge *p, const tarn_bucket_row *bucket, tarn_str prefix, tarn_str but)
{
    found *f = TARN_ARENA_NEW(p->a, found);
    tarn_arena *names = tarn_arena_new(PURGE_ARENA_BYTES_MAX);
    tarn_list_query query = {.bucket_id = bucket->id, .prefix = prefix, .versions = true};
    tarn_err err = f && names ? TARN_OK : TARN_E_NO_MEMORY;
    char last[TARN_KEY_BYTES_MAX];
    while (err == TARN_OK) {
        tarn_list_sink sink = {.on_version = take_version, .on_prefix = no_prefix, .ctx = f};
        tarn_arena_reset(names);
        f->a = names;
        f->but = but;
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

static tarn_err delete_named(purge *p, const tarn_bucket_row *bucket, const tarn_str *keys, size_t n)
{
    found *f = n > 0 ? TARN_ARENA_NEW(p->a, found) : NULL;
    tarn_err err = f || n == 0 ? TARN_OK : TARN_E_NO_MEMORY;
    for (size_t at = 0; at < n && err == TARN_OK;) {
        for (f->n = 0; f->n < PURGE_BATCH && at < n; at++)
            f->specs[f->n++] = (tarn_delete_spec){.key = keys[at]};
        err = delete_batch(p, bucket, f);
    }
    return err;
}

/* ------------------------------------------------------------------ what there is to delete */
/* The key of a metadata file in the warehouse; else empty. */
static tarn_str file_key(const tarn_bucket_row *bucket, tarn_str location)
{
    tarn_str name, key;
    if (!ice_s3_split(location, &name, &key) || !tarn_str_eq(name, bucket->name) || !tarn_str_ends(key, ".metadata.json"))
        return TARN_STR("");
    return key;
}

static bool add_file(purge *p, const tarn_bucket_row *bucket, tarn_str location)
{
    tarn_str key = file_key(bucket, location);
    if (key.n == 0 || tarn_str_eq(key, p->last))
        return true;
    p->files[p->files_n] = tarn_arena_str(p->a, key);
    return p->files[p->files_n++].p != NULL;
}

static bool add_logged(purge *p, const tarn_bucket_row *bucket, const json_t *entry)
{
    json_t *file = NULL;
    bool ok = ice_entry_string(entry, "metadata-file", &file) == TARN_OK && add_file(p, bucket, ice_str(file));
    json_decref(file);
    return ok;
}

/* The metadata files of the log; the one that was current goes last. */
static tarn_err list_files(purge *p, const tarn_bucket_row *bucket, const json_t *metadata)
{
    const json_t *log = json_object_get(metadata, "metadata-log");
    size_t n = json_array_size(log);
    p->files = TARN_ARENA_ARRAY(p->a, tarn_str, n + 1);
    bool ok = p->files != NULL;
    p->last = file_key(bucket, p->row.dropped.pointer);
    for (size_t i = 0; ok && i < n; i++)
        ok = add_logged(p, bucket, json_array_get(log, i));
    return ok ? TARN_OK : TARN_E_NO_MEMORY;
}

/* *keep: gc.enabled=false, the files stay. A metadata file that is not there, or makes no sense, keeps nothing; one that can't be
 * read now may forbid the purge and is not passed over. */
static tarn_err prepare(purge *p, const tarn_bucket_row *bucket, bool *keep)
{
    ice_req *q = TARN_ARENA_NEW(p->a, ice_req);
    ice_state *s = NULL;
    tarn_str name, key;
    if (!q)
        return TARN_E_NO_MEMORY;
    *q = (ice_req){.ice = p->ice, .a = p->a, .wh = *bucket};
    ice_error_init(&q->e);
    tarn_err err = ice_state_load(q, &p->row.dropped, &s);
    if (err == TARN_E_NO_MEMORY || err == TARN_E_QUORUM_READ || err == TARN_E_IO)
        return err;
    const json_t *metadata = err == TARN_OK ? s->metadata : NULL;
    *keep = tarn_str_ieqc(ice_string_or_empty(json_object_get(metadata, "properties"), "gc.enabled"), "false");
    if (ice_s3_split(p->row.dropped.location, &name, &key) && tarn_str_eq(name, bucket->name) && key.n > 0) {
        p->prefix = tarn_arena_fmt(p->a, "%.*s/", TARN_STR_ARG(key));
        err = p->prefix.p ? TARN_OK : TARN_E_NO_MEMORY;
    } else {
        err = TARN_OK;
    }
    if (err == TARN_OK && !*keep)
        err = list_files(p, bucket, metadata);
    ice_state_unref(s);
    return err;
}

static bool starts_with(tarn_str s, tarn_str prefix)
{
    return s.n >= prefix.n && memcmp(s.p, prefix.p, prefix.n) == 0;
}

/* OK: nothing is left to do that could be done. */
static tarn_err run(purge *p)
{
    tarn_bucket_row bucket;
    overlap o;
    bool keep = false;
    tarn_err err = tarn_meta_bucket_get_id(p->ice->meta, NULL, p->row.dropped.bucket_id, p->a, &bucket);
    if (err == TARN_E_NO_SUCH_BUCKET)
        return TARN_OK;
    if (err == TARN_OK)
        err = find_overlap(p, &o);
    if (err == TARN_OK && o.same)
        return TARN_OK;
    if (err == TARN_OK)
        err = prepare(p, &bucket, &keep);
    if (err != TARN_OK || keep)
        return err;
    ICE_TRY(delete_named(p, &bucket, p->files, p->files_n));
    bool all = p->prefix.n > 0 && !o.found;
    if (all)
        ICE_TRY(delete_below(p, &bucket, p->prefix, p->last));
    if (p->failed > 0 || p->last.n == 0)
        return TARN_OK;
    return all && starts_with(p->last, p->prefix) ? delete_below(p, &bucket, p->last, TARN_STR("")) : delete_named(p, &bucket, &p->last, 1);
}

static tarn_err done_in_tx(tarn_meta_tx *tx, void *arg)
{
    const purge *p = arg;
    return tarn_meta_purge_delete(tx, p->row.id);
}

static void purge_to_its_end(purge *p)
{
    tarn_err err = run(p);
    if (err == TARN_OK && p->failed == 0)
        err = tarn_meta_commit(p->ice->meta, done_in_tx, p);
    if (err == TARN_E_CANCELED)
        tarn_logf(TARN_LOG_INFO, "purge of a dropped table goes on at the next start", "%.*s: %llu objects deleted so far",
                  TARN_STR_ARG(p->row.dropped.location), (unsigned long long)p->deleted);
    else if (err != TARN_OK || p->failed > 0)
        tarn_logf(TARN_LOG_WARN, "purge of a dropped table is not complete and is tried again at the next start",
                  "%.*s: %llu objects deleted, %llu left (%s)", TARN_STR_ARG(p->row.dropped.location), (unsigned long long)p->deleted,
                  (unsigned long long)(p->failed + p->locked), tarn_err_get(err)->name);
    else if (p->locked > 0)
        tarn_logf(TARN_LOG_WARN, "purge of a dropped table leaves what is locked", "%.*s: %llu objects deleted, %llu left",
                  TARN_STR_ARG(p->row.dropped.location), (unsigned long long)p->deleted, (unsigned long long)p->locked);
}

static purge *purge_new(tarn_iceberg *ice, const tarn_purge_row *row)
{
    tarn_arena *a = tarn_arena_new(PURGE_ARENA_BYTES_MAX);
    purge *p = a ? TARN_ARENA_NEW(a, purge) : NULL;
    if (p) {
        *p = (purge){.ice = ice, .a = a, .row = *row, .prefix = TARN_STR(""), .last = TARN_STR("")};
        p->row.dropped.name = TARN_STR("");
        p->row.dropped.uuid = tarn_arena_str(a, row->dropped.uuid);
        p->row.dropped.location = tarn_arena_str(a, row->dropped.location);
        p->row.dropped.pointer = tarn_arena_str(a, row->dropped.pointer);
    }
    if (!p || !p->row.dropped.uuid.p || !p->row.dropped.location.p || !p->row.dropped.pointer.p) {
        tarn_arena_free(a);
        return NULL;
    }
    return p;
}

/* ------------------------------------------------------------------ start */
static void purge_fiber(void *arg)
{
    purge *p = arg;
    tarn_iceberg *ice = p->ice;
    uint64_t bucket_id = p->row.dropped.bucket_id;
    purge_to_its_end(p);
    tarn_arena_free(p->a);
    count_down(ice, bucket_id);
}

void ice_purge_start(tarn_iceberg *ice, const tarn_purge_row *row)
{
    purge *p = purge_new(ice, row);
    if (!p || !count_up(ice, row->dropped.bucket_id)) {
        tarn_logf(TARN_LOG_WARN, "purge of a dropped table waits for the next start", "%.*s: too many at once, or out of memory",
                  TARN_STR_ARG(row->dropped.location));
        if (p)
            tarn_arena_free(p->a);
        return;
    }
    if (!tarn_loop_current() || tarn_fiber_spawn(tarn_loop_current(), purge_fiber, p, "purge") != TARN_OK)
        purge_fiber(p);
}

/* ------------------------------------------------------------------ going on after a start */
typedef struct resume {
    tarn_iceberg *ice;
    uint64_t *ids, *bucket_ids; /* of the purges that were there at the start; each is counted */
    size_t n;
    purge *next;
    uint64_t wanted;
} resume;

static bool take_id(void *ctx, const tarn_purge_row *row)
{
    resume *r = ctx;
    if (r->n == PURGE_RESUMED_MAX || !count_up(r->ice, row->dropped.bucket_id))
        return false;
    r->ids[r->n] = row->id;
    r->bucket_ids[r->n++] = row->dropped.bucket_id;
    return true;
}

static bool take_row(void *ctx, const tarn_purge_row *row)
{
    resume *r = ctx;
    if (row->id == r->wanted)
        r->next = purge_new(r->ice, row);
    return false;
}

static void resume_free(resume *r)
{
    tarn_free(r->ids);
    tarn_free(r->bucket_ids);
    tarn_free(r);
}

static void resume_fiber(void *arg)
{
    resume *r = arg;
    for (size_t i = 0; i < r->n; i++) {
        r->next = NULL;
        r->wanted = r->ids[i];
        tarn_err err = stopping() ? TARN_E_CANCELED : tarn_meta_purge_list(r->ice->meta, r->wanted - 1, take_row, r);
        if (err == TARN_OK && r->next) {
            purge_to_its_end(r->next);
            tarn_arena_free(r->next->a);
        } else if (err != TARN_E_CANCELED) {
            tarn_logf(TARN_LOG_WARN, "purge of a dropped table waits for the next start", "%s", tarn_err_get(err)->name);
        }
        count_down(r->ice, r->bucket_ids[i]);
    }
    resume_free(r);
}

tarn_err tarn_iceberg_start_background(tarn_iceberg *ice, tarn_loop *loop)
{
    resume *r = tarn_calloc(1, sizeof *r);
    if (!r)
        return TARN_E_NO_MEMORY;
    r->ice = ice;
    r->ids = tarn_calloc(PURGE_RESUMED_MAX, sizeof *r->ids);
    r->bucket_ids = tarn_calloc(PURGE_RESUMED_MAX, sizeof *r->bucket_ids);
    tarn_err err = r->ids && r->bucket_ids ? tarn_meta_purge_list(ice->meta, 0, take_id, r) : TARN_E_NO_MEMORY;
    if (err == TARN_OK && r->n > 0) {
        tarn_logf(TARN_LOG_INFO, "purges of dropped tables go on", "%zu", r->n);
        err = tarn_fiber_spawn(loop, resume_fiber, r, "purges");
        if (err == TARN_OK)
            return TARN_OK;
    }
    for (size_t i = 0; i < r->n; i++)
        count_down(ice, r->bucket_ids[i]);
    resume_free(r);
    return err;
}

/* ------------------------------------------------------------------ for others */
tarn_err ice_purge_all(ice_req *q)
{
    purge p = {.ice = q->ice, .a = tarn_arena_new(PURGE_ARENA_BYTES_MAX)};
    tarn_err err = p.a ? delete_below(&p, &q->wh, TARN_STR(""), TARN_STR("")) : TARN_E_NO_MEMORY;
    tarn_arena_free(p.a);
    return err;
}

void ice_delete_files(ice_req *q, const json_t *locations)
{
    size_t n = json_array_size(locations);
    purge p = {.ice = q->ice, .a = tarn_arena_new(PURGE_ARENA_BYTES_MAX), .last = TARN_STR("")};
    p.files = p.a ? TARN_ARENA_ARRAY(p.a, tarn_str, n + 1) : NULL;
    bool ok = p.files != NULL;
    for (size_t i = 0; ok && i < n; i++)
        ok = add_file(&p, &q->wh, ice_str(json_array_get(locations, i)));
    tarn_err err = ok ? delete_named(&p, &q->wh, p.files, p.files_n) : TARN_E_NO_MEMORY;
    uint64_t left = p.failed + p.locked;
    if (err != TARN_OK || left > 0)
        tarn_logf(TARN_LOG_WARN, "old metadata files were not deleted", "%llu left (%s)", (unsigned long long)left,
                  tarn_err_get(err)->name);
    tarn_arena_free(p.a);
}
