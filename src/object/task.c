/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Heal and scrub: long work over all versions, with progress that is kept.
 *
 *   IDLE ──start──▶ RUNNING ──all seen──▶ DONE       RUNNING ──stop──▶ STOPPED       RUNNING ──error──▶ FAILED
 *                      └──the daemon ends: RUNNING stays in the database, with its place, and goes on at the next start
 *
 * A scrub yields: it reads no faster than its rate, and while requests come it naps between blocks. A heal is what
 * somebody waits for: it only gives other fibers their turn.
 *
 * A fill begins by itself when a drive is blank or was away (its record says FILLING), and ends with that record READY. It
 * does not check first: what a shard is compared with is rebuilt at once.
 *
 * State in the key-value table, name "task." and the kind: version (1), state, dry run (1 byte each), bucket, prefix,
 * the place's bucket and key (lstr each), its seq, started, ended, busy ms, versions in all (8 bytes each), the counts in the order of
 * tarn_task_counts (8 bytes each), and of a fill the sum of the drives' identities that it is for.
 *
 * Invariants:
 *  1. status, wanted and stop are read and written under tasks->lock; everything else is the task's fiber's.
 *  2. Counts are saved together with the place they belong to.
 * Memory: the store's. Threads: one fiber a task on the background loop; start, stop and status from any thread.
 */
#include "upkeep.h"

#include <string.h>

#define TASK_VERSION 1
#define TASK_NAP_MS 200
#define TASK_SAVE_MS 5000
#define TASK_STATE_BYTES_MAX 8192
#define FILL_RETRY_MS 60000
#define SCRUB_LOOK_MS 5000   /* between two looks whether a scrub is due */
#define SCRUB_BACK_OFF_MS 20 /* nap after a block while requests come */
#define SCRUB_DEBT_MS_MIN 5  /* shorter naps for the rate are saved up */
#define SCRUB_LAST_KV "scrub.last_ms"

typedef struct task {
    tarn_store *s;
    tarn_task kind;
    tarn_task_status status;
    bool wanted, stop;
    obj_walk_pos from;
    uint64_t drives_sum; /* FILL: of the drives that the run is for; a place counts for them only */
    /* the fiber's */
    obj_walk walk;
    uint64_t began_ns, busy_before_ms, saved_ns;
    int64_t traffic_seen;
    uint64_t debt_ns;
} task;

struct obj_tasks {
    pthread_mutex_t lock;
    task list[TARN_TASK_COUNT];
    uint64_t scrub_interval_s, scrub_bytes_per_s;
};

static const struct {
    const char *kv, *name, *done;
} kinds[TARN_TASK_COUNT] = {
    {"task.heal", "heal", "heal done"}, {"task.scrub", "scrub", "scrub done"}, {"task.fill", "fill", "drives filled"}};

static bool ending(tarn_store *s)
{
    obj_background *b = s->background;
    return atomic_load(&b->stop) || tarn_loop_stopping(b->loop);
}

static bool nap(tarn_store *s, uint64_t ms)
{
    for (; ms > 0 && !ending(s); ms -= ms < TASK_NAP_MS ? ms : TASK_NAP_MS) {
        tarn_sleep_ms(ms < TASK_NAP_MS ? ms : TASK_NAP_MS);
    }
    return !ending(s);
}

/* ------------------------------------------------------------------ the kept state */
static void pack_counts(tarn_sb *b, const tarn_task_counts *c)
{
    const uint64_t v[] = {c->objects, c->bytes, c->damaged, c->missing, c->corrupt, c->healed, c->healed_bytes, c->waiting, c->lost};
    for (size_t i = 0; i < TARN_ARRAY_LEN(v); i++) {
        tarn_sb_le64(b, v[i]);
    }
}

static void unpack_counts(tarn_rd *r, tarn_task_counts *c)
{
    uint64_t *const v[] = {&c->objects, &c->bytes,        &c->damaged, &c->missing, &c->corrupt,
                           &c->healed,  &c->healed_bytes, &c->waiting, &c->lost};
    for (size_t i = 0; i < TARN_ARRAY_LEN(v); i++) {
        *v[i] = tarn_rd_le64(r);
    }
}

