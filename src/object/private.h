/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of object share with each other and nobody else.
 *
 * Words. A *blob* is one run of data that was uploaded at once: a whole object, or one part of a multipart upload. It is
 * cut into *blocks* (stripes) of TARN_BLOCK_BYTES; each block becomes k data and m parity *shards*, and shard i of every
 * block lies in one *record* on drive (rotation + i) mod n of the blob's set. A record is either a file of its own or a
 * range of a *segment*, which has the same number and the same offsets on every drive of the set. Hence a blob's layout
 * needs no address per shard, and a shard is repaired in its own place.
 *
 * A *context* is what one thread (one loop) keeps for itself: block buffers, open files, open segments, MD5 work. Nothing
 * in a context is locked. What is shared lies in tarn_store, under store->lock or atomic.
 */
#ifndef TARN_OBJECT_PRIVATE_H
#define TARN_OBJECT_PRIVATE_H

#include <pthread.h>
#include <stdatomic.h>

#include "tarn/object.h"

/* ------------------------------------------------------------------ limits and on-disk numbers */
#define OBJ_DRIVES_MAX (TARN_SET_DRIVES_MAX * TARN_SETS_MAX)
#define OBJ_HEADROOM_BYTES 4096               /* before a block's data: room for a record's header */
#define OBJ_TAILROOM_BYTES 8192               /* behind it: room for a trailer and its padding */
#define OBJ_STAGE_BYTES_MAX (64 * 1024)       /* a shard up to this size is copied beside its header: one write instead of three */
#define OBJ_SMALL_BLOCK_BYTES (128 * 1024)    /* data of a small block buffer */
#define OBJ_SHARD_ALIGN 64                    /* shards of k > 1 are padded to this; long ones to a page */
#define OBJ_PAGE_BYTES 4096                   /* records, and writes to drives, begin and end on such a boundary (O_DIRECT) */
#define OBJ_BLOCKS_FREE_BYTES_MAX (20u << 20) /* of big buffers that a context keeps */
#define OBJ_SMALL_BLOCKS_FREE_MAX 64
#define OBJ_FDS_MAX 256                  /* files a context keeps open */
#define OBJ_SEGMENT_BYTES (128ull << 20) /* pre-allocated size of a segment */
#define OBJ_COMPACT_DEAD_BYTES_MIN (4ull << 20)
#define OBJ_IDS_RESERVE 4096 /* data ids taken from the database at once */
#define OBJ_INLINE_DEFAULT (16 * 1024)
#define OBJ_SEGMENT_OBJECT_DEFAULT (4ull << 20)
#define OBJ_HEADER_BYTES_MAX (256 * 1024)
#define OBJ_IO_DEADLINE_MS 30000 /* a drive that takes longer is given up for this request */
#define OBJ_SLOW_MS 1000         /* so long a write waits for a drive when the others are enough */
#define OBJ_HEDGE_MS 2000        /* a read that takes longer is answered from parity */
#define OBJ_PIN_SHARDS 64
#define OBJ_GARBAGE_MIN_AGE_MS 10000 /* between the deletion of a row and of its data */
#define OBJ_REPAIR_QUEUE_MAX 1024
#define OBJ_ETAG_BYTES_MAX 64

typedef enum obj_class {                        /* on disk */
                         OBJ_CLASS_PENDING = 0, /* in memory only: not decided yet */
                         OBJ_CLASS_INLINE = 1,
                         OBJ_CLASS_SEGMENT = 2,
                         OBJ_CLASS_FILE = 3,
                         OBJ_CLASS_MULTIPART = 4
} obj_class;

/* ------------------------------------------------------------------ layout */
typedef struct obj_blob {
    obj_class cls;
    uint8_t set, k, m, rot;
    uint16_t missing; /* bit i: shard i was not written and waits for repair */
    uint32_t block_bytes;
    uint32_t head_bytes; /* of the record, before the first block */
    uint64_t size;
    uint64_t data_id; /* what the rows refer to */
    uint64_t blob_id; /* its own number: differs from data_id only for parts */
    uint32_t part;    /* 0: a whole object */
    uint64_t segment; /* 0: a file */
    uint64_t offset;  /* of the record in the segment */
    tarn_str sums;    /* le64 per block and shard, block after block */
} obj_blob;

