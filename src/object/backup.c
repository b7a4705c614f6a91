/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Backups of the metadata that are kept on the drives: <drive>/tarn/backup/meta-TIME.db (16 hex digits of milliseconds), the
 * newest BACKUPS_KEPT on every drive, made by the clock. They are there for the day when all copies of the database are lost:
 * an index that is rebuilt gets from them what lies nowhere else, which is inline objects, settings, namespaces.
 *
 * The first drive that takes it gets the backup from the database, the others a copy of the file; a name without ".tmp" is
 * given when the content is synced.
 *
 * Threads: files are touched on helper threads; one backup at a time.
 */
#include "upkeep.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

#define BACKUPS_KEPT 2
#define BACKUP_LOOK_MS 5000
#define BACKUP_NAP_MS 200
#define BACKUP_FIRST_MS 60000 /* after a start, when one is overdue */
#define BACKUP_CHUNK_BYTES (1024 * 1024)
#define BACKUP_LAST_KV "backup.last_ms"

static bool backup_path(const obj_drive *d, const char *name, char out[TARN_PATH_BYTES_MAX])
{
    tarn_sb b;
    tarn_sb_init_fixed(&b, out, TARN_PATH_BYTES_MAX);
    tarn_sb_fmt(&b, "%s/tarn/backup%s%s", d->path, name[0] ? "/" : "", name);
    return !b.failed;
}

static bool name_of(int64_t ms, const char *end, char out[64])
{
    tarn_sb b;
    tarn_sb_init_fixed(&b, out, 64);
    tarn_sb_fmt(&b, "meta-%016llx.db%s", (unsigned long long)ms, end);
    return !b.failed;
}

bool obj_backup_name(const char *name, uint64_t *ms)
{
    tarn_str n = tarn_str_of(name);
    return n.n == 24 && tarn_str_starts(n, "meta-") && tarn_str_ends(n, ".db") && tarn_hex_to_u64(tarn_str_sub(n, 5, 16), ms);
}

/* ------------------------------------------------------------------ one drive */
static int folder_make(tarn_store *s, const obj_drive *d)
{
    char path[TARN_PATH_BYTES_MAX], above[TARN_PATH_BYTES_MAX];
    if (!backup_path(d, "", path) || !obj_path(d, "", above)) {
        return -ENAMETOOLONG;
    }
    int rc = s->fs->mkdir(s->fs, path, 0700);
    if (rc == -EEXIST) {
        return 0;
    }
    return rc < 0 ? rc : s->fs->sync_dir(s->fs, above);
}

static int file_copy(tarn_store *s, const char *from_path, const char *to_path)
{
    tarn_file *from = NULL, *to = NULL;
    uint8_t *buf = tarn_malloc(BACKUP_CHUNK_BYTES);
    int rc = buf ? tarn_file_open_sync(s->fs, from_path, O_RDONLY | O_CLOEXEC, 0, &from) : -ENOMEM;
    if (rc == 0) {
        rc = tarn_file_open_sync(s->fs, to_path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600, &to);
    }
    for (uint64_t off = 0; rc == 0; off += BACKUP_CHUNK_BYTES) {
        int64_t n = tarn_file_pread_sync(from, buf, BACKUP_CHUNK_BYTES, off);
        int64_t put = n > 0 ? tarn_file_pwrite_sync(to, buf, (size_t)n, off) : n;
        rc = put < 0 ? (int)put : 0;
        if (n < BACKUP_CHUNK_BYTES) {
            break;
        }
    }
    if (rc == 0) {
        rc = s->fs->sync(s->fs, tarn_file_handle(to), false);
    }
    tarn_file_unref(from);
    tarn_file_unref(to);
    tarn_free(buf);
    return rc;
}

typedef struct old_names {
    uint64_t newest[BACKUPS_KEPT]; /* descending */
    tarn_store *s;
    const obj_drive *d;
} old_names;

