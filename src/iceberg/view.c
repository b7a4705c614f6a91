/* SPDX-License-Identifier: Apache-2.0 */
/*
 * iceberg, view metadata (format version 1): create, commit, load.
 *
 * A version with equal content is used again; ids only grow. What became current in this commit joins the version log once,
 * at the end. Versions past version.history.size go, but never one that was added here or is current; the log is cut
 * behind its newest entry of a version that went.
 */
#include <stdlib.h>
#include <string.h>

#include "build.h"

#define VIEW_FORMAT_VERSION 1

/* ------------------------------------------------------------------ versions */
static tarn_err check_representations(const json_t *list, ice_error *e)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *r = json_array_get(list, i);
        tarn_str type = TARN_STR_NULL, sql = TARN_STR_NULL, dialect = TARN_STR_NULL;
        if (!json_is_object(r))
            return ice_fail(e, TARN_E_ICE_BAD_REQUEST, "Cannot parse view representation: an object is needed");
        ICE_TRY(ice_get_string(r, "view representation", "type", &type, e));
        if (!tarn_str_ieqc(type, "sql"))
            continue; /* a kind that is still to come is carried along */
        const json_t *text = ice_get(r, "sql");
        if (!json_is_string(text))
            return ice_fail(e, TARN_E_ICE_BAD_REQUEST, "Cannot parse view representation: field sql must be a string");
        sql = ice_str(text);
        ICE_TRY(ice_get_string(r, "view representation", "dialect", &dialect, e));
        if (sql.n == 0)
            return ice_fail(e, TARN_E_ICE_ILLEGAL_ARGUMENT, "Invalid view version: the SQL text is empty");
        for (size_t k = 0; k < i; k++)
            if (tarn_str_ieq(dialect, ice_string_or_empty(json_array_get(list, k), "dialect")))
                return ice_fail(e, TARN_E_ICE_ILLEGAL_ARGUMENT, "Invalid view version: Cannot add multiple queries for dialect %.*s",
                                TARN_STR_ARG(dialect));
    }
    return TARN_OK;
}

static tarn_err check_version(const json_t *v, int64_t *id, int64_t *schema_id, ice_error *e)
{
    json_t *summary = NULL, *list = NULL, *ns = NULL;
    int64_t time = 0;
    tarn_str catalog = TARN_STR_NULL;
    bool has = false;
    ICE_TRY(ice_opt_int32(v, "view version", "version-id", &has, id, e));
    if (!has || *id < 1)
        *id = 1;
    ICE_TRY(ice_get_int(v, "view version", "timestamp-ms", &time, e));
    ICE_TRY(ice_get_int32(v, "view version", "schema-id", schema_id, e));
    ICE_TRY(ice_get_object(v, "view version", "summary", &summary, e));
    ICE_TRY(ice_check_string_map(summary, "view version summary", e));
    ICE_TRY(ice_opt_string(v, "view version", "default-catalog", &catalog, e));
    ICE_TRY(ice_get_array(v, "view version", "default-namespace", &ns, e));
    for (size_t i = 0; i < json_array_size(ns); i++)
        if (!json_is_string(json_array_get(ns, i)))
            return ice_fail(e, TARN_E_ICE_BAD_REQUEST, "Cannot parse view version: default-namespace must be a list of strings");
    ICE_TRY(ice_get_array(v, "view version", "representations", &list, e));
    if (json_array_size(list) == 0)
        return ice_fail(e, TARN_E_ICE_ILLEGAL_ARGUMENT, "Invalid view version: it has no representation");
    return check_representations(list, e);
}

static bool same_value(const json_t *a, const json_t *b, const char *key)
{
    const json_t *x = ice_get(a, key), *y = ice_get(b, key);
    return x && y ? json_equal(x, y) : x == y;
}

static bool same_version(const json_t *a, const json_t *b)
{
    return same_value(a, b, "summary") && same_value(a, b, "representations") && same_value(a, b, "default-catalog") &&
           same_value(a, b, "default-namespace") && same_value(a, b, "schema-id");
}

