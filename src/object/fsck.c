/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The offline check. The store is opened on an overlay, so that what opening writes (levelled copies of the database, a
 * checkpoint) stays in memory; the locks are real and keep a daemon away.
 *
 *   copies' pages → database → every version's and upload's shards → tables' metadata files → records without a reference
 *
 * Threads: the caller's, a plain one; everything is synchronous.
 */
#include "manifest.h"
#include "overlay.h"
#include "record.h"
#include "upkeep.h"

#define SAY_LINE_BYTES_MAX 4096

typedef struct fsck {
    tarn_store *s;
    const tarn_offline *to;
    tarn_fsck_report *out;
    tarn_arena *arena; /* of one record */
    tarn_str bucket;   /* whose namespaces are walked */
    uint64_t bucket_id;
    tarn_err err; /* of a callback: a table, or what refers to a record, could not be looked at */
} fsck;

void obj_say(const tarn_offline *to, const char *fmt, ...)
{
    char mem[SAY_LINE_BYTES_MAX];
    va_list ap;
    va_start(ap, fmt);
    tarn_str line = tarn_str_vfmt(mem, sizeof mem, "(a line that is too long)", fmt, ap);
    va_end(ap);
    to->say(to->ctx, line);
}

/* ------------------------------------------------------------------ the database */
static void check_copies(fsck *f)
{
    for (size_t i = 0; i < f->s->drives_n; i++) {
        const obj_drive *d = &f->s->drives[i];
        char path[TARN_PATH_BYTES_MAX];
        uint64_t pages = 0, bad = 0;
        if (!obj_drive_readable(d)) {
            obj_say(f->to, "drive %s is not used: %s", d->path, atomic_load(&d->reason));
            continue;
        }
        tarn_err err = obj_path(d, "meta", path) ? tarn_meta_copy_check(f->s->fs, path, &pages, &bad) : TARN_E_LIMIT;
        if (err || bad > 0) {
            obj_say(f->to, "drive %s: database copy: %llu of %llu pages are wrong%s%s", d->path, (unsigned long long)bad,
                    (unsigned long long)pages, err ? ", " : "", err ? tarn_err_get(err)->message : "");
        }
        f->out->database_bad_pages += bad;
    }
}

static void say_problem(void *ctx, tarn_str problem)
{
    const fsck *f = ctx;
    obj_say(f->to, "database: %.*s", TARN_STR_ARG(problem));
}

/* ------------------------------------------------------------------ versions and uploads */
static void tally(fsck *f, const obj_check *c, const char *what, tarn_str bucket, tarn_str key, uint64_t seq)
{
    tarn_fsck_report *o = f->out;
    o->parts_bytes += c->bytes;
    o->missing += c->missing;
    o->corrupt += c->corrupt;
    o->lost += c->lost > 0 ? 1 : 0;
    o->damaged += c->missing + c->corrupt > 0 ? 1 : 0;
    o->waiting += c->lost == 0 && c->unreadable > 0 ? 1 : 0;
    if (!obj_check_clean(c) || c->unreadable > 0) {
        obj_say(f->to, "%s %.*s/%.*s (%llu): %u shards missing, %u wrong%s%s", what, TARN_STR_ARG(bucket), TARN_STR_ARG(key),
                (unsigned long long)seq, c->missing, c->corrupt, c->lost > 0 ? ", LOST: too few are left" : "",
                c->unreadable > 0 ? ", drives are needed that are out" : "");
    }
}

static tarn_err check_version(void *ctx, const tarn_bucket_row *bucket, const tarn_version_row *row)
{
    fsck *f = ctx;
    obj_check c = {0};
    tarn_err err = obj_check_version(f->s, row, &c);
    f->out->versions++;
    if (!err) {
        tally(f, &c, "object", bucket->name, row->key, row->seq);
    }
    return err;
}

static tarn_err check_upload(void *ctx, uint64_t upload_id)
{
    fsck *f = ctx;
    obj_check c = {0};
    tarn_err err = obj_check_upload(f->s, upload_id, &c);
    f->out->uploads++;
    if (!err) {
        tally(f, &c, "upload", TARN_STR("-"), TARN_STR("-"), upload_id);
    }
    return err;
}

static bool count_garbage(void *ctx, const tarn_garbage_row *row)
{
    (void)row;
    ++*(uint64_t *)ctx;
    return true;
}