static bool note_name(void *ctx, const char *name, bool is_dir)
{
    old_names *o = ctx;
    uint64_t ms = 0;
    if (is_dir || !obj_backup_name(name, &ms)) {
        return true;
    }
    for (size_t i = 0; i < BACKUPS_KEPT; i++) {
        if (ms > o->newest[i]) {
            memmove(&o->newest[i + 1], &o->newest[i], (BACKUPS_KEPT - 1 - i) * sizeof o->newest[0]);
            o->newest[i] = ms;
            break;
        }
    }
    return true;
}

static bool drop_name(void *ctx, const char *name, bool is_dir)
{
    old_names *o = ctx;
    char path[TARN_PATH_BYTES_MAX];
    uint64_t ms = 0;
    bool ours = !is_dir && (obj_backup_name(name, &ms) || tarn_str_ends(tarn_str_of(name), ".db.tmp"));
    if (ours && ms < o->newest[BACKUPS_KEPT - 1] && backup_path(o->d, name, path)) {
        (void)o->s->fs->unlink(o->s->fs, path); /* tried again the next time */
    }
    return true;
}

static int finish(tarn_store *s, const obj_drive *d, int64_t ms)
{
    char from[TARN_PATH_BYTES_MAX], to[TARN_PATH_BYTES_MAX], name[64], folder[TARN_PATH_BYTES_MAX];
    old_names o = {.s = s, .d = d};
    if (!name_of(ms, ".tmp", name) || !backup_path(d, name, from) || !name_of(ms, "", name) || !backup_path(d, name, to) ||
        !backup_path(d, "", folder)) {
        return -ENAMETOOLONG;
    }
    int rc = s->fs->rename(s->fs, from, to);
    if (rc == 0) {
        rc = s->fs->sync_dir(s->fs, folder);
    }
    if (rc == 0) {
        (void)s->fs->list(s->fs, folder, note_name, &o);
        (void)s->fs->list(s->fs, folder, drop_name, &o);
    }
    return rc;
}

/* ------------------------------------------------------------------ all of them */
typedef struct backup_job {
    tarn_store *s;
    tarn_err err;
    size_t good;
} backup_job;

static bool go_on(void *ctx)
{
    tarn_store *s = ctx;
    obj_background *b = s->background;
    return !b || !atomic_load(&b->stop);
}

static void backup_all(void *arg)
{
    backup_job *j = arg;
    tarn_store *s = j->s;
    char name[64], path[TARN_PATH_BYTES_MAX], first[TARN_PATH_BYTES_MAX];
    int64_t ms = tarn_now_ms();
    if (!name_of(ms, ".tmp", name)) {
        return;
    }
    for (size_t i = 0; i < s->drives_n && j->err != TARN_E_CANCELED; i++) {
        obj_drive *d = &s->drives[i];
        int rc = obj_drive_writable(d) ? folder_make(s, d) : -ENODEV;
        if (rc < 0 || !backup_path(d, name, path)) {
            continue;
        }
        if (j->good == 0) {
            j->err = tarn_meta_backup(s->meta, s->fs, path, go_on, s);
            rc = j->err ? -EIO : 0;
        } else {
            rc = file_copy(s, first, path);
        }
        if (rc == 0) {
            rc = finish(s, d, ms);
        }
        if (rc < 0) { /* full drives among them; the write path finds out about the others */
            tarn_log(TARN_LOG_WARN, "no metadata backup on a drive", "drive", d->path, "error", strerror(-rc), NULL);
            (void)s->fs->unlink(s->fs, path);
            continue;
        }
        if (j->good == 0 && name_of(ms, "", name)) {
            (void)backup_path(d, name, first);
            (void)name_of(ms, ".tmp", name);
        }
        j->good++;
    }
}

tarn_err tarn_store_backup_keep(tarn_store *s)
{
    backup_job j = {.s = s};
    obj_offload(s, backup_all, &j);
    if (j.good > 0) {
        tarn_logf(TARN_LOG_INFO, "metadata backup kept", "on %zu of %zu drives", j.good, s->drives_n);
        return TARN_OK;
    }
    return j.err ? j.err : TARN_E_QUORUM_WRITE;
}

/* ------------------------------------------------------------------ for somebody who takes it away */
typedef struct take_job {
    tarn_store *s;
    tarn_file *file;
    uint64_t bytes;
    tarn_err err;
} take_job;

