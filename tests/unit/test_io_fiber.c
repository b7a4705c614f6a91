/* SPDX-License-Identifier: Apache-2.0 */
/* Fibers and loops: parking and waking, timers, posts and wakes from other threads, locks, offloaded work, the stop. */
#include <pthread.h>
#include <string.h>

#include "io_check.h"
#include "io_internal.h"

#define MS UINT64_C(1000000)

/* ------------------------------------------------------------------ sleeping */
#define SLEEPERS 3000
static unsigned slept_n;

static void sleeper(void *arg)
{
    uint64_t ms = (uint64_t)(uintptr_t)arg % 40;
    uint64_t before = tarn_mono_ns();
    tarn_sleep_ms(ms);
    CHECK(tarn_mono_ns() - before >= ms * MS);
    tarn_fiber_yield();
    tarn_sleep_ms(1);
    slept_n++;
}

static void thousands_sleep(void *arg)
{
    (void)arg;
    slept_n = 0;
    for (uintptr_t i = 0; i < SLEEPERS; i++)
        CHECK(tarn_fiber_spawn(tarn_loop_current(), sleeper, (void *)i, "sleeper") == TARN_OK);
    for (int i = 0; i < 10000 && slept_n < SLEEPERS; i++)
        tarn_sleep_ms(5);
    CHECK(slept_n == SLEEPERS);
}

static void test_thousands_sleep(void **state)
{
    (void)state;
    check_in_fiber(thousands_sleep, NULL);
}

/* ------------------------------------------------------------------ tokens */
static void wake_before_park(void *arg)
{
    (void)arg;
    tarn_fiber *self = tarn_fiber_current();
    CHECK(tarn_fiber_loop(self) == tarn_loop_current());
    tarn_fiber_wake(self);
    tarn_fiber_wake(self);
    tarn_fiber_park(); /* the remembered wake */
    /* Only one was remembered: the next park runs into its deadline. */
    CHECK(tarn_fiber_park_until(tarn_mono_ns() + 5 * MS));
    /* A remembered wake comes before a deadline that has passed. */
    tarn_fiber_wake(self);
    CHECK(!tarn_fiber_park_until(0));
    CHECK(tarn_fiber_park_until(0));
}

static void test_wake_before_park(void **state)
{
    (void)state;
    check_in_fiber(wake_before_park, NULL);
}

static tarn_fiber *target;
static void wake_target(void *arg)
{
    (void)arg;
    tarn_fiber_wake(target);
}

static void yield_keeps_wake(void *arg)
{
    (void)arg;
    target = tarn_fiber_current();
    CHECK(tarn_fiber_spawn(tarn_loop_current(), wake_target, NULL, "waker") == TARN_OK);
    tarn_fiber_yield(); /* the waker runs while this fiber is ready, not parked */
    CHECK(!tarn_fiber_park_until(tarn_mono_ns() + 2000 * MS));
}

static void test_yield_keeps_wake(void **state)
{
    (void)state;
    check_in_fiber(yield_keeps_wake, NULL);
}

/* A deadline that was left behind must not end a later park early, and a nearer one must not be missed. */
static void deadlines_replaced(void *arg)
{
    (void)arg;
    target = tarn_fiber_current();
    CHECK(tarn_fiber_spawn(tarn_loop_current(), wake_target, NULL, "waker") == TARN_OK);
    CHECK(!tarn_fiber_park_until(tarn_mono_ns() + 10 * MS)); /* woken; its timer stays behind */
    uint64_t t0 = tarn_mono_ns();
    CHECK(tarn_fiber_park_until(t0 + 40 * MS));
    CHECK(tarn_mono_ns() >= t0 + 40 * MS);
    CHECK(tarn_fiber_spawn(tarn_loop_current(), wake_target, NULL, "waker") == TARN_OK);
    CHECK(!tarn_fiber_park_until(tarn_mono_ns() + 60000 * MS));
    t0 = tarn_mono_ns();
    CHECK(tarn_fiber_park_until(t0 + 10 * MS));
    CHECK(tarn_mono_ns() - t0 < 5000 * MS);
}

static void test_deadlines_replaced(void **state)
{
    (void)state;
    check_in_fiber(deadlines_replaced, NULL);
}

