/* archiver/import/import_yaml_test.c - a Triton configuration's fields in the YAML, and those that
 * are reported as lost. */
#include "archiver/import/import_yaml.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

static void
on_lost(void *ctx, const char *path, unsigned line, const char *note)
{
    (void)note;
    cn_buf_printf(ctx, "%u %s\n", line, path);
}

/* Returns the YAML without its first line, and "line path" for each field that it leaves out. */
static void
gives_for(enum cn_import_kind kind, const char *text, const char *expected,
          const char *lost_expected)
{
    struct cn_error err = {0};
    struct cn_pbtxt *document;
    struct cn_arena arena;
    struct cn_buf out, lost;

    cn_arena_init(&arena);
    cn_buf_init(&out, 0);
    cn_buf_init(&lost, 0);
    if (cn_pbtxt_parse("c", cn_str_from(text), &arena, &document, &err) != 0 ||
        cn_import_yaml("c", document, kind, ".", &out, on_lost, &lost, &err) != 0)
        fail_msg("%s", err.message);
    cn_buf_append(&out, "", 1);
    cn_buf_append(&lost, "", 1);
    assert_string_equal(strchr(out.data, '\n') + 1, expected);
    assert_string_equal(lost.data, lost_expected);
    cn_buf_fini(&out);
    cn_buf_fini(&lost);
    cn_arena_fini(&arena);
}

static void
gives(const char *text, const char *expected, const char *lost_expected)
{
    gives_for(CN_IMPORT_HANDLER, text, expected, lost_expected);
}

static void
fields_keep_their_names(void **state)
{
    (void)state;
    gives("name: 'm' backend: 'lua'", "", "");
    gives("input { name: \"A\\\"\" dims: 1 dims: -1 data_type: TYPE_FP32 }",
          "input: [{name: \"A\\\"\", dims: [1, -1], data_type: TYPE_FP32}]\n", "");
    gives("max_batch_size: 0x8\ndynamic_batching { }",
          "batchSize: 8\nmax_batch_size: 8\ndynamic_batching: {}\n", "");
    gives("model_transaction_policy { decoupled: true }",
          "model_transaction_policy: {decoupled: true}\n", "");
    gives("instance_group [ { count: 2 }, { kind: KIND_CPU } ]", "minWorkers: 3\nmaxWorkers: 3\n",
          "");
    gives("parameters { key: 'a' value { string_value: 'b' } }", "parameters: {\"a\": \"b\"}\n",
          "");
}

static void
state_and_controls_are_lists(void **state)
{
    (void)state;
    gives("sequence_batching {\n"
          "  state { input_name: 'S' output_name: 'S' data_type: TYPE_INT32 dims: 1\n"
          "          initial_state { name: 'z' zero_data: true } }\n"
          "  control_input { name: 'C' control { kind: CONTROL_SEQUENCE_START\n"
          "                                      fp32_false_true: [ 0, 1.5f ] } } }",
          "sequence_batching: {state: [{input_name: \"S\", output_name: \"S\", data_type: "
          "TYPE_INT32, dims: [1], initial_state: [{name: \"z\", zero_data: true}]}], "
          "control_input: [{name: \"C\", control: [{kind: CONTROL_SEQUENCE_START, "
          "fp32_false_true: [0, 1.5]}]}]}\n",
          "");
    gives("dynamic_batching { priority_queue_policy { key: 1 value: { max_queue_size: 4 } } }",
          "dynamic_batching: {priority_queue_policy: {\"1\": {max_queue_size: 4}}}\n", "");
}

/* Unknown fields are reported wherever they are. Fields without a meaning here are reported unless
 * they are empty. */
static void
what_is_lost_is_told(void **state)
{
    (void)state;
    gives("input {\n  name: 'A' format: FORMAT_NHWC\n  reshape { shape: 1 } }\nensemble_scheduling "
          "{}\n"
          "version_policy { all {} } made_up: 1",
          "input: [{name: \"A\"}]\n", "3 input.reshape\n4 ensemble_scheduling\n5 made_up\n");
    gives("instance_group { kind: KIND_GPU }", "minWorkers: 1\nmaxWorkers: 1\n",
          "1 instance_group.kind\n");
}

/* GPUs, thread counts and the level of optimization have an effect if the model runs as it is. */
static void
backends_that_run_here_keep_their_settings(void **state)
{
    (void)state;
    gives_for(CN_IMPORT_PYTHON, "instance_group { kind: KIND_GPU count: 2 gpus: [ 0, 3 ] }",
              "minWorkers: 4\nmaxWorkers: 4\ndeviceType: gpu\ndeviceIds: [0, 3]\n", "");
    gives_for(CN_IMPORT_ONNX,
              "optimization { graph { level: 1 } execution_accelerators {} priority: 1 }\n"
              "parameters { key: 'intra_op_thread_count' value { string_value: '4' } }",
              "onnx: {threads: 4, graphOptimization: extended}\n"
              "parameters: {\"intra_op_thread_count\": \"4\"}\n",
              "1 optimization.execution_accelerators\n1 optimization\n");
    gives_for(CN_IMPORT_PYTHON,
              "\nparameters { key: 'EXECUTION_ENV_PATH' value { string_value: "
              "'$$TRITON_MODEL_DIRECTORY/none.tar.gz' } }",
              "parameters: {\"EXECUTION_ENV_PATH\": \"$$TRITON_MODEL_DIRECTORY/none.tar.gz\"}\n",
              "2 parameters.EXECUTION_ENV_PATH\n");
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fields_keep_their_names),
        cmocka_unit_test(state_and_controls_are_lists),
        cmocka_unit_test(what_is_lost_is_told),
        cmocka_unit_test(backends_that_run_here_keep_their_settings),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
