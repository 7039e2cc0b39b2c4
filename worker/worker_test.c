/* worker/worker_test.c - tests what a worker promises about sequences, with a handler made of C.
 *
 * The worker runs in a thread, so that the test moves its clock.
 */
#include "worker/test_steps.h"

#include "core/time/clock.h"

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
        WORKER(second_worker_takes_over),
        WORKER(large_and_torn_frames_arrive),
        WORKER(bad_frames_end_the_worker),
        WORKER(stop_finishes_what_was_received),
        WORKER(strange_ids_are_shown_quoted),
    };

    cn_clock_freeze();
    return cmocka_run_group_tests_name("worker.worker", tests, NULL, NULL);
}
