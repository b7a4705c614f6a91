/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For the catalog's unit tests: JSON written with single quotes, a look into documents by path ("schemas.0.fields.1.id"), and
 * one call that applies updates and tells what came of it. Everything lives in a static arena that each test resets.
 */
#ifndef TARN_TEST_ICEBERG_JSON_H
#define TARN_TEST_ICEBERG_JSON_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "metadata.h"
#include "text.h"

#define T_NOW 1700000000000
#define T_READ_MAX 4096 /* documents that t_at reads in one test */
#define T_UUID "00000000-0000-4000-8000-000000000001"

static tarn_arena *t_arena;
static ice_error t_error;
static json_t *t_read[T_READ_MAX];
static size_t t_read_n;

static TARN_UNUSED int t_setup(void **state)
{
    (void)state;
    t_arena = tarn_arena_new(256u * 1024 * 1024);
    ice_error_init(&t_error);
    t_read_n = 0;
    return t_arena ? 0 : -1;
}

static TARN_UNUSED int t_teardown(void **state)
{
    (void)state;
    while (t_read_n > 0)
        json_decref(t_read[--t_read_n]);
    tarn_arena_free(t_arena);
    t_arena = NULL;
    return 0;
}

/* JSON with ' for "; fails the test when it is none. The caller releases it. */
static TARN_UNUSED json_t *t_json(const char *text)
{
    json_error_t e;
    tarn_str s = tarn_arena_str(t_arena, tarn_str_of(text));
    for (size_t i = 0; i < s.n; i++)
        if (s.p[i] == '\'')
            ((char *)(uintptr_t)s.p)[i] = '"';
    json_t *v = json_loadb(s.p, s.n, JSON_DECODE_ANY, &e);
    if (!v)
        fail_msg("test JSON: %s at %d in %s", e.text, e.position, text);
    return v;
}

static TARN_UNUSED const char *t_text(const json_t *v)
{
    tarn_sb b;
    tarn_sb_init(&b, ICE_METADATA_BYTES_MAX);
    ice_json_write(&b, v);
    tarn_str s = tarn_arena_str(t_arena, tarn_sb_view(&b));
    tarn_sb_free(&b);
    return s.p;
}

/* The value at a path, or NULL: of the document as a client reads it. */
static TARN_UNUSED const json_t *t_at(const json_t *document, const char *path)
{
    tarn_str rest = tarn_str_of(path);
    bool more = rest.n > 0;
    assert_true(t_read_n < T_READ_MAX);
    const json_t *v = t_read[t_read_n++] = json_loads(t_text(document), JSON_DECODE_ANY, NULL);
    while (more && v) {
        tarn_str step, tail;
        uint64_t i = 0;
        more = tarn_str_split(rest, '.', &step, &tail);
        rest = tail;
        v = json_is_array(v) && tarn_str_to_u64(step, &i) ? json_array_get(v, (size_t)i) : json_object_getn(v, step.p, step.n);
    }
    return v;
}

/* The value at the path is this JSON (single quotes); "-" means absent. */
static TARN_UNUSED void t_is(const json_t *v, const char *path, const char *expected)
{
    const json_t *got = t_at(v, path);
    if (strcmp(expected, "-") == 0) {
        if (got)
            fail_msg("%s is there: %s", path, t_text(got));
        return;
    }
    if (!got)
        fail_msg("%s is absent in %s", path, t_text(v));
    json_t *want = t_json(expected);
    if (!json_equal(got, want))
        fail_msg("%s is %s, expected %s", path, t_text(got), expected);
    json_decref(want);
}

static TARN_UNUSED void t_says(tarn_err err, tarn_err expected, const char *part)
{
    if (err != expected)
        fail_msg("error %s (%.*s), expected %s", tarn_err_get(err)->name, TARN_STR_ARG(ice_error_message(&t_error)),
                 tarn_err_get(expected)->name);
    if (tarn_str_find(ice_error_message(&t_error), tarn_str_of(part)) < 0)
        fail_msg("message is \"%.*s\", expected \"%s\"", TARN_STR_ARG(ice_error_message(&t_error)), part);
}

static TARN_UNUSED ice_ctx t_ctx(const char *base_location)
{
    return (ice_ctx){.arena = t_arena, .now_ms = T_NOW, .warehouse_root = TARN_STR("s3://w/"), .base_location = tarn_str_of(base_location)};
}

