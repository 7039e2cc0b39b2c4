/* scheduler/sequence/begin_end_test.c - tests how steps open a sequence, begin it anew and end it.
 */
#include "scheduler/test_support.h"

static void
config_explicit(struct cn_model_config *config)
{
    config->sequence_implicit_start = false;
    config->sequence_strict = true;
}

/* When a sequence ends, its place is free for the next one. */
static void
ended_sequence_gives_its_slot_back(void **state)
{
    struct rig *rig = rig_create(config_small);
    struct fake *fake = fake_attach(rig);
    struct client a, b, c;

    (void)state;
    client_send(rig, &a, "a", "1", 0);
    client_send(rig, &b, "b", "1", CN_ROW_END);
    settle(rig);
    answer_all(rig, fake);
    assert_int_equal(rig_stats(rig).live_sequences, 1);
    client_send(rig, &c, "c", "1", 0);
    settle(rig);
    answer_all(rig, fake);
    assert_int_equal(c.error, 0);
    assert_int_equal(rig_stats(rig).live_sequences, 2);
    rig_destroy(rig);
}

/* A request without an id opens a sequence, and the client gets the new id. */
static void
missing_id_is_generated(void **state)
{
    struct rig *rig = rig_create(NULL);
    struct fake *fake = fake_attach(rig);
    struct client a, b;

    (void)state;
    client_send(rig, &a, "", "1", 0);
    client_send(rig, &b, "", "1", 0);
    settle(rig);
    answer_all(rig, fake);
    assert_int_equal(fake->rows[0].flags,
                     CN_ROW_STATEFUL | CN_ROW_START | CN_ROW_GENERATED_ID | CN_ROW_RELOAD);
    assert_int_equal(strlen(a.sequence_id), 43);
    assert_memory_equal(a.sequence_id, "ts-seq-", 7);
    assert_string_equal(fake->rows[0].id, a.sequence_id);
    assert_string_not_equal(a.sequence_id, b.sequence_id);
    rig_destroy(rig);
}

/* A model may demand ids. With `strict` a worker is asked whether the sequence exists before it is
 * opened. */
static void
explicit_and_strict_models_say_so(void **state)
{
    struct rig *rig = rig_create(config_explicit);
    struct fake *fake = fake_attach(rig);
    struct client without, with_start, unknown;
    struct cn_answer answer;

    (void)state;
    client_send(rig, &without, "", "1", 0);
    settle(rig);
    assert_int_equal(without.error, CN_E_BAD_REQUEST);
    assert_non_null(strstr(without.text, "sequence.implicitStart"));
    client_send(rig, &with_start, "s", "1", CN_ROW_START);
    settle(rig);
    answer_all(rig, fake);
    assert_false(fake->rows[0].flags & CN_ROW_MUST_EXIST);
    client_send(rig, &unknown, "u", "1", 0);
    settle(rig);
    fake_read(fake);
    assert_true(fake->rows[1].flags & CN_ROW_MUST_EXIST);
    assert_int_equal(rig_stats(rig).live_sequences, 2);
    answer = answer_to(&fake->rows[fake->next++]);
    answer.error_code = CN_E_SEQUENCE_UNKNOWN;
    answer.generation = 0;
    fake_send(fake, &answer);
    settle(rig);
    assert_int_equal(unknown.error, CN_E_SEQUENCE_UNKNOWN);
    assert_int_equal(rig_stats(rig).live_sequences, 1); /* the sequence was never opened */
    rig_destroy(rig);
}

/* START on a live id waits its turn like any step. The answer brings the new generation. */
static void
start_on_a_live_id_keeps_the_order(void **state)
{
    struct rig *rig = rig_create(NULL);
    struct fake *fake = fake_attach(rig);
    struct client a, b, c;
    struct cn_answer answer;

    (void)state;
    client_send(rig, &a, "s", "1", 0);
    client_send(rig, &b, "s", "2", CN_ROW_START);
    client_send(rig, &c, "s", "3", 0);
    settle(rig);
    answer_next(rig, fake);
    assert_int_equal(fake->rows[1].flags, CN_ROW_STATEFUL | CN_ROW_START);
    assert_int_equal(fake->rows[1].generation, 7);
    answer = answer_to(&fake->rows[fake->next++]);
    answer.generation = 8;
    answer.flags |= CN_ANSWER_OPENED;
    fake_send(fake, &answer);
    settle(rig);
    fake_read(fake);
    assert_int_equal(fake->rows[2].generation, 8);
    assert_int_equal(rig_stats(rig).opened_sequences, 1);
    assert_int_equal(rig_stats(rig).live_sequences, 1);
    answer_all(rig, fake);
    rig_destroy(rig);
}

