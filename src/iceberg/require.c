/* SPDX-License-Identifier: Apache-2.0 */
/*
 * iceberg, requirements of a commit: one row a type. What fails is ICE_COMMIT_FAILED ("Requirement failed: …"), so that the
 * client refreshes and decides anew; what is no requirement is ICE_BAD_REQUEST.
 */
#include <string.h>

#include "build.h"

typedef struct requirement_row {
    const char *type;
    tarn_err (*check)(const json_t *base, const json_t *r, ice_error *e);
} requirement_row;

static tarn_err check_create(const json_t *base, const json_t *r, ice_error *e)
{
    (void)r;
    return base ? ice_fail(e, TARN_E_ICE_COMMIT_FAILED, "Requirement failed: table already exists") : TARN_OK;
}

static tarn_err check_uuid(const json_t *base, const json_t *r, const char *field, const char *what, ice_error *e)
{
    tarn_str want = TARN_STR_NULL, have = ice_string_or_empty(base, field);
    ICE_TRY(ice_get_string(r, "requirement", "uuid", &want, e));
    if (!tarn_str_ieq(want, have))
        return ice_fail(e, TARN_E_ICE_COMMIT_FAILED, "Requirement failed: %s does not match: expected %.*s != %.*s", what,
                        TARN_STR_ARG(have), TARN_STR_ARG(want));
    return TARN_OK;
}

static tarn_err check_table_uuid(const json_t *base, const json_t *r, ice_error *e)
{
    return check_uuid(base, r, "table-uuid", "UUID", e);
}

static tarn_err check_view_uuid(const json_t *base, const json_t *r, ice_error *e)
{
    return check_uuid(base, r, "view-uuid", "view UUID", e);
}

static tarn_err check_ref(const json_t *base, const json_t *r, ice_error *e)
{
    tarn_str name = TARN_STR_NULL;
    bool has = false;
    int64_t want = 0;
    ICE_TRY(ice_get_string(r, "requirement", "ref", &name, e));
    ICE_TRY(ice_opt_int(r, "requirement", "snapshot-id", &has, &want, e));
    const json_t *ref = json_object_getn(json_object_get(base, "refs"), name.p, name.n);
    bool tag = ref && tarn_str_ieqc(ice_string_or_empty(ref, "type"), "tag");
    const char *kind = tag ? "tag" : "branch";
    if (!ref && has)
        return ice_fail(e, TARN_E_ICE_COMMIT_FAILED, "Requirement failed: branch or tag %.*s is missing, expected %lld", TARN_STR_ARG(name),
                        (long long)want);
    if (ref && !has)
        return ice_fail(e, TARN_E_ICE_COMMIT_FAILED, "Requirement failed: %s %.*s was created concurrently", kind, TARN_STR_ARG(name));
    if (ref && ice_int_or(ref, "snapshot-id", -1) != want)
        return ice_fail(e, TARN_E_ICE_COMMIT_FAILED, "Requirement failed: %s %.*s has changed: expected id %lld != %lld", kind,
                        TARN_STR_ARG(name), (long long)want, (long long)ice_int_or(ref, "snapshot-id", -1));
    return TARN_OK;
}

/* requirement's key, metadata's key, words */
static tarn_err check_number(const json_t *base, const json_t *r, const char *want_key, const char *have_key, const char *what,
                             int64_t absent, ice_error *e)
{
    int64_t want = 0, have = ice_int_or(base, have_key, absent);
    ICE_TRY(ice_get_int(r, "requirement", want_key, &want, e));
    if (want != have)
        return ice_fail(e, TARN_E_ICE_COMMIT_FAILED, "Requirement failed: %s changed: expected id %lld != %lld", what, (long long)want,
                        (long long)have);
    return TARN_OK;
}

static tarn_err check_field_id(const json_t *base, const json_t *r, ice_error *e)
{
    return check_number(base, r, "last-assigned-field-id", "last-column-id", "last assigned field id", 0, e);
}

static tarn_err check_schema_id(const json_t *base, const json_t *r, ice_error *e)
{
    return check_number(base, r, "current-schema-id", "current-schema-id", "current schema", 0, e);
}

static tarn_err check_partition_id(const json_t *base, const json_t *r, ice_error *e)
{
    return check_number(base, r, "last-assigned-partition-id", "last-partition-id", "last assigned partition id",
                        ICE_PARTITION_ID_START - 1, e);
}

static tarn_err check_spec_id(const json_t *base, const json_t *r, ice_error *e)
{
    return check_number(base, r, "default-spec-id", "default-spec-id", "default partition spec", 0, e);
}

static tarn_err check_order_id(const json_t *base, const json_t *r, ice_error *e)
{
    return check_number(base, r, "default-sort-order-id", "default-sort-order-id", "default sort order", 0, e);
}

static const requirement_row rows[] = {
    {"assert-create", check_create},
    {"assert-table-uuid", check_table_uuid},
    {"assert-view-uuid", check_view_uuid},
    {"assert-ref-snapshot-id", check_ref},
    {"assert-last-assigned-field-id", check_field_id},
    {"assert-current-schema-id", check_schema_id},
    {"assert-last-assigned-partition-id", check_partition_id},
    {"assert-default-spec-id", check_spec_id},
    {"assert-default-sort-order-id", check_order_id},
};

static bool is_create(const json_t *r)
{
    return tarn_str_ieqc(ice_string_or_empty(r, "type"), "assert-create");
}

bool ice_has_assert_create(const json_t *requirements)
{
    for (size_t i = 0; i < json_array_size(requirements); i++)
        if (is_create(json_array_get(requirements, i)))
            return true;
    return false;
}

static tarn_err check_one(const json_t *base, const json_t *r, ice_error *e)
{
    tarn_str type = TARN_STR_NULL;
    if (!json_is_object(r))
        return ice_fail(e, TARN_E_ICE_BAD_REQUEST, "Cannot parse requirement: an object is needed");
    ICE_TRY(ice_get_string(r, "requirement", "type", &type, e));
    for (size_t i = 0; i < TARN_ARRAY_LEN(rows); i++)
        if (tarn_str_ieqc(type, rows[i].type))
            return rows[i].check(base, r, e);
    return ice_fail(e, TARN_E_ICE_BAD_REQUEST, "Cannot convert update requirement from json: %.*s", TARN_STR_ARG(type));
}

tarn_err ice_check_requirements(const json_t *base, const json_t *requirements, ice_error *e)
{
    size_t n = json_array_size(requirements);
    if (requirements && !json_is_array(requirements))
        return ice_fail(e, TARN_E_ICE_BAD_REQUEST, "Cannot parse commit: requirements must be a list");
    if (n > ICE_REQUIREMENTS_MAX)
        return ice_fail(e, TARN_E_ICE_BAD_REQUEST, "Cannot parse commit: %zu requirements, %d are allowed", n, ICE_REQUIREMENTS_MAX);
    if (!base && n != 1 && ice_has_assert_create(requirements))
        return ice_fail(e, TARN_E_ICE_BAD_REQUEST, "Invalid create requirements: assert-create must be the only one");
    for (size_t i = 0; i < n; i++)
        ICE_TRY(check_one(base, json_array_get(requirements, i), e));
    return TARN_OK;
}
