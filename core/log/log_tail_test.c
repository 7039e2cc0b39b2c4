/* core/log/log_tail_test.c - tests that the newest lines are kept, and trouble longer than the
 * rest. */
#include "core/log/log_tail.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static char seen[64 * 1024];
static uint64_t first_number;

static void
take(void *ctx, uint64_t number, enum cn_log_level level, const char *text)
{
    size_t at = strlen(seen);

    (void)ctx;
    if (!first_number)
        first_number = number;
    snprintf(seen + at, sizeof(seen) - at, "%d:%.20s;", (int)level, text);
}

static uint64_t
read_lines(enum cn_log_tail_kind kind, uint64_t after, unsigned most)
{
    seen[0] = '\0';
    first_number = 0;
    return cn_log_tail_read(kind, after, most, take, NULL);
}

static void
put(enum cn_log_level level, const char *text)
{
    cn_log_tail_put(level, text, strlen(text));
}

/* Workers and tools log as well, and must not pay for a page that they do not have. */
static void
nothing_is_kept_before_the_begin(void **state)
{
    (void)state;
    put(CN_LOG_ERROR, "lost\n");
    assert_int_equal(read_lines(CN_LOG_TAIL_ALL, 0, 10), 0);
    assert_string_equal(seen, "");
}

static void
lines_are_read_once_and_in_order(void **state)
{
    uint64_t newest;

    (void)state;
    cn_log_tail_begin();
    put(CN_LOG_INFO, "one\n");
    put(CN_LOG_WARN, "two\n");
    newest = read_lines(CN_LOG_TAIL_ALL, 0, 10);
    assert_string_equal(seen, "2:one;1:two;");
    put(CN_LOG_INFO, "three\n");
    assert_int_equal(read_lines(CN_LOG_TAIL_ALL, newest, 10), newest + 1);
    assert_string_equal(seen, "2:three;");
    read_lines(CN_LOG_TAIL_ALL, 0, 1);
    assert_string_equal(seen, "2:three;");
}

static void
a_flood_does_not_push_out_errors(void **state)
{
    (void)state;
    put(CN_LOG_ERROR, "important\n");
    for (unsigned i = 0; i < 3 * CN_LOG_TAIL_LINES; i++)
        put(CN_LOG_INFO, "chatter");
    read_lines(CN_LOG_TAIL_ALL, 0, CN_LOG_TAIL_LINES + 1);
    assert_null(strstr(seen, "important"));
    read_lines(CN_LOG_TAIL_TROUBLE, 0, CN_LOG_TAIL_ERRORS);
    assert_string_equal(seen, "1:two;0:important;");
}

static void
a_long_line_is_cut(void **state)
{
    char line[3 * CN_LOG_TAIL_BYTES];
    uint64_t newest = read_lines(CN_LOG_TAIL_ALL, UINT64_MAX - 1, 1);

    (void)state;
    memset(line, 'x', sizeof(line));
    cn_log_tail_put(CN_LOG_INFO, line, sizeof(line));
    assert_int_equal(read_lines(CN_LOG_TAIL_ALL, newest, 1), newest + 1);
    assert_int_equal(first_number, newest + 1);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_kept_before_the_begin),
        cmocka_unit_test(lines_are_read_once_and_in_order),
        cmocka_unit_test(a_flood_does_not_push_out_errors),
        cmocka_unit_test(a_long_line_is_cut),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
