/* frontend/websocket/ws_json_test.c - tests that values are found whole, and that what is not JSON
 * is refused. */
#include "frontend/websocket/ws_json.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void
knows_what_is_json(void **state)
{
    static const char *const valid[] = {
        "0",    "-0.5e+7", " [1, 2, {\"a\": []}] ", "\"\\u00e9 \\\" \\n\"", "true",
        "null", "{}",      "{\"a\":1,\"b\":[{}]}"};
    static const char *const wrong[] = {
        "",           "01",     "1.",  "[1,]",      "{\"a\"}", "{a:1}",
        "\"\\x\"",    "\"\n\"", "tru", "1 2",       "[",       "\"",
        "{\"a\":1,}", "+1",     "1e",  "\"\\u12\"", "-",       "{\"a\":1 \"b\":2}"};
    char deep[300];

    (void)state;
    for (size_t i = 0; i < sizeof(valid) / sizeof(valid[0]); i++)
        assert_true(cn_ws_json_is_valid(cn_str_from(valid[i])));
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        assert_false(cn_ws_json_is_valid(cn_str_from(wrong[i])));
    memset(deep, '[', 100);
    memset(deep + 100, ']', 100);
    assert_false(cn_ws_json_is_valid((struct cn_str){deep, 200}));
    assert_true(cn_ws_json_is_valid((struct cn_str){deep + 50, 100}));
}

static void
finds_members(void **state)
{
    struct cn_str name, value;
    struct cn_ws_json json;

    (void)state;
    cn_ws_json_begin(&json, CN_STR(" { \"a\" : [1, \"}\"] ,\"b\\n\":\"x\\\"y\", \"c\":{} } "));
    assert_true(cn_ws_json_next(&json, &name, &value));
    assert_true(cn_str_eq(name, CN_STR("a")) && cn_str_eq(value, CN_STR("[1, \"}\"]")));
    assert_true(cn_ws_json_next(&json, &name, &value));
    assert_true(cn_str_eq(name, CN_STR("b\\n")) && cn_str_eq(value, CN_STR("\"x\\\"y\"")));
    assert_true(cn_ws_json_next(&json, &name, &value));
    assert_true(cn_str_eq(value, CN_STR("{}")));
    assert_false(cn_ws_json_next(&json, &name, &value));
    assert_false(json.failed);
}

static void
refuses_what_is_no_object(void **state)
{
    static const char *const wrong[] = {"",  "[]", "1",          "{\"a\":1}x",        "{\"a\":1",
                                        "{", "{,", "{\"a\":1,}", "{\"a\":1,,\"b\":2}"};
    struct cn_str name, value;
    struct cn_ws_json json;

    (void)state;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        cn_ws_json_begin(&json, cn_str_from(wrong[i]));
        while (cn_ws_json_next(&json, &name, &value))
            continue;
        assert_true(json.failed);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(knows_what_is_json),
        cmocka_unit_test(finds_members),
        cmocka_unit_test(refuses_what_is_no_object),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
