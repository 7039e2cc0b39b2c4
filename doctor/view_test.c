/* doctor/view_test.c - tests that the server's answers, also odd ones, become a view. */
#include "doctor/test_support.h"

/* Every column that continuo-ctl shows comes from a description. */
static void
a_description_is_read(void **state)
{
    struct cn_ctl_view view;
    struct cn_ctl_totals totals;

    (void)state;
    view_of(&view,
            "[" MODEL(
                "m", "1.0", READY_WORKER,
                ", \"jobQueueStatus\": {\"remainingCapacity\": 90, \"pendingRequests\": 10, "
                "\"inFlight\": 4}, \"liveSequences\": 7, \"steps\": 99, \"lastError\": null") "]");
    assert_string_equal(view.models->name, "m");
    assert_true(view.models->is_default);
    assert_int_equal(view.models->queue_size, 100);
    assert_int_equal(view.models->n_ready, 1);
    assert_int_equal(view.models->workers[0].pid, 77);
    assert_int_equal(view.models->workers[0].started_wall_ms, 1795235792123);
    assert_null(view.models->workers[0].last_exit);
    assert_null(view.models->last_error);
    totals = cn_ctl_view_totals(&view);
    assert_true(totals.healthy);
    assert_int_equal(totals.ready, 1);
    assert_int_equal(totals.live_sequences, 7);
    assert_int_equal(totals.steps, 99);
    cn_ctl_view_fini(&view);
}

/* Each version has its own entry. Only the default version decides about health, as in /ping. */
static void
the_default_version_decides_about_health(void **state)
{
    static const char json[] =
        "[" MODEL("m", "1.0", "", "") "," MODEL("m", "2.0", READY_WORKER, "") "]";
    struct cn_ctl_view view;
    struct cn_error err;

    (void)state;
    cn_ctl_view_init(&view);
    assert_int_equal(cn_ctl_view_add(&view, cn_str_from(json), "2.0", &err), 0);
    assert_false(view.models->is_default);
    assert_true(view.models->next->is_default);
    assert_true(cn_ctl_view_totals(&view).healthy);
    assert_ptr_equal(cn_ctl_view_find(&view, "m", "2.0"), view.models->next);
    assert_null(cn_ctl_view_find(&view, "m", "3.0"));
    cn_ctl_view_fini(&view);
    cn_ctl_view_init(&view);
    assert_int_equal(cn_ctl_view_add(&view, cn_str_from(json), "1.0", &err), 0);
    assert_false(cn_ctl_view_totals(&view).healthy);
    cn_ctl_view_fini(&view);
}

/* Another program, or another version of the server, may answer at the address. */
static void
odd_answers_are_refused_or_read_as_nothing(void **state)
{
    struct cn_ctl_view view;
    struct cn_error err;

    (void)state;
    cn_ctl_view_init(&view);
    assert_int_equal(cn_ctl_view_add(&view, CN_STR("<html>"), NULL, &err), CN_E_PROTOCOL);
    assert_contains(err.message, "is not valid JSON");
    assert_int_equal(cn_ctl_view_add(&view, CN_STR(""), NULL, &err), CN_E_PROTOCOL);
    assert_int_equal(cn_ctl_view_add(&view, CN_STR("{}"), NULL, &err), CN_E_PROTOCOL);
    assert_int_equal(cn_ctl_view_add(&view, CN_STR("[1]"), NULL, &err), CN_E_PROTOCOL);
    assert_null(view.models);
    assert_int_equal(
        cn_ctl_view_add(&view,
                        CN_STR("[{\"modelName\": 3, \"steps\": -4, \"workers\": [1, {}, null]}]"),
                        NULL, &err),
        0);
    assert_string_equal(view.models->name, "");
    assert_int_equal(view.models->steps, 0);
    assert_int_equal(view.models->n_workers, 3);
    assert_string_equal(view.models->workers[1].state, "-");
    cn_ctl_view_fini(&view);
}

/* The reader of Prometheus text copes with comments, labels, names that begin alike, and a last
 * line that is cut. */
static void
metrics_are_summed_over_labels(void **state)
{
    struct cn_ctl_view view;

    (void)state;
    cn_ctl_view_init(&view);
    cn_ctl_view_add_metrics(&view, CN_STR("<html>\n"));
    assert_false(view.has_metrics);
    cn_ctl_view_add_metrics(&view, CN_STR("# HELP continuo_jobs_total Jobs\n"
                                          "continuo_jobs_total{model=\"a b\"} 40\n"
                                          "continuo_jobs_total{model=\"c\"} 2\n"
                                          "continuo_jobs_total_of_others 7\n"
                                          "continuo_jobs_refused_total 5\n"
                                          "continuo_loop_turns_total 1"));
    assert_true(view.has_metrics);
    assert_int_equal(view.metrics[CN_M_JOBS], 42);
    assert_int_equal(view.metrics[CN_M_JOBS_REFUSED], 5);
    assert_int_equal(view.metrics[CN_M_LOOP_TURNS], 0);
    cn_ctl_view_fini(&view);
}

/* A text that is not a time must not look like 1970. */
static void
times_are_read(void **state)
{
    (void)state;
    assert_int_equal(cn_ctl_parse_time("1970-01-02T00:00:00.005Z"), 86400005);
    assert_int_equal(cn_ctl_parse_time("1970-01-02T00:00:00Z"), 86400000);
    assert_int_equal(cn_ctl_parse_time("yesterday"), 0);
    assert_int_equal(cn_ctl_parse_time(""), 0);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_description_is_read),
        cmocka_unit_test(the_default_version_decides_about_health),
        cmocka_unit_test(odd_answers_are_refused_or_read_as_nothing),
        cmocka_unit_test(metrics_are_summed_over_labels),
        cmocka_unit_test(times_are_read),
    };
    return cmocka_run_group_tests_name("ctl.view", tests, NULL, NULL);
}
