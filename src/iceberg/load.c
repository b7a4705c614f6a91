/* SPDX-License-Identifier: Apache-2.0 */
/*
 * iceberg, metadata that comes from a file: the checks that readers make when they load it, so that no table is registered
 * that they could not open; the forms of old version 1 files brought to today's; and the view of it for snapshots=refs.
 */
#include <string.h>

#include "build.h"

/* ------------------------------------------------------------------ version 1 as it once was */
/* Only `schema`: it becomes schema 0. */
static tarn_err schemas_of_v1(ice_build *b)
{
    json_t *schema = NULL, *list = NULL, *copy = NULL;
    if (ice_child(b, ICE_PART_SCHEMAS))
        return TARN_OK;
    ICE_TRY(ice_get_object(b->md, "table metadata", "schema", &schema, b->e));
    copy = json_copy(schema);
    if (!copy)
        return TARN_E_NO_MEMORY;
    int64_t id = ice_int_or(schema, "schema-id", 0);
    tarn_err err = ice_set_int(copy, "schema-id", id);
    if (err == TARN_OK)
        err = ice_own(b, ICE_PART_SCHEMAS, &list);
    if (err != TARN_OK) {
        json_decref(copy);
        return err;
    }
    ICE_TRY(ice_push(list, copy));
    return ice_set_int(b->md, "current-schema-id", id);
}

/* Only `partition-spec`: a list of fields, which becomes spec 0; fields without ids are numbered from 1000. */
static tarn_err specs_of_v1(ice_build *b)
{
    json_t *fields = NULL, *list = NULL, *spec = NULL, *numbered = NULL;
    if (ice_child(b, ICE_PART_SPECS))
        return TARN_OK;
    ICE_TRY(ice_get_array(b->md, "table metadata", "partition-spec", &fields, b->e));
    ICE_TRY(ice_own(b, ICE_PART_SPECS, &list));
    spec = json_object();
    ICE_TRY(ice_push(list, spec));
    ICE_TRY(ice_set_int(spec, "spec-id", 0));
    numbered = json_array();
    ICE_TRY(ice_set(spec, "fields", numbered));
    for (size_t i = 0; i < json_array_size(fields); i++) {
        ICE_TRY(ice_push(numbered, json_copy(json_array_get(fields, i))));
        json_t *f = json_array_get(numbered, i);
        if (json_is_object(f) && !ice_get(f, "field-id"))
            ICE_TRY(ice_set_int(f, "field-id", ICE_PARTITION_ID_START + (int64_t)i));
    }
    return ice_set_int(b->md, "default-spec-id", 0);
}

static int64_t highest_partition_id(const json_t *specs)
{
    int64_t top = ICE_PARTITION_ID_START - 1;
    for (size_t i = 0; i < json_array_size(specs); i++) {
        int64_t id = ice_highest(json_object_get(json_array_get(specs, i), "fields"), "field-id");
        top = id > top ? id : top;
    }
    return top;
}

static tarn_err modernise_v1(ice_build *b)
{
    ICE_TRY(schemas_of_v1(b));
    ICE_TRY(specs_of_v1(b));
    if (!ice_get(b->md, "last-partition-id"))
        ICE_TRY(ice_set_int(b->md, "last-partition-id", highest_partition_id(ice_child(b, ICE_PART_SPECS))));
    if (!ice_child(b, ICE_PART_ORDERS)) {
        json_t *list = NULL, *made = NULL;
        ICE_TRY(ice_own(b, ICE_PART_ORDERS, &list));
        ICE_TRY(ice_order_make(NULL, ICE_SORT_ORDER_UNSORTED, NULL, NULL, &made, b->e));
        ICE_TRY(ice_push(list, made));
        ICE_TRY(ice_set_int(b->md, "default-sort-order-id", ICE_SORT_ORDER_UNSORTED));
    }
    return TARN_OK;
}

/* ------------------------------------------------------------------ checks */
static tarn_err check_list(ice_build *b, ice_part p, const char *id_key, const char *current_key)
{
    json_t *list = NULL;
    int64_t current = 0;
    ICE_TRY(ice_get_array(b->md, "table metadata", ice_part_key(p), &list, b->e));
    ICE_TRY(ice_get_int32(b->md, "table metadata", current_key, &current, b->e));
    if (!ice_find(list, id_key, current))
        return ice_fail(b->e, TARN_E_ICE_VALIDATION, "Cannot find %s=%lld in %s", current_key, (long long)current, ice_part_key(p));
    ice_id_set seen = {0};
    for (size_t i = 0; i < json_array_size(list); i++) {
        int64_t id = 0;
        ICE_TRY(ice_get_int32(json_array_get(list, i), ice_part_key(p), id_key, &id, b->e));
        if (ice_id_set_has(&seen, id))
            return ice_fail(b->e, TARN_E_ICE_VALIDATION, "Multiple entries with same %s: %lld", id_key, (long long)id);
        ICE_TRY(ice_id_set_add(b->ctx->arena, &seen, id));
    }
    return TARN_OK;
}

