/* SPDX-License-Identifier: Apache-2.0 */
/*
 * meta: opening, buckets, objects, data rows and the catalog, one by one, with each limit at its edge and one past it.
 * One thread, the committer inline; the store is reopened in between to see that what was committed is there.
 */
#include "meta_test.h"

/* ------------------------------------------------------------------ buckets */
static tarn_err bucket_create(tarn_meta_tx *tx, void *arg)
{
    return tarn_meta_bucket_create(tx, arg);
}

static tarn_err bucket_update(tarn_meta_tx *tx, void *arg)
{
    return tarn_meta_bucket_update(tx, arg);
}

static tarn_err bucket_delete(tarn_meta_tx *tx, void *arg)
{
    return tarn_meta_bucket_delete(tx, *(const uint64_t *)arg);
}

static void test_bucket_round_trip(void **state)
{
    fixture *f = *state;
    tarn_bucket_row row = {.name = TARN_STR("alpha"),
                           .owner = TARN_STR("ak"),
                           .created_ms = 1234567890123,
                           .versioning = TARN_VERSIONING_SUSPENDED,
                           .object_lock = true,
                           .warehouse = true,
                           .warehouse_uuid = TARN_STR("u-u-i-d"),
                           .warehouse_created_ms = 77,
                           .warehouse_properties = TARN_STR("{\"a\":1}")};
    tarn_bucket_row got;

    assert_int_equal(tarn_meta_commit(f->m, bucket_create, &row), TARN_OK);
    assert_true(row.id > 0);
    uint64_t id = row.id;
    fixture_reopen(f);
    assert_int_equal(tarn_meta_bucket_get(f->m, NULL, TARN_STR("alpha"), f->arena, &got), TARN_OK);
    assert_int_equal(got.id, id);
    assert_true(tarn_str_eqc(got.name, "alpha"));
    assert_true(tarn_str_eqc(got.owner, "ak"));
    assert_int_equal(got.created_ms, 1234567890123);
    assert_int_equal(got.versioning, TARN_VERSIONING_SUSPENDED);
    assert_true(got.object_lock);
    assert_true(got.warehouse);
    assert_true(tarn_str_eqc(got.warehouse_uuid, "u-u-i-d"));
    assert_int_equal(got.warehouse_created_ms, 77);
    assert_true(tarn_str_eqc(got.warehouse_properties, "{\"a\":1}"));

    uint64_t generation = got.generation;
    got.versioning = TARN_VERSIONING_ENABLED;
    got.warehouse = false;
    assert_int_equal(tarn_meta_commit(f->m, bucket_update, &got), TARN_OK);
    assert_int_equal(tarn_meta_bucket_get_id(f->m, NULL, id, f->arena, &got), TARN_OK);
    assert_int_equal(got.versioning, TARN_VERSIONING_ENABLED);
    assert_false(got.warehouse);
    assert_true(got.generation > generation);

    row.id = 0;
    assert_int_equal(tarn_meta_commit(f->m, bucket_create, &row), TARN_E_BUCKET_ALREADY_EXISTS);
    assert_int_equal(row.id, 0);
    assert_int_equal(tarn_meta_bucket_get(f->m, NULL, TARN_STR("beta"), f->arena, &got), TARN_E_NO_SUCH_BUCKET);
    assert_int_equal(tarn_meta_commit(f->m, bucket_delete, &id), TARN_OK);
    assert_int_equal(tarn_meta_commit(f->m, bucket_delete, &id), TARN_E_NO_SUCH_BUCKET);
    assert_int_equal(tarn_meta_bucket_get_id(f->m, NULL, id, f->arena, &got), TARN_E_NO_SUCH_BUCKET);
}

static void test_bucket_name_limit(void **state)
{
    fixture *f = *state;
    char name[TARN_BUCKET_NAME_BYTES_MAX + 1];
    tarn_bucket_row row = {.name = {name, sizeof(name)}};

    memset(name, 'n', sizeof(name));
    assert_int_equal(tarn_meta_commit(f->m, bucket_create, &row), TARN_E_LIMIT);
    row.name.n = TARN_BUCKET_NAME_BYTES_MAX;
    assert_int_equal(tarn_meta_commit(f->m, bucket_create, &row), TARN_OK);
    row.name.n = 0;
    assert_int_equal(tarn_meta_commit(f->m, bucket_create, &row), TARN_E_LIMIT);
}

typedef struct names {
    char text[4096];
    size_t n;
    size_t stop_after;
} names;

static bool name_add(void *ctx, const tarn_bucket_row *row)
{
    names *v = ctx;

    memcpy(v->text + v->n, row->name.p, row->name.n);
    v->n += row->name.n;
    v->text[v->n++] = ',';
    return v->stop_after == 0 || --v->stop_after > 0;
}

static void names_check(fixture *f, const char *after, const char *prefix, bool warehouses, size_t stop_after, const char *want)
{
    names v = {.stop_after = stop_after};

    assert_int_equal(tarn_meta_bucket_list(f->m, NULL, tarn_str_of(after), tarn_str_of(prefix), warehouses, name_add, &v), TARN_OK);
    v.text[v.n] = 0;
    assert_string_equal(v.text, want);
}

static void test_bucket_list(void **state)
{
    fixture *f = *state;
    const char *all[] = {"b-1", "a-1", "a-3", "a-2", "c-1"};

    for (size_t i = 0; i < TARN_ARRAY_LEN(all); i++) {
        tarn_bucket_row row = {.name = tarn_str_of(all[i]), .warehouse = all[i][2] == '1'};
        assert_int_equal(tarn_meta_commit(f->m, bucket_create, &row), TARN_OK);
    }
    names_check(f, "", "", false, 0, "a-1,a-2,a-3,b-1,c-1,");
    names_check(f, "", "", true, 0, "a-1,b-1,c-1,");
    names_check(f, "a-2", "", false, 0, "a-3,b-1,c-1,");
    names_check(f, "a-2", "", false, 2, "a-3,b-1,");
    names_check(f, "", "a-", false, 0, "a-1,a-2,a-3,");
    names_check(f, "a-1", "a-", false, 0, "a-2,a-3,");
    names_check(f, "a-", "b", false, 0, "b-1,");
    names_check(f, "c-1", "", false, 0, "");
}

typedef struct config_args {
    uint64_t bucket;
    tarn_bucket_config kind;
    tarn_str body;
} config_args;

static tarn_err config_put(tarn_meta_tx *tx, void *arg)
{
    config_args *a = arg;

    return tarn_meta_bucket_config_put(tx, a->bucket, a->kind, a->body);
}

static tarn_err config_delete(tarn_meta_tx *tx, void *arg)
{
    config_args *a = arg;

    return tarn_meta_bucket_config_delete(tx, a->bucket, a->kind);
}

