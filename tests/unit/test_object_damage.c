/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Loss and damage: up to m shards of every object deleted, overwritten, cut short or swapped are read through and repaired;
 * with more than m there is an error and never a wrong byte. Drives that fail during a put don't fail it.
 */
#include "object_fixture.h"

#include "put.h"
#include "upkeep.h"

#define BLOCK ((uint64_t)TARN_BLOCK_BYTES)

typedef enum damage { DELETE, FLIP, CUT, ZERO, DAMAGE_COUNT } damage;

typedef struct thing {
    const char *key;
    uint64_t size;
} thing;
static const thing things[] = {{"small", 20000}, {"middle", 300000}, {"twoblocks", 2 * BLOCK - 5}, {"file", 5 * BLOCK + 333}};

static char *shard_path(fx *f, const tarn_version_row *row, unsigned shard, obj_blob *b)
{
    char path[TARN_PATH_BYTES_MAX];
    assert_int_equal(obj_blob_unpack(row->layout, b), TARN_OK);
    assert_true(obj_path_blob(obj_drive_at(f->s, b->set, obj_blob_drive(b, shard, f->s->n)), b, path));
    return fx_fmt("%s", path);
}

/* Hurts one shard of one object, and nothing else. */
static void hurt(fx *f, const char *key, unsigned shard, damage what)
{
    obj_blob b;
    tarn_version_row row = fx_stat(f, key);
    char *path = shard_path(f, &row, shard, &b);
    uint64_t data = obj_record_data_bytes(&b), off = b.offset + b.head_bytes;
    int fd = open(path, O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0);
    char *junk = calloc(1, data);
    if (what == DELETE && b.cls == OBJ_CLASS_SEGMENT) {
        what = ZERO; /* other records live in the same segment */
    }
    switch (what) {
    case DELETE:
        assert_int_equal(unlink(path), 0);
        break;
    case ZERO:
        assert_int_equal(pwrite(fd, junk, data + 0, (off_t)off), (ssize_t)data);
        break;
    case FLIP:
        assert_int_equal(pread(fd, junk, 1, (off_t)(off + data / 2)), 1);
        junk[0] ^= 1;
        assert_int_equal(pwrite(fd, junk, 1, (off_t)(off + data / 2)), 1);
        break;
    case CUT:
        if (b.cls == OBJ_CLASS_FILE) {
            assert_int_equal(ftruncate(fd, (off_t)(off + data - 1)), 0);
        } else {
            assert_int_equal(pwrite(fd, junk, data / 2, (off_t)(off + data - data / 2)), (ssize_t)(data / 2));
        }
        break;
    default:
        fail();
    }
    free(junk);
    (void)close(fd);
    tarn_free(path);
}

static void put_things(fx *f)
{
    for (size_t i = 0; i < TARN_ARRAY_LEN(things); i++) {
        (void)fx_put(f, things[i].key, i, things[i].size, true);
    }
}

static void check_things(fx *f)
{
    for (size_t i = 0; i < TARN_ARRAY_LEN(things); i++) {
        fx_check(f, things[i].key, i, things[i].size);
    }
}

/* The store is closed and opened: nothing is remembered, open files neither. */
static void reopen(fx *f)
{
    fx_close(f);
    fx_open(f);
    fx_reload_bucket(f, "bucket");
}

