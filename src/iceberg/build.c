/* SPDX-License-Identifier: Apache-2.0 */
/*
 * iceberg, metadata in the making: copy-on-write of the top object and its children, small sets, the loop over updates.
 * See build.h for the invariants.
 */
#include <string.h>

#include "build.h"

/* ------------------------------------------------------------------ id sets */
static size_t slot_of(const ice_id_set *s, int64_t id)
{
    uint64_t h = (uint64_t)id * 0x9E3779B97F4A7C15ull;
    size_t i = (size_t)(h >> 32) & (s->cap - 1);
    while (s->used[i] && s->slots[i] != id)
        i = (i + 1) & (s->cap - 1);
    return i;
}

bool ice_id_set_has(const ice_id_set *s, int64_t id)
{
    return s->cap > 0 && s->used[slot_of(s, id)];
}

static tarn_err grow(tarn_arena *a, ice_id_set *s, size_t cap)
{
    ice_id_set n = {.slots = TARN_ARENA_ARRAY(a, int64_t, cap), .used = TARN_ARENA_ARRAY(a, bool, cap), .cap = cap};
    if (!n.slots || !n.used)
        return TARN_E_NO_MEMORY;
    for (size_t i = 0; i < s->cap; i++) {
        if (s->used[i]) {
            size_t k = slot_of(&n, s->slots[i]);
            n.slots[k] = s->slots[i];
            n.used[k] = true;
            n.n++;
        }
    }
    *s = n;
    return TARN_OK;
}

tarn_err ice_id_set_add(tarn_arena *a, ice_id_set *s, int64_t id)
{
    if (s->n * 2 >= s->cap)
        ICE_TRY(grow(a, s, s->cap ? s->cap * 2 : 16));
    size_t i = slot_of(s, id);
    if (!s->used[i]) {
        s->used[i] = true;
        s->slots[i] = id;
        s->n++;
    }
    return TARN_OK;
}

/* ------------------------------------------------------------------ children */
static const struct {
    const char *key;
    bool object;
} parts[ICE_PART_COUNT] = {
    [ICE_PART_SCHEMAS] = {"schemas", false},
    [ICE_PART_SPECS] = {"partition-specs", false},
    [ICE_PART_ORDERS] = {"sort-orders", false},
    [ICE_PART_PROPERTIES] = {"properties", true},
    [ICE_PART_REFS] = {"refs", true},
    [ICE_PART_SNAPSHOTS] = {"snapshots", false},
    [ICE_PART_STATISTICS] = {"statistics", false},
    [ICE_PART_PARTITION_STATISTICS] = {"partition-statistics", false},
    [ICE_PART_SNAPSHOT_LOG] = {"snapshot-log", false},
    [ICE_PART_METADATA_LOG] = {"metadata-log", false},
    [ICE_PART_KEYS] = {"encryption-keys", false},
    [ICE_PART_VERSIONS] = {"versions", false},
    [ICE_PART_VERSION_LOG] = {"version-log", false},
};

const char *ice_part_key(ice_part p)
{
    return parts[p].key;
}

json_t *ice_child(const ice_build *b, ice_part p)
{
    return ice_get(b->md, parts[p].key);
}

tarn_err ice_replace(ice_build *b, ice_part p, json_t *value)
{
    ICE_TRY(ice_set(b->md, parts[p].key, value));
    b->owned |= 1u << p;
    return TARN_OK;
}

tarn_err ice_own(ice_build *b, ice_part p, json_t **out)
{
    json_t *c = ice_child(b, p);
    if (!c || !(b->owned & (1u << p))) {
        json_t *copy = c ? json_copy(c) : parts[p].object ? json_object() : json_array();
        ICE_TRY(ice_replace(b, p, copy));
        c = copy;
    }
    *out = c;
    return TARN_OK;
}

json_t *ice_find(const json_t *list, const char *key, int64_t id)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        json_t *item = json_array_get(list, i);
        int64_t v = 0;
        if (ice_int_at(item, key, &v) && v == id)
            return item;
    }
    return NULL;
}

int64_t ice_highest(const json_t *list, const char *key)
{
    int64_t top = -1;
    for (size_t i = 0; i < json_array_size(list); i++) {
        int64_t v = ice_int_or(json_array_get(list, i), key, -1);
        top = v > top ? v : top;
    }
    return top;
}

static bool in_set(const json_t *item, const char *key, const ice_id_set *ids)
{
    int64_t id = 0;
    return ice_int_at(item, key, &id) && ice_id_set_has(ids, id);
}