tarn_err obj_blob_pack(const obj_blob *b, tarn_sb *out);
tarn_err obj_blob_unpack(tarn_str packed, obj_blob *out); /* SEGMENT and FILE; sums points into packed */
obj_class obj_layout_class(tarn_str packed);              /* PENDING when empty or unknown */
uint64_t obj_blob_blocks(const obj_blob *b);
size_t obj_block_len(const obj_blob *b, uint64_t block);
size_t obj_shard_len(size_t block_len, unsigned k);
uint64_t obj_shard_offset(const obj_blob *b, uint64_t block); /* of the block's shard within the record */
uint64_t obj_record_data_bytes(const obj_blob *b);            /* all blocks of one shard */
uint64_t obj_record_bytes(const obj_blob *b);                 /* the whole record with its padding */
uint64_t obj_blob_sum(const obj_blob *b, uint64_t block, unsigned shard);
/* Checksum of one shard block: identity first, then the bytes. */
uint64_t obj_shard_sum(uint64_t blob_id, uint64_t block, unsigned shard, const void *p, size_t n);
unsigned obj_blob_drive(const obj_blob *b, unsigned shard, unsigned set_drives); /* position within the set */

/* The layout of a multipart object: which parts, in order, and how long each is. */
typedef struct obj_span {
    uint32_t number;
    uint64_t size;
} obj_span;
tarn_err obj_spans_pack(const obj_span *spans, size_t n, uint64_t upload_nonce, tarn_arena *a, tarn_str *out);
tarn_err obj_spans_unpack(tarn_str packed, tarn_arena *a, obj_span **out, size_t *n, uint64_t *upload_nonce);

/* ------------------------------------------------------------------ records on drives */
typedef struct obj_record_info {
    tarn_str bucket, key;
    uint64_t bucket_id, upload_nonce, size_hint;
    int64_t created_ms;
    tarn_str attrs, tags, etag; /* etag: only what can't be computed from the data */
    uint32_t tags_n;
    tarn_retention retention;
    int64_t retain_until_ms;
    bool legal_hold;
    uint8_t sum_kind;     /* the checksum that was asked for (tarn_sum_kind); 0: none */
    uint8_t bucket_flags; /* of the bucket at that time: OBJ_BUCKET_… */
} obj_record_info;
/* On disk. */
#define OBJ_BUCKET_VERSIONING_MASK 3 /* tarn_versioning */
#define OBJ_BUCKET_LOCK 4
#define OBJ_BUCKET_WAREHOUSE 8
uint8_t obj_bucket_flags(const tarn_bucket_row *bucket);
/* The set that a key's data lies in. */
unsigned obj_set_of(const tarn_store *s, tarn_str bucket, tarn_str key);
/* The header of shard 0; *head_bytes is its padded length. obj_header_stamp turns it into another shard's. */
tarn_err obj_header_build(const uint8_t deployment[16], const obj_blob *b, const obj_record_info *info, size_t align, tarn_sb *out);
void obj_header_stamp(uint8_t *header, size_t n, unsigned shard);
bool obj_header_matches(const uint8_t *header, size_t n, const obj_blob *b, unsigned shard); /* magic, checksum, identity */
size_t obj_header_bytes(const obj_blob *b, const obj_record_info *info, size_t align);
size_t obj_trailer_bytes(uint64_t blocks);
void obj_trailer_build(const obj_blob *b, unsigned shard, int64_t mtime_ms, uint8_t *out); /* obj_trailer_bytes of it */
/* Reads header and trailer of a shard's record and says which of them are there and its own. head: room for b->head_bytes, the header
 * as it was read where it is good; tail: for twice obj_trailer_bytes. Suspends. */
