/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Downloads: a range of a version as verified pieces, at most a block each, read ahead.
 *
 * A version is a row of *extents*: one for a plain object, one per part for a multipart object, whose rows are read when
 * their turn comes. An extent is inline bytes or a blob; of a blob's blocks up to TARN_GET_BLOCKS_MAX are in memory: the one
 * that the caller has, and those being read. What lies in the page cache isn't read ahead: one block, still in the processor's
 * cache when it is verified and sent, is faster than three that are not.
 *
 *   open → (next: extent open? → fill the slots → wait for the first → piece)* → close
 *
 * Invariants:
 *  1. A piece stays valid until the next call: its slot is released first thing then.
 *  2. slots[0 .. slots_n) are consecutive blocks of the current blob, oldest first.
 *  3. The version's data is pinned from open to close.
 * Memory: pieces point into blocks or into the arena (inline). Threads: one fiber at a time.
 */
#include "private.h"

#include <string.h>

#define PART_ARENA_BYTES_MAX (16u << 20) /* a part's row with its layout */

struct tarn_get {
    tarn_store *s;
    obj_ctx *ctx;
    tarn_arena *arena;      /* the caller's: spans, inline bytes */
    tarn_arena *part_arena; /* the current part's row */
    uint64_t bucket_id, seq, data_id;
    tarn_str key;
    uint64_t pos, end; /* within the object */
    obj_span *spans;   /* NULL: one extent */
    size_t spans_n, span_i;
    uint64_t span_off; /* of spans[span_i] in the object */
    tarn_str layout;   /* plain objects */
    /* the current extent */
    bool open, in_memory;
    tarn_str bytes; /* in_memory */
    obj_blob blob;
    obj_reader reader;
    uint64_t ext_off, ext_size; /* of the extent in the object */
    uint64_t next_block, blocks_end;
    obj_stripe slots[TARN_GET_BLOCKS_MAX];
    size_t slots_n;
    bool piece_out; /* slots[0] is with the caller */
    bool pinned, repair_asked;
};

/* ------------------------------------------------------------------ open */
static tarn_err open_plain(tarn_get *g, const tarn_version_row *row)
{
    g->ext_size = row->size;
    if (!row->inline_data) {
        g->layout = row->layout;
        return TARN_OK;
    }
    g->in_memory = true;
    if (row->layout.n == row->size) { /* stat brought the bytes along */
        g->bytes = row->layout;
        return TARN_OK;
    }
    return tarn_meta_inline_get(g->s->meta, NULL, row->data_id, g->arena, &g->bytes);
}

static tarn_err open_source(tarn_get *g, const tarn_version_row *row)
{
    tarn_err err;
    uint64_t nonce = 0;
    if (row->size == 0) {
        return TARN_OK;
    }
    if (!row->inline_data) {
        err = obj_pin_add(g->s, row->data_id);
        if (err) {
            return err;
        }
        g->pinned = true;
    }
    if (row->parts_n == 0) {
        err = open_plain(g, row);
        return !err && g->in_memory && g->bytes.n != row->size ? TARN_E_CORRUPT : err;
    }
    g->part_arena = tarn_arena_new(PART_ARENA_BYTES_MAX);
    return g->part_arena ? obj_spans_unpack(row->layout, g->arena, &g->spans, &g->spans_n, &nonce) : TARN_E_NO_MEMORY;
}

tarn_err tarn_get_open(tarn_store *s, const tarn_version_row *row, uint64_t off, uint64_t len, tarn_arena *a, tarn_get **out)
{
    if (row->delete_marker || off > row->size || len > row->size - off) {
        return TARN_E_INVALID_RANGE;
    }
    tarn_get *g = tarn_calloc(1, sizeof *g);
    if (!g) {
        return TARN_E_NO_MEMORY;
    }
    *g = (tarn_get){.s = s,
                    .ctx = obj_ctx_get(s),
                    .arena = a,
                    .bucket_id = row->bucket_id,
                    .seq = row->seq,
                    .data_id = row->data_id,
                    .pos = off,
                    .end = off + len};
    g->key = tarn_arena_str(a, row->key);
    tarn_err err = g->ctx && g->key.p ? open_source(g, row) : TARN_E_NO_MEMORY;
    if (err) {
        tarn_get_close(g);
        return err;
    }
    *out = g;
    return TARN_OK;
}

