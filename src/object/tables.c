/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tables and views from their metadata files, when an index is rebuilt. A metadata file says whose it is (tarn_origin, among its
 * attributes); the number in its name (00012-….metadata.json) says how new it is.
 *
 *   the backup has the table, by its uuid      the pointer moves to the newest file, when that is newer
 *   it has not                                 the table is made, its namespace too where that is missing
 *
 * Memory: the rebuild's arena. Threads: the caller's.
 */
#include "rebuild.h"

#define NS_SEPARATOR '\x1f'

/* ------------------------------------------------------------------ collecting */
/* "…/00012-<uuid>.metadata.json" → 12. */
static uint64_t file_number(tarn_str key)
{
    uint64_t n = 0;
    tarn_str digits, rest;
    ptrdiff_t slash = tarn_str_rchr(key, '/');
    tarn_str name = tarn_str_sub(key, (size_t)(slash + 1), key.n);
    return tarn_str_split(name, '-', &digits, &rest) && tarn_str_to_u64(digits, &n) ? n : 0;
}

static bool keep(tarn_arena *a, tarn_str *s)
{
    *s = tarn_arena_str(a, *s);
    return s->p != NULL;
}

tarn_err rb_note_table(rebuild *r, const tarn_bucket_row *bucket, const tarn_version_row *row)
{
    tarn_attrs attrs;
    tarn_origin o;
    tarn_arena *a = tarn_arena_new(4 * TARN_ATTRS_BYTES_MAX);
    tarn_err err = a ? tarn_attrs_unpack(row->attrs, a, &attrs) : TARN_E_NO_MEMORY;
    bool is_one = !err && bucket->warehouse && attrs.origin.n > 0 && tarn_origin_unpack(attrs.origin, &o);
    rb_table *t = is_one ? TARN_ARENA_NEW(r->tables_arena, rb_table) : NULL;
    if (is_one && !t) {
        err = TARN_E_NO_MEMORY;
    }
    if (t) {
        *t = (rb_table){.bucket_id = bucket->id, .number = file_number(row->key), .origin = o};
        t->pointer = tarn_arena_fmt(r->tables_arena, "s3://%.*s/%.*s", TARN_STR_ARG(bucket->name), TARN_STR_ARG(row->key));
        err = t->pointer.p && keep(r->tables_arena, &t->origin.ns_path) && keep(r->tables_arena, &t->origin.name) &&
                      keep(r->tables_arena, &t->origin.uuid) && keep(r->tables_arena, &t->origin.location)
                  ? TARN_OK
                  : TARN_E_NO_MEMORY;
        t->next = r->tables;
        r->tables = t;
    }
    tarn_arena_free(a);
    return err;
}

/* ------------------------------------------------------------------ the table of that uuid, wherever it is */
typedef struct search {
    rebuild *r;
    const rb_table *t;
    tarn_arena *a;
    tarn_entity_row row;
    bool found;
    tarn_err err;
} search;

static bool same_uuid(void *ctx, const tarn_entity_row *row)
{
    search *s = ctx;
    if (!tarn_str_eq(row->uuid, s->t->origin.uuid)) {
        return true;
    }
    s->row = *row;
    s->found = keep(s->a, &s->row.name) && keep(s->a, &s->row.uuid) && keep(s->a, &s->row.location) && keep(s->a, &s->row.pointer);
    s->err = s->found ? TARN_OK : TARN_E_NO_MEMORY;
    return false;
}

typedef struct ns_item {
    struct ns_item *next;
    uint64_t id;
    tarn_str path;
} ns_item;

typedef struct ns_collect {
    tarn_arena *a;
    ns_item *list;
    tarn_err err;
} ns_collect;

static bool take_ns(void *ctx, const tarn_ns_row *row)
{
    ns_collect *c = ctx;
    ns_item *n = TARN_ARENA_NEW(c->a, ns_item);
    if (n) {
        *n = (ns_item){.next = c->list, .id = row->id, .path = tarn_arena_str(c->a, row->path)};
        c->list = n;
    }
    c->err = n && n->path.p ? TARN_OK : TARN_E_NO_MEMORY;
    return c->err == TARN_OK;
}

static tarn_err search_below(search *s, tarn_str parent)
{
    tarn_meta *m = s->r->s->meta;
    ns_collect c = {.a = s->a};
    tarn_err err = tarn_meta_ns_list(m, s->t->bucket_id, parent, TARN_STR(""), take_ns, &c);
    err = err ? err : c.err;
    for (const ns_item *n = c.list; n && !err && !s->found; n = n->next) {
        err = tarn_meta_entity_list(m, s->t->bucket_id, n->id, s->t->origin.kind, TARN_STR(""), same_uuid, s);
        err = err ? err : s->err;
        if (!err && !s->found) {
            err = search_below(s, n->path);
        }
    }
    return err;
}

