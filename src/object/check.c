/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Is it whole? Reads every shard of a blob and compares it with what the row says, without changing anything.
 *
 * A record counts as wrong when a block's checksum, its header or its trailer is: the header and trailer are what an index
 * is rebuilt from, so that they are checked like data.
 *
 * Invariants:
 *  1. A shard is counted once, as missing, corrupt or unreachable.
 *  2. Data is pinned while it is looked at; damage of a version that has gone meanwhile is none.
 * Memory: the reader's buffers. Threads: the context's; from a plain thread it runs synchronously.
 */
#include "manifest.h"
#include "upkeep.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

#define CHECK_ARENA_BYTES_MAX (32u << 20)
#define TRAILER_TIME_OFFSET 24

typedef struct checking {
    tarn_store *s;
    const obj_blob *b;
    obj_check *c;
    obj_reader reader;
    uint16_t missing, corrupt, unreachable;
} checking;

static unsigned shards(const checking *k)
{
    return (unsigned)(k->b->k + k->b->m);
}

static bool step(obj_check *c, uint64_t bytes)
{
    c->bytes += bytes;
    return !c->step || c->step(c->ctx, bytes);
}

bool obj_check_clean(const obj_check *c)
{
    return c->missing == 0 && c->corrupt == 0 && c->lost == 0;
}

/* Is got (n = obj_trailer_bytes) that trailer? It is a function of the layout but for its time. expected: room for as many bytes. */
static bool trailer_right(const obj_blob *b, unsigned shard, const uint8_t *got, size_t n, uint8_t *expected)
{
    tarn_rd r = tarn_rd_of((tarn_str){(const char *)got + TRAILER_TIME_OFFSET, 8});
    obj_trailer_build(b, shard, (int64_t)tarn_rd_le64(&r), expected);
    return memcmp(got, expected, n) == 0;
}

void obj_ends_read(const obj_blob *b, unsigned shard, tarn_file *f, uint8_t *head, uint8_t *tail, obj_ends *out)
{
    size_t tail_n = obj_trailer_bytes(obj_blob_blocks(b));
    int64_t n = tarn_file_read(f, head, b->head_bytes, b->offset);
    out->header = n == (int64_t)b->head_bytes && obj_header_matches(head, (size_t)n, b, shard);
    n = tarn_file_read(f, tail, tail_n, b->offset + b->head_bytes + obj_record_data_bytes(b));
    out->trailer = n == (int64_t)tail_n && trailer_right(b, shard, tail, tail_n, tail + tail_n);
}

/* A file of its own, not one that is open already: that might have been deleted since. */
static int open_shard(checking *k, unsigned shard, obj_drive *d)
{
    char path[TARN_PATH_BYTES_MAX];
    tarn_file *f = NULL;
    uint16_t bit = (uint16_t)(1u << shard);
    int rc = -ENOENT;
    if (!(k->b->missing & bit)) {
        rc = obj_path_blob(d, k->b, path) ? tarn_file_open(k->s->fs, path, O_RDONLY | O_CLOEXEC, 0, &f) : -ENAMETOOLONG;
    }
    k->reader.files[shard] = f;
    k->reader.opened |= bit;
    return rc;
}

static tarn_err check_records(checking *k)
{
    size_t tail_n = obj_trailer_bytes(obj_blob_blocks(k->b));
    uint8_t *mem = tarn_malloc(k->b->head_bytes + 2 * tail_n);
    if (!mem) {
        return TARN_E_NO_MEMORY;
    }
    for (unsigned i = 0; i < shards(k); i++) {
        uint16_t bit = (uint16_t)(1u << i);
        obj_drive *d = obj_drive_at(k->s, k->b->set, obj_blob_drive(k->b, i, k->s->n));
        if (!obj_drive_readable(d)) {
            k->unreachable |= bit;
            continue;
        }
        int rc = open_shard(k, i, d);
        if (rc == 0) {
            obj_ends ends;
            obj_ends_read(k->b, i, k->reader.files[i], mem, mem + k->b->head_bytes, &ends);
            k->corrupt |= ends.header && ends.trailer ? 0 : bit;
        } else {
            *(rc == -EMFILE || rc == -ENFILE || rc == -ENOMEM ? &k->unreachable : &k->missing) |= bit;
        }
    }
    tarn_free(mem);
    return step(k->c, (uint64_t)k->b->head_bytes + tail_n) ? TARN_OK : TARN_E_CANCELED;
}

/* One block: which shards are not as they should be? */
static tarn_err check_block(checking *k, uint64_t block, uint16_t all)
{
    obj_stripe st;
    tarn_err err = obj_stripe_start(&k->reader, &st, block, all);
    if (!err) {
        err = obj_stripe_wait(&k->reader, &st);
    }
    if (err == TARN_OK || err == TARN_E_CORRUPT || err == TARN_E_QUORUM_READ) {
        k->corrupt |= (uint16_t)(all & ~(st.good | k->missing | k->unreachable));
    }
    size_t bytes = st.shard_len * (size_t)__builtin_popcount(st.asked);
    obj_stripe_release(&st);
    if (!err && !step(k->c, bytes)) {
        err = TARN_E_CANCELED;
    }
    return err;
}

