/* worker/worker_test.c - tests what a worker promises about sequences, with a handler made of C.
 *
 * The worker runs in a thread, so that the test moves its clock.
 */
#include "worker/test_client.h"

#include <poll.h>

#include "core/log/log.h"
#include "core/time/clock.h"

static bool
has(unsigned flags, unsigned flag)
{
    return flags & flag;
}

#define expect_body(c, job, id, cmd, flags, wanted)                                                \
    do {                                                                                           \
        struct got expect_got = client_step(c, job, id, cmd, flags, 0);                            \
        assert_string_equal(expect_got.body, wanted);                                              \
        assert_int_equal(expect_got.code, 0);                                                      \
    } while (0)

/* A model that cannot run gives the reason before it ends, and the operator sees it in the
 * description. */
static void
load_errors_are_told(void **state)
{
    struct client *c = *state;

    c->load.runtime = "cobol";
    assert_int_equal(client_start(c, false), CN_E_LOAD_FAILED);
    assert_int_equal(client_stop(c), 1);
    c->load.runtime = "fake";
    c->load.handler = "broken";
    assert_int_equal(client_start(c, false), CN_E_LOAD_FAILED);
    assert_int_equal(client_stop(c), 1);
    c->load.handler = "h";
    c->load.store_dir = "/nonexistent/store";
    assert_int_equal(client_start(c, false), CN_E_STATE_STORE);
    assert_int_equal(client_stop(c), 1);
    c->load.store_dir = c->dir;
    c->load.config_file = "no-such.yaml";
    assert_true(client_start(c, false) < 0);
    assert_int_equal(client_stop(c), 1);
}

/* State changes step by step, separately for each sequence. */
static void
state_advances_per_sequence(void **state)
{
    struct client *c = *state;
    struct got got;

    assert_int_equal(client_start(c, false), 0);
    got = client_step(c, 1, "a", "5", 0, 0);
    assert_string_equal(got.body, "5");
    assert_true(has(got.flags, CN_ANSWER_OPENED));
    assert_true(got.generation > 0 && got.opened_wall_ms == cn_wall_ms());
    got = client_step(c, 2, "a", "6", 0, got.generation);
    assert_string_equal(got.body, "11");
    assert_false(has(got.flags, CN_ANSWER_OPENED));
    expect_body(c, 3, "b", "1", 0, "1");
    expect_body(c, 4, "a", "1", 0, "12");
    assert_int_equal(fake.decoded, 0); /* all states came from memory */
    expect_body(c, 5, "a", "1", CN_ROW_RELOAD, "13");
    assert_int_equal(fake.decoded, 1);
    assert_int_equal(client_stop(c), 0);
    assert_int_equal(client_start(c, false), 0); /* a new worker continues */
    expect_body(c, 6, "a", "1", 0, "14");
    assert_int_equal(client_stop(c), 0);
    assert_int_equal(fake.live_states, 0);
}

/* A step is committed at most once: a job that comes again gets the same answer and changes
 * nothing. */
static void
same_job_again_is_replayed(void **state)
{
    struct client *c = *state;
    struct got first, again;
    unsigned rows;

    assert_int_equal(client_start(c, false), 0);
    first = client_step(c, 7, "a", "chunks", 0, 0);
    assert_string_equal(first.body, "a|b|c");
    assert_int_equal(first.status, 201);
    assert_int_equal(first.n_headers, 1);
    rows = fake.rows;
    for (int i = 0; i < 2; i++) {
        again = client_step(c, 7, "a", "chunks", CN_ROW_REDELIVERED, i ? first.generation : 0);
        assert_string_equal(again.body, "a|b|c");
        assert_int_equal(again.pieces, 3);
        assert_int_equal(again.status, 201);
        assert_int_equal(again.n_headers, 1);
        assert_int_equal(again.generation, first.generation);
        assert_true(has(again.flags, CN_ANSWER_REPLAYED));
        assert_true(has(again.flags, CN_ANSWER_OPENED));
        client_stop(c);
        assert_int_equal(client_start(c, false), 0);
    }
    /* This also holds for a START, and long after it has expired. */
    again = client_step(c, 8, "a", "3", CN_ROW_START, 0);
    assert_string_equal(again.body, "3");
    cn_clock_advance(5000);
    again = client_step(c, 8, "a", "3", CN_ROW_START | CN_ROW_REDELIVERED, 0);
    assert_string_equal(again.body, "3");
    assert_true(has(again.flags, CN_ANSWER_REPLAYED));
    assert_int_equal(fake.rows, rows + 1);
    client_stop(c);
}

/* An answer that was not kept is not made up: the client learns that the step is committed. */
static void
answer_too_large_to_keep_is_said(void **state)
{
    struct client *c = *state;
    struct got got;

    assert_int_equal(client_start(c, false), 0);
    got = client_step(c, 1, "a", "answer 1000", 0, 0);
    assert_int_equal(strlen(got.body), 1000);
    got = client_step(c, 1, "a", "answer 1000", CN_ROW_REDELIVERED, 0);
    assert_int_equal(got.code, CN_E_ANSWER_NOT_KEPT);
    assert_true(has(got.flags, CN_ANSWER_REPLAYED));
    assert_non_null(strstr(got.body, "1000 bytes"));
    client_stop(c);
}

/* If the handler kept a state in the memory of another process, the client learns that the state is
 * lost. */
