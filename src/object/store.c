/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The store: opening and closing, data ids, pins, secrets, and what others may ask about it.
 *
 * Data ids come from the database's one order of numbers, OBJ_IDS_RESERVE at a time, so that an upload needs no
 * transaction for its id. What a crash leaves of a range is never used.
 *
 * Pins say that the data under an id is being read or written now: the garbage collector leaves it alone. A reader reads
 * the row first and pins then; between the two the row may go, but its data stays for OBJ_GARBAGE_MIN_AGE_MS at least.
 *
 * Invariants:
 *  1. An id is handed out once.
 *  2. A pin's count is above zero while it is in the table.
 * Threads: any; store->lock guards the ids and the lists, each shard of the pins has a lock of its own.
 */
#include "upkeep.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

#define PIN_SLOTS_FIRST 64
#define SECRET_BYTES_MAX 4096
#define META_CACHE_BYTES (16ull << 20)

static _Atomic uint64_t serials;

/* ------------------------------------------------------------------ ids */
typedef struct id_range {
    uint64_t first, n;
} id_range;

static tarn_err reserve_fn(tarn_meta_tx *tx, void *arg)
{
    id_range *r = arg;
    r->first = tarn_meta_tx_seq(tx);
    r->n = 1;
    while (r->n < OBJ_IDS_RESERVE && tarn_meta_tx_seq(tx) == r->first + r->n) {
        r->n++;
    }
    return TARN_OK;
}

static bool id_take(tarn_store *s, uint64_t *out)
{
    bool ok = false;
    pthread_mutex_lock(&s->lock);
    if (s->id_next < s->id_end) {
        *out = s->id_next++;
        ok = true;
    }
    pthread_mutex_unlock(&s->lock);
    return ok;
}

tarn_err obj_id_next(tarn_store *s, uint64_t *out)
{
    while (!id_take(s, out)) {
        id_range r;
        tarn_err err = tarn_meta_commit(s->meta, reserve_fn, &r);
        if (err) {
            return err;
        }
        pthread_mutex_lock(&s->lock);
        if (s->id_next >= s->id_end) { /* else another one was quicker: this range stays unused */
            s->id_next = r.first;
            s->id_end = r.first + r.n;
        }
        pthread_mutex_unlock(&s->lock);
    }
    return TARN_OK;
}

/* ------------------------------------------------------------------ pins: open addressing, linear probing */
static obj_pins *pins_of(tarn_store *s, uint64_t id)
{
    return &s->pins[id % OBJ_PIN_SHARDS];
}

static size_t pin_home(const obj_pins *p, uint64_t id)
{
    return (size_t)((id / OBJ_PIN_SHARDS) * 0x9E3779B97F4A7C15ull >> 32) & (p->cap - 1);
}

/* The id's slot, or the free one where it would go. */
static size_t pin_find(const obj_pins *p, uint64_t id)
{
    size_t i = pin_home(p, id);
    while (p->slots[i].count != 0 && p->slots[i].id != id) {
        i = (i + 1) & (p->cap - 1);
    }
    return i;
}

static bool pins_grow(obj_pins *p)
{
    obj_pins bigger = {.cap = p->cap * 2};
    bigger.slots = tarn_calloc(bigger.cap, sizeof *bigger.slots);
    if (!bigger.slots) {
        return false;
    }
    for (size_t i = 0; i < p->cap; i++) {
        if (p->slots[i].count != 0) {
            bigger.slots[pin_find(&bigger, p->slots[i].id)] = p->slots[i];
        }
    }
    tarn_free(p->slots);
    p->slots = bigger.slots;
    p->cap = bigger.cap;
    return true;
}

tarn_err obj_pin_add(tarn_store *s, uint64_t data_id)
{
    obj_pins *p = pins_of(s, data_id);
    tarn_err err = TARN_OK;
    pthread_mutex_lock(&p->lock);
    if (p->n + 1 > p->cap / 2 && !pins_grow(p)) {
        err = TARN_E_NO_MEMORY;
    } else {
        size_t i = pin_find(p, data_id);
        p->n += p->slots[i].count == 0 ? 1 : 0;
        p->slots[i].id = data_id;
        p->slots[i].count++;
    }
    pthread_mutex_unlock(&p->lock);
    return err;
}

