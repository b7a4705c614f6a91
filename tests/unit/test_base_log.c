/* SPDX-License-Identifier: Apache-2.0 */
/* The log: both forms, escaping, the longest line and one past it, many threads, reopening. */
#include "tarn/base.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char folder[256];
static char path[300];
static char old_path[300];
static char content[1 << 22];

static int make_folder(void **state)
{
    (void)state;
    const char *tmp = getenv("TMPDIR");
    tarn_sb b;
    tarn_sb_init_fixed(&b, folder, sizeof folder);
    tarn_sb_fmt(&b, "%s/tarn-log-XXXXXX", tmp ? tmp : "/tmp");
    if (b.failed || !mkdtemp(folder)) {
        return -1;
    }
    tarn_sb_init_fixed(&b, path, sizeof path);
    tarn_sb_fmt(&b, "%s/log", folder);
    tarn_sb_init_fixed(&b, old_path, sizeof old_path);
    tarn_sb_fmt(&b, "%s/log.1", folder);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    (void)unlink(path);
    (void)unlink(old_path);
    return rmdir(folder);
}

static int start(void **state)
{
    (void)state;
    (void)unlink(path);
    tarn_clock_fake(true, INT64_C(1767323045678));
    return 0;
}

static int stop(void **state)
{
    (void)state;
    tarn_clock_fake(false, 0);
    return tarn_log_open(NULL, TARN_LOG_AUTO, TARN_LOG_INFO) == TARN_OK ? 0 : -1;
}

