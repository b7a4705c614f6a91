/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One <Contents> of a listing. A page of a thousand is made by every LIST, so this one element is put together in memory
 * that was reserved for it at once, without a call for each tag; everything else in the module uses xml_out.c.
 *
 * Invariant: what is written never exceeds what was reserved: escapes are at most ESCAPE_BYTES_MAX for a byte.
 */
#include "list_row.h"

#include <string.h>

#define ESCAPE_BYTES_MAX 6
#define FIXED_BYTES 640 /* all tags of a row, its time, its size and the names of its checksum */
#define DAY_MS 86400000

#define PUT(p, literal) ((char *)memcpy((p), literal, sizeof(literal) - 1) + sizeof(literal) - 1)

static char *put_str(char *p, tarn_str s)
{
    if (s.n > 0)
        memcpy(p, s.p, s.n);
    return p + s.n;
}

static char *put_u64(char *p, uint64_t v)
{
    char mem[20];
    size_t at = sizeof mem;
    do
        mem[--at] = (char)('0' + v % 10);
    while ((v /= 10) > 0);
    memcpy(p, mem + at, sizeof mem - at);
    return p + (sizeof mem - at);
}

static char *put_digits(char *p, unsigned v, unsigned n)
{
    for (unsigned i = n; i-- > 0; v /= 10)
        p[i] = (char)('0' + v % 10);
    return p + n;
}

/* The date changes once a day; the rest of the time is plain arithmetic. */
static char *put_time(char *p, int64_t ms, s3_row_style *style)
{
    int64_t day = ms / DAY_MS - (ms % DAY_MS < 0 ? 1 : 0);
    if (!style->has_day || style->day != day) {
        tarn_sb b;
        char mem[40];
        tarn_sb_init_fixed(&b, mem, sizeof mem);
        tarn_sb_iso8601_s(&b, day * DAY_MS);
        TARN_ASSERT(b.n > sizeof style->date);
        memcpy(style->date, mem, sizeof style->date);
        style->day = day;
        style->has_day = true;
    }
    unsigned rest = (unsigned)(ms - day * DAY_MS);
    memcpy(p, style->date, sizeof style->date);
    p = put_digits(p + sizeof style->date, rest / 3600000, 2);
    *p++ = ':';
    p = put_digits(p, rest / 60000 % 60, 2);
    *p++ = ':';
    p = put_digits(p, rest / 1000 % 60, 2);
    *p++ = '.';
    p = put_digits(p, rest % 1000, 3);
    *p++ = 'Z';
    return p;
}

/* A text through the general escaper where it needs one. */
static char *put_text(char *p, tarn_str s, bool url)
{
    if (!url && !s3_xml_needs_escape(s))
        return put_str(p, s);
    tarn_sb b;
    tarn_sb_init_fixed(&b, p, s.n * ESCAPE_BYTES_MAX + 1);
    if (url)
        tarn_sb_urlencode(&b, s, true);
    else
        s3_xml_escape(&b, s);
    TARN_ASSERT(!b.failed);
    return p + b.n;
}

void s3_list_contents(tarn_sb *b, const tarn_version_row *row, const tarn_attrs *attrs, s3_row_style *style)
{
    tarn_str class = attrs->storage_class.n > 0 ? attrs->storage_class : TARN_STR("STANDARD");
    size_t max = FIXED_BYTES + (row->key.n + row->etag.n + class.n + style->owner_id.n) * ESCAPE_BYTES_MAX;
    char *start = tarn_sb_reserve(b, max);
    if (start == NULL)
        return;
    char *p = PUT(start, "<Contents><Key>");
    p = put_text(p, row->key, style->url);
    p = PUT(p, "</Key><LastModified>");
    p = put_time(p, row->mtime_ms, style);
    p = PUT(p, "</LastModified><ETag>&#34;");
    p = put_text(p, row->etag, false);
    p = PUT(p, "&#34;</ETag>");
    if (attrs->checksum.kind != TARN_SUM_NONE && tarn_sum_header(attrs->checksum.kind) != NULL) {
        p = PUT(p, "<ChecksumAlgorithm>");
        p = put_str(p, tarn_str_of(tarn_sum_name(attrs->checksum.kind)));
        p = attrs->checksum.type == TARN_SUM_COMPOSITE ? PUT(p, "</ChecksumAlgorithm><ChecksumType>COMPOSITE</ChecksumType>")
                                                       : PUT(p, "</ChecksumAlgorithm><ChecksumType>FULL_OBJECT</ChecksumType>");
    }
    p = PUT(p, "<Size>");
    p = put_u64(p, row->size);
    p = PUT(p, "</Size><StorageClass>");
    p = put_text(p, class, false);
    p = PUT(p, "</StorageClass>");
    if (style->owner) {
        p = PUT(p, "<Owner><ID>");
        p = put_text(p, style->owner_id, false);
        p = PUT(p, "</ID><DisplayName>tarn</DisplayName></Owner>");
    }
    p = PUT(p, "</Contents>");
    size_t n = (size_t)(p - start);
    TARN_ASSERT(n <= max);
    b->n += n;
    b->p[b->n] = '\0';
}
