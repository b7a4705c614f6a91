/* SPDX-License-Identifier: Apache-2.0 */
/* A worker's cache of states and its lanes. */
#include "iceberg_json.h"

#include "catalog.h"

static tarn_iceberg ice;

static int setup(void **state)
{
    static uint64_t serial = 1000;
    if (t_setup(state) != 0)
        return -1;
    memset(&ice, 0, sizeof ice);
    ice.serial = ++serial; /* the thread takes a new worker */
    ice.cache_bytes_max = 35000;
    pthread_mutex_init(&ice.lock, NULL);
    return 0;
}

static int teardown(void **state)
{
    for (size_t i = 0; i < ice.workers_n; i++)
        ice_worker_free(ice.workers[i]);
    pthread_mutex_destroy(&ice.lock);
    return t_teardown(state);
}

static ice_state *make(uint64_t id, uint64_t version, size_t text_bytes)
{
    tarn_entity_row row = {.id = id, .version = version, .kind = TARN_ENTITY_TABLE, .pointer = TARN_STR("s3://w/p")};
    ice_text text = {.p = tarn_calloc(1, text_bytes + 1), .n = text_bytes};
    ice_state *s = ice_state_new(&row, json_object(), &text);
    assert_non_null(s);
    return s;
}

static void put(ice_worker *w, uint64_t id, uint64_t version, size_t text_bytes)
{
    ice_state *s = make(id, version, text_bytes);
    ice_cache_put(w, s);
    ice_state_unref(s);
}

static bool has(ice_worker *w, uint64_t id, uint64_t version)
{
    ice_state *s = ice_cache_get(w, id, version);
    bool there = s != NULL;
    ice_state_unref(s);
    return there;
}

static void finds_only_the_version_asked_for(void **state)
{
    (void)state;
    ice_worker *w = ice_worker_here(&ice);
    assert_ptr_equal(w, ice_worker_here(&ice));
    put(w, 1, 5, 10);
    assert_true(has(w, 1, 5));
    assert_false(has(w, 1, 6));
    assert_false(has(w, 2, 5));
    put(w, 1, 6, 10);
    assert_false(has(w, 1, 5));
    assert_true(has(w, 1, 6));
    put(w, 1, 5, 10); /* an older one does not push out a newer one */
    assert_true(has(w, 1, 6));
}

static void oldest_go_first(void **state)
{
    (void)state;
    ice_state *one = make(1, 1, 400);
    ice.cache_bytes_max = 5 * one->bytes; /* five fit, a sixth does not */
    ice_state_unref(one);
    ice_worker *w = ice_worker_here(&ice);
    for (uint64_t id = 1; id <= 5; id++)
        put(w, id, 1, 400);
    assert_true(has(w, 1, 1)); /* used: 2 is now the oldest */
    put(w, 6, 1, 400);
    assert_false(has(w, 2, 1));
    assert_true(has(w, 1, 1) && has(w, 3, 1) && has(w, 6, 1));
}

static void one_that_is_too_large_stands_alone(void **state)
{
    (void)state;
    ice_worker *w = ice_worker_here(&ice);
    put(w, 1, 1, 400);
    put(w, 2, 1, 100000);
    assert_false(has(w, 1, 1));
    assert_true(has(w, 2, 1));
    put(w, 3, 1, 10);
    assert_false(has(w, 2, 1));
    assert_true(has(w, 3, 1));
}

static void a_state_outlives_the_cache(void **state)
{
    (void)state;
    ice_worker *w = ice_worker_here(&ice);
    put(w, 1, 1, 10);
    ice_state *s = ice_cache_get(w, 1, 1);
    put(w, 1, 2, 10);
    assert_int_equal(s->version, 1);
    assert_true(tarn_str_eqc(s->pointer, "s3://w/p"));
    ice_state_unref(s);
}

static void lanes_are_there_while_used(void **state)
{
    (void)state;
    ice_worker *w = ice_worker_here(&ice);
    ice_lane *a = ice_lane_enter(w, ice_lane_key(1, TARN_STR("n"), TARN_STR("t"))),
             *b = ice_lane_enter(w, ice_lane_key(1, TARN_STR("n"), TARN_STR("t")));
    ice_lane *c = ice_lane_enter(w, ice_lane_key(1, TARN_STR("nt"), TARN_STR(""))),
             *d = ice_lane_enter(w, ice_lane_key(2, TARN_STR("n"), TARN_STR("t")));
    assert_ptr_equal(a, b);
    assert_ptr_not_equal(a, c);
    assert_ptr_not_equal(a, d);
    a->tip = make(1, 1, 10);
    ice_lane_leave(w, a);
    assert_non_null(b->tip);
    ice_lane_leave(w, b);
    ice_lane_leave(w, c);
    ice_lane_leave(w, d);
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
int main(void)
{
    const struct CMUnitTest tests[] = {
        T(finds_only_the_version_asked_for), T(oldest_go_first), T(one_that_is_too_large_stands_alone), T(a_state_outlives_the_cache),
        T(lanes_are_there_while_used),
    };
    return cmocka_run_group_tests_name("iceberg cache", tests, NULL, NULL);
}
