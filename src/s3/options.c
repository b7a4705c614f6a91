/* SPDX-License-Identifier: Apache-2.0 */
/*
 * CORS: preflight requests, and the headers of answers to browsers. The rules are the bucket's; there is no rule that reflects
 * any origin together with credentials unless the bucket's owner wrote one.
 */
#include "s3_internal.h"

/* One '*' at most, as S3 has it. */
bool s3_cors_glob(tarn_str pattern, tarn_str text)
{
    ptrdiff_t star = tarn_str_chr(pattern, '*');
    if (star < 0)
        return tarn_str_eq(pattern, text);
    tarn_str head = tarn_str_sub(pattern, 0, (size_t)star), tail = tarn_str_sub(pattern, (size_t)star + 1, pattern.n);
    return text.n >= head.n + tail.n && tarn_str_eq(tarn_str_sub(text, 0, head.n), head) &&
           tarn_str_eq(tarn_str_sub(text, text.n - tail.n, tail.n), tail);
}

bool s3_cors_method(tarn_str method)
{
    static const char *const methods[] = {"GET", "PUT", "POST", "DELETE", "HEAD"};
    for (size_t i = 0; i < TARN_ARRAY_LEN(methods); i++)
        if (tarn_str_eqc(method, methods[i]))
            return true;
    return false;
}

static tarn_str lower(tarn_arena *a, tarn_str s)
{
    tarn_str out = tarn_arena_str(a, s);
    for (size_t i = 0; i < out.n; i++)
        if (out.p[i] >= 'A' && out.p[i] <= 'Z')
            ((char *)(uintptr_t)out.p)[i] = (char)(out.p[i] + ('a' - 'A'));
    return out;
}

static bool lists(const s3_node *rule, const char *element, tarn_str text, tarn_str *matched)
{
    for (const s3_node *k = rule->first; k != NULL; k = k->next) {
        if (!tarn_str_eqc(k->name, element) || !s3_cors_glob(tarn_str_trim(k->text), text))
            continue;
        if (matched != NULL)
            *matched = tarn_str_trim(k->text);
        return true;
    }
    return false;
}

/* wanted: in lower case; names of headers have no case. */
static bool headers_allowed(tarn_arena *a, const s3_node *rule, tarn_str wanted)
{
    while (wanted.n > 0) {
        tarn_str head;
        (void)tarn_str_split(wanted, ',', &head, &wanted);
        head = tarn_str_trim(head);
        bool found = head.n == 0;
        for (const s3_node *k = rule->first; k != NULL && !found; k = k->next) {
            if (!tarn_str_eqc(k->name, "AllowedHeader"))
                continue;
            found = s3_cors_glob(lower(a, tarn_str_trim(k->text)), head);
        }
        if (!found)
            return false;
    }
    return true;
}

static tarn_str join(s3_ctx *c, const s3_node *rule, const char *element)
{
    tarn_sb b;
    tarn_sb_init(&b, 8192);
    for (const s3_node *k = rule->first; k != NULL; k = k->next) {
        if (!tarn_str_eqc(k->name, element))
            continue;
        if (b.n > 0)
            tarn_sb_cstr(&b, ", ");
        tarn_sb_str(&b, tarn_str_trim(k->text));
    }
    tarn_str out = tarn_arena_str(c->a, tarn_sb_view(&b));
    tarn_sb_free(&b);
    return out;
}

static void allow_headers(s3_ctx *c, const s3_node *rule, tarn_str origin, tarn_str matched)
{
    bool any = tarn_str_eqc(matched, "*");
    tarn_resp_header(c->r, "Access-Control-Allow-Origin", any ? TARN_STR("*") : origin);
    if (!any)
        tarn_resp_headerc(c->r, "Access-Control-Allow-Credentials", "true");
    tarn_resp_header(c->r, "Access-Control-Allow-Methods", join(c, rule, "AllowedMethod"));
    tarn_str expose = join(c, rule, "ExposeHeader");
    if (expose.n > 0)
        tarn_resp_header(c->r, "Access-Control-Expose-Headers", expose);
    tarn_resp_headerc(c->r, "Vary", "Origin, Access-Control-Request-Headers, Access-Control-Request-Method");
}

void s3_cors_headers(s3_ctx *c)
{
    tarn_str origin = tarn_req_header(c->r, "origin"), matched;
    if (origin.p == NULL || !c->bucket_loaded || c->facts->cors == NULL)
        return;
    for (const s3_node *r = c->facts->cors->first; r != NULL; r = r->next) {
        if (!lists(r, "AllowedOrigin", origin, &matched) || !lists(r, "AllowedMethod", tarn_req_method(c->r), NULL))
            continue;
        allow_headers(c, r, origin, matched);
        return;
    }
}

tarn_err s3_options(s3_ctx *c)
{
    tarn_str origin = tarn_req_header(c->r, "origin"), method = tarn_req_header(c->r, "access-control-request-method"),
             wanted = lower(c->a, tarn_req_header(c->r, "access-control-request-headers")), matched;
    if (origin.n == 0)
        return s3_fail(c, TARN_E_BAD_REQUEST, "Insufficient information. Origin request header needed.");
    if (!s3_cors_method(method)) {
        c->detail.message =
            tarn_arena_fmt(c->a, "Invalid Access-Control-Request-Method: %.*s", TARN_STR_ARG(method.n > 0 ? method : TARN_STR("null")));
        return TARN_E_BAD_REQUEST;
    }
    if (c->facts->cors == NULL)
        return s3_fail(c, TARN_E_CORS_FORBIDDEN, "CORSResponse: CORS is not enabled for this bucket.");
    for (const s3_node *r = c->facts->cors->first; r != NULL; r = r->next) {
        if (!lists(r, "AllowedOrigin", origin, &matched) || !lists(r, "AllowedMethod", method, NULL) || !headers_allowed(c->a, r, wanted))
            continue;
        allow_headers(c, r, origin, matched);
        if (wanted.n > 0)
            tarn_resp_header(c->r, "Access-Control-Allow-Headers", wanted);
        tarn_str age = s3_node_text(r, "MaxAgeSeconds");
        if (age.n > 0)
            tarn_resp_header(c->r, "Access-Control-Max-Age", age);
        return s3_send_empty(c, 200);
    }
    return TARN_E_CORS_FORBIDDEN;
}
