/* worker/full_store_test.c - tests what happens when a store or the memory of a handler is full.
 */
#include "worker/test_steps.h"

#include "core/time/clock.h"

/* Opens s0, s1, ... with this body until one is refused. Returns how many, including that one,
 * whose id is in `id`. */
static int
fill_store(struct client *c, uint64_t *job, const char *body, char id[32], struct got *got)
{
    int opened = 0;

    do {
        snprintf(id, 32, "s%d", opened++);
        *got = client_step(c, (*job)++, id, body, 0, 0);
    } while (got->code == 0 && opened < 100000);
    assert_int_equal(got->code, CN_E_STATE_STORE);
    return opened;
}

/* A full store refuses what would make it grow. The refused step is not half done, and others in
 * its batch are done. */
static void
full_store_refuses_only_growth(void **state)
{
    struct client *c = *state;
    struct got got;
    uint64_t job = 1;
    char id[32];

    c->load.store_max_bytes = 1 << 20;
    assert_int_equal(client_start(c, false), 0);
    assert_in_range(fill_store(c, &job, "grow 40000", id, &got), 10, 30);
    assert_non_null(strstr(got.body, "is not saved"));
    assert_non_null(strstr(got.body, "state.storeMaxBytes"));
    got = client_step(c, job++, id, "grow 40000", 0, 0);
    assert_int_equal(got.code, CN_E_STATE_STORE);
    client_put(c, job, "s0", "1", 0, 0);
    client_put(c, job + 1, id, "grow 40000", 0, 0);
    client_put(c, job + 2, "s1", "2", CN_ROW_END, 0);
    client_send(c);
    for (int i = 0; i < 3; i++) {
        assert_true(client_get(c, &got));
        assert_int_equal(got.code, got.job == job + 1 ? CN_E_STATE_STORE : 0);
    }
    got = client_step(c, job + 3, id, "grow 30000", 0, 0); /* s1 has made room */
    assert_int_equal(got.code, 0);
    assert_true(has(got.flags, CN_ANSWER_OPENED));
    client_stop(c);
    assert_int_equal(fake.live_states, 0);
}

/* What a step, or a sequence's end, writes besides the state must not grow with time either. With
 * states of one byte, a full store could get no other room back. */
static void
full_store_of_tiny_states_goes_on(void **state)
{
    struct client *c = *state;
    const char *dir = c->load.store_dir;
    uint64_t job = 1;
    char id[32];

    fake.tiny = true;
    c->load.store_max_bytes = 1 << 20;
    c->load.idle_ms = c->load.tombstone_ms = 600000;
    c->load.lifetime_ms = 0;
    for (int durable = 0; durable < 2; durable++) {
        struct got got;

        c->load.durability = durable ? CN_DURABILITY_PROCESS : CN_DURABILITY_NONE;
        c->load.store_dir = durable ? dir : "";
        assert_int_equal(client_start(c, false), 0);
        assert_true(fill_store(c, &job, "5", id, &got) > 2000);
        cn_clock_advance(20000);
        for (int i = 0; i < 800; i++) {
            uint32_t flags = i < 200 ? 0 : i < 400 ? CN_ROW_START : CN_ROW_END;

            snprintf(id, sizeof(id), "s%d", i);
            if (i < 600) {
                got = client_step(c, job++, id, i < 200 ? "0" : "5", flags, 0);
                assert_int_equal(got.code, 0);
                continue;
            }
            client_put_close(c, id, 0, CN_CLOSE_IDLE);
            client_send(c);
            assert_int_equal(client_get_closed(c), 1);
            got = client_step(c, job++, id, "5", CN_ROW_MUST_EXIST, 0);
            assert_int_equal(got.code, CN_E_SEQUENCE_EXPIRED); /* there is a tombstone */
        }
        client_stop(c);
    }
}

/* An END makes room, so it is accepted, and its answer is sent. But there is no room to keep the
 * answer. */
static void
full_store_takes_an_end_without_its_answer(void **state)
{
    struct client *c = *state;
    struct got got;
    uint64_t job = 1;
    char id[32];

    fake.tiny = true;
    c->load.store_max_bytes = 1 << 20;
    assert_int_equal(client_start(c, false), 0);
    fill_store(c, &job, "5", id, &got);
    /* The first sequences may still find room in pages that are not full. */
    for (unsigned i = 1; i < 200 && got.code != CN_E_ANSWER_NOT_KEPT; i++, job++) {
        snprintf(id, sizeof(id), "s%u", i);
        got = client_step(c, job, id, "123456789", CN_ROW_END, 0);
        assert_int_equal(got.code, 0);
        assert_string_equal(got.body, "123456789");                /* a tiny state is read as 0 */
        got = client_step(c, job, id, "123456789", CN_ROW_END, 0); /* sent again */
    }
    assert_int_equal(got.code, CN_E_ANSWER_NOT_KEPT);
    client_stop(c);
}

