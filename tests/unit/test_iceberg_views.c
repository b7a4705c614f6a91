/* SPDX-License-Identifier: Apache-2.0 */
/* View metadata: create, replace, history, dialects, load. */
#include "iceberg_json.h"

#define VERSION(id, sql)                                                                                                                   \
    "{'version-id':" #id ",'timestamp-ms':1699999999000,'schema-id':-1,'summary':{'operation':'create'},'default-namespace':['n'],"        \
    "'representations':[{'type':'sql','sql':'" sql "','dialect':'spark'}]}"
#define SCHEMA(name) "{'type':'struct','schema-id':4,'fields':[{'id':1,'name':'" name "','required':false,'type':'int'}]}"

static json_t *view(void)
{
    json_t *md = NULL,
           *r = t_json("{'name':'v','schema':" SCHEMA("a") ",'view-version':" VERSION(1, "select 1") ",'properties':{'p':'1'}}");
    ice_ctx ctx = t_ctx("");
    assert_int_equal(ice_view_create(r, TARN_STR(T_UUID), &ctx, &md, &t_error), TARN_OK);
    json_decref(r);
    return md;
}

static json_t *apply(json_t *base, const char *updates, bool changed)
{
    json_t *u = t_json(updates), *again = NULL;
    ice_ctx ctx = t_ctx("");
    ice_result r = {0};
    if (ice_view_apply(base, NULL, u, &ctx, &r, &t_error) != TARN_OK)
        fail_msg("%s: %.*s", updates, TARN_STR_ARG(ice_error_message(&t_error)));
    assert_int_equal(r.changed, changed);
    assert_int_equal(ice_view_load(r.metadata, &again, &t_error), TARN_OK);
    json_decref(again);
    json_decref(u);
    json_decref(base);
    return r.metadata;
}

static void refuses(const json_t *base, const char *updates, tarn_err code, const char *says)
{
    json_t *u = t_json(updates);
    ice_ctx ctx = t_ctx("");
    ice_result r = {0};
    t_says(ice_view_apply(base, NULL, u, &ctx, &r, &t_error), code, says);
    json_decref(u);
}

static void create(void **state)
{
    (void)state;
    json_t *md = view();
    t_is(md, "view-uuid", "'" T_UUID "'");
    t_is(md, "format-version", "1");
    t_is(md, "location", "'s3://w/" T_UUID "'");
    t_is(md, "current-version-id", "1");
    t_is(md, "versions.0.version-id", "1");
    t_is(md, "versions.0.schema-id", "0"); /* the schema's own new id, whatever the request says */
    t_is(md, "schemas.0.schema-id", "0");
    t_is(md, "version-log", "[{'timestamp-ms':1699999999000,'version-id':1}]");
    t_is(md, "properties", "{'p':'1'}");
    json_decref(md);
}

static void replace_with_a_schema(void **state)
{
    (void)state;
    const char change[] = "[{'action':'add-schema','schema':" SCHEMA("b") "},{'action':'add-view-version','view-version':" VERSION(
        1, "select 2") "},{'action':'set-current-view-version','view-version-id':-1}]";
    json_t *md = apply(view(), change, true);
    t_is(md, "current-version-id", "2"); /* the id was taken: the next one */
    t_is(md, "versions.1.schema-id", "1");
    t_is(md, "version-log.1.version-id", "2");
    md = apply(md, change, false); /* equal schema, equal version: nothing is new */
    md = apply(md, "[{'action':'set-current-view-version','view-version-id':1}]", true);
    t_is(md, "version-log.2", "{'timestamp-ms':1700000000000,'version-id':1}");
    md = apply(md, change, true); /* the old version comes back by its content */
    t_is(md, "current-version-id", "2");
    t_is(md, "versions.2", "-");
    json_decref(md);
}

