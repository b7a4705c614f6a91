/* SPDX-License-Identifier: Apache-2.0 */
/* Names of namespaces and tables in paths and bodies, and page tokens. */
#include "iceberg_json.h"

#include "catalog.h"

static ice_req q;

static int setup(void **state)
{
    if (t_setup(state) != 0)
        return -1;
    memset(&q, 0, sizeof q);
    q.a = t_arena;
    ice_error_init(&q.e);
    return 0;
}

static void namespaces_in_paths(void **state)
{
    (void)state;
    static const struct {
        const char *raw, *plain;
        bool plus;
    } rows[] = {
        {"a", "a", true},
        {"a%1Fb",
         "a\x1f"
         "b",
         true},
        {"a%1fb%1Fc",
         "a\x1f"
         "b\x1f"
         "c",
         true},
        {"a%20b+c", "a b c", true},
        {"a+b", "a+b", false},
        {"a%2Fb", "a/b", true},
        {"", "", true},
        {"%C3%A4", "\xc3\xa4", true},
        {"a.b", "a.b", true},
        {"%251F", "%1F", true},
    };
    for (size_t i = 0; i < TARN_ARRAY_LEN(rows); i++) {
        tarn_str out;
        assert_int_equal(ice_ns_decode(&q, tarn_str_of(rows[i].raw), rows[i].plus, &out), TARN_OK);
        if (!tarn_str_eqc(out, rows[i].plain))
            fail_msg("%s gives %.*s", rows[i].raw, TARN_STR_ARG(out));
    }
    tarn_str out;
    assert_int_equal(ice_ns_decode(&q, TARN_STR("a%zz"), true, &out), TARN_E_ICE_BAD_REQUEST);
    assert_int_equal(ice_ns_decode(&q, TARN_STR("a%1"), true, &out), TARN_E_ICE_BAD_REQUEST);
}

static void names_that_are_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {"", ".", "..", "a/b", "a\nb", "\x7f", "\xff", "\xc0\xaf"};
    static const char *const good[] = {"a", "A-b_c", "a b", "...", "a.b", "\xe6\xb9\x96", "a+b", "%41"};
    for (size_t i = 0; i < TARN_ARRAY_LEN(bad); i++)
        assert_int_equal(ice_check_name(&q, "name", tarn_str_of(bad[i])), TARN_E_ICE_BAD_REQUEST);
    for (size_t i = 0; i < TARN_ARRAY_LEN(good); i++)
        assert_int_equal(ice_check_name(&q, "name", tarn_str_of(good[i])), TARN_OK);
    assert_int_equal(ice_check_name(&q, "name", (tarn_str){"a\0b", 3}), TARN_E_ICE_BAD_REQUEST);
    char text[ICE_NS_LEVEL_BYTES_MAX + 1];
    memset(text, 'x', sizeof text);
    assert_int_equal(ice_check_name(&q, "name", (tarn_str){text, ICE_NS_LEVEL_BYTES_MAX}), TARN_OK);
    assert_int_equal(ice_check_name(&q, "name", (tarn_str){text, ICE_NS_LEVEL_BYTES_MAX + 1}), TARN_E_ICE_BAD_REQUEST);
}

static tarn_err from_json(const char *text, tarn_str *out)
{
    json_t *v = t_json(text);
    tarn_err err = ice_ns_from_json(&q, v, out);
    json_decref(v);
    return err;
}

static void namespaces_in_bodies(void **state)
{
    (void)state;
    static const char *const bad[] = {"[]", "'a'", "[1]", "['']", "['..']", "['a/../../b']", "[['a']]", "{}", "null"};
    tarn_str out;
    assert_int_equal(from_json("['a','b c']", &out), TARN_OK);
    assert_true(tarn_str_eqc(out, "a\x1f"
                                  "b c"));
    for (size_t i = 0; i < TARN_ARRAY_LEN(bad); i++)
        assert_int_equal(from_json(bad[i], &out), TARN_E_ICE_BAD_REQUEST);
    json_t *list = json_array();
    for (int i = 0; i < TARN_NS_LEVELS_MAX; i++)
        json_array_append_new(list, json_string("l"));
    assert_int_equal(ice_ns_from_json(&q, list, &out), TARN_OK);
    json_array_append_new(list, json_string("l"));
    assert_int_equal(ice_ns_from_json(&q, list, &out), TARN_E_ICE_BAD_REQUEST);
    json_decref(list);
    char level[206]; /* five levels of 204 and four separators are 1024 bytes */
    memset(level, 'x', sizeof level);
    list = json_array();
    for (int i = 0; i < 5; i++)
        json_array_append_new(list, json_stringn(level, 204));
    assert_int_equal(ice_ns_from_json(&q, list, &out), TARN_OK);
    assert_int_equal(out.n, TARN_NS_PATH_BYTES_MAX);
    json_array_set_new(list, 0, json_stringn(level, 205));
    assert_int_equal(ice_ns_from_json(&q, list, &out), TARN_E_ICE_BAD_REQUEST);
    json_decref(list);
}

static void identifiers(void **state)
{
    (void)state;
    tarn_str ns, name;
    json_t *v = t_json("{'namespace':['a','b'],'name':'t'}");
    assert_int_equal(ice_identifier(&q, v, &ns, &name), TARN_OK);
    assert_true(tarn_str_eqc(ice_show(&q, ns, name), "a.b.t"));
    json_decref(v);
    v = t_json("{'namespace':['a']}");
    assert_int_equal(ice_identifier(&q, v, &ns, &name), TARN_E_ICE_BAD_REQUEST);
    json_decref(v);
    assert_int_equal(ice_identifier(&q, NULL, &ns, &name), TARN_E_ICE_BAD_REQUEST);
    assert_true(tarn_str_eqc(ice_show(&q, TARN_STR(""), TARN_STR("t")), "t"));
}

static void namespaces_as_json(void **state)
{
    (void)state;
    tarn_sb b;
    tarn_sb_init(&b, 1000);
    ice_ns_write_json(&b, TARN_STR("a\x1f"
                                   "b\"c"));
    assert_string_equal(b.p, "[\"a\",\"b\\\"c\"]");
    tarn_sb_reset(&b);
    ice_ns_write_json(&b, TARN_STR(""));
    assert_string_equal(b.p, "[]");
    tarn_sb_free(&b);
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, t_teardown)
int main(void)
{
    const struct CMUnitTest tests[] = {
        T(namespaces_in_paths), T(names_that_are_refused), T(namespaces_in_bodies), T(identifiers), T(namespaces_as_json),
    };
    return cmocka_run_group_tests_name("iceberg names", tests, NULL, NULL);
}
