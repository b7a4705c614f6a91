/* SPDX-License-Identifier: Apache-2.0 */
/*
 * iceberg, new tables: metadata from a CreateTableRequest. All ids are given anew; what the request says about ids only tells
 * which column a partition or sort field means.
 */
#include <string.h>

#include "build.h"

static const char *const reserved[] = {
    "format-version",      "uuid",
    "snapshot-count",      "current-snapshot-summary",
    "current-snapshot-id", "current-snapshot-timestamp-ms",
    "current-schema",      "default-partition-spec",
    "default-sort-order",
};

/* ------------------------------------------------------------------ properties */
static tarn_err read_format(const json_t *properties, int64_t *format, ice_error *e)
{
    tarn_str s = ice_string_or_empty(properties, "format-version");
    *format = ICE_FORMAT_VERSION_DEFAULT;
    if (s.p && !tarn_str_to_i64(tarn_str_trim(s), format))
        return ice_fail(e, TARN_E_ICE_BAD_REQUEST, "Invalid format-version: %.*s is no number", TARN_STR_ARG(s));
    if (*format < 1 || *format > ICE_FORMAT_VERSION_MAX)
        return ice_fail(e, TARN_E_ICE_VALIDATION, "Unsupported format version: v%lld (supported: v%d)", (long long)*format,
                        ICE_FORMAT_VERSION_MAX);
    return TARN_OK;
}

static tarn_err check_commit_properties(const json_t *properties, ice_error *e)
{
    static const char *const names[] = {"commit.retry.num-retries", "commit.retry.min-wait-ms", "commit.retry.max-wait-ms",
                                        "commit.retry.total-timeout-ms"};
    for (size_t i = 0; i < TARN_ARRAY_LEN(names); i++) {
        tarn_str s = ice_string_or_empty(properties, names[i]);
        int64_t v = 0;
        if (s.p && (!tarn_str_to_i64(s, &v) || v < 0))
            return ice_fail(e, TARN_E_ICE_VALIDATION, "Table property %s must have integer value but is: %.*s", names[i], TARN_STR_ARG(s));
    }
    return TARN_OK;
}

static tarn_err check_metrics_properties(const json_t *properties, const ice_schema *schema, ice_error *e)
{
    static const char prefix[] = "write.metadata.metrics.column.";
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)properties, key, value)
    {
        if (strncmp(key, prefix, sizeof prefix - 1) == 0 && !ice_schema_by_name(schema, tarn_str_of(key + sizeof prefix - 1)))
            return ice_fail(e, TARN_E_ICE_VALIDATION, "Invalid metrics config, could not find column %s from table prop %s in schema",
                            key + sizeof prefix - 1, key);
    }
    return TARN_OK;
}

static tarn_err make_properties(const json_t *given, bool staged, const ice_ctx *ctx, json_t **out, ice_error *e)
{
    if (given)
        ICE_TRY(ice_check_string_map(given, "properties", e));
    ICE_TRY(check_commit_properties(given, e));
    ICE_TRY(ice_check_path_properties(ctx, given, e));
    json_t *p = given ? json_copy((json_t *)(uintptr_t)given) : json_object();
    if (!p)
        return TARN_E_NO_MEMORY;
    for (size_t i = 0; i < TARN_ARRAY_LEN(reserved); i++)
        json_object_del(p, reserved[i]);
    tarn_err err = TARN_OK;
    if (!json_object_get(p, "write.parquet.compression-codec"))
        err = ice_set_str(p, "write.parquet.compression-codec", TARN_STR("zstd"));
    if (err == TARN_OK && staged && !json_object_get(p, "created-at")) {
        char memory[64];
        tarn_sb b;
        tarn_sb_init_fixed(&b, memory, sizeof memory);
        tarn_sb_iso8601_ms(&b, ctx->now_ms);
        err = ice_set_str(p, "created-at", tarn_sb_view(&b));
    }
    if (err != TARN_OK) {
        json_decref(p);
        return err;
    }
    *out = p;
    return TARN_OK;
}

/* ------------------------------------------------------------------ the parts */
typedef struct new_table {
    json_t *schema, *spec, *order, *properties;
    int64_t format, last_column, last_partition;
    tarn_str location;
} new_table;

static void release(new_table *t)
{
    json_decref(t->schema);
    json_decref(t->spec);
    json_decref(t->order);
    json_decref(t->properties);
}

