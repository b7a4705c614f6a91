/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The start and rebuild-index on simulated drives, when a read fails: it is not taken for "there is nothing". Each call that can
 * fail fails once, and the power goes at many places: no empty database is made where there was one, nothing is left out
 * with OK, and nobody starts with half an index.
 */
#include "object_fixture.h"

#include "upkeep.h"

#define PATHS_MAX 64
#define LINES_BYTES_MAX (256u * 1024)

typedef struct world {
    fx f;
    tarn_sim *sim;
    tarn_sb lines; /* what the rebuilding said */
    tarn_str reason;
} world;

/* ------------------------------------------------------------------ a store on simulated drives */
static void world_init(world *w, size_t drives_n)
{
    *w = (world){.f = {.drives_n = drives_n, .inline_max = 1000, .segment_max = 100000, .one_thread = true}};
    tarn_clock_fake(true, 1767225600000);
    tarn_random_seed(1);
    tarn_sim_options o = {.seed = 1, .drives_n = drives_n, .drive_bytes = 1ull << 30};
    w->sim = tarn_sim_new(&o);
    assert_non_null(w->sim);
    w->f.fs = tarn_sim_fs(w->sim);
    for (size_t i = 0; i < drives_n; i++) {
        w->f.drives[i] = fx_fmt("/d%zu", i);
    }
    tarn_sb_init(&w->lines, LINES_BYTES_MAX);
}

static void world_end(world *w)
{
    fx_close(&w->f);
    tarn_sim_free(w->sim);
    tarn_sb_free(&w->lines);
    for (size_t i = 0; i < w->f.drives_n; i++) {
        tarn_free(w->f.drives[i]);
    }
    tarn_clock_fake(false, 0);
    tarn_random_seed(0);
}

static tarn_err try_open(world *w)
{
    fx_close(&w->f);
    tarn_err err = fx_try_open(&w->f, &w->reason);
    w->f.s = err ? NULL : w->f.s;
    return err;
}

static void put_multipart(fx *f)
{
    tarn_attrs a = {.content_type = TARN_STR("x/y")};
    tarn_str key = TARN_STR("multi");
    uint64_t id = 0, nonce = 0;
    uint32_t bad = 0;
    tarn_put_result r;
    assert_int_equal(tarn_upload_create(f->s, &f->bucket, key, TARN_STR("me"), &a, &id, &nonce), TARN_OK);
    tarn_put_spec spec = {.bucket = &f->bucket, .key = key, .size_hint = 70000, .is_part = true, .upload_id = id, .part_number = 1};
    assert_int_equal(fx_put_spec(f, &spec, 4, 70000, &r), TARN_OK);
    tarn_complete_part part = {.number = 1, .etag = r.row.etag};
    tarn_complete_spec complete = {.bucket = &f->bucket, .key = key, .upload_id = id, .nonce = nonce, .parts = &part, .parts_n = 1};
    assert_int_equal(tarn_upload_complete(f->s, &complete, f->arena, &r, &bad), TARN_OK);
}

/* An inline object, which only the backup has, and one of each other kind, one of them newer than the backup. */
static void fill(world *w, bool backup)
{
    assert_int_equal(try_open(w), TARN_OK);
    fx_bucket(&w->f, "bucket", TARN_VERSIONING_OFF);
    (void)fx_put(&w->f, "inline", 1, 100, true);
    (void)fx_put(&w->f, "segment", 2, 50000, true);
    if (backup) {
        assert_int_equal(tarn_store_backup_keep(w->f.s), TARN_OK);
    }
    (void)fx_put(&w->f, "file", 3, 150000, true);
    put_multipart(&w->f);
    fx_close(&w->f);
}

static void check(world *w, bool with_inline)
{
    assert_int_equal(try_open(w), TARN_OK);
    fx_reload_bucket(&w->f, "bucket");
    if (with_inline) {
        fx_check(&w->f, "inline", 1, 100);
    }
    fx_check(&w->f, "segment", 2, 50000);
    fx_check(&w->f, "file", 3, 150000);
    fx_check(&w->f, "multi", 4, 70000);
    fx_close(&w->f);
}

typedef struct names {
    char mem[PATHS_MAX][64];
    size_t n;
} names;

static bool take_name(void *ctx, const char *name, bool is_dir)
{
    names *l = ctx;
    if (!is_dir && l->n < PATHS_MAX) {
        (void)snprintf(l->mem[l->n++], sizeof l->mem[0], "%s", name);
    }
    return true;
}

