/* SPDX-License-Identifier: Apache-2.0 */
/*
 * admin: what operators and their tools ask: health, metrics.
 */
#ifndef TARN_ADMIN_H
#define TARN_ADMIN_H

#include "tarn/auth.h"
#include "tarn/http.h"
#include "tarn/object.h"

typedef struct tarn_admin tarn_admin;
typedef struct tarn_admin_options {
    tarn_store *store;
    tarn_auth *auth;
    bool metrics_public; /* else only signed requests of the root see them */
} tarn_admin_options;
tarn_err tarn_admin_new(const tarn_admin_options *opt, tarn_admin **out);
void tarn_admin_free(tarn_admin *a);
/* True when the path is one of admin's: the request has then been answered. */
bool tarn_admin_handle(tarn_admin *a, tarn_req *r);
void tarn_admin_set_draining(tarn_admin *a); /* ready → 503 */

#endif
