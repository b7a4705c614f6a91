/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bucket configurations: lifecycle (lifecycle_rules.c), and those that are kept as they came: CORS, ownership, public
 * access block. Sub-resources that tarn does not have answer as a bucket of S3 does on which they were never configured.
 */
#include "lifecycle.h"

typedef struct config_args {
    uint64_t bucket_id;
    tarn_bucket_config kind;
    tarn_str body; /* p == NULL: delete */
} config_args;

static tarn_err config_tx(tarn_meta_tx *tx, void *arg)
{
    const config_args *a = arg;
    if (a->body.p == NULL)
        return tarn_meta_bucket_config_delete(tx, a->bucket_id, a->kind);
    return tarn_meta_bucket_config_put(tx, a->bucket_id, a->kind, a->body);
}

static tarn_err store(s3_ctx *c, tarn_bucket_config kind, tarn_str body, int status)
{
    config_args a = {.bucket_id = c->bucket.id, .kind = kind, .body = body};
    tarn_err e = tarn_meta_commit(c->s3->meta, config_tx, &a);
    return e == TARN_OK ? s3_send_empty(c, status) : e;
}

static tarn_err send_stored(s3_ctx *c, tarn_bucket_config kind, tarn_err absent)
{
    tarn_str body;
    tarn_err e = tarn_meta_bucket_config_get(c->s3->meta, NULL, c->bucket.id, kind, c->a, &body);
    if (e == TARN_E_NOT_FOUND)
        return absent;
    if (e != TARN_OK)
        return e;
    tarn_resp_headerc(c->r, "Content-Type", "application/xml");
    return tarn_resp_send(c->r, 200, body);
}

/* ------------------------------------------------------------------ lifecycle */
tarn_err s3_get_lifecycle(s3_ctx *c)
{
    return send_stored(c, TARN_BC_LIFECYCLE, TARN_E_NO_SUCH_LIFECYCLE);
}

tarn_err s3_put_lifecycle(s3_ctx *c)
{
    s3_node *root;
    lc_rule *rules;
    size_t n;
    tarn_err e = s3_read_xml(c, "LifecycleConfiguration", &root);
    if (e == TARN_OK)
        e = lc_parse(c, root, c->a, &rules, &n);
    if (e != TARN_OK)
        return e;
    s3_xml x;
    lc_write(&x, rules, n);
    e = x.b.failed ? TARN_E_NO_MEMORY : store(c, TARN_BC_LIFECYCLE, tarn_sb_view(&x.b), 200);
    tarn_sb_free(&x.b);
    return e;
}

tarn_err s3_delete_lifecycle(s3_ctx *c)
{
    return store(c, TARN_BC_LIFECYCLE, TARN_STR_NULL, 204);
}

/* ------------------------------------------------------------------ kept as they came */
static size_t stars(tarn_str s)
{
    size_t n = 0;
    for (size_t i = 0; i < s.n; i++)
        n += s.p[i] == '*' ? 1 : 0;
    return n;
}

/* One item of a CORS rule. */
static tarn_err check_cors_item(s3_ctx *c, const s3_node *k)
{
    tarn_str text = tarn_str_trim(k->text);
    const char *why = NULL;
    if (tarn_str_eqc(k->name, "AllowedMethod") && !s3_cors_method(text))
        why = "Found unsupported HTTP method in CORS config. Unsupported method is";
    else if (tarn_str_eqc(k->name, "AllowedOrigin") && stars(text) > 1)
        why = "AllowedOrigin can not have more than one wildcard";
    else if (tarn_str_eqc(k->name, "AllowedHeader") && stars(text) > 1)
        why = "AllowedHeader can not have more than one wildcard";
    else if (tarn_str_eqc(k->name, "ExposeHeader") && stars(text) > 0)
        why = "ExposeHeader can not have a wildcard";
    if (why == NULL)
        return TARN_OK;
    c->detail.message = tarn_arena_fmt(c->a, "%s: \"%.*s\"", why, TARN_STR_ARG(text));
    return TARN_E_INVALID_REQUEST;
}

static tarn_err check_cors(s3_ctx *c, const s3_node *root)
{
    size_t rules = s3_node_count(root, "CORSRule");
    if (rules == 0 || rules > 100)
        return TARN_E_MALFORMED_XML;
    for (const s3_node *r = root->first; r != NULL; r = r->next) {
        if (!tarn_str_eqc(r->name, "CORSRule") || s3_node_count(r, "AllowedOrigin") == 0 || s3_node_count(r, "AllowedMethod") == 0)
            return TARN_E_MALFORMED_XML;
        for (const s3_node *k = r->first; k != NULL; k = k->next) {
            tarn_err e = check_cors_item(c, k);
            if (e != TARN_OK)
                return e;
        }
    }
    return TARN_OK;
}

