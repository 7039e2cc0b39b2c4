/* frontend/endpoints/predictions.c - /predictions and /invocations: makes a job from a request, and
 * sends its answer back. The loop thread owns all of it.
 *
 * The steps are: find the model and its queue, read headers and parts into a row (row_input.c,
 * typed.c for typed models), fill the job (frontend/intake), submit it. The connection reads
 * nothing meanwhile. on_answer gets the answer in one piece or in several, and http_answer.c sends
 * them.
 *
 * The row's bytes lie in the request's arena and body buffer. A client may go away while its job
 * still runs, and the job may have to be sent to another worker. So the request is held until the
 * job has ended, even if the client has left.
 */
#include "frontend/endpoints/predictions.h"

#include "access/keys.h"
#include "config/model/model_io.h"
#include "core/time/clock.h"
#include "frontend/endpoints/row_input.h"
#include "frontend/endpoints/typed.h"
#include "frontend/events/events.h"
#include "frontend/http/access_log.h"
#include "frontend/http/http_answer.h"
#include "frontend/http/http_request.h"
#include "frontend/intake/client_addresses.h"
#include "frontend/intake/headers.h"
#include "frontend/intake/intake.h"
#include "frontend/intake/session.h"
#include "management/management.h"
#include "scheduler/queue/job.h"
#include "scheduler/queue/model_queue.h"
#include "scheduler/queue/submit.h"

struct predict_call {
    struct cn_job job;
    struct cn_http_request *request;
    struct cn_session session;
    struct cn_typed_answer typed;
    struct cn_events events;
    bool gave_up; /* a piece could not be sent: the answer has ended with an error */
};

/* Notes what the head of the answer must say about SageMaker's session: that a new one was made, or
 * that it is closed. Called before the head is made. */
static void
tell_session(struct predict_call *call, const struct cn_answer_box *box)
{
    struct cn_http_request *request = call->request;

    if (call->session.is_new && box->answer.error_code == 0 && !request->new_session)
        request->new_session = cn_session_value(&request->arena, &call->session, cn_wall_ms());
    if (cn_session_is_closed(&box->answer) && box->sequence_id.len)
        request->closed_session = cn_arena_str(&request->arena, box->sequence_id).ptr;
}

/* Keeps step and sequence for the access log. Its line is written when the answer has left and its
 * box is freed. */
static void
note_step(struct cn_http_request *request, const struct cn_answer_box *box)
{
    if (cn_answer_committed(&box->answer))
        request->step = box->answer.step;
    if (box->sequence_id.len && request->sequence.len == 0)
        request->sequence = cn_arena_str(&request->arena, box->job->row.sequence_id);
}

/* Makes of a piece what the client is to get. NULL: nothing. Behind a piece that could not be sent,
 * the answer has a hole, so what the handler gives after it is dropped. */
static struct cn_answer_box *
rewrite(struct predict_call *call, struct cn_answer_box *box)
{
    const bool final = (box->answer.flags & CN_ANSWER_FINAL) != 0;

    if (call->gave_up) {
        cn_answer_box_free(box);
        return NULL;
    }
    box = cn_typed_write(&call->typed, box);
    if (box)
        box = cn_events_write(&call->events, box);
    if (!final && box && (box->answer.flags & CN_ANSWER_FINAL)) {
        call->gave_up = true;
        cn_model_queue_cancel(call->job.queue, &call->job);
    }
    return box;
}

static void
on_answer(struct cn_job *job, struct cn_answer_box *box)
{
    struct predict_call *call = cn_container_of(job, struct predict_call, job);
    struct cn_http_request *request = call->request;
    const bool final = (box->answer.flags & CN_ANSWER_FINAL) != 0;
    const size_t bytes = box->answer.body.len;

    if (final) { /* there is nothing left to cancel or to hold up */
        request->on_gone = NULL;
        request->on_taken = NULL;
    }
    if (call->session.used)
        tell_session(call, box);
    if (cn_access_log_enabled())
        note_step(request, box);
    box = rewrite(call, box);
    if (box)
        cn_http_answer_piece(request, box);
    else if (!final)
        cn_model_queue_consumed(job, bytes);
    if (final)
        cn_http_request_release(request);
}

static void
on_gone(struct cn_http_request *request)
{
    struct predict_call *call = request->call;

    cn_model_queue_cancel(call->job.queue, &call->job);
}

static void
on_taken(struct cn_http_request *request, size_t bytes)
{
    struct predict_call *call = request->call;

    cn_model_queue_consumed(&call->job, bytes);
}

/* Finds the queue of the model. The path names the model; for /invocations, a parameter does. */
static int
find_queue(const struct predict_call *call, struct cn_model_queue **out, struct cn_error *err)
{
    const struct cn_route_match *match = &call->request->match;
    struct cn_management *management = call->request->listener->shared->management;
    struct cn_str name = match->args[0];

    if (match->n_args == 0)
        name = cn_input_find(&call->job.row, CN_STR("model_name"));
    *out = NULL;
    if (match->n_args == 0 && name.len &&
        cn_management_check_model(management, call->request->key, name, err))
        return err->code;
    *out = name.len ? cn_management_find(management, name, match->args[1], err)
                    : cn_management_find_startup(management, err);
    if (*out && match->n_args == 0 && !name.len &&
        cn_management_check_model(management, call->request->key,
                                  cn_str_from(cn_model_queue_name(*out)), err)) {
        /* The client has not named the model, and is not to learn its name. */
        cn_management_check_model(management, call->request->key, CN_STR(""), err);
        return err->code;
    }
    if (*out && match->n_args == 0) /* error messages name the model */
        call->request->match.args[0] =
            cn_arena_str(&call->request->arena, cn_str_from(cn_model_queue_name(*out)));
    return *out ? 0 : err->code;
}

