/* ctl/show_test.c - tests that tables line up, rates are right, and addresses are checked. */
#include "ctl/show.h"

#include "core/memory/mem.h"
#include "ctl/cli.h"
#include "ctl/columns.h"
#include "ctl/environment_commands.h"
#include "ctl/http_client.h"
#include "doctor/test_support.h"

/* Columns are aligned to the left or right, UTF-8 is counted in characters, no line ends with
 * spaces, and control characters are not shown. */
static void
columns_line_up(void **state)
{
    struct cn_ctl_table table;
    struct cn_buf out;
    char *text;

    (void)state;
    cn_buf_init(&out, 0);
    cn_ctl_table_init(&table, "lrl");
    cn_ctl_table_add(&table, "A");
    cn_ctl_table_add(&table, "COUNT");
    cn_ctl_table_add(&table, "C");
    cn_ctl_table_add(&table, "\xc3\xbc\xc3\xbc\x1b");
    cn_ctl_table_add(&table, "%d", 7);
    cn_ctl_table_add(&table, "x");
    cn_ctl_table_print(&table, &out);
    cn_ctl_table_fini(&table);
    text = cn_buf_take(&out, NULL);
    assert_string_equal(text, "A    COUNT  C\n\xc3\xbc\xc3\xbc?      7  x\n");
    cn_free(text);
}

static void
top_shows_what_changed(void **state)
{
    static struct cn_ctl_diagnosis healthy;
    struct cn_ctl_view before, now;
    struct cn_buf out;
    char *text;

    (void)state;
    view_of(&before, "[" MODEL("m", "1.0", READY_WORKER, ", \"steps\": 100") "]");
    view_of(&now, "[" MODEL("m", "1.0", READY_WORKER, ", \"steps\": 350") "]");
    before.at_us = 1000000;
    now.at_us = 1500000;
    cn_buf_init(&out, 0);
    cn_ctl_show_top(&before, &now, &healthy, "http://h:1", &out);
    cn_ctl_json_top(&before, &now, "http://h:1", &out);
    text = cn_buf_take(&out, NULL);
    assert_contains(text, "http://h:1  healthy  workers 1/1  sequences 0  steps/s 500\n");
    assert_contains(text, "m/1.0 1   77  ready");
    assert_contains(text, "12.3 MB");
    assert_contains(text, "\"stepsPerSecond\":500.0");
    cn_free(text);
    cn_ctl_view_fini(&before);
    cn_ctl_view_fini(&now);
    /* If a server was restarted, rates count from 0 again. */
    assert_true(cn_ctl_rate(100, 5, 1000000) == 0);
    assert_true(cn_ctl_rate(100, 200, 0) == 0);
}

/* A mistake in the command line is named. */
static void
wrong_command_lines_are_named(void **state)
{
    static const struct {
        const char *words[4];
        const char *message;
    } cases[] = {
        {{"ctl"}, "no command given"},
        {{"ctl", "statsu"}, "unknown command statsu"},
        {{"ctl", "status", "models"}, "unexpected argument models: give one command at a time"},
        {{"ctl", "--jsn", "status"}, "unknown option --jsn"},
        {{"ctl", "models", "--once"}, "--once works only with top"},
        {{"ctl", "status", "--server", "localhost:8081"}, "write http://HOST:PORT"},
        {{"ctl", "status", "--metrics="}, "is not an address"},
        {{"ctl", "status", "--server"}, "is not an address"},
    };
    struct cn_ctl_options options;
    struct cn_error err;
    char *argv[5];
    int argc;

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        for (argc = 0; argc < 4 && cases[i].words[argc]; argc++)
            argv[argc] = (char *)(uintptr_t)cases[i].words[argc];
        argv[argc] = NULL;
        assert_int_equal(cn_ctl_options_parse(argc, argv, &options, &err), CN_E_CONFIG);
        assert_contains(err.message, cases[i].message);
    }
}

/* A flag overrides the environment, which overrides the default. */
static void
the_address_comes_from_flag_environment_or_default(void **state)
{
    char ctl[] = "ctl", status[] = "status", flag[] = "--server=unix:/x";
    char *argv[] = {ctl, status, flag, NULL};
    struct cn_ctl_options options;
    struct cn_error err;

    (void)state;
    unsetenv("CONTINUO_MANAGEMENT");
    assert_int_equal(cn_ctl_options_parse(2, argv, &options, &err), 0);
    assert_string_equal(options.management, CN_CTL_DEFAULT_MANAGEMENT);
    setenv("CONTINUO_MANAGEMENT", "http://h:2", 1);
    assert_int_equal(cn_ctl_options_parse(2, argv, &options, &err), 0);
    assert_string_equal(options.management, "http://h:2");
    assert_int_equal(cn_ctl_options_parse(3, argv, &options, &err), 0);
    assert_string_equal(options.management, "unix:/x");
    unsetenv("CONTINUO_MANAGEMENT");
}

/* A model's name may have characters that a path cannot have. */
static void
names_are_escaped_in_paths(void **state)
{
    struct cn_buf out;
    char *text;

    (void)state;
    cn_buf_init(&out, 0);
    cn_ctl_put_escaped(&out, "a b/\xc3\xbc?-.~_9");
    text = cn_buf_take(&out, NULL);
    assert_string_equal(text, "a%20b%2F%C3%BC%3F-.~_9");
    cn_free(text);
}

/* An operator who waits for packages sees for which models they are, and how far pip is. */
static void
environments_are_shown_with_their_models_and_progress(void **state)
{
    static const char answer[] =
        "{\"environments\": [{\"digest\": \"0123456789abcdef\", \"state\": \"building\", "
        "\"step\": \"Collecting numpy\", \"forMSec\": 61500, \"models\": ["
        "{\"modelName\": \"a\", \"modelVersion\": \"1.0\"}, "
        "{\"modelName\": \"b\", \"modelVersion\": \"2.0\"}]}, "
        "{\"digest\": null, \"state\": \"looking\", \"step\": null, \"models\": 7}]}";
    struct cn_error err;
    struct cn_buf out;
    char *text;

    (void)state;
    cn_buf_init(&out, 0);
    assert_int_equal(
        cn_ctl_environments_show(CN_STR("{\"models\": []}"), false, "http://h:1", &out, &err),
        CN_E_PROTOCOL);
    assert_int_equal(cn_ctl_environments_show(CN_STR("[]"), false, "http://h:1", &out, &err),
                     CN_E_PROTOCOL);
    assert_int_equal(cn_ctl_environments_show(cn_str_from(answer), false, "http://h:1", &out, &err),
                     0);
    text = cn_buf_take(&out, NULL);
    assert_string_equal(text, "ENVIRONMENT   STATE     SECONDS  MODELS        STEP\n"
                              "0123456789ab  building       61  a/1.0, b/2.0  Collecting numpy\n"
                              "-             looking         0  -             -\n");
    cn_free(text);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(columns_line_up),
        cmocka_unit_test(top_shows_what_changed),
        cmocka_unit_test(environments_are_shown_with_their_models_and_progress),
        cmocka_unit_test(wrong_command_lines_are_named),
        cmocka_unit_test(the_address_comes_from_flag_environment_or_default),
        cmocka_unit_test(names_are_escaped_in_paths),
    };
    return cmocka_run_group_tests_name("ctl.show", tests, NULL, NULL);
}