static void pack(tarn_sb *b, const tarn_task_status *st, const obj_walk_pos *pos, uint64_t drives_sum)
{
    tarn_sb_char(b, TASK_VERSION);
    tarn_sb_char(b, (char)st->state);
    tarn_sb_char(b, st->dry_run ? 1 : 0);
    tarn_sb_lstr(b, tarn_str_of(st->bucket));
    tarn_sb_lstr(b, tarn_str_of(st->prefix));
    tarn_sb_lstr(b, (tarn_str){pos->bucket, pos->bucket_n});
    tarn_sb_lstr(b, (tarn_str){pos->key, pos->key_n});
    tarn_sb_le64(b, pos->seq);
    tarn_sb_le64(b, (uint64_t)st->started_ms);
    tarn_sb_le64(b, (uint64_t)st->ended_ms);
    tarn_sb_le64(b, st->busy_ms);
    tarn_sb_le64(b, st->objects_total);
    pack_counts(b, &st->counts);
    tarn_sb_le64(b, drives_sum);
}

static bool fits(char *out, size_t cap, tarn_str s)
{
    if (s.n >= cap) {
        return false;
    }
    memcpy(out, s.p ? s.p : "", s.n);
    out[s.n] = '\0';
    return true;
}

static bool unpack(tarn_str packed, tarn_task_status *st, obj_walk_pos *pos, uint64_t *drives_sum)
{
    tarn_rd r = tarn_rd_of(packed);
    uint8_t version = tarn_rd_u8(&r), state = tarn_rd_u8(&r);
    *st = (tarn_task_status){.dry_run = tarn_rd_u8(&r) != 0};
    tarn_str bucket = tarn_rd_lstr(&r), prefix = tarn_rd_lstr(&r), at_bucket = tarn_rd_lstr(&r), at_key = tarn_rd_lstr(&r);
    *pos = (obj_walk_pos){.seq = tarn_rd_le64(&r), .bucket_n = at_bucket.n, .key_n = at_key.n};
    st->started_ms = (int64_t)tarn_rd_le64(&r);
    st->ended_ms = (int64_t)tarn_rd_le64(&r);
    st->busy_ms = tarn_rd_le64(&r);
    st->objects_total = tarn_rd_le64(&r);
    unpack_counts(&r, &st->counts);
    *drives_sum = tarn_rd_le64(&r);
    st->state = (tarn_task_state)state;
    return !r.failed && version == TASK_VERSION && state <= TARN_TASK_FAILED && fits(st->bucket, sizeof st->bucket, bucket) &&
           fits(st->prefix, sizeof st->prefix, prefix) && fits(pos->bucket, sizeof pos->bucket, at_bucket) &&
           fits(pos->key, sizeof pos->key, at_key);
}

typedef struct kv_arg {
    const char *name;
    tarn_str value;
} kv_arg;

static tarn_err kv_fn(tarn_meta_tx *tx, void *arg)
{
    kv_arg *a = arg;
    return tarn_meta_kv_put(tx, a->name, a->value);
}

static void save_at(task *t, const tarn_task_status *st, const obj_walk_pos *pos)
{
    tarn_sb b;
    tarn_sb_init(&b, TASK_STATE_BYTES_MAX);
    pack(&b, st, pos, t->drives_sum);
    kv_arg a = {kinds[t->kind].kv, tarn_sb_view(&b)};
    /* A place that is not kept only means that more is looked at again. */
    if (!b.failed && tarn_store_writable(t->s)) {
        (void)tarn_meta_commit(t->s->meta, kv_fn, &a);
    }
    tarn_sb_free(&b);
}

static void save(task *t, const tarn_task_status *st)
{
    save_at(t, st, &t->walk.pos);
    t->saved_ns = tarn_mono_ns();
}

static void load(task *t)
{
    tarn_str packed;
    tarn_task_status st;
    obj_walk_pos pos;
    uint64_t drives_sum = 0;
    tarn_arena *a = tarn_arena_new(4 * TASK_STATE_BYTES_MAX);
    if (a && tarn_meta_kv_get(t->s->meta, NULL, kinds[t->kind].kv, a, &packed) == TARN_OK && unpack(packed, &st, &pos, &drives_sum)) {
        t->status = st;
        t->from = pos;
        t->drives_sum = drives_sum;
        t->wanted = st.state == TARN_TASK_RUNNING;
    }
    tarn_arena_free(a);
}