/* A table of the format version with columns 1 id long, 2 name string, 3 ts timestamp, 4 in a struct: 5 x int. */
static TARN_UNUSED json_t *t_table(int format)
{
    json_t *md = NULL;
    ice_ctx ctx = t_ctx("");
    char props[64];
    tarn_sb b;
    tarn_sb_init_fixed(&b, props, sizeof props);
    tarn_sb_fmt(&b, "{'format-version':'%d','a':'1'}", format);
    json_t *req = t_json(
        "{'name':'t','schema':{'type':'struct','fields':[{'id':1,'name':'id','required':true,'type':'long'},"
        "{'id':2,'name':'name','required':false,'type':'string'},{'id':3,'name':'ts','required':false,'type':'timestamp'},"
        "{'id':4,'name':'s','required':false,'type':{'type':'struct','fields':[{'id':5,'name':'x','required':false,'type':'int'}]}}]}}");
    json_object_set_new(req, "properties", t_json(props));
    tarn_err err = ice_table_create(req, TARN_STR(T_UUID), false, &ctx, &md, &t_error);
    if (err != TARN_OK)
        fail_msg("t_table: %.*s", TARN_STR_ARG(ice_error_message(&t_error)));
    json_decref(req);
    return md;
}

/* What is written with the help of the base's text is what is written without. */
static TARN_UNUSED void t_same_text(const json_t *base, const json_t *md)
{
    ice_text old = {0}, spliced = {0}, plain = {0};
    assert_int_equal(ice_text_write(base, NULL, NULL, ICE_METADATA_BYTES_MAX, &old), TARN_OK);
    assert_int_equal(ice_text_write(md, base, &old, ICE_METADATA_BYTES_MAX, &spliced), TARN_OK);
    assert_int_equal(ice_text_write(md, NULL, NULL, ICE_METADATA_BYTES_MAX, &plain), TARN_OK);
    assert_string_equal(spliced.p, plain.p);
    assert_string_equal(plain.p, t_text(md));
    assert_int_equal(spliced.spans_n, plain.spans_n);
    for (size_t i = 0; i < plain.spans_n; i++) {
        assert_int_equal(spliced.spans[i].start, plain.spans[i].start);
        assert_int_equal(spliced.spans[i].end, plain.spans[i].end);
        assert_int_equal(spliced.spans[i].elements_n, plain.spans[i].elements_n);
        for (uint32_t k = 0; k < plain.spans[i].elements_n; k++)
            assert_int_equal(spliced.spans[i].elements[k], plain.spans[i].elements[k]);
    }
    ice_text_free(&old);
    ice_text_free(&spliced);
    ice_text_free(&plain);
}

/* Applies updates (JSON text); base is released. Returns the new metadata. */
static TARN_UNUSED json_t *t_apply(json_t *base, const char *updates, bool expect_changed)
{
    ice_ctx ctx = t_ctx("s3://w/t/metadata/00000-x.metadata.json");
    ice_result r = {0};
    json_t *u = t_json(updates);
    const char *before = t_text(base);
    tarn_err err = ice_table_apply(base, NULL, u, &ctx, &r, &t_error);
    if (err != TARN_OK)
        fail_msg("%s: %.*s", updates, TARN_STR_ARG(ice_error_message(&t_error)));
    assert_string_equal(before, t_text(base)); /* the base is never changed */
    assert_int_equal(r.changed, expect_changed);
    if (!r.changed)
        assert_ptr_equal(r.metadata, base);
    json_t *again = NULL; /* what comes out is what readers accept */
    err = ice_table_load(r.metadata, true, t_arena, &again, &t_error);
    if (err != TARN_OK)
        fail_msg("%s gives metadata that does not load: %.*s", updates, TARN_STR_ARG(ice_error_message(&t_error)));
    json_decref(again);
    json_t *md = json_incref(r.metadata);
    t_same_text(base, md);
    ice_result_release(&r);
    json_decref(u);
    json_decref(base);
    return md;
}

/* The updates must fail; the base stays the caller's. */
static TARN_UNUSED void t_refuses(const json_t *base, const char *updates, tarn_err expected, const char *part)
{
    ice_ctx ctx = t_ctx("s3://w/t/metadata/00000-x.metadata.json");
    ice_result r = {0};
    json_t *u = t_json(updates);
    const char *before = t_text(base);
    tarn_err err = ice_table_apply(base, NULL, u, &ctx, &r, &t_error);
    ice_result_release(&r);
    json_decref(u);
    assert_string_equal(before, t_text(base));
    t_says(err, expected, part);
}

#endif