/* Are all shards whole, seen without parity's help? */
static void assert_whole(fx *f, const char *key)
{
    tarn_version_row row = fx_stat(f, key);
    obj_blob b;
    assert_int_equal(obj_blob_unpack(row.layout, &b), TARN_OK);
    assert_int_equal(b.missing, 0);
    for (unsigned i = 0; i < f->s->n; i++) {
        char *path = shard_path(f, &row, i, &b);
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        assert_true(fd >= 0);
        uint64_t n = b.head_bytes + obj_record_data_bytes(&b) + obj_trailer_bytes(obj_blob_blocks(&b));
        uint8_t *all = malloc(n);
        assert_int_equal(pread(fd, all, n, (off_t)b.offset), (ssize_t)n);
        assert_true(obj_header_matches(all, b.head_bytes, &b, i));
        for (uint64_t k = 0; k < obj_blob_blocks(&b); k++) {
            size_t len = obj_shard_len(obj_block_len(&b, k), b.k);
            assert_int_equal(obj_shard_sum(b.blob_id, k, i, all + obj_shard_offset(&b, k), len), obj_blob_sum(&b, k, i));
        }
        uint8_t *tail = malloc(obj_trailer_bytes(obj_blob_blocks(&b)));
        obj_trailer_build(&b, i, 0, tail);
        assert_memory_equal(all + b.head_bytes + obj_record_data_bytes(&b), tail, 24); /* all but the time */
        free(tail);
        free(all);
        (void)close(fd);
        tarn_free(path);
    }
}

static void losses(size_t drives, damage what)
{
    fx f;
    fx_init(&f, drives);
    fx_open(&f);
    fx_bucket(&f, "bucket", TARN_VERSIONING_OFF);
    unsigned m = f.s->m, n = f.s->n;
    put_things(&f);
    for (unsigned first = 0; first < n; first++) { /* m shards in a row, beginning with each one */
        for (size_t i = 0; i < TARN_ARRAY_LEN(things); i++) {
            for (unsigned j = 0; j < m; j++) {
                hurt(&f, things[i].key, (first + j) % n, what);
            }
        }
        reopen(&f);
        int64_t before = tarn_metric_get(TARN_M_SHARDS_REBUILT);
        check_things(&f);
        if (first < f.s->k) { /* a data shard among them */
            assert_true(tarn_metric_get(TARN_M_SHARDS_REBUILT) > before);
        }
        /* Reads ask for data shards only: what they have not met is repaired on request. */
        for (size_t i = 0; i < TARN_ARRAY_LEN(things); i++) {
            tarn_version_row row = fx_stat(&f, things[i].key);
            obj_repair_ask(f.s, row.bucket_id, row.key, row.seq);
        }
        assert_int_equal(tarn_store_repairs_waiting(f.s), TARN_ARRAY_LEN(things));
        assert_int_equal(obj_repair_pass(f.s, NULL), TARN_OK);
        assert_int_equal(tarn_store_repairs_waiting(f.s), 0);
        for (size_t i = 0; i < TARN_ARRAY_LEN(things); i++) {
            assert_whole(&f, things[i].key);
        }
        before = tarn_metric_get(TARN_M_SHARDS_REBUILT);
        check_things(&f);
        assert_int_equal(tarn_metric_get(TARN_M_SHARDS_REBUILT), before);
    }
    fx_end(&f);
}

/* The data is whole, only the record's end is not: a check says so, so a repair has to make it right. */
static void trailer_alone(fx *f, const char *key, unsigned shard)
{
    static const char junk[4] = {'j', 'u', 'n', 'k'};
    obj_blob b;
    tarn_version_row row = fx_stat(f, key);
    char *path = shard_path(f, &row, shard, &b);
    uint64_t end = b.offset + b.head_bytes + obj_record_data_bytes(&b) + obj_trailer_bytes(obj_blob_blocks(&b));
    int fd = open(path, O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0);
    if (b.cls == OBJ_CLASS_FILE) {
        assert_int_equal(ftruncate(fd, (off_t)(end - sizeof junk)), 0);
    } else {
        assert_int_equal(pwrite(fd, junk, sizeof junk, (off_t)(end - sizeof junk)), (ssize_t)sizeof junk);
    }
    (void)close(fd);
    tarn_free(path);
    obj_check c = {0};
    assert_int_equal(obj_check_version(f->s, &row, &c), TARN_OK);
    assert_int_equal(c.corrupt, 1);
    unsigned left = 0;
    assert_int_equal(obj_repair_version(f->s, &row, &left), TARN_OK);
    assert_int_equal(left, 0);
    c = (obj_check){0};
    assert_int_equal(obj_check_version(f->s, &row, &c), TARN_OK);
    assert_true(obj_check_clean(&c));
    assert_whole(f, key);
}

