/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Versions made from what lies on the drives. A plain object: header (name, attributes, tags), blocks (from which ETag and
 * checksum are computed, and the sums of shards that are missing), trailers (the sums of the others). A multipart object: its
 * manifest, and the records of its parts.
 *
 * Everything that no row refers to is put in one order, by data ids and the manifests' order numbers, which come from one
 * counter, and applied oldest first: so the newest of a key is current in the end.
 *
 * Invariants:
 *  1. No version is made of which a block could not be read and verified.
 *  2. A candidate older than the current version of its key does not replace it.
 *  3. What fails to be read is made from the other drives; where they don't suffice it is told from what is damaged or not there
 *     (rb_unread), and the rebuilding does not end with OK.
 * Memory: an arena per version. Threads: the caller's.
 */
#include "rebuild.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define ADOPT_ARENA_BYTES_MAX (256u << 20)
#define MANIFEST_DIRS 64
#define CRC_BYTES 8
#define ORDER_UNKNOWN 0 /* numbers begin with 1 */
#define UNREAD_LINE_BYTES_MAX 4096

typedef struct candidate {
    uint64_t order;
    const rb_blob *blob; /* a plain object; NULL: a multipart one */
    uint64_t data_id;
} candidate;

typedef struct adopt {
    rebuild *r;
    tarn_arena *a;
    candidate *list;
    size_t n, cap;
    uint64_t uploads;        /* parts of uploads that were not completed */
    const obj_drive *unread; /* of the candidate: a drive on which a read failed; NULL */
} adopt;

static tarn_err add(adopt *ad, uint64_t order, const rb_blob *blob, uint64_t data_id)
{
    if (ad->n == ad->cap) {
        size_t cap = ad->cap ? ad->cap * 2 : 1024;
        candidate *more = tarn_realloc(ad->list, cap * sizeof *more);
        if (!more) {
            return TARN_E_NO_MEMORY;
        }
        ad->list = more;
        ad->cap = cap;
    }
    ad->list[ad->n++] = (candidate){order, blob, data_id};
    return TARN_OK;
}

/* ------------------------------------------------------------------ what can't be read */
void rb_unread(rebuild *r, const char *fmt, ...)
{
    char mem[UNREAD_LINE_BYTES_MAX];
    va_list ap;
    va_start(ap, fmt);
    tarn_str line = tarn_str_vfmt(mem, sizeof mem, "(a line that is too long)", fmt, ap);
    va_end(ap);
    r->out->unread++;
    obj_say(r->to, "can't be read: %.*s", TARN_STR_ARG(line));
}

/* Was it read, and found to be damaged or not there? Everything else leaves open what the drive has. */
static bool was_read(tarn_err err)
{
    return err == TARN_OK || err == TARN_E_CORRUPT || err == TARN_E_NOT_FOUND;
}

/* Shards that are good, or might be if they could be read, are enough: it is no damage. */
static tarn_err too_few(adopt *ad, const obj_blob *b, uint16_t good, uint16_t unread)
{
    unread &= (uint16_t)~good;
    if (unread == 0 || (unsigned)__builtin_popcount(good | unread) < b->k) {
        return TARN_E_QUORUM_READ;
    }
    ad->unread = obj_drive_at(ad->r->s, b->set, obj_blob_drive(b, (unsigned)__builtin_ctz(unread), ad->r->s->n));
    return TARN_E_IO;
}

/* ------------------------------------------------------------------ buckets */
typedef struct bucket_arg {
    tarn_bucket_row row;
} bucket_arg;

static tarn_err bucket_fn(tarn_meta_tx *tx, void *arg)
{
    bucket_arg *b = arg;
    return tarn_meta_bucket_create(tx, &b->row);
}

