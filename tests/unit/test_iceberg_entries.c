/* SPDX-License-Identifier: Apache-2.0 */
/* Entries of long lists as text: what is taken, and that nobody can tell a table of such entries from one of trees. */
#include "catalog.h"
#include "entry.h"
#include "iceberg_json.h"

#define MANY 1000 /* snapshots */

/* ------------------------------------------------------------------ what is plain */
static size_t plain(const char *text)
{
    tarn_str s = tarn_arena_str(t_arena, tarn_str_of(text));
    for (size_t i = 0; i < s.n; i++)
        if (s.p[i] == '\'')
            ((char *)(uintptr_t)s.p)[i] = '"';
    return ice_entry_plain(s.p, s.n);
}

static void only_what_would_be_written_so_is_plain(void **state)
{
    (void)state;
    static const char *const yes[] = {
        "{}",
        "{'a':1}",
        "{'a':-1,'b':0,'c':[],'d':[1,[2],{}],'e':true,'f':false,'g':null,'h':'','i':{'a':'x y'}}",
        "{'a':9223372036854775807,'b':-9223372036854775808}",
        "{'':0}",
    };
    static const char *const no[] = {
        "",
        "[]",
        "1",
        "'a'",
        "{",
        "{'a'",
        "{'a':",
        "{'a':1",
        "{'a':1,}",
        "{'a' :1}",
        "{ 'a':1}",
        "{'a':1 }",
        "{'a': 1}",
        "{a:1}",
        "{'a':01}",
        "{'a':-0}",
        "{'a':+1}",
        "{'a':1.0}",
        "{'a':1e3}",
        "{'a':-}",
        "{'a':9223372036854775808}",
        "{'a':-9223372036854775809}",
        "{'a':99999999999999999999}",
        "{'a':1,'a':1}",
        "{'a':{'b':1,'c':{},'b':2}}",
        "{'a':nul}",
        "{'a':True}",
        "{'a':'\\n'}",
        "{'a':'\\u0041'}",
        "{'a':'\x01'}",
        "{'a':'\xc3\xa9'}",
        "{'\xc3\xa9':1}",
        "{'a':[1,]}",
        "{'a':[1}",
        "{'a':'b}",
        "{1:1}",
        "{'a':1;'b':2}",
    };
    for (size_t i = 0; i < TARN_ARRAY_LEN(yes); i++)
        if (plain(yes[i]) != strlen(yes[i]))
            fail_msg("%s is not taken", yes[i]);
    for (size_t i = 0; i < TARN_ARRAY_LEN(no); i++)
        if (plain(no[i]) != 0)
            fail_msg("%s is taken", no[i]);
    assert_int_equal(plain("{'a':1},{'b':2}"), 7); /* up to its end */
}

static size_t nested(unsigned depth)
{
    tarn_sb b;
    tarn_sb_init(&b, 1000);
    for (unsigned i = 1; i < depth; i++)
        tarn_sb_cstr(&b, "{\"a\":");
    tarn_sb_cstr(&b, "{}");
    for (unsigned i = 1; i < depth; i++)
        tarn_sb_char(&b, '}');
    size_t n = ice_entry_plain(b.p, b.n);
    assert_true(n == 0 || n == b.n);
    tarn_sb_free(&b);
    return n;
}

static size_t wide(unsigned keys)
{
    tarn_sb b;
    tarn_sb_init(&b, 10000);
    for (unsigned i = 0; i < keys; i++)
        tarn_sb_fmt(&b, "%c\"k%u\":%u", i ? ',' : '{', i, i);
    tarn_sb_char(&b, '}');
    size_t n = ice_entry_plain(b.p, b.n);
    assert_true(n == 0 || n == b.n);
    tarn_sb_free(&b);
    return n;
}

static void depth_and_keys_have_a_maximum(void **state)
{
    (void)state;
    assert_true(nested(ICE_ENTRY_DEPTH_MAX) > 0);
    assert_int_equal(nested(ICE_ENTRY_DEPTH_MAX + 1), 0);
    assert_true(wide(ICE_ENTRY_KEYS_MAX) > 0);
    assert_int_equal(wide(ICE_ENTRY_KEYS_MAX + 1), 0);
}

