/* management/api/api_test.c - tests the routes, parameters and answers of the management API
 * (api.c, describe.c). */
#include "management/test_support.h"

/* --- register, describe, list */

/* The usual way: register by file name, predict, describe, unregister. */
static void
a_model_is_registered_used_described_and_unregistered(void **state)
{
    json_t *whole, *model, *one, *walls;
    char path[300];

    (void)state;
    make_model("m", "1.0", "echo", NULL);
    start();
    expect("POST /models?url=m-1.0", 200,
           "Model \"m\" Version: 1.0 registered with 1 initial workers");
    assert_string_equal(run("m", "hello"), "hello");
    model = describe("m", &whole);
    assert_string_equal(json_string_value(json_object_get(model, "modelName")), "m");
    assert_string_equal(json_string_value(json_object_get(model, "modelUrl")), "m-1.0");
    assert_string_equal(json_string_value(json_object_get(model, "runtime")), "lua");
    assert_int_equal(number_of(model, "steps"), 1);
    one = json_array_get(json_object_get(model, "workers"), 0);
    assert_string_equal(json_string_value(json_object_get(one, "status")), "READY");
    assert_string_equal(json_string_value(json_object_get(one, "id")), "9000");
    assert_string_equal(json_string_value(json_object_get(one, "gpuUsage")), "N/A");
    assert_int_equal(number_of(one, "memoryUsage"), 1234567);
    walls = json_object_get(one, "walls");
    assert_int_equal(json_array_size(walls), 2);
    assert_string_equal(json_string_value(json_array_get(walls, 1)), "no_new_privs");
    assert_string_equal(json_string_value(json_object_get(one, "wallsLacking")),
                        "landlock: a fake has none");
    assert_true(json_is_null(json_object_get(one, "lastExit")));
    json_decref(whole);
    snprintf(path, sizeof path, "%s/state/models/m/1.0", dir);
    assert_int_equal(access(path, F_OK), 0);
    expect("DELETE /models/m", 200, "Model \"m\" unregistered");
    assert_int_equal(access(path, F_OK), -1);
    assert_string_equal(run("m", "hello"), "Model not found: m");
    expect("GET /models/m", 404, "Model not found: m");
}

/* A description has all of TorchServe's members in its order, because clients parse them and people
 * read them. */
static void
describe_has_torchserves_members_in_order(void **state)
{
    static const char *const members[] = {"modelName",
                                          "modelVersion",
                                          "modelUrl",
                                          "runtime",
                                          "minWorkers",
                                          "maxWorkers",
                                          "batchSize",
                                          "maxBatchDelay",
                                          "responseTimeout",
                                          "startupTimeout",
                                          "maxRetryTimeoutInSec",
                                          "clientTimeoutInMills",
                                          "parallelType",
                                          "parallelLevel",
                                          "deviceType",
                                          "continuousBatching",
                                          "useJobTicket",
                                          "useVenv",
                                          "stateful",
                                          "sequenceMaxIdleMSec",
                                          "sequenceTimeoutMSec",
                                          "maxNumSequence",
                                          "maxSequenceJobQueueSize",
                                          "loadedAtStartup",
                                          "workers",
                                          "jobQueueStatus"};
    const char *key;
    json_t *whole, *model, *value;
    size_t i = 0;

    (void)state;
    make_model("m", "1.0", "echo", "minWorkers: 0\nbatchSize: 7\nsequenceBatching: true\n");
    start();
    expect(
        "POST /models?url=m-1.0", 200,
        "Model \"m\" Version: 1.0 registered with 0 initial workers. Use scale workers API to add "
        "workers for the model.");
    model = describe("m", &whole);
    json_object_foreach(model, key, value)
    {
        if (i < sizeof members / sizeof *members)
            assert_string_equal(key, members[i]);
        i++;
    }
    assert_true(i > sizeof members / sizeof *members);
    assert_int_equal(number_of(model, "batchSize"), 7);
    assert_true(json_is_true(json_object_get(model, "stateful")));
    assert_int_equal(number_of(json_object_get(model, "jobQueueStatus"), "remainingCapacity"),
                     10000);
    json_decref(whole);
}

/* The worker's name for its device is shown safely, even if a handler has written over the worker's
 * memory. */
static void
describe_shows_any_device(void **state)
{
    static const struct {
        const char *script, *shown, *ids;
    } cases[] = {
        {"device cuda:128", "cuda:128", "[128]"},
        {"device cuda:99999999999999999999", "cuda:9999999999", "[]"},
        {"device cuda:-1", "cuda:-1", "[]"},
        {"device cuda:x", "cuda:x", "[]"},
        {"device \xff", "?", NULL},
    };

    (void)state;
    start();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char name[8], line[100], *ids;
        json_t *whole, *shown;

        snprintf(name, sizeof name, "m%zu", i);
        make_model(name, "1.0", cases[i].script, NULL);
        snprintf(line, sizeof line, "POST /models?url=%s-1.0&initial_workers=1&synchronous=true",
                 name);
        json_decref(ask(line, 200));
        shown = describe_worker(name, &whole);
        assert_string_equal(json_string_value(json_object_get(shown, "device")), cases[i].shown);
        ids = json_dumps(json_object_get(json_array_get(whole, 0), "deviceIds"), JSON_COMPACT);
        if (cases[i].ids)
            assert_string_equal(ids, cases[i].ids);
        else
            assert_null(ids);
        free(ids);
        json_decref(whole);
    }
}

