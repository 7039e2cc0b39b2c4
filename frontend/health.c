/* frontend/health.c - is the server healthy, in TorchServe's words. Owned by the loop thread. */
#include "frontend/health.h"

#include <jansson.h>
#include <stdlib.h>

#include "frontend/answer.h"
#include "frontend/http_request.h"
#include "management/management.h"

void
cn_health_ping(struct cn_http_request *request)
{
    if (cn_management_healthy(request->listener->shared->management))
        cn_http_answer_bytes(request, 200, "application/json",
                             CN_STR("{\n  \"status\": \"Healthy\"\n}\n"));
    else
        cn_http_answer_bytes(request, 500, "application/json",
                             CN_STR("{\n  \"status\": \"Unhealthy\"\n}\n"));
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