/* ------------------------------------------------------------------ reading a field */
static void fields_of_text_read_as_those_of_trees(void **state)
{
    (void)state;
    json_t *tree =
        t_json("{'s':'a,}]\\\"x','o':{'id':5,'s':'}'},'l':[1,{'id':6}],'id':9007199254740993,'n':null,'t':'7','lo':-9223372036854775808}");
    json_t *list = json_array();
    assert_int_equal(ice_entry_push(list, json_incref(tree)), TARN_OK);
    const json_t *text = json_array_get(list, 0);
    static const char *const keys[] = {"s", "o", "l", "id", "n", "t", "lo", "i", "idx", ""};
    assert_true(ice_entry_is_text(text) && !ice_entry_is_text(tree));
    assert_string_equal(t_text(text), t_text(tree));
    for (size_t i = 0; i < TARN_ARRAY_LEN(keys); i++) {
        int64_t a = 1, b = 1;
        bool has_a = false, has_b = false;
        assert_int_equal(ice_int_at(tree, keys[i], &a), ice_int_at(text, keys[i], &b));
        assert_int_equal(a, b);
        assert_int_equal(ice_opt_int(tree, "x", keys[i], &has_a, &a, &t_error), ice_opt_int(text, "x", keys[i], &has_b, &b, &t_error));
        assert_int_equal(has_a, has_b);
        assert_int_equal(ice_get_int(tree, "x", keys[i], &a, &t_error), ice_get_int(text, "x", keys[i], &b, &t_error));
        json_t *x = NULL, *y = NULL;
        assert_int_equal(ice_entry_string(tree, keys[i], &x), TARN_OK);
        assert_int_equal(ice_entry_string(text, keys[i], &y), TARN_OK);
        assert_true(x && y ? json_equal(x, y) : x == y);
        json_decref(x);
        json_decref(y);
    }
    assert_int_equal(ice_int_or(text, "id", -1), 9007199254740993);
    json_decref(tree);
    json_decref(list);
}

/* A string of a client is never an entry, whatever is in it. */
static void strings_of_documents_are_no_entries(void **state)
{
    (void)state;
    json_error_t e;
    assert_null(json_loads("[\"\xff{}\"]", 0, &e)); /* the mark is no UTF-8 */
    json_t *v = t_json("['{}','','\xc3\xbf{}']");
    for (size_t i = 0; i < json_array_size(v); i++)
        assert_false(ice_entry_is_text(json_array_get(v, i)));
    json_decref(v);
}

/* ------------------------------------------------------------------ files */
/* Both parsers say the same: the same document, or the same error. */
static void same(tarn_str text)
{
    json_t *whole = NULL, *parts = NULL;
    tarn_err err = ice_json_parse_object(text, &whole, &t_error);
    const char *said = err == TARN_OK ? "" : tarn_arena_fmt(t_arena, "%.*s", TARN_STR_ARG(ice_error_message(&t_error))).p;
    tarn_err again = ice_entries_parse(text, &parts, &t_error);
    if (err != again)
        fail_msg("%.*s: %s, by entries %s", TARN_STR_ARG(text), tarn_err_get(err)->name, tarn_err_get(again)->name);
    if (err == TARN_OK)
        assert_string_equal(t_text(whole), t_text(parts));
    else
        assert_string_equal(said, tarn_arena_fmt(t_arena, "%.*s", TARN_STR_ARG(ice_error_message(&t_error))).p);
    json_decref(whole);
    json_decref(parts);
}

static tarn_str quoted(const char *text)
{
    tarn_str s = tarn_arena_str(t_arena, tarn_str_of(text));
    for (size_t i = 0; i < s.n; i++)
        if (s.p[i] == '\'')
            ((char *)(uintptr_t)s.p)[i] = '"';
    return s;
}

