/* management/management_test.c - tests management.c and lifecycle.c on one loop: scaling,
 * unregistering, draining, starting. */
#include <errno.h>

#include "management/management_priv.h"
#include "management/models/registry.h"
#include "management/pool/worker_pool.h"
#include "management/test_support.h"

/* --- scale, unregister, drain */

/* Synchronous scaling answers when the workers are there. Without workers, requests are refused
 * with advice. */
static void
scaling_goes_up_down_and_to_none(void **state)
{
    json_t *whole;

    (void)state;
    make_model("m", "1.0", "echo", NULL);
    start();
    json_decref(ask("POST /models?url=m-1.0", 200));
    expect("PUT /models/m?min_worker=3&synchronous=true", 200, "Workers scaled to 3 for model: m");
    assert_int_equal(json_array_size(json_object_get(describe("m", &whole), "workers")), 3);
    json_decref(whole);
    expect("PUT /models/m/1.0?min_worker=1&max_worker=2&synchronous=true", 200,
           "Workers scaled to 1 for model: m, version: 1.0");
    assert_int_equal(json_array_size(json_object_get(describe("m", &whole), "workers")), 2);
    json_decref(whole);
    expect("PUT /models/m?min_worker=0&synchronous=true", 200, "Workers scaled to 0 for model: m");
    run("m", "x");
    assert_int_equal(step.error, CN_E_NO_WORKER);
    assert_non_null(strstr(step.text, "Model \"m\" has no worker to serve inference request"));
    assert_true(cn_management_healthy(management));
    expect("PUT /models/m?min_worker=1", 202, "Processing worker updates...");
    wait_for_worker("m", "ready", 0);
    assert_string_equal(run("m", "x"), "x");
}

/* Every request that is under way when its model is removed gets an answer. */
static void
unregister_answers_everybody(void **state)
{
    static struct step steps[8];
    static struct api api;
    unsigned i;

    (void)state;
    make_model("m", "1.0", "echo", "batchSize: 1\nresponseTimeout: 2\n");
    start();
    json_decref(ask("POST /models?url=m-1.0", 200));
    step_begin(&steps[0], "m", "hang");
    for (i = 1; i < 8; i++)
        step_begin(&steps[i], "m", "x");
    cn_loop_turn(loop, 5);
    api_begin(&api, "DELETE /models/m", NULL);
    for (i = 0; i < 20; i++)
        cn_loop_turn(loop, 2);
    cn_clock_advance(2001);
    api_end(&api);
    assert_int_equal(api.status, 200);
    for (i = 0; i < 8; i++) {
        assert_true(steps[i].done);
        assert_true(steps[i].error != 0 || i > 0);
    }
    assert_non_null(strstr(steps[7].text, "model m version 1.0 was unregistered"));
}

/* When the server ends, its workers end in order, and their store stays. */
static void
a_drain_ends_all_workers_and_keeps_the_stores(void **state)
{
    char path[300];
    json_t *whole;
    long long pid;

    (void)state;
    make_model("m", "1.0", "echo", NULL);
    start();
    json_decref(ask("POST /models?url=m-1.0", 200));
    pid = number_of(describe_worker("m", &whole), "pid");
    json_decref(whole);
    stop();
    assert_int_equal(kill((pid_t)pid, 0), -1);
    assert_int_equal(errno, ESRCH);
    snprintf(path, sizeof path, "%s/state/models/m/1.0", dir);
    assert_int_equal(access(path, F_OK), 0);
}

/* A worker that hangs must not keep the server from ending. */
static void
a_drain_is_bounded(void **state)
{
    static struct step hanging;
    bool done = false;
    int i;

    (void)state;
    make_model("m", "1.0", "echo", NULL);
    start();
    json_decref(ask("POST /models?url=m-1.0", 200));
    step_begin(&hanging, "m", "hang");
    while (count_of("m", CN_M_JOBS) == 0)
        cn_loop_turn(loop, 5);
    cn_management_drain(management, on_drained, &done);
    run("m", "x");
    assert_int_equal(step.error, CN_E_DRAINING);
    for (i = 0; i < 20; i++)
        cn_loop_turn(loop, 2);
    assert_false(done);
    cn_clock_advance(30001);
    turn_until(&done, "the drain");
    turn_until(&hanging.done, "the answer");
    assert_int_not_equal(hanging.error, 0);
    cn_management_destroy(management);
    management = NULL;
}

/* --- the command line's models */

/* One broken model does not keep the others from serving. */
static void
models_of_the_command_line_start_and_failures_are_counted(void **state)
{
    json_t *whole, *model;

    (void)state;
    make_model("a", "1.0", "echo", NULL);
    make_model("b", "1.0", "die-on-load", NULL);
    model_args[0] = (struct cn_model_arg){(char *)"renamed", (char *)"a-1.0"};
    model_args[1] = (struct cn_model_arg){NULL, (char *)"gone.mar"};
    model_args[2] = (struct cn_model_arg){NULL, (char *)"b-1.0"};
    config.n_models = 3;
    start();
    assert_int_equal(start_failed, 2);
    assert_string_equal(run("renamed", "x"), "x");
    model = describe("b", &whole); /* the model stays registered, and loading is tried again */
    assert_true(json_is_true(json_object_get(model, "loadedAtStartup")));
    json_decref(whole);
    config.n_models = 0;
}

