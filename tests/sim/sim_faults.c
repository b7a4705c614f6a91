/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What happens to drives, within the budget: at most m drives may have lost something since the last healing. A set that
 * tolerates no loss (one drive) meets only faults that are told: errors, and no damage.
 */
#include "sim.h"

#include <stdio.h>

unsigned run_affected_n(const run *r)
{
    return (unsigned)__builtin_popcount(r->affected);
}

bool run_must_write(const run *r)
{
    unsigned n = run_affected_n(r), copies = r->parity + 1;
    if (n == 0)
        return true;
    return n <= r->parity && n + r->quorum <= r->n && n + copies <= r->n;
}

/* The drive, or one that is affected already when the budget is spent. False: none may be. */
static bool choose_drive(run *r, uint32_t a, bool loses, size_t *out)
{
    size_t n = r->n, d = a % n;
    unsigned max = r->parity;
    if (max == 0 && loses)
        return false;
    if (max == 0)
        max = 1;
    if (!(r->affected & (1u << d)) && run_affected_n(r) >= max) {
        for (size_t i = 1; i <= n; i++) {
            if (r->affected & (1u << ((d + i) % n))) {
                d = (d + i) % n;
                break;
            }
        }
    }
    if (!(r->affected & (1u << d)) && run_affected_n(r) >= max)
        return false;
    *out = d;
    return true;
}

static void fault_begin(run *r, const sim_op *op)
{
    static const unsigned kinds[] = {
        TARN_SIM_READ_FAILS,    TARN_SIM_WRITE_FAILS,
        TARN_SIM_SYNC_FAILS,    TARN_SIM_OPEN_FAILS,
        TARN_SIM_READ_ONLY,     TARN_SIM_FULL,
        TARN_SIM_SLOW,          TARN_SIM_READ_FAILS | TARN_SIM_WRITE_FAILS | TARN_SIM_SYNC_FAILS | TARN_SIM_OPEN_FAILS,
        TARN_SIM_READ_CORRUPTS, TARN_SIM_WRITE_LOST,
        TARN_SIM_WRITE_STRAYS};
    static const unsigned chances[] = {1000, 500, 100, 20};
    size_t d, kind = op->b % TARN_ARRAY_LEN(kinds);
    bool silent = kind >= 8;
    if (!choose_drive(r, op->a, silent, &d) || (r->gone & (1u << d)))
        return;
    tarn_sim_fault f = {.faults = kinds[kind], .per_mille = chances[op->c % TARN_ARRAY_LEN(chances)]};
    if (silent) {
        /* A page of the database says what it is, not how new: writes of the metadata that a drive loses in silence are not promised
         * to be noticed. */
        static const char *const where[] = {"/segments/", "/parts/", "/meta/"};
        f.path_has = where[op->c / 8 % (kinds[kind] == TARN_SIM_READ_CORRUPTS ? 3 : 2)];
    }
    tarn_sim_set_fault(r->sim, d, &f);
    r->affected |= 1u << d;
    r->faulty |= 1u << d;
}

static void all_full(run *r, bool full)
{
    static const tarn_sim_fault f = {.faults = TARN_SIM_FULL, .per_mille = 1000};
    for (size_t i = 0; i < r->n; i++) {
        if (!(r->faulty & (1u << i)))
            tarn_sim_set_fault(r->sim, i, full ? &f : NULL);
    }
    r->full = full;
}

/* What the watch does once there is room. */
static void room(run *r)
{
    all_full(r, false);
    for (size_t i = 0; i < r->s->drives_n; i++) {
        obj_drive *d = &r->s->drives[i];
        bool lacks = obj_drive_lacks_copy(r->s, d);
        tarn_err err = obj_drive_copy_again(r->s, d);
        if (lacks && r->verbose)
            (void)printf("     a copy again on drive %zu: %s\n", i, tarn_err_get(err)->name);
        if (err && !tarn_sim_power_lost(r->sim) && !r->affected)
            run_fail(r, "no copy again though there is room: %s", tarn_err_get(err)->name);
    }
}

static void heal_faults(run *r)
{
    for (size_t i = 0; i < r->n; i++)
        tarn_sim_set_fault(r->sim, i, NULL);
    r->faulty = r->gone = 0;
    r->full = false;
}

typedef struct healing {
    run *r;
    unsigned open;
} healing;

static tarn_err heal_version(void *ctx, const tarn_version_row *row)
{
    healing *h = ctx;
    unsigned open = 0;
    tarn_err err = obj_repair_version(h->r->s, row, &open);
    h->open += open;
    return err;
}

