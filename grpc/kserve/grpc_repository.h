/* grpc/kserve/grpc_repository.h - the v2 protocol's model repository, for the tables of
 * grpc/grpc_methods.c. On the call's loop; the work is done on loop 0. */
#ifndef CN_GRPC_KSERVE_GRPC_REPOSITORY_H
#define CN_GRPC_KSERVE_GRPC_REPOSITORY_H

#include "grpc/transport/grpc_call.h"

#define CN_RPC_V2_REPOSITORY_STATE 2048 /* bytes of state, at least */

void cn_rpc_v2_index(struct cn_grpc_call *call, const struct cn_grpc_message *message);
void cn_rpc_v2_load(struct cn_grpc_call *call, const struct cn_grpc_message *message);
void cn_rpc_v2_unload(struct cn_grpc_call *call, const struct cn_grpc_message *message);

#endif
