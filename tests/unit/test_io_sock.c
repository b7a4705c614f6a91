/* SPDX-License-Identifier: Apache-2.0 */
/* Sockets and acceptors on both back ends: echo, big payloads, deadlines, the peer's end, interruption, back-pressure. */
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "io_check.h"
#include "io_internal.h"

#define MS UINT64_C(1000000)
#define SOON (tarn_mono_ns() + 20000 * MS)

/* Both ends of a connection, as sockets of the current loop. */
typedef struct pair {
    tarn_sock *a, *b;
} pair;

static pair connected(void)
{
    pair p = {NULL, NULL};
    int fds[2];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds) == 0);
    CHECK(tarn_sock_attach(tarn_loop_current(), fds[0], &p.a) == TARN_OK);
    CHECK(tarn_sock_attach(tarn_loop_current(), fds[1], &p.b) == TARN_OK);
    return p;
}

static int listen_local(struct sockaddr_in *where)
{
    tarn_addr addr;
    int fd = -1;
    socklen_t n = sizeof *where;
    CHECK(tarn_addr_parse(TARN_STR("127.0.0.1:0"), &addr) == TARN_OK);
    CHECK(tarn_listen(&addr, false, 512, &fd, NULL) == TARN_OK);
    CHECK(getsockname(fd, (struct sockaddr *)(void *)where, &n) == 0);
    return fd;
}

/* A client's end over TCP, connected without blocking: on loopback the handshake needs nobody's help. */
static int connect_local(const struct sockaddr_in *where, bool attach, tarn_sock **out)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(fd >= 0 && connect(fd, (const struct sockaddr *)(const void *)where, sizeof *where) == 0);
    CHECK(fcntl(fd, F_SETFL, O_NONBLOCK) == 0);
    if (attach)
        CHECK(tarn_sock_attach(tarn_loop_current(), fd, out) == TARN_OK);
    return fd;
}

/* ------------------------------------------------------------------ echo over TCP */
#define CLIENTS 150
#define ROUNDS 20
static struct sockaddr_in echo_where;
static unsigned echo_clients_done;

static void echo_server(void *arg)
{
    tarn_sock *s = arg;
    char buf[512];
    size_t got = 1;
    while (tarn_sock_recv(s, buf, sizeof buf, SOON, &got) == TARN_OK && got > 0)
        CHECK(tarn_sock_send(s, buf, got, false, SOON) == TARN_OK);
    CHECK(got == 0 && tarn_sock_peer_gone(s));
    tarn_sock_close(s);
}

static void echo_accept(void *ctx, tarn_sock *sock, const tarn_addr *peer)
{
    ++*(unsigned *)ctx;
    CHECK(tarn_addr_is_loopback(peer));
    int nodelay = 0;
    socklen_t n = sizeof nodelay;
    CHECK(getsockopt(tarn_sock_fd(sock), IPPROTO_TCP, TCP_NODELAY, &nodelay, &n) == 0 && nodelay != 0);
    CHECK((fcntl(tarn_sock_fd(sock), F_GETFL) & O_NONBLOCK) != 0 && fcntl(tarn_sock_fd(sock), F_GETFD) == FD_CLOEXEC);
    CHECK(tarn_fiber_spawn(tarn_loop_current(), echo_server, sock, "echo") == TARN_OK);
}

static void echo_client(void *arg)
{
    unsigned me = (unsigned)(uintptr_t)arg;
    tarn_sock *s = NULL;
    (void)connect_local(&echo_where, true, &s);
    for (unsigned i = 0; i < ROUNDS; i++) {
        unsigned char out[700], in[700];
        size_t have = 0, got = 0;
        memset(out, (int)(me + i), sizeof out);
        CHECK(tarn_sock_send(s, out, sizeof out, false, SOON) == TARN_OK);
        while (have < sizeof in && tarn_sock_recv(s, in + have, sizeof in - have, SOON, &got) == TARN_OK && got > 0)
            have += got;
        CHECK(have == sizeof in && memcmp(in, out, sizeof in) == 0);
    }
    tarn_sock_close(s);
    echo_clients_done++;
}

