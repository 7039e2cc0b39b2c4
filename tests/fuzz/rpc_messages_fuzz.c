/* cn_fuzz: core grpc */
/* tests/fuzz/rpc_messages_fuzz.c - what gRPC clients send: PredictionsRequest, which is read by
 * hand, and the small messages, which protobuf-c unpacks within a limit. The first byte chooses one
 * of the two. For PredictionsRequest both readers must agree if both accept it. */
#include <grpc/health/v1/health.pb-c.h>
#include <grpc/reflection/v1/reflection.pb-c.h>
#include <inference.pb-c.h>
#include <management.pb-c.h>

#include "core/errors/panic.h"
#include "grpc/protobuf_message.h"
#include "grpc/reflection.h"
#include "grpc/torchserve/grpc_step.h"
#include "tests/fuzz/fuzz.h"

static bool
lies_in(struct cn_str part, struct cn_str whole)
{
    return part.len == 0 || (part.ptr >= whole.ptr && part.ptr + part.len <= whole.ptr + whole.len);
}

static void
check_prediction(struct cn_str bytes)
{
    Org__Pytorch__Serve__Grpc__Inference__PredictionsRequest *other;
    struct cn_rpc_prediction prediction;
    struct cn_arena arena;
    uint32_t i;

    cn_arena_init(&arena);
    if (cn_rpc_prediction_read(bytes, &arena, &prediction, NULL) == 0) {
        cn_assert(lies_in(prediction.model_name, bytes) && prediction.model_name.len > 0);
        cn_assert(prediction.n_parts + prediction.n_controls <= CN_RPC_INPUTS_MAX);
        for (i = 0; i < prediction.n_parts; i++)
            cn_assert(lies_in(prediction.parts[i].data, bytes) &&
                      lies_in(prediction.parts[i].name, bytes));
        other =
            cn_rpc_unpack(&org__pytorch__serve__grpc__inference__predictions_request__descriptor,
                          &arena, bytes, NULL);
        if (other) {
            cn_assert(cn_str_eq(prediction.model_name, cn_str_from(other->model_name)));
            cn_assert(cn_str_eq(prediction.model_version, cn_str_from(other->model_version)));
            cn_assert(prediction.n_parts + prediction.n_controls <= other->n_input);
        }
    }
    cn_arena_fini(&arena);
}

static void
check_unpacked(const ProtobufCMessageDescriptor *type, struct cn_str bytes)
{
    struct cn_arena arena;
    ProtobufCMessage *message;

    cn_arena_init(&arena);
    message = cn_rpc_unpack(type, &arena, bytes, NULL);
    if (message)
        cn_rpc_pack(message, &arena);
    cn_assert(arena.used_bytes <= 4 * CN_RPC_UNPACK_BYTES + 4 * bytes.len);
    cn_arena_fini(&arena);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    static const ProtobufCMessageDescriptor *const types[] = {
        &org__pytorch__serve__grpc__management__describe_model_request__descriptor,
        &org__pytorch__serve__grpc__management__list_models_request__descriptor,
        &org__pytorch__serve__grpc__management__register_model_request__descriptor,
        &org__pytorch__serve__grpc__management__scale_worker_request__descriptor,
        &org__pytorch__serve__grpc__management__set_default_request__descriptor,
        &org__pytorch__serve__grpc__management__unregister_model_request__descriptor,
        &grpc__health__v1__health_check_request__descriptor,
        &grpc__reflection__v1__server_reflection_request__descriptor,
    };
    const size_t n = sizeof(types) / sizeof(types[0]);
    struct cn_str bytes;

    if (len == 0)
        return 0;
    bytes = (struct cn_str){(const char *)data + 1, len - 1};
    if (data[0] % (n + 2) < n)
        check_unpacked(types[data[0] % (n + 2)], bytes);
    else if (data[0] % (n + 2) == n)
        check_prediction(bytes);
    else
        cn_rpc_descriptor_of_symbol(bytes);
    return 0;
}