typedef struct obj_ends {
    bool header, trailer;
} obj_ends;
void obj_ends_read(const obj_blob *b, unsigned shard, tarn_file *f, uint8_t *head, uint8_t *tail, obj_ends *out);

/* ------------------------------------------------------------------ drives */
typedef struct obj_drive {
    char *path;
    unsigned set, position; /* position within the set */
    _Atomic int state;      /* tarn_drive_state */
    _Atomic(const char *) reason;
    tarn_file *lock;
    uint8_t uuid[16];
    atomic_bool filling;                     /* format record says: not healed yet */
    _Atomic uint64_t slow_until_ns, slow_ms; /* slow.c */
    atomic_bool vanished;                    /* it went out because its identity was gone: it may come back */
    _Atomic uint64_t joined;                 /* store->epoch when it (re)joined; what was opened before that is not on it */
    bool unfinished;                         /* format record says: only being formatted. Opening's */
    bool direct;                             /* takes O_DIRECT writes: large data then goes past the page cache */
} obj_drive;
#define OBJ_REASON_BYTES_MAX 1024

typedef struct obj_pin {
    uint64_t id;
    uint32_t count;
} obj_pin;
typedef struct obj_pins {
    pthread_mutex_t lock;
    obj_pin *slots;
    size_t n, cap;
} obj_pins;

typedef struct obj_ctx obj_ctx;
typedef struct obj_seg obj_seg;
typedef struct obj_background obj_background;
struct obj_tasks;

struct tarn_store {
    tarn_fs *fs;
    obj_drive *drives;
    size_t drives_n;
    size_t meta_drives[OBJ_DRIVES_MAX];   /* which drive each copy of the database is on */
    unsigned n, sets, k, m, write_quorum; /* n: drives of a set */
    bool unfinished;                      /* no drive has finished its formatting (obj_drives_fresh) */
    tarn_ec *ec;
    tarn_meta *meta;
    size_t shard_max;
    uint64_t inline_max, segment_object_max, segment_bytes;
    uint64_t compact_dead_min; /* so much dead space makes a segment worth compacting; the simulation has smaller segments */
    char deployment[37];
    uint8_t deployment_raw[16];
    uint8_t sip_key[16];
    uint64_t serial;        /* tells this store from an earlier one at the same address */
    _Atomic uint64_t epoch; /* counts the drives that (re)joined */
    pthread_mutex_t lock;
    uint64_t id_next, id_end;
    tarn_link contexts;
    tarn_link segments; /* obj_seg that may still get records */
    tarn_link reasons;  /* texts that live until close */
    obj_pins pins[OBJ_PIN_SHARDS];
    obj_background *background;
    struct obj_tasks *tasks;    /* task.c */
    uint64_t backup_interval_s; /* obj_backup_main */
    tarn_link repair_wishes;    /* under lock */
    size_t repair_wishes_n;
};

obj_drive *obj_drive_at(tarn_store *s, unsigned set, unsigned position);
/* Slow drives (slow.c). */
bool obj_drive_slow(const obj_drive *d);
void obj_drive_late(obj_drive *d, const char *what);
/* Is it slow, and are the others of its set enough for a write? */
bool obj_drive_skipped(tarn_store *s, const obj_drive *d);
/*
 * Waits for a batch; `who` tells of an operation which bit is its. Bits of those that are late while at least `need` others
 * have succeeded, not counting `ignore` (what was lost before counts for nothing, whatever becomes of it now); 0 when all have
 * ended, or when time is up and those that have not ended failed.
 */
uint16_t obj_batch_settle(tarn_batch *b, unsigned (*who)(const tarn_op *op), uint16_t ignore, unsigned need);
/* Files to be created, all at once; from the heap, and given away with the call. */
typedef struct obj_opens {
    char paths[TARN_SET_DRIVES_MAX][TARN_PATH_BYTES_MAX]; /* "": none */
    bool direct[TARN_SET_DRIVES_MAX];
    tarn_file *files[TARN_SET_DRIVES_MAX];
} obj_opens;
tarn_err obj_open_many(tarn_store *s, obj_opens *o, tarn_file **files, int *results, uint16_t *late);

