/* worker/batch/idempotency_test.c - tests that a client which sends its last step again under its
 * key gets the answer of that step and changes nothing.
 *
 * The worker runs in a thread, so that the test moves its clock. Each retry is another job, as
 * after a restart of the server.
 */
#include "worker/test_client.h"

#include "core/time/clock.h"

#define REPLAYED CN_ANSWER_REPLAYED

/* Sends one step with a key. */
static struct got
keyed(struct client *c, const char *key, uint64_t job, const char *id, const char *body,
      uint32_t flags)
{
    struct got got;

    c->key = key;
    got = client_step(c, job, id, body, flags, 0);
    c->key = NULL;
    return got;
}

#define expect_got(answer, wanted_code, wanted_body, wanted_flags)                                 \
    do {                                                                                           \
        struct got expect_got = answer;                                                            \
        assert_int_equal(expect_got.code, wanted_code);                                            \
        assert_string_equal(expect_got.body, wanted_body);                                         \
        assert_int_equal(expect_got.flags, wanted_flags);                                          \
    } while (0)

/* The answer comes from memory, after a restart of the worker, and when the cached state is
 * declared stale. */
static void
retry_gets_the_answer_of_its_step(void **state)
{
    struct client *c = *state;
    struct got first, again;
    unsigned rows;

    assert_int_equal(client_start(c, false), 0);
    expect_got(keyed(c, "k1", 1, "a", "5", 0), 0, "5", CN_ANSWER_OPENED);
    first = keyed(c, "k2", 2, "a", "chunks", 0);
    assert_int_equal(first.flags, 0);
    rows = fake.rows;
    for (uint64_t job = 3; job < 6; job++) {
        again = keyed(c, "k2", job, "a", "chunks", job == 4 ? CN_ROW_RELOAD : 0);
        assert_string_equal(again.body, "a|b|c");
        assert_int_equal(again.status, 201);
        assert_int_equal(again.n_headers, 1);
        assert_int_equal(again.generation, first.generation);
        assert_int_equal(again.flags, REPLAYED);
        client_stop(c);
        assert_int_equal(client_start(c, false), 0);
    }
    assert_int_equal(fake.rows, rows);
    expect_got(keyed(c, "k3", 6, "a", "1", 0), 0, "6", 0);
    client_stop(c);
    assert_int_equal(fake.live_states, 0);
}

/* A retry leaves the cached state in its place, so that it does not slow down the next step. */
static void
retry_keeps_the_cached_state(void **state)
{
    struct client *c = *state;

    assert_int_equal(client_start(c, false), 0);
    expect_got(keyed(c, "k", 1, "a", "5", 0), 0, "5", CN_ANSWER_OPENED);
    expect_got(keyed(c, "k", 2, "a", "5", 0), 0, "5", CN_ANSWER_OPENED | REPLAYED);
    assert_int_equal(keyed(c, "k", 3, "a", "6", 0).code, CN_E_KEY_REUSED);
    expect_got(keyed(c, "l", 4, "a", "6", 0), 0, "11", 0);
    assert_int_equal(fake.decoded, 0);
    client_stop(c);
}

/* Two different requests under one key are a mistake, and the second must not get the first one's
 * answer. */
static void
key_of_another_request_is_refused(void **state)
{
    static const struct {
        const char *body;
        uint32_t flags;
    } others[] = {{"6", 0}, {"", 0}, {"5", CN_ROW_END}, {"5", CN_ROW_START}};
    struct client *c = *state;
    struct got got;

    assert_int_equal(client_start(c, false), 0);
    expect_got(keyed(c, "k", 1, "a", "5", 0), 0, "5", CN_ANSWER_OPENED);
    for (unsigned i = 0; i < 4; i++) {
        got = keyed(c, "k", 2 + i, "a", others[i].body, others[i].flags);
        assert_int_equal(got.code, CN_E_KEY_REUSED);
        assert_int_equal(got.flags, 0);
        assert_non_null(strstr(got.body, "Idempotency-Key k was used for another request, step 1 "
                                         "of sequence a;"));
    }
    expect_got(keyed(c, "k", 9, "a", "5", 0), 0, "5", CN_ANSWER_OPENED | REPLAYED);
    expect_got(keyed(c, "k", 10, "b", "7", 0), 0, "7", CN_ANSWER_OPENED); /* another sequence */
    client_stop(c);
}

