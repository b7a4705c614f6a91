/* SPDX-License-Identifier: Apache-2.0 */
/*
 * meta: the single truth about buckets, object versions, uploads and the catalog, in one SQLite database (WAL,
 * synchronous=FULL) that a VFS shim mirrors to all drives. Nobody else writes SQL.
 *
 * Writing: every change is a function that runs inside a transaction on the committer thread, the only connection that
 * writes or checkpoints (SQLite < 3.51.3 can corrupt a database otherwise). The committer drains its queue, runs each
 * function in a savepoint, commits and syncs all drives once, and then wakes all that waited (group commit).
 * Reading: each thread has a read-only connection; a read never parks, so no snapshot is held across a wait.
 *
 * Slices in rows that are read point into the caller's arena; rows that are written point wherever the caller likes.
 */
#ifndef TARN_META_H
#define TARN_META_H

#include "tarn/base.h"
#include "tarn/io.h"

/* ------------------------------------------------------------------ limits */
#define TARN_KEY_BYTES_MAX 1024
#define TARN_BUCKET_NAME_BYTES_MAX 63
#define TARN_BUCKET_CONFIG_BYTES_MAX (1024 * 1024)
#define TARN_ATTRS_BYTES_MAX (64 * 1024) /* packed attributes of an object */
#define TARN_LAYOUT_BYTES_MAX (8u * 1024 * 1024)
#define TARN_INLINE_BYTES_MAX (1024 * 1024) /* what a row of inline data may hold at the most */
#define TARN_PARTS_MAX 10000
#define TARN_NS_LEVELS_MAX 32
#define TARN_NS_PATH_BYTES_MAX 1024
#define TARN_CATALOG_NAME_BYTES_MAX 255
#define TARN_META_DRIVES_MAX 128  /* copies of the database */
#define TARN_META_QUEUE_MAX 65536 /* transactions waiting for the committer; past it SLOW_DOWN */

/* ------------------------------------------------------------------ life */
typedef struct tarn_meta tarn_meta;
typedef struct tarn_meta_options {
    tarn_fs *fs;
    const char *const *dirs; /* one folder per drive for the copies of the database; they exist */
    size_t dirs_n;           /* 1 … TARN_META_DRIVES_MAX */
    size_t write_quorum;     /* copies that must take a write and its sync; a copy that fails is taken out. With fewer dirs than
                              * that the store opens for reading only: every commit answers QUORUM_WRITE */
    uint64_t cache_bytes;    /* page cache of the committer; each reader has a quarter */
    bool must_exist;         /* there is data that a database belongs to: NOT_FOUND instead of a new one when no copy is there */
    bool unfinished;         /* an index is being made again: until tarn_meta_finish nobody else opens it (UNFINISHED). Also for
                              * tarn_meta_restore */
    bool inline_committer;   /* no thread of its own: tarn_meta_commit runs on the calling thread (unit tests, simulation) */
    /* A copy was taken out: called from any thread, once a drive. */
    void (*on_drive_failed)(void *ctx, size_t dir_index, int errno_value);
    void *ctx;
} tarn_meta_options;
/* Picks the newest intact copy, brings the others up to it, opens or creates the schema. */
tarn_err tarn_meta_open(const tarn_meta_options *opt, tarn_meta **out);
tarn_err tarn_meta_checkpoint(tarn_meta *m); /* all of the WAL into the database; from any thread */
void tarn_meta_close(tarn_meta *m);          /* waits for the committer, checkpoints */
size_t tarn_meta_copies_good(const tarn_meta *m);
/* Is that copy still written? It is not after a failure of its own: a full drive's goes out too, when the others suffice. */
bool tarn_meta_copy_good(const tarn_meta *m, size_t dir_index);
/* How often since the start a read of the copy was not what had been written there; it is then asked after the others. */
unsigned tarn_meta_copy_wrong(const tarn_meta *m, size_t dir_index);
/* Had the copy in opt.dirs[dir_index] missed commits when the store was opened (it has been brought up since)? */
bool tarn_meta_copy_behind(const tarn_meta *m, size_t dir_index);
/*
 * A further copy in an empty or outdated folder, while commits go on: from OK on it counts like the others, and
 * on_drive_failed names it by the number that tarn_meta_copies_n() was before the call. One at a time; not on the
 * committer's thread; takes as long as the database takes to be copied. LIMIT after TARN_META_DRIVES_MAX copies in all.
 */
