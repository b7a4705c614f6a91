/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What clients do: each operation is prepared (what should come of it?), done (on a fiber or a plain thread) and settled (the
 * answer is compared and the model moves; an operation without an answer becomes a doubt).
 */
#include "sim.h"

#include <stdio.h>
#include <string.h>

#define PART_MIN TARN_PART_BYTES_MIN

static void wrong(exec *x, const char *what)
{
    tarn_sb b;
    tarn_sb_init_fixed(&b, x->why, sizeof x->why);
    tarn_sb_cstr(&b, what);
}

static uint64_t bit(size_t i)
{
    return 1ull << i;
}

bool exec_is_client(op_kind k)
{
    switch (k) {
    case OP_PUT:
    case OP_PUT_IF:
    case OP_COPY:
    case OP_GET:
    case OP_GET_VERSION:
    case OP_DELETE:
    case OP_DELETE_VERSION:
    case OP_DELETE_MANY:
    case OP_TAG:
    case OP_VERSIONING:
    case OP_UPLOAD:
    case OP_PART:
    case OP_COMPLETE:
    case OP_ABORT:
    case OP_TABLE_CREATE:
    case OP_TABLE_COMMIT:
    case OP_TABLE_LOAD:
    case OP_TABLE_DROP:
    case OP_REPAIR:
    case OP_GARBAGE:
        return true;
    default:
        return false;
    }
}

/* ------------------------------------------------------------------ preparing */
uint64_t size_of_class(uint64_t *rng)
{
    switch (rnd_below(rng, 12)) {
    case 0:
        return 0;
    case 1:
        return 1 + rnd_below(rng, 100);
    case 2:
        return INLINE_MAX - 1 + rnd_below(rng, 3);
    case 3:
    case 4:
        return 1 + rnd_below(rng, INLINE_MAX);
    case 5:
    case 6:
    case 7:
        return INLINE_MAX + rnd_below(rng, 60000);
    case 8:
        return SEGMENT_MAX - 1 + rnd_below(rng, 3);
    case 9:
        return SEGMENT_MAX + rnd_below(rng, TARN_BLOCK_BYTES);
    case 10:
        return TARN_BLOCK_BYTES * (1 + rnd_below(rng, 2)) - 1 + rnd_below(rng, 3);
    default:
        return TARN_BLOCK_BYTES + rnd_below(rng, 2 * TARN_BLOCK_BYTES);
    }
}

static mkey *touch_key(exec *x, size_t key)
{
    effect *e = &x->e;
    TARN_ASSERT(e->keys_n < KEYS_PER_BUCKET);
    x->resources |= bit(key);
    e->key_ids[e->keys_n] = key;
    e->keys[e->keys_n] = x->r->m.keys[key];
    return &e->keys[e->keys_n++];
}

static bool room(const mkey *k, tarn_versioning v)
{
    bool null_there = false;
    for (size_t i = 0; i < k->n; i++)
        null_there = null_there || k->v[i].null;
    return k->n < VERSIONS_MAX || (v != TARN_VERSIONING_ENABLED && null_there);
}

static bool prepare_new_version(exec *x, piece p)
{
    tarn_versioning v = key_versioning(&x->r->m, x->key);
    mkey *k = touch_key(x, x->key);
    if (!room(k, v))
        return false;
    mversion *n = key_push(k, v, false);
    n->pieces[0] = p;
    n->pieces_n = p.size > 0 ? 1 : 0;
    etag_of(&p, n->etag);
    x->p = p;
    x->changes = true;
    return true;
}

static void prepare_conditions(exec *x)
{
    const mkey *k = &x->r->m.keys[x->key];
    bool there = version_live(k);
    tarn_sb b;
    tarn_sb_init_fixed(&b, x->cond_etag, sizeof x->cond_etag);
    tarn_sb_cstr(&b, there ? k->v[0].etag : "00000000000000000000000000000000");
    switch (x->op->c % 5) {
    case 0:
        x->cond.if_none_match_any = true;
        x->want = there ? TARN_E_PRECONDITION_FAILED : TARN_OK;
        return;
    case 1:
        x->cond.if_match = tarn_str_of(x->cond_etag);
        x->want = there ? TARN_OK : TARN_E_NO_SUCH_KEY;
        return;
    case 2:
        x->cond_etag[0] = x->cond_etag[0] == 'f' ? '0' : 'f';
        x->cond.if_match = tarn_str_of(x->cond_etag);
        x->want = there ? TARN_E_PRECONDITION_FAILED : TARN_E_NO_SUCH_KEY;
        return;
    case 3:
        x->cond.if_match = TARN_STR("*");
        x->want = there ? TARN_OK : TARN_E_NO_SUCH_KEY;
        return;
    default:
        x->cond.if_none_match = tarn_str_of(x->cond_etag);
        x->want = there ? TARN_E_PRECONDITION_FAILED : TARN_OK;
    }
}

