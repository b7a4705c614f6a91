/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decisions (identity.md §1): what one document says about a request, and what all of them together mean.
 *
 * Invariants: (1) an explicit deny anywhere wins; (2) whatever can't be evaluated is denied; (3) nothing but the caller's
 * condition list, the identity and the clock is looked at.
 * Memory: none of its own. Threads: any; a request's evaluation runs on its fiber.
 */
#include "policy.h"

#include <string.h>

/* What a document says, more finely than a tarn_decision. */
typedef struct verdict {
    bool deny;
    bool allow;         /* grants by itself */
    bool allow_account; /* allows the whole account: its users need an allow of their own too */
    bool allow_named;   /* the allow names this user */
} verdict;

typedef enum principal_hit { HIT_NONE, HIT_ACCOUNT, HIT_ANY, HIT_NAMED } principal_hit;

/* The part of an ARN behind its n-th ':'. */
static tarn_str arn_from(tarn_str arn, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        tarn_str head;
        if (!tarn_str_split(arn, ':', &head, &arn)) {
            return TARN_STR_NULL;
        }
    }
    return arn;
}

static tarn_str arn_account(tarn_str arn)
{
    tarn_str account;
    tarn_str rest = arn_from(arn, 4);
    tarn_str_split(rest, ':', &account, &rest);
    return account;
}

static bool accounts_agree(tarn_str a, tarn_str b)
{
    return a.n == 0 || b.n == 0 || tarn_str_eq(a, b);
}

static bool is_user_arn_of(policy_run *run, tarn_str arn)
{
    tarn_str mine = policy_key_value(run, TARN_STR("aws:principalarn"), 0);
    tarn_str resource = arn_from(arn, 5);
    if (mine.n > 0) {
        return tarn_str_eq(arn_from(mine, 5), resource) && accounts_agree(arn_account(arn), arn_account(mine));
    }
    if (!tarn_str_starts(resource, "user/")) {
        return false;
    }
    ptrdiff_t slash = tarn_str_rchr(resource, '/');
    tarn_str name = tarn_str_sub(resource, (size_t)slash + 1, SIZE_MAX);
    return name.n > 0 && (tarn_str_eq(name, run->r->identity->name) || tarn_str_eq(name, run->r->identity->access_key));
}

static principal_hit principal_matches(policy_run *run, const policy_principal *p)
{
    const tarn_identity *id = run->r->identity;
    if (p->kind == POLICY_PRINCIPAL_ANY) {
        return HIT_ANY;
    }
    if (id->anonymous) {
        return HIT_NONE;
    }
    switch (p->kind) {
    case POLICY_PRINCIPAL_ACCOUNT:
        return accounts_agree(p->text, policy_key_value(run, TARN_STR("aws:principalaccount"), 0)) ? HIT_ACCOUNT : HIT_NONE;
    case POLICY_PRINCIPAL_ARN:
        return is_user_arn_of(run, p->text) ? HIT_NAMED : HIT_NONE;
    case POLICY_PRINCIPAL_NAME:
        return tarn_str_eq(p->text, id->access_key) || tarn_str_eq(p->text, id->canonical_id) ? HIT_NAMED : HIT_NONE;
    case POLICY_PRINCIPAL_CANONICAL:
        return tarn_str_eq(p->text, id->canonical_id) ? HIT_NAMED : HIT_NONE;
    case POLICY_PRINCIPAL_ANY:
    case POLICY_PRINCIPAL_OTHER:
        break;
    }
    return HIT_NONE;
}

static principal_hit principals_match(policy_run *run, const policy_stmt *s)
{
    principal_hit best = HIT_NONE;
    for (size_t i = 0; i < s->principals_n; i++) {
        principal_hit hit = principal_matches(run, &s->principals[i]);
        /* An account spares only its root from a NotPrincipal: users must be named. */
        if (s->not_principal && hit == HIT_ACCOUNT && !run->r->identity->root) {
            hit = HIT_NONE;
        }
        best = hit > best ? hit : best;
    }
    if (s->not_principal) {
        return best == HIT_NONE ? HIT_ANY : HIT_NONE;
    }
    return best;
}

