/* SPDX-License-Identifier: Apache-2.0 */
/* Threads, connections and time. Each thread owns an epoll instance, its connections and its counters; nothing is
 * shared on the request path but two atomic counters. A request costs one send, one recv, one clock reading and
 * a share of one epoll_wait. */
#include "lg.h"
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#define RBUF ((size_t)1 << 20)
#define KEEP_ERROR ((size_t)65536)
#define NEVER UINT64_MAX
#define MS UINT64_C(1000000)

const char *const kind_name[K_N] = {
    [K_GET] = "get",
    [K_PUT] = "put",
    [K_HEAD] = "head",
    [K_DELETE] = "delete",
    [K_LIST] = "list",
    [K_MPU] = "multipart",
    [K_MPU_CREATE] = "mpu-create",
    [K_MPU_PART] = "mpu-part",
    [K_MPU_COMPLETE] = "mpu-complete",
    [K_MPU_ABORT] = "mpu-abort",
    [K_TCREATE] = "create-table",
    [K_TLOAD] = "load-table",
    [K_COMMIT] = "commit",
    [K_TLIST] = "list-tables",
    [K_TDROP] = "drop-table",
    [K_RELOAD] = "reload",
};
const char *const err_name[E_N] = {
    [E_CONNECT] = "connect", [E_CONN] = "connection_lost", [E_TIMEOUT] = "timeout",
    [E_PROTO] = "protocol",  [E_VERIFY] = "verify",        [E_BODY] = "bad_answer",
};

static struct phase *P;
static pthread_barrier_t barrier;
static atomic_uint live;
static struct sockaddr_storage target;
static socklen_t target_len;

static void go(struct thr *t, struct conn *c, uint64_t now);
static void begin(struct thr *t, struct conn *c, uint64_t t_op, uint64_t now);
static void finish(struct thr *t, struct conn *c, int status, uint64_t now);
static void lost(struct thr *t, struct conn *c, uint64_t now);

/* ---- what operations call ---- */

void rq_begin(struct conn *c, enum kind k, const char *method, enum body_mode mode)
{
    c->kind = k;
    c->method = method;
    c->mode = mode;
    c->ctype = NULL;
    c->path.len = c->query.len = c->body.len = c->extra.len = 0;
    c->big = NULL;
    c->big_len = 0;
    c->tail_off = c->tail_len = 0;
    c->payload_hash = (struct span){EMPTY_SHA256, 64};
}

void rq_hash_body(struct conn *c)
{
    unsigned char d[32];
    SHA256((const unsigned char *)c->body.p, c->body.len, d);
    hex(c->sha, d, 32);
    c->payload_hash = (struct span){c->sha, 64};
}

uint64_t rq_index(void)
{
    return atomic_fetch_add_explicit(&P->index, 1, memory_order_relaxed);
}

static uint64_t t_end(void)
{
    return atomic_load_explicit(&P->t_end, memory_order_relaxed);
}

void rq_record(struct thr *t, enum kind k, uint64_t t0, uint64_t now, uint64_t bytes)
{
    struct stats *s = t->s;
    if (now < P->t_meas)
        return;
    hist_add(&s->lat[k], now - t0);
    if (now < t_end()) {
        s->ok[k]++;
        s->bytes[k] += bytes;
    } else if (P->op->primary & (1u << k)) {
        s->drained++;
    }
}

void rq_keys(struct thr *t, uint64_t now, uint64_t n)
{
    if (now >= P->t_meas && now < t_end())
        t->s->keys += n;
}

static void count_error(struct conn *c, const char *what, const char *body, size_t n)
{
    uint64_t k = atomic_fetch_add(&P->errors, 1);
    if (k == 0) {
        if (n > 2000)
            n = 2000;
        fprintf(stderr, "loadgen: first error: %s %.*s%s%.*s: %s\n", c->method, (int)c->path.len, c->path.p, c->query.len ? "?" : "",
                (int)c->query.len, c->query.len ? c->query.p : "", what);
        if (n)
            fprintf(stderr, "%.*s\n", (int)n, body);
    }
    if (g.max_errors && k + 1 == g.max_errors) {
        fprintf(stderr, "loadgen: %llu errors: giving up (--max-errors)\n", (unsigned long long)(k + 1));
        atomic_store(&g_stop, 1);
    }
}

