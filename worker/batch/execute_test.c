/* worker/batch/execute_test.c - tests which rows a worker puts into a batch, and in which order
 * they run.
 */
#include "worker/test_steps.h"

#include "core/time/clock.h"

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
    c->load.busy_wait_us = 100;
    assert_int_equal(client_start(c, false), 0);
    assert_int_equal(round_of(c, &job, 0, 20), 1); /* no batch ran before */
    /* The test cannot decide whether the worker already waits when they come. */
    while (round_of(c, &job, 0, 20) == 1)
        assert_in_range(++rounds, 0, 10000);
    assert_int_equal(fake.batches, rounds + 2);
    client_stop(c);
}

/* Two groups that alternate keep server and worker busy, so their batches are not split. A batch
 * that its handler computes in one run of a model is not split either, nor is one of a worker that
 * sleeps whenever it waits. */
static void
what_is_not_in_lockstep_stays_whole(void **state)
{
    struct client *c = *state;
    uint64_t job = 0;

    c->load.batch_size = 64;
    for (int apart = 0; apart < 2; apart++) {
        c->load.handler = apart ? "apart" : "fine";
        c->load.busy_wait_us = 100;
        assert_int_equal(client_start(c, false), 0);
        for (int round = 0; round < 200; round++)
            assert_int_equal(round_of(c, &job, apart ? round % 2 * 20 : 0, 20), 1);
        client_stop(c);
    }
    c->load.busy_wait_us = 0;
    assert_int_equal(client_start(c, false), 0);
    for (int round = 0; round < 200; round++)
        assert_int_equal(round_of(c, &job, 0, 20), 1);
    client_stop(c);
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

int
main(void)
{
#define WORKER(test) cmocka_unit_test_setup_teardown(test, client_setup, client_teardown)
    const struct CMUnitTest tests[] = {
        WORKER(one_row_a_sequence_in_order),  WORKER(batches_stay_in_their_size),
        WORKER(lockstep_is_broken),           WORKER(what_is_not_in_lockstep_stays_whole),
        WORKER(cancelled_row_does_not_run),   WORKER(close_keeps_its_place),
        WORKER(stateless_rows_need_no_store), WORKER(description_touches_no_sequence),
    };

    cn_clock_freeze();
    return cmocka_run_group_tests_name("worker.execute", tests, NULL, NULL);
}
