/* rpc/module.c - continuo-grpc.so: the methods of both ports, and how the server drives them.
 *
 * The module links gRPC and protobuf-c; everything else that it calls is the server's own.
 */
#include "config/server_config.h"
#include "core/mem.h"
#include "frontend/grpc_module.h"
#include "frontend/http_checks.h"
#include "frontend/http_listener.h"
#include "management/management.h"
#include "rpc/health.h"
#include "rpc/management.h"
#include "rpc/predict.h"
#include "rpc/reflection.h"
#include "rpc/rpc.h"
#include "rpc/stream.h"

/* On both ports. A probe has no key; tools that look at services have one. */
#define REFLECTION(version)                                                                        \
    {                                                                                              \
        .path = "/grpc.reflection." version ".ServerReflection/ServerReflectionInfo",              \
        .client_streams = true, .on_message = cn_rpc_reflection_message,                           \
        .on_sent = cn_rpc_reflection_sent, .on_half_close = cn_rpc_reflection_half_close,          \
        .on_drain = cn_rpc_reflection_drain                                                        \
    }
#define COMMON_METHODS                                                                             \
    {.path = "/grpc.health.v1.Health/Check",                                                       \
     .needs_no_key = true,                                                                         \
     .on_message = cn_rpc_health_check},                                                           \
        {.path = "/grpc.health.v1.Health/Watch",                                                   \
         .needs_no_key = true,                                                                     \
         .state_bytes = CN_RPC_HEALTH_STATE,                                                       \
         .on_message = cn_rpc_health_watch,                                                        \
         .on_gone = cn_rpc_health_gone,                                                            \
         .on_drain = cn_rpc_health_drain,                                                          \
         .on_free = cn_rpc_health_gone},                                                           \
        REFLECTION("v1"), REFLECTION("v1alpha")

#define INFERENCE "/org.pytorch.serve.grpc.inference.InferenceAPIsService/"

static const struct cn_grpc_method inference_methods[] = {
    {.path = INFERENCE "Ping", .on_message = cn_rpc_ping},
    {.path = INFERENCE "Predictions",
     .state_bytes = CN_RPC_PREDICT_STATE,
     .on_message = cn_rpc_predictions,
     .on_sent = cn_rpc_predict_sent,
     .on_gone = cn_rpc_predict_gone},
    {.path = INFERENCE "StreamPredictions",
     .state_bytes = CN_RPC_PREDICT_STATE,
     .on_message = cn_rpc_stream_predictions,
     .on_sent = cn_rpc_predict_sent,
     .on_gone = cn_rpc_predict_gone},
    {.path = INFERENCE "StreamPredictions2",
     .client_streams = true,
     .state_bytes = CN_RPC_STREAM_STATE,
     .on_open = cn_rpc_stream_open,
     .on_message = cn_rpc_stream_message,
     .on_half_close = cn_rpc_stream_half_close,
     .on_sent = cn_rpc_stream_sent,
     .on_gone = cn_rpc_stream_gone,
     .on_drain = cn_rpc_stream_drain},
    COMMON_METHODS,
    {.path = NULL},
};

#define MANAGEMENT "/org.pytorch.serve.grpc.management.ManagementAPIsService/"
#define MANAGE(name, function)                                                                     \
    {                                                                                              \
        .path = MANAGEMENT name, .home_only = true, .state_bytes = CN_RPC_MANAGEMENT_STATE,        \
        .on_message = function                                                                     \
    }

static const struct cn_grpc_method management_methods[] = {
    MANAGE("DescribeModel", cn_rpc_describe),
    MANAGE("ListModels", cn_rpc_list),
    MANAGE("RegisterModel", cn_rpc_register),
    MANAGE("ScaleWorker", cn_rpc_scale),
    MANAGE("SetDefault", cn_rpc_set_default),
    MANAGE("UnregisterModel", cn_rpc_unregister),
    COMMON_METHODS,
    {.path = NULL},
};

struct cn_rpc {
    struct cn_rpc_host host;
    struct cn_grpc *grpc;
};

/* Each port asks for the key of its own. */
static int
authorize(struct cn_grpc_call *call, struct cn_error *err)
{
    const struct cn_rpc_host *host = cn_grpc_call_host(call);
    bool is_management = cn_grpc_call_server(call) == host->servers[CN_GRPC_MANAGEMENT];
    const struct cn_header *headers, *header;
    uint32_t n;

    if (!host->config->token_auth)
        return 0;
    headers = cn_grpc_call_headers(call, &n);
    header = cn_http_find(headers, n, CN_STR("authorization"));
    return cn_management_authorize(host->management,
                                   is_management ? CN_TOKEN_MANAGEMENT : CN_TOKEN_INFERENCE,
                                   header ? header->value : (struct cn_str){NULL, 0}, err);
}

static int
create(const struct cn_http_shared *shared, struct cn_rpc **out, struct cn_error *err)
{
    const struct cn_server_config *config = shared->config;
    const struct cn_grpc_limits limits = {
        .message_bytes = config->max_request_bytes,
        .metadata_bytes = config->connection_memory_bytes,
        .calls = config->grpc_max_calls,
        .keepalive_ms = config->grpc_keepalive_ms,
        .write_ms = config->write_timeout_ms,
    };
    struct cn_rpc *rpc = cn_alloc(sizeof(*rpc));
    int rc;

    rpc->host.config = config;
    rpc->host.management = shared->management;
    rc = cn_grpc_create(&limits, shared->loops, shared->n_loops, &rpc->host, &rpc->grpc, err);
    if (rc) {
        cn_free(rpc);
        return rc;
    }
    rpc->host.servers[CN_GRPC_INFERENCE] = cn_grpc_serve(rpc->grpc, inference_methods, authorize);
    rpc->host.servers[CN_GRPC_MANAGEMENT] = cn_grpc_serve(rpc->grpc, management_methods, authorize);
    *out = rpc;
    return 0;
}

static void
connect_fd(struct cn_rpc *rpc, enum cn_grpc_port port, int fd)
{
    cn_grpc_server_connect(rpc->host.servers[port], fd);
}

static void
drain(struct cn_rpc *rpc, enum cn_grpc_port port)
{
    cn_grpc_server_drain(rpc->host.servers[port]);
}

static bool
is_empty(const struct cn_rpc *rpc, unsigned loop)
{
    return cn_grpc_is_empty(rpc->grpc, loop);
}

static void
cut(struct cn_rpc *rpc)
{
    cn_grpc_cut(rpc->grpc);
}

static void
destroy(struct cn_rpc *rpc)
{
    cn_grpc_destroy(rpc->grpc);
    cn_free(rpc);
}

extern const struct cn_grpc_module cn_grpc_module;
const struct cn_grpc_module cn_grpc_module = {
    .version = CN_VERSION,
    .create = create,
    .connect = connect_fd,
    .drain = drain,
    .is_empty = is_empty,
    .cut = cut,
    .destroy = destroy,
};