/* ------------------------------------------------------------------ floating point and deep stacks */
static void deep(unsigned depth, volatile unsigned char *sum)
{
    volatile unsigned char page[4096];
    memset((void *)(uintptr_t)page, (int)depth, sizeof page);
    if (depth > 0)
        deep(depth - 1, sum);
    *sum = (unsigned char)(*sum + page[depth]);
}

static unsigned deep_n;
static void deep_fiber(void *arg)
{
    (void)arg;
    volatile unsigned char sum = 0;
    double x = 1.5;
    deep(40, &sum);
    tarn_fiber_yield();
    x *= 2.0;
    CHECK(x > 2.99 && x < 3.01);
    CHECK(sum == (40 * 41 / 2) % 256);
    deep_n++;
}

/* More fibers than the pool keeps, twice: stacks come fresh, from the pool, and trimmed. */
static void deep_stacks(void *arg)
{
    (void)arg;
    for (unsigned round = 1; round <= 2; round++) {
        deep_n = 0;
        for (unsigned i = 0; i < TARN_STACKS_IDLE_MAX + 1; i++)
            CHECK(tarn_fiber_spawn(tarn_loop_current(), deep_fiber, NULL, "deep") == TARN_OK);
        for (int i = 0; i < 10000 && deep_n < TARN_STACKS_IDLE_MAX + 1; i++)
            tarn_sleep_ms(1);
        CHECK(deep_n == TARN_STACKS_IDLE_MAX + 1);
        tarn_fiber_yield();
        CHECK(tarn_loop_current()->idle_stacks_n == TARN_STACKS_IDLE_MAX);
    }
}

static void test_deep_stacks(void **state)
{
    (void)state;
    check_in_fiber(deep_stacks, NULL);
}

/* ------------------------------------------------------------------ other threads */
#define WAKERS 4
#define WAKES 5000
typedef struct remote_wakes {
    tarn_fiber *fiber;
    atomic_uint sent;
} remote_wakes;

static void *remote_waker(void *arg)
{
    remote_wakes *w = arg;
    for (int i = 0; i < WAKES; i++) {
        atomic_fetch_add(&w->sent, 1);
        tarn_fiber_wake_remote(w->fiber);
    }
    return NULL;
}

static void remote_wakes_arrive(void *arg)
{
    (void)arg;
    remote_wakes w = {.fiber = tarn_fiber_current()};
    pthread_t t[WAKERS];
    atomic_init(&w.sent, 0);
    for (int i = 0; i < WAKERS; i++)
        CHECK(pthread_create(&t[i], NULL, remote_waker, &w) == 0);
    /* Each park ends by a wake or a far deadline; the last wake comes after the last increment. */
    while (atomic_load(&w.sent) < WAKERS * WAKES)
        CHECK(!tarn_fiber_park_until(tarn_mono_ns() + 20000 * MS));
    for (int i = 0; i < WAKERS; i++)
        CHECK(pthread_join(t[i], NULL) == 0);
}

static void test_remote_wakes(void **state)
{
    (void)state;
    check_in_fiber(remote_wakes_arrive, NULL);
}

/* A wake that comes after the end of its fiber, while another uses the struct, does no harm. */
static tarn_fiber *ended;
static void *late_waker(void *arg)
{
    (void)arg;
    tarn_fiber_wake_remote(ended);
    return NULL;
}

static void short_life(void *arg)
{
    (void)arg;
    ended = tarn_fiber_current();
}

static bool stranger_done;
static void stranger(void *arg)
{
    (void)arg;
    CHECK(tarn_fiber_current() == ended);
    uint64_t end = tarn_mono_ns() + 20 * MS;
    while (!tarn_fiber_park_until(end))
        ;
    CHECK(tarn_mono_ns() >= end);
    stranger_done = true;
}

