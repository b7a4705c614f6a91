/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Uploads.
 *
 *   begin → (reserve → fill → advance)* → prepare → apply (in a transaction) → done        abort at any time
 *
 * The bytes of an object are received straight into a block. When the next block is asked for, the full one is encoded,
 * summed and handed to the drives while the next is being filled. The class of the data (inline, segment, file) is known
 * at once when the size is; otherwise when the first block is full, or at the end.
 *
 * Invariants:
 *  1. At most TARN_PUT_BLOCKS_MAX blocks belong to an upload: the one being filled and those on their way.
 *  2. A shard whose drive failed is in `lost` and stays there; the layout records it as missing. An upload goes on while
 *     at least write_quorum shards are whole.
 *  3. Nothing refers to the data before apply; apply runs only after the data is durable (prepare).
 *  4. Data is freed by done() or abort() only while no transaction can have made it visible; when a commit's outcome is not
 *     known it stays, and the sweeper decides.
 * Memory: the put is the caller's until finish, done or abort; blocks in flight belong to their batch. Threads: one loop;
 * apply runs on the committer while the loop's fiber waits.
 */
#include "private.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

#define STAGE_BYTES_MAX (64 * 1024) /* a shard up to this size is copied beside its header: one write instead of three */

/* What one batch of writes needs until its end, even past the life of the put (a drive that hangs). */
typedef struct flight_memory {
    obj_block *block;
    uint8_t *extra;
} flight_memory;

struct tarn_put {
    tarn_store *s;
    obj_ctx *ctx;
    tarn_arena *arena;
    tarn_put_spec spec;
    obj_blob blob;
    uint64_t record_bytes; /* SEGMENT */
    tarn_sb header;
    tarn_sb sums;
    obj_block *cur;
    tarn_batch *flight[TARN_PUT_BLOCKS_MAX];
    size_t flight_n;
    uint64_t bytes;
    uint64_t blocks;
    obj_digest digest;
    bool digest_on;
    tarn_sum_kind sum_kind, upload_kind; /* the one asked for; the upload's */
    tarn_sum_type upload_type;
    uint64_t upload_nonce;
    bool has_expected_sum, has_expected_sha;
    uint8_t expected_sum[TARN_DIGEST_BYTES_MAX], expected_sha[TARN_SHA256_BYTES];
    tarn_file *files[TARN_SET_DRIVES_MAX]; /* FILE, by shard */
    obj_seg *seg;                          /* SEGMENT */
    uint16_t lost;
    int lost_errno;
    bool pinned, prepared, applied;
    int64_t created_ms;
    tarn_err err;
    /* after prepare */
    tarn_str etag, attrs, layout;
    tarn_checksum checksum;
    obj_part_attrs part;
    uint8_t md5[TARN_MD5_BYTES];
    uint8_t sha256[TARN_SHA256_BYTES];
};

static unsigned shards_of(const tarn_put *p)
{
    return p->s->k + p->s->m;
}

/* ------------------------------------------------------------------ failures of drives */
static void lose_shard(tarn_put *p, unsigned shard, const char *what, int errno_value)
{
    obj_drive *d = obj_drive_at(p->s, p->blob.set, obj_blob_drive(&p->blob, shard, p->s->n));
    p->lost |= (uint16_t)(1u << shard);
    if (errno_value != 0) {
        p->lost_errno = p->lost_errno == ENOSPC ? ENOSPC : errno_value;
        obj_drive_error(p->s, d, what, errno_value);
    }
    unsigned whole = shards_of(p) - (unsigned)__builtin_popcount(p->lost);
    if (whole < p->s->write_quorum && !p->err) {
        bool full = p->lost_errno == ENOSPC || p->lost_errno == EDQUOT;
        bool memory = p->lost_errno == ENOMEM || p->lost_errno == EMFILE || p->lost_errno == ENFILE;
        p->err = full ? TARN_E_DISK_FULL : memory ? TARN_E_NO_MEMORY : TARN_E_QUORUM_WRITE;
    }
}

/* ------------------------------------------------------------------ begin */
static bool upload_first(void *ctx, const tarn_upload_row *row)
{
    tarn_put *p = ctx;
    if (row->upload_id == p->spec.upload_id && tarn_str_eq(row->key, p->spec.key)) {
        tarn_attrs a = {0};
        tarn_arena *scratch = tarn_arena_new(2 * TARN_ATTRS_BYTES_MAX);
        p->upload_nonce = row->nonce;
        p->err = scratch ? tarn_attrs_unpack(row->attrs, scratch, &a) : TARN_E_NO_MEMORY;
        p->upload_kind = a.checksum.kind;
        p->upload_type = a.checksum.type;
        tarn_arena_free(scratch);
    }
    return false;
}

