/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Page checksums.
 *
 * SQLite sums its log but not its database; a drive that returns wrong bytes would go unseen. Each page of the database
 * therefore ends in a checksum that is bound to its place: also a page that was written to or read from the wrong place is
 * noticed, and another copy is asked.
 */
#include "page.h"

#include "tarn/crypto.h"

#include <string.h>

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

uint32_t meta_page_sum(const void *page)
{
    const uint8_t *tail = (const uint8_t *)page + META_PAGE_BYTES - META_PAGE_RESERVED_BYTES;

    return (uint32_t)tail[3] << 24 | (uint32_t)tail[2] << 16 | (uint32_t)tail[1] << 8 | tail[0];
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
