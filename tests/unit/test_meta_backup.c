/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Backups of the metadata: consistent while commits go on, checked page by page, refused when a bit is wrong, and put back over
 * what was there.
 */
#include "meta_test.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

typedef struct pair_arg {
    uint64_t n;
} pair_arg;

/* Both values change together: a copy that has one without the other is no snapshot. */
static tarn_err put_pair(tarn_meta_tx *tx, void *arg)
{
    const pair_arg *a = arg;
    char mem[32], big[3000];
    tarn_sb b;

    tarn_sb_init_fixed(&b, mem, sizeof(mem));
    tarn_sb_u64(&b, a->n);
    memset(big, 'a' + (int)(a->n % 26), sizeof(big));
    tarn_err err = tarn_meta_kv_put(tx, "left", tarn_sb_view(&b));
    for (uint64_t i = 0; i < 20 && err == TARN_OK; i++) { /* pages apart from each other */
        char name[32];
        tarn_sb nb;
        tarn_sb_init_fixed(&nb, name, sizeof(name));
        tarn_sb_fmt(&nb, "fill-%llu", (unsigned long long)(i + 20 * (a->n % 20)));
        err = tarn_meta_kv_put(tx, nb.p, (tarn_str){big, sizeof(big)});
    }
    return err == TARN_OK ? tarn_meta_kv_put(tx, "right", tarn_sb_view(&b)) : err;
}

static uint64_t get(fixture *f, const char *name)
{
    tarn_str text;
    uint64_t v = 0;

    assert_int_equal(tarn_meta_kv_get(f->m, NULL, name, f->arena, &text), TARN_OK);
    assert_true(tarn_str_to_u64(text, &v));
    return v;
}

typedef struct writer {
    fixture *f;
    atomic_bool stop;
    atomic_ullong done;
} writer;

static void *write_pairs(void *arg)
{
    writer *w = arg;

    for (pair_arg a = {1}; !atomic_load(&w->stop); a.n++) {
        if (tarn_meta_commit(w->f->m, put_pair, &a) != TARN_OK)
            break;
        atomic_store(&w->done, a.n);
    }
    return NULL;
}

static char *backup_path(fixture *f, char mem[META_TEST_PATH_BYTES * 2])
{
    tarn_sb b;

    tarn_sb_init_fixed(&b, mem, META_TEST_PATH_BYTES * 2);
    tarn_sb_fmt(&b, "%s/backup.db", f->dirs[0]);
    return mem;
}

static fixture *open_threaded(size_t dirs)
{
    fixture *f = fixture_new(dirs, dirs);

    f->opt.inline_committer = false;
    fixture_reopen(f);
    return f;
}

static void backup_under_writes_is_a_snapshot(void **state)
{
    char path[META_TEST_PATH_BYTES * 2];
    fixture *f = open_threaded(2);
    writer w = {.f = f};
    pthread_t thread;

    (void)state;
    assert_int_equal(pthread_create(&thread, NULL, write_pairs, &w), 0);
    while (atomic_load(&w.done) < 20)
        usleep(1000);
    for (int round = 0; round < 5; round++) {
        uint64_t before = atomic_load(&w.done);
        assert_int_equal(tarn_meta_backup(f->m, f->opt.fs, backup_path(f, path), NULL, NULL), TARN_OK);
        uint64_t after = atomic_load(&w.done);
        assert_int_equal(tarn_meta_backup_check(f->opt.fs, path), TARN_OK);
        fixture *g = fixture_new(1, 1); /* put back elsewhere */
        assert_int_equal(tarn_meta_restore(&g->opt, f->opt.fs, path), TARN_OK);
        fixture_reopen(g);
        uint64_t left = get(g, "left");
        assert_int_equal(left, get(g, "right"));
        assert_true(left >= before && left <= after + 1);
        void *s = g;
        (void)fixture_teardown(&s);
    }
    atomic_store(&w.stop, true);
    assert_int_equal(pthread_join(thread, NULL), 0);
    void *s = f;
    (void)fixture_teardown(&s);
}

