/* config/model/model_state_test.c - what a model's YAML may say about its state, and what it may
 * not. */
#include "config/model/model_state.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/test_support.h"

#define TENSORS                                                                                    \
    "inputs:\n"                                                                                    \
    "  - {name: IN, dataType: INT32, dims: [1]}\n"                                                 \
    "  - {name: START_AT, dataType: INT32, dims: [1], optional: true}\n"                           \
    "outputs:\n"                                                                                   \
    "  - {name: OUT, dataType: INT32, dims: [1]}\n"                                                \
    "  - {name: SEEN, dataType: INT32, dims: [1]}\n"

static int
parse(const char *text, struct cn_model_io **out, struct cn_error *err)
{
    struct cn_yaml_doc *doc;
    int rc;

    assert_int_equal(cn_yaml_parse("m.yaml", cn_str_from(text), &doc, err), 0);
    rc = cn_model_io_parse(doc, out, err);
    cn_yaml_destroy(doc);
    return rc;
}

/* The state may be declared in three places and in two families of spellings, always with the same
 * result. */
static void
all_spellings_are_read(void **state)
{
    static const char *const texts[] = {
        TENSORS "state:\n"
                "  - {input: A_IN, output: A_OUT, dataType: INT32, dims: [1]}\n"
                "  - {input: h, output: h, dataType: FP32, dims: [2, -1], init: {dims: [2, 8]}}\n",
        TENSORS "state:\n"
                "  durability: power\n"
                "  tensors:\n"
                "    - {inputName: A_IN, outputName: A_OUT, dataType: INT32, dims: [1], init: "
                "zeros}\n"
                "    - {name: h, dataType: FP32, dims: [2, -1], init: {dims: [2, 8]}}\n",
        TENSORS "sequence_batching:\n"
                "  state:\n"
                "    - {input_name: A_IN, output_name: A_OUT, data_type: TYPE_INT32, dims: [1]}\n"
                "    - input_name: h\n"
                "      output_name: h\n"
                "      data_type: TYPE_FP32\n"
                "      dims: [2, -1]\n"
                "      initial_state: [{name: z, data_type: TYPE_FP32, dims: [2, 8], zero_data: "
                "true}]\n"};

    (void)state;
    for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++) {
        const struct cn_state_spec *spec;
        struct cn_model_io *io;
        struct cn_error err = {0};

        if (parse(texts[i], &io, &err) != 0)
            fail_msg("%s", err.message);
        assert_int_equal(io->state.n, 2);
        assert_false(io->state.batched);
        spec = cn_state_of_input(&io->state, CN_STR("A_IN"));
        assert_true(cn_str_eq(spec->output, CN_STR("A_OUT")));
        assert_int_equal(spec->type, CN_DATATYPE_INT32);
        assert_int_equal(spec->init_dims[0], 1);
        assert_false(spec->visible);
        spec = cn_state_of_output(&io->state, CN_STR("h"));
        assert_int_equal(spec->dims[1], -1);
        assert_int_equal(spec->init_dims[1], 8);
        assert_int_equal(spec->init, CN_STATE_ZEROS);
        cn_model_io_unref(io);
    }
}

static const struct cn_state_spec *
only(const char *text, struct cn_model_io **io)
{
    struct cn_error err = {0};

    if (parse(text, io, &err) != 0)
        fail_msg("%s", err.message);
    assert_int_equal((*io)->state.n, 1);
    return &(*io)->state.items[0];
}

/* A dimension of -1 has the size 1 in the first state, unless `init` says otherwise. If the model
 * has an output with the name of the state's output, the state is also sent to the client. */
static void
details(void **state)
{
    const struct cn_state_spec *spec;
    struct cn_model_io *io;

    (void)state;
    spec = only("maxBatchSize: 4\n" TENSORS
                "state: [{input: S, output: SEEN, dataType: INT32, dims: [-1], batchAxis: 1}]\n",
                &io);
    assert_int_equal(spec->init_dims[0], 1);
    assert_int_equal(spec->batch_axis, 1);
    assert_true(spec->visible);
    assert_true(io->state.batched);
    cn_model_io_unref(io);

    spec = only(
        TENSORS "state: [{name: S, dataType: INT32, dims: [1], init: {caller: START_AT}}]\n", &io);
    assert_int_equal(spec->init, CN_STATE_CALLER);
    assert_string_equal(spec->init_from.ptr, "START_AT");
    cn_model_io_unref(io);

    spec = only(TENSORS "sequence_batching: {state: [{input_name: S, output_name: S, data_type: "
                        "TYPE_INT32, dims: [1], initial_state: [{name: z, data_type: TYPE_INT32, "
                        "dims: [1], data_file: first}]}]}\n",
                &io);
    assert_int_equal(spec->init, CN_STATE_FILE);
    assert_string_equal(spec->init_from.ptr, "initial_state/first");
    cn_model_io_unref(io);

    /* A scalar has an empty list of dims, and protobuf leaves out empty lists in JSON. */
    spec = only(TENSORS "sequence_batching: {state: [{input_name: S, output_name: S, data_type: "
                        "TYPE_INT32, initial_state: [{name: z, data_type: TYPE_INT32, "
                        "zero_data: true}]}]}\n",
                &io);
    assert_int_equal(spec->rank, 0);
    cn_model_io_unref(io);
}