/* The ports are open before the models are loaded. A client of a restarted server is told to try
 * again, and not that its model does not exist. */
static void
a_model_that_is_not_up_yet_is_loading_not_unknown(void **state)
{
    struct cn_error err = {0};
    bool done = false, ready = false;

    (void)state;
    make_model("m", "1.0", "echo", NULL);
    model_args[0] = (struct cn_model_arg){NULL, (char *)"m-1.0"};
    config.n_models = 1;
    if (cn_management_create(&config, &loop, 1, &management, &err))
        fail_msg("%s", err.message);
    cn_loop_turn(loop, 0);
    run("m", "x");
    assert_int_equal(step.error, CN_E_MODEL_LOADING);
    assert_null(cn_management_find_version(management, "other", NULL, NULL));
    cn_management_start(management, on_started, &done);
    run("m", "x");
    assert_int_equal(step.error, CN_E_MODEL_LOADING);
    assert_non_null(strstr(step.text, "Model \"m\" is not known yet"));
    assert_int_equal(cn_management_is_ready(management, CN_STR("m"), &ready, &err),
                     CN_E_MODEL_LOADING);
    turn_until(&done, "the start");
    assert_int_equal(cn_management_is_ready(management, CN_STR("m"), &ready, &err), 0);
    assert_true(ready);
    assert_int_equal(cn_management_is_ready(management, CN_STR("other"), &ready, &err),
                     CN_E_MODEL_NOT_FOUND);
    assert_string_equal(run("m", "x"), "x");
    run("other", "x");
    assert_int_equal(step.error, CN_E_MODEL_NOT_FOUND);
    config.n_models = 0;
}

/* `--models all` loads every archive of the store. */
static void
all_means_all_of_the_store(void **state)
{
    (void)state;
    make_model("a", "1.0", "echo", NULL);
    make_model("b", "1.0", "echo", NULL);
    model_args[0] = (struct cn_model_arg){NULL, (char *)"ALL"};
    config.n_models = 1;
    start();
    assert_int_equal(start_failed, 0);
    assert_string_equal(run("a", "x"), "x");
    assert_string_equal(run("b", "x"), "x");
    config.n_models = 0;
}

/* A wrong setting only causes a message at the start. */
static void
wrong_settings_are_told_at_the_start(void **state)
{
    struct cn_management *made = NULL;
    struct cn_error err;

    (void)state;
    config.model_store = (char *)"/nowhere";
    assert_int_equal(cn_management_create(&config, &loop, 1, &made, &err), CN_E_CONFIG);
    assert_non_null(strstr(err.message, "model store /nowhere"));
    config.model_store = NULL;
    config.worker_program = (char *)"/nowhere/worker";
    assert_int_equal(cn_management_create(&config, &loop, 1, &made, &err), CN_E_CONFIG);
    assert_non_null(strstr(err.message, "/nowhere/worker"));
}

/* --- zygotes */

static bool have_facts;

static void
on_facts(struct cn_worker_pool_facts *facts)
{
    (void)facts;
    have_facts = true;
}

/* Registers a model that is one file and has a zygote, and returns the zygote's id. */
static uint32_t
zygote_of(const char *name)
{
    static struct cn_worker_pool_facts facts;
    struct cn_version *version;
    char path[200];
    uint32_t id;

    snprintf(path, sizeof path, "%s/store/%s", dir, name);
    assert_int_equal(mkdir(path, 0700), 0);
    test_dir_write(path, "model.pt", "echo\n");
    snprintf(path, sizeof path, "POST /models?url=%s&synchronous=false", name);
    json_decref(ask(path, 202));
    version = cn_registry_find(management->registry, name, NULL, NULL);
    assert_non_null(version);
    facts = (struct cn_worker_pool_facts){.pool = version->pool, .on_done = on_facts};
    have_facts = false;
    cn_worker_pool_facts(version->pool, &facts);
    turn_until(&have_facts, "the facts");
    assert_true(facts.has_zygote);
    id = facts.zygote.id;
    cn_worker_pool_facts_fini(&facts);
    return id;
}

/* A process's control group is called by its id, and the group is killed when the process ends. Two
 * zygotes with one id would share a group. */
static void
zygotes_have_ids_of_their_own(void **state)
{
    uint32_t first, second;

    (void)state;
    start();
    first = zygote_of("a");
    second = zygote_of("b");
    assert_int_not_equal(first, second);
}

int
main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        CASE(scaling_goes_up_down_and_to_none),
        CASE(unregister_answers_everybody),
        CASE(a_drain_ends_all_workers_and_keeps_the_stores),
        CASE(a_drain_is_bounded),
        CASE(models_of_the_command_line_start_and_failures_are_counted),
        CASE(a_model_that_is_not_up_yet_is_loading_not_unknown),
        CASE(all_means_all_of_the_store),
        CASE(wrong_settings_are_told_at_the_start),
        CASE(zygotes_have_ids_of_their_own),
    };

    return RUN_TESTS("management.management", tests, argc, argv);
}
