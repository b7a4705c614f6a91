/* SPDX-License-Identifier: Apache-2.0 */
/*
 * meta: the copies of the database on several drives. Drives fail, are full, lie, come back stale or empty; the power goes
 * at any call. What was acknowledged must be there, a transaction is there whole or not at all, and a copy that missed
 * something is never believed.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "frames.h"
#include "meta_internal.h"
#include "meta_simfs.h"
#include "page.h"
#include "vfs.h"
#include "wal.h"

#define KEYS 40

typedef struct store {
    sim *s;
    tarn_meta *m;
    const char *dirs[SIM_DRIVES_MAX];
    tarn_meta_options opt;
    size_t failed_n; /* calls of on_drive_failed */
    size_t failed_last;
    uint64_t acked[KEYS]; /* the value of each pair of keys that was acknowledged last */
    uint64_t tried[KEYS]; /* … and that was tried last */
    uint64_t next;
} store;

static void on_failed(void *ctx, size_t dir, int errno_value)
{
    store *t = ctx;

    assert_true(errno_value > 0);
    t->failed_n++;
    t->failed_last = dir;
}

static store *store_new(size_t drives, size_t quorum, uint64_t seed)
{
    static const char *const names[SIM_DRIVES_MAX] = {"/0", "/1", "/2", "/3"};
    store *t = tarn_calloc(1, sizeof(*t));

    assert_non_null(t);
    t->s = sim_new(seed);
    for (size_t i = 0; i < drives; i++)
        t->dirs[i] = names[i];
    t->opt = (tarn_meta_options){.fs = &t->s->fs,
                                 .dirs = t->dirs,
                                 .dirs_n = drives,
                                 .write_quorum = quorum,
                                 .cache_bytes = 1u << 20,
                                 .inline_committer = seed % 2 == 0, /* else with the committer's and the mirror's threads */
                                 .on_drive_failed = on_failed,
                                 .ctx = t};
    t->next = 1;
    return t;
}

static void store_open(store *t)
{
    assert_int_equal(tarn_meta_open(&t->opt, &t->m), TARN_OK);
}

static void store_close(store *t)
{
    tarn_meta_close(t->m);
    t->m = NULL;
}

static void store_free(store *t)
{
    store_close(t);
    sim_free(t->s);
    tarn_free(t);
}

/* ------------------------------------------------------------------ a transaction that writes one number in two places */
typedef struct pair {
    uint64_t key, value;
} pair;

static tarn_err pair_put(tarn_meta_tx *tx, void *arg)
{
    const pair *p = arg;
    char name[32], filler[700];
    tarn_sb b;
    tarn_version_row row = {.bucket_id = 1, .size = p->value, .seq = tarn_meta_tx_seq(tx)};

    memset(filler, (int)(p->value & 0x7f), sizeof(filler));
    tarn_sb_init_fixed(&b, name, sizeof(name));
    tarn_sb_fmt(&b, "k%llu", (unsigned long long)p->key);
    row.key = tarn_sb_view(&b);
    row.attrs = (tarn_str){filler, sizeof(filler)};
    tarn_err err = tarn_meta_object_replace(tx, &row);
    if (err == TARN_OK)
        err = tarn_meta_kv_put(tx, name, (tarn_str){(const char *)&p->value, sizeof(p->value)});
    return err;
}

static tarn_err pair_write(store *t, uint64_t key)
{
    pair p = {key, t->next++};

    t->tried[key] = p.value;
    tarn_err err = tarn_meta_commit(t->m, pair_put, &p);
    if (err == TARN_OK)
        t->acked[key] = p.value;
    return err;
}

/* Both places agree, and hold the last acknowledged value or the one that was tried after it. settle: that is it then (the
 * store was opened anew; else what was tried in vain may still be in the log of a drive). */
static void pairs_check_settle(store *t, bool settle)
{
    tarn_arena *a = tarn_arena_new(1u << 20);

    for (uint64_t key = 0; key < KEYS; key++) {
        char name[32];
        tarn_sb b;
        tarn_version_row row;
        tarn_str kv;
        uint64_t value = 0, in_kv = 0;
        tarn_arena_reset(a);
        tarn_sb_init_fixed(&b, name, sizeof(name));
        tarn_sb_fmt(&b, "k%llu", (unsigned long long)key);
        tarn_err err = tarn_meta_object_get(t->m, NULL, 1, tarn_sb_view(&b), a, &row);
        assert_true(err == TARN_OK || err == TARN_E_NO_SUCH_KEY);
        if (err == TARN_OK) {
            value = row.size;
            assert_int_equal(row.attrs.n, 700);
            assert_int_equal((uint8_t)row.attrs.p[699], value & 0x7f);
        }
        err = tarn_meta_kv_get(t->m, NULL, name, a, &kv);
        assert_true(err == TARN_OK || err == TARN_E_NOT_FOUND);
        if (err == TARN_OK)
            memcpy(&in_kv, kv.p, sizeof(in_kv));
        assert_int_equal(value, in_kv);
        assert_true(value == t->acked[key] || value == t->tried[key]);
        if (settle)
            t->acked[key] = t->tried[key] = value;
    }
    tarn_arena_free(a);
}

static void pairs_check(store *t)
{
    pairs_check_settle(t, true);
}

