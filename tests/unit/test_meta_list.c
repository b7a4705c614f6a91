/* SPDX-License-Identifier: Apache-2.0 */
/*
 * meta: object versions and listing against a model in memory. Thousands of random operations over keys of odd bytes; after
 * each few the store's answers (every version, every page of every kind of listing) must be those of the model.
 *
 * The seed is fixed, TARN_TEST_SEED sets another.
 */
#include "meta_test.h"

#define VERSIONS_MAX 20000

/* ------------------------------------------------------------------ random numbers of the test */
static uint64_t rng_state;

static uint64_t rnd(uint64_t below)
{
    rng_state ^= rng_state << 13;
    rng_state ^= rng_state >> 7;
    rng_state ^= rng_state << 17;
    return rng_state % below;
}

/* ------------------------------------------------------------------ the model: a flat array of versions */
typedef struct version {
    tarn_str key;
    uint64_t seq;
    uint64_t nonce;
    bool null_version;
    bool delete_marker;
    uint64_t size;
} version;

typedef struct model {
    version v[VERSIONS_MAX]; /* sorted: key ascending, seq descending */
    size_t n;
    tarn_arena *keys;
} model;

static int version_cmp(const version *a, tarn_str key, uint64_t seq)
{
    int c = tarn_str_cmp(a->key, key);

    if (c != 0)
        return c;
    return a->seq > seq ? -1 : a->seq < seq;
}

