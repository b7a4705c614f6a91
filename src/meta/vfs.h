/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The way of SQLite to the drives: mirror.c keeps the copies, copies.c opens and repairs them at the start, generation.c
 * keeps their side records, vfs.c is SQLite's VFS on top. Private to meta.
 */
#ifndef TARN_META_VFS_H
#define TARN_META_VFS_H

#include <pthread.h>
#include <sqlite3.h>
#include <stdatomic.h>

#include "tarn/meta.h"

#define META_VFS_DB_NAME "tarn.db"
#define META_VFS_WAL_NAME "tarn.db-wal"
#define META_VFS_GEN_NAME "tarn.gen"
#define META_VFS_LOCK_NAME "tarn.lock"
#define META_VFS_NAME_BYTES 32
#define META_WRITE_BUFFER_BYTES (1024 * 1024) /* writes collected before they go to the drives */
#define META_SHM_REGIONS_MAX 1024             /* of 32 KiB: an index of four million WAL frames */
#define META_DEPLOYMENT_BYTES 16

typedef enum meta_which { META_DB, META_WAL, META_WHICH_COUNT } meta_which;

/* ------------------------------------------------------------------ generation records */
typedef enum meta_gen_state {                    /* on disk */
                              META_GEN_NONE = 0, /* no record */
                              META_GEN_CREATING = 1,
                              META_GEN_REBUILDING = 2, /* content must not be used */
                              META_GEN_DIRTY = 3,      /* in use, or left by a crash */
                              META_GEN_CLEAN = 4,
                              META_GEN_UNFINISHED = 5 /* as DIRTY, but an index is being made again in it: it lacks what is there */
} meta_gen_state;
typedef struct meta_gen {
    meta_gen_state state;
    uint8_t deployment[META_DEPLOYMENT_BYTES];
    uint64_t generation; /* the higher, the newer the content */
    uint64_t counter;    /* writes of this record: says which of its two slots is newer */
    uint32_t copies_n;
    uint32_t write_quorum;
    uint16_t needed;   /* copies that had to get this generation before anything went on; 0: not known */
    uint32_t log_over; /* the log whose pages are all in the database, by meta_log_id(): nothing of it is to be applied; 0: none */
} meta_gen;
/* Reads the record; state NONE when there is no valid one. Negative errno when the file cannot be read. */
int meta_gen_read(tarn_file *f, meta_gen *out);
/* Writes the other slot (counter + 1) and syncs. */
int meta_gen_write(tarn_file *f, meta_gen *g);

/* ------------------------------------------------------------------ copies */
typedef struct meta_copy {
    size_t index; /* in tarn_meta_options.dirs */
    char *dir;
    atomic_bool good;                   /* takes part; once false never true again */
    atomic_uint wrong;                  /* reads of it that were not what had been written; from META_WRONG_READS_MAX on it is asked last */
    tarn_file *files[META_WHICH_COUNT]; /* open until the store closes, whatever `good` says */
    tarn_file *gen_file;
    tarn_file *lock_file;
    meta_gen gen;
    uint64_t db_bytes; /* at the start: of the database's file; 0: there is none */
    bool behind;       /* at the start: it had missed commits */
} meta_copy;

/* One thing that is done to every copy. */
typedef struct meta_job {
    meta_which which;
    bool truncate;   /* to off */
    bool allocate;   /* n bytes from off */
    const void *buf; /* n bytes at off; NULL: nothing to write */
    size_t n;
    uint64_t off;
    const struct meta_page_run *runs; /* instead: runs_n pieces */
    size_t runs_n;
    bool sync;
} meta_job;
typedef struct meta_page_run {
    const uint8_t *p;
    size_t n;
    uint64_t off;
} meta_page_run;
typedef struct meta_job_result {
    int error;    /* negative errno or 0 */
    bool in_sync; /* the sync failed: what was written before is lost as well */
} meta_job_result;

typedef struct meta_helper meta_helper; /* a thread that works on one copy */

