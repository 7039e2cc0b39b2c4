/* torchserve/settings/torchserve_config_test.c - tests torchserve's flags, files and variables, and
 * which options they become. */
#include "torchserve/settings/torchserve_config.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "config/server/server_options.h"
#include "config/test_support.h"
#include "core/test_support.h"
#include "torchserve/settings/torchserve_models.h"

static char dir[TEST_DIR_MAX], all_warnings[8192];

static void
keep_all(void *ctx, const char *line)
{
    size_t len = strlen(all_warnings);

    (void)ctx;
    snprintf(all_warnings + len, sizeof(all_warnings) - len, "%s\n", line);
}

static void
write_file(const char *name, const char *text)
{
    test_dir_write(dir, name, text);
}

/* `flags` and `environment`: words with '|' between them. */
static int
load(const char *flags, const char *environment, struct cn_server_config *config,
     struct cn_error *err)
{
    char *argv[32] = {(char *)(uintptr_t) "torchserve"}, *envp[32] = {NULL};
    char flag_text[1024], env_text[1024], *rest = flag_text;
    struct cn_torchserve_command command;
    int argc = 1, n = 0, rc;

    snprintf(flag_text, sizeof(flag_text), "%s", flags);
    snprintf(env_text, sizeof(env_text), "%s", environment);
    while (flags[0] && rest != NULL)
        argv[argc++] = strsep(&rest, "|");
    rest = env_text;
    while (environment[0] && rest != NULL)
        envp[n++] = strsep(&rest, "|");
    all_warnings[0] = '\0';
    rc = cn_torchserve_command_parse(argc, argv, &command, err);
    if (rc != 0)
        return rc;
    rc = cn_torchserve_config_load(&command, envp, config, keep_all, NULL, err);
    cn_torchserve_command_fini(&command);
    return rc;
}

static void
good(const char *flags, const char *environment, struct cn_server_config *config)
{
    struct cn_error err = {0};

    if (load(flags, environment, config, &err) != 0)
        fail_msg("%s", err.message);
}

static void
stops(const char *flags, const char *environment, int code, const char *message)
{
    struct cn_server_config config;
    struct cn_error err = {0};

    assert_int_equal(load(flags, environment, &config, &err), code);
    assert_contains(err.message, message);
}

static int
set_up(void **state)
{
    (void)state;
    test_dir_make(dir);
    assert_int_equal(chdir(dir), 0);
    return mkdir("store", 0700);
}

static int
tear_down(void **state)
{
    (void)state;
    assert_int_equal(chdir("/"), 0);
    return test_dir_remove(dir);
}

/* --- the command line */

static void
both_spellings_say_the_same(void **state)
{
    static const char *const lines[] = {
        "--start|--ncs|--model-store|store|--models|a=a.mar|b.mar",
        "--start|--no-config-snapshots|--model-store=store|--models=a=a.mar,b.mar",
        "--ncs|--model-s|store|--models|a=a.mar,b.mar"};
    struct cn_server_config config;

    (void)state;
    for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
        good(lines[i], "", &config);
        assert_string_equal(config.model_store, "store");
        assert_int_equal(config.n_models, 2);
        assert_string_equal(config.models[0].name, "a");
        assert_string_equal(config.models[0].file, "a.mar");
        assert_null(config.models[1].name);
        assert_string_equal(config.models[1].file, "b.mar");
        assert_null(config.snapshot_dir);
        cn_server_config_fini(&config);
    }
}

/* The messages are those of Python's argparse, because wrappers show them to people. */
static void
a_wrong_command_line_is_a_usage_error(void **state)
{
    (void)state;
    stops("--model|store", "", CN_E_BAD_REQUEST,
          "ambiguous option: --model could match --model-store, --models");
    stops("--modelstore|x", "", CN_E_BAD_REQUEST, "unrecognized arguments: --modelstore");
    stops("extra", "", CN_E_BAD_REQUEST, "unrecognized arguments: extra");
    stops("--start|--stop", "", CN_E_BAD_REQUEST,
          "argument --stop: not allowed with argument --start");
    stops("--model-store", "", CN_E_BAD_REQUEST, "argument --model-store: expected one argument");
    stops("--models|--start", "", CN_E_BAD_REQUEST, "expected at least one argument");
    stops("--start=yes", "", CN_E_BAD_REQUEST, "argument --start: ignored explicit argument 'yes'");
}

