/* SPDX-License-Identifier: Apache-2.0 */
/*
 * iceberg, warehouses and the configuration that clients ask for first. A warehouse is a bucket that the catalog knows: the
 * same name, the same owner.
 */
#include <string.h>

#include "catalog.h"

#define WAREHOUSE_NAME_BYTES_MIN 3

/* ------------------------------------------------------------------ names */
static tarn_err check_warehouse_name(ice_req *q, tarn_str name)
{
    bool ok = name.n >= WAREHOUSE_NAME_BYTES_MIN && name.n <= TARN_BUCKET_NAME_BYTES_MAX;
    for (size_t i = 0; ok && i < name.n; i++)
        ok = (name.p[i] >= 'a' && name.p[i] <= 'z') || (name.p[i] >= '0' && name.p[i] <= '9') || name.p[i] == '-';
    if (!ok || name.p[0] == '-' || name.p[name.n - 1] == '-')
        return ice_fail(
            &q->e, TARN_E_ICE_BAD_REQUEST,
            "Invalid warehouse name: 3 to 63 lower-case letters, digits and hyphens are needed, not beginning or ending with a hyphen");
    if (ice_reserved_prefix(name))
        return ice_fail(&q->e, TARN_E_ICE_BAD_REQUEST, "Invalid warehouse name: %.*s is a word of the catalog's paths", TARN_STR_ARG(name));
    return TARN_OK;
}

/* name, s3://name, s3://name/, arn:aws:s3tables:region:account:bucket/name */
static tarn_str plain_name(tarn_str given)
{
    tarn_str bucket, key;
    ptrdiff_t slash = tarn_str_rchr(given, '/');
    if (ice_s3_split(given, &bucket, &key))
        return bucket;
    if (tarn_str_starts(given, "arn:") && slash >= 0)
        return tarn_str_sub(given, (size_t)slash + 1, given.n);
    return given;
}

/* ------------------------------------------------------------------ answers */
static void write_warehouse(tarn_sb *b, const tarn_bucket_row *row)
{
    tarn_sb_cstr(b, "{\"name\":");
    ice_json_write_string(b, row->name);
    tarn_sb_cstr(b, ",\"bucket\":");
    ice_json_write_string(b, row->name);
    tarn_sb_cstr(b, ",\"uuid\":");
    ice_json_write_string(b, row->warehouse_uuid);
    tarn_sb_cstr(b, ",\"created-at\":\"");
    tarn_sb_iso8601_ms(b, row->warehouse_created_ms);
    tarn_sb_cstr(b, "\",\"properties\":");
    if (row->warehouse_properties.n > 0)
        tarn_sb_str(b, row->warehouse_properties);
    else
        tarn_sb_cstr(b, "{}");
    tarn_sb_char(b, '}');
}

static tarn_err send_warehouse(ice_req *q, const tarn_bucket_row *row)
{
    tarn_sb b;
    tarn_sb_init(&b, ICE_LIST_BYTES_MAX);
    write_warehouse(&b, row);
    tarn_err err = ice_send_json(q, 200, &b);
    tarn_sb_free(&b);
    return err;
}

/* ------------------------------------------------------------------ create */
typedef struct create_arg {
    ice_req *q;
    tarn_bucket_row row;
    bool upgrade, was_bucket, not_owner;
} create_arg;

static tarn_err create_in_tx(tarn_meta_tx *tx, void *arg)
{
    create_arg *c = arg;
    tarn_bucket_row there;
    const tarn_identity *who = &c->q->auth.identity;
    tarn_err err = tarn_meta_bucket_get(NULL, tx, c->row.name, c->q->a, &there);
    c->was_bucket = err == TARN_OK && !there.warehouse;
    if (err == TARN_E_NO_SUCH_BUCKET)
        return tarn_meta_bucket_create(tx, &c->row);
    ICE_TRY(err);
    c->not_owner = !who->root && !tarn_str_eq(there.owner, who->access_key);
    if (there.warehouse || !c->upgrade || c->not_owner)
        return TARN_E_ICE_ALREADY_EXISTS;
    there.warehouse = true;
    there.warehouse_uuid = c->row.warehouse_uuid;
    there.warehouse_created_ms = c->row.warehouse_created_ms;
    there.warehouse_properties = c->row.warehouse_properties;
    c->row = there;
    return tarn_meta_bucket_update(tx, &there);
}

