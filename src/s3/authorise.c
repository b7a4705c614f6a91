/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Policy decisions for S3 requests. Condition keys come from the server alone, or from the very parameter or header that
 * they stand for; a client can't set one by naming a header after it.
 */
#include "s3_internal.h"

tarn_err s3_load_bucket(s3_ctx *c, tarn_str name, tarn_bucket_row *bucket, s3_facts **facts)
{
    tarn_err e = tarn_meta_bucket_get(c->s3->meta, NULL, name, c->a, bucket);
    return e == TARN_OK ? s3_facts_get(c->s3, bucket, facts) : e;
}

bool s3_is_owner(const s3_ctx *c, const tarn_bucket_row *bucket)
{
    return !c->auth.identity.anonymous && bucket != NULL &&
           (c->auth.identity.root || tarn_str_eq(c->auth.identity.access_key, bucket->owner));
}

tarn_err s3_check_expected_owner(s3_ctx *c, const char *header, const tarn_bucket_row *b)
{
    tarn_str want = tarn_req_header(c->r, header);
    if (want.p == NULL || tarn_str_eq(want, b->owner) || tarn_str_eq(want, s3_canonical_id(c, b->owner)))
        return TARN_OK;
    return TARN_E_ACCESS_DENIED;
}

typedef struct condition_list {
    tarn_pair p[S3_POLICY_CONDITIONS_MAX];
    size_t n;
} condition_list;

static void add(condition_list *l, const char *name, tarn_str value)
{
    if (value.p != NULL && l->n < S3_POLICY_CONDITIONS_MAX)
        l->p[l->n++] = (tarn_pair){tarn_str_of(name), value};
}

static void add_header(s3_ctx *c, condition_list *l, const char *condition, const char *header)
{
    add(l, condition, tarn_req_header(c->r, header));
}

static void add_param(s3_ctx *c, condition_list *l, const char *condition, const char *param)
{
    const tarn_param *p = tarn_req_param(c->r, param);
    if (p != NULL)
        add(l, condition, p->value.p != NULL ? p->value : TARN_STR(""));
}

static tarn_str peer_ip(s3_ctx *c)
{
    tarn_sb b;
    char mem[80];
    tarn_sb_init_fixed(&b, mem, sizeof mem);
    tarn_addr_format(tarn_req_peer(c->r), &b);
    tarn_str text = tarn_sb_view(&b);
    ptrdiff_t colon = tarn_str_rchr(text, ':');
    if (colon > 0)
        text = tarn_str_sub(text, 0, (size_t)colon);
    if (tarn_str_starts(text, "[") && tarn_str_ends(text, "]"))
        text = tarn_str_sub(text, 1, text.n - 2);
    if (tarn_str_istarts(text, "::ffff:"))
        text = tarn_str_sub(text, 7, text.n);
    return tarn_arena_str(c->a, text);
}

/* Who asks, from where, when, how. */
static void collect_general(s3_ctx *c, condition_list *l)
{
    tarn_sb b;
    char now[32];
    add(l, "aws:sourceip", peer_ip(c));
    add(l, "aws:securetransport", tarn_req_tls(c->r) ? TARN_STR("true") : TARN_STR("false"));
    add_header(c, l, "aws:useragent", "user-agent");
    add_header(c, l, "aws:referer", "referer");
    tarn_sb_init_fixed(&b, now, sizeof now);
    tarn_sb_iso8601_s(&b, tarn_req_time_ms(c->r));
    add(l, "aws:currenttime", tarn_arena_str(c->a, tarn_sb_view(&b)));
    add(l, "aws:epochtime", tarn_arena_fmt(c->a, "%lld", (long long)(tarn_req_time_ms(c->r) / 1000)));
    add(l, "s3:authtype",
        c->auth.mode == TARN_AUTH_V4_HEADER   ? TARN_STR("REST-HEADER")
        : c->auth.mode == TARN_AUTH_POST_FORM ? TARN_STR("POST")
        : c->auth.mode == TARN_AUTH_ANONYMOUS ? TARN_STR_NULL
                                              : TARN_STR("REST-QUERY-STRING"));
    add(l, "s3:signatureversion",
        c->auth.mode == TARN_AUTH_V2_QUERY    ? TARN_STR("AWS")
        : c->auth.mode == TARN_AUTH_ANONYMOUS ? TARN_STR_NULL
                                              : TARN_STR("AWS4-HMAC-SHA256"));
    if (c->auth.signed_ms > 0)
        add(l, "s3:signatureage", tarn_arena_fmt(c->a, "%lld", (long long)(tarn_req_time_ms(c->r) - c->auth.signed_ms)));
}

