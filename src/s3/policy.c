/* SPDX-License-Identifier: Apache-2.0 */
/* Bucket policies: stored as they came, after the policy engine has understood them. How they are kept: facts.c. */
#include "s3_internal.h"

typedef struct policy_args {
    uint64_t bucket_id;
    tarn_str body; /* empty: delete */
} policy_args;

static tarn_err policy_tx(tarn_meta_tx *tx, void *arg)
{
    const policy_args *a = arg;
    if (a->body.n == 0)
        return tarn_meta_bucket_config_delete(tx, a->bucket_id, TARN_BC_POLICY);
    return tarn_meta_bucket_config_put(tx, a->bucket_id, TARN_BC_POLICY, a->body);
}

static tarn_err load(s3_ctx *c, tarn_str *body)
{
    tarn_err e = tarn_meta_bucket_config_get(c->s3->meta, NULL, c->bucket.id, TARN_BC_POLICY, c->a, body);
    return e == TARN_E_NOT_FOUND ? TARN_E_NO_SUCH_BUCKET_POLICY : e;
}

tarn_err s3_get_policy(s3_ctx *c)
{
    tarn_str body;
    tarn_err e = load(c, &body);
    if (e != TARN_OK)
        return e;
    tarn_resp_headerc(c->r, "Content-Type", "application/json");
    return tarn_resp_send(c->r, 200, body);
}

tarn_err s3_put_policy(s3_ctx *c)
{
    policy_args a = {.bucket_id = c->bucket.id};
    tarn_policy *p = NULL;
    tarn_err e = s3_read_body(c, TARN_POLICY_BYTES_MAX, &a.body);
    if (e == TARN_E_ENTITY_TOO_LARGE)
        return s3_fail(c, TARN_E_MALFORMED_POLICY, "Policy exceeds the maximum allowed document size.");
    if (e == TARN_OK && a.body.n == 0)
        return TARN_E_MALFORMED_POLICY;
    if (e == TARN_OK)
        e = tarn_policy_parse(TARN_POLICY_BUCKET, a.body, c->bucket.name, &p, c->a, &c->detail);
    if (e == TARN_OK && c->facts->block_public_policy && tarn_policy_is_public(p))
        e = s3_fail(c, TARN_E_ACCESS_DENIED, "The bucket's public access block (BlockPublicPolicy) does not allow a public policy.");
    tarn_policy_unref(p);
    if (e == TARN_OK)
        e = tarn_meta_commit(c->s3->meta, policy_tx, &a);
    return e == TARN_OK ? s3_send_empty(c, 204) : e;
}

tarn_err s3_delete_policy(s3_ctx *c)
{
    policy_args a = {.bucket_id = c->bucket.id};
    tarn_err e = tarn_meta_commit(c->s3->meta, policy_tx, &a);
    return e == TARN_OK ? s3_send_empty(c, 204) : e;
}

tarn_err s3_get_policy_status(s3_ctx *c)
{
    tarn_str body;
    tarn_err e = load(c, &body);
    if (e != TARN_OK)
        return e;
    s3_xml x;
    s3_xml_begin(&x, "PolicyStatus");
    s3_xml_textc(&x, "IsPublic", c->facts->policy_public ? "TRUE" : "FALSE");
    s3_xml_close(&x, "PolicyStatus");
    return s3_xml_send(c, &x, 200);
}
