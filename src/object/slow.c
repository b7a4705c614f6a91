/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Slow drives. A request waits for all drives as long as they keep up; once so many have done their part as a write needs, it
 * waits OBJ_SLOW_MS at the most for the rest. A drive that is late then
 *
 *   - has not got that shard: the layout says so, and repair makes it up;
 *   - is slow for a while: new data goes to the others as long as they are enough, reads ask it last.
 *
 * The while doubles each time up to a maximum, so that a drive that hangs does not hold up a request every few seconds. It is
 * not taken out: being late is no error. After OBJ_IO_DEADLINE_MS, where the others are not enough, it is.
 *
 * Invariant: what a late operation still uses (buffers, paths, the place of a file) lives until it ends; see obj_open_many.
 * Threads: any; fields are atomic.
 */
#include "private.h"

#include <errno.h>
#include <fcntl.h>

#define SLOW_FIRST_MS 10000
#define SLOW_MS_MAX 300000
#define SETTLE_STEP_MS 50

bool obj_drive_slow(const obj_drive *d)
{
    uint64_t until = atomic_load_explicit(&d->slow_until_ns, memory_order_relaxed);
    return until != 0 && tarn_mono_ns() < until;
}

void obj_drive_late(obj_drive *d, const char *what)
{
    uint64_t now = tarn_mono_ns(), until = atomic_load(&d->slow_until_ns), ms = SLOW_FIRST_MS;
    if (now < until) {
        return; /* known already */
    }
    if (until != 0 && now - until < SLOW_MS_MAX * 1000000ull) { /* again, soon after the last time */
        ms = atomic_load(&d->slow_ms) * 2;
        ms = ms > SLOW_MS_MAX ? SLOW_MS_MAX : ms < SLOW_FIRST_MS ? SLOW_FIRST_MS : ms;
    }
    atomic_store(&d->slow_ms, ms);
    atomic_store(&d->slow_until_ns, now + ms * 1000000ull);
    tarn_logf(TARN_LOG_WARN, "drive is slow", "%s: %s took longer than %d ms; for %llu s the others are used as far as they are enough",
              d->path, what, OBJ_SLOW_MS, (unsigned long long)(ms / 1000));
}

bool obj_drive_skipped(tarn_store *s, const obj_drive *d)
{
    unsigned quick = 0;
    if (!obj_drive_slow(d)) {
        return false;
    }
    for (unsigned i = 0; i < s->n; i++) {
        const obj_drive *other = obj_drive_at(s, d->set, i);
        quick += obj_drive_writable(other) && !obj_drive_slow(other) ? 1 : 0;
    }
    return quick >= s->write_quorum;
}

/* Bits of those all of whose operations have succeeded, and of those with one that has not ended. */
static void look(const tarn_batch *b, unsigned (*who)(const tarn_op *op), uint16_t *good, uint16_t *open)
{
    uint16_t bad = 0;
    *good = *open = 0;
    for (size_t i = 0; i < tarn_batch_count(b); i++) {
        const tarn_op *op = tarn_batch_op(b, i);
        uint16_t bit = (uint16_t)(1u << who(op));
        *good |= bit;
        *open |= op->finished ? 0 : bit;
        bad |= op->finished && op->result < 0 ? bit : 0;
    }
    *good &= (uint16_t) ~(*open | bad);
}

/* Time is counted in naps, not by the clock: a process that was stopped for a minute has not waited a minute for its drives. */
uint16_t obj_batch_settle(tarn_batch *b, unsigned (*who)(const tarn_op *op), uint16_t ignore, unsigned need)
{
    uint16_t good, open;
    for (unsigned waited_ms = 0;;) {
        (void)tarn_batch_wait(b, tarn_batch_count(b), tarn_mono_ns() + SETTLE_STEP_MS * 1000000ull);
        look(b, who, &good, &open);
        if (open == 0) {
            return 0;
        }
        waited_ms += SETTLE_STEP_MS;
        if (waited_ms >= OBJ_SLOW_MS && (unsigned)__builtin_popcount((uint16_t)(good & ~ignore)) >= need) {
            return open;
        }
        if (waited_ms >= OBJ_IO_DEADLINE_MS) {
            return 0; /* too few are done: those that are not count as failed */
        }
    }
}

/* ------------------------------------------------------------------ opening files on several drives */
static void opens_end(void *ctx)
{
    obj_opens *o = ctx;
    for (unsigned i = 0; i < TARN_SET_DRIVES_MAX; i++) {
        tarn_file_unref(o->files[i]); /* of those that came too late */
    }
    tarn_free(o);
}

static unsigned who_opens(const tarn_op *op)
{
    return (unsigned)(uintptr_t)op->ctx;
}

tarn_err obj_open_many(tarn_store *s, obj_opens *o, tarn_file **files, int *results, uint16_t *late)
{
    tarn_batch *b = tarn_batch_new(TARN_SET_DRIVES_MAX);
    if (!b) {
        tarn_free(o);
        return TARN_E_NO_MEMORY;
    }
    for (unsigned i = 0; i < TARN_SET_DRIVES_MAX; i++) {
        if (o->paths[i][0] != '\0') {
            *tarn_batch_add(b) = (tarn_op){.code = TARN_OP_OPEN,
                                           .fs = s->fs,
                                           .path = o->paths[i],
                                           .flags = O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | (o->direct[i] ? O_DIRECT : 0),
                                           .mode = 0644,
                                           .file_out = &o->files[i],
                                           .ctx = (void *)(uintptr_t)i};
        }
    }
    tarn_batch_on_end(b, opens_end, o);
    tarn_batch_submit(b);
    *late = obj_batch_settle(b, who_opens, 0, s->write_quorum);
    for (size_t i = 0; i < tarn_batch_count(b); i++) {
        const tarn_op *op = tarn_batch_op(b, i);
        unsigned k = who_opens(op);
        results[k] = op->finished ? (int)op->result : -ETIMEDOUT;
        if (op->finished && op->result >= 0) {
            files[k] = o->files[k];
            o->files[k] = NULL;
        }
    }
    tarn_batch_release(b);
    return TARN_OK;
}