/* The bucket of that name; made as the record tells when no backup has it. */
static tarn_err bucket_for(adopt *ad, tarn_str name, uint8_t flags, int64_t created_ms, tarn_bucket_row *out)
{
    rebuild *r = ad->r;
    tarn_err err = tarn_meta_bucket_get(r->s->meta, NULL, name, ad->a, out);
    if (err != TARN_E_NO_SUCH_BUCKET) {
        return err;
    }
    char uuid[37];
    tarn_uuid4(uuid);
    bool warehouse = (flags & OBJ_BUCKET_WAREHOUSE) != 0;
    bucket_arg b = {.row = {.name = name,
                            .owner = r->spec->owner,
                            .created_ms = created_ms,
                            .versioning = (tarn_versioning)(flags & OBJ_BUCKET_VERSIONING_MASK),
                            .object_lock = (flags & OBJ_BUCKET_LOCK) != 0,
                            .warehouse = warehouse,
                            .warehouse_uuid = warehouse ? tarn_str_of(uuid) : TARN_STR(""),
                            .warehouse_created_ms = warehouse ? created_ms : 0}};
    err = tarn_meta_commit(r->s->meta, bucket_fn, &b);
    if (!err) {
        r->out->buckets++;
        obj_say(r->to, "bucket %.*s made again, with the settings that its records tell", TARN_STR_ARG(name));
        err = tarn_meta_bucket_get(r->s->meta, NULL, name, ad->a, out);
    }
    return err;
}

/* ------------------------------------------------------------------ a blob: sums, and with them the layout */
typedef struct digesting {
    tarn_md5_state md5;
    tarn_sum sum;
    bool on;
} digesting;

static void sum_put(uint8_t *sums, uint64_t i, uint64_t v)
{
    for (unsigned k = 0; k < CRC_BYTES; k++) {
        sums[i * CRC_BYTES + k] = (uint8_t)(v >> (8 * k));
    }
}

/* The sums that trailers tell; shards without one are marked missing. *rec: the last header read. */
static tarn_err collect_sums(adopt *ad, const rb_blob *found, obj_blob *b, uint8_t *sums, obj_record *rec)
{
    uint64_t blocks = obj_blob_blocks(b);
    unsigned shards = (unsigned)(b->k + b->m);
    uint16_t good = 0, unread = 0;
    tarn_arena *scratch = tarn_arena_new(16u << 20);
    if (!scratch) {
        return TARN_E_NO_MEMORY;
    }
    b->missing = 0;
    for (unsigned i = 0; i < shards; i++) {
        obj_trailer t;
        uint16_t bit = (uint16_t)(1u << i);
        obj_drive *d = obj_drive_at(ad->r->s, b->set, obj_blob_drive(b, i, ad->r->s->n));
        tarn_arena *mem = good == 0 ? ad->a : scratch; /* the first header's slices stay */
        obj_record one;
        tarn_err err = !(found->whole & bit)    ? TARN_E_NOT_FOUND
                       : !obj_drive_readable(d) ? TARN_E_IO /* it went out after the inventory */
                                                : obj_record_read(ad->r->s, d, b, mem, &one, &t);
        if (err || t.size != b->size || t.sums.n != blocks * CRC_BYTES) {
            b->missing |= bit;
            unread |= was_read(err) ? 0 : bit;
            continue;
        }
        if (good == 0) {
            *rec = one;
        }
        good |= bit;
        for (uint64_t k = 0; k < blocks; k++) {
            memcpy(sums + (k * shards + i) * CRC_BYTES, t.sums.p + k * CRC_BYTES, CRC_BYTES);
        }
        tarn_arena_reset(scratch);
    }
    tarn_arena_free(scratch);
    return __builtin_popcount(good) >= b->k ? TARN_OK : too_few(ad, b, good, unread);
}

