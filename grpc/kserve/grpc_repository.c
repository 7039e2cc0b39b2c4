/* grpc/kserve/grpc_repository.c - load, unload and index of the v2 protocol over gRPC. On the
 * call's loop.
 *
 * An order goes to loop 0 and comes back. The call is held until then, even if its client leaves.
 */
#include "grpc/kserve/grpc_repository.h"

#include <v2_inference.pb-c.h>

#include "grpc/error_status.h"
#include "grpc/services.h"
#include "grpc/unary.h"
#include "kserve/models/kserve_index.h"
#include "kserve/repository_requests.h"
#include "management/repository/repository.h"

struct repository {
    struct cn_repository_order order;
    struct cn_grpc_call *call;
};
_Static_assert(sizeof(struct repository) <= CN_RPC_V2_REPOSITORY_STATE,
               "the state's size is too small");

static void
reply(struct cn_grpc_call *call, const struct cn_repository_order *order)
{
    const Inference__RepositoryModelLoadResponse loaded =
        INFERENCE__REPOSITORY_MODEL_LOAD_RESPONSE__INIT;
    const Inference__RepositoryModelUnloadResponse unloaded =
        INFERENCE__REPOSITORY_MODEL_UNLOAD_RESPONSE__INIT;
    struct cn_buf json;

    switch (order->what) {
    case CN_REPOSITORY_LOAD:
        cn_rpc_reply(call, &loaded.base);
        break;
    case CN_REPOSITORY_UNLOAD:
        cn_rpc_reply(call, &unloaded.base);
        break;
    case CN_REPOSITORY_INDEX:
        cn_buf_init(&json, 0);
        cn_buf_puts(&json, "{\"models\":");
        cn_v2_write_repository_index(order, &json);
        cn_buf_puts(&json, "}");
        cn_rpc_reply_json(call, &inference__repository_index_response__descriptor, &json);
        break;
    }
}

static void
on_done(struct cn_repository_order *order)
{
    struct cn_grpc_call *call = cn_container_of(order, struct repository, order)->call;

    if (order->err.code)
        cn_rpc_fail(call, order->err.code, order->err.message, 0);
    else
        reply(call, order);
    cn_grpc_call_release(call);
}

/* Makes the order of the call, without running it. Returns NULL, and fails the call, when the
 * request names a repository: there is only one, without a name. */
static struct cn_repository_order *
make_order(struct cn_grpc_call *call, enum cn_repository_what what, const char *repository)
{
    struct repository *state = cn_grpc_call_state(call);

    if (*repository) {
        cn_rpc_fail(call, CN_E_UNIMPLEMENTED, "'repository_name' specification is not supported",
                    0);
        return NULL;
    }
    state->call = call;
    state->order.what = what;
    state->order.origin = cn_grpc_call_loop(call);
    state->order.on_done = on_done;
    return &state->order;
}

static void
run(struct cn_grpc_call *call, struct cn_repository_order *order)
{
    const struct cn_rpc_host *host = cn_grpc_call_host(call);
    struct cn_error err;

    if (cn_rpc_check_model(call, order->name, &err)) {
        cn_rpc_fail(call, err.code, err.message, 0);
        return;
    }
    cn_grpc_call_hold(call);
    cn_repository_run(host->management, order);
}

void
cn_rpc_v2_index(struct cn_grpc_call *call, const struct cn_grpc_message *message)
{
    const Inference__RepositoryIndexRequest *request =
        cn_rpc_take(call, message, &inference__repository_index_request__descriptor);
    struct cn_repository_order *order;

    if (!request || !(order = make_order(call, CN_REPOSITORY_INDEX, request->repository_name)))
        return;
    order->ready_only = request->ready;
    run(call, order);
}

static int
take_parameter(const Inference__RepositoryModelLoadRequest__ParametersEntry *entry,
               struct cn_str *config, struct cn_error *err)
{
    const Inference__ModelRepositoryParameter *value = entry->value;

    if (strcmp(entry->key, "config") != 0)
        return strncmp(entry->key, "file:", 5) == 0
                   ? cn_v2_check_load_parameter(cn_str_from(entry->key), err)
                   : cn_fail(err, CN_E_BAD_REQUEST, "unrecognized load parameter '%s'.",
                             entry->key);
    if (!value || value->parameter_choice_case !=
                      INFERENCE__MODEL_REPOSITORY_PARAMETER__PARAMETER_CHOICE_STRING_PARAM)
        return cn_fail(err, CN_E_BAD_REQUEST,
                       "invalid value type for load parameter 'config', expected string_param.");
    *config = cn_str_from(value->string_param);
    return 0;
}

void
cn_rpc_v2_load(struct cn_grpc_call *call, const struct cn_grpc_message *message)
{
    const Inference__RepositoryModelLoadRequest *request =
        cn_rpc_take(call, message, &inference__repository_model_load_request__descriptor);
    struct cn_repository_order *order;
    struct cn_error err;

    if (!request || !(order = make_order(call, CN_REPOSITORY_LOAD, request->repository_name)))
        return;
    order->name = cn_str_from(request->model_name);
    for (size_t i = 0; i < request->n_parameters; i++)
        if (take_parameter(request->parameters[i], &order->config, &err)) {
            cn_rpc_fail(call, err.code, err.message, 0);
            return;
        }
    run(call, order);
}

/* Models have no dependents here, so unload_dependents is checked but has no effect. */
void
cn_rpc_v2_unload(struct cn_grpc_call *call, const struct cn_grpc_message *message)
{
    const Inference__RepositoryModelUnloadRequest *request =
        cn_rpc_take(call, message, &inference__repository_model_unload_request__descriptor);
    struct cn_repository_order *order;

    if (!request || !(order = make_order(call, CN_REPOSITORY_UNLOAD, request->repository_name)))
        return;
    order->name = cn_str_from(request->model_name);
    for (size_t i = 0; i < request->n_parameters; i++) {
        const Inference__ModelRepositoryParameter *value = request->parameters[i]->value;

        if (strcmp(request->parameters[i]->key, "unload_dependents") == 0 &&
            (!value || value->parameter_choice_case !=
                           INFERENCE__MODEL_REPOSITORY_PARAMETER__PARAMETER_CHOICE_BOOL_PARAM)) {
            cn_rpc_fail(call, CN_E_BAD_REQUEST,
                        "invalid value type for 'unload_dependents' parameter, expected "
                        "bool_param.",
                        0);
            return;
        }
    }
    run(call, order);
}
