/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is put is what is got: at every limit between the classes of data, in one piece and in ranges, for every code, on a
 * plain thread and on both back ends of the loop, and after the store has been opened again.
 */
#include "object_fixture.h"

#define BLOCK ((uint64_t)TARN_BLOCK_BYTES)

static const uint64_t sizes[] = {0,
                                 1,
                                 63,
                                 64,
                                 65,
                                 OBJ_INLINE_DEFAULT - 1,
                                 OBJ_INLINE_DEFAULT,
                                 OBJ_INLINE_DEFAULT + 1,
                                 100000,
                                 OBJ_SMALL_BLOCK_BYTES - 1,
                                 OBJ_SMALL_BLOCK_BYTES,
                                 OBJ_SMALL_BLOCK_BYTES + 1,
                                 BLOCK - 1,
                                 BLOCK,
                                 BLOCK + 1,
                                 2 * BLOCK,
                                 3 * BLOCK + 12345,
                                 OBJ_SEGMENT_OBJECT_DEFAULT - 1,
                                 OBJ_SEGMENT_OBJECT_DEFAULT,
                                 OBJ_SEGMENT_OBJECT_DEFAULT + 1,
                                 7 * BLOCK + 1};

static const char *key_of(fx *f, size_t i, bool known)
{
    tarn_str k = tarn_arena_fmt(f->arena, "k/%zu/%s", i, known ? "known" : "unknown");
    return k.p;
}

static void put_all(fx *f)
{
    for (size_t i = 0; i < TARN_ARRAY_LEN(sizes); i++) {
        (void)fx_put(f, key_of(f, i, true), i, sizes[i], true);
        (void)fx_put(f, key_of(f, i, false), i, sizes[i], false);
    }
}

static void get_all(fx *f)
{
    for (size_t i = 0; i < TARN_ARRAY_LEN(sizes); i++) {
        fx_check(f, key_of(f, i, true), i, sizes[i]);
        fx_check(f, key_of(f, i, false), i, sizes[i]);
    }
}

static void put_get_all(fx *f)
{
    fx_bucket(f, "bucket", TARN_VERSIONING_OFF);
    put_all(f);
    get_all(f);
}

static void put_get_reopen(size_t drives)
{
    fx f;
    fx_init(&f, drives);
    fx_open(&f);
    put_get_all(&f);
    fx_close(&f);
    fx_open(&f);
    fx_reload_bucket(&f, "bucket");
    get_all(&f);
    fx_end(&f);
}

static void test_codes(void **state)
{
    static const size_t drives[] = {1, 2, 3, 4, 6, 8, 16};
    (void)state;
    for (size_t i = 0; i < TARN_ARRAY_LEN(drives); i++) {
        put_get_reopen(drives[i]);
    }
}

static void on_loop(tarn_io_backend backend)
{
    static const size_t drives[] = {1, 6};
    for (size_t i = 0; i < TARN_ARRAY_LEN(drives); i++) {
        fx f;
        fx_init(&f, drives[i]);
        fx_open(&f);
        bool ran = fx_on_loop(backend, put_get_all, &f);
        fx_end(&f);
        if (!ran) {
            skip();
        }
    }
}

static void test_uring(void **state)
{
    (void)state;
    on_loop(TARN_IO_URING);
}

static void test_threads(void **state)
{
    (void)state;
    on_loop(TARN_IO_THREADS);
}

