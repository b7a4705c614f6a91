/* SPDX-License-Identifier: Apache-2.0 */
/*
 * iceberg, table commits: requirements, then the updates in their order, then what every new metadata file gets: the logs,
 * the time, the fields that are always there.
 *
 * Invariant: last-updated-ms never goes back, and is at most a minute before the newest entry of either log, as readers
 * refuse anything else.
 */
#include <string.h>

#include "build.h"
#include "entry.h"

static const ice_update_row table_updates[] = {
    {"assign-uuid", ice_up_assign_uuid},
    {"upgrade-format-version", ice_up_upgrade_format},
    {"add-schema", ice_up_add_schema},
    {"set-current-schema", ice_up_set_current_schema},
    {"remove-schemas", ice_up_remove_schemas},
    {"add-spec", ice_up_add_spec},
    {"set-default-spec", ice_up_set_default_spec},
    {"remove-partition-specs", ice_up_remove_specs},
    {"add-sort-order", ice_up_add_order},
    {"set-default-sort-order", ice_up_set_default_order},
    {"add-snapshot", ice_up_add_snapshot},
    {"set-snapshot-ref", ice_up_set_ref},
    {"remove-snapshot-ref", ice_up_remove_ref},
    {"remove-snapshots", ice_up_remove_snapshots},
    {"set-location", ice_up_set_location},
    {"set-properties", ice_up_set_properties},
    {"remove-properties", ice_up_remove_properties},
    {"set-statistics", ice_up_set_statistics},
    {"remove-statistics", ice_up_remove_statistics},
    {"set-partition-statistics", ice_up_set_partition_statistics},
    {"remove-partition-statistics", ice_up_remove_partition_statistics},
    {"add-encryption-key", ice_up_add_key},
    {"remove-encryption-key", ice_up_remove_key},
};

/* ------------------------------------------------------------------ properties that steer */
int64_t ice_property_int(const json_t *metadata, const char *name, int64_t fallback)
{
    int64_t v = 0;
    tarn_str s = ice_string_or_empty(json_object_get(metadata, "properties"), name);
    return s.n && tarn_str_to_i64(tarn_str_trim(s), &v) ? v : fallback;
}

bool ice_property_true(const json_t *metadata, const char *name)
{
    return tarn_str_ieqc(ice_string_or_empty(json_object_get(metadata, "properties"), name), "true");
}

/* ------------------------------------------------------------------ the fields that are always there */
static tarn_err complete_v1(ice_build *b)
{
    json_t *schema = ice_current_schema(b);
    json_t *spec = ice_find(ice_child(b, ICE_PART_SPECS), "spec-id", ice_int_or(b->md, "default-spec-id", -1));
    if (schema && json_object_set(b->md, "schema", schema) != 0)
        return TARN_E_NO_MEMORY;
    if (spec && json_object_set(b->md, "partition-spec", json_object_get(spec, "fields")) != 0)
        return TARN_E_NO_MEMORY;
    return TARN_OK;
}

tarn_err ice_complete_table(ice_build *b)
{
    static const ice_part always[] = {ICE_PART_PROPERTIES,           ICE_PART_REFS,         ICE_PART_SNAPSHOTS,   ICE_PART_STATISTICS,
                                      ICE_PART_PARTITION_STATISTICS, ICE_PART_SNAPSHOT_LOG, ICE_PART_METADATA_LOG};
    for (size_t i = 0; i < TARN_ARRAY_LEN(always); i++) {
        json_t *child = NULL;
        if (!ice_child(b, always[i]))
            ICE_TRY(ice_own(b, always[i], &child));
    }
    if (json_array_size(ice_child(b, ICE_PART_KEYS)) == 0)
        json_object_del(b->md, ice_part_key(ICE_PART_KEYS));
    ICE_TRY(ice_set_current_snapshot(b, ice_current_snapshot(b->md)));
    if (b->format >= 3 && !ice_get(b->md, "next-row-id"))
        ICE_TRY(ice_set_int(b->md, "next-row-id", 0));
    if (b->format >= 2 && !ice_get(b->md, "last-sequence-number"))
        ICE_TRY(ice_set_int(b->md, "last-sequence-number", 0));
    return b->format == 1 ? complete_v1(b) : TARN_OK;
}

/* ------------------------------------------------------------------ create by commit */
static int64_t first_format(const json_t *updates)
{
    for (size_t i = 0; i < json_array_size(updates); i++) {
        const json_t *u = json_array_get(updates, i);
        if (tarn_str_ieqc(ice_string_or_empty(u, "action"), "upgrade-format-version"))
            return ice_int_or(u, "format-version", ICE_FORMAT_VERSION_DEFAULT);
    }
    return ICE_FORMAT_VERSION_DEFAULT;
}