static void integrity_check(store *t)
{
    sqlite3_stmt *s = NULL;

    assert_int_equal(sqlite3_prepare_v2(t->m->writer->db, "PRAGMA integrity_check", -1, &s, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_step(s), SQLITE_ROW);
    assert_string_equal((const char *)sqlite3_column_text(s, 0), "ok");
    assert_int_equal(sqlite3_finalize(s), SQLITE_OK);
}

/* After a clean close all good copies are the same, byte for byte. */
static void copies_equal(store *t, size_t a, size_t b)
{
    static const char *const files[2] = {META_VFS_DB_NAME, META_VFS_WAL_NAME};

    for (size_t i = 0; i < 2; i++) {
        char pa[64], pb[64];
        tarn_sb sa, sb;
        tarn_sb_init_fixed(&sa, pa, sizeof(pa));
        tarn_sb_fmt(&sa, "%s/%s", t->dirs[a], files[i]);
        tarn_sb_init_fixed(&sb, pb, sizeof(pb));
        tarn_sb_fmt(&sb, "%s/%s", t->dirs[b], files[i]);
        const sim_file *fa = sim_find(t->s, pa), *fb = sim_find(t->s, pb);
        assert_non_null(fa);
        assert_non_null(fb);
        assert_int_equal(fa->now_n, fb->now_n);
        assert_memory_equal(fa->now, fb->now, fa->now_n);
    }
}

/* The end of a test: closed, all copies are the same. */
static void store_end_all_equal(store *t)
{
    store_close(t);
    for (size_t i = 1; i < t->opt.dirs_n; i++)
        copies_equal(t, 0, i);
    store_free(t);
}

static void write_some(store *t, int n)
{
    for (int i = 0; i < n; i++)
        assert_int_equal(pair_write(t, (uint64_t)i % KEYS), TARN_OK);
}

/* ------------------------------------------------------------------ tests */
static void test_three_copies_are_the_same(void **state)
{
    store *t = store_new(3, 2, 1);

    (void)state;
    store_open(t);
    write_some(t, 200);
    pairs_check(t);
    assert_int_equal(tarn_meta_copies_good(t->m), 3);
    store_close(t);
    copies_equal(t, 0, 1);
    copies_equal(t, 0, 2);
    store_free(t);
}

typedef enum fault { FAULT_WRITE, FAULT_SYNC } fault;

static void fault_set(store *t, size_t drive, fault f, int errno_value)
{
    if (f == FAULT_WRITE)
        t->s->drives[drive].write_errno = errno_value;
    else
        t->s->drives[drive].sync_errno = errno_value;
}

/* A drive fails, the rest goes on; at the next start the drive works again and must be brought up, not believed. */
static void stale_copy(size_t drive, fault f, bool crash, bool only_rest_first)
{
    store *t = store_new(3, 2, 7 + drive);

    store_open(t);
    write_some(t, 50);
    fault_set(t, drive, f, EIO);
    write_some(t, 60);
    assert_int_equal(t->failed_n, 1);
    assert_int_equal(t->failed_last, drive);
    assert_int_equal(tarn_meta_copies_good(t->m), 2);
    fault_set(t, drive, f, 0); /* it works again: too late */
    write_some(t, 10);
    assert_int_equal(tarn_meta_copies_good(t->m), 2);
    if (crash) {
        t->s->off = true;
        store_close(t);
        sim_power_on(t->s);
    } else {
        store_close(t);
    }
    if (only_rest_first) { /* one of the two good ones is lost meanwhile: the stale one must still not win */
        sim_blank(t->s, (drive + 1) % 3);
    }
    store_open(t);
    pairs_check(t);
    integrity_check(t);
    assert_int_equal(tarn_meta_copies_good(t->m), 3);
    write_some(t, 10);
    store_close(t);
    copies_equal(t, 0, 1);
    copies_equal(t, 0, 2);
    store_free(t);
}

static void test_stale_copy_is_rebuilt(void **state)
{
    (void)state;
    for (size_t drive = 0; drive < 3; drive++) {
        for (int f = 0; f < 2; f++) {
            for (int crash = 0; crash < 2; crash++) {
                stale_copy(drive, (fault)f, crash == 1, false);
                stale_copy(drive, (fault)f, crash == 1, true);
            }
        }
    }
}

static void test_stale_copy_alone_is_refused(void **state)
{
    store *t = store_new(3, 2, 3);

    (void)state;
    store_open(t);
    write_some(t, 20);
    fault_set(t, 2, FAULT_SYNC, EIO);
    write_some(t, 20);
    store_close(t);
    t->s->drives[2].sync_errno = 0;
    t->s->drives[0].read_errno = EIO;
    t->s->drives[1].read_errno = EIO;
    t->failed_n = 0;
    assert_int_equal(tarn_meta_open(&t->opt, &t->m), TARN_E_QUORUM_WRITE);
    t->s->drives[0].read_errno = t->s->drives[1].read_errno = 0;
    sim_blank(t->s, 0);
    sim_blank(t->s, 1);
    assert_int_equal(tarn_meta_open(&t->opt, &t->m), TARN_E_QUORUM_READ); /* empty drives don't vouch for it */
    store_free(t);
}

static void test_quorum_lost(void **state)
{
    store *t = store_new(3, 2, 4);

    (void)state;
    store_open(t);
    write_some(t, 20);
    fault_set(t, 1, FAULT_WRITE, EIO);
    write_some(t, 20);
    fault_set(t, 2, FAULT_SYNC, EIO);
    assert_int_equal(pair_write(t, 0), TARN_E_QUORUM_WRITE);
    assert_int_equal(tarn_meta_copies_good(t->m), 1);
    fault_set(t, 1, FAULT_WRITE, 0);
    fault_set(t, 2, FAULT_SYNC, 0);
    assert_int_equal(pair_write(t, 1), TARN_E_QUORUM_WRITE); /* sticky */
    pairs_check_settle(t, false);                            /* reads go on */
    store_close(t);
    store_open(t);
    pairs_check(t);
    assert_int_equal(tarn_meta_copies_good(t->m), 3);
    write_some(t, 5);
    store_free(t);
}

static void test_full_drive(void **state)
{
    store *t = store_new(1, 1, 5);

    (void)state;
    store_open(t);
    write_some(t, 20);
    assert_int_equal(tarn_meta_checkpoint(t->m), TARN_OK);
    t->s->drives[0].full_above_bytes = sim_find(t->s, "/0/" META_VFS_DB_NAME)->now_n;
    tarn_err err = TARN_OK;
    for (uint64_t i = 0; i < 2000 && err == TARN_OK; i++)
        err = pair_write(t, i % KEYS);
    assert_int_equal(err, TARN_E_DISK_FULL);
    pairs_check(t);
    assert_int_equal(tarn_meta_copies_good(t->m), 1); /* full is not broken */
    assert_int_equal(t->failed_n, 0);
    t->s->drives[0].full_above_bytes = 0; /* somebody made room */
    write_some(t, 50);
    pairs_check(t);
    assert_int_equal(tarn_meta_checkpoint(t->m), TARN_OK);
    integrity_check(t);
    store_close(t);
    store_open(t);
    pairs_check(t);
    store_free(t);
}

static void test_full_drive_among_others(void **state)
{
    store *t = store_new(3, 2, 6);

    (void)state;
    store_open(t);
    t->s->drives[1].full_above_bytes = 200 * 1024;
    write_some(t, 300); /* nobody notices but the drive that is taken out */
    assert_int_equal(t->failed_n, 1);
    assert_int_equal(t->failed_last, 1);
    pairs_check(t);
    store_free(t);
}

/* What found no room on the drives that are needed may be whole on another one: once it was seen that it was not done, no start may do it.
 */
static void no_room_does_not_come_back(size_t drives, uint64_t seed)
{
    store *t = store_new(drives, drives, seed);
    tarn_err err = TARN_OK;

    store_open(t);
    t->m->plan = (meta_checkpoint_plan){4000, 4000, 8000, 32000}; /* the log shall grow */
    write_some(t, 10);
    uint64_t end = sim_find(t->s, "/0/" META_VFS_WAL_NAME)->now_n;
    for (size_t i = 1; i < drives; i++)
        t->s->drives[i].full_above_bytes = end;
    if (drives == 1) /* the frames find room, the zeroes behind them don't */
        t->s->drives[0].full_above_bytes = end + 64 * 1024;
    for (uint64_t i = 0; i < 2000 && err == TARN_OK; i++)
        err = pair_write(t, i % KEYS);
    assert_int_equal(err, TARN_E_DISK_FULL);
    assert_int_equal(t->failed_n, 0);
    pairs_check(t); /* as it is seen now it stays */
    t->s->off = true;
    store_close(t);
    sim_power_on(t->s);
    t->failed_n = 0;
    for (size_t i = 0; i < drives; i++)
        t->s->drives[i].full_above_bytes = 0;
    store_open(t);
    pairs_check(t);
    write_some(t, 20);
    pairs_check(t);
    integrity_check(t);
    store_free(t);
}

static void test_no_room_does_not_come_back(void **state)
{
    (void)state;
    for (size_t drives = 1; drives <= 3; drives++) {
        for (uint64_t seed = 180; seed < 184; seed++)
            no_room_does_not_come_back(drives, seed);
    }
}

/* Wrong bytes of one drive are noticed by the checksum of the page and read from another. */
static void test_rotten_page(void **state)
{
    store *t = store_new(2, 2, 8);

    (void)state;
    store_open(t);
    write_some(t, 200);
    store_close(t);
    sim_file *f = sim_find(t->s, "/0/" META_VFS_DB_NAME);
    for (uint64_t page = 1; page < f->now_n / META_PAGE_BYTES; page++)
        f->now[page * META_PAGE_BYTES + 100] ^= 0x55;
    store_open(t);
    pairs_check(t);
    integrity_check(t);
    store_free(t);

    t = store_new(1, 1, 9); /* and with one drive it is an error, not a wrong answer */
    store_open(t);
    write_some(t, 200);
    store_close(t);
    f = sim_find(t->s, "/0/" META_VFS_DB_NAME);
    for (uint64_t page = 1; page < f->now_n / META_PAGE_BYTES; page++)
        f->now[page * META_PAGE_BYTES + 100] ^= 0x55;
    tarn_arena *a = tarn_arena_new(1u << 20);
    tarn_str kv;
    tarn_err err = tarn_meta_open(&t->opt, &t->m);
    if (err == TARN_OK)
        err = tarn_meta_kv_get(t->m, NULL, "k1", a, &kv);
    assert_int_equal(err, TARN_E_CORRUPT);
    tarn_arena_free(a);
    store_free(t);
}

static void test_misdirected_page(void **state)
{
    store *t = store_new(2, 2, 10);

    (void)state;
    store_open(t);
    write_some(t, 200);
    store_close(t);
    sim_file *f = sim_find(t->s, "/0/" META_VFS_DB_NAME); /* each page is a right one, of another place */
    uint64_t pages = f->now_n / META_PAGE_BYTES;
    for (uint64_t page = 2; page + 1 < pages; page += 2) {
        uint8_t tmp[META_PAGE_BYTES];
        memcpy(tmp, f->now + page * META_PAGE_BYTES, META_PAGE_BYTES);
        memcpy(f->now + page * META_PAGE_BYTES, f->now + (page + 1) * META_PAGE_BYTES, META_PAGE_BYTES);
        memcpy(f->now + (page + 1) * META_PAGE_BYTES, tmp, META_PAGE_BYTES);
    }
    store_open(t);
    pairs_check(t);
    integrity_check(t);
    store_free(t);
}

static void test_rotten_log(void **state)
{
    store *t = store_new(2, 2, 11);

    (void)state;
    store_open(t);
    write_some(t, 100);
    t->s->off = true; /* the log holds all of it */
    store_close(t);
    sim_power_on(t->s);
    sim_file *f = sim_find(t->s, "/0/" META_VFS_WAL_NAME);
    assert_true(f->now_n > 100000);
    f->now[f->now_n / 2] ^= 1;
    store_open(t); /* from the other log, which is whole */
    pairs_check(t);
    integrity_check(t);
    store_free(t);
}

/* Bytes that change in the log of a drive, or are cut off it, while the store is open: neither an answer nor a checkpoint
 * may take them. */
static void rotten_log_in_use(uint64_t seed, bool cut)
{
    store *t = store_new(3, 2, seed);

    t->opt.cache_bytes = 1; /* SQLite keeps as little as it can: pages come from the log */
    store_open(t);
    write_some(t, 60);
    for (int n = 0; n < 2; n++) {
        char path[64];
        tarn_sb b;
        tarn_sb_init_fixed(&b, path, sizeof(path));
        tarn_sb_fmt(&b, "/%d/" META_VFS_WAL_NAME, n);
        sim_file *f = sim_find(t->s, path);
        assert_non_null(f);
        assert_true(f->now_n > 100000);
        if (cut)
            assert_int_equal(t->s->fs.truncate(&t->s->fs, tarn_file_handle(meta_vfs_mirror(t->m->vfs)->copies[n].files[META_WAL]), 5000),
                             0);
        for (uint64_t at = 32 + 24 + 100; !cut && at < f->now_n; at += 24 + META_PAGE_BYTES)
            f->now[at] ^= 0x55;
    }
    pairs_check(t);
    assert_int_equal(tarn_meta_checkpoint(t->m), TARN_OK);
    pairs_check(t);
    integrity_check(t);
    store_close(t);
    store_open(t);
    pairs_check(t);
    integrity_check(t);
    store_free(t);
}

static void test_log_rots_in_use(void **state)
{
    (void)state;
    rotten_log_in_use(40, false);
    rotten_log_in_use(41, false);
}

static void test_log_is_cut_in_use(void **state)
{
    (void)state;
    rotten_log_in_use(42, true);
    rotten_log_in_use(43, true);
}

/* The first drives' databases are cut to a half, while the store is open or closed, after a clean end or a crash: no answer is
 * wrong, and no other copy is cut to their length. */
static void database_cut(uint64_t seed, bool open, bool crash)
{
    store *t = store_new(3, 2, seed);

    store_open(t);
    write_some(t, 150);
    assert_int_equal(tarn_meta_checkpoint(t->m), TARN_OK);
    write_some(t, 20);
    for (int part = 0; part < 2; part++) {
        if ((part == 0) != open) { /* the store ends before or after the cut */
            t->s->off = crash;
            store_close(t);
            if (crash)
                sim_power_on(t->s);
            continue;
        }
        for (int n = 0; n < 2; n++) {
            char path[64];
            tarn_sb b;
            tarn_sb_init_fixed(&b, path, sizeof(path));
            tarn_sb_fmt(&b, "/%d/" META_VFS_DB_NAME, n);
            sim_file *f = sim_find(t->s, path);
            assert_true(f->now_n > 16 * META_PAGE_BYTES);
            f->now_n /= 2;
        }
    }
    store_open(t);
    pairs_check(t);
    write_some(t, 50);
    integrity_check(t);
    store_close(t);
    store_open(t);
    pairs_check(t);
    integrity_check(t);
    store_free(t);
}

static void test_database_is_cut(void **state)
{
    (void)state;
    for (uint64_t seed = 50; seed < 52; seed++) {
        database_cut(seed, false, false);
        database_cut(seed, false, true);
        database_cut(seed, true, false);
        database_cut(seed, true, true);
    }
}

/* The log that was cut to nothing is durably so before it is written again (see file_truncate). */
static void test_cut_of_the_log_is_synced(void **state)
{
    store *t = store_new(1, 1, 60);

    (void)state;
    store_open(t);
    write_some(t, 100);
    sim_file *f = sim_find(t->s, "/0/" META_VFS_WAL_NAME);
    assert_true(f->durable_n > 0);
    assert_int_equal(tarn_meta_checkpoint(t->m), TARN_OK);
    assert_int_equal(f->now_n, 0);
    assert_int_equal(f->durable_n, 0);
    assert_null(f->first);
    store_free(t);
}

static void test_read_errors_fail_over(void **state)
{
    store *t = store_new(2, 1, 12);

    (void)state;
    store_open(t);
    write_some(t, 100);
    assert_int_equal(tarn_meta_checkpoint(t->m), TARN_OK);
    t->s->drives[0].read_errno = EIO;
    pairs_check(t);
    write_some(t, 10);
    pairs_check(t);
    store_free(t);
}

/* The log holds all that was acknowledged, and the power goes. */
static void write_and_cut(store *t)
{
    store_open(t);
    write_some(t, 100);
    t->s->off = true;
    store_close(t);
    sim_power_on(t->s);
    t->failed_n = 0;
}

/* A drive that reads wrongly while the store is started: nothing is cut off the log for that, and nobody is blamed. */
static void bad_reads_at_start(size_t drives, size_t bad, unsigned every)
{
    store *t = store_new(drives, 2, 100 + 10 * bad + every);

    write_and_cut(t);
    t->s->drives[bad].garble_every = every;
    store_open(t);
    assert_int_equal(t->failed_n, 0);
    assert_int_equal(tarn_meta_copies_good(t->m), drives);
    pairs_check(t);
    t->s->drives[bad].garble_every = 0;
    integrity_check(t);
    store_end_all_equal(t);
}

static void test_bad_reads_at_start(void **state)
{
    (void)state;
    for (size_t drives = 2; drives <= 3; drives++) {
        for (size_t bad = 0; bad < drives; bad++) {
            for (unsigned every = drives == 2 ? 2 : 1; every < 8; every++) /* of two the records of both must be known */
                bad_reads_at_start(drives, bad, every);
        }
    }
}

static void rot_frame(store *t, const char *path, uint64_t frame)
{
    sim_file *f = sim_find(t->s, path);

    uint64_t at = META_WAL_HEADER_BYTES + frame * META_WAL_FRAME_BYTES + 200;
    assert_true(at < f->now_n);
    f->now[at] ^= 1;
    f->durable[at] ^= 1;
}

/* A power cut that undoes the log's start over on one drive, whose old log is damaged: what is right of it would undo what the
 * databases have. */
static void old_log_left_behind(size_t drives)
{
    store *t = store_new(drives, drives / 2 + 1, 160 + drives);

    store_open(t);
    write_some(t, 100);
    sim_file *f = sim_find(t->s, "/0/" META_VFS_WAL_NAME);
    size_t n = f->durable_n;
    uint8_t *old = malloc(n);
    assert_non_null(old);
    memcpy(old, f->durable, n);
    assert_int_equal(tarn_meta_checkpoint(t->m), TARN_OK);
    t->s->off = true;
    store_close(t);
    sim_power_on(t->s);
    t->failed_n = 0;
    f->now = realloc(f->now, n);
    f->durable = realloc(f->durable, n);
    assert_true(f->now != NULL && f->durable != NULL);
    memcpy(f->now, old, n);
    memcpy(f->durable, old, n);
    f->now_n = f->durable_n = n;
    free(old);
    rot_frame(t, "/0/" META_VFS_WAL_NAME, 7);
    store_open(t);
    assert_int_equal(t->failed_n, 0);
    pairs_check(t);
    write_some(t, 10);
    pairs_check(t);
    integrity_check(t);
    store_end_all_equal(t);
}

static void test_an_old_log_is_left_behind(void **state)
{
    (void)state;
    for (size_t drives = 1; drives <= 3; drives++)
        old_log_left_behind(drives);
}

/* Each copy has lost another piece of the log: together they have all of it. */
static void test_logs_complete_each_other(void **state)
{
    store *t = store_new(3, 2, 130);

    (void)state;
    write_and_cut(t);
    rot_frame(t, "/0/" META_VFS_WAL_NAME, 3);
    rot_frame(t, "/1/" META_VFS_WAL_NAME, 9);
    rot_frame(t, "/2/" META_VFS_WAL_NAME, 30);
    store_open(t);
    assert_int_equal(t->failed_n, 0);
    pairs_check(t);
    integrity_check(t);
    store_free(t);
}

/* A copy that joins gets each frame of the log as it was written, also from drives that have lost some, or read wrongly. */
static void test_join_proves_the_log(void **state)
{
    store *t = store_new(2, 2, 140);

    (void)state;
    store_open(t);
    write_some(t, 30);
    rot_frame(t, "/0/" META_VFS_WAL_NAME, 5);
    rot_frame(t, "/1/" META_VFS_WAL_NAME, 2);
    t->s->drives[0].garble_every = 3;
    assert_int_equal(tarn_meta_copy_join(t->m, "/2"), TARN_OK);
    t->s->drives[0].garble_every = 0;
    t->s->off = true;
    store_close(t);
    sim_power_on(t->s);
    sim_blank(t->s, 0);
    sim_blank(t->s, 1); /* the new copy alone */
    t->dirs[0] = "/2";
    t->opt.dirs_n = t->opt.write_quorum = 1;
    store_open(t);
    pairs_check(t);
    integrity_check(t);
    store_free(t);
}

/* Where no copy has a frame as SQLite counts it, the new one would have less than was acknowledged: it does not count. */
static void test_join_refuses_a_short_log(void **state)
{
    store *t = store_new(2, 2, 150);

    (void)state;
    store_open(t);
    write_some(t, 30);
    rot_frame(t, "/0/" META_VFS_WAL_NAME, 5);
    rot_frame(t, "/1/" META_VFS_WAL_NAME, 5);
    assert_int_not_equal(tarn_meta_copy_join(t->m, "/2"), TARN_OK);
    assert_int_equal(tarn_meta_copies_n(t->m), 2);
    t->s->off = true;
    store_free(t);
}

static void test_in_use(void **state)
{
    store *t = store_new(2, 2, 13);
    tarn_meta *second = NULL;

    (void)state;
    store_open(t);
    assert_int_equal(tarn_meta_open(&t->opt, &second), TARN_E_CONFLICT);
    assert_null(second);
    /* the refused one must not have taken the lock away, on real files as here it is the descriptor's */
    pairs_check(t);
    store_free(t);
}

static void test_other_deployment(void **state)
{
    store *t = store_new(2, 1, 14);
    const char *const swapped[2] = {"/2", "/1"};

    (void)state;
    store_open(t);
    write_some(t, 5);
    store_close(t);
    tarn_meta_options other = t->opt;
    const char *const second[1] = {"/2"};
    other.dirs = second;
    other.dirs_n = 1;
    tarn_meta *m = NULL;
    assert_int_equal(tarn_meta_open(&other, &m), TARN_OK);
    tarn_meta_close(m);
    other.dirs = swapped;
    other.dirs_n = 2;
    m = NULL;
    assert_int_equal(tarn_meta_open(&other, &m), TARN_E_FORMAT);
    assert_null(m);
    store_free(t);
}

/* All copies were lost but those of drives that were away, the database was made again on the first `made` ones, and the others come back.
 */
static store *made_again(size_t drives, size_t quorum, size_t made, size_t made_quorum)
{
    store *t = store_new(drives, quorum, 170);

    for (int i = 0; i < 3; i++) { /* of a higher generation than the new one gets */
        store_open(t);
        write_some(t, 20);
        store_close(t);
    }
    for (size_t i = 0; i < made; i++)
        sim_blank(t->s, i);
    memset(t->acked, 0, sizeof t->acked);
    memset(t->tried, 0, sizeof t->tried);
    t->opt.dirs_n = made;
    t->opt.write_quorum = made_quorum;
    store_open(t);
    write_some(t, 30);
    store_close(t);
    t->opt.dirs_n = drives;
    t->opt.write_quorum = quorum;
    return t;
}

static void test_a_drive_comes_back_after_the_index_was_made_again(void **state)
{
    (void)state;
    for (size_t drives = 3; drives <= 4; drives++) {
        store *t = made_again(drives, drives / 2 + 1, drives - 1, drives / 2 + 1);
        store_open(t);
        assert_int_equal(t->failed_n, 0);
        assert_true(tarn_meta_copy_behind(t->m, drives - 1));
        assert_int_equal(tarn_meta_copies_good(t->m), drives);
        pairs_check(t);
        write_some(t, 10);
        pairs_check(t);
        integrity_check(t);
        store_close(t);
        copies_equal(t, 0, drives - 1);
        store_free(t);
    }
}

/* Half and half, or too few of either: nobody can say which counts. */
/* A copy that can't be written at the start is no other deployment. */
static void test_a_copy_that_breaks_at_the_start(void **state)
{
    (void)state;
    for (size_t bad = 0; bad < 3; bad++) {
        store *t = store_new(3, 2, 190);
        store_open(t);
        write_some(t, 20);
        t->s->off = true;
        store_close(t);
        sim_power_on(t->s);
        t->failed_n = 0;
        t->s->drives[bad].sync_errno = EIO;
        store_open(t);
        assert_int_equal(t->failed_n, 1);
        assert_int_equal(t->failed_last, bad);
        pairs_check(t);
        store_free(t);
    }
}

static void test_two_deployments_that_may_both_count(void **state)
{
    static const size_t cases[][4] = {{4, 3, 2, 2}, {2, 1, 1, 1}, {2, 2, 1, 1}};

    (void)state;
    for (size_t i = 0; i < TARN_ARRAY_LEN(cases); i++) {
        store *t = made_again(cases[i][0], cases[i][1], cases[i][2], cases[i][3]);
        assert_int_equal(tarn_meta_open(&t->opt, &t->m), TARN_E_FORMAT);
        store_free(t);
    }
}

static void test_database_without_record(void **state)
{
    store *t = store_new(1, 1, 15);

    (void)state;
    store_open(t);
    write_some(t, 5);
    store_close(t);
    sim_file *f = sim_find(t->s, "/0/" META_VFS_GEN_NAME);
    f->now_n = f->durable_n = 0;
    assert_int_equal(tarn_meta_open(&t->opt, &t->m), TARN_E_FORMAT); /* never taken for a new one */
    store_free(t);
}

static void test_newer_schema(void **state)
{
    store *t = store_new(1, 1, 16);

    (void)state;
    store_open(t);
    assert_int_equal(META_SCHEMA_VERSION, 2);
    assert_int_equal(sqlite3_exec(t->m->writer->db, "PRAGMA user_version=3", NULL, NULL, NULL), SQLITE_OK);
    store_close(t);
    assert_int_equal(tarn_meta_open(&t->opt, &t->m), TARN_E_FORMAT);
    store_free(t);
}

/* A drive that always reads wrongly is asked first until it has been wrong too often, then only where no other one has an answer. */
static void test_copy_that_is_often_wrong_is_asked_last(void **state)
{
    store *t = store_new(3, 2, 30);
    uint8_t right[META_PAGE_BYTES], got[META_PAGE_BYTES];

    (void)state;
    store_open(t);
    write_some(t, 200);
    store_close(t);
    store_open(t);
    meta_mirror *v = meta_vfs_mirror(t->m->vfs);
    size_t bad = atomic_load(&v->read_from);
    sim_drive *drive = &t->s->drives[bad];
    int64_t counted = tarn_metric_get(TARN_M_META_READS_WRONG);
    assert_int_equal(meta_mirror_read(v, META_DB, right, sizeof(right), 0, meta_page_check), sizeof(right));
    drive->garble_every = 1;
    for (unsigned k = 1; k <= META_WRONG_READS_MAX; k++) {
        assert_int_equal(meta_mirror_read(v, META_DB, got, sizeof(got), 0, meta_page_check), sizeof(got));
        assert_memory_equal(got, right, sizeof(right));
        assert_int_equal(drive->reads, k); /* asked, and wrong */
        assert_int_equal(tarn_meta_copy_wrong(t->m, bad), k);
    }
    assert_int_equal(meta_mirror_read(v, META_DB, got, sizeof(got), 0, meta_page_check), sizeof(got));
    assert_memory_equal(got, right, sizeof(right));
    assert_int_equal(drive->reads, META_WRONG_READS_MAX); /* not asked any more */
    assert_int_equal(tarn_meta_copy_wrong(t->m, bad), META_WRONG_READS_MAX);
    assert_int_equal(tarn_metric_get(TARN_M_META_READS_WRONG) - counted, META_WRONG_READS_MAX);
    for (size_t i = 0; i < 3; i++)
        if (i != bad)
            t->s->drives[i].read_errno = EIO;
    drive->garble_every = 0;
    assert_int_equal(meta_mirror_read(v, META_DB, got, sizeof(got), 0, meta_page_check), sizeof(got));
    assert_memory_equal(got, right, sizeof(right)); /* but as the last one it is */
    drive->garble_every = 1;
    assert_int_equal(meta_mirror_read(v, META_DB, got, sizeof(got), 0, meta_page_check), -EBADMSG);
    for (size_t i = 0; i < 3; i++)
        t->s->drives[i].read_errno = 0;
    pairs_check(t);
    store_free(t);
}

static bool purge_seen(void *ctx, const tarn_purge_row *row)
{
    *(uint64_t *)ctx = row->id;
    return true;
}

static tarn_err purge_put(tarn_meta_tx *tx, void *arg)
{
    return tarn_meta_purge_put(tx, arg);
}

/* A database of the first version gets what it lacks, in all copies, and keeps what it has. */
static void test_older_schema_is_brought_up(void **state)
{
    store *t = store_new(3, 2, 17);
    tarn_purge_row row = {.dropped = {.kind = TARN_ENTITY_TABLE}};
    uint64_t seen = 0;

    (void)state;
    store_open(t);
    write_some(t, 20);
    assert_int_equal(sqlite3_exec(t->m->writer->db, "DROP TABLE purge;PRAGMA user_version=1", NULL, NULL, NULL), SQLITE_OK);
    store_close(t);
    for (int start = 0; start < 2; start++) {
        store_open(t);
        pairs_check(t);
        assert_int_equal(tarn_meta_commit(t->m, purge_put, &row), TARN_OK);
        assert_int_equal(tarn_meta_purge_list(t->m, 0, purge_seen, &seen), TARN_OK);
        assert_true(seen == row.id);
        write_some(t, 5);
        store_close(t);
        copies_equal(t, 0, 2);
    }
    store_free(t);
}

/* Half of the drives is enough to know the newest state where the quorum is more than half; not to change it. */
static void test_too_few_to_write(void **state)
{
    store *t = store_new(4, 3, 18);

    (void)state;
    store_open(t);
    write_some(t, 50);
    store_close(t);
    t->opt.dirs_n = 2;
    store_open(t);
    pairs_check(t);
    assert_int_equal(pair_write(t, 0), TARN_E_QUORUM_WRITE);
    pairs_check(t);
    store_close(t);
    t->opt.dirs_n = 1;
    assert_int_equal(tarn_meta_open(&t->opt, &t->m), TARN_E_QUORUM_READ);
    t->opt.dirs_n = 4;
    store_open(t);
    pairs_check(t);
    write_some(t, 50);
    store_close(t);
    copies_equal(t, 0, 3);
    store_free(t);
}

/* Gives a copy's record the next generation, as a mark does that the power cuts off behind it. */
static void mark_by_hand(store *t, const char *path, uint16_t needed)
{
    tarn_file *f = NULL;
    meta_gen g;

    assert_int_equal(tarn_file_open_sync(&t->s->fs, path, O_RDWR | O_CLOEXEC, 0, &f), 0);
    assert_int_equal(meta_gen_read(f, &g), 0);
    assert_int_equal(g.needed, t->opt.write_quorum); /* as the store wrote it */
    g.generation++;
    g.needed = needed;
    assert_int_equal(meta_gen_write(f, &g), 0);
    tarn_file_unref(f);
}

/* The power goes while the copies get a new generation, and the log of those that have it is damaged: the others, which have everything
 * as well, help. That goes for as many as leave the generation short of what it needed, and not where that is not known. */
static void generation_cut_off(size_t marked, uint16_t needed, bool helps)
{
    static const char *const logs[4] = {"/0/" META_VFS_WAL_NAME, "/1/" META_VFS_WAL_NAME, "/2/" META_VFS_WAL_NAME, "/3/" META_VFS_WAL_NAME};
    static const char *const records[4] = {"/0/" META_VFS_GEN_NAME, "/1/" META_VFS_GEN_NAME, "/2/" META_VFS_GEN_NAME,
                                           "/3/" META_VFS_GEN_NAME};
    store *t = store_new(4, 3, 170 + 10 * marked + needed);

    write_and_cut(t);
    for (size_t i = 0; i < marked; i++) {
        mark_by_hand(t, records[i], needed);
        if (helps)
            rot_frame(t, logs[i], 3);
    }
    store_open(t);
    assert_int_equal(t->failed_n, 0);
    assert_int_equal(tarn_meta_copies_good(t->m), 4);
    assert_int_equal(tarn_meta_copy_behind(t->m, 3), !helps);
    pairs_check(t);
    integrity_check(t);
    write_some(t, 10);
    store_end_all_equal(t);
}

static void test_a_generation_that_was_cut_off(void **state)
{
    (void)state;
    generation_cut_off(1, 3, true);
    generation_cut_off(2, 3, true);
    generation_cut_off(3, 3, false); /* enough have it: the fourth may have missed what came then */
    generation_cut_off(1, 0, false); /* by a program that did not say */
}

/* A start with too few copies to write is complete all the same: the others have missed its checkpoint. */
static void test_read_only_start_after_a_cut(void **state)
{
    store *t = store_new(4, 3, 180);

    (void)state;
    write_and_cut(t);
    t->opt.dirs_n = 2;
    store_open(t);
    pairs_check(t);
    store_close(t);
    t->opt.dirs_n = 4;
    store_open(t);
    pairs_check(t);
    integrity_check(t);
    assert_true(tarn_meta_copy_behind(t->m, 2) && tarn_meta_copy_behind(t->m, 3));
    write_some(t, 20);
    store_end_all_equal(t);
}

/* Drives that were away are not forgotten: those that are there today must be enough of all, not of yesterday's. */
static void test_drives_come_and_go(void **state)
{
    store *t = store_new(4, 2, 19);
    const char *const first[3] = {"/0", "/1", "/2"}, *const last[2] = {"/2", "/3"};

    (void)state;
    store_open(t);
    write_some(t, 50);
    store_close(t);
    t->opt.dirs = first;
    t->opt.dirs_n = 3;
    store_open(t);
    fault_set(t, 2, FAULT_WRITE, EIO);
    write_some(t, 50); /* only on 0 and 1 */
    fault_set(t, 2, FAULT_WRITE, 0);
    store_close(t);
    t->opt.dirs = last;
    t->opt.dirs_n = 2;
    assert_int_equal(tarn_meta_open(&t->opt, &t->m), TARN_E_QUORUM_READ);
    t->opt.dirs = t->dirs + 1;
    t->opt.dirs_n = 3;
    store_open(t);
    pairs_check(t);
    assert_int_equal(tarn_meta_copies_good(t->m), 3);
    store_free(t);
}

static void test_options(void **state)
{
    store *t = store_new(2, 2, 17);
    tarn_meta_options bad = t->opt;

    (void)state;
    bad.write_quorum = TARN_META_DRIVES_MAX + 1;
    assert_int_equal(tarn_meta_open(&bad, &t->m), TARN_E_INVALID);
    bad.write_quorum = 0;
    assert_int_equal(tarn_meta_open(&bad, &t->m), TARN_E_INVALID);
    bad = t->opt;
    bad.dirs_n = 0;
    assert_int_equal(tarn_meta_open(&bad, &t->m), TARN_E_INVALID);
    bad.dirs_n = TARN_META_DRIVES_MAX + 1;
    assert_int_equal(tarn_meta_open(&bad, &t->m), TARN_E_INVALID);
    store_free(t);
}

/* ------------------------------------------------------------------ the power goes */
/* The number of calls that a run of the workload makes is a few hundred: cuts fall into every kind of step. */
static void power_cut_run(size_t drives, size_t quorum, uint64_t seed, bool with_fault)
{
    store *t = store_new(drives, quorum, seed);

    for (int round = 0; round < 6; round++) {
        sim *s = t->s;
        s->cut_at_calls = s->calls + 1 + sim_rnd(s, round == 0 ? 80 : 400);
        tarn_err err = tarn_meta_open(&t->opt, &t->m);
        if (err == TARN_OK) /* checkpoints and restarts of the log all the time */
            t->m->plan = (meta_checkpoint_plan){5 + sim_rnd(s, 40), 60, 30 + sim_rnd(s, 100), 300};
        for (uint64_t i = 0; i < 400 && err == TARN_OK && !s->off; i++) {
            if (with_fault && sim_rnd(s, 60) == 0) {
                sim_drive *d = &s->drives[sim_rnd(s, drives)];
                d->write_errno = sim_rnd(s, 2) == 0 ? EIO : 0;
                d->sync_errno = sim_rnd(s, 2) == 0 ? EIO : 0;
            }
            err = pair_write(t, sim_rnd(s, KEYS));
            if (err == TARN_OK && sim_rnd(s, 25) == 0)
                (void)tarn_meta_checkpoint(t->m);
        }
        s->off = true;
        store_close(t);
        sim_power_on(s);
        err = tarn_meta_open(&t->opt, &t->m);
        if (err != TARN_OK)
            fprintf(stderr, "seed %llu round %d: %s\n", (unsigned long long)seed, round, tarn_err_get(err)->name);
        assert_int_equal(err, TARN_OK);
        pairs_check(t);
        integrity_check(t);
        write_some(t, 3);
        store_close(t);
        for (size_t i = 1; i < drives; i++)
            copies_equal(t, 0, i);
    }
    store_free(t);
}

static uint64_t seeds(void)
{
    const char *text = getenv("TARN_TEST_ROUNDS");
    uint64_t n = 0;

    return text != NULL && tarn_str_to_u64(tarn_str_of(text), &n) && n > 0 ? n : 25;
}

static void test_power_cut_one_drive(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= seeds(); seed++)
        power_cut_run(1, 1, seed, false);
}

