/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Making the database again when all its copies are lost.
 *
 *   inventory: every record on every drive; a place that can't be read ends it, and nothing was changed
 *     → the newest backup that is whole (or an empty database)
 *     → numbers go on far above everything that was ever given out
 *     → what the backup has: versions whose data is gone since (deleted, overwritten) go, the others stay as they are
 *     → what the backup has not: versions are made from records and manifests (adopt.c), oldest first
 *
 * The old files of the database are renamed, never deleted. Until the restored copies are synced their side records say
 * REBUILDING, and from then to the end of it all UNFINISHED: no daemon starts with half an index, and a run that ended early is
 * begun anew, from the same backup.
 *
 * Invariants:
 *  1. A version that the backup has is dropped only when so many of its shards are known to be gone that it can't be read.
 *  2. Data that a row of the backup's garbage names is not brought back.
 *  3. Nothing is changed before every record of the drives in use was looked for: what can't be read is not taken for deleted.
 *  4. A read that failed is an error, never "there is none": of the backup, of a manifest, of a record, of data. It ends with OK only
 *     where another drive had it.
 * Memory: some 150 bytes a blob. Threads: the caller's, a plain one; everything is synchronous.
 */
#include "rebuild.h"

#include "overlay.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

#define SEQ_SKIP (UINT64_C(1) << 40) /* more numbers than are given out between two backups */
#define BLOB_BUCKETS (1u << 18)
#define DROPS_PER_TX 256

/* ------------------------------------------------------------------ the backup */
typedef struct newest {
    uint64_t ms, below;
    char path[TARN_PATH_BYTES_MAX];
    const obj_drive *d;
} newest;

static bool note_backup(void *ctx, const char *name, bool is_dir)
{
    newest *n = ctx;
    uint64_t ms = 0;
    tarn_sb b;
    if (is_dir || !obj_backup_name(name, &ms) || ms <= n->ms || ms >= n->below) {
        return true;
    }
    tarn_sb_init_fixed(&b, n->path, sizeof n->path);
    tarn_sb_fmt(&b, "%s/tarn/backup/%s", n->d->path, name);
    n->ms = b.failed ? n->ms : ms;
    return true;
}

/* The time of the newest backup that is older than `below`, on any drive; 0: there is none. A folder that can't be listed may have it. */
static tarn_err newest_time(rebuild *r, uint64_t below, uint64_t *out)
{
    uint64_t best = 0;
    for (size_t i = 0; i < r->s->drives_n; i++) {
        newest n = {.below = below, .d = &r->s->drives[i]};
        char folder[TARN_PATH_BYTES_MAX];
        if (!obj_drive_readable(n.d)) {
            continue;
        }
        int rc = obj_path(n.d, "backup", folder) ? r->s->fs->list(r->s->fs, folder, note_backup, &n) : -ENAMETOOLONG;
        if (rc < 0 && rc != -ENOENT) {
            *r->to->reason = tarn_arena_fmt(r->to->arena,
                                            "drive %s: its backups can't be listed: %s; the newest one may be there, and nothing was "
                                            "changed. Try again, copy the drive to a new one, or take it out",
                                            n.d->path, strerror(-rc));
            return tarn_err_from_errno(-rc);
        }
        best = n.ms > best ? n.ms : best;
    }
    *out = best;
    return TARN_OK;
}

/* A copy that is wrong is read once more: it may have come wrongly this once. */
static tarn_err check_copy(rebuild *r, const char *path)
{
    tarn_err err = tarn_meta_backup_check(r->s->fs, path);
    return err == TARN_E_CORRUPT || err == TARN_E_FORMAT ? tarn_meta_backup_check(r->s->fs, path) : err;
}

