/* SPDX-License-Identifier: Apache-2.0 */
/* loadgen: shared declarations of the load generator. */
#ifndef LG_H
#define LG_H

#include <openssl/sha.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- small things (util.c) ------------------------------------------------------------------ */

_Noreturn void die(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void *xalloc(size_t n); /* zeroed, never NULL */
void *xrealloc(void *p, size_t n);

struct buf {
    char *p;
    size_t len, cap;
};
void buf_grow(struct buf *b, size_t extra);
void buf_fmt(struct buf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void buf_uri(struct buf *b, const char *s, size_t n, bool keep_slash); /* RFC 3986 percent-encoding */
static inline void buf_add(struct buf *b, const void *p, size_t n)
{
    if (b->cap - b->len < n + 1)
        buf_grow(b, n + 1);
    memcpy(b->p + b->len, p, n);
    b->len += n;
}
static inline void buf_str(struct buf *b, const char *s)
{
    buf_add(b, s, strlen(s));
}
#define buf_lit(b, s) buf_add((b), "" s, sizeof(s) - 1)
static inline char *buf_cstr(struct buf *b) /* NUL-terminates without counting the NUL */
{
    if (b->cap - b->len < 1)
        buf_grow(b, 1);
    b->p[b->len] = 0;
    return b->p;
}

static inline uint64_t now_ns(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}
static inline uint64_t mix64(uint64_t x) /* bijective finaliser */
{
    x ^= x >> 30;
    x *= 0xbf58476d1ce4e5b9u;
    x ^= x >> 27;
    x *= 0x94d049bb133111ebu;
    x ^= x >> 31;
    return x;
}
static inline uint64_t rng_next(uint64_t *s)
{
    return mix64(*s += 0x9e3779b97f4a7c15u);
}
static inline uint64_t rng_below(uint64_t *s, uint64_t n) /* n > 0; multiply-shift, bias < 2^-32 */
{
    return (uint64_t)(((unsigned __int128)rng_next(s) * n) >> 64);
}
uint64_t hash64(const void *p, size_t n, uint64_t seed);
void hex(char *out, const unsigned char *in, size_t n);

struct span {
    const char *p;
    size_t n;
};
/* Raw value at a path of object keys, "a/b/c"; strings come without their quotes. */
bool json_get(struct span doc, const char *path, struct span *out);
size_t json_array_len(struct span v);
void json_unescape(struct buf *b, struct span raw);
void xml_unescape(struct buf *b, struct span raw);
bool xml_text(struct span doc, const char *tag, struct span *out); /* first <tag>text</tag> */

/* ---- latency histogram: log-linear, 128 buckets per power of two, error <= 1/256 ------------- */

#define HIST_BITS 7u
#define HIST_SUB (1u << HIST_BITS)
#define HIST_TOP 44u /* values are clamped to 2^44 ns, about 4.9 hours */
#define HIST_N ((HIST_TOP - HIST_BITS + 1u) * HIST_SUB)
struct hist {
    uint64_t n, max, sum;
    uint64_t b[HIST_N];
};
static inline uint32_t hist_index(uint64_t v)
{
    if (v >= (UINT64_C(1) << HIST_TOP))
        v = (UINT64_C(1) << HIST_TOP) - 1;
    if (v < HIST_SUB)
        return (uint32_t)v;
    uint32_t shift = 63u - (uint32_t)__builtin_clzll(v) - HIST_BITS;
    return shift * HIST_SUB + (uint32_t)(v >> shift);
}
static inline void hist_add(struct hist *h, uint64_t v)
{
    h->b[hist_index(v)]++;
    h->n++;
    h->sum += v;
    if (v > h->max)
        h->max = v;
}
uint64_t hist_value(const struct hist *h, double q);
void hist_merge(struct hist *to, const struct hist *from);

/* ---- SigV4 (sigv4.c) -------------------------------------------------------------------------- */

#define EMPTY_SHA256 "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
#define SIGNED_HEADERS "host;x-amz-content-sha256;x-amz-date"
struct signer {
    const char *access, *secret, *region, *service;
    time_t sec;         /* the second that the fields below are for; 0: none yet */
    char amzdate[17];   /* 20130524T000000Z */
    char day[9];        /* 20130524 */
    struct buf scope;   /* day/region/service/aws4_request */
    SHA256_CTX in, out; /* HMAC midstates of the signing key */
    SHA256_CTX mid;     /* `in` after the fixed head of the string to sign */
};
void sig_at(struct signer *s, time_t sec);
void sig_hash(struct signer *s, const void *canonical, size_t n, char out[64]);

/* ---- HTTP/1.1 response parser (http.c) --------------------------------------------------------- */

enum hp_event { HP_MORE, HP_BODY, HP_DONE, HP_BAD };
enum hp_state { HS_STATUS, HS_HEADER, HS_LENGTH, HS_CLOSE, HS_CSIZE, HS_CDATA, HS_CEND, HS_TRAILER, HS_DONE };
struct hp {
    enum hp_state st;
    int status;
    bool no_body;               /* answer to HEAD: set by the caller after hp_reset */
    bool close;                 /* the server won't keep the connection */
    bool chunked, has_len, any; /* any: at least one byte of an answer was seen */
    uint64_t remain;
    uint64_t length; /* the Content-Length as sent */
    char etag[132];
    size_t nline;
    char line[8192]; /* only for a line that is split over reads */
};
static inline void hp_reset(struct hp *h)
{
    h->st = HS_STATUS;
    h->status = 0;
    h->no_body = h->close = h->chunked = h->has_len = h->any = false;
    h->remain = h->length = 0;
    h->etag[0] = 0;
    h->nline = 0;
}
/* Consumes from *p up to end; HP_BODY hands out a piece of the body. */
enum hp_event hp_next(struct hp *h, const char **p, const char *end, struct span *body);
enum hp_event hp_eof(struct hp *h);

/* ---- object content (content.c) ----------------------------------------------------------------- */

#define TAIL 32u /* the last bytes of an object are unique to its key */
struct content {
    uint64_t hash;
    size_t size, lead;        /* lead = size - tail length */
    const unsigned char *win; /* lead bytes in the shared pattern */
    uint32_t iwin, isize;
    unsigned char tail[TAIL];
    uint32_t ntail;
};
void content_init(bool with_hashes);
void content_for(struct content *o, const char *key, size_t n);
bool content_check(const struct content *o, size_t pos, const char *p, size_t n);
void content_sha(const struct content *o, char out[64]);
void content_part_sha(const struct content *o, size_t part, char out[64]);

/* ---- configuration -------------------------------------------------------------------------------- */

#define MAX_SIZES 32u
struct cfg {
    const char *endpoint, *host; /* host: the value of the Host header */
    char addr_host[256], addr_port[8];
    const char *access, *secret, *region, *service, *bearer;
    bool sign, unsigned_payload;
    uint32_t threads, conns;
    double duration, warmup, rate, timeout;
    uint64_t count;
    bool json, verify, prepare, exist_ok;
    uint64_t seed, max_errors;
    struct buf headers; /* extra header lines, each with CRLF */
    /* S3 */
    const char *bucket, *prefix, *size_text, *delimiter;
    size_t sizes[MAX_SIZES];
    uint32_t nsizes;
    size_t part_size;
    uint64_t objects; /* 0: not given */
    uint32_t dirs, max_keys;
    bool seq_keys;
    uint32_t ratio[4]; /* get put head delete */
    /* catalog */
    const char *cat_path, *warehouse, *cat_prefix, *ns, *table_prefix;
    uint32_t tables, page_size, max_retries;
    double backoff_ms;
    bool one_table, append, if_none_match, create_warehouse;
};
extern struct cfg g;
extern atomic_int g_stop;

/* ---- engine (engine.c) ------------------------------------------------------------------------------ */

enum kind {
    K_GET,
    K_PUT,
    K_HEAD,
    K_DELETE,
    K_LIST,
    K_MPU,
    K_MPU_CREATE,
    K_MPU_PART,
    K_MPU_COMPLETE,
    K_MPU_ABORT,
    K_TCREATE,
    K_TLOAD,
    K_COMMIT,
    K_TLIST,
    K_TDROP,
    K_RELOAD,
    K_N
};
extern const char *const kind_name[K_N];

enum { E_CONNECT, E_CONN, E_TIMEOUT, E_PROTO, E_VERIFY, E_BODY, E_N };
extern const char *const err_name[E_N];

struct stats {
    struct hist lat[K_N];
    uint64_t ok[K_N], bytes[K_N]; /* inside the measured window */
    uint64_t requests;            /* HTTP answers inside the window, of any status */
    uint64_t drained;             /* ended after the window: in the latencies, not in the rates */
    uint64_t http[600], other[E_N];
    uint64_t keys, conflicts, not_modified, reconnects, resent, missed;
    struct hist lag; /* open loop: send time - intended time, when a connection was free */
    uint64_t t_last;
    uint64_t starved; /* ns that threads were ready to run but had no core */
};

enum body_mode { B_DISCARD, B_KEEP, B_VERIFY };
enum conn_state { C_DOWN, C_CONNECTING, C_UP };

struct table {
    char uuid[40];
    char *location;
    int64_t snapshot, last_seq, seq0; /* snapshot -1: none; seq0: last_seq before the run */
    int64_t schema_id, version;
    uint64_t nsnap, acked;
    char *etag;
};

struct conn {
    int fd;
    uint32_t id; /* over all threads */
    enum conn_state st;
    bool busy, want_out, reused;
    uint32_t resends;
    uint64_t t_op, t_req;
    uint64_t t_wake, delay; /* waiting until t_wake (0: not); delay: what done() asks for before the next step */
    /* the request */
    enum kind kind;
    const char *method, *ctype;
    struct buf path, query, body, extra; /* path and query as on the wire */
    char sha[64];
    struct span payload_hash; /* the value of x-amz-content-sha256 */
    size_t big_len;           /* bytes from the shared pattern, sent after the header ... */
    const unsigned char *big;
    uint32_t tail_off, tail_len; /* ... and then this piece of obj.tail */
    struct buf out;
    size_t sent;
    struct content obj;
    /* the answer */
    struct hp hp;
    enum body_mode mode;
    struct buf in;
    uint64_t rx;
    bool bad_content;
    int status; /* for done(): 0 when the connection failed (already counted) */
    /* state of operations with more than one step */
    uint32_t step, retries, parts, rec;
    uint64_t idx, listed, commits;
    bool has_view;
    struct buf token, last, scratch;
    struct table view;
    int64_t new_snap;
};

struct rec { /* mixed: one object of the pool */
    uint64_t idx;
    uint32_t refs, pos;
};

struct thr {
    uint32_t id;
    int ep;
    char *rbuf;
    struct conn *conns;
    uint32_t nconns, nbusy, nfree, nwait;
    struct conn **freelist;
    uint64_t t_free_since, arrivals, rng;
    bool draining, exhausted, opened, closed;
    uint64_t starved0;
    struct signer sig;
    struct buf canon;
    struct stats *s;
    struct rec *recs;
    uint32_t *pool, nrecs, caprecs, npool;
};

struct op {
    const char *name;
    unsigned primary;                                    /* bit mask of kinds that make the headline */
    bool catalog, finish;                                /* finish: a started operation is completed after the end of the window */
    bool (*next)(struct thr *, struct conn *);           /* fills the request; false: nothing left */
    bool (*done)(struct thr *, struct conn *, uint64_t); /* true: the operation goes on */
    void (*setup)(void);
    bool (*check)(void); /* after the run, with --verify */
};

struct phase {
    const struct op *op;
    double duration, warmup, rate;
    uint64_t count;
    /* filled by the run */
    struct stats *s;
    double seconds, cpu_user, cpu_sys;
    uint64_t t_start, t_meas;
    atomic_uint_fast64_t t_end, tickets, index, errors;
    bool stopped;
};

void phase_run(struct phase *ph);
uint64_t stats_errors(const struct stats *s);

/* for the operations */
void rq_begin(struct conn *c, enum kind k, const char *method, enum body_mode mode);
void rq_hash_body(struct conn *c);
void rq_build(struct thr *t, struct conn *c, time_t sec); /* head, signature and small body into c->out */
bool rq_ok(struct thr *t, struct conn *c);                /* 2xx? otherwise counts the error */
void rq_error(struct thr *t, struct conn *c, int which, const char *what);
void rq_record(struct thr *t, enum kind k, uint64_t t0, uint64_t now, uint64_t bytes);
void rq_keys(struct thr *t, uint64_t now, uint64_t n);
uint64_t rq_index(void); /* 0, 1, 2, ... over all threads of the phase */
/* One request on a connection of its own, for preparation; returns the status. */
int rq_once(const char *method, const char *path, const char *query, const char *ctype, const char *body, struct buf *answer);

extern const struct op ops_s3[], ops_cat[];
extern const size_t nops_s3, nops_cat;
extern const struct op op_put_fill, op_tcreate_fill, op_resolve;
void cat_config(void);
void cat_namespace(void);
bool cat_has_etags(void);

int self_test(const char *dir);

#endif
