/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading blobs, block by block.
 *
 *   start: the shards wanted are taken from the page cache or asked for; where one can't be had, any k that can
 *   wait:  each shard is verified ──all wanted are good──▶ done
 *              │ one failed, is missing, or takes longer than OBJ_HEDGE_MS
 *              ▼
 *          all others are asked for, k good ones rebuild what is wanted ──fewer──▶ CORRUPT or QUORUM_READ
 *
 * Invariants:
 *  1. No byte leaves here that has not passed its checksum or been rebuilt from k shards that have.
 *  2. A buffer lives until the last operation on it has ended, however late (the batch has a reference).
 * Memory: a stripe has a reference to its block until release. Threads: the context's.
 */
#include "private.h"

#include <errno.h>
#include <string.h>

void obj_reader_init(obj_reader *r, obj_ctx *c, const obj_blob *b)
{
    *r = (obj_reader){.ctx = c, .blob = b, .damaged = b->missing};
    for (unsigned i = 0; i < (unsigned)(b->k + b->m); i++) {
        obj_drive *d = obj_drive_at(c->store, b->set, obj_blob_drive(b, i, c->store->n));
        if (!obj_drive_readable(d)) {
            r->unreachable |= (uint16_t)(1u << i);
        } else if (d->filling || obj_drive_slow(d)) {
            r->avoid |= (uint16_t)(1u << i); /* it may not have this shard yet, or is slow: asked last */
        }
    }
    r->degraded = r->damaged != 0;
}

void obj_reader_close(obj_reader *r)
{
    for (unsigned i = 0; i < TARN_SET_DRIVES_MAX; i++) {
        tarn_file_unref(r->files[i]);
        r->files[i] = NULL;
    }
}

/* NULL when the shard can't be read; the masks then say why. */
static tarn_file *shard_open(obj_reader *r, unsigned shard)
{
    uint16_t bit = (uint16_t)(1u << shard);
    if ((r->unreachable | r->damaged) & bit) {
        return NULL;
    }
    if (!(r->opened & bit)) {
        tarn_file *f = NULL;
        int rc = obj_fd_get(r->ctx, r->blob, obj_blob_drive(r->blob, shard, r->ctx->store->n), &f);
        if (r->opened & bit) { /* another fiber cannot share a reader; a reader is one fiber's */
            tarn_file_unref(f);
            return r->files[shard];
        }
        r->opened |= bit;
        r->files[shard] = f;
        if (rc < 0) {
            *(rc == -EMFILE || rc == -ENFILE || rc == -ENOMEM ? &r->unreachable : &r->damaged) |= bit;
            r->unread |= rc == -ENOENT ? 0 : bit;
            r->degraded = r->degraded || !(r->avoid & bit);
        }
    }
    return r->files[shard];
}

uint8_t *obj_stripe_shard(const obj_stripe *st, unsigned k, unsigned shard)
{
    return shard < k ? st->block->data + shard * st->shard_len : st->block->parity + (shard - k) * st->shard_len;
}

static void block_end(void *ctx)
{
    obj_block_unref(ctx);
}

/* Opens the files of the mask; what is left of it can be read. */
static uint16_t openable(obj_reader *r, uint16_t mask)
{
    uint16_t got = 0;
    for (unsigned i = 0; i < (unsigned)(r->blob->k + r->blob->m); i++) {
        if ((mask & (1u << i)) && shard_open(r, i)) {
            got |= (uint16_t)(1u << i);
        }
    }
    return got;
}

/* Hands reads of these shards to the drives. */
static tarn_err submit_reads(obj_reader *r, obj_stripe *st, uint16_t mask, tarn_batch **out)
{
    const obj_blob *b = r->blob;
    tarn_batch *batch = tarn_batch_new((size_t)__builtin_popcount(mask));
    if (!batch) {
        return TARN_E_NO_MEMORY;
    }
    for (unsigned i = 0; i < (unsigned)(b->k + b->m); i++) {
        if (mask & (1u << i)) {
            *tarn_batch_add(batch) = (tarn_op){.code = TARN_OP_READ,
                                               .file = r->files[i],
                                               .buf = obj_stripe_shard(st, b->k, i),
                                               .len = st->shard_len,
                                               .off = b->offset + obj_shard_offset(b, st->index),
                                               .ctx = (void *)(uintptr_t)i};
        }
    }
    st->block->refs++;
    tarn_batch_on_end(batch, block_end, st->block);
    tarn_batch_submit(batch);
    st->asked |= mask;
    *out = batch;
    return TARN_OK;
}

