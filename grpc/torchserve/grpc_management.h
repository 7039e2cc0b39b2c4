/* grpc/torchserve/grpc_management.h - ManagementAPIsService, for the table of
 * grpc/grpc_methods.c. */
#ifndef CN_GRPC_TORCHSERVE_GRPC_MANAGEMENT_H
#define CN_GRPC_TORCHSERVE_GRPC_MANAGEMENT_H

#include "grpc/transport/grpc_call.h"

#define CN_RPC_MANAGEMENT_STATE 256 /* bytes of state, at least */

void cn_rpc_describe(struct cn_grpc_call *call, const struct cn_grpc_message *message);
void cn_rpc_list(struct cn_grpc_call *call, const struct cn_grpc_message *message);
void cn_rpc_register(struct cn_grpc_call *call, const struct cn_grpc_message *message);
void cn_rpc_scale(struct cn_grpc_call *call, const struct cn_grpc_message *message);
void cn_rpc_set_default(struct cn_grpc_call *call, const struct cn_grpc_message *message);
void cn_rpc_unregister(struct cn_grpc_call *call, const struct cn_grpc_message *message);

#endif
