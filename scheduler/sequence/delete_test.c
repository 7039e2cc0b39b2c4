/* scheduler/sequence/delete_test.c - tests deleting a sequence on request, whatever happens to it
 * at that moment. */
#include "scheduler/queue/model_queue_priv.h"

#include "scheduler/test_support.h"

struct wish {
    struct cn_sequence_delete order;
    unsigned told;
};

static void
note_deleted(struct cn_sequence_delete *order)
{
    cn_container_of(order, struct wish, order)->told++;
}

static void delete (struct rig *rig, struct wish *wish, const char *id)
{
    *wish = (struct wish){{.sequence_id = cn_str_from(id), .on_done = note_deleted}, 0};
    cn_model_queue_delete_sequence(rig->queue, &wish->order);
    settle(rig);
}

static void
step(struct rig *rig, struct fake *fake, struct client *client, const char *id)
{
    client_send(rig, client, id, "x", 0);
    settle(rig);
    answer_next(rig, fake);
}

static void
config_lifetime(struct cn_model_config *config)
{
    config->sequence_timeout_ms = 5000;
}

/* The deletion is reported when the worker has done it, and not before. Other sequences are not
 * affected. */
static void
idle_sequence_is_deleted(void **state)
{
    struct rig *rig = rig_create(NULL);
    struct fake *fake = fake_attach(rig);
    struct client client;
    struct wish wish;

    (void)state;
    step(rig, fake, &client, "s");
    step(rig, fake, &client, "t");
    delete (rig, &wish, "s");
    fake_read(fake);
    assert_int_equal(fake->n_closes, 1);
    assert_string_equal(fake->closes[0].id, "s");
    assert_int_equal(fake->closes[0].generation, 7);
    assert_int_equal(fake->closes[0].reason, CN_CLOSE_DELETED);
    assert_int_equal(wish.told, 0);
    fake_closed(fake, 1);
    settle(rig);
    assert_int_equal(wish.told, 1);
    assert_int_equal(wish.order.err.code, 0);
    assert_true(wish.order.was_live);
    assert_int_equal(rig_stats(rig).live_sequences, 1);
    rig_destroy(rig);
}

/* An unknown sequence may be in the store, so a worker is asked. No entry remains in the table. */
static void
unknown_id_is_deleted_in_the_store(void **state)
{
    struct rig *rig = rig_create(NULL);
    struct fake *fake = fake_attach(rig);
    struct wish wish, again;

    (void)state;
    delete (rig, &wish, "s");
    delete (rig, &again, "s"); /* the first deletion is under way, so one CLOSE serves both */
    fake_read(fake);
    assert_int_equal(fake->n_closes, 1);
    assert_int_equal(fake->closes[0].generation, 0);
    fake_closed(fake, 1);
    settle(rig);
    assert_int_equal(wish.told, 1);
    assert_int_equal(again.told, 1);
    assert_false(wish.order.was_live);
    assert_int_equal(rig_stats(rig).live_sequences, 0);
    assert_int_equal(cn_table_count(rig->queue->sequences), 0);
    rig_destroy(rig);
}

/* A running step ends first, and the steps behind it get the deletion's error. They must not change
 * a state that somebody was told is gone. */
static void
running_step_ends_first_and_waiting_ones_meet_the_deletion(void **state)
{
    struct rig *rig = rig_create(NULL);
    struct fake *fake = fake_attach(rig);
    struct client running, waiting;
    struct wish wish;

    (void)state;
    client_send(rig, &running, "s", "1", 0);
    client_send(rig, &waiting, "s", "2", 0);
    settle(rig);
    delete (rig, &wish, "s");
    fake_read(fake);
    assert_int_equal(fake->n_closes, 0);
    answer_next(rig, fake);
    assert_int_equal(running.finals, 1);
    assert_int_equal(fake->n_closes, 1);
    assert_int_equal(fake->n_rows, 1); /* no step overtakes the CLOSE */
    assert_int_equal(fake->closes[0].generation, 7);
    fake_closed(fake, 1);
    settle(rig);
    assert_int_equal(wish.told, 1);
    answer_next(rig, fake);
    assert_int_equal(fake->rows[1].generation, 0); /* the store decides */
    assert_int_equal(waiting.finals, 1);
    rig_destroy(rig);
}

/* If the running step ends the sequence anyway, or its total time is over, the request for deletion
 * is answered, too. */
static void
sequence_that_ends_by_itself_meanwhile_is_deleted(void **state)
{
    struct rig *rig = rig_create(config_lifetime);
    struct fake *fake = fake_attach(rig);
    struct client client;
    struct wish ended, outlived;

    (void)state;
    client_send(rig, &client, "s", "x", CN_ROW_END);
    settle(rig);
    delete (rig, &ended, "s");
    answer_next(rig, fake);
    fake_closed(fake, fake->n_closes);
    settle(rig);
    assert_int_equal(ended.told, 1);
    step(rig, fake, &client, "t");
    client_send(rig, &client, "t", "x", 0);
    settle(rig);
    delete (rig, &outlived, "t");
    pass(rig, 6000);
    assert_int_equal(outlived.told, 0);
    answer_next(rig, fake);
    fake_closed(fake, 1);
    settle(rig);
    assert_int_equal(outlived.told, 1);
    assert_int_equal(outlived.order.err.code, 0);
    rig_destroy(rig);
}

