/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the policy language of S3 knows: actions and what they act on, condition operators, condition keys.
 * Memory: constant. Threads: any.
 */
#include "policy.h"

#include <string.h>

#define B POLICY_TARGET_BUCKET
#define O POLICY_TARGET_OBJECT
#define S POLICY_TARGET_SERVICE

typedef struct action_row {
    const char *name;
    unsigned targets;
} action_row;

static const action_row ACTIONS[] = {
    {"s3:AbortMultipartUpload", O},
    {"s3:BypassGovernanceRetention", O},
    {"s3:CreateBucket", B},
    {"s3:DeleteBucket", B},
    {"s3:DeleteBucketPolicy", B},
    {"s3:DeleteBucketWebsite", B},
    {"s3:DeleteObject", O},
    {"s3:DeleteObjectTagging", O},
    {"s3:DeleteObjectVersion", O},
    {"s3:DeleteObjectVersionTagging", O},
    {"s3:ForceDeleteBucket", B},
    {"s3:GetAccelerateConfiguration", B},
    {"s3:GetAnalyticsConfiguration", B},
    {"s3:GetBucketAcl", B},
    {"s3:GetBucketCORS", B},
    {"s3:GetBucketLocation", B},
    {"s3:GetBucketLogging", B},
    {"s3:GetBucketNotification", B},
    {"s3:GetBucketObjectLockConfiguration", B},
    {"s3:GetBucketOwnershipControls", B},
    {"s3:GetBucketPolicy", B},
    {"s3:GetBucketPolicyStatus", B},
    {"s3:GetBucketPublicAccessBlock", B},
    {"s3:GetBucketRequestPayment", B},
    {"s3:GetBucketTagging", B},
    {"s3:GetBucketVersioning", B},
    {"s3:GetBucketWebsite", B},
    {"s3:GetEncryptionConfiguration", B},
    {"s3:GetIntelligentTieringConfiguration", B},
    {"s3:GetInventoryConfiguration", B},
    {"s3:GetLifecycleConfiguration", B},
    {"s3:GetMetricsConfiguration", B},
    {"s3:GetObject", O},
    {"s3:GetObjectAcl", O},
    {"s3:GetObjectAttributes", O},
    {"s3:GetObjectLegalHold", O},
    {"s3:GetObjectRetention", O},
    {"s3:GetObjectTagging", O},
    {"s3:GetObjectTorrent", O},
    {"s3:GetObjectVersion", O},
    {"s3:GetObjectVersionAcl", O},
    {"s3:GetObjectVersionAttributes", O},
    {"s3:GetObjectVersionForReplication", O},
    {"s3:GetObjectVersionTagging", O},
    {"s3:GetObjectVersionTorrent", O},
    {"s3:GetReplicationConfiguration", B},
    {"s3:HeadBucket", B},
    {"s3:ListAllMyBuckets", S},
    {"s3:ListBucket", B},
    {"s3:ListBucketMultipartUploads", B},
    {"s3:ListBucketVersions", B},
    {"s3:ListenBucketNotification", B},
    {"s3:ListenNotification", S},
    {"s3:ListMultipartUploadParts", O},
    {"s3:ObjectOwnerOverrideToBucketOwner", O},
    {"s3:PutAccelerateConfiguration", B},
    {"s3:PutAnalyticsConfiguration", B},
    {"s3:PutBucketAcl", B},
    {"s3:PutBucketCORS", B},
    {"s3:PutBucketLogging", B},
    {"s3:PutBucketNotification", B},
    {"s3:PutBucketObjectLockConfiguration", B},
    {"s3:PutBucketOwnershipControls", B},
    {"s3:PutBucketPolicy", B},
    {"s3:PutBucketPublicAccessBlock", B},
    {"s3:PutBucketRequestPayment", B},
    {"s3:PutBucketTagging", B},
    {"s3:PutBucketVersioning", B},
    {"s3:PutBucketWebsite", B},
    {"s3:PutEncryptionConfiguration", B},
    {"s3:PutIntelligentTieringConfiguration", B},
    {"s3:PutInventoryConfiguration", B},
    {"s3:PutLifecycleConfiguration", B},
    {"s3:PutMetricsConfiguration", B},
    {"s3:PutObject", O},
    {"s3:PutObjectAcl", O},
    {"s3:PutObjectFanOut", O},
    {"s3:PutObjectLegalHold", O},
    {"s3:PutObjectRetention", O},
    {"s3:PutObjectTagging", O},
    {"s3:PutObjectVersionAcl", O},
    {"s3:PutObjectVersionTagging", O},
    {"s3:PutReplicationConfiguration", B},
    {"s3:ReplicateDelete", O},
    {"s3:ReplicateObject", O},
    {"s3:ReplicateTags", O},
    {"s3:ResetBucketReplicationState", B},
    {"s3:RestoreObject", O},
    {"s3:SelectObjectContent", O},
    {"s3:UpdateObjectEncryption", O},
};

