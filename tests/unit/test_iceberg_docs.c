/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of routes in docs/iceberg-compatibility.md is the route table's. `test_iceberg_docs --print` prints it, to be put
 * between the two marks of the page.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

#include "doc_table.h"
#include "tarn/iceberg.h"

#define PAGE TARN_SOURCE_DIR "/docs/iceberg-compatibility.md"
#define BEGIN "<!-- routes: made from the route table -->\n"
#define END "<!-- end of routes -->\n"

static size_t render(tarn_sb *out)
{
    tarn_sb b;
    size_t lines = 0;
    tarn_sb_init(&b, DOC_PAGE_BYTES_MAX);
    tarn_iceberg_routes_render(&b);
    tarn_sb_cstr(out, "| route | policy action |\n|---|---|\n");
    tarn_str rest = tarn_sb_view(&b);
    while (rest.n > 0) {
        tarn_str line, method, path, action, tail;
        (void)tarn_str_split(rest, '\n', &line, &rest);
        (void)tarn_str_split(line, '\t', &method, &tail);
        (void)tarn_str_split(tail, '\t', &path, &action);
        tarn_sb_fmt(out, "| %.*s %.*s | %.*s |\n", TARN_STR_ARG(method), TARN_STR_ARG(path), TARN_STR_ARG(action));
        lines++;
    }
    tarn_sb_free(&b);
    return lines;
}

static void the_page_has_the_table(void **state)
{
    (void)state;
    tarn_sb want;
    tarn_sb_init(&want, DOC_PAGE_BYTES_MAX);
    assert_true(render(&want) > 20);
    if (!doc_has_table(PAGE, BEGIN, END, tarn_sb_view(&want)))
        fail_msg("%s does not have the table that test_iceberg_docs --print gives", PAGE);
    tarn_sb_free(&want);
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "--print") == 0) {
        tarn_sb b;
        tarn_sb_init(&b, DOC_PAGE_BYTES_MAX);
        (void)render(&b);
        (void)fputs(b.p, stdout);
        tarn_sb_free(&b);
        return 0;
    }
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_page_has_the_table)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
