/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which requests are admin's, and how its errors look. Everything else under /minio is S3's to refuse.
 * Runs on the fiber of the request's connection.
 */
#include "admin_private.h"

tarn_err tarn_admin_new(const tarn_admin_options *opt, tarn_admin **out)
{
    tarn_admin *a = tarn_calloc(1, sizeof *a);
    if (a == NULL) {
        return TARN_E_NO_MEMORY;
    }
    a->opt = *opt;
    atomic_init(&a->draining, false);
    *out = a;
    return TARN_OK;
}

void tarn_admin_free(tarn_admin *a)
{
    tarn_free(a);
}

void tarn_admin_set_draining(tarn_admin *a)
{
    atomic_store(&a->draining, true);
}

void tarn_admin_json_text(tarn_sb *b, tarn_str s)
{
    tarn_sb_char(b, '"');
    for (size_t i = 0; i < s.n; i++) {
        unsigned char c = (unsigned char)s.p[i];
        if (c == '"' || c == '\\') {
            tarn_sb_char(b, '\\');
            tarn_sb_char(b, (char)c);
        } else if (c < 0x20 || c >= 0x7f) {
            tarn_sb_fmt(b, "\\u%04x", c); /* raw paths may hold any byte: each is shown as one */
        } else {
            tarn_sb_char(b, (char)c);
        }
    }
    tarn_sb_char(b, '"');
}

void tarn_admin_error(tarn_req *r, tarn_err e, const char *message)
{
    const tarn_err_info *info = tarn_err_get(e);
    tarn_sb b;
    tarn_sb_init(&b, 128 * 1024);
    tarn_sb_cstr(&b, "{\"Code\":");
    tarn_admin_json_text(&b, tarn_str_of(info->s3_code));
    tarn_sb_cstr(&b, ",\"Message\":");
    tarn_admin_json_text(&b, tarn_str_of(message != NULL ? message : info->message));
    tarn_sb_cstr(&b, ",\"Resource\":");
    tarn_admin_json_text(&b, tarn_req_view(r)->raw_path);
    tarn_sb_cstr(&b, ",\"RequestId\":");
    tarn_admin_json_text(&b, tarn_str_of(tarn_req_id(r)));
    tarn_sb_char(&b, '}');
    tarn_str body = tarn_arena_str(tarn_req_arena(r), tarn_sb_view(&b));
    tarn_sb_free(&b);
    tarn_resp_headerc(r, "Content-Type", "application/json");
    (void)tarn_resp_send(r, info->http_status, body);
}

bool tarn_admin_refuse_method(tarn_req *r)
{
    if (tarn_req_is_head(r) || tarn_str_eqc(tarn_req_method(r), "GET")) {
        return false;
    }
    tarn_resp_headerc(r, "Allow", "GET, HEAD");
    tarn_admin_error(r, TARN_E_METHOD_NOT_ALLOWED, NULL);
    return true;
}

static bool is_metrics(tarn_str path)
{
    static const char *const paths[] = {"/minio/v2/metrics/cluster", "/minio/v2/metrics/node", "/minio/metrics/v3", "/tarn/metrics"};
    for (size_t i = 0; i < TARN_ARRAY_LEN(paths); i++) {
        if (tarn_str_eqc(path, paths[i])) {
            return true;
        }
    }
    return false;
}

static bool is_health(tarn_str path, tarn_str *which)
{
    static const char *const names[] = {"live", "ready", "cluster", "cluster/read"};
    static const char *const prefixes[] = {"/minio/health/", "/tarn/health/"};
    for (size_t p = 0; p < TARN_ARRAY_LEN(prefixes); p++) {
        tarn_str prefix = tarn_str_of(prefixes[p]);
        if (!tarn_str_starts(path, prefixes[p])) {
            continue;
        }
        *which = tarn_str_sub(path, prefix.n, path.n);
        for (size_t i = 0; i < TARN_ARRAY_LEN(names); i++) {
            if (tarn_str_eqc(*which, names[i])) {
                return true;
            }
        }
    }
    return false;
}

/* MinIO's management APIs: known by name, so that a client is told the truth and not "no such bucket". */
static bool is_management(tarn_str path)
{
    return tarn_str_starts(path, "/minio/admin/") || tarn_str_starts(path, "/minio/kms/");
}

bool tarn_admin_handle(tarn_admin *a, tarn_req *r)
{
    tarn_str path = tarn_req_view(r)->raw_path, which;
    if (!tarn_str_starts(path, "/minio/") && !tarn_str_starts(path, "/tarn/")) {
        return false;
    }
    if (is_health(path, &which)) {
        tarn_req_set_operation(r, "Health");
        tarn_admin_health(a, r, which);
    } else if (is_metrics(path)) {
        tarn_req_set_operation(r, "Metrics");
        tarn_admin_metrics(a, r);
    } else if (tarn_str_starts(path, "/tarn/admin/v1/")) {
        tarn_req_set_operation(r, "Admin");
        tarn_admin_ops(a, r, tarn_str_sub(path, sizeof "/tarn/admin/v1" - 1, path.n));
    } else if (is_management(path)) {
        tarn_req_set_operation(r, "Admin");
        tarn_admin_error(r, TARN_E_NOT_IMPLEMENTED, "This management operation is not implemented.");
    } else {
        return false;
    }
    return true;
}
