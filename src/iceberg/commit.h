/* SPDX-License-Identifier: Apache-2.0 */
/*
 * iceberg, a commit in the making: shared by single commits and by multi-table transactions.
 */
#ifndef TARN_ICEBERG_COMMIT_H
#define TARN_ICEBERG_COMMIT_H

#include "catalog.h"

typedef struct ice_commit {
    ice_req *q;
    tarn_entity_kind kind;
    tarn_str ns, name;
    json_t *requirements, *updates; /* borrowed; requirements may be NULL */
    const char *codec_property;
    uint64_t key; /* of its lane */
    bool away;    /* runs on another worker than its request: the connection is not to be touched */
    /* of the try in hand */
    uint64_t generation;  /* of the lane when the base was chosen */
    bool on_tip;          /* the base was on its way then */
    ice_state *base;      /* a reference */
    tarn_entity_row row;  /* what the base is */
    tarn_entity_row next; /* what it shall become */
    ice_state *made;      /* a reference; NULL: nothing changes */
    tarn_put *put;        /* the new metadata file, prepared */
    tarn_put_result put_result;
    bool fn_ok;      /* the transaction's function ran to its end */
    json_t *expired; /* metadata files to delete afterwards */
} ice_commit;

tarn_err ice_commit_base(ice_commit *c); /* row and base as the database has them; ICE_NO_TABLE stays as it is */
/* From base and row: made, next, put. Leaves made NULL when nothing changes. */
tarn_err ice_commit_build(ice_commit *c);
/* Inside a transaction: the pointer moves where it still is what the base was; ICE_COMMIT_FAILED for a lost race. */
tarn_err ice_commit_swap(tarn_meta_tx *tx, ice_commit *c);
/* All tries: made is the state that stands afterwards. ICE_NO_TABLE stays as it is for a create. */
tarn_err ice_commit_run(ice_commit *c);
void ice_commit_release(ice_commit *c);
tarn_err ice_commit_build_create(ice_commit *c, json_t **metadata);
tarn_str ice_etag(ice_req *q, const tarn_entity_row *row, const char *mode);

#endif
