/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Versions, conditions and locks. The state machine is compared with a small model in memory over random operations; then
 * each rule once by itself, and what is deleted or replaced leaves no data behind.
 */
#include "object_fixture.h"
#include "put.h"

/* ------------------------------------------------------------------ model: per key a list, newest first */
#define MODEL_KEYS 4
#define MODEL_VERSIONS 256

typedef struct mversion {
    bool null_version, marker;
    uint64_t seq, nonce, seed, size;
} mversion;
typedef struct mkey {
    mversion v[MODEL_VERSIONS];
    size_t n;
} mkey;
static mkey model[MODEL_KEYS];
static const char *const keys[MODEL_KEYS] = {"a", "a/b", "b", "\xc3\xa9"};

static void m_remove(mkey *k, size_t i)
{
    memmove(&k->v[i], &k->v[i + 1], (k->n - i - 1) * sizeof k->v[0]);
    k->n--;
}

static void m_remove_null(mkey *k)
{
    for (size_t i = 0; i < k->n; i++) {
        if (k->v[i].null_version) {
            m_remove(k, i);
            return;
        }
    }
}

static void m_add(mkey *k, mversion v)
{
    assert_true(k->n < MODEL_VERSIONS);
    memmove(&k->v[1], &k->v[0], k->n * sizeof k->v[0]);
    k->v[0] = v;
    k->n++;
}

static uint64_t random_size(void)
{
    static const uint64_t of[] = {0, 1, 5000, 20000, 150000, 1100000};
    return of[tarn_random_u64() % TARN_ARRAY_LEN(of)];
}

static void do_put(fx *f, size_t key, uint64_t seed)
{
    uint64_t size = random_size();
    tarn_put_result r = fx_put(f, keys[key], seed, size, (seed & 1) != 0);
    mversion v = {.seq = r.row.seq,
                  .nonce = r.row.nonce,
                  .seed = seed,
                  .size = size,
                  .null_version = f->bucket.versioning != TARN_VERSIONING_ENABLED};
    assert_int_equal(r.row.null_version, v.null_version);
    if (v.null_version) {
        m_remove_null(&model[key]);
    }
    m_add(&model[key], v);
}

static tarn_delete_result delete_one(fx *f, const char *key, tarn_version_ref ref)
{
    tarn_delete_spec d = {.key = tarn_str_of(key), .version = ref};
    tarn_delete_result r;
    assert_int_equal(tarn_object_delete(f->s, &f->bucket, &d, 1, &r), TARN_OK);
    return r;
}

static void do_delete(fx *f, size_t key)
{
    mkey *k = &model[key];
    tarn_delete_result r = delete_one(f, keys[key], (tarn_version_ref){.sel = TARN_VERSION_CURRENT});
    assert_int_equal(r.err, TARN_OK);
    if (f->bucket.versioning == TARN_VERSIONING_OFF) {
        assert_false(r.delete_marker);
        m_remove_null(k);
        return;
    }
    assert_true(r.delete_marker && r.has_version);
    bool null_version = f->bucket.versioning == TARN_VERSIONING_SUSPENDED;
    if (null_version) {
        m_remove_null(k);
    }
    m_add(k, (mversion){.marker = true, .null_version = null_version, .seq = r.row.seq, .nonce = r.row.nonce});
}

static void do_delete_version(fx *f, size_t key)
{
    mkey *k = &model[key];
    if (k->n == 0) {
        tarn_delete_result r = delete_one(f, keys[key], (tarn_version_ref){.sel = TARN_VERSION_ID, .seq = 12345, .nonce = 1});
        assert_int_equal(r.err, TARN_OK);
        assert_false(r.has_version);
        return;
    }
    size_t i = tarn_random_u64() % k->n;
    tarn_version_ref ref = {.sel = k->v[i].null_version ? TARN_VERSION_NULL : TARN_VERSION_ID, .seq = k->v[i].seq, .nonce = k->v[i].nonce};
    tarn_delete_result r = delete_one(f, keys[key], ref);
    assert_int_equal(r.err, TARN_OK);
    assert_true(r.has_version);
    assert_int_equal(r.delete_marker, k->v[i].marker);
    m_remove(k, i);
}

