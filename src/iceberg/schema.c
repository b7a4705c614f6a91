/* SPDX-License-Identifier: Apache-2.0 */
/*
 * iceberg, schemas: the index of a schema's columns and its checks. See schema.h.
 *
 * Invariants: (1) columns[] holds parents before children; (2) by_id and by_name are permutations of the columns, strictly
 * ascending, so ids and full names are unique; (3) nothing here changes the JSON.
 * Recursion is bounded by the depth of the JSON (ICE_JSON_DEPTH_MAX).
 */
#include <stdlib.h>
#include <string.h>

#include "schema.h"

typedef struct reader {
    tarn_arena *arena;
    ice_schema *s;
    size_t cap;
    ice_error *e;
} reader;

/* ------------------------------------------------------------------ counting and walking */
static size_t count_columns(const json_t *type)
{
    size_t n = 0;
    if (!json_is_object(type))
        return 0;
    const json_t *fields = json_object_get(type, "fields");
    for (size_t i = 0; i < json_array_size(fields); i++)
        n += 1 + count_columns(json_object_get(json_array_get(fields, i), "type"));
    const json_t *parts[] = {json_object_get(type, "element"), json_object_get(type, "key"), json_object_get(type, "value")};
    for (size_t i = 0; i < TARN_ARRAY_LEN(parts); i++)
        n += parts[i] ? 1 + count_columns(parts[i]) : 0;
    return n;
}

static tarn_err read_type(reader *r, const json_t *type, int32_t self);

static tarn_err type_kind(reader *r, const json_t *type, ice_type *out)
{
    if (json_is_string(type)) {
        if (!ice_type_parse(ice_str(type), out))
            return ice_fail(r->e, TARN_E_ICE_BAD_REQUEST, "Cannot parse type string: %s is no type", json_string_value(type));
        return TARN_OK;
    }
    tarn_str name = TARN_STR_NULL;
    if (!json_is_object(type))
        return ice_fail(r->e, TARN_E_ICE_BAD_REQUEST, "Cannot parse type: a string or an object is needed");
    ICE_TRY(ice_get_string(type, "type", "type", &name, r->e));
    if (tarn_str_ieqc(name, "struct"))
        out->kind = ICE_T_STRUCT;
    else if (tarn_str_ieqc(name, "list"))
        out->kind = ICE_T_LIST;
    else if (tarn_str_ieqc(name, "map"))
        out->kind = ICE_T_MAP;
    else
        return ice_fail(r->e, TARN_E_ICE_BAD_REQUEST, "Cannot parse type: %.*s is no nested type", TARN_STR_ARG(name));
    return TARN_OK;
}

/* Adds one column below `parent` and reads its type. */
static tarn_err add_column(reader *r, int32_t parent, int64_t id, tarn_str name, const json_t *type, bool required, const json_t *field)
{
    if (id < 0 || id > ICE_FIELD_ID_MAX)
        return ice_fail(r->e, TARN_E_ICE_BAD_REQUEST, "Invalid schema: field id %lld of %.*s is out of range", (long long)id,
                        TARN_STR_ARG(name));
    TARN_ASSERT(r->s->columns_n < r->cap);
    int32_t self = (int32_t)r->s->columns_n++;
    ice_column *c = &r->s->columns[self];
    *c = (ice_column){.id = id, .parent = parent, .only_structs = true, .required = required, .field = field, .name = name};
    if (parent >= 0) {
        const ice_column *p = &r->s->columns[parent];
        c->only_structs = p->only_structs && p->type.kind == ICE_T_STRUCT;
        c->optional_above = p->optional_above || !p->required;
        c->name = tarn_arena_fmt(r->arena, "%.*s.%.*s", TARN_STR_ARG(p->name), TARN_STR_ARG(name));
        if (!c->name.p)
            return ice_fail_plain(r->e, TARN_E_NO_MEMORY);
    }
    if (c->name.n > ICE_COLUMN_NAME_BYTES_MAX)
        return ice_fail(r->e, TARN_E_ICE_BAD_REQUEST, "Invalid schema: a column's full name is longer than %d bytes",
                        ICE_COLUMN_NAME_BYTES_MAX);
    if (id > r->s->highest_id)
        r->s->highest_id = id;
    ICE_TRY(type_kind(r, type, &c->type));
    return read_type(r, type, self);
}

