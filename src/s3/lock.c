/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Object lock: the bucket's configuration (kept as packed bytes: mode, unit, count), retention and legal hold of versions,
 * and the lock headers of uploads. Rules: S3 user guide, "Object Lock".
 *
 * Invariant: a retention in COMPLIANCE mode is never shortened or taken away; one in GOVERNANCE mode only by who may bypass it.
 */
#include "s3_internal.h"

#define DAY_MS (86400ll * 1000)
#define DAYS_MAX 36500
#define YEARS_MAX 100

typedef struct lock_config {
    tarn_retention mode; /* NONE: enabled without a default */
    bool years;
    uint32_t count;
} lock_config;

/* ------------------------------------------------------------------ the bucket's configuration */
static tarn_err load_config(s3_ctx *c, const tarn_bucket_row *b, lock_config *out)
{
    tarn_str body;
    *out = (lock_config){0};
    tarn_err e = tarn_meta_bucket_config_get(c->s3->meta, NULL, b->id, TARN_BC_OBJECT_LOCK, c->a, &body);
    if (e == TARN_E_NOT_FOUND)
        return TARN_OK;
    if (e != TARN_OK)
        return e;
    tarn_rd r = tarn_rd_of(body);
    out->mode = (tarn_retention)tarn_rd_u8(&r);
    out->years = tarn_rd_u8(&r) != 0;
    out->count = tarn_rd_le32(&r);
    return r.failed ? TARN_E_FORMAT : TARN_OK;
}

tarn_err s3_default_retention(s3_ctx *c, const tarn_bucket_row *b, tarn_retention *mode, int64_t *until_ms)
{
    lock_config cfg;
    *mode = TARN_RETENTION_NONE;
    *until_ms = 0;
    if (!b->object_lock)
        return TARN_OK;
    tarn_err e = load_config(c, b, &cfg);
    if (e != TARN_OK || cfg.mode == TARN_RETENTION_NONE)
        return e;
    *mode = cfg.mode;
    *until_ms = tarn_req_time_ms(c->r) + (int64_t)cfg.count * (cfg.years ? 365 : 1) * DAY_MS;
    return TARN_OK;
}

static const char *mode_name(tarn_retention m)
{
    return m == TARN_RETENTION_COMPLIANCE ? "COMPLIANCE" : "GOVERNANCE";
}

static bool parse_mode(tarn_str s, tarn_retention *out)
{
    if (tarn_str_eqc(s, "GOVERNANCE"))
        *out = TARN_RETENTION_GOVERNANCE;
    else if (tarn_str_eqc(s, "COMPLIANCE"))
        *out = TARN_RETENTION_COMPLIANCE;
    else
        return false;
    return true;
}

tarn_err s3_get_lock_config(s3_ctx *c)
{
    lock_config cfg;
    if (!c->bucket.object_lock)
        return TARN_E_NO_SUCH_OBJECT_LOCK_BUCKET;
    tarn_err e = load_config(c, &c->bucket, &cfg);
    if (e != TARN_OK)
        return e;
    s3_xml x;
    s3_xml_begin(&x, "ObjectLockConfiguration");
    s3_xml_textc(&x, "ObjectLockEnabled", "Enabled");
    if (cfg.mode != TARN_RETENTION_NONE) {
        s3_xml_open(&x, "Rule");
        s3_xml_open(&x, "DefaultRetention");
        s3_xml_textc(&x, "Mode", mode_name(cfg.mode));
        s3_xml_u64(&x, cfg.years ? "Years" : "Days", cfg.count);
        s3_xml_close(&x, "DefaultRetention");
        s3_xml_close(&x, "Rule");
    }
    s3_xml_close(&x, "ObjectLockConfiguration");
    return s3_xml_send(c, &x, 200);
}

