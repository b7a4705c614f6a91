/* SPDX-License-Identifier: Apache-2.0 */
/*
 * meta: the committer with its thread. Groups, members that fail in the middle, callers that are threads and fibers,
 * reading what one has just written, the size of the log, and the plans of all statements.
 */
#include <pthread.h>

#include "meta_internal.h"
#include "meta_test.h"
#include "vfs.h"

#define THREADS 6
#define COMMITS_PER_THREAD 150
#define FIBERS 40
#define COMMITS_PER_FIBER 20

static int threaded_setup(void **state)
{
    fixture *f = fixture_new(1, 1);

    f->opt.inline_committer = false;
    fixture_reopen(f);
    *state = f;
    return 0;
}

/* ------------------------------------------------------------------ one kind of transaction: a key, good or bad */
typedef struct put {
    fixture *f;
    uint64_t who, number;
    tarn_err fail_with; /* after having written */
    char mem[64];
    uint64_t seq;
} put;

static tarn_str put_key(put *p)
{
    tarn_sb b;

    tarn_sb_init_fixed(&b, p->mem, sizeof(p->mem));
    tarn_sb_fmt(&b, "%02llu/%05llu", (unsigned long long)p->who, (unsigned long long)p->number);
    return tarn_sb_view(&b);
}

static tarn_err put_run(tarn_meta_tx *tx, void *arg)
{
    put *p = arg;
    tarn_version_row row = {.bucket_id = 1, .key = put_key(p), .seq = tarn_meta_tx_seq(tx), .size = p->number};

    p->seq = row.seq;
    tarn_err err = tarn_meta_object_replace(tx, &row);
    if (err == TARN_OK)
        err = tarn_meta_inline_put(tx, row.seq, row.key);
    return err != TARN_OK ? err : p->fail_with;
}

/* Commits and looks at once: a good one is there, a bad one has left nothing. */
static void put_and_look(put *p, tarn_arena *a)
{
    tarn_version_row row;
    tarn_str bytes;

    tarn_arena_reset(a);
    assert_int_equal(tarn_meta_commit(p->f->m, put_run, p), p->fail_with);
    tarn_err got = tarn_meta_object_get(p->f->m, NULL, 1, put_key(p), a, &row);
    tarn_err got_inline = tarn_meta_inline_get(p->f->m, NULL, p->seq, a, &bytes);
    if (p->fail_with == TARN_OK) {
        assert_int_equal(got, TARN_OK);
        assert_int_equal(row.seq, p->seq);
        assert_int_equal(got_inline, TARN_OK);
    } else {
        assert_int_equal(got, TARN_E_NO_SUCH_KEY);
        assert_int_equal(got_inline, TARN_E_NOT_FOUND);
    }
}

static bool count_row(void *ctx, const tarn_version_row *row)
{
    (void)row;
    (*(uint64_t *)ctx)++;
    return true;
}

static uint64_t rows(fixture *f)
{
    uint64_t n = 0;
    const tarn_list_query q = {.bucket_id = 1};
    const tarn_list_sink sink = {.on_version = count_row, .ctx = &n};

    assert_int_equal(tarn_meta_list(f->m, &q, &sink), TARN_OK);
    return n;
}

/* ------------------------------------------------------------------ threads */
typedef struct thread_arg {
    fixture *f;
    uint64_t who;
} thread_arg;

static void *thread_main(void *arg)
{
    const thread_arg *t = arg;
    tarn_arena *a = tarn_arena_new(1u << 20);

    for (uint64_t i = 0; i < COMMITS_PER_THREAD; i++) {
        put p = {.f = t->f, .who = t->who, .number = i, .fail_with = (i + t->who) % 3 == 0 ? TARN_E_PRECONDITION_FAILED : TARN_OK};
        put_and_look(&p, a);
    }
    tarn_arena_free(a);
    return NULL;
}