/* If the worker dies, another one deletes the sequence. If there is none, nobody may say that it
 * was deleted. */
static void
death_of_the_worker_is_not_a_deletion(void **state)
{
    struct rig *rig = rig_create(NULL);
    struct fake *first = fake_attach(rig), *second;
    struct client client;
    struct wish wish, lost;

    (void)state;
    step(rig, first, &client, "s");
    delete (rig, &wish, "s");
    second = fake_attach(rig);
    fake_die(first, false, "killed");
    settle(rig);
    fake_read(second);
    assert_int_equal(second->n_closes, 1);
    fake_closed(second, 1);
    settle(rig);
    assert_int_equal(wish.told, 1);
    assert_int_equal(wish.order.err.code, 0);
    delete (rig, &lost, "s");
    fake_die(second, false, "killed");
    settle(rig);
    assert_int_equal(lost.told, 1);
    assert_int_equal(lost.order.err.code, CN_E_NO_WORKER);
    rig_destroy(rig);
}

/* If the disk is full, the state is still there, and whoever asked for the deletion must know that.
 */
static void
failed_deletion_is_told(void **state)
{
    struct rig *rig = rig_create(NULL);
    struct fake *fake = fake_attach(rig);
    struct client client;
    struct wish first, second;
    struct cn_buf buf;

    (void)state;
    step(rig, fake, &client, "s");
    step(rig, fake, &client, "t");
    delete (rig, &first, "s");
    delete (rig, &second, "t");
    cn_buf_init(&buf, 0);
    cn_frame_put_closed(&buf, &(struct cn_closed){2, 1, CN_E_STATE_STORE, CN_STR("disk full")});
    fake_write(fake, &buf);
    settle(rig);
    assert_true(first.told == 1 && first.order.err.code == 0);
    assert_true(second.told == 1 && second.order.err.code == CN_E_STATE_STORE);
    assert_string_equal(second.order.err.message,
                        "sequence t is not deleted: disk full; try again");
    client_send(rig, &client, "t", "x", 0); /* continues with what the store has */
    settle(rig);
    answer_next(rig, fake);
    assert_int_equal(client.finals, 1);
    rig_destroy(rig);
}

/* If a dead worker may have committed a step, the step gets its answer before the state is deleted.
 */
static void
redelivered_step_goes_before_the_deletion(void **state)
{
    struct rig *rig = rig_create(NULL);
    struct fake *first = fake_attach(rig), *second;
    struct client client;
    struct wish wish;

    (void)state;
    client_send(rig, &client, "s", "x", 0);
    settle(rig);
    delete (rig, &wish, "s");
    second = fake_attach(rig);
    fake_die(first, false, "killed");
    settle(rig);
    fake_read(second);
    assert_int_equal(second->n_rows, 1);
    assert_int_equal(second->n_closes, 0);
    answer_next(rig, second);
    assert_int_equal(client.error, 0);
    assert_int_equal(second->n_closes, 1);
    fake_closed(second, 1);
    settle(rig);
    assert_int_equal(wish.told, 1);
    rig_destroy(rig);
}

/* A request that cannot be done is refused at once. */
static void
impossible_deletions_are_refused(void **state)
{
    struct rig *rig = rig_create(NULL), *stateless = rig_create(config_stateless);
    char text[CN_SEQUENCE_ID_MAX + 2];
    struct wish wish;

    (void)state;
    delete (rig, &wish, "s");
    assert_int_equal(wish.told, 1);
    assert_int_equal(wish.order.err.code, CN_E_NO_WORKER);
    memset(text, 'x', sizeof(text));
    text[sizeof(text) - 1] = '\0';
    delete (rig, &wish, text);
    assert_int_equal(wish.order.err.code, CN_E_BAD_REQUEST);
    delete (stateless, &wish, "s");
    assert_int_equal(wish.order.err.code, CN_E_BAD_REQUEST);
    rig_destroy(stateless);
    rig_destroy(rig);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(idle_sequence_is_deleted),
        cmocka_unit_test(unknown_id_is_deleted_in_the_store),
        cmocka_unit_test(running_step_ends_first_and_waiting_ones_meet_the_deletion),
        cmocka_unit_test(sequence_that_ends_by_itself_meanwhile_is_deleted),
        cmocka_unit_test(death_of_the_worker_is_not_a_deletion),
        cmocka_unit_test(failed_deletion_is_told),
        cmocka_unit_test(redelivered_step_goes_before_the_deletion),
        cmocka_unit_test(impossible_deletions_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
