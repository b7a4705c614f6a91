/* SPDX-License-Identifier: Apache-2.0 */
/*
 * POST forms (s3.md §2.4): the signature over the base64 text of the policy, in version 4 and in the older version 2.
 * What the policy demands of the form is post_policy.c.
 * Memory: slices of the form, or the request's arena. Threads: the request's fiber.
 */
#include "auth_private.h"
#include "v2.h"

#include <string.h>

#define MALFORMED "The x-amz-credential field is malformed"
#define AMZ_DATE_BYTES 16
#define FORM_AGE_MS_MAX (INT64_C(7) * 24 * 3600 * AUTH_MS_PER_S)

static tarn_err missing(tarn_err_detail *d, tarn_arena *arena, const char *field)
{
    tarn_err_detail_add(d, "ArgumentName", tarn_str_of(field));
    return auth_failf(d, arena, TARN_E_INVALID_ARGUMENT,
                      "Bucket POST must contain a field named '%s'.  If it is specified, please check the order of the fields.", field);
}

static tarn_err check_fields(const tarn_form_auth *f, tarn_arena *arena, tarn_err_detail *d)
{
    const struct {
        const char *name;
        tarn_str value;
    } table[] = {{"policy", f->policy_base64},
                 {"x-amz-algorithm", f->algorithm},
                 {"x-amz-credential", f->credential},
                 {"x-amz-date", f->amz_date},
                 {"x-amz-signature", f->signature}};
    for (size_t i = 0; i < TARN_ARRAY_LEN(table); i++) {
        if (table[i].value.n == 0) {
            return missing(d, arena, table[i].name);
        }
    }
    if (!tarn_str_eqc(f->algorithm, AUTH_ALGORITHM)) {
        return auth_fail_argument(d, "x-amz-algorithm only supports \"AWS4-HMAC-SHA256\"", "x-amz-algorithm");
    }
    return TARN_OK;
}

static tarn_err check_date(const tarn_form_auth *f, int64_t now_ms, int64_t *ms, tarn_err_detail *d)
{
    if (f->amz_date.n != AMZ_DATE_BYTES || !tarn_parse_amz_date(f->amz_date, ms)) {
        return auth_fail_argument(d, "x-amz-date must be in the ISO8601 Long Format \"yyyyMMdd'T'HHmmss'Z'\"", "x-amz-date");
    }
    if (*ms > now_ms + TARN_CLOCK_SKEW_MS_MAX) {
        return auth_fail(d, TARN_E_ACCESS_DENIED, "Request is not valid yet");
    }
    if (now_ms - *ms > FORM_AGE_MS_MAX) {
        return auth_fail(d, TARN_E_ACCESS_DENIED, "Request has expired");
    }
    return TARN_OK;
}

static void succeed(tarn_auth_result *out, const auth_user *u, int64_t signed_ms)
{
    *out = (tarn_auth_result){.mode = TARN_AUTH_POST_FORM, .payload = TARN_PAYLOAD_UNSIGNED};
    out->identity = u->identity;
    out->access_key = u->identity.access_key;
    out->signed_ms = signed_ms;
}

static tarn_err mismatch(tarn_str access_key, tarn_str policy, tarn_str signature, tarn_err_detail *d)
{
    tarn_err_detail_add(d, "AWSAccessKeyId", access_key);
    tarn_err_detail_add(d, "StringToSign", policy);
    tarn_err_detail_add(d, "SignatureProvided", signature);
    return TARN_E_SIGNATURE_DOES_NOT_MATCH;
}

