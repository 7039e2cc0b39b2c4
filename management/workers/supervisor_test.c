/* management/workers/supervisor_test.c - tests how workers load, die and are restarted. */
#include "management/test_support.h"

/* --- loading that fails */

/* A synchronous register call that fails gives the reason and leaves nothing behind, except stored
 * sequences. */
static void
a_failed_register_says_why_and_is_undone(void **state)
{
    json_t *value;
    const char *message;

    (void)state;
    make_model("m", "1.0", "refuse", NULL);
    make_model("d", "1.0", "die-on-load", NULL);
    start();
    value = ask("POST /models?url=m-1.0", 500);
    message = json_string_value(json_object_get(value, "message"));
    assert_non_null(strstr(message, "Failed to start workers for model m version: 1.0: worker 1"));
    assert_non_null(strstr(message, "could not load the model: handler.lua:3: nothing to see"));
    json_decref(value);
    expect("GET /models/m", 404, "Model not found: m");
    value = ask("POST /models?url=d-1.0", 500);
    message = json_string_value(json_object_get(value, "message"));
    assert_non_null(strstr(message, "exited with status 3: no such tensor"));
    json_decref(value);
    value = ask("GET /models", 200);
    assert_int_equal(json_array_size(json_object_get(value, "models")), 0);
    json_decref(value);
}

/* If a worker fails to load, loading is tried again at once, then after 1, 2, 4 ... s, and the
 * description shows this. Meanwhile requests are refused with the reason; they are served once it
 * has loaded. */
static void
loading_is_tried_again_ever_more_slowly(void **state)
{
    char script[200], flag[100];
    json_t *whole, *model;

    (void)state;
    snprintf(flag, sizeof flag, "%s/broken", dir);
    snprintf(script, sizeof script, "refuse-while %s", flag);
    test_dir_write(dir, "broken", "");
    make_model("m", "1.0", script, NULL);
    start();
    expect("POST /models?url=m-1.0&synchronous=false", 202, "Processing worker updates...");
    wait_for_worker("m", "backoff", 1);
    assert_false(cn_management_healthy(management));
    run("m", "x");
    assert_int_equal(step.error, CN_E_NO_WORKER);
    assert_non_null(strstr(step.text, "handler.lua:3: nothing to see"));
    model = describe("m", &whole);
    assert_non_null(
        strstr(json_string_value(json_object_get(model, "lastError")), "nothing to see"));
    json_decref(whole);
    cn_clock_advance(999);
    cn_loop_turn(loop, 5);
    wait_for_worker("m", "backoff", 1);
    cn_clock_advance(1);
    wait_for_worker("m", "backoff", 2);
    cn_clock_advance(1999);
    cn_loop_turn(loop, 5);
    wait_for_worker("m", "backoff", 2);
    unlink(flag);
    cn_clock_advance(1);
    wait_for_worker("m", "ready", 3);
    assert_string_equal(run("m", "x"), "x");
    assert_true(cn_management_healthy(management));
    model = describe("m", &whole);
    assert_true(json_is_null(json_object_get(model, "lastError")));
    json_decref(whole);
}

/* A model that hangs while it loads must not hang its registration. */
static void
a_load_that_hangs_meets_its_timeout(void **state)
{
    static struct api api;

    (void)state;
    make_model("m", "1.0", "hang-on-load", "startupTimeout: 3\n");
    start();
    api_begin(&api, "POST /models?url=m-1.0", NULL);
    while (count_of("m", CN_M_WORKER_STARTS) == 0)
        cn_loop_turn(loop, 5);
    cn_clock_advance(3001);
    api_end(&api);
    assert_int_equal(api.status, 500);
    assert_non_null(strstr(api.json, "it did not load the model within 3 s (startupTimeout)"));
}

/* --- workers that die */

/* If a worker crashes, the model stays: a new worker is started at once, and the cause is kept for
 * people to read. */
static void
a_crashed_worker_is_replaced_and_remembered(void **state)
{
    json_t *whole, *one;
    const char *words;

    (void)state;
    make_model("m", "1.0", "echo", NULL);
    start();
    json_decref(ask("POST /models?url=m-1.0", 200));
    run("m", "crash");
    assert_int_equal(step.error, CN_E_WORKER_DIED);
    assert_non_null(strstr(step.text, "of m/1.0 was killed by signal 6 (SIGABRT); last stderr: "
                                      "about to crash"));
    wait_for_worker("m", "ready", 3);
    assert_string_equal(run("m", "x"), "x");
    one = describe_worker("m", &whole);
    words = json_string_value(json_object_get(one, "lastExit"));
    assert_non_null(strstr(words, "signal 6 (SIGABRT)"));
    json_decref(whole);
}

