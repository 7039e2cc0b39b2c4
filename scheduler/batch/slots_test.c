/* scheduler/batch/slots_test.c - tests sequences that need a slot: how many a worker may have,
 * which ones wait in the backlog, and which clocks run. */
#include "config/model/batching.h"
#include "scheduler/batch/policy.h"
#include "scheduler/test_support.h"

static struct cn_model_io *io;

/* `block` is the content of sequence_batching in the YAML. */
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
    assert_int_equal(cn_model_config_apply(&config, doc, NULL, NULL, &err), 0);
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

/* Answers one row as a worker does in which only the sequences of this list live. */
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

/* A worker has at most as many sequences as candidates. The next one gets a slot when one has
 * ended. */
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

/* A step that cannot open its sequence is looked up without a slot, and its client is told that
 * there is no such sequence. */
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

/* If the look-up finds the sequence alive, its step waits for a slot like others, and then the
 * whole row is sent. */
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

/* The client leaves while the question for its END is under way, so the END is never done: the
 * sequence lives on. */
static void
an_end_that_only_asked_ends_nothing(void **state)
{
    struct rig *rig = rig_with("sequence_batching: {oldest: {max_candidate_sequences: 1}}");
    struct fake *worker = fake_attach(rig);
    struct client end, later;
    struct cn_answer here = {.flags = CN_ANSWER_FINAL | CN_ANSWER_HERE, .generation = 7};

    (void)state;
    client_send(rig, &end, "old", "5", CN_ROW_MUST_EXIST | CN_ROW_END);
    client_send(rig, &later, "old", "6", CN_ROW_MUST_EXIST);
    settle(rig);
    fake_read(worker);
    cn_model_queue_cancel(rig->queue, &end.job);
    settle(rig);
    here.job_id = worker->rows[worker->next++].job_id;
    fake_send(worker, &here);
    settle(rig);
    fake_read(worker);
    assert_int_equal(end.finals, 1);
    assert_int_equal(worker->n_rows, 2);
    assert_string_equal(worker->rows[1].body, "6"); /* no more questions */
    assert_int_equal(worker->rows[1].generation, 7);
    assert_int_equal(answer_all(rig, worker), 1);
    assert_string_equal(later.text, "6");
    rig_done(rig);
}

/* The question whether a sequence lives runs no handler. So a worker that answers it with a piece
 * of a stream is broken, and the step goes to another worker. */
static void
a_question_has_no_stream(void **state)
{
    struct rig *rig = rig_with("sequence_batching: {oldest: {max_candidate_sequences: 1}}");
    struct fake *worker = fake_attach(rig);
    struct client old;
    struct cn_answer piece = {.flags = CN_ANSWER_LIVE, .body = CN_STR("x")};

    (void)state;
    client_send(rig, &old, "old", "5", CN_ROW_MUST_EXIST);
    settle(rig);
    fake_read(worker);
    piece.job_id = worker->rows[0].job_id;
    fake_send(worker, &piece);
    settle(rig);
    assert_int_equal(worker->lost, 1);
    assert_non_null(strstr(worker->why, "for which no handler runs"));
    assert_int_equal(old.pieces + old.finals, 0);
    fake_die(worker, false, "it broke the protocol");
    worker = fake_attach(rig);
    settle(rig);
    assert_int_equal(answer_all(rig, worker), 1);
    assert_string_equal(old.text, "5");
    rig_done(rig);
}

/* The shortest timeout of a sequence's steps counts for all its steps, but only in the backlog. */
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

/* A sequence whose worker is gone gets a slot before those that never had one, and a slot is kept
 * for it even while it has no step. */
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

/* Idle time counts from the arrival of a step, however long the worker needs for the step. */
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

/* Time in the backlog is not idle time: the idle clock begins when the sequence gets a slot. */
static void
the_backlog_is_not_idle(void **state)
{
    struct rig *rig = rig_with("sequence_batching: {oldest: {max_candidate_sequences: 1}, "
                               "max_sequence_idle_microseconds: 1000000}");
    struct fake *worker = fake_attach(rig);
    struct client a, b, a2, b2;

    (void)state;
    client_send(rig, &a, "a", "1", CN_ROW_START);
    client_send(rig, &b, "b", "1", CN_ROW_START);
    settle(rig);
    assert_int_equal(answer_all(rig, worker), 1);
    pass(rig, 900);
    client_send(rig, &a2, "a", "2", CN_ROW_MUST_EXIST);
    settle(rig);
    pass(rig, 900);
    assert_int_equal(answer_all(rig, worker), 1);
    pass(rig, 101); /* a has been idle */
    fake_read(worker);
    assert_int_equal(worker->n_closes, 1);
    fake_closed(worker, 1);
    settle(rig);
    assert_int_equal(answer_all(rig, worker), 1);
    pass(rig, 900);
    client_send(rig, &b2, "b", "2", CN_ROW_MUST_EXIST);
    settle(rig);
    assert_int_equal(answer_all(rig, worker), 1);
    assert_int_equal(b2.error + b.error, 0);
    rig_done(rig);
}

