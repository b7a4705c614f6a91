/* SPDX-License-Identifier: Apache-2.0 */
/*
 * base: what every other module stands on. Byte slices, arenas with a hard maximum, the one bounded string builder,
 * the one error table, the log, the clock and random seams, and an intrusive list.
 *
 * Ownership: a tarn_str never owns its bytes. An arena owns everything allocated from it and is freed at once.
 * Threads: nothing here is shared between threads but the log, the clock and the random seam, which are safe from any.
 * Allocation: tarn_malloc/tarn_calloc/tarn_realloc/tarn_free are the seam (fault tests replace it); nobody calls malloc.
 */
#ifndef TARN_BASE_H
#define TARN_BASE_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TARN_ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))
#define TARN_CONTAINER_OF(ptr, type, member) ((type *)(void *)((char *)(ptr)-offsetof(type, member)))
#define TARN_PRINTF(f, a) __attribute__((format(printf, f, a)))
#define TARN_UNUSED __attribute__((unused))

/* Asserts stay on in release: an invariant that is broken ends the process before it can damage data. */
_Noreturn void tarn_panic(const char *file, int line, const char *what);
#define TARN_ASSERT(cond) ((cond) ? (void)0 : tarn_panic(__FILE__, __LINE__, #cond))

/* ------------------------------------------------------------------ errors */
/* One table for the whole program: errors.def. Every function that can fail returns tarn_err; TARN_OK is 0. */
typedef enum tarn_err {
    TARN_OK = 0,
#define TARN_ERR(name, status, s3_code, iceberg_type, message) TARN_E_##name,
#include "tarn/errors.def"
#undef TARN_ERR
    TARN_ERR_COUNT
} tarn_err;

typedef struct tarn_err_info {
    const char *name;         /* "NO_SUCH_KEY" */
    int http_status;          /* 404 */
    const char *s3_code;      /* "NoSuchKey" */
    const char *iceberg_type; /* "NotFoundException" */
    const char *message;      /* default text for a person */
} tarn_err_info;
/* Never NULL; an unknown value yields INTERNAL's row. */
const tarn_err_info *tarn_err_get(tarn_err e);
/* Maps a positive errno to a tarn_err (ENOENT → NOT_FOUND, ENOSPC/EDQUOT → DISK_FULL, ENOMEM → NO_MEMORY, EROFS →
 * DRIVE_READ_ONLY, anything else → IO). */
tarn_err tarn_err_from_errno(int errno_value);

/* ------------------------------------------------------------------ slices */
typedef struct tarn_str {
    const char *p; /* not NUL-terminated; may be NULL only where n == 0 */
    size_t n;      /* bytes */
} tarn_str;

typedef struct tarn_pair {
    tarn_str name;
    tarn_str value;
} tarn_pair;

#define TARN_STR(literal) ((tarn_str){("" literal), sizeof(literal) - 1})
#define TARN_STR_NULL ((tarn_str){NULL, 0})
#define TARN_STR_ARG(s) ((int)(s).n), ((s).p ? (s).p : "") /* for "%.*s" */

tarn_str tarn_str_of(const char *cstr); /* NULL gives an empty slice */
bool tarn_str_eq(tarn_str a, tarn_str b);
bool tarn_str_eqc(tarn_str a, const char *b);
bool tarn_str_ieq(tarn_str a, tarn_str b); /* ASCII case folded */
bool tarn_str_ieqc(tarn_str a, const char *b);
int tarn_str_cmp(tarn_str a, tarn_str b); /* bytes, then length */
bool tarn_str_starts(tarn_str s, const char *prefix);
bool tarn_str_istarts(tarn_str s, const char *prefix);
bool tarn_str_ends(tarn_str s, const char *suffix);
tarn_str tarn_str_sub(tarn_str s, size_t from, size_t n); /* clamped */
tarn_str tarn_str_trim(tarn_str s);                       /* blanks and tabs at both ends */
ptrdiff_t tarn_str_chr(tarn_str s, char c);               /* index or -1 */
ptrdiff_t tarn_str_rchr(tarn_str s, char c);
ptrdiff_t tarn_str_find(tarn_str s, tarn_str needle);
/* Splits at the first `sep`: *head before it, *rest behind it (empty, p == NULL, when there is none). */
bool tarn_str_split(tarn_str s, char sep, tarn_str *head, tarn_str *rest);
bool tarn_str_utf8_valid(tarn_str s); /* RFC 3629: no overlongs, no surrogates, ≤ U+10FFFF */
/* Whole slice must be digits (no sign, no blank), 1 to 20 of them; false on overflow. */
bool tarn_str_to_u64(tarn_str s, uint64_t *out);
bool tarn_str_to_i64(tarn_str s, int64_t *out);  /* optional leading '-' */
bool tarn_hex_to_u64(tarn_str s, uint64_t *out); /* 1 to 16 hex digits */