static void late_wake(void *arg)
{
    (void)arg;
    pthread_t t;
    stranger_done = false;
    CHECK(tarn_fiber_spawn(tarn_loop_current(), short_life, NULL, "short") == TARN_OK);
    tarn_fiber_yield();
    CHECK(ended->state == TARN_FIBER_DEAD);
    CHECK(pthread_create(&t, NULL, late_waker, NULL) == 0 && pthread_join(t, NULL) == 0);
    tarn_sleep_ms(1); /* the wake meets the dead fiber */
    CHECK(pthread_create(&t, NULL, late_waker, NULL) == 0 && pthread_join(t, NULL) == 0);
    CHECK(tarn_fiber_spawn(tarn_loop_current(), stranger, NULL, "stranger") == TARN_OK);
    for (int i = 0; i < 2000 && !stranger_done; i++)
        tarn_sleep_ms(1);
    CHECK(stranger_done);
}

static void test_late_wake(void **state)
{
    (void)state;
    check_in_fiber(late_wake, NULL);
}

#define POSTS 2000
typedef struct numbered_post {
    tarn_post post;
    unsigned thread, number;
} numbered_post;
static unsigned post_next[WAKERS], posts_seen;
static numbered_post numbered[WAKERS][POSTS];

static void on_numbered(tarn_post *p)
{
    numbered_post *n = TARN_CONTAINER_OF(p, numbered_post, post);
    CHECK(tarn_loop_current() != NULL && tarn_fiber_current() == NULL);
    CHECK(post_next[n->thread] == n->number); /* each thread's in its order */
    post_next[n->thread]++;
    posts_seen++;
}

typedef struct poster_arg {
    tarn_loop *loop;
    unsigned thread;
} poster_arg;
static void *poster(void *arg)
{
    poster_arg *p = arg;
    for (unsigned i = 0; i < POSTS; i++) {
        numbered[p->thread][i] = (numbered_post){{NULL, on_numbered}, p->thread, i};
        tarn_loop_post(p->loop, &numbered[p->thread][i].post);
    }
    return NULL;
}

static void posts_in_order(void *arg)
{
    (void)arg;
    pthread_t t[WAKERS];
    poster_arg a[WAKERS];
    posts_seen = 0;
    memset(post_next, 0, sizeof post_next);
    for (unsigned i = 0; i < WAKERS; i++) {
        a[i] = (poster_arg){tarn_loop_current(), i};
        CHECK(pthread_create(&t[i], NULL, poster, &a[i]) == 0);
    }
    for (int i = 0; i < 5000 && posts_seen < WAKERS * POSTS; i++)
        tarn_sleep_ms(2);
    for (unsigned i = 0; i < WAKERS; i++)
        CHECK(pthread_join(t[i], NULL) == 0);
    CHECK(posts_seen == WAKERS * POSTS);
}

static void test_posts_in_order(void **state)
{
    (void)state;
    check_in_fiber(posts_in_order, NULL);
}

static atomic_uint remote_born;
static void born(void *arg)
{
    CHECK(tarn_loop_current() == arg);
    tarn_sleep_ms(1);
    atomic_fetch_add(&remote_born, 1);
}

static void *remote_spawner(void *arg)
{
    for (int i = 0; i < 200; i++)
        CHECK(tarn_fiber_spawn_remote(arg, born, arg, "born") == TARN_OK);
    return NULL;
}

static void spawn_remote(void *arg)
{
    (void)arg;
    pthread_t t[2];
    atomic_store(&remote_born, 0);
    for (int i = 0; i < 2; i++)
        CHECK(pthread_create(&t[i], NULL, remote_spawner, tarn_loop_current()) == 0);
    for (int i = 0; i < 2; i++)
        CHECK(pthread_join(t[i], NULL) == 0);
    for (int i = 0; i < 5000 && atomic_load(&remote_born) < 400; i++)
        tarn_sleep_ms(2);
    CHECK(atomic_load(&remote_born) == 400);
}

static void test_spawn_remote(void **state)
{
    (void)state;
    check_in_fiber(spawn_remote, NULL);
}

/* Two loops on two threads play ball: each throw is a wake across threads, with both loops falling asleep between. */
#define THROWS 3000
typedef struct ball_player {
    tarn_loop *loop;
    tarn_fiber *_Atomic fiber;
    struct ball_player *other;
    atomic_uint *throws;
    unsigned parity;
} ball_player;

