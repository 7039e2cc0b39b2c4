/* proto/handler_names_test.c - tests that misspelt functions of a handler are found, and that
 * functions of the handler's own are left alone. */
#include "proto/handler_names.h"

#include "core/test_support.h"

static const char *
meant(const char *name, uint32_t present)
{
    bool certain;

    return cn_handler_name_meant(cn_str_from(name), present, CN_HANDLER_IN_LUA, &certain);
}

static void
a_misspelt_function_is_found(void **state)
{
    bool certain;

    (void)state;
    assert_string_equal(meant("on_close", 0), "close(seq, state, reason)");
    assert_string_equal(meant("clsoe", 0), "close(seq, state, reason)");
    assert_string_equal(meant("intit", 0), "init(seq)");
    assert_string_equal(meant("migrat", 0), "migrate(state, from, version)");
    assert_string_equal(
        cn_handler_name_meant(CN_STR("on_close"), 0, CN_HANDLER_IN_PYTHON, &certain),
        "close(sequence_id, state, reason)");
    assert_true(certain);
}

/* A helper may have a name that is near, such as stop beside step. */
static void
functions_of_the_handler_itself_are_not_mistakes(void **state)
{
    const uint32_t step = cn_handler_name_bit(CN_STR("step"), CN_HANDLER_IN_LUA);

    (void)state;
    assert_int_not_equal(step, 0);
    assert_null(meant("stop", step));
    assert_null(meant("step", 0));
    assert_null(meant("predict", 0));
    assert_null(meant("on_sound", 0));
    assert_null(meant("", 0));
    assert_null(meant("forked", 0)); /* Python has it, Lua has not */
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_misspelt_function_is_found),
        cmocka_unit_test(functions_of_the_handler_itself_are_not_mistakes),
    };

    return cmocka_run_group_tests_name("proto.handler_names", tests, NULL, NULL);
}