static bool prepare_delete(exec *x, size_t key)
{
    tarn_versioning v = key_versioning(&x->r->m, key);
    mkey *k = touch_key(x, key);
    x->changes = true;
    if (v == TARN_VERSIONING_OFF) {
        if (k->n > 0)
            key_remove(k, 0);
        return true;
    }
    if (!room(k, v))
        return false;
    (void)key_push(k, v, true);
    return true;
}

static bool prepare_delete_many(exec *x)
{
    size_t base = x->key / KEYS_PER_BUCKET * KEYS_PER_BUCKET, n = 2 + x->op->b % 5;
    for (size_t i = 0; i < n; i++) {
        if (!prepare_delete(x, base + (x->key + i) % KEYS_PER_BUCKET))
            return false;
    }
    return true;
}

static bool prepare_complete(exec *x)
{
    mupload *u = &x->e.upload;
    mversion v = {.pieces_n = 0};
    for (size_t i = 0; i < PARTS; i++) {
        if (u->parts[i].there)
            v.pieces[v.pieces_n++] = u->parts[i].p;
    }
    if (v.pieces_n == 0)
        return false;
    x->key = u->key;
    if (v.pieces_n > 1 && v.pieces[0].size < PART_MIN) {
        x->resources |= bit(x->key);
        x->want = TARN_E_ENTITY_TOO_SMALL;
        return true;
    }
    mkey *k = touch_key(x, x->key);
    if (!room(k, key_versioning(&x->r->m, x->key)))
        return false;
    mversion *n = key_push(k, key_versioning(&x->r->m, x->key), false);
    v.null = n->null;
    etag_of_parts(u, v.etag);
    *n = v;
    u->open = false;
    x->changes = true;
    return true;
}

static bool prepare_slot(exec *x, uint64_t *rng)
{
    run *r = x->r;
    x->slot = (int)(x->op->a % SLOTS);
    x->resources |= bit(KEYS + (size_t)x->slot);
    mupload *now = &r->m.uploads[x->slot];
    x->e.slot = x->slot;
    x->e.upload = *now;
    mupload *u = &x->e.upload;
    if ((x->op->kind == OP_UPLOAD) == now->open)
        return false;
    switch (x->op->kind) {
    case OP_UPLOAD:
        *u = (mupload){.open = true, .key = x->op->b % KEYS};
        x->key = u->key;
        x->changes = true;
        return true;
    case OP_PART:
        x->key = u->key;
        x->version = x->op->b % PARTS; /* the part's index */
        x->p = (piece){x->op->seed, x->version == 0 && x->op->c % 4 != 0 ? PART_MIN + x->op->c % 1000 : size_of_class(rng)};
        x->size_known = x->op->c % 3 != 0;
        u->parts[x->version].there = true;
        u->parts[x->version].p = x->p;
        etag_of(&x->p, u->parts[x->version].etag);
        x->changes = true;
        return true;
    case OP_ABORT:
        x->key = u->key;
        u->open = false;
        x->changes = true;
        return true;
    default:
        return prepare_complete(x);
    }
}

