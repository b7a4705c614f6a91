/* SPDX-License-Identifier: Apache-2.0 */
/*
 * iceberg, schemas that are made: a clean copy in the form that strict readers need, and a copy with fresh ids.
 *
 * The JSON of the caller is never changed; fields of a schema, and of what is in it, that nobody knows
 * are carried along. The results belong to the caller.
 */
#include <stdlib.h>
#include <string.h>

#include "schema.h"

/* ------------------------------------------------------------------ default values */
static bool all_digits(tarn_str s)
{
    for (size_t i = 0; i < s.n; i++)
        if (s.p[i] < '0' || s.p[i] > '9')
            return false;
    return s.n > 0;
}

/* Text of a decimal with exactly `scale` digits behind the point. */
static bool decimal_text(tarn_str s, int64_t scale)
{
    tarn_str whole, fraction;
    if (s.n > 0 && (s.p[0] == '-' || s.p[0] == '+'))
        s = tarn_str_sub(s, 1, s.n);
    if (!tarn_str_split(s, '.', &whole, &fraction))
        return scale == 0 && all_digits(s);
    return all_digits(whole) && all_digits(fraction) && (int64_t)fraction.n == scale;
}

static bool hex_text(tarn_str s, int64_t bytes) /* bytes < 0: any length */
{
    if (s.n % 2 != 0 || (bytes >= 0 && s.n != (size_t)bytes * 2))
        return false;
    for (size_t i = 0; i < s.n; i++)
        if (!strchr("0123456789abcdefABCDEF", s.p[i]))
            return false;
    return true;
}

static bool date_text(tarn_str s)
{
    int64_t ms;
    return s.n >= 10 && s.p[s.n - 3] == '-' && tarn_parse_iso8601(s, &ms);
}

/* hh:mm:ss, or hh:mm, with an optional fraction. */
static bool time_text(tarn_str s)
{
    static const char form[] = "dd:dd:dd";
    if (s.n < 5)
        return false;
    for (size_t i = 0; i < s.n && i < 8; i++)
        if (form[i] == 'd' ? (s.p[i] < '0' || s.p[i] > '9') : s.p[i] != form[i])
            return false;
    if (s.n == 5 || s.n == 8)
        return true;
    return s.n > 9 && s.n <= 18 && s.p[8] == '.' && all_digits(tarn_str_sub(s, 9, s.n));
}

static bool timestamp_text(tarn_str s, bool zone)
{
    ptrdiff_t t = tarn_str_chr(s, 'T');
    if (t < 10 || !date_text(tarn_str_sub(s, 0, (size_t)t)))
        return false;
    tarn_str rest = tarn_str_sub(s, (size_t)t + 1, s.n);
    if (!zone)
        return time_text(rest);
    if (tarn_str_ends(rest, "Z"))
        return time_text(tarn_str_sub(rest, 0, rest.n - 1));
    return tarn_str_ends(rest, "+00:00") && time_text(tarn_str_sub(rest, 0, rest.n - 6));
}

static bool default_fits(const json_t *v, const ice_type *t)
{
    tarn_str s = ice_str(v);
    switch (t->kind) {
    case ICE_T_BOOLEAN:
        return json_is_boolean(v);
    case ICE_T_INT:
        return json_is_integer(v) && json_integer_value(v) >= INT32_MIN && json_integer_value(v) <= INT32_MAX;
    case ICE_T_LONG:
        return json_is_integer(v);
    case ICE_T_FLOAT:
    case ICE_T_DOUBLE:
        return json_is_number(v);
    case ICE_T_DECIMAL:
        return s.p && decimal_text(s, t->scale);
    case ICE_T_DATE:
        return s.p && date_text(s);
    case ICE_T_TIME:
        return s.p && time_text(s);
    case ICE_T_TIMESTAMP:
    case ICE_T_TIMESTAMP_NS:
        return s.p && timestamp_text(s, false);
    case ICE_T_TIMESTAMPTZ:
    case ICE_T_TIMESTAMPTZ_NS:
        return s.p && timestamp_text(s, true);
    case ICE_T_STRING:
        return s.p != NULL;
    case ICE_T_UUID:
        return s.n == 36;
    case ICE_T_FIXED:
        return s.p && hex_text(s, t->length);
    case ICE_T_BINARY:
        return s.p && hex_text(s, -1);
    case ICE_T_LIST:
        return json_is_array(v);
    case ICE_T_STRUCT:
    case ICE_T_MAP:
        return json_is_object(v);
    case ICE_T_UNKNOWN:
    case ICE_T_VARIANT:
    case ICE_T_GEOMETRY:
    case ICE_T_GEOGRAPHY:
        return false; /* these have none but null */
    }
    return false;
}

