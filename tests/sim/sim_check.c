/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Comparing the store with the model: a key's versions and their bytes, listings, uploads, tables; deciding the doubts that
 * operations without an answer left; and looking at the drives themselves.
 */
#include "sim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ACTUAL_MAX (VERSIONS_MAX + 2)
#define NAMES_MAX 2048

/* ------------------------------------------------------------------ versions as they are */
typedef struct actual {
    const char *key;
    struct {
        uint64_t seq, nonce, size;
        bool null, marker;
        char etag[64];
        uint32_t tag;
    } v[ACTUAL_MAX];
    size_t n;
    bool too_many;
} actual;

static uint32_t tag_of(run *r, tarn_str packed)
{
    tarn_pair *tags = NULL;
    size_t n = 0;
    uint64_t v = 0;
    if (packed.n == 0)
        return 0;
    if (tarn_tags_unpack(packed, r->arena, &tags, &n) != TARN_OK || n != 1 || !tarn_str_to_u64(tags[0].value, &v))
        return UINT32_MAX;
    return (uint32_t)v;
}

typedef struct take_ctx {
    run *r;
    actual *a;
} take_ctx;

static bool take_version(void *ctx, const tarn_version_row *row)
{
    take_ctx *t = ctx;
    actual *a = t->a;
    if (!tarn_str_eqc(row->key, a->key))
        return true;
    if (a->n == ACTUAL_MAX) {
        a->too_many = true;
        return false;
    }
    a->v[a->n].seq = row->seq;
    a->v[a->n].nonce = row->nonce;
    a->v[a->n].size = row->size;
    a->v[a->n].null = row->null_version;
    a->v[a->n].marker = row->delete_marker;
    a->v[a->n].tag = tag_of(t->r, row->tags);
    tarn_sb b;
    tarn_sb_init_fixed(&b, a->v[a->n].etag, sizeof a->v[a->n].etag);
    tarn_sb_str(&b, row->etag);
    a->n++;
    return true;
}

static bool no_prefix(void *ctx, tarn_str prefix)
{
    (void)ctx;
    (void)prefix;
    return true;
}

/* False: the run has failed. */
static bool versions_of(run *r, size_t key, actual *a)
{
    take_ctx t = {r, a};
    tarn_list_query q = {
        .bucket_id = r->buckets[key_bucket(key)].id, .prefix = tarn_str_of(key_name(key)), .versions = true, .columns_all = true};
    tarn_list_sink sink = {take_version, no_prefix, &t};
    *a = (actual){.key = key_name(key)};
    tarn_err err = tarn_meta_list(tarn_store_meta(r->s), &q, &sink);
    if (err)
        run_fail(r, "versions of %s can't be listed: %s", key_name(key), tarn_err_get(err)->name);
    return err == TARN_OK;
}

static bool version_is(const actual *a, size_t i, const mversion *v)
{
    return a->v[i].marker == v->marker && a->v[i].null == v->null && (v->marker || a->v[i].size == version_size(v)) &&
           (v->marker || strcmp(a->v[i].etag, v->etag) == 0) && a->v[i].tag == v->tag &&
           (!v->ids || (a->v[i].seq == v->seq && a->v[i].nonce == v->nonce));
}

static bool key_is(const actual *a, const mkey *k)
{
    if (a->n != k->n || a->too_many)
        return false;
    for (size_t i = 0; i < a->n; i++) {
        if (!version_is(a, i, &k->v[i]))
            return false;
    }
    return true;
}

static void adopt_ids(mkey *k, const actual *a)
{
    for (size_t i = 0; i < k->n; i++) {
        k->v[i].ids = true;
        k->v[i].seq = a->v[i].seq;
        k->v[i].nonce = a->v[i].nonce;
    }
}

