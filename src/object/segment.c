/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Segments: files to which records of many objects are appended.
 *
 * A segment is one number and, on every drive of its set, one pre-allocated file; a record has the same offset in all of
 * them. Each thread has its own open segment per set, so appending takes no lock. Space is only given out, never used
 * twice: a record that goes is punched out, a segment without live records is removed by the sweeper.
 *
 *   open ──full──▶ closed (uploads may still hold it) ──last reference──▶ finished: cut to its used length
 *
 * The first segment of a thread is small and each that follows is twice as large, so that a daemon which dies again and
 * again leaves little allocated space behind before the sweeper comes to it.
 *
 * Group sync: one sync of a segment runs at a time; who asks meanwhile waits for the next one, which serves them all. It
 * also waits, a moment at the most, for the uploads whose last write was on its way when the first of the group came: they
 * would need a sync of their own right afterwards.
 *
 * Invariants:
 *  1. used ≤ size, and no two records share a page: they are written with O_DIRECT where the drive takes that.
 *  2. A record is durable when a sync that started after its last write has succeeded.
 *  3. A drive whose sync has failed once is not written through this segment again.
 *  4. A sync counts for a drive only while the file there still has its name: what is written to a file that was deleted
 *     under us is found by nobody after a restart.
 * Memory: reference-counted, on its own thread. Threads: its context's; the store's list is under the store's lock.
 */
#include "private.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

#define SEGMENT_FIRST_BYTES (8ull << 20)
#define COMPANY_NS_MAX 20000000ull /* a drive that is slow holds up its own uploads, and not for long those that are written */

/* ------------------------------------------------------------------ opening */
/* Of the next segment of this thread in this set, which must hold a record of so many bytes. */
static uint64_t next_size(const obj_ctx *c, unsigned set, uint64_t bytes)
{
    uint64_t max = c->store->segment_bytes;
    uint64_t size = c->segs[set] ? c->segs[set]->size * 2 : SEGMENT_FIRST_BYTES;
    while (size < bytes) {
        size *= 2;
    }
    return size < max ? size : max;
}

static tarn_err open_files(obj_seg *seg)
{
    tarn_store *s = seg->store;
    obj_opens *o = tarn_calloc(1, sizeof *o);
    int results[TARN_SET_DRIVES_MAX] = {0};
    uint16_t late = 0;
    if (!o) {
        return TARN_E_NO_MEMORY;
    }
    for (unsigned i = 0; i < s->n; i++) {
        obj_drive *d = obj_drive_at(s, seg->set, i);
        o->direct[i] = d->direct;
        if (!obj_drive_writable(d) || obj_drive_skipped(s, d) || !obj_path_segment(d, seg->id, o->paths[i])) {
            o->paths[i][0] = '\0';
        }
    }
    tarn_err err = obj_open_many(s, o, seg->files, results, &late);
    for (unsigned i = 0; !err && i < s->n; i++) {
        obj_drive *d = obj_drive_at(s, seg->set, i);
        if (late & (1u << i)) {
            obj_drive_late(d, "creating a segment");
        } else if (results[i] < 0) {
            seg->open_errno = seg->open_errno == ENOSPC ? ENOSPC : -results[i];
            obj_drive_error(s, d, "creating a segment", -results[i]);
        }
    }
    return err;
}

static unsigned who(const tarn_op *op)
{
    return ((const obj_drive *)op->ctx)->position;
}

static void paths_end(void *ctx)
{
    tarn_free(ctx);
}

static void without_file(obj_seg *seg, const obj_drive *d)
{
    tarn_file_unref(seg->files[d->position]);
    seg->files[d->position] = NULL;
}