/* ------------------------------------------------------------------ allocation seam */
void *tarn_malloc(size_t n);
void *tarn_calloc(size_t count, size_t size);
void *tarn_realloc(void *p, size_t n);
void tarn_free(void *p);
/* 64-byte or larger alignment; freed with tarn_free. */
void *tarn_aligned_alloc(size_t align, size_t n);
char *tarn_strdup(tarn_str s); /* NUL-terminated copy */
/* Overwrites with zeroes; never optimised away. */
void tarn_wipe(void *p, size_t n);
/* Tests: fail the nth allocation from now (0 = never), counted over all threads. */
void tarn_alloc_fail_after(uint64_t nth);
uint64_t tarn_alloc_count(void);
void tarn_alloc_spare(bool on); /* tests: the calling thread's allocations neither count nor fail */

/* ------------------------------------------------------------------ arena */
/* A bump allocator with a hard maximum; one per request. Not thread-safe. */
typedef struct tarn_arena tarn_arena;
tarn_arena *tarn_arena_new(size_t max_bytes);     /* NULL when out of memory */
void tarn_arena_free(tarn_arena *a);              /* NULL is fine */
void tarn_arena_reset(tarn_arena *a);             /* keeps the first block */
void *tarn_arena_alloc(tarn_arena *a, size_t n);  /* 16-byte aligned, uninitialised; NULL past the maximum */
void *tarn_arena_zalloc(tarn_arena *a, size_t n); /* zeroed */
size_t tarn_arena_used(const tarn_arena *a);
/* Copies; a NUL follows the bytes (not counted). Returns {NULL,0} when the arena is full. */
tarn_str tarn_arena_str(tarn_arena *a, tarn_str s);
char *tarn_arena_cstr(tarn_arena *a, tarn_str s); /* NULL when full or when s has a NUL in it */
#define TARN_ARENA_NEW(a, type) ((type *)tarn_arena_zalloc((a), sizeof(type)))
/* size * count zeroed bytes; NULL also when the product overflows. */
void *tarn_arena_array(tarn_arena *a, size_t size, size_t count);
#define TARN_ARENA_ARRAY(a, type, n) ((type *)tarn_arena_array((a), sizeof(type), (n)))
/* printf into the arena; {NULL,0} when full. */
tarn_str tarn_arena_fmt(tarn_arena *a, const char *fmt, ...) TARN_PRINTF(2, 3);

/* ------------------------------------------------------------------ string builder */
/*
 * The one way to put strings together. Grows up to max_bytes; past it (or out of memory) it turns `failed`, drops what
 * comes and stays failed: check once at the end. Always NUL-terminated behind the counted bytes while not failed.
 */
