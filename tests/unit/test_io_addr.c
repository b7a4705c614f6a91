/* SPDX-License-Identifier: Apache-2.0 */
/* Addresses: the forms that are taken, those that are not, the limits, and listening. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "io_check.h"
#include "io_internal.h"
#include "io_refuse.h"

/* Parses and prints again; "" for what is refused. */
static const char *through(const char *text)
{
    static char out[128];
    tarn_addr a;
    tarn_sb b;
    tarn_sb_init_fixed(&b, out, sizeof out);
    out[0] = '\0';
    tarn_err err = tarn_addr_parse(tarn_str_of(text), &a);
    assert_true(err == TARN_OK || err == TARN_E_INVALID);
    if (err == TARN_OK)
        tarn_addr_format(&a, &b);
    return out;
}

static void test_forms(void **state)
{
    (void)state;
    assert_string_equal(through("127.0.0.1:9000"), "127.0.0.1:9000");
    assert_string_equal(through("0.0.0.0:80"), "0.0.0.0:80");
    assert_string_equal(through("[::1]:9000"), "[::1]:9000");
    assert_string_equal(through("[2001:db8::7]:443"), "[2001:db8::7]:443");
    assert_string_equal(through("[::ffff:10.0.0.1]:5"), "10.0.0.1:5");
    assert_string_equal(through(":9000"), "[::]:9000");
    assert_string_equal(through(":0"), "[::]:0");
    assert_string_equal(through("1.2.3.4:65535"), "1.2.3.4:65535");
    assert_string_equal(through("1.2.3.4:00080"), "1.2.3.4:80");
}

static void test_refused(void **state)
{
    (void)state;
    static const char *const wrong[] = {
        "",           ":",           "127.0.0.1",   "127.0.0.1:", "1.2.3.4:65536", "1.2.3.4:000080", "1.2.3.4:-1", "1.2.3.4:+1",
        "1.2.3.4:8a", "1.2.3.4: 80", "::1:9000",    "[::1]9000",  "[::1:9000",     "::1]:9000",      "[]:9000",    "[127.0.0.1]:9000",
        "[::1]:",     "[name]:1",    "1.2.3.4:5:6", "[[::1]]:80",
    };
    for (size_t i = 0; i < TARN_ARRAY_LEN(wrong); i++)
        assert_string_equal(through(wrong[i]), "");
    tarn_addr a;
    assert_int_equal(tarn_addr_parse((tarn_str){"127.0.0.1\0x:80", 14}, &a), TARN_E_INVALID);
}

static void test_host_limit(void **state)
{
    (void)state;
    char text[TARN_HOST_BYTES_MAX + 8];
    tarn_addr a;
    /* At the limit the name is looked up (and unknown); past it it is not even tried. Both are refused. */
    for (size_t n = TARN_HOST_BYTES_MAX; n <= TARN_HOST_BYTES_MAX + 1; n++) {
        memset(text, 'a', n);
        memcpy(text + n, ":80", 3);
        assert_int_equal(tarn_addr_parse((tarn_str){text, n + 3}, &a), TARN_E_INVALID);
    }
    assert_int_equal(tarn_addr_parse(TARN_STR("localhost:9000"), &a), TARN_OK);
    assert_true(tarn_addr_is_loopback(&a));
}

static bool loopback(const char *text)
{
    tarn_addr a;
    assert_int_equal(tarn_addr_parse(tarn_str_of(text), &a), TARN_OK);
    return tarn_addr_is_loopback(&a);
}

static void test_loopback(void **state)
{
    (void)state;
    assert_true(loopback("127.0.0.1:1"));
    assert_true(loopback("127.255.1.2:1"));
    assert_true(loopback("[::1]:1"));
    assert_true(loopback("[::ffff:127.0.0.1]:1"));
    assert_false(loopback("128.0.0.1:1"));
    assert_false(loopback("[::2]:1"));
    assert_false(loopback(":1"));
    assert_false(loopback("[::ffff:126.0.0.1]:1"));
    tarn_addr a = {.len = 2};
    char out[8];
    tarn_sb b;
    a.ss.ss_family = AF_UNIX;
    assert_false(tarn_addr_is_loopback(&a));
    tarn_sb_init_fixed(&b, out, sizeof out);
    tarn_addr_format(&a, &b);
    assert_string_equal(out, "-");
}

static void test_listen(void **state)
{
    (void)state;
    tarn_addr a, bound = {.len = sizeof bound.ss};
    int fd = -1, other = -1, e = 0;
    assert_int_equal(tarn_addr_parse(TARN_STR(":0"), &a), TARN_OK);
    assert_int_equal(tarn_listen(&a, false, 16, &fd, &e), TARN_OK); /* also on a machine without IPv6 */
    assert_int_equal(close(fd), 0);
    assert_int_equal(tarn_addr_parse(TARN_STR("127.0.0.1:0"), &a), TARN_OK);
    assert_int_equal(tarn_listen(&a, false, 16, &fd, &e), TARN_OK);
    assert_int_equal(getsockname(fd, (struct sockaddr *)(void *)&bound.ss, &bound.len), 0);
    assert_int_equal(tarn_listen(&bound, false, 16, &other, &e), TARN_E_IO); /* taken */
    assert_int_equal(e, EADDRINUSE);
    assert_int_equal(other, -1);
    assert_int_equal(close(fd), 0);
    bound = (tarn_addr){.len = sizeof bound.ss};
    assert_int_equal(tarn_listen(&a, true, 16, &fd, NULL), TARN_OK);
    assert_int_equal(getsockname(fd, (struct sockaddr *)(void *)&bound.ss, &bound.len), 0);
    assert_int_equal(tarn_listen(&bound, true, 16, &other, NULL), TARN_OK); /* shared */
    assert_int_equal(close(fd), 0);
    assert_int_equal(close(other), 0);
    assert_int_equal(tarn_addr_parse(TARN_STR("203.0.113.7:0"), &a), TARN_OK); /* not of this machine */
    assert_int_equal(tarn_listen(&a, false, 16, &fd, &e), TARN_E_IO);
    assert_int_equal(e, EADDRNOTAVAIL);
}

/* A machine without IPv6: every address is every IPv4 address; a certain IPv6 address is refused. */
static int without_v6(const void *arg)
{
    (void)arg;
    tarn_addr a, bound = {.len = sizeof bound.ss};
    int fd = -1, e = 0;
    if (!refuse_call(__NR_socket, AF_INET6, EAFNOSUPPORT))
        return REFUSE_UNSUPPORTED;
    CHECK(tarn_addr_parse(TARN_STR(":0"), &a) == TARN_OK);
    CHECK(tarn_listen(&a, true, 16, &fd, &e) == TARN_OK);
    CHECK(getsockname(fd, (struct sockaddr *)(void *)&bound.ss, &bound.len) == 0 && bound.ss.ss_family == AF_INET);
    CHECK(close(fd) == 0);
    CHECK(tarn_addr_parse(TARN_STR("[::1]:0"), &a) == TARN_OK);
    CHECK(tarn_listen(&a, true, 16, &fd, &e) == TARN_E_IO && e == EAFNOSUPPORT);
    return 0;
}

static void test_without_v6(void **state)
{
    (void)state;
    check_in_child(without_v6, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_forms),    cmocka_unit_test(test_refused), cmocka_unit_test(test_host_limit),
        cmocka_unit_test(test_loopback), cmocka_unit_test(test_listen),  cmocka_unit_test(test_without_v6),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
