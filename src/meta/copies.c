/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The start: which copy of the database is the newest, and how the others come up to it.
 *
 * Facts this rests on:
 *  1. A commit is acknowledged after all good copies have synced it, and a copy that failed is out with a lower generation
 *     than the rest. So every copy with the highest generation has everything that was acknowledged.
 *  2. Acknowledged commits are on at least write_quorum copies; so more than copies_n - write_quorum records must be read
 *     to be sure that the highest generation was seen.
 *     A generation that fewer copies can have than it needed was cut off while it was written, and nothing was acknowledged,
 *     or done to a copy, in it: so the copies with the one before have everything, too (complete_from).
 *  3. The WAL starts over only after its pages were synced into the database of all good copies. So copies of the same
 *     generation differ, after a crash, only in pages that are in the WAL and in the WAL's unacknowledged tail: giving all
 *     of them the same WAL and checkpointing it makes them the same.
 *  4. A read that goes wrong proves nothing about what is on the drive, and less about another drive. What is read here has
 *     its own proof (the sums that run through the log, the checksum of a page); without it the next copy is asked, and what
 *     is copied is what has passed. A copy is given up only when it cannot be written, or the folder cannot be used; when
 *     nothing right can be read from any, the start fails and all stay as they are.
 *
 * A copy that is behind is rebuilt whole; its record says REBUILDING until its content is synced.
 *
 * Thread: the one that opens the store, before any other.
 */
#include "frames.h"
#include "page.h"
#include "vfs.h"
#include "wal.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

#define FILE_MODE 0600
#define COPY_CHUNK_BYTES (1024 * 1024)
#define PAGE_ROUNDS 2 /* how often each copy is asked for a page that is wrong */

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
        e = file_size(c->files[META_DB], &c->db_bytes);
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
/* What the copies' logs are like, and the one to go on from. */
typedef struct choice {
    bool scanned[TARN_META_DRIVES_MAX];
    meta_wal_extent wal[TARN_META_DRIVES_MAX];
    size_t from;
} choice;

/* Is a's log newer than b's? A later start of the log counts first, then its length; where both are the same, a drive that gave
 * it at once is the better one to go on with. */
static bool wal_better(const meta_wal_extent *a, const meta_wal_extent *b)
{
    if (a->valid != b->valid)
        return a->valid;
    if (a->valid && a->sequence != b->sequence)
        return (int32_t)(a->sequence - b->sequence) > 0;
    return a->bytes != b->bytes ? a->bytes > b->bytes : a->amiss < b->amiss;
}

static bool content_usable(const meta_mirror *v, const meta_copy *c)
{
    return atomic_load(&c->good) &&
           (c->gen.state == META_GEN_DIRTY || c->gen.state == META_GEN_CLEAN || (c->gen.state == META_GEN_UNFINISHED && v->unfinished));
}

static bool of_deployment(const meta_copy *c, const uint8_t deployment[META_DEPLOYMENT_BYTES])
{
    return memcmp(c->gen.deployment, deployment, META_DEPLOYMENT_BYTES) == 0;
}

/* Has it everything that was acknowledged? */
static bool trusted(const meta_mirror *v, const meta_copy *c)
{
    return content_usable(v, c) && c->gen.generation >= v->complete_from && of_deployment(c, v->deployment);
}

/* Does its record count among those of a deployment, whatever its state says of its content? */
static bool counts(const meta_copy *c, const uint8_t deployment[META_DEPLOYMENT_BYTES])
{
    return atomic_load(&c->good) && c->gen.state != META_GEN_NONE && of_deployment(c, deployment);
}

/* Copies of one deployment of the metadata. */
typedef struct kin {
    const meta_gen *top; /* the highest record among those that are, or were, in use; NULL: none */
    size_t seen;         /* copies that vouch for the highest generation, whatever their own state: see fact 2 */
    bool enough;
} kin;

