/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the frames of the log must say: the sum of each page as it was written, kept in memory. Private to meta.
 */
#ifndef TARN_META_FRAMES_H
#define TARN_META_FRAMES_H

#include <stdatomic.h>

#include "meta_internal.h"

#define META_FRAMES_PER_BLOCK 4096u
#define META_FRAME_BLOCKS_MAX 1024u /* as many frames as the index of the log can hold */

typedef struct meta_frames {
    _Atomic(atomic_ullong *) blocks[META_FRAME_BLOCKS_MAX];
    atomic_ullong header; /* of the log */
} meta_frames;

/* The writer puts n bytes at off into the log; what is not the page of a frame needs no note. False: out of memory. */
bool meta_frames_note(meta_frames *f, const void *p, size_t n, uint64_t off);
/* A frame with its header, at off, as it was found in the log; the log's own header. */
bool meta_frames_note_whole(meta_frames *f, const void *frame, size_t n, uint64_t off);
void meta_frames_note_header(meta_frames *f, const void *header);
/* Are these the bytes that were written there? What was never noted, or is not the page of a frame, passes. Any thread. */
bool meta_frames_right(const meta_frames *f, const void *p, size_t n, uint64_t off);
void meta_frames_free(meta_frames *f);

#endif
