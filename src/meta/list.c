/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Listing: a walk over the keys of a bucket in byte order, with common prefixes folded.
 *
 * One cursor walks `object`; for a listing of versions a second one walks `version`, and the two are merged by key (the
 * object row first: it has the highest seq). A common prefix is emitted at the first visible key under it; then both
 * cursors step a few rows and, if they are still under it, seek to the end of the prefix: never a scan through it.
 *
 * The position is (from, seq_below): rows with key >= from, of the key `from` itself only those with seq < seq_below where
 * that is not 0. After META_LIST_ROWS_PER_READ rows the read transaction is ended
 * and the walk goes on from its position in a new one, so that the WAL can be checkpointed and start over.
 *
 * Both cursors are read in one transaction: else an overwrite between two reads could hide the version that it moved.
 *
 * Thread: the caller's, on its own reader. Rows passed to the sink point into SQLite's memory.
 */
#include "meta_internal.h"

#include <string.h>

typedef struct cursor {
    meta_q q;
    bool versions;                         /* walks `version`, else `object` */
    bool begun;                            /* q is in use */
    bool row;                              /* there is a current row, in r */
    bool within;                           /* version: walking the rest of one key; the keys behind it come after */
    char from_mem[TARN_KEY_BYTES_MAX + 2]; /* what q is bound to: the walk's own moves on */
    tarn_version_row r;
    char etag_mem[META_ETAG_BYTES_MAX];
} cursor;

typedef struct walk {
    meta_conn *c;
    const tarn_list_query *query;
    const tarn_list_sink *sink;
    uint8_t from_mem[TARN_KEY_BYTES_MAX + 2];
    tarn_str from;      /* inclusive */
    uint64_t seq_below; /* != 0: of the key `from` only versions older than this */
    uint8_t end_mem[TARN_KEY_BYTES_MAX];
    tarn_str end; /* exclusive */
    uint8_t cp_mem[TARN_KEY_BYTES_MAX];
    uint8_t cp_end_mem[TARN_KEY_BYTES_MAX];
    cursor object;
    cursor version;
    size_t rows; /* in this read transaction */
    bool own_tx; /* this walk began the read transaction */
    bool stopped;
} walk;

static bool starts_with(tarn_str s, tarn_str prefix)
{
    return s.n >= prefix.n && (prefix.n == 0 || memcmp(s.p, prefix.p, prefix.n) == 0);
}

/* ------------------------------------------------------------------ position */
static void from_set(walk *w, tarn_str key, bool past, uint64_t seq_below)
{
    TARN_ASSERT(key.n <= TARN_KEY_BYTES_MAX + 1);
    if (key.n > 0)
        memmove(w->from_mem, key.p, key.n);
    if (past)
        w->from_mem[key.n] = 0; /* the first string greater than key */
    w->from = (tarn_str){(const char *)w->from_mem, key.n + (past ? 1u : 0u)};
    w->seq_below = seq_below;
}

/* False: nothing can be listed. */
static bool walk_start(walk *w)
{
    const tarn_list_query *q = w->query;
    tarn_str start = TARN_STR_NULL;

    if (!meta_prefix_end(q->prefix, w->end_mem, &w->end))
        w->end = meta_key_end();
    from_set(w, q->prefix, false, 0);
    if (q->after.n == 0)
        return true;
    if (q->after_is_prefix) {
        if (!meta_prefix_end(q->after, w->cp_end_mem, &start))
            return false;
        if (tarn_str_cmp(start, q->prefix) > 0)
            from_set(w, start, false, 0);
    } else if (tarn_str_cmp(q->after, q->prefix) >= 0) {
        bool rest_of_key = q->versions && q->after_seq != 0;
        from_set(w, q->after, !rest_of_key, rest_of_key ? q->after_seq : 0);
    }
    return tarn_str_cmp(w->from, w->end) < 0;
}

