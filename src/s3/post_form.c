/* SPDX-License-Identifier: Apache-2.0 */
/*
 * POST Object: an upload by an HTML form (multipart/form-data, RFC 7578; S3 API reference, "POST Object").
 *
 * States: preamble → part headers → field value → … → file → closing boundary. Fields before the file are kept in the arena
 * (bounded in number and size); the file is streamed into the store while the closing boundary is looked for in a window that
 * always holds back the last bytes which may belong to it. Fields after the file are ignored, as S3 does.
 */
#include "s3_internal.h"

#include <string.h>

#define WINDOW_BYTES (128 * 1024)
#define BOUNDARY_BYTES_MAX 200
#define FIELDS_MAX 100
#define FIELD_BYTES_MAX (64 * 1024)
#define PART_HEAD_BYTES_MAX 4096

typedef struct form {
    s3_ctx *c;
    char delim[BOUNDARY_BYTES_MAX + 8]; /* CR LF -- boundary */
    size_t delim_n;
    uint8_t *win;
    size_t at, n; /* unread bytes of the window: [at, n) */
    bool eof;
    tarn_pair fields[FIELDS_MAX];
    size_t fields_n;
    tarn_str filename;
    bool has_file;
} form;

/* ------------------------------------------------------------------ window */
static tarn_err fill(form *f)
{
    size_t got;
    if (f->at > 0) {
        memmove(f->win, f->win + f->at, f->n - f->at);
        f->n -= f->at;
        f->at = 0;
    }
    if (f->n == WINDOW_BYTES || f->eof)
        return TARN_OK;
    tarn_err e = tarn_req_read(f->c->r, f->win + f->n, WINDOW_BYTES - f->n, &got);
    if (e != TARN_OK)
        return e;
    f->eof = got == 0;
    f->n += got;
    return TARN_OK;
}

static tarn_str unread(const form *f)
{
    return (tarn_str){(const char *)f->win + f->at, f->n - f->at};
}

/* Makes sure that `needle` is in the window; at most max bytes ahead. */
static tarn_err seek_to(form *f, tarn_str needle, size_t max, size_t *pos)
{
    for (;;) {
        ptrdiff_t i = tarn_str_find(unread(f), needle);
        if (i >= 0 && (size_t)i <= max) {
            *pos = (size_t)i;
            return TARN_OK;
        }
        if (i >= 0 || f->n - f->at > max + needle.n || f->eof)
            return TARN_E_MALFORMED_POST;
        tarn_err e = fill(f);
        if (e != TARN_OK)
            return e;
    }
}

/* ------------------------------------------------------------------ boundaries and part heads */
static tarn_err read_boundary(form *f)
{
    tarn_str ct = tarn_req_header(f->c->r, "content-type");
    ptrdiff_t i = tarn_str_find(ct, TARN_STR("boundary="));
    if (!tarn_str_istarts(ct, "multipart/form-data") || i < 0) {
        tarn_err_detail_add(&f->c->detail, "Condition", TARN_STR("Bucket POST must be of the enclosure-type multipart/form-data"));
        return TARN_E_PRECONDITION_FAILED;
    }
    tarn_str b = tarn_str_sub(ct, (size_t)i + 9, ct.n);
    ptrdiff_t semi = tarn_str_chr(b, ';');
    if (semi >= 0)
        b = tarn_str_sub(b, 0, (size_t)semi);
    b = tarn_str_trim(b);
    if (b.n >= 2 && b.p[0] == '"' && b.p[b.n - 1] == '"')
        b = tarn_str_sub(b, 1, b.n - 2);
    if (b.n == 0 || b.n > BOUNDARY_BYTES_MAX)
        return TARN_E_MALFORMED_POST;
    tarn_sb sb;
    tarn_sb_init_fixed(&sb, f->delim, sizeof f->delim);
    tarn_sb_cstr(&sb, "\r\n--");
    tarn_sb_str(&sb, b);
    f->delim_n = sb.n;
    return sb.failed ? TARN_E_MALFORMED_POST : TARN_OK;
}