static tarn_err read_struct(reader *r, const json_t *type, int32_t self)
{
    json_t *fields = NULL;
    ICE_TRY(ice_get_array(type, "struct", "fields", &fields, r->e));
    for (size_t i = 0; i < json_array_size(fields); i++) {
        const json_t *f = json_array_get(fields, i);
        int64_t id = 0;
        tarn_str name = TARN_STR_NULL, doc = TARN_STR_NULL;
        bool required = false;
        if (!json_is_object(f))
            return ice_fail(r->e, TARN_E_ICE_BAD_REQUEST, "Cannot parse struct field: an object is needed");
        ICE_TRY(ice_get_int32(f, "struct field", "id", &id, r->e));
        ICE_TRY(ice_get_string(f, "struct field", "name", &name, r->e));
        ICE_TRY(ice_opt_string(f, "struct field", "doc", &doc, r->e));
        if (!ice_get(f, "required") || !ice_get(f, "type"))
            return ice_fail(r->e, TARN_E_ICE_BAD_REQUEST, "Cannot parse struct field %.*s: it needs `required` and `type`",
                            TARN_STR_ARG(name));
        ICE_TRY(ice_opt_bool(f, "struct field", "required", false, &required, r->e));
        ICE_TRY(add_column(r, self, id, name, ice_get(f, "type"), required, f));
    }
    return TARN_OK;
}

static tarn_err read_part(reader *r, const json_t *type, int32_t self, const char *what, const char *part, const char *id_key,
                          const char *req_key)
{
    int64_t id = 0;
    bool required = true;
    json_t *t = ice_get(type, part);
    ICE_TRY(ice_get_int32(type, what, id_key, &id, r->e));
    if (req_key && !ice_get(type, req_key))
        return ice_fail(r->e, TARN_E_ICE_BAD_REQUEST, "Cannot parse %s: field %s is missing", what, req_key);
    if (req_key)
        ICE_TRY(ice_opt_bool(type, what, req_key, false, &required, r->e));
    if (!t)
        return ice_fail(r->e, TARN_E_ICE_BAD_REQUEST, "Cannot parse %s: field %s is missing", what, part);
    return add_column(r, self, id, tarn_str_of(part), t, required, NULL);
}

static tarn_err read_type(reader *r, const json_t *type, int32_t self)
{
    switch (r->s->columns[self].type.kind) {
    case ICE_T_STRUCT:
        return read_struct(r, type, self);
    case ICE_T_LIST:
        return read_part(r, type, self, "list", "element", "element-id", "element-required");
    case ICE_T_MAP:
        ICE_TRY(read_part(r, type, self, "map", "key", "key-id", NULL));
        return read_part(r, type, self, "map", "value", "value-id", "value-required");
    default:
        return TARN_OK;
    }
}

/* ------------------------------------------------------------------ the orders */
static int cmp_id(const void *a, const void *b, void *ctx)
{
    const ice_schema *s = ctx;
    int64_t x = s->columns[*(const uint32_t *)a].id, y = s->columns[*(const uint32_t *)b].id;
    return x < y ? -1 : x > y;
}

static int cmp_name(const void *a, const void *b, void *ctx)
{
    const ice_schema *s = ctx;
    return tarn_str_cmp(s->columns[*(const uint32_t *)a].name, s->columns[*(const uint32_t *)b].name);
}

static tarn_err order_columns(reader *r)
{
    ice_schema *s = r->s;
    for (uint32_t i = 0; i < s->columns_n; i++)
        s->by_id[i] = s->by_name[i] = i;
    qsort_r(s->by_id, s->columns_n, sizeof s->by_id[0], cmp_id, s);
    qsort_r(s->by_name, s->columns_n, sizeof s->by_name[0], cmp_name, s);
    for (size_t i = 1; i < s->columns_n; i++) {
        const ice_column *a = &s->columns[s->by_id[i - 1]], *b = &s->columns[s->by_id[i]];
        if (a->id == b->id)
            return ice_fail(r->e, TARN_E_ICE_VALIDATION, "Invalid schema: multiple fields for id %lld: %.*s and %.*s", (long long)a->id,
                            TARN_STR_ARG(a->name), TARN_STR_ARG(b->name));
        a = &s->columns[s->by_name[i - 1]];
        b = &s->columns[s->by_name[i]];
        if (tarn_str_eq(a->name, b->name))
            return ice_fail(r->e, TARN_E_ICE_VALIDATION, "Invalid schema: multiple fields for name %.*s: %lld and %lld",
                            TARN_STR_ARG(a->name), (long long)a->id, (long long)b->id);
    }
    return TARN_OK;
}

