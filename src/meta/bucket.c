/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Buckets, their configurations, and the key-value facts of the deployment.
 *
 * Every change of a bucket or of one of its configurations gives the row a new generation, a number of the commit order:
 * who caches a bucket compares it. Rows are remembered here, too: see below.
 *
 * Memory: a connection owns what it remembers. Threads: a connection is one thread's; the store's number of changes is atomic.
 */
#include "meta_internal.h"

#include <string.h>

/* ------------------------------------------------------------------ key-value */
tarn_err tarn_meta_kv_get(tarn_meta *m, tarn_meta_tx *tx, const char *name, tarn_arena *a, tarn_str *out)
{
    meta_q q;
    tarn_err err = meta_q_read(&q, m, tx, META_SQL_KV_GET);

    if (err != TARN_OK)
        return err;
    meta_q_text(&q, tarn_str_of(name));
    return meta_q_one_text(&q, a, out);
}

tarn_err tarn_meta_kv_put(tarn_meta_tx *tx, const char *name, tarn_str value)
{
    meta_q q;
    tarn_str n = tarn_str_of(name);

    if (n.n == 0 || n.n > META_NAME_BYTES_MAX || value.n > META_TEXT_BYTES_MAX)
        return TARN_E_LIMIT;
    tarn_err err = meta_w_begin(&q, tx, META_SQL_KV_PUT);
    if (err != TARN_OK)
        return err;
    meta_q_text(&q, n);
    meta_q_blob(&q, value);
    return meta_q_run(&q, NULL);
}

/* ------------------------------------------------------------------ bucket rows */
static void bucket_read(const meta_q *q, tarn_bucket_row *out)
{
    *out = (tarn_bucket_row){
        .id = meta_col_u64(q, 0),
        .name = meta_col_str(q, 1),
        .owner = meta_col_str(q, 2),
        .created_ms = meta_col_i64(q, 3),
        .versioning = (tarn_versioning)meta_col_u32(q, 4),
        .object_lock = meta_col_u32(q, 5) != 0,
        .warehouse = meta_col_u32(q, 6) != 0,
        .warehouse_uuid = meta_col_str(q, 7),
        .warehouse_created_ms = meta_col_i64(q, 8),
        .warehouse_properties = meta_col_str(q, 9),
        .generation = meta_col_u64(q, 10),
    };
}

/* ------------------------------------------------------------------ rows that are remembered */
/*
 * Every request reads its bucket's row, and every transaction of an object reads it again; it hardly ever changes. So a
 * connection remembers the rows that it has read, together with the store's number of changes from before it read them. The
 * number moves after a group that wrote a bucket has been committed and before anybody in it is answered: who finds it
 * unmoved would read the same row again, or one whose change nobody has been told of. In the group itself nothing that is
 * remembered counts from the first such write on.
 */
static meta_bucket_kept *kept_by_name(meta_conn *c, tarn_str name)
{
    uint64_t h = 14695981039346656037ull;

    for (size_t i = 0; i < name.n; i++)
        h = (h ^ (unsigned char)name.p[i]) * 1099511628211ull;
    return &c->buckets[h >> 32 & (META_BUCKETS_KEPT - 1)];
}

static meta_bucket_kept *kept_by_id(meta_conn *c, uint64_t id)
{
    return &c->buckets[id * 0x9E3779B97F4A7C15ull >> 32 & (META_BUCKETS_KEPT - 1)];
}

static void forget(meta_bucket_kept *k)
{
    tarn_free(k->memory);
    *k = (meta_bucket_kept){.changes = 0};
}

void meta_bucket_forget_all(meta_conn *c)
{
    for (size_t i = 0; i < META_BUCKETS_KEPT; i++)
        forget(&c->buckets[i]);
}

/* The number that counts for a row that is looked for or read now; 0: none does. */
static uint64_t changes_now(const meta_conn *c, const tarn_meta_tx *tx)
{
    return tx != NULL && tx->bucket_written ? 0 : atomic_load(&c->meta->bucket_changes);
}

