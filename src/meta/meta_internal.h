/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private to meta: connections, statements, the transaction, the store.
 *
 * Threads: a meta_conn belongs to one thread at a time (SQLite runs without its own locks, NOMUTEX). The committer's
 * belongs to the committer thread, a reader's to the thread that made it. The list of readers has a lock.
 */
#ifndef TARN_META_INTERNAL_H
#define TARN_META_INTERNAL_H

#include <pthread.h>
#include <sqlite3.h>
#include <stdatomic.h>

#include "tarn/meta.h"

/* ------------------------------------------------------------------ limits of our own */
#ifndef META_PAGE_BYTES      /* a measurement may try another */
#define META_PAGE_BYTES 4096 /* measured: see docs/on-disk-format.md, "Metadata database" */
#endif
#define META_PAGE_RESERVED_BYTES 8 /* checksum and page number at the end of each page */
#define META_WRITER_CACHE_KIB_MAX 16384
#define META_LOG_KEEP_BYTES (64 * 1024 * 1024) /* a log that grew longer is cut back when it starts over */
#define META_GROUP_MAX 512                     /* transactions of one group commit */
#define META_SEQ_RESERVE 1048576               /* numbers reserved on disk at once */
#define META_SEQ_PER_FN_MAX 65536              /* numbers that one function may draw */
#define META_TX_ARENA_BYTES_MAX (64u * 1024 * 1024)
#define META_LIST_ROWS_PER_READ 4096  /* rows looked at in one read transaction */
#define META_LIST_STEPS_BEFORE_SEEK 8 /* rows under a common prefix that are stepped over before a seek */
#define META_WRONG_READS_MAX 16       /* wrong pages or frames of a copy until it is asked after the others */
#define META_NAME_BYTES_MAX 4096      /* owners, properties' small brothers: sanity limit of short texts */
#define META_TEXT_BYTES_MAX (1024 * 1024)

#define META_BUCKETS_KEPT 16             /* rows of buckets that a connection remembers; a power of two */
#define META_BUCKET_KEPT_BYTES_MAX 16384 /* a row with longer texts is read anew each time */

/* ------------------------------------------------------------------ connection and statements */
typedef enum meta_sql {
#define META_SQL(id, text) META_SQL_##id,
#include "sql.h"
#undef META_SQL
    META_SQL_COUNT
} meta_sql;

/* A bucket's row as it was read last (bucket.c). */
typedef struct meta_bucket_kept {
    uint64_t changes; /* the store's bucket_changes before it was read; 0: nothing is kept */
    tarn_bucket_row row;
    char *memory; /* of its texts */
} meta_bucket_kept;

typedef struct meta_conn {
    sqlite3 *db;
    tarn_meta *meta;
    sqlite3_stmt *stmts[META_SQL_COUNT]; /* prepared at first use */
    bool in_use[META_SQL_COUNT];
    meta_bucket_kept buckets[META_BUCKETS_KEPT];
    struct meta_conn *next; /* list of readers */
} meta_conn;

/* One use of a statement. Errors stick: check the result of the last call. Every begun query must be ended. */
typedef struct meta_q {
    meta_conn *c;
    sqlite3_stmt *s;
    meta_sql id;
    int n;     /* parameters bound so far */
    int rc;    /* SQLITE_OK, or the first error */
    bool temp; /* the cached statement was in use: s is one for this time only */
} meta_q;

tarn_err meta_err(int sqlite_rc);
const char *meta_sql_text(meta_sql id);
tarn_err meta_conn_open(tarn_meta *m, bool writer, meta_conn **out);
void meta_conn_close(meta_conn *c);
tarn_err meta_readers_init(tarn_meta *m);
void meta_readers_close(tarn_meta *m);
/* The connection to read with: the transaction's, or the calling thread's own. */
tarn_err meta_conn_for(tarn_meta *m, tarn_meta_tx *tx, meta_conn **out);

tarn_err meta_q_begin(meta_q *q, meta_conn *c, meta_sql id);
void meta_q_u64(meta_q *q, uint64_t v);
void meta_q_i64(meta_q *q, int64_t v);
void meta_q_blob(meta_q *q, tarn_str s);
void meta_q_text(meta_q *q, tarn_str s);
void meta_q_null(meta_q *q);
/* meta_conn_for, then meta_q_begin on it: a query for reading. */
tarn_err meta_q_read(meta_q *q, tarn_meta *m, tarn_meta_tx *tx, meta_sql id);
/* Steps; *row says whether there is one. */
tarn_err meta_q_step(meta_q *q, bool *row);
void meta_q_end(meta_q *q); /* safe when begin failed */
/* For writes: runs to the end, ends the query, tells the number of rows changed (may be NULL). */
tarn_err meta_q_run(meta_q *q, uint64_t *changes);
/* For reading one value: steps once, ends the query. *out is written on success alone. */
tarn_err meta_q_one_text(meta_q *q, tarn_arena *a, tarn_str *out); /* kept in the arena; no row: NOT_FOUND */
tarn_err meta_q_one_bool(meta_q *q, bool *out);                    /* no row: false */
/* A statement without parameters. */
tarn_err meta_exec(meta_conn *c, meta_sql id);