/* A whole copy of the backup of that time. CORRUPT: all are damaged. Where none is whole and one could not be read, that is no damage. */
static tarn_err whole_copy(rebuild *r, uint64_t ms, newest *out)
{
    tarn_err unread = TARN_OK;
    for (size_t i = 0; i < r->s->drives_n; i++) {
        newest n = {.ms = ms, .d = &r->s->drives[i]};
        tarn_sb b;
        tarn_sb_init_fixed(&b, n.path, sizeof n.path);
        tarn_sb_fmt(&b, "%s/tarn/backup/meta-%016llx.db", n.d->path, (unsigned long long)ms);
        if (!obj_drive_readable(n.d) || b.failed) {
            continue;
        }
        tarn_err err = check_copy(r, n.path);
        if (!err) {
            *out = n;
            return TARN_OK;
        }
        if (err == TARN_E_CORRUPT || err == TARN_E_FORMAT) {
            obj_say(r->to, "backup %s can't be used: it is damaged", n.path);
        } else if (err != TARN_E_NOT_FOUND) {
            obj_say(r->to, "backup %s can't be read: %s", n.path, tarn_err_get(err)->message);
            *r->to->reason = tarn_arena_fmt(r->to->arena,
                                            "backup %s is the newest one and can't be read, nor is there a whole copy of it on another "
                                            "drive: nothing was changed. Try again, copy the drive to a new one, or take it out",
                                            n.path);
            unread = err;
        }
    }
    return unread ? unread : TARN_E_CORRUPT;
}

/* The newest one that is whole, on any drive; *found false: there is none. A failed read is not taken for "no backup". */
static tarn_err find_backup(rebuild *r, newest *out, bool *found)
{
    uint64_t below = UINT64_MAX, ms = 0;
    tarn_err err = newest_time(r, below, &ms);
    *found = false;
    while (!err && ms != 0 && !*found) {
        err = whole_copy(r, ms, out);
        *found = err == TARN_OK;
        if (err == TARN_E_CORRUPT) {
            below = ms;
            err = newest_time(r, below, &ms);
        }
    }
    return err;
}

/* An empty database in memory, as a backup of it. */
static tarn_err make_empty(obj_overlay *o, const obj_drive *d, char path[TARN_PATH_BYTES_MAX])
{
    char dir[TARN_PATH_BYTES_MAX];
    const char *dirs[] = {dir};
    tarn_meta *m = NULL;
    tarn_sb b;
    tarn_meta_options mo = {
        .fs = obj_overlay_fs(o), .dirs = dirs, .dirs_n = 1, .write_quorum = 1, .cache_bytes = 1u << 20, .inline_committer = true};
    if (!obj_path(d, "empty", dir)) {
        return TARN_E_LIMIT;
    }
    tarn_sb_init_fixed(&b, path, TARN_PATH_BYTES_MAX);
    tarn_sb_fmt(&b, "%s/backup.db", dir);
    int rc = mo.fs->mkdir(mo.fs, dir, 0700);
    tarn_err err = rc < 0 ? tarn_err_from_errno(-rc) : tarn_meta_open(&mo, &m);
    if (!err) {
        err = tarn_meta_backup(m, mo.fs, path, NULL, NULL);
        tarn_meta_close(m);
    }
    return err;
}

static int set_aside(tarn_store *s, const obj_drive *d, const char *name, int64_t now_ms)
{
    char from[TARN_PATH_BYTES_MAX], to[TARN_PATH_BYTES_MAX];
    tarn_sb a, b;
    tarn_sb_init_fixed(&a, from, sizeof from);
    tarn_sb_fmt(&a, "%s/tarn/meta/%s", d->path, name);
    tarn_sb_init_fixed(&b, to, sizeof to);
    tarn_sb_fmt(&b, "%s/tarn/meta/%s.lost-%lld", d->path, name, (long long)now_ms);
    int rc = a.failed || b.failed ? -ENAMETOOLONG : s->fs->rename(s->fs, from, to);
    return rc == -ENOENT ? 0 : rc;
}

static tarn_err set_all_aside(rebuild *r)
{
    int64_t now_ms = tarn_now_ms();
    for (size_t i = 0; i < r->s->drives_n; i++) {
        const obj_drive *d = &r->s->drives[i];
        if (!obj_drive_writable(d)) {
            obj_say(r->to, "drive %s gets no copy of the database: %s", d->path, atomic_load(&d->reason));
            continue;
        }
        char folder[TARN_PATH_BYTES_MAX];
        if (obj_path(d, "meta", folder) && tarn_meta_copy_unfinished(r->s->fs, folder)) {
            continue; /* what an attempt before this one has left: it is written over */
        }
        int rc = set_aside(r->s, d, "tarn.db", now_ms);
        rc = rc == 0 ? set_aside(r->s, d, "tarn.db-wal", now_ms) : rc;
        if (rc < 0) {
            *r->to->reason = tarn_arena_fmt(r->to->arena, "drive %s: the old database can't be renamed: %s", d->path, strerror(-rc));
            return tarn_err_from_errno(-rc);
        }
    }
    return TARN_OK;
}

