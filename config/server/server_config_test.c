/* config/server/server_config_test.c - tests options that come from flags, the environment, a file
 * and defaults. */
#include "config/server/server_config.h"

#include <stdlib.h>
#include <unistd.h>

#include "config/test_support.h"

static char file_path[64];

static int
write_file(const char *text)
{
    FILE *file = fopen(file_path, "w");

    fputs(text, file);
    return fclose(file);
}

/* `flags` and `environment` are words with '|' between them. */
static int
load(const char *flags, const char *environment, struct cn_server_config *config,
     struct warnings *warnings, struct cn_error *err)
{
    char *argv[32] = {(char *)(uintptr_t) "continuo"}, *envp[32] = {NULL};
    static char flag_text[1024], env_text[1024]; /* they must live as long as argv */
    char *rest = flag_text;
    int argc = 1, n = 0;

    snprintf(flag_text, sizeof(flag_text), "%s", flags);
    snprintf(env_text, sizeof(env_text), "%s", environment);
    while (flags[0] && rest != NULL)
        argv[argc++] = strsep(&rest, "|");
    rest = env_text;
    while (environment[0] && rest != NULL)
        envp[n++] = strsep(&rest, "|");
    memset(warnings, 0, sizeof(*warnings));
    return cn_server_config_load(argc, argv, envp, config, keep_warning, warnings, err);
}

static void
good(const char *flags, const char *environment, struct cn_server_config *config)
{
    struct warnings warnings;
    struct cn_error err = {0};

    if (load(flags, environment, config, &warnings, &err) != 0)
        fail_msg("%s", err.message);
}

static void
stops(const char *flags, const char *environment, const char *message)
{
    struct cn_server_config config;
    struct warnings warnings;
    struct cn_error err = {0};

    assert_int_equal(load(flags, environment, &config, &warnings, &err), CN_E_CONFIG);
    assert_contains(err.message, message);
}

static void
file_stops(const char *text, const char *message)
{
    char flags[128];

    write_file(text);
    snprintf(flags, sizeof(flags), "--config|%s", file_path);
    stops(flags, "", message);
}

static void
warns(const char *flags, const char *environment, const char *message)
{
    struct cn_server_config config;
    struct warnings warnings;
    struct cn_error err = {0};

    if (load(flags, environment, &config, &warnings, &err) != 0)
        fail_msg("%s", err.message);
    assert_int_equal(warnings.n, message != NULL);
    if (message != NULL)
        assert_contains(warnings.last, message);
    cn_server_config_fini(&config);
}

/* The defaults that --help shows are the real ones. */
static void
defaults_are_those_of_the_table(void **state)
{
    struct cn_server_config config;

    (void)state;
    good("", "", &config);
    assert_null(config.model_store);
    assert_string_equal(config.state_dir, "continuo-state");
    assert_string_equal(config.inference_address, "http://127.0.0.1:8080");
    assert_int_equal(config.durability, CN_DURABILITY_PROCESS);
    assert_int_equal(config.max_request_bytes, 6553500);
    assert_int_equal(config.log_level, 2);
    assert_int_equal(config.n_models, 0);
    assert_int_equal(config.sources[0], CN_FROM_DEFAULT);
    cn_server_config_fini(&config);
}

/* Both spellings (--a b and --a=b) are common in scripts. */
static void
both_spellings_of_a_flag_work(void **state)
{
    struct cn_server_config config;

    (void)state;
    good("--model-store|/m|--loops=3|--durability=power|--log-level|debug|--loops|4", "", &config);
    assert_string_equal(config.model_store, "/m");
    assert_int_equal(config.loops, 4);
    assert_int_equal(config.durability, CN_DURABILITY_POWER);
    assert_int_equal(config.log_level, 3);
    cn_server_config_fini(&config);
}

static void
expect_model(const struct cn_server_config *config, uint32_t i, const char *name, const char *file)
{
    assert_true(i < config->n_models);
    if (name == NULL)
        assert_null(config->models[i].name);
    else
        assert_string_equal(config->models[i].name, name);
    assert_string_equal(config->models[i].file, file);
}

/* An option with several values takes commas, repetition, names, and `=` inside a URL. */
static void
models_come_in_every_form(void **state)
{
    struct cn_server_config config;

    (void)state;
    good("--models|a.mar|b=b.mar|--loops|2|--models=c.mar,d=d.mar,|--models|http://h/x?y=z", "",
         &config);
    assert_int_equal(config.n_models, 5);
    expect_model(&config, 0, NULL, "a.mar");
    expect_model(&config, 1, "b", "b.mar");
    expect_model(&config, 2, NULL, "c.mar");
    expect_model(&config, 3, "d", "d.mar");
    expect_model(&config, 4, NULL, "http://h/x?y=z");
    assert_int_equal(config.models_source, CN_FROM_FLAG);
    cn_server_config_fini(&config);
    good("--models|ALL", "", &config);
    expect_model(&config, 0, NULL, "all");
    cn_server_config_fini(&config);
    stops("--models", "", "--models needs NAME=FILE, FILE or all");
    stops("--models|--loops|2", "", "--models needs");
    stops("--models|=x.mar", "", "has no name before");
    stops("--models|x=", "", "model \"x\" names no file");
}