/* The shards that nobody has: made from the others, and summed. */
static tarn_err make_missing(adopt *ad, const obj_blob *b, obj_stripe *st, uint8_t *sums)
{
    uint8_t *shards[TARN_SET_DRIVES_MAX];
    bool have[TARN_SET_DRIVES_MAX], want[TARN_SET_DRIVES_MAX];
    unsigned n = (unsigned)(b->k + b->m);
    for (unsigned i = 0; i < n; i++) {
        want[i] = (b->missing >> i) & 1;
        have[i] = !want[i];
        shards[i] = obj_stripe_shard(st, b->k, i);
    }
    tarn_err err = b->missing ? tarn_ec_rebuild(ad->r->s->ec, st->shard_len, shards, have, want) : TARN_OK;
    for (unsigned i = 0; !err && i < n; i++) {
        if (want[i]) {
            sum_put(sums, st->index * n + i, obj_shard_sum(b->blob_id, st->index, i, shards[i], st->shard_len));
        }
    }
    return err;
}

/* Reads all blocks: digests the data, and sums the shards that are missing. */
static tarn_err read_blocks(adopt *ad, obj_blob *b, uint8_t *sums, digesting *dg)
{
    obj_ctx *c = obj_ctx_get(ad->r->s);
    obj_reader *reader = tarn_calloc(1, sizeof *reader);
    uint16_t all = (uint16_t)((1u << (b->k + b->m)) - 1), data = (uint16_t)((1u << b->k) - 1);
    tarn_err err = c && reader ? TARN_OK : TARN_E_NO_MEMORY;
    if (!err) {
        obj_reader_init(reader, c, b);
        reader->avoid = 0;
    }
    for (uint64_t i = 0; !err && i < obj_blob_blocks(b); i++) {
        obj_stripe st;
        err = obj_stripe_start(reader, &st, i, b->missing ? (uint16_t)(all & ~b->missing) : data);
        if (!err) {
            err = obj_stripe_wait(reader, &st);
        }
        if (err == TARN_E_CORRUPT || err == TARN_E_QUORUM_READ) {
            err = too_few(ad, b, st.good, (uint16_t)((reader->unread | reader->unreachable) & ~b->missing));
        }
        if (!err) {
            err = make_missing(ad, b, &st, sums);
        }
        if (!err && dg->on) {
            tarn_md5_update(&dg->md5, st.block->data, st.len);
            tarn_sum_update(&dg->sum, st.block->data, st.len);
        }
        obj_stripe_release(&st);
    }
    if (reader) {
        obj_reader_close(reader);
    }
    tarn_free(reader);
    return err;
}

static tarn_err make_layout(adopt *ad, const rb_blob *found, digesting *dg, obj_record *rec, uint16_t *missing, tarn_str *out)
{
    obj_blob b = found->blob;
    tarn_sb sb;
    size_t n = (size_t)(obj_blob_blocks(&b) * (uint64_t)(b.k + b.m)) * CRC_BYTES;
    uint8_t *sums = tarn_arena_zalloc(ad->a, n + 1);
    if (!sums) {
        return TARN_E_NO_MEMORY;
    }
    tarn_err err = collect_sums(ad, found, &b, sums, rec);
    b.sums = (tarn_str){(const char *)sums, n};
    if (!err && (dg->on || b.missing)) {
        err = read_blocks(ad, &b, sums, dg);
    }
    if (err) {
        return err;
    }
    tarn_sb_init(&sb, TARN_LAYOUT_BYTES_MAX);
    err = obj_blob_pack(&b, &sb);
    if (!err) {
        *out = tarn_arena_str(ad->a, tarn_sb_view(&sb));
        err = out->p ? TARN_OK : TARN_E_NO_MEMORY;
    }
    tarn_sb_free(&sb);
    *missing = b.missing;
    return err;
}

/* ------------------------------------------------------------------ applying a version */
typedef struct apply_arg {
    adopt *ad;
    const tarn_bucket_row *bucket;
    tarn_version_row *row;
    uint64_t order;
    uint16_t missing;
    const obj_manifest *m; /* multipart */
    tarn_part_row *parts;
    bool stale; /* out: what is there is newer */
} apply_arg;

