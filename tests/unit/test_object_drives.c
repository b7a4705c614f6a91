/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Drives at the start: who is accepted, who is refused and with which words; blank drives are filled; the store opens with
 * as many drives as reading needs, and writes only with as many as writing needs. And the packed forms of attributes.
 */
#include "object_fixture.h"

static tarn_drive_state state_of(fx *f, size_t drive, const char **reason)
{
    tarn_drive_info info[FX_DRIVES_MAX];
    assert_int_equal(tarn_store_drives(f->s, info, FX_DRIVES_MAX), f->drives_n);
    if (reason) {
        *reason = info[drive].reason;
    }
    return info[drive].state;
}

static void sh(const char *fmt, const char *a, const char *b)
{
    char *cmd = NULL;
    assert_true(asprintf(&cmd, "f='%s'; a='%s'; b='%s'; eval \"$f\"", fmt, a, b ? b : "") > 0);
    assert_int_equal(system(cmd), 0);
    free(cmd);
}

static void refused(fx *f, tarn_err err, const char *words)
{
    tarn_str reason = TARN_STR("");
    assert_int_equal(fx_try_open(f, &reason), err);
    if (tarn_str_find(reason, tarn_str_of(words)) < 0) {
        fail_msg("reason: %.*s", TARN_STR_ARG(reason));
    }
}

static void filled(fx *f, size_t drives)
{
    fx_init(f, drives);
    fx_open(f);
    fx_bucket(f, "bucket", TARN_VERSIONING_OFF);
    (void)fx_put(f, "inline", 1, 100, true);
    (void)fx_put(f, "segment", 2, 200000, true);
    (void)fx_put(f, "file", 3, 6000000, true);
}

static void check(fx *f)
{
    fx_reload_bucket(f, "bucket");
    fx_check(f, "inline", 1, 100);
    fx_check(f, "segment", 2, 200000);
    fx_check(f, "file", 3, 6000000);
}

static void test_new_deployment(void **state)
{
    fx f;
    (void)state;
    fx_init(&f, 3);
    sh("mkdir -p $a/lost+found", f.drives[0], NULL); /* a fresh file system */
    fx_open(&f);
    unsigned k, m, sets;
    tarn_store_code(f.s, &k, &m, &sets);
    assert_int_equal(k, 2);
    assert_int_equal(m, 1);
    assert_int_equal(sets, 1);
    char id[37];
    memcpy(id, tarn_store_deployment_id(f.s), 37);
    assert_int_equal(strlen(id), 36);
    assert_true(tarn_store_writable(f.s) && tarn_store_readable(f.s));
    refused(&f, TARN_E_CONFLICT, "in use by another tarn process");
    fx_close(&f);
    fx_open(&f);
    assert_string_equal(id, tarn_store_deployment_id(f.s));
    fx_end(&f);
}

static void test_not_blank(void **state)
{
    fx f;
    (void)state;
    fx_init(&f, 2);
    sh("mkdir -p $a; touch $a/something", f.drives[1], NULL);
    refused(&f, TARN_E_INVALID, "is not empty and holds no tarn deployment");
    sh("test ! -e $a/tarn", f.drives[0], NULL); /* nothing was written anywhere */
    sh("rm $a/something", f.drives[1], NULL);
    fx_open(&f);
    fx_end(&f);
    fx_init(&f, 1);
    sh("touch $a", f.drives[0], NULL); /* a file, not a folder */
    refused(&f, TARN_E_IO, "can't be read");
    fx_end(&f);
}

