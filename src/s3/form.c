/* SPDX-License-Identifier: Apache-2.0 */
/*
 * multipart/form-data (RFC 7578), as browsers send it for POST Object: fields, then one file.
 *
 * States: preamble → part headers → field value → … → file → closing boundary. Fields before the file are kept in the arena
 * (bounded in number and size); the file is given away while the closing boundary is looked for in a window that always holds
 * back the last bytes which may belong to it. Fields after the file are ignored, as S3 does.
 *
 * Invariants:
 *  1. However the bytes come in, the fields, the file and the verdict are the same.
 * Memory: the window and the fields are in the caller's arena. Threads: the caller's.
 */
#include "form.h"

#include <string.h>

#define WINDOW_BYTES (128 * 1024)
#define PART_HEAD_BYTES_MAX 4096

_Static_assert(S3_FORM_FIELD_BYTES_MAX + S3_FORM_BOUNDARY_BYTES_MAX + 8 < WINDOW_BYTES, "a field and its end fit the window");

/* ------------------------------------------------------------------ window */
static tarn_err fill(s3_form *f)
{
    size_t got;
    if (f->at > 0) {
        memmove(f->win, f->win + f->at, f->n - f->at);
        f->n -= f->at;
        f->at = 0;
    }
    if (f->n == WINDOW_BYTES || f->eof)
        return TARN_OK;
    tarn_err e = f->read(f->ctx, f->win + f->n, WINDOW_BYTES - f->n, &got);
    if (e != TARN_OK)
        return e;
    f->eof = got == 0;
    f->n += got;
    return TARN_OK;
}

static tarn_str unread(const s3_form *f)
{
    return (tarn_str){(const char *)f->win + f->at, f->n - f->at};
}

/* Makes sure that `needle` is in the window; at most max bytes ahead. */
static tarn_err seek_to(s3_form *f, tarn_str needle, size_t max, size_t *pos)
{
    for (;;) {
        ptrdiff_t i = tarn_str_find(unread(f), needle);
        if (i >= 0 && (size_t)i <= max) {
            *pos = (size_t)i;
            return TARN_OK;
        }
        if (i >= 0 || f->n - f->at > max + needle.n || f->eof)
            return TARN_E_MALFORMED_POST;
        tarn_err e = fill(f);
        if (e != TARN_OK)
            return e;
    }
}

/* ------------------------------------------------------------------ boundaries and part heads */
static tarn_err read_boundary(s3_form *f, tarn_str ct)
{
    ptrdiff_t i = tarn_str_find(ct, TARN_STR("boundary="));
    if (!tarn_str_istarts(ct, "multipart/form-data") || i < 0)
        return TARN_E_PRECONDITION_FAILED;
    tarn_str b = tarn_str_sub(ct, (size_t)i + 9, ct.n);
    ptrdiff_t semi = tarn_str_chr(b, ';');
    if (semi >= 0)
        b = tarn_str_sub(b, 0, (size_t)semi);
    b = tarn_str_trim(b);
    if (b.n >= 2 && b.p[0] == '"' && b.p[b.n - 1] == '"')
        b = tarn_str_sub(b, 1, b.n - 2);
    if (b.n == 0 || b.n > S3_FORM_BOUNDARY_BYTES_MAX)
        return TARN_E_MALFORMED_POST;
    tarn_sb sb;
    tarn_sb_init_fixed(&sb, f->delim, sizeof f->delim);
    tarn_sb_cstr(&sb, "\r\n--");
    tarn_sb_str(&sb, b);
    f->delim_n = sb.n;
    return sb.failed ? TARN_E_MALFORMED_POST : TARN_OK;
}

/* Behind a delimiter: "--" ends the form, CR LF begins a part. */
static tarn_err after_delimiter(s3_form *f, bool *end)
{
    while (f->n - f->at < 2) {
        if (f->eof)
            return TARN_E_MALFORMED_POST;
        tarn_err e = fill(f);
        if (e != TARN_OK)
            return e;
    }
    *end = memcmp(f->win + f->at, "--", 2) == 0;
    bool line = memcmp(f->win + f->at, "\r\n", 2) == 0;
    f->at += 2;
    return *end || line ? TARN_OK : TARN_E_MALFORMED_POST;
}

