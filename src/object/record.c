/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Records without the database. A part file opens with a header. A segment is searched for headers page by page (sector by
 * sector, for those that an earlier version wrote); from one the next place follows. A header is believed when its checksum
 * is right and it names this deployment and the very place it was found at; a record is whole when its trailer is right.
 *
 * Invariant: nothing that lies inside a whole record is taken for a header.
 * Memory: one buffer a scan; slices live during the call. Threads: the caller's, nothing parks.
 */
#include "record.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

#define HEADER_FIXED_BYTES 128
#define HEADER_VERSION 1
#define TRAILER_FIXED_BYTES 40
#define CRC_BYTES 8
#define SECTOR_BYTES 512
#define WINDOW_BYTES (1024 * 1024)
#define PARTS_DIRS 64
#define NAMES_MAX (1u << 20)

static const char header_magic[8] = {'T', 'A', 'R', 'N', 'S', 'H', 'R', 'D'};
static const char trailer_magic[8] = {'T', 'A', 'R', 'N', 'T', 'A', 'I', 'L'};

static uint64_t le64_at(const uint8_t *p)
{
    tarn_rd r = tarn_rd_of((tarn_str){(const char *)p, 8});
    return tarn_rd_le64(&r);
}

static uint32_t le32_at(const uint8_t *p)
{
    tarn_rd r = tarn_rd_of((tarn_str){(const char *)p, 4});
    return tarn_rd_le32(&r);
}

/* ------------------------------------------------------------------ headers */
static bool parse_variable(tarn_str v, obj_record_info *i)
{
    tarn_rd r = tarn_rd_of(v);
    i->bucket = tarn_rd_lstr(&r);
    i->key = tarn_rd_lstr(&r);
    i->attrs = tarn_rd_lstr(&r);
    i->tags = tarn_rd_lstr(&r);
    i->etag = tarn_rd_lstr(&r);
    i->tags_n = tarn_rd_le32(&r);
    uint8_t retention = tarn_rd_u8(&r);
    i->retain_until_ms = (int64_t)tarn_rd_le64(&r);
    i->legal_hold = tarn_rd_u8(&r) != 0;
    i->retention = (tarn_retention)retention;
    return !r.failed && r.n == 0 && retention <= TARN_RETENTION_COMPLIANCE && i->key.n > 0 && i->key.n <= TARN_KEY_BYTES_MAX &&
           i->bucket.n > 0 && i->bucket.n <= TARN_BUCKET_NAME_BYTES_MAX;
}

static bool plausible(const obj_record *r)
{
    const obj_blob *b = &r->blob;
    return (b->cls == OBJ_CLASS_SEGMENT || b->cls == OBJ_CLASS_FILE) && b->k >= 1 && b->k + b->m <= TARN_SET_DRIVES_MAX &&
           r->shard < (unsigned)(b->k + b->m) && b->set < TARN_SETS_MAX && b->block_bytes >= OBJ_PAGE_BYTES &&
           b->block_bytes <= TARN_BLOCK_BYTES && b->part <= TARN_PARTS_MAX && b->head_bytes <= OBJ_HEADER_BYTES_MAX && b->blob_id != 0 &&
           (b->size <= TARN_PUT_BYTES_MAX || r->info.size_hint == UINT64_MAX);
}

bool obj_record_parse(const uint8_t *h, size_t n, const uint8_t deployment[16], obj_record *out)
{
    obj_record r = {0};
    if (n < HEADER_FIXED_BYTES + CRC_BYTES || memcmp(h, header_magic, sizeof header_magic) != 0) {
        return false;
    }
    size_t var = le32_at(h + 104), at = HEADER_FIXED_BYTES + var;
    r.blob.head_bytes = le32_at(h + 12);
    if (var > n - HEADER_FIXED_BYTES - CRC_BYTES || r.blob.head_bytes < at + CRC_BYTES || le64_at(h + at) != tarn_crc64(0, h, at) ||
        (h[8] | h[9] << 8) != HEADER_VERSION || memcmp(h + 24, deployment, 16) != 0) {
        return false;
    }
    r.blob.cls = (obj_class)(h[10] | h[11] << 8);
    r.blob.data_id = le64_at(h + 40);
    r.blob.blob_id = le64_at(h + 48);
    r.blob.part = le32_at(h + 56);
    r.shard = h[60];
    r.blob.k = h[61];
    r.blob.m = h[62];
    r.blob.set = h[63];
    r.blob.block_bytes = le32_at(h + 64);
    r.blob.rot = h[68];
    r.info.sum_kind = h[69];
    r.info.bucket_flags = h[70];
    r.info.size_hint = le64_at(h + 72);
    r.info.upload_nonce = le64_at(h + 80);
    r.info.created_ms = (int64_t)le64_at(h + 88);
    r.info.bucket_id = le64_at(h + 96);
    r.blob.segment = le64_at(h + 112);
    r.blob.offset = le64_at(h + 120);
    r.blob.size = r.info.size_hint == UINT64_MAX ? 0 : r.info.size_hint;
    if (!parse_variable((tarn_str){(const char *)h + HEADER_FIXED_BYTES, var}, &r.info) || !plausible(&r)) {
        return false;
    }
    *out = r;
    return true;
}

