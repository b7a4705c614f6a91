/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Versions: what becomes of a key's versions when one is written or deleted, and editing one that is there.
 *
 *   versioning    write                                   delete without a version
 *   OFF           replaces the null version               removes the null version
 *   ENABLED       adds a version                          adds a delete marker
 *   SUSPENDED     replaces the null version, keeps the    removes the null version, adds a null delete marker
 *                 others
 *   A delete with a version removes exactly that one; the newest left becomes current.
 *
 * Everything is decided inside the transaction, on what is there then: conditions are atomic under races.
 *
 * Invariants:
 *  1. A key has at most one null version.
 *  2. A version that is locked is not removed and not replaced.
 *  3. Data of a version that goes is handed to the garbage collector in the same transaction (inline bytes go at once).
 * Threads: functions with a tx run on the committer.
 */
#include "private.h"

/* ------------------------------------------------------------------ locks and conditions */
bool tarn_object_locked(const tarn_version_row *row, int64_t now_ms, bool bypass_governance)
{
    if (row->legal_hold) {
        return true;
    }
    if (row->retention == TARN_RETENTION_NONE || row->retain_until_ms <= now_ms) {
        return false;
    }
    return row->retention == TARN_RETENTION_COMPLIANCE || !bypass_governance;
}

tarn_err obj_conditions_check(const tarn_put_conditions *c, tarn_err current_err, const tarn_version_row *current)
{
    if (current_err && current_err != TARN_E_NO_SUCH_KEY) {
        return current_err;
    }
    bool there = current_err == TARN_OK && !current->delete_marker;
    if (!c) {
        return TARN_OK;
    }
    if (c->if_match.n > 0) {
        if (!there) {
            return TARN_E_NO_SUCH_KEY;
        }
        if (!tarn_str_eqc(c->if_match, "*") && !tarn_str_eq(c->if_match, current->etag)) {
            return TARN_E_PRECONDITION_FAILED;
        }
    }
    if (there && (c->if_none_match_any || (c->if_none_match.n > 0 && tarn_str_eq(c->if_none_match, current->etag)))) {
        return TARN_E_PRECONDITION_FAILED;
    }
    return TARN_OK;
}

/* ------------------------------------------------------------------ data that goes */
tarn_err obj_drop_data(tarn_meta_tx *tx, const tarn_version_row *row)
{
    if (row->data_id == 0) {
        return TARN_OK;
    }
    if (row->inline_data) {
        return tarn_meta_inline_delete(tx, row->data_id);
    }
    tarn_garbage_row g = {
        .since_ms = tarn_meta_tx_now_ms(tx), .data_id = row->data_id, .layout = row->parts_n > 0 ? TARN_STR("") : row->layout};
    return tarn_meta_garbage_put(tx, &g);
}

/* The row itself stays: the caller replaces or deletes it. Garbage is under the part's own number, not under the upload's. */
tarn_err obj_drop_part(tarn_meta_tx *tx, const tarn_part_row *row)
{
    obj_blob b;
    if (row->blob_id != 0) {
        return tarn_meta_inline_delete(tx, row->blob_id);
    }
    if (row->layout.n == 0) {
        return TARN_OK;
    }
    tarn_err err = obj_blob_unpack(row->layout, &b);
    if (err) {
        return err;
    }
    tarn_garbage_row g = {.since_ms = tarn_meta_tx_now_ms(tx), .data_id = b.blob_id, .layout = row->layout};
    return tarn_meta_garbage_put(tx, &g);
}

/* ------------------------------------------------------------------ writing */
static tarn_err drop_version(tarn_meta_tx *tx, const tarn_version_row *old)
{
    if (tarn_object_locked(old, tarn_meta_tx_now_ms(tx), false)) {
        return TARN_E_ACCESS_DENIED;
    }
    return obj_drop_data(tx, old);
}

