/* bench/load/arrivals_test.c - when steps are due. */
#include "bench/load/arrivals.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>

static void
assert_near(double a, double b)
{
    assert_true(fabs(a - b) < 1e-6);
}

/* A fixed rate makes equal distances, whatever the durations are. */
static void
a_fixed_rate_makes_equal_distances(void **state)
{
    const struct arrivals a = {.from = 200, .to = 200, .warmup_s = 1, .ramp_s = 5};

    (void)state;
    for (uint64_t i = 0; i < 3000; i += 100)
        assert_near(arrivals_due_s(&a, i), (double)i / 200);
}

/* A ramp from 100 to 300 steps/s for 10 s has 2,000 steps: its average is 200 a second. */
static void
a_ramp_has_the_steps_of_its_average_rate(void **state)
{
    const struct arrivals up = {.from = 100, .to = 300, .warmup_s = 2, .ramp_s = 10};
    const struct arrivals down = {.from = 300, .to = 100, .warmup_s = 2, .ramp_s = 10};

    (void)state;
    assert_near(arrivals_due_s(&up, 200), 2);
    assert_near(arrivals_due_s(&up, 200 + 2000), 12);
    assert_near(arrivals_due_s(&up, 200 + 2000 + 300), 13);
    assert_near(arrivals_due_s(&down, 600), 2);
    assert_near(arrivals_due_s(&down, 600 + 2000), 12);
    /* Half of the time has passed after 100 * 5 + 20 * 5^2 / 2 = 750 steps. */
    assert_near(arrivals_due_s(&up, 200 + 750), 7);
}

/* Later arrivals are never due earlier, across the borders of the ramp, too. */
static void
arrivals_are_in_order(void **state)
{
    const struct arrivals a = {.from = 1000, .to = 10, .warmup_s = 0.3, .ramp_s = 1};
    double before = -1;

    (void)state;
    for (uint64_t i = 0; i < 2000; i++) {
        double due = arrivals_due_s(&a, i);
        assert_true(due > before);
        before = due;
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_fixed_rate_makes_equal_distances),
        cmocka_unit_test(a_ramp_has_the_steps_of_its_average_rate),
        cmocka_unit_test(arrivals_are_in_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