static void test_a_trailer_alone_is_repaired(void **state)
{
    static const size_t drives[] = {1, 2, 6};
    (void)state;
    for (size_t d = 0; d < TARN_ARRAY_LEN(drives); d++) {
        fx f;
        fx_init(&f, drives[d]);
        fx_open(&f);
        fx_bucket(&f, "bucket", TARN_VERSIONING_OFF);
        put_things(&f);
        for (size_t i = 0; i < TARN_ARRAY_LEN(things); i++) {
            for (unsigned shard = 0; shard < f.s->n; shard++) {
                trailer_alone(&f, things[i].key, shard);
            }
        }
        fx_end(&f);
    }
}

static void test_losses(void **state)
{
    (void)state;
    for (damage d = DELETE; d < DAMAGE_COUNT; d++) {
        losses(2, d);
        losses(3, d);
        losses(6, d);
    }
}

static void test_too_many(void **state)
{
    static const size_t drives[] = {1, 2, 3, 6, 8};
    (void)state;
    for (size_t n = 0; n < TARN_ARRAY_LEN(drives); n++) {
        fx f;
        fx_init(&f, drives[n]);
        fx_open(&f);
        fx_bucket(&f, "bucket", TARN_VERSIONING_OFF);
        put_things(&f);
        for (size_t i = 0; i < TARN_ARRAY_LEN(things); i++) {
            for (unsigned j = 0; j <= f.s->m; j++) {
                hurt(&f, things[i].key, j, FLIP);
            }
        }
        reopen(&f);
        for (size_t i = 0; i < TARN_ARRAY_LEN(things); i++) {
            tarn_version_row row = fx_stat(&f, things[i].key);
            assert_int_equal(fx_read(&f, &row, i, 0, row.size), TARN_E_CORRUPT);
        }
        /* What can't be repaired doesn't stay in the queue, and nothing is written for it. */
        assert_int_equal(obj_repair_pass(f.s, NULL), TARN_OK);
        assert_int_equal(tarn_store_repairs_waiting(f.s), 0);
        fx_end(&f);
    }
}

/* A write that went to the wrong place: the good bytes of another object are not good here. */
static void test_misdirected(void **state)
{
    fx f;
    obj_blob a, b;
    (void)state;
    fx_init(&f, 4);
    fx_open(&f);
    fx_bucket(&f, "bucket", TARN_VERSIONING_OFF);
    (void)fx_put(&f, "one", 1, 100000, true);
    (void)fx_put(&f, "two", 2, 100000, true);
    tarn_version_row one = fx_stat(&f, "one"), two = fx_stat(&f, "two");
    char *path_a = shard_path(&f, &one, 0, &a), *path_b = shard_path(&f, &two, 0, &b);
    size_t n = obj_record_data_bytes(&a);
    char *bytes = malloc(n);
    int from = open(path_b, O_RDONLY | O_CLOEXEC), to = open(path_a, O_RDWR | O_CLOEXEC);
    assert_int_equal(pread(from, bytes, n, (off_t)(b.offset + b.head_bytes)), (ssize_t)n);
    assert_int_equal(pwrite(to, bytes, n, (off_t)(a.offset + a.head_bytes)), (ssize_t)n);
    int64_t before = tarn_metric_get(TARN_M_SHARDS_CORRUPT);
    fx_check(&f, "one", 1, 100000);
    assert_true(tarn_metric_get(TARN_M_SHARDS_CORRUPT) > before);
    free(bytes);
    (void)close(from);
    (void)close(to);
    tarn_free(path_a);
    tarn_free(path_b);
    fx_end(&f);
}