/* Space and name: both made durable before the first record. A drive without room for a whole segment does without. */
static tarn_err allocate_files(obj_seg *seg)
{
    tarn_store *s = seg->store;
    char(*paths)[TARN_PATH_BYTES_MAX] = tarn_calloc(s->n, TARN_PATH_BYTES_MAX);
    tarn_batch *b = tarn_batch_new((size_t)s->n * 2);
    if (!paths || !b) {
        tarn_free(paths);
        tarn_batch_release(b);
        return TARN_E_NO_MEMORY;
    }
    for (unsigned i = 0; i < s->n; i++) {
        obj_drive *d = obj_drive_at(s, seg->set, i);
        if (!seg->files[i] || !obj_path(d, "segments", paths[i])) {
            continue;
        }
        *tarn_batch_add(b) = (tarn_op){.code = TARN_OP_ALLOCATE, .file = seg->files[i], .len = seg->size, .ctx = d};
        *tarn_batch_add(b) = (tarn_op){.code = TARN_OP_SYNC_DIR, .fs = s->fs, .path = paths[i], .ctx = d};
    }
    tarn_batch_on_end(b, paths_end, paths);
    tarn_batch_submit(b);
    uint16_t late = obj_batch_settle(b, who, 0, s->write_quorum);
    for (size_t i = 0; i < tarn_batch_count(b); i++) {
        const tarn_op *op = tarn_batch_op(b, i);
        obj_drive *d = op->ctx;
        bool refused = op->code == TARN_OP_ALLOCATE && (op->result == -EOPNOTSUPP || op->result == -ENOSPC || op->result == -EDQUOT);
        if (!op->finished && (late & (1u << d->position))) {
            obj_drive_late(d, "allocating a segment");
            without_file(seg, d);
        } else if (!op->finished || (op->result < 0 && !refused)) {
            obj_drive_error(s, d, op->code == TARN_OP_ALLOCATE ? "allocating a segment" : "syncing the segments folder",
                            op->finished ? (int)-op->result : EIO);
            without_file(seg, d);
        }
    }
    tarn_batch_release(b);
    return TARN_OK;
}

/* With fewer files than a write needs it is of no use, now or later. */
static tarn_err enough_files(const obj_seg *seg)
{
    const tarn_store *s = seg->store;
    unsigned have = 0;
    for (unsigned i = 0; i < s->n; i++) {
        have += seg->files[i] ? 1 : 0;
    }
    return have >= s->write_quorum ? TARN_OK : obj_err_quorum(seg->open_errno);
}

static tarn_err seg_open(obj_ctx *c, unsigned set, uint64_t bytes, obj_seg **out)
{
    tarn_store *s = c->store;
    obj_seg *seg = tarn_calloc(1, sizeof *seg);
    if (!seg) {
        return TARN_E_NO_MEMORY;
    }
    *seg = (obj_seg){.store = s, .set = set, .size = next_size(c, set, bytes), .refs = 1, .epoch = atomic_load(&s->epoch)};
    tarn_list_init(&seg->sync_waiters);
    tarn_list_init(&seg->link);
    tarn_err err = obj_id_next(s, &seg->id);
    if (!err) {
        pthread_mutex_lock(&s->lock);
        tarn_list_push(&s->segments, &seg->link);
        pthread_mutex_unlock(&s->lock);
        err = open_files(seg);
    }
    if (!err) {
        err = allocate_files(seg);
    }
    if (!err) {
        err = enough_files(seg);
    }
    if (err) {
        obj_seg_unref(seg);
        return err;
    }
    *out = seg;
    return TARN_OK;
}

/* ------------------------------------------------------------------ giving out space */
static bool seg_fits(const obj_seg *seg, uint64_t bytes)
{
    return seg && seg->used + bytes <= seg->size;
}

/* A drive that failed a sync, or that has come since, leaves a segment that is one shard short for good: better a new one. */
static bool seg_whole(const obj_seg *seg)
{
    return seg->sync_failed == 0 && seg->epoch == atomic_load_explicit(&seg->store->epoch, memory_order_relaxed);
}

tarn_err obj_seg_reserve(obj_ctx *c, unsigned set, uint64_t bytes, obj_seg **out, uint64_t *off)
{
    tarn_err err = TARN_OK;
    bool fiber = tarn_fiber_current() != NULL; /* a plain thread has its context for itself */
    TARN_ASSERT(bytes % OBJ_PAGE_BYTES == 0 && bytes <= c->store->segment_bytes);
    if (fiber) {
        tarn_fiber_lock_acquire(&c->seg_locks[set]);
    }
    obj_seg *seg = c->segs[set];
    if (!seg_fits(seg, bytes) || !seg_whole(seg)) {
        obj_seg *fresh = NULL;
        err = seg_open(c, set, bytes, &fresh);
        if (!err) {
            if (seg) {
                obj_seg_unref(seg);
            }
            c->segs[set] = seg = fresh;
        }
    }
    if (!err) {
        *off = seg->used;
        seg->used += bytes;
        seg->refs++;
        *out = seg;
    }
    if (fiber) {
        tarn_fiber_lock_release(&c->seg_locks[set]);
    }
    return err;
}

bool obj_seg_in_use(tarn_store *s, uint64_t id)
{
    bool used = false;
    pthread_mutex_lock(&s->lock);
    for (tarn_link *l = s->segments.next; l != &s->segments && !used; l = l->next) {
        used = TARN_CONTAINER_OF(l, obj_seg, link)->id == id;
    }
    pthread_mutex_unlock(&s->lock);
    return used;
}

