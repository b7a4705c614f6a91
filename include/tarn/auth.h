/* SPDX-License-Identifier: Apache-2.0 */
/*
 * auth: who sent a request and what they may do. SigV4 in all its forms (header, query, chunk chains, trailers, POST
 * forms), SigV2 query, bearer tokens, credentials, the policy engine.
 *
 * One function, tarn_auth_verify(), maps a request to its authentication mode; what it does not know is denied.
 * It works on what was on the wire (raw target, raw header lines), never on anything a router has normalised.
 * Threads: tarn_auth is shared by all workers and immutable after creation but for the signing-key cache, which is
 * locked inside. Everything else belongs to the request's fiber.
 */
#ifndef TARN_AUTH_H
#define TARN_AUTH_H

#include "tarn/base.h"
#include "tarn/crypto.h"

/* ------------------------------------------------------------------ limits */
#define TARN_ACCESS_KEY_BYTES_MIN 3
#define TARN_ACCESS_KEY_BYTES_MAX 128
#define TARN_SECRET_KEY_BYTES_MIN 8
#define TARN_SECRET_KEY_BYTES_MAX 128
#define TARN_CLOCK_SKEW_MS_MAX (15 * 60 * 1000)
#define TARN_PRESIGN_EXPIRES_S_MAX 604800
#define TARN_POLICY_BYTES_MAX 20480
#define TARN_CHUNK_BYTES_MAX (16u * 1024 * 1024) /* one chunk of aws-chunked */
#define TARN_CHUNK_BYTES_MIN 8192                /* every chunk but the last of a signed stream */
#define TARN_TRAILER_BYTES_MAX 4096
#define TARN_AUTH_USERS_MAX 64 /* users of tarn_auth_options beside the root */
#define TARN_AUTH_DOMAINS_MAX 16

/* ------------------------------------------------------------------ what a request looks like to auth */
typedef struct tarn_auth_view {
    tarn_str method;
    tarn_str raw_path;        /* as on the wire, before '?' */
    tarn_str raw_query;       /* after '?', without it; p == NULL when there was no '?' */
    const tarn_pair *headers; /* in wire order; names as sent, values trimmed */
    size_t headers_n;
} tarn_auth_view;
/* First value of a header (name case-folded); {NULL,0} when absent. */
tarn_str tarn_auth_header(const tarn_auth_view *v, const char *name);

typedef enum tarn_auth_api {
    TARN_API_S3,      /* path canonicalised as S3 does; service s3 */
    TARN_API_CATALOG, /* iceberg-rest.md §4.1: services s3tables, s3, execute-api, glue; candidates of path and query; bearer */
    TARN_API_ADMIN    /* service s3 or sts/iam, S3 rules */
} tarn_auth_api;

typedef enum tarn_auth_mode {
    TARN_AUTH_ANONYMOUS,
    TARN_AUTH_V4_HEADER,
    TARN_AUTH_V4_QUERY,
    TARN_AUTH_V2_QUERY,
    TARN_AUTH_BEARER,
    TARN_AUTH_POST_FORM /* set by the form's handler after tarn_auth_verify_form */
} tarn_auth_mode;

typedef enum tarn_payload_mode {
    TARN_PAYLOAD_NONE_GIVEN, /* catalog only: hash the body, then tarn_auth_finish_body */
    TARN_PAYLOAD_SHA256,     /* body must hash to expect_sha256 */
    TARN_PAYLOAD_UNSIGNED,
    TARN_PAYLOAD_SIGNED_CHUNKS,         /* STREAMING-AWS4-HMAC-SHA256-PAYLOAD */
    TARN_PAYLOAD_SIGNED_CHUNKS_TRAILER, /* …-PAYLOAD-TRAILER */
    TARN_PAYLOAD_UNSIGNED_TRAILER       /* STREAMING-UNSIGNED-PAYLOAD-TRAILER */
} tarn_payload_mode;

typedef struct tarn_identity {
    bool anonymous;
    bool root;                        /* may do everything; explicit bucket-policy denies still hold, except on the policy itself */
    tarn_str access_key;              /* empty when anonymous */
    tarn_str name;                    /* what owner and principal fields show */
    tarn_str canonical_id;            /* 64 hex digits, derived from the access key: Owner.ID */
    const struct tarn_policy *policy; /* the user's own policy, NULL = none (root needs none) */
} tarn_identity;

/* Extra fields for the error answer: name/value in the order they are to appear. Values are escaped by the writer. */
#define TARN_ERR_FIELDS_MAX 10
typedef struct tarn_err_detail {
    tarn_str message; /* replaces the table's message when not empty */
    tarn_pair fields[TARN_ERR_FIELDS_MAX];
    size_t fields_n;
} tarn_err_detail;
/* Both copy nothing: the slices must live as long as the request's arena. */
void tarn_err_detail_add(tarn_err_detail *d, const char *name, tarn_str value);