static void test_bucket_config(void **state)
{
    fixture *f = *state;
    tarn_bucket_row row = {.name = TARN_STR("cfg")}, before, after;
    tarn_str got;
    char *big = tarn_malloc(TARN_BUCKET_CONFIG_BYTES_MAX + 1);

    assert_int_equal(tarn_meta_commit(f->m, bucket_create, &row), TARN_OK);
    config_args a = {row.id, TARN_BC_POLICY, TARN_STR("one")};
    assert_int_equal(tarn_meta_bucket_config_get(f->m, NULL, row.id, TARN_BC_POLICY, f->arena, &got), TARN_E_NOT_FOUND);
    assert_int_equal(tarn_meta_bucket_get_id(f->m, NULL, row.id, f->arena, &before), TARN_OK);
    assert_int_equal(tarn_meta_commit(f->m, config_put, &a), TARN_OK);
    assert_int_equal(tarn_meta_bucket_get_id(f->m, NULL, row.id, f->arena, &after), TARN_OK);
    assert_true(after.generation > before.generation);
    a.body = TARN_STR("two");
    assert_int_equal(tarn_meta_commit(f->m, config_put, &a), TARN_OK);
    assert_int_equal(tarn_meta_bucket_config_get(f->m, NULL, row.id, TARN_BC_POLICY, f->arena, &got), TARN_OK);
    assert_true(tarn_str_eqc(got, "two"));
    assert_int_equal(tarn_meta_bucket_config_get(f->m, NULL, row.id, TARN_BC_CORS, f->arena, &got), TARN_E_NOT_FOUND);

    memset(big, 'x', TARN_BUCKET_CONFIG_BYTES_MAX + 1);
    a.body = (tarn_str){big, TARN_BUCKET_CONFIG_BYTES_MAX + 1};
    assert_int_equal(tarn_meta_commit(f->m, config_put, &a), TARN_E_LIMIT);
    a.body.n--;
    assert_int_equal(tarn_meta_commit(f->m, config_put, &a), TARN_OK);
    assert_int_equal(tarn_meta_commit(f->m, config_delete, &a), TARN_OK);
    assert_int_equal(tarn_meta_commit(f->m, config_delete, &a), TARN_OK); /* fine when absent */
    assert_int_equal(tarn_meta_bucket_config_get(f->m, NULL, row.id, TARN_BC_POLICY, f->arena, &got), TARN_E_NOT_FOUND);
    a.bucket = 999999;
    assert_int_equal(tarn_meta_commit(f->m, config_put, &a), TARN_E_NO_SUCH_BUCKET);
    tarn_free(big);
}

/* ------------------------------------------------------------------ objects */
static tarn_err object_insert(tarn_meta_tx *tx, void *arg)
{
    tarn_version_row *row = arg;

    if (row->seq == 0)
        row->seq = tarn_meta_tx_seq(tx);
    return tarn_meta_version_insert(tx, row);
}

static tarn_err object_replace(tarn_meta_tx *tx, void *arg)
{
    tarn_version_row *row = arg;

    if (row->seq == 0)
        row->seq = tarn_meta_tx_seq(tx);
    return tarn_meta_object_replace(tx, row);
}

static tarn_err version_delete(tarn_meta_tx *tx, void *arg)
{
    return tarn_meta_version_delete(tx, arg);
}

static tarn_err version_update(tarn_meta_tx *tx, void *arg)
{
    return tarn_meta_version_update(tx, arg);
}

static void rows_equal(const tarn_version_row *a, const tarn_version_row *b)
{
    assert_int_equal(a->bucket_id, b->bucket_id);
    assert_true(tarn_str_eq(a->key, b->key));
    assert_int_equal(a->seq, b->seq);
    assert_int_equal(a->nonce, b->nonce);
    assert_int_equal(a->null_version, b->null_version);
    assert_int_equal(a->delete_marker, b->delete_marker);
    assert_int_equal(a->size, b->size);
    assert_int_equal(a->mtime_ms, b->mtime_ms);
    assert_true(tarn_str_eq(a->etag, b->etag));
    assert_int_equal(a->data_id, b->data_id);
    assert_int_equal(a->parts_n, b->parts_n);
    assert_int_equal(a->inline_data, b->inline_data);
    assert_true(tarn_str_eq(a->layout, b->layout));
    assert_true(tarn_str_eq(a->attrs, b->attrs));
    assert_true(tarn_str_eq(a->tags, b->tags));
    assert_int_equal(a->tags_n, b->tags_n);
    assert_int_equal(a->retention, b->retention);
    assert_int_equal(a->retain_until_ms, b->retain_until_ms);
    assert_int_equal(a->legal_hold, b->legal_hold);
}

static void test_object_every_column(void **state)
{
    fixture *f = *state;
    tarn_version_row row = {.bucket_id = 7,
                            .key = {"k\0\xff/x", 5},
                            .nonce = UINT64_MAX - 5,
                            .size = INT64_MAX,
                            .mtime_ms = 1700000000123,
                            .etag = TARN_STR("0123456789abcdef0123456789abcdef"),
                            .data_id = 55,
                            .parts_n = TARN_PARTS_MAX,
                            .inline_data = false,
                            .layout = {"l\0y", 3},
                            .attrs = {"a\0", 2},
                            .tags = TARN_STR("t"),
                            .tags_n = 3,
                            .retention = TARN_RETENTION_COMPLIANCE,
                            .retain_until_ms = 99,
                            .legal_hold = true};
    tarn_version_row got;

    assert_int_equal(tarn_meta_commit(f->m, object_insert, &row), TARN_OK);
    fixture_reopen(f);
    assert_int_equal(tarn_meta_object_get(f->m, NULL, 7, row.key, f->arena, &got), TARN_OK);
    rows_equal(&row, &got);
    assert_true(got.current);

    const char *etags[] = {"0123456789ABCDEF0123456789abcdef", "0123456789abcdef0123456789abcde-3", "", "x"};
    for (size_t i = 0; i < TARN_ARRAY_LEN(etags); i++) { /* what does not pack stays as it is */
        row.etag = tarn_str_of(etags[i]);
        row.seq = 0;
        row.inline_data = i % 2 == 0;
        assert_int_equal(tarn_meta_commit(f->m, object_replace, &row), TARN_OK);
        assert_int_equal(tarn_meta_object_get(f->m, NULL, 7, row.key, f->arena, &got), TARN_OK);
        rows_equal(&row, &got);
    }
    assert_int_equal(tarn_meta_object_get(f->m, NULL, 8, row.key, f->arena, &got), TARN_E_NO_SUCH_KEY);
}

