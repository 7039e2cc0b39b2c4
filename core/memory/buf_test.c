/* core/memory/buf_test.c - the growing buffer. */
#include "core/memory/buf.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "core/memory/mem.h"

static void
grows_and_keeps_what_it_has(void **state)
{
    struct cn_buf buf;
    size_t i;

    (void)state;
    cn_buf_init(&buf, 0);
    for (i = 0; i < 100000; i++)
        assert_int_equal(cn_buf_append(&buf, &(char){(char)i}, 1), 0);
    assert_int_equal(buf.len, 100000);
    for (i = 0; i < 100000; i++)
        assert_int_equal(buf.data[i], (char)i);
    cn_buf_fini(&buf);
}

/* The limit is exact to the byte, because options promise sizes. */
static void
the_limit_is_exact_and_failure_sticks(void **state)
{
    struct cn_buf buf;

    (void)state;
    cn_buf_init(&buf, 10);
    assert_int_equal(cn_buf_puts(&buf, "0123456789"), 0);
    assert_int_equal(cn_buf_append(&buf, "", 0), 0);
    assert_int_equal(cn_buf_puts(&buf, "x"), -1);
    assert_true(buf.failed);
    assert_int_equal(cn_buf_append(&buf, NULL, 0), -1);
    assert_int_equal(buf.len, 10);
    cn_buf_reset(&buf);
    assert_false(buf.failed);
    assert_int_equal(cn_buf_printf(&buf, "%s", "01234567890"), -1);
    assert_int_equal(buf.len, 0);
    cn_buf_reset(&buf);
    assert_int_equal(cn_buf_printf(&buf, "%s", "0123456789"), 0);
    assert_null(cn_buf_reserve(&buf, SIZE_MAX));
    cn_buf_fini(&buf);
}

