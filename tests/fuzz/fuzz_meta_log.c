/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as what the database's drives hold: the log, the side record, and pages. What must hold: the log's scan comes to
 * its end, and the walk gives away what the scan counted, once as often; a damaged copy beside a whole one is read as the whole
 * one is; the side record that is taken is written and taken again; a page that was sealed passes, and at no other place.
 * Input: one byte that says where to damage the copy, the rest is the log. Sums are put right first, or no input would come past
 * them.
 */
#include "page.h"
#include "vfs.h"
#include "wal.h"

#include "tarn/crypto.h"

#include <fcntl.h>
#include <string.h>

#define FRAMES_MAX 64
#define GEN_STRIDE_BYTES 4096 /* of the side record's two slots */
#define GEN_BYTES 64
#define GEN_COUNTER_AT 40
#define GEN_CRC_AT 60

typedef struct taken {
    const uint8_t *want;
    size_t n;
} taken;

static uint32_t be32(const uint8_t *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static void be32_put(uint8_t *p, uint32_t v)
{
    for (unsigned i = 0; i < 4; i++)
        p[i] = (uint8_t)(v >> (24 - 8 * i));
}

static void sum_add(uint32_t s[2], const uint8_t *p, size_t n, bool big)
{
    for (size_t i = 0; i + 8 <= n; i += 8) {
        uint32_t w[2] = {be32(p + i), be32(p + i + 4)};
        s[0] += (big ? w[0] : __builtin_bswap32(w[0])) + s[1];
        s[1] += (big ? w[1] : __builtin_bswap32(w[1])) + s[0];
    }
}

/* A header and frames that fit, of what the input gives: page numbers, sizes, bytes. */
static size_t mend(uint8_t *p, size_t n)
{
    uint32_t sum[2] = {0, 0};
    if (n < META_WAL_HEADER_BYTES)
        return n;
    bool big = (p[3] & 1) != 0;
    be32_put(p, 0x377f0682u | (big ? 1 : 0));
    be32_put(p + 4, 3007000u);
    be32_put(p + 8, META_PAGE_BYTES);
    sum_add(sum, p, 24, big);
    be32_put(p + 24, sum[0]);
    be32_put(p + 28, sum[1]);
    size_t at = META_WAL_HEADER_BYTES;
    for (; at + META_WAL_FRAME_BYTES <= n && p[at + 15] != 0; at += META_WAL_FRAME_BYTES) { /* 0: this one and all behind stay wrong */
        memcpy(p + at + 8, p + 16, 8);
        sum_add(sum, p + at, 8, big);
        sum_add(sum, p + at + META_WAL_FRAME_HEADER_BYTES, META_PAGE_BYTES, big);
        be32_put(p + at + 16, sum[0]);
        be32_put(p + at + 20, sum[1]);
    }
    return at;
}

static tarn_file *file_with(tarn_fs *fs, const char *path, const uint8_t *p, size_t n)
{
    tarn_file *f = NULL;
    TARN_ASSERT(tarn_file_open_sync(fs, path, O_RDWR | O_CREAT, 0600, &f) == 0);
    TARN_ASSERT(n == 0 || tarn_file_pwrite_sync(f, p, n, 0) == (int64_t)n);
    return f;
}

static int take(void *ctx, const uint8_t *p, size_t n, uint64_t off)
{
    taken *t = ctx;
    TARN_ASSERT(off == t->n && memcmp(t->want + off, p, n) == 0);
    t->n += n;
    return 0;
}

static void look_at_log(tarn_fs *fs, uint8_t *p, size_t n, uint8_t damage)
{
    meta_wal_extent alone, both;
    taken t = {.want = p};
    tarn_file *whole = file_with(fs, "/d0/whole", p, n);
    meta_wal_copies one = {.files = {whole}, .n = 1};
    TARN_ASSERT(meta_wal_scan(&one, &alone) == 0);
    TARN_ASSERT(!alone.valid || alone.bytes == META_WAL_HEADER_BYTES + alone.frames * META_WAL_FRAME_BYTES);
    TARN_ASSERT(alone.valid ? alone.bytes <= n : alone.frames == 0);
    TARN_ASSERT(meta_wal_walk(&one, &alone, NULL, take, &t) == 0);
    TARN_ASSERT(!alone.valid || t.n == alone.bytes);
    size_t at = META_WAL_HEADER_BYTES + (size_t)damage * 131;
    if (at < n)
        p[at] ^= 0x40;
    tarn_file *hurt = file_with(fs, "/d0/hurt", p, n);
    meta_wal_copies two = {.files = {hurt, whole}, .n = 2};
    TARN_ASSERT(meta_wal_scan(&two, &both) == 0);
    TARN_ASSERT(meta_wal_same(&alone, &both));
    tarn_file_unref(hurt);
    tarn_file_unref(whole);
}

/* Both slots, each with a right head and sum; a counter that is not at its end. */
static void mend_record(uint8_t *slot)
{
    memcpy(slot, "tarngen1\1\0\0", 12);
    slot[12] = (uint8_t)(META_GEN_CREATING + slot[12] % (META_GEN_CLEAN - META_GEN_CREATING + 1));
    memset(slot + 13, 0, 3);
    slot[GEN_COUNTER_AT + 7] &= 0x7f;
    uint32_t crc = __builtin_bswap32(tarn_crc32c(0, slot, GEN_CRC_AT));
    be32_put(slot + GEN_CRC_AT, crc);
}

static void look_at_record(tarn_fs *fs, const uint8_t *p, size_t n)
{
    uint8_t slots[GEN_STRIDE_BYTES + GEN_BYTES] = {0};
    meta_gen g, again;
    memcpy(slots, p, n < sizeof slots ? n : sizeof slots);
    if (n > 16 && p[13] % 4 != 0)
        mend_record(slots);
    if (n > 16 && p[13] % 4 > 1)
        mend_record(slots + GEN_STRIDE_BYTES);
    tarn_file *f = file_with(fs, "/d0/gen", slots, sizeof slots);
    TARN_ASSERT(meta_gen_read(f, &g) == 0);
    g.state = g.state == META_GEN_NONE ? META_GEN_DIRTY : g.state;
    g.generation ^= n;
    TARN_ASSERT(meta_gen_write(f, &g) == 0 && meta_gen_read(f, &again) == 0);
    TARN_ASSERT(again.counter == g.counter && again.generation == g.generation && again.state == g.state);
    TARN_ASSERT(again.copies_n == g.copies_n && again.write_quorum == g.write_quorum);
    tarn_file_unref(f);
}

static void look_at_page(const uint8_t *p, size_t n)
{
    uint8_t page[META_PAGE_BYTES] = {0};
    memcpy(page, p, n < sizeof page ? n : sizeof page);
    meta_page_seal(page, sizeof page, META_PAGE_BYTES);
    TARN_ASSERT(meta_page_check(page, sizeof page, META_PAGE_BYTES));
    TARN_ASSERT(!meta_page_check(page, sizeof page, 2 * META_PAGE_BYTES));
    page[n % (META_PAGE_BYTES - 8)] ^= 1;
    TARN_ASSERT(!meta_page_check(page, sizeof page, META_PAGE_BYTES));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static uint8_t buf[META_WAL_HEADER_BYTES + FRAMES_MAX * META_WAL_FRAME_BYTES];
    tarn_sim_options o = {.seed = 1, .drives_n = 1, .drive_bytes = 64u << 20};
    if (n < 2 || n > sizeof buf)
        return 0;
    tarn_sim *sim = tarn_sim_new(&o);
    TARN_ASSERT(sim != NULL);
    memcpy(buf, data + 1, n - 1);
    look_at_record(tarn_sim_fs(sim), buf, n - 1);
    look_at_page(buf, n - 1);
    (void)mend(buf, n - 1);
    look_at_log(tarn_sim_fs(sim), buf, n - 1, data[0]);
    tarn_sim_free(sim);
    return 0;
}
