/* scheduler/batch/pressure_test.c - waits are measured, and steps that waited for too long go
 * elsewhere. */
#include "scheduler/batch/pressure.h"

#include "scheduler/test_support.h"

static unsigned waits;

static void
on_wait(void *ctx)
{
    (void)ctx;
    waits++;
}

static void
config_delay(struct cn_model_config *config)
{
    config->sequence_batching = false;
    config->batch_size = 8;
    config->max_batch_delay_ms = 100;
}

static void
config_none(struct cn_model_config *config)
{
    config->durability = CN_DURABILITY_NONE;
}

/* With batchSize 1 a worker has two rows, so the third sequence waits. Its waiting time counts
 * once. */
static void
a_wait_for_a_worker_is_seen(void **state)
{
    struct rig *rig = rig_create(NULL);
    struct fake *fake = fake_attach(rig);
    struct client clients[3];

    (void)state;
    waits = 0;
    cn_model_queue_set_pressure(rig->queue, on_wait, NULL, 0);
    client_send(rig, &clients[0], "a", "0", 0);
    client_send(rig, &clients[1], "b", "0", 0);
    settle(rig);
    assert_int_equal(waits, 0);
    client_send(rig, &clients[2], "c", "0", 0);
    settle(rig);
    assert_true(waits > 0);
    pass(rig, 300);
    assert_int_equal(cn_model_queue_take_wait(rig->queue), 300); /* it still waits */
    pass(rig, 100);
    answer_next(rig, fake);
    settle(rig);
    assert_int_equal(cn_model_queue_take_wait(rig->queue), 400); /* it was sent */
    assert_int_equal(cn_model_queue_take_wait(rig->queue), 0);
    answer_all(rig, fake);
    rig_destroy(rig);
}

/* One more worker would not help a sequence whose earlier step is not answered yet. */
static void
steps_of_one_sequence_wait_for_themselves(void **state)
{
    struct rig *rig = rig_create(NULL);
    struct fake *fake = fake_attach(rig);
    struct client clients[2];

    (void)state;
    client_send(rig, &clients[0], "a", "0", 0);
    client_send(rig, &clients[1], "a", "1", 0);
    settle(rig);
    pass(rig, 5000);
    assert_int_equal(cn_model_queue_take_wait(rig->queue), 0);
    answer_all(rig, fake);
    assert_int_equal(cn_model_queue_take_wait(rig->queue), 0);
    rig_destroy(rig);
}

/* Waiting because of maxBatchDelay does not count, because the model asks for it. */
static void
a_delay_that_the_model_asks_for_is_no_wait(void **state)
{
    struct rig *rig = rig_create(config_delay);
    struct fake *fake = fake_attach(rig);
    struct client client;

    (void)state;
    client_send(rig, &client, "", "0", 0);
    settle(rig);
    pass(rig, 100);
    assert_int_equal(cn_model_queue_take_wait(rig->queue), 0);
    answer_all(rig, fake);
    rig_destroy(rig);
}

/* A sequence stays with its worker as long as that takes its steps soon. Otherwise it moves, and
 * the new worker reads its state from the store. */
static void
a_step_that_waits_for_too_long_moves_its_sequence(void **state)
{
    struct rig *rig = rig_create(NULL);
    struct fake *first = fake_attach(rig), *second;
    struct client opening[3], clients[3];
    static const char *const ids[] = {"a", "b", "c"};
    unsigned i;

    (void)state;
    cn_model_queue_set_pressure(rig->queue, on_wait, NULL, 125);
    for (i = 0; i < 3; i++) {
        client_send(rig, &opening[i], ids[i], "0", 0);
        settle(rig);
        answer_all(rig, first);
    }
    for (i = 0; i < 3; i++)
        client_send(rig, &clients[i], ids[i], "1", 0);
    settle(rig);
    second = fake_attach(rig);
    settle(rig);
    fake_read(second);
    assert_int_equal(second->n_rows, 0);
    pass(rig, 126);
    cn_model_queue_set_expected(rig->queue, 1, NULL); /* a turn of the queue */
    settle(rig);
    fake_read(second);
    assert_int_equal(second->n_rows, 1);
    assert_string_equal(second->rows[0].id, "c");
    assert_true(second->rows[0].flags & CN_ROW_RELOAD);
    answer_all(rig, first);
    answer_all(rig, second);
    assert_int_equal(clients[2].error, 0);
    client_send(rig, &clients[2], "c", "2", 0);
    settle(rig);
    fake_read(second);
    assert_int_equal(second->n_rows, 2); /* the second worker is its home now */
    answer_all(rig, second);
    rig_destroy(rig);
}

/* If a sequence's state would be lost with its worker, the number of workers stays fixed. */
static void
states_that_live_in_workers_fix_them(void **state)
{
    struct rig *rig = rig_create(config_none);

    (void)state;
    assert_non_null(cn_model_queue_fixed_for(rig->queue));
    rig_destroy(rig);
    rig = rig_create(NULL);
    assert_null(cn_model_queue_fixed_for(rig->queue));
    rig_destroy(rig);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_wait_for_a_worker_is_seen),
        cmocka_unit_test(steps_of_one_sequence_wait_for_themselves),
        cmocka_unit_test(a_delay_that_the_model_asks_for_is_no_wait),
        cmocka_unit_test(a_step_that_waits_for_too_long_moves_its_sequence),
        cmocka_unit_test(states_that_live_in_workers_fix_them),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