static void
a_lost_state_closes_its_sequence(void **state)
{
    struct client *c = *state;
    struct got got;

    assert_int_equal(client_start(c, false), 0);
    got = client_step(c, 1, "a", "5", 0, 0);
    assert_string_equal(got.body, "5");
    got = client_step(c, 2, "a", "lost", 0, 0);
    assert_int_equal(got.code, CN_E_SEQUENCE_ENDED);
    assert_non_null(strstr(got.body, "(worker_lost)"));
    assert_true(has(got.flags, CN_ANSWER_WORKER_LOST));
    assert_true(has(got.flags, CN_ANSWER_CLOSED_BEFORE));
    got = client_step(c, 3, "a", "5", 0, 0);
    assert_string_equal(fake.closed, "a:worker_lost:5 ");
    assert_int_equal(got.code, CN_E_SEQUENCE_ENDED);
    assert_false(has(got.flags, CN_ANSWER_WORKER_LOST)); /* counted once */
    got = client_step(c, 4, "a", "7", CN_ROW_START, 0);
    assert_string_equal(got.body, "7");
    client_stop(c);
}

/* A failed step is not saved, not even in memory. */
static void
failed_step_changes_nothing(void **state)
{
    struct client *c = *state;
    struct got got;

    assert_int_equal(client_start(c, false), 0);
    got = client_step(c, 1, "a", "fail", 0, 0);
    assert_int_equal(got.code, CN_E_HANDLER_FAILED);
    assert_int_equal(got.generation, 0);
    assert_false(has(got.flags, CN_ANSWER_OPENED));
    expect_body(c, 2, "a", "5", 0, "5");
    got = client_step(c, 3, "a", "fail", 0, 0);
    assert_int_equal(got.code, CN_E_HANDLER_FAILED);
    assert_true(got.generation > 0);
    expect_body(c, 3, "a", "1", 0, "6"); /* the same job may be tried again */
    client_stop(c);
    assert_int_equal(fake.live_states, 0);
}

/* Limits are errors of the step, which leave the state as it was. */
static void
limits_hold(void **state)
{
    struct client *c = *state;
    struct got got;

    assert_int_equal(client_start(c, false), 0);
    expect_body(c, 1, "a", "5", 0, "5");
    got = client_step(c, 2, "a", "grow 100001", 0, 0);
    assert_int_equal(got.code, CN_E_STATE_TOO_LARGE);
    assert_non_null(strstr(got.body, "100000 bytes (state.maxBytes)"));
    got = client_step(c, 3, "a", "answer 5001", 0, 0);
    assert_int_equal(got.code, CN_E_HANDLER_FAILED);
    assert_non_null(strstr(got.body, "5000 bytes (answerMaxBytes)"));
    expect_body(c, 4, "a", "1", 0, "6");
    client_stop(c);
}

/* START begins anew, whatever is there. on_close is called once for the old sequence. */
static void
start_opens_a_new_generation(void **state)
{
    struct client *c = *state;
    struct got first, second, got;

    assert_int_equal(client_start(c, false), 0);
    first = client_step(c, 1, "a", "5", CN_ROW_START, 0);
    got = client_step(c, 2, "a", "fail", CN_ROW_START, 0); /* opens nothing */
    assert_int_equal(got.generation, first.generation);
    expect_body(c, 3, "a", "1", 0, "6");
    second = client_step(c, 4, "a", "1", CN_ROW_START, 0);
    assert_string_equal(second.body, "1");
    assert_int_equal(second.generation, first.generation + 1);
    second = client_step(c, 5, "a", "2", CN_ROW_START | CN_ROW_RELOAD, 0);
    assert_int_equal(second.generation, first.generation + 2);
    got = client_step(c, 6, "a", "1", 0, first.generation);
    assert_int_equal(got.code, CN_E_SEQUENCE_UNKNOWN);
    got = client_step(c, 7, "b", "1", 0, 3);
    assert_int_equal(got.code, CN_E_SEQUENCE_UNKNOWN);
    got = client_step(c, 8, "a", "1", 0, second.generation);
    assert_string_equal(got.body, "3");
    client_stop(c);
    assert_string_equal(fake.closed, "a:ended:6 a:ended:1 ");
    assert_int_equal(fake.live_states, 0);
}

/* After its idle time a sequence is gone, and a late client learns the real reason. */
static void
idle_sequence_expires_with_its_reason(void **state)
{
    struct client *c = *state;
    struct got got, first;

    assert_int_equal(client_start(c, false), 0);
    first = client_step(c, 1, "a", "5", 0, 0);
    cn_clock_advance(999);
    expect_body(c, 2, "a", "1", 0, "6");
    cn_clock_advance(1200);
    got = client_step(c, 3, "a", "1", 0, 0);
    assert_int_equal(got.code, CN_E_SEQUENCE_EXPIRED);
    assert_int_equal(got.flags, CN_ANSWER_CLOSED_BEFORE);
    assert_non_null(strstr(got.body, "sequence a expired at 20"));
    assert_non_null(
        strstr(got.body, "after 1200 ms idle (limit 1000 ms); start a new one with the start flag "
                         "(ts-request-sequence-start, sequence_start) or choose another id"));
    got = client_step(c, 4, "a", "1", 0, 0); /* the tombstone gives the same reason */
    assert_int_equal(got.code, CN_E_SEQUENCE_EXPIRED);
    assert_non_null(strstr(got.body, "1200 ms idle"));
    assert_string_equal(fake.closed, "a:idle:6 ");
    got = client_step(c, 5, "a", "1", CN_ROW_START, 0);
    assert_string_equal(got.body, "1");
    assert_int_equal(got.generation, first.generation + 999 + 1200); /* opening time */
    first = got;
    cn_clock_advance(1200);
    got = client_step(c, 6, "a", "1", 0, 0);
    assert_int_equal(got.code, CN_E_SEQUENCE_EXPIRED);
    cn_clock_advance(60000); /* the tombstone is forgotten, so the id is free */
    got = client_step(c, 7, "a", "1", 0, 0);
    assert_string_equal(got.body, "1");
    assert_int_equal(got.generation, first.generation + 1200 + 60000);
    client_stop(c);
}