/* A value in the call overrides the model's YAML, which overrides the default. */
static void
the_register_call_beats_the_yaml(void **state)
{
    json_t *whole, *model;

    (void)state;
    make_model("m", "1.0", "echo", "batchSize: 7\nmaxBatchDelay: 9\nresponseTimeout: 11\n");
    start();
    config.durability = CN_DURABILITY_NONE;
    json_decref(ask("POST /models?url=m-1.0&model_name=n&batch_size=3&response_timeout=5&"
                    "initial_workers=2",
                    200));
    model = describe("n", &whole);
    assert_int_equal(number_of(model, "batchSize"), 3);
    assert_int_equal(number_of(model, "maxBatchDelay"), 9);
    assert_int_equal(number_of(model, "responseTimeout"), 5);
    assert_int_equal(number_of(model, "startupTimeout"), 120);
    assert_int_equal(number_of(model, "minWorkers"), 2);
    assert_int_equal(number_of(model, "maxWorkers"), 2);
    assert_string_equal(json_string_value(json_object_get(model, "durability")), "none");
    json_decref(whole);
}

/* Parameters may come in a JSON body, with numbers as numbers or as text. */
static void
a_json_body_registers_too(void **state)
{
    static struct api api;

    (void)state;
    make_model("m", "1.0", "echo", NULL);
    start();
    api_begin(&api, "POST /models",
              "{\"url\": \"m-1.0\", \"model_name\": \"k\", \"batch_size\": 2, \"initial_workers\": "
              "\"1\", \"synchronous\": true}");
    api_end(&api);
    assert_int_equal(api.status, 200);
    api_begin(&api, "POST /models", "{\"url\": ");
    api_end(&api);
    assert_int_equal(api.status, 400);
    assert_non_null(strstr(api.json, "the body is not valid JSON"));
    api_begin(&api, "POST /models", "[1]");
    api_end(&api);
    assert_int_equal(api.status, 400);
}

/* Each mistake gets TorchServe's status, type and message. */
static void
wrong_calls_are_answered_as_torchserve_does(void **state)
{
    json_t *value;

    (void)state;
    make_model("m", "1.0", "echo", NULL);
    make_model("py", "1.0", "echo", NULL);
    start();
    expect("POST /models", 400, "Parameter url is required.");
    expect("POST /models?url=", 404, "empty url");
    expect("POST /models?url=x.mar", 404, "Model not found at: x.mar");
    expect("POST /models?url=../x.mar", 404, "Relative path is not allowed in url: ../x.mar");
    expect("POST /models?url=m-1.0&batch_size=many", 400,
           "batch_size is \"many\"; it must be a number from 0 to 2147483647");
    expect("POST /models?url=m-1.0&handler=gone.lua", 400,
           "model m: the handler gone.lua is not in the archive");
    expect("POST /models?url=m-1.0&handler=handler.py&runtime=ruby", 400,
           "Invalid RuntimeType value: ruby (this server runs lua, c, torch, onnx and python)");
    json_decref(ask("POST /models?url=m-1.0", 200));
    expect("POST /models?url=m-1.0", 409, "Model version 1.0 is already registered for model m");
    expect("GET /models/nobody", 404, "Model not found: nobody");
    expect("GET /models/m/7", 404, "Model version: 7 does not exist for model: m");
    expect("PUT /models/m/7/set-default", 404, "Model version 7 does not exist for model m");
    expect("PUT /models/m?min_worker=3&max_worker=2", 400,
           "max_worker cannot be less than min_worker.");
    value = ask("PATCH /models", 405);
    assert_string_equal(json_string_value(json_object_get(value, "type")),
                        "MethodNotAllowedException");
    json_decref(value);
    value = ask("GET /nowhere", 404);
    assert_string_equal(json_string_value(json_object_get(value, "type")),
                        "ResourceNotFoundException");
    json_decref(value);
}

/* The list is sorted by name and comes in pages. There is a token even if the page ends exactly at
 * the end. */
static void
the_list_comes_sorted_in_pages(void **state)
{
    json_t *page;

    (void)state;
    make_model("b", "1.0", "echo", "minWorkers: 0\n");
    make_model("a", "1.0", "echo", "minWorkers: 0\n");
    start();
    json_decref(ask("POST /models?url=b-1.0", 200));
    json_decref(ask("POST /models?url=a-1.0", 200));
    page = ask("GET /models?limit=1", 200);
    assert_string_equal(json_string_value(json_object_get(page, "nextPageToken")), "1");
    assert_string_equal(json_string_value(json_object_get(
                            json_array_get(json_object_get(page, "models"), 0), "modelName")),
                        "a");
    json_decref(page);
    page = ask("GET /models?limit=2&next_page_token=2", 200);
    assert_null(json_object_get(page, "nextPageToken"));
    assert_int_equal(json_array_size(json_object_get(page, "models")), 0);
    json_decref(page);
}

