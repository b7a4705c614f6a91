/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The start: which copy of the database is the newest, and how the others come up to it.
 *
 * Facts this rests on:
 *  1. A commit is acknowledged after all good copies have synced it, and a copy that failed is out with a lower generation
 *     than the rest. So every copy with the highest generation has everything that was acknowledged.
 *  2. Acknowledged commits are on at least write_quorum copies; so more than copies_n - write_quorum records must be read
 *     to be sure that the highest generation was seen.
 *  3. The WAL starts over only after its pages were synced into the database of all good copies. So copies of the same
 *     generation differ, after a crash, only in pages that are in the WAL and in the WAL's unacknowledged tail: giving all
 *     of them the same WAL and checkpointing it makes them the same.
 *
 * A copy that is behind is rebuilt whole; its record says REBUILDING until its content is synced.
 *
 * Thread: the one that opens the store, before any other.
 */
#include "page.h"
#include "vfs.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

#define FILE_MODE 0600
#define COPY_CHUNK_BYTES (1024 * 1024)

static const char *const FILE_NAMES[META_WHICH_COUNT] = {META_VFS_DB_NAME, META_VFS_WAL_NAME};

/* ------------------------------------------------------------------ opening one copy */
static int open_in(tarn_fs *fs, const char *dir, const char *name, tarn_file **out)
{
    char mem[TARN_PATH_BYTES_MAX];
    tarn_sb b;

    tarn_sb_init_fixed(&b, mem, sizeof(mem));
    tarn_sb_fmt(&b, "%s/%s", dir, name);
    if (b.failed)
        return -ENAMETOOLONG;
    return tarn_file_open_sync(fs, b.p, O_RDWR | O_CREAT | O_CLOEXEC, FILE_MODE, out);
}

static int file_size(tarn_file *f, uint64_t *out)
{
    tarn_fs_stat st;
    int e = tarn_file_fs(f)->fstat(tarn_file_fs(f), tarn_file_handle(f), &st);

    if (e == 0)
        *out = st.size_bytes;
    return e;
}

int meta_copy_open_files(tarn_fs *fs, meta_copy *c)
{
    uint64_t size = 0;
    int e = open_in(fs, c->dir, META_VFS_LOCK_NAME, &c->lock_file);

    if (e == 0)
        e = fs->lock(fs, tarn_file_handle(c->lock_file));
    if (e == 0)
        e = open_in(fs, c->dir, META_VFS_GEN_NAME, &c->gen_file);
    if (e == 0)
        e = meta_gen_read(c->gen_file, &c->gen);
    for (int w = 0; w < META_WHICH_COUNT && e == 0; w++)
        e = open_in(fs, c->dir, FILE_NAMES[w], &c->files[w]);
    if (e == 0)
        e = file_size(c->files[META_DB], &size);
    c->db_empty = size == 0;
    if (e == 0)
        e = fs->sync_dir(fs, c->dir);
    return e;
}

void meta_copy_close_files(meta_copy *c)
{
    for (int w = 0; w < META_WHICH_COUNT; w++)
        tarn_file_unref(c->files[w]);
    tarn_file_unref(c->gen_file);
    tarn_file_unref(c->lock_file);
    tarn_free(c->dir);
}

void meta_copies_close(meta_mirror *v)
{
    for (size_t i = 0; i < v->n; i++)
        meta_copy_close_files(&v->copies[i]);
    tarn_free(v->copies);
    v->copies = NULL;
}

/* ------------------------------------------------------------------ choosing */
typedef struct candidate {
    meta_copy *copy;
    meta_wal_extent wal;
} candidate;

/* Is a's log newer than b's? A later start of the log counts first, then its length. */
static bool wal_newer(const meta_wal_extent *a, const meta_wal_extent *b)
{
    if (a->valid != b->valid)
        return a->valid;
    if (a->valid && a->sequence != b->sequence)
        return (int32_t)(a->sequence - b->sequence) > 0;
    return a->bytes > b->bytes;
}

