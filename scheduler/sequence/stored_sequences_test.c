/* scheduler/sequence/stored_sequences_test.c - tests reading and writing stored sequences while
 * steps run. */
#include "scheduler/queue/model_queue_priv.h"

#include "scheduler/test_support.h"

struct wish {
    struct cn_sequence_query order;
    unsigned told;
    bool has_result;
    struct cn_query_result result; /* borrowed: numbers only */
    char next[CN_SEQUENCE_ID_MAX];
};

static void
note_done(struct cn_sequence_query *order, const struct cn_query_result *result)
{
    struct wish *wish = cn_container_of(order, struct wish, order);

    wish->told++;
    wish->has_result = result != NULL;
    if (result)
        wish->result = *result;
}

static void
ask(struct rig *rig, struct wish *wish, enum cn_query_op op, const char *id)
{
    *wish = (struct wish){
        .order = {.query = {.op = op, .sequence_id = cn_str_from(id)}, .on_done = note_done}};
    if (op == CN_QUERY_LIST)
        wish->order.query.limit = 10;
    cn_model_queue_query(rig->queue, &wish->order);
    settle(rig);
    for (unsigned i = 0; i < rig->n_fakes; i++)
        if (rig->fakes[i].fd >= 0)
            fake_read(&rig->fakes[i]);
}

/* The worker answers the next query that it has. */
static void
give(struct rig *rig, struct fake *fake, int code, uint64_t generation, const char *next)
{
    struct cn_sequence_info info = {
        .id = CN_STR("s"), .generation = generation, .opened_wall_ms = cn_wall_ms()};
    struct cn_query_result result = {.query_id = fake->queries[fake->next_query++].id,
                                     .error_code = code,
                                     .message = cn_str_from(code ? "disk full" : ""),
                                     .n_sequences = code ? 0 : 1,
                                     .sequences = &info,
                                     .next = cn_str_from(next)};
    struct cn_buf buf;

    assert_true(fake->next_query <= fake->n_queries);
    cn_buf_init(&buf, 0);
    cn_frame_put_result(&buf, &result);
    fake_write(fake, &buf);
    settle(rig);
    fake_read(fake);
}

static void
step(struct rig *rig, struct fake *fake, struct client *client, const char *id)
{
    client_send(rig, client, id, "x", 0);
    settle(rig);
    answer_next(rig, fake);
}

static void
config_none(struct cn_model_config *config)
{
    config->durability = CN_DURABILITY_NONE;
}

static void
config_two(struct cn_model_config *config)
{
    config->max_num_sequence = 2;
}

static void
config_idle(struct cn_model_config *config)
{
    config->sequence_max_idle_ms = 5000;
    config->sequence_timeout_ms = 9000;
}

/* A query goes to the worker that gets the sequence's steps, behind the rows that were sent, and
 * delays no step. */
static void
a_read_follows_the_steps_to_the_home_worker(void **state)
{
    struct rig *rig = rig_create(NULL);
    struct fake *first = fake_attach(rig), *second;
    struct client before, running;
    struct cn_sequence_live live;
    struct wish wish;

    (void)state;
    step(rig, first, &before, "s");
    second = fake_attach(rig);
    client_send(rig, &running, "s", "2", 0);
    settle(rig);
    ask(rig, &wish, CN_QUERY_READ, "s");
    assert_int_equal(first->n_queries, 1);
    assert_int_equal(second->n_queries, 0);
    assert_int_equal(first->queries[0].after_rows, 2); /* sent in this order */
    assert_true(cn_model_queue_look(rig->queue, CN_STR("s"), &live));
    assert_true(live.in_flight && live.worker == 1 && live.waiting == 0);
    answer_next(rig, first);
    give(rig, first, 0, 7, "");
    assert_true(wish.told == 1 && wish.has_result && wish.result.n_sequences == 1);
    assert_int_equal(running.finals, 1);
    rig_destroy(rig);
}

