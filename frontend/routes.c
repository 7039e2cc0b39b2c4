/* frontend/routes.c - every path that the server answers, and what its description says. No state. */
#include "frontend/routes.h"

#include <stddef.h>

#include "frontend/health.h"
#include "frontend/management_http.h"
#include "frontend/metrics_http.h"
#include "frontend/openapi.h"
#include "frontend/predict.h"
#include "frontend/v2_http.h"
#include "frontend/v2_repository.h"
#include "frontend/v2_settings.h"
#include "frontend/v2_shared_memory.h"
#include "frontend/v2_stats.h"

#define GET CN_HTTP_GET
#define HEAD CN_HTTP_HEAD
#define POST CN_HTTP_POST
#define PUT CN_HTTP_PUT
#define DELETE CN_HTTP_DELETE
#define OPTIONS CN_HTTP_OPTIONS
/* TorchServe runs a prediction whatever the method; OPTIONS asks for the description. */
#define ANY (CN_HTTP_ANY_METHOD & ~(unsigned)CN_HTTP_OPTIONS)

#define PREDICTS CN_ROUTE_PREDICTS
#define QUERY CN_ROUTE_QUERY
#define EXPLAIN CN_ROUTE_EXPLAIN
#define SAGEMAKER CN_ROUTE_SAGEMAKER
#define SLOW CN_ROUTE_SLOW
#define PLAIN CN_ROUTE_PLAIN

#define PREDICT cn_predict_handle
#define MODEL_DESCRIPTION cn_openapi_handle_model
#define API cn_management_http_handle

/* A line a route. */
/* clang-format off */

/* What both interfaces say about themselves. */
#define DESCRIPTION \
    {OPTIONS, "/", cn_openapi_handle, PLAIN, OPTIONS, "apiDescription", "this description, as TorchServe's clients ask for it", NULL}, \
    {ANY | OPTIONS, "/api-description", cn_openapi_handle, PLAIN, GET, "description", "this description", NULL}, \
    {GET | HEAD, "/docs", cn_openapi_handle_page, PLAIN, GET, "docs", "this description as a page", "text/html"}

