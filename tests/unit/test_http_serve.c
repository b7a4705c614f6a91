/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The engine on real sockets: a loop on a thread of its own, raw bytes in, whole answers out.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include <fcntl.h>
#include <pthread.h>
#include <poll.h>
#include <stdatomic.h>
#include <sys/time.h>
#include <unistd.h>

#include "http_private.h"

#define ANSWER_BYTES_MAX (8u << 20)
#define CONNECTIONS_MAX 4

typedef struct server {
    pthread_t thread;
    tarn_loop *loop;
    tarn_http *http;
    int port;
    atomic_bool up;
    atomic_bool release; /* lets /wait go on */
    atomic_int waiting;
    tarn_post post;
} server;

static server srv;

/* ------------------------------------------------------------------ the handler under test */

static void echo(tarn_req *r)
{
    tarn_str body;
    tarn_err e = tarn_req_read_all(r, 1u << 20, &body);
    if (e != TARN_OK) {
        (void)tarn_resp_send(r, tarn_err_get(e)->http_status, tarn_str_of(tarn_err_get(e)->name));
        return;
    }
    tarn_resp_headerc(r, "X-Method", "echo");
    (void)tarn_resp_send(r, 200, body);
}

static void stream(tarn_req *r, uint64_t length)
{
    static char block[700000];
    memset(block, 's', sizeof block);
    assert_int_equal(tarn_resp_begin(r, 200, length), TARN_OK);
    (void)tarn_resp_write(r, "first", 5, true);
    if (tarn_resp_write(r, block, sizeof block, false) == TARN_OK) {
        (void)tarn_resp_write(r, "last", 4, true);
    }
    (void)tarn_resp_end(r);
}

static void show_params(tarn_req *r)
{
    tarn_sb b;
    const tarn_param *p = NULL;
    size_t n = 0;
    tarn_sb_init(&b, 4096);
    if (tarn_req_params(r, &p, &n)) {
        for (size_t i = 0; i < n; i++) {
            tarn_sb_fmt(&b, "[%.*s%s%.*s]", TARN_STR_ARG(p[i].name), p[i].has_eq ? "=" : "", TARN_STR_ARG(p[i].value));
        }
    } else {
        tarn_sb_cstr(&b, "broken");
    }
    (void)tarn_resp_send(r, 200, tarn_arena_str(tarn_req_arena(r), tarn_sb_view(&b)));
    tarn_sb_free(&b);
}

static void wait_for_release(tarn_req *r)
{
    atomic_fetch_add(&srv.waiting, 1);
    for (int i = 0; i < 5000 && !atomic_load(&srv.release); i++) {
        tarn_sleep_ms(1);
    }
    (void)tarn_resp_send(r, 200, TARN_STR("released"));
}

static void bad_headers(tarn_req *r)
{
    tarn_resp_header(r, "X-Split", TARN_STR("a\r\nX-Evil: 1"));
    tarn_resp_header(r, "X-Nul", TARN_STR("a\0b"));
    tarn_resp_headerc(r, "X Bad", "1");
    tarn_resp_headerc(r, "Content-Length", "3");
    tarn_resp_header_u64(r, "X-Good", 18446744073709551615u);
    (void)tarn_resp_send(r, 200, TARN_STR("ok"));
}

static void many_headers(tarn_req *r)
{
    for (int i = 0; i < 200; i++) {
        tarn_resp_headerc(r, "X-Many", "0123456789012345678901234567890123456789");
    }
    (void)tarn_resp_send(r, 200, TARN_STR("ok"));
}

static void handler(void *ctx, tarn_req *r)
{
    tarn_str path = tarn_req_view(r)->raw_path;
    (void)ctx;
    if (tarn_str_eqc(path, "/echo")) {
        echo(r);
    } else if (tarn_str_eqc(path, "/ignore")) {
        (void)tarn_resp_send(r, 403, TARN_STR("no"));
    } else if (tarn_str_eqc(path, "/known")) {
        stream(r, 5 + 700000 + 4);
    } else if (tarn_str_eqc(path, "/unknown")) {
        stream(r, UINT64_MAX);
    } else if (tarn_str_eqc(path, "/params")) {
        show_params(r);
    } else if (tarn_str_eqc(path, "/wait")) {
        wait_for_release(r);
    } else if (tarn_str_eqc(path, "/bad-headers")) {
        bad_headers(r);
    } else if (tarn_str_eqc(path, "/many-headers")) {
        many_headers(r);
    } else if (tarn_str_eqc(path, "/head")) {
        (void)tarn_resp_send_head(r, 200, 12345678901u);
    } else if (tarn_str_eqc(path, "/204")) {
        (void)tarn_resp_send(r, 204, TARN_STR_NULL);
    } else if (tarn_str_eqc(path, "/half")) {
        assert_int_equal(tarn_resp_begin(r, 200, 100), TARN_OK);
        (void)tarn_resp_write(r, "half", 4, false);
    } else if (!tarn_str_eqc(path, "/silent")) {
        (void)tarn_resp_send(r, 404, TARN_STR("?"));
    }
}

