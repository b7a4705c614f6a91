/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the tests of the object module share: a store on drives in a temporary folder, putting and getting with made-up
 * bytes, and damaging what lies on the drives. A test's body runs on a fiber of a loop, or on a plain thread.
 */
#ifndef OBJECT_FIXTURE_H
#define OBJECT_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "private.h"

#define FX_DRIVES_MAX 16

typedef struct fx {
    char root[256];
    char *drives[FX_DRIVES_MAX];
    size_t drives_n;
    size_t set_drives;
    tarn_fs *fs;
    uint64_t inline_max, segment_max;
    bool one_thread; /* on simulated drives every call must come in a fixed order */
    tarn_store *s;
    tarn_arena *arena;
    tarn_bucket_row bucket;
} fx;

static inline int fx_rm_one(const char *path, const struct stat *st, int kind, struct FTW *ftw)
{
    (void)st;
    (void)kind;
    (void)ftw;
    return remove(path);
}

static inline void fx_rm(const char *path)
{
    (void)nftw(path, fx_rm_one, 16, FTW_DEPTH | FTW_PHYS);
}

static inline char *fx_fmt(const char *fmt, ...) TARN_PRINTF(1, 2);
static inline char *fx_fmt(const char *fmt, ...)
{
    tarn_sb b;
    va_list ap;
    tarn_sb_init(&b, 4096);
    va_start(ap, fmt);
    tarn_sb_vfmt(&b, fmt, ap);
    va_end(ap);
    assert_false(b.failed);
    return b.p;
}

/* Drives are named but not made: a new deployment makes them. */
static inline void fx_init(fx *f, size_t drives_n)
{
    const char *tmp = getenv("TMPDIR");
    memset(f, 0, sizeof *f);
    char *root = fx_fmt("%s/tarn-obj-XXXXXX", tmp ? tmp : "/tmp");
    assert_non_null(mkdtemp(root));
    memcpy(f->root, root, strlen(root) + 1);
    tarn_free(root);
    f->drives_n = drives_n;
    for (size_t i = 0; i < drives_n; i++) {
        f->drives[i] = fx_fmt("%s/d%zu", f->root, i + 1);
    }
    f->fs = tarn_fs_posix();
}

static inline tarn_err fx_try_open(fx *f, tarn_str *reason)
{
    f->arena = f->arena ? f->arena : tarn_arena_new(512u << 20);
    assert_non_null(f->arena);
    tarn_store_options o = {.fs = f->fs,
                            .drives = (const char *const *)f->drives,
                            .drives_n = f->drives_n,
                            .set_drives = f->set_drives,
                            .inline_bytes_max = f->inline_max,
                            .segment_object_bytes_max = f->segment_max,
                            .inline_committer = f->one_thread};
    return tarn_store_open(&o, &f->s, f->arena, reason);
}

static inline void fx_open(fx *f)
{
    tarn_str reason = TARN_STR("");
    tarn_err err = fx_try_open(f, &reason);
    if (err) {
        print_error("open: %s: %.*s\n", tarn_err_get(err)->name, TARN_STR_ARG(reason));
    }
    assert_int_equal(err, TARN_OK);
}

static inline void fx_close(fx *f)
{
    tarn_store_close(f->s);
    f->s = NULL;
    tarn_arena_free(f->arena);
    f->arena = NULL;
}

static inline void fx_end(fx *f)
{
    fx_close(f);
    for (size_t i = 0; i < f->drives_n; i++) {
        tarn_free(f->drives[i]);
    }
    fx_rm(f->root);
}

/* ------------------------------------------------------------------ buckets */
static inline tarn_err fx_bucket_fn(tarn_meta_tx *tx, void *arg)
{
    return tarn_meta_bucket_create(tx, arg);
}

static inline void fx_bucket(fx *f, const char *name, tarn_versioning v)
{
    f->bucket =
        (tarn_bucket_row){.name = tarn_arena_str(f->arena, tarn_str_of(name)), .owner = TARN_STR("me"), .created_ms = 1, .versioning = v};
    assert_int_equal(tarn_meta_commit(f->s->meta, fx_bucket_fn, &f->bucket), TARN_OK);
}

static inline tarn_err fx_versioning_fn(tarn_meta_tx *tx, void *arg)
{
    return tarn_meta_bucket_update(tx, arg);
}

static inline void fx_versioning(fx *f, tarn_versioning v)
{
    f->bucket.versioning = v;
    assert_int_equal(tarn_meta_commit(f->s->meta, fx_versioning_fn, &f->bucket), TARN_OK);
}

static inline void fx_reload_bucket(fx *f, const char *name)
{
    assert_int_equal(tarn_meta_bucket_get(f->s->meta, NULL, tarn_str_of(name), f->arena, &f->bucket), TARN_OK);
}

