/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The metadata engine on a pipe, for tests in other languages: `test_iceberg_apply_tool --stdin` reads one JSON object a
 * line and writes one a line. Input: {"op": "apply"|"create"|"view-create"|"view-apply"|"load"|"refs", "base", "requirements",
 * "updates", "request", "uuid", "now", "location"}; output: {"metadata", "changed"} or {"error": {"type", "code", "message"}}.
 * The base is read from text as the daemon reads a file. Without arguments it runs the tests of this tool itself.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "entry.h"
#include "metadata.h"

#define LINE_BYTES_MAX (16u * 1024 * 1024)

static tarn_err as_file(const json_t *tree, json_t **out, ice_error *e)
{
    tarn_sb b;
    tarn_sb_init(&b, LINE_BYTES_MAX);
    ice_json_write(&b, tree);
    tarn_err err = ice_entries_parse(tarn_sb_view(&b), out, e);
    tarn_sb_free(&b);
    return err;
}

static tarn_err run_op(const json_t *in, const json_t *base, const ice_ctx *ctx, ice_result *r, ice_error *e)
{
    tarn_str op = ice_string_or_empty(in, "op"), uuid = ice_string_or_empty(in, "uuid");
    const json_t *req = ice_get(in, "requirements"), *up = json_object_get(in, "updates");
    const json_t *request = json_object_get(in, "request");
    r->changed = true;
    if (tarn_str_eqc(op, "create"))
        return ice_table_create(request, uuid, false, ctx, &r->metadata, e);
    if (tarn_str_eqc(op, "view-create"))
        return ice_view_create(request, uuid, ctx, &r->metadata, e);
    if (tarn_str_eqc(op, "view-apply"))
        return ice_view_apply(base, req, up, ctx, r, e);
    if (tarn_str_eqc(op, "load"))
        return ice_table_load(base, true, ctx->arena, &r->metadata, e);
    if (tarn_str_eqc(op, "refs"))
        return ice_table_refs_only(base, &r->metadata);
    return ice_table_apply(base, req, up, ctx, r, e);
}

static tarn_err answer(tarn_str line, tarn_sb *out)
{
    json_t *in = NULL, *base = NULL;
    ice_error e;
    ice_result r = {0};
    ice_error_init(&e);
    tarn_arena *a = tarn_arena_new(64u * 1024 * 1024);
    tarn_err err = a ? ice_json_parse_object(line, &in, &e) : TARN_E_NO_MEMORY;
    ice_ctx ctx = {.arena = a,
                   .now_ms = ice_int_or(in, "now", 1700000000000),
                   .warehouse_root = ice_string_or_empty(in, "root"),
                   .base_location = ice_string_or_empty(in, "location")};
    if (err == TARN_OK && ice_get(in, "base"))
        err = as_file(ice_get(in, "base"), &base, &e);
    if (err == TARN_OK)
        err = run_op(in, base, &ctx, &r, &e);
    if (err == TARN_OK) {
        tarn_sb_cstr(out, "{\"metadata\":");
        ice_json_write(out, r.metadata);
        tarn_sb_fmt(out, ",\"changed\":%s}", r.changed ? "true" : "false");
    } else {
        tarn_sb_fmt(out, "{\"error\":{\"code\":%d,\"type\":\"%s\",\"message\":", tarn_err_get(err)->http_status,
                    tarn_err_get(err)->iceberg_type);
        ice_json_write_string(out, ice_error_message(&e));
        tarn_sb_cstr(out, "}}");
    }
    ice_result_release(&r);
    json_decref(base);
    json_decref(in);
    tarn_arena_free(a);
    return err;
}

static int serve(void)
{
    char *line = NULL;
    size_t cap = 0;
    ssize_t n;
    while ((n = getline(&line, &cap, stdin)) > 0) {
        tarn_sb out;
        tarn_sb_init(&out, LINE_BYTES_MAX);
        (void)answer((tarn_str){line, (size_t)n}, &out);
        if (out.failed)
            return 1;
        fwrite(out.p, 1, out.n, stdout);
        fputc('\n', stdout);
        fflush(stdout);
        tarn_sb_free(&out);
    }
    free(line);
    return 0;
}

static void answers_with_metadata(void **state)
{
    (void)state;
    tarn_sb out;
    tarn_sb_init(&out, LINE_BYTES_MAX);
    assert_int_equal(
        answer(TARN_STR(
                   "{\"op\":\"create\",\"uuid\":\"00000000-0000-4000-8000-000000000001\",\"root\":\"s3://w/\",\"request\":{\"name\":\"t\","
                   "\"schema\":{\"type\":\"struct\",\"fields\":[]}}}"),
               &out),
        TARN_OK);
    assert_non_null(strstr(out.p, "\"location\":\"s3://w/00000000-0000-4000-8000-000000000001\""));
    tarn_sb_free(&out);
}

static void answers_with_errors(void **state)
{
    (void)state;
    tarn_sb out;
    tarn_sb_init(&out, LINE_BYTES_MAX);
    assert_int_not_equal(answer(TARN_STR("[]"), &out), TARN_OK);
    assert_non_null(strstr(out.p, "\"code\":400"));
    tarn_sb_free(&out);
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "--stdin") == 0)
        return serve();
    const struct CMUnitTest tests[] = {cmocka_unit_test(answers_with_metadata), cmocka_unit_test(answers_with_errors)};
    return cmocka_run_group_tests_name("iceberg apply tool", tests, NULL, NULL);
}
