/* SPDX-License-Identifier: Apache-2.0 */
/*
 * iceberg, the catalog's own header: the request in hand, the route table, names, cached table states, answers.
 *
 * A request lives in the arena of its HTTP request and runs on one fiber. What workers share is in tarn_iceberg: immutable
 * but for the list of workers and the count of running purges, which have a lock, and the cache of states, which has its own.
 * Commit lanes belong to a worker (a thread) and are reached through ice_worker_here().
 */
#ifndef TARN_ICEBERG_CATALOG_H
#define TARN_ICEBERG_CATALOG_H

#include <pthread.h>

#include "metadata.h"
#include "text.h"
#include "tarn/iceberg.h"

/* ------------------------------------------------------------------ limits */
#define ICE_BODY_SMALL_BYTES_MAX (1024u * 1024)      /* namespaces, renames, tokens … */
#define ICE_BODY_LARGE_BYTES_MAX (32u * 1024 * 1024) /* commits and creates */
#define ICE_SEGMENTS_MAX 16                          /* of a path */
#define ICE_NS_LEVEL_BYTES_MAX 255
#define ICE_PROPERTY_BYTES_MAX 65536             /* a key or a value */
#define ICE_NS_PROPERTIES_BYTES_MAX (256 * 1024) /* of one namespace, as JSON */
#define ICE_PAGE_SIZE_MAX 1000
#define ICE_LIST_BYTES_MAX (256u * 1024 * 1024)
#define ICE_CACHE_BYTES_DEFAULT (64u * 1024 * 1024)   /* states of tables, of all workers together */
#define ICE_CACHE_CHAINS 4096                         /* power of two */
#define ICE_COMMIT_TRIES_MAX 32                       /* lost races until a commit is given back to the client */
#define ICE_TX_TABLES_MAX 1000                        /* of one transactions/commit */
#define ICE_LOAD_ARENA_BYTES_MAX (256u * 1024 * 1024) /* scratch of reading a metadata file */
#define ICE_WORKERS_MAX 256
#define ICE_INLINE_BYTES_MAX (64 * 1024) /* metadata files up to this size lie in the row: one sync a commit */
#define ICE_POINTER_BYTES_MAX 4096       /* a metadata location */
#define ICE_PURGE_WAIT_MS 15000          /* deleting a warehouse waits for its purges */
#define ICE_PURGES_MAX 1024              /* at once */
#define ICE_CONTENTION_SLOTS 4096        /* power of two */
#define ICE_CONTENTION_MS 2000           /* a table that was fought for stays with its worker for so long */
#define ICE_RESERVE_WAIT_MS 1000         /* commits wait for a transaction in need at most so long */
#define ICE_NS_SEPARATOR '\x1f'
#define ICE_PREFIX "/_iceberg"

/* ------------------------------------------------------------------ shared */
typedef struct ice_worker ice_worker;
typedef struct ice_state ice_state;
typedef struct ice_cache {
    pthread_mutex_t lock;
    uint64_t bytes, bytes_max;
    tarn_link lru; /* least recent first */
    ice_state *chains[ICE_CACHE_CHAINS];
} ice_cache;
typedef struct ice_purge_count {
    uint64_t bucket_id;
    unsigned running;
} ice_purge_count;

struct tarn_iceberg {
    tarn_store *store;
    tarn_meta *meta;
    tarn_auth *auth;
    char *region;
    char *server_url;
    ice_cache cache;
    uint64_t serial;      /* tells instances apart in a thread's memory of its worker */
    pthread_mutex_t lock; /* below */
    ice_worker *workers[ICE_WORKERS_MAX];
    size_t workers_n;
    ice_purge_count purges[ICE_PURGES_MAX];
    size_t purges_n;
    /* by hash of a table's name, any thread, relaxed: a collision costs a detour and nothing else */
    uint64_t contended_ms[ICE_CONTENTION_SLOTS]; /* when workers last fought for it */
    uint32_t reserved[ICE_CONTENTION_SLOTS];     /* transactions that keep losing: commits hold back */
};

/* ------------------------------------------------------------------ the request in hand */
typedef struct ice_req ice_req;
typedef tarn_err (*ice_handler)(ice_req *q); /* OK: an answer has been sent; else the dispatcher sends q->e */

