/* core/metrics_test.c - counters of several loops. */
#include "core/metrics.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

/* A connection may be counted on one loop and taken off on another. */
static void
a_sum_is_right_though_its_parts_wrap(void **state)
{
    struct cn_metrics a = {0}, b = {0};
    const struct cn_metrics *sets[] = {&a, &b};
    struct cn_buf out;

    (void)state;
    cn_metrics_add(&a, CN_M_HTTP_CONNECTIONS, 5);
    cn_metrics_sub(&b, CN_M_HTTP_CONNECTIONS, 2);
    cn_metrics_add(&b, CN_M_HTTP_REQUESTS, 7);
    assert_int_equal(cn_metrics_get(&a, CN_M_HTTP_CONNECTIONS), 5);
    cn_buf_init(&out, 0);
    cn_metrics_print(sets, 2, &out);
    cn_buf_append(&out, "", 1);
    assert_non_null(strstr(out.data, "\ncontinuo_http_connections 3\n"));
    assert_non_null(strstr(out.data, "\ncontinuo_http_requests_total 7\n"));
    cn_buf_fini(&out);
}

/* Scrapers refuse a page whose types or names are off. */
static void
each_metric_has_help_type_and_value(void **state)
{
    struct cn_metrics a = {0};
    const struct cn_metrics *sets[] = {&a};
    unsigned lines = 0, helps = 0;
    struct cn_buf out;
    size_t i;

    (void)state;
    cn_buf_init(&out, 0);
    cn_metrics_print(sets, 1, &out);
    for (i = 0; i < out.len; i++) {
        lines += out.data[i] == '\n';
        helps += i + 7 < out.len && memcmp(out.data + i, "# HELP ", 7) == 0;
    }
    assert_int_equal(lines, 3 * CN_METRIC_COUNT);
    assert_int_equal(helps, CN_METRIC_COUNT);
    cn_buf_fini(&out);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_sum_is_right_though_its_parts_wrap),
        cmocka_unit_test(each_metric_has_help_type_and_value),
    };

    return cmocka_run_group_tests_name("core.metrics", tests, NULL, NULL);
}
