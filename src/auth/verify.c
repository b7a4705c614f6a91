/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tarn_auth_verify(): the one place where a request is mapped to its way of authentication. What is neither a known form
 * nor entirely unsigned is refused.
 *
 * Invariants: (1) an identity that is not anonymous is only set after a signature or token was found right; (2) two ways of
 * authentication in one request are refused, never chosen from; (3) signed x-amz-* headers are all there are.
 * Memory: slices of the view, or the request's arena. Threads: the request's fiber.
 */
#include "auth_private.h"

#include <string.h>

static const tarn_identity ANONYMOUS = {.anonymous = true};

tarn_str tarn_auth_header(const tarn_auth_view *v, const char *name)
{
    tarn_str wanted = tarn_str_of(name);
    for (size_t i = 0; i < v->headers_n; i++) {
        if (v->headers[i].name.n == wanted.n && tarn_str_ieq(v->headers[i].name, wanted)) {
            return v->headers[i].value;
        }
    }
    return TARN_STR_NULL;
}

/* Sets the first value, counts all. */
static void note(tarn_str *first, size_t *n, tarn_str value)
{
    if ((*n)++ == 0) {
        *first = value;
    }
}

static void see_amz(auth_seen *s, tarn_str name, tarn_str value)
{
    switch (name.n) {
    case sizeof "x-amz-date" - 1:
        if (tarn_str_ieqc(name, "x-amz-date")) {
            note(&s->amz_date, &s->amz_date_n, value);
        }
        break;
    case sizeof "x-amz-trailer" - 1:
        if (tarn_str_ieqc(name, "x-amz-trailer")) {
            note(&s->trailer, &s->trailer_n, value);
        }
        break;
    case sizeof "x-amz-content-sha256" - 1: /* as long as x-amz-security-token */
        if (tarn_str_ieqc(name, "x-amz-content-sha256")) {
            note(&s->content_sha256, &s->content_sha256_n, value);
        } else if (tarn_str_ieqc(name, "x-amz-security-token")) {
            note(&s->security_token, &s->security_token_n, value);
        }
        break;
    case sizeof "x-amz-decoded-content-length" - 1:
        if (tarn_str_ieqc(name, "x-amz-decoded-content-length")) {
            note(&s->decoded_length, &s->decoded_length_n, value);
        }
        break;
    default:
        break;
    }
}

static void see_other(auth_seen *s, tarn_str name, tarn_str value)
{
    switch (name.n) {
    case sizeof "date" - 1:
        if (tarn_str_ieqc(name, "date")) {
            s->date = value;
        }
        break;
    case sizeof "authorization" - 1:
        if (tarn_str_ieqc(name, "authorization")) {
            note(&s->authorization, &s->authorization_n, value);
        }
        break;
    case sizeof "content-length" - 1:
        if (tarn_str_ieqc(name, "content-length")) {
            s->has_body_framing = s->has_body_framing || !tarn_str_eqc(value, "0");
        }
        break;
    case sizeof "transfer-encoding" - 1:
        s->has_body_framing = s->has_body_framing || tarn_str_ieqc(name, "transfer-encoding");
        break;
    default:
        break;
    }
}

static inline bool is_amz(tarn_str name)
{
    return name.n > 6 && name.p[5] == '-' && tarn_str_istarts(name, "x-amz-");
}

static void see(auth_run *r)
{
    for (size_t i = 0; i < r->v->headers_n; i++) {
        const tarn_pair *h = &r->v->headers[i];
        if (is_amz(h->name)) {
            see_amz(&r->seen, h->name, h->value);
        } else {
            see_other(&r->seen, h->name, h->value);
        }
    }
}

bool auth_is_exempt_header(tarn_str name)
{
    return tarn_str_ieqc(name, "x-amz-content-sha256") || tarn_str_ieqc(name, "x-amz-decoded-content-length") ||
           tarn_str_ieqc(name, "x-amz-trailer") || tarn_str_ieqc(name, "x-amz-checksum-algorithm") || tarn_str_ieqc(name, "x-amz-cf-id");
}

/* A presigned URL may carry a header in its query, where it is signed; what comes as a header must say the same. */
static bool signed_in_query(const auth_run *r, const tarn_pair *header)
{
    for (size_t i = 0; i < r->query.n; i++) {
        tarn_str value;
        if (tarn_str_ieq(r->query.v[i].name, header->name)) {
            return auth_query_decode(r->arena, r->query.v[i].value, &value) && tarn_str_eq(value, header->value);
        }
    }
    return false;
}

#define NOT_SIGNED_BYTES_MAX 1024

