/* SPDX-License-Identifier: Apache-2.0 */
/*
 * iceberg, updates of schemas, partition specs and sort orders. One function an action.
 *
 * The ids in a request do not count: an equal schema (spec, order) is used again, any other gets the next id. -1 later in
 * the same request means the last one that was added, whether it was new or not.
 */
#include "build.h"

/* ------------------------------------------------------------------ schemas */
tarn_err ice_put_schema(ice_build *b, const json_t *schema, bool check_format, int64_t *id)
{
    ice_schema index;
    json_t *clean = NULL, *list = NULL;
    const json_t *known = ice_child(b, ICE_PART_SCHEMAS);
    int64_t next = ice_highest(known, "schema-id") + 1;
    ICE_TRY(ice_schema_clean(schema, next, &clean, b->e));
    tarn_err err = ice_schema_read(b->ctx->arena, clean, &index, b->e);
    if (err == TARN_OK && check_format)
        err = ice_schema_check_format(&index, b->format, b->e);
    for (size_t i = 0; err == TARN_OK && i < json_array_size(known); i++) {
        const json_t *s = json_array_get(known, i);
        if (ice_schema_equal(s, clean)) {
            json_decref(clean);
            *id = ice_int_or(s, "schema-id", 0);
            return TARN_OK;
        }
    }
    if (err == TARN_OK)
        err = ice_own(b, ICE_PART_SCHEMAS, &list);
    if (err != TARN_OK) {
        json_decref(clean);
        return err;
    }
    ICE_TRY(ice_push(list, clean));
    if (check_format && index.highest_id > ice_int_or(b->md, "last-column-id", 0))
        ICE_TRY(ice_set_int(b->md, "last-column-id", index.highest_id));
    b->changed = true;
    *id = next;
    return TARN_OK;
}

tarn_err ice_up_add_schema(ice_build *b, const json_t *u)
{
    json_t *schema = NULL;
    ICE_TRY(ice_get_object(u, "add-schema", "schema", &schema, b->e));
    ICE_TRY(ice_put_schema(b, schema, true, &b->last_schema));
    /* Of a table in the making the first schema is current until another is set: clients bind specs before they set it. */
    if (!b->base && ice_int_or(b->md, "current-schema-id", -1) < 0)
        return ice_set_int(b->md, "current-schema-id", b->last_schema);
    return TARN_OK;
}

tarn_err ice_up_set_current_schema(ice_build *b, const json_t *u)
{
    int64_t id = 0;
    ICE_TRY(ice_get_int32(u, "set-current-schema", "schema-id", &id, b->e));
    if (id == ICE_LAST_ADDED) {
        if (b->last_schema == ICE_LAST_ADDED)
            return ice_fail(b->e, TARN_E_ICE_VALIDATION, "Cannot set last added schema: no schema has been added");
        id = b->last_schema;
    }
    if (ice_int_or(b->md, "current-schema-id", -1) == id)
        return TARN_OK;
    if (!ice_find(ice_child(b, ICE_PART_SCHEMAS), "schema-id", id))
        return ice_fail(b->e, TARN_E_ICE_VALIDATION, "Cannot set current schema to unknown schema: %lld", (long long)id);
    b->changed = true;
    return ice_set_int(b->md, "current-schema-id", id);
}

tarn_err ice_up_remove_schemas(ice_build *b, const json_t *u)
{
    ice_id_set ids;
    size_t removed = 0;
    ICE_TRY(ice_read_id_list(b, u, "remove-schemas", "schema-ids", &ids));
    if (ice_id_set_has(&ids, ice_int_or(b->md, "current-schema-id", -1)))
        return ice_fail(b->e, TARN_E_ICE_VALIDATION, "Cannot remove the current schema");
    ICE_TRY(ice_drop_entries(b, ICE_PART_SCHEMAS, "schema-id", &ids, &removed));
    b->changed = b->changed || removed > 0;
    return TARN_OK;
}

