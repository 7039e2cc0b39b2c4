/* scheduler/queue/stream_test.c - tests rows that stream: their place at the worker, their
 * sequence, their credit, and their end. */
#include <stdlib.h>

#include "scheduler/test_support.h"

static void
small_window(struct cn_model_config *config)
{
    config->stream_bytes = 400;
    config->stream_max = 2;
    config->response_timeout_s = 10;
}

static void
with_clocks(struct cn_model_config *config)
{
    config->sequence_max_idle_ms = 1000;
    config->sequence_timeout_ms = 5000;
    config->max_num_sequence = 1;
}

/* Sends a piece of the row's stream, or a yield without a piece if it is NULL. `more` has flags
 * besides LIVE. */
static void
stream(struct rig *rig, struct fake *fake, unsigned row, const char *body, uint32_t more)
{
    struct cn_answer answer = answer_to(&fake->rows[row]);

    answer.flags = (answer.flags & ~(uint32_t)CN_ANSWER_FINAL) | CN_ANSWER_LIVE | more;
    answer.body = cn_str_from(body);
    fake_send(fake, &answer);
    settle(rig);
    fake_read(fake);
}

/* Sends a step and lets it arrive. */
static void
go(struct rig *rig, struct fake *fake, struct client *client, const char *id, const char *body,
   uint32_t flags)
{
    client_send(rig, client, id, body, flags);
    settle(rig);
    fake_read(fake);
}

/* The client gets what the handler sent, piece by piece. A yield without a piece concerns only the
 * scheduler. */
static void
pieces_are_passed_on_in_order(void **state)
{
    struct rig *rig = rig_create(NULL);
    struct fake *fake = fake_attach(rig);
    struct client client;

    (void)state;
    go(rig, fake, &client, "s", "x", 0);
    stream(rig, fake, 0, NULL, 0);
    assert_int_equal(client.pieces, 0);
    stream(rig, fake, 0, "a", 0);
    stream(rig, fake, 0, "b", 0);
    assert_int_equal(client.pieces, 2);
    assert_int_equal(client.finals, 0);
    stream(rig, fake, 0, "c", CN_ANSWER_FINAL);
    assert_string_equal(client.all, "abc");
    assert_int_equal(client.finals, 1);
    rig_destroy(rig);
}

/* A row that streams does not count among the 2 x batchSize rows, because slow readers must not
 * keep a worker from other work. stream.max bounds streams. */
static void
streams_take_no_place_among_rows(void **state)
{
    struct rig *rig = rig_create(small_window);
    struct fake *fake = fake_attach(rig);
    struct client clients[5];
    unsigned i;

    (void)state;
    for (i = 0; i < 5; i++)
        client_send(rig, &clients[i], (char[]){'a' + (char)i, 0}, "x", 0);
    settle(rig);
    fake_read(fake);
    assert_int_equal(fake->n_rows, 2);
    stream(rig, fake, 0, "p", 0);
    assert_int_equal(fake->n_rows, 3);
    stream(rig, fake, 1, "p", 0);
    assert_int_equal(fake->n_rows, 3); /* two rows stream, so the worker gets no more */
    stream(rig, fake, 1, "q", CN_ANSWER_FINAL);
    assert_int_equal(fake->n_rows, 4);
    rig_destroy(rig);
}

/* Without continuousBatching the next step waits for the whole answer, because the stream has the
 * state until then. */
static void
next_step_waits_for_a_stream(void **state)
{
    struct rig *rig = rig_create(NULL);
    struct fake *fake = fake_attach(rig);
    struct client first, second;

    (void)state;
    go(rig, fake, &first, "s", "1", 0);
    stream(rig, fake, 0, "p", 0);
    go(rig, fake, &second, "s", "2", 0);
    assert_int_equal(fake->n_rows, 1);
    assert_int_equal(fake->n_cancels, 0);
    stream(rig, fake, 0, "q", CN_ANSWER_FINAL);
    assert_int_equal(fake->n_rows, 2);
    answer_next(rig, fake); /* rows[0] was answered already, so a second answer loses the worker */
    assert_int_equal(fake->lost, 1);
    rig_destroy(rig);
}

