/* SPDX-License-Identifier: Apache-2.0 */
/*
 * iceberg, common: see common.h. The depth of a document is measured before jansson sees it, as jansson recurses and a
 * request runs on a small stack; strings are skipped by the same rules as a parser has (a backslash takes the next byte).
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "entry.h"

/* ------------------------------------------------------------------ errors */
void ice_error_init(ice_error *e)
{
    e->code = TARN_OK;
    tarn_sb_init_fixed(&e->text, e->memory, sizeof e->memory);
}

static TARN_PRINTF(2, 0) void set_text(ice_error *e, const char *fmt, va_list ap)
{
    /* A message past the maximum is built elsewhere and cut: half a message is better than none. */
    tarn_sb whole;
    tarn_sb_init(&whole, ICE_METADATA_BYTES_MAX);
    tarn_sb_vfmt(&whole, fmt, ap);
    tarn_str s = tarn_sb_view(&whole);
    if (s.n >= ICE_ERROR_BYTES_MAX) {
        s.n = ICE_ERROR_BYTES_MAX - 1;
        while (s.n > 0 && ((unsigned char)s.p[s.n] & 0xC0) == 0x80) /* never inside a character */
            s.n--;
    }
    tarn_sb_reset(&e->text);
    tarn_sb_str(&e->text, s);
    tarn_sb_free(&whole);
}

tarn_err ice_fail(ice_error *e, tarn_err code, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    e->code = code;
    set_text(e, fmt, ap);
    va_end(ap);
    return code;
}

tarn_err ice_fail_plain(ice_error *e, tarn_err code)
{
    return ice_fail(e, code, "%s", tarn_err_get(code)->message);
}

tarn_err ice_hand_over(json_t *made, tarn_err err, json_t **out, ice_error *e)
{
    if (err == TARN_E_NO_MEMORY)
        ice_fail_plain(e, err);
    if (err == TARN_OK)
        *out = made;
    else
        json_decref(made);
    return err;
}

tarn_str ice_error_message(const ice_error *e)
{
    return tarn_sb_view(&e->text);
}

/* ------------------------------------------------------------------ reading */
static bool depth_within(tarn_str s, unsigned depth_max)
{
    unsigned depth = 0;
    for (size_t i = 0; i < s.n; i++) {
        char c = s.p[i];
        if (c == '"') {
            for (i++; i < s.n && s.p[i] != '"'; i++)
                if (s.p[i] == '\\')
                    i++;
        } else if (c == '[' || c == '{') {
            if (++depth > depth_max)
                return false;
        } else if ((c == ']' || c == '}') && depth > 0) {
            depth--;
        }
    }
    return true;
}

tarn_err ice_json_parse(tarn_str text, unsigned depth_max, json_t **out, ice_error *e)
{
    if (text.n == 0)
        return ice_fail(e, TARN_E_ICE_BAD_REQUEST, "Malformed request: the body is empty, a JSON document is needed");
    if (!depth_within(text, depth_max))
        return ice_fail(e, TARN_E_ICE_BAD_REQUEST, "Malformed request: JSON is nested deeper than %u levels", depth_max);
    json_error_t je;
    json_t *v = json_loadb(text.p, text.n, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &je);
    if (!v)
        return ice_fail(e, TARN_E_ICE_BAD_REQUEST, "Malformed request: not valid JSON: line %d, column %d: %s", je.line, je.column,
                        je.text);
    *out = v;
    return TARN_OK;
}

tarn_err ice_json_parse_object(tarn_str text, json_t **out, ice_error *e)
{
    json_t *v = NULL;
    ICE_TRY(ice_json_parse(text, ICE_JSON_DEPTH_MAX, &v, e));
    if (!json_is_object(v)) {
        json_decref(v);
        return ice_fail(e, TARN_E_ICE_BAD_REQUEST, "Malformed request: a JSON object is needed");
    }
    *out = v;
    return TARN_OK;
}

/* ------------------------------------------------------------------ writing */
void ice_json_write_string(tarn_sb *b, tarn_str s)
{
    static const char digits[] = "0123456789abcdef";
    tarn_sb_char(b, '"');
    size_t from = 0;
    for (size_t i = 0; i < s.n; i++) {
        unsigned char c = (unsigned char)s.p[i];
        if (c >= 0x20 && c != '"' && c != '\\')
            continue;
        tarn_sb_bytes(b, s.p + from, i - from);
        from = i + 1;
        switch (c) {
        case '"':
            tarn_sb_bytes(b, "\\\"", 2);
            break;
        case '\\':
            tarn_sb_bytes(b, "\\\\", 2);
            break;
        case '\n':
            tarn_sb_bytes(b, "\\n", 2);
            break;
        case '\r':
            tarn_sb_bytes(b, "\\r", 2);
            break;
        case '\t':
            tarn_sb_bytes(b, "\\t", 2);
            break;
        default:
            tarn_sb_bytes(b, "\\u00", 4);
            tarn_sb_char(b, digits[c >> 4]);
            tarn_sb_char(b, digits[c & 15]);
        }
    }
    tarn_sb_bytes(b, s.p + from, s.n - from);
    tarn_sb_char(b, '"');
}

