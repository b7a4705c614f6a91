/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Digests of an upload, computed while it arrives.
 *
 * CRCs and SHA-1 are updated in runs of RUN_BYTES, while the bytes are in the cache. MD5, and with it SHA-256, are the slowest
 * steps of an upload: one stream waits most of the time for itself, and hashing two or more together is faster than one by one. So
 * an upload that is alone hashes its own bytes in the same runs; while others are active too, full blocks go to
 * the context's queue and are hashed many streams at a time (tarn_hash_many). A round is due when every active
 * stream has a block waiting, when half the lanes could be filled, or when one stream has JOBS_MAX of them.
 *
 *   block grows ──alone──▶ hashed at once
 *   block done ──with others──▶ queued (holds the block) ──round──▶ hashed
 *
 * An upload of one block (at_sync) isn't hashed before its data is on its way: others come to join it, and the round runs
 * while a drive syncs (obj_digest_ahead). At its end an upload runs what still waits, its own and the others'.
 *
 * A small upload, which is kept in its row, lets the other fibers run once before it is hashed: those of requests that came with it
 * get as far, and one round does them all. These have a list of their own: a small upload never hashes the blocks of large ones.
 *
 * Invariants:
 *  1. The blocks of one stream are hashed in order: a stream takes part in a round with its oldest job only, and hashes
 *     directly only while it has no job.
 *  2. md5_streams counts the digests with jobs > 0; md5_active those between begin and final.
 *  3. A stream has at most JOBS_MAX jobs: with the block that is being filled no more memory than TARN_PUT_BLOCKS_MAX.
 *  4. SHA-256 stands where MD5 stands, if both are wanted.
 * Memory: a job belongs to the queue. Threads: the context's.
 */
#include "private.h"

#include <string.h>

#define RUN_BYTES (64 * 1024)
#define JOBS_MAX (TARN_PUT_BLOCKS_MAX - 1)
#define AHEAD_STREAMS_MIN 4          /* a round takes as long for one stream as for all lanes: half of the narrow ones should be used */
#define SMALL_STREAMS 8              /* two times the lanes that hash MD5 and SHA-256 */
#define QUEUED_BYTES_MIN (32 * 1024) /* less is hashed sooner than queued */

static tarn_sum *find_sum(obj_digest *d, tarn_sum_kind kind)
{
    for (size_t i = 0; i < d->sums_n; i++) {
        if (d->sums[i].kind == kind) {
            return &d->sums[i];
        }
    }
    return NULL;
}

tarn_err obj_digest_begin(obj_digest *d, obj_ctx *c, bool want_md5, const tarn_sum_kind *kinds, size_t kinds_n)
{
    *d = (obj_digest){.ctx = c, .want_md5 = want_md5};
    for (size_t i = 0; i < kinds_n; i++) {
        if (kinds[i] == TARN_SUM_NONE || kinds[i] == TARN_SUM_MD5 || obj_digest_sum(d, kinds[i])) {
            continue;
        }
        TARN_ASSERT(d->sums_n < TARN_ARRAY_LEN(d->sums));
        tarn_err err = tarn_sum_begin(&d->sums[d->sums_n], kinds[i]);
        if (err) {
            d->want_md5 = false;
            obj_digest_end(d);
            return err;
        }
        d->sums_n++;
    }
    if (want_md5) {
        tarn_md5_init(&d->md5);
        d->sha256 = find_sum(d, TARN_SUM_SHA256);
        c->md5_active++;
    }
    return TARN_OK;
}

const tarn_sum *obj_digest_sum(const obj_digest *d, tarn_sum_kind kind)
{
    for (size_t i = 0; i < d->sums_n; i++) {
        if (d->sums[i].kind == kind) {
            return &d->sums[i];
        }
    }
    return NULL;
}

tarn_err obj_digest_add_sha256(obj_digest *d, const obj_block *cur)
{
    if (d->sums_n >= TARN_ARRAY_LEN(d->sums)) {
        return TARN_E_INVALID;
    }
    tarn_sum *sum = &d->sums[d->sums_n];
    tarn_err err = tarn_sum_begin(sum, TARN_SUM_SHA256);
    if (err) {
        return err;
    }
    d->sums_n++;
    d->sha256 = d->want_md5 ? sum : NULL;
    if (cur) {
        tarn_sum_update(sum, cur->data, d->want_md5 ? d->md5_done : d->sums_done); /* what the others have seen already */
    }
    return TARN_OK;
}

/* The stream hashes no more: the others need not wait for it. */
static void md5_leave(obj_digest *d)
{
    if (d->want_md5 && !d->md5_left) {
        TARN_ASSERT(d->ctx->md5_active > 0);
        d->ctx->md5_active--;
        d->md5_left = true;
    }
}

void obj_digest_md5(obj_digest *d, uint8_t out[TARN_MD5_BYTES])
{
    TARN_ASSERT(d->want_md5);
    obj_digest_wait(d);
    tarn_md5_final(&d->md5, out);
    md5_leave(d);
}

void obj_digest_end(obj_digest *d)
{
    obj_digest_wait(d);
    for (size_t i = 0; i < d->sums_n; i++) {
        tarn_sum_end(&d->sums[i]);
    }
    d->sums_n = 0;
    md5_leave(d);
}

/* ------------------------------------------------------------------ the queue */
static void job_done(obj_ctx *c, obj_md5_job *j)
{
    TARN_ASSERT(j->digest->jobs > 0);
    if (--j->digest->jobs == 0) {
        c->md5_streams--;
    }
    tarn_list_remove(&j->link);
    obj_block_unref(j->block);
    tarn_free(j);
}

