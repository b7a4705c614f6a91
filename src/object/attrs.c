/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attributes, tags and part attributes as packed records; version and upload ids as text.
 *
 * A packed attribute record: version byte, then fields, each a field number (varint) and a length-prefixed value; fields
 * that are empty are left out, unknown ones are skipped, so that a newer version's record stays readable.
 * Memory: what is unpacked points into the packed bytes; arrays are in the arena. Threads: any.
 */
#include "private.h"

#include <string.h>

#define ATTRS_VERSION 1
#define TAGS_VERSION 1
#define PART_ATTRS_VERSION 1
#define USER_META_MAX 2048 /* pairs; every pair has at least one byte of name */

enum { /* on disk */
       F_CONTENT_TYPE = 1,
       F_CONTENT_ENCODING = 2,
       F_CONTENT_LANGUAGE = 3,
       F_CONTENT_DISPOSITION = 4,
       F_CACHE_CONTROL = 5,
       F_EXPIRES = 6,
       F_WEBSITE_REDIRECT = 7,
       F_STORAGE_CLASS = 8,
       F_SSE = 9,
       F_USER_META = 10, /* repeated */
       F_CHECKSUM = 11,
       F_TAGS = 12,
       F_LOCK = 13,
       F_ORIGIN = 14
};

static void put_field(tarn_sb *b, uint64_t field, tarn_str value)
{
    if (value.n > 0) {
        tarn_sb_varint(b, field);
        tarn_sb_lstr(b, value);
    }
}

/* The end of every pack: the builder's bytes move to the arena. */
static tarn_err pack_end(tarn_sb *b, tarn_arena *arena, tarn_str *out)
{
    tarn_err err = tarn_sb_err(b);
    if (!err) {
        tarn_str s = tarn_arena_str(arena, tarn_sb_view(b));
        if (s.p) {
            *out = s;
        } else {
            err = TARN_E_NO_MEMORY;
        }
    }
    tarn_sb_free(b);
    return err;
}

static void pack_checksum(tarn_sb *b, const tarn_checksum *c)
{
    tarn_sb_char(b, (char)c->kind);
    tarn_sb_char(b, (char)c->type);
    tarn_sb_varint(b, c->parts_n);
    tarn_sb_lstr(b, (tarn_str){(const char *)c->value, tarn_sum_bytes(c->kind)});
}

static tarn_err unpack_checksum(tarn_rd *r, tarn_checksum *out)
{
    tarn_checksum c = {0};
    uint8_t kind = tarn_rd_u8(r);
    uint8_t type = tarn_rd_u8(r);
    uint64_t parts_n = tarn_rd_varint(r);
    tarn_str value = tarn_rd_lstr(r);
    if (r->failed || kind == TARN_SUM_NONE || kind >= TARN_SUM_KIND_COUNT || type > TARN_SUM_COMPOSITE || parts_n > TARN_PARTS_MAX) {
        return TARN_E_FORMAT;
    }
    c.kind = (tarn_sum_kind)kind;
    c.type = (tarn_sum_type)type;
    c.parts_n = (uint32_t)parts_n;
    if (value.n != tarn_sum_bytes(c.kind)) {
        return TARN_E_FORMAT;
    }
    memcpy(c.value, value.p, value.n);
    *out = c;
    return TARN_OK;
}

/* A field whose value is a record of its own, made with a small builder. */
static void put_checksum(tarn_sb *b, const tarn_checksum *c)
{
    char mem[64];
    tarn_sb v;
    if (c->kind == TARN_SUM_NONE) {
        return;
    }
    tarn_sb_init_fixed(&v, mem, sizeof mem);
    pack_checksum(&v, c);
    put_field(b, F_CHECKSUM, tarn_sb_view(&v));
}

static void put_lock(tarn_sb *b, const tarn_attrs *a)
{
    char mem[32];
    tarn_sb v;
    if (a->retention == TARN_RETENTION_NONE && !a->legal_hold) {
        return;
    }
    tarn_sb_init_fixed(&v, mem, sizeof mem);
    tarn_sb_char(&v, (char)a->retention);
    tarn_sb_le64(&v, (uint64_t)a->retain_until_ms);
    tarn_sb_char(&v, a->legal_hold ? 1 : 0);
    put_field(b, F_LOCK, tarn_sb_view(&v));
}

