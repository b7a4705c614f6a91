/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Scrubbing the database: every page of every good copy is read and compared; what is damaged, or older than it should be, is
 * written again from the others.
 *
 * All copies have taken the same writes, so between two steps of the committer a page is the same in all of them. Where it is
 * not, a page that was written since the store was opened is known by its sum (frames.c). For an older one the content with a
 * right checksum that most copies have is taken for the right one: a drive that lost a write in silence has an older page whose
 * checksum is right as well. With as many on one side as on the other nothing is changed, and it is said in the log.
 *
 * Invariants:
 *  1. Only pages that pass their checksum are written.
 *  2. A step runs on the committer, between groups: no page is being written by anybody else then.
 * Memory: a page for each copy, of the caller. Thread: the committer's; the caller waits.
 */
#include "frames.h"
#include "page.h"
#include "vfs.h"

#include <string.h>

#define SCRUB_PAGES_PER_STEP 64

typedef struct scrub {
    meta_mirror *v;
    uint8_t *pages; /* one for each copy */
    bool *right;    /* of each: read in full, checksum right, not empty, not an older one */
    bool *mended;   /* something was written to the copy in this step */
    size_t n;       /* copies there was memory for */
    uint64_t off;
    uint64_t bytes; /* read in this step */
    bool repair;
    bool end;
    tarn_meta_scrub_counts counts;
} scrub;

static uint8_t *page_of(const scrub *s, size_t i)
{
    return s->pages + i * META_PAGE_BYTES;
}

static bool takes_part(const scrub *s, size_t i)
{
    return atomic_load(&s->v->copies[i].good);
}

/* False: no copy has the page. */
static bool pages_read(scrub *s)
{
    bool any = false;

    for (size_t i = 0; i < s->n; i++) {
        s->right[i] = false;
        if (!takes_part(s, i))
            continue;
        int64_t got = tarn_file_pread_sync(s->v->copies[i].files[META_DB], page_of(s, i), META_PAGE_BYTES, s->off);
        s->bytes += got > 0 ? (uint64_t)got : 0;
        any = any || got > 0;
        s->right[i] = got == META_PAGE_BYTES && meta_page_check(page_of(s, i), META_PAGE_BYTES, s->off) &&
                      !meta_page_blank(page_of(s, i), META_PAGE_BYTES) && meta_pages_right(s->v->pages, page_of(s, i), s->off);
    }
    return any;
}

static bool same(const scrub *s, size_t a, size_t b)
{
    return s->right[a] && s->right[b] && memcmp(page_of(s, a), page_of(s, b), META_PAGE_BYTES) == 0;
}

/* The copy whose page most others have too; *sure: more than any other content. n: none is right. */
static size_t elect(const scrub *s, bool *sure)
{
    size_t best = s->n, best_votes = 0;

    *sure = true;
    for (size_t i = 0; i < s->n; i++) {
        size_t votes = 0;
        if (!s->right[i] || (best < s->n && same(s, best, i)))
            continue;
        for (size_t k = 0; k < s->n; k++)
            votes += same(s, i, k) ? 1 : 0;
        *sure = votes == best_votes ? false : votes > best_votes ? true : *sure;
        if (votes > best_votes) {
            best = i;
            best_votes = votes;
        }
    }
    return best;
}

static void mend(scrub *s, size_t i, size_t from)
{
    meta_copy *c = &s->v->copies[i];
    int64_t put = tarn_file_pwrite_sync(c->files[META_DB], page_of(s, from), META_PAGE_BYTES, s->off);

    if (put == META_PAGE_BYTES) {
        s->mended[i] = true;
        s->counts.repaired++;
    }
}

static void page_compare(scrub *s)
{
    bool sure;
    size_t from = elect(s, &sure), differ = 0;

    s->counts.pages++;
    if (from == s->n) /* never written; or nobody has it, which the next read of it tells */
        return;
    for (size_t i = 0; i < s->n; i++)
        differ += takes_part(s, i) && !same(s, from, i) ? 1 : 0;
    if (differ == 0)
        return;
    s->counts.damaged += differ;
    tarn_logf(sure ? TARN_LOG_WARN : TARN_LOG_ERROR, "metadata page differs", "page %llu in %zu copies%s",
              (unsigned long long)(s->off / META_PAGE_BYTES + 1), differ, sure ? "" : ": it can't be told which is right");
    if (!sure) {
        s->counts.undecided++;
        return;
    }
    for (size_t i = 0; i < s->n && s->repair; i++) {
        if (takes_part(s, i) && !same(s, from, i))
            mend(s, i, from);
    }
}

/* What was mended is made durable; a copy that cannot goes out like after any other sync that failed. */
static void mended_sync(scrub *s)
{
    for (size_t i = 0; i < s->n; i++) {
        meta_copy *c = &s->v->copies[i];
        if (s->mended[i] && s->v->fs->sync(s->v->fs, tarn_file_handle(c->files[META_DB]), true) != 0)
            (void)meta_mirror_drop(s->v, i);
        s->mended[i] = false;
    }
}

static void step(void *arg)
{
    scrub *s = arg;

    s->bytes = 0;
    for (size_t p = 0; p < SCRUB_PAGES_PER_STEP && !s->end; p++) {
        s->end = !pages_read(s);
        if (!s->end)
            page_compare(s);
        s->off += META_PAGE_BYTES;
    }
    mended_sync(s);
}

tarn_err tarn_meta_scrub(tarn_meta *m, bool repair, bool (*go_on)(void *ctx, uint64_t bytes), void *ctx, tarn_meta_scrub_counts *out)
{
    scrub s = {.v = meta_vfs_mirror(m->vfs), .repair = repair};
    tarn_err err = TARN_E_NO_MEMORY;

    s.n = s.v->n; /* copies that join later have just been written */
    s.pages = tarn_malloc(s.n * META_PAGE_BYTES);
    s.right = tarn_calloc(s.n, sizeof(*s.right));
    s.mended = tarn_calloc(s.n, sizeof(*s.mended));
    if (s.pages != NULL && s.right != NULL && s.mended != NULL)
        err = TARN_OK;
    while (err == TARN_OK && !s.end) {
        err = meta_committer_call(m->committer, step, &s);
        if (err == TARN_OK && !s.end && go_on != NULL && !go_on(ctx, s.bytes))
            err = TARN_E_CANCELED;
    }
    *out = s.counts;
    tarn_free(s.pages);
    tarn_free(s.right);
    tarn_free(s.mended);
    return err;
}
