/* SPDX-License-Identifier: Apache-2.0 */
/*
 * object: drives, erasure sets, placement, stripes, and what S3 calls objects. The only module that knows where bytes lie.
 *
 * Data first, then one metadata transaction that makes it visible; names are never renamed. What a crash leaves behind
 * is unreferenced and swept. All functions that wait are called on a fiber (in unit tests: on any thread).
 */
#ifndef TARN_OBJECT_H
#define TARN_OBJECT_H

#include "tarn/crypto.h"
#include "tarn/meta.h"

/* ------------------------------------------------------------------ limits */
#define TARN_BLOCK_BYTES (1024 * 1024) /* a stripe's data */
#define TARN_SET_DRIVES_MAX 16
#define TARN_SETS_MAX 8
#define TARN_OBJECT_BYTES_MAX (5ull << 40) /* 5 TiB */
#define TARN_PUT_BYTES_MAX (5ull << 30)    /* 5 GiB: one PUT or part */
#define TARN_PART_BYTES_MIN (5ull << 20)   /* every part but the last */
#define TARN_PUT_BLOCKS_MAX 4              /* blocks in flight per upload */
#define TARN_GET_BLOCKS_MAX 3              /* read ahead per download */
#define TARN_USER_META_BYTES_MAX 2048
#define TARN_OBJECT_TAGS_MAX 10
#define TARN_GARBAGE_AGE_MS (3600 * 1000) /* unreferenced files are swept when older */

/* ------------------------------------------------------------------ store */
typedef struct tarn_store tarn_store;
typedef enum tarn_drive_state {
    TARN_DRIVE_OK,
    TARN_DRIVE_NEW,       /* was blank: formatted, being filled */
    TARN_DRIVE_MISSING,   /* path absent or not mounted */
    TARN_DRIVE_FOREIGN,   /* of another deployment */
    TARN_DRIVE_MISPLACED, /* of this deployment, at another position */
    TARN_DRIVE_READ_ONLY,
    TARN_DRIVE_FAILED /* taken out after an error */
} tarn_drive_state;
typedef struct tarn_drive_info {
    const char *path;
    tarn_drive_state state;
    const char *reason; /* for a person; "" when OK */
    unsigned set, position;
    uint64_t total_bytes, free_bytes;
    bool slow;                 /* in use, but avoided for a while because it was late */
    uint64_t meta_reads_wrong; /* of its copy of the metadata, since the start */
} tarn_drive_info;
typedef struct tarn_store_options {
    tarn_fs *fs;
    const char *const *drives; /* paths in order; a multiple of the set's size */
    size_t drives_n;
    size_t set_drives;                 /* 0: chosen: the largest divisor of drives_n that is ≤ 16 */
    uint64_t inline_bytes_max;         /* 0: the measured default */
    uint64_t segment_object_bytes_max; /* up to this size data goes to segment files; 0: default */
    bool inline_committer;             /* see tarn_meta_options */
    uint64_t scrub_interval_s;         /* between the starts of two scrubs; 0: only when asked for */
    uint64_t backup_interval_s;        /* between two backups of the metadata that are kept on the drives; 0: none */
    uint64_t scrub_bytes_per_s;        /* how fast a scrub reads at the most; 0: no limit */
} tarn_store_options;
/*
 * Formats blank drives of a new deployment, recognises the rest (identity: deployment, set, position), opens the metadata.
 * Starts with as many drives as the read quorum of every set needs; else an error, and *reason (in arena) tells what to do.
 */
tarn_err tarn_store_open(const tarn_store_options *opt, tarn_store **out, tarn_arena *arena, tarn_str *reason);
/* Background fibers (repair, garbage, sweeper) start on this loop. */
tarn_err tarn_store_start_background(tarn_store *s, tarn_loop *loop);
void tarn_store_stop_background(tarn_store *s); /* on the loop's thread; they end at their next step */
void tarn_store_close(tarn_store *s);
tarn_meta *tarn_store_meta(tarn_store *s);
size_t tarn_store_drives(tarn_store *s, tarn_drive_info *out, size_t max); /* returns how many there are */
void tarn_store_code(const tarn_store *s, unsigned *data, unsigned *parity, unsigned *sets);
const char *tarn_store_deployment_id(const tarn_store *s); /* uuid */
bool tarn_store_writable(tarn_store *s);                   /* write quorum in every set */
bool tarn_store_readable(tarn_store *s);
/* A small secret file that belongs to the deployment (mode 0600 on every drive): the random root credentials. */
tarn_err tarn_store_secret_get(tarn_store *s, const char *name, tarn_arena *a, tarn_str *out); /* NOT_FOUND */
tarn_err tarn_store_secret_put(tarn_store *s, const char *name, tarn_str value);

