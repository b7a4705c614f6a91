/* SPDX-License-Identifier: Apache-2.0 */
/*
 * iceberg, updates of snapshots, refs and the snapshot log.
 *
 * What another commit may have caused (a sequence number or a row id that is too old) is ICE_COMMIT_FAILED, so that the
 * client refreshes and tries again; what no refresh can heal is ICE_VALIDATION.
 *
 * The snapshot log tells what main pointed to and since when. Readers refuse a log whose entries go back by more than a
 * minute, so an entry is never older than the one before it by more; and a snapshot from a clock that is more than a
 * minute ahead can't become current, as every correct clock after it would be refused.
 */
#include "build.h"
#include "entry.h"

/* ------------------------------------------------------------------ add-snapshot */
static tarn_err check_sequence(ice_build *b, const json_t *snapshot, bool has_parent)
{
    int64_t last = ice_int_or(b->md, "last-sequence-number", 0), seq = 0;
    bool has = false;
    ICE_TRY(ice_opt_int(snapshot, "snapshot", "sequence-number", &has, &seq, b->e));
    if (seq < 0)
        return ice_fail(b->e, TARN_E_ICE_BAD_REQUEST, "Invalid sequence number (cannot be negative): %lld", (long long)seq);
    if (b->format == 1) {
        if (seq != 0)
            return ice_fail(b->e, TARN_E_ICE_VALIDATION, "Sequence number must be 0 in v1: %lld", (long long)seq);
        return TARN_OK;
    }
    if (seq <= last && has_parent)
        return ice_fail(b->e, TARN_E_ICE_COMMIT_FAILED,
                        "Cannot add snapshot with sequence number %lld older than last sequence number %lld", (long long)seq,
                        (long long)last);
    return seq > last ? ice_set_int(b->md, "last-sequence-number", seq) : TARN_OK;
}

static tarn_err check_row_ids(ice_build *b, const json_t *snapshot)
{
    bool has_first = false, has_rows = false;
    int64_t first = 0, rows = 0, next = ice_int_or(b->md, "next-row-id", 0);
    ICE_TRY(ice_opt_int(snapshot, "snapshot", "first-row-id", &has_first, &first, b->e));
    ICE_TRY(ice_opt_int(snapshot, "snapshot", "added-rows", &has_rows, &rows, b->e));
    if (has_first && first < 0)
        return ice_fail(b->e, TARN_E_ICE_BAD_REQUEST, "Invalid first-row-id (cannot be negative): %lld", (long long)first);
    if (has_rows && rows < 0)
        return ice_fail(b->e, TARN_E_ICE_BAD_REQUEST, "Invalid added-rows (cannot be negative): %lld", (long long)rows);
    if (has_first && !has_rows)
        return ice_fail(b->e, TARN_E_ICE_BAD_REQUEST, "Invalid added-rows (required when first-row-id is set): null");
    if (b->format < 3)
        return TARN_OK;
    if (!has_first)
        return ice_fail(b->e, TARN_E_ICE_VALIDATION, "Cannot add a snapshot: first-row-id is null");
    if (first < next)
        return ice_fail(b->e, TARN_E_ICE_COMMIT_FAILED, "Cannot add a snapshot, first-row-id is behind table next-row-id: %lld < %lld",
                        (long long)first, (long long)next);
    if (rows > INT64_MAX - first)
        return ice_fail(b->e, TARN_E_ICE_BAD_REQUEST, "Invalid added-rows: row ids are exhausted");
    return ice_set_int(b->md, "next-row-id", first + rows);
}