static void test_object_limits(void **state)
{
    fixture *f = *state;
    char *big = tarn_calloc(1, TARN_LAYOUT_BYTES_MAX + 1);
    tarn_version_row row = {.bucket_id = 1, .key = {big, TARN_KEY_BYTES_MAX}}, got;

    assert_int_equal(tarn_meta_commit(f->m, object_insert, &row), TARN_OK);
    row.key.n++;
    row.seq = 0;
    assert_int_equal(tarn_meta_commit(f->m, object_insert, &row), TARN_E_KEY_TOO_LONG);
    row.key.n = 0;
    assert_int_equal(tarn_meta_commit(f->m, object_insert, &row), TARN_E_KEY_TOO_LONG);
    row.key = TARN_STR("k");
    row.attrs = (tarn_str){big, TARN_ATTRS_BYTES_MAX};
    row.layout = (tarn_str){big, TARN_LAYOUT_BYTES_MAX};
    row.seq = 0;
    assert_int_equal(tarn_meta_commit(f->m, object_insert, &row), TARN_OK);
    assert_int_equal(tarn_meta_object_get(f->m, NULL, 1, row.key, f->arena, &got), TARN_OK);
    rows_equal(&row, &got);
    row.attrs.n++;
    row.seq = 0;
    assert_int_equal(tarn_meta_commit(f->m, object_insert, &row), TARN_E_METADATA_TOO_LARGE);
    row.attrs.n--;
    row.layout.n++;
    assert_int_equal(tarn_meta_commit(f->m, object_insert, &row), TARN_E_LIMIT);
    row.layout.n--;
    row.parts_n = TARN_PARTS_MAX + 1;
    assert_int_equal(tarn_meta_commit(f->m, object_insert, &row), TARN_E_LIMIT);
    tarn_free(big);
}

static void test_object_needs_new_seq(void **state)
{
    fixture *f = *state;
    tarn_version_row row = {.bucket_id = 1, .key = TARN_STR("k")}, got;

    assert_int_equal(tarn_meta_commit(f->m, object_insert, &row), TARN_OK);
    uint64_t seq = row.seq;
    row.size = 5;
    assert_int_equal(tarn_meta_commit(f->m, object_replace, &row), TARN_E_CONFLICT);
    assert_int_equal(tarn_meta_commit(f->m, object_insert, &row), TARN_E_CONFLICT);
    assert_int_equal(tarn_meta_object_get(f->m, NULL, 1, row.key, f->arena, &got), TARN_OK);
    assert_int_equal(got.seq, seq);
    assert_int_equal(got.size, 0);
    assert_int_equal(tarn_meta_version_get(f->m, NULL, 1, row.key, false, seq, 0, f->arena, &got), TARN_OK);
    assert_true(got.current); /* the insert that failed has moved nothing */
}

static void test_versions(void **state)
{
    fixture *f = *state;
    tarn_version_row v[4], got;

    for (size_t i = 0; i < 4; i++) {
        v[i] = (tarn_version_row){
            .bucket_id = 1, .key = TARN_STR("k"), .nonce = 100 + i, .size = i, .null_version = i == 1, .delete_marker = i == 3};
        assert_int_equal(tarn_meta_commit(f->m, object_insert, &v[i]), TARN_OK);
    }
    for (size_t i = 0; i < 4; i++) {
        bool null = i == 1;
        assert_int_equal(tarn_meta_version_get(f->m, NULL, 1, v[i].key, null, null ? 0 : v[i].seq, null ? 0 : v[i].nonce, f->arena, &got),
                         TARN_OK);
        rows_equal(&v[i], &got);
        assert_int_equal(got.current, i == 3);
    }
    assert_int_equal(tarn_meta_version_get(f->m, NULL, 1, v[0].key, false, v[0].seq, 1, f->arena, &got), TARN_E_NO_SUCH_VERSION);
    assert_int_equal(tarn_meta_version_get(f->m, NULL, 1, v[1].key, false, v[1].seq, v[1].nonce, f->arena, &got), TARN_E_NO_SUCH_VERSION);
    assert_int_equal(tarn_meta_version_get(f->m, NULL, 1, TARN_STR("other"), true, 0, 0, f->arena, &got), TARN_E_NO_SUCH_VERSION);

    v[2].tags = TARN_STR("tags");
    v[2].tags_n = 1;
    v[2].legal_hold = true;
    v[2].retention = TARN_RETENTION_GOVERNANCE;
    v[2].retain_until_ms = 5;
    v[2].attrs = TARN_STR("attrs");
    v[2].layout = TARN_STR("layout");
    assert_int_equal(tarn_meta_commit(f->m, version_update, &v[2]), TARN_OK);
    assert_int_equal(tarn_meta_version_get(f->m, NULL, 1, v[2].key, false, v[2].seq, v[2].nonce, f->arena, &got), TARN_OK);
    rows_equal(&v[2], &got);
    v[2].seq += 1000;
    assert_int_equal(tarn_meta_commit(f->m, version_update, &v[2]), TARN_E_NO_SUCH_VERSION);
    v[2].seq -= 1000;

    assert_int_equal(tarn_meta_commit(f->m, version_delete, &v[0]), TARN_OK); /* the oldest: no promotion */
    assert_int_equal(tarn_meta_object_get(f->m, NULL, 1, v[0].key, f->arena, &got), TARN_OK);
    assert_int_equal(got.seq, v[3].seq);
    assert_int_equal(tarn_meta_commit(f->m, version_delete, &v[3]), TARN_OK);
    assert_int_equal(tarn_meta_object_get(f->m, NULL, 1, v[0].key, f->arena, &got), TARN_OK);
    rows_equal(&v[2], &got); /* the newest of the rest */
    assert_int_equal(tarn_meta_commit(f->m, version_delete, &v[2]), TARN_OK);
    assert_int_equal(tarn_meta_version_get(f->m, NULL, 1, v[1].key, true, 0, 0, f->arena, &got), TARN_OK);
    assert_true(got.current);
    assert_int_equal(tarn_meta_commit(f->m, version_delete, &v[1]), TARN_OK);
    assert_int_equal(tarn_meta_object_get(f->m, NULL, 1, v[0].key, f->arena, &got), TARN_E_NO_SUCH_KEY);
    assert_int_equal(tarn_meta_commit(f->m, version_delete, &v[1]), TARN_E_NO_SUCH_VERSION);
}

