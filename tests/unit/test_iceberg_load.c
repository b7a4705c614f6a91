/* SPDX-License-Identifier: Apache-2.0 */
/* Metadata from files: what is refused, how old forms are brought up to date, snapshots=refs; real files where they are there. */
#include <dirent.h>

#include "iceberg_json.h"
#include "shared_data.h"

static void old_version_1(void **state)
{
    (void)state;
    json_t *md = NULL;
    json_t *raw =
        t_json("{'format-version':1,'location':'s3://w/t','last-updated-ms':5,'last-column-id':2,'schema':{'type':'struct','fields':["
               "{'id':1,'name':'a','required':true,'type':'int'},{'id':2,'name':'b','required':false,'type':'date'}]},"
               "'partition-spec':[{'source-id':1,'transform':'identity','name':'a'},{'source-id':2,'transform':'day','name':'d'}],"
               "'snapshots':[{'snapshot-id':3,'timestamp-ms':4,'manifest-list':'x'}],'current-snapshot-id':3}");
    assert_int_equal(ice_table_load(raw, true, t_arena, &md, &t_error), TARN_OK);
    t_is(md, "schemas.0.schema-id", "0");
    t_is(md, "current-schema-id", "0");
    t_is(md, "partition-specs.0.fields.1.field-id", "1001");
    t_is(md, "default-spec-id", "0");
    t_is(md, "last-partition-id", "1001");
    t_is(md, "sort-orders", "[{'order-id':0,'fields':[]}]");
    t_is(md, "refs", "{'main':{'snapshot-id':3,'type':'branch'}}"); /* files without refs */
    t_is(md, "properties", "{}");
    t_is(md, "partition-spec.0.field-id", "1000");
    t_is(raw, "schemas", "-"); /* what was read is not changed */
    json_decref(md);
    json_decref(raw);
}

static void faults(void **state)
{
    (void)state;
    static const struct {
        const char *key, *value, *says; /* value "-": the key is taken away */
        tarn_err code;
    } rows[] = {
        {"format-version", "4", "Cannot read unsupported version 4", TARN_E_ICE_VALIDATION},
        {"format-version", "'2'", "must be an integer", TARN_E_ICE_BAD_REQUEST},
        {"table-uuid", "-", "UUID is required in format v2", TARN_E_ICE_VALIDATION},
        {"location", "-", "location is missing", TARN_E_ICE_BAD_REQUEST},
        {"last-column-id", "-", "last-column-id is missing", TARN_E_ICE_BAD_REQUEST},
        {"last-sequence-number", "-", "last-sequence-number is missing", TARN_E_ICE_BAD_REQUEST},
        {"last-partition-id", "-", "last-partition-id is missing", TARN_E_ICE_BAD_REQUEST},
        {"schemas", "-", "schemas is missing", TARN_E_ICE_BAD_REQUEST},
        {"schemas", "[]", "Cannot find current-schema-id=0 in schemas", TARN_E_ICE_VALIDATION},
        {"partition-specs", "[]", "Cannot find default-spec-id=0", TARN_E_ICE_VALIDATION},
        {"sort-orders", "[]", "Cannot find default-sort-order-id=0", TARN_E_ICE_VALIDATION},
        {"sort-orders", "[{'order-id':0,'fields':[]},{'order-id':0,'fields':[]}]", "Multiple entries with same order-id: 0",
         TARN_E_ICE_VALIDATION},
        {"schemas", "[{'schema-id':0,'type':'struct','fields':[{'id':1,'name':'a','required':true,'type':'strange'}]}]",
         "strange is no type", TARN_E_ICE_BAD_REQUEST},
        {"snapshots", "[{'snapshot-id':1,'timestamp-ms':1,'sequence-number':5}]", "sequence number 5 greater than last sequence number 0",
         TARN_E_ICE_VALIDATION},
        {"refs", "{'b':{'snapshot-id':1,'type':'branch'}}", "Snapshot for reference b does not exist", TARN_E_ICE_VALIDATION},
        {"current-snapshot-id", "1", "Current snapshot ID does not match main branch", TARN_E_ICE_VALIDATION},
        {"snapshot-log", "[{'snapshot-id':1,'timestamp-ms':100000},{'snapshot-id':1,'timestamp-ms':39999}]",
         "Expected sorted snapshot log entries", TARN_E_ICE_VALIDATION},
        {"metadata-log", "[{'metadata-file':'x','timestamp-ms':1700000060001}]", "before last metadata log entry", TARN_E_ICE_VALIDATION},
        {"properties", "{'a':1}", "must be a string", TARN_E_ICE_BAD_REQUEST},
        {"refs", "[]", "must be an object", TARN_E_ICE_BAD_REQUEST},
    };
    for (size_t i = 0; i < TARN_ARRAY_LEN(rows); i++) {
        json_t *raw = t_table(2), *md = NULL;
        if (strcmp(rows[i].value, "-") == 0)
            json_object_del(raw, rows[i].key);
        else
            json_object_set_new(raw, rows[i].key, t_json(rows[i].value));
        t_says(ice_table_load(raw, true, t_arena, &md, &t_error), rows[i].code, rows[i].says);
        assert_null(md);
        json_decref(raw);
    }
    json_t *raw = t_table(3), *md = NULL;
    json_object_del(raw, "next-row-id");
    t_says(ice_table_load(raw, true, t_arena, &md, &t_error), TARN_E_ICE_BAD_REQUEST, "next-row-id is missing");
    json_decref(raw);
    raw = t_json("[]");
    t_says(ice_table_load(raw, true, t_arena, &md, &t_error), TARN_E_ICE_BAD_REQUEST, "an object is needed");
    json_decref(raw);
}

