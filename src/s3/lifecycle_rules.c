/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lifecycle configurations: parsing with S3's checks, and writing them back. What tarn does not do (transitions to other
 * storage classes) is refused, so that no rule is stored that would never be carried out.
 */
#include "lifecycle.h"

static tarn_err fail(s3_ctx *c, tarn_err e, const char *message)
{
    return c != NULL ? s3_fail(c, e, message) : e;
}

static tarn_err positive(s3_ctx *c, tarn_str text, uint64_t *out)
{
    int64_t n;
    if (!tarn_str_to_i64(text, &n))
        return TARN_E_MALFORMED_XML;
    if (n <= 0 || n > INT32_MAX)
        return fail(c, TARN_E_INVALID_ARGUMENT, "'Days' for Expiration action must be a positive integer");
    *out = (uint64_t)n;
    return TARN_OK;
}

/* ------------------------------------------------------------------ filter */
static tarn_err add_tag(s3_ctx *c, lc_rule *r, const s3_node *tag)
{
    const s3_node *k = s3_node_child(tag, "Key"), *v = s3_node_child(tag, "Value");
    if (k == NULL || v == NULL || r->tags_n == LC_TAGS_MAX)
        return TARN_E_MALFORMED_XML;
    tarn_pair p = {k->text.p != NULL ? k->text : TARN_STR(""), v->text.p != NULL ? v->text : TARN_STR("")};
    for (size_t i = 0; i < r->tags_n; i++)
        if (tarn_str_eq(r->tags[i].name, p.name))
            return fail(c, TARN_E_INVALID_REQUEST, "Duplicate Tag Keys are not allowed.");
    r->tags[r->tags_n++] = p;
    return TARN_OK;
}

static tarn_err size_bound(tarn_str text, bool *has, uint64_t *out)
{
    if (*has || !tarn_str_to_u64(text, out) || *out > TARN_OBJECT_BYTES_MAX)
        return TARN_E_MALFORMED_XML;
    *has = true;
    return TARN_OK;
}

/* The children of <Filter> or <And>. */
static tarn_err read_filter_items(s3_ctx *c, lc_rule *r, const s3_node *f, size_t *items)
{
    for (const s3_node *k = f->first; k != NULL; k = k->next) {
        tarn_err e = TARN_OK;
        tarn_str text = tarn_str_trim(k->text);
        (*items)++;
        if (tarn_str_eqc(k->name, "Prefix")) {
            if (r->has_prefix)
                return TARN_E_MALFORMED_XML;
            r->has_prefix = true;
            r->prefix = k->text.p != NULL ? k->text : TARN_STR("");
        } else if (tarn_str_eqc(k->name, "Tag")) {
            e = add_tag(c, r, k);
        } else if (tarn_str_eqc(k->name, "ObjectSizeGreaterThan")) {
            e = size_bound(text, &r->has_greater, &r->greater_bytes);
        } else if (tarn_str_eqc(k->name, "ObjectSizeLessThan")) {
            e = size_bound(text, &r->has_less, &r->less_bytes);
        } else if (tarn_str_eqc(k->name, "And") && !r->has_and && tarn_str_eqc(f->name, "Filter")) {
            size_t inner = 0;
            r->has_and = true;
            e = read_filter_items(c, r, k, &inner);
        } else {
            e = TARN_E_MALFORMED_XML;
        }
        if (e != TARN_OK)
            return e;
    }
    return TARN_OK;
}

static tarn_err read_scope(s3_ctx *c, lc_rule *r, const s3_node *rule)
{
    const s3_node *filter = s3_node_child(rule, "Filter"), *prefix = s3_node_child(rule, "Prefix");
    if ((filter != NULL) == (prefix != NULL))
        return TARN_E_MALFORMED_XML;
    if (prefix != NULL) {
        r->legacy_prefix = r->has_prefix = true;
        r->prefix = prefix->text.p != NULL ? prefix->text : TARN_STR("");
        return TARN_OK;
    }
    size_t items = 0;
    r->has_filter = true;
    tarn_err e = read_filter_items(c, r, filter, &items);
    if (e == TARN_OK && items > 1)
        return TARN_E_MALFORMED_XML;
    if (e == TARN_OK && r->has_greater && r->has_less && r->greater_bytes >= r->less_bytes)
        return fail(c, TARN_E_INVALID_REQUEST, "'ObjectSizeLessThan' has to be a value greater than 'ObjectSizeGreaterThan'");
    return e;
}

/* ------------------------------------------------------------------ actions */
static tarn_err read_expiration(s3_ctx *c, lc_rule *r, const s3_node *n)
{
    tarn_str days = s3_node_text(n, "Days"), date = s3_node_text(n, "Date"), marker = s3_node_text(n, "ExpiredObjectDeleteMarker");
    if ((days.p != NULL) + (date.p != NULL) + (marker.p != NULL) != 1)
        return TARN_E_MALFORMED_XML;
    if (days.p != NULL)
        return positive(c, days, &r->days);
    if (date.p != NULL) {
        if (!tarn_parse_iso8601(date, &r->date_ms))
            return TARN_E_MALFORMED_XML;
        if (r->date_ms % 86400000 != 0)
            return fail(c, TARN_E_INVALID_ARGUMENT, "'Date' must be at midnight GMT");
        return TARN_OK;
    }
    if (!tarn_str_ieqc(marker, "true") && !tarn_str_ieqc(marker, "false"))
        return TARN_E_MALFORMED_XML;
    r->expired_marker = tarn_str_ieqc(marker, "true");
    if (r->tags_n > 0)
        return fail(c, TARN_E_INVALID_REQUEST, "Tag-based filter cannot be used for ExpiredObjectDeleteMarker action");
    return TARN_OK;
}