static void test_threads(void **state)
{
    fixture *f = *state;
    pthread_t threads[THREADS];
    thread_arg args[THREADS];
    uint64_t good = 0;

    for (uint64_t i = 0; i < THREADS; i++) {
        args[i] = (thread_arg){f, i};
        assert_int_equal(pthread_create(&threads[i], NULL, thread_main, &args[i]), 0);
        for (uint64_t k = 0; k < COMMITS_PER_THREAD; k++)
            good += (k + i) % 3 != 0;
    }
    for (size_t i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    assert_int_equal(rows(f), good);
    fixture_reopen(f);
    assert_int_equal(rows(f), good);
}

/* ------------------------------------------------------------------ fibers */
typedef struct fiber_group {
    fixture *f;
    tarn_loop *loop;
    uint64_t first_who;
    size_t alive;
} fiber_group;

typedef struct fiber_arg {
    fiber_group *g;
    uint64_t who;
} fiber_arg;

static void fiber_main(void *arg)
{
    const fiber_arg *t = arg;
    tarn_arena *a = tarn_arena_new(1u << 20);

    for (uint64_t i = 0; i < COMMITS_PER_FIBER; i++) {
        put p = {.f = t->g->f, .who = t->who, .number = i, .fail_with = i % 4 == 0 ? TARN_E_CONFLICT : TARN_OK};
        put_and_look(&p, a);
    }
    tarn_arena_free(a);
    if (--t->g->alive == 0)
        tarn_loop_stop(t->g->loop);
}

static void *loop_main(void *arg)
{
    fiber_group *g = arg;
    fiber_arg args[FIBERS];

    g->alive = FIBERS;
    for (uint64_t i = 0; i < FIBERS; i++) {
        args[i] = (fiber_arg){g, g->first_who + i};
        assert_int_equal(tarn_fiber_spawn(g->loop, fiber_main, &args[i], "put"), TARN_OK);
    }
    tarn_loop_run(g->loop);
    assert_int_equal(g->alive, 0);
    return NULL;
}

static void test_fibers(void **state)
{
    fixture *f = *state;
    fiber_group groups[2];
    pthread_t threads[2];

    for (size_t i = 0; i < 2; i++) {
        const tarn_loop_options opt = {.backend = TARN_IO_THREADS, .threads = 1, .name = "test"};
        groups[i] = (fiber_group){.f = f, .first_who = i * FIBERS};
        assert_int_equal(tarn_loop_create(&opt, &groups[i].loop), TARN_OK);
        assert_int_equal(pthread_create(&threads[i], NULL, loop_main, &groups[i]), 0);
    }
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        tarn_loop_destroy(groups[i].loop);
    }
    assert_int_equal(rows(f), 2 * FIBERS * (COMMITS_PER_FIBER - COMMITS_PER_FIBER / 4));
}

/* ------------------------------------------------------------------ one group, made sure of */
typedef struct gate {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool inside, open;
} gate;

static tarn_err gate_run(tarn_meta_tx *tx, void *arg)
{
    gate *g = arg;

    (void)tx;
    pthread_mutex_lock(&g->lock);
    g->inside = true;
    pthread_cond_broadcast(&g->changed);
    while (!g->open)
        pthread_cond_wait(&g->changed, &g->lock);
    pthread_mutex_unlock(&g->lock);
    return TARN_OK;
}

static void *gate_main(void *arg)
{
    void **v = arg;

    assert_int_equal(tarn_meta_commit(((fixture *)v[0])->m, gate_run, v[1]), TARN_OK);
    return NULL;
}

typedef struct one_put {
    put p;
    tarn_err result;
    pthread_t thread;
} one_put;

static void *one_put_main(void *arg)
{
    one_put *o = arg;

    o->result = tarn_meta_commit(o->p.f->m, put_run, &o->p);
    return NULL;
}

