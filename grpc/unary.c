/* grpc/unary.c - calls with one message in and one message out. On the call's loop.
 *
 * protobuf-c unpacks the request, which is fast enough for the small messages of management.
 * Everything lies in the call's arena and is freed with the call, also after an error. A response
 * can also be made from the JSON that the same request gets over HTTP (cn_rpc_reply_json), so that
 * there is one place that knows its content.
 */
#include "grpc/unary.h"

#include "grpc/error_status.h"
#include "grpc/json_message.h"
#include "kserve/json/json_words.h"

void *
cn_rpc_take(struct cn_grpc_call *call, const struct cn_grpc_message *message,
            const ProtobufCMessageDescriptor *type)
{
    struct cn_arena *arena = cn_grpc_call_arena(call);
    size_t len = cn_grpc_message_bytes(message);
    char *bytes = cn_arena_try_alloc(arena, len ? len : 1);
    struct cn_error err;
    void *out = NULL;

    if (!bytes) {
        cn_fail(&err, CN_E_OUT_OF_MEMORY, "not enough memory for a message of %zu bytes", len);
    } else {
        cn_grpc_message_copy(message, bytes);
        out = cn_rpc_unpack(type, arena, (struct cn_str){bytes, len}, &err);
    }
    if (!out)
        cn_rpc_fail(call, err.code, err.message, 0);
    return out;
}

void
cn_rpc_reply(struct cn_grpc_call *call, const ProtobufCMessage *message)
{
    const struct cn_grpc_status ok = {0};
    struct cn_grpc_outgoing out = {.head = cn_rpc_pack(message, cn_grpc_call_arena(call))};

    cn_grpc_call_finish(call, &out, &ok);
}

void
cn_rpc_reply_json(struct cn_grpc_call *call, const ProtobufCMessageDescriptor *type,
                  struct cn_buf *json)
{
    struct cn_error err;
    json_t *root = NULL;
    int rc = json->failed ? cn_fail(&err, CN_E_OUT_OF_MEMORY, "not enough memory for the response")
                          : cn_v2_json_load(cn_buf_str(json), &root, &err);

    if (rc)
        cn_rpc_fail(call, rc, err.message, 0);
    else
        cn_rpc_reply(call, cn_rpc_message_of_json(type, root, cn_grpc_call_arena(call)));
    json_decref(root);
    cn_buf_fini(json);
}
