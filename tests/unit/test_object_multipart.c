/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Multipart uploads: parts of every class in any order, replaced, left out; complete with its checks, its ETag and both kinds
 * of checksums; ranges across parts; abort and complete leave nothing behind; damage in parts is repaired.
 */
#include "object_fixture.h"

#define MIB ((uint64_t)1 << 20)

typedef struct up {
    fx *f;
    tarn_str key;
    uint64_t id, nonce;
    tarn_complete_part parts[64];
    uint64_t sizes[64], seeds[64];
    size_t n;
} up;

static up begin(fx *f, const char *key, tarn_sum_kind kind, tarn_sum_type type)
{
    up u = {.f = f, .key = tarn_arena_str(f->arena, tarn_str_of(key))};
    tarn_pair meta = {TARN_STR("colour"), TARN_STR("blue")};
    tarn_attrs a = {.content_type = TARN_STR("x/y"), .user_meta = &meta, .user_meta_n = 1, .checksum = {.kind = kind, .type = type}};
    assert_int_equal(tarn_upload_create(f->s, &f->bucket, u.key, TARN_STR("me"), &a, &u.id, &u.nonce), TARN_OK);
    return u;
}

static tarn_err put_part(up *u, uint32_t number, uint64_t seed, uint64_t size, tarn_sum_kind kind, tarn_put_result *r)
{
    tarn_put_spec spec = {.bucket = &u->f->bucket,
                          .key = u->key,
                          .size_hint = seed & 1 ? size : UINT64_MAX,
                          .is_part = true,
                          .upload_id = u->id,
                          .part_number = number,
                          .attrs = {.checksum = {.kind = kind}}};
    return fx_put_spec(u->f, &spec, seed, size, r);
}

/* Puts a part and adds it to the list that complete will name. */
static void add(up *u, uint32_t number, uint64_t seed, uint64_t size, tarn_sum_kind kind)
{
    tarn_put_result r;
    assert_int_equal(put_part(u, number, seed, size, kind, &r), TARN_OK);
    u->parts[u->n] = (tarn_complete_part){.number = number, .etag = r.row.etag, .checksum = r.checksum};
    u->sizes[u->n] = size;
    u->seeds[u->n++] = seed;
}

static tarn_complete_spec spec_of(const up *u)
{
    return (tarn_complete_spec){
        .bucket = &u->f->bucket, .key = u->key, .upload_id = u->id, .nonce = u->nonce, .parts = u->parts, .parts_n = u->n};
}

static uint64_t total(const up *u)
{
    uint64_t n = 0;
    for (size_t i = 0; i < u->n; i++) {
        n += u->sizes[i];
    }
    return n;
}

static uint8_t byte_at(const up *u, uint64_t at)
{
    size_t i = 0;
    while (at >= u->sizes[i]) {
        at -= u->sizes[i++];
    }
    return fx_byte(u->seeds[i], at);
}

static void check_range(const up *u, uint64_t off, uint64_t len)
{
    tarn_version_row row;
    tarn_get *g = NULL;
    uint64_t at = off;
    assert_int_equal(tarn_object_stat(u->f->s, &u->f->bucket, u->key, (tarn_version_ref){.sel = TARN_VERSION_CURRENT}, u->f->arena, &row),
                     TARN_OK);
    assert_int_equal(row.size, total(u));
    assert_int_equal(tarn_get_open(u->f->s, &row, off, len, u->f->arena, &g), TARN_OK);
    for (;;) {
        const uint8_t *p = NULL;
        size_t n = 0;
        assert_int_equal(tarn_get_next(g, &p, &n), TARN_OK);
        if (n == 0) {
            break;
        }
        for (size_t i = 0; i < n; i++) {
            if (p[i] != byte_at(u, at + i)) {
                fail_msg("byte %llu is wrong", (unsigned long long)(at + i));
            }
        }
        at += n;
    }
    assert_int_equal(at, off + len);
    tarn_get_close(g);
}

static void etag_of(const up *u, char out[64])
{
    tarn_md5_state md5;
    uint8_t sum[16];
    tarn_sb b;
    tarn_md5_init(&md5);
    for (size_t i = 0; i < u->n; i++) {
        assert_true(tarn_hex_decode(u->parts[i].etag, sum, 16));
        tarn_md5_update(&md5, sum, 16);
    }
    tarn_md5_final(&md5, sum);
    tarn_sb_init_fixed(&b, out, 64);
    tarn_sb_hex(&b, sum, 16);
    tarn_sb_fmt(&b, "-%zu", u->n);
}

