/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Drives: who they are, whether they may be used, and what becomes of them when they fail.
 *
 * A drive's identity is the record <drive>/tarn/format (two copies, FORMAT_COPY_APART apart, written one after the other).
 * Its state byte: FRESH while a new deployment is being formatted, FILLING for a drive that replaced another one and has
 * not got all its shards yet, AWAY for one that missed writes and is checked and filled, READY.
 *
 *   OK, NEW ──write error──▶ FAILED      OK, NEW ──EROFS──▶ READ_ONLY      NEW ──filled──▶ OK
 *   MISSING, FOREIGN, MISPLACED, FAILED: until the next start
 *
 * Invariants:
 *  1. Nothing is written to a drive that is not blank and not of this deployment at this position.
 *  2. A new deployment is made only when no drive given carries a record of a finished one, and all are blank or FRESH. A record
 *     that can't be read is not taken for none: then nothing is made, and nothing is written.
 *  3. A drive that is used is locked (<drive>/tarn/lock) for the life of the process.
 * Memory: drives and paths are the store's; reasons live until it is closed. Threads: opening on one; state is atomic.
 */
#include "private.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

#define FORMAT_BYTES 80
#define FORMAT_COPY_APART 4096
#define FORMAT_VERSION 1
#define PARTS_DIRS 64

static const char format_magic[8] = {'T', 'A', 'R', 'N', 'F', 'M', 'T', '1'};

typedef enum format_state { FORMAT_READY = 0, FORMAT_FILLING = 1, FORMAT_FRESH = 2, FORMAT_AWAY = 3 } format_state; /* on disk */

typedef struct format_record {
    uint8_t deployment[16], drive[16];
    uint32_t drives_n, set_drives, set, position;
    uint8_t state;
} format_record;

typedef enum seen { SEEN_MISSING, SEEN_BLANK, SEEN_OCCUPIED, SEEN_UNREADABLE, SEEN_FORMATTED } seen;

typedef struct inspection {
    seen what;
    int error; /* positive errno, SEEN_UNREADABLE */
    format_record rec;
} inspection;

typedef struct reason_text {
    tarn_link link;
    char text[OBJ_REASON_BYTES_MAX];
} reason_text;

/* ------------------------------------------------------------------ paths */
static bool path_end(tarn_sb *b)
{
    return !b->failed;
}

bool obj_path(const obj_drive *d, const char *below, char out[TARN_PATH_BYTES_MAX])
{
    tarn_sb b;
    tarn_sb_init_fixed(&b, out, TARN_PATH_BYTES_MAX);
    tarn_sb_fmt(&b, "%s/tarn%s%s", d->path, below[0] ? "/" : "", below);
    return path_end(&b);
}

bool obj_path_segment(const obj_drive *d, uint64_t segment, char out[TARN_PATH_BYTES_MAX])
{
    tarn_sb b;
    tarn_sb_init_fixed(&b, out, TARN_PATH_BYTES_MAX);
    tarn_sb_fmt(&b, "%s/tarn/segments/%016llx", d->path, (unsigned long long)segment);
    return path_end(&b);
}

bool obj_path_blob_dir(const obj_drive *d, const obj_blob *b, char out[TARN_PATH_BYTES_MAX])
{
    tarn_sb sb;
    tarn_sb_init_fixed(&sb, out, TARN_PATH_BYTES_MAX);
    tarn_sb_fmt(&sb, "%s/tarn/parts/%02x", d->path, (unsigned)(b->blob_id % PARTS_DIRS));
    return path_end(&sb);
}

bool obj_path_blob(const obj_drive *d, const obj_blob *b, char out[TARN_PATH_BYTES_MAX])
{
    tarn_sb sb;
    if (b->cls == OBJ_CLASS_SEGMENT) {
        return obj_path_segment(d, b->segment, out);
    }
    tarn_sb_init_fixed(&sb, out, TARN_PATH_BYTES_MAX);
    tarn_sb_fmt(&sb, "%s/tarn/parts/%02x/%016llx.%u.%016llx", d->path, (unsigned)(b->blob_id % PARTS_DIRS), (unsigned long long)b->data_id,
                b->part, (unsigned long long)b->blob_id);
    return path_end(&sb);
}

bool obj_parse_blob_name(const char *name, uint64_t *data_id, uint32_t *part, uint64_t *blob_id)
{
    tarn_str a, b, c, rest;
    uint64_t number = 0, id = 0, blob = 0;
    (void)tarn_str_split(tarn_str_of(name), '.', &a, &rest);
    (void)tarn_str_split(rest, '.', &b, &c);
    if (a.n != 16 || c.n != 16 || !tarn_hex_to_u64(a, &id) || !tarn_hex_to_u64(c, &blob) || !tarn_str_to_u64(b, &number) ||
        number > TARN_PARTS_MAX) {
        return false;
    }
    *data_id = id;
    *part = (uint32_t)number;
    *blob_id = blob;
    return true;
}

/* ------------------------------------------------------------------ states */
obj_drive *obj_drive_at(tarn_store *s, unsigned set, unsigned position)
{
    size_t i = (size_t)set * s->n + position;
    TARN_ASSERT(position < s->n && i < s->drives_n);
    return &s->drives[i];
}