/* The shortest text that reads back as the same number, and that is a floating token. */
static void write_real(tarn_sb *b, double v)
{
    TARN_ASSERT(isfinite(v)); /* jansson makes no others */
    char memory[64];
    tarn_sb t;
    for (int digits = 15; digits <= 17; digits++) {
        tarn_sb_init_fixed(&t, memory, sizeof memory);
        tarn_sb_fmt(&t, "%.*g", digits, v);
        if (digits == 17 || strtod(memory, NULL) == v)
            break;
    }
    tarn_str s = tarn_sb_view(&t);
    tarn_sb_str(b, s);
    if (tarn_str_chr(s, '.') < 0 && tarn_str_chr(s, 'e') < 0)
        tarn_sb_bytes(b, ".0", 2);
}

static void write_array(tarn_sb *b, const json_t *array)
{
    tarn_sb_char(b, '[');
    size_t n = json_array_size(array);
    for (size_t i = 0; i < n; i++) {
        if (i)
            tarn_sb_char(b, ',');
        ice_json_write(b, json_array_get(array, i));
    }
    tarn_sb_char(b, ']');
}

static void write_object(tarn_sb *b, const json_t *object)
{
    tarn_sb_char(b, '{');
    bool first = true;
    /* jansson's iterator takes a mutable object although it only reads. */
    json_t *o = (json_t *)(uintptr_t)object;
    for (void *it = json_object_iter(o); it; it = json_object_iter_next(o, it)) {
        if (!first)
            tarn_sb_char(b, ',');
        first = false;
        ice_json_write_string(b, (tarn_str){json_object_iter_key(it), json_object_iter_key_len(it)});
        tarn_sb_char(b, ':');
        ice_json_write(b, json_object_iter_value(it));
    }
    tarn_sb_char(b, '}');
}

void ice_json_write(tarn_sb *b, const json_t *value)
{
    switch (json_typeof(value)) {
    case JSON_OBJECT:
        write_object(b, value);
        break;
    case JSON_ARRAY:
        write_array(b, value);
        break;
    case JSON_STRING:
        if (ice_entry_is_text(value))
            tarn_sb_str(b, ice_entry_text(value));
        else
            ice_json_write_string(b, ice_str(value));
        break;
    case JSON_INTEGER:
        tarn_sb_i64(b, json_integer_value(value));
        break;
    case JSON_REAL:
        write_real(b, json_real_value(value));
        break;
    case JSON_TRUE:
        tarn_sb_bytes(b, "true", 4);
        break;
    case JSON_FALSE:
        tarn_sb_bytes(b, "false", 5);
        break;
    case JSON_NULL:
        tarn_sb_bytes(b, "null", 4);
        break;
    }
}

/* ------------------------------------------------------------------ fields */
json_t *ice_get(const json_t *object, const char *key)
{
    json_t *v = json_object_get(object, key);
    return json_is_null(v) ? NULL : v;
}

static tarn_err missing(ice_error *e, const char *what, const char *key)
{
    return ice_fail(e, TARN_E_ICE_BAD_REQUEST, "Cannot parse %s: field %s is missing", what, key);
}

static tarn_err mistyped(ice_error *e, const char *what, const char *key, const char *type)
{
    return ice_fail(e, TARN_E_ICE_BAD_REQUEST, "Cannot parse %s: field %s must be %s", what, key, type);
}

tarn_err ice_opt_int(const json_t *object, const char *what, const char *key, bool *has, int64_t *out, ice_error *e)
{
    tarn_str text;
    if (ice_entry_is_text(object)) {
        *has = ice_entry_value(ice_entry_text(object), key, &text);
        return !*has || ice_entry_int(text, out) ? TARN_OK : mistyped(e, what, key, "an integer");
    }
    json_t *v = ice_get(object, key);
    *has = v != NULL;
    if (!v)
        return TARN_OK;
    if (!json_is_integer(v))
        return mistyped(e, what, key, "an integer");
    *out = json_integer_value(v);
    return TARN_OK;
}

tarn_err ice_opt_int32(const json_t *object, const char *what, const char *key, bool *has, int64_t *out, ice_error *e)
{
    int64_t v = 0;
    ICE_TRY(ice_opt_int(object, what, key, has, &v, e));
    if (*has && (v < INT32_MIN || v > INT32_MAX))
        return mistyped(e, what, key, "an integer of 32 bits");
    if (*has)
        *out = v;
    return TARN_OK;
}

