/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The same server on libmicrohttpd, driven from outside on one thread: what was measured before tarn got an engine of its own.
 * Not part of the product; needs libmicrohttpd-dev. With "park" every request is suspended and resumed once.
 * Usage: mhd_engine PORT [park]
 */
#include <microhttpd.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static uint8_t content[4096];
static bool park;
static struct MHD_Connection *parked[4096];
static size_t parked_n;

typedef struct state {
    bool suspended;
} state;

static enum MHD_Result handle(void *cls, struct MHD_Connection *c, const char *url, const char *method, const char *version,
                              const char *data, size_t *n, void **ctx)
{
    (void)cls;
    (void)url;
    (void)version;
    (void)data;
    if (*ctx == NULL) {
        *ctx = calloc(1, sizeof(state));
        return *ctx != NULL ? MHD_YES : MHD_NO;
    }
    if (*n > 0) {
        *n = 0;
        return MHD_YES;
    }
    state *s = *ctx;
    if (park && !s->suspended) {
        s->suspended = true;
        MHD_suspend_connection(c);
        parked[parked_n++] = c;
        return MHD_YES;
    }
    size_t len = strcmp(method, "GET") == 0 ? sizeof content : 0;
    struct MHD_Response *r = MHD_create_response_from_buffer(len, content, MHD_RESPMEM_PERSISTENT);
    enum MHD_Result res = MHD_queue_response(c, 200, r);
    MHD_destroy_response(r);
    return res;
}

static void done(void *cls, struct MHD_Connection *c, void **ctx, enum MHD_RequestTerminationCode code)
{
    (void)cls;
    (void)c;
    (void)code;
    free(*ctx);
    *ctx = NULL;
}

int main(int argc, char **argv)
{
    if (argc < 2)
        return 2;
    park = argc > 2 && strcmp(argv[2], "park") == 0;
    struct MHD_Daemon *d = MHD_start_daemon(MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME, (uint16_t)strtoul(argv[1], NULL, 10), NULL, NULL,
                                            handle, NULL, MHD_OPTION_NOTIFY_COMPLETED, done, NULL, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
                                            (size_t)32768, MHD_OPTION_CONNECTION_LIMIT, 4096u, MHD_OPTION_END);
    if (d == NULL)
        return 1;
    struct pollfd p = {.fd = MHD_get_daemon_info(d, MHD_DAEMON_INFO_EPOLL_FD)->epoll_fd, .events = POLLIN};
    for (;;) {
        MHD_UNSIGNED_LONG_LONG t;
        MHD_run(d);
        size_t n = parked_n;
        parked_n = 0;
        for (size_t i = 0; i < n; i++)
            MHD_resume_connection(parked[i]);
        if (n > 0 || (MHD_get_timeout(d, &t) == MHD_YES && t == 0))
            continue;
        (void)poll(&p, 1, 1000);
    }
}
