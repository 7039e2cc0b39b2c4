/* Tests of management as its callers see it: the API's answers, workers' lives, the start and the end.
 * Real processes (tests/support/fake_worker.c), frozen clock, one loop turned by the test itself. */
#include "management/management.h"

#include <errno.h>
#include <jansson.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/clock.h"
#include "core/log.h"
#include "core/mem.h"
#include "core/metrics.h"

#define PATIENCE_S 20

/* --- the rig */

static char dir[64], worker[600];
static struct cn_server_config config;
static struct cn_model_arg model_args[4];
static struct cn_loop *loop;
static struct cn_management *management;
static unsigned start_failed;

/* Turns the loop until *flag, in real time at most PATIENCE_S. */
static void
turn_until(const bool *flag, const char *what)
{
    struct timespec now;
    time_t end;

    clock_gettime(CLOCK_MONOTONIC, &now);
    end = now.tv_sec + PATIENCE_S;
    while (!*flag) {
        cn_loop_turn(loop, 5);
        clock_gettime(CLOCK_MONOTONIC, &now);
        if (now.tv_sec > end)
            fail_msg("waited too long for %s", what);
    }
}

static void
write_file(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");

    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

/* A model in a folder of the store; its handler tells the fake worker what to do. */
static void
make_model(const char *name, const char *version, const char *script, const char *yaml)
{
    char path[300], text[600];

    snprintf(path, sizeof path, "%s/store/%s-%s", dir, name, version);
    assert_int_equal(mkdir(path, 0700), 0);
    snprintf(path, sizeof path, "%s/store/%s-%s/MAR-INF", dir, name, version);
    assert_int_equal(mkdir(path, 0700), 0);
    snprintf(path, sizeof path, "%s/store/%s-%s/MAR-INF/MANIFEST.json", dir, name, version);
    snprintf(text, sizeof text,
             "{\"createdOn\": \"01/01/2026 00:00:00\", \"runtime\": \"lua\", \"model\": {"
             "\"modelName\": \"%s\", \"modelVersion\": \"%s\", \"handler\": \"handler.lua\"%s}, "
             "\"archiverVersion\": \"0.1.0\"}",
             name, version, yaml ? ", \"configFile\": \"model.yaml\"" : "");
    write_file(path, text);
    snprintf(path, sizeof path, "%s/store/%s-%s/handler.lua", dir, name, version);
    snprintf(text, sizeof text, "%s\n", script);
    write_file(path, text);
    if (yaml) {
        snprintf(path, sizeof path, "%s/store/%s-%s/model.yaml", dir, name, version);
        write_file(path, yaml);
    }
}

static void
on_started(void *ctx, unsigned failed)
{
    start_failed = failed;
    *(bool *)ctx = true;
}

static void
start(void)
{
    struct cn_error err = {0};
    bool done = false;

    if (cn_management_create(&config, &loop, 1, &management, &err))
        fail_msg("%s", err.message);
    cn_loop_turn(loop, 0);
    cn_management_start(management, on_started, &done);
    turn_until(&done, "the start");
}

static void
on_drained(void *ctx)
{
    *(bool *)ctx = true;
}

static void
stop(void)
{
    bool done = false;

    cn_management_drain(management, on_drained, &done);
    turn_until(&done, "the drain");
    cn_management_destroy(management);
    management = NULL;
}

static int
set_up(void **state)
{
    static char store[100], state_dir[100];
    ssize_t n = readlink("/proc/self/exe", worker, 500);

    (void)state;
    assert_true(n > 0);
    worker[n] = '\0';
    strcpy(strrchr(worker, '/'), "/fake_worker");
    cn_clock_freeze();
    strcpy(dir, "/tmp/cn-mgmt-XXXXXX");
    assert_non_null(mkdtemp(dir));
    snprintf(store, sizeof store, "%s/store", dir);
    snprintf(state_dir, sizeof state_dir, "%s/state", dir);
    assert_int_equal(mkdir(store, 0700), 0);
    config = (struct cn_server_config){.model_store = store,
                                       .state_dir = state_dir,
                                       .durability = CN_DURABILITY_PROCESS,
                                       .max_request_bytes = 1 << 20,
                                       .drain_timeout_ms = 30000,
                                       .worker_program = worker,
                                       .models = model_args};
    assert_int_equal(cn_loop_create(0, &loop, NULL), 0);
    return 0;
}

static int
tear_down(void **state)
{
    char command[100];

    (void)state;
    if (management)
        stop();
    cn_loop_destroy(loop);
    snprintf(command, sizeof command, "rm -rf %s", dir);
    return system(command);
}

/* --- API calls */

struct api {
    struct cn_api_request request;
    struct cn_header query[8];
    bool done;
    int status;
    char json[16384];
};

static void
on_reply(struct cn_api_request *request, int status, struct cn_str json)
{
    struct api *api = cn_container_of(request, struct api, request);

    assert_false(api->done);
    assert_true(json.len < sizeof api->json && json.ptr[json.len - 1] == '\n');
    memcpy(api->json, json.ptr, json.len);
    api->json[json.len] = '\0';
    api->status = status;
    api->done = true;
}

/* "GET /models?limit=2"; begins only. */
static void
api_begin(struct api *api, const char *line, const char *body)
{
    static char text[512];
    char *path, *query, *pair;

    snprintf(text, sizeof text, "%s", line);
    path = strchr(text, ' ');
    *path++ = '\0';
    *api = (struct api){.request = {.method = cn_str_from(cn_strdup(text)), .on_reply = on_reply}};
    query = strchr(path, '?');
    if (query)
        *query++ = '\0';
    api->request.path = cn_str_from(cn_strdup(path));
    api->request.query = api->query;
    for (pair = query ? strtok(query, "&") : NULL; pair; pair = strtok(NULL, "&")) {
        char *value = strchr(pair, '=');

        *value++ = '\0';
        api->query[api->request.n_query++] =
            (struct cn_header){cn_str_from(cn_strdup(pair)), cn_str_from(cn_strdup(value))};
    }
    if (body) {
        api->request.content_type = CN_STR("application/json; charset=utf-8");
        api->request.body = cn_str_from(body);
    }
    cn_management_handle(management, &api->request);
}

static void
api_end(struct api *api)
{
    uint32_t i;

    turn_until(&api->done, "an answer of the API");
    cn_free((char *)api->request.method.ptr);
    cn_free((char *)api->request.path.ptr);
    for (i = 0; i < api->request.n_query; i++) {
        cn_free((char *)api->query[i].name.ptr);
        cn_free((char *)api->query[i].value.ptr);
    }
}

static struct api last;

static json_t *
ask(const char *line, int status)
{
    json_t *value;

    api_begin(&last, line, NULL);
    api_end(&last);
    if (last.status != status)
        fail_msg("%s: %d %s", line, last.status, last.json);
    value = json_loads(last.json, 0, NULL);
    assert_non_null(value);
    return value;
}

static void
expect(const char *line, int status, const char *text)
{
    json_t *value = ask(line, status);
    json_t *said = json_object_get(value, status < 300 ? "status" : "message");

    assert_non_null(said);
    assert_string_equal(json_string_value(said), text);
    json_decref(value);
}

/* The first described model, to be json_decref()ed with its array: `whole`. */
static json_t *
describe(const char *name, json_t **whole)
{
    char line[200];

    snprintf(line, sizeof line, "GET /models/%s", name);
    *whole = ask(line, 200);
    return json_array_get(*whole, 0);
}

static json_t *
describe_worker(const char *name, json_t **whole)
{
    return json_array_get(json_object_get(describe(name, whole), "workers"), 0);
}

static long long
number_of(json_t *object, const char *key)
{
    json_t *value = json_object_get(object, key);

    assert_true(json_is_integer(value));
    return json_integer_value(value);
}

/* Describes until the first worker of the model is in `state` with so many restarts. */
static void
wait_for_worker(const char *name, const char *state, long long restarts)
{
    json_t *whole, *found;
    bool there = false;
    int i;

    for (i = 0; i < 5000 && !there; i++) {
        found = describe_worker(name, &whole);
        there = found && strcmp(json_string_value(json_object_get(found, "state")), state) == 0 &&
                number_of(found, "restarts") >= restarts;
        if (!there && i == 4999)
            fail_msg("no worker %s: %s", state, last.json);
        json_decref(whole);
        cn_loop_turn(loop, 2);
    }
}

/* --- jobs */

struct step {
    struct cn_job job;
    struct cn_part part;
    bool done;
    int error;
    char text[1200];
};

static void
on_answer(struct cn_job *job, struct cn_answer_box *box)
{
    struct step *step = cn_container_of(job, struct step, job);

    snprintf(step->text, sizeof step->text, "%.*s", CN_STR_ARG(box->answer.body));
    step->error = box->answer.error_code;
    step->done = box->answer.flags & CN_ANSWER_FINAL;
    cn_answer_box_free(box);
}

static const struct cn_job_ops job_ops = {.on_answer = on_answer};

static void
step_begin(struct step *step, const char *model, const char *body)
{
    struct cn_error err = {0};
    struct cn_model_queue *queue;

    memset(step, 0, sizeof *step);
    step->part = (struct cn_part){CN_STR("body"), CN_STR(""), cn_str_from(body)};
    step->job.ops = &job_ops;
    step->job.origin = loop;
    step->job.deadline_ms = CN_NEVER;
    step->job.row = (struct cn_row){.n_parts = 1, .parts = &step->part, .request_id = CN_STR("r")};
    queue = cn_management_find(management, cn_str_from(model), CN_STR(""), &err);
    if (!queue) {
        step->done = true;
        step->error = err.code;
        snprintf(step->text, sizeof step->text, "%s", err.message);
        return;
    }
    cn_model_queue_submit(queue, &step->job);
}

static struct step step;

static const char *
run(const char *model, const char *body)
{
    step_begin(&step, model, body);
    turn_until(&step.done, "an answer");
    return step.text;
}

/* --- register, describe, list */

/* The main way: register by file name, predict, look, unregister. */
static void
a_model_is_registered_used_described_and_unregistered(void **state)
{
    json_t *whole, *model, *one;
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
    assert_true(json_is_null(json_object_get(one, "lastExit")));
    json_decref(whole);
    snprintf(path, sizeof path, "%s/state/models/m/1.0", dir);
    assert_int_equal(access(path, F_OK), 0);
    expect("DELETE /models/m", 200, "Model \"m\" unregistered");
    assert_int_equal(access(path, F_OK), -1);
    assert_string_equal(run("m", "hello"), "Model not found: m");
    expect("GET /models/m", 404, "Model not found: m");
}

/* The whole of TorchServe's members, in its order: clients parse them, people read them. */
static void
describe_has_torchserves_members_in_order(void **state)
{
    static const char *const members[] = {
        "modelName", "modelVersion", "modelUrl", "runtime", "minWorkers", "maxWorkers", "batchSize",
        "maxBatchDelay", "responseTimeout", "startupTimeout", "maxRetryTimeoutInSec",
        "clientTimeoutInMills", "parallelType", "parallelLevel", "deviceType", "continuousBatching",
        "useJobTicket", "useVenv", "stateful", "sequenceMaxIdleMSec", "sequenceTimeoutMSec",
        "maxNumSequence", "maxSequenceJobQueueSize", "loadedAtStartup", "workers", "jobQueueStatus"};
    const char *key;
    json_t *whole, *model, *value;
    size_t i = 0;

    (void)state;
    make_model("m", "1.0", "echo", "minWorkers: 0\nbatchSize: 7\nsequenceBatching: true\n");
    start();
    expect("POST /models?url=m-1.0", 200,
           "Model \"m\" Version: 1.0 registered with 0 initial workers. Use scale workers API to add "
           "workers for the model.");
    model = describe("m", &whole);
    json_object_foreach(model, key, value) {
        if (i < sizeof members / sizeof *members)
            assert_string_equal(key, members[i]);
        i++;
    }
    assert_true(i > sizeof members / sizeof *members);
    assert_int_equal(number_of(model, "batchSize"), 7);
    assert_true(json_is_true(json_object_get(model, "stateful")));
    assert_int_equal(number_of(json_object_get(model, "jobQueueStatus"), "remainingCapacity"), 10000);
    json_decref(whole);
}

/* The call's own values beat the model's YAML, which beats the defaults. */
static void
the_register_call_beats_the_yaml(void **state)
{
    json_t *whole, *model;

    (void)state;
    make_model("m", "1.0", "echo", "batchSize: 7\nmaxBatchDelay: 9\nresponseTimeout: 11\n");
    start();
    config.durability = CN_DURABILITY_NONE;
    json_decref(ask("POST /models?url=m-1.0&model_name=n&batch_size=3&response_timeout=5&"
                    "initial_workers=2", 200));
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

/* As a JSON body, with numbers as numbers or as text. */
static void
a_json_body_registers_too(void **state)
{
    struct api api;

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
    assert_non_null(strstr(api.json, "the body is no JSON"));
    api_begin(&api, "POST /models", "[1]");
    api_end(&api);
    assert_int_equal(api.status, 400);
}

/* Each mistake gets TorchServe's status, type and words. */
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
    expect("POST /models?url=m-1.0&handler=handler.py&runtime=python", 400,
           "Invalid RuntimeType value: python (this server runs lua and c)");
    json_decref(ask("POST /models?url=m-1.0", 200));
    expect("POST /models?url=m-1.0", 409, "Model version 1.0 is already registered for model m");
    expect("GET /models/nobody", 404, "Model not found: nobody");
    expect("GET /models/m/7", 404, "Model version: 7 does not exist for model: m");
    expect("PUT /models/m/7/set-default", 404, "Model version 7 does not exist for model m");
    expect("PUT /models/m?min_worker=3&max_worker=2", 400,
           "max_worker cannot be less than min_worker.");
    value = ask("PATCH /models", 405);
    assert_string_equal(json_string_value(json_object_get(value, "type")), "MethodNotAllowedException");
    json_decref(value);
    value = ask("GET /nowhere", 404);
    assert_string_equal(json_string_value(json_object_get(value, "type")), "ResourceNotFoundException");
    json_decref(value);
}

/* Sorted by name, in pages; the token is there also where the page ends exactly at the end. */
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
                            json_array_get(json_object_get(page, "models"), 0), "modelName")), "a");
    json_decref(page);
    page = ask("GET /models?limit=2&next_page_token=2", 200);
    assert_null(json_object_get(page, "nextPageToken"));
    assert_int_equal(json_array_size(json_object_get(page, "models")), 0);
    json_decref(page);
}