static tarn_err begin_empty(ice_build *b, const json_t *updates)
{
    b->format = first_format(updates);
    if (b->format < 1 || b->format > ICE_FORMAT_VERSION_MAX)
        return ice_fail(b->e, TARN_E_ICE_VALIDATION, "Cannot upgrade table to unsupported format version: v%lld (supported: v%d)",
                        (long long)b->format, ICE_FORMAT_VERSION_MAX);
    b->md = json_object();
    b->changed = true;
    ICE_TRY(b->md ? ice_set_int(b->md, "format-version", b->format) : TARN_E_NO_MEMORY);
    ICE_TRY(ice_set_str(b->md, "table-uuid", TARN_STR("")));
    ICE_TRY(ice_set_str(b->md, "location", TARN_STR("")));
    if (b->format >= 2)
        ICE_TRY(ice_set_int(b->md, "last-sequence-number", 0));
    ICE_TRY(ice_set_int(b->md, "last-updated-ms", b->ctx->now_ms));
    ICE_TRY(ice_set_int(b->md, "last-column-id", 0));
    ICE_TRY(ice_set_int(b->md, "current-schema-id", -1));
    ICE_TRY(ice_set(b->md, "schemas", json_array()));
    ICE_TRY(ice_set_int(b->md, "default-spec-id", -1));
    ICE_TRY(ice_set(b->md, "partition-specs", json_array()));
    ICE_TRY(ice_set_int(b->md, "last-partition-id", ICE_PARTITION_ID_START - 1));
    ICE_TRY(ice_set_int(b->md, "default-sort-order-id", -1));
    ICE_TRY(ice_set(b->md, "sort-orders", json_array()));
    b->owned |= 1u << ICE_PART_SCHEMAS | 1u << ICE_PART_SPECS | 1u << ICE_PART_ORDERS;
    return TARN_OK;
}

/* A client may leave out the spec and the order: a table without them is unpartitioned and unsorted. */
static tarn_err default_spec_and_order(ice_build *b)
{
    json_t *made = NULL, *list = NULL;
    if (ice_int_or(b->md, "default-spec-id", -1) < 0) {
        json_t *empty = json_pack("{s:{s:[]}}", "spec", "fields");
        json_t *last = json_pack("{s:i}", "spec-id", ICE_LAST_ADDED);
        tarn_err err = empty && last ? ice_up_add_spec(b, empty) : TARN_E_NO_MEMORY;
        if (err == TARN_OK)
            err = ice_up_set_default_spec(b, last);
        json_decref(empty);
        json_decref(last);
        ICE_TRY(err);
    }
    if (ice_int_or(b->md, "default-sort-order-id", -1) < 0) {
        ICE_TRY(ice_own(b, ICE_PART_ORDERS, &list));
        if (!ice_find(list, "order-id", ICE_SORT_ORDER_UNSORTED)) {
            ICE_TRY(ice_order_make(NULL, ICE_SORT_ORDER_UNSORTED, NULL, NULL, &made, b->e));
            ICE_TRY(ice_push(list, made));
        }
        ICE_TRY(ice_set_int(b->md, "default-sort-order-id", ICE_SORT_ORDER_UNSORTED));
    }
    return TARN_OK;
}

static tarn_err finish_create(ice_build *b)
{
    if (!ice_current_schema(b))
        return ice_fail(b->e, TARN_E_ICE_VALIDATION, "Cannot create a table without a schema");
    ICE_TRY(default_spec_and_order(b));
    if (ice_string_or_empty(b->md, "table-uuid").n == 0) {
        char uuid[37];
        tarn_uuid4(uuid);
        ICE_TRY(ice_set_str(b->md, "table-uuid", tarn_str_of(uuid)));
    }
    if (ice_string_or_empty(b->md, "location").n == 0) {
        if (b->ctx->warehouse_root.n == 0)
            return ice_fail(b->e, TARN_E_ICE_VALIDATION, "Cannot create a table without a location");
        tarn_str l = tarn_arena_fmt(b->ctx->arena, "%.*s%.*s", TARN_STR_ARG(b->ctx->warehouse_root),
                                    TARN_STR_ARG(ice_string_or_empty(b->md, "table-uuid")));
        ICE_TRY(ice_set_str(b->md, "location", l));
    }
    return TARN_OK;
}

/* ------------------------------------------------------------------ logs and time */
static tarn_err expire(ice_result *out, const json_t *entry)
{
    json_t *file = NULL;
    ICE_TRY(ice_entry_string(entry, "metadata-file", &file));
    if (!file)
        return TARN_OK;
    if (!out->expired_files)
        out->expired_files = json_array();
    return json_array_append_new(out->expired_files, file) == 0 ? TARN_OK : TARN_E_NO_MEMORY; /* lets go of it where it fails */
}