/* ------------------------------------------------------------------ extents */
static void ask_repair(tarn_get *g)
{
    if (g->reader.degraded && !g->repair_asked) {
        g->repair_asked = true;
        obj_repair_ask(g->s, g->bucket_id, g->key, g->seq);
    }
}

static void extent_close(tarn_get *g)
{
    if (!g->in_memory) {
        for (size_t i = 0; i < g->slots_n; i++) {
            obj_stripe_release(&g->slots[i]);
        }
        g->slots_n = 0;
        ask_repair(g);
        obj_reader_close(&g->reader);
    }
    g->piece_out = false;
    g->open = false;
}

static tarn_err blob_begin(tarn_get *g, tarn_str layout)
{
    tarn_err err = obj_blob_unpack(layout, &g->blob);
    if (err) {
        return err;
    }
    if (g->blob.size != g->ext_size || g->blob.k != g->s->k || g->blob.m != g->s->m || g->blob.set >= g->s->sets) {
        return TARN_E_FORMAT;
    }
    uint64_t to = g->end < g->ext_off + g->ext_size ? g->end - g->ext_off : g->ext_size;
    obj_reader_init(&g->reader, g->ctx, &g->blob);
    g->next_block = (g->pos - g->ext_off) / g->blob.block_bytes;
    g->blocks_end = (to + g->blob.block_bytes - 1) / g->blob.block_bytes;
    return TARN_OK;
}

/* The part that has the byte at pos; its row says where it lies. */
static tarn_err part_begin(tarn_get *g)
{
    tarn_part_row row;
    while (g->span_i < g->spans_n && g->pos - g->span_off >= g->spans[g->span_i].size) {
        g->span_off += g->spans[g->span_i++].size;
    }
    if (g->span_i >= g->spans_n) {
        return TARN_E_CORRUPT;
    }
    tarn_arena_reset(g->part_arena);
    tarn_err err = tarn_meta_part_get(g->s->meta, NULL, g->data_id, g->spans[g->span_i].number, g->part_arena, &row);
    if (err) {
        return err == TARN_E_INVALID_PART ? TARN_E_CORRUPT : err;
    }
    g->ext_off = g->span_off;
    g->ext_size = g->spans[g->span_i].size;
    g->in_memory = row.blob_id != 0;
    if (!g->in_memory) {
        return blob_begin(g, row.layout);
    }
    err = tarn_meta_inline_get(g->s->meta, NULL, row.blob_id, g->part_arena, &g->bytes);
    return !err && g->bytes.n != g->ext_size ? TARN_E_CORRUPT : err;
}

static tarn_err extent_open(tarn_get *g)
{
    tarn_err err = TARN_OK;
    if (g->spans) {
        err = part_begin(g);
    } else if (!g->in_memory) {
        err = blob_begin(g, g->layout);
    }
    g->open = err == TARN_OK;
    return err;
}

/* ------------------------------------------------------------------ pieces */
/* The part of a block that the range covers. */
static void block_range(const tarn_get *g, uint64_t block, size_t *from, size_t *to)
{
    uint64_t start = g->ext_off + block * g->blob.block_bytes;
    size_t len = obj_block_len(&g->blob, block);
    *from = g->pos > start ? (size_t)(g->pos - start) : 0;
    *to = g->end - start < len ? (size_t)(g->end - start) : len;
}