/* sequence.onExpired: restart. A late step begins anew and its answer says so, also when the answer
 * is repeated. A step that needs a START (v2, sessions) is still refused. */
static void
late_step_begins_anew_where_that_is_wanted(void **state)
{
    struct client *c = *state;
    struct got got;

    c->load.restart_expired = 1;
    assert_int_equal(client_start(c, false), 0);
    expect_body(c, 1, "a", "5", 0, "5");
    cn_clock_advance(1200);
    got = client_step(c, 2, "a", "1", 0, 0); /* the live record has expired */
    assert_string_equal(got.body, "1");
    assert_int_equal(got.flags, CN_ANSWER_OPENED | CN_ANSWER_RESTARTED_IDLE);
    got = client_step(c, 2, "a", "1", CN_ROW_REDELIVERED, 0);
    assert_true(has(got.flags, CN_ANSWER_REPLAYED) && has(got.flags, CN_ANSWER_RESTARTED_IDLE));
    assert_int_equal(client_step(c, 3, "a", "1", 0, 0).flags, 0);
    cn_clock_advance(1200);
    got = client_step(c, 4, "a", "1", CN_ROW_MUST_EXIST, 0);
    assert_int_equal(got.code, CN_E_SEQUENCE_EXPIRED);
    got = client_step(c, 5, "a", "7", 0, 0); /* it meets the tombstone */
    assert_string_equal(got.body, "7");
    assert_int_equal(got.flags, CN_ANSWER_OPENED | CN_ANSWER_RESTARTED_IDLE);
    for (uint64_t job = 6; job < 30 && !has(got.flags, CN_ANSWER_RESTARTED_LIFETIME); job++) {
        cn_clock_advance(500);
        got = client_step(c, job, "a", "1", 0, 0);
        assert_int_equal(got.code, 0);
    }
    assert_string_equal(got.body, "1");
    client_stop(c);
    assert_string_equal(fake.closed, "a:idle:5 a:idle:2 a:lifetime:26 ");
    assert_int_equal(fake.live_states, 0);
}

/* A server that knows a sequence has clocks of its own, so the worker's clocks do not refuse its
 * rows. */
static void
server_knows_better_than_our_clock(void **state)
{
    struct client *c = *state;
    struct got got;

    assert_int_equal(client_start(c, false), 0);
    got = client_step(c, 1, "a", "5", 0, 0);
    cn_clock_advance(1500);
    got = client_step(c, 2, "a", "1", 0, got.generation);
    assert_string_equal(got.body, "6");
    client_stop(c);
}

/* The total time counts from START, however busy a sequence is. */
static void
lifetime_ends_a_busy_sequence(void **state)
{
    struct client *c = *state;
    struct got got = {0};

    assert_int_equal(client_start(c, false), 0);
    for (uint64_t job = 1; job < 30 && got.code == 0; job++) {
        got = client_step(c, job, "a", "1", 0, 0);
        cn_clock_advance(500);
    }
    assert_int_equal(got.code, CN_E_SEQUENCE_EXPIRED);
    assert_non_null(strstr(got.body, "10000 ms after its start (limit 10000 ms)"));
    client_stop(c);
    assert_string_equal(fake.closed, "a:lifetime:20 ");
}

/* TorchServe's clients use an id again after its end. */
static void
ended_id_may_be_used_again(void **state)
{
    struct client *c = *state;
    struct got end, got;

    assert_int_equal(client_start(c, false), 0);
    expect_body(c, 1, "a", "5", 0, "5");
    end = client_step(c, 2, "a", "1", CN_ROW_END, 0);
    assert_string_equal(end.body, "6");
    assert_true(has(end.flags, CN_ANSWER_ENDED));
    got = client_step(c, 2, "a", "1", CN_ROW_END | CN_ROW_REDELIVERED, end.generation);
    assert_string_equal(got.body, "6");
    assert_int_equal(got.flags, CN_ANSWER_ENDED | CN_ANSWER_REPLAYED);
    got = client_step(c, 3, "a", "1", 0, end.generation); /* for the generation that is over */
    assert_int_equal(got.code, CN_E_SEQUENCE_ENDED);
    got = client_step(c, 4, "a", "2", 0, 0);
    assert_string_equal(got.body, "2");
    assert_int_equal(got.generation, end.generation + 1);
    got = client_step(c, 5, "a", "end", 0, 0); /* the handler ends it */
    assert_true(has(got.flags, CN_ANSWER_ENDED));
    got = client_step(c, 6, "b", "3", CN_ROW_START | CN_ROW_END, 0);
    assert_int_equal(got.flags, CN_ANSWER_OPENED | CN_ANSWER_ENDED);
    client_stop(c);
    assert_string_equal(fake.closed, "a:ended:6 a:ended:2 b:ended:3 ");
    assert_int_equal(fake.live_states, 0);
}

