/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Addresses to listen on: texts to socket addresses and back, and listening descriptors.
 *
 * Forms: "host:port", ":port", "[v6]:port". The port is 0 (any free one) to 65535. A host that is no number is looked
 * up, which may block: for start-up. Threads: any.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <string.h>
#include <unistd.h>

#include "io_internal.h"

static struct sockaddr_in *v4(tarn_addr *a)
{
    return (struct sockaddr_in *)(void *)&a->ss;
}

static struct sockaddr_in6 *v6(tarn_addr *a)
{
    return (struct sockaddr_in6 *)(void *)&a->ss;
}

static void set_port(tarn_addr *a, uint16_t port)
{
    if (a->ss.ss_family == AF_INET)
        v4(a)->sin_port = htons(port);
    else
        v6(a)->sin6_port = htons(port);
}

/* Cuts "host:port"; brackets are taken off the host and asked for around one with colons. */
static bool split(tarn_str text, tarn_str *host, bool *bracketed, uint16_t *port)
{
    ptrdiff_t colon = tarn_str_rchr(text, ':');
    uint64_t number = 0;
    if (colon < 0)
        return false;
    tarn_str digits = tarn_str_sub(text, (size_t)colon + 1, SIZE_MAX);
    if (digits.n > 5 || !tarn_str_to_u64(digits, &number) || number > UINT16_MAX)
        return false;
    tarn_str h = tarn_str_sub(text, 0, (size_t)colon);
    *bracketed = tarn_str_starts(h, "[") && tarn_str_ends(h, "]");
    if (*bracketed)
        h = tarn_str_sub(h, 1, h.n - 2);
    if ((*bracketed && h.n == 0) || (!*bracketed && tarn_str_chr(h, ':') >= 0))
        return false;
    *host = h;
    *port = (uint16_t)number;
    return true;
}

static void any_address(tarn_addr *a)
{
    v6(a)->sin6_family = AF_INET6;
    v6(a)->sin6_addr = in6addr_any;
    a->len = sizeof(struct sockaddr_in6);
}

static tarn_err look_up(const char *host, bool bracketed, tarn_addr *a)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE};
    struct addrinfo *list = NULL;
    if (bracketed) {
        hints.ai_family = AF_INET6;
        hints.ai_flags |= AI_NUMERICHOST;
    }
    int rc = getaddrinfo(host, NULL, &hints, &list);
    if (rc != 0)
        return rc == EAI_MEMORY ? TARN_E_NO_MEMORY : TARN_E_INVALID;
    tarn_err err = TARN_E_INVALID;
    for (const struct addrinfo *i = list; i; i = i->ai_next) {
        if ((i->ai_family != AF_INET && i->ai_family != AF_INET6) || i->ai_addrlen > sizeof a->ss)
            continue;
        memcpy(&a->ss, i->ai_addr, i->ai_addrlen);
        a->len = i->ai_addrlen;
        err = TARN_OK;
        break;
    }
    freeaddrinfo(list);
    return err;
}

tarn_err tarn_addr_parse(tarn_str text, tarn_addr *out)
{
    tarn_str host;
    bool bracketed;
    uint16_t port;
    if (!split(text, &host, &bracketed, &port) || host.n > TARN_HOST_BYTES_MAX || memchr(host.p, 0, host.n))
        return TARN_E_INVALID;
    tarn_addr a;
    memset(&a, 0, sizeof a);
    if (host.n == 0) {
        any_address(&a);
    } else {
        char name[TARN_HOST_BYTES_MAX + 1];
        memcpy(name, host.p, host.n);
        name[host.n] = '\0';
        tarn_err err = look_up(name, bracketed, &a);
        if (err != TARN_OK)
            return err;
    }
    set_port(&a, port);
    *out = a;
    return TARN_OK;
}

void tarn_addr_format(const tarn_addr *addr, tarn_sb *out)
{
    tarn_addr a = *addr;
    char text[INET6_ADDRSTRLEN] = "";
    if (a.ss.ss_family == AF_INET) {
        (void)inet_ntop(AF_INET, &v4(&a)->sin_addr, text, sizeof text);
        tarn_sb_fmt(out, "%s:%u", text, (unsigned)ntohs(v4(&a)->sin_port));
    } else if (a.ss.ss_family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(&v6(&a)->sin6_addr)) {
        (void)inet_ntop(AF_INET, &v6(&a)->sin6_addr.s6_addr[12], text, sizeof text);
        tarn_sb_fmt(out, "%s:%u", text, (unsigned)ntohs(v6(&a)->sin6_port));
    } else if (a.ss.ss_family == AF_INET6) {
        (void)inet_ntop(AF_INET6, &v6(&a)->sin6_addr, text, sizeof text);
        tarn_sb_fmt(out, "[%s]:%u", text, (unsigned)ntohs(v6(&a)->sin6_port));
    } else {
        tarn_sb_cstr(out, "-");
    }
}

bool tarn_addr_is_loopback(const tarn_addr *addr)
{
    tarn_addr a = *addr;
    if (a.ss.ss_family == AF_INET)
        return ntohl(v4(&a)->sin_addr.s_addr) >> 24 == 127;
    if (a.ss.ss_family != AF_INET6)
        return false;
    const struct in6_addr *ip = &v6(&a)->sin6_addr;
    return IN6_IS_ADDR_LOOPBACK(ip) || (IN6_IS_ADDR_V4MAPPED(ip) && ip->s6_addr[12] == 127);
}

/* ------------------------------------------------------------------ listening */
static int set_on(int fd, int level, int option, int value)
{
    return setsockopt(fd, level, option, &value, sizeof value);
}

/* A descriptor, or a negative errno. */
static int listen_on(const tarn_addr *a, bool reuse_port, int backlog)
{
    int fd = socket(a->ss.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -errno;
    if (set_on(fd, SOL_SOCKET, SO_REUSEADDR, 1) != 0)
        goto fail;
    if (reuse_port && set_on(fd, SOL_SOCKET, SO_REUSEPORT, 1) != 0)
        goto fail;
    if (a->ss.ss_family == AF_INET6 && set_on(fd, IPPROTO_IPV6, IPV6_V6ONLY, 0) != 0)
        goto fail;
    if (bind(fd, (const struct sockaddr *)(const void *)&a->ss, a->len) != 0 || listen(fd, backlog) != 0)
        goto fail;
    return fd;
fail:;
    int e = errno;
    (void)close(fd);
    return -e;
}

static bool is_any_v6(const tarn_addr *addr)
{
    tarn_addr a = *addr;
    return a.ss.ss_family == AF_INET6 && IN6_IS_ADDR_UNSPECIFIED(&v6(&a)->sin6_addr);
}

tarn_err tarn_listen(const tarn_addr *addr, bool reuse_port, int backlog, int *fd_out, int *errno_out)
{
    int fd = listen_on(addr, reuse_port, backlog);
    if ((fd == -EAFNOSUPPORT || fd == -EADDRNOTAVAIL) && is_any_v6(addr)) {
        /* A machine without IPv6: every address is every IPv4 address. */
        tarn_addr from = *addr, a;
        memset(&a, 0, sizeof a);
        v4(&a)->sin_family = AF_INET;
        v4(&a)->sin_port = v6(&from)->sin6_port;
        a.len = sizeof(struct sockaddr_in);
        fd = listen_on(&a, reuse_port, backlog);
    }
    if (fd < 0) {
        if (errno_out)
            *errno_out = -fd;
        return tarn_err_from_errno(-fd);
    }
    *fd_out = fd;
    return TARN_OK;
}
