/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a bucket's configuration says, parsed once: policy, public access block, lifecycle rules, CORS.
 *
 * The bucket's row, which every request reads, carries a generation that changes with every change of its configuration:
 * it is the key of this cache, so that nothing has to be told about a change. A table of S3_FACTS_SLOTS, one slot for all
 * bucket ids that fall on it; the newcomer takes the slot.
 *
 * Invariants: (1) facts are never changed after they were put into a slot; (2) what is kept under a generation was read
 * after a row with that generation, so it is never older than the row.
 * Threads: any worker; the table is under facts_lock, held for a few instructions, never across a wait.
 */
#include "lifecycle.h"

#define ARENA_BYTES_MAX (8u * 1024 * 1024)

void s3_facts_unref(s3_facts *f)
{
    if (f == NULL || atomic_fetch_sub_explicit(&f->refs, 1, memory_order_acq_rel) != 1)
        return;
    tarn_policy_unref(f->policy);
    tarn_arena_free(f->arena);
    tarn_free(f);
}

/* A configuration that is not there is not an error: *out has p == NULL. */
static tarn_err load(tarn_s3 *s, const s3_facts *f, tarn_bucket_config kind, tarn_str *out)
{
    *out = TARN_STR_NULL;
    tarn_err e = tarn_meta_bucket_config_get(s->meta, NULL, f->bucket_id, kind, f->arena, out);
    return e == TARN_E_NOT_FOUND ? TARN_OK : e;
}

/* A stored policy that can't be read must not open the bucket: every decision is refused but those that put it right. */
static tarn_err load_policy(tarn_s3 *s, const tarn_bucket_row *b, s3_facts *f)
{
    tarn_str json;
    tarn_err_detail ignored = {0};
    tarn_err e = load(s, f, TARN_BC_POLICY, &json);
    if (e != TARN_OK || json.p == NULL)
        return e;
    e = tarn_policy_parse(TARN_POLICY_BUCKET, json, b->name, &f->policy, f->arena, &ignored);
    if (e == TARN_E_NO_MEMORY)
        return e;
    f->unreadable = e != TARN_OK;
    if (f->unreadable)
        return TARN_OK;
    f->policy_public = tarn_policy_is_public(f->policy);
    /* Only a hint that spares look-ups: an escaped spelling in the JSON is answered by the second condition. */
    bool escapes = tarn_str_find(json, TARN_STR("\\u")) >= 0;
    tarn_str low = tarn_arena_str(f->arena, json);
    if (low.p == NULL)
        return TARN_E_NO_MEMORY;
    for (size_t i = 0; i < low.n; i++)
        if (low.p[i] >= 'A' && low.p[i] <= 'Z')
            ((char *)(uintptr_t)low.p)[i] = (char)(low.p[i] + ('a' - 'A'));
    f->existing_tags = escapes || tarn_str_find(low, TARN_STR("s3:existingobjecttag")) >= 0;
    f->request_tags = escapes || tarn_str_find(low, TARN_STR("s3:requestobjecttag")) >= 0;
    return TARN_OK;
}

static tarn_err load_access_block(tarn_s3 *s, s3_facts *f)
{
    tarn_str xml;
    s3_node *root;
    tarn_err e = load(s, f, TARN_BC_PUBLIC_ACCESS_BLOCK, &xml);
    if (e != TARN_OK || xml.p == NULL)
        return e;
    e = s3_xml_parse(xml, f->arena, &root);
    if (e != TARN_OK) { /* what it may say at the most */
        f->block_public_policy = f->restrict_public = true;
        return TARN_OK;
    }
    f->block_public_policy = tarn_str_ieqc(s3_node_text(root, "BlockPublicPolicy"), "true");
    f->restrict_public = tarn_str_ieqc(s3_node_text(root, "RestrictPublicBuckets"), "true");
    return TARN_OK;
}

/* Lifecycle and CORS open nothing to anybody: what can't be read is as good as absent. */
static tarn_err load_others(tarn_s3 *s, s3_facts *f)
{
    tarn_str xml;
    s3_node *root;
    lc_rule *rules;
    tarn_err e = load(s, f, TARN_BC_LIFECYCLE, &xml);
    if (e == TARN_OK && xml.p != NULL && s3_xml_parse(xml, f->arena, &root) == TARN_OK &&
        lc_parse(NULL, root, f->arena, &rules, &f->rules_n) == TARN_OK)
        f->rules = rules;
    if (e == TARN_OK)
        e = load(s, f, TARN_BC_CORS, &xml);
    if (e == TARN_OK && xml.p != NULL && s3_xml_parse(xml, f->arena, &root) == TARN_OK)
        f->cors = root;
    return e;
}

static tarn_err read_facts(tarn_s3 *s, const tarn_bucket_row *b, s3_facts **out)
{
    s3_facts *f = tarn_calloc(1, sizeof *f);
    if (f == NULL)
        return TARN_E_NO_MEMORY;
    atomic_init(&f->refs, 1);
    f->bucket_id = b->id;
    f->generation = b->generation;
    f->arena = tarn_arena_new(ARENA_BYTES_MAX);
    tarn_err e = f->arena != NULL ? TARN_OK : TARN_E_NO_MEMORY;
    if (e == TARN_OK)
        e = load_policy(s, b, f);
    if (e == TARN_OK)
        e = load_access_block(s, f);
    if (e == TARN_OK)
        e = load_others(s, f);
    if (e != TARN_OK) {
        s3_facts_unref(f);
        return e;
    }
    *out = f;
    return TARN_OK;
}

static size_t slot_of(uint64_t bucket_id)
{
    return (size_t)((bucket_id * 0x9E3779B97F4A7C15ull) >> 32) % S3_FACTS_SLOTS;
}

tarn_err s3_facts_get(tarn_s3 *s, const tarn_bucket_row *b, s3_facts **out)
{
    size_t slot = slot_of(b->id);
    s3_facts *f, *old;
    (void)pthread_mutex_lock(&s->facts_lock);
    f = s->facts[slot];
    bool hit = f != NULL && f->bucket_id == b->id && f->generation == b->generation;
    if (hit)
        (void)atomic_fetch_add_explicit(&f->refs, 1, memory_order_relaxed);
    (void)pthread_mutex_unlock(&s->facts_lock);
    if (hit) {
        *out = f;
        return TARN_OK;
    }
    tarn_err e = read_facts(s, b, &f);
    if (e != TARN_OK)
        return e;
    (void)atomic_fetch_add_explicit(&f->refs, 1, memory_order_relaxed);
    (void)pthread_mutex_lock(&s->facts_lock);
    old = s->facts[slot];
    s->facts[slot] = f;
    (void)pthread_mutex_unlock(&s->facts_lock);
    s3_facts_unref(old);
    *out = f;
    return TARN_OK;
}

void s3_facts_drop_all(tarn_s3 *s)
{
    for (size_t i = 0; i < S3_FACTS_SLOTS; i++) {
        s3_facts_unref(s->facts[i]);
        s->facts[i] = NULL;
    }
}
