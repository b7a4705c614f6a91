/* SPDX-License-Identifier: Apache-2.0 */
/*
 * iceberg, commits to a table or a view.
 *
 * One try: take the newest state → check the requirements → apply the updates → write the new metadata file → one
 * transaction that makes the file visible and swaps the pointer where it still is the one that the try was built upon.
 * A lost race is tried again from the new state, requirements first.
 *
 * Commits of one worker to one table do not wait for each other's sync. They take turns in a lane: as soon as a commit is
 * in the committer's queue, the next is built upon its state, which may still be on its way (the lane's tip). The queue is
 * worked off in order, so they succeed together, in one sync. When one of them fails, those that were built upon it find
 * another pointer than they expect, fail too, and try again.
 *
 * Invariants: (1) the transaction compares the pointer, not only the version: a state that never came into being can't be
 * built upon by accident; (2) a verdict (an answer, a failed requirement) that rests upon a state on its way is given only
 * when that state's fate is known; (3) the lane's lock is held from choosing the base until the commit is queued, so the
 * order of the queue is the order of the tips; a tip that failed while the next was being built upon it makes the lane's
 * generation move, and what was built is thrown away unqueued; (4) after the transaction nothing turns the answer into an error.
 */
#include <string.h>

#include "commit.h"

/* ------------------------------------------------------------------ states on their way */
typedef struct waiter {
    tarn_link link;
    tarn_fiber *fiber;
} waiter;

static void await(ice_state *s)
{
    while (s->pending) {
        waiter w = {.fiber = tarn_fiber_current()};
        tarn_list_push(&s->waiters, &w.link);
        tarn_fiber_park();
        tarn_list_remove(&w.link);
    }
}

static void resolve(ice_state *s, bool ok)
{
    s->failed = !ok;
    s->pending = false;
    for (tarn_link *l = s->waiters.next; l != &s->waiters; l = l->next)
        tarn_fiber_wake(TARN_CONTAINER_OF(l, waiter, link)->fiber);
}

/* ------------------------------------------------------------------ lanes */
static void clear_tip(ice_lane *l)
{
    ice_state_unref(l->tip);
    tarn_free(l->row_memory);
    l->tip = NULL;
    l->row_memory = NULL;
}

/* Copies the slices of a row into one block; the row then points there. */
static char *row_copy(tarn_entity_row *row)
{
    tarn_str *parts[] = {&row->name, &row->uuid, &row->location, &row->pointer};
    size_t n = 0;
    for (size_t i = 0; i < TARN_ARRAY_LEN(parts); i++)
        n += parts[i]->n;
    char *p = tarn_malloc(n + 1), *at = p;
    for (size_t i = 0; p && i < TARN_ARRAY_LEN(parts); i++) {
        if (parts[i]->n > 0)
            memcpy(at, parts[i]->p, parts[i]->n);
        parts[i]->p = at;
        at += parts[i]->n;
    }
    return p;
}

static bool set_tip(ice_lane *l, ice_state *s, tarn_entity_row row)
{
    char *memory = row_copy(&row);
    if (!memory)
        return false;
    clear_tip(l);
    l->tip = ice_state_ref(s);
    l->row = row;
    l->row_memory = memory;
    return true;
}

static bool row_to_arena(tarn_arena *a, tarn_entity_row *row)
{
    tarn_str *parts[] = {&row->name, &row->uuid, &row->location, &row->pointer};
    for (size_t i = 0; i < TARN_ARRAY_LEN(parts); i++) {
        *parts[i] = tarn_arena_str(a, *parts[i]);
        if (!parts[i]->p)
            return false;
    }
    return true;
}

/* ------------------------------------------------------------------ the base of a try */
static bool tip_fits(const ice_commit *c, const ice_lane *l)
{
    return l->tip && l->row.kind == c->kind && l->row.bucket_id == c->q->wh.id && tarn_str_eq(l->row.name, c->name);
}

/* The row and the state as the database has them. */
tarn_err ice_commit_base(ice_commit *c)
{
    ice_req *q = c->q;
    tarn_err err = c->ns.n > 0 ? tarn_meta_entity_get(q->ice->meta, NULL, q->wh.id, c->ns, c->name, q->a, &c->row) : TARN_E_ICE_NO_TABLE;
    if (err == TARN_E_ICE_NO_NAMESPACE)
        err = TARN_E_ICE_NO_TABLE;
    ICE_TRY(err);
    if (c->row.kind != c->kind)
        return ice_has_assert_create(c->requirements) ? ice_taken(q, c->kind, c->row.kind, c->ns, c->name)
                                                      : ice_no_such(q, c->kind, c->ns, c->name);
    return ice_state_load(q, &c->row, &c->base);
}

