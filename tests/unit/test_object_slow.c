/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A drive that hangs for seconds: writes go on without it after a second at the most, then at once; reads go round it; what it
 * missed is made up for when it is quick again. One that vanishes and comes back, blank, while the store is open. And one that
 * is full for a while: its copy of the database goes out, and comes back when there is room.
 */
#include "object_fixture.h"

#include <pthread.h>
#include <stdatomic.h>

#include "upkeep.h"

#define DELAY_MS 4000
#define HANDLES_MAX 65536

static atomic_bool slow_now;
static char slow_parts[512], slow_segments[512];
static atomic_bool is_slow[HANDLES_MAX];
static tarn_fs lazy;

static void delay(bool yes)
{
    if (yes && atomic_load(&slow_now)) {
        usleep(DELAY_MS * 1000);
    }
}

static bool slow_path(const char *path)
{
    return strncmp(path, slow_parts, strlen(slow_parts)) == 0 || strncmp(path, slow_segments, strlen(slow_segments)) == 0;
}

static int lazy_open(tarn_fs *fs, const char *path, int flags, int mode, int64_t *handle)
{
    int rc = tarn_fs_posix()->open(fs, path, flags, mode, handle);
    if (rc == 0) {
        assert_true(*handle < HANDLES_MAX);
        atomic_store(&is_slow[*handle], slow_path(path));
    }
    return rc;
}

static int64_t lazy_pwrite(tarn_fs *fs, int64_t handle, const void *buf, size_t n, uint64_t off)
{
    delay(atomic_load(&is_slow[handle]));
    return tarn_fs_posix()->pwrite(fs, handle, buf, n, off);
}

static int64_t lazy_pread(tarn_fs *fs, int64_t handle, void *buf, size_t n, uint64_t off)
{
    delay(atomic_load(&is_slow[handle]));
    return tarn_fs_posix()->pread(fs, handle, buf, n, off);
}

static int lazy_sync(tarn_fs *fs, int64_t handle, bool data_only)
{
    delay(atomic_load(&is_slow[handle]));
    return tarn_fs_posix()->sync(fs, handle, data_only);
}

static double seconds_since(uint64_t ns)
{
    return (double)(tarn_mono_ns() - ns) / 1e9;
}

static uint16_t missing_of(fx *f, const char *key)
{
    tarn_version_row row = fx_stat(f, key);
    obj_blob b;
    assert_int_equal(obj_blob_unpack(row.layout, &b), TARN_OK);
    return b.missing;
}

static void slow_body(fx *f)
{
    uint64_t t = tarn_mono_ns();
    fx_bucket(f, "bucket", TARN_VERSIONING_OFF);
    (void)fx_put(f, "large", 1, 3 << 20, true);
    (void)fx_put(f, "small", 2, 100000, true);
    assert_true(seconds_since(t) < 3.0);

    atomic_store(&slow_now, true);
    t = tarn_mono_ns();
    (void)fx_put(f, "late-small", 3, 100000, true); /* into the segment that is open: one limit is waited for */
    assert_true(seconds_since(t) > 0.9 && seconds_since(t) < 3.0);
    assert_true(obj_drive_slow(&f->s->drives[1]));
    assert_int_equal(atomic_load(&f->s->drives[1].state), TARN_DRIVE_OK);
    t = tarn_mono_ns();
    (void)fx_put(f, "next-small", 4, 100000, true); /* known to be slow: nobody waits */
    (void)fx_put(f, "next-large", 5, 3 << 20, true);
    assert_true(seconds_since(t) < 0.9);
    t = tarn_mono_ns();
    fx_check(f, "large", 1, 3 << 20);
    fx_check(f, "late-small", 3, 100000);
    fx_check(f, "next-large", 5, 3 << 20);
    assert_true(seconds_since(t) < 0.9);
    assert_int_equal(__builtin_popcount(missing_of(f, "late-small")), 1);
    assert_int_equal(__builtin_popcount(missing_of(f, "next-large")), 1);

    atomic_store(&slow_now, false);
    tarn_sleep_ms(DELAY_MS + 500); /* what was late comes to its end */
    assert_int_equal(obj_repair_pass(f->s, NULL), TARN_OK);
    assert_int_equal(missing_of(f, "late-small"), 0);
    assert_int_equal(missing_of(f, "next-small"), 0);
    assert_int_equal(missing_of(f, "next-large"), 0);
    obj_check c = {0};
    tarn_version_row row = fx_stat(f, "next-large");
    assert_int_equal(obj_check_version(f->s, &row, &c), TARN_OK);
    assert_true(obj_check_clean(&c) && c.unreachable == 0);
}

