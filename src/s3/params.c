/* SPDX-License-Identifier: Apache-2.0 */
/* Query parameters and request headers of S3 operations: reading, checking, and the headers of answers that tell an object. */
#include "lifecycle.h"

#include <string.h>

/* ------------------------------------------------------------------ parameters */
tarn_str s3_param(s3_ctx *c, const char *name)
{
    const tarn_param *p = tarn_req_param(c->r, name);
    if (p == NULL)
        return TARN_STR_NULL;
    return p->value.p != NULL ? p->value : TARN_STR("");
}

bool s3_has_param(s3_ctx *c, const char *name)
{
    return tarn_req_param(c->r, name) != NULL;
}

tarn_err s3_version_param(s3_ctx *c, tarn_version_ref *out)
{
    tarn_str v = s3_param(c, "versionId");
    if (v.p == NULL) {
        *out = (tarn_version_ref){.sel = TARN_VERSION_CURRENT};
        return TARN_OK;
    }
    if (v.n == 0)
        return s3_bad_argument(c, "Version id cannot be the empty string", "versionId", v);
    if (!tarn_version_parse(v, out))
        return s3_bad_argument(c, "Invalid version id specified", "versionId", v);
    return TARN_OK;
}

tarn_err s3_number_param(s3_ctx *c, const char *name, uint64_t dflt, uint64_t max, uint64_t *out)
{
    tarn_str v = s3_param(c, name);
    if (v.p == NULL || v.n == 0) {
        *out = dflt;
        return TARN_OK;
    }
    uint64_t n;
    if (!tarn_str_to_u64(v, &n) || n > INT32_MAX)
        return s3_bad_argument(c, "Provided argument is not an integer or not within its range", name, v);
    *out = n < max ? n : max;
    return TARN_OK;
}

tarn_err s3_check_key(s3_ctx *c, tarn_str key)
{
    if (key.n > TARN_KEY_BYTES_MAX) {
        tarn_err_detail_add(&c->detail, "Size", tarn_arena_fmt(c->a, "%zu", key.n));
        tarn_err_detail_add(&c->detail, "MaxSizeAllowed", tarn_arena_fmt(c->a, "%d", TARN_KEY_BYTES_MAX));
        return TARN_E_KEY_TOO_LONG;
    }
    if (!tarn_str_utf8_valid(key))
        return s3_fail(c, TARN_E_INVALID_URI, "The object key is not valid UTF-8.");
    return TARN_OK;
}

/* ------------------------------------------------------------------ ETags, ranges, conditions */
bool s3_etag_strip(tarn_str in, tarn_str *out)
{
    tarn_str s = tarn_str_trim(in);
    if (tarn_str_starts(s, "W/"))
        s = tarn_str_sub(s, 2, s.n);
    bool quoted = s.n >= 2 && s.p[0] == '"' && s.p[s.n - 1] == '"';
    *out = quoted ? tarn_str_sub(s, 1, s.n - 2) : s;
    return out->n > 0;
}

/* All digits; what does not fit 64 bits lies behind the end of any object. */
static bool parse_offset(tarn_str s, uint64_t *out)
{
    for (size_t i = 0; i < s.n; i++)
        if (s.p[i] < '0' || s.p[i] > '9')
            return false;
    if (s.n > 0 && !tarn_str_to_u64(s, out))
        *out = UINT64_MAX;
    return s.n > 0;
}