tarn_err auth_check_signed(auth_run *r, const auth_names *names, bool presigned)
{
    char mem[NOT_SIGNED_BYTES_MAX];
    tarn_sb b;
    tarn_sb_init_fixed(&b, mem, sizeof mem);
    bool missing = !auth_names_have(names, TARN_STR("host"));
    if (missing) {
        tarn_sb_cstr(&b, "host");
    }
    for (size_t i = 0; i < r->v->headers_n; i++) {
        tarn_str name = r->v->headers[i].name;
        if (!is_amz(name) || auth_names_have(names, name) || auth_is_exempt_header(name) ||
            (presigned && signed_in_query(r, &r->v->headers[i]))) {
            continue;
        }
        if (missing) {
            tarn_sb_cstr(&b, ", ");
        }
        missing = true;
        for (size_t k = 0; k < name.n; k++) {
            tarn_sb_char(&b, (char)(name.p[k] >= 'A' && name.p[k] <= 'Z' ? name.p[k] + ('a' - 'A') : name.p[k]));
        }
    }
    if (!missing) {
        return TARN_OK;
    }
    tarn_err_detail_add(r->d, "HeadersNotSigned", tarn_arena_str(r->arena, tarn_sb_view(&b)));
    return auth_fail(r->d, TARN_E_ACCESS_DENIED, "There were headers present in the request which were not signed");
}

/* ------------------------------------------------------------------ what signed requests have in common */
static tarn_err add_paths(auth_run *r, auth_signed *s)
{
    static const auth_path_form S3_FORMS[] = {AUTH_PATH_ONCE, AUTH_PATH_RAW};
    static const auth_path_form CATALOG_FORMS[] = {AUTH_PATH_DOUBLE, AUTH_PATH_RAW, AUTH_PATH_SLASH};
    static const auth_path_form CATALOG_S3_FORMS[] = {AUTH_PATH_ONCE, AUTH_PATH_RAW, AUTH_PATH_DOUBLE};
    const auth_path_form *forms = S3_FORMS;
    size_t n = TARN_ARRAY_LEN(S3_FORMS);
    if (r->api == TARN_API_CATALOG) {
        bool s3 = tarn_str_eqc(s->scope.service, "s3");
        forms = s3 ? CATALOG_S3_FORMS : CATALOG_FORMS;
        n = AUTH_CANDIDATES_MAX;
    }
    for (size_t i = 0; i < n; i++) {
        tarn_str path = auth_canon_path(r->arena, r->v->raw_path, forms[i]);
        if (!path.p) {
            return TARN_E_NO_MEMORY;
        }
        auth_add_candidate(s->uris, &s->uris_n, path);
    }
    return TARN_OK;
}

static tarn_err add_queries(auth_run *r, auth_signed *s)
{
    tarn_str query = auth_canon_query(r->arena, &r->query, AUTH_QUERY_SORTED);
    if (!query.p) {
        return TARN_E_NO_MEMORY;
    }
    auth_add_candidate(s->queries, &s->queries_n, query);
    if (r->api != TARN_API_CATALOG || r->query.n == 0) {
        return TARN_OK;
    }
    auth_query dict;
    tarn_err e = auth_query_parse(r->arena, r->v->raw_query, true, &dict);
    if (e != TARN_OK) {
        return e;
    }
    query = auth_canon_query(r->arena, &dict, AUTH_QUERY_DICT);
    if (!query.p) {
        return TARN_E_NO_MEMORY;
    }
    auth_add_candidate(s->queries, &s->queries_n, r->v->raw_query);
    auth_add_candidate(s->queries, &s->queries_n, query);
    return TARN_OK;
}

tarn_err auth_signed_begin(auth_run *r, const auth_scope *scope, const auth_names *names, tarn_str amz_date, tarn_str signature,
                           auth_signed **out)
{
    auth_signed *s = TARN_ARENA_NEW(r->arena, auth_signed);
    if (!s) {
        return TARN_E_NO_MEMORY;
    }
    s->user = auth_user_find(r->a, scope->access_key);
    if (!s->user) {
        return auth_fail_unknown_key(r->d, scope->access_key);
    }
    s->method = r->v->method;
    s->scope = *scope;
    s->signed_headers = names->list;
    s->amz_date = amz_date;
    s->signature = signature;
    tarn_err e = add_paths(r, s);
    if (e == TARN_OK) {
        e = add_queries(r, s);
    }
    if (e != TARN_OK) {
        return e;
    }
    s->headers = auth_canon_headers(r->arena, r->v, names);
    if (!s->headers.p) {
        return TARN_E_NO_MEMORY;
    }
    auth_keycache_get(r->a->cache, s->user, scope, s->key, &s->key_cached);
    *out = s;
    return TARN_OK;
}

