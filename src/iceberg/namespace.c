/* SPDX-License-Identifier: Apache-2.0 */
/*
 * iceberg, namespaces: create, list, get, drop, properties.
 *
 * A namespace without a `location` property shows one that is made from its name, as some engines place their tables below
 * it and refuse to work without; it is not stored.
 */
#include <string.h>

#include "catalog.h"

/* ------------------------------------------------------------------ properties */
static tarn_err check_properties(ice_req *q, const json_t *map)
{
    const char *key;
    json_t *value;
    ICE_TRY(ice_check_string_map(map, "properties", &q->e));
    json_object_foreach((json_t *)(uintptr_t)map, key, value)
    {
        if (strlen(key) > ICE_PROPERTY_BYTES_MAX || json_string_length(value) > ICE_PROPERTY_BYTES_MAX)
            return ice_fail(&q->e, TARN_E_ICE_BAD_REQUEST, "Invalid properties: a key or value is longer than %d bytes",
                            ICE_PROPERTY_BYTES_MAX);
    }
    return TARN_OK;
}

static tarn_err properties_text(ice_req *q, const json_t *map, tarn_str *out)
{
    tarn_sb b;
    tarn_sb_init(&b, ICE_NS_PROPERTIES_BYTES_MAX);
    ice_json_write(&b, map);
    tarn_err err = b.failed ? ice_fail(&q->e, TARN_E_ICE_BAD_REQUEST, "Invalid properties: all together are longer than %d bytes",
                                       ICE_NS_PROPERTIES_BYTES_MAX)
                            : TARN_OK;
    if (err == TARN_OK) {
        *out = tarn_arena_str(q->a, tarn_sb_view(&b));
        err = out->p ? TARN_OK : TARN_E_NO_MEMORY;
    }
    tarn_sb_free(&b);
    return err;
}

static tarn_err parse_properties(ice_req *q, tarn_str text, json_t **out)
{
    if (text.n > 0)
        return ice_json_parse_object(text, out, &q->e);
    *out = json_object();
    return *out ? TARN_OK : TARN_E_NO_MEMORY;
}

static tarn_str shown_location(ice_req *q, tarn_str path)
{
    tarn_str l = tarn_arena_fmt(q->a, "s3://%.*s/%.*s", TARN_STR_ARG(q->wh.name), TARN_STR_ARG(path));
    for (size_t i = 0; i < l.n; i++)
        if (l.p[i] == ICE_NS_SEPARATOR)
            ((char *)(uintptr_t)l.p)[i] = '/';
    return l;
}

static tarn_err send_namespace(ice_req *q, const tarn_ns_row *row)
{
    json_t *map = NULL;
    tarn_sb b;
    ICE_TRY(parse_properties(q, row->properties, &map));
    tarn_err err = json_object_get(map, "location") ? TARN_OK : ice_set_str(map, "location", shown_location(q, row->path));
    if (err == TARN_OK) {
        tarn_sb_init(&b, ICE_LIST_BYTES_MAX);
        tarn_sb_cstr(&b, "{\"namespace\":");
        ice_ns_write_json(&b, row->path);
        tarn_sb_cstr(&b, ",\"properties\":");
        ice_json_write(&b, map);
        tarn_sb_char(&b, '}');
        err = ice_send_json(q, 200, &b);
        tarn_sb_free(&b);
    }
    json_decref(map);
    return err;
}

/* ------------------------------------------------------------------ create, get, head */
static tarn_err create_in_tx(tarn_meta_tx *tx, void *arg)
{
    return tarn_meta_ns_create(tx, arg);
}