static size_t count_parts(fx *f, uint64_t data_id);
static bool count_one(void *ctx, const tarn_part_row *row)
{
    (void)row;
    ++*(size_t *)ctx;
    return true;
}
static size_t count_parts(fx *f, uint64_t data_id)
{
    size_t n = 0;
    assert_int_equal(tarn_meta_part_list(f->s->meta, NULL, data_id, 0, false, count_one, &n), TARN_OK);
    return n;
}

static void whole_way(fx *f)
{
    static const uint64_t last[] = {0, 10, 20000, 300000, 6 * MIB + 5};
    fx_bucket(f, "bucket", TARN_VERSIONING_OFF);
    for (size_t i = 0; i < TARN_ARRAY_LEN(last); i++) {
        up u = begin(f, "big", TARN_SUM_NONE, TARN_SUM_FULL_OBJECT);
        tarn_put_result r;
        uint32_t bad = 0;
        char etag[64];
        assert_int_equal(put_part(&u, 3, 1, 5 * MIB, TARN_SUM_NONE, &r), TARN_OK); /* not named in the end */
        assert_int_equal(put_part(&u, 2, 1, 30, TARN_SUM_NONE, &r), TARN_OK);      /* replaced */
        add(&u, 2, 10, 5 * MIB, TARN_SUM_NONE);
        add(&u, 5, 11, 7 * MIB + 13, TARN_SUM_CRC32);
        add(&u, 10000, 12, last[i], TARN_SUM_SHA256);
        tarn_complete_spec spec = spec_of(&u);
        spec.has_size = true;
        spec.size = total(&u);
        assert_int_equal(tarn_upload_complete(f->s, &spec, f->arena, &r, &bad), TARN_OK);
        etag_of(&u, etag);
        assert_true(tarn_str_eqc(r.row.etag, etag));
        assert_int_equal(r.row.parts_n, 3);
        assert_int_equal(count_parts(f, u.id), 3);
        check_range(&u, 0, total(&u));
        tarn_random_seed(i + 1);
        for (unsigned n = 0; n < 20; n++) {
            uint64_t off = tarn_random_u64() % total(&u);
            check_range(&u, off, tarn_random_u64() % (total(&u) - off + 1));
        }
        tarn_random_seed(0);
        /* once more: the same answer; a different list: gone */
        tarn_put_result again;
        assert_int_equal(tarn_upload_complete(f->s, &spec, f->arena, &again, &bad), TARN_OK);
        assert_int_equal(again.row.seq, r.row.seq);
        assert_true(tarn_str_eqc(again.row.etag, etag));
        assert_memory_equal(again.checksum.value, r.checksum.value, 8);
        spec.parts_n--;
        assert_int_equal(tarn_upload_complete(f->s, &spec, f->arena, &again, &bad), TARN_E_NO_SUCH_UPLOAD);
        /* attributes came along; parts are known */
        tarn_attrs a;
        tarn_part_span *spans = NULL;
        size_t n = 0;
        tarn_version_row row = fx_stat(f, "big");
        assert_int_equal(tarn_attrs_unpack(row.attrs, f->arena, &a), TARN_OK);
        assert_true(tarn_str_eqc(a.content_type, "x/y") && a.user_meta_n == 1 && tarn_str_eqc(a.user_meta[0].value, "blue"));
        assert_int_equal(a.checksum.kind, TARN_SUM_CRC64NVME);
        assert_int_equal(tarn_object_parts(f->s, &row, f->arena, &spans, &n), TARN_OK);
        assert_int_equal(n, 3);
        assert_int_equal(spans[1].number, 5);
        assert_int_equal(spans[1].off, 5 * MIB);
        assert_int_equal(spans[1].size, 7 * MIB + 13);
        assert_int_equal(spans[1].checksum.kind, TARN_SUM_CRC32);
    }
}

static void test_whole_way(void **state)
{
    static const size_t drives[] = {1, 3};
    (void)state;
    for (size_t i = 0; i < TARN_ARRAY_LEN(drives); i++) {
        fx f;
        fx_init(&f, drives[i]);
        fx_open(&f);
        whole_way(&f);
        fx_end(&f);
    }
}

