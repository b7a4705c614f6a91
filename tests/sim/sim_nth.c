/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The nth-fault loop: every call of a scenario that can fail is made to fail once.
 *
 * A scenario is set up once; then, in a process for each n = 1, 2, …, it is carried out while the nth allocation, open, read,
 * write or sync fails. It ends when n is larger than the number of such calls; a sample takes the first calls of each kind and, of
 * the others, as many at even distances, from a place that the seed chooses. Each time: no crash; the answer is right, or the
 * error that belongs to the fault; with redundancy a drive's fault is no error at all (an operator's work may end with one, and is
 * done again); what was not answered is done as a
 * whole or not at all, also after a restart; the store goes on working; all memory is given back (the sanitizer build looks).
 *
 * SQLite's memory comes through the allocation seam as well.
 */
#include "sim.h"

#include <errno.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define SETUP_OPS_MAX 6
#define CHILD_SECONDS_MAX 60
#define FAILURES_MAX 20 /* of a scenario */
#define NO_CALL UINT64_MAX

typedef enum act_kind { ACT_OP, ACT_LIST, ACT_OPEN_NEW, ACT_OPEN_AFTER_CUT, ACT_UPKEEP } act_kind;

typedef enum size_kind { SIZE_ANY, SIZE_INLINE, SIZE_SEGMENT, SIZE_SEGMENT_LARGE, SIZE_FILE } size_kind;
typedef struct step {
    op_kind kind;
    uint32_t a, b, c;
    size_kind size;
} step_spec;

typedef struct scenario {
    const char *name;
    act_kind act;
    upkeep_work work;
    step_spec setup[SETUP_OPS_MAX];
    size_t setup_n;
    unsigned last_again; /* the last of them is done so many times more */
    step_spec op;
} scenario;

