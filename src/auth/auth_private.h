/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of auth share: the credential store, the signing-key cache, the pieces of a canonical request, and the
 * helpers that fill in an error's details.
 *
 * Ownership: everything made for a request lies in that request's arena; tarn_auth owns its users, keys and cache.
 * Threads: tarn_auth is read by all workers at once; only the cache changes, behind its own locks.
 */
#ifndef TARN_AUTH_PRIVATE_H
#define TARN_AUTH_PRIVATE_H

#include "tarn/auth.h"

#include <jansson.h>

/* ------------------------------------------------------------------ limits */
#define AUTH_SIGNED_HEADERS_MAX 256 /* names in SignedHeaders */
#define AUTH_QUERY_PARAMS_MAX 512   /* parameters of a query that auth has to look at */
#define AUTH_REGION_BYTES_MAX 64
#define AUTH_SERVICE_BYTES_MAX 32
#define AUTH_SIGNATURE_HEX 64
#define AUTH_CANDIDATES_MAX 3          /* forms of a path, forms of a query */
#define AUTH_ECHO_BYTES_MAX (8 * 1024) /* a canonical request longer than this is not echoed byte by byte */
#define AUTH_JSON_DEPTH_MAX 16
#define AUTH_MS_PER_S 1000

#define AUTH_ALGORITHM "AWS4-HMAC-SHA256"
#define AUTH_TERMINAL "aws4_request"
#define AUTH_EMPTY_SHA256_HEX "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

/* ------------------------------------------------------------------ details of an error (detail.c) */
/* Each returns `e`, so that a check can end in `return auth_fail(…)`. A NULL detail is fine. */
tarn_err auth_fail(tarn_err_detail *d, tarn_err e, const char *message);
tarn_err auth_failf(tarn_err_detail *d, tarn_arena *arena, tarn_err e, const char *fmt, ...) TARN_PRINTF(4, 5);
/* INVALID_ARGUMENT with ArgumentName. */
tarn_err auth_fail_argument(tarn_err_detail *d, const char *message, const char *argument_name);
/* Bytes as AWS writes them: two hex digits each, a blank between. {NULL,0} when the arena is full. */
tarn_str auth_spaced_hex(tarn_arena *arena, tarn_str s);
tarn_str auth_iso_text(tarn_arena *arena, int64_t ms);

/* ------------------------------------------------------------------ credentials (credentials.c) */
typedef struct auth_user {
    tarn_identity identity; /* its slices point into this user's own copies */
    char *access_key;       /* owned */
    char *secret;           /* owned, wiped */
    size_t secret_n;
    char canonical_id[65];
} auth_user;

typedef struct auth_keycache auth_keycache;
struct tarn_auth {
    auth_user *users; /* users[0] is the root */
    size_t users_n;
    char *region_mem;
    tarn_str region;
    bool sigv2_query;
    char *domains[TARN_AUTH_DOMAINS_MAX];
    size_t domains_n;
    uint8_t token_key[TARN_SHA256_BYTES];
    auth_keycache *cache;
};
/* The one place where an access key is turned into a user. NULL when unknown. */
const auth_user *auth_user_find(const tarn_auth *a, tarn_str access_key);
/* A session token must be the one that was handed out with this key: a long-term key has none. */
tarn_err auth_user_check_token(const auth_user *u, tarn_str token, tarn_err_detail *d);
void auth_canonical_id(tarn_str access_key, char out[65]);
tarn_err auth_fail_unknown_key(tarn_err_detail *d, tarn_str access_key);