/* The end of a value that begins at v.p[at]: behind the closing quote, or at the next ';'. */
static size_t value_end(tarn_str v, size_t at)
{
    if (at < v.n && v.p[at] == '"') {
        for (at++; at < v.n && v.p[at] != '"'; at++)
            if (v.p[at] == '\\' && at + 1 < v.n)
                at++;
        return at < v.n ? at + 1 : at;
    }
    while (at < v.n && v.p[at] != ';')
        at++;
    return at;
}

/* name="…" of a Content-Disposition; {NULL,0} when it is not there. Browsers escape a quote as %22 or \": the latter is undone. */
static tarn_str disposition_param(tarn_arena *a, tarn_str v, const char *name)
{
    size_t at = 0;
    while (at < v.n) {
        size_t start = at;
        while (at < v.n && v.p[at] != '=' && v.p[at] != ';')
            at++;
        tarn_str k = tarn_str_trim(tarn_str_sub(v, start, at - start));
        if (at == v.n || v.p[at] == ';') {
            at++;
            continue;
        }
        size_t end = value_end(v, ++at);
        tarn_str val = tarn_str_trim(tarn_str_sub(v, at, end - at));
        at = end < v.n && v.p[end] == ';' ? end + 1 : end;
        if (!tarn_str_ieqc(k, name))
            continue;
        if (val.n < 2 || val.p[0] != '"' || val.p[val.n - 1] != '"')
            return val.p != NULL ? val : TARN_STR("");
        char *mem = tarn_arena_alloc(a, val.n);
        size_t n = 0;
        for (size_t i = 1; mem != NULL && i + 1 < val.n; i++) {
            if (val.p[i] == '\\' && i + 2 < val.n && (val.p[i + 1] == '"' || val.p[i + 1] == '\\'))
                i++;
            mem[n++] = val.p[i];
        }
        return (tarn_str){mem, n};
    }
    return TARN_STR_NULL;
}

static tarn_err read_part_head(s3_form *f, tarn_str *name, tarn_str *filename)
{
    size_t len;
    tarn_err e = seek_to(f, TARN_STR("\r\n\r\n"), PART_HEAD_BYTES_MAX, &len);
    if (e != TARN_OK)
        return e;
    tarn_str head = tarn_arena_str(f->arena, tarn_str_sub(unread(f), 0, len));
    if (head.p == NULL)
        return TARN_E_NO_MEMORY;
    f->at += len + 4;
    *name = *filename = TARN_STR_NULL;
    while (head.n > 0) {
        ptrdiff_t i = tarn_str_find(head, TARN_STR("\r\n"));
        tarn_str line = i < 0 ? head : tarn_str_sub(head, 0, (size_t)i), k, v;
        head = i < 0 ? TARN_STR_NULL : tarn_str_sub(head, (size_t)i + 2, head.n);
        if (!tarn_str_split(line, ':', &k, &v))
            return TARN_E_MALFORMED_POST;
        v = tarn_str_trim(v);
        if (!tarn_str_ieqc(k, "content-disposition"))
            continue;
        *name = disposition_param(f->arena, v, "name");
        *filename = disposition_param(f->arena, v, "filename");
    }
    return name->p != NULL ? TARN_OK : TARN_E_MALFORMED_POST;
}

static tarn_err add_field(s3_form *f, tarn_str name, tarn_str value)
{
    if (f->fields_n == S3_FORM_FIELDS_MAX)
        return TARN_E_LIMIT;
    tarn_str low = tarn_arena_str(f->arena, name), v = tarn_arena_str(f->arena, value);
    if (low.p == NULL || v.p == NULL)
        return TARN_E_NO_MEMORY;
    for (size_t i = 0; i < low.n; i++)
        if (low.p[i] >= 'A' && low.p[i] <= 'Z')
            ((char *)(uintptr_t)low.p)[i] = (char)(low.p[i] + ('a' - 'A'));
    f->fields[f->fields_n++] = (tarn_pair){low, v};
    return TARN_OK;
}

