/* grpc/services.h - declares what the services of both ports share. */
#ifndef CN_GRPC_SERVICES_H
#define CN_GRPC_SERVICES_H

#include "grpc/rpc.h" /* struct cn_rpc_host, which cn_grpc_call_host returns */
#include "grpc/transport/grpc_call.h"

/* May the call's named key, which must still be valid, use this model? The answer does not depend
 * on whether there is such a model. CN_E_KEY_REQUIRED, CN_E_KEY_FORBIDDEN. */
int cn_rpc_check_model(struct cn_grpc_call *call, struct cn_str model, struct cn_error *err);

#endif