/* Adds `copy` (taken over) unless an equal version is there. */
static tarn_err put_version(ice_build *b, json_t *copy, int64_t id)
{
    json_t *list = NULL;
    const json_t *known = ice_child(b, ICE_PART_VERSIONS);
    int64_t top = ice_highest(known, "version-id");
    for (size_t i = 0; i < json_array_size(known); i++) {
        if (same_version(json_array_get(known, i), copy)) {
            b->last_version = ice_int_or(json_array_get(known, i), "version-id", 0);
            json_decref(copy);
            return TARN_OK;
        }
    }
    id = id <= top ? top + 1 : id;
    tarn_err err = ice_set_int(copy, "version-id", id);
    if (err == TARN_OK)
        err = ice_own(b, ICE_PART_VERSIONS, &list);
    if (err == TARN_OK)
        err = ice_id_set_add(b->ctx->arena, &b->added, id);
    if (err != TARN_OK) {
        json_decref(copy);
        return err;
    }
    b->last_version = id;
    b->changed = true;
    return ice_push(list, copy);
}

static tarn_err add_version(ice_build *b, const json_t *version)
{
    int64_t id = 0, schema_id = 0;
    ICE_TRY(check_version(version, &id, &schema_id, b->e));
    if (schema_id == ICE_LAST_ADDED) {
        if (b->last_schema == ICE_LAST_ADDED)
            return ice_fail(b->e, TARN_E_ICE_VALIDATION, "Cannot set last added schema: no schema has been added");
        schema_id = b->last_schema;
    }
    if (!ice_find(ice_child(b, ICE_PART_SCHEMAS), "schema-id", schema_id))
        return ice_fail(b->e, TARN_E_ICE_VALIDATION, "Cannot add version with unknown schema: %lld", (long long)schema_id);
    json_t *copy = json_copy((json_t *)(uintptr_t)version);
    if (!copy)
        return TARN_E_NO_MEMORY;
    if (json_is_null(json_object_get(copy, "default-catalog")))
        json_object_del(copy, "default-catalog");
    tarn_err err = ice_set_int(copy, "schema-id", schema_id);
    if (err != TARN_OK) {
        json_decref(copy);
        return err;
    }
    return put_version(b, copy, id);
}

static tarn_err up_add_version(ice_build *b, const json_t *u)
{
    json_t *version = NULL;
    ICE_TRY(ice_get_object(u, "add-view-version", "view-version", &version, b->e));
    return add_version(b, version);
}

static tarn_err set_current(ice_build *b, int64_t id)
{
    if (id == ICE_LAST_ADDED) {
        if (b->last_version == ICE_LAST_ADDED)
            return ice_fail(b->e, TARN_E_ICE_VALIDATION, "Cannot set last version id: no current version id has been set");
        id = b->last_version;
    }
    if (ice_int_or(b->md, "current-version-id", -1) == id)
        return TARN_OK;
    if (!ice_find(ice_child(b, ICE_PART_VERSIONS), "version-id", id))
        return ice_fail(b->e, TARN_E_ICE_VALIDATION, "Cannot set current version to unknown version: %lld", (long long)id);
    b->changed = true;
    return ice_set_int(b->md, "current-version-id", id);
}

static tarn_err up_set_current(ice_build *b, const json_t *u)
{
    int64_t id = 0;
    ICE_TRY(ice_get_int32(u, "set-current-view-version", "view-version-id", &id, b->e));
    return set_current(b, id);
}

/* ------------------------------------------------------------------ the other updates */
static tarn_err up_assign_uuid(ice_build *b, const json_t *u)
{
    tarn_str uuid = TARN_STR_NULL;
    ICE_TRY(ice_get_string(u, "assign-uuid", "uuid", &uuid, b->e));
    if (!tarn_str_ieq(uuid, ice_string_or_empty(b->md, "view-uuid")))
        return ice_fail(b->e, TARN_E_ICE_VALIDATION, "Cannot reassign uuid");
    return TARN_OK;
}

static tarn_err up_upgrade_format(ice_build *b, const json_t *u)
{
    int64_t v = 0;
    ICE_TRY(ice_get_int32(u, "upgrade-format-version", "format-version", &v, b->e));
    if (v != VIEW_FORMAT_VERSION)
        return ice_fail(b->e, TARN_E_ICE_VALIDATION, "Cannot upgrade view to unsupported format version: v%lld (supported: v%d)",
                        (long long)v, VIEW_FORMAT_VERSION);
    return TARN_OK;
}

static tarn_err up_add_schema(ice_build *b, const json_t *u)
{
    json_t *schema = NULL;
    ICE_TRY(ice_get_object(u, "add-schema", "schema", &schema, b->e));
    return ice_put_schema(b, schema, false, &b->last_schema);
}