static const char *const documents[] = {
    "{}",
    "[]",
    "",
    "{'snapshots':[]}",
    "{'snapshots':[{'a':1},{'b':[{}]}],'x':{'snapshots':[{'c':1.50}]},'snapshot-log':[{'d':'e'}]}",
    " \t\r\n{ 'a' : 'b' , 'snapshots' : [ {'a':1} , { 'b' : 2 } , {'c':3} ] , 'metadata-log' : [ ] } \n",
    "{'metadata-log':[{'f':'\\u00e9'},{'f':'\xc3\xa9'},{'f':1.0},{'f':1E2},{'f':-0},{'f':18446744073709551616}]}",
    "{'metadata-log':[{'f':'\\u00e9'},{'g':1},{'f':1.0},{'f':[{'h':{}}]},7,null,'s',[{'x':1}],{'y':2}]}",
    "{'snapshots':[{'a':1}],'snapshots':[{'a':1}]}",
    "{'snapshots':[],'snapshots':[{'a':1}]}",
    "{'snapshots':[{'a':1}],'snapshot\\u0073':[{'a':1}]}",
    "{'snapshot\\u0073':[{'a':1}]}",
    "{'snapshots':[{'a':1,'a':2}]}",
    "{'snapshots':{'a':1}}",
    "{'snapshots':[{'a':1} {'b':2}]}",
    "{'snapshots':[{'a':1},,{'b':2}]}",
    "{'snapshots':[{'a':1},]}",
    "{'snapshots':[{'a':1}}",
    "{'snapshots':[{'a':1}]]",
    "{'snapshots':[{'a':1}]}}",
    "{'snapshots':[{'a':1}]} x",
    "{'snapshots':[{'a':1}];'b':1}",
    "{'snapshots':[{'a':1}],}",
    "{'snapshots':[{'a':'",
    "{'snapshots':[{'a':'\\",
    "{'snapshots':[0,{'a':1},0]}",
    "{'a':[0,{'a':1}],'b':']}','snapshots':[{'a':']}'}],'c':'\\'','metadata-log':[{'a':'['}]}",
    "{'a':{'snapshots':[{'a':1},{'a':1,'a':2}]},'snapshots':[{'a':1}]}",
    "{'snapshots':[{'a':1}],'b':{'c':1,'c':2}}",
    "{'snapshots'[{'a':1}]}",
    "{snapshots:[{'a':1}]}",
    "{'snapshots':[{'a':\x01}]}",
    "{'snapshots':[{'a':'\xff'}]}",
};

static void files_read_by_entries_are_the_same_documents(void **state)
{
    (void)state;
    for (size_t i = 0; i < TARN_ARRAY_LEN(documents); i++) {
        tarn_str s = quoted(documents[i]);
        for (size_t n = 0; n <= s.n; n++) /* cut short anywhere, too */
            same(tarn_str_sub(s, 0, n));
    }
    tarn_random_seed(11);
    for (size_t round = 0; round < 20000; round++) { /* and with a byte that is another */
        tarn_str s = quoted(documents[tarn_random_u64() % TARN_ARRAY_LEN(documents)]);
        static const char bytes[] = "{}[]:,\"\\ 0a-.\x01\xff";
        if (s.n > 0)
            ((char *)(uintptr_t)s.p)[tarn_random_u64() % s.n] = bytes[tarn_random_u64() % (sizeof bytes - 1)];
        same(s);
        tarn_arena_reset(t_arena);
    }
    tarn_random_seed(0);
}

/* ------------------------------------------------------------------ tables */
static int64_t id_of(unsigned i)
{
    return INT64_MAX - 7 * (int64_t)i; /* none of them is exact as a double */
}

/* A table of MANY snapshots as a file has it: fields that nobody knows in each of them, tags on some. */
static tarn_str many_snapshots(void)
{
    tarn_sb b;
    json_t *md = t_table(2), *snapshots = json_array(), *log = json_array(), *refs = json_object();
    for (unsigned i = 0; i < MANY; i++) {
        json_array_append_new(
            snapshots, json_pack("{s:I,s:I,s:I,s:I,s:s,s:{s:s,s:s},s:{s:[I,s,n]},s:i}", "sequence-number", (json_int_t)i + 1, "snapshot-id",
                                 (json_int_t)id_of(i), "parent-snapshot-id", (json_int_t)(i ? id_of(i - 1) : 1), "timestamp-ms",
                                 (json_int_t)1699999000000 + i, "manifest-list", "s3://w/t/metadata/snap.avro", "summary", "operation",
                                 "append", "of-a-later-version", "1.0", "unknown", "deep", (json_int_t)INT64_MIN, "x", "schema-id", 0));
        json_array_append_new(log,
                              json_pack("{s:I,s:I}", "timestamp-ms", (json_int_t)1699999000000 + i, "snapshot-id", (json_int_t)id_of(i)));
        if (i % 100 == 0)
            json_object_set_new(refs, tarn_arena_fmt(t_arena, "tag%u", i).p,
                                json_pack("{s:I,s:s}", "snapshot-id", (json_int_t)id_of(i), "type", "tag"));
    }
    json_object_set_new(refs, "main", json_pack("{s:I,s:s}", "snapshot-id", (json_int_t)id_of(MANY - 1), "type", "branch"));
    json_object_set_new(md, "snapshots", snapshots);
    json_object_set_new(md, "snapshot-log", log);
    json_object_set_new(md, "refs", refs);
    json_object_set_new(md, "current-snapshot-id", json_integer(id_of(MANY - 1)));
    json_object_set_new(md, "last-sequence-number", json_integer(MANY));
    json_object_set_new(md, "of-nobody", json_pack("[i,{s:n}]", 1, "k"));
    tarn_sb_init(&b, ICE_METADATA_BYTES_MAX);
    ice_json_write(&b, md);
    tarn_str s = tarn_arena_str(t_arena, tarn_sb_view(&b));
    tarn_sb_free(&b);
    json_decref(md);
    return s;
}

