/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as a chunked body. What must hold: in pieces or at once, the same data comes out, the same bytes are taken,
 * and the same verdict is given; a body that was accepted is accepted again when it is sent as one plain chunk.
 */
#include "http_private.h"

typedef struct outcome {
    tarn_err err;
    bool done;
    size_t taken;
    tarn_sb data;
} outcome;

static outcome decode(const char *p, size_t n, size_t step)
{
    outcome o = {.err = TARN_OK};
    tarn_http_chunks c = {0};
    size_t seen = 0;
    tarn_sb_init(&o.data, n + 1);
    while (o.err == TARN_OK && c.state != TARN_HTTP_CHUNK_DONE) {
        size_t before = o.taken, used = 0;
        if (c.state == TARN_HTTP_CHUNK_DATA) {
            size_t k = seen - o.taken < c.left ? seen - o.taken : (size_t)c.left;
            tarn_sb_bytes(&o.data, p + o.taken, k);
            o.taken += k;
            c.left -= k;
            if (c.left == 0) {
                c.state = TARN_HTTP_CHUNK_DATA_END;
            }
        } else {
            o.err = tarn_http_chunks_step(&c, p + o.taken, seen - o.taken, &used);
            o.taken += used;
        }
        TARN_ASSERT(o.taken <= seen);
        if (o.taken == before && o.err == TARN_OK && c.state != TARN_HTTP_CHUNK_DONE) {
            if (seen == n) {
                break;
            }
            seen = n - seen < step ? n : seen + step;
        }
    }
    o.done = c.state == TARN_HTTP_CHUNK_DONE;
    return o;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    const char *p = (const char *)data;
    outcome whole = decode(p, n, n > 0 ? n : 1);
    outcome pieces = decode(p, n, n > 0 ? 1 + data[n - 1] % 13 : 1);
    TARN_ASSERT(whole.err == pieces.err && whole.done == pieces.done);
    if (whole.done) {
        TARN_ASSERT(whole.taken == pieces.taken && tarn_str_eq(tarn_sb_view(&whole.data), tarn_sb_view(&pieces.data)));
        tarn_sb again;
        tarn_sb_init(&again, n + 64);
        if (whole.data.n > 0) {
            tarn_sb_fmt(&again, "%zx\r\n", whole.data.n);
            tarn_sb_str(&again, tarn_sb_view(&whole.data));
            tarn_sb_cstr(&again, "\r\n");
        }
        tarn_sb_cstr(&again, "0\r\n\r\n");
        outcome o = decode(again.p, again.n, again.n);
        TARN_ASSERT(o.done && o.taken == again.n && tarn_str_eq(tarn_sb_view(&o.data), tarn_sb_view(&whole.data)));
        tarn_sb_free(&o.data);
        tarn_sb_free(&again);
    }
    tarn_sb_free(&whole.data);
    tarn_sb_free(&pieces.data);
    return 0;
}
