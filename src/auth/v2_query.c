/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Presigned URLs of signature version 2 (AWSAccessKeyId, Expires, Signature), which older and unconfigured clients still
 * make. The signature is HMAC-SHA1 over
 *   method \n Content-MD5 \n Content-Type \n Expires \n x-amz-* headers, then the path and its sub-resources.
 *
 * Invariants: (1) every x-amz-* header is part of what is signed; (2) a query parameter is either signed, one of the
 * parameters that this version is known to leave out, or the request is refused: nobody can turn a signed GET of an object
 * into another operation by adding a sub-resource; (3) the bucket is part of what is signed, whether it stands in the path or in
 * the host: nobody can open another bucket by sending another Host.
 * Memory: slices of the view, or the request's arena. Threads: the request's fiber.
 */
#include "auth_private.h"
#include "v2.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <string.h>

/* Sorted. What takes part in the resource when it is in the query. */
static const char *const SIGNED_NAMES[] = {
    "accelerate",
    "acl",
    "analytics",
    "attributes",
    "cors",
    "delete",
    "encryption",
    "intelligent-tiering",
    "inventory",
    "legal-hold",
    "lifecycle",
    "location",
    "logging",
    "metrics",
    "notification",
    "object-lock",
    "ownershipControls",
    "partNumber",
    "policy",
    "policyStatus",
    "publicAccessBlock",
    "replication",
    "requestPayment",
    "response-cache-control",
    "response-content-disposition",
    "response-content-encoding",
    "response-content-language",
    "response-content-type",
    "response-expires",
    "restore",
    "retention",
    "select",
    "select-type",
    "storageClass",
    "tagging",
    "torrent",
    "uploadId",
    "uploads",
    "versionId",
    "versioning",
    "versions",
    "website",
};
/* What this version never signed: they choose what part of a list is shown. */
static const char *const FREE_NAMES[] = {
    "AWSAccessKeyId", "Expires",     "Signature",        "continuation-token", "delimiter", "encoding-type", "fetch-owner",
    "key-marker",     "list-type",   "marker",           "max-keys",           "max-parts", "max-uploads",   "part-number-marker",
    "prefix",         "start-after", "upload-id-marker", "version-id-marker",  "x-id",
};
/* Headers that a URL may carry in its query. */
static bool carried_header(tarn_str name)
{
    return tarn_str_istarts(name, "x-amz-") || tarn_str_ieqc(name, "content-md5") || tarn_str_ieqc(name, "content-type");
}

static bool among(const char *const *names, size_t n, tarn_str name)
{
    for (size_t i = 0; i < n; i++) {
        if (tarn_str_eqc(name, names[i])) {
            return true;
        }
    }
    return false;
}

tarn_str auth_v2_signature(tarn_arena *arena, tarn_str secret, tarn_str text)
{
    uint8_t mac[TARN_SHA1_BYTES];
    unsigned n = 0;
    char mem[2 * TARN_SHA1_BYTES];
    tarn_sb b;
    tarn_sb_init_fixed(&b, mem, sizeof mem);
    TARN_ASSERT(secret.n <= TARN_SECRET_KEY_BYTES_MAX);
    if (!HMAC(EVP_sha1(), secret.p, (int)secret.n, (const unsigned char *)text.p, text.n, mac, &n) || n != sizeof mac) {
        return TARN_STR_NULL;
    }
    tarn_sb_base64(&b, mac, sizeof mac);
    tarn_wipe(mac, sizeof mac);
    return tarn_arena_str(arena, tarn_sb_view(&b));
}

bool auth_v2_equals(tarn_str computed, tarn_str given)
{
    return computed.n == given.n && computed.n > 0 && tarn_equal_ct(computed.p, given.p, computed.n);
}

typedef struct v2_params {
    tarn_str access_key, expires, signature;
    uint64_t expires_s;
} v2_params;

static tarn_err read_params(auth_run *r, v2_params *p)
{
    const struct {
        const char *name;
        tarn_str *to;
    } table[] = {{"AWSAccessKeyId", &p->access_key}, {"Expires", &p->expires}, {"Signature", &p->signature}};
    for (size_t i = 0; i < TARN_ARRAY_LEN(table); i++) {
        tarn_str encoded;
        size_t n = auth_query_find(&r->query, table[i].name, &encoded);
        if (n != 1 || encoded.n == 0) {
            return auth_fail(r->d, TARN_E_ACCESS_DENIED,
                             "Query-string authentication requires the Signature, Expires and AWSAccessKeyId parameters");
        }
        if (!auth_query_decode(r->arena, encoded, table[i].to)) {
            return TARN_E_NO_MEMORY;
        }
    }
    if (!tarn_str_to_u64(p->expires, &p->expires_s) || p->expires_s > INT64_MAX / AUTH_MS_PER_S) {
        return auth_fail(r->d, TARN_E_ACCESS_DENIED, "Invalid date (should be seconds since epoch)");
    }
    return TARN_OK;
}