bool obj_drive_readable(const obj_drive *d);
bool obj_drive_writable(const obj_drive *d);
/* An operation on the drive failed with this (positive) errno: takes the drive out where that is what it means. */
void obj_drive_error(tarn_store *s, obj_drive *d, const char *what, int errno_value);
/* Was this open file deleted under us? Says so; what was written to it doesn't count. True, too, where it can't be told. */
bool obj_file_deleted(tarn_store *s, obj_drive *d, const tarn_file *f);
/* What a write answers that too few drives took: this errno is the last one met, 0 when drives were out before. */
tarn_err obj_err_quorum(int errno_value);
void obj_drive_set(tarn_store *s, obj_drive *d, tarn_drive_state state, const char *reason);
void obj_drives_gauge(tarn_store *s);
tarn_err obj_drives_open(tarn_store *s, const tarn_store_options *opt, tarn_arena *a, tarn_str *reason);
void obj_drives_close(tarn_store *s);
/* Every drive of a deployment that was being formatted is there, and the database is open: formatting is done. */
tarn_err obj_drives_formatted(tarn_store *s);
/* Is the deployment only being made? As was read when the drives were opened: no drive has finished its formatting, and enough said
 * so. */
bool obj_drives_fresh(const tarn_store *s);
/* What is there now in a drive's place. Synchronous. */
typedef enum obj_look {
    OBJ_LOOK_SAME,  /* the drive that was opened */
    OBJ_LOOK_BLANK, /* a new one */
    OBJ_LOOK_OURS,  /* of this deployment and position, but another one, or the one that was away */
    OBJ_LOOK_NONE   /* nothing that can be used */
} obj_look;
obj_look obj_drive_look(tarn_store *s, const obj_drive *d);
/* A drive that is not used (blank, or ours) is used again: locked, marked to be filled, with a copy of the database. Synchronous. */
void obj_drive_drop_copies(tarn_store *s, const obj_drive *d); /* what is still open of its folder */
tarn_err obj_drive_rejoin(tarn_store *s, obj_drive *d, obj_look look);
/*
 * A drive that is in use has lost its copy of the database without a failure of its own (it was full): it gets one again when
 * there is room. OK too when nothing was to be done; DISK_FULL while there is no room. Synchronous.
 */
#define OBJ_COPY_ROOM_BYTES_MIN (64u << 20)
bool obj_drive_lacks_copy(tarn_store *s, const obj_drive *d);
tarn_err obj_drive_copy_again(tarn_store *s, obj_drive *d);
/* A drive that is in use had missed commits: it is filled again. */
tarn_err obj_drive_stale(tarn_store *s, obj_drive *d);
tarn_err obj_drive_filled(tarn_store *s, obj_drive *d);
unsigned obj_set_writable(tarn_store *s, unsigned set); /* how many drives take writes */

/* Paths; false when too long. */
bool obj_path_blob(const obj_drive *d, const obj_blob *b, char out[TARN_PATH_BYTES_MAX]);
bool obj_path_blob_dir(const obj_drive *d, const obj_blob *b, char out[TARN_PATH_BYTES_MAX]);
bool obj_path_segment(const obj_drive *d, uint64_t segment, char out[TARN_PATH_BYTES_MAX]);
bool obj_path(const obj_drive *d, const char *below, char out[TARN_PATH_BYTES_MAX]);
/* Takes a name of the parts folder apart. */
bool obj_parse_blob_name(const char *name, uint64_t *data_id, uint32_t *part, uint64_t *blob_id);

/* ------------------------------------------------------------------ ids and pins */
tarn_err obj_id_next(tarn_store *s, uint64_t *out); /* may park */
tarn_err obj_pins_init(tarn_store *s);
void obj_pins_free(tarn_store *s);
tarn_err obj_pin_add(tarn_store *s, uint64_t data_id);
void obj_pin_drop(tarn_store *s, uint64_t data_id);
bool obj_pinned(tarn_store *s, uint64_t data_id);

