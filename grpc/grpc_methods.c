/* grpc/grpc_methods.c - the methods of both gRPC ports, who may call them, and the functions by
 * which the server drives the ports.
 *
 * The tables below list each method with its callbacks. Adding a method means a row here and a
 * callback in the file of its service; everything else (metadata, limits, keys, drain) is done by
 * grpc/transport for all methods alike.
 */
#include "access/certificate/certificate.h"
#include "access/keys.h"
#include "config/server/server_config.h"
#include "core/memory/mem.h"
#include "frontend/intake/headers.h"
#include "grpc/grpc_health.h"
#include "grpc/kserve/grpc_repository.h"
#include "grpc/kserve/grpc_service.h"
#include "grpc/kserve/grpc_settings.h"
#include "grpc/kserve/grpc_shared_memory.h"
#include "grpc/kserve/infer.h"
#include "grpc/kserve/infer_stream.h"
#include "grpc/reflection.h"
#include "grpc/rpc.h"
#include "grpc/services.h"
#include "grpc/stream_window.h"
#include "grpc/torchserve/grpc_management.h"
#include "grpc/torchserve/grpc_predict.h"
#include "grpc/torchserve/grpc_stream.h"
#include "kserve/access.h"
#include "management/management.h"

/* Methods of both ports. Health checks need no key, because probes have none; reflection does. */
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

/* The v2 protocol's service, and the service under which TorchServe offers a part of it with the
 * same messages. */
#define V2 "/inference.GRPCInferenceService/"
#define OPEN "/org.pytorch.serve.grpc.openinference.GRPCInferenceService/"
/* The group of requests for which an option may require a header; 0: no group. */
#define GROUP(name) .group = CN_V2_##name + 1
#define ASK(name, of_group, function)                                                              \
    {                                                                                              \
        .path = name, GROUP(of_group), .any_models = true, .on_message = function                  \
    }
/* Concerns the memory of the server, and so all models. */
#define SHARE(name, function)                                                                      \
    {                                                                                              \
        .path = name, GROUP(SHARED_MEMORY), .on_message = function                                 \
    }
#define ORDER(name, changes, function)                                                             \
    {                                                                                              \
        .path = V2 name, .state_bytes = CN_RPC_V2_REPOSITORY_STATE, GROUP(MODEL_REPOSITORY),       \
        .administers = changes, .any_models = changes, .on_message = function                      \
    }
#define SETTINGS(name, of_group, function)                                                         \
    {                                                                                              \
        .path = name, GROUP(of_group), .administers = true, .on_message = function                 \
    }
#define FACTS(service)                                                                             \
    ASK(service "ServerLive", HEALTH, cn_rpc_v2_server_live),                                      \
        ASK(service "ServerReady", HEALTH, cn_rpc_v2_server_ready),                                \
        ASK(service "ModelReady", HEALTH, cn_rpc_v2_model_ready),                                  \
        ASK(service "ServerMetadata", METADATA, cn_rpc_v2_server_metadata)

