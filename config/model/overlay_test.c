/* config/model/overlay_test.c - tests a configuration that is laid over an archive's YAML. */
#include "config/model/overlay.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "config/model/batching.h"
#include "config/test_support.h"

#define IO                                                                                         \
    "inputs: [{name: A, dataType: INT32, dims: [1]}]\n"                                            \
    "outputs: [{name: B, dataType: INT32, dims: [1]}]\n"

struct both {
    struct cn_model_config config;
    struct cn_model_io *io;
    struct cn_buf text;
};

static int
lay(const char *below, const char *above, struct cn_buf *out, struct cn_error *err)
{
    struct cn_yaml_doc *docs[2] = {NULL, NULL};
    struct cn_model_config base;
    int rc;

    cn_model_config_init(&base);
    cn_buf_init(out, 0);
    if (below)
        assert_int_equal(cn_yaml_parse("model.yaml", cn_str_from(below), &docs[0], err), 0);
    assert_int_equal(cn_yaml_parse("config", cn_str_from(above), &docs[1], err), 0);
    rc = cn_overlay_write(docs[0], docs[1], "m", &base, out, err);
    cn_yaml_destroy(docs[0]);
    cn_yaml_destroy(docs[1]);
    return rc;
}

static void
both_say(const char *below, const char *above, struct both *both)
{
    struct cn_yaml_doc *doc;
    struct cn_error err = {0};

    if (lay(below, above, &both->text, &err) != 0)
        fail_msg("%s over %s: %s", above, below, err.message);
    assert_int_equal(cn_yaml_parse("both", cn_buf_str(&both->text), &doc, &err), 0);
    cn_model_config_init(&both->config);
    assert_int_equal(cn_model_config_apply(&both->config, doc, NULL, NULL, &err), 0);
    assert_int_equal(cn_model_io_parse(doc, &both->io, &err), 0);
    assert_int_equal(cn_batching_parse(doc, "m", both->io, &err), 0);
    cn_batching_apply(doc, both->io, &both->config);
    cn_yaml_destroy(doc);
}

static void
is_text(const struct both *both, const char *text)
{
    assert_int_equal(both->text.len, strlen(text));
    assert_memory_equal(both->text.data, text, strlen(text));
}

static void
drop(struct both *both)
{
    cn_model_io_unref(both->io);
    cn_buf_fini(&both->text);
}

static void
is_refused(const char *below, const char *above, const char *message)
{
    struct cn_error err = {0};
    struct cn_buf out;

    assert_int_equal(lay(below, above, &out, &err), CN_E_CONFIG);
    assert_string_equal(err.message, message);
    cn_buf_fini(&out);
}

/* A setting that the configuration does not mention stays, in whichever spelling it was given. */
static void
settings_are_laid_one_over_another(void **state)
{
    struct both both;

    (void)state;
    both_say(IO "batchSize: 8\nminWorkers: 3\nmaxWorkers: 5\nhandler: {tokens: 4}\n",
             "{\"input\": [{\"name\": \"X\", \"data_type\": \"TYPE_FP32\", \"dims\": [2]}], "
             "\"batch_size\": 2}",
             &both);
    assert_int_equal(both.config.batch_size, 2);
    assert_int_equal(both.config.min_workers, 3);
    assert_int_equal(both.config.max_workers, 5);
    assert_non_null(cn_model_io_input(both.io, CN_STR("X"), 0));
    assert_null(cn_model_io_input(both.io, CN_STR("A"), 0));
    assert_non_null(cn_model_io_output(both.io, CN_STR("B"), 0));
    cn_buf_append(&both.text, "", 1);
    assert_contains(both.text.data, "\"handler\": {\"tokens\":4}");
    drop(&both);
    both_say(NULL, "{}", &both);
    assert_null(both.io);
    drop(&both);
    both_say("sequenceBatching: true\n" IO, "dynamic_batching: {}", &both);
    assert_false(both.config.sequence_batching);
    assert_int_equal(both.io->batching->kind, CN_BATCHING_DYNAMIC);
    drop(&both);
}

