/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GetObject, HeadObject, GetObjectAttributes.
 * Invariant: no byte of a body is sent that has not been verified against its shard checksum; an error in the middle cuts the
 * connection, so that a client can't take a short body for a whole one.
 */
#include "s3_internal.h"

#include <string.h>

typedef struct span {
    uint64_t off, len;
    bool partial; /* 206 */
    bool is_part;
} span;

static void last_modified_header(s3_ctx *c, const tarn_version_row *row)
{
    char mem[40];
    tarn_sb b;
    tarn_sb_init_fixed(&b, mem, sizeof mem);
    tarn_sb_http_date(&b, row->mtime_ms);
    tarn_resp_header(c->r, "Last-Modified", tarn_sb_view(&b));
}

/* Finds the version and turns delete markers into S3's answers. */
static tarn_err find_version(s3_ctx *c, tarn_version_row *row)
{
    tarn_version_ref ref;
    tarn_err e = s3_version_param(c, &ref);
    if (e != TARN_OK)
        return e;
    *row = (tarn_version_row){0};
    e = tarn_object_stat(c->s3->store, &c->bucket, c->key, ref, c->a, row);
    if (e == TARN_E_NO_SUCH_KEY && row->delete_marker) {
        tarn_resp_headerc(c->r, "x-amz-delete-marker", "true");
        s3_version_header(c, row);
    }
    if (e == TARN_E_NO_SUCH_VERSION)
        tarn_err_detail_add(&c->detail, "VersionId", s3_param(c, "versionId"));
    if (e == TARN_OK && row->delete_marker) {
        tarn_resp_headerc(c->r, "x-amz-delete-marker", "true");
        s3_version_header(c, row);
        last_modified_header(c, row);
        tarn_resp_headerc(c->r, "Allow", "DELETE");
        tarn_err_detail_add(&c->detail, "Method", tarn_req_method(c->r));
        tarn_err_detail_add(&c->detail, "ResourceType", TARN_STR("DeleteMarker"));
        return TARN_E_METHOD_NOT_ALLOWED;
    }
    /* Who may not list the bucket is not told which keys are absent. */
    return s3_hide_absent(c, e, &c->bucket, c->facts);
}

/* ?partNumber=; 0 when it is not there. */
static tarn_err part_number(s3_ctx *c, uint64_t *number)
{
    tarn_str text = s3_param(c, "partNumber");
    *number = 0;
    if (text.p == NULL || (tarn_str_to_u64(text, number) && *number >= 1 && *number <= TARN_PARTS_MAX))
        return TARN_OK;
    return s3_bad_argument(c, "Part number must be an integer between 1 and 10000, inclusive.", "partNumber", text);
}

static tarn_err part_span(s3_ctx *c, const tarn_version_row *row, uint64_t number, span *s)
{
    s->partial = s->is_part = true;
    if (row->parts_n == 0) {
        if (number != 1)
            return TARN_E_INVALID_PART_NUMBER;
        return TARN_OK;
    }
    tarn_part_span *parts;
    size_t n;
    tarn_err e = tarn_object_parts(c->s3->store, row, c->a, &parts, &n);
    if (e != TARN_OK)
        return e;
    if (number > n)
        return TARN_E_INVALID_PART_NUMBER;
    s->off = parts[number - 1].off;
    s->len = parts[number - 1].size;
    return TARN_OK;
}

