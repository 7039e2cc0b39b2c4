/* scheduler/sequence/sequence_test.c - tests the clocks of sequences, and how sequences are closed.
 */
#include "scheduler/sequence/sequence.h"

#include "scheduler/test_support.h"

static void
config_idle(struct cn_model_config *config)
{
    config->sequence_max_idle_ms = 1000;
}

static void
config_idle_ttl(struct cn_model_config *config)
{
    config->sequence_max_idle_ms = 1000;
    config->state_ttl_ms = 60000;
}

static void
config_lifetime(struct cn_model_config *config)
{
    config->sequence_timeout_ms = 5000;
    config->batch_size = 4;
}

static void
config_idle_one_slot(struct cn_model_config *config)
{
    config->sequence_max_idle_ms = 1000;
    config->max_num_sequence = 1;
}

static void
step(struct rig *rig, struct fake *fake, struct client *client, const char *id)
{
    client_send(rig, client, id, "x", 0);
    settle(rig);
    answer_next(rig, fake);
}

/* An idle live sequence costs less than 300 bytes: its block, malloc's header, and its slots in the
 * table when that is emptiest (3/8 full). The timer is in the block, so a far deadline costs
 * nothing more. */
static void
idle_sequence_is_small(void **state)
{
    size_t block = offsetof(struct cn_sequence, id) + CN_GENERATED_ID_BYTES - 1;

    (void)state;
    block = (block + 8 + 15) / 16 * 16;
    assert_true(block + 16 * 8 / 3 < 220);
}

/* Idle time counts from the last answer, and each step starts it anew. When it is over, a worker
 * deletes the state. */
static void
idle_sequence_is_closed(void **state)
{
    struct rig *rig = rig_create(config_idle);
    struct fake *fake = fake_attach(rig);
    struct client client;

    (void)state;
    step(rig, fake, &client, "s");
    pass(rig, 900);
    step(rig, fake, &client, "s");
    pass(rig, 999);
    assert_int_equal(rig_stats(rig).live_sequences, 1);
    pass(rig, 1);
    assert_int_equal(rig_stats(rig).live_sequences, 0);
    assert_int_equal(rig_stats(rig).expired_sequences, 1);
    fake_read(fake);
    assert_int_equal(fake->n_closes, 1);
    assert_string_equal(fake->closes[0].id, "s");
    assert_int_equal(fake->closes[0].generation, 7);
    assert_int_equal(fake->closes[0].reason, CN_CLOSE_IDLE);
    fake_closed(fake, 1);
    settle(rig);
    assert_int_equal(fake->lost, 0);
    rig_destroy(rig);
}

/* A sequence with a step in flight or waiting is not idle, however long the step takes. */
static void
busy_sequence_is_not_idle(void **state)
{
    struct rig *rig = rig_create(config_idle);
    struct fake *fake = fake_attach(rig);
    struct client first, second;

    (void)state;
    step(rig, fake, &first, "s");
    client_send(rig, &second, "s", "x", 0);
    settle(rig);
    pass(rig, 5000);
    assert_int_equal(rig_stats(rig).live_sequences, 1);
    answer_next(rig, fake);
    pass(rig, 999);
    assert_int_equal(rig_stats(rig).live_sequences, 1);
    pass(rig, 1);
    assert_int_equal(rig_stats(rig).live_sequences, 0);
    rig_destroy(rig);
}

/* With stateTtlMSec only the sequence's place is given back. The state stays, so no worker is told
 * to delete it. */
static void
idle_slot_is_given_back_but_state_stays(void **state)
{
    struct rig *rig = rig_create(config_idle_ttl);
    struct fake *fake = fake_attach(rig);
    struct client client;

    (void)state;
    step(rig, fake, &client, "s");
    pass(rig, 1000);
    assert_int_equal(rig_stats(rig).live_sequences, 0);
    assert_int_equal(rig_stats(rig).expired_sequences, 0);
    step(rig, fake, &client, "s");
    assert_int_equal(fake->n_closes, 0);
    assert_int_equal(fake->rows[1].generation, 0);
    assert_true(fake->rows[1].flags & CN_ROW_RELOAD);
    rig_destroy(rig);
}

/* A step that comes while its sequence is being closed waits for the deletion, so that it cannot
 * overtake it at another worker. Then the store decides whether the sequence exists. */
static void
step_never_overtakes_the_close(void **state)
{
    struct rig *rig = rig_create(config_idle_one_slot);
    struct fake *home = fake_attach(rig), *other;
    struct client client, late, refused;

    (void)state;
    step(rig, home, &client, "s");
    pass(rig, 1000);
    other = fake_attach(rig);
    client_send(rig, &late, "s", "late", 0);
    client_send(rig, &refused, "t", "x", 0);
    settle(rig);
    fake_read(home);
    fake_read(other);
    assert_int_equal(home->n_closes, 1);
    assert_int_equal(home->n_rows + other->n_rows, 1);
    assert_int_equal(refused.error, CN_E_TOO_MANY_SEQUENCES); /* the late step has the place */
    fake_closed(home, 1);
    settle(rig);
    fake_read(home);
    fake_read(other);
    assert_int_equal(home->n_rows + other->n_rows, 2);
    answer_all(rig, home->n_rows == 2 ? home : other);
    assert_int_equal(late.error, 0);
    assert_int_equal(rig_stats(rig).live_sequences, 1);
    rig_destroy(rig);
}

