/* SPDX-License-Identifier: Apache-2.0 */
/*
 * iceberg, tables: create (staged too), load, list, register, rename, drop, metrics. Commits are in commit.c.
 */
#include <string.h>

#include "commit.h"

#define TABLE_CODEC "write.metadata.compression-codec"

/* ------------------------------------------------------------------ create */
static tarn_err refuse_taken(ice_req *q, tarn_entity_kind wanted)
{
    tarn_entity_row row;
    tarn_err err = tarn_meta_entity_get(q->ice->meta, NULL, q->wh.id, q->ns, q->name, q->a, &row);
    if (err == TARN_OK)
        return ice_taken(q, wanted, row.kind, q->ns, q->name);
    return err == TARN_E_ICE_NO_TABLE ? TARN_OK : err;
}

static tarn_err body_name(ice_req *q)
{
    ICE_TRY(ice_get_string(q->body, "request", "name", &q->name, &q->e));
    return ice_check_name(q, "name", q->name);
}

static tarn_err create_now(ice_req *q, const json_t *md, tarn_str text)
{
    tarn_entity_row row = {.kind = TARN_ENTITY_TABLE, .uuid = ice_string_or_empty(md, "table-uuid")};
    ICE_TRY(ice_entity_create(q, &row, md, text, TABLE_CODEC));
    return ice_send_metadata(q, row.pointer, text, true, ice_etag(q, &row, "all"));
}

tarn_err ice_h_table_create(ice_req *q)
{
    tarn_ns_row ns;
    ice_ctx ctx;
    bool staged = false;
    json_t *md = NULL;
    tarn_sb text;
    ICE_TRY(ice_namespace(q, &ns));
    ICE_TRY(body_name(q));
    ICE_TRY(ice_opt_bool(q->body, "create table request", "stage-create", false, &staged, &q->e));
    ICE_TRY(refuse_taken(q, TARN_ENTITY_TABLE));
    ice_ctx_fill(q, TARN_STR(""), &ctx);
    ICE_TRY(ice_table_create(q->body, ice_now_uuid(q), staged, &ctx, &md, &q->e));
    tarn_err err = ice_metadata_text(q, md, &text);
    if (err == TARN_OK) {
        err = staged ? ice_send_metadata(q, TARN_STR(""), tarn_sb_view(&text), true, TARN_STR("")) : create_now(q, md, tarn_sb_view(&text));
        tarn_sb_free(&text);
    }
    json_decref(md);
    return err;
}

/* ------------------------------------------------------------------ load, head */
static tarn_err read_mode(ice_req *q, bool *refs_only)
{
    const tarn_param *p = tarn_req_param(q->http, "snapshots");
    *refs_only = p && tarn_str_ieqc(p->value, "refs");
    if (p && p->value.n > 0 && !*refs_only && !tarn_str_ieqc(p->value, "all"))
        return ice_fail(&q->e, TARN_E_ICE_BAD_REQUEST, "Invalid snapshots: %.*s (all or refs)", TARN_STR_ARG(p->value));
    return TARN_OK;
}

/* A list of entity tags; weak ones compare equal, and "*" is any. */
static bool etag_matches(tarn_str list, tarn_str etag)
{
    bool more = list.n > 0;
    while (more) {
        tarn_str one, rest;
        more = tarn_str_split(list, ',', &one, &rest);
        one = tarn_str_trim(one);
        if (tarn_str_starts(one, "W/"))
            one = tarn_str_sub(one, 2, one.n);
        if (tarn_str_eq(one, etag) || tarn_str_eqc(one, "*"))
            return true;
        list = rest;
    }
    return false;
}

static tarn_err send_refs_only(ice_req *q, const ice_state *s, tarn_str etag)
{
    json_t *md = NULL;
    tarn_sb text;
    ICE_TRY(ice_table_refs_only(s->metadata, &md));
    tarn_err err = ice_metadata_text(q, md, &text);
    json_decref(md);
    ICE_TRY(err);
    err = ice_send_metadata(q, s->pointer, tarn_sb_view(&text), true, etag);
    tarn_sb_free(&text);
    return err;
}