tarn_err tarn_meta_copy_join(tarn_meta *m, const char *dir);
/* The folder is gone, though writing to what was open of it does not fail: the copy goes out. */
tarn_err tarn_meta_copy_drop(tarn_meta *m, size_t dir_index);
size_t tarn_meta_copies_n(const tarn_meta *m); /* that there ever were since the start */

/* ------------------------------------------------------------------ backups */
/*
 * A consistent copy of the database as one file of checked pages, while commits go on. Synced when it returns OK; the file is
 * not worth keeping otherwise. step (may be NULL) is called every megabyte: false ends it with CANCELED. Nothing parks: for
 * helper threads.
 */
tarn_err tarn_meta_backup(tarn_meta *m, tarn_fs *fs, const char *path, bool (*step)(void *ctx), void *ctx);
/* Is the file a whole backup? CORRUPT, FORMAT. */
tarn_err tarn_meta_backup_check(tarn_fs *fs, const char *path);
/* Puts a backup into all folders of opt, in the place of what is there. The store is not open, and numbers that were given out
 * since the backup must not be given again: see tarn_meta_tx_seq_skip. */
tarn_err tarn_meta_restore(const tarn_meta_options *opt, tarn_fs *fs, const char *path);
/* Opened with opt.unfinished: all is there that belongs there. From here on it is a database like any other. */
tarn_err tarn_meta_finish(tarn_meta *m);
/* Is the copy in this folder one that an unfinished rebuilding, or copying, has left? */
bool tarn_meta_copy_unfinished(tarn_fs *fs, const char *dir);

/* For offline checks: pages of the copy in a folder, and those whose checksum is wrong; what SQLite finds in the database. */
tarn_err tarn_meta_copy_check(tarn_fs *fs, const char *dir, uint64_t *pages, uint64_t *bad);
/* Compares every page of the database in all copies, and mends what is damaged, or was lost in silence, from the others. Commits go
 * on meanwhile; go_on (may be NULL) is called between steps: false ends it with CANCELED. */
typedef struct tarn_meta_scrub_counts {
    uint64_t pages;
    uint64_t damaged;   /* pages of copies that were not as they should be */
    uint64_t repaired;  /* of these */
    uint64_t undecided; /* pages where the copies differ and it can't be told which is right */
} tarn_meta_scrub_counts;
tarn_err tarn_meta_scrub(tarn_meta *m, bool repair, bool (*go_on)(void *ctx, uint64_t bytes), void *ctx, tarn_meta_scrub_counts *out);
tarn_err tarn_meta_integrity(tarn_meta *m, void (*say)(void *ctx, tarn_str problem), void *ctx, uint64_t *problems);

/* ------------------------------------------------------------------ transactions */
typedef struct tarn_meta_tx tarn_meta_tx;
/*
 * Runs fn inside a transaction and returns once it is durable on the quorum of drives. In a fiber it parks; in a plain
 * thread it waits. fn's error rolls back what this fn did, and is returned. fn runs on the committer thread while the
 * caller waits: it may use the caller's memory, must not park, and should take microseconds.
 */
typedef tarn_err (*tarn_meta_fn)(tarn_meta_tx *tx, void *arg);
tarn_err tarn_meta_commit(tarn_meta *m, tarn_meta_fn fn, void *arg);
/* The arena of the transaction: memory that fn's reads need; freed when the transaction has been answered. */
tarn_arena *tarn_meta_tx_arena(tarn_meta_tx *tx);
/* The next number of the store's one commit order: object versions, data ids, garbage ids. */
uint64_t tarn_meta_tx_seq(tarn_meta_tx *tx);
/* The next `by` numbers are left out. When the transaction fails the store has to be opened anew. */
tarn_err tarn_meta_tx_seq_skip(tarn_meta_tx *tx, uint64_t by);
int64_t tarn_meta_tx_now_ms(tarn_meta_tx *tx); /* wall clock at the start of the transaction, never backwards */
/*
 * Reads work on both: in a transaction pass its tx (it sees its own changes); elsewhere pass NULL: the calling thread's own
 * read-only connection is used.
 */