/* The upload that a part belongs to: it must be there now, and is looked for again in the transaction. */
static tarn_err find_upload(tarn_put *p)
{
    if (p->spec.part_number < 1 || p->spec.part_number > TARN_PARTS_MAX) {
        return TARN_E_INVALID_ARGUMENT;
    }
    p->err = TARN_E_NO_SUCH_UPLOAD;
    tarn_err err = p->spec.upload_id == 0 ? TARN_E_NO_SUCH_UPLOAD
                                          : tarn_meta_upload_list(p->s->meta, p->spec.bucket->id, p->spec.key, p->spec.key,
                                                                  p->spec.upload_id - 1, upload_first, p);
    if (!err) {
        err = p->err;
    }
    p->err = TARN_OK;
    return err;
}

static tarn_err begin_digest(tarn_put *p)
{
    tarn_sum_kind kinds[3];
    size_t n = 0;
    p->sum_kind = p->spec.attrs.checksum.kind;
    if (p->sum_kind == TARN_SUM_NONE) {
        p->sum_kind = p->spec.is_part && p->upload_kind != TARN_SUM_NONE ? p->upload_kind : TARN_SUM_CRC64NVME;
    }
    kinds[n++] = p->sum_kind;
    if (p->spec.is_part) {
        kinds[n++] = p->upload_kind != TARN_SUM_NONE ? p->upload_kind : TARN_SUM_CRC64NVME;
    }
    if (p->spec.expect_sha256 || p->has_expected_sha) {
        kinds[n++] = TARN_SUM_SHA256;
    }
    bool md5 = p->spec.etag_override.n == 0 || p->spec.expect_md5 || p->sum_kind == TARN_SUM_MD5;
    tarn_err err = obj_digest_begin(&p->digest, p->ctx, md5, kinds, n);
    p->digest_on = err == TARN_OK;
    return err;
}

static tarn_err check_spec(const tarn_put_spec *spec)
{
    if (spec->key.n == 0) {
        return TARN_E_INVALID_ARGUMENT;
    }
    if (spec->key.n > TARN_KEY_BYTES_MAX) {
        return TARN_E_KEY_TOO_LONG;
    }
    if (spec->etag_override.n > OBJ_ETAG_BYTES_MAX) {
        return TARN_E_INVALID_ARGUMENT;
    }
    return spec->size_hint != UINT64_MAX && spec->size_hint > TARN_PUT_BYTES_MAX ? TARN_E_ENTITY_TOO_LARGE : TARN_OK;
}

/* The set is a function of the name alone, so that an index can be rebuilt set by set. */
static unsigned choose_set(const tarn_store *s, tarn_str bucket, tarn_str key)
{
    char mem[TARN_BUCKET_NAME_BYTES_MAX + TARN_KEY_BYTES_MAX + 2];
    tarn_sb b;
    if (s->sets == 1) {
        return 0;
    }
    tarn_sb_init_fixed(&b, mem, sizeof mem);
    tarn_sb_str(&b, bucket);
    tarn_sb_char(&b, '/');
    tarn_sb_str(&b, key);
    tarn_str name = tarn_sb_view(&b);
    return (unsigned)(tarn_siphash(s->sip_key, name.p, name.n) % s->sets);
}

tarn_err tarn_put_begin(tarn_store *s, const tarn_put_spec *spec, tarn_arena *arena, tarn_put **out)
{
    tarn_err err = check_spec(spec);
    if (err) {
        return err;
    }
    tarn_put *p = tarn_calloc(1, sizeof *p);
    if (!p) {
        return TARN_E_NO_MEMORY;
    }
    p->s = s;
    p->ctx = obj_ctx_get(s);
    p->arena = arena;
    p->spec = *spec;
    p->created_ms = tarn_now_ms();
    p->blob = (obj_blob){.set = (uint8_t)choose_set(s, spec->bucket->name, spec->key),
                         .k = (uint8_t)s->k,
                         .m = (uint8_t)s->m,
                         .block_bytes = TARN_BLOCK_BYTES};
    tarn_sb_init(&p->sums, TARN_LAYOUT_BYTES_MAX);
    tarn_sb_init(&p->header, OBJ_HEADER_BYTES_MAX);
    err = p->ctx ? TARN_OK : TARN_E_NO_MEMORY;
    if (!err && obj_set_writable(s, p->blob.set) < s->write_quorum) {
        err = TARN_E_QUORUM_WRITE;
    }
    if (!err && spec->is_part) {
        err = find_upload(p);
    }
    if (!err) {
        err = begin_digest(p);
    }
    if (err) {
        tarn_put_abort(p);
        return err;
    }
    *out = p;
    return TARN_OK;
}