/* The one null version of the key gives way to row. */
static tarn_err insert_null(tarn_meta *m, tarn_meta_tx *tx, tarn_err current_err, const tarn_version_row *current,
                            const tarn_version_row *row, bool may_be_behind)
{
    if (current_err == TARN_OK && current->null_version) {
        tarn_err err = drop_version(tx, current);
        return err ? err : tarn_meta_object_replace(tx, row);
    }
    if (current_err == TARN_OK && may_be_behind) {
        tarn_version_row old;
        tarn_err err = tarn_meta_version_get(m, tx, row->bucket_id, row->key, true, 0, 0, tarn_meta_tx_arena(tx), &old);
        if (err == TARN_OK) {
            err = drop_version(tx, &old);
            if (!err) {
                err = tarn_meta_version_delete(tx, &old);
            }
        } else if (err == TARN_E_NO_SUCH_VERSION) {
            err = TARN_OK;
        }
        if (err) {
            return err;
        }
    }
    return tarn_meta_version_insert(tx, row);
}

static tarn_err queue_repair(tarn_meta_tx *tx, const tarn_version_row *row)
{
    tarn_repair_row r = {.bucket_id = row->bucket_id, .key = row->key, .seq = row->seq, .since_ms = tarn_meta_tx_now_ms(tx)};
    return tarn_meta_repair_put(tx, &r);
}

tarn_err obj_version_apply(const obj_apply *a, tarn_meta_tx *tx, const tarn_bucket_row *bucket, tarn_version_row *row)
{
    tarn_meta *m = a->store->meta;
    tarn_arena *arena = tarn_meta_tx_arena(tx);
    tarn_bucket_row now;
    tarn_version_row current = {0};
    tarn_err err = tarn_meta_bucket_get_id(m, tx, bucket->id, arena, &now);
    if (err) {
        return err;
    }
    tarn_err current_err = tarn_meta_object_get(m, tx, bucket->id, row->key, arena, &current);
    err = obj_conditions_check(a->conditions, current_err, &current);
    if (err) {
        return err;
    }
    row->seq = tarn_meta_tx_seq(tx);
    row->nonce = tarn_random_u64();
    row->mtime_ms = a->recovered ? row->mtime_ms : tarn_meta_tx_now_ms(tx);
    row->null_version = a->recovered ? row->null_version : now.versioning != TARN_VERSIONING_ENABLED;
    row->current = true;
    if (row->null_version) {
        err = insert_null(m, tx, current_err, &current, row, a->recovered || now.versioning == TARN_VERSIONING_SUSPENDED);
    } else {
        err = tarn_meta_version_insert(tx, row);
    }
    return !err && a->repair ? queue_repair(tx, row) : err;
}

/* ------------------------------------------------------------------ reading */
static tarn_err get_ref(tarn_store *s, tarn_meta_tx *tx, uint64_t bucket_id, tarn_str key, tarn_version_ref ref, tarn_arena *a,
                        tarn_version_row *out)
{
    if (ref.sel == TARN_VERSION_CURRENT) {
        return tarn_meta_object_get(s->meta, tx, bucket_id, key, a, out);
    }
    tarn_err err = tarn_meta_version_get(s->meta, tx, bucket_id, key, ref.sel == TARN_VERSION_NULL, ref.seq, ref.nonce, a, out);
    if (!err && ref.sel == TARN_VERSION_ID && out->null_version) {
        return TARN_E_NO_SUCH_VERSION; /* it is called "null" and nothing else */
    }
    return err;
}

#define STAT_TRIES_MAX 16

/*
 * Inline bytes come along with the row (in row.layout, which is empty otherwise): they go in the transaction that replaces
 * the version, so a row whose bytes are gone is read again.
 */