static bool content_usable(const meta_copy *c)
{
    return atomic_load(&c->good) && (c->gen.state == META_GEN_DIRTY || c->gen.state == META_GEN_CLEAN);
}

/* The highest record among copies that are, or were, in use. *mixed: there are some of another deployment. */
static const meta_gen *record_top(const meta_mirror *v, bool *mixed)
{
    const meta_gen *top = NULL;

    *mixed = false;
    for (size_t i = 0; i < v->n; i++) {
        const meta_copy *c = &v->copies[i];
        if (!atomic_load(&c->good) || c->gen.state == META_GEN_NONE || c->gen.state == META_GEN_CREATING)
            continue;
        if (top != NULL && memcmp(top->deployment, c->gen.deployment, META_DEPLOYMENT_BYTES) != 0)
            *mixed = true;
        if (top == NULL || c->gen.generation > top->generation)
            top = &c->gen;
    }
    return top;
}

/* Checks what the records say together; sets generation and deployment. */
static tarn_err records_judge(meta_mirror *v)
{
    bool mixed;
    size_t seen = 0; /* copies that vouch for the highest generation, whatever their own state: see fact 2 */
    const meta_gen *top = record_top(v, &mixed);

    TARN_ASSERT(top != NULL);
    if (mixed) {
        tarn_log(TARN_LOG_ERROR, "metadata copies of different deployments", NULL);
        return TARN_E_FORMAT;
    }
    for (size_t i = 0; i < v->n; i++) {
        const meta_copy *c = &v->copies[i];
        if (atomic_load(&c->good) && c->gen.state != META_GEN_NONE &&
            memcmp(top->deployment, c->gen.deployment, META_DEPLOYMENT_BYTES) == 0)
            seen++;
    }
    if (seen + top->write_quorum <= top->copies_n) {
        tarn_logf(TARN_LOG_ERROR, "too few metadata copies", "%zu of %u can be read, %u are needed", seen, top->copies_n,
                  top->copies_n - top->write_quorum + 1);
        return TARN_E_QUORUM_READ;
    }
    if (top->copies_n > v->record_copies) /* drives that are missing today count: they may have what these have not */
        v->record_copies = top->copies_n;
    v->generation = top->generation;
    memcpy(v->deployment, top->deployment, META_DEPLOYMENT_BYTES);
    return TARN_OK;
}

/* The copy to go on from: of those with the highest generation the one with the newest log. NULL: none. */
static tarn_err choose(meta_mirror *v, candidate *out)
{
    candidate best = {0};

    for (size_t i = 0; i < v->n; i++) {
        meta_copy *c = &v->copies[i];
        candidate k = {.copy = c};
        if (!content_usable(c) || c->gen.generation != v->generation)
            continue;
        int e = meta_wal_scan(c->files[META_WAL], &k.wal);
        if (e != 0) {
            tarn_log(TARN_LOG_ERROR, "metadata log cannot be read", "folder", c->dir, "error", strerrordesc_np(-e), NULL);
            continue;
        }
        if (best.copy == NULL || wal_newer(&k.wal, &best.wal))
            best = k;
    }
    if (best.copy == NULL)
        return TARN_E_QUORUM_READ;
    *out = best;
    return TARN_OK;
}

/* ------------------------------------------------------------------ bringing copies up */
static int sync_file(tarn_file *f)
{
    return tarn_file_fs(f)->sync(tarn_file_fs(f), tarn_file_handle(f), false);
}

static bool page_there(const uint8_t *page, uint64_t off)
{
    return meta_page_check(page, META_PAGE_BYTES, off) && !meta_page_blank(page, META_PAGE_BYTES);
}

