/* SPDX-License-Identifier: Apache-2.0 */
/* One <Contents> of a listing, written fast. */
#ifndef TARN_S3_LIST_ROW_H
#define TARN_S3_LIST_ROW_H

#include "s3_internal.h"

/* How a page wants its rows, and what is kept from one row to the next. */
typedef struct s3_row_style {
    bool url;   /* percent-encoded keys */
    bool owner; /* with <Owner> */
    tarn_str owner_id;
    bool has_day;
    int64_t day;
    char date[11]; /* "2026-01-02T" of `day` */
} s3_row_style;
void s3_list_contents(tarn_sb *b, const tarn_version_row *row, const tarn_attrs *attrs, s3_row_style *style);

#endif
