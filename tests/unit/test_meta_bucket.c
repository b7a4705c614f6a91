/* SPDX-License-Identifier: Apache-2.0 */
/*
 * meta: rows of buckets are remembered by each connection. What was changed is read as it is now: by whoever was told of the
 * change, on every thread, within the transaction that changes it, and after one that was undone.
 */
#include "meta_internal.h"
#include "meta_test.h"

#include <sched.h>

static tarn_err create(tarn_meta_tx *tx, void *arg)
{
    return tarn_meta_bucket_create(tx, arg);
}

static tarn_err update(tarn_meta_tx *tx, void *arg)
{
    return tarn_meta_bucket_update(tx, arg);
}

static tarn_err delete_it(tarn_meta_tx *tx, void *arg)
{
    return tarn_meta_bucket_delete(tx, *(const uint64_t *)arg);
}

static tarn_err configure(tarn_meta_tx *tx, void *arg)
{
    return tarn_meta_bucket_config_put(tx, *(const uint64_t *)arg, TARN_BC_POLICY, TARN_STR("{}"));
}

static tarn_err unconfigure(tarn_meta_tx *tx, void *arg)
{
    return tarn_meta_bucket_config_delete(tx, *(const uint64_t *)arg, TARN_BC_POLICY);
}

static tarn_bucket_row made(fixture *f, const char *name)
{
    tarn_bucket_row row = {.name = tarn_str_of(name), .owner = TARN_STR("first")};

    assert_int_equal(tarn_meta_commit(f->m, create, &row), TARN_OK);
    return row;
}

/* The row as both ways of looking give it, twice: read, and remembered. */
static tarn_bucket_row look(fixture *f, const char *name)
{
    tarn_bucket_row by_name, by_id;

    for (int i = 0; i < 2; i++) {
        assert_int_equal(tarn_meta_bucket_get(f->m, NULL, tarn_str_of(name), f->arena, &by_name), TARN_OK);
        assert_true(tarn_str_eqc(by_name.name, name));
        assert_int_equal(tarn_meta_bucket_get_id(f->m, NULL, by_name.id, f->arena, &by_id), TARN_OK);
        assert_true(tarn_str_eq(by_id.name, by_name.name) && tarn_str_eq(by_id.owner, by_name.owner));
        assert_true(tarn_str_eq(by_id.warehouse_properties, by_name.warehouse_properties));
        assert_int_equal(by_id.generation, by_name.generation);
        assert_int_equal(by_id.versioning, by_name.versioning);
    }
    return by_name;
}

static void every_change_is_seen_by_the_next_look(void **state)
{
    fixture *f = *state;
    tarn_bucket_row row = made(f, "alpha"), got = look(f, "alpha");
    uint64_t generation = got.generation;

    got.owner = TARN_STR("second");
    got.versioning = TARN_VERSIONING_ENABLED;
    assert_int_equal(tarn_meta_commit(f->m, update, &got), TARN_OK);
    got = look(f, "alpha");
    assert_true(tarn_str_eqc(got.owner, "second") && got.versioning == TARN_VERSIONING_ENABLED && got.generation > generation);
    tarn_meta_fn const changes[] = {configure, unconfigure};
    for (size_t i = 0; i < TARN_ARRAY_LEN(changes); i++) {
        generation = got.generation;
        assert_int_equal(tarn_meta_commit(f->m, changes[i], &row.id), TARN_OK);
        got = look(f, "alpha");
        assert_true(got.generation > generation);
    }
    assert_int_equal(tarn_meta_commit(f->m, delete_it, &row.id), TARN_OK);
    assert_int_equal(tarn_meta_bucket_get(f->m, NULL, TARN_STR("alpha"), f->arena, &got), TARN_E_NO_SUCH_BUCKET);
    assert_int_equal(tarn_meta_bucket_get_id(f->m, NULL, row.id, f->arena, &got), TARN_E_NO_SUCH_BUCKET);
    uint64_t old = row.id;
    row = made(f, "alpha"); /* the name comes again, the bucket is another */
    assert_true(look(f, "alpha").id == row.id && row.id != old);
    assert_int_equal(tarn_meta_bucket_get_id(f->m, NULL, old, f->arena, &got), TARN_E_NO_SUCH_BUCKET);
}

static void more_buckets_than_are_remembered(void **state)
{
    fixture *f = *state;
    enum { N = 5 * META_BUCKETS_KEPT };
    uint64_t ids[N];

    for (int i = 0; i < N; i++)
        ids[i] = made(f, tarn_arena_fmt(f->arena, "bucket-%d", i).p).id;
    for (int round = 0; round < 3; round++)
        for (int i = 0; i < N; i++)
            assert_int_equal(look(f, tarn_arena_fmt(f->arena, "bucket-%d", i).p).id, ids[i]);
}

static void long_rows_are_read_whole(void **state)
{
    fixture *f = *state;
    tarn_bucket_row row = made(f, "alpha");
    static char text[META_BUCKET_KEPT_BYTES_MAX + 1];

    for (size_t n = META_BUCKET_KEPT_BYTES_MAX - 1; n <= META_BUCKET_KEPT_BYTES_MAX + 1; n++) {
        size_t rest = n - strlen("alpha") - strlen("first");
        memset(text, 'a' + (int)(n % 26), rest);
        row.warehouse_properties = (tarn_str){text, rest};
        assert_int_equal(tarn_meta_commit(f->m, update, &row), TARN_OK);
        assert_true(tarn_str_eq(look(f, "alpha").warehouse_properties, row.warehouse_properties));
        meta_conn *c = pthread_getspecific(f->m->reader_key);
        bool kept = false;
        for (size_t i = 0; i < META_BUCKETS_KEPT; i++)
            kept = kept || c->buckets[i].changes == atomic_load(&f->m->bucket_changes);
        assert_int_equal(kept, n <= META_BUCKET_KEPT_BYTES_MAX);
    }
}