/* Behind a delimiter: "--" ends the form, CR LF begins a part. */
static tarn_err after_delimiter(form *f, bool *end)
{
    while (f->n - f->at < 2) {
        if (f->eof)
            return TARN_E_MALFORMED_POST;
        tarn_err e = fill(f);
        if (e != TARN_OK)
            return e;
    }
    *end = memcmp(f->win + f->at, "--", 2) == 0;
    bool line = memcmp(f->win + f->at, "\r\n", 2) == 0;
    f->at += 2;
    return *end || line ? TARN_OK : TARN_E_MALFORMED_POST;
}

/* The end of a value that begins at v.p[at]: behind the closing quote, or at the next ';'. */
static size_t value_end(tarn_str v, size_t at)
{
    if (at < v.n && v.p[at] == '"') {
        for (at++; at < v.n && v.p[at] != '"'; at++)
            if (v.p[at] == '\\' && at + 1 < v.n)
                at++;
        return at < v.n ? at + 1 : at;
    }
    while (at < v.n && v.p[at] != ';')
        at++;
    return at;
}

/* name="…" of a Content-Disposition; {NULL,0} when it is not there. Browsers escape a quote as %22 or \": the latter is undone. */
static tarn_str disposition_param(tarn_arena *a, tarn_str v, const char *name)
{
    size_t at = 0;
    while (at < v.n) {
        size_t start = at;
        while (at < v.n && v.p[at] != '=' && v.p[at] != ';')
            at++;
        tarn_str k = tarn_str_trim(tarn_str_sub(v, start, at - start));
        if (at == v.n || v.p[at] == ';') {
            at++;
            continue;
        }
        size_t end = value_end(v, ++at);
        tarn_str val = tarn_str_trim(tarn_str_sub(v, at, end - at));
        at = end < v.n && v.p[end] == ';' ? end + 1 : end;
        if (!tarn_str_ieqc(k, name))
            continue;
        if (val.n < 2 || val.p[0] != '"' || val.p[val.n - 1] != '"')
            return val.p != NULL ? val : TARN_STR("");
        char *mem = tarn_arena_alloc(a, val.n);
        size_t n = 0;
        for (size_t i = 1; mem != NULL && i + 1 < val.n; i++) {
            if (val.p[i] == '\\' && i + 2 < val.n && (val.p[i + 1] == '"' || val.p[i + 1] == '\\'))
                i++;
            mem[n++] = val.p[i];
        }
        return (tarn_str){mem, n};
    }
    return TARN_STR_NULL;
}

static tarn_err read_part_head(form *f, tarn_str *name, tarn_str *filename)
{
    size_t len;
    tarn_err e = seek_to(f, TARN_STR("\r\n\r\n"), PART_HEAD_BYTES_MAX, &len);
    if (e != TARN_OK)
        return e;
    tarn_str head = tarn_arena_str(f->c->a, tarn_str_sub(unread(f), 0, len));
    if (head.p == NULL)
        return TARN_E_NO_MEMORY;
    f->at += len + 4;
    *name = *filename = TARN_STR_NULL;
    while (head.n > 0) {
        ptrdiff_t i = tarn_str_find(head, TARN_STR("\r\n"));
        tarn_str line = i < 0 ? head : tarn_str_sub(head, 0, (size_t)i), k, v;
        head = i < 0 ? TARN_STR_NULL : tarn_str_sub(head, (size_t)i + 2, head.n);
        if (!tarn_str_split(line, ':', &k, &v))
            return TARN_E_MALFORMED_POST;
        v = tarn_str_trim(v);
        if (!tarn_str_ieqc(k, "content-disposition"))
            continue;
        *name = disposition_param(f->c->a, v, "name");
        *filename = disposition_param(f->c->a, v, "filename");
    }
    return name->p != NULL ? TARN_OK : TARN_E_MALFORMED_POST;
}

static tarn_err add_field(form *f, tarn_str name, tarn_str value)
{
    if (f->fields_n == FIELDS_MAX)
        return s3_fail(f->c, TARN_E_INVALID_REQUEST, "The form has too many fields.");
    tarn_str low = tarn_arena_str(f->c->a, name), v = tarn_arena_str(f->c->a, value);
    if (low.p == NULL || v.p == NULL)
        return TARN_E_NO_MEMORY;
    for (size_t i = 0; i < low.n; i++)
        if (low.p[i] >= 'A' && low.p[i] <= 'Z')
            ((char *)(uintptr_t)low.p)[i] = (char)(low.p[i] + ('a' - 'A'));
    f->fields[f->fields_n++] = (tarn_pair){low, v};
    return TARN_OK;
}

