/* scheduler/workers/workers_test.c - tests workers that die, are late or retire, and jobs that
 * survive this. */
#include "scheduler/test_support.h"

static void
config_timeout(struct cn_model_config *config)
{
    config->sequence_batching = false;
    config->batch_size = 2;
    config->response_timeout_s = 2;
}

/* A step that was in flight is sent again under its job id, before later ones, and its state is
 * reloaded. */
static void
death_sends_steps_again_in_order(void **state)
{
    struct rig *rig = rig_create(config_batch_4);
    struct fake *first = fake_attach(rig), *second;
    struct client clients[3];
    unsigned i;

    (void)state;
    for (i = 0; i < 3; i++)
        client_send(rig, &clients[i], "s", i == 0 ? "0" : i == 1 ? "1" : "2", 0);
    settle(rig);
    answer_next(rig, first);
    fake_die(first, false, "killed by signal 9");
    settle(rig);
    second = fake_attach(rig);
    settle(rig);
    fake_read(second);
    assert_int_equal(second->n_rows, 1);
    assert_int_equal(second->rows[0].job_id, first->rows[1].job_id);
    assert_int_equal(second->rows[0].flags, CN_ROW_STATEFUL | CN_ROW_RELOAD | CN_ROW_REDELIVERED);
    assert_int_equal(second->rows[0].generation, 7);
    answer_all(rig, second);
    assert_string_equal(second->rows[1].body, "2");
    assert_int_equal(second->rows[1].flags, CN_ROW_STATEFUL);
    assert_int_equal(clients[1].error, 0);
    assert_int_equal(clients[2].order, 3);
    assert_int_equal(rig_stats(rig).redispatched, 1);
    rig_destroy(rig);
}

/* The server can say which step a worker has, and since when the worker has not answered. */
static void
a_busy_worker_shows_with_what(void **state)
{
    struct rig *rig = rig_create(config_batch_4);
    struct fake *worker = fake_attach(rig);
    struct cn_worker_link_stats stats;
    struct client clients[3];

    (void)state;
    cn_worker_link_stats(worker->link, &stats);
    assert_true(stats.busy_rows == 0 && stats.busy_ms == 0 && stats.busy_sequence.len == 0);
    client_send(rig, &clients[0], "s", "0", 0);
    settle(rig);
    pass(rig, 4000);
    client_send(rig, &clients[1], "t", "0", 0);
    client_send(rig, &clients[2], "s", "1", 0); /* waits for the first one */
    settle(rig);
    pass(rig, 3000);
    cn_worker_link_stats(worker->link, &stats);
    assert_int_equal(stats.busy_rows, 2);
    assert_int_equal(stats.busy_ms, 7000);
    assert_true(cn_str_eq(stats.busy_sequence, CN_STR("s")));
    answer_next(rig, worker);
    pass(rig, 500);
    cn_worker_link_stats(worker->link, &stats);
    assert_int_equal(stats.busy_ms, 500);
    assert_true(cn_str_eq(stats.busy_sequence, CN_STR("t")));
    answer_all(rig, worker);
    cn_worker_link_stats(worker->link, &stats);
    assert_true(stats.busy_rows == 0 && stats.busy_ms == 0);
    rig_destroy(rig);
}

/* Nobody knows which row killed the worker, so each goes alone, before anything else. */
static void
suspects_go_alone(void **state)
{
    struct rig *rig = rig_create(config_stateless_4);
    struct fake *first = fake_attach(rig), *second;
    struct client clients[12];
    unsigned i;

    (void)state;
    for (i = 0; i < 12; i++)
        client_send(rig, &clients[i], "", "x", 0);
    settle(rig);
    fake_read(first);
    assert_int_equal(first->n_rows, 8);
    fake_die(first, false, "segmentation fault");
    second = fake_attach(rig);
    settle(rig);
    for (i = 0; i < 8; i++) {
        fake_read(second);
        assert_int_equal(second->n_rows, i + 1);
        assert_int_equal(second->rows[i].job_id, first->rows[i].job_id);
        assert_true(second->rows[i].flags & CN_ROW_REDELIVERED);
        answer_next(rig, second);
    }
    assert_int_equal(second->n_rows, 12); /* then the others together */
    assert_int_equal(cn_worker_link_in_flight(second->link), 4);
    answer_all(rig, second);
    rig_destroy(rig);
}

