/* metrics/series/handler_series_test.c - tests the series of handlers' metrics: counted, bounded,
 * copied. */
#include "metrics/series/handler_series.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static struct cn_handler_metrics metrics;
static struct cn_series_copy copy;
static struct cn_error err;

static int
setup(void **state)
{
    (void)state;
    cn_handler_metrics_init(&metrics, 2);
    return 0;
}

static int
teardown(void **state)
{
    (void)state;
    cn_series_copy_fini(&copy);
    cn_handler_metrics_fini(&metrics);
    return 0;
}

static int
add(enum cn_sample_type type, const char *name, const char *room, double value, uint64_t now_us)
{
    struct cn_header dim = {CN_STR("room"), cn_str_from(room)};
    struct cn_sample sample = {type, cn_str_from(name), CN_STR("Count"), value, room ? 1 : 0, &dim};

    return cn_handler_metrics_add(&metrics, &sample, now_us, &err);
}

static const struct cn_series *
series(const char *name, const char *labels)
{
    cn_series_copy_fini(&copy);
    cn_handler_metrics_copy(&metrics, &copy);
    for (uint32_t i = 0; i < copy.n; i++)
        if (strcmp(cn_series_name(copy.list[i]), name) == 0 &&
            strcmp(cn_series_labels(copy.list[i]), labels) == 0)
            return copy.list[i];
    fail_msg("no series %s{%s}", name, labels);
    return NULL;
}

/* Counters add up, gauges keep the last value, and histograms sort values into buckets that include
 * their upper ends. */
static void
each_type_counts_in_its_way(void **state)
{
    const struct cn_series *got;

    (void)state;
    metrics.max_series = 9;
    assert_int_equal(add(CN_SAMPLE_COUNTER, "hits", "a\"b", 2, 1), 0);
    assert_int_equal(add(CN_SAMPLE_COUNTER, "hits", "a\"b", 3, 2), 0);
    assert_int_equal(add(CN_SAMPLE_GAUGE, "level", NULL, 7, 1), 0);
    assert_int_equal(add(CN_SAMPLE_GAUGE, "level", NULL, 4, 2), 0);
    assert_int_equal(add(CN_SAMPLE_HISTOGRAM, "ms", NULL, 0.001, 1), 0);
    assert_int_equal(add(CN_SAMPLE_HISTOGRAM, "ms", NULL, 60000, 1), 0);
    got = series("hits", "room=\"a\\\"b\",");
    assert_true(got->value == 5);
    assert_string_equal(cn_series_unit(got), "Count");
    assert_true(series("level", "")->value == 4);
    got = series("ms", "");
    assert_true(got->value == 60000.001);
    assert_int_equal(got->counts[0], 1);
    assert_int_equal(got->counts[CN_SERIES_BUCKETS], 1);
}

/* Values of dimensions may come from clients, but clients must not be able to create any number of
 * series. */
static void
series_are_bounded_and_those_that_are_there_go_on(void **state)
{
    (void)state;
    assert_int_equal(add(CN_SAMPLE_COUNTER, "hits", "a", 1, 1), 0);
    assert_int_equal(add(CN_SAMPLE_COUNTER, "hits", "b", 1, 1), 0);
    assert_int_equal(add(CN_SAMPLE_COUNTER, "hits", "c", 1, 1), CN_E_QUEUE_FULL);
    assert_non_null(strstr(err.message, "handler.metrics.series"));
    assert_int_equal(add(CN_SAMPLE_COUNTER, "hits", "a", 1, 1), 0);
    assert_true(series("hits", "room=\"a\",")->value == 2);
    assert_int_equal(copy.n, 2);
}

/* A family has one type and one unit on the page. */
static void
a_name_has_one_type_and_unit(void **state)
{
    struct cn_sample sample = {CN_SAMPLE_COUNTER, CN_STR("hits"), CN_STR("ms"), 1, 0, NULL};

    (void)state;
    assert_int_equal(add(CN_SAMPLE_COUNTER, "hits", "a", 1, 1), 0);
    assert_int_equal(add(CN_SAMPLE_GAUGE, "hits", "b", 1, 1), CN_E_CONFLICT);
    assert_string_equal(err.message, "metric hits is already a counter, so it cannot be a gauge");
    assert_int_equal(cn_handler_metrics_add(&metrics, &sample, 1, &err), CN_E_CONFLICT);
    assert_string_equal(err.message,
                        "metric hits already has the unit Count, so it cannot have the unit ms");
}

/* Two versions of a model are one series on the page. */
static void
merging_sums_up_but_gauges_which_keep_the_newer_value(void **state)
{
    struct cn_series *a, *b;

    (void)state;
    assert_int_equal(add(CN_SAMPLE_GAUGE, "level", "a", 1, 10), 0);
    assert_int_equal(add(CN_SAMPLE_GAUGE, "level", "b", 2, 5), 0);
    cn_handler_metrics_copy(&metrics, &copy);
    a = copy.list[copy.list[0]->value == 1 ? 0 : 1];
    b = copy.list[copy.list[0]->value == 1 ? 1 : 0];
    cn_series_merge(b, a);
    assert_true(b->value == 1);
    cn_series_merge(a, b);
    assert_true(a->value == 1);
    a->type = b->type = CN_SAMPLE_COUNTER;
    cn_series_merge(a, b);
    assert_true(a->value == 2);
}

int
main(void)
{
#define T(test) cmocka_unit_test_setup_teardown(test, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(each_type_counts_in_its_way),
        T(series_are_bounded_and_those_that_are_there_go_on),
        T(a_name_has_one_type_and_unit),
        T(merging_sums_up_but_gauges_which_keep_the_newer_value),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