static bool prepare_table(exec *x, uint64_t *rng)
{
    run *r = x->r;
    x->table = (int)(x->op->a % TABLES);
    x->resources |= bit(KEYS + SLOTS + (size_t)x->table);
    const mtable *now = &r->m.tables[x->table];
    x->e.table_after = *now;
    mtable *t = &x->e.table_after;
    x->want = now->exists ? TARN_OK : TARN_E_ICE_NO_TABLE;
    if (x->op->kind == OP_TABLE_LOAD)
        return true;
    x->e.table = x->table;
    x->changes = true;
    if (x->op->kind == OP_TABLE_DROP) {
        t->exists = false;
        return now->exists;
    }
    if (r->m.files_n == FILES_MAX)
        return false;
    mfile *f = &r->m.files[r->m.files_n];
    tarn_sb b;
    tarn_sb_init_fixed(&b, f->key, sizeof f->key);
    tarn_sb_fmt(&b, "t%d/%zu-%llx.json", x->table, r->m.files_n, (unsigned long long)x->op->seed);
    f->p = (piece){x->op->seed, 1 + (rnd_below(rng, 4) == 0 ? rnd_below(rng, 40000) : rnd_below(rng, INLINE_MAX))};
    f->there = false;
    x->e.file = r->m.files_n++;
    x->p = f->p;
    if (x->op->kind == OP_TABLE_CREATE) {
        x->want = now->exists ? TARN_E_ICE_ALREADY_EXISTS : TARN_OK;
        *t = (mtable){.exists = true, .version = 0, .file = x->e.file};
    } else {
        x->stale = x->op->c % 6 == 0 && now->exists && now->version > 0;
        if (x->stale)
            x->want = TARN_E_ICE_COMMIT_FAILED;
        t->version++;
        t->file = x->e.file;
    }
    return true;
}

static bool prepare_read(exec *x)
{
    const mkey *k = &x->r->m.keys[x->key];
    x->resources |= bit(x->key);
    if (x->op->kind == OP_GET) {
        x->want = version_live(k) ? TARN_OK : TARN_E_NO_SUCH_KEY;
        return true;
    }
    if (k->n == 0)
        return false;
    x->version = x->op->b % k->n;
    return !k->v[x->version].marker;
}

static bool prepare_key_op(exec *x, uint64_t *rng)
{
    const mkey *now = &x->r->m.keys[x->key];
    switch (x->op->kind) {
    case OP_PUT:
        return prepare_new_version(x, (piece){x->op->seed, size_of_class(rng)});
    case OP_PUT_IF:
        prepare_conditions(x);
        return prepare_new_version(x, (piece){x->op->seed, size_of_class(rng)});
    case OP_COPY:
        x->src = x->op->b % KEYS;
        if (x->src == x->key || !version_live(&x->r->m.keys[x->src]) || x->r->m.keys[x->src].v[0].pieces_n > 1)
            return false;
        x->resources |= bit(x->src);
        return prepare_new_version(x, x->r->m.keys[x->src].v[0].pieces_n ? x->r->m.keys[x->src].v[0].pieces[0] : (piece){0, 0});
    case OP_DELETE:
        return prepare_delete(x, x->key);
    case OP_DELETE_MANY:
        return prepare_delete_many(x);
    case OP_DELETE_VERSION: {
        mkey *k = touch_key(x, x->key);
        if (k->n == 0)
            return false;
        x->version = x->op->b % k->n;
        key_remove(k, x->version);
        x->changes = true;
        return true;
    }
    case OP_TAG:
        if (!version_live(now)) {
            x->resources |= bit(x->key);
            x->want = TARN_E_NO_SUCH_KEY;
            return true;
        }
        touch_key(x, x->key)->v[0].tag = 1 + x->op->c % 1000;
        x->changes = true;
        return true;
    default:
        return prepare_read(x);
    }
}

bool exec_prepare(run *r, const sim_op *op, exec *x)
{
    uint64_t rng = op->seed;
    memset(x, 0, sizeof *x);
    x->r = r;
    x->op = op;
    x->key = op->a % KEYS;
    x->size_known = op->c % 4 != 0;
    effect_none(&x->e);
    switch (op->kind) {
    case OP_UPLOAD:
    case OP_PART:
    case OP_COMPLETE:
    case OP_ABORT:
        return prepare_slot(x, &rng);
    case OP_TABLE_CREATE:
    case OP_TABLE_COMMIT:
    case OP_TABLE_LOAD:
    case OP_TABLE_DROP:
        return prepare_table(x, &rng);
    case OP_VERSIONING:
        x->e.bucket = BUCKETS - 1;
        x->e.versioning = r->m.versioning[BUCKETS - 1] == TARN_VERSIONING_ENABLED ? TARN_VERSIONING_SUSPENDED : TARN_VERSIONING_ENABLED;
        x->resources = ~0ull; /* not beside anything else */
        x->changes = true;
        return true;
    case OP_REPAIR:
        x->resources = bit(62);
        return true;
    case OP_GARBAGE:
        x->resources = bit(63);
        return true;
    default:
        return prepare_key_op(x, &rng);
    }
}

/* ------------------------------------------------------------------ doing */
static tarn_bucket_row *bucket_of(exec *x, size_t key)
{
    return &x->r->buckets[key_bucket(key)];
}

