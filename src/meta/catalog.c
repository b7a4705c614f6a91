/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The catalog's rows: namespaces (a path of levels joined by 0x1F, with the id of the parent) and entities (tables and
 * views, which share one name space). The pointer of an entity moves only by compare and swap on its version. Purges: what of
 * dropped entities is still to be deleted.
 */
#include "meta_internal.h"

#include <string.h>

#define NS_SEPARATOR 0x1f

/* ------------------------------------------------------------------ namespaces */
static void ns_read(const meta_q *q, tarn_ns_row *out)
{
    *out = (tarn_ns_row){
        .id = meta_col_u64(q, 0),
        .bucket_id = meta_col_u64(q, 1),
        .path = meta_col_str(q, 2),
        .properties = meta_col_str(q, 3),
        .created_ms = meta_col_i64(q, 4),
    };
}

/* Keeps the row in the arena, or (a == NULL) only its numbers. */
static tarn_err ns_fetch(meta_conn *c, uint64_t bucket_id, tarn_str path, tarn_arena *a, tarn_ns_row *out)
{
    meta_q q;
    bool row = false;
    tarn_ns_row r;
    tarn_err err = meta_q_begin(&q, c, META_SQL_NS_GET);

    if (err != TARN_OK)
        return err;
    meta_q_u64(&q, bucket_id);
    meta_q_blob(&q, path);
    err = meta_q_step(&q, &row);
    if (err == TARN_OK && !row)
        err = TARN_E_ICE_NO_NAMESPACE;
    if (err == TARN_OK) {
        ns_read(&q, &r);
        if (a != NULL)
            err = meta_keep(a, (tarn_str *const[]){&r.path, &r.properties}, 2);
        else
            r.path = r.properties = TARN_STR_NULL;
    }
    meta_q_end(&q);
    if (err == TARN_OK)
        *out = r;
    return err;
}

tarn_err tarn_meta_ns_get(tarn_meta *m, tarn_meta_tx *tx, uint64_t bucket_id, tarn_str path, tarn_arena *a, tarn_ns_row *out)
{
    meta_conn *c;
    tarn_err err = meta_conn_for(m, tx, &c);

    return err != TARN_OK ? err : ns_fetch(c, bucket_id, path, a, out);
}

static bool ns_path_fits(tarn_str path)
{
    size_t levels = 1;

    for (size_t i = 0; i < path.n; i++)
        levels += path.p[i] == NS_SEPARATOR ? 1 : 0;
    return path.n >= 1 && path.n <= TARN_NS_PATH_BYTES_MAX && levels <= TARN_NS_LEVELS_MAX;
}

/* The id of the namespace above path; 0 at the top. */
static tarn_err ns_parent(tarn_meta_tx *tx, uint64_t bucket_id, tarn_str path, uint64_t *out)
{
    tarn_ns_row parent;
    ptrdiff_t cut = tarn_str_rchr(path, NS_SEPARATOR);

    if (cut < 0) {
        *out = 0;
        return TARN_OK;
    }
    tarn_err err = ns_fetch(tx->c, bucket_id, tarn_str_sub(path, 0, (size_t)cut), NULL, &parent);
    if (err == TARN_OK)
        *out = parent.id;
    return err;
}

tarn_err tarn_meta_ns_create(tarn_meta_tx *tx, tarn_ns_row *row)
{
    meta_q q;
    uint64_t parent = 0, changes = 0, id = tarn_meta_tx_seq(tx);

    if (!ns_path_fits(row->path) || row->properties.n > META_TEXT_BYTES_MAX)
        return TARN_E_LIMIT;
    tarn_err err = ns_parent(tx, row->bucket_id, row->path, &parent);
    if (err == TARN_OK)
        err = meta_w_begin(&q, tx, META_SQL_NS_INSERT);
    if (err != TARN_OK)
        return err;
    meta_q_u64(&q, id);
    meta_q_u64(&q, row->bucket_id);
    meta_q_u64(&q, parent);
    meta_q_blob(&q, row->path);
    meta_q_i64(&q, row->created_ms);
    meta_q_text(&q, row->properties);
    err = meta_q_run(&q, &changes);
    if (err == TARN_OK && changes == 0)
        err = TARN_E_ICE_ALREADY_EXISTS;
    if (err == TARN_OK)
        row->id = id;
    return err;
}

tarn_err tarn_meta_ns_update(tarn_meta_tx *tx, const tarn_ns_row *row)
{
    meta_q q;
    uint64_t changes = 0;

    if (row->properties.n > META_TEXT_BYTES_MAX)
        return TARN_E_LIMIT;
    tarn_err err = meta_w_begin(&q, tx, META_SQL_NS_UPDATE);
    if (err != TARN_OK)
        return err;
    meta_q_u64(&q, row->id);
    meta_q_u64(&q, row->bucket_id);
    meta_q_text(&q, row->properties);
    err = meta_q_run(&q, &changes);
    return err == TARN_OK && changes == 0 ? TARN_E_ICE_NO_NAMESPACE : err;
}