tarn_err ice_get_int(const json_t *object, const char *what, const char *key, int64_t *out, ice_error *e)
{
    bool has = false;
    ICE_TRY(ice_opt_int(object, what, key, &has, out, e));
    return has ? TARN_OK : missing(e, what, key);
}

tarn_err ice_get_int32(const json_t *object, const char *what, const char *key, int64_t *out, ice_error *e)
{
    bool has = false;
    ICE_TRY(ice_opt_int32(object, what, key, &has, out, e));
    return has ? TARN_OK : missing(e, what, key);
}

tarn_err ice_opt_string(const json_t *object, const char *what, const char *key, tarn_str *out, ice_error *e)
{
    json_t *v = ice_get(object, key);
    *out = TARN_STR_NULL;
    if (!v)
        return TARN_OK;
    if (!json_is_string(v))
        return mistyped(e, what, key, "a string");
    if (json_string_length(v) > ICE_STRING_BYTES_MAX)
        return ice_fail(e, TARN_E_ICE_BAD_REQUEST, "Cannot parse %s: field %s is longer than %d bytes", what, key, ICE_STRING_BYTES_MAX);
    *out = ice_str(v);
    return TARN_OK;
}

tarn_err ice_get_string(const json_t *object, const char *what, const char *key, tarn_str *out, ice_error *e)
{
    ICE_TRY(ice_opt_string(object, what, key, out, e));
    return out->p ? TARN_OK : missing(e, what, key);
}

tarn_err ice_opt_bool(const json_t *object, const char *what, const char *key, bool fallback, bool *out, ice_error *e)
{
    json_t *v = ice_get(object, key);
    if (v && !json_is_boolean(v))
        return mistyped(e, what, key, "true or false");
    *out = v ? json_is_true(v) : fallback;
    return TARN_OK;
}

tarn_err ice_opt_object(const json_t *object, const char *what, const char *key, json_t **out, ice_error *e)
{
    json_t *v = ice_get(object, key);
    if (v && !json_is_object(v))
        return mistyped(e, what, key, "an object");
    *out = v;
    return TARN_OK;
}

tarn_err ice_opt_array(const json_t *object, const char *what, const char *key, json_t **out, ice_error *e)
{
    json_t *v = ice_get(object, key);
    if (v && !json_is_array(v))
        return mistyped(e, what, key, "a list");
    *out = v;
    return TARN_OK;
}

tarn_err ice_get_object(const json_t *object, const char *what, const char *key, json_t **out, ice_error *e)
{
    ICE_TRY(ice_opt_object(object, what, key, out, e));
    return *out ? TARN_OK : missing(e, what, key);
}

tarn_err ice_get_array(const json_t *object, const char *what, const char *key, json_t **out, ice_error *e)
{
    ICE_TRY(ice_opt_array(object, what, key, out, e));
    return *out ? TARN_OK : missing(e, what, key);
}

tarn_err ice_check_string_map(const json_t *map, const char *what, ice_error *e)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)map, key, value)
    {
        if (!json_is_string(value))
            return ice_fail(e, TARN_E_ICE_BAD_REQUEST, "Cannot parse %s: the value of %s must be a string", what, key);
    }
    return TARN_OK;
}

bool ice_int_at(const json_t *object, const char *key, int64_t *out)
{
    tarn_str text;
    if (ice_entry_is_text(object))
        return ice_entry_value(ice_entry_text(object), key, &text) && ice_entry_int(text, out);
    json_t *v = json_object_get(object, key);
    if (json_is_integer(v))
        *out = json_integer_value(v);
    return json_is_integer(v);
}

int64_t ice_int_or(const json_t *object, const char *key, int64_t fallback)
{
    int64_t v = 0;
    return ice_int_at(object, key, &v) ? v : fallback;
}

tarn_str ice_str(const json_t *string)
{
    return json_is_string(string) ? (tarn_str){json_string_value(string), json_string_length(string)} : TARN_STR_NULL;
}

tarn_str ice_string_or_empty(const json_t *object, const char *key)
{
    return ice_str(json_object_get(object, key));
}

/* ------------------------------------------------------------------ building */
tarn_err ice_set(json_t *object, const char *key, json_t *value)
{
    return value && json_object_set_new(object, key, value) == 0 ? TARN_OK : TARN_E_NO_MEMORY;
}

tarn_err ice_set_int(json_t *object, const char *key, int64_t value)
{
    return ice_set(object, key, json_integer(value));
}

json_t *ice_json_str(tarn_str s)
{
    return json_stringn(s.p ? s.p : "", s.n);
}

tarn_err ice_set_str(json_t *object, const char *key, tarn_str value)
{
    return ice_set(object, key, ice_json_str(value));
}

tarn_err ice_push(json_t *array, json_t *value)
{
    return value && json_array_append_new(array, value) == 0 ? TARN_OK : TARN_E_NO_MEMORY;
}
