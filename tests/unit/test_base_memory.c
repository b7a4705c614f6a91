/* SPDX-License-Identifier: Apache-2.0 */
/* The allocation seam and the arena: alignment, maxima, and every allocation failing once. */
#include "tarn/base.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <string.h>

static void seam_counts_and_fails_once(void **state)
{
    (void)state;
    uint64_t before = tarn_alloc_count();
    tarn_alloc_fail_after(2);
    void *first = tarn_malloc(10);
    void *second = tarn_calloc(1, 10);
    void *third = tarn_malloc(10);
    assert_non_null(first);
    assert_null(second);
    assert_non_null(third);
    assert_int_equal(tarn_alloc_count() - before, 3);
    tarn_alloc_fail_after(1);
    assert_null(tarn_realloc(first, 20)); /* the old memory is still there */
    memset(first, 1, 10);
    tarn_alloc_fail_after(1);
    assert_null(tarn_aligned_alloc(64, 1));
    tarn_alloc_fail_after(1);
    assert_null(tarn_strdup(TARN_STR("x")));
    tarn_alloc_fail_after(1);
    tarn_alloc_fail_after(0); /* called off */
    void *fourth = tarn_malloc(1);
    assert_non_null(fourth);
    tarn_free(first);
    tarn_free(third);
    tarn_free(fourth);
    tarn_free(NULL);
}

static void nothing_is_not_null(void **state)
{
    (void)state;
    void *a = tarn_malloc(0);
    void *b = tarn_calloc(0, 5);
    void *c = tarn_realloc(NULL, 0);
    void *d = tarn_aligned_alloc(4096, 0);
    assert_non_null(a);
    assert_non_null(b);
    assert_non_null(c);
    assert_non_null(d);
    tarn_free(a);
    tarn_free(b);
    tarn_free(c);
    tarn_free(d);
    /* The compiler would warn of a constant. */
    volatile size_t huge = SIZE_MAX / 2;
    assert_null(tarn_calloc(huge, 3));
}

static void aligned_memory(void **state)
{
    (void)state;
    static const size_t aligns[] = {1, 16, 64, 512, 4096};
    for (size_t i = 0; i < TARN_ARRAY_LEN(aligns); i++) {
        void *p = tarn_aligned_alloc(aligns[i], 100);
        assert_non_null(p);
        assert_int_equal((uintptr_t)p % 64, 0);
        assert_int_equal((uintptr_t)p % aligns[i], 0);
        tarn_free(p);
    }
}

static void wiping(void **state)
{
    (void)state;
    char secret[] = "secret key";
    tarn_wipe(secret, sizeof secret);
    for (size_t i = 0; i < sizeof secret; i++) {
        assert_int_equal(secret[i], 0);
    }
    tarn_wipe(NULL, 0);
    char *copy = tarn_strdup(TARN_STR("a\0b"));
    assert_memory_equal(copy, "a\0b", 4);
    tarn_free(copy);
    copy = tarn_strdup(TARN_STR_NULL);
    assert_string_equal(copy, "");
    tarn_free(copy);
}

static void arena_maximum(void **state)
{
    (void)state;
    static const size_t maxima[] = {16, 1600, 8192, 8208, 100000, 1600000};
    for (size_t i = 0; i < TARN_ARRAY_LEN(maxima); i++) {
        tarn_arena *a = tarn_arena_new(maxima[i]);
        assert_non_null(a);
        size_t count = 0;
        for (char *p; (p = tarn_arena_alloc(a, 16)) != NULL; count++) {
            assert_int_equal((uintptr_t)p % 16, 0);
            memset(p, 0xAB, 16);
            assert_true(count <= maxima[i]);
        }
        assert_int_equal(count, maxima[i] / 16);
        assert_int_equal(tarn_arena_used(a), maxima[i] / 16 * 16);
        assert_null(tarn_arena_alloc(a, 1));
        tarn_arena_reset(a);
        assert_int_equal(tarn_arena_used(a), 0);
        assert_null(tarn_arena_alloc(a, maxima[i] + 1));
        assert_non_null(tarn_arena_alloc(a, maxima[i])); /* all in one piece */
        assert_null(tarn_arena_alloc(a, 0));
        tarn_arena_free(a);
    }
    tarn_arena_free(NULL);
}