static void gate_close(fixture *f, gate *g, void *args[2], pthread_t *thread)
{
    *g = (gate){.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
    args[0] = f;
    args[1] = g;
    assert_int_equal(pthread_create(thread, NULL, gate_main, args), 0);
    pthread_mutex_lock(&g->lock);
    while (!g->inside)
        pthread_cond_wait(&g->changed, &g->lock);
    pthread_mutex_unlock(&g->lock);
}

static void gate_open(gate *g)
{
    pthread_mutex_lock(&g->lock);
    g->open = true;
    pthread_cond_broadcast(&g->changed);
    pthread_mutex_unlock(&g->lock);
}

/* Until n more commits have been asked for than `before`; they are counted just before they queue. */
static void commits_wait(int64_t before, int64_t n)
{
    for (int i = 0; i < 5000 && tarn_metric_get(TARN_M_META_COMMITS) < before + n; i++)
        (void)usleep(1000);
    (void)usleep(50000);
}

/* The committer is held in one transaction while twenty more queue up: they make one group. Some of them fail after having
 * written; the others must not notice. */
static void test_failing_members_of_a_group(void **state)
{
    fixture *f = *state;
    gate g;
    void *gate_args[2];
    pthread_t gate_thread;
    one_put puts[20];

    gate_close(f, &g, gate_args, &gate_thread);
    int64_t groups = tarn_metric_get(TARN_M_META_GROUPS), commits = tarn_metric_get(TARN_M_META_COMMITS);
    for (uint64_t i = 0; i < 20; i++) {
        puts[i].p = (put){.f = f, .who = 1, .number = i, .fail_with = i % 5 == 2 ? TARN_E_PRECONDITION_FAILED : TARN_OK};
        assert_int_equal(pthread_create(&puts[i].thread, NULL, one_put_main, &puts[i]), 0);
    }
    commits_wait(commits, 20);
    gate_open(&g);
    for (size_t i = 0; i < 20; i++) {
        assert_int_equal(pthread_join(puts[i].thread, NULL), 0);
        assert_int_equal(puts[i].result, puts[i].p.fail_with);
    }
    assert_int_equal(pthread_join(gate_thread, NULL), 0);
    /* The gate's, and one for all of them; a thread that was slow to queue may have come later. */
    assert_in_range(tarn_metric_get(TARN_M_META_GROUPS) - groups, 2, 4);
    assert_int_equal(rows(f), 16);
}

/* More than a group takes are waiting: the rest makes the next group. */
#define CROWD (META_GROUP_MAX + 1)

static void crowd_fiber(void *arg)
{
    const fiber_arg *t = arg;
    put p = {.f = t->g->f, .who = 9, .number = t->who};

    assert_int_equal(tarn_meta_commit(t->g->f->m, put_run, &p), TARN_OK);
    if (--t->g->alive == 0)
        tarn_loop_stop(t->g->loop);
}

static void *crowd_main(void *arg)
{
    fiber_group *g = arg;
    fiber_arg *args = tarn_calloc(CROWD, sizeof(*args));

    assert_non_null(args);
    g->alive = CROWD;
    for (uint64_t i = 0; i < CROWD; i++) {
        args[i] = (fiber_arg){g, i};
        assert_int_equal(tarn_fiber_spawn(g->loop, crowd_fiber, &args[i], "crowd"), TARN_OK);
    }
    tarn_loop_run(g->loop);
    tarn_free(args);
    return NULL;
}

static void test_group_maximum(void **state)
{
    fixture *f = *state;
    gate g;
    void *gate_args[2];
    pthread_t gate_thread, loop_thread;
    const tarn_loop_options opt = {.backend = TARN_IO_THREADS, .threads = 1, .name = "test"};
    fiber_group group = {.f = f};

    assert_int_equal(tarn_loop_create(&opt, &group.loop), TARN_OK);
    gate_close(f, &g, gate_args, &gate_thread);
    int64_t groups = tarn_metric_get(TARN_M_META_GROUPS), commits = tarn_metric_get(TARN_M_META_COMMITS);
    assert_int_equal(pthread_create(&loop_thread, NULL, crowd_main, &group), 0);
    commits_wait(commits, CROWD);
    gate_open(&g);
    assert_int_equal(pthread_join(loop_thread, NULL), 0);
    assert_int_equal(pthread_join(gate_thread, NULL), 0);
    tarn_loop_destroy(group.loop);
    /* The gate's, a full one, and one of one; two rounds more at the most where the loop was slow. */
    assert_in_range(tarn_metric_get(TARN_M_META_GROUPS) - groups, 3, 5);
    assert_int_equal(rows(f), CROWD);
}

static void test_queue_maximum(void **state)
{
    fixture *f = *state;
    gate g;
    void *gate_args[2];
    pthread_t gate_thread;
    one_put puts[3];

    f->m->queue_max = 3; /* the gate and two more */
    gate_close(f, &g, gate_args, &gate_thread);
    int64_t commits = tarn_metric_get(TARN_M_META_COMMITS);
    for (uint64_t i = 0; i < 2; i++) {
        puts[i].p = (put){.f = f, .who = 1, .number = i};
        assert_int_equal(pthread_create(&puts[i].thread, NULL, one_put_main, &puts[i]), 0);
    }
    commits_wait(commits, 2);
    puts[2].p = (put){.f = f, .who = 1, .number = 2};
    assert_int_equal(tarn_meta_commit(f->m, put_run, &puts[2].p), TARN_E_SLOW_DOWN);
    gate_open(&g);
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(pthread_join(puts[i].thread, NULL), 0);
        assert_int_equal(puts[i].result, TARN_OK);
    }
    assert_int_equal(pthread_join(gate_thread, NULL), 0);
    assert_int_equal(tarn_meta_commit(f->m, put_run, &puts[2].p), TARN_OK);
    assert_int_equal(rows(f), 3);
}

static tarn_err fail_only(tarn_meta_tx *tx, void *arg)
{
    (void)tx;
    (void)arg;
    return TARN_E_PRECONDITION_FAILED;
}

