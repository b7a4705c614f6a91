/* SPDX-License-Identifier: Apache-2.0 */
/*
 * PutObject and UploadPart: the body goes from the socket straight into the memory of the stripe that is being filled.
 * Invariant: nothing is finished before the framing, the chunk signatures, the length and every digest are right.
 */
#include "s3_internal.h"

typedef struct upload {
    s3_digests digests;
    uint64_t length;
    tarn_checksum given;
    tarn_put_spec spec;
} upload;

/* Everything announced is there: what follows may only be the end (and in chunked modes what verifies it). */
static tarn_err expect_end(s3_body *body)
{
    uint8_t more;
    size_t got;
    tarn_err e = s3_body_read(body, &more, 1, &got);
    return e == TARN_OK && got > 0 ? TARN_E_INCOMPLETE_BODY : e;
}

/* Reads the whole payload into p. */
static tarn_err receive(s3_ctx *c, upload *u, tarn_put *p)
{
    s3_body body;
    tarn_err e = s3_body_open(c, &body);
    while (e == TARN_OK && tarn_put_bytes(p) < u->length) {
        uint8_t *buf;
        size_t cap, got = 0;
        e = tarn_put_reserve(p, &buf, &cap);
        if (e == TARN_OK) {
            uint64_t left = u->length - tarn_put_bytes(p);
            e = s3_body_read(&body, buf, cap < left ? cap : (size_t)left, &got);
        }
        if (e == TARN_OK)
            e = got > 0 ? tarn_put_advance(p, got) : TARN_E_INCOMPLETE_BODY;
    }
    if (e == TARN_OK)
        e = expect_end(&body);
    if (e == TARN_OK)
        e = s3_body_trailer_checksum(&body, &u->digests, &u->given);
    if (e == TARN_OK && u->given.kind == TARN_SUM_NONE)
        u->given = u->digests.checksum;
    s3_body_close(&body);
    return e == TARN_E_CLOSED ? TARN_E_INCOMPLETE_BODY : e;
}

static tarn_err check_sizes(s3_ctx *c, const upload *u)
{
    if (u->length > TARN_PUT_BYTES_MAX) {
        tarn_err_detail_add(&c->detail, "ProposedSize", tarn_arena_fmt(c->a, "%llu", (unsigned long long)u->length));
        tarn_err_detail_add(&c->detail, "MaxSizeAllowed", tarn_arena_fmt(c->a, "%llu", (unsigned long long)TARN_PUT_BYTES_MAX));
        return TARN_E_ENTITY_TOO_LARGE;
    }
    return TARN_OK;
}

/* Length, digests and what both kinds of upload share in their spec. */
static tarn_err prepare(s3_ctx *c, upload *u)
{
    tarn_err e = s3_payload_length(c, &u->length);
    if (e == TARN_OK)
        e = check_sizes(c, u);
    if (e == TARN_OK)
        e = s3_digests_of_body(c, &u->digests);
    if (e != TARN_OK)
        return e;
    u->spec.bucket = &c->bucket;
    u->spec.key = c->key;
    u->spec.size_hint = u->length;
    if (u->digests.has_md5)
        u->spec.expect_md5 = u->digests.md5;
    if (c->auth.payload == TARN_PAYLOAD_SHA256)
        u->spec.expect_sha256 = c->auth.expect_sha256;
    return TARN_OK;
}

static tarn_sum_kind wanted_sum(const s3_digests *d)
{
    if (d->checksum.kind != TARN_SUM_NONE)
        return d->checksum.kind;
    return d->trailer_kind != TARN_SUM_NONE ? d->trailer_kind : d->algorithm;
}

/* Runs the upload to its end. */
static tarn_err store(s3_ctx *c, upload *u, tarn_put_result *res)
{
    tarn_put *p;
    tarn_err e = tarn_put_begin(c->s3->store, &u->spec, c->a, &p);
    if (e != TARN_OK)
        return e;
    e = receive(c, u, p);
    if (e == TARN_OK && u->given.kind != TARN_SUM_NONE)
        e = tarn_put_expect_checksum(p, u->given.kind, u->given.value);
    if (e != TARN_OK) {
        tarn_put_abort(p);
        return e;
    }
    e = tarn_put_finish(p, res);
    if (e == TARN_E_BAD_DIGEST && u->given.kind != TARN_SUM_NONE && !u->digests.has_md5)
        c->detail.message =
            tarn_arena_fmt(c->a, "The %s you specified did not match the calculated checksum.", tarn_sum_name(u->given.kind));
    return e;
}

/* Object lock asks for a digest of the body (S3 API reference, PutObject). */
static tarn_err check_lock_digest(s3_ctx *c, const upload *u)
{
    if (u->spec.retention == TARN_RETENTION_NONE && !u->spec.legal_hold)
        return TARN_OK;
    if (u->digests.has_md5 || wanted_sum(&u->digests) != TARN_SUM_NONE || c->auth.payload == TARN_PAYLOAD_SHA256)
        return TARN_OK;
    return s3_fail(c, TARN_E_INVALID_REQUEST,
                   "Content-MD5 OR x-amz-checksum- HTTP header is required for Put Object requests with Object Lock parameters");
}