static void check_key(fx *f, size_t key, bool read)
{
    mkey *k = &model[key];
    tarn_version_row row;
    tarn_str name = tarn_str_of(keys[key]);
    tarn_err err = tarn_object_stat(f->s, &f->bucket, name, (tarn_version_ref){.sel = TARN_VERSION_CURRENT}, f->arena, &row);
    if (k->n == 0) {
        assert_int_equal(err, TARN_E_NO_SUCH_KEY);
    } else {
        assert_int_equal(err, k->v[0].marker ? TARN_E_NO_SUCH_KEY : TARN_OK);
        assert_int_equal(row.seq, k->v[0].seq);
        assert_int_equal(row.delete_marker, k->v[0].marker);
    }
    for (size_t i = 0; i < k->n; i++) {
        const mversion *v = &k->v[i];
        tarn_version_ref ref = {.sel = v->null_version ? TARN_VERSION_NULL : TARN_VERSION_ID, .seq = v->seq, .nonce = v->nonce};
        assert_int_equal(tarn_object_stat(f->s, &f->bucket, name, ref, f->arena, &row), TARN_OK);
        assert_int_equal(row.delete_marker, v->marker);
        assert_int_equal(row.size, v->size);
        if (!v->marker && read) {
            assert_int_equal(fx_read(f, &row, v->seed, 0, v->size), TARN_OK);
        }
        if (!v->null_version) {
            ref.nonce++;
            assert_int_equal(tarn_object_stat(f->s, &f->bucket, name, ref, f->arena, &row), TARN_E_NO_SUCH_VERSION);
        }
    }
}

static void test_model(void **state)
{
    fx f;
    (void)state;
    fx_init(&f, 2);
    fx_open(&f);
    fx_bucket(&f, "bucket", TARN_VERSIONING_OFF);
    memset(model, 0, sizeof model);
    tarn_random_seed(42);
    for (unsigned i = 1; i <= 500; i++) {
        size_t key = tarn_random_u64() % MODEL_KEYS;
        switch (tarn_random_u64() % 8) {
        case 0:
        case 1:
        case 2:
        case 3:
            do_put(&f, key, i);
            break;
        case 4:
            do_delete(&f, key);
            break;
        case 5:
        case 6:
            do_delete_version(&f, key);
            break;
        default:
            if (i > 100) { /* versioning, once on, is never off again */
                fx_versioning(&f, tarn_random_u64() % 2 ? TARN_VERSIONING_ENABLED : TARN_VERSIONING_SUSPENDED);
            }
        }
        check_key(&f, key, false);
        if (i % 50 == 0) {
            tarn_arena_reset(f.arena);
            fx_close(&f);
            fx_open(&f);
            fx_reload_bucket(&f, "bucket");
            for (size_t k = 0; k < MODEL_KEYS; k++) {
                check_key(&f, k, true);
            }
        }
    }
    assert_int_equal(tarn_store_collect_garbage(f.s, 0), TARN_OK);
    for (size_t k = 0; k < MODEL_KEYS; k++) {
        check_key(&f, k, true);
    }
    tarn_random_seed(0);
    fx_end(&f);
}

/* ------------------------------------------------------------------ conditions */
static tarn_err put_if(fx *f, const char *key, tarn_put_conditions c, tarn_put_result *r)
{
    tarn_put_spec spec = fx_spec(f, key, 3);
    spec.conditions = c;
    return fx_put_spec(f, &spec, 9, 3, r);
}