static void
what_is_missing_stops_with_torchserves_words(void **state)
{
    (void)state;
    stops("--start", "", CN_E_CONFIG, "Missing mandatory parameter --model-store");
    stops("--model-store|gone", "", CN_E_CONFIG, "--model-store directory not found: gone");
    stops("--model-store|store|--workflow-store|gone", "", CN_E_CONFIG,
          "--workflow-store directory not found: gone");
    stops("--model-store|store|--ts-config|gone", "", CN_E_CONFIG,
          "--ts-config file not found: gone");
    stops("--model-store|store", "TS_CONFIG_FILE=away", CN_E_CONFIG,
          "--ts-config file not found: away");
    stops("--model-store|store|--log-config|gone", "", CN_E_CONFIG,
          "--log-config file not found: gone");
    stops("--model-store|store|--cpp-log-config|gone", "", CN_E_CONFIG,
          "--cpp-log-config file not found: gone");
}

/* --- the file */

/* Each key, with a value that is not its default, becomes its option. */
static void
keys_become_options(void **state)
{
    struct cn_server_config config;

    (void)state;
    write_file("config.properties", "inference_address=http://0.0.0.0:8085\n"
                                    "management_address=https://h\n"
                                    "metrics_address=unix:/tmp/m\n"
                                    "enable_grpc_ssl=true\n"
                                    "grpc_inference_address=0.0.0.0\n"
                                    "grpc_management_address=::1\n"
                                    "grpc_management_port=9001\n"
                                    "model_store=store\n"
                                    "load_models=a=a.mar, b.mar\n"
                                    "default_workers_per_model=3\n"
                                    "default_response_timeout=7\n"
                                    "default_startup_timeout=8\n"
                                    "job_queue_size=9 \n"
                                    "metrics_mode=legacy\n"
                                    "metric_time_interval=30\n"
                                    "metrics_config=metrics.yaml\n"
                                    "model_metrics_auto_detect=true\n"
                                    "disable_system_metrics=true\n"
                                    "max_request_size=10000\n"
                                    "max_response_size=20000\n"
                                    "default_service_handler=h.lua\n"
                                    "enable_model_api=TRUE\n"
                                    "disable_token_authorization=true\n"
                                    "token_expiration_min=0.5\n"
                                    "service_envelope=kserve\n"
                                    "cors_allowed_origin=https://app.example\n"
                                    "cors_allowed_methods=GET, POST\n"
                                    "cors_allowed_headers=content-type\n"
                                    "continuo.torchserve-errors=false\n"
                                    "continuo.state-dir=elsewhere\n");
    good("", "", &config);
    assert_string_equal(config.inference_address, "http://0.0.0.0:8085");
    assert_string_equal(config.management_address, "https://h:8444");
    assert_string_equal(config.metrics_address, "unix:/tmp/m");
    assert_string_equal(config.grpc_inference_address, "https://0.0.0.0:7070");
    assert_string_equal(config.grpc_management_address, "https://[::1]:9001");
    assert_int_equal(config.n_models, 2);
    assert_string_equal(config.models[1].file, "b.mar");
    assert_int_equal(config.default_workers, 3);
    assert_int_equal(config.startup_workers, 0);
    assert_int_equal(config.response_timeout_s, 7);
    assert_int_equal(config.startup_timeout_s, 8);
    assert_int_equal(config.job_queue_size, 9);
    assert_int_equal(config.metrics_mode, 2);
    assert_int_equal(config.system_metrics_interval_s, 30);
    assert_string_equal(config.metrics_config, "metrics.yaml");
    assert_true(config.metrics_auto_detect);
    assert_true(config.disable_system_metrics);
    assert_int_equal(config.max_request_bytes, 10000);
    assert_int_equal(config.max_response_bytes, 20000);
    assert_string_equal(config.default_handler, "h.lua");
    assert_true(config.model_api);
    assert_false(config.token_auth);
    assert_int_equal(config.token_lifetime_ms, 30000);
    assert_string_equal(config.service_envelope, "kserve");
    assert_string_equal(config.cors_allowed_origin, "https://app.example");
    assert_string_equal(config.cors_allowed_methods, "GET, POST");
    assert_string_equal(config.cors_allowed_headers, "content-type");
    assert_false(config.torchserve_errors);
    assert_string_equal(config.state_dir, "elsewhere");
    assert_string_equal(all_warnings, "");
    cn_server_config_fini(&config);
    assert_int_equal(unlink("config.properties"), 0);
}

