/* SPDX-License-Identifier: Apache-2.0 */
/*
 * aws-chunked bodies (s3.md §2.2), as a state machine that takes the body in whatever pieces it comes:
 *
 *   SIZE  "hex[;chunk-signature=HEX]" CRLF    → DATA, or (size 0) TRAILER
 *   DATA  size bytes, handed out              → DATA_END
 *   DATA_END  CRLF                            → SIZE
 *   TRAILER  "name:value" lines, at the end an empty line → END
 *   END   nothing but one more CRLF, which some clients send
 *
 * In the two signed modes each chunk's signature is built on the one before (the first on the request's own), and the
 * trailers have a signature of their own, x-amz-trailer-signature.
 *
 * Invariants: (1) what was handed out never exceeds the decoded length; (2) once failed, always failed with the same error;
 * (3) finish succeeds only in END, with every signature right and exactly the decoded length handed out; (4) a line is at
 * most LINE_BYTES_MAX, all trailers at most TARN_TRAILER_BYTES_MAX.
 * Memory: the arena, but for the digest context (freed by tarn_chunked_end). Threads: the request's fiber.
 */
#include "auth_private.h"

#include <openssl/evp.h>
#include <string.h>

#define LINE_BYTES_MAX 1024
#define SIZE_DIGITS_MAX 16
#define TRAILERS_MAX 2
#define SIGNATURE_EXTENSION "chunk-signature="
#define TRAILER_SIGNATURE "x-amz-trailer-signature"

typedef enum chunk_state { ST_SIZE, ST_DATA, ST_DATA_END, ST_TRAILER, ST_END } chunk_state;

struct tarn_chunked {
    chunk_state state;
    tarn_payload_mode mode;
    tarn_err failed;
    tarn_arena *arena;
    EVP_MD_CTX *md;
    uint64_t chunk_left_bytes;
    uint64_t decoded_bytes;
    uint64_t expected_bytes;
    bool small_chunk;    /* a chunk under the minimum was there: it must have been the last */
    bool trailer_signed; /* x-amz-trailer-signature was there and right */
    bool trailer_blank;  /* an empty line was seen before the trailer's signature */
    tarn_str amz_date, scope, announced;
    uint8_t key[TARN_SHA256_BYTES];
    char previous[AUTH_SIGNATURE_HEX + 1];
    char current[AUTH_SIGNATURE_HEX + 1]; /* what the size line said */
    char line[LINE_BYTES_MAX];
    size_t line_n;
    size_t end_n;         /* bytes of CRLF seen behind a chunk's data, or behind the end */
    tarn_sb trailer_text; /* "name:value\n" as it is signed */
    tarn_pair trailers[TRAILERS_MAX];
    size_t trailers_n;
};

static bool signs_chunks(const tarn_chunked *c)
{
    return c->mode == TARN_PAYLOAD_SIGNED_CHUNKS || c->mode == TARN_PAYLOAD_SIGNED_CHUNKS_TRAILER;
}

static bool has_trailers(const tarn_chunked *c)
{
    return c->mode != TARN_PAYLOAD_SIGNED_CHUNKS;
}

static tarn_err make_scope(tarn_chunked *c, const tarn_auth_result *r)
{
    c->amz_date = r->amz_date;
    c->scope = tarn_arena_fmt(c->arena, "%.*s/%.*s/%.*s/" AUTH_TERMINAL, TARN_STR_ARG(tarn_str_sub(r->amz_date, 0, 8)),
                              TARN_STR_ARG(r->region), TARN_STR_ARG(r->service));
    memcpy(c->key, r->signing_key, sizeof c->key);
    memcpy(c->previous, r->seed_signature, sizeof c->previous);
    c->md = EVP_MD_CTX_new();
    if (!c->scope.p || !c->md || EVP_DigestInit_ex(c->md, EVP_sha256(), NULL) != 1) {
        return TARN_E_NO_MEMORY;
    }
    return TARN_OK;
}

tarn_err tarn_chunked_new(const tarn_auth_result *r, tarn_arena *arena, tarn_chunked **out)
{
    if (r->payload != TARN_PAYLOAD_SIGNED_CHUNKS && r->payload != TARN_PAYLOAD_SIGNED_CHUNKS_TRAILER &&
        r->payload != TARN_PAYLOAD_UNSIGNED_TRAILER) {
        return TARN_E_INVALID_REQUEST;
    }
    if (!r->has_decoded_length) {
        return TARN_E_MISSING_CONTENT_LENGTH;
    }
    tarn_chunked *c = TARN_ARENA_NEW(arena, tarn_chunked);
    char *text = tarn_arena_alloc(arena, TARN_TRAILER_BYTES_MAX + 1);
    if (!c || !text) {
        return TARN_E_NO_MEMORY;
    }
    c->mode = r->payload;
    c->arena = arena;
    c->expected_bytes = r->decoded_length;
    c->announced = r->trailer_names;
    tarn_sb_init_fixed(&c->trailer_text, text, TARN_TRAILER_BYTES_MAX + 1);
    tarn_err e = signs_chunks(c) ? make_scope(c, r) : TARN_OK;
    if (e != TARN_OK) {
        tarn_chunked_end(c);
        return e;
    }
    *out = c;
    return TARN_OK;
}