static void
refused(const char *text, const char *why)
{
    struct cn_model_io *io;
    struct cn_error err = {0};

    assert_int_equal(parse(text, &io, &err), CN_E_CONFIG);
    if (!strstr(err.message, why) || strncmp(err.message, "m.yaml:", 7) != 0)
        fail_msg("\"%s\" is not in \"%s\"", why, err.message);
    assert_null(io);
}

#define ONE(rest) TENSORS "state: [{name: S, dataType: INT32, dims: [1]" rest "}]\n"
#define THEIRS(rest)                                                                               \
    TENSORS "sequence_batching: {state: [{input_name: S, output_name: S, data_type: TYPE_INT32, "  \
            "dims: [1, -1], initial_state: " rest "}]}\n"

static void
what_cannot_be_is_refused(void **state)
{
    (void)state;
    refused("state: [{name: S, dataType: INT32, dims: [1]}]\n", "needs inputs and outputs");
    refused(TENSORS "state: [5]\n", "expected a map with name, dataType and dims");
    refused(TENSORS "state: [{input: S, dataType: INT32, dims: [1]}]\n", "expected a name");
    refused(TENSORS "state: [{name: S, dataType: int, dims: [1]}]\n", "expected BOOL");
    refused(TENSORS "state: [{name: S, dataType: INT32}]\n", "a list of up to 15 sizes");
    refused(ONE(", batchAxis: 2"), "a number from 0 to the number of dims");
    refused(ONE(", init: ones"), "expected zeros");
    refused(ONE(", init: {file: /etc/passwd}"), "the path of a file in the archive");
    refused(ONE(", init: {file: a/../../b}"), "the path of a file in the archive");
    refused(ONE(", init: {dims: [2]}"), "doesn't match 'state' dim description. 2 != 1");
    refused(ONE(", init: {dims: [1, 1]}"), "has 2 dims, but its declaration has 1");
    refused(ONE(", init: {caller: NOBODY}"), "which the model does not declare");
    refused(ONE(", init: {file: a, caller: b}"), "expected zeros");
    refused(TENSORS "state: [{name: S, dataType: FP32, dims: [1], init: {caller: START_AT}}]\n",
            "another dataType or other dims");
    refused(TENSORS "state: [{name: IN, dataType: INT32, dims: [1]}]\n",
            "is also listed under inputs");
    refused(TENSORS "state: [{input: S, output: OUT, dataType: FP32, dims: [1]}]\n",
            "listed under outputs, with another dataType");
    refused(TENSORS "state: [{name: S, dataType: FP32, dims: [1]}, {name: S, dataType: FP32, dims: "
                    "[1]}]\n",
            "two tensors are named S");
    refused(TENSORS "state: [{name: S, dataType: FP64, dims: [1073741824]}]\n", "up to 1 GiB");
    refused(TENSORS "state: [{name: S, dataType: FP64, dims: [9223372036854775807, 3]}]\n",
            "up to 1 GiB");
    refused(ONE("") "sequence_batching: {state: [{name: S}]}\n", "declared twice");
}

/* Messages use the words that users of Triton know. */
static void
initial_states_are_checked(void **state)
{
    (void)state;
    refused(THEIRS("[{}, {}]"), "must contain exactly one or zero element. Found '2' elements.");
    refused(THEIRS("[{name: z, data_type: TYPE_FP32, dims: [1, 1], zero_data: true}]"),
            "does not match the state data type.");
    refused(THEIRS("[{data_type: TYPE_INT32, dims: [1, 1], zero_data: true}]"),
            "Field 'name' must be set when using initial_state for state input 'S'.");
    refused(THEIRS("[{name: z, data_type: TYPE_INT32, dims: [1, -1], zero_data: true}]"),
            "contains variable dimensions.");
    refused(THEIRS("[{name: z, data_type: TYPE_INT32, dims: [3, 1], zero_data: true}]"),
            "'initial_state' dim for input name 'S' doesn't match 'state' dim description. 3 != 1");
    refused(THEIRS("[{name: z, data_type: TYPE_INT32, dims: [1, 1]}]"), "zero_data or data_file");
}

/* The file is read when the model is registered, so that a mistake is found before the first
 * sequence. */
static void
files_are_checked(void **state)
{
    char dir[TEST_DIR_MAX], path[100];
    struct cn_model_io *io;
    struct cn_error err;
    FILE *file;

    (void)state;
    test_dir_make(dir);
    snprintf(path, sizeof(path), "%s/begin", dir);
    only(ONE(", init: {file: begin}"), &io);
    assert_int_equal(cn_model_state_check_files(io, dir, &err), CN_E_CONFIG);
    assert_non_null(strstr(err.message, "begin, which is not in the archive"));
    file = fopen(path, "w");
    fwrite("\1\0\0\0", 1, 3, file);
    fclose(file);
    assert_int_equal(cn_model_state_check_files(io, dir, &err), CN_E_CONFIG);
    assert_non_null(strstr(err.message, "3 bytes, 1 elements of INT32 need 4 bytes each"));
    file = fopen(path, "w");
    fwrite("\1\0\0\0", 1, 4, file);
    fclose(file);
    assert_int_equal(cn_model_state_check_files(io, dir, &err), 0);
    unlink(path);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(cn_model_state_check_files(io, dir, &err), CN_E_CONFIG);
    unlink(path);
    rmdir(dir);
    cn_model_io_unref(io);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_spellings_are_read),    cmocka_unit_test(details),
        cmocka_unit_test(what_cannot_be_is_refused), cmocka_unit_test(initial_states_are_checked),
        cmocka_unit_test(files_are_checked),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