/* One of the two defaults of a field that is the caller's own copy. */
static tarn_err clean_default(json_t *field, const char *key, const ice_type *type, ice_error *e)
{
    json_t *v = json_object_get(field, key);
    if (!v)
        return TARN_OK;
    if (json_is_null(v)) {
        json_object_del(field, key);
        return TARN_OK;
    }
    if (!default_fits(v, type))
        return ice_fail(e, TARN_E_ICE_BAD_REQUEST, "Cannot parse default as a %s value: %s of field %s", ice_kind_name(type->kind), key,
                        json_string_value(json_object_get(field, "name")));
    if ((type->kind == ICE_T_FLOAT || type->kind == ICE_T_DOUBLE) && json_is_integer(v))
        ICE_TRY(ice_set(field, key, json_real((double)json_integer_value(v))));
    return TARN_OK;
}

/* ------------------------------------------------------------------ copies, with or without new ids */
typedef struct maker {
    bool fresh;
    int64_t next_id;
    ice_id_map map; /* fresh: room for every column */
    ice_error *e;
} maker;

static tarn_err make_type(maker *m, const json_t *type, json_t **out);

static tarn_err new_id(maker *m, const json_t *holder, const char *key, int64_t *id)
{
    int64_t old = -1;
    bool has = false;
    ICE_TRY(ice_opt_int32(holder, "schema", key, &has, &old, m->e));
    if (!has && !m->fresh)
        return ice_fail(m->e, TARN_E_ICE_BAD_REQUEST, "Cannot parse schema: field %s is missing", key);
    *id = old;
    if (m->fresh) {
        *id = m->next_id++;
        m->map.from[m->map.n] = old;
        m->map.to[m->map.n++] = *id;
    }
    return TARN_OK;
}

static tarn_err make_field(maker *m, json_t *field)
{
    json_t *type = NULL;
    ice_type t = {.kind = ICE_T_STRUCT};
    const json_t *old = ice_get(field, "type");
    if (!old)
        return ice_fail(m->e, TARN_E_ICE_BAD_REQUEST, "Cannot parse struct field: field type is missing");
    if (json_is_string(old) && !ice_type_parse(ice_str(old), &t))
        return ice_fail(m->e, TARN_E_ICE_BAD_REQUEST, "Cannot parse type string: %s is no type", json_string_value(old));
    if (json_is_object(old) && tarn_str_ieqc(ice_string_or_empty(old, "type"), "list"))
        t.kind = ICE_T_LIST;
    if (json_is_null(json_object_get(field, "doc")))
        json_object_del(field, "doc");
    ICE_TRY(clean_default(field, "initial-default", &t, m->e));
    ICE_TRY(clean_default(field, "write-default", &t, m->e));
    ICE_TRY(make_type(m, old, &type));
    return ice_set(field, "type", type);
}

static tarn_err make_fields(maker *m, json_t *holder)
{
    json_t *fields = NULL;
    ICE_TRY(ice_get_array(holder, "struct", "fields", &fields, m->e));
    json_t *copy = json_array();
    if (!copy || json_object_set_new(holder, "fields", copy) != 0)
        return TARN_E_NO_MEMORY;
    /* `fields` is still alive: the JSON that the holder was copied from keeps it. */
    for (size_t i = 0; i < json_array_size(fields); i++) {
        int64_t id = 0;
        const json_t *f = json_array_get(fields, i);
        if (!json_is_object(f))
            return ice_fail(m->e, TARN_E_ICE_BAD_REQUEST, "Cannot parse struct field: an object is needed");
        ICE_TRY(new_id(m, f, "id", &id));
        ICE_TRY(ice_push(copy, json_copy((json_t *)(uintptr_t)f)));
        ICE_TRY(ice_set_int(json_array_get(copy, i), "id", id));
    }
    for (size_t i = 0; i < json_array_size(copy); i++)
        ICE_TRY(make_field(m, json_array_get(copy, i)));
    return TARN_OK;
}

