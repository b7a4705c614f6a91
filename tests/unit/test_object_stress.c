/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two loops, many fibers, the background work running: each fiber owns some keys, overwrites, reads, deletes and aborts at
 * random, and must always find what it wrote last; shards are damaged meanwhile. At the end everything is read once more,
 * and after the last deletion no data is left.
 */
#include "object_fixture.h"

#include <dirent.h>
#include <pthread.h>
#include <stdatomic.h>

#define LOOPS 2
#define FIBERS 8
#define OPS 60
#define KEYS 3
#define MIB ((uint64_t)1 << 20)

typedef struct worker {
    fx *f;
    tarn_loop *loop;
    pthread_t thread;
    tarn_io_backend backend;
    atomic_uint running;
    bool first;
} worker;

typedef struct actor {
    worker *w;
    unsigned id;
    uint64_t state; /* of its own random numbers */
    struct {
        bool there;
        uint64_t seed, size;
    } keys[KEYS];
} actor;

static uint64_t next(actor *a)
{
    a->state ^= a->state << 13;
    a->state ^= a->state >> 7;
    a->state ^= a->state << 17;
    return a->state;
}

static tarn_str key_of(tarn_arena *arena, const actor *a, unsigned k)
{
    return tarn_arena_fmt(arena, "%u/%p/%u", a->id, (void *)a->w, k);
}

static uint64_t pick_size(actor *a)
{
    static const uint64_t of[] = {0, 10, 16384, 16385, 70000, 300000, MIB, MIB + 1, 2 * MIB + 5, 5 * MIB + 77};
    return of[next(a) % TARN_ARRAY_LEN(of)];
}

static void act_put(actor *a, unsigned k, fx *f)
{
    uint64_t size = pick_size(a), seed = next(a);
    bool give_up = next(a) % 8 == 0;
    tarn_put_spec spec = {.bucket = &f->bucket, .key = key_of(f->arena, a, k), .size_hint = next(a) % 2 ? size : UINT64_MAX};
    tarn_put *p = NULL;
    tarn_put_result r;
    assert_int_equal(tarn_put_begin(f->s, &spec, f->arena, &p), TARN_OK);
    for (uint64_t at = 0; at < size;) {
        assert_int_equal(fx_put_piece(p, seed, &at, size, SIZE_MAX), TARN_OK);
        if (next(a) % 4 == 0) {
            tarn_fiber_yield();
        }
        if (give_up && at > size / 2) {
            tarn_put_abort(p);
            return;
        }
    }
    assert_int_equal(tarn_put_finish(p, &r), TARN_OK);
    a->keys[k].there = true;
    a->keys[k].seed = seed;
    a->keys[k].size = size;
}

static void act_get(actor *a, unsigned k, fx *f)
{
    tarn_version_row row;
    tarn_err err =
        tarn_object_stat(f->s, &f->bucket, key_of(f->arena, a, k), (tarn_version_ref){.sel = TARN_VERSION_CURRENT}, f->arena, &row);
    assert_int_equal(err, a->keys[k].there ? TARN_OK : TARN_E_NO_SUCH_KEY);
    if (err) {
        return;
    }
    assert_int_equal(row.size, a->keys[k].size);
    uint64_t off = row.size ? next(a) % row.size : 0;
    assert_int_equal(fx_read(f, &row, a->keys[k].seed, off, row.size - off), TARN_OK);
}

static void act_delete(actor *a, unsigned k, fx *f)
{
    tarn_delete_spec d = {.key = key_of(f->arena, a, k)};
    tarn_delete_result r;
    assert_int_equal(tarn_object_delete(f->s, &f->bucket, &d, 1, &r), TARN_OK);
    assert_int_equal(r.err, TARN_OK);
    a->keys[k].there = false;
}

static void actor_main(void *arg)
{
    actor *a = arg;
    fx f = *a->w->f; /* the store is shared, the arena is not */
    f.arena = tarn_arena_new(64u << 20);
    for (unsigned i = 0; i < OPS; i++) {
        unsigned k = (unsigned)(next(a) % KEYS);
        switch (next(a) % 5) {
        case 0:
        case 1:
            act_put(a, k, &f);
            break;
        case 2:
        case 3:
            act_get(a, k, &f);
            break;
        default:
            act_delete(a, k, &f);
        }
        tarn_arena_reset(f.arena);
    }
    for (unsigned k = 0; k < KEYS; k++) {
        act_get(a, k, &f);
        act_delete(a, k, &f);
    }
    tarn_arena_free(f.arena);
    worker *w = a->w;
    tarn_free(a);
    if (atomic_fetch_sub(&w->running, 1) == 1) {
        if (w->first) {
            tarn_store_stop_background(w->f->s);
        }
        tarn_loop_stop(w->loop);
    }
}

