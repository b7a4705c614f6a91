/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The credential of a version 4 signature: KEY/YYYYMMDD/REGION/SERVICE/aws4_request, taken apart and checked against what
 * this server is.
 * Memory: slices into the text that was given. Threads: the request's fiber.
 */
#include "auth_private.h"

#include <string.h>

#define DATE_DIGITS 8

/* Takes what stands behind the last '/' off *s. */
static bool cut_last(tarn_str *s, tarn_str *last)
{
    ptrdiff_t at = tarn_str_rchr(*s, '/');
    if (at < 0) {
        return false;
    }
    *last = (tarn_str){s->p + at + 1, s->n - (size_t)at - 1};
    s->n = (size_t)at;
    return true;
}

bool auth_scope_parse(tarn_str credential, auth_scope *out)
{
    auth_scope s;
    tarn_str rest = credential;
    if (!cut_last(&rest, &s.terminal) || !cut_last(&rest, &s.service) || !cut_last(&rest, &s.region) || !cut_last(&rest, &s.date)) {
        return false;
    }
    s.access_key = rest;
    if (rest.n == 0 || rest.n > TARN_ACCESS_KEY_BYTES_MAX || s.region.n > AUTH_REGION_BYTES_MAX || s.service.n == 0 ||
        s.service.n > AUTH_SERVICE_BYTES_MAX) {
        return false;
    }
    s.text = (tarn_str){s.date.p, credential.n - rest.n - 1};
    *out = s;
    return true;
}

static bool is_date(tarn_str s)
{
    if (s.n != DATE_DIGITS) {
        return false;
    }
    for (size_t i = 0; i < s.n; i++) {
        if (s.p[i] < '0' || s.p[i] > '9') {
            return false;
        }
    }
    return true;
}

static bool service_accepted(tarn_auth_api api, tarn_str service)
{
    switch (api) {
    case TARN_API_S3:
        return tarn_str_eqc(service, "s3");
    case TARN_API_CATALOG:
        return tarn_str_eqc(service, "s3tables") || tarn_str_eqc(service, "s3") || tarn_str_eqc(service, "execute-api") ||
               tarn_str_eqc(service, "glue");
    case TARN_API_ADMIN:
        return tarn_str_eqc(service, "s3") || tarn_str_eqc(service, "sts") || tarn_str_eqc(service, "iam");
    }
    return false;
}

auth_scope_fault auth_scope_check(const auth_scope *s, tarn_auth_api api, tarn_str region, tarn_str amz_date)
{
    if (!is_date(s->date)) {
        return AUTH_SCOPE_DATE_FORM;
    }
    if (!tarn_str_eqc(s->terminal, AUTH_TERMINAL)) {
        return AUTH_SCOPE_TERMINAL;
    }
    if (!service_accepted(api, s->service)) {
        return AUTH_SCOPE_SERVICE;
    }
    if (api == TARN_API_S3 && region.n > 0 && !tarn_str_eq(s->region, region)) {
        return AUTH_SCOPE_REGION;
    }
    if (!tarn_str_eq(s->date, tarn_str_sub(amz_date, 0, DATE_DIGITS))) {
        return AUTH_SCOPE_DATE;
    }
    return AUTH_SCOPE_OK;
}

tarn_err auth_scope_fail(auth_scope_fault f, const auth_scope *s, tarn_err e, const char *prefix, tarn_str region, tarn_str amz_date,
                         tarn_arena *arena, tarn_err_detail *d)
{
    switch (f) {
    case AUTH_SCOPE_OK:
        break;
    case AUTH_SCOPE_FORM:
        return auth_failf(d, arena, e, "%s; the Credential must be KEY/YYYYMMDD/REGION/SERVICE/aws4_request.", prefix);
    case AUTH_SCOPE_DATE_FORM:
        return auth_failf(d, arena, e, "%s; incorrect date \"%.*s\". The date in the credential must be yyyyMMdd.", prefix,
                          TARN_STR_ARG(s->date));
    case AUTH_SCOPE_TERMINAL:
        return auth_failf(d, arena, e, "%s; incorrect terminal \"%.*s\". This endpoint uses \"aws4_request\".", prefix,
                          TARN_STR_ARG(s->terminal));
    case AUTH_SCOPE_SERVICE:
        return auth_failf(d, arena, e,
                          "%s; incorrect service \"%.*s\". Sign S3 requests for \"s3\" and catalog requests for \"s3tables\" (in Iceberg "
                          "clients: rest.signing-name).",
                          prefix, TARN_STR_ARG(s->service));
    case AUTH_SCOPE_REGION:
        tarn_err_detail_add(d, "Region", region);
        return auth_failf(d, arena, e, "%s; the region '%.*s' is wrong; expecting '%.*s'", prefix, TARN_STR_ARG(s->region),
                          TARN_STR_ARG(region));
    case AUTH_SCOPE_DATE:
        return auth_failf(d, arena, e, "%s; Invalid credential date \"%.*s\". This date is not the same as X-Amz-Date: \"%.*s\".", prefix,
                          TARN_STR_ARG(s->date), TARN_STR_ARG(tarn_str_sub(amz_date, 0, DATE_DIGITS)));
    }
    return TARN_OK;
}
