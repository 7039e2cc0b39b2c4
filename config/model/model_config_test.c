/* config/model/model_config_test.c - tests which keys of a model's YAML are accepted, which cause a
 * warning, and which stop the load. */
#include "config/model/model_config.h"

#include <stdlib.h>
#include <unistd.h>

#include "config/model/replicas.h"
#include "config/test_support.h"

static int
apply(const char *text, struct cn_model_config *config, struct warnings *warnings,
      struct cn_error *err)
{
    struct cn_yaml_doc *doc = NULL;
    int rc = cn_yaml_parse("m.yaml", cn_str_from(text), &doc, err);

    if (rc != 0)
        return rc;
    memset(warnings, 0, sizeof(*warnings));
    cn_model_config_init(config);
    rc = cn_model_config_apply(config, doc, keep_warning, warnings, err);
    cn_yaml_destroy(doc);
    return rc;
}

/* Expects a warning with this text, or no warning if `message` is NULL. */
static void
warns(const char *text, const char *message)
{
    struct cn_model_config config;
    struct warnings warnings;
    struct cn_error err = {0};

    if (apply(text, &config, &warnings, &err) != 0)
        fail_msg("%s", err.message);
    assert_int_equal(warnings.n, message != NULL);
    if (message != NULL)
        assert_contains(warnings.last, message);
}

static void
stops(const char *text, const char *message)
{
    struct cn_model_config config;
    struct warnings warnings;
    struct cn_error err = {0};

    assert_int_equal(apply(text, &config, &warnings, &err), CN_E_CONFIG);
    assert_contains(err.message, message);
}

/* The keys of a real archive for TorchServe, and ours in their maps. */
static void
known_keys_are_taken(void **state)
{
    struct cn_model_config config;
    struct warnings warnings;
    struct cn_error err = {0};

    (void)state;
    assert_int_equal(apply("minWorkers: 2\nmaxWorkers: 4\nbatchSize: 8\nmaxBatchDelay: 0\n"
                           "sequenceBatching: true\nsequenceMaxIdleMSec: 5000\n"
                           "sequence:\n  implicitStart: false\n"
                           "state:\n  durability: power\n  maxBytes: 4096\n"
                           "handler:\n  profile: true\n  cache:\n    capacity: 4\n    x: [1]\n"
                           "  limits:\n    memoryBytes: 1048576\n",
                           &config, &warnings, &err),
                     0);
    assert_int_equal(warnings.n, 0);
    assert_int_equal(config.min_workers, 2);
    assert_int_equal(config.max_workers, 4);
    assert_int_equal(config.batch_size, 8);
    assert_true(config.sequence_batching);
    assert_int_equal(config.sequence_max_idle_ms, 5000);
    assert_false(config.sequence_implicit_start);
    assert_int_equal(config.durability, CN_DURABILITY_POWER);
    assert_int_equal(config.state_max_bytes, 4096);
    assert_int_equal(config.cache_entries, 4);
    assert_int_equal(config.memory_max_bytes, 1048576);
    assert_int_equal(config.response_timeout_s, 120);
}

/* A typo must not silently do nothing. */
static void
unknown_scalars_warn_with_the_nearest_name(void **state)
{
    (void)state;
    warns("\nminWorker: 2\n", "m.yaml:2:1: unknown key minWorker (did you mean minWorkers?)");
    warns("colour: red\n", "m.yaml:1:1: unknown key colour; only the handler can use it");
    warns("colours: [red]\n", "m.yaml:1:1: unknown key colours;");
    warns("state:\n  durabilty: none\n",
          "m.yaml:2:3: unknown key state.durabilty (did you mean state.durability?)");
    warns("min.Workers: 2\n", "unknown key min.Workers");
    warns("\"minWorkers\\0\": 2\n", "unknown key minWorkers?");
    warns("state.durability: none\n", "unknown key state.durability");
}

