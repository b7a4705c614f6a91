/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compaction on a file system without holes: what lives moves out of segments full of dead space, which then go; contents,
 * checksums and rows stay right, also where a drive is out meanwhile.
 */
#include "object_fixture.h"

#include "record.h"
#include "upkeep.h"

static tarn_fs solid;

static int no_holes(tarn_fs *fs, int64_t handle, uint64_t off, uint64_t n)
{
    (void)fs;
    (void)handle;
    (void)off;
    (void)n;
    return -EOPNOTSUPP;
}

static bool count_name(void *ctx, const char *name, bool is_dir)
{
    (void)name;
    (void)is_dir;
    ++*(size_t *)ctx;
    return true;
}

static size_t segments(fx *f, size_t drive)
{
    char *path = fx_fmt("%s/tarn/segments", f->drives[drive]);
    size_t n = 0;
    assert_int_equal(f->fs->list(f->fs, path, count_name, &n), 0);
    tarn_free(path);
    return n;
}

#define OBJECTS 60
#define KEEP_EACH 20 /* one of so many stays */

static void key_of(unsigned i, char out[32])
{
    tarn_sb b;
    tarn_sb_init_fixed(&b, out, 32);
    tarn_sb_fmt(&b, "k%u", i);
}

static void put_all(fx *f)
{
    for (unsigned i = 0; i < OBJECTS; i++) {
        char key[32];
        key_of(i, key);
        (void)fx_put(f, key, i, 900000, true);
    }
}

static void delete_most(fx *f)
{
    for (unsigned i = 0; i < OBJECTS; i++) {
        char key[32];
        key_of(i, key);
        tarn_delete_spec d = {.key = tarn_str_of(key)};
        tarn_delete_result r;
        if (i % KEEP_EACH != 0) {
            assert_int_equal(tarn_object_delete(f->s, &f->bucket, &d, 1, &r), TARN_OK);
        }
    }
    assert_int_equal(obj_garbage_pass(f->s, 0, NULL), TARN_OK);
}

static void check_kept(fx *f, uint16_t *missing)
{
    *missing = 0;
    for (unsigned i = 0; i < OBJECTS; i += KEEP_EACH) {
        char key[32];
        obj_blob b;
        obj_check c = {0};
        key_of(i, key);
        fx_check(f, key, i, 900000);
        tarn_version_row row = fx_stat(f, key);
        assert_int_equal(obj_blob_unpack(row.layout, &b), TARN_OK);
        *missing |= b.missing;
        assert_int_equal(obj_check_version(f->s, &row, &c), TARN_OK);
        assert_int_equal(c.corrupt, 0); /* header, blocks, trailer at the new place */
        assert_int_equal(c.lost, 0);
    }
}

/* The open segment of the thread that put them must be closed before it may be compacted. */
static void reopen(fx *f)
{
    fx_close(f);
    fx_open(f);
    fx_reload_bucket(f, "bucket");
}

static void compact_body(fx *f)
{
    uint16_t missing;
    size_t before = segments(f, 0);
    assert_int_equal(obj_compact_pass(f->s, NULL), TARN_OK);
    check_kept(f, &missing);
    assert_int_equal(missing, 0);
    assert_int_equal(obj_sweep_pass(f->s, 0, NULL), TARN_OK);
    check_kept(f, &missing);
    assert_true(segments(f, 0) < before); /* the old ones are gone */
    size_t after = segments(f, 0);
    assert_int_equal(obj_compact_pass(f->s, NULL), TARN_OK); /* nothing left to do */
    assert_int_equal(segments(f, 0), after);
}

static void start(fx *f)
{
    fx_init(f, 4);
    solid = *tarn_fs_posix();
    solid.punch = no_holes;
    f->fs = &solid;
    fx_open(f);
    fx_bucket(f, "bucket", TARN_VERSIONING_OFF);
    put_all(f);
    delete_most(f);
    reopen(f);
}

static void test_moves_what_lives(void **state)
{
    fx f;
    uint16_t missing;
    (void)state;
    start(&f);
    assert_true(fx_on_loop(TARN_IO_THREADS, compact_body, &f));
    reopen(&f);
    check_kept(&f, &missing);
    fx_end(&f);
}

static void out_body(fx *f)
{
    uint16_t missing;
    obj_drive_set(f->s, &f->s->drives[1], TARN_DRIVE_FAILED, "test");
    assert_int_equal(obj_compact_pass(f->s, NULL), TARN_OK);
    check_kept(f, &missing);
    assert_int_not_equal(missing, 0);
    obj_drive_set(f->s, &f->s->drives[1], TARN_DRIVE_OK, "");
    assert_int_equal(obj_repair_pass(f->s, NULL), TARN_OK);
    check_kept(f, &missing);
    assert_int_equal(missing, 0);
}

static void test_with_a_drive_out(void **state)
{
    fx f;
    (void)state;
    start(&f);
    assert_true(fx_on_loop(TARN_IO_THREADS, out_body, &f));
    fx_end(&f);
}

/* Full segments stay as they are. */
static void full_body(fx *f)
{
    tarn_version_row before = fx_stat(f, "k1");
    assert_int_equal(obj_compact_pass(f->s, NULL), TARN_OK);
    tarn_version_row after = fx_stat(f, "k1");
    assert_true(tarn_str_eq(before.layout, after.layout));
}

static void test_full_segments_stay(void **state)
{
    fx f;
    (void)state;
    fx_init(&f, 4);
    fx_open(&f);
    fx_bucket(&f, "bucket", TARN_VERSIONING_OFF);
    put_all(&f);
    reopen(&f);
    assert_true(fx_on_loop(TARN_IO_THREADS, full_body, &f));
    fx_end(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_moves_what_lives), cmocka_unit_test(test_with_a_drive_out),
                                       cmocka_unit_test(test_full_segments_stay)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