/* How new a row is, on the scale of data ids. */
static uint64_t order_of(const tarn_version_row *row)
{
    return row->data_id != 0 && row->parts_n == 0 ? row->data_id : row->seq;
}

static tarn_err apply_parts(apply_arg *g, tarn_meta_tx *tx)
{
    tarn_upload_row upload;
    tarn_meta *meta = g->ad->r->s->meta;
    tarn_arena *a = tarn_meta_tx_arena(tx);
    tarn_err err =
        tarn_meta_upload_get(meta, tx, g->bucket->id, g->row->key, g->m->data_id, g->m->upload_nonce, a, &upload); /* open in the backup */
    if (err == TARN_OK) {
        err = tarn_meta_upload_delete(tx, g->bucket->id, g->m->data_id);
    } else if (err == TARN_E_NO_SUCH_UPLOAD) {
        err = TARN_OK;
    }
    for (size_t i = 0; !err && i < g->m->parts_n; i++) {
        const obj_manifest_part *p = &g->m->parts[i];
        tarn_str old;
        if (p->bytes.p && tarn_meta_inline_get(meta, tx, p->blob_id, a, &old) == TARN_E_NOT_FOUND) {
            err = tarn_meta_inline_put(tx, p->blob_id, p->bytes);
        }
        if (!err) {
            err = tarn_meta_part_put(tx, &g->parts[i]);
        }
    }
    return err;
}

static tarn_err apply_fn(tarn_meta_tx *tx, void *arg)
{
    apply_arg *g = arg;
    tarn_version_row current;
    obj_apply how = {.store = g->ad->r->s, .repair = g->missing, .recovered = true};
    tarn_err err = tarn_meta_object_get(how.store->meta, tx, g->bucket->id, g->row->key, tarn_meta_tx_arena(tx), &current);
    g->stale = err == TARN_OK && current.seq < g->ad->r->first_seq && order_of(&current) > g->order;
    if (g->stale || (err && err != TARN_E_NO_SUCH_KEY)) {
        return g->stale ? TARN_E_CONFLICT : err;
    }
    err = g->m ? apply_parts(g, tx) : TARN_OK;
    return err ? err : obj_version_apply(&how, tx, g->bucket, g->row);
}

static tarn_err apply(apply_arg *g)
{
    rebuild *r = g->ad->r;
    tarn_err err = tarn_meta_commit(r->s->meta, apply_fn, g);
    if (g->stale) {
        obj_say(r->to, "left out: %.*s/%.*s (data %016llx): what the backup has is newer", TARN_STR_ARG(g->bucket->name),
                TARN_STR_ARG(g->row->key), (unsigned long long)g->row->data_id);
        return TARN_OK;
    }
    if (err == TARN_E_ACCESS_DENIED) {
        obj_say(r->to, "left out: %.*s/%.*s: a locked version is in its place", TARN_STR_ARG(g->bucket->name), TARN_STR_ARG(g->row->key));
        return TARN_OK;
    }
    if (!err) {
        r->out->objects++;
        r->out->objects_bytes += g->row->size;
        err = rb_note_table(r, g->bucket, g->row);
    }
    return err;
}

/* ------------------------------------------------------------------ plain objects */
static tarn_err object_attrs(adopt *ad, const obj_record *rec, digesting *dg, tarn_sum_kind kind, tarn_str *out)
{
    tarn_attrs attrs;
    tarn_err err = tarn_attrs_unpack(rec->info.attrs, ad->a, &attrs);
    if (!err) {
        attrs.checksum = (tarn_checksum){.kind = kind, .type = TARN_SUM_FULL_OBJECT};
        tarn_sum_peek(&dg->sum, attrs.checksum.value);
        err = tarn_attrs_pack(&attrs, ad->a, out);
    }
    return err;
}