/* Versions side by side: the first is the default until told otherwise, and goes last. */
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
    expect("DELETE /models/m", 403,
           "Cannot remove default version for model m; set another default first");
    run("m", "x");
    assert_int_equal(step.error, CN_E_NO_WORKER);
    expect("PUT /models/m/2.0/set-default", 200,
           "Default version successfully updated for model \"m\" to \"2.0\"");
    assert_string_equal(run("m", "x"), "x");
    expect("DELETE /models/m/1.0", 200, "Model \"m\" unregistered");
    expect("DELETE /models/m/2.0", 200, "Model \"m\" unregistered");
}

/* --- loading that fails */

/* A synchronous register that fails says why and leaves nothing behind, except what was stored. */
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

/* A worker that fails to load is tried at once, then after 1, 2, 4 ... s; describe tells. Requests are
 * refused with the reason meanwhile, and are served once it loads. */
static void
loading_is_tried_again_ever_more_slowly(void **state)
{
    char script[200], flag[100];
    json_t *whole, *model;

    (void)state;
    snprintf(flag, sizeof flag, "%s/broken", dir);
    snprintf(script, sizeof script, "refuse-while %s", flag);
    write_file(flag, "");
    make_model("m", "1.0", script, NULL);
    start();
    expect("POST /models?url=m-1.0&synchronous=false", 202, "Processing worker updates...");
    wait_for_worker("m", "backoff", 1);
    assert_false(cn_management_healthy(management));
    run("m", "x");
    assert_int_equal(step.error, CN_E_NO_WORKER);
    assert_non_null(strstr(step.text, "handler.lua:3: nothing to see"));
    model = describe("m", &whole);
    assert_non_null(strstr(json_string_value(json_object_get(model, "lastError")), "nothing to see"));
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
    struct api api;

    (void)state;
    make_model("m", "1.0", "hang-on-load", "startupTimeout: 3\n");
    start();
    api_begin(&api, "POST /models?url=m-1.0", NULL);
    while (cn_metrics_get(cn_loop_metrics(loop), CN_M_WORKER_STARTS) == 0)
        cn_loop_turn(loop, 5);
    cn_clock_advance(3001);
    api_end(&api);
    assert_int_equal(api.status, 500);
    assert_non_null(strstr(api.json, "it did not load the model within 3 s (startupTimeout)"));
}

