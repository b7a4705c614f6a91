/* SPDX-License-Identifier: Apache-2.0 */
/*
 * x-amz-content-sha256 and what belongs to it (s3.md §2.2): which of the payload modes a request is in, and whether its
 * other headers fit that mode.
 * Memory: slices of the request. Threads: the request's fiber.
 */
#include "auth_private.h"

#include <string.h>

#define TRAILERS_MAX 1 /* one checksum a request, as S3 has it */

typedef struct payload_name {
    const char *value;
    tarn_payload_mode mode;
} payload_name;
static const payload_name PAYLOAD_NAMES[] = {
    {"UNSIGNED-PAYLOAD", TARN_PAYLOAD_UNSIGNED},
    {"STREAMING-AWS4-HMAC-SHA256-PAYLOAD", TARN_PAYLOAD_SIGNED_CHUNKS},
    {"STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER", TARN_PAYLOAD_SIGNED_CHUNKS_TRAILER},
    {"STREAMING-UNSIGNED-PAYLOAD-TRAILER", TARN_PAYLOAD_UNSIGNED_TRAILER},
};

/* Each name in x-amz-trailer must be a checksum that we know. */
tarn_err auth_set_trailers(auth_run *r)
{
    size_t n = 0;
    tarn_str rest = r->seen.trailer;
    while (rest.n > 0) {
        tarn_str name;
        tarn_str_split(rest, ',', &name, &rest);
        name = tarn_str_trim(name);
        if (tarn_sum_by_header(name) == TARN_SUM_NONE) {
            return auth_fail(r->d, TARN_E_INVALID_REQUEST, "The value specified in the x-amz-trailer header is not supported.");
        }
        if (++n > TRAILERS_MAX) {
            return auth_fail(r->d, TARN_E_INVALID_REQUEST, "Expecting a single x-amz-checksum- header in x-amz-trailer.");
        }
    }
    r->out->trailer_names = r->seen.trailer;
    return TARN_OK;
}

static tarn_err set_decoded_length(auth_run *r)
{
    if (r->seen.decoded_length_n == 0) {
        return auth_fail(r->d, TARN_E_MISSING_CONTENT_LENGTH, "You must provide the x-amz-decoded-content-length HTTP header.");
    }
    if (!tarn_str_to_u64(r->seen.decoded_length, &r->out->decoded_length)) {
        return auth_fail_argument(r->d, "x-amz-decoded-content-length must be a number of bytes.", "x-amz-decoded-content-length");
    }
    r->out->has_decoded_length = true;
    return TARN_OK;
}

static tarn_err chunked(auth_run *r, tarn_payload_mode mode, bool signed_request)
{
    if (r->api != TARN_API_S3 || !tarn_str_eqc(r->v->method, "PUT")) {
        return auth_fail(r->d, TARN_E_INVALID_REQUEST, "Only PutObject and UploadPart take a body in aws-chunked form.");
    }
    if (!signed_request && mode != TARN_PAYLOAD_UNSIGNED_TRAILER) {
        return auth_fail(r->d, TARN_E_INVALID_REQUEST, "An anonymous request can't have signed chunks.");
    }
    tarn_err e = set_decoded_length(r);
    if (e == TARN_OK && mode != TARN_PAYLOAD_SIGNED_CHUNKS) {
        e = auth_set_trailers(r);
    }
    return e;
}

static tarn_err unsigned_payload(auth_run *r, bool signed_request)
{
    /* The catalog's own service wants to know the body; who signs as "s3" gets what S3 gives. */
    if (signed_request && r->api == TARN_API_CATALOG && !tarn_str_eqc(r->out->service, "s3")) {
        return auth_fail(r->d, TARN_E_INVALID_REQUEST, "UNSIGNED-PAYLOAD is not accepted here: sign the body.");
    }
    return TARN_OK;
}

/* iceberg-rest.md §4.1: the Java client sends the hash in base64. */
static bool base64_hash(tarn_str value, uint8_t out[TARN_SHA256_BYTES])
{
    size_t n = 0;
    return value.n == 44 && tarn_base64_decode(value, out, TARN_SHA256_BYTES, &n) && n == TARN_SHA256_BYTES;
}

tarn_err auth_payload_header(auth_run *r, tarn_str value, bool signed_request)
{
    if (r->seen.content_sha256_n > 1 || r->seen.decoded_length_n > 1 || r->seen.trailer_n > 1) {
        return auth_fail_argument(r->d, "A header that describes the payload is given more than once.", "x-amz-content-sha256");
    }
    if (tarn_hex_decode(value, r->out->expect_sha256, TARN_SHA256_BYTES) ||
        (r->api == TARN_API_CATALOG && base64_hash(value, r->out->expect_sha256))) {
        r->out->payload = TARN_PAYLOAD_SHA256;
        return TARN_OK;
    }
    for (size_t i = 0; i < TARN_ARRAY_LEN(PAYLOAD_NAMES); i++) {
        if (!tarn_str_eqc(value, PAYLOAD_NAMES[i].value)) {
            continue;
        }
        tarn_payload_mode mode = PAYLOAD_NAMES[i].mode;
        tarn_err e = mode == TARN_PAYLOAD_UNSIGNED ? unsigned_payload(r, signed_request) : chunked(r, mode, signed_request);
        if (e == TARN_OK) {
            r->out->payload = mode;
        }
        return e;
    }
    if (tarn_str_starts(value, "STREAMING-AWS4-ECDSA-P256-SHA256-PAYLOAD")) {
        return auth_fail(r->d, TARN_E_NOT_IMPLEMENTED, "Signatures with ECDSA are not implemented. Please use AWS4-HMAC-SHA256.");
    }
    tarn_err_detail_add(r->d, "ArgumentValue", value);
    return auth_fail_argument(r->d,
                              "x-amz-content-sha256 must be UNSIGNED-PAYLOAD, STREAMING-UNSIGNED-PAYLOAD-TRAILER, "
                              "STREAMING-AWS4-HMAC-SHA256-PAYLOAD, STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER or a valid sha256 value.",
                              "x-amz-content-sha256");
}