static tarn_str field(const form *f, const char *name)
{
    for (size_t i = 0; i < f->fields_n; i++)
        if (tarn_str_eqc(f->fields[i].name, name))
            return f->fields[i].value;
    return TARN_STR_NULL;
}

/* Reads up to the first byte of the file. */
static tarn_err read_fields(form *f)
{
    size_t len;
    tarn_str first = {f->delim + 2, f->delim_n - 2};
    tarn_err e = seek_to(f, first, PART_HEAD_BYTES_MAX, &len);
    if (e != TARN_OK)
        return e;
    f->at += len + first.n;
    for (;;) {
        bool end;
        tarn_str name, filename;
        e = after_delimiter(f, &end);
        if (e != TARN_OK)
            return e;
        if (end)
            return TARN_OK;
        e = read_part_head(f, &name, &filename);
        if (e != TARN_OK)
            return e;
        if (tarn_str_ieqc(name, "file")) {
            f->has_file = true;
            f->filename = filename;
            return TARN_OK;
        }
        e = seek_to(f, (tarn_str){f->delim, f->delim_n}, FIELD_BYTES_MAX, &len);
        if (e == TARN_OK)
            e = add_field(f, name, tarn_str_sub(unread(f), 0, len));
        if (e != TARN_OK)
            return e;
        f->at += len + f->delim_n;
    }
}

/* ------------------------------------------------------------------ who, what, where */
static tarn_err replace_filename(form *f)
{
    for (size_t i = 0; i < f->fields_n; i++) {
        tarn_str v = f->fields[i].value;
        ptrdiff_t at = tarn_str_find(v, TARN_STR("${filename}"));
        if (at < 0)
            continue;
        tarn_str base = f->filename;
        ptrdiff_t slash = tarn_str_rchr(base, '/');
        if (slash >= 0)
            base = tarn_str_sub(base, (size_t)slash + 1, base.n);
        f->fields[i].value =
            tarn_arena_fmt(f->c->a, "%.*s%.*s%.*s", (int)at, v.p, TARN_STR_ARG(base), TARN_STR_ARG(tarn_str_sub(v, (size_t)at + 11, v.n)));
        if (f->fields[i].value.p == NULL)
            return TARN_E_NO_MEMORY;
    }
    return TARN_OK;
}

/* Either all fields of a signature are there, or none (then the form is anonymous). */
static tarn_err verify(form *f, tarn_str *policy_json)
{
    s3_ctx *c = f->c;
    *policy_json = TARN_STR_NULL;
    tarn_form_auth a = {.policy_base64 = field(f, "policy"),
                        .algorithm = field(f, "x-amz-algorithm"),
                        .credential = field(f, "x-amz-credential"),
                        .amz_date = field(f, "x-amz-date"),
                        .signature = field(f, "x-amz-signature"),
                        .security_token = field(f, "x-amz-security-token"),
                        .v2_access_key = field(f, "awsaccesskeyid"),
                        .v2_signature = field(f, "signature")};
    tarn_err e = tarn_auth_verify_form(c->s3->auth, &a, tarn_req_time_ms(c->r), c->a, &c->auth, &c->detail);
    if (e != TARN_OK)
        return e;
    tarn_req_set_identity(c->r, c->auth.access_key);
    if (a.policy_base64.p == NULL)
        return TARN_OK;
    size_t n;
    uint8_t *json = tarn_arena_alloc(c->a, a.policy_base64.n + 4);
    if (json == NULL)
        return TARN_E_NO_MEMORY;
    if (!tarn_base64_decode(a.policy_base64, json, a.policy_base64.n + 4, &n))
        return s3_fail(c, TARN_E_INVALID_POLICY_DOCUMENT, "Invalid Policy: Invalid Base64.");
    *policy_json = (tarn_str){(const char *)json, n};
    return TARN_OK;
}

