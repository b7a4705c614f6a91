/* SPDX-License-Identifier: Apache-2.0 */
/* Metadata as text, written with the help of the base's: random changes give the same bytes as writing all anew. */
#include "iceberg_json.h"

#define ROUNDS 400

static uint64_t pick(uint64_t n)
{
    return tarn_random_u64() % n;
}

static json_t *random_value(void)
{
    switch (pick(5)) {
    case 0:
        return json_integer((json_int_t)pick(1000000));
    case 1:
        return json_null();
    case 2:
        return json_string("text \"with\" escapes");
    case 3:
        return json_real((double)pick(1000) / 7);
    default:
        return json_pack("{s:i,s:[i,i]}", "k", (int)pick(100), "l", (int)pick(9), (int)pick(99));
    }
}

static json_t *random_list(size_t n)
{
    json_t *l = json_array();
    for (size_t i = 0; i < n; i++)
        json_array_append_new(l, random_value());
    return l;
}

/* A copy of the list that shares its elements, with some gone, some new. */
static json_t *changed_list(const json_t *old)
{
    json_t *l = json_array();
    size_t drop = pick(4) == 0 ? pick(json_array_size(old) + 1) : 0;
    for (size_t i = drop; i < json_array_size(old); i++) {
        if (pick(12) == 0)
            continue;
        if (pick(12) == 0)
            json_array_append_new(l, random_value());
        json_array_append(l, json_array_get(old, i));
    }
    for (size_t i = pick(3); i > 0; i--)
        json_array_append_new(l, random_value());
    return l;
}

static json_t *changed(const json_t *old)
{
    json_t *o = json_object();
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)old, key, value)
    {
        if (pick(10) == 0)
            continue;
        if (json_is_array(value) && pick(3) == 0)
            json_object_set_new(o, key, changed_list(value));
        else if (pick(6) == 0)
            json_object_set_new(o, key, random_value());
        else
            json_object_set(o, key, value);
    }
    if (pick(3) == 0)
        json_object_set_new(o, tarn_arena_fmt(t_arena, "new%llu", (unsigned long long)pick(1000)).p, random_list(pick(5)));
    return o;
}

static void random_changes(void **state)
{
    (void)state;
    tarn_random_seed(7);
    json_t *md = json_object();
    for (int i = 0; i < 12; i++)
        json_object_set_new(md, tarn_arena_fmt(t_arena, "f%d", i).p, i % 2 ? random_list(pick(40)) : random_value());
    for (int i = 0; i < ROUNDS; i++) {
        json_t *next = changed(md);
        t_same_text(md, next);
        if (i % 40 == 39 || json_object_size(next) < 4) {
            for (int k = 0; k < 8; k++)
                json_object_set_new(next, tarn_arena_fmt(t_arena, "g%d", k).p, random_list(pick(40)));
        }
        json_decref(md);
        md = next;
    }
    json_decref(md);
    tarn_random_seed(0);
}

static void more_fields_than_are_remembered(void **state)
{
    (void)state;
    json_t *a = json_object();
    for (int i = 0; i < ICE_SPANS_MAX + 1; i++)
        json_object_set_new(a, tarn_arena_fmt(t_arena, "f%d", i).p, random_list(3));
    json_t *b = json_copy(a);
    json_object_set_new(b, "f2", json_integer(1));
    json_object_set_new(b, tarn_arena_fmt(t_arena, "f%d", ICE_SPANS_MAX).p, json_integer(2));
    t_same_text(a, b);
    json_decref(a);
    json_decref(b);
}

static void length_has_a_maximum(void **state)
{
    (void)state;
    json_t *o = t_json("{'a':[1,2,3]}");
    ice_text t = {0}, u = {0};
    assert_int_equal(ice_text_write(o, NULL, NULL, 13, &t), TARN_OK);
    assert_string_equal(t.p, "{\"a\":[1,2,3]}");
    assert_int_equal(ice_text_write(o, NULL, NULL, 12, &u), TARN_E_LIMIT);
    assert_null(u.p);
    json_t *longer = json_copy(o);
    json_object_set_new(longer, "b", json_integer(7));
    assert_int_equal(ice_text_write(longer, o, &t, 18, &u), TARN_E_LIMIT);
    assert_int_equal(ice_text_write(longer, o, &t, 19, &u), TARN_OK);
    ice_text_free(&t);
    ice_text_free(&u);
    json_decref(o);
    json_decref(longer);
}

#define T(f) cmocka_unit_test_setup_teardown(f, t_setup, t_teardown)
int main(void)
{
    const struct CMUnitTest tests[] = {T(random_changes), T(more_fields_than_are_remembered), T(length_has_a_maximum)};
    return cmocka_run_group_tests_name("iceberg text", tests, NULL, NULL);
}
