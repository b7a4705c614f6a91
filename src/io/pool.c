/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Helper threads: they run file operations for the threads back end, and what a fiber offloads.
 *
 * A thread is started when more is queued than threads are idle, up to the pool's maximum; threads stay until the pool
 * goes. Where not even one thread can be started the caller's thread does the work itself: slow, but nothing is lost.
 *
 * Ownership: operations and jobs belong to their submitters; the pool only links them. Threads: push from any.
 */
#include <signal.h>
#include <string.h>

#include "io_internal.h"

struct tarn_pool {
    pthread_mutex_t lock;
    pthread_cond_t work;
    /* under the lock */
    tarn_op_queue ops;
    tarn_post *jobs_head, *jobs_tail;
    size_t queued_n;
    unsigned threads_n, threads_max, idle_n;
    bool stop;
    pthread_t *threads;
    const char *name;
};

/* Takes one piece of work; false when the pool ends. Called with the lock held. */
static bool pool_next(tarn_pool *p, tarn_op **op, tarn_post **job)
{
    while (p->queued_n == 0) {
        if (p->stop)
            return false;
        p->idle_n++;
        (void)pthread_cond_wait(&p->work, &p->lock);
        p->idle_n--;
    }
    p->queued_n--;
    *job = NULL;
    *op = tarn_op_queue_pop(&p->ops);
    if (!*op) {
        *job = p->jobs_head;
        TARN_ASSERT(*job != NULL);
        p->jobs_head = (*job)->next;
        if (!p->jobs_head)
            p->jobs_tail = NULL;
    }
    return true;
}

static void run_op(tarn_op *op)
{
    op->result = tarn_op_execute(op);
    tarn_op_return(op);
}

static void *pool_thread(void *arg)
{
    tarn_pool *p = arg;
    tarn_op *op;
    tarn_post *job;
    (void)pthread_setname_np(pthread_self(), p->name);
    (void)pthread_mutex_lock(&p->lock);
    while (pool_next(p, &op, &job)) {
        (void)pthread_mutex_unlock(&p->lock);
        if (op)
            run_op(op);
        else
            job->fn(job);
        (void)pthread_mutex_lock(&p->lock);
    }
    (void)pthread_mutex_unlock(&p->lock);
    return NULL;
}

/* Signals are for the program's main thread. Called with the lock held. */
static void pool_grow(tarn_pool *p)
{
    sigset_t all, before;
    (void)sigfillset(&all);
    if (pthread_sigmask(SIG_SETMASK, &all, &before) != 0)
        return;
    size_t missing = p->queued_n > p->idle_n ? p->queued_n - p->idle_n : 0;
    for (; missing > 0 && p->threads_n < p->threads_max; missing--) {
        if (pthread_create(&p->threads[p->threads_n], NULL, pool_thread, p) != 0)
            break;
        p->threads_n++;
    }
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
}

/* After something was queued, with the lock held. False when nobody will ever run it. */
static bool pool_alert(tarn_pool *p, size_t n)
{
    if (p->queued_n > p->idle_n && p->threads_n < p->threads_max)
        pool_grow(p);
    if (p->threads_n == 0)
        return false;
    if (n >= p->threads_n) {
        (void)pthread_cond_broadcast(&p->work);
    } else {
        for (size_t i = 0; i < n; i++)
            (void)pthread_cond_signal(&p->work);
    }
    return true;
}

/* Does the queued work on this thread: the pool has no thread and gets none. */
static void pool_run_here(tarn_pool *p)
{
    for (;;) {
        tarn_op *op = NULL;
        tarn_post *job = NULL;
        (void)pthread_mutex_lock(&p->lock);
        bool any = p->queued_n > 0 && pool_next(p, &op, &job);
        (void)pthread_mutex_unlock(&p->lock);
        if (!any)
            return;
        if (op)
            run_op(op);
        else
            job->fn(job);
    }
}

void tarn_pool_push_ops(tarn_pool *p, tarn_op *head, tarn_op *tail, size_t n)
{
    (void)pthread_mutex_lock(&p->lock);
    if (p->ops.tail)
        p->ops.tail->next = head;
    else
        p->ops.head = head;
    p->ops.tail = tail;
    p->queued_n += n;
    bool runs = pool_alert(p, n);
    (void)pthread_mutex_unlock(&p->lock);
    if (!runs)
        pool_run_here(p);
}

void tarn_pool_push_job(tarn_pool *p, tarn_post *job)
{
    job->next = NULL;
    (void)pthread_mutex_lock(&p->lock);
    if (p->jobs_tail)
        p->jobs_tail->next = job;
    else
        p->jobs_head = job;
    p->jobs_tail = job;
    p->queued_n++;
    bool runs = pool_alert(p, 1);
    (void)pthread_mutex_unlock(&p->lock);
    if (!runs)
        pool_run_here(p);
}

tarn_pool *tarn_pool_new(unsigned threads_max, const char *name)
{
    TARN_ASSERT(threads_max > 0 && threads_max <= TARN_POOL_THREADS_MAX);
    tarn_pool *p = tarn_calloc(1, sizeof *p);
    if (!p)
        return NULL;
    p->threads = tarn_calloc(threads_max, sizeof *p->threads);
    if (!p->threads)
        goto fail;
    if (pthread_mutex_init(&p->lock, NULL) != 0)
        goto fail;
    if (pthread_cond_init(&p->work, NULL) != 0) {
        (void)pthread_mutex_destroy(&p->lock);
        goto fail;
    }
    p->threads_max = threads_max;
    p->name = name;
    return p;
fail:
    tarn_free(p->threads);
    tarn_free(p);
    return NULL;
}

void tarn_pool_free(tarn_pool *p)
{
    if (!p)
        return;
    (void)pthread_mutex_lock(&p->lock);
    p->stop = true;
    (void)pthread_cond_broadcast(&p->work);
    (void)pthread_mutex_unlock(&p->lock);
    for (unsigned i = 0; i < p->threads_n; i++)
        (void)pthread_join(p->threads[i], NULL);
    TARN_ASSERT(p->queued_n == 0);
    (void)pthread_cond_destroy(&p->work);
    (void)pthread_mutex_destroy(&p->lock);
    tarn_free(p->threads);
    tarn_free(p);
}
