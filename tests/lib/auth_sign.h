/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A client's side of SigV4 for tests: makes signed requests, written apart from src/auth so that one can't hide the other's
 * faults. Everything lies in fixed arrays of a struct; a test that needs more raises them.
 */
#ifndef TARN_TESTS_AUTH_SIGN_H
#define TARN_TESTS_AUTH_SIGN_H

#include "tarn/auth.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <string.h>

#define SIGN_HEADERS_MAX 300
#define SIGN_TEXT_BYTES 65536
#define SIGN_ACCESS "AKIAIOSFODNN7EXAMPLE"
#define SIGN_SECRET "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
#define SIGN_NOW_MS INT64_C(1369353600000) /* 2013-05-24T00:00:00Z */
#define SIGN_EMPTY "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

typedef struct sign_req {
    const char *method, *path, *query; /* path and query as on the wire; query NULL: no '?' */
    tarn_pair headers[SIGN_HEADERS_MAX];
    size_t headers_n;
    const char *signed_headers;                                                    /* NULL: host and every x-amz-* header */
    const char *access, *secret, *date, *region, *service, *terminal, *scope_date; /* NULL: the usual */
    const char *canonical_path, *canonical_query, *payload_line;                   /* NULL: derived */
    uint8_t key[32];
    char signature[65];
    char scope[256];
    char signed_list[8192];
    char authorization[16384];
    char presigned[16384]; /* query */
    char canonical[SIGN_TEXT_BYTES];
    char text[512];
} sign_req;

static inline const char *sign_or(const char *s, const char *other)
{
    return s ? s : other;
}

static inline void sign_header(sign_req *r, const char *name, const char *value)
{
    TARN_ASSERT(r->headers_n < SIGN_HEADERS_MAX);
    r->headers[r->headers_n++] = (tarn_pair){tarn_str_of(name), tarn_str_of(value)};
}

static inline void sign_mac(const void *key, size_t key_n, const char *text, uint8_t out[32])
{
    unsigned n = 0;
    TARN_ASSERT(HMAC(EVP_sha256(), key, (int)key_n, (const unsigned char *)text, strlen(text), out, &n) != NULL && n == 32);
}

static inline void sign_hex(const uint8_t *p, size_t n, char *out)
{
    for (size_t i = 0; i < n; i++) {
        out[2 * i] = "0123456789abcdef"[p[i] >> 4];
        out[2 * i + 1] = "0123456789abcdef"[p[i] & 15];
    }
    out[2 * n] = 0;
}

static inline void sign_sha(const void *p, size_t n, char out[65])
{
    uint8_t d[32];
    unsigned dn = 0;
    TARN_ASSERT(EVP_Digest(p, n, d, &dn, EVP_sha256(), NULL) == 1 && dn == 32);
    sign_hex(d, 32, out);
}

static inline char sign_lower(char c)
{
    return (char)(c >= 'A' && c <= 'Z' ? c + 32 : c);
}

/* Lower-case names of what is to be signed, sorted, without repeats. */
static inline void sign_list(sign_req *r, tarn_sb *out)
{
    static _Thread_local char names[SIGN_HEADERS_MAX][256];
    size_t n = 0;
    if (r->signed_headers) {
        tarn_sb_cstr(out, r->signed_headers);
        return;
    }
    for (size_t i = 0; i < r->headers_n; i++) {
        tarn_str h = r->headers[i].name;
        char low[256] = {0};
        TARN_ASSERT(h.n < sizeof low);
        for (size_t k = 0; k < h.n; k++) {
            low[k] = sign_lower(h.p[k]);
        }
        if (strcmp(low, "host") != 0 && strncmp(low, "x-amz-", 6) != 0 && strcmp(low, "content-type") != 0) {
            continue;
        }
        size_t at = 0;
        while (at < n && strcmp(names[at], low) < 0) {
            at++;
        }
        if (at < n && strcmp(names[at], low) == 0) {
            continue;
        }
        memmove(names[at + 1], names[at], (n - at) * sizeof names[0]);
        memcpy(names[at], low, sizeof low);
        n++;
    }
    for (size_t i = 0; i < n; i++) {
        tarn_sb_cstr(out, i ? ";" : "");
        tarn_sb_cstr(out, names[i]);
    }
}

static inline void sign_canonical_headers(const sign_req *r, tarn_sb *b)
{
    tarn_str rest = tarn_str_of(r->signed_list);
    while (rest.n > 0) {
        tarn_str name;
        tarn_str_split(rest, ';', &name, &rest);
        tarn_sb_str(b, name);
        tarn_sb_char(b, ':');
        bool first = true;
        for (size_t i = 0; i < r->headers_n; i++) {
            if (tarn_str_ieq(r->headers[i].name, name)) {
                tarn_sb_cstr(b, first ? "" : ",");
                tarn_sb_str(b, r->headers[i].value);
                first = false;
            }
        }
        tarn_sb_char(b, '\n');
    }
}

