/* SPDX-License-Identifier: Apache-2.0 */
/* The tables of errors and metrics, the intrusive list, and the end of a process whose invariant is broken. */
#include "tarn/base.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static void errors(void **state)
{
    (void)state;
    for (int e = 0; e < TARN_ERR_COUNT; e++) {
        const tarn_err_info *i = tarn_err_get((tarn_err)e);
        assert_non_null(i->name);
        assert_non_null(i->s3_code);
        assert_non_null(i->iceberg_type);
        assert_non_null(i->message);
        assert_true(i->http_status >= 200 && i->http_status < 600);
    }
    const tarn_err_info *i = tarn_err_get(TARN_E_NO_SUCH_KEY);
    assert_string_equal(i->name, "NO_SUCH_KEY");
    assert_int_equal(i->http_status, 404);
    assert_string_equal(i->s3_code, "NoSuchKey");
    assert_ptr_equal(tarn_err_get(TARN_ERR_COUNT), tarn_err_get(TARN_E_INTERNAL));
    assert_ptr_equal(tarn_err_get((tarn_err)-1), tarn_err_get(TARN_E_INTERNAL));
    assert_int_equal(tarn_err_from_errno(ENOENT), TARN_E_NOT_FOUND);
    assert_int_equal(tarn_err_from_errno(ENOSPC), TARN_E_DISK_FULL);
    assert_int_equal(tarn_err_from_errno(EDQUOT), TARN_E_DISK_FULL);
    assert_int_equal(tarn_err_from_errno(ENOMEM), TARN_E_NO_MEMORY);
    assert_int_equal(tarn_err_from_errno(EROFS), TARN_E_DRIVE_READ_ONLY);
    assert_int_equal(tarn_err_from_errno(EIO), TARN_E_IO);
    assert_int_equal(tarn_err_from_errno(0), TARN_E_IO);
}

static void metrics(void **state)
{
    (void)state;
    int64_t before = tarn_metric_get(TARN_M_HTTP_REQUESTS);
    tarn_metric_add(TARN_M_HTTP_REQUESTS, 5);
    tarn_metric_add(TARN_M_HTTP_REQUESTS, -2);
    assert_int_equal(tarn_metric_get(TARN_M_HTTP_REQUESTS) - before, 3);
    tarn_metric_set(TARN_M_DRIVES, INT64_MAX);
    tarn_sb b;
    tarn_sb_init(&b, 1 << 20);
    tarn_metrics_render(&b);
    assert_false(b.failed);
    assert_non_null(
        strstr(b.p, "# HELP tarn_drives Drives of the deployment\n# TYPE tarn_drives gauge\ntarn_drives 9223372036854775807\n"));
    assert_non_null(strstr(b.p, "# TYPE tarn_http_requests_total counter\ntarn_http_requests_total 3\n"));
    size_t types = 0;
    for (const char *at = b.p; (at = strstr(at, "# TYPE ")) != NULL; at++) {
        types++;
    }
    assert_int_equal(types, TARN_METRIC_COUNT);
    assert_int_equal(b.p[b.n - 1], '\n');
    tarn_sb_free(&b);
}

typedef struct item {
    int value;
    tarn_link link;
} item;

static void list(void **state)
{
    (void)state;
    tarn_link head;
    item items[5];
    tarn_list_init(&head);
    assert_true(tarn_list_empty(&head));
    assert_null(tarn_list_pop(&head));
    for (int i = 0; i < 5; i++) {
        items[i].value = i;
        tarn_list_push(&head, &items[i].link);
    }
    tarn_list_remove(&items[2].link);
    tarn_list_remove(&items[2].link); /* harmless */
    tarn_list_remove(&items[4].link); /* the last */
    tarn_list_push(&head, &items[2].link);
    static const int expected[] = {0, 1, 3, 2};
    for (size_t i = 0; i < TARN_ARRAY_LEN(expected); i++) {
        tarn_link *l = tarn_list_pop(&head);
        assert_non_null(l);
        assert_int_equal(TARN_CONTAINER_OF(l, item, link)->value, expected[i]);
    }
    assert_true(tarn_list_empty(&head));
    assert_null(tarn_list_pop(&head));
}

/* A broken invariant is told on standard error and ends the process by SIGABRT. */
static void panic(void **state)
{
    (void)state;
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        struct rlimit no_core = {0, 0};
        (void)setrlimit(RLIMIT_CORE, &no_core);
        (void)signal(SIGABRT, SIG_DFL);
        if (dup2(ends[1], STDERR_FILENO) >= 0) {
            volatile int one = 1;
            TARN_ASSERT(one == 1);
            TARN_ASSERT(one == 2);
        }
        _exit(0);
    }
    (void)close(ends[1]);
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGABRT);
    char text[600] = {0};
    assert_true(read(ends[0], text, sizeof text - 1) > 0);
    assert_non_null(strstr(text, "invariant broken at"));
    assert_non_null(strstr(text, "one == 2"));
    (void)close(ends[0]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(errors), cmocka_unit_test(metrics), cmocka_unit_test(list),
                                       cmocka_unit_test(panic)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
