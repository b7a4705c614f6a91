/* SPDX-License-Identifier: Apache-2.0 */
/* Multipart uploads: create, complete, abort, list parts, list uploads. Parts themselves: put.c and copy.c. */
#include "s3_internal.h"

#include <string.h>

#define LIST_UPLOADS_MAX 1000
#define LIST_PARTS_MAX 1000

/* ------------------------------------------------------------------ create */
static tarn_err choose_checksum(s3_ctx *c, tarn_checksum *sum)
{
    tarn_str alg = tarn_req_header(c->r, "x-amz-checksum-algorithm"), type = tarn_req_header(c->r, "x-amz-checksum-type");
    *sum = (tarn_checksum){.kind = TARN_SUM_NONE};
    bool full = tarn_str_ieqc(type, "FULL_OBJECT");
    if (type.p != NULL && !full && !tarn_str_ieqc(type, "COMPOSITE"))
        return s3_fail(c, TARN_E_INVALID_REQUEST, "Value for x-amz-checksum-type header is invalid.");
    if (alg.p == NULL) {
        if (type.p != NULL)
            return s3_fail(c, TARN_E_INVALID_REQUEST,
                           "The x-amz-checksum-type header can only be used with the x-amz-checksum-algorithm header.");
        return TARN_OK;
    }
    sum->kind = tarn_sum_by_name(alg);
    if (sum->kind == TARN_SUM_NONE || sum->kind == TARN_SUM_MD5)
        return s3_fail(c, TARN_E_INVALID_REQUEST,
                       "Checksum algorithm provided is unsupported. Please try again with any of the valid types: "
                       "[CRC32, CRC32C, CRC64NVME, SHA1, SHA256]");
    sum->type = sum->kind == TARN_SUM_CRC64NVME ? TARN_SUM_FULL_OBJECT : TARN_SUM_COMPOSITE;
    if (type.p == NULL)
        return TARN_OK;
    bool sha = sum->kind == TARN_SUM_SHA1 || sum->kind == TARN_SUM_SHA256;
    if ((full && sha) || (!full && sum->kind == TARN_SUM_CRC64NVME)) {
        c->detail.message = tarn_arena_fmt(c->a, "The %s checksum type cannot be used with the %s checksum algorithm.",
                                           full ? "FULL_OBJECT" : "COMPOSITE", tarn_sum_name(sum->kind));
        return TARN_E_INVALID_REQUEST;
    }
    sum->type = full ? TARN_SUM_FULL_OBJECT : TARN_SUM_COMPOSITE;
    return TARN_OK;
}

static tarn_str upload_id_text(s3_ctx *c, uint64_t id, uint64_t nonce)
{
    char mem[40];
    tarn_sb b;
    tarn_sb_init_fixed(&b, mem, sizeof mem);
    tarn_upload_id_format(&b, id, nonce);
    return tarn_arena_str(c->a, tarn_sb_view(&b));
}

tarn_err s3_create_upload(s3_ctx *c)
{
    tarn_attrs attrs;
    uint64_t id, nonce;
    tarn_err e = s3_attrs_from_headers(c, &attrs);
    if (e == TARN_OK)
        e = choose_checksum(c, &attrs.checksum);
    if (e == TARN_OK)
        e = s3_tags_from_header(c, &attrs.tags, &attrs.tags_n);
    if (e == TARN_OK && attrs.tags_n > 0)
        e = s3_may(c, "s3:PutObjectTagging");
    if (e == TARN_OK)
        e = s3_lock_from_headers(c, &attrs.retention, &attrs.retain_until_ms, &attrs.legal_hold);
    if (e == TARN_OK)
        e = tarn_upload_create(c->s3->store, &c->bucket, c->key, c->auth.identity.access_key, &attrs, &id, &nonce);
    if (e != TARN_OK)
        return e;
    if (attrs.checksum.kind != TARN_SUM_NONE) {
        tarn_resp_headerc(c->r, "x-amz-checksum-algorithm", tarn_sum_name(attrs.checksum.kind));
        tarn_resp_headerc(c->r, "x-amz-checksum-type", attrs.checksum.type == TARN_SUM_COMPOSITE ? "COMPOSITE" : "FULL_OBJECT");
    }
    s3_xml x;
    s3_xml_begin(&x, "InitiateMultipartUploadResult");
    s3_xml_text(&x, "Bucket", c->bucket.name);
    s3_xml_text(&x, "Key", c->key);
    s3_xml_text(&x, "UploadId", upload_id_text(c, id, nonce));
    s3_xml_close(&x, "InitiateMultipartUploadResult");
    return s3_xml_send(c, &x, 200);
}