/* An id that the queue does not know may be in the store. Looking it up opens nothing. */
static void
a_read_of_an_unknown_id_opens_nothing(void **state)
{
    struct rig *rig = rig_create(NULL);
    struct fake *fake = fake_attach(rig);
    struct cn_sequence_live live;
    struct wish wish;

    (void)state;
    ask(rig, &wish, CN_QUERY_READ, "s");
    give(rig, fake, CN_E_SEQUENCE_UNKNOWN, 0, "");
    assert_true(wish.told == 1 && !wish.has_result);
    assert_int_equal(wish.order.err.code, CN_E_SEQUENCE_UNKNOWN);
    assert_int_equal(cn_table_count(rig->queue->sequences), 0);
    assert_false(cn_model_queue_look(rig->queue, CN_STR("s"), &live));
    rig_destroy(rig);
}

/* No step may run on a state that is about to be replaced, or overtake the write. */
static void
a_write_waits_for_the_running_step_and_holds_those_behind_it(void **state)
{
    struct rig *rig = rig_create(NULL);
    struct fake *fake = fake_attach(rig);
    struct client running, waiting, late;
    struct wish wish;

    (void)state;
    client_send(rig, &running, "s", "1", 0);
    client_send(rig, &waiting, "s", "2", 0);
    settle(rig);
    ask(rig, &wish, CN_QUERY_WRITE, "s");
    assert_int_equal(fake->n_queries, 0);
    answer_next(rig, fake);
    assert_int_equal(running.finals, 1);
    assert_int_equal(fake->n_queries, 1);
    assert_int_equal(fake->n_rows, 1);
    client_send(rig, &late, "s", "3", 0);
    settle(rig);
    fake_read(fake);
    assert_int_equal(fake->n_rows, 1);
    give(rig, fake, 0, 50, "");
    assert_true(wish.told == 1 && wish.has_result);
    assert_int_equal(fake->n_rows, 2);
    assert_int_equal(fake->rows[1].generation, 50); /* steps continue with the written state */
    assert_true(fake->rows[1].flags & CN_ROW_RELOAD);
    answer_next(rig, fake);
    answer_next(rig, fake);
    assert_true(waiting.finals == 1 && late.finals == 1);
    rig_destroy(rig);
}

/* A sequence that was written is live from then on: it has a place, a home worker and both clocks.
 */
static void
a_written_sequence_is_live_and_its_clocks_run(void **state)
{
    struct rig *rig = rig_create(config_idle);
    struct fake *fake = fake_attach(rig);
    struct cn_sequence_live live;
    struct wish wish;

    (void)state;
    ask(rig, &wish, CN_QUERY_WRITE, "s");
    assert_false(cn_model_queue_look(rig->queue, CN_STR("s"), &live)); /* not yet */
    give(rig, fake, 0, 50, "");
    assert_int_equal(rig_stats(rig).live_sequences, 1);
    assert_true(cn_model_queue_look(rig->queue, CN_STR("s"), &live));
    assert_true(live.worker == 1 && live.lifetime_left_ms == 9000);
    pass(rig, 6000);
    fake_read(fake);
    assert_int_equal(fake->n_closes, 1);
    assert_int_equal(fake->closes[0].reason, CN_CLOSE_IDLE);
    assert_int_equal(fake->closes[0].generation, 50);
    rig_destroy(rig);
}

/* If the worker refuses a write, nothing has changed, and nothing remains. */
static void
a_refused_write_changes_nothing(void **state)
{
    struct rig *rig = rig_create(NULL);
    struct fake *fake = fake_attach(rig);
    struct client client;
    struct wish known, unknown;

    (void)state;
    step(rig, fake, &client, "s");
    ask(rig, &known, CN_QUERY_WRITE, "s");
    give(rig, fake, CN_E_CONFLICT, 0, "");
    ask(rig, &unknown, CN_QUERY_WRITE, "t");
    give(rig, fake, CN_E_STATE_STORE, 0, "");
    assert_int_equal(known.order.err.code, CN_E_CONFLICT);
    assert_string_equal(known.order.err.message, "disk full");
    assert_int_equal(unknown.order.err.code, CN_E_STATE_STORE);
    assert_int_equal(rig_stats(rig).live_sequences, 1);
    assert_int_equal(cn_table_count(rig->queue->sequences), 1);
    client_send(rig, &client, "s", "2", 0);
    settle(rig);
    fake_read(fake);
    assert_int_equal(fake->rows[1].generation, 7); /* as before */
    answer_next(rig, fake);
    rig_destroy(rig);
}