static tarn_err skip_fn(tarn_meta_tx *tx, void *arg)
{
    uint64_t *first = arg;
    tarn_err err = tarn_meta_tx_seq_skip(tx, SEQ_SKIP);
    if (!err) {
        *first = tarn_meta_tx_seq(tx);
    }
    return err;
}

/* What to begin with: *path on *fs. */
static tarn_err choose_backup(rebuild *r, obj_overlay **o, char path[TARN_PATH_BYTES_MAX], tarn_fs **fs)
{
    newest n = {0};
    bool found = false;
    tarn_sb b;
    tarn_err err = TARN_OK;
    tarn_sb_init_fixed(&b, path, TARN_PATH_BYTES_MAX);
    *fs = r->s->fs;
    if (r->spec->backup) {
        tarn_sb_cstr(&b, r->spec->backup);
        *fs = tarn_fs_posix();
    } else {
        err = find_backup(r, &n, &found);
    }
    if (found) {
        tarn_sb_cstr(&b, n.path);
        r->out->backup_ms = (int64_t)n.ms;
    }
    if (!err && (found || r->spec->backup)) {
        obj_say(r->to, "beginning with the backup %s", path);
        return b.failed ? TARN_E_LIMIT : TARN_OK;
    }
    if (!err) {
        obj_say(r->to, "there is no backup: settings, inline objects, and versions' ids can't come back");
        *o = obj_overlay_new(r->s->fs);
        err = *o ? make_empty(*o, &r->s->drives[0], path) : TARN_E_NO_MEMORY;
        *fs = *o ? obj_overlay_fs(*o) : *fs;
    }
    return err;
}

static tarn_err start_database(rebuild *r)
{
    char path[TARN_PATH_BYTES_MAX];
    obj_overlay *o = NULL;
    tarn_fs *fs = NULL;
    tarn_err err = choose_backup(r, &o, path, &fs);
    if (!err) {
        err = tarn_meta_backup_check(fs, path);
    }
    if (!err) {
        err = set_all_aside(r);
    }
    if (!err) {
        err = obj_store_meta(r->s, true, path, fs);
    }
    if (!err) {
        err = tarn_meta_commit(r->s->meta, skip_fn, &r->first_seq);
    }
    obj_overlay_free(o);
    if (err && r->to->reason->n == 0) {
        *r->to->reason = tarn_arena_fmt(r->to->arena, "the database can't be put back: %s", tarn_err_get(err)->message);
    }
    return err;
}

/* ------------------------------------------------------------------ the inventory */
static size_t bucket_of(const rebuild *r, uint64_t blob_id)
{
    return (size_t)(blob_id * 0x9E3779B97F4A7C15ull >> 32) & (r->buckets_n - 1);
}

rb_blob *rb_find(rebuild *r, uint64_t blob_id)
{
    rb_blob *b = r->buckets[bucket_of(r, blob_id)];
    while (b && b->blob.blob_id != blob_id) {
        b = b->next;
    }
    return b;
}

unsigned rb_available(const rebuild *r, const rb_blob *b)
{
    unsigned n = 0;
    for (unsigned i = 0; i < (unsigned)(b->blob.k + b->blob.m); i++) {
        bool away = (r->out_mask[b->blob.set] >> obj_blob_drive(&b->blob, i, r->s->n)) & 1;
        n += away || (b->whole >> i) & 1 ? 1 : 0;
    }
    return n;
}

