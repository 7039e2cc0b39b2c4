/* frontend/endpoints/kserve/kserve_generate.c - the generate extension of the v2 protocol over
 * HTTP. On the request's loop.
 *
 * POST .../generate answers with exactly one response. A decoupled model may give none or several,
 * which is known only when its last piece has come, so the first response is kept in `call->first`
 * until then. POST .../generate_stream sends each response as an event (kserve_stream.c).
 */
#include "kserve/generate.h"

#include "frontend/endpoints/kserve/kserve_http.h"
#include "frontend/endpoints/kserve/kserve_http_priv.h"
#include "frontend/http/http_answer.h"
#include "frontend/http/http_request.h"
#include "frontend/intake/headers.h"
#include "kserve/models/kserve_models.h"
#include "scheduler/queue/submit.h"

/* --- one response --- */

/* Answers with an error. If the job still runs, it is cancelled. */
static void
fail(struct cn_v2_http_call *call, int code, const char *message, bool final)
{
    cn_v2_http_error(call->request, code, message);
    if (final)
        call->answered = true;
    else
        cn_v2_http_call_give_up(call);
}

/* The model gave none or several responses. Clients of the protocol know this error with status
 * 200, the status of the first response. */
static void
fail_number(struct cn_v2_http_call *call, bool final)
{
    struct cn_buf body;

    cn_buf_init(&body, 0);
    cn_v2_write_error("generate expects model to produce exactly 1 response, use generate stream "
                      "for model that generates various number of responses",
                      &body);
    cn_http_answer_json(call->request, 200, CN_E_UNIMPLEMENTED, cn_buf_str(&body));
    cn_buf_fini(&body);
    if (final)
        call->answered = true;
    else
        cn_v2_http_call_give_up(call);
}

static void
take(struct cn_v2_http_call *call, const struct cn_answer *answer, struct cn_arena *arena)
{
    struct cn_v2_piece piece;
    struct cn_error err;
    int rc = 0;

    cn_v2_job_piece(&call->v2, answer, arena, &piece);
    if (call->answered)
        return;
    if (piece.kind == CN_V2_FAILURE) {
        fail(call, piece.code, piece.message, piece.final);
        return;
    }
    if (piece.kind == CN_V2_RESPONSE && call->v2.n_responses == 1)
        rc = cn_v2_write_generate(&piece.response, &call->v2.request, &call->first, &err);
    if (!rc && call->first.failed)
        rc = cn_fail(&err, CN_E_OUT_OF_MEMORY, "not enough memory for the response");
    if (rc)
        fail(call, rc, err.message, piece.final);
    else if (call->v2.n_responses > 1 || (piece.final && call->v2.n_responses == 0))
        fail_number(call, piece.final);
    else if (piece.final)
        cn_http_answer_json(call->request, 200, 0, cn_buf_str(&call->first));
}

static void
on_answer(struct cn_job *job, struct cn_answer_box *box)
{
    struct cn_v2_http_call *call = cn_container_of(job, struct cn_v2_http_call, v2.job);
    const bool final = (box->answer.flags & CN_ANSWER_FINAL) != 0;
    struct cn_arena arena;

    cn_http_answer_echo(call->request, box);
    cn_arena_init(&arena);
    take(call, &box->answer, &arena);
    cn_arena_fini(&arena);
    if (!final)
        cn_model_queue_consumed(job, box->answer.body.len);
    cn_answer_box_free(box);
    if (final)
        cn_v2_http_call_end(call);
}

/* --- requests --- */

/* Is the body compressed? This extension accepts plain bodies only. */
static bool
is_coded(const struct cn_http_request *request)
{
    const struct cn_header *coding =
        cn_header_find(request->headers, request->n_headers, CN_STR("Content-Encoding"));

    return coding && coding->value.len && !cn_str_eq(coding->value, CN_STR("identity"));
}

/* Reads a request. Returns NULL when it was refused. */
static struct cn_v2_http_call *
read_call(struct cn_http_request *request, struct cn_model_queue **queue)
{
    const struct cn_v2_limits limits = {
        .json_bytes = request->listener->shared->config->max_v2_request_bytes};
    struct cn_v2_http_call *call = NULL;
    struct cn_error err;
    int rc = 0;

    *queue = cn_v2_find(request->listener->shared->management, request->match.args[0],
                        request->match.args[1], &err);
    if (!*queue) {
        rc = err.code;
    } else if (is_coded(request)) {
        rc = cn_fail(&err, CN_E_BAD_REQUEST,
                     "Unsupported content-encoding, only 'identity' is supported.");
    } else {
        call = cn_v2_http_call_create(request, *queue);
        rc = cn_v2_read_generate(cn_http_request_body_str(request), call->v2.io, &limits,
                                 &request->arena, &call->v2.request, &err);
    }
    if (rc) {
        cn_v2_http_error(request, err.code, err.message);
        if (call)
            cn_v2_job_fini(&call->v2);
        return NULL;
    }
    return call;
}

void
cn_v2_http_generate(struct cn_http_request *request)
{
    static const struct cn_job_ops ops = {on_answer};
    struct cn_model_queue *queue;
    struct cn_v2_http_call *call = read_call(request, &queue);

    if (call)
        cn_v2_http_call_submit(call, queue, &ops);
}

void
cn_v2_http_generate_stream(struct cn_http_request *request)
{
    struct cn_model_queue *queue;
    struct cn_v2_http_call *call = read_call(request, &queue);

    if (!call)
        return;
    call->form = CN_V2_FORM_GENERATED;
    cn_v2_http_stream_submit(call, queue);
}
