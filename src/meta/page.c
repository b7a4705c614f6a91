/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Page checksums and the validity of a WAL (https://www.sqlite.org/fileformat2.html, section 4).
 *
 * SQLite sums its log but not its database; a drive that returns wrong bytes would go unseen. Each page of the database
 * therefore ends in a checksum that is bound to its place: also a page that was written to or read from the wrong place is
 * noticed, and another copy is asked.
 */
#include "page.h"

#include "tarn/crypto.h"

#include <errno.h>
#include <string.h>

#define WAL_MAGIC 0x377f0682u /* the lowest bit: checksums over big-endian words */
#define WAL_VERSION 3007000u
#define WAL_SCAN_FRAMES 256 /* read at once */

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the sums of the log are computed over words as they lie in memory");

static uint32_t be32(const uint8_t *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

/* ------------------------------------------------------------------ pages */
static uint32_t page_number(size_t n, uint64_t off)
{
    return (uint32_t)(off / n + 1);
}

static uint32_t page_sum(const uint8_t *page, size_t n, uint64_t off)
{
    uint32_t number = page_number(n, off);
    uint8_t le[4] = {(uint8_t)number, (uint8_t)(number >> 8), (uint8_t)(number >> 16), (uint8_t)(number >> 24)};

    return tarn_crc32c(tarn_crc32c(0, page, n - META_PAGE_RESERVED_BYTES), le, sizeof(le));
}

void meta_page_seal(void *page, size_t n, uint64_t off)
{
    uint8_t *tail = (uint8_t *)page + n - META_PAGE_RESERVED_BYTES;
    uint32_t sum = page_sum(page, n, off), number = page_number(n, off);

    for (int i = 0; i < 4; i++) {
        tail[i] = (uint8_t)(sum >> (8 * i));
        tail[4 + i] = (uint8_t)(number >> (8 * i));
    }
}

bool meta_page_blank(const void *page, size_t n)
{
    const uint8_t *p = page;
    return p[0] == 0 && memcmp(p, p + 1, n - 1) == 0;
}

bool meta_page_check(const void *page, size_t n, uint64_t off)
{
    const uint8_t *tail = (const uint8_t *)page + n - META_PAGE_RESERVED_BYTES;
    uint32_t sum = page_sum(page, n, off), number = page_number(n, off);
    bool right = true;

    for (int i = 0; i < 4; i++)
        right = right && tail[i] == (uint8_t)(sum >> (8 * i)) && tail[4 + i] == (uint8_t)(number >> (8 * i));
    return right || meta_page_blank(page, n);
}

/* ------------------------------------------------------------------ the log */
typedef struct wal_sum {
    bool big_endian;
    uint32_t s0, s1;
} wal_sum;

static void wal_sum_add(wal_sum *s, const uint8_t *p, size_t n)
{
    for (size_t i = 0; i + 8 <= n; i += 8) {
        uint32_t a, b;
        if (s->big_endian) {
            a = be32(p + i);
            b = be32(p + i + 4);
        } else {
            memcpy(&a, p + i, 4);
            memcpy(&b, p + i + 4, 4);
        }
        s->s0 += a + s->s1;
        s->s1 += b + s->s0;
    }
}

static bool wal_header_valid(const uint8_t h[META_WAL_HEADER_BYTES], wal_sum *sum, uint32_t *page_bytes)
{
    uint32_t magic = be32(h);

    if ((magic & ~1u) != WAL_MAGIC || be32(h + 4) != WAL_VERSION)
        return false;
    *sum = (wal_sum){.big_endian = (magic & 1) != 0};
    wal_sum_add(sum, h, 24);
    *page_bytes = be32(h + 8);
    return sum->s0 == be32(h + 24) && sum->s1 == be32(h + 28) && *page_bytes >= 512 && *page_bytes <= 65536;
}

/* Adds one frame to the sum; false: the log ends before it. */
static bool wal_frame_valid(const uint8_t *frame, uint32_t page_bytes, const uint8_t header[META_WAL_HEADER_BYTES], wal_sum *sum)
{
    if (memcmp(frame + 8, header + 16, 8) != 0 || be32(frame) == 0)
        return false;
    wal_sum_add(sum, frame, 8);
    wal_sum_add(sum, frame + META_WAL_FRAME_HEADER_BYTES, page_bytes);
    return sum->s0 == be32(frame + 16) && sum->s1 == be32(frame + 20);
}

int meta_wal_scan(tarn_file *f, meta_wal_extent *out)
{
    uint8_t header[META_WAL_HEADER_BYTES];
    wal_sum sum;
    uint32_t page_bytes;
    int64_t got = tarn_file_pread_sync(f, header, sizeof(header), 0);
    int e = 0;

    *out = (meta_wal_extent){0};
    if (got < 0)
        return (int)got;
    if (got != META_WAL_HEADER_BYTES || !wal_header_valid(header, &sum, &page_bytes))
        return 0;
    out->valid = true;
    out->sequence = be32(header + 12);
    out->bytes = META_WAL_HEADER_BYTES;
    size_t frame_bytes = META_WAL_FRAME_HEADER_BYTES + page_bytes;
    uint8_t *buf = tarn_malloc(frame_bytes * WAL_SCAN_FRAMES);
    if (buf == NULL)
        return -ENOMEM;
    uint64_t seen = 0;
    for (bool more = true; more;) {
        got = tarn_file_pread_sync(f, buf, frame_bytes * WAL_SCAN_FRAMES, META_WAL_HEADER_BYTES + seen * frame_bytes);
        if (got < 0) {
            e = (int)got;
            break;
        }
        more = (size_t)got == frame_bytes * WAL_SCAN_FRAMES;
        for (size_t at = 0; at + frame_bytes <= (size_t)got; at += frame_bytes) {
            if (!wal_frame_valid(buf + at, page_bytes, header, &sum)) {
                more = false;
                break;
            }
            seen++;
            if (be32(buf + at + 4) != 0) { /* the size of the database: the last frame of a transaction */
                out->frames = seen;
                out->bytes = META_WAL_HEADER_BYTES + seen * frame_bytes;
            }
        }
    }
    tarn_free(buf);
    return e;
}
