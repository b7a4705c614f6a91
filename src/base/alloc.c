/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The allocation seam. Everything that takes memory from the system goes through here, so that a test can make the nth
 * allocation fail, and so that there is one place to count them.
 *
 * Invariant 1: a request for 0 bytes yields a pointer that is not NULL: NULL always means "out of memory".
 * Invariant 2: fail_left counts down to 0 exactly once per tarn_alloc_fail_after: only one allocation fails.
 * Memory: the caller's. Threads: any.
 */
#include "tarn/base.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define ALIGN_MIN_BYTES 64

static _Atomic uint64_t alloc_count;
static _Atomic uint64_t fail_left;
static _Thread_local bool spared;

/* Counts an allocation; true when a test wants this one to fail. */
static bool seam_fails(void)
{
    if (spared) {
        return false;
    }
    atomic_fetch_add_explicit(&alloc_count, 1, memory_order_relaxed);
    uint64_t left = atomic_load_explicit(&fail_left, memory_order_relaxed);
    while (left != 0) {
        if (atomic_compare_exchange_weak_explicit(&fail_left, &left, left - 1, memory_order_relaxed, memory_order_relaxed)) {
            return left == 1;
        }
    }
    return false;
}

void *tarn_malloc(size_t n)
{
    return seam_fails() ? NULL : malloc(n > 0 ? n : 1);
}

void *tarn_calloc(size_t count, size_t size)
{
    size_t n;
    if (seam_fails() || __builtin_mul_overflow(count, size, &n)) {
        return NULL;
    }
    return calloc(1, n > 0 ? n : 1);
}

void *tarn_realloc(void *p, size_t n)
{
    return seam_fails() ? NULL : realloc(p, n > 0 ? n : 1);
}

void tarn_free(void *p)
{
    free(p);
}

void *tarn_aligned_alloc(size_t align, size_t n)
{
    TARN_ASSERT((align & (align - 1)) == 0);
    size_t a = align < ALIGN_MIN_BYTES ? ALIGN_MIN_BYTES : align;
    void *p = NULL;
    if (seam_fails() || posix_memalign(&p, a, n > 0 ? n : 1) != 0) {
        return NULL;
    }
    return p;
}

char *tarn_strdup(tarn_str s)
{
    if (s.n == SIZE_MAX) {
        return NULL;
    }
    char *p = tarn_malloc(s.n + 1);
    if (!p) {
        return NULL;
    }
    if (s.n > 0) {
        memcpy(p, s.p, s.n);
    }
    p[s.n] = '\0';
    return p;
}

void tarn_wipe(void *p, size_t n)
{
    if (n > 0) {
        explicit_bzero(p, n);
    }
}

void tarn_alloc_fail_after(uint64_t nth)
{
    atomic_store_explicit(&fail_left, nth, memory_order_relaxed);
}

uint64_t tarn_alloc_count(void)
{
    return atomic_load_explicit(&alloc_count, memory_order_relaxed);
}

void tarn_alloc_spare(bool on)
{
    spared = on;
}