/* Closes the gap at i: entries behind it that may not be found any more move up. */
static void pin_remove(obj_pins *p, size_t i)
{
    size_t j = i;
    p->n--;
    for (;;) {
        p->slots[i].count = 0;
        size_t home;
        do {
            j = (j + 1) & (p->cap - 1);
            if (p->slots[j].count == 0) {
                return;
            }
            home = pin_home(p, p->slots[j].id);
        } while (i <= j ? (i < home && home <= j) : (i < home || home <= j));
        p->slots[i] = p->slots[j];
        i = j;
    }
}

void obj_pin_drop(tarn_store *s, uint64_t data_id)
{
    obj_pins *p = pins_of(s, data_id);
    pthread_mutex_lock(&p->lock);
    size_t i = pin_find(p, data_id);
    TARN_ASSERT(p->slots[i].count > 0);
    if (p->slots[i].count > 1) {
        p->slots[i].count--;
    } else {
        pin_remove(p, i);
    }
    pthread_mutex_unlock(&p->lock);
}

bool obj_pinned(tarn_store *s, uint64_t data_id)
{
    obj_pins *p = pins_of(s, data_id);
    pthread_mutex_lock(&p->lock);
    bool pinned = p->slots[pin_find(p, data_id)].count > 0;
    pthread_mutex_unlock(&p->lock);
    return pinned;
}

tarn_err obj_pins_init(tarn_store *s)
{
    for (size_t i = 0; i < OBJ_PIN_SHARDS; i++) {
        obj_pins *p = &s->pins[i];
        p->slots = tarn_calloc(PIN_SLOTS_FIRST, sizeof *p->slots);
        p->cap = PIN_SLOTS_FIRST;
        if (!p->slots) {
            return TARN_E_NO_MEMORY;
        }
        (void)pthread_mutex_init(&p->lock, NULL);
    }
    return TARN_OK;
}

void obj_pins_free(tarn_store *s)
{
    for (size_t i = 0; i < OBJ_PIN_SHARDS; i++) {
        if (s->pins[i].slots) {
            (void)pthread_mutex_destroy(&s->pins[i].lock);
            tarn_free(s->pins[i].slots);
        }
    }
}

/* ------------------------------------------------------------------ opening */
typedef struct meta_dirs {
    const char *dirs[OBJ_DRIVES_MAX];
    char paths[OBJ_DRIVES_MAX][TARN_PATH_BYTES_MAX];
    size_t n;
} meta_dirs;

static void on_meta_drive_failed(void *ctx, size_t dir_index, int errno_value)
{
    tarn_store *s = ctx;
    TARN_ASSERT(dir_index < OBJ_DRIVES_MAX); /* copies that joined have numbers behind those of the start */
    obj_drive_error(s, &s->drives[s->meta_drives[dir_index]], "writing the metadata", errno_value);
}

/* Any drives that are enough to start must include one that has every committed transaction: R + W > N. */
static void meta_options(tarn_store *s, bool inline_committer, meta_dirs *d, tarn_meta_options *out)
{
    for (size_t i = 0; i < s->drives_n; i++) {
        if (obj_drive_writable(&s->drives[i]) && obj_path(&s->drives[i], "meta", d->paths[d->n])) {
            d->dirs[d->n] = d->paths[d->n];
            s->meta_drives[d->n] = i;
            d->n++;
        }
    }
    *out = (tarn_meta_options){.fs = s->fs,
                               .dirs = d->dirs,
                               .dirs_n = d->n,
                               .write_quorum = (size_t)s->sets * s->m + 1,
                               .cache_bytes = META_CACHE_BYTES,
                               .must_exist = !obj_drives_fresh(s),
                               .inline_committer = inline_committer,
                               .on_drive_failed = on_meta_drive_failed,
                               .ctx = s};
}

tarn_err obj_store_meta(tarn_store *s, bool inline_committer, const char *restore, tarn_fs *restore_fs)
{
    meta_dirs *d = tarn_calloc(1, sizeof *d);
    tarn_meta_options mo;
    if (!d) {
        return TARN_E_NO_MEMORY;
    }
    meta_options(s, inline_committer, d, &mo);
    tarn_err err = d->n == 0 ? TARN_E_QUORUM_READ : TARN_OK;
    if (!err && restore) {
        mo.unfinished = true;
        err = tarn_meta_restore(&mo, restore_fs, restore);
    }
    if (!err) {
        err = tarn_meta_open(&mo, &s->meta);
    }
    for (size_t i = 0; !err && i < d->n; i++) { /* a drive that missed commits missed data too */
        obj_drive *drive = &s->drives[s->meta_drives[i]];
        if (tarn_meta_copy_behind(s->meta, i) && !drive->filling) {
            (void)obj_drive_stale(s, drive);
        }
    }
    tarn_free(d);
    return err;
}

