/* frontend/endpoints/ping.c - reports the server's health in TorchServe's words. Owned by the loop
 * thread. */
#include "frontend/endpoints/ping.h"

#include <jansson.h>
#include <stdlib.h>

#include "frontend/http/http_answer.h"
#include "frontend/http/http_request.h"
#include "management/management.h"

/* Writes the reasons that hold, and how many things (models, stores) each concerns. */
static void
answer_unready(struct cn_http_request *request, const uint32_t *counts)
{
    const char *separator = "";
    struct cn_buf body;

    cn_buf_init(&body, 0);
    cn_buf_puts(&body, "{\n  \"status\": \"Unhealthy\",\n  \"reasons\": [");
    for (int i = 0; i < CN_N_UNREADY; i++) {
        if (!counts[i])
            continue;
        cn_buf_printf(&body, "%s\n    {\"reason\": \"%s\", \"count\": %u, \"text\": \"%s\"}",
                      separator, cn_unready_word((enum cn_unready)i), counts[i],
                      cn_unready_text((enum cn_unready)i));
        separator = ",";
    }
    cn_buf_puts(&body, "\n  ]\n}\n");
    cn_http_answer_bytes(request, 500, "application/json", cn_buf_str(&body));
    cn_buf_fini(&body);
}

void
cn_health_ping(struct cn_http_request *request)
{
    uint32_t counts[CN_N_UNREADY];

    cn_management_unready(request->listener->shared->management, counts);
    if (cn_management_healthy(request->listener->shared->management))
        cn_http_answer_bytes(request, 200, "application/json",
                             CN_STR("{\n  \"status\": \"Healthy\"\n}\n"));
    else if (request->listener->shared->config->torchserve_errors)
        cn_http_answer_bytes(request, 500, "application/json",
                             CN_STR("{\n  \"status\": \"Unhealthy\"\n}\n"));
    else
        answer_unready(request, counts);
}

void
cn_health_model(struct cn_http_request *request)
{
    struct cn_str name = request->match.args[0];
    struct cn_error err;
    json_t *body;
    char *text;
    bool ready;

    if (cn_management_is_ready(request->listener->shared->management, name, &ready, &err)) {
        cn_http_answer_error(request, err.code, err.message, 0);
        return;
    }
    /* The name of a model that exists is UTF-8. */
    body = json_pack("{s:s%, s:b}", "name", name.ptr, name.len, "ready", ready);
    text = json_dumps(body, JSON_INDENT(2));
    cn_http_answer_bytes(request, 200, "application/json",
                         cn_str_from(cn_arena_printf(&request->arena, "%s\n", text ? text : "{}")));
    free(text);
    json_decref(body);
}