static tarn_err make_part(maker *m, json_t *holder, const char *part)
{
    json_t *type = NULL;
    const json_t *old = ice_get(holder, part);
    if (!old)
        return ice_fail(m->e, TARN_E_ICE_BAD_REQUEST, "Cannot parse type: field %s is missing", part);
    ICE_TRY(make_type(m, old, &type));
    return ice_set(holder, part, type);
}

static tarn_err make_nested(maker *m, json_t *copy)
{
    tarn_str kind = ice_string_or_empty(copy, "type");
    int64_t id = 0;
    if (tarn_str_ieqc(kind, "struct"))
        return make_fields(m, copy);
    if (tarn_str_ieqc(kind, "list")) {
        ICE_TRY(new_id(m, copy, "element-id", &id));
        ICE_TRY(ice_set_int(copy, "element-id", id));
        return make_part(m, copy, "element");
    }
    if (tarn_str_ieqc(kind, "map")) {
        ICE_TRY(new_id(m, copy, "key-id", &id));
        ICE_TRY(ice_set_int(copy, "key-id", id));
        ICE_TRY(new_id(m, copy, "value-id", &id));
        ICE_TRY(ice_set_int(copy, "value-id", id));
        ICE_TRY(make_part(m, copy, "key"));
        return make_part(m, copy, "value");
    }
    return ice_fail(m->e, TARN_E_ICE_BAD_REQUEST, "Cannot parse type: %.*s is no nested type", TARN_STR_ARG(kind));
}

static tarn_err make_type(maker *m, const json_t *type, json_t **out)
{
    if (!json_is_object(type)) {
        *out = json_incref((json_t *)(uintptr_t)type);
        return TARN_OK;
    }
    json_t *copy = json_copy((json_t *)(uintptr_t)type);
    if (!copy)
        return TARN_E_NO_MEMORY;
    tarn_err err = make_nested(m, copy);
    if (err != TARN_OK) {
        json_decref(copy);
        return err;
    }
    *out = copy;
    return TARN_OK;
}

/* type and schema-id lead; then what the client sent, in its order. */
static json_t *schema_head(const json_t *schema, int64_t schema_id)
{
    json_t *o = json_object();
    if (!o)
        return NULL;
    const char *key;
    json_t *value;
    bool ok = ice_set_str(o, "type", TARN_STR("struct")) == TARN_OK && ice_set_int(o, "schema-id", schema_id) == TARN_OK;
    json_object_foreach((json_t *)(uintptr_t)schema, key, value)
    {
        bool empty_ids = strcmp(key, "identifier-field-ids") == 0 && (json_is_null(value) || json_array_size(value) == 0);
        if (ok && !empty_ids && strcmp(key, "type") != 0 && strcmp(key, "schema-id") != 0)
            ok = json_object_set(o, key, value) == 0;
    }
    if (!ok) {
        json_decref(o);
        return NULL;
    }
    return o;
}

static tarn_err make_schema(maker *m, const json_t *schema, int64_t schema_id, json_t **out)
{
    if (!json_is_object(schema))
        return ice_fail(m->e, TARN_E_ICE_BAD_REQUEST, "Cannot parse schema: an object is needed");
    const json_t *type = ice_get(schema, "type");
    if (type && !tarn_str_ieqc(ice_str(type), "struct"))
        return ice_fail(m->e, TARN_E_ICE_BAD_REQUEST, "Cannot parse schema: its type must be struct");
    json_t *copy = schema_head(schema, schema_id);
    if (!copy)
        return ice_fail_plain(m->e, TARN_E_NO_MEMORY);
    tarn_err err = make_fields(m, copy);
    if (err == TARN_E_NO_MEMORY)
        ice_fail_plain(m->e, err);
    if (err != TARN_OK) {
        json_decref(copy);
        return err;
    }
    *out = copy;
    return TARN_OK;
}

tarn_err ice_schema_clean(const json_t *schema, int64_t schema_id, json_t **out, ice_error *e)
{
    maker m = {.e = e};
    return make_schema(&m, schema, schema_id, out);
}

/* ------------------------------------------------------------------ fresh ids */
static size_t count_ids(const json_t *type)
{
    size_t n = 0;
    const json_t *fields = json_object_get(type, "fields");
    for (size_t i = 0; i < json_array_size(fields); i++)
        n += 1 + count_ids(json_object_get(json_array_get(fields, i), "type"));
    n += json_object_get(type, "element") ? 1 + count_ids(json_object_get(type, "element")) : 0;
    n += json_object_get(type, "key") ? 1 + count_ids(json_object_get(type, "key")) : 0;
    n += json_object_get(type, "value") ? 1 + count_ids(json_object_get(type, "value")) : 0;
    return n;
}