/* Signature over what is set; canonical path and query must already be so on the wire unless given. */
static inline void sign_compute(sign_req *r, const char *payload_line)
{
    tarn_sb b;
    const char *date = sign_or(r->date, "20130524T000000Z");
    char date8[9] = {0};
    memcpy(date8, r->scope_date ? r->scope_date : date, 8);
    tarn_sb_init_fixed(&b, r->signed_list, sizeof r->signed_list);
    sign_list(r, &b);
    tarn_sb_init_fixed(&b, r->scope, sizeof r->scope);
    tarn_sb_fmt(&b, "%s/%s/%s/%s", date8, sign_or(r->region, "us-east-1"), sign_or(r->service, "s3"), sign_or(r->terminal, "aws4_request"));
    tarn_sb_init_fixed(&b, r->canonical, sizeof r->canonical);
    tarn_sb_fmt(&b, "%s\n%s\n%s\n", r->method, sign_or(r->canonical_path, r->path), sign_or(r->canonical_query, sign_or(r->query, "")));
    sign_canonical_headers(r, &b);
    tarn_sb_fmt(&b, "\n%s\n%s", r->signed_list, payload_line);
    TARN_ASSERT(!b.failed);
    char hash[65];
    sign_sha(r->canonical, b.n, hash);
    tarn_sb_init_fixed(&b, r->text, sizeof r->text);
    tarn_sb_fmt(&b, "AWS4-HMAC-SHA256\n%s\n%s\n%s", date, r->scope, hash);
    uint8_t k[32];
    char first[256];
    tarn_sb_init_fixed(&b, first, sizeof first);
    tarn_sb_fmt(&b, "AWS4%s", sign_or(r->secret, SIGN_SECRET));
    sign_mac(first, b.n, date8, k);
    sign_mac(k, 32, sign_or(r->region, "us-east-1"), k);
    sign_mac(k, 32, sign_or(r->service, "s3"), k);
    sign_mac(k, 32, sign_or(r->terminal, "aws4_request"), r->key);
    sign_mac(r->key, 32, r->text, k);
    sign_hex(k, 32, r->signature);
}

/* Adds x-amz-date and x-amz-content-sha256 (payload not NULL) and signs into an Authorization header. */
static inline void sign_request(sign_req *r, const char *payload)
{
    tarn_sb b;
    sign_header(r, "x-amz-date", sign_or(r->date, "20130524T000000Z"));
    if (payload) {
        sign_header(r, "x-amz-content-sha256", payload);
    }
    sign_compute(r, sign_or(r->payload_line, payload ? payload : SIGN_EMPTY));
    tarn_sb_init_fixed(&b, r->authorization, sizeof r->authorization);
    tarn_sb_fmt(&b, "AWS4-HMAC-SHA256 Credential=%s/%s, SignedHeaders=%s, Signature=%s", sign_or(r->access, SIGN_ACCESS), r->scope,
                r->signed_list, r->signature);
    TARN_ASSERT(!b.failed);
    sign_header(r, "Authorization", r->authorization);
}

/* Makes r->presigned; r->query (already in order behind X-Amz-…, may be NULL) is put at the end. */
static inline void sign_presign(sign_req *r, const char *expires)
{
    tarn_sb b;
    static _Thread_local char query[16384];
    const char *date = sign_or(r->date, "20130524T000000Z");
    char date8[9] = {0};
    memcpy(date8, r->scope_date ? r->scope_date : date, 8);
    tarn_sb list;
    tarn_sb_init_fixed(&list, r->signed_list, sizeof r->signed_list);
    sign_list(r, &list);
    tarn_sb_init_fixed(&b, query, sizeof query);
    tarn_sb_fmt(
        &b,
        "X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=%s%%2F%s%%2F%s%%2F%s%%2F%s&X-Amz-Date=%s&X-Amz-Expires=%s&X-Amz-SignedHeaders=",
        sign_or(r->access, SIGN_ACCESS), date8, sign_or(r->region, "us-east-1"), sign_or(r->service, "s3"),
        sign_or(r->terminal, "aws4_request"), date, expires);
    tarn_sb_urlencode(&b, tarn_sb_view(&list), false);
    if (r->query) {
        tarn_sb_fmt(&b, "&%s", r->query);
    }
    r->canonical_query = query;
    sign_compute(r, sign_or(r->payload_line, "UNSIGNED-PAYLOAD"));
    tarn_sb_init_fixed(&b, r->presigned, sizeof r->presigned);
    tarn_sb_fmt(&b, "%s&X-Amz-Signature=%s", query, r->signature);
    TARN_ASSERT(!b.failed);
    r->query = r->presigned;
}

static inline tarn_auth_view sign_view(const sign_req *r)
{
    return (tarn_auth_view){.method = tarn_str_of(r->method),
                            .raw_path = tarn_str_of(r->path),
                            .raw_query = r->query ? tarn_str_of(r->query) : TARN_STR_NULL,
                            .headers = r->headers,
                            .headers_n = r->headers_n};
}

static inline tarn_str sign_detail(const tarn_err_detail *d, const char *name)
{
    for (size_t i = 0; i < d->fields_n; i++) {
        if (tarn_str_eqc(d->fields[i].name, name)) {
            return d->fields[i].value;
        }
    }
    return TARN_STR_NULL;
}

#endif
