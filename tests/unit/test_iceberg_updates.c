/* SPDX-License-Identifier: Apache-2.0 */
/* Table updates, one rule after the other. t_apply also checks that the base stays as it was and the result loads. */
#include "iceberg_json.h"

#define SNAP(id, seq, parent)                                                                                                              \
    "{'action':'add-snapshot','snapshot':{'snapshot-id':" #id ",'sequence-number':" #seq parent                                            \
    ",'timestamp-ms':1699999999000,'manifest-list':'s3://w/m','summary':{'operation':'append'},'schema-id':0}}"
#define MAIN(id) "{'action':'set-snapshot-ref','ref-name':'main','type':'branch','snapshot-id':" #id "}"

/* ------------------------------------------------------------------ uuid, format, location, properties */
static void assign_uuid(void **state)
{
    (void)state;
    json_t *md = t_apply(t_table(2), "[{'action':'assign-uuid','uuid':'" T_UUID "'}]", false);
    t_refuses(md, "[{'action':'assign-uuid','uuid':'00000000-0000-4000-8000-000000000002'}]", TARN_E_ICE_VALIDATION,
              "Cannot reassign uuid");
    t_refuses(md, "[{'action':'assign-uuid'}]", TARN_E_ICE_BAD_REQUEST, "uuid is missing");
    json_decref(md);
}

static void upgrade_format(void **state)
{
    (void)state;
    json_t *md = t_table(1);
    t_is(md, "schema.fields.0.name", "'id'");
    t_is(md, "last-sequence-number", "-");
    md = t_apply(md, "[{'action':'upgrade-format-version','format-version':1}]", false);
    md = t_apply(md, "[{'action':'UPGRADE-format-version','format-version':2}]", true);
    t_is(md, "format-version", "2");
    t_is(md, "schema", "-");
    t_is(md, "partition-spec", "-");
    t_is(md, "last-sequence-number", "0");
    t_is(md, "current-snapshot-id", "-1");
    t_refuses(md, "[{'action':'upgrade-format-version','format-version':1}]", TARN_E_ICE_VALIDATION, "Cannot downgrade v2 table to v1");
    t_refuses(md, "[{'action':'upgrade-format-version','format-version':4}]", TARN_E_ICE_VALIDATION,
              "Cannot upgrade table to unsupported format version: v4 (supported: v3)");
    md = t_apply(md, "[{'action':'upgrade-format-version','format-version':3}]", true);
    t_is(md, "next-row-id", "0");
    t_is(md, "current-snapshot-id", "null");
    json_decref(md);
}

static void set_location(void **state)
{
    (void)state;
    json_t *md = t_table(2);
    t_is(md, "location", "'s3://w/" T_UUID "'");
    md = t_apply(md, "[{'action':'set-location','location':'s3://w/" T_UUID "/'}]", false);
    md = t_apply(md, "[{'action':'set-location','location':'file:/tmp/x'}]", false); /* not ours to reach: the server's stays */
    md = t_apply(md, "[{'action':'set-location','location':'s3://w/other/t//'}]", true);
    t_is(md, "location", "'s3://w/other/t'");
    t_refuses(md, "[{'action':'set-location','location':'s3://elsewhere/t'}]", TARN_E_ICE_BAD_REQUEST, "must lie inside the warehouse");
    t_refuses(md, "[{'action':'set-location','location':'s3://w/a/../b'}]", TARN_E_ICE_BAD_REQUEST, "dot and control segments");
    t_refuses(md, "[{'action':'set-location','location':'s3://w/'}]", TARN_E_ICE_BAD_REQUEST, "must lie inside");
    json_decref(md);
}

static void properties(void **state)
{
    (void)state;
    json_t *md = t_apply(
        t_table(2), "[{'action':'set-properties','updates':{'a':'2','b':'3'}},{'action':'remove-properties','removals':['a','zz']}]", true);
    t_is(md, "properties.a", "-");
    t_is(md, "properties.b", "'3'");
    md = t_apply(md, "[{'action':'set-properties','updated':{'c':'4'}},{'action':'remove-properties','removed':['b']}]",
                 true); /* old names */
    t_is(md, "properties.b", "-");
    t_is(md, "properties.c", "'4'");
    md = t_apply(md, "[{'action':'set-properties','updates':{}},{'action':'remove-properties','removals':[]}]", false);
    t_refuses(md, "[{'action':'set-properties','updates':{'a':1}}]", TARN_E_ICE_BAD_REQUEST, "must be a string");
    t_refuses(md, "[{'action':'set-properties','updates':{'a':null}}]", TARN_E_ICE_BAD_REQUEST, "must be a string");
    t_refuses(md, "[{'action':'remove-properties','removals':[1]}]", TARN_E_ICE_BAD_REQUEST, "list of strings");
    t_refuses(md, "[{'action':'set-properties','updates':{'write.data.path':'s3://elsewhere/x'}}]", TARN_E_ICE_BAD_REQUEST,
              "write.data.path");
    md = t_apply(md, "[{'action':'set-properties','updates':{'write.data.path':'s3://w/x/y/'}}]", true);
    json_decref(md);
}

/* ------------------------------------------------------------------ schemas */
static const char NEW_SCHEMA[] =
    "{'action':'add-schema','last-column-id':3,'schema':{'type':'struct','schema-id':77,'fields':["
    "{'id':1,'name':'id','required':true,'type':'long'},{'id':9,'name':'v','required':false,'type':'int','x-unknown':{'k':[1]}}]}}";