/* CLOSE deletes the state, informs the handler once, and stores the reason. */
static void
close_deletes_and_tells(void **state)
{
    struct client *c = *state;
    struct got a, got;

    assert_int_equal(client_start(c, false), 0);
    a = client_step(c, 1, "a", "5", 0, 0);
    expect_body(c, 2, "b", "6", 0, "6");
    expect_body(c, 3, "c", "7", 0, "7");
    client_stop(c);
    assert_int_equal(client_start(c, false), 0);
    expect_body(c, 4, "c", "1", 0, "8"); /* c is cached, a and b are only stored */
    client_put_close(c, "a", a.generation, CN_CLOSE_DELETED);
    client_put_close(c, "a", 0, CN_CLOSE_DELETED);  /* the second time it is not reported */
    client_put_close(c, "b", 12345, CN_CLOSE_IDLE); /* another generation lives */
    client_put_close(c, "c", 0, CN_CLOSE_CANCELLED);
    client_put_close(c, "never", 0, CN_CLOSE_IDLE);
    client_send(c);
    for (int i = 0; i < 5; i++)
        assert_int_equal(client_get_closed(c), 1);
    assert_string_equal(fake.closed, "a:deleted:5 c:cancelled:8 ");
    got = client_step(c, 5, "a", "1", 0, 0);
    assert_int_equal(got.code, CN_E_SEQUENCE_ENDED);
    assert_non_null(strstr(got.body, "(deleted)"));
    assert_true(has(got.flags, CN_ANSWER_CLOSED_BEFORE));
    expect_body(c, 6, "b", "1", 0, "7");
    expect_body(c, 7, "c", "1", 0, "1");
    client_stop(c);
}

/* Steps of one sequence keep their order, and a batch never holds two of them. */
static void
one_row_a_sequence_in_order(void **state)
{
    struct client *c = *state;
    char wanted[16];
    struct got got;
    uint64_t job = 1;
    int sums[3] = {0};

    assert_int_equal(client_start(c, false), 0);
    for (int i = 0; i < 12; i++)
        client_put(c, job++, i % 3 == 0 ? "a" : i % 3 == 1 ? "b" : "c", "1", 0, 0);
    client_send(c);
    for (int i = 0; i < 12; i++) {
        assert_true(client_get(c, &got));
        snprintf(wanted, sizeof(wanted), "%d", ++sums[(got.job - 1) % 3]);
        assert_string_equal(got.body, wanted);
        assert_int_equal(got.job,
                         (uint64_t)((sums[(got.job - 1) % 3] - 1) * 3) + (got.job - 1) % 3 + 1);
    }
    assert_int_equal(fake.largest_batch, 3);
    client_stop(c);
}

/* The batch size is the model's: no call of the handler gets more rows. */
static void
batches_stay_in_their_size(void **state)
{
    struct client *c = *state;
    struct got got;
    char id[32];

    assert_int_equal(client_start(c, false), 0);
    for (int i = 0; i < 20; i++) {
        snprintf(id, sizeof(id), "s%d", i);
        client_put(c, (uint64_t)i + 1, id, "1", 0, 0);
    }
    client_send(c);
    for (int i = 0; i < 20; i++) {
        assert_true(client_get(c, &got));
        assert_string_equal(got.body, "1");
    }
    assert_int_equal(fake.largest_batch, 8);
    assert_int_equal(fake.batches, 3);
    client_stop(c);
}

/* Sends one row of each sequence from `first` on, in one frame. Returns how many batches the worker
 * made. */
static unsigned
round_of(struct client *c, uint64_t *job, int first, int n)
{
    const unsigned before = fake.batches;
    struct got got;
    char id[32];

    for (int i = first; i < first + n; i++) {
        snprintf(id, sizeof(id), "s%d", i);
        client_put(c, ++*job, id, "1", 0, 0);
    }
    client_send(c);
    for (int i = 0; i < n; i++)
        assert_true(client_get(c, &got));
    return fake.batches - before;
}

/* If sequences always come and go together, and the worker had to wait for them, the batch is
 * split. */
static void
lockstep_is_broken(void **state)
{
    struct client *c = *state;
    unsigned rounds = 1;
    uint64_t job = 0;

    c->load.batch_size = 64;
    c->load.handler = "apart";
    assert_int_equal(client_start(c, false), 0);
    assert_int_equal(round_of(c, &job, 0, 20), 1); /* no batch ran before */
    /* The test cannot decide whether the worker already waits when they come. */
    while (round_of(c, &job, 0, 20) == 1)
        assert_in_range(++rounds, 0, 10000);
    assert_int_equal(fake.batches, rounds + 2);
    client_stop(c);
}

/* Two groups that alternate keep server and worker busy, so their batches are not split. A batch
 * that its handler computes in one run of a model is not split either. */
static void
what_is_not_in_lockstep_stays_whole(void **state)
{
    struct client *c = *state;
    uint64_t job = 0;

    c->load.batch_size = 64;
    for (int apart = 0; apart < 2; apart++) {
        c->load.handler = apart ? "apart" : "fine";
        assert_int_equal(client_start(c, false), 0);
        for (int round = 0; round < 200; round++)
            assert_int_equal(round_of(c, &job, apart ? round % 2 * 20 : 0, 20), 1);
        client_stop(c);
    }
}

