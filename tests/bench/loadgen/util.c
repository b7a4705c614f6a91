/* SPDX-License-Identifier: Apache-2.0 */
#include "lg.h"

void die(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    fputs("loadgen: ", stderr);
    vfprintf(stderr, fmt, ap);
    fputc('\n', stderr);
    va_end(ap);
    exit(2);
}

void *xalloc(size_t n)
{
    void *p = calloc(1, n ? n : 1);
    if (!p)
        die("out of memory (%zu bytes)", n);
    return p;
}

void *xrealloc(void *p, size_t n)
{
    p = realloc(p, n);
    if (!p)
        die("out of memory (%zu bytes)", n);
    return p;
}

void buf_grow(struct buf *b, size_t extra)
{
    size_t want = b->len + extra, cap = b->cap ? b->cap : 256;
    while (cap < want)
        cap *= 2;
    if (cap != b->cap) {
        b->p = xrealloc(b->p, cap);
        b->cap = cap;
    }
}

void buf_fmt(struct buf *b, const char *fmt, ...)
{
    buf_grow(b, 64);
    for (;;) {
        size_t room = b->cap - b->len;
        va_list ap;
        va_start(ap, fmt);
        int n = vsnprintf(b->p + b->len, room, fmt, ap);
        va_end(ap);
        if (n < 0)
            die("bad format");
        if ((size_t)n < room) {
            b->len += (size_t)n;
            return;
        }
        buf_grow(b, (size_t)n + 1);
    }
}

void buf_uri(struct buf *b, const char *s, size_t n, bool keep_slash)
{
    static const char up[] = "0123456789ABCDEF";
    for (size_t i = 0; i < n; i++) {
        unsigned char ch = (unsigned char)s[i];
        bool plain = (ch >= 'A' && ch <= 'Z') || (ch >= 'a' && ch <= 'z') || (ch >= '0' && ch <= '9') || ch == '-' || ch == '.' ||
                     ch == '_' || ch == '~' || (keep_slash && ch == '/');
        if (plain) {
            buf_add(b, &s[i], 1);
        } else {
            char e[3] = {'%', up[ch >> 4], up[ch & 15]};
            buf_add(b, e, 3);
        }
    }
}

uint64_t hash64(const void *p, size_t n, uint64_t seed)
{
    const unsigned char *s = p;
    uint64_t h = mix64(seed ^ (0x9e3779b97f4a7c15u * (n + 1)));
    while (n >= 8) {
        uint64_t w;
        memcpy(&w, s, 8);
        h = mix64(h ^ w) + 0x9e3779b97f4a7c15u;
        s += 8;
        n -= 8;
    }
    uint64_t w = 0;
    memcpy(&w, s, n);
    return mix64(h ^ w);
}

void hex(char *out, const unsigned char *in, size_t n)
{
    static const char lo[] = "0123456789abcdef";
    for (size_t i = 0; i < n; i++) {
        out[2 * i] = lo[in[i] >> 4];
        out[2 * i + 1] = lo[in[i] & 15];
    }
}

/* ---- histogram ---- */

uint64_t hist_value(const struct hist *h, double q)
{
    if (h->n == 0)
        return 0;
    double want = q * (double)h->n;
    uint64_t rank = (uint64_t)want;
    if ((double)rank < want)
        rank++;
    if (rank < 1)
        rank = 1;
    if (rank >= h->n)
        return h->max;
    uint64_t seen = 0;
    for (uint32_t i = 0; i < HIST_N; i++) {
        seen += h->b[i];
        if (seen >= rank) {
            uint64_t v = i;
            if (i >= 2 * HIST_SUB) {
                uint32_t shift = i / HIST_SUB - 1;
                v = ((uint64_t)(i % HIST_SUB + HIST_SUB) << shift) + ((UINT64_C(1) << shift) >> 1);
            }
            return v < h->max ? v : h->max;
        }
    }
    return h->max;
}

void hist_merge(struct hist *to, const struct hist *from)
{
    for (uint32_t i = 0; i < HIST_N; i++)
        to->b[i] += from->b[i];
    to->n += from->n;
    to->sum += from->sum;
    if (from->max > to->max)
        to->max = from->max;
}

/* ---- JSON: enough to read one answer ---- */

static const char *js_ws(const char *p, const char *e)
{
    while (p < e && (*p == ' ' || *p == '\t' || *p == '\n' || *p == '\r'))
        p++;
    return p;
}

static const char *js_string(const char *p, const char *e) /* at the opening quote; returns past the closing one, NULL when broken */
{
    for (p++; p < e; p++) {
        if (*p == '\\')
            p++;
        else if (*p == '"')
            return p + 1;
    }
    return NULL;
}

static const char *js_skip(const char *p, const char *e) /* past one value */
{
    int depth = 0;
    do {
        p = js_ws(p, e);
        if (p >= e)
            return NULL;
        if (*p == '"') {
            p = js_string(p, e);
            if (!p)
                return NULL;
        } else if (*p == '{' || *p == '[') {
            depth++;
            p++;
        } else if (*p == '}' || *p == ']') {
            depth--;
            p++;
        } else if (*p == ',' || *p == ':') {
            if (depth == 0)
                return NULL;
            p++;
        } else {
            while (p < e && !strchr(",:]}[{\" \t\r\n", *p))
                p++;
        }
    } while (depth > 0);
    return depth == 0 ? p : NULL;
}