/* ------------------------------------------------------------------ files deleted while they are written */
static unsigned missing_of(fx *f, const char *key)
{
    obj_blob b;
    tarn_version_row row = fx_stat(f, key);
    assert_int_equal(obj_blob_unpack(row.layout, &b), TARN_OK);
    return (unsigned)__builtin_popcount(b.missing);
}

static void delete_segment_files(fx *f, const char *key, unsigned shards)
{
    obj_blob b;
    tarn_version_row row = fx_stat(f, key);
    for (unsigned i = 0; i < shards; i++) {
        char *path = shard_path(f, &row, i, &b);
        assert_int_equal(b.cls, OBJ_CLASS_SEGMENT);
        assert_int_equal(unlink(path), 0);
        tarn_free(path);
    }
}

/* The upload is complete but for its end when the files of the first shards are deleted. */
static void put_into_deleted_files(fx *f, const char *key, uint64_t seed, uint64_t size, unsigned shards)
{
    tarn_put_spec spec = fx_spec(f, key, size);
    tarn_put_result r;
    tarn_put *p = NULL;
    assert_int_equal(tarn_put_begin(f->s, &spec, f->arena, &p), TARN_OK);
    for (uint64_t at = 0; at < size;) {
        assert_int_equal(fx_put_piece(p, seed, &at, size, SIZE_MAX), TARN_OK);
    }
    for (unsigned i = 0; i < shards; i++) {
        char path[TARN_PATH_BYTES_MAX];
        assert_true(obj_path_blob(obj_drive_at(f->s, p->blob.set, obj_blob_drive(&p->blob, i, f->s->n)), &p->blob, path));
        assert_int_equal(unlink(path), 0);
    }
    assert_int_equal(tarn_put_finish(p, &r), TARN_OK);
}

static void test_a_file_deleted_while_it_is_written_does_not_count(void **state)
{
    fx f;
    (void)state;
    fx_init(&f, 6);
    fx_open(&f);
    fx_bucket(&f, "bucket", TARN_VERSIONING_OFF);
    (void)fx_put(&f, "one", 1, 100000, true);
    fx_check(&f, "one", 1, 100000); /* the reader's files stay open, too: repair must not take them for those it is to make */
    delete_segment_files(&f, "one", 2);
    (void)fx_put(&f, "two", 2, 100000, true); /* its segment is still open, and nameless on two drives */
    assert_int_equal(missing_of(&f, "two"), 2);
    (void)fx_put(&f, "three", 3, 100000, true);
    assert_int_equal(missing_of(&f, "three"), 0);
    put_into_deleted_files(&f, "file", 4, 5 * BLOCK + 1, 2);
    assert_int_equal(missing_of(&f, "file"), 2);
    assert_int_equal(tarn_metric_get(TARN_M_DRIVES_OFFLINE), 0);
    tarn_version_row one = fx_stat(&f, "one"); /* was whole when it was answered: for a read or the scrubber to find */
    obj_repair_ask(f.s, one.bucket_id, one.key, one.seq);
    assert_int_equal(obj_repair_pass(f.s, NULL), TARN_OK);
    assert_int_equal(tarn_store_repairs_waiting(f.s), 0);
    assert_whole(&f, "one");
    assert_whole(&f, "two");
    assert_whole(&f, "three");
    assert_whole(&f, "file");
    fx_end(&f);
}

/* With no other drive nothing is answered that a restart would not find; the next upload has a file of its own. */
static void test_a_deleted_file_on_the_only_drive_is_an_error(void **state)
{
    fx f;
    tarn_put_result r;
    (void)state;
    fx_init(&f, 1);
    fx_open(&f);
    fx_bucket(&f, "bucket", TARN_VERSIONING_OFF);
    (void)fx_put(&f, "one", 1, 100000, true);
    delete_segment_files(&f, "one", 1);
    tarn_put_spec spec = fx_spec(&f, "two", 100000);
    assert_int_equal(fx_put_spec(&f, &spec, 2, 100000, &r), TARN_E_QUORUM_WRITE);
    (void)fx_put(&f, "three", 3, 100000, true);
    reopen(&f);
    fx_check(&f, "three", 3, 100000);
    fx_end(&f);
}