static void echo_many(void *arg)
{
    (void)arg;
    unsigned accepted = 0;
    tarn_acceptor *a = NULL;
    int fd = listen_local(&echo_where);
    echo_clients_done = 0;
    CHECK(tarn_accept_start(tarn_loop_current(), fd, echo_accept, &accepted, &a) == TARN_OK);
    for (uintptr_t i = 0; i < CLIENTS; i++)
        CHECK(tarn_fiber_spawn(tarn_loop_current(), echo_client, (void *)i, "client") == TARN_OK);
    for (int i = 0; i < 20000 && echo_clients_done < CLIENTS; i++)
        tarn_sleep_ms(1);
    CHECK(echo_clients_done == CLIENTS && accepted == CLIENTS);
    tarn_accept_stop(a);
}

static void test_echo(void **state)
{
    (void)state;
    check_in_fiber(echo_many, NULL);
}

/* ------------------------------------------------------------------ big payloads */
#define BIG_PIECE 4099
#define BIG_PIECES (3 * TARN_SEND_IOV_MAX + 1)
#define BIG_BYTES ((size_t)BIG_PIECE * BIG_PIECES)
static unsigned char big_out[BIG_PIECES][BIG_PIECE];
static size_t big_got;

static void big_reader(void *arg)
{
    tarn_sock *s = arg;
    static unsigned char buf[10007];
    const unsigned char *want = &big_out[0][0];
    size_t got = 0;
    big_got = 0;
    tarn_sleep_ms(20); /* the sender fills the buffers and parks */
    while (tarn_sock_recv(s, buf, sizeof buf, SOON, &got) == TARN_OK && got > 0) {
        CHECK(big_got + got <= BIG_BYTES && memcmp(buf, want + big_got, got) == 0);
        big_got += got;
    }
}

static void big_payload(void *arg)
{
    (void)arg;
    pair p = connected();
    struct iovec iov[BIG_PIECES + 2];
    size_t n = 0;
    for (size_t i = 0; i < BIG_PIECES; i++) {
        memset(big_out[i], (int)(i + 1), BIG_PIECE);
        big_out[i][0] = (unsigned char)(i * 31);
    }
    iov[n++] = (struct iovec){NULL, 0}; /* empty pieces do no harm */
    for (size_t i = 0; i < BIG_PIECES; i++) {
        iov[n++] = (struct iovec){big_out[i], BIG_PIECE};
        if (i == 7)
            iov[n++] = (struct iovec){NULL, 0};
    }
    CHECK(tarn_fiber_spawn(tarn_loop_current(), big_reader, p.b, "reader") == TARN_OK);
    CHECK(tarn_sock_sendv(p.a, iov, n, false, SOON) == TARN_OK);
    tarn_sock_close(p.a);
    for (int i = 0; i < 5000 && big_got < BIG_BYTES; i++)
        tarn_sleep_ms(1);
    tarn_sleep_ms(2);
    CHECK(big_got == BIG_BYTES);
    tarn_sock_close(p.b);
}

static void test_big_payload(void **state)
{
    (void)state;
    check_in_fiber(big_payload, NULL);
}

/* ------------------------------------------------------------------ deadlines and ends */
static void deadlines(void *arg)
{
    (void)arg;
    pair p = connected();
    char buf[16];
    static char much[4 << 20];
    size_t got = 7;
    CHECK(tarn_sock_recv_now(p.a, buf, sizeof buf, &got) == TARN_E_CONFLICT && got == 0);
    uint64_t t0 = tarn_mono_ns();
    CHECK(tarn_sock_recv(p.a, buf, sizeof buf, t0 + 20 * MS, &got) == TARN_E_TIMED_OUT);
    CHECK(tarn_mono_ns() - t0 >= 20 * MS && tarn_mono_ns() - t0 < 5000 * MS);
    CHECK(tarn_sock_recv(p.a, buf, sizeof buf, 0, &got) == TARN_E_TIMED_OUT);
    CHECK(tarn_sock_send(p.b, "hello", 5, false, SOON) == TARN_OK);
    CHECK(tarn_sock_recv(p.a, buf, 2, SOON, &got) == TARN_OK && got == 2); /* usable after a deadline */
    CHECK(tarn_sock_recv_now(p.a, buf, sizeof buf, &got) == TARN_OK && got == 3 && memcmp(buf, "llo", 3) == 0);
    CHECK(tarn_sock_recv_now(p.a, buf, sizeof buf, &got) == TARN_E_CONFLICT && got == 0);
    /* Nobody reads: the buffers fill up. */
    CHECK(tarn_sock_send(p.a, much, sizeof much, false, tarn_mono_ns() + 20 * MS) == TARN_E_TIMED_OUT);
    CHECK(!tarn_sock_peer_gone(p.a));
    tarn_sock_close(p.a);
    tarn_sock_close(p.b);
    tarn_sock_close(NULL);
}

