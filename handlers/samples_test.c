/* handlers/samples_test.c - tests what handlers measure: the rules for names, and the bounds. */
#include "handlers/samples.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/log/log.h"

static const struct cn_load load = {.model_name = "m", .model_version = "1.0", .samples_max = 3};

static struct cn_samples samples;
static struct cn_error err;

static int
setup(void **state)
{
    (void)state;
    cn_log_set_level(CN_LOG_ERROR);
    cn_samples_init(&samples, &load);
    return 0;
}

static int
teardown(void **state)
{
    (void)state;
    cn_samples_fini(&samples);
    return 0;
}

static int
add(enum cn_sample_type type, const char *name, double value)
{
    struct cn_sample sample = {type, cn_str_from(name), CN_STR(""), value, 0, NULL};

    return cn_samples_add(&samples, &sample, &err);
}

static int
add_dim(const char *name, struct cn_str value)
{
    struct cn_header dim = {cn_str_from(name), value};
    struct cn_sample sample = {CN_SAMPLE_GAUGE, CN_STR("x"), CN_STR(""), 1, 1, &dim};

    return cn_samples_add(&samples, &sample, &err);
}

/* The sample belongs to the handler: a Lua string, for example, is gone after the call. */
static void
samples_are_copied_in_the_order_of_their_dimensions(void **state)
{
    char name[] = "tokens";
    struct cn_header dims[] = {{CN_STR("side"), CN_STR("left")}, {CN_STR("room"), CN_STR("k")}};
    struct cn_sample sample = {CN_SAMPLE_HISTOGRAM, {name, 6}, CN_STR(""), 2.5, 2, dims};

    (void)state;
    assert_int_equal(cn_samples_add(&samples, &sample, &err), 0);
    name[0] = '?';
    assert_int_equal(samples.n, 1);
    assert_true(cn_str_eq(samples.list[0].name, CN_STR("tokens")));
    assert_true(cn_str_eq(samples.list[0].unit, CN_STR("Count")));
    assert_true(cn_str_eq(samples.list[0].dims[0].name, CN_STR("room")));
    assert_true(cn_str_eq(samples.list[0].dims[1].value, CN_STR("left")));
    assert_true(cn_str_eq(dims[0].name, CN_STR("side"))); /* the caller's array keeps its order */
}

/* A name that would break the page, or that belongs to the server, is refused, and the message has
 * the name. */
static void
bad_names_and_values_are_refused_with_the_reason(void **state)
{
    static const char *const names[] = {"", "2x", "a-b", "a b", "\xc3\xa4", "a\n"};
    static const char *const owns[] = {"continuo_jobs_total", "QueueTime", "PredictionTime"};

    (void)state;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        assert_int_equal(add(CN_SAMPLE_GAUGE, names[i], 1), CN_E_HANDLER_FAILED);
        assert_non_null(strstr(err.message, "cannot be the name of a metric"));
    }
    for (size_t i = 0; i < sizeof(owns) / sizeof(owns[0]); i++) {
        assert_int_equal(add(CN_SAMPLE_GAUGE, owns[i], 1), CN_E_HANDLER_FAILED);
        assert_non_null(strstr(err.message, "one of the server's own"));
    }
    assert_int_equal(add(CN_SAMPLE_GAUGE, "x", NAN), CN_E_HANDLER_FAILED);
    assert_non_null(strstr(err.message, "not a finite number"));
    assert_int_equal(add(CN_SAMPLE_COUNTER, "x", -1), CN_E_HANDLER_FAILED);
    assert_string_equal(err.message, "metric x: a counter cannot decrease by 1");
    assert_int_equal(samples.n, 0);
}

static void
bad_dimensions_are_refused_with_the_reason(void **state)
{
    char wide[CN_SAMPLE_VALUE_MAX + 1];

    (void)state;
    memset(wide, 'w', sizeof(wide));
    assert_int_equal(add_dim("a-b", CN_STR("v")), CN_E_HANDLER_FAILED);
    assert_int_equal(add_dim("Hostname", CN_STR("v")), CN_E_HANDLER_FAILED);
    assert_non_null(strstr(err.message, "the server adds ModelName, Level and Hostname"));
    assert_int_equal(add_dim("le", CN_STR("v")), CN_E_HANDLER_FAILED);
    assert_int_equal(add_dim("__name__", CN_STR("v")), CN_E_HANDLER_FAILED);
    assert_int_equal(add_dim("a", CN_STR("v\n")), CN_E_HANDLER_FAILED);
    assert_int_equal(add_dim("a", CN_STR("\xff")), CN_E_HANDLER_FAILED);
    assert_int_equal(add_dim("a", (struct cn_str){wide, sizeof(wide)}), CN_E_HANDLER_FAILED);
    assert_int_equal(add_dim("a", (struct cn_str){wide, sizeof(wide) - 1}), 0);
}

/* A loop in a handler must not make a frame that is too large for the server. */
static void
a_call_has_its_fill(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++)
        assert_int_equal(add(CN_SAMPLE_COUNTER, "x", 1), 0);
    assert_int_equal(add(CN_SAMPLE_COUNTER, "x", 1), CN_E_QUEUE_FULL);
    assert_non_null(strstr(err.message, "handler.metrics.samples"));
    cn_samples_clear(&samples);
    assert_int_equal(add(CN_SAMPLE_COUNTER, "x", 1), 0);
}

int
main(void)
{
#define T(test) cmocka_unit_test_setup_teardown(test, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(samples_are_copied_in_the_order_of_their_dimensions),
        T(bad_names_and_values_are_refused_with_the_reason),
        T(bad_dimensions_are_refused_with_the_reason),
        T(a_call_has_its_fill),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
