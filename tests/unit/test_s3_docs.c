/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of operations in docs/s3-compatibility.md is the route table's. `test_s3_docs --print` prints it, to be put
 * between the two marks of the page.
 */
#include "doc_table.h"
#include "s3_fake.h"

#define PAGE TARN_SOURCE_DIR "/docs/s3-compatibility.md"
#define PAGE_BYTES_MAX DOC_PAGE_BYTES_MAX
#define BEGIN "<!-- operations: made from the route table -->\n"
#define END "<!-- end of operations -->\n"

static void render(tarn_sb *b)
{
    static const char *const on[] = {"service", "bucket", "object"};
    tarn_sb_cstr(b, "| operation | request | policy action |\n|---|---|---|\n");
    for (size_t i = 0; i < s3_routes_n; i++) {
        const s3_route *r = &s3_routes[i];
        if (r->handler == NULL)
            continue;
        tarn_sb_fmt(b, "| %s | %s %s", r->operation, r->method, on[r->resource]);
        if (r->query_key != NULL)
            tarn_sb_fmt(b, " `?%s`", r->query_key);
        if (r->query_key2 != NULL)
            tarn_sb_fmt(b, " `&%s`", r->query_key2);
        if (r->header != NULL)
            tarn_sb_fmt(b, " with `%s`", r->header);
        tarn_sb_fmt(b, " | %s |\n", r->action != NULL ? r->action : "see below");
    }
    tarn_sb_cstr(b, "\nKnown, and answered with 501 NotImplemented:");
    bool first = true;
    for (size_t i = 0; i < s3_routes_n; i++) {
        if (s3_routes[i].handler != NULL)
            continue;
        tarn_sb_fmt(b, "%s %s", first ? "" : ",", s3_routes[i].operation);
        first = false;
    }
    tarn_sb_cstr(b, ".\n");
}

static void the_page_has_the_table(void **state)
{
    (void)state;
    tarn_sb want;
    tarn_sb_init(&want, PAGE_BYTES_MAX);
    render(&want);
    if (!doc_has_table(PAGE, BEGIN, END, tarn_sb_view(&want)))
        fail_msg("%s does not have the table that test_s3_docs --print gives", PAGE);
    tarn_sb_free(&want);
}

/* One line a row, five fields each, and no operation twice on the same resource and sub-resource. */
static void the_rendered_table(void **state)
{
    (void)state;
    tarn_sb b;
    size_t lines = 0;
    tarn_sb_init(&b, PAGE_BYTES_MAX);
    tarn_s3_routes_render(&b);
    tarn_str rest = tarn_sb_view(&b);
    while (rest.n > 0) {
        tarn_str line;
        size_t tabs = 0;
        (void)tarn_str_split(rest, '\n', &line, &rest);
        for (size_t i = 0; i < line.n; i++)
            tabs += line.p[i] == '\t' ? 1 : 0;
        assert_int_equal(tabs, 4);
        lines++;
    }
    assert_int_equal(lines, s3_routes_n);
    tarn_sb_free(&b);
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "--print") == 0) {
        tarn_sb b;
        tarn_sb_init(&b, PAGE_BYTES_MAX);
        render(&b);
        (void)fputs(b.p, stdout);
        tarn_sb_free(&b);
        return 0;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_page_has_the_table),
        cmocka_unit_test(the_rendered_table),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
