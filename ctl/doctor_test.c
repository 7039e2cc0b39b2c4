/* ctl/doctor_test.c - tests that the doctor finds what is wrong from what a server shows. */
#include "ctl/doctor_show.h"

#include "core/memory/mem.h"
#include "doctor/test_support.h"

#define STARTED_MS 1795235792123u /* the start time of READY_WORKER */

static struct cn_ctl_diagnosis diagnosis;
static char *shown;

static int
end_case(void **state)
{
    (void)state;
    cn_free(shown);
    shown = NULL;
    cn_ctl_diagnosis_fini(&diagnosis);
    return 0;
}

/* Makes the diagnosis, and leaves its text in `shown`. */
static void
diagnose(const char *models, const char *metrics, uint64_t age_ms)
{
    struct cn_ctl_view view;
    struct cn_buf out;

    end_case(NULL);
    view_of(&view, models);
    if (metrics)
        cn_ctl_view_add_metrics(&view, cn_str_from(metrics));
    cn_ctl_diagnosis_init(&diagnosis);
    cn_ctl_diagnose(&diagnosis, &view, "http://h:1", STARTED_MS + age_ms);
    cn_buf_init(&out, 0);
    cn_ctl_diagnosis_show(&diagnosis, &view, "http://h:1", &out);
    shown = cn_buf_take(&out, NULL);
    cn_ctl_view_fini(&view);
}

static void
nothing_wrong_is_said_in_a_line(void **state)
{
    (void)state;
    diagnose("[" MODEL("m", "1.0", READY_WORKER, ", \"liveSequences\": 4") "]",
             "continuo_jobs_total 100\n", 0);
    assert_string_equal(
        shown, "nothing wrong at http://h:1: 1 model, 1 of 1 workers ready, 4 live sequences\n");
}

/* Every step without its header is answered with 200, so nothing else shows the mistake. */
static void
lost_headers_are_explained(void **state)
{
    (void)state;
    diagnose("[" MODEL("m", "1.0", READY_WORKER, ", \"sequences\": {\"idsMissing\": true}") "]",
             NULL, 0);
    assert_int_equal(diagnosis.n_problems, 1);
    assert_contains(shown,
                    "model m 1.0: nearly all steps arrive through a proxy without a sequence");
    assert_contains(shown, "underscores_in_headers on");
    diagnose("[" MODEL("m", "1.0", READY_WORKER, ", \"sequences\": {\"idsMissing\": false}") "]",
             NULL, 0);
    assert_int_equal(diagnosis.n_problems, 0);
}

/* The diagnosis has the reason in the server's words, and the commands to type. Escape sequences
 * are shown as text. */
static void
a_model_that_cannot_load_is_explained(void **state)
{
    (void)state;
    diagnose("[" MODEL("m", "1.0", WORKER("1", "backoff", "UNLOADING", ", \"restarts\": 5"),
                       ", \"lastError\": \"handler.lua:3: oh \\u001b[2J no\"") "]",
             NULL, 0);
    assert_int_equal(diagnosis.n_problems, 1);
    assert_contains(shown, "PROBLEM  model m 1.0 has no ready worker");
    assert_contains(shown, "why    handler.lua:3: oh ?[2J no\n");
    assert_contains(shown, "curl -X DELETE http://h:1/models/m/1.0");
}

static void
loading_and_scaled_to_nothing_are_told_apart(void **state)
{
    (void)state;
    diagnose("[" MODEL("m", "1.0", WORKER("1", "loading", "UNLOADING", ""), "") "]", NULL, 0);
    assert_int_equal(diagnosis.n_problems, 0);
    assert_contains(shown, "it is loading");
    diagnose("[{\"modelName\": \"m\", \"modelVersion\": \"2\", \"workers\": []}]", NULL, 0);
    assert_int_equal(diagnosis.n_problems, 1);
    assert_contains(shown, "curl -X PUT 'http://h:1/models/m/2?min_worker=1'");
}

