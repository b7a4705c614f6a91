/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Policy documents: bucket policies, policies of users, POST policies. What parses is evaluated; a document that fails to
 * parse says why.
 */
#include "tarn/auth.h"

#include <string.h>

#define ARENA_BYTES_MAX (1u << 20)
#define NOW_MS INT64_C(1767225600000)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static const tarn_identity WHO[] = {{.root = true, .access_key = {"root", 4}, .name = {"root", 4}, .canonical_id = {"c0", 2}},
                                    {.access_key = {"alice", 5}, .name = {"alice", 5}, .canonical_id = {"c1", 2}},
                                    {.anonymous = true}};
static const tarn_pair CONDITIONS[] = {{{"s3:prefix", 9}, {"a/", 2}},
                                       {{"s3:max-keys", 11}, {"10", 2}},
                                       {{"aws:sourceip", 12}, {"10.1.2.3", 8}},
                                       {{"aws:securetransport", 19}, {"false", 5}},
                                       {{"s3:requestobjecttagkeys", 23}, {"a", 1}},
                                       {{"s3:requestobjecttagkeys", 23}, {"b", 1}}};

static void evaluate(const tarn_policy *p, bool bucket)
{
    static const char *const actions[] = {"s3:GetObject", "s3:ListBucket", "s3:PutBucketPolicy"};
    for (size_t i = 0; i < TARN_ARRAY_LEN(WHO); i++) {
        for (size_t k = 0; k < TARN_ARRAY_LEN(actions); k++) {
            tarn_policy_request r = {.action = actions[k],
                                     .resource = TARN_STR("arn:aws:s3:::bkt/a/${x}*?"),
                                     .identity = &WHO[i],
                                     .conditions = CONDITIONS,
                                     .conditions_n = TARN_ARRAY_LEN(CONDITIONS)};
            tarn_decision d = tarn_policy_eval(p, &r);
            if (bucket) {
                tarn_err e = tarn_authorise(p, &r);
                /* A deny holds for everybody; nobody gets in without an allow. */
                TARN_ASSERT(d != TARN_DECISION_DENY || e != TARN_OK || k == 2);
                TARN_ASSERT(!WHO[i].anonymous || (d == TARN_DECISION_ALLOW) == (e == TARN_OK));
            }
        }
    }
    (void)tarn_policy_is_public(p);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static const tarn_pair fields[] = {{{"key", 3}, {"user/x", 6}}, {{"acl", 3}, {"private", 7}}};
    tarn_str json = {(const char *)data, n};
    for (int bucket = 0; bucket < 2; bucket++) {
        tarn_arena *arena = tarn_arena_new(ARENA_BYTES_MAX);
        tarn_policy *p = NULL;
        tarn_err_detail d = {.fields_n = 0};
        TARN_ASSERT(arena != NULL);
        tarn_err e = tarn_policy_parse(bucket ? TARN_POLICY_BUCKET : TARN_POLICY_IDENTITY, json, TARN_STR("bkt"), &p, arena, &d);
        TARN_ASSERT(e == TARN_OK ? p != NULL : p == NULL && (e == TARN_E_NO_MEMORY || d.message.n > 0));
        if (p) {
            evaluate(p, bucket != 0);
            tarn_policy_unref(p);
        }
        tarn_arena_free(arena);
    }
    tarn_arena *arena = tarn_arena_new(ARENA_BYTES_MAX);
    tarn_err_detail d = {.fields_n = 0};
    uint64_t min;
    uint64_t max;
    TARN_ASSERT(arena != NULL);
    (void)tarn_post_policy_check(json, fields, TARN_ARRAY_LEN(fields), TARN_STR("bkt"), 10, NOW_MS, arena, &d);
    (void)tarn_post_policy_range(json, &min, &max);
    tarn_arena_free(arena);
    return 0;
}