static void edge_error(void *ctx, tarn_req *r, tarn_err e, const char *message)
{
    (void)ctx;
    tarn_resp_headerc(r, "X-Edge", tarn_err_get(e)->name);
    (void)tarn_resp_send(r, tarn_err_get(e)->http_status, tarn_str_of(message));
}

/* ------------------------------------------------------------------ the server's thread */

static void *server_main(void *arg)
{
    server *s = arg;
    int fd = -1, saved = 0;
    tarn_addr addr;
    socklen_t len = sizeof addr.ss;
    tarn_loop_options lo = {.backend = TARN_IO_THREADS, .threads = 1, .name = "test"};
    tarn_http_options ho = {.handler = handler, .edge_error = edge_error, .connections_max = CONNECTIONS_MAX, .server_name = "test"};
    assert_int_equal(tarn_loop_create(&lo, &s->loop), TARN_OK);
    assert_int_equal(tarn_http_new(s->loop, &ho, &s->http), TARN_OK);
    assert_int_equal(tarn_addr_parse(TARN_STR("127.0.0.1:0"), &addr), TARN_OK);
    assert_int_equal(tarn_listen(&addr, false, 64, &fd, &saved), TARN_OK);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&addr.ss, &len), 0);
    s->port = ntohs(((struct sockaddr_in *)&addr.ss)->sin_port);
    assert_int_equal(tarn_http_listen(s->http, fd), TARN_OK);
    atomic_store(&s->up, true);
    tarn_loop_run(s->loop);
    return NULL;
}

static void on_drain(tarn_post *post)
{
    tarn_http_drain(TARN_CONTAINER_OF(post, server, post)->http);
}

static int set_up(void **state)
{
    (void)state;
    memset(&srv, 0, sizeof srv);
    if (pthread_create(&srv.thread, NULL, server_main, &srv) != 0) {
        return 1;
    }
    for (int i = 0; i < 5000 && !atomic_load(&srv.up); i++) {
        (void)usleep(1000);
    }
    return !atomic_load(&srv.up);
}

static int tear_down(void **state)
{
    (void)state;
    srv.post.fn = on_drain;
    atomic_store(&srv.release, true);
    tarn_loop_post(srv.loop, &srv.post);
    for (int i = 0; i < 5000 && tarn_http_connections(srv.http) > 0; i++) {
        (void)usleep(1000);
    }
    unsigned left = tarn_http_connections(srv.http);
    tarn_loop_stop(srv.loop);
    (void)pthread_join(srv.thread, NULL);
    tarn_http_free(srv.http);
    tarn_loop_destroy(srv.loop);
    return left != 0;
}

/* ------------------------------------------------------------------ the client */

static int dial(void)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)srv.port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct timeval t = {.tv_sec = 10};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t), 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof to), 0);
    return fd;
}

static void put(int fd, tarn_str bytes)
{
    while (bytes.n > 0) {
        ssize_t n = send(fd, bytes.p, bytes.n, MSG_NOSIGNAL);
        assert_true(n > 0);
        bytes = tarn_str_sub(bytes, (size_t)n, bytes.n);
    }
}

/* Everything until the server closes. */
static tarn_str take_all(int fd)
{
    static char mem[ANSWER_BYTES_MAX];
    size_t n = 0;
    for (;;) {
        ssize_t k = recv(fd, mem + n, sizeof mem - n, 0);
        assert_true(k >= 0);
        if (k == 0) {
            return (tarn_str){mem, n};
        }
        n += (size_t)k;
    }
}

