/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Conditions of a statement (identity.md §4): operators by type, IfExists, ForAllValues, ForAnyValue.
 *
 * Invariants: (1) negation is applied value by value under a set operator, and to the whole ("none of the values matches")
 * without one; (2) a missing key is false for a positive operator and true for a negated one.
 * Memory: none of its own. Threads: the request's fiber.
 */
#include "policy.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>

#define NUMBER_CHARS_MAX 64
#define BINARY_BYTES_MAX 1024

static bool parse_number(tarn_str s, long double *out)
{
    char mem[NUMBER_CHARS_MAX + 1];
    tarn_sb b;
    if (s.n == 0 || s.n > NUMBER_CHARS_MAX) {
        return false;
    }
    for (size_t i = 0; i < s.n; i++) {
        if (!((s.p[i] >= '0' && s.p[i] <= '9') || s.p[i] == '.' || ((s.p[i] == '-' || s.p[i] == '+') && i == 0))) {
            return false;
        }
    }
    tarn_sb_init_fixed(&b, mem, sizeof mem);
    tarn_sb_str(&b, s);
    char *end = NULL;
    *out = strtold(mem, &end);
    return end == mem + s.n && end != mem;
}

/* ISO 8601, or seconds since 1970. */
static bool parse_date(tarn_str s, int64_t *ms)
{
    int64_t seconds;
    if (tarn_parse_iso8601(s, ms)) {
        return true;
    }
    if (!tarn_str_to_i64(s, &seconds) || seconds > INT64_MAX / AUTH_MS_PER_S || seconds < INT64_MIN / AUTH_MS_PER_S) {
        return false;
    }
    *ms = seconds * AUTH_MS_PER_S;
    return true;
}

static bool parse_bool(tarn_str s, bool *out)
{
    *out = tarn_str_ieqc(s, "true");
    return *out || tarn_str_ieqc(s, "false");
}

bool policy_ip_parse(tarn_str text, uint8_t out[16], unsigned *bits, bool *v4)
{
    char mem[64];
    tarn_sb b;
    tarn_str address;
    tarn_str prefix;
    bool has_prefix = tarn_str_split(text, '/', &address, &prefix);
    uint64_t given = 0;
    tarn_sb_init_fixed(&b, mem, sizeof mem);
    tarn_sb_str(&b, address);
    if (b.failed || memchr(mem, 0, b.n)) {
        return false;
    }
    *v4 = inet_pton(AF_INET, mem, out) == 1;
    if (!*v4 && inet_pton(AF_INET6, mem, out) != 1) {
        return false;
    }
    unsigned most = *v4 ? 32 : 128;
    if (has_prefix && (!tarn_str_to_u64(prefix, &given) || given > most)) {
        return false;
    }
    *bits = has_prefix ? (unsigned)given : most;
    static const uint8_t mapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
    if (!*v4 && *bits >= 96 && memcmp(out, mapped, sizeof mapped) == 0) {
        memmove(out, out + 12, 4);
        *v4 = true;
        *bits -= 96;
    }
    return true;
}

static bool ip_matches(tarn_str net, tarn_str text)
{
    uint8_t a[16];
    uint8_t b[16];
    unsigned bits;
    unsigned text_bits;
    bool a4;
    bool b4;
    if (!policy_ip_parse(net, a, &bits, &a4) || !policy_ip_parse(text, b, &text_bits, &b4) || a4 != b4 || tarn_str_chr(text, '/') >= 0) {
        return false;
    }
    size_t whole = bits / 8;
    unsigned rest = bits % 8;
    if (memcmp(a, b, whole) != 0) {
        return false;
    }
    return rest == 0 || ((a[whole] ^ b[whole]) >> (8 - rest)) == 0;
}

static bool binary_matches(tarn_str want, tarn_str have)
{
    uint8_t a[BINARY_BYTES_MAX];
    uint8_t b[BINARY_BYTES_MAX];
    size_t a_n;
    size_t b_n;
    return tarn_base64_decode(want, a, sizeof a, &a_n) && tarn_base64_decode(have, b, sizeof b, &b_n) && a_n == b_n &&
           memcmp(a, b, a_n) == 0;
}

/* have OP want, as -1, 0, 1 of have against want. */
static bool order_holds(policy_test test, int order)
{
    switch (test) {
    case POLICY_NUMERIC_EQUALS:
    case POLICY_DATE_EQUALS:
        return order == 0;
    case POLICY_NUMERIC_LESS:
    case POLICY_DATE_LESS:
        return order < 0;
    case POLICY_NUMERIC_LESS_EQUALS:
    case POLICY_DATE_LESS_EQUALS:
        return order <= 0;
    case POLICY_NUMERIC_GREATER:
    case POLICY_DATE_GREATER:
        return order > 0;
    case POLICY_NUMERIC_GREATER_EQUALS:
    case POLICY_DATE_GREATER_EQUALS:
        return order >= 0;
    default:
        return false;
    }
}