static void
a_runtimes_warning_is_told_once(void **state)
{
    (void)state;
    diagnose("[" MODEL("m", "1.0",
                       WORKER("1", "ready", "READY",
                              ", \"warning\": \"each row is run alone: output y differs\""),
                       "") "]",
             NULL, 0);
    assert_int_equal(diagnosis.n_problems, 0);
    assert_contains(shown, "model m 1.0: its runtime gave a warning when it loaded the model");
    assert_contains(shown, "why    each row is run alone: output y differs\n");
    assert_contains(shown, "docs/torch.md");
    diagnose("[" MODEL("m", "1.0",
                       WORKER("1", "ready", "READY",
                              ", \"warning\": \"handler.lua: on_close is never called: the server "
                              "calls close\""),
                       "") "]",
             NULL, 0);
    assert_contains(shown, "the name that the server calls");
    assert_null(strstr(shown, "docs/torch.md"));
}

/* A single crash is a note. Several crashes are a problem if the last one is recent, and a note if
 * it is long ago. */
static void
frequent_restarts_are_a_problem(void **state)
{
    static const char words[] = "\"worker 1 (pid 7) of m/1.0 was killed by signal 6 (SIGABRT); "
                                "last stderr: the end\"";
    char json[1024];
    unsigned times;

    (void)state;
    for (times = 1; times <= 3; times += 2) {
        snprintf(json, sizeof json,
                 "[" MODEL("m", "1.0",
                           WORKER("1", "ready", "READY", ", \"restarts\": %u, \"lastExit\": %s"),
                           "") "]",
                 times, words);
        diagnose(json, NULL, 5000);
        assert_int_equal(diagnosis.n_problems, times == 3);
        assert_contains(shown, "5 s ago");
        assert_contains(shown, "last stderr: the end");
    }
    assert_contains(shown, "restarted 3 times");
    assert_contains(shown, "native code crashed");
    diagnose(json, NULL, 3600 * 1000);
    assert_int_equal(diagnosis.n_problems, 0);
}

/* Each end of a worker has its own advice. */
static void
advice_fits_the_reason(void **state)
{
    static const char *const cases[][2] = {
        {"opening the store s: No space left on device", "--state-dir"},
        {"worker 1 was killed by signal 9 (SIGKILL)", "oom"},
        {"cannot prepare the descriptors of a worker: Too many open files", "LimitNOFILE"},
        {"cannot start /usr/lib/continuo/continuo-worker in /s: No such file or directory",
         "package"},
        {"worker 1 was killed by the server: a batch took over 1 s", "responseTimeout"},
    };
    char json[1024];
    size_t i;

    (void)state;
    for (i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        snprintf(json, sizeof json, "[" MODEL("m", "1.0", "", ", \"lastError\": \"%s\"") "]",
                 cases[i][0]);
        diagnose(json, NULL, 0);
        assert_contains(shown, cases[i][1]);
    }
}

/* How long is too long depends on the model: on how long its calls take, and on how long they may
 * take. */
static void
a_worker_that_does_not_answer_is_found(void **state)
{
    static const struct {
        unsigned for_ms, rows, timeout_s;
        const char *mean_ms;
        bool stuck;
    } cases[] = {{31000, 3, 120, "12.5", true},  {9999, 1, 120, "12.5", false},
                 {31000, 0, 120, "12.5", false}, {31000, 1, 120, "15000", false},
                 {1000, 1, 2, "12.5", true},     {1000, 1, 2, "900", false},
                 {31000, 1, 120, "null", true}};
    char json[1024];

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        snprintf(json, sizeof json,
                 "[" MODEL("m", "1.0",
                           WORKER("2", "ready", "READY",
                                  ", \"restarts\": 0, \"busy\": {\"forMSec\": %u, \"rows\": %u, "
                                  "\"sequence\": \"seq_0\"}"),
                           ", \"responseTimeout\": %u, \"meanCallMSec\": %s") "]",
                 cases[i].for_ms, cases[i].rows, cases[i].timeout_s, cases[i].mean_ms);
        diagnose(json, NULL, 0);
        if (diagnosis.n_problems != cases[i].stuck)
            fail_msg("case %zu: %s", i, shown);
        if (i > 0)
            continue;
        assert_contains(shown, "PROBLEM  model m 1.0: worker 2 (pid 77) has not answered for 31.0 "
                               "s; it has 3 steps, the first of sequence seq_0\n");
        assert_contains(shown, "(12.5 ms on average)");
        assert_contains(shown, "kill -CONT 77");
        assert_contains(shown, "responseTimeout (120 s)");
    }
}

