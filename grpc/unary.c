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

/* Copies the message into the call's arena, where it is unpacked. Returns NULL with the error. The
 * copy and what is unpacked from it stay until the call is freed, so both are charged to it; and a
 * message that cannot be unpacked within the limit is not copied at all. */
static char *
copy_of(struct cn_grpc_call *call, const struct cn_grpc_message *message,
        const ProtobufCMessageDescriptor *type, struct cn_error *err)
{
    const size_t len = cn_grpc_message_bytes(message);
    char *bytes;

    if (len > CN_RPC_UNPACK_BYTES) {
        cn_fail(err, CN_E_TOO_LARGE, "the message has %zu bytes; a %s may have %d", len,
                type->short_name, CN_RPC_UNPACK_BYTES);
        return NULL;
    }
    if (cn_grpc_call_charge(call, 2 * len, err))
        return NULL;
    bytes = cn_arena_try_alloc(cn_grpc_call_arena(call), len ? len : 1);
    if (bytes)
        cn_grpc_message_copy(message, bytes);
    else
        cn_fail(err, CN_E_OUT_OF_MEMORY, "not enough memory for a message of %zu bytes", len);
    return bytes;
}

void *
cn_rpc_take(struct cn_grpc_call *call, const struct cn_grpc_message *message,
            const ProtobufCMessageDescriptor *type)
{
    const size_t len = cn_grpc_message_bytes(message);
    struct cn_error err;
    char *bytes = copy_of(call, message, type, &err);
    void *out = NULL;

    if (bytes)
        out = cn_rpc_unpack(type, cn_grpc_call_arena(call), (struct cn_str){bytes, len}, &err);
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