static void put_user_meta(tarn_sb *b, const tarn_attrs *a)
{
    for (size_t i = 0; i < a->user_meta_n; i++) {
        tarn_sb v;
        tarn_sb_init(&v, TARN_ATTRS_BYTES_MAX);
        tarn_sb_lstr(&v, a->user_meta[i].name);
        tarn_sb_lstr(&v, a->user_meta[i].value);
        if (v.failed) {
            b->failed = true;
            b->no_memory = v.no_memory;
        }
        put_field(b, F_USER_META, tarn_sb_view(&v));
        tarn_sb_free(&v);
    }
}

tarn_err tarn_attrs_pack(const tarn_attrs *a, tarn_arena *arena, tarn_str *out)
{
    tarn_sb b;
    if (a->user_meta_n > USER_META_MAX) {
        return TARN_E_LIMIT;
    }
    tarn_sb_init(&b, TARN_ATTRS_BYTES_MAX);
    tarn_sb_char(&b, ATTRS_VERSION);
    put_field(&b, F_CONTENT_TYPE, a->content_type);
    put_field(&b, F_CONTENT_ENCODING, a->content_encoding);
    put_field(&b, F_CONTENT_LANGUAGE, a->content_language);
    put_field(&b, F_CONTENT_DISPOSITION, a->content_disposition);
    put_field(&b, F_CACHE_CONTROL, a->cache_control);
    put_field(&b, F_EXPIRES, a->expires);
    put_field(&b, F_WEBSITE_REDIRECT, a->website_redirect);
    put_field(&b, F_STORAGE_CLASS, a->storage_class);
    put_field(&b, F_SSE, a->sse);
    put_field(&b, F_ORIGIN, a->origin);
    put_user_meta(&b, a);
    put_checksum(&b, &a->checksum);
    if (a->tags_n > 0) {
        put_field(&b, F_TAGS, a->tags);
    }
    put_lock(&b, a);
    return pack_end(&b, arena, out);
}

/* Counts the user metadata pairs, so that their array is allocated once. */
static size_t count_user_meta(tarn_rd r)
{
    size_t n = 0;
    while (r.n > 0 && !r.failed) {
        uint64_t field = tarn_rd_varint(&r);
        (void)tarn_rd_lstr(&r);
        n += field == F_USER_META && !r.failed ? 1 : 0;
    }
    return n;
}

static tarn_err unpack_lock(tarn_str v, tarn_attrs *a)
{
    tarn_rd r = tarn_rd_of(v);
    uint8_t retention = tarn_rd_u8(&r);
    uint64_t until = tarn_rd_le64(&r);
    uint8_t hold = tarn_rd_u8(&r);
    if (r.failed || retention > TARN_RETENTION_COMPLIANCE || hold > 1) {
        return TARN_E_FORMAT;
    }
    a->retention = (tarn_retention)retention;
    a->retain_until_ms = (int64_t)until;
    a->legal_hold = hold != 0;
    return TARN_OK;
}

static tarn_err unpack_tags_field(tarn_str v, tarn_attrs *a)
{
    tarn_rd r = tarn_rd_of(v);
    (void)tarn_rd_u8(&r);
    uint64_t n = tarn_rd_varint(&r);
    if (r.failed || n > v.n) {
        return TARN_E_FORMAT;
    }
    a->tags = v;
    a->tags_n = (uint32_t)n;
    return TARN_OK;
}

static tarn_err unpack_field(uint64_t field, tarn_str v, tarn_pair *meta, tarn_attrs *a)
{
    tarn_rd r = tarn_rd_of(v);
    switch (field) {
    case F_CONTENT_TYPE:
        a->content_type = v;
        return TARN_OK;
    case F_CONTENT_ENCODING:
        a->content_encoding = v;
        return TARN_OK;
    case F_CONTENT_LANGUAGE:
        a->content_language = v;
        return TARN_OK;
    case F_CONTENT_DISPOSITION:
        a->content_disposition = v;
        return TARN_OK;
    case F_CACHE_CONTROL:
        a->cache_control = v;
        return TARN_OK;
    case F_EXPIRES:
        a->expires = v;
        return TARN_OK;
    case F_WEBSITE_REDIRECT:
        a->website_redirect = v;
        return TARN_OK;
    case F_STORAGE_CLASS:
        a->storage_class = v;
        return TARN_OK;
    case F_SSE:
        a->sse = v;
        return TARN_OK;
    case F_ORIGIN:
        a->origin = v;
        return TARN_OK;
    case F_USER_META:
        meta[a->user_meta_n].name = tarn_rd_lstr(&r);
        meta[a->user_meta_n].value = tarn_rd_lstr(&r);
        a->user_meta_n++;
        return r.failed ? TARN_E_FORMAT : TARN_OK;
    case F_CHECKSUM:
        return unpack_checksum(&r, &a->checksum);
    case F_TAGS:
        return unpack_tags_field(v, a);
    case F_LOCK:
        return unpack_lock(v, a);
    default:
        return TARN_OK;
    }
}