bool obj_drive_readable(const obj_drive *d)
{
    int st = atomic_load_explicit(&d->state, memory_order_relaxed);
    return st == TARN_DRIVE_OK || st == TARN_DRIVE_NEW || st == TARN_DRIVE_READ_ONLY;
}

bool obj_drive_writable(const obj_drive *d)
{
    int st = atomic_load_explicit(&d->state, memory_order_relaxed);
    return st == TARN_DRIVE_OK || st == TARN_DRIVE_NEW;
}

unsigned obj_set_writable(tarn_store *s, unsigned set)
{
    unsigned n = 0;
    for (unsigned i = 0; i < s->n; i++) {
        n += obj_drive_writable(obj_drive_at(s, set, i)) ? 1 : 0;
    }
    return n;
}

void obj_drives_gauge(tarn_store *s)
{
    int64_t offline = 0;
    for (size_t i = 0; i < s->drives_n; i++) {
        offline += obj_drive_writable(&s->drives[i]) ? 0 : 1;
    }
    tarn_metric_set(TARN_M_DRIVES, (int64_t)s->drives_n);
    tarn_metric_set(TARN_M_DRIVES_OFFLINE, offline);
}

void obj_drive_set(tarn_store *s, obj_drive *d, tarn_drive_state state, const char *reason)
{
    const char *text = "";
    if (reason[0] != '\0') {
        reason_text *r = tarn_calloc(1, sizeof *r);
        text = "out of memory for the reason";
        if (r) {
            tarn_sb b;
            tarn_sb_init_fixed(&b, r->text, sizeof r->text);
            tarn_sb_bytes(&b, reason, strnlen(reason, sizeof r->text - 1));
            pthread_mutex_lock(&s->lock);
            tarn_list_push(&s->reasons, &r->link);
            pthread_mutex_unlock(&s->lock);
            text = r->text;
        }
    }
    atomic_store(&d->reason, text);
    atomic_store(&d->state, (int)state);
    obj_drives_gauge(s);
}

/* Errors that tell about the process or the file, not about the drive. */
static bool error_is_local(int e)
{
    return e == EMFILE || e == ENFILE || e == ENOMEM || e == ECANCELED || e == EINTR || e == ENOSPC || e == EDQUOT || e == ETIMEDOUT;
}

tarn_err obj_err_quorum(int e)
{
    if (e == ENOSPC || e == EDQUOT) {
        return TARN_E_DISK_FULL;
    }
    return e == ENOMEM || e == EMFILE || e == ENFILE ? TARN_E_NO_MEMORY : TARN_E_QUORUM_WRITE;
}

void obj_drive_error(tarn_store *s, obj_drive *d, const char *what, int errno_value)
{
    char mem[OBJ_REASON_BYTES_MAX];
    tarn_sb b;
    if (error_is_local(errno_value) || !obj_drive_writable(d)) {
        return;
    }
    tarn_sb_init_fixed(&b, mem, sizeof mem);
    tarn_sb_fmt(&b, "%s failed: %s; the drive was taken out. Check it (dmesg, SMART) and start the daemon again.", what,
                strerror(errno_value));
    d->vanished = errno_value == ENOENT || errno_value == ENOTDIR || errno_value == ENODEV; /* see watch.c */
    obj_drive_set(s, d, errno_value == EROFS ? TARN_DRIVE_READ_ONLY : TARN_DRIVE_FAILED, b.failed ? what : mem);
    tarn_log(TARN_LOG_ERROR, "drive taken out", "drive", d->path, "operation", what, "error", strerror(errno_value), NULL);
}

/* ------------------------------------------------------------------ the record */
static void record_pack(const format_record *r, char out[FORMAT_BYTES + 1])
{
    tarn_sb b;
    tarn_sb_init_fixed(&b, out, FORMAT_BYTES + 1);
    tarn_sb_bytes(&b, format_magic, sizeof format_magic);
    tarn_sb_le32(&b, FORMAT_VERSION);
    tarn_sb_le32(&b, FORMAT_BYTES);
    tarn_sb_bytes(&b, r->deployment, 16);
    tarn_sb_bytes(&b, r->drive, 16);
    tarn_sb_le32(&b, r->drives_n);
    tarn_sb_le32(&b, r->set_drives);
    tarn_sb_le32(&b, r->set);
    tarn_sb_le32(&b, r->position);
    tarn_sb_le32(&b, r->state);
    tarn_sb_le32(&b, 0);
    tarn_sb_le64(&b, tarn_crc64(0, out, FORMAT_BYTES - 8));
    TARN_ASSERT(!b.failed && b.n == FORMAT_BYTES);
}

static bool record_unpack(const char *p, format_record *out)
{
    format_record rec = {0};
    tarn_rd r = tarn_rd_of((tarn_str){p, FORMAT_BYTES});
    tarn_str magic = tarn_rd_bytes(&r, sizeof format_magic);
    uint32_t version = tarn_rd_le32(&r);
    uint32_t bytes = tarn_rd_le32(&r);
    tarn_str deployment = tarn_rd_bytes(&r, 16);
    tarn_str drive = tarn_rd_bytes(&r, 16);
    rec.drives_n = tarn_rd_le32(&r);
    rec.set_drives = tarn_rd_le32(&r);
    rec.set = tarn_rd_le32(&r);
    rec.position = tarn_rd_le32(&r);
    uint32_t state = tarn_rd_le32(&r);
    (void)tarn_rd_le32(&r);
    uint64_t sum = tarn_rd_le64(&r);
    if (r.failed || memcmp(magic.p, format_magic, sizeof format_magic) != 0 || version != FORMAT_VERSION || bytes != FORMAT_BYTES ||
        sum != tarn_crc64(0, p, FORMAT_BYTES - 8) || state > FORMAT_AWAY) {
        return false;
    }
    memcpy(rec.deployment, deployment.p, 16);
    memcpy(rec.drive, drive.p, 16);
    rec.state = (uint8_t)state;
    *out = rec;
    return true;
}

