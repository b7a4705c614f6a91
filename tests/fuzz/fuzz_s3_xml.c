/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as an XML body, and as what operations make of one. What must hold: the tree keeps to its limits and its texts
 * are UTF-8; a text that is written is read back as it was; lifecycle rules that were taken are written as rules that are
 * taken again, and as the same text; tags that were taken have keys and values.
 */
#include "lifecycle.h"

#include <string.h>

#define ARENA_BYTES_MAX (64u << 20)

static unsigned walk(const s3_node *n, unsigned depth)
{
    unsigned nodes = 1;
    TARN_ASSERT(depth <= S3_XML_DEPTH_MAX && n->name.n > 0 && tarn_str_utf8_valid(n->text));
    TARN_ASSERT(n->first == NULL || n->text.p == NULL);
    for (const s3_node *k = n->first; k != NULL; k = k->next) {
        TARN_ASSERT(k->parent == n && (k->next != NULL || n->last == k));
        nodes += walk(k, depth + 1);
    }
    return nodes;
}

static const s3_node *first_leaf(const s3_node *n)
{
    while (n->first != NULL)
        n = n->first;
    return n;
}

static void write_and_read(tarn_str text, tarn_arena *a)
{
    s3_xml x;
    s3_node *root;
    s3_xml_begin(&x, "R");
    s3_xml_text(&x, "T", text);
    s3_xml_close(&x, "R");
    TARN_ASSERT(!x.b.failed);
    if (x.b.n <= S3_XML_BODY_BYTES_MAX) {
        TARN_ASSERT(s3_xml_parse(tarn_sb_view(&x.b), a, &root) == TARN_OK);
        TARN_ASSERT(tarn_str_eq(s3_node_child(root, "T")->text, text));
    }
    tarn_sb_free(&x.b);
}

static void as_lifecycle(const s3_node *root, tarn_arena *a)
{
    lc_rule *rules, *again;
    size_t n, again_n;
    s3_node *tree;
    s3_xml x, y;
    if (lc_parse(NULL, root, a, &rules, &n) != TARN_OK)
        return;
    TARN_ASSERT(n >= 1 && n <= LC_RULES_MAX);
    lc_write(&x, rules, n);
    if (!x.b.failed && x.b.n <= S3_XML_BODY_BYTES_MAX) {
        TARN_ASSERT(s3_xml_parse(tarn_sb_view(&x.b), a, &tree) == TARN_OK);
        TARN_ASSERT(lc_parse(NULL, tree, a, &again, &again_n) == TARN_OK && again_n == n);
        lc_write(&y, again, again_n);
        TARN_ASSERT(x.b.n == y.b.n && memcmp(x.b.p, y.b.p, x.b.n) == 0);
        tarn_sb_free(&y.b);
    }
    tarn_sb_free(&x.b);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    tarn_arena *a = tarn_arena_new(ARENA_BYTES_MAX);
    s3_node *root = NULL;
    tarn_pair *tags;
    size_t tags_n;
    TARN_ASSERT(a != NULL);
    if (s3_xml_parse((tarn_str){(const char *)data, n}, a, &root) == TARN_OK) {
        TARN_ASSERT(walk(root, 1) <= S3_XML_NODES_MAX);
        write_and_read(first_leaf(root)->text, a);
        as_lifecycle(root, a);
        if (s3_tags_from_xml(root, a, &tags, &tags_n) == TARN_OK)
            for (size_t i = 0; i < tags_n; i++)
                TARN_ASSERT(tags[i].name.p != NULL && tags[i].value.p != NULL);
    }
    tarn_arena_free(a);
    return 0;
}
