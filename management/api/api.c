/* management/api/api.c - the management API: routes, parameters, TorchServe's answers. Loop 0.
 *
 *    GET    /models                       list
 *    POST   /models                       register
 *    GET    /models/{m}[/{v}|/all]        describe
 *    PUT    /models/{m}[/{v}]             scale
 *    PUT    /models/{m}/{v}/set-default
 *    DELETE /models/{m}[/{v}]             unregister
 *    DELETE /models/{m}/{v}/workers/{i}   kill a worker's process; another one is started
 *    GET    /models/{m}[/{v}]/sequences        list; here "sequences" is never a version
 *    GET    /models/{m}[/{v}]/sequences/{id}   show; with export=true: export
 *    PUT    /models/{m}[/{v}]/sequences/{id}   import
 *    POST   /models/{m}[/{v}]/sequences/{id}   copy, with fork_to
 *    DELETE /models/{m}[/{v}]/sequences/{id}   delete; the id is the rest of the path, with slashes
 *    GET    /v1/models/{m}                KServe: is the model ready?
 *    GET    /token?type=inference|management   make a new key, if tokens are on; needs the API key
 *    GET    /stores                       stores in the state folder, and reasons to be unhealthy
 *    GET    /cluster                      the models of all nodes, with --cluster-models
 *    GET    /environments                 packages that were installed for Python models
 *    GET    /slowlog                      steps that took long; DELETE forgets them
 *    GET    /keys                         what the named keys use, and their limits
 *    GET    /nodes                        nodes that share this server's store
 *    GET    /shared-states/{m}/{v}        how much the shared store has of a model version
 *    DELETE /shared-states/{m}/{v}        remove a part of it
 *    DELETE /stores/{m}/{v}               delete a store that no registered model uses
 *    POST   /stores/{m}/{v}/accept        accept that the store has lost records
 *    /workflows[/{w}]                     there are none; answers as in TorchServe's last version
 *
 * A request becomes a struct cn_api_call (api_call.h), which lives until it is answered. That may
 * be within this call or many turns later, on this loop again. route() chooses the endpoint; each
 * endpoint reads its parameters, stops if one of them is wrong, and starts the work with a callback
 * that answers. model_requests.c has the endpoints of models, and sequence_requests.c those of
 * sequences.
 */
#include <string.h>

#include "core/errors/panic.h"
#include "core/log/log.h"
#include "core/memory/mem.h"
#include "management/api/api_call.h"
#include "management/api/describe.h"
#include "management/api/json/environment_json.h"
#include "management/api/json/key_use_json.h"
#include "management/api/json/slow_steps_json.h"
#include "management/api/kill_worker.h"
#include "management/api/model_requests.h"
#include "management/api/sequence_requests.h"
#include "management/api/shared_states.h"
#include "management/cluster/cluster.h"
#include "management/nodes/nodes.h"
#include "tracing/slow_steps.h"

#define NO_SUCH_PATH "Requested resource is not found, please refer to API document."

/* --- endpoints */

/* GET /v1/models/{m} */
static void
route_kserve(struct cn_api_call *call)
{
    struct cn_error err;
    json_t *value;

    if (call->n_parts != 3 || strcmp(call->parts[1], "models") != 0) {
        cn_api_fail(call, CN_E_NOT_FOUND, NO_SUCH_PATH);
        return;
    }
    if (!cn_str_eq(call->request->method, CN_STR("GET"))) {
        cn_api_not_allowed(call);
        return;
    }
    value = cn_describe_ready(call->management, call->parts[2], &err);
    if (value)
        cn_api_answer(call, 200, value);
    else
        cn_api_fail(call, err.code, err.message);
}

static void
route_workflows(struct cn_api_call *call)
{
    struct cn_str method = call->request->method;
    bool is_get = cn_str_eq(method, CN_STR("GET"));
    char text[300];
    json_t *value;

    if (call->n_parts == 1 && is_get) {
        value = json_object();
        json_object_set_new(value, "workflows", json_array());
        cn_api_answer(call, 200, value);
    } else if (call->n_parts == 1 && cn_str_eq(method, CN_STR("POST"))) {
        cn_api_fail(call, CN_E_BAD_REQUEST, "Registering new workflows is disabled.");
    } else if (call->n_parts == 2 && (is_get || cn_str_eq(method, CN_STR("DELETE")))) {
        snprintf(text, sizeof text, "Workflow not found: %.200s", call->parts[1]);
        cn_api_fail(call, CN_E_WORKFLOW_NOT_FOUND, text);
    } else {
        cn_api_not_allowed(call);
    }
}