static tarn_err choose_base(ice_commit *c, ice_lane *l)
{
    c->generation = l->generation;
    c->on_tip = tip_fits(c, l);
    if (c->on_tip) {
        c->row = l->row;
        c->base = ice_state_ref(l->tip);
        return row_to_arena(c->q->a, &c->row) ? TARN_OK : TARN_E_NO_MEMORY;
    }
    return ice_commit_base(c);
}

/* ------------------------------------------------------------------ building what is to be committed */
static tarn_err apply(ice_commit *c, tarn_arena *scratch, ice_result *r)
{
    ice_ctx ctx;
    ice_ctx_fill(c->q, c->row.pointer, &ctx);
    ctx.arena = scratch;
    if (c->kind == TARN_ENTITY_VIEW)
        return ice_view_apply(c->base->metadata, c->requirements, c->updates, &ctx, r, &c->q->e);
    return ice_table_apply(c->base->metadata, c->requirements, c->updates, &ctx, r, &c->q->e);
}

tarn_err ice_commit_build(ice_commit *c)
{
    ice_result r = {0};
    ice_text text = {0};
    tarn_sb name;
    bool gzip = false;
    tarn_arena *scratch = tarn_arena_new(ICE_LOAD_ARENA_BYTES_MAX);
    char *memory = tarn_arena_alloc(c->q->a, ICE_POINTER_BYTES_MAX);
    if (!scratch || !memory) {
        tarn_arena_free(scratch);
        return TARN_E_NO_MEMORY;
    }
    tarn_err err = apply(c, scratch, &r);
    tarn_arena_free(scratch);
    ICE_TRY(err);
    if (!r.changed) {
        ice_result_release(&r);
        return TARN_OK;
    }
    err = ice_state_write(c->q, r.metadata, c->base, &text);
    if (err != TARN_OK) {
        ice_result_release(&r);
        return err;
    }
    tarn_sb_init_fixed(&name, memory, ICE_POINTER_BYTES_MAX);
    ice_metadata_file_name(r.metadata, c->row.pointer, c->codec_property, &name, &gzip);
    c->next = c->row;
    c->next.pointer = tarn_sb_view(&name);
    c->next.version = c->row.version + 1;
    c->next.updated_ms = tarn_now_ms();
    c->next.location = tarn_arena_str(c->q->a, ice_string_or_empty(r.metadata, "location"));
    c->next.uuid = tarn_arena_str(c->q->a, ice_string_or_empty(r.metadata, c->kind == TARN_ENTITY_VIEW ? "view-uuid" : "table-uuid"));
    json_decref(c->expired);
    c->expired = r.expired_files;
    c->made = ice_state_new(&c->next, r.metadata, &text);
    err = c->made && c->next.pointer.n > 0 ? ice_file_prepare(c->q, c->ns, &c->next, ice_state_text(c->made), gzip, &c->put)
                                           : TARN_E_NO_MEMORY;
    if (err != TARN_OK) {
        ice_state_unref(c->made);
        c->made = NULL;
    }
    return err;
}

/* ------------------------------------------------------------------ the transaction */
/* Swap first, file last: what apply has touched is then never rolled back by a lost race. */
tarn_err ice_commit_swap(tarn_meta_tx *tx, ice_commit *c)
{
    tarn_entity_row now;
    ICE_TRY(tarn_meta_entity_get(NULL, tx, c->row.bucket_id, c->ns, c->name, tarn_meta_tx_arena(tx), &now));
    if (now.id != c->row.id || now.version != c->row.version || !tarn_str_eq(now.pointer, c->row.pointer))
        return TARN_E_ICE_COMMIT_FAILED;
    return tarn_meta_entity_swap(tx, &c->next, c->row.version);
}

static tarn_err commit_in_tx(tarn_meta_tx *tx, void *arg)
{
    ice_commit *c = arg;
    c->fn_ok = false;
    ICE_TRY(ice_commit_swap(tx, c));
    ICE_TRY(tarn_put_apply(c->put, tx, &c->put_result));
    c->fn_ok = true;
    return TARN_OK;
}

/* ------------------------------------------------------------------ one try */
static void drop_base(ice_commit *c)
{
    ice_state_unref(c->base);
    c->base = NULL;
}

/* The verdict stands when its base does; else *again. */
static tarn_err verdict(ice_commit *c, tarn_err err, bool *again)
{
    if (c->base && c->base->pending) {
        await(c->base);
        *again = c->base->failed;
    }
    if (err == TARN_OK && !*again)
        c->made = ice_state_ref(c->base);
    drop_base(c);
    return *again ? TARN_OK : err;
}

