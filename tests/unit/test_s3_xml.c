/* SPDX-License-Identifier: Apache-2.0 */
/* XML in: what is refused, and the limits of depth, nodes and size at the maximum and one past it. XML out: escaping. */
#include "list_row.h"
#include "s3_fake.h"

static tarn_err parse(fake *f, const char *text, s3_node **root)
{
    return s3_xml_parse(tarn_str_of(text), f->r.a, root);
}

static void tree(void **state)
{
    s3_node *r;
    assert_int_equal(
        parse(*state, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<A xmlns=\"x\"> <b> one </b><c><d>2</d></c><b>two</b><e/></A>", &r),
        TARN_OK);
    assert_str(r->name, "A");
    assert_int_equal(s3_node_count(r, "b"), 2);
    assert_str(s3_node_text(r, "b"), "one");          /* trimmed */
    assert_str(s3_node_child(r, "b")->text, " one "); /* as it came */
    assert_str(s3_node_text(s3_node_child(r, "c"), "d"), "2");
    assert_true(s3_node_text(r, "e").p != NULL && s3_node_text(r, "e").n == 0);
    assert_null(s3_node_text(r, "absent").p);
    assert_null(s3_node_child(NULL, "b"));
    assert_null(s3_node_text(NULL, "b").p);
    assert_int_equal(s3_node_count(NULL, "b"), 0);
}

static void prefixes_and_entities(void **state)
{
    s3_node *r;
    assert_int_equal(
        parse(*state, "<s:A xmlns:s=\"x\"><s:k>a&lt;b&gt;&amp;&quot;&apos;&#x41;&#66;</s:k><c><![CDATA[<raw>]]></c></s:A>", &r), TARN_OK);
    assert_str(r->name, "A");
    assert_str(s3_node_text(r, "k"), "a<b>&\"'AB");
    assert_str(s3_node_text(r, "c"), "<raw>");
}

static void refused(void **state)
{
    static const char *const bad[] = {
        "",
        "   ",
        "text",
        "<A>",
        "<A></B>",
        "<A/><B/>",
        "<A>&unknown;</A>",
        "<A a=1/>",
        "<:/>",
        "<a:>x</a:>",
        "<A>\x01</A>",
        "<!DOCTYPE A><A/>",
        "<!DOCTYPE A [<!ENTITY e \"x\">]><A>&e;</A>",
        "<!DOCTYPE A [<!ENTITY a \"aaaa\"><!ENTITY b \"&a;&a;&a;&a;\">]><A>&b;</A>",
        "<!DOCTYPE A SYSTEM \"file:///etc/passwd\"><A/>",
        "<!DOCTYPE A [<!ENTITY % p SYSTEM \"http://127.0.0.1/x\"> %p;]><A/>",
        "<A>\xC0\x80</A>",
        "<A>\xED\xA0\x80</A>",
        "<A>\xFF</A>",
    };
    for (size_t i = 0; i < TARN_ARRAY_LEN(bad); i++) {
        s3_node *r = NULL;
        assert_int_equal(parse(*state, bad[i], &r), TARN_E_MALFORMED_XML);
        assert_null(r);
    }
    /* An encoding that is declared does not count: the text is UTF-8, or it is refused. */
    s3_node *r = NULL;
    static const char utf16[] = "\xFF\xFE<\0A\0/\0>\0";
    assert_int_equal(s3_xml_parse((tarn_str){utf16, sizeof utf16 - 1}, ((fake *)*state)->r.a, &r), TARN_E_MALFORMED_XML);
}

static tarn_err nested(fake *f, size_t depth)
{
    s3_node *r;
    tarn_str open = fake_repeat(f, "<a>", depth), close = fake_repeat(f, "</a>", depth);
    tarn_str all = tarn_arena_fmt(f->r.a, "%s%s", open.p, close.p);
    return s3_xml_parse(all, f->r.a, &r);
}

static void depth_limit(void **state)
{
    assert_int_equal(nested(*state, S3_XML_DEPTH_MAX), TARN_OK);
    assert_int_equal(nested(*state, S3_XML_DEPTH_MAX + 1), TARN_E_MALFORMED_XML);
    assert_int_equal(nested(*state, 100000), TARN_E_MALFORMED_XML);
}