static tarn_str read_file(const char *from)
{
    int fd = open(from, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    size_t n = 0;
    for (ssize_t got; (got = read(fd, content + n, sizeof content - 1 - n)) > 0;) {
        n += (size_t)got;
    }
    (void)close(fd);
    content[n] = '\0';
    return (tarn_str){content, n};
}

/* The only line of the log, as JSON. */
static json_t *only_line(void)
{
    tarn_str s = read_file(path);
    assert_true(s.n > 0 && s.p[s.n - 1] == '\n');
    assert_int_equal(tarn_str_chr(s, '\n'), (ptrdiff_t)s.n - 1);
    json_error_t e;
    json_t *j = json_loadb(s.p, s.n, JSON_REJECT_DUPLICATES, &e);
    if (!j) {
        fail_msg("%s in %.200s", e.text, s.p);
    }
    return j;
}

static const char *text_of(json_t *j, const char *key)
{
    const char *s = json_string_value(json_object_get(j, key));
    assert_non_null(s);
    return s;
}

static void json_form(void **state)
{
    (void)state;
    assert_int_equal(tarn_log_open(path, TARN_LOG_JSON, TARN_LOG_INFO), TARN_OK);
    tarn_log(TARN_LOG_WARN, "drive offline", "drive", "/d1", "error", "No such device", NULL);
    assert_string_equal(read_file(path).p, "{\"time\":\"2026-01-02T03:04:05.678Z\",\"level\":\"warn\",\"event\":\"drive "
                                           "offline\",\"drive\":\"/d1\",\"error\":\"No such device\"}\n");
}

static void human_form(void **state)
{
    (void)state;
    assert_int_equal(tarn_log_open(path, TARN_LOG_HUMAN, TARN_LOG_INFO), TARN_OK);
    tarn_log(TARN_LOG_INFO, "drive back", "drive", "/d1", "note", "a \"b\"", "empty", "", "none", (const char *)NULL, NULL);
    assert_string_equal(read_file(path).p,
                        "2026-01-02T03:04:05.678Z INFO drive back drive=/d1 note=\"a \\\"b\\\"\" empty=\"\" none=(null)\n");
}

static void auto_is_json_in_a_file(void **state)
{
    (void)state;
    assert_int_equal(tarn_log_open(path, TARN_LOG_AUTO, TARN_LOG_INFO), TARN_OK);
    tarn_logf(TARN_LOG_ERROR, "x", "%d of %s", 3, "four");
    json_t *j = only_line();
    assert_string_equal(text_of(j, "message"), "3 of four");
    assert_string_equal(text_of(j, "level"), "error");
    json_decref(j);
}

static void levels(void **state)
{
    (void)state;
    assert_int_equal(tarn_log_open(path, TARN_LOG_JSON, TARN_LOG_WARN), TARN_OK);
    assert_false(tarn_log_enabled(TARN_LOG_INFO));
    assert_true(tarn_log_enabled(TARN_LOG_WARN));
    tarn_log(TARN_LOG_INFO, "not seen", NULL);
    tarn_logf(TARN_LOG_DEBUG, "not seen", "%d", 1);
    assert_int_equal(read_file(path).n, 0);
    tarn_log(TARN_LOG_WARN, "seen", NULL);
    assert_true(read_file(path).n > 0);
}

/* Nothing that comes from outside can end a line, leave the quotes or speak to a terminal. */
static void escaping(void **state)
{
    (void)state;
    const char *nasty = "a\nb\r\t\"\\\x1B[31m\x7F\xC2\x9B"
                        "31m\xC3\xA9\xE2\x82\xAC\xFF\xE2\x82";
    assert_int_equal(tarn_log_open(path, TARN_LOG_JSON, TARN_LOG_INFO), TARN_OK);
    tarn_log(TARN_LOG_INFO, "e", "v", nasty, NULL);
    json_t *j = only_line();
    assert_string_equal(text_of(j, "v"), "a\nb\r\t\"\\\x1B[31m\x7F\xC2\x9B"
                                         "31m\xC3\xA9\xE2\x82\xAC\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD");
    json_decref(j);
    (void)unlink(path);
    assert_int_equal(tarn_log_open(path, TARN_LOG_HUMAN, TARN_LOG_INFO), TARN_OK);
    tarn_log(TARN_LOG_INFO, "e", "v", nasty, NULL);
    tarn_str s = read_file(path);
    for (size_t i = 0; i + 1 < s.n; i++) {
        assert_true((uint8_t)s.p[i] >= 0x20 && s.p[i] != 0x7F);
        assert_false((uint8_t)s.p[i] == 0xC2 && (uint8_t)s.p[i + 1] < 0xA0);
    }
    assert_int_equal(s.p[s.n - 1], '\n');
}

static void longest_line(void **state)
{
    (void)state;
    static char value[2 * TARN_LOG_LINE_MAX];
    /* Around the maximum, with characters of every width: always whole JSON, never longer, and cut only when it must be. */
    static const char *const units[] = {"x", "\n", "\x01", "\xC3\xA9", "\xF0\x9F\x98\x80", "\xFF"};
    for (size_t u = 0; u < TARN_ARRAY_LEN(units); u++) {
        for (size_t fill = 7900; fill < 8300; fill += 7) {
            tarn_sb b;
            tarn_sb_init_fixed(&b, value, sizeof value);
            for (size_t i = 0; i < fill - 60 * u; i++) {
                tarn_sb_char(&b, 'a');
            }
            for (size_t i = 0; i < 60; i++) {
                tarn_sb_cstr(&b, units[u]);
            }
            assert_false(b.failed);
            assert_int_equal(tarn_log_open(path, TARN_LOG_JSON, TARN_LOG_INFO), TARN_OK);
            assert_int_equal(truncate(path, 0), 0);
            tarn_log(TARN_LOG_INFO, "long", "v", value, "last", "z", NULL);
            json_t *j = only_line();
            size_t n = strlen(content);
            assert_true(n <= TARN_LOG_LINE_MAX);
            const char *got = text_of(j, "v");
            bool whole = json_object_get(j, "last") != NULL;
            if (!whole) {
                assert_true(n > TARN_LOG_LINE_MAX - 40);
            } else if (u != 5) { /* broken UTF-8 is replaced */
                assert_string_equal(got, value);
            }
            json_decref(j);
        }
    }
    memset(value, 'e', sizeof value - 1);
    value[sizeof value - 1] = '\0';
    assert_int_equal(truncate(path, 0), 0);
    tarn_log(TARN_LOG_INFO, value, "k", "v", NULL); /* even the event is cut */
    json_t *j = only_line();
    assert_true(strlen(content) <= TARN_LOG_LINE_MAX);
    json_decref(j);
    assert_int_equal(truncate(path, 0), 0);
    tarn_logf(TARN_LOG_INFO, "long", "%s", value);
    j = only_line();
    assert_string_equal(text_of(j, "message"), "(the text is too long)");
    json_decref(j);
}

enum { THREADS = 4, LINES = 2000 };

static void *write_lines(void *name)
{
    for (unsigned i = 0; i < LINES; i++) {
        tarn_logf(TARN_LOG_INFO, "line", "%s %u", (const char *)name, i);
    }
    return NULL;
}

static void threads_do_not_mix_lines(void **state)
{
    (void)state;
    static char names[THREADS][2] = {"a", "b", "c", "d"};
    pthread_t threads[THREADS];
    assert_int_equal(tarn_log_open(path, TARN_LOG_JSON, TARN_LOG_INFO), TARN_OK);
    for (unsigned i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, write_lines, names[i]), 0);
    }
    for (unsigned i = 0; i < 20; i++) { /* a rotation in the middle loses nothing */
        tarn_log_reopen();
    }
    for (unsigned i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    }
    tarn_str rest = read_file(path);
    tarn_str one;
    unsigned lines = 0;
    unsigned next[THREADS] = {0};
    while (tarn_str_split(rest, '\n', &one, &rest)) {
        json_t *j = json_loadb(one.p, one.n, 0, NULL);
        assert_non_null(j);
        const char *m = text_of(j, "message");
        unsigned who = (unsigned)(m[0] - 'a');
        assert_true(who < THREADS);
        uint64_t i;
        assert_true(tarn_str_to_u64(tarn_str_of(m + 2), &i));
        assert_int_equal(i, next[who]++);
        json_decref(j);
        lines++;
    }
    assert_int_equal(lines, THREADS * LINES);
}