typedef struct meta_mirror {
    tarn_fs *fs;
    meta_copy *copies;
    atomic_size_t n;        /* grows when a copy joins (join.c); slots are never used again */
    size_t write_quorum;    /* what must be left; at most n */
    uint32_t record_quorum; /* what the records say: the store's, also where fewer drives are there (then nothing is committed) */
    uint32_t record_copies; /* drives of the store: the most that were ever there together */
    uint64_t generation;
    uint64_t complete_from; /* at the start: copies from this generation on have everything that was acknowledged */
    meta_gen_state state;   /* as the records were last written */
    uint32_t log_over;      /* what they say of the log */
    uint8_t deployment[META_DEPLOYMENT_BYTES];
    atomic_size_t good_n;
    atomic_size_t read_from;          /* index of the copy that reads are tried on first */
    atomic_bool quorum_lost;          /* sticky */
    meta_helper *helpers;             /* n, the first unused */
    meta_helper *syncers;             /* n: the syncs of the database in the background */
    bool sync_pending;                /* a background sync was begun and not yet collected */
    struct meta_frames *frames;       /* what is read of the log must be this; NULL: not known (vfs.c) */
    struct meta_pages *pages;         /* and of the database */
    bool unfinished;                  /* an index is being made again: records say UNFINISHED instead of DIRTY and CLEAN */
    bool one_thread;                  /* no helpers: one copy after the other, on the writer's thread (simulation) */
    meta_copy *joining;               /* takes what is written to the database, and does not count yet; the writer's */
    int join_error;                   /* negative errno: it is of no use any more */
    uint64_t bytes[META_WHICH_COUNT]; /* of each file, when the copies have been opened */
    void (*on_drive_failed)(void *ctx, size_t dir_index, int errno_value);
    void *ctx;
} meta_mirror;

/* Runs the job on all good copies in parallel; copies that fail are taken out. 0 or a negative errno: -ENOSPC when the
 * drives are full (nobody was taken out), -EIO when too few copies are left. One thread at a time. */
int meta_mirror_run(meta_mirror *v, const meta_job *job);
/* From the first copy that can, those that were wrong too often after the others. `check` (may be NULL) says whether the bytes are right; a
 * copy that ends before n bytes, or has an empty page of the database there, is believed only when none has more. Count of bytes or
 * negative errno (-EBADMSG: no copy passed the check). Any thread. */
int64_t meta_mirror_read(meta_mirror *v, meta_which which, void *buf, size_t n, uint64_t off,
                         bool (*check)(const void *buf, size_t n, uint64_t off));
/* Syncs the database of all good copies in the background; one at a time. The rest is the writer's: poll says whether it is
 * still running (and collects it when not), end waits. Copies that fail are taken out; 0 or -EIO as meta_mirror_run. */
void meta_mirror_sync_begin(meta_mirror *v);
bool meta_mirror_sync_running(meta_mirror *v, int *result);
int meta_mirror_sync_end(meta_mirror *v);
tarn_err meta_mirror_start(meta_mirror *v); /* the helper threads */
void meta_mirror_stop(meta_mirror *v);
/* A copy whose folder is gone leaves; as meta_mirror_run. */
int meta_mirror_drop(meta_mirror *v, size_t i);
/* A copy that has everything is one of us from now on. On the writer's thread. */
tarn_err meta_mirror_add(meta_mirror *v, const meta_copy *c);
/* Writes generation (+1 when `next`) and state to all good copies. As meta_mirror_run. */
int meta_mirror_mark(meta_mirror *v, meta_gen_state state, bool next);

/* ------------------------------------------------------------------ start */
/* Opens and locks the copies, chooses the newest, brings the others up to it. *fresh: no copy has a database. */
tarn_err meta_copies_open(meta_mirror *v, const tarn_meta_options *opt, bool *fresh);
void meta_copies_close(meta_mirror *v);
int meta_copy_open_files(tarn_fs *fs, meta_copy *c); /* and locks them */
void meta_copy_close_files(meta_copy *c);

/* ------------------------------------------------------------------ the VFS */
typedef struct meta_vfs meta_vfs;
tarn_err meta_vfs_open(const tarn_meta_options *opt, meta_vfs **out, bool *fresh);
const char *meta_vfs_name(const meta_vfs *v);
bool meta_vfs_quorum_lost(const meta_vfs *v);
size_t meta_vfs_copies_good(const meta_vfs *v);
meta_mirror *meta_vfs_mirror(meta_vfs *v);
/* Frames of the log that SQLite reads: those of all transactions that were committed since it started over. The writer's. */
uint64_t meta_vfs_log_frames(const meta_vfs *v);
/* The writer's transaction has been rolled back: what was lost of the log while reading it is not needed any more. */
void meta_vfs_rolled_back(meta_vfs *v);
/* From here on a checkpoint's sync of the database may run on in the background (false: it is waited for). */
void meta_vfs_sync_defer(meta_vfs *v, bool defer);
bool meta_vfs_sync_running(meta_vfs *v);
/* The database has been opened and checkpointed, or created: copies are the same and in use from here on. */
tarn_err meta_vfs_in_use(meta_vfs *v);
/* All connections are closed. clean: the last checkpoint succeeded. */
void meta_vfs_close(meta_vfs *v, bool clean);

#endif
