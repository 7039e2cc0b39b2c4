/* core/text/utf8_test.c - what is UTF-8, and what only looks like it. */
#include "core/text/utf8.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* Names go to logs, paths and JSON, so what is not UTF-8 must be recognised. */
static void
utf8_is_told_from_what_only_looks_like_it(void **state)
{
    static const char *const good[] = {"",
                                       "a",
                                       "\xc3\xa4",
                                       "\xe2\x82\xac",
                                       "\xf0\x9f\x98\x80",
                                       "\xed\x9f\xbf",
                                       "\xf4\x8f\xbf\xbf"};
    static const char *const bad[] = {"\x80",
                                      "\xc0\x80",
                                      "\xc3",
                                      "\xe0\x80\x80",
                                      "\xed\xa0\x80",
                                      "\xe2\x82",
                                      "\xf0\x80\x80\x80",
                                      "\xf4\x90\x80\x80",
                                      "\xff",
                                      "a\xc3("};
    size_t i;

    (void)state;
    for (i = 0; i < sizeof(good) / sizeof(good[0]); i++)
        assert_true(cn_utf8_is_valid(cn_str_from(good[i])));
    for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_false(cn_utf8_is_valid(cn_str_from(bad[i])));
}

/* Nothing is read beyond the end, even if a character is cut there. */
static void
a_character_has_a_length(void **state)
{
    (void)state;
    assert_int_equal(cn_utf8_length("a\xff", 2), 1);
    assert_int_equal(cn_utf8_length("\xc3\xa4\xff", 3), 2);
    assert_int_equal(cn_utf8_length("\xe2\x82\xac", 3), 3);
    assert_int_equal(cn_utf8_length("\xf0\x9f\x98\x80", 4), 4);
    assert_int_equal(cn_utf8_length("\xf0\x9f\x98\x80", 3), 0);
    assert_int_equal(cn_utf8_length("\xc3\xa4", 1), 0);
    assert_true(cn_utf8_is_valid((struct cn_str){NULL, 0}));
    assert_true(cn_utf8_is_valid(CN_STR("a\0b")));
}

static void
a_text_is_cut_between_characters(void **state)
{
    struct cn_str text = CN_STR("a\xc3\xa4\xf0\x9f\x98\x80z"); /* 1, 2, 4 and 1 bytes */
    static const size_t cut[] = {0, 1, 1, 3, 3, 3, 3, 7, 8, 8};

    (void)state;
    for (size_t max = 0; max < sizeof(cut) / sizeof(cut[0]); max++)
        assert_int_equal(cn_utf8_cut(text, max), cut[max]);
    assert_int_equal(cn_utf8_cut((struct cn_str){NULL, 0}, 0), 0);
    assert_int_equal(cn_utf8_cut(CN_STR("\x80\x80\x80"), 2), 0); /* no text at all */
}

static void
control_characters_are_not_printable(void **state)
{
    static const char *const bad[] = {"\n", "a\tb", "\x1f", "\x7f", "\xc2\x80", "\xc2\x9f", "\xff"};
    static const char *const good[] = {"", " ", "~", "\xc2\xa0", "\xc3\x80", "\xe2\x82\xac"};

    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_false(cn_utf8_is_printable(cn_str_from(bad[i])));
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++)
        assert_true(cn_utf8_is_printable(cn_str_from(good[i])));
    assert_false(cn_utf8_is_printable(CN_STR("a\0b")));
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(utf8_is_told_from_what_only_looks_like_it),
        cmocka_unit_test(a_character_has_a_length),
        cmocka_unit_test(a_text_is_cut_between_characters),
        cmocka_unit_test(control_characters_are_not_printable),
    };

    return cmocka_run_group_tests_name("core.utf8", tests, NULL, NULL);
}
