/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The simulation of the whole store: what the files of tests/sim share.
 *
 * A *plan* is a list of operations, made from a seed or read from a regression file. A *run* carries one out on simulated
 * drives, checks each answer against a *model* in memory, and after every restart that all that was acknowledged is there and
 * each operation that was not is there as a whole or not at all. Each operation has a seed of its own for everything random
 * in it, so that an operation can be left out and the others stay what they were: that is how a failing plan is shrunk.
 *
 * Faults stay within the promise: `affected` are the drives that may have lost something since the last full healing, never
 * more than the set tolerates. Power cuts take all drives at once.
 */
#ifndef TARN_TESTS_SIM_H
#define TARN_TESTS_SIM_H

#include "private.h"

/* ------------------------------------------------------------------ plans (sim_plan.c) */
#define SIM_OPS_MAX 4096
/* name, weight (per mille of a fresh plan) */
#define SIM_OP_LIST(X)                                                                                                                     \
    X(PUT, 190)                                                                                                                            \
    X(PUT_IF, 40)                                                                                                                          \
    X(COPY, 30)                                                                                                                            \
    X(GET, 120)                                                                                                                            \
    X(GET_VERSION, 40)                                                                                                                     \
    X(DELETE, 50)                                                                                                                          \
    X(DELETE_VERSION, 40)                                                                                                                  \
    X(DELETE_MANY, 12)                                                                                                                     \
    X(LIST, 35)                                                                                                                            \
    X(LIST_VERSIONS, 20)                                                                                                                   \
    X(TAG, 25)                                                                                                                             \
    X(VERSIONING, 6)                                                                                                                       \
    X(UPLOAD, 16)                                                                                                                          \
    X(PART, 30)                                                                                                                            \
    X(COMPLETE, 18)                                                                                                                        \
    X(ABORT, 5)                                                                                                                            \
    X(TABLE_CREATE, 15)                                                                                                                    \
    X(TABLE_COMMIT, 50)                                                                                                                    \
    X(TABLE_LOAD, 20)                                                                                                                      \
    X(TABLE_DROP, 4)                                                                                                                       \
    X(REPAIR, 20)                                                                                                                          \
    X(GARBAGE, 15)                                                                                                                         \
    X(SWEEP, 6)                                                                                                                            \
    X(CHECKPOINT, 10)                                                                                                                      \
    X(CLOCK, 10)                                                                                                                           \
    X(RESTART, 12)                                                                                                                         \
    X(CUT, 14)                                                                                                                             \
    X(CUT_LATER, 22)                                                                                                                       \
    X(FAULT, 40)                                                                                                                           \
    X(HEALTHY, 20)                                                                                                                         \
    X(DAMAGE, 12)                                                                                                                          \
    X(REPLACE, 6)                                                                                                                          \
    X(UNPLUG, 6)                                                                                                                           \
    X(FULL, 6)                                                                                                                             \
    X(ROOM, 12)                                                                                                                            \
    X(FILL, 8)                                                                                                                             \
    X(HEAL, 12)                                                                                                                            \
    X(COMPACT, 30)

typedef enum op_kind {
#define SIM_OP_ENUM(name, weight) OP_##name,
    SIM_OP_LIST(SIM_OP_ENUM)
#undef SIM_OP_ENUM
        OP_COUNT
} op_kind;

typedef struct sim_op {
    op_kind kind;
    uint32_t a, b, c;
    bool together; /* runs at the same time as the next one */
    uint64_t seed;
} sim_op;

typedef enum canary { /* a guarantee that is switched off: a run must see it */
                      CANARY_NONE,
                      CANARY_DATA_SYNC,
                      CANARY_META_SYNC,
                      CANARY_DIR_SYNC,
                      CANARY_CHECKSUM,
                      CANARY_MIRROR,
                      CANARY_HEAL,
                      CANARY_COUNT
} canary;
extern const char *const canary_names[CANARY_COUNT];

typedef struct plan {
    size_t drives_n;
    canary canary;
    sim_op *ops;
    size_t n;
} plan;
uint64_t rnd(uint64_t *state);
uint64_t rnd_below(uint64_t *state, uint64_t n);
void plan_make(plan *p, uint64_t seed, size_t ops_n, size_t drives_n);
bool plan_read(plan *p, const char *path);
bool plan_write(const plan *p, const char *path, const char *remark);
void plan_print_op(const sim_op *op, size_t i);
void plan_free(plan *p);