static void
printf_grows_as_needed(void **state)
{
    struct cn_buf buf;
    char text[3000];

    (void)state;
    memset(text, 'a', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    cn_buf_init(&buf, 0);
    cn_buf_puts(&buf, "x");
    assert_int_equal(cn_buf_printf(&buf, "%s%d", text, 5), 0);
    assert_int_equal(buf.len, 1 + sizeof(text) - 1 + 1);
    assert_int_equal(buf.data[buf.len - 1], '5');
    cn_buf_fini(&buf);
}

/* Bytes that were parsed are removed, and bytes that came too early stay. */
static void
consume_drops_the_front(void **state)
{
    struct cn_buf buf;

    (void)state;
    cn_buf_init(&buf, 0);
    cn_buf_consume(&buf, 0);
    cn_buf_puts(&buf, "abcdef");
    cn_buf_consume(&buf, 2);
    assert_true(cn_str_eq(cn_buf_str(&buf), CN_STR("cdef")));
    cn_buf_consume(&buf, 4);
    assert_int_equal(buf.len, 0);
    cn_buf_fini(&buf);
}

static void
take_hands_over_text_with_a_nul(void **state)
{
    struct cn_buf buf;
    size_t len;
    char *text;

    (void)state;
    cn_buf_init(&buf, 4);
    text = cn_buf_take(&buf, &len);
    assert_string_equal(text, "");
    assert_int_equal(len, 0);
    cn_free(text);
    cn_buf_puts(&buf, "full");
    text = cn_buf_take(&buf, &len);
    assert_string_equal(text, "full");
    assert_int_equal(len, 4);
    cn_free(text);
    assert_int_equal(buf.len, 0);
    assert_int_equal(cn_buf_puts(&buf, "again"), -1); /* the limit stays */
    cn_buf_fini(&buf);
}

static void
numbers_are_written_in_decimal(void **state)
{
    static const char expected[] = "0 -1 9223372036854775807 -9223372036854775808 10 "
                                   "18446744073709551615 0";
    struct cn_buf buf;

    (void)state;
    cn_buf_init(&buf, 0);
    cn_buf_put_int(&buf, 0);
    cn_buf_puts(&buf, " ");
    cn_buf_put_int(&buf, -1);
    cn_buf_puts(&buf, " ");
    cn_buf_put_int(&buf, INT64_MAX);
    cn_buf_puts(&buf, " ");
    cn_buf_put_int(&buf, INT64_MIN);
    cn_buf_puts(&buf, " ");
    cn_buf_put_uint(&buf, 10);
    cn_buf_puts(&buf, " ");
    cn_buf_put_uint(&buf, UINT64_MAX);
    cn_buf_puts(&buf, " ");
    assert_int_equal(cn_buf_put_uint(&buf, 0), 0);
    assert_int_equal(buf.len, strlen(expected));
    assert_memory_equal(buf.data, expected, buf.len);
    cn_buf_fini(&buf);
}

/* --- an allocator */

#define HOME_BYTES 1100

/* Has room for one buffer at a time. */
struct single {
    struct cn_buf_allocator allocator;
    char room[HOME_BYTES];
    size_t taken; /* bytes; 0: nothing */
};

static char *
take(struct cn_buf_allocator *allocator, size_t bytes)
{
    struct single *all = (struct single *)allocator;

    if (all->taken || bytes > HOME_BYTES)
        return NULL;
    all->taken = bytes;
    return all->room;
}

static void
give_back(struct cn_buf_allocator *allocator, char *data)
{
    struct single *all = (struct single *)allocator;

    assert_ptr_equal(data, all->room);
    assert_int_not_equal(all->taken, 0);
    all->taken = 0;
}

static void
append_many(struct cn_buf *buf, size_t bytes)
{
    while (bytes--)
        cn_buf_puts(buf, "x");
}

static void
a_buffer_grows_into_its_home_and_out_of_it(void **state)
{
    struct single single = {{400, take, give_back}, {0}, 0};
    struct cn_buf buf;

    (void)state;
    cn_buf_init(&buf, 0);
    cn_buf_set_allocator(&buf, &single.allocator);
    append_many(&buf, 300);
    assert_false(buf.from_allocator); /* too small */
    cn_buf_append(&buf, (char[250]){"y"}, 250);
    assert_ptr_equal(buf.data, single.room);
    assert_int_equal(buf.len, 550);
    assert_int_equal(buf.data[299], 'x');
    assert_int_equal(buf.data[300], 'y');
    append_many(&buf, 650); /* more than it has room for */
    assert_false(buf.from_allocator);
    assert_int_equal(single.taken, 0);
    assert_int_equal(buf.len, 1200);
    assert_int_equal(buf.data[300], 'y');
    cn_buf_fini(&buf);
}

/* One large piece takes what it needs, and not twice as much. */
static void
a_home_is_not_wasted(void **state)
{
    struct single single = {{1, take, give_back}, {0}, 0};
    char piece[600] = {0};
    struct cn_buf buf;

    (void)state;
    cn_buf_init(&buf, 650);
    cn_buf_set_allocator(&buf, &single.allocator);
    cn_buf_append(&buf, piece, sizeof(piece));
    assert_true(buf.from_allocator);
    assert_int_equal(single.taken, 651);
    append_many(&buf, 51);
    assert_true(buf.failed); /* the limit is the same */
    assert_int_equal(buf.len, 650);
    cn_buf_reset(&buf);
    assert_false(buf.from_allocator);
    assert_int_equal(single.taken, 0);
    cn_buf_fini(&buf);
}

static void
what_is_left_at_home_belongs_to_another(void **state)
{
    struct single single = {{100, take, give_back}, {0}, 0};
    struct cn_buf buf;
    size_t len;
    char *text;

    (void)state;
    cn_buf_init(&buf, 0);
    append_many(&buf, 300);
    cn_buf_disown(&buf); /* it has none */
    assert_int_equal(buf.len, 300);
    cn_buf_reset(&buf);
    cn_buf_set_allocator(&buf, &single.allocator); /* gives up the heap's large memory */
    append_many(&buf, 300);
    assert_true(buf.from_allocator);
    cn_buf_disown(&buf);
    assert_null(buf.data);
    assert_int_equal(buf.len + buf.cap, 0);
    assert_int_not_equal(single.taken, 0);
    append_many(&buf, 300); /* no room: it is on the heap */
    assert_false(buf.from_allocator);
    single.taken = 0;
    cn_buf_reset(&buf);
    cn_buf_set_allocator(&buf, &single.allocator);
    append_many(&buf, 300);
    text = cn_buf_take(&buf, &len); /* always from the heap */
    assert_int_equal(single.taken, 0);
    assert_int_equal(strlen(text), 300);
    cn_free(text);
    append_many(&buf, 300);
    assert_true(buf.from_allocator); /* it still has its allocator */
    cn_buf_fini(&buf);
    assert_int_equal(single.taken, 0);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_are_written_in_decimal),
        cmocka_unit_test(grows_and_keeps_what_it_has),
        cmocka_unit_test(the_limit_is_exact_and_failure_sticks),
        cmocka_unit_test(printf_grows_as_needed),
        cmocka_unit_test(consume_drops_the_front),
        cmocka_unit_test(take_hands_over_text_with_a_nul),
        cmocka_unit_test(a_buffer_grows_into_its_home_and_out_of_it),
        cmocka_unit_test(a_home_is_not_wasted),
        cmocka_unit_test(what_is_left_at_home_belongs_to_another),
    };

    return cmocka_run_group_tests_name("core.buf", tests, NULL, NULL);
}