tarn_err tarn_meta_ns_delete(tarn_meta_tx *tx, uint64_t bucket_id, uint64_t ns_id)
{
    meta_q q;
    bool in_use = false;
    uint64_t changes = 0;
    tarn_err err = meta_q_begin(&q, tx->c, META_SQL_NS_IN_USE);

    if (err != TARN_OK)
        return err;
    meta_q_u64(&q, ns_id);
    meta_q_u64(&q, bucket_id);
    err = meta_q_one_bool(&q, &in_use);
    if (err == TARN_OK && in_use)
        err = TARN_E_ICE_NOT_EMPTY;
    if (err == TARN_OK)
        err = meta_w_begin(&q, tx, META_SQL_NS_DELETE);
    if (err != TARN_OK)
        return err;
    meta_q_u64(&q, ns_id);
    meta_q_u64(&q, bucket_id);
    err = meta_q_run(&q, &changes);
    return err == TARN_OK && changes == 0 ? TARN_E_ICE_NO_NAMESPACE : err;
}

tarn_err tarn_meta_ns_list(tarn_meta *m, uint64_t bucket_id, tarn_str parent, tarn_str after, bool (*fn)(void *ctx, const tarn_ns_row *row),
                           void *ctx)
{
    meta_conn *c;
    meta_q q;
    bool row;
    tarn_ns_row above = {.id = 0};
    tarn_err err = meta_conn_for(m, NULL, &c);

    if (err == TARN_OK && parent.n > 0)
        err = ns_fetch(c, bucket_id, parent, NULL, &above);
    if (err == TARN_OK)
        err = meta_q_begin(&q, c, META_SQL_NS_LIST);
    if (err != TARN_OK)
        return err;
    meta_q_u64(&q, bucket_id);
    meta_q_u64(&q, above.id);
    meta_q_blob(&q, after);
    while ((err = meta_q_step(&q, &row)) == TARN_OK && row) {
        tarn_ns_row r;
        ns_read(&q, &r);
        if (!fn(ctx, &r))
            break;
    }
    meta_q_end(&q);
    return err;
}

tarn_err tarn_meta_ns_count(tarn_meta *m, tarn_meta_tx *tx, uint64_t bucket_id, uint64_t ns_id, uint64_t *tables, uint64_t *views,
                            uint64_t *children)
{
    meta_q q;
    bool row = false;
    tarn_err err = meta_q_read(&q, m, tx, META_SQL_NS_COUNT);

    if (err != TARN_OK)
        return err;
    meta_q_u64(&q, ns_id);
    meta_q_u64(&q, bucket_id);
    err = meta_q_step(&q, &row);
    if (err == TARN_OK && !row)
        err = TARN_E_INTERNAL;
    if (err == TARN_OK) {
        *tables = meta_col_u64(&q, 0);
        *views = meta_col_u64(&q, 1);
        *children = meta_col_u64(&q, 2);
    }
    meta_q_end(&q);
    return err;
}

/* ------------------------------------------------------------------ entities */
static void entity_read(const meta_q *q, tarn_entity_row *out)
{
    *out = (tarn_entity_row){
        .id = meta_col_u64(q, 0),
        .bucket_id = meta_col_u64(q, 1),
        .ns_id = meta_col_u64(q, 2),
        .name = meta_col_str(q, 3),
        .kind = (tarn_entity_kind)meta_col_u32(q, 4),
        .uuid = meta_col_str(q, 5),
        .location = meta_col_str(q, 6),
        .pointer = meta_col_str(q, 7),
        .version = meta_col_u64(q, 8),
        .created_ms = meta_col_i64(q, 9),
        .updated_ms = meta_col_i64(q, 10),
    };
}

tarn_err tarn_meta_entity_get(tarn_meta *m, tarn_meta_tx *tx, uint64_t bucket_id, tarn_str ns_path, tarn_str name, tarn_arena *a,
                              tarn_entity_row *out)
{
    meta_q q;
    bool row = false;
    tarn_entity_row r;
    tarn_err err = meta_q_read(&q, m, tx, META_SQL_ENTITY_GET);

    if (err != TARN_OK)
        return err;
    meta_q_u64(&q, bucket_id);
    meta_q_blob(&q, ns_path);
    meta_q_blob(&q, name);
    err = meta_q_step(&q, &row);
    if (err == TARN_OK && !row)
        err = TARN_E_ICE_NO_TABLE;
    if (err == TARN_OK) {
        entity_read(&q, &r);
        err = meta_keep(a, (tarn_str *const[]){&r.name, &r.uuid, &r.location, &r.pointer}, 4);
    }
    meta_q_end(&q);
    if (err == TARN_OK)
        *out = r;
    return err;
}

