/* frontend/endpoints/routes.h - what each interface answers: the tables behind cn_route_find. */
#ifndef CN_FRONTEND_ENDPOINTS_ROUTES_H
#define CN_FRONTEND_ENDPOINTS_ROUTES_H

#include "frontend/http/route.h"

/* Each ends with a row without a function. */
extern const struct cn_route cn_inference_routes[];
/* In TorchServe's dialect these come before the inference interface's own. */
extern const struct cn_route cn_torchserve_routes[];
extern const struct cn_route cn_management_routes[];
extern const struct cn_route cn_metrics_routes[];

#endif
