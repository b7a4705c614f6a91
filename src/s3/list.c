/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ListObjects, ListObjectsV2, ListObjectVersions.
 *
 * Rows are written into the answer as they are read; what is known only at the end (IsTruncated, the next marker) follows them.
 * A continuation token is base64url of one letter ('k': a key, 'p': a common prefix) and the name: safe in XML and in URLs.
 * Invariant: a page holds at most max-keys keys and common prefixes together, and the next page begins right behind them.
 */
#include "list_row.h"

#include <string.h>

#define SCRATCH_BYTES_MAX (256 * 1024)
#define TOKEN_BYTES_MAX (TARN_KEY_BYTES_MAX + 2)

typedef struct page {
    s3_ctx *c;
    s3_xml x;
    tarn_arena *scratch; /* for one row */
    uint64_t max;
    uint64_t count;
    bool truncated;
    bool url; /* encoding-type=url */
    bool versions;
    s3_row_style style;
    tarn_str owner_id;
    tarn_str prefix, delimiter;
    /* last thing written */
    tarn_str last_key; /* in mem */
    bool last_is_prefix;
    tarn_version_row last_version; /* seq, nonce, flags only */
    char mem[TARN_KEY_BYTES_MAX + 8];
    tarn_list_query q;
} page;

static void remember(page *p, tarn_str name, bool is_prefix)
{
    TARN_ASSERT(name.n > 0 && name.n <= sizeof p->mem);
    memcpy(p->mem, name.p, name.n);
    p->last_key = (tarn_str){p->mem, name.n};
    p->last_is_prefix = is_prefix;
}

/* Room for one more? If not, there is more than fits: the page is truncated. */
static bool take(page *p)
{
    if (p->count == p->max) {
        p->truncated = true;
        return false;
    }
    p->count++;
    return true;
}

/* Attributes that can't be read are left out: the listing must not end because of them. */
static void unpack(page *p, const tarn_version_row *row, tarn_attrs *attrs)
{
    tarn_arena_reset(p->scratch);
    if (tarn_attrs_unpack(row->attrs, p->scratch, attrs) != TARN_OK)
        *attrs = (tarn_attrs){0};
}

static void write_attributes(page *p, const tarn_version_row *row)
{
    tarn_attrs attrs;
    unpack(p, row, &attrs);
    if (attrs.checksum.kind != TARN_SUM_NONE && tarn_sum_header(attrs.checksum.kind) != NULL) {
        s3_xml_textc(&p->x, "ChecksumAlgorithm", tarn_sum_name(attrs.checksum.kind));
        s3_xml_textc(&p->x, "ChecksumType", attrs.checksum.type == TARN_SUM_COMPOSITE ? "COMPOSITE" : "FULL_OBJECT");
    }
    s3_xml_u64(&p->x, "Size", row->size);
    if (attrs.storage_class.n > 0)
        s3_xml_text(&p->x, "StorageClass", attrs.storage_class);
    else
        tarn_sb_cstr(&p->x.b, "<StorageClass>STANDARD</StorageClass>");
}

static bool on_object(void *ctx, const tarn_version_row *row)
{
    page *p = ctx;
    tarn_attrs attrs;
    if (!take(p))
        return false;
    unpack(p, row, &attrs);
    s3_list_contents(&p->x.b, row, &attrs, &p->style);
    remember(p, row->key, false);
    return !p->x.b.failed;
}

static bool on_version(void *ctx, const tarn_version_row *row)
{
    page *p = ctx;
    char mem[40];
    tarn_sb b;
    if (!take(p))
        return false;
    const char *element = row->delete_marker ? "DeleteMarker" : "Version";
    s3_xml_open(&p->x, element);
    s3_xml_key(&p->x, "Key", row->key, p->url);
    tarn_sb_init_fixed(&b, mem, sizeof mem);
    tarn_version_format(&b, row);
    s3_xml_text(&p->x, "VersionId", tarn_sb_view(&b));
    s3_xml_bool(&p->x, "IsLatest", row->current);
    s3_xml_time(&p->x, "LastModified", row->mtime_ms);
    if (!row->delete_marker) {
        s3_xml_etag(&p->x, row->etag);
        write_attributes(p, row);
    }
    s3_owner(&p->x, "Owner", p->owner_id);
    s3_xml_close(&p->x, element);
    p->last_version = *row;
    remember(p, row->key, false);
    return !p->x.b.failed;
}

static bool on_prefix(void *ctx, tarn_str common)
{
    page *p = ctx;
    if (!take(p))
        return false;
    tarn_sb_cstr(&p->x.b, "<CommonPrefixes>");
    s3_xml_key(&p->x, "Prefix", common, p->url);
    tarn_sb_cstr(&p->x.b, "</CommonPrefixes>");
    remember(p, common, true);
    return !p->x.b.failed;
}

