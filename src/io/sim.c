/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The simulated file system: drives in memory that fail, lie and lose power, all of it decided by one seed.
 *
 *   powered ──the nth changing call, or cut_now──▶ lost (every call: -EIO) ──power_on──▶ powered
 *
 * The call at which the power goes may still take effect, in part: it is never answered.
 *
 * Invariants:
 *  1. The same calls after the same seed get the same answers.
 *  2. A handle is good only in the life of the machine in which it was opened.
 *  3. Faults at rest (lost and strayed writes, damage) touch nothing but files whose path has the fault's text.
 * Memory: the sim owns everything; drives and their files go with it. Threads: any; the order of calls of several threads is
 * theirs, so only one thread (or the fibers of one loop) gives runs that repeat.
 */
#include "sim_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

#define HANDLES_MAX 65536
#define STALL_NS_MAX 40000000000ull
#define STALL_STEP_NS 50000000ull
#define SHORT_PER_MILLE 10 /* of the transfers move less than asked: always legal */
#define KINDS 4

typedef struct drive {
    sim_inode *root;
    tarn_sim_fault fault;
    uint64_t stalled_until_ns;
    bool stalled; /* it was; the next operation goes through */
} drive;

typedef struct handle {
    sim_inode *f; /* NULL: free */
    uint64_t life;
    bool has_lock, writable;
} handle;

struct tarn_sim {
    tarn_fs fs; /* the first member */
    tarn_sim_options opt;
    pthread_mutex_t lock;
    sim_rng rng;
    drive drives[TARN_SIM_DRIVES_MAX];
    handle *handles;
    size_t handles_n;
    uint64_t life;
    bool off;
    uint64_t cut_left;
    bool picked; /* the call comes from a loop, which has waited already */
    unsigned fail_kinds;
    uint64_t fail_left;
    int fail_errno;
    uint64_t calls[KINDS];
    uint64_t hash;
};

static tarn_sim *sim_of(tarn_fs *fs)
{
    return (tarn_sim *)(void *)fs;
}

static void mix(tarn_sim *s, uint64_t v)
{
    s->hash = (s->hash ^ v) * 0x100000001B3u;
    s->hash ^= s->hash >> 29;
}

/* ------------------------------------------------------------------ a call begins and ends */
typedef struct call {
    size_t drive;
    unsigned kind;
    const char *path;
    bool changes, last; /* last: the power goes with it */
    bool by_handle;
    const char *what; /* for the trace */
    uint64_t off, n;
} call;

static bool fault_on(const tarn_sim *s, const call *c, unsigned fault)
{
    const tarn_sim_fault *f = &s->drives[c->drive].fault;
    return (f->faults & fault) != 0 && (!f->path_has || strstr(c->path, f->path_has) != NULL);
}

static bool meets(tarn_sim *s, const call *c, unsigned fault)
{
    return fault_on(s, c, fault) && sim_chance(&s->rng, s->drives[c->drive].fault.per_mille);
}

/* Locks. 0, or why the call fails. */
static int begin(tarn_sim *s, call *c)
{
    int rc = 0;
    bool picked = s->picked;
    s->picked = false;
    s->calls[__builtin_ctz(c->kind)]++;
    tarn_clock_advance(SIM_CALL_NS);
    if (s->off || (s->drives[c->drive].fault.faults & TARN_SIM_GONE))
        return -EIO;
    if (c->changes && s->cut_left > 0 && --s->cut_left == 0) {
        s->off = true;
        c->last = true;
        return 0;
    }
    if ((s->fail_kinds & c->kind) && s->fail_left > 0 && --s->fail_left == 0)
        return -s->fail_errno;
    /* In a loop others wait as well, and time must not pass for them unless they had their turn: see fs_pick. */
    if (!picked && !tarn_loop_current() && meets(s, c, TARN_SIM_SLOW))
        tarn_clock_advance(sim_below(&s->rng, STALL_NS_MAX));
    if (c->changes && fault_on(s, c, TARN_SIM_READ_ONLY))
        rc = -EROFS;
    else if (c->kind == TARN_SIM_CALL_OPEN && !c->by_handle && meets(s, c, TARN_SIM_OPEN_FAILS))
        rc = -EIO;
    return rc;
}

