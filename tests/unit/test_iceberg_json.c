/* SPDX-License-Identifier: Apache-2.0 */
/* JSON at the catalog's edge: what is refused, what survives exactly, how errors are told. */
#include "iceberg_json.h"

static tarn_err parse(const char *text, json_t **out)
{
    *out = NULL;
    return ice_json_parse(tarn_str_of(text), ICE_JSON_DEPTH_MAX, out, &t_error);
}

static void refuses_what_is_no_document(void **state)
{
    (void)state;
    static const char *const bad[] = {"",
                                      "{",
                                      "{\"a\":1,}",
                                      "{\"a\":1} {}",
                                      "{'a':1}",
                                      "{\"a\":NaN}",
                                      "{\"a\":01}",
                                      "[1,]",
                                      "{\"a\":1e400}",
                                      "\"\\ud800\"",
                                      "\"\\u0000\"",
                                      "\"\xff\"",
                                      "\"\xc0\xaf\"",
                                      "// x\n1",
                                      "{\"a\":1,\"a\":2}",
                                      "9223372036854775808",
                                      "-9223372036854775809"};
    for (size_t i = 0; i < TARN_ARRAY_LEN(bad); i++) {
        json_t *v;
        if (parse(bad[i], &v) != TARN_E_ICE_BAD_REQUEST)
            fail_msg("accepted: %s", bad[i]);
        assert_null(v);
        assert_true(ice_error_message(&t_error).n > 0);
    }
}

static tarn_str nested(size_t depth, char open, char close)
{
    char *p = tarn_arena_alloc(t_arena, 2 * depth + 1);
    memset(p, open, depth);
    memset(p + depth, close, depth);
    return (tarn_str){p, 2 * depth};
}

static void depth_has_a_maximum(void **state)
{
    (void)state;
    json_t *v = NULL;
    assert_int_equal(ice_json_parse(nested(ICE_JSON_DEPTH_MAX, '[', ']'), ICE_JSON_DEPTH_MAX, &v, &t_error), TARN_OK);
    json_decref(v);
    t_says(ice_json_parse(nested(ICE_JSON_DEPTH_MAX + 1, '[', ']'), ICE_JSON_DEPTH_MAX, &v, &t_error), TARN_E_ICE_BAD_REQUEST,
           "nested deeper");
    t_says(ice_json_parse(nested(1000000, '[', ']'), ICE_JSON_DEPTH_MAX, &v, &t_error), TARN_E_ICE_BAD_REQUEST, "nested deeper");
}

static void brackets_in_texts_are_no_depth(void **state)
{
    (void)state;
    json_t *v = NULL;
    char text[600];
    memset(text, '[', sizeof text);
    memcpy(text, "[\"a\\\"", 5);
    memcpy(text + sizeof text - 2, "\"]", 2);
    assert_int_equal(ice_json_parse((tarn_str){text, sizeof text}, 4, &v, &t_error), TARN_OK);
    assert_int_equal(json_string_length(json_array_get(v, 0)), sizeof text - 5);
    json_decref(v);
}

static void writes_what_it_read(void **state)
{
    (void)state;
    static const char *const same[] = {"9223372036854775807",
                                       "-9223372036854775808",
                                       "0",
                                       "1.0",
                                       "-0.0",
                                       "0.1",
                                       "1e+300",
                                       "1.7976931348623157e+308",
                                       "123456789012345.6",
                                       "4.94065645841247e-324",
                                       "true",
                                       "null",
                                       "[]",
                                       "{}",
                                       "[1,[2,{\"a\":[]}]]",
                                       "\"\\\"\\\\\\n\\r\\t\\u0001/\"",
                                       "{\"b\":1,\"a\":2}",
                                       "\"\xc3\xa4\xf0\x9f\x98\x80\""};
    for (size_t i = 0; i < TARN_ARRAY_LEN(same); i++) {
        json_t *v = NULL;
        assert_int_equal(parse(same[i], &v), TARN_OK);
        assert_string_equal(t_text(v), same[i]);
        json_decref(v);
    }
}

static void whole_floats_stay_floats(void **state)
{
    (void)state;
    json_t *v = NULL;
    assert_int_equal(parse("[1.00,2e0,100000000000000000000.0]", &v), TARN_OK);
    assert_string_equal(t_text(v), "[1.0,2.0,1e+20]");
    json_decref(v);
}