enum {
    ICE_R_LISTED = 1,     /* in the endpoints of GET /v1/config */
    ICE_R_LARGE = 2,      /* body up to ICE_BODY_LARGE_BYTES_MAX */
    ICE_R_JSON = 4,       /* the body is a JSON object: q->body */
    ICE_R_OPEN = 8,       /* no authentication: the handler has its own */
    ICE_R_WAREHOUSE = 16, /* {prefix} or {warehouse} must name a warehouse: q->wh */
    ICE_R_LOOSE = 32,     /* what is in the body does not matter */
};

typedef struct ice_route {
    const char *method;
    const char *path;   /* as in the specification, from /v1 on */
    const char *action; /* of the policy; NULL: the handler decides */
    ice_handler handler;
    unsigned flags;
} ice_route;
extern const ice_route ICE_ROUTES[];
extern const size_t ICE_ROUTES_N;

struct ice_req {
    tarn_iceberg *ice;
    tarn_req *http;
    tarn_arena *a;
    const ice_route *route;
    tarn_auth_result auth;
    tarn_bucket_row wh;
    tarn_str raw_warehouse, raw_ns, raw_name; /* segments of the path as they came; p NULL: none */
    tarn_str ns;                              /* levels joined by 0x1F; from the path */
    tarn_str name;                            /* table or view; from the path */
    json_t *body;
    tarn_sb body_text;
    ice_error e;
};

/* route.c */
typedef enum ice_match { ICE_MATCH, ICE_MATCH_METHOD, ICE_MATCH_NONE } ice_match;
/* Finds the row and fills in route and the raw segments; MATCH_METHOD: the path is known, the method is not (`allow` lists
 * those that are). */
ice_match ice_route_find(ice_req *q, tarn_str method, tarn_str path, tarn_sb *allow);
bool ice_reserved_prefix(tarn_str name);

/* ------------------------------------------------------------------ answers (respond.c) */
tarn_err ice_send_json(ice_req *q, int status, tarn_sb *b); /* LIMIT when the builder failed */
tarn_err ice_send_empty(ice_req *q, int status);
void ice_send_error(ice_req *q, tarn_err err);
void ice_error_json(tarn_sb *b, tarn_str message, const char *type, int code);
/* {"metadata-location": …, "metadata": …[, "config": {}]} with an ETag. */
tarn_err ice_send_metadata(ice_req *q, tarn_str location, tarn_str metadata_text, bool with_config, tarn_str etag);

/* ------------------------------------------------------------------ names (names.c) */
/* Decodes a raw path segment into levels joined by 0x1F; "" for an empty segment. plus: '+' means a blank. */
tarn_err ice_ns_decode(ice_req *q, tarn_str raw, bool plus, tarn_str *out);
tarn_err ice_name_decode(ice_req *q, tarn_str raw, bool plus, tarn_str *out);
/* Checks one level or name: 1 to 255 bytes of UTF-8, no controls, no slash, not "." or "..". */
tarn_err ice_check_name(ice_req *q, const char *what, tarn_str name);
tarn_err ice_check_ns(ice_req *q, tarn_str path);
/* A JSON list of strings → path; checked. */
tarn_err ice_ns_from_json(ice_req *q, const json_t *list, tarn_str *out);
/* {"namespace": [...], "name": "..."} */
tarn_err ice_identifier(ice_req *q, const json_t *object, tarn_str *ns, tarn_str *name);
void ice_ns_write_json(tarn_sb *b, tarn_str path);
tarn_str ice_ns_show(ice_req *q, tarn_str path);           /* a.b */
tarn_str ice_show(ice_req *q, tarn_str ns, tarn_str name); /* a.b.t */

typedef struct ice_page {
    bool on; /* pages were asked for */
    size_t size;
    tarn_str after; /* name to go on behind; "" = from the start */
} ice_page;

/* An answer that lists names, page by page where the client asks for pages. In the request's arena. */
typedef struct ice_list {
    ice_page page;
    char kind;
    tarn_str scope;
    tarn_sb b; /* the answer */
    size_t n;
    bool more;
    char last_memory[TARN_NS_PATH_BYTES_MAX + 1];
    tarn_sb last;
} ice_list;
/* kind and scope bind a page's token to the list that it came from. Reads what page is asked for, and begins the answer with the list
 * called `name`. */
