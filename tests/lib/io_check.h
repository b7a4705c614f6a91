/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checks inside fibers and threads. cmocka's asserts jump out of the test, which from a fiber's stack would be the end
 * of everything: CHECK only counts, and the test's own thread asserts the count.
 */
#ifndef TARN_TEST_IO_CHECK_H
#define TARN_TEST_IO_CHECK_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>

#include "tarn/io.h"

static atomic_uint check_failures;

#define CHECK(cond)                                                                                                                        \
    do {                                                                                                                                   \
        if (!(cond)) {                                                                                                                     \
            (void)fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #cond);                                                     \
            atomic_fetch_add(&check_failures, 1);                                                                                          \
        }                                                                                                                                  \
    } while (0)

static const tarn_io_backend check_backends[] = {TARN_IO_URING, TARN_IO_THREADS};

/* A loop of the back end, or NULL where this machine refuses it (only for the ring). */
static inline tarn_loop *check_loop(tarn_io_backend backend, unsigned grace_ms)
{
    tarn_loop_options opt = {.backend = backend, .threads = 4, .name = "test", .grace_ms = grace_ms};
    tarn_loop *loop = NULL;
    tarn_err err = tarn_loop_create(&opt, &loop);
    if (err == TARN_E_UNSUPPORTED && backend == TARN_IO_URING) {
        print_message("io_uring refused here: %s\n", tarn_io_uring_refusal());
        return NULL;
    }
    assert_int_equal(err, TARN_OK);
    assert_int_equal(tarn_loop_backend(loop), backend);
    return loop;
}

typedef struct check_main {
    void (*fn)(void *arg);
    void *arg;
} check_main;

static inline void check_main_fiber(void *arg)
{
    check_main *m = arg;
    m->fn(m->arg);
    tarn_loop_stop(tarn_loop_current());
}

/* Runs fn as the first fiber of a loop, stops the loop when it returns, and does so with every back end. */
static inline void check_in_fiber(void (*fn)(void *arg), void *arg)
{
    for (size_t i = 0; i < TARN_ARRAY_LEN(check_backends); i++) {
        tarn_loop *loop = check_loop(check_backends[i], 20000);
        if (!loop)
            continue;
        check_main m = {fn, arg};
        assert_int_equal(tarn_fiber_spawn(loop, check_main_fiber, &m, "main"), TARN_OK);
        tarn_loop_run(loop);
        tarn_loop_destroy(loop);
        assert_int_equal(atomic_exchange(&check_failures, 0), 0);
    }
}

#endif
