/* SPDX-License-Identifier: Apache-2.0 */
/* HTML forms: each limit, and one past it; what a boundary is; names, files, and what comes behind. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "form.h"

#define TYPE "multipart/form-data; boundary=b"
#define BODY_BYTES_MAX (1u << 20)

typedef struct body {
    tarn_str left;
    size_t piece;
} body;

static tarn_arena *arena;
static s3_form form;
static body in;
static tarn_sb file;

static tarn_err read_in(void *ctx, uint8_t *buf, size_t n, size_t *got)
{
    body *b = ctx;
    *got = n < b->left.n ? n : b->left.n;
    *got = b->piece < *got ? b->piece : *got;
    if (*got > 0)
        memcpy(buf, b->left.p, *got);
    b->left = tarn_str_sub(b->left, *got, b->left.n);
    return TARN_OK;
}

static tarn_err take(void *ctx, const void *p, size_t n)
{
    tarn_sb_bytes(ctx, p, n);
    return TARN_OK;
}

static tarn_err begin(const char *type, tarn_str text, size_t piece)
{
    tarn_arena_reset(arena);
    in = (body){text, piece};
    form = (s3_form){.arena = arena, .read = read_in, .ctx = &in};
    return s3_form_begin(&form, tarn_str_of(type));
}

static void field_add(tarn_sb *b, const char *name, size_t value_bytes)
{
    tarn_sb_fmt(b, "--b\r\nContent-Disposition: form-data; name=\"%s\"\r\n\r\n", name);
    for (size_t i = 0; i < value_bytes; i++)
        tarn_sb_char(b, 'v');
    tarn_sb_cstr(b, "\r\n");
}

static void file_add(tarn_sb *b, const char *bytes)
{
    tarn_sb_fmt(b, "--b\r\nContent-Disposition: form-data; name=\"File\"; filename=\"C:/x/na\\\"me\"\r\n\r\n%s\r\n", bytes);
}

static void test_a_whole_form(void **state)
{
    static const size_t pieces[] = {1, 2, 3, 7, 100000};
    tarn_sb b;
    (void)state;
    tarn_sb_init(&b, BODY_BYTES_MAX);
    tarn_sb_cstr(&b, "preamble\r\n--b\r\nContent-Disposition: form-data; name=\"Key\"\r\n\r\nup/${filename}!\r\n");
    file_add(&b, "\r\n--a\r\n-\r\n--");
    field_add(&b, "submit", 3);
    tarn_sb_cstr(&b, "--b--\r\n");
    for (size_t i = 0; i < TARN_ARRAY_LEN(pieces); i++) {
        tarn_sb_init(&file, BODY_BYTES_MAX);
        assert_int_equal(begin(TYPE, tarn_sb_view(&b), pieces[i]), TARN_OK);
        assert_int_equal(s3_form_fields(&form), TARN_OK);
        assert_true(form.has_file);
        assert_int_equal(form.fields_n, 1);
        assert_true(tarn_str_eqc(s3_form_field(&form, "key"), "up/na\"me!"));
        assert_null(s3_form_field(&form, "submit").p);
        assert_int_equal(s3_form_file(&form, take, &file), TARN_OK);
        assert_true(tarn_str_eqc(tarn_sb_view(&file), "\r\n--a\r\n-\r\n--"));
        assert_int_equal(in.left.n, 0);
        tarn_sb_free(&file);
    }
    tarn_sb_free(&b);
}

static tarn_err with_fields(size_t fields, size_t value_bytes)
{
    tarn_sb b;
    tarn_sb_init(&b, BODY_BYTES_MAX);
    for (size_t i = 0; i < fields; i++)
        field_add(&b, "f", value_bytes);
    file_add(&b, "x");
    tarn_sb_cstr(&b, "--b--\r\n");
    assert_false(b.failed);
    assert_int_equal(begin(TYPE, tarn_sb_view(&b), BODY_BYTES_MAX), TARN_OK);
    tarn_err err = s3_form_fields(&form);
    tarn_sb_free(&b);
    return err;
}

static void test_limits_of_fields(void **state)
{
    (void)state;
    assert_int_equal(with_fields(S3_FORM_FIELDS_MAX, 1), TARN_OK);
    assert_int_equal(form.fields_n, S3_FORM_FIELDS_MAX);
    assert_int_equal(with_fields(S3_FORM_FIELDS_MAX + 1, 1), TARN_E_LIMIT);
    assert_int_equal(with_fields(2, S3_FORM_FIELD_BYTES_MAX), TARN_OK);
    assert_int_equal(form.fields[1].value.n, S3_FORM_FIELD_BYTES_MAX);
    assert_int_equal(with_fields(2, S3_FORM_FIELD_BYTES_MAX + 1), TARN_E_MALFORMED_POST);
}

static tarn_err with_boundary(size_t n)
{
    tarn_sb type;
    tarn_sb_init(&type, 4096);
    tarn_sb_cstr(&type, "multipart/form-data; boundary=\"");
    for (size_t i = 0; i < n; i++)
        tarn_sb_char(&type, 'b');
    tarn_sb_cstr(&type, "\"; charset=utf-8");
    tarn_err err = begin(type.p, TARN_STR(""), 1);
    tarn_sb_free(&type);
    return err;
}

static void test_boundaries(void **state)
{
    (void)state;
    assert_int_equal(with_boundary(S3_FORM_BOUNDARY_BYTES_MAX), TARN_OK);
    assert_int_equal(form.delim_n, S3_FORM_BOUNDARY_BYTES_MAX + 4);
    assert_int_equal(with_boundary(S3_FORM_BOUNDARY_BYTES_MAX + 1), TARN_E_MALFORMED_POST);
    assert_int_equal(with_boundary(0), TARN_E_MALFORMED_POST);
    assert_int_equal(begin("multipart/form-data", TARN_STR(""), 1), TARN_E_PRECONDITION_FAILED);
    assert_int_equal(begin("multipart/mixed; boundary=b", TARN_STR(""), 1), TARN_E_PRECONDITION_FAILED);
}

/* Cut anywhere, a form is malformed, never half a form that is taken. */
static void test_cut_anywhere(void **state)
{
    tarn_sb b;
    (void)state;
    tarn_sb_init(&b, BODY_BYTES_MAX);
    field_add(&b, "key", 5);
    file_add(&b, "bytes");
    tarn_sb_cstr(&b, "--b--\r\n");
    size_t end = b.n - 4; /* behind the boundary the rest is ignored */
    for (size_t n = 0; n < end; n++) {
        tarn_sb_init(&file, BODY_BYTES_MAX);
        assert_int_equal(begin(TYPE, tarn_str_sub(tarn_sb_view(&b), 0, n), 3), TARN_OK);
        tarn_err err = s3_form_fields(&form);
        if (err == TARN_OK && form.has_file)
            err = s3_form_file(&form, take, &file);
        assert_int_equal(err, TARN_E_MALFORMED_POST);
        tarn_sb_free(&file);
    }
    tarn_sb_free(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_a_whole_form), cmocka_unit_test(test_limits_of_fields),
                                       cmocka_unit_test(test_boundaries), cmocka_unit_test(test_cut_anywhere)};
    arena = tarn_arena_new(8u << 20);
    if (arena == NULL)
        return 1;
    int rc = cmocka_run_group_tests(tests, NULL, NULL);
    tarn_arena_free(arena);
    return rc;
}