static bool stream_taken(obj_md5_job *const *taken, size_t n, const obj_digest *d)
{
    for (size_t i = 0; i < n; i++) {
        if (taken[i]->digest == d) {
            return true;
        }
    }
    return false;
}

/* One round: the oldest job of each stream. */
static void queue_round(obj_ctx *c)
{
    tarn_hash_job jobs[TARN_MD5_LANES_MAX];
    obj_md5_job *taken[TARN_MD5_LANES_MAX];
    size_t n = 0;
    for (tarn_link *l = c->md5_jobs.next; l != &c->md5_jobs && n < TARN_MD5_LANES_MAX; l = l->next) {
        obj_md5_job *j = TARN_CONTAINER_OF(l, obj_md5_job, link);
        if (!stream_taken(taken, n, j->digest)) {
            jobs[n] = (tarn_hash_job){.md5 = &j->digest->md5, .sha256 = j->digest->sha256, .p = j->p, .n = j->n};
            taken[n++] = j;
        }
    }
    tarn_hash_many(jobs, n);
    for (size_t i = 0; i < n; i++) {
        job_done(c, taken[i]);
    }
}

static bool round_due(const obj_ctx *c, const obj_digest *d)
{
    bool all = c->md5_streams >= c->md5_active && !d->at_sync;
    return all || c->md5_streams >= TARN_MD5_LANES_MAX / 2 || d->jobs >= JOBS_MAX;
}

/* False when there is no memory for the job: then the caller hashes at once. */
static bool queue_add(obj_digest *d, obj_block *b, const uint8_t *p, size_t n)
{
    obj_ctx *c = d->ctx;
    obj_md5_job *j = tarn_calloc(1, sizeof *j);
    if (!j) {
        return false;
    }
    b->refs++;
    *j = (obj_md5_job){.digest = d, .block = b, .p = p, .n = n};
    tarn_list_push(&c->md5_jobs, &j->link);
    if (d->jobs++ == 0) {
        c->md5_streams++;
    }
    if (round_due(c, d)) {
        queue_round(c);
    }
    TARN_ASSERT(d->jobs <= JOBS_MAX);
    return true;
}

void obj_digest_ahead(obj_ctx *c)
{
    if (c->md5_streams >= AHEAD_STREAMS_MIN || (c->md5_streams > 0 && c->md5_streams >= c->md5_active)) {
        queue_round(c);
    }
}

void obj_digest_wait(obj_digest *d)
{
    while (d->jobs > 0) {
        queue_round(d->ctx);
    }
}

/* ------------------------------------------------------------------ the upload's side */
static void hash_alone(obj_digest *d, const uint8_t *p, size_t n)
{
    tarn_hash_job job = {.md5 = &d->md5, .sha256 = d->sha256, .p = p, .n = n};
    tarn_hash_many(&job, 1);
}

static void grow_sums(obj_digest *d, const obj_block *b, bool all, bool md5_too)
{
    while (d->sums_done < b->n) {
        size_t run = b->n - d->sums_done;
        if (run < RUN_BYTES && !all) {
            return;
        }
        run = run < RUN_BYTES ? run : RUN_BYTES;
        for (size_t i = 0; i < d->sums_n; i++) {
            if (&d->sums[i] != d->sha256) {
                tarn_sum_update(&d->sums[i], b->data + d->sums_done, run);
            }
        }
        if (md5_too) {
            hash_alone(d, b->data + d->sums_done, run);
            d->md5_done += run;
        }
        d->sums_done += run;
    }
}

void obj_digest_grow(obj_digest *d, obj_block *b, bool block_done)
{
    bool direct = d->want_md5 && !d->at_sync && d->jobs == 0 && d->md5_done == d->sums_done && d->ctx->md5_active < 2;
    grow_sums(d, b, block_done, direct);
    if (!block_done) {
        return;
    }
    if (d->want_md5 && d->md5_done < b->n) {
        const uint8_t *p = b->data + d->md5_done;
        size_t n = b->n - d->md5_done;
        bool soon = d->jobs == 0 && n < QUEUED_BYTES_MIN;
        if (soon || !queue_add(d, b, p, n)) {
            obj_digest_wait(d);
            hash_alone(d, p, n);
        }
    }
    d->sums_done = 0;
    d->md5_done = 0;
}

static void small_round(obj_ctx *c)
{
    tarn_hash_job jobs[SMALL_STREAMS];
    size_t n = 0;
    for (tarn_link *l; n < SMALL_STREAMS && (l = tarn_list_pop(&c->md5_small)) != NULL; n++) {
        obj_digest *d = TARN_CONTAINER_OF(l, obj_digest, small_link);
        jobs[n] = (tarn_hash_job){.md5 = &d->md5, .sha256 = d->sha256, .p = d->small_p, .n = d->small_n};
        d->small_n = 0;
    }
    c->md5_small_n -= n;
    tarn_hash_many(jobs, n);
}

void obj_digest_small(obj_digest *d, const obj_block *b)
{
    obj_ctx *c = d->ctx;
    TARN_ASSERT(d->jobs == 0);
    grow_sums(d, b, true, false);
    if (!d->want_md5 || d->md5_done == b->n) {
        return;
    }
    d->small_p = b->data + d->md5_done;
    d->small_n = b->n - d->md5_done;
    tarn_list_push(&c->md5_small, &d->small_link);
    c->md5_small_n++;
    if (c->md5_small_n < SMALL_STREAMS && tarn_fiber_current()) {
        tarn_fiber_yield(); /* comes back at once where no other fiber is ready */
    }
    if (d->small_n > 0) { /* nobody has done it meanwhile */
        small_round(c);
    }
    TARN_ASSERT(d->small_n == 0);
}