/* The shards to begin with: those wanted, or, where one of them can't be had, as many others as make k. */
static uint16_t choose(obj_reader *r, uint16_t want)
{
    uint16_t all = (uint16_t)((1u << (r->blob->k + r->blob->m)) - 1);
    uint16_t got = openable(r, (uint16_t)(want & ~r->avoid));
    if (got == want) {
        return got;
    }
    for (unsigned pass = 0; pass < 2; pass++) {
        for (unsigned i = 0; i < (unsigned)(r->blob->k + r->blob->m) && __builtin_popcount(got) < r->blob->k; i++) {
            uint16_t bit = (uint16_t)(1u << i);
            bool ask = pass == 0 ? !(r->avoid & bit) : (r->avoid & bit) != 0;
            if (ask && !(got & bit) && (all & bit) && shard_open(r, i)) {
                got |= bit;
            }
        }
    }
    return got;
}

static void damaged_block(obj_reader *r, const obj_stripe *st, unsigned shard, const char *why)
{
    obj_drive *d = obj_drive_at(r->ctx->store, r->blob->set, obj_blob_drive(r->blob, shard, r->ctx->store->n));
    r->degraded = true;
    obj_fd_forget(r->ctx, r->blob, d->position); /* it may not be the file of that name any more: the next reader looks */
    tarn_metric_add(TARN_M_SHARDS_CORRUPT, 1);
    tarn_logf(TARN_LOG_WARN, "shard block failed", "drive %s, data %016llx part %u block %llu shard %u: %s", d->path,
              (unsigned long long)r->blob->data_id, r->blob->part, (unsigned long long)st->index, shard, why);
}

static void check_shard(obj_reader *r, obj_stripe *st, unsigned shard, const uint8_t *bytes)
{
    uint16_t bit = (uint16_t)(1u << shard);
    if (obj_shard_sum(r->blob->blob_id, st->index, shard, bytes, st->shard_len) == obj_blob_sum(r->blob, st->index, shard)) {
        st->good |= bit;
    } else {
        damaged_block(r, st, shard, "checksum");
        st->bad |= bit;
    }
}

/* Reads and verifies what the page cache has of the mask, shard by shard; returns what is left. */
static uint16_t take_cached(obj_reader *r, obj_stripe *st, uint16_t mask)
{
    const obj_blob *b = r->blob;
    uint16_t left = mask;
    for (unsigned i = 0; i < (unsigned)(b->k + b->m) && !r->uncached; i++) {
        uint16_t bit = (uint16_t)(1u << i);
        uint8_t *to = obj_stripe_shard(st, b->k, i);
        if (!(mask & bit)) {
            continue;
        }
        if (!tarn_file_read_cached(r->files[i], to, st->shard_len, b->offset + obj_shard_offset(b, st->index))) {
            r->uncached = true;
            break;
        }
        check_shard(r, st, i, to);
        st->asked |= bit;
        left &= (uint16_t)~bit;
    }
    return left;
}

tarn_err obj_stripe_start(obj_reader *r, obj_stripe *st, uint64_t index, uint16_t want)
{
    const obj_blob *b = r->blob;
    *st = (obj_stripe){.index = index, .want = want, .len = obj_block_len(b, index)};
    st->shard_len = obj_shard_len(st->len, b->k);
    uint16_t ask = choose(r, want);
    st->block = obj_block_new(r->ctx, st->len);
    if (!st->block) {
        return TARN_E_NO_MEMORY;
    }
    ask = take_cached(r, st, ask);
    return ask ? submit_reads(r, st, ask, &st->batch) : TARN_OK;
}

/* Verifies what has arrived of a batch and has not been looked at yet. */
static void check_batch(obj_reader *r, obj_stripe *st, tarn_batch *batch)
{
    for (size_t i = 0; batch && i < tarn_batch_count(batch); i++) {
        const tarn_op *op = tarn_batch_op(batch, i);
        unsigned shard = (unsigned)(uintptr_t)op->ctx;
        uint16_t bit = (uint16_t)(1u << shard);
        if (!op->finished || ((st->good | st->bad) & bit)) {
            continue;
        }
        if (op->result < 0) {
            damaged_block(r, st, shard, strerror((int)-op->result));
            st->bad |= bit;
            r->unread |= bit;
        } else if (op->result != (int64_t)st->shard_len) {
            damaged_block(r, st, shard, "the file is too short");
            st->bad |= bit;
        } else {
            check_shard(r, st, shard, op->buf);
        }
    }
}