static bool entity_fits(const tarn_entity_row *r)
{
    return r->uuid.n <= META_NAME_BYTES_MAX && r->location.n <= META_NAME_BYTES_MAX && r->pointer.n <= META_NAME_BYTES_MAX;
}

static bool name_fits(tarn_str name)
{
    return name.n >= 1 && name.n <= TARN_CATALOG_NAME_BYTES_MAX;
}

/* Is there a row that the statement finds by one number? */
static tarn_err exists(tarn_meta_tx *tx, meta_sql id, uint64_t v, bool *out)
{
    meta_q q;
    tarn_err err = meta_q_begin(&q, tx->c, id);

    if (err != TARN_OK)
        return err;
    meta_q_u64(&q, v);
    err = meta_q_step(&q, out);
    meta_q_end(&q);
    return err;
}

static tarn_err entity_kind_at(tarn_meta_tx *tx, uint64_t ns_id, tarn_str name, tarn_entity_kind *out)
{
    meta_q q;
    bool row = false;
    tarn_err err = meta_q_begin(&q, tx->c, META_SQL_ENTITY_KIND);

    if (err != TARN_OK)
        return err;
    meta_q_u64(&q, ns_id);
    meta_q_blob(&q, name);
    err = meta_q_step(&q, &row);
    if (err == TARN_OK && !row)
        err = TARN_E_ICE_NO_TABLE;
    if (err == TARN_OK)
        *out = (tarn_entity_kind)meta_col_u32(&q, 0);
    meta_q_end(&q);
    return err;
}

tarn_err tarn_meta_entity_create(tarn_meta_tx *tx, tarn_entity_row *row)
{
    meta_q q;
    bool ns_there = false;
    uint64_t changes = 0, id = tarn_meta_tx_seq(tx);
    uint64_t version = row->version != 0 ? row->version : 1;

    if (!name_fits(row->name) || !entity_fits(row) || (row->kind != TARN_ENTITY_TABLE && row->kind != TARN_ENTITY_VIEW))
        return TARN_E_LIMIT;
    tarn_err err = exists(tx, META_SQL_NS_EXISTS, row->ns_id, &ns_there);
    if (err == TARN_OK && !ns_there)
        err = TARN_E_ICE_NO_NAMESPACE;
    if (err == TARN_OK)
        err = meta_w_begin(&q, tx, META_SQL_ENTITY_INSERT);
    if (err != TARN_OK)
        return err;
    meta_q_u64(&q, id);
    meta_q_u64(&q, row->bucket_id);
    meta_q_u64(&q, row->ns_id);
    meta_q_blob(&q, row->name);
    meta_q_u64(&q, (uint64_t)row->kind);
    meta_q_text(&q, row->uuid);
    meta_q_text(&q, row->location);
    meta_q_text(&q, row->pointer);
    meta_q_u64(&q, version);
    meta_q_i64(&q, row->created_ms);
    meta_q_i64(&q, row->updated_ms);
    err = meta_q_run(&q, &changes);
    if (err == TARN_OK && changes == 0) {
        err = entity_kind_at(tx, row->ns_id, row->name, &row->kind);
        return err == TARN_OK ? TARN_E_ICE_ALREADY_EXISTS : err;
    }
    if (err == TARN_OK) {
        row->id = id;
        row->version = version;
    }
    return err;
}

tarn_err tarn_meta_entity_swap(tarn_meta_tx *tx, tarn_entity_row *row, uint64_t expect_version)
{
    meta_q q;
    bool there = false;
    uint64_t changes = 0;

    if (!entity_fits(row) || expect_version >= INT64_MAX)
        return TARN_E_LIMIT;
    tarn_err err = meta_w_begin(&q, tx, META_SQL_ENTITY_SWAP);
    if (err != TARN_OK)
        return err;
    meta_q_u64(&q, row->id);
    meta_q_u64(&q, expect_version);
    meta_q_text(&q, row->uuid);
    meta_q_text(&q, row->location);
    meta_q_text(&q, row->pointer);
    meta_q_i64(&q, row->updated_ms);
    err = meta_q_run(&q, &changes);
    if (err != TARN_OK)
        return err;
    if (changes > 0) {
        row->version = expect_version + 1;
        return TARN_OK;
    }
    err = exists(tx, META_SQL_ENTITY_EXISTS, row->id, &there);
    if (err != TARN_OK)
        return err;
    return there ? TARN_E_ICE_COMMIT_FAILED : TARN_E_ICE_NO_TABLE;
}