s3_range_result s3_range_parse(tarn_str header, uint64_t size, uint64_t *off, uint64_t *len)
{
    if (header.p == NULL || !tarn_str_istarts(header, "bytes="))
        return S3_RANGE_NONE;
    tarn_str spec = tarn_str_sub(header, 6, header.n);
    if (tarn_str_chr(spec, ',') >= 0)
        return S3_RANGE_NONE;
    ptrdiff_t dash = tarn_str_chr(spec, '-');
    if (dash < 0)
        return S3_RANGE_NONE;
    tarn_str a = tarn_str_sub(spec, 0, (size_t)dash);
    tarn_str b = tarn_str_sub(spec, (size_t)dash + 1, spec.n);
    uint64_t first, last;
    if (a.n == 0) { /* the last b bytes */
        if (!parse_offset(b, &last))
            return S3_RANGE_NONE;
        if (last == 0)
            return S3_RANGE_UNSATISFIABLE;
        if (size == 0) /* RFC 9110: all of what is there, which is nothing */
            return S3_RANGE_NONE;
        *len = last < size ? last : size;
        *off = size - *len;
        return S3_RANGE_OK;
    }
    if (!parse_offset(a, &first))
        return S3_RANGE_NONE;
    last = UINT64_MAX;
    if (b.n > 0 && !parse_offset(b, &last))
        return S3_RANGE_NONE;
    if (last < first)
        return S3_RANGE_NONE;
    if (first >= size)
        return S3_RANGE_UNSATISFIABLE;
    if (last >= size)
        last = size - 1;
    *off = first;
    *len = last - first + 1;
    return S3_RANGE_OK;
}

static bool etag_listed(tarn_str list, tarn_str etag)
{
    while (list.n > 0) {
        tarn_str head, rest;
        (void)tarn_str_split(list, ',', &head, &rest);
        tarn_str t;
        if (s3_etag_strip(head, &t) && (tarn_str_eqc(t, "*") || tarn_str_eq(t, etag)))
            return true;
        list = rest;
    }
    return false;
}

static tarn_str prefixed_header(s3_ctx *c, const char *prefix, const char *name)
{
    char mem[64];
    tarn_sb b;
    tarn_sb_init_fixed(&b, mem, sizeof mem);
    tarn_sb_cstr(&b, prefix);
    tarn_sb_cstr(&b, name);
    TARN_ASSERT(!b.failed);
    return tarn_req_header(c->r, mem);
}

static tarn_err failed_condition(s3_ctx *c, const char *condition)
{
    tarn_err_detail_add(&c->detail, "Condition", tarn_str_of(condition));
    return TARN_E_PRECONDITION_FAILED;
}

tarn_err s3_check_conditions(s3_ctx *c, const char *prefix, const tarn_version_row *row)
{
    bool copy = prefix[0] != '\0';
    int64_t t, seconds = row->mtime_ms / 1000;
    tarn_str if_match = prefixed_header(c, prefix, "if-match");
    tarn_str if_none = prefixed_header(c, prefix, "if-none-match");
    if (if_match.p != NULL) {
        if (!etag_listed(if_match, row->etag))
            return failed_condition(c, "If-Match");
    } else {
        tarn_str since = prefixed_header(c, prefix, "if-unmodified-since");
        if (since.p != NULL && tarn_parse_http_date(since, &t) && seconds > t / 1000)
            return failed_condition(c, "If-Unmodified-Since");
    }
    if (if_none.p != NULL) {
        if (etag_listed(if_none, row->etag))
            return copy ? failed_condition(c, "If-None-Match") : TARN_E_NOT_MODIFIED;
    } else {
        tarn_str since = prefixed_header(c, prefix, "if-modified-since");
        if (since.p != NULL && tarn_parse_http_date(since, &t) && seconds <= t / 1000)
            return copy ? failed_condition(c, "If-Modified-Since") : TARN_E_NOT_MODIFIED;
    }
    return TARN_OK;
}

tarn_err s3_put_conditions(s3_ctx *c, tarn_put_conditions *out)
{
    *out = (tarn_put_conditions){0};
    tarn_str none = tarn_req_header(c->r, "if-none-match");
    tarn_str match = tarn_req_header(c->r, "if-match");
    if (none.p != NULL && match.p != NULL)
        return TARN_E_NOT_IMPLEMENTED; /* both of them */
    if (none.p != NULL) {
        tarn_str t;
        if (!s3_etag_strip(none, &t))
            return s3_bad_argument(c, "If-None-Match is empty", "If-None-Match", none);
        if (tarn_str_eqc(t, "*"))
            out->if_none_match_any = true;
        else
            out->if_none_match = t;
    }
    if (match.p != NULL && !s3_etag_strip(match, &out->if_match))
        return s3_bad_argument(c, "If-Match is empty", "If-Match", match);
    return TARN_OK;
}