/* If a client has gone away while its row still waits, the step is not done. */
static void
cancelled_row_does_not_run(void **state)
{
    struct client *c = *state;
    struct cn_cancel cancelled = {2, CN_STOP_GONE};
    struct got got;
    int seen = 0;

    assert_int_equal(client_start(c, false), 0);
    client_put(c, 1, "a", "5", 0, 0);
    client_put(c, 2, "a", "6", 0, 0);
    client_put(c, 3, "a", "7", 0, 0);
    cn_frame_put_cancel(&c->out, &cancelled, 1);
    client_send(c);
    for (int i = 0; i < 3; i++) {
        assert_true(client_get(c, &got));
        if (got.job == 2) {
            assert_int_equal(got.code, CN_E_CANCELLED);
            seen++;
        }
    }
    assert_int_equal(seen, 1);
    expect_body(c, 4, "a", "0", 0, "12");
    client_stop(c);
}

/* A CLOSE between two steps stays between them. */
static void
close_keeps_its_place(void **state)
{
    struct client *c = *state;
    struct got got;

    assert_int_equal(client_start(c, false), 0);
    client_put(c, 1, "a", "5", 0, 0);
    client_put(c, 2, "a", "6", 0, 0);
    client_put_close(c, "a", 0, CN_CLOSE_CANCELLED);
    client_put(c, 3, "a", "7", 0, 0);
    client_send(c);
    assert_true(client_get(c, &got));
    assert_string_equal(got.body, "5");
    assert_true(client_get(c, &got));
    assert_string_equal(got.body, "11");
    assert_int_equal(client_get_closed(c), 1);
    assert_true(client_get(c, &got));
    assert_string_equal(got.body, "7");
    client_stop(c);
    assert_string_equal(fake.closed, "a:cancelled:11 ");
}

/* Stateless models work in the same way, without a store. */
static void
stateless_rows_need_no_store(void **state)
{
    struct client *c = *state;

    c->load.stateful = 0;
    c->load.store_dir = "/nonexistent";
    assert_int_equal(client_start(c, false), 0);
    expect_body(c, 1, NULL, "hello", 0, "echo hello");
    assert_int_equal(client_step(c, 2, "a", "1", 0, 0).code, CN_E_INTERNAL);
    client_put_close(c, "a", 0, CN_CLOSE_IDLE);
    client_send(c);
    assert_int_equal(client_get_closed(c), 1);
    client_stop(c);
}

/* A description is requested like a step, but it belongs to no sequence, runs no step and leaves no
 * record. Steps in the same batch are not affected. */
static void
description_touches_no_sequence(void **state)
{
    struct client *c = *state;
    struct got got;

    assert_int_equal(client_start(c, false), 0);
    expect_body(c, 1, "a", "1", 0, "1");
    client_put(c, 2, "a", "1", 0, 0);
    client_put(c, 3, NULL, "", CN_ROW_DESCRIBE, 0);
    client_put(c, 4, "b", "1", 0, 0);
    client_send(c);
    for (int i = 0; i < 3; i++) {
        assert_true(client_get(c, &got));
        assert_string_equal(got.body, got.job == 2 ? "2" : got.job == 3 ? "{\"fake\":1}" : "1");
        assert_int_equal(got.generation != 0, got.job != 3);
    }
    assert_int_equal(fake.rows, 3);
    client_stop(c);
}

/* Opens s0, s1, ... with this body until one is refused. Returns how many, including that one,
 * whose id is in `id`. */
static int
fill_store(struct client *c, uint64_t *job, const char *body, char id[32], struct got *got)
{
    int opened = 0;

    do {
        snprintf(id, 32, "s%d", opened++);
        *got = client_step(c, (*job)++, id, body, 0, 0);
    } while (got->code == 0 && opened < 100000);
    assert_int_equal(got->code, CN_E_STATE_STORE);
    return opened;
}

/* A full store refuses what would make it grow. The refused step is not half done, and others in
 * its batch are done. */
static void
full_store_refuses_only_growth(void **state)
{
    struct client *c = *state;
    struct got got;
    uint64_t job = 1;
    char id[32];

    c->load.store_max_bytes = 1 << 20;
    assert_int_equal(client_start(c, false), 0);
    assert_in_range(fill_store(c, &job, "grow 40000", id, &got), 10, 30);
    assert_non_null(strstr(got.body, "is not saved"));
    assert_non_null(strstr(got.body, "state.storeMaxBytes"));
    got = client_step(c, job++, id, "grow 40000", 0, 0);
    assert_int_equal(got.code, CN_E_STATE_STORE);
    client_put(c, job, "s0", "1", 0, 0);
    client_put(c, job + 1, id, "grow 40000", 0, 0);
    client_put(c, job + 2, "s1", "2", CN_ROW_END, 0);
    client_send(c);
    for (int i = 0; i < 3; i++) {
        assert_true(client_get(c, &got));
        assert_int_equal(got.code, got.job == job + 1 ? CN_E_STATE_STORE : 0);
    }
    got = client_step(c, job + 3, id, "grow 30000", 0, 0); /* s1 has made room */
    assert_int_equal(got.code, 0);
    assert_true(has(got.flags, CN_ANSWER_OPENED));
    client_stop(c);
    assert_int_equal(fake.live_states, 0);
}