/* ------------------------------------------------------------------ versions on the wire */
typedef enum tarn_version_sel { TARN_VERSION_CURRENT, TARN_VERSION_NULL, TARN_VERSION_ID } tarn_version_sel;
typedef struct tarn_version_ref {
    tarn_version_sel sel;
    uint64_t seq, nonce; /* sel == ID */
} tarn_version_ref;
/* "" → CURRENT, "null" → NULL, 32 hex digits → ID; anything else false. */
bool tarn_version_parse(tarn_str text, tarn_version_ref *out);
void tarn_version_format(tarn_sb *b, const tarn_version_row *row); /* "null" or 32 hex digits */
bool tarn_upload_id_parse(tarn_str text, uint64_t *upload_id, uint64_t *nonce);
void tarn_upload_id_format(tarn_sb *b, uint64_t upload_id, uint64_t nonce);

/* ------------------------------------------------------------------ attributes */
typedef enum tarn_sum_type { TARN_SUM_FULL_OBJECT, TARN_SUM_COMPOSITE } tarn_sum_type;
typedef struct tarn_checksum {
    tarn_sum_kind kind; /* NONE: no checksum */
    tarn_sum_type type;
    uint8_t value[TARN_DIGEST_BYTES_MAX];
    uint32_t parts_n; /* COMPOSITE: the N of "b64-N" */
} tarn_checksum;
typedef struct tarn_attrs {
    tarn_str content_type, content_encoding, content_language, content_disposition, cache_control, expires, website_redirect, storage_class;
    const tarn_pair *user_meta; /* names in lower case without x-amz-meta- */
    size_t user_meta_n;
    tarn_checksum checksum;
    tarn_str origin; /* metadata files of tables and views: packed, see tarn_origin; not shown to anybody */
    tarn_str sse;    /* "AES256" when asked for; what is stored as an attribute only is never claimed as encryption */
    /* uploads only: what CreateMultipartUpload fixed for the object to come */
    tarn_str tags;
    uint32_t tags_n;
    tarn_retention retention;
    int64_t retain_until_ms;
    bool legal_hold;
} tarn_attrs;
tarn_err tarn_attrs_pack(const tarn_attrs *a, tarn_arena *arena, tarn_str *out); /* LIMIT past TARN_ATTRS_BYTES_MAX */
tarn_err tarn_attrs_unpack(tarn_str packed, tarn_arena *arena, tarn_attrs *out);
/* Whose metadata file an object is: with it a table is found again when the catalog's rows are lost. */
typedef struct tarn_origin {
    tarn_entity_kind kind;
    tarn_str ns_path, name, uuid, location;
} tarn_origin;
tarn_err tarn_origin_pack(const tarn_origin *o, tarn_arena *arena, tarn_str *out);
bool tarn_origin_unpack(tarn_str packed, tarn_origin *out);
/* Tags are packed as a list of pairs. */
tarn_err tarn_tags_pack(const tarn_pair *tags, size_t n, tarn_arena *arena, tarn_str *out);
tarn_err tarn_tags_unpack(tarn_str packed, tarn_arena *arena, tarn_pair **out, size_t *n);

/* ------------------------------------------------------------------ conditions and results of a write */
typedef struct tarn_put_conditions {
    bool if_none_match_any; /* If-None-Match: * → PRECONDITION_FAILED when a current version (no delete marker) is there */
    tarn_str if_match;      /* ETag without quotes, or "*": NO_SUCH_KEY when absent, PRECONDITION_FAILED when it differs */
    tarn_str if_none_match; /* ETag that must not be the current one */
} tarn_put_conditions;

typedef struct tarn_put_spec {
    const tarn_bucket_row *bucket;
    tarn_str key;
    tarn_attrs attrs; /* .checksum.kind: which checksum to compute and store (NONE: CRC64NVME is computed) */
    tarn_str tags;    /* packed */
    uint32_t tags_n;
    tarn_retention retention;
    int64_t retain_until_ms;
    bool legal_hold;
    tarn_put_conditions conditions;
    uint64_t size_hint;        /* UINT64_MAX when unknown */
    uint64_t inline_bytes_max; /* data up to this size goes into the row; 0: as the store is set. A file that is committed in a
                                * transaction of the caller's saves a sync of its own so (at most TARN_INLINE_BYTES_MAX) */
    /* a part instead of an object: */
    bool is_part;
    uint64_t upload_id;
    uint32_t part_number;
    /* digests to verify; an error of finish leaves nothing behind */
    const uint8_t *expect_md5;    /* Content-MD5, 16 bytes, or NULL: BAD_DIGEST */
    const uint8_t *expect_sha256; /* of the payload, or NULL: CONTENT_SHA256_MISMATCH */
    tarn_str etag_override;       /* copies may keep an ETag; "" = MD5 */
} tarn_put_spec;

