/* scheduler/queue/model_queue_test.c - tests the order of steps, what is refused, how long steps
 * wait, and the end of a queue. */
#include "scheduler/test_support.h"

static void
config_tickets(struct cn_model_config *config)
{
    config->sequence_batching = false;
    config->batch_size = 2;
    config->use_job_ticket = true;
}

static void
config_client_timeout(struct cn_model_config *config)
{
    config->client_timeout_ms = 50;
}

/* Steps that a client sends one after the other are done in that order, one at a time. */
static void
steps_of_a_sequence_run_in_order_one_by_one(void **state)
{
    struct rig *rig = rig_create(config_batch_4);
    struct fake *fake = fake_attach(rig);
    struct client clients[5];
    unsigned i;

    (void)state;
    for (i = 0; i < 5; i++) {
        char body[2] = {(char)('a' + i), '\0'};

        client_send(rig, &clients[i], "s", body, 0);
    }
    settle(rig);
    for (i = 0; i < 5; i++) {
        fake_read(fake);
        assert_int_equal(fake->n_rows, i + 1);
        assert_int_equal(cn_worker_link_in_flight(fake->link), 1);
        assert_int_equal(fake->rows[i].body[0], 'a' + i);
        answer_next(rig, fake);
        assert_int_equal(clients[i].finals, 1);
        assert_int_equal(clients[i].order, i + 1);
        assert_string_equal(clients[i].sequence_id, "s");
    }
    assert_int_equal(rig_stats(rig).in_flight_jobs, 0);
    rig_destroy(rig);
}

/* The next step of a sequence leaves in the turn in which the last one was answered. */
static void
answer_and_next_step_share_a_turn(void **state)
{
    struct rig *rig = rig_create(NULL);
    struct fake *fake = fake_attach(rig);
    struct client a, b;
    struct cn_answer answer;

    (void)state;
    client_send(rig, &a, "s", "1", 0);
    client_send(rig, &b, "s", "2", 0);
    settle(rig);
    fake_read(fake);
    answer = answer_to(&fake->rows[0]);
    fake_send(fake, &answer);
    cn_loop_turn(rig->loop, 0);
    fake_read(fake);
    assert_int_equal(a.finals, 1);
    assert_int_equal(fake->n_rows, 2);
    answer_all(rig, fake);
    rig_destroy(rig);
}

/* With tickets nobody waits: a request for which no worker has room is refused at once. */
static void
with_tickets_a_job_is_taken_or_refused(void **state)
{
    struct rig *rig = rig_create(config_tickets);
    struct client clients[4];
    struct fake *fake;

    (void)state;
    cn_model_queue_set_expected(rig->queue, 1, "");
    client_send(rig, &clients[3], "", "x", 0);
    settle(rig);
    assert_int_equal(clients[3].error, CN_E_UNAVAILABLE); /* no worker is up */
    fake = fake_attach(rig);
    for (unsigned i = 0; i < 3; i++)
        client_send(rig, &clients[i], "", "x", 0);
    settle(rig);
    assert_int_equal(clients[2].finals, 1);
    assert_int_equal(clients[2].error, CN_E_UNAVAILABLE);
    assert_non_null(strstr(clients[2].text, "useJobTicket"));
    answer_next(rig, fake);
    client_send(rig, &clients[2], "", "x", 0);
    settle(rig);
    answer_all(rig, fake);
    assert_int_equal(clients[2].error, 0);
    rig_destroy(rig);
}

/* A request that has waited for too long is answered, while TorchServe leaves the client waiting.
 * Running steps are not affected. */
static void
the_client_timeout_ends_waiting_only(void **state)
{
    struct rig *rig = rig_create(config_client_timeout);
    struct fake *fake = fake_attach(rig);
    struct client runs, waits;

    (void)state;
    client_send(rig, &runs, "s", "1", 0);
    client_send(rig, &waits, "s", "2", 0);
    settle(rig);
    cn_clock_advance(49);
    settle(rig);
    assert_int_equal(waits.finals, 0);
    cn_clock_advance(20);
    settle(rig);
    assert_int_equal(waits.finals, 1);
    assert_int_equal(waits.error, CN_E_TIMEOUT);
    assert_non_null(strstr(waits.text, "clientTimeoutInMills 50"));
    assert_int_equal(runs.finals, 0);
    answer_all(rig, fake);
    assert_int_equal(runs.error, 0);
    rig_destroy(rig);
}

