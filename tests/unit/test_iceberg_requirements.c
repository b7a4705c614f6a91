/* SPDX-License-Identifier: Apache-2.0 */
/* Requirements of commits, one by one: what holds, what fails and with which words. */
#include "iceberg_json.h"

static json_t *table_with_refs(void)
{
    return t_apply(
        t_table(2),
        "[{'action':'add-snapshot','snapshot':{'snapshot-id':7,'sequence-number':1,'timestamp-ms':1699999999000,'manifest-list':'x'}},"
        "{'action':'set-snapshot-ref','ref-name':'main','type':'branch','snapshot-id':7},"
        "{'action':'set-snapshot-ref','ref-name':'t','type':'tag','snapshot-id':7}]",
        true);
}

static tarn_err check(const json_t *base, const char *requirements)
{
    json_t *r = t_json(requirements);
    tarn_err err = ice_check_requirements(base, r, &t_error);
    json_decref(r);
    return err;
}

static void those_that_hold(void **state)
{
    (void)state;
    static const char *const good[] = {
        "[]",
        "[{'type':'assert-table-uuid','uuid':'" T_UUID "'}]",
        "[{'type':'ASSERT-Table-UUID','uuid':'" T_UUID "'}]",
        "[{'type':'assert-ref-snapshot-id','ref':'main','snapshot-id':7}]",
        "[{'type':'assert-ref-snapshot-id','ref':'none','snapshot-id':null}]",
        "[{'type':'assert-ref-snapshot-id','ref':'none'}]",
        "[{'type':'assert-last-assigned-field-id','last-assigned-field-id':5}]",
        "[{'type':'assert-current-schema-id','current-schema-id':0}]",
        "[{'type':'assert-last-assigned-partition-id','last-assigned-partition-id':999}]",
        "[{'type':'assert-default-spec-id','default-spec-id':0}]",
        "[{'type':'assert-default-sort-order-id','default-sort-order-id':0}]",
    };
    json_t *md = table_with_refs();
    for (size_t i = 0; i < TARN_ARRAY_LEN(good); i++)
        if (check(md, good[i]) != TARN_OK)
            fail_msg("%s: %.*s", good[i], TARN_STR_ARG(ice_error_message(&t_error)));
    assert_int_equal(ice_check_requirements(md, NULL, &t_error), TARN_OK);
    json_decref(md);
}

static void those_that_fail(void **state)
{
    (void)state;
    static const struct {
        const char *requirement, *says;
        tarn_err code;
    } rows[] = {
        {"{'type':'assert-create'}", "Requirement failed: table already exists", TARN_E_ICE_COMMIT_FAILED},
        {"{'type':'assert-table-uuid','uuid':'x'}", "Requirement failed: UUID does not match: expected " T_UUID " != x",
         TARN_E_ICE_COMMIT_FAILED},
        {"{'type':'assert-ref-snapshot-id','ref':'main','snapshot-id':8}", "branch main has changed: expected id 8 != 7",
         TARN_E_ICE_COMMIT_FAILED},
        {"{'type':'assert-ref-snapshot-id','ref':'t','snapshot-id':8}", "tag t has changed: expected id 8 != 7", TARN_E_ICE_COMMIT_FAILED},
        {"{'type':'assert-ref-snapshot-id','ref':'main','snapshot-id':null}", "branch main was created concurrently",
         TARN_E_ICE_COMMIT_FAILED},
        {"{'type':'assert-ref-snapshot-id','ref':'b','snapshot-id':8}", "branch or tag b is missing, expected 8", TARN_E_ICE_COMMIT_FAILED},
        {"{'type':'assert-last-assigned-field-id','last-assigned-field-id':4}", "last assigned field id changed: expected id 4 != 5",
         TARN_E_ICE_COMMIT_FAILED},
        {"{'type':'assert-current-schema-id','current-schema-id':1}", "current schema changed: expected id 1 != 0",
         TARN_E_ICE_COMMIT_FAILED},
        {"{'type':'assert-last-assigned-partition-id','last-assigned-partition-id':1000}", "last assigned partition id changed",
         TARN_E_ICE_COMMIT_FAILED},
        {"{'type':'assert-default-spec-id','default-spec-id':1}", "default partition spec changed: expected id 1 != 0",
         TARN_E_ICE_COMMIT_FAILED},
        {"{'type':'assert-default-sort-order-id','default-sort-order-id':1}", "default sort order changed", TARN_E_ICE_COMMIT_FAILED},
        {"{'type':'assert-next-row-id','next-row-id':1}", "Cannot convert update requirement from json: assert-next-row-id",
         TARN_E_ICE_BAD_REQUEST},
        {"{'type':'assert-table-uuid'}", "uuid is missing", TARN_E_ICE_BAD_REQUEST},
        {"{'type':'assert-ref-snapshot-id','ref':'main','snapshot-id':'7'}", "must be an integer", TARN_E_ICE_BAD_REQUEST},
        {"{}", "type is missing", TARN_E_ICE_BAD_REQUEST},
        {"7", "an object is needed", TARN_E_ICE_BAD_REQUEST},
    };
    json_t *md = table_with_refs();
    for (size_t i = 0; i < TARN_ARRAY_LEN(rows); i++)
        t_says(check(md, tarn_arena_fmt(t_arena, "[%s]", rows[i].requirement).p), rows[i].code, rows[i].says);
    t_says(check(md, "{}"), TARN_E_ICE_BAD_REQUEST, "must be a list");
    json_decref(md);
}

