/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The one route table of the S3 API, and the way of a request through it:
 *   target → bucket and key → route → authenticated → authorised → handler → answered.
 *
 * Invariants: (1) a sub-resource is never answered as the plain operation: one that the table has not at all, or with a row
 * without a handler, gets 501; one that it has for other methods gets 405; (2) nothing is looked up or changed before
 * the signature has been verified; (3) every handler runs behind a policy decision, its own (S3_F_OWN_AUTH) or this file's.
 */
#include "s3_internal.h"

#define SVC S3_ON_SERVICE
#define BKT S3_ON_BUCKET
#define OBJ S3_ON_OBJECT
#define COPY "x-amz-copy-source"

/* The first row that fits is taken: rows with a query key stand before those without. */
const s3_route s3_routes[] = {
    {"GET", SVC, NULL, NULL, NULL, "s3:ListAllMyBuckets", "ListBuckets", s3_list_buckets, S3_F_NO_BUCKET},
    /* bucket sub-resources */
    {"GET", BKT, "location", NULL, NULL, "s3:GetBucketLocation", "GetBucketLocation", s3_get_location, 0},
    {"GET", BKT, "versioning", NULL, NULL, "s3:GetBucketVersioning", "GetBucketVersioning", s3_get_versioning, 0},
    {"PUT", BKT, "versioning", NULL, NULL, "s3:PutBucketVersioning", "PutBucketVersioning", s3_put_versioning, 0},
    {"GET", BKT, "policy", NULL, NULL, "s3:GetBucketPolicy", "GetBucketPolicy", s3_get_policy, 0},
    {"PUT", BKT, "policy", NULL, NULL, "s3:PutBucketPolicy", "PutBucketPolicy", s3_put_policy, 0},
    {"DELETE", BKT, "policy", NULL, NULL, "s3:DeleteBucketPolicy", "DeleteBucketPolicy", s3_delete_policy, 0},
    {"GET", BKT, "policyStatus", NULL, NULL, "s3:GetBucketPolicyStatus", "GetBucketPolicyStatus", s3_get_policy_status, 0},
    {"GET", BKT, "lifecycle", NULL, NULL, "s3:GetLifecycleConfiguration", "GetBucketLifecycleConfiguration", s3_get_lifecycle, 0},
    {"PUT", BKT, "lifecycle", NULL, NULL, "s3:PutLifecycleConfiguration", "PutBucketLifecycleConfiguration", s3_put_lifecycle, 0},
    {"DELETE", BKT, "lifecycle", NULL, NULL, "s3:PutLifecycleConfiguration", "DeleteBucketLifecycle", s3_delete_lifecycle, 0},
    {"GET", BKT, "tagging", NULL, NULL, "s3:GetBucketTagging", "GetBucketTagging", s3_get_bucket_tagging, 0},
    {"PUT", BKT, "tagging", NULL, NULL, "s3:PutBucketTagging", "PutBucketTagging", s3_put_bucket_tagging, 0},
    {"DELETE", BKT, "tagging", NULL, NULL, "s3:PutBucketTagging", "DeleteBucketTagging", s3_delete_bucket_tagging, 0},
    {"GET", BKT, "object-lock", NULL, NULL, "s3:GetBucketObjectLockConfiguration", "GetObjectLockConfiguration", s3_get_lock_config, 0},
    {"PUT", BKT, "object-lock", NULL, NULL, "s3:PutBucketObjectLockConfiguration", "PutObjectLockConfiguration", s3_put_lock_config, 0},
    {"GET", BKT, "acl", NULL, NULL, "s3:GetBucketAcl", "GetBucketAcl", s3_get_acl, 0},
    {"PUT", BKT, "acl", NULL, NULL, "s3:PutBucketAcl", "PutBucketAcl", s3_put_acl, 0},
    {"PUT", BKT, "encryption", NULL, NULL, "s3:PutEncryptionConfiguration", "PutBucketEncryption", NULL, 0},
    {"DELETE", BKT, "encryption", NULL, NULL, "s3:PutEncryptionConfiguration", "DeleteBucketEncryption", NULL, 0},
    {"PUT", BKT, "website", NULL, NULL, "s3:PutBucketWebsite", "PutBucketWebsite", NULL, 0},
    {"DELETE", BKT, "website", NULL, NULL, "s3:DeleteBucketWebsite", "DeleteBucketWebsite", NULL, 0},
    {"PUT", BKT, "replication", NULL, NULL, "s3:PutReplicationConfiguration", "PutBucketReplication", NULL, 0},
    {"DELETE", BKT, "replication", NULL, NULL, "s3:PutReplicationConfiguration", "DeleteBucketReplication", NULL, 0},
    {"PUT", BKT, "notification", NULL, NULL, "s3:PutBucketNotification", "PutBucketNotificationConfiguration", NULL, 0},
    {"PUT", BKT, "logging", NULL, NULL, "s3:PutBucketLogging", "PutBucketLogging", NULL, 0},
    {"PUT", BKT, "accelerate", NULL, NULL, "s3:PutAccelerateConfiguration", "PutBucketAccelerateConfiguration", NULL, 0},
    {"PUT", BKT, "requestPayment", NULL, NULL, "s3:PutBucketRequestPayment", "PutBucketRequestPayment", NULL, 0},
    {"GET", BKT, "encryption", NULL, NULL, "s3:GetEncryptionConfiguration", "GetBucketEncryption", s3_get_config, 0},
    {"GET", BKT, "cors", NULL, NULL, "s3:GetBucketCORS", "GetBucketCors", s3_get_config, 0},
    {"PUT", BKT, "cors", NULL, NULL, "s3:PutBucketCORS", "PutBucketCors", s3_put_config, 0},
    {"DELETE", BKT, "cors", NULL, NULL, "s3:PutBucketCORS", "DeleteBucketCors", s3_delete_config, 0},
    {"GET", BKT, "ownershipControls", NULL, NULL, "s3:GetBucketOwnershipControls", "GetBucketOwnershipControls", s3_get_config, 0},
    {"PUT", BKT, "ownershipControls", NULL, NULL, "s3:PutBucketOwnershipControls", "PutBucketOwnershipControls", s3_put_config, 0},
    {"DELETE", BKT, "ownershipControls", NULL, NULL, "s3:PutBucketOwnershipControls", "DeleteBucketOwnershipControls", s3_delete_config, 0},
    {"GET", BKT, "publicAccessBlock", NULL, NULL, "s3:GetBucketPublicAccessBlock", "GetPublicAccessBlock", s3_get_config, 0},
    {"PUT", BKT, "publicAccessBlock", NULL, NULL, "s3:PutBucketPublicAccessBlock", "PutPublicAccessBlock", s3_put_config, 0},
    {"DELETE", BKT, "publicAccessBlock", NULL, NULL, "s3:PutBucketPublicAccessBlock", "DeletePublicAccessBlock", s3_delete_config, 0},
    {"GET", BKT, "website", NULL, NULL, "s3:GetBucketWebsite", "GetBucketWebsite", s3_get_config, 0},
    {"GET", BKT, "replication", NULL, NULL, "s3:GetReplicationConfiguration", "GetBucketReplication", s3_get_config, 0},
    {"GET", BKT, "notification", NULL, NULL, "s3:GetBucketNotification", "GetBucketNotificationConfiguration", s3_get_config, 0},
    {"GET", BKT, "logging", NULL, NULL, "s3:GetBucketLogging", "GetBucketLogging", s3_get_config, 0},
    {"GET", BKT, "accelerate", NULL, NULL, "s3:GetAccelerateConfiguration", "GetBucketAccelerateConfiguration", s3_get_config, 0},
    {"GET", BKT, "requestPayment", NULL, NULL, "s3:GetBucketRequestPayment", "GetBucketRequestPayment", s3_get_config, 0},
    {"GET", BKT, "uploads", NULL, NULL, "s3:ListBucketMultipartUploads", "ListMultipartUploads", s3_list_uploads, 0},
    {"GET", BKT, "versions", NULL, NULL, "s3:ListBucketVersions", "ListObjectVersions", s3_list_versions, 0},
    {"POST", BKT, "delete", NULL, NULL, NULL, "DeleteObjects", s3_delete_objects, S3_F_OWN_AUTH},
    {"GET", BKT, "list-type", NULL, NULL, "s3:ListBucket", "ListObjectsV2", s3_list_v2, 0},
    /* buckets */
    {"GET", BKT, NULL, NULL, NULL, "s3:ListBucket", "ListObjects", s3_list_v1, 0},
    {"HEAD", BKT, NULL, NULL, NULL, "s3:ListBucket", "HeadBucket", s3_head_bucket, 0},
    {"PUT", BKT, NULL, NULL, NULL, "s3:CreateBucket", "CreateBucket", s3_create_bucket, S3_F_NO_BUCKET},
    {"DELETE", BKT, NULL, NULL, NULL, "s3:DeleteBucket", "DeleteBucket", s3_delete_bucket, 0},
    {"POST", BKT, NULL, NULL, NULL, NULL, "PostObject", s3_post_form, S3_F_OWN_AUTH | S3_F_NO_BUCKET},
    {"OPTIONS", BKT, NULL, NULL, NULL, NULL, "OptionsBucket", s3_options, S3_F_OWN_AUTH},
    /* object sub-resources */
    {"POST", OBJ, "uploads", NULL, NULL, "s3:PutObject", "CreateMultipartUpload", s3_create_upload, 0},
    {"POST", OBJ, "uploadId", NULL, NULL, "s3:PutObject", "CompleteMultipartUpload", s3_complete_upload, 0},
    {"PUT", OBJ, "partNumber", "uploadId", COPY, NULL, "UploadPartCopy", s3_upload_part_copy, S3_F_OWN_AUTH},
    {"PUT", OBJ, "partNumber", "uploadId", NULL, "s3:PutObject", "UploadPart", s3_upload_part, S3_F_STREAMING},
    {"DELETE", OBJ, "uploadId", NULL, NULL, "s3:AbortMultipartUpload", "AbortMultipartUpload", s3_abort_upload, 0},
    {"GET", OBJ, "uploadId", NULL, NULL, "s3:ListMultipartUploadParts", "ListParts", s3_list_parts, 0},
    {"GET", OBJ, "tagging", NULL, NULL, "s3:GetObjectTagging", "GetObjectTagging", s3_get_object_tagging, 0},
    {"PUT", OBJ, "tagging", NULL, NULL, "s3:PutObjectTagging", "PutObjectTagging", s3_put_object_tagging, S3_F_OWN_AUTH},
    {"DELETE", OBJ, "tagging", NULL, NULL, "s3:DeleteObjectTagging", "DeleteObjectTagging", s3_delete_object_tagging, 0},
    {"GET", OBJ, "retention", NULL, NULL, "s3:GetObjectRetention", "GetObjectRetention", s3_get_retention, 0},
    {"PUT", OBJ, "retention", NULL, NULL, "s3:PutObjectRetention", "PutObjectRetention", s3_put_retention, 0},
    {"GET", OBJ, "legal-hold", NULL, NULL, "s3:GetObjectLegalHold", "GetObjectLegalHold", s3_get_legal_hold, 0},
    {"PUT", OBJ, "legal-hold", NULL, NULL, "s3:PutObjectLegalHold", "PutObjectLegalHold", s3_put_legal_hold, 0},
    {"GET", OBJ, "acl", NULL, NULL, "s3:GetObjectAcl", "GetObjectAcl", s3_get_acl, 0},
    {"PUT", OBJ, "acl", NULL, NULL, "s3:PutObjectAcl", "PutObjectAcl", s3_put_acl, 0},
    {"GET", OBJ, "attributes", NULL, NULL, "s3:GetObjectAttributes", "GetObjectAttributes", s3_get_object_attributes, 0},
    /* objects */
    {"PUT", OBJ, NULL, NULL, COPY, NULL, "CopyObject", s3_copy_object, S3_F_OWN_AUTH},
    {"PUT", OBJ, NULL, NULL, NULL, "s3:PutObject", "PutObject", s3_put_object, S3_F_STREAMING},
    {"GET", OBJ, NULL, NULL, NULL, "s3:GetObject", "GetObject", s3_get_object, 0},
    {"HEAD", OBJ, NULL, NULL, NULL, "s3:GetObject", "HeadObject", s3_head_object, 0},
    {"DELETE", OBJ, NULL, NULL, NULL, "s3:DeleteObject", "DeleteObject", s3_delete_object, 0},
    {"OPTIONS", OBJ, NULL, NULL, NULL, NULL, "OptionsObject", s3_options, S3_F_OWN_AUTH},
};
const size_t s3_routes_n = TARN_ARRAY_LEN(s3_routes);

