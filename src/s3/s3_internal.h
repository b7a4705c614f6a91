/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of the s3 module share: the context of one request, the route table's row, XML in and out, helpers.
 * A context lives on the stack of the request's fiber; everything it points to lives in the request's arena.
 */
#ifndef TARN_S3_INTERNAL_H
#define TARN_S3_INTERNAL_H

#include "tarn/s3.h"

#include <pthread.h>
#include <stdatomic.h>

/* ------------------------------------------------------------------ limits */
#define S3_XML_BODY_BYTES_MAX (2u * 1024 * 1024) /* any XML request body */
#define S3_XML_DEPTH_MAX 32
#define S3_XML_NODES_MAX 60000 /* 10,000 parts of five elements each, and some */
#define S3_DELETE_KEYS_MAX 1000
#define S3_LIST_KEYS_MAX 1000
#define S3_LIST_BUCKETS_MAX 10000
#define S3_ANSWER_BYTES_MAX (24u * 1024 * 1024)
#define S3_POLICY_CONDITIONS_MAX 96
#define S3_FACTS_SLOTS 256 /* buckets whose configuration is kept parsed */
#define S3_BUCKET_TAGS_MAX 50
#define S3_TAG_KEY_CHARS_MAX 128
#define S3_TAG_VALUE_CHARS_MAX 256
#define S3_XMLNS "http://s3.amazonaws.com/doc/2006-03-01/"

typedef struct s3_ctx s3_ctx;
typedef tarn_err (*s3_handler)(s3_ctx *c);

typedef enum s3_resource { S3_ON_SERVICE, S3_ON_BUCKET, S3_ON_OBJECT } s3_resource;

typedef enum s3_route_flags {
    S3_F_NONE = 0,
    S3_F_STREAMING = 1, /* aws-chunked bodies are allowed */
    S3_F_NO_BUCKET = 2, /* the bucket need not exist */
    S3_F_OWN_AUTH = 4   /* the handler authorises by itself (several objects, a form, or a decision that needs the body) */
} s3_route_flags;

typedef struct s3_route {
    const char *method;
    s3_resource resource;
    const char *query_key;  /* sub-resource that must be in the query; NULL: none of the table's keys is there */
    const char *query_key2; /* a second one that must be there, or NULL */
    const char *header;     /* header that must be there, or NULL */
    const char *action;     /* policy action; NULL with S3_F_OWN_AUTH */
    const char *operation;
    s3_handler handler; /* NULL: known, but not served: 501 */
    unsigned flags;
} s3_route;
extern const s3_route s3_routes[];
extern const size_t s3_routes_n;

/*
 * What a bucket's configuration says, parsed once for each generation of its row (facts.c). Immutable and counted: a
 * request keeps its own even while the configuration changes.
 */
typedef struct s3_node s3_node;
typedef struct s3_facts {
    atomic_uint refs;
    uint64_t bucket_id, generation;
    tarn_arena *arena;
    tarn_policy *policy;      /* NULL: none */
    bool unreadable;          /* a policy is stored that this program can't read */
    bool policy_public;       /* it lets everybody in */
    bool existing_tags;       /* it asks for s3:ExistingObjectTag */
    bool request_tags;        /* it asks for s3:RequestObjectTag or …TagKeys */
    bool block_public_policy; /* public access block */
    bool restrict_public;
    const struct lc_rule *rules; /* lifecycle */
    size_t rules_n;
    const s3_node *cors; /* <CORSConfiguration>, or NULL */
} s3_facts;

struct tarn_s3 {
    tarn_store *store;
    tarn_meta *meta;
    tarn_auth *auth;
    tarn_str region;
    uint64_t lifecycle_day_s;
    pthread_mutex_t facts_lock; /* guards facts */
    s3_facts *facts[S3_FACTS_SLOTS];
};