static tarn_err queue_commit(ice_commit *c, ice_lane *l, bool *again)
{
    c->made->pending = true;
    bool tipped = set_tip(l, c->made, c->next);
    if (!tipped)
        clear_tip(l);
    l->inflight++;
    tarn_fiber_lock_release(&l->lock);
    tarn_err err = tarn_meta_commit(c->q->ice->meta, commit_in_tx, c);
    l->inflight--;
    resolve(c->made, err == TARN_OK);
    tarn_put_done(c->put, err == TARN_OK);
    c->put = NULL;
    drop_base(c);
    if (err == TARN_OK) {
        ice_cache_put(&c->q->ice->cache, c->made);
        if (l->tip == c->made)
            clear_tip(l);
        return TARN_OK;
    }
    if (l->generation == c->generation) { /* everything that was built upon this one fails with it */
        l->generation++;
        clear_tip(l);
    }
    ice_state_unref(c->made);
    c->made = NULL;
    *again = err == TARN_E_ICE_COMMIT_FAILED && !c->fn_ok;
    return *again ? TARN_OK : ice_commit_outcome(c->q, err, c->fn_ok);
}

/* What was built is not to be committed: the client has gone, or the tip it stands upon has turned out void meanwhile. */
static tarn_err unfit(ice_commit *c, const ice_lane *l, bool *again)
{
    *again = c->on_tip && l->generation != c->generation;
    if (!*again && (c->away || !tarn_req_client_gone(c->q->http)))
        return TARN_OK;
    tarn_put_done(c->put, false);
    c->put = NULL;
    ice_state_unref(c->made);
    c->made = NULL;
    return *again ? TARN_OK : TARN_E_CLOSED;
}

static tarn_err one_try(ice_commit *c, ice_lane *l, bool *again)
{
    *again = false;
    tarn_fiber_lock_acquire(&l->lock);
    tarn_err err = choose_base(c, l);
    if (err == TARN_OK)
        err = ice_commit_build(c);
    if (err == TARN_OK && c->made)
        err = unfit(c, l, again);
    if (err == TARN_OK && c->made)
        return queue_commit(c, l, again);
    tarn_fiber_lock_release(&l->lock);
    if (*again) {
        drop_base(c);
        return TARN_OK;
    }
    return verdict(c, err, again);
}

/* All tries on this worker; `give_up`: the first lost race ends them (*lost), as another worker has the table. */
static tarn_err run_here(ice_commit *c, bool give_up, bool *lost)
{
    ice_worker *w = ice_worker_here(c->q->ice);
    ice_lane *l = w ? ice_lane_enter(w, c->key) : NULL;
    tarn_err err = TARN_OK;
    bool again = true;
    *lost = false;
    if (!l)
        return TARN_E_NO_MEMORY;
    for (unsigned tries = 0; again && err == TARN_OK && !*lost && tries < ICE_COMMIT_TRIES_MAX; tries++) {
        ice_hold_back(c->q->ice, c->key);
        err = one_try(c, l, &again);
        if (again) {
            tarn_metric_add(TARN_M_ICEBERG_RETRIES, 1);
            ice_contended_mark(c->q->ice, c->key);
            *lost = give_up;
        }
    }
    ice_lane_leave(w, l);
    if (err == TARN_OK && again && !*lost)
        err = ice_fail(&c->q->e, TARN_E_ICE_COMMIT_FAILED, "409 Conflict: %.*s was changed by others %d times while this commit was tried",
                       TARN_STR_ARG(ice_show(c->q, c->ns, c->name)), ICE_COMMIT_TRIES_MAX);
    return err;
}

typedef struct away {
    ice_commit *c;
    tarn_err err;
} away;

static void run_away(void *arg)
{
    away *a = arg;
    bool lost = false;
    a->c->away = true;
    a->err = run_here(a->c, false, &lost);
}

static tarn_err run_at_owner(ice_commit *c, ice_worker *owner)
{
    away a = {.c = c};
    bool lost = false;
    if (ice_run_at(owner, run_away, &a))
        return a.err;
    return run_here(c, false, &lost);
}