/* A formatting that was interrupted goes on as if it were the first. */
static void test_interrupted_format(void **state)
{
    fx f;
    (void)state;
    fx_init(&f, 4);
    fx_open(&f);
    fx_close(&f);
    /* back to FRESH on the first drive, the others as they were before: the state byte is made by hand, with its checksum */
    char bytes[80], path[400];
    tarn_sb b;
    tarn_sb_init_fixed(&b, path, sizeof path);
    tarn_sb_fmt(&b, "%s/tarn/format", f.drives[0]);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    assert_int_equal(pread(fd, bytes, sizeof bytes, 0), sizeof bytes);
    assert_int_equal(bytes[64], 0);
    bytes[64] = 2;
    uint64_t sum = tarn_crc64(0, bytes, 72);
    for (unsigned i = 0; i < 8; i++) {
        bytes[72 + i] = (char)(sum >> (8 * i));
    }
    assert_int_equal(pwrite(fd, bytes, sizeof bytes, 0), sizeof bytes);
    assert_int_equal(pwrite(fd, bytes, sizeof bytes, 4096), sizeof bytes);
    (void)close(fd);
    for (size_t i = 1; i < 4; i++) {
        sh("rm -rf $a", f.drives[i], NULL);
    }
    sh("rm -rf $a/tarn/meta", f.drives[0], NULL);
    sh("mkdir -p $a/tarn; : > $a/tarn/format", f.drives[2], NULL); /* made, not written */
    fx_open(&f);
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(state_of(&f, i, NULL), TARN_DRIVE_OK);
    }
    fx_end(&f);
}

static void test_format_copies(void **state)
{
    fx f;
    (void)state;
    filled(&f, 2);
    fx_close(&f);
    sh("printf xxxx | dd of=$a/tarn/format conv=notrunc 2>/dev/null", f.drives[0], NULL); /* the second copy is good */
    fx_open(&f);
    assert_int_equal(state_of(&f, 0, NULL), TARN_DRIVE_OK);
    check(&f);
    fx_end(&f);
}

static void test_wrong_drives(void **state)
{
    fx f, other;
    const char *reason = NULL;
    tarn_str text = TARN_STR("");
    (void)state;
    filled(&f, 6);
    fx_close(&f);
    /* misplaced */
    char *swap = f.drives[1];
    f.drives[1] = f.drives[4];
    f.drives[4] = swap;
    fx_open(&f);
    assert_int_equal(state_of(&f, 1, &reason), TARN_DRIVE_MISPLACED);
    assert_non_null(strstr(reason, "is drive 5"));
    assert_int_equal(state_of(&f, 4, NULL), TARN_DRIVE_MISPLACED);
    check(&f);
    fx_close(&f);
    swap = f.drives[1];
    f.drives[1] = f.drives[4];
    f.drives[4] = swap;
    /* foreign */
    filled(&other, 6);
    fx_close(&other);
    swap = f.drives[2];
    f.drives[2] = other.drives[2];
    fx_open(&f);
    assert_int_equal(state_of(&f, 2, &reason), TARN_DRIVE_FOREIGN);
    assert_non_null(strstr(reason, "another deployment"));
    assert_int_equal(tarn_metric_get(TARN_M_DRIVES_OFFLINE), 1);
    check(&f);
    fx_close(&f);
    f.drives[2] = swap;
    /* something that is not ours at all */
    sh("mv $a $a.away; mkdir $a; touch $a/photo", f.drives[3], NULL);
    fx_open(&f);
    assert_int_equal(state_of(&f, 3, &reason), TARN_DRIVE_FOREIGN);
    check(&f);
    fx_close(&f);
    sh("test ! -e $a/tarn && rm -r $a && mv $a.away $a", f.drives[3], NULL);
    /* too many, too few, another set size */
    f.drives_n = 5;
    refused(&f, TARN_E_INVALID, "deployment of 6 drives, but 5 were given");
    f.drives_n = 6;
    f.set_drives = 3;
    refused(&f, TARN_E_INVALID, "sets of 6 drives, not 3");
    f.set_drives = 0;
    assert_int_equal(fx_try_open(&f, &text), TARN_OK);
    check(&f);
    fx_end(&f);
    fx_end(&other);
}

