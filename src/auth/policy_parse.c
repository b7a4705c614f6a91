/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Policy documents from JSON (identity.md §2). Strict: an element that is not known, a value of the wrong type, a resource
 * of another bucket, an action that fits no resource are errors with a text that names them, never ignored.
 *
 * Invariants: (1) a document that parses can be evaluated without further checks; (2) a statement has exactly one of Action
 * and NotAction, of Resource and NotResource, and (bucket) of Principal and NotPrincipal, none of them empty.
 * Memory: the policy's own arena; error texts lie in the caller's. Threads: the request's fiber.
 */
#include "policy.h"

#include <string.h>

#define POLICY_ARENA_BYTES_MAX (1024 * 1024)
#define ARN_S3 "arn:aws:s3:::"
#define NAME_BYTES_MAX 256

typedef struct parse {
    tarn_policy *p;
    tarn_policy_kind kind;
    tarn_str bucket;
    tarn_arena *arena; /* the caller's, for error texts */
    tarn_err_detail *d;
} parse;

static tarn_err bad(parse *x, const char *message)
{
    return auth_fail(x->d, TARN_E_MALFORMED_POLICY, message);
}

static tarn_err bad_name(parse *x, const char *message, tarn_str name)
{
    return auth_failf(x->d, x->arena, TARN_E_MALFORMED_POLICY, "%s%.*s", message, TARN_STR_ARG(tarn_str_sub(name, 0, NAME_BYTES_MAX)));
}

static tarn_err keep(parse *x, tarn_str s, tarn_str *out)
{
    *out = tarn_arena_str(x->p->arena, s);
    return out->p ? TARN_OK : TARN_E_NO_MEMORY;
}

/* A text, or a list of texts; at least one. */
static tarn_err texts(parse *x, const json_t *j, const char *message, tarn_str **out, size_t *out_n)
{
    size_t n = json_is_array(j) ? json_array_size(j) : 1;
    if (n == 0) {
        return bad(x, message);
    }
    tarn_str *v = TARN_ARENA_ARRAY(x->p->arena, tarn_str, n);
    if (!v) {
        return TARN_E_NO_MEMORY;
    }
    for (size_t i = 0; i < n; i++) {
        const json_t *one = json_is_array(j) ? json_array_get(j, i) : j;
        if (!json_is_string(one) || json_string_length(one) == 0 || json_string_length(one) > POLICY_PATTERN_BYTES_MAX) {
            return bad(x, message);
        }
        tarn_err e = keep(x, auth_json_str(one), &v[i]);
        if (e != TARN_OK) {
            return e;
        }
    }
    *out = v;
    *out_n = n;
    return TARN_OK;
}

/* Exactly one of two elements. */
static tarn_err one_of(parse *x, const json_t *stmt, const char *name, const char *not_name, bool *negated, const json_t **out)
{
    const json_t *a = json_object_get(stmt, name);
    const json_t *b = json_object_get(stmt, not_name);
    if (a && b) {
        return auth_failf(x->d, x->arena, TARN_E_MALFORMED_POLICY, "%s and %s cannot be specified in the same statement", name, not_name);
    }
    if (!a && !b) {
        return auth_failf(x->d, x->arena, TARN_E_MALFORMED_POLICY, "Missing required field %s", name);
    }
    *negated = b != NULL;
    *out = a ? a : b;
    return TARN_OK;
}

/* ------------------------------------------------------------------ principals */
static bool all_digits(tarn_str s)
{
    uint64_t v;
    return s.n == 12 && tarn_str_to_u64(s, &v);
}

/* arn:PARTITION:SERVICE:REGION:ACCOUNT:RESOURCE */
static bool split_arn(tarn_str arn, tarn_str part[6])
{
    tarn_str rest = arn;
    for (size_t i = 0; i < 5; i++) {
        if (!tarn_str_split(rest, ':', &part[i], &rest)) {
            return false;
        }
    }
    part[5] = rest;
    return tarn_str_eqc(part[0], "arn") && part[1].n > 0 && part[2].n > 0 && rest.n > 0;
}

