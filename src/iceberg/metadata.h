/* SPDX-License-Identifier: Apache-2.0 */
/*
 * iceberg, the metadata engine: pure functions from metadata and a request to new metadata (format versions 1, 2 and 3).
 *
 * Metadata is a json_t that nobody changes: an apply makes a new top object, shares what stays and copies what changes.
 * Nothing here reads a clock, a file or a socket: time, names and limits of the place come in ice_ctx.
 */
#ifndef TARN_ICEBERG_METADATA_H
#define TARN_ICEBERG_METADATA_H

#include "schema.h"

/* ------------------------------------------------------------------ limits */
#define ICE_UPDATES_MAX 100000 /* in one commit */
#define ICE_REQUIREMENTS_MAX 10000
#define ICE_REF_NAME_BYTES_MAX 1024
#define ICE_CLOCK_TOLERANCE_MS 60000 /* readers refuse logs that are out of order by more */
#define ICE_METADATA_LOG_DEFAULT 100
#define ICE_VIEW_HISTORY_DEFAULT 10

#define ICE_MAIN_BRANCH "main"
#define ICE_LAST_ADDED (-1)

/* ------------------------------------------------------------------ what an apply needs to know */
typedef struct ice_ctx {
    tarn_arena *arena; /* scratch memory; nothing in the result points into it */
    int64_t now_ms;
    tarn_str warehouse_root; /* "s3://bucket/": every location lies below it; "" = locations are not checked (tools, tests) */
    tarn_str base_location;  /* where the base's metadata file is; "" for a create */
} ice_ctx;

typedef struct ice_result {
    json_t *metadata; /* a reference for the caller; the base itself when nothing changed */
    bool changed;
    json_t *expired_files; /* texts: metadata files that fell off the log and are to be deleted; NULL = none */
} ice_result;
void ice_result_release(ice_result *r);

/* ------------------------------------------------------------------ tables */
/* New metadata from a CreateTableRequest: fresh ids, defaults, reserved properties removed. `uuid`: 36 characters.
 * staged: the property created-at is added, nothing else differs. */
tarn_err ice_table_create(const json_t *request, tarn_str uuid, bool staged, const ice_ctx *ctx, json_t **out, ice_error *e);
/*
 * A commit. base NULL: the table does not exist (requirements must be assert-create alone). requirements may be NULL.
 * Failed requirements and everything that a refresh could heal: ICE_COMMIT_FAILED.
 */
tarn_err ice_table_apply(const json_t *base, const json_t *requirements, const json_t *updates, const ice_ctx *ctx, ice_result *out,
                         ice_error *e);
/* Requirements alone; base NULL: the table does not exist. */
tarn_err ice_check_requirements(const json_t *base, const json_t *requirements, ice_error *e);
bool ice_has_assert_create(const json_t *requirements);
/*
 * Metadata that was read from a file: checked as readers check it, old v1 forms brought to today's, the fields that are
 * always there added. The result shares what it can with `raw`. strict: schemas, specs and statistics are looked into as well
 * (files that this server has not written).
 */
tarn_err ice_table_load(const json_t *raw, bool strict, tarn_arena *a, json_t **out, ice_error *e);
/* snapshots=refs: only snapshots that a ref points to, and their statistics. */
tarn_err ice_table_refs_only(const json_t *metadata, json_t **out);

/* ------------------------------------------------------------------ views */
tarn_err ice_view_create(const json_t *request, tarn_str uuid, const ice_ctx *ctx, json_t **out, ice_error *e);
tarn_err ice_view_apply(const json_t *base, const json_t *requirements, const json_t *updates, const ice_ctx *ctx, ice_result *out,
                        ice_error *e);
tarn_err ice_view_load(const json_t *raw, json_t **out, ice_error *e);

/* ------------------------------------------------------------------ places */
/* The integer that a property holds, or `fallback` when it is absent or no integer. */
int64_t ice_property_int(const json_t *metadata, const char *name, int64_t fallback);
bool ice_property_true(const json_t *metadata, const char *name);
/* Name of the next metadata file: <write.metadata.path or location/metadata>/%05d-<uuid>.metadata.json, numbered after
 * previous ("" = 00000). gzip when the table asks for it. */
void ice_metadata_file_name(const json_t *metadata, tarn_str previous, const char *property_codec, tarn_sb *out, bool *gzip);
/*
 * Where may data of the warehouse lie? *use false: another kind of place (file:, a plain path), which the server replaces
 * by its own; an s3 place outside the warehouse is an error. `location` comes back without slashes at its end.
 */
tarn_err ice_location_check(const ice_ctx *ctx, tarn_str *location, bool *use, ice_error *e);
/* write.data.path and its like must lie inside the warehouse. */
tarn_err ice_check_path_properties(const ice_ctx *ctx, const json_t *properties, ice_error *e);
/* "s3://bucket/key" (s3a, s3n too) → bucket and key. */
bool ice_s3_split(tarn_str location, tarn_str *bucket, tarn_str *key);

#endif
