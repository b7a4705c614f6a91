/* SPDX-License-Identifier: Apache-2.0 */
/*
 * iceberg, register: a table or view from a metadata file that is already in the warehouse. The file is checked as readers
 * check it; nothing is written but the catalog's row.
 */
#include "commit.h"

typedef struct register_arg {
    ice_req *q;
    tarn_entity_row row;
    bool overwrite;
    bool ok;
} register_arg;

static tarn_err register_in_tx(tarn_meta_tx *tx, void *arg)
{
    register_arg *r = arg;
    tarn_entity_row there;
    tarn_ns_row ns;
    tarn_arena *a = tarn_meta_tx_arena(tx);
    tarn_entity_kind wanted = r->row.kind;
    r->ok = false;
    ICE_TRY(tarn_meta_ns_get(NULL, tx, r->q->wh.id, r->q->ns, a, &ns));
    tarn_err err = tarn_meta_entity_get(NULL, tx, r->q->wh.id, r->q->ns, r->q->name, a, &there);
    if (err == TARN_OK && r->overwrite && there.kind == wanted) {
        r->row.id = there.id;
        err = tarn_meta_entity_swap(tx, &r->row, there.version);
    } else if (err == TARN_OK) {
        r->row.kind = there.kind;
        return TARN_E_ICE_ALREADY_EXISTS;
    } else if (err == TARN_E_ICE_NO_TABLE) {
        r->row.ns_id = ns.id;
        err = tarn_meta_entity_create(tx, &r->row);
    }
    r->ok = err == TARN_OK;
    return err;
}

/* The file's metadata, checked, and the row for it. */
static tarn_err read_metadata(ice_req *q, tarn_str location, tarn_arena *a, tarn_entity_row *row, json_t **out)
{
    tarn_str bytes, place;
    json_t *raw = NULL, *md = NULL;
    bool view = row->kind == TARN_ENTITY_VIEW, use = false;
    ICE_TRY(ice_file_read(q, location, a, &bytes));
    tarn_err err = ice_json_parse_object(bytes, &raw, &q->e);
    if (err != TARN_OK)
        return ice_fail(&q->e, TARN_E_ICE_VALIDATION, "Cannot read metadata file %.*s: it is no JSON object", TARN_STR_ARG(location));
    err = view ? ice_view_load(raw, &md, &q->e) : ice_table_load(raw, true, a, &md, &q->e);
    json_decref(raw);
    ICE_TRY(err);
    ice_ctx ctx;
    ice_ctx_fill(q, TARN_STR(""), &ctx);
    place = ice_string_or_empty(md, "location");
    err = ice_location_check(&ctx, &place, &use, &q->e);
    if (err == TARN_OK && !use)
        err = ice_fail(&q->e, TARN_E_ICE_BAD_REQUEST, "Invalid location %.*s: it must lie inside the warehouse", TARN_STR_ARG(place));
    if (err == TARN_OK)
        err = ice_check_path_properties(&ctx, json_object_get(md, "properties"), &q->e);
    row->uuid = ice_string_or_empty(md, view ? "view-uuid" : "table-uuid");
    if (row->uuid.n == 0) /* version 1 files may have none */
        row->uuid = ice_now_uuid(q);
    if (err == TARN_OK && !view && !ice_get(md, "table-uuid"))
        err = ice_set_str(md, "table-uuid", row->uuid);
    row->location = place;
    if (err != TARN_OK) {
        json_decref(md);
        return err;
    }
    *out = md;
    return TARN_OK;
}

static tarn_err commit_and_send(register_arg *r, const json_t *md)
{
    ice_req *q = r->q;
    tarn_sb text;
    tarn_entity_kind wanted = r->row.kind;
    ICE_TRY(ice_metadata_text(q, md, &text));
    tarn_err err = tarn_meta_commit(q->ice->meta, register_in_tx, r);
    if (err == TARN_E_ICE_ALREADY_EXISTS)
        err = ice_taken(q, wanted, r->row.kind, q->ns, q->name);
    else if (err == TARN_E_ICE_NO_NAMESPACE)
        err = ice_no_namespace(q, q->ns);
    else
        err = ice_commit_outcome(q, err, r->ok);
    if (err == TARN_OK)
        err = ice_send_metadata(q, r->row.pointer, tarn_sb_view(&text), true,
                                wanted == TARN_ENTITY_TABLE ? ice_etag(q, &r->row, "all") : TARN_STR(""));
    tarn_sb_free(&text);
    return err;
}

static tarn_err register_entity(ice_req *q, tarn_entity_kind kind)
{
    register_arg r = {.q = q, .row = {.kind = kind, .bucket_id = q->wh.id, .version = 1}};
    tarn_ns_row ns;
    tarn_entity_row there;
    tarn_str location = TARN_STR_NULL;
    json_t *md = NULL;
    ICE_TRY(ice_namespace(q, &ns));
    ICE_TRY(ice_get_string(q->body, "register request", "name", &q->name, &q->e));
    ICE_TRY(ice_check_name(q, "name", q->name));
    ICE_TRY(ice_get_string(q->body, "register request", "metadata-location", &location, &q->e));
    ICE_TRY(ice_opt_bool(q->body, "register request", "overwrite", false, &r.overwrite, &q->e));
    if (tarn_meta_entity_get(q->ice->meta, NULL, q->wh.id, q->ns, q->name, q->a, &there) == TARN_OK && !(r.overwrite && there.kind == kind))
        return ice_taken(q, kind, there.kind, q->ns, q->name);
    tarn_arena *a = tarn_arena_new(ICE_LOAD_ARENA_BYTES_MAX);
    if (!a)
        return TARN_E_NO_MEMORY;
    r.row.name = q->name;
    r.row.pointer = location;
    r.row.created_ms = r.row.updated_ms = tarn_now_ms();
    tarn_err err = read_metadata(q, location, a, &r.row, &md);
    if (err == TARN_OK)
        err = commit_and_send(&r, md);
    json_decref(md);
    tarn_arena_free(a);
    return err;
}

tarn_err ice_h_table_register(ice_req *q)
{
    return register_entity(q, TARN_ENTITY_TABLE);
}

tarn_err ice_h_view_register(ice_req *q)
{
    return register_entity(q, TARN_ENTITY_VIEW);
}
