/* frontend/intake/unread_test.c - tests that the oldest unread answers are dropped when all of them
 * together are too large. */
#include "frontend/intake/unread.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>

#include <cmocka.h>

#include "core/loop/loop.h"
#include "metrics/counters/metrics.h"

#define MB (1u << 20)

static struct cn_loop *loop;

struct answer {
    struct cn_unread unread;
    bool dropped;
};

static void
drop(struct cn_unread *unread)
{
    cn_container_of(unread, struct answer, unread)->dropped = true;
}

static int
set_up(void **state)
{
    (void)state;
    cn_unread_set_limit(10 * MB);
    return cn_loop_create(0, &loop, NULL);
}

static int
tear_down(void **state)
{
    (void)state;
    cn_loop_destroy(loop);
    return 0;
}

static uint64_t
counted(void)
{
    return cn_metrics_get(cn_loop_metrics(loop), CN_M_UNREAD_BYTES);
}

static void
the_oldest_go_first(void **state)
{
    struct answer answers[5] = {0};

    (void)state;
    for (unsigned i = 0; i < 5; i++) {
        answers[i].unread.drop = drop;
        cn_unread_add(loop, &answers[i].unread, 3 * MB);
    }
    assert_true(answers[0].dropped && answers[1].dropped);
    assert_false(answers[2].dropped || answers[3].dropped || answers[4].dropped);
    assert_int_equal(counted(), 9 * MB);
    for (unsigned i = 0; i < 5; i++)
        cn_unread_done(loop, &answers[i].unread);
    assert_int_equal(counted(), 0);
    assert_int_equal(cn_metrics_get(cn_loop_metrics(loop), CN_M_UNREAD_CUT), 2);
}

static void
readers_make_room(void **state)
{
    struct answer stream = {.unread.drop = drop}, small = {.unread.drop = drop};

    (void)state;
    cn_unread_add(loop, &small.unread, CN_UNREAD_LEAST - 1);
    assert_int_equal(counted(), 0);
    cn_unread_sub(loop, &small.unread, CN_UNREAD_LEAST - 1);
    for (unsigned i = 0; i < 100; i++) {
        cn_unread_add(loop, &stream.unread, 3 * MB);
        cn_unread_sub(loop, &stream.unread, 2 * MB);
        cn_unread_sub(loop, &stream.unread, MB);
        assert_int_equal(counted(), 0);
    }
    assert_false(stream.dropped);
    cn_unread_add(loop, &stream.unread, 11 * MB);
    assert_true(stream.dropped);
    assert_int_equal(counted(), 0);
    cn_unread_sub(loop, &stream.unread, 11 * MB); /* what was under way comes back later */
    assert_int_equal(counted(), 0);
}

static void
small_pieces_of_a_stream_count_together(void **state)
{
    struct answer stream = {.unread.drop = drop};
    size_t waits = 0;

    (void)state;
    for (; waits + 1024 < CN_UNREAD_LEAST; waits += 1024)
        cn_unread_add(loop, &stream.unread, 1024);
    assert_int_equal(counted(), 0);
    for (; waits < MB; waits += 1024)
        cn_unread_add(loop, &stream.unread, 1024);
    assert_int_equal(counted(), MB);
    for (; waits > 1024; waits -= 1024)
        cn_unread_sub(loop, &stream.unread, 1024);
    assert_int_equal(counted(), 1024);
    cn_unread_sub(loop, &stream.unread, 1024);
    assert_int_equal(counted(), 0);
    for (; waits < 11 * MB; waits += 1024)
        cn_unread_add(loop, &stream.unread, 1024);
    assert_true(stream.dropped);
    cn_unread_done(loop, &stream.unread);
    assert_int_equal(counted(), 0);
}

/* Two loops: `slow` has answers that nobody reads, `loop` has readers. */
static void
the_oldest_of_all_loops_go_first(void **state)
{
    struct answer held[3] = {0}, read[20] = {0};
    struct cn_loop *slow;

    (void)state;
    assert_int_equal(cn_loop_create(1, &slow, NULL), 0);
    for (unsigned i = 0; i < 3; i++) {
        held[i].unread.drop = drop;
        cn_unread_add(slow, &held[i].unread, 3 * MB);
    }
    for (unsigned i = 0; i < 20; i++) {
        read[i].unread.drop = drop;
        cn_unread_add(loop, &read[i].unread, 2 * MB);
        assert_false(read[i].dropped);
        cn_loop_turn(slow, 0);
        cn_unread_done(loop, &read[i].unread);
        assert_false(read[i].dropped);
    }
    assert_true(held[0].dropped);
    assert_false(held[1].dropped || held[2].dropped);
    for (unsigned i = 0; i < 3; i++)
        cn_unread_done(slow, &held[i].unread);
    cn_loop_destroy(slow);
}

/* A loop that does not answer must not let the sum grow. */
static void
a_loop_that_stands_still_bounds_the_others(void **state)
{
    struct answer held = {.unread.drop = drop}, answers[5] = {0};
    struct cn_loop *slow;

    (void)state;
    assert_int_equal(cn_loop_create(1, &slow, NULL), 0);
    cn_unread_add(slow, &held.unread, 9 * MB);
    for (unsigned i = 0; i < 5; i++) {
        answers[i].unread.drop = drop;
        cn_unread_add(loop, &answers[i].unread, 2 * MB);
        assert_true(counted() <= 2 * MB);
    }
    assert_false(held.dropped || answers[4].dropped);
    assert_true(answers[0].dropped && answers[3].dropped);
    cn_loop_turn(slow, 0);
    assert_true(held.dropped);
    cn_unread_done(loop, &answers[4].unread);
    cn_loop_destroy(slow);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_oldest_go_first, set_up, tear_down),
        cmocka_unit_test_setup_teardown(readers_make_room, set_up, tear_down),
        cmocka_unit_test_setup_teardown(small_pieces_of_a_stream_count_together, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_oldest_of_all_loops_go_first, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_loop_that_stands_still_bounds_the_others, set_up,
                                        tear_down),
    };

    return cmocka_run_group_tests_name("frontend.unread", tests, NULL, NULL);
}