/* ------------------------------------------------------------------ tables */
/* s3://bucket/key → key, when the bucket is this one. */
static bool pointer_key(tarn_str pointer, tarn_str bucket, tarn_str *key)
{
    tarn_str name;
    if (!tarn_str_starts(pointer, "s3://")) {
        return false;
    }
    return tarn_str_split(tarn_str_sub(pointer, 5, pointer.n), '/', &name, key) && tarn_str_eq(name, bucket);
}

static bool check_table(void *ctx, const tarn_entity_row *row)
{
    fsck *f = ctx;
    tarn_version_row version;
    tarn_str key;
    tarn_arena *a = tarn_arena_new(TARN_LAYOUT_BYTES_MAX * 2);
    f->out->tables++;
    tarn_err err = a ? TARN_E_NO_SUCH_KEY : TARN_E_NO_MEMORY;
    if (a && pointer_key(row->pointer, f->bucket, &key)) {
        err = tarn_meta_object_get(f->s->meta, NULL, f->bucket_id, key, a, &version);
    }
    bool there = err == TARN_OK && !version.delete_marker;
    tarn_arena_free(a);
    if (err && err != TARN_E_NO_SUCH_KEY) { /* that tells nothing of the table */
        f->err = err;
        return false;
    }
    if (!there) {
        f->out->tables_lost++;
        obj_say(f->to, "table %.*s of warehouse %.*s: its metadata file is not there: %.*s", TARN_STR_ARG(row->name),
                TARN_STR_ARG(f->bucket), TARN_STR_ARG(row->pointer));
    }
    return true;
}

typedef struct ns_list {
    uint64_t ids[256];
    char paths[256][TARN_NS_PATH_BYTES_MAX];
    size_t path_n[256];
    size_t n;
} ns_list;

static bool take_ns(void *ctx, const tarn_ns_row *row)
{
    ns_list *l = ctx;
    tarn_sb b;
    tarn_sb_init_fixed(&b, l->paths[l->n], sizeof l->paths[l->n]);
    tarn_sb_str(&b, row->path);
    l->path_n[l->n] = b.n;
    l->ids[l->n++] = row->id;
    return l->n < TARN_ARRAY_LEN(l->ids);
}

/* Namespaces below `parent`, and theirs. */
static tarn_err check_namespaces(fsck *f, tarn_str parent)
{
    ns_list *l = tarn_calloc(1, sizeof *l);
    tarn_err err = l ? TARN_OK : TARN_E_NO_MEMORY;
    char after[TARN_NS_PATH_BYTES_MAX];
    tarn_sb b;
    tarn_sb_init_fixed(&b, after, sizeof after);
    do {
        if (err) {
            break;
        }
        l->n = 0;
        err = tarn_meta_ns_list(f->s->meta, f->bucket_id, parent, tarn_sb_view(&b), take_ns, l);
        for (size_t i = 0; !err && i < l->n; i++) {
            err = tarn_meta_entity_list(f->s->meta, f->bucket_id, l->ids[i], TARN_ENTITY_TABLE, TARN_STR(""), check_table, f);
            err = err ? err : f->err;
            if (!err) {
                err = tarn_meta_entity_list(f->s->meta, f->bucket_id, l->ids[i], TARN_ENTITY_VIEW, TARN_STR(""), check_table, f);
            }
            err = err ? err : f->err;
            if (!err) {
                err = check_namespaces(f, (tarn_str){l->paths[i], l->path_n[i]});
            }
        }
        if (l->n > 0) {
            tarn_sb_reset(&b);
            tarn_sb_bytes(&b, l->paths[l->n - 1], l->path_n[l->n - 1]);
        }
    } while (!err && l->n == TARN_ARRAY_LEN(l->ids));
    tarn_free(l);
    return err;
}

static tarn_err check_warehouse(void *ctx, uint64_t bucket_id)
{
    fsck *f = ctx;
    tarn_bucket_row bucket;
    tarn_arena *a = tarn_arena_new(2 * TARN_BUCKET_CONFIG_BYTES_MAX);
    tarn_err err = a ? tarn_meta_bucket_get_id(f->s->meta, NULL, bucket_id, a, &bucket) : TARN_E_NO_MEMORY;
    if (!err && bucket.warehouse) {
        f->bucket = bucket.name;
        f->bucket_id = bucket_id;
        err = check_namespaces(f, TARN_STR(""));
    }
    tarn_arena_free(a);
    return err;
}

