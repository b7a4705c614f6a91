/* SPDX-License-Identifier: Apache-2.0 */
/*
 * iceberg, the other updates: uuid, format version, location, properties, statistics files, encryption keys.
 */
#include <string.h>

#include "build.h"

/* ------------------------------------------------------------------ uuid, format, location */
tarn_err ice_up_assign_uuid(ice_build *b, const json_t *u)
{
    tarn_str uuid = TARN_STR_NULL;
    tarn_str had = ice_string_or_empty(b->md, "table-uuid");
    ICE_TRY(ice_get_string(u, "assign-uuid", "uuid", &uuid, b->e));
    if (uuid.n != 36)
        return ice_fail(b->e, TARN_E_ICE_BAD_REQUEST, "Cannot parse assign-uuid: %.*s is no UUID", TARN_STR_ARG(uuid));
    if (tarn_str_ieq(had, uuid))
        return TARN_OK;
    if (b->base && had.n > 0) /* clients that know the table would refuse it from then on */
        return ice_fail(b->e, TARN_E_ICE_VALIDATION, "Cannot reassign uuid");
    b->changed = true;
    return ice_set_str(b->md, "table-uuid", uuid);
}

static tarn_err leave_v1(ice_build *b)
{
    json_object_del(b->md, "schema");
    json_object_del(b->md, "partition-spec");
    if (!ice_get(b->md, "table-uuid")) {
        char uuid[37];
        tarn_uuid4(uuid);
        ICE_TRY(ice_set_str(b->md, "table-uuid", tarn_str_of(uuid)));
    }
    return ice_set_int(b->md, "last-sequence-number", ice_int_or(b->md, "last-sequence-number", 0));
}

tarn_err ice_up_upgrade_format(ice_build *b, const json_t *u)
{
    int64_t v = 0;
    ICE_TRY(ice_get_int32(u, "upgrade-format-version", "format-version", &v, b->e));
    if (v > ICE_FORMAT_VERSION_MAX)
        return ice_fail(b->e, TARN_E_ICE_VALIDATION, "Cannot upgrade table to unsupported format version: v%lld (supported: v%d)",
                        (long long)v, ICE_FORMAT_VERSION_MAX);
    if (v < b->format)
        return ice_fail(b->e, TARN_E_ICE_VALIDATION, "Cannot downgrade v%lld table to v%lld", (long long)b->format, (long long)v);
    if (v == b->format)
        return TARN_OK;
    if (b->format == 1)
        ICE_TRY(leave_v1(b));
    if (v >= 3 && !ice_get(b->md, "next-row-id"))
        ICE_TRY(ice_set_int(b->md, "next-row-id", 0));
    b->format = v;
    b->changed = true;
    return ice_set_int(b->md, "format-version", v);
}

tarn_err ice_up_set_location(ice_build *b, const json_t *u)
{
    tarn_str location = TARN_STR_NULL;
    bool use = false;
    ICE_TRY(ice_get_string(u, "set-location", "location", &location, b->e));
    ICE_TRY(ice_location_check(b->ctx, &location, &use, b->e));
    if (!use || tarn_str_eq(location, ice_string_or_empty(b->md, "location")))
        return TARN_OK;
    b->changed = true;
    return ice_set_str(b->md, "location", location);
}

/* ------------------------------------------------------------------ properties */
tarn_err ice_up_set_properties(ice_build *b, const json_t *u)
{
    json_t *updates = NULL, *properties = NULL;
    const char *key;
    json_t *value;
    ICE_TRY(ice_get_object(u, "set-properties", ice_get(u, "updates") ? "updates" : "updated", &updates, b->e));
    ICE_TRY(ice_check_string_map(updates, "set-properties", b->e));
    ICE_TRY(ice_check_path_properties(b->ctx, updates, b->e));
    if (json_object_size(updates) == 0)
        return TARN_OK;
    ICE_TRY(ice_own(b, ICE_PART_PROPERTIES, &properties));
    json_object_foreach(updates, key, value)
    {
        if (json_object_set(properties, key, value) != 0)
            return TARN_E_NO_MEMORY;
    }
    b->changed = true;
    return TARN_OK;
}

tarn_err ice_up_remove_properties(ice_build *b, const json_t *u)
{
    json_t *removals = NULL, *properties = NULL;
    ICE_TRY(ice_get_array(u, "remove-properties", ice_get(u, "removals") ? "removals" : "removed", &removals, b->e));
    for (size_t i = 0; i < json_array_size(removals); i++) {
        tarn_str key = ice_str(json_array_get(removals, i));
        if (!key.p)
            return ice_fail(b->e, TARN_E_ICE_BAD_REQUEST, "Cannot parse remove-properties: removals must be a list of strings");
        if (!json_object_getn(ice_child(b, ICE_PART_PROPERTIES), key.p, key.n))
            continue;
        ICE_TRY(ice_own(b, ICE_PART_PROPERTIES, &properties));
        json_object_deln(properties, key.p, key.n);
        b->changed = true;
    }
    return TARN_OK;
}