static tarn_sum_kind kind_of(uint8_t recorded)
{
    bool known = recorded > TARN_SUM_NONE && recorded < TARN_SUM_KIND_COUNT;
    return known ? (tarn_sum_kind)recorded : TARN_SUM_CRC64NVME;
}

/* The header of a shard that is there, for the kind of checksum: it must be known before the data is read. */
static tarn_err peek_header(adopt *ad, const rb_blob *found, obj_record *rec)
{
    uint16_t unread = 0;
    for (unsigned i = 0; i < (unsigned)(found->blob.k + found->blob.m); i++) {
        obj_trailer t;
        obj_drive *d = obj_drive_at(ad->r->s, found->blob.set, obj_blob_drive(&found->blob, i, ad->r->s->n));
        if (!((found->whole >> i) & 1)) {
            continue;
        }
        tarn_err err = obj_drive_readable(d) ? obj_record_read(ad->r->s, d, &found->blob, ad->a, rec, &t) : TARN_E_IO;
        if (!err) {
            return TARN_OK;
        }
        unread |= (uint16_t)(was_read(err) ? 0 : 1u << i);
    }
    return too_few(ad, &found->blob, 0, unread);
}

static tarn_err plain_row(adopt *ad, const rb_blob *found, tarn_version_row *row, obj_record *rec, uint16_t *missing)
{
    digesting dg = {.on = true};
    uint8_t md5[TARN_MD5_BYTES];
    char hex[2 * TARN_MD5_BYTES + 1];
    tarn_sb b;
    tarn_err err = peek_header(ad, found, rec);
    if (err) {
        return err;
    }
    tarn_sum_kind kind = kind_of(rec->info.sum_kind);
    tarn_md5_init(&dg.md5);
    err = tarn_sum_begin(&dg.sum, kind);
    if (err) {
        return err;
    }
    err = make_layout(ad, found, &dg, rec, missing, &row->layout);
    if (!err) {
        err = object_attrs(ad, rec, &dg, kind, &row->attrs);
    }
    tarn_sum_end(&dg.sum);
    tarn_md5_final(&dg.md5, md5);
    tarn_sb_init_fixed(&b, hex, sizeof hex);
    tarn_sb_hex(&b, md5, sizeof md5);
    row->etag = tarn_arena_str(ad->a, rec->info.etag.n > 0 ? rec->info.etag : tarn_sb_view(&b));
    return err ? err : row->etag.p ? TARN_OK : TARN_E_NO_MEMORY;
}

static tarn_err adopt_plain(adopt *ad, const candidate *c)
{
    rebuild *r = ad->r;
    tarn_version_row row = {.data_id = c->data_id, .size = c->blob->blob.size, .current = true};
    tarn_bucket_row bucket;
    obj_record rec = {0};
    uint16_t missing = 0;
    tarn_err err = plain_row(ad, c->blob, &row, &rec, &missing);
    if (err == TARN_E_IO && ad->unread) {
        rb_unread(r, "%.*s/%.*s (data %016llx), on drive %s", TARN_STR_ARG(rec.info.bucket), TARN_STR_ARG(rec.info.key),
                  (unsigned long long)c->data_id, ad->unread->path);
        return TARN_OK;
    }
    if (err == TARN_E_QUORUM_READ || err == TARN_E_CORRUPT || err == TARN_E_FORMAT) {
        r->out->incomplete++;
        obj_say(r->to, "can't be made: %.*s/%.*s (data %016llx): %d of %u shards are whole, %u are needed", TARN_STR_ARG(rec.info.bucket),
                TARN_STR_ARG(rec.info.key), (unsigned long long)c->data_id, __builtin_popcount(c->blob->whole),
                (unsigned)(c->blob->blob.k + c->blob->blob.m), (unsigned)c->blob->blob.k);
        return TARN_OK;
    }
    if (!err) {
        err = bucket_for(ad, rec.info.bucket, rec.info.bucket_flags, rec.info.created_ms, &bucket);
    }
    if (err) {
        return err;
    }
    row.bucket_id = bucket.id;
    row.key = rec.info.key;
    row.mtime_ms = rec.info.created_ms;
    row.null_version = (rec.info.bucket_flags & OBJ_BUCKET_VERSIONING_MASK) != TARN_VERSIONING_ENABLED;
    row.tags = rec.info.tags;
    row.tags_n = rec.info.tags_n;
    row.retention = rec.info.retention;
    row.retain_until_ms = rec.info.retain_until_ms;
    row.legal_hold = rec.info.legal_hold;
    apply_arg g = {.ad = ad, .bucket = &bucket, .row = &row, .order = c->order, .missing = missing};
    return apply(&g);
}