static void
interfaces_keys_become_options(void **state)
{
    struct cn_server_config config;

    (void)state;
    write_file("c", "model_store=store\nservice_envelope=kserve\ncertificate_file=c.pem\n"
                    "private_key_file=k.pem\nkeystore=s.p12\nkeystore_pass=secret\n"
                    "cors_allowed_origin=*\ncors_allowed_methods=GET, POST\n"
                    "cors_allowed_headers=X-A\nkeystore_type=JKS\n");
    good("--ts-config|c", "", &config);
    assert_string_equal(config.service_envelope, "kserve");
    assert_string_equal(config.certificate_file, "c.pem");
    assert_string_equal(config.private_key_file, "k.pem");
    assert_string_equal(config.keystore, "s.p12");
    assert_string_equal(config.keystore_password, "secret");
    assert_string_equal(config.cors_allowed_origin, "*");
    assert_string_equal(config.cors_allowed_methods, "GET, POST");
    assert_string_equal(config.cors_allowed_headers, "X-A");
    assert_contains(all_warnings, "c:10: keystore_type has no effect: keystores must be PKCS12");
    assert_true(config.torchserve_errors);
    cn_server_config_fini(&config);
}

/* What the file does not set has TorchServe's default, and not that of the program continuo. */
static void
torchserves_defaults_hold(void **state)
{
    struct cn_server_config config;

    (void)state;
    good("--model-store|store", "", &config);
    assert_int_equal(config.job_queue_size, 100);
    assert_int_equal(config.max_response_bytes, 6553500);
    assert_int_equal(config.default_workers, 0);
    assert_true(config.startup_workers > 0); /* one for each processor */
    assert_false(config.model_api);
    assert_true(config.torchserve_errors);
    assert_int_equal(config.sequence_on_expired, CN_EXPIRED_RESTART);
    assert_true(config.token_auth);
    assert_int_equal(config.token_lifetime_ms, 3600000);
    assert_string_equal(config.token_file, "key_file.json");
    cn_server_config_fini(&config);
}

/* Each of these keys causes one line that names the file and the line. A value that would change
 * nothing causes none. */
static void
keys_without_effect_are_explained(void **state)
{
    struct cn_server_config config;

    (void)state;
    write_file("c", "model_store=store\nuse_native_io=true\nvmargs=-Xmx1g\nio_ratio=70\n"
                    "number_of_netty_threads=4\nmax_reqest_size=1\nfoo=1\ncontinuo.lops=1\n"
                    "metrics_format=prometheus\n");
    good("--ts-config|c", "", &config);
    assert_null(strstr(all_warnings, "use_native_io"));
    assert_null(strstr(all_warnings, "vmargs"));
    assert_contains(all_warnings, "c:4: io_ratio has no effect: the server does not use Netty\n");
    assert_contains(all_warnings, "c:5: number_of_netty_threads has no effect: ");
    assert_contains(all_warnings,
                    "c:6: max_reqest_size is not a known key (did you mean max_request_size?)\n");
    assert_contains(all_warnings, "c:7: foo is not a known key\n");
    assert_contains(all_warnings, "c:8: continuo.lops is not a known key");
    assert_null(
        strstr(all_warnings, "metrics_format")); /* of older TorchServes, and of KServe's files */
    cn_server_config_fini(&config);
}

static void
wrong_values_stop_with_file_line_and_key(void **state)
{
    (void)state;
    write_file("c", "model_store=store\njob_queue_size=many\n");
    stops("--ts-config|c", "", CN_E_CONFIG, "c:2: job_queue_size: expected an integer from 1");
    write_file("c", "model_store=store\ninference_address=8080\n");
    stops("--ts-config|c", "", CN_E_CONFIG, "c:2: inference_address: the address \"8080\"");
    write_file("c", "model_store=store\ntoken_expiration_min=soon\n");
    stops("--ts-config|c", "", CN_E_CONFIG,
          "c:2: token_expiration_min: expected a number of minutes");
    write_file("c", "model_store=store\nmodels={\n");
    stops("--ts-config|c", "", CN_E_CONFIG, "c:2: models: the value is not valid JSON");
    write_file("c", "model_store=store\nmodels={\"m\": 1}\n");
    stops("--ts-config|c", "", CN_E_CONFIG, "c:2: models: model m: expected");
    write_file("c", "model_store=$$CN_NOWHERE$$\n");
    stops("--ts-config|c", "", CN_E_CONFIG, "Invalid Environment Variable CN_NOWHERE");
    write_file("c", "model_store=store\nmodel_snapshot={\"models\":{\"m\":{\"1\":{}}}}\n");
    stops("--ts-config|c", "", CN_E_CONFIG,
          "c:2: model_snapshot: model m version 1 has no marName");
}

