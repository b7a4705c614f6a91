/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What `tarn admin` asks a running daemon for: JSON below /tarn/admin/v1, for requests that the root has signed.
 *
 *   GET    /drives                        drives, their states, what is being filled
 *   GET    /heal, /scrub                  progress
 *   POST   /heal?bucket=&prefix=&dry-run  begins; 409 while one runs
 *   POST   /scrub
 *   DELETE /heal, /scrub                  ends it at its next step
 *   GET    /backup                        the metadata as one file
 *
 * Numbers are exact integers, times milliseconds since 1970. Runs on the fiber of the request's connection.
 */
#include "admin_private.h"

#define OPS_BYTES_MAX (1024 * 1024)
#define OPS_PIECE_BYTES (256 * 1024)

/* ------------------------------------------------------------------ JSON */
static void name(tarn_sb *b, const char *key)
{
    char last = b->n > 0 && !b->failed ? b->p[b->n - 1] : '{';
    tarn_sb_fmt(b, "%s\"%s\":", last == '{' || last == '[' ? "" : ",", key);
}

static void text(tarn_sb *b, const char *key, tarn_str value)
{
    name(b, key);
    tarn_admin_json_text(b, value);
}

static void number(tarn_sb *b, const char *key, uint64_t value)
{
    name(b, key);
    tarn_sb_u64(b, value);
}

static void yes_no(tarn_sb *b, const char *key, bool value)
{
    name(b, key);
    tarn_sb_cstr(b, value ? "true" : "false");
}

static void send_json(tarn_req *r, int status, tarn_sb *b)
{
    tarn_str body = tarn_arena_str(tarn_req_arena(r), tarn_sb_view(b));
    if (b->failed || body.p == NULL) {
        tarn_admin_error(r, TARN_E_NO_MEMORY, NULL);
    } else {
        tarn_resp_headerc(r, "Content-Type", "application/json");
        (void)tarn_resp_send(r, status, body);
    }
    tarn_sb_free(b);
}

/* ------------------------------------------------------------------ tasks */
static const char *task_state(tarn_task_state s)
{
    static const char *const names[] = {"idle", "running", "done", "stopped", "failed"};
    return names[s];
}

static void task_json(tarn_sb *b, const tarn_task_status *st)
{
    const tarn_task_counts *c = &st->counts;
    tarn_sb_char(b, '{');
    text(b, "state", tarn_str_of(task_state(st->state)));
    yes_no(b, "dryRun", st->dry_run);
    text(b, "bucket", tarn_str_of(st->bucket));
    text(b, "prefix", tarn_str_of(st->prefix));
    text(b, "atBucket", tarn_str_of(st->at_bucket));
    text(b, "atKey", tarn_str_of(st->at_key));
    number(b, "startedMs", (uint64_t)st->started_ms);
    number(b, "endedMs", (uint64_t)st->ended_ms);
    number(b, "busyMs", st->busy_ms);
    number(b, "objectsTotal", st->objects_total);
    number(b, "objects", c->objects);
    number(b, "bytes", c->bytes);
    number(b, "damaged", c->damaged);
    number(b, "shardsMissing", c->missing);
    number(b, "shardsCorrupt", c->corrupt);
    number(b, "healed", c->healed);
    number(b, "healedBytes", c->healed_bytes);
    number(b, "waiting", c->waiting);
    number(b, "lost", c->lost);
    text(b, "error", tarn_str_of(st->err ? tarn_err_get(st->err)->message : ""));
    tarn_sb_char(b, '}');
}

static void task_answer(tarn_admin *a, tarn_req *r, tarn_task task, int status)
{
    tarn_task_status *st = TARN_ARENA_NEW(tarn_req_arena(r), tarn_task_status);
    tarn_sb b;
    tarn_sb_init(&b, OPS_BYTES_MAX);
    if (st == NULL) {
        b.failed = true;
    } else {
        tarn_task_status_get(a->opt.store, task, st);
        task_json(&b, st);
    }
    send_json(r, status, &b);
}

static tarn_str param(tarn_req *r, const char *key)
{
    const tarn_param *p = tarn_req_param(r, key);
    return p != NULL ? p->value : TARN_STR("");
}

static void task_start(tarn_admin *a, tarn_req *r, tarn_task task)
{
    tarn_str dry = param(r, "dry-run");
    tarn_task_spec spec = {.dry_run = tarn_str_eqc(dry, "true"), .bucket = param(r, "bucket"), .prefix = param(r, "prefix")};
    tarn_err e = tarn_task_start(a->opt.store, task, &spec);
    if (e == TARN_E_CONFLICT) {
        tarn_admin_error(r, e, "It is running already.");
    } else if (e != TARN_OK) {
        tarn_admin_error(r, e, NULL);
    } else {
        task_answer(a, r, task, 202);
    }
}

static void heal_status(tarn_admin *a, tarn_req *r)
{
    task_answer(a, r, TARN_TASK_HEAL, 200);
}

static void heal_start(tarn_admin *a, tarn_req *r)
{
    task_start(a, r, TARN_TASK_HEAL);
}

static void heal_stop(tarn_admin *a, tarn_req *r)
{
    tarn_task_stop(a->opt.store, TARN_TASK_HEAL);
    task_answer(a, r, TARN_TASK_HEAL, 202);
}

static void scrub_status(tarn_admin *a, tarn_req *r)
{
    task_answer(a, r, TARN_TASK_SCRUB, 200);
}

static void scrub_start(tarn_admin *a, tarn_req *r)
{
    task_start(a, r, TARN_TASK_SCRUB);
}

static void scrub_stop(tarn_admin *a, tarn_req *r)
{
    tarn_task_stop(a->opt.store, TARN_TASK_SCRUB);
    task_answer(a, r, TARN_TASK_SCRUB, 202);
}

