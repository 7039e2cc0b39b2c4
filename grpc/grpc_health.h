/* grpc/grpc_health.h - the service grpc.health.v1.Health, for the table in grpc/grpc_methods.c. On
 * the call's loop. */
#ifndef CN_GRPC_GRPC_HEALTH_H
#define CN_GRPC_GRPC_HEALTH_H

#include "grpc/transport/grpc_call.h"

#define CN_RPC_HEALTH_STATE 64 /* bytes that a Watch call's state needs at most */

void cn_rpc_health_check(struct cn_grpc_call *call, const struct cn_grpc_message *message);
void cn_rpc_health_watch(struct cn_grpc_call *call, const struct cn_grpc_message *message);
void cn_rpc_health_gone(struct cn_grpc_call *call);
void cn_rpc_health_drain(struct cn_grpc_call *call);

#endif
