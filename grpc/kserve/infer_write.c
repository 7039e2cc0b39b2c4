/* grpc/kserve/infer_write.c - writes ModelInferResponse and ModelStreamInferResponse. On the call's
 * loop.
 *
 * Tensors are sent as raw_output_contents, one for each output, because clients of Triton read only
 * those; their bytes are not copied here. The service openinference sends typed contents instead.
 */
#include "grpc/kserve/infer_write.h"

#include "core/memory/buf.h"
#include "core/text/varint.h"
#include "grpc/kserve/infer_contents.h"
#include "grpc/protobuf_message.h"

/* proto/v2_inference.proto */
enum {
    RESPONSE_MODEL = 1,
    RESPONSE_VERSION = 2,
    RESPONSE_ID = 3,
    RESPONSE_PARAMETERS = 4,
    RESPONSE_OUTPUTS = 5,
    RESPONSE_RAW = 6
};
enum { OUTPUT_NAME = 1, OUTPUT_DATATYPE = 2, OUTPUT_SHAPE = 3, OUTPUT_CONTENTS = 5 };
enum { STREAM_ERROR = 1, STREAM_RESPONSE = 2 };

static struct cn_str
head_of(char *room, uint32_t field, size_t len)
{
    return (struct cn_str){room, (size_t)(cn_rpc_put_head(room, field, len) - room)};
}

/* Leaves out an empty text, as proto3 does. */
static void
put_text(struct cn_buf *out, uint32_t field, struct cn_str text)
{
    char room[CN_RPC_FIELD_MAX];

    if (text.len == 0)
        return;
    cn_buf_append_str(out, head_of(room, field, text.len));
    cn_buf_append_str(out, text);
}

/* parameters["triton_final_response"] */
static void
put_final(struct cn_buf *out, bool is_final)
{
    static const char entry[] = "\x0a\x15triton_final_response\x12\x02\x08";
    char room[CN_RPC_FIELD_MAX], value = is_final ? 1 : 0;

    cn_buf_append_str(out, head_of(room, RESPONSE_PARAMETERS, sizeof(entry)));
    cn_buf_append(out, entry, sizeof(entry) - 1);
    cn_buf_append(out, &value, 1);
}

static void
put_shape(struct cn_buf *out, const struct cn_tensor *tensor)
{
    char packed[CN_TENSOR_RANK_MAX * CN_RPC_FIELD_MAX], *at = packed;

    for (uint32_t i = 0; i < tensor->rank; i++)
        at = cn_put_varint((uint64_t)tensor->shape[i], at);
    put_text(out, OUTPUT_SHAPE, (struct cn_str){packed, (size_t)(at - packed)});
}

static bool
has_typed_form(const struct cn_tensor *tensor)
{
    return tensor->type != CN_DATATYPE_FP16 && tensor->type != CN_DATATYPE_BF16;
}

static void
put_output(struct cn_buf *out, const struct cn_tensor *tensor, bool typed)
{
    char room[CN_RPC_FIELD_MAX];
    struct cn_buf one, contents;

    cn_buf_init(&one, 0);
    put_text(&one, OUTPUT_NAME, tensor->name);
    put_text(&one, OUTPUT_DATATYPE, cn_str_from(cn_datatype_word(tensor->type)));
    put_shape(&one, tensor);
    if (typed && has_typed_form(tensor)) {
        cn_buf_init(&contents, 0);
        cn_rpc_put_contents(tensor, &contents);
        cn_buf_append_str(&one, head_of(room, OUTPUT_CONTENTS, contents.len));
        cn_buf_append_str(&one, cn_buf_str(&contents));
        one.failed |= contents.failed;
        cn_buf_fini(&contents);
    }
    cn_buf_append_str(out, head_of(room, RESPONSE_OUTPUTS, one.len));
    cn_buf_append_str(out, cn_buf_str(&one));
    out->failed |= one.failed;
    cn_buf_fini(&one);
}

/* Makes the pieces of the message for the outputs. *bytes gets the size of their bytes and tags. */
static struct cn_grpc_piece *
make_pieces(const struct cn_v2_answer *answer, const struct cn_v2_request *request, bool typed,
            struct cn_arena *arena, struct cn_buf *head, uint32_t *n, size_t *bytes)
{
    struct cn_grpc_piece *pieces = cn_arena_alloc(arena, sizeof(*pieces) * (answer->n_tensors + 1));
    struct cn_v2_output otherwise;

    *n = 0;
    *bytes = 0;
    for (uint32_t i = 0; i < answer->n_tensors; i++) {
        const struct cn_tensor *tensor = &answer->tensors[i];

        if (!cn_v2_wanted(request, tensor->name, &otherwise))
            continue;
        put_output(head, tensor, typed);
        if (typed && has_typed_form(tensor))
            continue;
        pieces[*n].head =
            head_of(cn_arena_alloc(arena, CN_RPC_FIELD_MAX), RESPONSE_RAW, tensor->data.len);
        pieces[*n].data = tensor->data;
        *bytes += pieces[*n].head.len + tensor->data.len;
        ++*n;
    }
    return pieces;
}

int
cn_rpc_infer_write(const struct cn_v2_answer *answer, const struct cn_v2_request *request,
                   const struct cn_rpc_infer_form *form, struct cn_arena *arena,
                   struct cn_grpc_outgoing *out, struct cn_error *err)
{
    char room[CN_RPC_FIELD_MAX];
    struct cn_buf head, whole;
    size_t raw_bytes;

    memset(out, 0, sizeof(*out));
    cn_buf_init(&head, 0);
    cn_buf_init(&whole, 0);
    put_text(&head, RESPONSE_MODEL, cn_str_from(answer->model));
    put_text(&head, RESPONSE_VERSION, cn_str_from(answer->version));
    put_text(&head, RESPONSE_ID, request->id);
    if (form->in_stream)
        put_final(&head, form->is_final);
    out->pieces =
        make_pieces(answer, request, form->is_typed, arena, &head, &out->n_pieces, &raw_bytes);
    if (form->in_stream)
        cn_buf_append_str(&whole, head_of(room, STREAM_RESPONSE, head.len + raw_bytes));
    cn_buf_append_str(&whole, cn_buf_str(&head));
    out->head = cn_arena_str(arena, cn_buf_str(&whole));
    if (head.failed || whole.failed)
        cn_fail(err, CN_E_OUT_OF_MEMORY, "not enough memory for the response");
    else
        err = NULL;
    cn_buf_fini(&head);
    cn_buf_fini(&whole);
    return err ? err->code : 0;
}

void
cn_rpc_infer_write_failure(const struct cn_rpc_infer_failure *failure, struct cn_arena *arena,
                           struct cn_grpc_outgoing *out)
{
    char room[CN_RPC_FIELD_MAX];
    struct cn_buf response, whole;

    memset(out, 0, sizeof(*out));
    cn_buf_init(&response, 0);
    cn_buf_init(&whole, 0);
    if (failure->model) {
        put_text(&response, RESPONSE_MODEL, cn_str_from(failure->model));
        put_text(&response, RESPONSE_VERSION, cn_str_from(failure->version));
    }
    put_text(&response, RESPONSE_ID, failure->id);
    if (failure->model)
        put_final(&response, failure->is_final);
    put_text(&whole, STREAM_ERROR, cn_str_from(failure->message));
    cn_buf_append_str(&whole, head_of(room, STREAM_RESPONSE, response.len));
    cn_buf_append_str(&whole, cn_buf_str(&response));
    out->head = cn_arena_str(arena, cn_buf_str(&whole));
    cn_buf_fini(&response);
    cn_buf_fini(&whole);
}
