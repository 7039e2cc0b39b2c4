/* frontend/v2_http.c - health and metadata of the v2 protocol. On the request's loop. */
#include "frontend/v2_http.h"

#include "frontend/answer.h"
#include "frontend/http_request.h"
#include "frontend/v2_http_priv.h"
#include "management/management.h"
#include "scheduler/model_queue.h"
#include "v2/answer.h"

void
cn_v2_http_error(struct cn_http_request *request, int code, const char *message)
{
    struct cn_buf body;

    cn_buf_init(&body, 0);
    cn_v2_write_error(message, &body);
    cn_http_answer_json(request, (unsigned)cn_error_info(code)->http_status, code,
                        cn_buf_str(&body));
    cn_buf_fini(&body);
}

struct cn_model_queue *
cn_v2_http_find(struct cn_http_request *request, struct cn_error *err)
{
    const struct cn_route_match *match = &request->match;
    struct cn_error why;
    struct cn_model_queue *queue = cn_management_find(request->listener->shared->management,
                                                      match->args[0], match->args[1], &why);

    if (queue && cn_model_queue_config(queue)->io)
        return queue;
    if (queue)
        cn_fail(
            err, CN_E_BAD_REQUEST,
            "model '%s' declares no inputs and outputs in its YAML, which the v2 protocol needs; "
            "call /predictions/%s, or declare them",
            cn_model_queue_name(queue), cn_model_queue_name(queue));
    else if (why.code == CN_E_VERSION_NOT_FOUND)
        cn_fail(err, CN_E_VERSION_NOT_FOUND,
                "Request for unknown model: '%.*s' version %.*s is not found",
                CN_STR_ARG(match->args[0]), CN_STR_ARG(match->args[1]));
    else if (why.code == CN_E_MODEL_NOT_FOUND)
        cn_fail(err, CN_E_MODEL_NOT_FOUND, "Request for unknown model: '%.*s' is not found",
                CN_STR_ARG(match->args[0]));
    else
        *err = why;
    return NULL;
}

void
cn_v2_http_live(struct cn_http_request *request)
{
    cn_http_answer_bytes(request, 200, NULL, CN_STR(""));
}

void
cn_v2_http_ready(struct cn_http_request *request)
{
    if (request->listener->draining)
        cn_v2_http_error(request, CN_E_UNAVAILABLE, "Server exiting");
    else
        cn_http_answer_bytes(
            request, cn_management_healthy(request->listener->shared->management) ? 200 : 400, NULL,
            CN_STR(""));
}

void
cn_v2_http_server(struct cn_http_request *request)
{
    cn_http_answer_json(request, 200, 0,
                        CN_STR("{\"name\":\"continuo\",\"version\":\"" CN_VERSION
                               "\",\"extensions\":[\"sequence\",\"sequence(string_id)\","
                               "\"binary_tensor_data\",\"parameters\"]}"));
}

void
cn_v2_http_model(struct cn_http_request *request)
{
    struct cn_error err;
    struct cn_model_queue *queue = cn_v2_http_find(request, &err);
    const char *version;
    struct cn_buf body;

    if (!queue) {
        cn_v2_http_error(request, err.code, err.message);
        return;
    }
    version = cn_model_queue_version(queue);
    cn_buf_init(&body, 0);
    cn_v2_write_metadata(cn_model_queue_name(queue), &version, 1, "continuo",
                         cn_model_queue_config(queue)->io, &body);
    cn_http_answer_json(request, 200, 0, cn_buf_str(&body));
    cn_buf_fini(&body);
}

void
cn_v2_http_model_ready(struct cn_http_request *request)
{
    struct cn_error err;

    if (cn_v2_http_find(request, &err))
        cn_http_answer_bytes(request, 200, NULL, CN_STR(""));
    else
        cn_v2_http_error(request, err.code, err.message);
}

void
cn_v2_http_unknown(struct cn_http_request *request)
{
    cn_v2_http_error(request, CN_E_NOT_FOUND, "Not Found");
}
