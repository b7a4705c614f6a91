/* SPDX-License-Identifier: Apache-2.0 */
/*
 * iceberg, transactions/commit: changes of several tables, all or nothing.
 *
 * Every change is built from its table's newest state (requirements, updates, new metadata file), then ONE transaction
 * swaps all pointers, creates the tables that are new, and makes the files visible. When one pointer has moved, nothing of
 * it stands, and everything is built anew.
 */
#include <string.h>

#include "commit.h"

typedef struct change {
    ice_commit c;
    bool create;
} change;

#define LOSSES_BEFORE_RESERVING 2

typedef struct batch {
    ice_req *q;
    bool reserved;
    change *changes;
    size_t n;
    size_t failed; /* the change whose step failed in the transaction */
    bool fn_ok;
} batch;

/* ------------------------------------------------------------------ reading */
static tarn_err read_change(ice_req *q, const json_t *item, ice_commit *c)
{
    *c = (ice_commit){.q = q, .kind = TARN_ENTITY_TABLE, .codec_property = "write.metadata.compression-codec"};
    if (!json_is_object(item))
        return ice_fail(&q->e, TARN_E_ICE_BAD_REQUEST, "Cannot parse transaction: a table change must be an object");
    ICE_TRY(ice_identifier(q, ice_get(item, "identifier"), &c->ns, &c->name));
    ICE_TRY(ice_opt_array(item, "table change", "requirements", &c->requirements, &q->e));
    return ice_get_array(item, "table change", "updates", &c->updates, &q->e);
}

static tarn_err read_batch(ice_req *q, batch *b)
{
    json_t *list = NULL;
    ICE_TRY(ice_get_array(q->body, "transaction", "table-changes", &list, &q->e));
    b->q = q;
    b->n = json_array_size(list);
    if (b->n > ICE_TX_TABLES_MAX)
        return ice_fail(&q->e, TARN_E_ICE_BAD_REQUEST, "Cannot parse transaction: %zu tables, %d are allowed", b->n, ICE_TX_TABLES_MAX);
    b->changes = TARN_ARENA_ARRAY(q->a, change, b->n + 1);
    if (!b->changes)
        return TARN_E_NO_MEMORY;
    for (size_t i = 0; i < b->n; i++) {
        ice_commit *c = &b->changes[i].c;
        ICE_TRY(read_change(q, json_array_get(list, i), c));
        for (size_t k = 0; k < i; k++)
            if (tarn_str_eq(c->ns, b->changes[k].c.ns) && tarn_str_eq(c->name, b->changes[k].c.name))
                return ice_fail(&q->e, TARN_E_ICE_BAD_REQUEST, "Cannot parse transaction: %.*s is in it twice",
                                TARN_STR_ARG(ice_show(q, c->ns, c->name)));
    }
    return TARN_OK;
}

/* ------------------------------------------------------------------ building */
static tarn_err build_create(ice_req *q, change *ch)
{
    ice_commit *c = &ch->c;
    json_t *md = NULL;
    tarn_sb text, name;
    tarn_ns_row ns;
    bool gzip = false;
    char *memory = tarn_arena_alloc(q->a, ICE_POINTER_BYTES_MAX);
    tarn_err err = memory ? tarn_meta_ns_get(q->ice->meta, NULL, q->wh.id, c->ns, q->a, &ns) : TARN_E_NO_MEMORY;
    if (err == TARN_E_ICE_NO_NAMESPACE)
        return ice_no_namespace(q, c->ns);
    ICE_TRY(err);
    ICE_TRY(ice_commit_build_create(c, &md));
    err = ice_metadata_text(q, md, &text);
    if (err != TARN_OK) {
        json_decref(md);
        return err;
    }
    tarn_sb_init_fixed(&name, memory, ICE_POINTER_BYTES_MAX);
    ice_metadata_file_name(md, TARN_STR(""), c->codec_property, &name, &gzip);
    c->next = (tarn_entity_row){.bucket_id = q->wh.id,
                                .ns_id = ns.id,
                                .name = c->name,
                                .kind = TARN_ENTITY_TABLE,
                                .uuid = tarn_arena_str(q->a, ice_string_or_empty(md, "table-uuid")),
                                .location = tarn_arena_str(q->a, ice_string_or_empty(md, "location")),
                                .pointer = tarn_sb_view(&name),
                                .version = 1};
    c->next.created_ms = c->next.updated_ms = tarn_now_ms();
    ch->create = true;
    err = ice_file_prepare(q, c->ns, &c->next, tarn_sb_view(&text), gzip, &c->put);
    tarn_sb_free(&text);
    json_decref(md);
    return err;
}

static tarn_err build_one(ice_req *q, change *ch)
{
    tarn_err err = ice_commit_base(&ch->c);
    ch->create = false;
    if (err == TARN_E_ICE_NO_TABLE && ice_has_assert_create(ch->c.requirements))
        return build_create(q, ch);
    if (err == TARN_E_ICE_NO_TABLE)
        return ice_no_such(q, TARN_ENTITY_TABLE, ch->c.ns, ch->c.name);
    return err == TARN_OK ? ice_commit_build(&ch->c) : err;
}

