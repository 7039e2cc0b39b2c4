/* management/api/model_requests.c - requests about models: listed, registered, scaled, made the
 * default and unregistered. Loop 0.
 *
 * Each function reads the parameters of its endpoint, stops if one of them is wrong, and starts the
 * work with a callback that answers. A change is answered only after it is in a snapshot on the
 * disk, if there are snapshots (cn_snapshot_wait).
 */
#include "management/api/model_requests.h"

#include "management/api/describe.h"
#include "management/api/json/json_text.h"
#include "management/cluster/cluster.h"
#include "management/models/lifecycle.h"

#define WORKERS_MAX 1024
#define SWAP_DEADLINE_MAX_S 31536000

static void
on_written(struct cn_snapshot_wait *wait)
{
    struct cn_api_call *call = cn_container_of(wait, struct cn_api_call, wait);

    cn_api_answer(call, call->answer_status, call->answer);
}

static void
on_lifecycle(void *ctx, const struct cn_lifecycle_result *result)
{
    struct cn_api_call *call = ctx;
    json_t *value;

    if (result->code) {
        cn_api_fail(call, result->code, result->text);
        return;
    }
    value = json_object();
    json_object_set_new(value, "status", cn_json_text(result->text));
    call->answer = value;
    call->answer_status = result->http_status;
    call->wait.done = on_written;
    cn_snapshot_wait(call->management, &call->wait);
}

void
cn_api_list_models(struct cn_api_call *call)
{
    int64_t limit = cn_api_param_number(call, "limit", INT32_MAX);
    int64_t from = cn_api_param_number(call, "next_page_token", INT32_MAX);

    call->err.code = 0; /* as in TorchServe, a wrong number means the default */
    if (limit < 0 || limit > CN_API_LIST_LIMIT)
        limit = CN_API_LIST_LIMIT;
    if (from < 0)
        from = 0;
    cn_api_answer(call, 200, cn_describe_list(call->management, (unsigned)limit, (unsigned)from));
}

void
cn_api_register_model(struct cn_api_call *call)
{
    struct cn_register_call reg = {
        .request =
            {
                .url = cn_api_param(call, "url"),
                .model_name = cn_api_param(call, "model_name"),
                .handler = cn_api_param(call, "handler"),
                .runtime = cn_api_param(call, "runtime"),
                .batch_size = cn_api_param_setting(call, "batch_size", 1, INT32_MAX),
                .max_batch_delay_ms = cn_api_param_setting(call, "max_batch_delay", 0, INT32_MAX),
                .initial_workers = cn_api_param_setting(call, "initial_workers", 0, WORKERS_MAX),
                .response_timeout_s = cn_api_param_setting(call, "response_timeout", 1, INT32_MAX),
                .startup_timeout_s = cn_api_param_setting(call, "startup_timeout", 1, INT32_MAX),
                .max_workers = -1,
            },
        .synchronous = cn_api_param_bool(call, "synchronous", true),
    };

    if (!cn_api_params_fine(call))
        return;
    if (!reg.request.url) {
        cn_api_fail(call, CN_E_BAD_REQUEST, "Parameter url is required.");
        return;
    }
    cn_cluster_register(call->management, &reg, on_lifecycle, call);
}

void
cn_api_scale_model(struct cn_api_call *call, const char *version)
{
    int64_t min = cn_api_param_number(call, "min_worker", WORKERS_MAX);
    int64_t max = cn_api_param_number(call, "max_worker", WORKERS_MAX);
    struct cn_scale_call scale = {
        .name = call->parts[1],
        .version = version ? version : cn_api_param(call, "model_version"),
        .synchronous = cn_api_param_bool(call, "synchronous", false),
    };

    if (!cn_api_params_fine(call))
        return;
    scale.min = min < 0 ? 1 : (uint32_t)min;
    scale.max = max < 0 ? scale.min : (uint32_t)max;
    if (scale.max < scale.min) {
        cn_api_fail(call, CN_E_BAD_REQUEST, "max_worker cannot be less than min_worker.");
        return;
    }
    cn_cluster_scale(call->management, &scale, on_lifecycle, call);
}

void
cn_api_set_default(struct cn_api_call *call, const char *name, const char *version)
{
    const char *policy = cn_api_param(call, "swap_policy");
    int64_t deadline_s = cn_api_param_number(call, "swap_deadline", SWAP_DEADLINE_MAX_S);
    struct cn_default_call to = {
        .name = name,
        .version = version,
        .swap_policy = policy ? cn_swap_policy_parse(cn_str_from(policy)) : -1,
        .swap_deadline_ms = deadline_s < 0 ? -1 : deadline_s * 1000,
    };

    if (policy && to.swap_policy < 0 && !call->err.code)
        cn_fail(&call->err, CN_E_BAD_REQUEST,
                "swap_policy is \"%.100s\"; it must be pin, migrate, reset or reject", policy);
    if (cn_api_params_fine(call))
        cn_cluster_set_default(call->management, &to, on_lifecycle, call);
}

void
cn_api_unregister_model(struct cn_api_call *call, const char *name, const char *version)
{
    cn_cluster_unregister(call->management, name, version, on_lifecycle, call);
}