/* ------------------------------------------------------------------ contexts */
typedef struct obj_block {
    tarn_link link;
    obj_ctx *ctx;
    uint8_t *mem;
    uint8_t *data;   /* cap bytes and the padding of k shards; on a page, unless obj_block_follow moved it */
    uint8_t *parity; /* m * shard_max */
    size_t cap;      /* data bytes */
    size_t shard_max;
    size_t n; /* filled */
    unsigned refs;
    bool small;
} obj_block;

typedef struct obj_fd {
    tarn_link lru;
    struct obj_fd *chain;
    tarn_file *file;
    uint64_t id;
    uint32_t drive;
} obj_fd;
#define OBJ_FD_BUCKETS 512

typedef struct obj_md5_job {
    tarn_link link;
    struct obj_digest *digest;
    obj_block *block;
    const uint8_t *p;
    size_t n;
} obj_md5_job;

struct obj_ctx {
    tarn_link link;
    tarn_store *store;
    pthread_t thread;
    tarn_link free_big, free_small;
    size_t free_big_n, free_small_n;
    tarn_link fd_lru;
    size_t fds_n;
    obj_fd *fd_buckets[OBJ_FD_BUCKETS];
    obj_seg *segs[TARN_SETS_MAX];
    tarn_fiber_lock seg_locks[TARN_SETS_MAX];
    tarn_link md5_jobs;  /* obj_md5_job, in the order they came */
    size_t md5_streams;  /* digests with at least one job waiting */
    size_t md5_active;   /* uploads that hash and are not finished */
    tarn_link md5_small; /* obj_digest, whole uploads that wait for company in this turn of the loop */
    size_t md5_small_n;
};
/* The calling thread's. NULL when out of memory. */
obj_ctx *obj_ctx_get(tarn_store *s);
void obj_ctx_free_all(tarn_store *s);
obj_block *obj_block_new(obj_ctx *c, size_t data_bytes);
/* Of an empty block: the data lies so that a header of this length, put right before it, begins on a page. */
void obj_block_follow(obj_block *b, size_t head_bytes);
void obj_block_unref(obj_block *b);
/* The file that holds the blob's shard on this drive, from the context's cache or opened. Negative errno or 0. */
int obj_fd_get(obj_ctx *c, const obj_blob *b, unsigned position, tarn_file **out);
/* The cache opens it by its name the next time. */
void obj_fd_forget(obj_ctx *c, const obj_blob *b, unsigned position);

/* ------------------------------------------------------------------ segments */
struct obj_seg {
    tarn_link link; /* store->segments */
    tarn_store *store;
    uint64_t id;
    unsigned set;
    uint64_t used, size;
    uint64_t epoch;                        /* of the store when its files were opened */
    unsigned refs;                         /* the context's and one per upload; only its thread touches it */
    tarn_file *files[TARN_SET_DRIVES_MAX]; /* NULL: that drive is out */
    /* group sync */
    bool syncing;
    bool gathering;   /* somebody waits for a sync that has not started */
    unsigned coming;  /* uploads whose last write is on its way: each will want a sync */
    unsigned awaited; /* so many of them come before that sync starts */
    uint64_t sync_started, sync_done;
    uint16_t sync_failed;       /* positions whose sync failed at any time: the segment is no good there any more */
    int open_errno, sync_errno; /* why files are missing, why nothing was synced; 0: because drives are out */
    tarn_link sync_waiters;
};
/* Room for a record of this length in the context's open segment of the set. The caller gets a reference. */
tarn_err obj_seg_reserve(obj_ctx *c, unsigned set, uint64_t bytes, obj_seg **seg, uint64_t *off);
/* Around the wait for an upload's last write: a sync that would start meanwhile may take it along. */
void obj_seg_coming(obj_seg *seg);
void obj_seg_came(obj_seg *seg);
/* Makes durable all that has been written; *failed: positions that did not take it. */
void obj_seg_sync(obj_seg *seg, uint16_t *failed);
void obj_seg_unref(obj_seg *seg);
bool obj_seg_in_use(tarn_store *s, uint64_t id); /* may still get or have got records that no row knows of */