tarn_err ice_list_begin(ice_req *q, char kind, tarn_str scope, const char *name, ice_list **out);
bool ice_list_next(ice_list *l);                 /* room for one more? Then the caller writes it, and */
bool ice_list_wrote(ice_list *l, tarn_str name); /* says behind which name the next page begins; false: stop */
/* Ends the answer and sends it, or gives err back. Frees what the list has. */
tarn_err ice_list_send(ice_req *q, ice_list *l, tarn_err err);

/* ------------------------------------------------------------------ states of tables and views (state.c, cache.c) */
struct ice_state {
    unsigned refs; /* atomic: an answer may be sent by another worker than the one that made the state */
    uint64_t entity_id, version;
    tarn_entity_kind kind;
    tarn_str pointer; /* own memory */
    ice_text text;    /* the metadata as JSON */
    json_t *metadata;
    size_t bytes;  /* for the cache's limit */
    tarn_link lru; /* the cache's */
    ice_state *chain;
    /* commits that are on their way: done is set when the outcome is known, and the waiters are woken */
    bool pending, failed;
    tarn_link waiters;
};
/* Takes over metadata and text, also when it fails; the pointer is copied. NULL when out of memory. */
ice_state *ice_state_new(const tarn_entity_row *row, json_t *metadata, ice_text *text);
tarn_str ice_state_text(const ice_state *s);
ice_state *ice_state_ref(ice_state *s);
void ice_state_unref(ice_state *s); /* NULL is fine */

void ice_cache_init(ice_cache *c, uint64_t bytes_max);
void ice_cache_free(ice_cache *c);
ice_state *ice_cache_get(ice_cache *c, uint64_t entity_id, uint64_t version); /* a reference, or NULL */
void ice_cache_put(ice_cache *c, ice_state *s);                               /* takes a reference of its own */
/* The state that the row points to: from the cache, else from the metadata file. The caller gets a reference. */
tarn_err ice_state_load(ice_req *q, const tarn_entity_row *row, ice_state **out);
/* A metadata file of the warehouse: its bytes (unpacked), in `a`. ICE_NOT_FOUND when it is not there. */
tarn_err ice_file_read(ice_req *q, tarn_str location, tarn_arena *a, tarn_str *out);
/* A metadata file that is to be written: prepared (durable), made visible by tarn_put_apply in the caller's transaction. */
/* row: what the table or view becomes; its pointer says where the file lies. */
tarn_err ice_file_prepare(ice_req *q, tarn_str ns, const tarn_entity_row *row, tarn_str text, bool gzip, tarn_put **out);

/* ------------------------------------------------------------------ workers */
typedef struct ice_lane {
    uint64_t key;
    tarn_fiber_lock lock;
    unsigned users, inflight;
    uint64_t generation; /* +1 whenever the tips so far are void */
    ice_state *tip;      /* the newest state of commits on their way; NULL: look into the database */
    tarn_entity_row row; /* of the tip; slices in row_memory */
    char *row_memory;
    struct ice_lane *chain;
} ice_lane;
ice_worker *ice_worker_here(tarn_iceberg *ice); /* NULL when out of memory or places */
void ice_worker_free(ice_worker *w);
uint64_t ice_lane_key(uint64_t bucket_id, tarn_str ns, tarn_str name);
ice_lane *ice_lane_enter(ice_worker *w, uint64_t key); /* NULL: out of memory */
void ice_lane_leave(ice_worker *w, ice_lane *l);
tarn_loop *ice_worker_loop(const ice_worker *w); /* NULL: made outside of a loop */
/* contention.c: which worker a table belongs to while workers fight for it. NULL: this one, or there is no other. */
ice_worker *ice_owner(tarn_iceberg *ice, const ice_worker *here, uint64_t key);
bool ice_contended(const tarn_iceberg *ice, uint64_t key);
void ice_contended_mark(tarn_iceberg *ice, uint64_t key);
void ice_reserve(tarn_iceberg *ice, uint64_t key, bool on);
void ice_hold_back(const tarn_iceberg *ice, uint64_t key); /* parks while a transaction needs the table, not for long */
/* Runs fn(arg) on a fiber of the other worker and parks until it has ended; false: not possible, nothing has run. */
bool ice_run_at(ice_worker *w, void (*fn)(void *arg), void *arg);

