/* management/models/lifecycle_test.c - tests management with several busy loops, mainly for the
 * thread sanitizer.
 *
 * The test turns loop 0. Two more loops run in threads; models are spread over them in turn, and
 * jobs come from both. The clock and the processes are real (tests/support/fake_worker.c).
 */
#include "management/models/lifecycle.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
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
#include "core/test_support.h"
#include "core/time/clock.h"
#include "scheduler/queue/submit.h"

#define LOOPS 3
#define CLIENTS 8 /* on each loop */

static char dir[64], worker[600], store[100], state_dir[100];
static struct cn_server_config config;
static struct cn_loop *loops[LOOPS];
static struct cn_management *management;
static char said[1200];
static int status;

/* --- clients: each always has one job under way */

struct client {
    struct cn_job job;
    struct cn_part part;
    struct load *load;
    char body[16];
    uint32_t n;
    bool busy;
};

struct load {
    pthread_t thread;
    struct cn_loop *loop;
    struct cn_timer again;
    struct client clients[CLIENTS];
    atomic_bool stop;
    _Atomic unsigned long good, bad, unknown, busy;
};

static void
on_answer(struct cn_job *job, struct cn_answer_box *box)
{
    struct client *client = cn_container_of(job, struct client, job);

    if (box->answer.error_code == 0 && cn_str_eq(box->answer.body, client->part.data))
        client->load->good++;
    else if (box->answer.error_code == CN_E_MODEL_NOT_FOUND)
        client->load->unknown++;
    else if (client->load->bad++ == 0)
        fprintf(stderr, "bad answer: %d %.*s\n", box->answer.error_code,
                CN_STR_ARG(box->answer.body));
    client->busy = false;
    client->load->busy--;
    cn_answer_box_free(box);
}

static const struct cn_job_ops job_ops = {.on_answer = on_answer};

static void
client_go(struct client *client)
{
    struct cn_model_queue *queue;

    queue = cn_management_find(management, CN_STR("m"), CN_STR(""), NULL);
    if (!queue) {
        client->load->unknown++;
        return;
    }
    memset(&client->job, 0, sizeof client->job);
    snprintf(client->body, sizeof client->body, "%u", client->n++);
    client->part = (struct cn_part){CN_STR("body"), CN_STR(""), cn_str_from(client->body)};
    client->job.ops = &job_ops;
    client->job.origin = client->load->loop;
    client->job.deadline_ms = CN_NEVER;
    client->job.row = (struct cn_row){.n_parts = 1, .parts = &client->part};
    client->busy = true;
    client->load->busy++;
    cn_model_queue_submit(queue, &client->job);
}

static void
load_turn(struct cn_timer *again)
{
    struct load *load = cn_container_of(again, struct load, again);
    unsigned i;

    for (i = 0; i < CLIENTS && !atomic_load(&load->stop); i++)
        if (!load->clients[i].busy)
            client_go(&load->clients[i]);
    cn_timer_set(cn_loop_wheel(load->loop), again, cn_loop_now_ms(load->loop) + 1);
}

static struct load loads[LOOPS];

static void *
run_loop(void *arg)
{
    cn_loop_run(arg);
    return NULL;
}

/* --- the rig */

static void
turn_until(const bool *flag)
{
    time_t end = time(NULL) + 60;

    while (!*flag) {
        cn_loop_turn(loops[0], 20);
        if (time(NULL) > end)
            fail_msg("waited too long; last was: %s", said);
    }
}

static void
on_flag(void *ctx, unsigned failed)
{
    (void)failed;
    *(bool *)ctx = true;
}

static int
set_up(void **state)
{
    struct cn_error err = {0};
    char path[300];
    bool done = false;
    unsigned i, n;

    (void)state;
    test_program_path("fake_worker", worker, sizeof(worker));
    test_dir_make(dir);
    snprintf(store, sizeof store, "%s/store", dir);
    snprintf(state_dir, sizeof state_dir, "%s/state", dir);
    assert_int_equal(mkdir(store, 0700), 0);
    snprintf(path, sizeof path, "%s/m", store);
    assert_int_equal(mkdir(path, 0700), 0);
    snprintf(path, sizeof path, "%s/m/MAR-INF", store);
    assert_int_equal(mkdir(path, 0700), 0);
    test_dir_write(
        store, "m/MAR-INF/MANIFEST.json",
        "{\"createdOn\": \"01/01/2026 00:00:00\", \"runtime\": \"lua\", \"model\": "
        "{\"modelName\": \"m\", \"modelVersion\": \"1.0\", \"handler\": \"handler.lua\"}, "
        "\"archiverVersion\": \"0.1.0\"}");
    test_dir_write(store, "m/handler.lua", "echo\n");
    config = (struct cn_server_config){.model_store = store,
                                       .state_dir = state_dir,
                                       .durability = CN_DURABILITY_PROCESS,
                                       .default_workers = 1,
                                       .job_queue_size = 10000,
                                       .response_timeout_s = 120,
                                       .startup_timeout_s = 120,
                                       .max_response_bytes = 64 << 20,
                                       .max_request_bytes = 1 << 20,
                                       .drain_timeout_ms = 30000,
                                       .worker_program = worker};
    for (i = 0; i < LOOPS; i++)
        assert_int_equal(cn_loop_create(i, &loops[i], NULL), 0);
    if (cn_management_create(&config, loops, LOOPS, &management, &err))
        fail_msg("%s", err.message);
    memset(loads, 0, sizeof loads);
    for (i = 1; i < LOOPS; i++) {
        loads[i].loop = loops[i];
        for (n = 0; n < CLIENTS; n++)
            loads[i].clients[n].load = &loads[i];
        pthread_create(&loads[i].thread, NULL, run_loop, loops[i]);
    }
    cn_loop_turn(loops[0], 0);
    cn_management_start(management, on_flag, &done);
    turn_until(&done);
    return 0;
}