/* ------------------------------------------------------------------ complete */
static const struct {
    const char *element;
    tarn_sum_kind kind;
} part_sums[] = {{"ChecksumCRC32", TARN_SUM_CRC32},
                 {"ChecksumCRC32C", TARN_SUM_CRC32C},
                 {"ChecksumCRC64NVME", TARN_SUM_CRC64NVME},
                 {"ChecksumSHA1", TARN_SUM_SHA1},
                 {"ChecksumSHA256", TARN_SUM_SHA256}};

static tarn_err read_part(s3_ctx *c, const s3_node *n, tarn_complete_part *p)
{
    int64_t number;
    tarn_str num = s3_node_text(n, "PartNumber");
    if (!tarn_str_to_i64(num, &number))
        return TARN_E_MALFORMED_XML;
    if (number < 1 || number > TARN_PARTS_MAX)
        return s3_bad_argument(c, "PartNumber must be >= 1 and <= 10000", "PartNumber", num);
    p->number = (uint32_t)number;
    if (!s3_etag_strip(s3_node_text(n, "ETag"), &p->etag))
        return TARN_E_MALFORMED_XML;
    for (size_t i = 0; i < TARN_ARRAY_LEN(part_sums); i++) {
        tarn_str v = s3_node_text(n, part_sums[i].element);
        if (v.n > 0 && !s3_checksum_parse(part_sums[i].kind, v, &p->checksum))
            return TARN_E_INVALID_PART;
    }
    return TARN_OK;
}

static tarn_err read_parts(s3_ctx *c, const s3_node *root, tarn_complete_spec *spec)
{
    size_t n = s3_node_count(root, "Part");
    if (n == 0 || n > TARN_PARTS_MAX)
        return TARN_E_MALFORMED_XML;
    tarn_complete_part *parts = TARN_ARENA_ARRAY(c->a, tarn_complete_part, n);
    if (parts == NULL)
        return TARN_E_NO_MEMORY;
    size_t i = 0;
    for (const s3_node *k = root->first; k != NULL; k = k->next) {
        if (!tarn_str_eqc(k->name, "Part"))
            continue;
        tarn_err e = read_part(c, k, &parts[i++]);
        if (e != TARN_OK)
            return e;
    }
    spec->parts = parts;
    spec->parts_n = n;
    return TARN_OK;
}

static tarn_err read_complete_headers(s3_ctx *c, tarn_complete_spec *spec, s3_digests *d)
{
    tarn_err e = s3_digests_parse(c, d);
    if (e != TARN_OK)
        return e;
    spec->checksum = d->checksum;
    tarn_str type = tarn_req_header(c->r, "x-amz-checksum-type"), size = tarn_req_header(c->r, "x-amz-mp-object-size");
    if (type.p != NULL) {
        spec->type_given = true;
        spec->type = tarn_str_ieqc(type, "COMPOSITE") ? TARN_SUM_COMPOSITE : TARN_SUM_FULL_OBJECT;
        if (!tarn_str_ieqc(type, "COMPOSITE") && !tarn_str_ieqc(type, "FULL_OBJECT"))
            return s3_fail(c, TARN_E_INVALID_REQUEST, "Value for x-amz-checksum-type header is invalid.");
    }
    if (size.p != NULL) {
        spec->has_size = true;
        if (!tarn_str_to_u64(size, &spec->size))
            return s3_fail(c, TARN_E_INVALID_REQUEST, "Value for x-amz-mp-object-size header is invalid.");
    }
    return s3_put_conditions(c, &spec->conditions);
}

