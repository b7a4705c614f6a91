/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Running out of memory at every single allocation of a put, a get, a multipart upload, a delete and a repair: the call
 * fails or succeeds, says so truly, and leaves a store that works. (Leaks are seen by the sanitized build.)
 */
#include "object_fixture.h"

#define NTH_MAX 4000

static fx f;

static bool fair(tarn_err err)
{
    return err == TARN_E_NO_MEMORY || err == TARN_E_QUORUM_WRITE || err == TARN_E_IO || err == TARN_E_LIMIT || err == TARN_E_SLOW_DOWN;
}

/* Runs the step with the nth allocation failing, for every n until it no longer fails. */
static void each_allocation(const char *name, tarn_err (*step)(void), void (*check)(tarn_err err))
{
    uint64_t nth = 1;
    for (; nth < NTH_MAX; nth++) {
        uint64_t before = tarn_alloc_count();
        tarn_alloc_fail_after(nth);
        tarn_err err = step();
        tarn_alloc_fail_after(0);
        if (err && !fair(err)) {
            fail_msg("%s, allocation %llu: %s", name, (unsigned long long)nth, tarn_err_get(err)->name);
        }
        check(err);
        if (tarn_alloc_count() - before < nth) { /* it was never reached */
            assert_int_equal(err, TARN_OK);
            break;
        }
    }
    assert_true(nth < NTH_MAX);
}

static uint64_t size_now;
static char *bytes_now;

static tarn_err step_put(void)
{
    tarn_put *p = NULL;
    tarn_put_result r;
    tarn_arena *a = tarn_arena_new(1 << 20);
    if (!a) {
        return TARN_E_NO_MEMORY;
    }
    tarn_put_spec spec = {.bucket = &f.bucket, .key = TARN_STR("key"), .size_hint = size_now};
    tarn_err err = tarn_put_begin(f.s, &spec, a, &p);
    if (!err) {
        err = tarn_put_write(p, bytes_now, size_now);
        if (err) {
            tarn_put_abort(p);
        } else {
            err = tarn_put_finish(p, &r);
        }
    }
    tarn_arena_free(a);
    return err;
}

static void check_put(tarn_err err)
{
    tarn_version_row row;
    tarn_str got;
    tarn_arena *a = tarn_arena_new(32 << 20);
    tarn_err found = tarn_object_stat(f.s, &f.bucket, TARN_STR("key"), (tarn_version_ref){.sel = TARN_VERSION_CURRENT}, a, &row);
    if (!err) {
        assert_int_equal(found, TARN_OK);
    }
    if (!found) {
        assert_int_equal(row.size, size_now);
        assert_int_equal(tarn_object_read(f.s, &row, 16 << 20, a, &got), TARN_OK);
        assert_memory_equal(got.p, bytes_now, size_now);
    } else {
        assert_int_equal(found, TARN_E_NO_SUCH_KEY);
    }
    tarn_arena_free(a);
}

static tarn_err step_get(void)
{
    tarn_version_row row;
    tarn_get *g = NULL;
    const uint8_t *p = NULL;
    size_t n = 0;
    tarn_arena *a = tarn_arena_new(1 << 20);
    if (!a) {
        return TARN_E_NO_MEMORY;
    }
    tarn_err err = tarn_object_stat(f.s, &f.bucket, TARN_STR("key"), (tarn_version_ref){.sel = TARN_VERSION_CURRENT}, a, &row);
    if (!err) {
        err = tarn_get_open(f.s, &row, 0, row.size, a, &g);
    }
    uint64_t at = 0;
    do {
        err = err ? err : tarn_get_next(g, &p, &n);
        if (!err) {
            assert_memory_equal(p, bytes_now + at, n);
            at += n;
        }
    } while (!err && n > 0);
    if (!err) {
        assert_int_equal(at, size_now);
    }
    tarn_get_close(g);
    tarn_arena_free(a);
    return err;
}

static void check_nothing(tarn_err err)
{
    (void)err;
}

static tarn_err step_multipart(void)
{
    uint64_t id = 0, nonce = 0;
    uint32_t bad = 0;
    tarn_put *p = NULL;
    tarn_put_result r = {0};
    tarn_arena *a = tarn_arena_new(1 << 20);
    tarn_attrs attrs = {.content_type = TARN_STR("a/b")};
    if (!a) {
        return TARN_E_NO_MEMORY;
    }
    tarn_err err = tarn_upload_create(f.s, &f.bucket, TARN_STR("key"), TARN_STR("me"), &attrs, &id, &nonce);
    tarn_put_spec spec = {
        .bucket = &f.bucket, .key = TARN_STR("key"), .size_hint = size_now, .is_part = true, .upload_id = id, .part_number = 1};
    if (!err) {
        err = tarn_put_begin(f.s, &spec, a, &p);
    }
    if (!err) {
        err = tarn_put_write(p, bytes_now, size_now);
        if (err) {
            tarn_put_abort(p);
        } else {
            err = tarn_put_finish(p, &r);
        }
    }
    tarn_complete_part part = {.number = 1, .etag = r.row.etag};
    tarn_complete_spec complete = {
        .bucket = &f.bucket, .key = TARN_STR("key"), .upload_id = id, .nonce = nonce, .parts = &part, .parts_n = 1};
    if (!err) {
        err = tarn_upload_complete(f.s, &complete, a, &r, &bad);
    }
    if (err && id) {
        (void)tarn_upload_abort(f.s, &f.bucket, TARN_STR("key"), id, nonce);
    }
    tarn_arena_free(a);
    return err;
}

static tarn_err step_delete(void)
{
    tarn_delete_spec d = {.key = TARN_STR("key")};
    tarn_delete_result r;
    tarn_err err = tarn_object_delete(f.s, &f.bucket, &d, 1, &r);
    return err ? err : r.err;
}

static tarn_err step_upkeep(void)
{
    tarn_version_row row = {.bucket_id = f.bucket.id, .key = TARN_STR("key")};
    obj_repair_ask(f.s, row.bucket_id, row.key, 12345);
    tarn_err err = obj_repair_pass(f.s, NULL);
    return err ? err : tarn_store_collect_garbage(f.s, 0);
}

static void test_all(void **state)
{
    static const uint64_t sizes[] = {100, 100000, 5u << 20};
    (void)state;
    fx_init(&f, 3);
    fx_open(&f);
    fx_bucket(&f, "bucket", TARN_VERSIONING_OFF);
    for (size_t i = 0; i < TARN_ARRAY_LEN(sizes); i++) {
        size_now = sizes[i];
        bytes_now = tarn_malloc(size_now);
        for (uint64_t j = 0; j < size_now; j++) {
            bytes_now[j] = (char)fx_byte(i, j);
        }
        assert_int_equal(step_delete(), TARN_OK);
        each_allocation("put", step_put, check_put);
        each_allocation("get", step_get, check_nothing);
        each_allocation("multipart", step_multipart, check_put);
        each_allocation("delete", step_delete, check_nothing);
        each_allocation("upkeep", step_upkeep, check_nothing);
        assert_int_equal(step_put(), TARN_OK);
        check_put(TARN_OK);
        tarn_free(bytes_now);
    }
    /* what ran out of memory has left no drive out */
    assert_int_equal(tarn_metric_get(TARN_M_DRIVES_OFFLINE), 0);
    fx_end(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_all)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
