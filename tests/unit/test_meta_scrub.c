/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Scrubbing the metadata on simulated drives: damaged pages and pages whose writes a drive lost in silence are mended from the
 * other copies; where it can't be told which is right nothing is touched.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "meta_internal.h"

#define VALUES 200

static const char *const dirs[] = {"/d0/m", "/d1/m", "/d2/m"};

typedef struct world {
    tarn_sim *sim;
    tarn_meta *m;
    size_t n;
    unsigned round;
} world;

static void store_open(world *w)
{
    tarn_meta_options mo = {.fs = tarn_sim_fs(w->sim),
                            .dirs = dirs,
                            .dirs_n = w->n,
                            .write_quorum = w->n / 2 + 1,
                            .cache_bytes = 1 << 20,
                            .inline_committer = true};
    assert_int_equal(tarn_meta_open(&mo, &w->m), TARN_OK);
}

static void world_open(world *w, size_t n)
{
    tarn_sim_options o = {.seed = 7, .drives_n = n, .drive_bytes = 1u << 30};
    tarn_clock_fake(true, 1767225600000);
    tarn_random_seed(7);
    *w = (world){.sim = tarn_sim_new(&o), .n = n};
    tarn_fs *fs = tarn_sim_fs(w->sim);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(fs->mkdir(fs, dirs[i], 0700), 0);
    store_open(w);
}

static void world_close(world *w)
{
    tarn_meta_close(w->m);
    tarn_sim_free(w->sim);
    tarn_random_seed(0);
    tarn_clock_fake(false, 0);
}

static tarn_err fill_fn(tarn_meta_tx *tx, void *arg)
{
    const world *w = arg;
    tarn_err err = TARN_OK;
    for (unsigned i = 0; i < VALUES && !err; i++) {
        tarn_str name = tarn_arena_fmt(tarn_meta_tx_arena(tx), "value-%u", i);
        tarn_str value = tarn_arena_fmt(tarn_meta_tx_arena(tx), "%u in round %2000u", i, w->round);
        err = tarn_meta_kv_put(tx, name.p, value);
    }
    return err;
}

static void fill(world *w)
{
    w->round++;
    assert_int_equal(tarn_meta_commit(w->m, fill_fn, w), TARN_OK);
    assert_int_equal(tarn_meta_checkpoint(w->m), TARN_OK);
}

static tarn_meta_scrub_counts scrub(world *w, bool repair)
{
    tarn_meta_scrub_counts c;
    assert_int_equal(tarn_meta_scrub(w->m, repair, NULL, NULL, &c), TARN_OK);
    assert_true(c.pages > 5);
    return c;
}

/* Byte for byte, as the drives have it. */
static void assert_same(const world *w)
{
    static uint8_t a[2u << 20], b[2u << 20];
    tarn_fs *fs = tarn_sim_fs(w->sim);
    int64_t first = 0;
    for (size_t i = 0; i < w->n; i++) {
        char path[64];
        tarn_sb p;
        tarn_file *f = NULL;
        tarn_sb_init_fixed(&p, path, sizeof path);
        tarn_sb_fmt(&p, "%s/tarn.db", dirs[i]);
        assert_int_equal(tarn_file_open_sync(fs, path, O_RDONLY, 0, &f), 0);
        int64_t got = tarn_file_pread_sync(f, i == 0 ? a : b, sizeof a, 0);
        tarn_file_unref(f);
        assert_true(got > 0 && got < (int64_t)sizeof a);
        if (i == 0)
            first = got;
        assert_int_equal(got, first);
        assert_memory_equal(a, i == 0 ? a : b, (size_t)got);
    }
}

static void test_damage(void **state)
{
    (void)state;
    world w;
    world_open(&w, 3);
    fill(&w);
    assert_int_equal(scrub(&w, true).damaged, 0);
    for (size_t d = 0; d < 3; d++) {
        assert_int_equal(tarn_sim_damage(w.sim, d, "tarn.db", 6), 6);
        tarn_meta_scrub_counts seen = scrub(&w, false);
        assert_true(seen.damaged > 0 && seen.repaired == 0 && seen.undecided == 0);
        tarn_meta_scrub_counts mended = scrub(&w, true);
        assert_int_equal(mended.damaged, seen.damaged);
        assert_int_equal(mended.repaired, seen.damaged);
        assert_int_equal(scrub(&w, true).damaged, 0);
        assert_same(&w);
    }
    world_close(&w);
}

