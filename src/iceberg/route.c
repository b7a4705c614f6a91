/* SPDX-License-Identifier: Apache-2.0 */
/*
 * iceberg, the route table: every route of the catalog, once. It yields the dispatch, the endpoints of GET /v1/config, and
 * the list for docs and metrics.
 *
 * A path is split at its raw slashes (an escaped slash is part of a name). Slashes at the beginning that a client's base URL
 * left behind collapse, and one at the end is dropped; an empty segment in between stays: it is an empty namespace.
 * A path may leave out {prefix}: then the only warehouse is meant.
 */
#include "catalog.h"

#define P "/v1/{prefix}"
#define WJ (ICE_R_LISTED | ICE_R_WAREHOUSE | ICE_R_JSON)
#define W (ICE_R_LISTED | ICE_R_WAREHOUSE)

const ice_route ICE_ROUTES[] = {
    {"GET", "/v1/config", "s3tables:GetConfig", ice_h_config, 0},
    {"POST", "/v1/oauth/tokens", NULL, ice_h_token, ICE_R_OPEN},
    {"POST", "/v1/warehouses", "s3tables:CreateWarehouse", ice_h_warehouse_create, ICE_R_JSON},
    {"GET", "/v1/warehouses", "s3tables:ListWarehouses", ice_h_warehouse_list, 0},
    {"GET", "/v1/warehouses/{warehouse}", "s3tables:GetWarehouse", ice_h_warehouse_get, ICE_R_WAREHOUSE},
    {"DELETE", "/v1/warehouses/{warehouse}", "s3tables:DeleteWarehouse", ice_h_warehouse_delete, ICE_R_WAREHOUSE},
    {"GET", P "/namespaces", "s3tables:ListNamespaces", ice_h_ns_list, W},
    {"POST", P "/namespaces", "s3tables:CreateNamespace", ice_h_ns_create, WJ},
    {"GET", P "/namespaces/{namespace}", "s3tables:GetNamespace", ice_h_ns_get, W},
    {"HEAD", P "/namespaces/{namespace}", "s3tables:GetNamespace", ice_h_ns_head, W},
    {"DELETE", P "/namespaces/{namespace}", "s3tables:DeleteNamespace", ice_h_ns_delete, W},
    {"POST", P "/namespaces/{namespace}/properties", "s3tables:UpdateNamespaceProperties", ice_h_ns_properties, WJ},
    {"GET", P "/namespaces/{namespace}/tables", "s3tables:ListTables", ice_h_table_list, W},
    {"POST", P "/namespaces/{namespace}/tables", "s3tables:CreateTable", ice_h_table_create, WJ | ICE_R_LARGE},
    {"POST", P "/namespaces/{namespace}/register", "s3tables:RegisterTable", ice_h_table_register, WJ},
    {"GET", P "/namespaces/{namespace}/tables/{table}", "s3tables:GetTable", ice_h_table_load, W},
    {"HEAD", P "/namespaces/{namespace}/tables/{table}", "s3tables:GetTable", ice_h_table_head, W},
    {"POST", P "/namespaces/{namespace}/tables/{table}", "s3tables:UpdateTable", ice_h_table_commit, WJ | ICE_R_LARGE},
    {"DELETE", P "/namespaces/{namespace}/tables/{table}", "s3tables:DeleteTable", ice_h_table_drop, W},
    {"POST", P "/namespaces/{namespace}/tables/{table}/metrics", "s3tables:TableMetrics", ice_h_table_metrics,
     W | ICE_R_LOOSE | ICE_R_LARGE},
    {"POST", P "/tables/rename", "s3tables:RenameTable", ice_h_table_rename, WJ},
    {"POST", P "/transactions/commit", "s3tables:UpdateTable", ice_h_transaction, WJ | ICE_R_LARGE},
    {"GET", P "/namespaces/{namespace}/views", "s3tables:ListViews", ice_h_view_list, W},
    {"POST", P "/namespaces/{namespace}/views", "s3tables:CreateView", ice_h_view_create, WJ | ICE_R_LARGE},
    {"POST", P "/namespaces/{namespace}/register-view", "s3tables:RegisterView", ice_h_view_register, WJ},
    {"GET", P "/namespaces/{namespace}/views/{view}", "s3tables:GetView", ice_h_view_load, W},
    {"HEAD", P "/namespaces/{namespace}/views/{view}", "s3tables:GetView", ice_h_view_head, W},
    {"POST", P "/namespaces/{namespace}/views/{view}", "s3tables:UpdateView", ice_h_view_replace, WJ | ICE_R_LARGE},
    {"DELETE", P "/namespaces/{namespace}/views/{view}", "s3tables:DeleteView", ice_h_view_drop, W},
    {"POST", P "/views/rename", "s3tables:RenameView", ice_h_view_rename, WJ},
};
const size_t ICE_ROUTES_N = TARN_ARRAY_LEN(ICE_ROUTES);

