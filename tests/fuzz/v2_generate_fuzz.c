/* cn_fuzz: core proto config kserve */
/* tests/fuzz/v2_generate_fuzz.c - bodies of the generate extension.
 *
 * Input: the body. Tensors for the model fit their own shapes, and are written again as a response.
 */
#include <stdint.h>

#include "core/errors/panic.h"
#include "kserve/generate.h"
#include "tests/fuzz/fuzz.h"

#define TENSORS                                                                                    \
    "  - {name: I, dataType: INT32, dims: [-1], optional: true}\n"                                 \
    "  - {name: F, dataType: FP64, dims: [-1, 2, -1], optional: true}\n"                           \
    "  - {name: B, dataType: BOOL, dims: [1], optional: true}\n"                                   \
    "  - {name: S, dataType: BYTES, dims: [-1], optional: true}\n"

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

static void
try(struct cn_str body, const struct cn_model_io *io)
{
    const struct cn_v2_limits limits = {.json_bytes = 1 << 20};
    struct cn_v2_request request;
    struct cn_arena arena;
    struct cn_error err;
    struct cn_buf out;

    cn_arena_init(&arena);
    cn_buf_init(&out, 0);
    if (cn_v2_read_generate(body, io, &limits, &arena, &request, &err) == 0 &&
        cn_v2_check(&request, io, "m", &arena, &err) == 0) {
        const struct cn_v2_answer answer = {
            .model = "m", .version = "1", .n_tensors = request.n_inputs, .tensors = request.inputs};

        for (uint32_t i = 0; i < request.n_inputs; i++)
            cn_assert(cn_tensor_check(&request.inputs[i], &err) == 0);
        cn_assert(cn_v2_write_generate(&answer, &request, &out, &err) == 0);
    }
    cn_buf_fini(&out);
    cn_arena_fini(&arena);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct cn_model_io *plain, *batched;
    const struct cn_str body = {(const char *)data, size};

    if (!plain) {
        plain = model("inputs:\n" TENSORS "outputs:\n" TENSORS);
        batched = model("maxBatchSize: 4\ninputs:\n" TENSORS "outputs:\n" TENSORS);
    }
    try(body, plain);
    try(body, batched);
    return 0;
}
