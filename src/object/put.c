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
#include "put.h"

#include <string.h>

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
unsigned obj_set_of(const tarn_store *s, tarn_str bucket, tarn_str key)
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
    p->epoch = atomic_load(&s->epoch);
    p->blob = (obj_blob){.set = (uint8_t)obj_set_of(s, spec->bucket->name, spec->key),
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
                            .legal_hold = p->spec.legal_hold,
                            .sum_kind = (uint8_t)p->spec.attrs.checksum.kind,
                            .bucket_flags = obj_bucket_flags(p->spec.bucket)};
    size_t first = p->blob.cls == OBJ_CLASS_FILE ? TARN_BLOCK_BYTES : obj_block_len(&p->blob, 0);
    size_t align = obj_shard_len(first, p->blob.k) > OBJ_STAGE_BYTES_MAX ? OBJ_PAGE_BYTES : OBJ_SHARD_ALIGN;
    a.checksum = (tarn_checksum){0}; /* not known yet; it can be computed from the data */
    tarn_err err = tarn_attrs_pack(&a, p->arena, &info.attrs);
    if (err) {
        return err;
    }
    p->blob.head_bytes = (uint32_t)obj_header_bytes(&p->blob, &info, align);
    if (p->blob.cls == OBJ_CLASS_SEGMENT) {
        p->record_bytes = obj_record_bytes(&p->blob);
        err = obj_seg_reserve(p->ctx, p->blob.set, p->record_bytes, &p->seg, &p->blob.offset);
        if (err) {
            return err;
        }
        p->blob.segment = p->seg->id;
    }
    return obj_header_build(p->s->deployment_raw, &p->blob, &info, align, &p->header);
}

static uint64_t inline_max(const tarn_put *p)
{
    uint64_t asked = p->spec.inline_bytes_max < TARN_INLINE_BYTES_MAX ? p->spec.inline_bytes_max : TARN_INLINE_BYTES_MAX;
    return asked > p->s->inline_max ? asked : p->s->inline_max;
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
    if (exact && size <= inline_max(p)) {
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
    p->digest.at_sync = b->cls == OBJ_CLASS_SEGMENT && size <= TARN_BLOCK_BYTES && p->bytes == 0;
    err = build_header(p, exact ? size : UINT64_MAX);
    if (!err && b->cls == OBJ_CLASS_SEGMENT) {
        obj_put_take_segment(p);
        err = p->err;
    }
    if (!err && b->cls == OBJ_CLASS_FILE) {
        err = obj_put_open_files(p);
    }
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
        obj_put_reap(p);
    }
    if (p->err) {
        return p->err;
    }
    uint64_t want = hint != UINT64_MAX && hint > p->bytes ? hint - p->bytes : TARN_BLOCK_BYTES;
    p->cur = obj_block_new(p->ctx, want < TARN_BLOCK_BYTES ? (size_t)want : TARN_BLOCK_BYTES);
    if (!p->cur) {
        return TARN_E_NO_MEMORY;
    }
    if (p->s->k == 1 && p->blocks == 0) { /* header and data go out in one write, without a copy */
        obj_block_follow(p->cur, p->blob.head_bytes);
    }
    return TARN_OK;
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
            p->err = obj_put_flush(p, false);
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
    p->err = p->blocks > 0 ? TARN_E_INVALID : obj_digest_add_sha256(&p->digest, p->cur);
}

/* ------------------------------------------------------------------ durable */
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
        obj_digest_small(&p->digest, p->cur);
        return TARN_OK;
    }
    if (p->flight_n == TARN_PUT_BLOCKS_MAX) {
        obj_put_reap(p);
    }
    tarn_err err = p->cur->n > 0 ? obj_put_flush(p, true) : obj_put_trailers(p);
    if (p->seg) {
        obj_seg_coming(p->seg);
    }
    while (p->flight_n > 0) {
        obj_put_reap(p);
    }
    if (p->seg) {
        obj_seg_came(p->seg);
    }
    return err ? err : p->err;
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
    if (p->digest.want_md5) {
        obj_digest_md5(&p->digest, p->md5);
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
    tarn_err err = p->err ? p->err : flush_rest(p);
    if (!err) {
        err = obj_put_sync_start(p, &sync);
        /* A file's digest ends while the drives sync. Records of one segment are synced together, and hashed together then. */
        tarn_err digests = err || p->blob.cls == OBJ_CLASS_SEGMENT ? TARN_OK : check_digests(p);
        if (!err) {
            obj_put_sync_end(p, sync);
            obj_put_check_drives(p);
            err = digests ? digests : p->err;
        }
        if (!err && p->blob.cls == OBJ_CLASS_SEGMENT) {
            err = check_digests(p);
        }
        tarn_batch_release(sync);
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
static void put_free(tarn_put *p, bool drop_data)
{
    while (p->flight_n > 0) {
        obj_put_reap(p);
    }
    if (p->digest_on) {
        obj_digest_end(&p->digest);
    }
    if (drop_data && p->blob.cls == OBJ_CLASS_FILE) {
        obj_put_unlink(p);
    }
    if (drop_data && p->seg) {
        obj_put_punch(p);
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
