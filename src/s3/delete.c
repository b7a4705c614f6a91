/* SPDX-License-Identifier: Apache-2.0 */
/* DeleteObject and DeleteObjects. A batch is one metadata transaction; each key is authorised on its own. */
#include "s3_internal.h"

/* Governance may be bypassed by who asks for it and may. */
static tarn_err bypass(s3_ctx *c, tarn_str key, bool *out)
{
    *out = false;
    if (!tarn_str_ieqc(tarn_req_header(c->r, "x-amz-bypass-governance-retention"), "true"))
        return TARN_OK;
    tarn_err e = s3_may_on(c, "s3:BypassGovernanceRetention", key);
    *out = e == TARN_OK;
    return e;
}

static void version_of(tarn_sb *b, char *mem, size_t mem_n, const tarn_version_row *row)
{
    tarn_sb_init_fixed(b, mem, mem_n);
    tarn_version_format(b, row);
}

tarn_err s3_delete_object(s3_ctx *c)
{
    tarn_delete_spec d = {.key = c->key};
    tarn_delete_result res = {0};
    tarn_err e = s3_version_param(c, &d.version);
    if (e != TARN_OK)
        return e;
    tarn_str match = tarn_req_header(c->r, "if-match");
    if (match.p != NULL && !s3_etag_strip(match, &d.if_match))
        return s3_bad_argument(c, "If-Match is empty", "If-Match", match);
    e = bypass(c, c->key, &d.bypass_governance);
    if (e == TARN_OK)
        e = tarn_object_delete(c->s3->store, &c->bucket, &d, 1, &res);
    if (e == TARN_OK)
        e = res.err;
    if (e == TARN_E_ACCESS_DENIED)
        return s3_fail(c, e, "Access Denied because object protected by object lock.");
    if (e != TARN_OK)
        return e;
    if (res.delete_marker)
        tarn_resp_headerc(c->r, "x-amz-delete-marker", "true");
    if (res.has_version)
        s3_version_header(c, &res.row);
    return s3_send_empty(c, 204);
}

/* ------------------------------------------------------------------ DeleteObjects */
typedef struct batch {
    size_t n;
    tarn_delete_spec *specs; /* those that go to the store */
    tarn_delete_result *results;
    size_t *place;      /* index in keys of each spec */
    tarn_str *keys;     /* as asked, in order */
    tarn_str *versions; /* texts */
    tarn_err *errs;     /* per key: refused before the store saw it */
    size_t specs_n;
    bool quiet;
} batch;

static tarn_err batch_new(s3_ctx *c, batch *b, size_t n)
{
    *b = (batch){.n = n};
    b->specs = TARN_ARENA_ARRAY(c->a, tarn_delete_spec, n);
    b->results = TARN_ARENA_ARRAY(c->a, tarn_delete_result, n);
    b->place = TARN_ARENA_ARRAY(c->a, size_t, n);
    b->keys = TARN_ARENA_ARRAY(c->a, tarn_str, n);
    b->versions = TARN_ARENA_ARRAY(c->a, tarn_str, n);
    b->errs = TARN_ARENA_ARRAY(c->a, tarn_err, n);
    bool ok = b->specs && b->results && b->place && b->keys && b->versions && b->errs;
    return ok ? TARN_OK : TARN_E_NO_MEMORY;
}

/* One <Object>: what the store should do, or why not. */
static tarn_err read_object(s3_ctx *c, const s3_node *o, tarn_delete_spec *d, tarn_str *version)
{
    const s3_node *key = s3_node_child(o, "Key");
    *version = s3_node_text(o, "VersionId");
    tarn_str etag = s3_node_text(o, "ETag");
    d->key = key->text;
    d->version = (tarn_version_ref){.sel = TARN_VERSION_CURRENT};
    if (d->key.n > TARN_KEY_BYTES_MAX)
        return TARN_E_KEY_TOO_LONG;
    if (version->n > 0 && !tarn_version_parse(*version, &d->version))
        return TARN_E_NO_SUCH_VERSION;
    if (etag.n > 0 && !s3_etag_strip(etag, &d->if_match))
        return TARN_E_INVALID_ARGUMENT;
    const char *action = version->n > 0 ? "s3:DeleteObjectVersion" : "s3:DeleteObject";
    s3_ask q = {.action = action, .bucket = &c->bucket, .facts = c->facts, .key = d->key, .ref = d->version};
    tarn_err e = s3_authorise(c, &q);
    return e == TARN_OK ? bypass(c, d->key, &d->bypass_governance) : e;
}