static void play_ball(void *arg)
{
    ball_player *me = arg;
    atomic_store(&me->fiber, tarn_fiber_current());
    while (!atomic_load(&me->other->fiber))
        tarn_sleep_ms(1);
    for (unsigned i = 0; i < THROWS; i++) {
        while (atomic_load(me->throws) % 2 != me->parity)
            CHECK(!tarn_fiber_park_until(tarn_mono_ns() + 20000 * MS));
        atomic_fetch_add(me->throws, 1);
        tarn_fiber_wake_remote(me->other->fiber);
    }
    tarn_loop_stop(me->loop);
}

static void *run_loop(void *arg)
{
    tarn_loop_run(arg);
    return NULL;
}

static void test_two_loops(void **state)
{
    (void)state;
    for (size_t b = 0; b < TARN_ARRAY_LEN(check_backends); b++) {
        ball_player p[2];
        pthread_t t[2];
        atomic_uint throws;
        atomic_init(&throws, 0);
        for (unsigned i = 0; i < 2; i++) {
            p[i] = (ball_player){.loop = check_loop(check_backends[b], 0), .other = &p[1 - i], .throws = &throws, .parity = i};
            atomic_init(&p[i].fiber, NULL);
            if (!p[i].loop)
                break;
            assert_int_equal(tarn_fiber_spawn(p[i].loop, play_ball, &p[i], "player"), TARN_OK);
        }
        if (!p[0].loop)
            continue;
        for (unsigned i = 0; i < 2; i++)
            assert_int_equal(pthread_create(&t[i], NULL, run_loop, p[i].loop), 0);
        for (unsigned i = 0; i < 2; i++)
            assert_int_equal(pthread_join(t[i], NULL), 0);
        for (unsigned i = 0; i < 2; i++)
            tarn_loop_destroy(p[i].loop);
        assert_int_equal(atomic_load(&throws), 2 * THROWS);
        assert_int_equal(atomic_exchange(&check_failures, 0), 0);
    }
}

/* ------------------------------------------------------------------ offload */
static void square(void *arg)
{
    unsigned *n = arg;
    CHECK(tarn_loop_current() == NULL);
    *n *= *n;
}

static unsigned offloaded_n;
static void offloader(void *arg)
{
    unsigned n = (unsigned)(uintptr_t)arg;
    unsigned v = n;
    tarn_fiber_offload(square, &v);
    CHECK(v == n * n);
    offloaded_n++;
}

static void offload_many(void *arg)
{
    (void)arg;
    offloaded_n = 0;
    for (uintptr_t i = 0; i < 500; i++)
        CHECK(tarn_fiber_spawn(tarn_loop_current(), offloader, (void *)i, "off") == TARN_OK);
    for (int i = 0; i < 5000 && offloaded_n < 500; i++)
        tarn_sleep_ms(2);
    CHECK(offloaded_n == 500);
}

static void test_offload(void **state)
{
    (void)state;
    unsigned v = 7;
    tarn_fiber_offload(square, &v); /* a plain thread does it itself */
    assert_int_equal(v, 49);
    check_in_fiber(offload_many, NULL);
}

/* ------------------------------------------------------------------ lock */
#define LOCKERS 50
static tarn_fiber_lock lock;
static unsigned lock_holders, lock_order[LOCKERS], lock_taken_n;

static void locker(void *arg)
{
    tarn_fiber_lock_acquire(&lock);
    lock_order[lock_taken_n++] = (unsigned)(uintptr_t)arg;
    CHECK(lock_holders++ == 0);
    tarn_fiber_wake(tarn_fiber_current()); /* a stray wake must not let anybody in */
    tarn_sleep_ms(1);
    CHECK(--lock_holders == 0);
    tarn_fiber_lock_release(&lock);
}

static void lock_excludes(void *arg)
{
    (void)arg;
    tarn_fiber_lock_init(&lock);
    lock_taken_n = 0;
    tarn_fiber_lock_acquire(&lock);
    for (uintptr_t i = 0; i < LOCKERS; i++)
        CHECK(tarn_fiber_spawn(tarn_loop_current(), locker, (void *)i, "locker") == TARN_OK);
    tarn_sleep_ms(2);
    CHECK(lock_taken_n == 0);
    tarn_fiber_wake_all(tarn_loop_current());
    tarn_fiber_yield();
    CHECK(lock_taken_n == 0);
    tarn_fiber_lock_release(&lock);
    for (int i = 0; i < 5000 && lock_taken_n < LOCKERS; i++)
        tarn_sleep_ms(1);
    tarn_fiber_lock_acquire(&lock); /* behind the last */
    for (unsigned i = 0; i < LOCKERS; i++)
        CHECK(lock_order[i] == i);
    tarn_fiber_lock_release(&lock);
}