static tarn_err check_shape(ice_build *b, const json_t *snapshot, int64_t *id, int64_t *parent)
{
    int64_t time = 0, schema = 0;
    bool has = false;
    tarn_str list = TARN_STR_NULL;
    json_t *summary = NULL;
    ICE_TRY(ice_get_int(snapshot, "snapshot", "snapshot-id", id, b->e));
    ICE_TRY(ice_get_int(snapshot, "snapshot", "timestamp-ms", &time, b->e));
    ICE_TRY(ice_opt_int(snapshot, "snapshot", "parent-snapshot-id", &has, parent, b->e));
    if (!has)
        *parent = -1;
    ICE_TRY(ice_opt_string(snapshot, "snapshot", "manifest-list", &list, b->e));
    if (!list.p && !(b->format == 1 && json_is_array(ice_get(snapshot, "manifests"))))
        return ice_fail(b->e, TARN_E_ICE_BAD_REQUEST, "Cannot parse snapshot: field manifest-list is missing");
    ICE_TRY(ice_opt_object(snapshot, "snapshot", "summary", &summary, b->e));
    if (summary)
        ICE_TRY(ice_check_string_map(summary, "snapshot summary", b->e));
    ICE_TRY(ice_opt_int32(snapshot, "snapshot", "schema-id", &has, &schema, b->e));
    if (*id < 0)
        return ice_fail(b->e, TARN_E_ICE_BAD_REQUEST, "Invalid snapshot id (cannot be negative): %lld", (long long)*id);
    return TARN_OK;
}

/* A copy as strict readers need it: no null or -1 parent, no zero sequence number, an operation in the summary. */
static tarn_err clean_snapshot(const json_t *snapshot, int64_t parent, json_t **out)
{
    json_t *c = json_copy((json_t *)(uintptr_t)snapshot);
    json_t *old = ice_get(snapshot, "summary");
    tarn_err err = c ? TARN_OK : TARN_E_NO_MEMORY;
    static const char *const optional[] = {"schema-id", "sequence-number", "first-row-id", "added-rows", "key-id"};
    for (size_t i = 0; err == TARN_OK && i < TARN_ARRAY_LEN(optional); i++)
        if (json_is_null(json_object_get(c, optional[i])))
            json_object_del(c, optional[i]);
    if (err == TARN_OK && parent < 0)
        json_object_del(c, "parent-snapshot-id");
    if (err == TARN_OK && ice_int_or(c, "sequence-number", 0) == 0)
        json_object_del(c, "sequence-number");
    if (err == TARN_OK && !ice_get(old, "operation")) {
        json_t *summary = old ? json_copy(old) : json_object();
        err = summary ? ice_set_str(summary, "operation", TARN_STR("overwrite")) : TARN_E_NO_MEMORY;
        if (err == TARN_OK)
            err = ice_set(c, "summary", summary);
        else
            json_decref(summary);
    }
    if (err != TARN_OK) {
        json_decref(c);
        return err;
    }
    *out = c;
    return TARN_OK;
}

tarn_err ice_up_add_snapshot(ice_build *b, const json_t *u)
{
    json_t *snapshot = NULL, *clean = NULL, *list = NULL;
    const ice_id_set *ids = NULL;
    int64_t id = 0, parent = -1;
    ICE_TRY(ice_get_object(u, "add-snapshot", "snapshot", &snapshot, b->e));
    ICE_TRY(check_shape(b, snapshot, &id, &parent));
    if (!ice_child(b, ICE_PART_SCHEMAS))
        return ice_fail(b->e, TARN_E_ICE_VALIDATION, "Attempting to add a snapshot before a schema is added");
    ICE_TRY(ice_snapshot_ids(b, &ids));
    if (ice_id_set_has(ids, id))
        return ice_fail(b->e, TARN_E_ICE_VALIDATION, "Snapshot already exists for id: %lld", (long long)id);
    ICE_TRY(check_sequence(b, snapshot, parent >= 0));
    ICE_TRY(check_row_ids(b, snapshot));
    ICE_TRY(ice_id_set_add(b->ctx->arena, &b->snapshots, id));
    ICE_TRY(ice_id_set_add(b->ctx->arena, &b->added, id));
    ICE_TRY(ice_own(b, ICE_PART_SNAPSHOTS, &list));
    ICE_TRY(clean_snapshot(snapshot, parent, &clean));
    b->changed = true;
    return ice_entry_push(list, clean);
}