/* ------------------------------------------------------------------ progress */
static void note(task *t, const tarn_task_counts *more)
{
    obj_tasks *all = t->s->tasks;
    tarn_task_counts *c = &t->status.counts;
    pthread_mutex_lock(&all->lock);
    c->objects += more->objects;
    c->bytes += more->bytes;
    c->damaged += more->damaged;
    c->missing += more->missing;
    c->corrupt += more->corrupt;
    c->healed += more->healed;
    c->healed_bytes += more->healed_bytes;
    c->waiting += more->waiting;
    c->lost += more->lost;
    t->status.busy_ms = t->busy_before_ms + (tarn_mono_ns() - t->began_ns) / 1000000u;
    pthread_mutex_unlock(&all->lock);
    if (t->kind == TARN_TASK_SCRUB) {
        tarn_metric_add(TARN_M_SCRUB_OBJECTS, (int64_t)more->objects);
        tarn_metric_add(TARN_M_SCRUB_BYTES, (int64_t)more->bytes);
        tarn_metric_add(TARN_M_SCRUB_DAMAGED, (int64_t)more->damaged);
    }
    tarn_metric_add(TARN_M_HEALED_BYTES, (int64_t)more->healed_bytes);
}

static void note_place(task *t, const tarn_bucket_row *bucket, const tarn_version_row *row)
{
    pthread_mutex_lock(&t->s->tasks->lock);
    (void)fits(t->status.at_bucket, sizeof t->status.at_bucket, bucket->name);
    (void)fits(t->status.at_key, sizeof t->status.at_key, row->key);
    pthread_mutex_unlock(&t->s->tasks->lock);
}

static void copy_status(task *t, tarn_task_status *out)
{
    pthread_mutex_lock(&t->s->tasks->lock);
    *out = t->status;
    pthread_mutex_unlock(&t->s->tasks->lock);
}

static bool stopped(task *t)
{
    pthread_mutex_lock(&t->s->tasks->lock);
    bool stop = t->stop;
    pthread_mutex_unlock(&t->s->tasks->lock);
    return stop;
}

/* Have requests come, or bytes of them, since the last look? */
static bool traffic(task *t)
{
    int64_t now = tarn_metric_get(TARN_M_HTTP_REQUESTS) + tarn_metric_get(TARN_M_HTTP_RECEIVED_BYTES) / TARN_BLOCK_BYTES +
                  tarn_metric_get(TARN_M_HTTP_SENT_BYTES) / TARN_BLOCK_BYTES;
    bool busy = now != t->traffic_seen;
    t->traffic_seen = now;
    return busy;
}

static bool task_step(void *ctx, uint64_t bytes)
{
    task *t = ctx;
    if (ending(t->s) || stopped(t)) {
        return false;
    }
    note(t, &(tarn_task_counts){.bytes = bytes});
    uint64_t rate = t->s->tasks->scrub_bytes_per_s;
    if (t->kind == TARN_TASK_SCRUB && rate > 0) {
        t->debt_ns += bytes * 1000u / rate * 1000000u;
    }
    if (t->debt_ns >= SCRUB_DEBT_MS_MIN * 1000000u) {
        uint64_t ms = t->debt_ns / 1000000u;
        t->debt_ns = 0;
        (void)nap(t->s, ms);
    }
    if (t->kind == TARN_TASK_SCRUB && traffic(t)) {
        (void)nap(t->s, SCRUB_BACK_OFF_MS);
    } else {
        tarn_fiber_yield();
    }
    return true;
}

/* ------------------------------------------------------------------ a version */
static void say_damage(const task *t, const tarn_bucket_row *bucket, const tarn_version_row *row, const obj_check *c)
{
    tarn_logf(TARN_LOG_WARN, "damaged object", "%s found %.*s/%.*s (version %llu): %u shards missing, %u wrong%s", kinds[t->kind].name,
              TARN_STR_ARG(bucket->name), TARN_STR_ARG(row->key), (unsigned long long)row->seq, c->missing, c->corrupt,
              c->lost ? ", too few are left" : "");
}

/* bytes: what is written when it succeeds. */
static tarn_err mend(task *t, const tarn_version_row *row, uint64_t bytes, tarn_task_counts *n)
{
    unsigned open = 0;
    tarn_err err = obj_repair_version(t->s, row, &open);
    switch (err) {
    case TARN_OK:
        if (open > 0) { /* a drive refuses it: when that is back, the queue has it */
            n->waiting = 1;
            obj_repair_ask(t->s, row->bucket_id, row->key, row->seq);
        } else {
            n->healed = 1;
            n->healed_bytes = bytes;
        }
        return TARN_OK;
    case TARN_E_CORRUPT:
    case TARN_E_FORMAT:
        n->lost = 1;
        return TARN_OK;
    case TARN_E_QUORUM_READ:
        n->waiting = 1;
        return TARN_OK;
    case TARN_E_CONFLICT:
    case TARN_E_NO_SUCH_VERSION:
    case TARN_E_INVALID_PART:
        return TARN_OK; /* gone, or changed under us */
    default:
        return err;
    }
}

