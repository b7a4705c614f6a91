/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A small client for one daemon: a connection a request, SigV4 with the root's credentials, an answer with a length.
 * Plain blocking sockets on the main thread; everything lies in the arena.
 */
#include <errno.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

#include "admin_cli.h"

#define CLIENT_TIMEOUT_S 60
#define CLIENT_HEAD_BYTES_MAX (32 * 1024)
#define CLIENT_PIECE_BYTES (256 * 1024)

tarn_exit admin_client_open(admin_client *c, tarn_server *s, const char *url)
{
    *c = (admin_client){.arena = s->arena, .region = s->opt.values[TARN_OPT_REGION]};
    tarn_str rest = tarn_str_of(url);
    if (url == NULL) {
        c->authority = tarn_client_authority(s->arena, s->opt.values[TARN_OPT_ADDRESS]);
    } else if (tarn_str_istarts(rest, "http://")) {
        tarn_str end;
        (void)tarn_str_split(tarn_str_sub(rest, 7, rest.n), '/', &c->authority, &end);
    }
    if (c->authority.n > 0 && tarn_str_chr(c->authority, ':') < 0) {
        c->authority = tarn_arena_fmt(s->arena, "%.*s:80", TARN_STR_ARG(c->authority));
    }
    if (c->authority.n == 0) {
        return tarn_complain(TARN_EXIT_USAGE, "the URL must look like http://host:port");
    }
    if (tarn_addr_parse(c->authority, &c->addr) != TARN_OK) {
        return tarn_complain(TARN_EXIT_FAILED, "%.*s cannot be resolved", TARN_STR_ARG(c->authority));
    }
    return tarn_client_credentials(s, &c->access_key, &c->secret_key);
}

/* ------------------------------------------------------------------ the request */
static tarn_str request_text(admin_client *c, const char *method, tarn_str target)
{
    tarn_signed sig;
    tarn_str path, query;
    if (!tarn_str_split(target, '?', &path, &query)) {
        query = TARN_STR("");
    }
    tarn_sign_spec spec = {.access_key = c->access_key,
                           .secret_key = c->secret_key,
                           .region = c->region,
                           .method = tarn_str_of(method),
                           .raw_path = path,
                           .raw_query = query,
                           .host = c->authority,
                           .body = TARN_STR(""),
                           .now_ms = tarn_now_ms()};
    if (tarn_auth_sign(&spec, c->arena, &sig) != TARN_OK) {
        return TARN_STR_NULL;
    }
    return tarn_arena_fmt(c->arena,
                          "%s %.*s HTTP/1.1\r\nHost: %.*s\r\nx-amz-date: %.*s\r\nx-amz-content-sha256: %.*s\r\nAuthorization: "
                          "%.*s\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
                          method, TARN_STR_ARG(target), TARN_STR_ARG(c->authority), TARN_STR_ARG(sig.amz_date),
                          TARN_STR_ARG(sig.content_sha256), TARN_STR_ARG(sig.authorization));
}

static bool send_all(int fd, tarn_str s)
{
    while (s.n > 0) {
        ssize_t n = send(fd, s.p, s.n, MSG_NOSIGNAL);
        if (n <= 0) {
            return false;
        }
        s = tarn_str_sub(s, (size_t)n, s.n);
    }
    return true;
}

/* ------------------------------------------------------------------ the answer */
typedef struct incoming {
    int fd;
    char *mem; /* CLIENT_HEAD_BYTES_MAX */
    size_t n;
    tarn_str early; /* of the body, that came with the head */
    int status;
    uint64_t length;
} incoming;