static tarn_err read_noncurrent(s3_ctx *c, lc_rule *r, const s3_node *n)
{
    tarn_str days = s3_node_text(n, "NoncurrentDays"), newer = s3_node_text(n, "NewerNoncurrentVersions");
    r->has_noncurrent = true;
    if (days.p == NULL)
        return TARN_E_MALFORMED_XML;
    tarn_err e = positive(c, days, &r->noncurrent_days);
    if (e == TARN_OK && newer.p != NULL)
        e = positive(c, newer, &r->newer_noncurrent);
    return e;
}

static tarn_err read_actions(s3_ctx *c, lc_rule *r, const s3_node *rule)
{
    size_t actions = 0;
    for (const s3_node *k = rule->first; k != NULL; k = k->next) {
        tarn_err e = TARN_OK;
        if (tarn_str_eqc(k->name, "Expiration"))
            e = read_expiration(c, r, k);
        else if (tarn_str_eqc(k->name, "NoncurrentVersionExpiration"))
            e = read_noncurrent(c, r, k);
        else if (tarn_str_eqc(k->name, "AbortIncompleteMultipartUpload"))
            e = positive(c, s3_node_text(k, "DaysAfterInitiation"), &r->abort_days);
        else if (tarn_str_eqc(k->name, "Transition") || tarn_str_eqc(k->name, "NoncurrentVersionTransition"))
            e = fail(c, TARN_E_NOT_IMPLEMENTED, "Transitions to other storage classes are not implemented.");
        else if (!tarn_str_eqc(k->name, "ID") && !tarn_str_eqc(k->name, "Status") && !tarn_str_eqc(k->name, "Filter") &&
                 !tarn_str_eqc(k->name, "Prefix"))
            e = TARN_E_MALFORMED_XML;
        else
            continue;
        if (e != TARN_OK)
            return e;
        actions++;
    }
    if (actions == 0)
        return fail(c, TARN_E_INVALID_REQUEST, "At least one action needs to be specified in a rule");
    if (r->abort_days > 0 && r->tags_n > 0)
        return fail(c, TARN_E_INVALID_REQUEST, "Tag-based filter cannot be used for AbortIncompleteMultipartUpload action");
    return TARN_OK;
}

/* Each element of a rule is there once: two expirations would be stored as one that says both. */
static bool each_once(const s3_node *rule)
{
    static const char *const names[] = {
        "ID", "Status", "Filter", "Prefix", "Expiration", "NoncurrentVersionExpiration", "AbortIncompleteMultipartUpload"};
    for (size_t i = 0; i < TARN_ARRAY_LEN(names); i++)
        if (s3_node_count(rule, names[i]) > 1)
            return false;
    return true;
}

static tarn_err read_rule(s3_ctx *c, lc_rule *r, const s3_node *rule, tarn_arena *a)
{
    if (!each_once(rule))
        return TARN_E_MALFORMED_XML;
    tarn_str status = s3_node_text(rule, "Status");
    r->id = s3_node_text(rule, "ID");
    if (r->id.n > LC_ID_CHARS_MAX)
        return fail(c, TARN_E_INVALID_ARGUMENT, "ID length should not exceed allowed limit of 255");
    if (r->id.n == 0) {
        char uuid[37];
        tarn_uuid4(uuid);
        r->id = tarn_arena_str(a, tarn_str_of(uuid));
    }
    r->enabled = tarn_str_eqc(status, "Enabled");
    if (!r->enabled && !tarn_str_eqc(status, "Disabled"))
        return TARN_E_MALFORMED_XML;
    tarn_err e = read_scope(c, r, rule);
    return e == TARN_OK ? read_actions(c, r, rule) : e;
}

tarn_err lc_parse(s3_ctx *c, const s3_node *root, tarn_arena *a, lc_rule **rules, size_t *n)
{
    size_t count = s3_node_count(root, "Rule"), i = 0;
    if (count == 0)
        return TARN_E_MALFORMED_XML;
    if (count > LC_RULES_MAX)
        return fail(c, TARN_E_INVALID_REQUEST, "The number of lifecycle rules must not exceed the allowed limit of 1000 rules");
    lc_rule *out = TARN_ARENA_ARRAY(a, lc_rule, count);
    if (out == NULL)
        return TARN_E_NO_MEMORY;
    for (const s3_node *k = root->first; k != NULL; k = k->next) {
        if (!tarn_str_eqc(k->name, "Rule"))
            return TARN_E_MALFORMED_XML;
        tarn_err e = read_rule(c, &out[i], k, a);
        if (e != TARN_OK)
            return e;
        for (size_t j = 0; j < i; j++)
            if (tarn_str_eq(out[j].id, out[i].id))
                return fail(c, TARN_E_INVALID_ARGUMENT, "Rule ID must be unique. Found same ID for more than one rule");
        i++;
    }
    *rules = out;
    *n = count;
    return TARN_OK;
}