static names meta_names(world *w, size_t drive)
{
    names l = {.n = 0};
    char *path = fx_fmt("/d%zu/tarn/meta", drive);
    assert_int_equal(w->f.fs->list(w->f.fs, path, take_name, &l), 0);
    tarn_free(path);
    return l;
}

static void lose_database(world *w)
{
    for (size_t d = 0; d < w->f.drives_n; d++) {
        names l = meta_names(w, d);
        for (size_t i = 0; i < l.n; i++) {
            char *path = fx_fmt("/d%zu/tarn/meta/%s", d, l.mem[i]);
            assert_int_equal(w->f.fs->unlink(w->f.fs, path), 0);
            tarn_free(path);
        }
    }
}

static void take_line(void *ctx, tarn_str line)
{
    world *w = ctx;
    tarn_sb_str(&w->lines, line);
    tarn_sb_char(&w->lines, '\n');
}

static tarn_err rebuild(world *w, bool force)
{
    fx *f = &w->f;
    fx_close(f);
    f->arena = tarn_arena_new(512u << 20);
    w->reason = TARN_STR("");
    tarn_sb_reset(&w->lines);
    tarn_store_options o = {.fs = f->fs,
                            .drives = (const char *const *)f->drives,
                            .drives_n = f->drives_n,
                            .inline_bytes_max = f->inline_max,
                            .segment_object_bytes_max = f->segment_max,
                            .inline_committer = true};
    tarn_offline to = {.say = take_line, .ctx = w, .arena = f->arena, .reason = &w->reason};
    tarn_rebuild_spec spec = {.force = force, .owner = TARN_STR("me")};
    tarn_rebuild_report out;
    return tarn_store_rebuild(&o, &spec, &to, &out);
}

static bool says(tarn_str text, const char *words)
{
    return tarn_str_find(text, tarn_str_of(words)) >= 0;
}

static void fault(world *w, size_t drive, unsigned faults, const char *path_has)
{
    tarn_sim_fault f = {.faults = faults, .per_mille = 1000, .path_has = path_has};
    tarn_sim_set_fault(w->sim, drive, faults ? &f : NULL);
}

static const unsigned calls[] = {TARN_SIM_CALL_READ, TARN_SIM_CALL_OPEN};

/* ------------------------------------------------------------------ the start */
/* All copies of the database are lost, the data is there, and one call fails: nobody takes the drives for new ones. */
static void failed_call_makes_no_empty_database_on(size_t drives_n)
{
    world w;
    world_init(&w, drives_n);
    fill(&w, true);
    lose_database(&w);
    assert_int_equal(try_open(&w), TARN_E_NOT_FOUND);
    for (size_t k = 0; k < TARN_ARRAY_LEN(calls); k++) {
        uint64_t n = 0, made;
        do {
            made = tarn_sim_calls(w.sim, calls[k]);
            tarn_sim_fail_nth(w.sim, calls[k], ++n, EIO);
            assert_int_not_equal(try_open(&w), TARN_OK);
            made = tarn_sim_calls(w.sim, calls[k]) - made;
            tarn_sim_fail_nth(w.sim, 0, 0, 0);
            assert_int_equal(try_open(&w), TARN_E_NOT_FOUND);
            assert_true(says(w.reason, "rebuild-index"));
        } while (n <= made);
        assert_true(n > 2);
    }
    assert_int_equal(rebuild(&w, false), TARN_OK);
    check(&w, true);
    world_end(&w);
}

static void failed_call_makes_no_empty_database(void **state)
{
    (void)state;
    failed_call_makes_no_empty_database_on(1);
    failed_call_makes_no_empty_database_on(4);
}

static uint8_t format_state(world *w, size_t drive)
{
    char bytes[80], *path = fx_fmt("/d%zu/tarn/format", drive);
    tarn_file *file = NULL;
    assert_int_equal(tarn_file_open_sync(w->f.fs, path, O_RDONLY | O_CLOEXEC, 0, &file), 0);
    assert_int_equal(tarn_file_pread_sync(file, bytes, sizeof bytes, 0), sizeof bytes);
    tarn_file_unref(file);
    tarn_free(path);
    return (uint8_t)bytes[64];
}

