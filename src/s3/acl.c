/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ACLs of buckets and objects whose owner is enforced: the answer is always "the owner has full control", and only an ACL
 * that says just that is taken. Access for others is a matter of the bucket policy.
 */
#include "s3_internal.h"

/* The object must be there. */
static tarn_err check_object(s3_ctx *c)
{
    tarn_version_ref ref;
    tarn_version_row row = {0};
    if (c->key.n == 0)
        return TARN_OK;
    tarn_err e = s3_version_param(c, &ref);
    if (e == TARN_OK)
        e = tarn_object_stat(c->s3->store, &c->bucket, c->key, ref, c->a, &row);
    if (e == TARN_OK && row.delete_marker)
        e = TARN_E_METHOD_NOT_ALLOWED;
    if (e == TARN_OK)
        s3_version_header(c, &row);
    return e;
}

tarn_err s3_check_canned_acl(s3_ctx *c, tarn_str acl)
{
    static const char *const known[] = {"public-read",   "public-read-write",  "authenticated-read",
                                        "aws-exec-read", "log-delivery-write", "bucket-owner-read"};
    if (acl.p == NULL || tarn_str_eqc(acl, "private") || tarn_str_eqc(acl, "bucket-owner-full-control"))
        return TARN_OK;
    for (size_t i = 0; i < TARN_ARRAY_LEN(known); i++)
        if (tarn_str_eqc(acl, known[i]))
            return TARN_E_ACL_NOT_SUPPORTED;
    return s3_bad_argument(c, "", "x-amz-acl", acl);
}

tarn_err s3_get_acl(s3_ctx *c)
{
    tarn_err e = check_object(c);
    if (e != TARN_OK)
        return e;
    tarn_str id = s3_canonical_id(c, c->bucket.owner);
    s3_xml x;
    s3_xml_begin(&x, "AccessControlPolicy");
    s3_owner(&x, "Owner", id);
    s3_xml_open(&x, "AccessControlList");
    s3_xml_open(&x, "Grant");
    tarn_sb_cstr(&x.b, "<Grantee xmlns:xsi=\"http://www.w3.org/2001/XMLSchema-instance\" xsi:type=\"CanonicalUser\">");
    s3_xml_text(&x, "ID", id);
    s3_xml_textc(&x, "DisplayName", "tarn");
    s3_xml_close(&x, "Grantee");
    s3_xml_textc(&x, "Permission", "FULL_CONTROL");
    s3_xml_close(&x, "Grant");
    s3_xml_close(&x, "AccessControlList");
    s3_xml_close(&x, "AccessControlPolicy");
    return s3_xml_send(c, &x, 200);
}

/* Only grants of full control to the owner. */
static bool says_owner_only(const s3_node *root, tarn_str owner_id)
{
    const s3_node *list = s3_node_child(root, "AccessControlList");
    for (const s3_node *g = list != NULL ? list->first : NULL; g != NULL; g = g->next) {
        const s3_node *grantee = s3_node_child(g, "Grantee");
        if (!tarn_str_eqc(g->name, "Grant") || !tarn_str_eqc(s3_node_text(g, "Permission"), "FULL_CONTROL") ||
            !tarn_str_eq(s3_node_text(grantee, "ID"), owner_id))
            return false;
    }
    return list != NULL;
}

tarn_err s3_put_acl(s3_ctx *c)
{
    static const char *const grants[] = {"x-amz-grant-full-control", "x-amz-grant-read", "x-amz-grant-read-acp", "x-amz-grant-write",
                                         "x-amz-grant-write-acp"};
    tarn_str canned = tarn_req_header(c->r, "x-amz-acl"), body;
    tarn_err e = check_object(c);
    if (e == TARN_OK)
        e = s3_read_body(c, S3_XML_BODY_BYTES_MAX, &body);
    if (e != TARN_OK)
        return e;
    for (size_t i = 0; i < TARN_ARRAY_LEN(grants); i++)
        if (tarn_req_header(c->r, grants[i]).p != NULL)
            return TARN_E_ACL_NOT_SUPPORTED;
    if (canned.p != NULL) {
        e = s3_check_canned_acl(c, canned);
        return e == TARN_OK ? s3_send_empty(c, 200) : e;
    }
    if (body.n == 0)
        return s3_fail(c, TARN_E_MISSING_SECURITY_HEADER, "Your request was missing a required header: x-amz-acl");
    s3_node *root;
    e = s3_xml_parse(body, c->a, &root);
    if (e == TARN_OK && !tarn_str_eqc(root->name, "AccessControlPolicy"))
        e = TARN_E_MALFORMED_XML;
    if (e != TARN_OK)
        return e;
    return says_owner_only(root, s3_canonical_id(c, c->bucket.owner)) ? s3_send_empty(c, 200) : TARN_E_ACL_NOT_SUPPORTED;
}
