/* SPDX-License-Identifier: Apache-2.0 */
/* Buckets: list, create, head, delete, location, versioning. */
#include "s3_internal.h"

#define DROP_UPLOADS_MAX 100 /* aborted at a time when a bucket is deleted */

/* ------------------------------------------------------------------ names */
static bool looks_like_ip(tarn_str s)
{
    unsigned dots = 0;
    for (size_t i = 0; i < s.n; i++) {
        if (s.p[i] == '.')
            dots++;
        else if (s.p[i] < '0' || s.p[i] > '9')
            return false;
    }
    return dots == 3;
}

bool tarn_bucket_name_valid(tarn_str s)
{
    static const char *const bad_starts[] = {"xn--", "sthree-", "amzn-s3-demo-"};
    static const char *const bad_ends[] = {"-s3alias", "--ol-s3", ".mrap", "--x-s3", "--table-s3"};
    if (s.n < 3 || s.n > TARN_BUCKET_NAME_BYTES_MAX)
        return false;
    for (size_t i = 0; i < s.n; i++) {
        char ch = s.p[i];
        bool alnum = (ch >= 'a' && ch <= 'z') || (ch >= '0' && ch <= '9');
        if (!alnum && ch != '-' && ch != '.')
            return false;
        if (!alnum && (i == 0 || i + 1 == s.n))
            return false;
        if (ch == '.' && s.p[i - 1] == '.')
            return false;
    }
    for (size_t i = 0; i < TARN_ARRAY_LEN(bad_starts); i++)
        if (tarn_str_starts(s, bad_starts[i]))
            return false;
    for (size_t i = 0; i < TARN_ARRAY_LEN(bad_ends); i++)
        if (tarn_str_ends(s, bad_ends[i]))
            return false;
    return !looks_like_ip(s);
}

/* ------------------------------------------------------------------ ListBuckets */
typedef struct bucket_page {
    s3_ctx *c;
    s3_xml x;
    uint64_t max, count;
    bool all; /* the root sees every bucket, others their own */
    bool truncated;
    tarn_str last;
} bucket_page;

static bool on_bucket(void *ctx, const tarn_bucket_row *row)
{
    bucket_page *p = ctx;
    if (!p->all && !tarn_str_eq(row->owner, p->c->auth.identity.access_key))
        return true;
    if (p->count == p->max) {
        p->truncated = true;
        return false;
    }
    p->count++;
    s3_xml_open(&p->x, "Bucket");
    s3_xml_text(&p->x, "Name", row->name);
    s3_xml_time(&p->x, "CreationDate", row->created_ms);
    s3_xml_text(&p->x, "BucketRegion", p->c->s3->region);
    s3_xml_close(&p->x, "Bucket");
    if (p->count == p->max)
        p->last = tarn_arena_str(p->c->a, row->name);
    return !p->x.b.failed;
}

tarn_err s3_list_buckets(s3_ctx *c)
{
    bucket_page p = {.c = c, .max = S3_LIST_BUCKETS_MAX, .all = c->auth.identity.root};
    tarn_str max = s3_param(c, "max-buckets"), token = s3_param(c, "continuation-token"), prefix = s3_param(c, "prefix"),
             region = s3_param(c, "bucket-region"), after = TARN_STR_NULL;
    if (max.p != NULL && (!tarn_str_to_u64(max, &p.max) || p.max < 1 || p.max > S3_LIST_BUCKETS_MAX))
        return s3_bad_argument(c, "Argument max-buckets must be an integer between 1 and 10000", "max-buckets", max);
    if (token.n > 0) {
        uint8_t raw[128];
        size_t n;
        if (!tarn_base64url_decode(token, raw, sizeof raw, &n))
            return s3_bad_argument(c, "The continuation token provided is incorrect", "continuation-token", token);
        after = tarn_arena_str(c->a, (tarn_str){(const char *)raw, n});
    }
    s3_xml_begin(&p.x, "ListAllMyBucketsResult");
    s3_owner(&p.x, "Owner", c->auth.identity.canonical_id);
    s3_xml_open(&p.x, "Buckets");
    tarn_err e = TARN_OK;
    if (region.n == 0 || tarn_str_eq(region, c->s3->region))
        e = tarn_meta_bucket_list(c->s3->meta, NULL, after, prefix, false, on_bucket, &p);
    s3_xml_close(&p.x, "Buckets");
    if (prefix.n > 0)
        s3_xml_text(&p.x, "Prefix", prefix);
    if (p.truncated) {
        char text[128];
        tarn_sb b;
        tarn_sb_init_fixed(&b, text, sizeof text);
        tarn_sb_base64url(&b, p.last.p, p.last.n);
        s3_xml_text(&p.x, "ContinuationToken", tarn_sb_view(&b));
    }
    s3_xml_close(&p.x, "ListAllMyBucketsResult");
    if (e != TARN_OK) {
        tarn_sb_free(&p.x.b);
        return e;
    }
    return s3_xml_send(c, &p.x, 200);
}

