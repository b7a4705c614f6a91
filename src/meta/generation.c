/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tarn.gen: the side record of a copy of the database. Two slots in sectors of their own, written in turn, so that a torn
 * write leaves the other one; the valid slot with the higher counter counts. docs/on-disk-format.md has the bytes.
 *
 * Thread: whoever holds the mirror (the opener, the committer).
 */
#include "vfs.h"

#include "tarn/crypto.h"

#include <errno.h>
#include <string.h>

#define GEN_SLOT_STRIDE_BYTES 4096
#define GEN_RECORD_BYTES 64
#define GEN_CRC_OFFSET 60
#define GEN_VERSION 1
#define GEN_READS_MAX 3

static const char GEN_MAGIC[8] = {'t', 'a', 'r', 'n', 'g', 'e', 'n', '1'};

static bool record_unpack(const uint8_t rec[GEN_RECORD_BYTES], meta_gen *out)
{
    tarn_rd r = tarn_rd_of((tarn_str){(const char *)rec, GEN_RECORD_BYTES});
    tarn_str magic = tarn_rd_bytes(&r, sizeof(GEN_MAGIC));
    uint32_t version = tarn_rd_le32(&r);
    uint16_t state = tarn_rd_le16(&r);
    uint16_t needed = tarn_rd_le16(&r);
    tarn_str deployment = tarn_rd_bytes(&r, META_DEPLOYMENT_BYTES);
    meta_gen g = {.state = (meta_gen_state)state, .needed = needed};

    g.generation = tarn_rd_le64(&r);
    g.counter = tarn_rd_le64(&r);
    g.copies_n = tarn_rd_le32(&r);
    g.write_quorum = tarn_rd_le32(&r);
    g.log_over = tarn_rd_le32(&r);
    uint32_t crc = tarn_rd_le32(&r);
    if (r.failed || memcmp(magic.p, GEN_MAGIC, sizeof(GEN_MAGIC)) != 0 || version != GEN_VERSION)
        return false;
    if (crc != tarn_crc32c(0, rec, GEN_CRC_OFFSET) || state < META_GEN_CREATING || state > META_GEN_UNFINISHED)
        return false;
    memcpy(g.deployment, deployment.p, META_DEPLOYMENT_BYTES);
    *out = g;
    return true;
}

/* A slot that is not right is read again: a drive may return other bytes than it has, this once, and with the older slot the
 * copy would pass for one that is behind. state NONE: there is none. */
static int slot_read(tarn_file *f, uint64_t slot, meta_gen *out)
{
    uint8_t rec[GEN_RECORD_BYTES];

    out->state = META_GEN_NONE;
    for (int tries = 0; tries < GEN_READS_MAX; tries++) {
        int64_t n = tarn_file_pread_sync(f, rec, sizeof(rec), slot * GEN_SLOT_STRIDE_BYTES);
        if (n < 0)
            return (int)n;
        if (n < GEN_RECORD_BYTES || record_unpack(rec, out))
            break;
    }
    return 0;
}

int meta_gen_read(tarn_file *f, meta_gen *out)
{
    meta_gen best = {.state = META_GEN_NONE};

    for (uint64_t slot = 0; slot < 2; slot++) {
        meta_gen g;
        int e = slot_read(f, slot, &g);
        if (e != 0)
            return e;
        if (g.state != META_GEN_NONE && (best.state == META_GEN_NONE || g.counter > best.counter))
            best = g;
    }
    *out = best;
    return 0;
}

int meta_gen_write(tarn_file *f, meta_gen *g)
{
    char mem[GEN_RECORD_BYTES + 1];
    tarn_sb b;

    g->counter++;
    tarn_sb_init_fixed(&b, mem, sizeof(mem));
    tarn_sb_bytes(&b, GEN_MAGIC, sizeof(GEN_MAGIC));
    tarn_sb_le32(&b, GEN_VERSION);
    tarn_sb_le16(&b, (uint16_t)g->state);
    tarn_sb_le16(&b, g->needed);
    tarn_sb_bytes(&b, g->deployment, META_DEPLOYMENT_BYTES);
    tarn_sb_le64(&b, g->generation);
    tarn_sb_le64(&b, g->counter);
    tarn_sb_le32(&b, g->copies_n);
    tarn_sb_le32(&b, g->write_quorum);
    tarn_sb_le32(&b, g->log_over);
    TARN_ASSERT(!b.failed && b.n == GEN_CRC_OFFSET);
    tarn_sb_le32(&b, tarn_crc32c(0, mem, GEN_CRC_OFFSET));
    TARN_ASSERT(!b.failed);
    int64_t n = tarn_file_pwrite_sync(f, mem, GEN_RECORD_BYTES, (g->counter % 2) * GEN_SLOT_STRIDE_BYTES);
    if (n < 0)
        return (int)n;
    if (n != GEN_RECORD_BYTES)
        return -EIO;
    return tarn_file_fs(f)->sync(tarn_file_fs(f), tarn_file_handle(f), true);
}