static tarn_err put_bytes(tarn_put *p, const piece *c)
{
    tarn_err err = TARN_OK;
    for (uint64_t at = 0; !err && at < c->size;) {
        uint8_t *buf = NULL;
        size_t cap = 0;
        err = tarn_put_reserve(p, &buf, &cap);
        if (!err) {
            size_t n = cap < c->size - at ? cap : (size_t)(c->size - at);
            bytes_of(c, at, buf, n);
            err = tarn_put_advance(p, n);
            at += n;
        }
    }
    return err;
}

static tarn_err do_put(exec *x, bool part)
{
    tarn_put *p = NULL;
    tarn_put_spec spec = {.bucket = bucket_of(x, x->key),
                          .key = tarn_str_of(key_name(x->key)),
                          .conditions = x->cond,
                          .size_hint = x->size_known ? x->p.size : UINT64_MAX,
                          .is_part = part};
    if (part) {
        const mupload *u = &x->r->m.uploads[x->slot];
        spec.upload_id = u->id;
        spec.part_number = (uint32_t)x->version + 1;
    }
    tarn_err err = tarn_put_begin(x->r->s, &spec, x->arena, &p);
    if (err)
        return err;
    err = put_bytes(p, &x->p);
    if (err) {
        tarn_put_abort(p);
        return err;
    }
    return tarn_put_finish(p, &x->put);
}

static tarn_err read_row(exec *x, const tarn_version_row *row, const mversion *v, uint64_t off, uint64_t len)
{
    tarn_get *g = NULL;
    uint64_t at = off;
    tarn_err err = tarn_get_open(x->r->s, row, off, len, x->arena, &g);
    while (!err) {
        const uint8_t *p = NULL;
        size_t n = 0;
        err = tarn_get_next(g, &p, &n);
        if (err || n == 0)
            break;
        if (at + n > off + len || !bytes_match(v, at, p, n)) {
            wrong(x, "a wrong byte was read");
            break;
        }
        at += n;
    }
    tarn_get_close(g);
    if (!err && !x->why[0] && at != off + len)
        wrong(x, "the download ended early");
    return err;
}

tarn_err read_version(exec *x, size_t key, const mversion *v, tarn_version_ref ref, uint64_t off, uint64_t len)
{
    tarn_version_row row;
    tarn_err err = tarn_object_stat(x->r->s, bucket_of(x, key), tarn_str_of(key_name(key)), ref, x->arena, &row);
    if (err)
        return err;
    if (row.size != version_size(v) || !tarn_str_eqc(row.etag, v->etag)) {
        wrong(x, "size or ETag are those of another version");
        return TARN_OK;
    }
    return read_row(x, &row, v, off, len);
}

static tarn_err do_get(exec *x)
{
    const mkey *k = &x->r->m.keys[x->key];
    tarn_version_row row;
    tarn_version_ref ref = {.sel = TARN_VERSION_CURRENT};
    if (x->want)
        return tarn_object_stat(x->r->s, bucket_of(x, x->key), tarn_str_of(key_name(x->key)), ref, x->arena, &row);
    const mversion *v = &k->v[x->op->kind == OP_GET_VERSION ? x->version : 0];
    if (x->op->kind == OP_GET_VERSION)
        ref = v->null ? (tarn_version_ref){.sel = TARN_VERSION_NULL} : (tarn_version_ref){TARN_VERSION_ID, v->seq, v->nonce};
    uint64_t size = version_size(v), rng = x->op->seed;
    uint64_t off = x->op->c % 2 && size > 0 ? rnd_below(&rng, size) : 0;
    uint64_t len = x->op->c % 2 ? rnd_below(&rng, size - off + 1) : size;
    return read_version(x, x->key, v, ref, off, len);
}

static tarn_err do_copy(exec *x)
{
    tarn_version_row row;
    tarn_version_ref ref = {.sel = TARN_VERSION_CURRENT};
    tarn_put *p = NULL;
    tarn_get *g = NULL;
    tarn_err err = tarn_object_stat(x->r->s, bucket_of(x, x->src), tarn_str_of(key_name(x->src)), ref, x->arena, &row);
    tarn_put_spec spec = {.bucket = bucket_of(x, x->key), .key = tarn_str_of(key_name(x->key)), .size_hint = x->p.size};
    if (!err)
        err = tarn_put_begin(x->r->s, &spec, x->arena, &p);
    if (!err)
        err = tarn_get_open(x->r->s, &row, 0, row.size, x->arena, &g);
    while (!err) {
        const uint8_t *b = NULL;
        size_t n = 0;
        err = tarn_get_next(g, &b, &n);
        if (err || n == 0)
            break;
        err = tarn_put_write(p, b, n);
    }
    tarn_get_close(g);
    if (err) {
        tarn_put_abort(p);
        return err;
    }
    return tarn_put_finish(p, &x->put);
}