/* ------------------------------------------------------------------ statistics */
static tarn_err put_statistics(ice_build *b, ice_part part, const json_t *file)
{
    int64_t id = ice_int_or(file, "snapshot-id", -1);
    ice_id_set ids = {0};
    size_t removed = 0;
    json_t *list = NULL;
    ICE_TRY(ice_id_set_add(b->ctx->arena, &ids, id));
    ICE_TRY(ice_drop_entries(b, part, "snapshot-id", &ids, &removed));
    ICE_TRY(ice_own(b, part, &list));
    b->changed = true;
    return json_array_append(list, (json_t *)(uintptr_t)file) == 0 ? TARN_OK : TARN_E_NO_MEMORY;
}

static tarn_err check_statistics(ice_build *b, const char *what, const json_t *file)
{
    int64_t n = 0;
    tarn_str path = TARN_STR_NULL;
    ICE_TRY(ice_get_int(file, what, "snapshot-id", &n, b->e));
    ICE_TRY(ice_get_string(file, what, "statistics-path", &path, b->e));
    return ice_get_int(file, what, "file-size-in-bytes", &n, b->e);
}

tarn_err ice_up_set_statistics(ice_build *b, const json_t *u)
{
    json_t *file = NULL, *blobs = NULL;
    int64_t n = 0;
    ICE_TRY(ice_get_object(u, "set-statistics", "statistics", &file, b->e));
    ICE_TRY(check_statistics(b, "statistics", file));
    ICE_TRY(ice_get_int(file, "statistics", "file-footer-size-in-bytes", &n, b->e));
    ICE_TRY(ice_get_array(file, "statistics", "blob-metadata", &blobs, b->e));
    return put_statistics(b, ICE_PART_STATISTICS, file);
}

tarn_err ice_up_set_partition_statistics(ice_build *b, const json_t *u)
{
    json_t *file = NULL;
    ICE_TRY(ice_get_object(u, "set-partition-statistics", "partition-statistics", &file, b->e));
    ICE_TRY(check_statistics(b, "partition-statistics", file));
    return put_statistics(b, ICE_PART_PARTITION_STATISTICS, file);
}

static tarn_err remove_statistics(ice_build *b, ice_part part, const char *what, const json_t *u)
{
    int64_t id = 0;
    ice_id_set ids = {0};
    size_t removed = 0;
    ICE_TRY(ice_get_int(u, what, "snapshot-id", &id, b->e));
    ICE_TRY(ice_id_set_add(b->ctx->arena, &ids, id));
    ICE_TRY(ice_drop_entries(b, part, "snapshot-id", &ids, &removed));
    b->changed = b->changed || removed > 0;
    return TARN_OK;
}

tarn_err ice_up_remove_statistics(ice_build *b, const json_t *u)
{
    return remove_statistics(b, ICE_PART_STATISTICS, "remove-statistics", u);
}

tarn_err ice_up_remove_partition_statistics(ice_build *b, const json_t *u)
{
    return remove_statistics(b, ICE_PART_PARTITION_STATISTICS, "remove-partition-statistics", u);
}

/* ------------------------------------------------------------------ encryption keys */
static json_t *find_key(const json_t *keys, tarn_str id, size_t *index)
{
    for (size_t i = 0; i < json_array_size(keys); i++) {
        if (tarn_str_eq(ice_string_or_empty(json_array_get(keys, i), "key-id"), id)) {
            *index = i;
            return json_array_get(keys, i);
        }
    }
    return NULL;
}

tarn_err ice_up_add_key(ice_build *b, const json_t *u)
{
    json_t *key = NULL, *keys = NULL;
    tarn_str id = TARN_STR_NULL, data = TARN_STR_NULL;
    size_t i = 0;
    ICE_TRY(ice_get_object(u, "add-encryption-key", "encryption-key", &key, b->e));
    ICE_TRY(ice_get_string(key, "encryption-key", "key-id", &id, b->e));
    ICE_TRY(ice_get_string(key, "encryption-key", "encrypted-key-metadata", &data, b->e));
    if (find_key(ice_child(b, ICE_PART_KEYS), id, &i))
        return TARN_OK;
    ICE_TRY(ice_own(b, ICE_PART_KEYS, &keys));
    b->changed = true;
    return json_array_append(keys, key) == 0 ? TARN_OK : TARN_E_NO_MEMORY;
}

tarn_err ice_up_remove_key(ice_build *b, const json_t *u)
{
    json_t *keys = NULL;
    tarn_str id = TARN_STR_NULL;
    size_t i = 0;
    ICE_TRY(ice_get_string(u, "remove-encryption-key", "key-id", &id, b->e));
    if (!find_key(ice_child(b, ICE_PART_KEYS), id, &i))
        return TARN_OK;
    ICE_TRY(ice_own(b, ICE_PART_KEYS, &keys));
    json_array_remove(keys, i);
    b->changed = true;
    return TARN_OK;
}
