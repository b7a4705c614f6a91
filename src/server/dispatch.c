/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which API a request belongs to, by host and raw path: a virtual-host bucket is S3's whatever the path; /_iceberg (any
 * depth) is the catalog's; health and metrics are admin's; everything else is S3's.
 * Runs on the fiber of the request's connection; the server is shared and immutable.
 */
#include "server.h"

static bool is_bucket_host(const tarn_server *s, tarn_req *r)
{
    return tarn_auth_host_bucket(s->auth, tarn_req_header(r, "host")).n > 0;
}

static bool is_catalog(tarn_str path)
{
    return tarn_str_eqc(path, "/_iceberg") || tarn_str_starts(path, "/_iceberg/");
}

void tarn_server_handle(void *ctx, tarn_req *r)
{
    tarn_server *s = ctx;
    tarn_str path = tarn_req_view(r)->raw_path;
    if (is_bucket_host(s, r)) {
        tarn_s3_handle(s->s3, r);
    } else if (is_catalog(path)) {
        tarn_iceberg_handle(s->iceberg, r);
    } else if (!tarn_admin_handle(s->admin, r)) {
        tarn_s3_handle(s->s3, r);
    }
}

void tarn_server_edge_error(void *ctx, tarn_req *r, tarn_err e, const char *message)
{
    tarn_server *s = ctx;
    if (is_catalog(tarn_req_view(r)->raw_path) && !is_bucket_host(s, r)) {
        tarn_iceberg_edge_error(s->iceberg, r, e, message);
    } else {
        tarn_s3_edge_error(s->s3, r, e, message);
    }
}
