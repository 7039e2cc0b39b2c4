/* core/text/number_test.c - numbers as text. */
#include "core/text/number.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *
text_of(double value)
{
    static char text[CN_NUMBER_MAX + 1];

    *cn_put_double(value, text) = '\0';
    return text;
}

/* The text is as short as possible, with a point or an exponent, and keeps the sign of zero. */
static void
numbers_have_their_texts(void **state)
{
    static const struct {
        double value;
        const char *text;
    } cases[] = {
        {0, "0.0"},
        {-0.0, "-0.0"},
        {1, "1.0"},
        {-7.25, "-7.25"},
        {0.1, "0.1"},
        {(double)0.1f, "0.10000000149011612"},
        {0.000001, "1e-06"},
        {0.0001, "0.0001"},
        {0.000123, "0.000123"},
        {-0.000123456789, "-0.000123456789"},
        {3.0517578125e-05, "3.0517578125e-05"},
        {-2.5e-10, "-2.5e-10"},
        {1e-10, "1e-10"},
        {123456789012345.6, "123456789012345.6"},
        {(double)1e-5f, "9.999999747378752e-06"},
        {1234567.890125, "1234567.890125"},
        {1234567.8901251, "1234567.8901251"},
        {999999999, "999999999.0"},
        {1e9, "1000000000.0"},
        {1e14, "100000000000000.0"},
        {1e15, "1e+15"},
        {9007199254740993.0, "9007199254740992.0"},
        {1e300, "1e+300"},
        {5e-324, "4.94065645841247e-324"},
        {(double)INFINITY, "Infinity"},
        {(double)-INFINITY, "-Infinity"},
        {(double)NAN, "NaN"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        assert_string_equal(text_of(cases[i].value), cases[i].text);
}

/* No shorter text (of up to 17 digits) reads back as the same number. */
static void
texts_read_back_and_are_the_shortest(void **state)
{
    unsigned long long chance = 88172645463325252u;
    char shorter[64];

    (void)state;
    for (int i = 0; i < 20000; i++) {
        double value, scale = pow(10, i % 9);
        const char *text;
        int digits = 1;

        chance ^= chance << 13;
        chance ^= chance >> 7;
        chance ^= chance << 17;
        value = i % 2 ? (double)(chance % 1000000000u) / scale
                      : (double)(float)((double)(chance % 1000003u) / scale);
        text = text_of(value);
        assert_true(strtod(text, NULL) == value);
        do
            snprintf(shorter, sizeof(shorter), "%.*g", digits, value);
        while (strtod(shorter, NULL) != value && ++digits < 18);
        if (!strchr(shorter, 'e') && strchr(shorter, '.'))
            assert_string_equal(text, shorter);
    }
}

static double
double_of(uint64_t bits)
{
    double value;

    memcpy(&value, &bits, sizeof(value));
    return value;
}

/* A text has the digits that printf gives: the fewest of 15, 16 and 17 that read back. The numbers
 * are doubles and floats of any size around 1, and doubles beside powers of two and of ten, where
 * the distance to the next double and the number of digits change. */
static void
texts_are_those_of_printf(void **state)
{
    unsigned long long chance = 88172645463325252u;
    char printed[64];

    (void)state;
    for (int i = 0; i < 60000; i++) {
        uint64_t two, bits;
        double value;
        int digits = 14;

        chance ^= chance << 13;
        chance ^= chance >> 7;
        chance ^= chance << 17;
        two = (uint64_t)(1023 - 40 + (int)(chance % 96)) << 52;
        if (i % 4 < 2) {
            bits = two | (chance >> 12 & (i % 4 ? UINT64_MAX << 29 : UINT64_MAX)) |
                   (chance & UINT64_C(1) << 63);
        } else if (i % 4 == 2) {
            bits = two + chance / 96 % 5 - 2;
        } else {
            value = pow(10, (double)(chance % 28) - 12);
            memcpy(&bits, &value, sizeof(bits));
            bits += chance / 28 % 9 - 4;
        }
        value = double_of(bits);
        do
            snprintf(printed, sizeof(printed), "%.*g", ++digits, value);
        while (strtod(printed, NULL) != value);
        if (!printed[strcspn(printed, ".e")])
            strcat(printed, ".0");
        assert_string_equal(text_of(value), printed);
    }
}

static void
integers_are_written_whole(void **state)
{
    char text[CN_NUMBER_MAX + 1];

    (void)state;
    *cn_put_uint(UINT64_MAX, text) = '\0';
    assert_string_equal(text, "18446744073709551615");
    *cn_put_uint(0, text) = '\0';
    assert_string_equal(text, "0");
    *cn_put_int(INT64_MIN, text) = '\0';
    assert_string_equal(text, "-9223372036854775808");
    *cn_put_int(-1, text) = '\0';
    assert_string_equal(text, "-1");
}

static void
only_digits_up_to_the_bound_are_a_number(void **state)
{
    static const char *const wrong[] = {"", "-1", "+1", " 1", "1 ", "0x1", "1.0", "256", "1000"};
    uint64_t value = 7;

    (void)state;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        assert_false(cn_read_uint(cn_str_from(wrong[i]), 255, &value));
    assert_int_equal(value, 7);
    assert_true(cn_read_uint(CN_STR("000255"), 255, &value));
    assert_int_equal(value, 255);
    assert_true(cn_read_uint(CN_STR("18446744073709551615"), UINT64_MAX, &value));
    assert_true(value == UINT64_MAX);
    assert_false(cn_read_uint(CN_STR("18446744073709551616"), UINT64_MAX, &value));
    assert_true(cn_read_uint(CN_STR("0"), 0, &value));
    assert_int_equal(value, 0);
    assert_false(cn_read_uint(CN_STR("5"), 3, &value));
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_digits_up_to_the_bound_are_a_number),
        cmocka_unit_test(numbers_have_their_texts),
        cmocka_unit_test(integers_are_written_whole),
        cmocka_unit_test(texts_read_back_and_are_the_shortest),
        cmocka_unit_test(texts_are_those_of_printf),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