/* ------------------------------------------------------------------ class of the data, and its place */
static tarn_err build_header(tarn_put *p, uint64_t size)
{
    tarn_attrs a = p->spec.attrs;
    obj_record_info info = {.bucket = p->spec.bucket->name,
                            .key = p->spec.key,
                            .bucket_id = p->spec.bucket->id,
                            .upload_nonce = p->upload_nonce,
                            .size_hint = size,
                            .created_ms = p->created_ms,
                            .tags = p->spec.tags,
                            .tags_n = p->spec.tags_n,
                            .etag = p->spec.etag_override,
                            .retention = p->spec.retention,
                            .retain_until_ms = p->spec.retain_until_ms,
                            .legal_hold = p->spec.legal_hold};
    size_t align = p->blob.cls == OBJ_CLASS_FILE ? OBJ_PAGE_BYTES : OBJ_SHARD_ALIGN;
    a.checksum = (tarn_checksum){0}; /* not known yet; it can be computed from the data */
    tarn_err err = tarn_attrs_pack(&a, p->arena, &info.attrs);
    if (err) {
        return err;
    }
    p->blob.head_bytes = (uint32_t)obj_header_bytes(&p->blob, &info, align);
    if (p->blob.cls == OBJ_CLASS_SEGMENT) {
        p->record_bytes = p->blob.head_bytes + obj_record_data_bytes(&p->blob) + obj_trailer_bytes(obj_blob_blocks(&p->blob));
        err = obj_seg_reserve(p->ctx, p->blob.set, p->record_bytes, &p->seg, &p->blob.offset);
        if (err) {
            return err;
        }
        p->blob.segment = p->seg->id;
    }
    return obj_header_build(p->s->deployment_raw, &p->blob, &info, align, &p->header);
}

static void take_segment_files(tarn_put *p)
{
    for (unsigned i = 0; i < shards_of(p); i++) {
        unsigned pos = obj_blob_drive(&p->blob, i, p->s->n);
        if (!p->seg->files[pos] || !obj_drive_writable(obj_drive_at(p->s, p->blob.set, pos))) {
            lose_shard(p, i, "segment", 0);
        }
    }
}

static tarn_err open_files(tarn_put *p)
{
    tarn_store *s = p->s;
    unsigned n = shards_of(p), asked = 0;
    char(*paths)[TARN_PATH_BYTES_MAX] = tarn_calloc(n, TARN_PATH_BYTES_MAX);
    tarn_batch *b = tarn_batch_new(n);
    if (!paths || !b) {
        tarn_free(paths);
        tarn_batch_release(b);
        return TARN_E_NO_MEMORY;
    }
    for (unsigned i = 0; i < n; i++) {
        obj_drive *d = obj_drive_at(s, p->blob.set, obj_blob_drive(&p->blob, i, s->n));
        if (!obj_drive_writable(d) || !obj_path_blob(d, &p->blob, paths[i])) {
            lose_shard(p, i, "file", 0);
            continue;
        }
        *tarn_batch_add(b) = (tarn_op){.code = TARN_OP_OPEN,
                                       .fs = s->fs,
                                       .path = paths[i],
                                       .flags = O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC,
                                       .mode = 0644,
                                       .file_out = &p->files[i],
                                       .ctx = (void *)(uintptr_t)i};
        asked++;
    }
    tarn_batch_submit(b);
    (void)tarn_batch_wait(b, asked, TARN_IO_NO_TIMEOUT);
    for (size_t i = 0; i < tarn_batch_count(b); i++) {
        const tarn_op *op = tarn_batch_op(b, i);
        if (op->result < 0) {
            lose_shard(p, (unsigned)(uintptr_t)op->ctx, "creating a file", (int)-op->result);
        }
    }
    tarn_batch_release(b);
    tarn_free(paths);
    return p->err;
}

static tarn_err decide_class(tarn_put *p, uint64_t size, bool exact)
{
    tarn_store *s = p->s;
    obj_blob *b = &p->blob;
    tarn_err err = obj_id_next(s, &b->blob_id);
    if (err) {
        return err;
    }
    b->data_id = p->spec.is_part ? p->spec.upload_id : b->blob_id;
    b->part = p->spec.is_part ? p->spec.part_number : 0;
    b->size = exact ? size : 0;
    if (exact && size <= s->inline_max) {
        b->cls = OBJ_CLASS_INLINE;
        return TARN_OK;
    }
    err = obj_pin_add(s, b->data_id);
    if (err) {
        return err;
    }
    p->pinned = true;
    b->rot = (uint8_t)(tarn_siphash(s->sip_key, &b->blob_id, sizeof b->blob_id) % s->n);
    b->cls = exact && size <= s->segment_object_max ? OBJ_CLASS_SEGMENT : OBJ_CLASS_FILE;
    err = build_header(p, exact ? size : UINT64_MAX);
    if (!err && b->cls == OBJ_CLASS_SEGMENT) {
        take_segment_files(p);
        err = p->err;
    }
    if (!err && b->cls == OBJ_CLASS_FILE) {
        err = open_files(p);
    }
    return err;
}

/* ------------------------------------------------------------------ blocks on their way to the drives */
static void flight_end(void *ctx)
{
    flight_memory *f = ctx;
    obj_block_unref(f->block);
    tarn_free(f->extra);
    tarn_free(f);
}

static void reap_oldest(tarn_put *p)
{
    tarn_batch *b = p->flight[0];
    (void)tarn_batch_wait(b, tarn_batch_count(b), tarn_mono_ns() + OBJ_IO_DEADLINE_MS * 1000000ull);
    for (size_t i = 0; i < tarn_batch_count(b); i++) {
        const tarn_op *op = tarn_batch_op(b, i);
        if (!op->finished || op->result < 0) {
            lose_shard(p, (unsigned)(uintptr_t)op->ctx, "writing", op->finished ? (int)-op->result : EIO);
        }
    }
    tarn_batch_release(b);
    p->flight_n--;
    memmove(p->flight, p->flight + 1, p->flight_n * sizeof p->flight[0]);
}

