/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Patterns and variables of policies, and the values of the keys that they are matched with.
 *
 * A pattern becomes a row of tokens (a literal byte, ANY_RUN or ANY_ONE); ${key} is replaced by its value's bytes as
 * literals, once, so that a user called "*" is no wildcard and a value that holds "${…}" is not looked at again. Matching
 * is the two-pointer form: at most pattern × text steps.
 *
 * Invariants: (1) a key that is missing or has several values makes the pattern match nothing; (2) when memory runs out
 * run->broken is set, and the decision is deny.
 * Memory: a token row on the stack, larger ones on the heap for the time of one match. Threads: the request's fiber.
 */
#include "policy.h"

#include <string.h>

#define TOKENS_ON_STACK 1024
#define ANY_RUN 0x100
#define ANY_ONE 0x200

static inline unsigned char fold(unsigned char c)
{
    return (unsigned char)(c >= 'A' && c <= 'Z' ? c + ('a' - 'A') : c);
}

bool policy_wild(tarn_str p, tarn_str t, bool fold_case)
{
    size_t i = 0;
    size_t k = 0;
    size_t star = SIZE_MAX; /* where the last '*' stands in p */
    size_t back = 0;        /* where its run ends in t */
    while (k < t.n) {
        unsigned char a = i < p.n ? (unsigned char)p.p[i] : 0;
        unsigned char b = (unsigned char)t.p[k];
        if (i < p.n && a == '*') {
            star = i++;
            back = k;
        } else if (i < p.n && (a == '?' || a == b || (fold_case && fold(a) == fold(b)))) {
            i++;
            k++;
        } else if (star != SIZE_MAX) {
            i = star + 1;
            k = ++back;
        } else {
            return false;
        }
    }
    while (i < p.n && p.p[i] == '*') {
        i++;
    }
    return i == p.n;
}

static bool match_tokens(const uint16_t *p, size_t p_n, tarn_str t, bool fold_case)
{
    size_t i = 0;
    size_t k = 0;
    size_t star = SIZE_MAX;
    size_t back = 0;
    while (k < t.n) {
        unsigned char b = (unsigned char)t.p[k];
        if (i < p_n && p[i] == ANY_RUN) {
            star = i++;
            back = k;
        } else if (i < p_n && (p[i] == ANY_ONE || p[i] == b || (fold_case && p[i] < ANY_RUN && fold((unsigned char)p[i]) == fold(b)))) {
            i++;
            k++;
        } else if (star != SIZE_MAX) {
            i = star + 1;
            k = ++back;
        } else {
            return false;
        }
    }
    while (i < p_n && p[i] == ANY_RUN) {
        i++;
    }
    return i == p_n;
}

/* ------------------------------------------------------------------ values of keys */
/* What the engine knows by itself: who asks, and when. A value in the request goes before. */
static tarn_str derived(policy_run *run, tarn_str key)
{
    const tarn_identity *id = run->r->identity;
    tarn_sb b;
    if (tarn_str_ieqc(key, "aws:currenttime")) {
        tarn_sb_init_fixed(&b, run->mem[0], sizeof run->mem[0]);
        tarn_sb_iso8601_s(&b, run->now_ms);
        return tarn_sb_view(&b);
    }
    if (tarn_str_ieqc(key, "aws:epochtime")) {
        tarn_sb_init_fixed(&b, run->mem[1], sizeof run->mem[1]);
        tarn_sb_i64(&b, run->now_ms / AUTH_MS_PER_S);
        return tarn_sb_view(&b);
    }
    if (tarn_str_ieqc(key, "aws:principaltype")) {
        return id->anonymous ? TARN_STR("Anonymous") : id->root ? TARN_STR("Account") : TARN_STR("User");
    }
    if (id->anonymous) {
        return TARN_STR_NULL;
    }
    if (tarn_str_ieqc(key, "aws:userid")) {
        return id->access_key;
    }
    if (tarn_str_ieqc(key, "aws:username") && !id->root) {
        return id->name;
    }
    return TARN_STR_NULL;
}

tarn_str policy_key_value(policy_run *run, tarn_str key, size_t i)
{
    for (size_t k = 0; k < run->r->conditions_n; k++) {
        if (policy_key_eq(run->r->conditions[k].name, key) && i-- == 0) {
            return run->r->conditions[k].value;
        }
    }
    return derived(run, key);
}

size_t policy_key_values(policy_run *run, tarn_str key, tarn_str *first)
{
    size_t n = 0;
    *first = TARN_STR_NULL;
    for (size_t k = 0; k < run->r->conditions_n; k++) {
        if (policy_key_eq(run->r->conditions[k].name, key) && n++ == 0) {
            *first = run->r->conditions[k].value;
        }
    }
    if (n == 0) {
        *first = derived(run, key);
        n = first->p ? 1 : 0;
    }
    return n;
}

/* ------------------------------------------------------------------ variables */
typedef struct tokens {
    uint16_t *v;
    size_t n, cap;
    uint16_t stack[TOKENS_ON_STACK];
} tokens;