struct s3_ctx {
    tarn_s3 *s3;
    tarn_req *r;
    tarn_arena *a;
    const s3_route *route;
    tarn_str bucket_name;   /* decoded; p == NULL: no bucket */
    tarn_str key;           /* decoded; p == NULL: no key */
    tarn_str resource_path; /* "/bucket/key" for error answers, decoded */
    tarn_auth_result auth;
    tarn_bucket_row bucket; /* when bucket_loaded */
    bool bucket_loaded;
    s3_facts *facts;               /* counted; of the bucket, when bucket_loaded */
    const tarn_pair *request_tags; /* of a tagging body, for the policy */
    size_t request_tags_n;
    tarn_err_detail detail;
};

/* ------------------------------------------------------------------ errors (error.c) */
/* Sends the XML error answer. For HEAD no body. */
void s3_send_error(s3_ctx *c, tarn_err e);
/* Sets the message (and at most one argument pair) and returns e: `return s3_fail(c, TARN_E_INVALID_ARGUMENT, "…")`. */
tarn_err s3_fail(s3_ctx *c, tarn_err e, const char *message);
tarn_err s3_fail_arg(s3_ctx *c, tarn_err e, const char *message, const char *field, tarn_str value);
/* The usual InvalidArgument with ArgumentName and ArgumentValue. */
tarn_err s3_bad_argument(s3_ctx *c, const char *message, const char *name, tarn_str value);

/* ------------------------------------------------------------------ XML out (xml_out.c) */
typedef struct s3_xml {
    tarn_sb b;
} s3_xml;
void s3_xml_begin(s3_xml *x, const char *root); /* declaration and the root with its namespace */
void s3_xml_open(s3_xml *x, const char *name);
void s3_xml_close(s3_xml *x, const char *name);
void s3_xml_text(s3_xml *x, const char *name, tarn_str value); /* escaped; control characters as references */
void s3_xml_textc(s3_xml *x, const char *name, const char *value);
void s3_xml_u64(s3_xml *x, const char *name, uint64_t v);
void s3_xml_bool(s3_xml *x, const char *name, bool v);
void s3_xml_time(s3_xml *x, const char *name, int64_t ms);
void s3_xml_etag(s3_xml *x, tarn_str etag); /* <ETag>&quot;…&quot;</ETag> */
void s3_xml_key(s3_xml *x, const char *name, tarn_str key, bool url_encode);
void s3_xml_escape(tarn_sb *b, tarn_str s);
bool s3_xml_needs_escape(tarn_str s);
tarn_err s3_xml_send(s3_ctx *c, s3_xml *x, int status); /* closes nothing; frees x */

/* ------------------------------------------------------------------ XML in (xml_in.c) */
struct s3_node {
    tarn_str name;  /* without prefix */
    tarn_str text;  /* character data; only of elements without children */
    s3_node *first; /* children */
    s3_node *last;
    s3_node *next;
    s3_node *parent;
};
/* No DOCTYPE, no entities but the five, UTF-8, bounded depth and nodes. MALFORMED_XML. */
tarn_err s3_xml_parse(tarn_str body, tarn_arena *a, s3_node **root);
const s3_node *s3_node_child(const s3_node *n, const char *name);
tarn_str s3_node_text(const s3_node *n, const char *child); /* trimmed; {NULL,0} when there is none */
size_t s3_node_count(const s3_node *n, const char *name);
/* Reads the whole body of the request (de-chunked, digests checked) as XML whose root must be called `root`. */
tarn_err s3_read_xml(s3_ctx *c, const char *root, s3_node **out);