/* Checks everything that can be wrong before there is a job. */
static int
prepare(struct predict_call *call, struct cn_sequence_headers *sequence,
        struct cn_model_queue **queue, struct cn_error *err)
{
    struct cn_http_request *request = call->request;
    int rc = cn_intake_read_sequence(request->headers, request->n_headers, sequence, err);

    if (!rc && (request->match.route->flags & CN_ROUTE_SAGEMAKER))
        rc = cn_session_read(request->headers, request->n_headers, sequence, &call->session, err);
    if (!rc)
        rc = cn_input_parts(request, &call->job.row, err);
    if (!rc)
        rc = find_queue(call, queue, err);
    if (!rc)
        rc = cn_session_check(&call->session, cn_model_queue_config(*queue),
                              cn_model_queue_name(*queue), err);
    if (!rc && call->session.used && request->listener->shared->envelope != CN_ENVELOPE_NONE)
        rc = cn_fail(err, CN_E_BAD_REQUEST,
                     "sessions cannot be combined with a service envelope (service-envelope)");
    /* With an envelope the handler gets the instances unchanged. */
    if (!rc && cn_model_queue_config(*queue)->io &&
        request->listener->shared->envelope == CN_ENVELOPE_NONE)
        rc = cn_typed_read(&request->arena, request->listener->shared->config->max_request_bytes,
                           *queue, &call->job.row, err);
    return rc;
}

static int
fill_job(struct predict_call *call, const struct cn_sequence_headers *sequence,
         const struct cn_model_queue *queue, struct cn_error *err)
{
    static const struct cn_job_ops ops = {on_answer};
    const struct cn_http_request *request = call->request;
    const struct cn_intake intake = {
        .queue = queue,
        .loop = request->listener->loop,
        .ops = &ops,
        .version = request->match.args[1],
        .request_id = {request->id, sizeof(request->id) - 1},
        .sequence = *sequence, /* its id points into the copied headers or into the session */
        .headers = request->headers,
        .n_headers = request->n_headers,
        .key_first = true,
        .client_deadline_ms = CN_NEVER,
        .connection = request->conn->fd,
        .client = cn_management_client(request->key, cn_client_address_number(request->conn->from)),
        .begun_us = request->begun_us,
        .owner = cn_management_owner(request->listener->shared->management, request->key),
        .account = cn_key_account(request->key),
        .arena = &call->request->arena,
    };

    if (call->session.is_new)
        call->job.row.flags |= CN_ROW_GENERATED_ID;
    else if (call->session.used && !sequence->start)
        call->job.row.flags |= CN_ROW_MUST_EXIST;
    return cn_intake_fill(&call->job, &intake, err);
}

void
cn_predict_handle(struct cn_http_request *request)
{
    struct predict_call *call = cn_arena_alloc(&request->arena, sizeof(*call));
    const struct cn_model_config *config;
    struct cn_sequence_headers sequence;
    struct cn_model_queue *queue;
    struct cn_error err;

    memset(call, 0, sizeof(*call));
    call->request = request;
    if (cn_events_begin(request, &call->events, &err)) {
        cn_http_answer_error(request, err.code, err.message, 0);
        return;
    }
    if (call->events.last.is_end) { /* browsers connect again until they get this answer */
        cn_http_answer_bytes(request, 204, NULL, CN_STR(""));
        return;
    }
    cn_input_headers(request, &call->job.row);
    if (prepare(call, &sequence, &queue, &err) || fill_job(call, &sequence, queue, &err) ||
        cn_events_check(&call->events, cn_model_queue_config(queue)->sequence_batching,
                        &call->job.row, &err)) {
        cn_http_answer_error(request, err.code, err.message, 0);
        return;
    }
    config = cn_model_queue_config(queue);
    if (cn_access_log_enabled()) { /* the queue may be gone when the line is written */
        request->model = cn_arena_str(&request->arena, cn_str_from(cn_model_queue_name(queue))).ptr;
        request->version =
            cn_arena_str(&request->arena, cn_str_from(cn_model_queue_version(queue))).ptr;
        request->sequence = call->job.row.sequence_id;
    }
    request->echo_name = sequence.id_name;
    request->echo_short = sequence.id.len == 0;
    call->typed = (struct cn_typed_answer){.declared = config->io != NULL,
                                           .decoupled = config->io && config->io->decoupled,
                                           .is_whole = call->events.wanted};
    if (request->listener->shared->envelope != CN_ENVELOPE_NONE) {
        if (cn_service_envelope_submit(request, queue, &call->job, &err))
            cn_http_answer_error(request, err.code, err.message, 0);
        return;
    }
    cn_http_request_hold(request, call, on_gone);
    request->on_taken = on_taken;
    cn_model_queue_submit(queue, &call->job);
}

void
cn_predict_handle_workflow(struct cn_http_request *request)
{
    struct cn_str name = request->match.args[0];

    cn_http_answer_error(
        request, CN_E_WORKFLOW_NOT_FOUND,
        cn_arena_printf(&request->arena, "Workflow not found: %.*s", CN_STR_ARG(name)), 0);
}
