/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The copies of the database: what is done to one is done to all, in parallel; a copy that fails leaves.
 *
 * A copy is good or out. It goes out at its first failed write, truncate or sync and never comes back while the process
 * runs: after a failed sync nobody knows what the drive has. Before anything that it missed is acknowledged, the others'
 * tarn.gen gets a higher generation, durably; so the next start can't take the copy that is behind for the newest.
 *
 * Invariants:
 *  1. meta_mirror_run() and meta_mirror_mark() return 0 only when at least write_quorum copies have done all of it and all
 *     copies that have not are out, with a lower generation on disk than the good ones.
 *  2. quorum_lost is sticky: once too few are left nothing is written any more, also where a drive seems to recover.
 *  3. A full drive (-ENOSPC while writing) is not a broken one when the quorum needs it: it is not taken out then, SQLite
 *     rolls back and may try again later. (A drive that fails otherwise at the same time goes out all the same.)
 *
 * Without helper threads (the simulation, where every call must come in a fixed order) the writer does everything itself; a
 * sync in the background then happens when somebody asks for its result.
 *
 * Threads: one writer at a time (the opener, later the committer); reads from any thread. The files of a copy stay open
 * until the store closes, so a reader never sees a descriptor go away.
 */
#include "frames.h"
#include "page.h"
#include "vfs.h"

#include <errno.h>
#include <limits.h>
#include <string.h>

struct meta_helper {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake; /* for the helper */
    pthread_cond_t done; /* for the writer */
    meta_mirror *mirror;
    meta_copy *copy;
    const meta_job *job; /* NULL: nothing to do */
    meta_job_result result;
    bool stop;
    bool started;
};

/* ------------------------------------------------------------------ one copy */
static int write_all(tarn_file *f, const void *p, size_t n, uint64_t off)
{
    int64_t done = tarn_file_pwrite_sync(f, p, n, off);

    if (done < 0)
        return (int)done;
    return (size_t)done == n ? 0 : -EIO;
}

static meta_job_result job_do(tarn_fs *fs, meta_copy *copy, const meta_job *job)
{
    tarn_file *f = copy->files[job->which];
    meta_job_result r = {0};

    if (job->truncate)
        r.error = fs->truncate(fs, tarn_file_handle(f), job->off);
    else if (job->allocate)
        r.error = fs->allocate(fs, tarn_file_handle(f), job->off, job->n);
    else if (job->buf != NULL)
        r.error = write_all(f, job->buf, job->n, job->off);
    for (size_t i = 0; i < job->runs_n && r.error == 0; i++)
        r.error = write_all(f, job->runs[i].p, job->runs[i].n, job->runs[i].off);
    if (r.error == 0 && job->sync) {
        r.error = fs->sync(fs, tarn_file_handle(f), true);
        r.in_sync = r.error != 0;
    }
    return r;
}

/* ------------------------------------------------------------------ helpers: a thread for every copy but one */
static void *helper_main(void *arg)
{
    meta_helper *h = arg;

    (void)pthread_setname_np(pthread_self(), "tarn-mirror");
    pthread_mutex_lock(&h->lock);
    while (!h->stop) {
        if (h->job == NULL) {
            pthread_cond_wait(&h->wake, &h->lock);
            continue;
        }
        const meta_job *job = h->job;
        pthread_mutex_unlock(&h->lock);
        meta_job_result r = job_do(h->mirror->fs, h->copy, job);
        pthread_mutex_lock(&h->lock);
        h->result = r;
        h->job = NULL;
        pthread_cond_signal(&h->done);
    }
    pthread_mutex_unlock(&h->lock);
    return NULL;
}

static void helper_give(meta_helper *h, const meta_job *job)
{
    pthread_mutex_lock(&h->lock);
    TARN_ASSERT(h->job == NULL);
    h->job = job;
    pthread_cond_signal(&h->wake);
    pthread_mutex_unlock(&h->lock);
}

static meta_job_result helper_wait(meta_helper *h)
{
    pthread_mutex_lock(&h->lock);
    while (h->job != NULL)
        pthread_cond_wait(&h->done, &h->lock);
    meta_job_result r = h->result;
    pthread_mutex_unlock(&h->lock);
    return r;
}

static bool helper_busy(meta_helper *h)
{
    pthread_mutex_lock(&h->lock);
    bool busy = h->job != NULL;
    pthread_mutex_unlock(&h->lock);
    return busy;
}