/* Range and partNumber of the request. */
static tarn_err choose_span(s3_ctx *c, const tarn_version_row *row, uint64_t number, span *s)
{
    tarn_str range = tarn_req_header(c->r, "range");
    *s = (span){.len = row->size};
    if (number != 0 && range.p != NULL)
        return s3_fail(c, TARN_E_INVALID_REQUEST, "Cannot specify both Range header and partNumber query parameter");
    if (number != 0)
        return part_span(c, row, number, s);
    tarn_str if_range = tarn_req_header(c->r, "if-range");
    if (if_range.p != NULL) {
        tarn_str tag;
        int64_t t;
        bool same = tarn_parse_http_date(if_range, &t) ? t / 1000 == row->mtime_ms / 1000
                                                       : s3_etag_strip(if_range, &tag) && tarn_str_eq(tag, row->etag);
        if (!same)
            return TARN_OK;
    }
    s3_range_result r = s3_range_parse(range, row->size, &s->off, &s->len);
    s->partial = r == S3_RANGE_OK;
    if (r != S3_RANGE_UNSATISFIABLE)
        return TARN_OK;
    tarn_err_detail_add(&c->detail, "RangeRequested", range);
    tarn_err_detail_add(&c->detail, "ActualObjectSize", tarn_arena_fmt(c->a, "%llu", (unsigned long long)row->size));
    tarn_resp_header(c->r, "Content-Range", tarn_arena_fmt(c->a, "bytes */%llu", (unsigned long long)row->size));
    return TARN_E_INVALID_RANGE;
}

static const char *const overrides[][2] = {
    {"response-content-type", "Content-Type"},
    {"response-content-language", "Content-Language"},
    {"response-expires", "Expires"},
    {"response-cache-control", "Cache-Control"},
    {"response-content-disposition", "Content-Disposition"},
    {"response-content-encoding", "Content-Encoding"},
};

/* response-* parameters replace attributes; only a signed request may use them. */
static tarn_err apply_overrides(s3_ctx *c, tarn_attrs *a)
{
    tarn_str *const targets[] = {&a->content_type,  &a->content_language,    &a->expires,
                                 &a->cache_control, &a->content_disposition, &a->content_encoding};
    for (size_t i = 0; i < TARN_ARRAY_LEN(overrides); i++) {
        tarn_str v = s3_param(c, overrides[i][0]);
        if (v.p == NULL)
            continue;
        if (c->auth.identity.anonymous)
            return s3_fail(c, TARN_E_INVALID_REQUEST, "Request specific response headers cannot be used for anonymous GET requests.");
        *targets[i] = v;
    }
    return TARN_OK;
}

/* The checksum is that of the whole object; a part that is all of it has the same. */
static bool wants_checksum(s3_ctx *c, const span *s, const tarn_version_row *row)
{
    return (!s->partial || (s->is_part && row->parts_n == 0)) && tarn_str_ieqc(tarn_req_header(c->r, "x-amz-checksum-mode"), "ENABLED");
}

static tarn_err send_body(s3_ctx *c, tarn_get *g, int status, uint64_t len)
{
    const uint8_t *p;
    size_t n;
    /* The first piece is read before the head is sent: an error can still be a proper answer. */
    tarn_err e = tarn_get_next(g, &p, &n);
    if (e != TARN_OK)
        return e;
    if (n == len)
        return tarn_resp_send(c->r, status, (tarn_str){(const char *)p, n});
    e = tarn_resp_begin(c->r, status, len);
    uint64_t sent = 0;
    while (e == TARN_OK && n > 0) {
        sent += n;
        e = tarn_resp_write(c->r, p, n, sent < len);
        if (e == TARN_OK)
            e = tarn_get_next(g, &p, &n);
    }
    if (e == TARN_OK && sent == len)
        return tarn_resp_end(c->r);
    tarn_resp_abort(c->r);
    return TARN_OK;
}

