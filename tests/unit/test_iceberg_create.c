/* SPDX-License-Identifier: Apache-2.0 */
/* New tables: from a create request, from a commit with assert-create; names of metadata files; places. */
#include "iceberg_json.h"

static tarn_err create(const char *request, bool staged, json_t **out)
{
    json_t *r = t_json(request);
    ice_ctx ctx = t_ctx("");
    *out = NULL;
    tarn_err err = ice_table_create(r, TARN_STR(T_UUID), staged, &ctx, out, &t_error);
    json_decref(r);
    return err;
}

static void ids_are_given_anew(void **state)
{
    (void)state;
    json_t *md;
    assert_int_equal(
        create(
            "{'name':'t','schema':{'type':'struct','schema-id':5,'identifier-field-ids':[40],'fields':["
            "{'id':10,'name':'a','required':false,'type':{'type':'struct','fields':[{'id':11,'name':'x','required':true,'type':'int','note'"
            ":1}]}},"
            "{'id':20,'name':'m','required':false,'type':{'type':'map','key-id':21,'key':{'type':'struct','fields':[{'id':22,'name':'k','"
            "required':true,'type':'int'}]},"
            "'value-id':23,'value':{'type':'list','element-id':24,'element':'string','element-required':false},'value-required':true}},"
            "{'id':40,'name':'id','required':true,'type':'long'}]},"
            "'partition-spec':{'spec-id':9,'fields':[{'source-id':40,'transform':'bucket[4]','name':'p','field-id':77},{'source-id':11,'"
            "transform':'identity','name':'q','field-id':78}]},"
            "'write-order':{'order-id':8,'fields':[{'source-id':40,'transform':'identity','direction':'desc','null-order':'nulls-last'}]}}",
            false, &md),
        TARN_OK);
    /* all fields of a struct first, then what is inside them, in order */
    t_is(md, "schemas.0.fields.0.id", "1");
    t_is(md, "schemas.0.fields.1.id", "2");
    t_is(md, "schemas.0.fields.2.id", "3");
    t_is(md, "schemas.0.fields.0.type.fields.0", "{'id':4,'name':'x','required':true,'type':'int','note':1}");
    t_is(md, "schemas.0.fields.1.type.key-id", "5");
    t_is(md, "schemas.0.fields.1.type.value-id", "6");
    t_is(md, "schemas.0.fields.1.type.key.fields.0.id", "7");
    t_is(md, "schemas.0.fields.1.type.value.element-id", "8");
    t_is(md, "schemas.0.identifier-field-ids", "[3]");
    t_is(md, "schemas.0.schema-id", "0");
    t_is(md, "last-column-id", "8");
    t_is(md, "partition-specs",
         "[{'spec-id':0,'fields':[{'source-id':3,'transform':'bucket[4]','name':'p','field-id':1000},{'source-id':4,'transform':'identity',"
         "'name':'q','field-id':1001}]}]");
    t_is(md, "last-partition-id", "1001");
    t_is(md, "sort-orders",
         "[{'order-id':1,'fields':[{'source-id':3,'transform':'identity','direction':'desc','null-order':'nulls-last'}]}]");
    t_is(md, "default-sort-order-id", "1");
    json_decref(md);
}

static void fields_that_are_always_there(void **state)
{
    (void)state;
    static const struct {
        int format;
        const char *path, *value;
    } rows[] = {
        {1, "current-snapshot-id", "-1"},
        {2, "current-snapshot-id", "-1"},
        {3, "current-snapshot-id", "null"},
        {1, "last-sequence-number", "-"},
        {2, "last-sequence-number", "0"},
        {2, "next-row-id", "-"},
        {3, "next-row-id", "0"},
        {1, "partition-spec", "[]"},
        {2, "partition-spec", "-"},
        {2, "schema", "-"},
        {2, "refs", "{}"},
        {2, "snapshots", "[]"},
        {2, "statistics", "[]"},
        {2, "partition-statistics", "[]"},
        {2, "snapshot-log", "[]"},
        {2, "metadata-log", "[]"},
        {2, "sort-orders", "[{'order-id':0,'fields':[]}]"},
        {2, "partition-specs", "[{'spec-id':0,'fields':[]}]"},
        {2, "last-partition-id", "999"},
        {2, "table-uuid", "'" T_UUID "'"},
        {2, "location", "'s3://w/" T_UUID "'"},
        {2, "last-updated-ms", "1700000000000"},
        {2, "current-schema-id", "0"},
        {2, "schemas.0.identifier-field-ids", "-"},
        {2, "properties", "{'a':'1','write.parquet.compression-codec':'zstd'}"},
    };
    for (size_t i = 0; i < TARN_ARRAY_LEN(rows); i++) {
        json_t *md = t_table(rows[i].format);
        t_is(md, rows[i].path, rows[i].value);
        json_decref(md);
    }
}