typedef struct tarn_auth_result {
    tarn_auth_mode mode;
    tarn_identity identity;
    tarn_payload_mode payload;
    uint8_t expect_sha256[TARN_SHA256_BYTES]; /* PAYLOAD_SHA256 */
    uint64_t decoded_length;                  /* chunked modes: x-amz-decoded-content-length */
    bool has_decoded_length;
    tarn_str trailer_names;             /* chunked modes: x-amz-trailer */
    tarn_str region, service, amz_date; /* of the credential scope */
    tarn_str access_key;
    int64_t signed_ms;                      /* time of the signature */
    uint64_t presign_expires_s;             /* V4_QUERY */
    uint8_t signing_key[TARN_SHA256_BYTES]; /* for chunk chains; wiped by tarn_auth_result_wipe */
    char seed_signature[65];                /* hex */
    /* catalog without a payload hash: what tarn_auth_finish_body needs */
    struct tarn_auth_deferred *deferred;
} tarn_auth_result;

typedef struct tarn_auth tarn_auth;
typedef struct tarn_auth_options {
    tarn_str root_access_key;
    tarn_str root_secret_key;
    tarn_str region;          /* "" or "us-east-1"…: S3 signatures must name it; "" accepts any */
    bool sigv2_query;         /* TARN_SIGV2 != off */
    const uint8_t *token_key; /* 32 bytes: signs bearer tokens; kept with the deployment. NULL: a random one for this process */
    /* Further users, access key → secret key; NULL, 0 when there are none. They have no policy of their own: they may create
     * and list buckets, do everything in a bucket they own, and elsewhere what bucket policies allow. */
    const tarn_pair *users;
    size_t users_n;          /* ≤ TARN_AUTH_USERS_MAX */
    const tarn_str *domains; /* virtual-host style: requests for BUCKET.DOMAIN */
    size_t domains_n;        /* ≤ TARN_AUTH_DOMAINS_MAX */
} tarn_auth_options;
tarn_err tarn_auth_new(const tarn_auth_options *opt, tarn_auth **out);
void tarn_auth_free(tarn_auth *a); /* wipes */
tarn_str tarn_auth_region(const tarn_auth *a);
/* The bucket in front of one of the domains, as the Host header has it; {NULL,0} where the host is no bucket's. */
tarn_str tarn_auth_host_bucket(const tarn_auth *a, tarn_str host);
/* The root's identity (owner of everything made by the daemon itself). */
const tarn_identity *tarn_auth_root(const tarn_auth *a);
/* Looks a key up (the identity work extends what stands behind it). false when unknown. */
bool tarn_auth_lookup(const tarn_auth *a, tarn_str access_key, tarn_identity *identity);

/*
 * Verifies everything of a request that can be known before its body (s3.md §2.1–2.3, 2.6; iceberg-rest.md §4.1).
 * now_ms is the server's time. On an error *detail holds the message and the extra XML fields of s3.md §2.6, allocated in
 * `arena`. On success *out is filled in; slices point into the view or the arena.
 * An unsigned request is ANONYMOUS and succeeds here: the policy decides what it may do.
 */
tarn_err tarn_auth_verify(tarn_auth *a, tarn_auth_api api, const tarn_auth_view *v, int64_t now_ms, tarn_arena *arena,
                          tarn_auth_result *out, tarn_err_detail *detail);
/* Catalog, PAYLOAD_NONE_GIVEN with `deferred` set: with the body's SHA-256 known, checks the signature. Until then the
 * identity is anonymous, whatever the request says of itself; here it is filled in. */
tarn_err tarn_auth_finish_body(tarn_auth *a, tarn_auth_result *r, const uint8_t sha256[TARN_SHA256_BYTES], tarn_arena *arena,
                               tarn_err_detail *detail);
void tarn_auth_result_wipe(tarn_auth_result *r);

/* ------------------------------------------------------------------ aws-chunked bodies */
/*
 * Takes the body as it came and yields the payload (s3.md §2.2). State machine: size line → data → CRLF → … → last
 * chunk → trailers → end. For signed streams a chunk's bytes are handed out as they come, and its signature is checked at
 * its end: the caller must not commit anything before tarn_chunked_done() says so.
 */
typedef struct tarn_chunked tarn_chunked;
tarn_err tarn_chunked_new(const tarn_auth_result *r, tarn_arena *arena, tarn_chunked **out);
/*
 * Consumes some of in; *used bytes of it were taken; *data is a slice of `in` that is payload (may be empty).
 * Call again until *used == in.n. Errors: INCOMPLETE_BODY, INVALID_CHUNK_SIZE, MALFORMED_TRAILER, SIGNATURE_DOES_NOT_MATCH…
 */