static const scenario scenarios[] = {
    {.name = "open-new-store", .act = ACT_OPEN_NEW},
    {.name = "put-inline", .op = {OP_PUT, 0, 0, 1, SIZE_INLINE}},
    {.name = "put-segment", .op = {OP_PUT, 1, 0, 1, SIZE_SEGMENT}},
    {.name = "put-file", .op = {OP_PUT, 2, 0, 1, SIZE_FILE}},
    {.name = "put-size-unknown", .op = {OP_PUT, 2, 0, 0, SIZE_FILE}},
    {.name = "get-inline", .setup = {{OP_PUT, 3, 0, 1, SIZE_INLINE}}, .setup_n = 1, .op = {OP_GET, 3, 0, 0, SIZE_ANY}},
    {.name = "get-segment", .setup = {{OP_PUT, 3, 0, 1, SIZE_SEGMENT}}, .setup_n = 1, .op = {OP_GET, 3, 0, 0, SIZE_ANY}},
    {.name = "get-file", .setup = {{OP_PUT, 3, 0, 1, SIZE_FILE}}, .setup_n = 1, .op = {OP_GET, 3, 0, 0, SIZE_ANY}},
    {.name = "overwrite", .setup = {{OP_PUT, 4, 0, 1, SIZE_SEGMENT}}, .setup_n = 1, .op = {OP_PUT, 4, 0, 1, SIZE_SEGMENT}},
    {.name = "overwrite-if", .setup = {{OP_PUT, 4, 0, 1, SIZE_INLINE}}, .setup_n = 1, .op = {OP_PUT_IF, 4, 0, 1, SIZE_INLINE}},
    {.name = "put-version", .setup = {{OP_PUT, 13, 0, 1, SIZE_SEGMENT}}, .setup_n = 1, .op = {OP_PUT, 13, 0, 1, SIZE_INLINE}},
    {.name = "delete", .setup = {{OP_PUT, 5, 0, 1, SIZE_SEGMENT}}, .setup_n = 1, .op = {OP_DELETE, 5, 0, 0, SIZE_ANY}},
    {.name = "delete-marker", .setup = {{OP_PUT, 14, 0, 1, SIZE_INLINE}}, .setup_n = 1, .op = {OP_DELETE, 14, 0, 0, SIZE_ANY}},
    {.name = "delete-version",
     .setup = {{OP_PUT, 14, 0, 1, SIZE_INLINE}, {OP_PUT, 14, 0, 1, SIZE_SEGMENT}},
     .setup_n = 2,
     .op = {OP_DELETE_VERSION, 14, 0, 0, SIZE_ANY}},
    {.name = "delete-many",
     .setup = {{OP_PUT, 0, 0, 1, SIZE_INLINE}, {OP_PUT, 1, 0, 1, SIZE_SEGMENT}, {OP_PUT, 2, 0, 1, SIZE_INLINE}},
     .setup_n = 3,
     .op = {OP_DELETE_MANY, 0, 2, 0, SIZE_ANY}},
    {.name = "tag", .setup = {{OP_PUT, 6, 0, 1, SIZE_INLINE}}, .setup_n = 1, .op = {OP_TAG, 6, 0, 7, SIZE_ANY}},
    {.name = "multipart-create", .op = {OP_UPLOAD, 0, 7, 0, SIZE_ANY}},
    {.name = "multipart-part", .setup = {{OP_UPLOAD, 0, 7, 0, SIZE_ANY}}, .setup_n = 1, .op = {OP_PART, 0, 1, 1, SIZE_SEGMENT}},
    {.name = "multipart-complete",
     .setup = {{OP_UPLOAD, 0, 7, 0, SIZE_ANY}, {OP_PART, 0, 0, 1, SIZE_ANY}, {OP_PART, 0, 1, 1, SIZE_SEGMENT}},
     .setup_n = 3,
     .op = {OP_COMPLETE, 0, 0, 0, SIZE_ANY}},
    {.name = "multipart-abort",
     .setup = {{OP_UPLOAD, 0, 7, 0, SIZE_ANY}, {OP_PART, 0, 1, 1, SIZE_SEGMENT}},
     .setup_n = 2,
     .op = {OP_ABORT, 0, 0, 0, SIZE_ANY}},
    {.name = "table-create", .op = {OP_TABLE_CREATE, 0, 0, 1, SIZE_ANY}},
    {.name = "table-commit", .setup = {{OP_TABLE_CREATE, 0, 0, 1, SIZE_ANY}}, .setup_n = 1, .op = {OP_TABLE_COMMIT, 0, 0, 1, SIZE_ANY}},
    {.name = "table-load", .setup = {{OP_TABLE_CREATE, 0, 0, 1, SIZE_ANY}}, .setup_n = 1, .op = {OP_TABLE_LOAD, 0, 0, 1, SIZE_ANY}},
    {.name = "list",
     .act = ACT_LIST,
     .setup = {{OP_PUT, 0, 0, 1, SIZE_INLINE}, {OP_PUT, 3, 0, 1, SIZE_INLINE}, {OP_PUT, 4, 0, 1, SIZE_INLINE}},
     .setup_n = 3,
     .op = {OP_LIST, 0, 0, 1, SIZE_ANY}},
    {.name = "garbage",
     .setup = {{OP_PUT, 8, 0, 1, SIZE_FILE}, {OP_DELETE, 8, 0, 0, SIZE_ANY}},
     .setup_n = 2,
     .op = {OP_GARBAGE, 0, 0, 1, SIZE_ANY}},
    {.name = "reopen-after-crash",
     .act = ACT_OPEN_AFTER_CUT,
     .setup = {{OP_PUT, 0, 0, 1, SIZE_INLINE}, {OP_PUT, 1, 0, 1, SIZE_SEGMENT}, {OP_TABLE_CREATE, 0, 0, 1, SIZE_ANY}},
     .setup_n = 3},
    {.name = "heal-replaced-drive",
     .act = ACT_UPKEEP,
     .work = UPKEEP_HEAL,
     .setup =
         {{OP_PUT, 0, 0, 1, SIZE_INLINE}, {OP_PUT, 1, 0, 1, SIZE_SEGMENT}, {OP_PUT, 2, 0, 1, SIZE_FILE}, {OP_PUT, 13, 0, 1, SIZE_SEGMENT}},
     .setup_n = 4},
    {.name = "compaction",
     .act = ACT_UPKEEP,
     .work = UPKEEP_COMPACT,
     .setup = {{OP_UPLOAD, 0, 7, 0, SIZE_ANY},
               {OP_PART, 0, 0, 1, SIZE_ANY},
               {OP_PART, 0, 1, 1, SIZE_SEGMENT},
               {OP_COMPLETE, 0, 0, 0, SIZE_ANY},
               {OP_PUT, 5, 0, 1, SIZE_SEGMENT},
               {OP_PUT, 4, 0, 1, SIZE_SEGMENT_LARGE}},
     .setup_n = 6,
     .last_again = 90},
    {.name = "fsck",
     .act = ACT_UPKEEP,
     .work = UPKEEP_FSCK,
     .setup = {{OP_PUT, 0, 0, 1, SIZE_INLINE},
               {OP_PUT, 1, 0, 1, SIZE_SEGMENT},
               {OP_PUT, 2, 0, 1, SIZE_FILE},
               {OP_TABLE_CREATE, 0, 0, 1, SIZE_ANY}},
     .setup_n = 4},
    {.name = "rebuild-index",
     .act = ACT_UPKEEP,
     .work = UPKEEP_REBUILD,
     .setup = {{OP_PUT, 0, 0, 1, SIZE_INLINE},
               {OP_PUT, 1, 0, 1, SIZE_SEGMENT},
               {OP_PUT, 2, 0, 1, SIZE_FILE},
               {OP_TABLE_CREATE, 0, 0, 1, SIZE_ANY}},
     .setup_n = 4},
};

