/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Repair: shards that are missing or damaged are rebuilt in their own place.
 *
 *   a read or a put that met trouble ──▶ wish (in memory) ──▶ repair row ──▶ heal ──▶ layout updated, row deleted
 *
 * Healing a blob reads every shard of every block, rebuilds what is not good and writes it where it belongs: data and trailer
 * first, sync, then the header, sync. So a header that matches says that the shard was written to its end.
 *
 * Invariants:
 *  1. A shard's missing bit is cleared only after the shard is durable, and only where the row still has that data.
 *  2. Only bytes that were rebuilt from k good shards and pass their checksum are written.
 * Threads: one pass at a time (the background fiber, or a test).
 */
#include "manifest.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

#define REPAIR_PAGE 64
#define REPAIR_ARENA_BYTES_MAX (64u << 20)

/* ------------------------------------------------------------------ wishes */
void obj_repair_ask(tarn_store *s, uint64_t bucket_id, tarn_str key, uint64_t seq)
{
    pthread_mutex_lock(&s->lock);
    bool drop = s->repair_wishes_n >= OBJ_REPAIR_QUEUE_MAX || key.n > TARN_KEY_BYTES_MAX;
    for (tarn_link *l = s->repair_wishes.next; l != &s->repair_wishes && !drop; l = l->next) {
        const obj_repair_wish *w = TARN_CONTAINER_OF(l, obj_repair_wish, link);
        drop = w->seq == seq && w->bucket_id == bucket_id;
    }
    obj_repair_wish *w = drop ? NULL : tarn_calloc(1, sizeof *w);
    if (w) {
        w->bucket_id = bucket_id;
        w->seq = seq;
        memcpy(w->key_mem, key.p, key.n);
        w->key = (tarn_str){w->key_mem, key.n};
        tarn_list_push(&s->repair_wishes, &w->link);
        s->repair_wishes_n++;
    }
    pthread_mutex_unlock(&s->lock);
}

static tarn_err wishes_fn(tarn_meta_tx *tx, void *arg)
{
    tarn_link *head = arg;
    tarn_err err = TARN_OK;
    for (tarn_link *l = head->next; l != head && !err; l = l->next) {
        const obj_repair_wish *w = TARN_CONTAINER_OF(l, obj_repair_wish, link);
        tarn_repair_row row = {.bucket_id = w->bucket_id, .key = w->key, .seq = w->seq, .since_ms = tarn_meta_tx_now_ms(tx)};
        err = tarn_meta_repair_put(tx, &row);
    }
    return err;
}

static tarn_err store_wishes(tarn_store *s)
{
    tarn_link mine;
    tarn_err err = TARN_OK;
    tarn_list_init(&mine);
    pthread_mutex_lock(&s->lock);
    for (tarn_link *l; (l = tarn_list_pop(&s->repair_wishes)) != NULL;) {
        tarn_list_push(&mine, l);
    }
    s->repair_wishes_n = 0;
    pthread_mutex_unlock(&s->lock);
    if (!tarn_list_empty(&mine)) {
        err = tarn_meta_commit(s->meta, wishes_fn, &mine);
    }
    for (tarn_link *l; (l = tarn_list_pop(&mine)) != NULL;) {
        tarn_free(TARN_CONTAINER_OF(l, obj_repair_wish, link));
    }
    return err;
}

/* ------------------------------------------------------------------ healing a blob */
typedef struct heal {
    tarn_store *s;
    const obj_blob *blob;
    int64_t created_ms;
    uint8_t *head; /* a good header, NULL when no shard has one */
    obj_reader reader;
    tarn_file *out[TARN_SET_DRIVES_MAX]; /* opened for writing */
    uint16_t touched, failed;            /* shards written, shards that can't be */
} heal;

static unsigned shards(const heal *h)
{
    return (unsigned)(h->blob->k + h->blob->m);
}

static obj_drive *drive_of(const heal *h, unsigned shard)
{
    return obj_drive_at(h->s, h->blob->set, obj_blob_drive(h->blob, shard, h->s->n));
}

static void heal_failed(heal *h, unsigned shard, const char *what, int rc)
{
    h->failed |= (uint16_t)(1u << shard);
    if (rc < 0) {
        obj_drive_error(h->s, drive_of(h, shard), what, -rc);
    }
}