static const struct cn_grpc_method inference_methods[] = {
    {.path = INFERENCE "Ping", .tells_health = true, .any_models = true, .on_message = cn_rpc_ping},
    {.path = INFERENCE "Predictions",
     .any_models = true,
     .state_bytes = CN_RPC_PREDICT_STATE,
     .on_message = cn_rpc_predictions,
     .on_sent = cn_rpc_predict_sent,
     .on_gone = cn_rpc_predict_gone},
    {.path = INFERENCE "StreamPredictions",
     .any_models = true,
     .state_bytes = CN_RPC_PREDICT_STATE,
     .on_message = cn_rpc_stream_predictions,
     .on_sent = cn_rpc_predict_sent,
     .on_gone = cn_rpc_predict_gone},
    {.path = INFERENCE "StreamPredictions2",
     .any_models = true,
     .client_streams = true,
     .state_bytes = CN_RPC_STREAM_STATE,
     .on_open = cn_rpc_stream_open,
     .on_message = cn_rpc_stream_message,
     .on_half_close = cn_rpc_intake_half_close,
     .on_sent = cn_rpc_stream_sent,
     .on_gone = cn_rpc_stream_gone,
     .on_drain = cn_rpc_intake_drain},
    {.path = V2 "ModelInfer",
     .any_models = true,
     GROUP(INFERENCE),
     .state_bytes = CN_RPC_INFER_STATE,
     .on_message = cn_rpc_infer_message,
     .on_gone = cn_rpc_infer_gone},
    {.path = V2 "ModelStreamInfer",
     .any_models = true,
     GROUP(INFERENCE),
     .client_streams = true,
     .state_bytes = CN_RPC_INFER_STREAM_STATE,
     .on_open = cn_rpc_infer_stream_open,
     .on_message = cn_rpc_infer_stream_message,
     .on_half_close = cn_rpc_intake_half_close,
     .on_sent = cn_rpc_infer_stream_sent,
     .on_gone = cn_rpc_infer_stream_gone,
     .on_drain = cn_rpc_intake_drain},
    FACTS(V2),
    ASK(V2 "ModelMetadata", METADATA, cn_rpc_v2_model_metadata),
    ASK(V2 "ModelConfig", MODEL_CONFIG, cn_rpc_v2_model_config),
    ASK(V2 "ModelStatistics", STATISTICS, cn_rpc_v2_statistics),
    ORDER("RepositoryIndex", false, cn_rpc_v2_index),
    ORDER("RepositoryModelLoad", true, cn_rpc_v2_load),
    ORDER("RepositoryModelUnload", true, cn_rpc_v2_unload),
    SETTINGS(V2 "TraceSetting", TRACE, cn_rpc_v2_trace_setting),
    SETTINGS(V2 "LogSettings", LOGGING, cn_rpc_v2_log_settings),
    SHARE(V2 "SystemSharedMemoryStatus", cn_rpc_v2_shm_status),
    SHARE(V2 "SystemSharedMemoryRegister", cn_rpc_v2_shm_register),
    SHARE(V2 "SystemSharedMemoryUnregister", cn_rpc_v2_shm_unregister),
    SHARE(V2 "CudaSharedMemoryStatus", cn_rpc_v2_cuda_status),
    SHARE(V2 "CudaSharedMemoryRegister", cn_rpc_v2_cuda_register),
    SHARE(V2 "CudaSharedMemoryUnregister", cn_rpc_v2_cuda_unregister),
    {.path = OPEN "ModelInfer",
     .any_models = true,
     GROUP(INFERENCE),
     .state_bytes = CN_RPC_INFER_STATE,
     .on_message = cn_rpc_infer_open,
     .on_gone = cn_rpc_infer_gone},
    FACTS(OPEN),
    ASK(OPEN "ModelMetadata", METADATA, cn_rpc_open_model_metadata),
    COMMON_METHODS,
    {.path = NULL},
};

#define MANAGEMENT "/org.pytorch.serve.grpc.management.ManagementAPIsService/"
/* The management API, which these methods call, checks the model. */
#define MANAGE(name, changes, function)                                                            \
    {                                                                                              \
        .path = MANAGEMENT name, .home_only = true, .state_bytes = CN_RPC_MANAGEMENT_STATE,        \
        .administers = changes, .any_models = true, .on_message = function                         \
    }

static const struct cn_grpc_method management_methods[] = {
    MANAGE("DescribeModel", false, cn_rpc_describe),
    MANAGE("ListModels", false, cn_rpc_list),
    MANAGE("RegisterModel", true, cn_rpc_register),
    MANAGE("ScaleWorker", true, cn_rpc_scale),
    MANAGE("SetDefault", true, cn_rpc_set_default),
    MANAGE("UnregisterModel", true, cn_rpc_unregister),
    COMMON_METHODS,
    {.path = NULL},
};

struct cn_rpc {
    struct cn_rpc_host host;
    struct cn_grpc *grpc;
    struct cn_grpc_server *servers[CN_N_GRPC];
};

/* Finds the certificate of the call's client, whether or not that also sends a key: an expired one
 * is refused. NULL: the client has none. */
static int
take_certificate(struct cn_grpc_call *call, const struct cn_certificate **out, struct cn_error *err)
{
    *out = cn_grpc_call_certificate(call);
    return *out ? cn_certificate_check_time(*out, err) : 0;
}

/* What the client has shown: a key in the call's metadata, or a certificate. */
static void
take_credentials(struct cn_grpc_call *call, const struct cn_certificate *certificate,
                 struct cn_credentials *out)
{
    const struct cn_header *headers, *header;
    uint32_t n;

    headers = cn_grpc_call_headers(call, &n);
    header = cn_header_find(headers, n, CN_STR("authorization"));
    cn_certificate_credentials(header ? &header->value : NULL, certificate, out);
}

/* Checks the client's certificate and, if the server requires keys, the key. */
static int
authorize(struct cn_grpc_call *call, enum cn_token_kind token, unsigned scopes,
          struct cn_error *err)
{
    const struct cn_rpc_host *host = cn_grpc_call_host(call);
    const struct cn_key *key = NULL;
    const struct cn_certificate *certificate;
    struct cn_credentials shown;
    int rc = take_certificate(call, &certificate, err);

    if (rc || !cn_server_needs_keys(host->config))
        return rc;
    take_credentials(call, certificate, &shown);
    rc = cn_management_authorize(host->management, token, scopes, &shown, &key, err);
    cn_grpc_call_set_key(call, key); /* also if it is refused: for the log */
    if (rc)
        return rc;
    if (cn_grpc_call_method(call)->any_models)
        return 0;
    return cn_management_check_model(host->management, key, CN_STR(""), err);
}

