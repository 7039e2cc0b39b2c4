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

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(empty_texts_are_equal),
        cmocka_unit_test(nocase_folds_ascii_letters_only),
        cmocka_unit_test(header_names_match_in_both_spellings),
        cmocka_unit_test(equality_looks_at_all_bytes),
    };

    return cmocka_run_group_tests_name("core.str", tests, NULL, NULL);
}