/* ------------------------------------------------------------------ bodies (body.c) */
/* What the headers say about digests of the body. */
typedef struct s3_digests {
    bool has_md5;
    uint8_t md5[TARN_MD5_BYTES];
    tarn_checksum checksum;     /* kind and expected value from an x-amz-checksum-* header; kind NONE: none */
    tarn_sum_kind trailer_kind; /* announced in x-amz-trailer */
    tarn_sum_kind algorithm;    /* x-amz-sdk-checksum-algorithm / x-amz-checksum-algorithm */
} s3_digests;
tarn_err s3_digests_parse(s3_ctx *c, s3_digests *d);
/* The same where the checksum is the body's own: the form "b64-N" is refused. */
tarn_err s3_digests_of_body(s3_ctx *c, s3_digests *d);
/* The length of the payload: decoded length, else Content-Length; MISSING_CONTENT_LENGTH where neither is known. */
tarn_err s3_payload_length(s3_ctx *c, uint64_t *n);
/* A reader of the payload, whatever the mode: removes aws-chunked, checks chunk signatures, keeps trailers. */
typedef struct s3_body {
    s3_ctx *c;
    tarn_chunked *chunked;
    uint8_t *window; /* chunked modes: what came from the wire and has not been decoded yet */
    size_t window_at, window_n;
    bool ended;
    uint64_t payload_bytes;
} s3_body;
tarn_err s3_body_open(s3_ctx *c, s3_body *b);
tarn_err s3_body_read(s3_body *b, void *buf, size_t n, size_t *got); /* *got = 0: the end, and all of it verified */
void s3_body_close(s3_body *b);
/* Checksum that came in the trailers: kind NONE when none did. */
tarn_err s3_body_trailer_checksum(s3_body *b, const s3_digests *d, tarn_checksum *out);
/* A small body in the arena, all its digests verified. */
tarn_err s3_read_body(s3_ctx *c, size_t max_bytes, tarn_str *out);

/* ------------------------------------------------------------------ what a bucket's configuration says (facts.c) */
/* The facts of a bucket whose row has just been read; the caller puts them back with s3_facts_unref. */
tarn_err s3_facts_get(tarn_s3 *s, const tarn_bucket_row *b, s3_facts **out);
void s3_facts_unref(s3_facts *f); /* NULL is fine */
void s3_facts_drop_all(tarn_s3 *s);

/* ------------------------------------------------------------------ authorisation (authorise.c) */
/* Finds a bucket and its facts. */
tarn_err s3_load_bucket(s3_ctx *c, tarn_str name, tarn_bucket_row *bucket, s3_facts **facts);
typedef struct s3_ask {
    const char *action;
    const tarn_bucket_row *bucket; /* NULL: it does not exist (yet) */
    const s3_facts *facts;         /* NULL with it */
    tarn_str key;                  /* empty: the bucket itself */
    tarn_version_ref ref;          /* the version that is meant, for the tags it has */
} s3_ask;
/* May this request's identity do it? OK or ACCESS_DENIED. */
tarn_err s3_authorise(s3_ctx *c, const s3_ask *q);
/* The same on the context's own bucket, key and version. */
tarn_err s3_may(s3_ctx *c, const char *action);
/* On the context's bucket and a key of it. */
tarn_err s3_may_on(s3_ctx *c, const char *action, tarn_str key);
/* The action of the route, which is another one where a version is named. */
tarn_err s3_may_route(s3_ctx *c);
bool s3_is_owner(const s3_ctx *c, const tarn_bucket_row *bucket);
/* NO_SUCH_KEY turns into ACCESS_DENIED for who may not list the bucket. */
tarn_err s3_hide_absent(s3_ctx *c, tarn_err e, const tarn_bucket_row *bucket, const s3_facts *facts);