/* The limits of the classes decide where the bytes go. */
static void test_classes(void **state)
{
    fx f;
    (void)state;
    fx_init(&f, 4);
    fx_open(&f);
    fx_bucket(&f, "bucket", TARN_VERSIONING_OFF);
    tarn_put_result r = fx_put(&f, "empty", 1, 0, true);
    assert_int_equal(r.row.data_id, 0);
    r = fx_put(&f, "inline", 1, OBJ_INLINE_DEFAULT, true);
    assert_true(r.row.inline_data);
    r = fx_put(&f, "segment", 1, OBJ_INLINE_DEFAULT + 1, true);
    assert_int_equal(obj_layout_class(r.row.layout), OBJ_CLASS_SEGMENT);
    r = fx_put(&f, "segment2", 1, OBJ_SEGMENT_OBJECT_DEFAULT, true);
    assert_int_equal(obj_layout_class(r.row.layout), OBJ_CLASS_SEGMENT);
    r = fx_put(&f, "file", 1, OBJ_SEGMENT_OBJECT_DEFAULT + 1, true);
    assert_int_equal(obj_layout_class(r.row.layout), OBJ_CLASS_FILE);
    r = fx_put(&f, "unknown", 1, BLOCK, false);
    assert_int_equal(obj_layout_class(r.row.layout), OBJ_CLASS_SEGMENT);
    r = fx_put(&f, "unknown2", 1, BLOCK + 1, false);
    assert_int_equal(obj_layout_class(r.row.layout), OBJ_CLASS_FILE);
    /* A caller may ask for more in the row than the store would put there, never for less. */
    static const struct {
        uint64_t asked, size;
        bool in_row;
    } rows[] = {{65536, 65536, true},
                {65536, 65537, false},
                {1, OBJ_INLINE_DEFAULT, true},
                {UINT64_MAX, TARN_INLINE_BYTES_MAX, true},
                {UINT64_MAX, TARN_INLINE_BYTES_MAX + 1, false}};
    for (size_t i = 0; i < TARN_ARRAY_LEN(rows); i++) {
        tarn_put_spec spec = fx_spec(&f, "asked", rows[i].size);
        spec.inline_bytes_max = rows[i].asked;
        assert_int_equal(fx_put_spec(&f, &spec, i, rows[i].size, &r), TARN_OK);
        assert_int_equal(r.row.inline_data, rows[i].in_row);
        fx_check(&f, "asked", i, rows[i].size);
    }
    fx_end(&f);
}

static void test_ranges(void **state)
{
    static const uint64_t whole[] = {1, 5000, 70000, BLOCK + 77, 5 * BLOCK + 4097};
    fx f;
    (void)state;
    fx_init(&f, 6);
    fx_open(&f);
    fx_bucket(&f, "bucket", TARN_VERSIONING_OFF);
    tarn_random_seed(7);
    for (size_t i = 0; i < TARN_ARRAY_LEN(whole); i++) {
        tarn_put_result r = fx_put(&f, "ranged", i, whole[i], true);
        tarn_version_row row = fx_stat(&f, "ranged");
        assert_int_equal(r.row.seq, row.seq);
        for (unsigned n = 0; n < 60; n++) {
            uint64_t off = tarn_random_u64() % (whole[i] + 1);
            uint64_t len = tarn_random_u64() % (whole[i] - off + 1);
            assert_int_equal(fx_read(&f, &row, i, off, len), TARN_OK);
        }
        assert_int_equal(fx_read(&f, &row, i, whole[i], 1), TARN_E_INVALID_RANGE);
        assert_int_equal(fx_read(&f, &row, i, whole[i] + 1, 0), TARN_E_INVALID_RANGE);
        assert_int_equal(fx_read(&f, &row, i, 1, whole[i]), TARN_E_INVALID_RANGE);
    }
    tarn_random_seed(0);
    fx_end(&f);
}