tarn_err ice_h_ns_create(ice_req *q)
{
    tarn_ns_row row = {.bucket_id = q->wh.id, .created_ms = tarn_now_ms(), .properties = TARN_STR("{}")};
    json_t *map = NULL;
    ICE_TRY(ice_ns_from_json(q, json_object_get(q->body, "namespace"), &row.path));
    ICE_TRY(ice_opt_object(q->body, "create namespace request", "properties", &map, &q->e));
    if (map) {
        ICE_TRY(check_properties(q, map));
        ICE_TRY(properties_text(q, map, &row.properties));
    }
    tarn_err err = tarn_meta_commit(q->ice->meta, create_in_tx, &row);
    if (err == TARN_E_ICE_ALREADY_EXISTS)
        return ice_fail(&q->e, err, "Namespace already exists: %.*s", TARN_STR_ARG(ice_ns_show(q, row.path)));
    if (err == TARN_E_ICE_NO_NAMESPACE) {
        ptrdiff_t cut = tarn_str_rchr(row.path, ICE_NS_SEPARATOR);
        return ice_no_namespace(q, tarn_str_sub(row.path, 0, cut < 0 ? 0 : (size_t)cut));
    }
    return err == TARN_OK ? send_namespace(q, &row) : err;
}

tarn_err ice_h_ns_get(ice_req *q)
{
    tarn_ns_row row;
    ICE_TRY(ice_namespace(q, &row));
    return send_namespace(q, &row);
}

tarn_err ice_h_ns_head(ice_req *q)
{
    tarn_ns_row row;
    ICE_TRY(ice_namespace(q, &row));
    return ice_send_empty(q, 204);
}

/* ------------------------------------------------------------------ list */
static bool list_one(void *ctx, const tarn_ns_row *row)
{
    ice_list *l = ctx;
    if (!ice_list_next(l))
        return false;
    ice_ns_write_json(&l->b, row->path);
    return ice_list_wrote(l, row->path);
}

/* `parent` comes encoded once by the query, and by some clients once more by themselves. */
static tarn_err read_parent(ice_req *q, tarn_str *out)
{
    const tarn_param *p = tarn_req_param(q->http, "parent");
    *out = TARN_STR("");
    if (!p || p->value.n == 0)
        return TARN_OK;
    if (tarn_str_find(p->value, TARN_STR("%1F")) >= 0 || tarn_str_find(p->value, TARN_STR("%1f")) >= 0)
        ICE_TRY(ice_ns_decode(q, p->value, false, out));
    else
        *out = p->value;
    return ice_check_ns(q, *out);
}

tarn_err ice_h_ns_list(ice_req *q)
{
    tarn_str parent = TARN_STR_NULL;
    ice_list *l;
    ICE_TRY(read_parent(q, &parent));
    ICE_TRY(ice_list_begin(q, 'n', parent, "namespaces", &l));
    tarn_err err = tarn_meta_ns_list(q->ice->meta, q->wh.id, parent, l->page.after, list_one, l);
    return ice_list_send(q, l, err == TARN_E_ICE_NO_NAMESPACE ? ice_no_namespace(q, parent) : err);
}

/* ------------------------------------------------------------------ drop */
typedef struct drop_arg {
    uint64_t bucket_id;
    tarn_str path;
    uint64_t tables, views, children;
} drop_arg;

static tarn_err drop_in_tx(tarn_meta_tx *tx, void *arg)
{
    drop_arg *d = arg;
    tarn_ns_row row;
    ICE_TRY(tarn_meta_ns_get(NULL, tx, d->bucket_id, d->path, tarn_meta_tx_arena(tx), &row));
    ICE_TRY(tarn_meta_ns_count(NULL, tx, d->bucket_id, row.id, &d->tables, &d->views, &d->children));
    return tarn_meta_ns_delete(tx, d->bucket_id, row.id);
}

tarn_err ice_h_ns_delete(ice_req *q)
{
    drop_arg d = {.bucket_id = q->wh.id, .path = q->ns};
    if (q->ns.n == 0)
        return ice_no_namespace(q, q->ns);
    tarn_err err = tarn_meta_commit(q->ice->meta, drop_in_tx, &d);
    if (err == TARN_E_ICE_NO_NAMESPACE)
        return ice_no_namespace(q, q->ns);
    if (err == TARN_E_ICE_NOT_EMPTY)
        return ice_fail(&q->e, err, "Namespace %.*s is not empty. Contains %llu table(s), %llu view(s), %llu namespace(s).",
                        TARN_STR_ARG(ice_ns_show(q, q->ns)), (unsigned long long)d.tables, (unsigned long long)d.views,
                        (unsigned long long)d.children);
    return err == TARN_OK ? ice_send_empty(q, 204) : err;
}