/* Until `text` has come. */
static tarn_str take_until(int fd, const char *text)
{
    static char mem[ANSWER_BYTES_MAX];
    size_t n = 0;
    for (;;) {
        ssize_t k = recv(fd, mem + n, sizeof mem - n, 0);
        if (k <= 0) {
            fail_msg("no \"%s\" in \"%.*s\"", text, (int)n, mem);
        }
        n += (size_t)k;
        if (tarn_str_find((tarn_str){mem, n}, tarn_str_of(text)) >= 0) {
            return (tarn_str){mem, n};
        }
    }
}

static bool has(tarn_str s, const char *text)
{
    return tarn_str_find(s, tarn_str_of(text)) >= 0;
}

static void assert_has(tarn_str s, const char *text)
{
    if (!has(s, text)) {
        fail_msg("no \"%s\" in \"%.*s\"", text, s.n < 2000 ? (int)s.n : 2000, s.p);
    }
}

static size_t count(tarn_str s, const char *text)
{
    size_t n = 0;
    for (ptrdiff_t at; (at = tarn_str_find(s, tarn_str_of(text))) >= 0; n++) {
        s = tarn_str_sub(s, (size_t)at + 1, s.n);
    }
    return n;
}

/* One connection: bytes out, our side closed, everything back. */
static tarn_str ask(tarn_str bytes)
{
    int fd = dial();
    put(fd, bytes);
    assert_int_equal(shutdown(fd, SHUT_WR), 0);
    tarn_str got = take_all(fd);
    (void)close(fd);
    return got;
}

typedef struct nudge {
    tarn_post post;
    atomic_bool done;
} nudge;

static void on_nudge(tarn_post *post)
{
    atomic_store(&TARN_CONTAINER_OF(post, nudge, post)->done, true);
}

/* Some turns of the loop: what was sent to it has been received, what was due has run. */
static void settle(void)
{
    for (int turn = 0; turn < 8; turn++) {
        nudge n = {.post = {.fn = on_nudge}};
        tarn_loop_post(srv.loop, &n.post);
        for (int i = 0; !atomic_load(&n.done); i++) {
            assert_true(i < 100000);
            (void)usleep(100);
        }
    }
}

/* ------------------------------------------------------------------ cases */

static void an_answer_and_its_headers(void **state)
{
    (void)state;
    tarn_str got = ask(TARN_STR("POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello"));
    assert_true(tarn_str_starts(got, "HTTP/1.1 200 OK\r\nServer: test\r\nDate: "));
    assert_has(got, " GMT\r\nx-amz-request-id: ");
    assert_has(got, "\r\nX-Method: echo\r\nContent-Length: 5\r\n\r\nhello");
    assert_false(has(got, "Connection:"));
}

static void a_hundred_pipelined_requests(void **state)
{
    (void)state;
    tarn_sb b;
    tarn_sb_init(&b, 1u << 20);
    for (int i = 0; i < 100; i++) {
        tarn_sb_fmt(&b, "POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 6\r\n\r\n<%04d>", i);
    }
    tarn_str got = ask(tarn_sb_view(&b));
    assert_int_equal(count(got, "HTTP/1.1 200 OK"), 100);
    for (int i = 0; i < 100; i++) {
        tarn_sb_reset(&b);
        tarn_sb_fmt(&b, "<%04d>", i);
        ptrdiff_t at = tarn_str_find(got, tarn_sb_view(&b));
        assert_true(at >= 0);
        got = tarn_str_sub(got, (size_t)at, got.n);
    }
    tarn_sb_free(&b);
}

static void bytes_one_by_one(void **state)
{
    (void)state;
    tarn_str in =
        TARN_STR("POST /echo HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n6;x=y\r\n world\r\n0\r\nT: v\r\n\r\n"
                 "POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\nConnection: close\r\n\r\nend");
    int fd = dial();
    int one = 1;
    assert_int_equal(setsockopt(fd, IPPROTO_TCP, 1 /* TCP_NODELAY */, &one, sizeof one), 0);
    for (size_t i = 0; i < in.n; i++) {
        put(fd, tarn_str_sub(in, i, 1));
        if (i % 16 == 0) {
            (void)usleep(500);
        }
    }
    tarn_str got = take_all(fd);
    (void)close(fd);
    assert_has(got, "Content-Length: 11\r\n\r\nhello world");
    assert_has(got, "Content-Length: 3\r\nConnection: close\r\n\r\nend");
}