static const ice_update_row view_updates[] = {
    {"assign-uuid", up_assign_uuid},       {"upgrade-format-version", up_upgrade_format}, {"add-schema", up_add_schema},
    {"set-location", ice_up_set_location}, {"set-properties", ice_up_set_properties},     {"remove-properties", ice_up_remove_properties},
    {"add-view-version", up_add_version},  {"set-current-view-version", up_set_current},
};

/* ------------------------------------------------------------------ the end of a commit */
static void list_dialects(tarn_sb *out, const json_t *version)
{
    const json_t *list = json_object_get(version, "representations");
    for (size_t i = 0; i < json_array_size(list); i++)
        tarn_sb_fmt(out, "%s%.*s", i ? ", " : "", TARN_STR_ARG(ice_string_or_empty(json_array_get(list, i), "dialect")));
}

static bool has_dialect(const json_t *version, tarn_str dialect)
{
    const json_t *list = json_object_get(version, "representations");
    for (size_t i = 0; i < json_array_size(list); i++)
        if (tarn_str_ieq(dialect, ice_string_or_empty(json_array_get(list, i), "dialect")))
            return true;
    return false;
}

/* Readers of a dialect that is gone would lose the view. */
static tarn_err check_dialects(ice_build *b)
{
    const json_t *old = ice_find(json_object_get(b->base, "versions"), "version-id", ice_int_or(b->base, "current-version-id", -1));
    const json_t *now = ice_find(ice_child(b, ICE_PART_VERSIONS), "version-id", ice_int_or(b->md, "current-version-id", -1));
    const json_t *list = json_object_get(old, "representations");
    if (!old || old == now || ice_property_true(b->md, "replace.drop-dialect.allowed"))
        return TARN_OK;
    for (size_t i = 0; i < json_array_size(list); i++) {
        tarn_str d = ice_string_or_empty(json_array_get(list, i), "dialect");
        if (d.n == 0 || has_dialect(now, d))
            continue;
        char before[256], after[256];
        tarn_sb x, y;
        tarn_sb_init_fixed(&x, before, sizeof before);
        tarn_sb_init_fixed(&y, after, sizeof after);
        list_dialects(&x, old);
        list_dialects(&y, now);
        return ice_fail(
            b->e, TARN_E_ICE_VALIDATION,
            "Cannot replace view due to loss of view dialects (replace.drop-dialect.allowed=false):\nPrevious dialects: [%.*s]\nNew "
            "dialects: [%.*s]",
            TARN_STR_ARG(tarn_sb_view(&x)), TARN_STR_ARG(tarn_sb_view(&y)));
    }
    return TARN_OK;
}

static tarn_err log_current(ice_build *b)
{
    int64_t id = ice_int_or(b->md, "current-version-id", -1), at = b->ctx->now_ms;
    json_t *log = NULL, *entry = NULL;
    if (b->base && ice_int_or(b->base, "current-version-id", -1) == id)
        return TARN_OK;
    if (ice_id_set_has(&b->added, id))
        at = ice_int_or(ice_find(ice_child(b, ICE_PART_VERSIONS), "version-id", id), "timestamp-ms", at);
    ICE_TRY(ice_own(b, ICE_PART_VERSION_LOG, &log));
    entry = json_object();
    ICE_TRY(ice_push(log, entry));
    ICE_TRY(ice_set_int(entry, "timestamp-ms", at));
    return ice_set_int(entry, "version-id", id);
}

static int cmp_descending(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x > y ? -1 : x < y;
}

/* The ids that stay: current, added here, then the newest. */
static tarn_err choose_kept(ice_build *b, const json_t *versions, size_t keep, ice_id_set *out)
{
    size_t n = json_array_size(versions);
    int64_t *ids = TARN_ARENA_ARRAY(b->ctx->arena, int64_t, n);
    if (!ids)
        return TARN_E_NO_MEMORY;
    ICE_TRY(ice_id_set_add(b->ctx->arena, out, ice_int_or(b->md, "current-version-id", -1)));
    for (size_t i = 0; i < n; i++) {
        ids[i] = ice_int_or(json_array_get(versions, i), "version-id", -1);
        if (ice_id_set_has(&b->added, ids[i]))
            ICE_TRY(ice_id_set_add(b->ctx->arena, out, ids[i]));
    }
    qsort(ids, n, sizeof ids[0], cmp_descending);
    for (size_t i = 0; i < n && out->n < keep; i++)
        ICE_TRY(ice_id_set_add(b->ctx->arena, out, ids[i]));
    return TARN_OK;
}