/* ------------------------------------------------------------------ digests */
static void test_digests(void **state)
{
    static const uint64_t n[] = {0, 10, 20000, 3 * BLOCK + 5, 6 * BLOCK};
    static const tarn_sum_kind kinds[] = {TARN_SUM_CRC32, TARN_SUM_CRC32C, TARN_SUM_CRC64NVME,
                                          TARN_SUM_SHA1,  TARN_SUM_SHA256, TARN_SUM_MD5};
    fx f;
    (void)state;
    fx_init(&f, 1);
    fx_open(&f);
    fx_bucket(&f, "bucket", TARN_VERSIONING_OFF);
    for (size_t i = 0; i < TARN_ARRAY_LEN(n); i++) {
        uint8_t *all = tarn_malloc((size_t)n[i] + 1), md5[16], sha[32];
        for (uint64_t j = 0; j < n[i]; j++) {
            all[j] = fx_byte(i, j);
        }
        tarn_md5(all, (size_t)n[i], md5);
        tarn_sha256(all, (size_t)n[i], sha);
        for (size_t k = 0; k < TARN_ARRAY_LEN(kinds); k++) {
            tarn_put_spec spec = fx_spec(&f, "d", n[i]);
            tarn_put_result r;
            tarn_sum sum;
            uint8_t want[TARN_DIGEST_BYTES_MAX];
            spec.attrs.checksum.kind = kinds[k];
            spec.expect_md5 = md5;
            spec.expect_sha256 = sha;
            assert_int_equal(fx_put_spec(&f, &spec, i, n[i], &r), TARN_OK);
            assert_int_equal(tarn_sum_begin(&sum, kinds[k]), TARN_OK);
            tarn_sum_update(&sum, all, (size_t)n[i]);
            tarn_sum_peek(&sum, want);
            tarn_sum_end(&sum);
            assert_memory_equal(r.checksum.value, want, tarn_sum_bytes(kinds[k]));
            assert_memory_equal(r.md5, md5, sizeof md5);
            tarn_attrs attrs;
            assert_int_equal(tarn_attrs_unpack(fx_stat(&f, "d").attrs, f.arena, &attrs), TARN_OK);
            assert_int_equal(attrs.checksum.kind, kinds[k]);
            assert_memory_equal(attrs.checksum.value, want, tarn_sum_bytes(kinds[k]));
            char hex[33];
            tarn_sb b;
            tarn_sb_init_fixed(&b, hex, sizeof hex);
            tarn_sb_hex(&b, md5, 16);
            assert_true(tarn_str_eqc(r.row.etag, hex));
        }
        tarn_free(all);
    }
    fx_end(&f);
}

static size_t count_files(const char *drive)
{
    char *cmd = fx_fmt("find %s/tarn/parts -type f | wc -l", drive);
    FILE *p = popen(cmd, "r");
    size_t n = 0;
    assert_non_null(p);
    assert_int_equal(fscanf(p, "%zu", &n), 1);
    (void)pclose(p);
    tarn_free(cmd);
    return n;
}

/* A wrong digest or length: the error, nothing visible, nothing left. */
static void test_refused(void **state)
{
    static const uint64_t n[] = {100, 20000, 5 * BLOCK};
    static const uint8_t wrong[32] = {1, 2, 3};
    fx f;
    (void)state;
    fx_init(&f, 4);
    fx_open(&f);
    fx_bucket(&f, "bucket", TARN_VERSIONING_OFF);
    for (size_t i = 0; i < TARN_ARRAY_LEN(n); i++) {
        tarn_put_result r;
        tarn_put_spec spec = fx_spec(&f, "no", n[i]);
        spec.expect_md5 = wrong;
        assert_int_equal(fx_put_spec(&f, &spec, i, n[i], &r), TARN_E_BAD_DIGEST);
        spec = fx_spec(&f, "no", n[i]);
        spec.expect_sha256 = wrong;
        assert_int_equal(fx_put_spec(&f, &spec, i, n[i], &r), TARN_E_CONTENT_SHA256_MISMATCH);
        spec = fx_spec(&f, "no", n[i] + 1);
        assert_int_equal(fx_put_spec(&f, &spec, i, n[i], &r), TARN_E_INCOMPLETE_BODY);
        spec = fx_spec(&f, "no", n[i] - 1);
        assert_int_equal(fx_put_spec(&f, &spec, i, n[i], &r), TARN_E_INVALID);
        tarn_put *p = NULL;
        spec = fx_spec(&f, "no", n[i]);
        assert_int_equal(tarn_put_begin(f.s, &spec, f.arena, &p), TARN_OK);
        assert_int_equal(tarn_put_write(p, "abc", 3), TARN_OK);
        tarn_put_abort(p);
        tarn_version_row row;
        tarn_version_ref ref = {.sel = TARN_VERSION_CURRENT};
        assert_int_equal(tarn_object_stat(f.s, &f.bucket, TARN_STR("no"), ref, f.arena, &row), TARN_E_NO_SUCH_KEY);
    }
    for (size_t i = 0; i < f.drives_n; i++) {
        assert_int_equal(count_files(f.drives[i]), 0);
    }
    fx_end(&f);
}