tarn_err ice_drop_entries(ice_build *b, ice_part p, const char *key, const ice_id_set *ids, size_t *removed)
{
    const json_t *old = ice_child(b, p);
    size_t n = json_array_size(old), gone = 0;
    for (size_t i = 0; i < n; i++)
        gone += in_set(json_array_get(old, i), key, ids);
    *removed = gone;
    if (gone == 0)
        return TARN_OK;
    json_t *kept = json_array();
    if (!kept)
        return TARN_E_NO_MEMORY;
    for (size_t i = 0; i < n; i++) {
        json_t *item = json_array_get(old, i);
        if (!in_set(item, key, ids) && json_array_append(kept, item) != 0) {
            json_decref(kept);
            return TARN_E_NO_MEMORY;
        }
    }
    return ice_replace(b, p, kept);
}

tarn_err ice_read_id_list(ice_build *b, const json_t *update, const char *what, const char *key, ice_id_set *out)
{
    json_t *list = NULL;
    ice_id_set s = {0};
    ICE_TRY(ice_get_array(update, what, key, &list, b->e));
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *v = json_array_get(list, i);
        if (!json_is_integer(v))
            return ice_fail(b->e, TARN_E_ICE_BAD_REQUEST, "Cannot parse %s: %s must be a list of integers", what, key);
        ICE_TRY(ice_id_set_add(b->ctx->arena, &s, json_integer_value(v)));
    }
    *out = s;
    return TARN_OK;
}

/* ------------------------------------------------------------------ what is current */
json_t *ice_current_schema(const ice_build *b)
{
    return ice_find(ice_child(b, ICE_PART_SCHEMAS), "schema-id", ice_int_or(b->md, "current-schema-id", -1));
}

tarn_err ice_current_index(ice_build *b, const ice_schema **out)
{
    const json_t *current = ice_current_schema(b);
    if (!current)
        return ice_fail(b->e, TARN_E_ICE_VALIDATION, "The table has no current schema yet");
    if (b->schema_of != current) {
        ICE_TRY(ice_schema_read(b->ctx->arena, current, &b->schema, b->e));
        b->schema_of = current;
    }
    *out = &b->schema;
    return TARN_OK;
}

int64_t ice_current_snapshot(const json_t *md)
{
    return ice_int_or(md, "current-snapshot-id", -1);
}

tarn_err ice_set_current_snapshot(ice_build *b, int64_t id)
{
    return ice_set(b->md, "current-snapshot-id", id < 0 && b->format >= 3 ? json_null() : json_integer(id < 0 ? -1 : id));
}

tarn_err ice_snapshot_ids(ice_build *b, const ice_id_set **out)
{
    if (!b->has_snapshots) {
        const json_t *list = ice_child(b, ICE_PART_SNAPSHOTS);
        ice_id_set s = {0};
        for (size_t i = 0; i < json_array_size(list); i++)
            ICE_TRY(ice_id_set_add(b->ctx->arena, &s, ice_int_or(json_array_get(list, i), "snapshot-id", -1)));
        b->snapshots = s;
        b->has_snapshots = true;
    }
    *out = &b->snapshots;
    return TARN_OK;
}

/* ------------------------------------------------------------------ the loop */
static const ice_update_row *find_row(const ice_update_row *rows, size_t n, tarn_str action)
{
    for (size_t i = 0; i < n; i++)
        if (tarn_str_ieqc(action, rows[i].action))
            return &rows[i];
    return NULL;
}

tarn_err ice_apply_updates(ice_build *b, const json_t *updates, const ice_update_row *rows, size_t rows_n)
{
    size_t n = json_array_size(updates);
    if (!json_is_array(updates))
        return ice_fail(b->e, TARN_E_ICE_BAD_REQUEST, "Cannot parse commit: updates must be a list");
    if (n > ICE_UPDATES_MAX)
        return ice_fail(b->e, TARN_E_ICE_BAD_REQUEST, "Cannot parse commit: %zu updates, %d are allowed", n, ICE_UPDATES_MAX);
    for (size_t i = 0; i < n; i++) {
        const json_t *u = json_array_get(updates, i);
        tarn_str action = TARN_STR_NULL;
        if (!json_is_object(u))
            return ice_fail(b->e, TARN_E_ICE_BAD_REQUEST, "Cannot parse update: an object is needed");
        ICE_TRY(ice_get_string(u, "update", "action", &action, b->e));
        const ice_update_row *row = find_row(rows, rows_n, action);
        if (!row)
            return ice_fail(b->e, TARN_E_ICE_BAD_REQUEST, "Cannot convert metadata update action from json: %.*s", TARN_STR_ARG(action));
        ICE_TRY(row->apply(b, u));
    }
    return TARN_OK;
}
