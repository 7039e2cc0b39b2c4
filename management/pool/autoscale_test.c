/* management/pool/autoscale_test.c - tests that the number of workers follows the load, one at a
 * time, and does not swing. */
#include "management/pool/autoscale.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static struct cn_autoscale autoscale;
static struct cn_autoscale_seen seen;
static enum cn_scale_reason reason;

static int
begin_case(void **state)
{
    (void)state;
    autoscale = (struct cn_autoscale){.up_ms = 250, .down_ms = 60000};
    seen = (struct cn_autoscale_seen){
        .now_ms = 1000000, .settled = true, .wanted = 1, .min = 1, .max = 4};
    cn_autoscale_restart(&autoscale, &seen);
    return 0;
}

/* Moves the time by `ms`, in which `calls` handler calls of 1 ms were made and a step waited for
 * `wait_ms`. */
static uint32_t
later(uint64_t ms, uint64_t calls, uint64_t wait_ms)
{
    seen.now_ms += ms;
    seen.busy_us += calls * 1000;
    seen.jobs += calls;
    seen.wait_ms = wait_ms;
    seen.waiting = wait_ms > 0;
    return seen.wanted = cn_autoscale_decide(&autoscale, &seen, &reason);
}

/* Workers are added up to the maximum, and never while one is still loading. */
static void
steps_that_wait_bring_workers(void **state)
{
    (void)state;
    assert_int_equal(later(60, 60, 249), 1);
    assert_int_equal(later(60, 60, 250), 2);
    assert_int_equal(reason, CN_SCALED_QUEUE);
    seen.settled = false;
    assert_int_equal(later(60, 60, 5000), 2);
    seen.settled = true;
    assert_int_equal(later(60, 60, 300), 3);
    assert_int_equal(later(60, 60, 300), 4);
    assert_int_equal(later(60, 60, 300), 4);
    assert_int_equal(reason, CN_SCALED_NOT);
}

/* Workers are removed one at a time, each after a quiet time of its own, down to the minimum. */
static void
idle_workers_go(void **state)
{
    (void)state;
    seen.wanted = 3;
    assert_int_equal(later(59999, 0, 0), 3);
    assert_int_equal(later(1, 0, 0), 2);
    assert_int_equal(reason, CN_SCALED_IDLE);
    assert_int_equal(later(59999, 0, 0), 2);
    assert_int_equal(later(1, 0, 0), 1);
    assert_int_equal(later(600000, 0, 0), 1);
}

/* If three workers are busy for 70 % of their time, two would be too busy, so all three stay. */
static void
busy_workers_stay(void **state)
{
    (void)state;
    seen.wanted = 3;
    assert_int_equal(later(60000, 3 * 42000, 0), 3);
    assert_int_equal(later(60000, 3 * 20000, 0), 2);
}

/* A single long wait starts the quiet time anew. */
static void
a_wait_keeps_them(void **state)
{
    (void)state;
    seen.wanted = seen.max = 2;
    assert_int_equal(later(50000, 0, 0), 2);
    assert_int_equal(later(5000, 1, 400), 2);
    assert_int_equal(later(59999, 0, 0), 2);
    assert_int_equal(later(1, 0, 0), 1);
}

/* With minWorkers 0 the last worker is removed when no step has come. The next step starts one
 * again. */
static void
none_and_back(void **state)
{
    (void)state;
    seen.min = 0;
    assert_int_equal(later(60000, 1, 0), 1);
    seen.active = true;
    assert_int_equal(later(60000, 0, 0), 1);
    seen.active = false;
    assert_int_equal(later(60000, 0, 0), 0);
    assert_int_equal(later(60000, 0, 0), 0);
    assert_int_equal(later(0, 0, 1), 1);
    assert_int_equal(reason, CN_SCALED_DEMAND);
    seen.wanted = seen.max = 0; /* an operator has scaled the model to 0 */
    assert_int_equal(later(0, 0, 1), 0);
}

static void
zero_means_never_less(void **state)
{
    (void)state;
    autoscale.down_ms = 0;
    seen.wanted = 4;
    assert_int_equal(later(10000000, 0, 0), 4);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(steps_that_wait_bring_workers, begin_case),
        cmocka_unit_test_setup(idle_workers_go, begin_case),
        cmocka_unit_test_setup(busy_workers_stay, begin_case),
        cmocka_unit_test_setup(a_wait_keeps_them, begin_case),
        cmocka_unit_test_setup(none_and_back, begin_case),
        cmocka_unit_test_setup(zero_means_never_less, begin_case),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
