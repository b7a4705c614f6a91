/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Drives in memory for the tests of meta, behind tarn_fs: what was written but not synced can get lost, in sectors, in any
 * order. Paths are "/0/name", "/1/name", …: the digit is the drive.
 *
 * Faults of a drive: writes, syncs or reads fail; it is full. Power cut: after a number of calls everything fails, then
 * sim_power_on() leaves of each unsynced write what chance decides, sector by sector.
 */
#ifndef TARN_TEST_META_SIMFS_H
#define TARN_TEST_META_SIMFS_H

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "tarn/io.h"

#define SIM_DRIVES_MAX 4
#define SIM_FILES_MAX 64
#define SIM_SECTOR_BYTES 512
#define SIM_FILE_BYTES_MAX (12u * 1024 * 1024)

typedef struct sim_pending { /* a write or a truncation that has not been synced */
    struct sim_pending *next;
    uint64_t off;
    size_t n;
    bool truncate;
    uint8_t bytes[];
} sim_pending;

typedef struct sim_file {
    char path[64];
    size_t drive;
    bool used;
    uint8_t *now; /* what a reader sees */
    uint64_t now_n;
    uint8_t *durable;
    uint64_t durable_n;
    sim_pending *first, **end;
    bool locked;
} sim_file;

typedef struct sim_drive {
    atomic_int write_errno; /* 0: works. A test sets these while the store's threads run */
    atomic_int sync_errno;
    atomic_int read_errno;
    atomic_uint garble_every; /* of so many reads one returns a wrong byte; 0: none does */
    atomic_uint reads;
    atomic_ullong full_above_bytes; /* 0: no limit of a file's size */
} sim_drive;

typedef struct sim {
    tarn_fs fs;
    pthread_mutex_t lock;
    sim_file files[SIM_FILES_MAX];
    sim_drive drives[SIM_DRIVES_MAX];
    uint64_t rng;
    uint64_t calls;        /* that change something */
    uint64_t cut_at_calls; /* 0: never */
    atomic_bool off;
} sim;

static sim *sim_of(tarn_fs *fs)
{
    return (sim *)(void *)fs; /* fs is its first member */
}

static uint64_t sim_rnd(sim *s, uint64_t below)
{
    s->rng ^= s->rng << 13;
    s->rng ^= s->rng >> 7;
    s->rng ^= s->rng << 17;
    return s->rng % below;
}

/* With the lock: is the power still on for a call that changes something? */
static bool sim_tick(sim *s)
{
    s->calls++;
    if (s->cut_at_calls != 0 && s->calls >= s->cut_at_calls)
        s->off = true;
    return !s->off;
}

static void sim_apply(uint8_t *image, uint64_t *image_n, uint64_t off, const uint8_t *p, size_t n)
{
    if (off + n > SIM_FILE_BYTES_MAX)
        abort();
    if (off > *image_n)
        memset(image + *image_n, 0, off - *image_n);
    memcpy(image + off, p, n);
    if (off + n > *image_n)
        *image_n = off + n;
}

static void sim_apply_size(uint8_t *image, uint64_t *image_n, uint64_t size)
{
    if (size > SIM_FILE_BYTES_MAX)
        abort();
    if (size > *image_n)
        memset(image + *image_n, 0, size - *image_n);
    *image_n = size;
}

static void sim_note(sim_file *f, uint64_t off, const void *p, size_t n, bool truncate)
{
    sim_pending *w = tarn_malloc(sizeof(*w) + n);

    if (w == NULL)
        abort();
    w->next = NULL;
    w->off = off;
    w->n = n;
    w->truncate = truncate;
    if (n > 0)
        memcpy(w->bytes, p, n);
    *f->end = w;
    f->end = &w->next;
}

static void sim_forget(sim_file *f)
{
    while (f->first != NULL) {
        sim_pending *w = f->first;
        f->first = w->next;
        tarn_free(w);
    }
    f->end = &f->first;
}

