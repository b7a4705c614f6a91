/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Published SigV4 vectors, verified as the server would: the signed request is taken apart, and the canonical request, the
 * string to sign and the signature must come out as written. Skipped where the files are not there; a few published
 * examples are embedded in test_auth_verify.c.
 */
#include "auth_private.h"
#include "auth_sign.h"
#include "shared_data.h"

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#define HEADERS_MAX 64

typedef struct parsed {
    char *mem;
    tarn_pair headers[HEADERS_MAX];
    tarn_auth_view view;
    tarn_str body;
} parsed;

static tarn_str file_of(const char *dir, const char *name)
{
    char path[SHARED_PATH_BYTES];
    tarn_sb b;
    tarn_sb_init_fixed(&b, path, sizeof path);
    tarn_sb_fmt(&b, "%s/%s", dir, name);
    return shared_read(path);
}

/* "METHOD target HTTP/1.1", header lines with LF, folded ones start with a blank, an empty line, the body. */
static void parse_request(tarn_str text, parsed *p)
{
    tarn_str line;
    tarn_str rest;
    assert_true(tarn_str_split(text, '\n', &line, &rest));
    ptrdiff_t last = tarn_str_rchr(line, ' ');
    ptrdiff_t first = tarn_str_chr(line, ' ');
    tarn_str target = tarn_str_sub(line, (size_t)first + 1, (size_t)(last - first - 1));
    p->view = (tarn_auth_view){.method = tarn_str_sub(line, 0, (size_t)first), .headers = p->headers};
    tarn_str_split(target, '?', &p->view.raw_path, &p->view.raw_query);
    while (rest.n > 0) {
        const char *start = rest.p;
        tarn_str_split(rest, '\n', &line, &rest);
        if (line.n == 0) {
            break;
        }
        while (rest.n > 0 && rest.p[0] == ' ') {
            tarn_str more;
            tarn_str_split(rest, '\n', &more, &rest);
            line = (tarn_str){start, (size_t)(more.p + more.n - start)};
        }
        assert_true(p->view.headers_n < HEADERS_MAX);
        tarn_pair *h = &p->headers[p->view.headers_n++];
        assert_true(tarn_str_split(line, ':', &h->name, &h->value));
        h->value = tarn_str_trim(h->value);
    }
    p->body = rest;
}

static tarn_str json_text(const json_t *o, const char *k)
{
    const json_t *v = json_object_get(o, k);
    return v ? auth_json_str(v) : TARN_STR_NULL;
}

typedef struct folder {
    const char *dir;
    json_t *context;
    tarn_auth *auth;
    tarn_arena *arena;
} folder;

static void amz_stamp(tarn_str iso, char out[17])
{
    int64_t ms;
    tarn_sb b;
    char mem[32];
    assert_true(tarn_parse_iso8601(iso, &ms));
    tarn_sb_init_fixed(&b, mem, sizeof mem);
    tarn_sb_amz_date(&b, ms);
    memcpy(out, mem, 17);
}

static void drop_param(auth_query *q, const char *name)
{
    size_t n = 0;
    for (size_t i = 0; i < q->n; i++) {
        if (!tarn_str_eqc(q->v[i].name, name)) {
            q->v[n++] = q->v[i];
        }
    }
    q->n = n;
}

/* Compares canonical request (echoed by a mismatch) and signature of one form of one folder. */
static void check_form(folder *f, const char *form, const parsed *p, tarn_str credential, tarn_str list, tarn_str signature, tarn_str date)
{
    char name[64];
    tarn_sb b;
    bool norm = json_is_true(json_object_get(f->context, "normalize"));
    auth_signed s = {.method = p->view.method, .amz_date = date, .signature = signature, .signed_headers = list};
    auth_query q;
    assert_true(auth_scope_parse(credential, &s.scope));
    s.user = auth_user_find(f->auth, s.scope.access_key);
    assert_non_null(s.user);
    auth_names names;
    assert_true(auth_names_parse(f->arena, list, &names) && names.v);
    auth_add_candidate(s.uris, &s.uris_n, auth_canon_path(f->arena, p->view.raw_path, norm ? AUTH_PATH_DOUBLE : AUTH_PATH_ONCE));
    assert_int_equal(auth_query_parse(f->arena, p->view.raw_query, false, &q), TARN_OK);
    if (json_is_true(json_object_get(f->context, "omit_session_token"))) {
        drop_param(&q, "X-Amz-Security-Token"); /* it went in after signing */
    }
    auth_add_candidate(s.queries, &s.queries_n, auth_canon_query(f->arena, &q, AUTH_QUERY_SORTED));
    s.headers = auth_canon_headers(f->arena, &p->view, &names);
    auth_keycache_get(f->auth->cache, s.user, &s.scope, s.key, &s.key_cached);
    char hash[65];
    tarn_sha256_hex(p->body.p, p->body.n, hash);
    tarn_err_detail d = {.fields_n = 0};
    tarn_err e = auth_signed_match(f->auth, &s, tarn_str_of(hash), f->arena, &d);
    if (e != TARN_OK) {
        print_message("%s %s:\n%.*s\n", f->dir, form, TARN_STR_ARG(sign_detail(&d, "CanonicalRequest")));
    }
    assert_int_equal(e, TARN_OK);
    /* The echo of a wrong one is the canonical request itself. */
    char wrong[65];
    memcpy(wrong, signature.p, 64);
    wrong[63] = wrong[63] == '0' ? '1' : '0';
    s.signature = (tarn_str){wrong, 64};
    assert_int_equal(auth_signed_match(f->auth, &s, tarn_str_of(hash), f->arena, &d), TARN_E_SIGNATURE_DOES_NOT_MATCH);
    const char *const parts[][2] = {{"canonical-request.txt", "CanonicalRequest"}, {"string-to-sign.txt", "StringToSign"}};
    for (size_t i = 0; i < 2; i++) {
        tarn_sb_init_fixed(&b, name, sizeof name);
        tarn_sb_fmt(&b, "%s-%s", form, parts[i][0]);
        tarn_str want = file_of(f->dir, name);
        assert_non_null(want.p);
        tarn_str got = sign_detail(&d, parts[i][1]);
        assert_int_equal(got.n, want.n);
        assert_memory_equal(got.p, want.p, want.n);
        tarn_free((void *)(uintptr_t)want.p);
    }
}

