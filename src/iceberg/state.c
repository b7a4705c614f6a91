/* SPDX-License-Identifier: Apache-2.0 */
/*
 * iceberg, from a pointer to a state and back: reading and writing metadata files, which are ordinary objects of the
 * warehouse's bucket; and the steps that many handlers share.
 */
#include <string.h>

#include "catalog.h"
#include "entry.h"

/* ------------------------------------------------------------------ metadata files */
tarn_err ice_file_read(ice_req *q, tarn_str location, tarn_arena *a, tarn_str *out)
{
    tarn_str bucket, key, bytes;
    tarn_version_row row;
    if (!ice_s3_split(location, &bucket, &key) || key.n == 0 || !tarn_str_eq(bucket, q->wh.name))
        return ice_fail(&q->e, TARN_E_ICE_BAD_REQUEST, "Invalid metadata location %.*s: it must lie in the warehouse, below s3://%.*s/",
                        TARN_STR_ARG(location), TARN_STR_ARG(q->wh.name));
    tarn_version_ref current = {.sel = TARN_VERSION_CURRENT};
    tarn_err err = key.n <= TARN_KEY_BYTES_MAX ? tarn_object_stat(q->ice->store, &q->wh, key, current, a, &row) : TARN_E_NO_SUCH_KEY;
    if (err == TARN_E_NO_SUCH_KEY || err == TARN_E_NO_SUCH_VERSION)
        return ice_fail(&q->e, TARN_E_ICE_NOT_FOUND, "Failed to open input stream for file: %.*s", TARN_STR_ARG(location));
    if (err == TARN_OK)
        err = tarn_object_read(q->ice->store, &row, ICE_METADATA_BYTES_MAX, a, &bytes);
    if (err == TARN_OK && tarn_is_gzip(bytes))
        err = tarn_gunzip(bytes, ICE_METADATA_BYTES_MAX, a, &bytes);
    if (err == TARN_E_LIMIT || err == TARN_E_INVALID)
        return ice_fail(&q->e, TARN_E_ICE_VALIDATION, "Cannot read metadata file %.*s: %s", TARN_STR_ARG(location),
                        err == TARN_E_LIMIT ? "it is too large" : "its compression is broken");
    if (err == TARN_OK)
        *out = bytes;
    return err;
}

/* The catalog's own files have an ETag that is not their MD5, which would be a tenth of a commit's time and tells nobody
 * anything: no client has sent the bytes. The "-1" says so, as clients know it from multipart uploads; a checksum is kept. */
static tarn_str file_etag(ice_req *q)
{
    uint64_t a = tarn_random_u64(), b = tarn_random_u64();
    return tarn_arena_fmt(q->a, "%016llx%016llx-1", (unsigned long long)a, (unsigned long long)b);
}

tarn_err ice_file_prepare(ice_req *q, tarn_str ns, const tarn_entity_row *row, tarn_str text, bool gzip, tarn_put **out)
{
    tarn_str bucket, key, location = row->pointer;
    tarn_origin origin = {.kind = row->kind, .ns_path = ns, .name = row->name, .uuid = row->uuid, .location = row->location};
    tarn_sb packed;
    if (!ice_s3_split(location, &bucket, &key) || !tarn_str_eq(bucket, q->wh.name) || key.n == 0 || key.n > TARN_KEY_BYTES_MAX)
        return ice_fail(&q->e, TARN_E_ICE_VALIDATION, "Invalid metadata location %.*s: it must lie in the warehouse",
                        TARN_STR_ARG(location));
    tarn_sb_init(&packed, 2 * (size_t)ICE_METADATA_BYTES_MAX);
    tarn_put *put = NULL;
    tarn_err err = gzip ? tarn_gzip(text, &packed) : TARN_OK;
    tarn_str bytes = gzip ? tarn_sb_view(&packed) : text;
    tarn_put_spec spec = {.bucket = &q->wh,
                          .key = tarn_arena_str(q->a, key),
                          .size_hint = bytes.n,
                          .inline_bytes_max = ICE_INLINE_BYTES_MAX,
                          .etag_override = file_etag(q)};
    spec.attrs.content_type = TARN_STR("application/json");
    if (err == TARN_OK && (!spec.key.p || !spec.etag_override.p))
        err = TARN_E_NO_MEMORY;
    if (err == TARN_OK)
        err = tarn_origin_pack(&origin, q->a, &spec.attrs.origin);
    if (err == TARN_OK)
        err = tarn_put_begin(q->ice->store, &spec, q->a, &put);
    if (err == TARN_OK)
        err = tarn_put_write(put, bytes.p, bytes.n);
    if (err == TARN_OK)
        err = tarn_put_prepare(put);
    tarn_sb_free(&packed);
    if (err != TARN_OK) {
        tarn_put_abort(put);
        return err;
    }
    *out = put;
    return TARN_OK;
}