static void a_large_body_both_ways(void **state)
{
    (void)state;
    for (int chunked = 0; chunked < 2; chunked++) {
        tarn_sb b;
        size_t n = 1u << 20;
        tarn_sb_init(&b, 4u << 20);
        tarn_sb_cstr(&b, "POST /echo HTTP/1.1\r\nHost: h\r\n");
        tarn_sb_fmt(&b, chunked ? "Transfer-Encoding: chunked\r\n\r\n%zx\r\n" : "Content-Length: %zu\r\n\r\n", n);
        size_t from = b.n;
        char *p = tarn_sb_reserve(&b, n);
        assert_non_null(p);
        for (size_t i = 0; i < n; i++) {
            tarn_sb_char(&b, (char)('a' + i * 7919 % 26));
        }
        tarn_sb_cstr(&b, chunked ? "\r\n0\r\n\r\n" : "");
        tarn_str got = ask(tarn_sb_view(&b));
        assert_has(got, "Content-Length: 1048576\r\n\r\n");
        assert_true(got.n > n && memcmp(got.p + got.n - n, b.p + from, n) == 0);
        tarn_sb_free(&b);
    }
}

static void a_body_at_the_readers_maximum_and_one_past(void **state)
{
    (void)state;
    static char body[(1u << 20) + 1];
    memset(body, 'b', sizeof body);
    for (int past = 0; past < 2; past++) {
        int fd = dial();
        tarn_sb b;
        tarn_sb_init(&b, 4u << 20);
        tarn_sb_fmt(&b, "POST /echo HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n%zx\r\n",
                    (1u << 20) + (size_t)past);
        tarn_sb_bytes(&b, body, (1u << 20) + (size_t)past);
        tarn_sb_cstr(&b, "\r\n0\r\n\r\n");
        put(fd, tarn_sb_view(&b));
        tarn_str got = take_all(fd);
        assert_has(got, past ? "ENTITY_TOO_LARGE" : "HTTP/1.1 200 OK");
        tarn_sb_free(&b);
        (void)close(fd);
    }
}

static void continue_comes_with_the_first_read_only(void **state)
{
    (void)state;
    int fd = dial();
    put(fd, TARN_STR("POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n"));
    tarn_str got = take_until(fd, "\r\n\r\n");
    assert_true(tarn_str_eqc(got, "HTTP/1.1 100 Continue\r\n\r\n"));
    put(fd, TARN_STR("hello"));
    assert_has(take_until(fd, "hello"), "HTTP/1.1 200 OK");
    (void)close(fd);

    got = ask(TARN_STR("POST /ignore HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n"));
    assert_true(tarn_str_starts(got, "HTTP/1.1 403 "));
    assert_has(got, "Connection: close");

    got = ask(TARN_STR("POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\nhello"));
    assert_true(tarn_str_starts(got, "HTTP/1.1 200 "));

    /* An empty body, too: some clients mix up the next answer on the connection otherwise. */
    got = ask(TARN_STR("POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\nExpect: 100-continue\r\n\r\n"));
    assert_true(tarn_str_starts(got, "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 "));

    got = ask(TARN_STR("POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nExpect: 100-later\r\n\r\nhello"));
    assert_true(tarn_str_starts(got, "HTTP/1.1 417 "));
}

/* n bytes of a body that the handler doesn't read; a second request behind it. */
static tarn_str ignored_body(size_t n)
{
    tarn_sb b;
    tarn_sb_init(&b, 4u << 20);
    tarn_sb_fmt(&b, "PUT /ignore HTTP/1.1\r\nHost: h\r\nContent-Length: %zu\r\n\r\n", n);
    for (size_t i = 0; i < n; i++) {
        tarn_sb_char(&b, 'x');
    }
    tarn_sb_cstr(&b, "GET /204 HTTP/1.1\r\nHost: h\r\n\r\n");
    tarn_str got = ask(tarn_sb_view(&b));
    tarn_sb_free(&b);
    return got;
}

static void an_unread_body_is_drained_or_ends_the_connection(void **state)
{
    (void)state;
    tarn_str got = ignored_body(TARN_HTTP_DRAIN_BYTES_MAX);
    assert_true(tarn_str_starts(got, "HTTP/1.1 403 "));
    assert_has(got, "HTTP/1.1 204 No Content");
    got = ignored_body(TARN_HTTP_DRAIN_BYTES_MAX + 1);
    assert_true(tarn_str_starts(got, "HTTP/1.1 403 "));
    assert_has(got, "Connection: close");
    assert_int_equal(count(got, "HTTP/1.1 "), 1);
}