/* Scalars keep their meaning, whatever characters they consist of. */
static void
what_stays_keeps_its_kind(void **state)
{
    static const char text[] = "handler: {a: .inf, b: 0x10, c: \"5\", d: ~, e: true, f: 1.50, g: "
                               "\"x\\u2028\\u0085\\0\\ufeff\\n\\\"\\\\é\"}\n";
    struct cn_yaml_doc *doc;
    const struct cn_yaml *handler;
    struct cn_error err;
    struct cn_buf out;

    (void)state;
    assert_int_equal(lay(text, "batchSize: 2", &out, &err), 0);
    assert_int_equal(cn_yaml_parse("both", cn_buf_str(&out), &doc, &err), 0);
    handler = cn_yaml_get(cn_yaml_root(doc), "handler");
    assert_int_equal(cn_yaml_get(handler, "a")->kind, CN_YAML_FLOAT);
    assert_int_equal(cn_yaml_get(handler, "b")->integer, 16);
    assert_int_equal(cn_yaml_get(handler, "c")->kind, CN_YAML_STRING);
    assert_int_equal(cn_yaml_get(handler, "d")->kind, CN_YAML_NULL);
    assert_true(cn_yaml_get(handler, "e")->boolean);
    assert_true(cn_yaml_get(handler, "f")->number == 1.5);
    assert_true(cn_str_eq(cn_yaml_get(handler, "g")->text,
                          CN_STR("x\xe2\x80\xa8\xc2\x85\0\xef\xbb\xbf\n\"\\\xc3\xa9")));
    cn_yaml_destroy(doc);
    cn_buf_fini(&out);
}

/* The protocol's form cannot express a batch axis, or sequences without slots. Both stay as they
 * were. */
static void
what_was_shown_stays(void **state)
{
    static const char below[] =
        "sequenceBatching: true\nbatchSize: 16\nmaxBatchSize: 16\n" IO
        "state: {durability: power, tensors: [{name: h, dataType: FP32, dims: [2, 4], batchAxis: "
        "1}]}\n";
    static const char shown[] =
        "{\"sequence_batching\": {\"max_sequence_idle_microseconds\": 0, \"control_input\": [], "
        "\"state\": [{\"input_name\": \"h\", \"output_name\": \"h\", \"data_type\": \"TYPE_FP32\", "
        "\"dims\": [2, %s], \"initial_state\": [{\"name\": \"h\", \"data_type\": \"TYPE_FP32\", "
        "\"dims\": [2, %s], \"zero_data\": true}]}], \"oldest\": {\"max_candidate_sequences\": 16, "
        "\"preferred_batch_size\": [16], \"max_queue_delay_microseconds\": %s}}}";
    struct both both;
    char above[1024];

    (void)state;
    snprintf(above, sizeof(above), shown, "4", "4", "\"0\"");
    both_say(below, above, &both);
    assert_null(both.io->batching);
    assert_true(both.config.sequence_batching);
    assert_int_equal(both.config.sequence_max_idle_ms, 0);
    assert_int_equal(both.io->state.items[0].batch_axis, 1);
    drop(&both);

    snprintf(above, sizeof(above), shown, "4", "4", "1000");
    both_say(below, above, &both);
    assert_int_equal(both.io->batching->kind, CN_BATCHING_OLDEST);
    assert_int_equal(both.io->state.items[0].batch_axis, 1);
    drop(&both);

    snprintf(above, sizeof(above), shown, "5", "5", "0");
    both_say(below, above, &both);
    assert_int_equal(both.io->state.n, 1);
    assert_int_equal(both.io->state.items[0].dims[1], 5);
    assert_int_equal(both.io->state.items[0].batch_axis, 0);
    assert_int_equal(both.config.durability, CN_DURABILITY_POWER);
    drop(&both);
}