void rq_error(struct thr *t, struct conn *c, int which, const char *what)
{
    t->s->other[which]++;
    count_error(c, what, c->in.p, which == E_BODY ? c->in.len : 0);
}

bool rq_ok(struct thr *t, struct conn *c)
{
    if (c->status >= 200 && c->status <= 299)
        return true;
    if (c->status != 0) {
        char what[32];
        snprintf(what, sizeof what, "HTTP %d", c->status);
        t->s->http[c->status]++;
        count_error(c, what, c->in.p, c->in.len);
    }
    return false;
}

/* ---- requests on the wire ---- */

static size_t wire_len(const struct conn *c)
{
    return c->out.len + c->big_len + c->tail_len;
}

void rq_build(struct thr *t, struct conn *c, time_t sec)
{
    struct buf *o = &c->out;
    size_t body = c->body.len + c->big_len + c->tail_len, nhost = strlen(g.host);
    o->len = 0;
    c->sent = 0;
    buf_str(o, c->method);
    buf_lit(o, " ");
    buf_add(o, c->path.p, c->path.len);
    if (c->query.len) {
        buf_lit(o, "?");
        buf_add(o, c->query.p, c->query.len);
    }
    buf_lit(o, " HTTP/1.1\r\nHost: ");
    buf_add(o, g.host, nhost);
    buf_lit(o, "\r\n");
    if (g.sign) {
        struct signer *s = &t->sig;
        struct buf *k = &t->canon;
        sig_at(s, sec);
        k->len = 0;
        buf_str(k, c->method);
        buf_lit(k, "\n");
        /* S3 signs the path as sent; every other service signs it encoded once more */
        if (s->service[0] == 's' && s->service[1] == '3' && s->service[2] == 0)
            buf_add(k, c->path.p, c->path.len);
        else
            buf_uri(k, c->path.p, c->path.len, true);
        buf_lit(k, "\n");
        if (c->query.len)
            buf_add(k, c->query.p, c->query.len);
        buf_lit(k, "\nhost:");
        buf_add(k, g.host, nhost);
        buf_lit(k, "\nx-amz-content-sha256:");
        buf_add(k, c->payload_hash.p, c->payload_hash.n);
        buf_lit(k, "\nx-amz-date:");
        buf_add(k, s->amzdate, 16);
        buf_lit(k, "\n\n" SIGNED_HEADERS "\n");
        buf_add(k, c->payload_hash.p, c->payload_hash.n);
        char sig[64];
        sig_hash(s, k->p, k->len, sig);
        buf_lit(o, "x-amz-content-sha256: ");
        buf_add(o, c->payload_hash.p, c->payload_hash.n);
        buf_lit(o, "\r\nx-amz-date: ");
        buf_add(o, s->amzdate, 16);
        buf_lit(o, "\r\nAuthorization: AWS4-HMAC-SHA256 Credential=");
        buf_str(o, s->access);
        buf_lit(o, "/");
        buf_add(o, s->scope.p, s->scope.len);
        buf_lit(o, ", SignedHeaders=" SIGNED_HEADERS ", Signature=");
        buf_add(o, sig, 64);
        buf_lit(o, "\r\n");
    } else if (g.bearer) {
        buf_lit(o, "Authorization: Bearer ");
        buf_str(o, g.bearer);
        buf_lit(o, "\r\n");
    }
    if (body || c->method[0] == 'P')
        buf_fmt(o, "Content-Length: %zu\r\n", body);
    if (c->ctype)
        buf_fmt(o, "Content-Type: %s\r\n", c->ctype);
    if (g.headers.len)
        buf_add(o, g.headers.p, g.headers.len);
    if (c->extra.len)
        buf_add(o, c->extra.p, c->extra.len);
    buf_lit(o, "\r\n");
    if (c->body.len)
        buf_add(o, c->body.p, c->body.len);
}

