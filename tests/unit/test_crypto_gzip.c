/* SPDX-License-Identifier: Apache-2.0 */
/* gzip there and back, its limit, and streams that are broken. */
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "tarn/crypto.h"

static tarn_arena *arena;

static int setup(void **state)
{
    (void)state;
    arena = tarn_arena_new(256u * 1024 * 1024);
    return arena ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    tarn_arena_free(arena);
    return 0;
}

static void gzip_there_and_back(void **state)
{
    (void)state;
    static const size_t sizes[] = {0, 1, 1000, 300000, 3000000};
    for (size_t i = 0; i < TARN_ARRAY_LEN(sizes); i++) {
        char *p = tarn_arena_alloc(arena, sizes[i] + 1);
        for (size_t k = 0; k < sizes[i]; k++)
            p[k] = (char)("{\"key\":\"value\"}"[k % 15] + (k % 1000 == 0));
        tarn_sb b;
        tarn_str out;
        tarn_sb_init(&b, 16u * 1024 * 1024);
        assert_int_equal(tarn_gzip((tarn_str){p, sizes[i]}, &b), TARN_OK);
        assert_true(tarn_is_gzip(tarn_sb_view(&b)));
        assert_int_equal(tarn_gunzip(tarn_sb_view(&b), sizes[i], arena, &out), TARN_OK);
        assert_int_equal(out.n, sizes[i]);
        assert_int_equal(memcmp(out.p, p, sizes[i]), 0);
        if (sizes[i] > 0) {
            assert_int_equal(tarn_gunzip(tarn_sb_view(&b), sizes[i] - 1, arena, &out), TARN_E_LIMIT);       /* bounded, whatever it says */
            assert_int_equal(tarn_gunzip((tarn_str){b.p, b.n - 9}, sizes[i], arena, &out), TARN_E_INVALID); /* cut off */
        }
        tarn_sb_free(&b);
    }
    tarn_str out;
    assert_false(tarn_is_gzip(TARN_STR("{}")));
    assert_int_equal(tarn_gunzip(TARN_STR("\x1f\x8b nonsense that is no stream"), 1000, arena, &out), TARN_E_INVALID);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test_setup_teardown(gzip_there_and_back, setup, teardown)};
    return cmocka_run_group_tests_name("crypto gzip", tests, NULL, NULL);
}