static tarn_err make_parts(const json_t *request, bool staged, const ice_ctx *ctx, new_table *t, ice_error *e)
{
    json_t *schema = NULL, *spec = NULL, *order = NULL, *properties = NULL;
    ice_id_map map = {0};
    ice_schema index;
    ICE_TRY(ice_get_object(request, "create table request", "schema", &schema, e));
    ICE_TRY(ice_opt_object(request, "create table request", "partition-spec", &spec, e));
    ICE_TRY(ice_opt_object(request, "create table request", "write-order", &order, e));
    ICE_TRY(ice_opt_object(request, "create table request", "properties", &properties, e));
    ICE_TRY(read_format(properties, &t->format, e));
    ICE_TRY(make_properties(properties, staged, ctx, &t->properties, e));
    ICE_TRY(ice_schema_fresh(ctx->arena, schema, 0, &t->schema, &map, e));
    ICE_TRY(ice_schema_read(ctx->arena, t->schema, &index, e));
    ICE_TRY(ice_schema_check_format(&index, t->format, e));
    ICE_TRY(check_metrics_properties(t->properties, &index, e));
    ice_spec_bind bind = {.schema = &index, .map = &map, .format_version = t->format, .fresh_ids = true};
    ICE_TRY(ice_spec_make(spec, 0, &bind, &t->spec, &t->last_partition, e));
    ICE_TRY(ice_order_make(order, ICE_SORT_ORDER_FIRST, &index, &map, &t->order, e));
    t->last_column = index.highest_id;
    return TARN_OK;
}

static tarn_err choose_location(const json_t *request, tarn_str uuid, const ice_ctx *ctx, new_table *t, ice_error *e)
{
    bool use = false;
    ICE_TRY(ice_opt_string(request, "create table request", "location", &t->location, e));
    if (t->location.n > 0)
        ICE_TRY(ice_location_check(ctx, &t->location, &use, e));
    if (use)
        return TARN_OK;
    if (ctx->warehouse_root.n == 0)
        return ice_fail(e, TARN_E_ICE_VALIDATION, "Cannot create a table without a location");
    t->location = tarn_arena_fmt(ctx->arena, "%.*s%.*s", TARN_STR_ARG(ctx->warehouse_root), TARN_STR_ARG(uuid));
    return t->location.p ? TARN_OK : TARN_E_NO_MEMORY;
}

static tarn_err list_of(json_t *md, const char *key, json_t *item)
{
    json_t *list = json_array();
    if (!list || json_array_append(list, item) != 0) {
        json_decref(list);
        return TARN_E_NO_MEMORY;
    }
    return ice_set(md, key, list);
}

static tarn_err assemble(json_t *md, const new_table *t, tarn_str uuid, const ice_ctx *ctx)
{
    ICE_TRY(ice_set_int(md, "format-version", t->format));
    ICE_TRY(ice_set_str(md, "table-uuid", uuid));
    ICE_TRY(ice_set_str(md, "location", t->location));
    if (t->format >= 2)
        ICE_TRY(ice_set_int(md, "last-sequence-number", 0));
    ICE_TRY(ice_set_int(md, "last-updated-ms", ctx->now_ms));
    ICE_TRY(ice_set_int(md, "last-column-id", t->last_column));
    ICE_TRY(ice_set_int(md, "current-schema-id", 0));
    ICE_TRY(list_of(md, "schemas", t->schema));
    ICE_TRY(ice_set_int(md, "default-spec-id", 0));
    ICE_TRY(list_of(md, "partition-specs", t->spec));
    ICE_TRY(ice_set_int(md, "last-partition-id", t->last_partition));
    ICE_TRY(ice_set_int(md, "default-sort-order-id", ice_int_or(t->order, "order-id", 0)));
    ICE_TRY(list_of(md, "sort-orders", t->order));
    return json_object_set(md, "properties", t->properties) == 0 ? TARN_OK : TARN_E_NO_MEMORY;
}

tarn_err ice_table_create(const json_t *request, tarn_str uuid, bool staged, const ice_ctx *ctx, json_t **out, ice_error *e)
{
    new_table t = {0};
    ice_build b = {.ctx = ctx, .e = e};
    tarn_err err = make_parts(request, staged, ctx, &t, e);
    if (err == TARN_OK)
        err = choose_location(request, uuid, ctx, &t, e);
    if (err == TARN_OK)
        err = (b.md = json_object()) ? assemble(b.md, &t, uuid, ctx) : TARN_E_NO_MEMORY;
    b.format = t.format;
    if (err == TARN_OK)
        err = ice_complete_table(&b);
    release(&t);
    return ice_hand_over(b.md, err, out, e);
}