/* --- workers that die */

/* A crash costs its worker, not the model: started again at once, the cause kept for people. */
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

/* kill -9 from outside, without any request: seen and repaired by itself. */
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
    assert_non_null(strstr(json_string_value(json_object_get(one, "lastExit")), "signal 9 (SIGKILL)"));
    json_decref(whole);
    assert_int_equal(cn_metrics_get(cn_loop_metrics(loop), CN_M_WORKERS_READY), 1);
    assert_int_equal(cn_metrics_get(cn_loop_metrics(loop), CN_M_WORKER_DEATHS), 1);
}

/* A handler that never returns is ended after responseTimeout, whatever it does. */
static void
a_hanging_call_costs_its_worker(void **state)
{
    (void)state;
    make_model("m", "1.0", "echo", "responseTimeout: 2\n");
    start();
    json_decref(ask("POST /models?url=m-1.0", 200));
    step_begin(&step, "m", "hang");
    while (cn_metrics_get(cn_loop_metrics(loop), CN_M_JOBS) == 0)
        cn_loop_turn(loop, 5);
    cn_loop_turn(loop, 5);
    cn_clock_advance(2001);
    turn_until(&step.done, "the deadline");
    assert_int_equal(step.error, CN_E_HANDLER_DEADLINE);
    wait_for_worker("m", "ready", 1);
    assert_string_equal(run("m", "x"), "x");
}