typedef struct fault_spec {
    const char *name;
    unsigned calls; /* 0: allocations */
    int errno_value;
} fault_spec;
static const fault_spec faults[] = {{"memory", 0, ENOMEM},
                                    {"open", TARN_SIM_CALL_OPEN, EIO},
                                    {"read", TARN_SIM_CALL_READ, EIO},
                                    {"write", TARN_SIM_CALL_WRITE, EIO},
                                    {"full", TARN_SIM_CALL_WRITE, ENOSPC},
                                    {"sync", TARN_SIM_CALL_SYNC, EIO}};

/* ------------------------------------------------------------------ SQLite's memory through the seam */
#define MEM_HEAD 16

static void *mem_new(int n)
{
    uint8_t *p = tarn_malloc((size_t)n + MEM_HEAD);
    if (!p)
        return NULL;
    memcpy(p, &n, sizeof n);
    return p + MEM_HEAD;
}

static void mem_free(void *p)
{
    if (p)
        tarn_free((uint8_t *)p - MEM_HEAD);
}

static void *mem_resize(void *p, int n)
{
    uint8_t *q = tarn_realloc((uint8_t *)p - MEM_HEAD, (size_t)n + MEM_HEAD);
    if (!q)
        return NULL;
    memcpy(q, &n, sizeof n);
    return q + MEM_HEAD;
}

static int mem_size(void *p)
{
    int n = 0;
    if (p)
        memcpy(&n, (uint8_t *)p - MEM_HEAD, sizeof n);
    return n;
}

static int mem_round(int n)
{
    return (n + 7) & ~7;
}

static int mem_init(void *arg)
{
    (void)arg;
    return SQLITE_OK;
}

static void mem_end(void *arg)
{
    (void)arg;
}

static void sqlite_memory(void)
{
    static const sqlite3_mem_methods methods = {mem_new, mem_free, mem_resize, mem_size, mem_round, mem_init, mem_end, NULL};
    TARN_ASSERT(sqlite3_config(SQLITE_CONFIG_MALLOC, &methods) == SQLITE_OK);
    TARN_ASSERT(sqlite3_config(SQLITE_CONFIG_LOOKASIDE, 0, 0) == SQLITE_OK);
}

/* ------------------------------------------------------------------ a scenario */
static sim_op op_of(const step_spec *s, uint64_t salt)
{
    static const uint64_t lo[] = {0, 1, INLINE_MAX + 1, SEGMENT_MAX - 1, SEGMENT_MAX + 1};
    static const uint64_t hi[] = {UINT64_MAX, INLINE_MAX, SEGMENT_MAX, SEGMENT_MAX, UINT64_MAX};
    sim_op op = {.kind = s->kind, .a = s->a, .b = s->b, .c = s->c, .seed = 1000 * salt};
    for (bool fits = false; !fits; op.seed += fits ? 0 : 1) {
        uint64_t rng = op.seed, size = size_of_class(&rng);
        fits = s->size == SIZE_ANY || (size >= lo[s->size] && size <= hi[s->size]);
    }
    return op;
}

static void set_up_step(run *r, const step_spec *step, uint64_t salt)
{
    sim_op op = op_of(step, salt);
    exec x;
    if (!exec_prepare(r, &op, &x)) {
        run_fail(r, "a step of the setup makes no sense");
        return;
    }
    x.arena = r->arena;
    exec_do(&x);
    exec_settle(&x);
    tarn_arena_reset(r->arena);
}