/* ------------------------------------------------------------------ refs */
static tarn_err read_retention(ice_build *b, const json_t *u, bool tag, json_t *ref)
{
    static const struct {
        const char *key, *tag_message, *low_message;
    } rows[] = {
        {"min-snapshots-to-keep", "Tags do not support setting minSnapshotsToKeep", "Min snapshots to keep must be greater than 0"},
        {"max-snapshot-age-ms", "Tags do not support setting maxSnapshotAgeMs", "Max snapshot age must be greater than 0 ms"},
        {"max-ref-age-ms", NULL, "Max reference age must be greater than 0"},
    };
    for (size_t i = 0; i < TARN_ARRAY_LEN(rows); i++) {
        bool has = false;
        int64_t v = 0;
        ICE_TRY(ice_opt_int(u, "set-snapshot-ref", rows[i].key, &has, &v, b->e));
        if (!has)
            continue;
        if (tag && rows[i].tag_message)
            return ice_fail(b->e, TARN_E_ICE_VALIDATION, "%s", rows[i].tag_message);
        if (v <= 0)
            return ice_fail(b->e, TARN_E_ICE_VALIDATION, "%s", rows[i].low_message);
        ICE_TRY(ice_set_int(ref, rows[i].key, v));
    }
    return TARN_OK;
}

static tarn_err read_ref(ice_build *b, const json_t *u, json_t *ref, tarn_str *name, int64_t *snapshot_id)
{
    tarn_str type = TARN_STR_NULL;
    ICE_TRY(ice_get_string(u, "set-snapshot-ref", "ref-name", name, b->e));
    ICE_TRY(ice_get_string(u, "set-snapshot-ref", "type", &type, b->e));
    ICE_TRY(ice_get_int(u, "set-snapshot-ref", "snapshot-id", snapshot_id, b->e));
    bool tag = tarn_str_ieqc(type, "tag");
    if (!tag && !tarn_str_ieqc(type, "branch"))
        return ice_fail(b->e, TARN_E_ICE_BAD_REQUEST, "Invalid snapshot ref type: %.*s", TARN_STR_ARG(type));
    if (name->n == 0 || name->n > ICE_REF_NAME_BYTES_MAX)
        return ice_fail(b->e, TARN_E_ICE_BAD_REQUEST, "Invalid ref name: 1 to %d bytes are allowed", ICE_REF_NAME_BYTES_MAX);
    if (tag && tarn_str_eqc(*name, ICE_MAIN_BRANCH))
        return ice_fail(b->e, TARN_E_ICE_VALIDATION, "Cannot set main to a tag: it must be a branch");
    ICE_TRY(ice_set_int(ref, "snapshot-id", *snapshot_id));
    ICE_TRY(ice_set_str(ref, "type", tarn_str_of(tag ? "tag" : "branch")));
    return read_retention(b, u, tag, ref);
}