tarn_err obj_check_blob(tarn_store *s, const obj_blob *b, obj_check *c)
{
    checking *k = tarn_calloc(1, sizeof *k);
    obj_ctx *ctx = obj_ctx_get(s);
    if (!k || !ctx) {
        tarn_free(k);
        return TARN_E_NO_MEMORY;
    }
    *k = (checking){.s = s, .b = b, .c = c};
    obj_reader_init(&k->reader, ctx, b);
    k->reader.avoid = 0; /* a drive that is being filled is looked at like any other */
    uint16_t all = (uint16_t)((1u << shards(k)) - 1);
    tarn_err err = check_records(k);
    for (uint64_t i = 0; !err && i < obj_blob_blocks(b); i++) {
        err = check_block(k, i, all);
    }
    if (err == TARN_E_CORRUPT || err == TARN_E_QUORUM_READ) {
        *(err == TARN_E_CORRUPT ? &c->lost : &c->unreadable) += 1;
        err = TARN_OK;
    }
    c->blobs++;
    c->missing += (uint32_t)__builtin_popcount(k->missing);
    c->corrupt += (uint32_t)__builtin_popcount((uint16_t)(k->corrupt & ~k->missing));
    c->unreachable += (uint32_t)__builtin_popcount(k->unreachable);
    c->damaged_bytes += obj_record_data_bytes(b) * (uint64_t)__builtin_popcount((uint16_t)(k->missing | k->corrupt));
    obj_reader_close(&k->reader);
    tarn_free(k);
    return err;
}

/* ------------------------------------------------------------------ versions */
typedef struct check_parts {
    tarn_store *s;
    obj_check *c;
} check_parts;

static tarn_err check_layout(tarn_store *s, tarn_str layout, obj_check *c)
{
    obj_blob b;
    if (layout.n == 0) {
        return TARN_OK;
    }
    if (obj_blob_unpack(layout, &b) != TARN_OK || b.k != s->k || b.m != s->m || b.set >= s->sets) {
        c->lost++;
        return TARN_OK;
    }
    return obj_check_blob(s, &b, c);
}

static tarn_err check_inline(tarn_store *s, uint64_t data_id, uint64_t size, obj_check *c)
{
    tarn_str bytes = TARN_STR("");
    tarn_arena *a = tarn_arena_new(CHECK_ARENA_BYTES_MAX);
    tarn_err err = a ? tarn_meta_inline_get(s->meta, NULL, data_id, a, &bytes) : TARN_E_NO_MEMORY;
    if (err == TARN_E_NOT_FOUND || (!err && bytes.n != size)) {
        c->lost++;
        err = TARN_OK;
    }
    tarn_arena_free(a);
    return !err && !step(c, bytes.n) ? TARN_E_CANCELED : err;
}

static tarn_err check_part(void *ctx, const tarn_part_row *row)
{
    check_parts *p = ctx;
    return row->blob_id ? check_inline(p->s, row->blob_id, row->size, p->c) : check_layout(p->s, row->layout, p->c);
}

/* With the data pinned: is the row still there? */
static tarn_err still_there(tarn_store *s, const tarn_version_row *row)
{
    tarn_version_row now;
    tarn_arena *a = tarn_arena_new(CHECK_ARENA_BYTES_MAX);
    tarn_err err = a ? obj_version_by_seq(s, row->bucket_id, row->key, row->seq, a, &now) : TARN_E_NO_MEMORY;
    tarn_arena_free(a);
    return err;
}

/* All listed parts must have a row each. */
static tarn_err count_parts(void *ctx, const tarn_part_row *row)
{
    (void)row;
    ++*(uint32_t *)ctx;
    return TARN_OK;
}

tarn_err obj_check_upload(tarn_store *s, uint64_t upload_id, obj_check *c)
{
    check_parts p = {s, c};
    tarn_err err = obj_pin_add(s, upload_id);
    if (!err) {
        err = obj_scan_parts(s, upload_id, check_part, &p);
        obj_pin_drop(s, upload_id);
    }
    return err;
}

tarn_err obj_check_version(tarn_store *s, const tarn_version_row *row, obj_check *c)
{
    uint32_t parts = 0;
    obj_check mine = {.step = c->step, .ctx = c->ctx};
    if (row->data_id == 0) {
        return TARN_OK;
    }
    tarn_err err = obj_pin_add(s, row->data_id);
    if (err) {
        return err;
    }
    err = still_there(s, row);
    if (!err && row->parts_n > 0) {
        err = obj_check_upload(s, row->data_id, &mine);
        if (!err) {
            err = obj_scan_parts(s, row->data_id, count_parts, &parts);
        }
        mine.lost += !err && parts < row->parts_n ? 1 : 0;
        if (!err) {
            err = obj_manifest_check(s, row, &mine.missing, &mine.corrupt);
        }
    } else if (!err) {
        err = row->inline_data ? check_inline(s, row->data_id, row->size, &mine) : check_layout(s, row->layout, &mine);
    }
    if (!err && !(obj_check_clean(&mine) && mine.unreadable == 0)) {
        err = still_there(s, row); /* overwritten or deleted meanwhile: what is missing has been freed */
    }
    obj_pin_drop(s, row->data_id);
    c->bytes += mine.bytes;
    if (!err) {
        c->blobs += mine.blobs;
        c->damaged_bytes += mine.damaged_bytes;
        c->missing += mine.missing;
        c->corrupt += mine.corrupt;
        c->unreachable += mine.unreachable;
        c->lost += mine.lost;
        c->unreadable += mine.unreadable;
    }
    return err;
}