/* The worker gets the generation that it has reported itself, and has to reload a state only where
 * that is necessary. */
static void
rows_carry_what_the_server_knows(void **state)
{
    struct rig *rig = rig_create(NULL);
    struct fake *fake = fake_attach(rig);
    struct client first, second;

    (void)state;
    client_send(rig, &first, "s", "1", 0);
    first.job.deadline_ms = cn_now_ms() + 1500;
    settle(rig);
    answer_next(rig, fake);
    client_send(rig, &second, "s", "2", 0);
    settle(rig);
    fake_read(fake);
    assert_int_equal(fake->rows[0].flags, CN_ROW_STATEFUL | CN_ROW_RELOAD);
    assert_int_equal(fake->rows[0].generation, 0);
    assert_int_equal(fake->rows[0].deadline_ms, 1500);
    assert_int_equal(fake->rows[1].flags, CN_ROW_STATEFUL);
    assert_int_equal(fake->rows[1].generation, 7);
    assert_int_equal(fake->rows[1].deadline_ms, 0);
    assert_true(fake->rows[1].job_id > fake->rows[0].job_id);
    answer_all(rig, fake);
    rig_destroy(rig);
}

/* Each limit has its own error code. The message has the numbers, and the answer says when to try
 * again. */
static void
full_is_an_ordinary_answer(void **state)
{
    struct rig *rig = rig_create(config_small);
    struct client a[4], b, c;

    (void)state;
    client_send(rig, &a[0], "a", "1", 0);
    client_send(rig, &a[1], "a", "2", 0);
    client_send(rig, &a[2], "a", "3", 0);
    client_send(rig, &b, "b", "1", 0);
    settle(rig);
    assert_int_equal(a[2].error, CN_E_QUEUE_FULL);
    assert_string_equal(a[2].text, "sequence a has 2 jobs waiting (maxSequenceJobQueueSize 2); "
                                   "send the next step after an answer");
    assert_true(a[2].retry_after_s >= 1);
    assert_string_equal(a[2].sequence_id, "a");
    assert_int_equal(b.finals, 0);
    client_send(rig, &c, "c", "1", 0);
    settle(rig);
    assert_int_equal(c.error, CN_E_QUEUE_FULL);
    assert_string_equal(c.text, "model m has 3 jobs waiting (jobQueueSize 3); try again later");
    fake_attach(rig);
    settle(rig); /* two are in flight, so the queue has room, but the table is full */
    client_send(rig, &c, "c", "1", 0);
    settle(rig);
    assert_int_equal(c.error, CN_E_TOO_MANY_SEQUENCES);
    assert_string_equal(c.text, "model m has 2 sequences open (maxNumSequence 2); end one, or try "
                                "again later");
    rig_destroy(rig);
    assert_int_equal(a[0].finals + a[1].finals + b.finals, 3);
}

static void
name_70000(struct cn_job *job, const char *text)
{
    job->row.parts[0].name = (struct cn_str){text, 70000};
}

static void
type_70000(struct cn_job *job, const char *text)
{
    job->row.parts[0].content_type = (struct cn_str){text, 70000};
}

static void
request_id_70000(struct cn_job *job, const char *text)
{
    job->row.request_id = (struct cn_str){text, 70000};
}

static void
header_70000(struct cn_job *job, const char *text)
{
    static struct cn_header header;

    header = (struct cn_header){{text, 70000}, {text, 1}};
    job->row.n_headers = 1;
    job->row.headers = &header;
}

static void
sequence_id_257(struct cn_job *job, const char *text)
{
    job->row.sequence_id = (struct cn_str){text, 257};
}