typedef struct tarn_put_result {
    tarn_version_row row;              /* as stored: etag, seq, nonce, mtime …; slices live in the put's arena */
    uint8_t sha256[TARN_SHA256_BYTES]; /* when it was computed */
    uint8_t md5[TARN_MD5_BYTES];
    tarn_checksum checksum;
} tarn_put_result;

/* ------------------------------------------------------------------ put */
/*
 * An upload: begin → (reserve → fill → advance)* → finish, or abort at any time. At most TARN_PUT_BLOCKS_MAX blocks of memory;
 * reserve parks while all are on their way to the drives. The spec's slices must live until finish or abort.
 */
typedef struct tarn_put tarn_put;
tarn_err tarn_put_begin(tarn_store *s, const tarn_put_spec *spec, tarn_arena *arena, tarn_put **out);
/* Memory for the next bytes of the object, at least one byte, at most the rest of the block: the socket reads into it. */
tarn_err tarn_put_reserve(tarn_put *p, uint8_t **buf, size_t *cap);
tarn_err tarn_put_advance(tarn_put *p, size_t n);                 /* n bytes of the reserved memory are filled */
tarn_err tarn_put_write(tarn_put *p, const void *data, size_t n); /* copying convenience */
uint64_t tarn_put_bytes(const tarn_put *p);
/* The client's trailing checksum, known only at the end: BAD_DIGEST from finish when it differs. kind must be the computed one. */
tarn_err tarn_put_expect_checksum(tarn_put *p, tarn_sum_kind kind, const uint8_t *value);
/* Only now: the payload's SHA-256 (form uploads, catalog). */
void tarn_put_expect_sha256(tarn_put *p, const uint8_t sha256[TARN_SHA256_BYTES]);
/* Data durable, digests checked, version visible, durable on the write quorum. Frees p in every case. */
tarn_err tarn_put_finish(tarn_put *p, tarn_put_result *out);
void tarn_put_abort(tarn_put *p); /* NULL is fine */
/*
 * For callers that make the object visible in a transaction of their own (the catalog): prepare makes the data durable;
 * apply inserts the version inside tx, may be called again after a rollback, and checks the conditions; then done frees p.
 */
tarn_err tarn_put_prepare(tarn_put *p);
tarn_err tarn_put_apply(tarn_put *p, tarn_meta_tx *tx, tarn_put_result *out);
void tarn_put_done(tarn_put *p, bool committed); /* not committed: the data is freed */

/* ------------------------------------------------------------------ get */
/* The version a request means. A current delete marker: NO_SUCH_KEY with *out filled in (out->delete_marker); by id: the row. */
tarn_err tarn_object_stat(tarn_store *s, const tarn_bucket_row *bucket, tarn_str key, tarn_version_ref ref, tarn_arena *a,
                          tarn_version_row *out);
typedef struct tarn_get tarn_get;
/* [off, off + len) of the version; the row must have been read by stat. The data is pinned until close. */
tarn_err tarn_get_open(tarn_store *s, const tarn_version_row *row, uint64_t off, uint64_t len, tarn_arena *a, tarn_get **out);
/* The next verified piece; *n = 0 at the end. The memory stays valid until the next call. CORRUPT, QUORUM_READ. */
tarn_err tarn_get_next(tarn_get *g, const uint8_t **p, size_t *n);
void tarn_get_close(tarn_get *g); /* NULL is fine */
/* Whole small object in the arena (metadata files); LIMIT past max_bytes. */
tarn_err tarn_object_read(tarn_store *s, const tarn_version_row *row, size_t max_bytes, tarn_arena *a, tarn_str *out);

/* ------------------------------------------------------------------ delete */
typedef struct tarn_delete_spec {
    tarn_str key;
    tarn_version_ref version;
    tarn_str if_match;      /* ETag, "*", or "" */
    bool bypass_governance; /* the caller may (policy checked by the API) */
} tarn_delete_spec;
typedef struct tarn_delete_result {
    tarn_err err;         /* per key: OK also when there was nothing */
    bool delete_marker;   /* a marker was made, or the version deleted was one */
    bool has_version;     /* version fields below are set */
    tarn_version_row row; /* seq/nonce/null_version of the marker made or the version deleted */
} tarn_delete_result;
/* n ≤ 1000 keys in ONE transaction; results[i] per key. The call's own error only when nothing was done. */
tarn_err tarn_object_delete(tarn_store *s, const tarn_bucket_row *bucket, const tarn_delete_spec *keys, size_t n,
                            tarn_delete_result *results);