/* A stream whose step is committed holds up no other step. The next step gets the generation that
 * the first one opened, and may be answered before the stream ends. */
static void
committed_stream_is_overtaken(void **state)
{
    struct rig *rig = rig_create(NULL);
    struct fake *fake = fake_attach(rig);
    struct client first, second;
    struct cn_answer answer;

    (void)state;
    go(rig, fake, &first, "s", "1", 0);
    go(rig, fake, &second, "s", "2", 0);
    assert_int_equal(fake->n_rows, 1);
    stream(rig, fake, 0, "p", CN_ANSWER_COMMITTED | CN_ANSWER_OPENED);
    assert_int_equal(fake->n_rows, 2);
    assert_int_equal(fake->rows[1].generation, 7);
    assert_false(fake->rows[1].flags & CN_ROW_RELOAD);
    assert_int_equal(rig_stats(rig).opened_sequences, 1);
    answer = answer_to(&fake->rows[1]);
    fake_send(fake, &answer);
    settle(rig);
    assert_int_equal(second.order, 1);
    assert_int_equal(first.finals, 0);
    stream(rig, fake, 0, "q", CN_ANSWER_FINAL | CN_ANSWER_OPENED);
    assert_string_equal(first.all, "pq");
    assert_int_equal(rig_stats(rig).opened_sequences, 1); /* it was reported once */
    assert_int_equal(rig_stats(rig).in_flight_jobs, 0);
    rig_destroy(rig);
}

/* END, START and DELETE must not wait for a handler that streams for an hour. The handler is told
 * once to stop. */
static void
stream_is_told_of_the_end(void **state)
{
    static const uint32_t flags[] = {CN_ROW_END, CN_ROW_START};
    unsigned i;

    (void)state;
    for (i = 0; i < 2; i++) {
        struct rig *rig = rig_create(NULL);
        struct fake *fake = fake_attach(rig);
        struct client first, second, third;

        go(rig, fake, &first, "s", "1", 0);
        stream(rig, fake, 0, "p", 0);
        go(rig, fake, &second, "s", "2", flags[i]);
        go(rig, fake, &third, "s", "3", flags[i]);
        assert_int_equal(fake->n_rows, 1);
        assert_int_equal(fake->n_cancels, 1);
        assert_int_equal(fake->cancels[0], fake->rows[0].job_id);
        assert_int_equal(fake->why_cancelled[0], CN_STOP_ENDED);
        stream(rig, fake, 0, "q", CN_ANSWER_FINAL);
        assert_int_equal(first.error, 0);
        assert_int_equal(fake->n_rows, 2);
        rig_destroy(rig);
    }
}

static void
deleted(struct cn_sequence_delete *order)
{
    (void)order;
}

static void
stream_is_told_of_deletion(void **state)
{
    struct rig *rig = rig_create(NULL);
    struct fake *fake = fake_attach(rig);
    struct cn_sequence_delete order = {.sequence_id = CN_STR("s"), .on_done = deleted};
    struct client client;

    (void)state;
    go(rig, fake, &client, "s", "1", 0);
    stream(rig, fake, 0, "p", 0);
    cn_model_queue_delete_sequence(rig->queue, &order);
    settle(rig);
    fake_read(fake);
    assert_int_equal(fake->n_cancels, 1);
    assert_int_equal(fake->n_closes, 0); /* the CLOSE comes after the step, as always */
    stream(rig, fake, 0, "q", CN_ANSWER_FINAL);
    assert_int_equal(fake->n_closes, 1);
    fake_closed(fake, 1);
    settle(rig);
    rig_destroy(rig);
}

/* A stream is not idle time, but it ends with the total time of its sequence. A committed stream
 * keeps no place when its sequence is over. */