static bool number_matches(policy_test test, tarn_str want, tarn_str have)
{
    long double a;
    long double b;
    return parse_number(want, &a) && parse_number(have, &b) && order_holds(test, (b > a) - (b < a));
}

static bool date_matches(policy_test test, tarn_str want, tarn_str have)
{
    int64_t a;
    int64_t b;
    return parse_date(want, &a) && parse_date(have, &b) && order_holds(test, (b > a) - (b < a));
}

static bool bool_matches(tarn_str want, tarn_str have)
{
    bool a;
    bool b;
    return parse_bool(want, &a) && parse_bool(have, &b) && a == b;
}

static bool value_matches(policy_run *run, policy_test test, tarn_str want, tarn_str have)
{
    switch (test) {
    case POLICY_STRING_EQUALS:
        return policy_equals_vars(run, want, have, false);
    case POLICY_STRING_EQUALS_FOLDED:
        return policy_equals_vars(run, want, have, true);
    case POLICY_STRING_LIKE:
        return policy_wild_vars(run, want, have);
    case POLICY_NUMERIC_EQUALS:
    case POLICY_NUMERIC_LESS:
    case POLICY_NUMERIC_LESS_EQUALS:
    case POLICY_NUMERIC_GREATER:
    case POLICY_NUMERIC_GREATER_EQUALS:
        return number_matches(test, want, have);
    case POLICY_DATE_EQUALS:
    case POLICY_DATE_LESS:
    case POLICY_DATE_LESS_EQUALS:
    case POLICY_DATE_GREATER:
    case POLICY_DATE_GREATER_EQUALS:
        return date_matches(test, want, have);
    case POLICY_BOOL:
        return bool_matches(want, have);
    case POLICY_BINARY:
        return binary_matches(want, have);
    case POLICY_IP:
        return ip_matches(want, have);
    case POLICY_ARN:
        return policy_arn_vars(run, want, have);
    case POLICY_NULL:
        break;
    }
    return false;
}

static bool matches_any(policy_run *run, const policy_cond *c, tarn_str have)
{
    for (size_t i = 0; i < c->values_n; i++) {
        if (value_matches(run, c->test, c->values[i], have)) {
            return true;
        }
    }
    return false;
}

static bool null_holds(const policy_cond *c, size_t present)
{
    for (size_t i = 0; i < c->values_n; i++) {
        if (tarn_str_ieqc(c->values[i], present > 0 ? "false" : "true")) {
            return true;
        }
    }
    return false;
}

bool policy_cond_holds(policy_run *run, const policy_cond *c)
{
    tarn_str first;
    size_t n = policy_key_values(run, c->key, &first);
    if (c->test == POLICY_NULL) {
        return null_holds(c, n);
    }
    if (n == 0) {
        return c->if_exists || c->set == POLICY_SET_ALL || (c->set == POLICY_SET_NONE && c->negated);
    }
    if (c->set == POLICY_SET_ALL && n == 1 && first.n == 0) {
        return true; /* a lone empty text counts as no value */
    }
    bool any = false;
    bool all = true;
    for (size_t i = 0; i < n; i++) {
        bool hit = matches_any(run, c, policy_key_value(run, c->key, i));
        bool holds = c->set != POLICY_SET_NONE && c->negated ? !hit : hit;
        any = any || holds;
        all = all && holds;
    }
    switch (c->set) {
    case POLICY_SET_ALL:
        return all;
    case POLICY_SET_ANY:
        return any;
    case POLICY_SET_NONE:
        break;
    }
    return c->negated ? !any : any;
}

bool policy_value_valid(policy_test test, tarn_str value)
{
    long double number;
    int64_t ms;
    bool flag;
    uint8_t bytes[BINARY_BYTES_MAX];
    size_t n;
    unsigned bits;
    switch (test) {
    case POLICY_NUMERIC_EQUALS:
    case POLICY_NUMERIC_LESS:
    case POLICY_NUMERIC_LESS_EQUALS:
    case POLICY_NUMERIC_GREATER:
    case POLICY_NUMERIC_GREATER_EQUALS:
        return parse_number(value, &number);
    case POLICY_DATE_EQUALS:
    case POLICY_DATE_LESS:
    case POLICY_DATE_LESS_EQUALS:
    case POLICY_DATE_GREATER:
    case POLICY_DATE_GREATER_EQUALS:
        return parse_date(value, &ms);
    case POLICY_BOOL:
    case POLICY_NULL:
        return parse_bool(value, &flag);
    case POLICY_BINARY:
        return tarn_base64_decode(value, bytes, sizeof bytes, &n);
    case POLICY_IP:
        return policy_ip_parse(value, bytes, &bits, &flag);
    case POLICY_STRING_EQUALS:
    case POLICY_STRING_EQUALS_FOLDED:
    case POLICY_STRING_LIKE:
    case POLICY_ARN:
        break;
    }
    return value.n <= POLICY_PATTERN_BYTES_MAX;
}
