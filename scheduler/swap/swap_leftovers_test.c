/* scheduler/swap/swap_leftovers_test.c - tests which of two imports of a moved sequence counts, and
 * which is left over from a move that did not finish. */
#include "scheduler/swap/swap_leftovers.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static void
note(struct cn_swap_leftovers *leftovers, uint32_t serial, uint32_t flag, uint64_t opened,
     uint64_t step)
{
    const struct cn_answer answer = {
        .flags = CN_ANSWER_ELSEWHERE | flag, .opened_wall_ms = opened, .step = step};

    cn_swap_leftovers_note(leftovers, serial, &answer);
}

static void
test_nothing_pending(void **state)
{
    struct cn_swap_leftovers leftovers = {0};

    (void)state;
    note(&leftovers, 1, 0, 0, 0);
    note(&leftovers, 2, CN_ANSWER_MOVED, 100, 7);
    assert_false(cn_swap_leftovers_pending_counts(&leftovers));
}

static void
test_the_server_died_after_the_source_was_closed(void **state)
{
    struct cn_swap_leftovers leftovers = {0};

    (void)state;
    note(&leftovers, 1, CN_ANSWER_MOVED, 100, 7);
    note(&leftovers, 2, CN_ANSWER_PENDING, 100, 7);
    assert_true(cn_swap_leftovers_pending_counts(&leftovers));
    assert_int_equal(leftovers.pending_at, 2);
}

static void
test_the_source_is_gone_or_forgotten(void **state)
{
    struct cn_swap_leftovers leftovers = {0};

    (void)state;
    note(&leftovers, 2, CN_ANSWER_PENDING, 100, 7);
    assert_true(cn_swap_leftovers_pending_counts(&leftovers));
}

static void
test_the_sequence_went_on_and_ended(void **state)
{
    struct cn_swap_leftovers leftovers = {0};

    (void)state;
    note(&leftovers, 2, CN_ANSWER_PENDING, 100, 7);
    note(&leftovers, 1, CN_ANSWER_CLOSED_BEFORE, 100, 9);
    assert_false(cn_swap_leftovers_pending_counts(&leftovers));
}

static void
test_it_was_closed_at_the_step_of_the_import(void **state)
{
    struct cn_swap_leftovers leftovers = {0};

    (void)state;
    note(&leftovers, 1, CN_ANSWER_CLOSED_BEFORE, 100, 7);
    note(&leftovers, 2, CN_ANSWER_PENDING, 100, 7);
    assert_false(cn_swap_leftovers_pending_counts(&leftovers));
}

static void
test_the_id_was_begun_anew_and_ended(void **state)
{
    struct cn_swap_leftovers leftovers = {0};

    (void)state;
    note(&leftovers, 2, CN_ANSWER_PENDING, 100, 500);
    note(&leftovers, 1, CN_ANSWER_CLOSED_BEFORE, 200, 3);
    assert_false(cn_swap_leftovers_pending_counts(&leftovers));
}

static void
test_an_older_life_of_the_id_ended_elsewhere(void **state)
{
    struct cn_swap_leftovers leftovers = {0};

    (void)state;
    note(&leftovers, 3, CN_ANSWER_CLOSED_BEFORE, 50, 900);
    note(&leftovers, 1, CN_ANSWER_MOVED, 100, 7);
    note(&leftovers, 2, CN_ANSWER_PENDING, 100, 7);
    assert_true(cn_swap_leftovers_pending_counts(&leftovers));
}

static void
test_a_later_move_makes_an_import_a_leftover(void **state)
{
    struct cn_swap_leftovers leftovers = {0};

    (void)state;
    note(&leftovers, 1, CN_ANSWER_MOVED, 100, 12);
    note(&leftovers, 2, CN_ANSWER_PENDING, 100, 7);
    assert_false(cn_swap_leftovers_pending_counts(&leftovers));
    note(&leftovers, 3, CN_ANSWER_PENDING, 100, 12);
    assert_true(cn_swap_leftovers_pending_counts(&leftovers));
    assert_int_equal(leftovers.pending_at, 3);
    note(&leftovers, 4, CN_ANSWER_PENDING, 100, 8);
    assert_int_equal(leftovers.pending_at, 3);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nothing_pending),
        cmocka_unit_test(test_the_server_died_after_the_source_was_closed),
        cmocka_unit_test(test_the_source_is_gone_or_forgotten),
        cmocka_unit_test(test_the_sequence_went_on_and_ended),
        cmocka_unit_test(test_it_was_closed_at_the_step_of_the_import),
        cmocka_unit_test(test_the_id_was_begun_anew_and_ended),
        cmocka_unit_test(test_an_older_life_of_the_id_ended_elsewhere),
        cmocka_unit_test(test_a_later_move_makes_an_import_a_leftover),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
