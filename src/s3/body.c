/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Request bodies: how long they are, what digests they came with, and one reader for all payload modes of SigV4.
 *
 * States of a reader: open → (chunked: window filled from the wire, decoded slice by slice) → ended (verified).
 * Invariant: *got == 0 with OK is answered only after the framing, every chunk signature and the decoded length are right.
 */
#include "s3_internal.h"

#include <string.h>

#define WINDOW_BYTES (64 * 1024)

/* ------------------------------------------------------------------ digests */
static tarn_err parse_md5(s3_ctx *c, s3_digests *d)
{
    tarn_str v = tarn_req_header(c->r, "content-md5");
    if (v.p == NULL)
        return TARN_OK;
    size_t n;
    uint8_t out[TARN_MD5_BYTES + 2];
    if (!tarn_base64_decode(v, out, sizeof out, &n) || n != TARN_MD5_BYTES)
        return s3_fail_arg(c, TARN_E_INVALID_DIGEST, NULL, "Content-MD5", v);
    memcpy(d->md5, out, TARN_MD5_BYTES);
    d->has_md5 = true;
    return TARN_OK;
}

static tarn_err parse_checksum_headers(s3_ctx *c, s3_digests *d)
{
    const tarn_auth_view *v = tarn_req_view(c->r);
    for (size_t i = 0; i < v->headers_n; i++) {
        tarn_str name = v->headers[i].name;
        if (!tarn_str_istarts(name, "x-amz-checksum-") || tarn_str_ieqc(name, "x-amz-checksum-mode") ||
            tarn_str_ieqc(name, "x-amz-checksum-algorithm") || tarn_str_ieqc(name, "x-amz-checksum-type"))
            continue;
        tarn_sum_kind k = tarn_sum_by_header(name);
        if (k == TARN_SUM_NONE)
            return s3_fail(c, TARN_E_INVALID_REQUEST, "The algorithm type you specified in x-amz-checksum- header is invalid.");
        if (d->checksum.kind != TARN_SUM_NONE)
            return s3_fail(c, TARN_E_INVALID_REQUEST,
                           "Expecting a single x-amz-checksum- header. Multiple checksum Types are not allowed.");
        if (!s3_checksum_parse(k, v->headers[i].value, &d->checksum)) {
            tarn_str text = tarn_arena_fmt(c->a, "Value for %s header is invalid.", tarn_sum_header(k));
            c->detail.message = text;
            return TARN_E_INVALID_REQUEST;
        }
    }
    return TARN_OK;
}

static tarn_err parse_algorithm(s3_ctx *c, s3_digests *d)
{
    tarn_str name = tarn_req_header(c->r, "x-amz-sdk-checksum-algorithm");
    bool sdk = name.p != NULL;
    if (!sdk)
        name = tarn_req_header(c->r, "x-amz-checksum-algorithm");
    if (name.p == NULL)
        return TARN_OK;
    d->algorithm = tarn_sum_by_name(name);
    if (d->algorithm == TARN_SUM_NONE || d->algorithm == TARN_SUM_MD5)
        return s3_fail(c, TARN_E_INVALID_REQUEST,
                       "Checksum algorithm provided is unsupported. Please try again with any of the valid types: "
                       "[CRC32, CRC32C, CRC64NVME, SHA1, SHA256]");
    if (sdk && d->checksum.kind == TARN_SUM_NONE && d->trailer_kind == TARN_SUM_NONE)
        return s3_fail(
            c, TARN_E_INVALID_REQUEST,
            "x-amz-sdk-checksum-algorithm specified, but no corresponding x-amz-checksum-* or x-amz-trailer headers were found.");
    tarn_sum_kind given = d->checksum.kind != TARN_SUM_NONE ? d->checksum.kind : d->trailer_kind;
    if (given != TARN_SUM_NONE && given != d->algorithm)
        return s3_fail(c, TARN_E_INVALID_REQUEST, "Value for x-amz-sdk-checksum-algorithm header is invalid.");
    return TARN_OK;
}

tarn_err s3_digests_parse(s3_ctx *c, s3_digests *d)
{
    *d = (s3_digests){0};
    tarn_err e = parse_md5(c, d);
    if (e == TARN_OK)
        e = parse_checksum_headers(c, d);
    if (e != TARN_OK)
        return e;
    tarn_str rest = tarn_req_header(c->r, "x-amz-trailer");
    while (rest.p != NULL && rest.n > 0) {
        tarn_str head;
        (void)tarn_str_split(rest, ',', &head, &rest);
        tarn_sum_kind k = tarn_sum_by_header(tarn_str_trim(head));
        if (k == TARN_SUM_NONE || d->trailer_kind != TARN_SUM_NONE || d->checksum.kind != TARN_SUM_NONE)
            return s3_fail(c, TARN_E_INVALID_REQUEST, "The value specified in the x-amz-trailer header is not supported");
        d->trailer_kind = k;
    }
    return parse_algorithm(c, d);
}

tarn_err s3_digests_of_body(s3_ctx *c, s3_digests *d)
{
    tarn_err e = s3_digests_parse(c, d);
    if (e == TARN_OK && d->checksum.type == TARN_SUM_COMPOSITE) {
        c->detail.message = tarn_arena_fmt(c->a, "Value for %s header is invalid.", tarn_sum_header(d->checksum.kind));
        return TARN_E_INVALID_REQUEST;
    }
    return e;
}