/* The checksum header of this request speaks of the object, not of the XML: the body is read without it. */
static tarn_err read_complete_body(s3_ctx *c, const s3_digests *d, s3_node **root)
{
    uint8_t sum[TARN_SHA256_BYTES];
    tarn_str body;
    tarn_err e = tarn_req_read_all(c->r, S3_XML_BODY_BYTES_MAX, &body);
    if (e == TARN_E_ENTITY_TOO_LARGE)
        return TARN_E_MALFORMED_XML;
    if (e != TARN_OK)
        return e;
    if (c->auth.payload == TARN_PAYLOAD_SHA256) {
        tarn_sha256(body.p, body.n, sum);
        if (!tarn_equal_ct(sum, c->auth.expect_sha256, sizeof sum))
            return TARN_E_CONTENT_SHA256_MISMATCH;
    }
    if (d->has_md5) {
        tarn_md5(body.p, body.n, sum);
        if (!tarn_equal_ct(sum, d->md5, TARN_MD5_BYTES))
            return TARN_E_BAD_DIGEST;
    }
    e = s3_xml_parse(body, c->a, root);
    if (e == TARN_OK && !tarn_str_eqc((*root)->name, "CompleteMultipartUpload"))
        return TARN_E_MALFORMED_XML;
    return e;
}

static tarn_err send_completed(s3_ctx *c, const tarn_put_result *res)
{
    s3_xml x;
    s3_new_version_header(c, &res->row);
    s3_expiration_header(c, &res->row);
    s3_xml_begin(&x, "CompleteMultipartUploadResult");
    s3_xml_open(&x, "Location");
    tarn_sb_cstr(&x.b, tarn_req_tls(c->r) ? "https://" : "http://");
    s3_xml_escape(&x.b, tarn_req_header(c->r, "host"));
    s3_xml_escape(&x.b, tarn_req_view(c->r)->raw_path);
    s3_xml_close(&x, "Location");
    s3_xml_text(&x, "Bucket", c->bucket.name);
    s3_xml_text(&x, "Key", c->key);
    s3_xml_etag(&x, res->row.etag);
    for (size_t i = 0; i < TARN_ARRAY_LEN(part_sums); i++)
        if (part_sums[i].kind == res->checksum.kind)
            s3_xml_text(&x, part_sums[i].element, s3_checksum_text(c->a, &res->checksum));
    if (res->checksum.kind != TARN_SUM_NONE)
        s3_xml_textc(&x, "ChecksumType", res->checksum.type == TARN_SUM_COMPOSITE ? "COMPOSITE" : "FULL_OBJECT");
    s3_xml_close(&x, "CompleteMultipartUploadResult");
    return s3_xml_send(c, &x, 200);
}

/* The parts of a COMPOSITE checksum are named with theirs. An upload that is not there any more may have been completed with these. */
static tarn_err check_part_sums(s3_ctx *c, const tarn_complete_spec *spec)
{
    tarn_upload_row up;
    tarn_attrs attrs = {0};
    tarn_err e = tarn_meta_upload_get(c->s3->meta, NULL, c->bucket.id, c->key, spec->upload_id, spec->nonce, c->a, &up);
    if (e == TARN_OK)
        e = tarn_attrs_unpack(up.attrs, c->a, &attrs);
    if (e != TARN_OK)
        return e == TARN_E_NO_SUCH_UPLOAD ? TARN_OK : e;
    if (attrs.checksum.kind == TARN_SUM_NONE || attrs.checksum.type != TARN_SUM_COMPOSITE)
        return TARN_OK;
    size_t i = 0;
    while (i < spec->parts_n && spec->parts[i].checksum.kind != TARN_SUM_NONE)
        i++;
    if (i == spec->parts_n)
        return TARN_OK;
    c->detail.message =
        tarn_arena_fmt(c->a,
                       "The upload was created using a %s checksum. The complete request must include the checksum for "
                       "each part. It was missing for part %u in the request.",
                       tarn_sum_header(attrs.checksum.kind) + sizeof "x-amz-checksum-" - 1, (unsigned)spec->parts[i].number);
    return TARN_E_INVALID_REQUEST;
}