void tarn_chunked_end(tarn_chunked *c)
{
    if (!c) {
        return;
    }
    EVP_MD_CTX_free(c->md);
    c->md = NULL;
    tarn_wipe(c->key, sizeof c->key);
}

/* ------------------------------------------------------------------ signatures */
#define STRING_BYTES_MAX 512

/* The signature of `kind` over what the two hash lines say, built on the previous one; compared with `given`. */
static tarn_err check_signature(tarn_chunked *c, const char *kind, const char *first_hash, const char *second_hash, tarn_str given)
{
    char mem[STRING_BYTES_MAX];
    char hex_mem[AUTH_SIGNATURE_HEX + 1];
    uint8_t mac[TARN_SHA256_BYTES];
    tarn_sb b;
    tarn_sb hex;
    tarn_sb_init_fixed(&b, mem, sizeof mem);
    tarn_sb_cstr(&b, kind);
    tarn_sb_char(&b, '\n');
    tarn_sb_str(&b, c->amz_date);
    tarn_sb_char(&b, '\n');
    tarn_sb_str(&b, c->scope);
    tarn_sb_char(&b, '\n');
    tarn_sb_cstr(&b, c->previous);
    tarn_sb_char(&b, '\n');
    tarn_sb_cstr(&b, first_hash);
    if (second_hash) {
        tarn_sb_char(&b, '\n');
        tarn_sb_cstr(&b, second_hash);
    }
    tarn_str text = tarn_sb_view(&b);
    if (b.failed) {
        return TARN_E_INTERNAL;
    }
    tarn_hmac_sha256(c->key, sizeof c->key, text.p, text.n, mac);
    tarn_sb_init_fixed(&hex, hex_mem, sizeof hex_mem);
    tarn_sb_hex(&hex, mac, sizeof mac);
    bool same = given.n == AUTH_SIGNATURE_HEX && tarn_equal_ct(hex_mem, given.p, AUTH_SIGNATURE_HEX);
    if (same) {
        memcpy(c->previous, hex_mem, sizeof c->previous);
    }
    tarn_wipe(hex_mem, sizeof hex_mem);
    tarn_wipe(mac, sizeof mac);
    return same ? TARN_OK : TARN_E_SIGNATURE_DOES_NOT_MATCH;
}

/* At the end of a chunk's data (and for the empty last chunk). */
static tarn_err check_chunk(tarn_chunked *c)
{
    uint8_t digest[TARN_SHA256_BYTES];
    char hex_mem[2 * TARN_SHA256_BYTES + 1];
    tarn_sb hex;
    unsigned n = 0;
    if (!signs_chunks(c)) {
        return TARN_OK;
    }
    if (EVP_DigestFinal_ex(c->md, digest, &n) != 1 || EVP_DigestInit_ex(c->md, NULL, NULL) != 1) {
        return TARN_E_NO_MEMORY;
    }
    tarn_sb_init_fixed(&hex, hex_mem, sizeof hex_mem);
    tarn_sb_hex(&hex, digest, sizeof digest);
    return check_signature(c, "AWS4-HMAC-SHA256-PAYLOAD", AUTH_EMPTY_SHA256_HEX, hex_mem, (tarn_str){c->current, AUTH_SIGNATURE_HEX});
}

/* ------------------------------------------------------------------ the size line */
static tarn_err parse_signature(tarn_chunked *c, tarn_str extension)
{
    if (!signs_chunks(c)) {
        return extension.p ? TARN_E_INVALID_REQUEST : TARN_OK;
    }
    if (!tarn_str_starts(extension, SIGNATURE_EXTENSION)) {
        return TARN_E_INVALID_REQUEST;
    }
    tarn_str hex = tarn_str_sub(extension, sizeof SIGNATURE_EXTENSION - 1, SIZE_MAX);
    if (hex.n != AUTH_SIGNATURE_HEX) {
        return TARN_E_SIGNATURE_DOES_NOT_MATCH;
    }
    memcpy(c->current, hex.p, AUTH_SIGNATURE_HEX);
    return TARN_OK;
}

