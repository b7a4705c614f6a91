/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The shared table of policy decisions, run through the decision function; skipped where the file is not there
 * (test_auth_policy.c has cases of its own). Also: every document of the table of malformed ones gets a clear error or,
 * where the table says that it is valid, none.
 */
#include "policy.h"
#include "shared_data.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#define CONDITIONS_MAX 64
#define DOCUMENTS_MAX 8
#define OWN_ACCOUNT "111122223333"

typedef struct docs {
    tarn_policy *v[DOCUMENTS_MAX];
    const tarn_policy *list[DOCUMENTS_MAX];
    size_t n;
} docs;

static tarn_err add_doc(docs *d, tarn_policy_kind kind, const json_t *j, tarn_str bucket, tarn_arena *arena, tarn_err_detail *detail)
{
    if (!j || json_is_null(j)) {
        return TARN_OK;
    }
    char *text = json_dumps(j, JSON_COMPACT);
    assert_non_null(text);
    assert_true(d->n < DOCUMENTS_MAX);
    tarn_err e = tarn_policy_parse(kind, tarn_str_of(text), bucket, &d->v[d->n], arena, detail);
    if (e == TARN_OK) {
        d->list[d->n] = d->v[d->n];
        d->n++;
    }
    free(text);
    return e;
}

static tarn_err add_list(docs *d, const json_t *list, tarn_arena *arena, tarn_err_detail *detail)
{
    tarn_err e = TARN_OK;
    for (size_t i = 0; e == TARN_OK && i < json_array_size(list); i++) {
        e = add_doc(d, TARN_POLICY_IDENTITY, json_array_get(list, i), TARN_STR_NULL, arena, detail);
    }
    return e;
}

static void drop_docs(docs *d)
{
    for (size_t i = 0; i < d->n; i++) {
        tarn_policy_unref(d->v[i]);
    }
}

static tarn_str text_of(const json_t *o, const char *k)
{
    return auth_json_str(json_object_get(o, k));
}

static size_t read_conditions(const json_t *o, tarn_pair out[CONDITIONS_MAX])
{
    size_t n = 0;
    const char *key;
    json_t *values;
    json_object_foreach((json_t *)(uintptr_t)o, key, values)
    {
        for (size_t i = 0; i < json_array_size(values); i++) {
            assert_true(n < CONDITIONS_MAX);
            out[n++] = (tarn_pair){tarn_str_of(key), auth_json_str(json_array_get(values, i))};
        }
    }
    return n;
}

/* arn:aws:s3:::bucket/key → bucket */
static tarn_str bucket_of(tarn_str resource)
{
    tarn_str rest = tarn_str_sub(resource, sizeof "arn:aws:s3:::" - 1, SIZE_MAX);
    tarn_str bucket;
    tarn_str_split(rest, '/', &bucket, &rest);
    return bucket;
}

static bool run_case(const json_t *c, tarn_arena *arena)
{
    const json_t *policies = json_object_get(c, "policies");
    const json_t *request = json_object_get(c, "request");
    const json_t *principal = json_object_get(request, "principal");
    tarn_str type = text_of(principal, "type");
    tarn_identity id = {.anonymous = tarn_str_eqc(type, "anonymous"), .root = tarn_str_eqc(type, "root")};
    tarn_pair conditions[CONDITIONS_MAX];
    docs identity = {.n = 0};
    docs bucket = {.n = 0};
    docs boundary = {.n = 0};
    docs session = {.n = 0};
    tarn_err_detail detail = {.fields_n = 0};
    tarn_policy_request r = {.action = json_string_value(json_object_get(request, "action")),
                             .resource = text_of(request, "resource"),
                             .identity = &id,
                             .conditions = conditions};
    id.name = text_of(principal, "name");
    id.access_key = id.name;
    r.conditions_n = read_conditions(json_object_get(request, "conditions"), conditions);
    tarn_err e = add_list(&identity, json_object_get(policies, "identity"), arena, &detail);
    if (e == TARN_OK) {
        e = add_doc(&bucket, TARN_POLICY_BUCKET, json_object_get(policies, "bucket"), bucket_of(r.resource), arena, &detail);
    }
    if (e == TARN_OK) {
        e = add_doc(&boundary, TARN_POLICY_IDENTITY, json_object_get(policies, "boundary"), TARN_STR_NULL, arena, &detail);
    }
    if (e == TARN_OK) {
        e = add_list(&session, json_object_get(policies, "session"), arena, &detail);
    }
    auth_documents d = {.identity = identity.list,
                        .identity_n = identity.n,
                        .bucket = bucket.list[0],
                        .boundary = boundary.list[0],
                        .session = session.list,
                        .session_n = session.n,
                        .cross_account = json_is_true(json_object_get(principal, "cross_account"))};
    bool allowed = e == TARN_OK && auth_decide(&d, &r);
    bool right = e == TARN_OK && allowed == tarn_str_eqc(text_of(c, "expected"), "allow");
    if (!right) {
        print_message("%s: %s (%s), expected %s: %s\n", json_string_value(json_object_get(c, "id")), allowed ? "allow" : "deny",
                      e == TARN_OK ? "ok" : tarn_err_get(e)->name, json_string_value(json_object_get(c, "expected")),
                      json_string_value(json_object_get(c, "why")));
        print_message("  %.*s\n", TARN_STR_ARG(detail.message));
    }
    drop_docs(&identity);
    drop_docs(&bucket);
    drop_docs(&boundary);
    drop_docs(&session);
    return right;
}