typedef struct id_pair {
    int64_t from, to;
} id_pair;

static int cmp_pair(const void *a, const void *b)
{
    const id_pair *x = a, *y = b;
    if (x->from != y->from)
        return x->from < y->from ? -1 : 1;
    return x->to < y->to ? -1 : x->to > y->to;
}

/* Orders the map; two columns with the same id can't be told apart (negative ids mean "none yet" and are not looked up). */
static tarn_err order_map(tarn_arena *a, ice_id_map *map, ice_error *e)
{
    id_pair *pairs = TARN_ARENA_ARRAY(a, id_pair, map->n + 1);
    if (!pairs)
        return ice_fail_plain(e, TARN_E_NO_MEMORY);
    for (size_t i = 0; i < map->n; i++)
        pairs[i] = (id_pair){map->from[i], map->to[i]};
    qsort(pairs, map->n, sizeof pairs[0], cmp_pair);
    for (size_t i = 0; i < map->n; i++) {
        if (i > 0 && pairs[i].from >= 0 && pairs[i].from == pairs[i - 1].from)
            return ice_fail(e, TARN_E_ICE_VALIDATION, "Invalid schema: multiple fields for id %lld", (long long)pairs[i].from);
        map->from[i] = pairs[i].from;
        map->to[i] = pairs[i].to;
    }
    return TARN_OK;
}

bool ice_id_map_get(const ice_id_map *m, int64_t from, int64_t *to)
{
    size_t lo = 0, hi = m->n;
    while (from >= 0 && lo < hi) {
        size_t mid = (lo + hi) / 2;
        if (m->from[mid] == from) {
            *to = m->to[mid];
            return true;
        }
        if (m->from[mid] < from)
            lo = mid + 1;
        else
            hi = mid;
    }
    return false;
}

static tarn_err map_identifiers(const ice_id_map *map, json_t *schema, ice_error *e)
{
    json_t *ids = NULL;
    ICE_TRY(ice_opt_array(schema, "schema", "identifier-field-ids", &ids, e));
    if (!ids)
        return TARN_OK;
    json_t *copy = json_array();
    if (!copy)
        return ice_fail_plain(e, TARN_E_NO_MEMORY);
    tarn_err err = TARN_OK;
    for (size_t i = 0; i < json_array_size(ids) && err == TARN_OK; i++) {
        int64_t to = 0, from = json_integer_value(json_array_get(ids, i));
        if (!json_is_integer(json_array_get(ids, i)) || !ice_id_map_get(map, from, &to))
            err =
                ice_fail(e, TARN_E_ICE_VALIDATION, "Cannot add fieldId %lld as an identifier field: field does not exist", (long long)from);
        else
            err = ice_push(copy, json_integer(to));
    }
    if (err != TARN_OK) {
        json_decref(copy);
        return err;
    }
    return ice_set(schema, "identifier-field-ids", copy);
}

tarn_err ice_schema_fresh(tarn_arena *a, const json_t *schema, int64_t schema_id, json_t **out, ice_id_map *map, ice_error *e)
{
    size_t n = count_ids(schema);
    if (n > ICE_COLUMNS_MAX)
        return ice_fail(e, TARN_E_ICE_BAD_REQUEST, "Invalid schema: %zu columns, %d are allowed", n, ICE_COLUMNS_MAX);
    maker m = {.fresh = true, .next_id = 1, .e = e};
    m.map.from = TARN_ARENA_ARRAY(a, int64_t, n + 1);
    m.map.to = TARN_ARENA_ARRAY(a, int64_t, n + 1);
    if (!m.map.from || !m.map.to)
        return ice_fail_plain(e, TARN_E_NO_MEMORY);
    json_t *made = NULL;
    ICE_TRY(make_schema(&m, schema, schema_id, &made));
    TARN_ASSERT(m.map.n <= n);
    tarn_err err = order_map(a, &m.map, e);
    if (err == TARN_OK)
        err = map_identifiers(&m.map, made, e);
    if (err != TARN_OK) {
        json_decref(made);
        return err;
    }
    *map = m.map;
    *out = made;
    return TARN_OK;
}