static void test_power_cut_three_drives(void **state)
{
    (void)state;
    for (uint64_t seed = 1001; seed <= 1000 + seeds(); seed++)
        power_cut_run(3, 2, seed, false);
}

static void test_power_cut_with_faults(void **state)
{
    (void)state;
    for (uint64_t seed = 2001; seed <= 2000 + seeds(); seed++)
        power_cut_run(3, 2, seed, true);
}

/* ------------------------------------------------------------------ notes */
/* What was written is known up to the last page, and frame, that there is room for; behind it everything passes. */
static void test_notes_reach_as_far_as_they_say(void **state)
{
    const uint64_t pages = (uint64_t)META_PAGES_PER_BLOCK * META_PAGE_BLOCKS_MAX;
    const uint64_t frames = (uint64_t)META_FRAMES_PER_BLOCK * META_FRAME_BLOCKS_MAX;
    static const uint64_t before_end[] = {1, 0};
    meta_pages *p = tarn_calloc(1, sizeof(*p));
    meta_frames *f = tarn_calloc(1, sizeof(*f));
    uint8_t mine[META_PAGE_BYTES] = {1}, other[META_PAGE_BYTES] = {2};

    (void)state;
    assert_true(p != NULL && f != NULL);
    for (size_t i = 0; i < TARN_ARRAY_LEN(before_end); i++) {
        bool known = before_end[i] > 0;
        uint64_t page = (pages - before_end[i]) * META_PAGE_BYTES;
        uint64_t frame = META_WAL_HEADER_BYTES + (frames - before_end[i]) * META_WAL_FRAME_BYTES + META_WAL_FRAME_HEADER_BYTES;
        meta_page_seal(mine, sizeof(mine), page);
        meta_page_seal(other, sizeof(other), page);
        assert_true(meta_pages_note(p, mine, page) && meta_frames_note(f, mine, sizeof(mine), frame));
        assert_true(meta_pages_right(p, mine, page) && meta_frames_right(f, mine, sizeof(mine), frame));
        assert_int_equal(meta_pages_right(p, other, page), !known);
        assert_int_equal(meta_frames_right(f, other, sizeof(other), frame), !known);
    }
    meta_pages_free(p);
    meta_frames_free(f);
    tarn_free(p);
    tarn_free(f);
}