static tarn_err check_and_mend(task *t, const tarn_bucket_row *bucket, const tarn_version_row *row, tarn_task_counts *n)
{
    obj_check c = {.step = task_step, .ctx = t};
    tarn_err err = obj_check_version(t->s, row, &c);
    if (err) {
        return err == TARN_E_NO_SUCH_VERSION ? TARN_OK : err;
    }
    n->missing = c.missing;
    n->corrupt = c.corrupt;
    if (!obj_check_clean(&c)) {
        n->damaged = 1;
        say_damage(t, bucket, row, &c);
        if (!t->status.dry_run) {
            return mend(t, row, c.damaged_bytes, n);
        }
        n->lost = c.lost ? 1 : 0;
    } else if (c.unreadable > 0) {
        n->waiting = 1;
    }
    return TARN_OK;
}

static tarn_err task_row(void *ctx, const tarn_bucket_row *bucket, const tarn_version_row *row)
{
    task *t = ctx;
    tarn_task_counts n = {.objects = 1};
    note_place(t, bucket, row);
    if (ending(t->s) || stopped(t)) {
        return TARN_E_CANCELED;
    }
    tarn_err err = t->kind == TARN_TASK_FILL ? mend(t, row, row->size / t->s->k, &n) : check_and_mend(t, bucket, row, &n);
    note(t, &n);
    if (!err && tarn_mono_ns() - t->saved_ns > TASK_SAVE_MS * 1000000ull) {
        tarn_task_status st;
        copy_status(t, &st);
        save(t, &st);
    }
    return err;
}

/* ------------------------------------------------------------------ a run */
static void run(task *t)
{
    obj_tasks *all = t->s->tasks;
    tarn_task_status st;
    copy_status(t, &st);
    t->walk =
        (obj_walk){.s = t->s, .bucket = tarn_str_of(st.bucket), .prefix = tarn_str_of(st.prefix), .pos = t->from, .fn = task_row, .ctx = t};
    t->began_ns = tarn_mono_ns();
    t->busy_before_ms = st.busy_ms;
    (void)traffic(t);
    if (st.objects_total == 0) {
        uint64_t total = 0;
        (void)obj_walk_count(t->s, t->walk.bucket, t->walk.prefix, &total); /* only shown */
        pthread_mutex_lock(&all->lock);
        t->status.objects_total = st.objects_total = total;
        pthread_mutex_unlock(&all->lock);
    }
    save(t, &st);
    tarn_log(TARN_LOG_INFO, "task begins", "task", kinds[t->kind].name, "bucket", st.bucket, "from", t->from.bucket, NULL);
    tarn_err err = obj_walk_run(&t->walk);
    if (!err && st.bucket[0] == '\0') { /* everything: the database too */
        tarn_meta_scrub_counts pages;
        err = tarn_meta_scrub(t->s->meta, !st.dry_run, task_step, t, &pages);
    }
    bool interrupted = err == TARN_E_CANCELED && !stopped(t);
    pthread_mutex_lock(&all->lock);
    if (!interrupted) {
        t->status.state = err == TARN_OK ? TARN_TASK_DONE : err == TARN_E_CANCELED ? TARN_TASK_STOPPED : TARN_TASK_FAILED;
        t->status.ended_ms = tarn_now_ms();
        t->status.err = err;
    }
    st = t->status;
    pthread_mutex_unlock(&all->lock);
    save(t, &st);
    if (!interrupted) {
        const tarn_task_counts *c = &st.counts;
        tarn_logf(c->lost > 0 || err ? TARN_LOG_ERROR : TARN_LOG_INFO, kinds[t->kind].done,
                  "%llu versions, %llu bytes read, %llu damaged, %llu healed, %llu waiting for a drive, %llu lost%s%s",
                  (unsigned long long)c->objects, (unsigned long long)c->bytes, (unsigned long long)c->damaged,
                  (unsigned long long)c->healed, (unsigned long long)c->waiting, (unsigned long long)c->lost, err ? "; ended by " : "",
                  err ? tarn_err_get(err)->name : "");
    }
    if (t->kind == TARN_TASK_SCRUB) {
        tarn_metric_set(TARN_M_SCRUB_LOST, (int64_t)st.counts.lost);
    }
}