static tarn_err aws_principal(parse *x, tarn_str text, policy_principal *out)
{
    tarn_str part[6];
    out->kind = POLICY_PRINCIPAL_NAME;
    if (tarn_str_eqc(text, "*")) {
        out->kind = POLICY_PRINCIPAL_ANY;
    } else if (all_digits(text)) {
        out->kind = POLICY_PRINCIPAL_ACCOUNT;
    } else if (tarn_str_starts(text, "arn:")) {
        if (!split_arn(text, part) || tarn_str_chr(text, '*') >= 0) {
            return bad(x, "Invalid principal in policy");
        }
        bool root = tarn_str_eqc(part[5], "root");
        out->kind = root ? POLICY_PRINCIPAL_ACCOUNT : POLICY_PRINCIPAL_ARN;
        text = root ? part[4] : text;
    } else if (text.n > TARN_ACCESS_KEY_BYTES_MAX || tarn_str_chr(text, '*') >= 0 || tarn_str_chr(text, ' ') >= 0) {
        return bad(x, "Invalid principal in policy");
    }
    return keep(x, text, &out->text);
}

static tarn_err add_principals(parse *x, policy_stmt *s, const char *kind, const json_t *value)
{
    tarn_str *v = NULL;
    size_t n = 0;
    policy_principal_kind other = tarn_str_eqc(tarn_str_of(kind), "CanonicalUser") ? POLICY_PRINCIPAL_CANONICAL : POLICY_PRINCIPAL_OTHER;
    bool aws = tarn_str_eqc(tarn_str_of(kind), "AWS");
    if (!aws && other == POLICY_PRINCIPAL_OTHER && !tarn_str_eqc(tarn_str_of(kind), "Service") &&
        !tarn_str_eqc(tarn_str_of(kind), "Federated")) {
        return bad(x, "Invalid principal in policy");
    }
    tarn_err e = texts(x, value, "Invalid principal in policy", &v, &n);
    if (e != TARN_OK) {
        return e;
    }
    policy_principal *all = TARN_ARENA_ARRAY(x->p->arena, policy_principal, s->principals_n + n);
    if (!all) {
        return TARN_E_NO_MEMORY;
    }
    if (s->principals_n > 0) {
        memcpy(all, s->principals, s->principals_n * sizeof *all);
    }
    for (size_t i = 0; e == TARN_OK && i < n; i++) {
        policy_principal *one = &all[s->principals_n + i];
        one->kind = other;
        one->text = v[i];
        if (aws) {
            e = aws_principal(x, v[i], one);
        }
    }
    s->principals = all;
    s->principals_n += n;
    return e;
}

static tarn_err principals(parse *x, policy_stmt *s, const json_t *stmt)
{
    const json_t *j = NULL;
    if (x->kind == TARN_POLICY_IDENTITY) {
        if (json_object_get(stmt, "Principal") || json_object_get(stmt, "NotPrincipal")) {
            return bad(x, "A policy of a user must not have a Principal");
        }
        return TARN_OK;
    }
    tarn_err e = one_of(x, stmt, "Principal", "NotPrincipal", &s->not_principal, &j);
    if (e != TARN_OK) {
        return e;
    }
    if (s->not_principal && !s->deny) {
        return bad(x, "NotPrincipal can only be used with Deny: Allow would include everybody who is not named");
    }
    if (json_is_string(j)) {
        return tarn_str_eqc(auth_json_str(j), "*") ? add_principals(x, s, "AWS", j) : bad(x, "Invalid principal in policy");
    }
    if (!json_is_object(j) || json_object_size(j) == 0) {
        return bad(x, "Invalid principal in policy");
    }
    const char *kind;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)j, kind, value)
    {
        e = add_principals(x, s, kind, value);
        if (e != TARN_OK) {
            return e;
        }
    }
    return TARN_OK;
}

/* ------------------------------------------------------------------ actions and resources */
static tarn_err actions(parse *x, policy_stmt *s, const json_t *stmt)
{
    const json_t *j = NULL;
    tarn_err e = one_of(x, stmt, "Action", "NotAction", &s->not_action, &j);
    if (e == TARN_OK) {
        e = texts(x, j, "Policy has invalid action", &s->actions, &s->actions_n);
    }
    for (size_t i = 0; e == TARN_OK && i < s->actions_n; i++) {
        tarn_str a = s->actions[i];
        bool known = tarn_str_eqc(a, "*") || policy_action_targets(a) != 0;
        if (x->kind == TARN_POLICY_IDENTITY) {
            /* Other services have actions of their own, and S3 gets new ones: one that nobody knows grants nothing. */
            known = known || tarn_str_chr(a, ':') > 0;
        }
        if (!known) {
            e = bad_name(x, "Policy has invalid action: ", a);
        }
    }
    return e;
}