static void remember(meta_bucket_kept *k, uint64_t changes, const tarn_bucket_row *row)
{
    tarn_bucket_row r = *row;
    tarn_str *const parts[] = {&r.name, &r.owner, &r.warehouse_uuid, &r.warehouse_properties};
    size_t total = 0;

    for (size_t i = 0; i < TARN_ARRAY_LEN(parts); i++)
        total += parts[i]->n;
    forget(k);
    char *p = changes != 0 && total <= META_BUCKET_KEPT_BYTES_MAX ? tarn_malloc(total) : NULL;
    if (p == NULL) /* then it is read again next time */
        return;
    k->memory = p;
    for (size_t i = 0; i < TARN_ARRAY_LEN(parts); i++) {
        if (parts[i]->n == 0)
            continue;
        memcpy(p, parts[i]->p, parts[i]->n);
        parts[i]->p = p;
        p += parts[i]->n;
    }
    k->row = r;
    k->changes = changes;
}

static tarn_err hand_out(const tarn_bucket_row *kept, tarn_arena *a, tarn_bucket_row *out)
{
    tarn_bucket_row r = *kept;
    tarn_err err = meta_keep(a, (tarn_str *const[]){&r.name, &r.owner, &r.warehouse_uuid, &r.warehouse_properties}, 4);

    if (err == TARN_OK)
        *out = r;
    return err;
}

tarn_err meta_bucket_w_begin(meta_q *q, tarn_meta_tx *tx, meta_sql id)
{
    tx->bucket_written = true;
    return meta_w_begin(q, tx, id);
}

void meta_bucket_group_over(tarn_meta_tx *tx)
{
    if (tx->bucket_written)
        atomic_fetch_add(&tx->meta->bucket_changes, 1);
    tx->bucket_written = false;
}

/* Steps q, which has been bound, and keeps the row. */
static tarn_err bucket_fetch(meta_q *q, tarn_arena *a, tarn_bucket_row *out)
{
    bool row;
    tarn_bucket_row r;
    tarn_err err = meta_q_step(q, &row);

    if (err == TARN_OK && !row)
        err = TARN_E_NO_SUCH_BUCKET;
    if (err == TARN_OK) {
        bucket_read(q, &r);
        err = meta_keep(a, (tarn_str *const[]){&r.name, &r.owner, &r.warehouse_uuid, &r.warehouse_properties}, 4);
    }
    meta_q_end(q);
    if (err == TARN_OK)
        *out = r;
    return err;
}

tarn_err tarn_meta_bucket_get(tarn_meta *m, tarn_meta_tx *tx, tarn_str name, tarn_arena *a, tarn_bucket_row *out)
{
    meta_conn *c;
    meta_q q;
    tarn_err err = meta_conn_for(m, tx, &c);

    if (err != TARN_OK)
        return err;
    uint64_t changes = changes_now(c, tx);
    meta_bucket_kept *k = kept_by_name(c, name);
    if (k->changes != 0 && k->changes == changes && tarn_str_eq(k->row.name, name))
        return hand_out(&k->row, a, out);
    err = meta_q_begin(&q, c, META_SQL_BUCKET_GET);
    if (err != TARN_OK)
        return err;
    meta_q_text(&q, name);
    err = bucket_fetch(&q, a, out);
    if (err == TARN_OK)
        remember(k, changes, out);
    return err;
}

tarn_err tarn_meta_bucket_get_id(tarn_meta *m, tarn_meta_tx *tx, uint64_t id, tarn_arena *a, tarn_bucket_row *out)
{
    meta_conn *c;
    meta_q q;
    tarn_err err = meta_conn_for(m, tx, &c);

    if (err != TARN_OK)
        return err;
    uint64_t changes = changes_now(c, tx);
    meta_bucket_kept *k = kept_by_id(c, id);
    if (k->changes != 0 && k->changes == changes && k->row.id == id)
        return hand_out(&k->row, a, out);
    err = meta_q_begin(&q, c, META_SQL_BUCKET_GET_ID);
    if (err != TARN_OK)
        return err;
    meta_q_u64(&q, id);
    err = bucket_fetch(&q, a, out);
    if (err == TARN_OK)
        remember(k, changes, out);
    return err;
}

