/* SPDX-License-Identifier: Apache-2.0 */
/*
 * iceberg, answers: everything under /_iceberg is JSON, and every refusal is the specification's error model with message,
 * type and code, whoever refuses.
 */
#include <string.h>

#include "catalog.h"

#define SEND_WHOLE_BYTES_MAX (256 * 1024) /* up to this size one write; above, the pieces go out as they lie */

void ice_error_json(tarn_sb *b, tarn_str message, const char *type, int code)
{
    tarn_sb_cstr(b, "{\"error\":{\"message\":");
    ice_json_write_string(b, message);
    tarn_sb_fmt(b, ",\"type\":\"%s\",\"code\":%d}}", type, code);
}

tarn_err ice_send_json(ice_req *q, int status, tarn_sb *b)
{
    if (b->failed)
        return ice_fail(&q->e, TARN_E_LIMIT, "The answer is longer than the server can make it: ask for pages");
    tarn_resp_headerc(q->http, "Content-Type", "application/json");
    (void)tarn_resp_send(q->http, status, tarn_sb_view(b)); /* a client that has gone is no error of the handler */
    return TARN_OK;
}

tarn_err ice_send_empty(ice_req *q, int status)
{
    (void)tarn_resp_send(q->http, status, TARN_STR(""));
    return TARN_OK;
}

/* Bad credentials are 401 for bearers (clients then fetch a new token); a signature's own statuses stay. */
static tarn_err map_error(const ice_req *q, tarn_err err)
{
    tarn_str authorization = tarn_req_header(q->http, "authorization");
    bool bearer = tarn_str_istarts(authorization, "bearer ");
    switch (err) {
    case TARN_E_INVALID_TOKEN:
    case TARN_E_EXPIRED_TOKEN:
    case TARN_E_UNAUTHORIZED:
        return TARN_E_ICE_NOT_AUTHORIZED;
    case TARN_E_ACCESS_DENIED:
        return bearer && q->auth.mode != TARN_AUTH_BEARER ? TARN_E_ICE_NOT_AUTHORIZED : TARN_E_ICE_FORBIDDEN;
    default:
        return err;
    }
}

void ice_send_error(ice_req *q, tarn_err err)
{
    if (q->e.code != err || ice_error_message(&q->e).n == 0)
        ice_fail_plain(&q->e, err);
    if (tarn_resp_started(q->http)) {
        tarn_resp_abort(q->http);
        return;
    }
    err = map_error(q, err);
    const tarn_err_info *info = tarn_err_get(err);
    if (info->http_status >= 500)
        tarn_logf(TARN_LOG_WARN, "catalog request failed", "%s: %.*s", info->name, TARN_STR_ARG(ice_error_message(&q->e)));
    tarn_sb b;
    tarn_sb_init(&b, 16 * ICE_ERROR_BYTES_MAX);
    ice_error_json(&b, ice_error_message(&q->e), info->iceberg_type, info->http_status);
    if (info->http_status == 401)
        tarn_resp_headerc(q->http, "WWW-Authenticate", "Bearer");
    if (b.failed)
        (void)ice_send_empty(q, info->http_status);
    else
        (void)ice_send_json(q, info->http_status, &b);
    tarn_sb_free(&b);
}

static tarn_err send_pieces(ice_req *q, const tarn_str *pieces, size_t n)
{
    uint64_t total = 0;
    for (size_t i = 0; i < n; i++)
        total += pieces[i].n;
    if (tarn_req_is_head(q->http))
        return tarn_resp_send_head(q->http, 200, total);
    if (total <= SEND_WHOLE_BYTES_MAX) {
        char *p = tarn_arena_alloc(q->a, (size_t)total + 1);
        if (!p)
            return TARN_E_NO_MEMORY;
        size_t at = 0;
        for (size_t i = 0; i < n; i++) {
            if (pieces[i].n > 0)
                memcpy(p + at, pieces[i].p, pieces[i].n);
            at += pieces[i].n;
        }
        (void)tarn_resp_send(q->http, 200, (tarn_str){p, at});
        return TARN_OK;
    }
    tarn_err err = tarn_resp_begin(q->http, 200, total);
    for (size_t i = 0; i < n && err == TARN_OK; i++)
        err = tarn_resp_write(q->http, pieces[i].p, pieces[i].n, i + 1 < n);
    if (err == TARN_OK)
        (void)tarn_resp_end(q->http);
    else
        tarn_resp_abort(q->http);
    return TARN_OK;
}

tarn_err ice_send_metadata(ice_req *q, tarn_str location, tarn_str metadata_text, bool with_config, tarn_str etag)
{
    tarn_sb head;
    tarn_sb_init(&head, 4 * ICE_STRING_BYTES_MAX);
    tarn_sb_cstr(&head, "{");
    if (location.n > 0) {
        tarn_sb_cstr(&head, "\"metadata-location\":");
        ice_json_write_string(&head, location);
        tarn_sb_char(&head, ',');
    }
    tarn_sb_cstr(&head, "\"metadata\":");
    if (head.failed) {
        tarn_sb_free(&head);
        return TARN_E_NO_MEMORY;
    }
    tarn_resp_headerc(q->http, "Content-Type", "application/json");
    if (etag.n > 0)
        tarn_resp_header(q->http, "ETag", etag);
    const tarn_str pieces[] = {tarn_sb_view(&head), metadata_text, with_config ? TARN_STR(",\"config\":{}}") : TARN_STR("}")};
    tarn_err err = send_pieces(q, pieces, TARN_ARRAY_LEN(pieces));
    tarn_sb_free(&head);
    return err;
}
