/* proto/wire_test.c - tests writing and reading fields, and readers at the end of their bytes. */
#include "proto/wire.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

/* The byte order is fixed, because both ends may be built by different compilers one day. */
static void
numbers_are_little_endian(void **state)
{
    static const unsigned char expected[] = {1, 3, 2, 7, 6, 5, 4, 15, 14, 13, 12, 11, 10, 9, 8};
    struct cn_reader reader;
    struct cn_buf buf;

    (void)state;
    cn_buf_init(&buf, 0);
    cn_write_u8(&buf, 1);
    cn_write_u16(&buf, 0x0203);
    cn_write_u32(&buf, 0x04050607);
    cn_write_u64(&buf, UINT64_C(0x08090a0b0c0d0e0f));
    assert_int_equal(buf.len, sizeof(expected));
    assert_memory_equal(buf.data, expected, sizeof(expected));
    cn_reader_init(&reader, buf.data, buf.len);
    assert_int_equal(cn_read_u8(&reader), 1);
    assert_int_equal(cn_read_u16(&reader), 0x0203);
    assert_int_equal(cn_read_u32(&reader), 0x04050607);
    assert_true(cn_read_u64(&reader) == UINT64_C(0x08090a0b0c0d0e0f));
    assert_int_equal(cn_reader_left(&reader), 0);
    assert_false(reader.bad);
    cn_buf_fini(&buf);
}

/* A parser reads all its fields and checks once at the end, so reads beyond the end must be
 * harmless. */
static void
reading_past_the_end_is_sticky_and_gives_nothing(void **state)
{
    static const unsigned char bytes[] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff};
    struct cn_reader reader;

    (void)state;
    cn_reader_init(&reader, bytes, sizeof(bytes));
    assert_true(cn_read_u64(&reader) == 0);
    assert_true(reader.bad);
    assert_int_equal(cn_read_u8(&reader), 0);
    assert_int_equal(cn_read_u16(&reader), 0);
    assert_int_equal(cn_read_u32(&reader), 0);
    assert_int_equal(cn_read_bytes(&reader, 1).len, 0);
    assert_null(cn_read_str16(&reader).ptr);
    assert_null(cn_read_str32(&reader).ptr);
}

/* The length says four billion, and three bytes follow. */
static void
lengths_that_lie_are_refused(void **state)
{
    static const unsigned char bytes[] = {0xff, 0xff, 0xff, 0xff, 'a', 'b', 'c'};
    struct cn_reader reader;

    (void)state;
    cn_reader_init(&reader, bytes, sizeof(bytes));
    assert_int_equal(cn_read_str32(&reader).len, 0);
    assert_true(reader.bad);
    cn_reader_init(&reader, bytes, sizeof(bytes));
    assert_int_equal(cn_read_str16(&reader).len, 0);
    assert_true(reader.bad);
    cn_reader_init(&reader, bytes, sizeof(bytes));
    assert_int_equal(cn_read_bytes(&reader, SIZE_MAX).len, 0);
    assert_true(reader.bad);
    cn_reader_init(&reader, NULL, 0);
    assert_int_equal(cn_read_bytes(&reader, 0).len, 0);
    assert_false(reader.bad);
}

static void
texts_keep_their_bytes(void **state)
{
    struct cn_reader reader;
    struct cn_buf buf;

    (void)state;
    cn_buf_init(&buf, 0);
    cn_write_str16(&buf, CN_STR("a\0b"));
    cn_write_str32(&buf, CN_STR(""));
    cn_write_str32(&buf, CN_STR("xyz"));
    cn_reader_init(&reader, buf.data, buf.len);
    assert_true(cn_str_eq(cn_read_str16(&reader), CN_STR("a\0b")));
    assert_true(cn_str_eq(cn_read_str32(&reader), CN_STR("")));
    assert_true(cn_str_eq(cn_read_str32(&reader), CN_STR("xyz")));
    assert_false(reader.bad);
    cn_buf_fini(&buf);
}

/* A header value of 70,000 bytes must fail, not arrive cut. */
static void
a_text_too_long_for_its_length_fails(void **state)
{
    static char text[65536];
    struct cn_buf buf;

    (void)state;
    cn_buf_init(&buf, 0);
    cn_write_str16(&buf, (struct cn_str){text, 65535});
    assert_false(buf.failed);
    cn_write_str16(&buf, (struct cn_str){text, 65536});
    assert_true(buf.failed);
    cn_buf_fini(&buf);
}

static void
a_patch_overwrites_in_place(void **state)
{
    struct cn_buf buf;

    (void)state;
    cn_buf_init(&buf, 6);
    cn_write_u8(&buf, 9);
    cn_write_u32(&buf, 0);
    cn_write_u8(&buf, 9);
    cn_patch_u32(&buf, 1, 0x01020304);
    assert_memory_equal(buf.data, "\x09\x04\x03\x02\x01\x09", 6);
    cn_write_u8(&buf, 1);
    assert_true(buf.failed);
    cn_patch_u32(&buf, 1, 5); /* a failed buffer is left alone */
    assert_memory_equal(buf.data, "\x09\x04\x03\x02\x01\x09", 6);
    cn_buf_fini(&buf);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_are_little_endian),
        cmocka_unit_test(reading_past_the_end_is_sticky_and_gives_nothing),
        cmocka_unit_test(lengths_that_lie_are_refused),
        cmocka_unit_test(texts_keep_their_bytes),
        cmocka_unit_test(a_text_too_long_for_its_length_fails),
        cmocka_unit_test(a_patch_overwrites_in_place),
    };

    return cmocka_run_group_tests_name("proto.wire", tests, NULL, NULL);
}
