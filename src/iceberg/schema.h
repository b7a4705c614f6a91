/* SPDX-License-Identifier: Apache-2.0 */
/*
 * iceberg, schemas: type names, the columns of a schema, fresh ids for a new table, equality, format-version rules,
 * default values, partition transforms.
 *
 * A schema stays the JSON that the client sent (so that fields nobody knows survive); what is read here is an index over it
 * that borrows from that JSON and lives in an arena.
 */
#ifndef TARN_ICEBERG_SCHEMA_H
#define TARN_ICEBERG_SCHEMA_H

#include "common.h"

#define ICE_COLUMNS_MAX 20000           /* of one schema, nested ones counted */
#define ICE_COLUMN_NAME_BYTES_MAX 65536 /* a full, dotted name */
#define ICE_FIELD_ID_MAX 2147483446     /* ids above are reserved for metadata columns */
#define ICE_DECIMAL_PRECISION_MAX 38
#define ICE_FORMAT_VERSION_MAX 3
#define ICE_FORMAT_VERSION_DEFAULT 2
#define ICE_TRANSFORM_PARAM_MAX INT32_MAX

typedef enum ice_kind {
    ICE_T_BOOLEAN,
    ICE_T_INT,
    ICE_T_LONG,
    ICE_T_FLOAT,
    ICE_T_DOUBLE,
    ICE_T_DATE,
    ICE_T_TIME,
    ICE_T_TIMESTAMP,
    ICE_T_TIMESTAMPTZ,
    ICE_T_TIMESTAMP_NS,
    ICE_T_TIMESTAMPTZ_NS,
    ICE_T_STRING,
    ICE_T_UUID,
    ICE_T_BINARY,
    ICE_T_FIXED,
    ICE_T_DECIMAL,
    ICE_T_UNKNOWN,
    ICE_T_VARIANT,
    ICE_T_GEOMETRY,
    ICE_T_GEOGRAPHY,
    ICE_T_STRUCT,
    ICE_T_LIST,
    ICE_T_MAP
} ice_kind;

typedef struct ice_type {
    ice_kind kind;
    int64_t length;     /* fixed: bytes; decimal: precision */
    int64_t scale;      /* decimal */
    tarn_str crs;       /* geometry, geography: "" means the default */
    tarn_str algorithm; /* geography: "" means the default */
} ice_type;

/* A primitive's name as in JSON; letters in either case, blanks tolerated where the reference tolerates them. */
bool ice_type_parse(tarn_str text, ice_type *out);
const char *ice_kind_name(ice_kind k);
bool ice_kind_is_primitive(ice_kind k); /* variant is none */
/* The first format version that has the type: 1 or 3. */
int ice_kind_min_format(ice_kind k);
/* Types as JSON (text or object), compared by meaning: ids, names, documentation and defaults count. */
bool ice_type_equal(const json_t *a, const json_t *b);

typedef struct ice_column {
    int64_t id;
    int32_t parent;    /* index of the struct field, list element, … whose type holds this one; -1 at the top */
    bool only_structs; /* no list or map between the top and here */
    bool required;
    bool optional_above; /* some parent is optional */
    ice_type type;
    const json_t *field; /* the JSON of a struct's field; NULL for elements, keys and values */
    tarn_str name;       /* full name: a.element.b */
} ice_column;

typedef struct ice_schema {
    const json_t *json;
    ice_column *columns; /* parents before children */
    size_t columns_n;
    uint32_t *by_id;    /* indices, ordered by id */
    uint32_t *by_name;  /* indices, ordered by name */
    int64_t highest_id; /* 0 for a schema without columns */
} ice_schema;

/* Reads and checks a schema: shape, types, unique ids and names, identifier fields. ICE_BAD_REQUEST or ICE_VALIDATION. */
tarn_err ice_schema_read(tarn_arena *a, const json_t *schema, ice_schema *out, ice_error *e);
const ice_column *ice_schema_by_id(const ice_schema *s, int64_t id); /* NULL when absent */
const ice_column *ice_schema_by_name(const ice_schema *s, tarn_str name);
/* Same structure and identifier fields; the schema's own id does not count. */
bool ice_schema_equal(const json_t *a, const json_t *b);
/* Types and defaults that `format_version` does not have: ICE_VALIDATION with the reference's words. */
tarn_err ice_schema_check_format(const ice_schema *s, int64_t format_version, ice_error *e);
/*
 * A copy in the form that strict readers need: no null defaults, floating defaults as floating tokens, schema-id as given,
 * "type":"struct" present. Checks the defaults against the types.
 */
tarn_err ice_schema_clean(const json_t *schema, int64_t schema_id, json_t **out, ice_error *e);

/* Old field id → new field id. */
typedef struct ice_id_map {
    int64_t *from, *to; /* ordered by from */
    size_t n;
} ice_id_map;
/* Numbers all columns anew from 1: the fields of a struct first, then what is inside them; identifier fields follow. */
tarn_err ice_schema_fresh(tarn_arena *a, const json_t *schema, int64_t schema_id, json_t **out, ice_id_map *map, ice_error *e);
bool ice_id_map_get(const ice_id_map *m, int64_t from, int64_t *to);

/* ------------------------------------------------------------------ transforms */
typedef enum ice_transform_kind {
    ICE_X_IDENTITY,
    ICE_X_VOID,
    ICE_X_YEAR,
    ICE_X_MONTH,
    ICE_X_DAY,
    ICE_X_HOUR,
    ICE_X_BUCKET,
    ICE_X_TRUNCATE
} ice_transform_kind;
typedef struct ice_transform {
    ice_transform_kind kind;
    int64_t param; /* bucket: number; truncate: width */
} ice_transform;
bool ice_transform_parse(tarn_str text, ice_transform *out);
bool ice_transform_equal(tarn_str a, tarn_str b); /* texts: `Bucket[16]` equals `bucket[16]`; unknown ones by bytes */
bool ice_transform_accepts(const ice_transform *t, const ice_type *type);

#endif