/* --- formed batches --- */

/* Returns the rows of the last batches as "a,-,c": ids, with "-" for padding and "|" between
 * batches. */
static const char *
rows_seen(struct fake *fake, unsigned from)
{
    static char text[400];
    size_t at = 0;
    bool joined = false;

    fake_read(fake);
    text[0] = '\0';
    for (unsigned i = from; i < fake->n_rows; i++) {
        const struct seen_row *row = &fake->rows[i];

        at += (size_t)snprintf(text + at, sizeof(text) - at, "%s%s",
                               i == from ? ""
                               : joined  ? ","
                                         : "|",
                               row->flags & CN_ROW_PAD ? "-"
                               : row->id[0]            ? row->id
                                                       : row->body);
        joined = row->flags & CN_ROW_JOINED;
    }
    assert_false(joined);
    return text;
}

/* Like answer_next(), but padding gets no answer. */
static void
answer_batch(struct rig *rig, struct fake *fake)
{
    unsigned end;

    fake_read(fake);
    for (end = fake->n_rows; fake->next < end; fake->next++) {
        struct cn_answer answer = answer_to(&fake->rows[fake->next]);

        if (!(fake->rows[fake->next].flags & CN_ROW_PAD))
            fake_send(fake, &answer);
    }
    settle(rig);
}

/* Each slot is a row. If a slot without work is below one with work, its row is padding. A worker
 * has one batch at a time. */
static void
slots_are_rows(void **state)
{
    struct rig *rig = rig_with("batchSize: 3\nsequence_batching: {direct: {}}");
    struct fake *worker = fake_attach(rig);
    struct client a, b, c, b2, c2, d, a2;
    unsigned from;

    (void)state;
    client_send(rig, &a, "a", "1", CN_ROW_START);
    client_send(rig, &b, "b", "1", CN_ROW_START);
    client_send(rig, &c, "c", "1", CN_ROW_START);
    client_send(rig, &c2, "c", "2", CN_ROW_MUST_EXIST);
    settle(rig);
    assert_string_equal(rows_seen(worker, 0), "a,b,c");
    client_send(rig, &b2, "b", "2", CN_ROW_MUST_EXIST);
    settle(rig);
    assert_string_equal(rows_seen(worker, 0), "a,b,c");
    from = worker->n_rows;
    answer_batch(rig, worker);
    assert_string_equal(rows_seen(worker, from), "-,b,c");
    client_send(rig, &d, "d", "1", CN_ROW_START);
    client_send(rig, &a2, "a", "2", CN_ROW_END);
    from = worker->n_rows;
    answer_batch(rig, worker);
    assert_string_equal(rows_seen(worker, from), "a");
    from = worker->n_rows;
    answer_batch(rig, worker);
    assert_string_equal(rows_seen(worker, from), "d");
    answer_batch(rig, worker);
    assert_int_equal(a2.finals + b2.finals + c2.finals + d.finals, 4);
    rig_done(rig);
}

/* The rows of a dead worker are sent again one by one, without padding, and no slot is lost. */
static void
a_formed_batch_survives_its_worker(void **state)
{
    struct rig *rig = rig_with("sequence_batching: {direct: {}}");
    struct fake *worker = fake_attach(rig), *next;
    struct client a, b, c, a2, b2;

    (void)state;
    client_send(rig, &a, "a", "1", CN_ROW_START);
    client_send(rig, &b, "b", "1", CN_ROW_START);
    client_send(rig, &c, "c", "1", CN_ROW_START);
    settle(rig);
    assert_string_equal(rows_seen(worker, 0), "a,b");
    fake_die(worker, false, "killed");
    next = fake_attach(rig);
    settle(rig);
    assert_string_equal(rows_seen(next, 0), "a");
    answer_batch(rig, next);
    assert_string_equal(rows_seen(next, 0), "a|b");
    answer_batch(rig, next);
    client_send(rig, &a2, "a", "2", CN_ROW_END);
    client_send(rig, &b2, "b", "2", CN_ROW_MUST_EXIST);
    settle(rig);
    assert_string_equal(rows_seen(next, 2), "a,b");
    answer_batch(rig, next);
    assert_string_equal(rows_seen(next, 4), "c");
    answer_batch(rig, next);
    assert_int_equal(c.finals, 1);
    rig_done(rig);
}