static void test_limits(void **state)
{
    fx f;
    tarn_put *p = NULL;
    char long_key[TARN_KEY_BYTES_MAX + 2];
    (void)state;
    fx_init(&f, 1);
    fx_open(&f);
    fx_bucket(&f, "bucket", TARN_VERSIONING_OFF);
    memset(long_key, 'k', sizeof long_key);
    long_key[TARN_KEY_BYTES_MAX] = '\0';
    (void)fx_put(&f, long_key, 1, 5000, true);
    (void)fx_put(&f, long_key, 1, 50000, true);
    fx_check(&f, long_key, 1, 50000);
    long_key[TARN_KEY_BYTES_MAX] = 'k';
    long_key[TARN_KEY_BYTES_MAX + 1] = '\0';
    tarn_put_spec spec = fx_spec(&f, long_key, 5);
    assert_int_equal(tarn_put_begin(f.s, &spec, f.arena, &p), TARN_E_KEY_TOO_LONG);
    spec = fx_spec(&f, "", 5);
    assert_int_equal(tarn_put_begin(f.s, &spec, f.arena, &p), TARN_E_INVALID_ARGUMENT);
    spec = fx_spec(&f, "k", TARN_PUT_BYTES_MAX + 1);
    assert_int_equal(tarn_put_begin(f.s, &spec, f.arena, &p), TARN_E_ENTITY_TOO_LARGE);
    spec = fx_spec(&f, "k", TARN_PUT_BYTES_MAX);
    assert_int_equal(tarn_put_begin(f.s, &spec, f.arena, &p), TARN_OK);
    tarn_put_abort(p);
    fx_end(&f);
}

/* The SHA-256 is told only when the bytes are there already. */
static void test_late_sha(void **state)
{
    fx f;
    uint8_t sha[32];
    char text[3000];
    tarn_put_result r;
    tarn_put *p = NULL;
    (void)state;
    fx_init(&f, 1);
    fx_open(&f);
    fx_bucket(&f, "bucket", TARN_VERSIONING_OFF);
    memset(text, 'x', sizeof text);
    tarn_sha256(text, sizeof text, sha);
    tarn_put_spec spec = fx_spec(&f, "late", UINT64_MAX);
    assert_int_equal(tarn_put_begin(f.s, &spec, f.arena, &p), TARN_OK);
    assert_int_equal(tarn_put_write(p, text, sizeof text), TARN_OK);
    tarn_put_expect_sha256(p, sha);
    assert_int_equal(tarn_put_finish(p, &r), TARN_OK);
    assert_memory_equal(r.sha256, sha, 32);
    assert_int_equal(tarn_put_begin(f.s, &spec, f.arena, &p), TARN_OK);
    assert_int_equal(tarn_put_write(p, text, sizeof text - 1), TARN_OK);
    tarn_put_expect_sha256(p, sha);
    assert_int_equal(tarn_put_finish(p, &r), TARN_E_CONTENT_SHA256_MISMATCH);
    fx_end(&f);
}

static void test_object_read(void **state)
{
    fx f;
    tarn_str got;
    (void)state;
    fx_init(&f, 3);
    fx_open(&f);
    fx_bucket(&f, "bucket", TARN_VERSIONING_OFF);
    static const uint64_t n[] = {0, 1, 4096, 20000, 2 * BLOCK};
    for (size_t i = 0; i < TARN_ARRAY_LEN(n); i++) {
        (void)fx_put(&f, "small", i, n[i], true);
        tarn_version_row row = fx_stat(&f, "small");
        assert_int_equal(tarn_object_read(f.s, &row, (size_t)n[i], f.arena, &got), TARN_OK);
        assert_int_equal(got.n, n[i]);
        for (uint64_t j = 0; j < n[i]; j++) {
            assert_int_equal((uint8_t)got.p[j], fx_byte(i, j));
        }
        if (n[i] > 0) {
            assert_int_equal(tarn_object_read(f.s, &row, (size_t)n[i] - 1, f.arena, &got), TARN_E_LIMIT);
        }
    }
    fx_end(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_codes),      cmocka_unit_test(test_uring),  cmocka_unit_test(test_threads),
                                       cmocka_unit_test(test_classes),    cmocka_unit_test(test_ranges), cmocka_unit_test(test_digests),
                                       cmocka_unit_test(test_refused),    cmocka_unit_test(test_limits), cmocka_unit_test(test_late_sha),
                                       cmocka_unit_test(test_object_read)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