static void test_bucket_not_empty(void **state)
{
    fixture *f = *state;
    tarn_bucket_row row = {.name = TARN_STR("full")};

    assert_int_equal(tarn_meta_commit(f->m, bucket_create, &row), TARN_OK);
    tarn_version_row v = {.bucket_id = row.id, .key = TARN_STR("k"), .delete_marker = true};
    assert_int_equal(tarn_meta_commit(f->m, object_insert, &v), TARN_OK);
    assert_int_equal(tarn_meta_commit(f->m, bucket_delete, &row.id), TARN_E_BUCKET_NOT_EMPTY);
    assert_int_equal(tarn_meta_commit(f->m, version_delete, &v), TARN_OK);
    assert_int_equal(tarn_meta_commit(f->m, bucket_delete, &row.id), TARN_OK);
}

/* ------------------------------------------------------------------ key-value, numbers */
static tarn_err kv_put(tarn_meta_tx *tx, void *arg)
{
    return tarn_meta_kv_put(tx, "fact", *(tarn_str *)arg);
}

static void test_kv(void **state)
{
    fixture *f = *state;
    tarn_str v = {"a\0b", 3}, got;

    assert_int_equal(tarn_meta_kv_get(f->m, NULL, "fact", f->arena, &got), TARN_E_NOT_FOUND);
    assert_int_equal(tarn_meta_commit(f->m, kv_put, &v), TARN_OK);
    fixture_reopen(f);
    assert_int_equal(tarn_meta_kv_get(f->m, NULL, "fact", f->arena, &got), TARN_OK);
    assert_true(tarn_str_eq(v, got));
}

static tarn_err draw(tarn_meta_tx *tx, void *arg)
{
    *(uint64_t *)arg = tarn_meta_tx_seq(tx);
    return TARN_OK;
}

static void test_numbers_never_repeat(void **state)
{
    fixture *f = *state;
    uint64_t last = 0, v = 0;

    for (int i = 0; i < 50; i++) {
        assert_int_equal(tarn_meta_commit(f->m, draw, &v), TARN_OK);
        assert_true(v > last);
        last = v;
        if (i % 10 == 9)
            fixture_reopen(f);
    }
}

static tarn_err draw_many(tarn_meta_tx *tx, void *arg)
{
    uint64_t n = *(uint64_t *)arg;

    for (uint64_t i = 0; i < n; i++)
        (void)tarn_meta_tx_seq(tx);
    return TARN_OK;
}

static void test_numbers_limit(void **state)
{
    fixture *f = *state;
    uint64_t n = 65536;

    for (int i = 0; i < 40; i++) /* past what is reserved at once */
        assert_int_equal(tarn_meta_commit(f->m, draw_many, &n), TARN_OK);
    n++;
    assert_int_equal(tarn_meta_commit(f->m, draw_many, &n), TARN_E_LIMIT);
}

/* ------------------------------------------------------------------ inline data, parts, uploads, garbage, repairs */
typedef struct inline_args {
    uint64_t id;
    tarn_str bytes;
    bool drop;
} inline_args;

static tarn_err inline_write(tarn_meta_tx *tx, void *arg)
{
    inline_args *a = arg;

    return a->drop ? tarn_meta_inline_delete(tx, a->id) : tarn_meta_inline_put(tx, a->id, a->bytes);
}

static void test_inline(void **state)
{
    fixture *f = *state;
    char *big = tarn_malloc(TARN_INLINE_BYTES_MAX + 1);
    tarn_str got;
    inline_args a = {.id = 9, .bytes = {big, TARN_INLINE_BYTES_MAX}};

    tarn_random(big, TARN_INLINE_BYTES_MAX + 1);
    assert_int_equal(tarn_meta_commit(f->m, inline_write, &a), TARN_OK);
    assert_int_equal(tarn_meta_inline_get(f->m, NULL, 9, f->arena, &got), TARN_OK);
    assert_true(tarn_str_eq(got, a.bytes));
    bool referenced = false;
    assert_int_equal(tarn_meta_data_referenced(f->m, 9, &referenced), TARN_OK);
    assert_true(referenced);
    a.drop = true;
    assert_int_equal(tarn_meta_commit(f->m, inline_write, &a), TARN_OK);
    assert_int_equal(tarn_meta_inline_get(f->m, NULL, 9, f->arena, &got), TARN_E_NOT_FOUND);
    assert_int_equal(tarn_meta_data_referenced(f->m, 9, &referenced), TARN_OK);
    assert_false(referenced);
    a = (inline_args){.id = 10, .bytes = {big, TARN_INLINE_BYTES_MAX + 1}};
    assert_int_equal(tarn_meta_commit(f->m, inline_write, &a), TARN_E_LIMIT);
    a = (inline_args){.id = 11, .bytes = TARN_STR_NULL};
    assert_int_equal(tarn_meta_commit(f->m, inline_write, &a), TARN_OK);
    assert_int_equal(tarn_meta_inline_get(f->m, NULL, 11, f->arena, &got), TARN_OK);
    assert_int_equal(got.n, 0);
    tarn_free(big);
}

static tarn_err part_put(tarn_meta_tx *tx, void *arg)
{
    return tarn_meta_part_put(tx, arg);
}

static tarn_err part_delete(tarn_meta_tx *tx, void *arg)
{
    const tarn_part_row *row = arg;

    return tarn_meta_part_delete(tx, row->data_id, row->number);
}

typedef struct part_sum {
    uint64_t n, numbers, sizes, layouts;
} part_sum;

static bool part_add(void *ctx, const tarn_part_row *row)
{
    part_sum *s = ctx;

    assert_true(row->number > s->numbers || s->n == 0);
    s->n++;
    s->numbers = row->number;
    s->sizes += row->size;
    s->layouts += row->layout.n;
    return true;
}

static void test_parts(void **state)
{
    fixture *f = *state;
    tarn_part_row row = {.data_id = 3,
                         .number = TARN_PARTS_MAX,
                         .size = 10,
                         .mtime_ms = 4,
                         .etag = TARN_STR("e"),
                         .attrs = TARN_STR("at"),
                         .layout = TARN_STR("lay"),
                         .blob_id = 8};
    tarn_part_row got;

    assert_int_equal(tarn_meta_commit(f->m, part_put, &row), TARN_OK);
    assert_int_equal(tarn_meta_part_get(f->m, NULL, 3, TARN_PARTS_MAX, f->arena, &got), TARN_OK);
    assert_int_equal(got.size, 10);
    assert_int_equal(got.mtime_ms, 4);
    assert_int_equal(got.blob_id, 8);
    assert_true(tarn_str_eqc(got.etag, "e"));
    assert_true(tarn_str_eqc(got.attrs, "at"));
    assert_true(tarn_str_eqc(got.layout, "lay"));
    row.number = TARN_PARTS_MAX + 1;
    assert_int_equal(tarn_meta_commit(f->m, part_put, &row), TARN_E_LIMIT);
    row.number = 0;
    assert_int_equal(tarn_meta_commit(f->m, part_put, &row), TARN_E_LIMIT);
    for (uint32_t i = 1; i <= 20; i++) {
        row.number = i;
        row.size = i;
        assert_int_equal(tarn_meta_commit(f->m, part_put, &row), TARN_OK);
    }
    row.size = 1000;
    assert_int_equal(tarn_meta_commit(f->m, part_put, &row), TARN_OK); /* number 20 again: replaced */
    part_sum s = {0};
    assert_int_equal(tarn_meta_part_list(f->m, NULL, 3, 0, true, part_add, &s), TARN_OK);
    assert_int_equal(s.n, 21);
    assert_int_equal(s.sizes, 190 + 1000 + 10);
    assert_int_equal(s.layouts, 21 * 3);
    s = (part_sum){0};
    assert_int_equal(tarn_meta_part_list(f->m, NULL, 3, 15, false, part_add, &s), TARN_OK);
    assert_int_equal(s.n, 6);
    assert_int_equal(s.layouts, 0);
    assert_int_equal(tarn_meta_commit(f->m, part_delete, &row), TARN_OK);
    assert_int_equal(tarn_meta_part_get(f->m, NULL, 3, 20, f->arena, &got), TARN_E_INVALID_PART);
}

