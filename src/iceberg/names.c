/* SPDX-License-Identifier: Apache-2.0 */
/*
 * iceberg, names: namespaces and tables in paths and bodies, how they are shown, and page tokens.
 *
 * A namespace in a path is one segment: its levels, percent-encoded, joined by %1F. It is split at the raw %1F first and
 * decoded then. Some clients write a blank as '+'; who looks a name up tries the blank first and then the literal '+'.
 */
#include <string.h>

#include "catalog.h"

#define PAGE_TOKEN_BYTES_MAX 4096

/* ------------------------------------------------------------------ checks */
tarn_err ice_check_name(ice_req *q, const char *what, tarn_str name)
{
    if (name.n == 0)
        return ice_fail(&q->e, TARN_E_ICE_BAD_REQUEST, "Invalid %s: it is empty", what);
    if (name.n > ICE_NS_LEVEL_BYTES_MAX)
        return ice_fail(&q->e, TARN_E_ICE_BAD_REQUEST, "Invalid %s: it is longer than %d bytes", what, ICE_NS_LEVEL_BYTES_MAX);
    if (!tarn_str_utf8_valid(name))
        return ice_fail(&q->e, TARN_E_ICE_BAD_REQUEST, "Invalid %s: it is not UTF-8", what);
    if (tarn_str_eqc(name, ".") || tarn_str_eqc(name, ".."))
        return ice_fail(&q->e, TARN_E_ICE_BAD_REQUEST, "Invalid %s: %.*s is not allowed", what, TARN_STR_ARG(name));
    for (size_t i = 0; i < name.n; i++) {
        unsigned char c = (unsigned char)name.p[i];
        if (c < 0x20 || c == 0x7f || c == '/')
            return ice_fail(&q->e, TARN_E_ICE_BAD_REQUEST, "Invalid %s: slashes and control characters are not allowed", what);
    }
    return TARN_OK;
}

tarn_err ice_check_ns(ice_req *q, tarn_str path)
{
    size_t levels = 0;
    bool more = true;
    if (path.n > TARN_NS_PATH_BYTES_MAX)
        return ice_fail(&q->e, TARN_E_ICE_BAD_REQUEST, "Invalid namespace: it is longer than %d bytes", TARN_NS_PATH_BYTES_MAX);
    while (more) {
        tarn_str level, rest;
        more = tarn_str_split(path, ICE_NS_SEPARATOR, &level, &rest);
        ICE_TRY(ice_check_name(q, "namespace", level));
        if (++levels > TARN_NS_LEVELS_MAX)
            return ice_fail(&q->e, TARN_E_ICE_BAD_REQUEST, "Invalid namespace: it has more than %d levels", TARN_NS_LEVELS_MAX);
        path = rest;
    }
    return TARN_OK;
}

/* ------------------------------------------------------------------ decoding */
tarn_err ice_name_decode(ice_req *q, tarn_str raw, bool plus, tarn_str *out)
{
    if (!tarn_urldecode(q->a, raw, plus, out))
        return ice_fail(&q->e, TARN_E_ICE_BAD_REQUEST, "Malformed request: the path has a broken escape");
    return TARN_OK;
}

/* Where the next %1F (or a raw 0x1F) begins; *n is its length. */
static ptrdiff_t find_separator(tarn_str s, size_t *n)
{
    for (size_t i = 0; i < s.n; i++) {
        if (s.p[i] == ICE_NS_SEPARATOR) {
            *n = 1;
            return (ptrdiff_t)i;
        }
        if (s.p[i] == '%' && i + 2 < s.n && s.p[i + 1] == '1' && (s.p[i + 2] == 'F' || s.p[i + 2] == 'f')) {
            *n = 3;
            return (ptrdiff_t)i;
        }
    }
    return -1;
}

tarn_err ice_ns_decode(ice_req *q, tarn_str raw, bool plus, tarn_str *out)
{
    tarn_sb b;
    char *memory = tarn_arena_alloc(q->a, raw.n + 1);
    if (!memory)
        return TARN_E_NO_MEMORY;
    tarn_sb_init_fixed(&b, memory, raw.n + 1);
    for (;;) {
        size_t n = 0;
        ptrdiff_t at = find_separator(raw, &n);
        tarn_str level, part = at < 0 ? raw : tarn_str_sub(raw, 0, (size_t)at);
        ICE_TRY(ice_name_decode(q, part, plus, &level));
        tarn_sb_str(&b, level);
        if (at < 0)
            break;
        tarn_sb_char(&b, ICE_NS_SEPARATOR);
        raw = tarn_str_sub(raw, (size_t)at + n, raw.n);
    }
    *out = tarn_sb_view(&b);
    return TARN_OK;
}

