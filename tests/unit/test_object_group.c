/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Group sync of a segment: uploads whose writes are on their way together are synced together; one whose write takes long
 * holds up no other for long; one that fails is not waited for. And small uploads that come together are hashed together.
 */
#include "object_fixture.h"

#include <stdatomic.h>

#define UPLOADS 4 /* as many as the loop of the fixture has threads: all writes run at once */
#define STEP_MS 3
#define LONG_MS 800

static tarn_fs counting;
static atomic_uint writes_n, syncs_n;
static atomic_int long_write, bad_write; /* the how manieth write it is; -1: none */

static int64_t counted_pwrite(tarn_fs *fs, int64_t handle, const void *buf, size_t n, uint64_t off)
{
    bool record = n > 16384; /* the database writes less at a time here */
    int nth = record ? (int)atomic_fetch_add(&writes_n, 1) : 0;
    if (record && nth == atomic_load(&bad_write)) {
        return -EIO;
    }
    if (record) {
        usleep(nth == atomic_load(&long_write) ? LONG_MS * 1000 : (unsigned)(nth + 1) * STEP_MS * 1000);
    }
    return tarn_fs_posix()->pwrite(fs, handle, buf, n, off);
}

static _Atomic(int64_t) segment_handle;

static int counted_open(tarn_fs *fs, const char *path, int flags, int mode, int64_t *handle)
{
    int rc = tarn_fs_posix()->open(fs, path, flags, mode, handle);
    if (rc == 0 && strstr(path, "/segments/")) {
        atomic_store(&segment_handle, *handle);
    }
    return rc;
}

static int counted_sync(tarn_fs *fs, int64_t handle, bool data_only)
{
    if (handle == atomic_load(&segment_handle)) {
        atomic_fetch_add(&syncs_n, 1);
    }
    return tarn_fs_posix()->sync(fs, handle, data_only);
}

typedef struct upload {
    fx *f;
    const char *key;
    uint64_t seed, size;
    unsigned *done;
    tarn_err err;
    uint64_t took_ms;
} upload;

static void upload_main(void *arg)
{
    upload *u = arg;
    tarn_put_result r;
    uint64_t began = tarn_mono_ns();
    tarn_put_spec spec = fx_spec(u->f, u->key, u->size);
    u->err = fx_put_spec(u->f, &spec, u->seed, u->size, &r);
    u->took_ms = (tarn_mono_ns() - began) / 1000000;
    ++*u->done;
}

static void upload_all(fx *f, upload *u)
{
    static const char *const keys[UPLOADS] = {"a", "b", "c", "d"};
    unsigned done = 0;
    atomic_store(&writes_n, 0);
    atomic_store(&syncs_n, 0);
    for (unsigned i = 0; i < UPLOADS; i++) {
        u[i] = (upload){.f = f, .key = keys[i], .seed = i + 1, .size = 40000 + 8000 * i, .done = &done}; /* 40,000 to 64,000 */
        assert_int_equal(tarn_fiber_spawn(tarn_loop_current(), upload_main, &u[i], "upload"), TARN_OK);
    }
    while (done < UPLOADS) {
        tarn_sleep_ms(1);
    }
}

static void check_all(fx *f, const upload *u)
{
    for (unsigned i = 0; i < UPLOADS; i++) {
        if (u[i].err == TARN_OK) {
            fx_check(f, u[i].key, u[i].seed, u[i].size);
        }
    }
}

static unsigned failed_of(const upload *u)
{
    unsigned n = 0;
    for (unsigned i = 0; i < UPLOADS; i++) {
        n += u[i].err != TARN_OK ? 1 : 0;
    }
    return n;
}

static void together_body(fx *f)
{
    upload u[UPLOADS];
    (void)fx_put(f, "first", 9, 40000, true); /* the segment is there */
    upload_all(f, u);
    assert_int_equal(failed_of(u), 0);
    assert_in_range(atomic_load(&syncs_n), 1, UPLOADS - 1); /* one, where the machine isn't held up for long */
    check_all(f, u);
}

