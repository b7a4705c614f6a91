/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes XML answers into one bounded builder, without white space between elements: some clients scan the text for
 * literal tags. Invariant: every value goes through s3_xml_escape, names are constants.
 */
#include "s3_internal.h"

#include <string.h>

void s3_xml_begin(s3_xml *x, const char *root)
{
    tarn_sb_init(&x->b, S3_ANSWER_BYTES_MAX);
    tarn_sb_cstr(&x->b, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<");
    tarn_sb_cstr(&x->b, root);
    tarn_sb_cstr(&x->b, " xmlns=\"" S3_XMLNS "\">");
}

void s3_xml_open(s3_xml *x, const char *name)
{
    tarn_sb_char(&x->b, '<');
    tarn_sb_cstr(&x->b, name);
    tarn_sb_char(&x->b, '>');
}

void s3_xml_close(s3_xml *x, const char *name)
{
    tarn_sb_cstr(&x->b, "</");
    tarn_sb_cstr(&x->b, name);
    tarn_sb_char(&x->b, '>');
}

/* What replaces a byte, or NULL when it stays. XML 1.0 has no form for most control characters; S3 sends references, which
 * clients' parsers accept or refuse as they do with AWS. */
static const char *escape_of(unsigned char ch)
{
    switch (ch) {
    case '&':
        return "&amp;";
    case '<':
        return "&lt;";
    case '>':
        return "&gt;";
    case '"':
        return "&#34;";
    case '\'':
        return "&#39;";
    case '\r':
        return "&#xD;";
    case '\n':
        return "&#xA;";
    case '\t':
        return "&#x9;";
    default:
        return NULL;
    }
}

/* Eight bytes at once: not 0 when one of them is 0, or below 0x20. Bytes from 0x80 on are neither. */
#define EACH(byte) (UINT64_C(0x0101010101010101) * (byte))
static uint64_t any_zero(uint64_t v)
{
    return (v - EACH(1)) & ~v & EACH(0x80);
}

static uint64_t any_control(uint64_t v)
{
    return (v - EACH(0x20)) & ~v & EACH(0x80);
}

/* Every row of a listing asks this for its key. */
bool s3_xml_needs_escape(tarn_str s)
{
    uint64_t bad = 0;
    for (size_t i = 0; i < s.n; i += 8) {
        uint64_t v = EACH('x'); /* fills up the last ones */
        memcpy(&v, s.p + i, s.n - i < 8 ? s.n - i : 8);
        bad |= any_control(v) | any_zero(v ^ EACH('"'));
        bad |= any_zero((v | EACH(1)) ^ EACH('\'')); /* & and ' differ in the lowest bit */
        bad |= any_zero((v | EACH(2)) ^ EACH('>'));  /* < and > in the one above it */
    }
    return bad != 0;
}

void s3_xml_escape(tarn_sb *b, tarn_str s)
{
    size_t from = 0;
    for (size_t i = 0; i < s.n; i++) {
        unsigned char ch = (unsigned char)s.p[i];
        const char *esc = escape_of(ch);
        if (esc == NULL && ch >= 0x20)
            continue;
        tarn_sb_bytes(b, s.p + from, i - from);
        if (esc != NULL)
            tarn_sb_cstr(b, esc);
        else
            tarn_sb_fmt(b, "&#x%X;", (unsigned)ch);
        from = i + 1;
    }
    if (s.n > from)
        tarn_sb_bytes(b, s.p + from, s.n - from);
}

void s3_xml_text(s3_xml *x, const char *name, tarn_str value)
{
    s3_xml_open(x, name);
    s3_xml_escape(&x->b, value);
    s3_xml_close(x, name);
}

void s3_xml_textc(s3_xml *x, const char *name, const char *value)
{
    s3_xml_text(x, name, tarn_str_of(value));
}

void s3_xml_u64(s3_xml *x, const char *name, uint64_t v)
{
    s3_xml_open(x, name);
    tarn_sb_u64(&x->b, v);
    s3_xml_close(x, name);
}

void s3_xml_bool(s3_xml *x, const char *name, bool v)
{
    s3_xml_textc(x, name, v ? "true" : "false");
}

void s3_xml_time(s3_xml *x, const char *name, int64_t ms)
{
    s3_xml_open(x, name);
    tarn_sb_iso8601_ms(&x->b, ms);
    s3_xml_close(x, name);
}

void s3_xml_etag(s3_xml *x, tarn_str etag)
{
    tarn_sb_cstr(&x->b, "<ETag>&#34;");
    s3_xml_escape(&x->b, etag);
    tarn_sb_cstr(&x->b, "&#34;</ETag>");
}

void s3_xml_key(s3_xml *x, const char *name, tarn_str key, bool url_encode)
{
    s3_xml_open(x, name);
    if (url_encode)
        tarn_sb_urlencode(&x->b, key, true);
    else
        s3_xml_escape(&x->b, key);
    s3_xml_close(x, name);
}

tarn_err s3_xml_send(s3_ctx *c, s3_xml *x, int status)
{
    tarn_err e = TARN_OK;
    if (x->b.failed) {
        e = TARN_E_NO_MEMORY;
    } else {
        tarn_resp_headerc(c->r, "Content-Type", "application/xml");
        e = tarn_resp_send(c->r, status, tarn_sb_view(&x->b));
    }
    tarn_sb_free(&x->b);
    return e;
}
