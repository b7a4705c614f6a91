/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Manifests. The parts of a multipart object lie in records that say which upload they belong to; that the upload was
 * completed, with which of them, and what the object is called and carries, only the database knows. So a completed upload
 * leaves a small file on every drive of its set: manifests/XX/DATAID (16 hex digits; XX: the id modulo 64). From it and the
 * records the version is made again when all copies of the database are lost. It also carries the bytes of a part that is
 * small enough to be inline, which is the last one if any.
 *
 * The file (docs/on-disk-format.md): magic, version, length, then as manifest_pack() writes it, crc64 of all before.
 *
 * It is written after the transaction and before the answer, is made from rows alone, and so can be made again: healing
 * does when a drive has none. It goes with the data of its version.
 *
 * Memory: the caller's arena. Threads: any; writing may park.
 */
#include "manifest.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

#define MANIFEST_VERSION 1
#define MANIFEST_DIRS 64
#define MANIFEST_ARENA_BYTES_MAX (64u << 20)
#define MANIFEST_HEAD_BYTES 16
#define CRC_BYTES 8

static const char magic[8] = {'T', 'A', 'R', 'N', 'M', 'A', 'N', 'I'};

bool obj_path_manifest(const obj_drive *d, uint64_t data_id, char out[TARN_PATH_BYTES_MAX])
{
    tarn_sb b;
    tarn_sb_init_fixed(&b, out, TARN_PATH_BYTES_MAX);
    tarn_sb_fmt(&b, "%s/tarn/manifests/%02x/%016llx", d->path, (unsigned)(data_id % MANIFEST_DIRS), (unsigned long long)data_id);
    return !b.failed;
}

bool obj_manifest_folder(const obj_drive *d, unsigned folder, char out[TARN_PATH_BYTES_MAX])
{
    tarn_sb b;
    tarn_sb_init_fixed(&b, out, TARN_PATH_BYTES_MAX);
    tarn_sb_fmt(&b, "%s/tarn/manifests/%02x", d->path, folder);
    return !b.failed;
}

/* ------------------------------------------------------------------ packing */
static void pack_part(tarn_sb *b, const obj_manifest_part *p)
{
    tarn_sb_varint(b, p->number);
    tarn_sb_varint(b, p->size);
    tarn_sb_le64(b, (uint64_t)p->mtime_ms);
    tarn_sb_lstr(b, p->etag);
    tarn_sb_lstr(b, p->attrs);
    tarn_sb_le64(b, p->blob_id);
    tarn_sb_char(b, p->bytes.p ? 1 : 0);
    if (p->bytes.p) {
        tarn_sb_lstr(b, p->bytes);
    }
}

static void manifest_pack(tarn_sb *b, const obj_manifest *m, const uint8_t deployment[16])
{
    tarn_sb_bytes(b, deployment, 16);
    const uint64_t numbers[] = {m->data_id,
                                m->order,
                                m->upload_nonce,
                                m->bucket_id,
                                m->seq,
                                m->nonce,
                                m->size,
                                (uint64_t)m->mtime_ms,
                                (uint64_t)m->retain_until_ms};
    for (size_t i = 0; i < TARN_ARRAY_LEN(numbers); i++) {
        tarn_sb_le64(b, numbers[i]);
    }
    tarn_sb_char(b, m->null_version ? 1 : 0);
    tarn_sb_char(b, (char)m->bucket_flags);
    tarn_sb_char(b, (char)m->retention);
    tarn_sb_char(b, m->legal_hold ? 1 : 0);
    tarn_sb_le32(b, m->tags_n);
    tarn_sb_lstr(b, m->bucket);
    tarn_sb_lstr(b, m->key);
    tarn_sb_lstr(b, m->etag);
    tarn_sb_lstr(b, m->attrs);
    tarn_sb_lstr(b, m->tags);
    tarn_sb_varint(b, m->parts_n);
    for (size_t i = 0; i < m->parts_n; i++) {
        pack_part(b, &m->parts[i]);
    }
}

/* The whole file. */
static void file_build(tarn_sb *out, const obj_manifest *m, const uint8_t deployment[16], size_t body_n)
{
    tarn_sb_bytes(out, magic, sizeof magic);
    tarn_sb_le32(out, MANIFEST_VERSION);
    tarn_sb_le32(out, (uint32_t)(MANIFEST_HEAD_BYTES + body_n + CRC_BYTES));
    manifest_pack(out, m, deployment);
    if (!out->failed) {
        tarn_sb_le64(out, tarn_crc64(0, out->p, out->n));
    }
}

