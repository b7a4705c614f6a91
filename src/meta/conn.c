/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Connections, the cache of prepared statements, and the typed way in and out of them.
 *
 * Invariants:
 *  1. A cached statement is never handed out while it is in use: a nested use (a list callback that lists again) gets a
 *     statement of its own, which is finalised at its end.
 *  2. Parameters are bound without a copy: the caller's memory must live until the statement has been ended.
 */
#include "meta_internal.h"
#include "vfs.h"

#include <string.h>

static const char *const SQL_TEXT[META_SQL_COUNT] = {
#define META_SQL(id, text) text,
#include "sql.h"
#undef META_SQL
};

const char *meta_sql_text(meta_sql id)
{
    TARN_ASSERT(id < META_SQL_COUNT);
    return SQL_TEXT[id];
}

tarn_err meta_err(int rc)
{
    switch (rc & 0xff) {
    case SQLITE_OK:
    case SQLITE_ROW:
    case SQLITE_DONE:
        return TARN_OK;
    case SQLITE_NOMEM:
        return TARN_E_NO_MEMORY;
    case SQLITE_FULL:
        return TARN_E_DISK_FULL;
    case SQLITE_IOERR:
        if (rc == SQLITE_IOERR_DATA) /* a page's checksum is wrong in every copy */
            return TARN_E_CORRUPT;
        return rc == SQLITE_IOERR_NOMEM ? TARN_E_NO_MEMORY : TARN_E_IO;
    case SQLITE_CANTOPEN:
        return TARN_E_IO;
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
        return TARN_E_CORRUPT;
    case SQLITE_READONLY:
        return TARN_E_DRIVE_READ_ONLY;
    case SQLITE_CONSTRAINT:
        return TARN_E_CONFLICT;
    case SQLITE_TOOBIG:
        return TARN_E_LIMIT;
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
        return TARN_E_SLOW_DOWN;
    default:
        return TARN_E_INTERNAL;
    }
}

