/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A parsed policy document, and what its parser, its conditions and its evaluator share.
 *
 * Ownership: a tarn_policy owns an arena that holds all of it; it is counted and never changes after parsing.
 * Threads: any may evaluate; the count is atomic.
 */
#ifndef TARN_AUTH_POLICY_H
#define TARN_AUTH_POLICY_H

#include "auth_private.h"

#include <stdatomic.h>

#define POLICY_STATEMENTS_MAX 512
#define POLICY_PATTERN_BYTES_MAX 2048

typedef enum policy_test {
    POLICY_STRING_EQUALS,
    POLICY_STRING_EQUALS_FOLDED,
    POLICY_STRING_LIKE,
    POLICY_NUMERIC_EQUALS,
    POLICY_NUMERIC_LESS,
    POLICY_NUMERIC_LESS_EQUALS,
    POLICY_NUMERIC_GREATER,
    POLICY_NUMERIC_GREATER_EQUALS,
    POLICY_DATE_EQUALS,
    POLICY_DATE_LESS,
    POLICY_DATE_LESS_EQUALS,
    POLICY_DATE_GREATER,
    POLICY_DATE_GREATER_EQUALS,
    POLICY_BOOL,
    POLICY_BINARY,
    POLICY_IP,
    POLICY_ARN,
    POLICY_NULL
} policy_test;

typedef enum policy_set { POLICY_SET_NONE, POLICY_SET_ALL, POLICY_SET_ANY } policy_set;

typedef struct policy_cond {
    policy_test test;
    bool negated;
    bool if_exists;
    policy_set set;
    tarn_str key;
    tarn_str *values;
    size_t values_n;
} policy_cond;

typedef enum policy_principal_kind {
    POLICY_PRINCIPAL_ANY,
    POLICY_PRINCIPAL_ACCOUNT, /* an account's id, or its root's ARN: text is the id */
    POLICY_PRINCIPAL_ARN,
    POLICY_PRINCIPAL_NAME, /* an access key or user name */
    POLICY_PRINCIPAL_CANONICAL,
    POLICY_PRINCIPAL_OTHER /* Service, Federated: nobody here */
} policy_principal_kind;

typedef struct policy_principal {
    policy_principal_kind kind;
    tarn_str text;
} policy_principal;

typedef struct policy_stmt {
    bool deny;
    bool not_principal, not_action, not_resource;
    tarn_str sid;
    policy_principal *principals; /* none in identity documents */
    size_t principals_n;
    tarn_str *actions;
    size_t actions_n;
    tarn_str *resources;
    size_t resources_n;
    policy_cond *conds;
    size_t conds_n;
} policy_stmt;

struct tarn_policy {
    tarn_arena *arena;
    atomic_uint refs;
    tarn_policy_kind kind;
    bool variables; /* Version 2012-10-17: ${…} is looked at */
    policy_stmt *stmts;
    size_t stmts_n;
};

/* ------------------------------------------------------------------ tables (policy_table.c) */
typedef enum policy_target { POLICY_TARGET_BUCKET = 1, POLICY_TARGET_OBJECT = 2, POLICY_TARGET_SERVICE = 4 } policy_target;
/* The targets (or'ed) of the S3 actions that a pattern covers; 0: it covers none. */
unsigned policy_action_targets(tarn_str pattern);
/* Fills in test, negated, if_exists and set. */
bool policy_operator(tarn_str name, policy_cond *out);
/* Condition keys of S3 and the global ones; in a bucket policy others are refused. */
bool policy_key_known(tarn_str key);
/* Keys are compared without case up to the first '/', and exactly behind it (a tag's key). */
bool policy_key_eq(tarn_str a, tarn_str b);

/* ------------------------------------------------------------------ matching (policy_match.c) */
typedef struct policy_run {
    const tarn_policy_request *r;
    bool variables;
    bool broken; /* out of memory: the whole decision is deny */
    int64_t now_ms;
    char mem[3][128]; /* texts of derived keys */
} policy_run;
/* '*' any run, '?' one byte, everything else itself. */
bool policy_wild(tarn_str pattern, tarn_str text, bool fold_case);
/* The same with ${…} filled in from the request; characters of a value are literal. */
bool policy_wild_vars(policy_run *run, tarn_str pattern, tarn_str text);
/* Without wildcards: the text itself once ${…} is filled in. */
bool policy_equals_vars(policy_run *run, tarn_str pattern, tarn_str text, bool fold_case);
/* Six parts by ':', each with wildcards of its own. */
bool policy_arn_vars(policy_run *run, tarn_str pattern, tarn_str text);
/* The request's values of a key: how many; *first is one of them. */
size_t policy_key_values(policy_run *run, tarn_str key, tarn_str *first);
/* The i-th value. */
tarn_str policy_key_value(policy_run *run, tarn_str key, size_t i);

/* ------------------------------------------------------------------ conditions (policy_cond.c) */
bool policy_cond_holds(policy_run *run, const policy_cond *c);
/* Whether a value in a document is of the operator's type. */
bool policy_value_valid(policy_test test, tarn_str value);
bool policy_ip_parse(tarn_str text, uint8_t out[16], unsigned *bits, bool *v4);

#endif
