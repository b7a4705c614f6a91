/* SPDX-License-Identifier: Apache-2.0 */
/*
 * iceberg, what a worker keeps: the lanes of commits.
 *
 * A lane lets the commits to one table follow each other without waiting for each other's sync: each is built upon the one
 * before, which may still be on its way. See commit.c.
 *
 * Invariant: a lane is there while somebody uses it.
 * Threads: a worker is its thread's; tarn_iceberg.lock guards only the list of them.
 */
#include "catalog.h"

#define LANE_CHAINS 512 /* power of two */

struct ice_worker {
    tarn_loop *loop;
    ice_lane *lanes[LANE_CHAINS];
};

/* ------------------------------------------------------------------ the thread's worker */
static _Thread_local struct {
    uint64_t serial;
    ice_worker *worker;
} here;

static ice_worker *new_worker(tarn_iceberg *ice)
{
    ice_worker *w = tarn_calloc(1, sizeof *w);
    if (!w)
        return NULL;
    w->loop = tarn_loop_current();
    pthread_mutex_lock(&ice->lock);
    bool room = ice->workers_n < ICE_WORKERS_MAX;
    if (room) {
        ice->workers[ice->workers_n] = w;
        __atomic_store_n(&ice->workers_n, ice->workers_n + 1, __ATOMIC_RELEASE); /* read without the lock by ice_owner */
    }
    pthread_mutex_unlock(&ice->lock);
    if (!room) {
        tarn_free(w);
        return NULL;
    }
    return w;
}

ice_worker *ice_worker_here(tarn_iceberg *ice)
{
    if (here.serial != ice->serial) {
        ice_worker *w = new_worker(ice);
        if (!w)
            return NULL;
        here.serial = ice->serial;
        here.worker = w;
    }
    return here.worker;
}

tarn_loop *ice_worker_loop(const ice_worker *w)
{
    return w->loop;
}

/* ------------------------------------------------------------------ lanes */
uint64_t ice_lane_key(uint64_t bucket_id, tarn_str ns, tarn_str name)
{
    uint64_t h = 14695981039346656037ull ^ bucket_id;
    for (size_t i = 0; i < ns.n; i++)
        h = (h ^ (unsigned char)ns.p[i]) * 1099511628211ull;
    h = (h ^ 0x1e) * 1099511628211ull;
    for (size_t i = 0; i < name.n; i++)
        h = (h ^ (unsigned char)name.p[i]) * 1099511628211ull;
    return h;
}

static ice_lane **lane_at(ice_worker *w, uint64_t key)
{
    ice_lane **at = &w->lanes[(key >> 20) & (LANE_CHAINS - 1)];
    while (*at && (*at)->key != key)
        at = &(*at)->chain;
    return at;
}

ice_lane *ice_lane_enter(ice_worker *w, uint64_t key)
{
    ice_lane **at = lane_at(w, key);
    if (!*at) {
        ice_lane *l = tarn_calloc(1, sizeof *l);
        if (!l)
            return NULL;
        l->key = key;
        tarn_fiber_lock_init(&l->lock);
        *at = l;
    }
    (*at)->users++;
    return *at;
}

void ice_lane_leave(ice_worker *w, ice_lane *l)
{
    TARN_ASSERT(l->users > 0);
    if (--l->users > 0)
        return;
    ice_lane **at = lane_at(w, l->key);
    TARN_ASSERT(*at == l && l->inflight == 0);
    *at = l->chain;
    ice_state_unref(l->tip);
    tarn_free(l->row_memory);
    tarn_free(l);
}

void ice_worker_free(ice_worker *w)
{
    tarn_free(w);
}
