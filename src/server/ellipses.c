/* SPDX-License-Identifier: Apache-2.0 */
/*
 * "{1...6}" in the names of drives. Digits count up (leading zeros keep the width: {01...16}), single letters too.
 * Several patterns in a name multiply; the leftmost changes slowest, which is the order that MinIO gives its drives.
 * Pure functions; everything is made in the caller's arena.
 */
#include "options.h"

#define PATTERNS_MAX 4

typedef struct range {
    tarn_str before; /* text in front of the pattern */
    uint64_t from, to;
    size_t width; /* digits; 0: a letter */
} range;

static bool parse_range(tarn_str inner, range *r)
{
    ptrdiff_t dots = tarn_str_find(inner, TARN_STR("..."));
    if (dots <= 0) {
        return false;
    }
    tarn_str a = tarn_str_sub(inner, 0, (size_t)dots), b = tarn_str_sub(inner, (size_t)dots + 3, inner.n);
    if (tarn_str_to_u64(a, &r->from) && tarn_str_to_u64(b, &r->to)) {
        r->width = a.n > 1 && a.p[0] == '0' ? a.n : 1;
        return r->from <= r->to;
    }
    bool letters = a.n == 1 && b.n == 1 && a.p[0] >= 'a' && b.p[0] <= 'z' && a.p[0] <= b.p[0];
    if (letters) {
        r->from = (unsigned char)a.p[0];
        r->to = (unsigned char)b.p[0];
        r->width = 0;
    }
    return letters;
}

static bool parse_pattern(tarn_str text, range *ranges, size_t *n, tarn_str *tail)
{
    *n = 0;
    for (;;) {
        ptrdiff_t open = tarn_str_chr(text, '{');
        if (open < 0) {
            *tail = text;
            return tarn_str_chr(text, '}') < 0;
        }
        tarn_str rest = tarn_str_sub(text, (size_t)open + 1, text.n);
        ptrdiff_t shut = tarn_str_chr(rest, '}');
        if (shut < 0 || *n == PATTERNS_MAX || !parse_range(tarn_str_sub(rest, 0, (size_t)shut), &ranges[*n])) {
            return false;
        }
        ranges[(*n)++].before = tarn_str_sub(text, 0, (size_t)open);
        text = tarn_str_sub(rest, (size_t)shut + 1, rest.n);
    }
}

static void render(tarn_sb *b, const range *ranges, const uint64_t *at, size_t n, tarn_str tail)
{
    for (size_t i = 0; i < n; i++) {
        tarn_sb_str(b, ranges[i].before);
        if (ranges[i].width == 0) {
            tarn_sb_char(b, (char)at[i]);
        } else {
            tarn_sb_fmt(b, "%0*llu", (int)ranges[i].width, (unsigned long long)at[i]);
        }
    }
    tarn_sb_str(b, tail);
}

/* Counts the rightmost up; false after the last. */
static bool step(const range *ranges, uint64_t *at, size_t n)
{
    for (size_t i = n; i > 0; i--) {
        if (at[i - 1] < ranges[i - 1].to) {
            at[i - 1]++;
            return true;
        }
        at[i - 1] = ranges[i - 1].from;
    }
    return false;
}

tarn_err tarn_ellipses(tarn_str pattern, tarn_arena *arena, const char **out, size_t max, size_t *n)
{
    range ranges[PATTERNS_MAX];
    uint64_t at[PATTERNS_MAX];
    size_t ranges_n = 0, made = 0;
    tarn_str tail;
    if (!parse_pattern(pattern, ranges, &ranges_n, &tail)) {
        return TARN_E_INVALID;
    }
    for (size_t i = 0; i < ranges_n; i++) {
        at[i] = ranges[i].from;
    }
    do {
        if (made == max) {
            return TARN_E_LIMIT;
        }
        tarn_sb b;
        tarn_sb_init(&b, TARN_OPTION_BYTES_MAX);
        render(&b, ranges, at, ranges_n, tail);
        out[made] = b.failed ? NULL : tarn_arena_cstr(arena, tarn_sb_view(&b));
        tarn_sb_free(&b);
        if (out[made++] == NULL) {
            return TARN_E_NO_MEMORY;
        }
    } while (step(ranges, at, ranges_n));
    *n = made;
    return TARN_OK;
}