/* ------------------------------------------------------------------ CreateBucket */
typedef struct create_args {
    tarn_bucket_row row;
    tarn_str location;
    tarn_str tags; /* packed */
} create_args;

static tarn_err create_tx(tarn_meta_tx *tx, void *arg)
{
    create_args *a = arg;
    a->row.created_ms = tarn_meta_tx_now_ms(tx);
    tarn_err e = tarn_meta_bucket_create(tx, &a->row);
    if (e == TARN_OK && a->location.n > 0)
        e = tarn_meta_bucket_config_put(tx, a->row.id, TARN_BC_LOCATION, a->location);
    if (e == TARN_OK && a->tags.n > 0)
        e = tarn_meta_bucket_config_put(tx, a->row.id, TARN_BC_TAGGING, a->tags);
    return e;
}

/* <Tags> of the configuration. */
static tarn_err read_tags(s3_ctx *c, const s3_node *root, tarn_str *packed)
{
    const s3_node *list = s3_node_child(root, "Tags");
    tarn_pair *tags;
    size_t n;
    if (list == NULL || list->first == NULL)
        return TARN_OK;
    tarn_err e = s3_tags_of_set(list, c->a, &tags, &n);
    if (e == TARN_OK)
        e = s3_tags_check(c, tags, n, S3_BUCKET_TAGS_MAX);
    return e == TARN_OK ? tarn_tags_pack(tags, n, c->a, packed) : e;
}

static tarn_err read_configuration(s3_ctx *c, tarn_str *location, tarn_str *tags)
{
    tarn_str body;
    *location = *tags = TARN_STR_NULL;
    tarn_err e = s3_read_body(c, S3_XML_BODY_BYTES_MAX, &body);
    if (e != TARN_OK)
        return e;
    if (tarn_str_trim(body).n == 0)
        return TARN_OK;
    s3_node *root;
    e = s3_xml_parse(body, c->a, &root);
    if (e != TARN_OK)
        return e;
    if (!tarn_str_eqc(root->name, "CreateBucketConfiguration"))
        return TARN_E_MALFORMED_XML;
    tarn_str v = s3_node_text(root, "LocationConstraint");
    if (v.n > 0 && c->s3->region.n > 0 && !tarn_str_eq(v, c->s3->region)) {
        tarn_err_detail_add(&c->detail, "LocationConstraint", v);
        return TARN_E_INVALID_LOCATION_CONSTRAINT;
    }
    *location = v;
    return read_tags(c, root, tags);
}

/* Canned ACLs that a bucket with enforced ownership can have; others ask for what the policy does. */
static tarn_err check_bucket_acl_header(s3_ctx *c)
{
    const tarn_auth_view *v = tarn_req_view(c->r);
    for (size_t i = 0; i < v->headers_n; i++)
        if (tarn_str_istarts(v->headers[i].name, "x-amz-grant-"))
            return TARN_E_BUCKET_ACL_WITH_OWNERSHIP;
    tarn_err e = s3_check_canned_acl(c, tarn_req_header(c->r, "x-amz-acl"));
    return e == TARN_E_ACL_NOT_SUPPORTED ? TARN_E_BUCKET_ACL_WITH_OWNERSHIP : e;
}

static tarn_err check_ownership_header(s3_ctx *c)
{
    tarn_str v = tarn_req_header(c->r, "x-amz-object-ownership");
    if (v.p == NULL || tarn_str_eqc(v, "BucketOwnerEnforced"))
        return TARN_OK;
    if (tarn_str_eqc(v, "BucketOwnerPreferred") || tarn_str_eqc(v, "ObjectWriter"))
        return s3_fail(c, TARN_E_NOT_IMPLEMENTED, "Only BucketOwnerEnforced is implemented: access is given by policies, not by ACLs.");
    tarn_str message = tarn_arena_fmt(c->a, "Invalid x-amz-object-ownership header: %.*s", TARN_STR_ARG(v));
    return s3_bad_argument(c, message.p != NULL ? message.p : "", "x-amz-object-ownership", v);
}