/* ------------------------------------------------------------------ multipart objects */
/* CORRUPT: it is damaged wherever it is. */
static tarn_err read_manifest(adopt *ad, uint64_t data_id, obj_manifest *out)
{
    tarn_store *s = ad->r->s;
    const obj_drive *unread = NULL;
    for (size_t i = 0; i < s->drives_n; i++) {
        tarn_str bytes;
        tarn_err err = obj_drive_readable(&s->drives[i]) ? obj_manifest_read(s, &s->drives[i], data_id, ad->a, &bytes) : TARN_E_NOT_FOUND;
        if (!err && obj_manifest_parse(bytes, s->deployment_raw, ad->a, out) == TARN_OK && out->data_id == data_id) {
            return TARN_OK;
        }
        unread = was_read(err) ? unread : &s->drives[i];
    }
    ad->unread = unread;
    return unread ? TARN_E_IO : TARN_E_CORRUPT;
}

static tarn_err part_row(adopt *ad, const obj_manifest *m, const obj_manifest_part *p, tarn_part_row *out, uint16_t *missing)
{
    digesting none = {.on = false};
    obj_record rec;
    *out = (tarn_part_row){.data_id = m->data_id,
                           .number = p->number,
                           .size = p->size,
                           .mtime_ms = p->mtime_ms,
                           .etag = p->etag,
                           .attrs = p->attrs,
                           .layout = TARN_STR(""),
                           .blob_id = p->bytes.p ? p->blob_id : 0};
    if (p->bytes.p || p->size == 0) {
        return TARN_OK;
    }
    rb_blob *found = rb_find(ad->r, p->blob_id);
    if (!found || found->blob.data_id != m->data_id || found->blob.part != p->number || found->blob.size != p->size) {
        return TARN_E_QUORUM_READ;
    }
    found->referenced = true;
    uint16_t gone = 0;
    tarn_err err = make_layout(ad, found, &none, &rec, &gone, &out->layout);
    *missing |= gone;
    return err;
}

static void no_manifest(adopt *ad, uint64_t data_id, tarn_err err)
{
    if (err == TARN_E_IO) {
        rb_unread(ad->r, "the manifest of upload %016llx, on drive %s", (unsigned long long)data_id, ad->unread->path);
        return;
    }
    ad->r->out->incomplete++;
    obj_say(ad->r->to, "can't be made: the object of upload %016llx: its manifest is damaged everywhere", (unsigned long long)data_id);
}