tarn_err ice_commit_run(ice_commit *c)
{
    tarn_iceberg *ice = c->q->ice;
    bool lost = false;
    tarn_err err;
    c->key = ice_lane_key(c->q->wh.id, c->ns, c->name);
    ice_worker *owner = ice_owner(ice, ice_worker_here(ice), c->key);
    if (owner && ice_contended(ice, c->key))
        err = run_at_owner(c, owner);
    else
        err = run_here(c, owner != NULL, &lost);
    if (err == TARN_OK && lost)
        err = run_at_owner(c, owner);
    if (err == TARN_E_ICE_NO_TABLE && !ice_has_assert_create(c->requirements))
        err = ice_no_such(c->q, c->kind, c->ns, c->name);
    if (err == TARN_OK)
        tarn_metric_add(TARN_M_ICEBERG_COMMITS, 1);
    if (err == TARN_E_ICE_COMMIT_FAILED)
        tarn_metric_add(TARN_M_ICEBERG_CONFLICTS, 1);
    return err;
}

void ice_commit_release(ice_commit *c)
{
    ice_state_unref(c->base);
    ice_state_unref(c->made);
    json_decref(c->expired);
    c->base = c->made = NULL;
    c->expired = NULL;
}

/* ------------------------------------------------------------------ create by commit */
tarn_err ice_commit_build_create(ice_commit *c, json_t **metadata)
{
    ice_ctx ctx;
    ice_result r = {0};
    ice_ctx_fill(c->q, TARN_STR(""), &ctx);
    ICE_TRY(ice_table_apply(NULL, c->requirements, c->updates, &ctx, &r, &c->q->e));
    *metadata = r.metadata;
    json_decref(r.expired_files);
    return TARN_OK;
}

static tarn_err create_by_commit(ice_req *q, ice_commit *c)
{
    json_t *md = NULL;
    tarn_sb text;
    tarn_ns_row ns;
    tarn_entity_row row = {.kind = TARN_ENTITY_TABLE};
    ICE_TRY(ice_namespace(q, &ns));
    ICE_TRY(ice_commit_build_create(c, &md));
    tarn_err err = ice_metadata_text(q, md, &text);
    if (err == TARN_OK) {
        row.uuid = ice_string_or_empty(md, "table-uuid");
        err = ice_entity_create(q, &row, md, tarn_sb_view(&text), "write.metadata.compression-codec");
        if (err == TARN_E_ICE_ALREADY_EXISTS && row.kind == TARN_ENTITY_TABLE)
            err = ice_fail(&q->e, TARN_E_ICE_COMMIT_FAILED, "Requirement failed: table already exists");
        if (err == TARN_OK)
            err = ice_send_metadata(q, row.pointer, tarn_sb_view(&text), false, ice_etag(q, &row, "all"));
        tarn_sb_free(&text);
    }
    json_decref(md);
    return err;
}

/* ------------------------------------------------------------------ handlers */
tarn_str ice_etag(ice_req *q, const tarn_entity_row *row, const char *mode)
{
    return tarn_arena_fmt(q->a, "\"%llx-%llx-%s\"", (unsigned long long)row->id, (unsigned long long)row->version, mode);
}

static tarn_err read_commit(ice_req *q, tarn_entity_kind kind, ice_commit *c)
{
    *c = (ice_commit){.q = q, .kind = kind, .ns = q->ns, .name = q->name, .codec_property = "write.metadata.compression-codec"};
    ICE_TRY(ice_opt_array(q->body, "commit", "requirements", &c->requirements, &q->e));
    return ice_get_array(q->body, "commit", "updates", &c->updates, &q->e);
}

tarn_err ice_h_table_commit(ice_req *q)
{
    ice_commit c;
    ICE_TRY(read_commit(q, TARN_ENTITY_TABLE, &c));
    tarn_err err = ice_commit_run(&c);
    if (err == TARN_E_ICE_NO_TABLE && ice_has_assert_create(c.requirements)) {
        ice_commit_release(&c);
        return create_by_commit(q, &c);
    }
    if (err == TARN_OK) {
        tarn_entity_row row = {.id = c.made->entity_id, .version = c.made->version};
        err = ice_send_metadata(q, c.made->pointer, ice_state_text(c.made), false, ice_etag(q, &row, "all"));
        if (c.expired)
            ice_delete_files(q, c.expired); /* after the answer: a failure here is nobody's business */
    }
    ice_commit_release(&c);
    return err;
}

tarn_err ice_h_view_replace(ice_req *q)
{
    ice_commit c;
    ICE_TRY(read_commit(q, TARN_ENTITY_VIEW, &c));
    tarn_err err = ice_commit_run(&c);
    if (err == TARN_E_ICE_NO_TABLE)
        err = ice_no_such(q, TARN_ENTITY_VIEW, q->ns, q->name);
    if (err == TARN_OK)
        err = ice_send_metadata(q, c.made->pointer, ice_state_text(c.made), true, TARN_STR(""));
    ice_commit_release(&c);
    return err;
}