/* Whether a pattern behind "arn:aws:s3:::" can name the bucket or something in it. */
static bool of_bucket(tarn_str pattern, tarn_str bucket)
{
    size_t literal = 0;
    while (literal < pattern.n && pattern.p[literal] != '*' && pattern.p[literal] != '?' && pattern.p[literal] != '$') {
        literal++;
    }
    if (literal == pattern.n) {
        return tarn_str_eq(pattern, bucket) ||
               (pattern.n > bucket.n && tarn_str_eq(tarn_str_sub(pattern, 0, bucket.n), bucket) && pattern.p[bucket.n] == '/');
    }
    if (literal > bucket.n) {
        return tarn_str_eq(tarn_str_sub(pattern, 0, bucket.n), bucket) && pattern.p[bucket.n] == '/';
    }
    return tarn_str_eq(tarn_str_sub(bucket, 0, literal), tarn_str_sub(pattern, 0, literal));
}

static tarn_err check_resource(parse *x, tarn_str r)
{
    if (x->kind == TARN_POLICY_IDENTITY) {
        return tarn_str_eqc(r, "*") || tarn_str_starts(r, "arn:") ? TARN_OK : bad_name(x, "Policy has invalid resource: ", r);
    }
    if (!tarn_str_starts(r, ARN_S3) || !of_bucket(tarn_str_sub(r, sizeof ARN_S3 - 1, SIZE_MAX), x->bucket)) {
        return bad_name(x, "Policy has invalid resource: ", r);
    }
    return TARN_OK;
}

/* Bucket or object, or both where a wildcard leaves it open. */
static unsigned resource_targets(tarn_str r)
{
    tarn_str pattern = tarn_str_sub(r, sizeof ARN_S3 - 1, SIZE_MAX);
    if (tarn_str_chr(pattern, '/') >= 0) {
        return POLICY_TARGET_OBJECT;
    }
    return tarn_str_chr(pattern, '*') >= 0 ? POLICY_TARGET_BUCKET | POLICY_TARGET_OBJECT : POLICY_TARGET_BUCKET;
}

static tarn_err resources(parse *x, policy_stmt *s, const json_t *stmt)
{
    const json_t *j = NULL;
    unsigned targets = 0;
    tarn_err e = one_of(x, stmt, "Resource", "NotResource", &s->not_resource, &j);
    if (e == TARN_OK) {
        e = texts(x, j, "Policy has invalid resource", &s->resources, &s->resources_n);
    }
    for (size_t i = 0; e == TARN_OK && i < s->resources_n; i++) {
        e = check_resource(x, s->resources[i]);
        targets |= resource_targets(s->resources[i]);
    }
    if (e != TARN_OK || x->kind != TARN_POLICY_BUCKET || s->not_action || s->not_resource) {
        return e;
    }
    for (size_t i = 0; i < s->actions_n; i++) {
        if ((policy_action_targets(s->actions[i]) & targets) == 0) {
            return bad(x, "Action does not apply to any resource(s) in statement");
        }
    }
    return TARN_OK;
}

/* ------------------------------------------------------------------ conditions */
static tarn_err scalar(parse *x, const json_t *j, tarn_str *out)
{
    if (json_is_string(j)) {
        return keep(x, auth_json_str(j), out);
    }
    if (json_is_boolean(j)) {
        *out = json_is_true(j) ? TARN_STR("true") : TARN_STR("false");
        return TARN_OK;
    }
    if (json_is_integer(j)) {
        *out = tarn_arena_fmt(x->p->arena, "%lld", (long long)json_integer_value(j));
    } else if (json_is_real(j)) {
        *out = tarn_arena_fmt(x->p->arena, "%.15g", json_real_value(j));
    } else {
        return bad(x, "Policy has an invalid condition value");
    }
    return out->p ? TARN_OK : TARN_E_NO_MEMORY;
}