static void test_slow_drive(void **state)
{
    fx f;
    tarn_sb b;
    (void)state;
    fx_init(&f, 4);
    lazy = *tarn_fs_posix();
    lazy.open = lazy_open;
    lazy.pwrite = lazy_pwrite;
    lazy.pread = lazy_pread;
    lazy.sync = lazy_sync;
    f.fs = &lazy;
    f.segment_max = 1 << 20;
    tarn_sb_init_fixed(&b, slow_parts, sizeof slow_parts);
    tarn_sb_fmt(&b, "%s/tarn/parts", f.drives[1]);
    tarn_sb_init_fixed(&b, slow_segments, sizeof slow_segments);
    tarn_sb_fmt(&b, "%s/tarn/segments", f.drives[1]);
    fx_open(&f);
    assert_true(fx_on_loop(TARN_IO_THREADS, slow_body, &f));
    fx_end(&f);
}

/* ------------------------------------------------------------------ going and coming */
static void rejoin_body(fx *f)
{
    obj_drive *d = &f->s->drives[2];
    fx_bucket(f, "bucket", TARN_VERSIONING_OFF);
    (void)fx_put(f, "before", 1, 3 << 20, true);
    (void)fx_put(f, "small", 2, 100000, true);
    assert_int_equal(obj_drive_look(f->s, d), OBJ_LOOK_SAME);
    /* An upload that has begun when the drive goes does not believe what it wrote there. */
    tarn_put *p = NULL;
    tarn_put_spec spec = fx_spec(f, "across", 3 << 20);
    assert_int_equal(tarn_put_begin(f->s, &spec, f->arena, &p), TARN_OK);
    uint8_t *bytes = tarn_calloc(1, 3 << 20);
    assert_non_null(bytes);
    assert_int_equal(tarn_put_write(p, bytes, 2 << 20), TARN_OK);
    fx_rm(f->drives[2]);
    assert_int_equal(mkdir(f->drives[2], 0755), 0);
    assert_int_equal(obj_drive_look(f->s, d), OBJ_LOOK_BLANK);
    obj_drive_error(f->s, d, "test", ENOENT);
    assert_int_equal(obj_drive_rejoin(f->s, d, OBJ_LOOK_BLANK), TARN_OK);
    assert_int_equal(atomic_load(&d->state), TARN_DRIVE_NEW);
    assert_int_equal(tarn_meta_copies_good(f->s->meta), 4);
    assert_int_equal(tarn_put_write(p, bytes, 1 << 20), TARN_OK);
    tarn_put_result r;
    assert_int_equal(tarn_put_finish(p, &r), TARN_OK);
    tarn_free(bytes);
    assert_int_equal(__builtin_popcount(missing_of(f, "across")), 1);
    (void)fx_put(f, "after", 4, 100000, true);
    assert_int_equal(missing_of(f, "after"), 0);
    assert_int_equal(obj_fill_pass(f->s, NULL), TARN_OK);
    assert_int_equal(obj_repair_pass(f->s, NULL), TARN_OK);
    assert_int_equal(atomic_load(&d->state), TARN_DRIVE_OK);
    const char *keys[] = {"before", "small", "across", "after"};
    for (size_t i = 0; i < TARN_ARRAY_LEN(keys); i++) {
        obj_check c = {0};
        tarn_version_row row = fx_stat(f, keys[i]);
        assert_int_equal(obj_check_version(f->s, &row, &c), TARN_OK);
        assert_true(obj_check_clean(&c) && c.unreachable == 0);
    }
}

static void test_replaced_while_open(void **state)
{
    fx f;
    (void)state;
    fx_init(&f, 4);
    f.segment_max = 1 << 20;
    fx_open(&f);
    assert_true(fx_on_loop(TARN_IO_THREADS, rejoin_body, &f));
    fx_close(&f);
    fx_open(&f);
    assert_int_equal(tarn_meta_copies_good(f.s->meta), 4);
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(atomic_load(&f.s->drives[i].state), TARN_DRIVE_OK);
    }
    fx_reload_bucket(&f, "bucket");
    fx_check(&f, "before", 1, 3 << 20);
    fx_check(&f, "after", 4, 100000);
    fx_end(&f);
}

/* ------------------------------------------------------------------ full for a while */
#define FULL_WAIT_MS 15000 /* the watch tries again after ten seconds at the most */

static bool joined_copy_breaks;
static atomic_bool full_now, no_room, broken_now;
static char full_meta[512];
static atomic_bool is_full[HANDLES_MAX];
static tarn_fs filling;

static int filling_open(tarn_fs *fs, const char *path, int flags, int mode, int64_t *handle)
{
    int rc = tarn_fs_posix()->open(fs, path, flags, mode, handle);
    if (rc == 0) {
        assert_true(*handle < HANDLES_MAX);
        atomic_store(&is_full[*handle], strncmp(path, full_meta, strlen(full_meta)) == 0);
    }
    return rc;
}