/* A late copy of a step is not done again, even if others came since: without keys, with other
 * keys, after a restart, and in the next generation. Its answer is no longer stored, and the error
 * says so. */
static void
keys_of_earlier_steps_are_known(void **state)
{
    struct client *c = *state;
    struct got got;

    assert_int_equal(client_start(c, false), 0);
    expect_got(keyed(c, "k1", 1, "a", "5", 0), 0, "5", CN_ANSWER_OPENED);
    expect_got(keyed(c, NULL, 2, "a", "1", 0), 0, "6", 0);
    got = keyed(c, "k1", 3, "a", "5", 0);
    assert_int_equal(got.code, CN_E_KEY_SUPERSEDED);
    assert_non_null(strstr(got.body, "the step with Idempotency-Key k1 was already done; sequence "
                                     "a has since moved on to step 2"));
    expect_got(keyed(c, "k2", 4, "a", "1", 0), 0, "7", 0);
    client_stop(c);
    assert_int_equal(client_start(c, false), 0);
    assert_int_equal(keyed(c, "k1", 5, "a", "5", 0).code, CN_E_KEY_SUPERSEDED);
    expect_got(keyed(c, "k2", 6, "a", "1", 0), 0, "7", REPLAYED);
    expect_got(keyed(c, "k3", 7, "a", "2", CN_ROW_START), 0, "2",
               CN_ANSWER_OPENED | CN_ANSWER_REPLACED);
    assert_int_equal(keyed(c, "k1", 8, "a", "5", 0).code, CN_E_KEY_SUPERSEDED);
    assert_int_equal(keyed(c, "k2", 9, "a", "1", 0).code, CN_E_KEY_SUPERSEDED);
    expect_got(keyed(c, NULL, 10, "a", "1", CN_ROW_END), 0, "3", CN_ANSWER_ENDED);
    assert_int_equal(keyed(c, "k3", 11, "a", "2", 0).code, CN_E_KEY_SUPERSEDED);
    expect_got(keyed(c, NULL, 12, "a", "4", 0), 0, "4", CN_ANSWER_OPENED);
    assert_int_equal(keyed(c, "k1", 13, "a", "5", 0).code, CN_E_KEY_SUPERSEDED);
    client_stop(c);
}

/* The window has a size: load.key_window, which the test's client sets to 4. */
static void
the_oldest_key_goes_first(void **state)
{
    static const char *const keys[] = {"k1", "k2", "k3", "k4", "k5"};
    struct client *c = *state;

    assert_int_equal(client_start(c, false), 0);
    for (uint64_t i = 0; i < 5; i++)
        assert_int_equal(keyed(c, keys[i], i + 1, "a", "1", 0).code, 0);
    for (uint64_t i = 1; i < 4; i++)
        assert_int_equal(keyed(c, keys[i], i + 10, "a", "1", 0).code, CN_E_KEY_SUPERSEDED);
    expect_got(keyed(c, "k1", 20, "a", "1", 0), 0, "6", 0);
    client_stop(c);
}

/* If a full store has no room for one more key, the oldest key is dropped, and the step is not
 * refused. Sequences whose page has room keep all keys. */