static tarn_file *heal_file(heal *h, unsigned shard)
{
    char path[TARN_PATH_BYTES_MAX];
    const obj_drive *d = drive_of(h, shard);
    if (h->out[shard] || (h->failed & (1u << shard))) {
        return h->out[shard];
    }
    if (!obj_drive_writable(d)) {
        heal_failed(h, shard, "", 0);
        return NULL;
    }
    int rc = obj_path_blob(d, h->blob, path) ? tarn_file_open(h->s->fs, path, O_RDWR | O_CREAT | O_CLOEXEC, 0644, &h->out[shard]) : 0;
    if (!h->out[shard]) {
        heal_failed(h, shard, "opening a shard to repair it", rc);
    }
    return h->out[shard];
}

static void heal_write(heal *h, unsigned shard, const void *p, size_t n, uint64_t off)
{
    tarn_file *f = heal_file(h, shard);
    if (!f) {
        return;
    }
    int64_t rc = tarn_file_write(f, p, n, off);
    if (rc < 0) {
        heal_failed(h, shard, "repairing a shard", (int)rc);
    } else {
        h->touched |= (uint16_t)(1u << shard);
    }
}

static tarn_err heal_block(heal *h, uint64_t block, uint16_t want)
{
    obj_stripe st;
    tarn_err err = obj_stripe_start(&h->reader, &st, block, want);
    if (!err) {
        err = obj_stripe_wait(&h->reader, &st);
    }
    for (unsigned i = 0; !err && i < shards(h); i++) {
        if (want & ~st.good & (1u << i)) {
            heal_write(h, i, obj_stripe_shard(&st, h->blob->k, i), st.shard_len, h->blob->offset + obj_shard_offset(h->blob, block));
        }
    }
    obj_stripe_release(&st);
    return err;
}

/* Shards whose header or trailer is not there or not theirs: their blocks may be good, the record is not. A good header is kept
 * to make theirs from. */
static tarn_err heal_headers(heal *h, uint16_t *wrong)
{
    size_t tail_n = obj_trailer_bytes(obj_blob_blocks(h->blob));
    uint8_t *mem = tarn_malloc(h->blob->head_bytes + 1), *tail = tarn_malloc(2 * tail_n);
    if (!mem || !tail) {
        tarn_free(mem);
        tarn_free(tail);
        return TARN_E_NO_MEMORY;
    }
    for (unsigned i = 0; i < shards(h); i++) {
        tarn_file *f = NULL;
        obj_ends ends = {false, false};
        if (obj_drive_readable(drive_of(h, i)) && obj_fd_get(h->reader.ctx, h->blob, obj_blob_drive(h->blob, i, h->s->n), &f) == 0) {
            obj_ends_read(h->blob, i, f, mem, tail, &ends);
        }
        tarn_file_unref(f);
        *wrong = (uint16_t)(*wrong | (ends.header && ends.trailer ? 0u : 1u << i));
        if (ends.header && !h->head) {
            h->head = mem;
            mem = tarn_malloc(h->blob->head_bytes + 1);
            if (!mem) {
                tarn_free(tail);
                return TARN_E_NO_MEMORY;
            }
        }
    }
    tarn_free(mem);
    tarn_free(tail);
    return TARN_OK;
}

static void heal_sync(heal *h, uint16_t mask, bool dirs)
{
    for (unsigned i = 0; i < shards(h); i++) {
        char path[TARN_PATH_BYTES_MAX];
        if (!(mask & (1u << i)) || (h->failed & (1u << i)) || !h->out[i]) {
            continue;
        }
        int rc = tarn_file_sync(h->out[i]);
        bool ok = h->blob->cls == OBJ_CLASS_SEGMENT ? obj_path(drive_of(h, i), "segments", path)
                                                    : obj_path_blob_dir(drive_of(h, i), h->blob, path);
        if (rc == 0 && dirs && ok) {
            rc = h->s->fs->sync_dir(h->s->fs, path);
        }
        if (rc < 0) {
            heal_failed(h, i, "syncing a repaired shard", rc);
        }
    }
}

/* The record's ends, for every shard that was written to or has no good header. */
static tarn_err heal_ends(heal *h, uint16_t mask)
{
    size_t tail_n = obj_trailer_bytes(obj_blob_blocks(h->blob));
    uint64_t tail_off = h->blob->offset + h->blob->head_bytes + obj_record_data_bytes(h->blob);
    uint8_t *tail = tarn_malloc(tail_n);
    if (!tail) {
        return TARN_E_NO_MEMORY;
    }
    for (unsigned i = 0; i < shards(h); i++) {
        if (mask & (1u << i)) {
            obj_trailer_build(h->blob, i, h->created_ms, tail);
            heal_write(h, i, tail, tail_n, tail_off);
        }
    }
    tarn_free(tail);
    heal_sync(h, mask, true);
    if (!h->head) { /* the data is whole; only a rebuild of the index from the drives would miss it */
        return TARN_OK;
    }
    for (unsigned i = 0; i < shards(h); i++) {
        if (mask & (1u << i)) {
            obj_header_stamp(h->head, h->blob->head_bytes, i);
            heal_write(h, i, h->head, h->blob->head_bytes, h->blob->offset);
        }
    }
    heal_sync(h, mask, false);
    return TARN_OK;
}

