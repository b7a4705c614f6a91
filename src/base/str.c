/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Byte slices: comparison, search, splitting, checking and numbers.
 *
 * Invariant 1: a slice with n == 0 may have p == NULL, so no function hands p to the C library unless n > 0.
 * Memory: a slice never owns its bytes; what comes back points into what was passed. Threads: any.
 */
#include "tarn/base.h"

#include <string.h>

#define U64_DIGITS_MAX 20
#define HEX_DIGITS_MAX 16

static unsigned char fold(char c)
{
    unsigned char u = (unsigned char)c;
    return (u >= 'A' && u <= 'Z') ? (unsigned char)(u + ('a' - 'A')) : u;
}

tarn_str tarn_str_of(const char *cstr)
{
    return cstr ? (tarn_str){cstr, strlen(cstr)} : TARN_STR_NULL;
}

bool tarn_str_eq(tarn_str a, tarn_str b)
{
    return a.n == b.n && (a.n == 0 || memcmp(a.p, b.p, a.n) == 0);
}

bool tarn_str_eqc(tarn_str a, const char *b)
{
    return tarn_str_eq(a, tarn_str_of(b));
}

static bool ieq_bytes(const char *a, const char *b, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (fold(a[i]) != fold(b[i])) {
            return false;
        }
    }
    return true;
}

bool tarn_str_ieq(tarn_str a, tarn_str b)
{
    return a.n == b.n && ieq_bytes(a.p, b.p, a.n);
}

bool tarn_str_ieqc(tarn_str a, const char *b)
{
    return tarn_str_ieq(a, tarn_str_of(b));
}

int tarn_str_cmp(tarn_str a, tarn_str b)
{
    size_t n = a.n < b.n ? a.n : b.n;
    int c = n > 0 ? memcmp(a.p, b.p, n) : 0;
    if (c != 0) {
        return c < 0 ? -1 : 1;
    }
    return (a.n > b.n) - (a.n < b.n);
}

bool tarn_str_starts(tarn_str s, const char *prefix)
{
    tarn_str x = tarn_str_of(prefix);
    return s.n >= x.n && tarn_str_eq((tarn_str){s.p, x.n}, x);
}

bool tarn_str_istarts(tarn_str s, const char *prefix)
{
    tarn_str x = tarn_str_of(prefix);
    return s.n >= x.n && tarn_str_ieq((tarn_str){s.p, x.n}, x);
}

bool tarn_str_ends(tarn_str s, const char *suffix)
{
    tarn_str x = tarn_str_of(suffix);
    return s.n >= x.n && (x.n == 0 || memcmp(s.p + (s.n - x.n), x.p, x.n) == 0);
}

tarn_str tarn_str_sub(tarn_str s, size_t from, size_t n)
{
    if (from >= s.n) {
        return (tarn_str){s.p ? s.p + s.n : NULL, 0};
    }
    size_t left = s.n - from;
    return (tarn_str){s.p + from, n < left ? n : left};
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t';
}

tarn_str tarn_str_trim(tarn_str s)
{
    while (s.n > 0 && is_blank(s.p[0])) {
        s.p++;
        s.n--;
    }
    while (s.n > 0 && is_blank(s.p[s.n - 1])) {
        s.n--;
    }
    return s;
}

ptrdiff_t tarn_str_chr(tarn_str s, char c)
{
    const char *at = s.n > 0 ? memchr(s.p, c, s.n) : NULL;
    return at ? at - s.p : -1;
}

ptrdiff_t tarn_str_rchr(tarn_str s, char c)
{
    const char *at = s.n > 0 ? memrchr(s.p, c, s.n) : NULL;
    return at ? at - s.p : -1;
}

ptrdiff_t tarn_str_find(tarn_str s, tarn_str needle)
{
    if (needle.n == 0) {
        return 0;
    }
    const char *at = s.n >= needle.n ? memmem(s.p, s.n, needle.p, needle.n) : NULL;
    return at ? at - s.p : -1;
}

