/* grpc/torchserve/grpc_management.c - TorchServe's management service. It uses the same API as
 * HTTP. Loop 0.
 *
 * A message becomes the request that a REST client would have sent, and the message of the reply
 * becomes the response's `msg`. So both have the same checks, effects and messages.
 */
#include "grpc/torchserve/grpc_management.h"

#include <jansson.h>
#include <management.pb-c.h>

#include "config/server/server_config.h"
#include "core/errors/panic.h"
#include "grpc/error_status.h"
#include "grpc/protobuf_message.h"
#include "grpc/services.h"
#include "grpc/unary.h"
#include "management/management.h"

#define QUERY_MAX 12

struct manage {
    struct cn_api_request api;
    struct cn_grpc_call *call;
    bool wants_json; /* return the whole reply, and not only its one sentence */
};
_Static_assert(sizeof(struct manage) <= CN_RPC_MANAGEMENT_STATE, "the state's size is too small");

/* Returns a member of the reply, which is an object. */
static const char *
member(json_t *reply, const char *name)
{
    const char *text = json_string_value(json_object_get(reply, name));

    return text ? text : "";
}

static void
answer(struct cn_grpc_call *call, struct cn_str text)
{
    const struct cn_grpc_status ok = {0};
    char head[CN_RPC_FIELD_MAX];
    struct cn_grpc_outgoing out = {.body = text};

    out.head = (struct cn_str){head, (size_t)(cn_rpc_put_head(head, 1, text.len) - head)};
    cn_grpc_call_finish(call, &out, &ok);
}

static void
on_reply(struct cn_api_request *api, int http_status, struct cn_str json)
{
    struct manage *manage = cn_container_of(api, struct manage, api);
    struct cn_grpc_call *call = manage->call;
    json_t *reply;

    if (http_status < 400 && manage->wants_json) {
        while (json.len > 0 && json.ptr[json.len - 1] == '\n')
            json.len--;
        answer(call, json);
    } else {
        reply = json_loadb(json.ptr, json.len, 0, NULL);
        if (http_status < 400)
            answer(call, cn_str_from(member(reply, "status")));
        else
            cn_rpc_fail(call, api->error_code ? api->error_code : CN_E_INTERNAL,
                        member(reply, "message"), 0);
        json_decref(reply);
    }
    cn_grpc_call_release(call);
}

/* --- messages become requests */

/* Returns the unpacked message, or NULL if the call was refused. */
static void *
read_message(struct cn_grpc_call *call, const struct cn_grpc_message *message,
             const ProtobufCMessageDescriptor *type)
{
    struct manage *manage = cn_grpc_call_state(call);

    manage->call = call;
    return cn_rpc_take(call, message, type);
}

static void
add(struct cn_api_request *api, const char *name, const char *value)
{
    cn_assert(api->n_query < QUERY_MAX);
    api->query[api->n_query++] = (struct cn_header){cn_str_from(name), cn_str_from(value)};
}

static void
add_text(struct cn_api_request *api, const char *name, const char *value)
{
    if (value[0])
        add(api, name, value);
}

static void
add_flag(struct cn_api_request *api, const char *name, bool value)
{
    add(api, name, value ? "true" : "false");
}

/* Adds a number to the query. 0 and negative numbers mean the default. */
static void
add_number(struct manage *manage, const char *name, int32_t value)
{
    if (value > 0)
        add(&manage->api, name,
            cn_arena_printf(cn_grpc_call_arena(manage->call), "%d", (int)value));
}

/* Sets the path "/models/NAME[/VERSION]". Returns false if the call was refused. */
static bool
set_path(struct manage *manage, const char *name, const char *version)
{
    struct cn_arena *arena = cn_grpc_call_arena(manage->call);
    const char *path;

    if (!name[0]) {
        cn_rpc_fail(manage->call, CN_E_BAD_REQUEST, "Parameter model_name is required.", 0);
        return false;
    }
    if (strchr(name, '/') || strchr(version, '/')) { /* a slash would make it another path */
        cn_rpc_fail(manage->call, CN_E_MODEL_NOT_FOUND,
                    cn_arena_printf(arena, "Model not found: %.256s", name), 0);
        return false;
    }
    path = cn_arena_printf(arena, "/models/%s%s%s", name, version[0] ? "/" : "", version);
    manage->api.path = cn_str_from(path);
    return true;
}

static struct manage *
begin(struct cn_grpc_call *call, const char *method)
{
    struct manage *manage = cn_grpc_call_state(call);

    manage->api.method = cn_str_from(method);
    manage->api.query =
        cn_arena_alloc(cn_grpc_call_arena(call), QUERY_MAX * sizeof(*manage->api.query));
    return manage;
}