/* Sub-resources that S3 has. One that no row of the table serves is answered with 501. */
static const char *const sub_resources[] = {
    "accelerate",
    "acl",
    "analytics",
    "annotation",
    "attributes",
    "cors",
    "delete",
    "encryption",
    "intelligent-tiering",
    "inventory",
    "legal-hold",
    "lifecycle",
    "location",
    "logging",
    "metadataConfiguration",
    "metadataTable",
    "metrics",
    "notification",
    "object-lock",
    "ownershipControls",
    "policy",
    "policyStatus",
    "publicAccessBlock",
    "renameObject",
    "replication",
    "requestPayment",
    "restore",
    "retention",
    "select",
    "session",
    "tagging",
    "torrent",
    "uploads",
    "versioning",
    "versions",
    "website",
    "abac",
    "append",
};

/* ------------------------------------------------------------------ bucket and key */
static tarn_err parse_place(s3_ctx *c)
{
    const tarn_auth_view *v = tarn_req_view(c->r);
    tarn_str path = v->raw_path;
    tarn_str host_bucket = tarn_auth_host_bucket(c->s3->auth, tarn_auth_header(v, "host"));
    tarn_str rest = path.n > 0 ? tarn_str_sub(path, 1, path.n - 1) : path;
    tarn_str raw_bucket = TARN_STR_NULL, raw_key = TARN_STR_NULL;
    c->resource_path = path;
    if (host_bucket.n > 0) {
        raw_bucket = host_bucket;
        raw_key = rest;
    } else {
        ptrdiff_t slash = tarn_str_chr(rest, '/');
        raw_bucket = slash < 0 ? rest : tarn_str_sub(rest, 0, (size_t)slash);
        raw_key = slash < 0 ? TARN_STR_NULL : tarn_str_sub(rest, (size_t)slash + 1, rest.n);
    }
    if (raw_bucket.n > 0 && !tarn_urldecode(c->a, raw_bucket, false, &c->bucket_name))
        return TARN_E_INVALID_URI;
    if (raw_key.n > 0 && !tarn_urldecode(c->a, raw_key, false, &c->key))
        return TARN_E_INVALID_URI;
    if (raw_bucket.n == 0 && raw_key.n > 0) {
        c->bucket_name = TARN_STR("");
        return TARN_E_INVALID_BUCKET_NAME;
    }
    tarn_str decoded;
    if (!tarn_urldecode(c->a, path, false, &decoded))
        return TARN_E_INVALID_URI;
    c->resource_path = decoded;
    if (c->key.n > 0 && tarn_str_chr(c->key, '\0') >= 0)
        return s3_bad_argument(c, "The object key must not contain a NUL character.", "key", TARN_STR_NULL);
    return TARN_OK;
}

