/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Object versions: `object` holds the current version of each key, `version` the noncurrent ones, with the same columns.
 *
 * Invariants (of the two tables together):
 *  1. The seq of a key's object row is greater than that of each of its version rows.
 *  2. A key with version rows has an object row.
 *  3. At most one version row of a key is the null version (a unique index), or the object row is.
 *  4. data_id is NULL or names data in files, inline_id is NULL or names a row of `inline`; never both.
 */
#include "meta_internal.h"

#include <string.h>

#define ETAG_PACKED_BYTES 16 /* 32 lower-case hex digits become a BLOB of 16 bytes; anything else stays text */

/* ------------------------------------------------------------------ columns */
static tarn_str etag_unpack(const meta_q *q, int col, char mem[META_ETAG_BYTES_MAX])
{
    tarn_str s = meta_col_str(q, col);
    tarn_sb b;

    if (s.n != ETAG_PACKED_BYTES || sqlite3_column_type(q->s, col) != SQLITE_BLOB)
        return s;
    static const char digits[] = "0123456789abcdef";
    tarn_sb_init_fixed(&b, mem, META_ETAG_BYTES_MAX);
    for (size_t i = 0; i < ETAG_PACKED_BYTES; i++) {
        mem[2 * i] = digits[(uint8_t)s.p[i] >> 4];
        mem[2 * i + 1] = digits[(uint8_t)s.p[i] & 15];
    }
    return (tarn_str){mem, 2 * ETAG_PACKED_BYTES};
}

/* True: s is 32 lower-case hex digits, and out holds them packed. */
static bool etag_pack(tarn_str s, uint8_t out[ETAG_PACKED_BYTES])
{
    if (s.n != 2 * ETAG_PACKED_BYTES)
        return false;
    for (size_t i = 0; i < s.n; i++) {
        char ch = s.p[i];
        uint8_t v;
        if (ch >= '0' && ch <= '9')
            v = (uint8_t)(ch - '0');
        else if (ch >= 'a' && ch <= 'f')
            v = (uint8_t)(ch - 'a' + 10);
        else
            return false;
        out[i / 2] = (uint8_t)(i % 2 == 0 ? v << 4 : out[i / 2] | v);
    }
    return true;
}

static uint32_t flags_of(const tarn_version_row *r)
{
    return (r->null_version ? META_FLAG_NULL : 0u) | (r->delete_marker ? META_FLAG_DELETE_MARKER : 0u) |
           (r->legal_hold ? META_FLAG_LEGAL_HOLD : 0u) | ((uint32_t)r->retention << META_FLAG_RETENTION_SHIFT);
}

static void flags_read(uint32_t flags, tarn_version_row *out)
{
    out->null_version = (flags & META_FLAG_NULL) != 0;
    out->delete_marker = (flags & META_FLAG_DELETE_MARKER) != 0;
    out->legal_hold = (flags & META_FLAG_LEGAL_HOLD) != 0;
    out->retention = (tarn_retention)((flags & META_FLAG_RETENTION_MASK) >> META_FLAG_RETENTION_SHIFT);
}

static void read_list_columns(const meta_q *q, char etag_mem[META_ETAG_BYTES_MAX], tarn_version_row *out)
{
    out->key = meta_col_str(q, 0);
    out->seq = meta_col_u64(q, 1);
    out->nonce = meta_col_u64(q, 2);
    flags_read(meta_col_u32(q, 3), out);
    out->size = meta_col_u64(q, 4);
    out->mtime_ms = meta_col_i64(q, 5);
    out->etag = etag_unpack(q, 6, etag_mem);
    out->attrs = meta_col_str(q, 7);
}

static void read_all_columns(const meta_q *q, char etag_mem[META_ETAG_BYTES_MAX], tarn_version_row *out)
{
    out->key = meta_col_str(q, 1);
    out->seq = meta_col_u64(q, 2);
    out->nonce = meta_col_u64(q, 3);
    flags_read(meta_col_u32(q, 4), out);
    out->size = meta_col_u64(q, 5);
    out->mtime_ms = meta_col_i64(q, 6);
    uint64_t inline_id = meta_col_u64(q, 8); /* NULL reads as 0 */
    out->inline_data = inline_id != 0;
    out->data_id = out->inline_data ? inline_id : meta_col_u64(q, 7);
    out->parts_n = meta_col_u32(q, 9);
    out->tags_n = meta_col_u32(q, 10);
    out->retain_until_ms = meta_col_i64(q, 11);
    out->etag = etag_unpack(q, 12, etag_mem);
    out->tags = meta_col_str(q, 13);
    out->attrs = meta_col_str(q, 14);
    out->layout = meta_col_str(q, 15);
}