/* ------------------------------------------------------------------ writing */
typedef struct write_arg {
    rebuild *r;
    const rb_table *t;
    const tarn_entity_row *have; /* NULL: it is made */
} write_arg;

/* The namespace and those above it. */
static tarn_err make_namespaces(rebuild *r, tarn_meta_tx *tx, const rb_table *t, uint64_t *id)
{
    tarn_str path = t->origin.ns_path;
    tarn_err err = TARN_OK;
    for (size_t i = 1; !err && i <= path.n; i++) {
        if (i < path.n && path.p[i] != NS_SEPARATOR) {
            continue;
        }
        tarn_ns_row ns;
        tarn_str upto = tarn_str_sub(path, 0, i);
        err = tarn_meta_ns_get(r->s->meta, tx, t->bucket_id, upto, tarn_meta_tx_arena(tx), &ns);
        if (err == TARN_E_ICE_NO_NAMESPACE) {
            ns =
                (tarn_ns_row){.bucket_id = t->bucket_id, .path = upto, .properties = TARN_STR("{}"), .created_ms = tarn_meta_tx_now_ms(tx)};
            err = tarn_meta_ns_create(tx, &ns);
        }
        *id = ns.id;
    }
    return err;
}

static tarn_err write_fn(tarn_meta_tx *tx, void *arg)
{
    write_arg *w = arg;
    const rb_table *t = w->t;
    int64_t now = tarn_meta_tx_now_ms(tx);
    if (w->have) {
        tarn_entity_row row = *w->have;
        row.pointer = t->pointer;
        row.location = t->origin.location;
        row.updated_ms = now;
        return tarn_meta_entity_swap(tx, &row, w->have->version);
    }
    tarn_entity_row row = {.bucket_id = t->bucket_id,
                           .name = t->origin.name,
                           .kind = t->origin.kind,
                           .uuid = t->origin.uuid,
                           .location = t->origin.location,
                           .pointer = t->pointer,
                           .version = 1,
                           .created_ms = now,
                           .updated_ms = now};
    tarn_err err = make_namespaces(w->r, tx, t, &row.ns_id);
    return err ? err : tarn_meta_entity_create(tx, &row);
}

static void show_ns(tarn_str path, char out[TARN_NS_PATH_BYTES_MAX + 1])
{
    tarn_sb b;
    tarn_sb_init_fixed(&b, out, TARN_NS_PATH_BYTES_MAX + 1);
    for (size_t i = 0; i < path.n; i++) {
        tarn_sb_char(&b, path.p[i] == NS_SEPARATOR ? '.' : path.p[i]);
    }
}

static tarn_err bring_back(rebuild *r, const rb_table *t)
{
    char ns[TARN_NS_PATH_BYTES_MAX + 1];
    search s = {.r = r, .t = t, .a = tarn_arena_new(64u << 20)};
    tarn_err err = s.a ? search_below(&s, TARN_STR("")) : TARN_E_NO_MEMORY;
    show_ns(t->origin.ns_path, ns);
    if (!err && (!s.found || file_number(s.row.pointer) < t->number)) {
        write_arg w = {r, t, s.found ? &s.row : NULL};
        err = tarn_meta_commit(r->s->meta, write_fn, &w);
        if (err == TARN_E_ICE_ALREADY_EXISTS) {
            obj_say(r->to, "left out: %s.%.*s: another table has that name now", ns, TARN_STR_ARG(t->origin.name));
            err = TARN_OK;
        } else if (!err) {
            r->out->tables++;
            obj_say(r->to, "table %s.%.*s: %.*s", ns, TARN_STR_ARG(t->origin.name), TARN_STR_ARG(t->pointer));
        }
    }
    tarn_arena_free(s.a);
    return err;
}

/* Of each table the newest file. */
tarn_err rb_tables(rebuild *r)
{
    tarn_err err = TARN_OK;
    for (const rb_table *t = r->tables; t && !err; t = t->next) {
        bool newest = true;
        for (const rb_table *o = r->tables; o && newest; o = o->next) {
            bool same = o->bucket_id == t->bucket_id && tarn_str_eq(o->origin.uuid, t->origin.uuid);
            newest = !same || o->number <= t->number;
        }
        err = newest ? bring_back(r, t) : TARN_OK;
    }
    return err;
}