static kin kin_of(const meta_mirror *v, const uint8_t deployment[META_DEPLOYMENT_BYTES])
{
    kin k = {0};

    for (size_t i = 0; i < v->n; i++) {
        const meta_copy *c = &v->copies[i];
        if (!counts(c, deployment))
            continue;
        k.seen++;
        if (c->gen.state != META_GEN_CREATING && (k.top == NULL || c->gen.generation > k.top->generation))
            k.top = &c->gen;
    }
    k.enough = k.top != NULL && k.seen + k.top->write_quorum > k.top->copies_n;
    return k;
}

/* Is there a copy of the same deployment before this one? */
static bool met_before(const meta_mirror *v, size_t index)
{
    for (size_t i = 0; i < index; i++) {
        if (counts(&v->copies[i], v->copies[index].gen.deployment))
            return true;
    }
    return false;
}

/*
 * The deployment that counts. Two of them meet when the index was made again without a drive that comes back: what that has is of
 * before. So one that has enough copies, and more than half of those that are here, counts, if no other has enough. *mixed: nobody
 * can say which.
 */
static kin kin_choose(const meta_mirror *v, bool *mixed)
{
    kin best = {0};
    size_t kinds = 0, enough = 0;

    for (size_t i = 0; i < v->n; i++) {
        const meta_copy *c = &v->copies[i];
        kin k = kin_of(v, c->gen.deployment);
        if (!atomic_load(&c->good) || c->gen.state == META_GEN_NONE || k.top == NULL || met_before(v, i))
            continue;
        kinds++;
        enough += k.enough ? 1 : 0;
        if (best.top == NULL || k.seen > best.seen)
            best = k;
    }
    *mixed = kinds > 1 && (enough != 1 || !best.enough || 2 * best.seen <= v->n);
    return best;
}

/* Is the newest content that of a rebuilding that did not come to its end? A copy whose record has been finished is newer. */
static bool left_unfinished(const meta_mirror *v)
{
    bool left = false;

    for (size_t i = 0; i < v->n; i++) {
        const meta_copy *c = &v->copies[i];
        if (trusted(v, c))
            return false;
        left = left || (atomic_load(&c->good) && c->gen.state == META_GEN_UNFINISHED && c->gen.generation == v->generation &&
                        of_deployment(c, v->deployment));
    }
    return left;
}

/* Could this generation have reached as many copies as it needed, those that are not here included? And which one is before it? */
static bool could_be_complete(const meta_mirror *v, uint64_t generation, uint64_t *before)
{
    size_t seen = 0, have = 0, needed = UINT16_MAX; /* needed: where records differ, what says the least */

    *before = 0;
    for (size_t i = 0; i < v->n; i++) {
        const meta_copy *c = &v->copies[i];
        if (!counts(c, v->deployment))
            continue;
        seen++;
        if (c->gen.generation == generation && c->gen.needed < needed)
            needed = c->gen.needed;
        if (c->gen.generation >= generation)
            have++;
        else if (c->gen.generation > *before)
            *before = c->gen.generation;
    }
    size_t away = v->record_copies > seen ? v->record_copies - seen : 0;
    return needed == 0 || have + away >= needed;
}

/* Lowers complete_from: see fact 2. Only where a copy of the highest generation can be used itself; else somebody was about to replace
 * what the others have. */
static void complete_find(meta_mirror *v)
{
    uint64_t at = v->generation, before;
    bool usable = false;

    for (size_t i = 0; i < v->n; i++)
        usable = usable || trusted(v, &v->copies[i]);
    if (!usable)
        return;
    while (!could_be_complete(v, at, &before) && before > 0)
        at = before;
    if (at < v->generation)
        tarn_logf(TARN_LOG_INFO, "metadata generation was cut off", "%llu was being written: copies from %llu on have everything",
                  (unsigned long long)v->generation, (unsigned long long)at);
    v->complete_from = at;
}

