/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Uploads, the drives' side: blocks become shards, shards go to files or segments, everything is synced, or taken back.
 *
 * One batch of writes per block. A shard's header goes out with the first block, its trailer with the last; where the block
 * buffer has room around the data, or the shard is small enough to be copied, that is one write.
 *
 * Files are opened with O_DIRECT where the drive takes it: large data would only push other things out of the page cache, a
 * copy into it costs more than the write, and buffered writes run on the kernel's helper threads.
 *
 * Invariants:
 *  1. What a batch writes from lives until the batch has ended, even when the upload is gone (flight_memory).
 *  2. The sums of a block are appended exactly once, in the order of blocks and shards.
 *  3. Every write begins and ends on a page, in the file and (the begin) in memory.
 * Memory and threads: see put.c.
 */
#include "put.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

/* What one batch of writes needs until its end, even past the life of the put (a drive that hangs). */
typedef struct flight_memory {
    obj_block *block;
    obj_block *extra; /* headers, trailers, staged shards */
    uint8_t *more;    /* the same where a block is too small */
} flight_memory;

unsigned obj_put_shards(const tarn_put *p)
{
    return p->s->k + p->s->m;
}

/* ------------------------------------------------------------------ failures of drives */
void obj_put_lose_shard(tarn_put *p, unsigned shard, const char *what, int errno_value)
{
    obj_drive *d = obj_drive_at(p->s, p->blob.set, obj_blob_drive(&p->blob, shard, p->s->n));
    p->lost |= (uint16_t)(1u << shard);
    if (errno_value != 0) {
        p->lost_errno = p->lost_errno == ENOSPC ? ENOSPC : errno_value;
        obj_drive_error(p->s, d, what, errno_value);
    }
    unsigned whole = obj_put_shards(p) - (unsigned)__builtin_popcount(p->lost);
    if (whole < p->s->write_quorum && !p->err) {
        p->err = obj_err_quorum(p->lost_errno);
    }
}

/* ------------------------------------------------------------------ places */
void obj_put_take_segment(tarn_put *p)
{
    for (unsigned i = 0; i < obj_put_shards(p); i++) {
        unsigned pos = obj_blob_drive(&p->blob, i, p->s->n);
        if (!p->seg->files[pos] || !obj_drive_writable(obj_drive_at(p->s, p->blob.set, pos))) {
            obj_put_lose_shard(p, i, "segment", 0);
        }
    }
}

static obj_drive *shard_drive(const tarn_put *p, unsigned shard)
{
    return obj_drive_at(p->s, p->blob.set, obj_blob_drive(&p->blob, shard, p->s->n));
}

static unsigned who(const tarn_op *op)
{
    return (unsigned)(uintptr_t)op->ctx;
}

/* errno 0: nothing was wrong. */
static void lose_or_late(tarn_put *p, unsigned shard, uint16_t late, const char *what, int errno_value)
{
    if (late & (1u << shard)) {
        obj_drive *d = shard_drive(p, shard);
        obj_drive_late(d, what);
        obj_put_lose_shard(p, shard, what, 0);
        if (p->seg) { /* nobody may count on it there: the others must be enough for all uploads of the segment */
            p->seg->sync_failed |= (uint16_t)(1u << d->position);
        }
    } else if (errno_value != 0) {
        obj_put_lose_shard(p, shard, what, errno_value);
    }
}

/* Shards that are lost already, or soon will be because their segment is no good on their drive. */
static uint16_t given_up(const tarn_put *p)
{
    unsigned mask = p->lost;
    for (unsigned i = 0; p->seg && i < obj_put_shards(p); i++) {
        unsigned bit = 1u << obj_blob_drive(&p->blob, i, p->s->n);
        mask |= ((unsigned)p->seg->sync_failed & bit) != 0 ? 1u << i : 0;
    }
    return (uint16_t)mask;
}

/* Waits for the batch; shards that failed, or are late while the others are enough, are lost. */
static void settle(tarn_put *p, tarn_batch *b, const char *what)
{
    uint16_t late = obj_batch_settle(b, who, given_up(p), p->s->write_quorum);
    for (size_t i = 0; i < tarn_batch_count(b); i++) {
        const tarn_op *op = tarn_batch_op(b, i);
        if (!op->finished || op->result < 0) {
            lose_or_late(p, who(op), op->finished ? 0 : late, what, op->finished ? (int)-op->result : EIO);
        }
    }
}