void obj_seg_unref(obj_seg *seg)
{
    TARN_ASSERT(seg->refs > 0);
    if (--seg->refs > 0) {
        return;
    }
    tarn_store *s = seg->store;
    for (unsigned i = 0; i < s->n; i++) {
        if (seg->files[i]) {
            /* Gives back what was allocated and not used; no harm when it fails: the sweeper finds it. */
            (void)s->fs->truncate(s->fs, tarn_file_handle(seg->files[i]), seg->used);
            tarn_file_unref(seg->files[i]);
        }
    }
    pthread_mutex_lock(&s->lock);
    tarn_list_remove(&seg->link);
    pthread_mutex_unlock(&s->lock);
    tarn_free(seg);
}

/* ------------------------------------------------------------------ group sync */
typedef struct sync_waiter {
    tarn_link link;
    tarn_fiber *fiber;
} sync_waiter;

static void sync_run(obj_seg *seg)
{
    tarn_store *s = seg->store;
    obj_ctx *c = obj_ctx_get(s);
    tarn_batch *b = tarn_batch_new(s->n);
    if (!b) { /* nothing has been synced: nobody may believe it was */
        seg->sync_failed = UINT16_MAX;
        seg->sync_errno = ENOMEM;
        return;
    }
    for (unsigned i = 0; i < s->n; i++) {
        if (seg->files[i]) {
            *tarn_batch_add(b) = (tarn_op){.code = TARN_OP_SYNC, .file = seg->files[i], .ctx = obj_drive_at(s, seg->set, i)};
        }
    }
    tarn_batch_submit(b);
    if (c) {
        obj_digest_ahead(c);
    }
    uint16_t late = obj_batch_settle(b, who, seg->sync_failed, s->write_quorum);
    for (size_t i = 0; i < tarn_batch_count(b); i++) {
        const tarn_op *op = tarn_batch_op(b, i);
        obj_drive *d = op->ctx;
        if (!op->finished && (late & (1u << d->position))) {
            seg->sync_failed |= (uint16_t)(1u << d->position);
            obj_drive_late(d, "syncing a segment");
        } else if (!op->finished || op->result < 0) {
            seg->sync_failed |= (uint16_t)(1u << d->position);
            obj_drive_error(s, d, "syncing a segment", op->finished ? (int)-op->result : EIO);
        } else if (!(seg->sync_failed & (1u << d->position)) && obj_file_deleted(s, d, op->file)) {
            seg->sync_failed |= (uint16_t)(1u << d->position);
        }
    }
    tarn_batch_release(b);
}

static void sync_wake(obj_seg *seg)
{
    for (tarn_link *l; (l = tarn_list_pop(&seg->sync_waiters)) != NULL;) {
        tarn_fiber_wake(TARN_CONTAINER_OF(l, sync_waiter, link)->fiber);
    }
}

void obj_seg_coming(obj_seg *seg)
{
    seg->coming++;
}

void obj_seg_came(obj_seg *seg)
{
    TARN_ASSERT(seg->coming > 0 && seg->awaited <= seg->coming);
    seg->coming--;
    if (seg->awaited > 0 && --seg->awaited == 0 && !seg->syncing) {
        sync_wake(seg);
    }
}

static void sync_lead(obj_seg *seg)
{
    seg->syncing = true;
    seg->gathering = false; /* who comes from here on is of the next group */
    seg->awaited = 0;
    uint64_t mine = ++seg->sync_started;
    sync_run(seg);
    seg->syncing = false;
    seg->sync_done = mine;
    sync_wake(seg);
}

/* True: the time was up. */
static bool sync_wait(obj_seg *seg, uint64_t until_ns)
{
    sync_waiter w = {.fiber = tarn_fiber_current()};
    tarn_list_push(&seg->sync_waiters, &w.link);
    bool late = tarn_fiber_park_until(until_ns);
    tarn_list_remove(&w.link); /* still there when something else woke us */
    return late;
}

void obj_seg_sync(obj_seg *seg, uint16_t *failed)
{
    /* A sync that runs already may have missed our writes: the one after it is ours. */
    uint64_t want = seg->sync_started + 1, until_ns = 0;
    bool late = false;
    if (!seg->gathering) {
        seg->gathering = true;
        seg->awaited = seg->coming;
    }
    while (seg->sync_done < want) {
        if (seg->syncing) {
            (void)sync_wait(seg, TARN_IO_NO_TIMEOUT);
        } else if (seg->awaited == 0 || late) {
            sync_lead(seg);
        } else {
            until_ns = until_ns ? until_ns : tarn_mono_ns() + COMPANY_NS_MAX;
            late = sync_wait(seg, until_ns);
        }
    }
    *failed = seg->sync_failed;
}
