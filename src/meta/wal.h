/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The log as it lies in the copies: how far it goes, and its bytes, each frame from a copy that has it. Private to meta.
 */
#ifndef TARN_META_WAL_H
#define TARN_META_WAL_H

#include "meta_internal.h"

#define META_WAL_HEADER_BYTES 32
#define META_WAL_FRAME_HEADER_BYTES 24
#define META_WAL_FRAME_BYTES (META_WAL_FRAME_HEADER_BYTES + META_PAGE_BYTES)

/* Several copies of one log. The first one's header says which log it is; frames come from any of them. */
typedef struct meta_wal_copies {
    tarn_file *files[TARN_META_DRIVES_MAX];
    size_t n;
} meta_wal_copies;

typedef struct meta_wal_extent {
    bool valid;        /* the header is right */
    uint32_t sequence; /* counts how often the log has started over */
    uint64_t frames;   /* up to the last whole transaction */
    uint64_t bytes;    /* of header and those frames */
    uint64_t amiss;    /* frames (and header) that the first file did not give rightly at once */
    uint8_t header[META_WAL_HEADER_BYTES];
    uint32_t sum[2]; /* over all those frames */
} meta_wal_extent;

/* How far the log goes. A negative errno when that cannot be known: no file could be read. */
int meta_wal_scan(const meta_wal_copies *c, meta_wal_extent *out);
/* Are these the same log, of the same length? */
bool meta_wal_same(const meta_wal_extent *a, const meta_wal_extent *b);

struct meta_frames;
/* Goes through a log that was scanned, with its header: what is given to `take` (may be NULL) has passed its sums, in pieces
 * that follow one another; frames are noted (`notes` may be NULL). -EBADMSG: it cannot be read any more as it was; else what
 * `take` returned, or -ENOMEM. */
int meta_wal_walk(const meta_wal_copies *c, const meta_wal_extent *log, struct meta_frames *notes,
                  int (*take)(void *ctx, const uint8_t *p, size_t n, uint64_t off), void *ctx);

#endif
