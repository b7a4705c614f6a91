/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A file system that changes nothing: reads come from another one, writes stay in memory. With it a check opens the store as
 * the daemon would, levelling of metadata copies included, and the drives stay as they are.
 *
 * Pages that were written lie in a table by file and page; sizes of files that were written to, and names that were made or
 * removed, in a list. Locks are real: they keep a daemon away.
 *
 * Invariants: no call that changes anything reaches the file system below, but for lock(); what was written is read back.
 * Memory: at most OVERLAY_BYTES_MAX, then ENOSPC. Threads: one lock around everything; meant for offline commands.
 */
#include "overlay.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

#define OVERLAY_PAGE_BYTES 4096
#define OVERLAY_BYTES_MAX (2ull << 30)
#define OVERLAY_BUCKETS 65536
#define OVERLAY_HANDLES_MAX 65536

typedef struct page {
    struct page *next;
    uint32_t node;
    uint64_t number;
    uint8_t bytes[OVERLAY_PAGE_BYTES];
} page;

/* What is known of a path beyond the file system below. */
typedef struct node {
    tarn_link link;
    char *path;
    uint32_t id;
    bool made, removed, dir; /* made: not there below, or removed there and made again */
    uint64_t size;
} node;

typedef struct handle {
    bool open;
    int64_t below; /* -1: none, the file is only here */
    node *n;
} handle;

struct obj_overlay {
    tarn_fs fs;
    tarn_fs *below;
    pthread_mutex_t lock;
    tarn_link nodes;
    uint32_t nodes_n;
    page *pages[OVERLAY_BUCKETS];
    uint64_t bytes;
    handle handles[OVERLAY_HANDLES_MAX];
};

static obj_overlay *ov(tarn_fs *fs)
{
    return TARN_CONTAINER_OF(fs, obj_overlay, fs);
}

static node *find(obj_overlay *o, const char *path)
{
    for (tarn_link *l = o->nodes.next; l != &o->nodes; l = l->next) {
        node *n = TARN_CONTAINER_OF(l, node, link);
        if (strcmp(n->path, path) == 0) {
            return n;
        }
    }
    return NULL;
}

static node *make(obj_overlay *o, const char *path)
{
    node *n = find(o, path);
    if (!n && (n = tarn_calloc(1, sizeof *n)) != NULL) {
        n->path = tarn_strdup(tarn_str_of(path));
        if (!n->path) {
            tarn_free(n);
            return NULL;
        }
        n->id = ++o->nodes_n;
        tarn_list_push(&o->nodes, &n->link);
    }
    return n;
}

/* ------------------------------------------------------------------ pages */
static page **slot(obj_overlay *o, uint32_t id, uint64_t number)
{
    page **p = &o->pages[(number * 0x9E3779B97F4A7C15ull ^ id * 0xBF58476D1CE4E5B9ull) >> 48];
    while (*p && ((*p)->node != id || (*p)->number != number)) {
        p = &(*p)->next;
    }
    return p;
}

/* A call may read less than there is: on to n, or the end. */
static int64_t read_below(const obj_overlay *o, const handle *h, uint8_t *mem, size_t n, uint64_t off)
{
    size_t have = 0;
    int64_t got = h->below >= 0 ? 1 : 0;
    while (got > 0 && have < n) {
        got = o->below->pread(o->below, h->below, mem + have, n - have, off + have);
        have += got > 0 ? (size_t)got : 0;
    }
    return got < 0 ? got : (int64_t)have;
}

/* The page as it is now; a new one is filled from below. */
static int page_for_write(obj_overlay *o, const handle *h, uint64_t number, page **out)
{
    page **at = slot(o, h->n->id, number);
    *out = *at;
    if (*at) {
        return 0;
    }
    page *p = o->bytes + sizeof(page) > OVERLAY_BYTES_MAX ? NULL : tarn_calloc(1, sizeof *p);
    if (!p) {
        return -ENOSPC;
    }
    int64_t got = read_below(o, h, p->bytes, OVERLAY_PAGE_BYTES, number * OVERLAY_PAGE_BYTES);
    if (got < 0) {
        tarn_free(p);
        return (int)got;
    }
    p->node = h->n->id;
    p->number = number;
    *out = *at = p;
    o->bytes += sizeof *p;
    return 0;
}

