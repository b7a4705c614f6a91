/* SPDX-License-Identifier: Apache-2.0 */
/* The cache of states, which all workers share, and a worker's lanes. */
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
    ice_cache_init(&ice.cache, 35000);
    pthread_mutex_init(&ice.lock, NULL);
    return 0;
}

static int teardown(void **state)
{
    for (size_t i = 0; i < ice.workers_n; i++)
        ice_worker_free(ice.workers[i]);
    ice_cache_free(&ice.cache);
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

static void put(uint64_t id, uint64_t version, size_t text_bytes)
{
    ice_state *s = make(id, version, text_bytes);
    ice_cache_put(&ice.cache, s);
    ice_state_unref(s);
}

static bool has(uint64_t id, uint64_t version)
{
    ice_state *s = ice_cache_get(&ice.cache, id, version);
    bool there = s != NULL;
    ice_state_unref(s);
    return there;
}

static void finds_only_the_version_asked_for(void **state)
{
    (void)state;
    put(1, 5, 10);
    assert_true(has(1, 5));
    assert_false(has(1, 6));
    assert_false(has(2, 5));
    put(1, 6, 10);
    assert_false(has(1, 5));
    assert_true(has(1, 6));
    put(1, 5, 10); /* an older one does not push out a newer one */
    assert_true(has(1, 6));
}

static void oldest_go_first(void **state)
{
    (void)state;
    ice_state *one = make(1, 1, 400);
    ice.cache.bytes_max = 5 * one->bytes; /* five fit, a sixth does not */
    ice_state_unref(one);
    for (uint64_t id = 1; id <= 5; id++)
        put(id, 1, 400);
    assert_true(has(1, 1)); /* used: 2 is now the oldest */
    put(6, 1, 400);
    assert_false(has(2, 1));
    assert_true(has(1, 1) && has(3, 1) && has(6, 1));
}

static void one_that_is_too_large_stands_alone(void **state)
{
    (void)state;
    put(1, 1, 400);
    put(2, 1, 100000);
    assert_false(has(1, 1));
    assert_true(has(2, 1));
    put(3, 1, 10);
    assert_false(has(2, 1));
    assert_true(has(3, 1));
}

static void a_state_outlives_the_cache(void **state)
{
    (void)state;
    put(1, 1, 10);
    ice_state *s = ice_cache_get(&ice.cache, 1, 1);
    put(1, 2, 10);
    assert_int_equal(s->version, 1);
    assert_true(tarn_str_eqc(s->pointer, "s3://w/p"));
    ice_state_unref(s);
}

/* ------------------------------------------------------------------ several threads */
enum { THREADS = 4, ROUNDS = 3000, IDS = 24 };

static void *use(void *arg)
{
    uint64_t seed = (uint64_t)(uintptr_t)arg;
    for (uint64_t i = 1; i <= ROUNDS; i++) {
        seed = seed * 6364136223846793005ull + 1442695040888963407ull;
        uint64_t id = 1 + (seed >> 33) % IDS, version = i / 8;
        ice_state *s = ice_cache_get(&ice.cache, id, version);
        if (!s)
            put(id, version, 100 + (size_t)id);
        else if (s->entity_id != id || s->version != version || s->text.n != 100 + id)
            return s;
        ice_state_unref(s);
    }
    return NULL;
}

static void threads_share_it_and_it_stays_within_its_bytes(void **state)
{
    (void)state;
    pthread_t threads[THREADS];
    ice_state *one = make(1, 1, 100 + IDS);
    ice.cache.bytes_max = 8 * one->bytes; /* states go out all the time */
    ice_state_unref(one);
    for (size_t i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, use, (void *)(uintptr_t)(i + 1)), 0);
    for (size_t i = 0; i < THREADS; i++) {
        void *wrong = NULL;
        assert_int_equal(pthread_join(threads[i], &wrong), 0);
        assert_null(wrong);
    }
    assert_true(ice.cache.bytes <= ice.cache.bytes_max);
}

static void *get_1_7(void *arg)
{
    (void)arg;
    return ice_cache_get(&ice.cache, 1, 7);
}

static void what_one_worker_keeps_the_others_find(void **state)
{
    (void)state;
    pthread_t other;
    void *got = NULL;
    ice_state *s = make(1, 7, 10);
    ice_cache_put(&ice.cache, s);
    assert_int_equal(pthread_create(&other, NULL, get_1_7, NULL), 0);
    assert_int_equal(pthread_join(other, &got), 0);
    assert_ptr_equal(got, s);
    ice_state_unref(got);
    ice_state_unref(s);
}

static void lanes_are_there_while_used(void **state)
{
    (void)state;
    ice_worker *w = ice_worker_here(&ice);
    assert_ptr_equal(w, ice_worker_here(&ice));
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
        T(finds_only_the_version_asked_for),
        T(oldest_go_first),
        T(one_that_is_too_large_stands_alone),
        T(a_state_outlives_the_cache),
        T(threads_share_it_and_it_stays_within_its_bytes),
        T(what_one_worker_keeps_the_others_find),
        T(lanes_are_there_while_used),
    };
    return cmocka_run_group_tests_name("iceberg cache", tests, NULL, NULL);
}
