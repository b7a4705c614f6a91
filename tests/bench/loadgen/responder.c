/* SPDX-License-Identifier: Apache-2.0 */
/* For tests only: answers everything at once and stores nothing. It shows what loadgen itself can do at most, and it
 * misbehaves on request so that loadgen's error paths can be seen to work. Listens on 127.0.0.1. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

static uint16_t port;
static size_t body_size = 4096;
static bool chunked;
static unsigned long close_every, fail_every, conflict_every, cut_every, hang_every, kill_every;
static char *zeros;

struct conn {
    int fd;
    bool dead;
    size_t skip; /* bytes of a request body still to come */
    size_t n;    /* bytes in head */
    size_t owed; /* zero bytes of an answer still to be sent */
    char method;
    char head[8192];
};

static const char listing[] = "<ListBucketResult><IsTruncated>false</IsTruncated><Contents><Key>a</Key></Contents></ListBucketResult>";
static const char config[] = "{\"defaults\":{},\"overrides\":{\"prefix\":\"wh\"}}";
static const char table[] =
    "{\"metadata-location\":\"s3://b/t/metadata/0.json\",\"metadata\":{\"format-version\":2,\"table-uuid\":"
    "\"11111111-2222-3333-4444-555555555555\",\"location\":\"s3://b/t\",\"last-sequence-number\":0,\"current-snapshot-id\":null,"
    "\"snapshots\":[],\"properties\":{}},\"config\":{}}";
static const char tables[] = "{\"identifiers\":[{\"namespace\":[\"loadgen\"],\"name\":\"t000000\"}]}";

static void pay(struct conn *c) /* sends what is owed of a body */
{
    while (c->owed) {
        size_t k = c->owed < body_size ? c->owed : body_size;
        ssize_t n = send(c->fd, zeros, k < 1u << 20 ? k : 1u << 20, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n <= 0)
            return;
        c->owed -= (size_t)n;
    }
}

static void answer(struct conn *c, unsigned long nth)
{
    char out[4096];
    const char *status = "200 OK", *body = NULL;
    size_t len = 0;
    bool get = c->method == 'G', bye = close_every && nth % close_every == 0;
    if (hang_every && nth % hang_every == 0)
        return;
    if (kill_every && nth % kill_every == 0) {
        c->dead = true;
        return;
    }
    if (strstr(c->head, "/config"))
        body = config;
    else if (strstr(c->head, "list-type=2"))
        body = listing;
    else if (strstr(c->head, "/tables/") && c->method != 'D')
        body = table;
    else if (get && strstr(c->head, "/tables"))
        body = tables;
    if (fail_every && nth % fail_every == 0) {
        status = "503 Slow Down";
        body = "<Error><Code>SlowDown</Code></Error>";
    } else if (conflict_every && c->method == 'P' && c->head[1] == 'O' && nth % conflict_every == 0) {
        status = "409 Conflict";
        body = "{\"error\":{\"message\":\"no\",\"type\":\"CommitFailedException\",\"code\":409}}";
    } else if (c->method == 'D') {
        status = "204 No Content";
    }
    len = body ? strlen(body) : get || c->method == 'H' ? body_size : 0;
    int n;
    if (chunked && get)
        n = snprintf(out, sizeof out, "HTTP/1.1 %s\r\nTransfer-Encoding: chunked\r\n%s\r\n%zx\r\n", status,
                     bye ? "Connection: close\r\n" : "", len);
    else
        n = snprintf(out, sizeof out, "HTTP/1.1 %s\r\nContent-Length: %zu\r\nETag: \"d41d8cd98f00b204e9800998ecf8427e\"\r\n%s\r\n", status,
                     len, bye ? "Connection: close\r\n" : "");
    size_t m = (size_t)n;
    bool cut = cut_every && get && nth % cut_every == 0;
    if (body && c->method != 'H') {
        memcpy(out + m, body, len);
        m += len;
    }
    struct iovec v[3] = {{out, m}, {zeros, body || !get ? 0 : len}, {NULL, 0}};
    static char end[] = "\r\n0\r\n\r\n";
    if (chunked && get)
        v[2] = (struct iovec){end, 7};
    if (cut)
        v[1].iov_len /= 2, v[2].iov_len = 0;
    struct msghdr h = {.msg_iov = v, .msg_iovlen = v[1].iov_len || v[2].iov_len ? 3 : 1};
    ssize_t sent = sendmsg(c->fd, &h, MSG_NOSIGNAL | MSG_DONTWAIT);
    size_t all = v[0].iov_len + v[1].iov_len + v[2].iov_len;
    if (sent < 0)
        c->dead = true;
    else if ((size_t)sent < all)
        c->owed = all - (size_t)sent; /* only right for plain bodies: use --chunked with small ones */
    if (bye || cut)
        c->dead = true;
}