void meta_version_read(const meta_q *q, bool all, uint64_t bucket_id, char etag_mem[META_ETAG_BYTES_MAX], tarn_version_row *out)
{
    memset(out, 0, sizeof(*out));
    out->bucket_id = bucket_id;
    if (all)
        read_all_columns(q, etag_mem, out);
    else
        read_list_columns(q, etag_mem, out);
}

static void bind_row(meta_q *q, const tarn_version_row *r, uint8_t etag_mem[ETAG_PACKED_BYTES])
{
    meta_q_u64(q, r->bucket_id);
    meta_q_blob(q, r->key);
    meta_q_u64(q, r->seq);
    meta_q_u64(q, r->nonce);
    meta_q_u64(q, flags_of(r));
    meta_q_u64(q, r->size);
    meta_q_i64(q, r->mtime_ms);
    for (int inlined = 0; inlined <= 1; inlined++) { /* data_id, then inline_id */
        if (r->data_id != 0 && r->inline_data == (inlined == 1))
            meta_q_u64(q, r->data_id);
        else
            meta_q_null(q);
    }
    meta_q_u64(q, r->parts_n);
    meta_q_u64(q, r->tags_n);
    meta_q_i64(q, r->retain_until_ms);
    if (etag_pack(r->etag, etag_mem))
        meta_q_blob(q, (tarn_str){(const char *)etag_mem, ETAG_PACKED_BYTES});
    else
        meta_q_text(q, r->etag);
    meta_q_blob(q, r->tags);
    meta_q_blob(q, r->attrs);
    meta_q_blob(q, r->layout);
}

static tarn_err row_check(const tarn_version_row *r)
{
    if (r->key.n < 1 || r->key.n > TARN_KEY_BYTES_MAX)
        return TARN_E_KEY_TOO_LONG;
    if (r->attrs.n > TARN_ATTRS_BYTES_MAX || r->tags.n > TARN_ATTRS_BYTES_MAX)
        return TARN_E_METADATA_TOO_LARGE;
    if (r->layout.n > TARN_LAYOUT_BYTES_MAX || r->etag.n > META_ETAG_BYTES_MAX || r->size > INT64_MAX || r->seq == 0 ||
        r->seq > INT64_MAX || r->parts_n > TARN_PARTS_MAX)
        return TARN_E_LIMIT;
    return TARN_OK;
}

/* ------------------------------------------------------------------ reading */
/* Begins q by (bucket, key); the caller binds what else there is. */
static tarn_err key_begin(meta_q *q, meta_conn *c, meta_sql id, uint64_t bucket_id, tarn_str key)
{
    tarn_err err = meta_q_begin(q, c, id);

    if (err == TARN_OK) {
        meta_q_u64(q, bucket_id);
        meta_q_blob(q, key);
    }
    return err;
}

/* Steps and ends q; *found says whether a row was there (and is kept in *out, when it passes `want`). */
static tarn_err row_fetch(meta_q *q, uint64_t bucket_id, tarn_arena *a, bool (*want)(const tarn_version_row *, const void *),
                          const void *ctx, tarn_version_row *out, bool *found)
{
    bool row = false;
    char etag_mem[META_ETAG_BYTES_MAX];
    tarn_version_row r;
    tarn_err err = meta_q_step(q, &row);

    *found = false;
    if (err == TARN_OK && row) {
        meta_version_read(q, true, bucket_id, etag_mem, &r);
        if (want == NULL || want(&r, ctx)) {
            err = meta_keep(a, (tarn_str *const[]){&r.key, &r.etag, &r.tags, &r.attrs, &r.layout}, 5);
            *found = err == TARN_OK;
        }
    }
    meta_q_end(q);
    if (*found)
        *out = r;
    return err;
}

tarn_err tarn_meta_object_get(tarn_meta *m, tarn_meta_tx *tx, uint64_t bucket_id, tarn_str key, tarn_arena *a, tarn_version_row *out)
{
    meta_conn *c;
    meta_q q;
    bool found;
    tarn_err err = meta_conn_for(m, tx, &c);

    if (err == TARN_OK)
        err = key_begin(&q, c, META_SQL_OBJECT_GET, bucket_id, key);
    if (err == TARN_OK)
        err = row_fetch(&q, bucket_id, a, NULL, NULL, out, &found);
    if (err == TARN_OK && !found)
        err = TARN_E_NO_SUCH_KEY;
    if (err == TARN_OK)
        out->current = true;
    return err;
}

typedef struct version_id {
    bool null_version;
    uint64_t seq;
    uint64_t nonce;
} version_id;

static bool is_version(const tarn_version_row *r, const void *ctx)
{
    const version_id *id = ctx;

    return id->null_version ? r->null_version : !r->null_version && r->seq == id->seq && r->nonce == id->nonce;
}