static void
full_queues_and_many_sequences_are_found(void **state)
{
    (void)state;
    diagnose("[" MODEL("m", "1.0", READY_WORKER,
                       ", \"jobQueueStatus\": {\"remainingCapacity\": 0, \"pendingRequests\": 10}, "
                       "\"liveSequences\": 95, \"maxNumSequence\": 100") "]",
             NULL, 0);
    assert_contains(shown, "the queue is full, 10 of 10 jobs wait");
    assert_contains(shown, "95 of 100 sequences are open");
    assert_contains(shown, "this model's workers do not follow the load");
    diagnose(
        "[" MODEL("m", "1.0", READY_WORKER,
                  ", \"jobQueueStatus\": {\"remainingCapacity\": 2, \"pendingRequests\": 8}") "]",
        NULL, 0);
    assert_contains(shown, "nearly full, 8 of 10");
    diagnose("[" MODEL("m", "1.0", READY_WORKER,
                       ", \"maxWorkers\": 1, \"scaling\": {\"automatic\": true}, "
                       "\"jobQueueStatus\": {\"remainingCapacity\": 0, "
                       "\"pendingRequests\": 10}") "]",
             NULL, 0);
    assert_contains(shown, "raise maxWorkers (now 1, and all of them run)");
}

/* The share of failed requests counts, and not their number: a busy server may fail once. */
static void
metrics_tell_of_refusals_failures_and_slow_loops(void **state)
{
    (void)state;
    diagnose("[" MODEL("m", "1.0", READY_WORKER, "") "]",
             "continuo_recent_seconds 300\n"
             "continuo_recent_jobs 100\ncontinuo_recent_jobs_refused 10\n"
             "continuo_recent_http_requests 100\ncontinuo_recent_http_5xx 3\n"
             "continuo_recent_loop_turns 1000\ncontinuo_recent_loop_slow_turns 200\n",
             0);
    assert_int_equal(diagnosis.n_problems, 3);
    assert_contains(shown, "10 of 100 steps were refused in the last 300 s");
    assert_contains(shown, "3 of 100 requests failed with a 5xx status in the last 300 s");
    assert_contains(shown, "200 of 1000 turns");
    diagnose("[" MODEL("m", "1.0", READY_WORKER, "") "]",
             "continuo_recent_seconds 300\n"
             "continuo_recent_jobs 9000\ncontinuo_recent_jobs_refused 1\n"
             "continuo_recent_http_requests 9000\ncontinuo_recent_http_5xx 1\n"
             "continuo_recent_loop_turns 90\ncontinuo_recent_loop_slow_turns 50\n",
             0);
    assert_int_equal(diagnosis.n_problems, 0);
    /* What happened long ago is not reported as a problem. */
    diagnose("[" MODEL("m", "1.0", READY_WORKER, "") "]",
             "continuo_jobs_total 100\ncontinuo_jobs_refused_total 90\n"
             "continuo_http_requests_total 100\ncontinuo_http_5xx_total 90\n"
             "continuo_recent_seconds 300\ncontinuo_recent_jobs 1\n"
             "continuo_recent_http_requests 1\n",
             0);
    assert_int_equal(diagnosis.n_problems, 0);
}

/* "Not running" and "wrong address" are different mistakes. */
static void
a_silent_server_and_a_wrong_address_are_told_apart(void **state)
{
    struct cn_error err = {.code = CN_E_UNAVAILABLE, .message = "refused"};
    struct cn_buf out;

    (void)state;
    cn_ctl_diagnosis_init(&diagnosis);
    cn_ctl_diagnose_silence(&diagnosis, "http://h:1", &err);
    assert_contains(diagnosis.findings[0].advice,
                    "check with `pgrep -a continuo` whether it is running");
    err.code = CN_E_NOT_FOUND;
    cn_ctl_diagnose_silence(&diagnosis, "http://h:1", &err);
    assert_contains(diagnosis.findings[1].advice, "--server URL");
    cn_buf_init(&out, 0);
    cn_ctl_diagnosis_json(&diagnosis, "http://h:1", &out);
    shown = cn_buf_take(&out, NULL);
    assert_contains(shown, "\"ok\": false");
    assert_contains(shown, "\"problems\": 2");
}

