/* SPDX-License-Identifier: Apache-2.0 */
/* Running sums of every kind: check values, splits, bit-by-bit references, and the CRC of two texts put together. */
#include "private.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <string.h>

#define TEXT_BYTES 70000
static uint8_t text[TEXT_BYTES];

static int fill(void **state)
{
    (void)state;
    tarn_random_seed(99);
    tarn_random(text, sizeof text);
    return 0;
}

static int unseed(void **state)
{
    (void)state;
    tarn_random_seed(0);
    return 0;
}

static void sum_of(tarn_sum_kind k, const void *p, size_t n, uint8_t out[TARN_DIGEST_BYTES_MAX])
{
    tarn_sum s;
    assert_int_equal(tarn_sum_begin(&s, k), TARN_OK);
    tarn_sum_update(&s, p, n);
    tarn_sum_peek(&s, out);
    tarn_sum_end(&s);
}

static void check_values(void **state)
{
    (void)state;
    static const struct {
        tarn_sum_kind kind;
        const char *empty;
        const char *digits; /* of "123456789" */
    } rows[] = {
        {TARN_SUM_CRC32, "00000000", "cbf43926"},
        {TARN_SUM_CRC32C, "00000000", "e3069283"},
        {TARN_SUM_CRC64NVME, "0000000000000000", "ae8b14860a799888"},
        {TARN_SUM_SHA1, "da39a3ee5e6b4b0d3255bfef95601890afd80709", "f7c3bc1d808e04732adf679965ccc34ca7ae3441"},
        {TARN_SUM_SHA256, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
         "15e2b0d3c33891ebb0f1ef609ec419420c20e320ce94c65fbc8c3312448eb225"},
        {TARN_SUM_MD5, "d41d8cd98f00b204e9800998ecf8427e", "25f9e794323b453885f5181f1b624d0b"},
    };
    assert_int_equal(TARN_ARRAY_LEN(rows), TARN_SUM_KIND_COUNT - 1);
    for (size_t i = 0; i < TARN_ARRAY_LEN(rows); i++) {
        char hex[2 * TARN_DIGEST_BYTES_MAX + 1];
        uint8_t sum[TARN_DIGEST_BYTES_MAX];
        tarn_sb b;
        tarn_sb_init_fixed(&b, hex, sizeof hex);
        sum_of(rows[i].kind, NULL, 0, sum);
        tarn_sb_hex(&b, sum, tarn_sum_bytes(rows[i].kind));
        assert_string_equal(hex, rows[i].empty);
        tarn_sb_reset(&b);
        sum_of(rows[i].kind, "123456789", 9, sum);
        tarn_sb_hex(&b, sum, tarn_sum_bytes(rows[i].kind));
        assert_string_equal(hex, rows[i].digits);
    }
    assert_true(tarn_crc64(0, "123456789", 9) == 0x995DC9BBDF1939FAu);
    assert_true(tarn_crc64(tarn_crc64(0, "1234", 4), "56789", 5) == 0x995DC9BBDF1939FAu);
    assert_true(tarn_crc64(5, NULL, 0) == 5);
    assert_int_equal(tarn_crc32c(tarn_crc32c(0, "1234", 4), "56789", 5), 0xE3069283);
}

static void names(void **state)
{
    (void)state;
    for (unsigned i = TARN_SUM_NONE; i < TARN_SUM_KIND_COUNT; i++) {
        tarn_sum_kind k = (tarn_sum_kind)i;
        assert_true(tarn_sum_bytes(k) <= TARN_DIGEST_BYTES_MAX);
        assert_int_equal(tarn_sum_by_name(tarn_str_of(tarn_sum_name(k))), k);
        if (tarn_sum_header(k)) {
            assert_int_equal(tarn_sum_by_header(tarn_str_of(tarn_sum_header(k))), k);
        }
    }
    assert_null(tarn_sum_header(TARN_SUM_MD5));
    assert_null(tarn_sum_header(TARN_SUM_NONE));
    assert_int_equal(tarn_sum_by_name(TARN_STR("crc64nvme")), TARN_SUM_CRC64NVME);
    assert_int_equal(tarn_sum_by_name(TARN_STR("CRC64")), TARN_SUM_NONE);
    assert_int_equal(tarn_sum_by_name(TARN_STR_NULL), TARN_SUM_NONE);
    assert_int_equal(tarn_sum_by_header(TARN_STR("X-Amz-Checksum-Sha256")), TARN_SUM_SHA256);
    assert_int_equal(tarn_sum_by_header(TARN_STR("x-amz-checksum-")), TARN_SUM_NONE);
    assert_int_equal(tarn_sum_by_header(TARN_STR_NULL), TARN_SUM_NONE);
}