/* ------------------------------------------------------------------ scope and keys (scope.c, keycache.c) */
typedef struct auth_scope {
    tarn_str access_key, date, region, service, terminal;
    tarn_str text; /* date/region/service/aws4_request */
} auth_scope;
typedef enum auth_scope_fault {
    AUTH_SCOPE_OK,
    AUTH_SCOPE_FORM,
    AUTH_SCOPE_DATE_FORM,
    AUTH_SCOPE_TERMINAL,
    AUTH_SCOPE_SERVICE,
    AUTH_SCOPE_REGION,
    AUTH_SCOPE_DATE
} auth_scope_fault;
/* KEY/YYYYMMDD/REGION/SERVICE/aws4_request; the key may hold '/', the four parts behind it may not. */
bool auth_scope_parse(tarn_str credential, auth_scope *out);
/* region "": any. amz_date: YYYYMMDDTHHMMSSZ. */
auth_scope_fault auth_scope_check(const auth_scope *s, tarn_auth_api api, tarn_str region, tarn_str amz_date);
/* The error of a fault, worded with `prefix` ("The authorization header is malformed", …). */
tarn_err auth_scope_fail(auth_scope_fault f, const auth_scope *s, tarn_err e, const char *prefix, tarn_str region, tarn_str amz_date,
                         tarn_arena *arena, tarn_err_detail *d);

void auth_derive_key(tarn_str secret, tarn_str date, tarn_str region, tarn_str service, uint8_t out[TARN_SHA256_BYTES]);
tarn_err auth_keycache_new(auth_keycache **out);
void auth_keycache_free(auth_keycache *c);
/* The signing key of a user and scope, from the cache or computed. *hit says which. */
void auth_keycache_get(auth_keycache *c, const auth_user *u, const auth_scope *s, uint8_t out[TARN_SHA256_BYTES], bool *hit);
/* Only after a signature made with the key was right: strangers can't push keys out. */
void auth_keycache_put(auth_keycache *c, const auth_user *u, const auth_scope *s, const uint8_t key[TARN_SHA256_BYTES]);

/* ------------------------------------------------------------------ canonical request (canon.c) */
typedef struct auth_param {
    tarn_str name, value; /* encoded as SigV4 wants it */
} auth_param;
typedef struct auth_query {
    auth_param *v; /* in wire order */
    size_t n;
} auth_query;
/* Splits and re-encodes. INVALID_ARGUMENT past AUTH_QUERY_PARAMS_MAX. */
tarn_err auth_query_parse(tarn_arena *arena, tarn_str raw, bool plus_is_blank, auth_query *out);
/* How often a name (unreserved characters only) occurs; *value is the first one's, still encoded. */
size_t auth_query_find(const auth_query *q, const char *name, tarn_str *value);
/* Decoded value; false when the arena is full. */
bool auth_query_decode(tarn_arena *arena, tarn_str encoded, tarn_str *out);
typedef enum auth_query_form { AUTH_QUERY_SORTED, AUTH_QUERY_DICT } auth_query_form;
/* Sorted, without X-Amz-Signature. DICT drops blank values and keeps the last of a repeated name. p == NULL: arena full. */
tarn_str auth_canon_query(tarn_arena *arena, const auth_query *q, auth_query_form form);
typedef enum auth_path_form {
    AUTH_PATH_ONCE,      /* decoded once and encoded once: S3 */
    AUTH_PATH_RAW,       /* as sent */
    AUTH_PATH_NORMALISE, /* dot segments and double slashes removed, otherwise as sent */
    AUTH_PATH_DOUBLE,    /* normalised, and what was sent is encoded again: other services */
    AUTH_PATH_SLASH      /* as sent, but %2F becomes %252F */
} auth_path_form;
tarn_str auth_canon_path(tarn_arena *arena, tarn_str raw_path, auth_path_form form);
/* SignedHeaders: lower-case names, ';' between, no name twice, at most AUTH_SIGNED_HEADERS_MAX. */
typedef struct auth_names {
    tarn_str *v;
    size_t n;
    tarn_str list; /* as it came */
} auth_names;
/* False when the list is not of that form; true with v == NULL when the arena is full. */
bool auth_names_parse(tarn_arena *arena, tarn_str list, auth_names *out);
bool auth_names_have(const auth_names *names, tarn_str header_name);
/* The block of canonical headers, each line with its '\n'. p == NULL: arena full. */
tarn_str auth_canon_headers(tarn_arena *arena, const tarn_auth_view *v, const auth_names *names);

