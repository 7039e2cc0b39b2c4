/* scheduler/queue/overload_test.c - more steps come than the worker can do. The worker does one
 * step in 10 ms, clients give up after 5 s, and steps come evenly, as many as the test says. */
#include "scheduler/test_support.h"

#define STEP_MS 10 /* what the worker takes for a step */
#define PATIENCE_MS 5000

/* A client of the simulation, and when it came. */
struct visitor {
    struct client client;
    uint64_t came_ms;
    bool in_time, left, is_counted;
};

struct flow {
    const char *id;  /* of its sequence; "": stateless; NULL: a new sequence for each step */
    uint32_t client; /* its address or key */
    /* the owner of its sequences, "NAME/"; NULL: they have none. Only for new sequences */
    const char *owner;
    uint32_t flags;
    unsigned every_ms; /* a step comes that often */
    unsigned burst;    /* that many at once; 0: one */
    unsigned sent, good, refused, late;
};

struct simulation {
    struct rig *rig;
    struct fake *fake;
    struct visitor **visitors;
    unsigned n, room, first;     /* first: the first one that may still be answered */
    uint64_t now_ms, longest_ms; /* the longest wait of a step that was answered */
};

static void
config_unbounded(struct cn_model_config *config)
{
    config->sequence_batching = false;
    config->queue_target_ms = 0;
}

static void
begin(struct simulation *sim, void (*change)(struct cn_model_config *config))
{
    *sim = (struct simulation){.room = 16384};
    sim->rig = rig_create(change);
    sim->fake = fake_attach(sim->rig);
    sim->visitors = cn_alloc(sim->room * sizeof *sim->visitors);
    settle(sim->rig);
}

static void
end(struct simulation *sim)
{
    rig_destroy(sim->rig);
    for (unsigned i = 0; i < sim->n; i++)
        cn_free(sim->visitors[i]);
    cn_free(sim->visitors);
}

static void
come(struct simulation *sim, struct flow *flow)
{
    struct visitor *visitor = cn_alloc(sizeof *visitor);
    char id[32];

    assert_true(sim->n < sim->room);
    snprintf(id, sizeof id, "%snew%u", flow->owner ? flow->owner : "", sim->n);
    sim->visitors[sim->n++] = visitor;
    client_prepare(&visitor->client, sim->rig->loop, flow->id ? flow->id : id, "x", flow->flags);
    visitor->client.job.client = flow->client;
    visitor->client.job.owner = cn_str_from(flow->owner ? flow->owner : "");
    visitor->client.job.priority = (uint64_t)(uintptr_t)flow; /* no policy reads it here */
    visitor->came_ms = sim->now_ms;
    flow->sent++;
    cn_model_queue_submit(sim->rig->queue, &visitor->client.job);
}

static void
look(struct simulation *sim, struct visitor *visitor)
{
    struct flow *flow = (struct flow *)(uintptr_t)visitor->client.job.priority;
    uint64_t waited_ms = sim->now_ms - visitor->came_ms;

    if (visitor->is_counted)
        return;
    if (!visitor->client.finals && !visitor->left && waited_ms >= PATIENCE_MS) {
        visitor->left = true;
        cn_model_queue_cancel(sim->rig->queue, &visitor->client.job);
    }
    if (!visitor->client.finals)
        return;
    visitor->is_counted = true;
    if (visitor->client.error == CN_E_OVERLOADED || visitor->client.error == CN_E_QUEUE_FULL) {
        flow->refused++;
        assert_true(visitor->client.retry_after_s >= 1);
    } else if (visitor->client.error || waited_ms >= PATIENCE_MS) {
        flow->late++;
    } else {
        flow->good++;
        sim->longest_ms = waited_ms > sim->longest_ms ? waited_ms : sim->longest_ms;
    }
}

/* The worker answers its oldest row. Its notes are thrown away once all are answered. */
static void
work(struct simulation *sim)
{
    fake_read(sim->fake);
    sim->fake->n_cancels = 0;
    if (sim->fake->next < sim->fake->n_rows)
        answer_next(sim->rig, sim->fake);
    if (sim->fake->next > SEEN_MAX / 2) {
        unsigned left = sim->fake->n_rows - sim->fake->next;

        memmove(sim->fake->rows, sim->fake->rows + sim->fake->next, left * sizeof *sim->fake->rows);
        sim->fake->n_rows = left;
        sim->fake->next = 0;
    }
}