static void test_lock(void **state)
{
    (void)state;
    tarn_fiber_lock_init(&lock);
    tarn_fiber_lock_acquire(&lock); /* start-up code without a fiber */
    tarn_fiber_lock_release(&lock);
    check_in_fiber(lock_excludes, NULL);
}

/* ------------------------------------------------------------------ stop */
static void sleeps_long(void *arg)
{
    unsigned *ended_n = arg;
    while (!tarn_loop_stopping(tarn_loop_current()))
        tarn_sleep_ms(3600 * 1000);
    ++*ended_n;
}

static void *stopper(void *arg)
{
    tarn_sleep_ms(20);
    tarn_loop_stop(arg);
    return NULL;
}

/* Runs a loop that a thread stops after 20 ms; returns how long it ran. */
static uint64_t run_and_stop(tarn_loop *loop)
{
    pthread_t t;
    uint64_t t0 = tarn_mono_ns();
    assert_int_equal(pthread_create(&t, NULL, stopper, loop), 0);
    tarn_loop_run(loop);
    assert_int_equal(pthread_join(t, NULL), 0);
    return (tarn_mono_ns() - t0) / MS;
}

static void test_stop_wakes_sleepers(void **state)
{
    (void)state;
    for (size_t b = 0; b < TARN_ARRAY_LEN(check_backends); b++) {
        tarn_loop *loop = check_loop(check_backends[b], 0);
        if (!loop)
            continue;
        unsigned ended_n = 0;
        for (int i = 0; i < 10; i++)
            assert_int_equal(tarn_fiber_spawn(loop, sleeps_long, &ended_n, "long"), TARN_OK);
        assert_true(run_and_stop(loop) < 5000);
        assert_int_equal(ended_n, 10);
        tarn_loop_destroy(loop);
    }
}

static void never_ends(void *arg)
{
    (void)arg;
    for (;;)
        tarn_fiber_park();
}

static void spins(void *arg)
{
    (void)arg;
    for (;;)
        tarn_fiber_yield();
}

/* Fibers that do not end are left behind after the grace time, even if they are always ready. */
static void test_stop_with_fibers_alive(void **state)
{
    (void)state;
    void (*const kinds[])(void *arg) = {never_ends, spins};
    for (size_t b = 0; b < TARN_ARRAY_LEN(check_backends); b++) {
        for (size_t k = 0; k < TARN_ARRAY_LEN(kinds); k++) {
            tarn_loop *loop = check_loop(check_backends[b], 50);
            if (!loop)
                continue;
            for (int i = 0; i < 5; i++)
                assert_int_equal(tarn_fiber_spawn(loop, kinds[k], NULL, "stays"), TARN_OK);
            uint64_t ms = run_and_stop(loop);
            assert_true(ms >= 70 && ms < 5000);
            assert_int_equal(loop->fibers_n, 5);
            tarn_loop_destroy(loop);
        }
    }
}

/* A sleep that begins after the stop is slept out: a loop that waits by sleeping does not spin. */
static void sleep_while_stopping(void *arg)
{
    (void)arg;
    tarn_loop_stop(tarn_loop_current());
    tarn_sleep_ms(1);
    uint64_t t0 = tarn_mono_ns();
    tarn_fiber_wake(tarn_fiber_current()); /* nor does a stray wake end it */
    tarn_sleep_ms(20);
    CHECK(tarn_mono_ns() - t0 >= 20 * MS);
}

static void test_sleep_while_stopping(void **state)
{
    (void)state;
    check_in_fiber(sleep_while_stopping, NULL);
}