static int64_t end(tarn_sim *s, const call *c, int64_t result)
{
    if (c->last)
        result = -EIO;
    if (s->opt.trace)
        tarn_logf(TARN_LOG_INFO, "sim", "%s d%zu%s %llu+%llu: %lld%s", c->what, c->drive, c->path, (unsigned long long)c->off,
                  (unsigned long long)c->n, (long long)result, c->last ? " (the power goes)" : "");
    mix(s, c->kind | c->drive << 8);
    mix(s, (uint64_t)result);
    pthread_mutex_unlock(&s->lock);
    return result;
}

/* ------------------------------------------------------------------ paths */
static bool path_drive(const tarn_sim *s, const char *path, size_t *out, const char **rest)
{
    size_t d = 0, i = 2;
    if (path[0] != '/' || path[1] != 'd' || path[2] < '0' || path[2] > '9')
        return false;
    while (path[i] >= '0' && path[i] <= '9' && d < TARN_SIM_DRIVES_MAX)
        d = d * 10 + (size_t)(path[i++] - '0');
    if (d >= s->opt.drives_n || (path[i] != '/' && path[i] != '\0'))
        return false;
    *out = d;
    *rest = path + i;
    return true;
}

typedef struct place {
    sim_inode *in;    /* the folder */
    const char *name; /* "" : the root itself */
    size_t name_n;
    sim_inode *at; /* NULL: no such name */
} place;

static int walk(const tarn_sim *s, size_t d, const char *rest, place *out)
{
    place p = {.in = s->drives[d].root, .name = "", .at = s->drives[d].root};
    while (*rest == '/')
        rest++;
    while (*rest) {
        size_t n = strcspn(rest, "/");
        if (!p.at)
            return -ENOENT;
        if (!p.at->dir)
            return -ENOTDIR;
        p = (place){.in = p.at, .name = rest, .name_n = n, .at = sim_find(p.at->dir, rest, n)};
        rest += n;
        while (*rest == '/')
            rest++;
    }
    *out = p;
    return 0;
}

/* A call by name: locks, and finds the place. */
static int begin_at(tarn_sim *s, const char *what, const char *path, unsigned kind, bool changes, call *c, place *p)
{
    const char *rest = "";
    *c = (call){.what = what, .kind = kind, .path = path, .changes = changes};
    pthread_mutex_lock(&s->lock);
    if (!path_drive(s, path, &c->drive, &rest)) {
        c->drive = 0;
        return -ENOENT;
    }
    for (const char *x = rest; *x; x++)
        mix(s, (uint8_t)*x);
    int rc = begin(s, c);
    return rc == 0 ? walk(s, c->drive, rest, p) : rc;
}

/* ------------------------------------------------------------------ handles */
static int begin_on(tarn_sim *s, const char *what, int64_t h, unsigned kind, bool changes, call *c, sim_inode **f)
{
    pthread_mutex_lock(&s->lock);
    TARN_ASSERT(h >= 0 && (size_t)h < s->handles_n && s->handles[h].f);
    *f = s->handles[h].f;
    *c = (call){.what = what, .drive = (*f)->drive, .kind = kind, .path = (*f)->path, .changes = changes, .by_handle = true};
    mix(s, (uint64_t)h);
    int rc = begin(s, c);
    if (rc == 0 && s->handles[h].life != s->life)
        rc = -EIO;
    if (rc == 0 && changes && !s->handles[h].writable)
        rc = -EBADF;
    return rc;
}

static int64_t handle_new(tarn_sim *s, sim_inode *f, bool writable)
{
    size_t i = 0;
    while (i < s->handles_n && s->handles[i].f)
        i++;
    if (i == s->handles_n) {
        TARN_ASSERT(i < HANDLES_MAX);
        s->handles = sim_grow(s->handles, (i + 1) * sizeof s->handles[0]);
        s->handles_n++;
    }
    f->refs++;
    s->handles[i] = (handle){.f = f, .life = s->life, .writable = writable};
    return (int64_t)i;
}

