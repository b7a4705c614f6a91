/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Multipart uploads. An upload's id is the data id of its parts, later of the object: completing moves nothing. The object's
 * layout lists part numbers and sizes; where a part lies is in its own row.
 *
 *   create ──▶ parts, in any order, each may be replaced ──▶ complete ──▶ object version
 *                                                       └──▶ abort
 *
 * Complete is one function in one transaction: the parts are checked as they are then. A second complete with the same
 * parts finds the version that the first one made (same upload id, nonce and ETag) and answers as that did.
 *
 * Invariants:
 *  1. Rows of the part table under a data id belong to one upload, or to the one version that it became.
 *  2. After complete exactly the parts that the version lists are left.
 * Threads: functions with a tx run on the committer.
 */
#include "manifest.h"

#include <string.h>

/* ------------------------------------------------------------------ create, abort */
typedef struct create_arg {
    tarn_store *s;
    tarn_upload_row row;
} create_arg;

static tarn_err create_fn(tarn_meta_tx *tx, void *arg)
{
    create_arg *c = arg;
    tarn_bucket_row bucket;
    tarn_err err = tarn_meta_bucket_get_id(c->s->meta, tx, c->row.bucket_id, tarn_meta_tx_arena(tx), &bucket);
    if (err) {
        return err;
    }
    c->row.upload_id = tarn_meta_tx_seq(tx);
    c->row.nonce = tarn_random_u64();
    c->row.initiated_ms = tarn_meta_tx_now_ms(tx);
    return tarn_meta_upload_create(tx, &c->row);
}

tarn_err tarn_upload_create(tarn_store *s, const tarn_bucket_row *bucket, tarn_str key, tarn_str owner, const tarn_attrs *attrs,
                            uint64_t *upload_id, uint64_t *nonce)
{
    create_arg c = {.s = s, .row = {.bucket_id = bucket->id, .key = key, .owner = owner}};
    tarn_attrs a = *attrs;
    if (key.n == 0 || key.n > TARN_KEY_BYTES_MAX) {
        return key.n == 0 ? TARN_E_INVALID_ARGUMENT : TARN_E_KEY_TOO_LONG;
    }
    if (a.checksum.kind != TARN_SUM_NONE) { /* only kind and type mean something here */
        tarn_checksum c2 = {.kind = a.checksum.kind, .type = a.checksum.type};
        a.checksum = c2;
    }
    tarn_arena *scratch = tarn_arena_new(4 * TARN_ATTRS_BYTES_MAX);
    if (!scratch) {
        return TARN_E_NO_MEMORY;
    }
    tarn_err err = tarn_attrs_pack(&a, scratch, &c.row.attrs);
    if (!err) {
        err = tarn_meta_commit(s->meta, create_fn, &c);
    }
    tarn_arena_free(scratch);
    if (!err) {
        *upload_id = c.row.upload_id;
        *nonce = c.row.nonce;
    }
    return err;
}

typedef struct abort_arg {
    tarn_store *s;
    uint64_t bucket_id, upload_id, nonce;
    tarn_str key;
} abort_arg;

static tarn_err abort_fn(tarn_meta_tx *tx, void *arg)
{
    abort_arg *c = arg;
    tarn_upload_row row;
    tarn_err err = tarn_meta_upload_get(c->s->meta, tx, c->bucket_id, c->key, c->upload_id, c->nonce, tarn_meta_tx_arena(tx), &row);
    if (!err) {
        err = tarn_meta_upload_delete(tx, c->bucket_id, c->upload_id);
    }
    if (!err) { /* its parts go with the data id */
        tarn_garbage_row g = {.since_ms = tarn_meta_tx_now_ms(tx), .data_id = c->upload_id, .layout = TARN_STR("")};
        err = tarn_meta_garbage_put(tx, &g);
    }
    return err;
}

tarn_err tarn_upload_abort(tarn_store *s, const tarn_bucket_row *bucket, tarn_str key, uint64_t upload_id, uint64_t nonce)
{
    abort_arg c = {s, bucket->id, upload_id, nonce, key};
    return tarn_meta_commit(s->meta, abort_fn, &c);
}

