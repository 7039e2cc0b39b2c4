/* frontend/page/json_changes_test.c - tests that the feed sends what changed, and nothing else. */
#include "frontend/page/json_changes.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

/* Compares two objects that are written as JSON, and checks the changes. */
static void
check(const char *before_text, const char *now_text, const char *wanted_text)
{
    json_t *before = before_text ? json_loads(before_text, 0, NULL) : NULL;
    json_t *now = json_loads(now_text, 0, NULL), *changes = cn_changes(before, now);
    json_t *wanted = wanted_text ? json_loads(wanted_text, 0, NULL) : NULL;

    assert_int_equal(changes != NULL, wanted != NULL);
    if (wanted)
        assert_true(json_equal(changes, wanted));
    json_decref(before);
    json_decref(now);
    json_decref(changes);
    json_decref(wanted);
}

static void
only_what_changed_is_in_it(void **state)
{
    (void)state;
    check("{\"a\": 1, \"b\": [1, 2]}", "{\"a\": 1, \"b\": [1, 2]}", NULL);
    check("{\"a\": 1, \"b\": [1, 2]}", "{\"a\": 1, \"b\": [1, 3]}", "{\"b\": [1, 3]}");
    check("{\"a\": 1}", "{\"a\": 1, \"c\": {\"d\": true}}", "{\"c\": {\"d\": true}}");
    check(NULL, "{\"a\": 1}", "{\"a\": 1}");
    check(NULL, "{}", NULL);
}

/* A page that merges the changes must forget a swap that is over. */
static void
a_member_that_is_gone_becomes_null(void **state)
{
    (void)state;
    check("{\"a\": 1, \"swap\": {\"to\": \"2\"}}", "{\"a\": 1}", "{\"swap\": null}");
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_what_changed_is_in_it),
        cmocka_unit_test(a_member_that_is_gone_becomes_null),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