static tarn_err helper_start(meta_helper *h, meta_mirror *v, meta_copy *copy)
{
    h->mirror = v;
    h->copy = copy;
    if (pthread_mutex_init(&h->lock, NULL) != 0)
        return TARN_E_NO_MEMORY;
    if (pthread_cond_init(&h->wake, NULL) != 0) {
        pthread_mutex_destroy(&h->lock);
        return TARN_E_NO_MEMORY;
    }
    if (pthread_cond_init(&h->done, NULL) != 0) {
        pthread_cond_destroy(&h->wake);
        pthread_mutex_destroy(&h->lock);
        return TARN_E_NO_MEMORY;
    }
    h->started = pthread_create(&h->thread, NULL, helper_main, h) == 0;
    if (!h->started) {
        pthread_cond_destroy(&h->done);
        pthread_cond_destroy(&h->wake);
        pthread_mutex_destroy(&h->lock);
        return TARN_E_NO_MEMORY;
    }
    return TARN_OK;
}

tarn_err meta_mirror_start(meta_mirror *v)
{
    tarn_err err = TARN_OK;

    if (v->one_thread)
        return TARN_OK;
    v->helpers = tarn_calloc(TARN_META_DRIVES_MAX, sizeof(*v->helpers));
    v->syncers = tarn_calloc(TARN_META_DRIVES_MAX, sizeof(*v->syncers));
    if (v->helpers == NULL || v->syncers == NULL)
        return TARN_E_NO_MEMORY;
    for (size_t i = 0; i < v->n && err == TARN_OK; i++) {
        if (i > 0)
            err = helper_start(&v->helpers[i], v, &v->copies[i]);
        if (err == TARN_OK)
            err = helper_start(&v->syncers[i], v, &v->copies[i]);
    }
    return err;
}

static void helper_stop(meta_helper *h)
{
    if (!h->started)
        return;
    pthread_mutex_lock(&h->lock);
    h->stop = true;
    pthread_cond_signal(&h->wake);
    pthread_mutex_unlock(&h->lock);
    int rc = pthread_join(h->thread, NULL);
    TARN_ASSERT(rc == 0);
    pthread_cond_destroy(&h->done);
    pthread_cond_destroy(&h->wake);
    pthread_mutex_destroy(&h->lock);
    h->started = false;
}

void meta_mirror_stop(meta_mirror *v)
{
    for (size_t i = 0; i < v->n; i++) {
        if (v->helpers != NULL)
            helper_stop(&v->helpers[i]);
        if (v->syncers != NULL)
            helper_stop(&v->syncers[i]);
    }
    tarn_free(v->helpers);
    tarn_free(v->syncers);
    v->helpers = v->syncers = NULL;
}

tarn_err meta_mirror_add(meta_mirror *v, const meta_copy *c)
{
    size_t i = v->n;
    tarn_err err = TARN_OK;

    TARN_ASSERT(i < TARN_META_DRIVES_MAX);
    v->copies[i] = *c;
    if (v->helpers != NULL && i > 0)
        err = helper_start(&v->helpers[i], v, &v->copies[i]);
    if (err == TARN_OK && v->syncers != NULL)
        err = helper_start(&v->syncers[i], v, &v->copies[i]);
    if (err != TARN_OK) {
        if (v->helpers != NULL)
            helper_stop(&v->helpers[i]);
        return err;
    }
    atomic_store(&v->copies[i].good, true);
    atomic_fetch_add(&v->good_n, 1);
    atomic_store(&v->n, i + 1); /* readers may take it from here on */
    return TARN_OK;
}

/* ------------------------------------------------------------------ taking out */
static void copy_out(meta_mirror *v, meta_copy *c, int error)
{
    if (!atomic_exchange(&c->good, false))
        return;
    size_t left = atomic_fetch_sub(&v->good_n, 1) - 1;
    if (left < v->write_quorum)
        atomic_store(&v->quorum_lost, true);
    tarn_logf(TARN_LOG_ERROR, "metadata copy taken out", "%s: %s; %zu of %zu copies left, %zu needed", c->dir, strerrordesc_np(-error),
              left, v->n, v->write_quorum);
    if (v->on_drive_failed != NULL)
        v->on_drive_failed(v->ctx, c->index, -error);
}

int meta_mirror_drop(meta_mirror *v, size_t i)
{
    if (!atomic_load(&v->copies[i].good))
        return 0;
    copy_out(v, &v->copies[i], -ENODEV);
    return meta_mirror_mark(v, META_GEN_DIRTY, true);
}

