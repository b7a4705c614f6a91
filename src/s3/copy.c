/* SPDX-License-Identifier: Apache-2.0 */
/*
 * CopyObject and UploadPartCopy: a verified read of the source piped into a write of the destination.
 * Both the source and the destination are authorised, each against its own bucket's policy.
 */
#include "s3_internal.h"

#define COPY_RANGE_FORM                                                                                                                    \
    "The x-amz-copy-source-range value must be of the form bytes=first-last where first and last are the zero-based offsets of the first " \
    "and last bytes to copy"

typedef struct source {
    tarn_str bucket_name, key;
    tarn_version_ref ref;
    tarn_bucket_row bucket;
    tarn_version_row row;
    tarn_attrs attrs;
} source;

/* The caller may read the source, and its tags where they are copied too. */
static tarn_err authorise_source(s3_ctx *c, const source *s, const s3_facts *facts, bool with_tags)
{
    bool current = s->ref.sel == TARN_VERSION_CURRENT;
    s3_ask q = {
        .action = current ? "s3:GetObject" : "s3:GetObjectVersion", .bucket = &s->bucket, .facts = facts, .key = s->key, .ref = s->ref};
    if (with_tags)
        q.action = current ? "s3:GetObjectTagging" : "s3:GetObjectVersionTagging";
    return s3_authorise(c, &q);
}

/* Finds and authorises the source. */
static tarn_err open_source(s3_ctx *c, source *s, bool with_tags)
{
    s3_facts *facts = NULL;
    tarn_err e = s3_copy_source(c, &s->bucket_name, &s->key, &s->ref);
    if (e == TARN_OK)
        e = s3_refuse_encryption(c);
    if (e == TARN_OK)
        e = s3_load_bucket(c, s->bucket_name, &s->bucket, &facts);
    if (e == TARN_OK)
        e = s3_check_expected_owner(c, "x-amz-source-expected-bucket-owner", &s->bucket);
    if (e == TARN_OK)
        e = authorise_source(c, s, facts, false);
    if (e == TARN_OK)
        e = s3_hide_absent(c, tarn_object_stat(c->s3->store, &s->bucket, s->key, s->ref, c->a, &s->row), &s->bucket, facts);
    if (e == TARN_OK && with_tags && s->row.tags_n > 0)
        e = authorise_source(c, s, facts, true);
    s3_facts_unref(facts);
    if (e == TARN_OK && s->row.delete_marker)
        return s3_fail(c, TARN_E_INVALID_REQUEST,
                       "The source of a copy request may not specifically refer to a delete marker by version id.");
    if (e == TARN_OK)
        e = s3_check_conditions(c, "x-amz-copy-source-", &s->row);
    if (e == TARN_OK)
        e = tarn_attrs_unpack(s->row.attrs, c->a, &s->attrs);
    return e;
}

static tarn_err pipe_data(s3_ctx *c, const source *s, uint64_t off, uint64_t len, tarn_put *p)
{
    tarn_get *g;
    if (len == 0)
        return TARN_OK;
    tarn_err e = tarn_get_open(c->s3->store, &s->row, off, len, c->a, &g);
    while (e == TARN_OK) {
        const uint8_t *buf;
        size_t n;
        e = tarn_get_next(g, &buf, &n);
        if (e != TARN_OK || n == 0)
            break;
        e = tarn_put_write(p, buf, n);
        if (e == TARN_OK && tarn_req_client_gone(c->r))
            e = TARN_E_CLOSED;
    }
    if (e == TARN_OK && tarn_put_bytes(p) != len)
        e = TARN_E_CORRUPT;
    tarn_get_close(g);
    return e;
}

static tarn_err run_copy(s3_ctx *c, const source *s, uint64_t off, uint64_t len, const tarn_put_spec *spec, tarn_put_result *res)
{
    tarn_put *p;
    tarn_err e = tarn_put_begin(c->s3->store, spec, c->a, &p);
    if (e != TARN_OK)
        return e;
    e = pipe_data(c, s, off, len, p);
    if (e != TARN_OK) {
        tarn_put_abort(p);
        return e;
    }
    return tarn_put_finish(p, res);
}

static void source_version_header(s3_ctx *c, const source *s)
{
    char mem[40];
    tarn_sb b;
    if (s->bucket.versioning == TARN_VERSIONING_OFF)
        return;
    tarn_sb_init_fixed(&b, mem, sizeof mem);
    tarn_version_format(&b, &s->row);
    tarn_resp_header(c->r, "x-amz-copy-source-version-id", tarn_sb_view(&b));
}