/*
 * Space for all of it: writes then neither extend the file nor wait for each other, and a full drive shows at once. Of no
 * use through the page cache, or where the size isn't known.
 */
static tarn_err allocate_files(tarn_put *p)
{
    unsigned n = obj_put_shards(p);
    if (p->blob.size == 0) {
        return TARN_OK;
    }
    tarn_batch *b = tarn_batch_new(n);
    if (!b) {
        return TARN_E_NO_MEMORY;
    }
    for (unsigned i = 0; i < n; i++) {
        if (p->files[i] && obj_drive_at(p->s, p->blob.set, obj_blob_drive(&p->blob, i, p->s->n))->direct) {
            *tarn_batch_add(b) =
                (tarn_op){.code = TARN_OP_ALLOCATE, .file = p->files[i], .len = obj_record_bytes(&p->blob), .ctx = (void *)(uintptr_t)i};
        }
    }
    tarn_batch_submit(b);
    uint16_t late = obj_batch_settle(b, who, given_up(p), p->s->write_quorum);
    for (size_t i = 0; i < tarn_batch_count(b); i++) {
        const tarn_op *op = tarn_batch_op(b, i);
        if (!op->finished || (op->result < 0 && op->result != -EOPNOTSUPP)) {
            lose_or_late(p, who(op), op->finished ? 0 : late, "allocating a file", op->finished ? (int)-op->result : EIO);
        }
    }
    tarn_batch_release(b);
    return p->err;
}

tarn_err obj_put_open_files(tarn_put *p)
{
    tarn_store *s = p->s;
    unsigned n = obj_put_shards(p);
    uint16_t late = 0;
    int results[TARN_SET_DRIVES_MAX] = {0};
    obj_opens *o = tarn_calloc(1, sizeof *o);
    if (!o) {
        return TARN_E_NO_MEMORY;
    }
    for (unsigned i = 0; i < n; i++) {
        obj_drive *d = shard_drive(p, i);
        o->direct[i] = d->direct;
        if (!obj_drive_writable(d) || obj_drive_skipped(s, d) || !obj_path_blob(d, &p->blob, o->paths[i])) {
            o->paths[i][0] = '\0';
            obj_put_lose_shard(p, i, "file", 0);
        }
    }
    tarn_err err = obj_open_many(s, o, p->files, results, &late);
    for (unsigned i = 0; !err && i < n; i++) {
        if (results[i] < 0) {
            lose_or_late(p, i, late, "creating a file", -results[i]);
        }
    }
    return err ? err : p->err ? p->err : allocate_files(p);
}

/* ------------------------------------------------------------------ blocks on their way to the drives */
static void flight_end(void *ctx)
{
    flight_memory *f = ctx;
    obj_block_unref(f->block);
    obj_block_unref(f->extra);
    tarn_free(f->more);
    tarn_free(f);
}

/* Takes over the reference to the block, and finds n bytes on a page beside it. NULL, and the block is given back, when out
 * of memory. */
static flight_memory *flight_new(tarn_put *p, obj_block *blk, size_t extra_n, uint8_t **extra)
{
    flight_memory *f = tarn_calloc(1, sizeof *f);
    if (!f) {
        obj_block_unref(blk);
        return NULL;
    }
    f->block = blk;
    *extra = NULL;
    if (extra_n > TARN_BLOCK_BYTES) {
        *extra = f->more = tarn_aligned_alloc(OBJ_PAGE_BYTES, extra_n);
    } else if (extra_n > 0) {
        f->extra = obj_block_new(p->ctx, extra_n);
        *extra = f->extra ? f->extra->data : NULL;
    }
    if (extra_n > 0 && !*extra) {
        flight_end(f);
        return NULL;
    }
    return f;
}

void obj_put_reap(tarn_put *p)
{
    tarn_batch *b = p->flight[0];
    settle(p, b, "writing");
    tarn_batch_release(b);
    p->flight_n--;
    memmove(p->flight, p->flight + 1, p->flight_n * sizeof p->flight[0]);
}

/* One block of one shard as it goes to its drive: header before it, trailer behind it, where they are due. */
typedef struct shard_write {
    unsigned shard;
    uint8_t *data;
    size_t n, head_n, tail_n;
    size_t pad_n;  /* behind the trailer, to the end of the page */
    uint64_t off;  /* of the data in the file */
    bool in_place; /* the block has room for both around the data */
    bool staged;   /* all copied together */
} shard_write;