static void test_geometry(void **state)
{
    fx f;
    (void)state;
    fx_init(&f, 6);
    f.set_drives = 4;
    refused(&f, TARN_E_INVALID, "can't be divided");
    f.set_drives = 3;
    fx_open(&f);
    unsigned k, m, sets;
    tarn_store_code(f.s, &k, &m, &sets);
    assert_int_equal(sets, 2);
    assert_int_equal(k + m, 3);
    fx_bucket(&f, "bucket", TARN_VERSIONING_OFF);
    for (unsigned i = 0; i < 40; i++) { /* names go to both sets */
        char *key = fx_fmt("k%u", i);
        (void)fx_put(&f, key, i, 30000 + 100000 * (i % 3), true);
        tarn_free(key);
    }
    fx_close(&f);
    f.set_drives = 0; /* the record knows */
    fx_open(&f);
    fx_reload_bucket(&f, "bucket");
    unsigned in_set[2] = {0, 0};
    for (unsigned i = 0; i < 40; i++) {
        char *key = fx_fmt("k%u", i);
        obj_blob b;
        fx_check(&f, key, i, 30000 + 100000 * (i % 3));
        assert_int_equal(obj_blob_unpack(fx_stat(&f, key).layout, &b), TARN_OK);
        in_set[b.set]++;
        tarn_free(key);
    }
    assert_true(in_set[0] > 5 && in_set[1] > 5);
    fx_end(&f);
}

/* Reads go on while k drives of a set are there, writes need the write quorum. */
static void test_missing(void **state)
{
    static const struct {
        size_t drives, may_miss_write, may_miss_read;
    } cases[] = {{1, 0, 0}, {2, 0, 1}, {3, 1, 1}, {4, 1, 2}, {5, 2, 2}, {6, 2, 3}, {8, 3, 4}};
    (void)state;
    for (size_t c = 0; c < TARN_ARRAY_LEN(cases); c++) {
        fx f;
        tarn_put *p = NULL;
        filled(&f, cases[c].drives);
        for (size_t gone = 0; gone <= cases[c].may_miss_read + 1 && gone <= cases[c].drives; gone++) {
            fx_close(&f);
            if (gone > 0) {
                sh("mv $a $a.away", f.drives[gone - 1], NULL);
            }
            if (gone > cases[c].may_miss_read) {
                if (gone < cases[c].drives) {
                    refused(&f, TARN_E_QUORUM_READ, "the path does not exist");
                }
                break;
            }
            fx_open(&f);
            assert_true(tarn_store_readable(f.s));
            assert_int_equal(tarn_store_writable(f.s), gone <= cases[c].may_miss_write);
            check(&f);
            tarn_put_spec spec = fx_spec(&f, "more", 50000);
            tarn_err err = tarn_put_begin(f.s, &spec, f.arena, &p);
            assert_int_equal(err, gone <= cases[c].may_miss_write ? TARN_OK : TARN_E_QUORUM_WRITE);
            if (!err) {
                tarn_put_abort(p);
                (void)fx_put(&f, "more", 9, 50000, true);
                fx_check(&f, "more", 9, 50000);
                assert_int_equal(tarn_store_repairs_waiting(f.s) > 0, gone > 0);
            }
        }
        fx_end(&f);
    }
}

/* A blank drive in the place of another one is formatted and gets everything. */
static void test_replaced(void **state)
{
    fx f;
    const char *reason = NULL;
    (void)state;
    filled(&f, 4);
    fx_close(&f);
    sh("rm -rf $a; mkdir $a", f.drives[1], NULL);
    sh("rm -rf $a; mkdir $a", f.drives[2], NULL);
    fx_open(&f);
    assert_int_equal(state_of(&f, 1, &reason), TARN_DRIVE_NEW);
    assert_non_null(strstr(reason, "replaced"));
    assert_true(tarn_store_writable(f.s));
    check(&f);
    (void)fx_put(&f, "later", 4, 300000, true);
    fx_close(&f);
    fx_open(&f); /* half filled is still being filled */
    assert_int_equal(state_of(&f, 1, NULL), TARN_DRIVE_NEW);
    check(&f);
    assert_int_equal(obj_fill_pass(f.s, NULL), TARN_OK);
    assert_int_equal(state_of(&f, 1, NULL), TARN_DRIVE_OK);
    fx_close(&f);
    /* now the other two may go */
    sh("mv $a $a.away", f.drives[0], NULL);
    sh("mv $a $a.away", f.drives[3], NULL);
    fx_open(&f);
    assert_int_equal(state_of(&f, 2, NULL), TARN_DRIVE_OK);
    check(&f);
    fx_check(&f, "later", 4, 300000);
    fx_end(&f);
}