bool obj_trailer_parse(const uint8_t *p, size_t n, const obj_blob *b, unsigned shard, obj_trailer *out)
{
    if (n < TRAILER_FIXED_BYTES + CRC_BYTES || memcmp(p, trailer_magic, sizeof trailer_magic) != 0 || le64_at(p + 8) != b->blob_id ||
        le32_at(p + 36) != shard) {
        return false;
    }
    uint64_t size = le64_at(p + 16), blocks = le32_at(p + 32), sums_n = blocks * CRC_BYTES;
    if (size == 0 || size > TARN_PUT_BYTES_MAX || blocks != (size + b->block_bytes - 1) / b->block_bytes ||
        sums_n > n - TRAILER_FIXED_BYTES - CRC_BYTES ||
        le64_at(p + TRAILER_FIXED_BYTES + sums_n) != tarn_crc64(0, p, TRAILER_FIXED_BYTES + (size_t)sums_n)) {
        return false;
    }
    *out =
        (obj_trailer){.size = size, .mtime_ms = (int64_t)le64_at(p + 24), .sums = {(const char *)p + TRAILER_FIXED_BYTES, (size_t)sums_n}};
    return true;
}

/* ------------------------------------------------------------------ one record */
/* All n bytes, or false; *failed: it is not known what is there. */
static bool get(tarn_file *f, void *mem, size_t n, uint64_t off, bool *failed)
{
    int64_t got = mem ? tarn_file_pread_sync(f, mem, n, off) : -ENOMEM;
    *failed |= got < 0;
    return got == (int64_t)n;
}

/* The header at off, in the arena. */
static bool header_read(tarn_store *s, tarn_file *f, uint64_t off, tarn_arena *a, obj_record *out, bool *failed)
{
    uint8_t fixed[HEADER_FIXED_BYTES];
    if (!get(f, fixed, sizeof fixed, off, failed) || memcmp(fixed, header_magic, sizeof header_magic) != 0) {
        return false;
    }
    size_t n = le32_at(fixed + 12);
    if (n < HEADER_FIXED_BYTES || n > OBJ_HEADER_BYTES_MAX) {
        return false;
    }
    uint8_t *mem = tarn_arena_alloc(a, n);
    return get(f, mem, n, off, failed) && obj_record_parse(mem, n, s->deployment_raw, out);
}

/* Where the size was not announced the trailer is looked for at the end of the file. */
static bool trailer_search(tarn_file *f, uint64_t file_bytes, const obj_record *r, tarn_arena *a, obj_trailer *out, bool *failed)
{
    const obj_blob *b = &r->blob;
    uint64_t data = file_bytes > b->head_bytes ? file_bytes - b->head_bytes : 0;
    uint64_t blocks = data / obj_shard_len(b->block_bytes, b->k) + 2;
    uint64_t n = TRAILER_FIXED_BYTES + CRC_BYTES + blocks * CRC_BYTES + 2 * OBJ_PAGE_BYTES;
    n = n < data ? n : data;
    uint8_t *mem = n > 0 ? tarn_arena_alloc(a, (size_t)n) : NULL;
    if (n == 0 || !get(f, mem, (size_t)n, file_bytes - n, failed)) {
        return false;
    }
    for (size_t at = (size_t)n; at-- > 0;) {
        if (mem[at] == (uint8_t)trailer_magic[0] && obj_trailer_parse(mem + at, (size_t)n - at, b, r->shard, out)) {
            obj_blob whole = *b;
            whole.size = out->size;
            return file_bytes - n + at == b->head_bytes + obj_record_data_bytes(&whole);
        }
    }
    return false;
}

