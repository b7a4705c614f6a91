/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The watch over drives: once a second it looks whether each drive still is the one that was opened. Between two looks a
 * file that is being written may lose its name, alone or with all others: each upload looks at its own before it counts them.
 *
 *   in use ──identity gone, or another's──▶ FAILED (vanished) ──there again, or blank──▶ NEW (being filled) ──▶ OK
 *   MISSING at the start ──there, or blank──▶ NEW
 *
 * A drive that is in use and has lost its copy of the database (it was full) gets one again as soon as there is room.
 *
 * A drive that was taken out by an error of its own stays out while it is the same drive: an error is not retried. A blank one
 * in its place is used.
 *
 * Threads: a fiber on the background loop; drives are looked at on helper threads.
 */
#include "upkeep.h"

#define WATCH_PERIOD_MS 1000
#define WATCH_NAP_MS 200
#define WATCH_RETRY_LOOKS 10 /* looks between two tries to use a drive that could not be */

typedef struct look_job {
    tarn_store *s;
    obj_drive *d;
    obj_look look;
    tarn_err err;
} look_job;

static void look_now(void *arg)
{
    look_job *j = arg;
    j->look = obj_drive_look(j->s, j->d);
}

static void rejoin_now(void *arg)
{
    look_job *j = arg;
    j->err = obj_drive_rejoin(j->s, j->d, j->look);
}

bool obj_file_deleted(tarn_store *s, obj_drive *d, const tarn_file *f)
{
    tarn_fs_stat st;
    int rc = s->fs->fstat(s->fs, tarn_file_handle(f), &st);
    if (rc < 0) {
        obj_drive_error(s, d, "looking at an open file", -rc);
    } else if (st.nameless) {
        tarn_log(TARN_LOG_WARN, "a file was deleted while it was written", "drive", d->path, "effect",
                 "what was written to it counts as missing", NULL);
    }
    return rc < 0 || st.nameless;
}

static void copy_again_now(void *arg)
{
    look_job *j = arg;
    j->err = obj_drive_copy_again(j->s, j->d);
}

static bool may_come_back(const obj_drive *d, obj_look look)
{
    int state = atomic_load(&d->state);
    switch (look) {
    case OBJ_LOOK_BLANK:
    case OBJ_LOOK_OURS:
        return true;
    case OBJ_LOOK_SAME: /* mounted again, or its folder was moved back: what it missed is made up for */
        return d->vanished || state == TARN_DRIVE_MISSING;
    default:
        return false;
    }
}

typedef struct watched {
    unsigned rest, copy_rest; /* looks until the drive, its copy, is tried again */
} watched;

static void watch_copy(tarn_store *s, obj_drive *d, watched *w)
{
    look_job j = {.s = s, .d = d};
    if (w->copy_rest > 0) {
        w->copy_rest--;
        return;
    }
    if (!obj_drive_lacks_copy(s, d)) {
        return;
    }
    obj_offload(s, copy_again_now, &j);
    w->copy_rest = j.err ? WATCH_RETRY_LOOKS : 0;
    if (j.err) {
        tarn_log(TARN_LOG_WARN, "drive without a copy of the metadata", "drive", d->path, "error", tarn_err_get(j.err)->name, NULL);
    }
}

static void watch_one(tarn_store *s, obj_drive *d, watched *w)
{
    look_job j = {.s = s, .d = d};
    bool used = obj_drive_readable(d);
    if (w->rest > 0) {
        w->rest--;
        return;
    }
    obj_offload(s, look_now, &j);
    if (used && j.look != OBJ_LOOK_SAME) {
        d->vanished = true;
        obj_drive_set(s, d, TARN_DRIVE_FAILED, "vanished, or is not the drive that was opened: bring it back, or give an empty folder");
        tarn_log(TARN_LOG_ERROR, "drive taken out", "drive", d->path, "operation", "looking at its identity", "error", "it is gone", NULL);
        obj_drive_drop_copies(s, d);
        return;
    }
    if (!used && j.look == OBJ_LOOK_NONE) {
        d->vanished = true;
    }
    if (used) {
        watch_copy(s, d, w);
        return;
    }
    if (!may_come_back(d, j.look) || !tarn_store_writable(s)) {
        return;
    }
    obj_offload(s, rejoin_now, &j);
    if (j.err) {
        w->rest = WATCH_RETRY_LOOKS;
        tarn_log(TARN_LOG_WARN, "drive cannot be used yet", "drive", d->path, "error", tarn_err_get(j.err)->name, NULL);
    }
}

void obj_watch_main(void *arg)
{
    tarn_store *s = arg;
    obj_background *b = s->background;
    watched drives[OBJ_DRIVES_MAX] = {{0}};
    unsigned naps = 0;
    while (!atomic_load(&b->stop) && !tarn_loop_stopping(b->loop)) {
        tarn_sleep_ms(WATCH_NAP_MS);
        if (++naps < WATCH_PERIOD_MS / WATCH_NAP_MS) {
            continue;
        }
        naps = 0;
        for (size_t i = 0; i < s->drives_n && !atomic_load(&b->stop); i++) {
            watch_one(s, &s->drives[i], &drives[i]);
        }
    }
}
