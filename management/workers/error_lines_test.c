/* management/workers/error_lines_test.c - tests that ten thousand failing steps write few log
 * lines, and a line with the number of those that are left out. */
#include "management/workers/error_lines.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/time/clock.h"

static struct cn_loop *loop;
static struct cn_error_lines lines;
static struct cn_model_about about;
static char written[4096];

static void
make(uint32_t per_second)
{
    static char name[] = "m", version[] = "1.0";
    struct cn_error err;

    cn_clock_freeze();
    about.name = name;
    about.version = version;
    assert_int_equal(cn_loop_create(0, &loop, &err), 0);
    cn_error_lines_init(&lines, loop, &about, per_second);
}

/* Runs `fn` and leaves what it writes to stderr in `written`. */
static void
capture(void (*fn)(void))
{
    int fds[2], saved = dup(STDERR_FILENO);
    ssize_t n;

    assert_int_equal(pipe(fds), 0);
    dup2(fds[1], STDERR_FILENO);
    close(fds[1]);
    fn();
    dup2(saved, STDERR_FILENO);
    close(saved);
    n = read(fds[0], written, sizeof(written) - 1);
    close(fds[0]);
    written[n > 0 ? n : 0] = '\0';
}

static void
second_passes(void)
{
    cn_clock_advance(1000);
    cn_loop_turn(loop, 0);
}

static void
end(void)
{
    cn_error_lines_fini(&lines);
}

static unsigned
take(unsigned times)
{
    unsigned n = 0;

    while (times-- > 0)
        n += cn_error_lines_take(&lines);
    return n;
}

/* The bound holds for each second, and the next line says how many were left out in that second. */
static void
a_second_has_so_many_lines_and_the_rest_is_counted(void **state)
{
    (void)state;
    make(10);
    assert_int_equal(take(10000), 10);
    capture(second_passes);
    assert_non_null(strstr(
        written, "event=handler_errors_left_out model=m version=1.0 count=9990 written=10\n"));
    capture(second_passes);
    assert_string_equal(written, "");
    assert_int_equal(take(3), 3);
    capture(second_passes);
    assert_string_equal(written, "");
    assert_int_equal(take(11), 10);
    capture(end);
    assert_non_null(strstr(written, "count=1 written=10\n"));
    cn_loop_destroy(loop);
}

/* --handler-error-lines 0 writes all lines. */
static void
without_a_bound_all_are_written(void **state)
{
    (void)state;
    make(0);
    assert_int_equal(take(10000), 10000);
    assert_true(cn_error_lines_take(NULL));
    capture(end);
    assert_string_equal(written, "");
    cn_loop_destroy(loop);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_second_has_so_many_lines_and_the_rest_is_counted),
        cmocka_unit_test(without_a_bound_all_are_written),
    };

    return cmocka_run_group_tests_name("management.error_lines", tests, NULL, NULL);
}