tarn_err s3_complete_upload(s3_ctx *c)
{
    tarn_complete_spec spec = {.bucket = &c->bucket, .key = c->key};
    tarn_put_result res = {0};
    uint32_t bad = 0;
    s3_node *root;
    tarn_str id = s3_param(c, "uploadId");
    s3_digests d;
    tarn_err e = read_complete_headers(c, &spec, &d);
    if (e == TARN_OK)
        e = read_complete_body(c, &d, &root);
    if (e == TARN_OK)
        e = read_parts(c, root, &spec);
    if (e == TARN_OK && !tarn_upload_id_parse(id, &spec.upload_id, &spec.nonce))
        e = TARN_E_NO_SUCH_UPLOAD;
    if (e == TARN_OK)
        e = check_part_sums(c, &spec);
    if (e == TARN_OK)
        e = tarn_upload_complete(c->s3->store, &spec, c->a, &res, &bad);
    if (e == TARN_E_NO_SUCH_UPLOAD)
        tarn_err_detail_add(&c->detail, "UploadId", id);
    if (e == TARN_E_INVALID_PART) {
        tarn_err_detail_add(&c->detail, "UploadId", id);
        tarn_err_detail_add(&c->detail, "PartNumber", tarn_arena_fmt(c->a, "%u", (unsigned)bad));
    }
    return e == TARN_OK ? send_completed(c, &res) : e;
}

/* ------------------------------------------------------------------ abort */
tarn_err s3_abort_upload(s3_ctx *c)
{
    uint64_t id, nonce;
    tarn_str text = s3_param(c, "uploadId");
    tarn_err e =
        tarn_upload_id_parse(text, &id, &nonce) ? tarn_upload_abort(c->s3->store, &c->bucket, c->key, id, nonce) : TARN_E_NO_SUCH_UPLOAD;
    if (e == TARN_E_NO_SUCH_UPLOAD)
        return s3_fail_arg(c, e, NULL, "UploadId", text);
    return e == TARN_OK ? s3_send_empty(c, 204) : e;
}

/* ------------------------------------------------------------------ list parts */
typedef struct parts_page {
    s3_ctx *c;
    s3_xml x;
    uint64_t max, count;
    uint32_t last;
    bool truncated;
} parts_page;

static bool on_part(void *ctx, const tarn_part_row *row)
{
    parts_page *p = ctx;
    tarn_checksum sum;
    if (p->count == p->max) {
        p->truncated = true;
        return false;
    }
    p->count++;
    p->last = row->number;
    s3_xml_open(&p->x, "Part");
    s3_xml_u64(&p->x, "PartNumber", row->number);
    s3_xml_time(&p->x, "LastModified", row->mtime_ms);
    s3_xml_etag(&p->x, row->etag);
    s3_xml_u64(&p->x, "Size", row->size);
    if (tarn_part_attrs_unpack(row->attrs, &sum) == TARN_OK)
        for (size_t i = 0; i < TARN_ARRAY_LEN(part_sums); i++)
            if (part_sums[i].kind == sum.kind)
                s3_xml_text(&p->x, part_sums[i].element, s3_checksum_text(p->c->a, &sum));
    s3_xml_close(&p->x, "Part");
    return !p->x.b.failed;
}

static void write_upload_facts(s3_ctx *c, s3_xml *x, const tarn_attrs *attrs, tarn_str owner)
{
    s3_owner(x, "Initiator", s3_canonical_id(c, owner));
    s3_owner(x, "Owner", s3_canonical_id(c, owner));
    s3_xml_text(x, "StorageClass", attrs->storage_class.n > 0 ? attrs->storage_class : TARN_STR("STANDARD"));
    if (attrs->checksum.kind != TARN_SUM_NONE) {
        s3_xml_textc(x, "ChecksumAlgorithm", tarn_sum_name(attrs->checksum.kind));
        s3_xml_textc(x, "ChecksumType", attrs->checksum.type == TARN_SUM_COMPOSITE ? "COMPOSITE" : "FULL_OBJECT");
    }
}