/* Returns which scopes suffice for a method of the inference port: reading what the v2 protocol
 * says of models and of the server needs no particular one. */
static unsigned
scopes_of(const struct cn_grpc_method *method)
{
    if (method->administers)
        return CN_SCOPE_MANAGE;
    switch (method->group) {
    case CN_V2_HEALTH + 1:
    case CN_V2_METADATA + 1:
    case CN_V2_MODEL_CONFIG + 1:
    case CN_V2_STATISTICS + 1:
    case CN_V2_MODEL_REPOSITORY + 1:
        return CN_SCOPE_ANY;
    default:
        return method->tells_health ? CN_SCOPE_ANY : CN_SCOPE_INFER;
    }
}

int
cn_rpc_check_model(struct cn_grpc_call *call, struct cn_str model, struct cn_error *err)
{
    const struct cn_rpc_host *host = cn_grpc_call_host(call);
    const struct cn_certificate *certificate;
    int rc = take_certificate(call, &certificate, err);

    if (!rc)
        rc = cn_management_check_key(host->management, cn_grpc_call_key(call),
                                     scopes_of(cn_grpc_call_method(call)), err);
    return rc ? rc
              : cn_management_check_model(host->management, cn_grpc_call_key(call), model, err);
}

/* Also checks the header that a group of the v2 protocol may require. */
static int
authorize_inference(struct cn_grpc_call *call, struct cn_error *err)
{
    const struct cn_grpc_method *method = cn_grpc_call_method(call);
    const struct cn_header *headers;
    uint32_t n;
    int rc = authorize(call, method->administers ? CN_TOKEN_MANAGEMENT : CN_TOKEN_INFERENCE,
                       scopes_of(method), err);

    if (rc || !method->group)
        return rc;
    headers = cn_grpc_call_headers(call, &n);
    return cn_v2_access_check(CN_V2_GRPC, (enum cn_v2_group)(method->group - 1), headers, n, err);
}

static int
authorize_management(struct cn_grpc_call *call, struct cn_error *err)
{
    const struct cn_grpc_method *method = cn_grpc_call_method(call);

    return authorize(call, CN_TOKEN_MANAGEMENT,
                     method->administers ? CN_SCOPE_MANAGE : CN_SCOPE_OBSERVE | CN_SCOPE_MANAGE,
                     err);
}

/* --- what the server calls */

struct cn_rpc *
cn_rpc_create(const struct cn_rpc_host *host)
{
    const struct cn_server_config *config = host->config;
    const struct cn_grpc_limits limits = {
        .message_bytes = config->max_v2_request_bytes,
        .metadata_bytes = config->connection_memory_bytes,
        .calls = config->grpc_max_calls,
        .streams = config->grpc_max_streams < config->grpc_max_calls ? config->grpc_max_streams
                                                                     : config->grpc_max_calls,
        .memory_bytes = config->grpc_memory_bytes,
        .handshake_ms = config->header_timeout_ms,
        .resets = config->grpc_max_resets,
        .keepalive_ms = config->grpc_keepalive_ms,
        .compress_bytes = config->compress_bytes,
        .read_ms = config->body_timeout_ms,
        .write_ms = config->write_timeout_ms,
        .needs_certificate = config->require_client_certificate,
    };
    struct cn_rpc *rpc = cn_alloc(sizeof(*rpc));

    rpc->host = *host;
    rpc->grpc = cn_grpc_create(&limits, host->loops, host->n_loops, &rpc->host);
    rpc->servers[CN_GRPC_INFERENCE] =
        cn_grpc_serve(rpc->grpc, CN_GRPC_INFERENCE, inference_methods, authorize_inference);
    rpc->servers[CN_GRPC_MANAGEMENT] =
        cn_grpc_serve(rpc->grpc, CN_GRPC_MANAGEMENT, management_methods, authorize_management);
    return rpc;
}

void
cn_rpc_connect(struct cn_rpc *rpc, enum cn_grpc_port port, int fd, bool is_tls,
               struct cn_client_address *from)
{
    cn_grpc_server_connect(rpc->servers[port], fd, is_tls, from);
}

uint32_t
cn_rpc_n_open(const struct cn_rpc *rpc, enum cn_grpc_port port)
{
    return cn_grpc_server_open(rpc->servers[port]);
}

void
cn_rpc_drain(struct cn_rpc *rpc, enum cn_grpc_port port)
{
    cn_grpc_server_drain(rpc->servers[port]);
}

bool
cn_rpc_is_empty(const struct cn_rpc *rpc, unsigned loop)
{
    return cn_grpc_is_empty(rpc->grpc, loop);
}

void
cn_rpc_cut(struct cn_rpc *rpc)
{
    cn_grpc_cut(rpc->grpc);
}

void
cn_rpc_destroy(struct cn_rpc *rpc)
{
    if (!rpc)
        return;
    cn_grpc_destroy(rpc->grpc);
    cn_free(rpc);
}
