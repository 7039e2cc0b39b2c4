/* grpc/kserve/grpc_shared_memory.h - regions of shared memory (kserve/shared_memory.h), for the
 * tables of grpc/grpc_methods.c. On the call's loop. */
#ifndef CN_GRPC_KSERVE_GRPC_SHARED_MEMORY_H
#define CN_GRPC_KSERVE_GRPC_SHARED_MEMORY_H

#include "grpc/transport/grpc_call.h"

void cn_rpc_v2_shm_status(struct cn_grpc_call *call, const struct cn_grpc_message *message);
void cn_rpc_v2_shm_register(struct cn_grpc_call *call, const struct cn_grpc_message *message);
void cn_rpc_v2_shm_unregister(struct cn_grpc_call *call, const struct cn_grpc_message *message);

/* These answer like a server without CUDA: there are no regions, and none can be registered. */
void cn_rpc_v2_cuda_status(struct cn_grpc_call *call, const struct cn_grpc_message *message);
void cn_rpc_v2_cuda_register(struct cn_grpc_call *call, const struct cn_grpc_message *message);
void cn_rpc_v2_cuda_unregister(struct cn_grpc_call *call, const struct cn_grpc_message *message);

#endif
