/* SPDX-License-Identifier: Apache-2.0 */
/*
 * iceberg, entries of long lists as text: see entry.h.
 *
 * A metadata file is read in two steps. The first walks over it once, takes the entries of the long lists that are plain, and
 * leaves a number in their place; the second gives what is left to the parser. So whether the whole is JSON is decided by the
 * parser and by ice_entry_plain, and the walk itself need not be right about anything but where it found an entry: what
 * it does not understand goes to the parser as it is.
 *
 * Memory: what is taken points into the text until it is made entries of. Threads: none of its own.
 */
#include <string.h>

#include "entry.h"

#define ENTRY_MARK '\xff' /* begins no UTF-8 */
#define TAKEN_MIN 256     /* room for taken entries at first */
#define INT_DIGITS_MAX 19 /* of an integer of 64 bits */
#define LONG_LISTS 3

static const char *const long_lists[LONG_LISTS] = {"snapshots", "snapshot-log", "metadata-log"};

/* ------------------------------------------------------------------ an entry */
bool ice_entry_is_text(const json_t *v)
{
    return json_is_string(v) && json_string_length(v) > 0 && json_string_value(v)[0] == ENTRY_MARK;
}

tarn_str ice_entry_text(const json_t *v)
{
    return (tarn_str){json_string_value(v) + 1, json_string_length(v) - 1};
}

/* `marked` is the mark and the text. */
static json_t *entry_of(const tarn_sb *marked)
{
    return marked->failed ? NULL : json_stringn_nocheck(marked->p, marked->n);
}

json_t *ice_entry_new(tarn_str text)
{
    tarn_sb b;
    tarn_sb_init(&b, text.n + 1);
    tarn_sb_char(&b, ENTRY_MARK);
    tarn_sb_str(&b, text);
    json_t *v = entry_of(&b);
    tarn_sb_free(&b);
    return v;
}

tarn_err ice_entry_push(json_t *list, json_t *tree)
{
    tarn_sb b;
    if (!tree)
        return TARN_E_NO_MEMORY;
    tarn_sb_init(&b, ICE_METADATA_BYTES_MAX);
    tarn_sb_char(&b, ENTRY_MARK);
    ice_json_write(&b, tree);
    json_decref(tree);
    tarn_err err = ice_push(list, entry_of(&b));
    tarn_sb_free(&b);
    return err;
}

/* ------------------------------------------------------------------ is it plain? */
typedef struct plain {
    const char *at, *end;
    unsigned depth;
    size_t keys_n; /* of the objects that are open, the innermost last */
    tarn_str keys[ICE_ENTRY_KEYS_MAX];
} plain;

static bool plain_value(plain *s);

static bool take(plain *s, char c)
{
    if (s->at == s->end || *s->at != c)
        return false;
    s->at++;
    return true;
}

static bool plain_string(plain *s, tarn_str *out)
{
    if (!take(s, '"'))
        return false;
    const char *p = s->at;
    while (p < s->end && (unsigned char)*p >= 0x20 && (unsigned char)*p < 0x80 && *p != '"' && *p != '\\')
        p++;
    *out = (tarn_str){s->at, (size_t)(p - s->at)};
    s->at = p;
    return take(s, '"');
}

/* As it is written back: no sign but a minus, no zero in front, 64 bits. What follows it decides whether it was an integer. */
static bool plain_int(plain *s)
{
    bool minus = take(s, '-');
    const char *from = s->at;
    uint64_t v = 0;
    while (s->at < s->end && *s->at >= '0' && *s->at <= '9' && s->at - from <= INT_DIGITS_MAX)
        v = v * 10 + (uint64_t)(*s->at++ - '0');
    size_t n = (size_t)(s->at - from);
    if (n == 0 || n > INT_DIGITS_MAX || (*from == '0' && (n > 1 || minus)))
        return false;
    return v <= (uint64_t)INT64_MAX + (minus ? 1 : 0); /* 19 digits do not overflow 64 bits without a sign */
}

static bool plain_word(plain *s, const char *word)
{
    size_t n = strlen(word);
    if ((size_t)(s->end - s->at) < n || memcmp(s->at, word, n) != 0)
        return false;
    s->at += n;
    return true;
}

static bool plain_list(plain *s)
{
    s->at++;
    if (take(s, ']'))
        return true;
    do {
        if (!plain_value(s))
            return false;
    } while (take(s, ','));
    return take(s, ']');
}