static void test_on_loops(void **state)
{
    static const tarn_io_backend backends[] = {TARN_IO_URING, TARN_IO_THREADS};
    (void)state;
    for (size_t i = 0; i < TARN_ARRAY_LEN(backends); i++) {
        fx f;
        fx_init(&f, 4);
        fx_open(&f);
        (void)fx_on_loop(backends[i], whole_way, &f);
        fx_end(&f);
    }
}

/* ------------------------------------------------------------------ what complete refuses */
static void test_refusals(void **state)
{
    fx f;
    tarn_put_result r;
    uint32_t bad = 0;
    (void)state;
    fx_init(&f, 1);
    fx_open(&f);
    fx_bucket(&f, "bucket", TARN_VERSIONING_OFF);
    up u = begin(&f, "k", TARN_SUM_NONE, TARN_SUM_FULL_OBJECT);
    add(&u, 1, 1, TARN_PART_BYTES_MIN, TARN_SUM_CRC32);
    add(&u, 2, 3, TARN_PART_BYTES_MIN - 1, TARN_SUM_CRC32);
    add(&u, 4, 5, 100, TARN_SUM_CRC32);
    tarn_complete_spec spec = spec_of(&u);
    assert_int_equal(tarn_upload_complete(f.s, &spec, f.arena, &r, &bad), TARN_E_ENTITY_TOO_SMALL);
    assert_int_equal(bad, 2);
    add(&u, 2, 3, TARN_PART_BYTES_MIN, TARN_SUM_CRC32);
    u.parts[1] = u.parts[3];
    u.sizes[1] = u.sizes[3];
    u.n = 3;
    spec = spec_of(&u);
    /* order, doubles, absent parts, a wrong ETag, a wrong checksum */
    tarn_complete_part save = u.parts[1];
    u.parts[1].number = 1;
    assert_int_equal(tarn_upload_complete(f.s, &spec, f.arena, &r, &bad), TARN_E_INVALID_PART_ORDER);
    u.parts[1].number = 3;
    assert_int_equal(tarn_upload_complete(f.s, &spec, f.arena, &r, &bad), TARN_E_INVALID_PART);
    assert_int_equal(bad, 3);
    u.parts[1] = save;
    u.parts[1].etag = u.parts[0].etag;
    assert_int_equal(tarn_upload_complete(f.s, &spec, f.arena, &r, &bad), TARN_E_INVALID_PART);
    u.parts[1].etag = TARN_STR("not an etag");
    assert_int_equal(tarn_upload_complete(f.s, &spec, f.arena, &r, &bad), TARN_E_INVALID_PART);
    u.parts[1] = save;
    u.parts[1].checksum.value[0] ^= 1;
    assert_int_equal(tarn_upload_complete(f.s, &spec, f.arena, &r, &bad), TARN_E_INVALID_PART);
    assert_int_equal(bad, 2);
    u.parts[1] = save;
    /* numbers at both ends */
    u.parts[0].number = 0;
    assert_int_equal(tarn_upload_complete(f.s, &spec, f.arena, &r, &bad), TARN_E_INVALID_ARGUMENT);
    u.parts[0].number = 1;
    u.parts[2].number = TARN_PARTS_MAX + 1;
    assert_int_equal(tarn_upload_complete(f.s, &spec, f.arena, &r, &bad), TARN_E_INVALID_ARGUMENT);
    u.parts[2].number = 4;
    assert_int_equal(put_part(&u, 0, 1, 10, TARN_SUM_NONE, &r), TARN_E_INVALID_ARGUMENT);
    assert_int_equal(put_part(&u, TARN_PARTS_MAX + 1, 1, 10, TARN_SUM_NONE, &r), TARN_E_INVALID_ARGUMENT);
    spec.parts_n = 0;
    assert_int_equal(tarn_upload_complete(f.s, &spec, f.arena, &r, &bad), TARN_E_MALFORMED_XML);
    spec = spec_of(&u);
    /* size, object checksum, conditions, type */
    spec.has_size = true;
    spec.size = total(&u) + 1;
    assert_int_equal(tarn_upload_complete(f.s, &spec, f.arena, &r, &bad), TARN_E_INVALID_REQUEST);
    spec = spec_of(&u);
    spec.checksum = (tarn_checksum){.kind = TARN_SUM_CRC64NVME};
    assert_int_equal(tarn_upload_complete(f.s, &spec, f.arena, &r, &bad), TARN_E_BAD_DIGEST);
    spec = spec_of(&u);
    spec.conditions.if_match = TARN_STR("*");
    assert_int_equal(tarn_upload_complete(f.s, &spec, f.arena, &r, &bad), TARN_E_NO_SUCH_KEY);
    spec = spec_of(&u);
    spec.nonce++;
    assert_int_equal(tarn_upload_complete(f.s, &spec, f.arena, &r, &bad), TARN_E_NO_SUCH_UPLOAD);
    /* none of all that changed anything */
    spec = spec_of(&u);
    u.seeds[1] = 3;
    assert_int_equal(tarn_upload_complete(f.s, &spec, f.arena, &r, &bad), TARN_OK);
    check_range(&u, 0, total(&u));
    assert_int_equal(put_part(&u, 1, 1, 10, TARN_SUM_NONE, &r), TARN_E_NO_SUCH_UPLOAD);
    fx_end(&f);
}

