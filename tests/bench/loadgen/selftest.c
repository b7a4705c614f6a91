/* SPDX-License-Identifier: Apache-2.0 */
/* loadgen --self-test [DIR]: DIR holds the published SigV4 vectors, one folder each. */
#include "lg.h"
#include <dirent.h>

static int checks, failures;

__attribute__((format(printf, 2, 3))) static void check(bool ok, const char *fmt, ...)
{
    checks++;
    if (ok)
        return;
    failures++;
    va_list ap;
    va_start(ap, fmt);
    fputs("FAIL: ", stderr);
    vfprintf(stderr, fmt, ap);
    fputc('\n', stderr);
    va_end(ap);
}

/* ---- SigV4 ---- */

static void doc_example(const char *query, const char *want) /* from the S3 reference's page on the Authorization header */
{
    struct thr t = {0};
    struct conn c = {0};
    g.host = "examplebucket.s3.amazonaws.com";
    g.sign = true;
    t.sig = (struct signer){
        .access = "AKIAIOSFODNN7EXAMPLE", .secret = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", .region = "us-east-1", .service = "s3"};
    rq_begin(&c, K_GET, "GET", B_KEEP);
    buf_lit(&c.path, "/");
    buf_str(&c.query, query);
    rq_build(&t, &c, 1369353600);
    char line[400];
    snprintf(line, sizeof line,
             "\r\nAuthorization: AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request, "
             "SignedHeaders=host;x-amz-content-sha256;x-amz-date, Signature=%s\r\n",
             want);
    check(strstr(buf_cstr(&c.out), line) != NULL, "S3 example %s: got\n%s", query, c.out.p);
    rq_build(&t, &c, 1369353601);
    check(strstr(buf_cstr(&c.out), line) == NULL && strstr(c.out.p, "20130524T000001Z"), "a new second gives a new signature");
    rq_build(&t, &c, 1369440000);
    check(strstr(buf_cstr(&c.out), "/20130525/us-east-1/s3/") != NULL, "a new day gives a new scope");
    rq_build(&t, &c, 1369353600);
    check(strstr(buf_cstr(&c.out), line) != NULL, "S3 example %s again, after another day", query);
}

static bool slurp(const char *dir, const char *name, struct buf *b)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "rb");
    b->len = 0;
    if (!f)
        return false;
    char tmp[4096];
    size_t n;
    while ((n = fread(tmp, 1, sizeof tmp, f)) > 0)
        buf_add(b, tmp, n);
    fclose(f);
    buf_cstr(b);
    return true;
}

static char *field(struct span doc, const char *path)
{
    struct span v;
    struct buf b = {0};
    if (!json_get(doc, path, &v))
        return NULL;
    json_unescape(&b, v);
    return buf_cstr(&b);
}

static void vectors(const char *dir)
{
    DIR *d = opendir(dir);
    struct dirent *e;
    int n = 0, paths = 0;
    if (!d) {
        check(false, "cannot open %s", dir);
        return;
    }
    while ((e = readdir(d))) {
        char sub[2048];
        struct buf ctx = {0}, canon = {0}, want = {0}, req = {0};
        snprintf(sub, sizeof sub, "%s/%s", dir, e->d_name);
        if (e->d_name[0] == '.' || !slurp(sub, "context.json", &ctx) || !slurp(sub, "header-canonical-request.txt", &canon) ||
            !slurp(sub, "header-signature.txt", &want) || !slurp(sub, "request.txt", &req))
            continue;
        struct span doc = {ctx.p, ctx.len};
        char *stamp = field(doc, "timestamp"), got[64];
        struct tm tm = {0};
        check(stamp && strptime(stamp, "%Y-%m-%dT%H:%M:%SZ", &tm), "%s: timestamp", sub);
        struct signer s = {.access = field(doc, "credentials/access_key_id"),
                           .secret = field(doc, "credentials/secret_access_key"),
                           .region = field(doc, "region"),
                           .service = field(doc, "service")};
        check(s.access && s.secret && s.region && s.service, "%s: context.json", sub);
        sig_at(&s, timegm(&tm));
        sig_hash(&s, canon.p, canon.len, got);
        check(want.len >= 64 && memcmp(got, want.p, 64) == 0, "%s: signature", e->d_name);
        n++;
        /* our own encoding of the path, where no normalisation of dots or slashes is asked for */
        char *p = strchr(req.p, ' '), *q = strstr(req.p, " HTTP/1.1"), *line2 = strchr(canon.p, '\n');
        if (p && q && line2 && !memchr(p, '?', (size_t)(q - p)) && !strstr(e->d_name, "slash") && !strstr(e->d_name, "relative")) {
            struct buf enc = {0};
            buf_uri(&enc, p + 1, (size_t)(q - p - 1), true);
            check(strncmp(line2 + 1, buf_cstr(&enc), enc.len) == 0 && line2[1 + enc.len] == '\n', "%s: path %s", e->d_name, enc.p);
            paths++;
        }
    }
    closedir(d);
    check(n > 0, "no vectors in %s", dir);
    printf("SigV4 vectors: %d signatures, %d paths\n", n, paths);
}

