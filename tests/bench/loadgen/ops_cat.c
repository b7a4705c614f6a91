/* SPDX-License-Identifier: Apache-2.0 */
/* Operations on an Iceberg REST catalog. */
#include "lg.h"

static struct buf root;        /* catalog path + prefix of the warehouse */
static struct buf tables_path; /* .../namespaces/NS/tables */
static struct table *tabs;
static uint64_t *conn_acked;           /* one table: the last commit of each connection that the server confirmed */
static atomic_uint_fast64_t one_acked; /* one table: confirmed commits of all connections */
static uint64_t run_id;

static void name_of(char *out, size_t cap, uint64_t i)
{
    snprintf(out, cap, "%s%06llu", g.table_prefix, (unsigned long long)i);
}

static void table_path(struct buf *b, uint64_t i)
{
    char name[128];
    name_of(name, sizeof name, i);
    buf_add(b, tables_path.p, tables_path.len);
    buf_lit(b, "/");
    buf_uri(b, name, strlen(name), false);
}

void cat_config(void)
{
    struct buf q = {0}, path = {0}, answer = {0}, prefix = {0};
    if (g.create_warehouse) {
        struct buf body = {0};
        buf_fmt(&path, "%s/warehouses", g.cat_path);
        buf_fmt(&body, "{\"name\":\"%s\",\"upgrade-existing\":true}", g.warehouse);
        int s = rq_once("POST", path.p, "", "application/json", body.p, &answer);
        if ((s < 200 || s > 299) && s != 409)
            die("POST %s: HTTP %d: %s", path.p, s, answer.p);
        free(body.p);
        path.len = 0;
    }
    if (g.cat_prefix) {
        buf_str(&prefix, g.cat_prefix);
    } else {
        buf_fmt(&path, "%s/config", g.cat_path);
        buf_str(&q, "");
        if (g.warehouse) {
            buf_lit(&q, "warehouse=");
            buf_uri(&q, g.warehouse, strlen(g.warehouse), false);
        }
        int s = rq_once("GET", path.p, buf_cstr(&q), NULL, "", &answer);
        if (s != 200)
            die("GET %s?%s: HTTP %d: %s", path.p, q.p, s, answer.p);
        struct span doc = {answer.p, answer.len}, v;
        if (json_get(doc, "overrides/prefix", &v) || json_get(doc, "defaults/prefix", &v))
            json_unescape(&prefix, v);
    }
    root.len = 0;
    buf_str(&root, g.cat_path);
    if (prefix.len) {
        buf_lit(&root, "/");
        buf_add(&root, prefix.p, prefix.len); /* as the server gave it: it may hold %2F or '/' */
    }
    tables_path.len = 0;
    buf_add(&tables_path, root.p, root.len);
    buf_lit(&tables_path, "/namespaces/");
    buf_uri(&tables_path, g.ns, strlen(g.ns), false);
    buf_lit(&tables_path, "/tables");
    buf_cstr(&tables_path);
    free(tabs);
    tabs = xalloc(sizeof *tabs * g.tables);
    conn_acked = xalloc(sizeof *conn_acked * g.conns);
    run_id = mix64(now_ns()) >> 1;
    free(q.p);
    free(path.p);
    free(answer.p);
    free(prefix.p);
}

void cat_namespace(void)
{
    struct buf path = {0}, body = {0}, answer = {0};
    buf_add(&path, root.p, root.len);
    buf_lit(&path, "/namespaces");
    buf_fmt(&body, "{\"namespace\":[\"%s\"],\"properties\":{}}", g.ns);
    int s = rq_once("POST", buf_cstr(&path), "", "application/json", body.p, &answer);
    if ((s < 200 || s > 299) && s != 409)
        die("POST %s: HTTP %d: %s", path.p, s, answer.p);
    free(path.p);
    free(body.p);
    free(answer.p);
}

static bool json_int(struct span doc, const char *path, int64_t *out)
{
    struct span v;
    char num[24];
    if (!json_get(doc, path, &v) || v.n == 0 || v.n >= sizeof num)
        return false;
    memcpy(num, v.p, v.n);
    num[v.n] = 0;
    char *end;
    *out = strtoll(num, &end, 10);
    return end != num && *end == 0;
}