/* ------------------------------------------------------------------ checksums of the whole */
static void sum_of_all(const up *u, tarn_sum_kind kind, uint8_t out[TARN_DIGEST_BYTES_MAX])
{
    tarn_sum s;
    assert_int_equal(tarn_sum_begin(&s, kind), TARN_OK);
    for (size_t i = 0; i < u->n; i++) {
        uint8_t *mem = malloc(u->sizes[i] + 1);
        for (uint64_t j = 0; j < u->sizes[i]; j++) {
            mem[j] = fx_byte(u->seeds[i], j);
        }
        tarn_sum_update(&s, mem, u->sizes[i]);
        free(mem);
    }
    tarn_sum_peek(&s, out);
    tarn_sum_end(&s);
}

static void checksum_way(fx *f, tarn_sum_kind kind, tarn_sum_type type, tarn_sum_kind part_kind)
{
    up u = begin(f, "sum", kind, type);
    tarn_put_result r;
    uint32_t bad = 0;
    uint8_t want[TARN_DIGEST_BYTES_MAX];
    add(&u, 1, 21, 5 * MIB, part_kind);
    add(&u, 2, 22, 6 * MIB, part_kind);
    add(&u, 3, 23, 1000, part_kind);
    if (type == TARN_SUM_FULL_OBJECT) {
        sum_of_all(&u, kind == TARN_SUM_NONE ? TARN_SUM_CRC64NVME : kind, want);
    } else {
        tarn_sum s;
        assert_int_equal(tarn_sum_begin(&s, kind), TARN_OK);
        for (size_t i = 0; i < u.n; i++) {
            up one = u;
            uint8_t v[TARN_DIGEST_BYTES_MAX];
            one.n = 1;
            one.sizes[0] = u.sizes[i];
            one.seeds[0] = u.seeds[i];
            sum_of_all(&one, kind, v);
            tarn_sum_update(&s, v, tarn_sum_bytes(kind));
        }
        tarn_sum_peek(&s, want);
        tarn_sum_end(&s);
    }
    tarn_complete_spec spec = spec_of(&u);
    tarn_sum_kind out_kind = kind == TARN_SUM_NONE ? TARN_SUM_CRC64NVME : kind;
    spec.checksum = (tarn_checksum){.kind = out_kind, .type = type};
    memcpy(spec.checksum.value, want, tarn_sum_bytes(out_kind));
    spec.type_given = true;
    spec.type = type == TARN_SUM_COMPOSITE ? TARN_SUM_FULL_OBJECT : TARN_SUM_COMPOSITE;
    assert_int_equal(tarn_upload_complete(f->s, &spec, f->arena, &r, &bad), TARN_E_INVALID_REQUEST);
    spec.type = type;
    assert_int_equal(tarn_upload_complete(f->s, &spec, f->arena, &r, &bad), TARN_OK);
    assert_int_equal(r.checksum.kind, out_kind);
    assert_int_equal(r.checksum.type, type);
    assert_memory_equal(r.checksum.value, want, tarn_sum_bytes(out_kind));
    assert_int_equal(r.checksum.parts_n, type == TARN_SUM_COMPOSITE ? 3 : 0);
}

