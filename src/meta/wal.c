/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where a log ends (https://www.sqlite.org/fileformat2.html, section 4), when several drives have it and each may have lost
 * some of it, or return other bytes than it has.
 *
 * The sum of a frame runs through all frames before it. So a frame that fits behind those that were read is the right one,
 * whichever copy it came from; and one that does not fit says nothing yet: the drive may have read wrongly this once, and the
 * other copies may have it. The log ends where no copy has a frame that fits. That is safe: what was acknowledged is whole on
 * every copy of the newest generation (copies.c), so one of them that is read rightly is enough.
 *
 * Invariants:
 *  1. Only frames that fit are counted, noted and given away.
 *  2. An end is only told when some copy could be read there; else it is an error.
 * Memory: WAL_CHUNK_FRAMES frames while it goes on. Threads: the caller's; nobody may write these files meanwhile.
 */
#include "wal.h"

#include "frames.h"

#include <errno.h>
#include <string.h>

#define WAL_MAGIC 0x377f0682u /* the lowest bit: checksums over big-endian words */
#define WAL_VERSION 3007000u
#define WAL_CHUNK_FRAMES 256 /* read at once */
#define WAL_ROUNDS 3         /* how often each copy is asked for what does not fit */

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the sums of the log are computed over words as they lie in memory");

typedef struct wal_sum {
    bool big_endian;
    uint32_t s0, s1;
} wal_sum;

typedef struct wal_walk {
    const meta_wal_copies *c;
    uint8_t *buf; /* WAL_CHUNK_FRAMES frames */
    wal_sum sum;  /* up to the last frame that fits */
    uint64_t seen;
    meta_wal_extent *out;
    meta_frames *notes;
    int (*take)(void *ctx, const uint8_t *p, size_t n, uint64_t off);
    void *ctx;
} wal_walk;

static uint32_t be32(const uint8_t *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

/* ------------------------------------------------------------------ sums */
static void sum_add(wal_sum *s, const uint8_t *p, size_t n)
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

static bool header_fits(const uint8_t h[META_WAL_HEADER_BYTES], wal_sum *sum)
{
    uint32_t magic = be32(h);

    if ((magic & ~1u) != WAL_MAGIC || be32(h + 4) != WAL_VERSION || be32(h + 8) != META_PAGE_BYTES)
        return false;
    *sum = (wal_sum){.big_endian = (magic & 1) != 0};
    sum_add(sum, h, 24);
    return sum->s0 == be32(h + 24) && sum->s1 == be32(h + 28);
}

/* Does the frame follow those before it? Then it is in the sum. */
static bool frame_fits(wal_walk *w, const uint8_t *frame)
{
    wal_sum sum = w->sum;

    if (memcmp(frame + 8, w->out->header + 16, 8) != 0 || be32(frame) == 0) /* the salts of the log */
        return false;
    sum_add(&sum, frame, 8);
    sum_add(&sum, frame + META_WAL_FRAME_HEADER_BYTES, META_PAGE_BYTES);
    if (sum.s0 != be32(frame + 16) || sum.s1 != be32(frame + 20))
        return false;
    w->sum = sum;
    return true;
}

/* ------------------------------------------------------------------ reading */
/* Not valid without an error: there is no log, or it is too short to be one. */
static int header_read(wal_walk *w)
{
    int64_t got = 0;

    for (int tries = 0; tries < WAL_ROUNDS; tries++) {
        got = tarn_file_pread_sync(w->c->files[0], w->out->header, META_WAL_HEADER_BYTES, 0);
        w->out->valid = got == META_WAL_HEADER_BYTES && header_fits(w->out->header, &w->sum);
        if (w->out->valid || (got >= 0 && got < META_WAL_HEADER_BYTES))
            break;
        w->out->amiss++;
    }
    if (!w->out->valid)
        w->out->amiss = 0; /* it is so; not amiss */
    return got < 0 ? (int)got : 0;
}

/* From whichever copy has it, also from the first once more. 1, 0: the log ends here, or a negative errno. */
static int frame_elsewhere(wal_walk *w, uint8_t *frame, uint64_t off)
{
    bool known = false;
    int64_t got = 0;

    for (size_t k = 1; k <= WAL_ROUNDS * w->c->n; k++) {
        got = tarn_file_pread_sync(w->c->files[k % w->c->n], frame, META_WAL_FRAME_BYTES, off);
        if (got == META_WAL_FRAME_BYTES && frame_fits(w, frame)) {
            w->out->amiss++;
            return 1;
        }
        known = known || got >= 0;
    }
    return known ? 0 : (int)got;
}

/* As above; the frame is number i of the chunk. */
static int frame_next(wal_walk *w, size_t i)
{
    uint8_t *frame = w->buf + i * META_WAL_FRAME_BYTES;
    uint64_t off = META_WAL_HEADER_BYTES + w->seen * META_WAL_FRAME_BYTES;
    int found = frame_fits(w, frame) ? 1 : frame_elsewhere(w, frame, off);

    if (found <= 0)
        return found;
    if (w->notes != NULL && !meta_frames_note_whole(w->notes, frame, META_WAL_FRAME_BYTES, off))
        return -ENOMEM;
    w->seen++;
    if (be32(frame + 4) != 0) { /* the size of the database: the last frame of a transaction */
        w->out->frames = w->seen;
        w->out->bytes = off + META_WAL_FRAME_BYTES;
        w->out->sum[0] = w->sum.s0;
        w->out->sum[1] = w->sum.s1;
    }
    return 1;
}

/* All frames up to frames_max, or to the end of the log. */
static int frames_read(wal_walk *w, uint64_t frames_max)
{
    int found = 1;

    while (found > 0 && w->seen < frames_max) {
        uint64_t off = META_WAL_HEADER_BYTES + w->seen * META_WAL_FRAME_BYTES;
        const size_t room = WAL_CHUNK_FRAMES * (size_t)META_WAL_FRAME_BYTES;
        int64_t got = tarn_file_pread_sync(w->c->files[0], w->buf, room, off);
        size_t have = got > 0 ? (size_t)got : 0, n = 0;
        memset(w->buf + have, 0, room - have); /* which fits nowhere */
        while (n < WAL_CHUNK_FRAMES && w->seen < frames_max) {
            found = frame_next(w, n);
            if (found <= 0)
                break;
            n++;
        }
        int e = n > 0 && w->take != NULL ? w->take(w->ctx, w->buf, n * META_WAL_FRAME_BYTES, off) : 0;
        if (e != 0)
            return e;
    }
    return found < 0 ? found : 0;
}

static int buffer_make(wal_walk *w)
{
    w->buf = tarn_malloc(WAL_CHUNK_FRAMES * (size_t)META_WAL_FRAME_BYTES);
    return w->buf == NULL ? -ENOMEM : 0;
}

/* ------------------------------------------------------------------ for others */
int meta_wal_scan(const meta_wal_copies *c, meta_wal_extent *out)
{
    wal_walk w = {.c = c, .out = out};

    *out = (meta_wal_extent){0};
    int e = header_read(&w);
    if (e != 0 || !out->valid)
        return e;
    out->sequence = be32(out->header + 12);
    out->bytes = META_WAL_HEADER_BYTES;
    out->sum[0] = w.sum.s0;
    out->sum[1] = w.sum.s1;
    e = buffer_make(&w);
    if (e == 0)
        e = frames_read(&w, UINT64_MAX);
    tarn_free(w.buf);
    return e;
}

bool meta_wal_same(const meta_wal_extent *a, const meta_wal_extent *b)
{
    if (!a->valid || !b->valid)
        return a->valid == b->valid;
    return memcmp(a->header, b->header, sizeof(a->header)) == 0 && a->bytes == b->bytes && a->sum[0] == b->sum[0] && a->sum[1] == b->sum[1];
}

int meta_wal_walk(const meta_wal_copies *c, const meta_wal_extent *log, meta_frames *notes,
                  int (*take)(void *ctx, const uint8_t *p, size_t n, uint64_t off), void *ctx)
{
    meta_wal_extent now = {.valid = true, .bytes = META_WAL_HEADER_BYTES};
    wal_walk w = {.c = c, .out = &now, .notes = notes, .take = take, .ctx = ctx};

    if (!log->valid)
        return 0;
    memcpy(now.header, log->header, sizeof(now.header));
    bool fits = header_fits(now.header, &w.sum);
    TARN_ASSERT(fits);
    now.sum[0] = w.sum.s0;
    now.sum[1] = w.sum.s1;
    if (notes != NULL)
        meta_frames_note_header(notes, now.header);
    int e = take != NULL ? take(ctx, now.header, sizeof(now.header), 0) : 0;
    if (e == 0)
        e = buffer_make(&w);
    if (e == 0)
        e = frames_read(&w, log->frames);
    tarn_free(w.buf);
    return e == 0 && !meta_wal_same(&now, log) ? -EBADMSG : e;
}
