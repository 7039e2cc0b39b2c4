/* core/time/busy_wait_test.c - tests that a thread which is often woken polls before it sleeps, and
 * that any other thread sleeps at once. */
#include "core/time/busy_wait.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/time/clock.h"

/* Makes one wait that ends in sleep. Returns how often it polled, if each poll takes 1 ms, or -1
 * for more than 1,000 polls. */
static int
looks(struct cn_busy_wait *wait, uint64_t slept_ms)
{
    int n = 0;

    cn_busy_wait_begin(wait);
    while (cn_busy_wait_again(wait)) {
        if (++n > 1000)
            return -1;
        cn_clock_advance(1);
    }
    cn_clock_advance(slept_ms);
    cn_busy_wait_end(wait);
    return n;
}

static void
it_looks_only_after_a_short_wait(void **state)
{
    struct cn_busy_wait wait = {.limit_us = 4000};

    (void)state;
    cn_clock_freeze();
    assert_int_equal(looks(&wait, 39), 0); /* nothing is known at first */
    assert_int_equal(looks(&wait, 40 - 4), 4);
    assert_int_equal(looks(&wait, 1), 0); /* the wait before took ten times the limit */
    assert_int_equal(looks(&wait, 0), 4);
    assert_int_equal(looks(&wait, 0), 4);
}

static void
what_comes_while_it_looks_ends_the_wait(void **state)
{
    struct cn_busy_wait wait = {.limit_us = 4000, .worth_it = true};

    (void)state;
    cn_clock_freeze();
    cn_busy_wait_begin(&wait);
    assert_true(cn_busy_wait_again(&wait));
    cn_clock_advance(1);
    cn_busy_wait_end(&wait);
    assert_true(wait.worth_it);
}

static void
without_a_limit_it_never_looks(void **state)
{
    struct cn_busy_wait wait = {0};

    (void)state;
    cn_clock_freeze();
    assert_int_equal(looks(&wait, 0), 0);
    assert_int_equal(looks(&wait, 0), 0);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_looks_only_after_a_short_wait),
        cmocka_unit_test(what_comes_while_it_looks_ends_the_wait),
        cmocka_unit_test(without_a_limit_it_never_looks),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