/* ------------------------------------------------------------------ what all three share */
static tarn_err page_begin(s3_ctx *c, page *p, const char *root)
{
    tarn_str enc = s3_param(c, "encoding-type");
    if (enc.n > 0 && !tarn_str_ieqc(enc, "url"))
        return s3_bad_argument(c, "Invalid Encoding Method specified in Request", "encoding-type", enc);
    tarn_err e = s3_number_param(c, "max-keys", S3_LIST_KEYS_MAX, S3_LIST_KEYS_MAX, &p->max);
    if (e != TARN_OK)
        return e;
    p->c = c;
    p->url = enc.n > 0;
    tarn_str prefix = s3_param(c, "prefix"), delimiter = s3_param(c, "delimiter");
    p->prefix = prefix.p != NULL ? prefix : TARN_STR("");
    p->delimiter = delimiter.p != NULL ? delimiter : TARN_STR("");
    p->owner_id = s3_canonical_id(c, c->bucket.owner);
    p->style = (s3_row_style){.url = p->url, .owner_id = p->owner_id};
    p->scratch = tarn_arena_new(SCRATCH_BYTES_MAX);
    if (p->scratch == NULL)
        return TARN_E_NO_MEMORY;
    p->q = (tarn_list_query){.bucket_id = c->bucket.id, .prefix = p->prefix, .delimiter = p->delimiter};
    s3_xml_begin(&p->x, root);
    s3_xml_text(&p->x, "Name", c->bucket.name);
    return TARN_OK;
}

static tarn_err page_scan(page *p)
{
    if (p->max == 0)
        return TARN_OK;
    tarn_list_sink sink = {.on_version = p->versions ? on_version : on_object, .on_prefix = on_prefix, .ctx = p};
    return tarn_meta_list(p->c->s3->meta, &p->q, &sink);
}

/* Writes what follows the rows and sends, or frees everything on an error. */
static tarn_err page_end(page *p, const char *root, tarn_err e)
{
    tarn_arena_free(p->scratch);
    if (e != TARN_OK) {
        tarn_sb_free(&p->x.b);
        return e;
    }
    s3_xml_u64(&p->x, "MaxKeys", p->max);
    if (p->delimiter.n > 0)
        s3_xml_key(&p->x, "Delimiter", p->delimiter, p->url);
    if (p->url)
        s3_xml_textc(&p->x, "EncodingType", "url");
    s3_xml_bool(&p->x, "IsTruncated", p->truncated);
    s3_xml_close(&p->x, root);
    return s3_xml_send(p->c, &p->x, 200);
}

/* A marker that ends in the delimiter may be a common prefix of an earlier page: what lies under it is skipped. */
static bool is_common_prefix(const page *p, tarn_str after)
{
    if (p->delimiter.n == 0 || after.n <= p->prefix.n || !tarn_str_eq(tarn_str_sub(after, 0, p->prefix.n), p->prefix))
        return false;
    tarn_str tail = tarn_str_sub(after, p->prefix.n, after.n);
    ptrdiff_t at = tarn_str_find(tail, p->delimiter);
    return at >= 0 && (size_t)at + p->delimiter.n == tail.n;
}

/* ------------------------------------------------------------------ ListObjects */
tarn_err s3_list_v1(s3_ctx *c)
{
    page p = {0};
    tarn_err e = page_begin(c, &p, "ListBucketResult");
    if (e != TARN_OK)
        return e;
    tarn_str marker = s3_param(c, "marker");
    s3_xml_key(&p.x, "Prefix", p.prefix, false); /* S3 and its clients leave this one element as it is */
    p.style.owner = true;
    p.q.after = marker.p != NULL ? marker : TARN_STR("");
    p.q.after_is_prefix = is_common_prefix(&p, p.q.after);
    s3_xml_key(&p.x, "Marker", p.q.after, p.url);
    e = page_scan(&p);
    if (e == TARN_OK && p.truncated && p.delimiter.n > 0)
        s3_xml_key(&p.x, "NextMarker", p.last_key, p.url);
    return page_end(&p, "ListBucketResult", e);
}

/* ------------------------------------------------------------------ ListObjectsV2 */
static tarn_str make_token(s3_ctx *c, const page *p)
{
    char raw[TOKEN_BYTES_MAX + 8];
    char text[TOKEN_BYTES_MAX * 2];
    tarn_sb b, t;
    tarn_sb_init_fixed(&b, raw, sizeof raw);
    tarn_sb_char(&b, p->last_is_prefix ? 'p' : 'k');
    tarn_sb_str(&b, p->last_key);
    tarn_sb_init_fixed(&t, text, sizeof text);
    tarn_sb_base64url(&t, b.p, b.n);
    return tarn_arena_str(c->a, tarn_sb_view(&t));
}

