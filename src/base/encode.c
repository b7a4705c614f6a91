/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Base64 (both alphabets), hexadecimal and percent-encoding.
 *
 * Invariant 1: a decoder takes exactly what the encoder writes: no blanks, no missing or extra padding, and no bits set
 * behind the last byte, so that one value has one text and a comparison of texts is a comparison of values.
 * Memory: encoders write to the builder, decoders to the caller's memory or arena. Threads: any.
 */
#include "tarn/base.h"

#include <string.h>

static const char alphabet_std[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
static const char alphabet_url[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

static void encode64(tarn_sb *b, const uint8_t *in, size_t n, const char *alphabet, bool pad)
{
    size_t full = n / 3;
    size_t rest = n % 3;
    if (full > SIZE_MAX / 4 - 1) {
        b->failed = true;
        return;
    }
    size_t rest_chars = rest == 0 ? 0 : (pad ? 4 : rest + 1);
    size_t chars = full * 4 + rest_chars;
    char *out = tarn_sb_reserve(b, chars);
    if (!out) {
        return;
    }
    for (size_t i = 0; i < full; i++, in += 3, out += 4) {
        uint32_t v = (uint32_t)in[0] << 16 | (uint32_t)in[1] << 8 | in[2];
        out[0] = alphabet[v >> 18];
        out[1] = alphabet[v >> 12 & 63];
        out[2] = alphabet[v >> 6 & 63];
        out[3] = alphabet[v & 63];
    }
    if (rest > 0) {
        uint32_t v = (uint32_t)in[0] << 16 | (rest > 1 ? (uint32_t)in[1] << 8 : 0);
        char last[4] = {alphabet[v >> 18], alphabet[v >> 12 & 63], rest > 1 ? alphabet[v >> 6 & 63] : '=', '='};
        memcpy(out, last, rest_chars);
    }
    b->n += chars;
}

void tarn_sb_base64(tarn_sb *b, const void *p, size_t n)
{
    encode64(b, p, n, alphabet_std, true);
}

void tarn_sb_base64url(tarn_sb *b, const void *p, size_t n)
{
    encode64(b, p, n, alphabet_url, false);
}

/* The value of a digit, or -1. c62 and c63 are the last two of the alphabet. */
static int digit64(char c, char c62, char c63)
{
    if (c >= 'A' && c <= 'Z') {
        return c - 'A';
    }
    if (c >= 'a' && c <= 'z') {
        return c - 'a' + 26;
    }
    if (c >= '0' && c <= '9') {
        return c - '0' + 52;
    }
    if (c == c62) {
        return 62;
    }
    return c == c63 ? 63 : -1;
}

/* `s` without its padding. */
static bool decode64(tarn_str s, char c62, char c63, uint8_t *out, size_t out_cap, size_t *out_n)
{
    size_t rest = s.n % 4;
    if (rest == 1) {
        return false;
    }
    size_t bytes = s.n / 4 * 3 + (rest > 0 ? rest - 1 : 0);
    if (bytes > out_cap) {
        return false;
    }
    uint32_t v = 0;
    unsigned bits = 0;
    size_t at = 0;
    for (size_t i = 0; i < s.n; i++) {
        int d = digit64(s.p[i], c62, c63);
        if (d < 0) {
            return false;
        }
        v = (v << 6 | (uint32_t)d) & 0xFFFF;
        bits += 6;
        if (bits >= 8) {
            bits -= 8;
            out[at++] = (uint8_t)(v >> bits);
        }
    }
    if ((v & ((1u << bits) - 1)) != 0) {
        return false;
    }
    TARN_ASSERT(at == bytes);
    *out_n = bytes;
    return true;
}

bool tarn_base64_decode(tarn_str s, uint8_t *out, size_t out_cap, size_t *out_n)
{
    if (s.n % 4 != 0) {
        return false;
    }
    size_t pad = 0;
    while (pad < 2 && pad < s.n && s.p[s.n - 1 - pad] == '=') {
        pad++;
    }
    return decode64((tarn_str){s.p, s.n - pad}, '+', '/', out, out_cap, out_n);
}

bool tarn_base64url_decode(tarn_str s, uint8_t *out, size_t out_cap, size_t *out_n)
{
    return decode64(s, '-', '_', out, out_cap, out_n);
}

static int digit16(char c)
{
    if (c >= '0' && c <= '9') {
        return c - '0';
    }
    if (c >= 'a' && c <= 'f') {
        return c - 'a' + 10;
    }
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

bool tarn_hex_decode(tarn_str s, uint8_t *out, size_t out_n)
{
    if (out_n > SIZE_MAX / 2 || s.n != out_n * 2) {
        return false;
    }
    for (size_t i = 0; i < out_n; i++) {
        int high = digit16(s.p[i * 2]);
        int low = digit16(s.p[i * 2 + 1]);
        if (high < 0 || low < 0) {
            return false;
        }
        out[i] = (uint8_t)(high << 4 | low);
    }
    return true;
}

static bool stays(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '.' || c == '_' || c == '~';
}

void tarn_sb_urlencode(tarn_sb *b, tarn_str s, bool keep_slash)
{
    static const char digit[] = "0123456789ABCDEF";
    size_t from = 0;
    for (size_t i = 0; i < s.n; i++) {
        char c = s.p[i];
        if (stays(c) || (keep_slash && c == '/')) {
            continue;
        }
        uint8_t u = (uint8_t)c;
        char escape[3] = {'%', digit[u >> 4], digit[u & 15]};
        tarn_sb_bytes(b, s.p + from, i - from);
        tarn_sb_bytes(b, escape, sizeof escape);
        from = i + 1;
    }
    tarn_sb_str(b, tarn_str_sub(s, from, s.n));
}

bool tarn_urldecode(tarn_arena *a, tarn_str s, bool plus_is_blank, tarn_str *out)
{
    char *p = s.n < SIZE_MAX ? tarn_arena_alloc(a, s.n + 1) : NULL;
    if (!p) {
        return false;
    }
    size_t n = 0;
    for (size_t i = 0; i < s.n; i++) {
        char c = s.p[i];
        if (c == '%') {
            uint8_t byte;
            if (!tarn_hex_decode(tarn_str_sub(s, i + 1, 2), &byte, 1)) {
                return false;
            }
            c = (char)byte;
            i += 2;
        } else if (c == '+' && plus_is_blank) {
            c = ' ';
        }
        p[n++] = c;
    }
    p[n] = '\0';
    *out = (tarn_str){p, n};
    return true;
}
