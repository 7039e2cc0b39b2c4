/* grpc/kserve/grpc_settings.h - log and trace settings of the v2 protocol (kserve/settings.h), for
 * the tables of grpc/grpc_methods.c. On the call's loop. */
#ifndef CN_GRPC_KSERVE_GRPC_SETTINGS_H
#define CN_GRPC_KSERVE_GRPC_SETTINGS_H

#include "grpc/transport/grpc_call.h"

void cn_rpc_v2_log_settings(struct cn_grpc_call *call, const struct cn_grpc_message *message);
void cn_rpc_v2_trace_setting(struct cn_grpc_call *call, const struct cn_grpc_message *message);

#endif
