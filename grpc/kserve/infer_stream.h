/* grpc/kserve/infer_stream.h - ModelStreamInfer, for the table of grpc/grpc_methods.c. */
#ifndef CN_GRPC_KSERVE_INFER_STREAM_H
#define CN_GRPC_KSERVE_INFER_STREAM_H

#include "grpc/transport/grpc_call.h"

#define CN_RPC_INFER_STREAM_STATE 96 /* bytes of state, at least */

void cn_rpc_infer_stream_open(struct cn_grpc_call *call);
void cn_rpc_infer_stream_message(struct cn_grpc_call *call, const struct cn_grpc_message *message);
void cn_rpc_infer_stream_sent(struct cn_grpc_call *call, void *owner, size_t bytes);
void cn_rpc_infer_stream_gone(struct cn_grpc_call *call);

#endif