bool tarn_str_split(tarn_str s, char sep, tarn_str *head, tarn_str *rest)
{
    ptrdiff_t at = tarn_str_chr(s, sep);
    if (at < 0) {
        *head = s;
        *rest = TARN_STR_NULL;
        return false;
    }
    size_t i = (size_t)at;
    *head = (tarn_str){s.p, i};
    *rest = (tarn_str){s.p + i + 1, s.n - i - 1};
    return true;
}

/* Bytes that follow a lead byte, and the range of the first of them (which is where overlongs and surrogates show). */
static size_t utf8_follow(uint8_t lead, uint8_t *low, uint8_t *high)
{
    *low = 0x80;
    *high = 0xBF;
    if (lead >= 0xC2 && lead <= 0xDF) {
        return 1;
    }
    if (lead >= 0xE0 && lead <= 0xEF) {
        *low = lead == 0xE0 ? 0xA0 : 0x80;
        *high = lead == 0xED ? 0x9F : 0xBF;
        return 2;
    }
    if (lead >= 0xF0 && lead <= 0xF4) {
        *low = lead == 0xF0 ? 0x90 : 0x80;
        *high = lead == 0xF4 ? 0x8F : 0xBF;
        return 3;
    }
    return 0;
}

bool tarn_str_utf8_valid(tarn_str s)
{
    const uint8_t *p = (const uint8_t *)s.p;
    size_t i = 0;
    while (i < s.n) {
        uint64_t word;
        if (s.n - i >= sizeof word) { /* eight ASCII bytes at a time: most keys are nothing else */
            memcpy(&word, p + i, sizeof word);
            if ((word & 0x8080808080808080u) == 0) {
                i += sizeof word;
                continue;
            }
        }
        if (p[i] < 0x80) {
            i++;
            continue;
        }
        uint8_t low;
        uint8_t high;
        size_t follow = utf8_follow(p[i], &low, &high);
        if (follow == 0 || s.n - i <= follow || p[i + 1] < low || p[i + 1] > high) {
            return false;
        }
        for (size_t j = 2; j <= follow; j++) {
            if ((p[i + j] & 0xC0) != 0x80) {
                return false;
            }
        }
        i += follow + 1;
    }
    return true;
}

bool tarn_str_to_u64(tarn_str s, uint64_t *out)
{
    if (s.n == 0 || s.n > U64_DIGITS_MAX) {
        return false;
    }
    uint64_t v = 0;
    for (size_t i = 0; i < s.n; i++) {
        if (s.p[i] < '0' || s.p[i] > '9') {
            return false;
        }
        if (__builtin_mul_overflow(v, (uint64_t)10, &v) || __builtin_add_overflow(v, (uint64_t)(s.p[i] - '0'), &v)) {
            return false;
        }
    }
    *out = v;
    return true;
}

bool tarn_str_to_i64(tarn_str s, int64_t *out)
{
    bool negative = s.n > 0 && s.p[0] == '-';
    uint64_t v;
    if (!tarn_str_to_u64(negative ? tarn_str_sub(s, 1, s.n) : s, &v)) {
        return false;
    }
    uint64_t limit = (uint64_t)INT64_MAX + (negative ? 1u : 0u);
    if (v > limit) {
        return false;
    }
    if (!negative) {
        *out = (int64_t)v;
    } else {
        *out = v == limit ? INT64_MIN : -(int64_t)v;
    }
    return true;
}

bool tarn_hex_to_u64(tarn_str s, uint64_t *out)
{
    if (s.n == 0 || s.n > HEX_DIGITS_MAX) {
        return false;
    }
    uint64_t v = 0;
    for (size_t i = 0; i < s.n; i++) {
        unsigned char c = fold(s.p[i]);
        if (c >= '0' && c <= '9') {
            v = v << 4 | (uint64_t)(c - '0');
        } else if (c >= 'a' && c <= 'f') {
            v = v << 4 | (uint64_t)(c - 'a' + 10);
        } else {
            return false;
        }
    }
    *out = v;
    return true;
}
