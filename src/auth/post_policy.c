/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The policy of a POST form: {"expiration": time, "conditions": [ {"field": "value"}, ["eq", "$field", "value"],
 * ["starts-with", "$field", "start"], ["content-length-range", min, max] ]}.
 *
 * Invariants: (1) every field of the form, and the bucket that it is sent to, is covered by a condition, but for those that carry the
 * signature itself, the file, and x-ignore-*; (2) every condition holds; (3) operator and field names are compared without case,
 * "expiration" and "conditions" exactly. Memory: the request's arena; the JSON is freed before returning. Threads: the request's fiber.
 */
#include "auth_private.h"

#include <string.h>

#define PREFIX "Invalid according to Policy: "
#define CONDITIONS_MAX 256
#define FIELDS_MAX 1000
#define DUMP_BYTES_MAX 512

typedef struct check {
    const tarn_pair *fields;
    size_t fields_n;
    bool *covered; /* one for each field */
    bool bucket_covered;
    tarn_str bucket;
    uint64_t content_bytes;
    tarn_arena *arena;
    tarn_err_detail *d;
} check;

static tarn_err bad_document(check *c, const char *message)
{
    return auth_failf(c->d, c->arena, TARN_E_INVALID_POLICY_DOCUMENT, "Invalid Policy: %s", message);
}

/* Names the condition as it stands in the document. */
static tarn_err condition_failed(check *c, const json_t *condition)
{
    char mem[DUMP_BYTES_MAX];
    size_t n = json_dumpb(condition, mem, sizeof mem, JSON_COMPACT | JSON_ENCODE_ANY);
    if (n > sizeof mem) {
        n = 0;
    }
    return auth_failf(c->d, c->arena, TARN_E_ACCESS_DENIED, PREFIX "Policy Condition failed: %.*s", (int)n, mem);
}

/* Marks the field as covered. {NULL,0} when the form does not have it. "bucket" is where the form was sent, and a field of
 * that name must say the same. */
static tarn_str take_field(check *c, tarn_str name)
{
    bool bucket = tarn_str_ieqc(name, "bucket");
    c->bucket_covered = c->bucket_covered || bucket;
    tarn_str value = bucket ? c->bucket : TARN_STR_NULL;
    for (size_t i = 0; i < c->fields_n; i++) {
        if (!tarn_str_ieq(c->fields[i].name, name)) {
            continue;
        }
        if (bucket && !tarn_str_eq(c->fields[i].value, c->bucket)) {
            return TARN_STR_NULL;
        }
        c->covered[i] = true;
        value = c->fields[i].value.p ? c->fields[i].value : TARN_STR("");
    }
    return value;
}

static bool starts_with(tarn_str s, tarn_str start)
{
    return s.n >= start.n && tarn_str_eq(tarn_str_sub(s, 0, start.n), start);
}

/* {"field": "value", …}: each must be equal. */
static tarn_err object_condition(check *c, json_t *o)
{
    const char *name;
    json_t *want;
    if (json_object_size(o) == 0) {
        return bad_document(c, "a condition is empty.");
    }
    json_object_foreach(o, name, want)
    {
        if (!json_is_string(want)) {
            return bad_document(c, "the value of a condition must be a text.");
        }
        tarn_str have = take_field(c, tarn_str_of(name));
        if (!have.p || !tarn_str_eq(have, auth_json_str(want))) {
            return condition_failed(c, o);
        }
    }
    return TARN_OK;
}

/* A number, or its digits as a text. */
static bool size_of(const json_t *j, uint64_t *out)
{
    if (json_is_integer(j) && json_integer_value(j) >= 0) {
        *out = (uint64_t)json_integer_value(j);
        return true;
    }
    return json_is_string(j) && tarn_str_to_u64(auth_json_str(j), out);
}

