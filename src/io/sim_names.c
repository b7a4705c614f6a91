/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Simulated folders: names as they are seen, as they are durable, and the changes between the two, in their order.
 *
 * Invariant: applying all changes to `durable` gives `now`.
 * Memory, threads: sim_internal.h.
 */
#include "sim_internal.h"

#include <string.h>

/* ------------------------------------------------------------------ a set of names */
static bool name_is(const sim_entry *e, const char *name, size_t n)
{
    return strncmp(e->name, name, n) == 0 && e->name[n] == '\0';
}

static void names_add(sim_names *s, const char *name, size_t n, sim_inode *inode)
{
    if (s->n == s->cap) {
        s->cap = s->cap > 0 ? s->cap * 2 : 8;
        s->e = sim_grow(s->e, s->cap * sizeof s->e[0]);
    }
    inode->refs++;
    inode->names += s->found ? 1 : 0;
    s->e[s->n++] = (sim_entry){sim_text(name, n), inode};
}

static void name_end(const sim_names *s, sim_entry *e)
{
    e->inode->names -= s->found ? 1 : 0;
    tarn_free(e->name);
    sim_inode_unref(e->inode);
}

static void names_remove(sim_names *s, const char *name, size_t n)
{
    for (size_t i = 0; i < s->n; i++) {
        if (!name_is(&s->e[i], name, n))
            continue;
        name_end(s, &s->e[i]);
        memmove(s->e + i, s->e + i + 1, (s->n - i - 1) * sizeof s->e[0]);
        s->n--;
        return;
    }
}

static void names_free(sim_names *s)
{
    for (size_t i = 0; i < s->n; i++) {
        name_end(s, &s->e[i]);
    }
    tarn_free(s->e);
    *s = (sim_names){.found = s->found};
}

/* ------------------------------------------------------------------ a folder */
sim_dir *sim_dir_new(void)
{
    sim_dir *d = sim_alloc(sizeof *d);
    d->end = &d->first;
    d->now.found = true;
    return d;
}

static void change_free(sim_name_change *c)
{
    if (c->inode)
        sim_inode_unref(c->inode);
    tarn_free(c->add);
    tarn_free(c->remove);
    tarn_free(c);
}

static void changes_drop(sim_dir *d)
{
    while (d->first) {
        sim_name_change *c = d->first;
        d->first = c->next;
        change_free(c);
    }
    d->end = &d->first;
}

void sim_dir_free(sim_dir *d)
{
    changes_drop(d);
    names_free(&d->now);
    names_free(&d->durable);
    tarn_free(d);
}

sim_inode *sim_find(const sim_dir *d, const char *name, size_t n)
{
    for (size_t i = 0; i < d->now.n; i++) {
        if (name_is(&d->now.e[i], name, n))
            return d->now.e[i].inode;
    }
    return NULL;
}

static void apply(sim_names *s, const sim_name_change *c)
{
    if (c->remove)
        names_remove(s, c->remove, strlen(c->remove));
    if (c->add) {
        names_remove(s, c->add, strlen(c->add));
        names_add(s, c->add, strlen(c->add), c->inode);
    }
}

void sim_dir_change(sim_dir *d, const char *add, size_t add_n, sim_inode *inode, const char *remove, size_t remove_n)
{
    sim_name_change *c = sim_alloc(sizeof *c);
    if (add) {
        c->add = sim_text(add, add_n);
        c->inode = inode;
        inode->refs++;
    }
    if (remove)
        c->remove = sim_text(remove, remove_n);
    *d->end = c;
    d->end = &c->next;
    apply(&d->now, c);
}

void sim_dir_sync(sim_dir *d)
{
    for (const sim_name_change *c = d->first; c; c = c->next)
        apply(&d->durable, c);
    changes_drop(d);
}

void sim_dir_power_cut(sim_dir *d, sim_rng *r)
{
    uint64_t n = 0, keep, mood = sim_below(r, 4);
    for (const sim_name_change *c = d->first; c; c = c->next)
        n++;
    keep = mood == 0 ? 0 : mood == 1 ? n : sim_below(r, n + 1);
    for (const sim_name_change *c = d->first; c && keep > 0; c = c->next, keep--)
        apply(&d->durable, c);
    if (d->first) {
        changes_drop(d);
        names_free(&d->now);
        for (size_t i = 0; i < d->durable.n; i++)
            names_add(&d->now, d->durable.e[i].name, strlen(d->durable.e[i].name), d->durable.e[i].inode);
    }
    for (size_t i = 0; i < d->now.n; i++) {
        sim_inode *f = d->now.e[i].inode;
        f->locked = false;
        if (f->dir) {
            sim_dir_power_cut(f->dir, r);
        } else {
            sim_settle_some(f, r);
            sim_forget_cache(f);
        }
    }
}

void sim_walk(const sim_dir *d, void (*fn)(void *ctx, sim_inode *f), void *ctx)
{
    for (size_t i = 0; i < d->now.n; i++) {
        if (d->now.e[i].inode->dir)
            sim_walk(d->now.e[i].inode->dir, fn, ctx);
        else
            fn(ctx, d->now.e[i].inode);
    }
}