static bool action_matches(const policy_stmt *s, tarn_str action)
{
    for (size_t i = 0; i < s->actions_n; i++) {
        if (policy_wild(s->actions[i], action, true)) {
            return !s->not_action;
        }
    }
    return s->not_action;
}

static bool resource_matches(policy_run *run, const policy_stmt *s)
{
    for (size_t i = 0; i < s->resources_n; i++) {
        if (policy_wild_vars(run, s->resources[i], run->r->resource)) {
            return !s->not_resource;
        }
    }
    return s->not_resource;
}

static bool conditions_hold(policy_run *run, const policy_stmt *s)
{
    for (size_t i = 0; i < s->conds_n; i++) {
        if (!policy_cond_holds(run, &s->conds[i])) {
            return false;
        }
    }
    return true;
}

static verdict look(const tarn_policy *p, const tarn_policy_request *r)
{
    verdict v = {.deny = false};
    policy_run run = {.r = r, .now_ms = tarn_now_ms()};
    if (!p) {
        return v;
    }
    run.variables = p->variables;
    tarn_str action = tarn_str_of(r->action);
    for (size_t i = 0; i < p->stmts_n && !v.deny; i++) {
        const policy_stmt *s = &p->stmts[i];
        if (!action_matches(s, action) || !resource_matches(&run, s)) {
            continue;
        }
        principal_hit hit = p->kind == TARN_POLICY_BUCKET ? principals_match(&run, s) : HIT_ANY;
        if (hit == HIT_NONE || !conditions_hold(&run, s)) {
            continue;
        }
        if (s->deny) {
            v.deny = true;
        } else if (hit == HIT_ACCOUNT) {
            v.allow_account = true;
        } else {
            v.allow = true;
            v.allow_named = v.allow_named || hit == HIT_NAMED;
        }
    }
    v.deny = v.deny || run.broken;
    return v;
}

tarn_decision tarn_policy_eval(const tarn_policy *p, const tarn_policy_request *r)
{
    verdict v = look(p, r);
    if (v.deny) {
        return TARN_DECISION_DENY;
    }
    return v.allow || (v.allow_account && r->identity->root) ? TARN_DECISION_ALLOW : TARN_DECISION_NONE;
}

/* The three that stay with root and owner whatever the bucket's policy says, so that they can't lock themselves out. */
static bool is_about_policy(const char *action)
{
    tarn_str a = tarn_str_of(action);
    return tarn_str_eqc(a, "s3:GetBucketPolicy") || tarn_str_eqc(a, "s3:PutBucketPolicy") || tarn_str_eqc(a, "s3:DeleteBucketPolicy");
}

typedef struct gathered {
    bool deny;
    bool identity_allow;
    verdict bucket;
    bool boundary_allow;
    bool session_allow; /* all of them */
} gathered;

static gathered gather(const auth_documents *docs, const tarn_policy_request *r)
{
    gathered g = {.boundary_allow = true, .session_allow = true};
    for (size_t i = 0; i < docs->identity_n; i++) {
        verdict v = look(docs->identity[i], r);
        g.deny = g.deny || v.deny;
        g.identity_allow = g.identity_allow || v.allow;
    }
    g.bucket = look(docs->bucket, r);
    bool mine = r->identity->root || r->owner;
    g.deny = g.deny || (g.bucket.deny && !(mine && is_about_policy(r->action)));
    if (docs->boundary) {
        verdict v = look(docs->boundary, r);
        g.deny = g.deny || v.deny;
        g.boundary_allow = v.allow;
    }
    for (size_t i = 0; i < docs->session_n; i++) {
        verdict v = look(docs->session[i], r);
        g.deny = g.deny || v.deny;
        g.session_allow = g.session_allow && v.allow;
    }
    return g;
}

