/* develop/json_compare_test.c - tests that answers are compared as a person would do it. */
#include "develop/json_compare.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static bool
matches(const char *yaml, const char *json)
{
    struct cn_yaml_doc *doc;
    struct cn_error err;
    json_t *expected, *got = json_loads(json, JSON_DECODE_ANY, NULL);
    bool same;

    assert_int_equal(cn_yaml_parse("test.yaml", cn_str_from(yaml), &doc, &err), 0);
    expected = cn_json_of_yaml(cn_yaml_root(doc));
    same = cn_json_matches(expected, got);
    json_decref(expected);
    json_decref(got);
    cn_yaml_destroy(doc);
    return same;
}

static void
values_are_compared_whole(void **state)
{
    (void)state;
    assert_true(matches("{a: 1, b: [x, true, null], c: {d: -2}}",
                        "{\"c\":{\"d\":-2},\"b\":[\"x\",true,null],\"a\":1}"));
    assert_false(matches("{a: 1}", "{\"a\":1,\"b\":2}"));
    assert_false(matches("{a: 1, b: 2}", "{\"a\":1}"));
    assert_false(matches("{a: [1, 2]}", "{\"a\":[1]}"));
    assert_false(matches("{a: '1'}", "{\"a\":1}"));
    assert_false(matches("{a: 1}", "not json"));
}

static void
numbers_may_have_rounding_errors(void **state)
{
    (void)state;
    assert_true(matches("{a: 6}", "{\"a\":6.0}"));
    assert_true(matches("{a: 0.3}", "{\"a\":0.30000000000000004}"));
    assert_true(matches("{a: 0}", "{\"a\":0.0}"));
    assert_false(matches("{a: 0.3}", "{\"a\":0.3001}"));
    assert_false(matches("{a: 0}", "{\"a\":0.0001}"));
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_are_compared_whole),
        cmocka_unit_test(numbers_may_have_rounding_errors),
    };

    return cmocka_run_group_tests_name("develop.json_compare", tests, NULL, NULL);
}
