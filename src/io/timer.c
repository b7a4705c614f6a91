/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Timers of a loop: a pairing heap, keyed by the time at which they are due.
 *
 * Chosen over an array heap because the nodes lie in their owners and nothing is ever allocated: arming a timer cannot
 * fail. Arming costs O(1), the rest O(log n) amortised.
 *
 * Invariants:
 *  1. No node has a smaller key than its parent.
 *  2. The root has neither `prev` nor `next`; a first child's `prev` is its parent.
 *  3. A disarmed node is linked nowhere.
 * Ownership: the owner of a node disarms it before it goes. Threads: the loop's only.
 */
#include "io_internal.h"

/* Two roots become one. */
static tarn_timer *meld(tarn_timer *a, tarn_timer *b)
{
    if (!a)
        return b;
    if (!b)
        return a;
    if (b->key_ns < a->key_ns) {
        tarn_timer *swap = a;
        a = b;
        b = swap;
    }
    b->prev = a;
    b->next = a->child;
    if (a->child)
        a->child->prev = b;
    a->child = b;
    return a;
}

/* The children of a removed node become one tree: in pairs from the left, then all from the right. */
static tarn_timer *meld_children(tarn_timer *first)
{
    tarn_timer *pairs = NULL; /* a stack, linked by next */
    while (first) {
        tarn_timer *a = first;
        tarn_timer *b = a->next;
        first = b ? b->next : NULL;
        a->next = a->prev = NULL;
        if (b)
            b->next = b->prev = NULL;
        a = meld(a, b);
        a->next = pairs;
        pairs = a;
    }
    tarn_timer *root = NULL;
    while (pairs) {
        tarn_timer *a = pairs;
        pairs = a->next;
        a->next = a->prev = NULL;
        root = meld(root, a);
    }
    return root;
}

void tarn_timer_disarm(tarn_loop *loop, tarn_timer *t)
{
    if (!t->armed)
        return;
    tarn_timer *sub = meld_children(t->child);
    if (t == loop->timers) {
        loop->timers = sub;
    } else {
        TARN_ASSERT(t->prev != NULL);
        if (t->prev->child == t)
            t->prev->child = t->next;
        else
            t->prev->next = t->next;
        if (t->next)
            t->next->prev = t->prev;
        loop->timers = meld(loop->timers, sub);
    }
    t->child = t->next = t->prev = NULL;
    t->armed = false;
}

void tarn_timer_arm(tarn_loop *loop, tarn_timer *t, uint64_t key_ns)
{
    tarn_timer_disarm(loop, t);
    t->key_ns = key_ns;
    t->child = t->next = t->prev = NULL;
    t->armed = true;
    loop->timers = meld(loop->timers, t);
}

void tarn_timers_expire(tarn_loop *loop, uint64_t now_ns)
{
    while (loop->timers && loop->timers->key_ns <= now_ns) {
        tarn_timer *t = loop->timers;
        tarn_timer_disarm(loop, t);
        t->fn(t);
    }
}