static void test_deadlines(void **state)
{
    (void)state;
    check_in_fiber(deadlines, NULL);
}

static void close_later(void *arg)
{
    tarn_sleep_ms(5);
    tarn_sock_close(arg);
}

static void peer_closes(void *arg)
{
    (void)arg;
    char buf[16];
    size_t got = 9;
    pair p = connected();
    /* While parked. What was sent before the end comes first. */
    CHECK(tarn_fiber_spawn(tarn_loop_current(), close_later, p.b, "closer") == TARN_OK);
    CHECK(tarn_sock_send(p.b, "bye", 3, false, SOON) == TARN_OK);
    CHECK(tarn_sock_recv(p.a, buf, sizeof buf, SOON, &got) == TARN_OK && got == 3);
    CHECK(!tarn_sock_peer_gone(p.a));
    CHECK(tarn_sock_recv(p.a, buf, sizeof buf, SOON, &got) == TARN_OK && got == 0);
    CHECK(tarn_sock_peer_gone(p.a));
    CHECK(tarn_sock_recv(p.a, buf, sizeof buf, SOON, &got) == TARN_OK && got == 0); /* and again */
    CHECK(tarn_sock_send(p.a, "x", 1, false, SOON) == TARN_E_CLOSED);               /* no signal */
    tarn_sock_close(p.a);
    /* Data and end arrive together, before anybody looks. */
    p = connected();
    CHECK(tarn_sock_send(p.b, "0123456789", 10, false, SOON) == TARN_OK);
    tarn_sock_close(p.b);
    tarn_sleep_ms(2);
    CHECK(tarn_sock_peer_gone(p.a)); /* seen without a read */
    CHECK(tarn_sock_recv(p.a, buf, sizeof buf, SOON, &got) == TARN_OK && got == 10);
    CHECK(tarn_sock_recv(p.a, buf, sizeof buf, SOON, &got) == TARN_OK && got == 0);
    tarn_sock_close(p.a);
}