/* ------------------------------------------------------------------ attributes of a new object */
static tarn_str without_aws_chunked(s3_ctx *c, tarn_str v)
{
    if (v.p == NULL)
        return v;
    tarn_sb b;
    char *mem = tarn_arena_alloc(c->a, v.n + 1);
    if (mem == NULL)
        return v;
    tarn_sb_init_fixed(&b, mem, v.n + 1);
    while (v.n > 0) {
        tarn_str head, rest;
        (void)tarn_str_split(v, ',', &head, &rest);
        head = tarn_str_trim(head);
        if (head.n > 0 && !tarn_str_ieqc(head, "aws-chunked")) {
            if (b.n > 0)
                tarn_sb_char(&b, ',');
            tarn_sb_str(&b, head);
        }
        v = rest;
    }
    tarn_str out = tarn_sb_view(&b);
    return out.n > 0 ? out : TARN_STR_NULL;
}

static tarn_err collect_user_meta(s3_ctx *c, tarn_attrs *out)
{
    const tarn_auth_view *v = tarn_req_view(c->r);
    size_t n = 0, bytes = 0;
    for (size_t i = 0; i < v->headers_n; i++)
        n += tarn_str_istarts(v->headers[i].name, "x-amz-meta-") ? 1 : 0;
    if (n == 0)
        return TARN_OK;
    tarn_pair *pairs = TARN_ARENA_ARRAY(c->a, tarn_pair, n);
    if (pairs == NULL)
        return TARN_E_NO_MEMORY;
    n = 0;
    for (size_t i = 0; i < v->headers_n; i++) {
        tarn_str name = v->headers[i].name;
        if (!tarn_str_istarts(name, "x-amz-meta-"))
            continue;
        tarn_str low = tarn_arena_str(c->a, tarn_str_sub(name, 11, name.n));
        if (low.p == NULL)
            return TARN_E_NO_MEMORY;
        for (size_t k = 0; k < low.n; k++)
            if (low.p[k] >= 'A' && low.p[k] <= 'Z')
                ((char *)(uintptr_t)low.p)[k] = (char)(low.p[k] + ('a' - 'A'));
        size_t same = 0;
        while (same < n && !tarn_str_eq(pairs[same].name, low))
            same++;
        bytes += v->headers[i].value.n + (same == n ? low.n : 1);
        if (same < n) { /* a repeated header: its values joined by a comma */
            pairs[same].value = tarn_arena_fmt(c->a, "%.*s,%.*s", TARN_STR_ARG(pairs[same].value), TARN_STR_ARG(v->headers[i].value));
            continue;
        }
        pairs[n++] = (tarn_pair){low, v->headers[i].value};
    }
    if (bytes > TARN_USER_META_BYTES_MAX) {
        tarn_err_detail_add(&c->detail, "Size", tarn_arena_fmt(c->a, "%zu", bytes));
        tarn_err_detail_add(&c->detail, "MaxSizeAllowed", tarn_arena_fmt(c->a, "%d", TARN_USER_META_BYTES_MAX));
        return TARN_E_METADATA_TOO_LARGE;
    }
    out->user_meta = pairs;
    out->user_meta_n = n;
    return TARN_OK;
}

tarn_err s3_check_redirect(s3_ctx *c, tarn_str v)
{
    (void)c;
    bool good = v.p == NULL || tarn_str_starts(v, "/") || tarn_str_starts(v, "http://") || tarn_str_starts(v, "https://");
    return good ? TARN_OK : TARN_E_INVALID_REDIRECT_LOCATION;
}