static tarn_err verify_v4(tarn_auth *a, const tarn_form_auth *f, int64_t now_ms, tarn_arena *arena, tarn_auth_result *out,
                          tarn_err_detail *d)
{
    auth_scope scope = {.access_key = TARN_STR_NULL};
    int64_t ms = 0;
    tarn_err e = check_fields(f, arena, d);
    if (e == TARN_OK) {
        e = check_date(f, now_ms, &ms, d);
    }
    if (e != TARN_OK) {
        return e;
    }
    auth_scope_fault fault =
        auth_scope_parse(f->credential, &scope) ? auth_scope_check(&scope, TARN_API_S3, a->region, f->amz_date) : AUTH_SCOPE_FORM;
    e = auth_scope_fail(fault, &scope, TARN_E_INVALID_ARGUMENT, MALFORMED, a->region, f->amz_date, arena, d);
    if (e != TARN_OK) {
        return e;
    }
    const auth_user *u = auth_user_find(a, scope.access_key);
    if (!u) {
        return auth_fail_unknown_key(d, scope.access_key);
    }
    e = auth_user_check_token(u, f->security_token, d);
    if (e != TARN_OK) {
        return e;
    }
    /* The string to sign is the base64 text itself. */
    uint8_t key[TARN_SHA256_BYTES];
    uint8_t mac[TARN_SHA256_BYTES];
    char hex_mem[AUTH_SIGNATURE_HEX + 1];
    tarn_sb hex;
    bool hit;
    auth_keycache_get(a->cache, u, &scope, key, &hit);
    tarn_hmac_sha256(key, sizeof key, f->policy_base64.p, f->policy_base64.n, mac);
    tarn_sb_init_fixed(&hex, hex_mem, sizeof hex_mem);
    tarn_sb_hex(&hex, mac, sizeof mac);
    bool good = f->signature.n == AUTH_SIGNATURE_HEX && tarn_equal_ct(hex_mem, f->signature.p, AUTH_SIGNATURE_HEX);
    if (good && !hit) {
        auth_keycache_put(a->cache, u, &scope, key);
    }
    tarn_wipe(key, sizeof key);
    tarn_wipe(mac, sizeof mac);
    tarn_wipe(hex_mem, sizeof hex_mem);
    if (!good) {
        return mismatch(scope.access_key, f->policy_base64, f->signature, d);
    }
    succeed(out, u, ms);
    out->region = scope.region;
    out->service = scope.service;
    out->amz_date = f->amz_date;
    return TARN_OK;
}

static tarn_err verify_v2(tarn_auth *a, const tarn_form_auth *f, int64_t now_ms, tarn_arena *arena, tarn_auth_result *out,
                          tarn_err_detail *d)
{
    if (!a->sigv2_query) {
        return auth_fail(d, TARN_E_INVALID_REQUEST,
                         "The authorization mechanism you have provided is not supported. Please use AWS4-HMAC-SHA256.");
    }
    if (f->policy_base64.n == 0 || f->v2_access_key.n == 0 || f->v2_signature.n == 0) {
        return missing(d, arena, f->policy_base64.n == 0 ? "policy" : f->v2_access_key.n == 0 ? "AWSAccessKeyId" : "signature");
    }
    const auth_user *u = auth_user_find(a, f->v2_access_key);
    if (!u) {
        return auth_fail_unknown_key(d, f->v2_access_key);
    }
    tarn_err e = auth_user_check_token(u, f->security_token, d);
    if (e != TARN_OK) {
        return e;
    }
    tarn_str good = auth_v2_signature(arena, (tarn_str){u->secret, u->secret_n}, f->policy_base64);
    if (!good.p) {
        return TARN_E_NO_MEMORY;
    }
    if (!auth_v2_equals(good, f->v2_signature)) {
        return mismatch(f->v2_access_key, f->policy_base64, f->v2_signature, d);
    }
    succeed(out, u, now_ms);
    return TARN_OK;
}

tarn_err tarn_auth_verify_form(tarn_auth *a, const tarn_form_auth *f, int64_t now_ms, tarn_arena *arena, tarn_auth_result *out,
                               tarn_err_detail *detail)
{
    bool v4 = f->algorithm.p || f->credential.p || f->amz_date.p || f->signature.p;
    bool v2 = f->v2_access_key.p || f->v2_signature.p;
    if (detail) {
        *detail = (tarn_err_detail){.fields_n = 0};
    }
    if (v4 && v2) {
        return auth_fail_argument(detail, "Only one auth mechanism allowed in a form.", "x-amz-algorithm");
    }
    if (v4) {
        return verify_v4(a, f, now_ms, arena, out, detail);
    }
    if (v2) {
        return verify_v2(a, f, now_ms, arena, out, detail);
    }
    if (f->policy_base64.p) {
        return missing(detail, arena, "x-amz-signature"); /* a policy that nobody signed */
    }
    *out = (tarn_auth_result){.mode = TARN_AUTH_ANONYMOUS, .identity = {.anonymous = true}, .payload = TARN_PAYLOAD_UNSIGNED};
    return TARN_OK;
}