static tarn_err check_snapshots(ice_build *b)
{
    json_t *list = NULL;
    int64_t last = ice_int_or(b->md, "last-sequence-number", 0);
    ICE_TRY(ice_opt_array(b->md, "table metadata", "snapshots", &list, b->e));
    if (b->format == 1 && last != 0)
        return ice_fail(b->e, TARN_E_ICE_VALIDATION, "Sequence number must be 0 in v1: %lld", (long long)last);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *s = json_array_get(list, i);
        int64_t id = 0, time = 0;
        ICE_TRY(ice_get_int(s, "snapshot", "snapshot-id", &id, b->e));
        ICE_TRY(ice_get_int(s, "snapshot", "timestamp-ms", &time, b->e));
        int64_t seq = ice_int_or(s, "sequence-number", 0);
        if (seq > last)
            return ice_fail(b->e, TARN_E_ICE_VALIDATION,
                            "Invalid snapshot with sequence number %lld greater than last sequence number %lld", (long long)seq,
                            (long long)last);
    }
    return TARN_OK;
}

/* Files without refs: main is what is current. */
static tarn_err imply_main(ice_build *b, int64_t current)
{
    json_t *refs = NULL, *main_ref = json_object();
    tarn_err err = main_ref ? ice_own(b, ICE_PART_REFS, &refs) : TARN_E_NO_MEMORY;
    if (err == TARN_OK)
        err = ice_set_int(main_ref, "snapshot-id", current);
    if (err == TARN_OK)
        err = ice_set_str(main_ref, "type", TARN_STR("branch"));
    if (err == TARN_OK)
        return ice_set(refs, ICE_MAIN_BRANCH, main_ref);
    json_decref(main_ref);
    return err;
}

static tarn_err check_refs(ice_build *b)
{
    json_t *refs = NULL, *ref;
    const char *name;
    const ice_id_set *ids = NULL;
    int64_t current = ice_current_snapshot(b->md);
    ICE_TRY(ice_opt_object(b->md, "table metadata", "refs", &refs, b->e));
    ICE_TRY(ice_snapshot_ids(b, &ids));
    if (!refs && current >= 0)
        ICE_TRY(imply_main(b, current));
    refs = ice_child(b, ICE_PART_REFS);
    json_object_foreach(refs, name, ref)
    {
        int64_t id = 0;
        ICE_TRY(ice_get_int(ref, "snapshot reference", "snapshot-id", &id, b->e));
        if (!ice_id_set_has(ids, id))
            return ice_fail(b->e, TARN_E_ICE_VALIDATION, "Snapshot for reference %s does not exist in the existing snapshots list", name);
    }
    const json_t *m = json_object_get(refs, ICE_MAIN_BRANCH);
    int64_t head = m ? ice_int_or(m, "snapshot-id", -1) : -1;
    if (m && current < 0)
        return ice_fail(b->e, TARN_E_ICE_VALIDATION, "Current snapshot is not set, but main branch exists: %lld", (long long)head);
    if (current >= 0 && head != current)
        return ice_fail(b->e, TARN_E_ICE_VALIDATION, "Current snapshot ID does not match main branch (%lld != %lld)", (long long)current,
                        (long long)head);
    return TARN_OK;
}

static tarn_err check_log(ice_build *b, ice_part p, const char *what, int64_t updated)
{
    json_t *log = NULL;
    int64_t last = INT64_MIN / 2;
    ICE_TRY(ice_opt_array(b->md, "table metadata", ice_part_key(p), &log, b->e));
    for (size_t i = 0; i < json_array_size(log); i++) {
        int64_t t = 0;
        ICE_TRY(ice_get_int(json_array_get(log, i), what, "timestamp-ms", &t, b->e));
        if (t < last - ICE_CLOCK_TOLERANCE_MS)
            return ice_fail(b->e, TARN_E_ICE_VALIDATION, "Expected sorted %s entries", what);
        last = t;
    }
    if (json_array_size(log) > 0 && updated < last - ICE_CLOCK_TOLERANCE_MS)
        return ice_fail(b->e, TARN_E_ICE_VALIDATION, "Invalid update timestamp %lld: before last %s entry at %lld", (long long)updated,
                        what, (long long)last);
    return TARN_OK;
}

static tarn_err check_schemas(ice_build *b)
{
    const json_t *list = ice_child(b, ICE_PART_SCHEMAS);
    ice_schema s;
    for (size_t i = 0; i < json_array_size(list); i++)
        ICE_TRY(ice_schema_read(b->ctx->arena, json_array_get(list, i), &s, b->e));
    return TARN_OK;
}

