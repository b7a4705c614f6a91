/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The main thread's life: one poll over the listening sockets and the signals.
 *
 * Each new connection goes to the worker that has the fewest, so that four connections keep two cores busy (with a
 * listening socket per worker the kernel's hash may put all four on one). Above the maximum of connections the listening
 * sockets are not looked at: clients wait in the kernel's queue.
 *
 * State machine: serving → draining (TERM, INT) → end; a second TERM or INT ends the process at once.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "server.h"

#define ACCEPTS_IN_A_ROW_MAX 64
#define FULL_RETRY_MS 20
#define STARVED_RETRY_MS 100

int tarn_signals_open(void)
{
    sigset_t set;
    struct sigaction ignore = {.sa_handler = SIG_IGN};
    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGTERM);
    (void)sigaddset(&set, SIGINT);
    (void)sigaddset(&set, SIGHUP);
    if (pthread_sigmask(SIG_BLOCK, &set, NULL) != 0 || sigaction(SIGPIPE, &ignore, NULL) != 0) {
        return -1;
    }
    return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

static void reload(void)
{
    char mem[96];
    tarn_sb b;
    tarn_sb_init_fixed(&b, mem, sizeof mem);
    tarn_sb_fmt(&b, "RELOADING=1\nMONOTONIC_USEC=%llu", (unsigned long long)(tarn_mono_ns() / 1000u));
    tarn_notify(mem);
    tarn_log_reopen();
    tarn_log(TARN_LOG_INFO, "logs opened again", NULL);
    tarn_notify("READY=1");
}

/* True when the process was told to end. */
static bool take_signals(int fd)
{
    struct signalfd_siginfo info;
    bool end = false;
    while (read(fd, &info, sizeof info) == (ssize_t)sizeof info) {
        if (info.ssi_signo == SIGHUP) {
            reload();
        } else {
            end = true;
        }
    }
    return end;
}

/* False: out of descriptors or memory; try again later. */
static bool accept_some(tarn_server *s, int listener)
{
    for (int i = 0; i < ACCEPTS_IN_A_ROW_MAX; i++) {
        tarn_addr peer = {.len = sizeof peer.ss};
        int fd = accept4(listener, (struct sockaddr *)&peer.ss, &peer.len, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)) {
            tarn_log(TARN_LOG_WARN, "connections have to wait", "error", strerror(errno), NULL);
            return false;
        }
        if (fd < 0) {
            return true; /* none left, or one that went away before it was taken */
        }
        tarn_http_adopt(tarn_workers_idlest(s)->http, fd, &peer);
    }
    return true;
}

static void serve_until_signal(tarn_server *s, int signals_fd)
{
    struct pollfd fds[TARN_ADDRESSES_MAX + 1] = {{.fd = signals_fd, .events = POLLIN}};
    bool starved = false;
    for (size_t i = 0; i < s->addresses_n; i++) {
        fds[i + 1] = (struct pollfd){.fd = s->listeners[i], .events = POLLIN};
    }
    for (;;) {
        bool full = tarn_workers_connections(s) >= s->connections_max;
        nfds_t n = full || starved ? 1 : (nfds_t)s->addresses_n + 1;
        if (poll(fds, n, starved ? STARVED_RETRY_MS : full ? FULL_RETRY_MS : -1) < 0 && errno != EINTR) {
            tarn_log(TARN_LOG_ERROR, "poll failed", "error", strerror(errno), NULL);
            return;
        }
        starved = false;
        if (fds[0].revents != 0 && take_signals(signals_fd)) {
            return;
        }
        for (nfds_t i = 1; i < n; i++) {
            starved = (fds[i].revents != 0 && !accept_some(s, fds[i].fd)) || starved;
        }
    }
}

/* Waits until no connection is left; false when the time is up. A second signal says that nobody cares. */
static bool wait_for_requests(tarn_server *s, int signals_fd, uint64_t ms)
{
    uint64_t end = tarn_mono_ns() + ms * 1000000u;
    struct pollfd fd = {.fd = signals_fd, .events = POLLIN};
    while (tarn_workers_connections(s) > 0) {
        if (tarn_mono_ns() >= end) {
            return false;
        }
        if (poll(&fd, 1, 10) > 0 && take_signals(signals_fd)) {
            tarn_log(TARN_LOG_WARN, "ended at once by a second signal", NULL);
            _exit(TARN_EXIT_FAILED);
        }
    }
    return true;
}

void tarn_serve(tarn_server *s, int signals_fd)
{
    serve_until_signal(s, signals_fd);
    tarn_notify("STOPPING=1");
    tarn_log(TARN_LOG_INFO, "stopping", NULL);
    tarn_admin_set_draining(s->admin);
    for (size_t i = 0; i < s->addresses_n; i++) {
        (void)close(s->listeners[i]);
        s->listeners[i] = -1;
    }
    tarn_workers_drain(s);
    if (!wait_for_requests(s, signals_fd, TARN_DRAIN_MS)) {
        tarn_logf(TARN_LOG_WARN, "requests cut off", "%u connections were still busy after %d s", tarn_workers_connections(s),
                  TARN_DRAIN_MS / 1000);
        tarn_workers_drain(s);
        (void)wait_for_requests(s, signals_fd, TARN_CUT_MS);
    }
}