/* ------------------------------------------------------------------ the functions of tarn_fs */
static int sim_open(tarn_fs *fs, const char *path, int flags, int mode, int64_t *handle)
{
    sim *s = sim_of(fs);
    sim_file *f = NULL;
    int e = 0;

    (void)mode;
    pthread_mutex_lock(&s->lock);
    for (size_t i = 0; i < SIM_FILES_MAX && f == NULL; i++) {
        if (s->files[i].used && strcmp(s->files[i].path, path) == 0)
            f = &s->files[i];
    }
    for (size_t i = 0; i < SIM_FILES_MAX && f == NULL && (flags & O_CREAT); i++) {
        if (s->files[i].used)
            continue;
        f = &s->files[i];
        f->used = true;
        tarn_sb b;
        tarn_sb_init_fixed(&b, f->path, sizeof(f->path));
        tarn_sb_cstr(&b, path);
        f->drive = (size_t)(path[1] - '0');
        f->now = tarn_calloc(1, SIM_FILE_BYTES_MAX);
        f->durable = tarn_calloc(1, SIM_FILE_BYTES_MAX);
        f->end = &f->first;
        if (b.failed || f->now == NULL || f->durable == NULL || f->drive >= SIM_DRIVES_MAX)
            abort();
    }
    if (f == NULL)
        e = -ENOENT;
    else if (s->off || s->drives[f->drive].read_errno != 0)
        e = -EIO;
    else
        *handle = f - s->files;
    pthread_mutex_unlock(&s->lock);
    return e;
}

static int sim_close(tarn_fs *fs, int64_t handle)
{
    sim *s = sim_of(fs);

    pthread_mutex_lock(&s->lock);
    s->files[handle].locked = false;
    pthread_mutex_unlock(&s->lock);
    return 0;
}

static int64_t sim_pread(tarn_fs *fs, int64_t handle, void *buf, size_t n, uint64_t off)
{
    sim *s = sim_of(fs);
    sim_file *f = &s->files[handle];
    int64_t r;

    pthread_mutex_lock(&s->lock);
    if (s->off || s->drives[f->drive].read_errno != 0) {
        r = -EIO;
    } else {
        size_t have = off >= f->now_n ? 0 : (size_t)(f->now_n - off);
        r = (int64_t)(have < n ? have : n);
        memcpy(buf, f->now + off, (size_t)r);
        sim_drive *d = &s->drives[f->drive];
        if (r > 0 && d->garble_every != 0 && ++d->reads % d->garble_every == 0)
            ((uint8_t *)buf)[sim_rnd(s, (uint64_t)r)] ^= 0x40;
    }
    pthread_mutex_unlock(&s->lock);
    return r;
}

static int64_t sim_pwrite(tarn_fs *fs, int64_t handle, const void *buf, size_t n, uint64_t off)
{
    sim *s = sim_of(fs);
    sim_file *f = &s->files[handle];
    sim_drive *d = &s->drives[f->drive];
    int64_t r = (int64_t)n;

    pthread_mutex_lock(&s->lock);
    if (!sim_tick(s)) {
        r = -EIO;
    } else if (d->write_errno != 0) {
        r = -d->write_errno;
    } else if (d->full_above_bytes != 0 && off + n > d->full_above_bytes) {
        r = -ENOSPC;
    } else {
        sim_apply(f->now, &f->now_n, off, buf, n);
        sim_note(f, off, buf, n, false);
    }
    pthread_mutex_unlock(&s->lock);
    return r;
}

static int sim_sync(tarn_fs *fs, int64_t handle, bool data_only)
{
    sim *s = sim_of(fs);
    sim_file *f = &s->files[handle];
    int r = 0;

    (void)data_only;
    pthread_mutex_lock(&s->lock);
    if (!sim_tick(s)) {
        r = -EIO;
    } else if (s->drives[f->drive].sync_errno != 0) {
        r = -s->drives[f->drive].sync_errno;
    } else {
        for (const sim_pending *w = f->first; w != NULL; w = w->next) {
            if (w->truncate)
                sim_apply_size(f->durable, &f->durable_n, w->off);
            else
                sim_apply(f->durable, &f->durable_n, w->off, w->bytes, w->n);
        }
        sim_forget(f);
    }
    pthread_mutex_unlock(&s->lock);
    return r;
}

static int sim_truncate(tarn_fs *fs, int64_t handle, uint64_t size)
{
    sim *s = sim_of(fs);
    sim_file *f = &s->files[handle];
    int r = 0;

    pthread_mutex_lock(&s->lock);
    if (!sim_tick(s)) {
        r = -EIO;
    } else if (s->drives[f->drive].write_errno != 0) {
        r = -s->drives[f->drive].write_errno;
    } else {
        sim_apply_size(f->now, &f->now_n, size);
        sim_note(f, size, NULL, 0, true);
    }
    pthread_mutex_unlock(&s->lock);
    return r;
}

static int sim_allocate(tarn_fs *fs, int64_t handle, uint64_t off, uint64_t n)
{
    sim *s = sim_of(fs);
    sim_file *f = &s->files[handle];
    sim_drive *d = &s->drives[f->drive];

    if (d->full_above_bytes != 0 && off + n > d->full_above_bytes)
        return -ENOSPC;
    return off + n > f->now_n ? sim_truncate(fs, handle, off + n) : 0;
}