/* Copy by copy, so that one of them is whole at any time. Positive errno or 0. */
static int record_write(tarn_store *s, const obj_drive *d, const format_record *rec)
{
    char path[TARN_PATH_BYTES_MAX], bytes[FORMAT_BYTES + 1];
    tarn_file *f = NULL;
    if (!obj_path(d, "format", path)) {
        return ENAMETOOLONG;
    }
    record_pack(rec, bytes);
    int rc = tarn_file_open_sync(s->fs, path, O_RDWR | O_CREAT | O_CLOEXEC, 0644, &f);
    for (uint64_t copy = 0; rc == 0 && copy < 2; copy++) {
        int64_t n = tarn_file_pwrite_sync(f, bytes, FORMAT_BYTES, copy * FORMAT_COPY_APART);
        rc = n < 0 ? (int)n : s->fs->sync(s->fs, tarn_file_handle(f), false);
    }
    tarn_file_unref(f);
    if (rc == 0 && obj_path(d, "", path)) {
        rc = s->fs->sync_dir(s->fs, path);
    }
    return -rc;
}

/* ------------------------------------------------------------------ looking at a drive without touching it */
typedef struct blank_check {
    const char *const *allowed;
    bool blank;
} blank_check;

static bool blank_name(void *ctx, const char *name, bool is_dir)
{
    blank_check *c = ctx;
    (void)is_dir;
    for (size_t i = 0; c->allowed[i]; i++) {
        if (strcmp(name, c->allowed[i]) == 0) {
            return true;
        }
    }
    c->blank = false;
    return false;
}

/* Nothing there but what an interrupted formatting leaves? A folder that can't be listed is no answer. */
static void inspect_blank(tarn_store *s, const obj_drive *d, inspection *in)
{
    static const char *const top[] = {"lost+found", "tarn", NULL};
    static const char *const inside[] = {"lock", "format", NULL};
    char path[TARN_PATH_BYTES_MAX];
    blank_check c = {top, true};
    int rc = s->fs->list(s->fs, d->path, blank_name, &c);
    if (rc == 0 && c.blank) {
        c.allowed = inside;
        rc = obj_path(d, "", path) ? s->fs->list(s->fs, path, blank_name, &c) : -ENAMETOOLONG;
        rc = rc == -ENOENT ? 0 : rc;
    }
    in->what = rc < 0 ? SEEN_UNREADABLE : c.blank ? SEEN_BLANK : SEEN_OCCUPIED;
    in->error = -rc;
}

static inspection drive_inspect(tarn_store *s, const obj_drive *d)
{
    inspection in = {.what = SEEN_MISSING};
    tarn_fs_stat st;
    tarn_file *f = NULL;
    char path[TARN_PATH_BYTES_MAX], bytes[FORMAT_COPY_APART + FORMAT_BYTES];
    int rc = s->fs->stat(s->fs, d->path, &st);
    if (rc == -ENOENT) {
        return in;
    }
    if (rc == 0 && !st.is_dir) {
        rc = -ENOTDIR;
    }
    if (rc == 0 && !obj_path(d, "format", path)) {
        rc = -ENAMETOOLONG;
    }
    if (rc == 0) {
        rc = tarn_file_open_sync(s->fs, path, O_RDONLY | O_CLOEXEC, 0, &f);
    }
    if (rc == -ENOENT) {
        inspect_blank(s, d, &in);
        return in;
    }
    int64_t n = rc == 0 ? tarn_file_pread_sync(f, bytes, sizeof bytes, 0) : rc;
    if (n >= 0 && n < (int64_t)sizeof bytes) { /* written in part, or read in part? */
        rc = s->fs->fstat(s->fs, tarn_file_handle(f), &st);
        n = rc < 0 ? rc : st.size_bytes > (uint64_t)n ? -EIO : n;
    }
    tarn_file_unref(f);
    if (n < 0) {
        in.what = SEEN_UNREADABLE;
        in.error = (int)-n;
    } else if ((n >= FORMAT_BYTES && record_unpack(bytes, &in.rec)) ||
               (n == (int64_t)sizeof bytes && record_unpack(bytes + FORMAT_COPY_APART, &in.rec))) {
        in.what = SEEN_FORMATTED;
    } else {
        inspect_blank(s, d, &in);
    }
    return in;
}

/* ------------------------------------------------------------------ making folders */
static int mkdir_parents(tarn_fs *fs, const char *path)
{
    char part[TARN_PATH_BYTES_MAX];
    tarn_str p = tarn_str_of(path);
    for (size_t i = 1; i <= p.n; i++) {
        if (i < p.n && p.p[i] != '/') {
            continue;
        }
        tarn_sb b;
        tarn_sb_init_fixed(&b, part, sizeof part);
        tarn_sb_bytes(&b, p.p, i);
        int rc = b.failed ? -ENAMETOOLONG : fs->mkdir(fs, part, 0755);
        if (rc < 0 && rc != -EEXIST && i == p.n) {
            return rc;
        }
    }
    return 0;
}