/* One block of one shard as it goes to its drive: header before it, trailer behind it, where they are due. */
typedef struct shard_write {
    unsigned shard;
    uint8_t *data;
    size_t n, head_n, tail_n;
    uint64_t off;  /* of the data in the file */
    bool in_place; /* the block has room for both around the data */
    bool staged;   /* all copied together */
} shard_write;

static size_t extra_bytes(const shard_write *w)
{
    if (w->in_place) {
        return 0;
    }
    return w->head_n + w->tail_n + (w->staged ? w->n : 0);
}

static void put_ends(tarn_put *p, const shard_write *w, uint8_t *head, uint8_t *tail)
{
    if (w->head_n > 0) {
        memcpy(head, p->header.p, w->head_n);
        obj_header_stamp(head, w->head_n, w->shard);
    }
    if (w->tail_n > 0) {
        obj_trailer_build(&p->blob, w->shard, p->created_ms, tail);
    }
}

static void add_write(tarn_batch *b, const shard_write *w, tarn_file *f, uint8_t *buf, size_t n, uint64_t off)
{
    if (n > 0) {
        *tarn_batch_add(b) =
            (tarn_op){.code = TARN_OP_WRITE, .file = f, .buf = buf, .len = n, .off = off, .ctx = (void *)(uintptr_t)w->shard};
    }
}

/* Returns how much of `extra` it used. */
static size_t add_shard(tarn_put *p, tarn_batch *b, const shard_write *w, tarn_file *f, uint8_t *extra)
{
    if (w->in_place) {
        put_ends(p, w, w->data - w->head_n, w->data + w->n);
        add_write(b, w, f, w->data - w->head_n, w->head_n + w->n + w->tail_n, w->off - w->head_n);
    } else if (w->staged) {
        memcpy(extra + w->head_n, w->data, w->n);
        put_ends(p, w, extra, extra + w->head_n + w->n);
        add_write(b, w, f, extra, w->head_n + w->n + w->tail_n, w->off - w->head_n);
    } else {
        put_ends(p, w, extra, extra + w->head_n);
        add_write(b, w, f, extra, w->head_n, w->off - w->head_n);
        add_write(b, w, f, w->data, w->n, w->off);
        add_write(b, w, f, extra + w->head_n, w->tail_n, w->off + w->n);
    }
    return extra_bytes(w);
}

