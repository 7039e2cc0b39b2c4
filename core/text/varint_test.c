/* core/text/varint_test.c - tests that numbers are read as they were written, in as few bytes as
 * possible. */
#include "core/text/varint.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

/* Each number takes as many bytes as it needs, and comes back. */
static void
numbers_come_back(void **state)
{
    static const struct {
        uint64_t value;
        size_t bytes;
    } cases[] = {
        {0, 1},          {1, 1},        {127, 1},        {128, 2},         {16383, 2},
        {16384, 3},      {1u << 28, 5}, {UINT32_MAX, 5}, {UINT64_MAX, 10}, {UINT64_MAX >> 1, 9},
        {1ull << 63, 10}};
    char bytes[CN_VARINT_MAX];

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct cn_str rest = {bytes, (size_t)(cn_put_varint(cases[i].value, bytes) - bytes)};
        uint64_t got;

        assert_int_equal(rest.len, cases[i].bytes);
        assert_true(cn_take_varint(&rest, &got));
        assert_true(got == cases[i].value);
        assert_int_equal(rest.len, 0);
    }
}

/* These are the examples in the format's own documentation. */
static void
bytes_are_those_of_leb128(void **state)
{
    char bytes[CN_VARINT_MAX];

    (void)state;
    assert_int_equal(cn_put_varint(624485, bytes) - bytes, 3);
    assert_memory_equal(bytes, "\xe5\x8e\x26", 3);
}

/* A number that will grow may be written with its final width. */
static void
wide_ones_have_bytes_to_spare(void **state)
{
    char bytes[CN_VARINT_MAX];
    struct cn_str rest = {bytes, 4};
    uint64_t got;

    (void)state;
    assert_int_equal(cn_put_wide_varint(5, 4, bytes) - bytes, 4);
    assert_memory_equal(bytes, "\x85\x80\x80\0", 4);
    assert_true(cn_take_varint(&rest, &got));
    assert_int_equal(got, 5);
    assert_int_equal(cn_put_wide_varint((1u << 28) - 1, 4, bytes) - bytes, 4);
    assert_int_equal(cn_put_wide_varint(1u << 28, 4, bytes) - bytes, 5);
    assert_int_equal(cn_put_wide_varint(0, 0, bytes) - bytes, 1);
    assert_int_equal(cn_put_wide_varint(127, 1, bytes) - bytes, 1);
}

/* A reader also meets numbers that others have written: nothing is read beyond the end, and no
 * number is cut. */
static void
what_is_none_is_refused(void **state)
{
    static const struct cn_str cases[] = {
        {"", 0},
        {"\x80", 1},
        {"\xff\xff\xff\xff\xff\xff\xff\xff\xff", 9},
        {"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02", 10},
        {"\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01", 11},
    };
    uint64_t got;

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct cn_str rest = cases[i];

        assert_false(cn_take_varint(&rest, &got));
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_come_back),
        cmocka_unit_test(bytes_are_those_of_leb128),
        cmocka_unit_test(wide_ones_have_bytes_to_spare),
        cmocka_unit_test(what_is_none_is_refused),
    };

    return cmocka_run_group_tests_name("core.varint", tests, NULL, NULL);
}
