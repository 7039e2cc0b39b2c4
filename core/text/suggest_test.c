/* core/text/suggest_test.c - tests that a misspelt name leads to the right one, and to none if
 * nothing is near. */
#include "core/text/suggest.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static const char *const names[] = {"minWorkers", "maxWorkers", "batchSize", "loops"};

/* One slip of the finger is the usual case. */
static void
one_edit_is_found(void **state)
{
    (void)state;
    assert_string_equal(cn_suggest(CN_STR("minWorker"), names, 4), "minWorkers");
    assert_string_equal(cn_suggest(CN_STR("bathcSize"), names, 4), "batchSize");
    assert_string_equal(cn_suggest(CN_STR("loop"), names, 4), "loops");
}

/* Half a name, or one with a further word, is a usual slip of memory. */
static void
longer_and_shorter_forms_are_found(void **state)
{
    static const char *const keys[] = {"sequenceBatching", "sequenceMaxIdleMSec", "batchSize",
                                       "maxBatchDelay",    "minWorkers",          "maxWorkers"};

    (void)state;
    assert_string_equal(cn_suggest(CN_STR("sequenceBatch"), keys, 6), "sequenceBatching");
    assert_string_equal(cn_suggest(CN_STR("sequence_batch"), keys, 6), "sequenceBatching");
    assert_string_equal(cn_suggest(CN_STR("sequenceMaxIdle"), keys, 6), "sequenceMaxIdleMSec");
    assert_string_equal(cn_suggest(CN_STR("batch"), keys, 6), "batchSize");
    assert_null(cn_suggest(CN_STR("sequ"), keys, 6)); /* two names begin so */
    assert_null(cn_suggest(CN_STR("bat"), keys, 6));
}

/* Other families of names use another case or other separators. Such differences do not count as
 * typing errors. */
static void
case_and_separators_do_not_count(void **state)
{
    (void)state;
    assert_int_equal(cn_edit_distance(CN_STR("MODEL_STORE"), CN_STR("model-store")), 0);
    assert_int_equal(cn_edit_distance(CN_STR("abc"), CN_STR("")), 3);
    assert_int_equal(cn_edit_distance(CN_STR("ab"), CN_STR("ba")), 1);
}

/* A wild guess is worse than no suggestion. */
static void
nothing_near_is_null(void **state)
{
    (void)state;
    assert_null(cn_suggest(CN_STR("colour"), names, 4));
    assert_null(cn_suggest(CN_STR("x"), names, 4));
    assert_null(cn_suggest(CN_STR(""), names, 4));
}

/* The table on the stack is for short words only. */
static void
long_words_are_far_from_everything(void **state)
{
    char word[5000];

    (void)state;
    memset(word, 'a', sizeof(word));
    assert_int_equal(cn_edit_distance((struct cn_str){word, sizeof(word)}, CN_STR("a")), 5000);
    assert_null(cn_suggest((struct cn_str){word, sizeof(word)}, names, 4));
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_edit_is_found),
        cmocka_unit_test(longer_and_shorter_forms_are_found),
        cmocka_unit_test(case_and_separators_do_not_count),
        cmocka_unit_test(nothing_near_is_null),
        cmocka_unit_test(long_words_are_far_from_everything),
    };
    return cmocka_run_group_tests_name("core.suggest", tests, NULL, NULL);
}