/* ------------------------------------------------------------------ identifier fields */
static tarn_err check_identifier(reader *r, int64_t id)
{
    const ice_column *c = ice_schema_by_id(r->s, id);
    const char *why = NULL;
    if (!c)
        return ice_fail(r->e, TARN_E_ICE_VALIDATION, "Cannot add fieldId %lld as an identifier field: field does not exist", (long long)id);
    if (!ice_kind_is_primitive(c->type.kind))
        why = "not a primitive type field";
    else if (!c->required)
        why = "not a required field";
    else if (c->type.kind == ICE_T_FLOAT || c->type.kind == ICE_T_DOUBLE)
        why = "must not be float or double field";
    else if (!c->only_structs)
        why = "must not be nested in a list or map";
    else if (c->optional_above)
        why = "must not be nested in an optional field";
    if (why)
        return ice_fail(r->e, TARN_E_ICE_VALIDATION, "Cannot add field %.*s as an identifier field: %s", TARN_STR_ARG(c->name), why);
    return TARN_OK;
}

static tarn_err check_identifiers(reader *r, const json_t *schema)
{
    json_t *ids = NULL;
    ICE_TRY(ice_opt_array(schema, "schema", "identifier-field-ids", &ids, r->e));
    for (size_t i = 0; i < json_array_size(ids); i++) {
        const json_t *id = json_array_get(ids, i);
        if (!json_is_integer(id))
            return ice_fail(r->e, TARN_E_ICE_BAD_REQUEST, "Cannot parse schema: identifier-field-ids must be integers");
        ICE_TRY(check_identifier(r, json_integer_value(id)));
    }
    return TARN_OK;
}

/* ------------------------------------------------------------------ reading */
tarn_err ice_schema_read(tarn_arena *a, const json_t *schema, ice_schema *out, ice_error *e)
{
    ice_schema s = {.json = schema};
    tarn_str type = TARN_STR_NULL;
    if (!json_is_object(schema))
        return ice_fail(e, TARN_E_ICE_BAD_REQUEST, "Cannot parse schema: an object is needed");
    ICE_TRY(ice_opt_string(schema, "schema", "type", &type, e));
    if (type.p && !tarn_str_ieqc(type, "struct"))
        return ice_fail(e, TARN_E_ICE_BAD_REQUEST, "Cannot parse schema: its type must be struct, not %.*s", TARN_STR_ARG(type));
    size_t n = count_columns(schema);
    if (n > ICE_COLUMNS_MAX)
        return ice_fail(e, TARN_E_ICE_BAD_REQUEST, "Invalid schema: %zu columns, %d are allowed", n, ICE_COLUMNS_MAX);
    reader r = {.arena = a, .s = &s, .cap = n, .e = e};
    s.columns = TARN_ARENA_ARRAY(a, ice_column, n + 1);
    s.by_id = TARN_ARENA_ARRAY(a, uint32_t, n + 1);
    s.by_name = TARN_ARENA_ARRAY(a, uint32_t, n + 1);
    if (!s.columns || !s.by_id || !s.by_name)
        return ice_fail_plain(e, TARN_E_NO_MEMORY);
    ICE_TRY(read_struct(&r, schema, -1));
    ICE_TRY(order_columns(&r));
    ICE_TRY(check_identifiers(&r, schema));
    *out = s;
    return TARN_OK;
}

const ice_column *ice_schema_by_id(const ice_schema *s, int64_t id)
{
    size_t lo = 0, hi = s->columns_n;
    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        const ice_column *c = &s->columns[s->by_id[mid]];
        if (c->id == id)
            return c;
        if (c->id < id)
            lo = mid + 1;
        else
            hi = mid;
    }
    return NULL;
}