/* ------------------------------------------------------------------ writing */
static void write_filter(s3_xml *x, const lc_rule *r)
{
    if (r->legacy_prefix) {
        s3_xml_text(x, "Prefix", r->prefix);
        return;
    }
    s3_xml_open(x, "Filter");
    if (r->has_and)
        s3_xml_open(x, "And");
    if (r->has_prefix)
        s3_xml_text(x, "Prefix", r->prefix);
    for (size_t i = 0; i < r->tags_n; i++) {
        s3_xml_open(x, "Tag");
        s3_xml_text(x, "Key", r->tags[i].name);
        s3_xml_text(x, "Value", r->tags[i].value);
        s3_xml_close(x, "Tag");
    }
    if (r->has_greater)
        s3_xml_u64(x, "ObjectSizeGreaterThan", r->greater_bytes);
    if (r->has_less)
        s3_xml_u64(x, "ObjectSizeLessThan", r->less_bytes);
    if (r->has_and)
        s3_xml_close(x, "And");
    s3_xml_close(x, "Filter");
}

void lc_write(s3_xml *x, const lc_rule *rules, size_t n)
{
    s3_xml_begin(x, "LifecycleConfiguration");
    for (size_t i = 0; i < n; i++) {
        const lc_rule *r = &rules[i];
        s3_xml_open(x, "Rule");
        s3_xml_text(x, "ID", r->id);
        write_filter(x, r);
        s3_xml_textc(x, "Status", r->enabled ? "Enabled" : "Disabled");
        if (r->days > 0 || r->date_ms != 0 || r->expired_marker) {
            s3_xml_open(x, "Expiration");
            if (r->days > 0)
                s3_xml_u64(x, "Days", r->days);
            if (r->date_ms != 0)
                s3_xml_time(x, "Date", r->date_ms);
            if (r->expired_marker)
                s3_xml_bool(x, "ExpiredObjectDeleteMarker", true);
            s3_xml_close(x, "Expiration");
        }
        if (r->has_noncurrent) {
            s3_xml_open(x, "NoncurrentVersionExpiration");
            s3_xml_u64(x, "NoncurrentDays", r->noncurrent_days);
            if (r->newer_noncurrent > 0)
                s3_xml_u64(x, "NewerNoncurrentVersions", r->newer_noncurrent);
            s3_xml_close(x, "NoncurrentVersionExpiration");
        }
        if (r->abort_days > 0) {
            s3_xml_open(x, "AbortIncompleteMultipartUpload");
            s3_xml_u64(x, "DaysAfterInitiation", r->abort_days);
            s3_xml_close(x, "AbortIncompleteMultipartUpload");
        }
        s3_xml_close(x, "Rule");
    }
    s3_xml_close(x, "LifecycleConfiguration");
}

/* ------------------------------------------------------------------ meaning */
bool lc_matches(const lc_rule *r, tarn_str key, uint64_t size, const tarn_pair *tags, size_t tags_n)
{
    if (r->prefix.n > 0 && (key.n < r->prefix.n || !tarn_str_eq(tarn_str_sub(key, 0, r->prefix.n), r->prefix)))
        return false;
    if (r->has_greater && size <= r->greater_bytes)
        return false;
    if (r->has_less && size >= r->less_bytes)
        return false;
    for (size_t i = 0; i < r->tags_n; i++) {
        bool found = false;
        for (size_t k = 0; k < tags_n && !found; k++)
            found = tarn_str_eq(tags[k].name, r->tags[i].name) && tarn_str_eq(tags[k].value, r->tags[i].value);
        if (!found)
            return false;
    }
    return true;
}

int64_t lc_due_ms(int64_t from_ms, uint64_t days, uint64_t day_s)
{
    int64_t day_ms = (int64_t)day_s * 1000;
    int64_t due = from_ms + (int64_t)days * day_ms;
    if (day_s != 86400)
        return due; /* a test's short day has no midnight */
    return (due + day_ms - 1) / day_ms * day_ms;
}

const lc_rule *lc_expiration(const lc_rule *rules, size_t n, const tarn_version_row *row, const tarn_pair *tags, size_t tags_n,
                             uint64_t day_s, int64_t *when_ms)
{
    const lc_rule *first = NULL;
    for (size_t i = 0; i < n; i++) {
        const lc_rule *r = &rules[i];
        if (!r->enabled || (r->days == 0 && r->date_ms == 0) || !lc_matches(r, row->key, row->size, tags, tags_n))
            continue;
        int64_t when = r->days > 0 ? lc_due_ms(row->mtime_ms, r->days, day_s) : r->date_ms;
        if (first == NULL || when < *when_ms) {
            first = r;
            *when_ms = when;
        }
    }
    return first;
}