/* ------------------------------------------------------------------ the model */
#define BUCKETS 3 /* without versioning, with, and one whose versioning is switched on and off */
#define KEYS_PER_BUCKET 12
#define KEYS (BUCKETS * KEYS_PER_BUCKET)
#define VERSIONS_MAX 10
#define PIECES_MAX 2
#define SLOTS 3 /* uploads at a time */
#define PARTS 2
#define TABLES 3
#define FILES_MAX 2048
#define INLINE_MAX 4096
#define SEGMENT_MAX (200 * 1024)
#define COMPACT_DEAD_MIN (64 * 1024) /* dead space that makes a segment worth compacting */
#define NAME_BYTES 64

typedef struct piece {
    uint64_t seed, size;
} piece;
typedef struct mversion {
    piece pieces[PIECES_MAX];
    size_t pieces_n;
    bool marker, null;
    bool ids; /* seq and nonce are known */
    uint64_t seq, nonce;
    uint32_t tag; /* 0: none */
    char etag[64];
} mversion;
typedef struct mkey { /* newest first */
    mversion v[VERSIONS_MAX];
    size_t n;
} mkey;
typedef struct mupload {
    bool open;
    size_t key;
    uint64_t id, nonce;
    struct {
        bool there;
        piece p;
        char etag[64];
    } parts[PARTS];
} mupload;
typedef struct mtable {
    bool exists;
    uint64_t version;
    size_t file; /* its metadata file */
} mtable;
typedef struct mfile {
    char key[NAME_BYTES];
    piece p;
    bool there;
} mfile;
typedef struct model {
    mkey keys[KEYS];
    tarn_versioning versioning[BUCKETS];
    mupload uploads[SLOTS];
    mtable tables[TABLES];
    mfile files[FILES_MAX];
    size_t files_n;
} model;
/* What an operation will have done to the part of the model that it touches, if it is done. */
typedef struct effect {
    size_t keys_n, key_ids[KEYS_PER_BUCKET];
    mkey keys[KEYS_PER_BUCKET];
    int bucket; /* -1: none */
    tarn_versioning versioning;
    int slot;
    mupload upload;
    int table;
    mtable table_after;
    size_t file; /* SIZE_MAX: none; becomes `there` */
} effect;
void effect_none(effect *e);

const char *key_name(size_t key);
size_t key_bucket(size_t key);
tarn_versioning key_versioning(const model *m, size_t key);
uint64_t version_size(const mversion *v);
bool version_live(const mkey *k); /* has a current version that is no marker */
mversion *key_push(mkey *k, tarn_versioning v, bool marker);
void key_remove(mkey *k, size_t i);
void bytes_of(const piece *p, uint64_t off, uint8_t *out, size_t n);
bool bytes_match(const mversion *v, uint64_t off, const uint8_t *p, size_t n);
void etag_of(const piece *p, char out[64]);
void etag_of_parts(const mupload *u, char out[64]);

