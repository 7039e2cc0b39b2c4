/* grpc/kserve/grpc_service.h - the methods of inference.GRPCInferenceService that describe the
 * server and its models, for the tables of grpc/grpc_methods.c. Methods of TorchServe's package
 * openinference have the same messages. On the call's loop.
 */
#ifndef CN_GRPC_KSERVE_GRPC_SERVICE_H
#define CN_GRPC_KSERVE_GRPC_SERVICE_H

#include "grpc/transport/grpc_call.h"

void cn_rpc_v2_server_live(struct cn_grpc_call *call, const struct cn_grpc_message *message);
void cn_rpc_v2_server_ready(struct cn_grpc_call *call, const struct cn_grpc_message *message);
void cn_rpc_v2_server_metadata(struct cn_grpc_call *call, const struct cn_grpc_message *message);
void cn_rpc_v2_model_ready(struct cn_grpc_call *call, const struct cn_grpc_message *message);
void cn_rpc_v2_model_metadata(struct cn_grpc_call *call, const struct cn_grpc_message *message);
void cn_rpc_v2_model_config(struct cn_grpc_call *call, const struct cn_grpc_message *message);
void cn_rpc_v2_statistics(struct cn_grpc_call *call, const struct cn_grpc_message *message);

/* ModelMetadata of openinference, which also answers for models without declared tensors. */
void cn_rpc_open_model_metadata(struct cn_grpc_call *call, const struct cn_grpc_message *message);

#endif