static tarn_err on_size_line(tarn_chunked *c, tarn_str line)
{
    tarn_str digits = line;
    tarn_str extension = TARN_STR_NULL;
    uint64_t size = 0;
    tarn_str_split(line, ';', &digits, &extension);
    if (digits.n == 0 || digits.n > SIZE_DIGITS_MAX || !tarn_hex_to_u64(digits, &size)) {
        return TARN_E_INVALID_REQUEST;
    }
    tarn_err e = parse_signature(c, extension);
    if (e != TARN_OK) {
        return e;
    }
    if (size > c->expected_bytes - c->decoded_bytes) {
        return TARN_E_INCOMPLETE_BODY;
    }
    if (signs_chunks(c) && (size > TARN_CHUNK_BYTES_MAX || (size > 0 && c->small_chunk))) {
        return TARN_E_INVALID_CHUNK_SIZE;
    }
    c->small_chunk = size < TARN_CHUNK_BYTES_MIN;
    c->chunk_left_bytes = size;
    if (size > 0) {
        c->state = ST_DATA;
        return TARN_OK;
    }
    if (c->decoded_bytes != c->expected_bytes) {
        return TARN_E_INCOMPLETE_BODY;
    }
    c->state = ST_TRAILER;
    return check_chunk(c);
}

/* ------------------------------------------------------------------ trailers */
static bool announced(const tarn_chunked *c, tarn_str name)
{
    tarn_str rest = c->announced;
    while (rest.n > 0) {
        tarn_str one;
        tarn_str_split(rest, ',', &one, &rest);
        if (tarn_str_ieq(tarn_str_trim(one), name)) {
            return true;
        }
    }
    return false;
}

static bool sum_value_valid(tarn_str name, tarn_str value)
{
    uint8_t sum[TARN_DIGEST_BYTES_MAX];
    size_t n = 0;
    tarn_sum_kind kind = tarn_sum_by_header(name);
    return kind != TARN_SUM_NONE && tarn_base64_decode(value, sum, sizeof sum, &n) && n == tarn_sum_bytes(kind);
}

static tarn_err on_trailer_signature(tarn_chunked *c, tarn_str value)
{
    if (c->mode != TARN_PAYLOAD_SIGNED_CHUNKS_TRAILER || c->trailer_signed) {
        return TARN_E_MALFORMED_TRAILER;
    }
    char hash[65];
    tarn_str text = tarn_sb_view(&c->trailer_text);
    tarn_sha256_hex(text.p, text.n, hash);
    tarn_err e = check_signature(c, "AWS4-HMAC-SHA256-TRAILER", hash, NULL, value);
    c->trailer_signed = e == TARN_OK;
    return e;
}

static tarn_err on_trailer(tarn_chunked *c, tarn_str line)
{
    tarn_str name;
    tarn_str value;
    if (!has_trailers(c) || !tarn_str_split(line, ':', &name, &value) || name.n == 0) {
        return TARN_E_MALFORMED_TRAILER;
    }
    value = tarn_str_trim(value);
    if (tarn_str_ieqc(name, TRAILER_SIGNATURE)) {
        return on_trailer_signature(c, value);
    }
    if (c->trailer_signed || c->trailer_blank || c->trailers_n == TRAILERS_MAX || !announced(c, name)) {
        return TARN_E_MALFORMED_TRAILER;
    }
    for (size_t i = 0; i < c->trailers_n; i++) {
        if (tarn_str_ieq(c->trailers[i].name, name)) {
            return TARN_E_MALFORMED_TRAILER;
        }
    }
    tarn_str kept_name = tarn_str_of(tarn_sum_header(tarn_sum_by_header(name)));
    tarn_str kept_value = tarn_arena_str(c->arena, value);
    if (!sum_value_valid(name, value)) {
        return TARN_E_INVALID_REQUEST;
    }
    if (!kept_value.p) {
        return TARN_E_NO_MEMORY;
    }
    c->trailers[c->trailers_n++] = (tarn_pair){kept_name, kept_value};
    tarn_sb_str(&c->trailer_text, kept_name);
    tarn_sb_char(&c->trailer_text, ':');
    tarn_sb_str(&c->trailer_text, value);
    tarn_sb_char(&c->trailer_text, '\n');
    return c->trailer_text.failed ? TARN_E_MALFORMED_TRAILER : TARN_OK;
}