/* ------------------------------------------------------------------ drives */
static const char *drive_state(tarn_drive_state s)
{
    static const char *const names[] = {
        [TARN_DRIVE_OK] = "ok",           [TARN_DRIVE_NEW] = "filling",         [TARN_DRIVE_MISSING] = "missing",
        [TARN_DRIVE_FOREIGN] = "foreign", [TARN_DRIVE_MISPLACED] = "misplaced", [TARN_DRIVE_READ_ONLY] = "read-only",
        [TARN_DRIVE_FAILED] = "failed"};
    return names[s];
}

static void drive_json(tarn_sb *b, const tarn_drive_info *d)
{
    tarn_sb_cstr(b, b->n > 0 && b->p[b->n - 1] == '}' ? ",{" : "{");
    text(b, "path", tarn_str_of(d->path));
    text(b, "state", tarn_str_of(drive_state(d->state)));
    text(b, "reason", tarn_str_of(d->reason));
    number(b, "set", d->set);
    number(b, "position", d->position);
    number(b, "totalBytes", d->total_bytes);
    number(b, "freeBytes", d->free_bytes);
    yes_no(b, "slow", d->slow);
    number(b, "metaReadsWrong", d->meta_reads_wrong);
    tarn_sb_char(b, '}');
}

static void drives(tarn_admin *a, tarn_req *r)
{
    size_t max = (size_t)TARN_SETS_MAX * TARN_SET_DRIVES_MAX;
    tarn_drive_info *d = TARN_ARENA_ARRAY(tarn_req_arena(r), tarn_drive_info, max);
    tarn_task_status *st = TARN_ARENA_NEW(tarn_req_arena(r), tarn_task_status);
    unsigned data = 0, parity = 0, sets = 0;
    tarn_sb b;
    tarn_sb_init(&b, OPS_BYTES_MAX);
    if (d == NULL || st == NULL) {
        b.failed = true;
        send_json(r, 200, &b);
        return;
    }
    size_t n = tarn_store_drives(a->opt.store, d, max);
    tarn_store_code(a->opt.store, &data, &parity, &sets);
    tarn_task_status_get(a->opt.store, TARN_TASK_FILL, st);
    tarn_sb_char(&b, '{');
    text(&b, "deployment", tarn_str_of(tarn_store_deployment_id(a->opt.store)));
    number(&b, "sets", sets);
    number(&b, "dataShards", data);
    number(&b, "parityShards", parity);
    yes_no(&b, "writable", tarn_store_writable(a->opt.store));
    yes_no(&b, "readable", tarn_store_readable(a->opt.store));
    number(&b, "repairsWaiting", tarn_store_repairs_waiting(a->opt.store));
    name(&b, "drives");
    tarn_sb_char(&b, '[');
    for (size_t i = 0; i < n && i < max; i++) {
        drive_json(&b, &d[i]);
    }
    tarn_sb_char(&b, ']');
    name(&b, "fill");
    task_json(&b, st);
    tarn_sb_char(&b, '}');
    send_json(r, 200, &b);
}

/* ------------------------------------------------------------------ backup */
static void backup(tarn_admin *a, tarn_req *r)
{
    tarn_file *f = NULL;
    uint64_t bytes = 0, at = 0;
    uint8_t *piece = tarn_arena_alloc(tarn_req_arena(r), OPS_PIECE_BYTES);
    tarn_err e = piece == NULL ? TARN_E_NO_MEMORY : tarn_store_backup_take(a->opt.store, &f, &bytes);
    if (e != TARN_OK) {
        tarn_admin_error(r, e, NULL);
        return;
    }
    tarn_resp_headerc(r, "Content-Type", "application/octet-stream");
    e = tarn_resp_begin(r, 200, bytes);
    while (e == TARN_OK && at < bytes) {
        int64_t n = tarn_file_read(f, piece, bytes - at < OPS_PIECE_BYTES ? (size_t)(bytes - at) : OPS_PIECE_BYTES, at);
        e = n <= 0 ? TARN_E_IO : tarn_resp_write(r, piece, (size_t)n, false);
        at += n > 0 ? (uint64_t)n : 0;
    }
    if (e == TARN_OK) {
        (void)tarn_resp_end(r);
    } else {
        tarn_resp_abort(r);
    }
    tarn_file_unref(f);
}

/* ------------------------------------------------------------------ routes */
static const struct {
    const char *method, *path;
    void (*fn)(tarn_admin *a, tarn_req *r);
} routes[] = {
    {"GET", "/drives", drives},      {"GET", "/heal", heal_status},   {"POST", "/heal", heal_start},    {"DELETE", "/heal", heal_stop},
    {"GET", "/scrub", scrub_status}, {"POST", "/scrub", scrub_start}, {"DELETE", "/scrub", scrub_stop}, {"GET", "/backup", backup},
};

void tarn_admin_ops(tarn_admin *a, tarn_req *r, tarn_str path)
{
    bool known = false;
    if (!tarn_admin_is_root(a, r)) {
        tarn_admin_error(r, TARN_E_ACCESS_DENIED, "Only the root may do this: sign the request with the root's credentials.");
        return;
    }
    for (size_t i = 0; i < TARN_ARRAY_LEN(routes); i++) {
        bool here = tarn_str_eqc(path, routes[i].path);
        known = known || here;
        if (here && tarn_str_eqc(tarn_req_method(r), routes[i].method)) {
            routes[i].fn(a, r);
            return;
        }
    }
    tarn_admin_error(r, known ? TARN_E_METHOD_NOT_ALLOWED : TARN_E_NOT_IMPLEMENTED, NULL);
}