static void
variables_between_dollars_are_replaced(void **state)
{
    struct cn_server_config config;

    (void)state;
    write_file("c", "model_store=$$BASE$$re\nload_models=$$A$$=$$B$$.mar\n");
    good("--ts-config|c", "BASE=sto|A=x|B=y", &config);
    assert_string_equal(config.model_store, "store");
    assert_string_equal(config.models[0].name, "x");
    assert_string_equal(config.models[0].file, "y.mar");
    cn_server_config_fini(&config);
}

/* --- who wins */

static void
the_environment_beats_flags_and_flags_beat_the_file(void **state)
{
    struct cn_server_config config;

    (void)state;
    write_file("c", "enable_envvars_config=true\nmodel_store=gone\nload_models=file.mar\n"
                    "job_queue_size=1\n");
    good("--ts-config|c|--model-store|store|--models|flag.mar",
         "TS_LOAD_MODELS=env.mar|TS_JOB_QUEUE_SIZE=5|TS_MAX_REQUEST_SIZE=", &config);
    assert_string_equal(config.model_store, "store");
    assert_string_equal(config.models[0].file, "env.mar");
    assert_int_equal(config.job_queue_size, 5);
    cn_server_config_fini(&config);
    good("--ts-config|c|--model-store|store", "TS_JOB_QUEUE_SIZE=5|CONTINUO_JOB_QUEUE_SIZE=6",
         &config);
    assert_int_equal(config.job_queue_size, 6);
    cn_server_config_fini(&config);
}

static void
ts_variables_count_only_where_the_file_allows_them(void **state)
{
    struct cn_server_config config;

    (void)state;
    write_file("c", "model_store=store\nload_models=file.mar\n");
    good("--ts-config|c", "TS_LOAD_MODELS=env.mar|TS_ENABLE_MODEL_API=true", &config);
    assert_string_equal(config.models[0].file, "file.mar");
    assert_false(config.model_api);
    cn_server_config_fini(&config);
}

static void
allowed_urls_from_the_environment_need_their_own_word(void **state)
{
    struct cn_server_config config;

    (void)state;
    write_file("c", "model_store=store\nenable_envvars_config=true\nallowed_urls=a\n");
    good("--ts-config|c", "TS_ALLOWED_URLS=b", &config);
    assert_string_equal(config.allowed_urls, "a");
    cn_server_config_fini(&config);
    write_file("c", "model_store=store\nenable_envvars_config=true\nallowed_urls=a\n"
                    "use_env_allowed_urls=true\n");
    good("--ts-config|c", "TS_ALLOWED_URLS=b", &config);
    assert_string_equal(config.allowed_urls, "b");
    cn_server_config_fini(&config);
}

static void
ts_config_file_beats_the_flag(void **state)
{
    struct cn_server_config config;

    (void)state;
    write_file("c", "model_store=store\njob_queue_size=1\n");
    write_file("d", "model_store=store\njob_queue_size=2\n");
    good("--ts-config|c", "TS_CONFIG_FILE=d", &config);
    assert_int_equal(config.job_queue_size, 2);
    cn_server_config_fini(&config);
}

/* --- models and snapshots */