static shard_write plan_write(const tarn_put *p, const obj_block *blk, size_t shard_len, unsigned shard, bool last)
{
    unsigned k = p->s->k;
    shard_write w = {.shard = shard, .n = shard_len};
    w.data = shard < k ? blk->data + shard * shard_len : blk->parity + (shard - k) * shard_len;
    w.head_n = p->blocks == 0 ? p->blob.head_bytes : 0;
    w.tail_n = last ? obj_trailer_bytes(p->blocks + 1) : 0;
    w.off = p->blob.offset + p->blob.head_bytes + p->blocks * obj_shard_len(p->blob.block_bytes, k);
    w.in_place = k == 1 && shard == 0 && w.head_n <= OBJ_HEADROOM_BYTES && w.tail_n <= OBJ_TAILROOM_BYTES;
    w.staged = !w.in_place && w.head_n + w.tail_n > 0 && shard_len <= STAGE_BYTES_MAX;
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
    unsigned n = shards_of(p);
    shard_write w[TARN_SET_DRIVES_MAX];
    size_t extra_n = 0, used = 0;
    for (unsigned i = 0; i < n; i++) {
        w[i] = plan_write(p, blk, shard_len, i, last);
        extra_n += extra_bytes(&w[i]);
    }
    flight_memory *f = tarn_calloc(1, sizeof *f);
    tarn_batch *b = tarn_batch_new((size_t)n * 3);
    uint8_t *extra = extra_n > 0 ? tarn_malloc(extra_n) : NULL;
    if (!f || !b || (extra_n > 0 && !extra)) {
        tarn_free(f);
        tarn_free(extra);
        tarn_batch_release(b);
        obj_block_unref(blk);
        return TARN_E_NO_MEMORY;
    }
    *f = (flight_memory){.block = blk, .extra = extra};
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
static tarn_err flush_block(tarn_put *p, bool last)
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

/* ------------------------------------------------------------------ the caller's side */
static tarn_err next_block(tarn_put *p)
{
    uint64_t hint = p->spec.size_hint;
    if (p->blob.cls == OBJ_CLASS_PENDING && hint != UINT64_MAX && hint > 0 && p->bytes == 0) {
        tarn_err err = decide_class(p, hint, true);
        if (err) {
            return err;
        }
    }
    while (p->flight_n >= TARN_PUT_BLOCKS_MAX - 1 && !p->err) {
        reap_oldest(p);
    }
    if (p->err) {
        return p->err;
    }
    uint64_t want = hint != UINT64_MAX && hint > p->bytes ? hint - p->bytes : TARN_BLOCK_BYTES;
    p->cur = obj_block_new(p->ctx, want < TARN_BLOCK_BYTES ? (size_t)want : TARN_BLOCK_BYTES);
    return p->cur ? TARN_OK : TARN_E_NO_MEMORY;
}

tarn_err tarn_put_reserve(tarn_put *p, uint8_t **buf, size_t *cap)
{
    if (!p->err && p->cur && p->cur->n == p->cur->cap) {
        if (p->blob.cls == OBJ_CLASS_PENDING) {
            p->err = decide_class(p, 0, false);
        } else if (p->blob.cls == OBJ_CLASS_INLINE) {
            p->err = TARN_E_INVALID; /* more bytes than were announced */
        }
        if (!p->err) {
            p->err = flush_block(p, false);
        }
    }
    if (!p->err && !p->cur) {
        p->err = next_block(p);
    }
    if (p->err) {
        return p->err;
    }
    *buf = p->cur->data + p->cur->n;
    *cap = p->cur->cap - p->cur->n;
    return TARN_OK;
}

tarn_err tarn_put_advance(tarn_put *p, size_t n)
{
    if (p->err) {
        return p->err;
    }
    TARN_ASSERT(p->cur && n <= p->cur->cap - p->cur->n);
    p->cur->n += n;
    p->bytes += n;
    uint64_t max = p->spec.size_hint != UINT64_MAX ? p->spec.size_hint : TARN_PUT_BYTES_MAX;
    if (p->bytes > max) {
        p->err = p->spec.size_hint != UINT64_MAX ? TARN_E_INVALID : TARN_E_ENTITY_TOO_LARGE;
        return p->err;
    }
    obj_digest_grow(&p->digest, p->cur, false);
    return TARN_OK;
}

tarn_err tarn_put_write(tarn_put *p, const void *data, size_t n)
{
    const uint8_t *from = data;
    while (n > 0) {
        uint8_t *buf = NULL;
        size_t cap = 0;
        tarn_err err = tarn_put_reserve(p, &buf, &cap);
        if (err) {
            return err;
        }
        size_t run = n < cap ? n : cap;
        memcpy(buf, from, run);
        err = tarn_put_advance(p, run);
        if (err) {
            return err;
        }
        from += run;
        n -= run;
    }
    return TARN_OK;
}

uint64_t tarn_put_bytes(const tarn_put *p)
{
    return p->bytes;
}

tarn_err tarn_put_expect_checksum(tarn_put *p, tarn_sum_kind kind, const uint8_t *value)
{
    if (kind != p->sum_kind) {
        return TARN_E_INVALID_ARGUMENT;
    }
    memcpy(p->expected_sum, value, tarn_sum_bytes(kind));
    p->has_expected_sum = true;
    return TARN_OK;
}

/* Only the bytes that are still in memory can be hashed now; a caller that comes later than the first block is refused. */
void tarn_put_expect_sha256(tarn_put *p, const uint8_t sha256[TARN_SHA256_BYTES])
{
    memcpy(p->expected_sha, sha256, TARN_SHA256_BYTES);
    p->has_expected_sha = true;
    if (obj_digest_sum(&p->digest, TARN_SUM_SHA256) || p->err) {
        return;
    }
    if (p->blocks > 0 || p->digest.sums_n >= TARN_ARRAY_LEN(p->digest.sums)) {
        p->err = TARN_E_INVALID;
        return;
    }
    tarn_sum *sum = &p->digest.sums[p->digest.sums_n];
    p->err = tarn_sum_begin(sum, TARN_SUM_SHA256);
    if (!p->err) {
        p->digest.sums_n++;
        if (p->cur) {
            tarn_sum_update(sum, p->cur->data, p->digest.sums_done); /* what the others have seen already */
        }
    }
}

/* ------------------------------------------------------------------ durable */
/* The size was not known, and the data ended with a full block that is on its way already. */
static tarn_err write_trailers(tarn_put *p)
{
    unsigned n = shards_of(p);
    p->blob.size = p->bytes;
    size_t tail_n = obj_trailer_bytes(p->blocks);
    uint64_t off = p->blob.offset + p->blob.head_bytes + obj_record_data_bytes(&p->blob);
    flight_memory *f = tarn_calloc(1, sizeof *f);
    tarn_batch *b = tarn_batch_new(n);
    uint8_t *extra = tarn_malloc(n * tail_n);
    if (!f || !b || !extra) {
        tarn_free(f);
        tarn_free(extra);
        tarn_batch_release(b);
        return TARN_E_NO_MEMORY;
    }
    f->extra = extra;
    for (unsigned i = 0; i < n; i++) {
        if (!(p->lost & (1u << i))) {
            shard_write w = {.shard = i};
            obj_trailer_build(&p->blob, i, p->created_ms, extra + i * tail_n);
            add_write(b, &w, shard_file(p, i), extra + i * tail_n, tail_n, off);
        }
    }
    tarn_batch_on_end(b, flight_end, f);
    tarn_batch_submit(b);
    p->flight[p->flight_n++] = b;
    return TARN_OK;
}

static tarn_err flush_rest(tarn_put *p)
{
    if (p->spec.size_hint != UINT64_MAX && p->bytes != p->spec.size_hint) {
        return TARN_E_INCOMPLETE_BODY;
    }
    if (p->bytes == 0) {
        return TARN_OK;
    }
    if (p->blob.cls == OBJ_CLASS_PENDING) {
        tarn_err err = decide_class(p, p->bytes, true);
        if (err) {
            return err;
        }
    }
    if (p->blob.cls == OBJ_CLASS_INLINE) {
        obj_digest_grow(&p->digest, p->cur, true);
        return TARN_OK;
    }
    if (p->flight_n == TARN_PUT_BLOCKS_MAX) {
        reap_oldest(p);
    }
    tarn_err err = p->cur->n > 0 ? flush_block(p, true) : write_trailers(p);
    while (p->flight_n > 0) {
        reap_oldest(p);
    }
    return err ? err : p->err;
}

/* Starts the syncs of a file per shard and of the folders they were created in. *b is NULL where there is nothing to do. */
static tarn_err sync_start(tarn_put *p, tarn_batch **b, char (**paths)[TARN_PATH_BYTES_MAX])
{
    unsigned n = shards_of(p);
    *b = NULL;
    *paths = NULL;
    if (p->blob.cls != OBJ_CLASS_FILE) {
        return TARN_OK;
    }
    *paths = tarn_calloc(n, TARN_PATH_BYTES_MAX);
    *b = tarn_batch_new((size_t)n * 2);
    if (!*paths || !*b) {
        return TARN_E_NO_MEMORY;
    }
    for (unsigned i = 0; i < n; i++) {
        obj_drive *d = obj_drive_at(p->s, p->blob.set, obj_blob_drive(&p->blob, i, p->s->n));
        if ((p->lost & (1u << i)) || !obj_path_blob_dir(d, &p->blob, (*paths)[i])) {
            continue;
        }
        *tarn_batch_add(*b) = (tarn_op){.code = TARN_OP_SYNC, .file = p->files[i], .ctx = (void *)(uintptr_t)i};
        *tarn_batch_add(*b) = (tarn_op){.code = TARN_OP_SYNC_DIR, .fs = p->s->fs, .path = (*paths)[i], .ctx = (void *)(uintptr_t)i};
    }
    tarn_batch_submit(*b);
    return TARN_OK;
}

static void sync_end(tarn_put *p, tarn_batch *b)
{
    if (p->blob.cls == OBJ_CLASS_SEGMENT) {
        uint16_t failed = 0;
        obj_seg_sync(p->seg, &failed);
        for (unsigned i = 0; i < shards_of(p); i++) {
            if (!(p->lost & (1u << i)) && (failed & (1u << obj_blob_drive(&p->blob, i, p->s->n)))) {
                lose_shard(p, i, "syncing", 0);
            }
        }
    }
    if (!b) {
        return;
    }
    /* Paths belong to the batch's operations: it is waited for to its end, not to a deadline. */
    (void)tarn_batch_wait(b, tarn_batch_count(b), TARN_IO_NO_TIMEOUT);
    for (size_t i = 0; i < tarn_batch_count(b); i++) {
        const tarn_op *op = tarn_batch_op(b, i);
        if (op->result < 0) {
            lose_shard(p, (unsigned)(uintptr_t)op->ctx, "syncing", (int)-op->result);
        }
    }
}

static bool sum_value(const tarn_put *p, tarn_sum_kind kind, uint8_t *out)
{
    if (kind == TARN_SUM_MD5) {
        memcpy(out, p->md5, sizeof p->md5);
        return p->digest.want_md5;
    }
    const tarn_sum *s = obj_digest_sum(&p->digest, kind);
    if (s) {
        tarn_sum_peek(s, out);
    }
    return s != NULL;
}

static void note_sum(tarn_put *p, tarn_sum_kind kind)
{
    tarn_checksum c = {.kind = kind, .type = TARN_SUM_FULL_OBJECT};
    for (size_t i = 0; i < p->part.n; i++) {
        if (p->part.sums[i].kind == kind) {
            return;
        }
    }
    if (kind != TARN_SUM_NONE && p->part.n < OBJ_PART_SUMS_MAX && sum_value(p, kind, c.value)) {
        p->part.sums[p->part.n++] = c;
    }
}

static tarn_err check_digests(tarn_put *p)
{
    obj_digest_wait(&p->digest);
    if (p->digest.want_md5) {
        tarn_md5_final(&p->digest.md5, p->md5);
    }
    if (p->spec.expect_md5 && !tarn_equal_ct(p->md5, p->spec.expect_md5, TARN_MD5_BYTES)) {
        return TARN_E_BAD_DIGEST;
    }
    const tarn_sum *sha = obj_digest_sum(&p->digest, TARN_SUM_SHA256);
    if (sha) {
        uint8_t value[TARN_DIGEST_BYTES_MAX];
        tarn_sum_peek(sha, value);
        memcpy(p->sha256, value, TARN_SHA256_BYTES);
    }
    if ((p->spec.expect_sha256 && !tarn_equal_ct(p->sha256, p->spec.expect_sha256, TARN_SHA256_BYTES)) ||
        (p->has_expected_sha && !tarn_equal_ct(p->sha256, p->expected_sha, TARN_SHA256_BYTES))) {
        return TARN_E_CONTENT_SHA256_MISMATCH;
    }
    p->checksum = (tarn_checksum){.kind = p->sum_kind, .type = TARN_SUM_FULL_OBJECT};
    if (!sum_value(p, p->sum_kind, p->checksum.value)) {
        return TARN_E_INTERNAL;
    }
    if (p->has_expected_sum && !tarn_equal_ct(p->checksum.value, p->expected_sum, tarn_sum_bytes(p->sum_kind))) {
        return TARN_E_BAD_DIGEST;
    }
    return TARN_OK;
}

static tarn_err pack_etag_attrs(tarn_put *p)
{
    char hex[2 * TARN_MD5_BYTES + 1];
    tarn_sb b;
    tarn_sb_init_fixed(&b, hex, sizeof hex);
    tarn_sb_hex(&b, p->md5, TARN_MD5_BYTES);
    p->etag = tarn_arena_str(p->arena, p->spec.etag_override.n > 0 ? p->spec.etag_override : tarn_sb_view(&b));
    if (!p->etag.p) {
        return TARN_E_NO_MEMORY;
    }
    if (p->spec.is_part) {
        note_sum(p, p->sum_kind);
        note_sum(p, p->upload_kind);
        note_sum(p, TARN_SUM_CRC64NVME);
        p->part.repair = p->lost != 0 && p->layout.n > 0;
        return obj_part_attrs_pack(&p->part, p->arena, &p->attrs);
    }
    tarn_attrs a = p->spec.attrs;
    a.checksum = p->checksum;
    return tarn_attrs_pack(&a, p->arena, &p->attrs);
}

static tarn_err pack_layout(tarn_put *p)
{
    tarn_sb b;
    tarn_err err = TARN_OK;
    p->layout = TARN_STR("");
    if (p->bytes == 0 || p->blob.cls == OBJ_CLASS_INLINE) {
        return TARN_OK;
    }
    p->blob.missing = p->lost;
    tarn_sb_init(&b, TARN_LAYOUT_BYTES_MAX);
    err = obj_blob_pack(&p->blob, &b);
    if (!err) {
        p->layout = tarn_arena_str(p->arena, tarn_sb_view(&b));
        err = p->layout.p ? TARN_OK : TARN_E_NO_MEMORY;
    }
    tarn_sb_free(&b);
    return err;
}

tarn_err tarn_put_prepare(tarn_put *p)
{
    tarn_batch *sync = NULL;
    char(*paths)[TARN_PATH_BYTES_MAX] = NULL;
    tarn_err err = p->err ? p->err : flush_rest(p);
    if (!err) {
        err = sync_start(p, &sync, &paths);
        tarn_err digests = err ? TARN_OK : check_digests(p); /* while the drives sync */
        if (!err) {
            sync_end(p, sync);
            err = digests ? digests : p->err;
        }
        tarn_batch_release(sync);
        tarn_free(paths);
    }
    if (!err) {
        err = pack_layout(p);
    }
    if (!err) {
        err = pack_etag_attrs(p);
    }
    p->err = err;
    p->prepared = err == TARN_OK;
    return err;
}

/* ------------------------------------------------------------------ visible */
static tarn_err apply_part(tarn_put *p, tarn_meta_tx *tx, tarn_put_result *out)
{
    tarn_meta *m = p->s->meta;
    tarn_arena *a = tarn_meta_tx_arena(tx);
    tarn_upload_row upload;
    tarn_part_row old;
    tarn_err err = tarn_meta_upload_get(m, tx, p->spec.bucket->id, p->spec.key, p->spec.upload_id, p->upload_nonce, a, &upload);
    if (err) {
        return err;
    }
    err = tarn_meta_part_get(m, tx, p->spec.upload_id, p->spec.part_number, a, &old);
    if (err == TARN_OK) {
        err = obj_drop_part(tx, &old);
    } else if (err == TARN_E_INVALID_PART) {
        err = TARN_OK;
    }
    bool in_row = p->blob.cls == OBJ_CLASS_INLINE;
    if (!err && in_row) {
        err = tarn_meta_inline_put(tx, p->blob.blob_id, (tarn_str){(const char *)p->cur->data, p->cur->n});
    }
    if (err) {
        return err;
    }
    tarn_part_row row = {.data_id = p->spec.upload_id,
                         .number = p->spec.part_number,
                         .size = p->bytes,
                         .mtime_ms = tarn_meta_tx_now_ms(tx),
                         .etag = p->etag,
                         .attrs = p->attrs,
                         .layout = p->layout,
                         .blob_id = in_row ? p->blob.blob_id : 0};
    err = tarn_meta_part_put(tx, &row);
    out->row = (tarn_version_row){.bucket_id = p->spec.bucket->id,
                                  .key = p->spec.key,
                                  .size = p->bytes,
                                  .mtime_ms = row.mtime_ms,
                                  .etag = p->etag,
                                  .data_id = p->spec.upload_id,
                                  .attrs = p->attrs};
    return err;
}

static tarn_err apply_object(tarn_put *p, tarn_meta_tx *tx, tarn_put_result *out)
{
    bool in_row = p->bytes > 0 && p->blob.cls == OBJ_CLASS_INLINE;
    obj_apply apply = {.store = p->s, .conditions = &p->spec.conditions, .repair = p->blob.missing};
    tarn_version_row row = {.bucket_id = p->spec.bucket->id,
                            .key = p->spec.key,
                            .size = p->bytes,
                            .etag = p->etag,
                            .data_id = p->bytes > 0 ? p->blob.data_id : 0,
                            .inline_data = in_row,
                            .layout = p->layout,
                            .attrs = p->attrs,
                            .tags = p->spec.tags,
                            .tags_n = p->spec.tags_n,
                            .retention = p->spec.retention,
                            .retain_until_ms = p->spec.retain_until_ms,
                            .legal_hold = p->spec.legal_hold,
                            .current = true};
    tarn_err err = obj_version_apply(&apply, tx, p->spec.bucket, &row);
    if (!err && in_row) {
        err = tarn_meta_inline_put(tx, row.data_id, (tarn_str){(const char *)p->cur->data, p->cur->n});
    }
    if (!err) {
        out->row = row;
    }
    return err;
}

tarn_err tarn_put_apply(tarn_put *p, tarn_meta_tx *tx, tarn_put_result *out)
{
    TARN_ASSERT(p->prepared);
    *out = (tarn_put_result){.checksum = p->checksum};
    memcpy(out->md5, p->md5, sizeof p->md5);
    memcpy(out->sha256, p->sha256, sizeof p->sha256);
    tarn_err err = p->spec.is_part ? apply_part(p, tx, out) : apply_object(p, tx, out);
    p->applied = err == TARN_OK;
    return err;
}

/* ------------------------------------------------------------------ the end */
static void unlink_files(tarn_put *p)
{
    char path[TARN_PATH_BYTES_MAX];
    for (unsigned i = 0; i < shards_of(p); i++) {
        obj_drive *d = obj_drive_at(p->s, p->blob.set, obj_blob_drive(&p->blob, i, p->s->n));
        if (p->files[i] && obj_drive_writable(d) && obj_path_blob(d, &p->blob, path)) {
            (void)tarn_fs_unlink(p->s->fs, path); /* the sweeper finds what stays */
        }
    }
}

static void punch_record(tarn_put *p)
{
    tarn_batch *b = tarn_batch_new(shards_of(p));
    if (!b) {
        return;
    }
    for (unsigned i = 0; i < shards_of(p); i++) {
        tarn_file *f = shard_file(p, i);
        if (f) {
            *tarn_batch_add(b) = (tarn_op){.code = TARN_OP_PUNCH, .file = f, .off = p->blob.offset, .len = p->record_bytes};
        }
    }
    tarn_batch_submit(b);
    tarn_batch_release(b);
}

static void put_free(tarn_put *p, bool drop_data)
{
    while (p->flight_n > 0) {
        reap_oldest(p);
    }
    if (p->digest_on) {
        obj_digest_end(&p->digest);
    }
    if (drop_data && p->blob.cls == OBJ_CLASS_FILE) {
        unlink_files(p);
    }
    if (drop_data && p->seg) {
        punch_record(p);
    }
    for (unsigned i = 0; i < TARN_SET_DRIVES_MAX; i++) {
        tarn_file_unref(p->files[i]);
    }
    if (p->seg) {
        obj_seg_unref(p->seg);
    }
    if (p->pinned) {
        obj_pin_drop(p->s, p->blob.data_id);
    }
    obj_block_unref(p->cur);
    tarn_sb_free(&p->header);
    tarn_sb_free(&p->sums);
    tarn_wipe(p->expected_sha, sizeof p->expected_sha);
    tarn_free(p);
}

void tarn_put_done(tarn_put *p, bool committed)
{
    /* A transaction that took apply() and then failed may yet have reached the drives: see invariant 4. */
    put_free(p, !committed && !p->applied);
}

void tarn_put_abort(tarn_put *p)
{
    if (p) {
        put_free(p, !p->applied);
    }
}

typedef struct finish_arg {
    tarn_put *p;
    tarn_put_result *out;
} finish_arg;

static tarn_err finish_fn(tarn_meta_tx *tx, void *arg)
{
    finish_arg *f = arg;
    return tarn_put_apply(f->p, tx, f->out);
}

tarn_err tarn_put_finish(tarn_put *p, tarn_put_result *out)
{
    tarn_put_result result;
    finish_arg arg = {p, &result};
    tarn_err err = tarn_put_prepare(p);
    if (!err) {
        err = tarn_meta_commit(p->s->meta, finish_fn, &arg);
    }
    if (!err) {
        *out = result;
    }
    tarn_put_done(p, err == TARN_OK);
    return err;
}