static int no_write_open(tarn_fs *fs, const char *path, int flags, int mode, int64_t *handle);
static char read_only_prefix[300];
static int no_write_open(tarn_fs *fs, const char *path, int flags, int mode, int64_t *handle)
{
    (void)fs;
    if ((flags & O_ACCMODE) != O_RDONLY && strncmp(path, read_only_prefix, strlen(read_only_prefix)) == 0) {
        return -EROFS;
    }
    return tarn_fs_posix()->open(tarn_fs_posix(), path, flags, mode, handle);
}

static void test_read_only(void **state)
{
    fx f;
    tarn_fs fs = *tarn_fs_posix();
    const char *reason = NULL;
    (void)state;
    fs.open = no_write_open;
    filled(&f, 6);
    fx_close(&f);
    tarn_sb b;
    tarn_sb_init_fixed(&b, read_only_prefix, sizeof read_only_prefix);
    tarn_sb_fmt(&b, "%s/", f.drives[0]);
    f.fs = &fs;
    fx_open(&f);
    assert_int_equal(state_of(&f, 0, &reason), TARN_DRIVE_READ_ONLY);
    assert_non_null(strstr(reason, "can't be written"));
    int64_t before = tarn_metric_get(TARN_M_SHARDS_REBUILT);
    check(&f); /* it is read all the same */
    assert_int_equal(tarn_metric_get(TARN_M_SHARDS_REBUILT), before);
    assert_true(tarn_store_writable(f.s));
    (void)fx_put(&f, "more", 5, 300000, true);
    fx_check(&f, "more", 5, 300000);
    fx_end(&f);
}

static void test_secrets(void **state)
{
    fx f;
    tarn_str got;
    struct stat st;
    (void)state;
    fx_init(&f, 4);
    fx_open(&f);
    assert_int_equal(tarn_store_secret_get(f.s, "root", f.arena, &got), TARN_E_NOT_FOUND);
    assert_int_equal(tarn_store_secret_put(f.s, "root", TARN_STR("user:a long secret")), TARN_OK);
    assert_int_equal(tarn_store_secret_put(f.s, "root", TARN_STR("user:secret")), TARN_OK);
    assert_int_equal(tarn_store_secret_get(f.s, "root", f.arena, &got), TARN_OK);
    assert_true(tarn_str_eqc(got, "user:secret"));
    assert_int_equal(tarn_store_secret_put(f.s, "../x", TARN_STR("x")), TARN_E_INVALID_ARGUMENT);
    char big[4097];
    memset(big, 'x', sizeof big);
    assert_int_equal(tarn_store_secret_put(f.s, "big", (tarn_str){big, 4096}), TARN_OK);
    assert_int_equal(tarn_store_secret_put(f.s, "big", (tarn_str){big, 4097}), TARN_E_INVALID_ARGUMENT);
    assert_int_equal(tarn_store_secret_get(f.s, "big", f.arena, &got), TARN_OK);
    assert_int_equal(got.n, 4096);
    for (size_t i = 0; i < 4; i++) {
        char *path = fx_fmt("%s/tarn/secrets/root", f.drives[i]);
        assert_int_equal(stat(path, &st), 0);
        assert_int_equal(st.st_mode & 0777, 0600);
        tarn_free(path);
    }
    sh("rm $a/tarn/secrets/root; printf junk > $b/tarn/secrets/root", f.drives[0], f.drives[1]);
    assert_int_equal(tarn_store_secret_get(f.s, "root", f.arena, &got), TARN_OK);
    assert_true(tarn_str_eqc(got, "user:secret"));
    fx_end(&f);
}

