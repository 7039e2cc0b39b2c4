/* worker/closing_test.c - tests when sequences are closed, and what a late step of a closed one
 * gets: limits of time, ends, orders of the server, and the sweep of a store.
 */
#include "worker/test_steps.h"

#include <poll.h>

#include "core/time/clock.h"

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
    assert_int_equal(got.flags, CN_ANSWER_OPENED | CN_ANSWER_REPLACED | CN_ANSWER_RESTARTED_IDLE);
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

int
main(void)
{
#define WORKER(test) cmocka_unit_test_setup_teardown(test, client_setup, client_teardown)
    const struct CMUnitTest tests[] = {
        WORKER(idle_sequence_expires_with_its_reason),
        WORKER(late_step_begins_anew_where_that_is_wanted),
        WORKER(server_knows_better_than_our_clock),
        WORKER(lifetime_ends_a_busy_sequence),
        WORKER(ended_id_may_be_used_again),
        WORKER(close_deletes_and_tells),
        WORKER(sweep_closes_what_nobody_knows),
        WORKER(sweep_goes_on_without_steps),
    };

    cn_clock_freeze();
    return cmocka_run_group_tests_name("worker.closing", tests, NULL, NULL);
}