/* What the base was, and since when. */
static json_t *log_entry(const ice_build *b)
{
    tarn_sb text;
    tarn_sb_init(&text, 8 * ICE_STRING_BYTES_MAX);
    tarn_sb_cstr(&text, "{\"timestamp-ms\":");
    tarn_sb_i64(&text, ice_int_or(b->base, "last-updated-ms", b->ctx->now_ms));
    tarn_sb_cstr(&text, ",\"metadata-file\":");
    ice_json_write_string(&text, b->ctx->base_location);
    tarn_sb_char(&text, '}');
    json_t *entry = text.failed ? NULL : ice_entry_new(tarn_sb_view(&text));
    tarn_sb_free(&text);
    return entry;
}

/* The file that this metadata replaces joins the log; the oldest fall off. One new list is made, not a copy that is then cut:
 * each entry that is touched costs a miss of the processor's cache. */
static tarn_err update_metadata_log(ice_build *b, ice_result *out)
{
    if (b->ctx->base_location.n == 0)
        return TARN_OK;
    int64_t keep = ice_property_int(b->md, "write.metadata.previous-versions-max", ICE_METADATA_LOG_DEFAULT);
    bool delete_old = ice_property_true(b->md, "write.metadata.delete-after-commit.enabled");
    keep = keep < 1 ? 1 : keep;
    const json_t *old = ice_child(b, ICE_PART_METADATA_LOG);
    size_t n = json_array_size(old), drop = n + 1 > (size_t)keep ? n + 1 - (size_t)keep : 0;
    json_t *log = json_array();
    tarn_err err = log ? TARN_OK : TARN_E_NO_MEMORY;
    for (size_t i = 0; i < n && err == TARN_OK; i++) {
        if (i >= drop)
            err = json_array_append(log, json_array_get(old, i)) == 0 ? TARN_OK : TARN_E_NO_MEMORY;
        else if (delete_old)
            err = expire(out, json_array_get(old, i));
    }
    if (err == TARN_OK)
        err = ice_push(log, log_entry(b));
    if (err != TARN_OK) {
        json_decref(log);
        return err;
    }
    return ice_replace(b, ICE_PART_METADATA_LOG, log);
}

static tarn_err update_time(ice_build *b)
{
    int64_t t = b->ctx->now_ms, before = ice_int_or(b->base, "last-updated-ms", t);
    const json_t *log = ice_child(b, ICE_PART_SNAPSHOT_LOG);
    size_t n = json_array_size(log);
    int64_t logged = n ? ice_int_or(json_array_get(log, n - 1), "timestamp-ms", t) : t;
    t = before > t ? before : t;
    t = logged > t ? logged : t;
    return ice_set_int(b->md, "last-updated-ms", t);
}

static tarn_err finish(ice_build *b, ice_result *out)
{
    if (!b->base)
        ICE_TRY(finish_create(b));
    ICE_TRY(ice_complete_table(b));
    ICE_TRY(ice_update_snapshot_log(b));
    ICE_TRY(update_time(b));
    return update_metadata_log(b, out);
}

/* ------------------------------------------------------------------ apply */
static tarn_err begin(ice_build *b, const json_t *updates)
{
    b->last_schema = b->last_spec = b->last_order = b->last_version = ICE_LAST_ADDED;
    if (!b->base)
        return begin_empty(b, updates);
    b->format = ice_int_or(b->base, "format-version", ICE_FORMAT_VERSION_DEFAULT);
    b->md = json_copy((json_t *)(uintptr_t)b->base);
    return b->md ? TARN_OK : TARN_E_NO_MEMORY;
}

void ice_result_release(ice_result *r)
{
    json_decref(r->metadata);
    json_decref(r->expired_files);
    *r = (ice_result){0};
}

tarn_err ice_table_apply(const json_t *base, const json_t *requirements, const json_t *updates, const ice_ctx *ctx, ice_result *out,
                         ice_error *e)
{
    ice_build b = {.ctx = ctx, .e = e, .base = base};
    ice_result r = {0};
    ICE_TRY(ice_check_requirements(base, requirements, e));
    tarn_err err = begin(&b, updates);
    if (err == TARN_OK)
        err = ice_apply_updates(&b, updates, table_updates, TARN_ARRAY_LEN(table_updates));
    if (err == TARN_OK && b.changed)
        err = finish(&b, &r);
    if (err == TARN_E_NO_MEMORY)
        ice_fail_plain(e, err);
    if (err != TARN_OK) {
        json_decref(b.md);
        ice_result_release(&r);
        return err;
    }
    if (!b.changed) {
        json_decref(b.md);
        b.md = json_incref((json_t *)(uintptr_t)base);
    }
    r.metadata = b.md;
    r.changed = b.changed;
    *out = r;
    return TARN_OK;
}
