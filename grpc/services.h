/* grpc/services.h - the services of both ports, and what they share. */
#ifndef CN_GRPC_SERVICES_H
#define CN_GRPC_SERVICES_H

#include "grpc/library/grpc_core.h"

struct cn_management;
struct cn_server_config;

/* cn_grpc_call_host. */
struct cn_rpc_host {
    const struct cn_server_config *config;
    struct cn_management *management;
};

#endif