static void
body_3_gib(struct cn_job *job, const char *text)
{
    job->row.parts[0].data = (struct cn_str){text, (size_t)3 << 30};
}

/* A row that no frame can carry is refused before it can harm the worker's connection. */
static void
impossible_requests_are_refused(void **state)
{
    static const struct {
        void (*change)(struct cn_job *job, const char *text);
        int code;
        const char *text;
    } cases[] = {
        {name_70000, CN_E_BAD_REQUEST,
         "the name or content type of part 1 is longer than 65535 bytes"},
        {type_70000, CN_E_BAD_REQUEST,
         "the name or content type of part 1 is longer than 65535 bytes"},
        {request_id_70000, CN_E_BAD_REQUEST, "the request id has 70000 bytes; the limit is 65535"},
        {header_70000, CN_E_BAD_REQUEST, "a header name has 70000 bytes; the limit is 65535"},
        {sequence_id_257, CN_E_BAD_REQUEST, "the sequence id has 257 bytes; the limit is 256"},
        {body_3_gib, CN_E_TOO_LARGE, "the request has 3221225472 bytes; the limit is 2147483648"},
    };
    struct rig *rig = rig_create(NULL);
    struct fake *fake = fake_attach(rig);
    char *text = cn_alloc(70001);
    size_t i;

    (void)state;
    memset(text, 'x', 70000);
    for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct client client;

        client_prepare(&client, rig->loop, "s", "1", 0);
        cases[i].change(&client.job, text);
        cn_model_queue_submit(rig->queue, &client.job);
        settle(rig);
        assert_int_equal(client.error, cases[i].code);
        assert_string_equal(client.text, cases[i].text);
    }
    fake_read(fake);
    assert_int_equal(fake->n_rows + fake->lost, 0);
    assert_int_equal(rig_stats(rig).live_sequences, 0);
    cn_free(text);
    rig_destroy(rig);
}

/* If there is no worker and none will come, jobs are answered at once. */
static void
no_worker_expected_refuses_at_once(void **state)
{
    struct rig *rig = rig_create(NULL);
    struct client waits[2], late;

    (void)state;
    client_send(rig, &waits[0], "s", "1", 0);
    client_send(rig, &waits[1], "s", "2", 0);
    settle(rig);
    assert_int_equal(waits[0].finals, 0);
    cn_model_queue_set_expected(rig->queue, 0, "worker 1 can't load the model: no such file");
    settle(rig);
    assert_int_equal(waits[0].error, CN_E_NO_WORKER);
    assert_int_equal(waits[1].error, CN_E_NO_WORKER);
    assert_string_equal(waits[0].text, "worker 1 can't load the model: no such file");
    client_send(rig, &late, "s", "1", 0);
    settle(rig);
    assert_int_equal(late.error, CN_E_NO_WORKER);
    assert_true(late.retry_after_s >= 1);
    rig_destroy(rig);
}

/* A waiting job is answered at its deadline, with the reason that fits. */
static void
waiting_jobs_keep_their_deadline(void **state)
{
    struct rig *rig = rig_create(NULL);
    struct client loading, busy[4];
    struct fake *fake;
    unsigned i;

    (void)state;
    client_send(rig, &loading, "s", "1", 0);
    loading.job.deadline_ms = cn_now_ms() + 100;
    settle(rig);
    pass(rig, 99);
    assert_int_equal(loading.finals, 0);
    pass(rig, 1);
    assert_int_equal(loading.error, CN_E_MODEL_LOADING);
    assert_true(loading.retry_after_s >= 1);
    assert_int_equal(rig_stats(rig).live_sequences, 0);

    fake = fake_attach(rig);
    for (i = 0; i < 4; i++) {
        client_send(rig, &busy[i], "s", "1", 0);
        busy[i].job.deadline_ms = cn_now_ms() + 100;
    }
    settle(rig);
    pass(rig, 100);
    assert_int_equal(busy[0].finals, 0); /* in flight: only the worker's time limit applies */
    assert_int_equal(busy[1].error, CN_E_HANDLER_DEADLINE);
    assert_non_null(strstr(busy[1].text, "waited 100 ms for a worker of model "));
    answer_all(rig, fake);
    assert_int_equal(busy[0].error, 0);
    rig_destroy(rig);
}