/* If the worker that was to close the sequence dies, another one gets the CLOSE. */
static void
close_survives_its_worker(void **state)
{
    struct rig *rig = rig_create(config_idle);
    struct fake *home = fake_attach(rig), *other;
    struct client client, late;

    (void)state;
    step(rig, home, &client, "s");
    other = fake_attach(rig);
    pass(rig, 1000);
    client_send(rig, &late, "s", "late", 0);
    settle(rig);
    fake_die(home, false, NULL);
    settle(rig);
    fake_read(other);
    assert_int_equal(other->n_closes, 1);
    assert_int_equal(other->n_rows, 0);
    fake_die(other, false, NULL); /* now the store's own times close the sequence */
    settle(rig);
    assert_int_equal(late.finals, 0);
    other = fake_attach(rig);
    settle(rig);
    answer_all(rig, other);
    assert_int_equal(late.error, 0);
    rig_destroy(rig);
}

/* If there is no worker when a sequence expires, the server forgets the sequence, and the store's
 * own times close it. */
static void
expiry_without_a_worker_forgets(void **state)
{
    struct rig *rig = rig_create(config_idle);
    struct fake *fake = fake_attach(rig);
    struct client client;

    (void)state;
    step(rig, fake, &client, "s");
    fake_die(fake, false, NULL);
    pass(rig, 1000);
    assert_int_equal(rig_stats(rig).live_sequences, 0);
    assert_int_equal(rig_stats(rig).expired_sequences, 1);
    rig_destroy(rig);
}

/* The total time counts from the opening that the store has, not from what this server has seen. */
static void
lifetime_counts_from_the_opening(void **state)
{
    struct rig *rig = rig_create(config_lifetime);
    struct fake *fake = fake_attach(rig);
    struct client client;
    struct cn_answer answer;

    (void)state;
    client_send(rig, &client, "s", "x", 0);
    settle(rig);
    fake_read(fake);
    answer = answer_to(&fake->rows[fake->next++]);
    answer.opened_wall_ms = cn_wall_ms() - 4000;
    fake_send(fake, &answer);
    settle(rig);
    pass(rig, 500);
    step(rig, fake, &client, "s"); /* the answer has another opening time for the same generation */
    pass(rig, 499);
    assert_int_equal(rig_stats(rig).live_sequences, 1);
    pass(rig, 1);
    assert_int_equal(rig_stats(rig).live_sequences, 0);
    fake_read(fake);
    assert_int_equal(fake->closes[0].reason, CN_CLOSE_LIFETIME);
    rig_destroy(rig);
}

/* When the total time is over, the running step is finished and waiting ones are refused. A START
 * among them opens the next generation after the deletion. */
static void
lifetime_ends_between_steps(void **state)
{
    struct rig *rig = rig_create(config_lifetime);
    struct fake *fake = fake_attach(rig);
    struct client warm, runs, waits, retry, starts, after;

    (void)state;
    step(rig, fake, &warm, "s");
    pass(rig, 4000);
    client_send(rig, &runs, "s", "x", 0);
    client_send(rig, &waits, "s", "x", 0);
    client_prepare(&retry, rig->loop, "s", "x", 0);
    retry.job.row.idempotency_key = CN_STR("k"); /* the store knows if it was in time */
    cn_model_queue_submit(rig->queue, &retry.job);
    client_send(rig, &starts, "s", "x", CN_ROW_START);
    client_send(rig, &after, "s", "x", 0);
    settle(rig);
    pass(rig, 1000);
    assert_int_equal(runs.finals + waits.finals, 0);
    answer_next(rig, fake);
    assert_int_equal(runs.error, 0);
    assert_int_equal(waits.error, CN_E_SEQUENCE_EXPIRED);
    assert_string_equal(waits.text, "sequence s is closed: it was open for 5000 ms "
                                    "(sequenceTimeoutMSec); start a new one");
    assert_int_equal(fake->n_closes, 1);
    assert_int_equal(fake->closes[0].reason, CN_CLOSE_LIFETIME);
    assert_int_equal(fake->n_rows, 2);
    assert_int_equal(rig_stats(rig).expired_sequences, 1);
    fake_closed(fake, 1);
    settle(rig);
    assert_int_equal(answer_all(rig, fake), 3);
    assert_true(fake->rows[3].flags & CN_ROW_START);
    assert_int_equal(retry.error + starts.error + after.error, 0);
    assert_int_equal(rig_stats(rig).live_sequences, 1);
    rig_destroy(rig);
}

/* If a START is in flight when the total time of the old generation is over, the new generation is
 * not closed. */