/* A member whose statement breaks a rule of the schema, and one that is told to fail by a limit. */
static tarn_err twice(tarn_meta_tx *tx, void *arg)
{
    tarn_err err = tarn_meta_inline_put(tx, 77, TARN_STR("one"));

    (void)arg;
    if (err == TARN_OK)
        err = tarn_meta_inline_put(tx, 77, TARN_STR("two"));
    return err;
}

static void test_failures(void **state)
{
    fixture *f = *state;
    tarn_str bytes;

    assert_int_equal(tarn_meta_commit(f->m, fail_only, NULL), TARN_E_PRECONDITION_FAILED);
    assert_int_equal(tarn_meta_commit(f->m, twice, NULL), TARN_E_CONFLICT);
    assert_int_equal(tarn_meta_inline_get(f->m, NULL, 77, f->arena, &bytes), TARN_E_NOT_FOUND);
    put p = {.f = f, .who = 1, .number = 1};
    put_and_look(&p, f->arena);
}

/* A transaction sees its own changes and keeps its memory until it has been answered. */
static tarn_err own_changes(tarn_meta_tx *tx, void *arg)
{
    put *p = arg;
    tarn_version_row row;
    tarn_err err = tarn_meta_object_get(NULL, tx, 1, put_key(p), tarn_meta_tx_arena(tx), &row);

    if (err != TARN_E_NO_SUCH_KEY)
        return TARN_E_INTERNAL;
    err = put_run(tx, p);
    if (err == TARN_OK)
        err = tarn_meta_object_get(NULL, tx, 1, put_key(p), tarn_meta_tx_arena(tx), &row);
    if (err == TARN_OK && (row.seq != p->seq || !tarn_str_eq(row.key, put_key(p))))
        err = TARN_E_INTERNAL;
    return err;
}

static void test_sees_its_own_changes(void **state)
{
    fixture *f = *state;
    put p = {.f = f, .who = 1, .number = 1};

    assert_int_equal(tarn_meta_commit(f->m, own_changes, &p), TARN_OK);
}

static tarn_err time_get(tarn_meta_tx *tx, void *arg)
{
    *(int64_t *)arg = tarn_meta_tx_now_ms(tx);
    return TARN_OK;
}

static void test_time_never_goes_back(void **state)
{
    fixture *f = *state;
    int64_t first = 0, second = 0;

    tarn_clock_fake(true, 2000000);
    assert_int_equal(tarn_meta_commit(f->m, time_get, &first), TARN_OK);
    tarn_clock_fake(true, 1000000);
    assert_int_equal(tarn_meta_commit(f->m, time_get, &second), TARN_OK);
    tarn_clock_fake(false, 0);
    assert_true(second >= first);
}

/* ------------------------------------------------------------------ the log stays short while readers come and go */
static void *reader_main(void *arg)
{
    fixture *f = ((void **)arg)[0];
    const atomic_bool *stop = ((void **)arg)[1];

    while (!atomic_load(stop))
        (void)rows(f);
    return NULL;
}

static tarn_err big_put(tarn_meta_tx *tx, void *arg)
{
    tarn_str bytes = {arg, 200 * 1024};

    return tarn_meta_inline_put(tx, tarn_meta_tx_seq(tx), bytes);
}

static void test_log_is_bounded(void **state)
{
    fixture *f = *state;
    atomic_bool stop = false;
    void *args[2] = {f, &stop};
    pthread_t threads[2];
    char path[META_TEST_PATH_BYTES * 2];
    char *payload = tarn_calloc(1, 200 * 1024);
    tarn_fs_stat st;
    tarn_sb b;
    uint64_t largest = 0;

    f->m->plan = (meta_checkpoint_plan){100, 400, 500, 2000};
    tarn_sb_init_fixed(&b, path, sizeof(path));
    tarn_sb_fmt(&b, "%s/%s", f->dirs[0], META_VFS_WAL_NAME);
    for (size_t i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, reader_main, args), 0);
    for (uint64_t i = 0; i < 300; i++) { /* 60 MB: 15000 frames */
        put p = {.f = f, .who = 2, .number = i};
        assert_int_equal(tarn_meta_commit(f->m, big_put, payload), TARN_OK);
        assert_int_equal(tarn_meta_commit(f->m, put_run, &p), TARN_OK);
        assert_int_equal(f->opt.fs->stat(f->opt.fs, path, &st), 0);
        largest = st.size_bytes > largest ? st.size_bytes : largest;
    }
    atomic_store(&stop, true);
    for (size_t i = 0; i < 2; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    assert_in_range(largest, 500 * 4096, 6000 * 4200); /* of 15000 */
    assert_int_equal(tarn_meta_checkpoint(f->m), TARN_OK);
    assert_int_equal(f->opt.fs->stat(f->opt.fs, path, &st), 0);
    assert_int_equal(st.size_bytes, 0); /* all of it is in the database */
    tarn_free(payload);
}