bool auth_decide(const auth_documents *docs, const tarn_policy_request *r)
{
    gathered g = gather(docs, r);
    if (g.deny) {
        return false;
    }
    if (r->identity->anonymous) {
        return g.bucket.allow;
    }
    if (docs->cross_account) {
        return g.identity_allow && (g.bucket.allow || g.bucket.allow_account) && g.boundary_allow && g.session_allow;
    }
    bool granted = r->identity->root || r->owner || g.identity_allow || g.bucket.allow;
    bool bounded = g.boundary_allow || g.bucket.allow_named;
    return granted && bounded && g.session_allow;
}

tarn_err tarn_authorise(const tarn_policy *bucket_policy, const tarn_policy_request *r)
{
    const tarn_policy *own = r->identity->policy;
    auth_documents docs = {.identity = &own, .identity_n = own ? 1 : 0, .bucket = bucket_policy};
    if (auth_decide(&docs, r)) {
        return TARN_OK;
    }
    /* A user without a policy of his own may make buckets and see the list; a deny of the bucket's policy holds here too. */
    tarn_str a = tarn_str_of(r->action);
    bool free = tarn_str_eqc(a, "s3:CreateBucket") || tarn_str_eqc(a, "s3:ListAllMyBuckets");
    if (free && !r->identity->anonymous && !own && tarn_policy_eval(bucket_policy, r) != TARN_DECISION_DENY) {
        return TARN_OK;
    }
    return TARN_E_ACCESS_DENIED;
}

/* ------------------------------------------------------------------ GetBucketPolicyStatus */
#define WIDE_NET_BITS_MAX 8 /* a net as wide as that (IPv4: /8) or wider is the public */

static bool wide_net(tarn_str net)
{
    uint8_t ip[16];
    unsigned bits;
    bool v4;
    return !policy_ip_parse(net, ip, &bits, &v4) || bits < WIDE_NET_BITS_MAX;
}

static bool is_narrowing_key(tarn_str key)
{
    static const char *const KEYS[] = {
        "aws:SourceArn",
        "aws:SourceVpc",
        "aws:SourceVpce",
        "aws:SourceOwner",
        "aws:SourceAccount",
        "aws:PrincipalOrgID",
        "aws:PrincipalOrgPaths",
        "aws:PrincipalArn",
        "aws:PrincipalAccount",
        "aws:userid",
        "aws:username",
        "s3:DataAccessPointArn",
        "s3:DataAccessPointAccount",
        "s3:x-amz-server-side-encryption-aws-kms-key-id",
    };
    for (size_t i = 0; i < TARN_ARRAY_LEN(KEYS); i++) {
        if (tarn_str_ieqc(key, KEYS[i])) {
            return true;
        }
    }
    return false;
}

static bool narrows(const policy_cond *c)
{
    bool ip = c->test == POLICY_IP && tarn_str_ieqc(c->key, "aws:SourceIp");
    bool fixed = (c->test == POLICY_STRING_EQUALS || c->test == POLICY_STRING_EQUALS_FOLDED || c->test == POLICY_STRING_LIKE ||
                  c->test == POLICY_ARN) &&
                 is_narrowing_key(c->key);
    if (c->negated || c->if_exists || c->set == POLICY_SET_ALL || (!ip && !fixed)) {
        return false;
    }
    for (size_t i = 0; i < c->values_n; i++) {
        if (ip ? wide_net(c->values[i]) : tarn_str_chr(c->values[i], '*') >= 0 || tarn_str_find(c->values[i], TARN_STR("${")) >= 0) {
            return false;
        }
    }
    return true;
}

bool tarn_policy_is_public(const tarn_policy *p)
{
    for (size_t i = 0; p && i < p->stmts_n; i++) {
        const policy_stmt *s = &p->stmts[i];
        bool everybody = s->not_principal;
        bool narrow = false;
        for (size_t k = 0; k < s->principals_n; k++) {
            everybody = everybody || s->principals[k].kind == POLICY_PRINCIPAL_ANY;
        }
        for (size_t k = 0; k < s->conds_n; k++) {
            narrow = narrow || narrows(&s->conds[k]);
        }
        if (!s->deny && everybody && !narrow) {
            return true;
        }
    }
    return false;
}
