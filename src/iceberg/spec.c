/* SPDX-License-Identifier: Apache-2.0 */
/*
 * iceberg, partition specs and sort orders. See spec.h.
 *
 * Ids of partition fields: a request names all of them or none. Without ids a field takes the id of an equal field (same
 * source and transform) of an older spec, else the next one above the table's last; so that a column of the partition
 * tuple never changes its meaning.
 */
#include <string.h>

#include "spec.h"

/* ------------------------------------------------------------------ one field */
static tarn_err bad_transform(tarn_str text, ice_error *e)
{
    return ice_fail(e, TARN_E_ICE_VALIDATION, "Invalid transform: %.*s", TARN_STR_ARG(text));
}

/* The column and transform that a partition or sort field stands on. `what`: "partition", "sort". */
static tarn_err bind_source(const json_t *field, const char *what, const ice_schema *schema, const ice_id_map *map, int64_t *source_id,
                            tarn_str *transform_text, ice_error *e)
{
    ice_transform t;
    ICE_TRY(ice_get_int32(field, what, "source-id", source_id, e));
    ICE_TRY(ice_get_string(field, what, "transform", transform_text, e));
    if (!ice_transform_parse(*transform_text, &t))
        return bad_transform(*transform_text, e);
    if (map && !ice_id_map_get(map, *source_id, source_id))
        return ice_fail(e, TARN_E_ICE_VALIDATION, "Cannot find source column for %s field: source id %lld", what, (long long)*source_id);
    const ice_column *c = ice_schema_by_id(schema, *source_id);
    if (t.kind == ICE_X_VOID) /* the column may have been dropped */
        return TARN_OK;
    if (!c)
        return ice_fail(e, TARN_E_ICE_VALIDATION, "Cannot find source column for %s field: source id %lld", what, (long long)*source_id);
    if (!ice_kind_is_primitive(c->type.kind))
        return ice_fail(e, TARN_E_ICE_VALIDATION, "Cannot %s by non-primitive source field: %.*s", what, TARN_STR_ARG(c->name));
    if (!c->only_structs)
        return ice_fail(e, TARN_E_ICE_VALIDATION, "Invalid %s field parent: %.*s is nested in a list or map", what, TARN_STR_ARG(c->name));
    if (!ice_transform_accepts(&t, &c->type))
        return ice_fail(e, TARN_E_ICE_VALIDATION, "Invalid source type %s for transform: %.*s", ice_kind_name(c->type.kind),
                        TARN_STR_ARG(*transform_text));
    return TARN_OK;
}

static tarn_err check_name(const json_t *fields_so_far, const ice_schema *schema, tarn_str name, int64_t source_id, tarn_str transform_text,
                           ice_error *e)
{
    ice_transform t;
    if (name.n == 0)
        return ice_fail(e, TARN_E_ICE_VALIDATION, "Cannot use empty partition name");
    for (size_t i = 0; i < json_array_size(fields_so_far); i++)
        if (tarn_str_eq(name, ice_string_or_empty(json_array_get(fields_so_far, i), "name")))
            return ice_fail(e, TARN_E_ICE_VALIDATION, "Cannot use partition name more than once: %.*s", TARN_STR_ARG(name));
    const ice_column *c = ice_schema_by_name(schema, name);
    if (!c)
        return TARN_OK;
    bool same_kept = ice_transform_parse(transform_text, &t) && (t.kind == ICE_X_IDENTITY || t.kind == ICE_X_VOID);
    if (!same_kept)
        return ice_fail(e, TARN_E_ICE_VALIDATION, "Cannot create partition from name that exists in schema: %.*s", TARN_STR_ARG(name));
    if (c->id != source_id)
        return ice_fail(e, TARN_E_ICE_VALIDATION, "Cannot create identity partition sourced from different field in schema: %.*s",
                        TARN_STR_ARG(name));
    return TARN_OK;
}