static tarn_err read_config(s3_ctx *c, lock_config *cfg)
{
    s3_node *root;
    *cfg = (lock_config){0};
    tarn_err e = s3_read_xml(c, "ObjectLockConfiguration", &root);
    if (e != TARN_OK)
        return e;
    if (!tarn_str_eqc(s3_node_text(root, "ObjectLockEnabled"), "Enabled"))
        return TARN_E_MALFORMED_XML;
    const s3_node *rule = s3_node_child(root, "Rule");
    if (rule == NULL)
        return TARN_OK;
    const s3_node *dr = s3_node_child(rule, "DefaultRetention");
    tarn_str days = s3_node_text(dr, "Days"), years = s3_node_text(dr, "Years");
    if (dr == NULL || !parse_mode(s3_node_text(dr, "Mode"), &cfg->mode) || (days.p == NULL) == (years.p == NULL))
        return TARN_E_MALFORMED_XML;
    int64_t n;
    cfg->years = years.p != NULL;
    if (!tarn_str_to_i64(cfg->years ? years : days, &n))
        return TARN_E_MALFORMED_XML;
    if (n <= 0)
        return s3_bad_argument(c, "Default retention period must be a positive integer value", cfg->years ? "Years" : "Days",
                               cfg->years ? years : days);
    if (n > (cfg->years ? YEARS_MAX : DAYS_MAX))
        return s3_bad_argument(c, "Default retention period too large", cfg->years ? "Years" : "Days", cfg->years ? years : days);
    cfg->count = (uint32_t)n;
    return TARN_OK;
}

typedef struct lock_args {
    uint64_t bucket_id;
    tarn_str body;
} lock_args;

static tarn_err put_config_tx(tarn_meta_tx *tx, void *arg)
{
    const lock_args *a = arg;
    tarn_bucket_row row;
    tarn_err e = tarn_meta_bucket_get_id(NULL, tx, a->bucket_id, tarn_meta_tx_arena(tx), &row);
    if (e != TARN_OK)
        return e;
    if (row.versioning != TARN_VERSIONING_ENABLED)
        return TARN_E_INVALID_BUCKET_STATE;
    row.object_lock = true;
    e = tarn_meta_bucket_update(tx, &row);
    return e == TARN_OK ? tarn_meta_bucket_config_put(tx, a->bucket_id, TARN_BC_OBJECT_LOCK, a->body) : e;
}

tarn_err s3_put_lock_config(s3_ctx *c)
{
    lock_config cfg;
    char mem[8];
    tarn_sb b;
    lock_args a = {.bucket_id = c->bucket.id};
    tarn_err e = read_config(c, &cfg);
    if (e != TARN_OK)
        return e;
    tarn_sb_init_fixed(&b, mem, sizeof mem);
    tarn_sb_char(&b, (char)cfg.mode);
    tarn_sb_char(&b, cfg.years ? 1 : 0);
    tarn_sb_le32(&b, cfg.count);
    a.body = tarn_sb_view(&b);
    e = tarn_meta_commit(c->s3->meta, put_config_tx, &a);
    if (e == TARN_E_INVALID_BUCKET_STATE)
        return s3_fail(c, e, "Versioning must be 'Enabled' on the bucket to apply a Object Lock configuration");
    return e == TARN_OK ? s3_send_empty(c, 200) : e;
}

/* ------------------------------------------------------------------ headers of uploads */
static tarn_err parse_until(s3_ctx *c, tarn_str text, int64_t *ms)
{
    if (!tarn_parse_iso8601(text, ms))
        return s3_bad_argument(c, "The retain until date must be provided in ISO 8601 format", "x-amz-object-lock-retain-until-date", text);
    if (*ms <= tarn_req_time_ms(c->r))
        return s3_bad_argument(c, "The retain until date must be in the future!", "x-amz-object-lock-retain-until-date", text);
    return TARN_OK;
}

static tarn_err needs_lock(s3_ctx *c)
{
    if (c->bucket.object_lock)
        return TARN_OK;
    return s3_fail(c, TARN_E_INVALID_REQUEST, "Bucket is missing Object Lock Configuration");
}