static tarn_err read_batch(s3_ctx *c, const s3_node *root, batch *b)
{
    size_t n = s3_node_count(root, "Object");
    if (n == 0 || n > S3_DELETE_KEYS_MAX)
        return TARN_E_MALFORMED_XML;
    tarn_err e = batch_new(c, b, n);
    if (e != TARN_OK)
        return e;
    b->quiet = tarn_str_ieqc(s3_node_text(root, "Quiet"), "true");
    size_t i = 0;
    for (const s3_node *o = root->first; o != NULL; o = o->next) {
        if (!tarn_str_eqc(o->name, "Object"))
            continue;
        const s3_node *key = s3_node_child(o, "Key");
        if (key == NULL || key->text.n == 0)
            return s3_fail(c, TARN_E_MALFORMED_XML, NULL);
        tarn_delete_spec d = {0};
        b->keys[i] = key->text;
        b->errs[i] = read_object(c, o, &d, &b->versions[i]);
        if (b->errs[i] == TARN_OK) {
            b->place[b->specs_n] = i;
            b->specs[b->specs_n++] = d;
        }
        i++;
    }
    return TARN_OK;
}

static void write_deleted(s3_xml *x, tarn_str key, tarn_str version, const tarn_delete_result *r)
{
    char mem[40];
    tarn_sb b;
    s3_xml_open(x, "Deleted");
    s3_xml_text(x, "Key", key);
    if (version.n > 0)
        s3_xml_text(x, "VersionId", version);
    if (r->delete_marker) {
        s3_xml_bool(x, "DeleteMarker", true);
        version_of(&b, mem, sizeof mem, &r->row);
        s3_xml_text(x, "DeleteMarkerVersionId", tarn_sb_view(&b));
    }
    s3_xml_close(x, "Deleted");
}

static void write_failed(s3_xml *x, tarn_str key, tarn_str version, tarn_err e)
{
    const tarn_err_info *info = tarn_err_get(e);
    s3_xml_open(x, "Error");
    s3_xml_text(x, "Key", key);
    if (version.n > 0)
        s3_xml_text(x, "VersionId", version);
    s3_xml_textc(x, "Code", info->s3_code);
    s3_xml_textc(x, "Message", info->message);
    s3_xml_close(x, "Error");
}

tarn_err s3_delete_objects(s3_ctx *c)
{
    s3_node *root;
    batch b;
    tarn_err e = s3_read_xml(c, "Delete", &root);
    if (e == TARN_OK)
        e = read_batch(c, root, &b);
    if (e == TARN_OK && b.specs_n > 0)
        e = tarn_object_delete(c->s3->store, &c->bucket, b.specs, b.specs_n, b.results);
    if (e != TARN_OK)
        return e;
    s3_xml x;
    s3_xml_begin(&x, "DeleteResult");
    for (size_t i = 0, k = 0; i < b.n; i++) {
        tarn_err ke = b.errs[i];
        const tarn_delete_result *r = NULL;
        if (ke == TARN_OK) {
            TARN_ASSERT(k < b.specs_n && b.place[k] == i);
            r = &b.results[k++];
            ke = r->err;
        }
        if (ke != TARN_OK)
            write_failed(&x, b.keys[i], b.versions[i], ke);
        else if (!b.quiet)
            write_deleted(&x, b.keys[i], b.versions[i], r);
    }
    s3_xml_close(&x, "DeleteResult");
    return s3_xml_send(c, &x, 200);
}