static tarn_err condition(parse *x, policy_cond *c, tarn_str operator_name, const char *key, const json_t *values)
{
    size_t n = json_is_array(values) ? json_array_size(values) : 1;
    if (!policy_operator(operator_name, c)) {
        return bad_name(x, "Invalid Condition type : ", operator_name);
    }
    if (!policy_key_known(tarn_str_of(key)) && (x->kind == TARN_POLICY_BUCKET || tarn_str_chr(tarn_str_of(key), ':') <= 0)) {
        return bad_name(x, "Policy has an invalid condition key: ", tarn_str_of(key));
    }
    tarn_err e = keep(x, tarn_str_of(key), &c->key);
    c->values = TARN_ARENA_ARRAY(x->p->arena, tarn_str, n > 0 ? n : 1);
    if (e != TARN_OK || !c->values) {
        return TARN_E_NO_MEMORY;
    }
    for (size_t i = 0; i < n; i++) {
        e = scalar(x, json_is_array(values) ? json_array_get(values, i) : values, &c->values[i]);
        if (e != TARN_OK) {
            return e;
        }
        if (!policy_value_valid(c->test, c->values[i])) {
            return auth_failf(x->d, x->arena, TARN_E_MALFORMED_POLICY, "Invalid value for the condition %.*s: %.*s",
                              TARN_STR_ARG(operator_name), TARN_STR_ARG(tarn_str_sub(c->values[i], 0, NAME_BYTES_MAX)));
        }
    }
    c->values_n = n;
    return TARN_OK;
}

static tarn_err conditions(parse *x, policy_stmt *s, const json_t *stmt)
{
    json_t *j = json_object_get(stmt, "Condition");
    if (!j) {
        return TARN_OK;
    }
    if (!json_is_object(j)) {
        return bad(x, "Condition must be an object");
    }
    size_t n = 0;
    const char *name;
    const char *key;
    json_t *keys;
    json_t *values;
    json_object_foreach(j, name, keys)
    {
        if (!json_is_object(keys)) {
            return bad_name(x, "A condition must be an object: ", tarn_str_of(name));
        }
        n += json_object_size(keys);
    }
    s->conds = TARN_ARENA_ARRAY(x->p->arena, policy_cond, n > 0 ? n : 1);
    if (!s->conds) {
        return TARN_E_NO_MEMORY;
    }
    json_object_foreach(j, name, keys)
    {
        json_object_foreach(keys, key, values)
        {
            tarn_err e = condition(x, &s->conds[s->conds_n++], tarn_str_of(name), key, values);
            if (e != TARN_OK) {
                return e;
            }
        }
    }
    return TARN_OK;
}

/* ------------------------------------------------------------------ statements */
static tarn_err check_names(parse *x, const json_t *object, const char *const *names, size_t n)
{
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)object, name, value)
    {
        bool known = false;
        for (size_t i = 0; i < n; i++) {
            known = known || strcmp(name, names[i]) == 0;
        }
        if (!known) {
            return bad_name(x, "Unknown field ", tarn_str_of(name));
        }
    }
    return TARN_OK;
}

static tarn_err sid(parse *x, policy_stmt *s, const json_t *stmt, size_t before)
{
    const json_t *j = json_object_get(stmt, "Sid");
    if (!j) {
        return TARN_OK;
    }
    if (!json_is_string(j)) {
        return bad(x, "Sid must be a text");
    }
    tarn_err e = keep(x, auth_json_str(j), &s->sid);
    for (size_t i = 0; e == TARN_OK && s->sid.n > 0 && i < before; i++) {
        if (tarn_str_eq(x->p->stmts[i].sid, s->sid)) {
            e = bad_name(x, "Statement IDs (SID) in a single policy must be unique: ", s->sid);
        }
    }
    return e;
}

static tarn_err statement(parse *x, size_t at, const json_t *stmt)
{
    static const char *const NAMES[] = {"Sid",       "Effect",   "Principal",   "NotPrincipal", "Action",
                                        "NotAction", "Resource", "NotResource", "Condition"};
    policy_stmt *s = &x->p->stmts[at];
    if (!json_is_object(stmt)) {
        return bad(x, "A statement must be an object");
    }
    tarn_err e = check_names(x, stmt, NAMES, TARN_ARRAY_LEN(NAMES));
    if (e == TARN_OK) {
        e = sid(x, s, stmt, at);
    }
    if (e != TARN_OK) {
        return e;
    }
    tarn_str effect = auth_json_str(json_object_get(stmt, "Effect"));
    s->deny = tarn_str_eqc(effect, "Deny");
    if (!s->deny && !tarn_str_eqc(effect, "Allow")) {
        return bad_name(x, "Invalid effect: ", effect);
    }
    e = principals(x, s, stmt);
    if (e == TARN_OK) {
        e = actions(x, s, stmt);
    }
    if (e == TARN_OK) {
        e = resources(x, s, stmt);
    }
    return e == TARN_OK ? conditions(x, s, stmt) : e;
}

