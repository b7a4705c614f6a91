/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The error table, the mapping from errno, and the end of a process whose invariant is broken.
 *
 * The table is built from errors.def: index = tarn_err. Row 0 stands for TARN_OK so that printing a success is harmless.
 * Invariant 1: every row has a name, an S3 code, an Iceberg type and a message (none is NULL).
 * Memory: constant. Threads: any.
 */
#include "tarn/base.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

static const tarn_err_info err_table[TARN_ERR_COUNT] = {
    [TARN_OK] = {"OK", 200, "OK", "OK", "Success"},
#define TARN_ERR(name, status, s3_code, iceberg_type, message) [TARN_E_##name] = {#name, status, s3_code, iceberg_type, message},
#include "tarn/errors.def"
#undef TARN_ERR
};

const tarn_err_info *tarn_err_get(tarn_err e)
{
    if ((unsigned)e >= (unsigned)TARN_ERR_COUNT) {
        return &err_table[TARN_E_INTERNAL];
    }
    return &err_table[e];
}

tarn_err tarn_err_from_errno(int errno_value)
{
    switch (errno_value) {
    case ENOENT:
        return TARN_E_NOT_FOUND;
    case ENOSPC:
    case EDQUOT:
        return TARN_E_DISK_FULL;
    case ENOMEM:
        return TARN_E_NO_MEMORY;
    case EROFS:
        return TARN_E_DRIVE_READ_ONLY;
    default:
        return TARN_E_IO;
    }
}

_Noreturn void tarn_panic(const char *file, int line, const char *what)
{
    /* The log's lock may be the thing that is broken, so this goes straight to standard error, from memory on the stack. */
    char mem[1024];
    tarn_sb b;
    tarn_sb_init_fixed(&b, mem, sizeof mem);
    tarn_sb_fmt(&b, "tarn: invariant broken at %.200s:%d: %.500s\n", file, line, what);
    if (write(STDERR_FILENO, b.p, b.n) < 0) {
        abort(); /* nobody can read it; the core file remains */
    }
    abort();
}