static int make_dir(tarn_store *s, const obj_drive *d, const char *below, int mode)
{
    char path[TARN_PATH_BYTES_MAX];
    if (!obj_path(d, below, path)) {
        return -ENAMETOOLONG;
    }
    int rc = s->fs->mkdir(s->fs, path, mode);
    return rc == -EEXIST ? 0 : rc;
}

static int sync_below(tarn_store *s, const obj_drive *d, const char *below)
{
    char path[TARN_PATH_BYTES_MAX];
    return obj_path(d, below, path) ? s->fs->sync_dir(s->fs, path) : -ENAMETOOLONG;
}

/* The folders of a drive; harmless when they are there. */
static int make_dirs(tarn_store *s, const obj_drive *d)
{
    static const struct {
        const char *name;
        int mode;
    } dirs[] = {{"meta", 0700}, {"parts", 0755}, {"segments", 0755}, {"secrets", 0700}};
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < TARN_ARRAY_LEN(dirs); i++) {
        rc = make_dir(s, d, dirs[i].name, dirs[i].mode);
    }
    for (unsigned i = 0; rc == 0 && i < PARTS_DIRS; i++) {
        char name[32];
        tarn_sb b;
        tarn_sb_init_fixed(&b, name, sizeof name);
        tarn_sb_fmt(&b, "parts/%02x", i);
        rc = make_dir(s, d, name, 0755);
    }
    if (rc == 0) {
        rc = sync_below(s, d, "parts");
    }
    return rc == 0 ? sync_below(s, d, "") : rc;
}

/*
 * Does the drive take O_DIRECT, page by page? Tried on the lock file, which is ours now and stays empty. Where it does not
 * (some file systems), everything is written through the page cache.
 */
static bool direct_works(tarn_store *s, const obj_drive *d)
{
    char path[TARN_PATH_BYTES_MAX];
    tarn_file *f = NULL;
    bool works = false;
    uint8_t *page = tarn_aligned_alloc(OBJ_PAGE_BYTES, OBJ_PAGE_BYTES);
    if (page && s->fs->real && obj_path(d, "lock", path) && tarn_file_open_sync(s->fs, path, O_RDWR | O_DIRECT | O_CLOEXEC, 0, &f) == 0) {
        memset(page, 0, OBJ_PAGE_BYTES);
        works = tarn_file_pwrite_sync(f, page, OBJ_PAGE_BYTES, 0) == OBJ_PAGE_BYTES;
        works = s->fs->truncate(s->fs, tarn_file_handle(f), 0) == 0 && works;
    }
    tarn_file_unref(f);
    tarn_free(page);
    return works;
}

/* Negative errno; -EWOULDBLOCK when another process has it. */
static int drive_lock(tarn_store *s, obj_drive *d)
{
    char path[TARN_PATH_BYTES_MAX];
    if (!obj_path(d, "lock", path)) {
        return -ENAMETOOLONG;
    }
    int rc = make_dir(s, d, "", 0755);
    if (rc == 0) {
        rc = tarn_file_open_sync(s->fs, path, O_RDWR | O_CREAT | O_CLOEXEC, 0644, &d->lock);
    }
    if (rc == 0) {
        rc = s->fs->lock(s->fs, tarn_file_handle(d->lock));
        if (rc < 0) {
            tarn_file_unref(d->lock);
            d->lock = NULL;
        }
    }
    d->direct = rc == 0 && direct_works(s, d);
    return rc;
}

/* ------------------------------------------------------------------ opening all of them */
typedef struct opening {
    tarn_store *s;
    const tarn_store_options *opt;
    tarn_arena *arena;
    tarn_str *reason;
    inspection in[OBJ_DRIVES_MAX];
    bool known;      /* a deployment was found: rec is of it */
    bool unfinished; /* it was: no record that was read says that its formatting ended */
    bool fresh;      /* a new one, or one whose formatting was interrupted, and every drive can be had */
    format_record rec;
} opening;

static tarn_err refuse(opening *o, tarn_err err, const char *fmt, ...) TARN_PRINTF(3, 4);
static tarn_err refuse(opening *o, tarn_err err, const char *fmt, ...)
{
    char mem[2 * OBJ_REASON_BYTES_MAX];
    va_list ap;
    va_start(ap, fmt);
    tarn_str text = tarn_arena_str(o->arena, tarn_str_vfmt(mem, sizeof mem, "drives refused", fmt, ap));
    va_end(ap);
    *o->reason = text.p ? text : TARN_STR("drives refused");
    return err;
}

static void drive_out(opening *o, obj_drive *d, tarn_drive_state state, const char *fmt, ...) TARN_PRINTF(4, 5);
static void drive_out(opening *o, obj_drive *d, tarn_drive_state state, const char *fmt, ...)
{
    char mem[OBJ_REASON_BYTES_MAX];
    va_list ap;
    va_start(ap, fmt);
    tarn_str text = tarn_str_vfmt(mem, sizeof mem, "drive refused", fmt, ap);
    va_end(ap);
    obj_drive_set(o->s, d, state, text.p);
    tarn_log(TARN_LOG_WARN, "drive not used", "drive", d->path, "reason", text.p, NULL);
}