/* A new store that opens has finished formatting, also where a read failed: else it passes for an empty one for ever. */
static void opened_store_is_formatted(void **state)
{
    uint64_t n = 0, made;
    (void)state;
    do {
        world w;
        world_init(&w, 1);
        uint64_t before = tarn_sim_calls(w.sim, TARN_SIM_CALL_READ);
        tarn_sim_fail_nth(w.sim, TARN_SIM_CALL_READ, ++n, EIO);
        tarn_err err = try_open(&w);
        made = tarn_sim_calls(w.sim, TARN_SIM_CALL_READ) - before;
        fx_close(&w.f);
        if (!err) {
            tarn_sim_fail_nth(w.sim, 0, 0, 0);
            assert_int_equal(format_state(&w, 0), 0);
        }
        world_end(&w);
    } while (n <= made);
    assert_true(n > 2);
}

static tarn_drive_state state_of(world *w, size_t drive)
{
    tarn_drive_info info[FX_DRIVES_MAX];
    (void)tarn_store_drives(w->f.s, info, FX_DRIVES_MAX);
    return info[drive].state;
}

/* Drives that are empty beside one that can't be read: it may hold the deployment, so that nothing is made, and nothing written. */
static void unreadable_drive_stops_a_new_store(void **state)
{
    world w;
    (void)state;
    world_init(&w, 4);
    fault(&w, 2, TARN_SIM_OPEN_FAILS, NULL);
    assert_int_equal(try_open(&w), TARN_E_IO);
    assert_true(says(w.reason, "/d2") && says(w.reason, "empty folder"));
    assert_int_equal(tarn_sim_calls(w.sim, TARN_SIM_CALL_WRITE), 0);
    fault(&w, 2, 0, NULL);
    assert_int_equal(try_open(&w), TARN_OK);
    world_end(&w);
}

/* The same where the power went while the drives were being formatted: it must stay possible to go on. */
static void unreadable_drive_spoils_no_formatting(void **state)
{
    bool done = false;
    (void)state;
    for (uint64_t cut = 1; !done; cut += 5) {
        world w;
        world_init(&w, 4);
        tarn_sim_cut_after(w.sim, cut);
        done = try_open(&w) == TARN_OK;
        fx_close(&w.f);
        tarn_sim_cut_after(w.sim, 0);
        if (tarn_sim_power_lost(w.sim)) {
            tarn_sim_power_on(w.sim);
        }
        fault(&w, cut % 4, TARN_SIM_OPEN_FAILS, NULL);
        tarn_err err = try_open(&w);
        if (err) {
            assert_int_equal(err, TARN_E_IO);
        }
        fault(&w, cut % 4, 0, NULL);
        assert_int_equal(try_open(&w), TARN_OK);
        for (size_t i = 0; i < 4; i++) {
            assert_true(state_of(&w, i) == TARN_DRIVE_OK || state_of(&w, i) == TARN_DRIVE_NEW);
        }
        fx_bucket(&w.f, "bucket", TARN_VERSIONING_OFF);
        (void)fx_put(&w.f, "segment", 2, 50000, true);
        fx_check(&w.f, "segment", 2, 50000);
        world_end(&w);
    }
}

/* What the others say is enough. */
static void one_unreadable_drive_stops_no_start(void **state)
{
    (void)state;
    for (size_t drive = 0; drive < 4; drive++) {
        world w;
        world_init(&w, 4);
        fill(&w, false);
        fault(&w, drive, TARN_SIM_OPEN_FAILS, NULL);
        check(&w, true);
        assert_int_equal(try_open(&w), TARN_OK);
        assert_int_equal(state_of(&w, drive), TARN_DRIVE_FAILED);
        world_end(&w);
    }
}

/* ------------------------------------------------------------------ the backup */
static void unread_backup_is_not_no_backup(void **state)
{
    world w;
    (void)state;
    world_init(&w, 1);
    fill(&w, true);
    lose_database(&w);
    fault(&w, 0, TARN_SIM_READ_FAILS, "/backup/meta-");
    assert_int_equal(rebuild(&w, false), TARN_E_IO);
    assert_true(says(w.reason, "/backup/meta-") && says(w.reason, "nothing was changed"));
    assert_int_equal(meta_names(&w, 0).n, 0);
    fault(&w, 0, 0, NULL);
    assert_int_equal(rebuild(&w, false), TARN_OK);
    check(&w, true);
    world_end(&w);
}