/* Classes whose objects can be read at once are kept as a name; those that would have to be restored first are not there. */
tarn_err s3_check_storage_class(s3_ctx *c, tarn_str v)
{
    static const char *const known[] = {"STANDARD", "REDUCED_REDUNDANCY", "STANDARD_IA", "ONEZONE_IA", "INTELLIGENT_TIERING", "GLACIER_IR"};
    if (v.p == NULL)
        return TARN_OK;
    for (size_t i = 0; i < TARN_ARRAY_LEN(known); i++)
        if (tarn_str_eqc(v, known[i]))
            return TARN_OK;
    return s3_fail_arg(c, TARN_E_INVALID_STORAGE_CLASS, NULL, "StorageClassRequested", v);
}

/* A key of the client's: bad ones get their own error, good ones the truth. */
static tarn_err refuse_client_key(s3_ctx *c, const char *prefix)
{
    uint8_t key[TARN_SHA256_BYTES + 1], md5[TARN_MD5_BYTES + 1], want[TARN_MD5_BYTES];
    size_t key_n, md5_n;
    tarn_str algorithm = prefixed_header(c, prefix, "algorithm"), key_text = prefixed_header(c, prefix, "key"),
             md5_text = prefixed_header(c, prefix, "key-md5");
    if (algorithm.p == NULL && key_text.p == NULL && md5_text.p == NULL)
        return TARN_OK;
    if (!tarn_str_eqc(algorithm, "AES256"))
        return s3_bad_argument(
            c, "Requests specifying Server Side Encryption with Customer provided keys must provide a valid encryption algorithm.",
            "x-amz-server-side-encryption-customer-algorithm", algorithm);
    bool good = tarn_base64_decode(key_text, key, sizeof key, &key_n) && key_n == TARN_SHA256_BYTES &&
                tarn_base64_decode(md5_text, md5, sizeof md5, &md5_n) && md5_n == TARN_MD5_BYTES;
    if (good)
        tarn_md5(key, key_n, want);
    good = good && tarn_equal_ct(md5, want, TARN_MD5_BYTES);
    tarn_wipe(key, sizeof key);
    if (!good)
        return s3_bad_argument(
            c, "Requests specifying Server Side Encryption with Customer provided keys must provide an appropriate secret key and its MD5.",
            "x-amz-server-side-encryption-customer-key", TARN_STR_NULL);
    return s3_fail(c, TARN_E_NOT_IMPLEMENTED, "Server-side encryption with customer-provided keys is not implemented.");
}

tarn_err s3_refuse_encryption(s3_ctx *c)
{
    tarn_str sse = tarn_req_header(c->r, "x-amz-server-side-encryption");
    const tarn_auth_view *v = tarn_req_view(c->r);
    tarn_err e = refuse_client_key(c, "x-amz-server-side-encryption-customer-");
    if (e == TARN_OK)
        e = refuse_client_key(c, "x-amz-copy-source-server-side-encryption-customer-");
    if (e != TARN_OK)
        return e;
    for (size_t i = 0; i < v->headers_n && sse.p == NULL; i++)
        if (tarn_str_istarts(v->headers[i].name, "x-amz-server-side-encryption-"))
            return s3_bad_argument(c, "x-amz-server-side-encryption must be given with the other headers of its kind.",
                                   "x-amz-server-side-encryption", TARN_STR_NULL);
    if (sse.p == NULL)
        return TARN_OK;
    if (tarn_str_eqc(sse, "AES256") || tarn_str_eqc(sse, "aws:kms") || tarn_str_eqc(sse, "aws:kms:dsse"))
        return s3_fail(c, TARN_E_NOT_IMPLEMENTED, "Server-side encryption is not implemented.");
    return s3_fail(c, TARN_E_INVALID_ENCRYPTION_ALGORITHM, NULL);
}