/* Without durability everything works in the same way while the worker lives. */
static void
memory_store_behaves_alike(void **state)
{
    struct client *c = *state;
    struct got got;

    c->load.durability = CN_DURABILITY_NONE;
    c->load.store_dir = "";
    c->load.cache_entries = 0; /* so that every step reads the store */
    assert_int_equal(client_start(c, false), 0);
    expect_body(c, 1, "a", "5", 0, "5");
    expect_body(c, 2, "a", "5", 0, "10");
    got = client_step(c, 2, "a", "5", CN_ROW_REDELIVERED, 0);
    assert_string_equal(got.body, "10");
    assert_true(has(got.flags, CN_ANSWER_REPLAYED));
    client_put_close(c, "a", 0, CN_CLOSE_IDLE);
    client_send(c);
    assert_int_equal(client_get_closed(c), 1);
    assert_int_equal(client_step(c, 3, "a", "5", 0, 0).code, CN_E_SEQUENCE_EXPIRED);
    client_stop(c);
    assert_string_equal(fake.closed, "a:idle:10 ");
    assert_int_equal(fake.live_states, 0);
}

/* Cached states share the handler's memory. If that is used up, cached states are dropped, and the
 * step runs. */
static void
cached_states_make_room_for_a_step(void **state)
{
    struct client *c = *state;
    char id[32];

    fake.out_of_memory_over = 5;
    assert_int_equal(client_start(c, false), 0);
    for (int i = 0; i < 20; i++) {
        snprintf(id, sizeof(id), "s%d", i);
        expect_body(c, (uint64_t)i + 1, id, "1", 0, "1");
    }
    expect_body(c, 100, "s0", "1", 0, "2");
    client_stop(c);
    assert_int_equal(fake.live_states, 0);
}

/* If the places in a batch are slots, rows that run again keep their places. */
static void
memory_used_up_keeps_the_places(void **state)
{
    static const char yaml[] = "max_batch_size: 4\n"
                               "input: [{name: A, data_type: TYPE_INT32, dims: [1]}]\n"
                               "output: [{name: B, data_type: TYPE_INT32, dims: [1]}]\n"
                               "sequence_batching: {direct: {}}\n";
    struct client *c = *state;
    struct got got;
    char path[512];
    FILE *file;

    snprintf(path, sizeof(path), "%s/direct.yaml", c->dir);
    file = fopen(path, "w");
    assert_non_null(file);
    fputs(yaml, file);
    fclose(file);
    c->load.model_dir = c->dir;
    c->load.config_file = "direct.yaml";
    fake.out_of_memory_over = 4;
    assert_int_equal(client_start(c, false), 0);
    expect_body(c, 1, "a", "1", 0, "1");
    expect_body(c, 2, "b", "1", 0, "1");
    client_put(c, 3, "x", "1", CN_ROW_JOINED, 0);
    client_put(c, 4, "y", "2", CN_ROW_JOINED, 0);
    client_put(c, 5, "z", "3", 0, 0);
    client_send(c);
    for (int i = 0; i < 3; i++) {
        assert_true(client_get(c, &got));
        assert_int_equal(got.code, 0);
    }
    client_stop(c);
    unlink(path);
    assert_string_equal(fake.last_run, "ppr");
    assert_int_equal(fake.live_states, 0);
}

int
main(void)
{
#define WORKER(test) cmocka_unit_test_setup_teardown(test, client_setup, client_teardown)
    const struct CMUnitTest tests[] = {
        WORKER(full_store_refuses_only_growth),
        WORKER(full_store_of_tiny_states_goes_on),
        WORKER(full_store_takes_an_end_without_its_answer),
        WORKER(memory_store_behaves_alike),
        WORKER(cached_states_make_room_for_a_step),
        WORKER(memory_used_up_keeps_the_places),
    };

    cn_clock_freeze();
    return cmocka_run_group_tests_name("worker.full_store", tests, NULL, NULL);
}