/* ------------------------------------------------------------------ changing what is there */
/* Reads the version in a transaction, lets edit change tags, attrs, lock fields, writes it. edit runs on the committer. */
tarn_err tarn_object_edit(tarn_store *s, const tarn_bucket_row *bucket, tarn_str key, tarn_version_ref ref,
                          tarn_err (*edit)(void *ctx, tarn_version_row *row, tarn_arena *arena), void *ctx, tarn_version_row *out,
                          tarn_arena *a);
/* Is the version protected from deletion now? (COMPLIANCE, GOVERNANCE without bypass, legal hold) */
bool tarn_object_locked(const tarn_version_row *row, int64_t now_ms, bool bypass_governance);

/* ------------------------------------------------------------------ multipart */
tarn_err tarn_upload_create(tarn_store *s, const tarn_bucket_row *bucket, tarn_str key, tarn_str owner, const tarn_attrs *attrs,
                            uint64_t *upload_id, uint64_t *nonce);
tarn_err tarn_upload_abort(tarn_store *s, const tarn_bucket_row *bucket, tarn_str key, uint64_t upload_id, uint64_t nonce);
typedef struct tarn_complete_part {
    uint32_t number;
    tarn_str etag;          /* without quotes */
    tarn_checksum checksum; /* kind NONE: not given */
} tarn_complete_part;
typedef struct tarn_complete_spec {
    const tarn_bucket_row *bucket;
    tarn_str key;
    uint64_t upload_id, nonce;
    const tarn_complete_part *parts;
    size_t parts_n;
    tarn_put_conditions conditions;
    tarn_checksum checksum; /* of the whole object, kind NONE: not given; BAD_DIGEST when it differs */
    bool has_size;          /* x-amz-mp-object-size: INVALID_REQUEST when it differs */
    uint64_t size;
    bool type_given; /* x-amz-checksum-type */
    tarn_sum_type type;
} tarn_complete_spec;
/* INVALID_PART (*bad_part tells which), INVALID_PART_ORDER, ENTITY_TOO_SMALL, NO_SUCH_UPLOAD. A second complete with the same
 * parts, while the object that the first made is still current, answers as the first did. */
tarn_err tarn_upload_complete(tarn_store *s, const tarn_complete_spec *spec, tarn_arena *a, tarn_put_result *out, uint32_t *bad_part);
/* Part number and size of every part of a finished multipart object, in order (for GetObjectAttributes and ?partNumber=). */
typedef struct tarn_part_span {
    uint32_t number;
    uint64_t off, size;
    tarn_checksum checksum;
} tarn_part_span;
tarn_err tarn_object_parts(tarn_store *s, const tarn_version_row *row, tarn_arena *a, tarn_part_span **out, size_t *n);
tarn_err tarn_part_attrs_unpack(tarn_str packed, tarn_checksum *out); /* of tarn_part_row.attrs */

/* ------------------------------------------------------------------ upkeep */
uint64_t tarn_store_repairs_waiting(tarn_store *s);
/* One pass over everything unreferenced; for tests and shutdowns. */
tarn_err tarn_store_collect_garbage(tarn_store *s, int64_t older_than_ms);

/*
 * Long work over all versions, each kind at most once at a time, on the background loop: heal (what an operator asks for),
 * scrub (by the clock), fill (a drive that was replaced or had been away: starts by itself). Each checks every shard of every
 * version and, unless it is a dry run, rebuilds what is missing or damaged. Progress is kept in the database: a run that a stop of the
 * daemon interrupted goes on at the next start.
 */
