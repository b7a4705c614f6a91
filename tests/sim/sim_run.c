/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A run: the machine, the store on it, the operations one after the other or some at the same time, restarts and power cuts,
 * and the examination at the end: everything is healed, as many drives as the promise tolerates are lost, all is read; then
 * all is deleted, and nothing may be left on the drives.
 */
#include "sim.h"
#include "upkeep.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ARENA_BYTES (256u << 20)
#define START_MS 1767225600000
#define DRIVE_BYTES (8ull << 30)
#define SEGMENT_BYTES (2ull << 20)
#define TOGETHER_MAX 6

void run_fail(run *r, const char *fmt, ...)
{
    va_list ap;
    tarn_sb b;
    if (r->failed)
        return;
    r->failed = true;
    tarn_sb_init_fixed(&b, r->why, sizeof r->why);
    tarn_sb_fmt(&b, "operation %zu: ", r->at);
    va_start(ap, fmt);
    tarn_sb_vfmt(&b, fmt, ap);
    va_end(ap);
}

/* ------------------------------------------------------------------ open and close */
void run_close(run *r)
{
    tarn_store_close(r->s);
    r->s = NULL;
    const char *path = "";
    size_t n = tarn_sim_open_files(r->sim, &path);
    if (n > 0)
        run_fail(r, "%zu files stayed open when the store was closed, %s for one", n, path);
}

tarn_store_options run_options(const run *r)
{
    return (tarn_store_options){.fs = tarn_sim_fs(r->sim),
                                .drives = r->drives,
                                .drives_n = r->plan->drives_n,
                                .inline_bytes_max = INLINE_MAX,
                                .segment_object_bytes_max = SEGMENT_MAX,
                                .inline_committer = true};
}

tarn_err run_try_open(run *r, tarn_str *reason)
{
    tarn_store_options o = run_options(r);
    tarn_err err = tarn_store_open(&o, &r->s, r->arena, reason);
    if (err) {
        r->s = NULL;
        return err;
    }
    r->s->segment_bytes = r->segment_bytes ? r->segment_bytes : SEGMENT_BYTES;
    if (!r->segment_bytes)
        r->s->compact_dead_min = COMPACT_DEAD_MIN;
    r->n = r->s->n;
    r->parity = r->s->m;
    r->quorum = r->s->write_quorum;
    return TARN_OK;
}

bool run_open(run *r, const char *when)
{
    tarn_str reason = TARN_STR("");
    tarn_err err = run_try_open(r, &reason);
    if (err)
        run_fail(r, "the store does not open %s: %s: %.*s", when, tarn_err_get(err)->name, TARN_STR_ARG(reason));
    return err == TARN_OK;
}

static void buckets_again(run *r)
{
    for (size_t i = 0; i <= BUCKETS && !r->failed; i++) {
        tarn_bucket_row row;
        tarn_err err = tarn_meta_bucket_get(tarn_store_meta(r->s), NULL, tarn_str_of(r->bucket_names[i]), r->arena, &row);
        if (err) {
            run_fail(r, "bucket %s: %s", r->bucket_names[i], tarn_err_get(err)->name);
            return;
        }
        row.name = tarn_str_of(r->bucket_names[i]);
        row.owner = TARN_STR("me");
        row.warehouse_uuid = row.warehouse_properties = TARN_STR("");
        r->buckets[i] = row;
    }
}

/* A set without redundancy, or with full drives, may refuse to start until that has ended. */
bool run_open_forgiving(run *r, const char *when)
{
    bool excused = r->full || (r->affected && !run_must_write(r));
    for (unsigned tries = 0; !run_open(r, when); tries++) {
        if (tries == 2)
            return false;
        if (tarn_sim_power_lost(r->sim)) { /* it was armed, and went while the store was being opened */
            tarn_sim_power_on(r->sim);
        } else if (excused) {
            for (size_t i = 0; i < r->plan->drives_n; i++) {
                if (!(r->gone & (1u << i)))
                    tarn_sim_set_fault(r->sim, i, NULL);
            }
            r->full = excused = false;
            r->faulty = r->gone;
        } else {
            return false;
        }
        r->failed = false;
    }
    return true;
}

/* What the store says now is what became of the operations without an answer; everything else must be there. */
void run_opened(run *r)
{
    resolve_doubts(r);
    if (!r->failed)
        buckets_again(r);
    if (!r->failed)
        check_all(r);
}

