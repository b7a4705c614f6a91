/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The log: one line an event, written with one write(2), as text for a person or as one JSON object.
 *
 *   JSON:  {"time":"2026-01-02T03:04:05.678Z","level":"info","event":"drive offline","drive":"/d1"}
 *   human: 2026-01-02T03:04:05.678Z INFO drive offline drive=/d1
 *
 * Invariant 1: a line has at most TARN_LOG_LINE_MAX bytes with its newline; a value that doesn't fit is cut between two
 * characters, and the line stays well-formed (the bytes that close it are kept free from the start).
 * Invariant 2: no byte of a value can end the line, leave its quotes or reach a terminal as a control sequence.
 * Memory: the line is built in a buffer of the thread (fibers have small stacks; nothing switches while it is in use).
 * Threads: any. Writers share target_lock; opening takes it alone.
 */
#include "tarn/base.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#define LOG_FILE_MODE 0640
#define LOG_CLOSE_BYTES 3  /* "}\n behind a cut value */
#define LOG_ESCAPE_BYTES 8 /* the longest thing that one character becomes */
#define LOG_PAIRS_MAX 64
#define LOG_TEXT_BYTES_MAX 4096

static pthread_rwlock_t target_lock = PTHREAD_RWLOCK_INITIALIZER;
static int target_fd = STDERR_FILENO;
static char *target_path; /* NULL: standard error */
static _Atomic int min_level = TARN_LOG_INFO;
static _Atomic int chosen_format = TARN_LOG_AUTO;

static _Thread_local char line_mem[TARN_LOG_LINE_MAX + 1]; /* the builder's NUL comes on top */
static _Thread_local char text_mem[LOG_TEXT_BYTES_MAX];

static int open_target(const char *path)
{
    return open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOCTTY, LOG_FILE_MODE);
}

/* Puts `fd` in the place of the open target (which keeps its number when it is a file of ours). Lock held. */
static tarn_err replace_target(int fd)
{
    if (target_fd == STDERR_FILENO || fd == STDERR_FILENO) {
        if (target_fd != STDERR_FILENO) {
            (void)close(target_fd);
        }
        target_fd = fd;
        return TARN_OK;
    }
    int rc = dup3(fd, target_fd, O_CLOEXEC);
    int saved = errno;
    (void)close(fd);
    return rc < 0 ? tarn_err_from_errno(saved) : TARN_OK;
}

static tarn_log_format resolve(tarn_log_format format, int fd)
{
    if (format != TARN_LOG_AUTO) {
        return format;
    }
    return isatty(fd) ? TARN_LOG_HUMAN : TARN_LOG_JSON;
}

tarn_err tarn_log_open(const char *path, tarn_log_format format, tarn_log_level min)
{
    bool is_file = path && !tarn_str_eqc(tarn_str_of(path), "-");
    char *copy = NULL;
    int fd = STDERR_FILENO;
    if (is_file) {
        copy = tarn_strdup(tarn_str_of(path));
        if (!copy) {
            return TARN_E_NO_MEMORY;
        }
        fd = open_target(copy);
        if (fd < 0) {
            tarn_err e = tarn_err_from_errno(errno);
            tarn_free(copy);
            return e;
        }
    }
    tarn_log_format resolved = resolve(format, fd);
    TARN_ASSERT(pthread_rwlock_wrlock(&target_lock) == 0);
    tarn_err e = replace_target(fd);
    if (e == TARN_OK) {
        tarn_free(target_path);
        target_path = copy;
        copy = NULL;
        atomic_store(&min_level, (int)min);
        atomic_store(&chosen_format, (int)resolved);
    }
    TARN_ASSERT(pthread_rwlock_unlock(&target_lock) == 0);
    tarn_free(copy);
    return e;
}

void tarn_log_reopen(void)
{
    int open_errno = 0;
    tarn_err e = TARN_OK;
    TARN_ASSERT(pthread_rwlock_wrlock(&target_lock) == 0);
    if (target_path) {
        int fd = open_target(target_path);
        open_errno = fd < 0 ? errno : 0;
        e = fd < 0 ? tarn_err_from_errno(open_errno) : replace_target(fd);
    }
    TARN_ASSERT(pthread_rwlock_unlock(&target_lock) == 0);
    if (e != TARN_OK) { /* the old file stays open: no line is lost */
        tarn_log(TARN_LOG_ERROR, "log not reopened", "error", open_errno != 0 ? strerrordesc_np(open_errno) : tarn_err_get(e)->message,
                 NULL);
    }
}

bool tarn_log_enabled(tarn_log_level level)
{
    return (int)level >= atomic_load_explicit(&min_level, memory_order_relaxed);
}

/* ------------------------------------------------------------------ one line */
typedef struct line {
    tarn_sb b;
    bool json;
    bool full; /* something was cut: nothing more is put in */
} line;

static bool line_has(const line *l, size_t n)
{
    return l->b.max - l->b.n >= n + LOG_CLOSE_BYTES;
}

/* How many bytes of `s` make one good UTF-8 character of more than one byte, or 0. */
static size_t wide_char_bytes(tarn_str s)
{
    for (size_t n = 2; n <= 4 && n <= s.n; n++) {
        if (tarn_str_utf8_valid((tarn_str){s.p, n})) {
            return n;
        }
    }
    return 0;
}

