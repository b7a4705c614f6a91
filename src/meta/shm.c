/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared memory and locks of the WAL, see shm.h.
 *
 * Invariant: a slot is -1 while exactly one connection has its bit in `exclusive`, else the number of connections that have
 * it in `shared`. A connection never holds a slot both ways (SQLite's own rule).
 *
 * Locks never wait: SQLITE_BUSY, and SQLite decides.
 */
#include "shm.h"

#include "tarn/base.h"

int meta_shm_init(meta_shm *s)
{
    return pthread_mutex_init(&s->lock, NULL) == 0 ? SQLITE_OK : SQLITE_NOMEM;
}

void meta_shm_free(meta_shm *s)
{
    for (size_t i = 0; i < META_SHM_REGIONS; i++)
        tarn_free(atomic_load(&s->regions[i]));
    pthread_mutex_destroy(&s->lock);
}

int meta_shm_map(meta_shm *s, int region, int region_bytes, int extend, void volatile **out)
{
    *out = NULL;
    if (region < 0 || region >= META_SHM_REGIONS)
        return SQLITE_IOERR_SHMMAP;
    void *p = atomic_load_explicit(&s->regions[region], memory_order_acquire);
    if (p == NULL && extend) {
        pthread_mutex_lock(&s->lock);
        p = atomic_load(&s->regions[region]);
        if (p == NULL) {
            p = tarn_calloc(1, (size_t)region_bytes);
            atomic_store_explicit(&s->regions[region], p, memory_order_release);
        }
        pthread_mutex_unlock(&s->lock);
        if (p == NULL)
            return SQLITE_IOERR_NOMEM;
    }
    *out = p;
    return SQLITE_OK;
}

/* ------------------------------------------------------------------ slots */
static bool slot_share(atomic_int *slot)
{
    int n = atomic_load_explicit(slot, memory_order_relaxed);

    do {
        if (n < 0)
            return false;
    } while (!atomic_compare_exchange_weak(slot, &n, n + 1));
    return true;
}

static bool slot_claim(atomic_int *slot)
{
    int none = 0;

    return atomic_compare_exchange_strong(slot, &none, -1);
}

static int lock_shared(meta_shm *s, meta_shm_held *held, int slot)
{
    unsigned bit = 1u << slot;

    if (held->shared & bit)
        return SQLITE_OK;
    if (!slot_share(&s->slots[slot]))
        return SQLITE_BUSY;
    held->shared |= bit;
    return SQLITE_OK;
}

static int lock_exclusive(meta_shm *s, meta_shm_held *held, int first, int n)
{
    for (int i = first; i < first + n; i++) {
        if ((held->exclusive & (1u << i)) != 0 || slot_claim(&s->slots[i]))
            continue;
        for (int k = first; k < i; k++) { /* all or none */
            if ((held->exclusive & (1u << k)) == 0)
                atomic_store(&s->slots[k], 0);
        }
        return SQLITE_BUSY;
    }
    for (int i = first; i < first + n; i++)
        held->exclusive |= 1u << i;
    return SQLITE_OK;
}

static void unlock(meta_shm *s, meta_shm_held *held, int first, int n)
{
    for (int i = first; i < first + n; i++) {
        unsigned bit = 1u << i;
        if (held->exclusive & bit)
            atomic_store(&s->slots[i], 0);
        else if (held->shared & bit)
            atomic_fetch_sub(&s->slots[i], 1);
        held->exclusive &= ~bit;
        held->shared &= ~bit;
    }
}

int meta_shm_lock(meta_shm *s, meta_shm_held *held, int first, int n, int flags)
{
    TARN_ASSERT(first >= 0 && n >= 1 && first + n <= SQLITE_SHM_NLOCK);
    if (flags & SQLITE_SHM_UNLOCK) {
        unlock(s, held, first, n);
        return SQLITE_OK;
    }
    if (flags & SQLITE_SHM_SHARED) {
        TARN_ASSERT(n == 1);
        return lock_shared(s, held, first);
    }
    return lock_exclusive(s, held, first, n);
}

void meta_shm_release(meta_shm *s, meta_shm_held *held)
{
    unlock(s, held, 0, SQLITE_SHM_NLOCK);
}
