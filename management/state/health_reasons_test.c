/* management/state/health_reasons_test.c - tests that reasons are added, changed and removed, and
 * that only an empty table is healthy. */
#include "management/state/health_reasons.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void
reasons_come_and_go(void **state)
{
    struct cn_health health;

    (void)state;
    cn_health_init(&health);
    assert_true(cn_health_is_good(&health));
    assert_true(cn_health_set(&health, "store_damaged", "sum/1.0", "12 sequences"));
    assert_false(cn_health_set(&health, "store_damaged", "sum/1.0", "12 sequences"));
    assert_true(cn_health_set(&health, "store_damaged", "sum/1.0", "13 sequences"));
    assert_true(cn_health_set(&health, "store_damaged", "sum/2.0", "13 sequences"));
    assert_int_equal(cn_health_count(&health, CN_UNREADY_STORE_DAMAGED), 2);
    assert_int_equal(cn_health_count(&health, CN_UNREADY_STARTING), 0);
    assert_true(cn_health_clear(&health, "store_damaged", "sum/1.0"));
    assert_int_equal(cn_health_count(&health, CN_UNREADY_STORE_DAMAGED), 1);
    assert_false(cn_health_clear(&health, "store_damaged", "sum/1.0"));
    assert_false(cn_health_is_good(&health));
    assert_true(cn_health_clear(&health, "store_damaged", "sum/2.0"));
    assert_true(cn_health_is_good(&health));
    cn_health_set(&health, "left", "over", "freed with the table");
    cn_health_fini(&health);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(reasons_come_and_go)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