static tarn_err keep_listed(const json_t *old, const ice_id_set *kept, bool cut_at_gap, json_t *out)
{
    for (size_t i = 0; i < json_array_size(old); i++) {
        json_t *item = json_array_get(old, i);
        if (ice_id_set_has(kept, ice_int_or(item, "version-id", -1))) {
            if (json_array_append(out, item) != 0)
                return TARN_E_NO_MEMORY;
        } else if (cut_at_gap) {
            json_array_clear(out);
        }
    }
    return TARN_OK;
}

static tarn_err expire_versions(ice_build *b)
{
    const json_t *versions = ice_child(b, ICE_PART_VERSIONS);
    int64_t keep = ice_property_int(b->md, "version.history.size", ICE_VIEW_HISTORY_DEFAULT);
    size_t must = b->added.n + (ice_id_set_has(&b->added, ice_int_or(b->md, "current-version-id", -1)) ? 0 : 1);
    if (keep < 1)
        return ice_fail(b->e, TARN_E_ICE_ILLEGAL_ARGUMENT, "version.history.size must be positive but was %lld", (long long)keep);
    size_t limit = (size_t)keep > must ? (size_t)keep : must;
    if (json_array_size(versions) <= limit)
        return TARN_OK;
    ice_id_set kept = {0};
    ICE_TRY(choose_kept(b, versions, limit, &kept));
    json_t *list = json_array(), *log = json_array();
    tarn_err err = list && log ? keep_listed(versions, &kept, false, list) : TARN_E_NO_MEMORY;
    if (err == TARN_OK)
        err = keep_listed(ice_child(b, ICE_PART_VERSION_LOG), &kept, true, log);
    if (err != TARN_OK) {
        json_decref(list);
        json_decref(log);
        return err;
    }
    ICE_TRY(ice_replace(b, ICE_PART_VERSIONS, list));
    return ice_replace(b, ICE_PART_VERSION_LOG, log);
}

static tarn_err finish(ice_build *b)
{
    ICE_TRY(check_dialects(b));
    ICE_TRY(log_current(b));
    return expire_versions(b);
}

tarn_err ice_view_apply(const json_t *base, const json_t *requirements, const json_t *updates, const ice_ctx *ctx, ice_result *out,
                        ice_error *e)
{
    ice_build b = {.ctx = ctx, .e = e, .base = base};
    b.last_schema = b.last_version = ICE_LAST_ADDED;
    ICE_TRY(ice_check_requirements(base, requirements, e));
    b.md = json_copy((json_t *)(uintptr_t)base);
    tarn_err err = b.md ? ice_apply_updates(&b, updates, view_updates, TARN_ARRAY_LEN(view_updates)) : TARN_E_NO_MEMORY;
    if (err == TARN_OK && b.changed)
        err = finish(&b);
    if (err == TARN_E_NO_MEMORY)
        ice_fail_plain(e, err);
    if (err != TARN_OK) {
        json_decref(b.md);
        return err;
    }
    if (!b.changed) {
        json_decref(b.md);
        b.md = json_incref((json_t *)(uintptr_t)base);
    }
    *out = (ice_result){.metadata = b.md, .changed = b.changed};
    return TARN_OK;
}

/* ------------------------------------------------------------------ create */
static tarn_err create_head(ice_build *b, const json_t *request, tarn_str uuid)
{
    tarn_str location = TARN_STR_NULL;
    json_t *properties = NULL;
    bool use = false;
    ICE_TRY(ice_opt_string(request, "create view request", "location", &location, b->e));
    if (location.n > 0)
        ICE_TRY(ice_location_check(b->ctx, &location, &use, b->e));
    if (!use) {
        location = tarn_arena_fmt(b->ctx->arena, "%.*s%.*s", TARN_STR_ARG(b->ctx->warehouse_root), TARN_STR_ARG(uuid));
        if (!location.p)
            return TARN_E_NO_MEMORY;
    }
    ICE_TRY(ice_opt_object(request, "create view request", "properties", &properties, b->e));
    if (properties)
        ICE_TRY(ice_check_string_map(properties, "properties", b->e));
    ICE_TRY(ice_check_path_properties(b->ctx, properties, b->e));
    ICE_TRY(ice_set_str(b->md, "view-uuid", uuid));
    ICE_TRY(ice_set_int(b->md, "format-version", VIEW_FORMAT_VERSION));
    ICE_TRY(ice_set_str(b->md, "location", location));
    ICE_TRY(ice_set_int(b->md, "current-version-id", -1));
    ICE_TRY(ice_set(b->md, "versions", json_array()));
    ICE_TRY(ice_set(b->md, "version-log", json_array()));
    ICE_TRY(ice_set(b->md, "schemas", json_array()));
    ICE_TRY(ice_set(b->md, "properties", properties ? json_copy(properties) : json_object()));
    b->owned |= 1u << ICE_PART_VERSIONS | 1u << ICE_PART_VERSION_LOG | 1u << ICE_PART_SCHEMAS | 1u << ICE_PART_PROPERTIES;
    return TARN_OK;
}

