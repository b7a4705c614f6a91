/* SPDX-License-Identifier: Apache-2.0 */
/*
 * http_parse: a request's head, from bytes to fields, and nothing else: no sockets, no memory but the arena's, so that
 * unit tests and fuzzers drive it directly.
 *
 * Two steps. tarn_http_scan() looks, as bytes come in, for the empty line that ends the head; it can be called again and
 * again with more bytes and never looks at a byte twice. tarn_http_parse_head() then takes the whole head apart and
 * decides the framing of the body. Whatever RFC 9112 leaves to two readings is refused.
 */
#ifndef TARN_HTTP_PARSE_H
#define TARN_HTTP_PARSE_H

#include "tarn/http.h"

#define TARN_HTTP_METHOD_BYTES_MAX 32
/* Request line: the target, the method, two blanks, the version, CRLF. */
#define TARN_HTTP_LINE_BYTES_MAX (TARN_HTTP_TARGET_BYTES_MAX + TARN_HTTP_METHOD_BYTES_MAX + 12)
#define TARN_HTTP_CONTENT_LENGTH_MAX INT64_MAX

typedef struct tarn_http_scanner {
    size_t start;      /* first byte of the request line: empty lines before it are skipped (RFC 9112 §2.2) */
    size_t line_start; /* of the line that is not complete yet */
    size_t seen;       /* bytes looked at */
    size_t lines;      /* complete lines, without the empty one at the end */
    size_t end;        /* one past the empty line, once it was found */
    bool complete;
} tarn_http_scanner;

typedef struct tarn_http_head {
    tarn_str method;
    tarn_str raw_path;
    tarn_str raw_query; /* p == NULL: no '?' */
    tarn_str host;
    tarn_pair *headers;
    size_t headers_n;
    uint64_t content_length;
    int minor; /* of HTTP/1.x */
    bool has_host;
    bool has_content_length;
    bool has_transfer_encoding; /* and it is "chunked" */
    bool expect_continue;
    bool connection_close;
    bool connection_keep_alive;
} tarn_http_head;

/* p[0..n): all bytes so far. Errors: HTTP_BAD_REQUEST, HEADER_TOO_LARGE, INVALID_URI; *why is a fixed text then. */
tarn_err tarn_http_scan(tarn_http_scanner *s, const char *p, size_t n, const char **why);

/*
 * head: request line to empty line, of memory that lives as long as `out` (the slices point into it); lines: as counted by the scan.
 * On an error `out` holds what had been understood until then (so that the answer can be given in the right form), and
 * *why is a fixed text.
 */
tarn_err tarn_http_parse_head(tarn_str head, size_t lines, tarn_arena *arena, tarn_http_head *out, const char **why);

/* The request line alone, without its CRLF: fills method, path, query and minor. */
tarn_err tarn_http_parse_line(tarn_str line, tarn_http_head *out, tarn_str *authority, const char **why);

bool tarn_http_is_token(tarn_str s); /* RFC 9110 §5.6.2; not empty */

#endif