/* ------------------------------------------------------------------ complete: the parts */
typedef struct have_part {
    uint32_t number;
    uint64_t size;
    tarn_str etag;
    obj_part_attrs attrs;
    bool used;
} have_part;

typedef struct complete {
    tarn_store *s;
    const tarn_complete_spec *spec;
    tarn_arena *arena; /* the caller's: what the answer points to */
    tarn_put_result *out;
    uint32_t *bad_part;
    tarn_upload_row upload;
    tarn_attrs attrs;
    have_part *have;
    size_t have_n, have_cap;
    obj_span *spans; /* those the version is made of */
    have_part **used;
    uint64_t size;
    tarn_str etag;
    tarn_err err; /* of the callback */
} complete;

static bool collect_part(void *ctx, const tarn_part_row *row)
{
    complete *c = ctx;
    if (c->have_n == c->have_cap) {
        size_t cap = c->have_cap ? c->have_cap * 2 : 64;
        have_part *more = tarn_realloc(c->have, cap * sizeof *more);
        if (!more) {
            c->err = TARN_E_NO_MEMORY;
            return false;
        }
        c->have = more;
        c->have_cap = cap;
    }
    have_part *p = &c->have[c->have_n];
    *p = (have_part){.number = row->number, .size = row->size, .etag = tarn_arena_str(c->arena, row->etag)};
    c->err = p->etag.p ? obj_part_attrs_unpack(row->attrs, &p->attrs) : TARN_E_NO_MEMORY;
    c->have_n++;
    return c->err == TARN_OK;
}

static const tarn_checksum *part_sum(const have_part *p, tarn_sum_kind kind)
{
    for (size_t i = 0; i < p->attrs.n; i++) {
        if (p->attrs.sums[i].kind == kind) {
            return &p->attrs.sums[i];
        }
    }
    return NULL;
}

static tarn_err bad_part(complete *c, uint32_t number, tarn_err err)
{
    *c->bad_part = number;
    return err;
}

static bool checksum_equal(const tarn_checksum *a, const tarn_checksum *b)
{
    return a->kind == b->kind && memcmp(a->value, b->value, tarn_sum_bytes(a->kind)) == 0;
}

/* Both lists are in the order of numbers. */
static tarn_err match_parts(complete *c)
{
    size_t h = 0;
    for (size_t i = 0; i < c->spec->parts_n; i++) {
        const tarn_complete_part *want = &c->spec->parts[i];
        while (h < c->have_n && c->have[h].number < want->number) {
            h++;
        }
        if (h == c->have_n || c->have[h].number != want->number || !tarn_str_eq(c->have[h].etag, want->etag)) {
            return bad_part(c, want->number, TARN_E_INVALID_PART);
        }
        have_part *p = &c->have[h];
        if (want->checksum.kind != TARN_SUM_NONE) {
            const tarn_checksum *sum = part_sum(p, want->checksum.kind);
            if (!sum || !checksum_equal(sum, &want->checksum)) {
                return bad_part(c, want->number, TARN_E_INVALID_PART);
            }
        }
        p->used = true;
        c->used[i] = p;
        c->spans[i] = (obj_span){p->number, p->size};
        c->size += p->size;
    }
    for (size_t i = 0; i + 1 < c->spec->parts_n; i++) {
        if (c->spans[i].size < TARN_PART_BYTES_MIN) {
            return bad_part(c, c->spans[i].number, TARN_E_ENTITY_TOO_SMALL);
        }
    }
    if (c->size > TARN_OBJECT_BYTES_MAX) {
        return TARN_E_ENTITY_TOO_LARGE;
    }
    return c->spec->has_size && c->spec->size != c->size ? TARN_E_INVALID_REQUEST : TARN_OK;
}