/* One chunk from the chosen copy; database pages that are wrong or empty are taken from another copy that has them. */
static int chunk_read(meta_mirror *v, const meta_copy *from, meta_which which, uint8_t *buf, size_t n, uint64_t off)
{
    int64_t got = tarn_file_pread_sync(from->files[which], buf, n, off);

    if (got < 0)
        return (int)got;
    if ((size_t)got != n)
        return -EIO;
    for (size_t at = 0; which == META_DB && at + META_PAGE_BYTES <= n; at += META_PAGE_BYTES) {
        if (page_there(buf + at, off + at))
            continue;
        for (size_t i = 0; i < v->n; i++) {
            const meta_copy *c = &v->copies[i];
            uint8_t page[META_PAGE_BYTES];
            if (c == from || !content_usable(c) || c->gen.generation != v->generation)
                continue;
            if (tarn_file_pread_sync(c->files[which], page, sizeof(page), off + at) == (int64_t)sizeof(page) &&
                page_there(page, off + at)) {
                memcpy(buf + at, page, sizeof(page));
                break;
            }
        }
    }
    return 0;
}

/* *from_failed: it was the source that failed. */
static int file_copy(meta_mirror *v, const meta_copy *from, meta_copy *to, meta_which which, uint64_t size, bool *from_failed)
{
    uint8_t *buf = tarn_malloc(COPY_CHUNK_BYTES);
    int e = buf == NULL ? -ENOMEM : 0;
    tarn_file *f = to->files[which];

    for (uint64_t off = 0; off < size && e == 0; off += COPY_CHUNK_BYTES) {
        size_t n = size - off < COPY_CHUNK_BYTES ? (size_t)(size - off) : COPY_CHUNK_BYTES;
        e = chunk_read(v, from, which, buf, n, off);
        *from_failed = e != 0;
        if (e == 0) {
            int64_t put = tarn_file_pwrite_sync(f, buf, n, off);
            e = put < 0 ? (int)put : (size_t)put == n ? 0 : -EIO;
        }
    }
    if (e == 0)
        e = v->fs->truncate(v->fs, tarn_file_handle(f), size);
    if (e == 0)
        e = sync_file(f);
    tarn_free(buf);
    return e;
}

static void copy_lost(meta_mirror *v, meta_copy *c, int e)
{
    tarn_log(TARN_LOG_ERROR, "metadata copy cannot be used", "folder", c->dir, "error", strerrordesc_np(-e), NULL);
    if (atomic_exchange(&c->good, false))
        atomic_fetch_sub(&v->good_n, 1);
    if (v->on_drive_failed != NULL)
        v->on_drive_failed(v->ctx, c->index, -e);
}

/* Pages of the database from off to the end. */
static int tail_copy(meta_mirror *v, const meta_copy *from, meta_copy *to, uint64_t off, uint64_t end)
{
    uint8_t *buf = tarn_malloc(COPY_CHUNK_BYTES);
    int e = buf == NULL ? -ENOMEM : 0;

    for (off -= off % META_PAGE_BYTES; off < end && e == 0; off += COPY_CHUNK_BYTES) {
        size_t n = end - off < COPY_CHUNK_BYTES ? (size_t)(end - off) : COPY_CHUNK_BYTES;
        e = chunk_read(v, from, META_DB, buf, n, off);
        if (e == 0) {
            int64_t put = tarn_file_pwrite_sync(to->files[META_DB], buf, n, off);
            e = put < 0 ? (int)put : (size_t)put == n ? 0 : -EIO;
        }
    }
    if (e == 0)
        e = sync_file(to->files[META_DB]);
    tarn_free(buf);
    return e;
}

/*
 * Copies of the newest generation may end at different places: a checkpoint came further on one than on another, or a drive
 * has lost the end of its file. The longest has all; no length may be taken from another one.
 */