/* ------------------------------------------------------------------ the table */
static bool route_fits(s3_ctx *c, const s3_route *t)
{
    if (t->query_key != NULL && !s3_has_param(c, t->query_key))
        return false;
    if (t->query_key2 != NULL && !s3_has_param(c, t->query_key2))
        return false;
    return t->header == NULL || tarn_req_header(c->r, t->header).p != NULL;
}

/* May the request be answered by a row without a query key? OK, or what it is answered with instead. */
static tarn_err check_plain(s3_ctx *c, s3_resource resource)
{
    for (size_t i = 0; i < TARN_ARRAY_LEN(sub_resources); i++) {
        if (!s3_has_param(c, sub_resources[i]))
            continue;
        for (size_t k = 0; k < s3_routes_n; k++) {
            const s3_route *t = &s3_routes[k];
            if (t->resource == resource && t->query_key != NULL && tarn_str_eqc(tarn_str_of(t->query_key), sub_resources[i]))
                return TARN_E_METHOD_NOT_ALLOWED;
        }
        return s3_fail(c, TARN_E_NOT_IMPLEMENTED, "This sub-resource is not implemented.");
    }
    return TARN_OK;
}

static tarn_err wrong_method(s3_ctx *c, s3_resource resource)
{
    tarn_err_detail_add(&c->detail, "Method", tarn_req_method(c->r));
    tarn_err_detail_add(&c->detail, "ResourceType",
                        resource == S3_ON_OBJECT   ? TARN_STR("OBJECT")
                        : resource == S3_ON_BUCKET ? TARN_STR("BUCKET")
                                                   : TARN_STR("SERVICE"));
    return TARN_E_METHOD_NOT_ALLOWED;
}