static void fail_versions(run *r, size_t key, const actual *a, const mkey *k)
{
    char mem[600];
    tarn_sb b;
    tarn_sb_init_fixed(&b, mem, sizeof mem);
    for (size_t i = 0; i < a->n; i++)
        tarn_sb_fmt(&b, " %s%llu/%.6s/%u/%llu",
                    a->v[i].marker ? "marker "
                    : a->v[i].null ? "null "
                                   : "",
                    (unsigned long long)a->v[i].size, a->v[i].etag, a->v[i].tag, (unsigned long long)a->v[i].seq);
    tarn_sb_cstr(&b, "; should be:");
    for (size_t i = 0; i < k->n; i++)
        tarn_sb_fmt(&b, " %s%llu/%.6s/%u/%llu",
                    k->v[i].marker ? "marker "
                    : k->v[i].null ? "null "
                                   : "",
                    (unsigned long long)version_size(&k->v[i]), k->v[i].etag, k->v[i].tag, (unsigned long long)k->v[i].seq);
    run_fail(r, "bucket %zu key %s has the versions:%s", key_bucket(key), key_name(key), b.failed ? "(many)" : b.p);
}

void check_key(run *r, size_t key)
{
    actual a;
    const mkey *k = &r->m.keys[key];
    if (r->failed || !versions_of(r, key, &a))
        return;
    if (!key_is(&a, k)) {
        fail_versions(r, key, &a, k);
        return;
    }
    for (size_t i = 0; i < k->n && !r->failed; i++) {
        exec x = {.r = r, .arena = r->arena};
        const mversion *v = &k->v[i];
        tarn_version_ref ref =
            v->null ? (tarn_version_ref){.sel = TARN_VERSION_NULL} : (tarn_version_ref){TARN_VERSION_ID, v->seq, v->nonce};
        if (v->marker)
            continue;
        tarn_err err = read_version(&x, key, v, ref, 0, version_size(v));
        if (err || x.why[0])
            run_fail(r, "bucket %zu key %s version %zu (%llu bytes): %s %s", key_bucket(key), key_name(key), i,
                     (unsigned long long)version_size(v), err ? tarn_err_get(err)->name : "", x.why);
        tarn_arena_reset(r->arena);
    }
}

/* ------------------------------------------------------------------ listings */
typedef struct name_list {
    char names[NAMES_MAX][TARN_KEY_BYTES_MAX / 8];
    size_t n;
} name_list;

static bool name_add(name_list *l, tarn_str s)
{
    tarn_sb b;
    if (l->n == NAMES_MAX)
        return false;
    tarn_sb_init_fixed(&b, l->names[l->n++], sizeof l->names[0]);
    tarn_sb_str(&b, s);
    return true;
}

static bool take_name(void *ctx, const tarn_version_row *row)
{
    return row->delete_marker || name_add(ctx, row->key);
}

static bool take_any(void *ctx, const tarn_version_row *row)
{
    return name_add(ctx, row->key);
}

static bool take_prefix(void *ctx, tarn_str prefix)
{
    return name_add(ctx, prefix);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(a, b);
}

static void want_names(const run *r, size_t bucket, tarn_str prefix, bool delimiter, bool versions, name_list *l)
{
    for (size_t i = 0; i < KEYS_PER_BUCKET; i++) {
        const mkey *k = &r->m.keys[bucket * KEYS_PER_BUCKET + i];
        tarn_str name = tarn_str_of(key_name(i));
        if (!(prefix.n <= name.n && memcmp(name.p, prefix.p, prefix.n) == 0))
            continue;
        size_t n = versions ? k->n : version_live(k) ? 1 : 0;
        ptrdiff_t cut = tarn_str_chr(tarn_str_sub(name, prefix.n, name.n), '/');
        bool folded = delimiter && cut >= 0;
        for (size_t j = 0; j < n && (!folded || j == 0); j++)
            (void)name_add(l, folded ? tarn_str_sub(name, 0, prefix.n + (size_t)cut + 1) : name);
    }
    qsort(l->names, l->n, sizeof l->names[0], by_name);
    size_t out = 0;
    for (size_t i = 0; i < l->n; i++) { /* a common prefix comes once */
        size_t len = strlen(l->names[i]);
        bool again = delimiter && out > 0 && len > 0 && l->names[i][len - 1] == '/' && strcmp(l->names[out - 1], l->names[i]) == 0;
        if (!again && out++ != i)
            memcpy(l->names[out - 1], l->names[i], sizeof l->names[0]);
    }
    l->n = out;
}