/* ------------------------------------------------------------------ properties of one that is there */
typedef struct update_arg {
    ice_req *q;
    json_t *updates, *removals; /* borrowed, may be NULL */
    json_t *removed, *missing;  /* lists, filled in */
} update_arg;

static tarn_err remove_keys(update_arg *u, json_t *map)
{
    json_array_clear(u->removed);
    json_array_clear(u->missing);
    for (size_t i = 0; i < json_array_size(u->removals); i++) {
        json_t *key = json_array_get(u->removals, i);
        bool there = json_object_get(map, json_string_value(key)) != NULL;
        if (there)
            json_object_del(map, json_string_value(key));
        if (json_array_append(there ? u->removed : u->missing, key) != 0)
            return TARN_E_NO_MEMORY;
    }
    return TARN_OK;
}

static tarn_err update_in_tx(tarn_meta_tx *tx, void *arg)
{
    update_arg *u = arg;
    tarn_ns_row row;
    json_t *map = NULL;
    ICE_TRY(tarn_meta_ns_get(NULL, tx, u->q->wh.id, u->q->ns, tarn_meta_tx_arena(tx), &row));
    ICE_TRY(parse_properties(u->q, row.properties, &map));
    tarn_err err = remove_keys(u, map);
    if (err == TARN_OK && u->updates && json_object_update(map, u->updates) != 0)
        err = TARN_E_NO_MEMORY;
    if (err == TARN_OK)
        err = properties_text(u->q, map, &row.properties);
    json_decref(map);
    return err == TARN_OK ? tarn_meta_ns_update(tx, &row) : err;
}

static tarn_err check_update(update_arg *u)
{
    ice_req *q = u->q;
    ICE_TRY(ice_opt_object(q->body, "update namespace request", "updates", &u->updates, &q->e));
    ICE_TRY(ice_opt_array(q->body, "update namespace request", "removals", &u->removals, &q->e));
    if (u->updates)
        ICE_TRY(check_properties(q, u->updates));
    for (size_t i = 0; i < json_array_size(u->removals); i++) {
        const json_t *key = json_array_get(u->removals, i);
        if (!json_is_string(key))
            return ice_fail(&q->e, TARN_E_ICE_BAD_REQUEST, "Cannot parse update namespace request: removals must be strings");
        if (json_object_get(u->updates, json_string_value(key)))
            return ice_fail(&q->e, TARN_E_ICE_UNPROCESSABLE, "Invalid namespace update, cannot simultaneously set and remove key: %s",
                            json_string_value(key));
    }
    return TARN_OK;
}

static tarn_err send_update(update_arg *u)
{
    tarn_sb b;
    const char *key;
    json_t *value;
    bool first = true;
    tarn_sb_init(&b, ICE_LIST_BYTES_MAX);
    tarn_sb_cstr(&b, "{\"updated\":[");
    json_object_foreach(u->updates, key, value)
    {
        if (!first)
            tarn_sb_char(&b, ',');
        first = false;
        ice_json_write_string(&b, tarn_str_of(key));
    }
    tarn_sb_cstr(&b, "],\"removed\":");
    ice_json_write(&b, u->removed);
    tarn_sb_cstr(&b, ",\"missing\":");
    ice_json_write(&b, u->missing);
    tarn_sb_char(&b, '}');
    tarn_err err = ice_send_json(u->q, 200, &b);
    tarn_sb_free(&b);
    return err;
}

tarn_err ice_h_ns_properties(ice_req *q)
{
    update_arg u = {.q = q, .removed = json_array(), .missing = json_array()};
    tarn_err err = u.removed && u.missing ? check_update(&u) : TARN_E_NO_MEMORY;
    if (err == TARN_OK && q->ns.n == 0)
        err = TARN_E_ICE_NO_NAMESPACE;
    if (err == TARN_OK)
        err = tarn_meta_commit(q->ice->meta, update_in_tx, &u);
    if (err == TARN_E_ICE_NO_NAMESPACE)
        err = ice_no_namespace(q, q->ns);
    if (err == TARN_OK)
        err = send_update(&u);
    json_decref(u.removed);
    json_decref(u.missing);
    return err;
}