/* With a thousand broken models the list is cut, and the count has all of them. */
static void
findings_are_bounded(void **state)
{
    struct cn_error err = {.code = CN_E_UNAVAILABLE};
    unsigned i;

    (void)state;
    cn_ctl_diagnosis_init(&diagnosis);
    for (i = 0; i < CN_CTL_FINDINGS_MAX + 5; i++)
        cn_ctl_diagnose_silence(&diagnosis, "x", &err);
    assert_int_equal(diagnosis.n_findings, CN_CTL_FINDINGS_MAX);
    assert_int_equal(diagnosis.n_problems, CN_CTL_FINDINGS_MAX + 5);
}

/* The doctor warns before new clients find no room. A server that does not tell its bound is not
 * judged. */
static void
many_connections_are_found(void **state)
{
    (void)state;
    diagnose("[" MODEL("m", "1.0", READY_WORKER, "") "]",
             "continuo_http_connections 80\ncontinuo_http_connections_max 100\n", 0);
    assert_int_equal(diagnosis.n_problems, 1);
    assert_contains(shown, "80 of 100 HTTP connections are open");
    diagnose("[" MODEL("m", "1.0", READY_WORKER, "") "]",
             "continuo_http_connections 79\ncontinuo_http_connections_max 100\n", 0);
    assert_int_equal(diagnosis.n_problems, 0);
    diagnose("[" MODEL("m", "1.0", READY_WORKER, "") "]", "continuo_http_connections 80\n", 0);
    assert_int_equal(diagnosis.n_problems, 0);
}

/* A certificate that ends soon is a note, and one that has ended is a problem. */
static void
the_end_of_a_certificate_is_found(void **state)
{
    static const struct {
        long long left_s;
        unsigned findings, problems;
        const char *words;
    } cases[] = {
        {-1, 1, 1, "PROBLEM  the https certificate has expired"},
        {0, 1, 1, "has expired"},
        {1, 1, 0, "the https certificate expires within a day"},
        {86400, 1, 0, "expires in 1 day\n"},
        {3 * 86400 + 7, 1, 0, "expires in 3 days\n"},
        {14 * 86400 - 1, 1, 0, "expires in 13 days\n"},
        {14 * 86400, 0, 0, "nothing wrong"},
    };
    char metrics[100];

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        snprintf(metrics, sizeof(metrics),
                 "continuo_certificate_not_after_timestamp_seconds %lld\n",
                 (long long)(STARTED_MS / 1000) + cases[i].left_s);
        diagnose("[" MODEL("m", "1.0", READY_WORKER, "") "]", metrics, 0);
        assert_int_equal(diagnosis.n_findings, cases[i].findings);
        assert_int_equal(diagnosis.n_problems, cases[i].problems);
        assert_contains(shown, cases[i].words);
    }
    diagnose("[" MODEL("m", "1.0", READY_WORKER, "") "]",
             "continuo_certificate_not_after_timestamp_seconds 0\n", 0);
    assert_int_equal(diagnosis.n_findings, 0);
}

#define CASE(test) cmocka_unit_test_teardown(test, end_case)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(nothing_wrong_is_said_in_a_line),
        CASE(lost_headers_are_explained),
        CASE(a_model_that_cannot_load_is_explained),
        CASE(loading_and_scaled_to_nothing_are_told_apart),
        CASE(a_runtimes_warning_is_told_once),
        CASE(frequent_restarts_are_a_problem),
        CASE(advice_fits_the_reason),
        CASE(a_worker_that_does_not_answer_is_found),
        CASE(full_queues_and_many_sequences_are_found),
        CASE(metrics_tell_of_refusals_failures_and_slow_loops),
        CASE(many_connections_are_found),
        CASE(the_end_of_a_certificate_is_found),
        CASE(a_silent_server_and_a_wrong_address_are_told_apart),
        CASE(findings_are_bounded),
    };
    return cmocka_run_group_tests_name("ctl.doctor", tests, NULL, NULL);
}