/* ------------------------------------------------------------------ files */
static handle *handle_of(obj_overlay *o, int64_t h)
{
    TARN_ASSERT(h >= 0 && h < OVERLAY_HANDLES_MAX && o->handles[h].open);
    return &o->handles[h];
}

static int open_locked(obj_overlay *o, const char *path, int flags, int64_t *out)
{
    node *n = find(o, path);
    int64_t below = -1, i = 0;
    int rc = -ENOENT;
    bool write = (flags & O_ACCMODE) != O_RDONLY;
    while (i < OVERLAY_HANDLES_MAX && o->handles[i].open) {
        i++;
    }
    if (i == OVERLAY_HANDLES_MAX) {
        return -EMFILE;
    }
    if (!n || (!n->removed && !n->made)) {
        rc = o->below->open(o->below, path, O_RDONLY | O_CLOEXEC | (flags & O_DIRECTORY), 0, &below);
    } else if (n->made) {
        rc = 0;
    }
    if (rc < 0 && (rc != -ENOENT || !(flags & O_CREAT))) {
        return rc;
    }
    if (rc == 0 && (flags & O_CREAT) && (flags & O_EXCL)) {
        if (below >= 0) {
            (void)o->below->close(o->below, below);
        }
        return -EEXIST;
    }
    tarn_fs_stat st = {0};
    bool fresh = !n && rc == 0 && write && !(flags & O_TRUNC); /* known from now on: sizes and pages are kept with the node */
    int bad = fresh ? o->below->fstat(o->below, below, &st) : 0;
    if (bad == 0 && (rc < 0 || write) && !(n = make(o, path))) {
        bad = -ENOMEM;
    }
    if (bad < 0) {
        if (below >= 0) {
            (void)o->below->close(o->below, below);
        }
        return bad;
    }
    if (fresh) {
        n->size = st.size_bytes;
    }
    if (n && rc < 0) {
        n->made = true;
        n->removed = false;
        n->size = 0;
    } else if (n && (flags & O_TRUNC)) {
        n->size = 0;
        n->made = true; /* what is below does not shine through */
    }
    if (n && n->made && below >= 0) {
        (void)o->below->close(o->below, below);
        below = -1;
    }
    o->handles[i] = (handle){.open = true, .below = below, .n = n};
    *out = i;
    return 0;
}

static int fs_open(tarn_fs *fs, const char *path, int flags, int mode, int64_t *out)
{
    obj_overlay *o = ov(fs);
    (void)mode;
    pthread_mutex_lock(&o->lock);
    int rc = open_locked(o, path, flags, out);
    pthread_mutex_unlock(&o->lock);
    return rc;
}

static int fs_close(tarn_fs *fs, int64_t h)
{
    obj_overlay *o = ov(fs);
    pthread_mutex_lock(&o->lock);
    handle *x = handle_of(o, h);
    if (x->below >= 0) {
        (void)o->below->close(o->below, x->below);
    }
    *x = (handle){0};
    pthread_mutex_unlock(&o->lock);
    return 0;
}

static int64_t fs_pread(tarn_fs *fs, int64_t h, void *buf, size_t n, uint64_t off)
{
    obj_overlay *o = ov(fs);
    pthread_mutex_lock(&o->lock);
    handle x = *handle_of(o, h);
    pthread_mutex_unlock(&o->lock);
    if (!x.n) {
        return o->below->pread(o->below, x.below, buf, n, off);
    }
    pthread_mutex_lock(&o->lock);
    n = off >= x.n->size ? 0 : n > x.n->size - off ? (size_t)(x.n->size - off) : n;
    for (size_t at = 0; at < n;) {
        uint64_t number = (off + at) / OVERLAY_PAGE_BYTES;
        size_t from = (size_t)((off + at) % OVERLAY_PAGE_BYTES);
        size_t run = OVERLAY_PAGE_BYTES - from < n - at ? OVERLAY_PAGE_BYTES - from : n - at;
        const page *p = *slot(o, x.n->id, number);
        if (p) {
            memcpy((uint8_t *)buf + at, p->bytes + from, run);
        } else {
            int64_t got = read_below(o, &x, (uint8_t *)buf + at, run, off + at);
            if (got < 0) {
                pthread_mutex_unlock(&o->lock);
                return got;
            }
            memset((uint8_t *)buf + at + got, 0, run - (size_t)got);
        }
        at += run;
    }
    pthread_mutex_unlock(&o->lock);
    return (int64_t)n;
}