static void faults(void **state)
{
    (void)state;
    json_t *md = view();
    refuses(md, "[{'action':'assign-uuid','uuid':'x'}]", TARN_E_ICE_VALIDATION, "Cannot reassign uuid");
    refuses(md, "[{'action':'upgrade-format-version','format-version':2}]", TARN_E_ICE_VALIDATION, "unsupported format version: v2");
    refuses(md, "[{'action':'set-current-view-version','view-version-id':-1}]", TARN_E_ICE_VALIDATION,
            "no current version id has been set");
    refuses(md, "[{'action':'set-current-view-version','view-version-id':9}]", TARN_E_ICE_VALIDATION,
            "Cannot set current version to unknown version: 9");
    refuses(md, "[{'action':'add-view-version','view-version':" VERSION(1, "select 2") "}]", TARN_E_ICE_VALIDATION,
            "no schema has been added");
    refuses(md,
            "[{'action':'add-view-version','view-version':{'version-id':2,'timestamp-ms':1,'schema-id':8,'summary':{},'default-namespace':["
            "],'representations':[{'type':'sql','sql':'x','dialect':'spark'}]}}]",
            TARN_E_ICE_VALIDATION, "Cannot add version with unknown schema: 8");
    refuses(md,
            "[{'action':'add-view-version','view-version':{'version-id':2,'timestamp-ms':1,'schema-id':0,'summary':{},'default-namespace':["
            "],'representations':[]}}]",
            TARN_E_ICE_ILLEGAL_ARGUMENT, "no representation");
    refuses(md,
            "[{'action':'add-view-version','view-version':{'version-id':2,'timestamp-ms':1,'schema-id':0,'summary':{},'default-namespace':["
            "],'representations':["
            "{'type':'sql','sql':'x','dialect':'spark'},{'type':'sql','sql':'y','dialect':'SPARK'}]}}]",
            TARN_E_ICE_ILLEGAL_ARGUMENT, "Invalid view version: Cannot add multiple queries for dialect SPARK");
    refuses(md, "[{'action':'add-snapshot'}]", TARN_E_ICE_BAD_REQUEST, "Cannot convert metadata update action from json: add-snapshot");
    json_decref(md);
}

static void dialects_are_not_lost(void **state)
{
    (void)state;
    const char trino[] =
        "[{'action':'add-view-version','view-version':{'version-id':2,'timestamp-ms':1699999999500,'schema-id':0,'summary':{},'default-"
        "namespace':[],"
        "'representations':[{'type':'sql','sql':'x','dialect':'trino'}]}},{'action':'set-current-view-version','view-version-id':-1}]";
    json_t *md = view();
    refuses(md, trino, TARN_E_ICE_VALIDATION,
            "loss of view dialects (replace.drop-dialect.allowed=false):\nPrevious dialects: [spark]\nNew dialects: [trino]");
    md = apply(md, "[{'action':'set-properties','updates':{'replace.drop-dialect.allowed':'true'}}]", true);
    md = apply(md, trino, true);
    t_is(md, "current-version-id", "2");
    json_decref(md);
}

static void history_has_a_maximum(void **state)
{
    (void)state;
    json_t *md = apply(view(), "[{'action':'set-properties','updates':{'version.history.size':'2'}}]", true);
    for (int i = 2; i <= 4; i++)
        md = apply(md,
                   tarn_arena_fmt(t_arena,
                                  "[{'action':'add-view-version','view-version':{'version-id':%d,'timestamp-ms':169999999900%d,'schema-id':"
                                  "0,'summary':{},'default-namespace':[],"
                                  "'representations':[{'type':'sql','sql':'select "
                                  "%d','dialect':'spark'}]}},{'action':'set-current-view-version','view-version-id':-1}]",
                                  i, i, i)
                       .p,
                   true);
    assert_int_equal(json_array_size(t_at(md, "versions")), 2);
    t_is(md, "versions.0.version-id", "3");
    t_is(md, "versions.1.version-id", "4");
    t_is(md, "version-log.0.version-id", "3");
    t_is(md, "version-log.2", "-");
    refuses(md, "[{'action':'set-properties','updates':{'version.history.size':'0'}}]", TARN_E_ICE_ILLEGAL_ARGUMENT, "must be positive");
    json_decref(md);
}

static void files_are_checked(void **state)
{
    (void)state;
    static const struct {
        const char *key, *value, *says;
    } rows[] = {{"format-version", "2", "Unsupported format version"},
                {"view-uuid", "null", "view-uuid is missing"},
                {"current-version-id", "9", "Cannot find current version 9"},
                {"versions", "[]", "Cannot find current version 1"},
                {"schemas", "[]", "Cannot find schema-id=0"},
                {"version-log", "{}", "must be a list"}};
    for (size_t i = 0; i < TARN_ARRAY_LEN(rows); i++) {
        json_t *md = view(), *out = NULL;
        json_object_set_new(md, rows[i].key, t_json(rows[i].value));
        tarn_err err = ice_view_load(md, &out, &t_error);
        t_says(err, err == TARN_E_ICE_BAD_REQUEST ? err : TARN_E_ICE_VALIDATION, rows[i].says);
        json_decref(md);
    }
}

#define T(f) cmocka_unit_test_setup_teardown(f, t_setup, t_teardown)
int main(void)
{
    const struct CMUnitTest tests[] = {
        T(create), T(replace_with_a_schema), T(faults), T(dialects_are_not_lost), T(history_has_a_maximum), T(files_are_checked),
    };
    return cmocka_run_group_tests_name("iceberg views", tests, NULL, NULL);
}