/* Maps with other names belong to the handler, as in TorchServe. */
static void
maps_and_handler_keys_are_the_handlers(void **state)
{
    (void)state;
    warns("pt2:\n  compile: {enable: true}\n", NULL);
    warns("handler:\n  minWorker: 5\n  limits: none\n", NULL);
    warns("handler: text\n", NULL);
    warns("handler:\nstate:\n", NULL);
}

/* An archive for TorchServe runs here. A key that has another effect is reported once. */
static void
torchserves_other_keys_are_explained(void **state)
{
    (void)state;
    warns("deviceType: cpu\nuseVenv: false\nparallelLevel: 0\n", NULL);
    warns("deviceType: gpu\n",
          "m.yaml:1:1: deviceType has no effect here: handlers in Lua and C get no GPU; models of "
          "TorchScript and ONNX and handlers in Python follow this key");
    warns("deviceIds: [0, 1]\n", "deviceIds has no effect here");
    warns("torchrun:\n  nproc-per-node: 2\n", "torchrun has no effect here");
    warns("useJobTicket: true\nclientTimeoutInMills: 5\n", NULL);
    warns("parallelType: custom\nparallelLevel: 4\n",
          "parallelLevel has no effect here: a worker is one process");
}

/* The YAML does not tell what kind of model it belongs to. */
static void
only_some_handlers_get_no_gpu(void **state)
{
    const char *line = "m.yaml:1:1: deviceType has no effect here: why";

    (void)state;
    assert_true(cn_model_config_warning_concerns(line, "lua"));
    assert_true(cn_model_config_warning_concerns("m.yaml:2:1: deviceIds has no effect here", "c"));
    assert_false(cn_model_config_warning_concerns(line, "python"));
    assert_false(cn_model_config_warning_concerns(line, "torch"));
    assert_true(cn_model_config_warning_concerns("m.yaml:1:1: unknown key deviceTyp", "torch"));
}

/* A worker is one process, so a model that needs several must not be served by one of them. */
static void
parallel_types_that_need_torchrun_stop(void **state)
{
    struct cn_model_config config;

    (void)state;
    warns("parallelType: custom\n", NULL);
    warns("parallelType: \"\"\n", NULL);
    stops("parallelType: tp\n", "m.yaml:1:15: parallelType: expected custom, because pp, tp and "
                                "pptp need several processes for one worker, and a worker here is "
                                "one process, found the word \"tp\"");
    stops("parallelType: pp\n", "found the word \"pp\"");
    stops("parallelType: pptp\n", "found the word \"pptp\"");
    stops("parallelType: 2\n", "found 2");
    cn_model_config_init(&config);
    assert_string_equal(cn_parallel_word(config.parallel), "");
}

/* The message has the line and column of the value, what was expected, and what was found. */
static void
wrong_types_and_ranges_stop(void **state)
{
    (void)state;
    stops("a: {}\nminWorkers: many\n",
          "m.yaml:2:13: minWorkers: expected an integer from 0 to 1024,"
          " found the word \"many\"");
    stops("minWorkers: \"2\"\n", "m.yaml:1:13: minWorkers: expected an integer");
    stops("minWorkers: 1_0\n", "found the word \"1_0\"");
    stops("minWorkers: 1.0\n", "found 1.0");
    stops("minWorkers: -1\n", "found -1");
    stops("minWorkers: 2000\n", "from 0 to 1024, found 2000");
    stops("minWorkers: 99999999999999999999\n", "found 99999999999999999999");
    stops("minWorkers:\n", "m.yaml:1:12: minWorkers: expected an integer from 0 to 1024, found"
                           " nothing");
    stops("sequenceBatching: yes\n", "expected true or false, found the word \"yes\"");
    stops("state:\n  durability: often\n", "m.yaml:2:15: state.durability: expected none, process "
                                           "or power");
    stops("state: power\n", "m.yaml:1:8: state: expected a map of settings");
    stops("handler:\n  cache:\n    capacity: lots\n", "m.yaml:3:15: handler.cache.capacity");
    stops("[1]\n", "m.yaml:1:1: the document: expected a map of settings, found a list");
}

