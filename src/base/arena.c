/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A bump allocator over a chain of blocks. The first block lies in the same allocation as the arena itself, so that a
 * small request costs one malloc in all.
 *
 * Invariant 1: used_bytes ≤ max_bytes ≤ SIZE_MAX / 2, where every allocation counts rounded up to ARENA_ALIGN.
 * Invariant 2: at ≤ end, both multiples of ARENA_ALIGN; [at, end) is the free rest of the newest block.
 * Memory: everything allocated from an arena belongs to it and dies with reset or free. Threads: one at a time.
 */
#include "tarn/base.h"

#include <stdio.h>
#include <string.h>

#define ARENA_ALIGN ((size_t)16)
#define ARENA_FIRST_BYTES ((size_t)8192)
#define ARENA_BLOCK_BYTES_MAX ((size_t)256 * 1024)

typedef struct arena_block {
    _Alignas(16) struct arena_block *next;
} arena_block;

struct tarn_arena {
    _Alignas(16) char *at;
    char *end;
    arena_block *blocks; /* all but the first, newest in front */
    size_t used_bytes;
    size_t max_bytes;
    size_t first_bytes;
    size_t next_block_bytes;
};

static size_t round_up(size_t n)
{
    return (n + (ARENA_ALIGN - 1)) & ~(ARENA_ALIGN - 1);
}

static void start_over(tarn_arena *a)
{
    a->at = (char *)(a + 1);
    a->end = a->at + a->first_bytes;
    a->blocks = NULL;
    a->used_bytes = 0;
    a->next_block_bytes = ARENA_FIRST_BYTES * 2;
}

tarn_arena *tarn_arena_new(size_t max_bytes)
{
    /* Nothing larger can be had, and half of the range leaves room for rounding and headers. */
    max_bytes = max_bytes < SIZE_MAX / 2 ? max_bytes : SIZE_MAX / 2;
    size_t first = max_bytes < ARENA_FIRST_BYTES ? round_up(max_bytes) : ARENA_FIRST_BYTES;
    tarn_arena *a = tarn_malloc(sizeof *a + first);
    if (!a) {
        return NULL;
    }
    a->max_bytes = max_bytes;
    a->first_bytes = first;
    start_over(a);
    return a;
}

static void free_blocks(tarn_arena *a)
{
    arena_block *b = a->blocks;
    while (b) {
        arena_block *next = b->next;
        tarn_free(b);
        b = next;
    }
    a->blocks = NULL;
}

void tarn_arena_free(tarn_arena *a)
{
    if (!a) {
        return;
    }
    free_blocks(a);
    tarn_free(a);
}

void tarn_arena_reset(tarn_arena *a)
{
    free_blocks(a);
    start_over(a);
}

/* A new block for `need` bytes. One that serves a single large allocation leaves the rest of the current block in use. */
static void *alloc_from_new_block(tarn_arena *a, size_t need)
{
    size_t usual = a->next_block_bytes;
    bool single = need > usual / 2;
    arena_block *b = tarn_malloc(sizeof *b + (single ? need : usual));
    if (!b) {
        return NULL;
    }
    b->next = a->blocks;
    a->blocks = b;
    char *p = (char *)(b + 1);
    if (!single) {
        a->at = p + need;
        a->end = p + usual;
        a->next_block_bytes = usual * 2 < ARENA_BLOCK_BYTES_MAX ? usual * 2 : ARENA_BLOCK_BYTES_MAX;
    }
    return p;
}

void *tarn_arena_alloc(tarn_arena *a, size_t n)
{
    if (n > a->max_bytes) { /* also keeps the rounding from overflowing */
        return NULL;
    }
    size_t need = n > 0 ? round_up(n) : ARENA_ALIGN;
    if (need > a->max_bytes - a->used_bytes) {
        return NULL;
    }
    void *p;
    if (need <= (size_t)(a->end - a->at)) {
        p = a->at;
        a->at += need;
    } else {
        p = alloc_from_new_block(a, need);
        if (!p) {
            return NULL;
        }
    }
    a->used_bytes += need;
    TARN_ASSERT(a->used_bytes <= a->max_bytes);
    return p;
}

void *tarn_arena_zalloc(tarn_arena *a, size_t n)
{
    void *p = tarn_arena_alloc(a, n);
    if (p) {
        memset(p, 0, n);
    }
    return p;
}

void *tarn_arena_array(tarn_arena *a, size_t size, size_t count)
{
    size_t n;
    return __builtin_mul_overflow(size, count, &n) ? NULL : tarn_arena_zalloc(a, n);
}

size_t tarn_arena_used(const tarn_arena *a)
{
    return a->used_bytes;
}

tarn_str tarn_arena_str(tarn_arena *a, tarn_str s)
{
    char *p = s.n < SIZE_MAX ? tarn_arena_alloc(a, s.n + 1) : NULL;
    if (!p) {
        return TARN_STR_NULL;
    }
    if (s.n > 0) {
        memcpy(p, s.p, s.n);
    }
    p[s.n] = '\0';
    return (tarn_str){p, s.n};
}

char *tarn_arena_cstr(tarn_arena *a, tarn_str s)
{
    if (tarn_str_chr(s, '\0') >= 0 || s.n == SIZE_MAX) {
        return NULL;
    }
    char *p = tarn_arena_alloc(a, s.n + 1);
    if (!p) {
        return NULL;
    }
    if (s.n > 0) {
        memcpy(p, s.p, s.n);
    }
    p[s.n] = '\0';
    return p;
}

tarn_str tarn_arena_fmt(tarn_arena *a, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    va_list again;
    va_copy(again, ap);
    int len = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    tarn_str s = TARN_STR_NULL;
    if (len >= 0) {
        size_t n = (size_t)len;
        char *p = tarn_arena_alloc(a, n + 1);
        if (p && vsnprintf(p, n + 1, fmt, again) == len) {
            s = (tarn_str){p, n};
        }
    }
    va_end(again);
    return s;
}