/* Puts the first character of `s` so that it is harmless between quotes; returns the bytes it took from `s`. */
static size_t put_escaped(line *l, tarn_str s)
{
    uint8_t c = (uint8_t)s.p[0];
    if (c >= 0x80) {
        size_t n = wide_char_bytes(s);
        if (n == 0) {
            tarn_sb_cstr(&l->b, "\\ufffd");
            return 1;
        }
        if (c == 0xC2 && (uint8_t)s.p[1] < 0xA0) { /* C1 controls: a terminal obeys them */
            tarn_sb_fmt(&l->b, "\\u%04x", (unsigned)(uint8_t)s.p[1]);
        } else {
            tarn_sb_bytes(&l->b, s.p, n);
        }
        return n;
    }
    if (c == '"' || c == '\\') {
        tarn_sb_char(&l->b, '\\');
        tarn_sb_char(&l->b, (char)c);
    } else if (c == '\n') {
        tarn_sb_cstr(&l->b, "\\n");
    } else if (c < 0x20 || c == 0x7F) {
        tarn_sb_fmt(&l->b, "\\u%04x", (unsigned)c);
    } else {
        tarn_sb_char(&l->b, (char)c);
    }
    return 1;
}

static void put_text(line *l, tarn_str s)
{
    while (s.n > 0) {
        if (!line_has(l, LOG_ESCAPE_BYTES)) {
            l->full = true;
            return;
        }
        size_t took = put_escaped(l, s);
        s = tarn_str_sub(s, took, s.n);
    }
}

/* In the human form a plain word stands without quotes. */
static bool is_plain(tarn_str s)
{
    for (size_t i = 0; i < s.n; i++) {
        uint8_t c = (uint8_t)s.p[i];
        if (c <= ' ' || c >= 0x7F || c == '"' || c == '\\' || c == '=') {
            return false;
        }
    }
    return s.n > 0;
}

static void put_pair(line *l, const char *key, const char *value)
{
    tarn_str k = tarn_str_of(key);
    tarn_str v = value ? tarn_str_of(value) : TARN_STR("(null)");
    if (l->full || !line_has(l, k.n + 2 * LOG_ESCAPE_BYTES)) { /* a pair without room for the start of its value is left out */
        l->full = true;
        return;
    }
    bool quoted = l->json || !is_plain(v);
    tarn_sb_cstr(&l->b, l->json ? ",\"" : " ");
    tarn_sb_str(&l->b, k);
    tarn_sb_cstr(&l->b, l->json ? "\":" : "=");
    if (quoted) {
        tarn_sb_char(&l->b, '"');
    }
    put_text(l, v);
    if (quoted) {
        tarn_sb_char(&l->b, '"');
    }
}

static void line_begin(line *l, tarn_log_level level, const char *event)
{
    static const char *const names[] = {"debug", "info", "warn", "error"};
    static const char *const shouted[] = {"DEBUG", "INFO", "WARN", "ERROR"};
    TARN_ASSERT((unsigned)level < TARN_ARRAY_LEN(names));
    int format = atomic_load_explicit(&chosen_format, memory_order_relaxed);
    if (format == TARN_LOG_AUTO) { /* nobody has opened the log yet */
        format = (int)resolve(TARN_LOG_AUTO, STDERR_FILENO);
    }
    l->json = format == TARN_LOG_JSON;
    l->full = false;
    tarn_sb_init_fixed(&l->b, line_mem, sizeof line_mem);
    if (l->json) {
        tarn_sb_cstr(&l->b, "{\"time\":\"");
        tarn_sb_iso8601_ms(&l->b, tarn_now_ms());
        tarn_sb_fmt(&l->b, "\",\"level\":\"%s\",\"event\":\"", names[level]);
        put_text(l, tarn_str_of(event));
        tarn_sb_char(&l->b, '"');
    } else {
        tarn_sb_iso8601_ms(&l->b, tarn_now_ms());
        tarn_sb_fmt(&l->b, " %s ", shouted[level]);
        put_text(l, tarn_str_of(event));
    }
}

static void line_end(line *l)
{
    tarn_sb_cstr(&l->b, l->json ? "}\n" : "\n");
    TARN_ASSERT(!l->b.failed && l->b.n <= TARN_LOG_LINE_MAX);
    TARN_ASSERT(pthread_rwlock_rdlock(&target_lock) == 0);
    ssize_t n;
    do {
        n = write(target_fd, l->b.p, l->b.n);
    } while (n < 0 && errno == EINTR);
    /* A log that can't be written (a full disk, a closed pipe) must not stop the server, and there is nowhere to say so. */
    TARN_ASSERT(pthread_rwlock_unlock(&target_lock) == 0);
}

void tarn_log(tarn_log_level level, const char *event, ...)
{
    if (!tarn_log_enabled(level)) {
        return;
    }
    int saved = errno;
    line l;
    line_begin(&l, level, event);
    va_list ap;
    va_start(ap, event);
    for (unsigned i = 0; i < LOG_PAIRS_MAX; i++) {
        const char *key = va_arg(ap, const char *);
        if (!key) {
            break;
        }
        put_pair(&l, key, va_arg(ap, const char *));
    }
    va_end(ap);
    line_end(&l);
    errno = saved;
}

void tarn_logf(tarn_log_level level, const char *event, const char *fmt, ...)
{
    if (!tarn_log_enabled(level)) {
        return;
    }
    int saved = errno;
    tarn_sb text;
    tarn_sb_init_fixed(&text, text_mem, sizeof text_mem);
    va_list ap;
    va_start(ap, fmt);
    tarn_sb_vfmt(&text, fmt, ap);
    va_end(ap);
    line l;
    line_begin(&l, level, event);
    put_pair(&l, "message", text.failed ? "(the text is too long)" : text.p);
    line_end(&l);
    errno = saved;
}
