/* SPDX-License-Identifier: Apache-2.0 */
/* Type names, transforms, and which transform stands on which type. */
#include "iceberg_json.h"

static void names_of_types(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        ice_kind kind;
        int64_t length, scale;
    } good[] = {
        {"boolean", ICE_T_BOOLEAN, 0, 0},
        {"INT", ICE_T_INT, 0, 0},
        {"long", ICE_T_LONG, 0, 0},
        {"float", ICE_T_FLOAT, 0, 0},
        {"Double", ICE_T_DOUBLE, 0, 0},
        {"date", ICE_T_DATE, 0, 0},
        {"time", ICE_T_TIME, 0, 0},
        {"timestamp", ICE_T_TIMESTAMP, 0, 0},
        {"timestamptz", ICE_T_TIMESTAMPTZ, 0, 0},
        {"timestamp_ns", ICE_T_TIMESTAMP_NS, 0, 0},
        {"string", ICE_T_STRING, 0, 0},
        {"timestamptz_ns", ICE_T_TIMESTAMPTZ_NS, 0, 0},
        {"uuid", ICE_T_UUID, 0, 0},
        {"binary", ICE_T_BINARY, 0, 0},
        {"unknown", ICE_T_UNKNOWN, 0, 0},
        {"variant", ICE_T_VARIANT, 0, 0},
        {"fixed[16]", ICE_T_FIXED, 16, 0},
        {"fixed[ 16 ]", ICE_T_FIXED, 16, 0},
        {"decimal(9, 2)", ICE_T_DECIMAL, 9, 2},
        {"decimal(38,38)", ICE_T_DECIMAL, 38, 38},
        {"geometry", ICE_T_GEOMETRY, 0, 0},
        {"geometry(srid:3857)", ICE_T_GEOMETRY, 0, 0},
        {"geography", ICE_T_GEOGRAPHY, 0, 0},
        {"geography(OGC:CRS84, karney)", ICE_T_GEOGRAPHY, 0, 0},
    };
    static const char *const bad[] = {"",           "integer", "decimal",      "decimal(39,2)",     "decimal(9)",  "decimal(2,3)",
                                      "fixed",      "fixed[]", "fixed[-1]",    "fixed[4294967296]", "struct",      "list",
                                      "geometry()", "int x",   "decimal(0,0)", "geography()",       "timestamp_us"};
    ice_type t;
    for (size_t i = 0; i < TARN_ARRAY_LEN(good); i++) {
        if (!ice_type_parse(tarn_str_of(good[i].text), &t))
            fail_msg("refused: %s", good[i].text);
        assert_int_equal(t.kind, good[i].kind);
        assert_int_equal(t.length, good[i].length);
        assert_int_equal(t.scale, good[i].scale);
    }
    for (size_t i = 0; i < TARN_ARRAY_LEN(bad); i++)
        if (ice_type_parse(tarn_str_of(bad[i]), &t))
            fail_msg("accepted: %s", bad[i]);
}

static void versions_of_types(void **state)
{
    (void)state;
    assert_int_equal(ice_kind_min_format(ICE_T_TIMESTAMP), 1);
    static const ice_kind v3[] = {ICE_T_TIMESTAMP_NS, ICE_T_TIMESTAMPTZ_NS, ICE_T_UNKNOWN, ICE_T_VARIANT, ICE_T_GEOMETRY, ICE_T_GEOGRAPHY};
    for (size_t i = 0; i < TARN_ARRAY_LEN(v3); i++)
        assert_int_equal(ice_kind_min_format(v3[i]), 3);
    assert_false(ice_kind_is_primitive(ICE_T_VARIANT));
    assert_true(ice_kind_is_primitive(ICE_T_GEOMETRY));
}