tarn_err tarn_meta_entity_rename(tarn_meta_tx *tx, uint64_t id, uint64_t ns_id, tarn_str name)
{
    meta_q q;
    bool ns_there = false, there = false;
    uint64_t changes = 0;

    if (!name_fits(name))
        return TARN_E_LIMIT;
    tarn_err err = exists(tx, META_SQL_NS_EXISTS, ns_id, &ns_there);
    if (err == TARN_OK && !ns_there)
        err = TARN_E_ICE_NO_NAMESPACE;
    if (err == TARN_OK)
        err = meta_w_begin(&q, tx, META_SQL_ENTITY_RENAME);
    if (err != TARN_OK)
        return err;
    meta_q_u64(&q, id);
    meta_q_u64(&q, ns_id);
    meta_q_blob(&q, name);
    err = meta_q_run(&q, &changes);
    if (err != TARN_OK || changes > 0)
        return err;
    err = exists(tx, META_SQL_ENTITY_EXISTS, id, &there);
    if (err != TARN_OK)
        return err;
    return there ? TARN_E_ICE_ALREADY_EXISTS : TARN_E_ICE_NO_TABLE;
}

tarn_err tarn_meta_entity_delete(tarn_meta_tx *tx, uint64_t id)
{
    meta_q q;
    uint64_t changes = 0;
    tarn_err err = meta_w_begin(&q, tx, META_SQL_ENTITY_DELETE);

    if (err != TARN_OK)
        return err;
    meta_q_u64(&q, id);
    err = meta_q_run(&q, &changes);
    return err == TARN_OK && changes == 0 ? TARN_E_ICE_NO_TABLE : err;
}

tarn_err tarn_meta_entity_list(tarn_meta *m, uint64_t bucket_id, uint64_t ns_id, tarn_entity_kind kind, tarn_str after,
                               bool (*fn)(void *ctx, const tarn_entity_row *row), void *ctx)
{
    meta_q q;
    bool row;
    tarn_err err = meta_q_read(&q, m, NULL, META_SQL_ENTITY_LIST);

    if (err != TARN_OK)
        return err;
    meta_q_u64(&q, ns_id);
    meta_q_u64(&q, (uint64_t)kind);
    meta_q_blob(&q, after);
    while ((err = meta_q_step(&q, &row)) == TARN_OK && row) {
        tarn_entity_row r;
        entity_read(&q, &r);
        if (r.bucket_id == bucket_id && !fn(ctx, &r))
            break;
    }
    meta_q_end(&q);
    return err;
}

/* ------------------------------------------------------------------ purges */
tarn_err tarn_meta_purge_put(tarn_meta_tx *tx, tarn_purge_row *row)
{
    meta_q q;
    const tarn_entity_row *e = &row->dropped;
    uint64_t id = tarn_meta_tx_seq(tx);

    if (!entity_fits(e))
        return TARN_E_LIMIT;
    tarn_err err = meta_w_begin(&q, tx, META_SQL_PURGE_INSERT);
    if (err != TARN_OK)
        return err;
    meta_q_u64(&q, id);
    meta_q_i64(&q, row->since_ms);
    meta_q_u64(&q, e->bucket_id);
    meta_q_u64(&q, e->id);
    meta_q_u64(&q, (uint64_t)e->kind);
    meta_q_text(&q, e->uuid);
    meta_q_text(&q, e->location);
    meta_q_text(&q, e->pointer);
    meta_q_u64(&q, e->version);
    err = meta_q_run(&q, NULL);
    if (err == TARN_OK)
        row->id = id;
    return err;
}

tarn_err tarn_meta_purge_list(tarn_meta *m, uint64_t after_id, bool (*fn)(void *ctx, const tarn_purge_row *row), void *ctx)
{
    meta_q q;
    bool row;
    tarn_err err = meta_q_read(&q, m, NULL, META_SQL_PURGE_LIST);

    if (err != TARN_OK)
        return err;
    meta_q_u64(&q, after_id);
    while ((err = meta_q_step(&q, &row)) == TARN_OK && row) {
        tarn_purge_row r = {
            .id = meta_col_u64(&q, 0),
            .since_ms = meta_col_i64(&q, 1),
            .dropped = {.bucket_id = meta_col_u64(&q, 2),
                        .id = meta_col_u64(&q, 3),
                        .kind = (tarn_entity_kind)meta_col_u32(&q, 4),
                        .uuid = meta_col_str(&q, 5),
                        .location = meta_col_str(&q, 6),
                        .pointer = meta_col_str(&q, 7),
                        .version = meta_col_u64(&q, 8)},
        };
        if (!fn(ctx, &r))
            break;
    }
    meta_q_end(&q);
    return err;
}

tarn_err tarn_meta_purge_delete(tarn_meta_tx *tx, uint64_t id)
{
    meta_q q;
    tarn_err err = meta_w_begin(&q, tx, META_SQL_PURGE_DELETE);

    if (err != TARN_OK)
        return err;
    meta_q_u64(&q, id);
    return meta_q_run(&q, NULL);
}