static tarn_err too_long(ice_req *q)
{
    return ice_fail(&q->e, TARN_E_ICE_VALIDATION, "The metadata would be longer than %u bytes: expire snapshots first",
                    ICE_METADATA_BYTES_MAX);
}

tarn_err ice_state_write(ice_req *q, const json_t *metadata, const ice_state *base, ice_text *out)
{
    tarn_err err = ice_text_write(metadata, base ? base->metadata : NULL, base ? &base->text : NULL, ICE_METADATA_BYTES_MAX, out);
    return err == TARN_E_LIMIT ? too_long(q) : err;
}

tarn_err ice_metadata_text(ice_req *q, const json_t *metadata, tarn_sb *out)
{
    tarn_sb_init(out, ICE_METADATA_BYTES_MAX);
    ice_json_write(out, metadata);
    if (!out->failed)
        return TARN_OK;
    tarn_sb_free(out);
    return too_long(q);
}

/* ------------------------------------------------------------------ states */
static tarn_err parse_state(ice_req *q, const tarn_entity_row *row, tarn_arena *a, tarn_str bytes, ice_state **out)
{
    json_t *raw = NULL, *md = NULL;
    ice_text text = {0};
    bool view = row->kind == TARN_ENTITY_VIEW;
    ICE_TRY(view ? ice_json_parse_object(bytes, &raw, &q->e) : ice_entries_parse(bytes, &raw, &q->e));
    tarn_err err = view ? ice_view_load(raw, &md, &q->e) : ice_table_load(raw, false, a, &md, &q->e);
    json_decref(raw);
    ICE_TRY(err);
    /* A version 1 file may have no uuid: the one that the catalog has given it since it was registered. */
    if (row->kind == TARN_ENTITY_TABLE && !ice_get(md, "table-uuid"))
        err = ice_set_str(md, "table-uuid", row->uuid);
    if (err == TARN_OK)
        err = ice_state_write(q, md, NULL, &text);
    if (err != TARN_OK) {
        json_decref(md);
        return err;
    }
    *out = ice_state_new(row, md, &text);
    return *out ? TARN_OK : TARN_E_NO_MEMORY;
}

tarn_err ice_state_load(ice_req *q, const tarn_entity_row *row, ice_state **out)
{
    tarn_str bytes;
    *out = ice_cache_get(&q->ice->cache, row->id, row->version);
    if (*out)
        return TARN_OK;
    tarn_arena *a = tarn_arena_new(ICE_LOAD_ARENA_BYTES_MAX);
    if (!a)
        return TARN_E_NO_MEMORY;
    tarn_err err = ice_file_read(q, row->pointer, a, &bytes);
    if (err == TARN_OK)
        err = parse_state(q, row, a, bytes, out);
    if (err == TARN_OK)
        ice_cache_put(&q->ice->cache, *out);
    tarn_arena_free(a);
    return err;
}

/* ------------------------------------------------------------------ common steps */
tarn_str ice_warehouse_root(ice_req *q)
{
    return tarn_arena_fmt(q->a, "s3://%.*s/", TARN_STR_ARG(q->wh.name));
}

void ice_ctx_fill(ice_req *q, tarn_str base_location, ice_ctx *out)
{
    *out = (ice_ctx){.arena = q->a, .now_ms = tarn_now_ms(), .warehouse_root = ice_warehouse_root(q), .base_location = base_location};
}

tarn_str ice_now_uuid(ice_req *q)
{
    char uuid[37];
    tarn_uuid4(uuid);
    return tarn_arena_str(q->a, tarn_str_of(uuid));
}

tarn_err ice_no_such(ice_req *q, tarn_entity_kind kind, tarn_str ns, tarn_str name)
{
    tarn_str shown = ice_show(q, ns, name);
    if (kind == TARN_ENTITY_VIEW)
        return ice_fail(&q->e, TARN_E_ICE_NO_VIEW, "View does not exist: %.*s", TARN_STR_ARG(shown));
    return ice_fail(&q->e, TARN_E_ICE_NO_TABLE, "Table does not exist: %.*s", TARN_STR_ARG(shown));
}