static json_t *load_table(const char *name, tarn_str *text)
{
    char path[SHARED_PATH_BYTES];
    if (!shared_path(name, path)) {
        return NULL;
    }
    *text = shared_read(path);
    assert_non_null(text->p);
    json_t *root = json_loadb(text->p, text->n, 0, NULL);
    assert_non_null(root);
    return root;
}

static void test_decisions(void **state)
{
    (void)state;
    tarn_str text;
    json_t *root = load_table("data/policy-cases.json", &text);
    if (!root) {
        print_message("skipped: no policy-cases.json\n");
        skip();
    }
    const json_t *cases = json_object_get(root, "cases");
    size_t wrong = 0;
    for (size_t i = 0; i < json_array_size(cases); i++) {
        tarn_arena *arena = tarn_arena_new(1 << 20);
        wrong += !run_case(json_array_get(cases, i), arena);
        tarn_arena_free(arena);
    }
    assert_true(json_array_size(cases) >= 389);
    assert_int_equal(wrong, 0);
    json_decref(root);
    tarn_free((void *)(uintptr_t)text.p);
}

/* What AWS takes and MinIO does not. */
static bool taken(const char *name)
{
    static const char *const NAMES[] = {"valid",    "Statement as an object",       "no Version",     "Version 2008-10-17",
                                        "IfExists", "key not valid for the action", "empty Condition"};
    for (size_t i = 0; i < TARN_ARRAY_LEN(NAMES); i++) {
        if (strcmp(name, NAMES[i]) == 0) {
            return true;
        }
    }
    return false;
}

static void test_malformed(void **state)
{
    (void)state;
    tarn_str text;
    json_t *root = load_table("data/policy-malformed.json", &text);
    if (!root) {
        print_message("skipped: no policy-malformed.json\n");
        skip();
    }
    const json_t *list = json_object_get(root, "documents");
    assert_true(json_array_size(list) >= 38);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *one = json_array_get(list, i);
        const char *name = json_string_value(json_object_get(one, "name"));
        tarn_arena *arena = tarn_arena_new(1 << 20);
        tarn_policy *p = NULL;
        tarn_err_detail d = {.fields_n = 0};
        tarn_err e = tarn_policy_parse(TARN_POLICY_BUCKET, text_of(one, "policy"), TARN_STR("bkt"), &p, arena, &d);
        if (e != (taken(name) ? TARN_OK : TARN_E_MALFORMED_POLICY)) {
            print_message("%s: %s\n", name, tarn_err_get(e)->name);
        }
        assert_int_equal(e, taken(name) ? TARN_OK : TARN_E_MALFORMED_POLICY);
        assert_true(e == TARN_OK || d.message.n > 0);
        tarn_policy_unref(p);
        tarn_arena_free(arena);
    }
    json_decref(root);
    tarn_free((void *)(uintptr_t)text.p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_decisions),
        cmocka_unit_test(test_malformed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