/* ------------------------------------------------------------------ ids of partition fields */
static int64_t known_id(const json_t *specs, int64_t source_id, tarn_str transform)
{
    for (size_t i = 0; i < json_array_size(specs); i++) {
        const json_t *fields = json_object_get(json_array_get(specs, i), "fields");
        for (size_t k = 0; k < json_array_size(fields); k++) {
            const json_t *f = json_array_get(fields, k);
            if (ice_int_or(f, "source-id", -1) == source_id && ice_transform_equal(ice_string_or_empty(f, "transform"), transform))
                return ice_int_or(f, "field-id", -1);
        }
    }
    return -1;
}

static bool id_in_use(const json_t *fields, int64_t id)
{
    for (size_t i = 0; i < json_array_size(fields); i++)
        if (ice_int_or(json_array_get(fields, i), "field-id", -1) == id)
            return true;
    return false;
}

static int64_t choose_id(const ice_spec_bind *bind, const json_t *done, size_t index, int64_t source_id, tarn_str transform, int64_t *next)
{
    if (bind->format_version == 1)
        return ICE_PARTITION_ID_START + (int64_t)index;
    int64_t id = known_id(bind->known_specs, source_id, transform);
    return id >= 0 && !id_in_use(done, id) ? id : (*next)++;
}

static tarn_err count_ids(const json_t *fields, size_t *with_id, ice_error *e)
{
    size_t n = json_array_size(fields);
    *with_id = 0;
    for (size_t i = 0; i < n; i++)
        *with_id += ice_get(json_array_get(fields, i), "field-id") != NULL;
    if (*with_id != 0 && *with_id != n)
        return ice_fail(e, TARN_E_ICE_BAD_REQUEST, "Cannot parse spec with missing field IDs: %zu missing of %zu fields.", n - *with_id, n);
    return TARN_OK;
}

/* ------------------------------------------------------------------ specs */
static tarn_err make_spec_field(const json_t *field, size_t index, const ice_spec_bind *bind, bool own_ids, int64_t *next, json_t *done,
                                ice_error *e)
{
    int64_t source_id = 0, id = 0;
    tarn_str transform = TARN_STR_NULL, name = TARN_STR_NULL;
    if (!json_is_object(field))
        return ice_fail(e, TARN_E_ICE_BAD_REQUEST, "Cannot parse partition field: an object is needed");
    ICE_TRY(ice_get_string(field, "partition field", "name", &name, e));
    ICE_TRY(bind_source(field, "partition", bind->schema, bind->map, &source_id, &transform, e));
    ICE_TRY(check_name(done, bind->schema, name, source_id, transform, e));
    if (own_ids) {
        ICE_TRY(ice_get_int32(field, "partition field", "field-id", &id, e));
        if (id < 0 || id_in_use(done, id))
            return ice_fail(e, TARN_E_ICE_VALIDATION, "Cannot use partition field id more than once: %lld", (long long)id);
    } else {
        id = choose_id(bind, done, index, source_id, transform, next);
    }
    json_t *copy = json_copy((json_t *)(uintptr_t)field);
    if (!copy)
        return TARN_E_NO_MEMORY;
    if (ice_set_int(copy, "source-id", source_id) != TARN_OK || ice_set_int(copy, "field-id", id) != TARN_OK) {
        json_decref(copy);
        return TARN_E_NO_MEMORY;
    }
    return ice_push(done, copy);
}

static tarn_err check_sequential(const json_t *fields, ice_error *e)
{
    for (size_t i = 0; i < json_array_size(fields); i++)
        if (ice_int_or(json_array_get(fields, i), "field-id", -1) != ICE_PARTITION_ID_START + (int64_t)i)
            return ice_fail(e, TARN_E_ICE_VALIDATION, "Spec does not use sequential IDs that are required in v1");
    return TARN_OK;
}