static bool compare_names(run *r, const char *what, const name_list *got, const name_list *want)
{
    for (size_t i = 0; i < got->n || i < want->n; i++) {
        if (i < got->n && i < want->n && strcmp(got->names[i], want->names[i]) == 0)
            continue;
        run_fail(r, "%s: entry %zu is '%s', should be '%s'", what, i, i < got->n ? got->names[i] : "(end)",
                 i < want->n ? want->names[i] : "(end)");
        return false;
    }
    return true;
}

tarn_err check_list(run *r, const sim_op *op, bool versions)
{
    static const char *const prefixes[] = {"", "dir/", "e/f", "z", "nothing"};
    size_t bucket = op->a % BUCKETS;
    name_list *got = calloc(1, sizeof *got), *want = calloc(1, sizeof *want);
    TARN_ASSERT(got != NULL && want != NULL);
    tarn_list_query q = {.bucket_id = r->buckets[bucket].id,
                         .prefix = tarn_str_of(prefixes[op->b % TARN_ARRAY_LEN(prefixes)]),
                         .delimiter = op->c % 2 ? TARN_STR("/") : TARN_STR(""),
                         .versions = versions};
    tarn_list_sink sink = {versions ? take_any : take_name, take_prefix, got};
    tarn_err err = tarn_meta_list(tarn_store_meta(r->s), &q, &sink);
    want_names(r, bucket, q.prefix, op->c % 2, versions, want);
    if (!err)
        (void)compare_names(r, versions ? "versions" : "list", got, want);
    free(got);
    free(want);
    return err;
}

static void check_warehouse(run *r)
{
    name_list *got = calloc(1, sizeof *got), *want = calloc(1, sizeof *want);
    TARN_ASSERT(got != NULL && want != NULL);
    tarn_list_query q = {.bucket_id = r->buckets[BUCKETS].id};
    tarn_list_sink sink = {take_name, take_prefix, got};
    tarn_err err = tarn_meta_list(tarn_store_meta(r->s), &q, &sink);
    for (size_t i = 0; i < r->m.files_n; i++) {
        if (r->m.files[i].there)
            (void)name_add(want, tarn_str_of(r->m.files[i].key));
    }
    qsort(want->names, want->n, sizeof want->names[0], by_name);
    if (err)
        run_fail(r, "the warehouse can't be listed: %s", tarn_err_get(err)->name);
    else
        (void)compare_names(r, "metadata files", got, want);
    free(got);
    free(want);
}

/* ------------------------------------------------------------------ tables and uploads */
void check_table(run *r, size_t t)
{
    sim_op op = {.kind = OP_TABLE_LOAD, .a = (uint32_t)t};
    exec x;
    if (r->failed || !exec_prepare(r, &op, &x))
        return;
    x.arena = r->arena;
    exec_do(&x);
    if (x.why[0] || x.got != x.want)
        run_fail(r, "table t%zu: %s %s", t, tarn_err_get(x.got)->name, x.why);
}

typedef struct upload_list {
    run *r;
    size_t bucket;
    bool seen[SLOTS];
    const mupload *wanted; /* NULL: anything that is not the model's is strange; else this one */
    uint64_t strange_id, strange_nonce;
    char strange_key[NAME_BYTES];
} upload_list;

static bool take_upload(void *ctx, const tarn_upload_row *row)
{
    upload_list *l = ctx;
    for (size_t i = 0; i < SLOTS; i++) {
        const mupload *u = &l->r->m.uploads[i];
        if (u->open && u->id == row->upload_id && key_bucket(u->key) == l->bucket && tarn_str_eqc(row->key, key_name(u->key))) {
            l->seen[i] = true;
            return true;
        }
    }
    if (l->wanted && (key_bucket(l->wanted->key) != l->bucket || !tarn_str_eqc(row->key, key_name(l->wanted->key))))
        return true;
    tarn_sb b;
    tarn_sb_init_fixed(&b, l->strange_key, sizeof l->strange_key);
    tarn_sb_str(&b, row->key);
    l->strange_id = row->upload_id;
    l->strange_nonce = row->nonce;
    return true;
}

