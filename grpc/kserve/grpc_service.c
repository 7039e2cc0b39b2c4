/* grpc/kserve/grpc_service.c - health, metadata, configuration and statistics of the v2 protocol
 * over gRPC. On the call's loop.
 *
 * The messages about models are made from the JSON that HTTP clients get, so both always report the
 * same.
 */
#include "grpc/kserve/grpc_service.h"

#include <v2_inference.pb-c.h>

#include "grpc/error_status.h"
#include "grpc/services.h"
#include "grpc/unary.h"
#include "kserve/models/kserve_models.h"
#include "management/management.h"
#include "metrics/page/model_statistics.h"

static struct cn_management *
management_of(struct cn_grpc_call *call)
{
    const struct cn_rpc_host *host = cn_grpc_call_host(call);

    return host->management;
}

/* Ends the call with the JSON as a message of `type`, or, if there is none, with the error `rc`.
 * Frees the JSON. */
static void
reply_json(struct cn_grpc_call *call, const ProtobufCMessageDescriptor *type, struct cn_buf *json,
           int rc, struct cn_error *err)
{
    if (rc) {
        cn_rpc_fail(call, rc, err->message, 0);
        cn_buf_fini(json);
        return;
    }
    cn_rpc_reply_json(call, type, json);
}

/* Fails the call if its named key may not use the model; an empty name stands for all of them. */
static bool
is_refused(struct cn_grpc_call *call, const char *model)
{
    struct cn_error err;

    if (cn_rpc_check_model(call, cn_str_from(model), &err) == 0)
        return false;
    cn_rpc_fail(call, err.code, err.message, 0);
    return true;
}

/* --- health */

void
cn_rpc_v2_server_live(struct cn_grpc_call *call, const struct cn_grpc_message *message)
{
    Inference__ServerLiveResponse response = INFERENCE__SERVER_LIVE_RESPONSE__INIT;

    (void)message; /* empty */
    response.live = true;
    cn_rpc_reply(call, &response.base);
}

void
cn_rpc_v2_server_ready(struct cn_grpc_call *call, const struct cn_grpc_message *message)
{
    Inference__ServerReadyResponse response = INFERENCE__SERVER_READY_RESPONSE__INIT;

    (void)message; /* empty */
    response.ready = cn_management_healthy(management_of(call));
    cn_rpc_reply(call, &response.base);
}

void
cn_rpc_v2_model_ready(struct cn_grpc_call *call, const struct cn_grpc_message *message)
{
    const Inference__ModelReadyRequest *request =
        cn_rpc_take(call, message, &inference__model_ready_request__descriptor);
    Inference__ModelReadyResponse response = INFERENCE__MODEL_READY_RESPONSE__INIT;
    struct cn_error err;
    bool ready = false;

    if (!request || is_refused(call, request->name))
        return;
    cn_v2_model_is_ready(management_of(call), cn_str_from(request->name),
                         cn_str_from(request->version), &ready, &err); /* missing: not ready */
    response.ready = ready;
    cn_rpc_reply(call, &response.base);
}

/* --- metadata, configuration, statistics */

void
cn_rpc_v2_server_metadata(struct cn_grpc_call *call, const struct cn_grpc_message *message)
{
    struct cn_error err;
    struct cn_buf json;

    (void)message; /* empty */
    cn_buf_init(&json, 0);
    cn_v2_write_server(&json);
    reply_json(call, &inference__server_metadata_response__descriptor, &json, 0, &err);
}

static void
model_metadata(struct cn_grpc_call *call, const struct cn_grpc_message *message, bool is_open)
{
    const Inference__ModelMetadataRequest *request =
        cn_rpc_take(call, message, &inference__model_metadata_request__descriptor);
    struct cn_error err;
    struct cn_buf json;
    int rc;

    if (!request || is_refused(call, request->name))
        return;
    cn_buf_init(&json, 0);
    rc = (is_open ? cn_v2_write_any_model
                  : cn_v2_write_model)(management_of(call), cn_str_from(request->name),
                                       cn_str_from(request->version), &json, &err);
    reply_json(call, &inference__model_metadata_response__descriptor, &json, rc, &err);
}

void
cn_rpc_v2_model_metadata(struct cn_grpc_call *call, const struct cn_grpc_message *message)
{
    model_metadata(call, message, false);
}

void
cn_rpc_open_model_metadata(struct cn_grpc_call *call, const struct cn_grpc_message *message)
{
    model_metadata(call, message, true);
}

void
cn_rpc_v2_model_config(struct cn_grpc_call *call, const struct cn_grpc_message *message)
{
    const Inference__ModelConfigRequest *request =
        cn_rpc_take(call, message, &inference__model_config_request__descriptor);
    struct cn_error err;
    struct cn_buf json;
    int rc;

    if (!request || is_refused(call, request->name))
        return;
    cn_buf_init(&json, 0);
    cn_buf_puts(&json, "{\"config\":");
    rc = cn_v2_write_model_config(management_of(call), cn_str_from(request->name),
                                  cn_str_from(request->version), &json, &err);
    cn_buf_puts(&json, "}");
    reply_json(call, &inference__model_config_response__descriptor, &json, rc, &err);
}

void
cn_rpc_v2_statistics(struct cn_grpc_call *call, const struct cn_grpc_message *message)
{
    const Inference__ModelStatisticsRequest *request =
        cn_rpc_take(call, message, &inference__model_statistics_request__descriptor);
    struct cn_v2_model_stats *models;
    struct cn_error err;
    struct cn_buf json;
    uint32_t n;
    int rc;

    if (!request || is_refused(call, request->name))
        return;
    cn_buf_init(&json, 0);
    rc = cn_v2_stats_collect(management_of(call), cn_str_from(request->name),
                             cn_str_from(request->version), cn_grpc_call_arena(call), &models, &n,
                             &err);
    if (!rc)
        cn_v2_write_stats(models, n, &json);
    reply_json(call, &inference__model_statistics_response__descriptor, &json, rc, &err);
}