/* ------------------------------------------------------------------ key-value: facts of the deployment */
tarn_err tarn_meta_kv_get(tarn_meta *m, tarn_meta_tx *tx, const char *name, tarn_arena *a, tarn_str *out); /* NOT_FOUND */
tarn_err tarn_meta_kv_put(tarn_meta_tx *tx, const char *name, tarn_str value);

/* ------------------------------------------------------------------ buckets */
typedef enum tarn_versioning { TARN_VERSIONING_OFF, TARN_VERSIONING_ENABLED, TARN_VERSIONING_SUSPENDED } tarn_versioning;
typedef struct tarn_bucket_row {
    uint64_t id;
    tarn_str name;
    tarn_str owner; /* access key */
    int64_t created_ms;
    tarn_versioning versioning;
    bool object_lock; /* enabled at creation or later; implies versioning */
    bool warehouse;   /* registered with the catalog */
    tarn_str warehouse_uuid;
    int64_t warehouse_created_ms;
    tarn_str warehouse_properties; /* JSON text, "" = none; written by the catalog */
    uint64_t generation;           /* changes with every change of the row or of its configuration: a key for caches */
} tarn_bucket_row;
typedef enum tarn_bucket_config { /* numbers are on disk */
                                  TARN_BC_POLICY = 1,
                                  TARN_BC_LIFECYCLE = 2,
                                  TARN_BC_TAGGING = 3,
                                  TARN_BC_CORS = 4,
                                  TARN_BC_ENCRYPTION = 5,
                                  TARN_BC_OBJECT_LOCK = 6,
                                  TARN_BC_OWNERSHIP = 7,
                                  TARN_BC_PUBLIC_ACCESS_BLOCK = 8,
                                  TARN_BC_NOTIFICATION = 9,
                                  TARN_BC_LOGGING = 10,
                                  TARN_BC_WEBSITE = 11,
                                  TARN_BC_REPLICATION = 12,
                                  TARN_BC_ACCELERATE = 13,
                                  TARN_BC_REQUEST_PAYMENT = 14,
                                  TARN_BC_ACL = 15,
                                  TARN_BC_LOCATION = 16
} tarn_bucket_config;
tarn_err tarn_meta_bucket_get(tarn_meta *m, tarn_meta_tx *tx, tarn_str name, tarn_arena *a, tarn_bucket_row *out); /* NO_SUCH_BUCKET */
tarn_err tarn_meta_bucket_get_id(tarn_meta *m, tarn_meta_tx *tx, uint64_t id, tarn_arena *a, tarn_bucket_row *out);
/* In the order of names, from the first name > after; fn returns false to stop. owner empty: all. */
tarn_err tarn_meta_bucket_list(tarn_meta *m, tarn_meta_tx *tx, tarn_str after, tarn_str prefix, bool warehouses_only,
                               bool (*fn)(void *ctx, const tarn_bucket_row *row), void *ctx);
/* row->id is set on success. BUCKET_ALREADY_EXISTS when the name is taken (the caller tells whose it is). */
tarn_err tarn_meta_bucket_create(tarn_meta_tx *tx, tarn_bucket_row *row);
tarn_err tarn_meta_bucket_update(tarn_meta_tx *tx, const tarn_bucket_row *row); /* everything but id, name, created */
/* BUCKET_NOT_EMPTY while it has an object version, delete marker, upload, namespace or table. */
tarn_err tarn_meta_bucket_delete(tarn_meta_tx *tx, uint64_t bucket_id);
tarn_err tarn_meta_bucket_config_get(tarn_meta *m, tarn_meta_tx *tx, uint64_t bucket_id, tarn_bucket_config kind, tarn_arena *a,
                                     tarn_str *out); /* NOT_FOUND */
tarn_err tarn_meta_bucket_config_put(tarn_meta_tx *tx, uint64_t bucket_id, tarn_bucket_config kind, tarn_str body);
tarn_err tarn_meta_bucket_config_delete(tarn_meta_tx *tx, uint64_t bucket_id, tarn_bucket_config kind); /* fine when absent */

/* ------------------------------------------------------------------ object versions */
/*
 * One table holds the current version of each key, another the noncurrent ones; both carry the same columns. seq orders
 * the versions of a key, newest highest. A version id on the wire is made of seq and `nonce` (32 hex digits), so that a
 * version is found by its primary key; the null version has null_version set and is called "null".
 */
