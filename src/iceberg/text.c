/* SPDX-License-Identifier: Apache-2.0 */
/*
 * iceberg, metadata as text: see text.h.
 *
 * Metadata never changes once it is there, and what a commit leaves alone it shares with its base: so a value that is the
 * same object in both has the same text in both. For lists this holds element by element.
 * Invariant: the result is what ice_json_write gives; the tests compare the two for every update.
 */
#include <string.h>

#include "entry.h"
#include "text.h"

#define TREE_BYTES_PER_TEXT_BYTE 8 /* a parsed tree is about this much larger than its text (measured) */

/* Strings that are all that changed would be found by their key as well; they are short, and written anew. */
static const ice_span *find_span(const ice_text *t, const json_t *value, size_t hint)
{
    if (hint < t->spans_n && t->spans[hint].value == value)
        return &t->spans[hint];
    for (size_t i = 0; i < t->spans_n; i++)
        if (t->spans[i].value == value)
            return &t->spans[i];
    return NULL;
}

static void shift(ice_span *to, const ice_span *from, uint32_t start)
{
    for (uint32_t i = 0; i < from->elements_n; i++)
        to->elements[i] = from->elements[i] - from->start + start;
}

/* Room for the places of n elements; false when out of memory. */
static bool elements(ice_span *s, size_t n)
{
    s->elements = n > 0 ? tarn_malloc(n * sizeof s->elements[0]) : NULL;
    s->elements_n = (uint32_t)n;
    return n == 0 || s->elements != NULL;
}

static bool copy_value(tarn_sb *b, const ice_span *from, const ice_text *base_text, ice_span *s)
{
    s->start = (uint32_t)b->n;
    tarn_sb_bytes(b, base_text->p + from->start, from->end - from->start);
    s->end = (uint32_t)b->n;
    s->texts = from->texts;
    if (!from->elements)
        return true;
    if (!elements(s, from->elements_n))
        return false;
    shift(s, from, s->start);
    return true;
}

/* How many elements from new[i] on are those from old[j] on? */
static size_t run_length(const json_t *list, size_t i, const json_t *old, size_t j)
{
    size_t n = 0;
    while (i + n < json_array_size(list) && j + n < json_array_size(old) && json_array_get(list, i + n) == json_array_get(old, j + n))
        n++;
    return n;
}

static uint32_t element_end(const ice_span *s, size_t i)
{
    return i + 1 < s->elements_n ? s->elements[i + 1] - 1 : s->end - 1; /* before the comma, before the bracket */
}

static bool write_list(tarn_sb *b, const json_t *list, const json_t *old, const ice_span *from, const ice_text *base_text, ice_span *s)
{
    size_t n = json_array_size(list), old_n = from ? json_array_size(old) : 0, j = 0;
    if (!elements(s, n))
        return false;
    s->start = (uint32_t)b->n;
    s->texts = true;
    tarn_sb_char(b, '[');
    for (size_t i = 0; i < n;) {
        size_t at = j, run = 0;
        while (at < old_n && (run = run_length(list, i, old, at)) == 0)
            at++;
        if (i > 0)
            tarn_sb_char(b, ',');
        s->elements[i] = (uint32_t)b->n;
        if (run == 0) { /* a new one */
            const json_t *element = json_array_get(list, i++);
            s->texts = s->texts && ice_entry_is_text(element);
            ice_json_write(b, element);
            continue;
        }
        s->texts = s->texts && from->texts;
        uint32_t first = from->elements[at], last = element_end(from, at + run - 1);
        for (size_t k = 1; k < run; k++)
            s->elements[i + k] = from->elements[at + k] - first + s->elements[i];
        tarn_sb_bytes(b, base_text->p + first, last - first);
        i += run;
        j = at + run;
    }
    tarn_sb_char(b, ']');
    s->end = (uint32_t)b->n;
    return true;
}

static bool write_value(tarn_sb *b, const char *key, const json_t *value, size_t index, const json_t *base, const ice_text *base_text,
                        ice_span *s)
{
    const ice_span *same = base_text ? find_span(base_text, value, index) : NULL;
    s->value = value;
    if (same)
        return copy_value(b, same, base_text, s);
    if (json_is_array(value)) {
        const json_t *old = base ? json_object_get(base, key) : NULL;
        const ice_span *from = json_is_array(old) ? find_span(base_text, old, index) : NULL;
        return write_list(b, value, old, from, base_text, s);
    }
    s->start = (uint32_t)b->n;
    ice_json_write(b, value);
    s->end = (uint32_t)b->n;
    return true;
}

static tarn_err write_all(tarn_sb *b, const json_t *object, const json_t *base, const ice_text *base_text, ice_text *out)
{
    const char *key;
    json_t *value;
    size_t index = 0;
    tarn_sb_char(b, '{');
    json_object_foreach((json_t *)(uintptr_t)object, key, value)
    {
        if (index > 0)
            tarn_sb_char(b, ',');
        ice_json_write_string(b, tarn_str_of(key));
        tarn_sb_char(b, ':');
        if (index < ICE_SPANS_MAX) {
            out->spans_n = index + 1;
            if (!write_value(b, key, value, index, base, base_text, &out->spans[index]))
                return TARN_E_NO_MEMORY;
        } else {
            ice_json_write(b, value);
        }
        index++;
    }
    tarn_sb_char(b, '}');
    return b->failed ? TARN_E_LIMIT : TARN_OK;
}

tarn_err ice_text_write(const json_t *object, const json_t *base, const ice_text *base_text, size_t max_bytes, ice_text *out)
{
    tarn_sb b;
    TARN_ASSERT(max_bytes < UINT32_MAX && (base == NULL) == (base_text == NULL));
    memset(out, 0, sizeof *out);
    tarn_sb_init(&b, max_bytes);
    if (base_text) /* most often it grows by a little */
        (void)tarn_sb_reserve(&b, base_text->n + 1024 < max_bytes ? base_text->n + 1024 : base_text->n);
    tarn_err err = write_all(&b, object, base, base_text, out);
    if (err != TARN_OK) {
        tarn_sb_free(&b);
        ice_text_free(out);
        return err;
    }
    out->p = b.p; /* the builder's memory is ours now */
    out->n = b.n;
    return TARN_OK;
}

void ice_text_free(ice_text *t)
{
    for (size_t i = 0; i < t->spans_n; i++)
        tarn_free(t->spans[i].elements);
    tarn_free(t->p);
    memset(t, 0, sizeof *t);
}

size_t ice_text_tree_bytes(const ice_text *t)
{
    size_t texts = 0, entries = 0;
    for (size_t i = 0; i < t->spans_n; i++) {
        if (t->spans[i].texts) {
            texts += t->spans[i].end - t->spans[i].start;
            entries += t->spans[i].elements_n;
        }
    }
    return (t->n - texts) * TREE_BYTES_PER_TEXT_BYTE + texts + entries * ICE_ENTRY_OVERHEAD_BYTES;
}

size_t ice_text_bytes(const ice_text *t)
{
    size_t n = t->n;
    for (size_t i = 0; i < t->spans_n; i++)
        n += t->spans[i].elements_n * sizeof t->spans[i].elements[0];
    return n;
}
