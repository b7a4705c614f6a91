/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Digests of many streams at once: hands the whole blocks of the jobs to lanes, and what is left to the single stream.
 *
 * Jobs with SHA-256 go, where the processor has SHA-NI, to lanes that hash both (sha256_ni.c); without it their SHA-256 is done
 * stream by stream, and then they are jobs of MD5 as the others.
 *
 * A job is used up: afterwards its p stands behind its bytes and its n is 0.
 * A lane holds one job. All lanes take as many blocks as the shortest of them has; lanes that are through get the next
 * job; when fewer lanes than pay are busy and no job waits, the rest goes to a narrower set.
 *
 * Invariant 1: before the lanes run, every state's tail is empty, so that its blocks lie in the caller's bytes.
 * Invariant 2: a busy lane has ≥ 1 block; an idle one reads what a busy one reads, and its result is thrown away.
 * Memory: everything is the caller's or on the stack. Threads: any; a state in one call at a time.
 */
#include "private.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

typedef struct lane_set {
    md5_lanes_fn *run; /* NULL: not there */
    size_t lanes;
    size_t pay; /* fewer busy lanes are slower than a narrower set */
} lane_set;

/*
 * Widest first. Measured on one core, MD5 of 1 MiB a stream, gcc -O2, GB/s of all streams together:
 *   streams                1     2     4     8     12    16
 *   single, Zen 4          0.78  and no more
 *   two, Zen 3             0.70  1.31  and no more
 *   AVX2, Zen 4            -     1.0   2.0   4.1   3.0   4.1
 *   AVX-512, Zen 4         -     1.1   2.3   4.6   5.3   6.4   (8 narrow lanes up to 8 streams, 16 wide ones above)
 * With SHA-256: sha256_ni.c.
 */
#define SETS_MAX 3
typedef struct lane_sets {
    lane_set md5[SETS_MAX];
    lane_set both[SETS_MAX];
    bool own_sha256;
} lane_sets;

static lane_sets ways[HASH_WAY_PLAIN + 1];
static pthread_once_t once = PTHREAD_ONCE_INIT;
static _Atomic int chosen_way = HASH_WAY_BEST;

static void set_up(void)
{
    const lane_set two = {md5_lanes_two, 2, 2};
    ways[HASH_WAY_PLAIN] = (lane_sets){.md5 = {two}};
    ways[HASH_WAY_AVX2] = ways[HASH_WAY_PLAIN];
#if defined(__x86_64__)
    lane_sets *w = &ways[HASH_WAY_AVX2];
    if (__builtin_cpu_supports("avx2")) {
        w->md5[0] = (lane_set){md5_lanes_avx2, 8, 3};
        w->md5[1] = two;
    }
    if (sha256_ni_there()) {
        w->own_sha256 = true;
        w->both[0] = (lane_set){md5_sha256_four, 4, 3};
        w->both[1] = (lane_set){md5_sha256_two, 2, 2};
        w->both[2] = (lane_set){md5_sha256_one, 1, 1};
    }
#endif
    ways[HASH_WAY_BEST] = ways[HASH_WAY_AVX2];
#if defined(__x86_64__)
    w = &ways[HASH_WAY_BEST];
    if (w->md5[0].lanes == 8 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl")) {
        w->md5[0] = (lane_set){md5_lanes_avx512, 16, 9};
        w->md5[1] = (lane_set){md5_lanes_avx512vl, 8, 3};
        w->md5[2] = two;
    }
#endif
}

static const lane_sets *sets_in_use(void)
{
    TARN_ASSERT(pthread_once(&once, set_up) == 0);
    return &ways[atomic_load_explicit(&chosen_way, memory_order_relaxed)];
}

void hash_choose_way(hash_way way)
{
    atomic_store_explicit(&chosen_way, (int)way, memory_order_relaxed);
}

bool sha256_own(void)
{
    return sets_in_use()->own_sha256;
}

size_t tarn_md5_lanes(void)
{
    size_t lanes = sets_in_use()->md5[0].lanes;
    return lanes > 2 ? lanes : 1;
}

/* ------------------------------------------------------------------ the lanes at work */
typedef struct work {
    md5_lanes lanes;
    tarn_hash_job *job[TARN_MD5_LANES_MAX]; /* NULL: idle */
    size_t blocks[TARN_MD5_LANES_MAX];      /* left in the lane */
    size_t busy;
    bool both; /* SHA-256 too */
} work;