static void splits_make_no_difference(void **state)
{
    (void)state;
    for (unsigned k = TARN_SUM_NONE; k < TARN_SUM_KIND_COUNT; k++) {
        for (unsigned round = 0; round < 60; round++) {
            size_t total = tarn_random_u64() % TEXT_BYTES;
            uint8_t whole[TARN_DIGEST_BYTES_MAX] = {0};
            uint8_t pieces[TARN_DIGEST_BYTES_MAX] = {0};
            uint8_t early[TARN_DIGEST_BYTES_MAX];
            tarn_sum s;
            sum_of((tarn_sum_kind)k, text, total, whole);
            assert_int_equal(tarn_sum_begin(&s, (tarn_sum_kind)k), TARN_OK);
            for (size_t at = 0; at < total;) {
                size_t n = tarn_random_u64() % (round % 2 == 0 ? 200 : 20000);
                n = n < total - at ? n : total - at;
                tarn_sum_update(&s, text + at, n);
                tarn_sum_peek(&s, early); /* looking changes nothing */
                at += n;
            }
            tarn_sum_peek(&s, pieces);
            tarn_sum_end(&s);
            assert_memory_equal(whole, pieces, sizeof whole);
            assert_null(s.ctx);
        }
    }
}

/* A CRC bit by bit, as its definition has it. */
static uint64_t by_bits(uint64_t poly, uint64_t ones, const uint8_t *p, size_t n)
{
    uint64_t reg = ones;
    for (size_t i = 0; i < n; i++) {
        reg ^= p[i];
        for (unsigned bit = 0; bit < 8; bit++) {
            reg = (reg & 1) != 0 ? reg >> 1 ^ poly : reg >> 1;
        }
    }
    return reg ^ ones;
}

static uint64_t number(const uint8_t *p, size_t n)
{
    uint64_t v = 0;
    for (size_t i = 0; i < n; i++) {
        v = v << 8 | p[i];
    }
    return v;
}

static void every_length_against_bits(void **state)
{
    (void)state;
    for (size_t n = 0; n < 1200; n++) {
        const uint8_t *p = text + n % 67; /* every alignment */
        uint8_t sum[TARN_DIGEST_BYTES_MAX];
        sum_of(TARN_SUM_CRC32, p, n, sum);
        assert_true(number(sum, 4) == by_bits(0xEDB88320u, UINT32_MAX, p, n));
        sum_of(TARN_SUM_CRC32C, p, n, sum);
        assert_true(number(sum, 4) == by_bits(0x82F63B78u, UINT32_MAX, p, n));
        assert_true(tarn_crc32c(0, p, n) == number(sum, 4));
        sum_of(TARN_SUM_CRC64NVME, p, n, sum);
        assert_true(number(sum, 8) == by_bits(0x9A6C9329AC4BC9B5u, UINT64_MAX, p, n));
        assert_true(crc64nvme_by_table(0, p, n) == number(sum, 8));
        assert_true(tarn_crc64(0, p, n) == by_bits(0xC96C5795D7870F42u, UINT64_MAX, p, n));
    }
}

static void continued_from_any_seed(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 500; i++) {
        uint64_t seed = tarn_random_u64();
        size_t n = tarn_random_u64() % 5000;
        assert_true(crc64nvme(seed, text + i, n) == crc64nvme_by_table(seed, text + i, n));
    }
}

/* Every length around the steps of both widths, in both, for both polynomials. */
static void folding_wide_and_narrow(void **state)
{
    (void)state;
    for (size_t n = 0; n <= 1200; n++) {
        uint64_t seed = tarn_random_u64();
        const uint8_t *p = text + n % 37;
        uint64_t wide = tarn_crc64(seed, p, n);
        assert_true(crc64nvme(seed, p, n) == crc64nvme_by_table(seed, p, n));
        crc64_choose_narrow(true);
        assert_true(crc64nvme(seed, p, n) == crc64nvme_by_table(seed, p, n));
        assert_true(tarn_crc64(seed, p, n) == wide);
        crc64_choose_narrow(false);
    }
}