static tarn_err check_time(auth_run *r, const v2_params *p)
{
    int64_t end_ms = (int64_t)p->expires_s * AUTH_MS_PER_S;
    if (r->now_ms <= end_ms) {
        return TARN_OK;
    }
    tarn_err_detail_add(r->d, "Expires", auth_iso_text(r->arena, end_ms));
    tarn_err_detail_add(r->d, "ServerTime", auth_iso_text(r->arena, r->now_ms));
    return auth_fail(r->d, TARN_E_ACCESS_DENIED, "Request has expired");
}

static tarn_err check_query(auth_run *r)
{
    for (size_t i = 0; i < r->query.n; i++) {
        tarn_str n = r->query.v[i].name;
        if (!among(SIGNED_NAMES, TARN_ARRAY_LEN(SIGNED_NAMES), n) && !among(FREE_NAMES, TARN_ARRAY_LEN(FREE_NAMES), n) &&
            !carried_header(n)) {
            tarn_err_detail_add(r->d, "ArgumentName", n);
            return auth_fail(r->d, TARN_E_ACCESS_DENIED, "A query parameter is not covered by the signature (version 2).");
        }
    }
    return TARN_OK;
}

/* One header: those that came, else the one carried in the query. */
static bool header_value(auth_run *r, const char *name, tarn_str *out)
{
    *out = tarn_auth_header(r->v, name);
    if (out->p) {
        return true;
    }
    for (size_t i = 0; i < r->query.n; i++) {
        if (tarn_str_ieqc(r->query.v[i].name, name)) {
            return auth_query_decode(r->arena, r->query.v[i].value, out);
        }
    }
    return true;
}

/* x-amz-* headers and those carried in the query, with names as they came; sorted by name in lower case, stable. */
static tarn_err amz_headers(auth_run *r, tarn_pair **out, size_t *out_n)
{
    tarn_pair *v = tarn_arena_alloc(r->arena, (r->v->headers_n + r->query.n + 1) * sizeof *v);
    size_t n = 0;
    if (!v) {
        return TARN_E_NO_MEMORY;
    }
    for (size_t i = 0; i < r->v->headers_n; i++) {
        if (tarn_str_istarts(r->v->headers[i].name, "x-amz-")) {
            v[n++] = r->v->headers[i];
        }
    }
    for (size_t i = 0; i < r->query.n; i++) {
        tarn_pair p = {r->query.v[i].name, TARN_STR_NULL};
        if (!tarn_str_istarts(p.name, "x-amz-")) {
            continue;
        }
        if (!auth_query_decode(r->arena, r->query.v[i].value, &p.value)) {
            return TARN_E_NO_MEMORY;
        }
        v[n++] = p;
    }
    for (size_t i = 0; i < n; i++) {
        char *low = tarn_arena_cstr(r->arena, v[i].name);
        if (!low) {
            return TARN_E_NO_MEMORY;
        }
        for (size_t k = 0; k < v[i].name.n; k++) {
            low[k] = (char)(low[k] >= 'A' && low[k] <= 'Z' ? low[k] + ('a' - 'A') : low[k]);
        }
        tarn_pair x = {{low, v[i].name.n}, v[i].value};
        size_t j = i;
        for (; j > 0 && tarn_str_cmp(v[j - 1].name, x.name) > 0; j--) {
            v[j] = v[j - 1];
        }
        v[j] = x;
    }
    *out = v;
    *out_n = n;
    return TARN_OK;
}

static tarn_err put_amz_headers(auth_run *r, tarn_sb *b)
{
    tarn_pair *v = NULL;
    size_t n = 0;
    tarn_err e = amz_headers(r, &v, &n);
    for (size_t i = 0; e == TARN_OK && i < n; i++) {
        bool same = i > 0 && tarn_str_eq(v[i - 1].name, v[i].name);
        if (same) {
            tarn_sb_char(b, ',');
        } else {
            if (i > 0) {
                tarn_sb_char(b, '\n');
            }
            tarn_sb_str(b, v[i].name);
            tarn_sb_char(b, ':');
        }
        tarn_sb_str(b, tarn_str_trim(v[i].value));
    }
    if (e == TARN_OK && n > 0) {
        tarn_sb_char(b, '\n');
    }
    return e;
}