/* Writes the record to all good copies; a copy where that fails goes out too, which needs a new round. */
int meta_mirror_mark(meta_mirror *v, meta_gen_state state, bool next)
{
    bool again = true, clean = state == META_GEN_CLEAN;

    v->state = state;
    if (v->unfinished && (state == META_GEN_DIRTY || state == META_GEN_CLEAN))
        state = META_GEN_UNFINISHED;
    while (again && !atomic_load(&v->quorum_lost)) {
        again = false;
        v->generation += next ? 1 : 0;
        next = true; /* a second round means that a copy went out */
        for (size_t i = 0; i < v->n; i++) {
            meta_copy *c = &v->copies[i];
            if (!atomic_load(&c->good))
                continue;
            c->gen.state = state;
            c->gen.generation = v->generation;
            c->gen.copies_n = v->record_copies;
            c->gen.write_quorum = v->record_quorum;
            c->gen.needed = (uint16_t)v->write_quorum;
            c->gen.log_over = v->log_over;
            __builtin_memcpy(c->gen.deployment, v->deployment, META_DEPLOYMENT_BYTES);
            /* CLEAN says that the log is empty: its truncation may not be undone by a power cut after that. */
            int e = clean ? v->fs->sync(v->fs, tarn_file_handle(c->files[META_WAL]), true) : 0;
            if (e == 0)
                e = meta_gen_write(c->gen_file, &c->gen);
            if (e != 0) {
                copy_out(v, c, e);
                again = true;
            }
        }
    }
    return atomic_load(&v->quorum_lost) ? -EIO : 0;
}

static bool is_full(const meta_job_result *r)
{
    return !r->in_sync && (r->error == -ENOSPC || r->error == -EDQUOT);
}

/* Are the drives that are full needed for the quorum, once those that failed otherwise are out? */
static bool full_needed(const meta_mirror *v, const meta_job_result *results)
{
    size_t full = 0, broken = 0;

    for (size_t i = 0; i < v->n; i++) {
        full += is_full(&results[i]) ? 1 : 0;
        broken += results[i].error != 0 && !is_full(&results[i]) ? 1 : 0;
    }
    return full > 0 && atomic_load(&v->good_n) - full - broken < v->write_quorum;
}

int meta_mirror_run(meta_mirror *v, const meta_job *job)
{
    meta_job_result results[TARN_META_DRIVES_MAX];
    bool given[TARN_META_DRIVES_MAX] = {false};
    size_t own = v->n; /* the copy this thread works on itself */
    bool failed = false;

    if (atomic_load(&v->quorum_lost))
        return -EIO;
    if (v->joining != NULL && job->which == META_DB && v->join_error == 0)
        v->join_error = job_do(v->fs, v->joining, job).error;
    for (size_t i = v->n; i-- > 0;) { /* helper 0 does not exist: the writer itself takes the first good copy */
        results[i] = (meta_job_result){0};
        if (!atomic_load(&v->copies[i].good))
            continue;
        if (own < v->n && v->helpers == NULL) { /* at the start, while the copies are opened, or one_thread */
            results[own] = job_do(v->fs, &v->copies[own], job);
        } else if (own < v->n) {
            helper_give(&v->helpers[own], job);
            given[own] = true;
        }
        own = i;
    }
    TARN_ASSERT(own < v->n);
    results[own] = job_do(v->fs, &v->copies[own], job);
    for (size_t i = 0; i < v->n; i++) {
        if (given[i])
            results[i] = helper_wait(&v->helpers[i]);
        failed = failed || results[i].error != 0;
    }
    if (!failed)
        return 0;
    bool keep_full = full_needed(v, results), out = false;
    for (size_t i = 0; i < v->n; i++) {
        if (results[i].error == 0 || (keep_full && is_full(&results[i])))
            continue;
        copy_out(v, &v->copies[i], results[i].error);
        out = true;
    }
    int e = out ? meta_mirror_mark(v, META_GEN_DIRTY, true) : 0;
    return e == 0 && keep_full ? -ENOSPC : e;
}

/* ------------------------------------------------------------------ the database's sync in the background */
static const meta_job sync_job = {.which = META_DB, .sync = true};

void meta_mirror_sync_begin(meta_mirror *v)
{
    TARN_ASSERT(!v->sync_pending);
    v->sync_pending = true;
    for (size_t i = 0; i < v->n && v->syncers != NULL; i++) { /* without them it is done when it is asked for */
        if (atomic_load(&v->copies[i].good))
            helper_give(&v->syncers[i], &sync_job);
    }
}

int meta_mirror_sync_end(meta_mirror *v)
{
    bool failed = false;

    if (!v->sync_pending)
        return 0;
    v->sync_pending = false;
    for (size_t i = 0; i < v->n; i++) {
        meta_job_result r = {0};
        if (v->syncers != NULL)
            r = helper_wait(&v->syncers[i]);
        else if (atomic_load(&v->copies[i].good))
            r = job_do(v->fs, &v->copies[i], &sync_job);
        if (r.error == 0)
            continue;
        failed = failed || atomic_load(&v->copies[i].good);
        copy_out(v, &v->copies[i], r.error);
    }
    return failed ? meta_mirror_mark(v, META_GEN_DIRTY, true) : 0;
}