static tarn_err heal_run(heal *h)
{
    uint16_t want = (uint16_t)((1u << shards(h)) - 1), wrong = 0;
    tarn_err err = heal_headers(h, &wrong);
    for (uint64_t b = 0; !err && b < obj_blob_blocks(h->blob); b++) {
        err = heal_block(h, b, want);
    }
    if (!err && (uint16_t)(h->touched | wrong) != 0) {
        err = heal_ends(h, (uint16_t)(h->touched | wrong));
    }
    return err;
}

/* *missing: shards that are not whole afterwards. */
static tarn_err heal_blob(tarn_store *s, const obj_blob *blob, int64_t created_ms, uint16_t *missing)
{
    heal *h = tarn_calloc(1, sizeof *h);
    obj_ctx *c = obj_ctx_get(s);
    if (!h || !c) {
        tarn_free(h);
        return TARN_E_NO_MEMORY;
    }
    h->s = s;
    h->blob = blob;
    h->created_ms = created_ms;
    obj_reader_init(&h->reader, c, blob);
    h->reader.avoid = 0;                       /* a drive that is being filled is looked at like any other */
    for (unsigned i = 0; i < shards(h); i++) { /* what was open before may have been deleted since, and another made in its place */
        obj_fd_forget(c, blob, obj_blob_drive(blob, i, s->n));
    }
    tarn_err err = heal_run(h);
    if (!err) {
        *missing = h->failed;
    }
    for (unsigned i = 0; i < TARN_SET_DRIVES_MAX; i++) {
        tarn_file_unref(h->out[i]);
    }
    obj_reader_close(&h->reader);
    tarn_free(h->head);
    tarn_free(h);
    return err;
}

/* ------------------------------------------------------------------ versions */
typedef struct version_heal {
    tarn_store *s;
    const tarn_version_row *row;
    unsigned open;
    tarn_err worst;
} version_heal;

typedef struct layout_update {
    tarn_store *s;
    const tarn_version_row *row;
    uint32_t part; /* 0: the version's own */
    uint64_t blob_id;
    uint16_t missing;
} layout_update;

static tarn_err repack(tarn_str layout, const layout_update *u, tarn_arena *a, tarn_str *out)
{
    obj_blob b;
    tarn_sb sb;
    tarn_err err = obj_blob_unpack(layout, &b);
    if (err || b.blob_id != u->blob_id) {
        return err ? err : TARN_E_CONFLICT;
    }
    b.missing = u->missing;
    tarn_sb_init(&sb, TARN_LAYOUT_BYTES_MAX);
    err = obj_blob_pack(&b, &sb);
    if (!err) {
        *out = tarn_arena_str(a, tarn_sb_view(&sb));
        err = out->p ? TARN_OK : TARN_E_NO_MEMORY;
    }
    tarn_sb_free(&sb);
    return err;
}

static tarn_err update_fn(tarn_meta_tx *tx, void *arg)
{
    layout_update *u = arg;
    tarn_arena *a = tarn_meta_tx_arena(tx);
    tarn_err err;
    if (u->part != 0) {
        tarn_part_row part;
        err = tarn_meta_part_get(u->s->meta, tx, u->row->data_id, u->part, a, &part);
        if (!err) {
            err = repack(part.layout, u, a, &part.layout);
        }
        return err ? err : tarn_meta_part_put(tx, &part);
    }
    tarn_version_row row;
    err = tarn_meta_version_get(u->s->meta, tx, u->row->bucket_id, u->row->key, u->row->null_version, u->row->seq, u->row->nonce, a, &row);
    if (!err && row.seq != u->row->seq) {
        err = TARN_E_CONFLICT;
    }
    if (!err) {
        err = repack(row.layout, u, a, &row.layout);
    }
    return err ? err : tarn_meta_version_update(tx, &row);
}

static tarn_err heal_layout(version_heal *v, tarn_str layout, uint32_t part)
{
    obj_blob b;
    uint16_t missing = 0;
    if (layout.n == 0) {
        return TARN_OK;
    }
    tarn_err err = obj_blob_unpack(layout, &b);
    if (!err && (b.k != v->s->k || b.m != v->s->m || b.set >= v->s->sets)) {
        err = TARN_E_FORMAT;
    }
    if (!err) {
        err = heal_blob(v->s, &b, v->row->mtime_ms, &missing);
    }
    if (!err && missing != b.missing) {
        layout_update u = {v->s, v->row, part, b.blob_id, missing};
        err = tarn_meta_commit(v->s->meta, update_fn, &u);
    }
    if (!err) {
        v->open += (unsigned)__builtin_popcount(missing);
    }
    return err;
}