static bool push(policy_run *run, tokens *t, uint16_t x)
{
    if (t->n == t->cap) {
        uint16_t *grown = tarn_malloc(2 * t->cap * sizeof *grown);
        if (!grown) {
            run->broken = true;
            return false;
        }
        memcpy(grown, t->v, t->n * sizeof *grown);
        if (t->v != t->stack) {
            tarn_free(t->v);
        }
        t->v = grown;
        t->cap *= 2;
    }
    t->v[t->n++] = x;
    return true;
}

static bool push_literal(policy_run *run, tokens *t, tarn_str s)
{
    for (size_t i = 0; i < s.n; i++) {
        if (!push(run, t, (unsigned char)s.p[i])) {
            return false;
        }
    }
    return true;
}

/* "key" or "key, 'default'". */
static bool push_variable(policy_run *run, tokens *t, tarn_str inner)
{
    tarn_str key;
    tarn_str rest;
    tarn_str value;
    bool has_default = tarn_str_split(inner, ',', &key, &rest);
    size_t n = policy_key_values(run, tarn_str_trim(key), &value);
    if (n == 1) {
        return push_literal(run, t, value);
    }
    rest = tarn_str_trim(rest);
    if (n > 1 || !has_default || rest.n < 2 || rest.p[0] != '\'' || rest.p[rest.n - 1] != '\'') {
        return false;
    }
    return push_literal(run, t, tarn_str_sub(rest, 1, rest.n - 2));
}

static uint16_t token_of(unsigned char c, bool wild)
{
    if (wild && c == '*') {
        return ANY_RUN;
    }
    return wild && c == '?' ? ANY_ONE : c;
}

/* False: a variable has no value (or memory ran out). */
static bool expand(policy_run *run, tokens *t, tarn_str p, bool wild)
{
    for (size_t i = 0; i < p.n;) {
        bool var = p.n - i > 2 && p.p[i] == '$' && p.p[i + 1] == '{';
        ptrdiff_t end = var ? tarn_str_chr(tarn_str_sub(p, i, SIZE_MAX), '}') : -1;
        if (end < 0) {
            if (!push(run, t, token_of((unsigned char)p.p[i++], wild))) {
                return false;
            }
            continue;
        }
        tarn_str inner = tarn_str_sub(p, i + 2, (size_t)end - 2);
        bool escape = inner.n == 1 && (inner.p[0] == '*' || inner.p[0] == '?' || inner.p[0] == '$');
        if (escape ? !push_literal(run, t, inner) : !push_variable(run, t, inner)) {
            return false;
        }
        i += (size_t)end + 1;
    }
    return true;
}

static bool match_vars(policy_run *run, tarn_str pattern, tarn_str text, bool wild, bool fold_case)
{
    tokens t;
    t.v = t.stack;
    t.n = 0;
    t.cap = TOKENS_ON_STACK;
    bool ok = expand(run, &t, pattern, wild) && match_tokens(t.v, t.n, text, fold_case);
    if (t.v != t.stack) {
        tarn_free(t.v);
    }
    return ok;
}

static bool has_variables(const policy_run *run, tarn_str pattern)
{
    return run->variables && tarn_str_find(pattern, TARN_STR("${")) >= 0;
}

bool policy_wild_vars(policy_run *run, tarn_str pattern, tarn_str text)
{
    return has_variables(run, pattern) ? match_vars(run, pattern, text, true, false) : policy_wild(pattern, text, false);
}

bool policy_equals_vars(policy_run *run, tarn_str pattern, tarn_str text, bool fold_case)
{
    if (has_variables(run, pattern)) {
        return match_vars(run, pattern, text, false, fold_case);
    }
    return fold_case ? tarn_str_ieq(pattern, text) : tarn_str_eq(pattern, text);
}

#define ARN_PARTS 6

/* The first five parts end at a ':', one inside ${…} does not count. */
static bool arn_part(tarn_str *rest, bool last, tarn_str *part)
{
    size_t i = 0;
    bool in_var = false;
    while (!last && i < rest->n && (in_var || rest->p[i] != ':')) {
        if (rest->p[i] == '$' && i + 1 < rest->n && rest->p[i + 1] == '{') {
            in_var = true;
        } else if (rest->p[i] == '}') {
            in_var = false;
        }
        i++;
    }
    if (last) {
        *part = *rest;
        return true;
    }
    *part = tarn_str_sub(*rest, 0, i);
    bool more = i < rest->n;
    *rest = tarn_str_sub(*rest, i + (more ? 1 : 0), SIZE_MAX);
    return more;
}

bool policy_arn_vars(policy_run *run, tarn_str pattern, tarn_str text)
{
    for (size_t i = 0; i < ARN_PARTS; i++) {
        bool last = i == ARN_PARTS - 1;
        tarn_str p;
        tarn_str t;
        if (!arn_part(&pattern, last, &p) || !arn_part(&text, last, &t) || !policy_wild_vars(run, p, t)) {
            return false;
        }
    }
    return true;
}