static bool starts_with(tarn_str s, tarn_str prefix)
{
    return s.n >= prefix.n && (prefix.n == 0 || memcmp(s.p, prefix.p, prefix.n) == 0);
}

tarn_err tarn_meta_bucket_list(tarn_meta *m, tarn_meta_tx *tx, tarn_str after, tarn_str prefix, bool warehouses_only,
                               bool (*fn)(void *ctx, const tarn_bucket_row *row), void *ctx)
{
    meta_conn *c;
    meta_q q;
    bool row = true;
    char mem[META_NAME_BYTES_MAX + 1];
    tarn_str from = prefix;
    tarn_err err = meta_conn_for(m, tx, &c);

    if (err == TARN_OK && after.n > META_NAME_BYTES_MAX)
        err = TARN_E_LIMIT;
    if (err == TARN_OK)
        err = meta_q_begin(&q, c, META_SQL_BUCKET_LIST);
    if (err != TARN_OK)
        return err;
    if (after.n > 0 && tarn_str_cmp(after, prefix) >= 0) { /* the first name past `after` is after + NUL */
        memcpy(mem, after.p, after.n);
        mem[after.n] = 0;
        from = (tarn_str){mem, after.n + 1};
    }
    meta_q_text(&q, from);
    meta_q_u64(&q, warehouses_only ? 1 : 0);
    for (;;) {
        tarn_bucket_row r;
        err = meta_q_step(&q, &row);
        if (err != TARN_OK || !row)
            break;
        bucket_read(&q, &r);
        if (!starts_with(r.name, prefix) || !fn(ctx, &r))
            break;
    }
    meta_q_end(&q);
    return err;
}

static bool bucket_row_fits(const tarn_bucket_row *r)
{
    return r->name.n >= 1 && r->name.n <= TARN_BUCKET_NAME_BYTES_MAX && r->owner.n <= META_NAME_BYTES_MAX &&
           r->warehouse_uuid.n <= META_NAME_BYTES_MAX && r->warehouse_properties.n <= TARN_BUCKET_CONFIG_BYTES_MAX;
}

tarn_err tarn_meta_bucket_create(tarn_meta_tx *tx, tarn_bucket_row *row)
{
    meta_q q;
    uint64_t changes = 0;

    if (!bucket_row_fits(row))
        return TARN_E_LIMIT;
    uint64_t id = tarn_meta_tx_seq(tx);
    tarn_err err = meta_bucket_w_begin(&q, tx, META_SQL_BUCKET_INSERT);
    if (err != TARN_OK)
        return err;
    meta_q_u64(&q, id);
    meta_q_text(&q, row->name);
    meta_q_text(&q, row->owner);
    meta_q_i64(&q, row->created_ms);
    meta_q_u64(&q, (uint64_t)row->versioning);
    meta_q_u64(&q, row->object_lock ? 1 : 0);
    meta_q_u64(&q, row->warehouse ? 1 : 0);
    meta_q_text(&q, row->warehouse_uuid);
    meta_q_i64(&q, row->warehouse_created_ms);
    meta_q_text(&q, row->warehouse_properties);
    meta_q_u64(&q, id);
    err = meta_q_run(&q, &changes);
    if (err == TARN_OK && changes == 0)
        err = TARN_E_BUCKET_ALREADY_EXISTS;
    if (err == TARN_OK) {
        row->id = id;
        row->generation = id;
    }
    return err;
}

tarn_err tarn_meta_bucket_update(tarn_meta_tx *tx, const tarn_bucket_row *row)
{
    meta_q q;
    uint64_t changes = 0;

    if (!bucket_row_fits(row))
        return TARN_E_LIMIT;
    tarn_err err = meta_bucket_w_begin(&q, tx, META_SQL_BUCKET_UPDATE);
    if (err != TARN_OK)
        return err;
    meta_q_u64(&q, row->id);
    meta_q_text(&q, row->owner);
    meta_q_u64(&q, (uint64_t)row->versioning);
    meta_q_u64(&q, row->object_lock ? 1 : 0);
    meta_q_u64(&q, row->warehouse ? 1 : 0);
    meta_q_text(&q, row->warehouse_uuid);
    meta_q_i64(&q, row->warehouse_created_ms);
    meta_q_text(&q, row->warehouse_properties);
    meta_q_u64(&q, tarn_meta_tx_seq(tx));
    err = meta_q_run(&q, &changes);
    return err == TARN_OK && changes == 0 ? TARN_E_NO_SUCH_BUCKET : err;
}

