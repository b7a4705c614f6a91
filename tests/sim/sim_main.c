/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tarn_sim: the whole store in one process on simulated drives.
 *
 *   tarn_sim run [--seconds N] [--seed S] [--runs N] [--ops N] [--drives N] [--jobs N] [--keep DIR] [--verbose]
 *   tarn_sim replay FILE... [--verbose]
 *   tarn_sim canaries [--runs N]
 *   tarn_sim nth [SCENARIO] [--drives N] [--fault KIND [--call N]] [--sample N --seed S] [--jobs N]
 *
 * Every run is a process of its own, so that a crash, a sanitizer's report and a hang are failures like any other. A failing
 * plan is shrunk (operations are left out while it still fails) and written to --keep as a regression file.
 */
#include "sim.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define RUN_SECONDS_MAX 120 /* of CPU */
#define WALL_FACTOR 6       /* … and so much longer by the clock */
#define SHRINK_SECONDS 90
#define CANARY_RUNS 60
#define JOBS_MAX 16
#define FAILURES_MAX 3
#define COMPACTING_RUNS 60 /* in so many runs, compaction has moved something */

typedef struct outcome {
    bool ok;
    char why[1024];
    uint64_t done_n, moved_n, hash; /* moved: records, by compaction */
} outcome;

static void say(outcome *o, const char *why)
{
    tarn_sb b;
    tarn_sb_init_fixed(&b, o->why, sizeof o->why);
    tarn_sb_cstr(&b, why);
}

typedef struct options {
    uint64_t seconds, seed, runs, ops, drives, jobs, sample, call;
    const char *keep, *fault;
    bool verbose;
} options;

void sim_limit_seconds(unsigned cpu_seconds)
{
    const struct rlimit limit = {cpu_seconds, cpu_seconds + 5};
    TARN_ASSERT(setrlimit(RLIMIT_CPU, &limit) == 0);
    (void)alarm(cpu_seconds * WALL_FACTOR);
}

