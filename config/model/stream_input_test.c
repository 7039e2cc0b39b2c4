/* config/model/stream_input_test.c - tests which settings of a stream fit together, and what
 * clients see of such a model's tensors. */
#include "config/model/stream_input.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "config/model/batching.h"
#include "config/model/model_config.h"

#define AUDIO "sequenceBatching: true\nstream: {input: audio, window: 512}\n"
#define OUTPUT "outputs: [{name: Y, dataType: FP32, dims: [2]}]\n"

static struct cn_model_config config;
static struct cn_model_io *io;

/* Reads a document and checks its stream. Returns the error's message; NULL: there is none. */
static const char *
check(const char *yaml)
{
    static struct cn_error err;
    struct cn_yaml_doc *doc;
    int rc;

    cn_model_io_unref(io);
    io = NULL;
    cn_model_config_init(&config);
    assert_int_equal(cn_yaml_parse("m.yaml", cn_str_from(yaml), &doc, &err), 0);
    rc = cn_model_config_apply(&config, doc, NULL, NULL, &err);
    if (!rc)
        rc = cn_model_io_parse(doc, &io, &err);
    if (!rc)
        rc = cn_batching_parse(doc, "m", io, &err);
    if (!rc)
        cn_batching_apply(doc, io, &config);
    cn_yaml_destroy(doc);
    if (!rc)
        rc = cn_stream_input_check(&config, io, &err);
    assert_true(rc == 0 || rc == CN_E_CONFIG);
    return rc ? err.message : NULL;
}

static void
refused(const char *yaml, const char *part)
{
    const char *message = check(yaml);

    if (!message || !strstr(message, part))
        fail_msg("%s: %s", yaml, message ? message : "accepted");
}

static void
mistakes_are_named(void **state)
{
    (void)state;
    refused("stream: {input: audio, window: 512}\n", "sequenceBatching: true");
    refused("sequenceBatching: true\nstream: {input: audio}\n", "needs stream.window");
    refused("stream: {hop: 5}\n", "stream.hop has no effect without stream.input");
    refused(AUDIO "inputs: [{name: A, dataType: FP64, dims: [512]}]\n" OUTPUT, "'A' is FP64");
    refused(AUDIO "inputs: [{name: A, dataType: FP32, dims: [100]}]\n" OUTPUT, "dims: [512]");
    refused(AUDIO "inputs: [{name: A, dataType: FP32, dims: [-1, -1]}]\n" OUTPUT, "dims: [512]");
    refused(AUDIO "inputs: [{name: A, dataType: FP32, dims: [-1, 100]}]\n" OUTPUT, "dims: [512]");
    refused(AUDIO "decoupled: true\ninputs: [{name: A, dataType: FP32, dims: [512]}]\n" OUTPUT,
            "decoupled");
    refused("sequence_batching: {direct: {}}\nbatchSize: 4\nmaxBatchSize: 4\n"
            "stream: {input: audio, window: 512}\n"
            "inputs: [{name: A, dataType: FP32, dims: [512]}]\n" OUTPUT,
            "direct strategy");
    refused("sequenceBatching: true\nstream: {input: series, window: 4}\n"
            "inputs: [{name: A, dataType: INT16, dims: [4]}]\n" OUTPUT,
            "must be FP32");
}

/* A client sends any number of samples, and gets any number of windows. */
static void
clients_see_open_sizes(void **state)
{
    (void)state;
    assert_null(check(AUDIO "inputs: [{name: A, dataType: FP32, dims: [2, -1, 8]}]\n" OUTPUT));
    cn_stream_input_widen(&config, io);
    assert_true(io->inputs[0].samples && io->inputs[0].rank == 1 && io->inputs[0].dims[0] == -1);
    assert_true(io->outputs[0].rank == 2 && io->outputs[0].dims[0] == -1 &&
                io->outputs[0].dims[1] == 2);
    assert_true(io->own_inputs[0].rank == 3 && io->own_inputs[0].dims[2] == 8);
    assert_true(io->own_outputs[0].rank == 1 && io->own_outputs[0].dims[0] == 2);
    assert_null(check(AUDIO "maxBatchSize: 4\n"
                            "inputs: [{name: A, dataType: INT16, dims: [512]}]\n" OUTPUT));
    cn_stream_input_widen(&config, io);
    assert_true(io->inputs[0].rank == 1 && io->inputs[0].dims[0] == -1);
    assert_true(io->outputs[0].rank == 1); /* the batch dimension has the windows */
    assert_null(check("inputs: [{name: A, dataType: FP32, dims: [5]}]\n" OUTPUT));
    cn_stream_input_widen(&config, io);
    assert_true(!io->inputs[0].samples && io->inputs[0].dims[0] == 5);
}

static int
tear_down(void **state)
{
    (void)state;
    cn_model_io_unref(io);
    return 0;
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mistakes_are_named),
        cmocka_unit_test(clients_see_open_sizes),
    };

    return cmocka_run_group_tests(tests, NULL, tear_down);
}
