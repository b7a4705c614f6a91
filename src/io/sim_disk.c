/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Simulated files: their bytes as a reader sees them, as they are durable, and the changes between the two.
 *
 *   write ──▶ now, and a change ──sync──▶ durable          a power cut, a failed sync: a subset of the changes
 *
 * Invariants:
 *  1. Without changes, and unless `differs`, now and durable are the same.
 *  2. durable is changed only by settling, damage and replacement.
 * Memory, threads: sim_internal.h.
 */
#include "sim_internal.h"

#include <string.h>

/* ------------------------------------------------------------------ memory and chance */
void *sim_alloc(size_t n)
{
    tarn_alloc_spare(true); /* a test that makes allocations fail does not mean ours */
    void *p = tarn_calloc(1, n);
    tarn_alloc_spare(false);
    TARN_ASSERT(p != NULL);
    return p;
}

void *sim_grow(void *p, size_t n)
{
    tarn_alloc_spare(true);
    void *more = tarn_realloc(p, n);
    tarn_alloc_spare(false);
    TARN_ASSERT(more != NULL);
    return more;
}

char *sim_text(const char *s, size_t n)
{
    char *p = sim_alloc(n + 1);
    memcpy(p, s, n);
    return p;
}

uint64_t sim_next(sim_rng *r)
{
    r->state += 0x9E3779B97F4A7C15u;
    uint64_t z = r->state;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

uint64_t sim_below(sim_rng *r, uint64_t n)
{
    TARN_ASSERT(n > 0);
    return sim_next(r) % n;
}

/* ------------------------------------------------------------------ images */
static uint8_t *page_make(sim_image *m, uint64_t i)
{
    if (i >= m->pages_cap) {
        size_t cap = m->pages_cap > 0 ? m->pages_cap : 8;
        while (cap <= i)
            cap *= 2;
        m->pages = sim_grow(m->pages, cap * sizeof m->pages[0]);
        memset(m->pages + m->pages_cap, 0, (cap - m->pages_cap) * sizeof m->pages[0]);
        m->pages_cap = cap;
    }
    if (!m->pages[i]) {
        m->pages[i] = sim_alloc(SIM_PAGE_BYTES);
        m->pages_used++;
    }
    return m->pages[i];
}

static uint8_t *page_at(const sim_image *m, uint64_t i)
{
    return i < m->pages_cap ? m->pages[i] : NULL;
}

static void page_drop(sim_image *m, uint64_t i)
{
    if (page_at(m, i)) {
        tarn_free(m->pages[i]);
        m->pages[i] = NULL;
        m->pages_used--;
    }
}

static size_t in_page(uint64_t off, uint64_t n)
{
    size_t left = SIM_PAGE_BYTES - (size_t)(off % SIM_PAGE_BYTES);
    return n < left ? (size_t)n : left;
}

void sim_image_write(sim_image *m, uint64_t off, const void *p, size_t n)
{
    const uint8_t *from = p;
    for (size_t at = 0, run; at < n; at += run) {
        run = in_page(off + at, n - at);
        memcpy(page_make(m, (off + at) / SIM_PAGE_BYTES) + (off + at) % SIM_PAGE_BYTES, from + at, run);
    }
    if (n > 0 && off + n > m->size)
        m->size = off + n;
}

void sim_image_zero(sim_image *m, uint64_t off, uint64_t n)
{
    uint64_t known = (uint64_t)m->pages_cap * SIM_PAGE_BYTES;
    uint64_t end = n < known && off < known - n ? off + n : known;
    for (uint64_t at = off, run; at < end; at += run) {
        run = in_page(at, end - at);
        uint8_t *page = page_at(m, at / SIM_PAGE_BYTES);
        if (page && run == SIM_PAGE_BYTES)
            page_drop(m, at / SIM_PAGE_BYTES);
        else if (page)
            memset(page + at % SIM_PAGE_BYTES, 0, run);
    }
}

size_t sim_image_read(const sim_image *m, uint64_t off, void *p, size_t n)
{
    uint8_t *to = p;
    if (off >= m->size)
        return 0;
    if (n > m->size - off)
        n = (size_t)(m->size - off);
    for (size_t at = 0, run; at < n; at += run) {
        run = in_page(off + at, n - at);
        const uint8_t *page = page_at(m, (off + at) / SIM_PAGE_BYTES);
        if (page)
            memcpy(to + at, page + (off + at) % SIM_PAGE_BYTES, run);
        else
            memset(to + at, 0, run);
    }
    return n;
}

void sim_image_resize(sim_image *m, uint64_t size)
{
    if (size < m->size)
        sim_image_zero(m, size, UINT64_MAX - size);
    m->size = size;
}

void sim_image_free(sim_image *m)
{
    for (size_t i = 0; i < m->pages_cap; i++)
        page_drop(m, i);
    tarn_free(m->pages);
    *m = (sim_image){0};
}

/* ------------------------------------------------------------------ inodes */
sim_inode *sim_inode_new(size_t drive, const char *path)
{
    sim_inode *f = sim_alloc(sizeof *f);
    f->refs = 1;
    f->drive = drive;
    f->path = sim_text(path, strlen(path));
    f->end = &f->first;
    f->mtime_ms = tarn_now_ms();
    return f;
}

static void changes_drop(sim_inode *f)
{
    while (f->first) {
        sim_change *c = f->first;
        f->first = c->next;
        tarn_free(c);
    }
    f->end = &f->first;
}

void sim_inode_unref(sim_inode *f)
{
    TARN_ASSERT(f->refs > 0);
    if (--f->refs > 0)
        return;
    if (f->dir)
        sim_dir_free(f->dir);
    changes_drop(f);
    sim_image_free(&f->now);
    sim_image_free(&f->durable);
    tarn_free(f->path);
    tarn_free(f);
}

void sim_note(sim_inode *f, sim_change_kind kind, uint64_t off, uint64_t n, const void *bytes)
{
    size_t bytes_n = kind == SIM_WRITE ? (size_t)n : 0;
    sim_change *c = sim_alloc(sizeof *c + bytes_n);
    c->kind = kind;
    c->off = off;
    c->n = n;
    if (bytes_n > 0)
        memcpy(c->bytes, bytes, bytes_n);
    *f->end = c;
    f->end = &c->next;
    f->mtime_ms = tarn_now_ms();
}

static void apply(sim_image *m, const sim_change *c)
{
    switch (c->kind) {
    case SIM_WRITE:
        sim_image_write(m, c->off, c->bytes, (size_t)c->n);
        break;
    case SIM_TRUNCATE:
        sim_image_resize(m, c->off);
        break;
    case SIM_EXTEND:
        if (c->off + c->n > m->size)
            m->size = c->off + c->n;
        break;
    case SIM_PUNCH:
        sim_image_zero(m, c->off, c->n);
        break;
    }
}

void sim_settle(sim_inode *f)
{
    for (const sim_change *c = f->first; c; c = c->next)
        apply(&f->durable, c);
    changes_drop(f);
}

/* Sectors of one write. luck 0: none, 1: all, 2: each for itself. Nothing beyond `limit`, where a truncation was lost. */
static void write_some(sim_inode *f, const sim_change *c, uint64_t luck, uint64_t limit, sim_rng *r)
{
    for (uint64_t at = 0, run; at < c->n; at += run) {
        uint64_t off = c->off + at;
        run = SIM_SECTOR_BYTES - off % SIM_SECTOR_BYTES;
        run = run < c->n - at ? run : c->n - at;
        bool comes = luck == 1 || (luck > 1 && sim_below(r, 2) == 0);
        if (comes && off + run <= limit)
            sim_image_write(&f->durable, off, c->bytes + at, (size_t)run);
    }
    uint64_t end = c->off + c->n;
    if (end > f->durable.size && end <= limit && sim_below(r, 16) == 0)
        f->durable.size = end; /* the size came, the bytes did not */
}

void sim_settle_some(sim_inode *f, sim_rng *r)
{
    uint64_t ordered = 0, limit = UINT64_MAX, mood = sim_below(r, 4); /* of the file: 0 nothing, 1 all, else by write */
    if (!f->first)
        return;
    for (const sim_change *c = f->first; c; c = c->next)
        ordered += c->kind == SIM_WRITE ? 0 : 1;
    uint64_t cut = mood == 0 ? 0 : mood == 1 ? ordered : sim_below(r, ordered + 1);
    for (const sim_change *c = f->first; c; c = c->next) {
        if (c->kind == SIM_WRITE) {
            write_some(f, c, mood < 2 ? mood : sim_below(r, 4), limit, r);
        } else if (cut > 0) {
            cut--;
            apply(&f->durable, c);
        } else if (c->kind == SIM_TRUNCATE && c->off < limit) {
            limit = c->off;
        }
    }
    changes_drop(f);
    f->differs = true;
}

void sim_forget_cache(sim_inode *f)
{
    if (!f->differs)
        return;
    TARN_ASSERT(!f->first);
    sim_image_free(&f->now);
    for (size_t i = 0; i < f->durable.pages_cap; i++) {
        if (f->durable.pages[i])
            sim_image_write(&f->now, (uint64_t)i * SIM_PAGE_BYTES, f->durable.pages[i], SIM_PAGE_BYTES);
    }
    f->now.size = f->durable.size;
    f->differs = false;
}