static void test_checksums(void **state)
{
    fx f;
    (void)state;
    fx_init(&f, 1);
    fx_open(&f);
    fx_bucket(&f, "bucket", TARN_VERSIONING_OFF);
    checksum_way(&f, TARN_SUM_NONE, TARN_SUM_FULL_OBJECT, TARN_SUM_NONE);
    checksum_way(&f, TARN_SUM_NONE, TARN_SUM_FULL_OBJECT, TARN_SUM_CRC32); /* parts with, upload without */
    checksum_way(&f, TARN_SUM_CRC32, TARN_SUM_COMPOSITE, TARN_SUM_CRC32);
    checksum_way(&f, TARN_SUM_CRC32, TARN_SUM_FULL_OBJECT, TARN_SUM_NONE); /* upload with, parts without */
    checksum_way(&f, TARN_SUM_CRC32C, TARN_SUM_FULL_OBJECT, TARN_SUM_CRC32C);
    checksum_way(&f, TARN_SUM_CRC64NVME, TARN_SUM_FULL_OBJECT, TARN_SUM_CRC64NVME);
    checksum_way(&f, TARN_SUM_SHA1, TARN_SUM_COMPOSITE, TARN_SUM_SHA1);
    checksum_way(&f, TARN_SUM_SHA256, TARN_SUM_COMPOSITE, TARN_SUM_SHA256);
    fx_end(&f);
}

/* ------------------------------------------------------------------ leaving nothing */
static size_t files(fx *f)
{
    char *cmd = fx_fmt("find %s -path '*/parts/*' -type f | wc -l", f->root);
    FILE *p = popen(cmd, "r");
    size_t n = 0;
    assert_non_null(p);
    assert_int_equal(fscanf(p, "%zu", &n), 1);
    (void)pclose(p);
    tarn_free(cmd);
    return n;
}

static void test_leaves_nothing(void **state)
{
    fx f;
    tarn_put_result r;
    uint32_t bad = 0;
    (void)state;
    fx_init(&f, 2);
    fx_open(&f);
    fx_bucket(&f, "bucket", TARN_VERSIONING_OFF);
    up u = begin(&f, "gone", TARN_SUM_NONE, TARN_SUM_FULL_OBJECT);
    add(&u, 1, 1, 6 * MIB, TARN_SUM_NONE);
    add(&u, 2, 3, 100, TARN_SUM_NONE);
    assert_int_equal(files(&f), 2);
    assert_int_equal(tarn_upload_abort(f.s, &f.bucket, u.key, u.id, u.nonce + 1), TARN_E_NO_SUCH_UPLOAD);
    assert_int_equal(tarn_upload_abort(f.s, &f.bucket, u.key, u.id, u.nonce), TARN_OK);
    assert_int_equal(tarn_upload_abort(f.s, &f.bucket, u.key, u.id, u.nonce), TARN_E_NO_SUCH_UPLOAD);
    assert_int_equal(tarn_store_collect_garbage(f.s, 0), TARN_OK);
    assert_int_equal(files(&f), 0);
    assert_int_equal(count_parts(&f, u.id), 0);
    /* replaced and unused parts go, the others stay; then the object goes */
    u = begin(&f, "gone", TARN_SUM_NONE, TARN_SUM_FULL_OBJECT);
    assert_int_equal(put_part(&u, 1, 5, 8 * MIB, TARN_SUM_NONE, &r), TARN_OK);
    assert_int_equal(put_part(&u, 9, 5, 8 * MIB, TARN_SUM_NONE, &r), TARN_OK);
    add(&u, 1, 1, 6 * MIB, TARN_SUM_NONE);
    add(&u, 2, 3, 100, TARN_SUM_NONE);
    assert_int_equal(tarn_store_collect_garbage(f.s, 0), TARN_OK);
    assert_int_equal(files(&f), 4);
    tarn_complete_spec spec = spec_of(&u);
    assert_int_equal(tarn_upload_complete(f.s, &spec, f.arena, &r, &bad), TARN_OK);
    assert_int_equal(tarn_store_collect_garbage(f.s, 0), TARN_OK);
    assert_int_equal(files(&f), 2);
    check_range(&u, 0, total(&u));
    (void)fx_put(&f, "gone", 1, 10, true);
    assert_int_equal(tarn_store_collect_garbage(f.s, 0), TARN_OK);
    assert_int_equal(files(&f), 0);
    assert_int_equal(count_parts(&f, u.id), 0);
    fx_end(&f);
}