static tarn_err put_resource(auth_run *r, tarn_sb *b)
{
    char sep = '?';
    /* The bucket of a virtual host stands in front, as in a path-style URL: the host itself is not signed. */
    tarn_str bucket = tarn_auth_host_bucket(r->a, tarn_auth_header(r->v, "host"));
    if (bucket.n > 0) {
        tarn_sb_char(b, '/');
        tarn_sb_str(b, bucket);
    }
    tarn_sb_str(b, r->v->raw_path);
    for (size_t k = 0; k < TARN_ARRAY_LEN(SIGNED_NAMES); k++) {
        for (size_t i = 0; i < r->query.n; i++) {
            tarn_str value;
            if (!tarn_str_eqc(r->query.v[i].name, SIGNED_NAMES[k])) {
                continue;
            }
            if (!auth_query_decode(r->arena, r->query.v[i].value, &value)) {
                return TARN_E_NO_MEMORY;
            }
            tarn_sb_char(b, sep);
            tarn_sb_cstr(b, SIGNED_NAMES[k]);
            if (value.n > 0) {
                tarn_sb_char(b, '=');
                tarn_sb_str(b, value);
            }
            sep = '&';
        }
    }
    return TARN_OK;
}

static tarn_err string_to_sign(auth_run *r, const v2_params *p, tarn_str *out)
{
    size_t bytes = r->v->method.n + r->v->raw_path.n + r->v->raw_query.n * 2 + p->expires.n + 16;
    for (size_t i = 0; i < r->v->headers_n; i++) {
        bytes += r->v->headers[i].name.n + r->v->headers[i].value.n + 2;
    }
    char *mem = tarn_arena_alloc(r->arena, bytes);
    tarn_str md5;
    tarn_str type;
    if (!mem || !header_value(r, "content-md5", &md5) || !header_value(r, "content-type", &type)) {
        return TARN_E_NO_MEMORY;
    }
    tarn_sb b;
    tarn_sb_init_fixed(&b, mem, bytes);
    tarn_sb_str(&b, r->v->method);
    tarn_sb_char(&b, '\n');
    tarn_sb_str(&b, md5);
    tarn_sb_char(&b, '\n');
    tarn_sb_str(&b, type);
    tarn_sb_char(&b, '\n');
    tarn_sb_str(&b, p->expires);
    tarn_sb_char(&b, '\n');
    tarn_err e = put_amz_headers(r, &b);
    if (e == TARN_OK) {
        e = put_resource(r, &b);
    }
    *out = tarn_sb_view(&b);
    return e == TARN_OK && b.failed ? TARN_E_INTERNAL : e;
}

static tarn_err payload(auth_run *r)
{
    r->out->payload = TARN_PAYLOAD_UNSIGNED;
    if (r->seen.content_sha256_n == 0) {
        return TARN_OK;
    }
    if (tarn_str_starts(r->seen.content_sha256, "STREAMING-")) {
        return auth_fail(r->d, TARN_E_INVALID_REQUEST, "Signature version 2 has no streaming bodies. Please use AWS4-HMAC-SHA256.");
    }
    return auth_payload_header(r, r->seen.content_sha256, true);
}

static tarn_err match(auth_run *r, const v2_params *p, const auth_user *u)
{
    tarn_str text = TARN_STR_NULL;
    tarn_err e = string_to_sign(r, p, &text);
    if (e != TARN_OK) {
        return e;
    }
    tarn_str good = auth_v2_signature(r->arena, (tarn_str){u->secret, u->secret_n}, text);
    if (!good.p) {
        return TARN_E_NO_MEMORY;
    }
    if (!auth_v2_equals(good, p->signature)) {
        tarn_err_detail_add(r->d, "AWSAccessKeyId", p->access_key);
        tarn_err_detail_add(r->d, "StringToSign", text);
        tarn_err_detail_add(r->d, "SignatureProvided", p->signature);
        if (text.n <= AUTH_ECHO_BYTES_MAX) {
            tarn_err_detail_add(r->d, "StringToSignBytes", auth_spaced_hex(r->arena, text));
        }
        return TARN_E_SIGNATURE_DOES_NOT_MATCH;
    }
    r->out->mode = TARN_AUTH_V2_QUERY;
    r->out->identity = u->identity;
    r->out->access_key = u->identity.access_key;
    r->out->signed_ms = r->now_ms;
    return TARN_OK;
}

tarn_err auth_verify_v2_query(auth_run *r)
{
    v2_params p = {.expires_s = 0};
    if (!r->a->sigv2_query) {
        return auth_fail(r->d, TARN_E_INVALID_REQUEST,
                         "The authorization mechanism you have provided is not supported. Please use AWS4-HMAC-SHA256.");
    }
    tarn_err e = read_params(r, &p);
    if (e == TARN_OK) {
        e = check_time(r, &p);
    }
    if (e != TARN_OK) {
        return e;
    }
    const auth_user *u = auth_user_find(r->a, p.access_key);
    if (!u) {
        return auth_fail_unknown_key(r->d, p.access_key);
    }
    tarn_str token;
    e = check_query(r);
    if (e == TARN_OK && !header_value(r, "x-amz-security-token", &token)) {
        e = TARN_E_NO_MEMORY;
    }
    if (e == TARN_OK) {
        e = auth_user_check_token(u, token, r->d);
    }
    if (e == TARN_OK) {
        e = payload(r);
    }
    return e == TARN_OK ? match(r, &p, u) : e;
}
