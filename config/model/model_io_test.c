/* config/model/model_io_test.c - what a model's YAML may say about its tensors, and what it may
 * not. */
#include "config/model/model_io.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static int
parse(const char *text, struct cn_model_io **out, struct cn_error *err)
{
    struct cn_yaml_doc *doc;
    int rc;

    assert_int_equal(cn_yaml_parse("model.yaml", cn_str_from(text), &doc, err), 0);
    rc = cn_model_io_parse(doc, out, err);
    cn_yaml_destroy(doc);
    return rc;
}

/* Both families of spellings give the same model. The names stay valid when the document is freed.
 */
static void
both_spellings_are_read(void **state)
{
    static const char *const texts[] = {
        "maxBatchSize: 8\n"
        "inputs:\n"
        "  - {name: A, dataType: FP32, dims: [-1, 4]}\n"
        "  - {name: B, dataType: BYTES, dims: [1], optional: true, ragged: true}\n"
        "outputs:\n"
        "  - {name: C, dataType: INT64, dims: [4]}\n"
        "decoupled: true\n",
        "max_batch_size: 8\n"
        "input:\n"
        "  - {name: A, data_type: TYPE_FP32, dims: [-1, 4]}\n"
        "  - {name: B, data_type: TYPE_STRING, dims: [1], optional: true, allow_ragged_batch: "
        "true}\n"
        "output:\n"
        "  - {name: C, data_type: TYPE_INT64, dims: [4]}\n"
        "model_transaction_policy: {decoupled: true}\n"};
    struct cn_model_io *io;
    struct cn_error err;

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(parse(texts[i], &io, &err), 0);
        assert_int_equal(io->max_batch_size, 8);
        assert_true(io->decoupled);
        assert_int_equal(io->n_inputs, 2);
        assert_int_equal(io->n_required, 1);
        assert_int_equal(io->inputs[0].rank, 2);
        assert_int_equal(io->inputs[0].dims[0], -1);
        assert_int_equal(io->inputs[1].type, CN_DATATYPE_BYTES);
        assert_true(io->inputs[1].ragged);
        assert_ptr_equal(cn_model_io_input(io, CN_STR("A"), 0), &io->inputs[0]);
        assert_null(cn_model_io_input(io, CN_STR("C"), 0));
        assert_int_equal(cn_model_io_output(io, CN_STR("C"), 0)->type, CN_DATATYPE_INT64);
        cn_model_io_unref(io);
    }
}

/* A model without inputs is untyped, whatever else its YAML says. */
static void
no_inputs_no_types(void **state)
{
    struct cn_model_io *io;
    struct cn_error err;

    (void)state;
    assert_int_equal(parse("minWorkers: 1\noutputs: 3\n", &io, &err), 0);
    assert_null(io);
}

/* Each mistake is named with its place. */
static void
mistakes_are_named(void **state)
{
    static const struct {
        const char *text, *says;
    } wrong[] = {
        {"inputs: 3\n", "m"},
        {"inputs: []\n", "a list of 1 to 256 tensors"},
        {"inputs: [3]\n", "a map with name, dataType and dims"},
        {"inputs: [{dataType: FP32, dims: [1]}]\n", "a name of 1 to 256 bytes"},
        {"inputs: [{name: '', dataType: FP32, dims: [1]}]\n", "a name of 1 to 256 bytes"},
        {"inputs: [{name: A, dataType: FLOAT, dims: [1]}]\n", "BOOL, UINT8"},
        {"inputs: [{name: A, dims: [1]}]\n", "BOOL, UINT8"},
        {"inputs: [{name: A, dataType: FP32}]\n", "a list of up to 15 sizes"},
        {"inputs: [{name: A, dataType: FP32, dims: [0]}]\n", "sizes from 1, or -1"},
        {"inputs: [{name: A, dataType: FP32, dims: [1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]}]\n",
         "a list of up to 15 sizes"},
        {"inputs: [{name: A, dataType: FP32, dims: [1], optional: 1}]\n", "true or false"},
        {"inputs: [{name: A, dataType: FP32, dims: [1]}]\n", "needs outputs"},
        {"inputs: [{name: A, dataType: FP32, dims: [1]}, {name: A, dataType: FP32, dims: [1]}]\n"
         "outputs: [{name: A, dataType: FP32, dims: [1]}]\n",
         "two tensors are named A"},
        {"inputs: [{name: A, dataType: FP32, dims: [1]}]\nmaxBatchSize: -1\n"
         "outputs: [{name: A, dataType: FP32, dims: [1]}]\n",
         "an integer from 0 to 65536"},
    };
    struct cn_model_io *io;
    struct cn_error err;

    (void)state;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        assert_int_equal(parse(wrong[i].text, &io, &err), CN_E_CONFIG);
        assert_non_null(strstr(err.message, wrong[i].says));
        assert_non_null(strstr(err.message, "model.yaml:"));
        assert_null(io);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_spellings_are_read),
        cmocka_unit_test(no_inputs_no_types),
        cmocka_unit_test(mistakes_are_named),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