/* ------------------------------------------------------------------ complete: ETag and checksum */
/* MD5 of the parts' MD5s, and how many: what S3 does. From the request alone, so that a repeat can be recognised. */
static tarn_err make_etag(const tarn_complete_spec *spec, tarn_arena *a, uint32_t *bad, tarn_str *out)
{
    tarn_md5_state md5;
    uint8_t sum[TARN_MD5_BYTES];
    char text[64];
    tarn_sb b;
    tarn_md5_init(&md5);
    for (size_t i = 0; i < spec->parts_n; i++) {
        if (!tarn_hex_decode(spec->parts[i].etag, sum, sizeof sum)) {
            *bad = spec->parts[i].number;
            return TARN_E_INVALID_PART;
        }
        tarn_md5_update(&md5, sum, sizeof sum);
    }
    tarn_md5_final(&md5, sum);
    tarn_sb_init_fixed(&b, text, sizeof text);
    tarn_sb_hex(&b, sum, sizeof sum);
    tarn_sb_fmt(&b, "-%zu", spec->parts_n);
    *out = tarn_arena_str(a, tarn_sb_view(&b));
    return out->p ? TARN_OK : TARN_E_NO_MEMORY;
}

static tarn_err composite_sum(const complete *c, tarn_sum_kind kind, tarn_checksum *out)
{
    tarn_sum sum;
    tarn_err err = tarn_sum_begin(&sum, kind);
    if (err) {
        return err;
    }
    for (size_t i = 0; i < c->spec->parts_n; i++) {
        const tarn_checksum *p = part_sum(c->used[i], kind);
        if (!p) {
            tarn_sum_end(&sum);
            return bad_part((complete *)(uintptr_t)c, c->spans[i].number, TARN_E_INVALID_PART);
        }
        tarn_sum_update(&sum, p->value, tarn_sum_bytes(kind));
    }
    *out = (tarn_checksum){.kind = kind, .type = TARN_SUM_COMPOSITE, .parts_n = (uint32_t)c->spec->parts_n};
    tarn_sum_peek(&sum, out->value);
    tarn_sum_end(&sum);
    return TARN_OK;
}

static tarn_err full_sum(const complete *c, tarn_sum_kind kind, tarn_checksum *out)
{
    tarn_checksum r = {.kind = kind, .type = TARN_SUM_FULL_OBJECT};
    for (size_t i = 0; i < c->spec->parts_n; i++) {
        const tarn_checksum *p = part_sum(c->used[i], kind);
        uint8_t joined[TARN_DIGEST_BYTES_MAX];
        if (!p) {
            return bad_part((complete *)(uintptr_t)c, c->spans[i].number, TARN_E_INVALID_PART);
        }
        if (i == 0) {
            memcpy(r.value, p->value, sizeof r.value);
            continue;
        }
        tarn_sum_combine(kind, r.value, p->value, c->spans[i].size, joined);
        memcpy(r.value, joined, tarn_sum_bytes(kind));
    }
    *out = r;
    return TARN_OK;
}

static bool kind_combines(tarn_sum_kind kind)
{
    return kind == TARN_SUM_CRC32 || kind == TARN_SUM_CRC32C || kind == TARN_SUM_CRC64NVME;
}

static tarn_err make_checksum(complete *c, tarn_checksum *out)
{
    tarn_sum_kind kind = c->attrs.checksum.kind;
    tarn_sum_type type = c->attrs.checksum.type;
    if (kind == TARN_SUM_NONE) { /* nothing was asked for: what S3 computes then */
        kind = TARN_SUM_CRC64NVME;
        type = TARN_SUM_FULL_OBJECT;
    }
    if (c->spec->type_given && c->spec->type != type) {
        return TARN_E_INVALID_REQUEST;
    }
    tarn_err err = type == TARN_SUM_FULL_OBJECT && kind_combines(kind) ? full_sum(c, kind, out) : composite_sum(c, kind, out);
    if (!err && c->spec->checksum.kind != TARN_SUM_NONE) {
        if (c->spec->checksum.kind != kind) {
            return c->attrs.checksum.kind == TARN_SUM_NONE ? TARN_OK : TARN_E_INVALID_REQUEST;
        }
        err = checksum_equal(&c->spec->checksum, out) ? TARN_OK : TARN_E_BAD_DIGEST;
    }
    return err;
}