/* What a step, or a sequence's end, writes besides the state must not grow with time either. With
 * states of one byte, a full store could get no other room back. */
static void
full_store_of_tiny_states_goes_on(void **state)
{
    struct client *c = *state;
    const char *dir = c->load.store_dir;
    uint64_t job = 1;
    char id[32];

    fake.tiny = true;
    c->load.store_max_bytes = 1 << 20;
    c->load.idle_ms = c->load.tombstone_ms = 600000;
    c->load.lifetime_ms = 0;
    for (int durable = 0; durable < 2; durable++) {
        struct got got;

        c->load.durability = durable ? CN_DURABILITY_PROCESS : CN_DURABILITY_NONE;
        c->load.store_dir = durable ? dir : "";
        assert_int_equal(client_start(c, false), 0);
        assert_true(fill_store(c, &job, "5", id, &got) > 2000);
        cn_clock_advance(20000);
        for (int i = 0; i < 800; i++) {
            uint32_t flags = i < 200 ? 0 : i < 400 ? CN_ROW_START : CN_ROW_END;

            snprintf(id, sizeof(id), "s%d", i);
            if (i < 600) {
                got = client_step(c, job++, id, i < 200 ? "0" : "5", flags, 0);
                assert_int_equal(got.code, 0);
                continue;
            }
            client_put_close(c, id, 0, CN_CLOSE_IDLE);
            client_send(c);
            assert_int_equal(client_get_closed(c), 1);
            got = client_step(c, job++, id, "5", CN_ROW_MUST_EXIST, 0);
            assert_int_equal(got.code, CN_E_SEQUENCE_EXPIRED); /* there is a tombstone */
        }
        client_stop(c);
    }
}

/* An END makes room, so it is accepted, and its answer is sent. But there is no room to keep the
 * answer. */
static void
full_store_takes_an_end_without_its_answer(void **state)
{
    struct client *c = *state;
    struct got got;
    uint64_t job = 1;
    char id[32];

    fake.tiny = true;
    c->load.store_max_bytes = 1 << 20;
    assert_int_equal(client_start(c, false), 0);
    fill_store(c, &job, "5", id, &got);
    /* The first sequences may still find room in pages that are not full. */
    for (unsigned i = 1; i < 200 && got.code != CN_E_ANSWER_NOT_KEPT; i++, job++) {
        snprintf(id, sizeof(id), "s%u", i);
        got = client_step(c, job, id, "123456789", CN_ROW_END, 0);
        assert_int_equal(got.code, 0);
        assert_string_equal(got.body, "123456789");                /* a tiny state is read as 0 */
        got = client_step(c, job, id, "123456789", CN_ROW_END, 0); /* sent again */
    }
    assert_int_equal(got.code, CN_E_ANSWER_NOT_KEPT);
    client_stop(c);
}

/* Without durability everything works in the same way while the worker lives. */
static void
memory_store_behaves_alike(void **state)
{
    struct client *c = *state;
    struct got got;

    c->load.durability = CN_DURABILITY_NONE;
    c->load.store_dir = "";
    c->load.cache_entries = 0; /* so that every step reads the store */
    assert_int_equal(client_start(c, false), 0);
    expect_body(c, 1, "a", "5", 0, "5");
    expect_body(c, 2, "a", "5", 0, "10");
    got = client_step(c, 2, "a", "5", CN_ROW_REDELIVERED, 0);
    assert_string_equal(got.body, "10");
    assert_true(has(got.flags, CN_ANSWER_REPLAYED));
    client_put_close(c, "a", 0, CN_CLOSE_IDLE);
    client_send(c);
    assert_int_equal(client_get_closed(c), 1);
    assert_int_equal(client_step(c, 3, "a", "5", 0, 0).code, CN_E_SEQUENCE_EXPIRED);
    client_stop(c);
    assert_string_equal(fake.closed, "a:idle:10 ");
    assert_int_equal(fake.live_states, 0);
}

/* Cached states share the handler's memory. If that is used up, cached states are dropped, and the
 * step runs. */
static void
cached_states_make_room_for_a_step(void **state)
{
    struct client *c = *state;
    char id[32];

    fake.out_of_memory_over = 5;
    assert_int_equal(client_start(c, false), 0);
    for (int i = 0; i < 20; i++) {
        snprintf(id, sizeof(id), "s%d", i);
        expect_body(c, (uint64_t)i + 1, id, "1", 0, "1");
    }
    expect_body(c, 100, "s0", "1", 0, "2");
    client_stop(c);
    assert_int_equal(fake.live_states, 0);
}

