/* SPDX-License-Identifier: Apache-2.0 */
/*
 * iceberg, the way of a request: route → authentication → body → warehouse and names → policy → handler → answer.
 *
 * Nothing is looked at before the caller is known (an unknown path answers 401 to a stranger, too), nothing is changed
 * before the whole body has been read and matches its signature.
 */
#include <string.h>

#include "catalog.h"

#define READ_STEP_BYTES (64 * 1024)

/* ------------------------------------------------------------------ life */
static char *copy_text(tarn_str s)
{
    return tarn_strdup(s.p ? s : TARN_STR(""));
}

tarn_err tarn_iceberg_new(const tarn_iceberg_options *opt, tarn_iceberg **out)
{
    static uint64_t serials;
    tarn_iceberg *ice = tarn_calloc(1, sizeof *ice);
    if (!ice)
        return TARN_E_NO_MEMORY;
    ice->store = opt->store;
    ice->meta = tarn_store_meta(opt->store);
    ice->auth = opt->auth;
    ice->region = copy_text(opt->region);
    ice->server_url = copy_text(opt->server_url);
    ice->serial = __atomic_add_fetch(&serials, 1, __ATOMIC_RELAXED);
    if (!ice->region || !ice->server_url) {
        tarn_free(ice->region);
        tarn_free(ice->server_url);
        tarn_free(ice);
        return TARN_E_NO_MEMORY;
    }
    ice_cache_init(&ice->cache, opt->cache_bytes_max ? opt->cache_bytes_max : ICE_CACHE_BYTES_DEFAULT);
    pthread_mutex_init(&ice->lock, NULL);
    *out = ice;
    return TARN_OK;
}

void tarn_iceberg_free(tarn_iceberg *ice)
{
    if (!ice)
        return;
    for (size_t i = 0; i < ice->workers_n; i++)
        ice_worker_free(ice->workers[i]);
    ice_cache_free(&ice->cache);
    pthread_mutex_destroy(&ice->lock);
    tarn_free(ice->region);
    tarn_free(ice->server_url);
    tarn_free(ice);
}

/* ------------------------------------------------------------------ body */
static tarn_err body_too_large(ice_req *q, size_t max)
{
    tarn_resp_close_after(q->http);
    return ice_fail(&q->e, TARN_E_ENTITY_TOO_LARGE, "Malformed request: the body is longer than %zu bytes", max);
}

static tarn_err read_body(ice_req *q, size_t max)
{
    uint64_t length = 0;
    tarn_sb_init(&q->body_text, max + READ_STEP_BYTES + 1);
    if (!tarn_req_has_body_framing(q->http))
        return TARN_OK;
    if (tarn_req_content_length(q->http, &length) && length > max)
        return body_too_large(q, max);
    for (;;) {
        size_t got = 0, room = length > 0 && length < READ_STEP_BYTES ? (size_t)length + 1 : READ_STEP_BYTES;
        char *p = tarn_sb_reserve(&q->body_text, room);
        if (!p)
            return TARN_E_NO_MEMORY;
        ICE_TRY(tarn_req_read(q->http, p, room, &got));
        if (got == 0)
            return TARN_OK;
        q->body_text.n += got;
        p[got] = '\0';
        if (q->body_text.n > max)
            return body_too_large(q, max);
    }
}

static tarn_str body_view(const ice_req *q)
{
    return q->body_text.p ? tarn_sb_view(&q->body_text) : TARN_STR("");
}

/* ------------------------------------------------------------------ who */
static tarn_err auth_failed(ice_req *q, tarn_err err, const tarn_err_detail *detail)
{
    if (detail->message.n > 0)
        ice_fail(&q->e, err, "%.*s", TARN_STR_ARG(detail->message));
    return err;
}

static tarn_err check_body(ice_req *q)
{
    uint8_t sum[TARN_SHA256_BYTES];
    tarn_err_detail detail = {0};
    tarn_str body = body_view(q);
    if (q->auth.payload == TARN_PAYLOAD_UNSIGNED)
        return TARN_OK;
    tarn_sha256(body.p, body.n, sum);
    if (q->auth.payload == TARN_PAYLOAD_NONE_GIVEN) {
        if (q->auth.mode != TARN_AUTH_V4_HEADER && q->auth.mode != TARN_AUTH_V4_QUERY)
            return TARN_OK;
        tarn_err err = tarn_auth_finish_body(q->ice->auth, &q->auth, sum, q->a, &detail);
        return err == TARN_OK ? TARN_OK : auth_failed(q, err, &detail);
    }
    if (q->auth.payload != TARN_PAYLOAD_SHA256)
        return ice_fail(&q->e, TARN_E_ICE_BAD_REQUEST, "Malformed request: the catalog takes no chunk-signed bodies");
    if (!tarn_equal_ct(sum, q->auth.expect_sha256, sizeof sum))
        return ice_fail_plain(&q->e, TARN_E_CONTENT_SHA256_MISMATCH);
    return TARN_OK;
}