/* Everything of GET and HEAD up to the body. */
static tarn_err answer_object(s3_ctx *c, bool head)
{
    tarn_version_row row;
    tarn_attrs attrs;
    span s;
    uint64_t number;
    tarn_err e = part_number(c, &number);
    if (e == TARN_OK)
        e = find_version(c, &row);
    if (e == TARN_OK)
        e = s3_refuse_read_encryption(c);
    if (e == TARN_OK)
        e = s3_check_conditions(c, "", &row);
    if (e == TARN_E_NOT_MODIFIED) {
        s3_etag_header(c, row.etag);
        s3_version_header(c, &row);
        last_modified_header(c, &row);
    }
    if (e == TARN_OK)
        e = choose_span(c, &row, number, &s);
    if (e == TARN_OK)
        e = tarn_attrs_unpack(row.attrs, c->a, &attrs);
    if (e == TARN_OK)
        e = apply_overrides(c, &attrs);
    if (e == TARN_OK)
        e = s3_object_headers(c, &row, &attrs, wants_checksum(c, &s, &row));
    if (e != TARN_OK)
        return e;
    tarn_resp_header(c->r, "Content-Type", attrs.content_type.n > 0 ? attrs.content_type : TARN_STR("binary/octet-stream"));
    if (s.partial && row.size > 0)
        tarn_resp_header(c->r, "Content-Range",
                         tarn_arena_fmt(c->a, "bytes %llu-%llu/%llu", (unsigned long long)s.off, (unsigned long long)(s.off + s.len - 1),
                                        (unsigned long long)row.size));
    int status = s.partial ? 206 : 200;
    if (head)
        return tarn_resp_send_head(c->r, status, s.len);
    if (s.len == 0)
        return tarn_resp_send(c->r, status, TARN_STR_NULL);
    tarn_get *g;
    e = tarn_get_open(c->s3->store, &row, s.off, s.len, c->a, &g);
    if (e != TARN_OK)
        return e;
    e = send_body(c, g, status, s.len);
    tarn_get_close(g);
    return e;
}

tarn_err s3_get_object(s3_ctx *c)
{
    return answer_object(c, false);
}

tarn_err s3_head_object(s3_ctx *c)
{
    return answer_object(c, true);
}

/* ------------------------------------------------------------------ GetObjectAttributes */
typedef struct attribute_set {
    bool etag, checksum, parts, storage_class, size;
} attribute_set;

static tarn_err parse_attribute_names(s3_ctx *c, attribute_set *s)
{
    const tarn_auth_view *v = tarn_req_view(c->r);
    size_t names = 0;
    for (size_t i = 0; i < v->headers_n; i++) {
        if (!tarn_str_ieqc(v->headers[i].name, "x-amz-object-attributes"))
            continue;
        tarn_str rest = v->headers[i].value;
        while (rest.n > 0) {
            tarn_str head;
            (void)tarn_str_split(rest, ',', &head, &rest);
            head = tarn_str_trim(head);
            names++;
            if (tarn_str_eqc(head, "ETag"))
                s->etag = true;
            else if (tarn_str_eqc(head, "Checksum"))
                s->checksum = true;
            else if (tarn_str_eqc(head, "ObjectParts"))
                s->parts = true;
            else if (tarn_str_eqc(head, "StorageClass"))
                s->storage_class = true;
            else if (tarn_str_eqc(head, "ObjectSize"))
                s->size = true;
            else
                return s3_bad_argument(c, "Invalid attribute name specified.", "x-amz-object-attributes", head);
        }
    }
    if (names == 0)
        return s3_fail(c, TARN_E_INVALID_REQUEST,
                       "The x-amz-object-attributes header specifying the attributes to be retrieved is either missing or empty");
    return TARN_OK;
}

static void write_checksum(s3_ctx *c, s3_xml *x, const tarn_checksum *sum, bool with_type)
{
    char name[32];
    tarn_sb b;
    tarn_sb_init_fixed(&b, name, sizeof name);
    tarn_sb_cstr(&b, "Checksum");
    tarn_sb_cstr(&b, tarn_sum_name(sum->kind));
    s3_xml_text(x, name, s3_checksum_text(c->a, sum));
    if (with_type)
        s3_xml_textc(x, "ChecksumType", sum->type == TARN_SUM_COMPOSITE ? "COMPOSITE" : "FULL_OBJECT");
}