/* ------------------------------------------------------------------ digests */
typedef struct obj_digest {
    obj_ctx *ctx;
    bool want_md5, md5_left; /* left: final, no longer active */
    bool at_sync;            /* all of it is one block, hashed while it is synced: the owner sets it after begin */
    tarn_md5_state md5;
    tarn_sum *sha256; /* of sums: hashed together with MD5; NULL: not wanted, or no MD5 is */
    size_t md5_done;  /* bytes of the current block that are hashed */
    unsigned jobs;    /* blocks waiting in the context's queue */
    tarn_sum sums[3]; /* the requested checksum, CRC64NVME, SHA-256: those wanted */
    size_t sums_n;
    size_t sums_done;     /* bytes of the current block that are summed */
    tarn_link small_link; /* in md5_small with these bytes */
    const uint8_t *small_p;
    size_t small_n;
} obj_digest;
tarn_err obj_digest_begin(obj_digest *d, obj_ctx *c, bool want_md5, const tarn_sum_kind *kinds, size_t kinds_n);
/* The block has grown to b->n bytes. */
void obj_digest_grow(obj_digest *d, obj_block *b, bool block_done);
/* All of a small upload is in the block: hashed now, with others that are as far. May let the other fibers run first. */
void obj_digest_small(obj_digest *d, const obj_block *b);
void obj_digest_wait(obj_digest *d); /* hashes until no block of this stream waits */
/* The drives work, and whoever asks waits for them: hashes what waits, where it is worth a round. */
void obj_digest_ahead(obj_ctx *c);
void obj_digest_md5(obj_digest *d, uint8_t out[TARN_MD5_BYTES]); /* the stream has ended */
/* Valid once the stream has ended (obj_digest_md5 was called, where MD5 is wanted). NULL: not among those wanted. */
const tarn_sum *obj_digest_sum(const obj_digest *d, tarn_sum_kind kind);
/* Wanted only now, while all that came so far is in `cur` (NULL: nothing). */
tarn_err obj_digest_add_sha256(obj_digest *d, const obj_block *cur);
void obj_digest_end(obj_digest *d);

/* ------------------------------------------------------------------ stripes: reading blobs */
typedef struct obj_reader {
    obj_ctx *ctx;
    const obj_blob *blob;
    tarn_file *files[TARN_SET_DRIVES_MAX]; /* by shard */
    uint16_t opened;                       /* open was tried */
    uint16_t unreachable;                  /* drive out, or file missing */
    uint16_t damaged;                      /* recorded as missing, or its file can't be opened */
    uint16_t unread;                       /* a call failed: it is not known what is there, unlike with a wrong checksum */
    uint16_t avoid;                        /* on a drive that is being filled: asked last */
    bool degraded;                         /* something had to be rebuilt, or failed */
    bool uncached;                         /* the page cache did not have a shard: the drives are asked from now on */
} obj_reader;
typedef struct obj_stripe {
    obj_block *block;
    tarn_batch *batch;
    uint64_t index;
    size_t len, shard_len;
    uint16_t want, asked, good, bad;
} obj_stripe;
void obj_reader_init(obj_reader *r, obj_ctx *c, const obj_blob *b);
void obj_reader_close(obj_reader *r);
/*
 * Starts to read the shards of the mask; wait verifies and, unless exact, rebuilds what failed. While the page cache has what
 * is asked for, it is read and verified in start already: reading ahead is of no use then.
 */
tarn_err obj_stripe_start(obj_reader *r, obj_stripe *st, uint64_t index, uint16_t want);
tarn_err obj_stripe_wait(obj_reader *r, obj_stripe *st);
void obj_stripe_release(obj_stripe *st);
uint8_t *obj_stripe_shard(const obj_stripe *st, unsigned k, unsigned shard);

