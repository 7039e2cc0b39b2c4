/* core/text/str_test.c - comparing borrowed text. */
#include "core/text/str.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* An empty text may come without a pointer. */
static void
empty_texts_are_equal(void **state)
{
    (void)state;
    assert_true(cn_str_eq(cn_str_from(NULL), CN_STR("")));
    assert_true(cn_str_eq_nocase(cn_str_from(NULL), CN_STR("")));
    assert_true(cn_str_eq_header(CN_STR(""), cn_str_from(NULL)));
}

static void
nocase_folds_ascii_letters_only(void **state)
{
    (void)state;
    assert_true(cn_str_eq_nocase(CN_STR("Content-TYPE"), CN_STR("content-type")));
    assert_false(cn_str_eq_nocase(CN_STR("a-b"), CN_STR("a_b")));
    assert_false(cn_str_eq_nocase(CN_STR("[@"), CN_STR("{`")));
    assert_false(cn_str_eq_nocase(CN_STR("\xc4"), CN_STR("\xe4")));
    assert_false(cn_str_eq_nocase(CN_STR("ab"), CN_STR("abc")));
}

/* Clients write ts_request_sequence_id, proxies ts-request-sequence-id. */
static void
header_names_match_in_both_spellings(void **state)
{
    (void)state;
    assert_true(
        cn_str_eq_header(CN_STR("Ts-Request-Sequence-Id"), CN_STR("ts_request_sequence_id")));
    assert_false(cn_str_eq_header(CN_STR("ts request"), CN_STR("ts-request")));
}

/* Bytes behind a length, NULs included, are not C strings. */
static void
equality_looks_at_all_bytes(void **state)
{
    (void)state;
    assert_false(cn_str_eq(CN_STR("a\0b"), CN_STR("a\0c")));
    assert_true(cn_str_eq(CN_STR("a\0b"), CN_STR("a\0b")));
    assert_false(cn_str_eq(CN_STR("a"), CN_STR("A")));
}

/* RFC 9110, 5.6.2. */
static void
a_token_has_letters_digits_and_fifteen_signs(void **state)
{
    static const char signs[] = "!#$%&'*+-.^_`|~";

    (void)state;
    for (int c = 0; c < 256; c++) {
        bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');

        assert_int_equal(cn_is_token_char((char)c), letter || (c && strchr(signs, c)));
    }
    assert_false(cn_str_is_token(CN_STR("")));
}

/* Eight bytes are looked at together, so each byte is tried at each place of texts of all lengths
 * around that. */
static void
control_characters_are_found_at_each_place(void **state)
{
    (void)state;
    for (size_t len = 1; len <= 25; len++)
        for (size_t at = 0; at < len; at++)
            for (int c = 0; c < 256; c++) {
                char text[25];

                memset(text, c % 2 ? 0x80 : 'a', sizeof(text));
                text[(at + 9) % len] = '\t';
                text[at] = (char)c;
                assert_int_equal(cn_text_without_control(text, len),
                                 (c < 0x20 && c != '\t') || c == 0x7f ? at : len);
            }
    assert_int_equal(cn_text_without_control(NULL, 0), 0);
}

static void
a_text_is_cut_at_a_separator(void **state)
{
    struct cn_str rest = CN_STR("a,,bc");

    (void)state;
    assert_true(cn_str_eq(cn_str_cut(&rest, ','), CN_STR("a")));
    assert_true(cn_str_eq(cn_str_cut(&rest, ','), CN_STR("")));
    assert_true(cn_str_eq(cn_str_cut(&rest, ','), CN_STR("bc")));
    assert_int_equal(rest.len, 0);
    assert_true(cn_str_eq(cn_str_cut(&rest, ','), CN_STR("")));
    rest = (struct cn_str){NULL, 0};
    assert_int_equal(cn_str_cut(&rest, ',').len, 0);
}

static void
a_text_begins_with_another(void **state)
{
    (void)state;
    assert_true(cn_str_begins(CN_STR("abc"), CN_STR("ab")));
    assert_true(cn_str_begins(CN_STR("ab"), CN_STR("ab")));
    assert_true(cn_str_begins((struct cn_str){NULL, 0}, (struct cn_str){NULL, 0}));
    assert_false(cn_str_begins(CN_STR("a"), CN_STR("ab")));
    assert_false(cn_str_begins(CN_STR("xab"), CN_STR("ab")));
}

/* RFC 9110 names 15 marks; the others separate the parts of a header. */
static void
tokens_have_no_separators(void **state)
{
    unsigned n = 0;

    (void)state;
    for (int c = 0; c < 256; c++)
        n += cn_is_token_char((char)c);
    assert_int_equal(n, 26 + 26 + 10 + 15);
    assert_false(cn_is_token_char('\0'));
    assert_false(cn_is_token_char(':'));
    assert_true(cn_str_is_token(CN_STR("ts_request-sequence.id~1")));
    assert_false(cn_str_is_token(CN_STR("two words")));
    assert_false(cn_str_is_token(CN_STR("")));
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(empty_texts_are_equal),
        cmocka_unit_test(nocase_folds_ascii_letters_only),
        cmocka_unit_test(header_names_match_in_both_spellings),
        cmocka_unit_test(equality_looks_at_all_bytes),
        cmocka_unit_test(a_token_has_letters_digits_and_fifteen_signs),
        cmocka_unit_test(control_characters_are_found_at_each_place),
        cmocka_unit_test(a_text_is_cut_at_a_separator),
        cmocka_unit_test(a_text_begins_with_another),
        cmocka_unit_test(tokens_have_no_separators),
    };

    return cmocka_run_group_tests_name("core.str", tests, NULL, NULL);
}