static void *worker_main(void *arg)
{
    worker *w = arg;
    tarn_loop_run(w->loop);
    return NULL;
}

/* Flips a byte in the middle of some files of one drive, again and again, while the others work. */
static void damage_some(fx *f, unsigned round)
{
    char *dir = fx_fmt("%s/tarn/parts/%02x", f->drives[0], round % 64);
    DIR *d = opendir(dir);
    for (struct dirent *e; d && (e = readdir(d)) != NULL;) {
        char *path = fx_fmt("%s/%s", dir, e->d_name);
        int fd = e->d_name[0] == '.' ? -1 : open(path, O_RDWR | O_CLOEXEC);
        struct stat st;
        uint8_t x;
        if (fd >= 0 && fstat(fd, &st) == 0 && st.st_size > 8192 && pread(fd, &x, 1, st.st_size / 2) == 1) {
            x ^= 0x40;
            (void)!pwrite(fd, &x, 1, st.st_size / 2);
        }
        if (fd >= 0) {
            (void)close(fd);
        }
        tarn_free(path);
    }
    if (d) {
        (void)closedir(d);
    }
    tarn_free(dir);
}

static bool stress(tarn_io_backend backend, size_t drives)
{
    fx f;
    worker w[LOOPS];
    fx_init(&f, drives);
    fx_open(&f);
    fx_bucket(&f, "bucket", TARN_VERSIONING_OFF);
    for (unsigned i = 0; i < LOOPS; i++) {
        tarn_loop_options o = {.backend = backend, .threads = 3, .name = "stress"};
        w[i] = (worker){.f = &f, .backend = backend, .first = i == 0};
        atomic_store(&w[i].running, FIBERS);
        if (tarn_loop_create(&o, &w[i].loop) == TARN_E_UNSUPPORTED) {
            fx_end(&f);
            return false;
        }
        for (unsigned k = 0; k < FIBERS; k++) {
            actor *a = tarn_calloc(1, sizeof *a);
            *a = (actor){.w = &w[i], .id = k, .state = 0x9E3779B97F4A7C15ull * (i * FIBERS + k + 1)};
            assert_int_equal(tarn_fiber_spawn(w[i].loop, actor_main, a, "actor"), TARN_OK);
        }
    }
    assert_int_equal(tarn_store_start_background(f.s, w[0].loop), TARN_OK);
    for (unsigned i = 0; i < LOOPS; i++) {
        assert_int_equal(pthread_create(&w[i].thread, NULL, worker_main, &w[i]), 0);
    }
    for (unsigned round = 0; f.s->m > 0 && atomic_load(&w[0].running) > 0; round++) {
        damage_some(&f, round);
        (void)usleep(2000);
    }
    for (unsigned i = 0; i < LOOPS; i++) {
        assert_int_equal(pthread_join(w[i].thread, NULL), 0);
    }
    fx_close(&f); /* ends the committer, which may still be about to wake a loop */
    for (unsigned i = 0; i < LOOPS; i++) {
        tarn_loop_destroy(w[i].loop);
    }
    fx_open(&f);
    assert_int_equal(tarn_store_collect_garbage(f.s, 0), TARN_OK);
    char *cmd = fx_fmt("find %s -path '*/parts/*' -type f -o -path '*/segments/*' -type f | wc -l", f.root);
    FILE *p = popen(cmd, "r");
    int left = -1;
    assert_int_equal(fscanf(p, "%d", &left), 1);
    (void)pclose(p);
    tarn_free(cmd);
    assert_int_equal(left, 0);
    fx_end(&f);
    return true;
}

static void test_uring(void **state)
{
    (void)state;
    if (!stress(TARN_IO_URING, 1) || !stress(TARN_IO_URING, 6)) {
        skip();
    }
}

static void test_threads(void **state)
{
    (void)state;
    assert_true(stress(TARN_IO_THREADS, 1));
    assert_true(stress(TARN_IO_THREADS, 4));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_uring), cmocka_unit_test(test_threads)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