static const char *list_of(const char *a, const char *b)
{
    return tarn_arena_fmt(t_arena, "[%s%s%s]", a, b ? "," : "", b ? b : "").p;
}

static void add_schema(void **state)
{
    (void)state;
    json_t *md = t_apply(t_table(2), list_of(NEW_SCHEMA, "{'action':'set-current-schema','schema-id':-1}"), true);
    t_is(md, "schemas.1.schema-id", "1"); /* the id in the request does not count */
    t_is(md, "current-schema-id", "1");
    t_is(md, "last-column-id", "9"); /* nor does its last-column-id */
    t_is(md, "schemas.1.fields.1.x-unknown", "{'k':[1]}");
    /* The same again is the same schema, and -1 means it. */
    md = t_apply(md, list_of(NEW_SCHEMA, "{'action':'set-current-schema','schema-id':-1}"), false);
    md = t_apply(md, "[{'action':'set-current-schema','schema-id':0}]", true);
    md = t_apply(md, list_of(NEW_SCHEMA, "{'action':'set-current-schema','schema-id':-1}"), true);
    t_is(md, "current-schema-id", "1");
    t_is(md, "schemas.2", "-");
    t_refuses(md, "[{'action':'set-current-schema','schema-id':-1}]", TARN_E_ICE_VALIDATION,
              "Cannot set last added schema: no schema has been added");
    t_refuses(md, "[{'action':'set-current-schema','schema-id':7}]", TARN_E_ICE_VALIDATION,
              "Cannot set current schema to unknown schema: 7");
    t_refuses(md, "[{'action':'remove-schemas','schema-ids':[1]}]", TARN_E_ICE_VALIDATION, "Cannot remove the current schema");
    md = t_apply(md, "[{'action':'remove-schemas','schema-ids':[0,55]}]", true);
    t_is(md, "schemas.0.schema-id", "1");
    md = t_apply(md, "[{'action':'remove-schemas','schema-ids':[55]}]", false);
    json_decref(md);
}

static void schema_faults(void **state)
{
    (void)state;
    static const struct {
        const char *fields, *says;
        tarn_err code;
    } rows[] = {
        {"{'id':1,'name':'a','required':true,'type':'int'},{'id':1,'name':'b','required':true,'type':'int'}", "multiple fields for id 1",
         TARN_E_ICE_VALIDATION},
        {"{'id':1,'name':'a','required':true,'type':'int'},{'id':2,'name':'a','required':true,'type':'int'}", "multiple fields for name a",
         TARN_E_ICE_VALIDATION},
        {"{'id':1,'name':'a.b','required':true,'type':'int'},{'id':2,'name':'a','required':true,'type':{'type':'struct','fields':[{'id':3,'"
         "name':'b','required':true,'type':'int'}]}}",
         "multiple fields for name a.b", TARN_E_ICE_VALIDATION},
        {"{'id':1,'name':'a','required':true,'type':'strange'}", "strange is no type", TARN_E_ICE_BAD_REQUEST},
        {"{'id':1,'name':'a','required':true,'type':{'type':'array'}}", "no nested type", TARN_E_ICE_BAD_REQUEST},
        {"{'id':1,'name':'a','required':true}", "type is missing", TARN_E_ICE_BAD_REQUEST},
        {"{'id':1,'name':'a','type':'int'}", "it needs `required`", TARN_E_ICE_BAD_REQUEST},
        {"{'name':'a','required':true,'type':'int'}", "id is missing", TARN_E_ICE_BAD_REQUEST},
        {"{'id':2147483447,'name':'a','required':true,'type':'int'}", "out of range", TARN_E_ICE_BAD_REQUEST},
        {"{'id':-1,'name':'a','required':true,'type':'int'}", "out of range", TARN_E_ICE_BAD_REQUEST},
        {"7", "an object is needed", TARN_E_ICE_BAD_REQUEST},
        {"{'id':1,'name':'a','required':true,'type':'timestamp_ns'}",
         "Invalid schema for v2:\n- Invalid type for a: timestamp_ns is not supported until v3", TARN_E_ICE_VALIDATION},
        {"{'id':1,'name':'a','required':true,'type':'variant'}", "variant is not supported until v3", TARN_E_ICE_VALIDATION},
        {"{'id':1,'name':'a','required':true,'type':'int','initial-default':5}",
         "Invalid initial default for a: non-null default (5) is not supported until v3", TARN_E_ICE_VALIDATION},
    };
    json_t *md = t_table(2);
    for (size_t i = 0; i < TARN_ARRAY_LEN(rows); i++) {
        tarn_str u = tarn_arena_fmt(t_arena, "[{'action':'add-schema','schema':{'type':'struct','fields':[%s]}}]", rows[i].fields);
        t_refuses(md, u.p, rows[i].code, rows[i].says);
    }
    t_refuses(md, "[{'action':'add-schema','schema':{'type':'list','fields':[]}}]", TARN_E_ICE_BAD_REQUEST, "must be struct");
    json_decref(md);
}