#define SCHEMA "'schema':{'type':'struct','fields':[{'id':1,'name':'a','required':false,'type':'int'}]}"

static void properties_of_a_create(void **state)
{
    (void)state;
    json_t *md;
    assert_int_equal(create("{'name':'t'," SCHEMA ",'properties':{'format-version':'3','uuid':'x','snapshot-count':'1','current-schema':'x'"
                            ",'k':'v','write.parquet.compression-codec':'snappy'}}",
                            false, &md),
                     TARN_OK);
    t_is(md, "properties", "{'k':'v','write.parquet.compression-codec':'snappy'}");
    t_is(md, "format-version", "3");
    json_decref(md);
    assert_int_equal(create("{'name':'t'," SCHEMA "}", true, &md), TARN_OK);
    t_is(md, "properties.created-at", "'2023-11-14T22:13:20.000Z'");
    json_decref(md);
    assert_int_equal(create("{'name':'t'," SCHEMA ",'properties':{'created-at':'then'}}", true, &md), TARN_OK);
    t_is(md, "properties.created-at", "'then'");
    json_decref(md);
}

static void faults_of_a_create(void **state)
{
    (void)state;
    static const struct {
        const char *request, *says;
        tarn_err code;
    } rows[] = {
        {"{'name':'t'}", "schema is missing", TARN_E_ICE_BAD_REQUEST},
        {"{'name':'t'," SCHEMA ",'properties':{'format-version':'4'}}", "Unsupported format version: v4", TARN_E_ICE_VALIDATION},
        {"{'name':'t'," SCHEMA ",'properties':{'format-version':'0'}}", "Unsupported format version: v0", TARN_E_ICE_VALIDATION},
        {"{'name':'t'," SCHEMA ",'properties':{'format-version':'two'}}", "is no number", TARN_E_ICE_BAD_REQUEST},
        {"{'name':'t'," SCHEMA ",'properties':{'a':7}}", "must be a string", TARN_E_ICE_BAD_REQUEST},
        {"{'name':'t'," SCHEMA ",'properties':{'commit.retry.num-retries':'many'}}",
         "commit.retry.num-retries must have integer value but is: many", TARN_E_ICE_VALIDATION},
        {"{'name':'t'," SCHEMA ",'properties':{'write.metadata.metrics.column.zz':'full'}}", "could not find column zz",
         TARN_E_ICE_VALIDATION},
        {"{'name':'t'," SCHEMA ",'properties':{'write.metadata.path':'s3://other/x'}}", "write.metadata.path", TARN_E_ICE_BAD_REQUEST},
        {"{'name':'t'," SCHEMA ",'location':'s3://other/x'}", "must lie inside the warehouse", TARN_E_ICE_BAD_REQUEST},
        {"{'name':'t'," SCHEMA ",'partition-spec':{'fields':[{'source-id':7,'transform':'identity','name':'p'}]}}",
         "Cannot find source column", TARN_E_ICE_VALIDATION},
        {"{'name':'t'," SCHEMA ",'write-order':{'fields':[{'source-id':7,'transform':'identity','direction':'asc'}]}}",
         "Cannot find source column for sort field", TARN_E_ICE_VALIDATION},
        {"{'name':'t','schema':{'type':'struct','fields':[{'id':1,'name':'a','required':false,'type':'variant'}]}}",
         "variant is not supported until v3", TARN_E_ICE_VALIDATION},
        {"{'name':'t','schema':{'type':'struct','fields':[{'id':1,'name':'a','required':false,'type':'int'},{'id':1,'name':'b','required':"
         "false,'type':'int'}]}}",
         "multiple fields for id 1", TARN_E_ICE_VALIDATION},
        {"{'name':'t','schema':{'type':'struct','fields':[{'id':1,'name':'a','required':false,'type':'int'}],'identifier-field-ids':[3]}}",
         "field does not exist", TARN_E_ICE_VALIDATION},
    };
    for (size_t i = 0; i < TARN_ARRAY_LEN(rows); i++) {
        json_t *md;
        t_says(create(rows[i].request, false, &md), rows[i].code, rows[i].says);
        assert_null(md);
    }
}

