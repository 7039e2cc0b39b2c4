/* metrics/page/system_metrics_test.c - tests reading the kernel's figures, and the lines of the
 * metrics logs. */
#include "metrics/page/system_metrics.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "core/time/clock.h"
#include "torchserve/metrics/metric_lines.h"

static void
processor_times_are_split_into_busy_and_all(void **state)
{
    uint64_t busy, total;

    (void)state;
    assert_int_equal(cn_cpu_times_parse("cpu  10 1 4 80 5 0 0 0 7 7\ncpu0 1 1", &busy, &total), 0);
    assert_int_equal(total, 100);
    assert_int_equal(busy, 15);
    assert_int_equal(cn_cpu_times_parse("", &busy, &total), -1);
    assert_int_equal(cn_cpu_times_parse("cpu x", &busy, &total), -1);
}

static void
memory_lines_are_found_by_whole_name(void **state)
{
    const char *text = "MemTotal:  16 kB\nMemAvailableX: 1 kB\nMemAvailable:   4 kB\nOdd: x\n";

    (void)state;
    assert_int_equal(cn_meminfo_bytes(text, "MemTotal"), 16384);
    assert_int_equal(cn_meminfo_bytes(text, "MemAvailable"), 4096);
    assert_int_equal(cn_meminfo_bytes(text, "Odd"), 0);
    assert_int_equal(cn_meminfo_bytes("", "MemTotal"), 0);
}

static void
this_machine_has_memory_and_a_disk(void **state)
{
    struct cn_system_metric metrics[CN_N_SYSTEM_METRICS];
    struct cn_cpu_times times = {0};

    (void)state;
    cn_system_metrics(&times, metrics);
    for (unsigned i = 0; i < CN_N_SYSTEM_METRICS; i++) {
        assert_true(metrics[i].value >= 0);
        assert_true(strcmp(metrics[i].unit, "Percent") != 0 || metrics[i].value <= 100);
    }
    assert_string_equal(metrics[2].name, "MemoryUsed");
    assert_true(metrics[2].value > 0);
}

/* Parsers of TorchServe's logs read this. */
static void
a_line_has_torchserves_form(void **state)
{
    char line[CN_TS_LINE_MAX], wanted[400];

    (void)state;
    cn_clock_freeze();
    cn_ts_setup(CN_TS_LOG);
    assert_true(cn_ts_logs());
    line[cn_ts_format(CN_LOG_METRICS, "QueueTime.Milliseconds", 2.5, "Level:Host", NULL, line)] =
        '\0';
    snprintf(wanted, sizeof(wanted),
             "2023-11-14T22:13:20.000Z - "
             "QueueTime.Milliseconds:2.5|#Level:Host|#hostname:%s,timestamp:1700000000\n",
             cn_ts_host());
    assert_string_equal(line, wanted);
    line[cn_ts_format(CN_LOG_METRICS, "n.Count", 1, "Level:Host", NULL, line)] = '\0';
    assert_non_null(strstr(line, " - n.Count:1.0|#Level:Host|#hostname:"));
    line[cn_ts_format(CN_LOG_MODEL_METRICS, "n.Count", 1, "ModelName:m,Level:Model", "a,b", line)] =
        '\0';
    assert_non_null(strstr(line, "n.Count:1|#ModelName:m,Level:Model|#hostname:"));
    assert_non_null(strstr(line, ",requestID:a,b,timestamp:1700000000\n"));
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(processor_times_are_split_into_busy_and_all),
        cmocka_unit_test(memory_lines_are_found_by_whole_name),
        cmocka_unit_test(this_machine_has_memory_and_a_disk),
        cmocka_unit_test(a_line_has_torchserves_form),
    };

    return cmocka_run_group_tests_name("frontend.system_metrics", tests, NULL, NULL);
}