static tarn_err adopt_multipart(adopt *ad, const candidate *c)
{
    rebuild *r = ad->r;
    obj_manifest m;
    tarn_bucket_row bucket;
    uint16_t missing = 0;
    tarn_err err = read_manifest(ad, c->data_id, &m);
    tarn_part_row *parts = err ? NULL : TARN_ARENA_ARRAY(ad->a, tarn_part_row, m.parts_n);
    obj_span *spans = err ? NULL : TARN_ARENA_ARRAY(ad->a, obj_span, m.parts_n);
    if (err) {
        no_manifest(ad, c->data_id, err);
        return TARN_OK;
    }
    err = parts && spans ? TARN_OK : TARN_E_NO_MEMORY;
    for (size_t i = 0; !err && i < m.parts_n; i++) {
        err = part_row(ad, &m, &m.parts[i], &parts[i], &missing);
        spans[i] = (obj_span){m.parts[i].number, m.parts[i].size};
        if (err == TARN_E_IO && ad->unread) {
            rb_unread(r, "%.*s/%.*s, part %u of %zu, on drive %s", TARN_STR_ARG(m.bucket), TARN_STR_ARG(m.key), m.parts[i].number,
                      m.parts_n, ad->unread->path);
            return TARN_OK;
        }
        if (err == TARN_E_QUORUM_READ || err == TARN_E_CORRUPT) {
            r->out->incomplete++;
            obj_say(r->to, "can't be made: %.*s/%.*s: part %u of %zu is not there", TARN_STR_ARG(m.bucket), TARN_STR_ARG(m.key),
                    m.parts[i].number, m.parts_n);
            return TARN_OK;
        }
    }
    if (!err) {
        err = bucket_for(ad, m.bucket, m.bucket_flags, m.mtime_ms, &bucket);
    }
    if (err) {
        return err;
    }
    tarn_version_row row = {.bucket_id = bucket.id,
                            .key = m.key,
                            .size = m.size,
                            .mtime_ms = m.mtime_ms,
                            .null_version = m.null_version,
                            .etag = m.etag,
                            .data_id = m.data_id,
                            .parts_n = (uint32_t)m.parts_n,
                            .attrs = m.attrs,
                            .tags = m.tags,
                            .tags_n = m.tags_n,
                            .retention = m.retention,
                            .retain_until_ms = m.retain_until_ms,
                            .legal_hold = m.legal_hold,
                            .current = true};
    err = obj_spans_pack(spans, m.parts_n, m.upload_nonce, ad->a, &row.layout);
    apply_arg g = {.ad = ad, .bucket = &bucket, .row = &row, .order = c->order, .missing = missing, .m = &m, .parts = parts};
    return err ? err : apply(&g);
}

/* ------------------------------------------------------------------ the candidates */
static tarn_err add_plain(adopt *ad)
{
    rebuild *r = ad->r;
    tarn_err err = TARN_OK;
    for (size_t i = 0; !err && i < r->buckets_n; i++) {
        for (const rb_blob *b = r->buckets[i]; b && !err; b = b->next) {
            if (b->referenced) {
                continue;
            }
            if (b->blob.part != 0) {
                ad->uploads++;
            } else if (b->whole != 0) {
                err = add(ad, b->blob.data_id, b, b->blob.data_id);
            }
        }
    }
    return err;
}

typedef struct names {
    adopt *ad;
    const obj_drive *d;
    tarn_err err;
} names;

static bool take_manifest(void *ctx, const char *name, bool is_dir)
{
    names *n = ctx;
    adopt *ad = n->ad;
    uint64_t id = 0;
    bool known = false;
    obj_manifest m;
    if (is_dir || strnlen(name, 17) != 16 || !tarn_hex_to_u64(tarn_str_of(name), &id)) {
        return true;
    }
    n->err = tarn_meta_data_held(ad->r->s->meta, id, &known);
    if (n->err || known) {
        return !n->err;
    }
    tarn_arena_reset(ad->a);
    tarn_str bytes;
    bool whole = obj_manifest_read(ad->r->s, n->d, id, ad->a, &bytes) == TARN_OK &&
                 obj_manifest_parse(bytes, ad->r->s->deployment_raw, ad->a, &m) == TARN_OK && m.data_id == id;
    n->err = add(ad, whole ? m.order : ORDER_UNKNOWN, NULL, id);
    return !n->err;
}