/* Of the data, what goes out with the trailer because it doesn't fill a page. */
static size_t rest_bytes(const shard_write *w)
{
    return w->tail_n > 0 ? w->n % OBJ_PAGE_BYTES : 0;
}

static size_t extra_bytes(const shard_write *w)
{
    if (w->in_place) {
        return 0;
    }
    return w->head_n + w->tail_n + w->pad_n + (w->staged ? w->n : rest_bytes(w));
}

static void put_head(tarn_put *p, const shard_write *w, uint8_t *head)
{
    if (w->head_n > 0) {
        memcpy(head, p->header.p, w->head_n);
        obj_header_stamp(head, w->head_n, w->shard);
    }
}

static void put_tail(tarn_put *p, const shard_write *w, uint8_t *tail)
{
    if (w->tail_n > 0) {
        obj_trailer_build(&p->blob, w->shard, p->created_ms, tail);
        memset(tail + w->tail_n, 0, w->pad_n);
    }
}

static void add_write(tarn_batch *b, const shard_write *w, tarn_file *f, uint8_t *buf, size_t n, uint64_t off)
{
    if (n > 0) {
        TARN_ASSERT(n % OBJ_PAGE_BYTES == 0 && off % OBJ_PAGE_BYTES == 0 && (uintptr_t)buf % OBJ_PAGE_BYTES == 0);
        *tarn_batch_add(b) =
            (tarn_op){.code = TARN_OP_WRITE, .file = f, .buf = buf, .len = n, .off = off, .ctx = (void *)(uintptr_t)w->shard};
    }
}

/* Returns how much of `extra` it used. */
static size_t add_shard(tarn_put *p, tarn_batch *b, const shard_write *w, tarn_file *f, uint8_t *extra)
{
    size_t all = w->head_n + w->n + w->tail_n + w->pad_n, rest = rest_bytes(w), main = w->n - rest;
    if (w->in_place) {
        put_head(p, w, w->data - w->head_n);
        put_tail(p, w, w->data + w->n);
        add_write(b, w, f, w->data - w->head_n, all, w->off - w->head_n);
    } else if (w->staged) {
        put_head(p, w, extra);
        memcpy(extra + w->head_n, w->data, w->n);
        put_tail(p, w, extra + w->head_n + w->n);
        add_write(b, w, f, extra, all, w->off - w->head_n);
    } else {
        uint8_t *end = extra + w->head_n;
        put_head(p, w, extra);
        if (rest > 0) {
            memcpy(end, w->data + main, rest);
        }
        put_tail(p, w, end + rest);
        add_write(b, w, f, extra, w->head_n, w->off - w->head_n);
        add_write(b, w, f, w->data, main, w->off);
        add_write(b, w, f, end, rest + w->tail_n + w->pad_n, w->off + main);
    }
    return extra_bytes(w);
}

static size_t to_page(uint64_t n)
{
    return (size_t)((OBJ_PAGE_BYTES - n % OBJ_PAGE_BYTES) % OBJ_PAGE_BYTES);
}

static shard_write plan_write(const tarn_put *p, const obj_block *blk, size_t shard_len, unsigned shard, bool last)
{
    unsigned k = p->s->k;
    shard_write w = {.shard = shard, .n = shard_len};
    w.data = shard < k ? blk->data + shard * shard_len : blk->parity + (shard - k) * shard_len;
    w.head_n = p->blocks == 0 ? p->blob.head_bytes : 0;
    w.tail_n = last ? obj_trailer_bytes(p->blocks + 1) : 0;
    w.pad_n = last ? to_page(w.head_n + w.n + w.tail_n) : 0;
    w.off = p->blob.offset + p->blob.head_bytes + p->blocks * obj_shard_len(p->blob.block_bytes, k);
    bool on_page = ((uintptr_t)w.data - w.head_n) % OBJ_PAGE_BYTES == 0;
    w.in_place = k == 1 && shard == 0 && on_page && w.head_n <= OBJ_HEADROOM_BYTES && w.tail_n + w.pad_n <= OBJ_TAILROOM_BYTES;
    w.staged = !w.in_place && shard_len <= OBJ_STAGE_BYTES_MAX && w.head_n + w.tail_n > 0;
    return w;
}

