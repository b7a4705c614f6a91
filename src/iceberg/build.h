/* SPDX-License-Identifier: Apache-2.0 */
/*
 * iceberg, metadata in the making: the state of one apply, private to the metadata engine.
 *
 * Invariant 1: `md` is this build's own top object; a child may be changed only after ice_own() has made it this build's own.
 * Invariant 2: the base is never changed.
 */
#ifndef TARN_ICEBERG_BUILD_H
#define TARN_ICEBERG_BUILD_H

#include "metadata.h"
#include "spec.h"

/* A set of snapshot ids in an arena. */
typedef struct ice_id_set {
    int64_t *slots; /* open addressing */
    bool *used;
    size_t cap, n;
} ice_id_set;
bool ice_id_set_has(const ice_id_set *s, int64_t id);
tarn_err ice_id_set_add(tarn_arena *a, ice_id_set *s, int64_t id);

/* Children of the top object that an apply changes. */
typedef enum ice_part {
    ICE_PART_SCHEMAS,
    ICE_PART_SPECS,
    ICE_PART_ORDERS,
    ICE_PART_PROPERTIES,
    ICE_PART_REFS,
    ICE_PART_SNAPSHOTS,
    ICE_PART_STATISTICS,
    ICE_PART_PARTITION_STATISTICS,
    ICE_PART_SNAPSHOT_LOG,
    ICE_PART_METADATA_LOG,
    ICE_PART_KEYS,
    ICE_PART_VERSIONS,
    ICE_PART_VERSION_LOG,
    ICE_PART_COUNT
} ice_part;
const char *ice_part_key(ice_part p);

typedef struct ice_build {
    const ice_ctx *ctx;
    ice_error *e;
    const json_t *base;
    json_t *md;
    int64_t format;
    bool changed;
    uint32_t owned; /* bit per ice_part */
    /* what -1 means; ICE_LAST_ADDED while nothing was added */
    int64_t last_schema, last_spec, last_order, last_version;
    ice_id_set snapshots; /* all ids of the table; made at first use */
    bool has_snapshots;
    ice_id_set added;  /* snapshots added here */
    int64_t *main_ids; /* what main was set to here, in order; room for main_cap */
    size_t main_n, main_cap;
    bool removed_snapshots;
    ice_schema schema; /* index of the current schema, valid while schema_of is it */
    const json_t *schema_of;
} ice_build;

/* The child for reading; NULL when absent. */
json_t *ice_child(const ice_build *b, ice_part p);
/* The child as this build's own, made empty when it was absent. */
tarn_err ice_own(ice_build *b, ice_part p, json_t **out);
/* Puts a new child in place of the old one; takes over `value`. */
tarn_err ice_replace(ice_build *b, ice_part p, json_t *value);

/* The entry of a list of objects whose `key` is `id`; NULL when absent. */
json_t *ice_find(const json_t *list, const char *key, int64_t id);
int64_t ice_highest(const json_t *list, const char *key); /* -1 for an empty list */

json_t *ice_current_schema(const ice_build *b);
tarn_err ice_current_index(ice_build *b, const ice_schema **out); /* index over the current schema */
int64_t ice_current_snapshot(const json_t *md);                   /* -1: none */
tarn_err ice_set_current_snapshot(ice_build *b, int64_t id);
tarn_err ice_snapshot_ids(ice_build *b, const ice_id_set **out);

/* New list without the entries whose `key` is in ids; *removed how many went. */
tarn_err ice_drop_entries(ice_build *b, ice_part p, const char *key, const ice_id_set *ids, size_t *removed);
/* An array of integers from a request → set. */
tarn_err ice_read_id_list(ice_build *b, const json_t *update, const char *what, const char *key, ice_id_set *out);

/* One kind of update. */
typedef struct ice_update_row {
    const char *action;
    tarn_err (*apply)(ice_build *b, const json_t *update);
} ice_update_row;
tarn_err ice_apply_updates(ice_build *b, const json_t *updates, const ice_update_row *rows, size_t rows_n);

/* schemas, specs, orders */
tarn_err ice_up_add_schema(ice_build *b, const json_t *u);
tarn_err ice_up_set_current_schema(ice_build *b, const json_t *u);
tarn_err ice_up_remove_schemas(ice_build *b, const json_t *u);
tarn_err ice_up_add_spec(ice_build *b, const json_t *u);
tarn_err ice_up_set_default_spec(ice_build *b, const json_t *u);
tarn_err ice_up_remove_specs(ice_build *b, const json_t *u);
tarn_err ice_up_add_order(ice_build *b, const json_t *u);
tarn_err ice_up_set_default_order(ice_build *b, const json_t *u);
/* snapshots */
tarn_err ice_up_add_snapshot(ice_build *b, const json_t *u);
tarn_err ice_up_set_ref(ice_build *b, const json_t *u);
tarn_err ice_up_remove_ref(ice_build *b, const json_t *u);
tarn_err ice_up_remove_snapshots(ice_build *b, const json_t *u);
tarn_err ice_update_snapshot_log(ice_build *b);
/* the rest */
tarn_err ice_up_assign_uuid(ice_build *b, const json_t *u);
tarn_err ice_up_upgrade_format(ice_build *b, const json_t *u);
tarn_err ice_up_set_location(ice_build *b, const json_t *u);
tarn_err ice_up_set_properties(ice_build *b, const json_t *u);
tarn_err ice_up_remove_properties(ice_build *b, const json_t *u);
tarn_err ice_up_set_statistics(ice_build *b, const json_t *u);
tarn_err ice_up_remove_statistics(ice_build *b, const json_t *u);
tarn_err ice_up_set_partition_statistics(ice_build *b, const json_t *u);
tarn_err ice_up_remove_partition_statistics(ice_build *b, const json_t *u);
tarn_err ice_up_add_key(ice_build *b, const json_t *u);
tarn_err ice_up_remove_key(ice_build *b, const json_t *u);

/* Adds a schema to md, or finds the equal one: *id. Shared by tables and views. */
tarn_err ice_put_schema(ice_build *b, const json_t *schema, bool check_format, int64_t *id);
/* Fields that are always there, v1's old fields, current-snapshot-id in the version's own way. md is changed in place. */
tarn_err ice_complete_table(ice_build *b);

#endif