static int64_t fs_pwrite(tarn_fs *fs, int64_t h, const void *buf, size_t n, uint64_t off)
{
    obj_overlay *o = ov(fs);
    pthread_mutex_lock(&o->lock);
    handle *x = handle_of(o, h);
    for (size_t at = 0; at < n;) {
        size_t from = (size_t)((off + at) % OVERLAY_PAGE_BYTES);
        size_t run = OVERLAY_PAGE_BYTES - from < n - at ? OVERLAY_PAGE_BYTES - from : n - at;
        page *p;
        int rc = page_for_write(o, x, (off + at) / OVERLAY_PAGE_BYTES, &p);
        if (rc < 0) {
            pthread_mutex_unlock(&o->lock);
            return rc;
        }
        memcpy(p->bytes + from, (const uint8_t *)buf + at, run);
        at += run;
    }
    if (off + n > x->n->size) {
        x->n->size = off + n;
    }
    pthread_mutex_unlock(&o->lock);
    return (int64_t)n;
}

static int fs_sync(tarn_fs *fs, int64_t h, bool data_only)
{
    (void)fs;
    (void)h;
    (void)data_only;
    return 0;
}

/* Zeroes from `from` on, so that what is below does not come back when the file grows again. */
static int fs_truncate(tarn_fs *fs, int64_t h, uint64_t size)
{
    obj_overlay *o = ov(fs);
    int rc = 0;
    pthread_mutex_lock(&o->lock);
    handle *x = handle_of(o, h);
    for (uint64_t at = size; rc == 0 && at < x->n->size;) {
        size_t from = (size_t)(at % OVERLAY_PAGE_BYTES);
        page *p;
        rc = page_for_write(o, x, at / OVERLAY_PAGE_BYTES, &p);
        if (rc == 0) {
            memset(p->bytes + from, 0, OVERLAY_PAGE_BYTES - from);
        }
        at += OVERLAY_PAGE_BYTES - from;
    }
    if (rc == 0) {
        x->n->size = size;
    }
    pthread_mutex_unlock(&o->lock);
    return rc;
}

static int fs_allocate(tarn_fs *fs, int64_t h, uint64_t off, uint64_t n)
{
    obj_overlay *o = ov(fs);
    pthread_mutex_lock(&o->lock);
    handle *x = handle_of(o, h);
    if (off + n > x->n->size) {
        x->n->size = off + n;
    }
    pthread_mutex_unlock(&o->lock);
    return 0;
}

static int fs_punch(tarn_fs *fs, int64_t h, uint64_t off, uint64_t n)
{
    (void)fs;
    (void)h;
    (void)off;
    (void)n;
    return -EOPNOTSUPP;
}

static int fs_fstat(tarn_fs *fs, int64_t h, tarn_fs_stat *out)
{
    obj_overlay *o = ov(fs);
    pthread_mutex_lock(&o->lock);
    handle x = *handle_of(o, h);
    pthread_mutex_unlock(&o->lock);
    int rc = x.below >= 0 ? o->below->fstat(o->below, x.below, out) : 0;
    if (x.below < 0) {
        *out = (tarn_fs_stat){0};
    }
    if (rc == 0 && x.n) {
        out->size_bytes = x.n->size;
    }
    return rc;
}

static int fs_stat(tarn_fs *fs, const char *path, tarn_fs_stat *out)
{
    obj_overlay *o = ov(fs);
    pthread_mutex_lock(&o->lock);
    node *n = find(o, path);
    bool removed = n && n->removed, made = n && n->made;
    tarn_fs_stat own = {.size_bytes = n ? n->size : 0, .is_dir = n && n->dir};
    pthread_mutex_unlock(&o->lock);
    if (removed) {
        return -ENOENT;
    }
    if (made) {
        *out = own;
        return 0;
    }
    return o->below->stat(o->below, path, out);
}

static int fs_unlink(tarn_fs *fs, const char *path)
{
    obj_overlay *o = ov(fs);
    tarn_fs_stat st;
    int rc = fs_stat(fs, path, &st);
    pthread_mutex_lock(&o->lock);
    node *n = rc == 0 ? make(o, path) : NULL;
    if (n) {
        n->removed = true;
        n->made = false;
        n->size = 0;
    }
    pthread_mutex_unlock(&o->lock);
    return rc < 0 ? rc : n ? 0 : -ENOMEM;
}