static sim_inode *create_at(tarn_sim *s, const call *c, const place *p, bool dir)
{
    sim_inode *f = sim_inode_new(c->drive, c->path);
    if (dir)
        f->dir = sim_dir_new();
    f->lies = s->opt.lie_sync && strstr(c->path, s->opt.lie_sync) != NULL;
    sim_dir_change(p->in->dir, p->name, p->name_n, f, NULL, 0);
    f->refs--; /* the names hold it */
    return f;
}

static int fs_open(tarn_fs *fs, const char *path, int flags, int mode, int64_t *out)
{
    tarn_sim *s = sim_of(fs);
    call c;
    place p;
    (void)mode;
    int rc = begin_at(s, "open", path, TARN_SIM_CALL_OPEN, (flags & O_CREAT) != 0, &c, &p);
    if (rc == 0 && p.at && (flags & O_CREAT) && (flags & O_EXCL))
        rc = -EEXIST;
    if (rc == 0 && p.at && p.at->dir)
        rc = -EISDIR;
    if (rc == 0 && !p.at && !(flags & O_CREAT))
        rc = -ENOENT;
    if (rc == 0 && !p.at && meets(s, &c, TARN_SIM_FULL))
        rc = -ENOSPC;
    if (rc == 0 && !p.at)
        p.at = create_at(s, &c, &p, false);
    if (rc == 0 && (flags & O_TRUNC) && p.at->now.size > 0) {
        sim_image_resize(&p.at->now, 0);
        sim_note(p.at, SIM_TRUNCATE, 0, 0, NULL);
    }
    if (rc == 0 && !c.last)
        *out = handle_new(s, p.at, (flags & O_ACCMODE) != O_RDONLY);
    return (int)end(s, &c, rc);
}

static int fs_close(tarn_fs *fs, int64_t h)
{
    tarn_sim *s = sim_of(fs);
    pthread_mutex_lock(&s->lock);
    TARN_ASSERT(h >= 0 && (size_t)h < s->handles_n && s->handles[h].f);
    if (s->handles[h].has_lock && s->handles[h].life == s->life)
        s->handles[h].f->locked = false;
    sim_inode_unref(s->handles[h].f);
    s->handles[h] = (handle){0};
    pthread_mutex_unlock(&s->lock);
    return 0;
}

/* ------------------------------------------------------------------ bytes */
static size_t shorten(tarn_sim *s, size_t n)
{
    return n > 1 && sim_chance(&s->rng, SHORT_PER_MILLE) ? 1 + (size_t)sim_below(&s->rng, n - 1) : n;
}

static void flip(tarn_sim *s, uint8_t *p, size_t n)
{
    size_t at = (size_t)sim_below(&s->rng, n);
    size_t run = n - at < SIM_SECTOR_BYTES ? n - at : SIM_SECTOR_BYTES;
    switch (sim_below(&s->rng, 3)) {
    case 0:
        p[at] ^= (uint8_t)(1u << sim_below(&s->rng, 8));
        break;
    case 1:
        memset(p + at, 0, run);
        break;
    default:
        for (size_t i = 0; i < run; i++)
            p[at + i] = (uint8_t)sim_next(&s->rng);
    }
}

static int64_t fs_pread(tarn_fs *fs, int64_t h, void *buf, size_t n, uint64_t off)
{
    tarn_sim *s = sim_of(fs);
    call c;
    sim_inode *f;
    int64_t rc = begin_on(s, "pread", h, TARN_SIM_CALL_READ, false, &c, &f);
    if (rc == 0 && meets(s, &c, TARN_SIM_READ_FAILS))
        rc = -EIO;
    if (rc == 0)
        rc = (int64_t)sim_image_read(&f->now, off, buf, shorten(s, n));
    if (rc > 0 && meets(s, &c, TARN_SIM_READ_CORRUPTS))
        flip(s, buf, (size_t)rc);
    mix(s, off);
    c.off = off;
    c.n = n;
    return end(s, &c, rc);
}