static void
full_store_drops_the_oldest_key(void **state)
{
    enum { SEQUENCES = 200 };
    struct client *c = *state;
    unsigned filled = 0, dropped = 0;
    uint64_t job = 1;
    char id[32];

    fake.tiny = true;
    c->load.store_max_bytes = 1 << 20;
    assert_int_equal(client_start(c, false), 0);
    for (unsigned i = 0; i < SEQUENCES; i++) {
        snprintf(id, sizeof(id), "a%u", i);
        assert_int_equal(keyed(c, "k1", job++, id, "5", 0).code, 0);
    }
    do {
        snprintf(id, sizeof(id), "f%u", filled++);
    } while (client_step(c, job++, id, "5", 0, 0).code == 0);
    for (unsigned i = 0; i < SEQUENCES; i++) {
        struct got got;

        snprintf(id, sizeof(id), "a%u", i);
        assert_int_equal(keyed(c, "k2", job++, id, "0", 0).code, 0); /* not the last step */
        assert_true(keyed(c, "k2", job++, id, "0", 0).flags & REPLAYED);
        got = keyed(c, "k1", job++, id, "0", 0);
        if (got.code != CN_E_KEY_SUPERSEDED) { /* the key was forgotten: a new step */
            assert_int_equal(got.code, 0);
            assert_false(got.flags & REPLAYED);
            dropped++;
        }
    }
    assert_true(dropped > 0);
    client_stop(c);
}

/* Sends one step with a number. */
static struct got
numbered(struct client *c, uint64_t number, uint64_t job, const char *body, uint32_t flags)
{
    struct got got;

    c->number = number;
    got = client_step(c, job, "a", body, flags, 0);
    c->number = 0;
    return got;
}

static void
expect_refused(struct got got, int code, uint64_t expected)
{
    assert_int_equal(got.code, code);
    assert_int_equal(got.step, expected);
}

/* A step is done if its number is the next one. The last one is answered again, and any other is
 * refused. */
static void
numbers_follow_each_other(void **state)
{
    struct client *c = *state;

    assert_int_equal(client_start(c, false), 0);
    expect_refused(numbered(c, 2, 1, "5", 0), CN_E_STEP_MISMATCH, 1);
    expect_got(numbered(c, 1, 2, "5", 0), 0, "5", CN_ANSWER_OPENED);
    expect_got(numbered(c, 1, 3, "5", 0), 0, "5", CN_ANSWER_OPENED | REPLAYED);
    expect_refused(numbered(c, 1, 4, "6", 0), CN_E_STEP_DONE, 2); /* another request */
    expect_refused(numbered(c, 3, 5, "6", 0), CN_E_STEP_MISMATCH, 2);
    assert_int_equal(numbered(c, 2, 6, "fail", 0).code, CN_E_HANDLER_FAILED);
    expect_got(numbered(c, 2, 7, "6", 0), 0, "11", 0);
    expect_refused(numbered(c, 1, 8, "5", 0), CN_E_STEP_DONE, 3);
    client_stop(c);
    assert_int_equal(client_start(c, false), 0);
    expect_got(numbered(c, 2, 9, "6", 0), 0, "11", REPLAYED);
    expect_got(numbered(c, 0, 10, "1", 0), 0, "12", 0); /* it counts as well */
    expect_refused(numbered(c, 3, 11, "1", 0), CN_E_STEP_DONE, 4);
    expect_got(numbered(c, 4, 12, "1", 0), 0, "13", 0);
    client_stop(c);
}

/* The first step of a generation has number 1. An ended sequence is begun anew only by a START. */
static void
numbers_begin_and_end(void **state)
{
    struct client *c = *state;

    assert_int_equal(client_start(c, false), 0);
    expect_got(numbered(c, 1, 1, "5", CN_ROW_START), 0, "5", CN_ANSWER_OPENED);
    expect_got(numbered(c, 1, 2, "5", CN_ROW_START), 0, "5", CN_ANSWER_OPENED | REPLAYED);
    expect_got(numbered(c, 2, 3, "6", CN_ROW_END), 0, "11", CN_ANSWER_ENDED);
    expect_got(numbered(c, 2, 4, "6", CN_ROW_END), 0, "11", CN_ANSWER_ENDED | REPLAYED);
    expect_refused(numbered(c, 1, 5, "5", 0), CN_E_STEP_DONE, 1);
    expect_refused(numbered(c, 3, 6, "5", 0), CN_E_STEP_MISMATCH, 1);
    expect_got(numbered(c, 1, 7, "7", CN_ROW_START), 0, "7", CN_ANSWER_OPENED);
    expect_got(numbered(c, 2, 8, "1", 0), 0, "8", 0);
    expect_got(numbered(c, 1, 9, "9", CN_ROW_START), 0, "9", CN_ANSWER_OPENED | CN_ANSWER_REPLACED);
    client_stop(c);
}