static void columns_have_a_maximum(void **state)
{
    (void)state;
    json_t *fields = json_array(), *request = t_json("{'name':'t','schema':{'type':'struct'}}"), *md = NULL;
    ice_ctx ctx = t_ctx("");
    for (int i = 0; i < ICE_COLUMNS_MAX; i++) {
        json_t *f = json_object();
        json_object_set_new(f, "id", json_integer(-1)); /* no ids yet is fine */
        json_object_set_new(f, "name", json_string(tarn_arena_fmt(t_arena, "c%d", i).p));
        json_object_set_new(f, "required", json_false());
        json_object_set_new(f, "type", json_string("int"));
        json_array_append_new(fields, f);
    }
    json_object_set(json_object_get(request, "schema"), "fields", fields);
    assert_int_equal(ice_table_create(request, TARN_STR(T_UUID), false, &ctx, &md, &t_error), TARN_OK);
    t_is(md, "last-column-id", "20000");
    json_decref(md);
    json_array_append_new(fields, t_json("{'id':-1,'name':'z','required':false,'type':'int'}"));
    t_says(ice_table_create(request, TARN_STR(T_UUID), false, &ctx, &md, &t_error), TARN_E_ICE_BAD_REQUEST,
           "20001 columns, 20000 are allowed");
    json_decref(fields);
    json_decref(request);
}

static tarn_err create_by_commit(const char *updates, ice_result *r)
{
    json_t *u = t_json(updates), *req = t_json("[{'type':'assert-create'}]");
    ice_ctx ctx = t_ctx("");
    *r = (ice_result){0};
    tarn_err err = ice_table_apply(NULL, req, u, &ctx, r, &t_error);
    json_decref(u);
    json_decref(req);
    return err;
}

static void create_by_a_commit(void **state)
{
    (void)state;
    ice_result r;
    assert_int_equal(
        create_by_commit("[{'action':'assign-uuid','uuid':'" T_UUID "'},{'action':'upgrade-format-version','format-version':1},"
                         "{'action':'add-schema','schema':{'type':'struct','fields':[{'id':3,'name':'a','required':false,'type':'int'}]}},"
                         "{'action':'add-spec','spec':{'fields':[{'source-id':3,'transform':'identity','name':'a'}]}},{'action':'set-"
                         "default-spec','spec-id':0},"
                         "{'action':'set-current-schema','schema-id':0},{'action':'set-location','location':'file:/tmp/x'},"
                         "{'action':'set-properties','updates':{'k':'v'}}]",
                         &r),
        TARN_OK);
    t_is(r.metadata, "format-version", "1");
    t_is(r.metadata, "table-uuid", "'" T_UUID "'");
    t_is(r.metadata, "location", "'s3://w/" T_UUID "'");
    t_is(r.metadata, "schemas.0.fields.0.id", "3"); /* ids of a commit stay */
    t_is(r.metadata, "last-column-id", "3");
    t_is(r.metadata, "partition-spec.0.field-id", "1000");
    t_is(r.metadata, "sort-orders", "[{'order-id':0,'fields':[]}]");
    t_is(r.metadata, "default-sort-order-id", "0");
    t_is(r.metadata, "metadata-log", "[]");
    ice_result_release(&r);
    /* nothing but a schema: unpartitioned, unsorted, a uuid and a place of the server's own */
    assert_int_equal(create_by_commit("[{'action':'add-schema','schema':{'type':'struct','fields':[]}}]", &r), TARN_OK);
    t_is(r.metadata, "format-version", "2");
    t_is(r.metadata, "default-spec-id", "0");
    assert_int_equal(json_string_length(t_at(r.metadata, "table-uuid")), 36);
    ice_result_release(&r);
    t_says(create_by_commit("[]", &r), TARN_E_ICE_VALIDATION, "without a schema");
    t_says(create_by_commit("[{'action':'upgrade-format-version','format-version':9}]", &r), TARN_E_ICE_VALIDATION,
           "unsupported format version: v9");
    t_says(create_by_commit("[{'action':'add-spec','spec':{'fields':[]}}]", &r), TARN_E_ICE_VALIDATION, "no current schema");
}

