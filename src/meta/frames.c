/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sums of the log's frames.
 *
 * SQLite checks the sums in its log when it recovers it, and never again: a reader, and a checkpoint, believe what the drive
 * returns. So the page of each frame that is written has its sum noted here, and what is read back must have it; else
 * another copy is asked. Without this a log that rots on one drive would be answered with, and be copied by the next
 * checkpoint into the databases of all.
 *
 * A note stays when the log starts over: the frame is written, and noted, before anybody can read it again. Frames that
 * lie in the log when the store is opened are noted by the scan that finds where it ends, with their headers: so SQLite's
 * recovery, and the checkpoint behind it, see what the scan saw, also from a drive that reads wrongly now and then.
 *
 * Pages of the database have a checksum of their own, but one that a drive has lost in silence is an older page, with a checksum
 * that is right. So the checksum of each page that a checkpoint writes is noted as well: the older one is not answered with,
 * and the scrub knows which of two is the newer.
 *
 * Invariants:
 *  1. A frame, and a page, is noted before it is written.
 * Memory: blocks are made by the writer and live until the store closes: 8 bytes a frame, 4 bytes a page, 1 MiB for each GiB of
 * the database that was written to. Threads: one writer; any number read.
 */
#include "frames.h"

#include "page.h"
#include "wal.h"

#include "tarn/crypto.h"

#define NOTED (1ull << 32) /* above the 32 bits of the page's sum; above that 31 bits of the header's, 0: not known */
#define HEADER_SHIFT 33

/* The number of the frame whose page lies at off; false: no page of a frame does. */
static bool frame_of(uint64_t off, uint64_t *out)
{
    const uint64_t first = META_WAL_HEADER_BYTES + META_WAL_FRAME_HEADER_BYTES;
    if (off < first || (off - first) % META_WAL_FRAME_BYTES != 0)
        return false;
    *out = (off - first) / META_WAL_FRAME_BYTES;
    return *out / META_FRAMES_PER_BLOCK < META_FRAME_BLOCKS_MAX;
}

static unsigned long long header_sum(const void *header)
{
    unsigned long long sum = tarn_crc32c(0, header, META_WAL_FRAME_HEADER_BYTES) >> 1;

    return sum == 0 ? 1 : sum;
}

/* False: out of memory. */
static bool note(_Atomic(atomic_ullong *) *blocks, uint64_t number, unsigned long long value)
{
    atomic_ullong *block = atomic_load_explicit(&blocks[number / META_FRAMES_PER_BLOCK], memory_order_relaxed);
    if (block == NULL) {
        block = tarn_calloc(META_FRAMES_PER_BLOCK, sizeof(*block));
        if (block == NULL)
            return false;
        atomic_store_explicit(&blocks[number / META_FRAMES_PER_BLOCK], block, memory_order_release);
    }
    atomic_store_explicit(&block[number % META_FRAMES_PER_BLOCK], value, memory_order_release);
    return true;
}

/* 0: there is none. */
static unsigned long long noted(const _Atomic(atomic_ullong *) *blocks, uint64_t number)
{
    const atomic_ullong *block = atomic_load_explicit(&blocks[number / META_FRAMES_PER_BLOCK], memory_order_acquire);

    return block == NULL ? 0 : atomic_load_explicit(&block[number % META_FRAMES_PER_BLOCK], memory_order_acquire);
}

bool meta_frames_note(meta_frames *f, const void *p, size_t n, uint64_t off)
{
    uint64_t frame;

    if (off == 0 && n == META_WAL_HEADER_BYTES)
        meta_frames_note_header(f, p);
    if (n != META_PAGE_BYTES || !frame_of(off, &frame))
        return true;
    return note(f->blocks, frame, NOTED | tarn_crc32c(0, p, n));
}

bool meta_frames_note_whole(meta_frames *f, const void *p, size_t n, uint64_t off)
{
    const uint8_t *page = (const uint8_t *)p + META_WAL_FRAME_HEADER_BYTES;
    uint64_t frame;

    if (n != META_WAL_FRAME_BYTES || !frame_of(off + META_WAL_FRAME_HEADER_BYTES, &frame))
        return true;
    return note(f->blocks, frame, header_sum(p) << HEADER_SHIFT | NOTED | tarn_crc32c(0, page, META_PAGE_BYTES));
}

