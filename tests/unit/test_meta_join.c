/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A copy of the database that joins while commits go on: it ends up the same as the others, counts, and is believed at the
 * next start; one that fails on the way leaves nothing behind that would be believed.
 */
#include "meta_test.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>

static tarn_err put_number(tarn_meta_tx *tx, void *arg)
{
    uint64_t n = *(const uint64_t *)arg;
    char name[32], big[3000];
    tarn_sb b, v;

    memset(big, 'a' + (int)(n % 26), sizeof(big));
    for (uint64_t i = 0; i < 8; i++) {
        tarn_sb_init_fixed(&b, name, sizeof(name));
        tarn_sb_fmt(&b, "k%llu", (unsigned long long)((n * 8 + i) % 4000));
        tarn_err err = tarn_meta_kv_put(tx, name, (tarn_str){big, sizeof(big)});
        if (err != TARN_OK)
            return err;
    }
    tarn_sb_init_fixed(&v, name, sizeof(name));
    tarn_sb_u64(&v, n);
    return tarn_meta_kv_put(tx, "last", tarn_sb_view(&v));
}

static uint64_t last(fixture *f)
{
    tarn_str text;
    uint64_t n = 0;

    assert_int_equal(tarn_meta_kv_get(f->m, NULL, "last", f->arena, &text), TARN_OK);
    assert_true(tarn_str_to_u64(text, &n));
    return n;
}

typedef struct writer {
    fixture *f;
    atomic_bool stop;
    atomic_ullong done;
} writer;

static void *write_numbers(void *arg)
{
    writer *w = arg;

    for (uint64_t n = 1; !atomic_load(&w->stop); n++) {
        if (tarn_meta_commit(w->f->m, put_number, &n) != TARN_OK)
            break;
        atomic_store(&w->done, n);
    }
    return NULL;
}

static char *file_of(fixture *f, size_t dir, const char *name, char mem[META_TEST_PATH_BYTES * 2])
{
    tarn_sb b;

    tarn_sb_init_fixed(&b, mem, META_TEST_PATH_BYTES * 2);
    tarn_sb_fmt(&b, "%s/%s", f->dirs[dir], name);
    return mem;
}

static void same_files(fixture *f, size_t a, size_t b)
{
    char pa[META_TEST_PATH_BYTES * 2], pb[META_TEST_PATH_BYTES * 2];
    uint8_t x[4096], y[4096];
    int fa = open(file_of(f, a, "tarn.db", pa), O_RDONLY | O_CLOEXEC), fb = open(file_of(f, b, "tarn.db", pb), O_RDONLY | O_CLOEXEC);

    assert_true(fa >= 0 && fb >= 0);
    for (;;) {
        ssize_t n = read(fa, x, sizeof(x)), m = read(fb, y, sizeof(y));
        assert_int_equal(n, m);
        if (n <= 0)
            break;
        assert_memory_equal(x, y, (size_t)n);
    }
    (void)close(fa);
    (void)close(fb);
}

static void end(fixture *f)
{
    void *s = f;

    (void)fixture_teardown(&s);
}

/* Opens the first n folders of f. */
static void open_some(fixture *f, size_t n, size_t quorum)
{
    f->opt.dirs_n = n;
    f->opt.write_quorum = quorum;
    f->opt.inline_committer = false;
    fixture_reopen(f);
}

static void joins_while_commits_go_on(void **state)
{
    fixture *f = fixture_new(3, 3);
    writer w = {.f = f};
    pthread_t thread;

    (void)state;
    open_some(f, 2, 2);
    assert_int_equal(pthread_create(&thread, NULL, write_numbers, &w), 0);
    while (atomic_load(&w.done) < 300) /* some megabytes, and checkpoints on the way */
        usleep(1000);
    assert_int_equal(tarn_meta_copies_n(f->m), 2);
    assert_int_equal(tarn_meta_copy_join(f->m, f->dirs[2]), TARN_OK);
    assert_int_equal(tarn_meta_copies_good(f->m), 3);
    uint64_t at = atomic_load(&w.done);
    while (atomic_load(&w.done) < at + 200)
        usleep(1000);
    atomic_store(&w.stop, true);
    assert_int_equal(pthread_join(thread, NULL), 0);
    tarn_meta_close(f->m);
    f->m = NULL;
    same_files(f, 0, 2);
    f->opt.dirs_n = 3;
    f->opt.write_quorum = 2;
    fixture_reopen(f);
    assert_int_equal(last(f), atomic_load(&w.done));
    for (size_t i = 0; i < 3; i++)
        assert_false(tarn_meta_copy_behind(f->m, i));
    end(f);
}

static void a_copy_that_was_away_is_known(void **state)
{
    fixture *f = fixture_new(3, 3);
    uint64_t n = 1;

    (void)state;
    open_some(f, 3, 2);
    assert_int_equal(tarn_meta_commit(f->m, put_number, &n), TARN_OK);
    open_some(f, 2, 2);
    n = 2;
    assert_int_equal(tarn_meta_commit(f->m, put_number, &n), TARN_OK);
    open_some(f, 3, 2);
    assert_false(tarn_meta_copy_behind(f->m, 0));
    assert_true(tarn_meta_copy_behind(f->m, 2));
    assert_int_equal(last(f), 2);
    open_some(f, 3, 2);
    assert_false(tarn_meta_copy_behind(f->m, 2));
    end(f);
}

static void joins_again_after_it_went_out(void **state)
{
    fixture *f = fixture_new(2, 2);
    char path[META_TEST_PATH_BYTES * 2];
    uint64_t n = 1;

    (void)state;
    open_some(f, 1, 1);
    for (int round = 0; round < 3; round++) {
        assert_int_equal(tarn_meta_commit(f->m, put_number, &n), TARN_OK);
        assert_int_equal(tarn_meta_copy_join(f->m, f->dirs[1]), round == 0 ? TARN_OK : TARN_E_IO); /* a good copy holds its lock */
        n++;
    }
    assert_int_equal(tarn_meta_copies_good(f->m), 2);
    assert_int_equal(access(file_of(f, 1, "tarn.db", path), R_OK), 0);
    f->opt.dirs_n = 2;
    end(f);
}

static void refused_where_nothing_can_be_committed(void **state)
{
    fixture *f = fixture_new(3, 3);

    (void)state;
    open_some(f, 3, 3);
    open_some(f, 1, 3); /* one of three: nothing can be committed */
    assert_int_equal(tarn_meta_copy_join(f->m, f->dirs[1]), TARN_E_QUORUM_WRITE);
    f->opt.dirs_n = 3;
    end(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(joins_while_commits_go_on),
        cmocka_unit_test(a_copy_that_was_away_is_known),
        cmocka_unit_test(joins_again_after_it_went_out),
        cmocka_unit_test(refused_where_nothing_can_be_committed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