tarn_err tarn_attrs_unpack(tarn_str packed, tarn_arena *arena, tarn_attrs *out)
{
    tarn_attrs a = {0};
    if (packed.n == 0) { /* a delete marker has none */
        *out = a;
        return TARN_OK;
    }
    tarn_rd r = tarn_rd_of(packed);
    if (tarn_rd_u8(&r) != ATTRS_VERSION) {
        return TARN_E_FORMAT;
    }
    size_t meta_n = count_user_meta(r);
    tarn_pair *meta = NULL;
    if (meta_n > 0) {
        meta = TARN_ARENA_ARRAY(arena, tarn_pair, meta_n);
        if (!meta) {
            return TARN_E_NO_MEMORY;
        }
    }
    while (r.n > 0) {
        uint64_t field = tarn_rd_varint(&r);
        tarn_str v = tarn_rd_lstr(&r);
        tarn_err err = r.failed ? TARN_E_FORMAT : unpack_field(field, v, meta, &a);
        if (err) {
            return err;
        }
    }
    a.user_meta = meta;
    *out = a;
    return TARN_OK;
}

/* ------------------------------------------------------------------ origins */
tarn_err tarn_origin_pack(const tarn_origin *o, tarn_arena *arena, tarn_str *out)
{
    tarn_sb b;
    tarn_sb_init(&b, TARN_ATTRS_BYTES_MAX);
    tarn_sb_char(&b, (char)o->kind);
    tarn_sb_lstr(&b, o->ns_path);
    tarn_sb_lstr(&b, o->name);
    tarn_sb_lstr(&b, o->uuid);
    tarn_sb_lstr(&b, o->location);
    return pack_end(&b, arena, out);
}

bool tarn_origin_unpack(tarn_str packed, tarn_origin *out)
{
    tarn_rd r = tarn_rd_of(packed);
    tarn_origin o = {.kind = (tarn_entity_kind)tarn_rd_u8(&r)};
    o.ns_path = tarn_rd_lstr(&r);
    o.name = tarn_rd_lstr(&r);
    o.uuid = tarn_rd_lstr(&r);
    o.location = tarn_rd_lstr(&r);
    if (r.failed || r.n != 0 || (o.kind != TARN_ENTITY_TABLE && o.kind != TARN_ENTITY_VIEW) || o.ns_path.n == 0 || o.name.n == 0) {
        return false;
    }
    *out = o;
    return true;
}

/* ------------------------------------------------------------------ tags */
tarn_err tarn_tags_pack(const tarn_pair *tags, size_t n, tarn_arena *arena, tarn_str *out)
{
    tarn_sb b;
    if (n == 0) {
        *out = TARN_STR("");
        return TARN_OK;
    }
    tarn_sb_init(&b, TARN_ATTRS_BYTES_MAX);
    tarn_sb_char(&b, TAGS_VERSION);
    tarn_sb_varint(&b, n);
    for (size_t i = 0; i < n; i++) {
        tarn_sb_lstr(&b, tags[i].name);
        tarn_sb_lstr(&b, tags[i].value);
    }
    return pack_end(&b, arena, out);
}