static void test_conditions(void **state)
{
    fx f;
    tarn_put_result r, r2;
    (void)state;
    fx_init(&f, 1);
    fx_open(&f);
    fx_bucket(&f, "bucket", TARN_VERSIONING_ENABLED);
    tarn_put_conditions none = {.if_none_match_any = true};
    tarn_put_conditions any = {.if_match = TARN_STR("*")};
    assert_int_equal(put_if(&f, "k", any, &r), TARN_E_NO_SUCH_KEY);
    assert_int_equal(put_if(&f, "k", none, &r), TARN_OK);
    assert_int_equal(put_if(&f, "k", none, &r2), TARN_E_PRECONDITION_FAILED);
    assert_int_equal(put_if(&f, "k", any, &r), TARN_OK);
    tarn_put_conditions match = {.if_match = r.row.etag};
    assert_int_equal(put_if(&f, "k", match, &r), TARN_OK);
    tarn_put_conditions other = {.if_match = TARN_STR("00000000000000000000000000000000")};
    assert_int_equal(put_if(&f, "k", other, &r2), TARN_E_PRECONDITION_FAILED);
    tarn_put_conditions not_this = {.if_none_match = r.row.etag};
    assert_int_equal(put_if(&f, "k", not_this, &r2), TARN_E_PRECONDITION_FAILED);
    tarn_put_conditions not_other = {.if_none_match = other.if_match};
    assert_int_equal(put_if(&f, "k", not_other, &r), TARN_OK);
    /* a delete marker counts as absent */
    (void)delete_one(&f, "k", (tarn_version_ref){.sel = TARN_VERSION_CURRENT});
    assert_int_equal(put_if(&f, "k", any, &r2), TARN_E_NO_SUCH_KEY);
    assert_int_equal(put_if(&f, "k", none, &r), TARN_OK);
    /* deletes with a condition */
    tarn_delete_spec d = {.key = TARN_STR("k"), .if_match = other.if_match};
    tarn_delete_result dr;
    assert_int_equal(tarn_object_delete(f.s, &f.bucket, &d, 1, &dr), TARN_OK);
    assert_int_equal(dr.err, TARN_E_PRECONDITION_FAILED);
    d.key = TARN_STR("absent");
    assert_int_equal(tarn_object_delete(f.s, &f.bucket, &d, 1, &dr), TARN_OK);
    assert_int_equal(dr.err, TARN_E_NO_SUCH_KEY);
    d = (tarn_delete_spec){.key = TARN_STR("k"), .if_match = r.row.etag};
    assert_int_equal(tarn_object_delete(f.s, &f.bucket, &d, 1, &dr), TARN_OK);
    assert_int_equal(dr.err, TARN_OK);
    fx_end(&f);
}

/* Of many that race for one key exactly one creates it. */
#define RACERS 12
typedef struct racer {
    fx *f;
    unsigned *done, *won;
} racer;

static void race(void *arg)
{
    racer *r = arg;
    tarn_put_result out;
    tarn_arena *own = tarn_arena_new(1 << 20);
    tarn_put_spec spec = {.bucket = &r->f->bucket, .key = TARN_STR("race"), .size_hint = 20000, .conditions = {.if_none_match_any = true}};
    tarn_put *p = NULL;
    static const char bytes[20000];
    assert_int_equal(tarn_put_begin(r->f->s, &spec, own, &p), TARN_OK);
    assert_int_equal(tarn_put_write(p, bytes, sizeof bytes), TARN_OK);
    tarn_err err = tarn_put_finish(p, &out);
    assert_true(err == TARN_OK || err == TARN_E_PRECONDITION_FAILED);
    *r->won += err == TARN_OK ? 1 : 0;
    ++*r->done;
    tarn_arena_free(own);
}

static void race_main(fx *f)
{
    unsigned done = 0, won = 0;
    racer r = {f, &done, &won};
    for (unsigned i = 0; i < RACERS; i++) {
        assert_int_equal(tarn_fiber_spawn(tarn_loop_current(), race, &r, "racer"), TARN_OK);
    }
    while (done < RACERS) {
        tarn_sleep_ms(1);
    }
    assert_int_equal(won, 1);
}

static void test_race(void **state)
{
    fx f;
    (void)state;
    fx_init(&f, 4);
    fx_open(&f);
    fx_bucket(&f, "bucket", TARN_VERSIONING_OFF);
    assert_true(fx_on_loop(TARN_IO_THREADS, race_main, &f));
    fx_end(&f);
}

/* ------------------------------------------------------------------ locks */
static tarn_err set_lock(void *ctx, tarn_version_row *row, tarn_arena *arena)
{
    const tarn_version_row *want = ctx;
    (void)arena;
    row->retention = want->retention;
    row->retain_until_ms = want->retain_until_ms;
    row->legal_hold = want->legal_hold;
    return TARN_OK;
}

static tarn_err try_delete(fx *f, const tarn_version_row *row, bool bypass)
{
    tarn_delete_spec d = {
        .key = row->key, .version = {.sel = TARN_VERSION_ID, .seq = row->seq, .nonce = row->nonce}, .bypass_governance = bypass};
    tarn_delete_result r;
    assert_int_equal(tarn_object_delete(f->s, &f->bucket, &d, 1, &r), TARN_OK);
    return r.err;
}