/* A sequence that waited for a batch of a worker that died is served before those that never had a
 * slot. */
static void
who_waited_at_a_dead_worker_goes_first(void **state)
{
    struct rig *rig =
        rig_with("batchSize: 3\nsequence_batching: {oldest: {max_candidate_sequences: 2, "
                 "max_queue_delay_microseconds: 5000}}");
    struct fake *worker = fake_attach(rig), *next;
    struct client a, b, c, a2, b2;

    (void)state;
    client_send(rig, &a, "a", "1", CN_ROW_START);
    client_send(rig, &b, "b", "1", CN_ROW_START);
    client_send(rig, &c, "c", "1", CN_ROW_START);
    settle(rig);
    pass(rig, 5);
    answer_all(rig, worker);
    client_send(rig, &a2, "a", "2", CN_ROW_MUST_EXIST);
    client_send(rig, &b2, "b", "2", CN_ROW_END);
    settle(rig);
    fake_die(worker, true, "killed");
    next = fake_attach(rig);
    pass(rig, 5);
    assert_string_equal(rows_seen(next, 0), "a,b");
    answer_batch(rig, next);
    assert_string_equal(rows_seen(next, 0), "a,b|c");
    answer_batch(rig, next);
    assert_int_equal(a2.finals + b2.finals + c.finals, 3);
    rig_done(rig);
}

/* A description has no sequence: it needs no slot, and none is given to it. */
static void
descriptions_need_no_slot(void **state)
{
    struct rig *rig = rig_with("batchSize: 1\nsequence_batching: {direct: {}}");
    struct fake *worker = fake_attach(rig);
    struct client a, about;

    (void)state;
    client_send(rig, &a, "a", "1", CN_ROW_START);
    settle(rig);
    answer_batch(rig, worker);
    client_send(rig, &about, "", "?", CN_ROW_DESCRIBE);
    settle(rig);
    answer_batch(rig, worker);
    assert_string_equal(about.text, "?");
    rig_done(rig);
}

/* Preferred sizes come first, then a full batch, then rows that have waited for long enough. */
static void
batches_are_filled_by_rules(void **state)
{
    static const struct {
        uint32_t preferred[2], rows[5], take; /* rows end with 0 */
        uint64_t waited_ms;
    } cases[] = {
        {{0}, {1, 1, 0}, 0, 9},    {{0}, {1, 1, 0}, 2, 10},         {{0}, {1, 1, 1, 1, 0}, 4, 0},
        {{2}, {1, 1, 1, 0}, 2, 0}, {{2, 3}, {1, 1, 1, 1, 0}, 3, 0}, {{3}, {1, 1, 0}, 0, 9},
        {{3}, {2, 2, 0}, 2, 0},    {{3}, {2, 3, 0}, 1, 0},          {{0}, {9, 1, 0}, 1, 0},
        {{4}, {3, 1, 0}, 2, 0},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct cn_batching batching = {.preferred = {cases[i].preferred[0], cases[i].preferred[1]},
                                       .n_preferred = 2};
        struct cn_policy policy = {.batching = &batching, .max_rows = 4, .delay_ms = 10};
        struct cn_policy_fill fill = {.n = 0};

        for (const uint32_t *rows = cases[i].rows; *rows && !fill.full; rows++)
            if (!cn_policy_add(&policy, &fill, *rows))
                break;
        if (cn_policy_take(&policy, &fill, 100, 100 + cases[i].waited_ms) != cases[i].take)
            fail_msg("case %zu takes %u", i,
                     cn_policy_take(&policy, &fill, 100, 100 + cases[i].waited_ms));
    }
}

/* Rows whose shapes differ are not sent as one batch. If all shapes fit, the worker forms the batch
 * from whatever has arrived. */