static tarn_err authenticate(ice_req *q)
{
    tarn_err_detail detail = {0};
    tarn_err err =
        tarn_auth_verify(q->ice->auth, TARN_API_CATALOG, tarn_req_view(q->http), tarn_req_time_ms(q->http), q->a, &q->auth, &detail);
    if (err != TARN_OK)
        return auth_failed(q, err, &detail);
    /* A signature that covers a body not read yet is checked in check_body: until then there is no identity. */
    if (q->auth.identity.anonymous && !q->auth.deferred)
        return ice_fail(&q->e, TARN_E_ICE_NOT_AUTHORIZED,
                        "The request is not signed: use SigV4 (rest.sigv4-enabled, rest.signing-name=s3tables) or a bearer token");
    tarn_req_set_identity(q->http, q->auth.access_key);
    return TARN_OK;
}

/* ------------------------------------------------------------------ what */
typedef struct only {
    tarn_str name;
    size_t n;
    tarn_arena *a;
} only;

static bool note_warehouse(void *ctx, const tarn_bucket_row *row)
{
    only *o = ctx;
    o->name = tarn_arena_str(o->a, row->name);
    return ++o->n < 2;
}

tarn_err ice_warehouse_find(ice_req *q, tarn_str name)
{
    only o = {.a = q->a};
    if (name.n == 0) {
        ICE_TRY(tarn_meta_bucket_list(q->ice->meta, NULL, TARN_STR(""), TARN_STR(""), true, note_warehouse, &o));
        if (o.n != 1)
            return ice_fail(&q->e, TARN_E_ICE_NO_WAREHOUSE,
                            "The specified warehouse does not exist: the request names none, and there is not exactly one");
        name = o.name;
    }
    tarn_err err =
        name.n <= TARN_BUCKET_NAME_BYTES_MAX ? tarn_meta_bucket_get(q->ice->meta, NULL, name, q->a, &q->wh) : TARN_E_NO_SUCH_BUCKET;
    if (err == TARN_E_NO_SUCH_BUCKET || (err == TARN_OK && !q->wh.warehouse))
        return ice_fail(&q->e, TARN_E_ICE_NO_WAREHOUSE, "The specified warehouse does not exist: %.*s", TARN_STR_ARG(name));
    return err;
}

/* An empty segment is the name of no warehouse, unlike a path that has no such segment. */
static tarn_err find_warehouse(ice_req *q)
{
    tarn_str name = TARN_STR("");
    if (q->raw_warehouse.p && q->raw_warehouse.n == 0)
        return ice_fail(&q->e, TARN_E_ICE_NO_WAREHOUSE, "The specified warehouse does not exist: its name is empty");
    if (q->raw_warehouse.p)
        ICE_TRY(ice_name_decode(q, q->raw_warehouse, false, &name));
    return ice_warehouse_find(q, name);
}

static bool has_plus(tarn_str s)
{
    return tarn_str_chr(s, '+') >= 0;
}

/* '+' in a namespace: a blank, unless only the namespace with a literal '+' is there. */
static tarn_err decode_ns(ice_req *q)
{
    tarn_ns_row row;
    ICE_TRY(ice_ns_decode(q, q->raw_ns, true, &q->ns));
    if (has_plus(q->raw_ns) && tarn_meta_ns_get(q->ice->meta, NULL, q->wh.id, q->ns, q->a, &row) != TARN_OK)
        ICE_TRY(ice_ns_decode(q, q->raw_ns, false, &q->ns));
    return q->ns.n > 0 ? ice_check_ns(q, q->ns) : TARN_OK;
}

static tarn_err decode_name(ice_req *q)
{
    tarn_entity_row row;
    ICE_TRY(ice_name_decode(q, q->raw_name, true, &q->name));
    if (has_plus(q->raw_name) && tarn_meta_entity_get(q->ice->meta, NULL, q->wh.id, q->ns, q->name, q->a, &row) != TARN_OK)
        ICE_TRY(ice_name_decode(q, q->raw_name, false, &q->name));
    return ice_check_name(q, "name", q->name);
}

static tarn_err read_names(ice_req *q)
{
    if (q->route->flags & ICE_R_WAREHOUSE)
        ICE_TRY(find_warehouse(q));
    if (q->raw_ns.p)
        ICE_TRY(decode_ns(q));
    return q->raw_name.p ? decode_name(q) : TARN_OK;
}

