/* grpc/services.h - what the services of both ports share. */
#ifndef CN_GRPC_SERVICES_H
#define CN_GRPC_SERVICES_H

#include "grpc/library/grpc_core.h"

struct cn_management;
struct cn_server_config;

/* What cn_grpc_call_host returns. */
struct cn_rpc_host {
    const struct cn_server_config *config;
    struct cn_management *management;
};

#endif
