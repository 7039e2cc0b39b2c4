/* metrics/page/handler_families_test.c - tests handlers' metrics on the page: each family once,
 * versions together, in TorchServe's form. */
#include "metrics/page/handler_families.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "metrics/series/handler_series.h"
#include "torchserve/metrics/metric_lines.h"

static struct cn_handler_metrics sets[3];
static struct cn_series_copy copies[3];
static struct cn_buf out;

static void
add(unsigned model, enum cn_sample_type type, const char *name, double value, uint64_t now_us)
{
    struct cn_header dim = {CN_STR("room"), CN_STR("k")};
    struct cn_sample sample = {type, cn_str_from(name), CN_STR("ms"), value, 1, &dim};

    assert_int_equal(cn_handler_metrics_add(&sets[model], &sample, now_us, NULL), 0);
}

/* The models a, a in a second version, and b. */
static const char *
print(const struct cn_metric_filter *filter)
{
    struct cn_model_counted models[3] = {{.name = "a"}, {.name = "a"}, {.name = "b"}};

    cn_buf_reset(&out);
    for (int i = 0; i < 3; i++) {
        cn_handler_metrics_copy(&sets[i], &copies[i]);
        models[i].series = &copies[i];
    }
    cn_handler_metrics_print(models, 3, filter, &out);
    for (int i = 0; i < 3; i++)
        cn_series_copy_fini(&copies[i]);
    cn_buf_append(&out, "", 1);
    return out.data;
}

static int
setup(void **state)
{
    (void)state;
    cn_ts_setup(CN_TS_PROMETHEUS);
    for (int i = 0; i < 3; i++)
        cn_handler_metrics_init(&sets[i], 10);
    cn_buf_init(&out, 0);
    return 0;
}

static int
teardown(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++)
        cn_handler_metrics_fini(&sets[i]);
    cn_buf_fini(&out);
    return 0;
}

/* Readers refuse a page with a family twice, or a series twice. */
static void
families_stand_once_and_versions_are_one(void **state)
{
    const struct cn_metric_filter all = {0, NULL};
    const char *text;
    char line[400];

    (void)state;
    add(0, CN_SAMPLE_COUNTER, "hits", 1, 1);
    add(0, CN_SAMPLE_GAUGE, "level", 1, 9);
    add(1, CN_SAMPLE_COUNTER, "hits", 2, 1);
    add(1, CN_SAMPLE_GAUGE, "level", 2, 5);
    add(2, CN_SAMPLE_COUNTER, "hits", 4.5, 1);
    text = print(&all);
    assert_non_null(strstr(text, "# HELP hits Torchserve prometheus counter metric with unit: ms\n"
                                 "# TYPE hits counter\n"));
    assert_null(strstr(strstr(text, "# TYPE hits") + 1, "# TYPE hits"));
    snprintf(line, sizeof(line),
             "\nhits{room=\"k\",ModelName=\"a\",Level=\"Model\",Hostname=\"%s\",} 3.0\n",
             cn_ts_host());
    assert_non_null(strstr(text, line));
    snprintf(line, sizeof(line),
             "\nhits{room=\"k\",ModelName=\"b\",Level=\"Model\",Hostname=\"%s\",} 4.5\n",
             cn_ts_host());
    assert_non_null(strstr(text, line));
    snprintf(line, sizeof(line),
             "\nlevel{room=\"k\",ModelName=\"a\",Level=\"Model\",Hostname=\"%s\",} 1.0\n",
             cn_ts_host());
    assert_non_null(strstr(text, line));
}

static void
histograms_count_up_to_infinity(void **state)
{
    struct cn_str name = CN_STR("took_bucket");
    const struct cn_metric_filter some = {1, &name};
    const char *text;

    (void)state;
    add(0, CN_SAMPLE_COUNTER, "hits", 1, 1);
    add(0, CN_SAMPLE_HISTOGRAM, "took", 2, 1);
    add(1, CN_SAMPLE_HISTOGRAM, "took", 1e9, 1);
    text = print(&some);
    assert_null(strstr(text, "hits"));
    assert_non_null(strstr(text, "le=\"1\",} 0\n"));
    assert_non_null(strstr(text, "le=\"2.5\",} 1\n"));
    assert_non_null(strstr(text, "le=\"50000\",} 1\n"));
    assert_non_null(strstr(text, "le=\"+Inf\",} 2\n"));
    assert_non_null(strstr(text, "} 1000000002.0\n"));
}

/* Models know nothing of each other. */
static void
a_name_that_another_model_has_for_something_else_is_left_out(void **state)
{
    const struct cn_metric_filter all = {0, NULL};
    const char *text;

    (void)state;
    add(0, CN_SAMPLE_COUNTER, "hits", 1, 1);
    add(2, CN_SAMPLE_GAUGE, "hits", 1, 1);
    text = print(&all);
    assert_non_null(strstr(text, "# hits of model b has another type and is left out\n"));
    assert_null(strstr(text, "ModelName=\"b\""));
}

int
main(void)
{
#define T(test) cmocka_unit_test_setup_teardown(test, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(families_stand_once_and_versions_are_one),
        T(histograms_count_up_to_infinity),
        T(a_name_that_another_model_has_for_something_else_is_left_out),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
