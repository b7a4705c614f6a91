/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compaction: records that still live in a segment full of dead space move to another one, so that the old one can go.
 *
 * The sweeper punches dead space out of segments; this is for what it can't give back: file systems without holes, and
 * segments of which so little is left that they are not worth a file. A segment is chosen when, on some drive, more than half of
 * what it occupies, and OBJ_COMPACT_DEAD_BYTES_MIN at least, belongs to no live record.
 *
 *   read the record (verified, rebuilt where needed) → write it to an open segment → sync → one transaction puts the new place into
 *   the row, where the row still has the old one
 *
 * A crash leaves either place; the one that no row names is dead space like any other. The old record stays readable until a
 * sweep, which comes an hour later: whoever read the row before may finish.
 *
 * Invariants:
 *  1. A row never names a place that is not synced on the write quorum.
 *  2. Ids and checksums of a blob don't change; only its place does.
 * Memory: one record with all its shards. Threads: one pass at a time, the background fiber's or a test's.
 */
#include "upkeep.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#define COMPACT_SEGMENTS_MAX 4096
#define HEADER_SEGMENT_OFFSET 112
#define HEADER_PLACE_OFFSET 120

typedef struct seg_use {
    uint64_t id, live, allocated; /* allocated: the most on any drive */
    bool chosen;
} seg_use;

typedef struct compact {
    tarn_store *s;
    obj_stop_fn stop;
    seg_use *list; /* by id, once they are all listed */
    size_t n;
    uint64_t moved, moved_bytes;
    const tarn_version_row *row; /* whose blobs are being moved */
} compact;

/* ------------------------------------------------------------------ which segments */
typedef struct listing {
    compact *c;
    const obj_drive *d;
} listing;

static bool take_segment(void *ctx, const char *name, bool is_dir)
{
    listing *l = ctx;
    compact *c = l->c;
    uint64_t id = 0;
    tarn_fs_stat st;
    char path[TARN_PATH_BYTES_MAX];
    if (is_dir || strnlen(name, 17) != 16 || !tarn_hex_to_u64(tarn_str_of(name), &id) || obj_seg_in_use(c->s, id) ||
        !obj_path_segment(l->d, id, path) || c->s->fs->stat(c->s->fs, path, &st) < 0) {
        return true;
    }
    for (size_t i = 0; i < c->n; i++) {
        if (c->list[i].id == id) {
            c->list[i].allocated = st.allocated_bytes > c->list[i].allocated ? st.allocated_bytes : c->list[i].allocated;
            return true;
        }
    }
    if (c->n < COMPACT_SEGMENTS_MAX) {
        c->list[c->n++] = (seg_use){.id = id, .allocated = st.allocated_bytes};
    }
    return true;
}

static void list_segments(void *arg)
{
    compact *c = arg;
    for (size_t i = 0; i < c->s->drives_n; i++) {
        char path[TARN_PATH_BYTES_MAX];
        listing l = {c, &c->s->drives[i]};
        if (obj_drive_writable(l.d) && obj_path(l.d, "segments", path)) {
            (void)c->s->fs->list(c->s->fs, path, take_segment, &l);
        }
    }
}

static int by_id(const void *a, const void *b)
{
    uint64_t x = ((const seg_use *)a)->id, y = ((const seg_use *)b)->id;
    return x < y ? -1 : x > y ? 1 : 0;
}

static seg_use *find(compact *c, uint64_t id)
{
    seg_use wanted = {.id = id};
    return bsearch(&wanted, c->list, c->n, sizeof wanted, by_id);
}

static bool segment_blob(tarn_str layout, obj_blob *b)
{
    return obj_layout_class(layout) == OBJ_CLASS_SEGMENT && obj_blob_unpack(layout, b) == TARN_OK;
}

static tarn_err count_layout(compact *c, tarn_str layout)
{
    obj_blob b;
    if (segment_blob(layout, &b)) {
        seg_use *u = find(c, b.segment);
        if (u) {
            u->live += obj_record_bytes(&b);
        }
    }
    return TARN_OK;
}

