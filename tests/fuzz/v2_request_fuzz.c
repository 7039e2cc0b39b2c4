/* cn_fuzz: core proto config kserve */
/* tests/fuzz/v2_request_fuzz.c - reads any bytes as v2 inference requests.
 *
 * Input: a byte that says how much of the rest is JSON (in 256ths; 0: all), then the body. An
 * accepted request is written as a response, whose JSON must be readable again. The fast path must
 * read the same numbers and fields as the JSON document, also when the head is known.
 */
#include <stdint.h>
#include <string.h>

#include "core/errors/panic.h"
#include "kserve/infer_answer.h"
#include "kserve/json/json_heads.h"
#include "kserve/json/json_words.h"
#include "kserve/json/test_request.h"
#include "tests/fuzz/fuzz.h"

static struct cn_model_io *
model(void)
{
    static struct cn_model_io *io;
    struct cn_yaml_doc *doc;
    struct cn_error err;

    if (io)
        return io;
    cn_assert(cn_yaml_parse("model",
                            CN_STR("inputs:\n"
                                   "  - {name: I, dataType: INT32, dims: [-1]}\n"
                                   "  - {name: F, dataType: FP32, dims: [-1], optional: true}\n"
                                   "  - {name: S, dataType: BYTES, dims: [-1], optional: true}\n"
                                   "outputs:\n"
                                   "  - {name: I, dataType: INT32, dims: [-1]}\n"
                                   "  - {name: F, dataType: FP32, dims: [-1]}\n"
                                   "  - {name: S, dataType: BYTES, dims: [-1]}\n"),
                            &doc, &err) == 0);
    cn_assert(cn_model_io_parse(doc, &io, &err) == 0);
    cn_yaml_destroy(doc);
    return io;
}

static void
answer(struct cn_v2_request *request)
{
    struct cn_v2_answer v2 = {
        .model = "m", .version = "1", .n_tensors = request->n_inputs, .tensors = request->inputs};
    struct cn_error err;
    struct cn_buf out;
    json_t *again;
    struct cn_str last;
    size_t json_len;

    cn_buf_init(&out, 0);
    if (cn_v2_answer_check(&v2, request, model(), &err) == 0 &&
        cn_v2_write(&v2, request, &out, &json_len, &last, &err) == 0) {
        cn_assert(json_len <= out.len);
        /* Bytes that are not UTF-8 are written as they came, and then the result is not JSON. */
        if (cn_v2_json_load((struct cn_str){out.data, json_len ? json_len : out.len}, &again,
                            &err) == 0)
            json_decref(again);
    }
    cn_buf_fini(&out);
}

/* Reads the body again, with `spaces` before it. */
static void
read_again(struct cn_str body, size_t json_len, size_t spaces, const struct cn_v2_limits *limits,
           int rc, const struct cn_v2_request *expected)
{
    struct cn_v2_request request;
    struct cn_arena arena;
    struct cn_error err;
    char *text;

    cn_arena_init(&arena);
    text = cn_arena_alloc(&arena, spaces + body.len);
    memset(text, ' ', spaces);
    memcpy(text + spaces, body.ptr, body.len);
    cn_assert(cn_v2_read((struct cn_str){text, spaces + body.len}, spaces + json_len, "m", limits,
                         &arena, &request, &err) == rc);
    cn_assert(rc || test_same_request(&request, expected));
    cn_arena_fini(&arena);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct cn_v2_limits limits = {.json_bytes = 1 << 20};
    struct cn_v2_request request;
    struct cn_str body = {(const char *)data + 1, size - 1}, id;
    struct cn_arena arena;
    struct cn_error err;
    size_t json_len;
    int rc;

    if (size < 2)
        return 0;
    json_len = data[0] ? body.len * data[0] / 256 : body.len;
    cn_arena_init(&arena);
    rc = cn_v2_read(body, json_len, "m", &limits, &arena, &request, &err);
    read_again(body, json_len, 0, &limits, rc, &request);
    /* Spaces make the head so long that it is read as one document. */
    read_again(body, json_len, CN_V2_HEAD_MAX, &limits, rc, &request);
    if (rc == 0) {
        cn_v2_sequence_id(&request, &arena, &id, &err);
        if (cn_v2_check(&request, model(), "m", &arena, &err) == 0)
            answer(&request);
    }
    cn_v2_read_json_length(body, size, &json_len, &err);
    cn_arena_fini(&arena);
    return 0;
}