static void a_body_is_never_taken_for_a_request(void **state)
{
    (void)state;
    tarn_str got = ask(TARN_STR("GET /ignore HTTP/1.1\r\nHost: h\r\nContent-Length: 35\r\n\r\nGET /evil HTTP/1.1\r\nHost: hhhhh\r\n\r\n"));
    assert_int_equal(count(got, "HTTP/1.1 "), 1);
    got = ask(TARN_STR("PUT /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /204 "
                       "HTTP/1.1\r\nHost: h\r\n\r\n"));
    assert_true(tarn_str_starts(got, "HTTP/1.1 400 "));
    assert_int_equal(count(got, "HTTP/1.1 "), 1);
    got = ask(TARN_STR(
        "PUT /echo HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n1\r\naX\r\n0\r\n\r\nGET /204 HTTP/1.1\r\nHost: h\r\n\r\n"));
    assert_has(got, "HTTP_BAD_REQUEST");
    assert_int_equal(count(got, "HTTP/1.1 "), 1);
}

static void a_body_cut_short(void **state)
{
    (void)state;
    assert_has(ask(TARN_STR("PUT /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\nhalf")), "CLOSED");
    assert_has(ask(TARN_STR("PUT /echo HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n10\r\nhalf")), "CLOSED");
    assert_has(ask(TARN_STR("PUT /echo HTTP/1.1\r\nHost: h\r\nContent-Le")), "HTTP/1.1 400 ");
    assert_int_equal(ask(TARN_STR("")).n, 0);
}

static void edge_errors_close(void **state)
{
    (void)state;
    tarn_str got = ask(TARN_STR("GET /a b HTTP/1.1\r\nHost: h\r\n\r\nGET /204 HTTP/1.1\r\nHost: h\r\n\r\n"));
    assert_true(tarn_str_starts(got, "HTTP/1.1 400 Bad Request\r\n"));
    assert_has(got, "X-Edge: HTTP_BAD_REQUEST");
    assert_has(got, "Connection: close");
    assert_int_equal(count(got, "HTTP/1.1 "), 1);
    got = ask(TARN_STR("HEAD / HTTP/3.0\r\nHost: h\r\n\r\n"));
    assert_true(tarn_str_starts(got, "HTTP/1.1 505 "));
    assert_true(tarn_str_ends(got, "\r\n\r\n"));
}

static void a_large_head_is_refused_early(void **state)
{
    (void)state;
    int fd = dial();
    static char junk[70000];
    memset(junk, 'j', sizeof junk);
    put(fd, TARN_STR("GET /x HTTP/1.1\r\nHost: h\r\nX-Big: "));
    put(fd, (tarn_str){junk, sizeof junk});
    tarn_str got = take_all(fd);
    assert_has(got, "X-Edge: HEADER_TOO_LARGE");
    (void)close(fd);
}

static void answers_in_pieces(void **state)
{
    (void)state;
    tarn_str got = ask(TARN_STR("GET /known HTTP/1.1\r\nHost: h\r\n\r\nGET /204 HTTP/1.1\r\nHost: h\r\n\r\n"));
    assert_has(got, "Content-Length: 700009\r\n\r\nfirstsss");
    assert_has(got, "ssslastHTTP/1.1 204 No Content\r\n");
    got = ask(TARN_STR("GET /unknown HTTP/1.1\r\nHost: h\r\n\r\nGET /204 HTTP/1.1\r\nHost: h\r\n\r\n"));
    assert_has(got, "Transfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n80000\r\nsss");
    assert_has(got, "s\r\n4\r\nlast\r\n0\r\n\r\nHTTP/1.1 204 No Content\r\n");
    got = ask(TARN_STR("GET /unknown HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"));
    assert_has(got, "Connection: close\r\n\r\nfirstsss");
    assert_true(tarn_str_ends(got, "ssslast"));
    got = ask(TARN_STR("HEAD /known HTTP/1.1\r\nHost: h\r\n\r\n"));
    assert_has(got, "Content-Length: 700009\r\n");
    assert_true(tarn_str_ends(got, "\r\n\r\n"));
    got = ask(TARN_STR("HEAD /head HTTP/1.1\r\nHost: h\r\n\r\nHEAD /echo HTTP/1.1\r\nHost: h\r\n\r\n"));
    assert_has(got, "Content-Length: 12345678901\r\n\r\nHTTP/1.1 200 OK");
}