/* ------------------------------------------------------------------ a file system that fails */
typedef struct bad_fs {
    tarn_fs fs;
    char prefix[300]; /* paths that begin with it are bad */
    int error;        /* of writes and syncs */
    bool sync_only;
    int64_t handles[4096];
    size_t handles_n;
} bad_fs;
static bad_fs bad;

static bool is_bad(int64_t handle)
{
    for (size_t i = 0; i < bad.handles_n; i++) {
        if (bad.handles[i] == handle) {
            return true;
        }
    }
    return false;
}

static int bad_open(tarn_fs *fs, const char *path, int flags, int mode, int64_t *handle)
{
    (void)fs;
    bool hit = bad.prefix[0] && strncmp(path, bad.prefix, strlen(bad.prefix)) == 0;
    if (hit && bad.error && !bad.sync_only && (flags & O_ACCMODE) != O_RDONLY) {
        return -bad.error;
    }
    int rc = tarn_fs_posix()->open(tarn_fs_posix(), path, flags, mode, handle);
    if (rc == 0 && hit) {
        assert_true(bad.handles_n < TARN_ARRAY_LEN(bad.handles));
        bad.handles[bad.handles_n++] = *handle;
    }
    return rc;
}

static int bad_close(tarn_fs *fs, int64_t handle)
{
    (void)fs;
    for (size_t i = 0; i < bad.handles_n; i++) {
        if (bad.handles[i] == handle) {
            bad.handles[i] = bad.handles[--bad.handles_n];
            break;
        }
    }
    return tarn_fs_posix()->close(tarn_fs_posix(), handle);
}

static int64_t bad_pwrite(tarn_fs *fs, int64_t handle, const void *buf, size_t n, uint64_t off)
{
    (void)fs;
    return bad.error && !bad.sync_only && is_bad(handle) ? -bad.error : tarn_fs_posix()->pwrite(tarn_fs_posix(), handle, buf, n, off);
}

static int bad_sync(tarn_fs *fs, int64_t handle, bool data_only)
{
    (void)fs;
    return bad.error && is_bad(handle) ? -bad.error : tarn_fs_posix()->sync(tarn_fs_posix(), handle, data_only);
}

/* Only the folders where objects lie: the copies of the database have tests of their own. */
static void bad_drive(fx *f, size_t drive, const char *below)
{
    tarn_sb b;
    tarn_sb_init_fixed(&b, bad.prefix, sizeof bad.prefix);
    tarn_sb_fmt(&b, "%s/tarn/%s", f->drives[drive], below);
    assert_false(b.failed);
}

static void bad_init(fx *f, size_t drives)
{
    memset(&bad, 0, sizeof bad);
    bad.fs = *tarn_fs_posix();
    bad.fs.real = false; /* every operation goes through the functions below */
    bad.fs.open = bad_open;
    bad.fs.close = bad_close;
    bad.fs.pwrite = bad_pwrite;
    bad.fs.sync = bad_sync;
    fx_init(f, drives);
    f->fs = &bad.fs;
    fx_open(f);
    fx_bucket(f, "bucket", TARN_VERSIONING_OFF);
}

static tarn_drive_state state_of(fx *f, size_t drive)
{
    tarn_drive_info info[FX_DRIVES_MAX];
    assert_int_equal(tarn_store_drives(f->s, info, FX_DRIVES_MAX), f->drives_n);
    return info[drive].state;
}