/* The deployment that most of the drives belong to. */
static void find_deployment(opening *o)
{
    size_t best = 0, blank = 0;
    for (size_t i = 0; i < o->s->drives_n; i++) {
        size_t same = 0;
        blank += o->in[i].what == SEEN_BLANK || o->in[i].what == SEEN_MISSING ? 1 : 0;
        for (size_t j = 0; o->in[i].what == SEEN_FORMATTED && j < o->s->drives_n; j++) {
            same += o->in[j].what == SEEN_FORMATTED && memcmp(o->in[i].rec.deployment, o->in[j].rec.deployment, 16) == 0 ? 1 : 0;
        }
        if (same > best) {
            best = same;
            o->rec = o->in[i].rec;
            o->known = true;
        }
    }
    o->unfinished = o->known;
    for (size_t i = 0; i < o->s->drives_n; i++) {
        o->unfinished = o->unfinished && (o->in[i].what != SEEN_FORMATTED || o->in[i].rec.state == FORMAT_FRESH);
    }
    o->fresh = !o->known || (o->unfinished && best + blank == o->s->drives_n);
}

static size_t choose_set_drives(size_t drives_n)
{
    size_t n = drives_n < TARN_SET_DRIVES_MAX ? drives_n : TARN_SET_DRIVES_MAX;
    while (drives_n % n != 0) {
        n--;
    }
    return n;
}

static tarn_err choose_geometry(opening *o)
{
    tarn_store *s = o->s;
    size_t n = o->opt->set_drives;
    if (o->known && o->rec.drives_n != s->drives_n) {
        return refuse(
            o, TARN_E_INVALID,
            "these drives belong to a deployment of %u drives, but %zu were given: name all of them, in the order of the first start",
            o->rec.drives_n, s->drives_n);
    }
    if (n == 0) {
        n = o->known ? o->rec.set_drives : choose_set_drives(s->drives_n);
    }
    if (o->known && o->rec.set_drives != n) {
        return refuse(o, TARN_E_INVALID, "this deployment was formatted with sets of %u drives, not %zu", o->rec.set_drives, n);
    }
    if (n < 1 || n > TARN_SET_DRIVES_MAX || s->drives_n % n != 0 || s->drives_n / n > TARN_SETS_MAX) {
        return refuse(o, TARN_E_INVALID, "%zu drives can't be divided into sets of %zu (1 to %d drives a set, at most %d sets)",
                      s->drives_n, n, TARN_SET_DRIVES_MAX, TARN_SETS_MAX);
    }
    s->n = (unsigned)n;
    s->sets = (unsigned)(s->drives_n / n);
    for (size_t i = 0; i < s->drives_n; i++) {
        s->drives[i].set = (unsigned)(i / n);
        s->drives[i].position = (unsigned)(i % n);
    }
    return TARN_OK;
}

/* It may be the one that tells of a deployment that exists. */
static tarn_err refuse_unreadable(opening *o, size_t i)
{
    return refuse(o, TARN_E_IO,
                  "drive %s can't be read: %s; so it is not known whether there is a deployment already, and nothing was changed. Check it "
                  "(dmesg, SMART) and start again; if it never held anything, give an empty folder in its place",
                  o->s->drives[i].path, strerror(o->in[i].error));
}

/* A new deployment wants every drive blank. */
static tarn_err check_blank(opening *o)
{
    for (size_t i = 0; i < o->s->drives_n; i++) {
        if (o->in[i].what == SEEN_OCCUPIED) {
            return refuse(o, TARN_E_INVALID, "drive %s is not empty and holds no tarn deployment: give an empty folder or another path",
                          o->s->drives[i].path);
        }
        if (o->in[i].what == SEEN_UNREADABLE) {
            return refuse_unreadable(o, i);
        }
    }
    return TARN_OK;
}

/*
 * All records that could be read say FRESH, and not every drive is FRESH or blank. Was there never more than a formatting that was
 * interrupted? Data is acknowledged only when a write quorum has finished formatting: where so many drives of each set say FRESH
 * as are enough to read, there was none, and what the others hold does not matter. Else it is not known.
 */
static tarn_err check_interrupted(opening *o)
{
    tarn_store *s = o->s;
    bool proven = true;
    for (unsigned set = 0; set < s->sets; set++) {
        unsigned fresh = 0;
        for (unsigned i = 0; i < s->n; i++) {
            const inspection *in = &o->in[obj_drive_at(s, set, i) - s->drives];
            fresh += in->what == SEEN_FORMATTED && memcmp(in->rec.deployment, o->rec.deployment, 16) == 0 && in->rec.set == set &&
                             in->rec.position == i
                         ? 1
                         : 0;
        }
        proven = proven && fresh >= s->k;
    }
    return proven ? TARN_OK : check_blank(o);
}

static tarn_err check_new(opening *o)
{
    tarn_store *s = o->s;
    tarn_err err = check_blank(o);
    for (size_t i = 0; !err && i < s->drives_n; i++) {
        const obj_drive *d = &s->drives[i];
        int rc = o->in[i].what == SEEN_MISSING ? mkdir_parents(s->fs, d->path) : 0;
        if (rc < 0) {
            return refuse(o, tarn_err_from_errno(-rc), "drive %s can't be created: %s", d->path, strerror(-rc));
        }
    }
    return err;
}