/* main points to another snapshot: current-snapshot-id and the log follow. */
static tarn_err log_main(ice_build *b, int64_t id)
{
    json_t *log = NULL, *entry = json_object();
    int64_t at = b->ctx->now_ms;
    tarn_err err = entry ? ice_own(b, ICE_PART_SNAPSHOT_LOG, &log) : TARN_E_NO_MEMORY;
    if (err == TARN_OK && ice_id_set_has(&b->added, id))
        at = ice_int_or(ice_find(ice_child(b, ICE_PART_SNAPSHOTS), "snapshot-id", id), "timestamp-ms", at);
    if (err == TARN_OK && at > b->ctx->now_ms + ICE_CLOCK_TOLERANCE_MS)
        err = ice_fail(b->e, TARN_E_ICE_VALIDATION,
                       "Invalid snapshot timestamp %lld: more than a minute ahead of the server's clock %lld; set the client's clock",
                       (long long)at, (long long)b->ctx->now_ms);
    if (err == TARN_OK && json_array_size(log) > 0) {
        int64_t last = ice_int_or(json_array_get(log, json_array_size(log) - 1), "timestamp-ms", at);
        if (at < last - ICE_CLOCK_TOLERANCE_MS)
            at = last;
    }
    if (err == TARN_OK)
        err = ice_set_int(entry, "timestamp-ms", at);
    if (err == TARN_OK)
        err = ice_set_int(entry, "snapshot-id", id);
    if (err != TARN_OK) {
        json_decref(entry);
        return err;
    }
    ICE_TRY(ice_entry_push(log, entry));
    return ice_set_current_snapshot(b, id);
}

static tarn_err note_main(ice_build *b, int64_t id)
{
    if (b->main_n == b->main_cap) {
        size_t cap = b->main_cap ? b->main_cap * 2 : 8;
        int64_t *more = TARN_ARENA_ARRAY(b->ctx->arena, int64_t, cap);
        if (!more)
            return TARN_E_NO_MEMORY;
        for (size_t i = 0; i < b->main_n; i++)
            more[i] = b->main_ids[i];
        b->main_ids = more;
        b->main_cap = cap;
    }
    b->main_ids[b->main_n++] = id;
    return TARN_OK;
}

tarn_err ice_up_set_ref(ice_build *b, const json_t *u)
{
    json_t *ref = json_object(), *refs = NULL;
    tarn_str name = TARN_STR_NULL;
    int64_t id = 0;
    const ice_id_set *ids = NULL;
    tarn_err err = ref ? read_ref(b, u, ref, &name, &id) : TARN_E_NO_MEMORY;
    if (err == TARN_OK && json_equal(json_object_getn(ice_child(b, ICE_PART_REFS), name.p, name.n), ref)) {
        json_decref(ref);
        return TARN_OK;
    }
    if (err == TARN_OK)
        err = ice_snapshot_ids(b, &ids);
    if (err == TARN_OK && !ice_id_set_has(ids, id))
        err = ice_fail(b->e, TARN_E_ICE_VALIDATION, "Cannot set %.*s to unknown snapshot: %lld", TARN_STR_ARG(name), (long long)id);
    if (err == TARN_OK && tarn_str_eqc(name, ICE_MAIN_BRANCH))
        err = log_main(b, id);
    if (err == TARN_OK && tarn_str_eqc(name, ICE_MAIN_BRANCH))
        err = note_main(b, id);
    if (err == TARN_OK)
        err = ice_own(b, ICE_PART_REFS, &refs);
    if (err != TARN_OK) {
        json_decref(ref);
        return err;
    }
    b->changed = true;
    return json_object_setn_new(refs, name.p, name.n, ref) == 0 ? TARN_OK : TARN_E_NO_MEMORY;
}

static tarn_err remove_ref(ice_build *b, tarn_str name)
{
    json_t *refs = NULL;
    if (!json_object_getn(ice_child(b, ICE_PART_REFS), name.p, name.n))
        return TARN_OK;
    ICE_TRY(ice_own(b, ICE_PART_REFS, &refs));
    if (tarn_str_eqc(name, ICE_MAIN_BRANCH))
        ICE_TRY(ice_set_current_snapshot(b, -1));
    b->changed = true;
    json_object_deln(refs, name.p, name.n); /* last: `name` may be the key itself */
    return TARN_OK;
}

tarn_err ice_up_remove_ref(ice_build *b, const json_t *u)
{
    tarn_str name = TARN_STR_NULL;
    ICE_TRY(ice_get_string(u, "remove-snapshot-ref", "ref-name", &name, b->e));
    return remove_ref(b, name);
}

