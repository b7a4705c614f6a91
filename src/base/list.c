/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The intrusive doubly linked list: a ring with the head as its sentinel.
 *
 * Invariant 1: x->next->prev == x && x->prev->next == x for the head and every item; a removed item is a ring of its own.
 * Memory: the links lie in the caller's structs. Threads: one at a time.
 */
#include "tarn/base.h"

void tarn_list_init(tarn_link *head)
{
    head->prev = head;
    head->next = head;
}

bool tarn_list_empty(const tarn_link *head)
{
    return head->next == head;
}

void tarn_list_push(tarn_link *head, tarn_link *item)
{
    TARN_ASSERT(head->prev->next == head);
    item->prev = head->prev;
    item->next = head;
    head->prev->next = item;
    head->prev = item;
}

void tarn_list_remove(tarn_link *item)
{
    TARN_ASSERT(item->next->prev == item && item->prev->next == item);
    item->prev->next = item->next;
    item->next->prev = item->prev;
    item->prev = item;
    item->next = item;
}

tarn_link *tarn_list_pop(tarn_link *head)
{
    if (tarn_list_empty(head)) {
        return NULL;
    }
    tarn_link *item = head->next;
    tarn_list_remove(item);
    return item;
}
