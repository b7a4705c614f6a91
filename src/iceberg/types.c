/* SPDX-License-Identifier: Apache-2.0 */
/*
 * iceberg, types: names of primitive types and of partition transforms, and their rules. Tables where there is a list.
 * Nothing is kept; slices point into the text that was parsed.
 */
#include <string.h>

#include "schema.h"

typedef struct kind_row {
    const char *name;
    int min_format;
} kind_row;

/* Indexed by ice_kind. */
static const kind_row kinds[] = {
    [ICE_T_BOOLEAN] = {"boolean", 1},
    [ICE_T_INT] = {"int", 1},
    [ICE_T_LONG] = {"long", 1},
    [ICE_T_FLOAT] = {"float", 1},
    [ICE_T_DOUBLE] = {"double", 1},
    [ICE_T_DATE] = {"date", 1},
    [ICE_T_TIME] = {"time", 1},
    [ICE_T_TIMESTAMP] = {"timestamp", 1},
    [ICE_T_TIMESTAMPTZ] = {"timestamptz", 1},
    [ICE_T_TIMESTAMP_NS] = {"timestamp_ns", 3},
    [ICE_T_TIMESTAMPTZ_NS] = {"timestamptz_ns", 3},
    [ICE_T_STRING] = {"string", 1},
    [ICE_T_UUID] = {"uuid", 1},
    [ICE_T_BINARY] = {"binary", 1},
    [ICE_T_FIXED] = {"fixed", 1},
    [ICE_T_DECIMAL] = {"decimal", 1},
    [ICE_T_UNKNOWN] = {"unknown", 3},
    [ICE_T_VARIANT] = {"variant", 3},
    [ICE_T_GEOMETRY] = {"geometry", 3},
    [ICE_T_GEOGRAPHY] = {"geography", 3},
    [ICE_T_STRUCT] = {"struct", 1},
    [ICE_T_LIST] = {"list", 1},
    [ICE_T_MAP] = {"map", 1},
};

const char *ice_kind_name(ice_kind k)
{
    return kinds[k].name;
}

bool ice_kind_is_primitive(ice_kind k)
{
    return k != ICE_T_VARIANT && k != ICE_T_STRUCT && k != ICE_T_LIST && k != ICE_T_MAP;
}

int ice_kind_min_format(ice_kind k)
{
    return kinds[k].min_format;
}

/* ------------------------------------------------------------------ names with parameters */
/* "name<open>inner<close>" → inner, trimmed. */
static bool inside(tarn_str text, const char *name, char open, char close, tarn_str *inner)
{
    size_t n = strlen(name);
    if (!tarn_str_istarts(text, name))
        return false;
    tarn_str rest = tarn_str_trim(tarn_str_sub(text, n, text.n));
    if (rest.n < 2 || rest.p[0] != open || rest.p[rest.n - 1] != close)
        return false;
    *inner = tarn_str_trim(tarn_str_sub(rest, 1, rest.n - 2));
    return true;
}

static bool parse_decimal(tarn_str inner, ice_type *out)
{
    tarn_str p, s;
    uint64_t precision = 0, scale = 0;
    if (!tarn_str_split(inner, ',', &p, &s) || !tarn_str_to_u64(tarn_str_trim(p), &precision) || !tarn_str_to_u64(tarn_str_trim(s), &scale))
        return false;
    if (precision == 0 || precision > ICE_DECIMAL_PRECISION_MAX || scale > precision)
        return false;
    *out = (ice_type){.kind = ICE_T_DECIMAL, .length = (int64_t)precision, .scale = (int64_t)scale};
    return true;
}

static bool parse_fixed(tarn_str inner, ice_type *out)
{
    uint64_t n = 0;
    if (!tarn_str_to_u64(inner, &n) || n > INT32_MAX)
        return false;
    *out = (ice_type){.kind = ICE_T_FIXED, .length = (int64_t)n};
    return true;
}

static bool parse_geography(tarn_str inner, ice_type *out)
{
    tarn_str crs, algorithm;
    if (!tarn_str_split(inner, ',', &crs, &algorithm)) {
        crs = inner;
        algorithm = TARN_STR("");
    }
    crs = tarn_str_trim(crs);
    if (crs.n == 0)
        return false;
    *out = (ice_type){.kind = ICE_T_GEOGRAPHY, .crs = crs, .algorithm = tarn_str_trim(algorithm)};
    return true;
}

