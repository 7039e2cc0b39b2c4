/* frontend/endpoints/row_input_test.c - tests what a handler gets of a request. */
#include "frontend/endpoints/row_input.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

/* The handler sees the content type without its parameters, as a handler of TorchServe does. */
static void
mime_type_loses_its_parameters(void **state)
{
    (void)state;
    assert_true(
        cn_str_eq(cn_input_mime_type(CN_STR("text/plain ; charset=utf-8")), CN_STR("text/plain")));
    assert_true(
        cn_str_eq(cn_input_mime_type(CN_STR("application/json")), CN_STR("application/json")));
    assert_int_equal(cn_input_mime_type(CN_STR("")).len, 0);
    assert_int_equal(cn_input_mime_type(CN_STR(";")).len, 0);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mime_type_loses_its_parameters),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