static tarn_err check_ownership(s3_ctx *c, const s3_node *root)
{
    tarn_str v = s3_node_text(s3_node_child(root, "Rule"), "ObjectOwnership");
    if (s3_node_count(root, "Rule") != 1 || v.n == 0)
        return TARN_E_MALFORMED_XML;
    if (tarn_str_eqc(v, "BucketOwnerPreferred") || tarn_str_eqc(v, "ObjectWriter"))
        return s3_fail(c, TARN_E_NOT_IMPLEMENTED, "Only BucketOwnerEnforced is implemented: access is given by policies, not by ACLs.");
    return tarn_str_eqc(v, "BucketOwnerEnforced") ? TARN_OK : TARN_E_MALFORMED_XML;
}

static tarn_err check_access_block(s3_ctx *c, const s3_node *root)
{
    (void)c;
    static const char *const names[] = {"BlockPublicAcls", "IgnorePublicAcls", "BlockPublicPolicy", "RestrictPublicBuckets"};
    for (const s3_node *k = root->first; k != NULL; k = k->next) {
        bool known = false;
        for (size_t i = 0; i < TARN_ARRAY_LEN(names) && !known; i++)
            known = tarn_str_eqc(k->name, names[i]);
        tarn_str v = tarn_str_trim(k->text);
        if (!known || (!tarn_str_ieqc(v, "true") && !tarn_str_ieqc(v, "false")))
            return TARN_E_MALFORMED_XML;
    }
    return TARN_OK;
}

typedef struct kept {
    const char *param;
    const char *root;
    tarn_bucket_config kind;
    tarn_err absent;                                   /* OK: `empty` is the answer */
    const char *empty;                                 /* content of the root element */
    tarn_err (*check)(s3_ctx *c, const s3_node *root); /* NULL: can't be put */
} kept;

static const kept kept_table[] = {
    {"cors", "CORSConfiguration", TARN_BC_CORS, TARN_E_NO_SUCH_CORS, NULL, check_cors},
    {"ownershipControls", "OwnershipControls", TARN_BC_OWNERSHIP, TARN_OK,
     "<Rule><ObjectOwnership>BucketOwnerEnforced</ObjectOwnership></Rule>", check_ownership},
    {"publicAccessBlock", "PublicAccessBlockConfiguration", TARN_BC_PUBLIC_ACCESS_BLOCK, TARN_E_NO_SUCH_PUBLIC_ACCESS_BLOCK, NULL,
     check_access_block},
    {"encryption", "ServerSideEncryptionConfiguration", TARN_BC_ENCRYPTION, TARN_E_NO_SUCH_ENCRYPTION, NULL, NULL},
    {"website", "WebsiteConfiguration", TARN_BC_WEBSITE, TARN_E_NO_SUCH_WEBSITE, NULL, NULL},
    {"replication", "ReplicationConfiguration", TARN_BC_REPLICATION, TARN_E_NO_SUCH_REPLICATION, NULL, NULL},
    {"notification", "NotificationConfiguration", TARN_BC_NOTIFICATION, TARN_OK, "", NULL},
    {"logging", "BucketLoggingStatus", TARN_BC_LOGGING, TARN_OK, "", NULL},
    {"accelerate", "AccelerateConfiguration", TARN_BC_ACCELERATE, TARN_OK, "", NULL},
    {"requestPayment", "RequestPaymentConfiguration", TARN_BC_REQUEST_PAYMENT, TARN_OK, "<Payer>BucketOwner</Payer>", NULL},
};

static const kept *kept_of(s3_ctx *c)
{
    for (size_t i = 0; i < TARN_ARRAY_LEN(kept_table); i++)
        if (tarn_str_eqc(tarn_str_of(c->route->query_key), kept_table[i].param))
            return &kept_table[i];
    TARN_ASSERT(false);
    return NULL;
}

tarn_err s3_get_config(s3_ctx *c)
{
    const kept *k = kept_of(c);
    tarn_err e = send_stored(c, k->kind, k->absent);
    if (e != TARN_OK || tarn_resp_started(c->r))
        return e;
    s3_xml x;
    s3_xml_begin(&x, k->root);
    tarn_sb_cstr(&x.b, k->empty);
    s3_xml_close(&x, k->root);
    return s3_xml_send(c, &x, 200);
}

tarn_err s3_put_config(s3_ctx *c)
{
    const kept *k = kept_of(c);
    s3_node *root;
    tarn_str body;
    tarn_err e = s3_read_body(c, 64 * 1024, &body);
    if (e == TARN_OK)
        e = s3_xml_parse(body, c->a, &root);
    if (e == TARN_OK && !tarn_str_eqc(root->name, k->root))
        e = TARN_E_MALFORMED_XML;
    if (e == TARN_OK)
        e = k->check(c, root);
    return e == TARN_OK ? store(c, k->kind, body, 200) : e;
}

tarn_err s3_delete_config(s3_ctx *c)
{
    return store(c, kept_of(c)->kind, TARN_STR_NULL, 204);
}