static tarn_err lock_drive(opening *o, obj_drive *d, bool must)
{
    int rc = drive_lock(o->s, d);
    if (rc == 0) {
        return TARN_OK;
    }
    if (rc == -EWOULDBLOCK) {
        return refuse(o, TARN_E_CONFLICT, "drive %s is in use by another tarn process (or was named twice): stop that one first", d->path);
    }
    if (must) {
        return refuse(o, tarn_err_from_errno(-rc), "drive %s can't be written: %s", d->path, strerror(-rc));
    }
    if (rc == -EROFS || rc == -EACCES || rc == -EPERM) {
        drive_out(o, d, TARN_DRIVE_READ_ONLY, "can't be written: %s; remount it writable or change its owner", strerror(-rc));
    } else {
        drive_out(o, d, TARN_DRIVE_FAILED, "can't be locked: %s", strerror(-rc));
    }
    return TARN_OK;
}

static int drive_format(tarn_store *s, obj_drive *d, format_state state)
{
    format_record rec = {
        .drives_n = (uint32_t)s->drives_n, .set_drives = s->n, .set = d->set, .position = d->position, .state = (uint8_t)state};
    memcpy(rec.deployment, s->deployment_raw, 16);
    tarn_random(rec.drive, sizeof rec.drive);
    memcpy(d->uuid, rec.drive, 16);
    int rc = record_write(s, d, &rec);
    if (rc == 0) {
        rc = -make_dirs(s, d);
    }
    if (rc == 0) {
        rc = -s->fs->sync_dir(s->fs, d->path);
    }
    return rc;
}

static tarn_err format_new(opening *o)
{
    tarn_store *s = o->s;
    tarn_err err = check_new(o);
    for (size_t i = 0; !err && i < s->drives_n; i++) {
        err = lock_drive(o, &s->drives[i], true);
    }
    for (size_t i = 0; !err && i < s->drives_n; i++) {
        obj_drive *d = &s->drives[i];
        int rc = drive_format(s, d, FORMAT_FRESH);
        if (rc != 0) {
            return refuse(o, tarn_err_from_errno(rc), "drive %s can't be formatted: %s", d->path, strerror(rc));
        }
        d->unfinished = true;
        obj_drive_set(s, d, TARN_DRIVE_OK, "");
    }
    return err;
}

static tarn_err adopt_formatted(opening *o, size_t i)
{
    obj_drive *d = &o->s->drives[i];
    const format_record *rec = &o->in[i].rec;
    if (memcmp(rec->deployment, o->rec.deployment, 16) != 0) {
        drive_out(o, d, TARN_DRIVE_FOREIGN, "belongs to another deployment: give the right drive, or empty this one to use it here");
        return TARN_OK;
    }
    if (rec->set != d->set || rec->position != d->position) {
        drive_out(o, d, TARN_DRIVE_MISPLACED, "was named as drive %zu but is drive %zu: name the drives in their first order", i + 1,
                  (size_t)rec->set * o->s->n + rec->position + 1);
        return TARN_OK;
    }
    memcpy(d->uuid, rec->drive, 16);
    d->unfinished = rec->state == FORMAT_FRESH;
    d->filling = rec->state == FORMAT_FILLING || rec->state == FORMAT_AWAY;
    obj_drive_set(o->s, d, d->filling ? TARN_DRIVE_NEW : TARN_DRIVE_OK,
                  rec->state == FORMAT_FILLING ? "replaced; being filled from the other drives"
                  : d->filling                 ? "was away; being filled from the other drives"
                                               : "");
    tarn_err err = lock_drive(o, d, false);
    if (!err && obj_drive_writable(d)) {
        int rc = make_dirs(o->s, d);
        if (rc < 0) {
            drive_out(o, d, rc == -EROFS || rc == -EACCES ? TARN_DRIVE_READ_ONLY : TARN_DRIVE_FAILED, "folders can't be made: %s",
                      strerror(-rc));
        }
    }
    return err;
}

static tarn_err adopt_blank(opening *o, size_t i)
{
    obj_drive *d = &o->s->drives[i];
    obj_drive_set(o->s, d, TARN_DRIVE_NEW, "replaced; being filled from the other drives");
    tarn_err err = lock_drive(o, d, false);
    if (err || !obj_drive_writable(d)) {
        return err;
    }
    int rc = drive_format(o->s, d, FORMAT_FILLING);
    if (rc != 0) {
        drive_out(o, d, TARN_DRIVE_FAILED, "can't be formatted: %s", strerror(rc));
        return TARN_OK;
    }
    d->filling = true;
    tarn_log(TARN_LOG_INFO, "blank drive formatted", "drive", d->path, NULL);
    return TARN_OK;
}

static tarn_err adopt(opening *o)
{
    tarn_store *s = o->s;
    tarn_err err = TARN_OK;
    for (size_t i = 0; !err && i < s->drives_n; i++) {
        obj_drive *d = &s->drives[i];
        switch (o->in[i].what) {
        case SEEN_MISSING:
            drive_out(o, d, TARN_DRIVE_MISSING, "the path does not exist: mount the drive, or give an empty folder in its place");
            break;
        case SEEN_OCCUPIED:
            drive_out(o, d, TARN_DRIVE_FOREIGN,
                      "is not empty and carries no identity of this deployment: give the right drive or an empty folder");
            break;
        case SEEN_UNREADABLE:
            drive_out(o, d, TARN_DRIVE_FAILED, "can't be read: %s", strerror(o->in[i].error));
            break;
        case SEEN_BLANK:
            err = adopt_blank(o, i);
            break;
        case SEEN_FORMATTED:
            err = adopt_formatted(o, i);
            break;
        }
    }
    return err;
}