static void
models_json_tunes_single_versions(void **state)
{
    struct cn_server_config config;
    const struct cn_model_settings *s;

    (void)state;
    write_file("c", "model_store=store\n"
                    "models={\\\n"
                    "  \"noop\": {\\\n"
                    "    \"1.0\": {\\\n"
                    "        \"defaultVersion\": true,\\\n"
                    "        \"marName\": \"noop.mar\",\\\n"
                    "        \"minWorkers\": 1,\\\n"
                    "        \"maxWorkers\": 2,\\\n"
                    "        \"batchSize\": 4,\\\n"
                    "        \"maxBatchDelay\": \"100\",\\\n"
                    "        \"responseTimeout\": 0\\\n"
                    "    }\\\n"
                    "  }\\\n"
                    "}\n");
    good("--ts-config|c", "", &config);
    assert_int_equal(config.n_settings, 1);
    s = &config.settings[0];
    assert_string_equal(s->name, "noop");
    assert_string_equal(s->version, "1.0");
    assert_string_equal(s->mar_name, "noop.mar");
    assert_true(s->is_default);
    assert_int_equal(s->min_workers, 1);
    assert_int_equal(s->max_workers, 2);
    assert_int_equal(s->batch_size, 4);
    assert_int_equal(s->max_batch_delay_ms, -1); /* the wrong type */
    assert_int_equal(s->response_timeout_s, -1); /* not above 0 */
    assert_int_equal(s->startup_timeout_s, -1);
    cn_server_config_fini(&config);
}

/* If no file is named, the newest snapshot is read. The file in this folder is read only if there
 * is no snapshot, or with --ncs. */
static void
the_newest_snapshot_is_the_default_file(void **state)
{
    static const char snapshot[] =
        "model_store=store\nload_models=x.mar\njob_queue_size=%d\n"
        "model_snapshot={\"name\":\"n\",\"modelCount\":1,\"created\":1,\"models\":{\"m\":{\"1.0\":"
        "{\"defaultVersion\":true,\"marName\":\"m.mar\",\"minWorkers\":0,\"maxWorkers\":0,"
        "\"batchSize\":1,\"maxBatchDelay\":100,\"responseTimeout\":120,\"startupTimeout\":120,"
        "\"runtimeType\":\"python\"}}}}\n";
    struct cn_server_config config;
    char text[1024];

    (void)state;
    assert_int_equal(system("mkdir -p logs/config other/config"), 0);
    write_file("config.properties", "model_store=store\njob_queue_size=1\n");
    snprintf(text, sizeof(text), snapshot, 2);
    write_file("logs/config/20260101000000000-startup.cfg", text);
    snprintf(text, sizeof(text), snapshot, 3);
    write_file("logs/config/20260101000000001-shutdown.cfg", text);
    write_file("logs/config/20990101000000001-shutdown.cfg.new", text);
    write_file("logs/config/zz.cfg", text);
    good("--start", "", &config);
    assert_int_equal(config.job_queue_size, 3);
    assert_int_equal(config.n_models, 0);
    assert_int_equal(config.n_restored, 1);
    assert_string_equal(config.restored[0].mar_name, "m.mar");
    assert_int_equal(config.restored[0].min_workers, 0);
    assert_string_equal(config.snapshot_dir, "logs/config");
    assert_contains(config.snapshot_text, "job_queue_size=3\n");
    assert_null(strstr(config.snapshot_text, "model_snapshot"));
    cn_server_config_fini(&config);
    good("--ncs", "", &config);
    assert_int_equal(config.job_queue_size, 1);
    assert_null(config.snapshot_dir);
    cn_server_config_fini(&config);
    good("--start", "LOG_LOCATION=other", &config);
    assert_int_equal(config.job_queue_size, 1);
    assert_string_equal(config.snapshot_dir, "other/config");
    cn_server_config_fini(&config);
    assert_int_equal(system("rm -r logs config.properties"), 0);
}

/* A client chose the names in a snapshot, so no variable's value may come into them. */
static void
a_snapshots_names_are_taken_as_they_are(void **state)
{
    struct cn_server_config config;

    (void)state;
    write_file("c", "model_store=store\n"
                    "model_snapshot={\"name\":\"n\",\"modelCount\":1,\"created\":1,\"models\":{"
                    "\"a$$HOME$$b$$CN_NOWHERE$$\":{\"1.0\":{\"defaultVersion\":true,"
                    "\"marName\":\"m.mar\",\"minWorkers\":0,\"maxWorkers\":0,\"batchSize\":1,"
                    "\"maxBatchDelay\":100,\"responseTimeout\":120,\"startupTimeout\":120}}}}\n");
    good("--ts-config|c", "HOME=/somewhere", &config);
    assert_int_equal(config.n_restored, 1);
    assert_string_equal(config.restored[0].name, "a$$HOME$$b$$CN_NOWHERE$$");
    cn_server_config_fini(&config);
}

