/* frontend/endpoints/kserve/kserve_settings.c - the v2 protocol's log and trace settings over
 * HTTP. On the request's loop. */
#include "frontend/endpoints/kserve/kserve_settings.h"

#include "frontend/endpoints/kserve/kserve_http.h"
#include "frontend/endpoints/kserve/kserve_http_priv.h"
#include "frontend/http/http_answer.h"
#include "frontend/http/http_request.h"
#include "kserve/models/kserve_models.h"
#include "kserve/settings.h"

static void
answer(struct cn_http_request *request, struct cn_buf *body)
{
    cn_http_answer_json(request, 200, 0, cn_buf_str(body));
    cn_buf_fini(body);
}

void
cn_v2_http_logging(struct cn_http_request *request)
{
    struct cn_v2_log log;
    struct cn_error err;
    struct cn_buf body;

    cn_v2_log_read(&log);
    if (request->method == CN_HTTP_POST) {
        if (cn_v2_log_parse(cn_http_request_body_str(request), &log, &err)) {
            cn_v2_http_error(request, err.code, err.message);
            return;
        }
        cn_v2_log_apply(&log);
    }
    cn_buf_init(&body, 0);
    cn_v2_log_write(&log, &body);
    answer(request, &body);
}

/* Applies the changes that the body asks for. */
static int
update(struct cn_http_request *request, struct cn_error *err)
{
    struct cn_trace_change change;
    int rc = cn_trace_parse(cn_http_request_body_str(request), &change, err);

    return rc ? rc : cn_trace_apply(request->match.args[0], &change, err);
}

void
cn_v2_http_trace(struct cn_http_request *request)
{
    struct cn_str model = request->match.args[0], values[CN_TRACE_N_KEYS];
    struct cn_error err;
    struct cn_buf body;

    if ((model.len &&
         !cn_v2_find(request->listener->shared->management, model, CN_STR(""), &err)) ||
        (request->method == CN_HTTP_POST && update(request, &err))) {
        cn_v2_http_error(request, err.code, err.message);
        return;
    }
    cn_trace_read(model, &request->arena, values);
    cn_buf_init(&body, 0);
    cn_trace_write(values, &body);
    answer(request, &body);
}