static tarn_err count_part(void *ctx, const tarn_part_row *row)
{
    return count_layout(ctx, row->layout);
}

static tarn_err count_version(void *ctx, const tarn_version_row *row)
{
    compact *c = ctx;
    return row->parts_n > 0 ? obj_scan_parts(c->s, row->data_id, count_part, c) : count_layout(c, row->layout);
}

static tarn_err count_upload(void *ctx, uint64_t upload_id)
{
    compact *c = ctx;
    return obj_scan_parts(c->s, upload_id, count_part, c);
}

static size_t choose(compact *c)
{
    size_t chosen = 0;
    for (size_t i = 0; i < c->n; i++) {
        seg_use *u = &c->list[i];
        uint64_t dead = u->allocated > u->live ? u->allocated - u->live : 0;
        u->chosen = u->live > 0 && dead >= c->s->compact_dead_min && dead > u->allocated / 2;
        chosen += u->chosen ? 1 : 0;
    }
    return chosen;
}

/* ------------------------------------------------------------------ moving a record */
typedef struct move {
    compact *c;
    obj_blob from, to;
    size_t bytes;                      /* of a shard's record */
    uint8_t *mem[TARN_SET_DRIVES_MAX]; /* whole records, on pages */
    obj_seg *seg;
    uint16_t failed; /* shards */
} move;

static void le64_to(uint8_t *p, uint64_t v)
{
    for (unsigned i = 0; i < 8; i++) {
        p[i] = (uint8_t)(v >> (8 * i));
    }
}

/* A good header of any shard, with the new place in it. */
static tarn_err read_header(move *m, obj_ctx *ctx, uint8_t *head)
{
    tarn_store *s = m->c->s;
    for (unsigned i = 0; i < (unsigned)(m->from.k + m->from.m); i++) {
        tarn_file *f = NULL;
        unsigned position = obj_blob_drive(&m->from, i, s->n);
        if (!obj_drive_readable(obj_drive_at(s, m->from.set, position)) || obj_fd_get(ctx, &m->from, position, &f) < 0) {
            continue;
        }
        int64_t n = tarn_file_read(f, head, m->from.head_bytes, m->from.offset);
        tarn_file_unref(f);
        if (n == (int64_t)m->from.head_bytes && obj_header_matches(head, (size_t)n, &m->from, i)) {
            le64_to(head + HEADER_SEGMENT_OFFSET, m->to.segment);
            le64_to(head + HEADER_PLACE_OFFSET, m->to.offset);
            return TARN_OK;
        }
    }
    return TARN_E_CORRUPT;
}

static tarn_err read_blocks(move *m, obj_ctx *ctx)
{
    obj_reader *reader = tarn_calloc(1, sizeof *reader);
    unsigned shards = (unsigned)(m->from.k + m->from.m);
    tarn_err err = reader ? TARN_OK : TARN_E_NO_MEMORY;
    if (!err) {
        obj_reader_init(reader, ctx, &m->from);
    }
    for (uint64_t b = 0; !err && b < obj_blob_blocks(&m->from); b++) {
        obj_stripe st;
        err = obj_stripe_start(reader, &st, b, (uint16_t)((1u << shards) - 1));
        if (!err) {
            err = obj_stripe_wait(reader, &st);
        }
        for (unsigned i = 0; !err && i < shards; i++) {
            memcpy(m->mem[i] + obj_shard_offset(&m->from, b), obj_stripe_shard(&st, m->from.k, i), st.shard_len);
        }
        obj_stripe_release(&st);
    }
    if (reader) {
        obj_reader_close(reader);
    }
    tarn_free(reader);
    return err;
}

