/* SPDX-License-Identifier: Apache-2.0 */
/*
 * iceberg, states of tables and views, and the cache of them: one for all workers, with a limit in bytes; the least recently
 * used go first.
 *
 * A state is one version of one entity: its metadata as text and as a tree. A state never changes, so it is right as long
 * as the database names its version; who takes one from the cache has read that version just now. One cache for all, because
 * clients reach a table through every worker: with one each, what one worker commits the others would read and parse again.
 *
 * What lies at a state's metadata location may be overwritten or deleted through S3 meanwhile. The catalog goes by what the
 * version was when it was committed or first read; the next commit writes a new file from it.
 *
 * Invariants: (1) bytes of the cache ≤ the limit, or the cache holds one state; (2) a state is freed with its last
 * reference; (3) a state in the cache is not on its way: its outcome is known; (4) of one entity the newest version is kept.
 * Threads: the cache's lock guards the chains, the order and each state's fields for them (bytes, lru, chain). Trees and texts are
 * freed outside of it: that takes longer than everything that is done inside.
 */
#include <string.h>

#include "catalog.h"

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
    s->bytes = sizeof *s + ice_text_bytes(text) + ice_text_tree_bytes(text) + row->pointer.n;
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

/* ------------------------------------------------------------------ the cache, under its lock */
static ice_state **chain_of(ice_cache *c, uint64_t entity_id)
{
    return &c->chains[(entity_id * 0x9E3779B97F4A7C15ull >> 40) & (ICE_CACHE_CHAINS - 1)];
}

static ice_state *find(ice_cache *c, uint64_t entity_id)
{
    ice_state *s = *chain_of(c, entity_id);
    while (s && s->entity_id != entity_id)
        s = s->chain;
    return s;
}

/* Takes a state out and hangs it, with the cache's reference, before `gone`. */
static ice_state *take_out(ice_cache *c, ice_state *s, ice_state *gone)
{
    ice_state **at = chain_of(c, s->entity_id);
    while (*at != s)
        at = &(*at)->chain;
    *at = s->chain;
    tarn_list_remove(&s->lru);
    TARN_ASSERT(c->bytes >= s->bytes);
    c->bytes -= s->bytes;
    s->chain = gone;
    return s;
}

static ice_state *put_in(ice_cache *c, ice_state *s)
{
    ice_state *gone = NULL, *old = find(c, s->entity_id);
    if (old && old->version >= s->version)
        return NULL;
    if (old)
        gone = take_out(c, old, gone);
    ice_state **at = chain_of(c, s->entity_id);
    s->chain = *at;
    *at = ice_state_ref(s);
    tarn_list_push(&c->lru, &s->lru);
    c->bytes += s->bytes;
    for (;;) {
        ice_state *first = TARN_CONTAINER_OF(c->lru.next, ice_state, lru);
        if (c->bytes <= c->bytes_max || first == s)
            return gone;
        gone = take_out(c, first, gone);
    }
}

/* ------------------------------------------------------------------ the cache */
void ice_cache_init(ice_cache *c, uint64_t bytes_max)
{
    memset(c, 0, sizeof *c);
    c->bytes_max = bytes_max;
    tarn_list_init(&c->lru);
    pthread_mutex_init(&c->lock, NULL);
}

static void unref_all(ice_state *gone)
{
    while (gone) {
        ice_state *next = gone->chain;
        ice_state_unref(gone);
        gone = next;
    }
}

void ice_cache_free(ice_cache *c)
{
    ice_state *gone = NULL;
    while (!tarn_list_empty(&c->lru))
        gone = take_out(c, TARN_CONTAINER_OF(c->lru.next, ice_state, lru), gone);
    unref_all(gone);
    pthread_mutex_destroy(&c->lock);
}

ice_state *ice_cache_get(ice_cache *c, uint64_t entity_id, uint64_t version)
{
    pthread_mutex_lock(&c->lock);
    ice_state *s = find(c, entity_id);
    if (s && s->version == version) {
        tarn_list_remove(&s->lru);
        tarn_list_push(&c->lru, &s->lru);
        ice_state_ref(s);
    } else {
        s = NULL;
    }
    pthread_mutex_unlock(&c->lock);
    return s;
}

void ice_cache_put(ice_cache *c, ice_state *s)
{
    TARN_ASSERT(!s->pending && !s->failed);
    pthread_mutex_lock(&c->lock);
    ice_state *gone = put_in(c, s);
    pthread_mutex_unlock(&c->lock);
    unref_all(gone);
}