/* If the places in a batch are slots, rows that run again keep their places. */
static void
memory_used_up_keeps_the_places(void **state)
{
    static const char yaml[] = "max_batch_size: 4\n"
                               "input: [{name: A, data_type: TYPE_INT32, dims: [1]}]\n"
                               "output: [{name: B, data_type: TYPE_INT32, dims: [1]}]\n"
                               "sequence_batching: {direct: {}}\n";
    struct client *c = *state;
    struct got got;
    char path[512];
    FILE *file;

    snprintf(path, sizeof(path), "%s/direct.yaml", c->dir);
    file = fopen(path, "w");
    assert_non_null(file);
    fputs(yaml, file);
    fclose(file);
    c->load.model_dir = c->dir;
    c->load.config_file = "direct.yaml";
    fake.out_of_memory_over = 4;
    assert_int_equal(client_start(c, false), 0);
    expect_body(c, 1, "a", "1", 0, "1");
    expect_body(c, 2, "b", "1", 0, "1");
    client_put(c, 3, "x", "1", CN_ROW_JOINED, 0);
    client_put(c, 4, "y", "2", CN_ROW_JOINED, 0);
    client_put(c, 5, "z", "3", 0, 0);
    client_send(c);
    for (int i = 0; i < 3; i++) {
        assert_true(client_get(c, &got));
        assert_int_equal(got.code, 0);
    }
    client_stop(c);
    unlink(path);
    assert_string_equal(fake.last_run, "ppr");
    assert_int_equal(fake.live_states, 0);
}

/* Expired sequences that no server knows any more are removed without a request. */
static void
sweep_closes_what_nobody_knows(void **state)
{
    struct client *c = *state;
    uint64_t job = 1;
    struct got got;
    char id[32];

    c->load.tombstone_ms = 1000;
    assert_int_equal(client_start(c, false), 0);
    for (int i = 0; i < 50; i++) {
        snprintf(id, sizeof(id), "s%d", i);
        expect_body(c, job++, id, "1", 0, "1");
    }
    cn_clock_advance(1000 + 60000);
    for (int i = 0; i < 20; i++) { /* each a sweep of a few */
        expect_body(c, job++, "other", "0", i ? 0 : CN_ROW_START, "0");
        cn_clock_advance(100);
    }
    cn_clock_advance(900);
    got = client_step(c, job++, "s7", "1", 0, 0);
    assert_string_equal(got.body, "1"); /* its tombstone has expired by now */
    client_stop(c);
    for (int i = 0; i < 50; i++) {
        snprintf(id, sizeof(id), "s%d:idle:1", i);
        assert_non_null(strstr(fake.closed, id));
    }
    assert_int_equal(fake.live_states, 0);
}

/* Returns how many sequences the worker last reported to have in memory. Waits for the report for
 * at most 50 ms. */
static uint64_t
cached_sequences(struct client *c, uint64_t before)
{
    struct pollfd socket = {.fd = c->fd, .events = POLLIN};
    struct cn_worker_stats stats = {.cached_sequences = before};
    struct cn_frame frame;
    struct cn_error err;
    long used;

    if (poll(&socket, 1, 50) == 1) {
        ssize_t n = recv(c->fd, cn_buf_reserve(&c->in, 65536), 65536, 0);

        assert_true(n > 0);
        c->in.len += (size_t)n;
    }
    while (c->in.len && (used = cn_frame_next(c->in.data, c->in.len, 1 << 30, &frame, &err)) > 0) {
        if (frame.type == CN_FRAME_STATS)
            assert_int_equal(cn_frame_get_stats(&frame, &stats, &err), 0);
        cn_buf_consume(&c->in, (size_t)used);
    }
    return stats.cached_sequences;
}

/* No further step is needed either: a sweep that has begun is finished. */
static void
sweep_goes_on_without_steps(void **state)
{
    struct client *c = *state;
    uint64_t job = 1, cached = 100;
    char id[32];

    assert_int_equal(client_start(c, false), 0);
    for (int i = 0; i < 300; i++) {
        snprintf(id, sizeof(id), "s%03d", i);
        expect_body(c, job++, id, "1", 0, "1");
    }
    cn_clock_advance(1000 + 60000);
    expect_body(c, job++, "a", "1", 0, "1");
    for (int i = 0; i < 400 && cached > 1; i++) {
        cn_clock_advance(200);
        cached = cached_sequences(c, cached);
    }
    client_stop(c);
    assert_true(cached <= 1);
    for (int i = 0; i < 300; i++) {
        snprintf(id, sizeof(id), "s%03d:idle:1", i);
        assert_non_null(strstr(fake.closed, id));
    }
}

/* Any worker can continue any sequence. A worker whose cached state is stale does no harm. */
static void
second_worker_takes_over(void **state)
{
    struct client *a = *state, b = {0};
    struct got got;

    cn_buf_init(&b.out, 0);
    cn_buf_init(&b.in, 0);
    cn_arena_init(&b.arena);
    b.load = a->load;
    assert_int_equal(client_start(a, false), 0);
    /* A process of its own, because LMDB must not be opened twice in one process. It does not share
     * the clock, so there are no time limits. */
    b.load.idle_ms = b.load.lifetime_ms = 0;
    assert_int_equal(client_start(&b, true), 0);
    got = client_step(a, 1, "s", "5", 0, 0);
    got = client_step(&b, 2, "s", "1", CN_ROW_RELOAD, got.generation);
    assert_string_equal(got.body, "6");
    got = client_step(a, 3, "s", "1", 0, got.generation); /* without RELOAD: an error */
    assert_int_equal(got.code, CN_E_CONFLICT);
    got = client_step(a, 4, "s", "1", 0, 0); /* that error changed nothing */
    assert_string_equal(got.body, "7");
    assert_int_equal(client_stop(&b), 0);
    assert_int_equal(client_stop(a), 0);
    cn_buf_fini(&b.out);
    cn_buf_fini(&b.in);
}

