/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Signature version 4 in the Authorization header:
 *   AWS4-HMAC-SHA256 Credential=KEY/DATE/REGION/SERVICE/aws4_request, SignedHeaders=a;b, Signature=HEX
 * The checks run in the order of s3.md §2.6: date, skew, form, credential, key, payload header, unsigned headers, signature.
 *
 * Catalog requests may come without a payload hash: then everything but the comparison is done here, the identity is held
 * back, and tarn_auth_finish_body() compares.
 * Memory: slices of the view, or the request's arena. Threads: the request's fiber.
 */
#include "auth_private.h"

#include <string.h>

#define MALFORMED "The authorization header is malformed"
#define AMZ_DATE_BYTES 16

typedef struct v4_parts {
    tarn_str credential, signed_headers, signature;
    auth_names names; /* of signed_headers */
} v4_parts;

/* *text is YYYYMMDDTHHMMSSZ: x-amz-date, else made from Date. */
static tarn_err request_date(auth_run *r, tarn_str *text, int64_t *ms)
{
    if (r->seen.amz_date_n > 0) {
        *text = r->seen.amz_date;
        if (text->n == AMZ_DATE_BYTES && tarn_parse_amz_date(*text, ms)) {
            return TARN_OK;
        }
    } else if (r->seen.date.n > 0 && (tarn_parse_http_date(r->seen.date, ms) || tarn_parse_amz_date(r->seen.date, ms))) {
        char mem[AMZ_DATE_BYTES + 8];
        tarn_sb b;
        tarn_sb_init_fixed(&b, mem, sizeof mem);
        tarn_sb_amz_date(&b, *ms);
        *text = tarn_arena_str(r->arena, tarn_sb_view(&b));
        return text->p ? TARN_OK : TARN_E_NO_MEMORY;
    }
    return auth_fail(r->d, TARN_E_ACCESS_DENIED, "AWS authentication requires a valid Date or x-amz-date header.");
}

static tarn_err check_skew(auth_run *r, tarn_str text, int64_t ms)
{
    int64_t off = r->now_ms > ms ? r->now_ms - ms : ms - r->now_ms;
    if (off <= TARN_CLOCK_SKEW_MS_MAX) {
        return TARN_OK;
    }
    tarn_err_detail_add(r->d, "RequestTime", text);
    tarn_err_detail_add(r->d, "ServerTime", auth_iso_text(r->arena, r->now_ms));
    tarn_err_detail_add(r->d, "MaxAllowedSkewMilliseconds", TARN_STR("900000"));
    return TARN_E_REQUEST_TIME_TOO_SKEWED;
}

/* *rest: what stands behind "AWS4-HMAC-SHA256 ". */
static tarn_err check_scheme(auth_run *r, tarn_str *rest)
{
    tarn_str header = tarn_str_trim(r->seen.authorization);
    tarn_str scheme;
    if (!tarn_str_split(header, ' ', &scheme, rest) || scheme.n == 0) {
        return auth_fail_argument(r->d, "Authorization header is invalid -- one and only one ' ' (space) required.", "Authorization");
    }
    if (tarn_str_eqc(scheme, AUTH_ALGORITHM)) {
        return TARN_OK;
    }
    if (tarn_str_eqc(scheme, "AWS")) {
        return auth_fail(r->d, TARN_E_INVALID_REQUEST,
                         "The authorization mechanism you have provided is not supported. Please use AWS4-HMAC-SHA256.");
    }
    if (tarn_str_eqc(scheme, "AWS4-ECDSA-P256-SHA256")) {
        return auth_fail(r->d, TARN_E_NOT_IMPLEMENTED, "Signatures with ECDSA are not implemented. Please use AWS4-HMAC-SHA256.");
    }
    return auth_fail_argument(r->d, "Unsupported Authorization Type", "Authorization");
}

/* Where a part's value goes; NULL for a name that has no business here. */
static tarn_str *part_of(v4_parts *p, tarn_str name)
{
    if (tarn_str_eqc(name, "Credential")) {
        return &p->credential;
    }
    if (tarn_str_eqc(name, "SignedHeaders")) {
        return &p->signed_headers;
    }
    return tarn_str_eqc(name, "Signature") ? &p->signature : NULL;
}

static bool parse_parts(tarn_str rest, v4_parts *p)
{
    *p = (v4_parts){.credential = TARN_STR_NULL};
    while (rest.n > 0) {
        tarn_str item;
        tarn_str name;
        tarn_str value;
        tarn_str_split(rest, ',', &item, &rest);
        if (!tarn_str_split(tarn_str_trim(item), '=', &name, &value)) {
            return false;
        }
        tarn_str *part = part_of(p, name);
        if (!part || part->n > 0 || value.n == 0) {
            return false;
        }
        *part = value;
    }
    return p->credential.n > 0 && p->signed_headers.n > 0 && p->signature.n > 0;
}

static tarn_err check_credential(auth_run *r, v4_parts *p, tarn_str amz_date, auth_scope *scope)
{
    auth_scope_fault f = AUTH_SCOPE_FORM;
    if (auth_scope_parse(p->credential, scope)) {
        f = auth_scope_check(scope, r->api, r->a->region, amz_date);
    }
    if (f == AUTH_SCOPE_OK && !auth_names_parse(r->arena, p->signed_headers, &p->names)) {
        return auth_fail(r->d, TARN_E_AUTH_HEADER_MALFORMED, MALFORMED "; SignedHeaders must be lower-case names separated by ';'.");
    }
    if (f == AUTH_SCOPE_OK && !p->names.v) {
        return TARN_E_NO_MEMORY;
    }
    return auth_scope_fail(f, scope, TARN_E_AUTH_HEADER_MALFORMED, MALFORMED, r->a->region, amz_date, r->arena, r->d);
}