/* ------------------------------------------------------------------ bytes */
/* Byte i of the stream `seed`: any range can be checked without keeping the whole. */
static inline uint8_t fx_byte(uint64_t seed, uint64_t i)
{
    uint64_t x = (i / 8 + 1) * 0x9E3779B97F4A7C15ull + seed * 0xBF58476D1CE4E5B9ull;
    x ^= x >> 29;
    x *= 0x94D049BB133111EBull;
    x ^= x >> 32;
    return (uint8_t)(x >> (8 * (i % 8)));
}

/* Hands over the next bytes of the stream, piece_max of them at the most. */
static inline tarn_err fx_put_piece(tarn_put *p, uint64_t seed, uint64_t *at, uint64_t size, size_t piece_max)
{
    uint8_t *buf = NULL;
    size_t cap = 0;
    tarn_err err = tarn_put_reserve(p, &buf, &cap);
    if (err) {
        return err;
    }
    size_t n = cap < size - *at ? cap : (size_t)(size - *at);
    n = n > piece_max ? piece_max : n;
    for (size_t i = 0; i < n; i++) {
        buf[i] = fx_byte(seed, *at + i);
    }
    *at += n;
    return tarn_put_advance(p, n);
}

static inline tarn_err fx_put_spec(fx *f, const tarn_put_spec *spec, uint64_t seed, uint64_t size, tarn_put_result *out)
{
    tarn_put *p = NULL;
    tarn_err err = tarn_put_begin(f->s, spec, f->arena, &p);
    uint64_t at = 0;
    while (!err && at < size) {
        err = fx_put_piece(p, seed, &at, size, 100000); /* as a socket would */
    }
    if (err) {
        tarn_put_abort(p);
        return err;
    }
    return tarn_put_finish(p, out);
}

static inline tarn_put_spec fx_spec(fx *f, const char *key, uint64_t size_hint)
{
    return (tarn_put_spec){.bucket = &f->bucket, .key = tarn_arena_str(f->arena, tarn_str_of(key)), .size_hint = size_hint};
}

static inline tarn_put_result fx_put(fx *f, const char *key, uint64_t seed, uint64_t size, bool known)
{
    tarn_put_spec spec = fx_spec(f, key, known ? size : UINT64_MAX);
    tarn_put_result r;
    assert_int_equal(fx_put_spec(f, &spec, seed, size, &r), TARN_OK);
    assert_int_equal(r.row.size, size);
    return r;
}

static inline tarn_err fx_read(fx *f, const tarn_version_row *row, uint64_t seed, uint64_t off, uint64_t len)
{
    tarn_get *g = NULL;
    uint64_t at = off;
    tarn_err err = tarn_get_open(f->s, row, off, len, f->arena, &g);
    while (!err) {
        const uint8_t *p = NULL;
        size_t n = 0;
        err = tarn_get_next(g, &p, &n);
        if (err || n == 0) {
            break;
        }
        for (size_t i = 0; i < n; i++) {
            if (p[i] != fx_byte(seed, at + i)) {
                fail_msg("byte %llu is wrong", (unsigned long long)(at + i));
            }
        }
        at += n;
    }
    tarn_get_close(g);
    if (!err) {
        assert_int_equal(at, off + len);
    }
    return err;
}

static inline tarn_version_row fx_stat(fx *f, const char *key)
{
    tarn_version_row row;
    tarn_version_ref ref = {.sel = TARN_VERSION_CURRENT};
    assert_int_equal(tarn_object_stat(f->s, &f->bucket, tarn_arena_str(f->arena, tarn_str_of(key)), ref, f->arena, &row), TARN_OK);
    return row;
}

static inline void fx_check(fx *f, const char *key, uint64_t seed, uint64_t size)
{
    tarn_version_row row = fx_stat(f, key);
    assert_int_equal(row.size, size);
    assert_int_equal(fx_read(f, &row, seed, 0, size), TARN_OK);
}

/* ------------------------------------------------------------------ running on a loop */
typedef struct fx_run {
    void (*fn)(fx *f);
    fx *f;
    tarn_loop *loop;
} fx_run;

static inline void fx_run_main(void *arg)
{
    fx_run *r = arg;
    r->fn(r->f);
    tarn_loop_stop(r->loop);
}

/* False where the back end is refused on this machine. */
static inline bool fx_on_loop(tarn_io_backend backend, void (*fn)(fx *f), fx *f)
{
    tarn_loop_options o = {.backend = backend, .threads = 4, .name = "test"};
    fx_run r = {fn, f, NULL};
    tarn_err err = tarn_loop_create(&o, &r.loop);
    if (err == TARN_E_UNSUPPORTED) {
        return false;
    }
    assert_int_equal(err, TARN_OK);
    assert_int_equal(tarn_fiber_spawn(r.loop, fx_run_main, &r, "test"), TARN_OK);
    tarn_loop_run(r.loop);
    tarn_loop_destroy(r.loop);
    return true;
}

#endif
