/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bearer tokens of the catalog:
 *   "tarn1." base64url(payload) "." base64url(HMAC-SHA256(token key, "tarn1." base64url(payload)))
 * payload = expiry (s since 1970, 8 bytes little-endian), issue time (the same), then the access key.
 * There is one form and one algorithm; the token names neither. It holds no secret.
 *
 * Memory: the token in the request's arena; an identity's slices belong to tarn_auth. Threads: any.
 */
#include "auth_private.h"

#include <string.h>

#define PREFIX "tarn1."
#define PAYLOAD_BYTES_MAX (16 + TARN_ACCESS_KEY_BYTES_MAX)
#define TOKEN_BYTES_MAX 512
#define TOKEN_LIFE_S_MAX (7 * 24 * 3600)

tarn_err tarn_token_issue(tarn_auth *a, tarn_str access_key, tarn_str secret_key, int64_t now_ms, uint64_t life_s, tarn_arena *arena,
                          tarn_str *out)
{
    const auth_user *u = auth_user_find(a, access_key);
    uint8_t given[TARN_SHA256_BYTES];
    uint8_t real[TARN_SHA256_BYTES];
    /* Hashed first: the comparison takes as long for a wrong length, and for a key that nobody has. */
    tarn_sha256(secret_key.p, secret_key.n, given);
    tarn_sha256(u ? u->secret : "", u ? u->secret_n : 0, real);
    bool good = tarn_equal_ct(given, real, sizeof given) && u != NULL;
    tarn_wipe(given, sizeof given);
    tarn_wipe(real, sizeof real);
    if (!good) {
        return TARN_E_UNAUTHORIZED;
    }
    if (life_s == 0 || life_s > TOKEN_LIFE_S_MAX) {
        return TARN_E_LIMIT;
    }
    char payload_mem[PAYLOAD_BYTES_MAX + 1];
    char token_mem[TOKEN_BYTES_MAX];
    uint8_t mac[TARN_SHA256_BYTES];
    tarn_sb payload;
    tarn_sb token;
    uint64_t now_s = (uint64_t)(now_ms / AUTH_MS_PER_S);
    tarn_sb_init_fixed(&payload, payload_mem, sizeof payload_mem);
    tarn_sb_le64(&payload, now_s + life_s);
    tarn_sb_le64(&payload, now_s);
    tarn_sb_str(&payload, access_key);
    tarn_sb_init_fixed(&token, token_mem, sizeof token_mem);
    tarn_sb_cstr(&token, PREFIX);
    tarn_sb_base64url(&token, payload.p, payload.n);
    tarn_hmac_sha256(a->token_key, sizeof a->token_key, token.p, token.n, mac);
    tarn_sb_char(&token, '.');
    tarn_sb_base64url(&token, mac, sizeof mac);
    if (payload.failed || token.failed) {
        return TARN_E_INTERNAL;
    }
    tarn_str made = tarn_arena_str(arena, tarn_sb_view(&token));
    tarn_wipe(token_mem, sizeof token_mem);
    if (!made.p) {
        return TARN_E_NO_MEMORY;
    }
    *out = made;
    return TARN_OK;
}

/* Checks form and signature; the payload's bytes are only looked at afterwards. */
static bool open_token(const tarn_auth *a, tarn_str token, uint8_t payload[PAYLOAD_BYTES_MAX], size_t *payload_n)
{
    uint8_t given[TARN_SHA256_BYTES];
    uint8_t real[TARN_SHA256_BYTES];
    size_t given_n = 0;
    ptrdiff_t dot = tarn_str_rchr(token, '.');
    if (token.n > TOKEN_BYTES_MAX || !tarn_str_starts(token, PREFIX) || dot < (ptrdiff_t)sizeof PREFIX) {
        return false;
    }
    tarn_str signed_part = tarn_str_sub(token, 0, (size_t)dot);
    tarn_str mac = tarn_str_sub(token, (size_t)dot + 1, SIZE_MAX);
    if (!tarn_base64url_decode(mac, given, sizeof given, &given_n) || given_n != sizeof given) {
        return false;
    }
    tarn_hmac_sha256(a->token_key, sizeof a->token_key, signed_part.p, signed_part.n, real);
    bool same = tarn_equal_ct(given, real, sizeof real);
    tarn_wipe(real, sizeof real);
    return same && tarn_base64url_decode(tarn_str_sub(signed_part, sizeof PREFIX - 1, SIZE_MAX), payload, PAYLOAD_BYTES_MAX, payload_n);
}

tarn_err tarn_token_verify(tarn_auth *a, tarn_str token, int64_t now_ms, tarn_identity *out)
{
    uint8_t payload[PAYLOAD_BYTES_MAX];
    size_t payload_n = 0;
    if (!open_token(a, token, payload, &payload_n)) {
        return TARN_E_INVALID_TOKEN;
    }
    tarn_rd rd = tarn_rd_of((tarn_str){(const char *)payload, payload_n});
    uint64_t expiry_s = tarn_rd_le64(&rd);
    uint64_t issued_s = tarn_rd_le64(&rd);
    tarn_str access_key = tarn_rd_bytes(&rd, rd.n);
    if (rd.failed || expiry_s < issued_s || expiry_s - issued_s > TOKEN_LIFE_S_MAX) {
        return TARN_E_INVALID_TOKEN;
    }
    if (now_ms < 0 || (uint64_t)now_ms / AUTH_MS_PER_S >= expiry_s) {
        return TARN_E_EXPIRED_TOKEN;
    }
    const auth_user *u = auth_user_find(a, access_key);
    if (!u) {
        return TARN_E_INVALID_TOKEN;
    }
    *out = u->identity;
    return TARN_OK;
}