/* ------------------------------------------------------------------ packed attributes */
static void test_attrs(void **state)
{
    tarn_arena *a = tarn_arena_new(1 << 22);
    tarn_str packed;
    tarn_attrs out;
    tarn_pair meta[2] = {{TARN_STR("a"), TARN_STR("1")}, {TARN_STR("b"), TARN_STR("")}};
    tarn_pair tags[2] = {{TARN_STR("k"), TARN_STR("v")}, {TARN_STR("k2"), TARN_STR("")}};
    tarn_attrs in = {.content_type = TARN_STR("text/plain"),
                     .cache_control = TARN_STR("no-store"),
                     .expires = TARN_STR("never"),
                     .user_meta = meta,
                     .user_meta_n = 2,
                     .checksum = {.kind = TARN_SUM_SHA256, .type = TARN_SUM_COMPOSITE, .parts_n = 7},
                     .sse = TARN_STR("AES256"),
                     .retention = TARN_RETENTION_COMPLIANCE,
                     .retain_until_ms = 123456789012345,
                     .legal_hold = true};
    (void)state;
    in.checksum.value[31] = 9;
    assert_int_equal(tarn_tags_pack(tags, 2, a, &in.tags), TARN_OK);
    in.tags_n = 2;
    assert_int_equal(tarn_attrs_pack(&in, a, &packed), TARN_OK);
    assert_int_equal(tarn_attrs_unpack(packed, a, &out), TARN_OK);
    assert_true(tarn_str_eq(out.content_type, in.content_type) && tarn_str_eq(out.cache_control, in.cache_control));
    assert_true(tarn_str_eq(out.expires, in.expires) && tarn_str_eq(out.sse, in.sse) && out.content_language.n == 0);
    assert_int_equal(out.user_meta_n, 2);
    assert_true(tarn_str_eqc(out.user_meta[0].value, "1") && tarn_str_eqc(out.user_meta[1].name, "b"));
    assert_int_equal(out.checksum.kind, TARN_SUM_SHA256);
    assert_int_equal(out.checksum.parts_n, 7);
    assert_int_equal(out.checksum.value[31], 9);
    assert_int_equal(out.retention, TARN_RETENTION_COMPLIANCE);
    assert_int_equal(out.retain_until_ms, 123456789012345);
    assert_true(out.legal_hold);
    tarn_pair *t = NULL;
    size_t n = 0;
    assert_int_equal(tarn_tags_unpack(out.tags, a, &t, &n), TARN_OK);
    assert_int_equal(n, 2);
    assert_int_equal(out.tags_n, 2);
    assert_true(tarn_str_eqc(t[1].name, "k2"));
    /* every cut of it is refused or read without harm */
    for (size_t i = 0; i < packed.n; i++) {
        (void)tarn_attrs_unpack(tarn_str_sub(packed, 0, i), a, &out);
    }
    char *big = malloc(TARN_ATTRS_BYTES_MAX);
    memset(big, 'x', TARN_ATTRS_BYTES_MAX);
    in = (tarn_attrs){.content_type = {big, TARN_ATTRS_BYTES_MAX - 5}}; /* version, field, three bytes of length */
    assert_int_equal(tarn_attrs_pack(&in, a, &packed), TARN_OK);
    in.content_type.n++;
    assert_int_equal(tarn_attrs_pack(&in, a, &packed), TARN_E_LIMIT);
    free(big);
    tarn_arena_free(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_new_deployment), cmocka_unit_test(test_not_blank),    cmocka_unit_test(test_interrupted_format),
        cmocka_unit_test(test_format_copies),  cmocka_unit_test(test_wrong_drives), cmocka_unit_test(test_geometry),
        cmocka_unit_test(test_missing),        cmocka_unit_test(test_replaced),     cmocka_unit_test(test_read_only),
        cmocka_unit_test(test_secrets),        cmocka_unit_test(test_attrs)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