unsigned policy_action_targets(tarn_str pattern)
{
    unsigned targets = 0;
    for (size_t i = 0; i < TARN_ARRAY_LEN(ACTIONS); i++) {
        if (policy_wild(pattern, tarn_str_of(ACTIONS[i].name), true)) {
            targets |= ACTIONS[i].targets;
        }
    }
    return targets;
}

typedef struct operator_row {
    const char *name;
    policy_test test;
    bool negated;
} operator_row;

static const operator_row OPERATORS[] = {
    {"StringEquals", POLICY_STRING_EQUALS, false},
    {"StringNotEquals", POLICY_STRING_EQUALS, true},
    {"StringEqualsIgnoreCase", POLICY_STRING_EQUALS_FOLDED, false},
    {"StringNotEqualsIgnoreCase", POLICY_STRING_EQUALS_FOLDED, true},
    {"StringLike", POLICY_STRING_LIKE, false},
    {"StringNotLike", POLICY_STRING_LIKE, true},
    {"NumericEquals", POLICY_NUMERIC_EQUALS, false},
    {"NumericNotEquals", POLICY_NUMERIC_EQUALS, true},
    {"NumericLessThan", POLICY_NUMERIC_LESS, false},
    {"NumericLessThanEquals", POLICY_NUMERIC_LESS_EQUALS, false},
    {"NumericGreaterThan", POLICY_NUMERIC_GREATER, false},
    {"NumericGreaterThanEquals", POLICY_NUMERIC_GREATER_EQUALS, false},
    {"DateEquals", POLICY_DATE_EQUALS, false},
    {"DateNotEquals", POLICY_DATE_EQUALS, true},
    {"DateLessThan", POLICY_DATE_LESS, false},
    {"DateLessThanEquals", POLICY_DATE_LESS_EQUALS, false},
    {"DateGreaterThan", POLICY_DATE_GREATER, false},
    {"DateGreaterThanEquals", POLICY_DATE_GREATER_EQUALS, false},
    {"Bool", POLICY_BOOL, false},
    {"BinaryEquals", POLICY_BINARY, false},
    {"IpAddress", POLICY_IP, false},
    {"NotIpAddress", POLICY_IP, true},
    {"ArnEquals", POLICY_ARN, false},
    {"ArnLike", POLICY_ARN, false},
    {"ArnNotEquals", POLICY_ARN, true},
    {"ArnNotLike", POLICY_ARN, true},
    {"Null", POLICY_NULL, false},
};

bool policy_operator(tarn_str name, policy_cond *out)
{
    static const char ALL[] = "ForAllValues:";
    static const char ANY[] = "ForAnyValue:";
    static const char EXISTS[] = "IfExists";
    tarn_str base = name;
    out->set = POLICY_SET_NONE;
    if (tarn_str_istarts(base, ALL)) {
        out->set = POLICY_SET_ALL;
        base = tarn_str_sub(base, sizeof ALL - 1, SIZE_MAX);
    } else if (tarn_str_istarts(base, ANY)) {
        out->set = POLICY_SET_ANY;
        base = tarn_str_sub(base, sizeof ANY - 1, SIZE_MAX);
    }
    out->if_exists = base.n > sizeof EXISTS - 1 && tarn_str_ieqc(tarn_str_sub(base, base.n - (sizeof EXISTS - 1), SIZE_MAX), EXISTS);
    if (out->if_exists) {
        base.n -= sizeof EXISTS - 1;
    }
    for (size_t i = 0; i < TARN_ARRAY_LEN(OPERATORS); i++) {
        if (tarn_str_ieqc(base, OPERATORS[i].name)) {
            out->test = OPERATORS[i].test;
            out->negated = OPERATORS[i].negated;
            return out->test != POLICY_NULL || (!out->if_exists && out->set == POLICY_SET_NONE);
        }
    }
    return false;
}