static tarn_err write_shards(move *m)
{
    tarn_store *s = m->c->s;
    unsigned shards = (unsigned)(m->to.k + m->to.m);
    uint16_t unsynced = 0;
    for (unsigned i = 0; i < shards; i++) {
        unsigned position = obj_blob_drive(&m->to, i, s->n);
        obj_drive *d = obj_drive_at(s, m->to.set, position);
        tarn_file *f = m->seg->files[position];
        int64_t n = f && obj_drive_writable(d) ? tarn_file_write(f, m->mem[i], m->bytes, m->to.offset) : -ENODEV;
        if (n < 0) {
            m->failed |= (uint16_t)(1u << i);
            if (f) {
                obj_drive_error(s, d, "moving a record", (int)-n);
            }
        }
    }
    obj_seg_sync(m->seg, &unsynced);
    for (unsigned i = 0; i < shards; i++) {
        if (unsynced & (1u << obj_blob_drive(&m->to, i, s->n))) {
            m->failed |= (uint16_t)(1u << i);
        }
    }
    return shards - (unsigned)__builtin_popcount(m->failed) >= s->write_quorum ? TARN_OK : TARN_E_QUORUM_WRITE;
}

static tarn_err build(move *m, obj_ctx *ctx)
{
    unsigned shards = (unsigned)(m->from.k + m->from.m);
    size_t tail_at = (size_t)(m->from.head_bytes + obj_record_data_bytes(&m->from));
    tarn_rd time = {0};
    for (unsigned i = 0; i < shards; i++) {
        m->mem[i] = tarn_aligned_alloc(OBJ_PAGE_BYTES, m->bytes);
        if (!m->mem[i]) {
            return TARN_E_NO_MEMORY;
        }
        memset(m->mem[i], 0, m->bytes);
    }
    tarn_err err = read_header(m, ctx, m->mem[0]);
    if (!err) {
        err = read_blocks(m, ctx);
    }
    for (unsigned i = 0; !err && i < shards; i++) {
        if (i > 0) {
            memcpy(m->mem[i], m->mem[0], m->from.head_bytes);
        }
        obj_header_stamp(m->mem[i], m->from.head_bytes, i);
        time = tarn_rd_of((tarn_str){(const char *)m->mem[i] + 88, 8}); /* the upload's begin: what the first trailer had */
        obj_trailer_build(&m->to, i, (int64_t)tarn_rd_le64(&time), m->mem[i] + tail_at);
    }
    return err;
}

/* ------------------------------------------------------------------ the new place in the row */
typedef struct place_arg {
    compact *c;
    tarn_str old, fresh;
    uint32_t part;
    uint16_t missing;
} place_arg;

static tarn_err place_fn(tarn_meta_tx *tx, void *arg)
{
    place_arg *p = arg;
    tarn_meta *meta = p->c->s->meta;
    tarn_arena *a = tarn_meta_tx_arena(tx);
    const tarn_version_row *v = p->c->row;
    tarn_part_row part;
    tarn_version_row row;
    tarn_err err = tarn_meta_version_get(meta, tx, v->bucket_id, v->key, v->null_version, v->seq, v->nonce, a, &row);
    if (err || row.seq != v->seq || row.data_id != v->data_id) {
        return err ? err : TARN_E_CONFLICT;
    }
    if (p->part != 0) {
        err = tarn_meta_part_get(meta, tx, v->data_id, p->part, a, &part);
        if (err || !tarn_str_eq(part.layout, p->old)) {
            return err ? err : TARN_E_CONFLICT;
        }
        part.layout = p->fresh;
        err = tarn_meta_part_put(tx, &part);
    } else if (!tarn_str_eq(row.layout, p->old)) {
        err = TARN_E_CONFLICT;
    } else {
        row.layout = p->fresh;
        err = tarn_meta_version_update(tx, &row);
    }
    if (!err && p->missing) {
        tarn_repair_row r = {.bucket_id = v->bucket_id, .key = v->key, .seq = v->seq, .since_ms = tarn_meta_tx_now_ms(tx)};
        err = tarn_meta_repair_put(tx, &r);
    }
    return err;
}

