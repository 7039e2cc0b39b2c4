/* cn_fuzz: core proto config kserve grpc */
/* tests/fuzz/infer_request_fuzz.c - any bytes as a ModelInferRequest.
 *
 * The message is read by hand. If protobuf-c accepts it, too, both must have read the same. An
 * accepted message is written as a response, raw and typed, which protobuf-c must be able to read.
 */
#include <v2_inference.pb-c.h>

#include "core/errors/panic.h"
#include "grpc/kserve/infer_read.h"
#include "grpc/kserve/infer_write.h"
#include "grpc/protobuf_message.h"
#include "tests/fuzz/fuzz.h"

typedef Inference__ModelInferRequest message_t;
typedef Inference__ModelInferRequest__InferInputTensor input_t;

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

/* Compares texts. protobuf-c's end at a NUL, and ours do not. */
static void
assert_text(struct cn_str ours, const char *theirs)
{
    cn_assert(strlen(theirs) <= ours.len &&
              (ours.len == 0 || strncmp(ours.ptr, theirs, strlen(theirs)) == 0));
}

static void
compare_input(const struct cn_tensor *ours, const input_t *theirs, const ProtobufCBinaryData *raw)
{
    const Inference__InferTensorContents *contents = theirs->contents;

    assert_text(ours->name, theirs->name);
    cn_assert(ours->rank == theirs->n_shape);
    for (uint32_t i = 0; i < ours->rank; i++)
        cn_assert(ours->shape[i] == theirs->shape[i]);
    if (raw) {
        cn_assert(ours->data.len == raw->len &&
                  (raw->len == 0 || memcmp(ours->data.ptr, raw->data, raw->len) == 0));
    } else if (ours->type == CN_DATATYPE_FP32) {
        cn_assert(contents && ours->data.len == 4 * contents->n_fp32_contents);
        cn_assert(ours->data.len == 0 ||
                  memcmp(ours->data.ptr, contents->fp32_contents, ours->data.len) == 0);
    } else if (ours->type == CN_DATATYPE_INT32) {
        cn_assert(contents && ours->data.len == 4 * contents->n_int_contents);
        cn_assert(ours->data.len == 0 ||
                  memcmp(ours->data.ptr, contents->int_contents, ours->data.len) == 0);
    }
}

static void
compare(const struct cn_v2_request *ours, const struct cn_rpc_infer_head *head,
        const message_t *theirs)
{
    uint32_t raw = 0; /* inputs in shared memory have no entry */

    assert_text(head->model, theirs->model_name);
    assert_text(head->version, theirs->model_version);
    assert_text(ours->id, theirs->id);
    cn_assert(ours->n_inputs == theirs->n_inputs && ours->n_outputs == theirs->n_outputs);
    cn_assert(ours->n_params <= theirs->n_parameters);
    for (uint32_t i = 0; i < ours->n_inputs; i++) {
        if (ours->windows[i].region.len) {
            cn_assert(!theirs->inputs[i]->contents && ours->inputs[i].data.len == 0);
            continue;
        }
        compare_input(&ours->inputs[i], theirs->inputs[i],
                      theirs->n_raw_input_contents ? &theirs->raw_input_contents[raw++] : NULL);
    }
}

/* Returns the message as it is sent over the wire. */
static struct cn_str
join(const struct cn_grpc_outgoing *out, struct cn_arena *arena)
{
    struct cn_buf all;
    struct cn_str bytes;

    cn_buf_init(&all, 0);
    cn_buf_append_str(&all, out->head);
    for (uint32_t i = 0; i < out->n_pieces; i++) {
        cn_buf_append_str(&all, out->pieces[i].head);
        cn_buf_append_str(&all, out->pieces[i].data);
    }
    bytes = cn_arena_str(arena, cn_buf_str(&all));
    cn_buf_fini(&all);
    return bytes;
}

static void
answer(struct cn_v2_request *request, struct cn_arena *arena)
{
    const struct cn_v2_answer response = {
        .model = "m", .version = "1", .n_tensors = request->n_inputs, .tensors = request->inputs};
    const struct cn_rpc_infer_form raw = {.in_stream = true, .is_final = true};
    const struct cn_rpc_infer_form typed = {.is_typed = true};
    Inference__ModelStreamInferResponse *streamed;
    Inference__ModelInferResponse *unary;
    struct cn_grpc_outgoing out;
    struct cn_error err;

    if (cn_v2_answer_check(&response, request, model(), &err))
        return;
    cn_assert(cn_rpc_infer_write(&response, request, &raw, arena, &out, &err) == 0);
    streamed = cn_rpc_unpack(&inference__model_stream_infer_response__descriptor, arena,
                             join(&out, arena), &err);
    cn_assert(streamed || err.code == CN_E_TOO_LARGE);
    if (streamed) {
        unary = streamed->infer_response;
        cn_assert(unary && unary->n_outputs == unary->n_raw_output_contents);
        cn_assert(unary->n_parameters == 1 && unary->parameters[0]->value->bool_param);
    }
    cn_assert(cn_rpc_infer_write(&response, request, &typed, arena, &out, &err) == 0);
    unary =
        cn_rpc_unpack(&inference__model_infer_response__descriptor, arena, join(&out, arena), &err);
    cn_assert(unary || err.code == CN_E_TOO_LARGE);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct cn_str bytes = {(const char *)data, size};
    struct cn_rpc_infer_head head;
    struct cn_v2_request request;
    struct cn_arena arena;
    struct cn_error err;
    struct cn_str id;
    message_t *theirs;

    cn_arena_init(&arena);
    if (cn_rpc_infer_scan(bytes, &head, &err) == 0 &&
        cn_rpc_infer_read(bytes, &head, "m", 1 << 20, &arena, &request, &err) == 0) {
        theirs = cn_rpc_unpack(&inference__model_infer_request__descriptor, &arena, bytes, &err);
        if (theirs)
            compare(&request, &head, theirs);
        cn_v2_sequence_id(&request, &arena, &id, &err);
        if (cn_v2_check(&request, model(), "m", &arena, &err) == 0)
            answer(&request, &arena);
    }
    cn_arena_fini(&arena);
    return 0;
}