static void test_damaged_parts(void **state)
{
    fx f;
    tarn_put_result r;
    uint32_t bad = 0;
    unsigned open = 1;
    (void)state;
    fx_init(&f, 4);
    fx_open(&f);
    fx_bucket(&f, "bucket", TARN_VERSIONING_OFF);
    up u = begin(&f, "hurt", TARN_SUM_NONE, TARN_SUM_FULL_OBJECT);
    add(&u, 1, 1, 6 * MIB, TARN_SUM_NONE);
    add(&u, 2, 3, 5 * MIB, TARN_SUM_NONE);
    tarn_complete_spec spec = spec_of(&u);
    assert_int_equal(tarn_upload_complete(f.s, &spec, f.arena, &r, &bad), TARN_OK);
    assert_int_equal(files(&f), 8);
    char *cmd = fx_fmt("rm -rf %s/tarn/parts/*/* %s/tarn/parts/*/*", f.drives[0], f.drives[2]);
    assert_int_equal(system(cmd), 0);
    tarn_free(cmd);
    fx_close(&f);
    fx_open(&f);
    fx_reload_bucket(&f, "bucket");
    u.f = &f;
    u.key = TARN_STR("hurt");
    check_range(&u, 0, total(&u));
    assert_int_equal(tarn_store_repairs_waiting(f.s), 1);
    assert_int_equal(obj_repair_pass(f.s, NULL), TARN_OK);
    assert_int_equal(tarn_store_repairs_waiting(f.s), 0);
    assert_int_equal(files(&f), 8);
    tarn_version_row row = fx_stat(&f, "hurt");
    int64_t before = tarn_metric_get(TARN_M_SHARDS_REBUILT);
    assert_int_equal(obj_repair_version(f.s, &row, &open), TARN_OK);
    assert_int_equal(open, 0);
    check_range(&u, 0, total(&u));
    assert_int_equal(tarn_metric_get(TARN_M_SHARDS_REBUILT), before);
    fx_end(&f);
}

/* A drive that was replaced gets the parts of an upload that is still open. */
static void test_replaced_drive(void **state)
{
    fx f;
    tarn_put_result r;
    uint32_t bad = 0;
    (void)state;
    fx_init(&f, 4);
    fx_open(&f);
    fx_bucket(&f, "bucket", TARN_VERSIONING_OFF);
    up u = begin(&f, "open", TARN_SUM_NONE, TARN_SUM_FULL_OBJECT);
    add(&u, 1, 1, 6 * MIB, TARN_SUM_NONE);
    add(&u, 2, 3, 200000, TARN_SUM_NONE);
    for (size_t i = 0; i < u.n; i++) { /* the arena goes with the store */
        u.parts[i].etag = (tarn_str){tarn_strdup(u.parts[i].etag), u.parts[i].etag.n};
    }
    u.key = TARN_STR("open");
    fx_close(&f);
    char *cmd = fx_fmt("rm -rf %s %s && mkdir %s %s", f.drives[1], f.drives[2], f.drives[1], f.drives[2]);
    assert_int_equal(system(cmd), 0);
    tarn_free(cmd);
    fx_open(&f);
    fx_reload_bucket(&f, "bucket");
    assert_int_equal(obj_fill_pass(f.s, NULL), TARN_OK);
    tarn_complete_spec spec = spec_of(&u);
    assert_int_equal(tarn_upload_complete(f.s, &spec, f.arena, &r, &bad), TARN_OK);
    fx_close(&f);
    cmd = fx_fmt("mv %s %s.away && mv %s %s.away", f.drives[0], f.drives[0], f.drives[3], f.drives[3]);
    assert_int_equal(system(cmd), 0);
    tarn_free(cmd);
    fx_open(&f);
    fx_reload_bucket(&f, "bucket");
    check_range(&u, 0, total(&u));
    for (size_t i = 0; i < u.n; i++) {
        tarn_free((void *)(uintptr_t)u.parts[i].etag.p);
    }
    fx_end(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_whole_way),      cmocka_unit_test(test_on_loops),
                                       cmocka_unit_test(test_refusals),       cmocka_unit_test(test_checksums),
                                       cmocka_unit_test(test_leaves_nothing), cmocka_unit_test(test_damaged_parts),
                                       cmocka_unit_test(test_replaced_drive)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