/* Versions exist side by side. The first is the default until another is chosen, and can only be
 * removed last. */
static void
versions_live_side_by_side(void **state)
{
    json_t *all;

    (void)state;
    make_model("m", "1.0", "echo", "minWorkers: 0\n");
    make_model("m", "2.0", "echo", NULL);
    start();
    json_decref(ask("POST /models?url=m-1.0", 200));
    json_decref(ask("POST /models?url=m-2.0", 200));
    all = ask("GET /models/m/all", 200);
    assert_int_equal(json_array_size(all), 2);
    json_decref(all);
    expect("DELETE /models/m", 403, "Cannot remove default version for model m");
    run("m", "x");
    assert_int_equal(step.error, CN_E_NO_WORKER);
    expect("PUT /models/m/2.0/set-default", 200,
           "Default version successfully updated for model \"m\" to \"2.0\"");
    assert_string_equal(run("m", "x"), "x");
    expect("DELETE /models/m/1.0", 200, "Model \"m\" unregistered");
    expect("DELETE /models/m/2.0", 200, "Model \"m\" unregistered");
}

/* customized=true asks the handler, also that of a stateful model, and opens no sequence. The fake
 * handler's answer is not a JSON object. */
static void
a_description_can_ask_the_handler(void **state)
{
    json_t *all, *model;

    (void)state;
    make_model("m", "1.0", "echo", "sequenceBatching: true\n");
    make_model("n", "1.0", "echo", "minWorkers: 0\n");
    start();
    json_decref(ask("POST /models?url=m-1.0", 200));
    json_decref(ask("POST /models?url=n-1.0", 200));
    all = ask("GET /models/m?customized=true", 200);
    model = json_array_get(all, 0);
    assert_true(json_is_object(json_object_get(model, "customizedMetadata")));
    assert_int_equal(number_of(json_object_get(model, "sequences"), "opened"), 0);
    json_decref(all);
    all = ask("GET /models/m", 200);
    assert_null(json_object_get(json_array_get(all, 0), "customizedMetadata"));
    assert_int_equal(number_of(json_array_get(all, 0), "liveSequences"), 0);
    json_decref(all);
    expect("GET /models/n?customized=true", 503,
           "Model \"n\" has no worker to serve describe request. Please use scale workers API to "
           "add workers.");
}

/* Operators may forbid calls that change the set of models. Other calls still work. */
static void
the_model_api_can_be_off(void **state)
{
    static const char text[] = "Requested method is not allowed, please refer to API document.";

    (void)state;
    make_model("m", "1.0", "echo", "minWorkers: 0\n");
    start();
    json_decref(ask("POST /models?url=m-1.0", 200));
    config.model_api = false;
    expect("POST /models?url=m-1.0", 405, text);
    expect("DELETE /models/m", 405, text);
    json_decref(ask("PUT /models/m?min_worker=0", 202));
    json_decref(ask("GET /models/m", 200));
}

/* KServe's readiness question, and workflows, which cannot be registered. */
static void
the_other_paths_answer_as_torchserve_does(void **state)
{
    json_t *value;

    (void)state;
    make_model("m", "1.0", "echo", NULL);
    make_model("n", "1.0", "echo", "minWorkers: 0\n");
    start();
    json_decref(ask("POST /models?url=m-1.0&runtime=python", 200));
    json_decref(ask("POST /models?url=n-1.0", 200));
    value = ask("GET /v1/models/m", 200);
    assert_string_equal(json_string_value(json_object_get(value, "name")), "m");
    assert_true(json_is_true(json_object_get(value, "ready")));
    json_decref(value);
    value = ask("GET /v1/models/n", 200);
    assert_true(json_is_false(json_object_get(value, "ready")));
    json_decref(value);
    expect("GET /v1/models/o", 404, "Model not found: o");
    json_decref(ask("POST /v1/models/m", 405));
    json_decref(ask("GET /v1/other", 404));
    value = ask("GET /workflows", 200);
    assert_int_equal(json_array_size(json_object_get(value, "workflows")), 0);
    json_decref(value);
    expect("POST /workflows?url=w.war", 400, "Registering new workflows is disabled.");
    expect("GET /workflows/w", 404, "Workflow not found: w");
    expect("DELETE /workflows/w", 404, "Workflow not found: w");
    json_decref(ask("PUT /workflows/w", 405));
}

int
main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        CASE(a_model_is_registered_used_described_and_unregistered),
        CASE(describe_has_torchserves_members_in_order),
        CASE(describe_shows_any_device),
        CASE(the_register_call_beats_the_yaml),
        CASE(a_json_body_registers_too),
        CASE(wrong_calls_are_answered_as_torchserve_does),
        CASE(the_list_comes_sorted_in_pages),
        CASE(versions_live_side_by_side),
        CASE(a_description_can_ask_the_handler),
        CASE(the_model_api_can_be_off),
        CASE(the_other_paths_answer_as_torchserve_does),
    };

    return RUN_TESTS("management.api", tests, argc, argv);
}