static bool is_range(const json_t *list, uint64_t *min, uint64_t *max)
{
    return json_array_size(list) == 3 && json_is_string(json_array_get(list, 0)) &&
           tarn_str_ieqc(auth_json_str(json_array_get(list, 0)), "content-length-range") && size_of(json_array_get(list, 1), min) &&
           size_of(json_array_get(list, 2), max) && *min <= *max;
}

static tarn_err range_condition(check *c, const json_t *list)
{
    uint64_t min = 0;
    uint64_t max = 0;
    if (!is_range(list, &min, &max)) {
        return bad_document(c, "content-length-range must have two numbers, the smaller first.");
    }
    if (c->content_bytes < min) {
        tarn_err_detail_add(c->d, "ProposedSize", tarn_arena_fmt(c->arena, "%llu", (unsigned long long)c->content_bytes));
        tarn_err_detail_add(c->d, "MinSizeAllowed", tarn_arena_fmt(c->arena, "%llu", (unsigned long long)min));
        return TARN_E_ENTITY_TOO_SMALL;
    }
    if (c->content_bytes > max) {
        tarn_err_detail_add(c->d, "ProposedSize", tarn_arena_fmt(c->arena, "%llu", (unsigned long long)c->content_bytes));
        tarn_err_detail_add(c->d, "MaxSizeAllowed", tarn_arena_fmt(c->arena, "%llu", (unsigned long long)max));
        return TARN_E_ENTITY_TOO_LARGE;
    }
    return TARN_OK;
}

/* [operator, "$field", value] */
static tarn_err list_condition(check *c, const json_t *list)
{
    const json_t *op = json_array_get(list, 0);
    if (json_array_size(list) != 3 || !json_is_string(op)) {
        return bad_document(c, "a condition must be an operator, a field and a value.");
    }
    tarn_str name = auth_json_str(op);
    if (tarn_str_ieqc(name, "content-length-range")) {
        return range_condition(c, list);
    }
    bool eq = tarn_str_ieqc(name, "eq");
    if (!eq && !tarn_str_ieqc(name, "starts-with")) {
        return bad_document(c, "unknown operator in a condition.");
    }
    const json_t *field = json_array_get(list, 1);
    const json_t *value = json_array_get(list, 2);
    if (!json_is_string(field) || !json_is_string(value) || !tarn_str_starts(auth_json_str(field), "$")) {
        return bad_document(c, "a condition names its field as \"$field\" and has a text as its value.");
    }
    tarn_str want = auth_json_str(value);
    tarn_str have = take_field(c, tarn_str_sub(auth_json_str(field), 1, SIZE_MAX));
    if (!have.p || !(eq ? tarn_str_eq(have, want) : starts_with(have, want))) {
        return condition_failed(c, list);
    }
    return TARN_OK;
}

static bool needs_no_condition(tarn_str field)
{
    return tarn_str_ieqc(field, "policy") || tarn_str_ieqc(field, "x-amz-signature") || tarn_str_ieqc(field, "signature") ||
           tarn_str_ieqc(field, "awsaccesskeyid") || tarn_str_ieqc(field, "file") || tarn_str_istarts(field, "x-ignore-");
}

/* A field that is there twice could be checked in one form and used in the other. */
static bool is_repeated(const check *c, size_t at)
{
    for (size_t i = 0; i < at; i++) {
        if (tarn_str_ieq(c->fields[i].name, c->fields[at].name)) {
            return true;
        }
    }
    return false;
}

static tarn_err check_covered(check *c)
{
    if (!c->bucket_covered) {
        /* Where the form goes is a field of every form: a policy for one bucket must not serve for another. */
        return auth_fail(c->d, TARN_E_ACCESS_DENIED, PREFIX "Extra input fields: bucket");
    }
    for (size_t i = 0; i < c->fields_n; i++) {
        if (!tarn_str_istarts(c->fields[i].name, "x-ignore-") && is_repeated(c, i)) {
            return auth_failf(c->d, c->arena, TARN_E_ACCESS_DENIED, PREFIX "Field is there twice: %.*s", TARN_STR_ARG(c->fields[i].name));
        }
        if (!c->covered[i] && !needs_no_condition(c->fields[i].name)) {
            return auth_failf(c->d, c->arena, TARN_E_ACCESS_DENIED, PREFIX "Extra input fields: %.*s", TARN_STR_ARG(c->fields[i].name));
        }
    }
    return TARN_OK;
}