typedef struct tarn_sb {
    char *p;
    size_t n;   /* bytes in use */
    size_t cap; /* bytes there */
    size_t max;
    bool failed;
    bool fixed;     /* p belongs to the caller: never grown */
    bool no_memory; /* failed, and not because of max */
} tarn_sb;
void tarn_sb_init(tarn_sb *b, size_t max_bytes);                  /* heap, grows */
void tarn_sb_init_fixed(tarn_sb *b, char *mem, size_t mem_bytes); /* the caller's memory */
void tarn_sb_free(tarn_sb *b);
void tarn_sb_reset(tarn_sb *b);
void tarn_sb_str(tarn_sb *b, tarn_str s);
void tarn_sb_cstr(tarn_sb *b, const char *s);
void tarn_sb_char(tarn_sb *b, char c);
void tarn_sb_bytes(tarn_sb *b, const void *p, size_t n);
void tarn_sb_u64(tarn_sb *b, uint64_t v);
void tarn_sb_i64(tarn_sb *b, int64_t v);
void tarn_sb_hex(tarn_sb *b, const void *p, size_t n); /* lower case */
void tarn_sb_fmt(tarn_sb *b, const char *fmt, ...) TARN_PRINTF(2, 3);
void tarn_sb_vfmt(tarn_sb *b, const char *fmt, va_list ap) TARN_PRINTF(2, 0);
/* Formats into mem, which is NUL-terminated afterwards; what does not fit is replaced by `otherwise`. The text of a message. */
tarn_str tarn_str_vfmt(char *mem, size_t mem_bytes, const char *otherwise, const char *fmt, va_list ap) TARN_PRINTF(4, 0);
/* Room for n more bytes, or NULL (and failed). The caller fills all of it and adds n to b->n; the NUL behind is set already. */
char *tarn_sb_reserve(tarn_sb *b, size_t n);
tarn_str tarn_sb_view(const tarn_sb *b); /* empty when failed */
tarn_err tarn_sb_err(const tarn_sb *b);  /* OK, LIMIT or NO_MEMORY */
/* Little-endian fixed integers and length-prefixed strings: what every packed record is made of. */
void tarn_sb_le16(tarn_sb *b, uint16_t v);
void tarn_sb_le32(tarn_sb *b, uint32_t v);
void tarn_sb_le64(tarn_sb *b, uint64_t v);
void tarn_sb_varint(tarn_sb *b, uint64_t v); /* LEB128, at most 10 bytes */
void tarn_sb_lstr(tarn_sb *b, tarn_str s);   /* varint length, bytes */
/* The reader's side; a read past the end sets `failed` and yields zeroes. */
typedef struct tarn_rd {
    const uint8_t *p;
    size_t n; /* bytes left */
    bool failed;
} tarn_rd;
tarn_rd tarn_rd_of(tarn_str s);
uint8_t tarn_rd_u8(tarn_rd *r);
uint16_t tarn_rd_le16(tarn_rd *r);
uint32_t tarn_rd_le32(tarn_rd *r);
uint64_t tarn_rd_le64(tarn_rd *r);
uint64_t tarn_rd_varint(tarn_rd *r);
tarn_str tarn_rd_lstr(tarn_rd *r);
tarn_str tarn_rd_bytes(tarn_rd *r, size_t n);

/* ------------------------------------------------------------------ encodings */
/* RFC 4648. Decoders: strict alphabet and padding; return false on anything else. out_cap in bytes. */
void tarn_sb_base64(tarn_sb *b, const void *p, size_t n);
void tarn_sb_base64url(tarn_sb *b, const void *p, size_t n); /* no padding */
bool tarn_base64_decode(tarn_str s, uint8_t *out, size_t out_cap, size_t *out_n);
bool tarn_base64url_decode(tarn_str s, uint8_t *out, size_t out_cap, size_t *out_n);
bool tarn_hex_decode(tarn_str s, uint8_t *out, size_t out_n); /* exactly 2*out_n digits, either case */
/* RFC 3986 percent-encoding as SigV4 wants it: A-Za-z0-9-._~ stay, upper-case hex; '/' stays when keep_slash. */
void tarn_sb_urlencode(tarn_sb *b, tarn_str s, bool keep_slash);
/* Decodes %XX; '+' becomes a blank only when plus_is_blank. False for a broken escape. Result in the arena. */
bool tarn_urldecode(tarn_arena *a, tarn_str s, bool plus_is_blank, tarn_str *out);