/* Parameters and headers that have a condition key of their own. */
static void collect_named(s3_ctx *c, condition_list *l)
{
    static const char *const params[][2] = {
        {"s3:prefix", "prefix"}, {"s3:delimiter", "delimiter"}, {"s3:max-keys", "max-keys"}, {"s3:versionid", "versionId"}};
    static const char *const headers[][2] = {
        {"s3:x-amz-acl", "x-amz-acl"},
        {"s3:x-amz-grant-full-control", "x-amz-grant-full-control"},
        {"s3:x-amz-grant-read", "x-amz-grant-read"},
        {"s3:x-amz-grant-read-acp", "x-amz-grant-read-acp"},
        {"s3:x-amz-grant-write", "x-amz-grant-write"},
        {"s3:x-amz-grant-write-acp", "x-amz-grant-write-acp"},
        {"s3:x-amz-copy-source", "x-amz-copy-source"},
        {"s3:x-amz-metadata-directive", "x-amz-metadata-directive"},
        {"s3:x-amz-server-side-encryption", "x-amz-server-side-encryption"},
        {"s3:x-amz-server-side-encryption-aws-kms-key-id", "x-amz-server-side-encryption-aws-kms-key-id"},
        {"s3:x-amz-server-side-encryption-customer-algorithm", "x-amz-server-side-encryption-customer-algorithm"},
        {"s3:x-amz-storage-class", "x-amz-storage-class"},
        {"s3:x-amz-website-redirect-location", "x-amz-website-redirect-location"},
        {"s3:x-amz-object-ownership", "x-amz-object-ownership"},
        {"s3:x-amz-content-sha256", "x-amz-content-sha256"},
        {"s3:object-lock-mode", "x-amz-object-lock-mode"},
        {"s3:object-lock-retain-until-date", "x-amz-object-lock-retain-until-date"},
        {"s3:object-lock-legal-hold", "x-amz-object-lock-legal-hold"},
        {"s3:if-match", "if-match"},
        {"s3:if-none-match", "if-none-match"},
    };
    for (size_t i = 0; i < TARN_ARRAY_LEN(params); i++)
        add_param(c, l, params[i][0], params[i][1]);
    for (size_t i = 0; i < TARN_ARRAY_LEN(headers); i++)
        add_header(c, l, headers[i][0], headers[i][1]);
}

static void add_tags(s3_ctx *c, condition_list *l, const char *family, const tarn_pair *tags, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        tarn_str name = tarn_arena_fmt(c->a, "%s%.*s", family, TARN_STR_ARG(tags[i].name));
        if (name.p != NULL && l->n < S3_POLICY_CONDITIONS_MAX)
            l->p[l->n++] = (tarn_pair){name, tags[i].value.p != NULL ? tags[i].value : TARN_STR("")};
    }
}

/* The tags of the object that is there, where the policy asks for them. None: it is absent, or has none. */
static tarn_err collect_existing_tags(s3_ctx *c, condition_list *l, const s3_ask *q)
{
    tarn_version_row row;
    tarn_pair *tags;
    size_t n;
    if (!q->facts->existing_tags || q->key.n == 0)
        return TARN_OK;
    tarn_err e = tarn_object_stat(c->s3->store, q->bucket, q->key, q->ref, c->a, &row);
    if (e == TARN_E_NO_SUCH_KEY || e == TARN_E_NO_SUCH_VERSION || (e == TARN_OK && row.tags.n == 0))
        return TARN_OK;
    if (e == TARN_OK)
        e = tarn_tags_unpack(row.tags, c->a, &tags, &n);
    if (e == TARN_OK)
        add_tags(c, l, "s3:ExistingObjectTag/", tags, n);
    return e;
}

/* The tags that the request brings. */
static void collect_request_tags(s3_ctx *c, condition_list *l)
{
    tarn_pair mem[TARN_OBJECT_TAGS_MAX + 1];
    const tarn_pair *tags = c->request_tags;
    size_t n = c->request_tags_n;
    tarn_str header = tarn_req_header(c->r, "x-amz-tagging");
    if (tags == NULL) {
        if (header.p == NULL || !s3_tags_split(c->a, header, mem, &n))
            return;
        tags = mem;
    }
    if (n > TARN_OBJECT_TAGS_MAX) /* the handler refuses as many */
        return;
    add_tags(c, l, "s3:RequestObjectTag/", tags, n);
    for (size_t i = 0; i < n; i++)
        add(l, "s3:requestobjecttagkeys", tags[i].name);
}