tarn_err ice_h_warehouse_create(ice_req *q)
{
    create_arg c = {.q = q, .row = {.owner = q->auth.identity.access_key, .created_ms = tarn_now_ms(), .warehouse = true}};
    ICE_TRY(ice_get_string(q->body, "create warehouse request", "name", &c.row.name, &q->e));
    ICE_TRY(ice_opt_bool(q->body, "create warehouse request", "upgrade-existing", false, &c.upgrade, &q->e));
    ICE_TRY(check_warehouse_name(q, c.row.name));
    c.row.warehouse_uuid = ice_now_uuid(q);
    c.row.warehouse_created_ms = c.row.created_ms;
    c.row.warehouse_properties = TARN_STR("{}");
    tarn_err err = tarn_meta_commit(q->ice->meta, create_in_tx, &c);
    if (err == TARN_E_ICE_ALREADY_EXISTS || err == TARN_E_BUCKET_ALREADY_EXISTS) {
        if (c.was_bucket)
            return ice_fail(&q->e, TARN_E_ICE_ALREADY_EXISTS,
                            c.not_owner ? "Warehouse name is taken: a bucket %.*s of somebody else exists"
                                        : "A bucket %.*s exists already: send \"upgrade-existing\": true to make a warehouse of it",
                            TARN_STR_ARG(c.row.name));
        return ice_fail(&q->e, TARN_E_ICE_ALREADY_EXISTS, "Warehouse already exists: %.*s", TARN_STR_ARG(c.row.name));
    }
    return err == TARN_OK ? send_warehouse(q, &c.row) : err;
}

/* ------------------------------------------------------------------ list, get */
static bool list_one(void *ctx, const tarn_bucket_row *row)
{
    ice_list *l = ctx;
    if (!ice_list_next(l))
        return false;
    ice_json_write_string(&l->b, row->name);
    return ice_list_wrote(l, row->name);
}

tarn_err ice_h_warehouse_list(ice_req *q)
{
    ice_list *l;
    ICE_TRY(ice_list_begin(q, 'w', TARN_STR(""), "warehouses", &l));
    return ice_list_send(q, l, tarn_meta_bucket_list(q->ice->meta, NULL, l->page.after, TARN_STR(""), true, list_one, l));
}

tarn_err ice_h_warehouse_get(ice_req *q)
{
    return send_warehouse(q, &q->wh);
}

/* ------------------------------------------------------------------ delete */
typedef struct delete_arg {
    ice_req *q;
    bool keep_bucket;
} delete_arg;

static tarn_err delete_in_tx(tarn_meta_tx *tx, void *arg)
{
    delete_arg *d = arg;
    tarn_bucket_row row;
    uint64_t tables = 0, views = 0, namespaces = 0;
    ICE_TRY(tarn_meta_bucket_get(NULL, tx, d->q->wh.name, tarn_meta_tx_arena(tx), &row));
    if (!row.warehouse)
        return TARN_E_ICE_NO_WAREHOUSE;
    ICE_TRY(tarn_meta_ns_count(NULL, tx, row.id, 0, &tables, &views, &namespaces)); /* parent 0: the top level */
    if (namespaces > 0)
        return TARN_E_ICE_NOT_EMPTY;
    if (!d->keep_bucket)
        return tarn_meta_bucket_delete(tx, row.id);
    row.warehouse = false;
    row.warehouse_uuid = row.warehouse_properties = TARN_STR("");
    row.warehouse_created_ms = 0;
    return tarn_meta_bucket_update(tx, &row);
}