static void unpack_part(tarn_rd *r, obj_manifest_part *p)
{
    *p = (obj_manifest_part){.number = (uint32_t)tarn_rd_varint(r), .size = tarn_rd_varint(r)};
    p->mtime_ms = (int64_t)tarn_rd_le64(r);
    p->etag = tarn_rd_lstr(r);
    p->attrs = tarn_rd_lstr(r);
    p->blob_id = tarn_rd_le64(r);
    if (tarn_rd_u8(r) != 0) {
        p->bytes = tarn_rd_lstr(r);
    }
}

static bool valid(const obj_manifest *m, const tarn_rd *r)
{
    uint64_t size = 0;
    for (size_t i = 0; i < m->parts_n; i++) {
        const obj_manifest_part *p = &m->parts[i];
        if (p->number < 1 || p->number > TARN_PARTS_MAX || (i > 0 && p->number <= m->parts[i - 1].number) || p->size > TARN_PUT_BYTES_MAX ||
            (p->bytes.p && p->bytes.n != p->size)) {
            return false;
        }
        size += p->size;
    }
    return !r->failed && r->n == 0 && size == m->size && m->data_id != 0 && m->key.n > 0 && m->key.n <= TARN_KEY_BYTES_MAX &&
           m->bucket.n > 0 && m->bucket.n <= TARN_BUCKET_NAME_BYTES_MAX && m->retention <= TARN_RETENTION_COMPLIANCE;
}

tarn_err obj_manifest_parse(tarn_str p, const uint8_t deployment[16], tarn_arena *a, obj_manifest *out)
{
    obj_manifest m = {0};
    if (p.n < MANIFEST_HEAD_BYTES + CRC_BYTES || memcmp(p.p, magic, sizeof magic) != 0) {
        return TARN_E_FORMAT;
    }
    tarn_rd tail = tarn_rd_of(tarn_str_sub(p, p.n - CRC_BYTES, CRC_BYTES));
    tarn_rd r = tarn_rd_of(tarn_str_sub(p, sizeof magic, p.n - sizeof magic - CRC_BYTES));
    uint32_t version = tarn_rd_le32(&r), length = tarn_rd_le32(&r);
    if (version != MANIFEST_VERSION || length != p.n || tarn_rd_le64(&tail) != tarn_crc64(0, p.p, p.n - CRC_BYTES)) {
        return TARN_E_FORMAT;
    }
    tarn_str owner = tarn_rd_bytes(&r, 16);
    uint64_t *const numbers[] = {&m.data_id, &m.order, &m.upload_nonce, &m.bucket_id, &m.seq, &m.nonce, &m.size};
    for (size_t i = 0; i < TARN_ARRAY_LEN(numbers); i++) {
        *numbers[i] = tarn_rd_le64(&r);
    }
    m.mtime_ms = (int64_t)tarn_rd_le64(&r);
    m.retain_until_ms = (int64_t)tarn_rd_le64(&r);
    m.null_version = tarn_rd_u8(&r) != 0;
    m.bucket_flags = tarn_rd_u8(&r);
    m.retention = (tarn_retention)tarn_rd_u8(&r);
    m.legal_hold = tarn_rd_u8(&r) != 0;
    m.tags_n = tarn_rd_le32(&r);
    tarn_str *const texts[] = {&m.bucket, &m.key, &m.etag, &m.attrs, &m.tags};
    for (size_t i = 0; i < TARN_ARRAY_LEN(texts); i++) {
        *texts[i] = tarn_rd_lstr(&r);
    }
    uint64_t n = tarn_rd_varint(&r);
    if (r.failed || memcmp(owner.p, deployment, 16) != 0 || n < 1 || n > TARN_PARTS_MAX) {
        return TARN_E_FORMAT;
    }
    m.parts_n = (size_t)n;
    m.parts = TARN_ARENA_ARRAY(a, obj_manifest_part, m.parts_n);
    if (!m.parts) {
        return TARN_E_NO_MEMORY;
    }
    for (size_t i = 0; i < m.parts_n; i++) {
        unpack_part(&r, &m.parts[i]);
    }
    if (!valid(&m, &r)) {
        return TARN_E_FORMAT;
    }
    *out = m;
    return TARN_OK;
}

/* ------------------------------------------------------------------ from the rows */
typedef struct gather {
    tarn_store *s;
    tarn_arena *a;
    obj_manifest *m;
    size_t max;
} gather;