static tarn_err copy_paths(tarn_store *s, const tarn_store_options *opt)
{
    s->drives = tarn_calloc(opt->drives_n, sizeof *s->drives);
    if (!s->drives) {
        return TARN_E_NO_MEMORY;
    }
    s->drives_n = opt->drives_n;
    for (size_t i = 0; i < opt->drives_n; i++) {
        tarn_str p = tarn_str_of(opt->drives[i]);
        while (p.n > 1 && p.p[p.n - 1] == '/') {
            p.n--;
        }
        s->drives[i].path = tarn_strdup(p);
        atomic_store(&s->drives[i].state, TARN_DRIVE_MISSING);
        atomic_store(&s->drives[i].reason, "");
        if (!s->drives[i].path) {
            return TARN_E_NO_MEMORY;
        }
    }
    return TARN_OK;
}

static void derive(tarn_store *s, const tarn_store_options *opt)
{
    uint8_t sum[TARN_SHA256_BYTES];
    tarn_sha256(s->deployment_raw, sizeof s->deployment_raw, sum);
    memcpy(s->sip_key, sum, sizeof s->sip_key);
    s->shard_max = obj_shard_len(TARN_BLOCK_BYTES, s->k);
    s->inline_max = opt->inline_bytes_max ? opt->inline_bytes_max : OBJ_INLINE_DEFAULT;
    s->segment_object_max = opt->segment_object_bytes_max ? opt->segment_object_bytes_max : OBJ_SEGMENT_OBJECT_DEFAULT;
    if (s->inline_max > TARN_INLINE_BYTES_MAX) {
        s->inline_max = TARN_INLINE_BYTES_MAX;
    }
    if (s->segment_object_max > OBJ_SEGMENT_BYTES / 4) {
        s->segment_object_max = OBJ_SEGMENT_BYTES / 4;
    }
    s->segment_bytes = OBJ_SEGMENT_BYTES;
    s->compact_dead_min = OBJ_COMPACT_DEAD_BYTES_MIN;
    s->backup_interval_s = opt->backup_interval_s;
}

static tarn_err open_drives(tarn_store *s, const tarn_store_options *opt, tarn_arena *arena, tarn_str *reason)
{
    tarn_err err = copy_paths(s, opt);
    if (!err) {
        err = obj_pins_init(s);
    }
    if (!err) {
        err = obj_drives_open(s, opt, arena, reason);
    }
    if (err) {
        return err;
    }
    derive(s, opt);
    return tarn_ec_new(s->k, s->m, &s->ec);
}

static tarn_err open_steps(tarn_store *s, const tarn_store_options *opt, tarn_arena *arena, tarn_str *reason)
{
    tarn_err err = obj_store_meta(s, opt->inline_committer, NULL, NULL);
    if (err) {
        *reason =
            err == TARN_E_NOT_FOUND
                ? TARN_STR("no drive has its copy of the metadata any more: \"tarn admin rebuild-index\" makes it again from the data")
            : err == TARN_E_UNFINISHED
                ? TARN_STR("the index was being made again, and that did not come to its end: run \"tarn admin rebuild-index\" again, "
                           "or \"tarn admin restore\" if it was that; both begin anew")
                : tarn_arena_fmt(arena, "the metadata can't be opened: %s \"tarn admin rebuild-index\" helps where no copy is good",
                                 tarn_err_get(err)->message);
        return err;
    }
    err = obj_drives_formatted(s);
    return err ? err : obj_tasks_new(s, opt);
}

