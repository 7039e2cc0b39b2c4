/* frontend/endpoints/kserve/kserve_http.c - health, metadata and configuration of the v2 protocol
 * over HTTP. On the request's loop.
 *
 * The protocol's JSON is written in kserve_models.c, which gRPC uses, too. This file adds what
 * HTTP needs: statuses, error bodies, and the answer to unknown paths.
 */
#include "frontend/endpoints/kserve/kserve_http.h"

#include "frontend/endpoints/kserve/kserve_http_priv.h"
#include "frontend/http/http_answer.h"
#include "frontend/http/http_request.h"
#include "kserve/infer_answer.h"
#include "kserve/models/kserve_models.h"
#include "kserve/plain.h"
#include "management/management.h"

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

void
cn_v2_http_live(struct cn_http_request *request)
{
    cn_http_answer_bytes(request, 200, NULL, CN_STR(""));
}

/* Once the server stops, this is an error with a reason. Otherwise only the status says whether
 * the server is ready, because clients of the protocol do not read a body here. */
void
cn_v2_http_ready(struct cn_http_request *request)
{
    if (request->listener->leaving)
        cn_v2_http_error(request, CN_E_UNAVAILABLE, "Server exiting");
    else
        cn_http_answer_bytes(
            request, cn_management_healthy(request->listener->shared->management) ? 200 : 400, NULL,
            CN_STR(""));
}

/* Answers with the JSON that was written, or with the error. Frees `json`. */
static void
answer_json(struct cn_http_request *request, struct cn_buf *json, int rc,
            const struct cn_error *err)
{
    if (rc)
        cn_v2_http_error(request, rc, err->message);
    else if (json->failed)
        cn_v2_http_error(request, CN_E_OUT_OF_MEMORY, "not enough memory for the response");
    else
        cn_http_answer_json(request, 200, 0, cn_buf_str(json));
    cn_buf_fini(json);
}

void
cn_v2_http_server(struct cn_http_request *request)
{
    struct cn_buf json;

    cn_buf_init(&json, 0);
    cn_v2_write_server(&json);
    answer_json(request, &json, 0, NULL);
}

void
cn_v2_http_model(struct cn_http_request *request)
{
    struct cn_buf json;
    struct cn_error err;

    cn_buf_init(&json, 0);
    answer_json(request, &json,
                cn_v2_write_model(request->listener->shared->management, request->match.args[0],
                                  request->match.args[1], &json, &err),
                &err);
}

void
cn_v2_http_model_ready(struct cn_http_request *request)
{
    struct cn_error err;
    bool ready;

    if (cn_v2_model_is_ready(request->listener->shared->management, request->match.args[0],
                             request->match.args[1], &ready, &err))
        cn_v2_http_error(request, err.code, err.message);
    else if (ready)
        cn_http_answer_bytes(request, 200, NULL, CN_STR(""));
    else
        cn_v2_http_error(request, CN_E_BAD_REQUEST, "Model version not ready");
}

void
cn_v2_http_config(struct cn_http_request *request)
{
    struct cn_buf json;
    struct cn_error err;

    cn_buf_init(&json, 0);
    answer_json(request, &json,
                cn_v2_write_model_config(request->listener->shared->management,
                                         request->match.args[0], request->match.args[1], &json,
                                         &err),
                &err);
}

/* Answers 405 when the path exists with other methods, and 404 otherwise. */
void
cn_v2_http_unknown(struct cn_http_request *request)
{
    if (!request->match.allowed) {
        cn_v2_http_error(request, CN_E_NOT_FOUND, "Not Found");
        return;
    }
    request->allow = cn_http_methods_text(&request->arena, request->match.allowed);
    cn_v2_http_error(request, CN_E_METHOD_NOT_ALLOWED, "Method Not Allowed");
}
