/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An operator's work, for the nth-fault loop: healing a drive that was replaced, compaction, the offline check, and making the
 * database again from the drives.
 *
 * Each is prepared on a store that the setup has filled, done while one call fails, and finished without a fault, as the operator
 * would: then all that was acknowledged must be there, and whole where healing promises it.
 */
#include "sim.h"

#include "upkeep.h"

#include <stdio.h>
#include <stdlib.h>

#define COMPACT_SEGMENT_BYTES (8ull << 20) /* large enough for as much dead space as compaction asks for by itself */
#define NAMES_MAX 16

/* ------------------------------------------------------------------ what the works share */
static void say_line(void *ctx, tarn_str line)
{
    if (getenv("SIM_SAY"))
        (void)printf("     %.*s\n", TARN_STR_ARG(line));
    (void)ctx;
}

static tarn_err add_place(void *ctx, const tarn_version_row *row)
{
    uint64_t *sum = ctx;
    obj_blob b;
    if (row->data_id != 0 && row->parts_n == 0 && obj_blob_unpack(row->layout, &b) == TARN_OK)
        *sum = *sum * 31 + b.segment * 1000003 + b.offset;
    return TARN_OK;
}

/* A number that changes when something lies elsewhere. */
static uint64_t places(run *r)
{
    uint64_t sum = 1;
    tarn_err err = obj_scan_versions(r->s, NULL, add_place, &sum);
    if (err)
        run_fail(r, "the versions can't be listed: %s", tarn_err_get(err)->name);
    return sum;
}

/* ------------------------------------------------------------------ before */
typedef struct names {
    char mem[NAMES_MAX][64];
    size_t n;
} names;

static bool take_name(void *ctx, const char *name, bool is_dir)
{
    names *l = ctx;
    tarn_sb b;
    if (is_dir || l->n == NAMES_MAX)
        return true;
    tarn_sb_init_fixed(&b, l->mem[l->n], sizeof l->mem[l->n]);
    tarn_sb_cstr(&b, name);
    l->n++;
    return true;
}

/* No drive has a copy of the database any more. */
static void lose_database(run *r)
{
    tarn_fs *fs = tarn_sim_fs(r->sim);
    for (size_t d = 0; d < r->plan->drives_n && !r->failed; d++) {
        names l = {.n = 0};
        char path[TARN_PATH_BYTES_MAX];
        tarn_sb b;
        tarn_sb_init_fixed(&b, path, sizeof path);
        tarn_sb_fmt(&b, "%s/tarn/meta", r->drives[d]);
        int rc = fs->list(fs, path, take_name, &l);
        for (size_t i = 0; rc == 0 && i < l.n; i++) {
            tarn_sb_init_fixed(&b, path, sizeof path);
            tarn_sb_fmt(&b, "%s/tarn/meta/%s", r->drives[d], l.mem[i]);
            rc = fs->unlink(fs, path);
        }
        if (rc < 0 || l.n == 0)
            run_fail(r, "drive %zu: its copy of the database can't be removed (%d, %zu files)", d, rc, l.n);
    }
}

void upkeep_begin(run *r, upkeep_work work)
{
    if (work == UPKEEP_COMPACT)
        r->segment_bytes = COMPACT_SEGMENT_BYTES;
}

void upkeep_prepare(run *r, upkeep_work work)
{
    tarn_err err = work == UPKEEP_REBUILD ? tarn_store_backup_keep(r->s) : TARN_OK;
    if (err) {
        run_fail(r, "a backup can't be made: %s", tarn_err_get(err)->name);
        return;
    }
    if (work == UPKEEP_COMPACT)
        return;
    run_close(r);
    if (work == UPKEEP_REBUILD)
        lose_database(r);
    if (work == UPKEEP_HEAL && r->parity > 0) {
        tarn_sim_replace_drive(r->sim, 1);
        r->affected |= 1u << 1;
    }
    if (work == UPKEEP_HEAL)
        (void)run_open(r, "with a blank drive");
}

/* ------------------------------------------------------------------ the work itself */
static tarn_err do_heal(run *r)
{
    tarn_meta_scrub_counts pages;
    tarn_err err = obj_fill_pass(r->s, NULL);
    if (!err)
        err = obj_repair_pass(r->s, NULL);
    return err ? err : tarn_meta_scrub(tarn_store_meta(r->s), true, NULL, NULL, &pages);
}

static tarn_err do_compact(run *r, bool faultless)
{
    uint64_t before = faultless ? places(r) : 0;
    tarn_err err = obj_compact_pass(r->s, NULL);
    if (!err && faultless && places(r) == before)
        run_fail(r, "nothing was compacted");
    return err;
}

static tarn_err do_fsck(run *r, bool faultless)
{
    tarn_str reason = TARN_STR("");
    tarn_offline to = {.say = say_line, .arena = r->arena, .reason = &reason};
    tarn_store_options o = run_options(r);
    tarn_fsck_report f = {0};
    tarn_err err = tarn_store_fsck(&o, &to, &f);
    uint64_t lost = f.lost + f.tables_lost + f.database_problems, damaged = f.damaged + f.waiting + f.database_bad_pages;
    if (!err && lost > 0 && (faultless || r->plan->drives_n > 1))
        run_fail(r, "the check finds %llu lost", (unsigned long long)lost);
    if (!err && faultless && (damaged > 0 || f.versions == 0 || f.tables == 0))
        run_fail(r, "the check finds %llu damaged things, %llu versions and %llu tables where all is whole", (unsigned long long)damaged,
                 (unsigned long long)f.versions, (unsigned long long)f.tables);
    return err;
}

static tarn_err do_rebuild(run *r)
{
    tarn_str reason = TARN_STR("");
    tarn_offline to = {.say = say_line, .arena = r->arena, .reason = &reason};
    tarn_store_options o = run_options(r);
    tarn_rebuild_spec spec = {.owner = TARN_STR("me")};
    tarn_rebuild_report out;
    return tarn_store_rebuild(&o, &spec, &to, &out);
}

tarn_err upkeep_do(run *r, upkeep_work work, bool faultless)
{
    switch (work) {
    case UPKEEP_HEAL:
        return do_heal(r);
    case UPKEEP_COMPACT:
        return do_compact(r, faultless);
    case UPKEEP_FSCK:
        return do_fsck(r, faultless);
    case UPKEEP_REBUILD:
        return do_rebuild(r);
    default:
        return TARN_OK;
    }
}

/* ------------------------------------------------------------------ after, without a fault */
void upkeep_finish(run *r, upkeep_work work, tarn_err err)
{
    const char *path = "";
    tarn_str reason = TARN_STR("");
    if (!r->s && tarn_sim_open_files(r->sim, &path) > 0)
        run_fail(r, "files stayed open, %s for one", path);
    /* After an error either all is there or the store does not open; then the operator tries again, without force. */
    if (work == UPKEEP_REBUILD && err && run_try_open(r, &reason) != TARN_OK)
        err = do_rebuild(r);
    else
        err = TARN_OK;
    if (err)
        run_fail(r, "the second attempt ends with %s", tarn_err_get(err)->name);
    if (!r->failed && !r->s)
        (void)run_open(r, "after the work");
    if (!r->failed)
        heal(r);
    if (!r->failed && work == UPKEEP_COMPACT) {
        err = obj_compact_pass(r->s, NULL);
        if (!err)
            err = obj_sweep_pass(r->s, 0, NULL);
        if (err)
            run_fail(r, "compaction and sweep: %s", tarn_err_get(err)->name);
        else
            check_all(r);
    }
}
