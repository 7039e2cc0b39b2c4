/* frontend/health.c - is the server healthy, in TorchServe's words. Owned by the loop thread. */
#include "frontend/health.h"

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