static void test_stop_before_run(void **state)
{
    (void)state;
    tarn_loop *loop = check_loop(TARN_IO_THREADS, 0);
    tarn_loop_stop(loop);
    assert_true(tarn_loop_stopping(loop));
    tarn_loop_run(loop);
    tarn_loop_destroy(loop);
    loop = check_loop(TARN_IO_THREADS, 0); /* one that never runs */
    assert_int_equal(tarn_fiber_spawn(loop, never_ends, NULL, "unborn"), TARN_OK);
    assert_int_equal(tarn_fiber_spawn_remote(loop, never_ends, NULL, "unborn"), TARN_OK);
    tarn_loop_destroy(loop);
    tarn_loop_destroy(NULL);
}

/* ------------------------------------------------------------------ timers */
#define TIMERS 2000
static uint64_t timer_last_key;
static unsigned timers_fired_n;

static void on_timer(tarn_timer *t)
{
    assert_true(t->key_ns >= timer_last_key && !t->armed);
    timer_last_key = t->key_ns;
    timers_fired_n++;
}

static void test_timer_heap(void **state)
{
    (void)state;
    static tarn_timer timers[TIMERS];
    tarn_loop *loop = check_loop(TARN_IO_THREADS, 0);
    unsigned armed_n = 0;
    uint64_t x = 88172645463325252u; /* xorshift: the same each time */
    memset(timers, 0, sizeof timers);
    for (unsigned round = 0; round < 20 * TIMERS; round++) {
        x ^= x << 13, x ^= x >> 7, x ^= x << 17;
        tarn_timer *t = &timers[x % TIMERS];
        t->fn = on_timer;
        if (x >> 32 & 1)
            tarn_timer_arm(loop, t, (x >> 33) % 1000);
        else
            tarn_timer_disarm(loop, t);
    }
    unsigned due_n = 0;
    for (unsigned i = 0; i < TIMERS; i++) {
        armed_n += timers[i].armed;
        due_n += timers[i].armed && timers[i].key_ns <= 499;
    }
    timer_last_key = timers_fired_n = 0;
    tarn_timers_expire(loop, 499);
    assert_int_equal(timers_fired_n, due_n);
    tarn_timers_expire(loop, 1000);
    assert_int_equal(timers_fired_n, armed_n);
    assert_null(loop->timers);
    assert_true(armed_n > TIMERS / 4);
    tarn_loop_destroy(loop);
}

/* ------------------------------------------------------------------ out of memory */
static void test_spawn_without_memory(void **state)
{
    (void)state;
    tarn_loop *loop = check_loop(TARN_IO_THREADS, 0);
    tarn_alloc_fail_after(1);
    assert_int_equal(tarn_fiber_spawn(loop, never_ends, NULL, "none"), TARN_E_NO_MEMORY);
    tarn_alloc_fail_after(1);
    assert_int_equal(tarn_fiber_spawn_remote(loop, never_ends, NULL, "none"), TARN_E_NO_MEMORY);
    tarn_alloc_fail_after(0);
    tarn_loop_destroy(loop);
    for (uint64_t nth = 1; nth <= 3; nth++) { /* the loop, its pool, the pool's threads */
        loop = NULL;
        tarn_loop_options opt = {.backend = TARN_IO_THREADS};
        tarn_alloc_fail_after(nth);
        assert_int_equal(tarn_loop_create(&opt, &loop), TARN_E_NO_MEMORY);
        assert_null(loop);
    }
    tarn_alloc_fail_after(0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_thousands_sleep),
        cmocka_unit_test(test_wake_before_park),
        cmocka_unit_test(test_yield_keeps_wake),
        cmocka_unit_test(test_deadlines_replaced),
        cmocka_unit_test(test_deep_stacks),
        cmocka_unit_test(test_remote_wakes),
        cmocka_unit_test(test_late_wake),
        cmocka_unit_test(test_posts_in_order),
        cmocka_unit_test(test_spawn_remote),
        cmocka_unit_test(test_two_loops),
        cmocka_unit_test(test_offload),
        cmocka_unit_test(test_lock),
        cmocka_unit_test(test_stop_wakes_sleepers),
        cmocka_unit_test(test_stop_with_fibers_alive),
        cmocka_unit_test(test_sleep_while_stopping),
        cmocka_unit_test(test_stop_before_run),
        cmocka_unit_test(test_timer_heap),
        cmocka_unit_test(test_spawn_without_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
