/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What rebuild.c (backup, inventory of records, what the backup still has) and adopt.c (versions made from records) share.
 */
#ifndef TARN_OBJECT_REBUILD_H
#define TARN_OBJECT_REBUILD_H

#include "manifest.h"
#include "record.h"
#include "upkeep.h"

/* A blob of which at least one record was found. */
typedef struct rb_blob {
    struct rb_blob *next;
    obj_blob blob;   /* without sums */
    uint16_t whole;  /* shards whose record is there to its end */
    bool referenced; /* a row, an upload or garbage of the backup has it */
    uint64_t bucket_id;
} rb_blob;

/* A metadata file that was made again. */
typedef struct rb_table {
    struct rb_table *next;
    uint64_t bucket_id, number;
    tarn_origin origin;
    tarn_str pointer;
} rb_table;

typedef struct rebuild {
    tarn_store *s;
    const tarn_offline *to;
    const tarn_rebuild_spec *spec;
    tarn_rebuild_report *out;
    uint64_t first_seq; /* versions from here on were made by this run */
    rb_table *tables;
    tarn_arena *tables_arena;
    rb_blob **buckets;
    size_t buckets_n, blobs_n;
    tarn_err err;                     /* of a callback */
    uint16_t out_mask[TARN_SETS_MAX]; /* positions whose drive can't be read: what is there is not known */
} rebuild;

rb_blob *rb_find(rebuild *r, uint64_t blob_id);
/* Shards of the blob that may be there: found whole, or on a drive that can't be read. */
unsigned rb_available(const rebuild *r, const rb_blob *b);
/* Says what could not be read, and counts it: the rebuilding goes on, to say all of it, and then ends with IO. */
void rb_unread(rebuild *r, const char *fmt, ...) TARN_PRINTF(2, 3);
/* A version was made: is it a table's metadata file? */
tarn_err rb_note_table(rebuild *r, const tarn_bucket_row *bucket, const tarn_version_row *row);
tarn_err rb_tables(rebuild *r);
/* Versions from records and manifests that no row refers to. */
tarn_err rb_adopt(rebuild *r);

#endif
