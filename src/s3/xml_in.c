/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads request XML with expat into a small tree in the request's arena.
 *
 * Invariants: (1) a DOCTYPE ends the parse at once, so no entity can be declared; (2) depth and number of elements are
 * bounded by S3_XML_DEPTH_MAX and S3_XML_NODES_MAX; (3) only UTF-8 is taken; (4) text that is longer than the body can't
 * come about, as there are no entities to expand.
 */
#include "s3_internal.h"

#include <expat.h>
#include <string.h>

typedef struct parse_state {
    XML_Parser parser;
    tarn_arena *a;
    s3_node *root;
    s3_node *at;
    tarn_sb text; /* of the innermost open element, since the last tag */
    unsigned depth;
    unsigned nodes;
    bool bad;
} parse_state;

static void stop(parse_state *s)
{
    s->bad = true;
    (void)XML_StopParser(s->parser, XML_FALSE);
}

static void XMLCALL on_start(void *ctx, const XML_Char *name, const XML_Char **attrs)
{
    parse_state *s = ctx;
    (void)attrs; /* S3 has none that matter here */
    if (s->bad)
        return;
    tarn_sb_reset(&s->text); /* text between elements is white space: S3 has no mixed content */
    if (++s->depth > S3_XML_DEPTH_MAX || ++s->nodes > S3_XML_NODES_MAX) {
        stop(s);
        return;
    }
    s3_node *n = TARN_ARENA_NEW(s->a, s3_node);
    const char *colon = strrchr(name, ':');
    tarn_str local = n != NULL ? tarn_arena_str(s->a, tarn_str_of(colon != NULL ? colon + 1 : name)) : TARN_STR_NULL;
    if (local.n == 0) { /* no memory, or nothing behind the prefix */
        stop(s);
        return;
    }
    n->name = local;
    n->parent = s->at;
    if (s->at == NULL) {
        s->root = n;
    } else if (s->at->last == NULL) {
        s->at->first = s->at->last = n;
    } else {
        s->at->last->next = n;
        s->at->last = n;
    }
    s->at = n;
}

static void XMLCALL on_end(void *ctx, const XML_Char *name)
{
    parse_state *s = ctx;
    (void)name;
    if (s->bad || s->at == NULL)
        return;
    if (s->at->first == NULL && s->text.n > 0) {
        s->at->text = tarn_arena_str(s->a, tarn_sb_view(&s->text));
        if (s->at->text.p == NULL)
            stop(s);
    }
    tarn_sb_reset(&s->text);
    s->depth--;
    s->at = s->at->parent;
}

static void XMLCALL on_text(void *ctx, const XML_Char *p, int n)
{
    parse_state *s = ctx;
    if (!s->bad && n > 0)
        tarn_sb_bytes(&s->text, p, (size_t)n);
}

static void XMLCALL on_doctype(void *ctx, const XML_Char *name, const XML_Char *sysid, const XML_Char *pubid, int internal)
{
    (void)name;
    (void)sysid;
    (void)pubid;
    (void)internal;
    stop(ctx);
}

tarn_err s3_xml_parse(tarn_str body, tarn_arena *a, s3_node **root)
{
    if (body.n == 0 || body.n > S3_XML_BODY_BYTES_MAX || !tarn_str_utf8_valid(body))
        return TARN_E_MALFORMED_XML;
    parse_state s = {.a = a};
    s.parser = XML_ParserCreate("UTF-8");
    if (s.parser == NULL)
        return TARN_E_NO_MEMORY;
    tarn_sb_init(&s.text, S3_XML_BODY_BYTES_MAX + 1);
    XML_SetUserData(s.parser, &s);
    XML_SetElementHandler(s.parser, on_start, on_end);
    XML_SetCharacterDataHandler(s.parser, on_text);
    XML_SetStartDoctypeDeclHandler(s.parser, on_doctype);
    enum XML_Status st = XML_Parse(s.parser, body.p, (int)body.n, 1);
    bool ok = st == XML_STATUS_OK && !s.bad && !s.text.failed && s.root != NULL;
    XML_ParserFree(s.parser);
    tarn_sb_free(&s.text);
    if (!ok)
        return TARN_E_MALFORMED_XML;
    *root = s.root;
    return TARN_OK;
}

const s3_node *s3_node_child(const s3_node *n, const char *name)
{
    if (n == NULL)
        return NULL;
    for (const s3_node *k = n->first; k != NULL; k = k->next)
        if (tarn_str_eqc(k->name, name))
            return k;
    return NULL;
}

tarn_str s3_node_text(const s3_node *n, const char *child)
{
    const s3_node *k = s3_node_child(n, child);
    if (k == NULL)
        return TARN_STR_NULL;
    tarn_str t = tarn_str_trim(k->text);
    return t.p != NULL ? t : TARN_STR("");
}

size_t s3_node_count(const s3_node *n, const char *name)
{
    size_t count = 0;
    for (const s3_node *k = n != NULL ? n->first : NULL; k != NULL; k = k->next)
        count += tarn_str_eqc(k->name, name) ? 1 : 0;
    return count;
}

tarn_err s3_read_xml(s3_ctx *c, const char *root, s3_node **out)
{
    tarn_str body;
    tarn_err e = s3_read_body(c, S3_XML_BODY_BYTES_MAX, &body);
    if (e == TARN_E_ENTITY_TOO_LARGE)
        return s3_fail(c, TARN_E_MALFORMED_XML, "The XML you provided is larger than this operation allows.");
    if (e != TARN_OK)
        return e;
    s3_node *n;
    e = s3_xml_parse(body, c->a, &n);
    if (e != TARN_OK)
        return e;
    if (!tarn_str_eqc(n->name, root))
        return TARN_E_MALFORMED_XML;
    *out = n;
    return TARN_OK;
}