static unsigned deleted;

static void
note_deleted(struct cn_sequence_delete *order)
{
    assert_int_equal(order->err.code, 0);
    deleted++;
}

/* Two writes and a deletion of one sequence are done one after the other, and each caller gets its
 * own result. */
static void
writes_and_deletions_of_one_sequence_take_turns(void **state)
{
    struct rig *rig = rig_create(NULL);
    struct fake *fake = fake_attach(rig);
    struct cn_sequence_delete order = {.sequence_id = CN_STR("s"), .on_done = note_deleted};
    struct wish first, second;

    (void)state;
    deleted = 0;
    ask(rig, &first, CN_QUERY_WRITE, "s");
    ask(rig, &second, CN_QUERY_WRITE, "s");
    cn_model_queue_delete_sequence(rig->queue, &order);
    assert_int_equal(fake->n_queries, 1);
    assert_int_equal(fake->n_closes, 0);
    give(rig, fake, 0, 50, "");
    assert_true(first.told == 1 && second.told == 0);
    assert_int_equal(fake->n_closes, 1); /* deletion first: later writes stay */
    fake_closed(fake, 1);
    settle(rig);
    fake_read(fake);
    assert_int_equal(deleted, 1);
    assert_int_equal(fake->n_queries, 2);
    give(rig, fake, 0, 51, "");
    assert_int_equal(second.told, 1);
    assert_int_equal(rig_stats(rig).live_sequences, 1);
    rig_destroy(rig);
}

/* If the worker dies, the caller learns that the result is not known. Steps continue with another
 * worker. */
static void
death_of_the_worker_is_told_and_nothing_hangs(void **state)
{
    struct rig *rig = rig_create(NULL);
    struct fake *first = fake_attach(rig), *second;
    struct client client, waiting;
    struct wish reading, writing, nobody;

    (void)state;
    step(rig, first, &client, "s");
    ask(rig, &reading, CN_QUERY_READ, "s");
    ask(rig, &writing, CN_QUERY_WRITE, "s");
    client_send(rig, &waiting, "s", "2", 0);
    settle(rig);
    second = fake_attach(rig);
    fake_die(first, false, "killed");
    settle(rig);
    assert_true(reading.told == 1 && writing.told == 1);
    assert_int_equal(reading.order.err.code, CN_E_UNAVAILABLE);
    assert_non_null(strstr(writing.order.err.message, "may or may not have been written"));
    fake_read(second);
    assert_int_equal(second->n_rows, 1);
    assert_int_equal(second->rows[0].generation, 0); /* the store decides */
    answer_next(rig, second);
    assert_int_equal(waiting.finals, 1);
    fake_die(second, false, "killed");
    settle(rig);
    ask(rig, &nobody, CN_QUERY_LIST, "");
    assert_true(nobody.told == 1 && nobody.order.err.code == CN_E_NO_WORKER);
    rig_destroy(rig);
}

/* A worker that does not answer a query hangs, like one that does not answer a step. */
static void
a_worker_that_does_not_answer_is_overdue(void **state)
{
    struct rig *rig = rig_create(NULL);
    struct fake *fake = fake_attach(rig);
    struct wish wish;

    (void)state;
    ask(rig, &wish, CN_QUERY_READ, "s");
    pass(rig, rig->config.response_timeout_s * 1000 + 1000);
    assert_int_equal(fake->overdue, 1);
    fake_die(fake, true, "killed");
    assert_int_equal(wish.told, 1);
    rig_destroy(rig);
}