static tarn_err check_document(check *c, const json_t *root, int64_t now_ms)
{
    const json_t *expiration = json_object_get(root, "expiration");
    const json_t *conditions = json_object_get(root, "conditions");
    int64_t end_ms = 0;
    if (!json_is_object(root)) {
        return bad_document(c, "it must be a JSON object.");
    }
    if (!json_is_string(expiration)) {
        return bad_document(c, "\"expiration\" is missing.");
    }
    if (!json_is_array(conditions)) {
        return bad_document(c, "\"conditions\" is missing.");
    }
    tarn_str when = auth_json_str(expiration);
    if (!tarn_str_ends(when, "Z") || !tarn_parse_iso8601(when, &end_ms)) {
        return bad_document(c, "\"expiration\" must be an ISO 8601 time in UTC.");
    }
    if (json_object_size(root) != 2) {
        return bad_document(c, "it has a field that is neither \"expiration\" nor \"conditions\".");
    }
    if (now_ms >= end_ms) {
        return auth_fail(c->d, TARN_E_ACCESS_DENIED, PREFIX "Policy expired.");
    }
    if (json_array_size(conditions) > CONDITIONS_MAX) {
        return bad_document(c, "it has too many conditions.");
    }
    tarn_err e = TARN_OK;
    for (size_t i = 0; e == TARN_OK && i < json_array_size(conditions); i++) {
        json_t *one = json_array_get(conditions, i);
        if (json_is_object(one)) {
            e = object_condition(c, one);
        } else if (json_is_array(one)) {
            e = list_condition(c, one);
        } else {
            e = bad_document(c, "a condition must be an object or a list.");
        }
    }
    return e == TARN_OK ? check_covered(c) : e;
}

tarn_err tarn_post_policy_check(tarn_str policy_json, const tarn_pair *fields, size_t fields_n, tarn_str bucket, uint64_t content_bytes,
                                int64_t now_ms, tarn_arena *arena, tarn_err_detail *detail)
{
    char text[64];
    check c = {.fields = fields, .fields_n = fields_n, .bucket = bucket, .content_bytes = content_bytes, .arena = arena, .d = detail};
    if (fields_n > FIELDS_MAX) {
        return auth_fail(detail, TARN_E_LIMIT, "The form has too many fields.");
    }
    c.covered = TARN_ARENA_ARRAY(arena, bool, fields_n + 1);
    if (!c.covered) {
        return TARN_E_NO_MEMORY;
    }
    json_t *root = auth_json_load(policy_json, text, sizeof text);
    if (!root) {
        return auth_failf(detail, arena, TARN_E_INVALID_POLICY_DOCUMENT, "Invalid Policy: invalid JSON (%s).", text);
    }
    tarn_err e = check_document(&c, root, now_ms);
    json_decref(root);
    return e;
}

bool tarn_post_policy_range(tarn_str policy_json, uint64_t *min_bytes, uint64_t *max_bytes)
{
    char text[64];
    bool found = false;
    json_t *root = auth_json_load(policy_json, text, sizeof text);
    const json_t *conditions = json_object_get(root, "conditions");
    for (size_t i = 0; i < json_array_size(conditions); i++) {
        uint64_t min = 0;
        uint64_t max = 0;
        if (!is_range(json_array_get(conditions, i), &min, &max)) {
            continue;
        }
        /* Of several ranges the narrowest counts: all must hold. */
        *min_bytes = found && *min_bytes > min ? *min_bytes : min;
        *max_bytes = found && *max_bytes < max ? *max_bytes : max;
        found = true;
    }
    json_decref(root);
    return found;
}