static void
route_stores(struct cn_api_call *call)
{
    struct cn_stores *stores = call->management->stores;
    struct cn_str method = call->request->method;
    const bool may_change = call->management->config->model_api;

    if (call->n_parts == 1 && cn_str_eq(method, CN_STR("GET")))
        cn_stores_list(stores, cn_api_param_bool(call, "count", false), cn_api_described, call);
    else if (call->n_parts == 3 && may_change && cn_str_eq(method, CN_STR("DELETE")))
        cn_stores_remove(stores, call->parts[1], call->parts[2], cn_api_described, call);
    else if (call->n_parts == 4 && strcmp(call->parts[3], "accept") == 0 && may_change &&
             cn_str_eq(method, CN_STR("POST")))
        cn_stores_accept(stores, call->parts[1], call->parts[2], cn_api_described, call);
    else if (call->n_parts == 2 || (call->n_parts == 4 && strcmp(call->parts[3], "accept") != 0))
        cn_api_fail(call, CN_E_NOT_FOUND, NO_SUCH_PATH);
    else
        cn_api_not_allowed(call);
}

static void
route_shared_states(struct cn_api_call *call)
{
    struct cn_str method = call->request->method;

    if (call->n_parts != 3)
        cn_api_fail(call, CN_E_NOT_FOUND, NO_SUCH_PATH);
    else if (cn_str_eq(method, CN_STR("GET")))
        cn_api_shared_states(call, false);
    else if (cn_str_eq(method, CN_STR("DELETE")) && call->management->config->model_api)
        cn_api_shared_states(call, true);
    else
        cn_api_not_allowed(call);
}

static void
route_environments(struct cn_api_call *call)
{
    if (call->n_parts > 1)
        cn_api_fail(call, CN_E_NOT_FOUND, NO_SUCH_PATH);
    else if (!cn_str_eq(call->request->method, CN_STR("GET")))
        cn_api_not_allowed(call);
    else
        cn_api_answer(call, 200, cn_environments_json(call->management));
}

static void
list_slow_steps(struct cn_api_call *call)
{
    const char *sort = cn_api_param(call, "sort");
    int64_t limit = cn_api_param_number(call, "limit", INT32_MAX);
    const struct cn_slow_steps_wish wish = {.model = cn_api_param(call, "model"),
                                            .limit = limit < 0 ? UINT32_MAX : (uint32_t)limit,
                                            .by_time = sort && strcmp(sort, "time") == 0};

    if (sort && !wish.by_time && strcmp(sort, "duration") != 0 && !call->err.code)
        cn_fail(&call->err, CN_E_BAD_REQUEST, "sort is \"%.40s\"; it must be duration or time",
                sort);
    if (cn_api_params_fine(call))
        cn_api_answer(call, 200, cn_slow_steps_json(call->management->config, &wish));
}

static void
route_slow_steps(struct cn_api_call *call)
{
    struct cn_str method = call->request->method;
    json_t *value;

    if (call->n_parts > 1) {
        cn_api_fail(call, CN_E_NOT_FOUND, NO_SUCH_PATH);
    } else if (cn_str_eq(method, CN_STR("GET"))) {
        list_slow_steps(call);
    } else if (cn_str_eq(method, CN_STR("DELETE"))) {
        cn_slow_steps_clear();
        value = json_object();
        json_object_set_new(value, "status", json_string("the list of slow steps is empty"));
        cn_api_answer(call, 200, value);
    } else {
        cn_api_not_allowed(call);
    }
}

static void
route_nodes(struct cn_api_call *call)
{
    if (call->n_parts > 1)
        cn_api_fail(call, CN_E_NOT_FOUND, NO_SUCH_PATH);
    else if (!cn_str_eq(call->request->method, CN_STR("GET")))
        cn_api_not_allowed(call);
    else
        cn_nodes_list(call->management->nodes, cn_api_described, call);
}

static void
route_keys(struct cn_api_call *call)
{
    if (call->n_parts > 1)
        cn_api_fail(call, CN_E_NOT_FOUND, NO_SUCH_PATH);
    else if (!cn_str_eq(call->request->method, CN_STR("GET")))
        cn_api_not_allowed(call);
    else
        cn_api_answer(call, 200, cn_key_use_json(cn_management_accounts(call->management)));
}

static void
on_cluster(void *ctx, json_t *value)
{
    cn_api_answer(ctx, 200, value);
}

