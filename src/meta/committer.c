/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The committer: one thread that carries all changes of the store.
 *
 * Callers push a request (it lives on their stack) on a lock-free stack and wait. The committer takes all that is there,
 * turns it into arrival order and runs it in groups of at most META_GROUP_MAX: BEGIN IMMEDIATE, each function (in a
 * savepoint from its first write on), COMMIT, which syncs every drive once; then everybody is answered. It never waits for
 * more company: while one group is being synced the next one gathers by itself.
 *
 * Answers. Fibers are woken through one posted node per loop and group: the node's function runs on the loop's thread, sets
 * `answered` and wakes; so nothing touches a request (or a fiber) after its waiter may have gone on. Plain threads sleep on
 * the futex in the request.
 *
 * Checkpoints are made here too, between groups: see checkpoint_when_due().
 *
 * Invariants:
 *  1. The writer connection is used by the thread that holds `running` (the committer, or the caller in inline mode).
 *  2. A request is answered exactly once, and only after COMMIT returned.
 *  3. seq_next < seq_limit for every number handed out; seq_limit is on disk in the same transaction at the latest.
 */
#include "meta_internal.h"
#include "vfs.h"

#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#define CHECKPOINT_READER_WAIT_MS 50
#define CHECKPOINT_IDLE_MS 20
#define CHECKPOINT_ALL_TRIES 10

typedef struct request {
    struct request *next;
    tarn_meta_fn fn; /* NULL: a checkpoint, or call */
    void (*call)(void *arg);
    void *arg;
    tarn_err result;
    tarn_fiber *fiber; /* NULL: a plain thread waits */
    bool answered;     /* fibers: on the loop's thread only */
    atomic_int futex;  /* plain threads: 1 = answered */
    tarn_post post;    /* of the first request of a loop's chain: carries the chain */
} request;

struct meta_committer {
    tarn_meta *meta;
    meta_conn *c;
    struct tarn_meta_tx tx;
    pthread_t thread;
    bool inline_mode;
    pthread_mutex_t running;
    _Atomic(request *) stack; /* newest first */
    atomic_uint waiting;      /* requests pushed and not yet answered */
    atomic_int sleeping;      /* the committer is about to sleep, or does */
    atomic_int stopping;
    uint64_t wal_frames; /* in the log after the last commit (SQLite's hook tells) */
    uint64_t wal_copied; /* of them in the database */
};

/* ------------------------------------------------------------------ sleeping and waking */
static void futex_wait(atomic_int *word, int expected, const struct timespec *at_most)
{
    (void)syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, expected, at_most, NULL, 0);
}