/* A flag overrides the environment, which overrides the file, which overrides the default. Each
 * value says where it comes from. */
static void
the_strongest_source_wins(void **state)
{
    struct cn_server_config config;
    char flags[256];

    (void)state;
    write_file("loops: 1\nheader-timeout: 11\nbody-timeout: 22\nmodels: [f.mar]\n");
    snprintf(flags, sizeof(flags), "--config=%s|--loops|3", file_path);
    good(flags, "CONTINUO_LOOPS=2|CONTINUO_HEADER_TIMEOUT=33|CONTINUO_MODELS=x=e.mar,g.mar",
         &config);
    assert_int_equal(config.loops, 3);
    assert_int_equal(config.header_timeout_ms, 33);
    assert_int_equal(config.body_timeout_ms, 22);
    assert_int_equal(config.n_models, 2);
    expect_model(&config, 0, "x", "e.mar");
    assert_int_equal(config.models_source, CN_FROM_ENV);
    cn_server_config_fini(&config);
    snprintf(flags, sizeof(flags), "CONTINUO_CONFIG=%s", file_path);
    good("", flags, &config);
    assert_int_equal(config.loops, 1);
    expect_model(&config, 0, NULL, "f.mar");
    assert_int_equal(config.models_source, CN_FROM_FILE);
    cn_server_config_fini(&config);
}

/* Compose files pass variables that are not set as empty ones. */
static void
an_empty_variable_counts_as_none(void **state)
{
    struct cn_server_config config;

    (void)state;
    good("", "CONTINUO_LOOPS=|CONTINUO_MODEL_STORE=", &config);
    assert_null(config.model_store);
    cn_server_config_fini(&config);
}

/* For a misspelt name the message has the name that was meant. */
static void
unknown_names_lead_to_the_nearest(void **state)
{
    char flags[128];

    (void)state;
    stops("--model-stor|x", "", "unknown flag --model-stor (did you mean --model-store?)");
    stops("--modles=x", "", "(did you mean --models?)");
    stops("--colour", "", "unknown flag --colour; --help all lists the flags");
    stops("server", "", "unexpected argument \"server\"");
    stops("-x", "", "unexpected argument \"-x\"");
    stops("deb", "", "unexpected argument \"deb\" (did you mean continuo dev?)");
    stops("counter.mar", "", "name models of the store with --models");
    stops("--model-api|false", "",
          "the value of --model-api stands behind an equals sign, as in --model-api=false");
    stops("--start", "", "unknown flag --start; the program torchserve takes it");
    stops("--port=8080", "",
          "unknown flag --port=8080; write --inference-address http://HOST:PORT");
    warns("", "CONTINUO_MODELSTORE=x",
          "unknown variable CONTINUO_MODELSTORE (did you mean "
          "CONTINUO_MODEL_STORE?)");
    warns("", "CONTINUO_TEST_CLOCK=x|OTHER=y|CONTINUO_SOMETHING_ELSE=1", NULL);
    write_file("\nloop: 1\n");
    snprintf(flags, sizeof(flags), "--config|%s", file_path);
    warns(flags, "", ":2:1: unknown key loop (did you mean loops?)");
    write_file("config: x.yaml\n");
    warns(flags, "", "unknown key config");
}

/* The message has the source, the value, and what is allowed. */
static void
wrong_values_are_named(void **state)
{
    (void)state;
    stops("--loops|many", "", "--loops: expected an integer from 0 to 64, found \"many\"");
    stops("--loops|65", "", "--loops: expected an integer from 0 to 64, found \"65\"");
    stops("--loops=-1", "", "found \"-1\"");
    stops("--loops= 1", "", "found \" 1\"");
    stops("--loops=1x", "", "found \"1x\"");
    stops("--loops=99999999999999999999", "", "found");
    stops("--loops", "", "--loops needs N");
    stops("--state-dir=", "", "--state-dir is empty");
    stops("--state-store=lmdb", "", "--state-store: expected embedded or a URL");
    stops("", "CONTINUO_STATE_STORE=redis+cluster://h/0",
          "CONTINUO_STATE_STORE: the number behind the hosts");
    stops("--durability|maybe", "", "expected none, process or power, found \"maybe\"");
    stops("--log-level|loud", "", "expected error, warn, info or debug");
    stops("--inference-address|8080", "",
          "--inference-address: the address \"8080\" has no scheme");
    stops("", "CONTINUO_LOOPS=x", "CONTINUO_LOOPS: expected an integer");
    stops("--config|/nowhere/continuo.yaml", "", "/nowhere/continuo.yaml: No such file");
    stops("--help=x", "", "unknown flag --help=x");
}