/* Steps that wait behind an END open the id anew, as TorchServe does. */
static void
steps_behind_an_end_open_anew(void **state)
{
    struct rig *rig = rig_create(NULL);
    struct fake *fake = fake_attach(rig);
    struct client a, b;
    struct cn_answer answer;

    (void)state;
    client_send(rig, &a, "s", "1", CN_ROW_END);
    client_send(rig, &b, "s", "2", 0);
    settle(rig);
    fake_read(fake);
    answer = answer_to(&fake->rows[fake->next++]);
    answer.flags |= CN_ANSWER_ENDED;
    fake_send(fake, &answer);
    settle(rig);
    fake_read(fake);
    assert_int_equal(fake->rows[1].generation, 0);
    assert_true(fake->rows[1].flags & CN_ROW_RELOAD);
    assert_int_equal(rig_stats(rig).live_sequences, 1);
    answer_all(rig, fake);
    assert_int_equal(b.error, 0);
    rig_destroy(rig);
}

/* If the worker answers that a sequence is closed, the server forgets the sequence, too. Each
 * waiting step gets its own answer. */
static void
tombstone_is_forgotten_by_the_server(void **state)
{
    struct rig *rig = rig_create(NULL);
    struct fake *fake = fake_attach(rig);
    struct client clients[2];
    struct cn_answer answer;
    unsigned i;

    (void)state;
    client_send(rig, &clients[0], "s", "1", 0);
    client_send(rig, &clients[1], "s", "2", 0);
    settle(rig);
    for (i = 0; i < 2; i++) {
        fake_read(fake);
        answer = answer_to(&fake->rows[i]);
        answer.flags |= CN_ANSWER_CLOSED_BEFORE;
        answer.error_code = CN_E_SEQUENCE_EXPIRED;
        answer.generation = 0;
        fake_send(fake, &answer);
        settle(rig);
        assert_int_equal(clients[i].error, CN_E_SEQUENCE_EXPIRED);
    }
    assert_int_equal(rig_stats(rig).live_sequences, 0);
    rig_destroy(rig);
}

/* If the first step of a sequence fails, nothing remains that takes a place. If a later step fails,
 * nothing changes. */
static void
failed_steps_do_not_open_or_close(void **state)
{
    struct rig *rig = rig_create(NULL);
    struct fake *fake = fake_attach(rig);
    struct client a;
    struct cn_answer answer;

    (void)state;
    client_send(rig, &a, "s", "1", 0);
    settle(rig);
    fake_read(fake);
    answer = answer_to(&fake->rows[fake->next++]);
    answer.error_code = CN_E_HANDLER_FAILED;
    answer.generation = 0;
    fake_send(fake, &answer);
    settle(rig);
    assert_int_equal(rig_stats(rig).live_sequences, 0);
    client_send(rig, &a, "s", "2", 0);
    settle(rig);
    answer_next(rig, fake);
    client_send(rig, &a, "s", "3", CN_ROW_END);
    settle(rig);
    fake_read(fake);
    answer.job_id = fake->rows[fake->next++].job_id;
    fake_send(fake, &answer);
    settle(rig);
    assert_int_equal(rig_stats(rig).live_sequences, 1);
    rig_destroy(rig);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ended_sequence_gives_its_slot_back),
        cmocka_unit_test(missing_id_is_generated),
        cmocka_unit_test(explicit_and_strict_models_say_so),
        cmocka_unit_test(start_on_a_live_id_keeps_the_order),
        cmocka_unit_test(steps_behind_an_end_open_anew),
        cmocka_unit_test(tombstone_is_forgotten_by_the_server),
        cmocka_unit_test(failed_steps_do_not_open_or_close),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