/* Checks what the records say together; sets generation, deployment, and which copies have everything. */
static tarn_err records_judge(meta_mirror *v)
{
    bool mixed;
    kin k = kin_choose(v, &mixed);
    const meta_gen *top = k.top;

    TARN_ASSERT(top != NULL);
    if (mixed) {
        tarn_log(TARN_LOG_ERROR, "metadata copies of different deployments", NULL);
        return TARN_E_FORMAT;
    }
    if (!k.enough) {
        tarn_logf(TARN_LOG_ERROR, "too few metadata copies", "%zu of %u can be read, %u are needed", k.seen, top->copies_n,
                  top->copies_n - top->write_quorum + 1);
        return TARN_E_QUORUM_READ;
    }
    if (top->copies_n > v->record_copies) /* drives that are missing today count: they may have what these have not */
        v->record_copies = top->copies_n;
    v->generation = v->complete_from = top->generation;
    memcpy(v->deployment, top->deployment, META_DEPLOYMENT_BYTES);
    if (left_unfinished(v)) {
        tarn_log(TARN_LOG_ERROR, "the rebuilding of the metadata was not finished", "advice", "run tarn admin rebuild-index again", NULL);
        return TARN_E_UNFINISHED;
    }
    complete_find(v);
    return TARN_OK;
}

/* The logs of the copies that have everything, that of `first` before the others. */
static meta_wal_copies logs_of(const meta_mirror *v, const meta_copy *first)
{
    meta_wal_copies logs = {.files = {first->files[META_WAL]}, .n = 1};

    for (size_t i = 0; i < v->n; i++) {
        if (&v->copies[i] != first && trusted(v, &v->copies[i]))
            logs.files[logs.n++] = v->copies[i].files[META_WAL];
    }
    return logs;
}

/* Does a copy say that all of this log is in the databases? It may have been left behind by a power cut. */
static bool log_is_over(const meta_mirror *v, const meta_wal_extent *log)
{
    for (size_t i = 0; log->valid && i < v->n; i++) {
        const meta_copy *c = &v->copies[i];
        if (trusted(v, c) && c->gen.log_over == meta_log_id(log->header))
            return true;
    }
    return false;
}

