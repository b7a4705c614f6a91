/* SPDX-License-Identifier: Apache-2.0 */
/* The route table: which row a path means, what a path leaves open, and that the table is well made. */
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "catalog.h"

static ice_match find(ice_req *q, const char *method, const char *path, char *allow_text, size_t allow_bytes)
{
    tarn_sb allow;
    memset(q, 0, sizeof *q);
    tarn_sb_init_fixed(&allow, allow_text, allow_bytes);
    return ice_route_find(q, tarn_str_of(method), tarn_str_of(path), &allow);
}

static void paths_and_rows(void **state)
{
    (void)state;
    static const struct {
        const char *method, *path, *row, *warehouse, *ns, *name; /* NULL: not set; row NULL: no route */
    } rows[] = {
        {"GET", "/v1/config", "/v1/config", NULL, NULL, NULL},
        {"GET", "/v1/config/", "/v1/config", NULL, NULL, NULL},
        {"GET", "//v1/config", "/v1/config", NULL, NULL, NULL},
        {"POST", "/v1/oauth/tokens", "/v1/oauth/tokens", NULL, NULL, NULL},
        {"GET", "/v1/warehouses/w", "/v1/warehouses/{warehouse}", "w", NULL, NULL},
        {"GET", "/v1/w/namespaces", "/v1/{prefix}/namespaces", "w", NULL, NULL},
        {"GET", "/v1/namespaces", "/v1/{prefix}/namespaces", NULL, NULL, NULL},
        {"GET", "/v1/namespaces/n/tables/t", "/v1/{prefix}/namespaces/{namespace}/tables/{table}", NULL, "n", "t"},
        {"GET", "/v1/w/namespaces/a%1Fb/tables/t%2Fu", "/v1/{prefix}/namespaces/{namespace}/tables/{table}", "w", "a%1Fb", "t%2Fu"},
        {"GET", "/v1/w/namespaces//tables/t", "/v1/{prefix}/namespaces/{namespace}/tables/{table}", "w", "", "t"},
        {"GET", "/v1/w/namespaces/namespaces/tables/tables", "/v1/{prefix}/namespaces/{namespace}/tables/{table}", "w", "namespaces",
         "tables"},
        {"POST", "/v1/w/tables/rename", "/v1/{prefix}/tables/rename", "w", NULL, NULL},
        {"POST", "/v1/tables/rename", "/v1/{prefix}/tables/rename", NULL, NULL, NULL},
        {"POST", "/v1/w/namespaces/n/register-view", "/v1/{prefix}/namespaces/{namespace}/register-view", "w", "n", NULL},
        {"GET", "/v1", NULL, NULL, NULL, NULL},
        {"GET", "", NULL, NULL, NULL, NULL},
        {"GET", "/v2/config", NULL, NULL, NULL, NULL},
        {"GET", "/v1/w/nothing", NULL, NULL, NULL, NULL},
        {"GET", "/v1/w/namespaces/n/tables/t/z/w", NULL, NULL, NULL, NULL},
        {"GET", "/v1/../../etc/passwd/namespaces", NULL, NULL, NULL, NULL},
        {"GET", "/v1/a/b/c/d/e/f/g/h/i/j/k/l/m/n/o/p/q", NULL, NULL, NULL, NULL},
    };
    for (size_t i = 0; i < TARN_ARRAY_LEN(rows); i++) {
        static ice_req q;
        char allow[128];
        ice_match m = find(&q, rows[i].method, rows[i].path, allow, sizeof allow);
        if (!rows[i].row) {
            assert_int_equal(m, ICE_MATCH_NONE);
            continue;
        }
        if (m != ICE_MATCH)
            fail_msg("%s %s", rows[i].method, rows[i].path);
        assert_string_equal(q.route->path, rows[i].row);
        const tarn_str got[] = {q.raw_warehouse, q.raw_ns, q.raw_name};
        const char *want[] = {rows[i].warehouse, rows[i].ns, rows[i].name};
        for (size_t k = 0; k < 3; k++) {
            assert_int_equal(got[k].p != NULL, want[k] != NULL);
            if (want[k])
                assert_true(tarn_str_eqc(got[k], want[k]));
        }
    }
}

static void other_methods_are_told(void **state)
{
    (void)state;
    static ice_req q;
    char allow[128];
    assert_int_equal(find(&q, "PATCH", "/v1/w/namespaces/n", allow, sizeof allow), ICE_MATCH_METHOD);
    assert_string_equal(allow, "GET, HEAD, DELETE");
    assert_null(q.route);
    assert_int_equal(find(&q, "get", "/v1/config", allow, sizeof allow), ICE_MATCH_METHOD);
}

static void every_row_is_found_by_itself(void **state)
{
    (void)state;
    for (size_t i = 0; i < ICE_ROUTES_N; i++) {
        static ice_req q;
        char allow[128];
        assert_int_equal(find(&q, ICE_ROUTES[i].method, ICE_ROUTES[i].path, allow, sizeof allow), ICE_MATCH);
        assert_ptr_equal(q.route, &ICE_ROUTES[i]); /* no two rows fit one path */
        bool prefix = strstr(ICE_ROUTES[i].path, "{prefix}") != NULL, warehouse = strstr(ICE_ROUTES[i].path, "{warehouse}") != NULL;
        assert_int_equal((ICE_ROUTES[i].flags & ICE_R_WAREHOUSE) != 0, prefix || warehouse);
        assert_int_equal((ICE_ROUTES[i].flags & ICE_R_LISTED) != 0, prefix); /* what the specification knows is what is listed */
        assert_true(ICE_ROUTES[i].action || (ICE_ROUTES[i].flags & ICE_R_OPEN));
    }
}

static void words_of_paths_are_reserved(void **state)
{
    (void)state;
    assert_true(ice_reserved_prefix(TARN_STR("namespaces")));
    assert_true(ice_reserved_prefix(TARN_STR("config")));
    assert_false(ice_reserved_prefix(TARN_STR("namespace")));
}

static void the_table_as_text(void **state)
{
    (void)state;
    tarn_sb b;
    tarn_sb_init(&b, 100000);
    tarn_iceberg_routes_render(&b);
    size_t lines = 0;
    for (size_t i = 0; i < b.n; i++)
        lines += b.p[i] == '\n';
    assert_int_equal(lines, ICE_ROUTES_N);
    assert_non_null(strstr(b.p, "GET\t/_iceberg/v1/{prefix}/namespaces/{namespace}/tables/{table}\ts3tables:GetTable\n"));
    tarn_sb_free(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(paths_and_rows),
        cmocka_unit_test(other_methods_are_told),
        cmocka_unit_test(every_row_is_found_by_itself),
        cmocka_unit_test(words_of_paths_are_reserved),
        cmocka_unit_test(the_table_as_text),
    };
    return cmocka_run_group_tests_name("iceberg routes", tests, NULL, NULL);
}