/* Words that stand where a prefix may stand: no warehouse can have such a name. */
static const char *const reserved[] = {"namespaces", "tables", "views", "transactions", "config", "warehouses", "oauth", "buckets"};

bool ice_reserved_prefix(tarn_str name)
{
    for (size_t i = 0; i < TARN_ARRAY_LEN(reserved); i++)
        if (tarn_str_eqc(name, reserved[i]))
            return true;
    return false;
}

/* ------------------------------------------------------------------ matching */
typedef struct segments {
    tarn_str s[ICE_SEGMENTS_MAX];
    size_t n;
    bool too_many;
} segments;

static void split(tarn_str path, segments *out)
{
    while (path.n > 0 && path.p[0] == '/')
        path = tarn_str_sub(path, 1, path.n);
    if (path.n > 0 && path.p[path.n - 1] == '/')
        path.n--;
    out->n = 0;
    out->too_many = false;
    for (;;) {
        tarn_str head, rest;
        bool more = tarn_str_split(path, '/', &head, &rest);
        if (out->n == ICE_SEGMENTS_MAX) {
            out->too_many = true;
            return;
        }
        out->s[out->n++] = head;
        if (!more)
            return;
        path = rest;
    }
}

static bool is_variable(tarn_str segment)
{
    return segment.n > 2 && segment.p[0] == '{';
}

/* Does the path fit the row's template (without its {prefix} when bare)? Fills in the variables. */
static bool fits(const ice_route *row, const segments *path, bool bare, ice_req *q)
{
    tarn_str rest = tarn_str_of(row->path + 1);
    tarn_str warehouse = TARN_STR_NULL, ns = TARN_STR_NULL, name = TARN_STR_NULL;
    size_t i = 0;
    bool more = true;
    while (more) {
        tarn_str t, tail;
        more = tarn_str_split(rest, '/', &t, &tail);
        rest = tail;
        if (bare && tarn_str_eqc(t, "{prefix}"))
            continue;
        if (i == path->n)
            return false;
        tarn_str s = path->s[i++];
        if (!is_variable(t)) {
            if (!tarn_str_eq(t, s))
                return false;
        } else if (tarn_str_eqc(t, "{prefix}") || tarn_str_eqc(t, "{warehouse}")) {
            warehouse = s;
        } else if (tarn_str_eqc(t, "{namespace}")) {
            ns = s.p ? s : TARN_STR("");
        } else {
            name = s.p ? s : TARN_STR("");
        }
    }
    if (i != path->n)
        return false;
    q->raw_warehouse = warehouse;
    q->raw_ns = ns;
    q->raw_name = name;
    return true;
}

ice_match ice_route_find(ice_req *q, tarn_str method, tarn_str path, tarn_sb *allow)
{
    segments s;
    bool known = false;
    split(path, &s);
    if (s.too_many || s.n < 2)
        return ICE_MATCH_NONE;
    bool bare = ice_reserved_prefix(s.s[1]);
    for (size_t i = 0; i < ICE_ROUTES_N; i++) {
        if (!fits(&ICE_ROUTES[i], &s, bare, q))
            continue;
        if (tarn_str_eqc(method, ICE_ROUTES[i].method)) {
            q->route = &ICE_ROUTES[i];
            return ICE_MATCH;
        }
        tarn_sb_fmt(allow, "%s%s", known ? ", " : "", ICE_ROUTES[i].method);
        known = true;
    }
    return known ? ICE_MATCH_METHOD : ICE_MATCH_NONE;
}

void tarn_iceberg_routes_render(tarn_sb *b)
{
    for (size_t i = 0; i < ICE_ROUTES_N; i++)
        tarn_sb_fmt(b, "%s\t" ICE_PREFIX "%s\t%s\n", ICE_ROUTES[i].method, ICE_ROUTES[i].path,
                    ICE_ROUTES[i].action ? ICE_ROUTES[i].action : "-");
}