/* The copy to go on from: of those that have everything the one with the newest log. */
static tarn_err choose(meta_mirror *v, choice *out)
{
    bool any = false;
    int unread = 0;

    *out = (choice){0};
    for (size_t i = 0; i < v->n; i++) {
        meta_copy *c = &v->copies[i];
        if (!trusted(v, c))
            continue;
        meta_wal_copies logs = logs_of(v, c);
        int e = meta_wal_scan(&logs, &out->wal[i]);
        if (e != 0) {
            tarn_log(TARN_LOG_ERROR, "metadata log cannot be read", "folder", c->dir, "error", strerrordesc_np(-e), NULL);
            unread = e;
            continue;
        }
        if (out->wal[i].amiss > 0)
            tarn_logf(TARN_LOG_WARN, "metadata log read again", "%s: %llu frames did not come rightly", c->dir,
                      (unsigned long long)out->wal[i].amiss);
        out->scanned[i] = true;
        if (log_is_over(v, &out->wal[i]))
            out->wal[i] = (meta_wal_extent){0}; /* as if there were none */
        if (!any || wal_better(&out->wal[i], &out->wal[out->from]))
            out->from = i;
        any = true;
    }
    /* What cannot be read is not lost: nobody shall make a new one for that. */
    return any ? TARN_OK : unread != 0 ? tarn_err_from_errno(-unread) : TARN_E_QUORUM_READ;
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

/* A page of the database that passes its check, from any copy that has everything. */
static bool page_find(const meta_mirror *v, uint8_t *out, uint64_t off)
{
    for (size_t k = 0; k < PAGE_ROUNDS * v->n; k++) {
        const meta_copy *c = &v->copies[k % v->n];
        uint8_t page[META_PAGE_BYTES];
        if (!trusted(v, c) || tarn_file_pread_sync(c->files[META_DB], page, sizeof(page), off) != (int64_t)sizeof(page) ||
            !page_there(page, off))
            continue;
        memcpy(out, page, sizeof(page));
        return true;
    }
    return false;
}

/* Pages of the database, from the chosen copy; what is wrong or empty there, or cannot be read, is taken from another one that has
 * it. One that is wrong everywhere stays as it is: a checkpoint was cut short there, and the log has it. */
static int chunk_read(const meta_mirror *v, const meta_copy *from, uint8_t *buf, size_t n, uint64_t off)
{
    int64_t got = tarn_file_pread_sync(from->files[META_DB], buf, n, off);
    bool read = got == (int64_t)n;

    for (size_t at = 0; at + META_PAGE_BYTES <= n; at += META_PAGE_BYTES) {
        if ((read && page_there(buf + at, off + at)) || page_find(v, buf + at, off + at) || read)
            continue;
        return got < 0 ? (int)got : -EIO;
    }
    return 0;
}

static int put_all(tarn_file *f, const void *p, size_t n, uint64_t off)
{
    int64_t put = tarn_file_pwrite_sync(f, p, n, off);

    return put < 0 ? (int)put : (size_t)put == n ? 0 : -EIO;
}

/* The database from off to the end. *from_failed: it could not be read. */
static int database_copy(meta_mirror *v, const meta_copy *from, meta_copy *to, uint64_t off, uint64_t end, bool *from_failed)
{
    uint8_t *buf = tarn_malloc(COPY_CHUNK_BYTES);
    int e = buf == NULL ? -ENOMEM : 0;

    for (off -= off % META_PAGE_BYTES; off < end && e == 0; off += COPY_CHUNK_BYTES) {
        size_t n = end - off < COPY_CHUNK_BYTES ? (size_t)(end - off) : COPY_CHUNK_BYTES;
        e = chunk_read(v, from, buf, n, off);
        *from_failed = e != 0;
        if (e == 0)
            e = put_all(to->files[META_DB], buf, n, off);
    }
    if (e == 0)
        e = v->fs->truncate(v->fs, tarn_file_handle(to->files[META_DB]), end);
    if (e == 0)
        e = sync_file(to->files[META_DB]);
    if (e == 0)
        to->db_bytes = end;
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

/*
 * Copies of the newest generation may end at different places: a checkpoint came further on one than on another, or a drive
 * has lost the end of its file. The longest has all; no length may be taken from another one.
 */
static void lengths_level(meta_mirror *v)
{
    const meta_copy *longest = NULL;

    for (size_t i = 0; i < v->n; i++) {
        const meta_copy *c = &v->copies[i];
        if (trusted(v, c) && (longest == NULL || c->db_bytes > longest->db_bytes))
            longest = c;
    }
    for (size_t i = 0; longest != NULL && i < v->n; i++) {
        meta_copy *c = &v->copies[i];
        bool from_failed = false;
        if (!trusted(v, c) || c->db_bytes == longest->db_bytes)
            continue;
        tarn_logf(TARN_LOG_WARN, "metadata copy lengthened", "%s ends at %llu, %s at %llu", c->dir, (unsigned long long)c->db_bytes,
                  longest->dir, (unsigned long long)longest->db_bytes);
        int e = database_copy(v, longest, c, c->db_bytes, longest->db_bytes, &from_failed);
        if (e != 0)
            copy_lost(v, c, e);
    }
}

typedef struct log_sink {
    tarn_file *to; /* NULL: it has it */
    int error;     /* of writing there */
} log_sink;

static int log_take(void *ctx, const uint8_t *p, size_t n, uint64_t off)
{
    log_sink *s = ctx;

    s->error = s->to != NULL ? put_all(s->to, p, n, off) : 0;
    return s->error;
}

/*
 * Gives a copy the chosen log, unless it has just shown that it has it. There the log ends, durably: a crash after the checkpoint
 * that follows must not leave a shorter one, which would undo a part of it. *log_failed: the log cannot be read any more.
 */
static int log_level(meta_mirror *v, const choice *ch, meta_copy *to, bool *log_failed)
{
    const meta_wal_extent *log = &ch->wal[ch->from];
    meta_wal_copies logs = logs_of(v, &v->copies[ch->from]);
    bool has = ch->scanned[to->index] && ch->wal[to->index].amiss == 0 && meta_wal_same(&ch->wal[to->index], log);
    bool first = to == &v->copies[ch->from]; /* what is in it is noted: whoever reads it from now on gets just this */
    log_sink sink = {.to = has ? NULL : to->files[META_WAL]};
    int e = 0;

    if (!has || first)
        e = meta_wal_walk(&logs, log, first ? v->frames : NULL, log_take, &sink);
    *log_failed = e != 0 && sink.error == 0;
    if (e == 0)
        e = v->fs->truncate(v->fs, tarn_file_handle(to->files[META_WAL]), log->bytes);
    return e == 0 ? sync_file(to->files[META_WAL]) : e;
}

/* *from_failed: the database could not be read. */
static int copy_rebuild(meta_mirror *v, const meta_copy *from, meta_copy *to, bool *from_failed)
{
    tarn_logf(TARN_LOG_WARN, "metadata copy rebuilt", "%s is behind (generation %llu of %llu): %llu bytes are copied from %s", to->dir,
              (unsigned long long)to->gen.generation, (unsigned long long)v->generation, (unsigned long long)from->db_bytes, from->dir);
    to->behind = true;
    to->gen.state = META_GEN_REBUILDING;
    to->gen.generation = v->generation;
    to->gen.copies_n = v->record_copies;
    to->gen.write_quorum = v->record_quorum;
    to->gen.needed = from->gen.generation == v->generation ? from->gen.needed : 0;
    to->gen.log_over = 0;
    memcpy(to->gen.deployment, v->deployment, META_DEPLOYMENT_BYTES);
    int e = meta_gen_write(to->gen_file, &to->gen);
    return e == 0 ? database_copy(v, from, to, 0, from->db_bytes, from_failed) : e;
}

/* Brings all copies up to the chosen one, beginning with that one. *again: it has failed, another must be chosen. */
static tarn_err copies_level(meta_mirror *v, const choice *ch, bool *again)
{
    meta_copy *from = &v->copies[ch->from];

    *again = false;
    for (size_t k = 0; k < v->n && !*again; k++) {
        meta_copy *c = &v->copies[(ch->from + k) % v->n];
        bool log_failed = false, from_failed = false;
        if (!atomic_load(&c->good))
            continue;
        int e = trusted(v, c) ? 0 : copy_rebuild(v, from, c, &from_failed);
        if (e == 0)
            e = log_level(v, ch, c, &log_failed);
        if (log_failed) {
            tarn_log(TARN_LOG_ERROR, "metadata log cannot be read as it was", "folder", from->dir, "error", strerrordesc_np(-e), NULL);
            return e == -ENOMEM ? TARN_E_NO_MEMORY : TARN_E_QUORUM_READ;
        }
        if (e != 0)
            copy_lost(v, from_failed ? from : c, e);
        *again = !atomic_load(&from->good);
    }
    v->bytes[META_DB] = from->db_bytes;
    v->bytes[META_WAL] = ch->wal[ch->from].bytes;
    return TARN_OK;
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
            stray += c->db_bytes == 0 ? 0 : 1;
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
    choice ch = {0};
    bool again = true;
    tarn_err err = records_judge(v);

    if (err == TARN_OK)
        lengths_level(v);
    while (err == TARN_OK && again) { /* each failure takes a copy out, so this ends */
        err = choose(v, &ch);
        if (err == TARN_OK)
            err = copies_level(v, &ch, &again);
    }
    if (err != TARN_OK)
        return err;
    if (atomic_load(&v->good_n) < v->write_quorum)
        return TARN_E_QUORUM_WRITE;
    atomic_store(&v->read_from, ch.from);
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
