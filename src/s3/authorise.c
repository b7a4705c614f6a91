/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Policy decisions for S3 requests. Condition keys come from the server alone, or from the very parameter or header that
 * they stand for; a client can't set one by naming a header after it.
 */
#include "s3_internal.h"

tarn_err s3_load_bucket(s3_ctx *c, tarn_str name, tarn_bucket_row *bucket, tarn_policy **policy)
{
    tarn_err e = tarn_meta_bucket_get(c->s3->meta, NULL, name, c->a, bucket);
    if (e != TARN_OK)
        return e;
    tarn_str json;
    e = tarn_meta_bucket_config_get(c->s3->meta, NULL, bucket->id, TARN_BC_POLICY, c->a, &json);
    if (e == TARN_E_NOT_FOUND) {
        *policy = NULL;
        return TARN_OK;
    }
    if (e != TARN_OK)
        return e;
    /* A stored policy that can't be read must not open the bucket: the error is the answer. */
    tarn_err_detail ignored = {0};
    e = tarn_policy_parse(TARN_POLICY_BUCKET, json, bucket->name, policy, c->a, &ignored);
    return e == TARN_OK || e == TARN_E_NO_MEMORY ? e : TARN_E_FORMAT;
}

bool s3_is_owner(const s3_ctx *c, const tarn_bucket_row *bucket)
{
    return !c->auth.identity.anonymous && bucket != NULL &&
           (c->auth.identity.root || tarn_str_eq(c->auth.identity.access_key, bucket->owner));
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

static void collect(s3_ctx *c, condition_list *l)
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
    if (!c->auth.identity.anonymous) {
        add(l, "aws:username", c->auth.identity.name);
        add(l, "aws:userid", c->auth.identity.access_key);
        add(l, "aws:principaltype", TARN_STR("User"));
    } else {
        add(l, "aws:principaltype", TARN_STR("Anonymous"));
    }
    add(l, "s3:authtype",
        c->auth.mode == TARN_AUTH_V4_HEADER   ? TARN_STR("REST-HEADER")
        : c->auth.mode == TARN_AUTH_POST_FORM ? TARN_STR("POST")
        : c->auth.mode == TARN_AUTH_ANONYMOUS ? TARN_STR_NULL
                                              : TARN_STR("REST-QUERY-STRING"));
    add(l, "s3:signatureversion",
        c->auth.mode == TARN_AUTH_V2_QUERY    ? TARN_STR("AWS")
        : c->auth.mode == TARN_AUTH_ANONYMOUS ? TARN_STR_NULL
                                              : TARN_STR("AWS4-HMAC-SHA256"));
    add_param(c, l, "s3:prefix", "prefix");
    add_param(c, l, "s3:delimiter", "delimiter");
    add_param(c, l, "s3:max-keys", "max-keys");
    add_param(c, l, "s3:versionid", "versionId");
    add_header(c, l, "s3:x-amz-acl", "x-amz-acl");
    add_header(c, l, "s3:x-amz-copy-source", "x-amz-copy-source");
    add_header(c, l, "s3:x-amz-metadata-directive", "x-amz-metadata-directive");
    add_header(c, l, "s3:x-amz-server-side-encryption", "x-amz-server-side-encryption");
    add_header(c, l, "s3:x-amz-server-side-encryption-aws-kms-key-id", "x-amz-server-side-encryption-aws-kms-key-id");
    add_header(c, l, "s3:x-amz-storage-class", "x-amz-storage-class");
    add_header(c, l, "s3:x-amz-content-sha256", "x-amz-content-sha256");
    add_header(c, l, "s3:object-lock-mode", "x-amz-object-lock-mode");
    add_header(c, l, "s3:object-lock-retain-until-date", "x-amz-object-lock-retain-until-date");
    add_header(c, l, "s3:object-lock-legal-hold", "x-amz-object-lock-legal-hold");
    add_header(c, l, "s3:if-match", "if-match");
    add_header(c, l, "s3:if-none-match", "if-none-match");
}

tarn_err s3_authorise(s3_ctx *c, const char *action, const tarn_bucket_row *bucket, const tarn_policy *policy, tarn_str key,
                      const tarn_pair *extra, size_t extra_n)
{
    /* The common case, root on a bucket without a policy, needs no conditions. */
    if (policy == NULL && c->auth.identity.root)
        return TARN_OK;
    condition_list l = {.n = 0};
    collect(c, &l);
    for (size_t i = 0; i < extra_n && l.n < S3_POLICY_CONDITIONS_MAX; i++)
        l.p[l.n++] = extra[i];
    tarn_policy_request q = {.action = action,
                             .identity = &c->auth.identity,
                             .conditions = l.p,
                             .conditions_n = l.n,
                             .owner = bucket != NULL && s3_is_owner(c, bucket)};
    tarn_str name = bucket != NULL ? bucket->name : c->bucket_name;
    q.resource = key.n > 0 ? tarn_arena_fmt(c->a, "arn:aws:s3:::%.*s/%.*s", TARN_STR_ARG(name), TARN_STR_ARG(key))
                           : tarn_arena_fmt(c->a, "arn:aws:s3:::%.*s", TARN_STR_ARG(name));
    if (q.resource.p == NULL)
        return TARN_E_NO_MEMORY;
    return tarn_authorise(policy, &q);
}

tarn_err s3_may(s3_ctx *c, const char *action)
{
    return s3_authorise(c, action, c->bucket_loaded ? &c->bucket : NULL, c->policy, c->key, NULL, 0);
}