/* Everything of a signed request but its payload line: what is compared now, or when the body's hash is known. */
struct tarn_auth_deferred {
    tarn_str method;
    tarn_str uris[AUTH_CANDIDATES_MAX];
    size_t uris_n;
    tarn_str queries[AUTH_CANDIDATES_MAX];
    size_t queries_n;
    tarn_str headers;
    tarn_str signed_headers;
    tarn_str amz_date;
    tarn_str signature;
    auth_scope scope;
    const auth_user *user;
    uint8_t key[TARN_SHA256_BYTES];
    bool key_cached;
};
typedef struct tarn_auth_deferred auth_signed;
void auth_add_candidate(tarn_str *list, size_t *n, tarn_str s);
/* OK when one of the candidates has the signature; else SIGNATURE_DOES_NOT_MATCH with the fields of s3.md §2.6. */
tarn_err auth_signed_match(tarn_auth *a, auth_signed *s, tarn_str payload_line, tarn_arena *arena, tarn_err_detail *d);

/* ------------------------------------------------------------------ headers auth looks at (verify.c) */
typedef struct auth_seen {
    tarn_str authorization, amz_date, date, content_sha256, decoded_length, trailer, security_token, content_length;
    size_t authorization_n, content_sha256_n, decoded_length_n, trailer_n, security_token_n, amz_date_n;
    bool has_body_framing; /* Transfer-Encoding, or a Content-Length other than 0 */
} auth_seen;
/* One verification on its way: the arguments of tarn_auth_verify and what was found so far. */
typedef struct auth_run {
    tarn_auth *a;
    tarn_auth_api api;
    const tarn_auth_view *v;
    int64_t now_ms;
    tarn_arena *arena;
    tarn_auth_result *out;
    tarn_err_detail *d;
    auth_seen seen;
    auth_query query;
} auth_run;
tarn_err auth_payload_header(auth_run *r, tarn_str value, bool signed_request); /* payload.c */
tarn_err auth_verify_v4_header(auth_run *r);
tarn_err auth_verify_v4_query(auth_run *r);
tarn_err auth_verify_v2_query(auth_run *r);
/* Host and every x-amz-* header that is there must be signed (s3.md §2.1). */
tarn_err auth_check_signed(auth_run *r, const auth_names *names, bool presigned);
bool auth_is_exempt_header(tarn_str name);
tarn_err auth_signed_begin(auth_run *r, const auth_scope *scope, const auth_names *names, tarn_str amz_date, tarn_str signature,
                           auth_signed **out);
void auth_result_set(auth_run *r, tarn_auth_mode mode, const auth_signed *s, int64_t signed_ms);
tarn_err auth_set_trailers(auth_run *r);

/* ------------------------------------------------------------------ JSON (json.c) */
/* Refuses what is deeper than AUTH_JSON_DEPTH_MAX before the parser sees it, and repeated names. NULL when it is no JSON. */
json_t *auth_json_load(tarn_str text, char *error, size_t error_cap);
tarn_str auth_json_str(const json_t *s);

/* ------------------------------------------------------------------ the whole decision (policy_eval.c) */
typedef struct auth_documents {
    const tarn_policy *const *identity; /* the user's own and its groups' */
    size_t identity_n;
    const tarn_policy *bucket;
    const tarn_policy *boundary;       /* NULL: none */
    const tarn_policy *const *session; /* all must allow */
    size_t session_n;
    bool cross_account; /* the identity belongs to another account than the bucket */
} auth_documents;
/* identity.md §1: explicit deny first, then identity or bucket, cut by boundary and session. */
bool auth_decide(const auth_documents *docs, const tarn_policy_request *r);

#endif