static tarn_str part(tarn_str authorization, const char *name)
{
    ptrdiff_t at = tarn_str_find(authorization, tarn_str_of(name));
    assert_true(at >= 0);
    tarn_str v = tarn_str_sub(authorization, (size_t)at + strlen(name), SIZE_MAX);
    tarn_str one;
    tarn_str rest;
    tarn_str_split(v, ',', &one, &rest);
    return one;
}

static void check_header_form(folder *f, const char *date)
{
    parsed p = {.mem = NULL};
    tarn_str text = file_of(f->dir, "header-signed-request.txt");
    parse_request(text, &p);
    tarn_str a = tarn_auth_header(&p.view, "authorization");
    check_form(f, "header", &p, part(a, "Credential="), part(a, "SignedHeaders="), part(a, "Signature="), tarn_str_of(date));
    tarn_free((void *)(uintptr_t)text.p);
}

static tarn_str query_part(folder *f, const auth_query *q, const char *name)
{
    tarn_str v;
    assert_int_equal(auth_query_find(q, name, &v), 1);
    assert_true(auth_query_decode(f->arena, v, &v));
    return v;
}

static void check_query_form(folder *f, const char *date)
{
    parsed p = {.mem = NULL};
    auth_query q;
    tarn_str text = file_of(f->dir, "query-signed-request.txt");
    parse_request(text, &p);
    assert_int_equal(auth_query_parse(f->arena, p.view.raw_query, false, &q), TARN_OK);
    check_form(f, "query", &p, query_part(f, &q, "X-Amz-Credential"), query_part(f, &q, "X-Amz-SignedHeaders"),
               query_part(f, &q, "X-Amz-Signature"), tarn_str_of(date));
    tarn_free((void *)(uintptr_t)text.p);
}

static void check_folder(const char *dir)
{
    folder f = {.dir = dir};
    char date[17];
    tarn_str text = file_of(dir, "context.json");
    f.context = json_loadb(text.p, text.n, 0, NULL);
    assert_non_null(f.context);
    const json_t *cred = json_object_get(f.context, "credentials");
    tarn_auth_options opt = {.root_access_key = json_text(cred, "access_key_id"), .root_secret_key = json_text(cred, "secret_access_key")};
    assert_int_equal(tarn_auth_new(&opt, &f.auth), TARN_OK);
    f.arena = tarn_arena_new(1 << 20);
    amz_stamp(json_text(f.context, "timestamp"), date);
    check_header_form(&f, date);
    check_query_form(&f, date);
    tarn_arena_free(f.arena);
    tarn_auth_free(f.auth);
    json_decref(f.context);
    tarn_free((void *)(uintptr_t)text.p);
}

static void test_aws_suite(void **state)
{
    (void)state;
    char root[SHARED_PATH_BYTES];
    if (!shared_path("data/sigv4-vectors/v4", root)) {
        print_message("skipped: no sigv4-vectors\n");
        skip();
    }
    DIR *d = opendir(root);
    assert_non_null(d);
    size_t n = 0;
    for (struct dirent *e; (e = readdir(d)) != NULL;) {
        if (e->d_name[0] == '.') {
            continue;
        }
        char dir[SHARED_PATH_BYTES + 300];
        tarn_sb b;
        tarn_sb_init_fixed(&b, dir, sizeof dir);
        tarn_sb_fmt(&b, "%s/%s", root, e->d_name);
        check_folder(dir);
        n++;
    }
    closedir(d);
    assert_true(n >= 38);
}