/* What would change the meaning of an upload and is not there. */
static tarn_err refuse_unknown(s3_ctx *c)
{
    tarn_str version = s3_param(c, "versionId");
    if (version.p != NULL)
        return s3_bad_argument(c, "This operation does not accept a version-id.", "versionId", version);
    if (s3_has_param(c, "uploadId") || s3_has_param(c, "partNumber"))
        return s3_bad_argument(c, "A part must be named by both partNumber and uploadId.",
                               s3_has_param(c, "uploadId") ? "partNumber" : "uploadId", TARN_STR_NULL);
    if (tarn_req_header(c->r, "x-amz-write-offset-bytes").p != NULL)
        return s3_fail(c, TARN_E_NOT_IMPLEMENTED, "Appending to objects is not implemented.");
    return TARN_OK;
}

tarn_err s3_put_object(s3_ctx *c)
{
    upload u = {0};
    tarn_err e = refuse_unknown(c);
    if (e == TARN_OK)
        e = prepare(c, &u);
    if (e == TARN_OK)
        e = s3_attrs_from_headers(c, &u.spec.attrs);
    if (e == TARN_OK)
        e = s3_put_conditions(c, &u.spec.conditions);
    if (e == TARN_OK)
        e = s3_tags_from_header(c, &u.spec.tags, &u.spec.tags_n);
    if (e == TARN_OK && u.spec.tags_n > 0)
        e = s3_may(c, "s3:PutObjectTagging");
    if (e == TARN_OK)
        e = s3_lock_from_headers(c, &u.spec.retention, &u.spec.retain_until_ms, &u.spec.legal_hold);
    if (e == TARN_OK)
        e = check_lock_digest(c, &u);
    if (e != TARN_OK)
        return e;
    u.spec.attrs.checksum.kind = wanted_sum(&u.digests);
    tarn_put_result res;
    e = store(c, &u, &res);
    if (e != TARN_OK)
        return e;
    s3_etag_header(c, res.row.etag);
    s3_new_version_header(c, &res.row);
    s3_expiration_header(c, &res.row);
    s3_checksum_headers(c, &res.checksum);
    return s3_send_empty(c, 200);
}

/* An upload's parts have its algorithm. What a COMPOSITE checksum is made of is given with each part: S3 takes no part without it; where
 * the checksum is that of the whole object the server makes up for it. */
static tarn_err check_part_sum(s3_ctx *c, const tarn_checksum *of_upload, tarn_sum_kind given)
{
    bool fits = given == of_upload->kind || (given == TARN_SUM_NONE && of_upload->type != TARN_SUM_COMPOSITE);
    if (of_upload->kind == TARN_SUM_NONE || fits)
        return TARN_OK;
    c->detail.message = tarn_arena_fmt(c->a, "Checksum Type mismatch occurred, expected checksum Type: %s, actual checksum Type: %s",
                                       tarn_sum_name(of_upload->kind), given == TARN_SUM_NONE ? "null" : tarn_sum_name(given));
    return TARN_E_INVALID_REQUEST;
}

tarn_err s3_upload_part(s3_ctx *c)
{
    upload u = {.spec = {.is_part = true}};
    uint64_t nonce, number;
    tarn_str id = s3_param(c, "uploadId"), num = s3_param(c, "partNumber");
    if (!tarn_str_to_u64(num, &number) || number < 1 || number > TARN_PARTS_MAX)
        return s3_bad_argument(c, "Part number must be an integer between 1 and 10000, inclusive.", "partNumber", num);
    if (!tarn_upload_id_parse(id, &u.spec.upload_id, &nonce))
        return s3_fail_arg(c, TARN_E_NO_SUCH_UPLOAD, NULL, "UploadId", id);
    u.spec.part_number = (uint32_t)number;
    tarn_upload_row up;
    tarn_err e = tarn_meta_upload_get(c->s3->meta, NULL, c->bucket.id, c->key, u.spec.upload_id, nonce, c->a, &up);
    if (e == TARN_E_NO_SUCH_UPLOAD)
        return s3_fail_arg(c, e, NULL, "UploadId", id);
    tarn_attrs fixed;
    if (e == TARN_OK)
        e = tarn_attrs_unpack(up.attrs, c->a, &fixed);
    if (e == TARN_OK)
        e = s3_refuse_encryption(c);
    if (e == TARN_OK)
        e = prepare(c, &u);
    if (e != TARN_OK)
        return e;
    tarn_sum_kind want = wanted_sum(&u.digests);
    e = check_part_sum(c, &fixed.checksum, want);
    if (e != TARN_OK)
        return e;
    u.spec.attrs.checksum.kind = want != TARN_SUM_NONE ? want : fixed.checksum.kind;
    tarn_put_result res;
    e = store(c, &u, &res);
    if (e == TARN_E_NO_SUCH_UPLOAD)
        return s3_fail_arg(c, e, NULL, "UploadId", id);
    if (e != TARN_OK)
        return e;
    s3_etag_header(c, res.row.etag);
    if (want != TARN_SUM_NONE || fixed.checksum.kind != TARN_SUM_NONE)
        s3_checksum_headers(c, &res.checksum);
    return s3_send_empty(c, 200);
}