static tarn_err gather_part(void *ctx, const tarn_part_row *row)
{
    gather *g = ctx;
    obj_blob b;
    if (g->m->parts_n == g->max) {
        return TARN_OK; /* more rows than the version lists: they are on their way out */
    }
    obj_manifest_part *p = &g->m->parts[g->m->parts_n];
    *p = (obj_manifest_part){.number = row->number, .size = row->size, .mtime_ms = row->mtime_ms, .blob_id = row->blob_id};
    p->etag = tarn_arena_str(g->a, row->etag);
    p->attrs = tarn_arena_str(g->a, row->attrs);
    tarn_err err = p->etag.p && p->attrs.p ? TARN_OK : TARN_E_NO_MEMORY;
    if (!err && row->blob_id != 0) {
        err = tarn_meta_inline_get(g->s->meta, NULL, row->blob_id, g->a, &p->bytes);
    } else if (!err && row->layout.n > 0) {
        err = obj_blob_unpack(row->layout, &b);
        p->blob_id = err ? 0 : b.blob_id;
    }
    g->m->parts_n++;
    return err;
}

static tarn_err gather_rows(tarn_store *s, const tarn_version_row *row, uint64_t order, tarn_arena *a, obj_manifest *m)
{
    tarn_bucket_row bucket;
    obj_span *spans;
    size_t spans_n = 0;
    *m = (obj_manifest){.data_id = row->data_id,
                        .order = order,
                        .bucket_id = row->bucket_id,
                        .seq = row->seq,
                        .nonce = row->nonce,
                        .size = row->size,
                        .mtime_ms = row->mtime_ms,
                        .null_version = row->null_version,
                        .key = row->key,
                        .etag = row->etag,
                        .attrs = row->attrs,
                        .tags = row->tags,
                        .tags_n = row->tags_n,
                        .retention = row->retention,
                        .retain_until_ms = row->retain_until_ms,
                        .legal_hold = row->legal_hold};
    tarn_err err = tarn_meta_bucket_get_id(s->meta, NULL, row->bucket_id, a, &bucket);
    if (!err) {
        err = obj_spans_unpack(row->layout, a, &spans, &spans_n, &m->upload_nonce);
    }
    if (err) {
        return err;
    }
    m->bucket = bucket.name;
    m->bucket_flags = obj_bucket_flags(&bucket);
    m->parts = TARN_ARENA_ARRAY(a, obj_manifest_part, spans_n);
    gather g = {s, a, m, spans_n};
    err = m->parts ? obj_scan_parts(s, row->data_id, gather_part, &g) : TARN_E_NO_MEMORY;
    return !err && m->parts_n != spans_n ? TARN_E_CONFLICT : err;
}

/* ------------------------------------------------------------------ on the drives */
tarn_err obj_manifest_read(tarn_store *s, const obj_drive *d, uint64_t data_id, tarn_arena *a, tarn_str *out)
{
    char path[TARN_PATH_BYTES_MAX];
    tarn_file *f = NULL;
    tarn_fs_stat st;
    if (!obj_path_manifest(d, data_id, path)) {
        return TARN_E_LIMIT;
    }
    int rc = tarn_file_open(s->fs, path, O_RDONLY | O_CLOEXEC, 0, &f);
    if (rc == 0) {
        rc = s->fs->fstat(s->fs, tarn_file_handle(f), &st);
    }
    tarn_err err = rc < 0 ? tarn_err_from_errno(-rc) : TARN_OK;
    if (!err && (st.size_bytes == 0 || st.size_bytes > OBJ_MANIFEST_BYTES_MAX)) {
        err = TARN_E_CORRUPT;
    }
    char *mem = err ? NULL : tarn_arena_alloc(a, (size_t)st.size_bytes);
    if (!err) {
        int64_t n = mem ? tarn_file_read(f, mem, (size_t)st.size_bytes, 0) : -ENOMEM;
        err = n < 0 ? tarn_err_from_errno((int)-n) : n == (int64_t)st.size_bytes ? TARN_OK : TARN_E_IO;
    }
    tarn_file_unref(f);
    if (!err) {
        *out = (tarn_str){mem, (size_t)st.size_bytes};
    }
    return err;
}

typedef struct write_job {
    tarn_store *s;
    unsigned set;
    uint64_t data_id;
    tarn_str bytes;
    unsigned good;
} write_job;

static int make_folders(tarn_store *s, const obj_drive *d, const char *folder)
{
    char top[TARN_PATH_BYTES_MAX], above[TARN_PATH_BYTES_MAX];
    if (!obj_path(d, "manifests", top) || !obj_path(d, "", above)) {
        return -ENAMETOOLONG;
    }
    int rc = s->fs->mkdir(s->fs, top, 0755);
    rc = rc == 0 || rc == -EEXIST ? s->fs->mkdir(s->fs, folder, 0755) : rc;
    rc = rc == 0 || rc == -EEXIST ? s->fs->sync_dir(s->fs, top) : rc;
    return rc == 0 ? s->fs->sync_dir(s->fs, above) : rc;
}