/* A step that was not committed is run again, as the client wants. */
static void
failed_step_runs_again(void **state)
{
    struct client *c = *state;

    assert_int_equal(client_start(c, false), 0);
    expect_got(keyed(c, "k", 1, "a", "fail", 0), CN_E_HANDLER_FAILED, "asked to", 0);
    expect_got(keyed(c, "k", 2, "a", "fail", 0), CN_E_HANDLER_FAILED, "asked to", 0);
    expect_got(keyed(c, "k", 3, "a", "5", 0), 0, "5", CN_ANSWER_OPENED);
    expect_got(keyed(c, "l", 4, "a", "fail", 0), CN_E_HANDLER_FAILED, "asked to", 0);
    expect_got(keyed(c, "k", 5, "a", "5", 0), 0, "5", CN_ANSWER_OPENED | REPLAYED);
    client_stop(c);
}

/* A retry of a START does not throw away the generation that the START opened. */
static void
retried_start_opens_once(void **state)
{
    struct client *c = *state;
    struct got first, again;

    assert_int_equal(client_start(c, false), 0);
    expect_got(keyed(c, NULL, 1, "a", "5", 0), 0, "5", CN_ANSWER_OPENED);
    first = keyed(c, "k", 2, "a", "1", CN_ROW_START);
    assert_string_equal(first.body, "1");
    again = keyed(c, "k", 3, "a", "1", CN_ROW_START);
    assert_string_equal(again.body, "1");
    assert_int_equal(again.flags, CN_ANSWER_OPENED | REPLAYED);
    assert_int_equal(again.generation, first.generation);
    assert_string_equal(fake.closed, "a:ended:5 ");
    expect_got(keyed(c, "l", 4, "a", "1", 0), 0, "2", 0);
    client_stop(c);
}

/* The tombstone of an END has the END's answer. Without the key the id is free again. */
static void
retried_end_ends_once(void **state)
{
    struct client *c = *state;
    struct got got;

    assert_int_equal(client_start(c, false), 0);
    expect_got(keyed(c, "k", 1, "a", "5", 0), 0, "5", CN_ANSWER_OPENED);
    expect_got(keyed(c, "l", 2, "a", "1", CN_ROW_END), 0, "6", CN_ANSWER_ENDED);
    client_stop(c);
    assert_int_equal(client_start(c, false), 0);
    expect_got(keyed(c, "l", 3, "a", "1", CN_ROW_END), 0, "6", CN_ANSWER_ENDED | REPLAYED);
    got = keyed(c, "l", 4, "a", "1", 0);
    assert_int_equal(got.code, CN_E_KEY_REUSED);
    assert_string_equal(fake.closed, "a:ended:6 ");
    expect_got(keyed(c, "m", 5, "a", "1", 0), 0, "1", CN_ANSWER_OPENED);
    client_stop(c);
}

/* A client that was away for longer than the idle limit still gets the answer of its step. A
 * deleted sequence keeps no answer. */
