/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the shim knows of SQLite's formats: the checksum that it puts into the reserved bytes of each database page, and how
 * far a WAL is valid.
 */
#ifndef TARN_META_PAGE_H
#define TARN_META_PAGE_H

#include "meta_internal.h"

#define META_WAL_HEADER_BYTES 32
#define META_WAL_FRAME_HEADER_BYTES 24

/* The last META_PAGE_RESERVED_BYTES of a page: CRC-32C of the rest, continued over the page's offset, and the page number. */
void meta_page_seal(void *page, size_t n, uint64_t off);
/* Right, or a page that was never written (all zero). */
bool meta_page_check(const void *page, size_t n, uint64_t off);
/* All zero: never written; or what a drive gives that lost it. Only the other copies can tell. */
bool meta_page_blank(const void *page, size_t n);

typedef struct meta_wal_extent {
    bool valid;        /* the header is right */
    uint32_t sequence; /* counts how often the log has started over */
    uint64_t frames;   /* up to the last whole transaction */
    uint64_t bytes;    /* of header and those frames */
} meta_wal_extent;
/* Negative errno when the file cannot be read. */
int meta_wal_scan(tarn_file *f, meta_wal_extent *out);

#endif