static tarn_err create_body(ice_build *b, const json_t *request)
{
    json_t *schema = NULL, *version = NULL;
    ICE_TRY(ice_get_object(request, "create view request", "schema", &schema, b->e));
    ICE_TRY(ice_get_object(request, "create view request", "view-version", &version, b->e));
    ICE_TRY(ice_put_schema(b, schema, false, &b->last_schema));
    json_t *copy = json_copy(version);
    if (!copy)
        return TARN_E_NO_MEMORY;
    tarn_err err = ice_set_int(copy, "schema-id", b->last_schema); /* what the request says about the id does not count */
    if (err == TARN_OK)
        err = add_version(b, copy);
    json_decref(copy);
    ICE_TRY(err);
    ICE_TRY(set_current(b, ICE_LAST_ADDED));
    return finish(b);
}

tarn_err ice_view_create(const json_t *request, tarn_str uuid, const ice_ctx *ctx, json_t **out, ice_error *e)
{
    ice_build b = {.ctx = ctx, .e = e, .md = json_object()};
    b.last_schema = b.last_version = ICE_LAST_ADDED;
    tarn_err err = b.md ? create_head(&b, request, uuid) : TARN_E_NO_MEMORY;
    if (err == TARN_OK)
        err = create_body(&b, request);
    return ice_hand_over(b.md, err, out, e);
}

/* ------------------------------------------------------------------ load */
tarn_err ice_view_load(const json_t *raw, json_t **out, ice_error *e)
{
    int64_t format = 0, current = 0;
    tarn_str uuid = TARN_STR_NULL, location = TARN_STR_NULL;
    json_t *versions = NULL, *schemas = NULL, *log = NULL, *properties = NULL;
    if (!json_is_object(raw))
        return ice_fail(e, TARN_E_ICE_BAD_REQUEST, "Cannot parse view metadata: an object is needed");
    ICE_TRY(ice_get_int32(raw, "view metadata", "format-version", &format, e));
    if (format != VIEW_FORMAT_VERSION)
        return ice_fail(e, TARN_E_ICE_VALIDATION, "Unsupported format version: %lld", (long long)format);
    ICE_TRY(ice_get_string(raw, "view metadata", "view-uuid", &uuid, e));
    ICE_TRY(ice_get_string(raw, "view metadata", "location", &location, e));
    ICE_TRY(ice_get_int32(raw, "view metadata", "current-version-id", &current, e));
    ICE_TRY(ice_get_array(raw, "view metadata", "versions", &versions, e));
    ICE_TRY(ice_get_array(raw, "view metadata", "schemas", &schemas, e));
    ICE_TRY(ice_get_array(raw, "view metadata", "version-log", &log, e));
    ICE_TRY(ice_opt_object(raw, "view metadata", "properties", &properties, e));
    for (size_t i = 0; i < json_array_size(versions); i++) {
        int64_t id = 0, schema_id = 0;
        ICE_TRY(check_version(json_array_get(versions, i), &id, &schema_id, e));
        if (!ice_find(schemas, "schema-id", schema_id))
            return ice_fail(e, TARN_E_ICE_VALIDATION, "Cannot find schema-id=%lld of version %lld", (long long)schema_id, (long long)id);
    }
    if (!ice_find(versions, "version-id", current))
        return ice_fail(e, TARN_E_ICE_VALIDATION, "Cannot find current version %lld in view versions", (long long)current);
    json_t *md = json_copy((json_t *)(uintptr_t)raw);
    if (md && !properties && ice_set(md, "properties", json_object()) != TARN_OK) {
        json_decref(md);
        md = NULL;
    }
    if (!md)
        return ice_fail_plain(e, TARN_E_NO_MEMORY);
    *out = md;
    return TARN_OK;
}
