/* SPDX-License-Identifier: Apache-2.0 */
/*
 * iceberg, tables that several workers commit to at once.
 *
 * Each worker builds its commits one upon the other without waiting for the sync (commit.c). Two workers that do so to one
 * table undo each other's work: the one whose chain is longer in the queue wins every time. So a table that was fought for
 * belongs to one worker for a while, chosen by its name; the others have their commits run there. Nothing depends on it for
 * being right: the transaction compares pointers whoever runs it.
 *
 * A transaction over several tables has no lane. When it keeps losing it reserves its tables, and commits hold back
 * until it is through.
 *
 * Threads: the arrays are read and written by all, relaxed. A commit that runs elsewhere has its request to itself: the
 * request's own fiber is parked meanwhile.
 */
#include "catalog.h"

static size_t slot_of(uint64_t key)
{
    return (size_t)(key ^ key >> 32) & (ICE_CONTENTION_SLOTS - 1);
}

static uint64_t now_ms(void)
{
    return tarn_mono_ns() / 1000000;
}

ice_worker *ice_owner(tarn_iceberg *ice, const ice_worker *here, uint64_t key)
{
    size_t n = __atomic_load_n(&ice->workers_n, __ATOMIC_ACQUIRE);
    ice_worker *owner = n > 1 ? ice->workers[(key >> 16) % n] : NULL;
    return owner != here && owner && ice_worker_loop(owner) ? owner : NULL;
}

bool ice_contended(const tarn_iceberg *ice, uint64_t key)
{
    uint64_t at = __atomic_load_n(&ice->contended_ms[slot_of(key)], __ATOMIC_RELAXED);
    return at != 0 && now_ms() - at < ICE_CONTENTION_MS;
}

void ice_contended_mark(tarn_iceberg *ice, uint64_t key)
{
    __atomic_store_n(&ice->contended_ms[slot_of(key)], now_ms(), __ATOMIC_RELAXED);
}

void ice_reserve(tarn_iceberg *ice, uint64_t key, bool on)
{
    uint32_t *r = &ice->reserved[slot_of(key)];
    if (on) {
        __atomic_add_fetch(r, 1, __ATOMIC_RELAXED);
    } else {
        uint32_t was = __atomic_fetch_sub(r, 1, __ATOMIC_RELAXED);
        TARN_ASSERT(was > 0);
    }
}

void ice_hold_back(const tarn_iceberg *ice, uint64_t key)
{
    uint64_t end = 0;
    while (__atomic_load_n(&ice->reserved[slot_of(key)], __ATOMIC_RELAXED) > 0) {
        uint64_t now = now_ms();
        end = end ? end : now + ICE_RESERVE_WAIT_MS;
        if (now >= end)
            return;
        tarn_sleep_ms(1);
    }
}

/* ------------------------------------------------------------------ running elsewhere */
typedef struct errand {
    void (*fn)(void *arg);
    void *arg;
    tarn_loop *home;
    tarn_fiber *fiber;
    tarn_post post;
    bool done; /* home's thread only */
} errand;

static void come_home(tarn_post *post)
{
    errand *e = TARN_CONTAINER_OF(post, errand, post);
    e->done = true;
    tarn_fiber_wake(e->fiber);
}

static void run_errand(void *arg)
{
    errand *e = arg;
    e->fn(e->arg);
    tarn_loop_post(e->home, &e->post); /* the last touch: from here on the errand may be gone */
}

bool ice_run_at(ice_worker *w, void (*fn)(void *arg), void *arg)
{
    errand e = {.fn = fn, .arg = arg, .fiber = tarn_fiber_current(), .post = {.fn = come_home}};
    if (!e.fiber)
        return false;
    e.home = tarn_fiber_loop(e.fiber);
    if (tarn_fiber_spawn_remote(ice_worker_loop(w), run_errand, &e, "commit") != TARN_OK)
        return false;
    while (!e.done)
        tarn_fiber_park();
    return true;
}