static void identifier_fields(void **state)
{
    (void)state;
    static const struct {
        const char *ids, *says;
    } rows[] = {{"[99]", "field does not exist"}, {"[2]", "not a required field"}, {"[3]", "not a primitive type field"},
                {"[6]", "float or double"},       {"[5]", "list or map"},          {"[8]", "optional field"}};
    json_t *md = t_table(2);
    const char form[] = "[{'action':'add-schema','schema':{'type':'struct','identifier-field-ids':%s,'fields':[{'id':1,'name':'a','"
                        "required':true,'type':'int'},"
                        "{'id':2,'name':'b','required':false,'type':'int'},{'id':3,'name':'l','required':true,'type':{'type':'list','"
                        "element-id':5,'element':'int','element-required':true}},"
                        "{'id':6,'name':'d','required':true,'type':'double'},{'id':7,'name':'o','required':false,'type':{'type':'struct','"
                        "fields':[{'id':8,'name':'x','required':true,'type':'int'}]}}]}}]";
    for (size_t i = 0; i < TARN_ARRAY_LEN(rows); i++)
        t_refuses(md, tarn_arena_fmt(t_arena, form, rows[i].ids).p, TARN_E_ICE_VALIDATION, rows[i].says);
    md = t_apply(md, tarn_arena_fmt(t_arena, form, "[1]").p, true);
    t_is(md, "schemas.1.identifier-field-ids", "[1]");
    json_decref(md);
}

static void default_values(void **state)
{
    (void)state;
    static const struct {
        const char *type, *value, *kept; /* kept NULL: refused */
    } rows[] = {
        {"'int'", "5", "5"},
        {"'int'", "2147483648", NULL},
        {"'long'", "9223372036854775807", "9223372036854775807"},
        {"'int'", "1.0", NULL},
        {"'double'", "1", "1.0"},
        {"'float'", "1.5", "1.5"},
        {"'boolean'", "true", "true"},
        {"'boolean'", "'true'", NULL},
        {"'string'", "'x'", "'x'"},
        {"'string'", "1", NULL},
        {"'decimal(9,2)'", "'14.20'", "'14.20'"},
        {"'decimal(9,2)'", "'14.2'", NULL},
        {"'decimal(9,0)'", "'-14'", "'-14'"},
        {"'date'", "'2017-11-16'", "'2017-11-16'"},
        {"'date'", "'2017-13-16'", NULL},
        {"'date'", "5", NULL},
        {"'time'", "'22:31:08.123456'", "'22:31:08.123456'"},
        {"'time'", "'22-31'", NULL},
        {"'timestamp'", "'2017-11-16T22:31:08'", "'2017-11-16T22:31:08'"},
        {"'timestamp'", "'2017-11-16T22:31:08+00:00'", NULL},
        {"'timestamptz'", "'2017-11-16T22:31:08.5+00:00'", "'2017-11-16T22:31:08.5+00:00'"},
        {"'timestamptz'", "'2017-11-16T22:31:08'", NULL},
        {"'timestamp_ns'", "'2017-11-16T22:31:08.123456789'", "'2017-11-16T22:31:08.123456789'"},
        {"'uuid'", "'f79c3e09-677c-4bbd-a479-3f349cb785e7'", "'f79c3e09-677c-4bbd-a479-3f349cb785e7'"},
        {"'uuid'", "'f79c'", NULL},
        {"'fixed[2]'", "'0aFF'", "'0aFF'"},
        {"'fixed[2]'", "'0a'", NULL},
        {"'binary'", "'0G'", NULL},
        {"'variant'", "1", NULL},
        {"{'type':'list','element-id':20,'element':'int','element-required':true}", "[1,2]", "[1,2]"},
        {"{'type':'list','element-id':20,'element':'int','element-required':true}", "{}", NULL},
    };
    json_t *base = t_table(3);
    for (size_t i = 0; i < TARN_ARRAY_LEN(rows); i++) {
        tarn_str u = tarn_arena_fmt(t_arena,
                                    "[{'action':'add-schema','schema':{'type':'struct','fields':[{'id':9,'name':'d','required':false,'type'"
                                    ":%s,'initial-default':%s,"
                                    "'write-default':%s,'doc':null}]}}]",
                                    rows[i].type, rows[i].value, rows[i].value);
        if (!rows[i].kept) {
            t_refuses(base, u.p, TARN_E_ICE_BAD_REQUEST, "Cannot parse default as a");
            continue;
        }
        json_t *md = t_apply(json_incref(base), u.p, true);
        t_is(md, "schemas.1.fields.0.initial-default", rows[i].kept);
        t_is(md, "schemas.1.fields.0.doc", "-");
        assert_int_equal(json_typeof(t_at(md, "schemas.1.fields.0.write-default")) == JSON_REAL,
                         strchr(rows[i].kept, '.') && rows[i].kept[0] != '\'');
        json_decref(md);
    }
    json_t *md = t_apply(base,
                         "[{'action':'add-schema','schema':{'type':'struct','fields':[{'id':9,'name':'d','required':false,'type':'int','"
                         "initial-default':null}]}}]",
                         true);
    t_is(md, "schemas.1.fields.0.initial-default", "-"); /* a null default would stop some readers */
    json_decref(md);
}