static tarn_err find_route(s3_ctx *c)
{
    s3_resource resource = c->key.n > 0 ? S3_ON_OBJECT : c->bucket_name.n > 0 ? S3_ON_BUCKET : S3_ON_SERVICE;
    tarn_str method = tarn_req_method(c->r);
    tarn_err plain = check_plain(c, resource);
    for (size_t i = 0; i < s3_routes_n; i++) {
        const s3_route *t = &s3_routes[i];
        if (t->resource != resource || !tarn_str_eqc(method, t->method) || !route_fits(c, t))
            continue;
        if (t->query_key == NULL && plain != TARN_OK)
            break;
        c->route = t;
        return t->handler != NULL ? TARN_OK : s3_fail(c, TARN_E_NOT_IMPLEMENTED, "This operation is not implemented.");
    }
    return plain == TARN_OK || plain == TARN_E_METHOD_NOT_ALLOWED ? wrong_method(c, resource) : plain;
}

/* ------------------------------------------------------------------ the way of a request */
static tarn_err check_payload_mode(s3_ctx *c)
{
    bool chunked = c->auth.payload == TARN_PAYLOAD_SIGNED_CHUNKS || c->auth.payload == TARN_PAYLOAD_SIGNED_CHUNKS_TRAILER ||
                   c->auth.payload == TARN_PAYLOAD_UNSIGNED_TRAILER;
    if (chunked && !(c->route->flags & S3_F_STREAMING))
        return s3_fail(c, TARN_E_INVALID_REQUEST, "A streaming payload is only allowed where an object or a part is uploaded.");
    return TARN_OK;
}