static void reopening(void **state)
{
    (void)state;
    assert_int_equal(tarn_log_open(path, TARN_LOG_JSON, TARN_LOG_INFO), TARN_OK);
    tarn_log(TARN_LOG_INFO, "first", NULL);
    assert_int_equal(rename(path, old_path), 0);
    tarn_log(TARN_LOG_INFO, "second", NULL); /* still in the renamed file */
    tarn_log_reopen();
    tarn_log(TARN_LOG_INFO, "third", NULL);
    assert_true(tarn_str_find(read_file(old_path), TARN_STR("second")) > 0);
    tarn_str now = read_file(path);
    assert_true(tarn_str_find(now, TARN_STR("third")) > 0);
    assert_int_equal(tarn_str_find(now, TARN_STR("second")), -1);
}

static void opening_that_fails_changes_nothing(void **state)
{
    (void)state;
    char missing[400];
    tarn_sb b;
    tarn_sb_init_fixed(&b, missing, sizeof missing);
    tarn_sb_fmt(&b, "%s/none/log", folder);
    assert_int_equal(tarn_log_open(path, TARN_LOG_JSON, TARN_LOG_INFO), TARN_OK);
    assert_int_equal(tarn_log_open(missing, TARN_LOG_HUMAN, TARN_LOG_ERROR), TARN_E_NOT_FOUND);
    tarn_alloc_fail_after(1);
    assert_int_equal(tarn_log_open(old_path, TARN_LOG_HUMAN, TARN_LOG_ERROR), TARN_E_NO_MEMORY);
    errno = 77;
    tarn_log(TARN_LOG_INFO, "goes on", NULL);
    assert_int_equal(errno, 77); /* a log line between a failure and its report does no harm */
    json_t *j = only_line();
    assert_string_equal(text_of(j, "event"), "goes on");
    json_decref(j);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(json_form, start, stop),
        cmocka_unit_test_setup_teardown(human_form, start, stop),
        cmocka_unit_test_setup_teardown(auto_is_json_in_a_file, start, stop),
        cmocka_unit_test_setup_teardown(levels, start, stop),
        cmocka_unit_test_setup_teardown(escaping, start, stop),
        cmocka_unit_test_setup_teardown(longest_line, start, stop),
        cmocka_unit_test_setup_teardown(threads_do_not_mix_lines, start, stop),
        cmocka_unit_test_setup_teardown(reopening, start, stop),
        cmocka_unit_test_setup_teardown(opening_that_fails_changes_nothing, start, stop),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