static tarn_err check_head(ice_build *b)
{
    tarn_str uuid = TARN_STR_NULL, location = TARN_STR_NULL;
    int64_t n = 0;
    json_t *properties = NULL;
    ICE_TRY(ice_get_int32(b->md, "table metadata", "format-version", &b->format, b->e));
    if (b->format < 1 || b->format > ICE_FORMAT_VERSION_MAX)
        return ice_fail(b->e, TARN_E_ICE_VALIDATION, "Cannot read unsupported version %lld", (long long)b->format);
    ICE_TRY(ice_opt_string(b->md, "table metadata", "table-uuid", &uuid, b->e));
    if (b->format >= 2 && uuid.n == 0)
        return ice_fail(b->e, TARN_E_ICE_VALIDATION, "UUID is required in format v%lld", (long long)b->format);
    ICE_TRY(ice_get_string(b->md, "table metadata", "location", &location, b->e));
    ICE_TRY(ice_get_int32(b->md, "table metadata", "last-column-id", &n, b->e));
    ICE_TRY(ice_get_int(b->md, "table metadata", "last-updated-ms", &n, b->e));
    ICE_TRY(ice_opt_object(b->md, "table metadata", "properties", &properties, b->e));
    if (properties)
        ICE_TRY(ice_check_string_map(properties, "properties", b->e));
    if (b->format >= 3)
        ICE_TRY(ice_get_int(b->md, "table metadata", "next-row-id", &n, b->e));
    if (b->format >= 2)
        ICE_TRY(ice_get_int(b->md, "table metadata", "last-sequence-number", &n, b->e));
    return b->format >= 2 ? ice_get_int32(b->md, "table metadata", "last-partition-id", &n, b->e) : modernise_v1(b);
}

static tarn_err check_all(ice_build *b, bool strict)
{
    ICE_TRY(check_head(b));
    ICE_TRY(check_list(b, ICE_PART_SCHEMAS, "schema-id", "current-schema-id"));
    ICE_TRY(check_list(b, ICE_PART_SPECS, "spec-id", "default-spec-id"));
    ICE_TRY(check_list(b, ICE_PART_ORDERS, "order-id", "default-sort-order-id"));
    ICE_TRY(check_snapshots(b));
    ICE_TRY(check_refs(b));
    int64_t updated = ice_int_or(b->md, "last-updated-ms", 0);
    ICE_TRY(check_log(b, ICE_PART_SNAPSHOT_LOG, "snapshot log", updated));
    ICE_TRY(check_log(b, ICE_PART_METADATA_LOG, "metadata log", updated));
    if (strict)
        ICE_TRY(check_schemas(b));
    return ice_complete_table(b);
}

tarn_err ice_table_load(const json_t *raw, bool strict, tarn_arena *a, json_t **out, ice_error *e)
{
    ice_ctx ctx = {.arena = a};
    ice_build b = {.ctx = &ctx, .e = e};
    if (!json_is_object(raw))
        return ice_fail(e, TARN_E_ICE_BAD_REQUEST, "Cannot parse table metadata: an object is needed");
    b.md = json_copy((json_t *)(uintptr_t)raw);
    tarn_err err = b.md ? check_all(&b, strict) : TARN_E_NO_MEMORY;
    return ice_hand_over(b.md, err, out, e);
}

/* ------------------------------------------------------------------ snapshots=refs */
static bool referenced(const json_t *refs, int64_t id)
{
    const char *name;
    json_t *ref;
    json_object_foreach((json_t *)(uintptr_t)refs, name, ref)
    {
        if (ice_int_or(ref, "snapshot-id", -1) == id)
            return true;
    }
    return false;
}

static tarn_err keep_referenced(json_t *md, const char *key, const json_t *refs)
{
    const json_t *old = ice_get(md, key);
    json_t *kept = json_array();
    if (!kept)
        return TARN_E_NO_MEMORY;
    for (size_t i = 0; i < json_array_size(old); i++) {
        json_t *item = json_array_get(old, i);
        if (referenced(refs, ice_int_or(item, "snapshot-id", -1)) && json_array_append(kept, item) != 0) {
            json_decref(kept);
            return TARN_E_NO_MEMORY;
        }
    }
    return ice_set(md, key, kept);
}

tarn_err ice_table_refs_only(const json_t *metadata, json_t **out)
{
    json_t *md = json_copy((json_t *)(uintptr_t)metadata);
    const json_t *refs = json_object_get(metadata, "refs");
    tarn_err err = md ? keep_referenced(md, "snapshots", refs) : TARN_E_NO_MEMORY;
    if (err == TARN_OK)
        err = keep_referenced(md, "statistics", refs);
    if (err == TARN_OK)
        err = keep_referenced(md, "partition-statistics", refs);
    if (err != TARN_OK) {
        json_decref(md);
        return err;
    }
    *out = md;
    return TARN_OK;
}