/* ------------------------------------------------------------------ headers and parameters (params.c) */
bool s3_etag_strip(tarn_str in, tarn_str *out); /* removes quotes and W/ */
tarn_str s3_param(s3_ctx *c, const char *name); /* value, or {NULL,0} */
bool s3_has_param(s3_ctx *c, const char *name);
/* versionId: INVALID_ARGUMENT when it is empty or no version id of ours. */
tarn_err s3_version_param(s3_ctx *c, tarn_version_ref *out);
/* Whole number in [0, max], clamped to max; absent: dflt. */
tarn_err s3_number_param(s3_ctx *c, const char *name, uint64_t dflt, uint64_t max, uint64_t *out);
typedef enum s3_range_result { S3_RANGE_NONE, S3_RANGE_OK, S3_RANGE_UNSATISFIABLE } s3_range_result;
/* One bytes range; several, or another unit: NONE. */
s3_range_result s3_range_parse(tarn_str header, uint64_t size, uint64_t *off, uint64_t *len);
/* RFC 9110 §13.2.2. OK, NOT_MODIFIED or PRECONDITION_FAILED. prefix: "" or "x-amz-copy-source-" . */
tarn_err s3_check_conditions(s3_ctx *c, const char *prefix, const tarn_version_row *row);
/* If-Match / If-None-Match of a write. */
tarn_err s3_put_conditions(s3_ctx *c, tarn_put_conditions *out);
/* Content-*, Cache-Control, x-amz-meta-*, storage class, website redirect, SSE … of a request. */
tarn_err s3_attrs_from_headers(s3_ctx *c, tarn_attrs *out);
/* x-amz-tagging: packed tags. */
tarn_err s3_tags_from_header(s3_ctx *c, tarn_str *packed, uint32_t *n);
/* The header as pairs, at most TARN_OBJECT_TAGS_MAX + 1 of them, not checked. False when it is no such list. */
bool s3_tags_split(tarn_arena *a, tarn_str header, tarn_pair tags[TARN_OBJECT_TAGS_MAX + 1], size_t *n);
/* <Tagging><TagSet>…: pairs in the arena. MALFORMED_XML. */
tarn_err s3_tags_of_set(const s3_node *set, tarn_arena *a, tarn_pair **tags, size_t *n); /* the children alone */
tarn_err s3_tags_from_xml(const s3_node *root, tarn_arena *a, tarn_pair **tags, size_t *n);
tarn_err s3_tags_check(s3_ctx *c, const tarn_pair *tags, size_t n, size_t max);
/* x-amz-object-lock-*, and the bucket's default retention where they are absent. */
tarn_err s3_lock_from_headers(s3_ctx *c, tarn_retention *mode, int64_t *until_ms, bool *hold);
/* Answer headers that tell an object: ETag, Last-Modified, Content-*, x-amz-meta-*, version, checksum, lock, tag count. */
tarn_err s3_object_headers(s3_ctx *c, const tarn_version_row *row, const tarn_attrs *attrs, bool with_checksum);
void s3_version_header(s3_ctx *c, const tarn_version_row *row);
void s3_new_version_header(s3_ctx *c, const tarn_version_row *row);
/* x-amz-expiration, where a lifecycle rule will expire this current version. */
void s3_expiration_header(s3_ctx *c, const tarn_version_row *row);
void s3_etag_header(s3_ctx *c, tarn_str etag);
void s3_checksum_headers(s3_ctx *c, const tarn_checksum *sum);
const char *s3_checksum_word(tarn_sum_kind kind);                   /* as S3's messages name it: "crc32c", "null" */
tarn_str s3_checksum_text(tarn_arena *a, const tarn_checksum *sum); /* base64, "-N" for COMPOSITE of an upload */
/* "b64" or "b64-N" for a kind; false when it is no such value. */
bool s3_checksum_parse(tarn_sum_kind kind, tarn_str text, tarn_checksum *out);
/* Refuses encodings that the server does not do: SSE-KMS, SSE-C. */
tarn_err s3_refuse_encryption(s3_ctx *c);
tarn_err s3_refuse_read_encryption(s3_ctx *c); /* the same for reads: no object here has a key of the client */
tarn_err s3_check_key(s3_ctx *c, tarn_str key);
tarn_err s3_check_storage_class(s3_ctx *c, tarn_str v);
tarn_err s3_check_redirect(s3_ctx *c, tarn_str v);
/* A header that names the bucket's owner, by access key or canonical id: ACCESS_DENIED when it is somebody else. */
tarn_err s3_check_expected_owner(s3_ctx *c, const char *header, const tarn_bucket_row *b);
/* "bucket/key?versionId=…" of x-amz-copy-source. */
tarn_err s3_copy_source(s3_ctx *c, tarn_str *bucket, tarn_str *key, tarn_version_ref *ref);
tarn_err s3_send_empty(s3_ctx *c, int status);
void s3_owner(s3_xml *x, const char *element, tarn_str canonical_id); /* <element><ID>…</ID><DisplayName>… */
tarn_str s3_canonical_id(s3_ctx *c, tarn_str access_key);
/* The lock configuration of a bucket (lock.c): default retention. */
tarn_err s3_default_retention(s3_ctx *c, const tarn_bucket_row *b, tarn_retention *mode, int64_t *until_ms);