static tarn_err upload_create(tarn_meta_tx *tx, void *arg)
{
    tarn_upload_row *row = arg;

    row->upload_id = tarn_meta_tx_seq(tx);
    return tarn_meta_upload_create(tx, row);
}

static tarn_err upload_delete(tarn_meta_tx *tx, void *arg)
{
    const tarn_upload_row *row = arg;

    return tarn_meta_upload_delete(tx, row->bucket_id, row->upload_id);
}

typedef struct upload_seen {
    char text[1024];
    size_t n;
    uint64_t ids[64];
    size_t ids_n;
} upload_seen;

static bool upload_add(void *ctx, const tarn_upload_row *row)
{
    upload_seen *v = ctx;

    memcpy(v->text + v->n, row->key.p, row->key.n);
    v->n += row->key.n;
    v->text[v->n++] = ',';
    v->text[v->n] = 0;
    v->ids[v->ids_n++] = row->upload_id;
    return true;
}

static void test_uploads(void **state)
{
    fixture *f = *state;
    const char *keys[] = {"b", "a", "a", "a/1", "c", "a"};
    uint64_t ids[6];
    tarn_upload_row row = {.bucket_id = 2, .nonce = 6, .initiated_ms = 5, .owner = TARN_STR("me"), .attrs = TARN_STR("x")}, got;
    bool referenced = false;

    for (size_t i = 0; i < 6; i++) {
        row.key = tarn_str_of(keys[i]);
        assert_int_equal(tarn_meta_commit(f->m, upload_create, &row), TARN_OK);
        ids[i] = row.upload_id;
    }
    assert_int_equal(tarn_meta_upload_get(f->m, NULL, 2, TARN_STR("a"), ids[1], 6, f->arena, &got), TARN_OK);
    assert_int_equal(got.initiated_ms, 5);
    assert_true(tarn_str_eqc(got.owner, "me"));
    assert_true(tarn_str_eqc(got.attrs, "x"));
    assert_int_equal(tarn_meta_upload_get(f->m, NULL, 2, TARN_STR("a"), ids[1], 7, f->arena, &got), TARN_E_NO_SUCH_UPLOAD);
    assert_int_equal(tarn_meta_upload_get(f->m, NULL, 2, TARN_STR("b"), ids[1], 6, f->arena, &got), TARN_E_NO_SUCH_UPLOAD);
    assert_int_equal(tarn_meta_data_referenced(f->m, ids[1], &referenced), TARN_OK);
    assert_true(referenced);

    upload_seen v = {.n = 0};
    assert_int_equal(tarn_meta_upload_list(f->m, 2, TARN_STR_NULL, TARN_STR_NULL, 0, upload_add, &v), TARN_OK);
    assert_string_equal(v.text, "a,a,a,a/1,b,c,");
    assert_true(v.ids[0] == ids[1] && v.ids[1] == ids[2] && v.ids[2] == ids[5]);
    v = (upload_seen){.n = 0};
    assert_int_equal(tarn_meta_upload_list(f->m, 2, TARN_STR("a"), TARN_STR("a"), ids[2], upload_add, &v), TARN_OK);
    assert_string_equal(v.text, "a,a/1,");
    v = (upload_seen){.n = 0};
    assert_int_equal(tarn_meta_upload_list(f->m, 2, TARN_STR_NULL, TARN_STR("a"), UINT64_MAX, upload_add, &v), TARN_OK);
    assert_string_equal(v.text, "a/1,b,c,");
    v = (upload_seen){.n = 0};
    assert_int_equal(tarn_meta_upload_list(f->m, 2, TARN_STR("a"), TARN_STR("b"), 0, upload_add, &v), TARN_OK);
    assert_int_equal(v.n, 0);

    row.upload_id = ids[0];
    row.bucket_id = 3;
    assert_int_equal(tarn_meta_commit(f->m, upload_delete, &row), TARN_E_NO_SUCH_UPLOAD); /* of another bucket */
    row.bucket_id = 2;
    assert_int_equal(tarn_meta_commit(f->m, upload_delete, &row), TARN_OK);
    assert_int_equal(tarn_meta_commit(f->m, upload_delete, &row), TARN_E_NO_SUCH_UPLOAD);
}

static tarn_err garbage_put(tarn_meta_tx *tx, void *arg)
{
    return tarn_meta_garbage_put(tx, arg);
}

static tarn_err garbage_delete(tarn_meta_tx *tx, void *arg)
{
    return tarn_meta_garbage_delete(tx, *(uint64_t *)arg);
}

static bool garbage_add(void *ctx, const tarn_garbage_row *row)
{
    tarn_garbage_row *last = ctx;

    assert_true(row->id > last->id);
    *last = *row;
    last->layout.p = NULL; /* lived only during the call */
    return true;
}

static void test_garbage(void **state)
{
    fixture *f = *state;
    tarn_garbage_row row = {.since_ms = 5, .data_id = 44, .layout = TARN_STR("lay")}, last = {.id = 0};
    bool referenced = false;

    for (int i = 0; i < 3; i++)
        assert_int_equal(tarn_meta_commit(f->m, garbage_put, &row), TARN_OK);
    assert_int_equal(tarn_meta_garbage_list(f->m, 0, garbage_add, &last), TARN_OK);
    assert_int_equal(last.id, row.id);
    assert_int_equal(last.data_id, 44);
    assert_int_equal(last.since_ms, 5);
    assert_int_equal(last.layout.n, 3);
    assert_int_equal(tarn_meta_data_referenced(f->m, 44, &referenced), TARN_OK);
    assert_true(referenced);
    last.id = row.id;
    assert_int_equal(tarn_meta_garbage_list(f->m, row.id, garbage_add, &last), TARN_OK);
    assert_int_equal(last.id, row.id);
    assert_int_equal(tarn_meta_commit(f->m, garbage_delete, &row.id), TARN_OK);
    last.id = 0;
    assert_int_equal(tarn_meta_garbage_list(f->m, 0, garbage_add, &last), TARN_OK);
    assert_true(last.id < row.id && last.id > 0);
}