static tarn_err form_user_meta(form *f, tarn_attrs *a)
{
    size_t n = 0, bytes = 0;
    tarn_pair *pairs = TARN_ARENA_ARRAY(f->c->a, tarn_pair, FIELDS_MAX);
    if (pairs == NULL)
        return TARN_E_NO_MEMORY;
    for (size_t i = 0; i < f->fields_n; i++) {
        if (!tarn_str_starts(f->fields[i].name, "x-amz-meta-"))
            continue;
        pairs[n] = (tarn_pair){tarn_str_sub(f->fields[i].name, 11, f->fields[i].name.n), f->fields[i].value};
        bytes += pairs[n].name.n + pairs[n].value.n;
        n++;
    }
    a->user_meta = pairs;
    a->user_meta_n = n;
    return bytes > TARN_USER_META_BYTES_MAX ? TARN_E_METADATA_TOO_LARGE : TARN_OK;
}

static tarn_err form_tags(form *f, tarn_put_spec *spec)
{
    tarn_str xml = field(f, "tagging");
    tarn_pair *tags;
    size_t n;
    s3_node *root;
    if (xml.n == 0)
        return TARN_OK;
    tarn_err e = s3_xml_parse(xml, f->c->a, &root);
    if (e == TARN_OK)
        e = s3_tags_from_xml(root, f->c->a, &tags, &n);
    if (e == TARN_OK)
        e = s3_tags_check(f->c, tags, n, TARN_OBJECT_TAGS_MAX);
    if (e == TARN_OK)
        e = tarn_tags_pack(tags, n, f->c->a, &spec->tags);
    if (e != TARN_OK)
        return e;
    spec->tags_n = (uint32_t)n;
    f->c->request_tags = tags;
    f->c->request_tags_n = n;
    return TARN_OK;
}

/* Fields that ask for what is not there, or what an owner-enforced bucket does not give. */
static tarn_err form_refuse(form *f)
{
    tarn_err e = s3_check_canned_acl(f->c, field(f, "acl"));
    if (e != TARN_OK)
        return e;
    for (size_t i = 0; i < f->fields_n; i++) {
        if (tarn_str_starts(f->fields[i].name, "x-amz-server-side-encryption"))
            return s3_fail(f->c, TARN_E_NOT_IMPLEMENTED, "Server-side encryption is not implemented.");
        if (tarn_str_starts(f->fields[i].name, "x-amz-object-lock-"))
            return s3_fail(f->c, TARN_E_NOT_IMPLEMENTED, "Object lock fields in forms are not implemented.");
    }
    e = s3_check_redirect(f->c, field(f, "x-amz-website-redirect-location"));
    return e == TARN_OK ? s3_check_storage_class(f->c, field(f, "x-amz-storage-class")) : e;
}

static tarn_err form_checksum(form *f, tarn_checksum *sum)
{
    *sum = (tarn_checksum){.kind = TARN_SUM_NONE};
    for (size_t i = 0; i < f->fields_n; i++) {
        tarn_str name = f->fields[i].name;
        tarn_sum_kind k = tarn_sum_by_header(name);
        if (!tarn_str_starts(name, "x-amz-checksum-") || tarn_str_eqc(name, "x-amz-checksum-algorithm"))
            continue;
        if (k == TARN_SUM_NONE)
            return s3_fail(f->c, TARN_E_INVALID_REQUEST, "The algorithm type you specified in x-amz-checksum- header is invalid.");
        if (sum->kind != TARN_SUM_NONE)
            return s3_fail(f->c, TARN_E_INVALID_REQUEST,
                           "Expecting a single x-amz-checksum- header. Multiple checksum Types are not allowed.");
        if (!s3_checksum_parse(k, f->fields[i].value, sum) || sum->type == TARN_SUM_COMPOSITE) {
            f->c->detail.message = tarn_arena_fmt(f->c->a, "Value for %s header is invalid.", tarn_sum_header(k));
            return TARN_E_INVALID_REQUEST;
        }
    }
    return TARN_OK;
}