static void equality_of_types(void **state)
{
    (void)state;
    static const struct {
        const char *a, *b;
        bool equal;
    } rows[] = {
        {"'decimal(9,2)'", "'decimal(9, 2)'", true},
        {"'decimal(9,2)'", "'decimal(9,3)'", false},
        {"'int'", "'INT'", true},
        {"'int'", "'long'", false},
        {"'geometry'", "'geometry(ogc:crs84)'", true},
        {"'geometry'", "'geometry(srid:1)'", false},
        {"'geography(OGC:CRS84)'", "'geography(OGC:CRS84, spherical)'", true},
        {"'geography'", "'geography(OGC:CRS84, karney)'", false},
        {"{'type':'list','element-id':1,'element':'int','element-required':true}",
         "{'type':'list','element-id':1,'element':'int','element-required':true}", true},
        {"{'type':'list','element-id':1,'element':'int','element-required':true}",
         "{'type':'list','element-id':2,'element':'int','element-required':true}", false},
        {"{'type':'list','element-id':1,'element':'int','element-required':true}", "'int'", false},
        {"{'type':'map','key-id':1,'key':'int','value-id':2,'value':'int','value-required':true}",
         "{'type':'map','key-id':1,'key':'int','value-id':2,'value':'int','value-required':false}", false},
        {"{'type':'struct','fields':[{'id':1,'name':'a','type':'int','required':true}]}",
         "{'type':'struct','fields':[{'id':1,'name':'a','type':'int','required':true,'doc':null}]}", true},
        {"{'type':'struct','fields':[{'id':1,'name':'a','type':'int','required':true}]}",
         "{'type':'struct','fields':[{'id':1,'name':'a','type':'int','required':true,'doc':'d'}]}", false},
        {"{'type':'struct','fields':[{'id':1,'name':'a','type':'double','required':true,'write-default':1}]}",
         "{'type':'struct','fields':[{'id':1,'name':'a','type':'double','required':true,'write-default':1.0}]}", true},
    };
    for (size_t i = 0; i < TARN_ARRAY_LEN(rows); i++) {
        json_t *a = t_json(rows[i].a), *b = t_json(rows[i].b);
        if (ice_type_equal(a, b) != rows[i].equal || ice_type_equal(b, a) != rows[i].equal)
            fail_msg("%s and %s", rows[i].a, rows[i].b);
        json_decref(a);
        json_decref(b);
    }
}

static void names_of_transforms(void **state)
{
    (void)state;
    static const char *const good[] = {"identity",           "void",         "year", "month", "day", "hour", "bucket[1]",
                                       "Bucket[2147483647]", "truncate[ 4 ]"};
    static const char *const bad[] = {"",     "bucket",   "bucket[0]", "bucket[-1]", "bucket[2147483648]", "truncate[0]", "truncate[x]",
                                      "days", "identity "};
    ice_transform t;
    for (size_t i = 0; i < TARN_ARRAY_LEN(good); i++)
        if (!ice_transform_parse(tarn_str_of(good[i]), &t))
            fail_msg("refused: %s", good[i]);
    for (size_t i = 0; i < TARN_ARRAY_LEN(bad); i++)
        if (ice_transform_parse(tarn_str_of(bad[i]), &t))
            fail_msg("accepted: %s", bad[i]);
    assert_true(ice_transform_equal(TARN_STR("BUCKET[16]"), TARN_STR("bucket[16]")));
    assert_false(ice_transform_equal(TARN_STR("bucket[16]"), TARN_STR("bucket[17]")));
    assert_true(ice_transform_equal(TARN_STR("zorder"), TARN_STR("zorder")));
    assert_false(ice_transform_equal(TARN_STR("zorder"), TARN_STR("day")));
}

static bool accepts(const char *transform, const char *type)
{
    ice_transform x;
    ice_type t;
    assert_true(ice_transform_parse(tarn_str_of(transform), &x));
    assert_true(ice_type_parse(tarn_str_of(type), &t));
    return ice_transform_accepts(&x, &t);
}

static void transforms_fit_types(void **state)
{
    (void)state;
    static const char *const types[] = {"boolean",      "int",       "long",         "float",       "double", "date",
                                        "time",         "timestamp", "uuid",         "timestamptz", "string", "binary",
                                        "decimal(9,2)", "fixed[4]",  "timestamp_ns", "geometry",    "variant"};
    static const struct {
        const char *transform, *fits; /* one letter a type, in the order above */
    } rows[] = {
        {"identity", "yyyyyyyyyyyyyyynn"},  {"void", "yyyyyyyyyyyyyyyyy"},        {"year", "nnnnnynynynnnnynn"},
        {"month", "nnnnnynynynnnnynn"},     {"day", "nnnnnynynynnnnynn"},         {"hour", "nnnnnnnynynnnnynn"},
        {"bucket[4]", "nyynnyyyyyyyyyynn"}, {"truncate[4]", "nyynnnnnnnyyynnnn"},
    };
    for (size_t i = 0; i < TARN_ARRAY_LEN(rows); i++)
        for (size_t k = 0; k < TARN_ARRAY_LEN(types); k++)
            if (accepts(rows[i].transform, types[k]) != (rows[i].fits[k] == 'y'))
                fail_msg("%s on %s", rows[i].transform, types[k]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(names_of_types, t_setup, t_teardown),
        cmocka_unit_test_setup_teardown(versions_of_types, t_setup, t_teardown),
        cmocka_unit_test_setup_teardown(equality_of_types, t_setup, t_teardown),
        cmocka_unit_test_setup_teardown(names_of_transforms, t_setup, t_teardown),
        cmocka_unit_test_setup_teardown(transforms_fit_types, t_setup, t_teardown),
    };
    return cmocka_run_group_tests_name("iceberg types", tests, NULL, NULL);
}