/* Runs a write whose only parameter is the bucket. */
static tarn_err bucket_write(tarn_meta_tx *tx, meta_sql id, uint64_t bucket_id, uint64_t *changes)
{
    meta_q q;
    tarn_err err = meta_bucket_w_begin(&q, tx, id);

    if (err != TARN_OK)
        return err;
    meta_q_u64(&q, bucket_id);
    return meta_q_run(&q, changes);
}

tarn_err tarn_meta_bucket_delete(tarn_meta_tx *tx, uint64_t bucket_id)
{
    meta_q q;
    bool in_use = false;
    uint64_t changes = 0;
    tarn_err err = meta_q_begin(&q, tx->c, META_SQL_BUCKET_IN_USE);

    if (err != TARN_OK)
        return err;
    meta_q_u64(&q, bucket_id);
    err = meta_q_one_bool(&q, &in_use);
    if (err == TARN_OK && in_use)
        err = TARN_E_BUCKET_NOT_EMPTY;
    if (err == TARN_OK)
        err = bucket_write(tx, META_SQL_BUCKET_DELETE, bucket_id, &changes);
    if (err == TARN_OK && changes == 0)
        err = TARN_E_NO_SUCH_BUCKET;
    if (err == TARN_OK)
        err = bucket_write(tx, META_SQL_CONFIG_DELETE_ALL, bucket_id, NULL);
    return err;
}

/* ------------------------------------------------------------------ configurations */
static tarn_err bucket_touch(tarn_meta_tx *tx, uint64_t bucket_id)
{
    meta_q q;
    uint64_t changes = 0;
    tarn_err err = meta_bucket_w_begin(&q, tx, META_SQL_BUCKET_TOUCH);

    if (err != TARN_OK)
        return err;
    meta_q_u64(&q, bucket_id);
    meta_q_u64(&q, tarn_meta_tx_seq(tx));
    err = meta_q_run(&q, &changes);
    return err == TARN_OK && changes == 0 ? TARN_E_NO_SUCH_BUCKET : err;
}

tarn_err tarn_meta_bucket_config_get(tarn_meta *m, tarn_meta_tx *tx, uint64_t bucket_id, tarn_bucket_config kind, tarn_arena *a,
                                     tarn_str *out)
{
    meta_q q;
    tarn_err err = meta_q_read(&q, m, tx, META_SQL_CONFIG_GET);

    if (err != TARN_OK)
        return err;
    meta_q_u64(&q, bucket_id);
    meta_q_u64(&q, (uint64_t)kind);
    return meta_q_one_text(&q, a, out);
}

tarn_err tarn_meta_bucket_config_put(tarn_meta_tx *tx, uint64_t bucket_id, tarn_bucket_config kind, tarn_str body)
{
    meta_q q;

    if (body.n > TARN_BUCKET_CONFIG_BYTES_MAX)
        return TARN_E_LIMIT;
    tarn_err err = bucket_touch(tx, bucket_id);
    if (err == TARN_OK)
        err = meta_w_begin(&q, tx, META_SQL_CONFIG_PUT);
    if (err != TARN_OK)
        return err;
    meta_q_u64(&q, bucket_id);
    meta_q_u64(&q, (uint64_t)kind);
    meta_q_blob(&q, body);
    return meta_q_run(&q, NULL);
}

tarn_err tarn_meta_bucket_config_delete(tarn_meta_tx *tx, uint64_t bucket_id, tarn_bucket_config kind)
{
    meta_q q;
    tarn_err err = bucket_touch(tx, bucket_id);

    if (err == TARN_OK)
        err = meta_w_begin(&q, tx, META_SQL_CONFIG_DELETE);
    if (err != TARN_OK)
        return err;
    meta_q_u64(&q, bucket_id);
    meta_q_u64(&q, (uint64_t)kind);
    return meta_q_run(&q, NULL);
}