static ssize_t send_some(struct conn *c)
{
    size_t at = c->sent;
    if (!c->big_len && !c->tail_len)
        return send(c->fd, c->out.p + at, c->out.len - at, MSG_NOSIGNAL);
    struct iovec v[3];
    struct msghdr m = {.msg_iov = v};
    const void *piece[3] = {c->out.p, c->big, c->obj.tail + c->tail_off};
    size_t len[3] = {c->out.len, c->big_len, c->tail_len}, most = RBUF; /* a bound, so that no connection starves the others */
    for (int i = 0; i < 3 && most; i++) {
        if (at >= len[i]) {
            at -= len[i];
            continue;
        }
        size_t n = len[i] - at < most ? len[i] - at : most;
        union {
            const void *in;
            void *out;
        } u = {(const char *)piece[i] + at};
        v[m.msg_iovlen++] = (struct iovec){u.out, n};
        most -= n;
        at = 0;
    }
    return sendmsg(c->fd, &m, MSG_NOSIGNAL);
}

static void arm(struct thr *t, struct conn *c, bool out)
{
    if (c->want_out == out)
        return;
    struct epoll_event e = {.events = EPOLLIN | (out ? EPOLLOUT : 0u), .data.ptr = c};
    if (epoll_ctl(t->ep, EPOLL_CTL_MOD, c->fd, &e) != 0)
        die("epoll_ctl: %s", strerror(errno));
    c->want_out = out;
}

static void shut(struct conn *c)
{
    if (c->fd >= 0)
        close(c->fd);
    c->fd = -1;
    c->st = C_DOWN;
    c->reused = c->want_out = false;
}

static void body_piece(struct conn *c, struct span b)
{
    bool good = c->hp.status <= 299;
    if (!good || c->mode == B_KEEP) {
        if (good || c->in.len + b.n <= KEEP_ERROR)
            buf_add(&c->in, b.p, b.n);
    } else if (c->mode == B_VERIFY && !c->bad_content && !content_check(&c->obj, c->rx, b.p, b.n)) {
        c->bad_content = true;
    }
    c->rx += b.n;
}

static void on_readable(struct thr *t, struct conn *c)
{
    ssize_t n;
    bool in_flight = c->busy && !c->t_wake;
    bool skip = in_flight && c->hp.st == HS_LENGTH && c->mode == B_DISCARD && c->hp.remain >= 65536 && c->hp.status <= 299;
    if (skip) /* nobody looks at these bytes: the kernel drops them without a copy */
        n = recv(c->fd, t->rbuf, c->hp.remain < RBUF ? (size_t)c->hp.remain : RBUF, MSG_TRUNC);
    else
        n = recv(c->fd, t->rbuf, RBUF, 0);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (!in_flight) { /* idle: the server closed it, or talks out of turn */
        shut(c);
        return;
    }
    if (n < 0) {
        lost(t, c, now_ns());
        return;
    }
    enum hp_event ev;
    const char *p = t->rbuf, *end = p + n;
    struct span b;
    if (skip && n > 0) {
        c->hp.remain -= (uint64_t)n;
        c->rx += (uint64_t)n;
        if (c->hp.remain)
            return;
        c->hp.st = HS_DONE;
        p = end;
    }
    if (n == 0) {
        ev = hp_eof(&c->hp);
        if (ev == HP_BAD) {
            lost(t, c, now_ns());
            return;
        }
    } else {
        while ((ev = hp_next(&c->hp, &p, end, &b)) == HP_BODY)
            body_piece(c, b);
    }
    if (ev == HP_MORE)
        return;
    uint64_t now = now_ns();
    if (ev == HP_BAD || p < end) {
        rq_error(t, c, E_PROTO, ev == HP_BAD ? "not an HTTP answer" : "bytes after the end of the answer");
        shut(c);
        finish(t, c, 0, now);
        return;
    }
    c->reused = true;
    if (c->hp.close || c->sent < wire_len(c))
        shut(c);
    finish(t, c, c->hp.status, now);
}