/* What a commit needs to know, out of a LoadTableResult. */
static bool parse_table(struct span doc, struct table *t)
{
    struct span v;
    if (!doc.n || !json_get(doc, "metadata/table-uuid", &v) || v.n >= sizeof t->uuid)
        return false;
    memcpy(t->uuid, v.p, v.n);
    t->uuid[v.n] = 0;
    if (!json_int(doc, "metadata/current-snapshot-id", &t->snapshot))
        t->snapshot = -1;
    if (!json_int(doc, "metadata/last-sequence-number", &t->last_seq))
        t->last_seq = 0;
    if (!json_int(doc, "metadata/current-schema-id", &t->schema_id))
        t->schema_id = 0;
    if (!json_int(doc, "metadata/format-version", &t->version))
        t->version = 2;
    t->nsnap = json_get(doc, "metadata/snapshots", &v) ? json_array_len(v) : 0;
    if (!t->location && json_get(doc, "metadata/location", &v)) {
        t->location = xalloc(v.n + 1);
        memcpy(t->location, v.p, v.n);
    }
    return true;
}

/* ---- create ---- */

static bool create_next(struct thr *t, struct conn *c)
{
    (void)t;
    uint64_t i = rq_index();
    char name[128];
    if (i >= g.tables)
        return false;
    name_of(name, sizeof name, i);
    rq_begin(c, K_TCREATE, "POST", B_DISCARD);
    buf_add(&c->path, tables_path.p, tables_path.len);
    c->ctype = "application/json";
    buf_fmt(&c->body,
            "{\"name\":\"%s\",\"schema\":{\"type\":\"struct\",\"schema-id\":0,\"fields\":["
            "{\"id\":1,\"name\":\"id\",\"required\":true,\"type\":\"long\"},"
            "{\"id\":2,\"name\":\"ts\",\"required\":false,\"type\":\"timestamptz\"},"
            "{\"id\":3,\"name\":\"name\",\"required\":false,\"type\":\"string\"},"
            "{\"id\":4,\"name\":\"amount\",\"required\":false,\"type\":\"decimal(12, 2)\"},"
            "{\"id\":5,\"name\":\"flag\",\"required\":false,\"type\":\"boolean\"}]},"
            "\"partition-spec\":{\"spec-id\":0,\"fields\":[{\"name\":\"ts_day\",\"transform\":\"day\",\"source-id\":2,\"field-id\":1000}]},"
            "\"write-order\":{\"order-id\":0,\"fields\":[]},\"stage-create\":false,"
            "\"properties\":{\"format-version\":\"2\",\"owner\":\"loadgen\"}}",
            name);
    rq_hash_body(c);
    return true;
}

static bool create_finish(struct thr *t, struct conn *c, uint64_t now, bool exist_ok)
{
    if (c->status == 409 && exist_ok)
        t->s->conflicts++;
    else if (!rq_ok(t, c))
        return false;
    rq_record(t, K_TCREATE, c->t_op, now, c->rx);
    return false;
}

static bool create_done(struct thr *t, struct conn *c, uint64_t now)
{
    return create_finish(t, c, now, g.exist_ok);
}

static bool fill_done(struct thr *t, struct conn *c, uint64_t now)
{
    return create_finish(t, c, now, true);
}

/* ---- load ---- */

static void load_begin(struct conn *c, uint64_t i, enum body_mode mode)
{
    c->idx = i;
    rq_begin(c, K_TLOAD, "GET", mode);
    table_path(&c->path, i);
}

static bool resolve_next(struct thr *t, struct conn *c)
{
    (void)t;
    uint64_t i = rq_index();
    if (i >= g.tables)
        return false;
    load_begin(c, i, B_KEEP);
    return true;
}

static bool resolve_done(struct thr *t, struct conn *c, uint64_t now)
{
    if (!rq_ok(t, c))
        return false;
    struct table *b = &tabs[c->idx];
    if (!parse_table((struct span){c->in.p, c->in.len}, b)) {
        rq_error(t, c, E_BODY, "no metadata/table-uuid in the table");
        return false;
    }
    b->seq0 = b->last_seq;
    b->etag = c->hp.etag[0] ? strdup(c->hp.etag) : NULL;
    rq_record(t, K_TLOAD, c->t_op, now, c->rx);
    return false;
}

bool cat_has_etags(void)
{
    for (uint32_t i = 0; i < g.tables; i++)
        if (tabs[i].etag)
            return true;
    return false;
}