/* This holds whether the archive declares the states inside the block or beside it. */
static void
states_have_one_place(void **state)
{
    static const char beside[] = "state: [{name: h, dataType: FP32, dims: [4]}]\n";
    static const char within[] = "sequence_batching: {state: [{input_name: g, output_name: g, "
                                 "data_type: TYPE_FP32, dims: [-1]}]}\n";
    struct both both;

    (void)state;
    for (int i = 0; i < 2; i++) {
        char below[512];

        snprintf(below, sizeof(below), IO "%s%s", i ? within : beside,
                 i ? "" : "sequenceBatching: true\n");
        both_say(below, i ? beside : within, &both);
        assert_int_equal(both.io->state.n, 1);
        assert_string_equal(both.io->state.items[0].input.ptr, i ? "h" : "g");
        drop(&both);
    }
}

static void
instances_are_workers(void **state)
{
    struct both both;

    (void)state;
    both_say("minWorkers: 1\nmaxWorkers: 1\n",
             "instance_group: [{count: 2, kind: KIND_CPU}, {count: \"1\"}]", &both);
    assert_int_equal(both.config.min_workers, 3);
    assert_int_equal(both.config.max_workers, 3);
    drop(&both);
    both_say("minWorkers: 2\nmaxWorkers: 4\n", "instance_group: [{count: 2}]", &both);
    assert_int_equal(both.config.min_workers, 2);
    assert_int_equal(both.config.max_workers, 4);
    drop(&both);
    is_refused(NULL, "{instance_group: [{kind: KIND_GPU}]}",
               "config:1:26: instance_group: kind: expected KIND_CPU or KIND_AUTO, since instances "
               "are processes (TorchScript and ONNX models go to a GPU by deviceType), found a "
               "string KIND_GPU");
    is_refused(
        NULL, "{instance_group: [{count: 1000}, {count: 25}]}",
        "config:1:42: instance_group: count: expected at most 1024 instances in total, found "
        "an integer 25");
    is_refused(NULL, "{instance_group: [{count: 1}], minWorkers: 1}",
               "config:1:2: instance_group and minWorkers set the same thing; remove one of them");
}

/* If the handler gets as many rows as the batch dimension has, this is still so after a change. */
static void
rows_follow_the_batch_dimension(void **state)
{
    struct both both;

    (void)state;
    both_say(IO "max_batch_size: 4\nbatchSize: 4\ndynamic_batching: {preferred_batch_size: [4]}\n",
             "{max_batch_size: 8, dynamic_batching: {preferred_batch_size: [8]}}", &both);
    assert_int_equal(both.config.batch_size, 8);
    drop(&both);
    both_say(IO "max_batch_size: 4\nbatchSize: 16\n", "{max_batch_size: 8}", &both);
    assert_int_equal(both.config.batch_size, 16);
    drop(&both);
}

/* A field that has no meaning here does not become a setting of the handler, but `parameters` does.
 */
static void
parameters_are_the_handlers(void **state)
{
    struct both both;

    (void)state;
    both_say("parameters: {a: 1}\n",
             "{name: m, backend: python, version_policy: {latest: {num_versions: 1}}, parameters: "
             "{}}",
             &both);
    is_text(&both, "\"parameters\": {\"a\":1}\n");
    drop(&both);
    both_say("parameters: {a: 1}\n", "{parameters: {b: {string_value: two}, c: 3}}", &both);
    is_text(&both, "\"parameters\": {\"b\": \"two\",\"c\": 3}\n");
    drop(&both);
}

/* A field, its value, the expected value, and where the sender finds it if it is wrong by itself.
 */