static void lengths_level(meta_mirror *v)
{
    meta_copy *longest = NULL;
    uint64_t end = 0, size;

    for (size_t i = 0; i < v->n; i++) {
        meta_copy *c = &v->copies[i];
        if (content_usable(c) && c->gen.generation == v->generation && file_size(c->files[META_DB], &size) == 0 && size > end) {
            longest = c;
            end = size;
        }
    }
    for (size_t i = 0; longest != NULL && i < v->n; i++) {
        meta_copy *c = &v->copies[i];
        if (c == longest || !content_usable(c) || c->gen.generation != v->generation)
            continue;
        int e = file_size(c->files[META_DB], &size);
        if (e == 0 && size < end) {
            tarn_logf(TARN_LOG_WARN, "metadata copy lengthened", "%s ends at %llu, %s at %llu", c->dir, (unsigned long long)size,
                      longest->dir, (unsigned long long)end);
            e = tail_copy(v, longest, c, size, end);
        }
        if (e != 0)
            copy_lost(v, c, e);
    }
}

/* Same generation: the log of the chosen copy and the size of its database. */
static int copy_level(meta_mirror *v, const candidate *from, meta_copy *to, uint64_t db_size, bool *from_failed)
{
    int e = file_copy(v, from->copy, to, META_WAL, from->wal.bytes, from_failed);

    if (e == 0)
        e = v->fs->truncate(v->fs, tarn_file_handle(to->files[META_DB]), db_size);
    return e;
}

static int copy_rebuild(meta_mirror *v, const candidate *from, meta_copy *to, uint64_t db_size, bool *from_failed)
{
    tarn_logf(TARN_LOG_WARN, "metadata copy rebuilt", "%s is behind (generation %llu of %llu): %llu bytes are copied from %s", to->dir,
              (unsigned long long)to->gen.generation, (unsigned long long)v->generation, (unsigned long long)db_size, from->copy->dir);
    to->behind = true;
    to->gen.state = META_GEN_REBUILDING;
    to->gen.generation = v->generation;
    to->gen.copies_n = v->record_copies;
    to->gen.write_quorum = v->record_quorum;
    memcpy(to->gen.deployment, v->deployment, META_DEPLOYMENT_BYTES);
    int e = meta_gen_write(to->gen_file, &to->gen);
    if (e == 0)
        e = file_copy(v, from->copy, to, META_DB, db_size, from_failed);
    if (e == 0)
        e = file_copy(v, from->copy, to, META_WAL, from->wal.bytes, from_failed);
    return e;
}

/*
 * The log of the chosen copy ends where it is valid, and is durable: a crash after the checkpoint that follows must not leave a
 * shorter one, which would undo a part of it.
 */
static int from_ready(const meta_mirror *v, const candidate *from, uint64_t *db_size)
{
    tarn_file *wal = from->copy->files[META_WAL];
    int e = file_size(from->copy->files[META_DB], db_size);

    if (e == 0)
        e = v->fs->truncate(v->fs, tarn_file_handle(wal), from->wal.bytes);
    return e == 0 ? sync_file(wal) : e;
}

/* Brings all copies up to the chosen one; false when that one has failed: another must be chosen. */
static bool copies_level(meta_mirror *v, const candidate *from)
{
    uint64_t db_size = 0;
    bool all_clean = true, from_failed = false;
    int e = from_ready(v, from, &db_size);

    from_failed = e != 0;
    for (size_t i = 0; i < v->n; i++)
        all_clean = all_clean && (!content_usable(&v->copies[i]) || v->copies[i].gen.state == META_GEN_CLEAN);
    for (size_t i = 0; i < v->n && !from_failed; i++) {
        meta_copy *c = &v->copies[i];
        if (!atomic_load(&c->good) || c == from->copy)
            continue;
        bool same = content_usable(c) && c->gen.generation == v->generation;
        if (same && all_clean)
            continue;
        e = same ? copy_level(v, from, c, db_size, &from_failed) : copy_rebuild(v, from, c, db_size, &from_failed);
        if (e != 0 && !from_failed)
            copy_lost(v, c, e);
    }
    if (from_failed)
        copy_lost(v, from->copy, e);
    return !from_failed;
}