/* A name that ends in '/' stands for all keys behind it. */
static const char *const S3_KEYS[] = {
    "s3:AccessGrantsInstanceArn",
    "s3:AccessPointNetworkOrigin",
    "s3:DataAccessPointAccount",
    "s3:DataAccessPointArn",
    "s3:ExistingJobOperation",
    "s3:ExistingJobPriority",
    "s3:ExistingObjectTag/",
    "s3:InventoryAccessibleOptionalFields",
    "s3:JobSuspendedCause",
    "s3:LocationConstraint",
    "s3:ObjectCreationOperation",
    "s3:RequestJobOperation",
    "s3:RequestJobPriority",
    "s3:RequestObjectTag/",
    "s3:RequestObjectTagKeys",
    "s3:ResourceAccount",
    "s3:TlsVersion",
    "s3:VersionId",
    "s3:authType",
    "s3:delimiter",
    "s3:if-match",
    "s3:if-none-match",
    "s3:max-keys",
    "s3:object-lock-legal-hold",
    "s3:object-lock-mode",
    "s3:object-lock-remaining-retention-days",
    "s3:object-lock-retain-until-date",
    "s3:prefix",
    "s3:signatureAge",
    "s3:signatureversion",
    "s3:x-amz-acl",
    "s3:x-amz-content-sha256",
    "s3:x-amz-copy-source",
    "s3:x-amz-grant-full-control",
    "s3:x-amz-grant-read",
    "s3:x-amz-grant-read-acp",
    "s3:x-amz-grant-write",
    "s3:x-amz-grant-write-acp",
    "s3:x-amz-metadata-directive",
    "s3:x-amz-object-ownership",
    "s3:x-amz-server-side-encryption",
    "s3:x-amz-server-side-encryption-aws-kms-key-id",
    "s3:x-amz-server-side-encryption-customer-algorithm",
    "s3:x-amz-storage-class",
    "s3:x-amz-website-redirect-location",
};
/* Whole families that other services or identity providers fill. */
static const char *const FAMILIES[] = {"aws:", "jwt:", "ldap:", "sts:", "svc:", "saml:", "kms:", "s3tables:"};

bool policy_key_known(tarn_str key)
{
    for (size_t i = 0; i < TARN_ARRAY_LEN(FAMILIES); i++) {
        if (tarn_str_istarts(key, FAMILIES[i]) && key.n > strlen(FAMILIES[i])) {
            return true;
        }
    }
    for (size_t i = 0; i < TARN_ARRAY_LEN(S3_KEYS); i++) {
        size_t n = strlen(S3_KEYS[i]);
        bool family = S3_KEYS[i][n - 1] == '/';
        if (family ? key.n > n && tarn_str_istarts(key, S3_KEYS[i]) : tarn_str_ieqc(key, S3_KEYS[i])) {
            return true;
        }
    }
    return false;
}

bool policy_key_eq(tarn_str a, tarn_str b)
{
    ptrdiff_t slash = tarn_str_chr(a, '/');
    if (a.n != b.n) {
        return false;
    }
    if (slash < 0) {
        return tarn_str_ieq(a, b);
    }
    size_t head = (size_t)slash + 1;
    return tarn_str_ieq(tarn_str_sub(a, 0, head), tarn_str_sub(b, 0, head)) &&
           tarn_str_eq(tarn_str_sub(a, head, SIZE_MAX), tarn_str_sub(b, head, SIZE_MAX));
}
