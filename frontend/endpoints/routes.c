/* frontend/endpoints/routes.c - every path that the server answers, with its function and its text
 * in the API description. No state.
 *
 * Order matters: the first row with the path and the method wins. So /v2/models/stats stands before
 * /v2/models/{model_name}, and the rows that take any path stand last.
 */
#include "frontend/endpoints/routes.h"

#include <stddef.h>

#include "frontend/endpoints/kserve/kserve_http.h"
#include "frontend/endpoints/kserve/kserve_repository.h"
#include "frontend/endpoints/kserve/kserve_settings.h"
#include "frontend/endpoints/kserve/kserve_shared_memory.h"
#include "frontend/endpoints/kserve/kserve_stats.h"
#include "frontend/endpoints/management_http.h"
#include "frontend/endpoints/metrics_http.h"
#include "frontend/endpoints/openapi.h"
#include "frontend/endpoints/ping.h"
#include "frontend/endpoints/predictions.h"
#include "frontend/page/feed.h"
#include "frontend/page/page_files.h"
#include "frontend/websocket/ws_endpoint.h"

#define GET CN_HTTP_GET
#define HEAD CN_HTTP_HEAD
#define POST CN_HTTP_POST
#define PUT CN_HTTP_PUT
#define DELETE CN_HTTP_DELETE
#define OPTIONS CN_HTTP_OPTIONS
/* TorchServe runs a prediction for every method except OPTIONS, which returns the description.
 * Methods that no RFC knows are refused. */
#define ANY (CN_HTTP_ANY_METHOD & ~(unsigned)(CN_HTTP_OPTIONS | CN_HTTP_OTHER_METHOD))

#define PREDICTS CN_ROUTE_PREDICTS
#define QUERY CN_ROUTE_QUERY
#define EXPLAIN CN_ROUTE_EXPLAIN
#define SAGEMAKER CN_ROUTE_SAGEMAKER
#define SLOW CN_ROUTE_SLOW
#define PLAIN CN_ROUTE_PLAIN

#define PREDICT cn_predict_handle
#define MODEL_DESCRIPTION cn_openapi_handle_model
#define API cn_management_http_handle

/* Each route takes one or two lines; the second one has the texts of the API description. */
/* clang-format off */

/* The routes that describe the API; the inference and the management address both have them. */
#define DESCRIPTION \
    {OPTIONS, "/", cn_openapi_handle, PLAIN | CN_ROUTE_NO_MODEL, OPTIONS, "apiDescription", \
     "returns this API description (the request that TorchServe's clients send)", NULL}, \
    {ANY | OPTIONS, "/api-description", cn_openapi_handle, PLAIN, GET, "description", \
     "returns this API description", NULL}, \
    {GET | HEAD, "/docs", cn_openapi_handle_page, PLAIN, GET, "docs", \
     "shows this API description as a web page", "text/html"}