static void peer_resets(void *arg)
{
    (void)arg;
    struct sockaddr_in where;
    tarn_sock *s = NULL;
    char buf[4];
    size_t got;
    int lfd = listen_local(&where);
    int client = connect_local(&where, false, NULL);
    int fd = accept4(lfd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    CHECK(tarn_sock_attach(tarn_loop_current(), fd, &s) == TARN_OK);
    struct linger now = {1, 0};
    CHECK(setsockopt(client, SOL_SOCKET, SO_LINGER, &now, sizeof now) == 0 && close(client) == 0);
    CHECK(tarn_sock_recv(s, buf, sizeof buf, SOON, &got) == TARN_E_CLOSED);
    CHECK(tarn_sock_peer_gone(s));
    tarn_sock_close(s);
    CHECK(close(lfd) == 0);
}

static void test_peer_ends(void **state)
{
    (void)state;
    check_in_fiber(peer_closes, NULL);
    check_in_fiber(peer_resets, NULL);
}

/* ------------------------------------------------------------------ interruption, both directions at once */
static tarn_err reader_err, writer_err;
static unsigned sides_done;

static void side_reader(void *arg)
{
    char buf[4];
    size_t got;
    reader_err = tarn_sock_recv(arg, buf, sizeof buf, TARN_IO_NO_TIMEOUT, &got);
    sides_done++;
}

static void side_writer(void *arg)
{
    static char much[4 << 20];
    writer_err = tarn_sock_send(arg, much, sizeof much, false, TARN_IO_NO_TIMEOUT);
    sides_done++;
}

static void interrupt(void *arg)
{
    (void)arg;
    pair p = connected();
    char buf[4];
    size_t got;
    sides_done = 0;
    tarn_sock_interrupt(p.a); /* nobody is parked: nothing happens, now or later */
    CHECK(tarn_fiber_spawn(tarn_loop_current(), side_reader, p.a, "reader") == TARN_OK);
    CHECK(tarn_fiber_spawn(tarn_loop_current(), side_writer, p.a, "writer") == TARN_OK);
    tarn_sleep_ms(5);
    CHECK(sides_done == 0);
    tarn_fiber_wake_all(tarn_loop_current()); /* stray wakes do not end the waits */
    tarn_sleep_ms(2);
    CHECK(sides_done == 0);
    tarn_sock_interrupt(p.a);
    tarn_sleep_ms(2);
    CHECK(sides_done == 2 && reader_err == TARN_E_CLOSED && writer_err == TARN_E_CLOSED);
    /* The socket itself is whole. */
    CHECK(tarn_sock_send(p.b, "ok", 2, false, SOON) == TARN_OK);
    CHECK(tarn_sock_recv(p.a, buf, sizeof buf, SOON, &got) == TARN_OK && got == 2);
    tarn_sock_close(p.a);
    tarn_sock_close(p.b);
}

static void test_interrupt(void **state)
{
    (void)state;
    check_in_fiber(interrupt, NULL);
}

/* ------------------------------------------------------------------ accepting */
typedef struct counting {
    tarn_acceptor *a;
    unsigned n, pause_at;
} counting;

static void count_accept(void *ctx, tarn_sock *sock, const tarn_addr *peer)
{
    counting *c = ctx;
    (void)peer;
    tarn_sock_close(sock);
    if (++c->n == c->pause_at)
        tarn_accept_pause(c->a, true);
}

static void wait_for_count(const counting *c, unsigned n)
{
    for (int i = 0; i < 5000 && c->n < n; i++)
        tarn_sleep_ms(1);
    tarn_sleep_ms(5);
    CHECK(c->n == n);
}

#define FLOOD (2 * TARN_ACCEPTS_PER_TURN_MAX + 3)
static void accept_pause(void *arg)
{
    (void)arg;
    struct sockaddr_in where;
    int clients[FLOOD];
    counting c = {NULL, 0, 5};
    int fd = listen_local(&where);
    CHECK(tarn_accept_start(tarn_loop_current(), fd, count_accept, &c, &c.a) == TARN_OK);
    for (int i = 0; i < FLOOD; i++)
        clients[i] = connect_local(&where, false, NULL);
    wait_for_count(&c, 5); /* paused from within the callback */
    tarn_accept_pause(c.a, false);
    wait_for_count(&c, FLOOD);
    for (int i = 0; i < FLOOD; i++)
        CHECK(close(clients[i]) == 0);
    tarn_accept_stop(c.a);
    CHECK(fcntl(fd, F_GETFD) < 0); /* closed with the acceptor */
    tarn_accept_stop(NULL);
}

static void stop_at_once(void *ctx, tarn_sock *sock, const tarn_addr *peer)
{
    counting *c = ctx;
    (void)peer;
    c->n++;
    tarn_sock_close(sock);
    tarn_accept_stop(c->a);
}

static void accept_stop_inside(void *arg)
{
    (void)arg;
    struct sockaddr_in where;
    counting c = {NULL, 0, 0};
    int fd = listen_local(&where);
    CHECK(tarn_accept_start(tarn_loop_current(), fd, stop_at_once, &c, &c.a) == TARN_OK);
    int one = connect_local(&where, false, NULL), two = connect_local(&where, false, NULL);
    wait_for_count(&c, 1);
    CHECK(close(one) == 0 && close(two) == 0);
}

/* Without descriptors the acceptor waits and tries again; the connection is not lost. */
static void accept_starved(void *arg)
{
    (void)arg;
    struct sockaddr_in where;
    struct rlimit before, low;
    counting c = {NULL, 0, 0};
    int fd = listen_local(&where);
    int client = connect_local(&where, false, NULL);
    CHECK(getrlimit(RLIMIT_NOFILE, &before) == 0);
    low = before;
    low.rlim_cur = (rlim_t)client + 1;
    CHECK(setrlimit(RLIMIT_NOFILE, &low) == 0);
    CHECK(tarn_accept_start(tarn_loop_current(), fd, count_accept, &c, &c.a) == TARN_OK);
    tarn_sleep_ms(TARN_ACCEPT_RETRY_MS + 30); /* tries at least twice */
    CHECK(c.n == 0);
    CHECK(setrlimit(RLIMIT_NOFILE, &before) == 0);
    wait_for_count(&c, 1);
    tarn_accept_stop(c.a);
    CHECK(close(client) == 0);
}

static void test_accept(void **state)
{
    (void)state;
    check_in_fiber(accept_pause, NULL);
    check_in_fiber(accept_stop_inside, NULL);
    check_in_fiber(accept_starved, NULL);
}

/* on_accept may close any socket, also one whose events are handed out in the same turn. */
static tarn_sock *victim;
static void close_victim(void *ctx, tarn_sock *sock, const tarn_addr *peer)
{
    (void)peer;
    ++*(unsigned *)ctx;
    tarn_sock_close(sock);
    tarn_sock_close(victim);
    victim = NULL;
}

static void close_during_events(void *arg)
{
    (void)arg;
    struct sockaddr_in where;
    tarn_acceptor *a = NULL;
    unsigned n = 0;
    int fd = listen_local(&where);
    CHECK(tarn_accept_start(tarn_loop_current(), fd, close_victim, &n, &a) == TARN_OK);
    for (unsigned i = 1; i <= 20; i++) {
        pair p = connected();
        victim = p.a;
        int client = -1;
        if (i % 2)
            client = connect_local(&where, false, NULL);
        CHECK(tarn_sock_send(p.b, "event", 5, false, SOON) == TARN_OK);
        if (i % 2 == 0)
            client = connect_local(&where, false, NULL);
        for (int k = 0; k < 5000 && n < i; k++)
            tarn_sleep_ms(1);
        CHECK(n == i);
        CHECK(close(client) == 0);
        tarn_sock_close(p.b);
    }
    tarn_accept_stop(a);
}

static void test_close_during_events(void **state)
{
    (void)state;
    check_in_fiber(close_during_events, NULL);
}

/* ------------------------------------------------------------------ network and disk together */
static unsigned mixed_done;
static void mixed_disk(void *arg)
{
    (void)arg;
    char buf[512];
    tarn_file *f = NULL;
    CHECK(tarn_file_open(tarn_fs_posix(), "/proc/self/exe", O_RDONLY, 0, &f) == 0);
    for (unsigned i = 0; i < 200; i++)
        CHECK(tarn_file_read(f, buf, sizeof buf, i * 512) == 512);
    tarn_file_unref(f);
    mixed_done++;
}

static void mixed_net(void *arg)
{
    pair p = connected();
    char buf[8];
    size_t got;
    (void)arg;
    CHECK(tarn_fiber_spawn(tarn_loop_current(), echo_server, p.b, "echo") == TARN_OK);
    for (unsigned i = 0; i < 200; i++) {
        CHECK(tarn_sock_send(p.a, "12345678", 8, false, SOON) == TARN_OK);
        CHECK(tarn_sock_recv(p.a, buf, sizeof buf, SOON, &got) == TARN_OK && got == 8);
    }
    tarn_sock_close(p.a);
    mixed_done++;
}

/* A wake-up that got lost between the ring and epoll would show as a deadline missed. */
static void mixed(void *arg)
{
    (void)arg;
    mixed_done = 0;
    for (int i = 0; i < 40; i++) {
        CHECK(tarn_fiber_spawn(tarn_loop_current(), mixed_disk, NULL, "disk") == TARN_OK);
        CHECK(tarn_fiber_spawn(tarn_loop_current(), mixed_net, NULL, "net") == TARN_OK);
    }
    for (int i = 0; i < 20000 && mixed_done < 80; i++)
        tarn_sleep_ms(1);
    CHECK(mixed_done == 80);
}

static void test_mixed(void **state)
{
    (void)state;
    check_in_fiber(mixed, NULL);
}

/* The loop sleeps in the ring, for a read that does not come, and has to hear of sockets, posts and timers. */
static void *late_writer(void *arg)
{
    int fd = *(int *)arg;
    for (int i = 0; i < 50; i++) {
        tarn_sleep_ms(1);
        if (write(fd, "x", 1) != 1)
            break;
    }
    return NULL;
}

static void hears_while_in_ring(void *arg)
{
    (void)arg;
    if (tarn_loop_backend(tarn_loop_current()) != TARN_IO_URING)
        return;
    int fds[2], net[2];
    static char never[4];
    char c;
    size_t got;
    pthread_t t;
    tarn_sock *s = NULL;
    tarn_file *f = NULL;
    CHECK(pipe(fds) == 0 && tarn_file_wrap(tarn_fs_posix(), fds[0], O_RDONLY, &f) == 0);
    CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, net) == 0 && fcntl(net[0], F_SETFL, O_NONBLOCK) == 0);
    CHECK(tarn_sock_attach(tarn_loop_current(), net[0], &s) == TARN_OK);
    tarn_batch *b = tarn_batch_new(1);
    *tarn_batch_add(b) = (tarn_op){.code = TARN_OP_READ, .file = f, .buf = never, .len = sizeof never};
    tarn_batch_submit(b);
    CHECK(pthread_create(&t, NULL, late_writer, &net[1]) == 0);
    for (int i = 0; i < 50; i++)
        CHECK(tarn_sock_recv(s, &c, 1, SOON, &got) == TARN_OK && got == 1);
    CHECK(pthread_join(t, NULL) == 0);
    uint64_t t0 = tarn_mono_ns();
    tarn_sleep_ms(10);
    CHECK(tarn_mono_ns() - t0 >= 10 * MS && tarn_mono_ns() - t0 < 5000 * MS);
    CHECK(tarn_batch_wait(b, 1, 0) == 0);
    CHECK(close(fds[1]) == 0); /* the read ends at the end of the file */
    CHECK(tarn_batch_wait(b, 1, SOON) == 1 && tarn_batch_op(b, 0)->result == 0);
    tarn_batch_release(b);
    tarn_file_unref(f);
    tarn_sock_close(s);
    CHECK(close(net[1]) == 0);
}

