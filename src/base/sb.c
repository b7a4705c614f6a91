/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The string builder, and the reader of packed records that the builder's little-endian half writes.
 *
 * States: good → failed (sticky until reset). In `failed` everything that comes is dropped.
 * Invariant 1: while good and p != NULL: n ≤ max, n + 1 ≤ cap, p[n] == '\0'.
 * Invariant 2: a builder over the caller's memory (fixed) never allocates and never frees.
 * Memory: p is the builder's own unless fixed. Threads: one at a time.
 */
#include "tarn/base.h"

#include <stdio.h>
#include <string.h>

#define SB_FIRST_BYTES ((size_t)128)
#define U64_DIGITS_MAX 20
#define VARINT_BYTES_MAX 10

void tarn_sb_init(tarn_sb *b, size_t max_bytes)
{
    /* One byte of the address range is kept for the NUL. */
    size_t max = max_bytes < SIZE_MAX / 2 ? max_bytes : SIZE_MAX / 2;
    *b = (tarn_sb){.max = max};
}

void tarn_sb_init_fixed(tarn_sb *b, char *mem, size_t mem_bytes)
{
    *b = (tarn_sb){.p = mem, .cap = mem_bytes, .max = mem_bytes > 0 ? mem_bytes - 1 : 0, .fixed = true};
    if (mem_bytes > 0) {
        mem[0] = '\0';
    } else {
        b->failed = true;
    }
}

void tarn_sb_free(tarn_sb *b)
{
    if (!b->fixed) {
        tarn_free(b->p);
    }
    *b = (tarn_sb){.failed = true};
}

void tarn_sb_reset(tarn_sb *b)
{
    b->n = 0;
    b->no_memory = false;
    b->failed = b->fixed && b->cap == 0;
    if (b->cap > 0) {
        b->p[0] = '\0';
    }
}

/* Makes cap ≥ n + need + 1, which it isn't yet. */
static bool grow(tarn_sb *b, size_t need)
{
    if (b->failed) {
        return false;
    }
    if (need > b->max - b->n) {
        b->failed = true;
        return false;
    }
    size_t want = b->n + need + 1;
    TARN_ASSERT(!b->fixed); /* a fixed builder's max is its cap - 1 */
    size_t cap = b->cap > 0 ? b->cap : SB_FIRST_BYTES;
    while (cap < want) {
        cap *= 2; /* max ≤ SIZE_MAX / 2 keeps this from overflowing */
    }
    if (cap > b->max + 1) {
        cap = b->max + 1;
    }
    char *p = tarn_realloc(b->p, cap);
    if (!p) {
        b->failed = b->no_memory = true;
        return false;
    }
    b->p = p;
    b->cap = cap;
    return true;
}

static inline bool room(tarn_sb *b, size_t need)
{
    if (!b->failed && b->cap > b->n && need < b->cap - b->n) {
        return true;
    }
    return grow(b, need);
}

void tarn_sb_bytes(tarn_sb *b, const void *p, size_t n)
{
    if (!room(b, n)) {
        return;
    }
    if (n > 0) {
        memcpy(b->p + b->n, p, n);
    }
    b->n += n;
    b->p[b->n] = '\0';
}

void tarn_sb_str(tarn_sb *b, tarn_str s)
{
    tarn_sb_bytes(b, s.p, s.n);
}

void tarn_sb_cstr(tarn_sb *b, const char *s)
{
    tarn_sb_str(b, tarn_str_of(s));
}

void tarn_sb_char(tarn_sb *b, char c)
{
    if (!room(b, 1)) {
        return;
    }
    b->p[b->n++] = c;
    b->p[b->n] = '\0';
}

void tarn_sb_u64(tarn_sb *b, uint64_t v)
{
    char digits[U64_DIGITS_MAX];
    size_t at = sizeof digits;
    do {
        digits[--at] = (char)('0' + (int)(v % 10));
        v /= 10;
    } while (v > 0);
    tarn_sb_bytes(b, digits + at, sizeof digits - at);
}

void tarn_sb_i64(tarn_sb *b, int64_t v)
{
    if (v >= 0) {
        tarn_sb_u64(b, (uint64_t)v);
        return;
    }
    if (!room(b, 2)) { /* a lone sign must not be left behind when the digits don't fit */
        return;
    }
    tarn_sb_char(b, '-');
    tarn_sb_u64(b, 0 - (uint64_t)v);
}

void tarn_sb_hex(tarn_sb *b, const void *p, size_t n)
{
    static const char digit[] = "0123456789abcdef";
    if (n > SIZE_MAX / 2 || !room(b, n * 2)) {
        b->failed = true;
        return;
    }
    const uint8_t *in = p;
    char *out = b->p + b->n;
    for (size_t i = 0; i < n; i++) {
        out[i * 2] = digit[in[i] >> 4];
        out[i * 2 + 1] = digit[in[i] & 15];
    }
    b->n += n * 2;
    b->p[b->n] = '\0';
}

