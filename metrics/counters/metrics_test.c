/* metrics/counters/metrics_test.c - counters of several loops and models, as text. */
#include "metrics/counters/metrics.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static struct cn_metrics a, b;
static struct cn_buf out;

static int
set_up(void **state)
{
    (void)state;
    memset(&a, 0, sizeof(a));
    memset(&b, 0, sizeof(b));
    cn_buf_init(&out, 0);
    return 0;
}

static int
tear_down(void **state)
{
    (void)state;
    cn_buf_fini(&out);
    return 0;
}

/* Loops a and b; b also counts for the model. */
static void
print(const struct cn_str *names, uint32_t n)
{
    const struct cn_metrics *loops[] = {&a, &b};
    const struct cn_metrics_of models[] = {{&b, "model=\"m\",version=\"1.0\""}};
    const struct cn_metric_filter filter = {n, names};

    cn_metrics_print(loops, 2, models, 1, &filter, &out);
    cn_buf_append(&out, "", 1);
}

static void
expect(const char *line)
{
    if (!strstr(out.data, line))
        fail_msg("no line \"%s\" in:\n%s", line, out.data);
}

/* A connection may be counted on one loop and taken off on another. */
static void
a_sum_is_right_though_its_parts_wrap(void **state)
{
    (void)state;
    cn_metrics_add(&a, CN_M_HTTP_CONNECTIONS, 5);
    cn_metrics_sub(&b, CN_M_HTTP_CONNECTIONS, 2);
    cn_metrics_add(&b, CN_M_HTTP_REQUESTS, 7);
    cn_metrics_add(&b, CN_M_LOOP_BUSY, 2500001);
    assert_int_equal(cn_metrics_get(&a, CN_M_HTTP_CONNECTIONS), 5);
    print(NULL, 0);
    expect("\ncontinuo_http_connections 3\n");
    expect("\ncontinuo_http_requests_total 7\n");
    expect("\ncontinuo_loop_busy_seconds_total 2.500001\n");
}

/* Prometheus refuses a page with wrong types or names. */
static void
each_family_has_one_help_and_one_type(void **state)
{
    static const char *const names[] = {
#define CN_METRIC(id, scope, shape, name, help) name,
#include "metrics/counters/metrics.def"
#undef CN_METRIC
    };
    unsigned types = 0, helps = 0, shown = 0;
    size_t i;

    (void)state;
    print(NULL, 0);
    for (i = 0; i + 7 < out.len; i++) {
        types += memcmp(out.data + i, "# TYPE ", 7) == 0;
        helps += memcmp(out.data + i, "# HELP ", 7) == 0;
    }
    for (i = 0; i < CN_METRIC_COUNT; i++)
        shown += names[i][0] != '\0';
    assert_int_equal(types, shown);
    assert_int_equal(helps, shown);
}

/* A value at the end of a bucket belongs to that bucket, and each bucket includes the smaller ones.
 */
static void
a_histogram_is_cumulative_and_ends_with_all(void **state)
{
    (void)state;
    cn_metrics_observe(&b, CN_M_STEP_TIME, 1000);
    cn_metrics_observe(&b, CN_M_STEP_TIME, 1001);
    cn_metrics_observe(&b, CN_M_STEP_TIME, 99000000);
    assert_int_equal(cn_metrics_sum(&b, CN_M_STEP_TIME), 1000 + 1001 + 99000000);
    cn_metrics_observe(&b, CN_M_BATCH_ROWS, 16);
    assert_int_equal(cn_metrics_get(&b, CN_M_STEP_TIME), 3);
    print(NULL, 0);
    expect(
        "\ncontinuo_step_duration_seconds_bucket{model=\"m\",version=\"1.0\",le=\"0.0005\"} 0\n");
    expect("\ncontinuo_step_duration_seconds_bucket{model=\"m\",version=\"1.0\",le=\"0.001\"} 1\n");
    expect("\ncontinuo_step_duration_seconds_bucket{model=\"m\",version=\"1.0\",le=\"30\"} 2\n");
    expect("\ncontinuo_step_duration_seconds_bucket{model=\"m\",version=\"1.0\",le=\"+Inf\"} 3\n");
    expect("\ncontinuo_step_duration_seconds_sum{model=\"m\",version=\"1.0\"} 99.002001\n");
    expect("\ncontinuo_step_duration_seconds_count{model=\"m\",version=\"1.0\"} 3\n");
    expect("\ncontinuo_batch_rows_bucket{model=\"m\",version=\"1.0\",le=\"8\"} 0\n");
    expect("\ncontinuo_batch_rows_bucket{model=\"m\",version=\"1.0\",le=\"16\"} 1\n");
    expect("\ncontinuo_batch_rows_sum{model=\"m\",version=\"1.0\"} 16\n");
}