tarn_err ice_h_table_load(ice_req *q)
{
    tarn_entity_row row;
    ice_state *s = NULL;
    bool refs_only = false;
    ICE_TRY(read_mode(q, &refs_only));
    ICE_TRY(ice_entity(q, TARN_ENTITY_TABLE, &row));
    tarn_str etag = ice_etag(q, &row, refs_only ? "refs" : "all");
    if (etag_matches(tarn_req_header(q->http, "if-none-match"), etag)) {
        tarn_resp_header(q->http, "ETag", etag);
        return ice_send_empty(q, 304);
    }
    ICE_TRY(ice_state_load(q, &row, &s));
    tarn_err err = refs_only ? send_refs_only(q, s, etag) : ice_send_metadata(q, s->pointer, ice_state_text(s), true, etag);
    ice_state_unref(s);
    return err;
}

tarn_err ice_h_table_head(ice_req *q)
{
    tarn_entity_row row;
    ICE_TRY(ice_entity(q, TARN_ENTITY_TABLE, &row));
    return ice_send_empty(q, 204);
}

/* ------------------------------------------------------------------ list (views, too) */
static bool list_one(void *ctx, const tarn_entity_row *row)
{
    ice_list *l = ctx;
    if (!ice_list_next(l))
        return false;
    tarn_sb_cstr(&l->b, "{\"namespace\":");
    ice_ns_write_json(&l->b, l->scope);
    tarn_sb_cstr(&l->b, ",\"name\":");
    ice_json_write_string(&l->b, row->name);
    tarn_sb_char(&l->b, '}');
    return ice_list_wrote(l, row->name);
}

static tarn_err list_entities(ice_req *q, tarn_entity_kind kind, char token_kind)
{
    tarn_ns_row ns;
    ice_list *l;
    ICE_TRY(ice_namespace(q, &ns));
    ICE_TRY(ice_list_begin(q, token_kind, q->ns, "identifiers", &l));
    return ice_list_send(q, l, tarn_meta_entity_list(q->ice->meta, q->wh.id, ns.id, kind, l->page.after, list_one, l));
}

tarn_err ice_h_table_list(ice_req *q)
{
    return list_entities(q, TARN_ENTITY_TABLE, 't');
}

tarn_err ice_h_view_list(ice_req *q)
{
    return list_entities(q, TARN_ENTITY_VIEW, 'v');
}

/* ------------------------------------------------------------------ drop (views, too) */
typedef struct drop_arg {
    ice_req *q;
    tarn_entity_kind kind;
    bool purge;
    tarn_purge_row gone;
} drop_arg;

static tarn_err drop_in_tx(tarn_meta_tx *tx, void *arg)
{
    drop_arg *d = arg;
    tarn_entity_row *row = &d->gone.dropped;
    ICE_TRY(tarn_meta_entity_get(NULL, tx, d->q->wh.id, d->q->ns, d->q->name, tarn_meta_tx_arena(tx), row));
    if (row->kind != d->kind)
        return TARN_E_ICE_NO_TABLE;
    row->location = tarn_arena_str(d->q->a, row->location);
    row->uuid = tarn_arena_str(d->q->a, row->uuid);
    row->pointer = tarn_arena_str(d->q->a, row->pointer);
    row->name = d->q->name;
    if (!row->location.p || !row->uuid.p || !row->pointer.p)
        return TARN_E_NO_MEMORY;
    d->gone.since_ms = tarn_meta_tx_now_ms(tx);
    if (d->purge)
        ICE_TRY(tarn_meta_purge_put(tx, &d->gone));
    return tarn_meta_entity_delete(tx, row->id);
}

static tarn_err drop_entity(ice_req *q, tarn_entity_kind kind, bool purge)
{
    drop_arg d = {.q = q, .kind = kind, .purge = purge};
    tarn_err err = q->ns.n > 0 ? tarn_meta_commit(q->ice->meta, drop_in_tx, &d) : TARN_E_ICE_NO_TABLE;
    if (err == TARN_E_ICE_NO_TABLE || err == TARN_E_ICE_NO_NAMESPACE)
        return ice_no_such(q, kind, q->ns, q->name);
    ICE_TRY(err);
    if (purge)
        ice_purge_start(q->ice, &d.gone);
    return ice_send_empty(q, 204);
}