/* ------------------------------------------------------------------ clock and random seams */
int64_t tarn_now_ms(void);           /* wall clock, ms since 1970 */
uint64_t tarn_mono_ns(void);         /* monotonic */
void tarn_random(void *p, size_t n); /* cryptographic, unless a test has seeded it */
uint64_t tarn_random_u64(void);
void tarn_clock_fake(bool on, int64_t now_ms); /* tests and simulation: fixed clock, moved by hand */
void tarn_clock_advance(uint64_t ns);
void tarn_clock_step(int64_t ms);     /* while fake: the wall clock alone jumps, either way; the monotonic one does not */
void tarn_random_seed(uint64_t seed); /* tests and simulation; 0 = back to the system's */
void tarn_uuid4(char out[37]);        /* lower case, NUL-terminated */
void tarn_uuid7(char out[37]);
/* Time texts, UTC. */
void tarn_sb_iso8601_ms(tarn_sb *b, int64_t ms);    /* 2026-01-02T03:04:05.678Z */
void tarn_sb_iso8601_s(tarn_sb *b, int64_t ms);     /* 2026-01-02T03:04:05Z */
void tarn_sb_http_date(tarn_sb *b, int64_t ms);     /* Fri, 02 Jan 2026 03:04:05 GMT */
void tarn_sb_amz_date(tarn_sb *b, int64_t ms);      /* 20260102T030405Z */
bool tarn_parse_iso8601(tarn_str s, int64_t *ms);   /* date or date-time, Z or ±hh:mm, optional fraction */
bool tarn_parse_http_date(tarn_str s, int64_t *ms); /* the three forms of RFC 9110 §5.6.7 */
bool tarn_parse_amz_date(tarn_str s, int64_t *ms);

/* ------------------------------------------------------------------ log */
typedef enum tarn_log_level { TARN_LOG_DEBUG, TARN_LOG_INFO, TARN_LOG_WARN, TARN_LOG_ERROR } tarn_log_level;
typedef enum tarn_log_format { TARN_LOG_AUTO, TARN_LOG_HUMAN, TARN_LOG_JSON } tarn_log_format;
/* path NULL or "-": standard error. AUTO: human on a terminal, else one JSON object a line. */
tarn_err tarn_log_open(const char *path, tarn_log_format format, tarn_log_level min);
void tarn_log_reopen(void); /* SIGHUP */
bool tarn_log_enabled(tarn_log_level level);
/* `event` is a short fixed phrase; key/value text pairs follow as C strings, closed by NULL:
 *   tarn_log(TARN_LOG_WARN, "drive offline", "drive", path, "error", strerror(e), NULL);
 * Never pass a secret, signature or token. Values are escaped; a line is at most TARN_LOG_LINE_MAX bytes. */
#define TARN_LOG_LINE_MAX 8192
void tarn_log(tarn_log_level level, const char *event, ...) __attribute__((sentinel));
/* The same with one formatted text. */
void tarn_logf(tarn_log_level level, const char *event, const char *fmt, ...) TARN_PRINTF(3, 4);

/* ------------------------------------------------------------------ intrusive doubly linked list */
typedef struct tarn_link {
    struct tarn_link *prev, *next;
} tarn_link;
void tarn_list_init(tarn_link *head);
bool tarn_list_empty(const tarn_link *head);
void tarn_list_push(tarn_link *head, tarn_link *item); /* at the end */
void tarn_list_remove(tarn_link *item);                /* a removed item points at itself: removing twice is harmless */
tarn_link *tarn_list_pop(tarn_link *head);             /* the first, or NULL */

/* ------------------------------------------------------------------ counters (one table: metrics.def) */
typedef enum tarn_metric {
#define TARN_METRIC(id, kind, name, help) TARN_M_##id,
#include "tarn/metrics.def"
#undef TARN_METRIC
    TARN_METRIC_COUNT
} tarn_metric;
void tarn_metric_add(tarn_metric m, int64_t delta); /* any thread; relaxed atomics */
void tarn_metric_set(tarn_metric m, int64_t value);
int64_t tarn_metric_get(tarn_metric m);
/* Prometheus text exposition of the whole table. */
void tarn_metrics_render(tarn_sb *b);

#endif
