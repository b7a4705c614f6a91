/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files share that check, heal, scrub, list and rebuild: check.c (is a version whole?), walk.c (all versions from a
 * place on), task.c (heal and scrub as long work with progress).
 */
#ifndef TARN_OBJECT_UPKEEP_H
#define TARN_OBJECT_UPKEEP_H

#include "private.h"

/* ------------------------------------------------------------------ checking */
typedef struct obj_check {
    /* Called after each block (and each record's ends) with the bytes read; false ends the check with CANCELED. May park. */
    bool (*step)(void *ctx, uint64_t bytes);
    void *ctx;
    /* out, added to */
    uint64_t bytes;
    uint64_t damaged_bytes; /* of the records that are missing or corrupt */
    uint32_t blobs;
    uint32_t missing;     /* shards that are not there, or that the row says were not written */
    uint32_t corrupt;     /* shards with a block, header or trailer that is wrong */
    uint32_t unreachable; /* shards on drives that are out */
    uint32_t lost;        /* blobs of which too few good shards are left to rebuild the rest */
    uint32_t unreadable;  /* blobs that have too few drives at present */
} obj_check;
/* Reads every shard of a blob: header, blocks, trailer. Nothing is changed. */
tarn_err obj_check_blob(tarn_store *s, const obj_blob *b, obj_check *c);
/* All blobs of a version, pinned; inline bytes: are they there and as long as the row says? A version that is gone: NO_SUCH_VERSION. */
tarn_err obj_check_version(tarn_store *s, const tarn_version_row *row, obj_check *c);
/* The parts of an upload. */
tarn_err obj_check_upload(tarn_store *s, uint64_t upload_id, obj_check *c);
bool obj_check_clean(const obj_check *c); /* nothing missing, corrupt or lost (drives that are out don't count) */

/* ------------------------------------------------------------------ backups of the metadata (backup.c) */
bool obj_backup_name(const char *name, uint64_t *ms); /* of a finished one */
void obj_backup_main(void *arg);                      /* the fiber */

/* ------------------------------------------------------------------ compaction (compact.c) */
tarn_err obj_compact_pass(tarn_store *s, obj_stop_fn stop);

/* ------------------------------------------------------------------ walking */
typedef struct obj_walk_pos {
    char bucket[TARN_BUCKET_NAME_BYTES_MAX + 1];
    size_t bucket_n; /* 0: at the beginning */
    char key[TARN_KEY_BYTES_MAX + 1];
    size_t key_n;
    uint64_t seq; /* the version of key that was the last one; 0 with key_n == 0: the bucket's beginning */
} obj_walk_pos;
typedef struct obj_walk {
    tarn_store *s;
    tarn_str bucket, prefix; /* bucket empty: all of them */
    obj_walk_pos pos;        /* in: where to go on; kept up to date before each call's end */
    /* The row lives during the call, which may park. An error ends the walk. */
    tarn_err (*fn)(void *ctx, const tarn_bucket_row *bucket, const tarn_version_row *row);
    void *ctx;
} obj_walk;
tarn_err obj_walk_run(obj_walk *w);

/* A page of versions with all columns, kept in the page's own arena until the next one is read (scan.c). */
#define OBJ_PAGE_ROWS 128
typedef struct obj_version_page {
    tarn_arena *arena;
    tarn_version_row rows[OBJ_PAGE_ROWS];
    size_t n; /* 0: there are no more */
    tarn_err err;
} obj_version_page;
obj_version_page *obj_version_page_new(void); /* NULL: no memory */
void obj_version_page_free(obj_version_page *p);
/* from tells bucket, prefix, after and after_seq. */
tarn_err obj_version_page_read(tarn_store *s, const tarn_list_query *from, obj_version_page *p);
bool obj_no_prefix(void *ctx, tarn_str prefix); /* for a sink of a listing without a delimiter */
/* How many versions the walk would see. May park. */
tarn_err obj_walk_count(tarn_store *s, tarn_str bucket, tarn_str prefix, uint64_t *out);

/* A line for the person who does offline work (fsck.c). */
void obj_say(const tarn_offline *to, const char *fmt, ...) TARN_PRINTF(2, 3);

/* ------------------------------------------------------------------ opening in steps (store.c), for a rebuild */
/* Without meta: drives alone; nobody may do more than read records then. */
tarn_err obj_store_open(const tarn_store_options *opt, bool with_meta, tarn_store **out, tarn_arena *arena, tarn_str *reason);
/* The database on the store's drives; restore not NULL: with the content of that backup. */
tarn_err obj_store_meta(tarn_store *s, bool inline_committer, const char *restore, tarn_fs *restore_fs);

/* ------------------------------------------------------------------ tasks */
typedef struct obj_tasks obj_tasks;
tarn_err obj_tasks_new(tarn_store *s, const tarn_store_options *opt); /* s->tasks */
void obj_tasks_free(tarn_store *s);
void obj_heal_main(void *arg); /* the fibers: arg is the store */
void obj_scrub_main(void *arg);
void obj_fill_main(void *arg);
void obj_watch_main(void *arg); /* watch.c */

#endif
