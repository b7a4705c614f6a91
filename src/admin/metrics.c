/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Metrics in Prometheus' text form: the table of counters, and the drives. They tell names of drives and what goes on,
 * so that they are for the root, unless the operator has made them public.
 */
#include "admin_private.h"

static bool drive_online(tarn_drive_state s)
{
    return s == TARN_DRIVE_OK || s == TARN_DRIVE_NEW;
}

static void label(tarn_sb *b, const char *text)
{
    for (; *text != '\0'; text++) {
        if (*text == '\\' || *text == '"') {
            tarn_sb_char(b, '\\');
        }
        tarn_sb_cstr(b, *text == '\n' ? "\\n" : "");
        if (*text != '\n') {
            tarn_sb_char(b, *text);
        }
    }
}

static void family(tarn_sb *b, const char *name, const char *help)
{
    tarn_sb_fmt(b, "# HELP %s %s\n# TYPE %s gauge\n", name, help, name);
}

static void single(tarn_sb *b, const char *name, const char *help, uint64_t value)
{
    family(b, name, help);
    tarn_sb_fmt(b, "%s %llu\n", name, (unsigned long long)value);
}

static uint64_t drive_total(const tarn_drive_info *d)
{
    return d->total_bytes;
}

static uint64_t drive_free(const tarn_drive_info *d)
{
    return d->free_bytes;
}

static uint64_t drive_meta_reads_wrong(const tarn_drive_info *d)
{
    return d->meta_reads_wrong;
}

static uint64_t drive_is_online(const tarn_drive_info *d)
{
    return drive_online(d->state) ? 1 : 0;
}

static void per_drive(tarn_sb *b, const char *name, const char *help, const tarn_drive_info *d, size_t n,
                      uint64_t (*get)(const tarn_drive_info *))
{
    family(b, name, help);
    for (size_t i = 0; i < n; i++) {
        tarn_sb_fmt(b, "%s{drive=\"", name);
        label(b, d[i].path);
        tarn_sb_fmt(b, "\",set=\"%u\",position=\"%u\"} %llu\n", d[i].set, d[i].position, (unsigned long long)get(&d[i]));
    }
}

static void render_drives(tarn_sb *b, tarn_store *store, tarn_arena *arena)
{
    size_t max = (size_t)TARN_SETS_MAX * TARN_SET_DRIVES_MAX, online = 0;
    tarn_drive_info *d = TARN_ARENA_ARRAY(arena, tarn_drive_info, max);
    uint64_t total = 0, left = 0;
    if (d == NULL) {
        b->failed = true;
        return;
    }
    size_t n = tarn_store_drives(store, d, max);
    n = n < max ? n : max;
    for (size_t i = 0; i < n; i++) {
        online += drive_online(d[i].state);
        total += d[i].total_bytes;
        left += d[i].free_bytes;
    }
    per_drive(b, "tarn_drive_online", "1 while the drive is in use", d, n, drive_is_online);
    per_drive(b, "tarn_drive_total_bytes", "Size of the drive", d, n, drive_total);
    per_drive(b, "tarn_drive_free_bytes", "Free space of the drive", d, n, drive_free);
    per_drive(b, "tarn_drive_meta_reads_wrong", "Reads of the drive's copy of the metadata that were wrong, since the start", d, n,
              drive_meta_reads_wrong);
    /* The names that dashboards made for MinIO ask for first. */
    single(b, "minio_cluster_capacity_raw_total_bytes", "Size of all drives", total);
    single(b, "minio_cluster_capacity_raw_free_bytes", "Free space of all drives", left);
    single(b, "minio_cluster_drive_total", "Drives of the deployment", n);
    single(b, "minio_cluster_drive_online_total", "Drives in use", online);
    single(b, "minio_cluster_drive_offline_total", "Drives that are missing or taken out", n - online);
    single(b, "minio_cluster_health_status", "1 while every set can be written", tarn_store_writable(store) ? 1 : 0);
}

bool tarn_admin_is_root(tarn_admin *a, tarn_req *r)
{
    tarn_auth_result result = {0};
    tarn_err_detail detail = {0};
    tarn_err e = tarn_auth_verify(a->opt.auth, TARN_API_ADMIN, tarn_req_view(r), tarn_req_time_ms(r), tarn_req_arena(r), &result, &detail);
    bool ok = e == TARN_OK && result.identity.root;
    if (ok) {
        tarn_req_set_identity(r, result.identity.access_key);
    }
    tarn_auth_result_wipe(&result);
    return ok;
}

void tarn_admin_metrics(tarn_admin *a, tarn_req *r)
{
    tarn_sb b;
    if (tarn_admin_refuse_method(r)) {
        return;
    }
    if (!a->opt.metrics_public && !tarn_admin_is_root(a, r)) {
        tarn_admin_error(r, TARN_E_ACCESS_DENIED, "Metrics are for the root: sign the request, or set TARN_PROMETHEUS_AUTH=public.");
        return;
    }
    tarn_sb_init(&b, TARN_ADMIN_METRICS_BYTES_MAX);
    tarn_metrics_render(&b);
    render_drives(&b, a->opt.store, tarn_req_arena(r));
    if (b.failed) {
        tarn_admin_error(r, TARN_E_NO_MEMORY, NULL);
    } else {
        tarn_resp_headerc(r, "Content-Type", "text/plain; version=0.0.4; charset=utf-8");
        (void)tarn_resp_send(r, 200, tarn_sb_view(&b));
    }
    tarn_sb_free(&b);
}
