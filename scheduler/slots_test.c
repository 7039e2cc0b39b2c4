/* scheduler/slots_test.c - sequences that need a slot: candidates, the backlog, its clocks. */
#include "config/batching.h"
#include "scheduler/test_support.h"

static struct cn_model_io *io;

/* `block` is what the YAML says in sequence_batching. */
static struct rig *
rig_with(const char *block)
{
    char text[1000];
    struct cn_yaml_doc *doc;
    struct cn_model_config config;
    struct cn_error err;
    struct rig *rig;

    snprintf(text, sizeof(text),
             "max_batch_size: 2\ninput: [{name: A, data_type: TYPE_INT32, dims: [1]}]\n"
             "output: [{name: A, data_type: TYPE_INT32, dims: [1]}]\n%s\n",
             block);
    cn_model_config_init(&config);
    assert_int_equal(cn_yaml_parse("m.yaml", cn_str_from(text), &doc, &err), 0);
    assert_int_equal(cn_model_io_parse(doc, &io, &err), 0);
    assert_int_equal(cn_batching_parse(doc, "m", io, &err), 0);
    cn_batching_apply(doc, io, &config);
    cn_yaml_destroy(doc);
    config.io = io;
    rig = rig_create(NULL);
    cn_model_queue_close(rig->queue, CN_E_DRAINING, "another one comes", true, rig_empty, rig);
    settle(rig);
    cn_model_queue_destroy(rig->queue);
    rig->config = config;
    rig->queue = cn_model_queue_create(rig->loop, "m", "1.0", &rig->config);
    cn_model_queue_set_expected(rig->queue, 1, NULL);
    rig->empty = 0;
    return rig;
}

static void
rig_done(struct rig *rig)
{
    rig_destroy(rig);
    cn_model_io_unref(io);
}

/* Answers one row as the worker would: by the row's own id in this list of what lives. */
static void
say_unknown(struct rig *rig, struct fake *fake)
{
    struct cn_answer answer = {.flags = CN_ANSWER_FINAL | CN_ANSWER_ELSEWHERE,
                               .error_code = CN_E_SEQUENCE_UNKNOWN,
                               .body = CN_STR("it does not live here")};

    answer.job_id = fake->rows[fake->next++].job_id;
    fake_send(fake, &answer);
    settle(rig);
    fake_read(fake);
}

/* A worker has no more sequences than candidates; the next one comes when one has ended. */
static void
the_backlog_is_first_come_first_served(void **state)
{
    struct rig *rig = rig_with("sequence_batching: {oldest: {max_candidate_sequences: 2}}");
    struct fake *worker = fake_attach(rig);
    struct client a, b, c, d, a2;

    (void)state;
    client_send(rig, &a, "a", "1", CN_ROW_START);
    client_send(rig, &b, "b", "1", CN_ROW_START);
    client_send(rig, &c, "c", "1", CN_ROW_START);
    client_send(rig, &d, "d", "1", CN_ROW_START);
    settle(rig);
    assert_int_equal(answer_all(rig, worker), 2);
    assert_int_equal(c.finals + d.finals, 0);
    client_send(rig, &a2, "a", "2", CN_ROW_END);
    settle(rig);
    assert_int_equal(answer_all(rig, worker), 2);
    assert_int_equal(c.finals, 1);
    assert_int_equal(d.finals, 0);
    rig_done(rig);
    assert_int_equal(d.error, CN_E_DRAINING);
}

/* A step that can't open its sequence is looked up without a slot, and told. */
static void
unknown_sequences_need_no_slot(void **state)
{
    struct rig *rig = rig_with("sequence_batching: {oldest: {max_candidate_sequences: 1}}");
    struct fake *worker = fake_attach(rig);
    struct client a, waits, nobody, behind;

    (void)state;
    client_send(rig, &a, "a", "1", CN_ROW_START);
    settle(rig);
    assert_int_equal(answer_all(rig, worker), 1);
    client_send(rig, &waits, "b", "1", CN_ROW_START);
    client_send(rig, &nobody, "c", "1", CN_ROW_MUST_EXIST);
    client_send(rig, &behind, "c", "2", CN_ROW_MUST_EXIST);
    settle(rig);
    fake_read(worker);
    assert_int_equal(worker->n_rows, 2);
    assert_string_equal(worker->rows[1].id, "c");
    assert_string_equal(worker->rows[1].body, "");
    assert_true(worker->rows[1].flags & CN_ROW_MOVE);
    say_unknown(rig, worker);
    assert_int_equal(nobody.error, CN_E_SEQUENCE_UNKNOWN);
    say_unknown(rig, worker);
    assert_int_equal(behind.error, CN_E_SEQUENCE_UNKNOWN);
    assert_int_equal(waits.finals, 0);
    rig_done(rig);
}