static tarn_err bucket_taken(s3_ctx *c)
{
    tarn_bucket_row there;
    tarn_err e = tarn_meta_bucket_get(c->s3->meta, NULL, c->bucket_name, c->a, &there);
    if (e != TARN_OK)
        return e == TARN_E_NO_SUCH_BUCKET ? TARN_E_CONFLICT : e;
    return s3_is_owner(c, &there) ? TARN_E_BUCKET_ALREADY_OWNED : TARN_E_BUCKET_ALREADY_EXISTS;
}

tarn_err s3_create_bucket(s3_ctx *c)
{
    create_args a = {0};
    if (!tarn_bucket_name_valid(c->bucket_name))
        return TARN_E_INVALID_BUCKET_NAME;
    if (c->auth.identity.anonymous)
        return TARN_E_ACCESS_DENIED;
    tarn_str lock = tarn_req_header(c->r, "x-amz-bucket-object-lock-enabled");
    if (lock.p != NULL && !tarn_str_ieqc(lock, "true") && !tarn_str_ieqc(lock, "false"))
        return s3_bad_argument(c, "Invalid value for x-amz-bucket-object-lock-enabled", "x-amz-bucket-object-lock-enabled", lock);
    tarn_err e = check_ownership_header(c);
    if (e == TARN_OK)
        e = check_bucket_acl_header(c);
    if (e == TARN_OK)
        e = read_configuration(c, &a.location, &a.tags);
    if (e != TARN_OK)
        return e;
    a.row.name = c->bucket_name;
    a.row.owner = c->auth.identity.access_key;
    a.row.object_lock = tarn_str_ieqc(lock, "true");
    a.row.versioning = a.row.object_lock ? TARN_VERSIONING_ENABLED : TARN_VERSIONING_OFF;
    e = tarn_meta_commit(c->s3->meta, create_tx, &a);
    if (e == TARN_E_BUCKET_ALREADY_EXISTS)
        return bucket_taken(c);
    if (e != TARN_OK)
        return e;
    tarn_resp_header(c->r, "x-amz-bucket-arn", tarn_arena_fmt(c->a, "arn:aws:s3:::%.*s", TARN_STR_ARG(c->bucket_name)));
    tarn_resp_header(c->r, "Location", tarn_arena_fmt(c->a, "/%.*s", TARN_STR_ARG(c->bucket_name)));
    return s3_send_empty(c, 200);
}

/* ------------------------------------------------------------------ the rest */
tarn_err s3_head_bucket(s3_ctx *c)
{
    tarn_resp_header(c->r, "x-amz-bucket-region", c->s3->region);
    tarn_resp_headerc(c->r, "x-amz-access-point-alias", "false");
    tarn_resp_headerc(c->r, "Content-Type", "application/xml");
    return s3_send_empty(c, 200);
}

static tarn_err delete_tx(tarn_meta_tx *tx, void *arg)
{
    return tarn_meta_bucket_delete(tx, *(const uint64_t *)arg);
}

typedef struct upload_batch {
    tarn_arena *a;
    struct {
        tarn_str key;
        uint64_t id, nonce;
    } found[DROP_UPLOADS_MAX];
    size_t n;
} upload_batch;

static bool on_upload(void *ctx, const tarn_upload_row *row)
{
    upload_batch *u = ctx;
    tarn_str key = tarn_arena_str(u->a, row->key);
    if (key.p == NULL)
        return false;
    u->found[u->n].key = key;
    u->found[u->n].id = row->upload_id;
    u->found[u->n].nonce = row->nonce;
    return ++u->n < DROP_UPLOADS_MAX;
}

static bool any_version(void *ctx, const tarn_version_row *row)
{
    (void)row;
    *(bool *)ctx = true;
    return false;
}