const ice_column *ice_schema_by_name(const ice_schema *s, tarn_str name)
{
    size_t lo = 0, hi = s->columns_n;
    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        const ice_column *c = &s->columns[s->by_name[mid]];
        int d = tarn_str_cmp(c->name, name);
        if (d == 0)
            return c;
        if (d < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    return NULL;
}

/* ------------------------------------------------------------------ format versions */
tarn_err ice_schema_check_format(const ice_schema *s, int64_t format_version, ice_error *e)
{
    tarn_sb b;
    char memory[ICE_ERROR_BYTES_MAX];
    bool bad = false;
    tarn_sb_init_fixed(&b, memory, sizeof memory);
    for (size_t i = 0; i < s->columns_n; i++) {
        const ice_column *c = &s->columns[s->by_id[i]];
        const json_t *def = c->field ? ice_get(c->field, "initial-default") : NULL;
        tarn_str before = tarn_sb_view(&b);
        if (ice_kind_min_format(c->type.kind) > format_version) {
            bad = true;
            tarn_sb_fmt(&b, "\n- Invalid type for %.*s: %s is not supported until v%d", TARN_STR_ARG(c->name), ice_kind_name(c->type.kind),
                        ice_kind_min_format(c->type.kind));
        }
        if (def && format_version < 3) {
            bad = true;
            tarn_sb_fmt(&b, "\n- Invalid initial default for %.*s: non-null default (", TARN_STR_ARG(c->name));
            ice_json_write(&b, def);
            tarn_sb_cstr(&b, ") is not supported until v3");
        }
        if (b.failed) { /* the list is as long as a message may be: say what fits */
            b.failed = false;
            b.n = before.n;
            break;
        }
    }
    if (bad)
        return ice_fail(e, TARN_E_ICE_VALIDATION, "Invalid schema for v%lld:%.*s", (long long)format_version, (int)b.n, memory);
    return TARN_OK;
}

/* ------------------------------------------------------------------ equality */
static bool text_equal(const json_t *a, const json_t *b)
{
    return tarn_str_eq(ice_str(a), ice_str(b));
}

static bool value_equal(const json_t *a, const json_t *b)
{
    if (json_is_null(a))
        a = NULL;
    if (json_is_null(b))
        b = NULL;
    if (!a || !b)
        return a == b;
    if (json_is_number(a) && json_is_number(b) && json_typeof(a) != json_typeof(b))
        return json_number_value(a) == json_number_value(b);
    return json_equal(a, b);
}

static bool primitive_equal(const json_t *a, const json_t *b)
{
    ice_type x, y;
    if (!ice_type_parse(ice_str(a), &x) || !ice_type_parse(ice_str(b), &y))
        return text_equal(a, b);
    const tarn_str crs = TARN_STR("OGC:CRS84"), algorithm = TARN_STR("spherical");
    return x.kind == y.kind && x.length == y.length && x.scale == y.scale && tarn_str_ieq(x.crs.n ? x.crs : crs, y.crs.n ? y.crs : crs) &&
           tarn_str_ieq(x.algorithm.n ? x.algorithm : algorithm, y.algorithm.n ? y.algorithm : algorithm);
}

static bool struct_equal(const json_t *a, const json_t *b)
{
    const json_t *fa = json_object_get(a, "fields"), *fb = json_object_get(b, "fields");
    if (json_array_size(fa) != json_array_size(fb))
        return false;
    for (size_t i = 0; i < json_array_size(fa); i++) {
        const json_t *x = json_array_get(fa, i), *y = json_array_get(fb, i);
        if (x == y)
            continue;
        if (ice_int_or(x, "id", -1) != ice_int_or(y, "id", -1) || !text_equal(json_object_get(x, "name"), json_object_get(y, "name")) ||
            json_is_true(json_object_get(x, "required")) != json_is_true(json_object_get(y, "required")) ||
            !value_equal(json_object_get(x, "doc"), json_object_get(y, "doc")) ||
            !value_equal(json_object_get(x, "initial-default"), json_object_get(y, "initial-default")) ||
            !value_equal(json_object_get(x, "write-default"), json_object_get(y, "write-default")) ||
            !ice_type_equal(json_object_get(x, "type"), json_object_get(y, "type")))
            return false;
    }
    return true;
}

static bool part_equal(const json_t *a, const json_t *b, const char *part, const char *id_key, const char *req_key)
{
    return ice_int_or(a, id_key, -1) == ice_int_or(b, id_key, -1) &&
           (!req_key || json_is_true(json_object_get(a, req_key)) == json_is_true(json_object_get(b, req_key))) &&
           ice_type_equal(json_object_get(a, part), json_object_get(b, part));
}

bool ice_type_equal(const json_t *a, const json_t *b)
{
    if (a == b)
        return true;
    if (json_is_string(a) && json_is_string(b))
        return primitive_equal(a, b);
    if (!json_is_object(a) || !json_is_object(b))
        return false;
    tarn_str kind = ice_string_or_empty(a, "type");
    if (!tarn_str_ieq(kind, ice_string_or_empty(b, "type")))
        return false;
    if (tarn_str_ieqc(kind, "list"))
        return part_equal(a, b, "element", "element-id", "element-required");
    if (tarn_str_ieqc(kind, "map"))
        return part_equal(a, b, "key", "key-id", NULL) && part_equal(a, b, "value", "value-id", "value-required");
    return struct_equal(a, b);
}

/* Identifier fields are a set. */
static bool identifiers_equal(const json_t *a, const json_t *b)
{
    const json_t *x = json_object_get(a, "identifier-field-ids"), *y = json_object_get(b, "identifier-field-ids");
    if (json_array_size(x) != json_array_size(y))
        return false;
    for (size_t i = 0; i < json_array_size(x); i++) {
        bool found = false;
        for (size_t k = 0; k < json_array_size(y) && !found; k++)
            found = json_integer_value(json_array_get(x, i)) == json_integer_value(json_array_get(y, k));
        if (!found)
            return false;
    }
    return true;
}

bool ice_schema_equal(const json_t *a, const json_t *b)
{
    return a == b || (struct_equal(a, b) && identifiers_equal(a, b));
}