static tarn_err read_fields(s3_form *f)
{
    size_t len;
    tarn_str first = {f->delim + 2, f->delim_n - 2};
    tarn_err e = seek_to(f, first, PART_HEAD_BYTES_MAX, &len);
    if (e != TARN_OK)
        return e;
    f->at += len + first.n;
    for (;;) {
        bool end;
        tarn_str name, filename;
        e = after_delimiter(f, &end);
        if (e != TARN_OK)
            return e;
        if (end)
            return TARN_OK;
        e = read_part_head(f, &name, &filename);
        if (e != TARN_OK)
            return e;
        if (tarn_str_ieqc(name, "file")) {
            f->has_file = true;
            f->filename = filename;
            return TARN_OK;
        }
        e = seek_to(f, (tarn_str){f->delim, f->delim_n}, S3_FORM_FIELD_BYTES_MAX, &len);
        if (e == TARN_OK)
            e = add_field(f, name, tarn_str_sub(unread(f), 0, len));
        if (e != TARN_OK)
            return e;
        f->at += len + f->delim_n;
    }
}

static tarn_err replace_filename(s3_form *f)
{
    for (size_t i = 0; i < f->fields_n; i++) {
        tarn_str v = f->fields[i].value;
        ptrdiff_t at = tarn_str_find(v, TARN_STR("${filename}"));
        if (at < 0)
            continue;
        tarn_str base = f->filename;
        ptrdiff_t slash = tarn_str_rchr(base, '/');
        if (slash >= 0)
            base = tarn_str_sub(base, (size_t)slash + 1, base.n);
        f->fields[i].value =
            tarn_arena_fmt(f->arena, "%.*s%.*s%.*s", (int)at, v.p, TARN_STR_ARG(base), TARN_STR_ARG(tarn_str_sub(v, (size_t)at + 11, v.n)));
        if (f->fields[i].value.p == NULL)
            return TARN_E_NO_MEMORY;
    }
    return TARN_OK;
}

/* The rest must be read, so that the connection can go on; no second file may come. */
static tarn_err skip_rest(s3_form *f)
{
    while (!f->eof) {
        f->at = f->n;
        tarn_err e = fill(f);
        if (e != TARN_OK)
            return e;
    }
    return TARN_OK;
}

/* ------------------------------------------------------------------ for others */
tarn_err s3_form_begin(s3_form *f, tarn_str content_type)
{
    TARN_ASSERT(f->arena != NULL && f->read != NULL && f->win == NULL);
    f->win = tarn_arena_alloc(f->arena, WINDOW_BYTES);
    if (f->win == NULL)
        return TARN_E_NO_MEMORY;
    return read_boundary(f, content_type);
}

tarn_err s3_form_fields(s3_form *f)
{
    tarn_err e = read_fields(f);
    return e == TARN_OK ? replace_filename(f) : e;
}

tarn_str s3_form_field(const s3_form *f, const char *name)
{
    for (size_t i = 0; i < f->fields_n; i++)
        if (tarn_str_eqc(f->fields[i].name, name))
            return f->fields[i].value;
    return TARN_STR_NULL;
}

tarn_err s3_form_file(s3_form *f, tarn_err (*take)(void *ctx, const void *p, size_t n), void *ctx)
{
    tarn_str delim = {f->delim, f->delim_n};
    for (;;) {
        tarn_str u = unread(f);
        ptrdiff_t i = tarn_str_find(u, delim);
        /* What can't be the beginning of the delimiter goes out. */
        size_t out = i >= 0 ? (size_t)i : u.n >= delim.n ? u.n - (delim.n - 1) : 0;
        if (out > 0) {
            tarn_err e = take(ctx, u.p, out);
            if (e != TARN_OK)
                return e;
            f->at += out;
        }
        if (i >= 0) {
            f->at += delim.n;
            return skip_rest(f);
        }
        if (f->eof)
            return TARN_E_MALFORMED_POST;
        tarn_err e = fill(f);
        if (e != TARN_OK)
            return e;
    }
}