/* ------------------------------------------------------------------ opening */
static tarn_err pragmas_set(meta_conn *c, bool writer)
{
    tarn_sb b;
    char mem[512];
    uint64_t cache_kib = c->meta->cache_bytes / 1024 / (writer ? 1 : 4);

    /* After a commit whose balancing renumbered pages SQLite walks the writer's whole cache (3.40; the temporary number is
     * that of the lock page, beyond the end of the file): 64 MiB cost 5 us a row in groups of 50. */
    if (cache_kib > META_WRITER_CACHE_KIB_MAX && writer)
        cache_kib = META_WRITER_CACHE_KIB_MAX;

    tarn_sb_init_fixed(&b, mem, sizeof(mem));
    tarn_sb_fmt(&b, "PRAGMA cache_size=-%llu;", (unsigned long long)(cache_kib < 256 ? 256 : cache_kib));
    tarn_sb_cstr(&b, "PRAGMA temp_store=MEMORY;PRAGMA mmap_size=0;PRAGMA trusted_schema=OFF;PRAGMA secure_delete=OFF;");
    if (writer)
        tarn_sb_fmt(&b, "PRAGMA synchronous=FULL;PRAGMA journal_size_limit=%d;", META_LOG_KEEP_BYTES);
    else
        tarn_sb_cstr(&b, "PRAGMA query_only=ON;");
    TARN_ASSERT(!b.failed);
    int rc = sqlite3_exec(c->db, b.p, NULL, NULL, NULL);
    if (rc == SQLITE_OK)
        rc = sqlite3_wal_autocheckpoint(c->db, 0); /* only the committer checkpoints, and only when it decides to */
    if (rc == SQLITE_OK)
        rc = sqlite3_db_config(c->db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
    return meta_err(rc);
}

tarn_err meta_conn_open(tarn_meta *m, bool writer, meta_conn **out)
{
    tarn_err err;
    meta_conn *c = tarn_calloc(1, sizeof(*c));

    if (c == NULL)
        return TARN_E_NO_MEMORY;
    c->meta = m;
    int flags = writer ? SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE : SQLITE_OPEN_READONLY;
    int rc = sqlite3_open_v2(META_VFS_DB_NAME, &c->db, flags | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE, meta_vfs_name(m->vfs));
    err = meta_err(rc);
    if (err == TARN_OK)
        err = pragmas_set(c, writer);
    if (err != TARN_OK) {
        meta_conn_close(c);
        return err;
    }
    *out = c;
    return TARN_OK;
}

void meta_conn_close(meta_conn *c)
{
    if (c == NULL)
        return;
    for (size_t i = 0; i < META_SQL_COUNT; i++)
        sqlite3_finalize(c->stmts[i]);
    meta_bucket_forget_all(c);
    int rc = sqlite3_close(c->db);
    TARN_ASSERT(rc == SQLITE_OK); /* a statement that somebody still uses is a bug */
    tarn_free(c);
}

/* The thread ends: its connection goes. */
static void reader_drop(void *arg)
{
    meta_conn *c = arg;
    tarn_meta *m = c->meta;

    pthread_mutex_lock(&m->readers_lock);
    for (meta_conn **p = &m->readers; *p != NULL; p = &(*p)->next) {
        if (*p == c) {
            *p = c->next;
            break;
        }
    }
    pthread_mutex_unlock(&m->readers_lock);
    meta_conn_close(c);
}

tarn_err meta_readers_init(tarn_meta *m)
{
    if (pthread_mutex_init(&m->readers_lock, NULL) != 0)
        return TARN_E_NO_MEMORY;
    if (pthread_key_create(&m->reader_key, reader_drop) != 0) {
        pthread_mutex_destroy(&m->readers_lock);
        return TARN_E_NO_MEMORY;
    }
    m->reader_key_made = true;
    return TARN_OK;
}

void meta_readers_close(tarn_meta *m)
{
    if (!m->reader_key_made)
        return;
    pthread_key_delete(m->reader_key);
    while (m->readers != NULL) {
        meta_conn *c = m->readers;
        m->readers = c->next;
        meta_conn_close(c);
    }
    pthread_mutex_destroy(&m->readers_lock);
    m->reader_key_made = false;
}

tarn_err meta_conn_for(tarn_meta *m, tarn_meta_tx *tx, meta_conn **out)
{
    if (tx != NULL) {
        *out = tx->c;
        return TARN_OK;
    }
    meta_conn *c = pthread_getspecific(m->reader_key);
    if (c == NULL) {
        tarn_err err = meta_conn_open(m, false, &c);
        if (err != TARN_OK)
            return err;
        if (pthread_setspecific(m->reader_key, c) != 0) {
            meta_conn_close(c);
            return TARN_E_NO_MEMORY;
        }
        pthread_mutex_lock(&m->readers_lock);
        c->next = m->readers;
        m->readers = c;
        pthread_mutex_unlock(&m->readers_lock);
    }
    *out = c;
    return TARN_OK;
}

/* ------------------------------------------------------------------ statements */
static void note(meta_q *q, int rc)
{
    if (q->rc == SQLITE_OK)
        q->rc = rc;
}

tarn_err meta_q_begin(meta_q *q, meta_conn *c, meta_sql id)
{
    *q = (meta_q){.c = c, .id = id};
    q->temp = c->in_use[id];
    if (!q->temp && c->stmts[id] != NULL) {
        q->s = c->stmts[id];
        c->in_use[id] = true;
        return TARN_OK;
    }
    q->rc = sqlite3_prepare_v3(c->db, SQL_TEXT[id], -1, q->temp ? 0 : SQLITE_PREPARE_PERSISTENT, &q->s, NULL);
    if (q->rc == SQLITE_OK && !q->temp) {
        c->stmts[id] = q->s;
        c->in_use[id] = true;
    }
    return meta_err(q->rc);
}

void meta_q_i64(meta_q *q, int64_t v)
{
    note(q, sqlite3_bind_int64(q->s, ++q->n, v));
}

void meta_q_u64(meta_q *q, uint64_t v)
{
    meta_q_i64(q, (int64_t)v);
}

void meta_q_blob(meta_q *q, tarn_str s)
{
    note(q, sqlite3_bind_blob64(q->s, ++q->n, s.n > 0 ? s.p : "", s.n, SQLITE_STATIC));
}

void meta_q_text(meta_q *q, tarn_str s)
{
    note(q, sqlite3_bind_text64(q->s, ++q->n, s.n > 0 ? s.p : "", s.n, SQLITE_STATIC, SQLITE_UTF8));
}

void meta_q_null(meta_q *q)
{
    note(q, sqlite3_bind_null(q->s, ++q->n));
}

tarn_err meta_q_step(meta_q *q, bool *row)
{
    *row = false;
    if (q->rc == SQLITE_OK) {
        int rc = sqlite3_step(q->s);
        if (rc == SQLITE_ROW)
            *row = true;
        else if (rc != SQLITE_DONE)
            q->rc = rc;
    }
    if (q->rc != SQLITE_OK && meta_err(q->rc) != TARN_E_CONFLICT)
        tarn_log(TARN_LOG_ERROR, "metadata statement failed", "error", sqlite3_errmsg(q->c->db), NULL);
    return meta_err(q->rc);
}

void meta_q_end(meta_q *q)
{
    if (q->s == NULL)
        return;
    if (q->temp) {
        (void)sqlite3_finalize(q->s);
    } else {
        (void)sqlite3_reset(q->s);
        q->c->in_use[q->id] = false;
    }
    q->s = NULL;
}

tarn_err meta_q_run(meta_q *q, uint64_t *changes)
{
    bool row;
    tarn_err err = meta_q_step(q, &row);

    TARN_ASSERT(!row);
    if (err == TARN_OK && changes != NULL)
        *changes = (uint64_t)sqlite3_changes64(q->c->db);
    meta_q_end(q);
    return err;
}

tarn_err meta_q_read(meta_q *q, tarn_meta *m, tarn_meta_tx *tx, meta_sql id)
{
    meta_conn *c;
    tarn_err err = meta_conn_for(m, tx, &c);

    return err != TARN_OK ? err : meta_q_begin(q, c, id);
}

tarn_err meta_q_one_text(meta_q *q, tarn_arena *a, tarn_str *out)
{
    bool row;
    tarn_str value = TARN_STR_NULL;
    tarn_err err = meta_q_step(q, &row);

    if (err == TARN_OK && !row)
        err = TARN_E_NOT_FOUND;
    if (err == TARN_OK) {
        value = meta_col_str(q, 0);
        err = meta_keep(a, (tarn_str *const[]){&value}, 1);
    }
    meta_q_end(q);
    if (err == TARN_OK)
        *out = value;
    return err;
}

tarn_err meta_q_one_bool(meta_q *q, bool *out)
{
    bool row;
    tarn_err err = meta_q_step(q, &row);

    if (err == TARN_OK)
        *out = row && meta_col_u64(q, 0) != 0;
    meta_q_end(q);
    return err;
}

tarn_err meta_exec(meta_conn *c, meta_sql id)
{
    meta_q q;
    tarn_err err = meta_q_begin(&q, c, id);

    return err != TARN_OK ? err : meta_q_run(&q, NULL);
}

/* ------------------------------------------------------------------ columns */
int64_t meta_col_i64(const meta_q *q, int i)
{
    return sqlite3_column_int64(q->s, i);
}

uint64_t meta_col_u64(const meta_q *q, int i)
{
    return (uint64_t)sqlite3_column_int64(q->s, i);
}

uint32_t meta_col_u32(const meta_q *q, int i)
{
    return (uint32_t)sqlite3_column_int64(q->s, i);
}

tarn_str meta_col_str(const meta_q *q, int i)
{
    const void *p = sqlite3_column_blob(q->s, i); /* for TEXT the same bytes: the database is UTF-8 */
    int n = sqlite3_column_bytes(q->s, i);

    return p == NULL || n <= 0 ? TARN_STR_NULL : (tarn_str){p, (size_t)n};
}

tarn_err meta_keep(tarn_arena *a, tarn_str *const *slices, size_t n)
{
    size_t total = 0;

    for (size_t i = 0; i < n; i++)
        total += slices[i]->n;
    if (total == 0)
        return TARN_OK;
    char *p = tarn_arena_alloc(a, total);
    if (p == NULL)
        return TARN_E_NO_MEMORY;
    for (size_t i = 0; i < n; i++) {
        if (slices[i]->n == 0)
            continue;
        memcpy(p, slices[i]->p, slices[i]->n);
        slices[i]->p = p;
        p += slices[i]->n;
    }
    return TARN_OK;
}

/* ------------------------------------------------------------------ bounds of key ranges */
bool meta_prefix_end(tarn_str s, uint8_t *mem, tarn_str *out)
{
    size_t n = s.n;

    while (n > 0 && (uint8_t)s.p[n - 1] == 0xff)
        n--;
    if (n == 0)
        return false;
    memcpy(mem, s.p, n);
    mem[n - 1]++;
    *out = (tarn_str){(const char *)mem, n};
    return true;
}

tarn_str meta_key_end(void)
{
    static const uint8_t end[TARN_KEY_BYTES_MAX + 1] = {[0 ... TARN_KEY_BYTES_MAX] = 0xff};

    return (tarn_str){(const char *)end, sizeof(end)};
}