const struct cn_route cn_inference_routes[] = {
    DESCRIPTION,
    {ANY, "/ping", cn_health_ping, 0, GET, "ping", "is the server healthy?", NULL},
    {ANY, "/predictions/{model_name}", PREDICT, PREDICTS, POST, "predictions", "a prediction of a model's default version", NULL},
    {ANY, "/predictions/{model_name}/{model_version}", PREDICT, PREDICTS, POST, "versionPredictions", "a prediction of one version", NULL},
    {ANY, "/predictions/{model_name}/{model_version}/{*url_path}", PREDICT, PREDICTS, POST, "pathPredictions", "the same, with a path for the handler", NULL},
    {OPTIONS, "/predictions/{model_name}", MODEL_DESCRIPTION, 0, OPTIONS, "modelDescription", "the description of one model", NULL},
    {OPTIONS, "/predictions/{model_name}/{model_version}", MODEL_DESCRIPTION, 0, 0, NULL, NULL, NULL},
    {ANY, "/explanations/{model_name}", PREDICT, PREDICTS | EXPLAIN, POST, "explanations", "an explanation by a model's default version", NULL},
    {ANY, "/explanations/{model_name}/{model_version}", PREDICT, PREDICTS | EXPLAIN, POST, "versionExplanations", "an explanation by one version", NULL},
    {ANY, "/explanations/{model_name}/{model_version}/{*url_path}", PREDICT, PREDICTS | EXPLAIN, POST, "pathExplanations", "the same, with a path for the handler", NULL},
    {ANY, "/invocations", PREDICT, PREDICTS | SAGEMAKER | QUERY, POST, "invocations", "a prediction, SageMaker's way", NULL},
    {ANY, "/models/{model_name}/invoke", PREDICT, PREDICTS | SAGEMAKER | QUERY, POST, "invoke", "a prediction, SageMaker's way for several models", NULL},
    {ANY, "/v1/models/{model_name}:predict", PREDICT, PREDICTS, POST, "kservePredict", "a prediction, KServe's way", NULL},
    {ANY, "/v1/models/{model_name}:explain", PREDICT, PREDICTS | EXPLAIN, POST, "kserveExplain", "an explanation, KServe's way", NULL},
    {GET | HEAD, "/v1/models/{model_name}", cn_health_model, 0, GET, "kserveReady", "has the model a worker?", NULL},
    {ANY, "/wfpredict/{workflow_name}", cn_predict_handle_workflow, 0, POST, "workflow", "there are no workflows: 404", NULL},
    /* The v2 protocol describes itself. */
    {.methods = GET | HEAD, .pattern = "/v2", .handle = cn_v2_http_server},
    {.methods = GET | HEAD, .pattern = "/v2/health/live", .handle = cn_v2_http_live},
    {.methods = GET | HEAD, .pattern = "/v2/health/ready", .handle = cn_v2_http_ready},
    {.methods = GET | HEAD, .pattern = "/v2/models/stats", .handle = cn_v2_http_stats},
    {.methods = GET | HEAD, .pattern = "/v2/models/{model_name}", .handle = cn_v2_http_model},
    {.methods = GET | HEAD, .pattern = "/v2/models/{model_name}/stats", .handle = cn_v2_http_stats},
    {.methods = GET | HEAD, .pattern = "/v2/models/{model_name}/versions/{model_version}/stats", .handle = cn_v2_http_stats},
    {.methods = GET | HEAD, .pattern = "/v2/models/{model_name}/ready", .handle = cn_v2_http_model_ready},
    {.methods = GET | HEAD, .pattern = "/v2/models/{model_name}/config", .handle = cn_v2_http_config},
    {.methods = POST, .pattern = "/v2/models/{model_name}/infer", .handle = cn_v2_http_infer},
    {.methods = POST, .pattern = "/v2/models/{model_name}/generate", .handle = cn_v2_http_generate},
    {.methods = POST, .pattern = "/v2/models/{model_name}/generate_stream", .handle = cn_v2_http_generate_stream},
    {.methods = GET | HEAD, .pattern = "/v2/models/{model_name}/versions/{model_version}", .handle = cn_v2_http_model},
    {.methods = GET | HEAD, .pattern = "/v2/models/{model_name}/versions/{model_version}/ready", .handle = cn_v2_http_model_ready},
    {.methods = GET | HEAD, .pattern = "/v2/models/{model_name}/versions/{model_version}/config", .handle = cn_v2_http_config},
    {.methods = POST, .pattern = "/v2/models/{model_name}/versions/{model_version}/infer", .handle = cn_v2_http_infer},
    {.methods = POST, .pattern = "/v2/models/{model_name}/versions/{model_version}/generate", .handle = cn_v2_http_generate},
    {.methods = POST, .pattern = "/v2/models/{model_name}/versions/{model_version}/generate_stream", .handle = cn_v2_http_generate_stream},
    {.methods = POST, .pattern = "/v2/repository/index", .handle = cn_v2_http_index},
    {.methods = POST, .pattern = "/v2/repository/{name}/index", .handle = cn_v2_http_index},
    {.methods = POST, .pattern = "/v2/repository/models/{model_name}/load", .handle = cn_v2_http_load},
    {.methods = POST, .pattern = "/v2/repository/models/{model_name}/unload", .handle = cn_v2_http_unload},
    {.methods = POST, .pattern = "/v2/repository/{name}/models/{model_name}/load", .handle = cn_v2_http_named_repository},
    {.methods = POST, .pattern = "/v2/repository/{name}/models/{model_name}/unload", .handle = cn_v2_http_named_repository},
    {.methods = GET | HEAD | POST, .pattern = "/v2/logging", .handle = cn_v2_http_logging},
    {.methods = GET | HEAD | POST, .pattern = "/v2/trace/setting", .handle = cn_v2_http_trace},
    {.methods = GET | HEAD | POST, .pattern = "/v2/models/{model_name}/trace/setting", .handle = cn_v2_http_trace},
    {.methods = GET | HEAD, .pattern = "/v2/systemsharedmemory/status", .handle = cn_v2_http_shm_status},
    {.methods = GET | HEAD, .pattern = "/v2/systemsharedmemory/region/{name}/status", .handle = cn_v2_http_shm_status},
    {.methods = POST, .pattern = "/v2/systemsharedmemory/register", .handle = cn_v2_http_shm_register},
    {.methods = POST, .pattern = "/v2/systemsharedmemory/region/{name}/register", .handle = cn_v2_http_shm_register},
    {.methods = POST, .pattern = "/v2/systemsharedmemory/unregister", .handle = cn_v2_http_shm_unregister},
    {.methods = POST, .pattern = "/v2/systemsharedmemory/region/{name}/unregister", .handle = cn_v2_http_shm_unregister},
    {.methods = GET | HEAD, .pattern = "/v2/cudasharedmemory/status", .handle = cn_v2_http_cuda_status},
    {.methods = GET | HEAD, .pattern = "/v2/cudasharedmemory/region/{name}/status", .handle = cn_v2_http_cuda_status},
    {.methods = POST, .pattern = "/v2/cudasharedmemory/region/{name}/register", .handle = cn_v2_http_cuda_register},
    {.methods = POST, .pattern = "/v2/cudasharedmemory/unregister", .handle = cn_v2_http_cuda_unregister},
    {.methods = POST, .pattern = "/v2/cudasharedmemory/region/{name}/unregister", .handle = cn_v2_http_cuda_unregister},
    {.methods = CN_HTTP_ANY_METHOD, .pattern = "/v2", .handle = cn_v2_http_unknown},
    {.methods = CN_HTTP_ANY_METHOD, .pattern = "/v2/{*rest}", .handle = cn_v2_http_unknown},
    {ANY, "/{model_name}/predict", PREDICT, PREDICTS | QUERY, POST, "oldPredict", "a prediction, TorchServe's old way", NULL},
    {ANY, "/{model_name}/{model_version}/predict", PREDICT, PREDICTS | QUERY, POST, "oldVersionPredict", "the same of one version", NULL},
    {.handle = NULL},
};