/* ------------------------------------------------------------------ cursors */
static meta_sql cursor_sql(const walk *w, const cursor *k)
{
    bool all = w->query->columns_all;

    if (!k->versions)
        return all ? META_SQL_LIST_OBJECT_ALL : META_SQL_LIST_OBJECT;
    if (k->within)
        return all ? META_SQL_LIST_VERSION_KEY_ALL : META_SQL_LIST_VERSION_KEY;
    return all ? META_SQL_LIST_VERSION_ALL : META_SQL_LIST_VERSION;
}

static void cursor_end(cursor *k)
{
    if (k->begun)
        meta_q_end(&k->q);
    k->begun = false;
    k->row = false;
}

static tarn_err cursor_step(walk *w, cursor *k);

/* Begins at the walk's position. */
static tarn_err cursor_begin(walk *w, cursor *k)
{
    cursor_end(k);
    tarn_err err = meta_q_begin(&k->q, w->c, cursor_sql(w, k));
    if (err != TARN_OK)
        return err;
    k->begun = true;
    memcpy(k->from_mem, w->from_mem, w->from.n);
    meta_q_u64(&k->q, w->query->bucket_id);
    meta_q_blob(&k->q, (tarn_str){k->from_mem, w->from.n});
    if (k->versions && k->within)
        meta_q_u64(&k->q, w->seq_below);
    else
        meta_q_blob(&k->q, w->end);
    return cursor_step(w, k);
}

static tarn_err cursor_step(walk *w, cursor *k)
{
    tarn_err err = meta_q_step(&k->q, &k->row);

    if (err != TARN_OK)
        return err;
    if (k->row) {
        w->rows++;
        meta_version_read(&k->q, w->query->columns_all, w->query->bucket_id, k->etag_mem, &k->r);
        k->r.current = !k->versions;
        return TARN_OK;
    }
    if (!k->within)
        return TARN_OK;
    k->within = false; /* the rest of that key is done: on with the keys behind it */
    from_set(w, w->from, true, 0);
    return cursor_begin(w, k);
}

/* Both cursors at the walk's position, in a read transaction. */
static tarn_err walk_begin(walk *w)
{
    tarn_err err = TARN_OK;

    w->rows = 0;
    w->own_tx = sqlite3_get_autocommit(w->c->db) != 0;
    if (w->own_tx)
        err = meta_exec(w->c, META_SQL_READ_BEGIN);
    if (err != TARN_OK) {
        w->own_tx = false;
        return err;
    }
    tarn_str key = w->from;
    uint64_t seq_below = w->seq_below;
    err = cursor_begin(w, &w->object);
    /* The object row of a key that was begun: seen already, unless it is an older version that has become current since. */
    if (err == TARN_OK && seq_below != 0 && w->object.row && tarn_str_eq(w->object.r.key, key) && w->object.r.seq >= seq_below)
        err = cursor_step(w, &w->object);
    if (err == TARN_OK && w->query->versions) {
        w->version.versions = true;
        w->version.within = seq_below != 0;
        err = cursor_begin(w, &w->version); /* may move `from` behind the key */
    }
    return err;
}

static tarn_err walk_end(walk *w)
{
    cursor_end(&w->object);
    cursor_end(&w->version);
    if (!w->own_tx)
        return TARN_OK;
    w->own_tx = false;
    tarn_err err = meta_exec(w->c, META_SQL_READ_END);
    if (err != TARN_OK) /* a snapshot that stays would keep the log from starting over */
        (void)meta_exec(w->c, META_SQL_ROLLBACK);
    return err;
}

/* Goes on from the position in a new read transaction. */
static tarn_err walk_renew(walk *w)
{
    tarn_err err = walk_end(w);

    return err == TARN_OK ? walk_begin(w) : err;
}

/* The row that comes next, or NULL. */
static cursor *walk_next(walk *w)
{
    if (!w->object.row)
        return w->version.row ? &w->version : NULL;
    if (!w->version.row)
        return &w->object;
    return tarn_str_cmp(w->version.r.key, w->object.r.key) < 0 ? &w->version : &w->object;
}

