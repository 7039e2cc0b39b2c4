/* access/glob_test.c - tests which names a pattern matches: a key must not open more models than
 * its owner sees in the file. */
#include "access/glob.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static bool
matches(const char *pattern, const char *text)
{
    return cn_glob_matches(cn_str_from(pattern), cn_str_from(text));
}

/* The whole name has to match, so "asr" does not open "asr-secret". */
static void
a_pattern_matches_whole_names(void **state)
{
    (void)state;
    assert_true(matches("asr", "asr"));
    assert_false(matches("asr", "asr-secret"));
    assert_false(matches("asr", "my-asr"));
    assert_false(matches("asr", "as"));
    assert_false(matches("Asr", "asr"));
    assert_true(matches("asr-*", "asr-"));
    assert_true(matches("asr-*", "asr-large"));
    assert_false(matches("asr-*", "asr"));
    assert_true(matches("*-v?", "asr-v1"));
    assert_false(matches("*-v?", "asr-v"));
    assert_true(matches("*", ""));
    assert_false(matches("?", ""));
    assert_true(matches("", ""));
    assert_false(matches("", "a"));
    assert_true(matches("a*b*c", "a-b-b-c"));
    assert_false(matches("a*b*c", "a-c-b"));
    assert_false(matches("[ab]", "a")); /* nothing else is special */
}

/* Whoever chooses a model's name must not be able to keep a loop busy. */
static void
many_stars_cost_no_exponential_time(void **state)
{
    char text[257];

    (void)state;
    memset(text, 'a', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    assert_false(matches("*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*b", text));
    assert_true(matches("*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*", text));
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_pattern_matches_whole_names),
        cmocka_unit_test(many_stars_cost_no_exponential_time),
    };

    return cmocka_run_group_tests_name("access.glob", tests, NULL, NULL);
}