static void
oldest_keeps_shapes_apart(void **state)
{
    static const struct {
        const char *block;
        bool forms;
    } cases[] = {
        {"max_batch_size: 2\ninput: [{name: A, data_type: TYPE_INT32, dims: [-1]}]\n", true},
        {"max_batch_size: 2\ninput: [{name: A, data_type: TYPE_INT32, dims: [2]}]\n", false},
        {"max_batch_size: 2\ninput: [{name: A, data_type: TYPE_INT32, dims: [-1], "
         "allow_ragged_batch: true}]\n",
         false},
        {"max_batch_size: 2\ninput: [{name: A, data_type: TYPE_INT32, dims: [2], "
         "optional: true}]\n",
         true},
        {"max_batch_size: 0\ninput: [{name: A, data_type: TYPE_INT32, dims: [-1]}]\n", false}};

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct cn_batching oldest = {.kind = CN_BATCHING_OLDEST};
        struct cn_model_config config;
        struct cn_yaml_doc *doc;
        struct cn_policy policy;
        char text[400];

        snprintf(text, sizeof(text), "%soutput: [{name: B, data_type: TYPE_INT32, dims: [1]}]\n",
                 cases[i].block);
        cn_model_config_init(&config);
        assert_int_equal(cn_yaml_parse("m.yaml", cn_str_from(text), &doc, NULL), 0);
        assert_int_equal(cn_model_io_parse(doc, &io, NULL), 0);
        cn_yaml_destroy(doc);
        io->batching = &oldest;
        config.io = io;
        config.sequence_batching = true;
        cn_policy_init(&policy, &config);
        assert_int_equal(policy.forms, cases[i].forms);
        cn_model_io_unref(io);
    }
}

/* With `direct` and without minimum_slot_utilization nothing waits, however long the delay is. */
static void
a_delay_needs_a_share_of_slots(void **state)
{
    struct rig *rig = rig_with("sequence_batching: {direct: {max_queue_delay_microseconds: 5000}}");
    struct fake *worker = fake_attach(rig);
    struct client a;

    (void)state;
    client_send(rig, &a, "a", "1", CN_ROW_START);
    settle(rig);
    assert_string_equal(rows_seen(worker, 0), "a");
    answer_batch(rig, worker);
    rig_done(rig);
}

/* Requests are served by priority level, then in the order of their arrival. One that has waited
 * for too long is refused, or goes last. */
static void
levels_have_their_order(void **state)
{
    struct rig *rig = rig_with("batchSize: 1\ndynamic_batching: {priority_levels: 2, "
                               "default_priority_level: 2, default_queue_policy: {timeout_action: "
                               "DELAY, default_timeout_microseconds: 5000}, "
                               "priority_queue_policy: {1: {max_queue_size: 1, "
                               "default_timeout_microseconds: 3000}}}");
    struct fake *worker = fake_attach(rig);
    struct client clients[5];
    static const char *const bodies[] = {"a", "b", "c", "d", "e"};
    unsigned i;

    (void)state;
    for (i = 0; i < 5; i++) {
        client_prepare(&clients[i], rig->loop, "", bodies[i], 0);
        clients[i].job.priority = i == 2 || i == 3;
        if (i == 4)
            pass(rig, 4); /* c has waited for too long, b not yet */
        cn_model_queue_submit(rig->queue, &clients[i].job);
        settle(rig);
    }
    assert_int_equal(clients[2].error, CN_E_UNAVAILABLE);
    assert_string_equal(clients[2].text, "Request timeout expired");
    assert_string_equal(clients[3].text, "[request id: ] Exceeds maximum queue size");
    pass(rig, 2);
    for (i = 0; i < 3; i++)
        answer_batch(rig, worker);
    assert_string_equal(rows_seen(worker, 0), "a|e|b");
    rig_done(rig);
}

/* Begins an operation that writes the record of sequence "a". */
struct write {
    struct cn_sequence_query order;
    bool done;
};

static void
note_written(struct cn_sequence_query *order, const struct cn_query_result *result)
{
    (void)result;
    cn_container_of(order, struct write, order)->done = true;
}

static void
write_begin(struct rig *rig, struct write *write)
{
    *write = (struct write){.order = {.query = {.op = CN_QUERY_WRITE,
                                                .flags = CN_QUERY_REPLACE,
                                                .sequence_id = CN_STR("a"),
                                                .record = CN_STR("bytes")},
                                      .on_done = note_written}};
    cn_model_queue_query(rig->queue, &write->order);
    settle(rig);
}

/* The worker has written the record. */
static void
write_end(struct rig *rig, struct fake *worker, const struct write *write)
{
    struct cn_sequence_info info = {
        .id = CN_STR("a"), .generation = 9, .opened_wall_ms = cn_wall_ms()};
    struct cn_query_result result = {.n_sequences = 1, .sequences = &info};
    struct cn_buf buf;

    fake_read(worker);
    assert_int_equal(worker->n_queries, 1);
    result.query_id = worker->queries[0].id;
    cn_buf_init(&buf, 0);
    cn_frame_put_result(&buf, &result);
    fake_write(worker, &buf);
    settle(rig);
    assert_true(write->done);
}

/* The total clock runs out while a worker writes the record and steps wait for the writing. The
 * steps then find the record that was written, which has new clocks. */