/* The server notices a kill -9 from outside without any request, and replaces the worker by itself.
 */
static void
a_killed_worker_comes_back_by_itself(void **state)
{
    json_t *whole, *one;
    long long pid;

    (void)state;
    make_model("m", "1.0", "echo", NULL);
    start();
    json_decref(ask("POST /models?url=m-1.0", 200));
    pid = number_of(describe_worker("m", &whole), "pid");
    json_decref(whole);
    kill((pid_t)pid, SIGKILL);
    wait_for_worker("m", "ready", 1);
    one = describe_worker("m", &whole);
    assert_true(number_of(one, "pid") != pid);
    assert_string_equal(json_string_value(json_object_get(one, "id")), "9000");
    assert_non_null(
        strstr(json_string_value(json_object_get(one, "lastExit")), "signal 9 (SIGKILL)"));
    json_decref(whole);
    assert_int_equal(count_of("m", CN_M_WORKERS_READY), 1);
    assert_int_equal(count_of("m", CN_M_WORKER_DEATHS), 1);
}

/* A handler that never returns is ended after responseTimeout, whatever it does. */
static void
a_hanging_call_costs_its_worker(void **state)
{
    json_t *whole, *busy;

    (void)state;
    make_model("m", "1.0", "echo", "responseTimeout: 2\n");
    start();
    json_decref(ask("POST /models?url=m-1.0", 200));
    step_begin(&step, "m", "hang");
    while (count_of("m", CN_M_JOBS) == 0)
        cn_loop_turn(loop, 5);
    cn_loop_turn(loop, 5);
    cn_clock_advance(1500);
    busy = json_object_get(describe_worker("m", &whole), "busy");
    assert_int_equal(number_of(busy, "rows"), 1);
    assert_true(number_of(busy, "forMSec") >= 1500);
    json_decref(whole);
    cn_clock_advance(501);
    turn_until(&step.done, "the deadline");
    assert_int_equal(step.error, CN_E_HANDLER_DEADLINE);
    wait_for_worker("m", "ready", 1);
    assert_string_equal(run("m", "x"), "x");
    busy = json_object_get(describe_worker("m", &whole), "busy");
    assert_true(json_is_null(busy));
    json_decref(whole);
}

/* A worker that sends bytes which are not a frame cannot be trusted: it is replaced. */
static void
a_worker_that_sends_garbage_is_replaced(void **state)
{
    static struct api api;
    bool seen = false;
    int i;

    (void)state;
    make_model("m", "1.0", "garbage", NULL);
    start();
    api_begin(&api, "POST /models?url=m-1.0&synchronous=false", NULL);
    api_end(&api);
    for (i = 0; i < 4000 && !seen; i++) {
        cn_loop_turn(loop, 2);
        cn_clock_advance(5); /* the time between the end of the socket and kill -9 */
        seen = count_of("m", CN_M_WORKER_DEATHS) > 0;
    }
    assert_true(seen);
}

/* A worker has its socket, the state folder's lock and its output, and nothing else of ours. */
static void
a_worker_gets_only_what_it_needs(void **state)
{
    char expected[200];

    (void)state;
    setenv("CN_SECRET_TOKEN", "do not look", 1);
    setenv("CONTINUO_TEST_WORD", "hello", 1);
    make_model("m", "1.0", "echo", NULL);
    start();
    json_decref(ask("POST /models?url=m-1.0", 200));
    assert_string_equal(run("m", "fds"), "0 1 2 3 4 ");
    assert_string_equal(run("m", "env CN_SECRET_TOKEN"), "(none)");
    assert_string_equal(run("m", "env CONTINUO_TEST_WORD"), "hello");
    snprintf(expected, sizeof expected, "%s/store/m-1.0", dir);
    assert_string_equal(run("m", "cwd"), expected);
}

int
main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        CASE(a_failed_register_says_why_and_is_undone),
        CASE(loading_is_tried_again_ever_more_slowly),
        CASE(a_load_that_hangs_meets_its_timeout),
        CASE(a_crashed_worker_is_replaced_and_remembered),
        CASE(a_killed_worker_comes_back_by_itself),
        CASE(a_hanging_call_costs_its_worker),
        CASE(a_worker_that_sends_garbage_is_replaced),
        CASE(a_worker_gets_only_what_it_needs),
    };

    return RUN_TESTS("management.supervisor", tests, argc, argv);
}