tarn_err s3_payload_length(s3_ctx *c, uint64_t *n)
{
    if (c->auth.has_decoded_length) {
        *n = c->auth.decoded_length;
        return TARN_OK;
    }
    if (!tarn_req_content_length(c->r, n) || !tarn_req_has_body_framing(c->r))
        return TARN_E_MISSING_CONTENT_LENGTH;
    return TARN_OK;
}

/* ------------------------------------------------------------------ reader */
tarn_err s3_body_open(s3_ctx *c, s3_body *b)
{
    *b = (s3_body){.c = c};
    if (c->auth.payload != TARN_PAYLOAD_SIGNED_CHUNKS && c->auth.payload != TARN_PAYLOAD_SIGNED_CHUNKS_TRAILER &&
        c->auth.payload != TARN_PAYLOAD_UNSIGNED_TRAILER)
        return TARN_OK;
    b->window = tarn_arena_alloc(c->a, WINDOW_BYTES);
    if (b->window == NULL)
        return TARN_E_NO_MEMORY;
    return tarn_chunked_new(&c->auth, c->a, &b->chunked);
}

static tarn_err read_chunked(s3_body *b, uint8_t *buf, size_t n, size_t *got)
{
    for (;;) {
        if (b->window_at == b->window_n) {
            size_t came;
            tarn_err e = tarn_req_read(b->c->r, b->window, WINDOW_BYTES, &came);
            if (e != TARN_OK)
                return e;
            if (came == 0) {
                e = tarn_chunked_finish(b->chunked);
                if (e != TARN_OK)
                    return e;
                b->ended = true;
                *got = 0;
                return TARN_OK;
            }
            b->window_at = 0;
            b->window_n = came;
        }
        size_t used;
        size_t there = b->window_n - b->window_at;
        tarn_str in = {(const char *)b->window + b->window_at, there < n ? there : n};
        tarn_str data;
        tarn_err e = tarn_chunked_feed(b->chunked, in, &used, &data);
        if (e != TARN_OK)
            return e;
        TARN_ASSERT(used <= in.n && data.n <= n);
        b->window_at += used;
        if (data.n > 0) {
            memcpy(buf, data.p, data.n);
            b->payload_bytes += data.n;
            *got = data.n;
            return TARN_OK;
        }
    }
}

tarn_err s3_body_read(s3_body *b, void *buf, size_t n, size_t *got)
{
    if (b->ended) {
        *got = 0;
        return TARN_OK;
    }
    if (b->chunked != NULL)
        return read_chunked(b, buf, n, got);
    size_t came;
    tarn_err e = tarn_req_read(b->c->r, buf, n, &came);
    if (e != TARN_OK)
        return e;
    b->ended = came == 0;
    b->payload_bytes += came;
    *got = came;
    return TARN_OK;
}

void s3_body_close(s3_body *b)
{
    tarn_chunked_end(b->chunked);
    b->chunked = NULL;
}

tarn_err s3_body_trailer_checksum(s3_body *b, const s3_digests *d, tarn_checksum *out)
{
    *out = (tarn_checksum){.kind = TARN_SUM_NONE};
    if (b->chunked == NULL || d->trailer_kind == TARN_SUM_NONE)
        return TARN_OK;
    const tarn_pair *t;
    size_t n = tarn_chunked_trailers(b->chunked, &t);
    for (size_t i = 0; i < n; i++) {
        if (tarn_sum_by_header(t[i].name) != d->trailer_kind)
            continue;
        if (!s3_checksum_parse(d->trailer_kind, t[i].value, out) || out->type == TARN_SUM_COMPOSITE) {
            b->c->detail.message = tarn_arena_fmt(b->c->a, "Value for %s trailing header is invalid.", tarn_sum_header(d->trailer_kind));
            return TARN_E_INVALID_REQUEST;
        }
        return TARN_OK;
    }
    return TARN_E_MALFORMED_TRAILER;
}

/* ------------------------------------------------------------------ small bodies */
static tarn_err verify_small(s3_ctx *c, const s3_digests *d, tarn_str body)
{
    uint8_t sum[TARN_DIGEST_BYTES_MAX];
    if (c->auth.payload == TARN_PAYLOAD_SHA256) {
        tarn_sha256(body.p, body.n, sum);
        if (!tarn_equal_ct(sum, c->auth.expect_sha256, TARN_SHA256_BYTES))
            return TARN_E_CONTENT_SHA256_MISMATCH;
    }
    if (d->has_md5) {
        tarn_md5(body.p, body.n, sum);
        if (!tarn_equal_ct(sum, d->md5, TARN_MD5_BYTES))
            return TARN_E_BAD_DIGEST;
    }
    if (d->checksum.kind != TARN_SUM_NONE) {
        tarn_sum s;
        tarn_err e = tarn_sum_begin(&s, d->checksum.kind);
        if (e != TARN_OK)
            return e;
        tarn_sum_update(&s, body.p, body.n);
        tarn_sum_peek(&s, sum);
        tarn_sum_end(&s);
        if (!tarn_equal_ct(sum, d->checksum.value, tarn_sum_bytes(d->checksum.kind)))
            return TARN_E_BAD_DIGEST;
    }
    return TARN_OK;
}

tarn_err s3_read_body(s3_ctx *c, size_t max_bytes, tarn_str *out)
{
    s3_digests d;
    tarn_err e = s3_digests_of_body(c, &d);
    if (e != TARN_OK)
        return e;
    tarn_str body;
    e = tarn_req_read_all(c->r, max_bytes, &body);
    if (e != TARN_OK)
        return e;
    e = verify_small(c, &d, body);
    if (e != TARN_OK)
        return e;
    *out = body;
    return TARN_OK;
}