static bool take_record(void *ctx, obj_drive *d, const obj_record *rec, const obj_trailer *trailer)
{
    rebuild *r = ctx;
    const obj_blob *b = &rec->blob;
    if (b->k != r->s->k || b->m != r->s->m || b->set != d->set || obj_blob_drive(b, rec->shard, r->s->n) != d->position) {
        return true; /* written for another place */
    }
    rb_blob *found = rb_find(r, b->blob_id);
    if (!found) {
        found = tarn_calloc(1, sizeof *found);
        if (!found) {
            r->err = TARN_E_NO_MEMORY;
            return false;
        }
        found->blob = *b;
        found->blob.sums = TARN_STR_NULL;
        found->bucket_id = rec->info.bucket_id;
        found->next = r->buckets[bucket_of(r, b->blob_id)];
        r->buckets[bucket_of(r, b->blob_id)] = found;
        r->blobs_n++;
    }
    if (trailer) {
        found->blob.size = trailer->size;
        found->whole |= (uint16_t)(1u << rec->shard);
        r->out->records++;
    }
    return true;
}

static tarn_err take_inventory(rebuild *r)
{
    tarn_err err = TARN_OK;
    r->buckets_n = BLOB_BUCKETS;
    r->buckets = tarn_calloc(r->buckets_n, sizeof *r->buckets);
    if (!r->buckets) {
        return TARN_E_NO_MEMORY;
    }
    for (size_t i = 0; !err && i < r->s->drives_n; i++) {
        obj_drive *d = &r->s->drives[i];
        obj_scan_gaps gaps = {0};
        if (!obj_drive_readable(d)) {
            r->out_mask[d->set] |= (uint16_t)(1u << d->position);
            continue;
        }
        err = obj_records_scan(r->s, d, take_record, r, &gaps);
        err = err ? err : r->err;
        if (gaps.headless > 0) {
            obj_say(r->to, "drive %s: %llu files without a right header", d->path, (unsigned long long)gaps.headless);
        }
        if (!err && gaps.failed > 0) {
            *r->to->reason = tarn_arena_fmt(r->to->arena,
                                            "drive %s: %llu files or places can't be read, and what is there would be missing in the "
                                            "database: nothing was changed. Try again, copy the drive to a new one, or take it out",
                                            d->path, (unsigned long long)gaps.failed);
            err = TARN_E_IO;
        }
    }
    obj_say(r->to, "found %llu records of %zu blobs", (unsigned long long)r->out->records, r->blobs_n);
    return err;
}

/* ------------------------------------------------------------------ what the backup has */
typedef struct keep {
    rebuild *r;
    unsigned gone;   /* blobs of the version that can't be read any more */
    unsigned thin;   /* blobs with a shard missing */
    uint32_t part_n; /* parts seen */
    tarn_arena *drops_arena;
    tarn_version_row drops[DROPS_PER_TX];
    size_t drops_n;
    uint64_t upload_id;
    uint32_t dead[TARN_PARTS_MAX];
    size_t dead_n;
} keep;

static void judge(keep *k, tarn_str layout)
{
    obj_blob b;
    if (layout.n == 0) {
        return;
    }
    if (obj_blob_unpack(layout, &b) != TARN_OK || b.set >= k->r->s->sets) {
        k->gone++;
        return;
    }
    rb_blob *found = rb_find(k->r, b.blob_id);
    rb_blob none = {.blob = b};
    unsigned n = rb_available(k->r, found ? found : &none);
    if (found) {
        found->referenced = true;
    }
    k->gone += n < b.k ? 1 : 0;
    k->thin += n < (unsigned)(b.k + b.m) ? 1 : 0;
}

static tarn_err judge_part(void *ctx, const tarn_part_row *row)
{
    keep *k = ctx;
    k->part_n++;
    judge(k, row->layout);
    return TARN_OK;
}

/* A version whose data is gone was deleted or overwritten after the backup. */
static tarn_err drop_fn(tarn_meta_tx *tx, void *arg)
{
    keep *k = arg;
    tarn_err err = TARN_OK;
    for (size_t i = 0; !err && i < k->drops_n; i++) {
        err = obj_drop_data(tx, &k->drops[i]);
        if (!err) {
            err = tarn_meta_version_delete(tx, &k->drops[i]);
        }
    }
    return err;
}

static tarn_err drop_flush(keep *k)
{
    tarn_err err = k->drops_n > 0 ? tarn_meta_commit(k->r->s->meta, drop_fn, k) : TARN_OK;
    k->drops_n = 0;
    tarn_arena_reset(k->drops_arena);
    return err;
}