tarn_err s3_lock_from_headers(s3_ctx *c, tarn_retention *mode, int64_t *until_ms, bool *hold)
{
    tarn_str m = tarn_req_header(c->r, "x-amz-object-lock-mode"), u = tarn_req_header(c->r, "x-amz-object-lock-retain-until-date"),
             h = tarn_req_header(c->r, "x-amz-object-lock-legal-hold");
    *hold = tarn_str_eqc(h, "ON");
    if (h.p != NULL && !*hold && !tarn_str_eqc(h, "OFF"))
        return s3_bad_argument(c, "Legal Hold must be either of 'ON' or 'OFF'", "x-amz-object-lock-legal-hold", h);
    if ((m.p == NULL) != (u.p == NULL))
        return s3_bad_argument(c, "x-amz-object-lock-retain-until-date and x-amz-object-lock-mode must both be supplied.",
                               m.p == NULL ? "x-amz-object-lock-mode" : "x-amz-object-lock-retain-until-date", TARN_STR_NULL);
    if (m.p != NULL && !parse_mode(m, mode))
        return s3_bad_argument(c, "Unknown wormMode directive.", "x-amz-object-lock-mode", m);
    tarn_err e = m.p != NULL ? parse_until(c, u, until_ms) : TARN_OK;
    if (e == TARN_OK && (m.p != NULL || h.p != NULL) && !c->bucket.object_lock)
        e = s3_fail(c, TARN_E_INVALID_REQUEST, "Bucket is missing ObjectLockConfiguration");
    if (e == TARN_OK && h.p != NULL)
        e = s3_may(c, "s3:PutObjectLegalHold");
    if (e == TARN_OK && m.p != NULL)
        e = s3_may(c, "s3:PutObjectRetention");
    if (e == TARN_OK && m.p == NULL)
        e = s3_default_retention(c, &c->bucket, mode, until_ms);
    return e;
}

/* ------------------------------------------------------------------ versions */
/* An empty versionId, which some clients send here, means the current version. */
static tarn_err lock_version(s3_ctx *c, tarn_version_ref *ref)
{
    tarn_str v = s3_param(c, "versionId");
    *ref = (tarn_version_ref){.sel = TARN_VERSION_CURRENT};
    return v.n == 0 ? TARN_OK : s3_version_param(c, ref);
}

static tarn_err find_locked_version(s3_ctx *c, tarn_version_row *row)
{
    tarn_version_ref ref;
    *row = (tarn_version_row){0};
    tarn_err e = lock_version(c, &ref);
    if (e == TARN_OK)
        e = tarn_object_stat(c->s3->store, &c->bucket, c->key, ref, c->a, row);
    if (e == TARN_OK && row->delete_marker)
        e = TARN_E_METHOD_NOT_ALLOWED;
    return e == TARN_OK ? needs_lock(c) : e;
}

tarn_err s3_get_retention(s3_ctx *c)
{
    tarn_version_row row;
    tarn_err e = find_locked_version(c, &row);
    if (e != TARN_OK)
        return e;
    if (row.retention == TARN_RETENTION_NONE)
        return TARN_E_NO_SUCH_OBJECT_LOCK;
    s3_xml x;
    s3_xml_begin(&x, "Retention");
    s3_xml_textc(&x, "Mode", mode_name(row.retention));
    s3_xml_time(&x, "RetainUntilDate", row.retain_until_ms);
    s3_xml_close(&x, "Retention");
    return s3_xml_send(c, &x, 200);
}

typedef struct retention_edit {
    tarn_retention mode;
    int64_t until_ms, now_ms;
    bool bypass;
} retention_edit;