static tarn_err do_delete(exec *x)
{
    tarn_delete_spec d[KEYS_PER_BUCKET] = {0};
    tarn_delete_result res[KEYS_PER_BUCKET];
    size_t n = x->e.keys_n;
    for (size_t i = 0; i < n; i++)
        d[i].key = tarn_str_of(key_name(x->e.key_ids[i]));
    if (x->op->kind == OP_DELETE_VERSION) {
        const mversion *v = &x->r->m.keys[x->key].v[x->version];
        d[0].version = v->null ? (tarn_version_ref){.sel = TARN_VERSION_NULL} : (tarn_version_ref){TARN_VERSION_ID, v->seq, v->nonce};
    }
    tarn_err err = tarn_object_delete(x->r->s, bucket_of(x, x->e.key_ids[0]), d, n, res);
    for (size_t i = 0; !err && i < n; i++) {
        mversion *top = &x->e.keys[i].v[0];
        if (res[i].err)
            return res[i].err;
        if (x->op->kind != OP_DELETE_VERSION && key_versioning(&x->r->m, x->key) != TARN_VERSIONING_OFF) {
            if (!res[i].delete_marker || res[i].row.null_version != top->null)
                wrong(x, "a delete made no marker, or another one");
            top->ids = true;
            top->seq = res[i].row.seq;
            top->nonce = res[i].row.nonce;
        }
    }
    return err;
}

static tarn_err edit_tags(void *ctx, tarn_version_row *row, tarn_arena *arena)
{
    const exec *x = ctx;
    tarn_pair tag = {TARN_STR("t"), tarn_arena_fmt(arena, "%u", x->e.keys[0].v[0].tag)};
    row->tags_n = 1;
    return tarn_tags_pack(&tag, 1, arena, &row->tags);
}

static tarn_err do_tag(exec *x)
{
    tarn_version_row row;
    tarn_version_ref ref = {.sel = TARN_VERSION_CURRENT};
    return tarn_object_edit(x->r->s, bucket_of(x, x->key), tarn_str_of(key_name(x->key)), ref, edit_tags, x, &row, x->arena);
}

static tarn_err versioning_fn(tarn_meta_tx *tx, void *arg)
{
    return tarn_meta_bucket_update(tx, arg);
}

static tarn_err do_versioning(exec *x)
{
    tarn_bucket_row row = x->r->buckets[BUCKETS - 1];
    row.versioning = x->e.versioning;
    return tarn_meta_commit(tarn_store_meta(x->r->s), versioning_fn, &row);
}

static tarn_err do_complete(exec *x)
{
    const mupload *u = &x->r->m.uploads[x->slot];
    tarn_complete_part parts[PARTS] = {0};
    tarn_complete_spec spec = {
        .bucket = bucket_of(x, u->key), .key = tarn_str_of(key_name(u->key)), .upload_id = u->id, .nonce = u->nonce, .parts = parts};
    uint32_t bad = 0;
    for (size_t i = 0; i < PARTS; i++) {
        if (u->parts[i].there)
            parts[spec.parts_n++] = (tarn_complete_part){.number = (uint32_t)i + 1, .etag = tarn_str_of(u->parts[i].etag)};
    }
    return tarn_upload_complete(x->r->s, &spec, x->arena, &x->put, &bad);
}

/* ------------------------------------------------------------------ tables: a file and a pointer in one transaction */
static const char *const table_names[TABLES] = {"t0", "t1", "t2"};

typedef struct table_tx {
    exec *x;
    tarn_put *put;
    tarn_put_result result;
} table_tx;