static void backup_is_read_from_another_drive(void **state)
{
    world w;
    (void)state;
    world_init(&w, 4);
    fill(&w, true);
    lose_database(&w);
    for (size_t i = 0; i < 3; i++) {
        fault(&w, i, TARN_SIM_READ_FAILS, "/backup/meta-");
    }
    assert_int_equal(rebuild(&w, false), TARN_OK);
    assert_true(says(tarn_sb_view(&w.lines), "can't be read") && says(tarn_sb_view(&w.lines), "beginning with the backup /d3/"));
    check(&w, true);
    /* a damaged copy is no unread one: the older backup counts when all are damaged */
    for (size_t i = 0; i < 4; i++) {
        fault(&w, i, 0, NULL);
        assert_true(tarn_sim_damage(w.sim, i, "/backup/meta-", 40) > 0);
    }
    lose_database(&w);
    assert_int_equal(rebuild(&w, false), TARN_OK);
    assert_true(says(tarn_sb_view(&w.lines), "it is damaged") && says(tarn_sb_view(&w.lines), "there is no backup"));
    check(&w, false);
    world_end(&w);
}

/* ------------------------------------------------------------------ the rebuilding */
/* Each call fails once: OK means that all is there; after an error nobody starts with less, and the next attempt needs no force. */
static void nothing_is_left_out_on(size_t drives_n, unsigned kind, bool backup)
{
    world w;
    uint64_t n = 0, made, refused = 0;
    world_init(&w, drives_n);
    fill(&w, backup);
    do {
        lose_database(&w);
        made = tarn_sim_calls(w.sim, kind);
        tarn_sim_fail_nth(w.sim, kind, ++n, EIO);
        tarn_err err = rebuild(&w, false);
        made = tarn_sim_calls(w.sim, kind) - made;
        tarn_sim_fail_nth(w.sim, 0, 0, 0);
        if (err) {
            refused++;
            assert_true(w.reason.n > 0);
            assert_int_not_equal(try_open(&w), TARN_OK);
            assert_true(says(w.reason, "rebuild-index"));
            assert_int_equal(rebuild(&w, false), TARN_OK);
        }
        check(&w, backup);
    } while (n <= made);
    assert_true(refused > 0 && n > 20);
    world_end(&w);
}

static void failed_read_leaves_nothing_out(void **state)
{
    (void)state;
    nothing_is_left_out_on(1, TARN_SIM_CALL_READ, true);
    nothing_is_left_out_on(1, TARN_SIM_CALL_READ, false);
    nothing_is_left_out_on(1, TARN_SIM_CALL_OPEN, true);
    nothing_is_left_out_on(4, TARN_SIM_CALL_READ, false);
}

/* Every read of the data of one drive fails: the others make up for it; where there are none, all that is affected is named. */
static void unread_data_is_named(void **state)
{
    world w;
    (void)state;
    world_init(&w, 4);
    fill(&w, true);
    lose_database(&w);
    fault(&w, 1, TARN_SIM_READ_FAILS, "/manifests/");
    assert_int_equal(rebuild(&w, false), TARN_OK);
    fault(&w, 1, 0, NULL);
    check(&w, true);
    world_end(&w);
    world_init(&w, 1);
    fill(&w, true);
    lose_database(&w);
    fault(&w, 0, TARN_SIM_READ_FAILS, "/manifests/");
    assert_int_equal(rebuild(&w, false), TARN_E_IO);
    assert_true(says(tarn_sb_view(&w.lines), "can't be read: the manifest of upload"));
    assert_true(says(w.reason, "1 objects or places"));
    fault(&w, 0, 0, NULL);
    assert_int_equal(try_open(&w), TARN_E_UNFINISHED);
    assert_int_equal(rebuild(&w, false), TARN_OK);
    check(&w, true);
    world_end(&w);
}

/* The power goes at many places: what is left is either refused, and made anew, or has everything. */
static void half_of_an_index_is_not_opened_on(size_t drives_n, uint64_t step)
{
    world w;
    uint64_t refused = 0, opened = 0;
    bool done = false;
    world_init(&w, drives_n);
    fill(&w, true);
    for (uint64_t cut = 1; !done; cut += step) {
        lose_database(&w);
        tarn_sim_cut_after(w.sim, cut);
        done = rebuild(&w, false) == TARN_OK;
        fx_close(&w.f);
        tarn_sim_cut_after(w.sim, 0);
        if (tarn_sim_power_lost(w.sim)) {
            tarn_sim_power_on(w.sim);
        }
        if (try_open(&w) == TARN_OK) {
            opened++;
        } else {
            refused++;
            assert_int_equal(rebuild(&w, false), TARN_OK);
        }
        check(&w, true);
    }
    assert_true(refused > 10 && opened > 0);
    world_end(&w);
}

