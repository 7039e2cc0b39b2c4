/* grpc/torchserve/grpc_stream.h - StreamPredictions2, for the table of grpc/grpc_methods.c. */
#ifndef CN_GRPC_TORCHSERVE_GRPC_STREAM_H
#define CN_GRPC_TORCHSERVE_GRPC_STREAM_H

#include "grpc/transport/grpc_call.h"

#define CN_RPC_STREAM_STATE 384 /* bytes of state, at least */

void cn_rpc_stream_open(struct cn_grpc_call *call);
void cn_rpc_stream_message(struct cn_grpc_call *call, const struct cn_grpc_message *message);
void cn_rpc_stream_sent(struct cn_grpc_call *call, void *owner, size_t bytes);
void cn_rpc_stream_gone(struct cn_grpc_call *call);

#endif