/* ------------------------------------------------------------------ JSON */
tarn_err ice_ns_from_json(ice_req *q, const json_t *list, tarn_str *out)
{
    tarn_sb b;
    size_t n = json_array_size(list);
    char memory[TARN_NS_PATH_BYTES_MAX + 2];
    if (!json_is_array(list) || n == 0)
        return ice_fail(&q->e, TARN_E_ICE_BAD_REQUEST, "Cannot parse namespace: a list of names is needed");
    if (n > TARN_NS_LEVELS_MAX)
        return ice_fail(&q->e, TARN_E_ICE_BAD_REQUEST, "Invalid namespace: it has more than %d levels", TARN_NS_LEVELS_MAX);
    tarn_sb_init_fixed(&b, memory, sizeof memory);
    for (size_t i = 0; i < n; i++) {
        const json_t *level = json_array_get(list, i);
        if (!json_is_string(level))
            return ice_fail(&q->e, TARN_E_ICE_BAD_REQUEST, "Cannot parse namespace: its levels must be strings");
        ICE_TRY(ice_check_name(q, "namespace", ice_str(level)));
        if (i > 0)
            tarn_sb_char(&b, ICE_NS_SEPARATOR);
        tarn_sb_str(&b, ice_str(level));
    }
    if (b.failed || b.n > TARN_NS_PATH_BYTES_MAX)
        return ice_fail(&q->e, TARN_E_ICE_BAD_REQUEST, "Invalid namespace: it is longer than %d bytes", TARN_NS_PATH_BYTES_MAX);
    *out = tarn_arena_str(q->a, tarn_sb_view(&b));
    return out->p ? TARN_OK : TARN_E_NO_MEMORY;
}

tarn_err ice_identifier(ice_req *q, const json_t *object, tarn_str *ns, tarn_str *name)
{
    if (!json_is_object(object))
        return ice_fail(&q->e, TARN_E_ICE_BAD_REQUEST, "Cannot parse table identifier: an object is needed");
    ICE_TRY(ice_ns_from_json(q, json_object_get(object, "namespace"), ns));
    ICE_TRY(ice_get_string(object, "table identifier", "name", name, &q->e));
    return ice_check_name(q, "name", *name);
}

void ice_ns_write_json(tarn_sb *b, tarn_str path)
{
    bool more = path.n > 0;
    tarn_sb_char(b, '[');
    while (more) {
        tarn_str level, rest;
        more = tarn_str_split(path, ICE_NS_SEPARATOR, &level, &rest);
        ice_json_write_string(b, level);
        if (more)
            tarn_sb_char(b, ',');
        path = rest;
    }
    tarn_sb_char(b, ']');
}

/* ------------------------------------------------------------------ showing */
tarn_str ice_ns_show(ice_req *q, tarn_str path)
{
    char *p = tarn_arena_alloc(q->a, path.n + 1);
    if (!p)
        return path;
    for (size_t i = 0; i < path.n; i++)
        p[i] = path.p[i] == ICE_NS_SEPARATOR ? '.' : path.p[i];
    return (tarn_str){p, path.n};
}

tarn_str ice_show(ice_req *q, tarn_str ns, tarn_str name)
{
    if (ns.n == 0)
        return name;
    return tarn_arena_fmt(q->a, "%.*s.%.*s", TARN_STR_ARG(ice_ns_show(q, ns)), TARN_STR_ARG(name));
}

/* ------------------------------------------------------------------ pages */
static uint64_t scope_hash(char kind, tarn_str scope)
{
    uint64_t h = 14695981039346656037ull ^ (uint64_t)(unsigned char)kind;
    for (size_t i = 0; i < scope.n; i++)
        h = (h ^ (unsigned char)scope.p[i]) * 1099511628211ull;
    return h;
}