/* Values may be valid one by one and yet not fit together. */
static void
fields_must_fit_together(void **state)
{
    struct cn_model_config config;
    struct cn_error err = {0};

    (void)state;
    cn_model_config_init(&config);
    assert_int_equal(cn_model_config_check(&config, &err), 0);
    config.min_workers = 2;
    config.max_workers = 1;
    assert_int_equal(cn_model_config_check(&config, &err), CN_E_CONFIG);
    assert_contains(err.message, "maxWorkers 1 is below minWorkers 2");
    cn_model_config_init(&config);
    config.state_max_bytes = 1 << 30;
    config.store_max_bytes = 1 << 20;
    assert_int_equal(cn_model_config_check(&config, &err), CN_E_CONFIG);
    assert_contains(err.message, "state.storeMaxBytes");
}

static void
applies_replicas(const char *yaml, int rc, uint32_t replicas)
{
    struct cn_model_config config;
    struct cn_yaml_doc *doc;
    struct cn_error err = {0};

    cn_model_config_init(&config);
    assert_int_equal(cn_yaml_parse("m.yaml", cn_str_from(yaml), &doc, &err), 0);
    assert_int_equal(cn_model_config_apply(&config, doc, NULL, NULL, &err), rc);
    cn_yaml_destroy(doc);
    assert_int_equal(config.store_replicas, replicas);
    if (rc)
        assert_contains(err.message, "state.replicas: expected an integer from 0 to 16, or all");
}

static void
replicas_are_a_number_or_all(void **state)
{
    (void)state;
    applies_replicas("state: {replicas: 2}", 0, 2);
    applies_replicas("state: {replicas: all}", 0, CN_REPLICAS_ALL);
    applies_replicas("state: {replicas: 17}", CN_E_CONFIG, 0);
    applies_replicas("state: {replicas: -1}", CN_E_CONFIG, 0);
    applies_replicas("state: {replicas: every}", CN_E_CONFIG, 0);
    applies_replicas("state: {replicas: [1]}", CN_E_CONFIG, 0);
}

static void
refuses_all(struct cn_model_config *config, const char *url, bool whole, const char *why)
{
    struct cn_error err = {0};

    assert_int_equal(cn_state_store_text_set(&config->state_store, cn_str_from(url), &err), 0);
    assert_int_equal(cn_replicas_check(config, whole, &err), why ? CN_E_CONFIG : 0);
    if (!why)
        return;
    assert_contains(err.message, why);
    assert_contains(err.message, "state.replicas is all");
    assert_contains(err.message, "valkey+sentinel://");
}

/* Without Sentinels nobody says which replicas may become the primary. */
static void
all_replicas_need_sentinels(void **state)
{
    struct cn_model_config config;

    (void)state;
    cn_model_config_init(&config);
    config.store_replicas = CN_REPLICAS_ALL;
    refuses_all(&config, "valkey://a", true, NULL); /* the model has no states */
    config.sequence_batching = true;
    refuses_all(&config, "valkey+sentinel://a,b,c/mymaster", true, NULL);
    refuses_all(&config, "rediss+sentinel://:secret@a/mymaster", true, NULL);
    refuses_all(&config, "valkey://:secret@a", true, "names no Sentinels");
    refuses_all(&config, "valkey://a,b", false, "names no Sentinels");
    refuses_all(&config, "valkey+cluster://a,b", true, "in a cluster");
    refuses_all(&config, "embedded", true, "the embedded store");
    refuses_all(&config, "embedded", false, NULL); /* the server may name a store */
    config.durability = CN_DURABILITY_NONE;
    refuses_all(&config, "valkey+sentinel://a,b,c/mymaster", true, "in memory only");
}