/* ------------------------------------------------------------------ handlers, by file */
/* bucket.c */
tarn_err s3_list_buckets(s3_ctx *c);
tarn_err s3_create_bucket(s3_ctx *c);
tarn_err s3_head_bucket(s3_ctx *c);
tarn_err s3_delete_bucket(s3_ctx *c);
tarn_err s3_get_location(s3_ctx *c);
tarn_err s3_get_versioning(s3_ctx *c);
tarn_err s3_put_versioning(s3_ctx *c);
/* put.c */
tarn_err s3_put_object(s3_ctx *c);
tarn_err s3_upload_part(s3_ctx *c);
/* get.c */
tarn_err s3_get_object(s3_ctx *c);
tarn_err s3_head_object(s3_ctx *c);
tarn_err s3_get_object_attributes(s3_ctx *c);
/* delete.c */
tarn_err s3_delete_object(s3_ctx *c);
tarn_err s3_delete_objects(s3_ctx *c);
/* copy.c */
tarn_err s3_copy_object(s3_ctx *c);
tarn_err s3_upload_part_copy(s3_ctx *c);
/* list.c */
tarn_err s3_list_v1(s3_ctx *c);
tarn_err s3_list_v2(s3_ctx *c);
tarn_err s3_list_versions(s3_ctx *c);
/* multipart.c */
tarn_err s3_create_upload(s3_ctx *c);
tarn_err s3_complete_upload(s3_ctx *c);
tarn_err s3_abort_upload(s3_ctx *c);
tarn_err s3_list_parts(s3_ctx *c);
tarn_err s3_list_uploads(s3_ctx *c);
/* tagging.c */
tarn_err s3_get_object_tagging(s3_ctx *c);
tarn_err s3_put_object_tagging(s3_ctx *c);
tarn_err s3_delete_object_tagging(s3_ctx *c);
tarn_err s3_get_bucket_tagging(s3_ctx *c);
tarn_err s3_put_bucket_tagging(s3_ctx *c);
tarn_err s3_delete_bucket_tagging(s3_ctx *c);
/* lock.c */
tarn_err s3_get_lock_config(s3_ctx *c);
tarn_err s3_put_lock_config(s3_ctx *c);
tarn_err s3_get_retention(s3_ctx *c);
tarn_err s3_put_retention(s3_ctx *c);
tarn_err s3_get_legal_hold(s3_ctx *c);
tarn_err s3_put_legal_hold(s3_ctx *c);
/* policy.c */
tarn_err s3_get_policy(s3_ctx *c);
tarn_err s3_put_policy(s3_ctx *c);
tarn_err s3_delete_policy(s3_ctx *c);
tarn_err s3_get_policy_status(s3_ctx *c);
/* acl.c */
tarn_err s3_get_acl(s3_ctx *c);
tarn_err s3_put_acl(s3_ctx *c);
/* Only ACLs that give nothing to others; absent is fine. */
tarn_err s3_check_canned_acl(s3_ctx *c, tarn_str acl);
/* config.c: lifecycle, encryption, CORS, ownership, public access block and what else is stored as it came */
tarn_err s3_get_lifecycle(s3_ctx *c);
tarn_err s3_put_lifecycle(s3_ctx *c);
tarn_err s3_delete_lifecycle(s3_ctx *c);
tarn_err s3_get_config(s3_ctx *c);
tarn_err s3_put_config(s3_ctx *c);
tarn_err s3_delete_config(s3_ctx *c);
/* post_form.c */
tarn_err s3_post_form(s3_ctx *c);
/* options.c */
tarn_err s3_options(s3_ctx *c);
void s3_cors_headers(s3_ctx *c); /* for answers to requests with an Origin */
/* One '*' at most stands for any run of characters. */
bool s3_cors_glob(tarn_str pattern, tarn_str text);
bool s3_cors_method(tarn_str method); /* one that rules may name */

#endif