static void flush(struct thr *t, struct conn *c)
{
    ssize_t n = send_some(c);
    if (n < 0 && errno != EAGAIN && errno != EINTR) {
        size_t total = wire_len(c);
        uint64_t was = c->t_req;
        if (c->sent > 0 && c->sent < total) /* perhaps it answered before it hung up */
            on_readable(t, c);
        if (c->busy && c->fd >= 0 && c->t_req == was)
            lost(t, c, now_ns());
        return;
    }
    if (n > 0)
        c->sent += (size_t)n;
    arm(t, c, c->sent < wire_len(c));
}

static void transmit(struct thr *t, struct conn *c)
{
    hp_reset(&c->hp);
    c->hp.no_body = c->method[0] == 'H';
    c->in.len = 0;
    c->rx = 0;
    c->bad_content = false;
    rq_build(t, c, time(NULL)); /* signs; so a request that is sent again is signed again */
    flush(t, c);
}

static void sleep_until(struct thr *t, struct conn *c, uint64_t when)
{
    if (!c->t_wake)
        t->nwait++;
    c->t_wake = when;
}

static void open_conn(struct thr *t, struct conn *c, uint64_t now)
{
    t->s->reconnects++;
    c->fd = socket(target.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (c->fd < 0)
        die("socket: %s", strerror(errno));
    int one = 1;
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (connect(c->fd, (struct sockaddr *)&target, target_len) != 0 && errno != EINPROGRESS) {
        rq_error(t, c, E_CONNECT, strerror(errno));
        shut(c);
        sleep_until(t, c, now + 100 * MS);
        finish(t, c, 0, now);
        return;
    }
    struct epoll_event e = {.events = EPOLLIN | EPOLLOUT, .data.ptr = c};
    if (epoll_ctl(t->ep, EPOLL_CTL_ADD, c->fd, &e) != 0)
        die("epoll_ctl: %s", strerror(errno));
    c->want_out = true;
    c->st = C_CONNECTING;
}

static void on_connected(struct thr *t, struct conn *c)
{
    int err = 0;
    socklen_t n = sizeof err;
    getsockopt(c->fd, SOL_SOCKET, SO_ERROR, &err, &n);
    if (err) {
        uint64_t now = now_ns();
        rq_error(t, c, E_CONNECT, strerror(err));
        shut(c);
        sleep_until(t, c, now + 100 * MS);
        finish(t, c, 0, now);
        return;
    }
    c->st = C_UP;
    if (c->busy)
        transmit(t, c);
    else
        arm(t, c, false);
}

/* The connection broke under a request. One that had been idle may just have been closed by the server, which no
 * client can know: then the request goes out again on a new connection, on the same clock. */
static void lost(struct thr *t, struct conn *c, uint64_t now)
{
    bool again = c->reused && !c->hp.any && c->resends < 3;
    shut(c);
    if (again) {
        c->resends++;
        t->s->resent++;
        open_conn(t, c, now);
        return;
    }
    rq_error(t, c, E_CONN, c->hp.any ? "connection closed inside an answer" : "connection closed before an answer");
    finish(t, c, 0, now);
}

/* ---- the life of an operation ---- */

static void set_free(struct thr *t, struct conn *c, uint64_t now)
{
    if (P->rate <= 0)
        return;
    if (t->nfree == 0)
        t->t_free_since = now;
    t->freelist[t->nfree++] = c;
}

static void go(struct thr *t, struct conn *c, uint64_t now)
{
    c->t_req = now;
    c->resends = 0;
    if (c->fd < 0)
        open_conn(t, c, now);
    else if (c->st == C_UP)
        transmit(t, c);
}

static void begin(struct thr *t, struct conn *c, uint64_t t_op, uint64_t now)
{
    if (now >= t_end())
        t->draining = true;
    if (t->draining || t->exhausted) {
        set_free(t, c, now);
        return;
    }
    if (P->count && atomic_fetch_add_explicit(&P->tickets, 1, memory_order_relaxed) >= P->count) {
        t->exhausted = true;
        set_free(t, c, now);
        return;
    }
    c->step = c->retries = 0;
    c->delay = 0;
    c->t_op = t_op;
    if (!P->op->next(t, c)) {
        t->exhausted = true;
        set_free(t, c, now);
        return;
    }
    c->busy = true;
    t->nbusy++;
    go(t, c, now);
}

static void finish(struct thr *t, struct conn *c, int status, uint64_t now)
{
    c->status = status;
    if (now >= P->t_meas && now < t_end()) {
        t->s->requests += status != 0;
        t->s->t_last = now;
    }
    bool more = P->op->done(t, c, now);
    if (more && (P->op->finish || now < t_end()) && P->op->next(t, c)) {
        if (c->delay) {
            sleep_until(t, c, now + c->delay);
            c->delay = 0;
        }
        if (!c->t_wake)
            go(t, c, now);
        return;
    }
    c->busy = false;
    t->nbusy--;
    if (c->t_wake)
        return; /* the wake-up frees it or starts the next operation */
    if (P->rate > 0)
        set_free(t, c, now);
    else
        begin(t, c, now, now);
}

static void wake_ups(struct thr *t, uint64_t now)
{
    for (uint32_t i = 0; i < t->nconns && t->nwait; i++) {
        struct conn *c = &t->conns[i];
        if (!c->t_wake || (c->t_wake > now && !t->draining))
            continue;
        c->t_wake = 0;
        t->nwait--;
        if (c->busy)
            go(t, c, now);
        else if (P->rate > 0)
            set_free(t, c, now);
        else
            begin(t, c, now, now);
    }
}

static void time_outs(struct thr *t, uint64_t now)
{
    uint64_t most = (uint64_t)(g.timeout * 1e9);
    for (uint32_t i = 0; i < t->nconns; i++) {
        struct conn *c = &t->conns[i];
        if (c->busy && !c->t_wake && now > c->t_req && now - c->t_req > most) {
            rq_error(t, c, E_TIMEOUT, "no answer in time (--timeout)");
            shut(c);
            finish(t, c, 0, now);
        }
    }
}

static uint64_t due(const struct thr *t)
{
    return P->t_start + (uint64_t)((double)(t->arrivals * g.threads + t->id) * (1e9 / P->rate));
}

/* Open loop: starts what is due. Returns when the next one is due, NEVER when only a free connection can help. */
static uint64_t issue_due(struct thr *t, uint64_t now)
{
    while (t->nfree && !t->exhausted && !t->draining) {
        uint64_t d = due(t);
        if (d > now)
            return d;
        if (d >= t_end())
            break;
        struct conn *c = t->freelist[--t->nfree];
        if (t->t_free_since <= d && d >= P->t_meas)
            hist_add(&t->s->lag, now - d);
        t->arrivals++;
        begin(t, c, d, now);
        now = now_ns();
    }
    return NEVER;
}

/* Arrivals inside the window that never got a connection: their wait so far is a lower bound of their latency,
 * and leaving them out would flatter the percentiles. */
static void count_missed(struct thr *t, uint64_t now)
{
    enum kind k = (enum kind)__builtin_ctz(P->op->primary);
    for (; !t->exhausted && due(t) < t_end(); t->arrivals++) {
        uint64_t d = due(t);
        if (d >= now)
            break;
        t->s->missed++;
        hist_add(&t->s->lat[k], now - d);
    }
}

/* How long this thread was ready to run and had no core, so far (0 where the kernel doesn't say). */
static uint64_t run_delay(void)
{
    unsigned long long cpu_ns, wait_ns = 0;
    FILE *f = fopen("/proc/thread-self/schedstat", "r");
    if (f) {
        if (fscanf(f, "%llu %llu", &cpu_ns, &wait_ns) != 2)
            wait_ns = 0;
        fclose(f);
    }
    return wait_ns;
}

static void *thread_main(void *arg)
{
    struct thr *t = arg;
    struct epoll_event ev[256];
    prctl(PR_SET_TIMERSLACK, 1000ul, 0ul, 0ul, 0ul);
    for (uint32_t i = 0; i < t->nconns; i++) {
        struct conn *c = &t->conns[i];
        c->fd = socket(target.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
        int one = 1;
        if (c->fd < 0 || connect(c->fd, (struct sockaddr *)&target, target_len) != 0)
            die("cannot connect to %s: %s", g.endpoint, strerror(errno));
        setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        fcntl(c->fd, F_SETFL, O_NONBLOCK);
        struct epoll_event e = {.events = EPOLLIN, .data.ptr = c};
        if (epoll_ctl(t->ep, EPOLL_CTL_ADD, c->fd, &e) != 0)
            die("epoll_ctl: %s", strerror(errno));
        c->st = C_UP;
    }
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier); /* the clock is set in between */
    uint64_t now = now_ns(), next_scan = now;
    for (uint32_t i = 0; i < t->nconns; i++) {
        if (P->rate > 0)
            set_free(t, &t->conns[i], P->t_start);
        else
            begin(t, &t->conns[i], now_ns(), now_ns());
    }
    for (;;) {
        uint64_t wait = 50 * MS;
        now = now_ns();
        if (atomic_load_explicit(&g_stop, memory_order_relaxed))
            break;
        if (!t->opened && now >= P->t_meas) {
            t->starved0 = run_delay();
            t->opened = true;
        }
        if (!t->closed && now >= t_end()) {
            t->draining = t->closed = true;
            t->s->starved = run_delay() - t->starved0;
        }
        if (P->rate > 0 && !t->draining) {
            uint64_t d = issue_due(t, now);
            now = now_ns();
            wait = d <= now ? 0 : d - now < wait ? d - now : wait;
        }
        if (t->nwait) {
            wake_ups(t, now);
            if (wait > MS / 2)
                wait = MS / 2;
        }
        if (now >= next_scan) {
            time_outs(t, now);
            next_scan = now + 200 * MS;
        }
        if (t->nbusy == 0 && t->nwait == 0 && (t->draining || t->exhausted || P->rate <= 0))
            break;
        struct timespec ts = {.tv_sec = 0, .tv_nsec = (long)wait};
        int n = epoll_pwait2(t->ep, ev, 256, &ts, NULL);
        for (int i = 0; i < n; i++) {
            struct conn *c = ev[i].data.ptr;
            if (c->fd < 0)
                continue; /* closed by an earlier event of this batch */
            if (c->st == C_CONNECTING)
                on_connected(t, c);
            else if (ev[i].events & ~(uint32_t)EPOLLOUT)
                on_readable(t, c);
            else if (c->busy)
                flush(t, c);
        }
    }
    if (t->opened && !t->closed)
        t->s->starved = run_delay() - t->starved0;
    if (P->rate > 0)
        count_missed(t, now_ns());
    for (uint32_t i = 0; i < t->nconns; i++)
        shut(&t->conns[i]);
    atomic_fetch_sub(&live, 1);
    return NULL;
}

/* ---- phases ---- */

static void resolve(void)
{
    if (target_len)
        return;
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *ai;
    int e = getaddrinfo(g.addr_host, g.addr_port, &hints, &ai);
    if (e)
        die("%s: %s", g.addr_host, gai_strerror(e));
    memcpy(&target, ai->ai_addr, ai->ai_addrlen);
    target_len = ai->ai_addrlen;
    freeaddrinfo(ai);
}

static double cpu(struct timeval tv)
{
    return (double)tv.tv_sec + (double)tv.tv_usec / 1e6;
}

static void set_signer(struct thr *t)
{
    t->sig = (struct signer){.access = g.access, .secret = g.secret, .region = g.region, .service = g.service};
}

void phase_run(struct phase *ph)
{
    resolve();
    P = ph;
    uint32_t nt = g.threads < g.conns ? g.threads : g.conns, id = 0;
    g.threads = nt;
    struct thr *ts = xalloc(sizeof *ts * nt);
    pthread_t *tid = xalloc(sizeof *tid * nt);
    pthread_barrier_init(&barrier, NULL, nt + 1);
    atomic_store(&live, nt);
    atomic_store(&ph->t_end, NEVER);
    for (uint32_t i = 0; i < nt; i++) {
        struct thr *t = &ts[i];
        t->id = i;
        t->nconns = g.conns / nt + (i < g.conns % nt);
        t->conns = xalloc(sizeof *t->conns * t->nconns);
        t->freelist = xalloc(sizeof(struct conn *) * t->nconns);
        for (uint32_t k = 0; k < t->nconns; k++) {
            t->conns[k].fd = -1;
            t->conns[k].id = id++;
        }
        t->ep = epoll_create1(EPOLL_CLOEXEC);
        t->rbuf = xalloc(RBUF);
        t->s = xalloc(sizeof *t->s);
        t->rng = mix64(g.seed + 77 + i);
        t->t_free_since = NEVER;
        set_signer(t);
        if (t->ep < 0 || pthread_create(&tid[i], NULL, thread_main, t) != 0)
            die("cannot start thread %u: %s", i, strerror(errno));
    }
    pthread_barrier_wait(&barrier);
    ph->t_start = now_ns();
    ph->t_meas = ph->t_start + (uint64_t)(ph->warmup * 1e9);
    if (ph->duration > 0)
        atomic_store(&ph->t_end, ph->t_meas + (uint64_t)(ph->duration * 1e9));
    struct rusage a, b;
    getrusage(RUSAGE_SELF, &a);
    pthread_barrier_wait(&barrier);
    bool measured = ph->warmup <= 0;
    uint64_t now = 0;
    struct timespec nap = {.tv_nsec = 5 * (long)MS};
    while (atomic_load(&live)) { /* the threads run; this one only reads the meter at the edges of the window */
        now = now_ns();
        uint64_t edge = measured ? atomic_load(&ph->t_end) : ph->t_meas;
        if (atomic_load(&g_stop)) {
            ph->stopped = true;
            break;
        }
        if (now >= edge) {
            if (measured)
                break;
            getrusage(RUSAGE_SELF, &a);
            measured = true;
            continue;
        }
        nap.tv_nsec = edge - now < 5 * MS ? (long)(edge - now) : 5 * (long)MS;
        nanosleep(&nap, NULL);
    }
    getrusage(RUSAGE_SELF, &b);
    now = now_ns();
    bool early = now < atomic_load(&ph->t_end);
    if (early && ph->stopped)
        atomic_store(&ph->t_end, now);
    ph->s = xalloc(sizeof *ph->s);
    struct stats *s = ph->s;
    for (uint32_t i = 0; i < nt; i++) {
        pthread_join(tid[i], NULL);
        struct thr *t = &ts[i];
        struct stats *x = t->s;
        for (int k = 0; k < K_N; k++) {
            s->ok[k] += x->ok[k];
            s->bytes[k] += x->bytes[k];
            if (x->lat[k].n)
                hist_merge(&s->lat[k], &x->lat[k]);
        }
        for (int k = 0; k < 600; k++)
            s->http[k] += x->http[k];
        for (int k = 0; k < E_N; k++)
            s->other[k] += x->other[k];
        hist_merge(&s->lag, &x->lag);
        s->requests += x->requests;
        s->drained += x->drained;
        s->keys += x->keys;
        s->conflicts += x->conflicts;
        s->not_modified += x->not_modified;
        s->reconnects += x->reconnects;
        s->resent += x->resent;
        s->missed += x->missed;
        s->starved += x->starved;
        if (x->t_last > s->t_last)
            s->t_last = x->t_last;
        for (uint32_t k = 0; k < t->nconns; k++) {
            struct conn *c = &t->conns[k];
            struct buf *bs[] = {&c->path, &c->query, &c->body, &c->extra, &c->out, &c->in, &c->token, &c->last, &c->scratch};
            for (size_t m = 0; m < sizeof bs / sizeof *bs; m++)
                free(bs[m]->p);
        }
        close(t->ep);
        free(t->sig.scope.p);
        free(t->canon.p);
        free(t->recs);
        free(t->pool);
        free(t->conns);
        free(t->freelist);
        free(t->rbuf);
        free(x);
    }
    pthread_barrier_destroy(&barrier);
    free(ts);
    free(tid);
    uint64_t last = early && !ph->stopped && s->t_last > ph->t_meas ? s->t_last : early ? now : atomic_load(&ph->t_end);
    ph->seconds = (double)(last - ph->t_meas) / 1e9;
    ph->cpu_user = cpu(b.ru_utime) - cpu(a.ru_utime);
    ph->cpu_sys = cpu(b.ru_stime) - cpu(a.ru_stime);
}

uint64_t stats_errors(const struct stats *s)
{
    uint64_t n = 0;
    for (int k = 0; k < 600; k++)
        n += s->http[k];
    for (int k = 0; k < E_N; k++)
        n += s->other[k];
    return n;
}

static int once(const char *method, const char *path, const char *query, const char *ctype, const char *body, struct buf *answer)
{
    static struct thr t;
    struct conn *c = xalloc(sizeof *c);
    resolve();
    if (!t.sig.access)
        set_signer(&t);
    rq_begin(c, K_GET, method, B_KEEP);
    buf_str(&c->path, path);
    buf_str(&c->query, query);
    buf_str(&c->body, body);
    c->ctype = ctype;
    rq_hash_body(c);
    rq_build(&t, c, time(NULL));
    struct timeval tv = {.tv_sec = (time_t)g.timeout + 1};
    c->fd = socket(target.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (c->fd < 0 || connect(c->fd, (struct sockaddr *)&target, target_len) != 0)
        die("cannot connect to %s: %s", g.endpoint, strerror(errno));
    setsockopt(c->fd, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof tv);
    while (c->sent < c->out.len) {
        ssize_t n = send_some(c);
        if (n <= 0)
            die("%s %s: send: %s", method, path, strerror(errno));
        c->sent += (size_t)n;
    }
    hp_reset(&c->hp);
    c->hp.no_body = method[0] == 'H';
    enum hp_event ev = HP_MORE;
    char chunk[16384];
    while (ev != HP_DONE) {
        ssize_t n = recv(c->fd, chunk, sizeof chunk, 0);
        if (n < 0)
            die("%s %s: recv: %s", method, path, strerror(errno));
        const char *p = chunk, *end = chunk + n;
        struct span b;
        if (n == 0)
            ev = hp_eof(&c->hp);
        else
            while ((ev = hp_next(&c->hp, &p, end, &b)) == HP_BODY)
                buf_add(&c->in, b.p, b.n);
        if (ev == HP_BAD)
            die("%s %s: broken answer", method, path);
    }
    int status = c->hp.status;
    shut(c);
    if (answer) {
        free(answer->p);
        *answer = c->in;
        buf_cstr(answer);
    } else {
        free(c->in.p);
    }
    free(c->path.p);
    free(c->query.p);
    free(c->body.p);
    free(c->out.p);
    free(c);
    return status;
}

int rq_once(const char *method, const char *path, const char *query, const char *ctype, const char *body, struct buf *answer)
{
    for (int tries = 0;; tries++) {
        int status = once(method, path, query, ctype, body, answer);
        if (status != 503 || tries == 10)
            return status;
        nanosleep(&(struct timespec){.tv_nsec = 200 * (long)MS}, NULL); /* busy, or still starting */
    }
}
