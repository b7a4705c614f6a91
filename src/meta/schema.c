/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Creates the schema and recognises it. The file's application_id says that it is ours, user_version which schema it has;
 * a newer one than this program knows is refused, never guessed at. An older one gets what it lacks, in one transaction a
 * version; a new database goes through the same steps.
 *
 * Runs on the thread that opens the store, before the committer starts.
 */
#include "meta_internal.h"
#include "schema.h"
#include "vfs.h"

#define APPLICATION_ID 0x7461726e /* "tarn" */

static tarn_err run(meta_conn *c, const char *sql)
{
    int rc = sqlite3_exec(c->db, sql, NULL, NULL, NULL);

    if (rc != SQLITE_OK)
        tarn_log(TARN_LOG_ERROR, "metadata schema statement failed", "error", sqlite3_errmsg(c->db), "statement", sql, NULL);
    return meta_err(rc);
}

static tarn_err pragma_read(meta_conn *c, const char *sql, int64_t *out)
{
    sqlite3_stmt *s = NULL;
    int rc = sqlite3_prepare_v2(c->db, sql, -1, &s, NULL);

    if (rc == SQLITE_OK) {
        rc = sqlite3_step(s);
        if (rc == SQLITE_ROW)
            *out = sqlite3_column_int64(s, 0);
    }
    (void)sqlite3_finalize(s);
    if (rc == SQLITE_ROW)
        return TARN_OK;
    return rc == SQLITE_DONE ? TARN_E_FORMAT : meta_err(rc);
}

/* Page size, reserved bytes and the WAL mode are facts of the file: set before its first page is written. */
static tarn_err file_prepare(meta_conn *c)
{
    tarn_sb b;
    char mem[256];
    int reserved = META_PAGE_RESERVED_BYTES;

    tarn_sb_init_fixed(&b, mem, sizeof(mem));
    tarn_sb_fmt(&b, "PRAGMA journal_mode=MEMORY;PRAGMA page_size=%d;PRAGMA auto_vacuum=NONE;PRAGMA encoding='UTF-8';", META_PAGE_BYTES);
    TARN_ASSERT(!b.failed);
    int rc = sqlite3_file_control(c->db, "main", SQLITE_FCNTL_RESERVE_BYTES, &reserved);
    if (rc != SQLITE_OK)
        return meta_err(rc);
    tarn_err err = run(c, b.p);
    if (err == TARN_OK)
        err = run(c, "PRAGMA journal_mode=WAL");
    return err;
}

/* What version `to` adds to the one before it, and the note that it is there, in one transaction. */
static tarn_err step(meta_conn *c, int to)
{
    static const struct {
        const char *const *statements;
        size_t n;
    } steps[] = {
        {META_SCHEMA, TARN_ARRAY_LEN(META_SCHEMA)},
        {META_SCHEMA_2, TARN_ARRAY_LEN(META_SCHEMA_2)},
    };
    tarn_sb b;
    char mem[128];

    _Static_assert(TARN_ARRAY_LEN(steps) == META_SCHEMA_VERSION, "a step for each version");
    tarn_err err = run(c, "BEGIN IMMEDIATE");
    if (err != TARN_OK)
        return err;
    for (size_t i = 0; i < steps[to - 1].n && err == TARN_OK; i++)
        err = run(c, steps[to - 1].statements[i]);
    tarn_sb_init_fixed(&b, mem, sizeof(mem));
    tarn_sb_fmt(&b, "PRAGMA application_id=%d;PRAGMA user_version=%d;", APPLICATION_ID, to);
    TARN_ASSERT(!b.failed);
    if (err == TARN_OK)
        err = run(c, b.p);
    if (err == TARN_OK)
        err = run(c, "COMMIT");
    if (err != TARN_OK && sqlite3_get_autocommit(c->db) == 0)
        (void)run(c, "ROLLBACK");
    return err;
}

tarn_err meta_schema_create(meta_conn *c)
{
    tarn_err err = file_prepare(c);

    for (int to = 1; to <= META_SCHEMA_VERSION && err == TARN_OK; to++)
        err = step(c, to);
    return err;
}

tarn_err meta_schema_open(meta_conn *c)
{
    int64_t app = 0, version = 0;
    tarn_err err = pragma_read(c, "PRAGMA application_id", &app);

    if (err == TARN_OK)
        err = pragma_read(c, "PRAGMA user_version", &version);
    if (err != TARN_OK)
        return err;
    if (app != APPLICATION_ID) {
        tarn_log(TARN_LOG_ERROR, "metadata database is not one of tarn's", NULL);
        return TARN_E_FORMAT;
    }
    if (version < 1 || version > META_SCHEMA_VERSION) {
        tarn_logf(TARN_LOG_ERROR, "metadata database has another schema", "found %lld, this program knows up to %d: use the newer program",
                  (long long)version, META_SCHEMA_VERSION);
        return TARN_E_FORMAT;
    }
    for (int to = (int)version + 1; to <= META_SCHEMA_VERSION && err == TARN_OK; to++) {
        tarn_logf(TARN_LOG_INFO, "metadata schema is brought up to date", "version %d", to);
        err = step(c, to);
    }
    return err;
}