/* ------------------------------------------------------------------ partition specs */
tarn_err ice_up_add_spec(ice_build *b, const json_t *u)
{
    json_t *spec = NULL, *made = NULL, *list = NULL;
    const json_t *known = ice_child(b, ICE_PART_SPECS);
    const ice_schema *schema = NULL;
    int64_t highest = 0, id = ice_highest(known, "spec-id") + 1, last = ice_int_or(b->md, "last-partition-id", ICE_PARTITION_ID_START - 1);
    ICE_TRY(ice_get_object(u, "add-spec", "spec", &spec, b->e));
    ICE_TRY(ice_current_index(b, &schema));
    ice_spec_bind bind = {.schema = schema, .known_specs = known, .last_partition_id = last, .format_version = b->format};
    ICE_TRY(ice_spec_make(spec, id, &bind, &made, &highest, b->e));
    for (size_t i = 0; i < json_array_size(known); i++) {
        const json_t *s = json_array_get(known, i);
        if (ice_spec_compatible(s, made)) {
            json_decref(made);
            b->last_spec = ice_int_or(s, "spec-id", 0);
            return TARN_OK;
        }
    }
    tarn_err err = ice_own(b, ICE_PART_SPECS, &list);
    if (err != TARN_OK) {
        json_decref(made);
        return err;
    }
    ICE_TRY(ice_push(list, made));
    ICE_TRY(ice_set_int(b->md, "last-partition-id", highest > last ? highest : last));
    b->last_spec = id;
    b->changed = true;
    if (!b->base && ice_int_or(b->md, "default-spec-id", -1) < 0)
        return ice_set_int(b->md, "default-spec-id", id);
    return TARN_OK;
}

tarn_err ice_up_set_default_spec(ice_build *b, const json_t *u)
{
    int64_t id = 0;
    ICE_TRY(ice_get_int32(u, "set-default-spec", "spec-id", &id, b->e));
    if (id == ICE_LAST_ADDED) {
        if (b->last_spec == ICE_LAST_ADDED)
            return ice_fail(b->e, TARN_E_ICE_VALIDATION, "Cannot set last added spec: no spec has been added");
        id = b->last_spec;
    }
    if (ice_int_or(b->md, "default-spec-id", -1) == id)
        return TARN_OK;
    if (!ice_find(ice_child(b, ICE_PART_SPECS), "spec-id", id))
        return ice_fail(b->e, TARN_E_ICE_VALIDATION, "Cannot set default partition spec to unknown spec: %lld", (long long)id);
    b->changed = true;
    return ice_set_int(b->md, "default-spec-id", id);
}

tarn_err ice_up_remove_specs(ice_build *b, const json_t *u)
{
    ice_id_set ids;
    size_t removed = 0;
    ICE_TRY(ice_read_id_list(b, u, "remove-partition-specs", "spec-ids", &ids));
    if (ice_id_set_has(&ids, ice_int_or(b->md, "default-spec-id", -1)))
        return ice_fail(b->e, TARN_E_ICE_VALIDATION, "Cannot remove the default partition spec");
    ICE_TRY(ice_drop_entries(b, ICE_PART_SPECS, "spec-id", &ids, &removed));
    b->changed = b->changed || removed > 0;
    return TARN_OK;
}

/* ------------------------------------------------------------------ sort orders */
tarn_err ice_up_add_order(ice_build *b, const json_t *u)
{
    json_t *order = NULL, *made = NULL, *list = NULL;
    const json_t *known = ice_child(b, ICE_PART_ORDERS);
    const ice_schema *schema = NULL;
    int64_t id = ice_highest(known, "order-id") + 1;
    if (id < ICE_SORT_ORDER_FIRST)
        id = ICE_SORT_ORDER_FIRST;
    ICE_TRY(ice_get_object(u, "add-sort-order", "sort-order", &order, b->e));
    ICE_TRY(ice_current_index(b, &schema));
    ICE_TRY(ice_order_make(order, id, schema, NULL, &made, b->e));
    for (size_t i = 0; i < json_array_size(known); i++) {
        const json_t *o = json_array_get(known, i);
        if (ice_order_same(o, made)) {
            json_decref(made);
            b->last_order = ice_int_or(o, "order-id", 0);
            return TARN_OK;
        }
    }
    tarn_err err = ice_own(b, ICE_PART_ORDERS, &list);
    if (err != TARN_OK) {
        json_decref(made);
        return err;
    }
    b->last_order = ice_int_or(made, "order-id", 0);
    b->changed = true;
    return ice_push(list, made);
}

tarn_err ice_up_set_default_order(ice_build *b, const json_t *u)
{
    int64_t id = 0;
    ICE_TRY(ice_get_int32(u, "set-default-sort-order", "sort-order-id", &id, b->e));
    if (id == ICE_LAST_ADDED) {
        if (b->last_order == ICE_LAST_ADDED)
            return ice_fail(b->e, TARN_E_ICE_VALIDATION, "Cannot set last added sort order: no sort order has been added");
        id = b->last_order;
    }
    if (ice_int_or(b->md, "default-sort-order-id", -1) == id)
        return TARN_OK;
    if (!ice_find(ice_child(b, ICE_PART_ORDERS), "order-id", id))
        return ice_fail(b->e, TARN_E_ICE_VALIDATION, "Cannot set default sort order to unknown sort order: %lld", (long long)id);
    b->changed = true;
    return ice_set_int(b->md, "default-sort-order-id", id);
}