/* Management reads method and path itself: the last row takes what is wrong there, with its words. */

const struct cn_route cn_management_routes[] = {
    DESCRIPTION,
    {.methods = ANY, .pattern = "/", .handle = cn_openapi_refuse},
    {GET, "/models", API, 0, GET, "listModels", "the models, a page at a time", NULL},
    {POST, "/models", API, SLOW, POST, "registerModel", "loads a model", NULL},
    {GET, "/models/{model_name}", API, 0, GET, "describeModel", "a model's default version: settings, workers, queue", NULL},
    {GET, "/models/{model_name}/{model_version}", API, 0, GET, "describeModelVersion", "one version, or `all`", NULL},
    {PUT, "/models/{model_name}", API, SLOW, PUT, "scaleModel", "starts and stops workers", NULL},
    {PUT, "/models/{model_name}/{model_version}", API, SLOW, PUT, "scaleModelVersion", "the same of one version", NULL},
    {PUT, "/models/{model_name}/{model_version}/set-default", API, 0, PUT, "setDefault", "predictions without a version go to this one", NULL},
    {DELETE, "/models/{model_name}", API, 0, DELETE, "unregisterModel", "unloads a model's default version", NULL},
    {DELETE, "/models/{model_name}/{model_version}", API, 0, DELETE, "unregisterModelVersion", "unloads one version", NULL},
    /* These also with a version before /sequences. */
    {GET, "/models/{model_name}/sequences", API, 0, GET, "listSequences", "a model's sequences, a page at a time", NULL},
    {GET, "/models/{model_name}/sequences/{*sequence_id}", API, 0, GET, "showSequence", "one sequence", NULL},
    {PUT, "/models/{model_name}/sequences/{*sequence_id}", API, 0, PUT, "importSequence", "takes in an exported sequence", NULL},
    {POST, "/models/{model_name}/sequences/{*sequence_id}", API, 0, POST, "forkSequence", "copies a sequence", NULL},
    {DELETE, "/models/{model_name}/sequences/{*sequence_id}", API, 0, DELETE, "deleteSequence", "ends a sequence and deletes its state", NULL},
    {DELETE, "/models/{model_name}/{model_version}/sequences/{*sequence_id}", API, 0, DELETE, "deleteVersionSequence", "the same of one version", NULL},
    {OPTIONS, "/models/{model_name}", MODEL_DESCRIPTION, 0, OPTIONS, "modelDescription", "the description of one model", NULL},
    {OPTIONS, "/models/{model_name}/{model_version}", MODEL_DESCRIPTION, 0, 0, NULL, NULL, NULL},
    {GET, "/stores", API, SLOW, GET, "listStores", "the stores in the state folder, and why the server is unhealthy", NULL},
    {DELETE, "/stores/{model_folder}/{version_folder}", API, SLOW, DELETE, "removeStore", "deletes a store that no registered model has", NULL},
    {POST, "/stores/{model_folder}/{version_folder}/accept", API, SLOW, POST, "acceptStoreLoss", "what a damaged store lost is forgotten", NULL},
    {GET, "/v1/models/{model_name}", API, 0, GET, "kserveReady", "has the model a worker?", NULL},
    {GET, "/token", API, 0, GET, "newToken", "a new key, with the API key (token-auth)", NULL},
    {GET, "/workflows", API, 0, GET, "listWorkflows", "there are none", NULL},
    {POST, "/workflows", API, 0, POST, "registerWorkflow", "refused, as TorchServe's last version does", NULL},
    {GET, "/workflows/{workflow_name}", API, 0, GET, "describeWorkflow", "there are none: 404", NULL},
    {DELETE, "/workflows/{workflow_name}", API, 0, DELETE, "unregisterWorkflow", "there are none: 404", NULL},
    {.methods = CN_HTTP_ANY_METHOD, .handle = API},
    {.handle = NULL},
};
/* clang-format on */

const struct cn_route cn_metrics_routes[] = {
    {.methods = CN_HTTP_ANY_METHOD, .pattern = "/metrics", .handle = cn_metrics_http_handle},
    {.handle = NULL},
};