static tarn_err fill_spec(const json_t *spec, const ice_spec_bind *bind, json_t *done, int64_t *highest, ice_error *e)
{
    json_t *fields = NULL;
    size_t with_id = 0;
    int64_t next = (bind->last_partition_id >= ICE_PARTITION_ID_START ? bind->last_partition_id : ICE_PARTITION_ID_START - 1) + 1;
    ICE_TRY(ice_get_array(spec, "partition spec", "fields", &fields, e));
    if (json_array_size(fields) > ICE_SPEC_FIELDS_MAX)
        return ice_fail(e, TARN_E_ICE_BAD_REQUEST, "Invalid partition spec: more than %d fields", ICE_SPEC_FIELDS_MAX);
    ICE_TRY(count_ids(fields, &with_id, e));
    for (size_t i = 0; i < json_array_size(fields); i++)
        ICE_TRY(make_spec_field(json_array_get(fields, i), i, bind, with_id > 0 && !bind->fresh_ids, &next, done, e));
    if (bind->format_version == 1)
        ICE_TRY(check_sequential(done, e));
    for (size_t i = 0; i < json_array_size(done); i++) {
        int64_t id = ice_int_or(json_array_get(done, i), "field-id", -1);
        *highest = id > *highest ? id : *highest;
    }
    return TARN_OK;
}

tarn_err ice_spec_make(const json_t *spec, int64_t spec_id, const ice_spec_bind *bind, json_t **out, int64_t *highest, ice_error *e)
{
    json_t *done = json_array(), *made = json_object();
    int64_t top = ICE_PARTITION_ID_START - 1;
    tarn_err err = made && done ? TARN_OK : TARN_E_NO_MEMORY;
    if (err == TARN_OK && spec)
        err = json_is_object(spec) ? fill_spec(spec, bind, done, &top, e)
                                   : ice_fail(e, TARN_E_ICE_BAD_REQUEST, "Cannot parse partition spec: an object is needed");
    if (err == TARN_OK)
        err = ice_set_int(made, "spec-id", spec_id);
    if (err == TARN_OK)
        err = json_object_set(made, "fields", done) == 0 ? TARN_OK : TARN_E_NO_MEMORY;
    json_decref(done);
    err = ice_hand_over(made, err, out, e);
    if (err == TARN_OK)
        *highest = top;
    return err;
}

bool ice_spec_compatible(const json_t *a, const json_t *b)
{
    const json_t *x = json_object_get(a, "fields"), *y = json_object_get(b, "fields");
    if (json_array_size(x) != json_array_size(y))
        return false;
    for (size_t i = 0; i < json_array_size(x); i++) {
        const json_t *f = json_array_get(x, i), *g = json_array_get(y, i);
        if (ice_int_or(f, "source-id", -1) != ice_int_or(g, "source-id", -1) ||
            !tarn_str_eq(ice_string_or_empty(f, "name"), ice_string_or_empty(g, "name")) ||
            !ice_transform_equal(ice_string_or_empty(f, "transform"), ice_string_or_empty(g, "transform")))
            return false;
    }
    return true;
}

/* ------------------------------------------------------------------ sort orders */
static tarn_err make_order_field(const json_t *field, const ice_schema *schema, const ice_id_map *map, json_t *done, ice_error *e)
{
    int64_t source_id = 0;
    tarn_str transform = TARN_STR_NULL, direction = TARN_STR_NULL, nulls = TARN_STR_NULL;
    if (!json_is_object(field))
        return ice_fail(e, TARN_E_ICE_BAD_REQUEST, "Cannot parse sort field: an object is needed");
    ICE_TRY(bind_source(field, "sort", schema, map, &source_id, &transform, e));
    ICE_TRY(ice_get_string(field, "sort field", "direction", &direction, e));
    ICE_TRY(ice_opt_string(field, "sort field", "null-order", &nulls, e));
    bool asc = tarn_str_ieqc(direction, "asc");
    if (!asc && !tarn_str_ieqc(direction, "desc"))
        return ice_fail(e, TARN_E_ICE_BAD_REQUEST, "Invalid sort direction: %.*s", TARN_STR_ARG(direction));
    bool first = nulls.p ? tarn_str_ieqc(nulls, "nulls-first") : asc;
    if (nulls.p && !first && !tarn_str_ieqc(nulls, "nulls-last"))
        return ice_fail(e, TARN_E_ICE_BAD_REQUEST, "Invalid null order: %.*s", TARN_STR_ARG(nulls));
    json_t *copy = json_copy((json_t *)(uintptr_t)field);
    if (!copy)
        return TARN_E_NO_MEMORY;
    if (ice_set_int(copy, "source-id", source_id) != TARN_OK ||
        ice_set_str(copy, "direction", tarn_str_of(asc ? "asc" : "desc")) != TARN_OK ||
        ice_set_str(copy, "null-order", tarn_str_of(first ? "nulls-first" : "nulls-last")) != TARN_OK) {
        json_decref(copy);
        return TARN_E_NO_MEMORY;
    }
    return ice_push(done, copy);
}

