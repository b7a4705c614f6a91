/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading an HTML form with a file (multipart/form-data, RFC 7578). Private to s3.
 */
#ifndef TARN_S3_FORM_H
#define TARN_S3_FORM_H

#include "tarn/base.h"

#define S3_FORM_BOUNDARY_BYTES_MAX 200
#define S3_FORM_FIELDS_MAX 100
#define S3_FORM_FIELD_BYTES_MAX (64 * 1024)

typedef struct s3_form {
    /* set by the caller; the rest is zero */
    tarn_arena *arena;
    tarn_err (*read)(void *ctx, uint8_t *buf, size_t n, size_t *got); /* *got 0: the end */
    void *ctx;
    /* the outcome */
    tarn_pair fields[S3_FORM_FIELDS_MAX]; /* names in lower case, in the order of the form */
    size_t fields_n;
    tarn_str filename;
    bool has_file;
    /* the reader's own */
    char delim[S3_FORM_BOUNDARY_BYTES_MAX + 8]; /* CR LF -- boundary */
    size_t delim_n;
    uint8_t *win;
    size_t at, n; /* unread bytes of the window: [at, n) */
    bool eof;
} s3_form;

/* PRECONDITION_FAILED: not a form by its Content-Type; MALFORMED_POST: a boundary that is none. */
tarn_err s3_form_begin(s3_form *f, tarn_str content_type);
/*
 * Reads up to the first byte of the file, or to the end of a form without one; ${filename} in values becomes the last part of the
 * file's name. MALFORMED_POST, NO_MEMORY, what read gives; LIMIT: more than S3_FORM_FIELDS_MAX fields.
 */
tarn_err s3_form_fields(s3_form *f);
tarn_str s3_form_field(const s3_form *f, const char *name); /* NULL: it is not there; the first of several */
/* The file goes to take(); then the rest is read and ignored, so that the connection can go on. Only after has_file. */
tarn_err s3_form_file(s3_form *f, tarn_err (*take)(void *ctx, const void *p, size_t n), void *ctx);

#endif
