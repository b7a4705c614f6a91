/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The store: opening, closing, and the two doors to the committer.
 *
 * Order of life: drives (copies, VFS) → writer connection → schema → committer; closing goes the other way round. When the
 * store is being closed no thread may read any more: the readers' connections are closed from here.
 */
#include "meta_internal.h"
#include "vfs.h"

static pthread_once_t sqlite_once = PTHREAD_ONCE_INIT;

/* Before SQLite is initialised. Where somebody has done that already it keeps its own settings, which are slower. */
static void sqlite_configure(void)
{
    (void)sqlite3_config(SQLITE_CONFIG_MULTITHREAD);
    (void)sqlite3_config(SQLITE_CONFIG_MEMSTATUS, 0);
    (void)sqlite3_initialize();
}

static tarn_err options_check(const tarn_meta_options *opt)
{
    if (opt->fs == NULL || opt->dirs == NULL || opt->dirs_n < 1 || opt->dirs_n > TARN_META_DRIVES_MAX)
        return TARN_E_INVALID;
    if (opt->write_quorum < 1 || opt->write_quorum > TARN_META_DRIVES_MAX)
        return TARN_E_INVALID;
    return TARN_OK;
}

static tarn_err database_open(tarn_meta *m, bool fresh)
{
    tarn_err err = meta_conn_open(m, true, &m->writer);

    if (err == TARN_OK && fresh)
        err = meta_schema_create(m->writer);
    if (err == TARN_OK)
        err = meta_schema_open(m->writer);
    /* After a crash this brings all copies to the same content: see copies.c. On full drives it has to wait: the log, which is
     * the same in all copies, stays in use, so that what is there can be read, and deleted. */
    if (err == TARN_OK)
        err = meta_err(sqlite3_wal_checkpoint_v2(m->writer->db, "main", SQLITE_CHECKPOINT_TRUNCATE, NULL, NULL));
    if (err == TARN_E_DISK_FULL && !fresh) {
        tarn_log(TARN_LOG_WARN, "no space to tidy the metadata up", NULL);
        err = TARN_OK;
    }
    if (err == TARN_OK && fresh)
        err = meta_vfs_in_use(m->vfs);
    return err;
}

tarn_err tarn_meta_open(const tarn_meta_options *opt, tarn_meta **out)
{
    bool fresh = false;
    tarn_err err = options_check(opt);

    if (err != TARN_OK)
        return err;
    (void)pthread_once(&sqlite_once, sqlite_configure);
    tarn_meta *m = tarn_calloc(1, sizeof(*m));
    if (m == NULL)
        return TARN_E_NO_MEMORY;
    m->cache_bytes = opt->cache_bytes;
    m->plan = META_CHECKPOINT_PLAN;
    m->queue_max = TARN_META_QUEUE_MAX;
    atomic_store(&m->bucket_changes, 1);
    /* Too few folders to write: what is there is opened and read, and nothing can be committed. The copies are still levelled,
     * which changes no content. */
    m->read_only = opt->write_quorum > opt->dirs_n;
    err = meta_readers_init(m);
    if (err == TARN_OK)
        err = meta_vfs_open(opt, &m->vfs, &fresh);
    if (err == TARN_OK && fresh && m->read_only)
        err = TARN_E_QUORUM_WRITE;
    if (err == TARN_OK)
        err = database_open(m, fresh);
    if (err == TARN_OK)
        err = meta_committer_start(m, m->writer, opt->inline_committer, &m->committer);
    if (err != TARN_OK) {
        tarn_meta_close(m);
        return err;
    }
    *out = m;
    return TARN_OK;
}

void tarn_meta_close(tarn_meta *m)
{
    if (m == NULL)
        return;
    bool clean = m->committer != NULL;
    meta_committer_stop(m->committer);
    meta_readers_close(m);
    if (clean)
        clean = sqlite3_wal_checkpoint_v2(m->writer->db, "main", SQLITE_CHECKPOINT_TRUNCATE, NULL, NULL) == SQLITE_OK;
    meta_conn_close(m->writer);
    meta_vfs_close(m->vfs, clean);
    tarn_free(m);
}

size_t tarn_meta_copies_good(const tarn_meta *m)
{
    return meta_vfs_copies_good(m->vfs);
}

tarn_err tarn_meta_commit(tarn_meta *m, tarn_meta_fn fn, void *arg)
{
    if (m->read_only)
        return TARN_E_QUORUM_WRITE;
    return meta_committer_commit(m->committer, fn, arg);
}

tarn_err tarn_meta_checkpoint(tarn_meta *m)
{
    return meta_committer_checkpoint(m->committer);
}