static tarn_err wide(fake *f, size_t nodes)
{
    s3_node *r;
    tarn_str inner = fake_repeat(f, "<b/>", nodes - 1);
    return s3_xml_parse(tarn_arena_fmt(f->r.a, "<a>%s</a>", inner.p), f->r.a, &r);
}

static void node_limit(void **state)
{
    assert_int_equal(wide(*state, S3_XML_NODES_MAX), TARN_OK);
    fake_reset(*state);
    assert_int_equal(wide(*state, S3_XML_NODES_MAX + 1), TARN_E_MALFORMED_XML);
}

static tarn_err sized(fake *f, size_t bytes)
{
    s3_node *r;
    tarn_str inner = fake_repeat(f, "x", bytes - 7);
    tarn_err e = s3_xml_parse(tarn_arena_fmt(f->r.a, "<a>%s</a>", inner.p), f->r.a, &r);
    if (e == TARN_OK)
        assert_int_equal(r->text.n, bytes - 7);
    return e;
}

static void size_limit(void **state)
{
    assert_int_equal(sized(*state, S3_XML_BODY_BYTES_MAX), TARN_OK);
    fake_reset(*state);
    assert_int_equal(sized(*state, S3_XML_BODY_BYTES_MAX + 1), TARN_E_MALFORMED_XML);
}

/* ------------------------------------------------------------------ out */
static void escaping(void **state)
{
    tarn_sb b;
    (void)state;
    tarn_sb_init(&b, 4096);
    s3_xml_escape(&b, TARN_STR("a<b>&\"'\r\n\t\x01z\xC3\xA4"));
    assert_str(tarn_sb_view(&b), "a&lt;b&gt;&amp;&#34;&#39;&#xD;&#xA;&#x9;&#x1;z\xC3\xA4");
    tarn_sb_reset(&b);
    s3_xml_escape(&b, TARN_STR_NULL);
    s3_xml_escape(&b, TARN_STR("<"));
    assert_str(tarn_sb_view(&b), "&lt;");
    tarn_sb_free(&b);
}

static void elements(void **state)
{
    s3_xml x;
    (void)state;
    s3_xml_begin(&x, "R");
    s3_xml_textc(&x, "T", "a&b");
    s3_xml_u64(&x, "N", UINT64_MAX);
    s3_xml_bool(&x, "B", false);
    s3_xml_time(&x, "W", FAKE_NOW_MS);
    s3_xml_etag(&x, TARN_STR("abc-2"));
    s3_xml_key(&x, "K", TARN_STR("a b/<\xC3\xA4>"), true);
    s3_xml_key(&x, "K", TARN_STR("a b/<"), false);
    s3_owner(&x, "Owner", TARN_STR("id"));
    s3_xml_close(&x, "R");
    assert_str(tarn_sb_view(&x.b), "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<R xmlns=\"" S3_XMLNS
                                   "\"><T>a&amp;b</T><N>18446744073709551615</N><B>false</B><W>2026-01-02T03:04:05.000Z</W>"
                                   "<ETag>&#34;abc-2&#34;</ETag><K>a%20b/%3C%C3%A4%3E</K><K>a b/&lt;</K>"
                                   "<Owner><ID>id</ID><DisplayName>tarn</DisplayName></Owner></R>");
    tarn_sb_free(&x.b);
}

/* What is written is read back as it was, whatever the bytes: only XML's own forbidden characters are left out. */
static void round_trip(void **state)
{
    fake *f = *state;
    char text[256];
    size_t n = 0;
    for (int ch = 1; ch < 128; ch++)
        if (ch >= 0x20 || ch == '\t' || ch == '\n' || ch == '\r')
            text[n++] = (char)ch;
    s3_xml x;
    s3_node *r;
    s3_xml_begin(&x, "R");
    s3_xml_text(&x, "T", (tarn_str){text, n});
    s3_xml_close(&x, "R");
    assert_int_equal(s3_xml_parse(tarn_sb_view(&x.b), f->r.a, &r), TARN_OK);
    assert_int_equal(s3_node_child(r, "T")->text.n, n);
    assert_memory_equal(s3_node_child(r, "T")->text.p, text, n);
    tarn_sb_free(&x.b);
}