static tarn_err rebuild(obj_reader *r, obj_stripe *st)
{
    const obj_blob *b = r->blob;
    uint8_t *shards[TARN_SET_DRIVES_MAX];
    bool have[TARN_SET_DRIVES_MAX], want[TARN_SET_DRIVES_MAX];
    unsigned rebuilt = 0;
    for (unsigned i = 0; i < (unsigned)(b->k + b->m); i++) {
        shards[i] = obj_stripe_shard(st, b->k, i);
        have[i] = (st->good & (1u << i)) != 0;
        want[i] = (st->want & (1u << i)) != 0;
        rebuilt += want[i] && !have[i] ? 1 : 0;
    }
    tarn_err err = tarn_ec_rebuild(r->ctx->store->ec, st->shard_len, shards, have, want);
    if (!err) {
        tarn_metric_add(TARN_M_SHARDS_REBUILT, rebuilt);
        for (unsigned i = 0; i < (unsigned)(b->k + b->m); i++) { /* what was rebuilt must be what was written */
            if (want[i] && !have[i] && obj_shard_sum(b->blob_id, st->index, i, shards[i], st->shard_len) != obj_blob_sum(b, st->index, i)) {
                return TARN_E_CORRUPT;
            }
        }
    }
    return err;
}

static tarn_err too_few(const obj_reader *r, const obj_stripe *st)
{
    /* With the unreachable ones there would be enough: it is a matter of drives, not of damage. */
    unsigned hopeful = (unsigned)__builtin_popcount(st->good) + (unsigned)__builtin_popcount((unsigned)(r->unreachable & ~st->bad));
    tarn_err err = hopeful >= r->blob->k && r->unreachable ? TARN_E_QUORUM_READ : TARN_E_CORRUPT;
    tarn_logf(TARN_LOG_ERROR, "block can't be read", "data %016llx part %u block %llu: %d of %u shards good, %u needed",
              (unsigned long long)r->blob->data_id, r->blob->part, (unsigned long long)st->index, __builtin_popcount(st->good),
              (unsigned)(r->blob->k + r->blob->m), (unsigned)r->blob->k);
    return err;
}

static bool enough(const obj_reader *r, const obj_stripe *st)
{
    return (st->good & st->want) == st->want || __builtin_popcount(st->good) >= r->blob->k;
}

/* The second round: everything that has not been asked for, and, with time, what was asked for first. */
static tarn_err recover(obj_reader *r, obj_stripe *st)
{
    tarn_batch *more = NULL;
    tarn_err err = TARN_OK;
    uint16_t all = (uint16_t)((1u << (r->blob->k + r->blob->m)) - 1);
    uint16_t ask = openable(r, (uint16_t)(all & ~st->asked));
    uint64_t deadline = tarn_mono_ns() + OBJ_IO_DEADLINE_MS * 1000000ull;
    if (ask) {
        err = submit_reads(r, st, ask, &more);
    }
    if (!err && more) {
        (void)tarn_batch_wait(more, tarn_batch_count(more), deadline);
        check_batch(r, st, more);
    }
    if (!err && !enough(r, st) && st->batch) {
        (void)tarn_batch_wait(st->batch, tarn_batch_count(st->batch), deadline);
        check_batch(r, st, st->batch);
    }
    tarn_batch_release(more);
    return err;
}

/* A read that is still under way may write into its place at any time: the good shards move to a buffer of their own. */
static tarn_err leave_block(obj_reader *r, obj_stripe *st)
{
    obj_block *fresh = obj_block_new(r->ctx, st->len);
    obj_stripe to = *st;
    if (!fresh) {
        return TARN_E_NO_MEMORY;
    }
    to.block = fresh;
    for (unsigned i = 0; i < (unsigned)(r->blob->k + r->blob->m); i++) {
        if (st->good & (1u << i)) {
            memcpy(obj_stripe_shard(&to, r->blob->k, i), obj_stripe_shard(st, r->blob->k, i), st->shard_len);
        }
    }
    obj_block_unref(st->block);
    *st = to;
    return TARN_OK;
}

tarn_err obj_stripe_wait(obj_reader *r, obj_stripe *st)
{
    if (st->batch) {
        (void)tarn_batch_wait(st->batch, tarn_batch_count(st->batch), tarn_mono_ns() + OBJ_HEDGE_MS * 1000000ull);
        check_batch(r, st, st->batch);
    }
    if (!enough(r, st)) {
        tarn_err err = recover(r, st);
        if (err) {
            return err;
        }
    }
    if ((st->good & st->want) == st->want) {
        return TARN_OK;
    }
    if (!enough(r, st)) {
        return too_few(r, st);
    }
    if (st->asked & ~(st->good | st->bad) & st->want) {
        tarn_err err = leave_block(r, st);
        if (err) {
            return err;
        }
    }
    return rebuild(r, st);
}

void obj_stripe_release(obj_stripe *st)
{
    tarn_batch_release(st->batch);
    obj_block_unref(st->block);
    *st = (obj_stripe){0};
}