/* One that lives after all waits for a slot like others, and is then sent whole. */
static void
known_by_the_store_waits_for_a_slot(void **state)
{
    struct rig *rig = rig_with("sequence_batching: {oldest: {max_candidate_sequences: 1}}");
    struct fake *worker = fake_attach(rig);
    struct client old;
    struct cn_answer here = {.flags = CN_ANSWER_FINAL | CN_ANSWER_HERE, .generation = 7};

    (void)state;
    client_send(rig, &old, "old", "5", CN_ROW_MUST_EXIST);
    settle(rig);
    fake_read(worker);
    here.job_id = worker->rows[worker->next++].job_id;
    fake_send(worker, &here);
    settle(rig);
    fake_read(worker);
    assert_int_equal(worker->n_rows, 2);
    assert_string_equal(worker->rows[1].body, "5");
    assert_int_equal(worker->rows[1].generation, 7);
    assert_int_equal(old.finals, 0);
    assert_int_equal(answer_all(rig, worker), 1);
    assert_string_equal(old.text, "5");
    rig_done(rig);
}

/* The least patient client of a sequence speaks for all of it, in the backlog only. */
static void
timeouts_count_in_the_backlog(void **state)
{
    struct rig *rig = rig_with("sequence_batching: {oldest: {max_candidate_sequences: 1}, "
                               "max_sequence_idle_microseconds: 900000000}");
    struct fake *worker = fake_attach(rig);
    struct client a, b, b2, a2;

    (void)state;
    client_prepare(&a, rig->loop, "a", "1", CN_ROW_START);
    a.job.timeout_us = 1000;
    cn_model_queue_submit(rig->queue, &a.job);
    client_send(rig, &b, "b", "1", CN_ROW_START);
    client_prepare(&b2, rig->loop, "b", "2", CN_ROW_END);
    b2.job.timeout_us = 4500;
    cn_model_queue_submit(rig->queue, &b2.job);
    settle(rig);
    pass(rig, 4);
    assert_int_equal(a.finals + b.finals + b2.finals, 0);
    pass(rig, 2);
    assert_int_equal(a.finals, 0);
    assert_int_equal(b.error, CN_E_UNAVAILABLE);
    assert_string_equal(b2.text, "timeout of the corresponding sequence has been expired");
    assert_int_equal(answer_all(rig, worker), 1);
    client_send(rig, &a2, "a", "1", CN_ROW_MUST_EXIST);
    settle(rig);
    assert_int_equal(answer_all(rig, worker), 1);
    assert_int_equal(rig_stats(rig).live_sequences, 1);
    rig_done(rig);
}

/* Who lived at a worker that went is served before those who never had a slot, and keeps one though he
 * has nothing to do. */
static void
slots_are_kept_over_a_death(void **state)
{
    struct rig *rig = rig_with("sequence_batching: {oldest: {max_candidate_sequences: 2}}");
    struct fake *worker = fake_attach(rig), *next;
    struct client a, b, c, a2, b2;

    (void)state;
    client_send(rig, &a, "a", "1", CN_ROW_START);
    client_send(rig, &b, "b", "1", CN_ROW_START);
    client_send(rig, &c, "c", "1", CN_ROW_START);
    settle(rig);
    answer_all(rig, worker);
    fake_die(worker, false, "killed");
    next = fake_attach(rig);
    settle(rig);
    fake_read(next);
    assert_int_equal(next->n_rows, 0);
    client_send(rig, &b2, "b", "2", CN_ROW_MUST_EXIST);
    settle(rig);
    assert_int_equal(answer_all(rig, next), 1);
    assert_int_equal(c.finals, 0);
    client_send(rig, &a2, "a", "2", CN_ROW_END);
    settle(rig);
    assert_int_equal(answer_all(rig, next), 2);
    assert_int_equal(b2.finals + a2.finals + c.finals, 3);
    rig_done(rig);
}

/* The idle clock runs from a step's arrival, whatever the worker takes for it. */
static void
idle_counts_from_arrival(void **state)
{
    struct rig *rig =
        rig_with("sequence_batching: {oldest: {}, max_sequence_idle_microseconds: 1000000}");
    struct fake *worker = fake_attach(rig);
    struct client a, queued, late, again;

    (void)state;
    client_send(rig, &a, "a", "1", CN_ROW_START);
    client_send(rig, &queued, "a", "2", CN_ROW_MUST_EXIST);
    settle(rig);
    pass(rig, 999);
    pass(rig, 2);
    client_send(rig, &late, "a", "3", CN_ROW_MUST_EXIST);
    settle(rig);
    assert_int_equal(late.error, CN_E_SEQUENCE_EXPIRED);
    client_send(rig, &again, "a", "4", CN_ROW_START);
    settle(rig);
    assert_int_equal(answer_all(rig, worker), 3);
    assert_int_equal(a.error + queued.error + again.error, 0);
    assert_int_equal(again.order, 4);
    assert_int_equal(worker->n_closes, 0);
    pass(rig, 1001);
    fake_read(worker);
    assert_int_equal(worker->n_closes, 1);
    assert_int_equal(worker->closes[0].reason, CN_CLOSE_IDLE);
    rig_done(rig);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_backlog_is_first_come_first_served),
        cmocka_unit_test(unknown_sequences_need_no_slot),
        cmocka_unit_test(known_by_the_store_waits_for_a_slot),
        cmocka_unit_test(timeouts_count_in_the_backlog),
        cmocka_unit_test(slots_are_kept_over_a_death),
        cmocka_unit_test(idle_counts_from_arrival),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