/* Messages about the file have line and column, so that an editor can jump there. */
static void
wrong_values_in_the_file_have_a_place(void **state)
{
    (void)state;
    file_stops("loops: many\n", ":1:8: loops: expected an integer from 0 to 64, found a string "
                                "(many)");
    file_stops("loops: \"3\"\n", ":1:8: loops: expected an integer");
    file_stops("\nloops: 65\n", ":2:8: loops: expected an integer from 0 to 64, found \"65\"");
    file_stops("state-dir: 5\n", ":1:12: state-dir: expected a string, found an integer (5)");
    file_stops("state-dir: [a]\n", ":1:12: state-dir: expected a string, found a list");
    file_stops("state-dir: \"a\\0b\"\n", "zero byte");
    file_stops("inference-address: 8.8\n", ":1:20: inference-address: expected a string");
    file_stops("loops: 1\nloops: 2\n", ":2:1: duplicate key loops");
    file_stops("[]\n", ":1:1: expected a map of settings, found a list");
    file_stops("models: 5\n", ":1:9: models: expected a file name");
    file_stops("models: [a.mar, [b]]\n", ":1:17: models: expected a file name, found a list");
    file_stops("models: {a: \"\"}\n", ":1:13: model \"a\" names no file");
}

/* A name with `=` or a comma can be written in the map form. */
static void
the_file_lists_models_in_three_forms(void **state)
{
    struct cn_server_config config;
    char flags[128];

    (void)state;
    snprintf(flags, sizeof(flags), "--config|%s", file_path);
    write_file("models:\n  a: x,y.mar\n  b: b.mar\n");
    good(flags, "", &config);
    expect_model(&config, 0, "a", "x,y.mar");
    expect_model(&config, 1, "b", "b.mar");
    cn_server_config_fini(&config);
    write_file("models: all\nloops: 0x2\n");
    good(flags, "", &config);
    expect_model(&config, 0, NULL, "all");
    assert_int_equal(config.loops, 2);
    cn_server_config_fini(&config);
    write_file("models:\n");
    good(flags, "", &config);
    assert_int_equal(config.n_models, 0);
    cn_server_config_fini(&config);
}

/* --help and --version work even if another option is wrong. */
static void
help_and_version_end_the_reading(void **state)
{
    struct cn_server_config config;

    (void)state;
    good("--help|--bogus", "CONTINUO_LOOPS=x", &config);
    assert_true(config.help);
    cn_server_config_fini(&config);
    good("-v", "", &config);
    assert_true(config.version);
    cn_server_config_fini(&config);
    good("--print-man", "", &config);
    assert_true(config.print_man);
    cn_server_config_fini(&config);
}

/* A password is not printed. */
static void
the_printed_config_has_no_password(void **state)
{
    struct cn_server_config config;
    char *text = NULL;
    size_t len;
    FILE *out;

    (void)state;
    good("--keystore-password|hunter2", "", &config);
    out = open_memstream(&text, &len);
    cn_server_config_print(&config, out);
    fclose(out);
    assert_null(strstr(text, "hunter2"));
    assert_non_null(strstr(text, "\n# keystore-password: set, but not shown # flag"));
    free(text);
    cn_server_config_fini(&config);
    good("", "CONTINUO_STATE_STORE=valkey://me:hunter2@h", &config);
    out = open_memstream(&text, &len);
    cn_server_config_print(&config, out);
    fclose(out);
    assert_null(strstr(text, "hunter2"));
    assert_non_null(strstr(text, "\n# state-store: set, but not shown # env"));
    free(text);
    cn_server_config_fini(&config);
}

/* The printed configuration is a file with the same effect. */
static void
the_printed_config_reads_back(void **state)
{
    struct cn_server_config config;
    char flags[128];
    FILE *out;

    (void)state;
    good("--loops|3|--model-store|/a \"b\"\\c|--models|x=y.mar|z.mar|--print-config",
         "CONTINUO_BODY_TIMEOUT=77", &config);
    assert_true(config.print_config);
    out = fopen(file_path, "w");
    cn_server_config_print(&config, out);
    fclose(out);
    cn_server_config_fini(&config);
    snprintf(flags, sizeof(flags), "--config|%s", file_path);
    warns(flags, "", NULL);
    good(flags, "", &config);
    assert_int_equal(config.loops, 3);
    assert_string_equal(config.model_store, "/a \"b\"\\c");
    assert_int_equal(config.body_timeout_ms, 77);
    expect_model(&config, 0, "x", "y.mar");
    expect_model(&config, 1, NULL, "z.mar");
    assert_null(config.worker_program);
    cn_server_config_fini(&config);
}

