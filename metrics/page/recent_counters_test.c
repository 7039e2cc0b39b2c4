/* Tests of metrics/page/recent_counters.c: what is older than five minutes does not count. */
#include "metrics/page/recent_counters.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/time/clock.h"
#include "metrics/counters/metrics.h"

static struct cn_loop *loops[2];
static struct cn_recent recent;

static int
begin(void **state)
{
    struct cn_error err;

    (void)state;
    cn_clock_freeze();
    for (unsigned i = 0; i < 2; i++)
        assert_int_equal(cn_loop_create(i, &loops[i], &err), 0);
    cn_recent_begin(&recent, loops, 2);
    return 0;
}

static int
end(void **state)
{
    (void)state;
    cn_recent_end(&recent);
    cn_loop_destroy(loops[0]);
    cn_loop_destroy(loops[1]);
    return 0;
}

static void
fail_times(unsigned loop, uint64_t n)
{
    cn_metrics_add(cn_loop_metrics(loops[loop]), CN_M_HTTP_5XX, n);
}

static void
pass(unsigned seconds)
{
    for (; seconds >= 10; seconds -= 10) {
        cn_clock_advance(10000);
        cn_loop_turn(loops[0], 0);
    }
}

static uint64_t
shown(enum cn_metric metric)
{
    cn_loop_turn(loops[0], 0);
    cn_recent_show(&recent);
    return cn_metrics_get(cn_loop_metrics(loops[0]), metric);
}

/* All loops count, from the first moment until five minutes have passed. */
static void
counts_last_five_minutes(void **state)
{
    (void)state;
    fail_times(0, 2);
    fail_times(1, 3);
    assert_int_equal(shown(CN_M_RECENT_HTTP_5XX), 5);
    assert_int_equal(shown(CN_M_RECENT_SECONDS), 0);
    pass(290);
    assert_int_equal(shown(CN_M_RECENT_HTTP_5XX), 5);
    assert_int_equal(shown(CN_M_RECENT_SECONDS), 290);
    fail_times(1, 1);
    pass(20);
    assert_int_equal(shown(CN_M_RECENT_HTTP_5XX), 1);
    assert_int_equal(shown(CN_M_RECENT_SECONDS), 300);
    pass(300);
    assert_int_equal(shown(CN_M_RECENT_HTTP_5XX), 0);
}

/* The ring goes round for days. */
static void
the_ring_goes_round(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 500; i++) {
        fail_times(0, 1);
        pass(10);
    }
    assert_int_equal(shown(CN_M_RECENT_HTTP_5XX), 30);
    assert_int_equal(shown(CN_M_RECENT_SECONDS), 300);
}

/* If a loop slept for an hour, as on a suspended machine, only what came since counts. */
static void
a_gap_is_told_by_its_length(void **state)
{
    (void)state;
    pass(10);
    fail_times(0, 7);
    cn_clock_advance(3600 * 1000);
    assert_int_equal(shown(CN_M_RECENT_HTTP_5XX), 7);
    assert_int_equal(shown(CN_M_RECENT_SECONDS), 3600);
    pass(300);
    assert_int_equal(shown(CN_M_RECENT_HTTP_5XX), 0);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(counts_last_five_minutes, begin, end),
        cmocka_unit_test_setup_teardown(the_ring_goes_round, begin, end),
        cmocka_unit_test_setup_teardown(a_gap_is_told_by_its_length, begin, end),
    };

    return cmocka_run_group_tests_name("frontend.recent", tests, NULL, NULL);
}