/* The same row by the general writers. */
static void plain_row(s3_xml *x, const tarn_version_row *row, const tarn_attrs *attrs, const s3_row_style *style)
{
    s3_xml_open(x, "Contents");
    s3_xml_key(x, "Key", row->key, style->url);
    s3_xml_time(x, "LastModified", row->mtime_ms);
    s3_xml_etag(x, row->etag);
    if (attrs->checksum.kind != TARN_SUM_NONE) {
        s3_xml_textc(x, "ChecksumAlgorithm", tarn_sum_name(attrs->checksum.kind));
        s3_xml_textc(x, "ChecksumType", attrs->checksum.type == TARN_SUM_COMPOSITE ? "COMPOSITE" : "FULL_OBJECT");
    }
    s3_xml_u64(x, "Size", row->size);
    s3_xml_text(x, "StorageClass", attrs->storage_class.n > 0 ? attrs->storage_class : TARN_STR("STANDARD"));
    if (style->owner)
        s3_owner(x, "Owner", style->owner_id);
    s3_xml_close(x, "Contents");
}

static void fast_rows_are_as_the_plain_ones(void **state)
{
    fake *f = *state;
    static const int64_t times[] = {0, 1, 999, 86399999, 86400000, FAKE_NOW_MS, FAKE_NOW_MS + 86400000, 4102444799999};
    const tarn_str keys[] = {TARN_STR("a"), TARN_STR("a b/<&>\"'\r\n\t\x01\x1f"), TARN_STR("d\xC3\xA4/~x"),
                             fake_repeat(f, "\x01", TARN_KEY_BYTES_MAX)};
    static const tarn_attrs attrs[] = {
        {.checksum.kind = TARN_SUM_NONE},
        {.checksum = {.kind = TARN_SUM_CRC64NVME, .type = TARN_SUM_FULL_OBJECT}, .storage_class = {"STANDARD_IA", 11}},
        {.checksum = {.kind = TARN_SUM_SHA256, .type = TARN_SUM_COMPOSITE}},
    };
    for (size_t i = 0; i < TARN_ARRAY_LEN(keys) * 4; i++) {
        s3_row_style style = {.url = (i & 1) != 0, .owner = (i & 2) != 0, .owner_id = TARN_STR("id<64>")};
        for (size_t t = 0; t < TARN_ARRAY_LEN(times); t++) {
            const tarn_attrs *a = &attrs[t % TARN_ARRAY_LEN(attrs)];
            const tarn_version_row row = {.key = keys[i / 4],
                                          .mtime_ms = times[t],
                                          .size = t == 0 ? 0 : UINT64_MAX / t,
                                          .etag = TARN_STR("0123456789abcdef0123456789abcdef-10000")};
            s3_xml fast, plain;
            tarn_sb_init(&fast.b, 1u << 20);
            tarn_sb_init(&plain.b, 1u << 20);
            s3_list_contents(&fast.b, &row, a, &style);
            plain_row(&plain, &row, a, &style);
            assert_false(fast.b.failed);
            assert_int_equal(fast.b.n, plain.b.n);
            assert_memory_equal(fast.b.p, plain.b.p, plain.b.n + 1); /* and the NUL behind */
            tarn_sb_free(&fast.b);
            tarn_sb_free(&plain.b);
        }
    }
    /* No room: the builder has failed, and nothing was written. */
    char mem[100];
    tarn_sb small;
    s3_row_style style = {.url = false};
    const tarn_version_row row = {.key = TARN_STR("k"), .etag = TARN_STR("e")};
    tarn_sb_init_fixed(&small, mem, sizeof mem);
    s3_list_contents(&small, &row, &attrs[0], &style);
    assert_true(small.failed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(tree, fake_setup, fake_teardown),
        cmocka_unit_test_setup_teardown(prefixes_and_entities, fake_setup, fake_teardown),
        cmocka_unit_test_setup_teardown(refused, fake_setup, fake_teardown),
        cmocka_unit_test_setup_teardown(depth_limit, fake_setup, fake_teardown),
        cmocka_unit_test_setup_teardown(node_limit, fake_setup, fake_teardown),
        cmocka_unit_test_setup_teardown(size_limit, fake_setup, fake_teardown),
        cmocka_unit_test(escaping),
        cmocka_unit_test(elements),
        cmocka_unit_test_setup_teardown(round_trip, fake_setup, fake_teardown),
        cmocka_unit_test_setup_teardown(fast_rows_are_as_the_plain_ones, fake_setup, fake_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
