/* bench/load/tally_test.c - what several processes count, and when figures are refused. */
#include "bench/load/tally.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct tally sum;

static int
count_by_number(void *ctx, unsigned i, struct tally *t)
{
    tally_wait_for_all();
    t->steps = i + 1;
    histogram_add(&t->latency, (i + 1) * 1000);
    t->seconds = 1;
    t->cpu_s = 0.1 * (i + 1);
    t->busiest = t->cpu_s;
    return ctx && i == *(unsigned *)ctx ? 1 : 0;
}

/* Each process counts for itself, and the sum has all of it and the busiest process. */
static void
processes_are_added_up(void **state)
{
    (void)state;
    assert_int_equal(tally_run(3, count_by_number, NULL, &sum), 0);
    assert_int_equal(sum.steps, 6);
    assert_int_equal(sum.latency.total, 3);
    assert_int_equal(sum.latency.max_us, 3000);
    assert_true(sum.busiest > 0.29 && sum.busiest < 0.31);
}

/* The status of a process that saw an error is the status of all. */
static void
one_error_is_an_error(void **state)
{
    unsigned wrong = 1;

    (void)state;
    assert_int_equal(tally_run(3, count_by_number, &wrong, &sum), 1);
}

static int
end_early(void *ctx, unsigned i, struct tally *t)
{
    (void)ctx, (void)t;
    if (i == 1)
        return 2;
    tally_wait_for_all(); /* for ever, because a process is missing */
    return 0;
}

/* If a process cannot begin, the others do not wait for it for ever. */
static void
a_process_that_fails_early_ends_the_others(void **state)
{
    (void)state;
    assert_int_equal(tally_run(3, end_early, NULL, &sum), 2);
}

/* A tool that ran for nearly all of the time is what was measured, and it says so. */
static void
a_busy_tool_refuses(void **state)
{
    struct tally t = {.seconds = 2, .busiest = 0.5};

    (void)state;
    histogram_add(&t.latency, 100);
    assert_null(tally_verdict(&t));
    t.busiest = 0.95;
    assert_non_null(strstr(tally_verdict(&t), "95 %"));
    t.seconds = TALLY_MIN_SECONDS / 2;
    assert_null(tally_verdict(&t));
}

/* At a fixed rate, the tool's own lateness must not be most of what it reports as latency. */
static void
a_late_tool_refuses(void **state)
{
    struct tally t = {.seconds = 2, .busiest = 0.1};

    (void)state;
    histogram_add(&t.latency, 1000);
    histogram_add(&t.lateness, 400);
    assert_null(tally_verdict(&t));
    histogram_add(&t.lateness, 900);
    assert_non_null(strstr(tally_verdict(&t), "late"));
}

/* The process's own CPU time is counted between the two readings. */
static void
the_cpu_time_is_that_of_the_measured_time(void **state)
{
    struct tally_clock begin = tally_clock_read();
    struct tally t = {0};

    (void)state;
    while (tally_clock_read().cpu_s < begin.cpu_s + 0.02)
        continue;
    tally_measured(&t, 0.04, begin);
    assert_true(t.cpu_s >= 0.02);
    assert_true(t.busiest >= 0.5);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(processes_are_added_up),
        cmocka_unit_test(one_error_is_an_error),
        cmocka_unit_test(a_process_that_fails_early_ends_the_others),
        cmocka_unit_test(a_busy_tool_refuses),
        cmocka_unit_test(a_late_tool_refuses),
        cmocka_unit_test(the_cpu_time_is_that_of_the_measured_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