static void
wrong_kinds_are_refused(void **state)
{
    static const struct {
        const char *above, *message;
    } cases[] = {
        {"{\"max_batch_size\":\"x\"}",
         "config:1:19: maxBatchSize: expected an integer from 0 to 65536, found a string x"},
        {"{name: 5}", "config:1:8: name: expected a string, found an integer 5"},
        {"{input: 5}",
         "config:1:9: input: expected a list of 1 to 256 tensors, found an integer 5"},
        {"{output: [5]}",
         "config:1:11: output: expected a map with name, dataType and dims for each tensor, found "
         "an integer 5"},
        {"{response_cache: {enable: 1}}",
         "config:1:27: response_cache.enable: expected true or false, found an integer 1"},
        {"{instance_group: {}}",
         "config:1:18: instance_group: expected a list of groups, found a map"},
        {"{instance_group: [{gpus: 0}]}",
         "config:1:26: instance_group.gpus: expected a list, found an integer 0"},
        {"{input: [{format: 1}]}",
         "config:1:19: input.format: expected a string, found an integer 1"},
        {"{sequence_batching: {state: [{use_growable_memory: 1}]}}",
         "config:1:52: sequence_batching.state.use_growable_memory: expected true or false, found "
         "an integer 1"},
        {"{sequence_batching: [1]}", "config over the archive's YAML: sequence_batching: expected "
                                     "a map of settings, or a boolean, found a list"},
        {"{dynamic_batching: true}", "config over the archive's YAML: dynamic_batching: expected a "
                                     "map of settings, found true or false true"},
        {"{model_transaction_policy: 1}",
         "config:1:28: modelTransactionPolicy: expected a map with decoupled: true or false, found "
         "an integer 1"},
        {"{model_transaction_policy: {decoupled: yes}}",
         "config:1:40: decoupled: expected true or false, found a string yes"},
        {"{parameters: 1}", "config:1:14: parameters: expected a map, found an integer 1"},
        {"{minWorkers: two}",
         "config:1:14: minWorkers: expected an integer from 0 to 1024, found the word \"two\""},
        {"[1]", "config:1:1: expected a map of settings, found a list"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        is_refused(IO, cases[i].above, cases[i].message);
    is_refused(NULL, cases[0].above, cases[0].message);
}

/* A key that contains a NUL, or that only begins like a known one, is another key. */
static void
keys_are_compared_to_their_end(void **state)
{
    static const char *const keys[] = {"\"name\\0\"", "\"name\\0\\0runtime\"", "\"batchSize\\0\"",
                                       "batchSizes",  "\"batch_size_\\0_\"",   "\"\""};

    (void)state;
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        struct both both;
        char above[64];

        snprintf(above, sizeof(above), "{%s: 5}", keys[i]);
        both_say("batchSize: 8\n", above, &both);
        assert_int_equal(both.config.batch_size, 8);
        drop(&both);
    }
}

/* A client that may load models may send a document of many keys, and all other loads wait for it.
 * With work for each pair of keys it would take half an hour. */
static void
many_keys_take_a_moment(void **state)
{
    struct cn_error err = {0};
    struct cn_buf above, out;

    (void)state;
    cn_buf_init(&above, 0);
    for (int i = 0; i < 99000; i++)
        cn_buf_printf(&above, "%s\"k%d\": 1", i ? ", " : "{", i);
    cn_buf_append(&above, "}", sizeof("}"));
    assert_false(above.failed);
    assert_int_equal(lay("batchSize: 1\n", above.data, &out, &err), 0);
    assert_true(out.len > 99000 * 6);
    cn_buf_fini(&out);
    cn_buf_fini(&above);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(settings_are_laid_one_over_another),
        cmocka_unit_test(what_stays_keeps_its_kind),
        cmocka_unit_test(what_was_shown_stays),
        cmocka_unit_test(states_have_one_place),
        cmocka_unit_test(instances_are_workers),
        cmocka_unit_test(rows_follow_the_batch_dimension),
        cmocka_unit_test(parameters_are_the_handlers),
        cmocka_unit_test(wrong_kinds_are_refused),
        cmocka_unit_test(keys_are_compared_to_their_end),
        cmocka_unit_test(many_keys_take_a_moment),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