/* If a file is read from a temporary folder, messages name it as its author knows it. */
static void
a_file_is_loaded_under_the_name_given(void **state)
{
    char path[] = "/tmp/cn-model-XXXXXX";
    struct cn_model_config config;
    struct warnings warnings = {0};
    struct cn_error err = {0};
    int fd = mkstemp(path);

    (void)state;
    assert_int_equal(write(fd, "minWorkers: 3\nmaxWorkers: 2\n", 28), 28);
    close(fd);
    cn_model_config_init(&config);
    assert_int_equal(cn_model_config_load(&config, path, "model-config.yaml", true, keep_warning,
                                          &warnings, &err),
                     CN_E_CONFIG);
    assert_string_equal(err.message, "model-config.yaml: maxWorkers 2 is below minWorkers 3; raise "
                                     "it or leave it out");
    unlink(path);
}

/* Words are turned into values and back. */
static void
durability_words_go_both_ways(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++)
        assert_int_equal(cn_durability_parse(cn_str_from(cn_durability_word(i))), i);
    assert_int_equal(cn_durability_parse(CN_STR("Process")), -1);
}

/* Triton's users write names with underscores. A setting that is given in both spellings is
 * refused. */
static void
names_may_have_underscores(void **state)
{
    struct cn_model_config config;
    struct cn_yaml_doc *doc;
    struct cn_error err;

    (void)state;
    assert_int_equal(cn_yaml_parse("m.yaml",
                                   CN_STR("batch_size: 7\nsequence_max_idle_msec: 5\n"
                                          "sequence: {implicit_start: false}\n"),
                                   &doc, NULL),
                     0);
    cn_model_config_init(&config);
    assert_int_equal(cn_model_config_apply(&config, doc, NULL, NULL, &err), 0);
    cn_yaml_destroy(doc);
    assert_int_equal(config.batch_size, 7);
    assert_int_equal(config.sequence_max_idle_ms, 5);
    assert_false(config.sequence_implicit_start);
    assert_int_equal(cn_yaml_parse("m.yaml", CN_STR("batchSize: 7\nbatch_size: 8\n"), &doc, NULL),
                     0);
    assert_int_equal(cn_model_config_apply(&config, doc, NULL, NULL, &err), CN_E_CONFIG);
    cn_yaml_destroy(doc);
    assert_string_equal(
        err.message, "m.yaml:2:1: batch_size and batchSize set the same thing; remove one of them");
}

/* Each option must be in the manual. */
static void
the_manual_page_names_every_key(void **state)
{
    char *text = NULL;
    size_t len = 0;
    FILE *out = open_memstream(&text, &len);

    (void)state;
    cn_model_config_man(out);
    fclose(out);
#define CN_MODEL_OPTION(field, c_type, kind, yaml_path, default_, min, max, help)                  \
    assert_contains(text, ".B " yaml_path "\n");
#include "config/model/model_options.def"
#undef CN_MODEL_OPTION
    assert_contains(text, ".B model\\-store\n");
    free(text);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_keys_are_taken),
        cmocka_unit_test(replicas_are_a_number_or_all),
        cmocka_unit_test(all_replicas_need_sentinels),
        cmocka_unit_test(unknown_scalars_warn_with_the_nearest_name),
        cmocka_unit_test(maps_and_handler_keys_are_the_handlers),
        cmocka_unit_test(torchserves_other_keys_are_explained),
        cmocka_unit_test(only_some_handlers_get_no_gpu),
        cmocka_unit_test(parallel_types_that_need_torchrun_stop),
        cmocka_unit_test(wrong_types_and_ranges_stop),
        cmocka_unit_test(fields_must_fit_together),
        cmocka_unit_test(a_file_is_loaded_under_the_name_given),
        cmocka_unit_test(durability_words_go_both_ways),
        cmocka_unit_test(names_may_have_underscores),
        cmocka_unit_test(the_manual_page_names_every_key),
    };
    return cmocka_run_group_tests_name("config.model_config", tests, NULL, NULL);
}
