/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What stands beside the object rows: inline bytes, parts, uploads, garbage, repairs.
 *
 * Data ids, upload ids and garbage ids are numbers of the one commit order, so inserts go to the right edge of their trees.
 */
#include "meta_internal.h"

#include <string.h>

/* A write whose only parameters are one or two numbers. */
static tarn_err write_numbers(tarn_meta_tx *tx, meta_sql id, const uint64_t *v, size_t n, uint64_t *changes)
{
    meta_q q;
    tarn_err err = meta_w_begin(&q, tx, id);

    if (err != TARN_OK)
        return err;
    for (size_t i = 0; i < n; i++)
        meta_q_u64(&q, v[i]);
    return meta_q_run(&q, changes);
}

/* ------------------------------------------------------------------ inline bytes */
tarn_err tarn_meta_inline_put(tarn_meta_tx *tx, uint64_t data_id, tarn_str bytes)
{
    meta_q q;

    if (data_id == 0 || data_id > INT64_MAX || bytes.n > TARN_INLINE_BYTES_MAX)
        return TARN_E_LIMIT;
    tarn_err err = meta_w_begin(&q, tx, META_SQL_INLINE_PUT);
    if (err != TARN_OK)
        return err;
    meta_q_u64(&q, data_id);
    meta_q_blob(&q, bytes);
    return meta_q_run(&q, NULL);
}

tarn_err tarn_meta_inline_get(tarn_meta *m, tarn_meta_tx *tx, uint64_t data_id, tarn_arena *a, tarn_str *out)
{
    meta_q q;
    tarn_err err = meta_q_read(&q, m, tx, META_SQL_INLINE_GET);

    if (err != TARN_OK)
        return err;
    meta_q_u64(&q, data_id);
    return meta_q_one_text(&q, a, out);
}

tarn_err tarn_meta_inline_delete(tarn_meta_tx *tx, uint64_t data_id)
{
    return write_numbers(tx, META_SQL_INLINE_DELETE, &data_id, 1, NULL);
}

/* ------------------------------------------------------------------ parts */
static void part_read(const meta_q *q, uint64_t data_id, bool all, tarn_part_row *out)
{
    *out = (tarn_part_row){
        .data_id = data_id,
        .number = meta_col_u32(q, 0),
        .size = meta_col_u64(q, 1),
        .mtime_ms = meta_col_i64(q, 2),
        .blob_id = meta_col_u64(q, 3),
        .etag = meta_col_str(q, 4),
        .attrs = meta_col_str(q, 5),
        .layout = all ? meta_col_str(q, 6) : TARN_STR_NULL,
    };
}

tarn_err tarn_meta_part_put(tarn_meta_tx *tx, const tarn_part_row *row)
{
    meta_q q;

    if (row->data_id == 0 || row->number < 1 || row->number > TARN_PARTS_MAX || row->size > INT64_MAX ||
        row->etag.n > META_ETAG_BYTES_MAX || row->attrs.n > TARN_ATTRS_BYTES_MAX || row->layout.n > TARN_LAYOUT_BYTES_MAX)
        return TARN_E_LIMIT;
    tarn_err err = meta_w_begin(&q, tx, META_SQL_PART_PUT);
    if (err != TARN_OK)
        return err;
    meta_q_u64(&q, row->data_id);
    meta_q_u64(&q, row->number);
    meta_q_u64(&q, row->size);
    meta_q_i64(&q, row->mtime_ms);
    meta_q_u64(&q, row->blob_id);
    meta_q_text(&q, row->etag);
    meta_q_blob(&q, row->attrs);
    meta_q_blob(&q, row->layout);
    return meta_q_run(&q, NULL);
}