static bool load_next(struct thr *t, struct conn *c)
{
    load_begin(c, rng_below(&t->rng, g.tables), B_DISCARD);
    if (g.if_none_match && tabs[c->idx].etag)
        buf_fmt(&c->extra, "If-None-Match: %s\r\n", tabs[c->idx].etag);
    return true;
}

static bool load_done(struct thr *t, struct conn *c, uint64_t now)
{
    if (g.if_none_match && c->status == 304)
        t->s->not_modified++;
    else if (!rq_ok(t, c))
        return false;
    rq_record(t, K_TLOAD, c->t_op, now, c->rx);
    return false;
}

/* ---- commit ---- */

static void commit_setup(void)
{
    if (!g.one_table && g.conns > g.tables)
        die("cat-commit without --one-table: --conns (%u) must not exceed --tables (%u), as each table has one writer", g.conns, g.tables);
    if (g.append)
        for (uint32_t i = 0; i < (g.one_table ? 1 : g.tables); i++)
            if (tabs[i].version > 2)
                die("--append writes format version 2 snapshots, table %u has version %lld", i, (long long)tabs[i].version);
}

static struct table *commit_table(struct conn *c)
{
    return g.one_table ? &c->view : &tabs[c->idx];
}

static bool commit_next(struct thr *t, struct conn *c)
{
    if (!c->has_view) {
        c->idx = g.one_table ? 0 : c->id;
        if (g.one_table)
            c->view = tabs[0]; /* each connection is a client with its own idea of the table */
        c->has_view = true;
    }
    if (c->step == 1) { /* after a conflict: look again */
        uint64_t i = c->idx;
        load_begin(c, i, B_KEEP);
        c->kind = K_RELOAD;
        return true;
    }
    if (!g.one_table && c->retries == 0 && c->commits) {
        c->idx += g.conns;
        if (c->idx >= g.tables)
            c->idx = c->id;
    }
    struct table *b = commit_table(c);
    char name[128];
    name_of(name, sizeof name, c->idx);
    rq_begin(c, K_COMMIT, "POST", B_DISCARD);
    table_path(&c->path, c->idx);
    c->ctype = "application/json";
    c->commits++;
    buf_fmt(&c->body,
            "{\"identifier\":{\"namespace\":[\"%s\"],\"name\":\"%s\"},"
            "\"requirements\":[{\"type\":\"assert-table-uuid\",\"uuid\":\"%s\"}",
            g.ns, name, b->uuid);
    if (!g.append) {
        buf_fmt(&c->body, "],\"updates\":[{\"action\":\"set-properties\",\"updates\":{\"loadgen.c%u\":\"%llu-%llu\"}}]}", c->id,
                (unsigned long long)run_id, (unsigned long long)c->commits);
    } else {
        struct timespec now;
        clock_gettime(CLOCK_REALTIME, &now);
        c->new_snap = (int64_t)(rng_next(&t->rng) ^ run_id) & INT64_MAX;
        buf_lit(&c->body, ",{\"type\":\"assert-ref-snapshot-id\",\"ref\":\"main\",\"snapshot-id\":");
        if (b->snapshot >= 0)
            buf_fmt(&c->body, "%lld", (long long)b->snapshot);
        else
            buf_lit(&c->body, "null");
        buf_fmt(&c->body, "}],\"updates\":[{\"action\":\"add-snapshot\",\"snapshot\":{\"snapshot-id\":%lld,", (long long)c->new_snap);
        if (b->snapshot >= 0)
            buf_fmt(&c->body, "\"parent-snapshot-id\":%lld,", (long long)b->snapshot);
        buf_fmt(&c->body,
                "\"sequence-number\":%lld,\"timestamp-ms\":%lld,"
                "\"manifest-list\":\"%s/metadata/snap-%lld-1-%016llx.avro\",\"schema-id\":%lld,"
                "\"summary\":{\"operation\":\"append\",\"added-data-files\":\"1\",\"added-records\":\"1000\","
                "\"added-files-size\":\"65536\",\"changed-partition-count\":\"1\",\"total-records\":\"%lld\","
                "\"total-files-size\":\"%lld\",\"total-data-files\":\"%lld\",\"total-delete-files\":\"0\","
                "\"total-position-deletes\":\"0\",\"total-equality-deletes\":\"0\"}}},"
                "{\"action\":\"set-snapshot-ref\",\"ref-name\":\"main\",\"type\":\"branch\",\"snapshot-id\":%lld}]}",
                (long long)b->last_seq + 1, (long long)now.tv_sec * 1000 + now.tv_nsec / 1000000, b->location ? b->location : "",
                (long long)c->new_snap, (unsigned long long)rng_next(&t->rng), (long long)b->schema_id, ((long long)b->last_seq + 1) * 1000,
                ((long long)b->last_seq + 1) * 65536, (long long)b->last_seq + 1, (long long)c->new_snap);
    }
    rq_hash_body(c);
    return true;
}

