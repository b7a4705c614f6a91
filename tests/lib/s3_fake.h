/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A request without a connection: headers, parameters and a body from the test; the answer's headers are kept. It stands in
 * for the http module (its symbols are found here before the library is looked into), so that functions of s3 that read a
 * request can be tested alone. One program, one thread, one request at a time.
 */
#ifndef TARN_TESTS_S3_FAKE_H
#define TARN_TESTS_S3_FAKE_H

#include "s3_internal.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

#define FAKE_MAX 64
#define FAKE_NOW_MS 1767323045000ll /* Fri, 02 Jan 2026 03:04:05 GMT */

struct tarn_req {
    tarn_arena *a;
    tarn_pair headers[FAKE_MAX];
    size_t headers_n;
    tarn_param params[FAKE_MAX];
    size_t params_n;
    tarn_auth_view view;
    tarn_str body;
    size_t body_at;
    bool has_length;
    tarn_pair answer[FAKE_MAX];
    size_t answer_n;
    int status;
};

tarn_arena *tarn_req_arena(tarn_req *r)
{
    return r->a;
}
const tarn_auth_view *tarn_req_view(const tarn_req *r)
{
    return &r->view;
}
tarn_str tarn_req_method(const tarn_req *r)
{
    return r->view.method;
}
bool tarn_req_is_head(const tarn_req *r)
{
    return tarn_str_eqc(r->view.method, "HEAD");
}
tarn_str tarn_req_header(const tarn_req *r, const char *name)
{
    for (size_t i = 0; i < r->headers_n; i++)
        if (tarn_str_ieqc(r->headers[i].name, name))
            return r->headers[i].value;
    return TARN_STR_NULL;
}
const char *tarn_req_id(const tarn_req *r)
{
    (void)r;
    return "0123456789ABCDEF";
}
const tarn_addr *tarn_req_peer(const tarn_req *r)
{
    static const tarn_addr none;
    (void)r;
    return &none;
}
bool tarn_req_tls(const tarn_req *r)
{
    (void)r;
    return false;
}
int64_t tarn_req_time_ms(const tarn_req *r)
{
    (void)r;
    return FAKE_NOW_MS;
}
void tarn_req_set_operation(tarn_req *r, const char *name)
{
    (void)r;
    (void)name;
}
void tarn_req_set_identity(tarn_req *r, tarn_str access_key)
{
    (void)r;
    (void)access_key;
}
bool tarn_req_params(tarn_req *r, const tarn_param **out, size_t *n)
{
    *out = r->params;
    *n = r->params_n;
    return true;
}
const tarn_param *tarn_req_param(tarn_req *r, const char *name)
{
    for (size_t i = 0; i < r->params_n; i++)
        if (tarn_str_eqc(r->params[i].name, name))
            return &r->params[i];
    return NULL;
}
bool tarn_req_content_length(const tarn_req *r, uint64_t *n)
{
    *n = r->body.n;
    return r->has_length;
}
bool tarn_req_has_body_framing(const tarn_req *r)
{
    return r->has_length;
}
tarn_err tarn_req_read(tarn_req *r, void *buf, size_t n, size_t *got)
{
    size_t left = r->body.n - r->body_at;
    *got = n < left ? n : left;
    if (*got > 0)
        memcpy(buf, r->body.p + r->body_at, *got);
    r->body_at += *got;
    return TARN_OK;
}
tarn_err tarn_req_read_all(tarn_req *r, size_t max_bytes, tarn_str *out)
{
    if (r->body.n > max_bytes)
        return TARN_E_ENTITY_TOO_LARGE;
    *out = r->body;
    return TARN_OK;
}
bool tarn_req_body_done(const tarn_req *r)
{
    return r->body_at == r->body.n;
}
bool tarn_req_client_gone(tarn_req *r)
{
    (void)r;
    return false;
}
void tarn_resp_header(tarn_req *r, const char *name, tarn_str value)
{
    assert_true(r->answer_n < FAKE_MAX);
    r->answer[r->answer_n++] = (tarn_pair){tarn_arena_str(r->a, tarn_str_of(name)), tarn_arena_str(r->a, value)};
}
void tarn_resp_headerc(tarn_req *r, const char *name, const char *value)
{
    tarn_resp_header(r, name, tarn_str_of(value));
}
void tarn_resp_header_u64(tarn_req *r, const char *name, uint64_t value)
{
    tarn_resp_header(r, name, tarn_arena_fmt(r->a, "%llu", (unsigned long long)value));
}
tarn_err tarn_resp_send(tarn_req *r, int status, tarn_str body)
{
    (void)body;
    r->status = status;
    return TARN_OK;
}
tarn_err tarn_resp_send_head(tarn_req *r, int status, uint64_t content_length)
{
    (void)content_length;
    r->status = status;
    return TARN_OK;
}
tarn_err tarn_resp_begin(tarn_req *r, int status, uint64_t length)
{
    (void)length;
    r->status = status;
    return TARN_OK;
}
tarn_err tarn_resp_write(tarn_req *r, const void *p, size_t n, bool more)
{
    (void)r;
    (void)p;
    (void)n;
    (void)more;
    return TARN_OK;
}
tarn_err tarn_resp_end(tarn_req *r)
{
    (void)r;
    return TARN_OK;
}
void tarn_resp_abort(tarn_req *r)
{
    r->status = -1;
}
bool tarn_resp_started(const tarn_req *r)
{
    return r->status != 0;
}
void tarn_resp_close_after(tarn_req *r)
{
    (void)r;
}

