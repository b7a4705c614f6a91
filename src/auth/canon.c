/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The pieces of a canonical request (s3.md §2.1, iceberg-rest.md §4.1): path, query and headers, each in the forms that
 * clients sign.
 *
 * Invariants: (1) everything is made from the bytes on the wire, never from something a router has normalised; (2) a piece
 * is never cut: when the arena is full it is {NULL,0} and the request fails.
 * Memory: the request's arena. Threads: the request's fiber.
 */
#include "auth_private.h"

#include <string.h>

static const char HEX_UPPER[] = "0123456789ABCDEF";

/* A-Z a-z 0-9 - . _ ~, one bit each. */
static inline bool unreserved(unsigned char c)
{
    static const uint32_t bits[8] = {0, 0x03ff6000, 0x87fffffe, 0x47fffffe, 0, 0, 0, 0};
    return (bits[c >> 5] >> (c & 31)) & 1;
}

static inline int hex_value(unsigned char c)
{
    if (c >= '0' && c <= '9') {
        return c - '0';
    }
    if (c >= 'A' && c <= 'F') {
        return c - 'A' + 10;
    }
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* The byte that stands at s.p[*i] (an escape is decoded), *i moves behind it. A broken escape is a '%' of its own. */
static inline unsigned char next_byte(tarn_str s, size_t *i)
{
    unsigned char c = (unsigned char)s.p[(*i)++];
    if (c == '%' && s.n - *i >= 2) {
        int hi = hex_value((unsigned char)s.p[*i]);
        int lo = hex_value((unsigned char)s.p[*i + 1]);
        if (hi >= 0 && lo >= 0) {
            *i += 2;
            return (unsigned char)(hi * 16 + lo);
        }
    }
    return c;
}

static inline char *put_escape(char *p, unsigned char c)
{
    p[0] = '%';
    p[1] = HEX_UPPER[c >> 4];
    p[2] = HEX_UPPER[c & 15];
    return p + 3;
}

/* Decodes once and encodes once; writes at most 3 * s.n bytes at p and returns the end. */
static char *recode(char *p, tarn_str s, bool keep_slash, bool plus_is_blank)
{
    for (size_t i = 0; i < s.n;) {
        bool literal_plus = s.p[i] == '+';
        unsigned char c = next_byte(s, &i);
        if (literal_plus && plus_is_blank) {
            c = ' ';
        }
        if (unreserved(c) || (c == '/' && keep_slash)) {
            *p++ = (char)c;
        } else {
            p = put_escape(p, c);
        }
    }
    return p;
}

/* ------------------------------------------------------------------ path */
static bool is_plain_path(tarn_str s)
{
    for (size_t i = 0; i < s.n; i++) {
        unsigned char c = (unsigned char)s.p[i];
        if (!unreserved(c) && c != '/') {
            return false;
        }
    }
    return true;
}

/* Removes empty, "." and ".." segments; a slash at the end stays. Writes at most s.n + 2 bytes. */
static char *normalise(char *out, tarn_str s)
{
    char *p = out;
    tarn_str rest = s;
    while (rest.n > 0) {
        tarn_str seg;
        tarn_str_split(rest, '/', &seg, &rest);
        if (tarn_str_eqc(seg, "..")) {
            while (p > out && *--p != '/') {
            }
        } else if (seg.n > 0 && !tarn_str_eqc(seg, ".")) {
            *p++ = '/';
            memcpy(p, seg.p, seg.n);
            p += seg.n;
        }
    }
    if (p == out || s.p[s.n - 1] == '/') {
        *p++ = '/';
    }
    return p;
}

static char *slashes_only(char *p, tarn_str s)
{
    for (size_t i = 0; i < s.n; i++) {
        if (s.p[i] == '%' && s.n - i > 2 && s.p[i + 1] == '2' && (s.p[i + 2] == 'F' || s.p[i + 2] == 'f')) {
            memcpy(p, "%25", 3);
            p += 3;
        } else {
            *p++ = s.p[i];
        }
    }
    return p;
}

static char *encode_again(char *p, tarn_str s)
{
    for (size_t i = 0; i < s.n; i++) {
        unsigned char c = (unsigned char)s.p[i];
        if (unreserved(c) || c == '/') {
            *p++ = (char)c;
        } else {
            p = put_escape(p, c);
        }
    }
    return p;
}

tarn_str auth_canon_path(tarn_arena *arena, tarn_str raw, auth_path_form form)
{
    if (raw.n == 0) {
        return TARN_STR("/");
    }
    if (form == AUTH_PATH_RAW || (form != AUTH_PATH_NORMALISE && form != AUTH_PATH_DOUBLE && is_plain_path(raw))) {
        return raw;
    }
    char *mem = tarn_arena_alloc(arena, 3 * raw.n + 2);
    if (!mem) {
        return TARN_STR_NULL;
    }
    char *end = mem;
    switch (form) {
    case AUTH_PATH_ONCE:
        end = recode(mem, raw, true, false);
        break;
    case AUTH_PATH_NORMALISE:
        end = normalise(mem, raw);
        break;
    case AUTH_PATH_DOUBLE: {
        char *norm = tarn_arena_alloc(arena, raw.n + 2);
        if (!norm) {
            return TARN_STR_NULL;
        }
        tarn_str n = {norm, (size_t)(normalise(norm, raw) - norm)};
        end = encode_again(mem, n);
        break;
    }
    case AUTH_PATH_SLASH:
        end = slashes_only(mem, raw);
        break;
    case AUTH_PATH_RAW:
        break;
    }
    return (tarn_str){mem, (size_t)(end - mem)};
}

/* ------------------------------------------------------------------ query */
tarn_err auth_query_parse(tarn_arena *arena, tarn_str raw, bool plus_is_blank, auth_query *out)
{
    *out = (auth_query){NULL, 0};
    if (raw.n == 0) {
        return TARN_OK;
    }
    size_t most = 1;
    for (size_t i = 0; i < raw.n; i++) {
        most += raw.p[i] == '&';
    }
    if (most > AUTH_QUERY_PARAMS_MAX) {
        return TARN_E_INVALID_ARGUMENT;
    }
    auth_param *v = tarn_arena_alloc(arena, most * sizeof *v);
    char *p = tarn_arena_alloc(arena, 3 * raw.n);
    if (!v || !p) {
        return TARN_E_NO_MEMORY;
    }
    size_t n = 0;
    tarn_str rest = raw;
    while (rest.n > 0) {
        tarn_str item;
        tarn_str value;
        tarn_str name;
        tarn_str_split(rest, '&', &item, &rest);
        if (item.n == 0) {
            continue;
        }
        tarn_str_split(item, '=', &name, &value);
        char *name_end = recode(p, name, false, plus_is_blank);
        char *value_end = recode(name_end, value, false, plus_is_blank);
        v[n++] = (auth_param){{p, (size_t)(name_end - p)}, {name_end, (size_t)(value_end - name_end)}};
        p = value_end;
    }
    *out = (auth_query){v, n};
    return TARN_OK;
}

size_t auth_query_find(const auth_query *q, const char *name, tarn_str *value)
{
    size_t found = 0;
    tarn_str wanted = tarn_str_of(name);
    *value = TARN_STR_NULL;
    for (size_t i = 0; i < q->n; i++) {
        if (tarn_str_eq(q->v[i].name, wanted)) {
            if (found++ == 0) {
                *value = q->v[i].value;
            }
        }
    }
    return found;
}

bool auth_query_decode(tarn_arena *arena, tarn_str encoded, tarn_str *out)
{
    if (tarn_str_chr(encoded, '%') < 0) {
        *out = encoded;
        return true;
    }
    return tarn_urldecode(arena, encoded, false, out);
}

static int param_cmp(const auth_param *a, const auth_param *b)
{
    int c = tarn_str_cmp(a->name, b->name);
    return c != 0 ? c : tarn_str_cmp(a->value, b->value);
}

/* Insertion: queries are short, bounded, and mostly in order already. Stable when by_name. */
static void sort_params(auth_param *v, size_t n, bool by_name)
{
    for (size_t i = 1; i < n; i++) {
        auth_param x = v[i];
        size_t j = i;
        for (; j > 0 && (by_name ? tarn_str_cmp(v[j - 1].name, x.name) : param_cmp(&v[j - 1], &x)) > 0; j--) {
            v[j] = v[j - 1];
        }
        v[j] = x;
    }
}

/* Copies what takes part in the form; sorted. Returns how many. */
static size_t select_params(const auth_query *q, auth_query_form form, auth_param *v, size_t *bytes)
{
    size_t n = 0;
    for (size_t i = 0; i < q->n; i++) {
        bool drop = tarn_str_eqc(q->v[i].name, "X-Amz-Signature") || (form == AUTH_QUERY_DICT && q->v[i].value.n == 0);
        if (!drop) {
            v[n++] = q->v[i];
        }
    }
    sort_params(v, n, form == AUTH_QUERY_DICT);
    size_t kept = 0;
    *bytes = 0;
    for (size_t i = 0; i < n; i++) {
        if (form == AUTH_QUERY_DICT && i + 1 < n && tarn_str_eq(v[i].name, v[i + 1].name)) {
            continue; /* a later value of the same name counts */
        }
        v[kept] = v[i];
        *bytes += v[kept].name.n + v[kept].value.n + 2;
        kept++;
    }
    return kept;
}

tarn_str auth_canon_query(tarn_arena *arena, const auth_query *q, auth_query_form form)
{
    if (q->n == 0) {
        return TARN_STR("");
    }
    auth_param *v = tarn_arena_alloc(arena, q->n * sizeof *v);
    if (!v) {
        return TARN_STR_NULL;
    }
    size_t bytes = 0;
    size_t n = select_params(q, form, v, &bytes);
    char *mem = tarn_arena_alloc(arena, bytes + 1);
    if (!mem) {
        return TARN_STR_NULL;
    }
    char *p = mem;
    for (size_t i = 0; i < n; i++) {
        if (i > 0) {
            *p++ = '&';
        }
        memcpy(p, v[i].name.p, v[i].name.n);
        p += v[i].name.n;
        *p++ = '=';
        memcpy(p, v[i].value.p, v[i].value.n);
        p += v[i].value.n;
    }
    return (tarn_str){mem, (size_t)(p - mem)};
}

/* ------------------------------------------------------------------ headers */
/* The characters of a header's name (RFC 9110 token) but for capitals; ':' for :authority. */
static inline bool name_char(char c)
{
    return (c >= 'a' && c <= 'z') || c == '-' || (c >= '0' && c <= '9') || (c != '\0' && strchr("_.!#$%&'*+^`|~:", c) != NULL);
}

static bool header_name_valid(tarn_str n)
{
    if (n.n == 0) {
        return false;
    }
    for (size_t i = 0; i < n.n; i++) {
        if (!name_char(n.p[i])) {
            return false;
        }
    }
    return true;
}

bool auth_names_parse(tarn_arena *arena, tarn_str list, auth_names *out)
{
    size_t most = 1;
    for (size_t i = 0; i < list.n; i++) {
        most += list.p[i] == ';';
    }
    *out = (auth_names){NULL, 0, list};
    if (most > AUTH_SIGNED_HEADERS_MAX) {
        return false;
    }
    out->v = tarn_arena_alloc(arena, most * sizeof *out->v);
    if (!out->v) {
        return true; /* the caller sees the NULL */
    }
    bool sorted = true;
    tarn_str rest = list;
    for (size_t i = 0; i < most; i++) {
        tarn_str name;
        tarn_str_split(rest, ';', &name, &rest);
        if (!header_name_valid(name)) {
            return false;
        }
        sorted = sorted && (i == 0 || tarn_str_cmp(out->v[i - 1], name) < 0);
        out->v[out->n++] = name;
    }
    /* Sorted strictly means that no name is there twice; else each pair is looked at. */
    for (size_t i = 1; !sorted && i < out->n; i++) {
        for (size_t j = 0; j < i; j++) {
            if (tarn_str_eq(out->v[i], out->v[j])) {
                return false;
            }
        }
    }
    return true;
}

/* low is in lower case already. */
static inline bool is_named(tarn_str low, tarn_str name)
{
    if (low.n != name.n) {
        return false;
    }
    for (size_t i = 0; i < low.n; i++) {
        char c = name.p[i];
        if (low.p[i] != (char)(c >= 'A' && c <= 'Z' ? c + ('a' - 'A') : c)) {
            return false;
        }
    }
    return true;
}

bool auth_names_have(const auth_names *names, tarn_str header_name)
{
    for (size_t i = 0; i < names->n; i++) {
        if (is_named(names->v[i], header_name)) {
            return true;
        }
    }
    return false;
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\v' || c == '\f';
}

/* The value without blanks at its ends, inner runs as one space. */
static char *put_value(char *p, tarn_str v)
{
    if (!v.p || (!memchr(v.p, ' ', v.n) && !memchr(v.p, '\t', v.n))) {
        memcpy(p, v.p ? v.p : "", v.n);
        return p + v.n;
    }
    size_t end = v.n;
    while (end > 0 && is_blank(v.p[end - 1])) {
        end--;
    }
    size_t i = 0;
    while (i < end && is_blank(v.p[i])) {
        i++;
    }
    while (i < end) {
        if (!is_blank(v.p[i])) {
            *p++ = v.p[i++];
            continue;
        }
        *p++ = ' ';
        while (is_blank(v.p[i])) {
            i++; /* ends: v.p[end - 1] is no blank */
        }
    }
    return p;
}

tarn_str auth_canon_headers(tarn_arena *arena, const tarn_auth_view *v, const auth_names *names)
{
    /* No name is signed twice, so every value is written once at most. */
    size_t bytes = 2 * names->list.n + 4;
    for (size_t i = 0; i < v->headers_n; i++) {
        bytes += v->headers[i].value.n + 1;
    }
    char *mem = tarn_arena_alloc(arena, bytes);
    if (!mem) {
        return TARN_STR_NULL;
    }
    char *p = mem;
    for (size_t k = 0; k < names->n; k++) {
        tarn_str name = names->v[k];
        bool first = true;
        memcpy(p, name.p, name.n);
        p += name.n;
        *p++ = ':';
        for (size_t i = 0; i < v->headers_n; i++) {
            if (!is_named(name, v->headers[i].name)) {
                continue;
            }
            if (!first) {
                *p++ = ',';
            }
            first = false;
            p = put_value(p, v->headers[i].value);
        }
        *p++ = '\n';
    }
    TARN_ASSERT((size_t)(p - mem) <= bytes);
    return (tarn_str){mem, (size_t)(p - mem)};
}

/* ------------------------------------------------------------------ comparison */
void auth_add_candidate(tarn_str *list, size_t *n, tarn_str s)
{
    for (size_t i = 0; i < *n; i++) {
        if (tarn_str_eq(list[i], s)) {
            return;
        }
    }
    TARN_ASSERT(*n < AUTH_CANDIDATES_MAX);
    list[(*n)++] = s;
}

#define STRING_TO_SIGN_BYTES_MAX 512

static void put_canonical(tarn_sb *b, const auth_signed *s, tarn_str uri, tarn_str query, tarn_str payload_line)
{
    tarn_sb_reset(b);
    tarn_sb_str(b, s->method);
    tarn_sb_char(b, '\n');
    tarn_sb_str(b, uri);
    tarn_sb_char(b, '\n');
    tarn_sb_str(b, query);
    tarn_sb_char(b, '\n');
    tarn_sb_str(b, s->headers);
    tarn_sb_char(b, '\n');
    tarn_sb_str(b, s->signed_headers);
    tarn_sb_char(b, '\n');
    tarn_sb_str(b, payload_line);
}

static void put_string_to_sign(tarn_sb *b, const auth_signed *s, tarn_str canonical)
{
    char hash[65];
    tarn_sha256_hex(canonical.p, canonical.n, hash);
    tarn_sb_reset(b);
    tarn_sb_cstr(b, AUTH_ALGORITHM "\n");
    tarn_sb_str(b, s->amz_date);
    tarn_sb_char(b, '\n');
    tarn_sb_str(b, s->scope.text);
    tarn_sb_char(b, '\n');
    tarn_sb_bytes(b, hash, 64);
}

/* Constant in time over the digits; the length of a signature is no secret. */
static bool signature_equals(const auth_signed *s, tarn_str string_to_sign)
{
    uint8_t mac[TARN_SHA256_BYTES];
    char mem[AUTH_SIGNATURE_HEX + 1];
    tarn_sb hex;
    tarn_hmac_sha256(s->key, sizeof s->key, string_to_sign.p, string_to_sign.n, mac);
    tarn_sb_init_fixed(&hex, mem, sizeof mem);
    tarn_sb_hex(&hex, mac, sizeof mac);
    bool same = s->signature.n == AUTH_SIGNATURE_HEX && tarn_equal_ct(mem, s->signature.p, AUTH_SIGNATURE_HEX);
    tarn_wipe(mem, sizeof mem);
    tarn_wipe(mac, sizeof mac);
    return same;
}

static tarn_err mismatch(const auth_signed *s, tarn_str canonical, tarn_str string_to_sign, tarn_arena *arena, tarn_err_detail *d)
{
    tarn_err_detail_add(d, "AWSAccessKeyId", s->scope.access_key);
    tarn_err_detail_add(d, "StringToSign", tarn_arena_str(arena, string_to_sign));
    tarn_err_detail_add(d, "SignatureProvided", s->signature);
    if (d && canonical.n <= AUTH_ECHO_BYTES_MAX) {
        tarn_err_detail_add(d, "StringToSignBytes", auth_spaced_hex(arena, string_to_sign));
        tarn_err_detail_add(d, "CanonicalRequest", canonical);
        tarn_err_detail_add(d, "CanonicalRequestBytes", auth_spaced_hex(arena, canonical));
    }
    return TARN_E_SIGNATURE_DOES_NOT_MATCH;
}

static size_t longest(const tarn_str *list, size_t n)
{
    size_t max = 0;
    for (size_t i = 0; i < n; i++) {
        max = list[i].n > max ? list[i].n : max;
    }
    return max;
}

tarn_err auth_signed_match(tarn_auth *a, auth_signed *s, tarn_str payload_line, tarn_arena *arena, tarn_err_detail *d)
{
    size_t bytes = s->method.n + longest(s->uris, s->uris_n) + longest(s->queries, s->queries_n) + s->headers.n + s->signed_headers.n +
                   payload_line.n + 8;
    char *mem = tarn_arena_alloc(arena, bytes);
    if (!mem) {
        return TARN_E_NO_MEMORY;
    }
    tarn_sb canonical;
    tarn_sb sts;
    char sts_mem[STRING_TO_SIGN_BYTES_MAX];
    tarn_sb_init_fixed(&canonical, mem, bytes);
    tarn_sb_init_fixed(&sts, sts_mem, sizeof sts_mem);
    for (size_t i = 0; i < s->uris_n * s->queries_n; i++) {
        put_canonical(&canonical, s, s->uris[i / s->queries_n], s->queries[i % s->queries_n], payload_line);
        put_string_to_sign(&sts, s, tarn_sb_view(&canonical));
        if (canonical.failed || sts.failed) {
            return TARN_E_INTERNAL;
        }
        if (signature_equals(s, tarn_sb_view(&sts))) {
            if (!s->key_cached) {
                auth_keycache_put(a->cache, s->user, &s->scope, s->key);
            }
            return TARN_OK;
        }
    }
    /* What is echoed is the first candidate: the form that the documents describe. */
    if (s->uris_n * s->queries_n > 1) {
        put_canonical(&canonical, s, s->uris[0], s->queries[0], payload_line);
        put_string_to_sign(&sts, s, tarn_sb_view(&canonical));
    }
    return mismatch(s, tarn_sb_view(&canonical), tarn_sb_view(&sts), arena, d);
}