tarn_err s3_refuse_read_encryption(s3_ctx *c)
{
    const tarn_auth_view *v = tarn_req_view(c->r);
    for (size_t i = 0; i < v->headers_n; i++) {
        if (tarn_str_istarts(v->headers[i].name, "x-amz-server-side-encryption-customer-"))
            return s3_fail(c, TARN_E_INVALID_REQUEST, "The encryption parameters are not applicable to this object.");
        if (tarn_str_istarts(v->headers[i].name, "x-amz-server-side-encryption"))
            return s3_bad_argument(c, "x-amz-server-side-encryption header is not supported for this operation.",
                                   "x-amz-server-side-encryption", v->headers[i].value);
    }
    return TARN_OK;
}

/* Where the owner is enforced, only ACLs that give nothing to others are taken. */
static tarn_err check_object_acl(s3_ctx *c)
{
    tarn_str acl = tarn_req_header(c->r, "x-amz-acl");
    const tarn_auth_view *v = tarn_req_view(c->r);
    for (size_t i = 0; i < v->headers_n; i++)
        if (tarn_str_istarts(v->headers[i].name, "x-amz-grant-"))
            return TARN_E_ACL_NOT_SUPPORTED;
    return s3_check_canned_acl(c, acl);
}

tarn_err s3_attrs_from_headers(s3_ctx *c, tarn_attrs *out)
{
    *out = (tarn_attrs){0};
    tarn_err e = s3_refuse_encryption(c);
    if (e == TARN_OK)
        e = check_object_acl(c);
    if (e != TARN_OK)
        return e;
    out->content_type = tarn_req_header(c->r, "content-type");
    out->content_encoding = without_aws_chunked(c, tarn_req_header(c->r, "content-encoding"));
    out->content_language = tarn_req_header(c->r, "content-language");
    out->content_disposition = tarn_req_header(c->r, "content-disposition");
    out->cache_control = tarn_req_header(c->r, "cache-control");
    out->expires = tarn_req_header(c->r, "expires");
    out->website_redirect = tarn_req_header(c->r, "x-amz-website-redirect-location");
    e = s3_check_redirect(c, out->website_redirect);
    if (e != TARN_OK)
        return e;
    out->storage_class = tarn_req_header(c->r, "x-amz-storage-class");
    e = s3_check_storage_class(c, out->storage_class);
    if (e != TARN_OK)
        return e;
    if (tarn_str_eqc(out->storage_class, "STANDARD"))
        out->storage_class = TARN_STR_NULL;
    return collect_user_meta(c, out);
}

/* ------------------------------------------------------------------ answer headers */
tarn_str s3_canonical_id(s3_ctx *c, tarn_str access_key)
{
    tarn_identity id;
    if (access_key.n > 0 && tarn_auth_lookup(c->s3->auth, access_key, &id))
        return id.canonical_id;
    return tarn_auth_root(c->s3->auth)->canonical_id;
}

void s3_version_header(s3_ctx *c, const tarn_version_row *row)
{
    if (c->bucket.versioning == TARN_VERSIONING_OFF)
        return;
    char mem[40];
    tarn_sb b;
    tarn_sb_init_fixed(&b, mem, sizeof mem);
    tarn_version_format(&b, row);
    tarn_resp_header(c->r, "x-amz-version-id", tarn_sb_view(&b));
}

/* Of a version that was just made: S3 names a null version to readers only. */
void s3_new_version_header(s3_ctx *c, const tarn_version_row *row)
{
    if (!row->null_version)
        s3_version_header(c, row);
}