tarn_err ice_h_table_drop(ice_req *q)
{
    return drop_entity(q, TARN_ENTITY_TABLE, ice_param_true(q, "purgeRequested"));
}

tarn_err ice_h_view_drop(ice_req *q)
{
    return drop_entity(q, TARN_ENTITY_VIEW, true);
}

/* ------------------------------------------------------------------ rename (views, too) */
typedef struct rename_arg {
    ice_req *q;
    tarn_entity_kind kind, there;
    tarn_str ns, name, to_ns, to_name;
    bool no_target_ns;
} rename_arg;

static tarn_err rename_in_tx(tarn_meta_tx *tx, void *arg)
{
    rename_arg *r = arg;
    tarn_entity_row row, other;
    tarn_ns_row ns;
    tarn_arena *a = tarn_meta_tx_arena(tx);
    r->no_target_ns = false;
    ICE_TRY(tarn_meta_entity_get(NULL, tx, r->q->wh.id, r->ns, r->name, a, &row));
    if (row.kind != r->kind)
        return TARN_E_ICE_NO_TABLE;
    tarn_err err = tarn_meta_ns_get(NULL, tx, r->q->wh.id, r->to_ns, a, &ns);
    r->no_target_ns = err == TARN_E_ICE_NO_NAMESPACE;
    ICE_TRY(err);
    if (tarn_meta_entity_get(NULL, tx, r->q->wh.id, r->to_ns, r->to_name, a, &other) == TARN_OK) {
        r->there = other.kind;
        return TARN_E_ICE_ALREADY_EXISTS;
    }
    return tarn_meta_entity_rename(tx, row.id, ns.id, r->to_name);
}

static tarn_err rename_entity(ice_req *q, tarn_entity_kind kind)
{
    rename_arg r = {.q = q, .kind = kind, .there = kind};
    ICE_TRY(ice_identifier(q, ice_get(q->body, "source"), &r.ns, &r.name));
    ICE_TRY(ice_identifier(q, ice_get(q->body, "destination"), &r.to_ns, &r.to_name));
    tarn_err err = tarn_meta_commit(q->ice->meta, rename_in_tx, &r);
    tarn_str from = ice_show(q, r.ns, r.name), to = ice_show(q, r.to_ns, r.to_name);
    const char *what = kind == TARN_ENTITY_VIEW ? "View" : "Table";
    if (err == TARN_E_ICE_NO_NAMESPACE && r.no_target_ns)
        return ice_fail(&q->e, err, "Cannot rename %.*s to %.*s. Namespace does not exist: %.*s", TARN_STR_ARG(from), TARN_STR_ARG(to),
                        TARN_STR_ARG(ice_ns_show(q, r.to_ns)));
    if (err == TARN_E_ICE_NO_TABLE || err == TARN_E_ICE_NO_NAMESPACE)
        return ice_fail(&q->e, kind == TARN_ENTITY_VIEW ? TARN_E_ICE_NO_VIEW : TARN_E_ICE_NO_TABLE,
                        "Cannot rename %.*s to %.*s. %s does not exist", TARN_STR_ARG(from), TARN_STR_ARG(to), what);
    if (err == TARN_E_ICE_ALREADY_EXISTS)
        return ice_fail(&q->e, err, "Cannot rename %.*s to %.*s. %s already exists", TARN_STR_ARG(from), TARN_STR_ARG(to),
                        r.there == TARN_ENTITY_VIEW ? "View" : "Table");
    return err == TARN_OK ? ice_send_empty(q, 204) : err;
}

tarn_err ice_h_table_rename(ice_req *q)
{
    return rename_entity(q, TARN_ENTITY_TABLE);
}

tarn_err ice_h_view_rename(ice_req *q)
{
    return rename_entity(q, TARN_ENTITY_VIEW);
}

/* ------------------------------------------------------------------ metrics */
tarn_err ice_h_table_metrics(ice_req *q)
{
    tarn_entity_row row;
    ICE_TRY(ice_entity(q, TARN_ENTITY_TABLE, &row));
    return ice_send_empty(q, 204); /* reports are taken and not kept */
}