tarn_err tarn_meta_part_get(tarn_meta *m, tarn_meta_tx *tx, uint64_t data_id, uint32_t number, tarn_arena *a, tarn_part_row *out)
{
    meta_q q;
    bool row = false;
    tarn_part_row r;
    tarn_err err = meta_q_read(&q, m, tx, META_SQL_PART_GET);

    if (err != TARN_OK)
        return err;
    meta_q_u64(&q, data_id);
    meta_q_u64(&q, number);
    err = meta_q_step(&q, &row);
    if (err == TARN_OK && !row)
        err = TARN_E_INVALID_PART;
    if (err == TARN_OK) {
        part_read(&q, data_id, true, &r);
        err = meta_keep(a, (tarn_str *const[]){&r.etag, &r.attrs, &r.layout}, 3);
    }
    meta_q_end(&q);
    if (err == TARN_OK)
        *out = r;
    return err;
}

tarn_err tarn_meta_part_delete(tarn_meta_tx *tx, uint64_t data_id, uint32_t number)
{
    return write_numbers(tx, META_SQL_PART_DELETE, (const uint64_t[]){data_id, number}, 2, NULL);
}

tarn_err tarn_meta_part_list(tarn_meta *m, tarn_meta_tx *tx, uint64_t data_id, uint32_t after, bool columns_all,
                             bool (*fn)(void *ctx, const tarn_part_row *row), void *ctx)
{
    meta_q q;
    bool row;
    tarn_err err = meta_q_read(&q, m, tx, columns_all ? META_SQL_PART_LIST_ALL : META_SQL_PART_LIST);

    if (err != TARN_OK)
        return err;
    meta_q_u64(&q, data_id);
    meta_q_u64(&q, after);
    while ((err = meta_q_step(&q, &row)) == TARN_OK && row) { /* at most TARN_PARTS_MAX rows */
        tarn_part_row r;
        part_read(&q, data_id, columns_all, &r);
        if (!fn(ctx, &r))
            break;
    }
    meta_q_end(&q);
    return err;
}

/* ------------------------------------------------------------------ uploads */
static void upload_read(const meta_q *q, uint64_t bucket_id, tarn_upload_row *out)
{
    *out = (tarn_upload_row){
        .bucket_id = bucket_id,
        .key = meta_col_str(q, 0),
        .upload_id = meta_col_u64(q, 1),
        .nonce = meta_col_u64(q, 2),
        .initiated_ms = meta_col_i64(q, 3),
        .owner = meta_col_str(q, 4),
        .attrs = meta_col_str(q, 5),
    };
}

tarn_err tarn_meta_upload_create(tarn_meta_tx *tx, const tarn_upload_row *row)
{
    meta_q q;

    if (row->key.n < 1 || row->key.n > TARN_KEY_BYTES_MAX)
        return TARN_E_KEY_TOO_LONG;
    if (row->attrs.n > TARN_ATTRS_BYTES_MAX || row->owner.n > META_NAME_BYTES_MAX || row->upload_id == 0 || row->upload_id > INT64_MAX)
        return TARN_E_LIMIT;
    tarn_err err = meta_w_begin(&q, tx, META_SQL_UPLOAD_INSERT);
    if (err != TARN_OK)
        return err;
    meta_q_u64(&q, row->bucket_id);
    meta_q_blob(&q, row->key);
    meta_q_u64(&q, row->upload_id);
    meta_q_u64(&q, row->nonce);
    meta_q_i64(&q, row->initiated_ms);
    meta_q_text(&q, row->owner);
    meta_q_blob(&q, row->attrs);
    return meta_q_run(&q, NULL);
}

tarn_err tarn_meta_upload_get(tarn_meta *m, tarn_meta_tx *tx, uint64_t bucket_id, tarn_str key, uint64_t upload_id, uint64_t nonce,
                              tarn_arena *a, tarn_upload_row *out)
{
    meta_q q;
    bool row = false;
    tarn_upload_row r;
    tarn_err err = meta_q_read(&q, m, tx, META_SQL_UPLOAD_GET);

    if (err != TARN_OK)
        return err;
    meta_q_u64(&q, bucket_id);
    meta_q_blob(&q, key);
    meta_q_u64(&q, upload_id);
    err = meta_q_step(&q, &row);
    if (err == TARN_OK && row)
        upload_read(&q, bucket_id, &r);
    if (err == TARN_OK && (!row || r.nonce != nonce))
        err = TARN_E_NO_SUCH_UPLOAD;
    if (err == TARN_OK)
        err = meta_keep(a, (tarn_str *const[]){&r.key, &r.owner, &r.attrs}, 3);
    meta_q_end(&q);
    if (err == TARN_OK)
        *out = r;
    return err;
}