static const tarn_sum_kind crcs[] = {TARN_SUM_CRC32, TARN_SUM_CRC32C, TARN_SUM_CRC64NVME};

static void combining(void **state)
{
    (void)state;
    for (size_t c = 0; c < TARN_ARRAY_LEN(crcs); c++) {
        size_t bytes = tarn_sum_bytes(crcs[c]);
        for (unsigned i = 0; i < 300; i++) {
            size_t total = tarn_random_u64() % TEXT_BYTES;
            size_t cut = i == 0 ? 0 : (i == 1 ? total : tarn_random_u64() % (total + 1));
            uint8_t a[TARN_DIGEST_BYTES_MAX];
            uint8_t b[TARN_DIGEST_BYTES_MAX];
            uint8_t both[TARN_DIGEST_BYTES_MAX];
            uint8_t expected[TARN_DIGEST_BYTES_MAX];
            sum_of(crcs[c], text, cut, a);
            sum_of(crcs[c], text + cut, total - cut, b);
            sum_of(crcs[c], text, total, expected);
            tarn_sum_combine(crcs[c], a, b, total - cut, both);
            assert_memory_equal(both, expected, bytes);
            tarn_sum_combine(crcs[c], a, b, total - cut, a); /* the result may take the place of an operand */
            assert_memory_equal(a, expected, bytes);
        }
    }
}

/* Lengths that no text in memory has: (a‖b)‖c must be a‖(b‖c), and 2^62 doubled must be 2^63. */
static void combining_huge_lengths(void **state)
{
    (void)state;
    static const uint64_t lengths[] = {1, UINT64_C(1) << 32, (UINT64_C(1) << 40) + 12345, UINT64_C(1) << 62, (UINT64_C(1) << 63) - 1};
    for (size_t c = 0; c < TARN_ARRAY_LEN(crcs); c++) {
        size_t bytes = tarn_sum_bytes(crcs[c]);
        for (size_t i = 0; i < TARN_ARRAY_LEN(lengths); i++) {
            uint8_t a[8], b[8], d[8], ab[8], bd[8], left[8], right[8];
            uint64_t b_len = lengths[i];
            uint64_t d_len = 4711;
            tarn_random(a, sizeof a);
            tarn_random(b, sizeof b);
            tarn_random(d, sizeof d);
            tarn_sum_combine(crcs[c], a, b, b_len, ab);
            tarn_sum_combine(crcs[c], ab, d, d_len, left);
            tarn_sum_combine(crcs[c], b, d, d_len, bd);
            tarn_sum_combine(crcs[c], a, bd, b_len + d_len, right);
            assert_memory_equal(left, right, bytes);
        }
        uint8_t a[8], zero[8] = {0}, once[8], twice[8], direct[8];
        tarn_random(a, sizeof a);
        tarn_sum_combine(crcs[c], a, zero, UINT64_C(1) << 62, once);
        tarn_sum_combine(crcs[c], once, zero, UINT64_C(1) << 62, twice);
        tarn_sum_combine(crcs[c], a, zero, UINT64_C(1) << 63, direct);
        assert_memory_equal(twice, direct, bytes);
    }
}

static void out_of_memory(void **state)
{
    (void)state;
    tarn_sum s;
    tarn_alloc_fail_after(1);
    assert_int_equal(tarn_sum_begin(&s, TARN_SUM_MD5), TARN_E_NO_MEMORY);
    tarn_alloc_fail_after(0);
    tarn_sum_update(&s, "x", 1); /* a sum that never began is one of kind NONE */
    tarn_sum_end(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(check_values),
        cmocka_unit_test(names),
        cmocka_unit_test(splits_make_no_difference),
        cmocka_unit_test(every_length_against_bits),
        cmocka_unit_test(continued_from_any_seed),
        cmocka_unit_test(folding_wide_and_narrow),
        cmocka_unit_test(combining),
        cmocka_unit_test(combining_huge_lengths),
        cmocka_unit_test(out_of_memory),
    };
    return cmocka_run_group_tests(tests, fill, unseed);
}