static tarn_err drop(keep *k, const tarn_version_row *row)
{
    tarn_version_row *d = &k->drops[k->drops_n];
    *d = *row;
    d->key = tarn_arena_str(k->drops_arena, row->key);
    d->layout = tarn_arena_str(k->drops_arena, row->layout);
    d->etag = d->attrs = d->tags = TARN_STR("");
    if (!d->key.p || !d->layout.p) {
        return TARN_E_NO_MEMORY;
    }
    k->drops_n++;
    k->r->out->dropped++;
    return k->drops_n == DROPS_PER_TX ? drop_flush(k) : TARN_OK;
}

static tarn_err keep_version(void *ctx, const tarn_bucket_row *bucket, const tarn_version_row *row)
{
    keep *k = ctx;
    tarn_err err = TARN_OK;
    k->gone = k->thin = k->part_n = 0;
    if (row->parts_n > 0) {
        err = obj_scan_parts(k->r->s, row->data_id, judge_part, k);
        k->gone += k->part_n < row->parts_n ? 1 : 0;
    } else if (!row->inline_data) {
        judge(k, row->layout);
    }
    if (!err && k->gone > 0) {
        obj_say(k->r->to, "left out: %.*s/%.*s: its data is not there any more (deleted or overwritten since the backup)",
                TARN_STR_ARG(bucket->name), TARN_STR_ARG(row->key));
        return drop(k, row);
    }
    k->r->out->kept += err ? 0 : 1;
    if (!err && k->thin > 0) {
        obj_repair_ask(k->r->s, row->bucket_id, row->key, row->seq);
    }
    return err;
}

static tarn_err judge_upload_part(void *ctx, const tarn_part_row *row)
{
    keep *k = ctx;
    k->gone = 0;
    judge(k, row->layout);
    if (k->gone > 0) {
        k->dead[k->dead_n++] = row->number;
    }
    return TARN_OK;
}

static tarn_err drop_parts_fn(tarn_meta_tx *tx, void *arg)
{
    keep *k = arg;
    tarn_err err = TARN_OK;
    for (size_t i = 0; !err && i < k->dead_n; i++) {
        err = tarn_meta_part_delete(tx, k->upload_id, k->dead[i]);
    }
    return err;
}

/* An upload that goes on must not be completed with parts that are gone. */
static tarn_err keep_upload(void *ctx, uint64_t upload_id)
{
    keep *k = ctx;
    k->dead_n = 0;
    k->upload_id = upload_id;
    tarn_err err = obj_scan_parts(k->r->s, upload_id, judge_upload_part, k);
    return !err && k->dead_n > 0 ? tarn_meta_commit(k->r->s->meta, drop_parts_fn, k) : err;
}

typedef struct garbage_page {
    keep *k;
    uint64_t ids[256];
    size_t n;
    uint64_t last;
} garbage_page;

static bool judge_garbage(void *ctx, const tarn_garbage_row *row)
{
    garbage_page *p = ctx;
    p->last = row->id;
    if (row->layout.n > 0) {
        judge(p->k, row->layout);
    } else {
        p->ids[p->n++] = row->data_id;
    }
    return p->n < TARN_ARRAY_LEN(p->ids);
}

static tarn_err keep_garbage(keep *k)
{
    garbage_page *p = tarn_calloc(1, sizeof *p);
    tarn_err err = p ? TARN_OK : TARN_E_NO_MEMORY;
    while (!err) {
        p->k = k;
        p->n = 0;
        err = tarn_meta_garbage_list(k->r->s->meta, p->last, judge_garbage, p);
        for (size_t i = 0; !err && i < p->n; i++) {
            err = obj_scan_parts(k->r->s, p->ids[i], judge_part, k);
        }
        if (p->n < TARN_ARRAY_LEN(p->ids)) {
            break;
        }
    }
    tarn_free(p);
    return err;
}

static tarn_err reconcile(rebuild *r)
{
    keep *k = tarn_calloc(1, sizeof *k);
    tarn_err err = TARN_E_NO_MEMORY;
    if (k && (k->drops_arena = tarn_arena_new(256u << 20)) != NULL) {
        k->r = r;
        obj_walk w = {.s = r->s, .fn = keep_version, .ctx = k};
        err = obj_walk_run(&w);
        if (!err) {
            err = drop_flush(k);
        }
        if (!err) {
            err = obj_scan_uploads(r->s, keep_upload, k);
        }
        if (!err) {
            err = keep_garbage(k);
        }
    }
    if (k) {
        tarn_arena_free(k->drops_arena);
    }
    tarn_free(k);
    return err;
}