static void test_hears_while_in_ring(void **state)
{
    (void)state;
    check_in_fiber(hears_while_in_ring, NULL);
}

/* ------------------------------------------------------------------ out of memory, left open */
static void attach_without_memory(void *arg)
{
    (void)arg;
    int fds[2];
    tarn_sock *s = NULL;
    tarn_acceptor *a = NULL;
    CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds) == 0);
    tarn_alloc_fail_after(1);
    CHECK(tarn_sock_attach(tarn_loop_current(), fds[0], &s) == TARN_E_NO_MEMORY && s == NULL);
    tarn_alloc_fail_after(1);
    CHECK(tarn_accept_start(tarn_loop_current(), fds[0], count_accept, NULL, &a) == TARN_E_NO_MEMORY && a == NULL);
    tarn_alloc_fail_after(0);
    CHECK(tarn_sock_attach(tarn_loop_current(), -1, &s) == TARN_E_IO && s == NULL);
    CHECK(close(fds[0]) == 0 && close(fds[1]) == 0);
    /* What is left open is closed with the loop. */
    pair left = connected();
    CHECK(tarn_sock_fd(left.a) >= 0);
    CHECK(tarn_accept_start(tarn_loop_current(), listen_local(&echo_where), count_accept, NULL, &a) == TARN_OK);
}

static void test_attach_without_memory(void **state)
{
    (void)state;
    int probe = dup(0);
    assert_int_equal(close(probe), 0);
    check_in_fiber(attach_without_memory, NULL);
    int again = dup(0);
    assert_int_equal(close(again), 0);
    assert_int_equal(probe, again); /* no descriptor was left */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_echo),
        cmocka_unit_test(test_big_payload),
        cmocka_unit_test(test_deadlines),
        cmocka_unit_test(test_peer_ends),
        cmocka_unit_test(test_interrupt),
        cmocka_unit_test(test_accept),
        cmocka_unit_test(test_close_during_events),
        cmocka_unit_test(test_mixed),
        cmocka_unit_test(test_hears_while_in_ring),
        cmocka_unit_test(test_attach_without_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
