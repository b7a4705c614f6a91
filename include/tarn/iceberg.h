/* SPDX-License-Identifier: Apache-2.0 */
/*
 * iceberg: the Apache Iceberg REST catalog under /_iceberg, and the metadata rules it applies.
 * Everything runs on the fiber of the request's connection, but for purges of what was dropped, which have fibers of their own.
 */
#ifndef TARN_ICEBERG_H
#define TARN_ICEBERG_H

#include "tarn/auth.h"
#include "tarn/http.h"
#include "tarn/object.h"

typedef struct tarn_iceberg tarn_iceberg;
typedef struct tarn_iceberg_options {
    tarn_store *store;
    tarn_auth *auth;
    tarn_str region;          /* client.region in GET /v1/config; never empty */
    tarn_str server_url;      /* "" : made from the request's Host header */
    uint64_t cache_bytes_max; /* table states kept, of all workers together; 0 = default */
} tarn_iceberg_options;
tarn_err tarn_iceberg_new(const tarn_iceberg_options *opt, tarn_iceberg **out); /* shared by all workers */
/* Goes on with the purges that an earlier process left, on a fiber of the loop; before requests are served, on the loop's thread.
 * They end when the loop is stopped. */
tarn_err tarn_iceberg_start_background(tarn_iceberg *i, tarn_loop *loop);
void tarn_iceberg_free(tarn_iceberg *i);
/* r's raw path begins with /_iceberg. */
void tarn_iceberg_handle(tarn_iceberg *i, tarn_req *r);
void tarn_iceberg_edge_error(tarn_iceberg *i, tarn_req *r, tarn_err e, const char *message);
/* "METHOD\tpath\taction" a line, from the one route table. */
void tarn_iceberg_routes_render(tarn_sb *b);

#endif