tarn_err tarn_object_stat(tarn_store *s, const tarn_bucket_row *bucket, tarn_str key, tarn_version_ref ref, tarn_arena *a,
                          tarn_version_row *out)
{
    tarn_version_row row;
    for (unsigned i = 0; i < STAT_TRIES_MAX; i++) {
        tarn_err err = get_ref(s, NULL, bucket->id, key, ref, a, &row);
        if (err) {
            return err;
        }
        if (row.inline_data) {
            err = tarn_meta_inline_get(s->meta, NULL, row.data_id, a, &row.layout);
            if (err == TARN_E_NOT_FOUND) {
                continue;
            }
            if (err) {
                return err;
            }
        }
        *out = row;
        return row.delete_marker && ref.sel == TARN_VERSION_CURRENT ? TARN_E_NO_SUCH_KEY : TARN_OK;
    }
    return TARN_E_SLOW_DOWN;
}

/* ------------------------------------------------------------------ deleting */
typedef struct delete_arg {
    tarn_store *s;
    const tarn_bucket_row *bucket;
    const tarn_delete_spec *keys;
    size_t n;
    tarn_delete_result *results;
} delete_arg;

static tarn_err check_delete_match(const tarn_delete_spec *d, tarn_err found, const tarn_version_row *row)
{
    tarn_put_conditions c = {.if_match = d->if_match};
    return d->if_match.n > 0 ? obj_conditions_check(&c, found, row) : TARN_OK;
}

static tarn_err remove_version(delete_arg *a, tarn_meta_tx *tx, const tarn_delete_spec *d, const tarn_version_row *row)
{
    (void)a;
    if (tarn_object_locked(row, tarn_meta_tx_now_ms(tx), d->bypass_governance)) {
        return TARN_E_ACCESS_DENIED;
    }
    tarn_err err = obj_drop_data(tx, row);
    return err ? err : tarn_meta_version_delete(tx, row);
}

/* The result's row lives as long as the caller's spec: it keeps numbers and flags, and the key as the caller gave it. */
static void set_result(tarn_delete_result *r, const tarn_delete_spec *d, const tarn_version_row *row)
{
    r->has_version = true;
    r->delete_marker = row->delete_marker;
    r->row = (tarn_version_row){.bucket_id = row->bucket_id,
                                .key = d->key,
                                .seq = row->seq,
                                .nonce = row->nonce,
                                .null_version = row->null_version,
                                .delete_marker = row->delete_marker,
                                .mtime_ms = row->mtime_ms,
                                .size = row->size};
}

static tarn_err delete_version(delete_arg *a, tarn_meta_tx *tx, const tarn_delete_spec *d, tarn_delete_result *r)
{
    tarn_version_row row;
    tarn_err err = get_ref(a->s, tx, a->bucket->id, d->key, d->version, tarn_meta_tx_arena(tx), &row);
    if (err == TARN_E_NO_SUCH_VERSION || err == TARN_E_NO_SUCH_KEY) {
        return d->if_match.n > 0 ? TARN_E_NO_SUCH_KEY : TARN_OK;
    }
    if (!err) {
        err = check_delete_match(d, TARN_OK, &row);
    }
    if (!err) {
        err = remove_version(a, tx, d, &row);
    }
    if (!err) {
        set_result(r, d, &row);
    }
    return err;
}

static tarn_err add_marker(delete_arg *a, tarn_meta_tx *tx, const tarn_delete_spec *d, tarn_delete_result *r)
{
    obj_apply apply = {.store = a->s};
    tarn_version_row marker = {.bucket_id = a->bucket->id, .key = d->key, .delete_marker = true};
    tarn_err err = obj_version_apply(&apply, tx, a->bucket, &marker);
    if (!err) {
        set_result(r, d, &marker);
    }
    return err;
}

static tarn_err delete_current(delete_arg *a, tarn_meta_tx *tx, const tarn_bucket_row *now, const tarn_delete_spec *d,
                               tarn_delete_result *r)
{
    tarn_version_row row = {0};
    tarn_err found = tarn_meta_object_get(a->s->meta, tx, a->bucket->id, d->key, tarn_meta_tx_arena(tx), &row);
    if (found && found != TARN_E_NO_SUCH_KEY) {
        return found;
    }
    tarn_err err = check_delete_match(d, found, &row);
    if (err) {
        return err;
    }
    if (now->versioning != TARN_VERSIONING_OFF) {
        return add_marker(a, tx, d, r);
    }
    return found ? TARN_OK : remove_version(a, tx, d, &row);
}