void run_restart(run *r, bool power_cut)
{
    if (power_cut)
        tarn_sim_cut_now(r->sim);
    bool lost = tarn_sim_power_lost(r->sim);
    run_close(r);
    lost = lost || tarn_sim_power_lost(r->sim); /* it may go while the store is being closed */
    if (lost)
        tarn_sim_power_on(r->sim);
    r->restart = false;
    if (r->parity == 0 && r->affected) { /* the one drive works again */
        for (size_t i = 0; i < r->n; i++)
            tarn_sim_set_fault(r->sim, i, NULL);
        r->affected = r->faulty = r->gone = 0;
        r->full = false;
    }
    if (!run_open_forgiving(r, lost ? "after a power cut" : "after a restart"))
        return;
    if (tarn_sim_power_lost(r->sim)) /* armed, and gone while the store was being opened */
        return;
    if (r->verbose)
        (void)printf("     %s, %zu copies of the metadata are good\n", lost ? "started after a power cut" : "started",
                     tarn_meta_copies_good(tarn_store_meta(r->s)));
    run_opened(r);
}

/* ------------------------------------------------------------------ the beginning */
static tarn_err bucket_fn(tarn_meta_tx *tx, void *arg)
{
    return tarn_meta_bucket_create(tx, arg);
}

static tarn_err ns_fn(tarn_meta_tx *tx, void *arg)
{
    return tarn_meta_ns_create(tx, arg);
}

bool run_make_buckets(run *r)
{
    static const char *const names[BUCKETS + 1] = {"plain", "versioned", "suspended", "warehouse"};
    static const tarn_versioning modes[BUCKETS + 1] = {TARN_VERSIONING_OFF, TARN_VERSIONING_ENABLED, TARN_VERSIONING_ENABLED,
                                                       TARN_VERSIONING_OFF};
    for (size_t i = 0; i <= BUCKETS; i++) {
        tarn_sb b;
        tarn_sb_init_fixed(&b, r->bucket_names[i], sizeof r->bucket_names[i]);
        tarn_sb_cstr(&b, names[i]);
        r->buckets[i] = (tarn_bucket_row){.name = tarn_str_of(r->bucket_names[i]),
                                          .owner = TARN_STR("me"),
                                          .created_ms = START_MS,
                                          .versioning = modes[i],
                                          .warehouse = i == BUCKETS};
        if (i < BUCKETS)
            r->m.versioning[i] = modes[i];
        tarn_err err = tarn_meta_commit(tarn_store_meta(r->s), bucket_fn, &r->buckets[i]);
        if (err)
            run_fail(r, "bucket %s can't be made: %s", names[i], tarn_err_get(err)->name);
    }
    tarn_ns_row ns = {.bucket_id = r->buckets[BUCKETS].id, .path = TARN_STR("ns"), .properties = TARN_STR("{}"), .created_ms = START_MS};
    tarn_err err = tarn_meta_commit(tarn_store_meta(r->s), ns_fn, &ns);
    if (err)
        run_fail(r, "the namespace can't be made: %s", tarn_err_get(err)->name);
    r->ns_id = ns.id;
    return !r->failed;
}

bool run_begin(run *r)
{
    return run_open(r, "for the first time") && run_make_buckets(r);
}

/* ------------------------------------------------------------------ operations at the same time */
typedef struct group {
    exec x[TOGETHER_MAX];
    size_t n, left;
    tarn_loop *loop;
} group;
typedef struct member {
    group *g;
    exec *x;
} member;

static void member_main(void *arg)
{
    member *m = arg;
    exec_do(m->x);
    if (--m->g->left == 0)
        tarn_loop_stop(m->g->loop);
}

static void group_do(run *r, group *g)
{
    static const tarn_loop_options o = {.backend = TARN_IO_THREADS, .threads = 1, .name = "sim", .grace_ms = 3600000};
    member members[TOGETHER_MAX];
    tarn_err err = tarn_loop_create(&o, &g->loop);
    g->left = g->n;
    for (size_t i = 0; i < g->n && !err; i++) {
        members[i] = (member){g, &g->x[i]};
        err = tarn_fiber_spawn(g->loop, member_main, &members[i], "op");
    }
    if (err) {
        run_fail(r, "no loop: %s", tarn_err_get(err)->name);
        return;
    }
    tarn_loop_run(g->loop);
    tarn_loop_destroy(g->loop);
}