static double now_s(void)
{
    struct timespec t;
    TARN_ASSERT(clock_gettime(CLOCK_MONOTONIC, &t) == 0);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* ------------------------------------------------------------------ a run in a process of its own */
static void child(const plan *p, bool verbose, int fd)
{
    static run r;
    outcome o = {0};
    sim_limit_seconds(RUN_SECONDS_MAX);
    o.ok = run_plan(&r, p, verbose);
    o.done_n = r.done_n;
    o.moved_n = (uint64_t)tarn_metric_get(TARN_M_RECORDS_COMPACTED);
    o.hash = r.hash;
    memcpy(o.why, r.why, sizeof o.why);
    ssize_t n = write(fd, &o, sizeof o);
    exit(n == (ssize_t)sizeof o ? 0 : 1);
}

typedef struct job {
    pid_t pid; /* 0: none */
    int fd;
    plan p;
    uint64_t seed;
} job;

static void job_start(job *j, const plan *p, bool verbose)
{
    int fds[2];
    TARN_ASSERT(pipe2(fds, O_CLOEXEC) == 0);
    (void)fflush(stdout);
    j->pid = fork();
    TARN_ASSERT(j->pid >= 0);
    if (j->pid == 0) {
        (void)close(fds[0]);
        child(p, verbose, fds[1]);
    }
    (void)close(fds[1]);
    j->fd = fds[0];
}

static outcome job_end(job *j)
{
    outcome o = {0};
    int status = 0;
    bool told = read(j->fd, &o, sizeof o) == (ssize_t)sizeof o;
    (void)close(j->fd);
    TARN_ASSERT(waitpid(j->pid, &status, 0) == j->pid);
    j->pid = 0;
    if (!told || !WIFEXITED(status) || WEXITSTATUS(status) != 0) {
        tarn_sb b;
        o.ok = false;
        tarn_sb_init_fixed(&b, o.why, sizeof o.why);
        tarn_sb_fmt(&b, "the process ended with %s %d", WIFSIGNALED(status) ? "signal" : "status",
                    WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
    }
    return o;
}

static outcome run_apart(const plan *p, bool verbose)
{
    job j = {0};
    job_start(&j, p, verbose);
    return job_end(&j);
}

/* ------------------------------------------------------------------ shrinking */
static bool still_fails(const plan *p, size_t from, size_t n)
{
    plan less = *p;
    less.ops = calloc(p->n + 1, sizeof *less.ops);
    TARN_ASSERT(less.ops != NULL);
    less.n = p->n - n;
    memcpy(less.ops, p->ops, from * sizeof *p->ops);
    memcpy(less.ops + from, p->ops + from + n, (p->n - from - n) * sizeof *p->ops);
    bool fails = !run_apart(&less, false).ok;
    free(less.ops);
    return fails;
}

static void shrink(plan *p)
{
    double until = now_s() + SHRINK_SECONDS;
    int null_fd = dup(STDERR_FILENO); /* the many failing runs say nothing */
    FILE *silent = freopen("/dev/null", "we", stderr);
    for (size_t size = p->n / 2; size >= 1 && now_s() < until; size /= 2) {
        for (size_t at = 0; at + size <= p->n && now_s() < until;) {
            if (still_fails(p, at, size)) {
                memmove(p->ops + at, p->ops + at + size, (p->n - at - size) * sizeof *p->ops);
                p->n -= size;
            } else {
                at += size;
            }
        }
    }
    for (size_t i = 0; i < p->n && now_s() < until; i++) {
        if (!p->ops[i].together)
            continue;
        p->ops[i].together = false;
        p->ops[i].together = run_apart(p, false).ok;
    }
    if (silent)
        (void)fflush(stderr);
    (void)dup2(null_fd, STDERR_FILENO);
    (void)close(null_fd);
}

static void report(plan *p, const char *name, uint64_t seed, const outcome *o, const options *opt)
{
    char path[512], remark[1200];
    tarn_sb b, c;
    (void)printf("FAILED %s: seed %llu, %zu drives: %s (again: tarn_sim run --seed %llu --runs 1)\n", name, (unsigned long long)seed,
                 p->drives_n, o->why, (unsigned long long)seed);
    (void)fflush(stdout);
    shrink(p);
    outcome last = run_apart(p, false);
    (void)printf("shrunk to %zu operations: %s\n", p->n, last.why);
    for (size_t i = 0; i < p->n; i++)
        plan_print_op(&p->ops[i], i);
    tarn_sb_init_fixed(&b, path, sizeof path);
    tarn_sb_fmt(&b, "%s/seed-%llu.txt", opt->keep ? opt->keep : ".", (unsigned long long)seed);
    tarn_sb_init_fixed(&c, remark, sizeof remark);
    tarn_sb_fmt(&c, "seed %llu: %s", (unsigned long long)seed, last.why);
    if (opt->keep && !b.failed && plan_write(p, path, remark))
        (void)printf("written to %s: replay it with tarn_sim replay\n", path);
}

/* ------------------------------------------------------------------ commands */
typedef struct campaign {
    const options *opt;
    uint64_t base, started, runs, done, moved, failed;
    double began;
    job jobs[JOBS_MAX];
} campaign;

static bool more_wanted(const campaign *c)
{
    bool count = c->opt->runs == 0 || c->started < c->opt->runs;
    return count && c->failed < FAILURES_MAX && (c->opt->seconds == 0 || now_s() - c->began < (double)c->opt->seconds);
}

static void campaign_start(campaign *c, job *j)
{
    j->seed = c->base + c->started++;
    plan_make(&j->p, j->seed, (size_t)c->opt->ops, (size_t)c->opt->drives);
    job_start(j, &j->p, c->opt->verbose);
}

static void campaign_end(campaign *c, job *j)
{
    outcome o = job_end(j);
    c->runs++;
    c->done += o.done_n;
    c->moved += o.moved_n;
    if (!o.ok) {
        c->failed++;
        report(&j->p, "simulation", j->seed, &o, c->opt);
    }
    plan_free(&j->p);
}

/* Any job that has something to say. */
static job *wait_for_one(campaign *c)
{
    struct pollfd fds[JOBS_MAX];
    for (size_t i = 0; i < JOBS_MAX; i++)
        fds[i] = (struct pollfd){.fd = c->jobs[i].pid ? c->jobs[i].fd : -1, .events = POLLIN};
    while (poll(fds, JOBS_MAX, -1) < 0)
        TARN_ASSERT(errno == EINTR);
    for (size_t i = 0; i < JOBS_MAX; i++) {
        if (c->jobs[i].pid && fds[i].revents)
            return &c->jobs[i];
    }
    return NULL;
}

static int run_main(const options *opt)
{
    static campaign c;
    size_t running = 0;
    c = (campaign){.opt = opt, .base = opt->seed, .began = now_s()};
    if (c.base == 0)
        c.base = tarn_random_u64() >> 24;
    (void)printf("seed %llu (repeat with --seed %llu)\n", (unsigned long long)c.base, (unsigned long long)c.base);
    for (;;) {
        for (size_t i = 0; i < opt->jobs && more_wanted(&c); i++) {
            if (!c.jobs[i].pid) {
                campaign_start(&c, &c.jobs[i]);
                running++;
            }
        }
        if (running == 0)
            break;
        job *j = wait_for_one(&c);
        if (j) {
            campaign_end(&c, j);
            running--;
        }
    }
    double took = now_s() - c.began;
    (void)printf("%llu runs, %llu operations answered and checked in %.1f s (%.0f a second), %llu records compacted, %llu failed\n",
                 (unsigned long long)c.runs, (unsigned long long)c.done, took, (double)c.done / took, (unsigned long long)c.moved,
                 (unsigned long long)c.failed);
    if (c.failed)
        return 1;
    if (c.runs >= COMPACTING_RUNS && c.moved == 0) {
        (void)printf("FAILED simulation-compacts: in %llu runs no record was compacted: it is not tested\n", (unsigned long long)c.runs);
        return 1;
    }
    (void)printf("ok simulation-seed-%llu-runs-%llu %.1f\n", (unsigned long long)c.base, (unsigned long long)c.runs, took);
    return 0;
}

static int replay_main(char **files, size_t n, const options *opt)
{
    int rc = 0;
    for (size_t i = 0; i < n; i++) {
        plan p;
        double began = now_s();
        const char *name = strrchr(files[i], '/') ? strrchr(files[i], '/') + 1 : files[i];
        if (!plan_read(&p, files[i])) {
            (void)printf("FAILED %s: it can't be read\n", name);
            rc = 1;
        } else {
            outcome o = run_apart(&p, opt->verbose);
            if (o.ok && run_apart(&p, false).hash != o.hash) {
                o.ok = false;
                say(&o, "the second run made other calls than the first");
            }
            if (o.ok)
                (void)printf("ok %s %.1f\n", name, now_s() - began);
            else
                (void)printf("FAILED %s: %s\n", name, o.why);
            rc = o.ok ? rc : 1;
        }
        plan_free(&p);
    }
    return rc;
}

static int canaries_main(const options *opt)
{
    int rc = 0;
    uint64_t runs_max = opt->runs ? opt->runs : CANARY_RUNS;
    for (unsigned c = CANARY_NONE + 1; c < CANARY_COUNT; c++) {
        double began = now_s();
        uint64_t tries = 0;
        outcome o = {.ok = true};
        while (o.ok && tries < runs_max) {
            plan p;
            plan_make(&p, opt->seed + tries, (size_t)opt->ops, c == CANARY_MIRROR || c == CANARY_HEAL ? 4 : 0);
            p.canary = (canary)c;
            o = run_apart(&p, opt->verbose);
            plan_free(&p);
            tries++;
        }
        if (o.ok) {
            (void)printf("FAILED canary-%s: %llu runs did not notice\n", canary_names[c], (unsigned long long)tries);
            rc = 1;
        } else {
            (void)printf("caught by run %llu: %s\nok canary-%s %.1f\n", (unsigned long long)tries, o.why, canary_names[c], now_s() - began);
        }
    }
    return rc;
}

static bool number(const char *text, uint64_t *out)
{
    return text && tarn_str_to_u64(tarn_str_of(text), out);
}

static bool parse(int argc, char **argv, options *o, char **files, size_t *files_n)
{
    for (int i = 2; i < argc; i++) {
        tarn_str a = tarn_str_of(argv[i]);
        const char *next = i + 1 < argc ? argv[i + 1] : NULL;
        if (tarn_str_eqc(a, "--verbose")) {
            o->verbose = true;
            continue;
        }
        if (!tarn_str_starts(a, "--")) {
            files[(*files_n)++] = argv[i];
            continue;
        }
        bool ok = false;
        if (tarn_str_eqc(a, "--seconds"))
            ok = number(next, &o->seconds);
        else if (tarn_str_eqc(a, "--seed"))
            ok = number(next, &o->seed);
        else if (tarn_str_eqc(a, "--runs"))
            ok = number(next, &o->runs);
        else if (tarn_str_eqc(a, "--ops"))
            ok = number(next, &o->ops) && o->ops <= SIM_OPS_MAX;
        else if (tarn_str_eqc(a, "--drives"))
            ok = number(next, &o->drives) && o->drives <= TARN_SET_DRIVES_MAX;
        else if (tarn_str_eqc(a, "--jobs"))
            ok = number(next, &o->jobs) && o->jobs >= 1 && o->jobs <= JOBS_MAX;
        else if (tarn_str_eqc(a, "--sample"))
            ok = number(next, &o->sample) && o->sample >= 2;
        else if (tarn_str_eqc(a, "--call"))
            ok = number(next, &o->call) && o->call >= 1;
        else if (tarn_str_eqc(a, "--fault"))
            ok = (o->fault = next) != NULL;
        else if (tarn_str_eqc(a, "--keep"))
            ok = (o->keep = next) != NULL;
        if (!ok)
            return false;
        i++;
    }
    return true;
}

int main(int argc, char **argv)
{
    options o = {.ops = 300, .jobs = 1};
    size_t files_n = 0;
    char **files = calloc((size_t)argc, sizeof *files);
    tarn_str what = tarn_str_of(argc > 1 ? argv[1] : "");
    int rc = 2;
    TARN_ASSERT(files != NULL);
    (void)signal(SIGPIPE, SIG_IGN);
    if (parse(argc, argv, &o, files, &files_n)) {
        (void)tarn_log_open(o.verbose ? NULL : "/dev/null", TARN_LOG_HUMAN, TARN_LOG_INFO);
        if (tarn_str_eqc(what, "run"))
            rc = run_main(&o);
        else if (tarn_str_eqc(what, "replay"))
            rc = replay_main(files, files_n, &o);
        else if (tarn_str_eqc(what, "canaries"))
            rc = canaries_main(&o);
        else if (tarn_str_eqc(what, "nth"))
            rc = nth_main(&(nth_options){.only = files_n > 0 ? files[0] : NULL,
                                         .fault = o.fault,
                                         .drives = o.drives,
                                         .call = o.call,
                                         .sample = o.sample,
                                         .seed = o.seed,
                                         .jobs = o.jobs});
    }
    if (rc == 2)
        (void)fprintf(stderr,
                      "usage: tarn_sim run [--seconds N] [--seed S] [--runs N] [--ops N] [--drives N] [--jobs N] [--keep DIR] [--verbose]\n"
                      "       tarn_sim replay FILE... | canaries [--runs N]\n"
                      "       tarn_sim nth [SCENARIO] [--drives N] [--fault KIND [--call N]] [--sample N --seed S] [--jobs N]\n");
    free(files);
    return rc;
}