static tarn_err fill_slots(tarn_get *g)
{
    while (g->slots_n < (g->reader.uncached ? TARN_GET_BLOCKS_MAX : 1) && g->next_block < g->blocks_end) {
        size_t from, to;
        block_range(g, g->next_block, &from, &to);
        size_t shard_len = obj_shard_len(obj_block_len(&g->blob, g->next_block), g->blob.k);
        unsigned first = (unsigned)(from / shard_len), last = (unsigned)((to - 1) / shard_len);
        uint16_t want = (uint16_t)(((2u << last) - 1) & ~((1u << first) - 1));
        tarn_err err = obj_stripe_start(&g->reader, &g->slots[g->slots_n], g->next_block, want);
        if (err) {
            obj_stripe_release(&g->slots[g->slots_n]);
            return err;
        }
        g->slots_n++;
        g->next_block++;
    }
    return TARN_OK;
}

static void drop_piece(tarn_get *g)
{
    if (g->piece_out && g->slots_n > 0) {
        obj_stripe_release(&g->slots[0]);
        g->slots_n--;
        memmove(g->slots, g->slots + 1, g->slots_n * sizeof g->slots[0]);
    }
    g->piece_out = false;
    if (g->open && (g->pos >= g->ext_off + g->ext_size)) {
        extent_close(g);
    }
}

static tarn_err next_in_blob(tarn_get *g, const uint8_t **p, size_t *n)
{
    size_t from, to;
    tarn_err err = fill_slots(g);
    if (!err) {
        TARN_ASSERT(g->slots_n > 0);
        err = obj_stripe_wait(&g->reader, &g->slots[0]);
    }
    if (err) {
        ask_repair(g);
        return err;
    }
    block_range(g, g->slots[0].index, &from, &to);
    *p = g->slots[0].block->data + from;
    *n = to - from;
    g->pos += to - from;
    g->piece_out = true;
    return TARN_OK;
}

tarn_err tarn_get_next(tarn_get *g, const uint8_t **p, size_t *n)
{
    drop_piece(g);
    if (g->pos >= g->end) {
        *p = NULL;
        *n = 0;
        return TARN_OK;
    }
    if (!g->open) {
        tarn_err err = extent_open(g);
        if (err) {
            return err;
        }
    }
    if (!g->in_memory) {
        return next_in_blob(g, p, n);
    }
    size_t from = (size_t)(g->pos - g->ext_off);
    uint64_t to = g->end - g->ext_off < g->bytes.n ? g->end - g->ext_off : g->bytes.n;
    *p = (const uint8_t *)g->bytes.p + from;
    *n = (size_t)to - from;
    g->pos += *n;
    return TARN_OK;
}

void tarn_get_close(tarn_get *g)
{
    if (!g) {
        return;
    }
    if (g->open) {
        extent_close(g);
    }
    if (g->pinned) {
        obj_pin_drop(g->s, g->data_id);
    }
    tarn_arena_free(g->part_arena);
    tarn_free(g);
}

tarn_err tarn_object_read(tarn_store *s, const tarn_version_row *row, size_t max_bytes, tarn_arena *a, tarn_str *out)
{
    tarn_get *g = NULL;
    if (row->size > max_bytes) {
        return TARN_E_LIMIT;
    }
    size_t size = (size_t)row->size, have = 0;
    char *mem = tarn_arena_alloc(a, size + 1);
    if (!mem) {
        return TARN_E_NO_MEMORY;
    }
    tarn_err err = tarn_get_open(s, row, 0, row->size, a, &g);
    while (!err && have < size) {
        const uint8_t *p = NULL;
        size_t n = 0;
        err = tarn_get_next(g, &p, &n);
        if (!err) {
            TARN_ASSERT(n > 0 && n <= size - have);
            memcpy(mem + have, p, n);
            have += n;
        }
    }
    tarn_get_close(g);
    if (!err) {
        mem[size] = '\0';
        *out = (tarn_str){mem, size};
    }
    return err;
}