static void
run(struct simulation *sim, struct flow *flows, unsigned n_flows, uint64_t ms)
{
    uint64_t until_ms = sim->now_ms + ms;

    for (; sim->now_ms < until_ms; sim->now_ms++) {
        for (unsigned i = 0; i < n_flows; i++)
            for (unsigned k = 0;
                 sim->now_ms % flows[i].every_ms == 0 && k < (flows[i].burst ? flows[i].burst : 1);
                 k++)
                come(sim, &flows[i]);
        if (sim->now_ms % STEP_MS == STEP_MS - 1)
            work(sim);
        for (unsigned i = sim->first; i < sim->n; i++)
            look(sim, sim->visitors[i]);
        while (sim->first < sim->n && sim->visitors[sim->first]->is_counted)
            sim->first++;
        cn_clock_advance(1);
        cn_loop_turn(sim->rig->loop, 0);
    }
}

/* Goodput in percent of what the worker can do, over 20 s from the very beginning. */
static unsigned
goodput(void (*change)(struct cn_model_config *config), unsigned burst, unsigned every_ms,
        uint64_t *longest_ms)
{
    struct flow flow = {.id = "", .client = 1, .every_ms = every_ms, .burst = burst};
    struct simulation sim;

    begin(&sim, change);
    run(&sim, &flow, 1, 20000);
    *longest_ms = sim.longest_ms;
    print_message("%u in %u ms: %u of %u answered in time, longest wait %u ms\n", burst, every_ms,
                  flow.good, 20000 / STEP_MS, (unsigned)sim.longest_ms);
    end(&sim);
    return flow.good * 100 / (20000 / STEP_MS);
}

static void
goodput_holds_at_two_and_four_times_the_capacity(void **state)
{
    uint64_t longest_ms;

    (void)state;
    assert_in_range(goodput(config_stateless, 2, 10, &longest_ms), 95, 100);
    assert_in_range(longest_ms, 500, 2100);
    assert_in_range(goodput(config_stateless, 4, 10, &longest_ms), 95, 100);
    assert_in_range(longest_ms, 500, 2100);
    /* Without the bound the worker answers clients that have just left. */
    assert_in_range(goodput(config_unbounded, 4, 10, &longest_ms), 0, 50);
}

static void
a_load_below_the_capacity_and_a_short_burst_are_not_refused(void **state)
{
    struct flow flows[] = {{.id = "", .client = 1, .every_ms = 11},
                           {.id = "", .client = 2, .every_ms = 100000, .burst = 150}};
    struct simulation sim;

    (void)state;
    begin(&sim, config_stateless);
    run(&sim, &flows[0], 1, 5000);
    assert_int_equal(flows[0].refused + flows[0].late, 0);
    run(&sim, &flows[0], 1, 6000);
    assert_int_equal(flows[0].refused + flows[0].late, 0);
    end(&sim);
    begin(&sim, config_stateless);
    run(&sim, &flows[1], 1, 3000);
    assert_int_equal(flows[1].good, 150);
    end(&sim);
}

/* After an overload the queue takes everything again, at once. */
static void
the_end_of_an_overload_is_noticed(void **state)
{
    struct flow hot = {.id = "", .client = 1, .every_ms = 10, .burst = 4};
    struct flow calm = {.id = "", .client = 1, .every_ms = 12};
    struct simulation sim;

    (void)state;
    begin(&sim, config_stateless);
    run(&sim, &hot, 1, 5000);
    assert_true(hot.refused > 500);
    run(&sim, &(struct flow){.id = "", .every_ms = 100000}, 1, 2500);
    run(&sim, &calm, 1, 3000);
    assert_int_equal(calm.refused + calm.late, 0);
    end(&sim);
}

static void
a_hot_address_leaves_others_their_share(void **state)
{
    struct flow flows[] = {{.id = "", .client = 1, .every_ms = 10, .burst = 4},
                           {.id = "", .client = 2, .every_ms = 50},
                           {.id = "", .client = 3, .every_ms = 100}};
    struct simulation sim;

    (void)state;
    begin(&sim, config_stateless);
    run(&sim, flows, 3, 5000); /* what came before the overload was noticed is still there */
    flows[0].refused = flows[1].refused = flows[2].refused = 0;
    run(&sim, flows, 3, 10000);
    assert_true(flows[0].refused > 2000);
    for (unsigned i = 1; i < 3; i++)
        assert_int_equal(flows[i].refused + flows[i].late, 0);
    end(&sim);
}

/* Each step opens a sequence, so only the key tells that all of them are one client's. */
static void
a_hot_key_with_many_sequences_leaves_others_their_share(void **state)
{
    struct flow flows[] = {
        {.client = 1, .owner = "hot/", .every_ms = 10, .burst = 4, .flags = CN_ROW_START},
        {.client = 2, .owner = "calm/", .every_ms = 50, .flags = CN_ROW_START},
        {.client = 3, .owner = "rare/", .every_ms = 100, .flags = CN_ROW_START}};
    struct simulation sim;

    (void)state;
    begin(&sim, NULL);
    run(&sim, flows, 3, 5000);
    flows[0].refused = flows[1].refused = flows[2].refused = 0;
    run(&sim, flows, 3, 10000);
    assert_true(flows[0].refused > 2000);
    for (unsigned i = 1; i < 3; i++)
        assert_int_equal(flows[i].refused + flows[i].late, 0);
    end(&sim);
}