static void half_of_an_index_is_not_opened(void **state)
{
    (void)state;
    half_of_an_index_is_not_opened_on(1, 1);
    half_of_an_index_is_not_opened_on(4, 9);
}

/* The database of before is kept once, however often the rebuilding is begun. */
static void attempts_do_not_fill_the_drive(void **state)
{
    world w;
    (void)state;
    world_init(&w, 1);
    fill(&w, true);
    for (unsigned i = 0; i < 3; i++) {
        fault(&w, 0, TARN_SIM_READ_FAILS, "/manifests/");
        assert_int_equal(rebuild(&w, i == 0), TARN_E_IO);
    }
    fault(&w, 0, 0, NULL);
    assert_int_equal(rebuild(&w, false), TARN_OK);
    size_t lost = 0;
    names l = meta_names(&w, 0);
    for (size_t i = 0; i < l.n; i++) {
        lost += tarn_str_starts(tarn_str_of(l.mem[i]), "tarn.db.lost-") ? 1 : 0;
    }
    assert_int_equal(lost, 1);
    check(&w, true);
    world_end(&w);
}

/* A database that is whole is not given up because it could not be read this once: it has what no backup has. */
static void unread_database_is_not_lost(void **state)
{
    world w;
    (void)state;
    world_init(&w, 1);
    fill(&w, false);
    for (size_t k = 0; k < TARN_ARRAY_LEN(calls); k++) {
        uint64_t n = 0, made;
        do {
            made = tarn_sim_calls(w.sim, calls[k]);
            tarn_sim_fail_nth(w.sim, calls[k], ++n, EIO);
            if (rebuild(&w, false) == TARN_OK) {
                fail_msg("call %llu of kind %u", (unsigned long long)n, calls[k]);
            }
            made = tarn_sim_calls(w.sim, calls[k]) - made;
            tarn_sim_fail_nth(w.sim, 0, 0, 0);
        } while (n <= made);
        assert_true(n > 2);
    }
    check(&w, true);
    world_end(&w);
}

/* Nor because one of its files can't be read for good: who wants it made again has to say so. */
static void database_that_stays_unread_is_not_lost(void **state)
{
    static const char *const files[] = {"tarn.db-wal", "tarn.gen", "/meta/"};
    (void)state;
    for (size_t k = 0; k < TARN_ARRAY_LEN(files); k++) {
        world w;
        world_init(&w, 1);
        fill(&w, false);
        assert_int_equal(try_open(&w), TARN_OK);
        fx_reload_bucket(&w.f, "bucket");
        (void)fx_put(&w.f, "in-the-log", 4, 100, true);
        tarn_sim_cut_now(w.sim);
        fx_close(&w.f);
        tarn_sim_power_on(w.sim);
        fault(&w, 0, TARN_SIM_READ_FAILS, files[k]);
        tarn_err err = rebuild(&w, false);
        if (err == TARN_OK || !says(w.reason, "nothing was changed"))
            fail_msg("%s: %s, %.*s", files[k], tarn_err_get(err)->name, TARN_STR_ARG(w.reason));
        fault(&w, 0, 0, NULL);
        check(&w, true);
        world_end(&w);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(failed_call_makes_no_empty_database),
                                       cmocka_unit_test(opened_store_is_formatted),
                                       cmocka_unit_test(unreadable_drive_stops_a_new_store),
                                       cmocka_unit_test(unreadable_drive_spoils_no_formatting),
                                       cmocka_unit_test(one_unreadable_drive_stops_no_start),
                                       cmocka_unit_test(unread_backup_is_not_no_backup),
                                       cmocka_unit_test(backup_is_read_from_another_drive),
                                       cmocka_unit_test(failed_read_leaves_nothing_out),
                                       cmocka_unit_test(unread_data_is_named),
                                       cmocka_unit_test(half_of_an_index_is_not_opened),
                                       cmocka_unit_test(attempts_do_not_fill_the_drive),
                                       cmocka_unit_test(unread_database_is_not_lost),
                                       cmocka_unit_test(database_that_stays_unread_is_not_lost)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