static int64_t filling_pwrite(tarn_fs *fs, int64_t handle, const void *buf, size_t n, uint64_t off)
{
    if (atomic_load(&full_now) && atomic_load(&is_full[handle])) {
        return -ENOSPC;
    }
    if (atomic_load(&broken_now) && atomic_load(&is_full[handle])) {
        return -EIO;
    }
    return tarn_fs_posix()->pwrite(fs, handle, buf, n, off);
}

static int filling_space(tarn_fs *fs, const char *path, tarn_fs_space *out)
{
    int rc = tarn_fs_posix()->space(fs, path, out);
    if (rc == 0 && atomic_load(&no_room)) {
        out->free_bytes = OBJ_COPY_ROOM_BYTES_MIN - 1;
    } else if (rc == 0) {
        out->free_bytes = OBJ_COPY_ROOM_BYTES_MIN;
    }
    return rc;
}

static void full_body(fx *f)
{
    obj_drive *d = &f->s->drives[1];
    fx_bucket(f, "bucket", TARN_VERSIONING_OFF);
    atomic_store(&full_now, true);
    atomic_store(&no_room, true);
    (void)fx_put(f, "while-full", 1, 1000, true);
    assert_int_equal(tarn_meta_copies_good(f->s->meta), 3);
    assert_int_equal(atomic_load(&d->state), TARN_DRIVE_OK);
    assert_true(obj_drive_lacks_copy(f->s, d));
    assert_int_equal(obj_drive_copy_again(f->s, d), TARN_E_DISK_FULL);
    atomic_store(&no_room, false); /* it says that there is room, and there is none */
    assert_int_equal(obj_drive_copy_again(f->s, d), TARN_E_DISK_FULL);
    assert_int_equal(tarn_meta_copies_good(f->s->meta), 3);
    (void)fx_put(f, "after-a-try", 2, 1000, true);

    atomic_store(&full_now, false);
    assert_int_equal(tarn_store_start_background(f->s, tarn_loop_current()), TARN_OK);
    for (unsigned ms = 0; tarn_meta_copies_good(f->s->meta) < 4 && ms < FULL_WAIT_MS; ms += 100) {
        tarn_sleep_ms(100);
    }
    assert_int_equal(tarn_meta_copies_good(f->s->meta), 4);
    assert_false(obj_drive_lacks_copy(f->s, d));
    assert_int_equal(obj_drive_copy_again(f->s, d), TARN_OK);
    (void)fx_put(f, "with-room", 3, 1000, true);
    tarn_store_stop_background(f->s);
    atomic_store(&broken_now, joined_copy_breaks);
    if (joined_copy_breaks) {
        (void)fx_put(f, "without-it", 4, 1000, true);
        assert_int_equal(tarn_meta_copies_good(f->s->meta), 3);
        assert_int_equal(atomic_load(&d->state), TARN_DRIVE_FAILED);
        assert_false(obj_drive_lacks_copy(f->s, d));
    }
}

static void full_for_a_while(fx *f)
{
    tarn_sb b;
    fx_init(f, 4);
    filling = *tarn_fs_posix();
    filling.open = filling_open;
    filling.pwrite = filling_pwrite;
    filling.space = filling_space;
    f->fs = &filling;
    tarn_sb_init_fixed(&b, full_meta, sizeof full_meta);
    tarn_sb_fmt(&b, "%s/tarn/meta/", f->drives[1]);
    fx_open(f);
    assert_true(fx_on_loop(TARN_IO_THREADS, full_body, f));
    fx_close(f);
}

static void test_full_for_a_while(void **state)
{
    fx f;
    (void)state;
    joined_copy_breaks = false;
    full_for_a_while(&f);
    for (size_t i = 0; i < 4; i++) { /* its copy is the first one that is left, and has it all */
        if (i % 2 == 0) {
            char *meta = fx_fmt("%s/tarn/meta", f.drives[i]);
            fx_rm(meta);
            tarn_free(meta);
        }
    }
    fx_open(&f);
    fx_reload_bucket(&f, "bucket");
    fx_check(&f, "while-full", 1, 1000);
    fx_check(&f, "after-a-try", 2, 1000);
    fx_check(&f, "with-room", 3, 1000);
    fx_end(&f);
}

/* The copy that joined is one like the others: when it breaks, the drive goes out and nothing else. */
static void test_a_joined_copy_breaks(void **state)
{
    fx f;
    (void)state;
    joined_copy_breaks = true;
    full_for_a_while(&f);
    atomic_store(&broken_now, false);
    fx_open(&f);
    fx_reload_bucket(&f, "bucket");
    fx_check(&f, "without-it", 4, 1000);
    fx_end(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_slow_drive), cmocka_unit_test(test_replaced_while_open),
                                       cmocka_unit_test(test_full_for_a_while), cmocka_unit_test(test_a_joined_copy_breaks)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