/* A step of a sequence that has begun carries on work that was done already. */
static void
sequences_that_have_begun_go_before_new_ones(void **state)
{
    struct flow flows[] = {{.id = NULL, .every_ms = 10, .burst = 4, .flags = CN_ROW_START},
                           {.id = "old1", .every_ms = 100},
                           {.id = "old2", .every_ms = 100},
                           {.id = "old3", .every_ms = 100}};
    struct simulation sim;

    (void)state;
    begin(&sim, NULL);
    run(&sim, flows + 1, 3, 1000);
    run(&sim, flows, 4, 5000);
    flows[0].refused = flows[1].refused = flows[2].refused = flows[3].refused = 0;
    run(&sim, flows, 4, 5000);
    assert_true(flows[0].refused > 1000);
    for (unsigned i = 1; i < 4; i++)
        assert_int_equal(flows[i].refused, 0);
    end(&sim);
}

static void
config_narrow(struct cn_model_config *config)
{
    config->job_queue_size = 20;
}

/* With jobQueueSize below maxSequenceJobQueueSize, one sequence could fill the whole queue. */
static void
a_hot_sequence_never_starves_a_quiet_one(void **state)
{
    struct flow flows[] = {{.id = "hot", .every_ms = 10, .burst = 5},
                           {.id = "quiet", .every_ms = 100}};
    struct simulation sim;

    (void)state;
    begin(&sim, config_narrow);
    run(&sim, flows, 2, 10000);
    assert_true(flows[0].refused > 3000);
    assert_int_equal(flows[1].refused + flows[1].late, 0);
    assert_true(flows[1].good >= flows[1].sent - 2);
    end(&sim);
}

static void
config_slow(struct cn_model_config *config)
{
    config->sequence_batching = false;
    config->queue_target_ms = 1;
}

/* A model whose steps take longer than the target keeps a queue of four batches for each worker. */
static void
a_slow_model_keeps_a_queue(void **state)
{
    struct flow flow = {.id = "", .client = 0, .every_ms = 10, .burst = 4};
    struct simulation sim;

    (void)state;
    begin(&sim, config_slow);
    run(&sim, &flow, 1, 5000);
    assert_true(flow.good >= 475);
    end(&sim);
}

/* One queue is full of steps that nobody does; the other model's step goes at once. */
static void
an_overloaded_model_does_not_delay_another_one(void **state)
{
    struct flow flow = {.id = "", .client = 1, .every_ms = 10, .burst = 4};
    struct simulation sim;
    struct cn_model_queue *first, *second;
    struct client other;
    struct fake *fake;

    (void)state;
    begin(&sim, config_stateless);
    run(&sim, &flow, 1, 3000);
    assert_true(rig_stats(sim.rig).waiting_jobs > 50);
    first = sim.rig->queue;
    second = sim.rig->queue = cn_model_queue_create(sim.rig->loop, "n", "1.0", &sim.rig->config);
    cn_model_queue_set_expected(second, 1, NULL);
    fake = fake_attach(sim.rig);
    client_send(sim.rig, &other, "", "x", 0);
    settle(sim.rig);
    fake_read(fake);
    assert_int_equal(fake->n_rows, 1);
    answer_next(sim.rig, fake);
    assert_int_equal(other.finals, 1);
    assert_int_equal(other.error, 0);

    fake_die(fake, false, NULL);
    cn_model_queue_close(second, CN_E_DRAINING, "the test is over", true, NULL, NULL);
    settle(sim.rig);
    cn_model_queue_destroy(second);
    sim.rig->queue = first;
    end(&sim);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(goodput_holds_at_two_and_four_times_the_capacity),
        cmocka_unit_test(a_load_below_the_capacity_and_a_short_burst_are_not_refused),
        cmocka_unit_test(the_end_of_an_overload_is_noticed),
        cmocka_unit_test(a_hot_address_leaves_others_their_share),
        cmocka_unit_test(a_hot_key_with_many_sequences_leaves_others_their_share),
        cmocka_unit_test(sequences_that_have_begun_go_before_new_ones),
        cmocka_unit_test(a_hot_sequence_never_starves_a_quiet_one),
        cmocka_unit_test(a_slow_model_keeps_a_queue),
        cmocka_unit_test(an_overloaded_model_does_not_delay_another_one),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