static void arena_edges(void **state)
{
    (void)state;
    tarn_arena *a = tarn_arena_new(0);
    assert_non_null(a);
    assert_null(tarn_arena_alloc(a, 0));
    assert_null(tarn_arena_alloc(a, 1));
    tarn_arena_free(a);
    a = tarn_arena_new(SIZE_MAX);
    assert_non_null(a);
    assert_null(tarn_arena_alloc(a, SIZE_MAX));
    assert_null(tarn_arena_alloc(a, SIZE_MAX - 20));
    volatile size_t huge = SIZE_MAX / 4 + 1;
    assert_null(TARN_ARENA_ARRAY(a, uint64_t, huge)); /* the product overflows to 8 */
    assert_non_null(tarn_arena_alloc(a, 0));
    tarn_arena_free(a);
}

/* Allocations of many sizes keep their bytes: none overlaps another. */
static void arena_pieces_are_disjoint(void **state)
{
    (void)state;
    enum { COUNT = 2000 };
    static unsigned char *pieces[COUNT];
    static size_t sizes[COUNT];
    tarn_random_seed(42);
    tarn_arena *a = tarn_arena_new((size_t)64 << 20);
    assert_non_null(a);
    for (unsigned round = 0; round < 2; round++) {
        for (size_t i = 0; i < COUNT; i++) {
            uint64_t r = tarn_random_u64();
            sizes[i] = r % (r % 50 == 0 ? 300000 : 200);
            pieces[i] = tarn_arena_alloc(a, sizes[i]);
            assert_non_null(pieces[i]);
            memset(pieces[i], (int)(i & 0xFF), sizes[i]);
        }
        for (size_t i = 0; i < COUNT; i++) {
            for (size_t j = 0; j < sizes[i]; j++) {
                if (pieces[i][j] != (i & 0xFF)) {
                    fail_msg("piece %zu was overwritten at %zu", i, j);
                }
            }
        }
        tarn_arena_reset(a);
    }
    tarn_arena_free(a);
    tarn_random_seed(0);
}

static void arena_texts(void **state)
{
    (void)state;
    tarn_arena *a = tarn_arena_new(64);
    assert_non_null(a);
    tarn_str s = tarn_arena_str(a, TARN_STR("a\0b"));
    assert_memory_equal(s.p, "a\0b", 4);
    assert_int_equal(s.n, 3);
    assert_null(tarn_arena_cstr(a, TARN_STR("a\0b")));
    assert_string_equal(tarn_arena_cstr(a, TARN_STR("ab")), "ab");
    s = tarn_arena_fmt(a, "%d-%s", 42, "x");
    assert_true(tarn_str_eqc(s, "42-x"));
    assert_int_equal(s.p[s.n], 0);
    s = tarn_arena_fmt(a, "%015d", 1); /* 15 characters and the NUL: the last 16 bytes */
    assert_int_equal(s.n, 15);
    assert_null(tarn_arena_str(a, TARN_STR_NULL).p);
    assert_null(tarn_arena_cstr(a, TARN_STR("")));
    assert_null(tarn_arena_fmt(a, "%d", 1).p);
    tarn_arena_reset(a);
    s = tarn_arena_str(a, TARN_STR_NULL);
    assert_non_null(s.p);
    assert_int_equal(s.n, 0);
    struct pair {
        int x, y;
    } *pair = TARN_ARENA_NEW(a, struct pair);
    assert_int_equal(pair->x + pair->y, 0);
    tarn_arena_free(a);
}

static void arena_out_of_memory(void **state)
{
    (void)state;
    tarn_alloc_fail_after(1);
    assert_null(tarn_arena_new(100));
    tarn_arena *a = tarn_arena_new(1 << 20);
    assert_non_null(a);
    tarn_alloc_fail_after(1);
    assert_null(tarn_arena_alloc(a, 100000));
    assert_int_equal(tarn_arena_used(a), 0); /* what failed doesn't count */
    assert_non_null(tarn_arena_alloc(a, 100000));
    for (unsigned nth = 1; nth < 4; nth++) { /* the growth of the chain fails, then goes on */
        tarn_arena_reset(a);
        tarn_alloc_fail_after(nth);
        unsigned failures = 0;
        for (unsigned i = 0; i < 500; i++) {
            failures += tarn_arena_alloc(a, 1000) ? 0 : 1;
        }
        assert_int_equal(failures, 1);
    }
    tarn_alloc_fail_after(0);
    tarn_arena_free(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(seam_counts_and_fails_once),
        cmocka_unit_test(nothing_is_not_null),
        cmocka_unit_test(aligned_memory),
        cmocka_unit_test(wiping),
        cmocka_unit_test(arena_maximum),
        cmocka_unit_test(arena_edges),
        cmocka_unit_test(arena_pieces_are_disjoint),
        cmocka_unit_test(arena_texts),
        cmocka_unit_test(arena_out_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
