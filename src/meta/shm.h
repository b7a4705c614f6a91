/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The WAL index and its locks, in the memory of the process (no -shm file: one process has the database, the lock file says
 * so). SQLite's contract of xShmMap and xShmLock, between the connections of one store.
 */
#ifndef TARN_META_SHM_H
#define TARN_META_SHM_H

#include <pthread.h>
#include <sqlite3.h>
#include <stdatomic.h>

#define META_SHM_REGIONS 4096 /* of 32 KiB */

typedef struct meta_shm {
    pthread_mutex_t lock; /* for making regions */
    _Atomic(void *) regions[META_SHM_REGIONS];
    atomic_int slots[SQLITE_SHM_NLOCK]; /* n > 0: n shared holders, -1: one exclusive */
} meta_shm;

/* What one connection holds. */
typedef struct meta_shm_held {
    unsigned shared; /* bit per slot */
    unsigned exclusive;
} meta_shm_held;

int meta_shm_init(meta_shm *s);
void meta_shm_free(meta_shm *s);
int meta_shm_map(meta_shm *s, int region, int region_bytes, int extend, void volatile **out);
int meta_shm_lock(meta_shm *s, meta_shm_held *held, int first, int n, int flags);
void meta_shm_release(meta_shm *s, meta_shm_held *held); /* whatever is still held */

#endif
