/* frontend/endpoints/routes.h - the tables of routes of each interface, for cn_route_find. */
#ifndef CN_FRONTEND_ENDPOINTS_ROUTES_H
#define CN_FRONTEND_ENDPOINTS_ROUTES_H

#include "frontend/http/route.h"

/* Each table ends with a row without a function. */
extern const struct cn_route cn_inference_routes[];
/* In TorchServe's dialect this table is searched before the inference interface's own. */
extern const struct cn_route cn_torchserve_routes[];
extern const struct cn_route cn_management_routes[];
extern const struct cn_route cn_metrics_routes[];

#endif