/* Closing without dropping lets waiting jobs run. The owner is informed once, and not from inside
 * the call. */
static void
close_lets_waiting_jobs_run(void **state)
{
    struct rig *rig = rig_create(NULL);
    struct fake *fake = fake_attach(rig);
    struct client a, b, late;

    (void)state;
    client_send(rig, &a, "s", "1", 0);
    client_send(rig, &b, "s", "2", 0);
    settle(rig);
    cn_model_queue_close(rig->queue, CN_E_DRAINING, "the server is stopping", false, rig_empty,
                         rig);
    assert_int_equal(rig->empty, 0);
    client_send(rig, &late, "s", "3", 0);
    settle(rig);
    assert_int_equal(late.error, CN_E_DRAINING);
    assert_string_equal(late.text, "the server is stopping");
    answer_next(rig, fake);
    assert_int_equal(rig->empty, 0);
    answer_next(rig, fake);
    assert_int_equal(b.error, 0);
    assert_int_equal(rig->empty, 1);
    settle(rig);
    assert_int_equal(rig->empty, 1);
    rig_destroy(rig);
}

/* Closing with dropping refuses waiting jobs, wherever they wait, and lets running ones end. */
static void
close_in_a_hurry_drops_waiting_jobs(void **state)
{
    struct rig *rig = rig_create(NULL);
    struct fake *fake = fake_attach(rig);
    struct client clients[6];
    unsigned i;

    (void)state;
    for (i = 0; i < 6; i++)
        client_send(rig, &clients[i], i < 3 ? "s1" : i == 3 ? "s2" : "s3", "x", 0);
    settle(rig);
    cn_model_queue_close(rig->queue, CN_E_DRAINING, "stopping", false, rig_empty, rig);
    settle(rig);
    cn_model_queue_close(rig->queue, CN_E_DRAINING, "stopping now", true, rig_empty, rig);
    settle(rig);
    for (i = 0; i < 6; i++)
        assert_int_equal(clients[i].error, i == 0 || i == 3 ? 0 : CN_E_DRAINING);
    assert_int_equal(clients[0].finals + clients[3].finals, 0);
    assert_int_equal(rig->empty, 0);
    assert_int_equal(answer_all(rig, fake), 2);
    assert_int_equal(rig->empty, 1);
    rig_destroy(rig);
}

static void
destroys_queue(void *ctx)
{
    struct rig *rig = ctx;

    rig->empty++;
    cn_model_queue_destroy(rig->queue);
}

/* The owner may destroy the queue as soon as it is informed that the queue is empty. */
static void
queue_may_be_destroyed_when_empty(void **state)
{
    struct rig *rig = rig_create(NULL);
    struct fake *fake = fake_add(rig);

    (void)state;
    cn_model_queue_close(rig->queue, CN_E_DRAINING, "stopping", true, destroys_queue, rig);
    settle(rig);
    assert_int_equal(rig->empty, 1);
    cn_worker_link_destroy(fake->link);
    close(fake->fd);
    cn_loop_destroy(rig->loop);
    cn_free(rig);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_of_a_sequence_run_in_order_one_by_one),
        cmocka_unit_test(answer_and_next_step_share_a_turn),
        cmocka_unit_test(with_tickets_a_job_is_taken_or_refused),
        cmocka_unit_test(the_client_timeout_ends_waiting_only),
        cmocka_unit_test(rows_carry_what_the_server_knows),
        cmocka_unit_test(full_is_an_ordinary_answer),
        cmocka_unit_test(impossible_requests_are_refused),
        cmocka_unit_test(no_worker_expected_refuses_at_once),
        cmocka_unit_test(waiting_jobs_keep_their_deadline),
        cmocka_unit_test(close_lets_waiting_jobs_run),
        cmocka_unit_test(close_in_a_hurry_drops_waiting_jobs),
        cmocka_unit_test(queue_may_be_destroyed_when_empty),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