static bool plain_key(plain *s, size_t first)
{
    tarn_str key;
    if (s->keys_n == ICE_ENTRY_KEYS_MAX || !plain_string(s, &key))
        return false;
    for (size_t i = first; i < s->keys_n; i++)
        if (tarn_str_eq(s->keys[i], key))
            return false;
    s->keys[s->keys_n++] = key;
    return take(s, ':');
}

static bool plain_object(plain *s)
{
    size_t first = s->keys_n;
    s->at++;
    if (take(s, '}'))
        return true;
    do {
        if (!plain_key(s, first) || !plain_value(s))
            return false;
    } while (take(s, ','));
    s->keys_n = first;
    return take(s, '}');
}

static bool plain_value(plain *s)
{
    tarn_str text;
    bool ok = false;
    if (s->at == s->end || s->depth == ICE_ENTRY_DEPTH_MAX)
        return false;
    s->depth++;
    switch (*s->at) {
    case '"':
        ok = plain_string(s, &text);
        break;
    case '{':
        ok = plain_object(s);
        break;
    case '[':
        ok = plain_list(s);
        break;
    case 't':
        ok = plain_word(s, "true");
        break;
    case 'f':
        ok = plain_word(s, "false");
        break;
    case 'n':
        ok = plain_word(s, "null");
        break;
    default:
        ok = plain_int(s);
    }
    s->depth--;
    return ok;
}

size_t ice_entry_plain(const char *p, size_t n)
{
    plain s;
    if (n == 0 || *p != '{')
        return 0;
    s.at = p;
    s.end = p + n;
    s.depth = 0;
    s.keys_n = 0;
    return plain_value(&s) ? (size_t)(s.at - p) : 0;
}

/* ------------------------------------------------------------------ walking over JSON, right or not */
/* Behind the string that begins at p; NULL: it has no end. */
static const char *behind_string(const char *p, const char *end)
{
    for (p++; p < end && *p != '"'; p++)
        if (*p == '\\' && ++p == end)
            return NULL;
    return p < end ? p + 1 : NULL;
}

static const char *behind_blanks(const char *p, const char *end)
{
    while (p < end && (*p == ' ' || *p == '\t' || *p == '\n' || *p == '\r'))
        p++;
    return p;
}

/* Behind the value that begins at p: at the comma or the bracket that ends it. NULL: the text ends first. */
static const char *behind_value(const char *p, const char *end)
{
    size_t depth = 0;
    while (p && p < end) {
        char c = *p;
        if (c == '"') {
            p = behind_string(p, end);
            continue;
        }
        if (depth == 0 && (c == ',' || c == ']' || c == '}'))
            return p;
        if (c == '[' || c == '{')
            depth++;
        else if (c == ']' || c == '}')
            depth--;
        p++;
    }
    return NULL;
}

/* ------------------------------------------------------------------ reading */
bool ice_entry_value(tarn_str entry, const char *key, tarn_str *value)
{
    const char *p = entry.p + 1, *end = entry.p + entry.n;
    size_t n = strlen(key);
    while (p < end && *p == '"') {
        const char *name = p + 1, *behind = behind_string(p, end);
        if (!behind || behind == end)
            return false;
        p = behind_value(behind + 1, end);
        if (!p)
            return false;
        if ((size_t)(behind - 1 - name) == n && memcmp(name, key, n) == 0) {
            *value = (tarn_str){behind + 1, (size_t)(p - behind - 1)};
            return !tarn_str_eqc(*value, "null");
        }
        p++;
    }
    return false;
}

bool ice_entry_int(tarn_str value, int64_t *out)
{
    return tarn_str_to_i64(value, out);
}

tarn_err ice_entry_string(const json_t *entry, const char *key, json_t **out)
{
    tarn_str value;
    *out = NULL;
    if (!ice_entry_is_text(entry)) {
        json_t *v = json_object_get(entry, key);
        *out = json_is_string(v) ? json_incref(v) : NULL;
        return TARN_OK;
    }
    if (!ice_entry_value(ice_entry_text(entry), key, &value) || *value.p != '"')
        return TARN_OK;
    *out = json_loadb(value.p, value.n, JSON_DECODE_ANY, NULL); /* an entry's text is JSON: what fails is the memory */
    return *out ? TARN_OK : TARN_E_NO_MEMORY;
}

/* ------------------------------------------------------------------ files */
typedef struct taken {
    tarn_str *texts; /* p NULL: left where it was */
    size_t n, cap;
} taken;

typedef struct walk {
    const char *at, *end;
    const char *copied; /* up to here the text is in `rest` */
    tarn_sb rest;       /* for the parser */
    taken lists[LONG_LISTS];
} walk;