typedef enum tarn_retention { TARN_RETENTION_NONE, TARN_RETENTION_GOVERNANCE, TARN_RETENTION_COMPLIANCE } tarn_retention;
typedef struct tarn_version_row {
    uint64_t bucket_id;
    tarn_str key;
    uint64_t seq;
    uint64_t nonce;
    bool null_version;
    bool delete_marker;
    bool current; /* out only */
    uint64_t size;
    int64_t mtime_ms;
    tarn_str etag;    /* text without quotes: 32 hex digits, or …-N */
    uint64_t data_id; /* 0: no data outside the row (empty object, delete marker) */
    uint32_t parts_n; /* rows of the part table under data_id; 0: not made by multipart, layout is in this row */
    bool inline_data; /* the bytes are in the inline table under data_id */
    tarn_str layout;  /* packed by the object module: where the shards are and their checksums */
    tarn_str attrs;   /* packed by the object module: content type, user metadata, checksums, … */
    tarn_str tags;    /* packed; "" = none */
    uint32_t tags_n;
    tarn_retention retention;
    int64_t retain_until_ms;
    bool legal_hold;
} tarn_version_row;
/* The current version (which may be a delete marker): NO_SUCH_KEY when the key has none. */
tarn_err tarn_meta_object_get(tarn_meta *m, tarn_meta_tx *tx, uint64_t bucket_id, tarn_str key, tarn_arena *a, tarn_version_row *out);
/* A version by seq (nonce must match), or the null version: NO_SUCH_VERSION. */
tarn_err tarn_meta_version_get(tarn_meta *m, tarn_meta_tx *tx, uint64_t bucket_id, tarn_str key, bool null_version, uint64_t seq,
                               uint64_t nonce, tarn_arena *a, tarn_version_row *out);
/* Inserts row as the current version: the one that was current (if any) becomes noncurrent. row->seq must be new. */
tarn_err tarn_meta_version_insert(tarn_meta_tx *tx, const tarn_version_row *row);
/* Replaces the current row in place of the one that is there (which the caller has read and whose data it frees): the
 * unversioned overwrite, one statement. */
tarn_err tarn_meta_object_replace(tarn_meta_tx *tx, const tarn_version_row *row);
/* Removes one version; when it was current the newest noncurrent one becomes current. */
tarn_err tarn_meta_version_delete(tarn_meta_tx *tx, const tarn_version_row *row);
/* Rewrites tags, attrs, lock fields and layout of a version that is there (found by bucket, key, seq). */
tarn_err tarn_meta_version_update(tarn_meta_tx *tx, const tarn_version_row *row);

/* ------------------------------------------------------------------ listing */
/*
 * Keys in byte order. With a delimiter a common prefix is emitted once and skipped by a seek, never by a scan. The read is
 * cut into short transactions inside. The callbacks get rows whose slices live only during the call.
 * Order of emission is the order of keys and prefixes together. A callback returns false to stop.
 */
typedef struct tarn_list_query {
    uint64_t bucket_id;
    tarn_str prefix;
    tarn_str delimiter;   /* "" = none; may be longer than a byte */
    tarn_str after;       /* only keys and common prefixes > after */
    bool after_is_prefix; /* `after` is a common prefix that was emitted: everything under it is skipped */
    bool versions;        /* all versions, newest first within a key, delete markers too */
    uint64_t after_seq;   /* versions: within key == after, only seq < after_seq; 0 = the whole key is done */
    bool columns_all;     /* fill every column; else key, seq, nonce, flags, size, mtime, etag, attrs */
} tarn_list_query;
typedef struct tarn_list_sink {
    bool (*on_version)(void *ctx, const tarn_version_row *row);
    bool (*on_prefix)(void *ctx, tarn_str common_prefix);
    void *ctx;
} tarn_list_sink;
tarn_err tarn_meta_list(tarn_meta *m, const tarn_list_query *q, const tarn_list_sink *sink);

/* ------------------------------------------------------------------ data: inline bytes, parts, garbage */
tarn_err tarn_meta_inline_put(tarn_meta_tx *tx, uint64_t data_id, tarn_str bytes);
tarn_err tarn_meta_inline_get(tarn_meta *m, tarn_meta_tx *tx, uint64_t data_id, tarn_arena *a, tarn_str *out);
tarn_err tarn_meta_inline_delete(tarn_meta_tx *tx, uint64_t data_id);

