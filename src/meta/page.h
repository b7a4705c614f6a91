/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The checksum that the shim puts into the reserved bytes of each database page. (wal.h has the log.)
 */
#ifndef TARN_META_PAGE_H
#define TARN_META_PAGE_H

#include "meta_internal.h"

/* The last META_PAGE_RESERVED_BYTES of a page: CRC-32C of the rest, continued over the page's offset, and the page number. */
void meta_page_seal(void *page, size_t n, uint64_t off);
/* The checksum that the page has at its end. */
uint32_t meta_page_sum(const void *page);
/* Right, or a page that was never written (all zero). */
bool meta_page_check(const void *page, size_t n, uint64_t off);
/* All zero: never written; or what a drive gives that lost it. Only the other copies can tell. */
bool meta_page_blank(const void *page, size_t n);

#endif