static char *
print_to_text(void (*print)(FILE *out))
{
    char *text = NULL;
    size_t len = 0;
    FILE *out = open_memstream(&text, &len);

    print(out);
    fclose(out);
    return text;
}

static char *
help_text(const char *section)
{
    char *text = NULL;
    size_t len = 0;
    FILE *out = open_memstream(&text, &len);

    cn_server_config_help(section, out);
    fclose(out);
    return text;
}

static unsigned
count_lines(const char *text)
{
    unsigned lines = 0;

    for (const char *line = text, *end; (end = strchr(line, '\n')) != NULL; line = end + 1) {
        assert_true(end - line <= 110);
        lines++;
    }
    return lines;
}

/* --help fits on a screen. Every option is in --help all, in exactly one section, and in the
 * manual. */
static void
help_is_short_and_all_of_it_names_every_option(void **state)
{
    static const char *const sections[] = {"server", "limits",   "grpc", "v2",      "models",
                                           "http",   "security", "logs", "metrics", "tuning"};
    char *help = help_text(NULL), *all = help_text("all"),
         *man = print_to_text(cn_server_config_man);
    unsigned n_lines = 0;

    (void)state;
    assert_in_range(count_lines(help), 24, 50);
    assert_contains(help, "--model-store DIR");
    assert_contains(help, "--help [SECTION]");
#define CN_OPTION(field, c_type, kind, flag, yaml_key, default_, min, max, arg, help_text)         \
    assert_contains(all, "  --" flag " " arg);                                                     \
    assert_contains(man, " \\fI" arg "\\fR\n");
#include "config/server/server_options.def"
#undef CN_OPTION
    for (size_t i = 0; i < sizeof(sections) / sizeof(sections[0]); i++) {
        char *one = help_text(sections[i]);

        assert_contains(help, sections[i]);
        assert_true(strncmp(one, sections[i], strlen(sections[i])) == 0);
        n_lines += count_lines(one);
        free(one);
    }
    assert_int_equal(n_lines + sizeof(sections) / sizeof(sections[0]) - 1, count_lines(all));
    assert_contains(man, "\\fB\\-\\-model\\-store\\fR \\fIDIR\\fR");
    assert_contains(man, "CONTINUO_MAX_REQUEST_SIZE");
    free(help);
    free(all);
    free(man);
}

static void
help_may_name_a_section(void **state)
{
    struct cn_server_config config;

    (void)state;
    good("--help|logs", "", &config);
    assert_string_equal(config.help_section, "logs");
    cn_server_config_fini(&config);
    good("-h|all|--bogus", "", &config);
    assert_string_equal(config.help_section, "all");
    cn_server_config_fini(&config);
    stops("--help|me", "", "--help has no section \"me\"");
}

/* The list of --tuning is checked before anything starts, and the message lists the names. */
static void
tunings_are_checked(void **state)
{
    struct cn_server_config config;

    (void)state;
    good("--tuning|none,lockstep", "CONTINUO_TUNING=all", &config);
    assert_string_equal(config.tuning, "none,lockstep");
    cn_server_config_fini(&config);
    good("", "CONTINUO_TUNING=all,-busy-wait", &config);
    assert_string_equal(config.tuning, "all,-busy-wait");
    cn_server_config_fini(&config);
    stops("--tuning=all,-busywait", "", "--tuning: \"-busywait\" is not a performance mechanism");
    stops("--tuning=nothing", "", "busy-wait, prefetch, ");
    stops("", "CONTINUO_TUNING=-", "CONTINUO_TUNING: \"-\" is not");
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults_are_those_of_the_table),
        cmocka_unit_test(both_spellings_of_a_flag_work),
        cmocka_unit_test(models_come_in_every_form),
        cmocka_unit_test(the_strongest_source_wins),
        cmocka_unit_test(an_empty_variable_counts_as_none),
        cmocka_unit_test(unknown_names_lead_to_the_nearest),
        cmocka_unit_test(wrong_values_are_named),
        cmocka_unit_test(wrong_values_in_the_file_have_a_place),
        cmocka_unit_test(the_file_lists_models_in_three_forms),
        cmocka_unit_test(help_and_version_end_the_reading),
        cmocka_unit_test(the_printed_config_reads_back),
        cmocka_unit_test(the_printed_config_has_no_password),
        cmocka_unit_test(help_is_short_and_all_of_it_names_every_option),
        cmocka_unit_test(help_may_name_a_section),
        cmocka_unit_test(tunings_are_checked),
    };
    int rc;

    snprintf(file_path, sizeof(file_path), "/tmp/cn-server-config-%d.yaml", (int)getpid());
    rc = cmocka_run_group_tests_name("config.server_config", tests, NULL, NULL);
    unlink(file_path);
    return rc;
}