/* ------------------------------------------------------------------ specs and orders */
static void add_spec(void **state)
{
    (void)state;
    const char one[] = "{'action':'add-spec','spec':{'spec-id':5,'fields':[{'source-id':1,'transform':'bucket[16]','name':'id_bucket','"
                       "field-id':1000,'x':1}]}}";
    json_t *md = t_apply(t_table(2), list_of(one, "{'action':'set-default-spec','spec-id':-1}"), true);
    t_is(md, "partition-specs.1.spec-id", "1");
    t_is(md, "partition-specs.1.fields.0.x", "1");
    t_is(md, "default-spec-id", "1");
    t_is(md, "last-partition-id", "1000");
    /* An equal spec is used again; field ids do not count for that. */
    md = t_apply(md,
                 "[{'action':'add-spec','spec':{'fields':[{'source-id':1,'transform':'BUCKET[16]','name':'id_bucket'}]}},{'action':'set-"
                 "default-spec','spec-id':-1}]",
                 false);
    /* Without ids: an equal field keeps its id, a new one gets the next. */
    md = t_apply(md,
                 "[{'action':'add-spec','spec':{'fields':[{'source-id':3,'transform':'day','name':'d'},{'source-id':1,'transform':'bucket["
                 "16]','name':'b2'}]}}]",
                 true);
    t_is(md, "partition-specs.2.fields.0.field-id", "1001");
    t_is(md, "partition-specs.2.fields.1.field-id", "1000");
    t_is(md, "default-spec-id", "1");
    t_is(md, "last-partition-id", "1001");
    t_refuses(md, "[{'action':'set-default-spec','spec-id':-1}]", TARN_E_ICE_VALIDATION,
              "Cannot set last added spec: no spec has been added");
    t_refuses(md, "[{'action':'set-default-spec','spec-id':9}]", TARN_E_ICE_VALIDATION, "unknown spec: 9");
    t_refuses(md, "[{'action':'remove-partition-specs','spec-ids':[1]}]", TARN_E_ICE_VALIDATION,
              "Cannot remove the default partition spec");
    md = t_apply(md, "[{'action':'remove-partition-specs','spec-ids':[0,2]}]", true);
    t_is(md, "partition-specs.0.spec-id", "1");
    t_is(md, "partition-specs.1", "-");
    json_decref(md);
}

static void spec_faults(void **state)
{
    (void)state;
    static const struct {
        const char *fields, *says;
    } rows[] = {
        {"{'source-id':1,'transform':'identity','name':''}", "empty partition name"},
        {"{'source-id':1,'transform':'identity','name':'p'},{'source-id':2,'transform':'identity','name':'p'}",
         "partition name more than once: p"},
        {"{'source-id':1,'transform':'bucket[4]','name':'name'}", "name that exists in schema: name"},
        {"{'source-id':1,'transform':'identity','name':'name'}", "sourced from different field in schema: name"},
        {"{'source-id':77,'transform':'identity','name':'p'}", "Cannot find source column"},
        {"{'source-id':4,'transform':'identity','name':'p'}", "non-primitive source field: s"},
        {"{'source-id':2,'transform':'day','name':'p'}", "Invalid source type string for transform: day"},
        {"{'source-id':1,'transform':'zorder','name':'p'}", "Invalid transform: zorder"},
        {"{'source-id':1,'transform':'identity','name':'p','field-id':1000},{'source-id':2,'transform':'identity','name':'q'}",
         "missing field IDs: 1 missing of 2 fields."},
        {"{'source-id':1,'transform':'identity','name':'p','field-id':1000},{'source-id':2,'transform':'identity','name':'q','field-id':"
         "1000}",
         "field id more than once"},
        {"{'transform':'identity','name':'p'}", "source-id is missing"},
        {"{'source-id':1,'name':'p'}", "transform is missing"},
    };
    json_t *md = t_table(2);
    for (size_t i = 0; i < TARN_ARRAY_LEN(rows); i++) {
        tarn_str u = tarn_arena_fmt(t_arena, "[{'action':'add-spec','spec':{'fields':[%s]}}]", rows[i].fields);
        ice_ctx ctx = t_ctx("");
        ice_result r = {0};
        json_t *list = t_json(u.p);
        tarn_err err = ice_table_apply(md, NULL, list, &ctx, &r, &t_error);
        json_decref(list);
        t_says(err, err == TARN_E_ICE_BAD_REQUEST ? err : TARN_E_ICE_VALIDATION, rows[i].says);
    }
    /* identity of the column of that name, void of a dropped column, a nested column */
    md = t_apply(md,
                 "[{'action':'add-spec','spec':{'fields':[{'source-id':1,'transform':'identity','name':'id'},{'source-id':77,'transform':'"
                 "void','name':'gone'},{'source-id':5,'transform':'identity','name':'s.x'}]}}]",
                 true);
    json_decref(md);
    md = t_table(1);
    t_refuses(md, "[{'action':'add-spec','spec':{'fields':[{'source-id':1,'transform':'identity','name':'p','field-id':1001}]}}]",
              TARN_E_ICE_VALIDATION, "Spec does not use sequential IDs that are required in v1");
    json_decref(md);
}