static bool uploads_now(run *r, upload_list *l, const mupload *wanted)
{
    *l = (upload_list){.r = r, .wanted = wanted};
    for (size_t b = 0; b < BUCKETS; b++) {
        l->bucket = b;
        tarn_err err = tarn_meta_upload_list(tarn_store_meta(r->s), r->buckets[b].id, TARN_STR(""), TARN_STR(""), 0, take_upload, l);
        if (err) {
            run_fail(r, "uploads can't be listed: %s", tarn_err_get(err)->name);
            return false;
        }
    }
    return true;
}

static bool parts_are(run *r, const mupload *u)
{
    for (uint32_t i = 0; i < PARTS; i++) {
        tarn_part_row row;
        tarn_err err = tarn_meta_part_get(tarn_store_meta(r->s), NULL, u->id, i + 1, r->arena, &row);
        if ((err == TARN_OK) != u->parts[i].there)
            return false;
        if (err == TARN_OK && (!tarn_str_eqc(row.etag, u->parts[i].etag) || row.size != u->parts[i].p.size))
            return false;
    }
    return true;
}

static void check_uploads(run *r)
{
    upload_list l;
    if (r->failed || !uploads_now(r, &l, NULL))
        return;
    if (l.strange_id)
        run_fail(r, "an upload is there that should not be: %s", l.strange_key);
    for (size_t i = 0; i < SLOTS && !r->failed; i++) {
        if (r->m.uploads[i].open && !l.seen[i])
            run_fail(r, "upload %zu is gone", i);
        else if (r->m.uploads[i].open && !parts_are(r, &r->m.uploads[i]))
            run_fail(r, "the parts of upload %zu are others", i);
    }
}

void check_all(run *r)
{
    for (size_t i = 0; i < KEYS; i++)
        check_key(r, i);
    for (size_t i = 0; i < TABLES; i++)
        check_table(r, i);
    if (!r->failed)
        check_uploads(r);
    if (!r->failed)
        check_warehouse(r);
    tarn_arena_reset(r->arena);
}

/* ------------------------------------------------------------------ doubts: done, or not */
typedef enum verdict { EITHER, DONE, NOT_DONE, NEITHER } verdict;

static void weigh(verdict *v, bool done, bool not_done)
{
    verdict mine = done && not_done ? EITHER : done ? DONE : not_done ? NOT_DONE : NEITHER;
    if (mine == NEITHER || (*v != EITHER && mine != EITHER && *v != mine))
        *v = NEITHER;
    else if (mine != EITHER)
        *v = mine;
}

static void weigh_keys(run *r, const effect *e, verdict *v, bool quiet)
{
    for (size_t i = 0; i < e->keys_n && !r->failed; i++) {
        actual a;
        if (!versions_of(r, e->key_ids[i], &a))
            return;
        bool done = key_is(&a, &e->keys[i]), not_done = key_is(&a, &r->m.keys[e->key_ids[i]]);
        if (r->verbose)
            (void)printf("     key %zu: %zu versions, done %d, not done %d\n", e->key_ids[i], a.n, done, not_done);
        weigh(v, done, not_done);
        if (*v == NEITHER && !quiet)
            fail_versions(r, e->key_ids[i], &a, &e->keys[i]);
    }
}

static void weigh_upload(run *r, effect *e, verdict *v)
{
    const mupload *before = &r->m.uploads[e->slot];
    upload_list l;
    if (!uploads_now(r, &l, before->open ? NULL : &e->upload))
        return;
    if (!before->open) { /* a new one: now its id is known */
        e->upload.id = l.strange_id;
        e->upload.nonce = l.strange_nonce;
        weigh(v, l.strange_id != 0, l.strange_id == 0);
        return;
    }
    bool there = l.seen[e->slot];
    bool done = e->upload.open ? there && parts_are(r, &e->upload) : !there;
    weigh(v, done, there && parts_are(r, before));
}

static bool table_is(run *r, size_t t, const mtable *want)
{
    static const char *const names[TABLES] = {"t0", "t1", "t2"};
    tarn_entity_row row;
    tarn_err err =
        tarn_meta_entity_get(tarn_store_meta(r->s), NULL, r->buckets[BUCKETS].id, TARN_STR("ns"), tarn_str_of(names[t]), r->arena, &row);
    if (err == TARN_E_ICE_NO_TABLE)
        return !want->exists;
    return err == TARN_OK && want->exists && tarn_str_ends(row.pointer, r->m.files[want->file].key);
}