void s3_expiration_header(s3_ctx *c, const tarn_version_row *row)
{
    tarn_pair *tags = NULL;
    size_t tags_n = 0;
    int64_t when;
    char mem[1024];
    tarn_sb b;
    if (c->facts == NULL || c->facts->rules_n == 0)
        return;
    if (row->tags.n > 0 && tarn_tags_unpack(row->tags, c->a, &tags, &tags_n) != TARN_OK)
        return;
    const lc_rule *r = lc_expiration(c->facts->rules, c->facts->rules_n, row, tags, tags_n, c->s3->lifecycle_day_s, &when);
    if (r == NULL)
        return;
    tarn_sb_init_fixed(&b, mem, sizeof mem);
    tarn_sb_cstr(&b, "expiry-date=\"");
    tarn_sb_http_date(&b, when);
    tarn_sb_cstr(&b, "\", rule-id=\"");
    tarn_sb_urlencode(&b, r->id, false);
    tarn_sb_cstr(&b, "\"");
    tarn_resp_header(c->r, "x-amz-expiration", tarn_sb_view(&b));
}

void s3_etag_header(s3_ctx *c, tarn_str etag)
{
    char mem[96];
    tarn_sb b;
    tarn_sb_init_fixed(&b, mem, sizeof mem);
    tarn_sb_char(&b, '"');
    tarn_sb_str(&b, etag);
    tarn_sb_char(&b, '"');
    tarn_resp_header(c->r, "ETag", tarn_sb_view(&b));
}

tarn_str s3_checksum_text(tarn_arena *a, const tarn_checksum *sum)
{
    char mem[80];
    tarn_sb b;
    tarn_sb_init_fixed(&b, mem, sizeof mem);
    tarn_sb_base64(&b, sum->value, tarn_sum_bytes(sum->kind));
    if (sum->type == TARN_SUM_COMPOSITE && sum->parts_n > 0) {
        tarn_sb_char(&b, '-');
        tarn_sb_u64(&b, sum->parts_n);
    }
    return tarn_arena_str(a, tarn_sb_view(&b));
}

bool s3_checksum_parse(tarn_sum_kind kind, tarn_str text, tarn_checksum *out)
{
    tarn_checksum sum = {.kind = kind, .type = TARN_SUM_FULL_OBJECT};
    tarn_str b64 = tarn_str_trim(text);
    ptrdiff_t dash = tarn_str_rchr(b64, '-');
    if (dash >= 0) {
        uint64_t n;
        if (!tarn_str_to_u64(tarn_str_sub(b64, (size_t)dash + 1, b64.n), &n) || n == 0 || n > TARN_PARTS_MAX)
            return false;
        sum.parts_n = (uint32_t)n;
        sum.type = TARN_SUM_COMPOSITE;
        b64 = tarn_str_sub(b64, 0, (size_t)dash);
    }
    size_t n;
    if (!tarn_base64_decode(b64, sum.value, sizeof sum.value, &n) || n != tarn_sum_bytes(kind))
        return false;
    *out = sum;
    return true;
}

void s3_checksum_headers(s3_ctx *c, const tarn_checksum *sum)
{
    if (sum->kind == TARN_SUM_NONE || tarn_sum_header(sum->kind) == NULL)
        return;
    tarn_resp_header(c->r, tarn_sum_header(sum->kind), s3_checksum_text(c->a, sum));
    tarn_resp_headerc(c->r, "x-amz-checksum-type", sum->type == TARN_SUM_COMPOSITE ? "COMPOSITE" : "FULL_OBJECT");
}

static void lock_headers(s3_ctx *c, const tarn_version_row *row)
{
    if (row->retention != TARN_RETENTION_NONE) {
        char mem[40];
        tarn_sb b;
        tarn_sb_init_fixed(&b, mem, sizeof mem);
        tarn_sb_iso8601_ms(&b, row->retain_until_ms);
        tarn_resp_headerc(c->r, "x-amz-object-lock-mode", row->retention == TARN_RETENTION_COMPLIANCE ? "COMPLIANCE" : "GOVERNANCE");
        tarn_resp_header(c->r, "x-amz-object-lock-retain-until-date", tarn_sb_view(&b));
    }
    if (row->legal_hold)
        tarn_resp_headerc(c->r, "x-amz-object-lock-legal-hold", "ON");
}

static void text_header(s3_ctx *c, const char *name, tarn_str value)
{
    if (value.n > 0)
        tarn_resp_header(c->r, name, value);
}