/* Uploads that were never completed don't keep a bucket that has nothing else: they are aborted. *dropped: some were. */
static tarn_err drop_uploads(s3_ctx *c, bool *dropped)
{
    bool used = false;
    tarn_list_query q = {.bucket_id = c->bucket.id, .versions = true};
    tarn_list_sink sink = {.on_version = any_version, .ctx = &used};
    upload_batch *u = TARN_ARENA_NEW(c->a, upload_batch);
    *dropped = false;
    if (u == NULL)
        return TARN_E_NO_MEMORY;
    u->a = c->a;
    tarn_err e = tarn_meta_list(c->s3->meta, &q, &sink);
    while (e == TARN_OK && !used) {
        u->n = 0;
        e = tarn_meta_upload_list(c->s3->meta, c->bucket.id, TARN_STR(""), TARN_STR(""), 0, on_upload, u);
        if (e != TARN_OK || u->n == 0)
            break;
        for (size_t i = 0; i < u->n && e == TARN_OK; i++)
            e = tarn_upload_abort(c->s3->store, &c->bucket, u->found[i].key, u->found[i].id, u->found[i].nonce);
        e = e == TARN_E_NO_SUCH_UPLOAD ? TARN_OK : e; /* somebody else did */
        *dropped = true;
    }
    return e;
}

tarn_err s3_delete_bucket(s3_ctx *c)
{
    uint64_t id = c->bucket.id;
    bool dropped;
    tarn_err e = tarn_meta_commit(c->s3->meta, delete_tx, &id);
    if (e == TARN_E_BUCKET_NOT_EMPTY && drop_uploads(c, &dropped) == TARN_OK && dropped)
        e = tarn_meta_commit(c->s3->meta, delete_tx, &id);
    return e == TARN_OK ? s3_send_empty(c, 204) : e;
}

tarn_err s3_get_location(s3_ctx *c)
{
    s3_xml x;
    tarn_sb_init(&x.b, S3_ANSWER_BYTES_MAX);
    tarn_sb_cstr(&x.b, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<LocationConstraint xmlns=\"" S3_XMLNS "\">");
    if (!tarn_str_eqc(c->s3->region, "us-east-1")) /* S3 says nothing for its first region */
        s3_xml_escape(&x.b, c->s3->region);
    s3_xml_close(&x, "LocationConstraint");
    return s3_xml_send(c, &x, 200);
}

tarn_err s3_get_versioning(s3_ctx *c)
{
    s3_xml x;
    s3_xml_begin(&x, "VersioningConfiguration");
    if (c->bucket.versioning != TARN_VERSIONING_OFF)
        s3_xml_textc(&x, "Status", c->bucket.versioning == TARN_VERSIONING_ENABLED ? "Enabled" : "Suspended");
    s3_xml_close(&x, "VersioningConfiguration");
    return s3_xml_send(c, &x, 200);
}

typedef struct versioning_args {
    uint64_t bucket_id;
    tarn_versioning to;
} versioning_args;

static tarn_err versioning_tx(tarn_meta_tx *tx, void *arg)
{
    const versioning_args *a = arg;
    tarn_bucket_row row;
    tarn_err e = tarn_meta_bucket_get_id(NULL, tx, a->bucket_id, tarn_meta_tx_arena(tx), &row);
    if (e != TARN_OK)
        return e;
    if (a->to == TARN_VERSIONING_SUSPENDED && (row.object_lock || row.warehouse))
        return TARN_E_INVALID_BUCKET_STATE;
    row.versioning = a->to;
    return tarn_meta_bucket_update(tx, &row);
}

tarn_err s3_put_versioning(s3_ctx *c)
{
    s3_node *root;
    versioning_args a = {.bucket_id = c->bucket.id};
    tarn_err e = s3_read_xml(c, "VersioningConfiguration", &root);
    if (e != TARN_OK)
        return e;
    tarn_str status = s3_node_text(root, "Status");
    tarn_str mfa = s3_node_text(root, "MfaDelete");
    if (mfa.n > 0 && !tarn_str_eqc(mfa, "Disabled"))
        return s3_fail(c, TARN_E_NOT_IMPLEMENTED, "MFA delete is not implemented.");
    if (tarn_str_eqc(status, "Enabled"))
        a.to = TARN_VERSIONING_ENABLED;
    else if (tarn_str_eqc(status, "Suspended"))
        a.to = TARN_VERSIONING_SUSPENDED;
    else
        return status.p == NULL ? TARN_E_ILLEGAL_VERSIONING : TARN_E_MALFORMED_XML;
    e = tarn_meta_commit(c->s3->meta, versioning_tx, &a);
    if (e == TARN_E_INVALID_BUCKET_STATE)
        return s3_fail(c, e, "An Object Lock configuration is present on this bucket, so the versioning state cannot be changed.");
    return e == TARN_OK ? s3_send_empty(c, 200) : e;
}
