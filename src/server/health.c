/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `tarn health [[--url] URL]`: asks a server whether it is ready, for the health check of a container that has no other tool
 * in it. The URL may stand alone, or behind --url as in `tarn admin`. Status 0 when it answers 200 within the time, else 1 with a word why.
 * Plain blocking sockets on the main thread.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

#include "admin_cli.h"

#define HEALTH_TIMEOUT_S 5

typedef struct target {
    tarn_str authority;
    tarn_str path;
} target;

static bool parse_url(tarn_str url, target *t)
{
    if (!tarn_str_istarts(url, "http://")) {
        return false;
    }
    tarn_str rest = tarn_str_sub(url, 7, url.n);
    ptrdiff_t slash = tarn_str_chr(rest, '/');
    t->authority = slash < 0 ? rest : tarn_str_sub(rest, 0, (size_t)slash);
    t->path = slash < 0 || (size_t)slash + 1 == rest.n ? TARN_STR("/minio/health/ready") : tarn_str_sub(rest, (size_t)slash, rest.n);
    return t->authority.n > 0;
}

/* On loopback when the address is every address. */
tarn_str tarn_client_authority(tarn_arena *arena, tarn_str address)
{
    tarn_str list[TARN_ADDRESSES_MAX];
    if (tarn_option_list(address, list, TARN_ADDRESSES_MAX) > 0) {
        address = list[0];
    }
    ptrdiff_t colon = tarn_str_rchr(address, ':');
    tarn_str host = colon < 0 ? address : tarn_str_sub(address, 0, (size_t)colon);
    tarn_str port = colon < 0 ? TARN_STR(":9000") : tarn_str_sub(address, (size_t)colon, address.n);
    bool any = host.n == 0 || tarn_str_eqc(host, "0.0.0.0") || tarn_str_eqc(host, "[::]");
    return tarn_arena_fmt(arena, "%.*s%.*s", TARN_STR_ARG(any ? TARN_STR("127.0.0.1") : host), TARN_STR_ARG(port));
}

/* Without a URL: where this environment's server listens. */
static tarn_str default_authority(tarn_arena *arena)
{
    const char *env = getenv("TARN_ADDRESS");
    env = env != NULL ? env : getenv("MINIO_ADDRESS");
    return tarn_client_authority(arena, tarn_str_of(env != NULL && env[0] != '\0' ? env : tarn_option_rows[TARN_OPT_ADDRESS].def));
}

/* The status of the answer, or 0 with errno. */
static int ask(const tarn_addr *to, const target *t, tarn_arena *arena)
{
    struct timeval limit = {.tv_sec = HEALTH_TIMEOUT_S};
    char mem[64];
    size_t n = 0;
    uint64_t status = 0;
    tarn_str out = tarn_arena_fmt(arena, "GET %.*s HTTP/1.1\r\nHost: %.*s\r\nConnection: close\r\n\r\n", TARN_STR_ARG(t->path),
                                  TARN_STR_ARG(t->authority));
    int fd = socket(to->ss.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return 0;
    }
    (void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    (void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    errno = 0;
    if (connect(fd, (const struct sockaddr *)&to->ss, to->len) == 0 && send(fd, out.p, out.n, MSG_NOSIGNAL) == (ssize_t)out.n) {
        while (n < 12) {
            ssize_t got = recv(fd, mem + n, sizeof mem - n, 0);
            if (got <= 0) {
                break;
            }
            n += (size_t)got;
        }
    }
    int saved = errno;
    (void)close(fd);
    errno = saved;
    if (n < 12 || memcmp(mem, "HTTP/1.1 ", 9) != 0 || !tarn_str_to_u64((tarn_str){mem + 9, 3}, &status)) {
        return 0;
    }
    return (int)status;
}

static tarn_exit health(const char *url)
{
    tarn_arena *arena = tarn_arena_new(1u << 20);
    target t = {.path = TARN_STR("/minio/health/ready")};
    tarn_addr to;
    tarn_exit x = TARN_EXIT_FAILED;
    if (arena == NULL) {
        return tarn_complain(TARN_EXIT_FAILED, "out of memory");
    }
    t.authority = default_authority(arena);
    if (url != NULL && !parse_url(tarn_str_of(url), &t)) {
        x = tarn_complain(TARN_EXIT_USAGE, "the URL must look like http://host:port or http://host:port/path");
    } else if (tarn_addr_parse(tarn_str_chr(t.authority, ':') < 0 ? tarn_arena_fmt(arena, "%.*s:80", TARN_STR_ARG(t.authority))
                                                                  : t.authority,
                               &to) != TARN_OK) {
        x = tarn_complain(TARN_EXIT_FAILED, "%.*s cannot be resolved", TARN_STR_ARG(t.authority));
    } else {
        int status = ask(&to, &t, arena);
        if (status == 200) {
            x = TARN_EXIT_OK;
        } else if (status == 0) {
            x = tarn_complain(TARN_EXIT_FAILED, "no answer from %.*s: %s", TARN_STR_ARG(t.authority),
                              errno != 0 ? strerror(errno) : "connection closed");
        } else {
            x = tarn_complain(TARN_EXIT_FAILED, "%.*s answers %d", TARN_STR_ARG(t.authority), status);
        }
    }
    tarn_arena_free(arena);
    return x;
}

tarn_exit tarn_health_command(int words_n, char *const *words)
{
    const char *url = NULL;
    for (int i = 0; i < words_n; i++) {
        bool flag = strcmp(words[i], "--url") == 0;
        if (flag && i + 1 == words_n) {
            return tarn_complain(TARN_EXIT_USAGE, "--url needs a URL; usage: " TARN_HEALTH_USAGE);
        }
        if (!flag && words[i][0] == '-') {
            return tarn_complain(TARN_EXIT_USAGE, "unknown option %s; usage: " TARN_HEALTH_USAGE, words[i]);
        }
        if (url != NULL) {
            return tarn_complain(TARN_EXIT_USAGE, "more than one URL; usage: " TARN_HEALTH_USAGE);
        }
        i += flag ? 1 : 0;
        url = words[i];
    }
    return health(url);
}