/* Every set must be readable from drives that have been filled. One that was only away has nearly everything, and counts. */
static tarn_err check_quorum(opening *o)
{
    tarn_store *s = o->s;
    for (unsigned set = 0; set < s->sets; set++) {
        unsigned good = 0;
        const obj_drive *bad = NULL;
        for (unsigned i = 0; i < s->n; i++) {
            const obj_drive *d = obj_drive_at(s, set, i);
            const inspection *in = &o->in[d - s->drives];
            bool away = in->what == SEEN_FORMATTED && in->rec.state == FORMAT_AWAY;
            bool ok = obj_drive_readable(d) && (!d->filling || away);
            good += ok ? 1 : 0;
            bad = ok || bad ? bad : d;
        }
        if (good < s->k) {
            return refuse(o, TARN_E_QUORUM_READ, "set %u has %u usable drives of %u and needs %u; first of the others: %s: %s", set + 1,
                          good, s->n, s->k, bad->path, atomic_load(&bad->reason));
        }
    }
    return TARN_OK;
}

static void uuid_text(const uint8_t raw[16], char out[37])
{
    tarn_sb b;
    tarn_sb_init_fixed(&b, out, 37);
    static const size_t groups[] = {4, 2, 2, 2, 6};
    size_t at = 0;
    for (size_t i = 0; i < TARN_ARRAY_LEN(groups); i++) {
        if (i > 0) {
            tarn_sb_char(&b, '-');
        }
        tarn_sb_hex(&b, raw + at, groups[i]);
        at += groups[i];
    }
}

tarn_err obj_drives_open(tarn_store *s, const tarn_store_options *opt, tarn_arena *a, tarn_str *reason)
{
    opening *o = tarn_calloc(1, sizeof *o);
    if (!o) {
        return TARN_E_NO_MEMORY;
    }
    *o = (opening){.s = s, .opt = opt, .arena = a, .reason = reason};
    for (size_t i = 0; i < s->drives_n; i++) {
        o->in[i] = drive_inspect(s, &s->drives[i]);
    }
    find_deployment(o);
    tarn_err err = choose_geometry(o);
    if (!err) {
        if (o->known) {
            memcpy(s->deployment_raw, o->rec.deployment, 16);
        } else {
            tarn_random(s->deployment_raw, 16);
            s->deployment_raw[6] = (uint8_t)((s->deployment_raw[6] & 0x0f) | 0x40); /* a version 4 uuid */
            s->deployment_raw[8] = (uint8_t)((s->deployment_raw[8] & 0x3f) | 0x80);
        }
        uuid_text(s->deployment_raw, s->deployment);
        s->m = tarn_ec_parity_for(s->n);
        s->k = s->n - s->m;
        s->write_quorum = s->k + (s->k == s->m ? 1 : 0);
        s->unfinished = o->fresh || o->unfinished;
        err = o->unfinished && !o->fresh ? check_interrupted(o) : TARN_OK;
    }
    if (!err) {
        err = o->fresh ? format_new(o) : adopt(o);
    }
    if (!err) {
        err = check_quorum(o);
    }
    obj_drives_gauge(s);
    tarn_free(o);
    return err;
}

/* ------------------------------------------------------------------ later changes of the record */
static tarn_err record_state(tarn_store *s, obj_drive *d, format_state state)
{
    format_record rec = {
        .drives_n = (uint32_t)s->drives_n, .set_drives = s->n, .set = d->set, .position = d->position, .state = (uint8_t)state};
    memcpy(rec.deployment, s->deployment_raw, 16);
    memcpy(rec.drive, d->uuid, 16);
    int rc = record_write(s, d, &rec);
    if (rc != 0) {
        obj_drive_error(s, d, "writing the identity record", rc);
        return tarn_err_from_errno(rc);
    }
    return TARN_OK;
}

tarn_err obj_drives_formatted(tarn_store *s)
{
    for (size_t i = 0; i < s->drives_n; i++) {
        obj_drive *d = &s->drives[i];
        if (!d->unfinished || !obj_drive_writable(d) || d->filling) {
            continue;
        }
        tarn_err err = record_state(s, d, FORMAT_READY);
        if (err) {
            return err;
        }
        d->unfinished = false;
    }
    s->unfinished = false;
    return TARN_OK;
}

bool obj_drives_fresh(const tarn_store *s)
{
    return s->unfinished;
}

tarn_err obj_drive_filled(tarn_store *s, obj_drive *d)
{
    tarn_err err = record_state(s, d, FORMAT_READY);
    if (!err) {
        d->filling = false;
        obj_drive_set(s, d, TARN_DRIVE_OK, "");
        tarn_log(TARN_LOG_INFO, "drive filled", "drive", d->path, NULL);
    }
    return err;
}

/* ------------------------------------------------------------------ drives that go and come while the store is open */
#define FILLING_REASON "being filled from the other drives"

