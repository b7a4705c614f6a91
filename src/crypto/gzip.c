/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gzip (RFC 1952) of whole texts, in and out, by isa-l: compressed metadata files. What comes out is bounded, whatever the file
 * says about itself.
 */
#include <isa-l/igzip_lib.h>

#include "tarn/crypto.h"

#define GZIP_STEP_BYTES (256u * 1024)
#define GZIP_LEVEL 1

bool tarn_is_gzip(tarn_str bytes)
{
    return bytes.n > 2 && (unsigned char)bytes.p[0] == 0x1f && (unsigned char)bytes.p[1] == 0x8b;
}

tarn_err tarn_gunzip(tarn_str bytes, size_t max_bytes, tarn_arena *a, tarn_str *out)
{
    struct inflate_state *s = tarn_arena_zalloc(a, sizeof *s);
    size_t cap = bytes.n * 4 + GZIP_STEP_BYTES, n = 0;
    uint8_t *p = s && bytes.n <= UINT32_MAX ? tarn_arena_alloc(a, cap) : NULL;
    if (!p)
        return TARN_E_NO_MEMORY;
    isal_inflate_init(s);
    s->crc_flag = ISAL_GZIP;
    s->next_in = (uint8_t *)(uintptr_t)bytes.p;
    s->avail_in = (uint32_t)bytes.n;
    for (;;) {
        size_t room = cap - n > UINT32_MAX ? UINT32_MAX : cap - n;
        s->next_out = p + n;
        s->avail_out = (uint32_t)room;
        if (isal_inflate(s) != ISAL_DECOMP_OK)
            return TARN_E_INVALID;
        n += room - s->avail_out;
        if (n > max_bytes)
            return TARN_E_LIMIT;
        if (s->block_state == ISAL_BLOCK_FINISH)
            break;
        if (s->avail_out > 0) /* input is used up and the stream has no end */
            return TARN_E_INVALID;
        uint8_t *more = tarn_arena_alloc(a, cap * 2);
        if (!more)
            return TARN_E_NO_MEMORY;
        __builtin_memcpy(more, p, n);
        p = more;
        cap *= 2;
    }
    *out = (tarn_str){(const char *)p, n};
    return TARN_OK;
}

tarn_err tarn_gzip(tarn_str bytes, tarn_sb *out)
{
    struct isal_zstream *z = tarn_calloc(1, sizeof *z);
    uint8_t *level = tarn_malloc(ISAL_DEF_LVL1_DEFAULT);
    tarn_err err = z && level && bytes.n <= UINT32_MAX ? TARN_OK : TARN_E_NO_MEMORY;
    if (err == TARN_OK) {
        isal_deflate_init(z);
        z->gzip_flag = IGZIP_GZIP;
        z->level = GZIP_LEVEL;
        z->level_buf = level;
        z->level_buf_size = ISAL_DEF_LVL1_DEFAULT;
        z->next_in = (uint8_t *)(uintptr_t)bytes.p;
        z->avail_in = (uint32_t)bytes.n;
        z->end_of_stream = 1;
    }
    while (err == TARN_OK && z->internal_state.state != ZSTATE_END) {
        uint8_t *p = (uint8_t *)tarn_sb_reserve(out, GZIP_STEP_BYTES);
        if (!p) {
            err = TARN_E_NO_MEMORY;
            break;
        }
        z->next_out = p;
        z->avail_out = GZIP_STEP_BYTES;
        if (isal_deflate(z) != COMP_OK)
            err = TARN_E_INTERNAL;
        out->n += GZIP_STEP_BYTES - z->avail_out;
    }
    tarn_free(level);
    tarn_free(z);
    return err;
}