static void
a_write_outlives_the_clock(void **state)
{
    struct rig *rig = rig_with("sequenceTimeoutMSec: 9000\nsequence_batching: {oldest: "
                               "{max_candidate_sequences: 1}, "
                               "max_sequence_idle_microseconds: 60000000}");
    struct fake *worker = fake_attach(rig);
    struct client first, waits;
    struct write write;

    (void)state;
    client_send(rig, &first, "a", "1", CN_ROW_START);
    settle(rig);
    assert_int_equal(answer_all(rig, worker), 1);
    write_begin(rig, &write);
    client_send(rig, &waits, "a", "2", 0);
    settle(rig);
    pass(rig, 10000);
    assert_int_equal(waits.finals, 0);
    write_end(rig, worker, &write);
    assert_int_equal(answer_all(rig, worker), 1);
    assert_int_equal(waits.error, 0);
    rig_done(rig);
}

/* A step comes while its sequence is being closed, and its client leaves again. The idle clock that
 * the step began ends before the worker has closed the sequence. Closing continues as if the step
 * had not come, and the next step opens the sequence anew. */
static void
a_step_that_left_does_not_close_twice(void **state)
{
    struct rig *rig =
        rig_with("sequence_batching: {oldest: {}, max_sequence_idle_microseconds: 1000000}");
    struct fake *worker = fake_attach(rig);
    struct client a, gone, again;

    (void)state;
    client_send(rig, &a, "a", "1", CN_ROW_START);
    settle(rig);
    assert_int_equal(answer_all(rig, worker), 1);
    pass(rig, 1001);
    fake_read(worker);
    assert_int_equal(worker->n_closes, 1);
    client_send(rig, &gone, "a", "2", CN_ROW_START);
    settle(rig);
    cn_model_queue_cancel(rig->queue, &gone.job);
    settle(rig);
    assert_int_equal(gone.error, CN_E_CANCELLED);
    pass(rig, 1001);
    fake_closed(worker, 1);
    settle(rig);
    fake_read(worker);
    assert_int_equal(worker->n_closes, 1);
    client_send(rig, &again, "a", "3", CN_ROW_START);
    settle(rig);
    assert_int_equal(answer_all(rig, worker), 1);
    assert_int_equal(again.error, 0);
    rig_done(rig);
}

/* The idle clock of such a step may also end while the sequence's record is written. */
static void
a_step_that_left_does_not_close_what_is_written(void **state)
{
    struct rig *rig =
        rig_with("sequence_batching: {oldest: {}, max_sequence_idle_microseconds: 1000000}");
    struct fake *worker = fake_attach(rig);
    struct client a, gone, again;
    struct write write;

    (void)state;
    client_send(rig, &a, "a", "1", CN_ROW_START);
    settle(rig);
    assert_int_equal(answer_all(rig, worker), 1);
    write_begin(rig, &write);
    client_send(rig, &gone, "a", "2", CN_ROW_MUST_EXIST);
    settle(rig);
    cn_model_queue_cancel(rig->queue, &gone.job);
    pass(rig, 1001);
    write_end(rig, worker, &write);
    client_send(rig, &again, "a", "3", CN_ROW_MUST_EXIST);
    settle(rig);
    assert_int_equal(answer_all(rig, worker), 1);
    assert_int_equal(again.error, 0);
    pass(rig, 1001);
    fake_read(worker);
    assert_int_equal(worker->n_closes, 1);
    rig_done(rig);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slots_are_rows),
        cmocka_unit_test(a_formed_batch_survives_its_worker),
        cmocka_unit_test(descriptions_need_no_slot),
        cmocka_unit_test(batches_are_filled_by_rules),
        cmocka_unit_test(levels_have_their_order),
        cmocka_unit_test(the_backlog_is_first_come_first_served),
        cmocka_unit_test(unknown_sequences_need_no_slot),
        cmocka_unit_test(known_by_the_store_waits_for_a_slot),
        cmocka_unit_test(an_end_that_only_asked_ends_nothing),
        cmocka_unit_test(a_question_has_no_stream),
        cmocka_unit_test(timeouts_count_in_the_backlog),
        cmocka_unit_test(slots_are_kept_over_a_death),
        cmocka_unit_test(who_waited_at_a_dead_worker_goes_first),
        cmocka_unit_test(idle_counts_from_arrival),
        cmocka_unit_test(the_backlog_is_not_idle),
        cmocka_unit_test(oldest_keeps_shapes_apart),
        cmocka_unit_test(a_delay_needs_a_share_of_slots),
        cmocka_unit_test(a_write_outlives_the_clock),
        cmocka_unit_test(a_step_that_left_does_not_close_twice),
        cmocka_unit_test(a_step_that_left_does_not_close_what_is_written),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