static tarn_err send_result(s3_ctx *c, const char *root, const tarn_put_result *res)
{
    s3_xml x;
    s3_xml_begin(&x, root);
    s3_xml_time(&x, "LastModified", res->row.mtime_ms);
    s3_xml_etag(&x, res->row.etag);
    if (res->checksum.kind != TARN_SUM_NONE && tarn_sum_header(res->checksum.kind) != NULL) {
        char name[32];
        tarn_sb b;
        tarn_sb_init_fixed(&b, name, sizeof name);
        tarn_sb_cstr(&b, "Checksum");
        tarn_sb_cstr(&b, tarn_sum_name(res->checksum.kind));
        s3_xml_text(&x, name, s3_checksum_text(c->a, &res->checksum));
        s3_xml_textc(&x, "ChecksumType", res->checksum.type == TARN_SUM_COMPOSITE ? "COMPOSITE" : "FULL_OBJECT");
    }
    s3_xml_close(&x, root);
    return s3_xml_send(c, &x, 200);
}

/* ------------------------------------------------------------------ CopyObject */
/* "COPY" or "REPLACE"; absent is COPY. */
static tarn_err directive(s3_ctx *c, const char *header, const char *message, bool *replace)
{
    tarn_str v = tarn_req_header(c->r, header);
    *replace = tarn_str_eqc(v, "REPLACE");
    if (v.p == NULL || *replace || tarn_str_eqc(v, "COPY"))
        return TARN_OK;
    return s3_bad_argument(c, message, header, v);
}

static tarn_err copy_attrs(s3_ctx *c, const source *s, tarn_put_spec *spec, bool replace_meta)
{
    tarn_attrs wanted;
    tarn_err e = s3_attrs_from_headers(c, &wanted);
    if (e != TARN_OK)
        return e;
    if (replace_meta) {
        spec->attrs = wanted;
    } else {
        spec->attrs = s->attrs;
        spec->attrs.origin = TARN_STR(""); /* a copy is nobody's metadata file */
        spec->attrs.storage_class = wanted.storage_class;
        spec->attrs.website_redirect = wanted.website_redirect;
    }
    tarn_str alg = tarn_req_header(c->r, "x-amz-checksum-algorithm");
    spec->attrs.checksum = (tarn_checksum){.kind = s->attrs.checksum.kind};
    if (alg.p != NULL) {
        spec->attrs.checksum.kind = tarn_sum_by_name(alg);
        if (spec->attrs.checksum.kind == TARN_SUM_NONE || spec->attrs.checksum.kind == TARN_SUM_MD5)
            return s3_fail(c, TARN_E_INVALID_REQUEST, "Checksum algorithm provided is unsupported.");
    }
    return TARN_OK;
}

static tarn_err copy_tags(s3_ctx *c, const source *s, tarn_put_spec *spec, bool replace)
{
    if (replace)
        return s3_tags_from_header(c, &spec->tags, &spec->tags_n);
    spec->tags = s->row.tags;
    spec->tags_n = s->row.tags_n;
    return TARN_OK;
}

static bool same_object(s3_ctx *c, const source *s)
{
    return s->bucket.id == c->bucket.id && tarn_str_eq(s->key, c->key);
}

/* A copy onto itself must change something. */
static tarn_err check_self_copy(s3_ctx *c, const source *s, bool replace_meta)
{
    if (!same_object(c, s) || replace_meta || s->ref.sel != TARN_VERSION_CURRENT)
        return TARN_OK;
    static const char *const changes[] = {"x-amz-storage-class", "x-amz-website-redirect-location", "x-amz-server-side-encryption",
                                          "x-amz-checksum-algorithm"};
    for (size_t i = 0; i < TARN_ARRAY_LEN(changes); i++)
        if (tarn_req_header(c->r, changes[i]).p != NULL)
            return TARN_OK;
    return s3_fail(c, TARN_E_INVALID_REQUEST,
                   "This copy request is illegal because it is trying to copy an object to itself without changing the object's metadata, "
                   "storage class, website redirect location or encryption attributes.");
}