static bool is_answer(tarn_err err)
{
    return err == TARN_OK || err == TARN_E_ACCESS_DENIED || err == TARN_E_PRECONDITION_FAILED || err == TARN_E_NO_SUCH_KEY;
}

static tarn_err delete_fn(tarn_meta_tx *tx, void *arg)
{
    delete_arg *a = arg;
    tarn_bucket_row now;
    tarn_err err = tarn_meta_bucket_get_id(a->s->meta, tx, a->bucket->id, tarn_meta_tx_arena(tx), &now);
    for (size_t i = 0; !err && i < a->n; i++) {
        const tarn_delete_spec *d = &a->keys[i];
        tarn_delete_result *r = &a->results[i];
        *r = (tarn_delete_result){0};
        tarn_err one = d->version.sel == TARN_VERSION_CURRENT ? delete_current(a, tx, &now, d, r) : delete_version(a, tx, d, r);
        if (is_answer(one)) {
            r->err = one; /* nothing has been changed for this key when it is not OK */
        } else {
            err = one;
        }
    }
    return err;
}

#define DELETE_KEYS_MAX 1000

tarn_err tarn_object_delete(tarn_store *s, const tarn_bucket_row *bucket, const tarn_delete_spec *keys, size_t n,
                            tarn_delete_result *results)
{
    delete_arg a = {s, bucket, keys, n, results};
    if (n > DELETE_KEYS_MAX) {
        return TARN_E_LIMIT;
    }
    return tarn_meta_commit(s->meta, delete_fn, &a);
}

/* ------------------------------------------------------------------ editing */
typedef struct edit_arg {
    tarn_store *s;
    const tarn_bucket_row *bucket;
    tarn_str key;
    tarn_version_ref ref;
    tarn_err (*edit)(void *ctx, tarn_version_row *row, tarn_arena *arena);
    void *ctx;
    tarn_version_row *out;
    tarn_arena *arena;
} edit_arg;

/* The transaction's arena goes with it: what is handed out is copied to the caller's. */
static tarn_err copy_row(tarn_arena *a, const tarn_version_row *row, tarn_version_row *out)
{
    tarn_version_row r = *row;
    if (!obj_keep_version(a, &r)) {
        return TARN_E_NO_MEMORY;
    }
    *out = r;
    return TARN_OK;
}

static tarn_err edit_fn(tarn_meta_tx *tx, void *arg)
{
    edit_arg *e = arg;
    tarn_version_row row;
    tarn_err err = get_ref(e->s, tx, e->bucket->id, e->key, e->ref, tarn_meta_tx_arena(tx), &row);
    if (err) {
        return err;
    }
    if (row.delete_marker) {
        return e->ref.sel == TARN_VERSION_CURRENT ? TARN_E_NO_SUCH_KEY : TARN_E_METHOD_NOT_ALLOWED;
    }
    err = e->edit(e->ctx, &row, tarn_meta_tx_arena(tx));
    if (!err) {
        err = tarn_meta_version_update(tx, &row);
    }
    if (!err && e->out) {
        err = copy_row(e->arena, &row, e->out);
    }
    return err;
}

tarn_err tarn_object_edit(tarn_store *s, const tarn_bucket_row *bucket, tarn_str key, tarn_version_ref ref,
                          tarn_err (*edit)(void *ctx, tarn_version_row *row, tarn_arena *arena), void *ctx, tarn_version_row *out,
                          tarn_arena *a)
{
    edit_arg e = {s, bucket, key, ref, edit, ctx, out, a};
    return tarn_meta_commit(s->meta, edit_fn, &e);
}