typedef struct pick_file {
    const char *path_has;
    uint64_t left; /* pages to pass */
    uint64_t pages;
    sim_inode *found;
    uint64_t page;
} pick_file;

static bool file_matches(const pick_file *k, const sim_inode *f)
{
    return !k->path_has || strstr(f->path, k->path_has) != NULL;
}

static void count_pages(void *ctx, sim_inode *f)
{
    pick_file *k = ctx;
    k->pages += file_matches(k, f) ? f->now.pages_used : 0;
}

static void take_page(void *ctx, sim_inode *f)
{
    pick_file *k = ctx;
    for (size_t i = 0; !k->found && file_matches(k, f) && i < f->now.pages_cap; i++) {
        if (f->now.pages[i] && k->left-- == 0) {
            k->found = f;
            k->page = i;
        }
    }
}

/* A page of some file of the drive, each as likely as another. */
static bool any_page(tarn_sim *s, size_t d, const char *path_has, pick_file *k)
{
    *k = (pick_file){.path_has = path_has};
    sim_walk(s->drives[d].root->dir, count_pages, k);
    if (k->pages == 0)
        return false;
    k->left = sim_below(&s->rng, k->pages);
    sim_walk(s->drives[d].root->dir, take_page, k);
    return k->found != NULL;
}

/* The bytes land in some other place of the drive, and stay there. */
static void stray(tarn_sim *s, const call *c, const void *buf, size_t n)
{
    pick_file k;
    if (!any_page(s, c->drive, s->drives[c->drive].fault.path_has, &k))
        return;
    uint64_t at = k.page * SIM_PAGE_BYTES;
    if (n > k.found->now.size - at)
        n = (size_t)(k.found->now.size - at);
    sim_image_write(&k.found->now, at, buf, n);
    if (at + n <= k.found->durable.size)
        sim_image_write(&k.found->durable, at, buf, n);
}

static bool needs_space(const sim_inode *f, uint64_t off, size_t n)
{
    for (uint64_t p = off / SIM_PAGE_BYTES; p * SIM_PAGE_BYTES < off + n; p++) {
        if (p >= f->now.pages_cap || !f->now.pages[p])
            return true;
    }
    return false;
}

static void size_only(sim_inode *f, uint64_t off, size_t n)
{
    if (off + n > f->now.size) {
        f->now.size = off + n;
        sim_note(f, SIM_EXTEND, off, n, NULL);
    }
}

static void write_now(sim_inode *f, const void *buf, size_t n, uint64_t off)
{
    sim_image_write(&f->now, off, buf, n);
    sim_note(f, SIM_WRITE, off, n, buf);
}

static int64_t fs_pwrite(tarn_fs *fs, int64_t h, const void *buf, size_t n, uint64_t off)
{
    tarn_sim *s = sim_of(fs);
    call c;
    sim_inode *f;
    int64_t rc = begin_on(s, "pwrite", h, TARN_SIM_CALL_WRITE, true, &c, &f);
    if (rc == 0 && off + n > SIM_FILE_BYTES_MAX)
        rc = -EFBIG;
    if (rc == 0 && n > 0 && meets(s, &c, TARN_SIM_WRITE_FAILS)) {
        write_now(f, buf, (size_t)sim_below(&s->rng, n), off);
        rc = -EIO;
    }
    if (rc == 0 && fault_on(s, &c, TARN_SIM_FULL) && needs_space(f, off, n) && meets(s, &c, TARN_SIM_FULL))
        rc = -ENOSPC;
    if (rc == 0) {
        n = shorten(s, n);
        if (meets(s, &c, TARN_SIM_WRITE_LOST)) {
            size_only(f, off, n);
        } else if (meets(s, &c, TARN_SIM_WRITE_STRAYS)) {
            stray(s, &c, buf, n);
            size_only(f, off, n);
        } else {
            write_now(f, buf, n, off);
        }
        rc = (int64_t)n;
    }
    mix(s, off);
    c.off = off;
    c.n = n;
    return end(s, &c, rc);
}