static void main_must_be_current(void **state)
{
    (void)state;
    json_t *raw = t_table(2), *md = NULL;
    json_object_set_new(raw, "snapshots", t_json("[{'snapshot-id':1,'timestamp-ms':1}]"));
    json_object_set_new(raw, "refs", t_json("{'main':{'snapshot-id':1,'type':'branch'}}"));
    t_says(ice_table_load(raw, true, t_arena, &md, &t_error), TARN_E_ICE_VALIDATION, "main branch exists: 1");
    json_object_set_new(raw, "current-snapshot-id", json_integer(1));
    assert_int_equal(ice_table_load(raw, true, t_arena, &md, &t_error), TARN_OK);
    json_decref(md);
    json_decref(raw);
}

static void log_tolerates_a_minute(void **state)
{
    (void)state;
    json_t *raw = t_table(2), *md = NULL;
    json_object_set_new(raw, "metadata-log",
                        t_json("[{'metadata-file':'a','timestamp-ms':1700000060000},{'metadata-file':'b','timestamp-ms':1700000000000}]"));
    assert_int_equal(ice_table_load(raw, true, t_arena, &md, &t_error), TARN_OK);
    json_decref(md);
    json_decref(raw);
}

static void refs_only(void **state)
{
    (void)state;
    json_t *md = t_table(2), *out = NULL;
    json_object_set_new(md, "snapshots", t_json("[{'snapshot-id':1},{'snapshot-id':2},{'snapshot-id':3}]"));
    json_object_set_new(md, "refs", t_json("{'main':{'snapshot-id':3,'type':'branch'},'t':{'snapshot-id':1,'type':'tag'}}"));
    json_object_set_new(md, "statistics", t_json("[{'snapshot-id':2},{'snapshot-id':1}]"));
    assert_int_equal(ice_table_refs_only(md, &out), TARN_OK);
    t_is(out, "snapshots", "[{'snapshot-id':1},{'snapshot-id':3}]");
    t_is(out, "statistics", "[{'snapshot-id':1}]");
    t_is(out, "refs.t.snapshot-id", "1");
    assert_int_equal(json_array_size(json_object_get(md, "snapshots")), 3);
    json_decref(out);
    json_decref(md);
}

/* Files that Iceberg's own writers made: all load, and nothing of them is lost. */
static size_t load_folder(const char *folder)
{
    size_t n = 0;
    DIR *d = opendir(folder);
    struct dirent *entry;
    while (d && (entry = readdir(d))) {
        if (!tarn_str_ends(tarn_str_of(entry->d_name), ".metadata.json"))
            continue;
        json_t *raw = NULL, *md = NULL;
        tarn_str text = shared_read(tarn_arena_fmt(t_arena, "%s/%s", folder, entry->d_name).p);
        assert_non_null(text.p);
        assert_int_equal(ice_json_parse_object(text, &raw, &t_error), TARN_OK);
        if (ice_table_load(raw, true, t_arena, &md, &t_error) != TARN_OK)
            fail_msg("%s: %.*s", entry->d_name, TARN_STR_ARG(ice_error_message(&t_error)));
        const char *key;
        json_t *value;
        json_object_foreach(raw, key, value)
        {
            if (!json_equal(value, json_object_get(md, key)))
                fail_msg("%s: %s changed", entry->d_name, key);
        }
        json_decref(raw);
        json_decref(md);
        tarn_free((void *)(uintptr_t)text.p);
        n++;
    }
    if (d)
        closedir(d);
    return n;
}

static void files_of_other_writers(void **state)
{
    (void)state;
    static const char *const tables[] = {"bucket_v2", "day_v2",   "deletes_v2", "dv_v3",     "evolve_v2",
                                         "ident_v2",  "trunc_v2", "unpart_v1",  "upgrade_v3"};
    char path[SHARED_PATH_BYTES];
    if (!shared_path("data/iceberg-samples", path))
        skip();
    for (size_t i = 0; i < TARN_ARRAY_LEN(tables); i++)
        assert_true(load_folder(tarn_arena_fmt(t_arena, "%s/%s/metadata", path, tables[i]).p) > 0);
}

#define T(f) cmocka_unit_test_setup_teardown(f, t_setup, t_teardown)
int main(void)
{
    const struct CMUnitTest tests[] = {
        T(old_version_1), T(faults), T(main_must_be_current), T(log_tolerates_a_minute), T(refs_only), T(files_of_other_writers),
    };
    return cmocka_run_group_tests_name("iceberg load", tests, NULL, NULL);
}