static void sort_orders(void **state)
{
    (void)state;
    const char one[] = "{'action':'add-sort-order','sort-order':{'order-id':9,'fields':[{'source-id':1,'transform':'identity','direction':'"
                       "ASC','null-order':'nulls-first'}]}}";
    json_t *md = t_apply(t_table(2), list_of(one, "{'action':'set-default-sort-order','sort-order-id':-1}"), true);
    t_is(md, "sort-orders.1.order-id", "1");
    t_is(md, "sort-orders.1.fields.0.direction", "'asc'");
    t_is(md, "default-sort-order-id", "1");
    md = t_apply(md, list_of(one, "{'action':'set-default-sort-order','sort-order-id':-1}"), false);
    md = t_apply(md, "[{'action':'add-sort-order','sort-order':{'fields':[]}},{'action':'set-default-sort-order','sort-order-id':-1}]",
                 true);
    t_is(md, "default-sort-order-id", "0");
    t_is(md, "sort-orders.2", "-");
    md = t_apply(md, "[{'action':'add-sort-order','sort-order':{'fields':[{'source-id':2,'transform':'truncate[3]','direction':'desc'}]}}]",
                 true);
    t_is(md, "sort-orders.2.order-id", "2");
    t_is(md, "sort-orders.2.fields.0.null-order", "'nulls-last'");
    t_refuses(md, "[{'action':'set-default-sort-order','sort-order-id':-1}]", TARN_E_ICE_VALIDATION, "no sort order has been added");
    t_refuses(md, "[{'action':'set-default-sort-order','sort-order-id':7}]", TARN_E_ICE_VALIDATION, "unknown sort order: 7");
    t_refuses(
        md, "[{'action':'add-sort-order','sort-order':{'order-id':0,'fields':[{'source-id':1,'transform':'identity','direction':'asc'}]}}]",
        TARN_E_ICE_VALIDATION, "Sort order ID 0 is reserved");
    t_refuses(md, "[{'action':'add-sort-order','sort-order':{'fields':[{'source-id':99,'transform':'identity','direction':'asc'}]}}]",
              TARN_E_ICE_VALIDATION, "Cannot find source column for sort field");
    t_refuses(md, "[{'action':'add-sort-order','sort-order':{'fields':[{'source-id':1,'transform':'identity','direction':'up'}]}}]",
              TARN_E_ICE_BAD_REQUEST, "Invalid sort direction");
    t_refuses(
        md,
        "[{'action':'add-sort-order','sort-order':{'fields':[{'source-id':1,'transform':'identity','direction':'asc','null-order':'x'}]}}]",
        TARN_E_ICE_BAD_REQUEST, "Invalid null order");
    json_decref(md);
}

/* ------------------------------------------------------------------ snapshots */
static void add_snapshot(void **state)
{
    (void)state;
    json_t *md = t_apply(t_table(2), "[" SNAP(9007199254740993, 1, ",'parent-snapshot-id':-1") "," MAIN(9007199254740993) "]", true);
    t_is(md, "current-snapshot-id", "9007199254740993"); /* past the doubles */
    t_is(md, "last-sequence-number", "1");
    t_is(md, "snapshots.0.parent-snapshot-id", "-"); /* -1 means none */
    t_is(md, "refs.main", "{'snapshot-id':9007199254740993,'type':'branch'}");
    t_is(md, "snapshot-log", "[{'timestamp-ms':1699999999000,'snapshot-id':9007199254740993}]");
    t_is(md, "metadata-log", "[{'timestamp-ms':1700000000000,'metadata-file':'s3://w/t/metadata/00000-x.metadata.json'}]");
    t_refuses(md, "[" SNAP(9007199254740993, 2, "") "]", TARN_E_ICE_VALIDATION, "Snapshot already exists for id: 9007199254740993");
    t_refuses(md, "[" SNAP(2, 1, ",'parent-snapshot-id':9007199254740993") "]", TARN_E_ICE_COMMIT_FAILED,
              "Cannot add snapshot with sequence number 1 older than last sequence number 1");
    md = t_apply(md, "[" SNAP(2, 1, "") "]", true); /* without a parent (a replace) the number may come again */
    t_is(md, "last-sequence-number", "1");
    md = t_apply(md, "[" SNAP(3, 2, ",'parent-snapshot-id':2") "," SNAP(4, 3, ",'parent-snapshot-id':3") "]",
                 true); /* several in one commit */
    t_is(md, "last-sequence-number", "3");
    t_is(md, "current-snapshot-id", "9007199254740993"); /* main was not asked for */
    t_refuses(md, "[{'action':'add-snapshot','snapshot':{'snapshot-id':5,'sequence-number':9,'timestamp-ms':1}}]", TARN_E_ICE_BAD_REQUEST,
              "manifest-list is missing");
    t_refuses(md, "[{'action':'add-snapshot','snapshot':{'sequence-number':9,'timestamp-ms':1,'manifest-list':'x'}}]",
              TARN_E_ICE_BAD_REQUEST, "snapshot-id is missing");
    t_refuses(md, "[{'action':'add-snapshot','snapshot':{'snapshot-id':5,'timestamp-ms':1,'manifest-list':'x','summary':{'a':1}}}]",
              TARN_E_ICE_BAD_REQUEST, "must be a string");
    md = t_apply(md,
                 "[{'action':'add-snapshot','snapshot':{'snapshot-id':5,'sequence-number':0,'parent-snapshot-id':null,'timestamp-ms':1,'"
                 "manifest-list':'x','summary':{'a':'1'}}}]",
                 true);
    t_is(md, "snapshots.4.summary", "{'a':'1','operation':'overwrite'}");
    t_is(md, "snapshots.4.sequence-number", "-");
    json_decref(md);
}

static void snapshots_of_v1(void **state)
{
    (void)state;
    json_t *md = t_table(1);
    t_refuses(md, "[" SNAP(1, 1, "") "]", TARN_E_ICE_VALIDATION, "Sequence number must be 0 in v1: 1");
    md = t_apply(md,
                 "[{'action':'add-snapshot','snapshot':{'snapshot-id':1,'timestamp-ms':1,'manifests':['a.avro'],'summary':{'operation':'"
                 "append'}}}," MAIN(1) "]",
                 true);
    t_is(md, "current-snapshot-id", "1");
    t_is(md, "last-sequence-number", "-");
    json_decref(md);
}

