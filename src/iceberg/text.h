/* SPDX-License-Identifier: Apache-2.0 */
/*
 * iceberg, metadata as text that remembers where its parts lie, so that the next version of a table is written by copying
 * what has not changed: most of a large table's metadata is old snapshots and logs.
 */
#ifndef TARN_ICEBERG_TEXT_H
#define TARN_ICEBERG_TEXT_H

#include "common.h"

#define ICE_SPANS_MAX 64 /* top-level fields whose places are remembered; further ones are written anew each time */

typedef struct ice_span {
    const json_t *value; /* of the top-level field; compared, never followed by itself */
    uint32_t start, end; /* its text */
    uint32_t *elements;  /* a list: where each element begins */
    uint32_t elements_n;
    bool texts; /* a list whose elements are all kept as text (entry.h) */
} ice_span;

typedef struct ice_text {
    char *p; /* own memory, NUL-terminated */
    size_t n;
    ice_span spans[ICE_SPANS_MAX];
    size_t spans_n;
} ice_text;

/*
 * Writes an object as ice_json_write does, byte for byte. base, base_text: an object that shares values with this one and
 * the text it was written to; both NULL: nothing to copy from. LIMIT past max_bytes.
 */
tarn_err ice_text_write(const json_t *object, const json_t *base, const ice_text *base_text, size_t max_bytes, ice_text *out);
void ice_text_free(ice_text *t);               /* zeroed is fine */
size_t ice_text_bytes(const ice_text *t);      /* memory besides the struct */
size_t ice_text_tree_bytes(const ice_text *t); /* about what the object takes that was written */

#endif