tarn_err obj_drive_stale(tarn_store *s, obj_drive *d)
{
    tarn_err err = record_state(s, d, FORMAT_AWAY);
    if (!err) {
        d->filling = true;
        obj_drive_set(s, d, TARN_DRIVE_NEW, "was away; " FILLING_REASON);
        tarn_log(TARN_LOG_WARN, "drive had been away", "drive", d->path, "effect", "it is checked and filled", NULL);
    }
    return err;
}

obj_look obj_drive_look(tarn_store *s, const obj_drive *d)
{
    inspection in = drive_inspect(s, d);
    if (in.what == SEEN_BLANK) {
        return OBJ_LOOK_BLANK;
    }
    if (in.what != SEEN_FORMATTED || memcmp(in.rec.deployment, s->deployment_raw, 16) != 0 || in.rec.set != d->set ||
        in.rec.position != d->position) {
        return OBJ_LOOK_NONE;
    }
    return memcmp(in.rec.drive, d->uuid, 16) == 0 ? OBJ_LOOK_SAME : OBJ_LOOK_OURS;
}

static int prepare(tarn_store *s, obj_drive *d, obj_look look)
{
    tarn_file_unref(d->lock); /* of what was there before */
    d->lock = NULL;
    int rc = drive_lock(s, d);
    if (rc == 0 && look == OBJ_LOOK_BLANK) {
        return -drive_format(s, d, FORMAT_FILLING);
    }
    inspection in = drive_inspect(s, d);
    if (rc == 0 && in.what == SEEN_FORMATTED) {
        memcpy(d->uuid, in.rec.drive, 16);
        if (in.rec.state != FORMAT_FILLING) {
            in.rec.state = FORMAT_AWAY;
        }
        rc = -record_write(s, d, &in.rec);
    }
    return rc == 0 ? make_dirs(s, d) : rc;
}

/* Its copies of the database are written to files that nobody will find again. */
void obj_drive_drop_copies(tarn_store *s, const obj_drive *d)
{
    for (size_t i = 0; i < tarn_meta_copies_n(s->meta); i++) {
        if (&s->drives[s->meta_drives[i]] == d && tarn_meta_copy_drop(s->meta, i) != TARN_OK) {
            tarn_log(TARN_LOG_ERROR, "too few copies of the metadata are left", NULL);
        }
    }
}

tarn_err obj_drive_rejoin(tarn_store *s, obj_drive *d, obj_look look)
{
    char path[TARN_PATH_BYTES_MAX];
    obj_drive_drop_copies(s, d);
    size_t copy = tarn_meta_copies_n(s->meta);
    if (copy >= OBJ_DRIVES_MAX || !obj_path(d, "meta", path)) {
        return TARN_E_LIMIT;
    }
    int rc = prepare(s, d, look);
    if (rc < 0) {
        return tarn_err_from_errno(-rc);
    }
    s->meta_drives[copy] = (size_t)(d - s->drives);
    tarn_err err = tarn_meta_copy_join(s->meta, path);
    if (err) {
        return err;
    }
    d->filling = true;
    d->vanished = false;
    atomic_store(&d->joined, atomic_fetch_add(&s->epoch, 1) + 1);
    obj_drive_set(s, d, TARN_DRIVE_NEW, look == OBJ_LOOK_BLANK ? "replaced; " FILLING_REASON : "was away; " FILLING_REASON);
    tarn_log(TARN_LOG_INFO, "drive used again", "drive", d->path, "state", look == OBJ_LOOK_BLANK ? "blank" : "was away", NULL);
    return TARN_OK;
}

bool obj_drive_lacks_copy(tarn_store *s, const obj_drive *d)
{
    if (!obj_drive_writable(d)) {
        return false;
    }
    for (size_t i = 0; i < tarn_meta_copies_n(s->meta); i++) {
        if (&s->drives[s->meta_drives[i]] == d && tarn_meta_copy_good(s->meta, i)) {
            return false;
        }
    }
    return true;
}

tarn_err obj_drive_copy_again(tarn_store *s, obj_drive *d)
{
    char path[TARN_PATH_BYTES_MAX];
    tarn_fs_space space;
    if (!obj_drive_lacks_copy(s, d)) {
        return TARN_OK;
    }
    size_t copy = tarn_meta_copies_n(s->meta);
    if (copy >= OBJ_DRIVES_MAX || !obj_path(d, "meta", path)) {
        return TARN_E_LIMIT;
    }
    int rc = s->fs->space(s->fs, d->path, &space);
    if (rc < 0) {
        return tarn_err_from_errno(-rc);
    }
    if (space.free_bytes < OBJ_COPY_ROOM_BYTES_MIN) {
        return TARN_E_DISK_FULL;
    }
    s->meta_drives[copy] = (size_t)(d - s->drives);
    return tarn_meta_copy_join(s->meta, path);
}

void obj_drives_close(tarn_store *s)
{
    for (size_t i = 0; i < s->drives_n; i++) {
        tarn_file_unref(s->drives[i].lock);
        tarn_free(s->drives[i].path);
    }
    tarn_free(s->drives);
    for (tarn_link *l; (l = tarn_list_pop(&s->reasons)) != NULL;) {
        tarn_free(TARN_CONTAINER_OF(l, reason_text, link));
    }
}