static tarn_err add_multipart(adopt *ad)
{
    tarn_store *s = ad->r->s;
    names n = {.ad = ad};
    for (size_t i = 0; !n.err && i < s->drives_n; i++) {
        n.d = &s->drives[i];
        for (unsigned k = 0; !n.err && k < MANIFEST_DIRS && obj_drive_readable(n.d); k++) {
            char path[TARN_PATH_BYTES_MAX];
            if (obj_manifest_folder(n.d, k, path)) {
                int rc = s->fs->list(s->fs, path, take_manifest, &n);
                if (rc < 0 && rc != -ENOENT) {
                    rb_unread(ad->r, "the folder %s: %s", path, strerror(-rc));
                }
            }
        }
    }
    return n.err;
}

static int by_data(const void *a, const void *b)
{
    uint64_t x = ((const candidate *)a)->data_id, y = ((const candidate *)b)->data_id;
    return x < y ? -1 : x > y ? 1 : 0;
}

/* Every drive of a set has told of each manifest. */
static void drop_repeats(adopt *ad)
{
    size_t n = 0;
    if (ad->n == 0) {
        return;
    }
    qsort(ad->list, ad->n, sizeof *ad->list, by_data);
    for (size_t i = 1; i < ad->n; i++) {
        if (ad->list[i].data_id != ad->list[n].data_id) {
            ad->list[++n] = ad->list[i];
        } else if (ad->list[i].order > ad->list[n].order) {
            ad->list[n].order = ad->list[i].order;
        }
    }
    ad->n = n + 1;
}

/* Manifests that no drive gave whole when they were listed: read again, for their place in the order, or said. */
static void settle_orders(adopt *ad)
{
    size_t n = 0;
    for (size_t i = 0; i < ad->n; i++) {
        candidate c = ad->list[i];
        if (c.order == ORDER_UNKNOWN) {
            obj_manifest m;
            tarn_arena_reset(ad->a);
            tarn_err err = read_manifest(ad, c.data_id, &m);
            if (err) {
                no_manifest(ad, c.data_id, err);
                continue;
            }
            c.order = m.order;
        }
        ad->list[n++] = c;
    }
    ad->n = n;
}

static int by_order(const void *a, const void *b)
{
    uint64_t x = ((const candidate *)a)->order, y = ((const candidate *)b)->order;
    return x < y ? -1 : x > y ? 1 : 0;
}

static void say_uploads(rebuild *r)
{
    uint64_t left = 0;
    for (size_t i = 0; i < r->buckets_n; i++) {
        for (const rb_blob *b = r->buckets[i]; b; b = b->next) {
            left += b->blob.part != 0 && !b->referenced ? 1 : 0;
        }
    }
    if (left > 0) {
        obj_say(r->to, "left out: %llu parts of uploads that were not completed", (unsigned long long)left);
    }
}

tarn_err rb_adopt(rebuild *r)
{
    adopt ad = {.r = r, .a = tarn_arena_new(ADOPT_ARENA_BYTES_MAX)};
    tarn_err err = ad.a ? add_multipart(&ad) : TARN_E_NO_MEMORY;
    if (!err) {
        drop_repeats(&ad);
        settle_orders(&ad);
        err = add_plain(&ad);
    }
    if (!err && ad.n > 0) {
        qsort(ad.list, ad.n, sizeof *ad.list, by_order);
    }
    for (size_t i = 0; !err && i < ad.n; i++) {
        tarn_arena_reset(ad.a);
        ad.unread = NULL;
        err = ad.list[i].blob ? adopt_plain(&ad, &ad.list[i]) : adopt_multipart(&ad, &ad.list[i]);
    }
    if (!err && ad.uploads > 0) {
        say_uploads(r);
    }
    if (!err && r->out->unread > 0) {
        *r->to->reason =
            tarn_arena_fmt(r->to->arena,
                           "%llu objects or places can't be read (they are named above), and would be missing in the index: it "
                           "was not finished. Run it again, copy the drive to a new one, or take it out",
                           (unsigned long long)r->out->unread);
        err = TARN_E_IO;
    }
    tarn_arena_free(ad.a);
    tarn_free(ad.list);
    return err;
}
