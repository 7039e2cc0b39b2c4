/* torchserve/settings/properties_test.c - tests the syntax of Java's properties, as Java's
 * documentation describes it. */
#include "torchserve/settings/properties.h"

#include <stdlib.h>
#include <unistd.h>

#include "config/test_support.h"
#include "core/memory/mem.h"

static void
parse(const char *text, struct cn_properties *out)
{
    struct cn_error err = {0};

    *out = (struct cn_properties){0};
    if (cn_properties_parse("c.properties", cn_str_from(text), out, &err) != 0)
        fail_msg("%s", err.message);
}

static void
has(const struct cn_properties *properties, const char *key, const char *value)
{
    const struct cn_property *found = cn_properties_find(properties, key);

    if (found == NULL)
        fail_msg("no key \"%s\"", key);
    assert_string_equal(found->value, value);
}

/* A key and its value may be separated by =, by : or by a blank, and the value may be missing. */
static void
keys_end_at_equals_colon_or_blank(void **state)
{
    struct cn_properties p;

    (void)state;
    parse("a=1\nb:2\nc 3\n d \t=  4\ne\nf = = x\ng:=y\nh\t\t:z", &p);
    assert_int_equal(p.n, 8);
    has(&p, "a", "1");
    has(&p, "b", "2");
    has(&p, "c", "3");
    has(&p, "d", "4");
    has(&p, "e", "");
    has(&p, "f", "= x");
    has(&p, "g", "=y");
    has(&p, "h", "z");
    cn_properties_fini(&p);
}

/* Every kind of line end is read, too. */
static void
comments_and_empty_lines_say_nothing(void **state)
{
    struct cn_properties p;

    (void)state;
    parse("# a=1\r\n  ! b=2 \\\rc=3\n\n \t\f\nd=4 # no comment", &p);
    assert_int_equal(p.n, 2);
    has(&p, "c", "3");
    has(&p, "d", "4 # no comment");
    cn_properties_fini(&p);
}

/* This is how TorchServe's documentation writes the JSON of `models`. */
static void
a_backslash_at_the_end_joins_lines(void **state)
{
    struct cn_properties p;

    (void)state;
    parse("models={\\\n    \"noop\": {\\\r\n  \"1.0\": {}\\\n}}\nx=a\\\\\ny=b\\", &p);
    assert_int_equal(p.n, 3);
    has(&p, "models", "{\"noop\": {\"1.0\": {}}}");
    has(&p, "x", "a\\");
    has(&p, "y", "b");
    cn_properties_fini(&p);
}

static void
escapes_stand_for_one_character(void **state)
{
    struct cn_properties p;

    (void)state;
    parse("a\\=b\\:c\\ d=\\t\\n\\r\\f\\q\\\"\nu=\\u00e9\\u20AC\\uD83D\\uDE00", &p);
    has(&p, "a=b:c d", "\t\n\r\fq\"");
    has(&p, "u", "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80");
    cn_properties_fini(&p);
}

/* The message has a form in which an editor can jump to the place. */
static void
what_is_broken_is_shown_with_its_line(void **state)
{
    static const char *const broken[] = {"\\u12", "\\uzzzz", "\\u0000", "\\ud800x", "\\udc00"};
    struct cn_properties p = {0};
    struct cn_error err = {0};
    char text[64];

    (void)state;
    for (size_t i = 0; i < sizeof(broken) / sizeof(broken[0]); i++) {
        snprintf(text, sizeof(text), "a=1\nb=%s", broken[i]);
        assert_int_equal(cn_properties_parse("c.properties", cn_str_from(text), &p, &err),
                         CN_E_CONFIG);
        assert_contains(err.message, "c.properties:2: ");
    }
    assert_int_equal(cn_properties_parse("c", (struct cn_str){"a=\0", 3}, &p, &err), CN_E_CONFIG);
    cn_properties_fini(&p);
}

/* If a key comes twice, the last line counts, as in Java, and the message names that line. */
static void
the_last_of_two_equal_keys_wins(void **state)
{
    struct cn_properties p;

    (void)state;
    parse("a=1\nb=2\na=3", &p);
    assert_int_equal(p.n, 2);
    has(&p, "a", "3");
    assert_string_equal(cn_properties_find(&p, "a")->where, "c.properties:3");
    cn_properties_fini(&p);
}

/* A snapshot has paths, URLs and JSON in its values. */
static void
what_is_printed_reads_back_the_same(void **state)
{
    struct cn_properties p, again;
    struct cn_buf out;
    char *text;

    (void)state;
    parse("a\\ b=  x y \\\nz\nj={\"k\":\"v\\\\n\"}\nu=http://h:1/#!\nn=\\n\\t", &p);
    cn_buf_init(&out, 0);
    cn_properties_print(&p, &out);
    text = cn_buf_take(&out, NULL);
    parse(text, &again);
    assert_int_equal(again.n, p.n);
    for (uint32_t i = 0; i < p.n; i++)
        has(&again, p.items[i].key, p.items[i].value);
    cn_free(text);
    cn_properties_fini(&p);
    cn_properties_fini(&again);
}

static void
a_file_that_is_none_is_named(void **state)
{
    struct cn_properties p = {0};
    struct cn_error err = {0};

    (void)state;
    assert_int_equal(cn_properties_read("/nowhere/c.properties", &p, &err), CN_E_CONFIG);
    assert_contains(err.message, "/nowhere/c.properties");
    assert_int_equal(cn_properties_read("/", &p, &err), CN_E_CONFIG);
    assert_int_equal(p.n, 0);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys_end_at_equals_colon_or_blank),
        cmocka_unit_test(comments_and_empty_lines_say_nothing),
        cmocka_unit_test(a_backslash_at_the_end_joins_lines),
        cmocka_unit_test(escapes_stand_for_one_character),
        cmocka_unit_test(what_is_broken_is_shown_with_its_line),
        cmocka_unit_test(the_last_of_two_equal_keys_wins),
        cmocka_unit_test(what_is_printed_reads_back_the_same),
        cmocka_unit_test(a_file_that_is_none_is_named),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