/* ------------------------------------------------------------------ common prefixes */
static bool common_prefix(const tarn_list_query *q, tarn_str key, tarn_str *out)
{
    if (q->delimiter.n == 0)
        return false;
    tarn_str rest = tarn_str_sub(key, q->prefix.n, key.n);
    const char *at = q->delimiter.n == 1 ? memchr(rest.n > 0 ? rest.p : "", q->delimiter.p[0], rest.n)
                                         : memmem(rest.n > 0 ? rest.p : "", rest.n, q->delimiter.p, q->delimiter.n);
    if (at == NULL)
        return false;
    *out = (tarn_str){key.p, (size_t)(at - key.p) + q->delimiter.n};
    return true;
}

/* Moves one cursor past everything under cp; `from` has been set to the end of cp. */
static tarn_err cursor_skip(walk *w, cursor *k, tarn_str cp)
{
    for (int i = 0; i < META_LIST_STEPS_BEFORE_SEEK && k->row && !k->within; i++) {
        if (!starts_with(k->r.key, cp))
            return TARN_OK;
        tarn_err err = cursor_step(w, k);
        if (err != TARN_OK)
            return err;
    }
    if (!k->row)
        return TARN_OK;
    k->within = false;
    return cursor_begin(w, k);
}

static tarn_err prefix_emit(walk *w, tarn_str cp_in_row)
{
    const tarn_list_query *q = w->query;
    tarn_str cp = {(const char *)w->cp_mem, cp_in_row.n};
    tarn_str end;

    memcpy(w->cp_mem, cp_in_row.p, cp_in_row.n);
    if (tarn_str_cmp(cp, q->after) > 0 && !w->sink->on_prefix(w->sink->ctx, cp)) {
        w->stopped = true;
        return TARN_OK;
    }
    if (!meta_prefix_end(cp, w->cp_end_mem, &end)) { /* nothing but 0xff: no key can follow */
        w->stopped = true;
        return TARN_OK;
    }
    from_set(w, end, false, 0);
    tarn_err err = cursor_skip(w, &w->object, cp);
    if (err == TARN_OK && q->versions)
        err = cursor_skip(w, &w->version, cp);
    if (err == TARN_OK && w->rows >= META_LIST_ROWS_PER_READ)
        err = walk_renew(w);
    return err;
}

/* ------------------------------------------------------------------ the walk */
static tarn_err row_visit(walk *w, cursor *k)
{
    const tarn_list_query *q = w->query;
    tarn_str cp;
    bool hidden = k->r.delete_marker && !q->versions;

    if (!hidden && common_prefix(q, k->r.key, &cp))
        return prefix_emit(w, cp);
    if (!hidden && !w->sink->on_version(w->sink->ctx, &k->r)) {
        w->stopped = true;
        return TARN_OK;
    }
    if (w->rows < META_LIST_ROWS_PER_READ)
        return cursor_step(w, k);
    from_set(w, k->r.key, !q->versions, q->versions ? k->r.seq : 0);
    return walk_renew(w);
}

tarn_err tarn_meta_list(tarn_meta *m, const tarn_list_query *query, const tarn_list_sink *sink)
{
    walk w;

    if (query->prefix.n > TARN_KEY_BYTES_MAX || query->after.n > TARN_KEY_BYTES_MAX || query->delimiter.n > TARN_KEY_BYTES_MAX)
        return TARN_E_KEY_TOO_LONG;
    memset(&w, 0, sizeof(w));
    w.query = query;
    w.sink = sink;
    tarn_err err = meta_conn_for(m, NULL, &w.c);
    if (err != TARN_OK || !walk_start(&w))
        return err;
    err = walk_begin(&w);
    for (cursor *k = walk_next(&w); err == TARN_OK && k != NULL && !w.stopped; k = walk_next(&w))
        err = row_visit(&w, k);
    tarn_err end_err = walk_end(&w);
    return err != TARN_OK ? err : end_err;
}