/* ------------------------------------------------------------------ complete: the transaction */
/* The upload is gone: was it completed with these very parts? */
static tarn_err repeated(complete *c, tarn_meta_tx *tx)
{
    tarn_version_row row;
    obj_span *spans;
    size_t n;
    uint64_t nonce = 0;
    tarn_attrs attrs;
    tarn_arena *a = tarn_meta_tx_arena(tx);
    if (tarn_meta_object_get(c->s->meta, tx, c->spec->bucket->id, c->spec->key, a, &row) != TARN_OK || row.parts_n == 0 ||
        row.data_id != c->spec->upload_id || !tarn_str_eq(row.etag, c->etag) ||
        obj_spans_unpack(row.layout, a, &spans, &n, &nonce) != TARN_OK || nonce != c->spec->nonce) {
        return TARN_E_NO_SUCH_UPLOAD;
    }
    row.key = c->spec->key;
    row.etag = c->etag;
    row.layout = tarn_arena_str(c->arena, row.layout);
    row.attrs = tarn_arena_str(c->arena, row.attrs);
    row.tags = tarn_arena_str(c->arena, row.tags);
    tarn_err err = row.layout.p && row.attrs.p && row.tags.p ? tarn_attrs_unpack(row.attrs, c->arena, &attrs) : TARN_E_NO_MEMORY;
    if (!err) {
        *c->out = (tarn_put_result){.row = row, .checksum = attrs.checksum};
    }
    return err;
}

static tarn_err drop_unused(complete *c, tarn_meta_tx *tx, uint16_t *repair)
{
    for (size_t i = 0; i < c->have_n; i++) {
        const have_part *p = &c->have[i];
        tarn_part_row row;
        if (p->used) {
            *repair |= p->attrs.repair ? 1 : 0;
            continue;
        }
        tarn_err err = tarn_meta_part_get(c->s->meta, tx, c->spec->upload_id, p->number, tarn_meta_tx_arena(tx), &row);
        if (!err) {
            err = obj_drop_part(tx, &row);
        }
        if (!err) {
            err = tarn_meta_part_delete(tx, c->spec->upload_id, p->number);
        }
        if (err) {
            return err;
        }
    }
    return TARN_OK;
}

static tarn_err insert_version(complete *c, tarn_meta_tx *tx, const tarn_checksum *sum, uint16_t repair)
{
    tarn_attrs attrs = c->attrs;
    obj_apply apply = {.store = c->s, .conditions = &c->spec->conditions, .repair = repair};
    attrs.checksum = *sum;
    attrs.tags = TARN_STR("");
    attrs.tags_n = 0;
    attrs.retention = TARN_RETENTION_NONE;
    attrs.legal_hold = false;
    tarn_version_row row = {.bucket_id = c->spec->bucket->id,
                            .key = c->spec->key,
                            .size = c->size,
                            .etag = c->etag,
                            .data_id = c->spec->upload_id,
                            .parts_n = (uint32_t)c->spec->parts_n,
                            .tags_n = c->attrs.tags_n,
                            .retention = c->attrs.retention,
                            .retain_until_ms = c->attrs.retain_until_ms,
                            .legal_hold = c->attrs.legal_hold};
    row.tags = tarn_arena_str(c->arena, c->attrs.tags);
    tarn_err err = tarn_attrs_pack(&attrs, c->arena, &row.attrs);
    if (!err) {
        err = obj_spans_pack(c->spans, c->spec->parts_n, c->spec->nonce, c->arena, &row.layout);
    }
    if (!err) {
        err = obj_version_apply(&apply, tx, c->spec->bucket, &row);
    }
    if (!err) {
        *c->out = (tarn_put_result){.row = row, .checksum = *sum};
    }
    return err;
}

static tarn_err complete_fn(tarn_meta_tx *tx, void *arg)
{
    complete *c = arg;
    tarn_meta *m = c->s->meta;
    tarn_checksum sum = {0};
    uint16_t repair = 0;
    tarn_err err = tarn_meta_upload_get(m, tx, c->spec->bucket->id, c->spec->key, c->spec->upload_id, c->spec->nonce,
                                        tarn_meta_tx_arena(tx), &c->upload);
    if (err == TARN_E_NO_SUCH_UPLOAD) {
        return repeated(c, tx);
    }
    if (!err) {
        err = tarn_attrs_unpack(c->upload.attrs, tarn_meta_tx_arena(tx), &c->attrs);
    }
    if (!err) {
        err = tarn_meta_part_list(m, tx, c->spec->upload_id, 0, false, collect_part, c);
    }
    if (!err) {
        err = c->err;
    }
    if (!err) {
        err = match_parts(c);
    }
    if (!err) {
        err = make_checksum(c, &sum);
    }
    if (!err) {
        err = drop_unused(c, tx, &repair);
    }
    if (!err) {
        err = insert_version(c, tx, &sum, repair);
    }
    return err ? err : tarn_meta_upload_delete(tx, c->spec->bucket->id, c->spec->upload_id);
}