static json_t *loaded(tarn_str text, bool by_entries)
{
    json_t *raw = NULL, *md = NULL;
    assert_int_equal(by_entries ? ice_entries_parse(text, &raw, &t_error) : ice_json_parse_object(text, &raw, &t_error), TARN_OK);
    assert_int_equal(ice_table_load(raw, true, t_arena, &md, &t_error), TARN_OK);
    json_decref(raw);
    return md;
}

static const char *ids_from(unsigned from, unsigned to)
{
    tarn_sb b;
    tarn_sb_init(&b, 65536);
    for (unsigned i = from; i < to; i++)
        tarn_sb_fmt(&b, "%s%lld", i > from ? "," : "", (long long)id_of(i));
    tarn_str s = tarn_arena_str(t_arena, tarn_sb_view(&b));
    tarn_sb_free(&b);
    return s.p;
}

static json_t *entries_are_texts(json_t *md)
{
    static const char *const lists[] = {"snapshots", "snapshot-log", "metadata-log"};
    for (size_t i = 0; i < TARN_ARRAY_LEN(lists); i++)
        for (size_t k = 0; k < json_array_size(json_object_get(md, lists[i])); k++)
            assert_true(ice_entry_is_text(json_array_get(json_object_get(md, lists[i]), k)));
    return md;
}

static void commits_to_a_thousand_snapshots_are_the_same_by_entries_and_by_trees(void **state)
{
    (void)state;
    tarn_str text = many_snapshots();
    json_t *tree = loaded(text, false), *md = entries_are_texts(loaded(text, true));
    assert_string_equal(t_text(md), text.p);
    const char *commits[] = {
        tarn_arena_fmt(
            t_arena,
            "[{'action':'add-snapshot','snapshot':{'snapshot-id':9007199254740993,'parent-snapshot-id':%lld,'sequence-number':1001,"
            "'timestamp-ms':1699999999000,'manifest-list':'s3://w/\\u00e9','summary':{'operation':'append'},'unknown':[1.5,{'a':null}]}},"
            "{'action':'set-snapshot-ref','ref-name':'main','type':'branch','snapshot-id':9007199254740993}]",
            (long long)id_of(MANY - 1))
            .p,
        tarn_arena_fmt(t_arena, "[{'action':'set-snapshot-ref','ref-name':'t','type':'tag','snapshot-id':%lld}]", (long long)id_of(777)).p,
        "[{'action':'set-properties','updates':{'a':'b','write.metadata.previous-versions-max':'3','write.metadata.delete-after-commit."
        "enabled':'true'}}]",
        tarn_arena_fmt(t_arena, "[{'action':'remove-snapshots','snapshot-ids':[%s]}]", ids_from(0, 500)).p,
        "[{'action':'set-properties','updates':{'a':'c'}}]",
        tarn_arena_fmt(t_arena, "[{'action':'remove-snapshots','snapshot-ids':[%s]}]", ids_from(600, 601)).p,
        "[{'action':'set-properties','updates':{'a':'d'}}]",
        "[{'action':'set-properties','updates':{'a':'e'}}]",
    };
    for (size_t i = 0; i < TARN_ARRAY_LEN(commits); i++) {
        tree = t_apply(tree, commits[i], true);
        md = entries_are_texts(t_apply(md, commits[i], true));
        assert_string_equal(t_text(md), t_text(tree));
    }
    t_is(md, "snapshots.0.snapshot-id", tarn_arena_fmt(t_arena, "%lld", (long long)id_of(500)).p);
    t_is(md, "snapshots.0.unknown", "{'deep':[-9223372036854775808,'x',null]}");
    t_is(md, "refs.tag0", "-"); /* went with its snapshot */
    t_is(md, "refs.tag900.type", "'tag'");
    t_is(md, "current-snapshot-id", "9007199254740993");
    json_decref(md);
    json_decref(tree);
}

