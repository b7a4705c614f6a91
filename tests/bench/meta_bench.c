/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Figures of the metadata store, on the drives of the folders given:
 *
 *   meta_bench FOLDER... [-- rows] [-- fibers]     (each FOLDER must exist and be empty)
 *
 * Loads: small PUTs (object row and 4 KiB of inline data in one transaction) from many fibers on two loops, with the
 * latency of each; point reads; listing in pages of 1000. Not part of the build; by hand:
 *
 *   cc -O2 -D_GNU_SOURCE -Iinclude -Isrc/meta tests/bench/meta_bench.c build/release/libtarn_{meta,crypto,io,base}.a \
 *      -lsqlite3 -lisal -lcrypto -luring -lpthread
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "tarn/meta.h"

#define LOOPS 2
#define INLINE_BYTES 4096
#define DIRS_MAX 16

typedef struct bench {
    tarn_meta *m;
    uint64_t rows;
    uint64_t fibers;
    _Atomic uint64_t next;
    uint32_t *latency_us; /* one for each row */
    uint8_t payload[INLINE_BYTES];
} bench;

static bench B;

static double seconds(void)
{
    return (double)tarn_mono_ns() / 1e9;
}

static double cpu_seconds(void)
{
    struct rusage u;

    (void)getrusage(RUSAGE_SELF, &u);
    return (double)u.ru_utime.tv_sec + (double)u.ru_stime.tv_sec + (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
}

static uint64_t mix(uint64_t x)
{
    x ^= x >> 33;
    x *= 0xff51afd7ed558ccdULL;
    x ^= x >> 33;
    x *= 0xc4ceb9fe1a85ec53ULL;
    return x ^ (x >> 33);
}

static tarn_str key_of(uint64_t i, char mem[64])
{
    tarn_sb b;

    tarn_sb_init_fixed(&b, mem, 64);
    tarn_sb_fmt(&b, "data/%016llx/%08llx", (unsigned long long)mix(i), (unsigned long long)i);
    return tarn_sb_view(&b);
}

static tarn_err put_fn(tarn_meta_tx *tx, void *arg)
{
    tarn_version_row *row = arg;
    tarn_version_row old;

    row->seq = tarn_meta_tx_seq(tx);
    row->data_id = row->seq;
    row->mtime_ms = tarn_meta_tx_now_ms(tx);
    tarn_err err = tarn_meta_object_get(NULL, tx, row->bucket_id, row->key, tarn_meta_tx_arena(tx), &old);
    if (err != TARN_E_NO_SUCH_KEY && err != TARN_OK)
        return err;
    err = tarn_meta_object_replace(tx, row);
    if (err == TARN_OK)
        err = tarn_meta_inline_put(tx, row->data_id, (tarn_str){(const char *)B.payload, INLINE_BYTES});
    return err;
}

static void put_rows(void)
{
    for (;;) {
        uint64_t i = B.next++;
        char mem[64];
        char attrs[80];
        if (i >= B.rows)
            return;
        memset(attrs, 'a', sizeof(attrs));
        tarn_version_row row = {.bucket_id = 1,
                                .key = key_of(i, mem),
                                .nonce = mix(i + 1),
                                .size = INLINE_BYTES,
                                .etag = TARN_STR("d41d8cd98f00b204e9800998ecf8427e"),
                                .inline_data = true,
                                .attrs = {attrs, sizeof(attrs)}};
        uint64_t from = tarn_mono_ns();
        tarn_err err = tarn_meta_commit(B.m, put_fn, &row);
        B.latency_us[i] = (uint32_t)((tarn_mono_ns() - from) / 1000);
        if (err != TARN_OK) {
            printf("put: %s\n", tarn_err_get(err)->name);
            exit(1);
        }
    }
}

typedef struct runner {
    tarn_loop *loop;
    uint64_t alive;
} runner;

static void put_fiber(void *arg)
{
    runner *r = arg;

    put_rows();
    if (--r->alive == 0)
        tarn_loop_stop(r->loop);
}

static void *loop_thread(void *arg)
{
    runner r = {.loop = arg, .alive = B.fibers / LOOPS};

    for (uint64_t i = 0; i < B.fibers / LOOPS; i++)
        (void)tarn_fiber_spawn(r.loop, put_fiber, &r, "put");
    tarn_loop_run(r.loop);
    return NULL;
}

static int cmp_u32(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

    return x < y ? -1 : x > y;
}

static void run_put(void)
{
    pthread_t threads[LOOPS];
    tarn_loop *loops[LOOPS];
    double t = seconds(), cpu = cpu_seconds();
    int64_t groups = tarn_metric_get(TARN_M_META_GROUPS), checkpoints = tarn_metric_get(TARN_M_META_CHECKPOINTS);

    if (B.fibers == 1) {
        put_rows();
    } else {
        for (int i = 0; i < LOOPS; i++) {
            const tarn_loop_options opt = {.name = "bench"};
            if (tarn_loop_create(&opt, &loops[i]) != TARN_OK || pthread_create(&threads[i], NULL, loop_thread, loops[i]) != 0)
                exit(1);
        }
        for (int i = 0; i < LOOPS; i++) {
            pthread_join(threads[i], NULL);
            tarn_loop_destroy(loops[i]);
        }
    }
    t = seconds() - t;
    cpu = cpu_seconds() - cpu;
    qsort(B.latency_us, B.rows, sizeof(uint32_t), cmp_u32);
    groups = tarn_metric_get(TARN_M_META_GROUPS) - groups;
    printf("put   %8.0f rows/s  cpu %5.1f us/row  group %5.1f  checkpoints %lld  us p50 %u p99 %u p99.9 %u max %u\n", (double)B.rows / t,
           cpu * 1e6 / (double)B.rows, (double)B.rows / (double)groups, (long long)(tarn_metric_get(TARN_M_META_CHECKPOINTS) - checkpoints),
           B.latency_us[B.rows / 2], B.latency_us[B.rows * 99 / 100], B.latency_us[B.rows * 999 / 1000], B.latency_us[B.rows - 1]);
}

static void run_get(uint64_t n)
{
    tarn_arena *a = tarn_arena_new(1u << 20);
    tarn_version_row row;
    char mem[64];
    double t = seconds();

    for (uint64_t i = 0; i < n; i++) {
        tarn_arena_reset(a);
        if (tarn_meta_object_get(B.m, NULL, 1, key_of(mix(i) % B.rows, mem), a, &row) != TARN_OK)
            exit(1);
    }
    t = seconds() - t;
    printf("get   %8.0f reads/s (one thread)\n", (double)n / t);
    tarn_arena_free(a);
}

static bool count_row(void *ctx, const tarn_version_row *row)
{
    char *last = ctx;
    uint64_t *n = (uint64_t *)(void *)(last + 64);

    memcpy(last, row->key.p, row->key.n);
    last[row->key.n] = 0;
    return ++*n % 1000 != 0;
}

static void run_list(bool versions)
{
    struct {
        char last[64];
        uint64_t n;
    } s = {.n = 0};
    double t = seconds();
    uint64_t pages = 0, before = 1;

    for (int pass = 0; pass < 3; pass++) {
        s.last[0] = 0;
        while (s.n != before) {
            before = s.n;
            char after[64];
            memcpy(after, s.last, sizeof(after));
            tarn_list_query q = {.bucket_id = 1, .after = tarn_str_of(after), .versions = versions};
            tarn_list_sink sink = {.on_version = count_row, .ctx = &s};
            if (tarn_meta_list(B.m, &q, &sink) != TARN_OK)
                exit(1);
            pages++;
        }
        before++;
    }
    t = seconds() - t;
    printf("list%s %9.0f rows/s in %llu pages, %.0f us a page\n", versions ? "v" : " ", (double)s.n / t, (unsigned long long)pages,
           t * 1e6 / (double)pages);
}

static double file_mb(const char *dir, const char *name)
{
    char path[512];
    struct stat st = {0};
    tarn_sb b;

    tarn_sb_init_fixed(&b, path, sizeof(path));
    tarn_sb_fmt(&b, "%s/%s", dir, name);
    (void)stat(path, &st);
    return (double)st.st_size / 1e6;
}

int main(int argc, char **argv)
{
    const char *dirs[DIRS_MAX];
    tarn_meta_options opt = {.fs = tarn_fs_posix(), .dirs = dirs, .cache_bytes = 64u << 20};
    uint64_t numbers[2] = {200000, 64};
    int numbers_n = 0;

    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--") == 0 && i + 1 < argc && numbers_n < 2)
            (void)tarn_str_to_u64(tarn_str_of(argv[++i]), &numbers[numbers_n++]);
        else if (opt.dirs_n < DIRS_MAX)
            dirs[opt.dirs_n++] = argv[i];
    }
    opt.write_quorum = opt.dirs_n / 2 + 1;
    (void)tarn_log_open(NULL, TARN_LOG_HUMAN, TARN_LOG_WARN);
    tarn_random(B.payload, sizeof(B.payload));
    B.rows = numbers[0];
    B.fibers = numbers[1];
    B.latency_us = tarn_calloc(B.rows, sizeof(uint32_t));
    if (B.latency_us == NULL || tarn_meta_open(&opt, &B.m) != TARN_OK)
        return 1;
    run_put();
    printf("files db %.1f MB, log %.1f MB\n", file_mb(dirs[0], "tarn.db"), file_mb(dirs[0], "tarn.db-wal"));
    (void)tarn_meta_checkpoint(B.m);
    run_get(300000);
    run_list(false);
    run_list(true);
    tarn_meta_close(B.m);
    tarn_free(B.latency_us);
    return 0;
}
