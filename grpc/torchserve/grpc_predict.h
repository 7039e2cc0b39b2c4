/* grpc/torchserve/grpc_predict.h - TorchServe's gRPC methods that make steps, and Ping. The table
 * of grpc/grpc_methods.c calls them. */
#ifndef CN_GRPC_TORCHSERVE_GRPC_PREDICT_H
#define CN_GRPC_TORCHSERVE_GRPC_PREDICT_H

#include "grpc/transport/grpc_call.h"

#define CN_RPC_PREDICT_STATE 64 /* a call of these methods has this much room for its state */

void cn_rpc_ping(struct cn_grpc_call *call, const struct cn_grpc_message *message);
void cn_rpc_predictions(struct cn_grpc_call *call, const struct cn_grpc_message *message);
void cn_rpc_stream_predictions(struct cn_grpc_call *call, const struct cn_grpc_message *message);
void cn_rpc_predict_sent(struct cn_grpc_call *call, void *owner, size_t bytes);
void cn_rpc_predict_gone(struct cn_grpc_call *call);

#endif