static size_t model_find(const model *m, tarn_str key, uint64_t seq)
{
    size_t lo = 0, hi = m->n;

    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (version_cmp(&m->v[mid], key, seq) < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

static void model_insert(model *m, version v)
{
    size_t at = model_find(m, v.key, v.seq);

    assert_true(m->n < VERSIONS_MAX);
    memmove(&m->v[at + 1], &m->v[at], (m->n - at) * sizeof(v));
    m->v[at] = v;
    m->n++;
}

static void model_remove(model *m, size_t at)
{
    memmove(&m->v[at], &m->v[at + 1], (m->n - at - 1) * sizeof(m->v[0]));
    m->n--;
}

/* The index of the key's current version, or SIZE_MAX. */
static size_t model_current(const model *m, tarn_str key)
{
    size_t at = model_find(m, key, UINT64_MAX);

    return at < m->n && tarn_str_eq(m->v[at].key, key) ? at : SIZE_MAX;
}

static bool model_is_current(const model *m, size_t i)
{
    return i == 0 || !tarn_str_eq(m->v[i - 1].key, m->v[i].key);
}

/* ------------------------------------------------------------------ what a listing gives, as a list of items */
typedef struct item {
    tarn_str text; /* key or prefix */
    bool is_prefix;
    uint64_t seq;
} item;

typedef struct items {
    item v[VERSIONS_MAX];
    size_t n;
    size_t max;
    tarn_arena *a;
    const model *m; /* for checking rows */
} items;

static void items_add(items *out, tarn_str text, bool is_prefix, uint64_t seq)
{
    assert_true(out->n < VERSIONS_MAX);
    out->v[out->n++] = (item){tarn_arena_str(out->a, text), is_prefix, seq};
}

static bool starts(tarn_str s, tarn_str prefix)
{
    return s.n >= prefix.n && (prefix.n == 0 || memcmp(s.p, prefix.p, prefix.n) == 0);
}

/* The listing by its definition: a scan of everything. */
static void model_list(const model *m, const tarn_list_query *q, items *out)
{
    tarn_str last_prefix = TARN_STR_NULL;
    bool have_prefix = false;

    for (size_t i = 0; i < m->n && out->n < out->max; i++) {
        const version *v = &m->v[i];
        if (!starts(v->key, q->prefix) || (!q->versions && (!model_is_current(m, i) || v->delete_marker)))
            continue;
        tarn_str rest = tarn_str_sub(v->key, q->prefix.n, v->key.n);
        ptrdiff_t cut = q->delimiter.n > 0 ? tarn_str_find(rest, q->delimiter) : -1;
        if (cut >= 0) {
            tarn_str cp = {v->key.p, q->prefix.n + (size_t)cut + q->delimiter.n};
            if (have_prefix && tarn_str_eq(cp, last_prefix))
                continue;
            last_prefix = cp;
            have_prefix = true;
            if (q->after.n == 0 || (tarn_str_cmp(cp, q->after) > 0 && !(q->after_is_prefix && starts(cp, q->after))))
                items_add(out, cp, true, 0);
            continue;
        }
        if (q->after.n > 0) {
            int c = tarn_str_cmp(v->key, q->after);
            if (c < 0 || (q->after_is_prefix && starts(v->key, q->after)))
                continue;
            if (c == 0 && !(q->versions && q->after_seq != 0 && v->seq < q->after_seq))
                continue;
        }
        items_add(out, v->key, false, v->seq);
    }
}

static bool on_version(void *ctx, const tarn_version_row *row)
{
    items *out = ctx;
    size_t at = model_find(out->m, row->key, row->seq);

    assert_true(at < out->m->n);
    const version *v = &out->m->v[at];
    assert_true(tarn_str_eq(v->key, row->key));
    assert_int_equal(v->seq, row->seq);
    assert_int_equal(v->nonce, row->nonce);
    assert_int_equal(v->size, row->size);
    assert_int_equal(v->null_version, row->null_version);
    assert_int_equal(v->delete_marker, row->delete_marker);
    assert_int_equal(model_is_current(out->m, at), row->current);
    assert_true(tarn_str_eqc(row->etag, "00112233445566778899aabbccddeeff"));
    items_add(out, row->key, false, row->seq);
    return out->n < out->max;
}

static bool on_prefix(void *ctx, tarn_str cp)
{
    items *out = ctx;

    items_add(out, cp, true, 0);
    return out->n < out->max;
}

static void items_equal(const items *a, const items *b)
{
    for (size_t i = 0; i < a->n && i < b->n; i++) {
        assert_true(tarn_str_eq(a->v[i].text, b->v[i].text));
        assert_int_equal(a->v[i].is_prefix, b->v[i].is_prefix);
        assert_int_equal(a->v[i].seq, b->v[i].seq);
    }
    assert_int_equal(a->n, b->n);
}

static items *items_new(const model *m, size_t max)
{
    items *x = tarn_calloc(1, sizeof(*x));

    assert_non_null(x);
    x->a = tarn_arena_new(64u << 20);
    x->max = max;
    x->m = m;
    return x;
}

static void items_free(items *x)
{
    tarn_arena_free(x->a);
    tarn_free(x);
}

static void list_check(fixture *f, const model *m, const tarn_list_query *q, size_t max)
{
    items *want = items_new(m, max), *got = items_new(m, max);
    const tarn_list_sink sink = {on_version, on_prefix, got};

    model_list(m, q, want);
    assert_int_equal(tarn_meta_list(f->m, q, &sink), TARN_OK);
    items_equal(want, got);
    items_free(want);
    items_free(got);
}

/* Page by page, each begun where the one before ended, gives the whole. */
static void pages_check(fixture *f, const model *m, tarn_list_query q, size_t page)
{
    items *want = items_new(m, VERSIONS_MAX), *got = items_new(m, VERSIONS_MAX);

    model_list(m, &q, want);
    for (size_t before = SIZE_MAX; before != got->n;) {
        const tarn_list_sink sink = {on_version, on_prefix, got};
        before = got->n;
        got->max = got->n + page;
        assert_int_equal(tarn_meta_list(f->m, &q, &sink), TARN_OK);
        if (got->n == 0)
            break;
        const item *last = &got->v[got->n - 1];
        q.after = last->text;
        q.after_is_prefix = last->is_prefix;
        q.after_seq = q.versions && !last->is_prefix ? last->seq : 0;
    }
    items_equal(want, got);
    items_free(want);
    items_free(got);
}

/* ------------------------------------------------------------------ random keys */
/* Few letters, so that prefixes are shared, and the bytes at the edges of their range. */
static tarn_str random_text(char *mem, size_t max)
{
    static const char letters[] = {'a', 'b', '/', '/', '\0', (char)0xff, (char)0xfe, '0', (char)0xc3, 'z'};
    size_t n = 1 + rnd(rnd(4) == 0 ? max : 6);

    for (size_t i = 0; i < n; i++)
        mem[i] = letters[rnd(sizeof(letters))];
    return (tarn_str){mem, n};
}

static tarn_str random_known(const model *m, char *mem)
{
    if (m->n == 0 || rnd(8) == 0)
        return random_text(mem, 12);
    tarn_str key = m->v[rnd(m->n)].key;
    size_t n = rnd(3) == 0 ? rnd(key.n + 1) : key.n;
    memcpy(mem, key.p, n);
    return (tarn_str){mem, n};
}

static tarn_list_query random_query(const model *m, char mem[4][TARN_KEY_BYTES_MAX])
{
    tarn_list_query q = {.bucket_id = 5, .versions = rnd(2) == 0, .columns_all = rnd(2) == 0};

    if (rnd(2) == 0)
        q.prefix = tarn_str_sub(random_known(m, mem[0]), 0, rnd(5));
    if (rnd(2) == 0)
        q.delimiter = rnd(4) != 0 ? TARN_STR("/") : random_text(mem[1], 3);
    if (rnd(2) == 0) {
        q.after = random_known(m, mem[2]);
        q.after_is_prefix = q.after.n > 0 && rnd(3) == 0;
        if (q.versions && !q.after_is_prefix && m->n > 0 && rnd(2) == 0) {
            const version *v = &m->v[rnd(m->n)];
            q.after = v->key;
            q.after_seq = v->seq;
        }
    }
    return q;
}

/* ------------------------------------------------------------------ operations on both */
typedef struct op_args {
    tarn_version_row row;
    int kind; /* 0 insert, 1 replace, 2 delete a version */
} op_args;

static tarn_err op_run(tarn_meta_tx *tx, void *arg)
{
    op_args *a = arg;

    if (a->kind == 2)
        return tarn_meta_version_delete(tx, &a->row);
    a->row.seq = tarn_meta_tx_seq(tx);
    return a->kind == 0 ? tarn_meta_version_insert(tx, &a->row) : tarn_meta_object_replace(tx, &a->row);
}

static size_t null_of(const model *m, tarn_str key)
{
    for (size_t i = model_find(m, key, UINT64_MAX); i < m->n && tarn_str_eq(m->v[i].key, key); i++) {
        if (m->v[i].null_version)
            return i;
    }
    return SIZE_MAX;
}

static void op_delete(fixture *f, model *m, size_t at)
{
    op_args a = {.kind = 2, .row = {.bucket_id = 5, .key = m->v[at].key, .seq = m->v[at].seq, .nonce = m->v[at].nonce}};

    assert_int_equal(tarn_meta_commit(f->m, op_run, &a), TARN_OK);
    model_remove(m, at);
}

static void op_put(fixture *f, model *m, tarn_str key)
{
    size_t current = model_current(m, key), null = null_of(m, key);
    op_args a = {.kind = rnd(3) == 0 ? 1 : 0,
                 .row = {.bucket_id = 5,
                         .key = tarn_arena_str(m->keys, key),
                         .nonce = rnd(UINT64_MAX),
                         .size = rnd(1u << 30),
                         .delete_marker = rnd(4) == 0,
                         .null_version = rnd(3) == 0,
                         .etag = TARN_STR("00112233445566778899aabbccddeeff"),
                         .attrs = TARN_STR("attributes")}};

    if (a.row.null_version && null != SIZE_MAX && !(a.kind == 1 && null == current)) { /* the old null version goes, as S3 has it */
        op_delete(f, m, null);
        current = model_current(m, key);
    }
    assert_int_equal(tarn_meta_commit(f->m, op_run, &a), TARN_OK);
    if (a.kind == 1 && current != SIZE_MAX)
        model_remove(m, current);
    model_insert(m, (version){a.row.key, a.row.seq, a.row.nonce, a.row.null_version, a.row.delete_marker, a.row.size});
}

static void gets_check(fixture *f, const model *m, tarn_str key)
{
    tarn_version_row row;
    size_t current = model_current(m, key), null = null_of(m, key);

    tarn_arena_reset(f->arena);
    tarn_err err = tarn_meta_object_get(f->m, NULL, 5, key, f->arena, &row);
    assert_int_equal(err, current == SIZE_MAX ? TARN_E_NO_SUCH_KEY : TARN_OK);
    if (err == TARN_OK)
        assert_int_equal(row.seq, m->v[current].seq);
    err = tarn_meta_version_get(f->m, NULL, 5, key, true, 0, 0, f->arena, &row);
    assert_int_equal(err, null == SIZE_MAX ? TARN_E_NO_SUCH_VERSION : TARN_OK);
    if (err == TARN_OK) {
        assert_int_equal(row.seq, m->v[null].seq);
        assert_int_equal(row.current, null == current);
    }
    for (size_t i = model_find(m, key, UINT64_MAX); i < m->n && tarn_str_eq(m->v[i].key, key); i++) {
        if (m->v[i].null_version)
            continue;
        assert_int_equal(tarn_meta_version_get(f->m, NULL, 5, key, false, m->v[i].seq, m->v[i].nonce, f->arena, &row), TARN_OK);
        assert_int_equal(row.size, m->v[i].size);
    }
}

static void other_bucket_put(fixture *f)
{
    for (uint64_t bucket = 4; bucket <= 6; bucket += 2) { /* the neighbours must never be seen */
        op_args a = {.kind = 0, .row = {.bucket_id = bucket, .key = TARN_STR("a/b"), .etag = TARN_STR("x")}};
        assert_int_equal(tarn_meta_commit(f->m, op_run, &a), TARN_OK);
    }
}

static void test_random_against_model(void **state)
{
    fixture *f = *state;
    model *m = tarn_calloc(1, sizeof(*m));
    char mem[4][TARN_KEY_BYTES_MAX], key_mem[TARN_KEY_BYTES_MAX];

    assert_non_null(m);
    m->keys = tarn_arena_new(256u << 20);
    other_bucket_put(f);
    for (int step = 0; step < 6000; step++) {
        tarn_str key = rnd(3) == 0 && m->n > 0 ? m->v[rnd(m->n)].key : random_text(key_mem, rnd(40) == 0 ? TARN_KEY_BYTES_MAX : 10);
        if (m->n > 0 && rnd(4) == 0)
            op_delete(f, m, rnd(m->n));
        else
            op_put(f, m, key);
        if (step % 4 == 0)
            gets_check(f, m, key);
        if (step % 8 == 0) {
            tarn_list_query q = random_query(m, mem);
            list_check(f, m, &q, rnd(2) == 0 ? VERSIONS_MAX - 1 : 1 + rnd(10));
        }
        if (step % 100 == 0) {
            tarn_list_query q = random_query(m, mem);
            pages_check(f, m, q, 1 + rnd(30));
        }
        if (step % 1000 == 999)
            fixture_reopen(f);
    }
    tarn_arena_free(m->keys);
    tarn_free(m);
}

/* ------------------------------------------------------------------ more rows than one read transaction takes */
typedef struct many_args {
    uint64_t from, n;
    const char *fmt_prefix;
    bool marker;
} many_args;

static tarn_str many_key(const many_args *a, uint64_t i, char mem[64])
{
    tarn_sb b;

    tarn_sb_init_fixed(&b, mem, 64);
    tarn_sb_fmt(&b, "%s%06llu", a->fmt_prefix, (unsigned long long)i);
    return tarn_sb_view(&b);
}

static tarn_err many_put(tarn_meta_tx *tx, void *arg)
{
    const many_args *a = arg;

    for (uint64_t i = a->from; i < a->from + a->n; i++) {
        char mem[64];
        tarn_version_row row = {.bucket_id = 5, .key = many_key(a, i, mem), .seq = tarn_meta_tx_seq(tx), .delete_marker = a->marker};
        tarn_err err = tarn_meta_version_insert(tx, &row);
        if (err != TARN_OK)
            return err;
    }
    return TARN_OK;
}

typedef struct tally {
    uint64_t versions, prefixes, stop_after;
    char last[64];
    size_t last_n;
    uint64_t last_seq;
} tally;

static bool tally_version(void *ctx, const tarn_version_row *row)
{
    tally *t = ctx;
    tarn_str last = {t->last, t->last_n};

    assert_true(tarn_str_cmp(last, row->key) < 0 || (tarn_str_eq(last, row->key) && row->seq < t->last_seq));
    memcpy(t->last, row->key.p, row->key.n);
    t->last_n = row->key.n;
    t->last_seq = row->seq;
    t->versions++;
    return t->stop_after == 0 || t->versions < t->stop_after;
}

static bool tally_prefix(void *ctx, tarn_str cp)
{
    tally *t = ctx;

    (void)cp;
    t->prefixes++;
    return true;
}

static tally list_tally(fixture *f, tarn_list_query q)
{
    tally t = {0};
    const tarn_list_sink sink = {tally_version, tally_prefix, &t};

    q.bucket_id = 5;
    assert_int_equal(tarn_meta_list(f->m, &q, &sink), TARN_OK);
    return t;
}

static void many(fixture *f, const char *prefix, uint64_t n, bool marker)
{
    for (uint64_t at = 0; at < n; at += 1000) {
        many_args a = {at, n - at < 1000 ? n - at : 1000, prefix, marker};
        assert_int_equal(tarn_meta_commit(f->m, many_put, &a), TARN_OK);
    }
}

static void test_long_lists(void **state)
{
    fixture *f = *state;

    many(f, "p/", 9000, false); /* more than two read transactions */
    many(f, "p/", 9000, true);  /* now all deleted: 9000 current markers, 9000 versions */
    many(f, "q/", 100, false);
    tally t = list_tally(f, (tarn_list_query){0});
    assert_int_equal(t.versions, 100);
    t = list_tally(f, (tarn_list_query){.delimiter = TARN_STR("/")});
    assert_int_equal(t.versions, 0);
    assert_int_equal(t.prefixes, 1); /* a prefix with nothing but markers is not there */
    t = list_tally(f, (tarn_list_query){.versions = true});
    assert_int_equal(t.versions, 18100);
    t = list_tally(f, (tarn_list_query){.versions = true, .delimiter = TARN_STR("/")});
    assert_int_equal(t.prefixes, 2);
    t = list_tally(f, (tarn_list_query){.versions = true, .prefix = TARN_STR("p/"), .after = TARN_STR("p/008999"), .after_seq = 0});
    assert_int_equal(t.versions, 0);
}

/* One key with more versions than one read transaction takes, and many prefixes. */
static tarn_err one_key_put(tarn_meta_tx *tx, void *arg)
{
    for (uint64_t i = 0; i < *(uint64_t *)arg; i++) {
        tarn_version_row row = {.bucket_id = 5, .key = TARN_STR("hot"), .seq = tarn_meta_tx_seq(tx)};
        tarn_err err = tarn_meta_version_insert(tx, &row);
        if (err != TARN_OK)
            return err;
    }
    return TARN_OK;
}

static void test_many_versions_of_one_key(void **state)
{
    fixture *f = *state;
    uint64_t n = 10000;

    assert_int_equal(tarn_meta_commit(f->m, one_key_put, &n), TARN_OK);
    tally t = list_tally(f, (tarn_list_query){.versions = true});
    assert_int_equal(t.versions, n);
    t = list_tally(f, (tarn_list_query){.versions = true, .after = TARN_STR("hot"), .after_seq = t.last_seq + 7});
    assert_int_equal(t.versions, 7);
}

static tarn_err prefixes_put(tarn_meta_tx *tx, void *arg)
{
    uint64_t n = *(uint64_t *)arg;

    for (uint64_t i = 0; i < n; i++) {
        char mem[64];
        many_args a = {.fmt_prefix = ""};
        tarn_sb b;
        tarn_str key = many_key(&a, i / 20, mem);
        tarn_sb_init_fixed(&b, mem + 32, 32);
        tarn_sb_fmt(&b, "%.*s/%02llu", TARN_STR_ARG(key), (unsigned long long)(i % 20));
        tarn_version_row row = {.bucket_id = 5, .key = tarn_sb_view(&b), .seq = tarn_meta_tx_seq(tx)};
        tarn_err err = tarn_meta_version_insert(tx, &row);
        if (err != TARN_OK)
            return err;
    }
    return TARN_OK;
}

static void test_many_prefixes(void **state)
{
    fixture *f = *state;
    uint64_t n = 40000;

    assert_int_equal(tarn_meta_commit(f->m, prefixes_put, &n), TARN_OK);
    tally t = list_tally(f, (tarn_list_query){.delimiter = TARN_STR("/")});
    assert_int_equal(t.prefixes, n / 20);
    assert_int_equal(t.versions, 0);
    t = list_tally(f, (tarn_list_query){.delimiter = TARN_STR("/"), .versions = true});
    assert_int_equal(t.prefixes, n / 20);
}

/* ------------------------------------------------------------------ a page's last version is deleted before the next page */
static void test_promoted_between_pages(void **state)
{
    fixture *f = *state;
    uint64_t n = 3;
    tally t = {.stop_after = 1};
    const tarn_list_sink sink = {tally_version, tally_prefix, &t};
    tarn_list_query q = {.bucket_id = 5, .versions = true};

    assert_int_equal(tarn_meta_commit(f->m, one_key_put, &n), TARN_OK);
    assert_int_equal(tarn_meta_list(f->m, &q, &sink), TARN_OK);
    op_args a = {.kind = 2, .row = {.bucket_id = 5, .key = TARN_STR("hot"), .seq = t.last_seq}};
    assert_int_equal(tarn_meta_commit(f->m, op_run, &a), TARN_OK); /* the one below becomes current */
    q.after = TARN_STR("hot");
    q.after_seq = t.last_seq;
    t = list_tally(f, q);
    assert_int_equal(t.versions, 2);
}

/* A callback may ask the store, also for another listing. */
static bool nested_version(void *ctx, const tarn_version_row *row)
{
    fixture *f = ctx;
    tarn_version_row got;
    tally t = list_tally(f, (tarn_list_query){.versions = true});

    assert_int_equal(t.versions, 20);
    assert_int_equal(tarn_meta_object_get(f->m, NULL, 5, row->key, f->arena, &got), TARN_OK);
    return true;
}

static void test_nested(void **state)
{
    fixture *f = *state;
    const tarn_list_sink sink = {nested_version, NULL, f};
    const tarn_list_query q = {.bucket_id = 5, .versions = true};

    many(f, "n/", 20, false);
    assert_int_equal(tarn_meta_list(f->m, &q, &sink), TARN_OK);
}

static void test_query_limits(void **state)
{
    fixture *f = *state;
    char big[TARN_KEY_BYTES_MAX + 1];
    tally t = {0};
    const tarn_list_sink sink = {tally_version, tally_prefix, &t};

    memset(big, 0xff, sizeof(big));
    tarn_str too_long = {big, sizeof(big)}, longest = {big, TARN_KEY_BYTES_MAX};
    tarn_list_query bad[3] = {{.prefix = too_long}, {.after = too_long}, {.delimiter = too_long}};
    tarn_list_query good[4] = {
        {.prefix = longest}, {.after = longest}, {.after = longest, .after_is_prefix = true}, {.delimiter = longest}};
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(tarn_meta_list(f->m, &bad[i], &sink), TARN_E_KEY_TOO_LONG);
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(tarn_meta_list(f->m, &good[i], &sink), TARN_OK);
    op_args a = {.kind = 0, .row = {.bucket_id = 5, .key = longest}}; /* the last key that there can be */
    assert_int_equal(tarn_meta_commit(f->m, op_run, &a), TARN_OK);
    t = list_tally(f, (tarn_list_query){.prefix = {big, 1}, .delimiter = {big, 1}});
    assert_int_equal(t.prefixes, 1);
}

static int setup(void **state)
{
    const char *seed = getenv("TARN_TEST_SEED");
    uint64_t n = 0;

    rng_state = seed != NULL && tarn_str_to_u64(tarn_str_of(seed), &n) && n != 0 ? n : 88172645463325252ULL;
    return fixture_setup(state);
}

int main(void)
{
#define T(fn) cmocka_unit_test_setup_teardown(fn, setup, fixture_teardown)
    const struct CMUnitTest tests[] = {
        T(test_random_against_model),
        T(test_long_lists),
        T(test_many_versions_of_one_key),
        T(test_many_prefixes),
        T(test_promoted_between_pages),
        T(test_nested),
        T(test_query_limits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