static tarn_err repair_put(tarn_meta_tx *tx, void *arg)
{
    return tarn_meta_repair_put(tx, arg);
}

static tarn_err repair_delete(tarn_meta_tx *tx, void *arg)
{
    return tarn_meta_repair_delete(tx, *(uint64_t *)arg);
}

static bool repair_count(void *ctx, const tarn_repair_row *row)
{
    assert_true(tarn_str_eqc(row->key, "k"));
    (*(size_t *)ctx)++;
    return true;
}

static void test_repairs(void **state)
{
    fixture *f = *state;
    tarn_repair_row row = {.bucket_id = 1, .key = TARN_STR("k"), .seq = 5, .since_ms = 6};
    size_t n = 0;

    assert_int_equal(tarn_meta_commit(f->m, repair_put, &row), TARN_OK);
    uint64_t id = row.id;
    row.id = 0;
    assert_int_equal(tarn_meta_commit(f->m, repair_put, &row), TARN_OK); /* one row per version */
    assert_int_equal(row.id, id);
    row.seq = 6;
    assert_int_equal(tarn_meta_commit(f->m, repair_put, &row), TARN_OK);
    assert_int_equal(tarn_meta_repair_list(f->m, 0, repair_count, &n), TARN_OK);
    assert_int_equal(n, 2);
    assert_int_equal(tarn_meta_commit(f->m, repair_delete, &id), TARN_OK);
    n = 0;
    assert_int_equal(tarn_meta_repair_list(f->m, 0, repair_count, &n), TARN_OK);
    assert_int_equal(n, 1);
}

/* ------------------------------------------------------------------ the catalog */
static tarn_err ns_create(tarn_meta_tx *tx, void *arg)
{
    return tarn_meta_ns_create(tx, arg);
}

static tarn_err ns_update(tarn_meta_tx *tx, void *arg)
{
    return tarn_meta_ns_update(tx, arg);
}

static tarn_err ns_delete(tarn_meta_tx *tx, void *arg)
{
    const tarn_ns_row *row = arg;

    return tarn_meta_ns_delete(tx, row->bucket_id, row->id);
}

static bool ns_add(void *ctx, const tarn_ns_row *row)
{
    upload_seen *v = ctx;

    memcpy(v->text + v->n, row->path.p, row->path.n);
    v->n += row->path.n;
    v->text[v->n++] = ',';
    v->text[v->n] = 0;
    return true;
}

static void test_namespaces(void **state)
{
    fixture *f = *state;
    tarn_ns_row a = {.bucket_id = 1, .path = TARN_STR("a"), .properties = TARN_STR("{}"), .created_ms = 3}, ab = a, orphan = a, got;
    upload_seen v = {.n = 0};

    assert_int_equal(tarn_meta_commit(f->m, ns_create, &a), TARN_OK);
    orphan.path = TARN_STR("x\x1f"
                           "b");
    assert_int_equal(tarn_meta_commit(f->m, ns_create, &orphan), TARN_E_ICE_NO_NAMESPACE);
    ab.path = TARN_STR("a\x1f"
                       "b");
    assert_int_equal(tarn_meta_commit(f->m, ns_create, &ab), TARN_OK);
    assert_int_equal(tarn_meta_commit(f->m, ns_create, &ab), TARN_E_ICE_ALREADY_EXISTS);
    ab.properties = TARN_STR("{\"k\":1}");
    assert_int_equal(tarn_meta_commit(f->m, ns_update, &ab), TARN_OK);
    assert_int_equal(tarn_meta_ns_get(f->m, NULL, 1, ab.path, f->arena, &got), TARN_OK);
    assert_true(tarn_str_eqc(got.properties, "{\"k\":1}"));
    assert_int_equal(got.created_ms, 3);
    assert_int_equal(tarn_meta_ns_get(f->m, NULL, 2, ab.path, f->arena, &got), TARN_E_ICE_NO_NAMESPACE);
    const char *more[] = {"c", "b", "a.b"};
    for (size_t i = 0; i < 3; i++) {
        tarn_ns_row r = {.bucket_id = 1, .path = tarn_str_of(more[i])};
        assert_int_equal(tarn_meta_commit(f->m, ns_create, &r), TARN_OK);
    }
    assert_int_equal(tarn_meta_ns_list(f->m, 1, TARN_STR_NULL, TARN_STR_NULL, ns_add, &v), TARN_OK);
    assert_string_equal(v.text, "a,a.b,b,c,");
    v.n = 0;
    assert_int_equal(tarn_meta_ns_list(f->m, 1, TARN_STR_NULL, TARN_STR("a.b"), ns_add, &v), TARN_OK);
    assert_string_equal(v.text, "b,c,");
    v.n = 0;
    assert_int_equal(tarn_meta_ns_list(f->m, 1, TARN_STR("a"), TARN_STR_NULL, ns_add, &v), TARN_OK);
    assert_string_equal(v.text, "a\x1f"
                                "b,");
    assert_int_equal(tarn_meta_ns_list(f->m, 1, TARN_STR("zz"), TARN_STR_NULL, ns_add, &v), TARN_E_ICE_NO_NAMESPACE);
    assert_int_equal(tarn_meta_commit(f->m, ns_delete, &a), TARN_E_ICE_NOT_EMPTY);
    assert_int_equal(tarn_meta_commit(f->m, ns_delete, &ab), TARN_OK);
    assert_int_equal(tarn_meta_commit(f->m, ns_delete, &a), TARN_OK);
    assert_int_equal(tarn_meta_commit(f->m, ns_delete, &a), TARN_E_ICE_NO_NAMESPACE);
}

/* ------------------------------------------------------------------ purges */
static tarn_err purge_put(tarn_meta_tx *tx, void *arg)
{
    return tarn_meta_purge_put(tx, arg);
}

static tarn_err purge_delete(tarn_meta_tx *tx, void *arg)
{
    return tarn_meta_purge_delete(tx, *(const uint64_t *)arg);
}

typedef struct purges_seen {
    uint64_t ids[4];
    size_t n;
    tarn_purge_row last;
    char location[64];
} purges_seen;

