/* SPDX-License-Identifier: Apache-2.0 */
/* Tags of objects and buckets: x-amz-tagging, the tagging sub-resource. */
#include "s3_internal.h"

#include <string.h>

/* Characters of a UTF-8 text. */
static size_t chars(tarn_str s)
{
    size_t n = 0;
    for (size_t i = 0; i < s.n; i++)
        n += ((unsigned char)s.p[i] & 0xC0) != 0x80 ? 1 : 0;
    return n;
}

/* Letters and digits of any script, blanks, and + - = . _ : / @. */
static bool tag_text(tarn_str s)
{
    for (size_t i = 0; i < s.n; i++) {
        unsigned char ch = (unsigned char)s.p[i];
        bool alnum = (ch >= '0' && ch <= '9') || (ch >= 'A' && ch <= 'Z') || (ch >= 'a' && ch <= 'z');
        if (ch < 0x80 && !alnum && (ch == 0 || strchr(" +-=._:/@", ch) == NULL))
            return false;
    }
    return tarn_str_utf8_valid(s);
}

tarn_err s3_tags_check(s3_ctx *c, const tarn_pair *tags, size_t n, size_t max)
{
    if (n > max) {
        c->detail.message =
            tarn_arena_fmt(c->a, "%s cannot be greater than %zu", max == TARN_OBJECT_TAGS_MAX ? "Object tags" : "Bucket tag count", max);
        return TARN_E_BAD_REQUEST;
    }
    for (size_t i = 0; i < n; i++) {
        if (tags[i].name.n == 0 || chars(tags[i].name) > S3_TAG_KEY_CHARS_MAX || !tag_text(tags[i].name))
            return s3_fail(c, TARN_E_INVALID_TAG, "The TagKey you have provided is invalid");
        if (chars(tags[i].value) > S3_TAG_VALUE_CHARS_MAX || !tag_text(tags[i].value))
            return s3_fail(c, TARN_E_INVALID_TAG, "The TagValue you have provided is invalid");
        if (tarn_str_starts(tags[i].name, "aws:"))
            return s3_fail(c, TARN_E_INVALID_TAG, "System tags cannot be added/updated by requester");
        for (size_t k = 0; k < i; k++)
            if (tarn_str_eq(tags[i].name, tags[k].name))
                return s3_fail(c, TARN_E_INVALID_TAG, "Cannot provide multiple Tags with the same key");
    }
    return TARN_OK;
}

bool s3_tags_split(tarn_arena *a, tarn_str v, tarn_pair tags[TARN_OBJECT_TAGS_MAX + 1], size_t *n)
{
    size_t count = 0;
    while (v.n > 0 && count <= TARN_OBJECT_TAGS_MAX) {
        tarn_str head, rest, name, value;
        (void)tarn_str_split(v, '&', &head, &rest);
        v = rest;
        if (head.n == 0)
            continue;
        if (!tarn_str_split(head, '=', &name, &value)) {
            name = head;
            value = TARN_STR("");
        }
        if (!tarn_urldecode(a, name, true, &tags[count].name) || !tarn_urldecode(a, value, true, &tags[count].value) || name.n == 0)
            return false;
        for (size_t i = 0; i < count; i++)
            if (tarn_str_eq(tags[i].name, tags[count].name))
                return false;
        count++;
    }
    *n = count;
    return true;
}

tarn_err s3_tags_from_header(s3_ctx *c, tarn_str *packed, uint32_t *n)
{
    tarn_str v = tarn_req_header(c->r, "x-amz-tagging");
    tarn_pair tags[TARN_OBJECT_TAGS_MAX + 1];
    size_t count;
    *packed = TARN_STR("");
    *n = 0;
    if (v.n == 0)
        return TARN_OK;
    if (!s3_tags_split(c->a, v, tags, &count))
        return s3_bad_argument(
            c, "The header 'x-amz-tagging' shall be encoded as UTF-8 then URLEncoded URL query parameters without tag name duplicates.",
            "x-amz-tagging", v);
    tarn_err e = s3_tags_check(c, tags, count, TARN_OBJECT_TAGS_MAX);
    if (e == TARN_OK)
        e = tarn_tags_pack(tags, count, c->a, packed);
    if (e == TARN_OK)
        *n = (uint32_t)count;
    return e;
}

tarn_err s3_tags_from_xml(const s3_node *root, tarn_arena *a, tarn_pair **out, size_t *n)
{
    const s3_node *set = s3_node_child(root, "TagSet");
    if (!tarn_str_eqc(root->name, "Tagging") || set == NULL)
        return TARN_E_MALFORMED_XML;
    return s3_tags_of_set(set, a, out, n);
}

tarn_err s3_tags_of_set(const s3_node *set, tarn_arena *a, tarn_pair **out, size_t *n)
{
    size_t count = s3_node_count(set, "Tag"), i = 0;
    tarn_pair *tags = TARN_ARENA_ARRAY(a, tarn_pair, count + 1);
    if (tags == NULL)
        return TARN_E_NO_MEMORY;
    for (const s3_node *t = set->first; t != NULL; t = t->next) {
        const s3_node *k = s3_node_child(t, "Key"), *v = s3_node_child(t, "Value");
        if (!tarn_str_eqc(t->name, "Tag") || k == NULL || v == NULL)
            return TARN_E_MALFORMED_XML;
        tags[i].name = k->text.p != NULL ? k->text : TARN_STR("");
        tags[i++].value = v->text.p != NULL ? v->text : TARN_STR("");
    }
    *out = tags;
    *n = count;
    return TARN_OK;
}