/* A plan that starves: the log may grow, but nothing is lost and it comes down again. */
static void test_idle_checkpoint(void **state)
{
    fixture *f = *state;
    put p = {.f = f, .who = 3, .number = 1};
    int64_t before = tarn_metric_get(TARN_M_META_CHECKPOINTS);

    assert_int_equal(tarn_meta_commit(f->m, put_run, &p), TARN_OK);
    for (int i = 0; i < 500 && tarn_metric_get(TARN_M_META_CHECKPOINTS) == before; i++)
        (void)usleep(10000);
    assert_true(tarn_metric_get(TARN_M_META_CHECKPOINTS) > before);
}

/* ------------------------------------------------------------------ a thread that ends takes its connection along */
static void *short_reader(void *arg)
{
    assert_int_equal(rows(arg), 0);
    return NULL;
}

static size_t readers(fixture *f)
{
    size_t n = 0;

    pthread_mutex_lock(&f->m->readers_lock);
    for (const meta_conn *c = f->m->readers; c != NULL; c = c->next)
        n++;
    pthread_mutex_unlock(&f->m->readers_lock);
    return n;
}

static void test_reader_connections(void **state)
{
    fixture *f = *state;
    pthread_t t;

    assert_int_equal(rows(f), 0);
    assert_int_equal(readers(f), 1);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(pthread_create(&t, NULL, short_reader, f), 0);
        assert_int_equal(pthread_join(t, NULL), 0);
    }
    assert_int_equal(readers(f), 1);
}

/* ------------------------------------------------------------------ plans */
static bool plan_scans(const char *detail, meta_sql id)
{
    if (strncmp(detail, "SCAN", 4) != 0 || strstr(detail, "CONSTANT ROW") != NULL)
        return false;
    return !(id == META_SQL_GARBAGE_LIST || id == META_SQL_REPAIR_LIST); /* would be by rowid: SEARCH; never a scan either */
}

static void test_statements_use_indexes(void **state)
{
    fixture *f = *state;

    for (int id = 0; id < META_SQL_COUNT; id++) {
        sqlite3_stmt *s = NULL;
        tarn_sb b;
        tarn_sb_init(&b, 4096);
        tarn_sb_fmt(&b, "EXPLAIN QUERY PLAN %s", meta_sql_text((meta_sql)id));
        assert_false(b.failed);
        assert_int_equal(sqlite3_prepare_v2(f->m->writer->db, b.p, -1, &s, NULL), SQLITE_OK);
        while (sqlite3_step(s) == SQLITE_ROW) {
            const char *detail = (const char *)sqlite3_column_text(s, 3);
            if (plan_scans(detail, (meta_sql)id) || strstr(detail, "TEMP B-TREE") != NULL)
                fail_msg("%s: %s", b.p, detail);
        }
        assert_int_equal(sqlite3_finalize(s), SQLITE_OK);
        tarn_sb_free(&b);
    }
}

/* ------------------------------------------------------------------ limits that are meta's own */
static tarn_err purge_put(tarn_meta_tx *tx, void *arg)
{
    return tarn_meta_purge_put(tx, arg);
}

static void test_purge_limits(void **state)
{
    fixture *f = *state;
    char text[META_NAME_BYTES_MAX + 1];
    tarn_purge_row row = {.dropped = {.kind = TARN_ENTITY_TABLE}};
    tarn_str *texts[] = {&row.dropped.uuid, &row.dropped.location, &row.dropped.pointer};

    memset(text, 'x', sizeof(text));
    for (size_t i = 0; i < TARN_ARRAY_LEN(texts); i++) {
        *texts[i] = (tarn_str){text, sizeof(text) - 1};
        assert_int_equal(tarn_meta_commit(f->m, purge_put, &row), TARN_OK);
        texts[i]->n++;
        assert_int_equal(tarn_meta_commit(f->m, purge_put, &row), TARN_E_LIMIT);
        texts[i]->n = 1;
    }
}

int main(void)
{
#define T(fn) cmocka_unit_test_setup_teardown(fn, threaded_setup, fixture_teardown)
    const struct CMUnitTest tests[] = {
        T(test_threads),        T(test_fibers),          T(test_failing_members_of_a_group), T(test_group_maximum),
        T(test_queue_maximum),  T(test_failures),        T(test_sees_its_own_changes),       T(test_time_never_goes_back),
        T(test_log_is_bounded), T(test_idle_checkpoint), T(test_reader_connections),         T(test_statements_use_indexes),
        T(test_purge_limits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
