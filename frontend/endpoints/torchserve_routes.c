/* frontend/endpoints/torchserve_routes.c - the paths that have another meaning in TorchServe's
 * dialect. No state. */
#include <stddef.h>

#include "frontend/endpoints/kserve/kserve_http.h"
#include "frontend/endpoints/ping.h"
#include "frontend/endpoints/predictions.h"
#include "frontend/endpoints/routes.h"

#define ANY (CN_HTTP_ANY_METHOD & ~(unsigned)CN_HTTP_OPTIONS)

/* TorchServe hands a v2 request to its model like any other prediction, whatever the method. Its
 * /ping also answers OPTIONS, and ignores what follows in the path. */
/* clang-format off */
const struct cn_route cn_torchserve_routes[] = {
    {.methods = ANY, .pattern = "/v2/models/{model_name}/infer", .handle = cn_v2_http_torchserve,
     .flags = CN_ROUTE_TORCHSERVE | CN_ROUTE_PREDICTS},
    {.methods = ANY, .pattern = "/v2/models/{model_name}/explain",
     .handle = cn_predict_handle,
     .flags = CN_ROUTE_TORCHSERVE | CN_ROUTE_PREDICTS | CN_ROUTE_EXPLAIN},
    {.methods = CN_HTTP_ANY_METHOD, .pattern = "/ping", .handle = cn_health_ping,
     .flags = CN_ROUTE_NO_MODEL},
    {.methods = CN_HTTP_ANY_METHOD, .pattern = "/ping/{*rest}", .handle = cn_health_ping,
     .flags = CN_ROUTE_NO_MODEL},
    {.handle = NULL},
};