/* ------------------------------------------------------------------ versions in a transaction */
typedef struct obj_apply {
    tarn_store *store;
    const tarn_put_conditions *conditions;
    uint16_t repair; /* not 0: queue a repair of the new version */
    bool recovered;  /* made from a record: time and null_version are the row's own */
} obj_apply;
/* Inserts the row as the bucket's versioning says, after the conditions; sets seq, nonce, null_version, mtime. */
tarn_err obj_version_apply(const obj_apply *a, tarn_meta_tx *tx, const tarn_bucket_row *bucket, tarn_version_row *row);
/* The data of a version that goes in this transaction. */
tarn_err obj_drop_data(tarn_meta_tx *tx, const tarn_version_row *row);
tarn_err obj_drop_part(tarn_meta_tx *tx, const tarn_part_row *row);
tarn_err obj_conditions_check(const tarn_put_conditions *c, tarn_err current_err, const tarn_version_row *current);

/* Part attributes: up to three checksums; the first is the one the client knows of. */
#define OBJ_PART_SUMS_MAX 3
typedef struct obj_part_attrs {
    tarn_checksum sums[OBJ_PART_SUMS_MAX];
    size_t n;
    bool repair; /* a shard is missing */
} obj_part_attrs;
tarn_err obj_part_attrs_pack(const obj_part_attrs *p, tarn_arena *a, tarn_str *out);
tarn_err obj_part_attrs_unpack(tarn_str packed, obj_part_attrs *out);

/* ------------------------------------------------------------------ background */
typedef bool (*obj_stop_fn)(tarn_store *s); /* NULL: run to the end */
struct obj_background {
    tarn_loop *loop;
    atomic_bool stop;
};
typedef struct obj_repair_wish {
    tarn_link link;
    uint64_t bucket_id, seq;
    tarn_str key;
    char key_mem[TARN_KEY_BYTES_MAX];
} obj_repair_wish;
/* Runs fn(arg) where it may block: on a helper thread, or at once for a simulated file system. */
void obj_offload(tarn_store *s, void (*fn)(void *arg), void *arg);
/*
 * Calls fn for every version of every bucket, in pages: between two calls, and in fn, anything may happen (fn may park).
 * Rows live during the call. fn's error ends the scan.
 */
tarn_err obj_scan_versions(tarn_store *s, obj_stop_fn stop, tarn_err (*fn)(void *ctx, const tarn_version_row *row), void *ctx);
tarn_err obj_scan_buckets(tarn_store *s, tarn_err (*fn)(void *ctx, uint64_t bucket_id), void *ctx);
/* The ids of all uploads that are not complete. */
tarn_err obj_scan_uploads(tarn_store *s, tarn_err (*fn)(void *ctx, uint64_t upload_id), void *ctx);
/* The same for the rows of the part table under a data id. */
tarn_err obj_scan_parts(tarn_store *s, uint64_t data_id, tarn_err (*fn)(void *ctx, const tarn_part_row *row), void *ctx);
/* Copies into the arena what the row points to; false: no memory. */
bool obj_keep_str(tarn_arena *a, tarn_str *s);
bool obj_keep_version(tarn_arena *a, tarn_version_row *r);
tarn_err obj_version_by_seq(tarn_store *s, uint64_t bucket_id, tarn_str key, uint64_t seq, tarn_arena *a, tarn_version_row *out);
/* Any thread, never waits; when the queue is full the wish is dropped (the next read has it again). */
void obj_repair_ask(tarn_store *s, uint64_t bucket_id, tarn_str key, uint64_t seq);
/* Verifies every shard of the version and rewrites what is missing or damaged. *open: shards that could not be written. */
tarn_err obj_repair_version(tarn_store *s, const tarn_version_row *row, unsigned *open);
tarn_err obj_repair_upload(tarn_store *s, uint64_t upload_id, unsigned *open);
tarn_err obj_repair_pass(tarn_store *s, obj_stop_fn stop);
tarn_err obj_fill_pass(tarn_store *s, obj_stop_fn stop);
tarn_err obj_garbage_pass(tarn_store *s, int64_t age_ms, obj_stop_fn stop);
tarn_err obj_sweep_pass(tarn_store *s, int64_t age_ms, obj_stop_fn stop);

#endif