/* As many operations as are marked to run together and don't touch the same things. Returns how many were taken. */
static size_t clients(run *r, const sim_op *ops, size_t n)
{
    group *g = calloc(1, sizeof *g);
    size_t taken = 0;
    uint64_t used = 0;
    TARN_ASSERT(g != NULL);
    while (taken < n && g->n < TOGETHER_MAX && exec_is_client(ops[taken].kind)) {
        exec *x = &g->x[g->n];
        bool sense = exec_prepare(r, &ops[taken], x);
        if (x->changes && r->doubts_n + g->n >= TARN_ARRAY_LEN(r->doubts))
            sense = false; /* drives that are full for long: what was refused must be remembered */
        if (sense && (used & x->resources))
            break; /* its turn comes with the next ones */
        taken++;
        if (sense) {
            used |= x->resources;
            x->arena = tarn_arena_new(ARENA_BYTES);
            TARN_ASSERT(x->arena != NULL);
            g->n++;
        }
        if (!ops[taken - 1].together)
            break;
    }
    if (g->n == 1)
        exec_do(&g->x[0]);
    else if (g->n > 1)
        group_do(r, g);
    for (size_t i = 0; i < g->n; i++) {
        exec_settle(&g->x[i]);
        if (r->failed && strstr(r->why, " [") == NULL) {
            size_t have = strlen(r->why);
            tarn_sb b;
            tarn_sb_init_fixed(&b, r->why + have, sizeof r->why - have);
            tarn_sb_fmt(&b, " [member %zu of %zu, key %zu]", i, g->n, g->x[i].key);
        }
    }
    for (size_t i = 0; i < g->n; i++) {
        r->seq_max = g->x[i].put.row.seq > r->seq_max ? g->x[i].put.row.seq : r->seq_max;
        tarn_arena_free(g->x[i].arena);
    }
    free(g);
    return taken > 0 ? taken : 1;
}

/* ------------------------------------------------------------------ one step */
static void upkeep(run *r, const char *what, tarn_err err)
{
    if (!err)
        return;
    if (tarn_sim_power_lost(r->sim) || r->affected || r->full)
        r->restart = r->restart || tarn_err_get(err)->http_status >= 500;
    else
        run_fail(r, "%s: %s", what, tarn_err_get(err)->name);
}

static void listing(run *r, const sim_op *op)
{
    tarn_err err = check_list(r, op, op->kind == OP_LIST_VERSIONS);
    if (err && !tarn_sim_power_lost(r->sim) && !(r->parity == 0 && r->affected))
        run_fail(r, "a listing failed: %s", tarn_err_get(err)->name);
}

static void other(run *r, const sim_op *op)
{
    switch (op->kind) {
    case OP_LIST:
    case OP_LIST_VERSIONS:
        listing(r, op);
        break;
    case OP_SWEEP:
        upkeep(r, "sweep", obj_sweep_pass(r->s, op->c % 2 ? 0 : TARN_GARBAGE_AGE_MS, NULL));
        break;
    case OP_COMPACT: /* what it leaves behind is for the sweeps that follow, at once or an hour later */
        upkeep(r, "compaction", obj_compact_pass(r->s, NULL));
        break;
    case OP_CHECKPOINT:
        upkeep(r, "checkpoint", tarn_meta_checkpoint(tarn_store_meta(r->s)));
        break;
    case OP_FILL:
        upkeep(r, "fill", obj_fill_pass(r->s, NULL));
        break;
    case OP_CLOCK:
        if (op->c % 3 == 0)
            tarn_clock_step((int64_t)(op->b % 7200000) - 3600000);
        else
            tarn_clock_advance((op->b % 10000) * 1000000000ull);
        break;
    case OP_RESTART:
        run_restart(r, false);
        break;
    case OP_CUT:
        run_restart(r, true);
        break;
    case OP_CUT_LATER:
        tarn_sim_cut_after(r->sim, 1 + op->b % (op->c % 2 ? 40 : 400));
        break;
    default:
        fault_do(r, op);
    }
}

