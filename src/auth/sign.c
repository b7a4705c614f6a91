/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The client's side of SigV4, for the commands that talk to a running daemon: an Authorization header over method, path,
 * query, host, date and payload hash (s3.md §2.1). Only what those commands send is signed: no other header.
 *
 * Memory: the caller's arena; the derived key is wiped. Threads: any.
 */
#include "auth_private.h"

#include <string.h>

static const char SIGNED_HEADERS[] = "host;x-amz-content-sha256;x-amz-date";

static tarn_str canonical_request(const tarn_sign_spec *s, tarn_str date, tarn_str payload, tarn_arena *arena)
{
    auth_query query = {0};
    if (auth_query_parse(arena, s->raw_query, false, &query) != TARN_OK) {
        return TARN_STR_NULL;
    }
    tarn_str path = auth_canon_path(arena, s->raw_path, AUTH_PATH_ONCE);
    tarn_str params = auth_canon_query(arena, &query, AUTH_QUERY_SORTED);
    if (!path.p || !params.p) {
        return TARN_STR_NULL;
    }
    return tarn_arena_fmt(arena, "%.*s\n%.*s\n%.*s\nhost:%.*s\nx-amz-content-sha256:%.*s\nx-amz-date:%.*s\n\n%s\n%.*s",
                          TARN_STR_ARG(s->method), TARN_STR_ARG(path), TARN_STR_ARG(params), TARN_STR_ARG(s->host), TARN_STR_ARG(payload),
                          TARN_STR_ARG(date), SIGNED_HEADERS, TARN_STR_ARG(payload));
}

tarn_err tarn_auth_sign(const tarn_sign_spec *s, tarn_arena *arena, tarn_signed *out)
{
    char date_mem[32], hash[65];
    uint8_t key[TARN_SHA256_BYTES], mac[TARN_SHA256_BYTES];
    tarn_sb b;
    tarn_sb_init_fixed(&b, date_mem, sizeof date_mem);
    tarn_sb_amz_date(&b, s->now_ms);
    tarn_sha256_hex(s->body.p, s->body.n, hash);
    tarn_str date = tarn_arena_str(arena, tarn_sb_view(&b)), payload = tarn_arena_str(arena, tarn_str_of(hash));
    tarn_str region = s->region.n > 0 ? s->region : TARN_STR("us-east-1");
    tarn_str day = tarn_str_sub(date, 0, 8);
    tarn_str scope = tarn_arena_fmt(arena, "%.*s/%.*s/s3/%s", TARN_STR_ARG(day), TARN_STR_ARG(region), AUTH_TERMINAL);
    tarn_str request = date.p && payload.p ? canonical_request(s, date, payload, arena) : TARN_STR_NULL;
    if (!scope.p || !request.p) {
        return TARN_E_NO_MEMORY;
    }
    tarn_sha256_hex(request.p, request.n, hash);
    tarn_str text = tarn_arena_fmt(arena, "%s\n%.*s\n%.*s\n%s", AUTH_ALGORITHM, TARN_STR_ARG(date), TARN_STR_ARG(scope), hash);
    if (!text.p) {
        return TARN_E_NO_MEMORY;
    }
    auth_derive_key(s->secret_key, day, region, TARN_STR("s3"), key);
    tarn_hmac_sha256(key, sizeof key, text.p, text.n, mac);
    tarn_wipe(key, sizeof key);
    tarn_sb_init(&b, 4096);
    tarn_sb_fmt(&b, "%s Credential=%.*s/%.*s, SignedHeaders=%s, Signature=", AUTH_ALGORITHM, TARN_STR_ARG(s->access_key),
                TARN_STR_ARG(scope), SIGNED_HEADERS);
    tarn_sb_hex(&b, mac, sizeof mac);
    tarn_str authorization = tarn_arena_str(arena, tarn_sb_view(&b));
    bool ok = !b.failed && authorization.p != NULL;
    tarn_sb_free(&b);
    if (ok) {
        *out = (tarn_signed){.amz_date = date, .content_sha256 = payload, .authorization = authorization};
    }
    return ok ? TARN_OK : TARN_E_NO_MEMORY;
}