bool json_get(struct span doc, const char *path, struct span *out)
{
    const char *p = doc.p, *e = doc.p + doc.n;
    while (*path) {
        size_t klen = strcspn(path, "/");
        bool found = false;
        p = js_ws(p, e);
        if (p >= e || *p != '{')
            return false;
        for (p++; !found;) {
            p = js_ws(p, e);
            if (p < e && *p == ',')
                p = js_ws(p + 1, e);
            if (p >= e || *p != '"')
                return false;
            const char *k = p + 1;
            p = js_string(p, e);
            if (!p)
                return false;
            found = (size_t)(p - 1 - k) == klen && memcmp(k, path, klen) == 0;
            p = js_ws(p, e);
            if (p >= e || *p != ':')
                return false;
            p = js_ws(p + 1, e);
            if (!found && !(p = js_skip(p, e)))
                return false;
        }
        path += klen + (path[klen] == '/');
    }
    const char *end = js_skip(p, e);
    if (!end)
        return false;
    if (*p == '"')
        *out = (struct span){p + 1, (size_t)(end - p - 2)};
    else
        *out = (struct span){p, (size_t)(end - p)};
    return true;
}

size_t json_array_len(struct span v)
{
    const char *p = v.p, *e = v.p + v.n;
    size_t n = 0;
    if (v.n < 2 || *p != '[')
        return 0;
    for (p = js_ws(p + 1, e); p && p < e && *p != ']'; p = js_ws(p, e)) {
        if (*p == ',') {
            p++;
            continue;
        }
        n++;
        if (!(p = js_skip(p, e)))
            break;
    }
    return n;
}

static void buf_utf8(struct buf *b, unsigned long u)
{
    char c[4];
    if (u < 0x80) {
        c[0] = (char)u;
        buf_add(b, c, 1);
    } else if (u < 0x800) {
        c[0] = (char)(0xc0 | (u >> 6));
        c[1] = (char)(0x80 | (u & 63));
        buf_add(b, c, 2);
    } else {
        c[0] = (char)(0xe0 | ((u >> 12) & 15));
        c[1] = (char)(0x80 | ((u >> 6) & 63));
        c[2] = (char)(0x80 | (u & 63));
        buf_add(b, c, 3);
    }
}

void json_unescape(struct buf *b, struct span raw)
{
    for (size_t i = 0; i < raw.n; i++) {
        char ch = raw.p[i];
        if (ch != '\\' || i + 1 >= raw.n) {
            buf_add(b, &ch, 1);
            continue;
        }
        ch = raw.p[++i];
        switch (ch) {
        case 'n':
            ch = '\n';
            break;
        case 't':
            ch = '\t';
            break;
        case 'r':
            ch = '\r';
            break;
        case 'b':
            ch = '\b';
            break;
        case 'f':
            ch = '\f';
            break;
        case 'u':
            if (i + 4 < raw.n) {
                char h[5] = {raw.p[i + 1], raw.p[i + 2], raw.p[i + 3], raw.p[i + 4], 0};
                buf_utf8(b, strtoul(h, NULL, 16));
                i += 4;
            }
            continue;
        default:
            break;
        }
        buf_add(b, &ch, 1);
    }
}

void xml_unescape(struct buf *b, struct span raw)
{
    static const struct {
        const char *e;
        char c;
    } ent[] = {{"&amp;", '&'}, {"&lt;", '<'}, {"&gt;", '>'}, {"&quot;", '"'}, {"&apos;", '\''}};
    for (size_t i = 0; i < raw.n; i++) {
        char ch = raw.p[i];
        if (ch == '&') {
            for (size_t k = 0; k < sizeof ent / sizeof *ent; k++) {
                size_t n = strlen(ent[k].e);
                if (raw.n - i >= n && memcmp(raw.p + i, ent[k].e, n) == 0) {
                    ch = ent[k].c;
                    i += n - 1;
                    break;
                }
            }
            if (ch == '&' && raw.n - i >= 4 && raw.p[i + 1] == '#') {
                const char *semi = memchr(raw.p + i, ';', raw.n - i);
                if (semi) {
                    bool x = raw.p[i + 2] == 'x';
                    buf_utf8(b, strtoul(raw.p + i + 2 + x, NULL, x ? 16 : 10));
                    i = (size_t)(semi - raw.p);
                    continue;
                }
            }
        }
        buf_add(b, &ch, 1);
    }
}

bool xml_text(struct span doc, const char *tag, struct span *out)
{
    char open[64];
    int n = snprintf(open, sizeof open, "<%s>", tag);
    if (n < 0 || (size_t)n >= sizeof open)
        return false;
    const char *p = memmem(doc.p, doc.n, open, (size_t)n);
    if (!p)
        return false;
    p += n;
    const char *e = memchr(p, '<', (size_t)(doc.p + doc.n - p));
    if (!e)
        return false;
    *out = (struct span){p, (size_t)(e - p)};
    return true;
}