static bool purge_add(void *ctx, const tarn_purge_row *row)
{
    purges_seen *v = ctx;

    assert_true(v->n < TARN_ARRAY_LEN(v->ids) && row->dropped.location.n < sizeof(v->location));
    v->ids[v->n++] = row->id;
    v->last = *row;
    memcpy(v->location, row->dropped.location.p, row->dropped.location.n);
    v->location[row->dropped.location.n] = 0;
    return true;
}

static void test_purges_are_kept_until_they_are_done(void **state)
{
    fixture *f = *state;
    tarn_purge_row a = {.since_ms = 7,
                        .dropped = {.id = 21,
                                    .bucket_id = 3,
                                    .kind = TARN_ENTITY_VIEW,
                                    .uuid = TARN_STR("u"),
                                    .location = TARN_STR("s3://w/a"),
                                    .pointer = TARN_STR("s3://w/a/metadata/1.metadata.json"),
                                    .version = 5}},
                   b = a;
    purges_seen v = {.n = 0}, after = {.n = 0}, rest = {.n = 0};

    b.dropped.location = TARN_STR("s3://w/b");
    assert_int_equal(tarn_meta_commit(f->m, purge_put, &a), TARN_OK);
    assert_int_equal(tarn_meta_commit(f->m, purge_put, &b), TARN_OK); /* of the same entity id: both stand */
    assert_int_equal(tarn_meta_purge_list(f->m, 0, purge_add, &v), TARN_OK);
    assert_int_equal(v.n, 2);
    assert_true(v.ids[0] == a.id && v.ids[1] == b.id && a.id < b.id);
    assert_true(v.last.since_ms == 7 && v.last.dropped.id == 21 && v.last.dropped.bucket_id == 3);
    assert_true(v.last.dropped.kind == TARN_ENTITY_VIEW && v.last.dropped.version == 5);
    assert_string_equal(v.location, "s3://w/b");
    assert_int_equal(tarn_meta_purge_list(f->m, a.id, purge_add, &after), TARN_OK);
    assert_true(after.n == 1 && after.ids[0] == b.id);
    assert_int_equal(tarn_meta_commit(f->m, purge_delete, &a.id), TARN_OK);
    assert_int_equal(tarn_meta_commit(f->m, purge_delete, &a.id), TARN_OK);
    assert_int_equal(tarn_meta_purge_list(f->m, 0, purge_add, &rest), TARN_OK);
    assert_true(rest.n == 1 && rest.ids[0] == b.id);
}

static void test_namespace_limits(void **state)
{
    fixture *f = *state;
    char path[TARN_NS_PATH_BYTES_MAX + 1];
    tarn_ns_row row = {.bucket_id = 1, .path = {path, TARN_NS_PATH_BYTES_MAX}};

    memset(path, 'p', sizeof(path));
    assert_int_equal(tarn_meta_commit(f->m, ns_create, &row), TARN_OK);
    row.path.n++;
    assert_int_equal(tarn_meta_commit(f->m, ns_create, &row), TARN_E_LIMIT);
    row.path.n = 0;
    assert_int_equal(tarn_meta_commit(f->m, ns_create, &row), TARN_E_LIMIT);
    for (size_t level = 1; level <= TARN_NS_LEVELS_MAX + 1; level++) {
        path[level * 2 - 2] = 'l';
        path[level * 2 - 1] = 0x1f;
        row.path.n = level * 2 - 1;
        assert_int_equal(tarn_meta_commit(f->m, ns_create, &row), level <= TARN_NS_LEVELS_MAX ? TARN_OK : TARN_E_LIMIT);
    }
}

static tarn_err entity_create(tarn_meta_tx *tx, void *arg)
{
    return tarn_meta_entity_create(tx, arg);
}

typedef struct swap_args {
    tarn_entity_row *row;
    uint64_t expect;
} swap_args;

static tarn_err entity_swap(tarn_meta_tx *tx, void *arg)
{
    swap_args *a = arg;

    return tarn_meta_entity_swap(tx, a->row, a->expect);
}

typedef struct rename_args {
    uint64_t id, ns;
    tarn_str name;
} rename_args;

static tarn_err entity_rename(tarn_meta_tx *tx, void *arg)
{
    rename_args *a = arg;

    return tarn_meta_entity_rename(tx, a->id, a->ns, a->name);
}

static tarn_err entity_delete(tarn_meta_tx *tx, void *arg)
{
    return tarn_meta_entity_delete(tx, *(uint64_t *)arg);
}

static bool entity_add(void *ctx, const tarn_entity_row *row)
{
    upload_seen *v = ctx;

    memcpy(v->text + v->n, row->name.p, row->name.n);
    v->n += row->name.n;
    v->text[v->n++] = ',';
    v->text[v->n] = 0;
    return true;
}