/* A sum of 0 is one like any other, though 0 says that nothing is known. */
static void test_a_page_whose_sum_is_0_is_known(void **state)
{
    meta_pages *p = tarn_calloc(1, sizeof(*p));
    uint8_t zero[META_PAGE_BYTES] = {0}, other[META_PAGE_BYTES] = {0};

    (void)state;
    assert_non_null(p);
    other[META_PAGE_BYTES - META_PAGE_RESERVED_BYTES] = 9;
    assert_int_equal(meta_page_sum(zero), 0);
    assert_true(meta_pages_note(p, zero, META_PAGE_BYTES));
    assert_true(meta_pages_right(p, zero, META_PAGE_BYTES));
    assert_false(meta_pages_right(p, other, META_PAGE_BYTES));
    meta_pages_free(p);
    tarn_free(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_notes_reach_as_far_as_they_say),
        cmocka_unit_test(test_a_page_whose_sum_is_0_is_known),
        cmocka_unit_test(test_three_copies_are_the_same),
        cmocka_unit_test(test_stale_copy_is_rebuilt),
        cmocka_unit_test(test_stale_copy_alone_is_refused),
        cmocka_unit_test(test_quorum_lost),
        cmocka_unit_test(test_full_drive),
        cmocka_unit_test(test_full_drive_among_others),
        cmocka_unit_test(test_no_room_does_not_come_back),
        cmocka_unit_test(test_rotten_page),
        cmocka_unit_test(test_misdirected_page),
        cmocka_unit_test(test_rotten_log),
        cmocka_unit_test(test_log_rots_in_use),
        cmocka_unit_test(test_database_is_cut),
        cmocka_unit_test(test_cut_of_the_log_is_synced),
        cmocka_unit_test(test_an_old_log_is_left_behind),
        cmocka_unit_test(test_log_is_cut_in_use),
        cmocka_unit_test(test_read_errors_fail_over),
        cmocka_unit_test(test_bad_reads_at_start),
        cmocka_unit_test(test_logs_complete_each_other),
        cmocka_unit_test(test_join_proves_the_log),
        cmocka_unit_test(test_join_refuses_a_short_log),
        cmocka_unit_test(test_in_use),
        cmocka_unit_test(test_other_deployment),
        cmocka_unit_test(test_a_drive_comes_back_after_the_index_was_made_again),
        cmocka_unit_test(test_a_copy_that_breaks_at_the_start),
        cmocka_unit_test(test_two_deployments_that_may_both_count),
        cmocka_unit_test(test_database_without_record),
        cmocka_unit_test(test_newer_schema),
        cmocka_unit_test(test_copy_that_is_often_wrong_is_asked_last),
        cmocka_unit_test(test_older_schema_is_brought_up),
        cmocka_unit_test(test_too_few_to_write),
        cmocka_unit_test(test_a_generation_that_was_cut_off),
        cmocka_unit_test(test_read_only_start_after_a_cut),
        cmocka_unit_test(test_drives_come_and_go),
        cmocka_unit_test(test_options),
        cmocka_unit_test(test_power_cut_one_drive),
        cmocka_unit_test(test_power_cut_three_drives),
        cmocka_unit_test(test_power_cut_with_faults),
    };
    (void)tarn_log_open(getenv("TARN_TEST_LOG") != NULL ? NULL : "/dev/null", TARN_LOG_JSON, TARN_LOG_WARN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