static int write_one(tarn_store *s, const obj_drive *d, uint64_t data_id, tarn_str bytes)
{
    char path[TARN_PATH_BYTES_MAX];
    tarn_file *f = NULL;
    if (!obj_path_manifest(d, data_id, path)) {
        return -ENAMETOOLONG;
    }
    int rc = tarn_file_open_sync(s->fs, path, O_RDWR | O_CREAT | O_CLOEXEC, 0644, &f);
    if (rc == -ENOENT && obj_manifest_folder(d, (unsigned)(data_id % MANIFEST_DIRS), path)) { /* the first one there */
        rc = make_folders(s, d, path);
        if (rc == 0 && obj_path_manifest(d, data_id, path)) {
            rc = tarn_file_open_sync(s->fs, path, O_RDWR | O_CREAT | O_CLOEXEC, 0644, &f);
        }
    }
    if (rc == 0) {
        int64_t n = tarn_file_pwrite_sync(f, bytes.p, bytes.n, 0);
        rc = n < 0 ? (int)n : s->fs->truncate(s->fs, tarn_file_handle(f), bytes.n);
    }
    if (rc == 0) {
        rc = s->fs->sync(s->fs, tarn_file_handle(f), false);
    }
    tarn_file_unref(f);
    if (rc == 0) {
        rc = obj_manifest_folder(d, (unsigned)(data_id % MANIFEST_DIRS), path) ? s->fs->sync_dir(s->fs, path) : -ENAMETOOLONG;
    }
    return rc;
}

static void write_all(void *arg)
{
    write_job *j = arg;
    for (unsigned i = 0; i < j->s->n; i++) {
        obj_drive *d = obj_drive_at(j->s, j->set, i);
        if (!obj_drive_writable(d)) {
            continue;
        }
        int rc = write_one(j->s, d, j->data_id, j->bytes);
        if (rc < 0) {
            obj_drive_error(j->s, d, "writing a manifest", -rc);
        } else {
            j->good++;
        }
    }
}

/* The order that the manifest had, where a drive still has one; else a new number. */
static tarn_err choose_order(tarn_store *s, const tarn_version_row *row, unsigned set, tarn_arena *a, uint64_t *order)
{
    for (unsigned i = 0; i < s->n; i++) {
        obj_manifest old;
        const obj_drive *d = obj_drive_at(s, set, i);
        tarn_str bytes;
        if (obj_drive_readable(d) && obj_manifest_read(s, d, row->data_id, a, &bytes) == TARN_OK &&
            obj_manifest_parse(bytes, s->deployment_raw, a, &old) == TARN_OK && old.data_id == row->data_id) {
            *order = old.order;
            return TARN_OK;
        }
    }
    return obj_id_next(s, order);
}

tarn_err obj_manifest_save(tarn_store *s, const tarn_version_row *row)
{
    obj_manifest m;
    tarn_sb body, file;
    uint64_t order = 0;
    unsigned set = 0;
    tarn_arena *a = tarn_arena_new(MANIFEST_ARENA_BYTES_MAX);
    tarn_err err = a ? gather_rows(s, row, 0, a, &m) : TARN_E_NO_MEMORY;
    tarn_sb_init(&body, OBJ_MANIFEST_BYTES_MAX);
    tarn_sb_init(&file, OBJ_MANIFEST_BYTES_MAX);
    if (!err) {
        set = obj_set_of(s, m.bucket, m.key);
        err = choose_order(s, row, set, a, &order);
        m.order = order;
    }
    if (!err) {
        manifest_pack(&body, &m, s->deployment_raw);
        file_build(&file, &m, s->deployment_raw, body.n);
        err = body.failed ? tarn_sb_err(&body) : tarn_sb_err(&file);
    }
    if (!err) {
        write_job j = {.s = s, .set = set, .data_id = row->data_id, .bytes = tarn_sb_view(&file)};
        obj_offload(s, write_all, &j);
        err = j.good > s->m ? TARN_OK : TARN_E_QUORUM_WRITE;
    }
    tarn_sb_free(&body);
    tarn_sb_free(&file);
    tarn_arena_free(a);
    return err;
}