/* ---- histogram ---- */

static int cmp_u64(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static void histogram(void)
{
    enum { N = 200000 };
    static const double q[] = {0.001, 0.1, 0.5, 0.9, 0.99, 0.999, 0.9999, 1.0};
    uint64_t *v = xalloc(sizeof *v * N), seed = 5;
    double worst = 0;
    for (int shape = 0; shape < 3; shape++) {
        struct hist *h = xalloc(sizeof *h), *h2 = xalloc(sizeof *h2);
        for (int i = 0; i < N; i++) {
            uint64_t r = rng_next(&seed);
            v[i] = shape == 0 ? r >> (20 + r % 44) : shape == 1 ? 100000 + r % 50000 : r % 300;
            hist_add(i & 1 ? h : h2, v[i]);
        }
        hist_merge(h, h2);
        qsort(v, N, sizeof *v, cmp_u64);
        check(h->n == N && h->max == v[N - 1], "histogram: count and maximum");
        for (size_t k = 0; k < sizeof q / sizeof *q; k++) {
            size_t rank = (size_t)(q[k] * N + 0.999999);
            double want = (double)v[(rank ? rank : 1) - 1], got = (double)hist_value(h, q[k]);
            double err = want > 0 ? (got > want ? got - want : want - got) / want : got;
            if (err > worst)
                worst = err;
            check(err <= 0.01, "histogram %d: p%g is %.0f, should be %.0f", shape, q[k] * 100, got, want);
        }
        free(h);
        free(h2);
    }
    for (uint64_t x = 0; x < (UINT64_C(1) << 43); x = x * 17 / 16 + 1) { /* every bucket's value is near what it holds */
        struct hist *h = xalloc(sizeof *h);
        hist_add(h, x);
        hist_add(h, UINT64_C(1) << 43);
        uint64_t got = hist_value(h, 0.5);
        check((got > x ? got - x : x - got) * 256 <= x, "histogram: %llu read as %llu", (unsigned long long)x, (unsigned long long)got);
        free(h);
    }
    printf("histogram: worst error of a percentile %.3f %%\n", worst * 100);
    free(v);
}

/* ---- HTTP ---- */

struct sample {
    const char *in;
    bool head, eof;
    int status; /* 0: must be refused */
    const char *body;
    bool close;
    const char *rest; /* bytes that must stay */
};

static const struct sample samples[] = {
    {"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nETag: \"ab\"\r\n\r\nhello", 0, 0, 200, "hello", 0, ""},
    {"HTTP/1.1 200 OK\r\ncontent-length:0\r\n\r\n", 0, 0, 200, "", 0, ""},
    {"HTTP/1.1 200\r\nContent-Length: 1\r\n\r\nx", 0, 0, 200, "x", 0, ""},
    {"HTTP/1.1 204 No Content\r\n\r\nHTTP", 0, 0, 204, "", 0, "HTTP"},
    {"HTTP/1.1 304 Not Modified\r\nContent-Length: 99\r\n\r\n", 0, 0, 304, "", 0, ""},
    {"HTTP/1.1 200 OK\r\nContent-Length: 4096\r\n\r\n", 1, 0, 200, "", 0, ""},
    {"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", 0, 0, 200, "ok", 0, ""},
    {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n6;x=y\r\n world\r\n0\r\n\r\n", 0, 0, 200, "hello world", 0, ""},
    {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0A\r\n0123456789\r\n0\r\nX-T: 1\r\nY: 2\r\n\r\nZZ", 0, 0, 200, "0123456789", 0,
     "ZZ"},
    {"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n", 0, 0, 200, "a", 0, ""},
    {"HTTP/1.1 503 Slow Down\r\nConnection: close\r\nContent-Length: 1\r\n\r\nx", 0, 0, 503, "x", 1, ""},
    {"HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\nx", 0, 0, 200, "x", 1, ""},
    {"HTTP/1.0 200 OK\r\nConnection: Keep-Alive\r\nContent-Length: 1\r\n\r\nx", 0, 0, 200, "x", 0, ""},
    {"HTTP/1.1 200 OK\r\n\r\nuntil the end", 0, 1, 200, "until the end", 1, ""},
    {"HTTP/1.1 200 OK\nContent-Length: 1\n\nx", 0, 0, 200, "x", 0, ""},
    {"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\nhello", 0, 0, 200, "hello", 0, ""},
    {"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello!", 0, 0, 0, "", 0, ""},
    {"HTTP/1.1 200 OK\r\nContent-Length: 5x\r\n\r\nhello", 0, 0, 0, "", 0, ""},
    {"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nshort", 0, 1, 0, "", 0, ""},
    {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nhello\r\n0\r\n\r\n", 0, 0, 0, "", 0, ""},
    {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhello\r\n0\r\n\r\n", 0, 0, 0, "", 0, ""},
    {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n", 0, 1, 0, "", 0, ""},
    {"HTTP/2 200 OK\r\n\r\n", 0, 0, 0, "", 0, ""},
    {"HTTP/1.1 2x0 OK\r\n\r\n", 0, 0, 0, "", 0, ""},
    {"HTTP/1.1 200 OK\r\nno colon\r\n\r\n", 0, 0, 0, "", 0, ""},
    {"<html>\r\n", 0, 0, 0, "", 0, ""},
};

/* Feeds n bytes from a copy of their own, so that a read outside is seen by a sanitizer. Returns how many were left. */
static size_t feed(struct hp *h, const char *in, size_t n, enum hp_event *ev, struct buf *body)
{
    struct buf copy = {.p = malloc(n + 1), .len = n, .cap = n + 1};
    memcpy(copy.p, in, n);
    const char *p = copy.p, *end = copy.p + n;
    struct span piece;
    size_t took = 0;
    do {
        const char *before = p;
        *ev = hp_next(h, &p, end, &piece);
        took += (size_t)(p - before);
        if (*ev == HP_BODY)
            buf_add(body, piece.p, piece.n);
    } while (*ev == HP_BODY);
    free(copy.p);
    return n - took;
}

static void one_split(const struct sample *s, size_t a, size_t b)
{
    size_t n = strlen(s->in), cut[4] = {0, a, b, n};
    struct hp *h = xalloc(sizeof *h);
    struct buf body = {0};
    size_t used = 0;
    enum hp_event ev = HP_MORE;
    hp_reset(h);
    h->no_body = s->head;
    for (int i = 0; i < 3 && ev == HP_MORE; i++)
        used = cut[i + 1] - feed(h, s->in + cut[i], cut[i + 1] - cut[i], &ev, &body);
    if (ev == HP_MORE && s->eof)
        ev = hp_eof(h);
    if (s->status == 0)
        check(ev == HP_BAD, "HTTP: should be refused (%zu %zu): %s", a, b, s->in);
    else
        check(ev == HP_DONE && h->status == s->status && strcmp(buf_cstr(&body), s->body) == 0 && h->close == s->close &&
                  n - used == strlen(s->rest),
              "HTTP: split %zu %zu: event %d status %d body %zu close %d left %zu: %s", a, b, (int)ev, h->status, body.len, h->close,
              n - used, s->in);
    if (s == &samples[0])
        check(strcmp(h->etag, "\"ab\"") == 0, "HTTP: ETag");
    free(body.p);
    free(h);
}

static void bytewise(const struct sample *s)
{
    struct hp *h = xalloc(sizeof *h);
    enum hp_event ev = HP_MORE;
    size_t i = 0, nb = 0;
    hp_reset(h);
    h->no_body = s->head;
    for (; s->in[i] && ev == HP_MORE; i++) {
        const char *p = s->in + i;
        struct span piece;
        while ((ev = hp_next(h, &p, s->in + i + 1, &piece)) == HP_BODY)
            nb += piece.n;
    }
    if (ev == HP_MORE && s->eof)
        ev = hp_eof(h);
    check(s->status ? ev == HP_DONE && h->status == s->status && nb == strlen(s->body) : ev == HP_BAD, "HTTP: byte by byte: %s", s->in);
    free(h);
}

static void http(void)
{
    for (size_t k = 0; k < sizeof samples / sizeof *samples; k++) {
        size_t n = strlen(samples[k].in);
        for (size_t a = 0; a <= n; a++)
            for (size_t b = a; b <= n; b++)
                one_split(&samples[k], a, b);
        bytewise(&samples[k]);
    }
    struct hp *h = xalloc(sizeof *h); /* a line that never ends */
    char *junk = xalloc(20000);
    memset(junk, 'a', 20000);
    hp_reset(h);
    const char *p = junk;
    struct span piece;
    check(hp_next(h, &p, junk + 20000, &piece) == HP_BAD, "HTTP: endless line");
    free(junk);
    free(h);
}

/* ---- content ---- */

static void assemble(const struct content *o, char *to)
{
    memcpy(to, o->win, o->lead);
    memcpy(to + o->lead, o->tail, o->ntail);
}

static void content(void)
{
    static const size_t sizes[] = {0, 1, 7, 31, 32, 33, 64, 95, 96, 97, 1000, 4096, 70001};
    char *x = xalloc(200000), got[64], want[64];
    unsigned char d[32];
    struct content o, other;
    g.sign = true;
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        g.nsizes = 1;
        g.sizes[0] = sizes[k];
        g.part_size = 0;
        content_init(true);
        content_for(&o, "some/key", 8);
        content_for(&other, "some/kez", 8);
        assemble(&o, x);
        size_t n = sizes[k];
        check(o.size == n && content_check(&o, 0, x, n), "content %zu", n);
        check(!content_check(&o, 0, x, n + 1), "content %zu: longer", n);
        check(n < 4 || !content_check(&other, 0, x, n), "content %zu: another key", n);
        for (size_t i = 0; i<n; i += n> 5000 ? 997 : 1) {
            x[i] ^= 1;
            check(!content_check(&o, 0, x, n), "content %zu: flipped bit at %zu not seen", n, i);
            x[i] ^= 1;
            check(content_check(&o, 0, x, i) && content_check(&o, i, x + i, n - i), "content %zu: in two pieces at %zu", n, i);
        }
        check(n < 200 || !content_check(&o, 0, x + 1, n - 100), "content %zu: moved by one", n);
        check(n < 200 || !content_check(&o, 64, x, n - 100), "content %zu: moved by 64", n);
        content_sha(&o, got);
        SHA256((unsigned char *)x, n, d);
        hex(want, d, 32);
        check(memcmp(got, want, 64) == 0, "content %zu: SHA-256", n);
        for (size_t part = 5; part < 200000; part = part * 3 + 1) {
            if (n / part > 2000)
                continue;
            g.part_size = part;
            content_init(true);
            content_for(&o, "some/key", 8);
            assemble(&o, x);
            for (size_t i = 0; i * part < n; i++) {
                content_part_sha(&o, i, got);
                SHA256((unsigned char *)x + i * part, n - i * part < part ? n - i * part : part, d);
                hex(want, d, 32);
                check(memcmp(got, want, 64) == 0, "content %zu: SHA-256 of part %zu of %zu", n, i, part);
            }
        }
    }
    g.part_size = 0;
    g.nsizes = 3;
    g.sizes[0] = 10, g.sizes[1] = 100, g.sizes[2] = 5000;
    content_init(true);
    bool seen[3] = {0};
    for (int i = 0; i < 60; i++) {
        char key[16];
        int n = snprintf(key, sizeof key, "k%d", i);
        content_for(&o, key, (size_t)n);
        assemble(&o, x);
        seen[o.isize] = true;
        content_sha(&o, got);
        SHA256((unsigned char *)x, o.size, d);
        hex(want, d, 32);
        check(memcmp(got, want, 64) == 0, "content: SHA-256 with several sizes");
    }
    check(seen[0] && seen[1] && seen[2], "content: every size occurs");
    free(x);
}

/* ---- JSON, XML, URI ---- */

static void text(void)
{
    static const char js[] = " {\"a\":{\"b\":[1,{\"prefix\":\"no\"}],\"prefix\" : \"x\\u0041\\/\\\"y\"},\"n\":-12,\"z\":null,\"t\":[ "
                             "{\"q\":\"]\"} , 2,[3,4] ],\"e\":[]}";
    struct span doc = {js, sizeof js - 1}, v;
    struct buf b = {0};
    check(json_get(doc, "a/prefix", &v), "json: a/prefix");
    json_unescape(&b, v);
    check(strcmp(buf_cstr(&b), "xA/\"y") == 0, "json: unescaped %s", b.p);
    check(json_get(doc, "n", &v) && v.n == 3 && memcmp(v.p, "-12", 3) == 0, "json: n");
    check(json_get(doc, "z", &v) && v.n == 4, "json: null");
    check(json_get(doc, "t", &v) && json_array_len(v) == 3, "json: array of 3");
    check(json_get(doc, "e", &v) && json_array_len(v) == 0, "json: empty array");
    check(!json_get(doc, "prefix", &v) && !json_get(doc, "a/x", &v), "json: absent");
    for (size_t n = 0; n < sizeof js - 1; n++) { /* cut anywhere: no crash, nothing read past the end */
        char *cut = malloc(n + 1);
        memcpy(cut, js, n);
        (void)json_get((struct span){cut, n}, "e", &v);
        (void)json_get((struct span){cut, n}, "a/prefix", &v);
        free(cut);
    }
    static const char xml[] = "<R><IsTruncated>true</IsTruncated><T>a&amp;b&#x2F;&lt;</T></R>";
    doc = (struct span){xml, sizeof xml - 1};
    b.len = 0;
    check(xml_text(doc, "T", &v), "xml: T");
    xml_unescape(&b, v);
    check(strcmp(buf_cstr(&b), "a&b/<") == 0, "xml: unescaped %s", b.p);
    check(!xml_text(doc, "Nope", &v), "xml: absent");
    b.len = 0;
    buf_uri(&b, "a b/c+~%1F\xc3\xa9", 12, true);
    check(strcmp(buf_cstr(&b), "a%20b/c%2B~%251F%C3%A9") == 0, "uri: %s", b.p);
    free(b.p);
}

int self_test(const char *dir)
{
    doc_example("lifecycle=", "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543");
    doc_example("max-keys=2&prefix=J", "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7");
    if (dir)
        vectors(dir);
    histogram();
    http();
    content();
    text();
    printf("%d checks, %d failures\n", checks, failures);
    return failures ? 1 : 0;
}