/* Refuses the call with TorchServe's status and message. Over REST the answer would be 405. */
static bool
is_switched_off(struct manage *manage)
{
    const struct cn_rpc_host *host = cn_grpc_call_host(manage->call);
    const struct cn_server_config *config = host->config;

    if (config->model_api || config->dialect != CN_DIALECT_TORCHSERVE)
        return false;
    cn_rpc_fail_with(manage->call,
                     &(struct cn_rpc_failure){.code = CN_E_METHOD_NOT_ALLOWED,
                                              .message = "Model API disabled",
                                              .grpc_status = CN_GRPC_PERMISSION_DENIED});
    return true;
}

static void
go(struct manage *manage)
{
    const struct cn_rpc_host *host = cn_grpc_call_host(manage->call);

    manage->api.key = cn_grpc_call_key(manage->call);
    manage->api.on_reply = on_reply;
    cn_grpc_call_hold(manage->call);
    cn_management_handle(host->management, &manage->api);
}

/* --- the methods */

#define READ(call, message, type)                                                                  \
    read_message(call, message, &org__pytorch__serve__grpc__management__##type##__descriptor)

void
cn_rpc_describe(struct cn_grpc_call *call, const struct cn_grpc_message *message)
{
    Org__Pytorch__Serve__Grpc__Management__DescribeModelRequest *request =
        READ(call, message, describe_model_request);
    struct manage *manage = begin(call, "GET");

    if (!request || !set_path(manage, request->model_name, request->model_version))
        return;
    add_flag(&manage->api, "customized", request->customized);
    manage->wants_json = true;
    go(manage);
}

void
cn_rpc_list(struct cn_grpc_call *call, const struct cn_grpc_message *message)
{
    Org__Pytorch__Serve__Grpc__Management__ListModelsRequest *request =
        READ(call, message, list_models_request);
    struct manage *manage = begin(call, "GET");
    struct cn_arena *arena = cn_grpc_call_arena(call);

    if (!request)
        return;
    manage->api.path = CN_STR("/models");
    add(&manage->api, "limit", cn_arena_printf(arena, "%d", (int)request->limit));
    add(&manage->api, "next_page_token",
        cn_arena_printf(arena, "%d", (int)request->next_page_token));
    manage->wants_json = true;
    go(manage);
}

void
cn_rpc_register(struct cn_grpc_call *call, const struct cn_grpc_message *message)
{
    Org__Pytorch__Serve__Grpc__Management__RegisterModelRequest *request =
        READ(call, message, register_model_request);
    struct manage *manage = begin(call, "POST");

    if (!request || is_switched_off(manage))
        return;
    manage->api.path = CN_STR("/models");
    add_text(&manage->api, "url", request->url);
    add_text(&manage->api, "model_name", request->model_name);
    add_text(&manage->api, "handler", request->handler);
    add_text(&manage->api, "runtime", request->runtime);
    add_number(manage, "batch_size", request->batch_size);
    add_number(manage, "max_batch_delay", request->max_batch_delay);
    add_number(manage, "initial_workers", request->initial_workers);
    add_number(manage, "response_timeout", request->response_timeout);
    add_number(manage, "startup_timeout", request->startup_timeout);
    add_flag(&manage->api, "synchronous", request->synchronous);
    if (request->s3_sse_kms)
        add_flag(&manage->api, "s3_sse_kms", true);
    go(manage);
}

void
cn_rpc_scale(struct cn_grpc_call *call, const struct cn_grpc_message *message)
{
    Org__Pytorch__Serve__Grpc__Management__ScaleWorkerRequest *request =
        READ(call, message, scale_worker_request);
    struct manage *manage = begin(call, "PUT");

    if (!request || !set_path(manage, request->model_name, request->model_version))
        return;
    add_number(manage, "min_worker", request->min_worker);
    add_number(manage, "max_worker", request->max_worker);
    add_flag(&manage->api, "synchronous", request->synchronous);
    go(manage);
}

void
cn_rpc_set_default(struct cn_grpc_call *call, const struct cn_grpc_message *message)
{
    Org__Pytorch__Serve__Grpc__Management__SetDefaultRequest *request =
        READ(call, message, set_default_request);
    struct manage *manage = begin(call, "PUT");

    if (!request)
        return;
    if (request->model_name[0] && !request->model_version[0]) {
        cn_rpc_fail(call, CN_E_BAD_REQUEST, "Parameter model_version is required.", 0);
        return;
    }
    if (!set_path(manage, request->model_name, request->model_version))
        return;
    manage->api.path = cn_str_from(cn_arena_printf(cn_grpc_call_arena(call), "%.*s/set-default",
                                                   CN_STR_ARG(manage->api.path)));
    go(manage);
}

void
cn_rpc_unregister(struct cn_grpc_call *call, const struct cn_grpc_message *message)
{
    Org__Pytorch__Serve__Grpc__Management__UnregisterModelRequest *request =
        READ(call, message, unregister_model_request);
    struct manage *manage = begin(call, "DELETE");

    if (!request || is_switched_off(manage) ||
        !set_path(manage, request->model_name, request->model_version))
        return;
    go(manage);
}
