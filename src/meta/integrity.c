/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Is the database whole? For offline checks: the pages of one copy by their checksums, and what SQLite itself finds in the
 * open database. Nothing is changed. Threads: the caller's; nothing parks.
 */
#include "page.h"
#include "vfs.h"

#include <errno.h>
#include <fcntl.h>

#define INTEGRITY_CHUNK_BYTES (1024 * 1024)

tarn_err tarn_meta_copy_check(tarn_fs *fs, const char *dir, uint64_t *pages, uint64_t *bad)
{
    char mem[TARN_PATH_BYTES_MAX];
    tarn_sb b;
    tarn_file *f = NULL;
    uint8_t *buf = tarn_malloc(INTEGRITY_CHUNK_BYTES);
    int64_t got = -ENOMEM;

    *pages = *bad = 0;
    tarn_sb_init_fixed(&b, mem, sizeof(mem));
    tarn_sb_fmt(&b, "%s/%s", dir, META_VFS_DB_NAME);
    if (buf != NULL)
        got = b.failed ? -ENAMETOOLONG : tarn_file_open_sync(fs, mem, O_RDONLY | O_CLOEXEC, 0, &f);
    for (uint64_t off = 0; got >= 0; off += INTEGRITY_CHUNK_BYTES) {
        got = tarn_file_pread_sync(f, buf, INTEGRITY_CHUNK_BYTES, off);
        for (int64_t at = 0; at + META_PAGE_BYTES <= got; at += META_PAGE_BYTES) {
            *pages += 1;
            *bad += meta_page_check(buf + at, META_PAGE_BYTES, off + (uint64_t)at) ? 0 : 1;
        }
        if (got < INTEGRITY_CHUNK_BYTES)
            break;
    }
    tarn_file_unref(f);
    tarn_free(buf);
    return got < 0 ? tarn_err_from_errno((int)-got) : TARN_OK;
}

/* SQLite lists a page that memory was short for among its findings. */
static bool short_of_memory(tarn_str text)
{
    static const char words[] = "error code=7"; /* SQLITE_NOMEM; codes of more digits are others */
    ptrdiff_t at = tarn_str_find(text, tarn_str_of(words));
    tarn_str rest = at < 0 ? TARN_STR("0") : tarn_str_sub(text, (size_t)at + sizeof(words) - 1, text.n);

    return rest.n == 0 || rest.p[0] < '0' || rest.p[0] > '9';
}

tarn_err tarn_meta_integrity(tarn_meta *m, void (*say)(void *ctx, tarn_str problem), void *ctx, uint64_t *problems)
{
    meta_conn *c = NULL;
    meta_q q;
    bool row = false;
    tarn_err err = meta_conn_open(m, false, &c);

    *problems = 0;
    if (err != TARN_OK)
        return err;
    err = meta_q_begin(&q, c, META_SQL_INTEGRITY);
    while (err == TARN_OK && (err = meta_q_step(&q, &row)) == TARN_OK && row) {
        tarn_str text = meta_col_str(&q, 0);
        if (tarn_str_eqc(text, "ok"))
            continue;
        if (short_of_memory(text)) { /* it tells nothing of the database, nor does what follows from it */
            err = TARN_E_NO_MEMORY;
            break;
        }
        *problems += 1;
        say(ctx, text);
    }
    meta_q_end(&q);
    meta_conn_close(c);
    return err;
}

tarn_err tarn_meta_data_held(tarn_meta *m, uint64_t data_id, bool *out)
{
    meta_q q;
    tarn_err err = meta_q_read(&q, m, NULL, META_SQL_DATA_HELD);

    if (err != TARN_OK)
        return err;
    meta_q_u64(&q, data_id);
    return meta_q_one_bool(&q, out);
}