/* With durability none each worker has its own sequences, so a list asks all workers. */
static void
a_list_of_memory_stores_goes_from_worker_to_worker(void **state)
{
    struct rig *rig = rig_create(config_none);
    struct fake *first = fake_attach(rig), *second = fake_attach(rig);
    struct wish wish;

    (void)state;
    ask(rig, &wish, CN_QUERY_LIST, "");
    assert_int_equal(first->n_queries, 1);
    give(rig, first, 0, 1, "more");
    assert_int_equal(wish.order.worker, 1); /* this worker has more */
    ask(rig, &wish, CN_QUERY_LIST, "");
    give(rig, first, 0, 1, "");
    assert_int_equal(wish.order.worker, 2);
    wish.order.query.sequence_id.len = 0;
    cn_model_queue_query(rig->queue, &wish.order);
    settle(rig);
    fake_read(second);
    assert_int_equal(second->n_queries, 1);
    give(rig, second, 0, 1, "");
    assert_int_equal(wish.order.worker, 0); /* there are no more */
    rig_destroy(rig);
}

/* A request that cannot be done is refused at once. */
static void
impossible_queries_are_refused(void **state)
{
    struct rig *rig = rig_create(config_two), *stateless = rig_create(config_stateless);
    struct fake *fake = fake_attach(rig);
    static struct wish many[CN_QUERIES_MAX];
    char text[CN_SEQUENCE_ID_MAX + 2];
    struct client client;
    struct wish wish;

    (void)state;
    memset(text, 'x', sizeof(text));
    text[sizeof(text) - 1] = '\0';
    ask(rig, &wish, CN_QUERY_READ, text);
    assert_int_equal(wish.order.err.code, CN_E_BAD_REQUEST);
    ask(rig, &wish, CN_QUERY_WRITE, "");
    assert_int_equal(wish.order.err.code, CN_E_BAD_REQUEST);
    ask(stateless, &wish, CN_QUERY_LIST, "");
    assert_int_equal(wish.order.err.code, CN_E_BAD_REQUEST);
    step(rig, fake, &client, "a");
    step(rig, fake, &client, "b");
    ask(rig, &wish, CN_QUERY_WRITE, "c");
    assert_int_equal(wish.order.err.code, CN_E_TOO_MANY_SEQUENCES);
    for (unsigned i = 0; i < CN_QUERIES_MAX; i++)
        ask(rig, &many[i], CN_QUERY_READ, "a");
    ask(rig, &wish, CN_QUERY_READ, "a");
    assert_int_equal(wish.order.err.code, CN_E_QUEUE_FULL);
    cn_model_queue_close(rig->queue, CN_E_DRAINING, "the server is stopping", false, rig_empty,
                         rig);
    ask(rig, &wish, CN_QUERY_READ, "a");
    assert_int_equal(wish.order.err.code, CN_E_DRAINING);
    rig_destroy(stateless);
    rig_destroy(rig);
    assert_int_equal(many[CN_QUERIES_MAX - 1].told, 1);
}

/* A RESULT without a query ends the connection. */
static void
a_result_out_of_turn_ends_the_link(void **state)
{
    struct rig *rig = rig_create(NULL);
    struct fake *fake = fake_attach(rig);
    struct cn_query_result result = {.query_id = 99};
    struct cn_buf buf;

    (void)state;
    cn_buf_init(&buf, 0);
    cn_frame_put_result(&buf, &result);
    fake_write(fake, &buf);
    settle(rig);
    assert_int_equal(fake->lost, 1);
    assert_non_null(strstr(fake->why, "RESULT of query 99"));
    rig_destroy(rig);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_read_follows_the_steps_to_the_home_worker),
        cmocka_unit_test(a_read_of_an_unknown_id_opens_nothing),
        cmocka_unit_test(a_write_waits_for_the_running_step_and_holds_those_behind_it),
        cmocka_unit_test(a_written_sequence_is_live_and_its_clocks_run),
        cmocka_unit_test(a_refused_write_changes_nothing),
        cmocka_unit_test(writes_and_deletions_of_one_sequence_take_turns),
        cmocka_unit_test(death_of_the_worker_is_told_and_nothing_hangs),
        cmocka_unit_test(a_worker_that_does_not_answer_is_overdue),
        cmocka_unit_test(a_list_of_memory_stores_goes_from_worker_to_worker),
        cmocka_unit_test(impossible_queries_are_refused),
        cmocka_unit_test(a_result_out_of_turn_ends_the_link),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