static void long_body(fx *f)
{
    upload u[UPLOADS];
    unsigned slow = 0;
    (void)fx_put(f, "first", 9, 40000, true);
    atomic_store(&long_write, 1);
    upload_all(f, u);
    assert_int_equal(failed_of(u), 0);
    for (unsigned i = 0; i < UPLOADS; i++) {
        slow += u[i].took_ms >= LONG_MS / 2 ? 1 : 0;
    }
    assert_int_equal(slow, 1);
    check_all(f, u);
}

static void failed_body(fx *f)
{
    upload u[UPLOADS];
    (void)fx_put(f, "first", 9, 40000, true);
    atomic_store(&bad_write, UPLOADS - 1);
    upload_all(f, u);
    assert_true(failed_of(u) >= 1); /* the only drive is out: those that were not done by then fail as well */
    for (unsigned i = 0; i < UPLOADS; i++) {
        assert_true(u[i].took_ms < LONG_MS / 2);
    }
    check_all(f, u);
}

#define SMALL_UPLOADS 21 /* more than two rounds */

typedef struct small_upload {
    fx *f;
    unsigned nth, *done;
    uint8_t md5[TARN_MD5_BYTES], sha256[TARN_SHA256_BYTES];
    tarn_err err;
    tarn_put_result result;
} small_upload;

/* None, less than a block, blocks and some more, up to what is kept in the row. */
static uint64_t small_bytes(unsigned nth)
{
    return nth * 401 % 8192;
}

static void small_upload_main(void *arg)
{
    small_upload *u = arg;
    char key[] = {'s', (char)('a' + u->nth), '\0'};
    tarn_put_spec spec = fx_spec(u->f, key, small_bytes(u->nth));
    spec.expect_md5 = u->md5;
    spec.expect_sha256 = u->nth % 3 == 0 ? NULL : u->sha256;
    u->err = fx_put_spec(u->f, &spec, u->nth, small_bytes(u->nth), &u->result);
    ++*u->done;
}

/* Each has its own digests, whatever company it had; the one that doesn't match is refused, and it alone. */
static void small_body(fx *f)
{
    static small_upload u[SMALL_UPLOADS];
    static uint8_t bytes[8192];
    unsigned done = 0;
    for (unsigned i = 0; i < SMALL_UPLOADS; i++) {
        u[i] = (small_upload){.f = f, .nth = i, .done = &done};
        for (size_t at = 0; at < small_bytes(i); at++) {
            bytes[at] = fx_byte(i, at);
        }
        tarn_md5(bytes, small_bytes(i), u[i].md5);
        tarn_sha256(bytes, small_bytes(i), u[i].sha256);
        u[i].md5[0] ^= i == 7 ? 1 : 0;
        u[i].sha256[31] ^= i == 13 ? 1 : 0;
        assert_int_equal(tarn_fiber_spawn(tarn_loop_current(), small_upload_main, &u[i], "upload"), TARN_OK);
    }
    while (done < SMALL_UPLOADS) {
        tarn_sleep_ms(1);
    }
    for (unsigned i = 0; i < SMALL_UPLOADS; i++) {
        char key[] = {'s', (char)('a' + i), '\0'};
        assert_int_equal(u[i].err, i == 7 ? TARN_E_BAD_DIGEST : i == 13 ? TARN_E_CONTENT_SHA256_MISMATCH : TARN_OK);
        if (u[i].err == TARN_OK) {
            fx_check(f, key, i, small_bytes(i));
        }
    }
}

static void run(void (*body)(fx *f))
{
    fx f;
    fx_init(&f, 1);
    counting = *tarn_fs_posix();
    counting.open = counted_open;
    counting.pwrite = counted_pwrite;
    counting.sync = counted_sync;
    atomic_store(&long_write, -1);
    atomic_store(&bad_write, -1);
    f.fs = &counting;
    fx_open(&f);
    fx_bucket(&f, "bucket", TARN_VERSIONING_OFF);
    assert_true(fx_on_loop(TARN_IO_THREADS, body, &f));
    fx_end(&f);
}

static void test_together(void **state)
{
    (void)state;
    run(together_body);
}

static void test_long_write(void **state)
{
    (void)state;
    run(long_body);
}

static void test_failed_write(void **state)
{
    (void)state;
    run(failed_body);
}

static void test_small_uploads(void **state)
{
    (void)state;
    run(small_body);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_together), cmocka_unit_test(test_long_write),
                                       cmocka_unit_test(test_failed_write), cmocka_unit_test(test_small_uploads)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