static void weigh_table(run *r, const effect *e, verdict *v)
{
    weigh(v, table_is(r, (size_t)e->table, &e->table_after), table_is(r, (size_t)e->table, &r->m.tables[e->table]));
    if (e->file == SIZE_MAX)
        return;
    tarn_version_row row;
    tarn_version_ref ref = {.sel = TARN_VERSION_CURRENT};
    tarn_err err = tarn_object_stat(r->s, &r->buckets[BUCKETS], tarn_str_of(r->m.files[e->file].key), ref, r->arena, &row);
    weigh(v, err == TARN_OK, err == TARN_E_NO_SUCH_KEY);
}

static void weigh_bucket(run *r, const effect *e, verdict *v)
{
    tarn_bucket_row row;
    tarn_err err = tarn_meta_bucket_get(tarn_store_meta(r->s), NULL, tarn_str_of(r->bucket_names[e->bucket]), r->arena, &row);
    weigh(v, !err && row.versioning == e->versioning, !err && row.versioning == r->m.versioning[e->bucket]);
}

static verdict judge(run *r, effect *e, bool quiet)
{
    verdict v = EITHER;
    weigh_keys(r, e, &v, quiet);
    if (e->slot >= 0 && !r->failed)
        weigh_upload(r, e, &v);
    if (e->table >= 0 && !r->failed)
        weigh_table(r, e, &v);
    if (e->bucket >= 0 && !r->failed)
        weigh_bucket(r, e, &v);
    if (r->verbose)
        (void)printf("     doubt: %s\n", v == DONE ? "done" : v == NOT_DONE ? "not done" : v == EITHER ? "no difference" : "in part");
    if (v == NEITHER && !quiet)
        run_fail(r, "an operation without an answer was done in part (%zu keys, slot %d, table %d)", e->keys_n, e->slot, e->table);
    return v;
}

static void adopt(run *r, effect *e)
{
    for (size_t i = 0; i < e->keys_n; i++) {
        actual a;
        if (!versions_of(r, e->key_ids[i], &a))
            return;
        adopt_ids(&e->keys[i], &a);
        r->m.keys[e->key_ids[i]] = e->keys[i];
    }
    if (e->slot >= 0)
        r->m.uploads[e->slot] = e->upload;
    if (e->table >= 0)
        r->m.tables[e->table] = e->table_after;
    if (e->bucket >= 0)
        r->m.versioning[e->bucket] = r->buckets[e->bucket].versioning = e->versioning;
    if (e->file != SIZE_MAX)
        r->m.files[e->file].there = true;
}

/* Judges doubts [from, to); *done counts those that were done. Those that were not move to the front of the range. */
static size_t resolve_range(run *r, size_t from, size_t to, size_t *done)
{
    size_t kept = from;
    for (size_t i = from; i < to && !r->failed; i++) {
        verdict v = judge(r, &r->doubts[i], false);
        if (r->failed)
            break;
        if (v == DONE) {
            adopt(r, &r->doubts[i]);
            ++*done;
        } else { /* NOT_DONE, or a marker in a marker's place whose number is not known: it may yet come */
            r->doubts[kept++] = r->doubts[i];
        }
    }
    return kept - from;
}

/*
 * What was answered with an error and is not there may still be in a log that a power cut brings back, until the next
 * transaction is written in its place. So it stays a doubt until then; one that was done has taken the place of the older ones.
 */
void resolve_doubts(run *r)
{
    size_t old = r->old_doubts_n, n = r->doubts_n, done = 0, kept_old = 0;
    bool new_first = true;
    for (size_t i = old; i < n && !r->failed && old > 0; i++)
        new_first = new_first && judge(r, &r->doubts[i], true) != NEITHER;
    if (!new_first)
        kept_old = resolve_range(r, 0, old, &done);
    done = 0;
    size_t kept_new = resolve_range(r, old, n, &done);
    if (new_first && done == 0)
        kept_old = resolve_range(r, 0, old, &done);
    if (done > 0)
        kept_old = 0;
    memmove(r->doubts + kept_old, r->doubts + old, kept_new * sizeof r->doubts[0]);
    r->doubts_n = r->old_doubts_n = kept_old + kept_new;
    tarn_arena_reset(r->arena);
}