static void no_content_has_no_length(void **state)
{
    (void)state;
    tarn_str got = ask(TARN_STR("GET /204 HTTP/1.1\r\nHost: h\r\n\r\n"));
    assert_true(tarn_str_starts(got, "HTTP/1.1 204 No Content\r\n"));
    assert_false(has(got, "Content-Length"));
}

static void persistence(void **state)
{
    (void)state;
    assert_has(ask(TARN_STR("GET /204 HTTP/1.0\r\n\r\nGET /204 HTTP/1.0\r\n\r\n")), "Connection: close");
    assert_int_equal(count(ask(TARN_STR("GET /204 HTTP/1.0\r\n\r\nGET /204 HTTP/1.0\r\n\r\n")), "HTTP/1.1 "), 1);
    tarn_str got = ask(TARN_STR("GET /204 HTTP/1.0\r\nConnection: keep-alive\r\n\r\nGET /204 HTTP/1.0\r\n\r\n"));
    assert_has(got, "Connection: keep-alive");
    assert_int_equal(count(got, "HTTP/1.1 "), 2);
    assert_int_equal(
        count(ask(TARN_STR("GET /204 HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\nGET /204 HTTP/1.1\r\nHost: h\r\n\r\n")), "HTTP/1.1 "),
        1);
}

static void a_handler_that_does_not_answer(void **state)
{
    (void)state;
    assert_true(tarn_str_starts(ask(TARN_STR("GET /silent HTTP/1.1\r\nHost: h\r\n\r\n")), "HTTP/1.1 500 "));
    /* An answer that is not finished must not look finished: the connection is reset. */
    int fd = dial();
    char mem[4096];
    put(fd, TARN_STR("GET /half HTTP/1.1\r\nHost: h\r\n\r\n"));
    ssize_t n;
    do {
        n = recv(fd, mem, sizeof mem, 0);
    } while (n > 0);
    assert_int_equal(n, -1);
    (void)close(fd);
}

static void response_headers_cannot_be_split(void **state)
{
    (void)state;
    tarn_str got = ask(TARN_STR("GET /bad-headers HTTP/1.1\r\nHost: h\r\n\r\n"));
    assert_false(has(got, "X-Evil"));
    assert_false(has(got, "X-Split"));
    assert_false(has(got, "X-Nul"));
    assert_false(has(got, "X Bad"));
    assert_has(got, "X-Good: 18446744073709551615\r\nContent-Length: 2\r\n\r\nok");
    assert_int_equal(
        count(ask(TARN_STR("GET /many-headers HTTP/1.1\r\nHost: h\r\n\r\n")), "X-Many: 0123456789012345678901234567890123456789\r\n"), 200);
}

static void queries(void **state)
{
    (void)state;
    assert_has(ask(TARN_STR("GET /params?uploads&a=&b=%20+c%3D&&=x&%41=1 HTTP/1.1\r\nHost: h\r\n\r\n")),
               "\r\n\r\n[uploads][a=][b= +c=][=x][A=1]");
    assert_has(ask(TARN_STR("GET /params?a=%zz HTTP/1.1\r\nHost: h\r\n\r\n")), "broken");
    assert_has(ask(TARN_STR("GET /params HTTP/1.1\r\nHost: h\r\n\r\n")), "Content-Length: 0\r\n");
}

static void connections_past_the_maximum_wait(void **state)
{
    (void)state;
    int fds[CONNECTIONS_MAX + 1];
    for (size_t i = 0; i < TARN_ARRAY_LEN(fds); i++) {
        fds[i] = dial();
        put(fds[i], TARN_STR("GET /204 HTTP/1.1\r\nHost: h\r\n\r\n"));
        if (i < CONNECTIONS_MAX) {
            assert_has(take_until(fds[i], "\r\n\r\n"), "204");
        }
    }
    struct pollfd p = {.fd = fds[CONNECTIONS_MAX], .events = POLLIN};
    assert_int_equal(poll(&p, 1, 200), 0);
    (void)close(fds[0]);
    assert_has(take_until(fds[CONNECTIONS_MAX], "\r\n\r\n"), "204");
    for (size_t i = 1; i < TARN_ARRAY_LEN(fds); i++) {
        (void)close(fds[i]);
    }
}