/* ------------------------------------------------------------------ within transactions */
static tarn_err look_within(tarn_meta_tx *tx, const tarn_bucket_row *row, const char *owner)
{
    tarn_bucket_row got;

    for (int i = 0; i < 2; i++) {
        assert_int_equal(tarn_meta_bucket_get_id(NULL, tx, row->id, tarn_meta_tx_arena(tx), &got), TARN_OK);
        assert_true(tarn_str_eqc(got.owner, owner));
        assert_int_equal(tarn_meta_bucket_get(NULL, tx, row->name, tarn_meta_tx_arena(tx), &got), TARN_OK);
        assert_true(tarn_str_eqc(got.owner, owner));
    }
    return TARN_OK;
}

static tarn_err look_first(tarn_meta_tx *tx, void *arg)
{
    return look_within(tx, arg, "first");
}

static tarn_err look_second(tarn_meta_tx *tx, void *arg)
{
    return look_within(tx, arg, "second");
}

static tarn_err change_and_look(tarn_meta_tx *tx, void *arg)
{
    tarn_bucket_row *row = arg, changed = *row;
    tarn_err err = look_within(tx, row, "first");

    changed.owner = TARN_STR("second");
    if (err == TARN_OK)
        err = tarn_meta_bucket_update(tx, &changed);
    return err == TARN_OK ? look_within(tx, row, "second") : err;
}

static tarn_err change_and_fail(tarn_meta_tx *tx, void *arg)
{
    tarn_err err = change_and_look(tx, arg);

    return err == TARN_OK ? TARN_E_INVALID : err;
}

static void a_transaction_sees_its_own_change_and_none_that_was_undone(void **state)
{
    fixture *f = *state;
    tarn_bucket_row row = made(f, "alpha");

    assert_int_equal(tarn_meta_commit(f->m, look_first, &row), TARN_OK);
    assert_true(tarn_str_eqc(look(f, "alpha").owner, "first"));
    assert_int_equal(tarn_meta_commit(f->m, change_and_fail, &row), TARN_E_INVALID);
    assert_int_equal(tarn_meta_commit(f->m, look_first, &row), TARN_OK);
    assert_true(tarn_str_eqc(look(f, "alpha").owner, "first"));
    assert_int_equal(tarn_meta_commit(f->m, change_and_look, &row), TARN_OK);
    assert_int_equal(tarn_meta_commit(f->m, look_second, &row), TARN_OK);
    assert_true(tarn_str_eqc(look(f, "alpha").owner, "second"));
}

/* ------------------------------------------------------------------ several threads */
enum { READERS = 3, ROUNDS = 300 };

typedef struct race {
    tarn_meta *m;
    tarn_bucket_row row;
    _Atomic(uint64_t) told; /* the newest generation that the writer has been told of */
    atomic_bool over;
} race;

static void *read_on(void *arg)
{
    race *r = arg;
    void *wrong = NULL;

    while (!atomic_load(&r->over) && wrong == NULL) {
        tarn_bucket_row got;
        uint64_t told = atomic_load(&r->told);
        tarn_arena *a = tarn_arena_new(65536);
        if (a == NULL || tarn_meta_bucket_get(r->m, NULL, r->row.name, a, &got) != TARN_OK || got.generation < told)
            wrong = r;
        tarn_arena_free(a);
    }
    return wrong;
}

static void no_thread_reads_what_is_older_than_what_was_answered(void **state)
{
    fixture *f = *state;
    pthread_t readers[READERS];
    f->opt.inline_committer = false;
    fixture_reopen(f);
    race r = {.m = f->m, .row = made(f, "alpha")};

    for (size_t i = 0; i < READERS; i++)
        assert_int_equal(pthread_create(&readers[i], NULL, read_on, &r), 0);
    for (size_t i = 0; i < ROUNDS; i++) {
        assert_int_equal(tarn_meta_commit(f->m, configure, &r.row.id), TARN_OK);
        tarn_bucket_row got = look(f, "alpha");
        assert_true(got.generation > atomic_load(&r.told));
        atomic_store(&r.told, got.generation);
        (void)sched_yield();
    }
    atomic_store(&r.over, true);
    for (size_t i = 0; i < READERS; i++) {
        void *wrong = NULL;
        assert_int_equal(pthread_join(readers[i], &wrong), 0);
        assert_null(wrong);
    }
}

#define T(f) cmocka_unit_test_setup_teardown(f, fixture_setup, fixture_teardown)
int main(void)
{
    const struct CMUnitTest tests[] = {
        T(every_change_is_seen_by_the_next_look),
        T(more_buckets_than_are_remembered),
        T(long_rows_are_read_whole),
        T(a_transaction_sees_its_own_change_and_none_that_was_undone),
        T(no_thread_reads_what_is_older_than_what_was_answered),
    };
    return cmocka_run_group_tests_name("meta bucket", tests, NULL, NULL);
}