static tarn_err heal_part(void *ctx, const tarn_part_row *row)
{
    version_heal *v = ctx;
    tarn_err err = row->blob_id ? TARN_OK : heal_layout(v, row->layout, row->number);
    if (err == TARN_E_CORRUPT || err == TARN_E_QUORUM_READ) { /* the other parts are still worth it */
        v->worst = err;
        return TARN_OK;
    }
    return err;
}

static tarn_err heal_manifest(version_heal *v)
{
    uint32_t missing = 0, corrupt = 0;
    tarn_err err = obj_manifest_check(v->s, v->row, &missing, &corrupt);
    if (!err && missing + corrupt > 0) {
        err = obj_manifest_save(v->s, v->row);
        v->open += err == TARN_E_QUORUM_WRITE ? 1 : 0;
        err = err == TARN_E_QUORUM_WRITE ? TARN_OK : err;
    }
    return err;
}

tarn_err obj_repair_version(tarn_store *s, const tarn_version_row *row, unsigned *open)
{
    version_heal v = {.s = s, .row = row};
    *open = 0;
    if (row->data_id == 0 || row->inline_data) {
        return TARN_OK;
    }
    tarn_err err = obj_pin_add(s, row->data_id);
    if (err) {
        return err;
    }
    /* Now that it is pinned: is it still there? */
    tarn_version_row now;
    tarn_arena *a = tarn_arena_new(REPAIR_ARENA_BYTES_MAX);
    err = a ? tarn_meta_version_get(s->meta, NULL, row->bucket_id, row->key, row->null_version, row->seq, row->nonce, a, &now)
            : TARN_E_NO_MEMORY;
    tarn_arena_free(a);
    if (!err && now.seq != row->seq) {
        err = TARN_E_NO_SUCH_VERSION; /* another null version */
    }
    if (err) {
        obj_pin_drop(s, row->data_id);
        return err;
    }
    err = row->parts_n > 0 ? obj_scan_parts(s, row->data_id, heal_part, &v) : heal_layout(&v, row->layout, 0);
    if (!err && row->parts_n > 0) {
        err = heal_manifest(&v);
    }
    obj_pin_drop(s, row->data_id);
    *open = v.open;
    return err ? err : v.worst;
}

/* The parts of an upload that is not complete: they are no version's yet. */
tarn_err obj_repair_upload(tarn_store *s, uint64_t upload_id, unsigned *open)
{
    tarn_version_row row = {.data_id = upload_id, .mtime_ms = tarn_now_ms()};
    version_heal v = {.s = s, .row = &row};
    tarn_err err = obj_pin_add(s, upload_id);
    *open = 0;
    if (!err) {
        err = obj_scan_parts(s, upload_id, heal_part, &v);
        obj_pin_drop(s, upload_id);
    }
    *open = v.open;
    return err ? err : v.worst;
}

/* ------------------------------------------------------------------ the queue */
typedef struct repair_page {
    tarn_arena *arena;
    tarn_repair_row rows[REPAIR_PAGE];
    size_t n;
} repair_page;

static bool take_row(void *ctx, const tarn_repair_row *row)
{
    repair_page *p = ctx;
    p->rows[p->n] = *row;
    p->rows[p->n].key = tarn_arena_str(p->arena, row->key);
    if (!p->rows[p->n].key.p) {
        return false;
    }
    p->n++;
    return p->n < REPAIR_PAGE;
}

static tarn_err delete_fn(tarn_meta_tx *tx, void *arg)
{
    const tarn_repair_row *row = arg;
    return tarn_meta_repair_delete(tx, row->id);
}

/* A row goes when its version is whole, is gone, or can't be helped; it stays while a drive is out. */
static tarn_err repair_one(tarn_store *s, tarn_repair_row *row, tarn_arena *a)
{
    tarn_version_row version;
    unsigned open = 0;
    tarn_err err = obj_version_by_seq(s, row->bucket_id, row->key, row->seq, a, &version);
    if (!err) {
        err = obj_repair_version(s, &version, &open);
    }
    switch (err) {
    case TARN_OK:
        if (open > 0) {
            return TARN_OK;
        }
        tarn_metric_add(TARN_M_REPAIRS_DONE, 1);
        break;
    case TARN_E_NO_SUCH_VERSION:
    case TARN_E_NO_SUCH_BUCKET:
        break;
    case TARN_E_CORRUPT:
    case TARN_E_FORMAT:
        tarn_logf(TARN_LOG_ERROR, "object can't be repaired", "bucket %llu key %.*s: too many shards are damaged",
                  (unsigned long long)row->bucket_id, TARN_STR_ARG(row->key));
        break;
    case TARN_E_CONFLICT:
    case TARN_E_QUORUM_READ:
        return TARN_OK;
    default:
        return err;
    }
    return tarn_meta_commit(s->meta, delete_fn, row);
}