tarn_err ice_h_warehouse_delete(ice_req *q)
{
    delete_arg d = {.q = q, .keep_bucket = ice_param_true(q, "preserve-bucket")};
    (void)ice_purge_wait(q->ice, q->wh.id, ICE_PURGE_WAIT_MS); /* tables that were just dropped with their files */
    tarn_err err = tarn_meta_commit(q->ice->meta, delete_in_tx, &d);
    if (err == TARN_E_BUCKET_NOT_EMPTY && ice_param_true(q, "force")) {
        ICE_TRY(ice_purge_all(q));
        err = tarn_meta_commit(q->ice->meta, delete_in_tx, &d);
    }
    if (err == TARN_E_ICE_NOT_EMPTY)
        return ice_fail(&q->e, err, "Warehouse %.*s is not empty: drop its namespaces first", TARN_STR_ARG(q->wh.name));
    if (err == TARN_E_BUCKET_NOT_EMPTY)
        return ice_fail(
            &q->e, TARN_E_ICE_NOT_EMPTY,
            "Warehouse %.*s is not empty: its bucket still holds objects; delete them, or use force=true, or keep the bucket with "
            "preserve-bucket=true",
            TARN_STR_ARG(q->wh.name));
    if (err == TARN_E_ICE_NO_WAREHOUSE || err == TARN_E_NO_SUCH_BUCKET)
        return ice_fail(&q->e, TARN_E_ICE_NO_WAREHOUSE, "The specified warehouse does not exist: %.*s", TARN_STR_ARG(q->wh.name));
    return err == TARN_OK ? ice_send_empty(q, 204) : err;
}

/* ------------------------------------------------------------------ configuration */
/* Where clients reach the S3 API: as configured, else as they reached the catalog. */
static void write_endpoint(ice_req *q, tarn_sb *b)
{
    tarn_str host = tarn_req_header(q->http, "host");
    if (*q->ice->server_url) {
        ice_json_write_string(b, tarn_str_of(q->ice->server_url));
        return;
    }
    ice_json_write_string(b, tarn_arena_fmt(q->a, "%s://%.*s", tarn_req_tls(q->http) ? "https" : "http", TARN_STR_ARG(host)));
}

static void write_endpoints(tarn_sb *b)
{
    bool first = true;
    for (size_t i = 0; i < ICE_ROUTES_N; i++) {
        if (!(ICE_ROUTES[i].flags & ICE_R_LISTED))
            continue;
        tarn_sb_fmt(b, "%s\"%s %s\"", first ? "" : ",", ICE_ROUTES[i].method, ICE_ROUTES[i].path);
        first = false;
    }
}

tarn_err ice_h_config(ice_req *q)
{
    tarn_sb b;
    tarn_str region = tarn_str_of(q->ice->region);
    const tarn_param *p = tarn_req_param(q->http, "warehouse");
    ICE_TRY(ice_warehouse_find(q, p ? plain_name(p->value) : TARN_STR("")));
    tarn_sb_init(&b, ICE_LIST_BYTES_MAX);
    tarn_sb_cstr(&b, "{\"defaults\":{\"client.region\":");
    ice_json_write_string(&b, region);
    tarn_sb_cstr(&b, ",\"s3.region\":");
    ice_json_write_string(&b, region);
    tarn_sb_cstr(&b, ",\"s3.endpoint\":");
    write_endpoint(q, &b);
    tarn_sb_cstr(&b, ",\"s3.path-style-access\":\"true\"},\"overrides\":{\"prefix\":");
    ice_json_write_string(&b, q->wh.name);
    tarn_sb_cstr(&b, ",\"namespace-separator\":\"%1F\"},\"endpoints\":[");
    write_endpoints(&b);
    tarn_sb_cstr(&b, "]}");
    tarn_err err = ice_send_json(q, 200, &b);
    tarn_sb_free(&b);
    return err;
}