static void encode_block(tarn_put *p, obj_block *blk, size_t shard_len)
{
    unsigned k = p->s->k, m = p->s->m;
    uint8_t *data[TARN_SET_DRIVES_MAX], *parity[TARN_SET_DRIVES_MAX];
    memset(blk->data + blk->n, 0, k * shard_len - blk->n);
    for (unsigned i = 0; i < k; i++) {
        data[i] = blk->data + i * shard_len;
    }
    for (unsigned i = 0; i < m; i++) {
        parity[i] = blk->parity + i * shard_len;
    }
    if (m > 0) {
        tarn_ec_encode(p->s->ec, shard_len, data, parity);
    }
    for (unsigned i = 0; i < k + m; i++) {
        tarn_sb_le64(&p->sums, obj_shard_sum(p->blob.blob_id, p->blocks, i, i < k ? data[i] : parity[i - k], shard_len));
    }
}

static tarn_file *shard_file(const tarn_put *p, unsigned shard)
{
    if (p->blob.cls == OBJ_CLASS_FILE) {
        return p->files[shard];
    }
    return p->seg->files[obj_blob_drive(&p->blob, shard, p->s->n)];
}

static tarn_err submit_block(tarn_put *p, obj_block *blk, size_t shard_len, bool last)
{
    unsigned n = obj_put_shards(p);
    shard_write w[TARN_SET_DRIVES_MAX];
    size_t extra_n = 0, used = 0;
    for (unsigned i = 0; i < n; i++) {
        w[i] = plan_write(p, blk, shard_len, i, last);
        extra_n += extra_bytes(&w[i]);
    }
    uint8_t *extra = NULL;
    flight_memory *f = flight_new(p, blk, extra_n, &extra);
    tarn_batch *b = f ? tarn_batch_new((size_t)n * 3) : NULL;
    if (!b) {
        if (f) {
            flight_end(f);
        }
        return TARN_E_NO_MEMORY;
    }
    for (unsigned i = 0; i < n; i++) {
        if (!(p->lost & (1u << i))) {
            used += add_shard(p, b, &w[i], shard_file(p, i), extra + used);
        }
    }
    tarn_batch_on_end(b, flight_end, f);
    tarn_batch_submit(b);
    p->flight[p->flight_n++] = b;
    return TARN_OK;
}

/* Sends the current block off. `last`: no more will come. */
tarn_err obj_put_flush(tarn_put *p, bool last)
{
    obj_block *blk = p->cur;
    size_t shard_len = obj_shard_len(blk->n, p->s->k);
    TARN_ASSERT(p->flight_n < TARN_PUT_BLOCKS_MAX && blk->n > 0);
    encode_block(p, blk, shard_len);
    if (last) {
        p->blob.size = p->bytes;
    }
    p->blob.sums = tarn_sb_view(&p->sums);
    if (p->sums.failed) {
        return TARN_E_NO_MEMORY;
    }
    p->cur = NULL;
    blk->refs++; /* ours, for the digest; the batch has the other one */
    tarn_err err = submit_block(p, blk, shard_len, last);
    if (!err) {
        p->blocks++;
        obj_digest_grow(&p->digest, blk, true);
    }
    obj_block_unref(blk);
    return err;
}

/* The size was not known, and the data ended with a full block that is on its way already. */
tarn_err obj_put_trailers(tarn_put *p)
{
    unsigned n = obj_put_shards(p);
    p->blob.size = p->bytes;
    shard_write w = {.tail_n = obj_trailer_bytes(p->blocks)};
    uint64_t off = p->blob.offset + p->blob.head_bytes + obj_record_data_bytes(&p->blob);
    w.pad_n = to_page(w.tail_n);
    uint8_t *extra = NULL;
    flight_memory *f = flight_new(p, NULL, n * (w.tail_n + w.pad_n), &extra);
    tarn_batch *b = f ? tarn_batch_new(n) : NULL;
    if (!b) {
        if (f) {
            flight_end(f);
        }
        return TARN_E_NO_MEMORY;
    }
    for (w.shard = 0; w.shard < n; w.shard++, extra += w.tail_n + w.pad_n) {
        if (!(p->lost & (1u << w.shard))) {
            put_tail(p, &w, extra);
            add_write(b, &w, shard_file(p, w.shard), extra, w.tail_n + w.pad_n, off);
        }
    }
    tarn_batch_on_end(b, flight_end, f);
    tarn_batch_submit(b);
    p->flight[p->flight_n++] = b;
    return TARN_OK;
}