typedef struct tarn_part_row {
    uint64_t data_id; /* the upload's, later the object's */
    uint32_t number;  /* 1 … TARN_PARTS_MAX */
    uint64_t size;
    int64_t mtime_ms;
    tarn_str etag;
    tarn_str attrs; /* packed: the part's checksums */
    tarn_str layout;
    uint64_t blob_id; /* != 0: the part's bytes are inline under this data id */
} tarn_part_row;
tarn_err tarn_meta_part_put(tarn_meta_tx *tx, const tarn_part_row *row); /* replaces; the caller frees the old one's data */
tarn_err tarn_meta_part_get(tarn_meta *m, tarn_meta_tx *tx, uint64_t data_id, uint32_t number, tarn_arena *a,
                            tarn_part_row *out); /* INVALID_PART */
tarn_err tarn_meta_part_delete(tarn_meta_tx *tx, uint64_t data_id, uint32_t number);
/* In the order of numbers, from the first number > after. columns_all false: without layout. */
tarn_err tarn_meta_part_list(tarn_meta *m, tarn_meta_tx *tx, uint64_t data_id, uint32_t after, bool columns_all,
                             bool (*fn)(void *ctx, const tarn_part_row *row), void *ctx);

typedef struct tarn_upload_row {
    uint64_t bucket_id;
    tarn_str key;
    uint64_t upload_id; /* = the data id of its parts; on the wire with `nonce`, 32 hex digits */
    uint64_t nonce;
    int64_t initiated_ms;
    tarn_str owner;
    tarn_str attrs; /* packed: what CreateMultipartUpload said */
} tarn_upload_row;
tarn_err tarn_meta_upload_create(tarn_meta_tx *tx, const tarn_upload_row *row);
tarn_err tarn_meta_upload_get(tarn_meta *m, tarn_meta_tx *tx, uint64_t bucket_id, tarn_str key, uint64_t upload_id, uint64_t nonce,
                              tarn_arena *a, tarn_upload_row *out);                         /* NO_SUCH_UPLOAD */
tarn_err tarn_meta_upload_delete(tarn_meta_tx *tx, uint64_t bucket_id, uint64_t upload_id); /* leaves the parts */
/* By key, then by upload id; from the first (key, id) > (after_key, after_id). */
tarn_err tarn_meta_upload_list(tarn_meta *m, uint64_t bucket_id, tarn_str prefix, tarn_str after_key, uint64_t after_id,
                               bool (*fn)(void *ctx, const tarn_upload_row *row), void *ctx);

/* Data that nothing refers to any more: written in the transaction that dropped the reference, freed later. */
typedef struct tarn_garbage_row {
    uint64_t id; /* set by put */
    int64_t since_ms;
    uint64_t data_id; /* its inline bytes and part rows go too */
    tarn_str layout;  /* shards to free; "" = none in the row */
} tarn_garbage_row;
tarn_err tarn_meta_garbage_put(tarn_meta_tx *tx, tarn_garbage_row *row);
tarn_err tarn_meta_garbage_list(tarn_meta *m, uint64_t after_id, bool (*fn)(void *ctx, const tarn_garbage_row *row), void *ctx);
tarn_err tarn_meta_garbage_delete(tarn_meta_tx *tx, uint64_t id);
/* Is any object version or upload or garbage row there with this data id (a sweep of files asks)? */
tarn_err tarn_meta_data_referenced(tarn_meta *m, uint64_t data_id, bool *out);
/* The same without uploads and inline bytes. */
tarn_err tarn_meta_data_held(tarn_meta *m, uint64_t data_id, bool *out);

typedef struct tarn_repair_row {
    uint64_t id; /* set by put */
    uint64_t bucket_id;
    tarn_str key;
    uint64_t seq;
    int64_t since_ms;
    uint32_t tries;
} tarn_repair_row;
tarn_err tarn_meta_repair_put(tarn_meta_tx *tx, tarn_repair_row *row); /* one row per version: a second put is a no-op */
tarn_err tarn_meta_repair_list(tarn_meta *m, uint64_t after_id, bool (*fn)(void *ctx, const tarn_repair_row *row), void *ctx);
tarn_err tarn_meta_repair_delete(tarn_meta_tx *tx, uint64_t id);