/* True when the task is to run now. */
static bool take_wish(task *t)
{
    pthread_mutex_lock(&t->s->tasks->lock);
    bool go = t->wanted;
    t->wanted = false;
    pthread_mutex_unlock(&t->s->tasks->lock);
    return go;
}

void obj_heal_main(void *arg)
{
    tarn_store *s = arg;
    task *t = &s->tasks->list[TARN_TASK_HEAL];
    while (nap(s, TASK_NAP_MS)) {
        if (take_wish(t)) {
            run(t);
        }
    }
}

/* ------------------------------------------------------------------ drives that have to be filled */
static bool wants_filling(const obj_drive *d)
{
    return d->filling && obj_drive_writable(d);
}

static tarn_err fill_uploads(void *ctx, uint64_t upload_id)
{
    task *t = ctx;
    tarn_task_counts n = {0};
    unsigned open = 0;
    tarn_err err = ending(t->s) ? TARN_E_CANCELED : obj_repair_upload(t->s, upload_id, &open);
    if (err == TARN_E_QUORUM_READ) {
        n.waiting = 1;
        note(t, &n);
    }
    return err == TARN_E_CANCELED || err == TARN_E_NO_MEMORY ? err : TARN_OK;
}

/* One run for the drives of the list; they are done when nothing is left that waits. False: to be tried again. */
static bool fill(task *t, bool resumed)
{
    tarn_store *s = t->s;
    bool mine[OBJ_DRIVES_MAX] = {false};
    uint64_t sum = 0;
    tarn_task_status st;
    for (size_t i = 0; i < s->drives_n; i++) {
        mine[i] = wants_filling(&s->drives[i]);
        sum = mine[i] ? tarn_crc64(sum, s->drives[i].uuid, sizeof s->drives[i].uuid) : sum;
    }
    if (!resumed || sum != t->drives_sum) {
        pthread_mutex_lock(&s->tasks->lock);
        t->status = (tarn_task_status){.state = TARN_TASK_RUNNING, .started_ms = tarn_now_ms()};
        t->from = (obj_walk_pos){0};
        t->drives_sum = sum;
        pthread_mutex_unlock(&s->tasks->lock);
    }
    /* Uploads first: one that is completed meanwhile has been seen, or is a version when those are walked. */
    tarn_err err = obj_scan_uploads(s, fill_uploads, t);
    if (err) {
        return false;
    }
    run(t);
    copy_status(t, &st);
    if (st.state != TARN_TASK_DONE || st.counts.waiting > 0) {
        return false;
    }
    for (size_t i = 0; i < s->drives_n; i++) {
        if (mine[i] && wants_filling(&s->drives[i])) {
            err = obj_drive_filled(s, &s->drives[i]);
        }
    }
    return err == TARN_OK;
}

void obj_fill_main(void *arg)
{
    tarn_store *s = arg;
    task *t = &s->tasks->list[TARN_TASK_FILL];
    bool resumed = take_wish(t); /* the run that the last stop interrupted: the same drives are still marked */
    while (!ending(s)) {
        bool any = false;
        for (size_t i = 0; i < s->drives_n; i++) {
            any = any || wants_filling(&s->drives[i]);
        }
        bool again = any && tarn_store_writable(s) && !fill(t, resumed);
        resumed = false;
        if (!nap(s, again ? FILL_RETRY_MS : TASK_NAP_MS * 5)) {
            return;
        }
    }
}

/* ------------------------------------------------------------------ scrubs by the clock */
static tarn_err set_last(tarn_store *s, int64_t ms)
{
    char mem[32];
    tarn_sb b;
    tarn_sb_init_fixed(&b, mem, sizeof mem);
    tarn_sb_i64(&b, ms);
    kv_arg a = {SCRUB_LAST_KV, tarn_sb_view(&b)};
    return tarn_meta_commit(s->meta, kv_fn, &a);
}

/* A new deployment's first scrub comes one interval after its first start. */
static bool scrub_due(tarn_store *s)
{
    int64_t last = 0, now = tarn_now_ms();
    tarn_str text;
    if (s->tasks->scrub_interval_s == 0 || !tarn_store_writable(s)) {
        return false;
    }
    tarn_arena *a = tarn_arena_new(4096);
    bool known = a && tarn_meta_kv_get(s->meta, NULL, SCRUB_LAST_KV, a, &text) == TARN_OK && tarn_str_to_i64(text, &last);
    tarn_arena_free(a);
    if (!known || last > now) {
        (void)set_last(s, now);
        return false;
    }
    return now - last >= (int64_t)s->tasks->scrub_interval_s * 1000;
}