static size_t step(run *r, const sim_op *ops, size_t n)
{
    size_t taken = 1;
    if (r->verbose)
        plan_print_op(ops, r->at);
    tarn_random_seed(ops->seed | 1);
    tarn_sim_reseed(r->sim, ops->seed);
    tarn_arena_reset(r->arena);
    if (exec_is_client(ops->kind))
        taken = clients(r, ops, n);
    else
        other(r, ops);
    if (r->resolve && !r->failed && !r->restart && !tarn_sim_power_lost(r->sim))
        resolve_doubts(r);
    r->resolve = false;
    for (unsigned tries = 0; !r->failed && (tarn_sim_power_lost(r->sim) || r->restart); tries++) {
        if (tries > 3) {
            run_fail(r, "the store does not come to rest");
            break;
        }
        run_restart(r, (ops->seed >> 40) % 3 == 0);
    }
    return taken;
}

/* ------------------------------------------------------------------ the end */
static void lose_tolerated(run *r, uint64_t seed)
{
    run_close(r);
    for (unsigned i = 0; i < r->parity; i++) {
        size_t d = (seed + i) % r->n;
        tarn_sim_replace_drive(r->sim, d);
        r->affected |= 1u << d;
    }
    if (run_open(r, "with as many blank drives as it tolerates"))
        check_all(r);
}

static tarn_err delete_row(void *ctx, const tarn_version_row *row)
{
    run *r = ctx;
    tarn_bucket_row bucket = {.id = row->bucket_id};
    tarn_delete_result res;
    tarn_delete_spec d = {.key = row->key};
    d.version =
        row->null_version ? (tarn_version_ref){.sel = TARN_VERSION_NULL} : (tarn_version_ref){TARN_VERSION_ID, row->seq, row->nonce};
    tarn_err err = tarn_object_delete(r->s, &bucket, &d, 1, &res);
    return err ? err : res.err;
}

static void delete_all(run *r)
{
    tarn_err err = obj_scan_versions(r->s, NULL, delete_row, r);
    for (size_t i = 0; i < SLOTS && !err; i++) {
        const mupload *u = &r->m.uploads[i];
        if (u->open)
            err = tarn_upload_abort(r->s, &r->buckets[key_bucket(u->key)], tarn_str_of(key_name(u->key)), u->id, u->nonce);
    }
    tarn_clock_advance(20ull * 3600 * 1000000000ull);
    if (!err)
        err = tarn_store_collect_garbage(r->s, 0);
    if (err)
        run_fail(r, "everything is deleted: %s", tarn_err_get(err)->name);
    else
        check_nothing_left(r);
}

static void run_end(run *r)
{
    tarn_sim_cut_after(r->sim, 0);
    r->at = r->plan->n;
    heal(r);
    if (!r->failed && r->parity > 0) {
        lose_tolerated(r, r->plan->n > 0 ? r->plan->ops[0].seed : 0);
        if (!r->failed)
            heal(r);
    }
    if (!r->failed)
        delete_all(r);
}

bool run_init(run *r, const plan *p, bool verbose)
{
    memset(r, 0, sizeof *r);
    r->plan = p;
    r->verbose = verbose;
    tarn_clock_fake(true, START_MS);
    tarn_random_seed(1);
    canary_set(p->canary);
    tarn_sim_options o = {.seed = 1, .drives_n = p->drives_n, .drive_bytes = DRIVE_BYTES, .lie_sync_dir = p->canary == CANARY_DIR_SYNC};
    o.lie_sync = p->canary == CANARY_META_SYNC ? "/meta/tarn.db" : p->canary == CANARY_DATA_SYNC ? "/segments/" : NULL;
    o.trace = verbose && getenv("SIM_TRACE") != NULL;
    r->sim = tarn_sim_new(&o);
    r->arena = tarn_arena_new(ARENA_BYTES);
    for (size_t i = 0; i < p->drives_n; i++) {
        tarn_sb b;
        tarn_sb_init_fixed(&b, r->drive_mem[i], sizeof r->drive_mem[i]);
        tarn_sb_fmt(&b, "/d%zu", i);
        r->drives[i] = r->drive_mem[i];
    }
    return r->arena != NULL;
}

void run_free(run *r)
{
    if (!r->failed)
        tarn_sim_free(r->sim);
    tarn_arena_free(r->arena);
}

bool run_plan(run *r, const plan *p, bool verbose)
{
    bool ok = run_init(r, p, verbose) && run_begin(r);
    while (ok && !r->failed && r->at < p->n)
        r->at += step(r, p->ops + r->at, p->n - r->at);
    if (ok && !r->failed)
        run_end(r);
    if (r->s)
        run_close(r);
    r->hash = tarn_sim_hash(r->sim);
    run_free(r);
    return ok && !r->failed;
}