static void
start_in_flight_outlives_the_old_generation(void **state)
{
    struct rig *rig = rig_create(config_lifetime);
    struct fake *fake = fake_attach(rig);
    struct client warm, starts, waits;
    struct cn_answer answer;

    (void)state;
    step(rig, fake, &warm, "s");
    client_send(rig, &starts, "s", "x", CN_ROW_START);
    client_send(rig, &waits, "s", "x", 0);
    settle(rig);
    pass(rig, 5000);
    fake_read(fake);
    answer = answer_to(&fake->rows[fake->next++]);
    answer.generation = 8;
    fake_send(fake, &answer);
    settle(rig);
    answer_all(rig, fake);
    assert_int_equal(waits.error, 0);
    pass(rig, 4999);
    assert_int_equal(rig_stats(rig).live_sequences, 1);
    pass(rig, 1);
    assert_int_equal(rig_stats(rig).live_sequences, 0);
    rig_destroy(rig);
}

/* A step that was in a dying worker may have been done in time, so it is sent again even if the
 * time is over by now. */
static void
redelivered_step_is_not_refused_for_age(void **state)
{
    struct rig *rig = rig_create(config_lifetime);
    struct fake *fake = fake_attach(rig);
    struct client warm, runs, waits;

    (void)state;
    step(rig, fake, &warm, "s");
    client_send(rig, &runs, "s", "x", 0);
    client_send(rig, &waits, "s", "x", 0);
    settle(rig);
    fake_die(fake, false, NULL);
    pass(rig, 5000);
    assert_int_equal(runs.finals, 0);
    fake = fake_attach(rig);
    settle(rig);
    answer_next(rig, fake);
    assert_int_equal(runs.error, 0);
    assert_int_equal(waits.error, CN_E_SEQUENCE_EXPIRED);
    rig_destroy(rig);
}

/* Unregistering closes live sequences: idle ones at once, busy ones after their step. */
static void
close_sequences_tells_the_workers(void **state)
{
    struct rig *rig = rig_create(config_lifetime);
    struct fake *fake = fake_attach(rig);
    struct client idle, busy;

    (void)state;
    step(rig, fake, &idle, "idle");
    client_send(rig, &busy, "busy", "x", 0);
    settle(rig);
    cn_model_queue_close_sequences(rig->queue, CN_CLOSE_UNLOADED);
    cn_model_queue_retire(rig->queue, fake->link, rig_retired, rig);
    settle(rig);
    fake_read(fake);
    assert_int_equal(fake->n_closes, 1);
    assert_string_equal(fake->closes[0].id, "idle");
    assert_int_equal(fake->closes[0].reason, CN_CLOSE_UNLOADED);
    answer_next(rig, fake);
    assert_int_equal(fake->n_closes, 2);
    assert_string_equal(fake->closes[1].id, "busy");
    fake_closed(fake, 1);
    settle(rig);
    assert_int_equal(rig->retired, 0); /* one deletion is under way */
    fake_closed(fake, 1);
    settle(rig);
    assert_int_equal(rig->retired, 1);
    assert_int_equal(rig_stats(rig).live_sequences, 0);
    assert_int_equal(rig_stats(rig).expired_sequences, 0);
    rig_destroy(rig);
}

/* Thousands of sequences that expire together are closed in frames, with a bounded number of
 * sequences at a time. */
static void
mass_expiry_is_paced(void **state)
{
    enum { N = 5000 };
    struct rig *rig = rig_create(config_idle);
    struct fake *fake = fake_attach(rig);
    struct client client;
    char id[16];
    unsigned i;

    (void)state;
    for (i = 0; i < N; i++) {
        snprintf(id, sizeof(id), "s%u", i);
        step(rig, fake, &client, id);
        fake->n_rows = fake->next = 0;
    }
    assert_int_equal(rig_stats(rig).live_sequences, N);
    pass(rig, 1000);
    fake_read(fake);
    assert_int_equal(rig_stats(rig).live_sequences, 0);
    assert_int_equal(fake->n_closes, 4096);
    for (i = 0; i < 16; i++)
        fake_closed(fake, 256);
    settle(rig);
    fake_read(fake);
    assert_int_equal(fake->n_closes, N);
    assert_int_equal(rig_stats(rig).expired_sequences, N);
    assert_int_equal(fake->lost, 0);
    rig_destroy(rig);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(idle_sequence_is_small),
        cmocka_unit_test(idle_sequence_is_closed),
        cmocka_unit_test(busy_sequence_is_not_idle),
        cmocka_unit_test(idle_slot_is_given_back_but_state_stays),
        cmocka_unit_test(step_never_overtakes_the_close),
        cmocka_unit_test(close_survives_its_worker),
        cmocka_unit_test(expiry_without_a_worker_forgets),
        cmocka_unit_test(lifetime_counts_from_the_opening),
        cmocka_unit_test(lifetime_ends_between_steps),
        cmocka_unit_test(start_in_flight_outlives_the_old_generation),
        cmocka_unit_test(redelivered_step_is_not_refused_for_age),
        cmocka_unit_test(close_sequences_tells_the_workers),
        cmocka_unit_test(mass_expiry_is_paced),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