static void
route_cluster(struct cn_api_call *call)
{
    if (call->n_parts > 1)
        cn_api_fail(call, CN_E_NOT_FOUND, NO_SUCH_PATH);
    else if (!cn_str_eq(call->request->method, CN_STR("GET")))
        cn_api_not_allowed(call);
    else if (!call->management->cluster)
        cn_api_fail(call, CN_E_BAD_REQUEST,
                    "this server has models of its own: it was started without --cluster-models");
    else
        cn_cluster_describe(call->management->cluster, on_cluster, call);
}

/* Does the path name the list of a model's sequences? */
static bool
is_sequence_list(const struct cn_api_call *call)
{
    return (call->n_parts == 3 || call->n_parts == 4) &&
           strcmp(call->parts[call->n_parts - 1], "sequences") == 0 &&
           cn_str_eq(call->request->method, CN_STR("GET"));
}

/* --- /token */

static void
on_renewed(struct cn_token_renewal *renewal)
{
    struct cn_api_call *call = cn_container_of(renewal, struct cn_api_call, renewal);
    struct cn_management *management = call->management;
    struct cn_buf empty;

    if (renewal->err.code) {
        cn_api_fail(call, renewal->err.code, renewal->err.message);
    } else {
        cn_log(CN_LOG_INFO, "event=token_renewed type=%s",
               renewal->kind == CN_TOKEN_INFERENCE ? "inference" : "management");
        cn_buf_init(&empty, 0);
        cn_buf_puts(&empty, "\n"); /* the key is only in the file and is never sent */
        cn_api_reply(call, 200, &empty);
    }
    cn_management_op_end(management);
}

/* A wrong key and a wrong type get the same answer, so a caller without the key learns nothing. */
static void
renew_token(struct cn_api_call *call)
{
    struct cn_management *management = call->management;
    const char *type = cn_api_param(call, "type");
    struct cn_error err;

    call->renewal.kind = type && strcmp(type, "inference") == 0    ? CN_TOKEN_INFERENCE
                         : type && strcmp(type, "management") == 0 ? CN_TOKEN_MANAGEMENT
                                                                   : CN_TOKEN_API;
    call->renewal.on_done = on_renewed;
    if (call->renewal.kind == CN_TOKEN_API ||
        cn_tokens_check(management->tokens, CN_TOKEN_API, call->request->authorization, NULL)) {
        cn_api_fail(call, CN_E_TOKEN,
                    "Token Authentication failed. Token either incorrect, expired, or not provided "
                    "correctly");
        return;
    }
    cn_management_op_begin(management);
    if (cn_tokens_renew(management->tokens, management->files, &call->renewal, &err)) {
        cn_api_fail(call, err.code, err.message);
        cn_management_op_end(management);
    }
}

static void
route(struct cn_api_call *call)
{
    struct cn_str method = call->request->method;
    const char *name = call->n_parts > 1 ? call->parts[1] : NULL;
    const char *version = call->n_parts > 2 ? call->parts[2] : NULL;
    bool is_get = cn_str_eq(method, CN_STR("GET")), is_put = cn_str_eq(method, CN_STR("PUT"));
    bool may_change = call->management->config->model_api;

    if (strcmp(call->parts[0], "token") == 0 && !call->management->tokens)
        cn_api_fail(call, CN_E_NOT_FOUND, NO_SUCH_PATH);
    else if (strcmp(call->parts[0], "token") == 0 && is_get)
        renew_token(call);
    else if (strcmp(call->parts[0], "token") == 0)
        cn_api_not_allowed(call);
    else if (strcmp(call->parts[0], "v1") == 0)
        route_kserve(call);
    else if (strcmp(call->parts[0], "workflows") == 0)
        route_workflows(call);
    else if (strcmp(call->parts[0], "stores") == 0)
        route_stores(call);
    else if (strcmp(call->parts[0], "shared-states") == 0)
        route_shared_states(call);
    else if (strcmp(call->parts[0], "environments") == 0)
        route_environments(call);
    else if (strcmp(call->parts[0], "keys") == 0)
        route_keys(call);
    else if (strcmp(call->parts[0], "nodes") == 0)
        route_nodes(call);
    else if (strcmp(call->parts[0], "slowlog") == 0)
        route_slow_steps(call);
    else if (strcmp(call->parts[0], "cluster") == 0)
        route_cluster(call);
    else if (call->sequence_id)
        cn_api_sequence(call);
    else if (is_sequence_list(call))
        cn_api_list_sequences(call);
    else if (call->n_parts == 1 && is_get)
        cn_api_list_models(call);
    else if (call->n_parts == 1 && may_change && cn_str_eq(method, CN_STR("POST")))
        cn_api_register_model(call);
    else if (call->n_parts == 1)
        cn_api_not_allowed(call);
    else if (call->n_parts == 4 && is_put && strcmp(call->parts[3], "set-default") == 0)
        cn_api_set_default(call, name, version);
    else if (call->n_parts == 4 && strcmp(call->parts[3], "set-default") == 0)
        cn_api_not_allowed(call);
    else if (call->n_parts == 5 && strcmp(call->parts[3], "workers") == 0 &&
             cn_str_eq(method, CN_STR("DELETE")))
        cn_api_kill_worker(call);
    else if (call->n_parts > 3)
        cn_api_fail(call, CN_E_NOT_FOUND, NO_SUCH_PATH);
    else if (is_get)
        cn_describe(call->management, name, version, cn_api_param_bool(call, "customized", false),
                    cn_api_described, call);
    else if (is_put)
        cn_api_scale_model(call, version);
    else if (may_change && cn_str_eq(method, CN_STR("DELETE")))
        cn_api_unregister_model(call, name, version);
    else
        cn_api_not_allowed(call);
}