static void what_falls_off_the_log_is_named(void **state)
{
    (void)state;
    ice_ctx ctx = t_ctx("s3://w/t/metadata/00009-x.metadata.json");
    ice_result r = {0};
    json_t *raw = t_table(2);
    json_object_set_new(raw, "metadata-log",
                        t_json("[{'timestamp-ms':1,'metadata-file':'s3://w/a'},{'timestamp-ms':2,'metadata-file':'s3://w/b'}]"));
    json_object_set_new(raw, "properties",
                        t_json("{'write.metadata.previous-versions-max':'1','write.metadata.delete-after-commit.enabled':'true'}"));
    json_t *md = entries_are_texts(loaded(tarn_str_of(t_text(raw)), true)),
           *u = t_json("[{'action':'set-properties','updates':{'a':'9'}}]");
    assert_int_equal(ice_table_apply(md, NULL, u, &ctx, &r, &t_error), TARN_OK);
    t_is(r.expired_files, "", "['s3://w/a','s3://w/b']");
    t_is(r.metadata, "metadata-log.0.metadata-file", "'s3://w/t/metadata/00009-x.metadata.json'");
    ice_result_release(&r);
    json_decref(u);
    json_decref(md);
    json_decref(raw);
}

static void only_what_refs_name_is_shown_of_entries(void **state)
{
    (void)state;
    json_t *md = loaded(many_snapshots(), true), *out = NULL;
    assert_int_equal(ice_table_refs_only(md, &out), TARN_OK);
    assert_int_equal(json_array_size(t_at(out, "snapshots")), MANY / 100 + 1);
    t_is(out, "snapshots.3.snapshot-id", tarn_arena_fmt(t_arena, "%lld", (long long)id_of(300)).p);
    json_decref(out);
    json_decref(md);
}

/* The cache has room for so many of them as their memory allows: a table of long lists is little more than its text. */
static size_t state_bytes(json_t *md, size_t *text_bytes)
{
    ice_text text;
    tarn_entity_row row = {.id = 1, .version = 1, .kind = TARN_ENTITY_TABLE, .pointer = TARN_STR("s3://w/p")};
    assert_int_equal(ice_text_write(md, NULL, NULL, ICE_METADATA_BYTES_MAX, &text), TARN_OK);
    *text_bytes = text.n;
    ice_state *s = ice_state_new(&row, md, &text);
    assert_non_null(s);
    size_t n = s->bytes;
    ice_state_unref(s);
    return n;
}

static void a_state_of_long_lists_counts_as_its_text(void **state)
{
    (void)state;
    size_t n = 0;
    tarn_str text = many_snapshots();
    assert_true(state_bytes(loaded(text, true), &n) < 3 * n);
    assert_true(state_bytes(loaded(text, false), &n) > 8 * n);
    json_t *mixed = loaded(text, true); /* one tree among them: all counts as trees */
    json_array_append_new(json_object_get(mixed, "snapshots"), t_json("{'snapshot-id':1}"));
    assert_true(state_bytes(mixed, &n) > 6 * n);
}

#define T(f) cmocka_unit_test_setup_teardown(f, t_setup, t_teardown)
int main(void)
{
    const struct CMUnitTest tests[] = {
        T(only_what_would_be_written_so_is_plain),
        T(depth_and_keys_have_a_maximum),
        T(fields_of_text_read_as_those_of_trees),
        T(strings_of_documents_are_no_entries),
        T(files_read_by_entries_are_the_same_documents),
        T(commits_to_a_thousand_snapshots_are_the_same_by_entries_and_by_trees),
        T(what_falls_off_the_log_is_named),
        T(only_what_refs_name_is_shown_of_entries),
        T(a_state_of_long_lists_counts_as_its_text),
    };
    return cmocka_run_group_tests_name("iceberg entries", tests, NULL, NULL);
}