tarn_err tarn_meta_upload_delete(tarn_meta_tx *tx, uint64_t bucket_id, uint64_t upload_id)
{
    uint64_t changes = 0;
    tarn_err err = write_numbers(tx, META_SQL_UPLOAD_DELETE, (const uint64_t[]){upload_id, bucket_id}, 2, &changes);

    return err == TARN_OK && changes == 0 ? TARN_E_NO_SUCH_UPLOAD : err;
}

/* Walks q's rows; *more turns false when fn has had enough. */
static tarn_err uploads_walk(meta_q *q, uint64_t bucket_id, bool (*fn)(void *ctx, const tarn_upload_row *row), void *ctx, bool *more)
{
    bool row;
    tarn_err err;

    while ((err = meta_q_step(q, &row)) == TARN_OK && row) {
        tarn_upload_row r;
        upload_read(q, bucket_id, &r);
        if (!fn(ctx, &r)) {
            *more = false;
            break;
        }
    }
    meta_q_end(q);
    return err;
}

tarn_err tarn_meta_upload_list(tarn_meta *m, uint64_t bucket_id, tarn_str prefix, tarn_str after_key, uint64_t after_id,
                               bool (*fn)(void *ctx, const tarn_upload_row *row), void *ctx)
{
    meta_conn *c;
    meta_q q;
    bool more = true;
    uint8_t end_mem[TARN_KEY_BYTES_MAX];
    char from_mem[TARN_KEY_BYTES_MAX + 1];
    tarn_str from = prefix, end;

    if (prefix.n > TARN_KEY_BYTES_MAX || after_key.n > TARN_KEY_BYTES_MAX)
        return TARN_E_KEY_TOO_LONG;
    if (!meta_prefix_end(prefix, end_mem, &end))
        end = meta_key_end();
    tarn_err err = meta_conn_for(m, NULL, &c);
    if (err == TARN_OK && after_key.n > 0 && tarn_str_cmp(after_key, prefix) >= 0) {
        if (tarn_str_cmp(after_key, end) >= 0)
            return TARN_OK;
        memcpy(from_mem, after_key.p, after_key.n);
        from_mem[after_key.n] = 0;
        from = (tarn_str){from_mem, after_key.n + 1};
        err = meta_q_begin(&q, c, META_SQL_UPLOAD_LIST_KEY); /* the rest of that key first */
        if (err == TARN_OK) {
            meta_q_u64(&q, bucket_id);
            meta_q_blob(&q, after_key);
            meta_q_u64(&q, after_id > INT64_MAX ? INT64_MAX : after_id);
            err = uploads_walk(&q, bucket_id, fn, ctx, &more);
        }
    }
    if (err == TARN_OK && more)
        err = meta_q_begin(&q, c, META_SQL_UPLOAD_LIST);
    if (err != TARN_OK || !more)
        return err;
    meta_q_u64(&q, bucket_id);
    meta_q_blob(&q, from);
    meta_q_blob(&q, end);
    return uploads_walk(&q, bucket_id, fn, ctx, &more);
}

/* ------------------------------------------------------------------ garbage */
tarn_err tarn_meta_garbage_put(tarn_meta_tx *tx, tarn_garbage_row *row)
{
    meta_q q;
    uint64_t id = tarn_meta_tx_seq(tx);

    if (row->layout.n > TARN_LAYOUT_BYTES_MAX)
        return TARN_E_LIMIT;
    tarn_err err = meta_w_begin(&q, tx, META_SQL_GARBAGE_INSERT);
    if (err != TARN_OK)
        return err;
    meta_q_u64(&q, id);
    meta_q_i64(&q, row->since_ms);
    meta_q_u64(&q, row->data_id);
    meta_q_blob(&q, row->layout);
    err = meta_q_run(&q, NULL);
    if (err == TARN_OK)
        row->id = id;
    return err;
}