static void set_up(run *r, const scenario *sc)
{
    for (size_t i = 0; i < sc->setup_n; i++) {
        for (unsigned k = 0; k <= (i + 1 == sc->setup_n ? sc->last_again : 0) && !r->failed; k++)
            set_up_step(r, &sc->setup[i], i + 1 + 10ull * k);
    }
    if (r->failed)
        return;
    if (sc->act == ACT_OPEN_AFTER_CUT) {
        tarn_sim_cut_now(r->sim);
        run_close(r);
        tarn_sim_power_on(r->sim);
    } else {
        run_restart(r, false); /* nothing is open, nothing is remembered */
    }
    if (!r->failed && sc->act == ACT_UPKEEP)
        upkeep_prepare(r, sc->work);
}

static tarn_err do_act(run *r, const scenario *sc, exec *x, bool faultless)
{
    tarn_str reason = TARN_STR("");
    switch (sc->act) {
    case ACT_LIST:
        return check_list(r, x->op, false);
    case ACT_OPEN_NEW:
    case ACT_OPEN_AFTER_CUT:
        return run_try_open(r, &reason);
    case ACT_UPKEEP:
        return upkeep_do(r, sc->work, faultless);
    default:
        exec_do(x);
        return x->got;
    }
}

static bool right_error(const scenario *sc, const fault_spec *f, tarn_err err)
{
    bool opens = sc->act == ACT_OPEN_NEW || sc->act == ACT_OPEN_AFTER_CUT ||
                 sc->act == ACT_UPKEEP; /* what memory is short for there is a drive too few */
    if (opens && (err == TARN_E_QUORUM_WRITE || err == TARN_E_QUORUM_READ || err == TARN_E_IO))
        return true;
    if (f->calls == 0)
        return err == TARN_E_NO_MEMORY;
    if (f->errno_value == ENOSPC && sc->act == ACT_OP)
        return err == TARN_E_DISK_FULL;
    if (f->errno_value == ENOSPC && err == TARN_E_DISK_FULL)
        return true;
    return err == TARN_E_IO || err == TARN_E_QUORUM_READ || err == TARN_E_QUORUM_WRITE || err == TARN_E_CORRUPT;
}

typedef struct verdict_of_child {
    bool hit, failed;
    uint64_t calls; /* of the kind, until the act ended */
    tarn_err err;
    char why[600];
} verdict_of_child;

static void still_works(run *r)
{
    sim_op op = op_of(&(step_spec){OP_PUT, 11, 0, 1, SIZE_SEGMENT}, 77);
    exec x;
    TARN_ASSERT(exec_prepare(r, &op, &x));
    x.arena = r->arena;
    exec_do(&x);
    exec_settle(&x);
}

/* After the fault: what does the store say, what is there after a restart, does it go on? */
static void look(run *r, const scenario *sc, const fault_spec *f, exec *x, tarn_err err, bool opened)
{
    bool drive = f->calls != 0 && f->errno_value != ENOSPC && err; /* a set of one drive: it is out until the next start */
    if (err && !right_error(sc, f, err)) {
        run_fail(r, "the error is %s", tarn_err_get(err)->name);
        return;
    }
    if (err && f->calls != 0 && r->plan->drives_n > 1 && sc->act != ACT_OPEN_NEW && sc->act != ACT_UPKEEP) {
        run_fail(r, "one fault of one drive of %zu is answered with %s", r->plan->drives_n, tarn_err_get(err)->name);
        return;
    }
    if (sc->act == ACT_UPKEEP) {
        upkeep_finish(r, sc->work, err);
        if (!r->failed)
            still_works(r);
        return;
    }
    r->lenient = true;
    if (sc->act == ACT_OP)
        exec_settle(x);
    if (!r->failed && sc->act == ACT_OP && !drive && !opened)
        still_works(r);
    r->lenient = false;
    if (r->failed)
        return;
    if (r->s && sc->act == ACT_OPEN_NEW)
        (void)run_make_buckets(r);
    if (r->failed)
        return;
    if (r->s) {
        run_restart(r, false);
    } else if (run_open(r, "after the fault") && sc->act == ACT_OPEN_NEW) {
        (void)run_make_buckets(r);
    }
    if (!r->failed)
        still_works(r);
    if (!r->failed)
        check_all(r);
}

