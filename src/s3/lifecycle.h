/* SPDX-License-Identifier: Apache-2.0 */
/* Lifecycle rules: from XML, to XML, and what they say of a version. Rules live in an arena. */
#ifndef TARN_S3_LIFECYCLE_H
#define TARN_S3_LIFECYCLE_H

#include "s3_internal.h"

#define LC_RULES_MAX 1000
#define LC_ID_CHARS_MAX 255
#define LC_TAGS_MAX 10

typedef struct lc_rule {
    tarn_str id;
    bool enabled;
    /* filter */
    bool legacy_prefix; /* <Prefix> in the rule itself */
    bool has_filter, has_and;
    bool has_prefix;
    tarn_str prefix;
    tarn_pair tags[LC_TAGS_MAX];
    size_t tags_n;
    bool has_greater, has_less;
    uint64_t greater_bytes, less_bytes;
    /* actions */
    uint64_t days;       /* expiration of current versions; 0: none */
    int64_t date_ms;     /* 0: none */
    bool expired_marker; /* remove delete markers that stand alone */
    uint64_t noncurrent_days;
    uint64_t newer_noncurrent;
    bool has_noncurrent;
    uint64_t abort_days; /* unfinished uploads; 0: none */
} lc_rule;

/* Reads and validates <LifecycleConfiguration>; missing ids are made. c may be NULL (no messages). */
tarn_err lc_parse(s3_ctx *c, const s3_node *root, tarn_arena *a, lc_rule **rules, size_t *n);
void lc_write(s3_xml *x, const lc_rule *rules, size_t n);
/* Does the rule's filter take this version in? */
bool lc_matches(const lc_rule *r, tarn_str key, uint64_t size, const tarn_pair *tags, size_t tags_n);
/* When a version of that time is due after `days`: the next midnight behind them for real days. */
int64_t lc_due_ms(int64_t from_ms, uint64_t days, uint64_t day_s);
/* The rule that expires a current version first, and when; NULL when none does. */
const lc_rule *lc_expiration(const lc_rule *rules, size_t n, const tarn_version_row *row, const tarn_pair *tags, size_t tags_n,
                             uint64_t day_s, int64_t *when_ms);

#endif