/* Log files are in logs/, or where the variables say; our own options override both. If the folder
 * cannot be written, the server says so. */
static void
log_files_lie_where_torchserves_do(void **state)
{
    struct cn_server_config config;

    (void)state;
    write_file("c", "model_store=store\n");
    good("--ts-config|c", "", &config);
    assert_string_equal(config.log_dir, "logs");
    assert_null(config.metrics_log_dir);
    cn_server_config_fini(&config);
    good("--ts-config|c", "LOG_LOCATION=a/b|METRICS_LOCATION=m", &config);
    assert_string_equal(config.log_dir, "a/b");
    assert_string_equal(config.metrics_log_dir, "m");
    assert_string_equal(all_warnings, "");
    cn_server_config_fini(&config);
    good("--ts-config|c", "LOG_LOCATION=c/b", &config);
    assert_null(config.log_dir);
    assert_string_equal(all_warnings,
                        "c/b cannot be written, so the logs go to the standard output only\n");
    cn_server_config_fini(&config);
    good("--ts-config|c", "METRICS_LOCATION=c", &config);
    assert_null(config.log_dir);
    assert_null(config.metrics_log_dir);
    cn_server_config_fini(&config);
    write_file("c", "model_store=store\ncontinuo.log-dir=/own\n");
    good("--ts-config|c", "LOG_LOCATION=c/b", &config);
    assert_string_equal(config.log_dir, "/own");
    cn_server_config_fini(&config);
    assert_int_equal(unlink("c"), 0);
}

/* The tables fit together: no flag sets a key that properties.def does not know, and no key sets an
 * unknown option. */
static void
tables_know_each_other(void **state)
{
    static const struct {
        const char *flag, *key;
    } flags[] = {
#define CN_TORCHSERVE_FLAG(id, flag, other, kind, key, arg, help) {flag, key},
#include "torchserve/settings/torchserve_flags.def"
#undef CN_TORCHSERVE_FLAG
    };
    static const struct {
        const char *key, *option;
    } keys[] = {
#define CN_PROPERTY(key, kind, env, otherwise, flag, text) {key, flag},
#include "torchserve/settings/properties.def"
#undef CN_PROPERTY
    };

    (void)state;
    for (size_t i = 0; i < sizeof(flags) / sizeof(flags[0]); i++) {
        bool known = flags[i].key[0] == '\0';

        for (size_t k = 0; k < sizeof(keys) / sizeof(keys[0]); k++)
            known = known || strcmp(keys[k].key, flags[i].key) == 0;
        if (!known)
            fail_msg("%s sets %s, which properties.def does not have", flags[i].flag, flags[i].key);
    }
    for (size_t k = 0; k < sizeof(keys) / sizeof(keys[0]); k++) {
        if (keys[k].option[0] && cn_option_find(cn_str_from(keys[k].option)) == NULL)
            fail_msg("%s sets --%s, which server_options.def does not have", keys[k].key,
                     keys[k].option);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_spellings_say_the_same),
        cmocka_unit_test(a_wrong_command_line_is_a_usage_error),
        cmocka_unit_test(what_is_missing_stops_with_torchserves_words),
        cmocka_unit_test(keys_become_options),
        cmocka_unit_test(interfaces_keys_become_options),
        cmocka_unit_test(torchserves_defaults_hold),
        cmocka_unit_test(keys_without_effect_are_explained),
        cmocka_unit_test(wrong_values_stop_with_file_line_and_key),
        cmocka_unit_test(variables_between_dollars_are_replaced),
        cmocka_unit_test(the_environment_beats_flags_and_flags_beat_the_file),
        cmocka_unit_test(ts_variables_count_only_where_the_file_allows_them),
        cmocka_unit_test(allowed_urls_from_the_environment_need_their_own_word),
        cmocka_unit_test(ts_config_file_beats_the_flag),
        cmocka_unit_test(models_json_tunes_single_versions),
        cmocka_unit_test(the_newest_snapshot_is_the_default_file),
        cmocka_unit_test(a_snapshots_names_are_taken_as_they_are),
        cmocka_unit_test(log_files_lie_where_torchserves_do),
        cmocka_unit_test(tables_know_each_other),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