static bool commit_done(struct thr *t, struct conn *c, uint64_t now)
{
    struct table *b = commit_table(c);
    if (c->kind == K_RELOAD) {
        if (!rq_ok(t, c))
            return false;
        uint64_t at_start = b->nsnap;
        if (!parse_table((struct span){c->in.p, c->in.len}, b)) {
            rq_error(t, c, E_BODY, "no metadata/table-uuid in the table");
            return false;
        }
        b->nsnap = at_start;
        rq_record(t, K_RELOAD, c->t_req, now, c->rx);
        c->step = 0;
        return true;
    }
    if (c->status == 409) {
        t->s->conflicts++;
        if (c->retries < g.max_retries) {
            c->retries++;
            c->step = 1;
            if (g.backoff_ms > 0) { /* doubles up to 64 times, with jitter */
                double d = g.backoff_ms * (double)(1u << (c->retries < 7 ? c->retries - 1 : 6));
                c->delay = (uint64_t)(d * 1e6 * (0.5 + (double)rng_below(&t->rng, 1024) / 1024.0));
            }
            return true;
        }
    }
    if (!rq_ok(t, c))
        return false;
    if (g.append) {
        b->snapshot = c->new_snap;
        b->last_seq++;
    }
    conn_acked[c->id] = c->commits;
    if (!g.one_table)
        tabs[c->idx].acked = g.append ? tabs[c->idx].acked + 1 : c->commits;
    else if (g.append)
        atomic_fetch_add(&one_acked, 1);
    rq_record(t, K_COMMIT, c->t_op, now, c->rx);
    return false;
}

/* After the run: is every confirmed commit still there? A commit whose answer was lost may be there or not. */
static bool commit_check(void)
{
    struct buf path = {0}, answer = {0};
    uint64_t bad = 0, looked = 0, current_only = 0;
    if (g.one_table)
        tabs[0].acked = atomic_load(&one_acked);
    for (uint64_t i = 0; i < (g.one_table ? 1 : g.tables); i++) {
        path.len = 0;
        table_path(&path, i);
        int s = rq_once("GET", buf_cstr(&path), "", NULL, "", &answer);
        struct table now = {0};
        struct span doc = {answer.p, answer.len}, v;
        if (s != 200 || !parse_table(doc, &now)) {
            fprintf(stderr, "loadgen: verify: GET %s: HTTP %d\n", path.p, s);
            bad++;
            continue;
        }
        free(now.location);
        if (g.append) {
            /* each confirmed append took the next sequence number after the one that it was based on */
            int64_t want = tabs[i].seq0 + (int64_t)tabs[i].acked;
            looked++;
            if (now.last_seq < want && bad++ < 5)
                fprintf(stderr, "loadgen: verify: LOST UPDATE: %s is at sequence number %lld, expected %lld + %llu confirmed\n", path.p,
                        (long long)now.last_seq, (long long)tabs[i].seq0, (unsigned long long)tabs[i].acked);
            else if (!g.one_table && tabs[i].acked && now.last_seq == want && now.snapshot != tabs[i].snapshot && bad++ < 5)
                fprintf(stderr, "loadgen: verify: %s is at snapshot %lld, the last confirmed is %lld\n", path.p, (long long)now.snapshot,
                        (long long)tabs[i].snapshot);
            else if (now.nsnap == 1 && tabs[i].nsnap + tabs[i].acked > 1)
                current_only++; /* a catalog may keep the history elsewhere */
            else if (now.nsnap < tabs[i].nsnap + tabs[i].acked && bad++ < 5)
                fprintf(stderr, "loadgen: verify: %s has %llu snapshots, expected %llu + %llu confirmed\n", path.p,
                        (unsigned long long)now.nsnap, (unsigned long long)tabs[i].nsnap, (unsigned long long)tabs[i].acked);
            continue;
        }
        for (uint32_t k = g.one_table ? 0 : (uint32_t)(i % g.conns); k < g.conns; k++) {
            uint64_t want = g.one_table ? conn_acked[k] : tabs[i].acked;
            char prop[64];
            unsigned long long run = 0, n = 0;
            snprintf(prop, sizeof prop, "metadata/properties/loadgen.c%u", k);
            struct buf val = {0};
            if (want) {
                looked++;
                if (json_get(doc, prop, &v))
                    json_unescape(&val, v);
                if ((!val.len || sscanf(buf_cstr(&val), "%llu-%llu", &run, &n) != 2 || run != run_id || n < want) && bad++ < 5)
                    fprintf(stderr, "loadgen: verify: LOST UPDATE: %s: %s is %s, confirmed was %llu-%llu\n", path.p, prop + 9,
                            val.len ? buf_cstr(&val) : "absent", (unsigned long long)run_id, (unsigned long long)want);
            }
            free(val.p);
            if (!g.one_table)
                break;
        }
    }
    if (current_only)
        fprintf(stderr, "loadgen: verify: %llu tables show their current snapshot only: checked by sequence number\n",
                (unsigned long long)current_only);
    fprintf(stderr, "loadgen: verify: %llu committed values looked up, %llu wrong\n", (unsigned long long)looked, (unsigned long long)bad);
    free(path.p);
    free(answer.p);
    return bad == 0;
}