static void test_locks(void **state)
{
    fx f;
    tarn_version_row out;
    (void)state;
    fx_init(&f, 1);
    fx_open(&f);
    fx_bucket(&f, "bucket", TARN_VERSIONING_ENABLED);
    tarn_put_result r = fx_put(&f, "locked", 1, 30000, true);
    tarn_version_ref ref = {.sel = TARN_VERSION_ID, .seq = r.row.seq, .nonce = r.row.nonce};
    int64_t later = tarn_now_ms() + 3600 * 1000;
    tarn_version_row want = {.retention = TARN_RETENTION_GOVERNANCE, .retain_until_ms = later};
    assert_int_equal(tarn_object_edit(f.s, &f.bucket, r.row.key, ref, set_lock, &want, &out, f.arena), TARN_OK);
    assert_int_equal(out.retention, TARN_RETENTION_GOVERNANCE);
    assert_int_equal(try_delete(&f, &r.row, false), TARN_E_ACCESS_DENIED);
    fx_check(&f, "locked", 1, 30000);
    /* a delete marker may be put over it */
    tarn_delete_result marker = delete_one(&f, "locked", (tarn_version_ref){.sel = TARN_VERSION_CURRENT});
    assert_true(marker.delete_marker);
    want.legal_hold = true;
    assert_int_equal(tarn_object_edit(f.s, &f.bucket, r.row.key, ref, set_lock, &want, NULL, f.arena), TARN_OK);
    assert_int_equal(try_delete(&f, &r.row, true), TARN_E_ACCESS_DENIED);
    want = (tarn_version_row){.retention = TARN_RETENTION_COMPLIANCE, .retain_until_ms = later};
    assert_int_equal(tarn_object_edit(f.s, &f.bucket, r.row.key, ref, set_lock, &want, NULL, f.arena), TARN_OK);
    assert_int_equal(try_delete(&f, &r.row, true), TARN_E_ACCESS_DENIED);
    want.retain_until_ms = tarn_now_ms() - 1; /* it has run out */
    assert_int_equal(tarn_object_edit(f.s, &f.bucket, r.row.key, ref, set_lock, &want, NULL, f.arena), TARN_OK);
    assert_int_equal(try_delete(&f, &r.row, false), TARN_OK);
    assert_int_equal(tarn_object_edit(f.s, &f.bucket, r.row.key, ref, set_lock, &want, NULL, f.arena), TARN_E_NO_SUCH_VERSION);
    fx_end(&f);
}

/* ------------------------------------------------------------------ nothing stays behind */
static uint64_t allocated(fx *f)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < f->drives_n; i++) {
        char *cmd = fx_fmt("du -s -B1 %s/tarn/parts %s/tarn/segments | awk '{s+=$1} END {print s}'", f->drives[i], f->drives[i]);
        FILE *p = popen(cmd, "r");
        unsigned long long n = 0;
        assert_non_null(p);
        assert_int_equal(fscanf(p, "%llu", &n), 1);
        (void)pclose(p);
        tarn_free(cmd);
        sum += n;
    }
    return sum;
}

static void test_space_comes_back(void **state)
{
    static const uint64_t sizes[] = {100, 40000, 600000, 5000000};
    fx f;
    (void)state;
    fx_init(&f, 3);
    fx_open(&f);
    uint64_t empty = allocated(&f);
    fx_bucket(&f, "bucket", TARN_VERSIONING_OFF);
    for (unsigned round = 0; round < 3; round++) {
        for (size_t i = 0; i < TARN_ARRAY_LEN(sizes); i++) {
            (void)fx_put(&f, keys[i], round, sizes[i], true);
        }
    }
    /* pinned data is left alone */
    tarn_version_row row = fx_stat(&f, keys[3]);
    tarn_get *g = NULL;
    assert_int_equal(tarn_get_open(f.s, &row, 0, row.size, f.arena, &g), TARN_OK);
    for (size_t i = 0; i < TARN_ARRAY_LEN(sizes); i++) {
        (void)delete_one(&f, keys[i], (tarn_version_ref){.sel = TARN_VERSION_CURRENT});
    }
    assert_int_equal(tarn_store_collect_garbage(f.s, 0), TARN_OK);
    const uint8_t *p = NULL;
    size_t n = 0;
    uint64_t at = 0;
    while (at < row.size) {
        assert_int_equal(tarn_get_next(g, &p, &n), TARN_OK);
        for (size_t i = 0; i < n; i++) {
            assert_int_equal(p[i], fx_byte(2, at + i));
        }
        at += n;
    }
    tarn_get_close(g);
    fx_close(&f); /* segments that are open are not swept */
    fx_open(&f);
    assert_int_equal(tarn_store_collect_garbage(f.s, 0), TARN_OK);
    assert_true(allocated(&f) <= empty + 3 * 65536);
    fx_end(&f);
}

