/* scheduler/batch/aggregator_test.c - tests which rows each worker gets, how many, and when. */
#include "scheduler/test_support.h"

static void
config_delay(struct cn_model_config *config)
{
    config->sequence_batching = false;
    config->batch_size = 4;
    config->max_batch_delay_ms = 50;
}

/* A worker never holds more rows than two batches, and a frame never has more than one batch. */
static void
credit_and_frames_are_bounded(void **state)
{
    struct rig *rig = rig_create(config_stateless_4);
    struct fake *fake = fake_attach(rig);
    struct client clients[20];
    unsigned i;

    (void)state;
    for (i = 0; i < 20; i++)
        client_send(rig, &clients[i], "", "x", 0);
    settle(rig);
    fake_read(fake);
    assert_int_equal(fake->n_rows, 8);
    assert_int_equal(fake->n_frames, 2);
    assert_int_equal(fake->rows[3].frame, 1);
    assert_int_equal(fake->rows[4].frame, 2);
    for (i = 0; i < 12; i++) {
        answer_next(rig, fake);
        assert_int_equal(fake->n_rows, 9 + i);
    }
    answer_all(rig, fake);
    for (i = 0; i < 20; i++)
        assert_int_equal(clients[i].order, i + 1);
    rig_destroy(rig);
}

/* Steps that come in one turn leave in one frame, without a timer. */
static void
jobs_of_one_turn_share_a_frame(void **state)
{
    struct rig *rig = rig_create(config_batch_4);
    struct fake *fake = fake_attach(rig);
    struct client a, b, c;

    (void)state;
    client_send(rig, &a, "s1", "1", 0);
    client_send(rig, &b, "s2", "2", 0);
    client_send(rig, &c, "s3", "3", 0);
    settle(rig);
    fake_read(fake);
    assert_int_equal(fake->n_rows, 3);
    assert_int_equal(fake->n_frames, 1);
    answer_all(rig, fake);
    rig_destroy(rig);
}

/* maxBatchDelay holds rows back only for an idle worker, until the batch is full or the first row
 * is old enough. */
static void
delay_waits_for_a_full_batch(void **state)
{
    struct rig *rig = rig_create(config_delay);
    struct fake *fake = fake_attach(rig);
    struct client clients[8];
    unsigned i;

    (void)state;
    for (i = 0; i < 3; i++)
        client_send(rig, &clients[i], "", "x", 0);
    settle(rig);
    fake_read(fake);
    assert_int_equal(fake->n_rows, 0);
    client_send(rig, &clients[3], "", "x", 0);
    settle(rig);
    fake_read(fake);
    assert_int_equal(fake->n_rows, 4);
    client_send(rig, &clients[4], "", "x", 0); /* the worker is busy: no rows are held */
    settle(rig);
    fake_read(fake);
    assert_int_equal(fake->n_rows, 5);
    answer_all(rig, fake);
    client_send(rig, &clients[5], "", "x", 0);
    settle(rig);
    pass(rig, 30);
    client_send(rig, &clients[6], "", "x", 0);
    pass(rig, 19);
    fake_read(fake);
    assert_int_equal(fake->n_rows, 5);
    pass(rig, 1);
    fake_read(fake);
    assert_int_equal(fake->n_rows, 7);
    assert_int_equal(fake->rows[5].frame, fake->rows[6].frame);
    answer_all(rig, fake);
    rig_destroy(rig);
}

/* Rows of a stateless model have no sequence id, whatever the client wrote. */
static void
stateless_rows_have_no_sequence(void **state)
{
    struct rig *rig = rig_create(config_stateless);
    struct fake *fakes[2] = {fake_attach(rig), fake_attach(rig)};
    struct client clients[4];
    unsigned i;

    (void)state;
    for (i = 0; i < 4; i++)
        client_send(rig, &clients[i], "same", "x", CN_ROW_START | CN_ROW_END);
    settle(rig);
    for (i = 0; i < 2; i++) {
        fake_read(fakes[i]);
        assert_int_equal(fakes[i]->n_rows, 2); /* both workers get their share */
        assert_int_equal(fakes[i]->rows[0].flags, 0);
        assert_string_equal(fakes[i]->rows[0].id, "");
        answer_all(rig, fakes[i]);
    }
    assert_string_equal(clients[0].sequence_id, "");
    assert_int_equal(rig_stats(rig).live_sequences, 0);
    rig_destroy(rig);
}

/* Sequences are spread over the workers, and each one stays with its worker. */
static void
sequences_spread_and_stay(void **state)
{
    struct rig *rig = rig_create(config_batch_4);
    struct fake *fakes[2] = {fake_attach(rig), fake_attach(rig)};
    struct cn_worker_link_stats stats;
    struct client clients[6];
    char id[8];
    unsigned i, round;

    (void)state;
    for (round = 0; round < 3; round++) {
        for (i = 0; i < 6; i++) {
            snprintf(id, sizeof(id), "s%u", i);
            client_send(rig, &clients[i], id, "x", 0);
        }
        settle(rig);
        assert_int_equal(answer_all(rig, fakes[0]), 3);
        assert_int_equal(answer_all(rig, fakes[1]), 3);
    }
    for (i = 3; i < 9; i++) {
        assert_string_equal(fakes[0]->rows[i].id, fakes[0]->rows[i - 3].id);
        assert_false(fakes[0]->rows[i].flags & CN_ROW_RELOAD);
    }
    cn_worker_link_stats(fakes[1]->link, &stats);
    assert_int_equal(stats.live_sequences, 3);
    assert_int_equal(stats.rows, 9);
    assert_int_equal(stats.answers, 9);
    rig_destroy(rig);
}

/* A worker that is busy with its own sequences still gets new ones in turn. */
static void
new_sequences_are_not_starved(void **state)
{
    struct rig *rig = rig_create(NULL);
    struct fake *fake = fake_attach(rig);
    struct client old[8], new;
    char id[8];
    unsigned i;

    (void)state;
    for (i = 0; i < 4; i++) {
        snprintf(id, sizeof(id), "s%u", i);
        client_send(rig, &old[i], id, "1", 0);
    }
    settle(rig);
    answer_all(rig, fake);
    for (i = 0; i < 4; i++) {
        snprintf(id, sizeof(id), "s%u", i);
        client_send(rig, &old[i], id, "2", 0);
    }
    client_send(rig, &new, "new", "1", 0);
    for (i = 4; i < 8; i++) {
        snprintf(id, sizeof(id), "s%u", i - 4);
        client_send(rig, &old[i], id, "3", 0);
    }
    settle(rig);
    answer_all(rig, fake);
    assert_string_equal(fake->rows[8].id, "new");
    rig_destroy(rig);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(credit_and_frames_are_bounded),
        cmocka_unit_test(jobs_of_one_turn_share_a_frame),
        cmocka_unit_test(delay_waits_for_a_full_batch),
        cmocka_unit_test(stateless_rows_have_no_sequence),
        cmocka_unit_test(sequences_spread_and_stay),
        cmocka_unit_test(new_sequences_are_not_starved),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
