/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The random seam: the system's generator behind a small buffer per thread, or a seeded sequence for tests.
 *
 * States: system ⇄ seeded. Seeded: xoshiro256** whose state is filled by splitmix64, under one lock.
 * Invariant 1: a byte of the buffer is handed out once, then overwritten; a child of fork never sees its parent's bytes
 * (the buffer's generation is compared with one that the fork handler moves).
 * Invariant 2: no random bytes, no process: a system that refuses them ends it.
 * Memory: static and thread-local. Threads: any.
 */
#include "tarn/base.h"
#include "private.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/random.h>

#define POOL_BYTES 512
#define SEED_WORDS 4

static atomic_bool seeded;
static pthread_mutex_t seed_lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t seed_state[SEED_WORDS];

static _Atomic uint32_t generation = 1;
static pthread_once_t fork_once = PTHREAD_ONCE_INIT;

static _Thread_local struct {
    uint8_t bytes[POOL_BYTES];
    size_t used; /* bytes handed out */
    uint32_t generation;
} pool;

static void on_fork_child(void)
{
    atomic_fetch_add(&generation, 1);
}

static void watch_forks(void)
{
    TARN_ASSERT(pthread_atfork(NULL, NULL, on_fork_child) == 0);
}

static void from_system(uint8_t *p, size_t n)
{
    while (n > 0) {
        ssize_t got = getrandom(p, n, 0);
        if (got < 0) {
            TARN_ASSERT(errno == EINTR);
            continue;
        }
        p += got;
        n -= (size_t)got;
    }
}

static void from_pool(uint8_t *p, size_t n)
{
    uint32_t now = atomic_load_explicit(&generation, memory_order_relaxed);
    if (pool.generation != now || POOL_BYTES - pool.used < n) {
        TARN_ASSERT(pthread_once(&fork_once, watch_forks) == 0);
        from_system(pool.bytes, POOL_BYTES);
        pool.used = 0;
        pool.generation = now;
    }
    memcpy(p, pool.bytes + pool.used, n);
    tarn_wipe(pool.bytes + pool.used, n);
    pool.used += n;
}

static uint64_t rotate_left(uint64_t x, unsigned k)
{
    return x << k | x >> (64 - k);
}

static uint64_t seed_next(void)
{
    uint64_t *s = seed_state;
    uint64_t out = rotate_left(s[1] * 5, 7) * 9;
    uint64_t shifted = s[1] << 17;
    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= shifted;
    s[3] = rotate_left(s[3], 45);
    return out;
}

static void from_seed(uint8_t *p, size_t n)
{
    TARN_ASSERT(pthread_mutex_lock(&seed_lock) == 0);
    while (n > 0) {
        uint64_t v = seed_next();
        size_t take = n < sizeof v ? n : sizeof v;
        memcpy(p, &v, take);
        p += take;
        n -= take;
    }
    TARN_ASSERT(pthread_mutex_unlock(&seed_lock) == 0);
}

void tarn_random(void *p, size_t n)
{
    if (n == 0) {
        return;
    }
    if (atomic_load_explicit(&seeded, memory_order_acquire)) {
        from_seed(p, n);
    } else if (n > POOL_BYTES / 2) {
        from_system(p, n);
    } else {
        from_pool(p, n);
    }
}

uint64_t tarn_random_u64(void)
{
    uint64_t v;
    tarn_random(&v, sizeof v);
    return v;
}

void tarn_random_seed(uint64_t seed)
{
    TARN_ASSERT(pthread_mutex_lock(&seed_lock) == 0);
    uint64_t x = seed;
    for (size_t i = 0; i < SEED_WORDS; i++) {
        x += 0x9E3779B97F4A7C15u;
        uint64_t z = x;
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
        z = (z ^ z >> 27) * 0x94D049BB133111EBu;
        seed_state[i] = z ^ z >> 31;
    }
    atomic_store_explicit(&seeded, seed != 0, memory_order_release);
    TARN_ASSERT(pthread_mutex_unlock(&seed_lock) == 0);
    tarn_uuid_reset();
}