static void fields_have_types(void **state)
{
    (void)state;
    json_t *o = t_json("{'i':5,'big':4294967296,'s':'x','n':null,'b':true,'o':{},'a':[],'f':1.5}");
    int64_t i = 0;
    bool has = true, b = false;
    tarn_str s = TARN_STR_NULL;
    json_t *v = NULL;
    assert_int_equal(ice_get_int(o, "thing", "i", &i, &t_error), TARN_OK);
    assert_int_equal(i, 5);
    t_says(ice_get_int(o, "thing", "n", &i, &t_error), TARN_E_ICE_BAD_REQUEST, "Cannot parse thing: field n is missing");
    t_says(ice_get_int(o, "thing", "f", &i, &t_error), TARN_E_ICE_BAD_REQUEST, "f must be an integer");
    t_says(ice_get_int32(o, "thing", "big", &i, &t_error), TARN_E_ICE_BAD_REQUEST, "32 bits");
    assert_int_equal(ice_opt_int(o, "thing", "n", &has, &i, &t_error), TARN_OK);
    assert_false(has);
    t_says(ice_get_string(o, "thing", "i", &s, &t_error), TARN_E_ICE_BAD_REQUEST, "i must be a string");
    assert_int_equal(ice_opt_string(o, "thing", "zz", &s, &t_error), TARN_OK);
    assert_null(s.p);
    assert_int_equal(ice_opt_bool(o, "thing", "zz", true, &b, &t_error), TARN_OK);
    assert_true(b);
    t_says(ice_opt_bool(o, "thing", "s", true, &b, &t_error), TARN_E_ICE_BAD_REQUEST, "true or false");
    t_says(ice_get_object(o, "thing", "a", &v, &t_error), TARN_E_ICE_BAD_REQUEST, "an object");
    t_says(ice_get_array(o, "thing", "o", &v, &t_error), TARN_E_ICE_BAD_REQUEST, "a list");
    json_decref(o);
}

static void long_texts_have_a_maximum(void **state)
{
    (void)state;
    tarn_str s = TARN_STR_NULL;
    char *p = tarn_arena_alloc(t_arena, ICE_STRING_BYTES_MAX + 1);
    memset(p, 'x', ICE_STRING_BYTES_MAX + 1);
    json_t *o = json_object();
    json_object_set_new(o, "at", json_stringn(p, ICE_STRING_BYTES_MAX));
    json_object_set_new(o, "past", json_stringn(p, ICE_STRING_BYTES_MAX + 1));
    assert_int_equal(ice_get_string(o, "thing", "at", &s, &t_error), TARN_OK);
    t_says(ice_get_string(o, "thing", "past", &s, &t_error), TARN_E_ICE_BAD_REQUEST, "longer than");
    json_decref(o);
}

static void long_messages_are_cut_between_characters(void **state)
{
    (void)state;
    char text[3000];
    memset(text, 'x', sizeof text);
    for (size_t i = 1; i + 1 < sizeof text; i += 2)
        memcpy(text + i, "\xc3\xa4", 2);
    assert_int_equal(ice_fail(&t_error, TARN_E_ICE_VALIDATION, "%.*s", (int)sizeof text, text), TARN_E_ICE_VALIDATION);
    tarn_str m = ice_error_message(&t_error);
    assert_true(m.n <= ICE_ERROR_BYTES_MAX - 1 && m.n > ICE_ERROR_BYTES_MAX - 5);
    assert_true(tarn_str_utf8_valid(m));
    assert_int_equal(ice_fail_plain(&t_error, TARN_E_NO_SUCH_KEY), TARN_E_NO_SUCH_KEY);
    assert_true(tarn_str_eqc(ice_error_message(&t_error), "The specified key does not exist."));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(refuses_what_is_no_document, t_setup, t_teardown),
        cmocka_unit_test_setup_teardown(depth_has_a_maximum, t_setup, t_teardown),
        cmocka_unit_test_setup_teardown(brackets_in_texts_are_no_depth, t_setup, t_teardown),
        cmocka_unit_test_setup_teardown(writes_what_it_read, t_setup, t_teardown),
        cmocka_unit_test_setup_teardown(whole_floats_stay_floats, t_setup, t_teardown),
        cmocka_unit_test_setup_teardown(fields_have_types, t_setup, t_teardown),
        cmocka_unit_test_setup_teardown(long_texts_have_a_maximum, t_setup, t_teardown),
        cmocka_unit_test_setup_teardown(long_messages_are_cut_between_characters, t_setup, t_teardown),
    };
    return cmocka_run_group_tests_name("iceberg json", tests, NULL, NULL);
}
