/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Presigned URLs, signature version 4 in the query (s3.md §2.3). Parameters first, then the time, then the key, then
 * unsigned headers, then the signature; the body is UNSIGNED-PAYLOAD unless the URL says otherwise.
 *
 * Invariant: a payload header that the signature does not cover can only make the request stricter (a hash to check),
 * never turn on a streaming form.
 * Memory: slices of the view, or the request's arena. Threads: the request's fiber.
 */
#include "auth_private.h"

#include <string.h>

#define MALFORMED "Error parsing the X-Amz-Credential parameter"
#define AMZ_DATE_BYTES 16

typedef struct v4_params {
    tarn_str algorithm, credential, date, expires, signed_headers, signature, token, content_sha256;
    uint64_t expires_s;
    int64_t signed_ms;
    auth_names names; /* of signed_headers */
} v4_params;

static tarn_err query_error(auth_run *r, const char *message)
{
    return auth_fail(r->d, TARN_E_AUTH_QUERY_ERROR, message);
}

/* Each parameter at most once; the first six must be there. */
static tarn_err read_params(auth_run *r, v4_params *p)
{
    const struct {
        const char *name;
        tarn_str *to;
        bool required;
    } table[] = {
        {"X-Amz-Algorithm", &p->algorithm, true},          {"X-Amz-Credential", &p->credential, true},
        {"X-Amz-Signature", &p->signature, true},          {"X-Amz-Date", &p->date, true},
        {"X-Amz-SignedHeaders", &p->signed_headers, true}, {"X-Amz-Expires", &p->expires, true},
        {"X-Amz-Security-Token", &p->token, false},        {"X-Amz-Content-Sha256", &p->content_sha256, false},
    };
    for (size_t i = 0; i < TARN_ARRAY_LEN(table); i++) {
        tarn_str encoded;
        size_t n = auth_query_find(&r->query, table[i].name, &encoded);
        if (n > 1) {
            return auth_failf(r->d, r->arena, TARN_E_AUTH_QUERY_ERROR, "The query parameter %s is given more than once.", table[i].name);
        }
        if (n == 1 && !auth_query_decode(r->arena, encoded, table[i].to)) {
            return TARN_E_NO_MEMORY;
        }
        if (table[i].required && table[i].to->n == 0) {
            return query_error(r, "Query-string authentication version 4 requires the X-Amz-Algorithm, X-Amz-Credential, X-Amz-Signature, "
                                  "X-Amz-Date, X-Amz-SignedHeaders, and X-Amz-Expires parameters.");
        }
    }
    return TARN_OK;
}

static tarn_err read_expires(auth_run *r, v4_params *p)
{
    if (p->expires.n > 1 && p->expires.p[0] == '-') {
        return query_error(r, "X-Amz-Expires must be non-negative");
    }
    if (!tarn_str_to_u64(p->expires, &p->expires_s)) {
        return query_error(r, "X-Amz-Expires should be a number");
    }
    if (p->expires_s > TARN_PRESIGN_EXPIRES_S_MAX) {
        return query_error(r, "X-Amz-Expires must be less than a week (in seconds); that is, the given X-Amz-Expires must be less than "
                              "604800 seconds");
    }
    return TARN_OK;
}

static tarn_err check_params(auth_run *r, v4_params *p, auth_scope *scope)
{
    if (!tarn_str_eqc(p->algorithm, AUTH_ALGORITHM)) {
        return query_error(r, "X-Amz-Algorithm only supports \"AWS4-HMAC-SHA256\"");
    }
    if (p->date.n != AMZ_DATE_BYTES || !tarn_parse_amz_date(p->date, &p->signed_ms)) {
        return query_error(r, "X-Amz-Date must be in the ISO8601 Long Format \"yyyyMMdd'T'HHmmss'Z'\"");
    }
    auth_scope_fault f = AUTH_SCOPE_FORM;
    if (auth_scope_parse(p->credential, scope)) {
        f = auth_scope_check(scope, r->api, r->a->region, p->date);
    }
    tarn_err e = auth_scope_fail(f, scope, TARN_E_AUTH_QUERY_ERROR, MALFORMED, r->a->region, p->date, r->arena, r->d);
    if (e == TARN_OK) {
        e = read_expires(r, p);
    }
    if (e == TARN_OK && !auth_names_parse(r->arena, p->signed_headers, &p->names)) {
        e = query_error(r, "X-Amz-SignedHeaders must be lower-case names separated by ';'.");
    }
    if (e == TARN_OK && !p->names.v) {
        e = TARN_E_NO_MEMORY;
    }
    return e;
}

