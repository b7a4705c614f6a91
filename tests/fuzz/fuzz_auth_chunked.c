/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Chunked bodies: however the bytes are cut, the answer and what is handed out are the same, and never more than the
 * decoded length.
 * Input: one byte of mode, two of decoded length, one of step; the rest is the body.
 */
#include "tarn/auth.h"

#include <string.h>

#define HEAD_BYTES 4
#define ARENA_BYTES_MAX (1u << 20)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static tarn_err run(const tarn_auth_result *r, tarn_str in, size_t step, uint64_t *bytes, uint64_t *sum)
{
    tarn_arena *arena = tarn_arena_new(ARENA_BYTES_MAX);
    tarn_chunked *c = NULL;
    TARN_ASSERT(arena != NULL);
    tarn_err e = tarn_chunked_new(r, arena, &c);
    *bytes = 0;
    *sum = 0;
    while (e == TARN_OK && in.n > 0) {
        tarn_str piece = tarn_str_sub(in, 0, step);
        size_t used = 0;
        tarn_str out;
        e = tarn_chunked_feed(c, piece, &used, &out);
        TARN_ASSERT(used <= piece.n && (e != TARN_OK || used > 0));
        TARN_ASSERT(out.n == 0 || (out.p >= piece.p && out.p + out.n <= piece.p + piece.n));
        *bytes += out.n;
        *sum = tarn_crc64(*sum, out.p, out.n);
        in = tarn_str_sub(in, used, SIZE_MAX);
    }
    if (e == TARN_OK) {
        e = tarn_chunked_finish(c);
        TARN_ASSERT(e != TARN_OK || *bytes == r->decoded_length);
    }
    TARN_ASSERT(*bytes <= r->decoded_length);
    tarn_chunked_end(c);
    tarn_arena_free(arena);
    return e;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static const tarn_payload_mode modes[] = {TARN_PAYLOAD_SIGNED_CHUNKS, TARN_PAYLOAD_SIGNED_CHUNKS_TRAILER,
                                              TARN_PAYLOAD_UNSIGNED_TRAILER};
    if (n < HEAD_BYTES) {
        return 0;
    }
    tarn_auth_result r = {.payload = modes[data[0] % 3],
                          .has_decoded_length = true,
                          .decoded_length = (uint64_t)data[1] + 256u * data[2],
                          .trailer_names = TARN_STR("x-amz-checksum-crc32"),
                          .region = TARN_STR("us-east-1"),
                          .service = TARN_STR("s3"),
                          .amz_date = TARN_STR("20130524T000000Z")};
    memset(r.seed_signature, '0', sizeof r.seed_signature - 1);
    tarn_str body = {(const char *)data + HEAD_BYTES, n - HEAD_BYTES};
    uint64_t bytes[2];
    uint64_t sums[2];
    tarn_err whole = run(&r, body, SIZE_MAX, &bytes[0], &sums[0]);
    tarn_err cut = run(&r, body, 1u + data[3], &bytes[1], &sums[1]);
    TARN_ASSERT(whole == cut);
    TARN_ASSERT(whole != TARN_OK || (bytes[0] == bytes[1] && sums[0] == sums[1]));
    return 0;
}
