/* frontend/endpoints/kserve/kserve_stats.c - GET of the v2 protocol's statistics over HTTP. On the
 * request's loop. */
#include "frontend/endpoints/kserve/kserve_stats.h"

#include "frontend/endpoints/kserve/kserve_http.h"
#include "frontend/endpoints/kserve/kserve_http_priv.h"
#include "frontend/http/http_answer.h"
#include "frontend/http/http_request.h"
#include "metrics/page/model_statistics.h"

void
cn_v2_http_stats(struct cn_http_request *request)
{
    struct cn_v2_model_stats *models;
    struct cn_error err;
    struct cn_buf body;
    uint32_t n;

    if (cn_v2_stats_collect(request->listener->shared->management, request->match.args[0],
                            request->match.args[1], &request->arena, &models, &n, &err)) {
        cn_v2_http_error(request, err.code, err.message);
        return;
    }
    cn_buf_init(&body, 0);
    cn_v2_write_stats(models, n, &body);
    cn_http_answer_json(request, 200, 0, cn_buf_str(&body));
    cn_buf_fini(&body);
}
