/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The forms in which the object module writes down where data lies: the packed layout in the rows, and the header and
 * trailer of a record on a drive. docs/on-disk-format.md describes them byte by byte.
 *
 * Invariants:
 *  1. A layout holds blocks * (k + m) checksums, none for an empty blob (an empty blob has no layout at all).
 *  2. The checksum of a shard block covers who it is (blob, block, shard, length), then its bytes: a block that was
 *     written to or read from a wrong place fails.
 * Memory: unpacked slices point into the packed bytes. Threads: any; nothing is kept.
 */
#include "private.h"

#include <string.h>

#define LAYOUT_VERSION 1
#define HEADER_VERSION 1
#define HEADER_FIXED_BYTES 128
#define TRAILER_FIXED_BYTES 40
#define CRC_BYTES 8
#define HEADER_SHARD_OFFSET 60
#define HEADER_LENGTH_OFFSET 12
#define HEADER_VAR_OFFSET 104

static const char header_magic[8] = {'T', 'A', 'R', 'N', 'S', 'H', 'R', 'D'};
static const char trailer_magic[8] = {'T', 'A', 'R', 'N', 'T', 'A', 'I', 'L'};

/* ------------------------------------------------------------------ sizes */
uint64_t obj_blob_blocks(const obj_blob *b)
{
    return (b->size + b->block_bytes - 1) / b->block_bytes;
}

size_t obj_block_len(const obj_blob *b, uint64_t block)
{
    uint64_t off = block * b->block_bytes;
    TARN_ASSERT(off < b->size);
    uint64_t left = b->size - off;
    return (size_t)(left < b->block_bytes ? left : b->block_bytes);
}

size_t obj_shard_len(size_t block_len, unsigned k)
{
    if (k == 1) {
        return block_len;
    }
    size_t n = (block_len + k - 1) / k;
    size_t align = n > OBJ_STAGE_BYTES_MAX ? OBJ_PAGE_BYTES : OBJ_SHARD_ALIGN;
    return (n + align - 1) / align * align;
}

uint64_t obj_shard_offset(const obj_blob *b, uint64_t block)
{
    return b->head_bytes + block * obj_shard_len(b->block_bytes, b->k);
}

uint64_t obj_record_data_bytes(const obj_blob *b)
{
    uint64_t blocks = obj_blob_blocks(b);
    if (blocks == 0) {
        return 0;
    }
    return (blocks - 1) * obj_shard_len(b->block_bytes, b->k) + obj_shard_len(obj_block_len(b, blocks - 1), b->k);
}

uint64_t obj_record_bytes(const obj_blob *b)
{
    uint64_t n = b->head_bytes + obj_record_data_bytes(b) + obj_trailer_bytes(obj_blob_blocks(b));
    return (n + OBJ_PAGE_BYTES - 1) / OBJ_PAGE_BYTES * OBJ_PAGE_BYTES;
}

unsigned obj_blob_drive(const obj_blob *b, unsigned shard, unsigned set_drives)
{
    return (b->rot + shard) % set_drives;
}

/* ------------------------------------------------------------------ checksums */
static uint64_t le64_at(const char *p)
{
    tarn_rd r = tarn_rd_of((tarn_str){p, 8});
    return tarn_rd_le64(&r);
}

static void le64_to(uint8_t *p, uint64_t v)
{
    for (unsigned i = 0; i < 8; i++) {
        p[i] = (uint8_t)(v >> (8 * i));
    }
}

static void le32_to(uint8_t *p, uint32_t v)
{
    for (unsigned i = 0; i < 4; i++) {
        p[i] = (uint8_t)(v >> (8 * i));
    }
}

