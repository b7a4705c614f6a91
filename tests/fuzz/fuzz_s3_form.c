/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as an HTML form. What must hold: in pieces or at once, the same fields, the same file and the same verdict; no
 * field is longer than a field may be; the file does not hold the boundary.
 * Input: the first line is the Content-Type, the rest the body; the last byte says how it is cut.
 */
#include "form.h"

#include <string.h>

#define ARENA_BYTES (16u << 20)
#define PIECE_MAX 61

typedef struct body {
    const uint8_t *p;
    size_t n, piece;
} body;

typedef struct outcome {
    tarn_err begin, fields, file;
    s3_form form;
    tarn_sb bytes;
    tarn_arena *arena;
} outcome;

static tarn_err take_some(void *ctx, uint8_t *buf, size_t n, size_t *got)
{
    body *b = ctx;
    *got = n < b->n ? n : b->n;
    *got = b->piece < *got ? b->piece : *got;
    if (*got > 0)
        memcpy(buf, b->p, *got);
    b->p += *got;
    b->n -= *got;
    return TARN_OK;
}

static tarn_err keep(void *ctx, const void *p, size_t n)
{
    tarn_sb_bytes(ctx, p, n);
    return TARN_OK;
}

static void read_it(tarn_str type, body b, outcome *o)
{
    *o = (outcome){.begin = TARN_OK};
    o->arena = tarn_arena_new(ARENA_BYTES);
    TARN_ASSERT(o->arena != NULL);
    tarn_sb_init(&o->bytes, b.n + 1);
    o->form = (s3_form){.arena = o->arena, .read = take_some, .ctx = &b};
    o->begin = s3_form_begin(&o->form, type);
    if (o->begin == TARN_OK)
        o->fields = s3_form_fields(&o->form);
    if (o->begin == TARN_OK && o->fields == TARN_OK && o->form.has_file)
        o->file = s3_form_file(&o->form, keep, &o->bytes);
    TARN_ASSERT(!o->bytes.failed);
}

static void compare(const outcome *a, const outcome *b)
{
    TARN_ASSERT(a->begin == b->begin && a->fields == b->fields && a->file == b->file);
    TARN_ASSERT(a->form.fields_n == b->form.fields_n && a->form.fields_n <= S3_FORM_FIELDS_MAX);
    for (size_t i = 0; i < a->form.fields_n; i++) {
        TARN_ASSERT(tarn_str_eq(a->form.fields[i].name, b->form.fields[i].name));
        TARN_ASSERT(tarn_str_eq(a->form.fields[i].value, b->form.fields[i].value));
    }
    TARN_ASSERT(a->form.has_file == b->form.has_file && tarn_str_eq(a->form.filename, b->form.filename));
    TARN_ASSERT(a->file != TARN_OK || tarn_str_eq(tarn_sb_view(&a->bytes), tarn_sb_view(&b->bytes)));
    tarn_str delim = {a->form.delim, a->form.delim_n};
    TARN_ASSERT(delim.n == 0 || tarn_str_find(tarn_sb_view(&a->bytes), delim) < 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static outcome whole, pieces;
    tarn_str type, rest;
    if (!tarn_str_split((tarn_str){(const char *)data, n}, '\n', &type, &rest))
        return 0;
    body b = {(const uint8_t *)rest.p, rest.n, n > 0 ? n : 1};
    read_it(type, b, &whole);
    b.piece = 1 + data[n - 1] % PIECE_MAX;
    read_it(type, b, &pieces);
    compare(&whole, &pieces);
    tarn_sb_free(&whole.bytes);
    tarn_sb_free(&pieces.bytes);
    tarn_arena_free(whole.arena);
    tarn_arena_free(pieces.arena);
    return 0;
}