static void page_token(tarn_sb *b, char kind, tarn_str scope, tarn_str last)
{
    tarn_sb plain;
    tarn_sb_init(&plain, PAGE_TOKEN_BYTES_MAX);
    tarn_sb_le64(&plain, scope_hash(kind, scope));
    tarn_sb_str(&plain, last);
    tarn_sb_base64url(b, plain.p, plain.n);
    tarn_sb_free(&plain);
}

static tarn_err read_token(ice_req *q, char kind, tarn_str scope, tarn_str token, tarn_str *after)
{
    uint8_t *plain = token.n <= PAGE_TOKEN_BYTES_MAX ? tarn_arena_alloc(q->a, token.n + 1) : NULL;
    size_t n = 0;
    if (!plain || !tarn_base64url_decode(token, plain, token.n, &n) || n <= 8)
        return ice_fail(&q->e, TARN_E_ICE_BAD_REQUEST, "Invalid pageToken");
    tarn_rd r = tarn_rd_of((tarn_str){(const char *)plain, n});
    if (tarn_rd_le64(&r) != scope_hash(kind, scope))
        return ice_fail(&q->e, TARN_E_ICE_BAD_REQUEST, "Invalid pageToken: it belongs to another list");
    *after = (tarn_str){(const char *)plain + 8, n - 8};
    return TARN_OK;
}

static tarn_err page_read(ice_req *q, char kind, tarn_str scope, ice_page *out)
{
    const tarn_param *token = tarn_req_param(q->http, "pageToken"), *size = tarn_req_param(q->http, "pageSize");
    uint64_t n = 0;
    *out = (ice_page){.on = token || size, .size = ICE_PAGE_SIZE_MAX, .after = TARN_STR("")};
    if (size && size->value.n > 0) {
        if (!tarn_str_to_u64(size->value, &n) || n == 0)
            return ice_fail(&q->e, TARN_E_ICE_BAD_REQUEST, "Invalid pageSize: a number above 0 is needed");
        out->size = n < ICE_PAGE_SIZE_MAX ? (size_t)n : ICE_PAGE_SIZE_MAX;
    }
    if (token && token->value.n > 0)
        ICE_TRY(read_token(q, kind, scope, token->value, &out->after));
    return TARN_OK;
}

/* ------------------------------------------------------------------ lists */
_Static_assert(TARN_NS_PATH_BYTES_MAX >= TARN_CATALOG_NAME_BYTES_MAX && TARN_NS_PATH_BYTES_MAX >= TARN_BUCKET_NAME_BYTES_MAX,
               "ice_list.last holds the name of whatever is listed");

tarn_err ice_list_begin(ice_req *q, char kind, tarn_str scope, const char *name, ice_list **out)
{
    ice_list *l = TARN_ARENA_NEW(q->a, ice_list);
    if (!l)
        return TARN_E_NO_MEMORY;
    l->kind = kind;
    l->scope = scope;
    ICE_TRY(page_read(q, kind, scope, &l->page));
    tarn_sb_init_fixed(&l->last, l->last_memory, sizeof l->last_memory);
    tarn_sb_init(&l->b, ICE_LIST_BYTES_MAX);
    tarn_sb_fmt(&l->b, "{\"%s\":[", name);
    *out = l;
    return TARN_OK;
}

bool ice_list_next(ice_list *l)
{
    if (l->page.on && l->n == l->page.size) {
        l->more = true;
        return false;
    }
    if (l->n++ > 0)
        tarn_sb_char(&l->b, ',');
    return true;
}

bool ice_list_wrote(ice_list *l, tarn_str name)
{
    tarn_sb_reset(&l->last);
    tarn_sb_str(&l->last, name);
    return !l->b.failed;
}

tarn_err ice_list_send(ice_req *q, ice_list *l, tarn_err err)
{
    tarn_sb_cstr(&l->b, "],\"next-page-token\":");
    if (l->more) {
        tarn_sb_char(&l->b, '"');
        page_token(&l->b, l->kind, l->scope, tarn_sb_view(&l->last));
        tarn_sb_cstr(&l->b, "\"}");
    } else {
        tarn_sb_cstr(&l->b, "null}");
    }
    if (err == TARN_OK)
        err = ice_send_json(q, 200, &l->b);
    tarn_sb_free(&l->b);
    return err;
}