void tarn_sb_vfmt(tarn_sb *b, const char *fmt, va_list ap)
{
    if (!room(b, 0)) {
        return;
    }
    va_list again;
    va_copy(again, ap);
    size_t left = b->cap - b->n;
    int len = vsnprintf(b->p + b->n, left, fmt, ap);
    if (len < 0) {
        b->failed = true;
    } else if ((size_t)len < left) {
        b->n += (size_t)len;
    } else if (room(b, (size_t)len)) {
        int second = vsnprintf(b->p + b->n, b->cap - b->n, fmt, again);
        TARN_ASSERT(second == len);
        b->n += (size_t)len;
    }
    va_end(again);
    if (b->failed) {
        b->p[b->n] = '\0';
    }
}

tarn_str tarn_str_vfmt(char *mem, size_t mem_bytes, const char *otherwise, const char *fmt, va_list ap)
{
    tarn_sb b;
    tarn_sb_init_fixed(&b, mem, mem_bytes);
    tarn_sb_vfmt(&b, fmt, ap);
    return b.failed ? tarn_str_of(otherwise) : tarn_sb_view(&b);
}

void tarn_sb_fmt(tarn_sb *b, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    tarn_sb_vfmt(b, fmt, ap);
    va_end(ap);
}

char *tarn_sb_reserve(tarn_sb *b, size_t n)
{
    if (!room(b, n)) {
        return NULL;
    }
    b->p[b->n + n] = '\0'; /* holds when the caller fills all of it and adds n */
    return b->p + b->n;
}

tarn_err tarn_sb_err(const tarn_sb *b)
{
    if (!b->failed) {
        return TARN_OK;
    }
    return b->no_memory ? TARN_E_NO_MEMORY : TARN_E_LIMIT;
}

tarn_str tarn_sb_view(const tarn_sb *b)
{
    if (b->failed || b->n == 0) {
        return (tarn_str){"", 0};
    }
    return (tarn_str){b->p, b->n};
}

static void put_le(tarn_sb *b, uint64_t v, size_t n)
{
    uint8_t bytes[8];
    for (size_t i = 0; i < n; i++) {
        bytes[i] = (uint8_t)(v >> (8 * i));
    }
    tarn_sb_bytes(b, bytes, n);
}

void tarn_sb_le16(tarn_sb *b, uint16_t v)
{
    put_le(b, v, 2);
}

void tarn_sb_le32(tarn_sb *b, uint32_t v)
{
    put_le(b, v, 4);
}

void tarn_sb_le64(tarn_sb *b, uint64_t v)
{
    put_le(b, v, 8);
}

void tarn_sb_varint(tarn_sb *b, uint64_t v)
{
    uint8_t bytes[VARINT_BYTES_MAX];
    size_t n = 0;
    while (v >= 0x80) {
        bytes[n++] = (uint8_t)(v | 0x80);
        v >>= 7;
    }
    bytes[n++] = (uint8_t)v;
    tarn_sb_bytes(b, bytes, n);
}

void tarn_sb_lstr(tarn_sb *b, tarn_str s)
{
    tarn_sb_varint(b, s.n);
    tarn_sb_str(b, s);
}

tarn_rd tarn_rd_of(tarn_str s)
{
    return (tarn_rd){.p = (const uint8_t *)s.p, .n = s.n};
}

static bool rd_has(tarn_rd *r, size_t n)
{
    if (r->failed || n > r->n) {
        r->failed = true;
        return false;
    }
    return true;
}

static uint64_t get_le(tarn_rd *r, size_t n)
{
    if (!rd_has(r, n)) {
        return 0;
    }
    uint64_t v = 0;
    for (size_t i = 0; i < n; i++) {
        v |= (uint64_t)r->p[i] << (8 * i);
    }
    r->p += n;
    r->n -= n;
    return v;
}

uint8_t tarn_rd_u8(tarn_rd *r)
{
    return (uint8_t)get_le(r, 1);
}

uint16_t tarn_rd_le16(tarn_rd *r)
{
    return (uint16_t)get_le(r, 2);
}

uint32_t tarn_rd_le32(tarn_rd *r)
{
    return (uint32_t)get_le(r, 4);
}

uint64_t tarn_rd_le64(tarn_rd *r)
{
    return get_le(r, 8);
}

/* Only the shortest form of a number is taken: one record has one encoding, so records may be compared as bytes. */
uint64_t tarn_rd_varint(tarn_rd *r)
{
    uint64_t v = 0;
    for (unsigned i = 0; i < VARINT_BYTES_MAX; i++) {
        uint8_t byte = tarn_rd_u8(r);
        if (r->failed) {
            return 0;
        }
        bool last = (byte & 0x80) == 0;
        if ((i == VARINT_BYTES_MAX - 1 && byte > 1) || (last && byte == 0 && i > 0)) {
            break;
        }
        v |= (uint64_t)(byte & 0x7F) << (7 * i);
        if (last) {
            return v;
        }
    }
    r->failed = true;
    return 0;
}

tarn_str tarn_rd_bytes(tarn_rd *r, size_t n)
{
    if (!rd_has(r, n)) {
        return TARN_STR_NULL;
    }
    tarn_str s = {(const char *)r->p, n};
    if (n > 0) {
        r->p += n;
        r->n -= n;
    }
    return s;
}

tarn_str tarn_rd_lstr(tarn_rd *r)
{
    uint64_t n = tarn_rd_varint(r);
    if (r->failed) {
        return TARN_STR_NULL;
    }
    return tarn_rd_bytes(r, n);
}
