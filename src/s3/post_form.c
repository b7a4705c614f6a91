/* SPDX-License-Identifier: Apache-2.0 */
/*
 * POST Object: an upload by an HTML form (S3 API reference, "POST Object"). form.h reads the form; here its fields are signed,
 * checked, and become the object's attributes, and the file is streamed into the store.
 */
#include "s3_internal.h"

#include "form.h"

typedef struct form {
    s3_ctx *c;
    s3_form in;
} form;

static tarn_err read_body(void *ctx, uint8_t *buf, size_t n, size_t *got)
{
    form *f = ctx;
    return tarn_req_read(f->c->r, buf, n, got);
}

static tarn_str field(const form *f, const char *name)
{
    return s3_form_field(&f->in, name);
}

/* ------------------------------------------------------------------ who, what, where */
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
    tarn_pair *pairs = TARN_ARENA_ARRAY(f->c->a, tarn_pair, S3_FORM_FIELDS_MAX);
    if (pairs == NULL)
        return TARN_E_NO_MEMORY;
    for (size_t i = 0; i < f->in.fields_n; i++) {
        if (!tarn_str_starts(f->in.fields[i].name, "x-amz-meta-"))
            continue;
        pairs[n] = (tarn_pair){tarn_str_sub(f->in.fields[i].name, 11, f->in.fields[i].name.n), f->in.fields[i].value};
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
    for (size_t i = 0; i < f->in.fields_n; i++) {
        if (tarn_str_starts(f->in.fields[i].name, "x-amz-server-side-encryption"))
            return s3_fail(f->c, TARN_E_NOT_IMPLEMENTED, "Server-side encryption is not implemented.");
        if (tarn_str_starts(f->in.fields[i].name, "x-amz-object-lock-"))
            return s3_fail(f->c, TARN_E_NOT_IMPLEMENTED, "Object lock fields in forms are not implemented.");
    }
    e = s3_check_redirect(f->c, field(f, "x-amz-website-redirect-location"));
    return e == TARN_OK ? s3_check_storage_class(f->c, field(f, "x-amz-storage-class")) : e;
}

static tarn_err form_checksum(form *f, tarn_checksum *sum)
{
    *sum = (tarn_checksum){.kind = TARN_SUM_NONE};
    for (size_t i = 0; i < f->in.fields_n; i++) {
        tarn_str name = f->in.fields[i].name;
        tarn_sum_kind k = tarn_sum_by_header(name);
        if (!tarn_str_starts(name, "x-amz-checksum-") || tarn_str_eqc(name, "x-amz-checksum-algorithm"))
            continue;
        if (k == TARN_SUM_NONE)
            return s3_fail(f->c, TARN_E_INVALID_REQUEST, "The algorithm type you specified in x-amz-checksum- header is invalid.");
        if (sum->kind != TARN_SUM_NONE)
            return s3_fail(f->c, TARN_E_INVALID_REQUEST,
                           "Expecting a single x-amz-checksum- header. Multiple checksum Types are not allowed.");
        if (!s3_checksum_parse(k, f->in.fields[i].value, sum) || sum->type == TARN_SUM_COMPOSITE) {
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
typedef struct file_sink {
    tarn_put *p;
    uint64_t bytes_max;
} file_sink;

static tarn_err take_file(void *ctx, const void *p, size_t n)
{
    file_sink *k = ctx;
    if (tarn_put_bytes(k->p) + n > k->bytes_max)
        return TARN_E_ENTITY_TOO_LARGE;
    return tarn_put_write(k->p, p, n);
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
    file_sink sink = {p, max};
    e = s3_form_file(&f->in, take_file, &sink);
    /* The conditions are checked with the length that really came. */
    if (e == TARN_OK && policy.p != NULL)
        e = tarn_post_policy_check(policy, f->in.fields, f->in.fields_n, c->bucket.name, tarn_put_bytes(p), tarn_req_time_ms(c->r), c->a,
                                   &c->detail);
    if (e == TARN_OK && sum->kind != TARN_SUM_NONE)
        e = tarn_put_expect_checksum(p, sum->kind, sum->value);
    if (e != TARN_OK) {
        tarn_put_abort(p);
        return e;
    }
    return tarn_put_finish(p, res);
}

/* ------------------------------------------------------------------ the answer */
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
    f->in = (s3_form){.arena = c->a, .read = read_body, .ctx = f};
    tarn_err e = s3_form_begin(&f->in, tarn_req_header(c->r, "content-type"));
    if (e == TARN_E_PRECONDITION_FAILED)
        tarn_err_detail_add(&c->detail, "Condition", TARN_STR("Bucket POST must be of the enclosure-type multipart/form-data"));
    /* The form is what is signed: a header or a presigned URL would not cover its body. */
    if (e == TARN_OK && c->auth.mode != TARN_AUTH_ANONYMOUS)
        e = s3_bad_argument(c, "Only one auth mechanism allowed; a form is signed by its own fields.", "Authorization", TARN_STR_NULL);
    if (e == TARN_OK)
        e = s3_form_fields(&f->in);
    if (e == TARN_E_LIMIT)
        e = s3_fail(c, TARN_E_INVALID_REQUEST, "The form has too many fields.");
    if (e == TARN_OK && !f->in.has_file)
        e = s3_bad_argument(c, "POST requires exactly one file upload per request.", "file", TARN_STR("0"));
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
