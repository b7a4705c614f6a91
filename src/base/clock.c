/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The clock seam: the system's clocks, or one that a test moves by hand.
 *
 * States: real ⇄ fake. In `fake` both clocks stand still but for tarn_clock_advance, which moves them together, and
 * tarn_clock_step, by which the wall clock alone jumps.
 * Invariant 1: the fake monotonic clock starts at FAKE_MONO_START_NS and never goes back while fake.
 * Memory: static. Threads: any.
 */
#include "tarn/base.h"
#include "private.h"

#include <stdatomic.h>
#include <time.h>

#define NS_PER_MS 1000000u
#define NS_PER_S 1000000000u
#define FAKE_MONO_START_NS NS_PER_S

static atomic_bool fake_on;
static _Atomic int64_t fake_start_ms;
static _Atomic uint64_t fake_moved_ns;

int64_t tarn_now_ms(void)
{
    if (atomic_load_explicit(&fake_on, memory_order_acquire)) {
        return atomic_load(&fake_start_ms) + (int64_t)(atomic_load(&fake_moved_ns) / NS_PER_MS);
    }
    struct timespec t;
    TARN_ASSERT(clock_gettime(CLOCK_REALTIME, &t) == 0);
    return (int64_t)t.tv_sec * 1000 + (int64_t)t.tv_nsec / (int64_t)NS_PER_MS;
}

uint64_t tarn_mono_ns(void)
{
    if (atomic_load_explicit(&fake_on, memory_order_acquire)) {
        return FAKE_MONO_START_NS + atomic_load(&fake_moved_ns);
    }
    struct timespec t;
    TARN_ASSERT(clock_gettime(CLOCK_MONOTONIC, &t) == 0);
    return (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec;
}

void tarn_clock_fake(bool on, int64_t now_ms)
{
    atomic_store(&fake_start_ms, now_ms);
    atomic_store(&fake_moved_ns, 0);
    atomic_store_explicit(&fake_on, on, memory_order_release);
    tarn_uuid_reset();
}

void tarn_clock_advance(uint64_t ns)
{
    atomic_fetch_add(&fake_moved_ns, ns);
}

void tarn_clock_step(int64_t ms)
{
    atomic_fetch_add(&fake_start_ms, ms);
}
