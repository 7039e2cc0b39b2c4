/* grpc/unary.h - calls with one small message each way. On the call's loop. */
#ifndef CN_GRPC_UNARY_H
#define CN_GRPC_UNARY_H

#include "core/memory/buf.h"
#include "grpc/library/grpc_core.h"
#include "grpc/protobuf_message.h"

/* The message as one of `type`, in the call's arena (grpc/protobuf_message.h has the limits). NULL:
 * it is none, and the call is refused. */
void *cn_rpc_take(struct cn_grpc_call *call, const struct cn_grpc_message *message,
                  const ProtobufCMessageDescriptor *type);
/* Ends the call with this message and OK. */
void cn_rpc_reply(struct cn_grpc_call *call, const ProtobufCMessage *message);

/* The same with one of `type` made of JSON (grpc/json_message.h), which is freed. */
void cn_rpc_reply_json(struct cn_grpc_call *call, const ProtobufCMessageDescriptor *type,
                       struct cn_buf *json);

#endif