static tarn_err document(parse *x, const json_t *root)
{
    static const char *const NAMES[] = {"Version", "Id", "Statement"};
    const json_t *version = json_object_get(root, "Version");
    const json_t *list = json_object_get(root, "Statement");
    tarn_err e = check_names(x, root, NAMES, TARN_ARRAY_LEN(NAMES));
    if (e != TARN_OK) {
        return e;
    }
    tarn_str v = version ? auth_json_str(version) : TARN_STR("2008-10-17");
    x->p->variables = tarn_str_eqc(v, "2012-10-17");
    if (!x->p->variables && !tarn_str_eqc(v, "2008-10-17")) {
        return bad(x, "The policy must contain a valid version string");
    }
    const json_t *id = json_object_get(root, "Id");
    if (id && !json_is_string(id)) {
        return bad(x, "Id must be a text");
    }
    if (!list) {
        return bad(x, "Missing required field Statement");
    }
    size_t n = json_is_array(list) ? json_array_size(list) : 1;
    if (n == 0) {
        return bad(x, "Could not parse the policy: Statement is empty!");
    }
    if (n > POLICY_STATEMENTS_MAX) {
        return bad(x, "The policy has too many statements");
    }
    x->p->stmts = TARN_ARENA_ARRAY(x->p->arena, policy_stmt, n);
    if (!x->p->stmts) {
        return TARN_E_NO_MEMORY;
    }
    for (size_t i = 0; e == TARN_OK && i < n; i++) {
        e = statement(x, i, json_is_array(list) ? json_array_get(list, i) : list);
    }
    x->p->stmts_n = n;
    return e;
}

static tarn_err load(tarn_str json, tarn_arena *arena, tarn_err_detail *d, json_t **out)
{
    char text[64];
    if (json.n > TARN_POLICY_BYTES_MAX) {
        return auth_fail(d, TARN_E_MALFORMED_POLICY, "Policy exceeds the maximum allowed document size.");
    }
    tarn_str trimmed = json;
    while (trimmed.n > 0 && strchr(" \t\r\n", trimmed.p[0]) && trimmed.p[0] != '\0') {
        trimmed = tarn_str_sub(trimmed, 1, SIZE_MAX);
    }
    if (trimmed.n == 0 || trimmed.p[0] != '{') {
        return auth_fail(d, TARN_E_MALFORMED_POLICY, "Policies must be valid JSON and the first byte must be '{'");
    }
    *out = auth_json_load(json, text, sizeof text);
    if (!*out) {
        return auth_failf(d, arena, TARN_E_MALFORMED_POLICY, "This policy contains invalid Json: %s", text);
    }
    return TARN_OK;
}

tarn_err tarn_policy_parse(tarn_policy_kind kind, tarn_str json, tarn_str bucket, tarn_policy **out, tarn_arena *arena,
                           tarn_err_detail *detail)
{
    json_t *root = NULL;
    tarn_err e = load(json, arena, detail, &root);
    if (e != TARN_OK) {
        return e;
    }
    tarn_policy *p = tarn_calloc(1, sizeof *p);
    if (!p) {
        json_decref(root);
        return TARN_E_NO_MEMORY;
    }
    p->kind = kind;
    atomic_init(&p->refs, 1);
    p->arena = tarn_arena_new(POLICY_ARENA_BYTES_MAX);
    e = TARN_E_NO_MEMORY;
    if (p->arena) {
        parse x = {.p = p, .kind = kind, .bucket = bucket, .arena = arena, .d = detail};
        e = document(&x, root);
    }
    json_decref(root);
    if (e != TARN_OK) {
        tarn_policy_unref(p);
        return e;
    }
    *out = p;
    return TARN_OK;
}

tarn_policy *tarn_policy_ref(const tarn_policy *p)
{
    tarn_policy *mine = (tarn_policy *)(uintptr_t)p; /* only the count is written */
    if (mine) {
        atomic_fetch_add_explicit(&mine->refs, 1, memory_order_relaxed);
    }
    return mine;
}

void tarn_policy_unref(tarn_policy *p)
{
    if (!p || atomic_fetch_sub_explicit(&p->refs, 1, memory_order_acq_rel) != 1) {
        return;
    }
    tarn_arena_free(p->arena);
    tarn_free(p);
}
