/* handlers/modules/module_values_test.c - tests reading and writing numbers of each type, and how
 * tensors are compared. */
#include "handlers/modules/module_values.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void
every_type_gives_back_what_was_put(void **state)
{
    static const enum cn_datatype types[] = {
        CN_DATATYPE_UINT8, CN_DATATYPE_UINT16, CN_DATATYPE_UINT32, CN_DATATYPE_UINT64,
        CN_DATATYPE_INT8,  CN_DATATYPE_INT16,  CN_DATATYPE_INT32,  CN_DATATYPE_INT64,
        CN_DATATYPE_FP16,  CN_DATATYPE_BF16,   CN_DATATYPE_FP32,   CN_DATATYPE_FP64};
    char data[64];

    (void)state;
    for (size_t t = 0; t < sizeof(types) / sizeof(types[0]); t++) {
        memset(data, 0x55, sizeof(data));
        cn_module_value_put(types[t], data, 1, 3);
        cn_module_value_put(types[t], data, 2, 0);
        assert_true(cn_module_value(types[t], data, 1) == 3);
        assert_true(cn_module_value(types[t], data, 2) == 0);
        if (!cn_module_is_float(types[t]))
            continue;
        cn_module_value_put(types[t], data, 3, -0.625);
        assert_true(cn_module_value(types[t], data, 3) == -0.625);
    }
    cn_module_value_put(CN_DATATYPE_BOOL, data, 0, 0.4);
    cn_module_value_put(CN_DATATYPE_BOOL, data, 1, 0.5);
    assert_int_equal(data[0], 0);
    assert_int_equal(data[1], 1);
}

static void
halves_are_read_as_they_are_defined(void **state)
{
    static const struct {
        uint16_t bits;
        double value;
    } cases[] = {{0x3c00, 1}, {0xc000, -2}, {0x7bff, 65504}, {0x0001, 0x1p-24}, {0x7c00, INFINITY}};

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        assert_true(cn_module_value(CN_DATATYPE_FP16, (const char *)&cases[i].bits, 0) ==
                    cases[i].value);
    assert_true(isnan(cn_module_value(CN_DATATYPE_FP16, (const char *)&(uint16_t){0x7c01}, 0)));
}

static void
distance_is_relative_to_the_largest_magnitude(void **state)
{
    const float a[] = {100, 1, -50}, b[] = {100, 1.5f, -50}, nan[] = {100, NAN, -50};
    const int32_t i[] = {1, 2, 3}, j[] = {1, 2, 7};

    (void)state;
    assert_true(cn_module_distance(CN_DATATYPE_FP32, (const char *)a, (const char *)a, 3) == 0);
    assert_float_equal(cn_module_distance(CN_DATATYPE_FP32, (const char *)a, (const char *)b, 3),
                       0.005, 1e-9);
    assert_true(isinf(cn_module_distance(CN_DATATYPE_FP32, (const char *)a, (const char *)nan, 3)));
    assert_true(cn_module_distance(CN_DATATYPE_FP32, (const char *)nan, (const char *)nan, 3) == 0);
    assert_float_equal(cn_module_distance(CN_DATATYPE_INT32, (const char *)i, (const char *)j, 3),
                       4, 0);
    assert_true(cn_module_distance(CN_DATATYPE_FP32, NULL, NULL, 0) == 0);
}

static void
nan_and_infinity_are_found_in_floats_only(void **state)
{
    const float good[] = {1, 2}, nan[] = {1, NAN}, infinite[] = {-INFINITY, 1};
    const uint16_t half = 0xfc00;

    (void)state;
    assert_false(cn_module_has_no_number(CN_DATATYPE_FP32, (const char *)good, 2));
    assert_true(cn_module_has_no_number(CN_DATATYPE_FP32, (const char *)nan, 2));
    assert_true(cn_module_has_no_number(CN_DATATYPE_FP32, (const char *)infinite, 2));
    assert_true(cn_module_has_no_number(CN_DATATYPE_FP16, (const char *)&half, 1));
    assert_false(cn_module_has_no_number(CN_DATATYPE_INT32, (const char *)nan, 2));
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_type_gives_back_what_was_put),
        cmocka_unit_test(halves_are_read_as_they_are_defined),
        cmocka_unit_test(distance_is_relative_to_the_largest_magnitude),
        cmocka_unit_test(nan_and_infinity_are_found_in_floats_only),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
