/* frontend/v2_http.c - health, metadata, configuration and index of the v2 protocol. On the request's loop. */
#include "frontend/v2_http.h"

#include "frontend/answer.h"
#include "frontend/http_request.h"
#include "frontend/v2_http_priv.h"
#include "management/management.h"
#include "scheduler/model_queue.h"
#include "v2/answer.h"
#include "v2/plain.h"

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
    cn_http_answer_json(
        request, 200, 0,
        CN_STR("{\"name\":\"continuo\",\"version\":\"" CN_VERSION
               "\",\"extensions\":[\"classification\",\"sequence\",\"sequence(string_id)\","
               "\"model_repository\",\"model_configuration\",\"binary_tensor_data\",\"parameters\"]"
               "}"));
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
cn_v2_http_config(struct cn_http_request *request)
{
    struct cn_error err;
    struct cn_model_queue *queue = cn_v2_http_find(request, &err);
    const struct cn_model_config *config;
    struct cn_v2_settings settings;
    struct cn_buf body;

    if (!queue) {
        cn_v2_http_error(request, err.code, err.message);
        return;
    }
    config = cn_model_queue_config(queue);
    settings = (struct cn_v2_settings){.workers = config->min_workers,
                                       .rows = config->batch_size,
                                       .sequences = config->sequence_batching,
                                       .idle_ms = config->sequence_max_idle_ms,
                                       .delay_us = 1000 * (uint64_t)config->max_batch_delay_ms};
    cn_buf_init(&body, 0);
    cn_v2_write_config(cn_model_queue_name(queue), config->io, &settings, &body);
    cn_http_answer_json(request, 200, 0, cn_buf_str(&body));
    cn_buf_fini(&body);
}

struct index {
    struct cn_buf body;
    bool ready_only;
};

/* A model without declared tensors is listed too: it is there, by /predictions. */
static void
list_version(void *ctx, struct cn_model_queue *queue, bool is_ready)
{
    struct index *index = ctx;

    if (index->ready_only && !is_ready)
        return;
    cn_buf_puts(&index->body, index->body.len > 1 ? ",{\"name\":" : "{\"name\":");
    cn_v2_write_text(cn_str_from(cn_model_queue_name(queue)), &index->body);
    cn_buf_puts(&index->body, ",\"version\":");
    cn_v2_write_text(cn_str_from(cn_model_queue_version(queue)), &index->body);
    cn_buf_printf(&index->body, ",\"state\":\"%s\"}", is_ready ? "READY" : "UNAVAILABLE");
}

void
cn_v2_http_index(struct cn_http_request *request)
{
    struct index index = {.ready_only = false};
    struct cn_error err;

    if (cn_v2_read_index(cn_http_request_body_str(request), &index.ready_only, &err)) {
        cn_v2_http_error(request, err.code, err.message);
        return;
    }
    cn_buf_init(&index.body, 0);
    cn_buf_puts(&index.body, "[");
    cn_management_each(request->listener->shared->management, list_version, &index);
    cn_buf_puts(&index.body, "]");
    cn_http_answer_json(request, 200, 0, cn_buf_str(&index.body));
    cn_buf_fini(&index.body);
}

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