static bool trailer_read(tarn_store *s, tarn_file *f, const obj_record *r, tarn_arena *a, obj_trailer *out, bool *failed)
{
    const obj_blob *b = &r->blob;
    if (b->size == 0) {
        tarn_fs_stat st;
        int rc = s->fs->fstat(s->fs, tarn_file_handle(f), &st);
        *failed |= rc < 0;
        return rc == 0 && trailer_search(f, st.size_bytes, r, a, out, failed);
    }
    size_t n = obj_trailer_bytes(obj_blob_blocks(b));
    uint8_t *mem = tarn_arena_alloc(a, n);
    return get(f, mem, n, b->offset + b->head_bytes + obj_record_data_bytes(b), failed) && obj_trailer_parse(mem, n, b, r->shard, out) &&
           out->size == b->size;
}

tarn_err obj_record_read(tarn_store *s, obj_drive *d, const obj_blob *b, tarn_arena *a, obj_record *out, obj_trailer *trailer)
{
    char path[TARN_PATH_BYTES_MAX];
    tarn_file *f = NULL;
    obj_record r;
    int rc = obj_path_blob(d, b, path) ? tarn_file_open_sync(s->fs, path, O_RDONLY | O_CLOEXEC, 0, &f) : -ENAMETOOLONG;
    if (rc < 0) {
        return tarn_err_from_errno(-rc);
    }
    bool failed = false;
    bool ok = header_read(s, f, b->offset, a, &r, &failed) && r.blob.blob_id == b->blob_id && trailer_read(s, f, &r, a, trailer, &failed);
    tarn_file_unref(f);
    if (!ok) {
        return failed ? TARN_E_IO : TARN_E_CORRUPT;
    }
    r.blob.size = trailer->size;
    *out = r;
    return TARN_OK;
}

/* ------------------------------------------------------------------ a drive */
typedef struct scan {
    tarn_store *s;
    obj_drive *d;
    obj_record_fn fn;
    void *ctx;
    tarn_arena *arena;
    uint8_t *window;
    bool stop;
    obj_scan_gaps *gaps;
    /* names of one folder */
    uint64_t (*names)[3];
    size_t names_n, names_cap;
} scan;

/* Calls fn; *end is where the record ends, when it is whole. */
static bool offer(scan *sc, tarn_file *f, obj_record *r, uint64_t *end)
{
    obj_trailer t;
    bool failed = false, whole = trailer_read(sc->s, f, r, sc->arena, &t, &failed);
    sc->gaps->failed += failed ? 1 : 0;
    if (whole) {
        r->blob.size = t.size;
        *end = r->blob.offset + r->blob.head_bytes + obj_record_data_bytes(&r->blob) + obj_trailer_bytes(obj_blob_blocks(&r->blob));
    }
    sc->stop = !sc->fn(sc->ctx, sc->d, r, whole ? &t : NULL);
    return whole;
}

static void scan_file(scan *sc, const uint64_t name[3])
{
    obj_blob b = {.cls = OBJ_CLASS_FILE, .data_id = name[0], .part = (uint32_t)name[1], .blob_id = name[2]};
    char path[TARN_PATH_BYTES_MAX];
    tarn_file *f = NULL;
    obj_record r;
    uint64_t end;
    bool failed = false;
    if (!obj_path_blob(sc->d, &b, path) || tarn_file_open_sync(sc->s->fs, path, O_RDONLY | O_CLOEXEC, 0, &f) < 0) {
        sc->gaps->failed++;
        return;
    }
    tarn_arena_reset(sc->arena);
    if (header_read(sc->s, f, 0, sc->arena, &r, &failed) && r.blob.cls == OBJ_CLASS_FILE && r.blob.data_id == b.data_id &&
        r.blob.part == b.part && r.blob.blob_id == b.blob_id) {
        (void)offer(sc, f, &r, &end);
    } else {
        sc->gaps->failed += failed ? 1 : 0;
        sc->gaps->headless += failed ? 0 : 1;
    }
    tarn_file_unref(f);
}

