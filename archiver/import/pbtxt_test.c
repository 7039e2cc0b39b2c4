/* archiver/import/pbtxt_test.c - the text form of protocol buffers is read as protobuf's own parser
 * reads it. */
#include "archiver/import/pbtxt.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "core/memory/buf.h"

/* Writes the tree in one fixed form: a="text"; b=5; c{...} */
static void
show(const struct cn_pbtxt *message, struct cn_buf *out)
{
    for (const struct cn_pbtxt *f = message->first; f; f = f->next) {
        cn_buf_printf(out, "%s%.*s", f == message->first ? "" : " ", CN_STR_ARG(f->name));
        if (f->kind == CN_PBTXT_MESSAGE) {
            cn_buf_puts(out, "{");
            show(f, out);
            cn_buf_puts(out, "}");
        } else {
            cn_buf_printf(out, f->kind == CN_PBTXT_STRING ? "=\"%.*s\"" : "=%.*s",
                          CN_STR_ARG(f->text));
        }
    }
}

static void
reads(const char *text, const char *expected)
{
    struct cn_error err = {0};
    struct cn_pbtxt *document;
    struct cn_arena arena;
    struct cn_buf out;

    cn_arena_init(&arena);
    cn_buf_init(&out, 0);
    if (cn_pbtxt_parse("c.pbtxt", cn_str_from(text), &arena, &document, &err) != 0)
        fail_msg("%s", err.message);
    show(document, &out);
    cn_buf_append(&out, "", 1);
    assert_string_equal(out.data, expected);
    cn_buf_fini(&out);
    cn_arena_fini(&arena);
}

static void
all_forms_are_read(void **state)
{
    (void)state;
    reads("", "");
    reads("# only a comment", "");
    reads("name: \"m\"\nmax_batch_size: 8 # rows\n", "name=\"m\" max_batch_size=8");
    reads("input [ { name: 'A' dims: [ -1, 4 ] }, { name: 'B' } ]",
          "input{name=\"A\" dims=-1 dims=4} input{name=\"B\"}");
    reads("input { name: \"A\" } input { name: \"B\" }", "input{name=\"A\"} input{name=\"B\"}");
    reads("a < b: 1; c: true, d: KIND_CPU > e:{}", "a{b=1 c=true d=KIND_CPU} e{}");
    reads("empty: [] after: 1", "after=1");
    reads("s: \"a\" 'b'\n  \"c\"", "s=\"abc\"");
    reads("s: \"\\\"\\x41\\102\\n\\'\"", "s=\"\"AB\n'\"");
    reads("n: -0x1F n: 1.5e3 n: .5 n: 2f n: 1e-7F n: - 3", "n=-0x1F n=1.5e3 n=.5 n=2 n=1e-7 n=- 3");
    reads("w: inf w: -inf w: nan", "w=inf w=-inf w=nan");
}

static void
refuses(const char *text, const char *why)
{
    struct cn_error err = {0};
    struct cn_pbtxt *document;
    struct cn_arena arena;

    cn_arena_init(&arena);
    assert_int_equal(cn_pbtxt_parse("c.pbtxt", cn_str_from(text), &arena, &document, &err),
                     CN_E_INVALID_MODEL);
    if (!strstr(err.message, why))
        fail_msg("\"%s\" is not in \"%s\"", why, err.message);
    cn_arena_fini(&arena);
}

static void
mistakes_have_a_place(void **state)
{
    char deep[200];

    (void)state;
    refuses("a: 1\n  b 2", "c.pbtxt:2:5: expected : or { after the name of a field");
    refuses("a {", "c.pbtxt:1:4: a message has no closing brace");
    refuses("a { b: 1 >", "expected the name of a field");
    refuses("a: \"x", "a string has no closing quote");
    refuses("a: \"x\ny\"", "continues on the next line");
    refuses("a: \"\\q\"", "unknown escape sequence");
    refuses("a: \"\\777\"", "unknown escape sequence");
    refuses("a: [1 2]", "expected , or ] after an element of a list");
    refuses("a: 12z", "unexpected characters after a number");
    refuses("a: 0x", "expected a number");
    refuses("a: .", "expected a number");
    refuses("a: -", "expected a number");
    refuses("a: }", "expected a value");
    refuses("[ext.name]: 1", "expected the name of a field");
    for (size_t i = 0; i < 198; i += 2)
        memcpy(deep + i, "a{", 2);
    deep[198] = '\0';
    refuses(deep, "more than 32 deep");
}

/* A string's memory follows its own length, not that of the document. */
static void
many_strings_take_little(void **state)
{
    struct cn_pbtxt *document;
    struct cn_arena arena;
    struct cn_buf text;

    (void)state;
    cn_arena_init(&arena);
    cn_buf_init(&text, 0);
    for (int i = 0; i < 2000; i++)
        cn_buf_puts(&text, "s: \"ab\"\n");
    assert_int_equal(cn_pbtxt_parse("c", cn_buf_str(&text), &arena, &document, NULL), 0);
    assert_true(cn_str_eq(cn_pbtxt_get(document, "s")->text, CN_STR("ab")));
    assert_true(arena.used_bytes < (size_t)1 << 20);
    cn_buf_fini(&text);
    cn_arena_fini(&arena);
}

/* If a field is given twice, the last one counts, as in protobuf. */
static void
get_finds_the_last(void **state)
{
    struct cn_pbtxt *document;
    struct cn_arena arena;

    (void)state;
    cn_arena_init(&arena);
    assert_int_equal(cn_pbtxt_parse("c", CN_STR("a: 1 b: 2 a: 3"), &arena, &document, NULL), 0);
    assert_true(cn_str_eq(cn_pbtxt_get(document, "a")->text, CN_STR("3")));
    assert_null(cn_pbtxt_get(document, "c"));
    cn_arena_fini(&arena);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_forms_are_read),
        cmocka_unit_test(mistakes_have_a_place),
        cmocka_unit_test(many_strings_take_little),
        cmocka_unit_test(get_finds_the_last),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