/* MD5, and SHA-256 where that is hashed with it: one stream, any length. */
static void update_alone(tarn_hash_job *j, size_t n, bool both)
{
    tarn_md5_update(j->md5, j->p, n);
    if (both) {
        sha256_update(&j->sha256->sha256, j->p, n);
    }
    j->p += n;
    j->n -= n;
}

/* Fills the state's tail from the job; what remains starts at a block. */
static void fill_tail(tarn_hash_job *j, bool both)
{
    if (j->md5->tail_n > 0 && j->n > 0) {
        size_t missing = MD5_BLOCK_BYTES - j->md5->tail_n;
        update_alone(j, missing < j->n ? missing : j->n, both);
    }
}

static void put_in_lane(work *w, size_t lane, tarn_hash_job *j)
{
    for (unsigned i = 0; i < 4; i++) {
        w->lanes.h[i][lane] = j->md5->h[i];
    }
    if (w->both) {
        memcpy(w->lanes.sha[lane], j->sha256->sha256.h, sizeof w->lanes.sha[lane]);
    }
    w->lanes.block[lane] = j->p;
    w->job[lane] = j;
    w->blocks[lane] = j->n / MD5_BLOCK_BYTES;
    w->busy++;
}

/* Writes the lane's state back to its job; the job's remainder may still have blocks. */
static void take_from_lane(work *w, size_t lane)
{
    tarn_hash_job *j = w->job[lane];
    size_t done = (size_t)(w->lanes.block[lane] - j->p);
    for (unsigned i = 0; i < 4; i++) {
        j->md5->h[i] = w->lanes.h[i][lane];
    }
    j->md5->total_bytes += done;
    if (w->both) {
        memcpy(j->sha256->sha256.h, w->lanes.sha[lane], sizeof w->lanes.sha[lane]);
        j->sha256->sha256.total_bytes += done;
    }
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

/* Goes on while at least as many lanes are busy as pay. */
static void run_lanes(tarn_hash_job *const *jobs, size_t n, const lane_set *set, bool both)
{
    work w;
    memset(&w, 0, sizeof w);
    w.both = both;
    size_t next = 0;
    for (;;) {
        for (size_t lane = 0; lane < set->lanes && next < n; lane++) {
            while (!w.job[lane] && next < n) {
                fill_tail(jobs[next], both);
                if (jobs[next]->n >= MD5_BLOCK_BYTES) {
                    put_in_lane(&w, lane, jobs[next]);
                }
                next++;
            }
        }
        if (w.busy < set->pay) {
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

static void run_sets(tarn_hash_job *const *jobs, size_t n, const lane_set sets[SETS_MAX], bool both)
{
    for (size_t i = 0; i < SETS_MAX && sets[i].run; i++) {
        if (n >= sets[i].pay) {
            run_lanes(jobs, n, &sets[i], both);
        }
    }
    for (size_t i = 0; i < n; i++) {
        update_alone(jobs[i], jobs[i]->n, both);
    }
}

/* Sums begun in another way, or at another place in a block, are not for the lanes of both. */
static bool goes_with_md5(const tarn_hash_job *j, const lane_sets *sets)
{
    return sets->both[0].run && !j->sha256->ctx && j->sha256->sha256.tail_n == j->md5->tail_n;
}

void tarn_hash_many(tarn_hash_job *jobs, size_t n)
{
    const lane_sets *sets = sets_in_use();
    for (size_t from = 0; from < n; from += TARN_MD5_LANES_MAX) {
        tarn_hash_job *md5[TARN_MD5_LANES_MAX], *both[TARN_MD5_LANES_MAX];
        size_t md5_n = 0, both_n = 0;
        for (size_t i = from; i < n && i < from + TARN_MD5_LANES_MAX; i++) {
            TARN_ASSERT(!jobs[i].sha256 || jobs[i].sha256->kind == TARN_SUM_SHA256);
            if (jobs[i].sha256 && goes_with_md5(&jobs[i], sets)) {
                both[both_n++] = &jobs[i];
                continue;
            }
            if (jobs[i].sha256) {
                tarn_sum_update(jobs[i].sha256, jobs[i].p, jobs[i].n);
            }
            md5[md5_n++] = &jobs[i];
        }
        run_sets(both, both_n, sets->both, true);
        run_sets(md5, md5_n, sets->md5, false);
    }
}