static tarn_err header_number(s3_ctx *c, const char *name, uint64_t dflt, uint64_t max, uint64_t *out)
{
    tarn_str v = tarn_req_header(c->r, name);
    *out = dflt;
    if (v.p == NULL)
        return TARN_OK;
    if (!tarn_str_to_u64(v, out) || *out > INT32_MAX)
        return s3_bad_argument(c, "Provided argument is not an integer or not within its range", name, v);
    if (*out > max)
        *out = max;
    return TARN_OK;
}

static tarn_err write_parts(s3_ctx *c, s3_xml *x, const tarn_version_row *row, const tarn_attrs *attrs)
{
    uint64_t marker, max;
    tarn_part_span *parts;
    size_t n;
    tarn_err e = header_number(c, "x-amz-part-number-marker", 0, TARN_PARTS_MAX, &marker);
    if (e == TARN_OK)
        e = header_number(c, "x-amz-max-parts", 1000, 1000, &max);
    if (e == TARN_OK)
        e = tarn_object_parts(c->s3->store, row, c->a, &parts, &n);
    if (e != TARN_OK)
        return e;
    s3_xml_open(x, "ObjectParts");
    /* Single parts are listed only where each has a checksum of its own. */
    bool list = attrs->checksum.kind != TARN_SUM_NONE && attrs->checksum.type == TARN_SUM_COMPOSITE;
    uint64_t shown = 0, last = marker;
    for (size_t i = 0; i < n && list; i++) {
        if (parts[i].number <= marker)
            continue;
        if (shown == max)
            break;
        s3_xml_open(x, "Part");
        if (parts[i].checksum.kind != TARN_SUM_NONE)
            write_checksum(c, x, &parts[i].checksum, false);
        s3_xml_u64(x, "PartNumber", parts[i].number);
        s3_xml_u64(x, "Size", parts[i].size);
        s3_xml_close(x, "Part");
        last = parts[i].number;
        shown++;
    }
    s3_xml_bool(x, "IsTruncated", list && n > 0 && last < parts[n - 1].number && shown == max);
    s3_xml_u64(x, "MaxParts", max);
    s3_xml_u64(x, "NextPartNumberMarker", list ? last : 0);
    s3_xml_u64(x, "PartNumberMarker", marker);
    s3_xml_u64(x, "PartsCount", n);
    s3_xml_close(x, "ObjectParts");
    return TARN_OK;
}

tarn_err s3_get_object_attributes(s3_ctx *c)
{
    attribute_set s = {0};
    tarn_version_row row;
    tarn_attrs attrs;
    /* The object's own read permission is asked for too, not the attributes' alone. */
    tarn_err e = s3_may(c, s3_has_param(c, "versionId") ? "s3:GetObjectVersion" : "s3:GetObject");
    if (e == TARN_OK)
        e = parse_attribute_names(c, &s);
    if (e == TARN_OK)
        e = find_version(c, &row);
    if (e == TARN_OK)
        e = tarn_attrs_unpack(row.attrs, c->a, &attrs);
    if (e != TARN_OK)
        return e;
    s3_xml x;
    s3_xml_begin(&x, "GetObjectAttributesResponse");
    if (s.etag)
        s3_xml_text(&x, "ETag", row.etag);
    if (s.checksum && attrs.checksum.kind != TARN_SUM_NONE) {
        s3_xml_open(&x, "Checksum");
        write_checksum(c, &x, &attrs.checksum, true);
        s3_xml_close(&x, "Checksum");
    }
    if (s.parts && row.parts_n > 0)
        e = write_parts(c, &x, &row, &attrs);
    if (s.storage_class)
        s3_xml_text(&x, "StorageClass", attrs.storage_class.n > 0 ? attrs.storage_class : TARN_STR("STANDARD"));
    if (s.size)
        s3_xml_u64(&x, "ObjectSize", row.size);
    s3_xml_close(&x, "GetObjectAttributesResponse");
    if (e != TARN_OK) {
        tarn_sb_free(&x.b);
        return e;
    }
    last_modified_header(c, &row);
    s3_version_header(c, &row);
    return s3_xml_send(c, &x, 200);
}