tarn_err tarn_meta_garbage_list(tarn_meta *m, uint64_t after_id, bool (*fn)(void *ctx, const tarn_garbage_row *row), void *ctx)
{
    meta_q q;
    bool row;
    tarn_err err = meta_q_read(&q, m, NULL, META_SQL_GARBAGE_LIST);

    if (err != TARN_OK)
        return err;
    meta_q_u64(&q, after_id);
    while ((err = meta_q_step(&q, &row)) == TARN_OK && row) {
        tarn_garbage_row r = {
            .id = meta_col_u64(&q, 0),
            .since_ms = meta_col_i64(&q, 1),
            .data_id = meta_col_u64(&q, 2),
            .layout = meta_col_str(&q, 3),
        };
        if (!fn(ctx, &r))
            break;
    }
    meta_q_end(&q);
    return err;
}

tarn_err tarn_meta_garbage_delete(tarn_meta_tx *tx, uint64_t id)
{
    return write_numbers(tx, META_SQL_GARBAGE_DELETE, &id, 1, NULL);
}

tarn_err tarn_meta_data_referenced(tarn_meta *m, uint64_t data_id, bool *out)
{
    meta_q q;
    tarn_err err = meta_q_read(&q, m, NULL, META_SQL_DATA_REFERENCED);

    if (err != TARN_OK)
        return err;
    meta_q_u64(&q, data_id);
    return meta_q_one_bool(&q, out);
}

/* ------------------------------------------------------------------ repairs */
tarn_err tarn_meta_repair_put(tarn_meta_tx *tx, tarn_repair_row *row)
{
    meta_q q;
    bool found = false;
    uint64_t changes = 0, id = tarn_meta_tx_seq(tx);

    if (row->key.n < 1 || row->key.n > TARN_KEY_BYTES_MAX)
        return TARN_E_KEY_TOO_LONG;
    tarn_err err = meta_w_begin(&q, tx, META_SQL_REPAIR_INSERT);
    if (err != TARN_OK)
        return err;
    meta_q_u64(&q, id);
    meta_q_u64(&q, row->bucket_id);
    meta_q_blob(&q, row->key);
    meta_q_u64(&q, row->seq);
    meta_q_i64(&q, row->since_ms);
    meta_q_u64(&q, row->tries);
    err = meta_q_run(&q, &changes);
    if (err != TARN_OK)
        return err;
    if (changes > 0) {
        row->id = id;
        return TARN_OK;
    }
    err = meta_q_begin(&q, tx->c, META_SQL_REPAIR_GET_ID);
    if (err != TARN_OK)
        return err;
    meta_q_u64(&q, row->bucket_id);
    meta_q_blob(&q, row->key);
    meta_q_u64(&q, row->seq);
    err = meta_q_step(&q, &found);
    if (err == TARN_OK && found)
        row->id = meta_col_u64(&q, 0);
    meta_q_end(&q);
    return err;
}

tarn_err tarn_meta_repair_list(tarn_meta *m, uint64_t after_id, bool (*fn)(void *ctx, const tarn_repair_row *row), void *ctx)
{
    meta_q q;
    bool row;
    tarn_err err = meta_q_read(&q, m, NULL, META_SQL_REPAIR_LIST);

    if (err != TARN_OK)
        return err;
    meta_q_u64(&q, after_id);
    while ((err = meta_q_step(&q, &row)) == TARN_OK && row) {
        tarn_repair_row r = {
            .id = meta_col_u64(&q, 0),
            .bucket_id = meta_col_u64(&q, 1),
            .key = meta_col_str(&q, 2),
            .seq = meta_col_u64(&q, 3),
            .since_ms = meta_col_i64(&q, 4),
            .tries = meta_col_u32(&q, 5),
        };
        if (!fn(ctx, &r))
            break;
    }
    meta_q_end(&q);
    return err;
}

tarn_err tarn_meta_repair_delete(tarn_meta_tx *tx, uint64_t id)
{
    return write_numbers(tx, META_SQL_REPAIR_DELETE, &id, 1, NULL);
}
