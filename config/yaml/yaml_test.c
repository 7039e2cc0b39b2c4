/* config/yaml/yaml_test.c - tests that trees have the right kinds and positions, and that hostile
 * documents are refused early. */
#include "config/yaml/yaml.h"

#include <stdlib.h>
#include <unistd.h>

#include "config/test_support.h"

static struct cn_yaml_doc *
good(const char *text)
{
    struct cn_yaml_doc *doc = NULL;
    struct cn_error err = {0};

    if (cn_yaml_parse("t.yaml", cn_str_from(text), &doc, &err) != 0)
        fail_msg("%s", err.message);
    return doc;
}

static void
bad_bytes(struct cn_str bytes, const char *message)
{
    struct cn_yaml_doc *doc = NULL;
    struct cn_error err = {0};

    assert_int_equal(cn_yaml_parse("t.yaml", bytes, &doc, &err), CN_E_CONFIG);
    assert_null(doc);
    assert_contains(err.message, message);
}

static void
bad(const char *text, const char *message)
{
    bad_bytes(cn_str_from(text), message);
}

static enum cn_yaml_kind
kind_of(const char *scalar)
{
    char text[128];
    struct cn_yaml_doc *doc;
    enum cn_yaml_kind kind;

    snprintf(text, sizeof(text), "k: %s\n", scalar);
    doc = good(text);
    kind = cn_yaml_get(cn_yaml_root(doc), "k")->kind;
    cn_yaml_destroy(doc);
    return kind;
}

/* The core schema is that of YAML 1.2. What YAML 1.1 read in another way (yes, 1_000) is a string,
 * and so a type error. */
static void
scalars_get_their_kind(void **state)
{
    (void)state;
    assert_int_equal(kind_of("1"), CN_YAML_INT);
    assert_int_equal(kind_of("-17"), CN_YAML_INT);
    assert_int_equal(kind_of("0x1F"), CN_YAML_INT);
    assert_int_equal(kind_of("0o17"), CN_YAML_INT);
    assert_int_equal(kind_of("0o18"), CN_YAML_STRING);
    assert_int_equal(kind_of("1_000"), CN_YAML_STRING);
    assert_int_equal(kind_of("\"1\""), CN_YAML_STRING);
    assert_int_equal(kind_of("'1'"), CN_YAML_STRING);
    assert_int_equal(kind_of("!!str 1"), CN_YAML_STRING);
    assert_int_equal(kind_of("1.5"), CN_YAML_FLOAT);
    assert_int_equal(kind_of("1."), CN_YAML_FLOAT);
    assert_int_equal(kind_of("-.5e-3"), CN_YAML_FLOAT);
    assert_int_equal(kind_of("1e"), CN_YAML_STRING);
    assert_int_equal(kind_of("."), CN_YAML_STRING);
    assert_int_equal(kind_of("+"), CN_YAML_STRING);
    assert_int_equal(kind_of("-.inf"), CN_YAML_FLOAT);
    assert_int_equal(kind_of(".NaN"), CN_YAML_FLOAT);
    assert_int_equal(kind_of("99999999999999999999"), CN_YAML_FLOAT);
    assert_int_equal(kind_of("true"), CN_YAML_BOOL);
    assert_int_equal(kind_of("FALSE"), CN_YAML_BOOL);
    assert_int_equal(kind_of("yes"), CN_YAML_STRING);
    assert_int_equal(kind_of("~"), CN_YAML_NULL);
    assert_int_equal(kind_of(""), CN_YAML_NULL);
    assert_int_equal(kind_of("\"\""), CN_YAML_STRING);
    assert_int_equal(kind_of("[]"), CN_YAML_LIST);
    assert_int_equal(kind_of("{}"), CN_YAML_MAP);
}

/* Messages and editors need positions: they count from 1, and keys and values each have one. */
static void
positions_are_those_of_the_text(void **state)
{
    struct cn_yaml_doc *doc = good("# c\na: 1\nb:\n  - x\n  -   0x10\n");
    const struct cn_yaml *root = cn_yaml_root(doc), *b = cn_yaml_get(root, "b");

    (void)state;
    assert_int_equal(root->n_items, 2);
    assert_int_equal(cn_yaml_get(root, "a")->line, 2);
    assert_int_equal(cn_yaml_get(root, "a")->column, 4);
    assert_int_equal(cn_yaml_get(root, "a")->integer, 1);
    assert_int_equal(b->key_line, 3);
    assert_int_equal(b->key_column, 1);
    assert_int_equal(b->n_items, 2);
    assert_int_equal(b->items[1]->line, 5);
    assert_int_equal(b->items[1]->column, 7);
    assert_int_equal(b->items[1]->integer, 16);
    assert_null(cn_yaml_get(root, "c"));
    assert_null(cn_yaml_get(b, "x"));
    cn_yaml_destroy(doc);
}

/* An empty file is a file without settings. */
static void
nothing_is_an_empty_map(void **state)
{
    static const char *const texts[] = {"", "# only a comment\n", "---\n", "\xef\xbb\xbf"};

    (void)state;
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        struct cn_yaml_doc *doc = good(texts[i]);
        assert_int_equal(cn_yaml_root(doc)->kind, CN_YAML_MAP);
        assert_int_equal(cn_yaml_root(doc)->n_items, 0);
        cn_yaml_destroy(doc);
    }
}

/* Other parsers would silently take the second one. */
static void
duplicate_keys_are_refused_where_they_stand(void **state)
{
    (void)state;
    bad("a: 1\nb: 2\n  \na: 3\n", "t.yaml:4:1: duplicate key a (first at line 1)");
    bad("m:\n  x: 1\n  \"x\": 2\n", "t.yaml:3:3: duplicate key x (first at line 2)");
}