static void restore_goes_over_what_is_there(void **state)
{
    char path[META_TEST_PATH_BYTES * 2];
    fixture *f = open_threaded(3);
    pair_arg a = {7};

    (void)state;
    assert_int_equal(tarn_meta_commit(f->m, put_pair, &a), TARN_OK);
    assert_int_equal(tarn_meta_backup(f->m, f->opt.fs, backup_path(f, path), NULL, NULL), TARN_OK);
    a.n = 8;
    assert_int_equal(tarn_meta_commit(f->m, put_pair, &a), TARN_OK);
    tarn_meta_close(f->m);
    f->m = NULL;
    /* One copy is away while the others are restored: what it has is behind. */
    tarn_meta_options two = f->opt;
    two.dirs_n = 2;
    two.write_quorum = 2;
    assert_int_equal(tarn_meta_restore(&two, f->opt.fs, path), TARN_OK);
    fixture_reopen(f);
    assert_int_equal(get(f, "left"), 7);
    assert_int_equal(tarn_meta_copies_good(f->m), 3);
    void *s = f;
    (void)fixture_teardown(&s);
}

static void record_copy(fixture *f, size_t dir, uint8_t bytes[8192], bool put)
{
    char path[META_TEST_PATH_BYTES * 2];
    int fd;

    assert_true(snprintf(path, sizeof(path), "%s/tarn.gen", f->opt.dirs[dir]) > 0);
    fd = open(path, O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_true(put ? pwrite(fd, bytes, 8192, 0) == 8192 : pread(fd, bytes, 8192, 0) > 4096);
    (void)close(fd);
}

/* What is restored to be added to is opened by nobody else before it is finished; then by everybody, and one copy that says so is
 * enough. */
static void unfinished_restore_is_refused(void **state)
{
    char path[META_TEST_PATH_BYTES * 2];
    uint8_t records[2][8192] = {{0}};
    fixture *f = open_threaded(3);
    pair_arg a = {7};
    tarn_meta *m = NULL;

    (void)state;
    assert_int_equal(tarn_meta_commit(f->m, put_pair, &a), TARN_OK);
    assert_int_equal(tarn_meta_backup(f->m, f->opt.fs, backup_path(f, path), NULL, NULL), TARN_OK);
    tarn_meta_close(f->m);
    f->m = NULL;
    tarn_meta_options unfinished = f->opt;
    unfinished.unfinished = true;
    assert_false(tarn_meta_copy_unfinished(f->opt.fs, f->opt.dirs[0]));
    assert_int_equal(tarn_meta_restore(&unfinished, f->opt.fs, path), TARN_OK);
    assert_int_equal(tarn_meta_open(&f->opt, &m), TARN_E_UNFINISHED);
    assert_true(tarn_meta_copy_unfinished(f->opt.fs, f->opt.dirs[0]));
    for (unsigned i = 0; i < 2; i++) { /* closed in between, as if by an attempt that failed */
        a.n = 8 + i;
        assert_int_equal(tarn_meta_open(&unfinished, &m), TARN_OK);
        assert_int_equal(tarn_meta_commit(m, put_pair, &a), TARN_OK);
        tarn_meta_close(m);
        assert_int_equal(tarn_meta_open(&f->opt, &m), TARN_E_UNFINISHED);
    }
    assert_int_equal(tarn_meta_open(&unfinished, &m), TARN_OK);
    record_copy(f, 0, records[0], false);
    record_copy(f, 2, records[1], false);
    assert_int_equal(tarn_meta_finish(m), TARN_OK);
    tarn_meta_close(m);
    record_copy(f, 0, records[0], true);
    record_copy(f, 2, records[1], true);
    fixture_reopen(f);
    assert_int_equal(get(f, "left"), 9);
    assert_int_equal(tarn_meta_copies_good(f->m), 3);
    assert_false(tarn_meta_copy_unfinished(f->opt.fs, f->opt.dirs[0]));
    void *s = f;
    (void)fixture_teardown(&s);
}

static void flip(const char *path, off_t at)
{
    uint8_t b = 0;
    int fd = open(path, O_RDWR | O_CLOEXEC);

    assert_true(fd >= 0 && pread(fd, &b, 1, at) == 1);
    b ^= 0x10;
    assert_true(pwrite(fd, &b, 1, at) == 1);
    (void)close(fd);
}

static void damaged_backups_are_refused(void **state)
{
    char path[META_TEST_PATH_BYTES * 2];
    fixture *f = open_threaded(1);
    pair_arg a = {7};

    (void)state;
    assert_int_equal(tarn_meta_commit(f->m, put_pair, &a), TARN_OK);
    assert_int_equal(tarn_meta_backup(f->m, f->opt.fs, backup_path(f, path), NULL, NULL), TARN_OK);
    tarn_meta_close(f->m);
    f->m = NULL;
    flip(path, 4096 * 3 + 100);
    assert_int_equal(tarn_meta_backup_check(f->opt.fs, path), TARN_E_CORRUPT);
    assert_int_equal(tarn_meta_restore(&f->opt, f->opt.fs, path), TARN_E_CORRUPT);
    flip(path, 4096 * 3 + 100);
    flip(path, 3);
    assert_int_equal(tarn_meta_backup_check(f->opt.fs, path), TARN_E_FORMAT);
    flip(path, 3);
    assert_int_equal(truncate(path, 4096 * 4), 0);
    assert_int_equal(tarn_meta_backup_check(f->opt.fs, path), TARN_E_FORMAT);
    assert_int_equal(truncate(path, 4097), 0);
    assert_int_equal(tarn_meta_backup_check(f->opt.fs, path), TARN_E_FORMAT);
    assert_int_equal(truncate(path, 0), 0);
    assert_int_equal(tarn_meta_backup_check(f->opt.fs, path), TARN_E_FORMAT);
    fixture_reopen(f); /* nothing of it has reached the database */
    assert_int_equal(get(f, "left"), 7);
    void *s = f;
    (void)fixture_teardown(&s);
}

static bool never(void *ctx)
{
    ++*(int *)ctx;
    return false;
}

static void a_backup_can_be_ended(void **state)
{
    char path[META_TEST_PATH_BYTES * 2];
    fixture *f = open_threaded(1);
    int steps = 0;

    (void)state;
    for (pair_arg a = {0}; a.n < 20; a.n++) /* more than one step's worth */
        assert_int_equal(tarn_meta_commit(f->m, put_pair, &a), TARN_OK);
    assert_int_equal(tarn_meta_backup(f->m, f->opt.fs, backup_path(f, path), never, &steps), TARN_E_CANCELED);
    assert_int_equal(steps, 1);
    void *s = f;
    (void)fixture_teardown(&s);
}

static tarn_err leave_out(tarn_meta_tx *tx, void *arg)
{
    return tarn_meta_tx_seq_skip(tx, *(uint64_t *)arg);
}

static tarn_err draw(tarn_meta_tx *tx, void *arg)
{
    *(uint64_t *)arg = tarn_meta_tx_seq(tx);
    return TARN_OK;
}

static void skipped_numbers_stay_skipped(void **state)
{
    fixture *f = *state;
    uint64_t a = 0, b = 0, by = UINT64_C(1) << 40, too_far = UINT64_C(1) << 63;

    assert_int_equal(tarn_meta_commit(f->m, draw, &a), TARN_OK);
    assert_int_equal(tarn_meta_commit(f->m, leave_out, &by), TARN_OK);
    assert_int_equal(tarn_meta_commit(f->m, draw, &b), TARN_OK);
    assert_true(b > a + by);
    fixture_reopen(f);
    assert_int_equal(tarn_meta_commit(f->m, draw, &a), TARN_OK);
    assert_true(a > b);
    assert_int_equal(tarn_meta_commit(f->m, leave_out, &too_far), TARN_E_LIMIT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(backup_under_writes_is_a_snapshot),
        cmocka_unit_test(restore_goes_over_what_is_there),
        cmocka_unit_test(unfinished_restore_is_refused),
        cmocka_unit_test(damaged_backups_are_refused),
        cmocka_unit_test(a_backup_can_be_ended),
        cmocka_unit_test_setup_teardown(skipped_numbers_stay_skipped, fixture_setup, fixture_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