static tarn_err fill_order(const json_t *order, const ice_schema *schema, const ice_id_map *map, json_t *done, ice_error *e)
{
    json_t *fields = NULL;
    int64_t id = -1;
    bool has = false;
    ICE_TRY(ice_get_array(order, "sort order", "fields", &fields, e));
    ICE_TRY(ice_opt_int32(order, "sort order", "order-id", &has, &id, e));
    if (json_array_size(fields) > ICE_SPEC_FIELDS_MAX)
        return ice_fail(e, TARN_E_ICE_BAD_REQUEST, "Invalid sort order: more than %d fields", ICE_SPEC_FIELDS_MAX);
    if (has && id == ICE_SORT_ORDER_UNSORTED && json_array_size(fields) > 0)
        return ice_fail(e, TARN_E_ICE_VALIDATION, "Sort order ID 0 is reserved for unsorted order");
    for (size_t i = 0; i < json_array_size(fields); i++)
        ICE_TRY(make_order_field(json_array_get(fields, i), schema, map, done, e));
    return TARN_OK;
}

tarn_err ice_order_make(const json_t *order, int64_t order_id, const ice_schema *schema, const ice_id_map *map, json_t **out, ice_error *e)
{
    json_t *done = json_array(), *made = json_object();
    tarn_err err = made && done ? TARN_OK : TARN_E_NO_MEMORY;
    if (err == TARN_OK && order)
        err = json_is_object(order) ? fill_order(order, schema, map, done, e)
                                    : ice_fail(e, TARN_E_ICE_BAD_REQUEST, "Cannot parse sort order: an object is needed");
    if (err == TARN_OK)
        err = ice_set_int(made, "order-id", json_array_size(done) ? order_id : ICE_SORT_ORDER_UNSORTED);
    if (err == TARN_OK)
        err = json_object_set(made, "fields", done) == 0 ? TARN_OK : TARN_E_NO_MEMORY;
    json_decref(done);
    return ice_hand_over(made, err, out, e);
}

bool ice_order_unsorted(const json_t *order)
{
    return json_array_size(json_object_get(order, "fields")) == 0;
}

bool ice_order_same(const json_t *a, const json_t *b)
{
    const json_t *x = json_object_get(a, "fields"), *y = json_object_get(b, "fields");
    if (json_array_size(x) != json_array_size(y))
        return false;
    for (size_t i = 0; i < json_array_size(x); i++) {
        const json_t *f = json_array_get(x, i), *g = json_array_get(y, i);
        if (ice_int_or(f, "source-id", -1) != ice_int_or(g, "source-id", -1) ||
            !ice_transform_equal(ice_string_or_empty(f, "transform"), ice_string_or_empty(g, "transform")) ||
            !tarn_str_ieq(ice_string_or_empty(f, "direction"), ice_string_or_empty(g, "direction")) ||
            !tarn_str_ieq(ice_string_or_empty(f, "null-order"), ice_string_or_empty(g, "null-order")))
            return false;
    }
    return true;
}