/* ------------------------------------------------------------------ may they */
tarn_err ice_authorise(ice_req *q, const char *action, tarn_str part)
{
    if (q->auth.identity.root)
        return TARN_OK;
    tarn_str resource = q->wh.name.n == 0 ? TARN_STR("arn:aws:s3tables:::*")
                                          : tarn_arena_fmt(q->a, "arn:aws:s3tables:::bucket/%.*s%s%.*s", TARN_STR_ARG(q->wh.name),
                                                           part.n ? "/" : "", TARN_STR_ARG(part));
    const tarn_pair conditions[] = {
        {TARN_STR("s3tables:namespace"), q->ns.n ? ice_ns_show(q, q->ns) : TARN_STR("")},
        {TARN_STR("s3tables:tablename"), q->name},
        {TARN_STR("s3tables:viewname"), q->name},
    };
    tarn_policy_request r = {.action = action,
                             .resource = resource,
                             .identity = &q->auth.identity,
                             .conditions = conditions,
                             .conditions_n = q->name.n ? 3
                                             : q->ns.n ? 1
                                                       : 0,
                             .owner = q->wh.name.n > 0 && tarn_str_eq(q->wh.owner, q->auth.identity.access_key)};
    if (tarn_authorise(NULL, &r) != TARN_OK)
        return ice_fail(&q->e, TARN_E_ICE_FORBIDDEN, "Not allowed: %s on %.*s", action, TARN_STR_ARG(resource));
    return TARN_OK;
}

/* A route of one table or view is authorised on that entity's own resource; one that is not there, on none in particular. */
static tarn_err authorise_route(ice_req *q)
{
    tarn_str part = TARN_STR_NULL;
    tarn_entity_row row;
    if (!q->route->action || q->auth.identity.root)
        return TARN_OK;
    if (q->raw_name.p) {
        bool view = strstr(q->route->path, "{view}") != NULL;
        bool there = tarn_meta_entity_get(q->ice->meta, NULL, q->wh.id, q->ns, q->name, q->a, &row) == TARN_OK;
        part = tarn_arena_fmt(q->a, "%s/%.*s", view ? "view" : "table", TARN_STR_ARG(there ? row.uuid : TARN_STR("*")));
    }
    return ice_authorise(q, q->route->action, part);
}

/* ------------------------------------------------------------------ the way */
static tarn_err run(ice_req *q)
{
    ICE_TRY(read_names(q));
    ICE_TRY(authorise_route(q));
    if (q->route->flags & ICE_R_JSON)
        ICE_TRY(ice_json_parse_object(body_view(q), &q->body, &q->e));
    return q->route->handler(q);
}

static size_t body_max(const ice_req *q)
{
    return q->route && (q->route->flags & ICE_R_LARGE) ? ICE_BODY_LARGE_BYTES_MAX : ICE_BODY_SMALL_BYTES_MAX;
}

static tarn_err refuse_route(ice_req *q, ice_match m, const tarn_sb *allow)
{
    tarn_str method = tarn_req_method(q->http), path = tarn_req_view(q->http)->raw_path;
    if (m == ICE_MATCH_NONE)
        return ice_fail(&q->e, TARN_E_ICE_NO_ROUTE, "No route for request: %.*s %.*s", TARN_STR_ARG(method), TARN_STR_ARG(path));
    tarn_resp_header(q->http, "Allow", tarn_sb_view(allow));
    return ice_fail(&q->e, TARN_E_ICE_METHOD, "Method %.*s is not allowed for %.*s", TARN_STR_ARG(method), TARN_STR_ARG(path));
}

static tarn_err serve(ice_req *q)
{
    char memory[128];
    tarn_sb allow;
    tarn_sb_init_fixed(&allow, memory, sizeof memory);
    tarn_str path = tarn_str_sub(tarn_req_view(q->http)->raw_path, sizeof ICE_PREFIX - 1, SIZE_MAX);
    ice_match m = ice_route_find(q, tarn_req_method(q->http), path, &allow);
    bool open = m == ICE_MATCH && (q->route->flags & ICE_R_OPEN);
    if (m == ICE_MATCH)
        tarn_req_set_operation(q->http, q->route->action ? q->route->action : q->route->path);
    if (!open)
        ICE_TRY(authenticate(q));
    ICE_TRY(read_body(q, body_max(q)));
    if (!open) {
        ICE_TRY(check_body(q));
        TARN_ASSERT(!q->auth.identity.anonymous);
    }
    return m == ICE_MATCH ? run(q) : refuse_route(q, m, &allow);
}

static void begin(ice_req *q, tarn_iceberg *ice, tarn_req *r)
{
    q->ice = ice;
    q->http = r;
    q->a = tarn_req_arena(r);
    ice_error_init(&q->e);
}

void tarn_iceberg_handle(tarn_iceberg *ice, tarn_req *r)
{
    ice_req *q = TARN_ARENA_NEW(tarn_req_arena(r), ice_req);
    if (!q)
        return; /* the engine sends 500 for a request that got no answer */
    begin(q, ice, r);
    tarn_err err = serve(q);
    if (err != TARN_OK)
        ice_send_error(q, err);
    json_decref(q->body);
    tarn_sb_free(&q->body_text);
    tarn_auth_result_wipe(&q->auth);
}

void tarn_iceberg_edge_error(tarn_iceberg *ice, tarn_req *r, tarn_err e, const char *message)
{
    ice_req *q = TARN_ARENA_NEW(tarn_req_arena(r), ice_req);
    if (!q)
        return;
    begin(q, ice, r);
    ice_fail(&q->e, e, "%s", message && *message ? message : tarn_err_get(e)->message);
    ice_send_error(q, e);
}