/* What was written and never made visible goes; what is visible stays. */
static void test_sweep_leftovers(void **state)
{
    fx f;
    (void)state;
    fx_init(&f, 2);
    fx_open(&f);
    uint64_t empty = allocated(&f);
    fx_bucket(&f, "bucket", TARN_VERSIONING_OFF);
    static const uint64_t sizes[] = {40000, 5000000};
    for (size_t i = 0; i < TARN_ARRAY_LEN(sizes); i++) {
        tarn_put_spec spec = fx_spec(&f, "lost", sizes[i]);
        tarn_put *p = NULL;
        char *bytes = calloc(1, sizes[i]);
        assert_int_equal(tarn_put_begin(f.s, &spec, f.arena, &p), TARN_OK);
        assert_int_equal(tarn_put_write(p, bytes, sizes[i]), TARN_OK);
        assert_int_equal(tarn_put_prepare(p), TARN_OK);
        free(bytes);
        if (i == 1) { /* it is in use: the sweeper doesn't touch it */
            assert_int_equal(tarn_store_collect_garbage(f.s, 0), TARN_OK);
            assert_true(allocated(&f) >= empty + sizes[i]);
        }
        p->applied = true; /* as after a commit whose outcome is unknown: the data stays */
        tarn_put_done(p, false);
    }
    (void)fx_put(&f, "kept", 1, 50000, true);
    (void)fx_put(&f, "kept2", 2, 5000000, true);
    fx_close(&f);
    fx_open(&f);
    fx_reload_bucket(&f, "bucket");
    uint64_t before = allocated(&f);
    assert_int_equal(tarn_store_collect_garbage(f.s, 3600 * 1000), TARN_OK); /* too young */
    fx_check(&f, "kept2", 2, 5000000);
    assert_int_equal(tarn_store_collect_garbage(f.s, 0), TARN_OK);
    assert_true(allocated(&f) + 2 * 5000000 <= before);
    fx_check(&f, "kept", 1, 50000);
    fx_check(&f, "kept2", 2, 5000000);
    fx_end(&f);
}

/* ------------------------------------------------------------------ names of versions */
static void test_version_text(void **state)
{
    tarn_version_ref ref;
    char mem[64];
    tarn_sb b;
    (void)state;
    assert_true(tarn_version_parse(TARN_STR(""), &ref) && ref.sel == TARN_VERSION_CURRENT);
    assert_true(tarn_version_parse(TARN_STR("null"), &ref) && ref.sel == TARN_VERSION_NULL);
    assert_true(tarn_version_parse(TARN_STR("0000000000000001fffffffffffffffe"), &ref));
    assert_int_equal(ref.seq, 1);
    assert_true(ref.nonce == 0xfffffffffffffffeull);
    assert_false(tarn_version_parse(TARN_STR("0000000000000001fffffffffffffff"), &ref));
    assert_false(tarn_version_parse(TARN_STR("0000000000000001fffffffffffffffe0"), &ref));
    assert_false(tarn_version_parse(TARN_STR("0000000000000001ffffffffffffffxe"), &ref));
    tarn_version_row row = {.seq = 1, .nonce = 0xfffffffffffffffeull};
    tarn_sb_init_fixed(&b, mem, sizeof mem);
    tarn_version_format(&b, &row);
    assert_string_equal(mem, "0000000000000001fffffffffffffffe");
    row.null_version = true;
    tarn_sb_reset(&b);
    tarn_version_format(&b, &row);
    assert_string_equal(mem, "null");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_model),       cmocka_unit_test(test_conditions),       cmocka_unit_test(test_race),
        cmocka_unit_test(test_locks),       cmocka_unit_test(test_space_comes_back), cmocka_unit_test(test_sweep_leftovers),
        cmocka_unit_test(test_version_text)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