bool meta_mirror_sync_running(meta_mirror *v, int *result)
{
    *result = 0;
    if (!v->sync_pending)
        return false;
    for (size_t i = 0; i < v->n && v->syncers != NULL; i++) {
        if (helper_busy(&v->syncers[i]))
            return true;
    }
    *result = meta_mirror_sync_end(v);
    return false;
}

/* ------------------------------------------------------------------ reading */
static void read_again(const meta_copy *c, int64_t got, uint64_t n, uint64_t off)
{
    const char *why = got < 0             ? strerrordesc_np((int)-got)
                      : (uint64_t)got < n ? "the file is too short"
                                          : "the page is wrong, old or empty";
    tarn_logf(TARN_LOG_WARN, "metadata copy read again from another drive", "%s: %s at %llu", c->dir, why, (unsigned long long)off);
}

/* Is it what was written there last, as far as that is known? */
static bool as_written(const meta_mirror *v, meta_which which, const void *p, size_t n, uint64_t off)
{
    if (which == META_WAL)
        return v->frames == NULL || meta_frames_right(v->frames, p, n, off);
    return v->pages == NULL || n != META_PAGE_BYTES || off % META_PAGE_BYTES != 0 || meta_pages_right(v->pages, p, off);
}

static bool wrong_often(const meta_copy *c)
{
    return atomic_load_explicit(&c->wrong, memory_order_relaxed) >= META_WRONG_READS_MAX;
}

static void count_wrong(meta_copy *c)
{
    tarn_metric_add(TARN_M_META_READS_WRONG, 1);
    if (atomic_load_explicit(&c->wrong, memory_order_relaxed) == UINT_MAX)
        return;
    if (atomic_fetch_add_explicit(&c->wrong, 1, memory_order_relaxed) + 1 == META_WRONG_READS_MAX)
        tarn_logf(TARN_LOG_WARN, "metadata copy is asked last from now on", "%s: %d reads were wrong", c->dir, META_WRONG_READS_MAX);
}

/* Which copy comes k-th: each round asks those that were seldom wrong, then the others; NULL: none, go on. */
static meta_copy *turn_of(meta_mirror *v, size_t first, size_t k, size_t copies_n)
{
    meta_copy *c = &v->copies[(first + k) % copies_n];
    bool last = (k / copies_n) % 2 == 1;

    return atomic_load_explicit(&c->good, memory_order_acquire) && wrong_often(c) == last ? c : NULL;
}

int64_t meta_mirror_read(meta_mirror *v, meta_which which, void *buf, size_t n, uint64_t off,
                         bool (*check)(const void *buf, size_t n, uint64_t off))
{
    size_t first = atomic_load_explicit(&v->read_from, memory_order_relaxed), copies_n = v->n, tried = 0;
    meta_copy *shorter = NULL; /* of those that end before n bytes, or have an empty page there, the one that has most */
    int64_t worst = -EIO, most = -1;

    for (size_t k = 0; k < 4 * copies_n; k++) { /* two rounds, the second where none was right: it may have been this one read */
        if (k == 2 * copies_n && worst != -EBADMSG)
            break;
        meta_copy *c = turn_of(v, first, k, copies_n);
        if (c == NULL)
            continue;
        int64_t got = tarn_file_pread_sync(c->files[which], buf, n, off);
        bool blank = got == (int64_t)n && which == META_DB && check != NULL && meta_page_blank(buf, n);
        if (!blank && got == (int64_t)n && (check == NULL || check(buf, n, off)) && as_written(v, which, buf, n, off)) {
            if (shorter != NULL) {
                read_again(shorter, most, n, off);
                count_wrong(shorter);
            }
            if (tried != 0 && worst == -EIO)
                atomic_store_explicit(&v->read_from, (size_t)(c - v->copies), memory_order_relaxed);
            return got;
        }
        tried++;
        if (blank || (got >= 0 && got < (int64_t)n)) {
            shorter = got > most ? c : shorter;
            most = got > most ? got : most;
            continue;
        }
        if (got >= 0) {
            worst = -EBADMSG;
            count_wrong(c);
        }
        read_again(c, got, n, off);
    }
    if (shorter == NULL)
        return worst;
    if (most == 0)
        return 0;
    if (most < (int64_t)n)
        return tarn_file_pread_sync(shorter->files[which], buf, n, off);
    memset(buf, 0, n); /* an empty page; read once more it might come as another */
    return most;
}
