/* frontend/intake/request_bytes_test.c - tests that all requests together stay below the limit. */
#include "frontend/intake/request_bytes.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define STEP ((size_t)CN_REQUEST_BYTES_STEP)

static void
the_request_that_passes_the_limit_is_refused(void **state)
{
    struct cn_request_bytes first = {0}, second = {0};

    (void)state;
    cn_request_bytes_set_limit(10 * STEP);
    assert_true(cn_request_bytes_take(&first, 6 * STEP));
    assert_false(cn_request_bytes_fit(5 * STEP));
    assert_true(cn_request_bytes_fit(4 * STEP));
    assert_true(cn_request_bytes_take(&second, 4 * STEP));
    assert_false(cn_request_bytes_take(&second, 5 * STEP));
    assert_int_equal(second.counted, 4 * STEP); /* the refusal changes nothing */
    cn_request_bytes_done(&first);
    assert_true(cn_request_bytes_take(&second, 10 * STEP));
    cn_request_bytes_done(&second);
}

static void
what_is_below_a_step_is_not_counted(void **state)
{
    struct cn_request_bytes large = {0}, small = {0};

    (void)state;
    cn_request_bytes_set_limit(STEP);
    assert_true(cn_request_bytes_take(&large, STEP));
    assert_true(cn_request_bytes_fit(STEP - 1));
    assert_true(cn_request_bytes_take(&small, STEP - 1));
    assert_int_equal(small.counted, 0);
    assert_false(cn_request_bytes_take(&small, STEP));
    cn_request_bytes_done(&large);
}

/* A body that arrives in pieces is counted once, and one that has moved is given back once. */
static void
a_body_is_counted_once(void **state)
{
    struct cn_request_bytes coming = {0}, kept = {0}, other = {0};

    (void)state;
    cn_request_bytes_set_limit(4 * STEP);
    for (size_t len = 1; len <= 4 * STEP; len += 1000)
        assert_true(cn_request_bytes_take(&coming, len));
    assert_int_equal(coming.counted, 3 * STEP);
    cn_request_bytes_move(&kept, &coming);
    cn_request_bytes_done(&coming);
    assert_false(cn_request_bytes_take(&other, 2 * STEP));
    cn_request_bytes_done(&kept);
    cn_request_bytes_done(&kept);
    assert_true(cn_request_bytes_take(&other, 4 * STEP));
    cn_request_bytes_done(&other);
}

static void
the_refusal_names_the_option(void **state)
{
    struct cn_error err;

    (void)state;
    cn_request_bytes_set_limit(4 * STEP);
    assert_int_equal(cn_request_bytes_refuse(&err), CN_E_UNAVAILABLE);
    assert_non_null(strstr(err.message, "262144 bytes already (max-held-requests)"));
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_request_that_passes_the_limit_is_refused),
        cmocka_unit_test(what_is_below_a_step_is_not_counted),
        cmocka_unit_test(a_body_is_counted_once),
        cmocka_unit_test(the_refusal_names_the_option),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
