/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bucket of a virtual host. Three ask: which API a request belongs to, which bucket it names, and what a signature of
 * version 2 covers. If they disagreed, a URL signed for one bucket would open another one: hence one function.
 * Memory: a slice of the host. Threads: any.
 */
#include "auth_private.h"

static tarn_str without_port(tarn_str host)
{
    ptrdiff_t colon = tarn_str_rchr(host, ':');
    ptrdiff_t bracket = tarn_str_rchr(host, ']'); /* of an IPv6 address */
    return colon > bracket ? tarn_str_sub(host, 0, (size_t)colon) : host;
}

tarn_str tarn_auth_host_bucket(const tarn_auth *a, tarn_str host)
{
    host = without_port(host);
    for (size_t i = 0; i < a->domains_n; i++) {
        tarn_str d = tarn_str_of(a->domains[i]);
        if (host.n > d.n + 1 && host.p[host.n - d.n - 1] == '.' && tarn_str_ieq(tarn_str_sub(host, host.n - d.n, d.n), d)) {
            return tarn_str_sub(host, 0, host.n - d.n - 1);
        }
    }
    return TARN_STR_NULL;
}