/* ---- list, drop ---- */

static bool tlist_next(struct thr *t, struct conn *c)
{
    (void)t;
    rq_begin(c, K_TLIST, "GET", B_KEEP);
    buf_add(&c->path, tables_path.p, tables_path.len);
    if (g.page_size) {
        buf_fmt(&c->query, "pageSize=%u&pageToken=", g.page_size);
        if (c->step)
            buf_uri(&c->query, c->token.p, c->token.len, false);
    }
    if (!c->step)
        c->listed = 0;
    return true;
}

static bool tlist_done(struct thr *t, struct conn *c, uint64_t now)
{
    if (!rq_ok(t, c))
        return false;
    struct span doc = {c->in.p, c->in.len}, v;
    if (!doc.n || !json_get(doc, "identifiers", &v)) {
        rq_error(t, c, E_BODY, "no identifiers in the answer");
        return false;
    }
    uint64_t n = json_array_len(v);
    c->listed += n;
    rq_keys(t, now, n);
    rq_record(t, K_TLIST, c->step ? c->t_req : c->t_op, now, c->rx);
    if (json_get(doc, "next-page-token", &v) && v.n && !(v.n == 4 && memcmp(v.p, "null", 4) == 0)) {
        c->token.len = 0;
        json_unescape(&c->token, v);
        c->step = 1;
        return true;
    }
    if (g.verify && c->listed != g.tables)
        rq_error(t, c, E_VERIFY, "a whole listing has another number of tables than --tables");
    return false;
}

static bool drop_next(struct thr *t, struct conn *c)
{
    (void)t;
    uint64_t i = rq_index();
    if (i >= g.tables)
        return false;
    rq_begin(c, K_TDROP, "DELETE", B_DISCARD);
    table_path(&c->path, i);
    buf_lit(&c->query, "purgeRequested=false");
    return true;
}

static bool drop_done(struct thr *t, struct conn *c, uint64_t now)
{
    if (rq_ok(t, c))
        rq_record(t, K_TDROP, c->t_op, now, 0);
    return false;
}

#define ONE(k) (1u << (k))
const struct op op_tcreate_fill = {"prepare", ONE(K_TCREATE), true, false, create_next, fill_done, NULL, NULL};
const struct op op_resolve = {"resolve", ONE(K_TLOAD), true, false, resolve_next, resolve_done, NULL, NULL};
const struct op ops_cat[] = {
    {"cat-create", ONE(K_TCREATE), true, false, create_next, create_done, NULL, NULL},
    {"cat-load", ONE(K_TLOAD), true, false, load_next, load_done, NULL, NULL},
    {"cat-commit", ONE(K_COMMIT), true, false, commit_next, commit_done, commit_setup, commit_check},
    {"cat-list", ONE(K_TLIST), true, false, tlist_next, tlist_done, NULL, NULL},
    {"cat-drop", ONE(K_TDROP), true, false, drop_next, drop_done, NULL, NULL},
};
const size_t nops_cat = sizeof ops_cat / sizeof *ops_cat;