static void scan_segment(scan *sc, uint64_t id)
{
    char path[TARN_PATH_BYTES_MAX];
    tarn_file *f = NULL;
    uint64_t at = 0, have_off = 0;
    int64_t have = 0;
    if (!obj_path_segment(sc->d, id, path) || tarn_file_open_sync(sc->s->fs, path, O_RDONLY | O_CLOEXEC, 0, &f) < 0) {
        sc->gaps->failed++;
        return;
    }
    while (!sc->stop) {
        if (at < have_off || at + SECTOR_BYTES > have_off + (uint64_t)have) {
            have_off = at;
            have = tarn_file_pread_sync(f, sc->window, WINDOW_BYTES, at);
            if (have < SECTOR_BYTES) {
                break; /* the end; nothing is smaller than a sector */
            }
        }
        obj_record r;
        uint64_t end = at + SECTOR_BYTES;
        if (memcmp(sc->window + (at - have_off), header_magic, sizeof header_magic) == 0) {
            bool failed = false;
            tarn_arena_reset(sc->arena);
            if (header_read(sc->s, f, at, sc->arena, &r, &failed) && r.blob.cls == OBJ_CLASS_SEGMENT && r.blob.segment == id &&
                r.blob.offset == at && r.blob.size > 0) {
                (void)offer(sc, f, &r, &end);
            }
            sc->gaps->failed += failed ? 1 : 0;
        }
        at = (end + SECTOR_BYTES - 1) / SECTOR_BYTES * SECTOR_BYTES;
    }
    sc->gaps->failed += have < 0 ? 1 : 0;
    tarn_file_unref(f);
}

static bool take(scan *sc, uint64_t a, uint64_t b, uint64_t c)
{
    if (sc->names_n == sc->names_cap) {
        size_t cap = sc->names_cap ? sc->names_cap * 2 : 1024;
        void *more = cap <= NAMES_MAX ? tarn_realloc(sc->names, cap * sizeof sc->names[0]) : NULL;
        if (!more) {
            sc->gaps->failed++;
            return false;
        }
        sc->names = more;
        sc->names_cap = cap;
    }
    sc->names[sc->names_n][0] = a;
    sc->names[sc->names_n][1] = b;
    sc->names[sc->names_n][2] = c;
    sc->names_n++;
    return true;
}

static bool take_blob(void *ctx, const char *name, bool is_dir)
{
    uint64_t data_id = 0, blob_id = 0;
    uint32_t part = 0;
    if (is_dir || !obj_parse_blob_name(name, &data_id, &part, &blob_id)) {
        return true;
    }
    return take(ctx, data_id, part, blob_id);
}

static bool take_segment(void *ctx, const char *name, bool is_dir)
{
    uint64_t id = 0;
    if (is_dir || strlen(name) != 16 || !tarn_hex_to_u64(tarn_str_of(name), &id)) {
        return true;
    }
    return take(ctx, id, 0, 0);
}

static void scan_folder(scan *sc, const char *path, bool (*taker)(void *ctx, const char *name, bool is_dir))
{
    sc->names_n = 0;
    int rc = sc->s->fs->list(sc->s->fs, path, taker, sc);
    if (rc < 0 && rc != -ENOENT) {
        sc->gaps->failed++;
    }
    for (size_t i = 0; i < sc->names_n && !sc->stop; i++) {
        if (taker == take_blob) {
            scan_file(sc, sc->names[i]);
        } else {
            scan_segment(sc, sc->names[i][0]);
        }
    }
}

tarn_err obj_records_scan(tarn_store *s, obj_drive *d, obj_record_fn fn, void *ctx, obj_scan_gaps *gaps)
{
    char path[TARN_PATH_BYTES_MAX];
    scan sc = {.s = s, .d = d, .fn = fn, .ctx = ctx, .gaps = gaps};
    sc.arena = tarn_arena_new(16u << 20);
    sc.window = tarn_malloc(WINDOW_BYTES);
    tarn_err err = sc.arena && sc.window ? TARN_OK : TARN_E_NO_MEMORY;
    for (unsigned i = 0; !err && i < PARTS_DIRS && !sc.stop; i++) {
        obj_blob b = {.blob_id = i};
        if (obj_path_blob_dir(d, &b, path)) {
            scan_folder(&sc, path, take_blob);
        }
    }
    if (!err && !sc.stop && obj_path(d, "segments", path)) {
        scan_folder(&sc, path, take_segment);
    }
    tarn_arena_free(sc.arena);
    tarn_free(sc.window);
    tarn_free(sc.names);
    return err;
}
