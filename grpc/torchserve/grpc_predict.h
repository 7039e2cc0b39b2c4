/* grpc/torchserve/grpc_predict.h - the methods with one step, for the table of
 * grpc/grpc_methods.c. */
#ifndef CN_GRPC_TORCHSERVE_GRPC_PREDICT_H
#define CN_GRPC_TORCHSERVE_GRPC_PREDICT_H

#include "grpc/library/grpc_core.h"

#define CN_RPC_PREDICT_STATE 64 /* bytes of state of the methods below, at least */

void cn_rpc_ping(struct cn_grpc_call *call, const struct cn_grpc_message *message);
void cn_rpc_predictions(struct cn_grpc_call *call, const struct cn_grpc_message *message);
void cn_rpc_stream_predictions(struct cn_grpc_call *call, const struct cn_grpc_message *message);
void cn_rpc_predict_sent(struct cn_grpc_call *call, void *owner, size_t bytes);
void cn_rpc_predict_gone(struct cn_grpc_call *call);

#endif