/* ------------------------------------------------------------------ the catalog */
/* A namespace path is its levels joined by 0x1F. Tables and views share one name space. */
typedef struct tarn_ns_row {
    uint64_t id;
    uint64_t bucket_id;
    tarn_str path;
    tarn_str properties; /* JSON object text */
    int64_t created_ms;
} tarn_ns_row;
tarn_err tarn_meta_ns_get(tarn_meta *m, tarn_meta_tx *tx, uint64_t bucket_id, tarn_str path, tarn_arena *a,
                          tarn_ns_row *out);                            /* ICE_NO_NAMESPACE */
tarn_err tarn_meta_ns_create(tarn_meta_tx *tx, tarn_ns_row *row);       /* ICE_ALREADY_EXISTS; the parent must exist: ICE_NO_NAMESPACE */
tarn_err tarn_meta_ns_update(tarn_meta_tx *tx, const tarn_ns_row *row); /* properties */
tarn_err tarn_meta_ns_delete(tarn_meta_tx *tx, uint64_t bucket_id, uint64_t ns_id); /* ICE_NOT_EMPTY */
/* Direct children of parent ("" = top level), by name, from the first path > after ("" = all). */
tarn_err tarn_meta_ns_list(tarn_meta *m, uint64_t bucket_id, tarn_str parent, tarn_str after, bool (*fn)(void *ctx, const tarn_ns_row *row),
                           void *ctx);
tarn_err tarn_meta_ns_count(tarn_meta *m, tarn_meta_tx *tx, uint64_t bucket_id, uint64_t ns_id, uint64_t *tables, uint64_t *views,
                            uint64_t *children);

typedef enum tarn_entity_kind { TARN_ENTITY_TABLE = 1, TARN_ENTITY_VIEW = 2 } tarn_entity_kind; /* on disk */
typedef struct tarn_entity_row {
    uint64_t id;
    uint64_t bucket_id;
    uint64_t ns_id;
    tarn_str name;
    tarn_entity_kind kind;
    tarn_str uuid; /* the table's or view's uuid */
    tarn_str location;
    tarn_str pointer; /* metadata location, s3://bucket/key */
    uint64_t version; /* +1 with every swap */
    int64_t created_ms, updated_ms;
} tarn_entity_row;
/* By namespace path and name: ICE_NO_TABLE (also when the namespace is missing). Both kinds are found; look at row->kind. */
tarn_err tarn_meta_entity_get(tarn_meta *m, tarn_meta_tx *tx, uint64_t bucket_id, tarn_str ns_path, tarn_str name, tarn_arena *a,
                              tarn_entity_row *out);
tarn_err tarn_meta_entity_create(tarn_meta_tx *tx, tarn_entity_row *row); /* ICE_ALREADY_EXISTS: *row then holds the kind that is there */
/* Compare and swap: the pointer becomes row->pointer where version still is expect_version; else ICE_COMMIT_FAILED (a lost
 * race) or ICE_NO_TABLE. location and uuid are set from the row too; row->version is set to the new one. */
tarn_err tarn_meta_entity_swap(tarn_meta_tx *tx, tarn_entity_row *row, uint64_t expect_version);
tarn_err tarn_meta_entity_rename(tarn_meta_tx *tx, uint64_t id, uint64_t ns_id, tarn_str name); /* ICE_ALREADY_EXISTS */
tarn_err tarn_meta_entity_delete(tarn_meta_tx *tx, uint64_t id);
tarn_err tarn_meta_entity_list(tarn_meta *m, uint64_t bucket_id, uint64_t ns_id, tarn_entity_kind kind, tarn_str after,
                               bool (*fn)(void *ctx, const tarn_entity_row *row), void *ctx);

/* What a drop leaves to be deleted: written in the transaction of the drop, removed when it has been. */
typedef struct tarn_purge_row {
    uint64_t id; /* numbers are given in the order of the drops */
    int64_t since_ms;
    tarn_entity_row dropped; /* ns_id, name and times are not kept */
} tarn_purge_row;
tarn_err tarn_meta_purge_put(tarn_meta_tx *tx, tarn_purge_row *row); /* sets id */
/* By id, from the first one > after_id. */
tarn_err tarn_meta_purge_list(tarn_meta *m, uint64_t after_id, bool (*fn)(void *ctx, const tarn_purge_row *row), void *ctx);
tarn_err tarn_meta_purge_delete(tarn_meta_tx *tx, uint64_t id); /* OK when there is none */

#endif