static tarn_err table_pointer(tarn_meta_tx *tx, exec *x)
{
    run *r = x->r;
    tarn_arena *a = tarn_meta_tx_arena(tx);
    uint64_t bucket = r->buckets[BUCKETS].id;
    tarn_entity_row row = {0};
    if (x->op->kind == OP_TABLE_CREATE) {
        row = (tarn_entity_row){.bucket_id = bucket,
                                .ns_id = r->ns_id,
                                .name = tarn_str_of(table_names[x->table]),
                                .kind = TARN_ENTITY_TABLE,
                                .uuid = TARN_STR("7d8b6d4e-0000-4000-8000-000000000001"),
                                .location = TARN_STR("s3://warehouse/t")};
        row.pointer = tarn_arena_fmt(a, "s3://warehouse/%s", r->m.files[x->e.file].key);
        return tarn_meta_entity_create(tx, &row);
    }
    tarn_err err = tarn_meta_entity_get(tarn_store_meta(r->s), tx, bucket, TARN_STR("ns"), tarn_str_of(table_names[x->table]), a, &row);
    if (err)
        return err;
    if (x->op->kind == OP_TABLE_DROP)
        return tarn_meta_entity_delete(tx, row.id);
    row.pointer = tarn_arena_fmt(a, "s3://warehouse/%s", r->m.files[x->e.file].key);
    return tarn_meta_entity_swap(tx, &row, row.version - (x->stale ? 1 : 0));
}

static tarn_err table_fn(tarn_meta_tx *tx, void *arg)
{
    table_tx *t = arg;
    tarn_err err = t->put ? tarn_put_apply(t->put, tx, &t->result) : TARN_OK;
    return err ? err : table_pointer(tx, t->x);
}

static tarn_err do_table(exec *x)
{
    run *r = x->r;
    table_tx t = {.x = x};
    tarn_err err = TARN_OK;
    if (x->e.file != SIZE_MAX) {
        const mfile *f = &r->m.files[x->e.file];
        tarn_put_spec spec = {.bucket = &r->buckets[BUCKETS], .key = tarn_str_of(f->key), .size_hint = f->p.size};
        err = tarn_put_begin(r->s, &spec, x->arena, &t.put);
        if (!err)
            err = put_bytes(t.put, &f->p);
        if (!err)
            err = tarn_put_prepare(t.put);
    }
    if (!err)
        err = tarn_meta_commit(tarn_store_meta(r->s), table_fn, &t);
    if (t.put)
        tarn_put_done(t.put, err == TARN_OK);
    return err;
}

static tarn_err do_table_load(exec *x)
{
    run *r = x->r;
    tarn_entity_row row;
    tarn_version_row v;
    tarn_version_ref ref = {.sel = TARN_VERSION_CURRENT};
    tarn_err err = tarn_meta_entity_get(tarn_store_meta(r->s), NULL, r->buckets[BUCKETS].id, TARN_STR("ns"),
                                        tarn_str_of(table_names[x->table]), x->arena, &row);
    if (err)
        return err;
    tarn_str key = tarn_str_sub(row.pointer, strlen("s3://warehouse/"), row.pointer.n);
    const mfile *f = &r->m.files[r->m.tables[x->table].file];
    if (!tarn_str_eqc(key, f->key)) {
        wrong(x, "the table's pointer is another commit's");
        return TARN_OK;
    }
    err = tarn_object_stat(r->s, &r->buckets[BUCKETS], key, ref, x->arena, &v);
    if (err == TARN_E_NO_SUCH_KEY)
        wrong(x, "the table's metadata file is not there");
    mversion want = {.pieces = {f->p}, .pieces_n = 1};
    return err ? err : read_row(x, &v, &want, 0, f->p.size);
}

void exec_do(exec *x)
{
    run *r = x->r;
    tarn_str key = tarn_str_of(key_name(x->key));
    tarn_attrs none = {0};
    switch (x->op->kind) {
    case OP_PUT:
    case OP_PUT_IF:
    case OP_PART:
        x->got = do_put(x, x->op->kind == OP_PART);
        break;
    case OP_COPY:
        x->got = do_copy(x);
        break;
    case OP_GET:
    case OP_GET_VERSION:
        x->got = do_get(x);
        break;
    case OP_DELETE:
    case OP_DELETE_MANY:
    case OP_DELETE_VERSION:
        x->got = do_delete(x);
        break;
    case OP_TAG:
        x->got = do_tag(x);
        break;
    case OP_VERSIONING:
        x->got = do_versioning(x);
        break;
    case OP_UPLOAD:
        x->got = tarn_upload_create(r->s, bucket_of(x, x->key), key, TARN_STR("me"), &none, &x->id, &x->nonce);
        break;
    case OP_ABORT:
        x->got = tarn_upload_abort(r->s, bucket_of(x, x->key), key, r->m.uploads[x->slot].id, r->m.uploads[x->slot].nonce);
        break;
    case OP_COMPLETE:
        x->got = do_complete(x);
        break;
    case OP_TABLE_LOAD:
        x->got = do_table_load(x);
        break;
    case OP_REPAIR:
        x->got = obj_repair_pass(r->s, NULL);
        break;
    case OP_GARBAGE:
        x->got = obj_garbage_pass(r->s, x->op->c % 2 ? 0 : OBJ_GARBAGE_MIN_AGE_MS, NULL);
        break;
    default:
        x->got = do_table(x);
    }
}