/* ------------------------------------------------------------------ for tests */
typedef struct fake {
    tarn_req r;
    tarn_s3 s3;
    s3_ctx c;
} fake;

static inline void fake_reset(fake *f)
{
    tarn_arena *a = f->r.a;
    *f = (fake){.r = {.a = a}};
    tarn_arena_reset(a);
    f->r.view = (tarn_auth_view){.method = TARN_STR("GET"), .raw_path = TARN_STR("/b/k"), .headers = f->r.headers};
    f->c = (s3_ctx){.s3 = &f->s3, .r = &f->r, .a = a};
}

static inline int fake_setup(void **state)
{
    fake *f = tarn_calloc(1, sizeof *f);
    assert_non_null(f);
    f->r.a = tarn_arena_new(64u << 20);
    assert_non_null(f->r.a);
    fake_reset(f);
    *state = f;
    return 0;
}

static inline int fake_teardown(void **state)
{
    fake *f = *state;
    tarn_arena_free(f->r.a);
    tarn_free(f);
    return 0;
}

static inline void fake_header(fake *f, const char *name, const char *value)
{
    assert_true(f->r.headers_n < FAKE_MAX);
    f->r.headers[f->r.headers_n++] = (tarn_pair){tarn_str_of(name), tarn_str_of(value)};
    f->r.view.headers_n = f->r.headers_n;
}

static inline void fake_param(fake *f, const char *name, const char *value)
{
    assert_true(f->r.params_n < FAKE_MAX);
    f->r.params[f->r.params_n++] = (tarn_param){.name = tarn_str_of(name), .value = tarn_str_of(value), .has_eq = true};
}

static inline void fake_body(fake *f, tarn_str body)
{
    f->r.body = body;
    f->r.body_at = 0;
    f->r.has_length = true;
}

static inline tarn_str fake_answer(const fake *f, const char *name)
{
    for (size_t i = 0; i < f->r.answer_n; i++)
        if (tarn_str_ieqc(f->r.answer[i].name, name))
            return f->r.answer[i].value;
    return TARN_STR_NULL;
}

/* n times the text in the arena. */
static inline tarn_str fake_repeat(fake *f, const char *text, size_t n)
{
    size_t len = strlen(text);
    char *p = tarn_arena_alloc(f->r.a, len * n + 1);
    assert_non_null(p);
    for (size_t i = 0; i < n; i++)
        memcpy(p + i * len, text, len);
    p[len * n] = 0;
    return (tarn_str){p, len * n};
}

#define assert_str(got, want)                                                                                                              \
    do {                                                                                                                                   \
        tarn_str got_ = (got);                                                                                                             \
        assert_int_equal(got_.n, strlen(want));                                                                                            \
        assert_memory_equal(got_.p != NULL ? got_.p : "", want, got_.n);                                                                   \
    } while (0)

#endif
