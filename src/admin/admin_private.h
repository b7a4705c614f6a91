/* SPDX-License-Identifier: Apache-2.0 */
/*
 * admin, private. A tarn_admin is shared by all workers and immutable but for `draining`.
 */
#ifndef TARN_ADMIN_PRIVATE_H
#define TARN_ADMIN_PRIVATE_H

#include <stdatomic.h>

#include "tarn/admin.h"

#define TARN_ADMIN_METRICS_BYTES_MAX (1024 * 1024)

struct tarn_admin {
    tarn_admin_options opt;
    atomic_bool draining;
};

void tarn_admin_health(tarn_admin *a, tarn_req *r, tarn_str which);
void tarn_admin_metrics(tarn_admin *a, tarn_req *r);
/* An error in the form that MinIO's admin API has: JSON. */
void tarn_admin_error(tarn_req *r, tarn_err e, const char *message);
/* Methods other than GET and HEAD are refused: true when r has been answered so. */
bool tarn_admin_refuse_method(tarn_req *r);
void tarn_admin_json_text(tarn_sb *b, tarn_str s); /* with its quotes */
/* Signed by the root? */
bool tarn_admin_is_root(tarn_admin *a, tarn_req *r);
/* ops.c: what `tarn admin` asks for; path is below /tarn/admin/v1. */
void tarn_admin_ops(tarn_admin *a, tarn_req *r, tarn_str path);

#endif