/* Marked clean and perhaps lost: what the cache shows then is the new bytes, or the old ones if it has dropped the page. */
static void sync_failed(tarn_sim *s, sim_inode *f)
{
    sim_settle_some(f, &s->rng);
    if (f->differs && sim_below(&s->rng, 2) == 0)
        sim_forget_cache(f);
}

static int fs_sync(tarn_fs *fs, int64_t h, bool data_only)
{
    tarn_sim *s = sim_of(fs);
    call c;
    sim_inode *f;
    (void)data_only; /* sizes are needed to read the data: both kinds sync them */
    int rc = begin_on(s, "sync", h, TARN_SIM_CALL_SYNC, false, &c, &f);
    if (rc == 0 && s->cut_left > 0 && --s->cut_left == 0) {
        s->off = true;
        c.last = true;
        if (sim_below(&s->rng, 3) == 0 && !f->lies)
            sim_settle(f);
    } else if (rc == 0 && meets(s, &c, TARN_SIM_SYNC_FAILS)) {
        sync_failed(s, f);
        rc = -EIO;
    } else if (rc == 0 && !f->lies) {
        sim_settle(f);
    } else if (rc != 0 && rc == -s->fail_errno && s->fail_left == 0) {
        sync_failed(s, f);
    }
    return (int)end(s, &c, rc);
}

static int fs_truncate(tarn_fs *fs, int64_t h, uint64_t size)
{
    tarn_sim *s = sim_of(fs);
    call c;
    sim_inode *f;
    int rc = begin_on(s, "truncate", h, TARN_SIM_CALL_WRITE, true, &c, &f);
    if (rc == 0 && size > SIM_FILE_BYTES_MAX)
        rc = -EFBIG;
    if (rc == 0 && meets(s, &c, TARN_SIM_WRITE_FAILS))
        rc = -EIO;
    if (rc == 0) {
        sim_image_resize(&f->now, size);
        sim_note(f, SIM_TRUNCATE, size, 0, NULL);
    }
    mix(s, size);
    c.off = size;
    return (int)end(s, &c, rc);
}

static int fs_allocate(tarn_fs *fs, int64_t h, uint64_t off, uint64_t n)
{
    tarn_sim *s = sim_of(fs);
    call c;
    sim_inode *f;
    int rc = begin_on(s, "allocate", h, TARN_SIM_CALL_WRITE, true, &c, &f);
    if (rc == 0 && off + n > SIM_FILE_BYTES_MAX)
        rc = -EFBIG;
    if (rc == 0 && meets(s, &c, TARN_SIM_WRITE_FAILS))
        rc = -EIO;
    if (rc == 0 && meets(s, &c, TARN_SIM_FULL))
        rc = -ENOSPC;
    if (rc == 0 && off + n > f->now.size) {
        f->now.size = off + n;
        sim_note(f, SIM_EXTEND, off, n, NULL);
    }
    return (int)end(s, &c, rc);
}

static int fs_punch(tarn_fs *fs, int64_t h, uint64_t off, uint64_t n)
{
    tarn_sim *s = sim_of(fs);
    call c;
    sim_inode *f;
    int rc = begin_on(s, "punch", h, TARN_SIM_CALL_WRITE, true, &c, &f);
    if (rc == 0 && meets(s, &c, TARN_SIM_WRITE_FAILS))
        rc = -EIO;
    if (rc == 0) {
        sim_image_zero(&f->now, off, n);
        sim_note(f, SIM_PUNCH, off, n, NULL);
    }
    mix(s, off);
    c.off = off;
    c.n = n;
    return (int)end(s, &c, rc);
}

/* ------------------------------------------------------------------ names */
static void stat_of(const sim_inode *f, tarn_fs_stat *out)
{
    *out = (tarn_fs_stat){.size_bytes = f->now.size,
                          .allocated_bytes = (uint64_t)f->now.pages_used * SIM_PAGE_BYTES,
                          .mtime_ms = f->mtime_ms,
                          .is_dir = f->dir != NULL,
                          .nameless = f->names == 0};
}

