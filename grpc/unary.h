/* grpc/unary.h - helpers for calls with one small message in each direction. On the call's loop. */
#ifndef CN_GRPC_UNARY_H
#define CN_GRPC_UNARY_H

#include "core/memory/buf.h"
#include "grpc/protobuf_message.h"
#include "grpc/transport/grpc_call.h"

/* Unpacks the message as one of `type`, in the call's arena (grpc/protobuf_message.h has the
 * limits). Returns NULL when it is not one; the call has then been refused. */
void *cn_rpc_take(struct cn_grpc_call *call, const struct cn_grpc_message *message,
                  const ProtobufCMessageDescriptor *type);
/* Ends the call with this message and status OK. */
void cn_rpc_reply(struct cn_grpc_call *call, const ProtobufCMessage *message);

/* Ends the call with a message of `type` made of JSON (grpc/json_message.h). Frees the JSON. */
void cn_rpc_reply_json(struct cn_grpc_call *call, const ProtobufCMessageDescriptor *type,
                       struct cn_buf *json);

#endif
