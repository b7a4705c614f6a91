/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What handlers ask a request for. Everything returned lives in the request's arena, as long as the request.
 */
#include "http_private.h"

tarn_arena *tarn_req_arena(tarn_req *r)
{
    return r->arena;
}

const tarn_auth_view *tarn_req_view(const tarn_req *r)
{
    return &r->view;
}

tarn_str tarn_req_method(const tarn_req *r)
{
    return r->head.method;
}

bool tarn_req_is_head(const tarn_req *r)
{
    return r->is_head;
}

tarn_str tarn_req_header(const tarn_req *r, const char *name)
{
    tarn_str n = tarn_str_of(name);
    for (size_t i = 0; i < r->head.headers_n; i++) {
        if (r->head.headers[i].name.n == n.n && tarn_str_ieq(r->head.headers[i].name, n)) {
            return r->head.headers[i].value;
        }
    }
    return TARN_STR_NULL;
}

const char *tarn_req_id(const tarn_req *r)
{
    return r->id;
}

const tarn_addr *tarn_req_peer(const tarn_req *r)
{
    return &r->conn->peer;
}

bool tarn_req_tls(const tarn_req *r)
{
    (void)r;
    return false;
}

int64_t tarn_req_time_ms(const tarn_req *r)
{
    return r->time_ms;
}

void tarn_req_set_operation(tarn_req *r, const char *name)
{
    r->operation = name;
}

void tarn_req_set_identity(tarn_req *r, tarn_str access_key)
{
    r->access_key = access_key;
}

bool tarn_req_content_length(const tarn_req *r, uint64_t *n)
{
    *n = r->head.content_length;
    return !r->head.has_transfer_encoding;
}

bool tarn_req_has_body_framing(const tarn_req *r)
{
    return r->head.has_content_length || r->head.has_transfer_encoding;
}

bool tarn_req_body_done(const tarn_req *r)
{
    return r->body_done;
}

bool tarn_req_client_gone(tarn_req *r)
{
    return r->conn->broken || tarn_sock_peer_gone(r->conn->sock);
}

/* ------------------------------------------------------------------ query */

static size_t count_params(tarn_str query)
{
    size_t n = 1;
    for (size_t i = 0; i < query.n; i++) {
        n += query.p[i] == '&';
    }
    return n;
}

static bool parse_param(tarn_req *r, tarn_str item, tarn_param *p)
{
    tarn_str name, value;
    p->has_eq = tarn_str_split(item, '=', &name, &value);
    if (!p->has_eq) {
        name = item;
        value = TARN_STR_NULL;
    }
    return tarn_urldecode(r->arena, name, false, &p->name) && tarn_urldecode(r->arena, value, false, &p->value);
}

static bool parse_params(tarn_req *r)
{
    tarn_str query = r->head.raw_query;
    if (query.n == 0) {
        return true;
    }
    r->params = TARN_ARENA_ARRAY(r->arena, tarn_param, count_params(query));
    if (r->params == NULL) {
        return false;
    }
    while (query.n > 0) {
        tarn_str item, rest;
        if (!tarn_str_split(query, '&', &item, &rest)) {
            item = query;
            rest = TARN_STR_NULL;
        }
        query = rest;
        if (item.n == 0) {
            continue;
        }
        if (!parse_param(r, item, &r->params[r->params_n])) {
            return false;
        }
        r->params_n++;
    }
    return true;
}

bool tarn_req_params(tarn_req *r, const tarn_param **out, size_t *n)
{
    if (!r->params_parsed) {
        r->params_parsed = true;
        r->params_ok = parse_params(r);
    }
    if (r->params_ok) {
        *out = r->params;
        *n = r->params_n;
    }
    return r->params_ok;
}

const tarn_param *tarn_req_param(tarn_req *r, const char *name)
{
    const tarn_param *all = NULL;
    size_t n = 0;
    if (!tarn_req_params(r, &all, &n)) {
        return NULL;
    }
    for (size_t i = 0; i < n; i++) {
        if (tarn_str_eqc(all[i].name, name)) {
            return &all[i];
        }
    }
    return NULL;
}

bool tarn_path_first(tarn_str raw_path, tarn_str *segment, tarn_str *rest)
{
    if (raw_path.n < 2 || raw_path.p[0] != '/') {
        return false;
    }
    tarn_str tail = tarn_str_sub(raw_path, 1, raw_path.n);
    ptrdiff_t slash = tarn_str_chr(tail, '/');
    size_t n = slash < 0 ? tail.n : (size_t)slash;
    *segment = tarn_str_sub(tail, 0, n);
    *rest = tarn_str_sub(tail, n, tail.n);
    return true;
}