tarn_err s3_copy_object(s3_ctx *c)
{
    source s = {0};
    bool replace_meta = false, replace_tags = false;
    tarn_put_spec spec = {.bucket = &c->bucket, .key = c->key};
    tarn_put_result res;
    tarn_err e = s3_may(c, "s3:PutObject");
    if (e == TARN_OK)
        e = directive(c, "x-amz-metadata-directive", "Unknown metadata directive.", &replace_meta);
    if (e == TARN_OK)
        e = directive(c, "x-amz-tagging-directive", "Unknown tagging directive.", &replace_tags);
    if (e == TARN_OK)
        e = open_source(c, &s, !replace_tags);
    if (e == TARN_OK)
        e = check_self_copy(c, &s, replace_meta);
    if (e == TARN_OK)
        e = copy_attrs(c, &s, &spec, replace_meta);
    if (e == TARN_OK)
        e = copy_tags(c, &s, &spec, replace_tags);
    if (e == TARN_OK && spec.tags_n > 0)
        e = s3_may(c, "s3:PutObjectTagging");
    if (e == TARN_OK)
        e = s3_lock_from_headers(c, &spec.retention, &spec.retain_until_ms, &spec.legal_hold);
    if (e == TARN_OK)
        e = s3_put_conditions(c, &spec.conditions);
    if (e == TARN_OK && s.row.size > TARN_PUT_BYTES_MAX)
        e = s3_fail(c, TARN_E_INVALID_REQUEST,
                    "The specified copy source is larger than the maximum allowable size for a copy source: 5368709120");
    if (e != TARN_OK)
        return e;
    spec.size_hint = s.row.size;
    e = run_copy(c, &s, 0, s.row.size, &spec, &res);
    if (e != TARN_OK)
        return e;
    s3_new_version_header(c, &res.row);
    s3_expiration_header(c, &res.row);
    source_version_header(c, &s);
    return send_result(c, "CopyObjectResult", &res);
}

/* ------------------------------------------------------------------ UploadPartCopy */
static tarn_err source_range(s3_ctx *c, const source *s, uint64_t *off, uint64_t *len)
{
    tarn_str v = tarn_req_header(c->r, "x-amz-copy-source-range");
    *off = 0;
    *len = s->row.size;
    if (v.p == NULL)
        return TARN_OK;
    tarn_str spec, a, b;
    uint64_t first, last;
    if (!tarn_str_starts(v, "bytes="))
        return s3_bad_argument(c, COPY_RANGE_FORM, "x-amz-copy-source-range", v);
    spec = tarn_str_sub(v, 6, v.n);
    if (!tarn_str_split(spec, '-', &a, &b) || !tarn_str_to_u64(a, &first) || !tarn_str_to_u64(b, &last) || first > last)
        return s3_bad_argument(c, COPY_RANGE_FORM, "x-amz-copy-source-range", v);
    if (last >= s->row.size) {
        c->detail.message =
            tarn_arena_fmt(c->a, "Range specified is not valid for source object of size: %llu", (unsigned long long)s->row.size);
        tarn_err_detail_add(&c->detail, "ArgumentName", TARN_STR("x-amz-copy-source-range"));
        tarn_err_detail_add(&c->detail, "ArgumentValue", v);
        return TARN_E_INVALID_ARGUMENT;
    }
    *off = first;
    *len = last - first + 1;
    return TARN_OK;
}

tarn_err s3_upload_part_copy(s3_ctx *c)
{
    source s = {0};
    uint64_t nonce, number, off = 0, len = 0;
    tarn_put_spec spec = {.bucket = &c->bucket, .key = c->key, .is_part = true};
    tarn_put_result res;
    tarn_upload_row up;
    tarn_attrs fixed;
    tarn_str id = s3_param(c, "uploadId"), num = s3_param(c, "partNumber");
    tarn_err e = s3_may(c, "s3:PutObject");
    if (e == TARN_OK)
        e = s3_copy_source(c, &s.bucket_name, &s.key, &s.ref);
    if (e != TARN_OK)
        return e;
    if (!tarn_str_to_u64(num, &number) || number < 1 || number > TARN_PARTS_MAX)
        return s3_bad_argument(c, "Part number must be an integer between 1 and 10000, inclusive.", "partNumber", num);
    e = tarn_upload_id_parse(id, &spec.upload_id, &nonce)
            ? tarn_meta_upload_get(c->s3->meta, NULL, c->bucket.id, c->key, spec.upload_id, nonce, c->a, &up)
            : TARN_E_NO_SUCH_UPLOAD;
    if (e == TARN_E_NO_SUCH_UPLOAD)
        return s3_fail_arg(c, e, NULL, "UploadId", id);
    if (e == TARN_OK)
        e = tarn_attrs_unpack(up.attrs, c->a, &fixed);
    if (e == TARN_OK)
        e = open_source(c, &s, false);
    if (e == TARN_OK)
        e = source_range(c, &s, &off, &len);
    if (e == TARN_OK && len > TARN_PUT_BYTES_MAX)
        e = s3_fail(c, TARN_E_INVALID_REQUEST,
                    "The specified copy source is larger than the maximum allowable size for a copy source: 5368709120");
    if (e != TARN_OK)
        return e;
    spec.part_number = (uint32_t)number;
    spec.size_hint = len;
    spec.attrs.checksum.kind = fixed.checksum.kind;
    e = run_copy(c, &s, off, len, &spec, &res);
    if (e != TARN_OK)
        return e;
    if (fixed.checksum.kind == TARN_SUM_NONE)
        res.checksum.kind = TARN_SUM_NONE;
    source_version_header(c, &s);
    return send_result(c, "CopyPartResult", &res);
}
