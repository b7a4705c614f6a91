/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as a metadata.json, of a table or a view, and as a commit ({"base", "requirements", "updates"}). What must hold:
 * metadata that is taken is written, read and taken again as the same text; a commit that is taken leaves metadata that is taken.
 */
#include "entry.h"
#include "metadata.h"
#include "text.h"

#include <string.h>

#define ARENA_BYTES (16u << 20)
#define TEXT_BYTES_MAX (8u << 20)

static char *text_of(const json_t *j, size_t *n)
{
    tarn_sb out;
    tarn_sb_init(&out, TEXT_BYTES_MAX);
    ice_json_write(&out, j);
    TARN_ASSERT(!out.failed);
    *n = out.n;
    return out.p;
}

static void written_by_parts_is_the_same(const json_t *j, const char *text, size_t n)
{
    ice_text t = {0};
    TARN_ASSERT(ice_text_write(j, NULL, NULL, TEXT_BYTES_MAX, &t) == TARN_OK);
    TARN_ASSERT(t.n == n && memcmp(t.p, text, n) == 0);
    ice_text_free(&t);
}

static tarn_err load(const json_t *raw, bool view, tarn_arena *a, json_t **out, ice_error *e)
{
    return view ? ice_view_load(raw, out, e) : ice_table_load(raw, true, a, out, e);
}

static void comes_back(const json_t *metadata, bool view, tarn_arena *a)
{
    ice_error e;
    json_t *raw = NULL, *again = NULL;
    size_t n = 0, again_n = 0;
    char *text = text_of(metadata, &n);
    ice_error_init(&e);
    TARN_ASSERT(ice_json_parse_object((tarn_str){text, n}, &raw, &e) == TARN_OK);
    TARN_ASSERT(load(raw, view, a, &again, &e) == TARN_OK);
    char *again_text = text_of(again, &again_n);
    TARN_ASSERT(n == again_n && memcmp(text, again_text, n) == 0);
    written_by_parts_is_the_same(metadata, text, n);
    json_decref(again);
    json_decref(raw);
    tarn_free(again_text);
    tarn_free(text);
}

static void as_a_file(const json_t *raw, bool view, tarn_arena *a)
{
    ice_error e;
    json_t *metadata = NULL;
    ice_error_init(&e);
    if (load(raw, view, a, &metadata, &e) == TARN_OK)
        comes_back(metadata, view, a);
    json_decref(metadata);
}

static void as_a_commit(const json_t *in, tarn_arena *a)
{
    ice_error e;
    ice_result r = {0};
    json_t *base = NULL, *raw = NULL;
    ice_ctx ctx = {.arena = a, .now_ms = 1700000000000};
    ice_error_init(&e);
    size_t n = 0;
    char *text = text_of(json_object_get(in, "base"), &n); /* as the file that the daemon reads it from */
    TARN_ASSERT(ice_entries_parse((tarn_str){text, n}, &raw, &e) == TARN_OK);
    if (ice_table_load(raw, true, a, &base, &e) == TARN_OK &&
        ice_table_apply(base, json_object_get(in, "requirements"), json_object_get(in, "updates"), &ctx, &r, &e) == TARN_OK)
        comes_back(r.metadata, false, a);
    ice_result_release(&r);
    json_decref(base);
    json_decref(raw);
    tarn_free(text);
}

/* Read by entries, a document is the same one, and what is none is none. */
static void by_entries_is_the_same(tarn_str text, const json_t *document, bool ok)
{
    ice_error e;
    json_t *parts = NULL;
    size_t n = 0, parts_n = 0;
    ice_error_init(&e);
    TARN_ASSERT((ice_entries_parse(text, &parts, &e) == TARN_OK) == ok);
    if (!ok)
        return;
    char *whole_text = text_of(document, &n), *parts_text = text_of(parts, &parts_n);
    TARN_ASSERT(n == parts_n && memcmp(whole_text, parts_text, n) == 0);
    tarn_free(whole_text);
    tarn_free(parts_text);
    json_decref(parts);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    ice_error e;
    json_t *in = NULL;
    tarn_arena *a = tarn_arena_new(ARENA_BYTES);
    ice_error_init(&e);
    tarn_str text = {(const char *)data, n};
    bool ok = a && ice_json_parse_object(text, &in, &e) == TARN_OK;
    by_entries_is_the_same(text, in, ok);
    if (ok) {
        as_a_file(in, false, a);
        as_a_file(in, true, a);
        if (json_is_object(json_object_get(in, "base")))
            as_a_commit(in, a);
    }
    json_decref(in);
    tarn_arena_free(a);
    return 0;
}