static void
clocks_of_a_sequence_that_streams(void **state)
{
    struct rig *rig = rig_create(with_clocks);
    struct fake *fake = fake_attach(rig);
    struct client first, next;

    (void)state;
    go(rig, fake, &first, "s", "1", 0);
    stream(rig, fake, 0, "p", CN_ANSWER_COMMITTED);
    pass(rig, 3000);
    stream(rig, fake, 0, "q", 0);
    fake_read(fake);
    assert_int_equal(fake->n_closes, 0);
    assert_int_equal(rig_stats(rig).live_sequences, 1);
    pass(rig, 2100); /* the total time is over */
    fake_read(fake);
    assert_int_equal(fake->n_closes, 1);
    assert_int_equal(fake->closes[0].reason, CN_CLOSE_LIFETIME);
    fake_closed(fake, 1);
    settle(rig);
    assert_int_equal(rig_stats(rig).live_sequences, 0);
    go(rig, fake, &next, "t", "1", 0); /* the place of the sequence is free */
    assert_int_equal(next.finals, 0);
    stream(rig, fake, 0, "r", CN_ANSWER_FINAL); /* the first stream ends after its sequence */
    assert_int_equal(first.finals, 1);
    rig_destroy(rig);
}

/* The idle clock starts when the stream ends. */
static void
idle_clock_starts_after_the_stream(void **state)
{
    struct rig *rig = rig_create(with_clocks);
    struct fake *fake = fake_attach(rig);
    struct client first;

    (void)state;
    go(rig, fake, &first, "s", "1", 0);
    stream(rig, fake, 0, "p", CN_ANSWER_COMMITTED);
    pass(rig, 1500);
    stream(rig, fake, 0, "q", CN_ANSWER_FINAL);
    pass(rig, 900);
    fake_read(fake);
    assert_int_equal(fake->n_closes, 0);
    pass(rig, 200);
    fake_read(fake);
    assert_int_equal(fake->n_closes, 1);
    assert_int_equal(fake->closes[0].reason, CN_CLOSE_IDLE);
    rig_destroy(rig);
}

/* When a client has read a quarter of the window, the worker gets that credit back, but only for
 * rows that stream. */
static void
credit_goes_back_in_steps(void **state)
{
    struct rig *rig = rig_create(small_window);
    struct fake *fake = fake_attach(rig);
    struct client client;

    (void)state;
    go(rig, fake, &client, "s", "1", 0);
    stream(rig, fake, 0, "p", 0);
    cn_model_queue_consumed(&client.job, 99);
    settle(rig);
    fake_read(fake);
    assert_int_equal(fake->credit, 0);
    cn_model_queue_consumed(&client.job, 1);
    cn_model_queue_consumed(&client.job, 250);
    settle(rig);
    fake_read(fake);
    assert_int_equal(fake->credit, 350);
    stream(rig, fake, 0, "q", CN_ANSWER_FINAL);
    rig_destroy(rig);
}

/* An answer in pieces breaks off with its worker, and the next worker streams it. What the client
 * has already is not sent again, and nobody reports it a second time: it counts as taken. */
static void
pieces_that_are_passed_over_count_as_taken(void **state)
{
    struct rig *rig = rig_create(small_window);
    struct fake *fake = fake_attach(rig);
    struct client client;
    struct cn_answer piece;

    (void)state;
    go(rig, fake, &client, "s", "1", 0);
    piece = answer_to(&fake->rows[0]);
    piece.flags = 0;
    piece.body = CN_STR("abc");
    fake_send(fake, &piece);
    settle(rig);
    assert_int_equal(client.pieces, 1);
    fake_die(fake, false, NULL);
    fake = fake_attach(rig);
    settle(rig);
    fake_read(fake);
    stream(rig, fake, 0, "ab", 0);
    assert_int_equal(fake->credit, 2);
    stream(rig, fake, 0, "cde", 0);
    assert_int_equal(fake->credit, 3);
    stream(rig, fake, 0, "f", CN_ANSWER_FINAL);
    assert_string_equal(client.all, "abcdef");
    rig_destroy(rig);
}

/* A worker dies while a row streams. The pieces that the client has cannot be made again, so the
 * stream breaks off and is not sent to another worker. A row without a sent piece runs again like
 * any other. */
