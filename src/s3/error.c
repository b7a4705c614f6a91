/* SPDX-License-Identifier: Apache-2.0 */
/* Error answers in S3's XML, with the extra fields that the place of the error has collected. */
#include "s3_internal.h"

tarn_err s3_fail(s3_ctx *c, tarn_err e, const char *message)
{
    c->detail.message = tarn_str_of(message);
    return e;
}

tarn_err s3_fail_arg(s3_ctx *c, tarn_err e, const char *message, const char *field, tarn_str value)
{
    if (message != NULL)
        c->detail.message = tarn_str_of(message);
    tarn_err_detail_add(&c->detail, field, value);
    return e;
}

tarn_err s3_bad_argument(s3_ctx *c, const char *message, const char *name, tarn_str value)
{
    c->detail.message = tarn_str_of(message);
    tarn_err_detail_add(&c->detail, "ArgumentName", tarn_str_of(name));
    tarn_err_detail_add(&c->detail, "ArgumentValue", value);
    return TARN_E_INVALID_ARGUMENT;
}

static void add_place(s3_ctx *c, s3_xml *x, tarn_err e)
{
    if (c->bucket_name.p != NULL)
        s3_xml_text(x, "BucketName", c->bucket_name);
    if (c->key.p != NULL && e != TARN_E_NO_SUCH_BUCKET)
        s3_xml_text(x, "Key", c->key);
}

/* Errors that say that the rest of the body can't be trusted or isn't wanted: the connection ends with the answer. */
static bool ends_connection(tarn_err e)
{
    return e == TARN_E_TIMED_OUT || e == TARN_E_CLOSED || e == TARN_E_HTTP_BAD_REQUEST;
}

void s3_send_error(s3_ctx *c, tarn_err e)
{
    const tarn_err_info *info = tarn_err_get(e);
    if (tarn_resp_started(c->r)) {
        tarn_resp_abort(c->r);
        return;
    }
    /* 501 and 505 are the client's doing: it must not be able to fill the log. */
    if (info->http_status >= 500 && info->http_status != 501 && info->http_status != 505)
        tarn_log(TARN_LOG_ERROR, "request failed", "error", info->name, "operation", c->route != NULL ? c->route->operation : "-",
                 "request", tarn_req_id(c->r), NULL);
    if (ends_connection(e))
        tarn_resp_close_after(c->r);
    int status = info->http_status == 499 ? 400 : info->http_status;
    if (status == 304 || tarn_req_is_head(c->r)) {
        (void)tarn_resp_send(c->r, status, TARN_STR_NULL);
        return;
    }
    s3_xml x;
    tarn_sb_init(&x.b, S3_ANSWER_BYTES_MAX);
    tarn_sb_cstr(&x.b, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error>");
    s3_xml_textc(&x, "Code", info->s3_code);
    s3_xml_text(&x, "Message", c->detail.message.n > 0 ? c->detail.message : tarn_str_of(info->message));
    for (size_t i = 0; i < c->detail.fields_n; i++) {
        char name[64];
        tarn_sb nb;
        tarn_sb_init_fixed(&nb, name, sizeof name);
        tarn_sb_str(&nb, c->detail.fields[i].name);
        if (!nb.failed)
            s3_xml_text(&x, name, c->detail.fields[i].value);
    }
    add_place(c, &x, e);
    s3_xml_text(&x, "Resource", c->resource_path);
    s3_xml_textc(&x, "RequestId", tarn_req_id(c->r));
    s3_xml_textc(&x, "HostId", tarn_store_deployment_id(c->s3->store));
    s3_xml_close(&x, "Error");
    (void)s3_xml_send(c, &x, status);
}