static void child(run *r, const scenario *sc, const fault_spec *f, uint64_t nth, int fd)
{
    verdict_of_child v = {0};
    sim_op op = op_of(&sc->op, 99);
    exec x = {.op = &op, .r = r};
    sim_limit_seconds(CHILD_SECONDS_MAX);
    if (sc->act == ACT_OP)
        TARN_ASSERT(exec_prepare(r, &op, &x));
    x.arena = tarn_arena_new(64u << 20);
    TARN_ASSERT(x.arena != NULL);
    uint64_t allocs = tarn_alloc_count(), calls = tarn_sim_calls(r->sim, f->calls);
    if (nth != NO_CALL && f->calls == 0)
        tarn_alloc_fail_after(nth);
    else if (nth != NO_CALL)
        tarn_sim_fail_nth(r->sim, f->calls, nth, f->errno_value);
    v.err = do_act(r, sc, &x, nth == NO_CALL);
    v.calls = f->calls == 0 ? tarn_alloc_count() - allocs : tarn_sim_calls(r->sim, f->calls) - calls;
    v.hit = v.calls >= nth;
    if (v.err && nth == NO_CALL)
        run_fail(r, "without a fault: %s", tarn_err_get(v.err)->name);
    tarn_alloc_fail_after(0);
    tarn_sim_fail_nth(r->sim, 0, 0, 0);
    if (!r->failed)
        look(r, sc, f, &x, v.err, sc->act != ACT_OP);
    tarn_arena_free(x.arena);
    v.failed = r->failed;
    memcpy(v.why, r->why, sizeof v.why - 1);
    if (r->s)
        run_close(r);
    v.failed = r->failed;
    if (r->failed)
        memcpy(v.why, r->why, sizeof v.why - 1);
    run_free(r);
    ssize_t n = write(fd, &v, sizeof v);
    exit(n == (ssize_t)sizeof v ? 0 : 1);
}

