/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The fibers that keep the store in order: repair, garbage, sweeper; heal, scrub and fill (task.c).
 *
 * Each loops: work, then sleep in short steps, so that a stop is seen soon. They do nothing while too few drives take
 * writes: their transactions would fail one after the other.
 * Threads: all on the one loop that start was given.
 */
#include "manifest.h"
#include "upkeep.h"

#define NAP_MS 200
#define REPAIR_PERIOD_MS 1000
#define REPAIR_RETRY_MS 30000 /* rows that wait for a drive */
#define GARBAGE_PERIOD_MS 2000
#define SWEEP_FIRST_MS 10000
#define SWEEP_PERIOD_MS (3600 * 1000)

static bool stopping(tarn_store *s)
{
    obj_background *b = s->background;
    return atomic_load(&b->stop) || tarn_loop_stopping(b->loop);
}

/* False when it is time to end. */
static bool nap(tarn_store *s, int64_t ms)
{
    for (; ms > 0 && !stopping(s); ms -= NAP_MS) {
        tarn_sleep_ms(ms < NAP_MS ? (uint64_t)ms : NAP_MS);
    }
    return !stopping(s);
}

static void say(const char *what, tarn_err err)
{
    if (err && err != TARN_E_CANCELED) {
        tarn_log(TARN_LOG_WARN, "background work failed", "work", what, "error", tarn_err_get(err)->name, NULL);
    }
}

static bool wishes(tarn_store *s)
{
    pthread_mutex_lock(&s->lock);
    bool any = s->repair_wishes_n > 0;
    pthread_mutex_unlock(&s->lock);
    return any;
}

static void repair_main(void *arg)
{
    tarn_store *s = arg;
    int64_t idle_ms = REPAIR_RETRY_MS;
    while (nap(s, REPAIR_PERIOD_MS)) {
        idle_ms += REPAIR_PERIOD_MS;
        if (tarn_store_writable(s) && (wishes(s) || idle_ms >= REPAIR_RETRY_MS)) {
            say("repair", obj_repair_pass(s, stopping));
            idle_ms = 0;
        }
    }
}

static void garbage_main(void *arg)
{
    tarn_store *s = arg;
    while (nap(s, GARBAGE_PERIOD_MS)) {
        if (tarn_store_writable(s)) {
            say("garbage", obj_garbage_pass(s, OBJ_GARBAGE_MIN_AGE_MS, stopping));
        }
    }
}

static void sweep_main(void *arg)
{
    tarn_store *s = arg;
    for (int64_t wait_ms = SWEEP_FIRST_MS; nap(s, wait_ms); wait_ms = SWEEP_PERIOD_MS) {
        if (tarn_store_writable(s)) {
            say("sweep", obj_sweep_pass(s, TARN_GARBAGE_AGE_MS, stopping));
            say("sweep of manifests", obj_manifest_sweep(s, TARN_GARBAGE_AGE_MS));
            say("compaction", obj_compact_pass(s, stopping)); /* what it leaves behind is an hour old at the next sweep */
        }
    }
}

tarn_err tarn_store_start_background(tarn_store *s, tarn_loop *loop)
{
    static const struct {
        void (*fn)(void *arg);
        const char *name;
    } fibers[] = {{repair_main, "repair"}, {garbage_main, "garbage"}, {sweep_main, "sweep"},       {obj_fill_main, "fill"},
                  {obj_heal_main, "heal"}, {obj_scrub_main, "scrub"}, {obj_backup_main, "backup"}, {obj_watch_main, "watch"}};
    TARN_ASSERT(!s->background);
    s->background = tarn_calloc(1, sizeof *s->background);
    if (!s->background) {
        return TARN_E_NO_MEMORY;
    }
    s->background->loop = loop;
    for (size_t i = 0; i < TARN_ARRAY_LEN(fibers); i++) {
        tarn_err err = tarn_fiber_spawn_remote(loop, fibers[i].fn, s, fibers[i].name);
        if (err) {
            atomic_store(&s->background->stop, true);
            return err;
        }
    }
    return TARN_OK;
}

void tarn_store_stop_background(tarn_store *s)
{
    if (s->background) {
        atomic_store(&s->background->stop, true);
    }
}
