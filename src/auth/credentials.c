/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Users and their keys. The root and the static users of the options are all there is; auth_user_find() is the one place
 * where an access key becomes a user, so that stored users can be put behind it.
 *
 * Invariants: (1) users[0] is the root; (2) no two users have the same access key; (3) every secret is wiped before it is
 * freed; (4) nothing but the cache changes after tarn_auth_new().
 * Memory: tarn_auth owns copies of everything it was given. Threads: read by all; made and freed by one.
 */
#include "auth_private.h"

#include <string.h>

#define CANONICAL_ID_PREFIX "tarn-canonical-id:"

void auth_canonical_id(tarn_str access_key, char out[65])
{
    char mem[sizeof CANONICAL_ID_PREFIX + TARN_ACCESS_KEY_BYTES_MAX];
    tarn_sb b;
    tarn_sb_init_fixed(&b, mem, sizeof mem);
    tarn_sb_cstr(&b, CANONICAL_ID_PREFIX);
    tarn_sb_str(&b, tarn_str_sub(access_key, 0, TARN_ACCESS_KEY_BYTES_MAX));
    tarn_str s = tarn_sb_view(&b);
    tarn_sha256_hex(s.p, s.n, out);
}

static bool key_valid(tarn_str k, size_t min, size_t max)
{
    return k.n >= min && k.n <= max && memchr(k.p, 0, k.n) == NULL;
}

static tarn_err user_init(auth_user *u, tarn_str access_key, tarn_str secret, bool root)
{
    if (!key_valid(access_key, TARN_ACCESS_KEY_BYTES_MIN, TARN_ACCESS_KEY_BYTES_MAX) ||
        !key_valid(secret, TARN_SECRET_KEY_BYTES_MIN, TARN_SECRET_KEY_BYTES_MAX)) {
        return TARN_E_INVALID;
    }
    u->access_key = tarn_strdup(access_key);
    u->secret = tarn_strdup(secret);
    if (!u->access_key || !u->secret) {
        return TARN_E_NO_MEMORY; /* tarn_auth_free takes back what is there */
    }
    u->secret_n = secret.n;
    auth_canonical_id(access_key, u->canonical_id);
    tarn_str key = {u->access_key, access_key.n};
    u->identity = (tarn_identity){.root = root, .access_key = key, .name = key, .canonical_id = {u->canonical_id, 64}};
    return TARN_OK;
}

static void user_end(auth_user *u)
{
    if (u->secret) {
        tarn_wipe(u->secret, u->secret_n ? u->secret_n : strlen(u->secret));
    }
    tarn_free(u->secret);
    tarn_free(u->access_key);
}

static tarn_err users_init(tarn_auth *a, const tarn_auth_options *opt)
{
    if (opt->users_n > TARN_AUTH_USERS_MAX) {
        return TARN_E_LIMIT;
    }
    a->users = tarn_calloc(opt->users_n + 1, sizeof *a->users);
    if (!a->users) {
        return TARN_E_NO_MEMORY;
    }
    a->users_n = 1;
    tarn_err e = user_init(&a->users[0], opt->root_access_key, opt->root_secret_key, true);
    for (size_t i = 0; e == TARN_OK && i < opt->users_n; i++) {
        if (auth_user_find(a, opt->users[i].name)) {
            return TARN_E_ALREADY_EXISTS;
        }
        /* Counted first: a user that is only half made is taken back by tarn_auth_free. */
        a->users_n++;
        e = user_init(&a->users[i + 1], opt->users[i].name, opt->users[i].value, false);
    }
    return e;
}

static tarn_err domains_init(tarn_auth *a, const tarn_auth_options *opt)
{
    if (opt->domains_n > TARN_AUTH_DOMAINS_MAX) {
        return TARN_E_LIMIT;
    }
    for (; a->domains_n < opt->domains_n; a->domains_n++) {
        char *d = tarn_strdup(opt->domains[a->domains_n]);
        if (!d) {
            return TARN_E_NO_MEMORY;
        }
        a->domains[a->domains_n] = d;
    }
    return TARN_OK;
}

tarn_err tarn_auth_new(const tarn_auth_options *opt, tarn_auth **out)
{
    if (opt->region.n > AUTH_REGION_BYTES_MAX) {
        return TARN_E_LIMIT;
    }
    tarn_auth *a = tarn_calloc(1, sizeof *a);
    if (!a) {
        return TARN_E_NO_MEMORY;
    }
    a->sigv2_query = opt->sigv2_query;
    if (opt->token_key) {
        memcpy(a->token_key, opt->token_key, sizeof a->token_key);
    } else {
        tarn_random(a->token_key, sizeof a->token_key);
    }
    tarn_err e = users_init(a, opt);
    if (e == TARN_OK) {
        e = domains_init(a, opt);
    }
    if (e == TARN_OK) {
        e = auth_keycache_new(&a->cache);
    }
    if (e == TARN_OK) {
        a->region_mem = tarn_strdup(opt->region);
        e = a->region_mem ? TARN_OK : TARN_E_NO_MEMORY;
    }
    if (e != TARN_OK) {
        tarn_auth_free(a);
        return e;
    }
    a->region = (tarn_str){a->region_mem, opt->region.n};
    *out = a;
    return TARN_OK;
}

void tarn_auth_free(tarn_auth *a)
{
    if (!a) {
        return;
    }
    for (size_t i = 0; i < a->users_n; i++) {
        user_end(&a->users[i]);
    }
    tarn_free(a->users);
    for (size_t i = 0; i < a->domains_n; i++) {
        tarn_free(a->domains[i]);
    }
    tarn_free(a->region_mem);
    auth_keycache_free(a->cache);
    tarn_wipe(a->token_key, sizeof a->token_key);
    tarn_free(a);
}

tarn_str tarn_auth_region(const tarn_auth *a)
{
    return a->region;
}

const tarn_identity *tarn_auth_root(const tarn_auth *a)
{
    return &a->users[0].identity;
}

const auth_user *auth_user_find(const tarn_auth *a, tarn_str access_key)
{
    for (size_t i = 0; i < a->users_n; i++) {
        if (a->users[i].access_key && tarn_str_eq(a->users[i].identity.access_key, access_key)) {
            return &a->users[i];
        }
    }
    return NULL;
}

bool tarn_auth_lookup(const tarn_auth *a, tarn_str access_key, tarn_identity *identity)
{
    const auth_user *u = auth_user_find(a, access_key);
    if (u) {
        *identity = u->identity;
    }
    return u != NULL;
}

tarn_err auth_user_check_token(const auth_user *u, tarn_str token, tarn_err_detail *d)
{
    (void)u; /* no user has a session of its own: every token is a stranger's */
    if (token.n == 0) {
        return TARN_OK;
    }
    return auth_fail(d, TARN_E_INVALID_TOKEN, "The provided token does not belong to this access key.");
}

tarn_err auth_fail_unknown_key(tarn_err_detail *d, tarn_str access_key)
{
    tarn_err_detail_add(d, "AWSAccessKeyId", access_key);
    return TARN_E_INVALID_ACCESS_KEY_ID;
}