/* A step need not reach all stages, and a stage that no step reached is not shown. */
static void
each_stage_has_a_histogram_of_its_own(void **state)
{
    (void)state;
    cn_metrics_observe_stages(
        &b, CN_M_STAGE_TIMES,
        (const uint64_t[CN_N_STAGES]){CN_STAGE_NONE, 0, 10, 11, 99000000, CN_STAGE_NONE});
    cn_metrics_observe_many(&b, CN_M_REPLY_TIME, 70, 3);
    print(NULL, 0);
#define STAGE(sample, stage)                                                                       \
    "\ncontinuo_stage_duration_seconds_" sample "{model=\"m\",version=\"1.0\",stage=\"" stage "\""
    expect(STAGE("bucket", "parse") ",le=\"0.00001\"} 1\n");
    expect(STAGE("bucket", "queue") ",le=\"0.00001\"} 1\n");
    expect(STAGE("bucket", "batch_wait") ",le=\"0.00001\"} 0\n");
    expect(STAGE("bucket", "batch_wait") ",le=\"0.000025\"} 1\n");
    expect(STAGE("bucket", "handler") ",le=\"30\"} 0\n");
    expect(STAGE("bucket", "handler") ",le=\"+Inf\"} 1\n");
    expect(STAGE("sum", "handler") "} 99.000000\n");
    expect(STAGE("count", "parse") "} 1\n");
    assert_null(strstr(out.data, "stage=\"read\""));
    assert_null(strstr(out.data, "stage=\"commit\""));
    expect("\ncontinuo_reply_duration_seconds_bucket{le=\"0.0001\"} 3\n");
    expect("\ncontinuo_reply_duration_seconds_sum 0.000210\n");
}

/* A worker's error code is a number from outside. */
static void
errors_are_counted_by_word_and_unknown_ones_as_internal(void **state)
{
    (void)state;
    cn_metrics_count_error(&b, CN_M_JOB_ERRORS, CN_E_QUEUE_FULL);
    cn_metrics_count_error(&b, CN_M_JOB_ERRORS, CN_E_QUEUE_FULL);
    cn_metrics_count_error(&b, CN_M_JOB_ERRORS, -5);
    cn_metrics_count_error(&b, CN_M_JOB_ERRORS, INT32_MIN);
    cn_metrics_count_reason(&b, CN_M_SEQUENCES_CLOSED, 2);
    assert_int_equal(cn_metrics_get(&b, CN_M_JOB_ERRORS), 4);
    print(NULL, 0);
    expect("\ncontinuo_job_errors_total{model=\"m\",version=\"1.0\",error=\"queue_full\"} 2\n");
    expect("\ncontinuo_job_errors_total{model=\"m\",version=\"1.0\",error=\"internal\"} 2\n");
    expect("\ncontinuo_sequences_closed_total{model=\"m\",version=\"1.0\",reason=\"idle\"} 1\n");
    expect("\ncontinuo_sequences_closed_total{model=\"m\",version=\"1.0\",reason=\"ended\"} 0\n");
    assert_null(strstr(out.data, "draining"));
}

/* name[]= may name a family or one of its samples. A name that only begins in the same way selects
 * nothing. */
static void
a_filter_leaves_only_what_it_names(void **state)
{
    const struct cn_str names[] = {CN_STR("continuo_jobs_total"), CN_STR("continuo_batch_rows_sum"),
                                   CN_STR("continuo_sequences"), CN_STR("")};

    (void)state;
    print(names, 4);
    expect("# TYPE continuo_jobs_total counter\n");
    expect("# TYPE continuo_batch_rows histogram\n");
    assert_null(strstr(out.data, "continuo_sequences"));
    assert_null(strstr(out.data, "continuo_jobs_waiting"));
    assert_null(strstr(out.data, "continuo_loop"));
}

static void
label_values_are_escaped(void **state)
{
    (void)state;
    cn_metrics_put_label(&out, CN_STR("a\\b\"c\nd"));
    cn_buf_append(&out, "", 1);
    assert_string_equal(out.data, "a\\\\b\\\"c\\nd");
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(a_sum_is_right_though_its_parts_wrap),
        CASE(each_family_has_one_help_and_one_type),
        CASE(a_histogram_is_cumulative_and_ends_with_all),
        CASE(each_stage_has_a_histogram_of_its_own),
        CASE(errors_are_counted_by_word_and_unknown_ones_as_internal),
        CASE(a_filter_leaves_only_what_it_names),
        CASE(label_values_are_escaped),
    };

    return cmocka_run_group_tests_name("core.metrics", tests, NULL, NULL);
}