static void row_lineage(void **state)
{
    (void)state;
#define ROWS(id, seq, more)                                                                                                                \
    "[{'action':'add-snapshot','snapshot':{'snapshot-id':" #id ",'sequence-number':" #seq ",'timestamp-ms':1,'manifest-list':'x'" more "}" \
    "}"                                                                                                                                    \
    "]"
    json_t *md = t_table(3);
    t_refuses(md, ROWS(1, 1, ""), TARN_E_ICE_VALIDATION, "Cannot add a snapshot: first-row-id is null");
    t_refuses(md, ROWS(1, 1, ",'first-row-id':0"), TARN_E_ICE_BAD_REQUEST, "Invalid added-rows (required when first-row-id is set)");
    t_refuses(md, ROWS(1, 1, ",'first-row-id':-1,'added-rows':1"), TARN_E_ICE_BAD_REQUEST, "Invalid first-row-id");
    t_refuses(md, ROWS(1, 1, ",'first-row-id':0,'added-rows':-1"), TARN_E_ICE_BAD_REQUEST, "Invalid added-rows (cannot be negative)");
    t_refuses(md, ROWS(1, 1, ",'first-row-id':1,'added-rows':9223372036854775807"), TARN_E_ICE_BAD_REQUEST, "exhausted");
    md = t_apply(md, ROWS(1, 1, ",'first-row-id':0,'added-rows':10"), true);
    t_is(md, "next-row-id", "10");
    t_refuses(md, ROWS(2, 2, ",'first-row-id':9,'added-rows':1"), TARN_E_ICE_COMMIT_FAILED,
              "first-row-id is behind table next-row-id: 9 < 10");
    md = t_apply(md, ROWS(2, 2, ",'first-row-id':10,'added-rows':0"), true);
    t_is(md, "next-row-id", "10");
    json_decref(md);
}

static void refs(void **state)
{
    (void)state;
    json_t *md = t_apply(t_table(2), "[" SNAP(1, 1, "") "," MAIN(1) "]", true);
    md = t_apply(md, "[" MAIN(1) "]", false);
    md = t_apply(md, "[{'action':'set-snapshot-ref','ref-name':'t','type':'TAG','snapshot-id':1,'max-ref-age-ms':5}]", true);
    t_is(md, "refs.t", "{'snapshot-id':1,'type':'tag','max-ref-age-ms':5}");
    md = t_apply(md,
                 "[{'action':'set-snapshot-ref','ref-name':'b','type':'branch','snapshot-id':1,'max-ref-age-ms':null,'min-snapshots-to-"
                 "keep':2,'max-snapshot-age-ms':3}]",
                 true);
    t_is(md, "refs.b", "{'snapshot-id':1,'type':'branch','min-snapshots-to-keep':2,'max-snapshot-age-ms':3}");
    static const struct {
        const char *more, *says;
        tarn_err code;
    } rows[] = {
        {"'ref-name':'b','type':'branch','snapshot-id':99", "Cannot set b to unknown snapshot: 99", TARN_E_ICE_VALIDATION},
        {"'ref-name':'main','type':'tag','snapshot-id':1", "must be a branch", TARN_E_ICE_VALIDATION},
        {"'ref-name':'t','type':'tag','snapshot-id':1,'min-snapshots-to-keep':1", "Tags do not support setting minSnapshotsToKeep",
         TARN_E_ICE_VALIDATION},
        {"'ref-name':'t','type':'tag','snapshot-id':1,'max-snapshot-age-ms':1", "Tags do not support setting maxSnapshotAgeMs",
         TARN_E_ICE_VALIDATION},
        {"'ref-name':'b','type':'branch','snapshot-id':1,'min-snapshots-to-keep':0", "must be greater than 0", TARN_E_ICE_VALIDATION},
        {"'ref-name':'b','type':'branch','snapshot-id':1,'max-snapshot-age-ms':-1", "must be greater than 0", TARN_E_ICE_VALIDATION},
        {"'ref-name':'t','type':'tag','snapshot-id':1,'max-ref-age-ms':0", "must be greater than 0", TARN_E_ICE_VALIDATION},
        {"'ref-name':'b','type':'stick','snapshot-id':1", "Invalid snapshot ref type", TARN_E_ICE_BAD_REQUEST},
        {"'ref-name':'','type':'branch','snapshot-id':1", "Invalid ref name", TARN_E_ICE_BAD_REQUEST},
    };
    for (size_t i = 0; i < TARN_ARRAY_LEN(rows); i++)
        t_refuses(md, tarn_arena_fmt(t_arena, "[{'action':'set-snapshot-ref',%s}]", rows[i].more).p, rows[i].code, rows[i].says);
    md = t_apply(md, "[{'action':'remove-snapshot-ref','ref-name':'nobody'}]", false);
    md = t_apply(md, "[{'action':'remove-snapshot-ref','ref-name':'main'}]", true);
    t_is(md, "current-snapshot-id", "-1");
    t_is(md, "refs.main", "-");
    t_is(md, "snapshot-log.0.snapshot-id", "1"); /* history stays */
    json_decref(md);
}