tarn_err obj_manifest_check(tarn_store *s, const tarn_version_row *row, uint32_t *missing, uint32_t *corrupt)
{
    tarn_bucket_row bucket;
    tarn_arena *a = tarn_arena_new(MANIFEST_ARENA_BYTES_MAX);
    tarn_err err = a ? tarn_meta_bucket_get_id(s->meta, NULL, row->bucket_id, a, &bucket) : TARN_E_NO_MEMORY;
    unsigned set = err ? 0 : obj_set_of(s, bucket.name, row->key);
    for (unsigned i = 0; !err && i < s->n; i++) {
        obj_manifest m;
        const obj_drive *d = obj_drive_at(s, set, i);
        if (!obj_drive_readable(d)) {
            continue;
        }
        tarn_str bytes;
        tarn_err got = obj_manifest_read(s, d, row->data_id, a, &bytes);
        if (got == TARN_E_NO_MEMORY) {
            err = got;
        } else if (got == TARN_E_NOT_FOUND) {
            ++*missing;
        } else if (got != TARN_OK || obj_manifest_parse(bytes, s->deployment_raw, a, &m) != TARN_OK || m.data_id != row->data_id ||
                   !tarn_str_eq(m.etag, row->etag)) {
            ++*corrupt;
        }
    }
    tarn_arena_free(a);
    return err;
}

/* ------------------------------------------------------------------ the end of one */
typedef struct drop_job {
    tarn_store *s;
    uint64_t data_id;
} drop_job;

static void drop_all(void *arg)
{
    drop_job *j = arg;
    char path[TARN_PATH_BYTES_MAX];
    for (size_t i = 0; i < j->s->drives_n; i++) {
        const obj_drive *d = &j->s->drives[i];
        if (obj_drive_writable(d) && obj_path_manifest(d, j->data_id, path)) {
            (void)j->s->fs->unlink(j->s->fs, path); /* the sweep finds what stays */
        }
    }
}

void obj_manifest_drop(tarn_store *s, uint64_t data_id)
{
    drop_job j = {s, data_id};
    obj_offload(s, drop_all, &j);
}

/* ------------------------------------------------------------------ sweeping */
#define SWEEP_NAMES_MAX 65536

typedef struct sweep {
    tarn_store *s;
    const obj_drive *d;
    unsigned folder;
    int64_t before_ms;
    uint64_t *ids;
    size_t n;
} sweep;

static bool take_name(void *ctx, const char *name, bool is_dir)
{
    sweep *w = ctx;
    uint64_t id = 0;
    if (!is_dir && strnlen(name, 17) == 16 && tarn_hex_to_u64(tarn_str_of(name), &id)) {
        w->ids[w->n++] = id;
    }
    return w->n < SWEEP_NAMES_MAX;
}

static void list_names(void *arg)
{
    sweep *w = arg;
    char path[TARN_PATH_BYTES_MAX];
    w->n = 0;
    if (obj_manifest_folder(w->d, w->folder, path)) {
        (void)w->s->fs->list(w->s->fs, path, take_name, w);
    }
}

static void unlink_names(void *arg)
{
    sweep *w = arg;
    char path[TARN_PATH_BYTES_MAX];
    for (size_t i = 0; i < w->n; i++) {
        tarn_fs_stat st;
        if (w->ids[i] != 0 && obj_path_manifest(w->d, w->ids[i], path) && w->s->fs->stat(w->s->fs, path, &st) == 0 &&
            st.mtime_ms <= w->before_ms) {
            (void)w->s->fs->unlink(w->s->fs, path);
        }
    }
}

tarn_err obj_manifest_sweep(tarn_store *s, int64_t age_ms)
{
    sweep w = {.s = s, .before_ms = tarn_now_ms() - age_ms, .ids = tarn_calloc(SWEEP_NAMES_MAX, sizeof *w.ids)};
    tarn_err err = w.ids ? TARN_OK : TARN_E_NO_MEMORY;
    for (size_t i = 0; !err && i < s->drives_n; i++) {
        w.d = &s->drives[i];
        for (w.folder = 0; !err && w.folder < MANIFEST_DIRS && obj_drive_writable(w.d); w.folder++) {
            bool any = false;
            obj_offload(s, list_names, &w);
            for (size_t k = 0; !err && k < w.n; k++) {
                bool live = true;
                err = tarn_meta_data_referenced(s->meta, w.ids[k], &live);
                w.ids[k] = live || obj_pinned(s, w.ids[k]) ? 0 : w.ids[k];
                any = any || w.ids[k] != 0;
            }
            if (!err && any) {
                obj_offload(s, unlink_names, &w);
            }
        }
    }
    tarn_free(w.ids);
    return err;
}