static int fs_fstat(tarn_fs *fs, int64_t h, tarn_fs_stat *out)
{
    tarn_sim *s = sim_of(fs);
    call c;
    sim_inode *f;
    int rc = begin_on(s, "fstat", h, TARN_SIM_CALL_OPEN, false, &c, &f);
    if (rc == 0)
        stat_of(f, out);
    return (int)end(s, &c, rc);
}

static int fs_stat(tarn_fs *fs, const char *path, tarn_fs_stat *out)
{
    tarn_sim *s = sim_of(fs);
    call c;
    place p;
    int rc = begin_at(s, "stat", path, TARN_SIM_CALL_OPEN, false, &c, &p);
    if (rc == 0 && !p.at)
        rc = -ENOENT;
    if (rc == 0)
        stat_of(p.at, out);
    return (int)end(s, &c, rc);
}

static int fs_unlink(tarn_fs *fs, const char *path)
{
    tarn_sim *s = sim_of(fs);
    call c;
    place p;
    int rc = begin_at(s, "unlink", path, TARN_SIM_CALL_OPEN, true, &c, &p);
    if (rc == 0 && !p.at)
        rc = -ENOENT;
    if (rc == 0 && p.at->dir)
        rc = -EISDIR;
    if (rc == 0)
        sim_dir_change(p.in->dir, NULL, 0, NULL, p.name, p.name_n);
    return (int)end(s, &c, rc);
}

/* Within a folder only. */
static int fs_rename(tarn_fs *fs, const char *from, const char *to)
{
    tarn_sim *s = sim_of(fs);
    call c;
    place p, q = {0};
    const char *rest = "";
    size_t d = 0;
    int rc = begin_at(s, "rename", from, TARN_SIM_CALL_OPEN, true, &c, &p);
    if (rc == 0 && (!p.at || !path_drive(s, to, &d, &rest)))
        rc = -ENOENT;
    if (rc == 0)
        rc = walk(s, d, rest, &q);
    if (rc == 0 && (q.in != p.in || p.at->dir || (q.at && q.at->dir)))
        rc = -EXDEV;
    if (rc == 0)
        sim_dir_change(p.in->dir, q.name, q.name_n, p.at, p.name, p.name_n);
    return (int)end(s, &c, rc);
}

static int fs_mkdir(tarn_fs *fs, const char *path, int mode)
{
    tarn_sim *s = sim_of(fs);
    call c;
    place p;
    (void)mode;
    int rc = begin_at(s, "mkdir", path, TARN_SIM_CALL_OPEN, true, &c, &p);
    if (rc == 0 && p.at)
        rc = -EEXIST;
    if (rc == 0 && meets(s, &c, TARN_SIM_FULL))
        rc = -ENOSPC;
    if (rc == 0)
        (void)create_at(s, &c, &p, true);
    return (int)end(s, &c, rc);
}

static int fs_sync_dir(tarn_fs *fs, const char *path)
{
    tarn_sim *s = sim_of(fs);
    call c;
    place p;
    int rc = begin_at(s, "sync_dir", path, TARN_SIM_CALL_SYNC, true, &c, &p);
    if (rc == 0 && !p.at)
        rc = -ENOENT;
    if (rc == 0 && !p.at->dir)
        rc = -ENOTDIR;
    if (rc == 0 && meets(s, &c, TARN_SIM_SYNC_FAILS))
        rc = -EIO;
    if (rc == 0 && !s->opt.lie_sync_dir && (!c.last || sim_below(&s->rng, 3) == 0))
        sim_dir_sync(p.at->dir);
    return (int)end(s, &c, rc);
}