void meta_frames_note_header(meta_frames *f, const void *header)
{
    atomic_store_explicit(&f->header, NOTED | tarn_crc32c(0, header, META_WAL_HEADER_BYTES), memory_order_release);
}

uint32_t meta_log_id(const void *header)
{
    uint32_t sum = tarn_crc32c(0, header, META_WAL_HEADER_BYTES);

    return sum == 0 ? 1 : sum;
}

uint32_t meta_frames_log_id(const meta_frames *f)
{
    unsigned long long known = atomic_load_explicit(&f->header, memory_order_acquire);

    return known == 0 ? 0 : (uint32_t)known == 0 ? 1 : (uint32_t)known;
}

bool meta_frames_right(const meta_frames *f, const void *p, size_t n, uint64_t off)
{
    const uint8_t *page = p, *header = NULL;
    uint64_t frame;

    if (off == 0 && n == META_WAL_HEADER_BYTES) {
        unsigned long long known = atomic_load_explicit(&f->header, memory_order_acquire);
        return known == 0 || known == (NOTED | tarn_crc32c(0, p, n));
    }
    if (n == META_WAL_FRAME_BYTES) { /* with its header */
        header = p;
        page += META_WAL_FRAME_HEADER_BYTES;
        off += META_WAL_FRAME_HEADER_BYTES;
    } else if (n != META_PAGE_BYTES) {
        return true;
    }
    if (!frame_of(off, &frame))
        return true;
    unsigned long long known = noted(f->blocks, frame);
    if (known == 0)
        return true;
    if (header != NULL && known >> HEADER_SHIFT != 0 && known >> HEADER_SHIFT != header_sum(header))
        return false;
    return (uint32_t)known == tarn_crc32c(0, page, META_PAGE_BYTES);
}

void meta_frames_free(meta_frames *f)
{
    for (size_t i = 0; i < META_FRAME_BLOCKS_MAX; i++) {
        tarn_free(atomic_load(&f->blocks[i]));
        atomic_store(&f->blocks[i], NULL);
    }
}

/* ------------------------------------------------------------------ pages of the database */
/* What is noted of a page: its sum; 0 says that nothing is known, so a sum of 0 goes as 1. */
static unsigned page_value(const void *page)
{
    uint32_t sum = meta_page_sum(page);

    return sum == 0 ? 1 : sum;
}

bool meta_pages_note(meta_pages *f, const void *page, uint64_t off)
{
    uint64_t number = off / META_PAGE_BYTES, at = number / META_PAGES_PER_BLOCK;

    if (at >= META_PAGE_BLOCKS_MAX)
        return true;
    atomic_uint *block = atomic_load_explicit(&f->blocks[at], memory_order_relaxed);
    if (block == NULL) {
        block = tarn_calloc(META_PAGES_PER_BLOCK, sizeof(*block));
        if (block == NULL)
            return false;
        atomic_store_explicit(&f->blocks[at], block, memory_order_release);
    }
    atomic_store_explicit(&block[number % META_PAGES_PER_BLOCK], page_value(page), memory_order_release);
    return true;
}

bool meta_pages_right(const meta_pages *f, const void *page, uint64_t off)
{
    uint64_t number = off / META_PAGE_BYTES, at = number / META_PAGES_PER_BLOCK;
    const atomic_uint *block = at < META_PAGE_BLOCKS_MAX ? atomic_load_explicit(&f->blocks[at], memory_order_acquire) : NULL;

    if (block == NULL)
        return true;
    unsigned known = atomic_load_explicit(&block[number % META_PAGES_PER_BLOCK], memory_order_acquire);
    return known == 0 || known == page_value(page);
}

void meta_pages_free(meta_pages *f)
{
    for (size_t i = 0; i < META_PAGE_BLOCKS_MAX; i++) {
        tarn_free(atomic_load(&f->blocks[i]));
        atomic_store(&f->blocks[i], NULL);
    }
}
