/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the tests of meta share: a store in temporary folders (1 … META_TEST_DIRS_MAX of them), opened inline, reopened at
 * will, and removed at the end.
 */
#ifndef TARN_TEST_META_TEST_H
#define TARN_TEST_META_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "tarn/meta.h"

#define META_TEST_DIRS_MAX 4
#define META_TEST_PATH_BYTES 256

typedef struct fixture {
    char dirs[META_TEST_DIRS_MAX][META_TEST_PATH_BYTES];
    const char *dir_ptrs[META_TEST_DIRS_MAX];
    tarn_meta_options opt;
    tarn_meta *m;
    tarn_arena *arena;
} fixture;

static TARN_UNUSED void dir_make(char out[META_TEST_PATH_BYTES])
{
    const char *base = getenv("TMPDIR");
    tarn_sb b;

    tarn_sb_init_fixed(&b, out, META_TEST_PATH_BYTES);
    tarn_sb_fmt(&b, "%s/tarn-meta-XXXXXX", base != NULL ? base : "/tmp");
    assert_false(b.failed);
    assert_non_null(mkdtemp(out));
}

static TARN_UNUSED bool dir_entry_remove(void *ctx, const char *name, bool is_dir)
{
    char path[META_TEST_PATH_BYTES * 2];
    tarn_sb b;

    assert_false(is_dir);
    tarn_sb_init_fixed(&b, path, sizeof(path));
    tarn_sb_fmt(&b, "%s/%s", (const char *)ctx, name);
    assert_int_equal(unlink(path), 0);
    return true;
}

/* The files of a folder go, the folder stays. */
static TARN_UNUSED void dir_empty(char *dir)
{
    tarn_fs *fs = tarn_fs_posix();

    assert_int_equal(fs->list(fs, dir, dir_entry_remove, dir), 0);
}

static TARN_UNUSED fixture *fixture_new(size_t dirs_n, size_t write_quorum)
{
    fixture *f = tarn_calloc(1, sizeof(*f));

    assert_non_null(f);
    for (size_t i = 0; i < dirs_n; i++) {
        dir_make(f->dirs[i]);
        f->dir_ptrs[i] = f->dirs[i];
    }
    f->arena = tarn_arena_new(64u * 1024 * 1024);
    assert_non_null(f->arena);
    f->opt = (tarn_meta_options){.fs = tarn_fs_posix(),
                                 .dirs = f->dir_ptrs,
                                 .dirs_n = dirs_n,
                                 .write_quorum = write_quorum,
                                 .cache_bytes = 4u * 1024 * 1024,
                                 .inline_committer = true};
    return f;
}

static TARN_UNUSED void fixture_reopen(fixture *f)
{
    tarn_meta_close(f->m);
    f->m = NULL;
    assert_int_equal(tarn_meta_open(&f->opt, &f->m), TARN_OK);
}

static TARN_UNUSED int fixture_setup(void **state)
{
    fixture *f = fixture_new(1, 1);

    fixture_reopen(f);
    *state = f;
    return 0;
}

static TARN_UNUSED int fixture_teardown(void **state)
{
    fixture *f = *state;

    tarn_meta_close(f->m);
    for (size_t i = 0; i < f->opt.dirs_n; i++) {
        dir_empty(f->dirs[i]);
        (void)rmdir(f->dirs[i]);
    }
    tarn_arena_free(f->arena);
    tarn_free(f);
    return 0;
}

#endif
