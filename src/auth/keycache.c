/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Signing keys and their cache. A key is four HMACs over date, region, service and terminal; it stays the same for a day, so
 * a verification normally finds it here. STRIPES × WAYS entries, each stripe behind a lock of its own.
 *
 * Invariants: (1) an entry's key was derived from the very user, date, region and service that it names; (2) an entry is
 * only made after a signature with it was right; (3) keys are wiped before their memory is given back.
 * Memory: one block, owned by tarn_auth. Threads: any.
 */
#include "auth_private.h"

#include <pthread.h>
#include <string.h>

#define STRIPES 16
#define WAYS 8
#define TAG_BYTES_MAX (8 + AUTH_REGION_BYTES_MAX + AUTH_SERVICE_BYTES_MAX + 2)
#define FNV_BASIS UINT64_C(0xcbf29ce484222325)
#define FNV_PRIME UINT64_C(0x100000001b3)

typedef struct entry {
    const auth_user *user; /* NULL: free */
    uint64_t hash;
    size_t tag_n;
    char tag[TAG_BYTES_MAX]; /* date, region, '/', service */
    uint8_t key[TARN_SHA256_BYTES];
} entry;

typedef struct stripe {
    pthread_mutex_t lock;
    unsigned next; /* the way that goes next */
    entry ways[WAYS];
} stripe;

struct auth_keycache {
    stripe stripes[STRIPES];
    size_t locks_n; /* locks that were made */
};

typedef struct wanted {
    const auth_user *user;
    uint64_t hash;
    char tag[TAG_BYTES_MAX];
    size_t tag_n; /* 0: too long to be kept */
} wanted;

tarn_err auth_keycache_new(auth_keycache **out)
{
    auth_keycache *c = tarn_calloc(1, sizeof *c);
    if (!c) {
        return TARN_E_NO_MEMORY;
    }
    for (; c->locks_n < STRIPES; c->locks_n++) {
        if (pthread_mutex_init(&c->stripes[c->locks_n].lock, NULL) != 0) {
            auth_keycache_free(c);
            return TARN_E_NO_MEMORY;
        }
    }
    *out = c;
    return TARN_OK;
}

void auth_keycache_free(auth_keycache *c)
{
    if (!c) {
        return;
    }
    for (size_t i = 0; i < c->locks_n; i++) {
        pthread_mutex_destroy(&c->stripes[i].lock);
    }
    tarn_wipe(c, sizeof *c);
    tarn_free(c);
}

static void want(wanted *w, const auth_user *u, const auth_scope *s)
{
    w->user = u;
    w->hash = FNV_BASIS ^ (uint64_t)(uintptr_t)u;
    w->tag_n = 0;
    if (s->date.n != 8 || s->region.n > AUTH_REGION_BYTES_MAX || s->service.n > AUTH_SERVICE_BYTES_MAX) {
        return;
    }
    tarn_sb b;
    tarn_sb_init_fixed(&b, w->tag, sizeof w->tag);
    tarn_sb_str(&b, s->date);
    tarn_sb_str(&b, s->region);
    tarn_sb_char(&b, '/');
    tarn_sb_str(&b, s->service);
    w->tag_n = tarn_sb_view(&b).n;
    for (size_t i = 0; i < w->tag_n; i++) {
        w->hash = (w->hash ^ (uint8_t)w->tag[i]) * FNV_PRIME;
    }
}

static stripe *stripe_of(auth_keycache *c, const wanted *w)
{
    return &c->stripes[(w->hash >> 32) % STRIPES];
}

static entry *find(stripe *s, const wanted *w)
{
    for (size_t i = 0; i < WAYS; i++) {
        entry *e = &s->ways[i];
        if (e->user == w->user && e->hash == w->hash && e->tag_n == w->tag_n && memcmp(e->tag, w->tag, w->tag_n) == 0) {
            return e;
        }
    }
    return NULL;
}

void auth_keycache_get(auth_keycache *c, const auth_user *u, const auth_scope *scope, uint8_t out[TARN_SHA256_BYTES], bool *hit)
{
    wanted w;
    want(&w, u, scope);
    *hit = false;
    if (w.tag_n > 0) {
        stripe *s = stripe_of(c, &w);
        pthread_mutex_lock(&s->lock);
        const entry *e = find(s, &w);
        if (e) {
            memcpy(out, e->key, TARN_SHA256_BYTES);
            *hit = true;
        }
        pthread_mutex_unlock(&s->lock);
    }
    if (!*hit) {
        auth_derive_key((tarn_str){u->secret, u->secret_n}, scope->date, scope->region, scope->service, out);
    }
}

void auth_keycache_put(auth_keycache *c, const auth_user *u, const auth_scope *scope, const uint8_t key[TARN_SHA256_BYTES])
{
    wanted w;
    want(&w, u, scope);
    if (w.tag_n == 0) {
        return;
    }
    stripe *s = stripe_of(c, &w);
    pthread_mutex_lock(&s->lock);
    if (!find(s, &w)) {
        entry *e = &s->ways[s->next++ % WAYS];
        e->user = w.user;
        e->hash = w.hash;
        e->tag_n = w.tag_n;
        memcpy(e->tag, w.tag, w.tag_n);
        memcpy(e->key, key, TARN_SHA256_BYTES);
    }
    pthread_mutex_unlock(&s->lock);
}

void auth_derive_key(tarn_str secret, tarn_str date, tarn_str region, tarn_str service, uint8_t out[TARN_SHA256_BYTES])
{
    char first[4 + TARN_SECRET_KEY_BYTES_MAX + 1];
    tarn_sb b;
    tarn_sb_init_fixed(&b, first, sizeof first);
    tarn_sb_cstr(&b, "AWS4");
    tarn_sb_str(&b, secret);
    tarn_str k0 = tarn_sb_view(&b);
    TARN_ASSERT(k0.n == secret.n + 4); /* secrets are bounded where users are made */
    uint8_t k1[TARN_SHA256_BYTES];
    uint8_t k2[TARN_SHA256_BYTES];
    tarn_hmac_sha256(k0.p, k0.n, date.p, date.n, k1);
    tarn_hmac_sha256(k1, sizeof k1, region.p, region.n, k2);
    tarn_hmac_sha256(k2, sizeof k2, service.p, service.n, k1);
    tarn_hmac_sha256(k1, sizeof k1, AUTH_TERMINAL, sizeof AUTH_TERMINAL - 1, out);
    tarn_wipe(first, sizeof first);
    tarn_wipe(k1, sizeof k1);
    tarn_wipe(k2, sizeof k2);
}