static void views_have_their_own(void **state)
{
    (void)state;
    json_t *md = t_json("{'view-uuid':'u'}");
    assert_int_equal(check(md, "[{'type':'assert-view-uuid','uuid':'U'}]"), TARN_OK);
    t_says(check(md, "[{'type':'assert-view-uuid','uuid':'v'}]"), TARN_E_ICE_COMMIT_FAILED, "view UUID does not match: expected u != v");
    json_decref(md);
}

static void create_stands_alone(void **state)
{
    (void)state;
    assert_int_equal(check(NULL, "[{'type':'assert-create'}]"), TARN_OK);
    t_says(check(NULL, "[{'type':'assert-create'},{'type':'assert-table-uuid','uuid':'x'}]"), TARN_E_ICE_BAD_REQUEST,
           "Invalid create requirements");
    json_t *r = t_json("[{'type':'assert-table-uuid','uuid':'x'}]");
    assert_false(ice_has_assert_create(r));
    json_decref(r);
}

static void requirements_come_before_updates(void **state)
{
    (void)state;
    json_t *md = table_with_refs(), *r = t_json("[{'type':'assert-current-schema-id','current-schema-id':9}]"),
           *u = t_json("[{'action':'make-coffee'}]");
    ice_ctx ctx = t_ctx("");
    ice_result out = {0};
    t_says(ice_table_apply(md, r, u, &ctx, &out, &t_error), TARN_E_ICE_COMMIT_FAILED, "current schema changed");
    assert_null(out.metadata);
    json_decref(md);
    json_decref(r);
    json_decref(u);
}

static void there_is_a_maximum(void **state)
{
    (void)state;
    json_t *md = table_with_refs(), *one = t_json("{'type':'assert-current-schema-id','current-schema-id':0}"), *r = json_array();
    for (int i = 0; i < ICE_REQUIREMENTS_MAX; i++)
        json_array_append(r, one);
    assert_int_equal(ice_check_requirements(md, r, &t_error), TARN_OK);
    json_array_append(r, one);
    t_says(ice_check_requirements(md, r, &t_error), TARN_E_ICE_BAD_REQUEST, "are allowed");
    json_decref(md);
    json_decref(one);
    json_decref(r);
}

#define T(f) cmocka_unit_test_setup_teardown(f, t_setup, t_teardown)
int main(void)
{
    const struct CMUnitTest tests[] = {
        T(those_that_hold),    T(those_that_fail), T(views_have_their_own), T(create_stands_alone), T(requirements_come_before_updates),
        T(there_is_a_maximum),
    };
    return cmocka_run_group_tests_name("iceberg requirements", tests, NULL, NULL);
}
