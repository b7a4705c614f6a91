/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the frames of the log, and the pages of the database that were written since the store was opened, must say: the sum of
 * each as it was written, kept in memory. Private to meta.
 */
#ifndef TARN_META_FRAMES_H
#define TARN_META_FRAMES_H

#include <stdatomic.h>

#include "meta_internal.h"

#define META_FRAMES_PER_BLOCK 4096u
#define META_FRAME_BLOCKS_MAX 1024u /* as many frames as the index of the log can hold */
#define META_PAGES_PER_BLOCK 4096u
#define META_PAGE_BLOCKS_MAX 2048u /* 16 KiB each: 32 MiB of memory when all pages of 32 GiB have been written */

typedef struct meta_frames {
    _Atomic(atomic_ullong *) blocks[META_FRAME_BLOCKS_MAX];
    atomic_ullong header; /* of the log */
} meta_frames;
typedef struct meta_pages {
    _Atomic(atomic_uint *) blocks[META_PAGE_BLOCKS_MAX]; /* pages behind the last one are not known: 32 GiB */
} meta_pages;

/* The writer puts n bytes at off into the log; what is not the page of a frame needs no note. False: out of memory. */
bool meta_frames_note(meta_frames *f, const void *p, size_t n, uint64_t off);
/* A frame with its header, at off, as it was found in the log; the log's own header. */
bool meta_frames_note_whole(meta_frames *f, const void *frame, size_t n, uint64_t off);
void meta_frames_note_header(meta_frames *f, const void *header);
/* Which log it is, by its header: never 0. And that of the log whose header was noted last; 0: none was. */
uint32_t meta_log_id(const void *header);
uint32_t meta_frames_log_id(const meta_frames *f);
/* Are these the bytes that were written there? What was never noted, or is not the page of a frame, passes. Any thread. */
bool meta_frames_right(const meta_frames *f, const void *p, size_t n, uint64_t off);
void meta_frames_free(meta_frames *f);

/* A sealed page goes to the database at off. False: out of memory. */
bool meta_pages_note(meta_pages *f, const void *page, uint64_t off);
/* Is this page, which has passed its check, the one that was written last? What was not written since the opening passes. */
bool meta_pages_right(const meta_pages *f, const void *page, uint64_t off);
void meta_pages_free(meta_pages *f);

#endif