static bool read_token(s3_ctx *c, tarn_str token, page *p)
{
    uint8_t raw[TOKEN_BYTES_MAX + 8];
    size_t n;
    if (!tarn_base64url_decode(token, raw, sizeof raw, &n) || n < 1 || (raw[0] != 'k' && raw[0] != 'p'))
        return false;
    p->q.after = tarn_arena_str(c->a, (tarn_str){(const char *)raw + 1, n - 1});
    p->q.after_is_prefix = raw[0] == 'p';
    return p->q.after.p != NULL;
}

tarn_err s3_list_v2(s3_ctx *c)
{
    page p = {0};
    if (!tarn_str_eqc(s3_param(c, "list-type"), "2"))
        return s3_bad_argument(c, "Invalid list-type", "list-type", s3_param(c, "list-type"));
    tarn_str token = s3_param(c, "continuation-token"), start = s3_param(c, "start-after");
    tarn_err e = page_begin(c, &p, "ListBucketResult");
    if (e != TARN_OK)
        return e;
    s3_xml_key(&p.x, "Prefix", p.prefix, p.url);
    p.style.owner = tarn_str_ieqc(s3_param(c, "fetch-owner"), "true");
    p.q.after = start.p != NULL ? start : TARN_STR("");
    p.q.after_is_prefix = is_common_prefix(&p, p.q.after);
    if (token.p != NULL)
        s3_xml_text(&p.x, "ContinuationToken", token);
    if (token.n > 0 && !read_token(c, token, &p))
        e = s3_bad_argument(c, "The continuation token provided is incorrect", "continuation-token", token);
    if (start.n > 0)
        s3_xml_key(&p.x, "StartAfter", start, p.url);
    if (e == TARN_OK)
        e = page_scan(&p);
    if (e == TARN_OK) {
        s3_xml_u64(&p.x, "KeyCount", p.count);
        if (p.truncated)
            s3_xml_text(&p.x, "NextContinuationToken", make_token(c, &p));
    }
    return page_end(&p, "ListBucketResult", e);
}

/* ------------------------------------------------------------------ ListObjectVersions */
/* The version in version-id-marker; "null" is looked up, since its place is its seq. */
static tarn_err read_version_marker(s3_ctx *c, page *p, tarn_str key, tarn_str id)
{
    tarn_version_ref ref;
    if (id.n == 0)
        return TARN_OK;
    if (key.n == 0)
        return s3_bad_argument(c, "A version-id marker cannot be specified without a key marker.", "version-id-marker", id);
    if (!tarn_version_parse(id, &ref))
        return s3_bad_argument(c, "Invalid version id specified", "version-id-marker", id);
    p->q.after_seq = ref.seq;
    if (ref.sel == TARN_VERSION_NULL) {
        tarn_version_row row;
        tarn_err e = tarn_meta_version_get(c->s3->meta, NULL, c->bucket.id, key, true, 0, 0, c->a, &row);
        if (e == TARN_E_NO_SUCH_VERSION)
            return TARN_OK;
        if (e != TARN_OK)
            return e;
        p->q.after_seq = row.seq;
    }
    return TARN_OK;
}

tarn_err s3_list_versions(s3_ctx *c)
{
    page p = {0};
    tarn_str key = s3_param(c, "key-marker"), id = s3_param(c, "version-id-marker");
    tarn_err e = page_begin(c, &p, "ListVersionsResult");
    if (e != TARN_OK)
        return e;
    s3_xml_key(&p.x, "Prefix", p.prefix, p.url);
    p.versions = p.q.versions = true;
    p.q.after = key.p != NULL ? key : TARN_STR("");
    p.q.after_is_prefix = id.n == 0 && is_common_prefix(&p, p.q.after);
    e = read_version_marker(c, &p, p.q.after, id);
    s3_xml_key(&p.x, "KeyMarker", p.q.after, p.url);
    s3_xml_text(&p.x, "VersionIdMarker", id);
    if (e == TARN_OK)
        e = page_scan(&p);
    if (e == TARN_OK && p.truncated) {
        char mem[40];
        tarn_sb b;
        s3_xml_key(&p.x, "NextKeyMarker", p.last_key, p.url);
        if (!p.last_is_prefix) {
            tarn_sb_init_fixed(&b, mem, sizeof mem);
            tarn_version_format(&b, &p.last_version);
            s3_xml_text(&p.x, "NextVersionIdMarker", tarn_sb_view(&b));
        }
    }
    return page_end(&p, "ListVersionsResult", e);
}
