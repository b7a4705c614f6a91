/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as a manifest of a multipart object. What must hold: what is taken lies within the input and its limits. Length and
 * checksum are put right first, or no input would come past them.
 */
#include "manifest.h"

#include <string.h>

#define LENGTH_AT 12
#define CRC_BYTES 8
#define ARENA_BYTES_MAX (8u << 20)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void check_inside(tarn_str s, const uint8_t *p, size_t n)
{
    TARN_ASSERT(s.n == 0 || ((const uint8_t *)s.p >= p && (const uint8_t *)s.p + s.n <= p + n));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static const uint8_t deployment[16] = {0};
    obj_manifest m;
    if (n < LENGTH_AT + 4 + CRC_BYTES)
        return 0;
    uint8_t *p = tarn_malloc(n);
    tarn_arena *a = tarn_arena_new(ARENA_BYTES_MAX);
    TARN_ASSERT(p != NULL && a != NULL);
    memcpy(p, data, n);
    for (unsigned i = 0; i < 4; i++)
        p[LENGTH_AT + i] = (uint8_t)(n >> (8 * i));
    uint64_t sum = tarn_crc64(0, p, n - CRC_BYTES);
    for (unsigned i = 0; i < CRC_BYTES; i++)
        p[n - CRC_BYTES + i] = (uint8_t)(sum >> (8 * i));
    if (obj_manifest_parse((tarn_str){(const char *)p, n}, deployment, a, &m) == TARN_OK) {
        uint64_t size = 0;
        const tarn_str texts[] = {m.bucket, m.key, m.etag, m.attrs, m.tags};
        for (size_t i = 0; i < TARN_ARRAY_LEN(texts); i++)
            check_inside(texts[i], p, n);
        TARN_ASSERT(m.data_id != 0 && m.parts_n >= 1 && m.parts_n <= TARN_PARTS_MAX);
        TARN_ASSERT(m.key.n > 0 && m.key.n <= TARN_KEY_BYTES_MAX && m.bucket.n <= TARN_BUCKET_NAME_BYTES_MAX);
        for (size_t i = 0; i < m.parts_n; i++) {
            check_inside(m.parts[i].etag, p, n);
            check_inside(m.parts[i].attrs, p, n);
            check_inside(m.parts[i].bytes, p, n);
            size += m.parts[i].size;
        }
        TARN_ASSERT(size == m.size);
    }
    tarn_arena_free(a);
    tarn_free(p);
    return 0;
}