/* --- a request comes */

/* Is the last part so far the word "sequences" before a sequence's id? PUT
 * /models/{m}/sequences/set-default has two meanings, because a version may be called "sequences".
 * It makes that version the default. To import a sequence with the id "set-default", a client has
 * to name a version in the path. */
static bool
is_before_id(const struct cn_api_call *call, struct cn_str rest)
{
    return (call->n_parts == 3 || call->n_parts == 4) && rest.len > 1 && rest.ptr[0] == '/' &&
           strcmp(call->parts[call->n_parts - 1], "sequences") == 0 &&
           !(call->n_parts == 3 && cn_str_eq(call->request->method, CN_STR("PUT")) &&
             cn_str_eq(rest, CN_STR("/set-default")));
}

static bool
is_known(const char *first)
{
    return strcmp(first, "models") == 0 || strcmp(first, "v1") == 0 ||
           strcmp(first, "workflows") == 0 || strcmp(first, "token") == 0 ||
           strcmp(first, "stores") == 0 || strcmp(first, "environments") == 0 ||
           strcmp(first, "nodes") == 0 || strcmp(first, "slowlog") == 0 ||
           strcmp(first, "keys") == 0 || strcmp(first, "cluster") == 0 ||
           strcmp(first, "shared-states") == 0;
}

/* Splits the path at its slashes and drops empty ends. False: it has more parts than any route. */
static bool
split_path(struct cn_api_call *call)
{
    struct cn_str path = call->request->path;
    size_t at = 0, end;

    while (path.len > 0 && path.ptr[path.len - 1] == '/')
        path.len--;
    while (at < path.len) {
        if (path.ptr[at] == '/') {
            at++;
            continue;
        }
        for (end = at; end < path.len && path.ptr[end] != '/'; end++)
            continue;
        if (call->n_parts == CN_API_PARTS_MAX)
            return false;
        call->parts[call->n_parts++] = cn_arena_strndup(&call->arena, path.ptr + at, end - at);
        at = end;
        if (is_before_id(call, (struct cn_str){path.ptr + at, path.len - at})) {
            call->sequence_id =
                cn_arena_strndup(&call->arena, path.ptr + at + 1, path.len - at - 1);
            break;
        }
    }
    return call->n_parts > 0 && is_known(call->parts[0]) &&
           (call->n_parts < CN_API_PARTS_MAX || strcmp(call->parts[0], "models") == 0);
}

/* Returns the model that the path names; empty if the request concerns all of them. */
static struct cn_str
model_of(const struct cn_api_call *call)
{
    const unsigned at = strcmp(call->parts[0], "v1") == 0 ? 2 : 1;
    const bool has_models = at == 2 || strcmp(call->parts[0], "models") == 0 ||
                            strcmp(call->parts[0], "shared-states") == 0;

    return has_models && call->n_parts > at ? cn_str_from(call->parts[at]) : CN_STR("");
}

void
cn_management_handle(struct cn_management *management, struct cn_api_request *request)
{
    struct cn_api_call *call = cn_alloc(sizeof *call);

    cn_assert_on_loop(management->home);
    call->management = management;
    call->request = request;
    cn_arena_init(&call->arena);
    if (!split_path(call))
        cn_api_fail(call, CN_E_NOT_FOUND, NO_SUCH_PATH);
    else if (atomic_load(&management->draining))
        cn_api_fail(call, CN_E_DRAINING, "the server is stopping");
    else if (cn_management_check_model(management, request->key, model_of(call), &call->err) ||
             cn_api_read_body(call))
        cn_api_fail(call, call->err.code, call->err.message);
    else
        route(call);
}