static void
death_in_mid_stream_is_told(void **state)
{
    struct rig *rig = rig_create(small_window);
    struct fake *fake = fake_attach(rig), *other;
    struct client said, silent, behind;

    (void)state;
    go(rig, fake, &said, "s", "1", 0);
    go(rig, fake, &silent, "t", "1", 0);
    stream(rig, fake, 0, "p", 0);
    stream(rig, fake, 1, NULL, 0);
    go(rig, fake, &behind, "s", "2", 0);
    fake_die(fake, false, "segmentation fault");
    settle(rig);
    assert_int_equal(said.error, CN_E_WORKER_DIED);
    assert_string_equal(said.text,
                        "worker 1 died while it streamed this answer: segmentation fault");
    assert_int_equal(silent.finals, 0);
    other = fake_attach(rig);
    settle(rig);
    answer_all(rig, other);
    assert_int_equal(other->n_rows, 2);
    assert_true(other->rows[0].flags & CN_ROW_REDELIVERED);
    assert_int_equal(silent.error, 0);
    assert_int_equal(behind.error, 0);
    rig_destroy(rig);
}

/* The handler was told to end its stream, and its worker dies before the client has anything of it.
 * The step runs again, and the next worker is told, too. */
static void
end_is_asked_of_the_next_worker(void **state)
{
    struct rig *rig = rig_create(NULL);
    struct fake *fake = fake_attach(rig), *other;
    struct client first, second;

    (void)state;
    go(rig, fake, &first, "s", "1", 0);
    stream(rig, fake, 0, NULL, 0);
    go(rig, fake, &second, "s", "2", CN_ROW_START);
    assert_int_equal(fake->n_cancels, 1);
    fake_die(fake, false, "killed");
    other = fake_attach(rig);
    settle(rig);
    fake_read(other);
    assert_string_equal(other->rows[0].body, "1");
    assert_int_equal(other->n_cancels, 0);
    stream(rig, other, 0, NULL, 0);
    assert_int_equal(other->n_cancels, 1);
    assert_int_equal(other->cancels[0], other->rows[0].job_id);
    assert_int_equal(other->why_cancelled[0], CN_STOP_ENDED);
    stream(rig, other, 0, "p", CN_ANSWER_FINAL);
    assert_int_equal(first.error, 0);
    assert_string_equal(other->rows[1].body, "2");
    rig_destroy(rig);
}

/* The same happens if the step was committed, but its sequence continues. */
static void
death_of_an_overtaken_stream(void **state)
{
    struct rig *rig = rig_create(NULL);
    struct fake *fake = fake_attach(rig), *other;
    struct client first, second;

    (void)state;
    go(rig, fake, &first, "s", "1", 0);
    stream(rig, fake, 0, NULL, CN_ANSWER_COMMITTED); /* no piece, but a commit */
    go(rig, fake, &second, "s", "2", 0);
    assert_int_equal(fake->n_rows, 2);
    fake_die(fake, false, "killed");
    settle(rig);
    assert_int_equal(first.error, CN_E_WORKER_DIED);
    other = fake_attach(rig);
    settle(rig);
    answer_all(rig, other);
    assert_int_equal(second.error, 0);
    assert_int_equal(other->rows[0].generation, 7);
    assert_int_equal(rig_stats(rig).live_sequences, 1);
    rig_destroy(rig);
}

/* A row that may have killed a worker runs alone. Streams that take hours cannot delay it, because
 * they are never sent again. */
static void
suspects_do_not_wait_for_streams(void **state)
{
    struct rig *rig = rig_create(NULL);
    struct fake *fake = fake_attach(rig), *other = fake_attach(rig);
    struct client streams, suspect;

    (void)state;
    go(rig, fake, &streams, "s", "1", 0);
    stream(rig, fake, 0, "p", 0);
    go(rig, other, &suspect, "t", "1", 0);
    assert_int_equal(other->n_rows, 1);
    fake_die(other, false, "killed");
    settle(rig);
    fake_read(fake);
    assert_int_equal(fake->n_rows, 2);
    assert_string_equal(fake->rows[1].id, "t");
    rig_destroy(rig);
}

