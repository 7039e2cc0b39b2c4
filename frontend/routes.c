/* frontend/routes.c - every path that the server answers. No state. */
#include "frontend/routes.h"

#include <stddef.h>

#include "frontend/health.h"
#include "frontend/management_http.h"
#include "frontend/metrics_http.h"
#include "frontend/predict.h"

#define GET CN_HTTP_GET
#define HEAD CN_HTTP_HEAD
/* TorchServe runs a prediction whatever the method; OPTIONS asks for the description. */
#define ANY (CN_HTTP_ANY_METHOD & ~(unsigned)CN_HTTP_OPTIONS)

const struct cn_route cn_inference_routes[] = {
    {ANY, "/ping", cn_health_ping, 0},
    {ANY, "/predictions/{}", cn_predict_handle, 0},
    {ANY, "/predictions/{}/{}", cn_predict_handle, 0},
    {ANY, "/predictions/{}/{}/{*}", cn_predict_handle, 0},
    {ANY, "/explanations/{}", cn_predict_handle, CN_ROUTE_EXPLAIN},
    {ANY, "/explanations/{}/{}", cn_predict_handle, CN_ROUTE_EXPLAIN},
    {ANY, "/explanations/{}/{}/{*}", cn_predict_handle, CN_ROUTE_EXPLAIN},
    {ANY, "/invocations", cn_predict_handle, CN_ROUTE_SAGEMAKER | CN_ROUTE_QUERY},
    {ANY, "/models/{}/invoke", cn_predict_handle, CN_ROUTE_SAGEMAKER | CN_ROUTE_QUERY},
    {ANY, "/v1/models/{}:predict", cn_predict_handle, 0},
    {ANY, "/v1/models/{}:explain", cn_predict_handle, CN_ROUTE_EXPLAIN},
    {GET | HEAD, "/v1/models/{}", cn_health_model, 0},
    {ANY, "/wfpredict/{}", cn_predict_handle_workflow, 0},
    {ANY, "/{}/predict", cn_predict_handle, CN_ROUTE_QUERY},
    {ANY, "/{}/{}/predict", cn_predict_handle, CN_ROUTE_QUERY},
    {0, NULL, NULL, 0},
};

const struct cn_route cn_management_routes[] = {
    {CN_HTTP_ANY_METHOD, NULL, cn_management_http_handle, 0},
    {0, NULL, NULL, 0},
};

const struct cn_route cn_metrics_routes[] = {
    {CN_HTTP_ANY_METHOD, "/metrics", cn_metrics_http_handle, 0},
    {0, NULL, NULL, 0},
};