static tarn_err user_meta_headers(s3_ctx *c, const tarn_attrs *attrs)
{
    for (size_t i = 0; i < attrs->user_meta_n; i++) {
        tarn_str name = tarn_arena_fmt(c->a, "x-amz-meta-%.*s", TARN_STR_ARG(attrs->user_meta[i].name));
        if (name.p == NULL)
            return TARN_E_NO_MEMORY;
        tarn_resp_header(c->r, name.p, attrs->user_meta[i].value);
    }
    return TARN_OK;
}

tarn_err s3_object_headers(s3_ctx *c, const tarn_version_row *row, const tarn_attrs *attrs, bool with_checksum)
{
    char mem[40];
    tarn_sb b;
    tarn_sb_init_fixed(&b, mem, sizeof mem);
    tarn_sb_http_date(&b, row->mtime_ms);
    tarn_resp_header(c->r, "Last-Modified", tarn_sb_view(&b));
    s3_etag_header(c, row->etag);
    s3_version_header(c, row);
    tarn_resp_headerc(c->r, "Accept-Ranges", "bytes");
    text_header(c, "Content-Encoding", attrs->content_encoding);
    text_header(c, "Content-Language", attrs->content_language);
    text_header(c, "Content-Disposition", attrs->content_disposition);
    text_header(c, "Cache-Control", attrs->cache_control);
    text_header(c, "Expires", attrs->expires);
    text_header(c, "x-amz-website-redirect-location", attrs->website_redirect);
    text_header(c, "x-amz-storage-class", attrs->storage_class);
    if (row->tags_n > 0)
        tarn_resp_header_u64(c->r, "x-amz-tagging-count", row->tags_n);
    if (row->parts_n > 0 && s3_has_param(c, "partNumber"))
        tarn_resp_header_u64(c->r, "x-amz-mp-parts-count", row->parts_n);
    lock_headers(c, row);
    if (row->current)
        s3_expiration_header(c, row);
    if (with_checksum)
        s3_checksum_headers(c, &attrs->checksum);
    return user_meta_headers(c, attrs);
}

tarn_err s3_send_empty(s3_ctx *c, int status)
{
    return tarn_resp_send(c->r, status, TARN_STR_NULL);
}

void s3_owner(s3_xml *x, const char *element, tarn_str canonical_id)
{
    s3_xml_open(x, element);
    s3_xml_text(x, "ID", canonical_id);
    s3_xml_textc(x, "DisplayName", "tarn");
    s3_xml_close(x, element);
}

/* ------------------------------------------------------------------ copy source */
tarn_err s3_copy_source(s3_ctx *c, tarn_str *bucket, tarn_str *key, tarn_version_ref *ref)
{
    tarn_str v = tarn_req_header(c->r, "x-amz-copy-source");
    *ref = (tarn_version_ref){.sel = TARN_VERSION_CURRENT};
    tarn_str raw = v;
    ptrdiff_t q = tarn_str_find(raw, TARN_STR("?versionId="));
    if (q >= 0) {
        tarn_str id = tarn_str_sub(raw, (size_t)q + 11, raw.n);
        if (id.n == 0 || !tarn_version_parse(id, ref))
            return s3_bad_argument(c, "Invalid version id specified", "x-amz-copy-source", v);
        raw = tarn_str_sub(raw, 0, (size_t)q);
    }
    tarn_str text;
    if (!tarn_urldecode(c->a, raw, false, &text))
        return s3_bad_argument(c, "Invalid copy source encoding", "x-amz-copy-source", v);
    if (tarn_str_starts(text, "/"))
        text = tarn_str_sub(text, 1, text.n);
    if (!tarn_str_split(text, '/', bucket, key) || bucket->n == 0 || key->n == 0 || tarn_str_chr(text, '\0') >= 0)
        return s3_bad_argument(c, "Invalid copy source object key", "x-amz-copy-source", v);
    return s3_check_key(c, *key);
}