static void
tell_stats(struct rig *rig, struct fake *fake, uint64_t streams)
{
    struct cn_worker_stats stats = {.streams = streams};
    struct cn_buf buf;

    cn_buf_init(&buf, 0);
    cn_frame_put_stats(&buf, &stats);
    fake_write(fake, &buf);
    settle(rig);
}

/* A worker whose streams all wait for slow clients may be silent for long, as long as it sends
 * statistics. If it does not even send those, it hangs. */
static void
paused_streams_are_no_hung_worker(void **state)
{
    struct rig *rig = rig_create(small_window);
    struct fake *fake = fake_attach(rig);
    struct client client;
    unsigned i;

    (void)state;
    go(rig, fake, &client, "s", "1", 0);
    stream(rig, fake, 0, "p", 0);
    for (i = 0; i < 30; i++) {
        pass(rig, 1000);
        tell_stats(rig, fake, 1);
    }
    assert_int_equal(fake->overdue, 0);
    for (i = 0; i < 12; i++) {
        pass(rig, 1000);
        tell_stats(rig, fake, 0); /* statistics say nothing about rows that should be answered */
    }
    assert_int_equal(fake->overdue, 1);
    rig_destroy(rig);
}

/* Steps that wait behind a stream are refused like others when the model is removed. */
static void
waiting_behind_a_stream_is_refused_at_the_end(void **state)
{
    struct rig *rig = rig_create(NULL);
    struct fake *fake = fake_attach(rig);
    struct client first, second;

    (void)state;
    go(rig, fake, &first, "s", "1", 0);
    stream(rig, fake, 0, "p", 0);
    go(rig, fake, &second, "s", "2", 0);
    cn_model_queue_close(rig->queue, CN_E_DRAINING, "going", true, rig_empty, rig);
    settle(rig);
    assert_int_equal(second.error, CN_E_DRAINING);
    assert_int_equal(first.finals, 0);
    fake_read(fake);
    assert_int_equal(fake->n_cancels, 1); /* the stream is told to end */
    assert_int_equal(fake->why_cancelled[0], CN_STOP_ENDED);
    stream(rig, fake, 0, "q", CN_ANSWER_FINAL);
    assert_int_equal(first.error, 0);
    rig_destroy(rig);
}

/* A row that has streamed ran in this version, so its last piece cannot say that the sequence lives
 * in another one. */
static void
stream_does_not_end_elsewhere(void **state)
{
    struct rig *rig = rig_create(NULL);
    struct fake *fake = fake_attach(rig);
    struct client client;

    (void)state;
    go(rig, fake, &client, "s", "1", 0);
    stream(rig, fake, 0, "p", 0);
    stream(rig, fake, 0, "q", CN_ANSWER_FINAL | CN_ANSWER_ELSEWHERE);
    assert_int_equal(fake->lost, 1);
    assert_non_null(strstr(fake->why, "which streams"));
    assert_int_equal(client.finals, 0);
    fake_die(fake, false, "it broke the protocol");
    settle(rig);
    assert_int_equal(client.error, CN_E_WORKER_DIED);
    rig_destroy(rig);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pieces_are_passed_on_in_order),
        cmocka_unit_test(streams_take_no_place_among_rows),
        cmocka_unit_test(next_step_waits_for_a_stream),
        cmocka_unit_test(committed_stream_is_overtaken),
        cmocka_unit_test(stream_is_told_of_the_end),
        cmocka_unit_test(stream_is_told_of_deletion),
        cmocka_unit_test(clocks_of_a_sequence_that_streams),
        cmocka_unit_test(idle_clock_starts_after_the_stream),
        cmocka_unit_test(credit_goes_back_in_steps),
        cmocka_unit_test(pieces_that_are_passed_over_count_as_taken),
        cmocka_unit_test(death_in_mid_stream_is_told),
        cmocka_unit_test(end_is_asked_of_the_next_worker),
        cmocka_unit_test(death_of_an_overtaken_stream),
        cmocka_unit_test(suspects_do_not_wait_for_streams),
        cmocka_unit_test(paused_streams_are_no_hung_worker),
        cmocka_unit_test(waiting_behind_a_stream_is_refused_at_the_end),
        cmocka_unit_test(stream_does_not_end_elsewhere),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
