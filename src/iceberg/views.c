/* SPDX-License-Identifier: Apache-2.0 */
/*
 * iceberg, views: create, load, exists. List, drop and rename share the tables' steps (table.c), replace the commits'
 * (commit.c), register its own file's (register.c).
 */
#include "catalog.h"

tarn_err ice_h_view_create(ice_req *q)
{
    tarn_ns_row ns;
    tarn_entity_row row = {.kind = TARN_ENTITY_VIEW}, there;
    ice_ctx ctx;
    json_t *md = NULL;
    tarn_sb text;
    ICE_TRY(ice_namespace(q, &ns));
    ICE_TRY(ice_get_string(q->body, "create view request", "name", &q->name, &q->e));
    ICE_TRY(ice_check_name(q, "name", q->name));
    if (tarn_meta_entity_get(q->ice->meta, NULL, q->wh.id, q->ns, q->name, q->a, &there) == TARN_OK)
        return ice_taken(q, TARN_ENTITY_VIEW, there.kind, q->ns, q->name);
    ice_ctx_fill(q, TARN_STR(""), &ctx);
    ICE_TRY(ice_view_create(q->body, ice_now_uuid(q), &ctx, &md, &q->e));
    tarn_err err = ice_metadata_text(q, md, &text);
    if (err == TARN_OK) {
        row.uuid = ice_string_or_empty(md, "view-uuid");
        err = ice_entity_create(q, &row, md, tarn_sb_view(&text), "write.metadata.compression-codec");
        if (err == TARN_OK)
            err = ice_send_metadata(q, row.pointer, tarn_sb_view(&text), true, TARN_STR(""));
        tarn_sb_free(&text);
    }
    json_decref(md);
    return err;
}

tarn_err ice_h_view_load(ice_req *q)
{
    tarn_entity_row row;
    ice_state *s = NULL;
    ICE_TRY(ice_entity(q, TARN_ENTITY_VIEW, &row));
    ICE_TRY(ice_state_load(q, &row, &s));
    tarn_err err = ice_send_metadata(q, s->pointer, ice_state_text(s), true, TARN_STR(""));
    ice_state_unref(s);
    return err;
}

tarn_err ice_h_view_head(ice_req *q)
{
    tarn_entity_row row;
    ICE_TRY(ice_entity(q, TARN_ENTITY_VIEW, &row));
    return ice_send_empty(q, 204);
}
