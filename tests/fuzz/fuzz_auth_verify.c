/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests of any kind against the verifier, for each API. Input: lines; method, path, query ("-": none), then
 * "name:value" headers.
 */
#include "tarn/auth.h"

#include <string.h>

#define HEADERS_MAX 64
#define ARENA_BYTES_MAX (1u << 20)
#define NOW_MS INT64_C(1369353600000) /* 2013-05-24, the day of the published examples in the corpus */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static tarn_auth *verifier(void)
{
    static tarn_auth *a;
    static const uint8_t key[32] = {1};
    if (!a) {
        tarn_auth_options opt = {.root_access_key = TARN_STR("AKIAIOSFODNN7EXAMPLE"),
                                 .root_secret_key = TARN_STR("wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"),
                                 .region = TARN_STR("us-east-1"),
                                 .sigv2_query = true,
                                 .token_key = key};
        TARN_ASSERT(tarn_auth_new(&opt, &a) == TARN_OK);
    }
    return a;
}

static size_t read_headers(tarn_str rest, tarn_pair *out)
{
    size_t n = 0;
    while (rest.n > 0 && n < HEADERS_MAX) {
        tarn_str line;
        tarn_str_split(rest, '\n', &line, &rest);
        tarn_pair h;
        if (tarn_str_split(line, ':', &h.name, &h.value) && h.name.n > 0) {
            h.value = tarn_str_trim(h.value);
            out[n++] = h;
        }
    }
    return n;
}

static void verify(tarn_auth_api api, const tarn_auth_view *v)
{
    tarn_arena *arena = tarn_arena_new(ARENA_BYTES_MAX);
    tarn_auth_result r;
    tarn_err_detail d;
    uint8_t hash[TARN_SHA256_BYTES] = {0};
    TARN_ASSERT(arena != NULL);
    memset(&r, 0, sizeof r);
    tarn_err e = tarn_auth_verify(verifier(), api, v, NOW_MS, arena, &r, &d);
    TARN_ASSERT(d.fields_n <= TARN_ERR_FIELDS_MAX);
    if (e == TARN_OK) {
        TARN_ASSERT((r.mode == TARN_AUTH_ANONYMOUS || r.deferred) == r.identity.anonymous);
        if (r.deferred) {
            e = tarn_auth_finish_body(verifier(), &r, hash, arena, &d);
            TARN_ASSERT((e == TARN_OK) != r.identity.anonymous);
        }
    }
    tarn_auth_result_wipe(&r);
    tarn_arena_free(arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    tarn_pair headers[HEADERS_MAX];
    tarn_str rest = {(const char *)data, n};
    tarn_auth_view v = {.headers = headers};
    tarn_str_split(rest, '\n', &v.method, &rest);
    tarn_str_split(rest, '\n', &v.raw_path, &rest);
    tarn_str_split(rest, '\n', &v.raw_query, &rest);
    if (tarn_str_eqc(v.raw_query, "-")) {
        v.raw_query = TARN_STR_NULL;
    }
    v.headers_n = read_headers(rest, headers);
    verify(TARN_API_S3, &v);
    verify(TARN_API_CATALOG, &v);
    verify(TARN_API_ADMIN, &v);
    return 0;
}