static tarn_err check_time(auth_run *r, const v4_params *p)
{
    if (p->signed_ms > r->now_ms + TARN_CLOCK_SKEW_MS_MAX) {
        tarn_err_detail_add(r->d, "ServerTime", auth_iso_text(r->arena, r->now_ms));
        return auth_fail(r->d, TARN_E_ACCESS_DENIED, "Request is not valid yet");
    }
    int64_t end_ms = p->signed_ms + (int64_t)p->expires_s * AUTH_MS_PER_S;
    if (r->now_ms <= end_ms) {
        return TARN_OK;
    }
    tarn_err_detail_add(r->d, "X-Amz-Expires", p->expires);
    tarn_err_detail_add(r->d, "Expires", auth_iso_text(r->arena, end_ms));
    tarn_err_detail_add(r->d, "ServerTime", auth_iso_text(r->arena, r->now_ms));
    return auth_fail(r->d, TARN_E_ACCESS_DENIED, "Request has expired");
}

/* The payload line, and the mode that goes with it. */
static tarn_err payload_line(auth_run *r, const v4_params *p, tarn_str *line)
{
    bool header = r->seen.content_sha256_n > 0;
    r->out->payload = TARN_PAYLOAD_UNSIGNED;
    *line = TARN_STR("UNSIGNED-PAYLOAD");
    if (p->content_sha256.n > 0) {
        *line = p->content_sha256;
        if (header && !tarn_str_eq(r->seen.content_sha256, p->content_sha256)) {
            return auth_fail_argument(r->d, "The header x-amz-content-sha256 and the query say different things.", "x-amz-content-sha256");
        }
        return auth_payload_header(r, p->content_sha256, true);
    }
    if (!header) {
        return TARN_OK;
    }
    if (auth_names_have(&p->names, TARN_STR("x-amz-content-sha256"))) {
        *line = r->seen.content_sha256;
        return auth_payload_header(r, r->seen.content_sha256, true);
    }
    if (tarn_str_starts(r->seen.content_sha256, "STREAMING-")) {
        return auth_fail(r->d, TARN_E_ACCESS_DENIED, "x-amz-content-sha256 of a presigned request with a streaming body must be signed.");
    }
    return auth_payload_header(r, r->seen.content_sha256, true);
}

static tarn_err match(auth_run *r, const v4_params *p, const auth_scope *scope, tarn_str line)
{
    auth_signed *s = NULL;
    tarn_err e = auth_signed_begin(r, scope, &p->names, p->date, p->signature, &s);
    if (e != TARN_OK) {
        return e;
    }
    e = auth_signed_match(r->a, s, line, r->arena, r->d);
    if (e == TARN_OK) {
        auth_result_set(r, TARN_AUTH_V4_QUERY, s, p->signed_ms);
        r->out->presign_expires_s = p->expires_s;
    }
    tarn_wipe(s->key, sizeof s->key);
    return e;
}

tarn_err auth_verify_v4_query(auth_run *r)
{
    v4_params p = {.expires_s = 0};
    auth_scope scope = {.access_key = TARN_STR_NULL};
    tarn_str line = TARN_STR_NULL;
    if (r->api == TARN_API_CATALOG && !tarn_str_eqc(r->v->method, "GET") && !tarn_str_eqc(r->v->method, "HEAD")) {
        return auth_fail(r->d, TARN_E_INVALID_REQUEST, "A presigned URL can't change the catalog: its body would not be signed.");
    }
    tarn_err e = read_params(r, &p);
    if (e == TARN_OK) {
        e = check_params(r, &p, &scope);
    }
    if (e == TARN_OK) {
        e = check_time(r, &p);
    }
    if (e != TARN_OK) {
        return e;
    }
    r->out->service = scope.service;
    const auth_user *u = auth_user_find(r->a, scope.access_key);
    if (!u) {
        return auth_fail_unknown_key(r->d, scope.access_key);
    }
    e = auth_check_signed(r, &p.names, true);
    if (e == TARN_OK) {
        e = auth_user_check_token(u, p.token.n > 0 ? p.token : r->seen.security_token, r->d);
    }
    if (e == TARN_OK) {
        e = payload_line(r, &p, &line);
    }
    return e == TARN_OK ? match(r, &p, &scope, line) : e;
}
