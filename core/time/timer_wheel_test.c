/* core/time/timer_wheel_test.c - tests the timer wheel against a model that looks at all timers. */
#include "core/time/timer_wheel.h"

#include <stdint.h>
#include <stdlib.h>

#include "core/test_support.h"
#include "core/time/clock.h"

#define START UINT64_C(1000000)
#define HOUR UINT64_C(3600000)

struct counted {
    struct cn_timer timer;
    unsigned fired;
    struct cn_timer_wheel *wheel; /* if set, the callback arms the timer again for `again_ms` */
    uint64_t again_ms;
    struct cn_timer *other; /* a timer that the callback cancels */
};

static void
on_timer(struct cn_timer *timer)
{
    struct counted *counted = cn_container_of(timer, struct counted, timer);

    assert_false(cn_timer_armed(timer));
    counted->fired++;
    if (counted->wheel)
        cn_timer_set(counted->wheel, timer, counted->again_ms);
    if (counted->other)
        cn_timer_cancel(counted->other);
}

/* A timer of 500 ms does not fire after 499 ms or only after 600. */
static void
fires_at_its_deadline_and_once(void **state)
{
    static const uint64_t delays[] = {1, 2, 63, 64, 65, 500, 4095, 4096, 4097, 262144, 24 * HOUR};
    size_t i;

    (void)state;
    for (i = 0; i < sizeof(delays) / sizeof(delays[0]); i++) {
        struct cn_timer_wheel *wheel = cn_timer_wheel_create(START);
        struct counted t = {0};

        cn_timer_init(&t.timer, on_timer);
        cn_timer_set(wheel, &t.timer, START + delays[i]);
        assert_true(cn_timer_armed(&t.timer));
        cn_timer_wheel_advance(wheel, START + delays[i] - 1);
        assert_int_equal(t.fired, 0);
        cn_timer_wheel_advance(wheel, START + delays[i]);
        assert_int_equal(t.fired, 1);
        cn_timer_wheel_advance(wheel, START + delays[i] + 48 * HOUR);
        assert_int_equal(t.fired, 1);
        assert_true(cn_timer_wheel_next_ms(wheel) == CN_NEVER);
        cn_timer_wheel_destroy(wheel);
    }
}

/* A deadline may have passed before the timer is set, because a client's header may say so. */
static void
past_deadlines_fire_at_the_next_advance(void **state)
{
    struct cn_timer_wheel *wheel = cn_timer_wheel_create(START);
    struct counted t = {0};

    (void)state;
    cn_timer_init(&t.timer, on_timer);
    cn_timer_set(wheel, &t.timer, 5);
    assert_int_equal(t.fired, 0);
    assert_true(cn_timer_wheel_next_ms(wheel) <= START);
    cn_timer_wheel_advance(wheel, START);
    assert_int_equal(t.fired, 1);
    cn_timer_set(wheel, &t.timer, START);
    cn_timer_set(wheel, &t.timer, START + 10); /* moved into the future in time */
    cn_timer_wheel_advance(wheel, START);
    assert_int_equal(t.fired, 1);
    cn_timer_wheel_advance(wheel, START + 10);
    assert_int_equal(t.fired, 2);
    cn_timer_wheel_destroy(wheel);
}

/* Each step of a sequence moves its idle timer, so moving must cost only a store. */
static void
moving_later_only_stores(void **state)
{
    struct cn_timer_wheel *wheel = cn_timer_wheel_create(START);
    struct counted t = {0};
    uint64_t slot, deadline = START + 1000;
    int i;

    (void)state;
    cn_timer_init(&t.timer, on_timer);
    cn_timer_set(wheel, &t.timer, deadline);
    slot = t.timer.slot_ms;
    for (i = 0; i < 1000; i++) {
        cn_timer_set(wheel, &t.timer, ++deadline);
        assert_true(t.timer.slot_ms == slot);
    }
    cn_timer_wheel_advance(wheel, deadline - 1);
    assert_int_equal(t.fired, 0);
    cn_timer_wheel_advance(wheel, deadline);
    assert_int_equal(t.fired, 1);
    cn_timer_wheel_destroy(wheel);
}

static void
moving_earlier_is_kept(void **state)
{
    struct cn_timer_wheel *wheel = cn_timer_wheel_create(START);
    struct counted t = {0};

    (void)state;
    cn_timer_init(&t.timer, on_timer);
    cn_timer_set(wheel, &t.timer, START + 5 * HOUR);
    cn_timer_set(wheel, &t.timer, START + 7);
    assert_true(cn_timer_wheel_next_ms(wheel) <= START + 7);
    cn_timer_wheel_advance(wheel, START + 7);
    assert_int_equal(t.fired, 1);
    cn_timer_wheel_destroy(wheel);
}

static void
cancelled_timers_stay_silent(void **state)
{
    struct cn_timer_wheel *wheel = cn_timer_wheel_create(START);
    struct counted t = {0};

    (void)state;
    cn_timer_init(&t.timer, on_timer);
    cn_timer_cancel(&t.timer);
    cn_timer_set(wheel, &t.timer, START + 5);
    cn_timer_cancel(&t.timer);
    assert_true(cn_timer_wheel_next_ms(wheel) == CN_NEVER);
    cn_timer_set(wheel, &t.timer, START + 5);
    cn_timer_set(wheel, &t.timer, CN_NEVER);
    assert_false(cn_timer_armed(&t.timer));
    cn_timer_wheel_advance(wheel, START + HOUR);
    assert_int_equal(t.fired, 0);
    cn_timer_wheel_destroy(wheel);
}