/* What stands in the last line of the canonical request. {NULL,0}: not known before the body is. */
static tarn_err payload_line(auth_run *r, tarn_str *line)
{
    if (r->seen.content_sha256_n > 0) {
        tarn_err e = auth_payload_header(r, r->seen.content_sha256, true);
        *line = r->seen.content_sha256;
        if (e == TARN_OK && r->api == TARN_API_CATALOG && r->out->payload == TARN_PAYLOAD_SHA256) {
            /* Base64 in the header, hex in the line (iceberg-rest.md §4.1). */
            char mem[2 * TARN_SHA256_BYTES + 1];
            tarn_sb b;
            tarn_sb_init_fixed(&b, mem, sizeof mem);
            tarn_sb_hex(&b, r->out->expect_sha256, TARN_SHA256_BYTES);
            *line = tarn_arena_str(r->arena, tarn_sb_view(&b));
            e = line->p ? TARN_OK : TARN_E_NO_MEMORY;
        }
        return e;
    }
    if (r->api != TARN_API_CATALOG) {
        return auth_fail(r->d, TARN_E_INVALID_REQUEST, "Missing required header for this request: x-amz-content-sha256");
    }
    *line = TARN_STR_NULL;
    r->out->payload = TARN_PAYLOAD_NONE_GIVEN;
    if (!r->seen.has_body_framing) {
        *line = TARN_STR(AUTH_EMPTY_SHA256_HEX);
        r->out->payload = TARN_PAYLOAD_SHA256;
        if (!tarn_hex_decode(*line, r->out->expect_sha256, TARN_SHA256_BYTES)) {
            return TARN_E_INTERNAL;
        }
    }
    return TARN_OK;
}

static tarn_err match_or_defer(auth_run *r, const auth_scope *scope, const v4_parts *p, tarn_str amz_date, int64_t ms, tarn_str line)
{
    auth_signed *s = NULL;
    tarn_err e = auth_signed_begin(r, scope, &p->names, amz_date, p->signature, &s);
    if (e != TARN_OK) {
        return e;
    }
    if (line.p) {
        e = auth_signed_match(r->a, s, line, r->arena, r->d);
        if (e == TARN_OK) {
            auth_result_set(r, TARN_AUTH_V4_HEADER, s, ms);
        }
        tarn_wipe(s->key, sizeof s->key);
        return e;
    }
    auth_result_set(r, TARN_AUTH_V4_HEADER, s, ms);
    r->out->identity = (tarn_identity){.anonymous = true};
    r->out->deferred = s;
    return TARN_OK;
}

tarn_err auth_verify_v4_header(auth_run *r)
{
    tarn_str amz_date = TARN_STR_NULL;
    tarn_str rest = TARN_STR_NULL;
    tarn_str line = TARN_STR_NULL;
    int64_t ms = 0;
    v4_parts parts;
    auth_scope scope = {.access_key = TARN_STR_NULL};
    tarn_err e = request_date(r, &amz_date, &ms);
    if (e == TARN_OK) {
        e = check_skew(r, amz_date, ms);
    }
    if (e == TARN_OK) {
        e = check_scheme(r, &rest);
    }
    if (e != TARN_OK) {
        return e;
    }
    if (!parse_parts(rest, &parts)) {
        return auth_fail(r->d, TARN_E_AUTH_HEADER_MALFORMED,
                         MALFORMED "; Credential, SignedHeaders and Signature must each be given once, separated by ','.");
    }
    e = check_credential(r, &parts, amz_date, &scope);
    if (e != TARN_OK) {
        return e;
    }
    r->out->service = scope.service;
    const auth_user *u = auth_user_find(r->a, scope.access_key);
    if (!u) {
        return auth_fail_unknown_key(r->d, scope.access_key);
    }
    e = payload_line(r, &line);
    if (e == TARN_OK) {
        e = auth_check_signed(r, &parts.names, false);
    }
    if (e == TARN_OK) {
        e = auth_user_check_token(u, r->seen.security_token, r->d);
    }
    return e == TARN_OK ? match_or_defer(r, &scope, &parts, amz_date, ms, line) : e;
}

tarn_err tarn_auth_finish_body(tarn_auth *a, tarn_auth_result *r, const uint8_t sha256[TARN_SHA256_BYTES], tarn_arena *arena,
                               tarn_err_detail *detail)
{
    auth_signed *s = r->deferred;
    if (!s) {
        return TARN_E_INTERNAL;
    }
    char mem[2 * TARN_SHA256_BYTES + 1];
    tarn_sb b;
    tarn_sb_init_fixed(&b, mem, sizeof mem);
    tarn_sb_hex(&b, sha256, TARN_SHA256_BYTES);
    tarn_err e = auth_signed_match(a, s, tarn_sb_view(&b), arena, detail);
    if (e == TARN_OK) {
        r->identity = s->user->identity;
        r->payload = TARN_PAYLOAD_SHA256;
        memcpy(r->expect_sha256, sha256, TARN_SHA256_BYTES);
    }
    tarn_wipe(s->key, sizeof s->key);
    r->deferred = NULL;
    return e;
}
