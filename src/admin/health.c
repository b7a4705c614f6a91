/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Health: no credentials, empty bodies, GET and HEAD.
 *   live     the process serves requests
 *   ready    … and can read its data, and is not being stopped
 *   cluster  every set can be written (read: can be read); with maintenance=true: would it still without this node? It is
 *            the only one, so never.
 */
#include "admin_private.h"

static void answer(tarn_req *r, int status)
{
    if (status == 503) {
        tarn_resp_headerc(r, "X-Minio-Server-Status", "offline");
        tarn_resp_headerc(r, "Retry-After", "5");
    }
    (void)tarn_resp_send(r, status, TARN_STR_NULL);
}

static void cluster(tarn_admin *a, tarn_req *r, bool read)
{
    unsigned data = 0, parity = 0, sets = 0;
    const tarn_param *maintenance = tarn_req_param(r, "maintenance");
    tarn_store_code(a->opt.store, &data, &parity, &sets);
    bool well = read ? tarn_store_readable(a->opt.store) : tarn_store_writable(a->opt.store);
    if (read) {
        tarn_resp_header_u64(r, "X-Minio-Read-Quorum", data);
    } else {
        tarn_resp_header_u64(r, "X-Minio-Write-Quorum", data == parity ? data + 1 : data);
        tarn_resp_headerc(r, "X-Minio-Storage-Class-Defaults", "true");
    }
    if (well && maintenance != NULL && tarn_str_eqc(maintenance->value, "true")) {
        answer(r, 412);
        return;
    }
    answer(r, well ? 200 : 503);
}

void tarn_admin_health(tarn_admin *a, tarn_req *r, tarn_str which)
{
    if (tarn_admin_refuse_method(r)) {
        return;
    }
    if (tarn_str_eqc(which, "live")) {
        answer(r, 200);
    } else if (tarn_str_eqc(which, "ready")) {
        answer(r, !atomic_load(&a->draining) && tarn_store_readable(a->opt.store) ? 200 : 503);
    } else {
        cluster(a, r, tarn_str_eqc(which, "cluster/read"));
    }
}