/* A row that may have killed a worker goes to a busy worker only when that is empty, and nothing
 * goes with it. */
static void
busy_worker_empties_for_a_suspect(void **state)
{
    struct rig *rig = rig_create(config_stateless_4);
    struct fake *dies = fake_attach(rig), *other = fake_attach(rig);
    struct client clients[4];
    unsigned i;

    (void)state;
    for (i = 0; i < 3; i++)
        client_send(rig, &clients[i], "", "x", 0);
    settle(rig);
    fake_read(dies);
    fake_read(other);
    assert_int_equal(dies->n_rows, 2);
    assert_int_equal(other->n_rows, 1);
    fake_die(dies, false, NULL);
    client_send(rig, &clients[3], "", "new", 0);
    settle(rig);
    fake_read(other);
    assert_int_equal(other->n_rows, 1);
    answer_next(rig, other);
    assert_int_equal(other->n_rows, 2);
    answer_next(rig, other);
    assert_int_equal(other->n_rows, 3);
    answer_next(rig, other);
    assert_string_equal(other->rows[3].body, "new");
    answer_all(rig, other);
    rig_destroy(rig);
}

/* A row that kills each worker in which it is alone gets an error in the end, and its neighbours
 * are done. */
static void
poison_is_answered_after_three_deaths(void **state)
{
    struct rig *rig = rig_create(config_batch_4);
    struct client poison, behind, neighbour;
    struct fake *fake = fake_attach(rig);
    unsigned i;

    (void)state;
    client_send(rig, &neighbour, "n", "1", 0);
    client_send(rig, &poison, "p", "1", 0);
    client_send(rig, &behind, "p", "2", 0);
    settle(rig);
    fake_read(fake);
    assert_int_equal(fake->n_rows, 2);
    fake_die(fake, false, "not alone, so it does not count");
    fake = fake_attach(rig);
    settle(rig);
    answer_next(rig, fake);
    assert_int_equal(neighbour.error, 0);
    for (i = 0; i < CN_MAX_ALONE_DEATHS; i++) {
        assert_int_equal(poison.finals, 0);
        settle(rig);
        fake_read(fake);
        assert_string_equal(fake->rows[fake->n_rows - 1].id, "p");
        fake_die(fake, false, "killed by signal 11");
        fake = fake_attach(rig);
    }
    assert_int_equal(poison.error, CN_E_WORKER_DIED);
    assert_string_equal(poison.text,
                        "3 workers died on this request alone, so it is not sent again: "
                        "killed by signal 11");
    settle(rig);
    answer_all(rig, fake);
    assert_int_equal(fake->rows[0].generation, 0);
    assert_int_equal(behind.error, 0);
    rig_destroy(rig);
}

/* A late worker is killed once. A row that was alone in it is not tried again. */
static void
overdue_row_is_answered(void **state)
{
    struct rig *rig = rig_create(config_timeout);
    struct fake *fake = fake_attach(rig);
    struct client slow, next;

    (void)state;
    client_send(rig, &slow, "", "1", 0);
    settle(rig);
    pass(rig, 1999);
    assert_int_equal(fake->overdue, 0);
    pass(rig, 1);
    assert_int_equal(fake->overdue, 1);
    assert_string_equal(fake->why,
                        "worker 1 did not answer for 2 s (responseTimeout), 1 rows in flight");
    client_send(rig, &next, "", "2", 0);
    pass(rig, 5000);
    assert_int_equal(fake->overdue, 1);
    fake_read(fake);
    assert_int_equal(fake->n_rows, 1); /* a worker that will be killed gets nothing more */
    fake_die(fake, true, NULL);
    settle(rig);
    assert_int_equal(slow.error, CN_E_HANDLER_DEADLINE);
    fake = fake_attach(rig);
    settle(rig);
    answer_all(rig, fake);
    assert_int_equal(next.error, 0);
    rig_destroy(rig);
}