static void a_drain_lets_requests_finish(void **state)
{
    (void)state;
    int idle = dial(), busy = dial(), part = dial();
    char c;
    put(idle, TARN_STR("GET /204 HTTP/1.1\r\nHost: h\r\n\r\n"));
    assert_has(take_until(idle, "\r\n\r\n"), "204");
    put(part, TARN_STR("GET /204 HTTP/1.1\r\nHo"));
    put(busy, TARN_STR("GET /wait HTTP/1.1\r\nHost: h\r\n\r\n"));
    for (int i = 0; i < 5000 && atomic_load(&srv.waiting) == 0; i++) {
        (void)usleep(1000);
    }
    srv.post.fn = on_drain;
    tarn_loop_post(srv.loop, &srv.post);
    assert_int_equal(recv(idle, &c, 1, 0), 0);
    assert_has(take_all(part), "X-Edge: SHUTTING_DOWN");
    struct pollfd p = {.fd = busy, .events = POLLIN};
    assert_int_equal(poll(&p, 1, 100), 0);
    atomic_store(&srv.release, true);
    tarn_str got = take_all(busy);
    assert_has(got, "Connection: close\r\n\r\nreleased");
    (void)close(idle);
    (void)close(part);
    (void)close(busy);
}

static void a_connection_is_handed_over(void **state)
{
    (void)state;
    int fds[2];
    tarn_addr peer = {.len = sizeof(sa_family_t), .ss.ss_family = AF_UNIX};
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds), 0);
    assert_int_equal(fcntl(fds[0], F_SETFL, 0), 0);
    tarn_http_adopt(srv.http, fds[1], &peer);
    assert_int_equal(tarn_http_connections(srv.http), 1); /* counted at once: the next one goes elsewhere */
    put(fds[0], TARN_STR("POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\nConnection: close\r\n\r\nhand"));
    assert_has(take_all(fds[0]), "\r\n\r\nhand");
    (void)close(fds[0]);
}

/* Whatever allocation fails: an answer, an error or a closed connection, and the next request is served. */
static void any_allocation_may_fail(void **state)
{
    (void)state;
    for (uint64_t nth = 1; nth <= 24; nth++) {
        for (int kind = 0; kind < 2; kind++) {
            int fd = dial();
            char mem[8192];
            size_t n = 0;
            settle();
            tarn_alloc_fail_after(nth);
            put(fd, kind == 0 ? TARN_STR("POST /echo HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n")
                              : TARN_STR("GET /many-headers HTTP/1.1\r\nHost: h\r\n\r\nGET /params?a=b HTTP/1.1\r\nHost: h\r\n\r\n"));
            assert_int_equal(shutdown(fd, SHUT_WR), 0);
            for (ssize_t k; (k = recv(fd, mem + n, sizeof mem - n, 0)) > 0 && n < sizeof mem / 2;) {
                n += (size_t)k;
            }
            tarn_alloc_fail_after(0);
            assert_true(n == 0 || memcmp(mem, "HTTP/1.1 ", 9) == 0);
            (void)close(fd);
            assert_has(ask(TARN_STR("GET /204 HTTP/1.1\r\nHost: h\r\n\r\n")), "204");
        }
    }
}

static void a_second_drain_cuts_off(void **state)
{
    (void)state;
    int fd = dial();
    put(fd, TARN_STR("POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\nhalf"));
    settle();
    srv.post.fn = on_drain;
    tarn_loop_post(srv.loop, &srv.post);
    settle();
    assert_int_equal(tarn_http_connections(srv.http), 1);
    tarn_loop_post(srv.loop, &srv.post);
    tarn_str got = take_all(fd);
    assert_has(got, "CLOSED");
    (void)close(fd);
}

/* ------------------------------------------------------------------ time, moved by hand */

/* Moves the clocks and lets the loop look at them. */
static void pass_ms(uint64_t ms)
{
    tarn_clock_advance(ms * 1000000u);
    settle();
}

static int set_up_fake(void **state)
{
    tarn_clock_fake(true, 1767323045000);
    return set_up(state);
}