/* ------------------------------------------------------------------ settling */
static bool is_trouble(tarn_err err)
{
    return tarn_err_get(err)->http_status >= 500;
}

/* May the store answer with this error, under the faults there are? */
static bool excused(const exec *x)
{
    const run *r = x->r;
    bool reads = x->op->kind == OP_GET || x->op->kind == OP_GET_VERSION || x->op->kind == OP_TABLE_LOAD;
    if (!is_trouble(x->got))
        return false;
    if (tarn_sim_power_lost(r->sim) || r->lenient)
        return true;
    if (r->parity == 0 && r->affected)
        return true;
    if (reads)
        return false;
    /* A copy of the database that found no room is out until there is some: with those of broken drives the quorum may go. */
    return (r->full && (x->got == TARN_E_DISK_FULL || x->got == TARN_E_QUORUM_WRITE)) || !run_must_write(r);
}

static void check_put_result(exec *x)
{
    run *r = x->r;
    mversion *top = &x->e.keys[0].v[0];
    const tarn_version_row *row = &x->put.row;
    if (!tarn_str_eqc(row->etag, top->etag) || row->size != version_size(top) || row->null_version != top->null) {
        wrong(x, "the answer to a write has another ETag, size or version");
        return;
    }
    if (row->seq <= r->seq_max)
        wrong(x, "numbers of versions go backwards");
    top->ids = true;
    top->seq = row->seq;
    top->nonce = row->nonce;
}

static void apply(run *r, const effect *e)
{
    for (size_t i = 0; i < e->keys_n; i++)
        r->m.keys[e->key_ids[i]] = e->keys[i];
    if (e->bucket >= 0) {
        r->m.versioning[e->bucket] = e->versioning;
        r->buckets[e->bucket].versioning = e->versioning;
    }
    if (e->slot >= 0)
        r->m.uploads[e->slot] = e->upload;
    if (e->table >= 0)
        r->m.tables[e->table] = e->table_after;
    if (e->file != SIZE_MAX)
        r->m.files[e->file].there = true;
}

static void old_doubts_end(run *r)
{
    memmove(r->doubts, r->doubts + r->old_doubts_n, (r->doubts_n - r->old_doubts_n) * sizeof r->doubts[0]);
    r->doubts_n -= r->old_doubts_n;
    r->old_doubts_n = 0;
}

void exec_settle(exec *x)
{
    run *r = x->r;
    bool writes_version = x->op->kind == OP_PUT || x->op->kind == OP_PUT_IF || x->op->kind == OP_COPY || x->op->kind == OP_COMPLETE;
    if (x->got == TARN_OK && x->want == TARN_OK && writes_version)
        check_put_result(x);
    if (x->why[0]) {
        run_fail(r, "%s", x->why);
        return;
    }
    if (x->got == x->want) {
        if (x->op->kind == OP_UPLOAD) {
            x->e.upload.id = x->id;
            x->e.upload.nonce = x->nonce;
        }
        if (x->got == TARN_OK && x->changes) {
            apply(r, &x->e);
            old_doubts_end(r);
        }
        r->done_n++;
        return;
    }
    if (!excused(x)) {
        run_fail(r, "the answer is %s, should be %s", tarn_err_get(x->got)->name, tarn_err_get(x->want)->name);
        return;
    }
    if (x->want == TARN_OK && x->changes) {
        TARN_ASSERT(r->doubts_n < TARN_ARRAY_LEN(r->doubts));
        r->doubts[r->doubts_n++] = x->e;
    }
    if (x->got == TARN_E_DISK_FULL && (x->op->seed >> 50) % 2)
        r->resolve = true; /* drives that are full are no reason to start again */
    else
        r->restart = true;
}