/* Each answer shows that the worker makes progress, so a queue of slow calls is not late. */
static void
progress_puts_the_deadline_off(void **state)
{
    struct rig *rig = rig_create(config_timeout);
    struct fake *fake = fake_attach(rig);
    struct client clients[4];
    unsigned i;

    (void)state;
    for (i = 0; i < 4; i++)
        client_send(rig, &clients[i], "", "1", 0);
    settle(rig);
    for (i = 0; i < 4; i++) {
        pass(rig, 1500);
        answer_next(rig, fake);
    }
    pass(rig, 60000);
    assert_int_equal(fake->overdue, 0);
    client_send(rig, &clients[0], "", "1", 0); /* its time counts from when it was sent */
    settle(rig);
    pass(rig, 1999);
    assert_int_equal(fake->overdue, 0);
    pass(rig, 1);
    assert_int_equal(fake->overdue, 1);
    rig_destroy(rig);
}

/* If a late worker had several rows, each gets another chance, alone. */
static void
overdue_batch_is_tried_one_by_one(void **state)
{
    struct rig *rig = rig_create(config_timeout);
    struct fake *fake = fake_attach(rig);
    struct client good, slow;

    (void)state;
    client_send(rig, &good, "", "1", 0);
    client_send(rig, &slow, "", "2", 0);
    settle(rig);
    fake_die(fake, true, NULL);
    fake = fake_attach(rig);
    settle(rig);
    answer_next(rig, fake);
    assert_int_equal(good.error, 0);
    fake_read(fake);
    fake_die(fake, true, NULL);
    settle(rig);
    assert_int_equal(slow.error, CN_E_HANDLER_DEADLINE);
    rig_destroy(rig);
}

/* A retiring worker finishes what it has. Its sequences continue in other workers, which reload
 * them. */
static void
retire_moves_sequences(void **state)
{
    struct rig *rig = rig_create(config_batch_4);
    struct fake *old = fake_attach(rig), *new;
    struct client a, b, c;

    (void)state;
    client_send(rig, &a, "s", "1", 0);
    client_send(rig, &b, "s", "2", 0);
    settle(rig);
    fake_read(old);
    new = fake_attach(rig);
    cn_model_queue_retire(rig->queue, old->link, rig_retired, rig);
    assert_int_equal(rig->retired, 0);
    settle(rig);
    assert_int_equal(rig->retired, 0); /* one is in flight */
    answer_next(rig, old);
    assert_int_equal(rig->retired, 1);
    assert_int_equal(old->n_rows, 1);
    fake_read(new);
    assert_int_equal(new->n_rows, 1);
    assert_int_equal(new->rows[0].flags, CN_ROW_STATEFUL | CN_ROW_RELOAD);
    assert_int_equal(new->rows[0].generation, 7);
    cn_worker_link_send_stop(old->link);
    settle(rig);
    fake_read(old);
    assert_int_equal(old->n_stops, 1);
    answer_all(rig, new);
    client_send(rig, &c, "s", "3", 0);
    settle(rig);
    answer_all(rig, new);
    assert_int_equal(new->rows[1].flags, CN_ROW_STATEFUL);
    assert_int_equal(a.error + b.error + c.error, 0);
    rig_destroy(rig);
}

static void
detaches_in_callback(void *ctx)
{
    struct rig *rig = ctx;

    rig->retired++;
    cn_model_queue_detach(rig->queue, rig->fakes[0].link, false, NULL);
    cn_worker_link_destroy(rig->fakes[0].link);
    rig->fakes[0].link = NULL;
}