static uint32_t le32_of(const uint8_t *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

uint64_t obj_shard_sum(uint64_t blob_id, uint64_t block, unsigned shard, const void *p, size_t n)
{
    uint8_t who[32];
    le64_to(who, blob_id);
    le64_to(who + 8, block);
    le64_to(who + 16, shard);
    le64_to(who + 24, n);
    return tarn_crc64(tarn_crc64(0, who, sizeof who), p, n);
}

uint64_t obj_blob_sum(const obj_blob *b, uint64_t block, unsigned shard)
{
    uint64_t i = block * (uint64_t)(b->k + b->m) + shard;
    TARN_ASSERT((i + 1) * CRC_BYTES <= b->sums.n);
    return le64_at(b->sums.p + i * CRC_BYTES);
}

/* ------------------------------------------------------------------ the layout in a row */
tarn_err obj_blob_pack(const obj_blob *b, tarn_sb *out)
{
    TARN_ASSERT(b->sums.n == obj_blob_blocks(b) * (uint64_t)(b->k + b->m) * CRC_BYTES);
    tarn_sb_char(out, LAYOUT_VERSION);
    tarn_sb_char(out, (char)b->cls);
    tarn_sb_char(out, (char)b->set);
    tarn_sb_char(out, (char)b->k);
    tarn_sb_char(out, (char)b->m);
    tarn_sb_char(out, (char)b->rot);
    tarn_sb_le16(out, b->missing);
    tarn_sb_le32(out, b->block_bytes);
    tarn_sb_le32(out, b->head_bytes);
    tarn_sb_le64(out, b->size);
    tarn_sb_le64(out, b->data_id);
    tarn_sb_le64(out, b->blob_id);
    tarn_sb_le32(out, b->part);
    tarn_sb_le64(out, b->segment);
    tarn_sb_le64(out, b->offset);
    tarn_sb_bytes(out, b->sums.p, b->sums.n);
    return tarn_sb_err(out);
}

/* Everything that later arithmetic relies on. */
static bool blob_valid(const obj_blob *b)
{
    if ((b->cls != OBJ_CLASS_SEGMENT && b->cls != OBJ_CLASS_FILE) || b->k < 1 || b->k + b->m > TARN_SET_DRIVES_MAX) {
        return false;
    }
    if (b->block_bytes < OBJ_PAGE_BYTES || b->block_bytes > TARN_BLOCK_BYTES || b->size == 0 || b->size > TARN_PUT_BYTES_MAX ||
        b->head_bytes > OBJ_HEADER_BYTES_MAX || b->set >= TARN_SETS_MAX || b->part > TARN_PARTS_MAX) {
        return false;
    }
    return b->sums.n == obj_blob_blocks(b) * (uint64_t)(b->k + b->m) * CRC_BYTES;
}

tarn_err obj_blob_unpack(tarn_str packed, obj_blob *out)
{
    obj_blob b = {0};
    tarn_rd r = tarn_rd_of(packed);
    uint8_t version = tarn_rd_u8(&r);
    b.cls = (obj_class)tarn_rd_u8(&r);
    b.set = tarn_rd_u8(&r);
    b.k = tarn_rd_u8(&r);
    b.m = tarn_rd_u8(&r);
    b.rot = tarn_rd_u8(&r);
    b.missing = tarn_rd_le16(&r);
    b.block_bytes = tarn_rd_le32(&r);
    b.head_bytes = tarn_rd_le32(&r);
    b.size = tarn_rd_le64(&r);
    b.data_id = tarn_rd_le64(&r);
    b.blob_id = tarn_rd_le64(&r);
    b.part = tarn_rd_le32(&r);
    b.segment = tarn_rd_le64(&r);
    b.offset = tarn_rd_le64(&r);
    b.sums = tarn_rd_bytes(&r, r.n);
    if (r.failed || version != LAYOUT_VERSION || !blob_valid(&b)) {
        return TARN_E_FORMAT;
    }
    *out = b;
    return TARN_OK;
}

obj_class obj_layout_class(tarn_str packed)
{
    if (packed.n < 2 || packed.p[0] != LAYOUT_VERSION || packed.p[1] < OBJ_CLASS_INLINE || packed.p[1] > OBJ_CLASS_MULTIPART) {
        return OBJ_CLASS_PENDING;
    }
    return (obj_class)packed.p[1];
}

tarn_err obj_spans_pack(const obj_span *spans, size_t n, uint64_t upload_nonce, tarn_arena *a, tarn_str *out)
{
    tarn_sb b;
    tarn_err err = TARN_OK;
    tarn_sb_init(&b, TARN_LAYOUT_BYTES_MAX);
    tarn_sb_char(&b, LAYOUT_VERSION);
    tarn_sb_char(&b, OBJ_CLASS_MULTIPART);
    tarn_sb_le64(&b, upload_nonce);
    tarn_sb_varint(&b, n);
    for (size_t i = 0; i < n; i++) {
        tarn_sb_varint(&b, spans[i].number);
        tarn_sb_varint(&b, spans[i].size);
    }
    tarn_str s = b.failed ? TARN_STR_NULL : tarn_arena_str(a, tarn_sb_view(&b));
    if (s.p) {
        *out = s;
    } else {
        err = TARN_E_NO_MEMORY;
    }
    tarn_sb_free(&b);
    return err;
}

tarn_err obj_spans_unpack(tarn_str packed, tarn_arena *a, obj_span **out, size_t *n, uint64_t *upload_nonce)
{
    tarn_rd r = tarn_rd_of(packed);
    if (obj_layout_class(packed) != OBJ_CLASS_MULTIPART) {
        return TARN_E_FORMAT;
    }
    (void)tarn_rd_le16(&r);
    uint64_t nonce = tarn_rd_le64(&r);
    uint64_t count = tarn_rd_varint(&r);
    if (r.failed || count < 1 || count > TARN_PARTS_MAX) {
        return TARN_E_FORMAT;
    }
    obj_span *spans = TARN_ARENA_ARRAY(a, obj_span, count);
    if (!spans) {
        return TARN_E_NO_MEMORY;
    }
    for (size_t i = 0; i < count; i++) {
        spans[i].number = (uint32_t)tarn_rd_varint(&r);
        spans[i].size = tarn_rd_varint(&r);
        if (spans[i].size > TARN_PUT_BYTES_MAX || spans[i].number < 1 || spans[i].number > TARN_PARTS_MAX) {
            return TARN_E_FORMAT;
        }
    }
    if (r.failed || r.n != 0) {
        return TARN_E_FORMAT;
    }
    *out = spans;
    *n = count;
    *upload_nonce = nonce;
    return TARN_OK;
}

/* ------------------------------------------------------------------ header and trailer of a record */
static void header_variable(tarn_sb *b, const obj_record_info *i)
{
    tarn_sb_lstr(b, i->bucket);
    tarn_sb_lstr(b, i->key);
    tarn_sb_lstr(b, i->attrs);
    tarn_sb_lstr(b, i->tags);
    tarn_sb_lstr(b, i->etag);
    tarn_sb_le32(b, i->tags_n);
    tarn_sb_char(b, (char)i->retention);
    tarn_sb_le64(b, (uint64_t)i->retain_until_ms);
    tarn_sb_char(b, i->legal_hold ? 1 : 0);
}

static size_t varint_bytes(size_t v)
{
    size_t n = 1;
    while (v >= 128) {
        v >>= 7;
        n++;
    }
    return n;
}

static size_t lstr_bytes(tarn_str s)
{
    return varint_bytes(s.n) + s.n;
}

static size_t variable_bytes(const obj_record_info *i)
{
    return lstr_bytes(i->bucket) + lstr_bytes(i->key) + lstr_bytes(i->attrs) + lstr_bytes(i->tags) + lstr_bytes(i->etag) + 4 + 1 + 8 + 1;
}

uint8_t obj_bucket_flags(const tarn_bucket_row *bucket)
{
    unsigned flags = (unsigned)bucket->versioning & OBJ_BUCKET_VERSIONING_MASK;
    flags |= bucket->object_lock ? OBJ_BUCKET_LOCK : 0;
    flags |= bucket->warehouse ? OBJ_BUCKET_WAREHOUSE : 0;
    return (uint8_t)flags;
}

size_t obj_header_bytes(const obj_blob *b, const obj_record_info *info, size_t align)
{
    (void)b;
    size_t n = HEADER_FIXED_BYTES + variable_bytes(info) + CRC_BYTES;
    return (n + align - 1) / align * align;
}

tarn_err obj_header_build(const uint8_t deployment[16], const obj_blob *b, const obj_record_info *info, size_t align, tarn_sb *out)
{
    size_t start = out->n;
    size_t total = obj_header_bytes(b, info, align);
    tarn_sb_bytes(out, header_magic, sizeof header_magic);
    tarn_sb_le16(out, HEADER_VERSION);
    tarn_sb_le16(out, (uint16_t)b->cls);
    tarn_sb_le32(out, (uint32_t)total);
    tarn_sb_le64(out, 0);
    tarn_sb_bytes(out, deployment, 16);
    tarn_sb_le64(out, b->data_id);
    tarn_sb_le64(out, b->blob_id);
    tarn_sb_le32(out, b->part);
    tarn_sb_char(out, 0); /* the shard: see stamp */
    tarn_sb_char(out, (char)b->k);
    tarn_sb_char(out, (char)b->m);
    tarn_sb_char(out, (char)b->set);
    tarn_sb_le32(out, b->block_bytes);
    tarn_sb_char(out, (char)b->rot);
    tarn_sb_char(out, (char)info->sum_kind);
    tarn_sb_char(out, (char)info->bucket_flags);
    tarn_sb_char(out, 0);
    tarn_sb_le64(out, info->size_hint);
    tarn_sb_le64(out, info->upload_nonce);
    tarn_sb_le64(out, (uint64_t)info->created_ms);
    tarn_sb_le64(out, info->bucket_id);
    tarn_sb_le32(out, (uint32_t)variable_bytes(info));
    tarn_sb_le32(out, 0);
    tarn_sb_le64(out, b->segment);
    tarn_sb_le64(out, b->offset);
    TARN_ASSERT(out->failed || out->n - start == HEADER_FIXED_BYTES);
    header_variable(out, info);
    while (!out->failed && out->n - start < total) {
        tarn_sb_char(out, 0);
    }
    if (out->failed || total > OBJ_HEADER_BYTES_MAX) {
        return out->failed ? tarn_sb_err(out) : TARN_E_LIMIT;
    }
    obj_header_stamp((uint8_t *)out->p + start, total, 0);
    return TARN_OK;
}

/* Where the header's checksum lies: right behind the variable part. 0 when the header can't be one. */
static size_t header_crc_offset(const uint8_t *h, size_t n)
{
    if (n < HEADER_FIXED_BYTES + CRC_BYTES || memcmp(h, header_magic, sizeof header_magic) != 0) {
        return 0;
    }
    size_t var = le32_of(h + HEADER_VAR_OFFSET);
    return var > n - HEADER_FIXED_BYTES - CRC_BYTES ? 0 : HEADER_FIXED_BYTES + var;
}

void obj_header_stamp(uint8_t *header, size_t n, unsigned shard)
{
    size_t at = header_crc_offset(header, n);
    TARN_ASSERT(at != 0);
    header[HEADER_SHARD_OFFSET] = (uint8_t)shard;
    le64_to(header + at, tarn_crc64(0, header, at));
}

bool obj_header_matches(const uint8_t *header, size_t n, const obj_blob *b, unsigned shard)
{
    size_t at = header_crc_offset(header, n);
    if (at == 0 || le32_of(header + HEADER_LENGTH_OFFSET) != b->head_bytes) {
        return false;
    }
    const char *h = (const char *)header;
    return le64_at(h + at) == tarn_crc64(0, header, at) && header[HEADER_SHARD_OFFSET] == shard && le64_at(h + 48) == b->blob_id &&
           le64_at(h + 40) == b->data_id;
}

size_t obj_trailer_bytes(uint64_t blocks)
{
    return TRAILER_FIXED_BYTES + (size_t)blocks * CRC_BYTES + CRC_BYTES;
}

void obj_trailer_build(const obj_blob *b, unsigned shard, int64_t mtime_ms, uint8_t *out)
{
    uint64_t blocks = obj_blob_blocks(b);
    memcpy(out, trailer_magic, sizeof trailer_magic);
    le64_to(out + 8, b->blob_id);
    le64_to(out + 16, b->size);
    le64_to(out + 24, (uint64_t)mtime_ms);
    le32_to(out + 32, (uint32_t)blocks);
    le32_to(out + 36, shard);
    uint8_t *p = out + TRAILER_FIXED_BYTES;
    for (uint64_t i = 0; i < blocks; i++, p += CRC_BYTES) {
        le64_to(p, obj_blob_sum(b, i, shard));
    }
    le64_to(p, tarn_crc64(0, out, (size_t)(p - out)));
}