uint64_t meta_col_u64(const meta_q *q, int i);
int64_t meta_col_i64(const meta_q *q, int i);
uint32_t meta_col_u32(const meta_q *q, int i);
tarn_str meta_col_str(const meta_q *q, int i); /* lives until the next step */
/* Copies all slices into the arena in one piece. NO_MEMORY when it does not fit. */
tarn_err meta_keep(tarn_arena *a, tarn_str *const *slices, size_t n);

/* ------------------------------------------------------------------ the transaction (one for the store) */
struct tarn_meta_tx {
    tarn_meta *meta;
    meta_conn *c;
    tarn_arena *arena; /* made at first use, reset between functions */
    int64_t now_ms;
    uint64_t seq_next;   /* the next number to hand out */
    uint64_t seq_limit;  /* numbers below are reserved on disk */
    uint64_t seq_drawn;  /* by the running function */
    bool savepoint;      /* the running function has begun to write */
    tarn_err broken;     /* the running function must fail whatever it returns */
    bool bucket_written; /* in the group that runs: no row that was kept is believed in it */
};
/* Begins a statement that changes a row of a bucket. */
tarn_err meta_bucket_w_begin(meta_q *q, tarn_meta_tx *tx, meta_sql id);
/* The group is over, whatever became of it; before anybody is answered. */
void meta_bucket_group_over(tarn_meta_tx *tx);
void meta_bucket_forget_all(meta_conn *c); /* frees what the connection remembers */
/* Begins a statement that writes: opens the function's savepoint first. */
tarn_err meta_w_begin(meta_q *q, tarn_meta_tx *tx, meta_sql id);

/* ------------------------------------------------------------------ committer */
typedef struct meta_committer meta_committer;
tarn_err meta_committer_start(tarn_meta *m, meta_conn *c, bool inline_mode, meta_committer **out);
void meta_committer_stop(meta_committer *k); /* answers what is queued, then ends; the connection stays */
tarn_err meta_committer_commit(meta_committer *k, tarn_meta_fn fn, void *arg);
tarn_err meta_committer_checkpoint(meta_committer *k);
/* Runs call(arg) between two groups: nothing is being written then. */
tarn_err meta_committer_call(meta_committer *k, void (*call)(void *arg), void *arg);

/* ------------------------------------------------------------------ schema */
#define META_SCHEMA_VERSION 2 /* the database's user_version */
tarn_err meta_schema_open(meta_conn *c);
tarn_err meta_schema_create(meta_conn *c);

/* ------------------------------------------------------------------ the store */
typedef struct meta_vfs meta_vfs;
/* When checkpoints are made (committer.c), in WAL frames. Tests make them small. */
typedef struct meta_checkpoint_plan {
    uint64_t step_frames;    /* so many are copied at once */
    uint64_t behind_frames;  /* so many wait for the drives at the most */
    uint64_t restart_frames; /* the log is to start over from here on */
    uint64_t force_frames;   /* … and readers are waited for */
} meta_checkpoint_plan;
#define META_CHECKPOINT_PLAN ((meta_checkpoint_plan){200, 4000, 8000, 32000}) /* see docs/performance.md, "Short steps" */
struct tarn_meta {
    meta_vfs *vfs;
    meta_conn *writer;
    meta_committer *committer;
    meta_checkpoint_plan plan;
    unsigned queue_max; /* TARN_META_QUEUE_MAX; tests make it small */
    uint64_t cache_bytes;
    _Atomic(uint64_t) bucket_changes; /* from 1; moves with every group that has changed a bucket */
    bool read_only;                   /* fewer copies than the write quorum: nothing can be committed */
    pthread_key_t reader_key;
    bool reader_key_made;
    pthread_mutex_t readers_lock;
    meta_conn *readers;
};

/* ------------------------------------------------------------------ rows, shared by object.c and list.c */
#define META_FLAG_NULL 1
#define META_FLAG_DELETE_MARKER 2
#define META_FLAG_LEGAL_HOLD 4
#define META_FLAG_RETENTION_SHIFT 3 /* two bits */
#define META_FLAG_RETENTION_MASK 24
#define META_ETAG_BYTES_MAX 64
/* Reads the columns META_OBJ_COLS or (all = false) META_LIST_COLS. etag_mem holds the text of a packed ETag. */
void meta_version_read(const meta_q *q, bool all, uint64_t bucket_id, char etag_mem[META_ETAG_BYTES_MAX], tarn_version_row *out);

/* The smallest string greater than everything that begins with s, in mem (at least s.n bytes); false: there is none. */
bool meta_prefix_end(tarn_str s, uint8_t *mem, tarn_str *out);
/* An upper bound past every key. */
tarn_str meta_key_end(void);

#endif