/* Nine lines of aliases make a billion values. */
static void
aliases_are_refused(void **state)
{
    (void)state;
    bad("a: &x [1, 2]\nb: *x\n", "t.yaml:2:4: an alias (*name) may only stand");
    bad("a: *x\n", "t.yaml:1:4: an alias (*name) may only stand for a single value");
    cn_yaml_destroy(good("a: &x 1\n"));
}

/* An alias of a single value cannot grow. TorchServe's metrics.yaml uses such aliases for its
 * dimensions. */
static void
an_alias_may_stand_for_a_single_value(void **state)
{
    struct cn_yaml_doc *doc = good("a: [&x one, &x two]\nb: {c: *x}\n");
    const struct cn_yaml *c = cn_yaml_get(cn_yaml_get(cn_yaml_root(doc), "b"), "c");

    (void)state;
    assert_true(cn_str_eq(c->text, CN_STR("two")));
    assert_true(cn_str_eq(c->key, CN_STR("c")));
    assert_int_equal(c->line, 2);
    cn_yaml_destroy(doc);
}

/* Each message says what was found, and where. */
static void
what_is_no_settings_file_is_refused(void **state)
{
    (void)state;
    bad("a: [1\n", "t.yaml:2:1: did not find expected ',' or ']'");
    bad("a: b: c\n", "t.yaml:1:5: ");
    bad("a: 1\n---\nb: 2\n", "t.yaml:2:1: the file has a second document");
    bad("? [a]\n: 1\n", "t.yaml:1:3: a key must be a single word");
    bad("a: !!python/object:os.system x\n", "t.yaml:1:4: a value may have no tag except");
    bad("a: !!set {x}\n", "t.yaml:1:4: a list or map may have no tag");
    bad("a: \xff\xfe\n", "t.yaml: byte");
    bad("a: \x01\n", "t.yaml: byte");
}

/* Memory and time stay bounded for any input. */
static void
documents_over_the_limits_are_refused(void **state)
{
    size_t len = (4u << 20) + 1;
    char *text = malloc(len);

    (void)state;
    memset(text, '[', 100);
    bad_bytes((struct cn_str){text, 100}, "nested deeper than 64");
    text[0] = '[';
    for (size_t i = 1; i + 1 < 400000; i += 2)
        memcpy(text + i, "1,", 2);
    bad_bytes((struct cn_str){text, 400000}, "more than 100000 values");
    memset(text, '#', len);
    bad_bytes((struct cn_str){text, len}, "4194305 bytes; at most 4194304");
    free(text);
}

/* One map with many keys is legal and must not take quadratic time. */
static void
a_large_map_is_read(void **state)
{
    char *text = malloc(2u << 20);
    struct cn_yaml_doc *doc;
    size_t len = 0;

    (void)state;
    for (int i = 0; i < 90000; i++)
        len += (size_t)sprintf(text + len, "k%d: %d\n", i, i);
    doc = good(text);
    assert_int_equal(cn_yaml_get(cn_yaml_root(doc), "k89999")->integer, 89999);
    cn_yaml_destroy(doc);
    free(text);
}

/* The message has the path of the file, so that an editor can open it. */
static void
files_are_read_and_missing_ones_named(void **state)
{
    char path[] = "/tmp/cn-yaml-XXXXXX";
    struct cn_yaml_doc *doc = NULL;
    struct cn_error err = {0};
    int fd = mkstemp(path);

    (void)state;
    assert_int_equal(write(fd, "a: 5\n", 5), 5);
    close(fd);
    assert_int_equal(cn_yaml_parse_file(path, &doc, NULL), 0);
    assert_string_equal(cn_yaml_name(doc), path);
    assert_int_equal(cn_yaml_get(cn_yaml_root(doc), "a")->integer, 5);
    cn_yaml_destroy(doc);
    unlink(path);
    assert_int_equal(cn_yaml_parse_file(path, &doc, &err), CN_E_CONFIG);
    assert_contains(err.message, path);
    assert_int_equal(cn_yaml_parse_file("/tmp", &doc, &err), CN_E_CONFIG);
    assert_contains(err.message, "directory");
}

/* Text of strangers appears in messages without control characters or broken UTF-8, and not too
 * long. */
static void
shown_text_is_harmless(void **state)
{
    char out[CN_YAML_SHOWN_MAX], text[100];

    (void)state;
    assert_string_equal(cn_yaml_shown(CN_STR("a\nb\x1b"), out), "a?b?");
    memset(text, 'a', sizeof(text));
    memcpy(text + 46, "\xe2\x82\xac", 3);
    cn_yaml_shown((struct cn_str){text, sizeof(text)}, out);
    assert_int_equal(strlen(out), 46 + 3);
    assert_string_equal(out + 46, "...");
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scalars_get_their_kind),
        cmocka_unit_test(positions_are_those_of_the_text),
        cmocka_unit_test(nothing_is_an_empty_map),
        cmocka_unit_test(duplicate_keys_are_refused_where_they_stand),
        cmocka_unit_test(aliases_are_refused),
        cmocka_unit_test(an_alias_may_stand_for_a_single_value),
        cmocka_unit_test(what_is_no_settings_file_is_refused),
        cmocka_unit_test(documents_over_the_limits_are_refused),
        cmocka_unit_test(a_large_map_is_read),
        cmocka_unit_test(files_are_read_and_missing_ones_named),
        cmocka_unit_test(shown_text_is_harmless),
    };
    return cmocka_run_group_tests_name("config.yaml", tests, NULL, NULL);
}