static tarn_err authorise_route(s3_ctx *c)
{
    if (c->route->resource == S3_ON_SERVICE)
        return c->auth.identity.anonymous ? TARN_E_ACCESS_DENIED : TARN_OK;
    if (!(c->route->flags & S3_F_NO_BUCKET)) {
        tarn_err e = s3_load_bucket(c, c->bucket_name, &c->bucket, &c->facts);
        if (e != TARN_OK)
            return e;
        c->bucket_loaded = true;
        if (!tarn_str_eqc(tarn_req_method(c->r), "OPTIONS"))
            s3_cors_headers(c);
        e = s3_check_expected_owner(c, "x-amz-expected-bucket-owner", &c->bucket);
        if (e != TARN_OK)
            return e;
    }
    if (c->route->flags & S3_F_OWN_AUTH)
        return TARN_OK;
    return s3_may_route(c);
}

static tarn_err serve(s3_ctx *c)
{
    tarn_err e = parse_place(c);
    if (e != TARN_OK)
        return e;
    const tarn_param *params;
    size_t n;
    if (!tarn_req_params(c->r, &params, &n))
        return TARN_E_INVALID_URI;
    e = tarn_auth_verify(c->s3->auth, TARN_API_S3, tarn_req_view(c->r), tarn_req_time_ms(c->r), c->a, &c->auth, &c->detail);
    if (e != TARN_OK)
        return e;
    tarn_req_set_identity(c->r, c->auth.access_key);
    e = find_route(c);
    if (e != TARN_OK)
        return e;
    tarn_req_set_operation(c->r, c->route->operation);
    e = check_payload_mode(c);
    if (e == TARN_OK && c->key.n > 0)
        e = s3_check_key(c, c->key);
    if (e == TARN_OK)
        e = authorise_route(c);
    if (e == TARN_OK)
        e = c->route->handler(c);
    return e;
}

