/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading records from drives without the database: see record.c.
 */
#ifndef TARN_OBJECT_RECORD_H
#define TARN_OBJECT_RECORD_H

#include "private.h"

typedef struct obj_record {
    obj_blob blob; /* without sums; size: as announced, or the trailer's */
    unsigned shard;
    obj_record_info info; /* slices point into the header's memory */
} obj_record;

/* A whole header, magic to padding. */
bool obj_record_parse(const uint8_t *h, size_t n, const uint8_t deployment[16], obj_record *out);
typedef struct obj_trailer {
    uint64_t size;
    int64_t mtime_ms;
    tarn_str sums; /* le64 per block */
} obj_trailer;
bool obj_trailer_parse(const uint8_t *p, size_t n, const obj_blob *b, unsigned shard, obj_trailer *out);

/* What a scan calls for each record whose header is right; trailer NULL: it was not written to its end. false ends the scan. */
typedef bool (*obj_record_fn)(void *ctx, obj_drive *d, const obj_record *r, const obj_trailer *trailer);
/* What a scan could not tell of. */
typedef struct obj_scan_gaps {
    uint64_t headless; /* files that were read, and have no header that is right */
    uint64_t failed;   /* files, folders and places that could not be read: records may be there */
} obj_scan_gaps;
/* Everything on one drive: part files, then segments. Synchronous. What can't be read is skipped and counted. */
tarn_err obj_records_scan(tarn_store *s, obj_drive *d, obj_record_fn fn, void *ctx, obj_scan_gaps *gaps);
/* Header and trailer of one shard of a blob whose place is known. Memory in the arena. CORRUPT: it was read, and is wrong. */
tarn_err obj_record_read(tarn_store *s, obj_drive *d, const obj_blob *b, tarn_arena *a, obj_record *out, obj_trailer *trailer);
/* Does the database know of this record? (fsck.c) */
tarn_err obj_record_referenced(tarn_store *s, const obj_blob *b, tarn_arena *a, bool *out);

#endif
