/* frontend/page/rates_test.c - tests that differences of counters become the right rates. */
#include "frontend/page/rates.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct cn_metrics metrics;

static double
real_of(const json_t *object, const char *key)
{
    return json_number_value(json_object_get(object, key));
}

static void
begin(void)
{
    memset(&metrics, 0, sizeof metrics);
}

/* A rate is what was counted between two looks, not since the start. */
static void
rates_are_of_the_time_between_two_looks(void **state)
{
    struct cn_rates_point before, now;
    json_t *rates;

    (void)state;
    begin();
    cn_metrics_add(&metrics, CN_M_JOBS, 1000);
    cn_rates_take(&before, &metrics, 1000000);
    cn_metrics_add(&metrics, CN_M_JOBS, 300);
    cn_metrics_count_error(&metrics, CN_M_JOB_ERRORS, CN_E_QUEUE_FULL);
    for (int i = 0; i < 10; i++)
        cn_metrics_observe(&metrics, CN_M_BATCH_ROWS, 30);
    cn_rates_take(&now, &metrics, 3000000);
    rates = cn_rates_json(&before, &now);
    assert_float_equal(real_of(rates, "stepsPerS"), 150, 0);
    assert_float_equal(real_of(rates, "errorsPerS"), 0.5, 0);
    assert_float_equal(real_of(rates, "callsPerS"), 5, 0);
    assert_float_equal(real_of(rates, "batchRows"), 30, 0);
    assert_true(json_is_null(json_object_get(rates, "p50MSec")));
    json_decref(rates);
}

static void
quantiles_lie_inside_their_bucket(void **state)
{
    uint64_t before[CN_DURATION_VALUES] = {0}, now[CN_DURATION_VALUES] = {0};

    (void)state;
    assert_true(cn_rates_quantile_us(before, now, 0.5) < 0);
    before[2] = now[2] = 1000; /* what was there before does not count */
    now[3] = 98;               /* 500 to 1000 us */
    now[5] = 2;                /* 2500 to 5000 us */
    assert_float_equal(cn_rates_quantile_us(before, now, 0.49), 750, 1e-6);
    assert_float_equal(cn_rates_quantile_us(before, now, 0.99), 3750, 1e-6);
    memset(now, 0, sizeof now);
    now[CN_DURATION_BUCKETS] = 5; /* above the last bucket */
    assert_float_equal(cn_rates_quantile_us(now, now, 0.5), -1, 0);
    memset(before, 0, sizeof before);
    assert_float_equal(cn_rates_quantile_us(before, now, 0.5), 30e6, 0);
}

/* A model that was registered again counts from 0; a chart must not show a huge number then. */
static void
a_counter_that_went_back_has_no_rate(void **state)
{
    struct cn_rates_point before = {.at_us = 1, .jobs = 1000}, now = {.at_us = 1000001, .jobs = 3};
    json_t *rates = cn_rates_json(&before, &now);

    (void)state;
    assert_true(json_is_null(json_object_get(rates, "stepsPerS")));
    json_decref(rates);
    before.at_us = 0;
    rates = cn_rates_json(&before, &now);
    assert_true(json_is_null(json_object_get(rates, "stepsPerS")));
    json_decref(rates);
}

static void
numbers_have_three_digits(void **state)
{
    struct cn_rates_point before = {.at_us = 1}, now = {.at_us = 1000001, .jobs = 123456};
    json_t *rates = cn_rates_json(&before, &now), *steps = json_object_get(rates, "stepsPerS");

    (void)state;
    assert_true(json_is_integer(steps));
    assert_int_equal(json_integer_value(steps), 123000);
    json_decref(rates);
}

static void
points_add_up(void **state)
{
    struct cn_rates_point sum = {0}, a = {.at_us = 5, .jobs = 2, .rows = 3},
                          b = {.at_us = 6, .jobs = 4, .errors = 1};

    (void)state;
    a.steps_us[4] = 7;
    b.steps_us[4] = 1;
    cn_rates_add(&sum, &a);
    cn_rates_add(&sum, &b);
    assert_int_equal(sum.jobs, 6);
    assert_int_equal(sum.rows, 3);
    assert_int_equal(sum.errors, 1);
    assert_int_equal(sum.steps_us[4], 8);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rates_are_of_the_time_between_two_looks),
        cmocka_unit_test(quantiles_lie_inside_their_bucket),
        cmocka_unit_test(a_counter_that_went_back_has_no_rate),
        cmocka_unit_test(numbers_have_three_digits),
        cmocka_unit_test(points_add_up),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