static tarn_err check_order(const tarn_complete_spec *spec)
{
    if (spec->parts_n < 1 || spec->parts_n > TARN_PARTS_MAX) {
        return TARN_E_MALFORMED_XML;
    }
    for (size_t i = 0; i < spec->parts_n; i++) {
        if (spec->parts[i].number < 1 || spec->parts[i].number > TARN_PARTS_MAX) {
            return TARN_E_INVALID_ARGUMENT;
        }
        if (i > 0 && spec->parts[i].number <= spec->parts[i - 1].number) {
            return TARN_E_INVALID_PART_ORDER;
        }
    }
    return TARN_OK;
}

tarn_err tarn_upload_complete(tarn_store *s, const tarn_complete_spec *spec, tarn_arena *a, tarn_put_result *out, uint32_t *bad)
{
    tarn_put_result result = {0};
    complete c = {.s = s, .spec = spec, .arena = a, .out = &result, .bad_part = bad};
    tarn_err err = check_order(spec);
    *bad = 0;
    if (!err) {
        err = make_etag(spec, a, bad, &c.etag);
    }
    if (!err) {
        c.spans = TARN_ARENA_ARRAY(a, obj_span, spec->parts_n);
        c.used = TARN_ARENA_ARRAY(a, have_part *, spec->parts_n);
        err = c.spans && c.used ? TARN_OK : TARN_E_NO_MEMORY;
    }
    if (!err) {
        err = tarn_meta_commit(s->meta, complete_fn, &c);
    }
    tarn_free(c.have);
    if (!err && obj_manifest_save(s, &result.row) != TARN_OK) { /* it is complete all the same; repair makes it again */
        obj_repair_ask(s, spec->bucket->id, spec->key, result.row.seq);
    }
    if (!err) {
        *out = result;
    }
    return err;
}

/* ------------------------------------------------------------------ the parts of a finished object */
typedef struct spans_arg {
    tarn_part_span *spans;
    size_t n, i;
    tarn_err err;
} spans_arg;

static bool span_checksum(void *ctx, const tarn_part_row *row)
{
    spans_arg *a = ctx;
    while (a->i < a->n && a->spans[a->i].number < row->number) {
        a->i++;
    }
    if (a->i < a->n && a->spans[a->i].number == row->number) {
        a->err = tarn_part_attrs_unpack(row->attrs, &a->spans[a->i].checksum);
    }
    return a->err == TARN_OK && a->i < a->n;
}

tarn_err tarn_object_parts(tarn_store *s, const tarn_version_row *row, tarn_arena *a, tarn_part_span **out, size_t *n)
{
    obj_span *list = NULL;
    size_t count = 0;
    uint64_t nonce, off = 0;
    if (row->parts_n == 0) {
        *out = NULL;
        *n = 0;
        return TARN_OK;
    }
    tarn_err err = obj_spans_unpack(row->layout, a, &list, &count, &nonce);
    if (err) {
        return err;
    }
    spans_arg arg = {.spans = TARN_ARENA_ARRAY(a, tarn_part_span, count), .n = count};
    if (!arg.spans) {
        return TARN_E_NO_MEMORY;
    }
    for (size_t i = 0; i < count; i++) {
        arg.spans[i] = (tarn_part_span){.number = list[i].number, .off = off, .size = list[i].size};
        off += list[i].size;
    }
    err = tarn_meta_part_list(s->meta, NULL, row->data_id, 0, false, span_checksum, &arg);
    if (!err) {
        err = arg.err;
    }
    if (!err) {
        *out = arg.spans;
        *n = count;
    }
    return err;
}