/* Bytes that are no frame: that worker can't be trusted, the server is not impressed. */
static void
a_worker_that_sends_garbage_is_replaced(void **state)
{
    struct api api;
    bool seen = false;
    int i;

    (void)state;
    make_model("m", "1.0", "garbage", NULL);
    start();
    api_begin(&api, "POST /models?url=m-1.0&synchronous=false", NULL);
    api_end(&api);
    for (i = 0; i < 4000 && !seen; i++) {
        cn_loop_turn(loop, 2);
        cn_clock_advance(5); /* the grace between the end of the socket and kill -9 */
        seen = cn_metrics_get(cn_loop_metrics(loop), CN_M_WORKER_DEATHS) > 0;
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

/* --- scale, unregister, drain */

/* Sync scaling answers when it is so; without workers requests are refused with what to do. */
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

/* Whatever is on its way when its model goes is answered, one way or the other. */
static void
unregister_answers_everybody(void **state)
{
    static struct step steps[8];
    struct api api;
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

/* At the end of the server its workers end in order, and their store stays. */
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
    while (cn_metrics_get(cn_loop_metrics(loop), CN_M_JOBS) == 0)
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
    model = describe("b", &whole); /* stays, and is tried again */
    assert_true(json_is_true(json_object_get(model, "loadedAtStartup")));
    json_decref(whole);
    config.n_models = 0;
}

/* `--models all` takes what the store has. */
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

/* What a wrong setting costs is a message at the start. */
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

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int
main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        CASE(a_model_is_registered_used_described_and_unregistered),
        CASE(describe_has_torchserves_members_in_order),
        CASE(the_register_call_beats_the_yaml),
        CASE(a_json_body_registers_too),
        CASE(wrong_calls_are_answered_as_torchserve_does),
        CASE(the_list_comes_sorted_in_pages),
        CASE(versions_live_side_by_side),
        CASE(a_failed_register_says_why_and_is_undone),
        CASE(loading_is_tried_again_ever_more_slowly),
        CASE(a_load_that_hangs_meets_its_timeout),
        CASE(a_crashed_worker_is_replaced_and_remembered),
        CASE(a_killed_worker_comes_back_by_itself),
        CASE(a_hanging_call_costs_its_worker),
        CASE(a_worker_that_sends_garbage_is_replaced),
        CASE(a_worker_gets_only_what_it_needs),
        CASE(scaling_goes_up_down_and_to_none),
        CASE(unregister_answers_everybody),
        CASE(a_drain_ends_all_workers_and_keeps_the_stores),
        CASE(a_drain_is_bounded),
        CASE(models_of_the_command_line_start_and_failures_are_counted),
        CASE(all_means_all_of_the_store),
        CASE(wrong_settings_are_told_at_the_start),
    };

    if (!getenv("CN_TEST_LOG"))
        cn_log_set_level(CN_LOG_ERROR);
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests_name("management.management", tests, NULL, NULL);
}
