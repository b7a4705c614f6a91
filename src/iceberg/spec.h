/* SPDX-License-Identifier: Apache-2.0 */
/*
 * iceberg, partition specs and sort orders: read, bound to a schema, compared, written in the form that readers need.
 */
#ifndef TARN_ICEBERG_SPEC_H
#define TARN_ICEBERG_SPEC_H

#include "schema.h"

#define ICE_PARTITION_ID_START 1000
#define ICE_SPEC_FIELDS_MAX 1000
#define ICE_SORT_ORDER_UNSORTED 0
#define ICE_SORT_ORDER_FIRST 1

/* What a spec is bound with. */
typedef struct ice_spec_bind {
    const ice_schema *schema;
    const ice_id_map *map;     /* source ids are translated; NULL: as they are */
    const json_t *known_specs; /* field ids of equal fields are taken from here; NULL: none */
    int64_t last_partition_id; /* ids are given out above it */
    int64_t format_version;    /* v1 needs ids in a row from 1000 */
    bool fresh_ids;            /* ids of the request do not count */
} ice_spec_bind;
/*
 * spec: {"spec-id"?, "fields"} or NULL (unpartitioned). *out: {"spec-id": spec_id, "fields": […]}, all fields with field-id.
 * *highest: the highest field id, 999 without fields.
 */
tarn_err ice_spec_make(const json_t *spec, int64_t spec_id, const ice_spec_bind *bind, json_t **out, int64_t *highest, ice_error *e);
/* Same length and, place by place, the same source, transform and name. */
bool ice_spec_compatible(const json_t *a, const json_t *b);

/* order NULL or without fields: unsorted, id 0. */
tarn_err ice_order_make(const json_t *order, int64_t order_id, const ice_schema *schema, const ice_id_map *map, json_t **out, ice_error *e);
bool ice_order_same(const json_t *a, const json_t *b);
bool ice_order_unsorted(const json_t *order);

#endif