static int tear_down_fake(void **state)
{
    tarn_clock_fake(false, 0);
    return tear_down(state);
}

static bool quiet(int fd)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    return poll(&p, 1, 0) == 0;
}

static void a_head_that_trickles_is_cut_off(void **state)
{
    (void)state;
    int fd = dial();
    put(fd, TARN_STR("GET /204 HTTP/1.1\r\nHost: h\r\n"));
    settle();
    for (int i = 0; i < 10; i++) { /* a byte every 2.9 s does not help */
        pass_ms(TARN_HTTP_HEAD_TIMEOUT_MS / 10 - 100);
        put(fd, TARN_STR("X"));
        settle();
        assert_true(quiet(fd));
    }
    pass_ms(1001);
    tarn_str got = take_all(fd);
    assert_true(tarn_str_starts(got, "HTTP/1.1 408 "));
    (void)close(fd);
}

static void an_idle_connection_is_closed(void **state)
{
    (void)state;
    int fd = dial();
    char c;
    put(fd, TARN_STR("GET /204 HTTP/1.1\r\nHost: h\r\n\r\n"));
    assert_has(take_until(fd, "\r\n\r\n"), "204");
    settle();
    pass_ms(TARN_HTTP_IDLE_TIMEOUT_MS - 1);
    assert_true(quiet(fd));
    pass_ms(2);
    assert_int_equal(recv(fd, &c, 1, 0), 0);
    (void)close(fd);
}

static void a_body_that_stops_coming(void **state)
{
    (void)state;
    int fd = dial();
    put(fd, TARN_STR("POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\nhalf"));
    settle();
    pass_ms(TARN_HTTP_BODY_TIMEOUT_MS - 1);
    put(fd, TARN_STR("!"));
    settle();
    pass_ms(TARN_HTTP_BODY_TIMEOUT_MS - 1); /* each byte gives it new time */
    assert_true(quiet(fd));
    pass_ms(2);
    tarn_str got = take_until(fd, "TIMED_OUT");
    assert_true(tarn_str_starts(got, "HTTP/1.1 408 "));
    assert_has(got, "Connection: close");
    (void)close(fd);
    pass_ms(TARN_HTTP_LINGER_MS);
}

static void a_client_that_does_not_read(void **state)
{
    (void)state;
    int fd = dial(), small = 4096;
    (void)setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
    for (int i = 0; i < 40; i++) { /* more than the kernel's buffers take */
        put(fd, TARN_STR("GET /known HTTP/1.1\r\nHost: h\r\n\r\n"));
    }
    settle();
    assert_int_equal(tarn_http_connections(srv.http), 1);
    /* On a busy machine the last answers may still be on their way when time passes first: each write has time of its own. */
    for (int i = 0; i < 10000 && tarn_http_connections(srv.http) > 0; i++) {
        if (i % 100 == 0) {
            pass_ms(TARN_HTTP_BODY_TIMEOUT_MS + 1);
        }
        (void)usleep(1000);
    }
    assert_int_equal(tarn_http_connections(srv.http), 0);
    (void)close(fd);
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
#define TIMED(f) cmocka_unit_test_setup_teardown(f, set_up_fake, tear_down_fake)
int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(an_answer_and_its_headers),
        CASE(a_hundred_pipelined_requests),
        CASE(bytes_one_by_one),
        CASE(a_large_body_both_ways),
        CASE(a_body_at_the_readers_maximum_and_one_past),
        CASE(continue_comes_with_the_first_read_only),
        CASE(an_unread_body_is_drained_or_ends_the_connection),
        CASE(a_body_is_never_taken_for_a_request),
        CASE(a_body_cut_short),
        CASE(edge_errors_close),
        CASE(a_large_head_is_refused_early),
        CASE(answers_in_pieces),
        CASE(no_content_has_no_length),
        CASE(persistence),
        CASE(a_handler_that_does_not_answer),
        CASE(response_headers_cannot_be_split),
        CASE(queries),
        CASE(connections_past_the_maximum_wait),
        CASE(a_drain_lets_requests_finish),
        CASE(a_connection_is_handed_over),
        CASE(any_allocation_may_fail),
        CASE(a_second_drain_cuts_off),
        TIMED(a_head_that_trickles_is_cut_off),
        TIMED(an_idle_connection_is_closed),
        TIMED(a_body_that_stops_coming),
        TIMED(a_client_that_does_not_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