static void test_entities(void **state)
{
    fixture *f = *state;
    tarn_ns_row ns = {.bucket_id = 1, .path = TARN_STR("n")}, other = {.bucket_id = 1, .path = TARN_STR("o")};
    uint64_t tables = 9, views = 9, children = 9;
    upload_seen v = {.n = 0};

    assert_int_equal(tarn_meta_commit(f->m, ns_create, &ns), TARN_OK);
    assert_int_equal(tarn_meta_commit(f->m, ns_create, &other), TARN_OK);
    tarn_entity_row t = {.bucket_id = 1,
                         .ns_id = ns.id,
                         .name = TARN_STR("t"),
                         .kind = TARN_ENTITY_TABLE,
                         .uuid = TARN_STR("u"),
                         .location = TARN_STR("s3://w/u"),
                         .pointer = TARN_STR("s3://w/u/metadata/0.json"),
                         .created_ms = 1,
                         .updated_ms = 2};
    tarn_entity_row got, view = t;
    assert_int_equal(tarn_meta_commit(f->m, entity_create, &t), TARN_OK);
    view.kind = TARN_ENTITY_VIEW;
    assert_int_equal(tarn_meta_commit(f->m, entity_create, &view), TARN_E_ICE_ALREADY_EXISTS);
    assert_int_equal(view.kind, TARN_ENTITY_TABLE); /* the kind that is there */
    view.kind = TARN_ENTITY_VIEW;
    view.name = TARN_STR("v");
    assert_int_equal(tarn_meta_commit(f->m, entity_create, &view), TARN_OK);
    view.name = TARN_STR("w");
    view.ns_id = 123456;
    assert_int_equal(tarn_meta_commit(f->m, entity_create, &view), TARN_E_ICE_NO_NAMESPACE);
    assert_int_equal(tarn_meta_ns_count(f->m, NULL, 1, ns.id, &tables, &views, &children), TARN_OK);
    assert_true(tables == 1 && views == 1 && children == 0);

    assert_int_equal(tarn_meta_entity_get(f->m, NULL, 1, TARN_STR("n"), TARN_STR("t"), f->arena, &got), TARN_OK);
    assert_true(got.id == t.id && got.version == t.version && got.created_ms == 1 && got.updated_ms == 2);
    assert_true(tarn_str_eq(got.pointer, t.pointer) && tarn_str_eq(got.location, t.location) && tarn_str_eq(got.uuid, t.uuid));
    assert_int_equal(tarn_meta_entity_get(f->m, NULL, 1, TARN_STR("x"), TARN_STR("t"), f->arena, &got), TARN_E_ICE_NO_TABLE);
    assert_int_equal(tarn_meta_entity_get(f->m, NULL, 2, TARN_STR("n"), TARN_STR("t"), f->arena, &got), TARN_E_ICE_NO_TABLE);

    swap_args s = {&t, t.version};
    uint64_t before = t.version;
    t.pointer = TARN_STR("s3://w/u/metadata/1.json");
    assert_int_equal(tarn_meta_commit(f->m, entity_swap, &s), TARN_OK);
    assert_int_equal(t.version, before + 1);
    assert_int_equal(tarn_meta_commit(f->m, entity_swap, &s), TARN_E_ICE_COMMIT_FAILED); /* expects the old one */
    assert_int_equal(tarn_meta_entity_get(f->m, NULL, 1, TARN_STR("n"), TARN_STR("t"), f->arena, &got), TARN_OK);
    assert_true(tarn_str_eq(got.pointer, t.pointer));
    tarn_entity_row gone = t;
    gone.id = 999999;
    s.row = &gone;
    assert_int_equal(tarn_meta_commit(f->m, entity_swap, &s), TARN_E_ICE_NO_TABLE);

    rename_args r = {t.id, ns.id, TARN_STR("v")};
    assert_int_equal(tarn_meta_commit(f->m, entity_rename, &r), TARN_E_ICE_ALREADY_EXISTS);
    r = (rename_args){t.id, other.id, TARN_STR("t2")};
    assert_int_equal(tarn_meta_commit(f->m, entity_rename, &r), TARN_OK);
    assert_int_equal(tarn_meta_entity_get(f->m, NULL, 1, TARN_STR("o"), TARN_STR("t2"), f->arena, &got), TARN_OK);
    r = (rename_args){t.id, 77777, TARN_STR("t2")};
    assert_int_equal(tarn_meta_commit(f->m, entity_rename, &r), TARN_E_ICE_NO_NAMESPACE);
    assert_int_equal(tarn_meta_entity_list(f->m, 1, ns.id, TARN_ENTITY_VIEW, TARN_STR_NULL, entity_add, &v), TARN_OK);
    assert_string_equal(v.text, "v,");
    v = (upload_seen){.n = 0};
    assert_int_equal(tarn_meta_entity_list(f->m, 1, ns.id, TARN_ENTITY_TABLE, TARN_STR_NULL, entity_add, &v), TARN_OK);
    assert_int_equal(v.n, 0);
    assert_int_equal(tarn_meta_commit(f->m, ns_delete, &other), TARN_E_ICE_NOT_EMPTY);
    assert_int_equal(tarn_meta_commit(f->m, entity_delete, &t.id), TARN_OK);
    assert_int_equal(tarn_meta_commit(f->m, entity_delete, &t.id), TARN_E_ICE_NO_TABLE);
    assert_int_equal(tarn_meta_commit(f->m, ns_delete, &other), TARN_OK);
}

static void test_entity_name_limit(void **state)
{
    fixture *f = *state;
    char name[TARN_CATALOG_NAME_BYTES_MAX + 1];
    tarn_ns_row ns = {.bucket_id = 1, .path = TARN_STR("n")};

    memset(name, 'e', sizeof(name));
    assert_int_equal(tarn_meta_commit(f->m, ns_create, &ns), TARN_OK);
    tarn_entity_row row = {.bucket_id = 1, .ns_id = ns.id, .kind = TARN_ENTITY_TABLE, .name = {name, sizeof(name)}};
    assert_int_equal(tarn_meta_commit(f->m, entity_create, &row), TARN_E_LIMIT);
    row.name.n--;
    assert_int_equal(tarn_meta_commit(f->m, entity_create, &row), TARN_OK);
    row.name.n = 0;
    assert_int_equal(tarn_meta_commit(f->m, entity_create, &row), TARN_E_LIMIT);
}

/* ------------------------------------------------------------------ no memory */
/* Every allocation of the store fails once: an error, nothing worse, and what is there stays. */
static void test_out_of_memory(void **state)
{
    fixture *f = *state;
    tarn_str v = TARN_STR("value"), got;
    bool all = false;

    assert_int_equal(tarn_meta_commit(f->m, kv_put, &v), TARN_OK);
    tarn_meta_close(f->m);
    f->m = NULL;
    for (uint64_t nth = 1; !all; nth++) {
        assert_true(nth < 1000);
        tarn_arena_reset(f->arena);
        tarn_alloc_fail_after(nth);
        tarn_err err = tarn_meta_open(&f->opt, &f->m);
        if (err == TARN_OK)
            err = tarn_meta_commit(f->m, kv_put, &v);
        if (err == TARN_OK)
            err = tarn_meta_kv_get(f->m, NULL, "fact", f->arena, &got);
        all = err == TARN_OK;
        tarn_alloc_fail_after(0);
        assert_true(all || err == TARN_E_NO_MEMORY || err == TARN_E_IO || err == TARN_E_QUORUM_WRITE || err == TARN_E_QUORUM_READ);
        tarn_meta_close(f->m);
        f->m = NULL;
    }
    fixture_reopen(f);
    assert_int_equal(tarn_meta_kv_get(f->m, NULL, "fact", f->arena, &got), TARN_OK);
    assert_true(tarn_str_eq(got, v));
}

int main(void)
{
#define T(fn) cmocka_unit_test_setup_teardown(fn, fixture_setup, fixture_teardown)
    const struct CMUnitTest tests[] = {
        T(test_bucket_round_trip),
        T(test_bucket_name_limit),
        T(test_bucket_list),
        T(test_bucket_config),
        T(test_object_every_column),
        T(test_object_limits),
        T(test_object_needs_new_seq),
        T(test_versions),
        T(test_bucket_not_empty),
        T(test_kv),
        T(test_out_of_memory),
        T(test_numbers_never_repeat),
        T(test_numbers_limit),
        T(test_inline),
        T(test_parts),
        T(test_uploads),
        T(test_garbage),
        T(test_repairs),
        T(test_namespaces),
        T(test_purges_are_kept_until_they_are_done),
        T(test_namespace_limits),
        T(test_entities),
        T(test_entity_name_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
