/* handlers/modules/module_plan_test.c - tests that rows are split into the cheapest batches. */
#include "handlers/modules/module_plan.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static uint32_t
rows_next(const struct cn_module_plan *plan, uint32_t left)
{
    return plan->rows[cn_module_plan_next(plan, left)];
}

/* These are silero-vad's times: two rows at once cost four times one row, and eight rows little
 * more than two. */
static void
two_rows_run_one_by_one_where_that_is_cheaper(void **state)
{
    struct cn_module_plan plan = {
        .n = 4, .rows = {1, 2, 8, 32}, .cost_us = {573, 2139, 2458, 3618}};

    (void)state;
    cn_module_plan_make(&plan, 64);
    assert_int_equal(rows_next(&plan, 1), 1);
    assert_int_equal(rows_next(&plan, 2), 1);
    assert_int_equal(rows_next(&plan, 4), 1); /* 4 runs of 1 take 2292, one of 8 takes 2458 */
    assert_int_equal(rows_next(&plan, 5),
                     8); /* 5 runs of 1 take 2865, a padded run of 8 takes 2458 */
    assert_int_equal(rows_next(&plan, 13),
                     32); /* two runs of 8 take 4916, a padded run of 32 takes 3618 */
    assert_int_equal(rows_next(&plan, 64), 32);
    assert_int_equal(rows_next(&plan, 1000), 32); /* more rows than the plan was made for */
    assert_float_equal(plan.best_us[2], 1146, 0.5);
    assert_float_equal(plan.best_us[33], 4191, 0.5);
    cn_module_plan_fini(&plan);
}

static void
unmeasured_buckets_are_taken_by_size(void **state)
{
    struct cn_module_plan plan = {.n = 3, .rows = {1, 8, 32}, .cost_us = {5, 0, 9}};

    (void)state;
    cn_module_plan_make(&plan, 64);
    assert_int_equal(rows_next(&plan, 1), 1);
    assert_int_equal(rows_next(&plan, 2), 8);
    assert_int_equal(rows_next(&plan, 9), 32);
    assert_int_equal(rows_next(&plan, 64), 32);
    cn_module_plan_fini(&plan);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_rows_run_one_by_one_where_that_is_cheaper),
        cmocka_unit_test(unmeasured_buckets_are_taken_by_size),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