/* Rows may be larger than any buffer, and may arrive in any pieces. */
static void
large_and_torn_frames_arrive(void **state)
{
    struct client *c = *state;
    char *large = malloc(3000001);
    struct cn_buf whole;
    struct got got;

    memset(large, ' ', 3000000);
    large[0] = '7';
    large[3000000] = '\0';
    c->load.stateful = 1;
    assert_int_equal(client_start(c, false), 0);
    for (int i = 0; i < 3; i++) {
        client_put(c, (uint64_t)i * 2 + 1, "a", "1", 0, 0);
        client_put(c, (uint64_t)i * 2 + 2, "a", large, 0, 0);
    }
    whole = c->out;
    for (size_t at = 0; at < whole.len;) {
        size_t piece = at < 200 ? 1 : at % 60013 + 1;

        if (piece > whole.len - at)
            piece = whole.len - at;
        assert_int_equal(send(c->fd, whole.data + at, piece, 0), piece);
        at += piece;
    }
    cn_buf_reset(&c->out);
    for (int i = 0; i < 6; i++)
        assert_true(client_get(c, &got));
    assert_string_equal(got.body, "24");
    client_stop(c);
    free(large);
}

/* Bytes that are not a frame end the worker with an error and not with a crash; when the server is
 * gone, it ends quietly. */
static void
bad_frames_end_the_worker(void **state)
{
    struct client *c = *state;
    static const char *const bad[] = {
        "\0\0\0\0\2\7\0\0\0\0\0\0",         /* wrong version */
        "\0\0\0\0\x63\1\0\0\0\0\0\0",       /* wrong type */
        "\0\0\0\0\2\1\0\0\5\0\0\0",         /* five rows in no bytes */
        "\xff\xff\xff\xff\2\1\0\0\1\0\0\0", /* 4 GiB */
        "\0\0\0\0\x42\1\0\0\0\0\0\0",       /* a frame that only workers send */
    };

    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        assert_int_equal(client_start(c, false), 0);
        cn_buf_append(&c->out, bad[i], 12);
        client_send(c);
        assert_int_equal(client_stop(c), 1);
    }
    assert_int_equal(client_start(c, false), 0);
    shutdown(c->fd, SHUT_RDWR);
    assert_int_equal(client_stop(c), 0);
}

/* After STOP the worker finishes what it has received. */
static void
stop_finishes_what_was_received(void **state)
{
    struct client *c = *state;
    struct got got;

    assert_int_equal(client_start(c, false), 0);
    for (uint64_t job = 1; job <= 5; job++)
        client_put(c, job, "a", "1", 0, 0);
    cn_frame_put_stop(&c->out);
    client_send(c);
    for (uint64_t job = 1; job <= 5; job++)
        assert_true(client_get(c, &got));
    assert_string_equal(got.body, "5");
    assert_false(client_get(c, &got));
    assert_int_equal(client_stop(c), 0);
}

/* Ids that are not text do not damage messages or logs. */
static void
strange_ids_are_shown_quoted(void **state)
{
    struct client *c = *state;
    struct got got;

    assert_int_equal(client_start(c, false), 0);
    got = client_step(c, 1, "a \n\"b", "1", 0, 9);
    assert_int_equal(got.code, CN_E_SEQUENCE_UNKNOWN);
    assert_null(strchr(got.body, '\n'));
    client_stop(c);
}

int
main(void)
{
#define WORKER(test) cmocka_unit_test_setup_teardown(test, client_setup, client_teardown)
    const struct CMUnitTest tests[] = {
        WORKER(load_errors_are_told),
        WORKER(state_advances_per_sequence),
        WORKER(same_job_again_is_replayed),
        WORKER(answer_too_large_to_keep_is_said),
        WORKER(failed_step_changes_nothing),
        WORKER(a_lost_state_closes_its_sequence),
        WORKER(limits_hold),
        WORKER(start_opens_a_new_generation),
        WORKER(idle_sequence_expires_with_its_reason),
        WORKER(late_step_begins_anew_where_that_is_wanted),
        WORKER(server_knows_better_than_our_clock),
        WORKER(lifetime_ends_a_busy_sequence),
        WORKER(ended_id_may_be_used_again),
        WORKER(close_deletes_and_tells),
        WORKER(one_row_a_sequence_in_order),
        WORKER(batches_stay_in_their_size),
        WORKER(lockstep_is_broken),
        WORKER(what_is_not_in_lockstep_stays_whole),
        WORKER(cancelled_row_does_not_run),
        WORKER(close_keeps_its_place),
        WORKER(stateless_rows_need_no_store),
        WORKER(description_touches_no_sequence),
        WORKER(full_store_refuses_only_growth),
        WORKER(full_store_of_tiny_states_goes_on),
        WORKER(full_store_takes_an_end_without_its_answer),
        WORKER(memory_store_behaves_alike),
        WORKER(cached_states_make_room_for_a_step),
        WORKER(memory_used_up_keeps_the_places),
        WORKER(sweep_closes_what_nobody_knows),
        WORKER(sweep_goes_on_without_steps),
        WORKER(second_worker_takes_over),
        WORKER(large_and_torn_frames_arrive),
        WORKER(bad_frames_end_the_worker),
        WORKER(stop_finishes_what_was_received),
        WORKER(strange_ids_are_shown_quoted),
    };

    cn_clock_freeze();
    return cmocka_run_group_tests_name("worker.worker", tests, NULL, NULL);
}