/* The callback that ends one sequence may cancel others that are due in the same millisecond. */
static void
a_callback_may_cancel_what_is_due_with_it(void **state)
{
    struct cn_timer_wheel *wheel = cn_timer_wheel_create(START);
    struct counted a = {0}, b = {0};

    (void)state;
    cn_timer_init(&a.timer, on_timer);
    cn_timer_init(&b.timer, on_timer);
    a.other = &b.timer;
    cn_timer_set(wheel, &a.timer, START + 5);
    cn_timer_set(wheel, &b.timer, START + 5);
    cn_timer_wheel_advance(wheel, START + 5);
    assert_int_equal(a.fired, 1);
    assert_int_equal(b.fired, 0);
    cn_timer_wheel_destroy(wheel);
}

/* A timer that sets itself to a past time must not keep its loop busy for ever. */
static void
rearming_for_the_past_waits_for_the_next_advance(void **state)
{
    struct cn_timer_wheel *wheel = cn_timer_wheel_create(START);
    struct counted t = {0};

    (void)state;
    cn_timer_init(&t.timer, on_timer);
    t.wheel = wheel;
    t.again_ms = 1;
    cn_timer_set(wheel, &t.timer, START + 5);
    cn_timer_wheel_advance(wheel, START + 5);
    assert_int_equal(t.fired, 1);
    cn_timer_wheel_advance(wheel, START + 5);
    assert_int_equal(t.fired, 2);
    t.wheel = NULL;
    cn_timer_wheel_destroy(wheel);
}

static void
free_timer(struct cn_timer *timer)
{
    free(cn_container_of(timer, struct counted, timer));
}

static void
a_callback_may_free_its_timer(void **state)
{
    struct cn_timer_wheel *wheel = cn_timer_wheel_create(START);
    int i;

    (void)state;
    for (i = 0; i < 100; i++) {
        struct counted *t = calloc(1, sizeof(*t));

        cn_timer_init(&t->timer, free_timer);
        cn_timer_set(wheel, &t->timer, START + 3 + (uint64_t)i % 2);
    }
    cn_timer_wheel_advance(wheel, START + 100);
    cn_timer_wheel_destroy(wheel);
}

static void
timers_of_a_destroyed_wheel_are_disarmed(void **state)
{
    struct cn_timer_wheel *wheel = cn_timer_wheel_create(START);
    struct counted t = {0};

    (void)state;
    cn_timer_init(&t.timer, on_timer);
    cn_timer_set(wheel, &t.timer, START + 5);
    cn_timer_wheel_destroy(wheel);
    assert_false(cn_timer_armed(&t.timer));
    cn_timer_cancel(&t.timer);
    cn_timer_wheel_destroy(NULL);
}

static uint64_t
random_delay(void)
{
    return test_next_random() >> (test_next_random() % 31); /* any magnitude up to 49 days */
}

/* A thousand timers are set, moved and cancelled at random, in small steps and in jumps of days. At
 * each time exactly the due ones fire, and the wheel never asks to be woken too late. */
static void
agrees_with_a_list_that_is_searched(void **state)
{
    enum { COUNT = 1000 };
    static struct counted timers[COUNT];
    static uint64_t expected[COUNT]; /* CN_NEVER: not armed */
    struct cn_timer_wheel *wheel = cn_timer_wheel_create(START);
    uint64_t now = START, soonest;
    unsigned round, i;

    (void)state;
    for (i = 0; i < COUNT; i++) {
        timers[i] = (struct counted){0};
        cn_timer_init(&timers[i].timer, on_timer);
        expected[i] = CN_NEVER;
    }
    for (round = 0; round < 3000; round++) {
        for (i = 0; i < 20; i++) {
            unsigned at = test_next_random() % COUNT;

            expected[at] = test_next_random() % 8 ? now + random_delay() : CN_NEVER;
            cn_timer_set(wheel, &timers[at].timer, expected[at]);
        }
        soonest = CN_NEVER;
        for (i = 0; i < COUNT; i++)
            soonest = expected[i] < soonest ? expected[i] : soonest;
        assert_true(cn_timer_wheel_next_ms(wheel) <= soonest);
        now += random_delay() % (round % 10 ? 100000 : 4000000000u);
        cn_timer_wheel_advance(wheel, now);
        for (i = 0; i < COUNT; i++) {
            assert_int_equal(timers[i].fired, expected[i] <= now ? 1 : 0);
            if (timers[i].fired)
                expected[i] = CN_NEVER;
            timers[i].fired = 0;
            assert_int_equal(cn_timer_armed(&timers[i].timer), expected[i] != CN_NEVER);
        }
    }
    cn_timer_wheel_destroy(wheel);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fires_at_its_deadline_and_once),
        cmocka_unit_test(past_deadlines_fire_at_the_next_advance),
        cmocka_unit_test(moving_later_only_stores),
        cmocka_unit_test(moving_earlier_is_kept),
        cmocka_unit_test(cancelled_timers_stay_silent),
        cmocka_unit_test(a_callback_may_cancel_what_is_due_with_it),
        cmocka_unit_test(rearming_for_the_past_waits_for_the_next_advance),
        cmocka_unit_test(a_callback_may_free_its_timer),
        cmocka_unit_test(timers_of_a_destroyed_wheel_are_disarmed),
        cmocka_unit_test(agrees_with_a_list_that_is_searched),
    };

    return cmocka_run_group_tests_name("core.timer_wheel", tests, NULL, NULL);
}