static void futex_wake(atomic_int *word)
{
    (void)syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

static void committer_kick(meta_committer *k)
{
    if (atomic_load(&k->sleeping) != 0) {
        atomic_store(&k->sleeping, 0);
        futex_wake(&k->sleeping);
    }
}

static void push(meta_committer *k, request *r)
{
    request *head = atomic_load_explicit(&k->stack, memory_order_relaxed);

    do {
        r->next = head;
    } while (!atomic_compare_exchange_weak(&k->stack, &head, r));
    committer_kick(k);
}

/* All that waits, oldest first; NULL: nothing. */
static request *take(meta_committer *k)
{
    request *r = atomic_exchange(&k->stack, NULL);
    request *oldest = NULL;

    while (r != NULL) {
        request *next = r->next;
        r->next = oldest;
        oldest = r;
        r = next;
    }
    return oldest;
}

/* Sleeps until something is pushed, the committer is stopped, or the time has passed (NULL: never). */
static void sleep_until_pushed(meta_committer *k, const struct timespec *at_most)
{
    atomic_store(&k->sleeping, 1);
    if (atomic_load(&k->stack) == NULL && atomic_load(&k->stopping) == 0)
        futex_wait(&k->sleeping, 1, at_most);
    atomic_store(&k->sleeping, 0);
}

/* On the loop's thread: the chain hangs on the request that owns the node. */
static void chain_answered(tarn_post *post)
{
    request *r = TARN_CONTAINER_OF(post, request, post);

    while (r != NULL) {
        request *next = r->next;
        tarn_fiber *fiber = r->fiber;
        r->answered = true;
        tarn_fiber_wake(fiber); /* on this thread: the fiber runs later, so it is still there */
        r = next;
    }
}

/* Answers a chain of requests (linked by next). One post for each loop that has a fiber among them. */
static void answer(meta_committer *k, request *r)
{
    request *pending = r;
    unsigned n = 0;

    for (request *i = r; i != NULL; i = i->next)
        n++;
    atomic_fetch_sub_explicit(&k->waiting, n, memory_order_relaxed);
    while (pending != NULL) {
        request *first = pending, *rest = NULL, **rest_end = &rest, **mine_end = &first->next;
        request *i = first->next;
        if (first->fiber == NULL) {
            pending = i;
            atomic_int *word = &first->futex;
            atomic_store(word, 1);
            futex_wake(word); /* the word may be gone by now: then this wakes nobody */
            continue;
        }
        tarn_loop *loop = tarn_fiber_loop(first->fiber);
        for (; i != NULL; i = i->next) {
            bool same = i->fiber != NULL && tarn_fiber_loop(i->fiber) == loop;
            if (same) {
                *mine_end = i;
                mine_end = &i->next;
            } else {
                *rest_end = i;
                rest_end = &i->next;
            }
        }
        *mine_end = NULL;
        *rest_end = NULL;
        pending = rest;
        first->post = (tarn_post){.fn = chain_answered};
        tarn_loop_post(loop, &first->post);
    }
}

/* ------------------------------------------------------------------ the numbers */
static tarn_err seq_load(meta_committer *k)
{
    meta_q q;
    bool row;
    tarn_err err = meta_q_begin(&q, k->c, META_SQL_SEQ_GET);

    if (err == TARN_OK)
        err = meta_q_step(&q, &row);
    if (err == TARN_OK && !row)
        err = TARN_E_FORMAT;
    if (err == TARN_OK) {
        uint64_t next = meta_col_u64(&q, 0);
        if (next > k->tx.seq_next)
            k->tx.seq_next = next;
        k->tx.seq_limit = next; /* nothing is reserved: the first group does */
    }
    meta_q_end(&q);
    return err;
}

/* Inside a group's transaction, outside any function's savepoint. */
static tarn_err seq_reserve(meta_committer *k)
{
    struct tarn_meta_tx *tx = &k->tx;
    uint64_t limit = tx->seq_next + META_SEQ_RESERVE;
    meta_q q;
    tarn_err err = meta_q_begin(&q, k->c, META_SQL_SEQ_PUT);

    if (err != TARN_OK)
        return err;
    meta_q_u64(&q, limit);
    err = meta_q_run(&q, NULL);
    if (err == TARN_OK)
        tx->seq_limit = limit;
    return err;
}

uint64_t tarn_meta_tx_seq(tarn_meta_tx *tx)
{
    if (tx->seq_drawn >= META_SEQ_PER_FN_MAX) {
        tx->broken = TARN_E_LIMIT;
        return tx->seq_next;
    }
    TARN_ASSERT(tx->seq_next < tx->seq_limit);
    tx->seq_drawn++;
    return tx->seq_next++;
}

/* ------------------------------------------------------------------ what a function sees */
tarn_arena *tarn_meta_tx_arena(tarn_meta_tx *tx)
{
    return tx->arena;
}

int64_t tarn_meta_tx_now_ms(tarn_meta_tx *tx)
{
    return tx->now_ms;
}

tarn_err meta_w_begin(meta_q *q, tarn_meta_tx *tx, meta_sql id)
{
    *q = (meta_q){.c = tx->c, .id = id};
    if (!tx->savepoint) {
        tarn_err err = meta_exec(tx->c, META_SQL_SAVEPOINT);
        if (err != TARN_OK)
            return err;
        tx->savepoint = true;
    }
    return meta_q_begin(q, tx->c, id);
}

/* ------------------------------------------------------------------ groups */
/* One function. A return value other than OK here means that the whole group's transaction is lost. */
static tarn_err run_one(meta_committer *k, request *r)
{
    struct tarn_meta_tx *tx = &k->tx;
    tarn_err err = TARN_OK;

    if (tx->seq_limit < tx->seq_next + META_SEQ_PER_FN_MAX) {
        err = seq_reserve(k);
        if (err != TARN_OK)
            return err;
    }
    tx->seq_drawn = 0;
    tx->savepoint = false;
    tx->broken = TARN_OK;
    r->result = r->fn(tx, r->arg);
    if (r->result == TARN_OK)
        r->result = tx->broken;
    tarn_arena_reset(tx->arena);
    if (sqlite3_get_autocommit(k->c->db) != 0) /* SQLite gave the transaction up (disk full, out of memory, I/O) */
        return r->result != TARN_OK ? r->result : TARN_E_IO;
    if (!tx->savepoint)
        return TARN_OK;
    if (r->result != TARN_OK)
        err = meta_exec(k->c, META_SQL_ROLLBACK_TO);
    if (err == TARN_OK)
        err = meta_exec(k->c, META_SQL_RELEASE);
    return err;
}

static tarn_err group_begin(meta_committer *k)
{
    int64_t now = tarn_now_ms();

    if (now > k->tx.now_ms)
        k->tx.now_ms = now;
    return meta_exec(k->c, META_SQL_BEGIN);
}

/* Everything of the group is undone; what was reserved in it is not on disk. */
static void group_abandon(meta_committer *k)
{
    if (sqlite3_get_autocommit(k->c->db) == 0)
        (void)meta_exec(k->c, META_SQL_ROLLBACK); /* a rollback that fails leaves nothing committed either */
    meta_vfs_rolled_back(k->meta->vfs);
    k->tx.seq_limit = k->tx.seq_next;
}

/* Runs a chain of at most META_GROUP_MAX functions in one transaction and sets their results. */
static void group_run(meta_committer *k, request *first)
{
    tarn_err err = group_begin(k);

    for (request *r = first; r != NULL && err == TARN_OK; r = r->next)
        err = run_one(k, r);
    if (err == TARN_OK)
        err = meta_exec(k->c, META_SQL_COMMIT);
    if (err != TARN_OK) {
        tarn_log(TARN_LOG_ERROR, "metadata group not committed", "error", tarn_err_get(err)->name, NULL);
        group_abandon(k);
        for (request *r = first; r != NULL; r = r->next)
            r->result = meta_vfs_quorum_lost(k->meta->vfs) ? TARN_E_QUORUM_WRITE : err;
    }
    meta_bucket_group_over(&k->tx);
    tarn_metric_add(TARN_M_META_GROUPS, 1);
}

/* ------------------------------------------------------------------ checkpoints */
static tarn_err checkpoint_run(meta_committer *k, int mode)
{
    int frames = 0, copied = 0;
    int rc = sqlite3_wal_checkpoint_v2(k->c->db, "main", mode, &frames, &copied);

    tarn_metric_add(TARN_M_META_CHECKPOINTS, 1);
    if (rc == SQLITE_OK || (rc & 0xff) == SQLITE_BUSY) {
        k->wal_frames = frames > 0 ? (uint64_t)frames : 0;
        k->wal_copied = copied > 0 ? (uint64_t)copied : 0;
    }
    if ((rc & 0xff) == SQLITE_BUSY) /* a reader held on: the next one gets further */
        return TARN_OK;
    if (rc != SQLITE_OK)
        tarn_log(TARN_LOG_ERROR, "metadata checkpoint failed", "error", sqlite3_errmsg(k->c->db), NULL);
    return meta_err(rc);
}

/* All of the log, and the log emptied where no reader holds on. */
static tarn_err checkpoint_all(meta_committer *k)
{
    tarn_err err = TARN_OK;

    for (int i = 0; i < CHECKPOINT_ALL_TRIES && err == TARN_OK; i++) {
        err = checkpoint_run(k, SQLITE_CHECKPOINT_TRUNCATE);
        if (err == TARN_OK && k->wal_frames == k->wal_copied)
            return TARN_OK;
    }
    return err == TARN_OK ? TARN_E_SLOW_DOWN : err;
}

/*
 * A checkpoint copies pages from the WAL into the database; nobody is answered meanwhile. So it is made in small steps, and
 * the sync of the database, which takes longest, runs on in the background while commits go on appending to the log. Once
 * the log is long, and no sync is running, a step with its sync in the foreground lets the log start over; it is a small one
 * because the rest has been synced before. When readers keep it from starting over for too long they are waited for.
 */
static void checkpoint_when_due(meta_committer *k)
{
    const meta_checkpoint_plan *plan = &k->meta->plan;
    uint64_t waiting = k->wal_frames - k->wal_copied;
    int mode = k->wal_frames >= plan->force_frames ? SQLITE_CHECKPOINT_RESTART : SQLITE_CHECKPOINT_PASSIVE;

    if (waiting < plan->step_frames)
        return;
    if (waiting < plan->behind_frames && meta_vfs_sync_running(k->meta->vfs))
        return;
    meta_vfs_sync_defer(k->meta->vfs, k->wal_frames < plan->restart_frames);
    (void)checkpoint_run(k, mode);
    meta_vfs_sync_defer(k->meta->vfs, false);
}

/* Nothing has come for a while: the time is used, so that the next burst starts with an empty log. */
static void checkpoint_when_idle(meta_committer *k)
{
    pthread_mutex_lock(&k->running);
    if (k->wal_frames > k->wal_copied)
        (void)checkpoint_run(k, SQLITE_CHECKPOINT_PASSIVE);
    pthread_mutex_unlock(&k->running);
}

/* SQLite calls this after each commit with the number of frames that the log has. */
static int on_wal(void *ctx, sqlite3 *db, const char *name, int frames)
{
    meta_committer *k = ctx;

    (void)db;
    (void)name;
    if ((uint64_t)frames <= k->wal_frames) /* the log has started over */
        k->wal_copied = 0;
    k->wal_frames = (uint64_t)frames;
    return SQLITE_OK;
}

/* ------------------------------------------------------------------ the thread */
/* Cuts the next group off the chain: functions up to the maximum, or a single checkpoint. */
static request *group_cut(request **chain)
{
    request *first = *chain, *last = first;
    size_t n = 1;

    while (first->fn != NULL && last->next != NULL && last->next->fn != NULL && n < META_GROUP_MAX) {
        last = last->next;
        n++;
    }
    *chain = last->next;
    last->next = NULL;
    return first;
}

static tarn_err no_transaction(meta_committer *k, request *r)
{
    if (r->call == NULL)
        return checkpoint_all(k);
    r->call(r->arg);
    return TARN_OK;
}

static void serve(meta_committer *k, request *chain)
{
    while (chain != NULL) {
        request *group = group_cut(&chain);
        pthread_mutex_lock(&k->running);
        if (group->fn == NULL)
            group->result = no_transaction(k, group);
        else
            group_run(k, group);
        answer(k, group);
        checkpoint_when_due(k);
        pthread_mutex_unlock(&k->running);
    }
}

static void *committer_main(void *arg)
{
    meta_committer *k = arg;
    const struct timespec idle = {.tv_nsec = CHECKPOINT_IDLE_MS * 1000000L};

    (void)pthread_setname_np(pthread_self(), "tarn-commit");
    for (;;) {
        request *chain = take(k);
        if (chain != NULL) {
            serve(k, chain);
            continue;
        }
        if (atomic_load(&k->stopping) != 0)
            return NULL;
        bool work_left = k->wal_frames > k->wal_copied;
        sleep_until_pushed(k, work_left ? &idle : NULL);
        if (work_left && atomic_load(&k->stack) == NULL)
            checkpoint_when_idle(k);
    }
}

/* ------------------------------------------------------------------ callers */
static tarn_err submit(meta_committer *k, request *r)
{
    if (atomic_fetch_add_explicit(&k->waiting, 1, memory_order_relaxed) >= k->meta->queue_max) {
        atomic_fetch_sub_explicit(&k->waiting, 1, memory_order_relaxed);
        return TARN_E_SLOW_DOWN;
    }
    r->fiber = tarn_fiber_current();
    push(k, r);
    if (r->fiber != NULL) {
        while (!r->answered)
            tarn_fiber_park();
    } else {
        while (atomic_load(&r->futex) == 0)
            futex_wait(&r->futex, 0, NULL);
    }
    return r->result;
}

static tarn_err run_inline(meta_committer *k, request *r)
{
    pthread_mutex_lock(&k->running);
    if (r->fn == NULL)
        r->result = no_transaction(k, r);
    else
        group_run(k, r);
    checkpoint_when_due(k);
    pthread_mutex_unlock(&k->running);
    return r->result;
}

tarn_err meta_committer_commit(meta_committer *k, tarn_meta_fn fn, void *arg)
{
    request r = {.fn = fn, .arg = arg};

    TARN_ASSERT(fn != NULL);
    TARN_ASSERT(k->inline_mode || !pthread_equal(pthread_self(), k->thread)); /* a function must not commit itself */
    tarn_metric_add(TARN_M_META_COMMITS, 1);
    return k->inline_mode ? run_inline(k, &r) : submit(k, &r);
}

tarn_err meta_committer_call(meta_committer *k, void (*call)(void *arg), void *arg)
{
    request r = {.call = call, .arg = arg};

    return k->inline_mode ? run_inline(k, &r) : submit(k, &r);
}

tarn_err meta_committer_checkpoint(meta_committer *k)
{
    request r = {.fn = NULL};

    return k->inline_mode ? run_inline(k, &r) : submit(k, &r);
}

/* ------------------------------------------------------------------ life */
/* Waits for readers during RESTART and TRUNCATE checkpoints, a bounded time. */
static int wait_for_readers(void *ctx, int tries)
{
    (void)ctx;
    if (tries >= CHECKPOINT_READER_WAIT_MS * 10)
        return 0;
    (void)usleep(100);
    return 1;
}

tarn_err meta_committer_start(tarn_meta *m, meta_conn *c, bool inline_mode, meta_committer **out)
{
    tarn_err err = TARN_E_NO_MEMORY;
    meta_committer *k = tarn_calloc(1, sizeof(*k));

    if (k == NULL)
        return err;
    k->meta = m;
    k->c = c;
    k->inline_mode = inline_mode;
    k->tx.meta = m;
    k->tx.c = c;
    k->tx.seq_next = 1;
    if (pthread_mutex_init(&k->running, NULL) != 0) {
        tarn_free(k);
        return err;
    }
    k->tx.arena = tarn_arena_new(META_TX_ARENA_BYTES_MAX);
    if (k->tx.arena == NULL)
        goto fail;
    err = seq_load(k);
    if (err == TARN_OK)
        err = meta_err(sqlite3_busy_handler(c->db, wait_for_readers, NULL));
    (void)sqlite3_wal_hook(c->db, on_wal, k);
    if (err == TARN_OK && !inline_mode && pthread_create(&k->thread, NULL, committer_main, k) != 0)
        err = TARN_E_NO_MEMORY;
    if (err != TARN_OK)
        goto fail;
    *out = k;
    return TARN_OK;
fail:
    tarn_arena_free(k->tx.arena);
    pthread_mutex_destroy(&k->running);
    tarn_free(k);
    return err;
}

void meta_committer_stop(meta_committer *k)
{
    if (k == NULL)
        return;
    if (!k->inline_mode) {
        atomic_store(&k->stopping, 1);
        committer_kick(k);
        int rc = pthread_join(k->thread, NULL);
        TARN_ASSERT(rc == 0);
    }
    TARN_ASSERT(atomic_load(&k->stack) == NULL);
    tarn_arena_free(k->tx.arena);
    pthread_mutex_destroy(&k->running);
    tarn_free(k);
}