/* An empty line ends the trailers; some clients send one more before the trailers' signature. */
static tarn_err on_trailers_end(tarn_chunked *c)
{
    if (c->mode == TARN_PAYLOAD_SIGNED_CHUNKS_TRAILER && !c->trailer_signed) {
        if (c->trailer_blank || c->trailers_n == 0) {
            return TARN_E_MALFORMED_TRAILER;
        }
        c->trailer_blank = true;
        return TARN_OK;
    }
    if (has_trailers(c) && c->announced.n > 0 && c->trailers_n == 0) {
        return TARN_E_MALFORMED_TRAILER;
    }
    c->state = ST_END;
    c->end_n = 0;
    return TARN_OK;
}

/* ------------------------------------------------------------------ feeding */
static tarn_err line_too_long(const tarn_chunked *c)
{
    return c->state == ST_TRAILER ? TARN_E_MALFORMED_TRAILER : TARN_E_INVALID_REQUEST;
}

/* Gathers a line up to its LF. A size line must end in CRLF; a trailer may end in LF alone. */
static tarn_err feed_line(tarn_chunked *c, tarn_str in, size_t *used)
{
    const char *lf = memchr(in.p, '\n', in.n);
    size_t take = lf ? (size_t)(lf - in.p) + 1 : in.n;
    if (take > LINE_BYTES_MAX - c->line_n) {
        return line_too_long(c);
    }
    memcpy(c->line + c->line_n, in.p, take);
    c->line_n += take;
    *used = take;
    if (!lf) {
        return TARN_OK;
    }
    tarn_str line = {c->line, c->line_n - 1};
    c->line_n = 0;
    bool crlf = line.n > 0 && line.p[line.n - 1] == '\r';
    line.n -= crlf ? 1 : 0;
    if (memchr(line.p, '\r', line.n) || memchr(line.p, '\0', line.n) || (!crlf && c->state == ST_SIZE)) {
        return line_too_long(c);
    }
    if (c->state == ST_SIZE) {
        return on_size_line(c, line);
    }
    return line.n == 0 ? on_trailers_end(c) : on_trailer(c, line);
}

static tarn_err feed_data(tarn_chunked *c, tarn_str in, size_t *used, tarn_str *data)
{
    size_t take = in.n < c->chunk_left_bytes ? in.n : (size_t)c->chunk_left_bytes;
    *data = (tarn_str){in.p, take};
    *used = take;
    c->chunk_left_bytes -= take;
    c->decoded_bytes += take;
    TARN_ASSERT(c->decoded_bytes <= c->expected_bytes);
    if (signs_chunks(c) && EVP_DigestUpdate(c->md, in.p, take) != 1) {
        return TARN_E_NO_MEMORY;
    }
    if (c->chunk_left_bytes > 0) {
        return TARN_OK;
    }
    c->state = ST_DATA_END;
    c->end_n = 0;
    return check_chunk(c);
}

/* CRLF behind a chunk's data, or once more behind the end. */
static tarn_err feed_crlf(tarn_chunked *c, tarn_str in, size_t *used)
{
    if (c->end_n >= 2 || in.p[0] != "\r\n"[c->end_n]) {
        return TARN_E_INVALID_REQUEST;
    }
    c->end_n++;
    *used = 1;
    if (c->state == ST_DATA_END && c->end_n == 2) {
        c->state = ST_SIZE;
    }
    return TARN_OK;
}

tarn_err tarn_chunked_feed(tarn_chunked *c, tarn_str in, size_t *used, tarn_str *data)
{
    *used = 0;
    *data = TARN_STR_NULL;
    if (c->failed != TARN_OK || in.n == 0) {
        return c->failed;
    }
    tarn_err e = TARN_OK;
    switch (c->state) {
    case ST_SIZE:
    case ST_TRAILER:
        e = feed_line(c, in, used);
        break;
    case ST_DATA:
        e = feed_data(c, in, used, data);
        break;
    case ST_DATA_END:
    case ST_END:
        e = feed_crlf(c, in, used);
        break;
    }
    if (e != TARN_OK) {
        c->failed = e;
        *used = 0;
        *data = TARN_STR_NULL;
    }
    return e;
}

tarn_err tarn_chunked_finish(tarn_chunked *c)
{
    if (c->failed != TARN_OK) {
        return c->failed;
    }
    if (c->state == ST_TRAILER && has_trailers(c)) {
        c->failed = TARN_E_MALFORMED_TRAILER;
    } else if (c->state != ST_END || c->end_n == 1 || c->decoded_bytes != c->expected_bytes) {
        c->failed = TARN_E_INCOMPLETE_BODY;
    } else if (c->mode == TARN_PAYLOAD_SIGNED_CHUNKS_TRAILER && !c->trailer_signed) {
        c->failed = TARN_E_MALFORMED_TRAILER;
    }
    return c->failed;
}

size_t tarn_chunked_trailers(const tarn_chunked *c, const tarn_pair **out)
{
    *out = c->trailers;
    return c->trailers_n;
}