static tarn_err read_tagging(s3_ctx *c, size_t max, tarn_str *packed, uint32_t *n)
{
    s3_node *root;
    tarn_pair *tags;
    size_t count;
    tarn_err e = s3_read_xml(c, "Tagging", &root);
    if (e == TARN_OK)
        e = s3_tags_from_xml(root, c->a, &tags, &count);
    if (e == TARN_OK)
        e = s3_tags_check(c, tags, count, max);
    if (e == TARN_OK)
        e = tarn_tags_pack(tags, count, c->a, packed);
    if (e != TARN_OK)
        return e;
    *n = (uint32_t)count;
    c->request_tags = tags;
    c->request_tags_n = count;
    return TARN_OK;
}

static tarn_err send_tagging(s3_ctx *c, tarn_str packed)
{
    tarn_pair *tags = NULL;
    size_t n = 0;
    tarn_err e = packed.n > 0 ? tarn_tags_unpack(packed, c->a, &tags, &n) : TARN_OK;
    if (e != TARN_OK)
        return e;
    s3_xml x;
    s3_xml_begin(&x, "Tagging");
    s3_xml_open(&x, "TagSet");
    for (size_t i = 0; i < n; i++) {
        s3_xml_open(&x, "Tag");
        s3_xml_text(&x, "Key", tags[i].name);
        s3_xml_text(&x, "Value", tags[i].value);
        s3_xml_close(&x, "Tag");
    }
    s3_xml_close(&x, "TagSet");
    s3_xml_close(&x, "Tagging");
    return s3_xml_send(c, &x, 200);
}

/* ------------------------------------------------------------------ objects */
tarn_err s3_get_object_tagging(s3_ctx *c)
{
    tarn_version_ref ref;
    tarn_version_row row = {0};
    tarn_err e = s3_version_param(c, &ref);
    if (e == TARN_OK)
        e = tarn_object_stat(c->s3->store, &c->bucket, c->key, ref, c->a, &row);
    if (e == TARN_OK && row.delete_marker)
        e = TARN_E_METHOD_NOT_ALLOWED;
    if (e != TARN_OK)
        return e;
    s3_version_header(c, &row);
    return send_tagging(c, row.tags);
}

typedef struct tag_edit {
    tarn_str packed;
    uint32_t n;
} tag_edit;

static tarn_err edit_tags(void *ctx, tarn_version_row *row, tarn_arena *arena)
{
    const tag_edit *t = ctx;
    (void)arena;
    if (row->delete_marker)
        return TARN_E_METHOD_NOT_ALLOWED;
    row->tags = t->packed;
    row->tags_n = t->n;
    return TARN_OK;
}

static tarn_err change_tags(s3_ctx *c, tag_edit *t, int status)
{
    tarn_version_ref ref;
    tarn_version_row row;
    tarn_err e = s3_version_param(c, &ref);
    if (e == TARN_OK)
        e = tarn_object_edit(c->s3->store, &c->bucket, c->key, ref, edit_tags, t, &row, c->a);
    if (e != TARN_OK)
        return e;
    s3_version_header(c, &row);
    return s3_send_empty(c, status);
}

/* The route authorises nothing: a policy may ask for the tags, which are in the body. */
tarn_err s3_put_object_tagging(s3_ctx *c)
{
    tag_edit t = {.packed = TARN_STR("")};
    tarn_err e = c->facts->request_tags ? TARN_OK : s3_may_route(c);
    if (e == TARN_OK)
        e = read_tagging(c, TARN_OBJECT_TAGS_MAX, &t.packed, &t.n);
    if (e == TARN_OK && c->facts->request_tags)
        e = s3_may_route(c);
    return e == TARN_OK ? change_tags(c, &t, 200) : e;
}

tarn_err s3_delete_object_tagging(s3_ctx *c)
{
    tag_edit t = {.packed = TARN_STR("")};
    return change_tags(c, &t, 204);
}

/* ------------------------------------------------------------------ buckets */
typedef struct config_args {
    uint64_t bucket_id;
    tarn_str body;
} config_args;

static tarn_err put_tags_tx(tarn_meta_tx *tx, void *arg)
{
    const config_args *a = arg;
    if (a->body.n == 0)
        return tarn_meta_bucket_config_delete(tx, a->bucket_id, TARN_BC_TAGGING);
    return tarn_meta_bucket_config_put(tx, a->bucket_id, TARN_BC_TAGGING, a->body);
}

tarn_err s3_get_bucket_tagging(s3_ctx *c)
{
    tarn_str packed;
    tarn_err e = tarn_meta_bucket_config_get(c->s3->meta, NULL, c->bucket.id, TARN_BC_TAGGING, c->a, &packed);
    if (e == TARN_E_NOT_FOUND)
        return TARN_E_NO_SUCH_TAG_SET;
    return e == TARN_OK ? send_tagging(c, packed) : e;
}

tarn_err s3_put_bucket_tagging(s3_ctx *c)
{
    config_args a = {.bucket_id = c->bucket.id};
    uint32_t n;
    tarn_err e = read_tagging(c, S3_BUCKET_TAGS_MAX, &a.body, &n);
    if (e == TARN_OK && n == 0)
        a.body = TARN_STR("");
    if (e == TARN_OK)
        e = tarn_meta_commit(c->s3->meta, put_tags_tx, &a);
    return e == TARN_OK ? s3_send_empty(c, 204) : e;
}

tarn_err s3_delete_bucket_tagging(s3_ctx *c)
{
    config_args a = {.bucket_id = c->bucket.id};
    tarn_err e = tarn_meta_commit(c->s3->meta, put_tags_tx, &a);
    return e == TARN_OK ? s3_send_empty(c, 204) : e;
}