tarn_err tarn_meta_version_get(tarn_meta *m, tarn_meta_tx *tx, uint64_t bucket_id, tarn_str key, bool null_version, uint64_t seq,
                               uint64_t nonce, tarn_arena *a, tarn_version_row *out)
{
    meta_conn *c;
    meta_q q;
    bool found = false;
    version_id id = {null_version, seq, nonce};
    tarn_err err = meta_conn_for(m, tx, &c);

    if (err == TARN_OK)
        err = key_begin(&q, c, META_SQL_OBJECT_GET, bucket_id, key);
    if (err == TARN_OK)
        err = row_fetch(&q, bucket_id, a, is_version, &id, out, &found);
    if (err != TARN_OK || found) {
        if (found)
            out->current = true;
        return err;
    }
    err = key_begin(&q, c, null_version ? META_SQL_VERSION_GET_NULL : META_SQL_VERSION_GET, bucket_id, key);
    if (err != TARN_OK)
        return err;
    if (!null_version)
        meta_q_u64(&q, seq);
    err = row_fetch(&q, bucket_id, a, is_version, &id, out, &found);
    return err == TARN_OK && !found ? TARN_E_NO_SUCH_VERSION : err;
}

/* ------------------------------------------------------------------ writing */
static tarn_err write_by_key(tarn_meta_tx *tx, meta_sql id, const tarn_version_row *row, bool with_seq, uint64_t *changes)
{
    meta_q q;
    tarn_err err = meta_w_begin(&q, tx, id);

    if (err != TARN_OK)
        return err;
    meta_q_u64(&q, row->bucket_id);
    meta_q_blob(&q, row->key);
    if (with_seq)
        meta_q_u64(&q, row->seq);
    return meta_q_run(&q, changes);
}

tarn_err tarn_meta_object_replace(tarn_meta_tx *tx, const tarn_version_row *row)
{
    meta_q q;
    uint64_t changes = 0;
    uint8_t etag_mem[ETAG_PACKED_BYTES];
    tarn_err err = row_check(row);

    if (err == TARN_OK)
        err = meta_w_begin(&q, tx, META_SQL_OBJECT_PUT);
    if (err != TARN_OK)
        return err;
    bind_row(&q, row, etag_mem);
    err = meta_q_run(&q, &changes);
    return err == TARN_OK && changes == 0 ? TARN_E_CONFLICT : err; /* its seq is not new */
}

tarn_err tarn_meta_version_insert(tarn_meta_tx *tx, const tarn_version_row *row)
{
    tarn_err err = row_check(row);

    if (err == TARN_OK)
        err = write_by_key(tx, META_SQL_OBJECT_TO_VERSION, row, false, NULL);
    if (err == TARN_OK)
        err = tarn_meta_object_replace(tx, row);
    return err;
}

tarn_err tarn_meta_version_delete(tarn_meta_tx *tx, const tarn_version_row *row)
{
    uint64_t changes = 0;
    tarn_err err = write_by_key(tx, META_SQL_OBJECT_DELETE, row, true, &changes);

    if (err != TARN_OK)
        return err;
    if (changes == 0) {
        err = write_by_key(tx, META_SQL_VERSION_DELETE, row, true, &changes);
        return err == TARN_OK && changes == 0 ? TARN_E_NO_SUCH_VERSION : err;
    }
    err = write_by_key(tx, META_SQL_VERSION_TO_OBJECT, row, false, &changes);
    if (err == TARN_OK && changes > 0) {
        err = write_by_key(tx, META_SQL_VERSION_DELETE_NEWEST, row, false, &changes);
        TARN_ASSERT(err != TARN_OK || changes == 1);
    }
    return err;
}

static tarn_err update_in(tarn_meta_tx *tx, meta_sql id, const tarn_version_row *row, uint64_t *changes)
{
    meta_q q;
    const uint32_t mask = META_FLAG_LEGAL_HOLD | META_FLAG_RETENTION_MASK;
    tarn_err err = meta_w_begin(&q, tx, id);

    if (err != TARN_OK)
        return err;
    meta_q_u64(&q, row->bucket_id);
    meta_q_blob(&q, row->key);
    meta_q_u64(&q, row->seq);
    meta_q_u64(&q, mask);
    meta_q_u64(&q, flags_of(row) & mask);
    meta_q_u64(&q, row->tags_n);
    meta_q_i64(&q, row->retain_until_ms);
    meta_q_blob(&q, row->tags);
    meta_q_blob(&q, row->attrs);
    meta_q_blob(&q, row->layout);
    return meta_q_run(&q, changes);
}

tarn_err tarn_meta_version_update(tarn_meta_tx *tx, const tarn_version_row *row)
{
    uint64_t changes = 0;
    tarn_err err = row_check(row);

    if (err == TARN_OK)
        err = update_in(tx, META_SQL_OBJECT_UPDATE, row, &changes);
    if (err == TARN_OK && changes == 0)
        err = update_in(tx, META_SQL_VERSION_UPDATE, row, &changes);
    return err == TARN_OK && changes == 0 ? TARN_E_NO_SUCH_VERSION : err;
}