/* The owner may detach and destroy a link as soon as it is informed that the worker is retired. */
static void
retired_link_may_go_at_once(void **state)
{
    struct rig *rig = rig_create(NULL);

    (void)state;
    fake_attach(rig);
    fake_attach(rig);
    cn_model_queue_retire(rig->queue, rig->fakes[0].link, detaches_in_callback, rig);
    settle(rig);
    assert_int_equal(rig->retired, 1);
    assert_int_equal(rig_stats(rig).attached_workers, 1);
    rig_destroy(rig);
}

/* Jobs that waited for a dead home worker go to any other worker, together with others. */
static void
waiting_steps_find_a_new_home(void **state)
{
    struct rig *rig = rig_create(NULL);
    struct fake *first = fake_attach(rig), *second;
    struct client warm[4], again[4];
    char id[8];
    unsigned i;

    (void)state;
    for (i = 0; i < 4; i++) {
        snprintf(id, sizeof(id), "s%u", i);
        client_send(rig, &warm[i], id, "1", 0);
    }
    settle(rig);
    answer_all(rig, first);
    for (i = 0; i < 4; i++) {
        snprintf(id, sizeof(id), "s%u", i);
        client_send(rig, &again[i], id, "2", 0);
    }
    settle(rig); /* two in flight, two wait for their home worker */
    second = fake_attach(rig);
    fake_die(first, false, NULL);
    settle(rig);
    answer_all(rig, second);
    assert_int_equal(second->n_rows, 4);
    for (i = 0; i < 4; i++) {
        assert_int_equal(again[i].error, 0);
        assert_true(second->rows[i].flags & CN_ROW_RELOAD);
        assert_int_equal(!!(second->rows[i].flags & CN_ROW_REDELIVERED), i < 2);
    }
    assert_int_equal(rig_stats(rig).live_sequences, 4);
    rig_destroy(rig);
}

/* Pieces that the client has are not sent again, whether the answer comes in the same pieces or as
 * a whole. */
static void
replayed_answer_is_not_sent_twice(void **state)
{
    bool whole;

    (void)state;
    for (whole = false;; whole = true) {
        struct rig *rig = rig_create(NULL);
        struct fake *fake = fake_attach(rig);
        struct client client;
        struct cn_answer answer;

        client_send(rig, &client, "s", "1", 0);
        settle(rig);
        fake_read(fake);
        answer = answer_to(&fake->rows[0]);
        answer.flags = 0;
        answer.body = CN_STR("one ");
        fake_send(fake, &answer);
        answer.body = CN_STR("two ");
        fake_send(fake, &answer);
        settle(rig);
        assert_int_equal(client.pieces, 2);
        fake_die(fake, false, NULL);
        fake = fake_attach(rig);
        settle(rig);
        fake_read(fake);
        answer.body = CN_STR("one ");
        if (!whole)
            fake_send(fake, &answer);
        answer.body = CN_STR("two ");
        if (!whole)
            fake_send(fake, &answer);
        answer.body = CN_STR("three ");
        if (!whole)
            fake_send(fake, &answer);
        answer.flags = CN_ANSWER_FINAL | CN_ANSWER_REPLAYED;
        answer.body = whole ? CN_STR("one two three four") : CN_STR("four");
        fake_send(fake, &answer);
        settle(rig);
        assert_int_equal(client.finals, 1);
        assert_int_equal(client.error, 0);
        assert_string_equal(client.all, "one two three four");
        assert_int_equal(rig_stats(rig).replayed, 1);
        rig_destroy(rig);
        if (whole)
            return;
    }
}

static void
config_in_memory(struct cn_model_config *config)
{
    config->durability = CN_DURABILITY_NONE;
}

/* A step's worker dies, and its client leaves before or after that, while the step waits to be sent
 * again. The next step must come with this generation. */