/* Requirements of all tables come before any file is written: a transaction that can't stand costs nothing. */
static tarn_err check_first(batch *b)
{
    for (size_t i = 0; i < b->n; i++) {
        ice_commit *c = &b->changes[i].c;
        tarn_err err = ice_commit_base(c);
        if (err == TARN_OK)
            err = ice_check_requirements(c->base->metadata, c->requirements, &b->q->e);
        else if (err == TARN_E_ICE_NO_TABLE && !ice_has_assert_create(c->requirements))
            err = ice_no_such(b->q, TARN_ENTITY_TABLE, c->ns, c->name);
        else if (err == TARN_E_ICE_NO_TABLE)
            err = TARN_OK;
        ice_commit_release(c);
        ICE_TRY(err);
    }
    return TARN_OK;
}

static void release(batch *b, bool committed)
{
    for (size_t i = 0; i < b->n; i++) {
        ice_commit *c = &b->changes[i].c;
        if (c->put)
            tarn_put_done(c->put, committed);
        c->put = NULL;
        ice_commit_release(c);
    }
}

/* ------------------------------------------------------------------ the transaction */
static tarn_err batch_in_tx(tarn_meta_tx *tx, void *arg)
{
    batch *b = arg;
    b->fn_ok = false;
    for (size_t i = 0; i < b->n; i++) {
        b->failed = i;
        if (b->changes[i].create)
            ICE_TRY(tarn_meta_entity_create(tx, &b->changes[i].c.next));
        else if (b->changes[i].c.made)
            ICE_TRY(ice_commit_swap(tx, &b->changes[i].c));
    }
    for (size_t i = 0; i < b->n; i++)
        if (b->changes[i].c.put)
            ICE_TRY(tarn_put_apply(b->changes[i].c.put, tx, &b->changes[i].c.put_result));
    b->fn_ok = true;
    return TARN_OK;
}

static tarn_err explain(batch *b, tarn_err err)
{
    ice_commit *c = &b->changes[b->failed].c;
    if (err == TARN_E_ICE_NO_NAMESPACE)
        return ice_no_namespace(b->q, c->ns);
    if (err == TARN_E_ICE_NO_TABLE)
        return ice_no_such(b->q, TARN_ENTITY_TABLE, c->ns, c->name);
    return ice_commit_outcome(b->q, err, b->fn_ok);
}

static bool writes(const batch *b)
{
    for (size_t i = 0; i < b->n; i++)
        if (b->changes[i].c.put)
            return true;
    return false;
}

static tarn_err one_try(batch *b, bool *again)
{
    tarn_err err = TARN_OK;
    *again = false;
    for (size_t i = 0; i < b->n && err == TARN_OK; i++)
        err = build_one(b->q, &b->changes[i]);
    if (err == TARN_OK && tarn_req_client_gone(b->q->http))
        err = TARN_E_CLOSED;
    if (err == TARN_OK && writes(b)) {
        err = tarn_meta_commit(b->q->ice->meta, batch_in_tx, b);
        /* A table that somebody else has just made, or a pointer that has moved: look again at what is there now. */
        *again = !b->fn_ok && (err == TARN_E_ICE_COMMIT_FAILED || err == TARN_E_ICE_ALREADY_EXISTS);
        if (*again)
            err = TARN_OK;
        else if (err != TARN_OK)
            err = explain(b, err);
    }
    return err;
}

/* Commits to the batch's tables hold back while it is on. */
static void reserve(batch *b, bool on)
{
    for (size_t i = 0; b->reserved != on && i < b->n; i++)
        ice_reserve(b->q->ice, ice_lane_key(b->q->wh.id, b->changes[i].c.ns, b->changes[i].c.name), on);
    b->reserved = on;
}

static void keep_states(batch *b)
{
    for (size_t i = 0; i < b->n; i++)
        if (b->changes[i].c.made)
            ice_cache_put(&b->q->ice->cache, b->changes[i].c.made);
}

tarn_err ice_h_transaction(ice_req *q)
{
    batch b = {0};
    bool again = true;
    ICE_TRY(read_batch(q, &b));
    tarn_err err = check_first(&b);
    for (unsigned tries = 0; err == TARN_OK && again && tries < ICE_COMMIT_TRIES_MAX; tries++) {
        if (tries > 0)
            tarn_metric_add(TARN_M_ICEBERG_RETRIES, 1);
        if (tries == LOSSES_BEFORE_RESERVING)
            reserve(&b, true);
        err = one_try(&b, &again);
        if (err == TARN_OK && !again) {
            reserve(&b, false);
            keep_states(&b);
            tarn_metric_add(TARN_M_ICEBERG_COMMITS, (int64_t)b.n);
            err = ice_send_empty(q, 204);
            for (size_t i = 0; i < b.n; i++)
                if (b.changes[i].c.expired)
                    ice_delete_files(q, b.changes[i].c.expired);
            release(&b, true);
            return err;
        }
        release(&b, false);
    }
    reserve(&b, false);
    if (err == TARN_OK)
        err = ice_fail(&q->e, TARN_E_ICE_COMMIT_FAILED, "409 Conflict: a table of the transaction was changed by others %d times",
                       ICE_COMMIT_TRIES_MAX);
    if (err == TARN_E_ICE_COMMIT_FAILED)
        tarn_metric_add(TARN_M_ICEBERG_CONFLICTS, 1);
    return err;
}