const struct cn_route cn_inference_routes[] = {
    /* The table is searched for each request, so what comes most often stands first. */
    {.methods = POST, .pattern = "/v2/models/{model_name}/infer", .handle = cn_v2_http_infer},
    {.methods = POST, .pattern = "/v2/models/{model_name}/versions/{model_version}/infer",
     .handle = cn_v2_http_infer},
    DESCRIPTION,
    {ANY, "/ping", cn_health_ping, CN_ROUTE_NO_MODEL, GET, "ping",
     "says whether the server is healthy", NULL},
    {ANY, "/predictions/{model_name}", PREDICT, PREDICTS, POST, "predictions",
     "runs a prediction with a model's default version", NULL},
    {ANY, "/predictions/{model_name}/{model_version}", PREDICT, PREDICTS, POST,
     "versionPredictions", "runs a prediction with one version of a model", NULL},
    {ANY, "/predictions/{model_name}/{model_version}/{*url_path}", PREDICT, PREDICTS, POST,
     "pathPredictions", "runs a prediction and passes the rest of the path to the handler", NULL},
    {OPTIONS, "/predictions/{model_name}", MODEL_DESCRIPTION, 0, OPTIONS, "modelDescription",
     "returns the API description of one model", NULL},
    {OPTIONS,
     "/predictions/{model_name}/{model_version}", MODEL_DESCRIPTION, 0, 0, NULL, NULL, NULL},
    {ANY, "/explanations/{model_name}", PREDICT, PREDICTS | EXPLAIN, POST, "explanations",
     "explains a prediction of a model's default version", NULL},
    {ANY, "/explanations/{model_name}/{model_version}", PREDICT, PREDICTS | EXPLAIN, POST,
     "versionExplanations", "explains a prediction of one version of a model", NULL},
    {ANY, "/explanations/{model_name}/{model_version}/{*url_path}", PREDICT, PREDICTS | EXPLAIN,
     POST, "pathExplanations",
     "explains a prediction and passes the rest of the path to the handler", NULL},
    {ANY, "/invocations", PREDICT, PREDICTS | SAGEMAKER | QUERY, POST, "invocations",
     "runs a prediction (SageMaker's path)", NULL},
    {ANY, "/models/{model_name}/invoke", PREDICT, PREDICTS | SAGEMAKER | QUERY, POST, "invoke",
     "runs a prediction (SageMaker's path for multi-model endpoints)", NULL},
    {ANY, "/v1/models/{model_name}:predict", PREDICT, PREDICTS, POST, "kservePredict",
     "runs a prediction (KServe's v1 path)", NULL},
    {ANY, "/v1/models/{model_name}:explain", PREDICT, PREDICTS | EXPLAIN, POST, "kserveExplain",
     "explains a prediction (KServe's v1 path)", NULL},
    {GET | HEAD, "/try/{model_name}", cn_page_handle_try, PLAIN, GET, "try",
     "shows a page that sends steps to the model", "text/html"},
    {.methods = GET | HEAD, .pattern = "/page/{file}", .handle = cn_page_handle},
    {GET | HEAD, "/v1/models/{model_name}", cn_health_model, 0, GET, "kserveReady",
     "says whether the model has a ready worker", NULL},
    {GET, "/v1/streams/{model_name}/{sequence_id}", cn_streams_handle, 0, GET, "openStream",
     "opens a WebSocket that carries the steps of one sequence", NULL},
    {GET, "/v1/streams/{model_name}/{model_version}/{sequence_id}", cn_streams_handle, 0, GET,
     "openVersionStream",
     "opens a WebSocket that carries the steps of one sequence of one version of a model", NULL},
    {POST, "/v1/streams/tickets", cn_streams_handle_tickets, CN_ROUTE_NO_MODEL, POST,
     "newStreamTicket",
     "returns a ticket that opens one stream in place of a key", NULL},
    {ANY, "/wfpredict/{workflow_name}", cn_predict_handle_workflow, 0, POST, "workflow",
     "returns 404: workflows are not supported", NULL},
    /* The routes of the v2 protocol are not part of the API description: the protocol defines
     * them. */
    {.methods = GET | HEAD, .pattern = "/v2", .flags = CN_ROUTE_NO_MODEL,
     .handle = cn_v2_http_server},
    {.methods = GET | HEAD, .pattern = "/v2/health/live", .flags = CN_ROUTE_NO_MODEL,
     .handle = cn_v2_http_live},
    {.methods = GET | HEAD, .pattern = "/v2/health/ready", .flags = CN_ROUTE_NO_MODEL,
     .handle = cn_v2_http_ready},
    {.methods = GET | HEAD, .pattern = "/v2/models/stats", .handle = cn_v2_http_stats},
    {.methods = GET | HEAD, .pattern = "/v2/models/{model_name}", .handle = cn_v2_http_model},
    {.methods = GET | HEAD, .pattern = "/v2/models/{model_name}/stats", .handle = cn_v2_http_stats},
    {.methods = GET | HEAD, .pattern = "/v2/models/{model_name}/versions/{model_version}/stats",
     .handle = cn_v2_http_stats},
    {.methods = GET | HEAD, .pattern = "/v2/models/{model_name}/ready",
     .handle = cn_v2_http_model_ready},
    {.methods = GET | HEAD, .pattern = "/v2/models/{model_name}/config",
     .handle = cn_v2_http_config},
    {.methods = POST, .pattern = "/v2/models/{model_name}/generate", .handle = cn_v2_http_generate},
    {.methods = POST, .pattern = "/v2/models/{model_name}/generate_stream",
     .handle = cn_v2_http_generate_stream},
    {.methods = GET | HEAD, .pattern = "/v2/models/{model_name}/versions/{model_version}",
     .handle = cn_v2_http_model},
    {.methods = GET | HEAD, .pattern = "/v2/models/{model_name}/versions/{model_version}/ready",
     .handle = cn_v2_http_model_ready},
    {.methods = GET | HEAD, .pattern = "/v2/models/{model_name}/versions/{model_version}/config",
     .handle = cn_v2_http_config},
    {.methods = POST, .pattern = "/v2/models/{model_name}/versions/{model_version}/generate",
     .handle = cn_v2_http_generate},
    {.methods = POST, .pattern = "/v2/models/{model_name}/versions/{model_version}/generate_stream",
     .handle = cn_v2_http_generate_stream},
    {.methods = POST, .pattern = "/v2/repository/index", .handle = cn_v2_http_index},
    {.methods = POST, .pattern = "/v2/repository/{name}/index", .handle = cn_v2_http_index},
    {.methods = POST, .pattern = "/v2/repository/models/{model_name}/load",
     .flags = CN_ROUTE_ADMIN,
     .handle = cn_v2_http_load},
    {.methods = POST, .pattern = "/v2/repository/models/{model_name}/unload",
     .flags = CN_ROUTE_ADMIN,
     .handle = cn_v2_http_unload},
    {.methods = POST, .pattern = "/v2/repository/{name}/models/{model_name}/load",
     .flags = CN_ROUTE_ADMIN,
     .handle = cn_v2_http_named_repository},
    {.methods = POST, .pattern = "/v2/repository/{name}/models/{model_name}/unload",
     .flags = CN_ROUTE_ADMIN,
     .handle = cn_v2_http_named_repository},
    {.methods = GET | HEAD | POST, .pattern = "/v2/logging",
     .flags = CN_ROUTE_ADMIN, .handle = cn_v2_http_logging},
    {.methods = GET | HEAD | POST, .pattern = "/v2/trace/setting",
     .flags = CN_ROUTE_ADMIN, .handle = cn_v2_http_trace},
    {.methods = GET | HEAD | POST, .pattern = "/v2/models/{model_name}/trace/setting",
     .flags = CN_ROUTE_ADMIN,
     .handle = cn_v2_http_trace},
    {.methods = GET | HEAD, .pattern = "/v2/systemsharedmemory/status",
     .handle = cn_v2_http_shm_status},
    {.methods = GET | HEAD, .pattern = "/v2/systemsharedmemory/region/{name}/status",
     .handle = cn_v2_http_shm_status},
    {.methods = POST, .pattern = "/v2/systemsharedmemory/register",
     .handle = cn_v2_http_shm_register},
    {.methods = POST, .pattern = "/v2/systemsharedmemory/region/{name}/register",
     .handle = cn_v2_http_shm_register},
    {.methods = POST, .pattern = "/v2/systemsharedmemory/unregister",
     .handle = cn_v2_http_shm_unregister},
    {.methods = POST, .pattern = "/v2/systemsharedmemory/region/{name}/unregister",
     .handle = cn_v2_http_shm_unregister},
    {.methods = GET | HEAD, .pattern = "/v2/cudasharedmemory/status",
     .handle = cn_v2_http_cuda_status},
    {.methods = GET | HEAD, .pattern = "/v2/cudasharedmemory/region/{name}/status",
     .handle = cn_v2_http_cuda_status},
    {.methods = POST, .pattern = "/v2/cudasharedmemory/region/{name}/register",
     .handle = cn_v2_http_cuda_register},
    {.methods = POST, .pattern = "/v2/cudasharedmemory/unregister",
     .handle = cn_v2_http_cuda_unregister},
    {.methods = POST, .pattern = "/v2/cudasharedmemory/region/{name}/unregister",
     .handle = cn_v2_http_cuda_unregister},
    {.methods = CN_HTTP_ANY_METHOD, .pattern = "/v2", .handle = cn_v2_http_unknown},
    {.methods = CN_HTTP_ANY_METHOD, .pattern = "/v2/{*rest}", .handle = cn_v2_http_unknown},
    {ANY, "/{model_name}/predict", PREDICT, PREDICTS | QUERY, POST, "oldPredict",
     "runs a prediction (TorchServe's old path)", NULL},
    {ANY, "/{model_name}/{model_version}/predict", PREDICT, PREDICTS | QUERY, POST,
     "oldVersionPredict",
     "runs a prediction with one version of a model (TorchServe's old path)", NULL},
    {.handle = NULL},
};