static void remove_snapshots(void **state)
{
    (void)state;
    json_t *md = t_apply(t_table(2), "[" SNAP(1, 1, "") "," MAIN(1) "]", true);
    md = t_apply(md, "[" SNAP(2, 2, ",'parent-snapshot-id':1") "," MAIN(2) "]", true);
    md = t_apply(md,
                 "[" SNAP(3, 3, ",'parent-snapshot-id':2") "," MAIN(3) "," SNAP(
                     4, 4, ",'parent-snapshot-id':3") ",{'action':'set-snapshot-ref','ref-name':'b','type':'branch','snapshot-id':4}]",
                 true);
    md = t_apply(
        md,
        "[{'action':'set-statistics','snapshot-id':2,'statistics':{'snapshot-id':2,'statistics-path':'p','file-size-in-bytes':1,'file-"
        "footer-size-in-bytes':1,'blob-metadata':[]}},"
        "{'action':'set-partition-statistics','partition-statistics':{'snapshot-id':2,'statistics-path':'p','file-size-in-bytes':1}}]",
        true);
    md = t_apply(md, "[{'action':'remove-snapshots','snapshot-ids':[99]}]", false);
    md = t_apply(md, "[{'action':'remove-snapshots','snapshot-ids':[2,4,99]}]", true);
    t_is(md, "snapshots.0.snapshot-id", "1");
    t_is(md, "snapshots.1.snapshot-id", "3");
    t_is(md, "snapshots.2", "-");
    t_is(md, "refs.b", "-");
    t_is(md, "statistics", "[]");
    t_is(md, "partition-statistics", "[]");
    t_is(md, "snapshot-log", "[{'timestamp-ms':1699999999000,'snapshot-id':3}]"); /* cut behind the gap */
    md = t_apply(md, "[{'action':'remove-snapshots','snapshot-ids':[3]}]", true);
    t_is(md, "current-snapshot-id", "-1");
    t_is(md, "snapshot-log", "[]");
    t_refuses(md, "[{'action':'remove-snapshots','snapshot-ids':['1']}]", TARN_E_ICE_BAD_REQUEST, "list of integers");
    json_decref(md);
}

static void snapshot_log_rules(void **state)
{
    (void)state;
    /* What was current only within this commit is not in the log. */
    json_t *md = t_apply(t_table(2), "[" SNAP(1, 1, "") "," MAIN(1) "," SNAP(2, 2, ",'parent-snapshot-id':1") "," MAIN(2) "]", true);
    t_is(md, "snapshot-log", "[{'timestamp-ms':1699999999000,'snapshot-id':2}]");
    /* Going back to an old snapshot is logged with the server's time. */
    md = t_apply(md, "[" MAIN(1) "]", true);
    t_is(md, "snapshot-log.1", "{'timestamp-ms':1700000000000,'snapshot-id':1}");
    /* A clock more than a minute behind does not break the order; one more than a minute ahead is refused. */
    md = t_apply(md,
                 "[{'action':'add-snapshot','snapshot':{'snapshot-id':3,'sequence-number':3,'timestamp-ms':1600000000000,'manifest-list':'"
                 "x'}}," MAIN(3) "]",
                 true);
    t_is(md, "snapshot-log.2", "{'timestamp-ms':1700000000000,'snapshot-id':3}");
    t_refuses(md,
              "[{'action':'add-snapshot','snapshot':{'snapshot-id':4,'sequence-number':4,'timestamp-ms':1700000060001,'manifest-list':'x'}}"
              "," MAIN(4) "]",
              TARN_E_ICE_VALIDATION, "more than a minute ahead");
    md = t_apply(md,
                 "[{'action':'add-snapshot','snapshot':{'snapshot-id':4,'sequence-number':4,'timestamp-ms':1700000060000,'manifest-list':'"
                 "x'}}," MAIN(4) "]",
                 true);
    t_is(md, "last-updated-ms", "1700000060000"); /* never before the log's newest entry */
    json_decref(md);
}

/* ------------------------------------------------------------------ statistics, keys, logs */
static void statistics(void **state)
{
    (void)state;
    json_t *md = t_apply(t_table(2),
                         "[{'action':'set-statistics','statistics':{'snapshot-id':1,'statistics-path':'a','file-size-in-bytes':1,'file-"
                         "footer-size-in-bytes':1,'blob-metadata':[]}}]",
                         true);
    md = t_apply(md,
                 "[{'action':'set-statistics','snapshot-id':7,'statistics':{'snapshot-id':1,'statistics-path':'b','file-size-in-bytes':1,'"
                 "file-footer-size-in-bytes':1,'blob-metadata':[]}}]",
                 true);
    t_is(md, "statistics.0.statistics-path", "'b'"); /* one file a snapshot; the redundant id does not count */
    t_is(md, "statistics.1", "-");
    t_refuses(md, "[{'action':'set-statistics','statistics':{'snapshot-id':1,'statistics-path':'b','file-size-in-bytes':1}}]",
              TARN_E_ICE_BAD_REQUEST, "file-footer-size-in-bytes is missing");
    t_refuses(md, "[{'action':'set-partition-statistics','partition-statistics':{'snapshot-id':1}}]", TARN_E_ICE_BAD_REQUEST,
              "statistics-path is missing");
    md = t_apply(md, "[{'action':'remove-statistics','snapshot-id':9}]", false);
    md = t_apply(md, "[{'action':'remove-statistics','snapshot-id':1}]", true);
    t_is(md, "statistics", "[]");
    md = t_apply(
        md, "[{'action':'set-partition-statistics','partition-statistics':{'snapshot-id':1,'statistics-path':'p','file-size-in-bytes':1}}]",
        true);
    md = t_apply(md, "[{'action':'remove-partition-statistics','snapshot-id':1}]", true);
    t_is(md, "partition-statistics", "[]");
    json_decref(md);
}