static void
expect_generation(void (*change)(struct cn_model_config *), uint32_t flags, bool leaves_first,
                  uint64_t generation)
{
    struct rig *rig = rig_create(change);
    struct fake *fake = fake_attach(rig), *next;
    struct client first, gone, later;

    client_send(rig, &first, "s", "1", 0);
    settle(rig);
    answer_next(rig, fake);
    client_send(rig, &gone, "s", "2", flags);
    settle(rig);
    if (!leaves_first)
        fake_die(fake, false, NULL);
    cn_model_queue_cancel(rig->queue, &gone.job);
    settle(rig);
    if (leaves_first)
        fake_die(fake, false, NULL);
    assert_int_equal(gone.error, CN_E_CANCELLED);
    next = fake_attach(rig);
    client_send(rig, &later, "s", "3", 0);
    settle(rig);
    fake_read(next);
    assert_int_equal(next->n_rows, 1);
    assert_int_equal(next->rows[0].generation, generation);
    assert_true(next->rows[0].flags & CN_ROW_RELOAD);
    answer_all(rig, next);
    assert_int_equal(later.error, 0);
    rig_destroy(rig);
}

/* The client of a START leaves, and its worker dies: nobody knows whether the step is committed. So
 * the next step does not insist on the generation before, unless that is gone with its worker. */
static void
failed_start_leaves_the_generation_to_the_store(void **state)
{
    (void)state;
    expect_generation(NULL, CN_ROW_START, true, 0);
    expect_generation(NULL, CN_ROW_END, true, 0);
    expect_generation(NULL, 0, true, 7);
    expect_generation(config_in_memory, CN_ROW_START, true, 7);
}

/* The client leaves only after the worker's death, while its START waits to be sent again. */
static void
start_that_is_not_sent_again_leaves_the_generation_to_the_store(void **state)
{
    (void)state;
    expect_generation(NULL, CN_ROW_START, false, 0);
    expect_generation(NULL, CN_ROW_END, false, 0);
    expect_generation(NULL, 0, false, 7);
}

/* If there is no other worker, a step of a dead worker is answered, too. */
static void
last_worker_dies_for_good(void **state)
{
    struct rig *rig = rig_create(NULL);
    struct fake *fake = fake_attach(rig);
    struct client a, b;

    (void)state;
    client_send(rig, &a, "s", "1", 0);
    client_send(rig, &b, "s", "2", 0);
    settle(rig);
    cn_model_queue_set_expected(rig->queue, 0, "it failed to start 5 times");
    settle(rig);
    assert_int_equal(a.finals + b.finals, 0); /* one worker is left */
    fake_die(fake, false, "killed by signal 9");
    settle(rig);
    assert_int_equal(a.error, CN_E_NO_WORKER);
    assert_int_equal(b.error, CN_E_NO_WORKER);
    assert_int_equal(rig_stats(rig).live_sequences, 0);
    rig_destroy(rig);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(death_sends_steps_again_in_order),
        cmocka_unit_test(a_busy_worker_shows_with_what),
        cmocka_unit_test(suspects_go_alone),
        cmocka_unit_test(busy_worker_empties_for_a_suspect),
        cmocka_unit_test(poison_is_answered_after_three_deaths),
        cmocka_unit_test(overdue_row_is_answered),
        cmocka_unit_test(progress_puts_the_deadline_off),
        cmocka_unit_test(overdue_batch_is_tried_one_by_one),
        cmocka_unit_test(retire_moves_sequences),
        cmocka_unit_test(retired_link_may_go_at_once),
        cmocka_unit_test(waiting_steps_find_a_new_home),
        cmocka_unit_test(replayed_answer_is_not_sent_twice),
        cmocka_unit_test(failed_start_leaves_the_generation_to_the_store),
        cmocka_unit_test(start_that_is_not_sent_again_leaves_the_generation_to_the_store),
        cmocka_unit_test(last_worker_dies_for_good),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