static verdict_of_child apart(run *r, const scenario *sc, const fault_spec *f, uint64_t nth)
{
    verdict_of_child v = {0};
    int fds[2], status = 0;
    TARN_ASSERT(pipe(fds) == 0);
    (void)fflush(stdout);
    pid_t pid = fork();
    TARN_ASSERT(pid >= 0);
    if (pid == 0) {
        (void)close(fds[0]);
        child(r, sc, f, nth, fds[1]);
    }
    (void)close(fds[1]);
    bool told = read(fds[0], &v, sizeof v) == (ssize_t)sizeof v;
    (void)close(fds[0]);
    TARN_ASSERT(waitpid(pid, &status, 0) == pid);
    if (!told || !WIFEXITED(status) || WEXITSTATUS(status) != 0) {
        tarn_sb b;
        v.failed = v.hit = true;
        tarn_sb_init_fixed(&b, v.why, sizeof v.why);
        tarn_sb_fmt(&b, "the process ended with %s %d (a crash, a hang, or memory that was not given back)",
                    WIFSIGNALED(status) ? "signal" : "status", WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
    }
    return v;
}

/* Which calls of a kind: all of the first ones, then each stride-th. */
typedef struct sample {
    uint64_t first, stride, offset;
} sample;

static sample choose(const nth_options *o, uint64_t calls, uint64_t salt)
{
    sample s = {.first = calls, .stride = 1};
    if (o->sample == 0 || calls <= o->sample)
        return s;
    uint64_t rng = o->seed + salt;
    s.first = o->sample / 2;
    s.stride = (calls - s.first + o->sample - s.first - 1) / (o->sample - s.first);
    s.offset = rnd_below(&rng, s.stride);
    return s;
}

typedef struct tally {
    const nth_options *o;
    const scenario *sc;
    size_t drives_n;
    uint64_t tried, errors, total;
    unsigned failed;
} tally;

static bool try_call(tally *t, run *r, const fault_spec *f, uint64_t nth)
{
    verdict_of_child v = apart(r, t->sc, f, nth);
    t->tried += v.hit ? 1 : 0;
    t->errors += v.err ? 1 : 0;
    if (v.failed) {
        t->failed++;
        (void)printf("FAILED nth-%s-%zu: %s %llu: %s (again: tarn_sim nth %s --drives %zu --fault %s --call %llu)\n", t->sc->name,
                     t->drives_n, f->name, (unsigned long long)nth, v.why, t->sc->name, t->drives_n, f->name, (unsigned long long)nth);
    }
    return v.hit && t->failed < FAILURES_MAX;
}

static void try_kind(tally *t, run *r, const fault_spec *f, uint64_t salt)
{
    if (t->o->call != 0) {
        (void)try_call(t, r, f, t->o->call);
        return;
    }
    verdict_of_child v = apart(r, t->sc, f, NO_CALL);
    if (v.failed) {
        t->failed++;
        (void)printf("FAILED nth-%s-%zu: no call fails: %s\n", t->sc->name, t->drives_n, v.why);
        return;
    }
    sample s = choose(t->o, v.calls, salt);
    t->tried = t->errors = 0;
    bool more = true;
    for (uint64_t n = 1; more && n <= s.first; n++)
        more = try_call(t, r, f, n);
    for (uint64_t n = s.first + 1 + s.offset; more && n <= v.calls; n += s.stride)
        more = try_call(t, r, f, n);
    t->total += t->tried;
    (void)printf(
        "%s, %zu drives: %llu of %llu %s calls failed once (the first %llu, and every %lluth from %llu on), %llu times it was told\n",
        t->sc->name, t->drives_n, (unsigned long long)t->tried, (unsigned long long)v.calls, f->name, (unsigned long long)s.first,
        (unsigned long long)s.stride, (unsigned long long)(s.first + 1 + s.offset), (unsigned long long)t->errors);
}

static void scenario_run(tally *t)
{
    static run r;
    const scenario *sc = t->sc;
    plan p = {.drives_n = t->drives_n};
    bool ok = run_init(&r, &p, false);
    upkeep_begin(&r, sc->work);
    ok = ok && (sc->act == ACT_OPEN_NEW || run_begin(&r));
    if (ok && sc->act != ACT_OPEN_NEW)
        set_up(&r, sc);
    if (!ok || r.failed) {
        (void)printf("FAILED nth-%s-%zu: the setup: %s\n", sc->name, t->drives_n, r.why);
        t->failed++;
        return;
    }
    for (size_t i = 0; i < TARN_ARRAY_LEN(faults); i++) {
        if (!t->o->fault || strcmp(t->o->fault, faults[i].name) == 0)
            try_kind(t, &r, &faults[i], i * 1000 + t->drives_n);
    }
    if (r.s)
        run_close(&r);
    run_free(&r);
}

/* One scenario with one number of drives. */
static unsigned task(const nth_options *o, const scenario *sc, size_t drives_n)
{
    struct timespec from, to;
    tally t = {.o = o, .sc = sc, .drives_n = drives_n};
    TARN_ASSERT(clock_gettime(CLOCK_MONOTONIC, &from) == 0);
    scenario_run(&t);
    TARN_ASSERT(clock_gettime(CLOCK_MONOTONIC, &to) == 0);
    double took = (double)(to.tv_sec - from.tv_sec) + (double)(to.tv_nsec - from.tv_nsec) / 1e9;
    if (!t.failed)
        (void)printf("ok nth-%s-%zu-drives-%llu-faults %.1f\n", sc->name, drives_n, (unsigned long long)t.total, took);
    (void)fflush(stdout);
    return t.failed;
}

/* Takes tasks until there are none; next is shared by all workers. Four drives take longest and come first. */
static unsigned worker(const nth_options *o, atomic_size_t *next)
{
    static const size_t drives[] = {4, 1};
    size_t n = TARN_ARRAY_LEN(scenarios);
    unsigned failed = 0;
    for (size_t i = atomic_fetch_add(next, 1); i < n * TARN_ARRAY_LEN(drives); i = atomic_fetch_add(next, 1)) {
        const scenario *sc = &scenarios[n - 1 - i % n];
        if ((!o->only || strcmp(o->only, sc->name) == 0) && (o->drives == 0 || o->drives == drives[i / n]))
            failed += task(o, sc, drives[i / n]);
    }
    return failed;
}

int nth_main(const nth_options *o)
{
    int rc = 0, status = 0;
    atomic_size_t *next = mmap(NULL, sizeof *next, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    TARN_ASSERT(next != MAP_FAILED);
    sqlite_memory();
    for (uint64_t i = 0; i < o->jobs; i++) {
        (void)fflush(stdout);
        pid_t pid = fork();
        TARN_ASSERT(pid >= 0);
        if (pid == 0)
            exit(worker(o, next) ? 1 : 0);
    }
    for (uint64_t i = 0; i < o->jobs; i++) {
        TARN_ASSERT(wait(&status) > 0);
        if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
            rc = 1;
    }
    return rc;
}
