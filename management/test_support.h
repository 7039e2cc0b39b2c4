/* management/test_support.h - for the tests of this folder: a folder with models, a server without
 * a front end, calls of the management API, and jobs. The processes are real
 * (tests/support/fake_worker.c), the clock is frozen, and the test turns the only loop by itself.
 */
#ifndef CN_MANAGEMENT_TEST_SUPPORT_H
#define CN_MANAGEMENT_TEST_SUPPORT_H

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

#include "core/log/log.h"
#include "core/memory/mem.h"
#include "core/test_support.h"
#include "core/time/clock.h"
#include "management/management.h"
#include "metrics/counters/metrics.h"
#include "scheduler/queue/submit.h"

#define PATIENCE_S 20
#define TURNS_MAX 8000    /* how many turns a tear-down may take, of at most 5 ms each */
#define TURNS_WITHOUT 400 /* how many turns a tear-down makes before it moves the clock */

/* --- the rig */

static char dir[TEST_DIR_MAX], worker[600];
static struct cn_server_config config;
static struct cn_model_arg model_args[4];
static struct cn_loop *loop;
static struct cn_management *management;
static unsigned start_failed;
static bool drained;

/* Turns the loop until *flag is true, for at most PATIENCE_S seconds of real time. */
static inline void
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

/* Makes a model as a folder of the store. The text of its handler tells the fake worker what
 * to do. */
static inline void
make_model(const char *name, const char *version, const char *script, const char *yaml)
{
    char path[200], inside[220], text[600];

    snprintf(path, sizeof path, "%s/store/%s-%s", dir, name, version);
    assert_int_equal(mkdir(path, 0700), 0);
    snprintf(inside, sizeof inside, "%s/MAR-INF", path);
    assert_int_equal(mkdir(inside, 0700), 0);
    snprintf(text, sizeof text,
             "{\"createdOn\": \"01/01/2026 00:00:00\", \"runtime\": \"lua\", \"model\": {"
             "\"modelName\": \"%s\", \"modelVersion\": \"%s\", \"handler\": \"handler.lua\"%s}, "
             "\"archiverVersion\": \"0.1.0\"}",
             name, version, yaml ? ", \"configFile\": \"model.yaml\"" : "");
    test_dir_write(inside, "MANIFEST.json", text);
    snprintf(text, sizeof text, "%s\n", script);
    test_dir_write(path, "handler.lua", text);
    if (yaml)
        test_dir_write(path, "model.yaml", yaml);
}

static inline void
on_started(void *ctx, unsigned failed)
{
    start_failed = failed;
    *(bool *)ctx = true;
}

static inline void
start(void)
{
    struct cn_error err = {0};
    bool done = false;

    if (cn_management_create(&config, &loop, 1, &management, &err))
        fail_msg("%s", err.message);
    drained = false;
    cn_loop_turn(loop, 0);
    cn_management_start(management, on_started, &done);
    turn_until(&done, "the start");
}

static inline void
on_drained(void *ctx)
{
    *(bool *)ctx = true;
}

static inline void
stop(void)
{
    cn_management_drain(management, on_drained, &drained);
    turn_until(&drained, "the drain");
    cn_management_destroy(management);
    management = NULL;
}

static inline int
set_up(void **state)
{
    static char store[100], state_dir[100];

    (void)state;
    test_program_path("fake_worker", worker, sizeof(worker));
    cn_clock_freeze();
    test_dir_make(dir);
    snprintf(store, sizeof store, "%s/store", dir);
    snprintf(state_dir, sizeof state_dir, "%s/state", dir);
    assert_int_equal(mkdir(store, 0700), 0);
    config = (struct cn_server_config){.model_store = store,
                                       .state_dir = state_dir,
                                       .durability = CN_DURABILITY_PROCESS,
                                       .default_workers = 1,
                                       .job_queue_size = 10000,
                                       .response_timeout_s = 120,
                                       .startup_timeout_s = 120,
                                       .max_response_bytes = 64 << 20,
                                       .max_request_bytes = 1 << 20,
                                       .max_envelope_bytes = 1 << 20,
                                       .max_page = 1000,
                                       .drain_timeout_ms = 30000,
                                       .worker_program = worker,
                                       .model_api = true,
                                       .models = model_args};
    assert_int_equal(cn_loop_create(0, &loop, NULL), 0);
    return 0;
}