static int fs_list(tarn_fs *fs, const char *path, bool (*fn)(void *ctx, const char *name, bool is_dir), void *ctx)
{
    tarn_sim *s = sim_of(fs);
    call c;
    place p;
    int rc = begin_at(s, "list", path, TARN_SIM_CALL_OPEN, false, &c, &p);
    if (rc == 0 && !p.at)
        rc = -ENOENT;
    if (rc == 0 && !p.at->dir)
        rc = -ENOTDIR;
    sim_names copy = {0}; /* fn may change the folder */
    if (rc == 0) {
        copy = p.at->dir->now;
        copy.e = sim_alloc((copy.n + 1) * sizeof copy.e[0]);
        for (size_t i = 0; i < copy.n; i++) {
            const sim_entry *e = &p.at->dir->now.e[i];
            copy.e[i] = (sim_entry){sim_text(e->name, strlen(e->name)), e->inode};
            e->inode->refs++;
        }
    }
    rc = (int)end(s, &c, rc);
    bool more = true;
    for (size_t i = 0; i < copy.n; i++) {
        more = more && fn(ctx, copy.e[i].name, copy.e[i].inode->dir != NULL);
        tarn_free(copy.e[i].name);
        pthread_mutex_lock(&s->lock);
        sim_inode_unref(copy.e[i].inode);
        pthread_mutex_unlock(&s->lock);
    }
    tarn_free(copy.e);
    return rc;
}

static int fs_space(tarn_fs *fs, const char *path, tarn_fs_space *out)
{
    tarn_sim *s = sim_of(fs);
    call c;
    place p;
    int rc = begin_at(s, "space", path, TARN_SIM_CALL_OPEN, false, &c, &p);
    if (rc == 0) {
        pick_file k = {.path_has = NULL};
        sim_walk(s->drives[c.drive].root->dir, count_pages, &k);
        uint64_t used = k.pages * SIM_PAGE_BYTES;
        *out = (tarn_fs_space){s->opt.drive_bytes, used < s->opt.drive_bytes ? s->opt.drive_bytes - used : 0};
    }
    return (int)end(s, &c, rc);
}

static int fs_lock(tarn_fs *fs, int64_t h)
{
    tarn_sim *s = sim_of(fs);
    call c;
    sim_inode *f;
    int rc = begin_on(s, "lock", h, TARN_SIM_CALL_OPEN, false, &c, &f);
    if (rc == 0 && f->locked && !s->handles[h].has_lock)
        rc = -EWOULDBLOCK;
    if (rc == 0) {
        f->locked = true;
        s->handles[h].has_lock = true;
    }
    return (int)end(s, &c, rc);
}

/* ------------------------------------------------------------------ the order of what waits in a loop */
static size_t op_drive(const tarn_sim *s, const tarn_op *op)
{
    size_t d = 0;
    const char *rest;
    if (op->file)
        return s->handles[tarn_file_handle(op->file)].f->drive;
    return path_drive(s, op->path, &d, &rest) ? d : 0;
}

/* Any of those whose drive is not stalled. When all are, time passes. */
static size_t fs_pick(tarn_fs *fs, const tarn_op *first, size_t n)
{
    tarn_sim *s = sim_of(fs);
    size_t ready = 0, i = 0, found = n;
    pthread_mutex_lock(&s->lock);
    uint64_t now = tarn_mono_ns();
    for (const tarn_op *op = first; op; op = op->next)
        ready += s->drives[op_drive(s, op)].stalled_until_ns <= now ? 1 : 0;
    size_t skip = ready > 0 ? (size_t)sim_below(&s->rng, ready) : 0;
    for (const tarn_op *op = first; op && ready > 0; op = op->next, i++) {
        drive *d = &s->drives[op_drive(s, op)];
        if (d->stalled_until_ns > now || skip-- > 0)
            continue;
        found = i;
        bool stall = !d->stalled && (d->fault.faults & TARN_SIM_SLOW) && sim_chance(&s->rng, d->fault.per_mille);
        d->stalled = stall;
        if (stall) {
            d->stalled_until_ns = now + sim_below(&s->rng, STALL_NS_MAX);
            found = n;
        }
        break;
    }
    if (ready == 0)
        tarn_clock_advance(STALL_STEP_NS);
    s->picked = found < n;
    pthread_mutex_unlock(&s->lock);
    return found;
}

/* ------------------------------------------------------------------ the machine */
static sim_inode *root_new(size_t d)
{
    sim_inode *root = sim_inode_new(d, "/");
    root->dir = sim_dir_new();
    return root;
}