tarn_err obj_store_open(const tarn_store_options *opt, bool with_meta, tarn_store **out, tarn_arena *arena, tarn_str *reason)
{
    *reason = TARN_STR("");
    if (opt->drives_n < 1 || opt->drives_n > OBJ_DRIVES_MAX) {
        *reason = tarn_arena_fmt(arena, "1 to %d drives can be given, not %zu", OBJ_DRIVES_MAX, opt->drives_n);
        return TARN_E_INVALID;
    }
    tarn_store *s = tarn_calloc(1, sizeof *s);
    if (!s) {
        return TARN_E_NO_MEMORY;
    }
    s->fs = opt->fs;
    s->serial = atomic_fetch_add(&serials, 1) + 1;
    (void)pthread_mutex_init(&s->lock, NULL);
    tarn_list_init(&s->contexts);
    tarn_list_init(&s->segments);
    tarn_list_init(&s->reasons);
    tarn_list_init(&s->repair_wishes);
    tarn_err err = open_drives(s, opt, arena, reason);
    if (!err && with_meta) {
        err = open_steps(s, opt, arena, reason);
    }
    if (err) {
        if (reason->n == 0) {
            *reason = tarn_str_of(tarn_err_get(err)->message);
        }
        tarn_store_close(s);
        return err;
    }
    *out = s;
    return TARN_OK;
}

tarn_err tarn_store_open(const tarn_store_options *opt, tarn_store **out, tarn_arena *arena, tarn_str *reason)
{
    return obj_store_open(opt, true, out, arena, reason);
}

void tarn_store_close(tarn_store *s)
{
    if (!s) {
        return;
    }
    obj_ctx_free_all(s);
    for (tarn_link *l; (l = tarn_list_pop(&s->repair_wishes)) != NULL;) {
        tarn_free(TARN_CONTAINER_OF(l, obj_repair_wish, link));
    }
    tarn_free(s->background);
    obj_tasks_free(s);
    if (s->meta) {
        tarn_meta_close(s->meta);
    }
    tarn_ec_free(s->ec);
    obj_drives_close(s);
    obj_pins_free(s);
    (void)pthread_mutex_destroy(&s->lock);
    tarn_free(s);
}

/* ------------------------------------------------------------------ questions */
tarn_meta *tarn_store_meta(tarn_store *s)
{
    return s->meta;
}

/* All copies that the drive has had: one that joins again is a new one. */
static uint64_t meta_reads_wrong(const tarn_store *s, const obj_drive *d)
{
    uint64_t n = 0;
    for (size_t i = 0; i < tarn_meta_copies_n(s->meta); i++) {
        n += &s->drives[s->meta_drives[i]] == d ? tarn_meta_copy_wrong(s->meta, i) : 0;
    }
    return n;
}

size_t tarn_store_drives(tarn_store *s, tarn_drive_info *out, size_t max)
{
    for (size_t i = 0; i < s->drives_n && i < max; i++) {
        obj_drive *d = &s->drives[i];
        tarn_fs_space space = {0};
        if (obj_drive_readable(d) && s->fs->space(s->fs, d->path, &space) < 0) {
            space = (tarn_fs_space){0};
        }
        out[i] = (tarn_drive_info){.path = d->path,
                                   .state = (tarn_drive_state)atomic_load(&d->state),
                                   .reason = atomic_load(&d->reason),
                                   .set = d->set,
                                   .position = d->position,
                                   .total_bytes = space.total_bytes,
                                   .free_bytes = space.free_bytes,
                                   .slow = obj_drive_slow(d),
                                   .meta_reads_wrong = meta_reads_wrong(s, d)};
    }
    return s->drives_n;
}

void tarn_store_code(const tarn_store *s, unsigned *data, unsigned *parity, unsigned *sets)
{
    *data = s->k;
    *parity = s->m;
    *sets = s->sets;
}

const char *tarn_store_deployment_id(const tarn_store *s)
{
    return s->deployment;
}

bool tarn_store_writable(tarn_store *s)
{
    for (unsigned set = 0; set < s->sets; set++) {
        if (obj_set_writable(s, set) < s->write_quorum) {
            return false;
        }
    }
    return tarn_meta_copies_good(s->meta) >= (size_t)s->sets * s->m + 1;
}

bool tarn_store_readable(tarn_store *s)
{
    for (unsigned set = 0; set < s->sets; set++) {
        unsigned n = 0;
        for (unsigned i = 0; i < s->n; i++) {
            n += obj_drive_readable(obj_drive_at(s, set, i)) ? 1 : 0;
        }
        if (n < s->k) {
            return false;
        }
    }
    return true;
}

/* ------------------------------------------------------------------ secrets: one small file per name and drive */
static bool secret_name_ok(const char *name)
{
    tarn_str n = tarn_str_of(name);
    return n.n > 0 && n.n <= 64 && tarn_str_chr(n, '/') < 0 && name[0] != '.';
}