static tarn_err build_spec(form *f, tarn_put_spec *spec, tarn_checksum *sum)
{
    s3_ctx *c = f->c;
    tarn_str key = field(f, "key");
    if (key.n == 0)
        return s3_bad_argument(c,
                               "Bucket POST must contain a field named 'key'.  If it is specified, please check the order of the fields.",
                               "key", TARN_STR_NULL);
    tarn_err e = s3_check_key(c, key);
    if (e != TARN_OK)
        return e;
    c->key = key;
    spec->bucket = &c->bucket;
    spec->key = key;
    spec->size_hint = UINT64_MAX;
    spec->attrs.content_type = field(f, "content-type");
    spec->attrs.cache_control = field(f, "cache-control");
    spec->attrs.content_disposition = field(f, "content-disposition");
    spec->attrs.content_encoding = field(f, "content-encoding");
    spec->attrs.content_language = field(f, "content-language");
    spec->attrs.expires = field(f, "expires");
    spec->attrs.website_redirect = field(f, "x-amz-website-redirect-location");
    if (!tarn_str_eqc(field(f, "x-amz-storage-class"), "STANDARD"))
        spec->attrs.storage_class = field(f, "x-amz-storage-class");
    e = form_refuse(f);
    if (e == TARN_OK)
        e = form_user_meta(f, &spec->attrs);
    if (e == TARN_OK)
        e = form_tags(f, spec);
    if (e == TARN_OK)
        e = form_checksum(f, sum);
    if (e == TARN_OK)
        e = s3_default_retention(c, &c->bucket, &spec->retention, &spec->retain_until_ms);
    spec->attrs.checksum.kind = sum->kind;
    return e;
}

/* ------------------------------------------------------------------ the file */
static tarn_err stream_file(form *f, tarn_put *p, uint64_t max_bytes)
{
    tarn_str delim = {f->delim, f->delim_n};
    for (;;) {
        tarn_str u = unread(f);
        ptrdiff_t i = tarn_str_find(u, delim);
        /* What can't be the beginning of the delimiter goes out. */
        size_t out = i >= 0 ? (size_t)i : u.n >= delim.n ? u.n - (delim.n - 1) : 0;
        if (out > 0) {
            if (tarn_put_bytes(p) + out > max_bytes)
                return TARN_E_ENTITY_TOO_LARGE;
            tarn_err e = tarn_put_write(p, u.p, out);
            if (e != TARN_OK)
                return e;
            f->at += out;
        }
        if (i >= 0) {
            f->at += delim.n;
            return TARN_OK;
        }
        if (f->eof)
            return TARN_E_MALFORMED_POST;
        tarn_err e = fill(f);
        if (e != TARN_OK)
            return e;
    }
}

/* The rest must be read, so that the connection can go on; no second file may come. */
static tarn_err skip_rest(form *f)
{
    while (!f->eof) {
        f->at = f->n;
        tarn_err e = fill(f);
        if (e != TARN_OK)
            return e;
    }
    return TARN_OK;
}

