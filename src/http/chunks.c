/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decoder of the chunked transfer coding, request side (RFC 9112 §7.1), strict.
 *
 * State machine: SIZE → DATA → DATA_END → SIZE → … → TRAILER → DONE.
 * Invariants:
 *  1. A size is 1 to 16 hex digits and at most 2^63 - 1; nothing but an extension may follow it on its line.
 *  2. A line ends in CRLF and is at most TARN_HTTP_CHUNK_LINE_BYTES_MAX long; trailers together have a maximum too.
 *  3. Extensions and trailers are checked for their bytes and dropped.
 * Owns nothing; the data itself is moved by the caller.
 */
#include <string.h>

#include "http_private.h"

/* The line at in[0..n) up to its CRLF. False with *e OK: not complete yet. */
static bool take_line(const char *in, size_t n, size_t max, tarn_str *line, tarn_err *e)
{
    size_t look = n < max ? n : max;
    const char *lf = memchr(in, '\n', look);
    *e = TARN_OK;
    if (lf == NULL) {
        *e = n >= max ? TARN_E_HTTP_BAD_REQUEST : TARN_OK;
        return false;
    }
    if (lf == in || lf[-1] != '\r') {
        *e = TARN_E_HTTP_BAD_REQUEST;
        return false;
    }
    *line = (tarn_str){in, (size_t)(lf - in) - 1};
    for (size_t i = 0; i < line->n; i++) {
        unsigned char c = (unsigned char)line->p[i];
        if ((c < 0x20 && c != '\t') || c == 0x7f) {
            *e = TARN_E_HTTP_BAD_REQUEST;
            return false;
        }
    }
    return true;
}

static tarn_err parse_size(tarn_str line, uint64_t *size)
{
    ptrdiff_t semicolon = tarn_str_chr(line, ';');
    tarn_str digits = semicolon < 0 ? line : tarn_str_sub(line, 0, (size_t)semicolon);
    if (semicolon >= 0) {
        digits = tarn_str_trim(digits); /* blanks before an extension were allowed once ("bad whitespace") */
    }
    if (!tarn_hex_to_u64(digits, size) || *size > INT64_MAX) {
        return TARN_E_HTTP_BAD_REQUEST;
    }
    return TARN_OK;
}

static tarn_err take_size(tarn_http_chunks *c, const char *in, size_t n, size_t *used)
{
    tarn_str line;
    tarn_err e;
    if (!take_line(in, n, TARN_HTTP_CHUNK_LINE_BYTES_MAX, &line, &e)) {
        return e;
    }
    e = parse_size(line, &c->left);
    if (e == TARN_OK) {
        c->state = c->left == 0 ? TARN_HTTP_CHUNK_TRAILER : TARN_HTTP_CHUNK_DATA;
        *used = line.n + 2;
    }
    return e;
}

static tarn_err take_data_end(tarn_http_chunks *c, const char *in, size_t n, size_t *used)
{
    if ((n >= 1 && in[0] != '\r') || (n >= 2 && in[1] != '\n')) {
        return TARN_E_HTTP_BAD_REQUEST;
    }
    if (n >= 2) {
        c->state = TARN_HTTP_CHUNK_SIZE;
        *used = 2;
    }
    return TARN_OK;
}

static tarn_err take_trailer(tarn_http_chunks *c, const char *in, size_t n, size_t *used)
{
    tarn_str line;
    tarn_err e;
    if (!take_line(in, n, TARN_HTTP_TRAILER_BYTES_MAX - c->trailer_bytes, &line, &e)) {
        return e;
    }
    if (line.n == 0) {
        c->state = TARN_HTTP_CHUNK_DONE;
    } else {
        ptrdiff_t colon = tarn_str_chr(line, ':');
        if (colon <= 0 || !tarn_http_is_token(tarn_str_sub(line, 0, (size_t)colon))) {
            return TARN_E_HTTP_BAD_REQUEST;
        }
    }
    c->trailer_bytes += line.n + 2;
    *used = line.n + 2;
    return TARN_OK;
}

tarn_err tarn_http_chunks_step(tarn_http_chunks *c, const char *in, size_t n, size_t *used)
{
    size_t total = 0;
    tarn_err e = TARN_OK;
    while (e == TARN_OK && c->state != TARN_HTTP_CHUNK_DATA && c->state != TARN_HTTP_CHUNK_DONE) {
        size_t took = 0;
        if (total == n) {
            break;
        }
        if (c->state == TARN_HTTP_CHUNK_SIZE) {
            e = take_size(c, in + total, n - total, &took);
        } else if (c->state == TARN_HTTP_CHUNK_DATA_END) {
            e = take_data_end(c, in + total, n - total, &took);
        } else {
            e = take_trailer(c, in + total, n - total, &took);
        }
        if (took == 0) {
            break;
        }
        total += took;
    }
    *used = total;
    return e;
}