static void
on_done(void *ctx, const struct cn_lifecycle_result *result)
{
    snprintf(said, sizeof said, "%s", result->text);
    status = result->code ? result->code : result->http_status;
    *(bool *)ctx = true;
}

static void
register_model(uint32_t workers)
{
    bool done = false;
    struct cn_register_call call = {.request = {.url = "m",
                                                .batch_size = 4,
                                                .max_batch_delay_ms = -1,
                                                .initial_workers = workers,
                                                .response_timeout_s = -1,
                                                .startup_timeout_s = -1},
                                    .synchronous = true};

    cn_lifecycle_register(management, &call, on_done, &done);
    turn_until(&done);
    if (status != 200)
        fail_msg("%s", said);
}

static void
scale(uint32_t workers)
{
    bool done = false;
    struct cn_scale_call call = {"m", NULL, workers, workers, true};

    cn_lifecycle_scale(management, &call, on_done, &done);
    turn_until(&done);
    if (status != 200)
        fail_msg("%s", said);
}

static void
unregister_model(void)
{
    bool done = false;

    cn_lifecycle_unregister(management, "m", NULL, on_done, &done);
    turn_until(&done);
    if (status != 200)
        fail_msg("%s", said);
}

/* Runs on the loop of the load. */
struct start_load {
    struct cn_msg msg;
    struct load *load;
};
static struct start_load starts[LOOPS];

static void
load_start(struct cn_msg *msg)
{
    struct load *load = cn_container_of(msg, struct start_load, msg)->load;

    cn_timer_init(&load->again, load_turn);
    load_turn(&load->again);
}

static void
start_load(void)
{
    unsigned i;

    for (i = 1; i < LOOPS; i++) {
        starts[i] = (struct start_load){.msg.fn = load_start, .load = &loads[i]};
        cn_loop_post(loops[i], &starts[i].msg);
    }
}

/* Waits until the clients of each loop have got `answers` more successful answers. */
static void
expect_progress(unsigned long answers)
{
    time_t end = time(NULL) + 60;
    unsigned long goals[LOOPS];
    unsigned i;

    for (i = 1; i < LOOPS; i++)
        goals[i] = loads[i].good + answers;
    for (i = 1; i < LOOPS; i++)
        while (loads[i].good < goals[i]) {
            cn_loop_turn(loops[0], 5);
            assert_true(time(NULL) < end);
        }
}

static void
on_drained(void *ctx)
{
    *(bool *)ctx = true;
}

static int
tear_down(void **state)
{
    bool done = false;
    unsigned i;

    (void)state;
    for (i = 1; i < LOOPS; i++)
        atomic_store(&loads[i].stop, true);
    cn_management_drain(management, on_drained, &done);
    turn_until(&done);
    for (i = 1; i < LOOPS; i++) {
        while (loads[i].busy > 0)
            cn_loop_turn(loops[0], 5);
        cn_loop_stop(loops[i]);
        pthread_join(loads[i].thread, NULL);
        cn_timer_cancel(&loads[i].again);
    }
    cn_management_destroy(management);
    for (i = 0; i < LOOPS; i++)
        cn_loop_destroy(loops[i]);
    return test_dir_remove(dir);
}

/* Workers come and go under load, and no request fails because of it. */
static void
scaling_under_load_fails_no_request(void **state)
{
    static const uint32_t counts[] = {3, 1, 2, 4, 1};
    unsigned i;

    (void)state;
    register_model(0); /* on loop 0 */
    unregister_model();
    register_model(1); /* on loop 1 */
    start_load();
    expect_progress(50);
    for (i = 0; i < sizeof counts / sizeof *counts; i++) {
        scale(counts[i]);
        expect_progress(50);
    }
    for (i = 1; i < LOOPS; i++)
        assert_int_equal(loads[i].bad + loads[i].unknown, 0);
}

/* A model is removed and registered again and again under load. Each job is answered, by the model
 * or with the error that there is no such model, and no queue is used after its end. */
static void
unregistering_under_load_answers_everybody(void **state)
{
    unsigned i;

    (void)state;
    register_model(1);
    start_load();
    for (i = 0; i < 6; i++) {
        expect_progress(20);
        unregister_model();
        register_model(2);
    }
    expect_progress(20);
    for (i = 1; i < LOOPS; i++)
        assert_int_equal(loads[i].bad, 0);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(scaling_under_load_fails_no_request, set_up, tear_down),
        cmocka_unit_test_setup_teardown(unregistering_under_load_answers_everybody, set_up,
                                        tear_down),
    };

    if (!getenv("CN_TEST_LOG"))
        cn_log_set_level(CN_LOG_ERROR);
    return cmocka_run_group_tests_name("management.lifecycle", tests, NULL, NULL);
}