/* The management API reads method and path itself. The last row gives it every other request, so
 * that it answers them with its own errors. */

const struct cn_route cn_management_routes[] = {
    DESCRIPTION,
    {GET | HEAD, "/", cn_page_handle_root, PLAIN, GET, "page",
     "shows the server as a web page", "text/html"},
    {.methods = ANY, .pattern = "/", .handle = cn_openapi_refuse},
    {.methods = GET | HEAD, .pattern = "/page", .handle = cn_page_handle},
    {.methods = GET | HEAD, .pattern = "/page/{file}", .handle = cn_page_handle},
    {GET, "/events", cn_feed_handle, 0, GET, "events",
     "sends what the web page shows, as server-sent events, for as long as the client stays",
     "text/event-stream"},
    {GET, "/models", API, 0, GET, "listModels", "lists the registered models, page by page", NULL},
    {POST, "/models", API, SLOW, POST, "registerModel", "registers a model and loads it", NULL},
    {GET, "/models/{model_name}", API, 0, GET, "describeModel",
     "describes a model's default version: settings, workers and queue", NULL},
    {GET, "/models/{model_name}/{model_version}", API, 0, GET, "describeModelVersion",
     "describes one version of a model, or all versions with `all`", NULL},
    {PUT, "/models/{model_name}", API, SLOW, PUT, "scaleModel",
     "sets the number of workers of a model's default version", NULL},
    {PUT, "/models/{model_name}/{model_version}", API, SLOW, PUT, "scaleModelVersion",
     "sets the number of workers of one version", NULL},
    {PUT, "/models/{model_name}/{model_version}/set-default", API, 0, PUT, "setDefault",
     "makes this version the default, which serves requests that name no version", NULL},
    {DELETE, "/models/{model_name}/{model_version}/workers/{worker_index}", API, 0, DELETE,
     "killWorker", "kills a worker's process with kill -9; the server starts another one", NULL},
    {DELETE, "/models/{model_name}", API, 0, DELETE, "unregisterModel",
     "unregisters a model's default version", NULL},
    {DELETE, "/models/{model_name}/{model_version}", API, 0, DELETE, "unregisterModelVersion",
     "unregisters one version of a model", NULL},
    /* Each of these paths may also have a version before /sequences. */
    {GET, "/models/{model_name}/sequences", API, 0, GET, "listSequences",
     "lists a model's sequences, page by page", NULL},
    {GET, "/models/{model_name}/sequences/{*sequence_id}", API, 0, GET, "showSequence",
     "describes or exports one sequence", NULL},
    {PUT, "/models/{model_name}/sequences/{*sequence_id}", API, 0, PUT, "importSequence",
     "imports an exported sequence", NULL},
    {POST, "/models/{model_name}/sequences/{*sequence_id}", API, 0, POST, "forkSequence",
     "copies a sequence", NULL},
    {DELETE, "/models/{model_name}/sequences/{*sequence_id}", API, 0, DELETE, "deleteSequence",
     "ends a sequence and deletes its state", NULL},
    {DELETE, "/models/{model_name}/{model_version}/sequences/{*sequence_id}", API, 0, DELETE,
     "deleteVersionSequence", "ends a sequence of one version and deletes its state", NULL},
    {OPTIONS, "/models/{model_name}", MODEL_DESCRIPTION, 0, OPTIONS, "modelDescription",
     "returns the API description of one model", NULL},
    {OPTIONS, "/models/{model_name}/{model_version}", MODEL_DESCRIPTION, 0, 0, NULL, NULL, NULL},
    {GET, "/environments", API, 0, GET, "listEnvironments",
     "lists the packages that were installed for Python models, with the progress of each", NULL},
    {GET, "/nodes", API, SLOW, GET, "listNodes",
     "lists the nodes that share this server's store, and describes the store", NULL},
    {GET, "/keys", API, 0, GET, "listKeyUse",
     "lists what the named keys (--keys) use at the moment, and their limits", NULL},
    {GET, "/slowlog", API, 0, GET, "listSlowSteps",
     "lists the last steps that took longer than --slowlog-threshold, the slowest first", NULL},
    {DELETE, "/slowlog", API, 0, DELETE, "clearSlowSteps", "empties the list of slow steps", NULL},
    {GET, "/cluster", API, SLOW, GET, "describeCluster",
     "shows the models that all nodes of the shared store serve, and how far each node is "
     "(--cluster-models)",
     NULL},
    {GET, "/stores", API, SLOW, GET, "listStores",
     "lists the stores in the state folder and the reasons why the server is unhealthy", NULL},
    {DELETE, "/stores/{model_folder}/{version_folder}", API, SLOW, DELETE, "removeStore",
     "deletes a store that belongs to no registered model", NULL},
    {POST, "/stores/{model_folder}/{version_folder}/accept", API, SLOW, POST, "acceptStoreLoss",
     "accepts the loss of a damaged store: the lost sequences are forgotten", NULL},
    {GET, "/shared-states/{model_name}/{model_version}", API, SLOW, GET, "countSharedStates",
     "counts the sequences that the shared store has of a model version", NULL},
    {DELETE, "/shared-states/{model_name}/{model_version}", API, SLOW, DELETE, "removeSharedStates",
     "removes sequences of a model version that no node serves from the shared store; repeat it "
     "until `left` is 0",
     NULL},
    {GET, "/v1/models/{model_name}", API, 0, GET, "kserveReady",
     "says whether the model has a ready worker", NULL},
    {GET, "/token", API, 0, GET, "newToken",
     "returns a new key; requires the API key (token-auth)", NULL},
    {GET, "/workflows", API, 0, GET, "listWorkflows",
     "returns an empty list: workflows are not supported", NULL},
    {POST, "/workflows", API, 0, POST, "registerWorkflow",
     "is refused: workflows are not supported (TorchServe's last version refuses them, too)", NULL},
    {GET, "/workflows/{workflow_name}", API, 0, GET, "describeWorkflow",
     "returns 404: workflows are not supported", NULL},
    {DELETE, "/workflows/{workflow_name}", API, 0, DELETE, "unregisterWorkflow",
     "returns 404: workflows are not supported", NULL},
    {.methods = CN_HTTP_ANY_METHOD, .handle = API},
    {.handle = NULL},
};
/* clang-format on */

const struct cn_route cn_metrics_routes[] = {
    {.methods = CN_HTTP_ANY_METHOD, .pattern = "/metrics", .handle = cn_metrics_http_handle},
    {.handle = NULL},
};