static void failing_put(const char *below, int error, bool sync_only, uint64_t size, tarn_drive_state expect)
{
    fx f;
    tarn_put_result r;
    obj_blob b;
    bad_init(&f, 4);
    (void)fx_put(&f, "before", 1, size, true);
    bad_drive(&f, 1, below);
    if (sync_only && strcmp(below, "segments") == 0) { /* the segment is open already: its handle must be known as bad */
        fx_close(&f);
        fx_open(&f);
        fx_reload_bucket(&f, "bucket");
    }
    bad.error = error;
    bad.sync_only = sync_only;
    tarn_put_spec spec = fx_spec(&f, "during", size);
    assert_int_equal(fx_put_spec(&f, &spec, 2, size, &r), TARN_OK);
    assert_int_equal(obj_blob_unpack(r.row.layout, &b), TARN_OK);
    assert_int_equal(__builtin_popcount(b.missing), 1);
    assert_int_equal(state_of(&f, 1), expect);
    assert_int_equal(tarn_metric_get(TARN_M_DRIVES_OFFLINE), expect == TARN_DRIVE_OK ? 0 : 1);
    fx_check(&f, "before", 1, size);
    fx_check(&f, "during", 2, size);
    assert_int_equal(tarn_store_repairs_waiting(f.s) >= 1, true);
    /* The drive is well again after the next start: the repair that was queued finds its place. */
    bad.error = 0;
    fx_close(&f);
    fx_open(&f);
    fx_reload_bucket(&f, "bucket");
    assert_int_equal(obj_repair_pass(f.s, NULL), TARN_OK);
    assert_int_equal(tarn_store_repairs_waiting(f.s), 0);
    assert_whole(&f, "during");
    assert_whole(&f, "before");
    fx_end(&f);
}

static void test_failing_put(void **state)
{
    (void)state;
    failing_put("parts", EIO, false, 5 * BLOCK, TARN_DRIVE_FAILED);
    failing_put("parts", EIO, true, 5 * BLOCK, TARN_DRIVE_FAILED);
    failing_put("parts", EROFS, false, 5 * BLOCK, TARN_DRIVE_READ_ONLY);
    failing_put("parts", ENOSPC, false, 5 * BLOCK, TARN_DRIVE_OK);
    failing_put("segments", EIO, true, 100000, TARN_DRIVE_FAILED);
}

/* Below the write quorum: an error that says which kind, nothing visible, and the rest goes on. */
static void test_quorum_lost(void **state)
{
    fx f;
    tarn_put_result r;
    (void)state;
    bad_init(&f, 1);
    (void)fx_put(&f, "a", 1, 5 * BLOCK, true);
    bad_drive(&f, 0, "parts");
    bad.error = ENOSPC;
    tarn_put_spec spec = fx_spec(&f, "b", 5 * BLOCK);
    assert_int_equal(fx_put_spec(&f, &spec, 2, 5 * BLOCK, &r), TARN_E_DISK_FULL);
    assert_int_equal(state_of(&f, 0), TARN_DRIVE_OK);
    fx_check(&f, "a", 1, 5 * BLOCK);
    bad.error = 0;
    (void)fx_put(&f, "b", 2, 5 * BLOCK, true);
    bad.error = EIO;
    spec = fx_spec(&f, "c", 5 * BLOCK);
    assert_int_equal(fx_put_spec(&f, &spec, 2, 5 * BLOCK, &r), TARN_E_QUORUM_WRITE);
    assert_int_equal(state_of(&f, 0), TARN_DRIVE_FAILED);
    assert_false(tarn_store_writable(f.s));
    spec = fx_spec(&f, "d", 10);
    tarn_put *p = NULL;
    assert_int_equal(tarn_put_begin(f.s, &spec, f.arena, &p), TARN_E_QUORUM_WRITE);
    bad.error = 0;
    fx_end(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_losses),
                                       cmocka_unit_test(test_a_trailer_alone_is_repaired),
                                       cmocka_unit_test(test_too_many),
                                       cmocka_unit_test(test_misdirected),
                                       cmocka_unit_test(test_a_file_deleted_while_it_is_written_does_not_count),
                                       cmocka_unit_test(test_a_deleted_file_on_the_only_drive_is_an_error),
                                       cmocka_unit_test(test_failing_put),
                                       cmocka_unit_test(test_quorum_lost)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
