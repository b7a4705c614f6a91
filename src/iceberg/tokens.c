/* SPDX-License-Identifier: Apache-2.0 */
/*
 * iceberg, POST /v1/oauth/tokens (RFC 6749, client credentials): client id and secret are access key and secret key, from
 * the form, the query or Basic. Errors have OAuth's form, not the catalog's.
 */
#include <string.h>

#include "catalog.h"

#define TOKEN_VALUE_BYTES_MAX 1024

typedef struct token_request {
    tarn_str grant, id, secret;
} token_request;

static tarn_err send_oauth(ice_req *q, int status, tarn_sb *b)
{
    tarn_resp_headerc(q->http, "Cache-Control", "no-store");
    tarn_resp_headerc(q->http, "Pragma", "no-cache");
    tarn_err err = ice_send_json(q, status, b);
    if (b->p)
        tarn_wipe(b->p, b->n);
    tarn_sb_free(b);
    return err;
}

static tarn_err send_oauth_error(ice_req *q, int status, const char *error, const char *description)
{
    tarn_sb b;
    tarn_sb_init(&b, 4096);
    tarn_sb_fmt(&b, "{\"error\":\"%s\",\"error_description\":", error);
    ice_json_write_string(&b, tarn_str_of(description));
    tarn_sb_char(&b, '}');
    if (status == 401)
        tarn_resp_headerc(q->http, "WWW-Authenticate", "Basic realm=\"catalog\"");
    return send_oauth(q, status, &b);
}

static void take(token_request *t, tarn_str name, tarn_str value)
{
    if (tarn_str_eqc(name, "grant_type"))
        t->grant = value;
    else if (tarn_str_eqc(name, "client_id"))
        t->id = value;
    else if (tarn_str_eqc(name, "client_secret"))
        t->secret = value;
}

static bool read_form(ice_req *q, token_request *t)
{
    tarn_str form = q->body_text.p ? tarn_sb_view(&q->body_text) : TARN_STR("");
    bool more = form.n > 0;
    while (more) {
        tarn_str pair, rest, name, value;
        more = tarn_str_split(form, '&', &pair, &rest);
        form = rest;
        tarn_str_split(pair, '=', &name, &value);
        if (!tarn_urldecode(q->a, name, true, &name) || !tarn_urldecode(q->a, value.p ? value : TARN_STR(""), true, &value))
            return false;
        take(t, name, value);
    }
    return true;
}

static bool read_query(ice_req *q, token_request *t)
{
    const tarn_param *p = NULL;
    size_t n = 0;
    if (!tarn_req_params(q->http, &p, &n))
        return false;
    for (size_t i = 0; i < n; i++)
        take(t, p[i].name, p[i].value);
    return true;
}

static bool read_basic(ice_req *q, token_request *t)
{
    tarn_str h = tarn_req_header(q->http, "authorization"), id, secret;
    size_t n = 0;
    if (!tarn_str_istarts(h, "basic "))
        return true;
    h = tarn_str_trim(tarn_str_sub(h, 6, h.n));
    uint8_t *plain = h.n <= TOKEN_VALUE_BYTES_MAX ? tarn_arena_alloc(q->a, TOKEN_VALUE_BYTES_MAX) : NULL;
    if (!plain || !tarn_base64_decode(h, plain, TOKEN_VALUE_BYTES_MAX, &n) ||
        !tarn_str_split((tarn_str){(char *)plain, n}, ':', &id, &secret))
        return false;
    t->id = id;
    t->secret = secret.p ? secret : TARN_STR("");
    return true;
}

tarn_err ice_h_token(ice_req *q)
{
    token_request t = {0};
    tarn_str token = TARN_STR_NULL;
    tarn_sb b;
    if (!read_query(q, &t) || !read_form(q, &t) || !read_basic(q, &t))
        return send_oauth_error(q, 400, "invalid_request", "The form, the query or the Basic credentials can't be read");
    if (t.grant.n == 0)
        return send_oauth_error(q, 400, "invalid_request", "grant_type is missing");
    if (!tarn_str_eqc(t.grant, "client_credentials"))
        return send_oauth_error(q, 400, "unsupported_grant_type", "Only client_credentials is supported");
    if (t.id.n == 0 || t.secret.n == 0)
        return send_oauth_error(q, 401, "invalid_client", "client_id and client_secret are needed: access key and secret key");
    tarn_err err = tarn_token_issue(q->ice->auth, t.id, t.secret, tarn_req_time_ms(q->http), TARN_TOKEN_LIFE_S_DEFAULT, q->a, &token);
    if (err == TARN_E_NO_MEMORY)
        return err;
    if (err != TARN_OK)
        return send_oauth_error(q, 401, "invalid_client", "Unknown access key or wrong secret key");
    tarn_req_set_identity(q->http, t.id);
    tarn_sb_init(&b, 16384);
    tarn_sb_cstr(&b, "{\"access_token\":");
    ice_json_write_string(&b, token);
    tarn_sb_fmt(&b, ",\"token_type\":\"bearer\",\"expires_in\":%d,\"issued_token_type\":\"urn:ietf:params:oauth:token-type:access_token\"}",
                TARN_TOKEN_LIFE_S_DEFAULT);
    return send_oauth(q, 200, &b);
}