static void names_of_files(void **state)
{
    (void)state;
    static const struct {
        const char *properties, *previous, *begins, *ends;
        bool gzip;
    } rows[] = {
        {"{}", "", "s3://w/t/metadata/00000-", ".metadata.json", false},
        {"{}", "s3://w/t/metadata/00041-x.metadata.json", "s3://w/t/metadata/00042-", ".metadata.json", false},
        {"{}", "s3://w/t/metadata/v7.metadata.json", "s3://w/t/metadata/00000-", ".metadata.json", false},
        {"{}", "s3://w/t/metadata/99999-x.gz.metadata.json", "s3://w/t/metadata/100000-", ".metadata.json", false},
        {"{'write.metadata.path':'s3://w/meta/'}", "", "s3://w/meta/00000-", ".metadata.json", false},
        {"{'write.metadata.compression-codec':'GZIP'}", "", "s3://w/t/metadata/00000-", ".gz.metadata.json", true},
    };
    for (size_t i = 0; i < TARN_ARRAY_LEN(rows); i++) {
        json_t *md = json_object();
        tarn_sb b;
        bool gzip = false;
        json_object_set_new(md, "location", json_string("s3://w/t"));
        json_object_set_new(md, "properties", t_json(rows[i].properties));
        tarn_sb_init(&b, 1000);
        ice_metadata_file_name(md, tarn_str_of(rows[i].previous), "write.metadata.compression-codec", &b, &gzip);
        assert_true(tarn_str_starts(tarn_sb_view(&b), rows[i].begins) && tarn_str_ends(tarn_sb_view(&b), rows[i].ends));
        assert_int_equal(gzip, rows[i].gzip);
        tarn_sb_free(&b);
        json_decref(md);
    }
}

static void places(void **state)
{
    (void)state;
    tarn_str bucket, key;
    assert_true(ice_s3_split(TARN_STR("S3A://b/k/l"), &bucket, &key) && tarn_str_eqc(bucket, "b") && tarn_str_eqc(key, "k/l"));
    assert_true(ice_s3_split(TARN_STR("s3://b"), &bucket, &key) && key.n == 0);
    assert_false(ice_s3_split(TARN_STR("s3:///k"), &bucket, &key));
    assert_false(ice_s3_split(TARN_STR("gs://b/k"), &bucket, &key));
    ice_ctx ctx = t_ctx("");
    bool use = false;
    char long_key[1000];
    memset(long_key, 'k', sizeof long_key);
    memcpy(long_key, "s3://w/", 7);
    tarn_str at = {long_key, 7 + 900}, past = {long_key, 7 + 901};
    assert_int_equal(ice_location_check(&ctx, &at, &use, &t_error), TARN_OK);
    assert_true(use);
    t_says(ice_location_check(&ctx, &past, &use, &t_error), TARN_E_ICE_BAD_REQUEST, "more than 900 bytes");
    tarn_str prefix = TARN_STR("s3://wx/t"); /* begins like the warehouse, and is another */
    t_says(ice_location_check(&ctx, &prefix, &use, &t_error), TARN_E_ICE_BAD_REQUEST, "must lie inside");
}

#define T(f) cmocka_unit_test_setup_teardown(f, t_setup, t_teardown)
int main(void)
{
    const struct CMUnitTest tests[] = {
        T(ids_are_given_anew),     T(fields_that_are_always_there), T(properties_of_a_create), T(faults_of_a_create),
        T(columns_have_a_maximum), T(create_by_a_commit),           T(names_of_files),         T(places),
    };
    return cmocka_run_group_tests_name("iceberg create", tests, NULL, NULL);
}