tarn_err ice_taken(ice_req *q, tarn_entity_kind wanted, tarn_entity_kind there, tarn_str ns, tarn_str name)
{
    tarn_str shown = ice_show(q, ns, name);
    const char *what = there == TARN_ENTITY_VIEW ? "View" : "Table";
    return ice_fail(&q->e, TARN_E_ICE_ALREADY_EXISTS,
                    wanted == there ? "%s already exists: %.*s" : "%s with same name already exists: %.*s", what, TARN_STR_ARG(shown));
}

tarn_err ice_no_namespace(ice_req *q, tarn_str ns)
{
    return ice_fail(&q->e, TARN_E_ICE_NO_NAMESPACE, "Namespace does not exist: %.*s", TARN_STR_ARG(ice_ns_show(q, ns)));
}

tarn_err ice_namespace(ice_req *q, tarn_ns_row *out)
{
    tarn_err err = q->ns.n > 0 ? tarn_meta_ns_get(q->ice->meta, NULL, q->wh.id, q->ns, q->a, out) : TARN_E_ICE_NO_NAMESPACE;
    return err == TARN_E_ICE_NO_NAMESPACE ? ice_no_namespace(q, q->ns) : err;
}

tarn_err ice_entity(ice_req *q, tarn_entity_kind kind, tarn_entity_row *out)
{
    tarn_err err = q->ns.n > 0 ? tarn_meta_entity_get(q->ice->meta, NULL, q->wh.id, q->ns, q->name, q->a, out) : TARN_E_ICE_NO_TABLE;
    if (err == TARN_E_ICE_NO_TABLE || err == TARN_E_ICE_NO_NAMESPACE || (err == TARN_OK && out->kind != kind))
        return ice_no_such(q, kind, q->ns, q->name);
    return err;
}

tarn_err ice_commit_outcome(ice_req *q, tarn_err err, bool fn_ok)
{
    if (err == TARN_OK || !fn_ok)
        return err;
    return ice_fail(&q->e, TARN_E_ICE_STATE_UNKNOWN, "The state of the commit is unknown: %s", tarn_err_get(err)->message);
}

bool ice_param_true(ice_req *q, const char *name)
{
    const tarn_param *p = tarn_req_param(q->http, name);
    return p && tarn_str_ieqc(p->value, "true");
}

/* ------------------------------------------------------------------ a new table or view, in one transaction */
typedef struct create_arg {
    tarn_put *put;
    tarn_entity_row *row;
    tarn_str ns;
    tarn_put_result result;
    bool ok;
} create_arg;

static tarn_err create_in_tx(tarn_meta_tx *tx, void *arg)
{
    create_arg *c = arg;
    tarn_ns_row ns;
    c->ok = false;
    ICE_TRY(tarn_meta_ns_get(NULL, tx, c->row->bucket_id, c->ns, tarn_meta_tx_arena(tx), &ns));
    c->row->ns_id = ns.id;
    ICE_TRY(tarn_meta_entity_create(tx, c->row));
    ICE_TRY(tarn_put_apply(c->put, tx, &c->result));
    c->ok = true;
    return TARN_OK;
}

tarn_err ice_entity_create(ice_req *q, tarn_entity_row *row, const json_t *metadata, tarn_str text, const char *codec_property)
{
    tarn_sb location;
    bool gzip = false;
    char *memory = tarn_arena_alloc(q->a, ICE_POINTER_BYTES_MAX);
    tarn_entity_kind wanted = row->kind;
    if (!memory)
        return TARN_E_NO_MEMORY;
    tarn_sb_init_fixed(&location, memory, ICE_POINTER_BYTES_MAX);
    ice_metadata_file_name(metadata, TARN_STR(""), codec_property, &location, &gzip);
    row->bucket_id = q->wh.id;
    row->name = q->name;
    row->location = ice_string_or_empty(metadata, "location");
    row->pointer = tarn_sb_view(&location);
    row->version = 1;
    row->created_ms = row->updated_ms = tarn_now_ms();
    create_arg c = {.row = row, .ns = q->ns};
    ICE_TRY(ice_file_prepare(q, q->ns, row, text, gzip, &c.put));
    if (tarn_req_client_gone(q->http)) {
        tarn_put_done(c.put, false);
        return TARN_E_CLOSED;
    }
    tarn_err err = tarn_meta_commit(q->ice->meta, create_in_tx, &c);
    tarn_put_done(c.put, err == TARN_OK);
    if (err == TARN_E_ICE_ALREADY_EXISTS)
        return ice_taken(q, wanted, row->kind, q->ns, q->name);
    if (err == TARN_E_ICE_NO_NAMESPACE)
        return ice_no_namespace(q, q->ns);
    return ice_commit_outcome(q, err, c.ok);
}