tarn_err s3_list_parts(s3_ctx *c)
{
    parts_page p = {.c = c};
    uint64_t id, nonce, marker;
    tarn_upload_row up;
    tarn_attrs attrs;
    tarn_str text = s3_param(c, "uploadId");
    tarn_err e = s3_number_param(c, "max-parts", LIST_PARTS_MAX, LIST_PARTS_MAX, &p.max);
    if (e == TARN_OK)
        e = s3_number_param(c, "part-number-marker", 0, UINT32_MAX, &marker);
    if (e != TARN_OK)
        return e;
    e = tarn_upload_id_parse(text, &id, &nonce) ? tarn_meta_upload_get(c->s3->meta, NULL, c->bucket.id, c->key, id, nonce, c->a, &up)
                                                : TARN_E_NO_SUCH_UPLOAD;
    if (e == TARN_E_NO_SUCH_UPLOAD)
        return s3_fail_arg(c, e, NULL, "UploadId", text);
    if (e == TARN_OK)
        e = tarn_attrs_unpack(up.attrs, c->a, &attrs);
    if (e != TARN_OK)
        return e;
    s3_xml_begin(&p.x, "ListPartsResult");
    s3_xml_text(&p.x, "Bucket", c->bucket.name);
    s3_xml_text(&p.x, "Key", c->key);
    s3_xml_text(&p.x, "UploadId", text);
    write_upload_facts(c, &p.x, &attrs, up.owner);
    s3_xml_u64(&p.x, "PartNumberMarker", marker);
    if (p.max > 0)
        e = tarn_meta_part_list(c->s3->meta, NULL, id, (uint32_t)marker, false, on_part, &p);
    s3_xml_u64(&p.x, "NextPartNumberMarker", p.last);
    s3_xml_u64(&p.x, "MaxParts", p.max);
    s3_xml_bool(&p.x, "IsTruncated", p.truncated);
    s3_xml_close(&p.x, "ListPartsResult");
    if (e != TARN_OK) {
        tarn_sb_free(&p.x.b);
        return e;
    }
    return s3_xml_send(c, &p.x, 200);
}

/* ------------------------------------------------------------------ list uploads */
typedef struct uploads_page {
    s3_ctx *c;
    s3_xml x;
    uint64_t max, count;
    bool truncated, url;
    tarn_str prefix, delimiter;
    char prefix_mem[TARN_KEY_BYTES_MAX], key_mem[TARN_KEY_BYTES_MAX];
    tarn_str last_prefix; /* common prefix written last */
    tarn_str last_key;
    bool last_is_prefix;
    uint64_t last_id, last_nonce;
} uploads_page;

static tarn_str keep(char mem[TARN_KEY_BYTES_MAX], tarn_str s)
{
    TARN_ASSERT(s.n <= TARN_KEY_BYTES_MAX);
    if (s.n > 0)
        memcpy(mem, s.p, s.n);
    return (tarn_str){mem, s.n};
}

static void remember(uploads_page *p, const tarn_upload_row *row)
{
    p->last_key = keep(p->key_mem, row->key);
    p->last_id = row->upload_id;
    p->last_nonce = row->nonce;
}

/* The common prefix of a key, or empty. */
static tarn_str common_prefix(const uploads_page *p, tarn_str key)
{
    if (p->delimiter.n == 0 || key.n < p->prefix.n)
        return TARN_STR_NULL;
    ptrdiff_t at = tarn_str_find(tarn_str_sub(key, p->prefix.n, key.n), p->delimiter);
    return at < 0 ? TARN_STR_NULL : tarn_str_sub(key, 0, p->prefix.n + (size_t)at + p->delimiter.n);
}