/* Parts of an upload that is not complete are nobody's to repair yet: what is short of shards is given up. */
static void give_up_short_uploads(run *r)
{
    for (size_t i = 0; i < SLOTS && !r->failed; i++) {
        mupload *u = &r->m.uploads[i];
        if (!u->open || check_upload_whole(r, u))
            continue;
        tarn_err err = tarn_upload_abort(r->s, &r->buckets[key_bucket(u->key)], tarn_str_of(key_name(u->key)), u->id, u->nonce);
        if (err && !tarn_sim_power_lost(r->sim))
            run_fail(r, "an upload can't be aborted: %s", tarn_err_get(err)->name);
        if (err)
            return;
        u->open = false;
    }
}

/* All drives work again: the store is started, fills what was replaced, repairs everything; then all shards are looked at. */
void heal(run *r)
{
    healing h = {.r = r};
    heal_faults(r);
    run_restart(r, false);
    if (r->failed)
        return;
    tarn_err err = obj_fill_pass(r->s, NULL);
    if (!err)
        give_up_short_uploads(r);
    if (r->failed)
        return;
    if (!err)
        err = obj_repair_pass(r->s, NULL);
    if (!err)
        err = obj_scan_versions(r->s, NULL, heal_version, &h);
    tarn_meta_scrub_counts pages;
    if (!err)
        err = tarn_meta_scrub(tarn_store_meta(r->s), true, NULL, NULL, &pages);
    bool copies = tarn_meta_copies_good(tarn_store_meta(r->s)) == r->s->drives_n;
    if (!err && r->plan->canary != CANARY_HEAL && (h.open > 0 || !copies))
        err = TARN_E_INTERNAL;
    if (tarn_sim_power_lost(r->sim)) {
        r->restart = true;
        return;
    }
    if (err) {
        run_fail(r, "healing: %s, %u shards are left, %zu copies of the metadata are good", tarn_err_get(err)->name, h.open,
                 tarn_meta_copies_good(tarn_store_meta(r->s)));
        return;
    }
    if (r->plan->canary != CANARY_HEAL)
        check_whole(r);
    r->affected = 0;
    check_all(r);
}

static void replace(run *r, const sim_op *op)
{
    size_t d;
    if (!choose_drive(r, op->a, true, &d))
        return;
    tarn_sim_cut_after(r->sim, 0);
    run_close(r);
    tarn_sim_replace_drive(r->sim, d);
    r->affected |= 1u << d;
    r->faulty &= ~(1u << d);
    r->gone &= ~(1u << d);
    if (run_open_forgiving(r, "after a drive was replaced"))
        run_opened(r);
}

static void unplug(run *r, const sim_op *op)
{
    size_t d;
    if (!choose_drive(r, op->a, true, &d))
        return;
    tarn_sim_unplug_drive(r->sim, d);
    r->affected |= 1u << d;
    r->faulty |= 1u << d;
    r->gone |= 1u << d;
}

/* One drive's fault ends; a drive that was away comes back as it went. */
static void healthy(run *r, const sim_op *op)
{
    for (size_t i = 0; i < r->n; i++) {
        size_t d = (op->a + i) % r->n;
        if (r->faulty & (1u << d)) {
            tarn_sim_set_fault(r->sim, d, NULL);
            r->faulty &= ~(1u << d);
            r->gone &= ~(1u << d);
            if (r->full)
                all_full(r, true);
            return;
        }
    }
}

static void damage(run *r, const sim_op *op)
{
    static const char *const where[] = {"/segments/", "/parts/", "/meta/"};
    size_t d;
    if (!choose_drive(r, op->a, true, &d))
        return;
    r->affected |= 1u << d;
    (void)tarn_sim_damage(r->sim, d, where[op->b % TARN_ARRAY_LEN(where)], 1 + op->c % 20);
}

void fault_do(run *r, const sim_op *op)
{
    switch (op->kind) {
    case OP_FAULT:
        fault_begin(r, op);
        break;
    case OP_HEALTHY:
        healthy(r, op);
        break;
    case OP_DAMAGE:
        damage(r, op);
        break;
    case OP_REPLACE:
        replace(r, op);
        break;
    case OP_UNPLUG:
        unplug(r, op);
        break;
    case OP_FULL:
        all_full(r, true);
        break;
    case OP_ROOM:
        if (r->full)
            room(r);
        break;
    case OP_HEAL:
        heal(r);
        break;
    default:
        break;
    }
}