/* ------------------------------------------------------------------ the drives themselves */
static tarn_err whole_blob(run *r, tarn_str layout)
{
    obj_blob b;
    tarn_err err = obj_blob_unpack(layout, &b);
    if (err || b.missing) {
        run_fail(r, "a layout says after healing that shards are missing (%x)", b.missing);
        return TARN_E_CORRUPT;
    }
    for (unsigned i = 0; i < (unsigned)(b.k + b.m) && !r->failed; i++) {
        char path[TARN_PATH_BYTES_MAX];
        tarn_file *f = NULL;
        obj_drive *d = obj_drive_at(r->s, b.set, obj_blob_drive(&b, i, r->s->n));
        bool good = obj_path_blob(d, &b, path) && tarn_file_open_sync(r->s->fs, path, 0, 0, &f) == 0;
        for (uint64_t k = 0; good && k < obj_blob_blocks(&b); k++) {
            size_t len = obj_shard_len(obj_block_len(&b, k), b.k);
            uint8_t *mem = malloc(len + 1);
            TARN_ASSERT(mem != NULL);
            good = tarn_file_pread_sync(f, mem, len, b.offset + obj_shard_offset(&b, k)) == (int64_t)len &&
                   obj_shard_sum(b.blob_id, k, i, mem, len) == obj_blob_sum(&b, k, i);
            free(mem);
        }
        tarn_file_unref(f);
        if (!good)
            run_fail(r, "after healing shard %u of blob %llx is not whole on %s", i, (unsigned long long)b.blob_id, d->path);
    }
    return r->failed ? TARN_E_CORRUPT : TARN_OK;
}

static tarn_err whole_part(void *ctx, const tarn_part_row *row)
{
    return row->layout.n > 0 ? whole_blob(ctx, row->layout) : TARN_OK;
}

static tarn_err whole_version(void *ctx, const tarn_version_row *row)
{
    run *r = ctx;
    if (row->data_id == 0 || row->inline_data)
        return TARN_OK;
    return row->parts_n > 0 ? obj_scan_parts(r->s, row->data_id, whole_part, r) : whole_blob(r, row->layout);
}

/* Does not fail the run. */
bool check_upload_whole(run *r, const mupload *u)
{
    tarn_err err = obj_scan_parts(r->s, u->id, whole_part, r);
    bool whole = !err && !r->failed;
    r->failed = false;
    return whole;
}

void check_whole(run *r)
{
    tarn_err err = obj_scan_versions(r->s, NULL, whole_version, r);
    for (size_t i = 0; i < SLOTS && !err; i++) {
        if (r->m.uploads[i].open)
            err = obj_scan_parts(r->s, r->m.uploads[i].id, whole_part, r);
    }
    if (err && !r->failed)
        run_fail(r, "the shards can't be looked at: %s", tarn_err_get(err)->name);
}

typedef struct left_over {
    run *r;
    const char *folder;
    size_t n;
} left_over;

static bool count_left(void *ctx, const char *name, bool is_dir)
{
    left_over *l = ctx;
    uint64_t id = 0;
    bool segment = tarn_hex_to_u64(tarn_str_of(name), &id) && strstr(l->folder, "segments") != NULL;
    if (!is_dir && !(segment && obj_seg_in_use(l->r->s, id)))
        l->n++;
    return true;
}

void check_nothing_left(run *r)
{
    for (size_t i = 0; i < r->s->drives_n && !r->failed; i++) {
        for (unsigned d = 0; d <= 64 && !r->failed; d++) {
            char below[32], path[TARN_PATH_BYTES_MAX];
            tarn_sb b;
            tarn_sb_init_fixed(&b, below, sizeof below);
            if (d == 64)
                tarn_sb_cstr(&b, "segments");
            else
                tarn_sb_fmt(&b, "parts/%02x", d);
            left_over l = {.r = r, .folder = below};
            TARN_ASSERT(obj_path(&r->s->drives[i], below, path));
            int rc = r->s->fs->list(r->s->fs, path, count_left, &l);
            if (rc < 0 || l.n > 0)
                run_fail(r, "everything was deleted and swept: %zu files are left in %s (%d)", l.n, path, rc);
        }
    }
}