/* ------------------------------------------------------------------ a run */
typedef struct run {
    const plan *plan;
    tarn_sim *sim;
    tarn_store *s;              /* NULL while it is closed */
    unsigned n, parity, quorum; /* drives of the set, how many may be lost, how many shards a write needs */
    tarn_arena *arena;          /* reset with every operation */
    char drive_mem[TARN_SIM_DRIVES_MAX][16];
    const char *drives[TARN_SIM_DRIVES_MAX];
    tarn_bucket_row buckets[BUCKETS + 1]; /* the last one is the warehouse */
    char bucket_names[BUCKETS + 1][16];
    uint64_t ns_id;
    model m;
    uint32_t affected; /* drives that may have lost something */
    uint32_t faulty;   /* … and have a fault now */
    uint32_t gone;
    bool full;
    bool resolve;                  /* an answer was an error that may have left something, but the store works on: look what became of it */
    bool restart;                  /* an answer was an error that may have left something: the next step is a restart */
    effect doubts[64];             /* unacknowledged: done, or not */
    size_t doubts_n, old_doubts_n; /* the old ones were not done when looked at; a power cut may yet bring them */
    uint64_t seq_max;
    uint64_t segment_bytes; /* 0: as in all runs */
    size_t at;              /* operation */
    uint64_t done_n, hash;
    bool verbose;
    bool lenient; /* any error of the 5xx kind is excused */
    bool failed;
    char why[1024];
} run;
void run_fail(run *r, const char *fmt, ...) TARN_PRINTF(2, 3);
/* Carries the plan out; false when it failed: r->why tells. */
bool run_plan(run *r, const plan *p, bool verbose);
bool run_init(run *r, const plan *p, bool verbose); /* the machine, nothing on it */
bool run_begin(run *r);                             /* a new store with its buckets */
bool run_make_buckets(run *r);
void run_free(run *r);
tarn_store_options run_options(const run *r);
tarn_err run_try_open(run *r, tarn_str *reason);
bool run_open(run *r, const char *when);
bool run_open_forgiving(run *r, const char *when);
void run_opened(run *r); /* after any opening: decides the doubts, compares all with the model */
void run_close(run *r);
void run_restart(run *r, bool power_cut);
unsigned run_affected_n(const run *r);
bool run_must_write(const run *r); /* the promise holds for writes now */

/* sim_exec.c: what clients do */
typedef struct exec {
    run *r;
    const sim_op *op;
    tarn_arena *arena;
    tarn_err want, got;
    effect e;
    bool changes;       /* it has an effect when it succeeds */
    uint64_t resources; /* bits: keys, slots, tables */
    size_t key, src, version;
    int slot, table;
    tarn_put_conditions cond;
    char cond_etag[64];
    piece p;
    bool size_known, stale;
    tarn_put_result put;
    uint64_t id, nonce;
    char why[256]; /* a wrong byte, a wrong field */
} exec;
bool exec_is_client(op_kind k);
uint64_t size_of_class(uint64_t *rng); /* of an object to be made */
/* False: the operation makes no sense now and is left out. */
bool exec_prepare(run *r, const sim_op *op, exec *x);
void exec_do(exec *x);     /* on a fiber or a plain thread */
void exec_settle(exec *x); /* compares the answer, moves the model */
tarn_err read_version(exec *x, size_t key, const mversion *v, tarn_version_ref ref, uint64_t off, uint64_t len);

/* sim_check.c */
void check_key(run *r, size_t key);
void check_all(run *r);
tarn_err check_list(run *r, const sim_op *op, bool versions);
void check_table(run *r, size_t t);
void resolve_doubts(run *r);
bool check_upload_whole(run *r, const mupload *u);
void check_whole(run *r);        /* every shard of everything is where it belongs */
void check_nothing_left(run *r); /* after everything was deleted and swept */

/* sim_faults.c: what happens to drives */
void fault_do(run *r, const sim_op *op);
void heal(run *r);

/* sim_upkeep.c: an operator's work, for the nth-fault loop */
typedef enum upkeep_work { UPKEEP_NONE, UPKEEP_HEAL, UPKEEP_COMPACT, UPKEEP_FSCK, UPKEEP_REBUILD } upkeep_work;
void upkeep_begin(run *r, upkeep_work work);                  /* before the setup */
void upkeep_prepare(run *r, upkeep_work work);                /* after it */
tarn_err upkeep_do(run *r, upkeep_work work, bool faultless); /* faultless: it must find all well */
void upkeep_finish(run *r, upkeep_work work, tarn_err err);   /* without a fault; err: what it ended with */

/* sim_nth.c */
typedef struct nth_options {
    const char *only;  /* NULL: all scenarios */
    const char *fault; /* NULL: all kinds */
    uint64_t drives;   /* 0: one, and four */
    uint64_t call;     /* 0: not this call alone */
    uint64_t sample;   /* so many calls of each kind; 0: each */
    uint64_t seed;     /* which ones */
    uint64_t jobs;
} nth_options;
int nth_main(const nth_options *o);
/* sim_main.c: a process that hangs ends by a signal. Its own CPU time counts: the machine may be busy with other things. */
void sim_limit_seconds(unsigned cpu_seconds);

/* sim_canary.c */
void canary_set(canary c);

#endif
