/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds test data that lies outside the repository: under $TARN_SHARED, else ../shared beside it. A test whose data is not
 * there skips and says so.
 */
#ifndef TARN_TESTS_SHARED_DATA_H
#define TARN_TESTS_SHARED_DATA_H

#include "tarn/base.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SHARED_PATH_BYTES 1024

/* False when it is not there. */
static inline bool shared_path(const char *relative, char out[SHARED_PATH_BYTES])
{
    const char *root = getenv("TARN_SHARED");
    tarn_sb b;
    tarn_sb_init_fixed(&b, out, SHARED_PATH_BYTES);
    if (root) {
        tarn_sb_fmt(&b, "%s/%s", root, relative);
    } else {
        tarn_sb_fmt(&b, "%s/../shared/%s", TARN_SOURCE_DIR, relative);
    }
    return !b.failed && access(out, R_OK) == 0;
}

/* The whole file, freed with tarn_free; p == NULL when it can't be read. */
static inline tarn_str shared_read(const char *path)
{
    FILE *f = fopen(path, "rb");
    tarn_sb b;
    tarn_sb_init(&b, 16u * 1024 * 1024);
    char part[4096];
    size_t n;
    if (!f) {
        return TARN_STR_NULL;
    }
    while ((n = fread(part, 1, sizeof part, f)) > 0) {
        tarn_sb_bytes(&b, part, n);
    }
    fclose(f);
    if (b.failed) {
        tarn_sb_free(&b);
        return TARN_STR_NULL;
    }
    return (tarn_str){b.p ? b.p : tarn_strdup(TARN_STR("")), b.n};
}

#endif