static tarn_err edit_retention(void *ctx, tarn_version_row *row, tarn_arena *arena)
{
    const retention_edit *r = ctx;
    (void)arena;
    if (row->delete_marker)
        return TARN_E_METHOD_NOT_ALLOWED;
    bool active = row->retention != TARN_RETENTION_NONE && row->retain_until_ms > r->now_ms;
    bool weaker = r->mode == TARN_RETENTION_NONE || r->until_ms < row->retain_until_ms ||
                  (row->retention == TARN_RETENTION_COMPLIANCE && r->mode != TARN_RETENTION_COMPLIANCE);
    bool changes_mode = row->retention == TARN_RETENTION_GOVERNANCE && r->mode != row->retention;
    if (active && row->retention == TARN_RETENTION_COMPLIANCE && weaker)
        return TARN_E_ACCESS_DENIED;
    if (active && row->retention == TARN_RETENTION_GOVERNANCE && (weaker || changes_mode) && !r->bypass)
        return TARN_E_ACCESS_DENIED;
    row->retention = r->mode;
    row->retain_until_ms = r->until_ms;
    return TARN_OK;
}

static tarn_err edit_version(s3_ctx *c, tarn_err (*edit)(void *, tarn_version_row *, tarn_arena *), void *ctx)
{
    tarn_version_ref ref;
    tarn_version_row row;
    tarn_err e = lock_version(c, &ref);
    if (e == TARN_OK)
        e = tarn_object_edit(c->s3->store, &c->bucket, c->key, ref, edit, ctx, &row, c->a);
    if (e == TARN_E_ACCESS_DENIED)
        return s3_fail(c, e, "Access Denied because object protected by object lock.");
    if (e != TARN_OK)
        return e;
    s3_version_header(c, &row);
    return s3_send_empty(c, 200);
}

tarn_err s3_put_retention(s3_ctx *c)
{
    retention_edit r = {.now_ms = tarn_req_time_ms(c->r)};
    s3_node *root;
    tarn_err e = s3_read_xml(c, "Retention", &root);
    if (e != TARN_OK)
        return e;
    tarn_str mode = s3_node_text(root, "Mode"), until = s3_node_text(root, "RetainUntilDate");
    if (mode.n > 0 || until.n > 0) {
        if (!parse_mode(mode, &r.mode) || until.n == 0)
            return TARN_E_MALFORMED_XML;
        e = parse_until(c, until, &r.until_ms);
    }
    if (e == TARN_OK)
        e = needs_lock(c);
    if (e != TARN_OK)
        return e;
    if (tarn_str_ieqc(tarn_req_header(c->r, "x-amz-bypass-governance-retention"), "true")) {
        e = s3_may(c, "s3:BypassGovernanceRetention");
        if (e != TARN_OK)
            return e;
        r.bypass = true;
    }
    return edit_version(c, edit_retention, &r);
}

tarn_err s3_get_legal_hold(s3_ctx *c)
{
    tarn_version_row row;
    tarn_err e = find_locked_version(c, &row);
    if (e != TARN_OK)
        return e;
    s3_xml x;
    s3_xml_begin(&x, "LegalHold");
    s3_xml_textc(&x, "Status", row.legal_hold ? "ON" : "OFF");
    s3_xml_close(&x, "LegalHold");
    return s3_xml_send(c, &x, 200);
}

static tarn_err edit_hold(void *ctx, tarn_version_row *row, tarn_arena *arena)
{
    (void)arena;
    if (row->delete_marker)
        return TARN_E_METHOD_NOT_ALLOWED;
    row->legal_hold = *(const bool *)ctx;
    return TARN_OK;
}

tarn_err s3_put_legal_hold(s3_ctx *c)
{
    s3_node *root;
    tarn_err e = s3_read_xml(c, "LegalHold", &root);
    if (e != TARN_OK)
        return e;
    tarn_str status = s3_node_text(root, "Status");
    bool on = tarn_str_eqc(status, "ON");
    if (!on && !tarn_str_eqc(status, "OFF"))
        return TARN_E_MALFORMED_XML;
    e = needs_lock(c);
    return e == TARN_OK ? edit_version(c, edit_hold, &on) : e;
}