/* ------------------------------------------------------------------ s3-examples.json */
typedef struct example {
    const json_t *root, *e;
    tarn_auth *auth;
    tarn_arena *arena;
    tarn_pair headers[HEADERS_MAX];
    size_t headers_n;
    tarn_auth_result result;
    tarn_err_detail detail;
    tarn_err err;
} example;

static tarn_str join_signed(example *x)
{
    tarn_str canonical = json_text(x->e, "canonical_request");
    /* The last line but one of the canonical request. */
    ptrdiff_t last = tarn_str_rchr(canonical, '\n');
    tarn_str head = tarn_str_sub(canonical, 0, (size_t)last);
    ptrdiff_t before = tarn_str_rchr(head, '\n');
    return tarn_str_sub(head, (size_t)before + 1, SIZE_MAX);
}

static tarn_str example_query(example *x)
{
    tarn_sb b;
    tarn_sb_init(&b, 65536);
    size_t i;
    json_t *pair;
    json_array_foreach(json_object_get(x->e, "query"), i, pair)
    {
        tarn_sb_cstr(&b, i ? "&" : "");
        tarn_sb_urlencode(&b, auth_json_str(json_array_get(pair, 0)), false);
        tarn_sb_char(&b, '=');
        tarn_sb_urlencode(&b, auth_json_str(json_array_get(pair, 1)), false);
    }
    tarn_str out = tarn_arena_str(x->arena, tarn_sb_view(&b));
    tarn_sb_free(&b);
    return out.n > 0 ? out : TARN_STR_NULL;
}

static void verify_example(example *x)
{
    tarn_str service = json_text(x->e, "service");
    bool catalog = tarn_str_eqc(service, "s3tables");
    tarn_auth_view v = {.method = json_text(x->e, "method"), .headers = x->headers};
    size_t i;
    json_t *pair;
    if (json_object_get(x->e, "target")) {
        tarn_str_split(json_text(x->e, "target"), '?', &v.raw_path, &v.raw_query);
    } else {
        v.raw_path = json_text(x->e, "path");
        v.raw_query = example_query(x);
    }
    json_array_foreach(json_object_get(x->e, "headers"), i, pair)
    {
        x->headers[v.headers_n++] =
            (tarn_pair){auth_json_str(json_array_get(pair, 0)), tarn_str_trim(auth_json_str(json_array_get(pair, 1)))};
    }
    if (json_object_get(x->e, "host")) {
        x->headers[v.headers_n++] = (tarn_pair){TARN_STR("Host"), json_text(x->e, "host")};
    } else {
        tarn_str a = tarn_arena_fmt(
            x->arena, "AWS4-HMAC-SHA256 Credential=%s/20130524/us-east-1/%s/aws4_request,SignedHeaders=%.*s,Signature=%.*s", SIGN_ACCESS,
            catalog ? "s3tables" : "s3", TARN_STR_ARG(join_signed(x)), TARN_STR_ARG(json_text(x->e, "signature")));
        x->headers[v.headers_n++] = (tarn_pair){TARN_STR("Authorization"), a};
        tarn_str body = json_text(x->e, "payload");
        if (body.n > 0) {
            x->headers[v.headers_n++] = (tarn_pair){TARN_STR("Content-Length"), tarn_arena_fmt(x->arena, "%zu", body.n)};
        }
    }
    x->headers_n = v.headers_n;
    x->err = tarn_auth_verify(x->auth, catalog ? TARN_API_CATALOG : TARN_API_S3, &v, SIGN_NOW_MS, x->arena, &x->result, &x->detail);
    if (x->err == TARN_OK && x->result.deferred) {
        uint8_t hash[32];
        tarn_str body = json_text(x->e, "payload");
        assert_true(x->result.identity.anonymous);
        tarn_sha256(body.p, body.n, hash);
        x->err = tarn_auth_finish_body(x->auth, &x->result, hash, x->arena, &x->detail);
    }
}