static void *serve(void *arg)
{
    (void)arg;
    int ls = socket(AF_INET, SOCK_STREAM, 0), one = 1, ep = epoll_create1(0);
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    setsockopt(ls, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    setsockopt(ls, SOL_SOCKET, SO_REUSEPORT, &one, sizeof one);
    if (bind(ls, (struct sockaddr *)&a, sizeof a) != 0 || listen(ls, 1024) != 0) {
        perror("bind");
        exit(2);
    }
    struct epoll_event e = {.events = EPOLLIN, .data.ptr = NULL}, ev[256];
    epoll_ctl(ep, EPOLL_CTL_ADD, ls, &e);
    static _Thread_local char sink[1 << 20];
    unsigned long nth = 0;
    for (;;) {
        int n = epoll_wait(ep, ev, 256, -1);
        for (int i = 0; i < n; i++) {
            struct conn *c = ev[i].data.ptr;
            if (!c) {
                int fd = accept(ls, NULL, NULL);
                if (fd < 0)
                    continue;
                setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
                c = calloc(1, sizeof *c);
                c->fd = fd;
                e = (struct epoll_event){.events = EPOLLIN | EPOLLOUT | EPOLLET, .data.ptr = c};
                epoll_ctl(ep, EPOLL_CTL_ADD, fd, &e);
                continue;
            }
            if (c->owed)
                pay(c);
            for (;;) { /* requests aren't pipelined */
                ssize_t r;
                if (c->skip) {
                    r = recv(c->fd, sink, c->skip < sizeof sink ? c->skip : sizeof sink, MSG_DONTWAIT | MSG_TRUNC);
                    if (r > 0 && (c->skip -= (size_t)r) == 0)
                        answer(c, ++nth);
                } else {
                    r = recv(c->fd, c->head + c->n, sizeof c->head - 1 - c->n, MSG_DONTWAIT);
                    if (r > 0) {
                        c->n += (size_t)r;
                        c->head[c->n] = 0;
                        char *end = memmem(c->head, c->n, "\r\n\r\n", 4);
                        if (!end && c->n < sizeof c->head - 1)
                            continue;
                        char *cl = strcasestr(c->head, "\r\ncontent-length:");
                        size_t have = end ? c->n - (size_t)(end + 4 - c->head) : 0;
                        c->skip = cl && cl < end ? strtoul(cl + 17, NULL, 10) : 0;
                        c->skip = c->skip > have ? c->skip - have : 0;
                        c->method = c->head[0];
                        c->n = 0;
                        if (!c->skip)
                            answer(c, ++nth);
                    }
                }
                if (r == 0 || (r < 0 && errno != EAGAIN))
                    c->dead = true;
                if (c->dead || r <= 0 || (!c->skip && c->n == 0))
                    break;
            }
            if (c->dead) {
                close(c->fd);
                free(c);
            }
        }
    }
    return NULL;
}

static void on_signal(int sig)
{
    struct rusage r;
    char line[100];
    (void)sig;
    getrusage(RUSAGE_SELF, &r);
    int n = snprintf(line, sizeof line, "responder: CPU %.3f s\n",
                     (double)(r.ru_utime.tv_sec + r.ru_stime.tv_sec) + (double)(r.ru_utime.tv_usec + r.ru_stime.tv_usec) / 1e6);
    if (n > 0 && write(2, line, (size_t)n) < 0)
        _exit(1);
    _exit(0);
}

int main(int argc, char **argv)
{
    long threads = 1;
    if (argc < 2) {
        fprintf(stderr, "usage: responder PORT [--threads N] [--size BYTES] [--chunked] [--close-every N] [--fail-every N]\n"
                        "       [--conflict-every N] [--cut-every N] [--hang-every N] [--kill-every N]\n");
        return 2;
    }
    port = (uint16_t)atoi(argv[1]);
    for (int i = 2; i < argc; i++) {
        const char *o = argv[i];
        if (strcmp(o, "--chunked") == 0) {
            chunked = true;
            continue;
        }
        unsigned long v = i + 1 < argc ? strtoul(argv[++i], NULL, 10) : 0;
        if (strcmp(o, "--threads") == 0)
            threads = (long)v;
        else if (strcmp(o, "--size") == 0)
            body_size = v;
        else if (strcmp(o, "--close-every") == 0)
            close_every = v;
        else if (strcmp(o, "--fail-every") == 0)
            fail_every = v;
        else if (strcmp(o, "--conflict-every") == 0)
            conflict_every = v;
        else if (strcmp(o, "--cut-every") == 0)
            cut_every = v;
        else if (strcmp(o, "--hang-every") == 0)
            hang_every = v;
        else if (strcmp(o, "--kill-every") == 0)
            kill_every = v;
        else
            return 2;
    }
    zeros = calloc(1, body_size + 1);
    signal(SIGTERM, on_signal);
    signal(SIGINT, on_signal);
    pthread_t t;
    for (long i = 1; i < threads; i++)
        pthread_create(&t, NULL, serve, NULL);
    serve(NULL);
    return 0;
}