/* ------------------------------------------------------------------ common steps */
/* q->wh by name; "" = the only one there is. ICE_NO_WAREHOUSE. */
tarn_err ice_warehouse_find(ice_req *q, tarn_str name);
tarn_str ice_warehouse_root(ice_req *q); /* "s3://bucket/" */
void ice_ctx_fill(ice_req *q, tarn_str base_location, ice_ctx *out);
/* The entity of the path, of that kind; else 404 with the kind's words. */
tarn_err ice_entity(ice_req *q, tarn_entity_kind kind, tarn_entity_row *out);
tarn_err ice_no_such(ice_req *q, tarn_entity_kind kind, tarn_str ns, tarn_str name);
/* "Table already exists: a.t", or the words for a taken name of the other kind. */
tarn_err ice_taken(ice_req *q, tarn_entity_kind wanted, tarn_entity_kind there, tarn_str ns, tarn_str name);
tarn_err ice_no_namespace(ice_req *q, tarn_str ns);
/* The namespace of the path: ICE_NO_NAMESPACE with words. */
tarn_err ice_namespace(ice_req *q, tarn_ns_row *out);
/* A transaction whose function returned OK but whose commit failed: nobody knows (ICE_STATE_UNKNOWN). */
tarn_err ice_commit_outcome(ice_req *q, tarn_err err, bool fn_ok);
/* May the caller do `action` on the resource ("" = the warehouse; else "table/<uuid>")? */
tarn_err ice_authorise(ice_req *q, const char *action, tarn_str part);
bool ice_param_true(ice_req *q, const char *name); /* true, True, TRUE */
tarn_str ice_now_uuid(ice_req *q);                 /* a fresh uuid in the arena */
/* Writes and inserts a new entity in one transaction. */
tarn_err ice_entity_create(ice_req *q, tarn_entity_row *row, const json_t *metadata, tarn_str text, const char *codec_property);
/* Metadata as the text of its file. */
tarn_err ice_metadata_text(ice_req *q, const json_t *metadata, tarn_sb *out);
/* The same for a state; what it shares with the base (NULL: none) is copied from the base's text. */
tarn_err ice_state_write(ice_req *q, const json_t *metadata, const ice_state *base, ice_text *out);

/* purge.c: frees what a dropped table or view left, on a fiber of its own. The row is in the database. */
void ice_purge_start(tarn_iceberg *ice, const tarn_purge_row *row);
/* Waits until no purge of the bucket runs; false when the time is up. */
bool ice_purge_wait(tarn_iceberg *ice, uint64_t bucket_id, uint64_t timeout_ms);
tarn_err ice_purge_all(ice_req *q);                         /* every object of the warehouse */
void ice_delete_files(ice_req *q, const json_t *locations); /* texts; failures are logged */

/* ------------------------------------------------------------------ handlers */
tarn_err ice_h_config(ice_req *q);
tarn_err ice_h_warehouse_create(ice_req *q);
tarn_err ice_h_warehouse_list(ice_req *q);
tarn_err ice_h_warehouse_get(ice_req *q);
tarn_err ice_h_warehouse_delete(ice_req *q);
tarn_err ice_h_ns_list(ice_req *q);
tarn_err ice_h_ns_create(ice_req *q);
tarn_err ice_h_ns_get(ice_req *q);
tarn_err ice_h_ns_head(ice_req *q);
tarn_err ice_h_ns_delete(ice_req *q);
tarn_err ice_h_ns_properties(ice_req *q);
tarn_err ice_h_table_list(ice_req *q);
tarn_err ice_h_table_create(ice_req *q);
tarn_err ice_h_table_load(ice_req *q);
tarn_err ice_h_table_head(ice_req *q);
tarn_err ice_h_table_commit(ice_req *q);
tarn_err ice_h_table_drop(ice_req *q);
tarn_err ice_h_table_register(ice_req *q);
tarn_err ice_h_table_rename(ice_req *q);
tarn_err ice_h_table_metrics(ice_req *q);
tarn_err ice_h_transaction(ice_req *q);
tarn_err ice_h_view_list(ice_req *q);
tarn_err ice_h_view_create(ice_req *q);
tarn_err ice_h_view_load(ice_req *q);
tarn_err ice_h_view_head(ice_req *q);
tarn_err ice_h_view_replace(ice_req *q);
tarn_err ice_h_view_drop(ice_req *q);
tarn_err ice_h_view_rename(ice_req *q);
tarn_err ice_h_view_register(ice_req *q);
tarn_err ice_h_token(ice_req *q);

#endif