static int sim_punch(tarn_fs *fs, int64_t handle, uint64_t off, uint64_t n)
{
    (void)fs;
    (void)handle;
    (void)off;
    (void)n;
    return -ENOTSUP;
}

static int sim_fstat(tarn_fs *fs, int64_t handle, tarn_fs_stat *out)
{
    sim *s = sim_of(fs);

    pthread_mutex_lock(&s->lock);
    int r = s->off ? -EIO : 0;
    *out = (tarn_fs_stat){.size_bytes = s->files[handle].now_n};
    pthread_mutex_unlock(&s->lock);
    return r;
}

static int sim_sync_dir(tarn_fs *fs, const char *path)
{
    (void)path;
    return sim_of(fs)->off ? -EIO : 0;
}

static int sim_lock(tarn_fs *fs, int64_t handle)
{
    sim *s = sim_of(fs);
    int r = 0;

    pthread_mutex_lock(&s->lock);
    if (s->files[handle].locked)
        r = -EWOULDBLOCK;
    s->files[handle].locked = true;
    pthread_mutex_unlock(&s->lock);
    return r;
}

static TARN_UNUSED sim *sim_new(uint64_t seed)
{
    sim *s = tarn_calloc(1, sizeof(*s));

    if (s == NULL || pthread_mutex_init(&s->lock, NULL) != 0)
        abort();
    s->rng = seed * 0x9e3779b97f4a7c15ULL + 1;
    s->fs = (tarn_fs){.name = "sim",
                      .open = sim_open,
                      .close = sim_close,
                      .pread = sim_pread,
                      .pwrite = sim_pwrite,
                      .sync = sim_sync,
                      .truncate = sim_truncate,
                      .allocate = sim_allocate,
                      .punch = sim_punch,
                      .fstat = sim_fstat,
                      .sync_dir = sim_sync_dir,
                      .lock = sim_lock};
    return s;
}

static TARN_UNUSED void sim_free(sim *s)
{
    for (size_t i = 0; i < SIM_FILES_MAX; i++) {
        if (!s->files[i].used)
            continue;
        sim_forget(&s->files[i]);
        tarn_free(s->files[i].now);
        tarn_free(s->files[i].durable);
    }
    pthread_mutex_destroy(&s->lock);
    tarn_free(s);
}

/* One unsynced write: each of its sectors came through or not; a truncation as a whole. */
static void sim_chance(sim *s, sim_file *f, const sim_pending *w)
{
    uint64_t luck = sim_rnd(s, 4); /* 0: nothing, 1: all, else by sector */

    if (w->truncate) {
        if (luck != 0)
            sim_apply_size(f->durable, &f->durable_n, w->off);
        return;
    }
    for (size_t at = 0; at < w->n;) {
        size_t n = SIM_SECTOR_BYTES - (size_t)((w->off + at) % SIM_SECTOR_BYTES);
        n = n < w->n - at ? n : w->n - at;
        if (luck == 1 || (luck > 1 && sim_rnd(s, 2) == 0))
            sim_apply(f->durable, &f->durable_n, w->off + at, w->bytes + at, n);
        at += n;
    }
}

/* The machine comes back: what was synced is there, of the rest what chance left. Faults are gone. */
static TARN_UNUSED void sim_power_on(sim *s)
{
    for (size_t i = 0; i < SIM_FILES_MAX; i++) {
        sim_file *f = &s->files[i];
        if (!f->used)
            continue;
        for (const sim_pending *w = f->first; w != NULL; w = w->next)
            sim_chance(s, f, w);
        sim_forget(f);
        memcpy(f->now, f->durable, f->durable_n);
        f->now_n = f->durable_n;
        f->locked = false;
    }
    for (size_t i = 0; i < SIM_DRIVES_MAX; i++) {
        s->drives[i].write_errno = s->drives[i].sync_errno = s->drives[i].read_errno = 0;
        s->drives[i].full_above_bytes = 0;
        s->drives[i].garble_every = 0;
    }
    s->off = false;
    s->cut_at_calls = 0;
}

static TARN_UNUSED sim_file *sim_find(sim *s, const char *path)
{
    for (size_t i = 0; i < SIM_FILES_MAX; i++) {
        if (s->files[i].used && strcmp(s->files[i].path, path) == 0)
            return &s->files[i];
    }
    return NULL;
}

/* The drive has been replaced by an empty one. */
static TARN_UNUSED void sim_blank(sim *s, size_t drive)
{
    for (size_t i = 0; i < SIM_FILES_MAX; i++) {
        sim_file *f = &s->files[i];
        if (!f->used || f->drive != drive)
            continue;
        sim_forget(f);
        f->now_n = f->durable_n = 0;
    }
}

#endif
