/* SPDX-License-Identifier: Apache-2.0 */
/*
 * s3: the S3 API: one declarative route table, one file per group of operations, XML in and out.
 * Everything runs on the fiber of the request's connection.
 */
#ifndef TARN_S3_H
#define TARN_S3_H

#include "tarn/auth.h"
#include "tarn/http.h"
#include "tarn/object.h"

typedef struct tarn_s3 tarn_s3;
typedef struct tarn_s3_options {
    tarn_store *store;
    tarn_auth *auth;
    tarn_str region;          /* what GetBucketLocation and x-amz-bucket-region say */
    uint64_t lifecycle_day_s; /* 86400; a test may make a "day" shorter (TARN_LC_DEBUG_INTERVAL) */
} tarn_s3_options;
tarn_err tarn_s3_new(const tarn_s3_options *opt, tarn_s3 **out); /* shared by all workers, immutable */
void tarn_s3_free(tarn_s3 *s);
void tarn_s3_handle(tarn_s3 *s, tarn_req *r);
/* An error answer in S3's form for what the HTTP engine found. */
void tarn_s3_edge_error(tarn_s3 *s, tarn_req *r, tarn_err e, const char *message);
/* The fiber that executes lifecycle rules; ends when its loop stops. */
tarn_err tarn_s3_start_lifecycle(tarn_s3 *s, tarn_loop *loop);

/* The route table as text for docs and tests: "METHOD\tresource\tquery key\taction\toperation" a line. */
void tarn_s3_routes_render(tarn_sb *b);

/* Names of buckets as S3 demands them (general purpose buckets; no dots next to each other, no IP address …). */
bool tarn_bucket_name_valid(tarn_str name);

#endif