static void
closed_sequence_keeps_the_answer_for_a_retry(void **state)
{
    static const enum cn_close_reason reasons[] = {CN_CLOSE_IDLE, CN_CLOSE_DELETED};
    struct client *c = *state;
    struct got got;

    assert_int_equal(client_start(c, false), 0);
    for (unsigned i = 0; i < 2; i++) {
        const char *id = i ? "b" : "a";

        expect_got(keyed(c, "k", 10 * i + 1, id, "5", 0), 0, "5", CN_ANSWER_OPENED);
        client_put_close(c, id, 0, reasons[i]);
        client_send(c);
        assert_int_equal(client_get_closed(c), 1);
        got = keyed(c, "k", 10 * i + 2, id, "5", 0);
        assert_int_equal(got.flags, CN_ANSWER_OPENED | REPLAYED | CN_ANSWER_CLOSED_BEFORE);
        assert_int_equal(got.code, i ? CN_E_ANSWER_NOT_KEPT : 0);
        assert_non_null(strstr(got.body, i ? "step 1 of sequence b is committed" : "5"));
        assert_true(keyed(c, "l", 10 * i + 3, id, "5", 0).code != 0);
    }
    /* The store's own clock does not remove it either. */
    expect_got(keyed(c, "k", 31, "c", "5", 0), 0, "5", CN_ANSWER_OPENED);
    cn_clock_advance(5000);
    expect_got(keyed(c, "k", 32, "c", "5", 0), 0, "5", CN_ANSWER_OPENED | REPLAYED);
    assert_int_equal(keyed(c, "l", 33, "c", "5", 0).code, CN_E_SEQUENCE_EXPIRED);
    client_stop(c);
}

/* If the answer was not kept, the client learns that the step is committed, and with which number
 * it goes on. */
static void
large_answer_is_known_to_be_committed(void **state)
{
    struct client *c = *state;
    struct got got;

    assert_int_equal(client_start(c, false), 0);
    assert_int_equal(keyed(c, "k", 1, "a", "answer 1000", 0).code, 0);
    got = keyed(c, "k", 2, "a", "answer 1000", 0);
    assert_int_equal(got.code, CN_E_ANSWER_NOT_KEPT);
    assert_int_equal(got.step, 2);
    assert_non_null(strstr(got.body, "step 1 of sequence a is committed, but its answer of 1000"));
    client_stop(c);
}

/* Without a store on disk all of this holds as long as the worker lives. */
static void
memory_store_knows_keys(void **state)
{
    struct client *c = *state;

    c->load.durability = CN_DURABILITY_NONE;
    c->load.store_dir = "";
    c->load.cache_entries = 0;
    assert_int_equal(client_start(c, false), 0);
    expect_got(keyed(c, "k", 1, "a", "5", 0), 0, "5", CN_ANSWER_OPENED);
    expect_got(keyed(c, "k", 2, "a", "5", 0), 0, "5", CN_ANSWER_OPENED | REPLAYED);
    client_stop(c);
}

/* Nothing can be remembered for rows without a sequence. */
static void
stateless_rows_ignore_the_key(void **state)
{
    struct client *c = *state;

    c->load.stateful = 0;
    assert_int_equal(client_start(c, false), 0);
    expect_got(keyed(c, "k", 1, NULL, "x", 0), 0, "echo x", 0);
    expect_got(keyed(c, "k", 2, NULL, "y", 0), 0, "echo y", 0);
    client_stop(c);
}

int
main(void)
{
#define WORKER(test) cmocka_unit_test_setup_teardown(test, client_setup, client_teardown)
    const struct CMUnitTest tests[] = {
        WORKER(retry_gets_the_answer_of_its_step),
        WORKER(retry_keeps_the_cached_state),
        WORKER(key_of_another_request_is_refused),
        WORKER(keys_of_earlier_steps_are_known),
        WORKER(the_oldest_key_goes_first),
        WORKER(full_store_drops_the_oldest_key),
        WORKER(numbers_follow_each_other),
        WORKER(numbers_begin_and_end),
        WORKER(failed_step_runs_again),
        WORKER(retried_start_opens_once),
        WORKER(retried_end_ends_once),
        WORKER(closed_sequence_keeps_the_answer_for_a_retry),
        WORKER(large_answer_is_known_to_be_committed),
        WORKER(memory_store_knows_keys),
        WORKER(stateless_rows_ignore_the_key),
    };

    cn_clock_freeze();
    return cmocka_run_group_tests_name("worker.idempotency", tests, NULL, NULL);
}