/* ------------------------------------------------------------------ durable */
static void paths_end(void *ctx)
{
    tarn_free(ctx);
}

/* Starts the syncs of a file per shard and of the folders they were created in. *b is NULL where there is nothing to do. */
tarn_err obj_put_sync_start(tarn_put *p, tarn_batch **b)
{
    unsigned n = obj_put_shards(p);
    *b = NULL;
    if (p->blob.cls != OBJ_CLASS_FILE) {
        return TARN_OK;
    }
    char(*paths)[TARN_PATH_BYTES_MAX] = tarn_calloc(n, TARN_PATH_BYTES_MAX);
    *b = tarn_batch_new((size_t)n * 2);
    if (!paths || !*b) {
        tarn_free(paths);
        return TARN_E_NO_MEMORY;
    }
    for (unsigned i = 0; i < n; i++) {
        if ((p->lost & (1u << i)) || !obj_path_blob_dir(shard_drive(p, i), &p->blob, paths[i])) {
            continue;
        }
        *tarn_batch_add(*b) = (tarn_op){.code = TARN_OP_SYNC, .file = p->files[i], .ctx = (void *)(uintptr_t)i};
        *tarn_batch_add(*b) = (tarn_op){.code = TARN_OP_SYNC_DIR, .fs = p->s->fs, .path = paths[i], .ctx = (void *)(uintptr_t)i};
    }
    tarn_batch_on_end(*b, paths_end, paths);
    tarn_batch_submit(*b);
    return TARN_OK;
}

void obj_put_sync_end(tarn_put *p, tarn_batch *b)
{
    if (p->blob.cls == OBJ_CLASS_SEGMENT) {
        uint16_t failed = 0;
        obj_seg_sync(p->seg, &failed);
        for (unsigned i = 0; i < obj_put_shards(p); i++) {
            if (!(p->lost & (1u << i)) && (failed & (1u << obj_blob_drive(&p->blob, i, p->s->n)))) {
                obj_put_lose_shard(p, i, "syncing", p->seg->sync_errno);
            }
        }
    }
    if (!b) {
        return;
    }
    settle(p, b, "syncing");
}

void obj_put_check_drives(tarn_put *p)
{
    if (p->blob.cls != OBJ_CLASS_FILE && p->blob.cls != OBJ_CLASS_SEGMENT) {
        return;
    }
    for (unsigned i = 0; i < obj_put_shards(p); i++) {
        obj_drive *d = shard_drive(p, i);
        if (p->lost & (1u << i)) {
            continue;
        }
        if (!obj_drive_writable(d) || atomic_load(&d->joined) > p->epoch) {
            obj_put_lose_shard(p, i, "drive", 0);
        } else if (p->blob.cls == OBJ_CLASS_FILE && obj_file_deleted(p->s, d, p->files[i])) { /* a segment's sync has looked */
            obj_put_lose_shard(p, i, "deleted file", 0);
        }
    }
}

/* ------------------------------------------------------------------ taking it back */
void obj_put_unlink(tarn_put *p)
{
    char path[TARN_PATH_BYTES_MAX];
    for (unsigned i = 0; i < obj_put_shards(p); i++) {
        obj_drive *d = obj_drive_at(p->s, p->blob.set, obj_blob_drive(&p->blob, i, p->s->n));
        if (p->files[i] && obj_drive_writable(d) && obj_path_blob(d, &p->blob, path)) {
            (void)tarn_fs_unlink(p->s->fs, path); /* the sweeper finds what stays */
        }
    }
}

void obj_put_punch(tarn_put *p)
{
    tarn_batch *b = tarn_batch_new(obj_put_shards(p));
    if (!b) {
        return;
    }
    for (unsigned i = 0; i < obj_put_shards(p); i++) {
        tarn_file *f = shard_file(p, i);
        if (f) {
            *tarn_batch_add(b) = (tarn_op){.code = TARN_OP_PUNCH, .file = f, .off = p->blob.offset, .len = p->record_bytes};
        }
    }
    tarn_batch_submit(b);
    tarn_batch_release(b);
}