void obj_scrub_main(void *arg)
{
    tarn_store *s = arg;
    task *t = &s->tasks->list[TARN_TASK_SCRUB];
    uint64_t waited_ms = 0;
    while (nap(s, TASK_NAP_MS)) {
        waited_ms += TASK_NAP_MS;
        if (waited_ms >= SCRUB_LOOK_MS) {
            waited_ms = 0;
            if (scrub_due(s)) {
                (void)tarn_task_start(s, TARN_TASK_SCRUB, &(tarn_task_spec){0});
            }
        }
        if (take_wish(t)) {
            (void)set_last(s, tarn_now_ms());
            tarn_metric_set(TARN_M_SCRUB_RUNNING, 1);
            run(t);
            tarn_metric_set(TARN_M_SCRUB_RUNNING, 0);
        }
    }
}

/* ------------------------------------------------------------------ for others */
tarn_err obj_tasks_new(tarn_store *s, const tarn_store_options *opt)
{
    s->tasks = tarn_calloc(1, sizeof *s->tasks);
    if (!s->tasks) {
        return TARN_E_NO_MEMORY;
    }
    (void)pthread_mutex_init(&s->tasks->lock, NULL);
    s->tasks->scrub_interval_s = opt->scrub_interval_s;
    s->tasks->scrub_bytes_per_s = opt->scrub_bytes_per_s;
    for (unsigned i = 0; i < TARN_TASK_COUNT; i++) {
        s->tasks->list[i].s = s;
        s->tasks->list[i].kind = (tarn_task)i;
        load(&s->tasks->list[i]);
    }
    return TARN_OK;
}

void obj_tasks_free(tarn_store *s)
{
    if (s->tasks) {
        (void)pthread_mutex_destroy(&s->tasks->lock);
        tarn_free(s->tasks);
        s->tasks = NULL;
    }
}

tarn_err tarn_task_start(tarn_store *s, tarn_task kind, const tarn_task_spec *spec)
{
    task *t = &s->tasks->list[kind];
    tarn_err err = TARN_OK;
    if (spec->bucket.n > 0) {
        tarn_bucket_row row;
        tarn_arena *a = tarn_arena_new(2 * TARN_BUCKET_CONFIG_BYTES_MAX);
        err = !a                                            ? TARN_E_NO_MEMORY
              : spec->bucket.n > TARN_BUCKET_NAME_BYTES_MAX ? TARN_E_NO_SUCH_BUCKET
                                                            : tarn_meta_bucket_get(s->meta, NULL, spec->bucket, a, &row);
        tarn_arena_free(a);
    }
    if (!err && spec->prefix.n > TARN_KEY_BYTES_MAX) {
        err = TARN_E_KEY_TOO_LONG;
    }
    if (err) {
        return err;
    }
    pthread_mutex_lock(&s->tasks->lock);
    if (t->status.state == TARN_TASK_RUNNING) {
        pthread_mutex_unlock(&s->tasks->lock);
        return TARN_E_CONFLICT;
    }
    t->status = (tarn_task_status){.state = TARN_TASK_RUNNING, .dry_run = spec->dry_run, .started_ms = tarn_now_ms()};
    (void)fits(t->status.bucket, sizeof t->status.bucket, spec->bucket);
    (void)fits(t->status.prefix, sizeof t->status.prefix, spec->prefix);
    t->from = (obj_walk_pos){0};
    t->stop = false;
    tarn_task_status st = t->status;
    pthread_mutex_unlock(&s->tasks->lock);
    save_at(t, &st, &(obj_walk_pos){0}); /* what was answered is begun, whatever becomes of this process */
    pthread_mutex_lock(&s->tasks->lock);
    t->wanted = true;
    pthread_mutex_unlock(&s->tasks->lock);
    return TARN_OK;
}

void tarn_task_stop(tarn_store *s, tarn_task kind)
{
    pthread_mutex_lock(&s->tasks->lock);
    s->tasks->list[kind].stop = true;
    pthread_mutex_unlock(&s->tasks->lock);
}

void tarn_task_status_get(tarn_store *s, tarn_task kind, tarn_task_status *out)
{
    copy_status(&s->tasks->list[kind], out);
}
