/* SPDX-License-Identifier: Apache-2.0 */
/* A page of docs/ that holds a table made from a table of the source, between two marks. */
#ifndef TARN_TEST_DOC_TABLE_H
#define TARN_TEST_DOC_TABLE_H

#include <stdio.h>

#include "tarn/base.h"

#define DOC_PAGE_BYTES_MAX (256 * 1024)

/* Does the page have, between the marks, just this text? */
static inline bool doc_has_table(const char *path, const char *begin_mark, const char *end_mark, tarn_str want)
{
    FILE *f = fopen(path, "rb");
    char *mem = tarn_malloc(DOC_PAGE_BYTES_MAX);
    bool same = false;
    if (f != NULL && mem != NULL) {
        tarn_str page = {mem, fread(mem, 1, DOC_PAGE_BYTES_MAX, f)};
        tarn_str b = tarn_str_of(begin_mark), e = tarn_str_of(end_mark);
        ptrdiff_t begin = tarn_str_find(page, b), end = tarn_str_find(page, e);
        if (begin >= 0 && end > begin)
            same = tarn_str_eq(tarn_str_sub(page, (size_t)begin + b.n, (size_t)(end - begin) - b.n), want);
    }
    if (f != NULL)
        (void)fclose(f);
    tarn_free(mem);
    return same;
}

#endif