/* The framed body of a chunked example. */
static tarn_str framed_body(example *x)
{
    tarn_sb b;
    size_t i;
    json_t *c;
    tarn_sb_init(&b, 1 << 20);
    json_array_foreach(json_object_get(x->e, "chunks"), i, c)
    {
        const json_t *data = json_object_get(c, "data");
        json_int_t count = json_integer_value(json_object_get(data, "count"));
        tarn_sb_fmt(&b, "%.*s;chunk-signature=%.*s\r\n", TARN_STR_ARG(json_text(c, "size_hex")), TARN_STR_ARG(json_text(c, "signature")));
        for (json_int_t k = 0; k < count; k++) {
            tarn_sb_str(&b, json_text(data, "byte"));
        }
        tarn_sb_cstr(&b, count > 0 ? "\r\n" : "");
    }
    const json_t *t = json_object_get(x->e, "trailer");
    if (t) {
        json_t *h = json_object_get(t, "headers");
        if (h) {
            json_array_foreach(h, i, c)
            {
                tarn_sb_fmt(&b, "%.*s:%.*s\r\n", TARN_STR_ARG(auth_json_str(json_array_get(c, 0))),
                            TARN_STR_ARG(auth_json_str(json_array_get(c, 1))));
            }
        } else {
            tarn_sb_fmt(&b, "%.*s:%.*s\r\n", TARN_STR_ARG(json_text(t, "name")), TARN_STR_ARG(json_text(t, "value")));
        }
        tarn_sb_fmt(&b, "x-amz-trailer-signature:%.*s\r\n", TARN_STR_ARG(json_text(t, "signature")));
    }
    tarn_sb_cstr(&b, "\r\n");
    assert_false(b.failed);
    return (tarn_str){b.p, b.n};
}

static void check_chunks(example *x, size_t step)
{
    tarn_chunked *c = NULL;
    tarn_str body = framed_body(x);
    assert_int_equal(body.n, json_integer_value(json_object_get(x->e, "body_length")));
    assert_int_equal(tarn_chunked_new(&x->result, x->arena, &c), TARN_OK);
    size_t total = 0;
    for (size_t at = 0; at < body.n;) {
        tarn_str piece = tarn_str_sub(body, at, step);
        size_t done = 0;
        while (done < piece.n) {
            size_t used = 0;
            tarn_str data;
            assert_int_equal(tarn_chunked_feed(c, tarn_str_sub(piece, done, SIZE_MAX), &used, &data), TARN_OK);
            assert_true(used > 0);
            done += used;
            total += data.n;
        }
        at += piece.n;
    }
    assert_int_equal(tarn_chunked_finish(c), TARN_OK);
    assert_int_equal(total, 66560);
    const tarn_pair *t;
    assert_int_equal(tarn_chunked_trailers(c, &t), json_object_get(x->e, "trailer") ? 1 : 0);
    tarn_chunked_end(c);
    tarn_free((void *)(uintptr_t)body.p);
}

static void test_s3_examples(void **state)
{
    (void)state;
    char path[SHARED_PATH_BYTES];
    if (!shared_path("data/sigv4-vectors/s3-examples.json", path)) {
        print_message("skipped: no s3-examples.json\n");
        skip();
    }
    tarn_str text = shared_read(path);
    json_t *root = json_loadb(text.p, text.n, 0, NULL);
    assert_non_null(root);
    tarn_auth_options opt = {
        .root_access_key = TARN_STR(SIGN_ACCESS), .root_secret_key = TARN_STR(SIGN_SECRET), .region = TARN_STR("us-east-1")};
    tarn_auth *auth = NULL;
    assert_int_equal(tarn_auth_new(&opt, &auth), TARN_OK);
    size_t i;
    size_t n = 0;
    json_t *e;
    json_array_foreach(json_object_get(root, "examples"), i, e)
    {
        tarn_str kind = json_text(e, "kind");
        if (tarn_str_eqc(kind, "post-policy")) {
            continue; /* test_auth_form.c */
        }
        example x = {.root = root, .e = e, .auth = auth, .arena = tarn_arena_new(4 << 20)};
        verify_example(&x);
        if (x.err != TARN_OK) {
            print_message("%s: %s\n%.*s\n", json_string_value(json_object_get(e, "name")), tarn_err_get(x.err)->name,
                          TARN_STR_ARG(sign_detail(&x.detail, "CanonicalRequest")));
        }
        assert_int_equal(x.err, TARN_OK);
        assert_true(x.result.identity.root);
        if (tarn_str_eqc(kind, "chunked")) {
            check_chunks(&x, 1);
            check_chunks(&x, 7);
            check_chunks(&x, SIZE_MAX);
        }
        tarn_auth_result_wipe(&x.result);
        tarn_arena_free(x.arena);
        n++;
    }
    assert_true(n >= 19);
    tarn_auth_free(auth);
    json_decref(root);
    tarn_free((void *)(uintptr_t)text.p);
}

static void test_signing_key(void **state)
{
    (void)state;
    uint8_t key[32];
    char hex[65];
    auth_derive_key(TARN_STR("wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"), TARN_STR("20150830"), TARN_STR("us-east-1"), TARN_STR("iam"),
                    key);
    sign_hex(key, 32, hex);
    assert_string_equal(hex, "c4afb1cc5771d871763a393e44b703571b55cc28424d1a5e86da6ed3c154a4b9");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_signing_key),
        cmocka_unit_test(test_aws_suite),
        cmocka_unit_test(test_s3_examples),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