static bool secret_path(const obj_drive *d, const char *name, char out[TARN_PATH_BYTES_MAX])
{
    char below[128];
    tarn_sb b;
    tarn_sb_init_fixed(&b, below, sizeof below);
    tarn_sb_fmt(&b, "secrets/%s", name);
    return !b.failed && obj_path(d, below, out);
}

/* A secret file: le32 length, the bytes, crc64 over both. */
static bool secret_decode(const char *bytes, size_t n, tarn_arena *a, tarn_str *out)
{
    tarn_rd r = tarn_rd_of((tarn_str){bytes, n});
    uint32_t len = tarn_rd_le32(&r);
    tarn_str value = tarn_rd_bytes(&r, len);
    uint64_t sum = tarn_rd_le64(&r);
    if (r.failed || sum != tarn_crc64(0, bytes, 4 + (size_t)len)) {
        return false;
    }
    tarn_str copy = tarn_arena_str(a, value);
    if (copy.p) {
        *out = copy;
    }
    return copy.p != NULL;
}

tarn_err tarn_store_secret_get(tarn_store *s, const char *name, tarn_arena *a, tarn_str *out)
{
    char path[TARN_PATH_BYTES_MAX], bytes[SECRET_BYTES_MAX + 16];
    bool found = false;
    TARN_ASSERT(secret_name_ok(name));
    for (size_t i = 0; i < s->drives_n && !found; i++) {
        obj_drive *d = &s->drives[i];
        tarn_file *f = NULL;
        if (!obj_drive_readable(d) || !secret_path(d, name, path) || tarn_file_open_sync(s->fs, path, O_RDONLY | O_CLOEXEC, 0, &f) < 0) {
            continue;
        }
        int64_t n = tarn_file_pread_sync(f, bytes, sizeof bytes, 0);
        tarn_file_unref(f);
        found = n > 0 && secret_decode(bytes, (size_t)n, a, out);
    }
    tarn_wipe(bytes, sizeof bytes);
    return found ? TARN_OK : TARN_E_NOT_FOUND;
}

static int secret_write(tarn_store *s, obj_drive *d, const char *name, tarn_str packed)
{
    char path[TARN_PATH_BYTES_MAX];
    tarn_file *f = NULL;
    if (!secret_path(d, name, path)) {
        return -ENAMETOOLONG;
    }
    int rc = tarn_file_open_sync(s->fs, path, O_RDWR | O_CREAT | O_CLOEXEC, 0600, &f);
    if (rc == 0) {
        int64_t n = tarn_file_pwrite_sync(f, packed.p, packed.n, 0);
        rc = n < 0 ? (int)n : s->fs->truncate(s->fs, tarn_file_handle(f), packed.n);
    }
    if (rc == 0) {
        rc = s->fs->sync(s->fs, tarn_file_handle(f), false);
    }
    tarn_file_unref(f);
    if (rc == 0 && obj_path(d, "secrets", path)) {
        rc = s->fs->sync_dir(s->fs, path);
    }
    return rc;
}

tarn_err tarn_store_secret_put(tarn_store *s, const char *name, tarn_str value)
{
    char bytes[SECRET_BYTES_MAX + 17];
    tarn_sb b;
    size_t written = 0;
    if (!secret_name_ok(name) || value.n > SECRET_BYTES_MAX) {
        return TARN_E_INVALID_ARGUMENT;
    }
    tarn_sb_init_fixed(&b, bytes, sizeof bytes);
    tarn_sb_le32(&b, (uint32_t)value.n);
    tarn_sb_bytes(&b, value.p, value.n);
    tarn_sb_le64(&b, tarn_crc64(0, bytes, b.n));
    for (size_t i = 0; i < s->drives_n; i++) {
        obj_drive *d = &s->drives[i];
        if (!obj_drive_writable(d)) {
            continue;
        }
        int rc = secret_write(s, d, name, tarn_sb_view(&b));
        if (rc < 0) {
            obj_drive_error(s, d, "writing a secret", -rc);
        } else {
            written++;
        }
    }
    tarn_wipe(bytes, sizeof bytes);
    return written >= (size_t)s->sets * s->m + 1 ? TARN_OK : TARN_E_QUORUM_WRITE;
}