/* ------------------------------------------------------------------ all of it */
/* Can it be opened no more, whatever is tried? A read that fails today, or memory that is short, does not say that. */
static bool is_lost(tarn_err err)
{
    return err == TARN_E_NOT_FOUND || err == TARN_E_UNFINISHED || err == TARN_E_CORRUPT || err == TARN_E_FORMAT ||
           err == TARN_E_QUORUM_READ;
}

/* OK: the database can't be opened, or nobody minds. */
static tarn_err check_lost(const tarn_store_options *opt, const tarn_rebuild_spec *spec, const tarn_offline *to)
{
    tarn_store_options mine = *opt;
    tarn_store *s = NULL;
    if (spec->force) {
        return TARN_OK;
    }
    obj_overlay *o = obj_overlay_new(opt->fs);
    if (!o) {
        return TARN_E_NO_MEMORY;
    }
    mine.fs = obj_overlay_fs(o);
    tarn_err err = obj_store_open(&mine, false, &s, to->arena, to->reason); /* what is wrong with drives is no loss of the database */
    if (!err) {
        err = obj_store_meta(s, true, NULL, NULL);
        if (!err) {
            *to->reason = TARN_STR("the database can be opened: nothing has to be rebuilt. Start the daemon, or say --force");
            err = TARN_E_CONFLICT;
        } else if (is_lost(err)) {
            err = TARN_OK;
        } else {
            *to->reason = tarn_arena_fmt(to->arena,
                                         "it can't be told whether the database is lost, and nothing was changed: %s Try again; with "
                                         "--force it is made again all the same",
                                         tarn_err_get(err)->message);
        }
        tarn_store_close(s);
    }
    obj_overlay_free(o);
    return err;
}

static void free_inventory(rebuild *r)
{
    for (size_t i = 0; r->buckets && i < r->buckets_n; i++) {
        while (r->buckets[i]) {
            rb_blob *b = r->buckets[i];
            r->buckets[i] = b->next;
            tarn_free(b);
        }
    }
    tarn_free(r->buckets);
}

/* All is there: from here on it is a database like any other. */
static tarn_err finish(rebuild *r)
{
    tarn_err err = tarn_meta_finish(r->s->meta);
    if (!err) {
        err = obj_drives_formatted(r->s);
    }
    tarn_err repaired = err ? TARN_OK : obj_repair_pass(r->s, NULL); /* shards that are missing are made now */
    if (repaired) {
        obj_say(r->to, "not all shards that are missing could be made (%s): they stay queued, and the daemon makes them",
                tarn_err_get(repaired)->message);
    }
    return err;
}

tarn_err tarn_store_rebuild(const tarn_store_options *opt, const tarn_rebuild_spec *spec, const tarn_offline *to, tarn_rebuild_report *out)
{
    rebuild r = {.to = to, .spec = spec, .out = out};
    tarn_store_options mine = *opt;
    *out = (tarn_rebuild_report){0};
    mine.inline_committer = true;
    tarn_err err = check_lost(opt, spec, to);
    if (!err) {
        err = obj_store_open(&mine, false, &r.s, to->arena, to->reason);
    }
    if (err) {
        return err;
    }
    err = take_inventory(&r); /* before anything is changed: it may find what can't be read */
    if (!err) {
        err = start_database(&r);
    }
    if (!err) {
        err = reconcile(&r);
    }
    if (!err) {
        r.tables_arena = tarn_arena_new(256u << 20);
        err = r.tables_arena ? rb_adopt(&r) : TARN_E_NO_MEMORY;
    }
    if (!err) {
        err = rb_tables(&r);
    }
    if (!err) {
        err = finish(&r);
    }
    free_inventory(&r);
    tarn_arena_free(r.tables_arena);
    tarn_store_close(r.s);
    if (err && to->reason->n == 0) {
        *to->reason = tarn_str_of(tarn_err_get(err)->message);
    }
    return err;
}