tarn_sim *tarn_sim_new(const tarn_sim_options *opt)
{
    tarn_sim *s = sim_alloc(sizeof *s);
    TARN_ASSERT(opt->drives_n >= 1 && opt->drives_n <= TARN_SIM_DRIVES_MAX);
    s->opt = *opt;
    s->rng.state = opt->seed;
    s->life = 1;
    TARN_ASSERT(pthread_mutex_init(&s->lock, NULL) == 0);
    for (size_t i = 0; i < opt->drives_n; i++)
        s->drives[i].root = root_new(i);
    s->fs = (tarn_fs){.name = "sim",
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
                      .lock = fs_lock,
                      .pick = fs_pick};
    return s;
}

void tarn_sim_free(tarn_sim *s)
{
    if (!s)
        return;
    TARN_ASSERT(tarn_sim_open_files(s, NULL) == 0); /* somebody has not closed a file */
    for (size_t i = 0; i < s->opt.drives_n; i++)
        sim_inode_unref(s->drives[i].root);
    tarn_free(s->handles);
    pthread_mutex_destroy(&s->lock);
    tarn_free(s);
}

tarn_fs *tarn_sim_fs(tarn_sim *s)
{
    return &s->fs;
}

void tarn_sim_reseed(tarn_sim *s, uint64_t seed)
{
    s->rng.state = seed;
}

void tarn_sim_set_fault(tarn_sim *s, size_t d, const tarn_sim_fault *fault)
{
    TARN_ASSERT(d < s->opt.drives_n);
    s->drives[d].fault = fault ? *fault : (tarn_sim_fault){0};
    s->drives[d].stalled_until_ns = 0;
}

void tarn_sim_cut_after(tarn_sim *s, uint64_t nth)
{
    s->cut_left = nth;
}

void tarn_sim_cut_now(tarn_sim *s)
{
    s->off = true;
}

bool tarn_sim_power_lost(const tarn_sim *s)
{
    return s->off;
}

void tarn_sim_power_on(tarn_sim *s)
{
    s->life++;
    s->off = false;
    s->cut_left = 0;
    for (size_t i = 0; i < s->opt.drives_n; i++)
        sim_dir_power_cut(s->drives[i].root->dir, &s->rng);
}

void tarn_sim_replace_drive(tarn_sim *s, size_t d)
{
    sim_inode_unref(s->drives[d].root);
    s->drives[d] = (drive){.root = root_new(d)};
}

void tarn_sim_unplug_drive(tarn_sim *s, size_t d)
{
    s->drives[d].fault = (tarn_sim_fault){.faults = TARN_SIM_GONE};
    sim_dir_power_cut(s->drives[d].root->dir, &s->rng);
}

size_t tarn_sim_damage(tarn_sim *s, size_t d, const char *path_has, size_t n)
{
    size_t done = 0;
    for (; done < n; done++) {
        pick_file k;
        if (!any_page(s, d, path_has, &k))
            break;
        uint8_t *page = k.found->now.pages[k.page];
        flip(s, page, SIM_PAGE_BYTES);
        if (k.page < k.found->durable.pages_cap && k.found->durable.pages[k.page])
            memcpy(k.found->durable.pages[k.page], page, SIM_PAGE_BYTES);
    }
    return done;
}

size_t tarn_sim_open_files(const tarn_sim *s, const char **path)
{
    size_t n = 0;
    for (size_t i = 0; i < s->handles_n; i++) {
        if (s->handles[i].f && path)
            *path = s->handles[i].f->path;
        n += s->handles[i].f ? 1 : 0;
    }
    return n;
}

void tarn_sim_fail_nth(tarn_sim *s, unsigned kinds, uint64_t nth, int errno_value)
{
    s->fail_kinds = kinds;
    s->fail_left = nth;
    s->fail_errno = errno_value;
}

uint64_t tarn_sim_calls(const tarn_sim *s, unsigned kinds)
{
    uint64_t n = 0;
    for (unsigned i = 0; i < KINDS; i++)
        n += kinds & (1u << i) ? s->calls[i] : 0;
    return n;
}

uint64_t tarn_sim_hash(const tarn_sim *s)
{
    return s->hash;
}