/* ------------------------------------------------------------------ records that nothing refers to */
tarn_err obj_record_referenced(tarn_store *s, const obj_blob *b, tarn_arena *a, bool *out)
{
    tarn_part_row row;
    obj_blob have;
    tarn_err err = tarn_meta_data_referenced(s->meta, b->data_id, out);
    if (err || !*out || b->part == 0) {
        return err;
    }
    tarn_arena_reset(a);
    err = tarn_meta_part_get(s->meta, NULL, b->data_id, b->part, a, &row);
    if (err == TARN_OK && obj_blob_unpack(row.layout, &have) == TARN_OK && have.blob_id == b->blob_id) {
        return TARN_OK;
    }
    if (err && err != TARN_E_INVALID_PART) {
        return err;
    }
    return tarn_meta_data_referenced(s->meta, b->blob_id, out); /* a replaced part that waits as garbage */
}

static bool check_record(void *ctx, obj_drive *d, const obj_record *r, const obj_trailer *trailer)
{
    fsck *f = ctx;
    bool live = true;
    f->err = obj_record_referenced(f->s, &r->blob, f->arena, &live);
    if (f->err || live) {
        return f->err == TARN_OK;
    }
    uint64_t bytes = trailer ? r->blob.head_bytes + obj_record_data_bytes(&r->blob) : r->blob.head_bytes;
    f->out->orphans++;
    f->out->orphan_bytes += bytes;
    obj_say(f->to, "drive %s: nothing refers to data %016llx part %u (%.*s/%.*s, %llu bytes%s)", d->path,
            (unsigned long long)r->blob.data_id, r->blob.part, TARN_STR_ARG(r->info.bucket), TARN_STR_ARG(r->info.key),
            (unsigned long long)bytes, trailer ? "" : ", not written to its end");
    return true;
}

static tarn_err check_records(fsck *f)
{
    tarn_err err = TARN_OK;
    for (size_t i = 0; !err && i < f->s->drives_n; i++) {
        obj_scan_gaps gaps = {0};
        if (obj_drive_readable(&f->s->drives[i])) {
            err = obj_records_scan(f->s, &f->s->drives[i], check_record, f, &gaps);
            err = err ? err : f->err;
        }
        if (gaps.headless + gaps.failed > 0) {
            obj_say(f->to, "drive %s: %llu files without a header, %llu that can't be read", f->s->drives[i].path,
                    (unsigned long long)gaps.headless, (unsigned long long)gaps.failed);
        }
    }
    return err;
}

/* ------------------------------------------------------------------ all of it */
static tarn_err run(fsck *f)
{
    obj_walk w = {.s = f->s, .fn = check_version, .ctx = f};
    check_copies(f);
    tarn_err err = tarn_meta_integrity(f->s->meta, say_problem, f, &f->out->database_problems);
    if (!err) {
        err = obj_walk_run(&w);
    }
    if (!err) {
        err = obj_scan_uploads(f->s, check_upload, f);
    }
    if (!err) {
        err = tarn_meta_garbage_list(f->s->meta, 0, count_garbage, &f->out->garbage);
    }
    if (!err) {
        err = obj_scan_buckets(f->s, check_warehouse, f);
    }
    return err ? err : check_records(f);
}

tarn_err tarn_store_fsck(const tarn_store_options *opt, const tarn_offline *to, tarn_fsck_report *out)
{
    obj_overlay *o = obj_overlay_new(opt->fs);
    tarn_store_options mine = *opt;
    fsck f = {.to = to, .out = out, .arena = tarn_arena_new(TARN_LAYOUT_BYTES_MAX * 2)};
    tarn_err err = o && f.arena ? TARN_OK : TARN_E_NO_MEMORY;
    *out = (tarn_fsck_report){0};
    if (!err) {
        mine.fs = obj_overlay_fs(o);
        mine.inline_committer = true;
        err = tarn_store_open(&mine, &f.s, to->arena, to->reason);
    }
    if (!err) {
        err = run(&f);
        if (err) {
            *to->reason = tarn_str_of(tarn_err_get(err)->message);
        }
        tarn_store_close(f.s);
    }
    tarn_arena_free(f.arena);
    obj_overlay_free(o);
    return err;
}