static tarn_err commit_place(move *m, tarn_str old, uint32_t part)
{
    tarn_sb b;
    tarn_sb_init(&b, TARN_LAYOUT_BYTES_MAX);
    m->to.missing = m->failed;
    tarn_err err = obj_blob_pack(&m->to, &b);
    if (!err) {
        place_arg p = {m->c, old, tarn_sb_view(&b), part, m->failed};
        err = tarn_meta_commit(m->c->s->meta, place_fn, &p);
    }
    tarn_sb_free(&b);
    return err;
}

static tarn_err move_layout(compact *c, tarn_str layout, uint32_t part)
{
    move m = {.c = c};
    const seg_use *u = segment_blob(layout, &m.from) ? find(c, m.from.segment) : NULL;
    obj_ctx *ctx = obj_ctx_get(c->s);
    if (!u || !u->chosen || m.from.set >= c->s->sets || m.from.k != c->s->k || m.from.m != c->s->m || !ctx) {
        return TARN_OK;
    }
    if (c->stop && c->stop(c->s)) {
        return TARN_E_CANCELED;
    }
    m.to = m.from;
    m.bytes = (size_t)obj_record_bytes(&m.from);
    tarn_err err = obj_seg_reserve(ctx, m.from.set, m.bytes, &m.seg, &m.to.offset);
    if (err) {
        return err;
    }
    m.to.segment = m.seg->id;
    err = build(&m, ctx);
    if (!err) {
        err = write_shards(&m);
    }
    if (!err) {
        err = commit_place(&m, layout, part);
    }
    for (unsigned i = 0; i < TARN_SET_DRIVES_MAX; i++) {
        tarn_free(m.mem[i]);
    }
    obj_seg_unref(m.seg);
    if (!err) {
        c->moved++;
        c->moved_bytes += m.bytes;
    }
    /* Damaged, changed, or gone meanwhile: it stays where it is, for repair or for the sweep. */
    bool leave = err == TARN_E_CORRUPT || err == TARN_E_QUORUM_READ || err == TARN_E_CONFLICT || err == TARN_E_NO_SUCH_VERSION ||
                 err == TARN_E_INVALID_PART;
    return leave ? TARN_OK : err;
}

static tarn_err move_part(void *ctx, const tarn_part_row *row)
{
    return move_layout(ctx, row->layout, row->number);
}

static tarn_err move_version(void *ctx, const tarn_version_row *row)
{
    compact *c = ctx;
    if (row->data_id == 0 || row->inline_data) {
        return TARN_OK;
    }
    tarn_err err = obj_pin_add(c->s, row->data_id);
    if (err) {
        return err;
    }
    c->row = row;
    err = row->parts_n > 0 ? obj_scan_parts(c->s, row->data_id, move_part, c) : move_layout(c, row->layout, 0);
    obj_pin_drop(c->s, row->data_id);
    return err;
}

tarn_err obj_compact_pass(tarn_store *s, obj_stop_fn stop)
{
    compact c = {.s = s, .stop = stop, .list = tarn_calloc(COMPACT_SEGMENTS_MAX, sizeof *c.list)};
    tarn_err err = c.list ? TARN_OK : TARN_E_NO_MEMORY;
    if (!err) {
        obj_offload(s, list_segments, &c);
        qsort(c.list, c.n, sizeof *c.list, by_id);
    }
    if (!err && c.n > 0) {
        err = obj_scan_uploads(s, count_upload, &c);
    }
    if (!err && c.n > 0) {
        err = obj_scan_versions(s, stop, count_version, &c);
    }
    size_t chosen = err ? 0 : choose(&c);
    if (chosen > 0) {
        err = obj_scan_versions(s, stop, move_version, &c);
        tarn_metric_add(TARN_M_RECORDS_COMPACTED, (int64_t)c.moved);
        tarn_logf(TARN_LOG_INFO, "segments compacted", "%zu segments, %llu records, %llu bytes a drive", chosen,
                  (unsigned long long)c.moved, (unsigned long long)c.moved_bytes);
    }
    tarn_free(c.list);
    return err;
}