void auth_result_set(auth_run *r, tarn_auth_mode mode, const auth_signed *s, int64_t signed_ms)
{
    tarn_auth_result *o = r->out;
    o->mode = mode;
    o->identity = s->user->identity;
    o->region = s->scope.region;
    o->service = s->scope.service;
    o->access_key = s->scope.access_key;
    o->amz_date = s->amz_date;
    o->signed_ms = signed_ms;
    if (o->payload == TARN_PAYLOAD_SIGNED_CHUNKS || o->payload == TARN_PAYLOAD_SIGNED_CHUNKS_TRAILER) {
        memcpy(o->signing_key, s->key, sizeof o->signing_key);
        memcpy(o->seed_signature, s->signature.p, AUTH_SIGNATURE_HEX); /* it was right, so it is as long as that */
        o->seed_signature[AUTH_SIGNATURE_HEX] = '\0';
    }
}

/* ------------------------------------------------------------------ ways */
static tarn_err anonymous(auth_run *r)
{
    r->out->payload = TARN_PAYLOAD_UNSIGNED;
    if (r->seen.content_sha256_n > 0) {
        return auth_payload_header(r, r->seen.content_sha256, false);
    }
    return TARN_OK;
}

static tarn_err bearer(auth_run *r, tarn_str token)
{
    tarn_identity id;
    tarn_err e = tarn_token_verify(r->a, token, r->now_ms, &id);
    if (e == TARN_E_NO_MEMORY) {
        return e;
    }
    if (e != TARN_OK) {
        return auth_fail(r->d, TARN_E_ICE_NOT_AUTHORIZED,
                         e == TARN_E_EXPIRED_TOKEN ? "The bearer token has expired." : "The bearer token is not valid.");
    }
    r->out->mode = TARN_AUTH_BEARER;
    r->out->payload = TARN_PAYLOAD_UNSIGNED;
    r->out->identity = id;
    r->out->access_key = id.access_key;
    return TARN_OK;
}

typedef struct query_ways {
    bool v4, v2;
} query_ways;

static query_ways ways_in_query(const auth_run *r)
{
    query_ways w = {false, false};
    for (size_t i = 0; i < r->query.n; i++) {
        tarn_str n = r->query.v[i].name;
        w.v4 = w.v4 || tarn_str_eqc(n, "X-Amz-Algorithm") || tarn_str_eqc(n, "X-Amz-Credential") || tarn_str_eqc(n, "X-Amz-Signature");
        w.v2 = w.v2 || (r->api == TARN_API_S3 && (tarn_str_eqc(n, "AWSAccessKeyId") || tarn_str_eqc(n, "Signature")));
    }
    return w;
}

static tarn_err dispatch(auth_run *r)
{
    query_ways w = ways_in_query(r);
    size_t ways = r->seen.authorization_n + (w.v4 ? 1u : 0u) + (w.v2 ? 1u : 0u);
    if (ways > 1) {
        return auth_fail_argument(r->d,
                                  r->seen.authorization_n > 1
                                      ? "The Authorization header is given more than once."
                                      : "Only one auth mechanism allowed; only the X-Amz-Algorithm query parameter, Signature query "
                                        "string parameter or the Authorization header should be specified",
                                  "Authorization");
    }
    if (ways == 0) {
        return anonymous(r);
    }
    if (w.v4) {
        return auth_verify_v4_query(r);
    }
    if (w.v2) {
        return auth_verify_v2_query(r);
    }
    if (r->api == TARN_API_CATALOG && tarn_str_istarts(r->seen.authorization, "Bearer ")) {
        return bearer(r, tarn_str_trim(tarn_str_sub(r->seen.authorization, 7, SIZE_MAX)));
    }
    return auth_verify_v4_header(r);
}

tarn_err tarn_auth_verify(tarn_auth *a, tarn_auth_api api, const tarn_auth_view *v, int64_t now_ms, tarn_arena *arena,
                          tarn_auth_result *out, tarn_err_detail *detail)
{
    tarn_auth_result result = {.mode = TARN_AUTH_ANONYMOUS, .identity = ANONYMOUS};
    auth_run r = {.a = a, .api = api, .v = v, .now_ms = now_ms, .arena = arena, .out = &result, .d = detail};
    if (detail) {
        *detail = (tarn_err_detail){.fields_n = 0};
    }
    see(&r);
    tarn_err e = auth_query_parse(arena, v->raw_query, false, &r.query);
    if (e == TARN_E_INVALID_ARGUMENT) {
        e = auth_fail(detail, e, "The query has too many parameters.");
    }
    if (e == TARN_OK) {
        e = dispatch(&r);
    }
    if (e == TARN_OK) {
        *out = result;
    }
    tarn_wipe(result.signing_key, sizeof result.signing_key);
    return e;
}

void tarn_auth_result_wipe(tarn_auth_result *r)
{
    tarn_wipe(r->signing_key, sizeof r->signing_key);
    if (r->deferred) {
        tarn_wipe(r->deferred->key, sizeof r->deferred->key);
    }
}
