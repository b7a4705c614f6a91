/* SPDX-License-Identifier: Apache-2.0 */
/*
 * UUIDs of RFC 9562: version 4 (random) and version 7 (ordered by time).
 *
 * Invariant 1: two version 7 identifiers made one after the other in one process compare in that order: the 48 bits of
 * milliseconds and the 12 bits behind them are one number that only grows, even when the wall clock goes back.
 * Memory: the caller's. Threads: any.
 */
#include "tarn/base.h"
#include "private.h"

#include <stdatomic.h>

#define UUID_BYTES 16
#define UUID_TEXT_BYTES 37 /* with the NUL */
#define SEQUENCE_BITS 12

static _Atomic uint64_t last_stamp; /* ms << 12 | sequence */

void tarn_uuid_reset(void)
{
    atomic_store(&last_stamp, 0);
}

static void to_text(uint8_t u[UUID_BYTES], unsigned version, char out[UUID_TEXT_BYTES])
{
    static const char digit[] = "0123456789abcdef";
    u[6] = (uint8_t)((u[6] & 0x0F) | version << 4);
    u[8] = (uint8_t)((u[8] & 0x3F) | 0x80);
    size_t at = 0;
    for (size_t i = 0; i < UUID_BYTES; i++) {
        if (i == 4 || i == 6 || i == 8 || i == 10) {
            out[at++] = '-';
        }
        out[at++] = digit[u[i] >> 4];
        out[at++] = digit[u[i] & 15];
    }
    out[at++] = '\0';
    TARN_ASSERT(at == UUID_TEXT_BYTES);
}

void tarn_uuid4(char out[UUID_TEXT_BYTES])
{
    uint8_t u[UUID_BYTES];
    tarn_random(u, sizeof u);
    to_text(u, 4, out);
}

void tarn_uuid7(char out[UUID_TEXT_BYTES])
{
    uint8_t u[UUID_BYTES];
    tarn_random(u, sizeof u);
    int64_t now = tarn_now_ms();
    uint64_t ms = now > 0 ? (uint64_t)now : 0;
    /* The sequence starts in its lower half, so that there is room to count up within the millisecond. */
    uint64_t fresh = ms << SEQUENCE_BITS | ((uint64_t)(u[6] & 0x07) << 8) | u[7];
    uint64_t last = atomic_load(&last_stamp);
    uint64_t stamp;
    do {
        stamp = fresh > last ? fresh : last + 1;
    } while (!atomic_compare_exchange_weak(&last_stamp, &last, stamp));
    ms = stamp >> SEQUENCE_BITS;
    for (unsigned i = 0; i < 6; i++) {
        u[i] = (uint8_t)(ms >> (40 - 8 * i));
    }
    u[6] = (uint8_t)(stamp >> 8 & 0x0F);
    u[7] = (uint8_t)stamp;
    to_text(u, 7, out);
}