static bool note(taken *t, tarn_str text)
{
    if (t->n == t->cap) {
        size_t cap = t->cap ? t->cap * 2 : TAKEN_MIN;
        tarn_str *more = tarn_realloc(t->texts, cap * sizeof *more);
        if (!more)
            return false;
        t->texts = more;
        t->cap = cap;
    }
    t->texts[t->n++] = text;
    return true;
}

/* One element of a long list, up to the comma or the bracket behind it. */
static bool walk_entry(walk *w, taken *t)
{
    size_t n = ice_entry_plain(w->at, (size_t)(w->end - w->at));
    if (n == 0) {
        w->at = behind_value(w->at, w->end);
        return w->at && note(t, TARN_STR_NULL);
    }
    tarn_sb_bytes(&w->rest, w->copied, (size_t)(w->at - w->copied));
    tarn_sb_char(&w->rest, '0');
    if (!note(t, (tarn_str){w->at, n}))
        return false;
    w->at += n;
    w->copied = w->at;
    w->at = behind_blanks(w->at, w->end);
    return true;
}

static bool walk_list(walk *w, taken *t)
{
    w->at = behind_blanks(w->at + 1, w->end);
    if (w->at < w->end && *w->at == ']') {
        w->at++;
        return true;
    }
    for (;;) {
        if (!walk_entry(w, t) || w->at == w->end)
            return false;
        char c = *w->at++;
        if (c != ',')
            return c == ']';
        w->at = behind_blanks(w->at, w->end);
    }
}

static taken *long_list(walk *w, const char *key, size_t n)
{
    for (size_t i = 0; i < LONG_LISTS; i++)
        if (w->lists[i].n == 0 && tarn_str_eqc((tarn_str){key, n}, long_lists[i]))
            return &w->lists[i];
    return NULL;
}

/* One field of the document, up to the comma or the bracket behind it. */
static bool walk_field(walk *w)
{
    const char *key = w->at + 1;
    if (w->at == w->end || *w->at != '"')
        return false;
    const char *behind = behind_string(w->at, w->end);
    if (!behind)
        return false;
    w->at = behind_blanks(behind, w->end);
    if (w->at == w->end || *w->at != ':')
        return false;
    w->at = behind_blanks(w->at + 1, w->end);
    taken *t = w->at < w->end && *w->at == '[' ? long_list(w, key, (size_t)(behind - 1 - key)) : NULL;
    if (t) {
        if (!walk_list(w, t))
            return false;
        w->at = behind_blanks(w->at, w->end);
        return w->at < w->end;
    }
    w->at = behind_value(w->at, w->end);
    return w->at != NULL;
}

static bool walk_all(walk *w)
{
    w->at = behind_blanks(w->at, w->end);
    if (w->at == w->end || *w->at != '{')
        return false;
    do {
        w->at = behind_blanks(w->at + 1, w->end);
        if (!walk_field(w))
            return false;
    } while (*w->at == ',');
    tarn_sb_bytes(&w->rest, w->copied, (size_t)(w->end - w->copied));
    return *w->at == '}' && !w->rest.failed;
}

/* Puts the entries where the numbers are. */
static bool put_back(const walk *w, json_t *document)
{
    for (size_t i = 0; i < LONG_LISTS; i++) {
        const taken *t = &w->lists[i];
        json_t *list = json_object_get(document, long_lists[i]);
        if (t->n > 0 && json_array_size(list) != t->n)
            return false;
        for (size_t k = 0; k < t->n; k++)
            if (t->texts[k].p && json_array_set_new(list, k, ice_entry_new(t->texts[k])) != 0)
                return false;
    }
    return true;
}

tarn_err ice_entries_parse(tarn_str text, json_t **out, ice_error *e)
{
    walk w = {.at = text.p, .end = text.p + text.n, .copied = text.p};
    json_t *document = NULL;
    tarn_sb_init(&w.rest, text.n + 1);
    bool ok = text.n > 0 && walk_all(&w) && ice_json_parse_object(tarn_sb_view(&w.rest), &document, e) == TARN_OK && put_back(&w, document);
    for (size_t i = 0; i < LONG_LISTS; i++)
        tarn_free(w.lists[i].texts);
    tarn_sb_free(&w.rest);
    if (ok) {
        *out = document;
        return TARN_OK;
    }
    json_decref(document);
    return ice_json_parse_object(text, out, e); /* as a whole: what is wrong is said of the file as it is */
}