typedef enum tarn_task { TARN_TASK_HEAL, TARN_TASK_SCRUB, TARN_TASK_FILL, TARN_TASK_COUNT } tarn_task;
typedef enum tarn_task_state { TARN_TASK_IDLE, TARN_TASK_RUNNING, TARN_TASK_DONE, TARN_TASK_STOPPED, TARN_TASK_FAILED } tarn_task_state;
typedef struct tarn_task_spec {
    bool dry_run;
    tarn_str bucket, prefix; /* bucket empty: everything */
} tarn_task_spec;
typedef struct tarn_task_counts {
    uint64_t objects, bytes;       /* versions looked at, bytes of shards read */
    uint64_t damaged;              /* versions with a shard that is missing or wrong */
    uint64_t missing, corrupt;     /* shards: not there, and there but wrong */
    uint64_t healed, healed_bytes; /* versions made whole, bytes of shards written */
    uint64_t waiting;              /* versions that wait for a drive that is out */
    uint64_t lost;                 /* versions that too few good shards are left of */
} tarn_task_counts;
typedef struct tarn_task_status {
    tarn_task_state state;
    bool dry_run;
    char bucket[TARN_BUCKET_NAME_BYTES_MAX + 1];
    char prefix[TARN_KEY_BYTES_MAX + 1];
    char at_bucket[TARN_BUCKET_NAME_BYTES_MAX + 1]; /* where it is */
    char at_key[TARN_KEY_BYTES_MAX + 1];
    int64_t started_ms, ended_ms;
    uint64_t busy_ms;       /* without the time that the daemon was down */
    uint64_t objects_total; /* versions that there were when it began; 0: not counted */
    tarn_task_counts counts;
    tarn_err err; /* FAILED */
} tarn_task_status;
/* HEAL and SCRUB. CONFLICT while it runs; NO_SUCH_BUCKET. */
tarn_err tarn_task_start(tarn_store *s, tarn_task task, const tarn_task_spec *spec);
void tarn_task_stop(tarn_store *s, tarn_task task); /* at its next step; the next start begins anew */
void tarn_task_status_get(tarn_store *s, tarn_task task, tarn_task_status *out);

/* A backup of the metadata on every drive that takes it, the older ones go (backup.c). */
tarn_err tarn_store_backup_keep(tarn_store *s);
/* ------------------------------------------------------------------ offline work: no daemon uses the drives (locks tell) */
typedef struct tarn_offline {
    void (*say)(void *ctx, tarn_str line); /* a finding, or what was done: one line for a person */
    void *ctx;
    tarn_arena *arena;
    tarn_str *reason; /* of an error */
} tarn_offline;

typedef struct tarn_fsck_report {
    uint64_t versions, uploads, parts_bytes; /* looked at; bytes of shards read */
    uint64_t damaged;                        /* versions (and uploads) with a shard missing or wrong: healing mends them */
    uint64_t missing, corrupt;               /* shards */
    uint64_t waiting;                        /* versions that drives which are out would be needed for */
    uint64_t lost;                           /* versions that can't be read any more */
    uint64_t database_problems, database_bad_pages;
    uint64_t tables, tables_lost;   /* a table whose metadata file is not there */
    uint64_t orphans, orphan_bytes; /* records that nothing refers to: the sweeper's work, not damage */
    uint64_t garbage;               /* rows whose data waits to be freed */
} tarn_fsck_report;
/* Reads and checks everything: database, references, shards, records without a reference. Nothing on the drives changes. */
tarn_err tarn_store_fsck(const tarn_store_options *opt, const tarn_offline *to, tarn_fsck_report *out);

typedef struct tarn_rebuild_spec {
    const char *backup; /* this one instead of the newest on the drives; NULL */
    bool force;         /* also where the database can be opened */
    tarn_str owner;     /* of buckets that no backup tells of */
} tarn_rebuild_spec;
typedef struct tarn_rebuild_report {
    int64_t backup_ms;               /* of the backup that was begun with; 0: none */
    uint64_t records;                /* shards found on the drives */
    uint64_t kept, dropped;          /* versions of the backup: still there, and gone since */
    uint64_t objects, objects_bytes; /* versions made from records */
    uint64_t buckets, tables;        /* made, or brought up to a newer state */
    uint64_t incomplete;             /* objects and uploads that can't be made */
    uint64_t unread;                 /* objects, uploads and folders that could not be read: said line by line, and it ends with IO */
} tarn_rebuild_report;
/*
 * Makes the database again: from the backup, then from what the records on the drives say of newer data. What can't be made is
 * said line by line. What was there of the old database is kept aside, as tarn.db.lost-TIME. With any error the index is not
 * finished: tarn_store_open refuses it (UNFINISHED), and the next call begins anew.
 */
tarn_err tarn_store_rebuild(const tarn_store_options *opt, const tarn_rebuild_spec *spec, const tarn_offline *to, tarn_rebuild_report *out);

/* A backup to be read once, by tarn_file_read from 0 to *bytes; it is gone with tarn_file_unref. */
tarn_err tarn_store_backup_take(tarn_store *s, tarn_file **out, uint64_t *bytes);

#endif