void tarn_s3_handle(tarn_s3 *s, tarn_req *r)
{
    s3_ctx c = {.s3 = s, .r = r, .a = tarn_req_arena(r)};
    tarn_err e = serve(&c);
    if (e != TARN_OK)
        s3_send_error(&c, e);
    s3_facts_unref(c.facts);
    tarn_auth_result_wipe(&c.auth);
}

void tarn_s3_edge_error(tarn_s3 *s, tarn_req *r, tarn_err e, const char *message)
{
    s3_ctx c = {.s3 = s, .r = r, .a = tarn_req_arena(r)};
    const tarn_auth_view *v = tarn_req_view(r);
    c.resource_path = v != NULL ? v->raw_path : TARN_STR_NULL;
    c.detail.message = tarn_str_of(message);
    s3_send_error(&c, e);
}

void tarn_s3_routes_render(tarn_sb *b)
{
    static const char *const names[] = {"service", "bucket", "object"};
    for (size_t i = 0; i < s3_routes_n; i++) {
        const s3_route *t = &s3_routes[i];
        tarn_sb_fmt(b, "%s\t%s\t%s\t%s\t%s\n", t->method, names[t->resource], t->query_key != NULL ? t->query_key : "-",
                    t->action != NULL ? t->action : "-", t->operation);
    }
}

/* ------------------------------------------------------------------ life */
tarn_err tarn_s3_new(const tarn_s3_options *opt, tarn_s3 **out)
{
    tarn_s3 *s = tarn_calloc(1, sizeof *s);
    if (s == NULL)
        return TARN_E_NO_MEMORY;
    s->store = opt->store;
    s->meta = tarn_store_meta(opt->store);
    s->auth = opt->auth;
    s->lifecycle_day_s = opt->lifecycle_day_s;
    (void)pthread_mutex_init(&s->facts_lock, NULL);
    const char *region = tarn_strdup(opt->region);
    if (region == NULL) {
        tarn_s3_free(s);
        return TARN_E_NO_MEMORY;
    }
    s->region = tarn_str_of(region);
    *out = s;
    return TARN_OK;
}

void tarn_s3_free(tarn_s3 *s)
{
    if (s == NULL)
        return;
    tarn_free((void *)(uintptr_t)s->region.p);
    s3_facts_drop_all(s);
    (void)pthread_mutex_destroy(&s->facts_lock);
    tarn_free(s);
}
