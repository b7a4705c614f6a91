/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as the value of Range, and of the headers of conditions: dates and entity tags. What must hold: a range that is taken
 * lies within the object; an entity tag that is taken lies within the value.
 */
#include "s3_internal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static const uint64_t sizes[] = {0, 1, 10, 1000, TARN_BLOCK_BYTES, TARN_OBJECT_BYTES_MAX, UINT64_MAX / 2};
    tarn_str v = {(const char *)data, n};
    for (size_t i = 0; i < TARN_ARRAY_LEN(sizes); i++) {
        uint64_t off = 0, len = sizes[i];
        if (s3_range_parse(v, sizes[i], &off, &len) == S3_RANGE_OK)
            TARN_ASSERT(len > 0 && off < sizes[i] && len <= sizes[i] - off);
    }
    tarn_str tag = TARN_STR("");
    if (s3_etag_strip(v, &tag))
        TARN_ASSERT(tag.n == 0 || (tag.p >= v.p && tag.p + tag.n <= v.p + v.n));
    int64_t ms = 0;
    (void)tarn_parse_http_date(v, &ms);
    return 0;
}