static void take(void *arg)
{
    take_job *j = arg;
    tarn_store *s = j->s;
    char path[TARN_PATH_BYTES_MAX], name[96];
    tarn_fs_stat st;
    tarn_sb b;
    tarn_sb_init_fixed(&b, name, sizeof name);
    tarn_sb_fmt(&b, "take-%016llx.db.tmp", (unsigned long long)tarn_random_u64());
    for (size_t i = 0; i < s->drives_n && !j->file; i++) {
        obj_drive *d = &s->drives[i];
        if (!obj_drive_writable(d) || folder_make(s, d) < 0 || !backup_path(d, name, path)) {
            continue;
        }
        j->err = tarn_meta_backup(s->meta, s->fs, path, NULL, NULL);
        if (!j->err && tarn_file_open_sync(s->fs, path, O_RDONLY | O_CLOEXEC, 0, &j->file) == 0 &&
            s->fs->fstat(s->fs, tarn_file_handle(j->file), &st) == 0) {
            j->bytes = st.size_bytes;
        }
        (void)s->fs->unlink(s->fs, path); /* what is open stays readable; nothing to clean up later */
    }
}

tarn_err tarn_store_backup_take(tarn_store *s, tarn_file **out, uint64_t *bytes)
{
    take_job j = {.s = s, .err = TARN_E_QUORUM_WRITE};
    obj_offload(s, take, &j);
    if (j.file && j.bytes > 0) {
        *out = j.file;
        *bytes = j.bytes;
        return TARN_OK;
    }
    tarn_file_unref(j.file);
    return j.err ? j.err : TARN_E_IO;
}

/* ------------------------------------------------------------------ by the clock */
typedef struct last_arg {
    tarn_str text;
} last_arg;

static tarn_err last_fn(tarn_meta_tx *tx, void *arg)
{
    last_arg *a = arg;
    return tarn_meta_kv_put(tx, BACKUP_LAST_KV, a->text);
}

static int64_t last_ms(tarn_store *s)
{
    int64_t ms = 0;
    tarn_str text;
    tarn_arena *a = tarn_arena_new(4096);
    if (!a || tarn_meta_kv_get(s->meta, NULL, BACKUP_LAST_KV, a, &text) != TARN_OK || !tarn_str_to_i64(text, &ms)) {
        ms = 0;
    }
    tarn_arena_free(a);
    return ms;
}

static void set_last(tarn_store *s, int64_t ms)
{
    char mem[32];
    tarn_sb b;
    tarn_sb_init_fixed(&b, mem, sizeof mem);
    tarn_sb_i64(&b, ms);
    last_arg a = {tarn_sb_view(&b)};
    (void)tarn_meta_commit(s->meta, last_fn, &a);
}

static bool nap(tarn_store *s, int64_t ms)
{
    obj_background *b = s->background;
    for (; ms > 0 && !atomic_load(&b->stop) && !tarn_loop_stopping(b->loop); ms -= BACKUP_NAP_MS) {
        tarn_sleep_ms(BACKUP_NAP_MS);
    }
    return !atomic_load(&b->stop) && !tarn_loop_stopping(b->loop);
}

void obj_backup_main(void *arg)
{
    tarn_store *s = arg;
    int64_t interval_ms = (int64_t)s->backup_interval_s * 1000;
    int64_t wait_ms = interval_ms < BACKUP_FIRST_MS ? interval_ms : BACKUP_FIRST_MS;
    while (interval_ms > 0 && nap(s, wait_ms)) {
        int64_t now = tarn_now_ms(), last = last_ms(s);
        wait_ms = interval_ms < BACKUP_LOOK_MS ? interval_ms : BACKUP_LOOK_MS;
        if ((last <= now && now - last < interval_ms) || !tarn_store_writable(s)) {
            continue;
        }
        tarn_err err = tarn_store_backup_keep(s);
        if (err) {
            tarn_log(TARN_LOG_WARN, "background work failed", "work", "metadata backup", "error", tarn_err_get(err)->name, NULL);
        }
        set_last(s, now);
    }
}
