/* grpc/services.h - declares what the services of both ports share. */
#ifndef CN_GRPC_SERVICES_H
#define CN_GRPC_SERVICES_H

#include "frontend/intake/grpc_module.h" /* struct cn_rpc_host, which cn_grpc_call_host returns */
#include "grpc/library/grpc_core.h"

#endif