static int fs_rename(tarn_fs *fs, const char *from, const char *to)
{
    (void)fs;
    (void)from;
    (void)to;
    return -EOPNOTSUPP;
}

static int fs_mkdir(tarn_fs *fs, const char *path, int mode)
{
    obj_overlay *o = ov(fs);
    tarn_fs_stat st;
    (void)mode;
    if (fs_stat(fs, path, &st) == 0) {
        return -EEXIST;
    }
    pthread_mutex_lock(&o->lock);
    node *n = make(o, path);
    if (n) {
        n->made = n->dir = true;
        n->removed = false;
    }
    pthread_mutex_unlock(&o->lock);
    return n ? 0 : -ENOMEM;
}

static int fs_sync_dir(tarn_fs *fs, const char *path)
{
    (void)fs;
    (void)path;
    return 0;
}

typedef struct listing {
    obj_overlay *o;
    const char *path;
    bool (*fn)(void *ctx, const char *name, bool is_dir);
    void *ctx;
} listing;

static bool list_one(void *ctx, const char *name, bool is_dir)
{
    listing *l = ctx;
    char mem[TARN_PATH_BYTES_MAX];
    tarn_sb b;
    tarn_sb_init_fixed(&b, mem, sizeof mem);
    tarn_sb_fmt(&b, "%s/%s", l->path, name);
    pthread_mutex_lock(&l->o->lock);
    const node *n = b.failed ? NULL : find(l->o, mem);
    bool removed = n && n->removed;
    pthread_mutex_unlock(&l->o->lock);
    return removed || l->fn(l->ctx, name, is_dir);
}

/* What was made here alone is not listed: nobody who checks looks for it. */
static int fs_list(tarn_fs *fs, const char *path, bool (*fn)(void *ctx, const char *name, bool is_dir), void *ctx)
{
    listing l = {ov(fs), path, fn, ctx};
    return ov(fs)->below->list(ov(fs)->below, path, list_one, &l);
}

static int fs_space(tarn_fs *fs, const char *path, tarn_fs_space *out)
{
    return ov(fs)->below->space(ov(fs)->below, path, out);
}

static int fs_lock(tarn_fs *fs, int64_t h)
{
    obj_overlay *o = ov(fs);
    handle x = *handle_of(o, h);
    return x.below >= 0 ? o->below->lock(o->below, x.below) : 0;
}

/* ------------------------------------------------------------------ life */
obj_overlay *obj_overlay_new(tarn_fs *below)
{
    obj_overlay *o = tarn_calloc(1, sizeof *o);
    if (!o) {
        return NULL;
    }
    o->below = below;
    (void)pthread_mutex_init(&o->lock, NULL);
    tarn_list_init(&o->nodes);
    o->fs = (tarn_fs){.name = "overlay",
                      .open = fs_open,
                      .close = fs_close,
                      .pread = fs_pread,
                      .pwrite = fs_pwrite,
                      .sync = fs_sync,
                      .truncate = fs_truncate,
                      .allocate = fs_allocate,
                      .punch = fs_punch,
                      .fstat = fs_fstat,
                      .stat = fs_stat,
                      .unlink = fs_unlink,
                      .rename = fs_rename,
                      .mkdir = fs_mkdir,
                      .sync_dir = fs_sync_dir,
                      .list = fs_list,
                      .space = fs_space,
                      .lock = fs_lock};
    return o;
}

tarn_fs *obj_overlay_fs(obj_overlay *o)
{
    return &o->fs;
}

void obj_overlay_free(obj_overlay *o)
{
    if (!o) {
        return;
    }
    for (size_t i = 0; i < OVERLAY_BUCKETS; i++) {
        while (o->pages[i]) {
            page *p = o->pages[i];
            o->pages[i] = p->next;
            tarn_free(p);
        }
    }
    for (tarn_link *l; (l = tarn_list_pop(&o->nodes)) != NULL;) {
        node *n = TARN_CONTAINER_OF(l, node, link);
        tarn_free(n->path);
        tarn_free(n);
    }
    (void)pthread_mutex_destroy(&o->lock);
    tarn_free(o);
}
