/* SPDX-License-Identifier: Apache-2.0 */
/*
 * MD5 of many streams at once: hands the whole blocks of the jobs to the lanes, and what is left to the single stream.
 *
 * A job is used up: afterwards its p stands behind its bytes and its n is 0.
 * A lane holds one job. All lanes take as many blocks as the shortest of them has; lanes that are through get the next
 * job; when fewer lanes than pay are busy and no job waits, the rest is done one after the other.
 *
 * Invariant 1: before the lanes run, every state's tail is empty, so that its blocks lie in the caller's bytes.
 * Invariant 2: a busy lane has ≥ 1 block; an idle one reads what a busy one reads, and its result is thrown away.
 * Memory: everything is the caller's or on the stack. Threads: any; a state in one call at a time.
 */
#include "private.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

/*
 * Fewer busy lanes than this are slower than one stream after the other. Measured on one core with AVX-512 (Zen 4, 1 MiB a
 * stream, gcc -O2), GB/s of all streams together:
 *   streams       1     2     4     8     12    16
 *   scalar        0.78  and no more
 *   AVX2          -     1.0   2.0   4.1   3.0   4.1
 *   AVX-512       -     1.1   2.3   4.6   5.3   6.4   (8 narrow lanes up to 8 streams, 16 wide ones above)
 */
#define LANES_PAY 2

typedef struct lane_set {
    md5_lanes_fn *run; /* NULL: not there */
    size_t lanes;
} lane_set;

/* Wide registers are for more streams than the narrow ones hold: half empty they are slower than narrow ones. */
typedef struct lane_sets {
    lane_set wide;
    lane_set narrow;
} lane_sets;

static lane_sets best;
static lane_sets avx2_only;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static _Atomic int chosen_way = MD5_WAY_BEST;

static void set_up(void)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2")) {
        avx2_only = (lane_sets){.narrow = {md5_lanes_avx2, 8}};
        best = avx2_only;
        if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl")) {
            best = (lane_sets){.wide = {md5_lanes_avx512, 16}, .narrow = {md5_lanes_avx512vl, 8}};
        }
    }
#endif
}

static lane_sets sets_in_use(void)
{
    TARN_ASSERT(pthread_once(&once, set_up) == 0);
    switch (atomic_load_explicit(&chosen_way, memory_order_relaxed)) {
    case MD5_WAY_SCALAR:
        return (lane_sets){.wide = {NULL, 0}};
    case MD5_WAY_AVX2:
        return avx2_only;
    default:
        return best;
    }
}

void md5_choose_way(md5_way way)
{
    atomic_store_explicit(&chosen_way, (int)way, memory_order_relaxed);
}

size_t tarn_md5_lanes(void)
{
    lane_sets s = sets_in_use();
    if (s.wide.run) {
        return s.wide.lanes;
    }
    return s.narrow.run ? s.narrow.lanes : 1;
}

/* ------------------------------------------------------------------ the lanes at work */
typedef struct work {
    md5_lanes lanes;
    tarn_md5_job *job[TARN_MD5_LANES_MAX]; /* NULL: idle */
    size_t blocks[TARN_MD5_LANES_MAX];     /* left in the lane */
    size_t busy;
} work;

/* Fills the state's tail from the job; what remains starts at a block. */
static void fill_tail(tarn_md5_job *j)
{
    if (j->state->tail_n == 0 || j->n == 0) {
        return;
    }
    size_t missing = MD5_BLOCK_BYTES - j->state->tail_n;
    size_t take = missing < j->n ? missing : j->n;
    tarn_md5_update(j->state, j->p, take);
    j->p += take;
    j->n -= take;
}

static void put_in_lane(work *w, size_t lane, tarn_md5_job *j)
{
    for (unsigned i = 0; i < 4; i++) {
        w->lanes.h[i][lane] = j->state->h[i];
    }
    w->lanes.block[lane] = j->p;
    w->job[lane] = j;
    w->blocks[lane] = j->n / MD5_BLOCK_BYTES;
    w->busy++;
}

/* Writes the lane's state back to its job; the job's remainder may still have blocks. */
static void take_from_lane(work *w, size_t lane)
{
    tarn_md5_job *j = w->job[lane];
    size_t done = (size_t)(w->lanes.block[lane] - j->p);
    for (unsigned i = 0; i < 4; i++) {
        j->state->h[i] = w->lanes.h[i][lane];
    }
    j->state->total_bytes += done;
    j->p += done;
    j->n -= done;
    w->job[lane] = NULL;
    w->busy--;
}

/* Runs all lanes for as many blocks as the shortest has. */
static void run_once(work *w, const lane_set *set)
{
    size_t blocks = SIZE_MAX;
    size_t some = 0;
    for (size_t i = 0; i < set->lanes; i++) {
        if (w->job[i] && w->blocks[i] < blocks) {
            blocks = w->blocks[i];
            some = i;
        }
    }
    TARN_ASSERT(blocks > 0 && blocks < SIZE_MAX);
    for (size_t i = 0; i < set->lanes; i++) {
        if (!w->job[i]) {
            w->lanes.block[i] = w->lanes.block[some];
        }
    }
    set->run(&w->lanes, blocks);
    for (size_t i = 0; i < set->lanes; i++) {
        if (w->job[i]) {
            w->blocks[i] -= blocks;
            if (w->blocks[i] == 0) {
                take_from_lane(w, i);
            }
        }
    }
}

/* Goes on while at least `pay` lanes are busy. */
static void run_lanes(tarn_md5_job *jobs, size_t n, const lane_set *set, size_t pay)
{
    work w;
    memset(&w, 0, sizeof w);
    size_t next = 0;
    for (;;) {
        for (size_t lane = 0; lane < set->lanes && next < n; lane++) {
            while (!w.job[lane] && next < n) {
                fill_tail(&jobs[next]);
                if (jobs[next].n >= MD5_BLOCK_BYTES) {
                    put_in_lane(&w, lane, &jobs[next]);
                }
                next++;
            }
        }
        if (w.busy < pay) {
            break;
        }
        run_once(&w, set);
    }
    for (size_t lane = 0; lane < set->lanes; lane++) {
        if (w.job[lane]) {
            take_from_lane(&w, lane);
        }
    }
}

void tarn_md5_update_many(tarn_md5_job *jobs, size_t n)
{
    lane_sets sets = sets_in_use();
    if (sets.wide.run && n > sets.narrow.lanes) {
        run_lanes(jobs, n, &sets.wide, sets.narrow.lanes + 1);
    }
    if (sets.narrow.run && n >= LANES_PAY) {
        run_lanes(jobs, n, &sets.narrow, LANES_PAY);
    }
    for (size_t i = 0; i < n; i++) {
        if (jobs[i].n > 0) {
            tarn_md5_update(jobs[i].state, jobs[i].p, jobs[i].n);
            jobs[i].p += jobs[i].n;
            jobs[i].n = 0;
        }
    }
}
