/* SPDX-License-Identifier: Apache-2.0 */
/* Random bytes and UUIDs. */
#include "tarn/base.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void fills_every_byte(void **state)
{
    (void)state;
    static const size_t sizes[] = {1, 7, 16, 255, 256, 257, 512, 513, 5000};
    static uint8_t mem[5001];
    for (size_t i = 0; i < TARN_ARRAY_LEN(sizes); i++) {
        static uint8_t seen[5001];
        memset(seen, 0, sizeof seen);
        for (unsigned round = 0; round < 30; round++) { /* a byte stays 0 in all rounds once in 2^240 */
            memset(mem, 0, sizeof mem);
            tarn_random(mem, sizes[i]);
            assert_int_equal(mem[sizes[i]], 0);
            for (size_t j = 0; j < sizes[i]; j++) {
                seen[j] |= mem[j];
            }
        }
        for (size_t j = 0; j < sizes[i]; j++) {
            assert_int_not_equal(seen[j], 0);
        }
    }
    tarn_random(NULL, 0);
}

static void seeded_sequences(void **state)
{
    (void)state;
    uint8_t a[100];
    uint8_t b[100];
    tarn_random_seed(1);
    tarn_random(a, sizeof a);
    tarn_random_seed(1);
    tarn_random(b, sizeof b);
    assert_memory_equal(a, b, sizeof a);
    tarn_random_seed(2);
    tarn_random(b, sizeof b);
    assert_memory_not_equal(a, b, sizeof a);
    tarn_random_seed(0);
    tarn_random(a, sizeof a);
    tarn_random_seed(0);
    tarn_random(b, sizeof b);
    assert_memory_not_equal(a, b, sizeof a);
}

/* A child of fork shares its parent's memory, but not the random bytes that wait in it. */
static void fork_separates(void **state)
{
    (void)state;
    int ends[2];
    uint64_t mine[4];
    uint64_t theirs[4] = {0};
    (void)tarn_random_u64(); /* the buffer is filled */
    assert_int_equal(pipe(ends), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        tarn_random(mine, sizeof mine);
        _exit(write(ends[1], mine, sizeof mine) == (ssize_t)sizeof mine ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_int_equal(read(ends[0], theirs, sizeof theirs), sizeof theirs);
    tarn_random(mine, sizeof mine);
    assert_memory_not_equal(mine, theirs, sizeof mine);
    (void)close(ends[0]);
    (void)close(ends[1]);
}

static void check_uuid(const char *u, char version)
{
    assert_int_equal(strlen(u), 36);
    for (size_t i = 0; i < 36; i++) {
        bool dash = i == 8 || i == 13 || i == 18 || i == 23;
        assert_true(dash ? u[i] == '-' : (u[i] >= '0' && u[i] <= '9') || (u[i] >= 'a' && u[i] <= 'f'));
    }
    assert_int_equal(u[14], version);
    assert_true(u[19] == '8' || u[19] == '9' || u[19] == 'a' || u[19] == 'b');
}

static void uuid4(void **state)
{
    (void)state;
    char a[37];
    char b[37];
    for (unsigned i = 0; i < 1000; i++) {
        tarn_uuid4(a);
        tarn_uuid4(b);
        check_uuid(a, '4');
        assert_string_not_equal(a, b);
    }
}

static void uuid7_is_ordered(void **state)
{
    (void)state;
    char last[37];
    char now[37];
    tarn_clock_fake(true, INT64_C(0x0123456789AB));
    tarn_uuid7(last);
    check_uuid(last, '7');
    assert_memory_equal(last, "01234567-89ab-7", 15);
    /* More than the sequence of one millisecond holds: it runs over into the next. */
    for (unsigned i = 0; i < 10000; i++) {
        tarn_uuid7(now);
        assert_true(strcmp(last, now) < 0);
        memcpy(last, now, sizeof last);
        check_uuid(now, '7');
    }
    tarn_random_seed(3);
    tarn_uuid7(last);
    tarn_random_seed(3);
    tarn_uuid7(now);
    assert_string_equal(last, now); /* a simulation runs the same way twice */
    tarn_random_seed(0);
    tarn_clock_fake(false, 0);
}

enum { THREADS = 4, EACH = 5000 };
static char all[THREADS * EACH][37];

static void *make_some(void *first)
{
    char(*mine)[37] = first;
    for (unsigned i = 0; i < EACH; i++) {
        tarn_uuid7(mine[i]);
    }
    return NULL;
}

static int by_text(const void *a, const void *b)
{
    return strcmp(a, b);
}

static void uuid7_of_many_threads_differ(void **state)
{
    (void)state;
    pthread_t threads[THREADS];
    for (unsigned i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, make_some, all[i * EACH]), 0);
    }
    for (unsigned i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        for (unsigned j = 1; j < EACH; j++) {
            assert_true(strcmp(all[i * EACH + j - 1], all[i * EACH + j]) < 0);
        }
    }
    qsort(all, TARN_ARRAY_LEN(all), sizeof all[0], by_text);
    for (size_t i = 1; i < TARN_ARRAY_LEN(all); i++) {
        assert_memory_not_equal(all[i - 1], all[i], 18); /* time and sequence alone differ already */
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fills_every_byte), cmocka_unit_test(seeded_sequences),
        cmocka_unit_test(fork_separates),   cmocka_unit_test(uuid4),
        cmocka_unit_test(uuid7_is_ordered), cmocka_unit_test(uuid7_of_many_threads_differ),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