bool ice_type_parse(tarn_str text, ice_type *out)
{
    tarn_str s = tarn_str_trim(text), inner;
    for (int k = ICE_T_BOOLEAN; k <= ICE_T_GEOGRAPHY; k++) {
        if (k != ICE_T_FIXED && k != ICE_T_DECIMAL && tarn_str_ieqc(s, kinds[k].name)) {
            *out = (ice_type){.kind = (ice_kind)k};
            return true;
        }
    }
    if (inside(s, "decimal", '(', ')', &inner))
        return parse_decimal(inner, out);
    if (inside(s, "fixed", '[', ']', &inner))
        return parse_fixed(inner, out);
    if (inside(s, "geometry", '(', ')', &inner) && inner.n > 0) {
        *out = (ice_type){.kind = ICE_T_GEOMETRY, .crs = inner};
        return true;
    }
    return inside(s, "geography", '(', ')', &inner) && parse_geography(inner, out);
}

/* ------------------------------------------------------------------ transforms */
static const char *const transform_names[] = {
    [ICE_X_IDENTITY] = "identity", [ICE_X_VOID] = "void", [ICE_X_YEAR] = "year",     [ICE_X_MONTH] = "month",
    [ICE_X_DAY] = "day",           [ICE_X_HOUR] = "hour", [ICE_X_BUCKET] = "bucket", [ICE_X_TRUNCATE] = "truncate",
};

bool ice_transform_parse(tarn_str text, ice_transform *out)
{
    tarn_str inner;
    for (int k = ICE_X_IDENTITY; k <= ICE_X_HOUR; k++) {
        if (tarn_str_ieqc(text, transform_names[k])) {
            *out = (ice_transform){(ice_transform_kind)k, 0};
            return true;
        }
    }
    for (int k = ICE_X_BUCKET; k <= ICE_X_TRUNCATE; k++) {
        uint64_t n = 0;
        if (inside(text, transform_names[k], '[', ']', &inner)) {
            if (!tarn_str_to_u64(inner, &n) || n == 0 || n > ICE_TRANSFORM_PARAM_MAX)
                return false;
            *out = (ice_transform){(ice_transform_kind)k, (int64_t)n};
            return true;
        }
    }
    return false;
}

bool ice_transform_equal(tarn_str a, tarn_str b)
{
    ice_transform x, y;
    bool has_x = ice_transform_parse(a, &x), has_y = ice_transform_parse(b, &y);
    if (has_x && has_y)
        return x.kind == y.kind && x.param == y.param;
    return has_x == has_y && tarn_str_eq(a, b);
}

#define BIT(kind) (1u << (kind))
static const unsigned time_kinds = BIT(ICE_T_TIMESTAMP) | BIT(ICE_T_TIMESTAMPTZ) | BIT(ICE_T_TIMESTAMP_NS) | BIT(ICE_T_TIMESTAMPTZ_NS);

bool ice_transform_accepts(const ice_transform *t, const ice_type *type)
{
    const unsigned bucket_kinds = BIT(ICE_T_INT) | BIT(ICE_T_LONG) | BIT(ICE_T_DECIMAL) | BIT(ICE_T_DATE) | BIT(ICE_T_TIME) | time_kinds |
                                  BIT(ICE_T_STRING) | BIT(ICE_T_BINARY) | BIT(ICE_T_FIXED) | BIT(ICE_T_UUID);
    const unsigned truncate_kinds = BIT(ICE_T_INT) | BIT(ICE_T_LONG) | BIT(ICE_T_DECIMAL) | BIT(ICE_T_STRING) | BIT(ICE_T_BINARY);
    unsigned kind = BIT(type->kind);
    switch (t->kind) {
    case ICE_X_VOID:
        return true;
    case ICE_X_IDENTITY:
        return ice_kind_is_primitive(type->kind) && type->kind != ICE_T_GEOMETRY && type->kind != ICE_T_GEOGRAPHY;
    case ICE_X_YEAR:
    case ICE_X_MONTH:
    case ICE_X_DAY:
        return (kind & (time_kinds | BIT(ICE_T_DATE))) != 0;
    case ICE_X_HOUR:
        return (kind & time_kinds) != 0;
    case ICE_X_BUCKET:
        return (kind & bucket_kinds) != 0;
    case ICE_X_TRUNCATE:
        return (kind & truncate_kinds) != 0;
    }
    return false;
}