/* ------------------------------------------------------------------ start */
/* All copies are there, none has content: a new database. False also where somebody has to look. */
static tarn_err judge_fresh(meta_mirror *v, bool *fresh)
{
    size_t records = 0, stray = 0;

    for (size_t i = 0; i < v->n; i++) {
        const meta_copy *c = &v->copies[i];
        if (!atomic_load(&c->good))
            continue;
        if (c->gen.state == META_GEN_NONE)
            stray += c->db_empty ? 0 : 1;
        else if (c->gen.state != META_GEN_CREATING)
            records++;
    }
    *fresh = records == 0;
    if (records == 0 && stray > 0) {
        tarn_log(TARN_LOG_ERROR, "metadata database without its generation record", "file", META_VFS_GEN_NAME, NULL);
        return TARN_E_FORMAT;
    }
    if (records == 0 && atomic_load(&v->good_n) != v->n) {
        tarn_log(TARN_LOG_ERROR, "a new metadata database needs all drives", NULL);
        return TARN_E_QUORUM_WRITE;
    }
    return TARN_OK;
}

static int start_fresh(meta_mirror *v)
{
    tarn_random(v->deployment, sizeof(v->deployment));
    v->generation = 0;
    int e = meta_mirror_mark(v, META_GEN_CREATING, false);
    for (int w = 0; w < META_WHICH_COUNT && e == 0; w++) {
        meta_job job = {.which = (meta_which)w, .truncate = true};
        e = meta_mirror_run(v, &job);
    }
    return e;
}

static tarn_err copies_array(meta_mirror *v, const tarn_meta_options *opt)
{
    v->copies = tarn_calloc(TARN_META_DRIVES_MAX, sizeof(*v->copies)); /* room for those that join later */
    if (v->copies == NULL)
        return TARN_E_NO_MEMORY;
    v->n = opt->dirs_n;
    for (size_t i = 0; i < v->n; i++) {
        v->copies[i].index = i;
        v->copies[i].dir = tarn_strdup(tarn_str_of(opt->dirs[i]));
        if (v->copies[i].dir == NULL)
            return TARN_E_NO_MEMORY;
    }
    return TARN_OK;
}

static tarn_err start_existing(meta_mirror *v)
{
    candidate from;
    tarn_err err = records_judge(v);
    bool level = false;

    if (err == TARN_OK)
        lengths_level(v);
    while (err == TARN_OK && !level) { /* each failure takes a copy out, so this ends */
        err = choose(v, &from);
        level = err == TARN_OK && copies_level(v, &from);
    }
    if (err != TARN_OK)
        return err;
    if (atomic_load(&v->good_n) < v->write_quorum)
        return TARN_E_QUORUM_WRITE;
    atomic_store(&v->read_from, from.copy->index);
    return meta_mirror_mark(v, META_GEN_DIRTY, true) == 0 ? TARN_OK : TARN_E_QUORUM_WRITE;
}

tarn_err meta_copies_open(meta_mirror *v, const tarn_meta_options *opt, bool *fresh)
{
    tarn_err err = copies_array(v, opt);

    if (err != TARN_OK)
        return err;
    atomic_store(&v->good_n, v->n);
    for (size_t i = 0; i < v->n; i++) {
        meta_copy *c = &v->copies[i];
        atomic_store(&c->good, true);
        int e = meta_copy_open_files(v->fs, c);
        if (e == -EWOULDBLOCK) {
            tarn_log(TARN_LOG_ERROR, "metadata is in use by another process", "folder", c->dir, NULL);
            return TARN_E_CONFLICT;
        }
        if (e != 0)
            copy_lost(v, c, e);
    }
    if (atomic_load(&v->good_n) < v->write_quorum)
        return TARN_E_QUORUM_WRITE;
    err = judge_fresh(v, fresh);
    if (err != TARN_OK)
        return err;
    if (*fresh && opt->must_exist) {
        tarn_log(TARN_LOG_ERROR, "all copies of the metadata are missing", "advice", "tarn admin rebuild-index makes them again", NULL);
        return TARN_E_NOT_FOUND;
    }
    if (*fresh)
        return start_fresh(v) == 0 ? TARN_OK : TARN_E_QUORUM_WRITE;
    return start_existing(v);
}