tarn_err tarn_chunked_feed(tarn_chunked *c, tarn_str in, size_t *used, tarn_str *data);
/* At the end of the body: OK when the last chunk, its signature, the trailers and the decoded length are all right. */
tarn_err tarn_chunked_finish(tarn_chunked *c);
/* Trailers that were sent (names in lower case), after finish. */
size_t tarn_chunked_trailers(const tarn_chunked *c, const tarn_pair **out);
void tarn_chunked_end(tarn_chunked *c); /* frees digests; NULL is fine */

/* ------------------------------------------------------------------ POST forms, presigning, tokens */
typedef struct tarn_form_auth {
    tarn_str policy_base64;
    tarn_str algorithm, credential, amz_date, signature, security_token;
    tarn_str v2_access_key, v2_signature; /* the older form: AWSAccessKeyId and signature (HMAC-SHA1 in base64) */
} tarn_form_auth;
/* A field that was not in the form has p == NULL. A form without any of them is ANONYMOUS and succeeds: policies decide. */
tarn_err tarn_auth_verify_form(tarn_auth *a, const tarn_form_auth *f, int64_t now_ms, tarn_arena *arena, tarn_auth_result *out,
                               tarn_err_detail *detail);
/* Checks a decoded POST policy document against the form's fields (names lower-cased) and the content length.
 * ${filename} has been replaced already. Errors: INVALID_POLICY_DOCUMENT, ACCESS_DENIED, ENTITY_TOO_SMALL/LARGE. */
tarn_err tarn_post_policy_check(tarn_str policy_json, const tarn_pair *fields, size_t fields_n, tarn_str bucket, uint64_t content_bytes,
                                int64_t now_ms, tarn_arena *arena, tarn_err_detail *detail);
/* content-length-range of a policy, when it has one. */
bool tarn_post_policy_range(tarn_str policy_json, uint64_t *min_bytes, uint64_t *max_bytes);

/* Bearer tokens for the catalog: signed (HMAC), expiring, bound to an access key. */
#define TARN_TOKEN_LIFE_S_DEFAULT 3600
tarn_err tarn_token_issue(tarn_auth *a, tarn_str access_key, tarn_str secret_key, int64_t now_ms, uint64_t life_s, tarn_arena *arena,
                          tarn_str *out);
tarn_err tarn_token_verify(tarn_auth *a, tarn_str token, int64_t now_ms, tarn_identity *out);

/* ------------------------------------------------------------------ the client's side */
/* For commands that talk to a daemon: the three headers that sign a request without further headers of its own. */
typedef struct tarn_sign_spec {
    tarn_str access_key, secret_key, region; /* region "": us-east-1 */
    tarn_str method, raw_path, raw_query, host;
    tarn_str body;
    int64_t now_ms;
} tarn_sign_spec;
typedef struct tarn_signed {
    tarn_str amz_date, content_sha256, authorization; /* x-amz-date, x-amz-content-sha256, Authorization */
} tarn_signed;
tarn_err tarn_auth_sign(const tarn_sign_spec *s, tarn_arena *arena, tarn_signed *out);

/* ------------------------------------------------------------------ policies */
/*
 * AWS policy documents, 2012-10-17: Effect, Principal/NotPrincipal, Action/NotAction, Resource/NotResource, Condition with
 * the operators and the IfExists/ForAnyValue/ForAllValues forms of identity.md. Parsed once, immutable, counted.
 */
typedef struct tarn_policy tarn_policy;
/* kind: a bucket policy must have principals and resources of this bucket; an identity policy must not have principals. */
typedef enum tarn_policy_kind { TARN_POLICY_BUCKET, TARN_POLICY_IDENTITY } tarn_policy_kind;
tarn_err tarn_policy_parse(tarn_policy_kind kind, tarn_str json, tarn_str bucket, tarn_policy **out, tarn_arena *arena,
                           tarn_err_detail *detail);
tarn_policy *tarn_policy_ref(const tarn_policy *p);
void tarn_policy_unref(tarn_policy *p);
bool tarn_policy_is_public(const tarn_policy *p); /* GetBucketPolicyStatus */

typedef struct tarn_policy_request {
    const char *action; /* "s3:GetObject" */
    tarn_str resource;  /* "arn:aws:s3:::bucket/key" */
    const tarn_identity *identity;
    const tarn_pair *conditions; /* keys in lower case ("aws:sourceip", "s3:prefix"), server-derived only */
    size_t conditions_n;
    bool owner; /* the identity owns the bucket */
} tarn_policy_request;
typedef enum tarn_decision { TARN_DECISION_NONE, TARN_DECISION_ALLOW, TARN_DECISION_DENY } tarn_decision;
tarn_decision tarn_policy_eval(const tarn_policy *p, const tarn_policy_request *r); /* p NULL: NONE */
/*
 * The whole decision: an explicit deny anywhere wins; root and owner are allowed otherwise; a user needs an allow of his own
 * policy or of the bucket's; anonymous needs the bucket's. OK or ACCESS_DENIED.
 */
tarn_err tarn_authorise(const tarn_policy *bucket_policy, const tarn_policy_request *r);

#endif