/* The drive says that it has written, and has an older page whose checksum is right. */
static void lost_writes(size_t n, bool reopened, bool decided)
{
    world w;
    tarn_sim_fault lost = {.faults = TARN_SIM_WRITE_LOST, .per_mille = 1000, .path_has = "tarn.db"};
    world_open(&w, n);
    fill(&w);
    tarn_sim_set_fault(w.sim, n - 1, &lost);
    fill(&w);
    tarn_sim_set_fault(w.sim, n - 1, NULL);
    if (reopened) { /* what was written is not known any more */
        tarn_meta_close(w.m);
        store_open(&w);
    }
    tarn_meta_scrub_counts c = scrub(&w, true);
    assert_true(c.damaged > 0);
    if (decided) {
        assert_int_equal(c.repaired, c.damaged);
        assert_int_equal(c.undecided, 0);
        assert_int_equal(scrub(&w, true).damaged, 0);
        assert_same(&w);
    } else {
        assert_int_equal(c.repaired, 0);
        assert_true(c.undecided > 0);
    }
    world_close(&w);
}

static void test_lost_writes(void **state)
{
    (void)state;
    lost_writes(3, false, true);
    lost_writes(3, true, true);
    lost_writes(2, false, true);
}

/* The drive that is read from has lost pages in silence: no answer is an older one. */
static void test_lost_writes_are_not_answered_with(void **state)
{
    (void)state;
    world w;
    tarn_sim_fault lost = {.faults = TARN_SIM_WRITE_LOST, .per_mille = 1000, .path_has = "tarn.db"};
    tarn_arena *a = tarn_arena_new(1u << 20);
    world_open(&w, 2);
    fill(&w);
    tarn_sim_set_fault(w.sim, 0, &lost);
    fill(&w);
    tarn_sim_set_fault(w.sim, 0, NULL);
    for (unsigned i = 0; i < VALUES; i++) {
        tarn_str value;
        char name[32];
        tarn_sb b;
        tarn_sb_init_fixed(&b, name, sizeof name);
        tarn_sb_fmt(&b, "value-%u", i);
        assert_int_equal(tarn_meta_kv_get(w.m, NULL, name, a, &value), TARN_OK);
        assert_true(tarn_str_ends(value, "2"));
    }
    tarn_arena_free(a);
    world_close(&w);
}

static void test_two_against_each_other(void **state)
{
    (void)state;
    lost_writes(2, true, false);
}

/* A copy that cannot make durable what was mended goes out; the others stay. */
static void test_sync_fails(void **state)
{
    (void)state;
    world w;
    tarn_sim_fault fault = {.faults = TARN_SIM_SYNC_FAILS, .per_mille = 1000};
    world_open(&w, 3);
    fill(&w);
    assert_int_equal(tarn_sim_damage(w.sim, 2, "tarn.db", 3), 3);
    tarn_sim_set_fault(w.sim, 2, &fault);
    assert_true(scrub(&w, true).repaired > 0);
    assert_int_equal(tarn_meta_copies_good(w.m), 2);
    assert_int_equal(scrub(&w, true).damaged, 0);
    world_close(&w);
}

static bool stop_at_once(void *ctx, uint64_t bytes)
{
    *(uint64_t *)ctx = bytes;
    return false;
}

static void test_stop(void **state)
{
    (void)state;
    world w;
    uint64_t bytes = 0;
    tarn_meta_scrub_counts c;
    world_open(&w, 3);
    fill(&w);
    tarn_err err = tarn_meta_scrub(w.m, true, stop_at_once, &bytes, &c);
    assert_int_equal(err, TARN_E_CANCELED);
    assert_int_equal(bytes, c.pages * 3 * META_PAGE_BYTES);
    world_close(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_damage),     cmocka_unit_test(test_lost_writes), cmocka_unit_test(test_two_against_each_other),
        cmocka_unit_test(test_sync_fails), cmocka_unit_test(test_stop),        cmocka_unit_test(test_lost_writes_are_not_answered_with),
    };
    (void)tarn_log_open("/dev/null", TARN_LOG_HUMAN, TARN_LOG_ERROR);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