static bool read_head(incoming *in)
{
    ptrdiff_t end = -1;
    while (end < 0 && in->n < CLIENT_HEAD_BYTES_MAX) {
        ssize_t got = recv(in->fd, in->mem + in->n, CLIENT_HEAD_BYTES_MAX - in->n, 0);
        if (got <= 0) {
            return false;
        }
        in->n += (size_t)got;
        end = tarn_str_find((tarn_str){in->mem, in->n}, TARN_STR("\r\n\r\n"));
    }
    uint64_t status = 0;
    if (end < 12 || memcmp(in->mem, "HTTP/1.1 ", 9) != 0 || !tarn_str_to_u64((tarn_str){in->mem + 9, 3}, &status)) {
        return false;
    }
    in->status = (int)status;
    in->early = tarn_str_sub((tarn_str){in->mem, in->n}, (size_t)end + 4, in->n);
    tarn_str rest = {in->mem, (size_t)end};
    while (rest.n > 0) {
        tarn_str line, name, value;
        (void)tarn_str_split(rest, '\n', &line, &rest);
        if (tarn_str_split(line, ':', &name, &value) && tarn_str_ieqc(name, "Content-Length")) {
            ptrdiff_t cr = tarn_str_chr(value, '\r');
            value = tarn_str_trim(cr < 0 ? value : tarn_str_sub(value, 0, (size_t)cr));
            return tarn_str_to_u64(value, &in->length);
        }
    }
    return false;
}

/* All of the body, to the sink. */
static bool read_body(incoming *in, char *piece, bool (*sink)(void *ctx, tarn_str piece), void *ctx)
{
    uint64_t left = in->length;
    tarn_str early = tarn_str_sub(in->early, 0, left < in->early.n ? (size_t)left : in->early.n);
    left -= early.n;
    if (early.n > 0 && !sink(ctx, early)) {
        return false;
    }
    while (left > 0) {
        ssize_t got = recv(in->fd, piece, left < CLIENT_PIECE_BYTES ? (size_t)left : CLIENT_PIECE_BYTES, 0);
        if (got <= 0 || !sink(ctx, (tarn_str){piece, (size_t)got})) {
            return false;
        }
        left -= (uint64_t)got;
    }
    return true;
}

static bool to_builder(void *ctx, tarn_str piece)
{
    tarn_sb *b = ctx;
    tarn_sb_str(b, piece);
    return !b->failed;
}

static bool exchange(admin_client *c, incoming *in, tarn_str request, char *piece, bool (*sink)(void *ctx, tarn_str piece), void *ctx,
                     tarn_sb *text)
{
    if (connect(in->fd, (const struct sockaddr *)&c->addr.ss, c->addr.len) != 0 || !send_all(in->fd, request) || !read_head(in)) {
        return false;
    }
    return sink != NULL && in->status == 200 ? read_body(in, piece, sink, ctx) : read_body(in, piece, to_builder, text);
}

tarn_exit admin_client_ask(admin_client *c, const char *method, tarn_str target, bool (*sink)(void *ctx, tarn_str piece), void *ctx,
                           admin_answer *out)
{
    struct timeval limit = {.tv_sec = CLIENT_TIMEOUT_S};
    tarn_sb text;
    tarn_str request = request_text(c, method, target);
    incoming in = {.fd = socket(c->addr.ss.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0), .mem = tarn_malloc(CLIENT_HEAD_BYTES_MAX)};
    char *piece = tarn_malloc(CLIENT_PIECE_BYTES);
    tarn_exit x = TARN_EXIT_OK;
    tarn_sb_init(&text, ADMIN_ANSWER_BYTES_MAX);
    if (request.p == NULL || in.fd < 0 || in.mem == NULL || piece == NULL) {
        x = tarn_complain(TARN_EXIT_FAILED, "out of memory or descriptors");
        goto cleanup;
    }
    (void)setsockopt(in.fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    (void)setsockopt(in.fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    errno = 0;
    if (!exchange(c, &in, request, piece, sink, ctx, &text)) {
        x = tarn_complain(TARN_EXIT_FAILED, "no whole answer from %.*s: %s", TARN_STR_ARG(c->authority),
                          errno != 0 ? strerror(errno) : "connection closed");
        goto cleanup;
    }
    out->status = in.status;
    out->body = tarn_arena_str(c->arena, tarn_sb_view(&text));
cleanup:
    if (in.fd >= 0) {
        (void)close(in.fd);
    }
    tarn_free(in.mem);
    tarn_free(piece);
    tarn_sb_free(&text);
    return x;
}
