/* SPDX-License-Identifier: Apache-2.0 */
/*
 * iceberg, what a worker keeps: states of tables and views (a cache with a limit in bytes, least recently used go first)
 * and the lanes of commits.
 *
 * A state is one version of one entity: its metadata as text and as a tree. A state never changes, so it is right as long
 * as the database names its version; who takes one from the cache has read that version just now.
 *
 * A lane lets the commits to one table follow each other without waiting for each other's sync: each is built upon the one
 * before, which may still be on its way. See commit.c.
 *
 * Invariants: (1) bytes of the cache ≤ the limit, or the cache holds one state; (2) a state is freed with its last
 * reference; (3) a lane is there while somebody uses it.
 * Threads: a worker is its thread's; tarn_iceberg.lock guards only the list of them.
 */
#include <string.h>

#include "catalog.h"

#define CACHE_CHAINS 4096          /* power of two */
#define LANE_CHAINS 512            /* power of two */
#define TREE_BYTES_PER_TEXT_BYTE 8 /* a parsed tree is about this much larger than its text (measured) */

struct ice_worker {
    tarn_loop *loop;
    uint64_t bytes, bytes_max;
    tarn_link lru; /* least recent first */
    ice_state *states[CACHE_CHAINS];
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
    w->bytes_max = ice->cache_bytes_max;
    w->loop = tarn_loop_current();
    tarn_list_init(&w->lru);
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

/* ------------------------------------------------------------------ states */
ice_state *ice_state_new(const tarn_entity_row *row, json_t *metadata, ice_text *text)
{
    ice_state *s = tarn_calloc(1, sizeof *s);
    char *p = tarn_strdup(row->pointer);
    if (!s || !p) {
        json_decref(metadata);
        ice_text_free(text);
        tarn_free(p);
        tarn_free(s);
        return NULL;
    }
    s->refs = 1;
    s->entity_id = row->id;
    s->version = row->version;
    s->kind = row->kind;
    s->pointer = (tarn_str){p, row->pointer.n};
    s->text = *text;
    s->metadata = metadata;
    s->bytes = sizeof *s + ice_text_bytes(text) + text->n * TREE_BYTES_PER_TEXT_BYTE + row->pointer.n;
    tarn_list_init(&s->lru);
    tarn_list_init(&s->waiters);
    memset(text, 0, sizeof *text);
    return s;
}

tarn_str ice_state_text(const ice_state *s)
{
    return (tarn_str){s->text.p, s->text.n};
}

ice_state *ice_state_ref(ice_state *s)
{
    __atomic_add_fetch(&s->refs, 1, __ATOMIC_RELAXED);
    return s;
}

void ice_state_unref(ice_state *s)
{
    if (!s || __atomic_sub_fetch(&s->refs, 1, __ATOMIC_ACQ_REL) > 0)
        return;
    json_decref(s->metadata);
    tarn_free((void *)(uintptr_t)s->pointer.p);
    ice_text_free(&s->text);
    tarn_free(s);
}

/* ------------------------------------------------------------------ cache */
static ice_state **chain_of(ice_worker *w, uint64_t entity_id)
{
    return &w->states[(entity_id * 0x9E3779B97F4A7C15ull >> 40) & (CACHE_CHAINS - 1)];
}

static void drop(ice_worker *w, ice_state *s)
{
    ice_state **at = chain_of(w, s->entity_id);
    while (*at != s)
        at = &(*at)->chain;
    *at = s->chain;
    s->chain = NULL;
    s->cached = false;
    tarn_list_remove(&s->lru);
    TARN_ASSERT(w->bytes >= s->bytes);
    w->bytes -= s->bytes;
    ice_state_unref(s);
}

static ice_state *find(ice_worker *w, uint64_t entity_id)
{
    ice_state *s = *chain_of(w, entity_id);
    while (s && s->entity_id != entity_id)
        s = s->chain;
    return s;
}

ice_state *ice_cache_get(ice_worker *w, uint64_t entity_id, uint64_t version)
{
    ice_state *s = find(w, entity_id);
    if (!s || s->version != version)
        return NULL;
    tarn_list_remove(&s->lru);
    tarn_list_push(&w->lru, &s->lru);
    return ice_state_ref(s);
}

void ice_cache_put(ice_worker *w, ice_state *s)
{
    ice_state *old = find(w, s->entity_id);
    if (old == s || (old && old->version > s->version))
        return;
    if (old)
        drop(w, old);
    ice_state **at = chain_of(w, s->entity_id);
    s->chain = *at;
    *at = ice_state_ref(s);
    s->cached = true;
    tarn_list_push(&w->lru, &s->lru);
    w->bytes += s->bytes;
    while (w->bytes > w->bytes_max) {
        ice_state *first = TARN_CONTAINER_OF(w->lru.next, ice_state, lru);
        if (first == s)
            break;
        drop(w, first);
    }
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
    while (!tarn_list_empty(&w->lru))
        drop(w, TARN_CONTAINER_OF(w->lru.next, ice_state, lru));
    tarn_free(w);
}
