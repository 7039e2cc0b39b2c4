/* rpc/unary.h - calls with one small message each way. On the call's loop. */
#ifndef CN_RPC_UNARY_H
#define CN_RPC_UNARY_H

#include "core/buf.h"
#include "rpc/grpc_core.h"
#include "rpc/message.h"

/* The message as one of `type`, in the call's arena (rpc/message.h has the limits). NULL: it is none, and
 * the call is refused. */
void *cn_rpc_take(struct cn_grpc_call *call, const struct cn_grpc_message *message,
                  const ProtobufCMessageDescriptor *type);
/* Ends the call with this message and OK. */
void cn_rpc_reply(struct cn_grpc_call *call, const ProtobufCMessage *message);

/* The same with one of `type` made of JSON (rpc/json_message.h), which is freed. */
void cn_rpc_reply_json(struct cn_grpc_call *call, const ProtobufCMessageDescriptor *type,
                       struct cn_buf *json);

#endif
