/* frontend/endpoints/kserve/kserve_repository.c - load, unload and index of the v2 protocol over
 * HTTP.
 *
 * A request is read on its own loop, but models live on loop 0. So it becomes an order
 * (management/repository/repository.h) that goes to loop 0 and comes back to the request's loop
 * when the work is done, for a load perhaps after minutes. The request is held meanwhile: if its
 * client leaves, the work goes on.
 */
#include "frontend/endpoints/kserve/kserve_repository.h"

#include "frontend/endpoints/kserve/kserve_http.h"
#include "frontend/endpoints/kserve/kserve_http_priv.h"
#include "frontend/http/http_answer.h"
#include "frontend/http/http_request.h"
#include "kserve/models/kserve_index.h"
#include "kserve/plain.h"
#include "kserve/repository_requests.h"
#include "management/repository/repository.h"

struct repository_call {
    struct cn_repository_order order;
    struct cn_http_request *request;
};

static void
on_done(struct cn_repository_order *order)
{
    struct cn_http_request *request =
        cn_container_of(order, struct repository_call, order)->request;
    struct cn_buf body;

    if (order->err.code) {
        cn_v2_http_error(request, order->err.code, order->err.message);
    } else if (order->what == CN_REPOSITORY_INDEX) {
        cn_buf_init(&body, 0);
        cn_v2_write_repository_index(order, &body);
        cn_http_answer_json(request, 200, 0, cn_buf_str(&body));
        cn_buf_fini(&body);
    } else {
        cn_http_answer_bytes(request, 200, NULL, CN_STR(""));
    }
    cn_http_request_release(request);
}

static struct repository_call *
call_create(struct cn_http_request *request, enum cn_repository_what what)
{
    struct repository_call *call = cn_arena_alloc(&request->arena, sizeof(*call));

    memset(call, 0, sizeof(*call));
    call->request = request;
    call->order.what = what;
    call->order.origin = request->listener->loop;
    call->order.on_done = on_done;
    call->order.name = request->match.args[0];
    return call;
}

/* Starts the order, or answers with the error that the body led to (`rc`). */
static void
run(struct repository_call *call, int rc, const struct cn_error *err)
{
    struct cn_http_request *request = call->request;

    if (rc) {
        cn_v2_http_error(request, err->code, err->message);
        return;
    }
    cn_http_request_hold(request, call, NULL);
    cn_repository_run(request->listener->shared->management, &call->order);
}

void
cn_v2_http_index(struct cn_http_request *request)
{
    struct repository_call *call = call_create(request, CN_REPOSITORY_INDEX);
    struct cn_error err;
    int rc = cn_v2_read_index(cn_http_request_body_str(request), &call->order.ready_only, &err);

    run(call, rc, &err);
}

void
cn_v2_http_load(struct cn_http_request *request)
{
    struct repository_call *call = call_create(request, CN_REPOSITORY_LOAD);
    struct cn_error err;
    int rc = cn_v2_read_load(cn_http_request_body_str(request), &request->arena,
                             &call->order.config, &err);

    run(call, rc, &err);
}

void
cn_v2_http_unload(struct cn_http_request *request)
{
    struct repository_call *call = call_create(request, CN_REPOSITORY_UNLOAD);
    struct cn_error err;
    int rc = cn_v2_read_unload(cn_http_request_body_str(request), &err);

    run(call, rc, &err);
}

void
cn_v2_http_named_repository(struct cn_http_request *request)
{
    cn_v2_http_error(request, CN_E_UNIMPLEMENTED,
                     "'repository_name' specification is not supported");
}