static void encryption_keys(void **state)
{
    (void)state;
    const char add[] = "[{'action':'add-encryption-key','encryption-key':{'key-id':'k','encrypted-key-metadata':'AA=='}}]";
    json_t *md = t_table(3);
    t_is(md, "encryption-keys", "-");
    md = t_apply(md, add, true);
    t_is(md, "encryption-keys.0.key-id", "'k'");
    md = t_apply(md, add, false);
    md = t_apply(md, "[{'action':'remove-encryption-key','key-id':'other'}]", false);
    md = t_apply(md, "[{'action':'remove-encryption-key','key-id':'k'}]", true);
    t_is(md, "encryption-keys", "-");
    t_refuses(md, "[{'action':'add-encryption-key','encryption-key':{'key-id':'k'}}]", TARN_E_ICE_BAD_REQUEST,
              "encrypted-key-metadata is missing");
    json_decref(md);
}

static void metadata_log_has_a_maximum(void **state)
{
    (void)state;
    json_t *md = t_apply(t_table(2),
                         "[{'action':'set-properties','updates':{'write.metadata.previous-versions-max':'2','write.metadata.delete-after-"
                         "commit.enabled':'true'}}]",
                         true);
    json_t *u = t_json("[{'action':'set-properties','updates':{'n':'1'}}]");
    for (int i = 1; i <= 4; i++) {
        ice_ctx ctx = t_ctx(tarn_arena_fmt(t_arena, "s3://w/t/metadata/%05d-x.metadata.json", i).p);
        ice_result r = {0};
        assert_int_equal(ice_table_apply(md, NULL, u, &ctx, &r, &t_error), TARN_OK);
        assert_int_equal(json_array_size(r.expired_files), i < 2 ? 0 : 1);
        if (i == 4)
            t_is(r.expired_files, "0", "'s3://w/t/metadata/00002-x.metadata.json'");
        json_decref(md);
        md = json_incref(r.metadata);
        ice_result_release(&r);
    }
    assert_int_equal(json_array_size(t_at(md, "metadata-log")), 2);
    t_is(md, "metadata-log.1.metadata-file", "'s3://w/t/metadata/00004-x.metadata.json'");
    json_decref(u);
    json_decref(md);
}

static void unknown_things(void **state)
{
    (void)state;
    json_t *md = t_table(2);
    json_object_set_new(md, "x-future", t_json("{'deep':[1.0,9007199254740993]}"));
    md = t_apply(md, "[{'action':'set-properties','updates':{'n':'1'}}]", true);
    t_is(md, "x-future", "{'deep':[1.0,9007199254740993]}"); /* what nobody knows survives */
    t_refuses(md, "[{'action':'make-coffee'}]", TARN_E_ICE_BAD_REQUEST, "Cannot convert metadata update action from json: make-coffee");
    t_refuses(md, "[{}]", TARN_E_ICE_BAD_REQUEST, "action is missing");
    t_refuses(md, "[7]", TARN_E_ICE_BAD_REQUEST, "an object is needed");
    t_refuses(md, "{}", TARN_E_ICE_BAD_REQUEST, "updates must be a list");
    t_refuses(md, "[{'action':'set-properties','updates':{'n':'2'}},{'action':'make-coffee'}]", TARN_E_ICE_BAD_REQUEST,
              "make-coffee"); /* all or nothing */
    md = t_apply(md, "[]", false);
    json_decref(md);
}

static void time_never_goes_back(void **state)
{
    (void)state;
    json_t *md = t_table(2);
    json_object_set_new(md, "last-updated-ms", json_integer(T_NOW + 500000));
    md = t_apply(md, "[{'action':'set-properties','updates':{'n':'1'}}]", true);
    t_is(md, "last-updated-ms", "1700000500000");
    t_is(md, "metadata-log.0.timestamp-ms", "1700000500000");
    json_decref(md);
}

static void updates_have_a_maximum(void **state)
{
    (void)state;
    json_t *md = t_table(2), *one = t_json("{'action':'set-properties','updates':{'n':'1'}}"), *list = json_array();
    ice_ctx ctx = t_ctx("");
    ice_result r = {0};
    for (int i = 0; i < ICE_UPDATES_MAX; i++)
        json_array_append(list, one);
    assert_int_equal(ice_table_apply(md, NULL, list, &ctx, &r, &t_error), TARN_OK);
    ice_result_release(&r);
    json_array_append(list, one);
    t_says(ice_table_apply(md, NULL, list, &ctx, &r, &t_error), TARN_E_ICE_BAD_REQUEST, "100001 updates, 100000 are allowed");
    json_decref(list);
    json_decref(one);
    json_decref(md);
}

#define T(f) cmocka_unit_test_setup_teardown(f, t_setup, t_teardown)
int main(void)
{
    const struct CMUnitTest tests[] = {
        T(assign_uuid),
        T(upgrade_format),
        T(set_location),
        T(properties),
        T(add_schema),
        T(schema_faults),
        T(identifier_fields),
        T(default_values),
        T(add_spec),
        T(spec_faults),
        T(sort_orders),
        T(add_snapshot),
        T(snapshots_of_v1),
        T(row_lineage),
        T(refs),
        T(remove_snapshots),
        T(snapshot_log_rules),
        T(statistics),
        T(encryption_keys),
        T(metadata_log_has_a_maximum),
        T(unknown_things),
        T(time_never_goes_back),
        T(updates_have_a_maximum),
    };
    return cmocka_run_group_tests_name("iceberg updates", tests, NULL, NULL);
}
