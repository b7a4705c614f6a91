/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as a segment file: headers, trailers, and the walk from record to record. What must hold: the walk comes to its end,
 * every record lies where it says, and what it tells lies within its limits. The checksums of headers and trailers are put right first, or
 * no input would come past them.
 */
#include "record.h"

#include <fcntl.h>
#include <string.h>

#define SECTOR_BYTES 512
#define FIXED_BYTES 128 /* of a header, before what varies */
#define TRAILER_FIXED_BYTES 40
#define SEGMENT_ID 1
#define SEGMENT_PATH "/d0/tarn/segments/0000000000000001"

static void le64_put(uint8_t *p, uint64_t v)
{
    for (unsigned i = 0; i < 8; i++)
        p[i] = (uint8_t)(v >> (8 * i));
}

static void mend(uint8_t *h, size_t n, uint64_t at)
{
    if (n < FIXED_BYTES + 8)
        return;
    size_t var = (size_t)h[104] | (size_t)h[105] << 8;
    if (var > n - FIXED_BYTES - 8)
        return;
    le64_put(h + 112, SEGMENT_ID);
    le64_put(h + 120, at);
    le64_put(h + FIXED_BYTES + var, tarn_crc64(0, h, FIXED_BYTES + var));
}

static void mend_trailers(uint8_t *p, size_t n)
{
    for (size_t at = 0; at + TRAILER_FIXED_BYTES + 8 <= n; at++) {
        size_t whole = TRAILER_FIXED_BYTES + 8 * ((size_t)p[at + 32] | (size_t)p[at + 33] << 8);
        if (memcmp(p + at, "TARNTAIL", 8) == 0 && at + whole + 8 <= n)
            le64_put(p + at + whole, tarn_crc64(0, p + at, whole));
    }
}

static bool look(void *ctx, obj_drive *d, const obj_record *r, const obj_trailer *t)
{
    unsigned *found = ctx;
    (void)d;
    TARN_ASSERT(r->blob.segment == SEGMENT_ID && r->blob.cls == OBJ_CLASS_SEGMENT);
    TARN_ASSERT(r->blob.k >= 1 && r->blob.k + r->blob.m <= TARN_SET_DRIVES_MAX && r->shard < (unsigned)(r->blob.k + r->blob.m));
    TARN_ASSERT(r->blob.head_bytes >= FIXED_BYTES && r->blob.head_bytes <= OBJ_HEADER_BYTES_MAX);
    TARN_ASSERT(!t || (t->size > 0 && t->size <= TARN_PUT_BYTES_MAX && t->sums.n == obj_blob_blocks(&r->blob) * 8));
    ++*found;
    return true;
}

static void write_segment(tarn_fs *fs, const uint8_t *p, size_t n)
{
    int64_t h;
    TARN_ASSERT(fs->mkdir(fs, "/d0/tarn", 0700) == 0 && fs->mkdir(fs, "/d0/tarn/segments", 0700) == 0);
    TARN_ASSERT(fs->open(fs, SEGMENT_PATH, O_RDWR | O_CREAT, 0600, &h) == 0);
    TARN_ASSERT(n == 0 || fs->pwrite(fs, h, p, n, 0) == (int64_t)n);
    TARN_ASSERT(fs->close(fs, h) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static char drive_path[] = "/d0";
    tarn_sim_options o = {.seed = 1, .drives_n = 1, .drive_bytes = 64u << 20};
    tarn_sim *sim = tarn_sim_new(&o);
    uint8_t *p = tarn_malloc(n + 1);
    tarn_store *s = tarn_calloc(1, sizeof *s);
    obj_drive d = {.path = drive_path};
    unsigned found = 0;
    obj_scan_gaps gaps = {0};
    TARN_ASSERT(sim != NULL && p != NULL && s != NULL);
    if (n > 0)
        memcpy(p, data, n);
    for (size_t at = 0; at < n; at += SECTOR_BYTES)
        mend(p + at, n - at, at);
    mend_trailers(p, n);
    s->fs = tarn_sim_fs(sim);
    write_segment(s->fs, p, n);
    TARN_ASSERT(obj_records_scan(s, &d, look, &found, &gaps) == TARN_OK);
    TARN_ASSERT(found <= n / SECTOR_BYTES + 1);
    tarn_free(s);
    tarn_free(p);
    tarn_sim_free(sim);
    return 0;
}
