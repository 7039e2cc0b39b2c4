/* cn_fuzz: core proto config kserve */
/* tests/fuzz/v2_plain_fuzz.c - bodies of typed predictions, {name: values} or a raw tensor, and of
 * an index.
 *
 * Input: the body. An accepted tensor fits its own shape and is written again as JSON. Numbers are
 * classified, too.
 */
#include <stdint.h>

#include "core/errors/panic.h"
#include "kserve/classify.h"
#include "kserve/plain.h"
#include "tests/fuzz/fuzz.h"

static struct cn_model_io *
model(const char *yaml)
{
    struct cn_model_io *io;
    struct cn_yaml_doc *doc;
    struct cn_error err;

    cn_assert(cn_yaml_parse("model", cn_str_from(yaml), &doc, &err) == 0);
    cn_assert(cn_model_io_parse(doc, &io, &err) == 0);
    cn_yaml_destroy(doc);
    return io;
}

/* A valid tensor can be written and sorted. */
static void
use(struct cn_v2_request *request, const struct cn_model_io *io, struct cn_arena *arena)
{
    struct cn_v2_output output = {.name = CN_STR("I"), .classes = 3};
    struct cn_error err;
    struct cn_buf out;

    if (cn_v2_check(request, io, "m", arena, &err))
        return;
    for (uint32_t i = 0; i < request->n_inputs; i++)
        cn_assert(cn_tensor_check(&request->inputs[i], &err) == 0);
    cn_buf_init(&out, 0);
    cn_assert(cn_v2_write_named(request->inputs, request->n_inputs, &out, &err) == 0);
    cn_buf_fini(&out);
    request->outputs = &output;
    request->n_outputs = 1;
    if (cn_v2_classify(request, io, arena, request->inputs, request->n_inputs, &err) == 0)
        for (uint32_t i = 0; i < request->n_inputs; i++)
            cn_assert(cn_tensor_check(&request->inputs[i], &err) == 0);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct cn_model_io *many, *one, *batched, *word;
    const struct cn_v2_limits limits = {.json_bytes = 1 << 20};
    const struct cn_str body = {(const char *)data, size};
    const struct cn_model_io *raw[3];
    struct cn_v2_request request;
    struct cn_arena arena;
    struct cn_error err;
    bool ready;

    if (!many) {
        many = model("maxBatchSize: 8\ninputs:\n  - {name: I, dataType: INT32, dims: [-1]}\n"
                     "  - {name: F, dataType: FP64, dims: [-1, 2], optional: true}\n"
                     "  - {name: S, dataType: BYTES, dims: [-1], optional: true}\n"
                     "outputs: [{name: I, dataType: INT32, dims: [-1]}]\n");
        one = model("inputs: [{name: I, dataType: INT16, dims: [-1]}]\n"
                    "outputs: [{name: I, dataType: INT16, dims: [-1]}]\n");
        batched = model("maxBatchSize: 4\ninputs: [{name: I, dataType: FP32, dims: [3, -1]}]\n"
                        "outputs: [{name: I, dataType: FP32, dims: [3, -1]}]\n");
        word = model("inputs: [{name: I, dataType: BYTES, dims: [1]}]\n"
                     "outputs: [{name: I, dataType: BYTES, dims: [1]}]\n");
    }
    cn_arena_init(&arena);
    if (cn_v2_read_named(body, many, "m", &limits, &arena, &request, &err) == 0)
        use(&request, many, &arena);
    raw[0] = one;
    raw[1] = batched;
    raw[2] = word;
    for (unsigned i = 0; i < 3; i++)
        if (cn_v2_read_raw(body, raw[i], "m", &arena, &request, &err) == 0)
            use(&request, raw[i], &arena);
    cn_v2_read_index(body, &ready, &err);
    cn_arena_fini(&arena);
    return 0;
}
