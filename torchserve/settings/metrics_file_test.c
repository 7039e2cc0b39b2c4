/* Tests reading metrics.yaml: rules are found by name, and errors have their place. */
#include "torchserve/settings/metrics_file.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static struct cn_metrics_file file;

static const char *
refused(const char *text)
{
    static struct cn_error err;

    assert_int_equal(cn_metrics_file_parse("m.yaml", cn_str_from(text), &file, &err), CN_E_CONFIG);
    return err.message;
}

/* The file has the form of TorchServe's own one. */
static void
rules_are_found_by_name(void **state)
{
    static const char text[] =
        "dimensions:\n  - &level \"Level\"\n"
        "ts_metrics:\n  counter:\n    - name: Requests2XX\n      unit: Count\n"
        "      dimensions: [*level]\n  gauge:\n"
        "model_metrics:\n  histogram:\n    - {name: took, unit: ms}\n";
    const struct cn_metric_rule *rule;

    (void)state;
    assert_int_equal(cn_metrics_file_parse("m.yaml", cn_str_from(text), &file, NULL), 0);
    assert_int_equal(file.n, 2);
    rule = cn_metrics_file_find(&file, CN_STR("Requests2XX"));
    assert_false(rule->of_model);
    assert_int_equal(rule->n_dims, 1);
    assert_string_equal(rule->dims[0], "Level");
    rule = cn_metrics_file_find(&file, CN_STR("took"));
    assert_true(rule->of_model);
    assert_int_equal(rule->kind, CN_METRIC_HISTOGRAM);
    assert_string_equal(rule->unit, "ms");
    assert_null(cn_metrics_file_find(&file, CN_STR("Requests2X")));
    assert_null(cn_metrics_file_find(&file, CN_STR("Requests2XXX")));
    cn_metrics_file_fini(&file);
}

/* The message has the place, what was expected and what was found, so that the file can be
 * corrected. */
static void
what_is_wrong_is_said_with_its_place(void **state)
{
    (void)state;
    assert_string_equal(refused("model_metrics:\n  meter: []\n"),
                        "m.yaml:2:10: model_metrics: expected lists named counter, gauge and "
                        "histogram, got a list");
    assert_non_null(strstr(refused("ts_metrics:\n  gauge:\n  - {name: '', unit: x}\n"),
                           "m.yaml:3:12: name: expected a name of at most 128 letters"));
    assert_non_null(strstr(refused("ts_metrics:\n  gauge:\n  - {name: x}\n"), "m.yaml:3:5: unit"));
    assert_non_null(strstr(refused("model_metrics:\n  gauge: [{name: x, unit: y}]\n"
                                   "ts_metrics:\n  counter: [{name: x, unit: y}]\n"),
                           "metric x is declared twice"));
    assert_non_null(strstr(refused(""), "metrics below ts_metrics or model_metrics"));
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rules_are_found_by_name),
        cmocka_unit_test(what_is_wrong_is_said_with_its_place),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
