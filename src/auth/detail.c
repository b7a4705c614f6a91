/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Filling in tarn_err_detail: what an error answer says beside its code. Nothing here ever takes a secret, a signing key or
 * a signature that we computed.
 * Memory: texts lie in the request's arena or are literals. Threads: the request's fiber.
 */
#include "auth_private.h"

#include <stdarg.h>

#define DETAIL_TEXT_BYTES_MAX 1024

void tarn_err_detail_add(tarn_err_detail *d, const char *name, tarn_str value)
{
    if (!d || d->fields_n >= TARN_ERR_FIELDS_MAX || (value.n > 0 && !value.p)) {
        return;
    }
    d->fields[d->fields_n++] = (tarn_pair){tarn_str_of(name), value};
}

tarn_err auth_fail(tarn_err_detail *d, tarn_err e, const char *message)
{
    if (d) {
        d->message = tarn_str_of(message);
    }
    return e;
}

tarn_err auth_failf(tarn_err_detail *d, tarn_arena *arena, tarn_err e, const char *fmt, ...)
{
    if (!d) {
        return e;
    }
    char mem[DETAIL_TEXT_BYTES_MAX];
    va_list ap;
    va_start(ap, fmt);
    /* A text that does not fit leaves the table's own message standing. */
    tarn_str text = tarn_str_vfmt(mem, sizeof mem, "", fmt, ap);
    va_end(ap);
    d->message = tarn_arena_str(arena, text);
    return e;
}

tarn_err auth_fail_argument(tarn_err_detail *d, const char *message, const char *argument_name)
{
    tarn_err_detail_add(d, "ArgumentName", tarn_str_of(argument_name));
    return auth_fail(d, TARN_E_INVALID_ARGUMENT, message);
}

tarn_str auth_spaced_hex(tarn_arena *arena, tarn_str s)
{
    static const char digits[] = "0123456789abcdef";
    if (s.n == 0) {
        return TARN_STR("");
    }
    char *p = tarn_arena_alloc(arena, s.n * 3);
    if (!p) {
        return TARN_STR_NULL;
    }
    for (size_t i = 0; i < s.n; i++) {
        unsigned char c = (unsigned char)s.p[i];
        p[3 * i] = digits[c >> 4];
        p[3 * i + 1] = digits[c & 15];
        p[3 * i + 2] = ' ';
    }
    return (tarn_str){p, s.n * 3 - 1};
}

tarn_str auth_iso_text(tarn_arena *arena, int64_t ms)
{
    char text[40];
    tarn_sb b;
    tarn_sb_init_fixed(&b, text, sizeof text);
    tarn_sb_iso8601_s(&b, ms);
    return tarn_arena_str(arena, tarn_sb_view(&b));
}