static tarn_err answer(form *f, const tarn_put_result *res)
{
    s3_ctx *c = f->c;
    tarn_str redirect = field(f, "success_action_redirect"), status = field(f, "success_action_status");
    if (redirect.p == NULL)
        redirect = field(f, "redirect");
    s3_etag_header(c, res->row.etag);
    s3_new_version_header(c, &res->row);
    s3_expiration_header(c, &res->row);
    s3_checksum_headers(c, &res->checksum);
    tarn_sb url;
    tarn_sb_init(&url, 16384);
    if (redirect.n > 0) {
        tarn_sb_str(&url, redirect);
        tarn_sb_cstr(&url, tarn_str_chr(redirect, '?') >= 0 ? "&bucket=" : "?bucket=");
        tarn_sb_urlencode(&url, c->bucket.name, false);
        tarn_sb_cstr(&url, "&key=");
        tarn_sb_urlencode(&url, c->key, false);
        tarn_sb_cstr(&url, "&etag=%22");
        tarn_sb_urlencode(&url, res->row.etag, false);
        tarn_sb_cstr(&url, "%22");
        tarn_resp_header(c->r, "Location", tarn_sb_view(&url));
        tarn_sb_free(&url);
        return s3_send_empty(c, 303);
    }
    tarn_sb_cstr(&url, tarn_req_tls(c->r) ? "https://" : "http://");
    tarn_sb_str(&url, tarn_req_header(c->r, "host"));
    tarn_sb_char(&url, '/');
    tarn_sb_str(&url, c->bucket.name);
    tarn_sb_char(&url, '/');
    tarn_sb_urlencode(&url, c->key, true);
    tarn_resp_header(c->r, "Location", tarn_sb_view(&url));
    if (!tarn_str_eqc(status, "201")) {
        tarn_sb_free(&url);
        return s3_send_empty(c, tarn_str_eqc(status, "200") ? 200 : 204);
    }
    s3_xml x;
    tarn_sb_init(&x.b, S3_ANSWER_BYTES_MAX);
    tarn_sb_cstr(&x.b, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<PostResponse>");
    s3_xml_text(&x, "Location", tarn_sb_view(&url));
    s3_xml_text(&x, "Bucket", c->bucket.name);
    s3_xml_text(&x, "Key", c->key);
    s3_xml_etag(&x, res->row.etag);
    s3_xml_close(&x, "PostResponse");
    tarn_sb_free(&url);
    return s3_xml_send(c, &x, 201);
}

static tarn_err store_file(form *f, tarn_str policy, tarn_put_spec *spec, const tarn_checksum *sum, tarn_put_result *res)
{
    s3_ctx *c = f->c;
    uint64_t min = 0, max = TARN_PUT_BYTES_MAX;
    if (policy.p != NULL)
        (void)tarn_post_policy_range(policy, &min, &max);
    tarn_put *p;
    tarn_err e = tarn_put_begin(c->s3->store, spec, c->a, &p);
    if (e != TARN_OK)
        return e;
    e = stream_file(f, p, max);
    if (e == TARN_OK)
        e = skip_rest(f);
    /* The conditions are checked with the length that really came. */
    if (e == TARN_OK && policy.p != NULL)
        e = tarn_post_policy_check(policy, f->fields, f->fields_n, c->bucket.name, tarn_put_bytes(p), tarn_req_time_ms(c->r), c->a,
                                   &c->detail);
    if (e == TARN_OK && sum->kind != TARN_SUM_NONE)
        e = tarn_put_expect_checksum(p, sum->kind, sum->value);
    if (e != TARN_OK) {
        tarn_put_abort(p);
        return e;
    }
    return tarn_put_finish(p, res);
}

tarn_err s3_post_form(s3_ctx *c)
{
    form *f = TARN_ARENA_NEW(c->a, form);
    tarn_put_spec spec = {0};
    tarn_put_result res;
    tarn_checksum sum;
    tarn_str policy = TARN_STR_NULL;
    if (f == NULL)
        return TARN_E_NO_MEMORY;
    f->c = c;
    f->win = tarn_arena_alloc(c->a, WINDOW_BYTES);
    if (f->win == NULL)
        return TARN_E_NO_MEMORY;
    tarn_err e = read_boundary(f);
    /* The form is what is signed: a header or a presigned URL would not cover its body. */
    if (e == TARN_OK && c->auth.mode != TARN_AUTH_ANONYMOUS)
        e = s3_bad_argument(c, "Only one auth mechanism allowed; a form is signed by its own fields.", "Authorization", TARN_STR_NULL);
    if (e == TARN_OK)
        e = read_fields(f);
    if (e == TARN_OK && !f->has_file)
        e = s3_bad_argument(c, "POST requires exactly one file upload per request.", "file", TARN_STR("0"));
    if (e == TARN_OK)
        e = replace_filename(f);
    if (e == TARN_OK)
        e = verify(f, &policy);
    if (e == TARN_OK) /* only now: who has no right signature learns nothing of buckets */
        e = s3_load_bucket(c, c->bucket_name, &c->bucket, &c->facts);
    if (e == TARN_OK) {
        c->bucket_loaded = true;
        s3_cors_headers(c);
        e = s3_check_expected_owner(c, "x-amz-expected-bucket-owner", &c->bucket);
    }
    if (e == TARN_OK)
        e = build_spec(f, &spec, &sum);
    if (e == TARN_OK)
        e = s3_may(c, "s3:PutObject");
    if (e == TARN_OK && spec.tags_n > 0)
        e = s3_may(c, "s3:PutObjectTagging");
    if (e == TARN_OK)
        e = store_file(f, policy, &spec, &sum, &res);
    return e == TARN_OK ? answer(f, &res) : e;
}