static bool repairs_policy(const s3_ctx *c, const s3_ask *q)
{
    tarn_str a = tarn_str_of(q->action);
    return s3_is_owner(c, q->bucket) &&
           (tarn_str_eqc(a, "s3:GetBucketPolicy") || tarn_str_eqc(a, "s3:PutBucketPolicy") || tarn_str_eqc(a, "s3:DeleteBucketPolicy"));
}

tarn_err s3_authorise(s3_ctx *c, const s3_ask *q)
{
    const s3_facts *f = q->facts;
    const tarn_policy *policy = f != NULL ? f->policy : NULL;
    condition_list l = {.n = 0};
    tarn_err e = TARN_OK;
    if (f != NULL && f->unreadable)
        return repairs_policy(c, q) ? TARN_OK : TARN_E_FORMAT;
    /* The common case, root on a bucket without a policy, needs no conditions. */
    if (policy == NULL && c->auth.identity.root)
        return TARN_OK;
    collect_general(c, &l);
    collect_named(c, &l);
    if (f != NULL && f->request_tags)
        collect_request_tags(c, &l);
    if (f != NULL)
        e = collect_existing_tags(c, &l, q);
    if (e != TARN_OK)
        return e;
    tarn_policy_request r = {.action = q->action,
                             .identity = &c->auth.identity,
                             .conditions = l.p,
                             .conditions_n = l.n,
                             .owner = q->bucket != NULL && s3_is_owner(c, q->bucket)};
    tarn_str name = q->bucket != NULL ? q->bucket->name : c->bucket_name;
    r.resource = q->key.n > 0 ? tarn_arena_fmt(c->a, "arn:aws:s3:::%.*s/%.*s", TARN_STR_ARG(name), TARN_STR_ARG(q->key))
                              : tarn_arena_fmt(c->a, "arn:aws:s3:::%.*s", TARN_STR_ARG(name));
    if (r.resource.p == NULL)
        return TARN_E_NO_MEMORY;
    /* RestrictPublicBuckets: what a public policy allows counts for the owner alone; what it denies counts for all. */
    if (f != NULL && f->restrict_public && f->policy_public && !r.owner) {
        if (tarn_policy_eval(policy, &r) == TARN_DECISION_DENY)
            return TARN_E_ACCESS_DENIED;
        policy = NULL;
    }
    return tarn_authorise(policy, &r);
}

tarn_err s3_may(s3_ctx *c, const char *action)
{
    s3_ask q = {.action = action, .key = c->key};
    if (c->bucket_loaded) {
        q.bucket = &c->bucket;
        q.facts = c->facts;
    }
    tarn_str version = s3_param(c, "versionId");
    if (!tarn_version_parse(version.p != NULL ? version : TARN_STR(""), &q.ref))
        q.ref = (tarn_version_ref){.sel = TARN_VERSION_CURRENT}; /* the handler refuses it */
    return s3_authorise(c, &q);
}

tarn_err s3_may_on(s3_ctx *c, const char *action, tarn_str key)
{
    s3_ask q = {.action = action, .bucket = &c->bucket, .facts = c->facts, .key = key};
    return s3_authorise(c, &q);
}

/* With ?versionId= S3 asks for another action. */
static const char *const versioned_actions[][2] = {
    {"s3:GetObject", "s3:GetObjectVersion"},
    {"s3:DeleteObject", "s3:DeleteObjectVersion"},
    {"s3:GetObjectTagging", "s3:GetObjectVersionTagging"},
    {"s3:PutObjectTagging", "s3:PutObjectVersionTagging"},
    {"s3:DeleteObjectTagging", "s3:DeleteObjectVersionTagging"},
    {"s3:GetObjectAcl", "s3:GetObjectVersionAcl"},
    {"s3:PutObjectAcl", "s3:PutObjectVersionAcl"},
    {"s3:GetObjectAttributes", "s3:GetObjectVersionAttributes"},
};

tarn_err s3_may_route(s3_ctx *c)
{
    const char *action = c->route->action;
    if (c->route->resource == S3_ON_OBJECT && s3_has_param(c, "versionId"))
        for (size_t i = 0; i < TARN_ARRAY_LEN(versioned_actions); i++)
            if (tarn_str_eqc(tarn_str_of(action), versioned_actions[i][0]))
                return s3_may(c, versioned_actions[i][1]);
    return s3_may(c, action);
}

tarn_err s3_hide_absent(s3_ctx *c, tarn_err e, const tarn_bucket_row *bucket, const s3_facts *facts)
{
    s3_ask q = {.action = "s3:ListBucket", .bucket = bucket, .facts = facts};
    if (e != TARN_E_NO_SUCH_KEY)
        return e;
    return s3_authorise(c, &q) == TARN_OK ? e : TARN_E_ACCESS_DENIED;
}