tarn_err tarn_tags_unpack(tarn_str packed, tarn_arena *arena, tarn_pair **out, size_t *n)
{
    if (packed.n == 0) {
        *out = NULL;
        *n = 0;
        return TARN_OK;
    }
    tarn_rd r = tarn_rd_of(packed);
    uint8_t version = tarn_rd_u8(&r);
    uint64_t count = tarn_rd_varint(&r);
    if (r.failed || version != TAGS_VERSION || count > packed.n) { /* a pair takes two bytes at least */
        return TARN_E_FORMAT;
    }
    tarn_pair *tags = TARN_ARENA_ARRAY(arena, tarn_pair, count > 0 ? count : 1);
    if (!tags) {
        return TARN_E_NO_MEMORY;
    }
    for (size_t i = 0; i < count; i++) {
        tags[i].name = tarn_rd_lstr(&r);
        tags[i].value = tarn_rd_lstr(&r);
    }
    if (r.failed || r.n != 0) {
        return TARN_E_FORMAT;
    }
    *out = tags;
    *n = count;
    return TARN_OK;
}

/* ------------------------------------------------------------------ parts */
tarn_err obj_part_attrs_pack(const obj_part_attrs *p, tarn_arena *a, tarn_str *out)
{
    tarn_sb b;
    TARN_ASSERT(p->n <= OBJ_PART_SUMS_MAX);
    tarn_sb_init(&b, TARN_ATTRS_BYTES_MAX);
    tarn_sb_char(&b, PART_ATTRS_VERSION);
    tarn_sb_char(&b, p->repair ? 1 : 0);
    tarn_sb_char(&b, (char)p->n);
    for (size_t i = 0; i < p->n; i++) {
        pack_checksum(&b, &p->sums[i]);
    }
    return pack_end(&b, a, out);
}

tarn_err obj_part_attrs_unpack(tarn_str packed, obj_part_attrs *out)
{
    obj_part_attrs p = {0};
    tarn_rd r = tarn_rd_of(packed);
    uint8_t version = tarn_rd_u8(&r);
    p.repair = tarn_rd_u8(&r) != 0;
    p.n = tarn_rd_u8(&r);
    if (r.failed || version != PART_ATTRS_VERSION || p.n > OBJ_PART_SUMS_MAX) {
        return TARN_E_FORMAT;
    }
    for (size_t i = 0; i < p.n; i++) {
        tarn_err err = unpack_checksum(&r, &p.sums[i]);
        if (err) {
            return err;
        }
    }
    *out = p;
    return TARN_OK;
}

tarn_err tarn_part_attrs_unpack(tarn_str packed, tarn_checksum *out)
{
    obj_part_attrs p;
    tarn_err err = obj_part_attrs_unpack(packed, &p);
    if (!err) {
        *out = p.n > 0 ? p.sums[0] : (tarn_checksum){0};
    }
    return err;
}

/* ------------------------------------------------------------------ ids on the wire: two numbers, 16 hex digits each */
#define ID_HALF_DIGITS 16

static bool parse_pair(tarn_str text, uint64_t *a, uint64_t *b)
{
    uint64_t x = 0, y = 0;
    if (text.n != 2 * ID_HALF_DIGITS || !tarn_hex_to_u64(tarn_str_sub(text, 0, ID_HALF_DIGITS), &x) ||
        !tarn_hex_to_u64(tarn_str_sub(text, ID_HALF_DIGITS, ID_HALF_DIGITS), &y)) {
        return false;
    }
    *a = x;
    *b = y;
    return true;
}

static void format_pair(tarn_sb *out, uint64_t a, uint64_t b)
{
    tarn_sb_fmt(out, "%016llx%016llx", (unsigned long long)a, (unsigned long long)b);
}

bool tarn_version_parse(tarn_str text, tarn_version_ref *out)
{
    if (text.n == 0) {
        *out = (tarn_version_ref){.sel = TARN_VERSION_CURRENT};
        return true;
    }
    if (tarn_str_eqc(text, "null")) {
        *out = (tarn_version_ref){.sel = TARN_VERSION_NULL};
        return true;
    }
    tarn_version_ref ref = {.sel = TARN_VERSION_ID};
    if (!parse_pair(text, &ref.seq, &ref.nonce)) {
        return false;
    }
    *out = ref;
    return true;
}

void tarn_version_format(tarn_sb *b, const tarn_version_row *row)
{
    if (row->null_version) {
        tarn_sb_cstr(b, "null");
    } else {
        format_pair(b, row->seq, row->nonce);
    }
}

bool tarn_upload_id_parse(tarn_str text, uint64_t *upload_id, uint64_t *nonce)
{
    return parse_pair(text, upload_id, nonce);
}

void tarn_upload_id_format(tarn_sb *b, uint64_t upload_id, uint64_t nonce)
{
    format_pair(b, upload_id, nonce);
}