/* Runs after a failed test, too. Operations that the test has begun are only answered here. So
 * everything that waits for an answer (struct api, struct step, `drained`) must be static;
 * otherwise the answer would be written over the stack of this function. A worker that hangs is
 * ended by a time limit, so the frozen clock must be moved. */
static inline int
tear_down(void **state)
{
    (void)state;
    drained = false; /* an earlier test may have set it */
    if (management)
        cn_management_drain(management, on_drained, &drained);
    for (unsigned i = 0; management && !drained && i < TURNS_MAX; i++) {
        if (i >= TURNS_WITHOUT)
            cn_clock_advance(50);
        cn_loop_turn(loop, 5);
    }
    if (management && !drained) {
        management = NULL; /* the management and its loop are left as they are */
        return -1;
    }
    cn_management_destroy(management);
    management = NULL;
    cn_loop_destroy(loop);
    return test_dir_remove(dir);
}

/* --- API calls */

struct api {
    struct cn_api_request request;
    struct cn_header query[8];
    bool done;
    int status;
    char json[16384];
};

static inline void
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

/* Begins a call such as "GET /models?limit=2", and does not wait for its answer. */
static inline void
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

static inline void
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

static inline json_t *
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

static inline void
expect(const char *line, int status, const char *text)
{
    json_t *value = ask(line, status);
    json_t *said = json_object_get(value, status < 300 ? "status" : "message");

    assert_non_null(said);
    assert_string_equal(json_string_value(said), text);
    json_decref(value);
}

/* Returns the first described model. The caller must json_decref() the array that has it,
 * `whole`. */
static inline json_t *
describe(const char *name, json_t **whole)
{
    char line[200];

    snprintf(line, sizeof line, "GET /models/%s", name);
    *whole = ask(line, 200);
    return json_array_get(*whole, 0);
}

static inline json_t *
describe_worker(const char *name, json_t **whole)
{
    return json_array_get(json_object_get(describe(name, whole), "workers"), 0);
}

static inline long long
number_of(json_t *object, const char *key)
{
    json_t *value = json_object_get(object, key);

    assert_true(json_is_integer(value));
    return json_integer_value(value);
}

/* Describes the model until its first worker is in `state` with this number of restarts. */
static inline void
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

static inline void
on_answer(struct cn_job *job, struct cn_answer_box *box)
{
    struct step *step = cn_container_of(job, struct step, job);

    snprintf(step->text, sizeof step->text, "%.*s", CN_STR_ARG(box->answer.body));
    step->error = box->answer.error_code;
    step->done = box->answer.flags & CN_ANSWER_FINAL;
    cn_answer_box_free(box);
}

static const struct cn_job_ops job_ops = {.on_answer = on_answer};

static inline void
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

static inline const char *
run(const char *model, const char *body)
{
    step_begin(&step, model, body);
    turn_until(&step.done, "an answer");
    return step.text;
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

/* Runs all tests, or only the one that is named as an argument. CN_TEST_LOG=1 shows the log. */
#define RUN_TESTS(group, tests, argc, argv)                                                        \
    (getenv("CN_TEST_LOG") ? (void)0 : cn_log_set_level(CN_LOG_ERROR),                             \
     (argc) > 1 ? cmocka_set_test_filter((argv)[1]) : (void)0,                                     \
     cmocka_run_group_tests_name(group, tests, NULL, NULL))

/* Returns a metric of the model's default version, or 0 if there is none. */
static inline uint64_t
count_of(const char *model, enum cn_metric metric)
{
    struct cn_model_queue *queue =
        cn_management_find(management, cn_str_from(model), CN_STR(""), NULL);

    return queue ? cn_metrics_get(cn_model_queue_metrics(queue), metric) : 0;
}

#endif