tarn_err obj_repair_pass(tarn_store *s, obj_stop_fn stop)
{
    repair_page *p = tarn_calloc(1, sizeof *p);
    tarn_err err = TARN_E_NO_MEMORY;
    uint64_t after = 0;
    if (!p || !(p->arena = tarn_arena_new(REPAIR_ARENA_BYTES_MAX))) {
        goto out;
    }
    err = store_wishes(s);
    while (!err) {
        tarn_arena_reset(p->arena);
        p->n = 0;
        err = tarn_meta_repair_list(s->meta, after, take_row, p);
        for (size_t i = 0; !err && i < p->n && !(stop && stop(s)); i++) {
            after = p->rows[i].id;
            err = repair_one(s, &p->rows[i], p->arena);
        }
        if (p->n == 0 || (stop && stop(s))) {
            break;
        }
    }
    tarn_metric_set(TARN_M_REPAIRS_QUEUED, (int64_t)tarn_store_repairs_waiting(s));
out:
    if (p) {
        tarn_arena_free(p->arena);
    }
    tarn_free(p);
    return err;
}

static bool count_row(void *ctx, const tarn_repair_row *row)
{
    (void)row;
    ++*(uint64_t *)ctx;
    return true;
}

uint64_t tarn_store_repairs_waiting(tarn_store *s)
{
    uint64_t n = 0;
    if (tarn_meta_repair_list(s->meta, 0, count_row, &n) != TARN_OK) {
        n = 0;
    }
    pthread_mutex_lock(&s->lock);
    n += s->repair_wishes_n;
    pthread_mutex_unlock(&s->lock);
    return n;
}

/* ------------------------------------------------------------------ filling a drive that replaced another one */
typedef struct fill {
    tarn_store *s;
    tarn_err worst; /* something could not be read now: the drive is not full yet */
} fill;

/* What is broken for good, or gone meanwhile, must not hold up the rest; what can't be read now neither, but is remembered. */
static tarn_err fill_result(fill *f, tarn_err err)
{
    switch (err) {
    case TARN_E_QUORUM_READ:
        f->worst = err;
        return TARN_OK;
    case TARN_E_CORRUPT:
    case TARN_E_FORMAT:
    case TARN_E_CONFLICT:
    case TARN_E_NO_SUCH_VERSION:
    case TARN_E_INVALID_PART:
        return TARN_OK;
    default:
        return err;
    }
}

static tarn_err fill_version(void *ctx, const tarn_version_row *row)
{
    fill *f = ctx;
    unsigned open = 0;
    return fill_result(f, obj_repair_version(f->s, row, &open));
}

/* The parts of an upload that is not complete: they are no version's yet. */
static tarn_err fill_upload(void *ctx, uint64_t upload_id)
{
    fill *f = ctx;
    tarn_version_row row = {.data_id = upload_id, .mtime_ms = tarn_now_ms()};
    version_heal v = {.s = f->s, .row = &row};
    tarn_err err = obj_pin_add(f->s, upload_id);
    if (!err) {
        err = obj_scan_parts(f->s, upload_id, heal_part, &v);
        obj_pin_drop(f->s, upload_id);
    }
    return fill_result(f, err ? err : v.worst);
}

tarn_err obj_fill_pass(tarn_store *s, obj_stop_fn stop)
{
    bool any = false;
    for (size_t i = 0; i < s->drives_n; i++) {
        any = any || (s->drives[i].filling && obj_drive_writable(&s->drives[i]));
    }
    if (!any) {
        return TARN_OK;
    }
    fill f = {.s = s};
    /* Uploads first: one that is completed meanwhile has been seen, or is a version when those are walked. */
    tarn_err err = obj_scan_uploads(s, fill_upload, &f);
    if (!err) {
        err = obj_scan_versions(s, stop, fill_version, &f);
    }
    err = err ? err : f.worst;
    for (size_t i = 0; !err && i < s->drives_n; i++) {
        if (s->drives[i].filling && obj_drive_writable(&s->drives[i])) {
            err = obj_drive_filled(s, &s->drives[i]);
        }
    }
    return err;
}