static bool on_upload(void *ctx, const tarn_upload_row *row)
{
    uploads_page *p = ctx;
    tarn_attrs attrs;
    tarn_str common = common_prefix(p, row->key);
    if (common.n > 0 && tarn_str_eq(common, p->last_prefix)) {
        p->last_id = row->upload_id;
        p->last_nonce = row->nonce;
        return true;
    }
    if (p->count == p->max) {
        p->truncated = true;
        return false;
    }
    p->count++;
    remember(p, row);
    p->last_is_prefix = common.n > 0;
    if (common.n > 0) {
        p->last_prefix = keep(p->prefix_mem, common);
        s3_xml_open(&p->x, "CommonPrefixes");
        s3_xml_key(&p->x, "Prefix", common, p->url);
        s3_xml_close(&p->x, "CommonPrefixes");
        return !p->x.b.failed;
    }
    if (tarn_attrs_unpack(row->attrs, p->c->a, &attrs) != TARN_OK)
        return false;
    s3_xml_open(&p->x, "Upload");
    s3_xml_key(&p->x, "Key", row->key, p->url);
    s3_xml_text(&p->x, "UploadId", upload_id_text(p->c, row->upload_id, row->nonce));
    write_upload_facts(p->c, &p->x, &attrs, row->owner);
    s3_xml_time(&p->x, "Initiated", row->initiated_ms);
    s3_xml_close(&p->x, "Upload");
    return !p->x.b.failed;
}

tarn_err s3_list_uploads(s3_ctx *c)
{
    uploads_page p = {.c = c};
    uint64_t after_id = 0, nonce;
    tarn_str key = s3_param(c, "key-marker"), id = s3_param(c, "upload-id-marker"), enc = s3_param(c, "encoding-type");
    tarn_str prefix = s3_param(c, "prefix"), delimiter = s3_param(c, "delimiter");
    if (enc.n > 0 && !tarn_str_ieqc(enc, "url"))
        return s3_bad_argument(c, "Invalid Encoding Method specified in Request", "encoding-type", enc);
    tarn_err e = s3_number_param(c, "max-uploads", LIST_UPLOADS_MAX, LIST_UPLOADS_MAX, &p.max);
    if (e != TARN_OK)
        return e;
    if (key.n > TARN_KEY_BYTES_MAX || prefix.n > TARN_KEY_BYTES_MAX)
        return TARN_E_KEY_TOO_LONG;
    if (id.n > 0 && key.n > 0 && !tarn_upload_id_parse(id, &after_id, &nonce))
        return s3_bad_argument(c, "Invalid uploadId marker", "upload-id-marker", id);
    p.url = enc.n > 0;
    p.prefix = prefix.p != NULL ? prefix : TARN_STR("");
    p.delimiter = delimiter.p != NULL ? delimiter : TARN_STR("");
    /* A key marker alone means: after all uploads of that key. */
    if (key.n > 0 && id.n == 0)
        after_id = UINT64_MAX;
    /* A page that ended in a common prefix gave it as its key marker: what lies under it has been shown. */
    if (key.n > 0 && tarn_str_eq(common_prefix(&p, key), key)) {
        p.last_prefix = key;
        after_id = UINT64_MAX;
    }
    s3_xml_begin(&p.x, "ListMultipartUploadsResult");
    s3_xml_text(&p.x, "Bucket", c->bucket.name);
    s3_xml_key(&p.x, "KeyMarker", key, p.url);
    s3_xml_text(&p.x, "UploadIdMarker", id);
    s3_xml_key(&p.x, "Prefix", p.prefix, p.url);
    if (p.delimiter.n > 0)
        s3_xml_key(&p.x, "Delimiter", p.delimiter, p.url);
    s3_xml_u64(&p.x, "MaxUploads", p.max);
    if (p.max > 0)
        e = tarn_meta_upload_list(c->s3->meta, c->bucket.id, p.prefix, key, after_id, on_upload, &p);
    if (p.truncated) {
        s3_xml_key(&p.x, "NextKeyMarker", p.last_is_prefix ? p.last_prefix : p.last_key, p.url);
        s3_xml_text(&p.x, "NextUploadIdMarker", upload_id_text(c, p.last_id, p.last_nonce));
    }
    if (p.url)
        s3_xml_textc(&p.x, "EncodingType", "url");
    s3_xml_bool(&p.x, "IsTruncated", p.truncated);
    s3_xml_close(&p.x, "ListMultipartUploadsResult");
    if (e != TARN_OK) {
        tarn_sb_free(&p.x.b);
        return e;
    }
    return s3_xml_send(c, &p.x, 200);
}