/* ------------------------------------------------------------------ remove-snapshots */
static tarn_err remove_dangling_refs(ice_build *b, const ice_id_set *gone)
{
    const char *key;
    json_t *ref;
    void *next;
    json_t *refs = NULL;
    ICE_TRY(ice_own(b, ICE_PART_REFS, &refs));
    json_object_foreach_safe(refs, next, key, ref)
    {
        if (ice_id_set_has(gone, ice_int_or(ref, "snapshot-id", -1)))
            ICE_TRY(remove_ref(b, tarn_str_of(key)));
    }
    return TARN_OK;
}

tarn_err ice_up_remove_snapshots(ice_build *b, const json_t *u)
{
    ice_id_set ids;
    size_t removed = 0, other = 0;
    ICE_TRY(ice_read_id_list(b, u, "remove-snapshots", "snapshot-ids", &ids));
    ICE_TRY(ice_drop_entries(b, ICE_PART_SNAPSHOTS, "snapshot-id", &ids, &removed));
    if (removed == 0)
        return TARN_OK;
    b->changed = true;
    b->removed_snapshots = true;
    b->has_snapshots = false; /* the set of ids is made anew when it is needed */
    ICE_TRY(ice_drop_entries(b, ICE_PART_STATISTICS, "snapshot-id", &ids, &other));
    ICE_TRY(ice_drop_entries(b, ICE_PART_PARTITION_STATISTICS, "snapshot-id", &ids, &other));
    return remove_dangling_refs(b, &ids);
}

/* ------------------------------------------------------------------ the log at the end */
/* Added here, made current here, and not current any more at the end: nobody ever saw it. */
static bool intermediate(const ice_build *b, int64_t id, int64_t current)
{
    if (id == current || !ice_id_set_has(&b->added, id))
        return false;
    for (size_t i = 0; i < b->main_n; i++)
        if (b->main_ids[i] == id)
            return true;
    return false;
}

static tarn_err filter_log(ice_build *b, const json_t *old, json_t *log, int64_t current)
{
    const ice_id_set *ids = NULL;
    ICE_TRY(ice_snapshot_ids(b, &ids));
    for (size_t i = 0; i < json_array_size(old); i++) {
        json_t *entry = json_array_get(old, i);
        int64_t id = ice_int_or(entry, "snapshot-id", -1);
        if (!ice_id_set_has(ids, id)) {
            /* A gap would make the entries before it tell a wrong story: history begins behind it. */
            if (b->removed_snapshots)
                json_array_clear(log);
        } else if (!intermediate(b, id, current) && json_array_append(log, entry) != 0) {
            return TARN_E_NO_MEMORY;
        }
    }
    return TARN_OK;
}

tarn_err ice_update_snapshot_log(ice_build *b)
{
    int64_t current = ice_current_snapshot(b->md);
    bool has_intermediate = false;
    for (size_t i = 0; i < b->main_n; i++)
        has_intermediate = has_intermediate || intermediate(b, b->main_ids[i], current);
    if (!has_intermediate && !b->removed_snapshots)
        return TARN_OK;
    json_t *log = json_array();
    tarn_err err = log ? filter_log(b, ice_child(b, ICE_PART_SNAPSHOT_LOG), log, current) : TARN_E_NO_MEMORY;
    size_t n = json_array_size(log);
    if (err == TARN_OK && current >= 0 && n > 0 && ice_int_or(json_array_get(log, n - 1), "snapshot-id", -1) != current)
        err = ice_fail(b->e, TARN_E_ICE_VALIDATION, "Cannot set invalid snapshot log: latest entry is not the current snapshot");
    if (err != TARN_OK) {
        json_decref(log);
        return err;
    }
    ICE_TRY(ice_replace(b, ICE_PART_SNAPSHOT_LOG, log));
    /* The log is optional: a table that came without one begins it here. */
    return current >= 0 && n == 0 ? log_main(b, current) : TARN_OK;
}
