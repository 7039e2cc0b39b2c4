/* frontend/intake/predictions.c - a request becomes a job, its answer goes back. Owned by the loop
 * thread.
 *
 * The row's bytes lie in the request's arena and body buffer, copied out of libmicrohttpd's memory:
 * a streaming client may go away while the job still runs and may be sent to a worker again.
 */
#include "frontend/intake/predictions.h"

#include <inttypes.h>

#include "config/model/model_io.h"
#include "core/text/utf8.h"
#include "core/time/clock.h"
#include "frontend/http/access_log.h"
#include "frontend/http/http_answer.h"
#include "frontend/http/http_request.h"
#include "frontend/intake/row_input.h"
#include "frontend/intake/session.h"
#include "frontend/intake/typed.h"
#include "management/management.h"
#include "scheduler/queue/job.h"
#include "scheduler/queue/model_queue.h"

struct predict_call {
    struct cn_job job;
    struct cn_http_request *request;
    struct cn_session session;
    struct cn_typed_answer typed;
};

/* `first`: the header that has said it before; NULL: none has. */
static int
read_flag(const struct cn_header *header, const struct cn_header **first, bool *out,
          struct cn_error *err)
{
    const bool value = cn_str_eq_nocase(header->value, CN_STR("true"));

    if (header->value.len == 0)
        return 0;
    if (!value && !cn_str_eq_nocase(header->value, CN_STR("false")))
        return cn_fail(err, CN_E_BAD_REQUEST, "header %.*s is \"%.*s\"; it must be true or false",
                       CN_STR_ARG(header->name),
                       header->value.len > 40 ? 40 : (int)header->value.len, header->value.ptr);
    if (*first && *out != value)
        return cn_fail(err, CN_E_BAD_REQUEST,
                       "header %.*s is \"%.*s\", and header %.*s is \"%.*s\"; send one of them",
                       CN_STR_ARG((*first)->name), CN_STR_ARG((*first)->value),
                       CN_STR_ARG(header->name), CN_STR_ARG(header->value));
    *first = header;
    *out = value;
    return 0;
}

/* A name or an id in an error message: what fits beside the other one. */
static int
shown_len(struct cn_str text)
{
    return text.len > 60 ? (int)cn_utf8_cut(text, 60) : (int)text.len;
}

int
cn_predict_refuse_two_ids(const struct cn_sequence_headers *first, const struct cn_header *second,
                          struct cn_error *err)
{
    return cn_fail(err, CN_E_BAD_REQUEST,
                   "the request names two different sequences: %.*s is \"%.*s\", and %.*s is "
                   "\"%.*s\"; send one of them",
                   shown_len(first->id_name), first->id_name.ptr, shown_len(first->id),
                   first->id.ptr, shown_len(second->name), second->name.ptr,
                   shown_len(second->value), second->value.ptr);
}

int
cn_predict_read_id(const struct cn_header *header, struct cn_sequence_headers *out,
                   struct cn_error *err)
{
    if (header->value.len == 0)
        return 0;
    if (header->value.len > CN_SEQUENCE_ID_MAX)
        return cn_fail(err, CN_E_BAD_REQUEST, "the sequence id has %zu bytes; the limit is %d",
                       header->value.len, CN_SEQUENCE_ID_MAX);
    if (!cn_utf8_is_printable(header->value))
        return cn_fail(err, CN_E_BAD_REQUEST,
                       "a sequence id must be UTF-8 without control characters");
    if (out->id.len > 0 && !cn_str_eq(out->id, header->value))
        return cn_predict_refuse_two_ids(out, header, err);
    if (out->id.len == 0)
        out->id_name = header->name;
    out->id = header->value;
    return 0;
}

int
cn_predict_read_sequence(const struct cn_header *headers, uint32_t n,
                         struct cn_sequence_headers *out, struct cn_error *err)
{
    const struct cn_header *start = NULL, *end = NULL;
    uint32_t i;
    int rc;

    *out = (struct cn_sequence_headers){.id_name = cn_sequence_name(CN_NAME_ID)};
    for (i = 0; i < n; i++) {
        enum cn_sequence_name which = cn_sequence_name_find(headers[i].name);

        rc = 0;
        if (which == CN_NAME_ID ||
            cn_str_eq_header(headers[i].name, CN_STR("inference-session-id")))
            rc = cn_predict_read_id(&headers[i], out, err);
        else if (which == CN_NAME_START)
            rc = read_flag(&headers[i], &start, &out->start, err);
        else if (which == CN_NAME_END)
            rc = read_flag(&headers[i], &end, &out->end, err);
        if (rc)
            return rc;
    }
    return 0;
}

int
cn_predict_read_key(const struct cn_header *headers, uint32_t n, struct cn_str *out,
                    struct cn_error *err)
{
    *out = (struct cn_str){NULL, 0};
    for (uint32_t i = 0; i < n; i++) {
        struct cn_str value = headers[i].value;

        if (!cn_str_eq_header(headers[i].name, CN_STR("idempotency-key")))
            continue;
        if (value.len == 0 || value.len > CN_IDEMPOTENCY_KEY_MAX)
            return cn_fail(err, CN_E_BAD_REQUEST,
                           "the Idempotency-Key has %zu bytes; it must have 1 to %d", value.len,
                           CN_IDEMPOTENCY_KEY_MAX);
        if (!cn_http_is_printable_ascii(value))
            return cn_fail(err, CN_E_BAD_REQUEST, "Idempotency-Key must be printable ASCII");
        if (out->len > 0 && !cn_str_eq(*out, value))
            return cn_fail(err, CN_E_BAD_REQUEST,
                           "the request has two different Idempotency-Keys; send only one");
        *out = value;
    }
    return 0;
}

bool
cn_predict_names_step(struct cn_str name)
{
    return cn_str_eq_header(name, CN_STR("ts-request-sequence-step")) ||
           cn_str_eq_header(name, CN_STR("continuo-sequence-step"));
}

int
cn_predict_set_step(struct cn_row *row, uint64_t step, struct cn_error *err)
{
    if (step == 0 || step > INT64_MAX)
        return cn_fail(err, CN_E_BAD_REQUEST,
                       "sequence step %" PRIu64 "; steps are counted from 1 to 2^63 - 1", step);
    if ((row->flags & CN_ROW_NUMBERED) && row->step != step)
        return cn_fail(err, CN_E_BAD_REQUEST,
                       "the request has two different sequence steps, %" PRIu64 " and %" PRIu64,
                       row->step, step);
    row->flags |= CN_ROW_NUMBERED;
    row->step = step;
    return 0;
}

/* Digits and nothing else; 0: none, or more than fit. */
static uint64_t
step_of(struct cn_str text)
{
    uint64_t step = 0;

    for (size_t i = 0; i < text.len; i++) {
        if (text.ptr[i] < '0' || text.ptr[i] > '9' || step > INT64_MAX / 10)
            return 0;
        step = step * 10 + (uint64_t)(text.ptr[i] - '0');
    }
    return step <= INT64_MAX ? step : 0;
}

int
cn_predict_read_step(const struct cn_header *headers, uint32_t n, struct cn_row *row,
                     struct cn_error *err)
{
    for (uint32_t i = 0; i < n; i++) {
        struct cn_str value = headers[i].value;
        int rc;

        if (!cn_predict_names_step(headers[i].name))
            continue;
        if (step_of(value) == 0)
            return cn_fail(err, CN_E_BAD_REQUEST,
                           "header %.*s is \"%.*s\"; steps are counted from 1 to 2^63 - 1",
                           CN_STR_ARG(headers[i].name), value.len > 40 ? 40 : (int)value.len,
                           value.ptr);
        if ((rc = cn_predict_set_step(row, step_of(value), err)) != 0)
            return rc;
    }
    return 0;
}

/* Before the head of the answer is made. */
static void
tell_session(struct predict_call *call, const struct cn_answer_box *box)
{
    struct cn_http_request *request = call->request;

    if (call->session.is_new && box->answer.error_code == 0 && !request->new_session)
        request->new_session = cn_session_value(&request->arena, &call->session, cn_wall_ms());
    if (cn_session_is_closed(&box->answer) && box->sequence_id.len)
        request->closed_session = cn_arena_str(&request->arena, box->sequence_id).ptr;
}

/* For the access log, whose line is written when the answer is out and the box gone. */
static void
note_step(struct cn_http_request *request, const struct cn_answer_box *box)
{
    if (box->answer.step && !box->answer.error_code)
        request->step = box->answer.step;
    if (box->sequence_id.len && request->sequence.len == 0)
        request->sequence = cn_arena_str(&request->arena, box->sequence_id);
}

static void
on_answer(struct cn_job *job, struct cn_answer_box *box)
{
    struct predict_call *call = cn_container_of(job, struct predict_call, job);
    struct cn_http_request *request = call->request;
    const bool final = (box->answer.flags & CN_ANSWER_FINAL) != 0;
    const size_t bytes = box->answer.body.len;

    if (final) { /* nothing is left to cancel or to hold up */
        request->on_gone = NULL;
        request->on_taken = NULL;
    }
    if (call->session.used)
        tell_session(call, box);
    if (cn_access_log_enabled())
        note_step(request, box);
    box = cn_typed_write(&call->typed, box);
    if (!final && box && (box->answer.flags & CN_ANSWER_FINAL)) /* a piece that can't be sent */
        cn_model_queue_cancel(job->queue, job);
    if (box)
        cn_http_answer_piece(request, box);
    else
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

static void
fill_row(struct predict_call *call, const struct cn_sequence_headers *sequence)
{
    struct cn_http_request *request = call->request;
    struct cn_row *row = &call->job.row;

    row->flags |= (sequence->start ? CN_ROW_START : 0u) | (sequence->end ? CN_ROW_END : 0u);
    if (call->session.is_new)
        row->flags |= CN_ROW_GENERATED_ID;
    else if (call->session.used && !sequence->start)
        row->flags |= CN_ROW_MUST_EXIST;
    row->sequence_id = sequence->id; /* points into the copied headers, or into the session */
    row->request_id = (struct cn_str){request->id, sizeof(request->id) - 1};
}

/* The path names the model, or a parameter of /invocations does. */
static int
find_queue(const struct predict_call *call, struct cn_model_queue **out, struct cn_error *err)
{
    const struct cn_route_match *match = &call->request->match;
    struct cn_management *management = call->request->listener->shared->management;
    struct cn_str name = match->args[0];

    if (match->n_args == 0)
        name = cn_input_find(&call->job.row, CN_STR("model_name"));
    *out = name.len ? cn_management_find(management, name, match->args[1], err)
                    : cn_management_find_startup(management, err);
    if (*out && match->n_args == 0) /* errors name the model */
        call->request->match.args[0] =
            cn_arena_str(&call->request->arena, cn_str_from(cn_model_queue_name(*out)));
    return *out ? 0 : err->code;
}

/* Everything that may be wrong before there is a job. */
static int
prepare(struct predict_call *call, struct cn_sequence_headers *sequence,
        struct cn_model_queue **queue, struct cn_error *err)
{
    struct cn_http_request *request = call->request;
    int rc = cn_predict_read_sequence(request->headers, request->n_headers, sequence, err);

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
    /* With an envelope the handler gets its instances as they are. */
    if (!rc && cn_model_queue_config(*queue)->io &&
        request->listener->shared->envelope == CN_ENVELOPE_NONE)
        rc = cn_typed_read(request, *queue, &call->job.row, err);
    /* Without state a step may run twice: there the header means nothing. */
    if (!rc && cn_model_queue_config(*queue)->sequence_batching)
        rc = cn_predict_read_key(request->headers, request->n_headers,
                                 &call->job.row.idempotency_key, err);
    if (!rc && cn_model_queue_config(*queue)->sequence_batching)
        rc = cn_predict_read_step(request->headers, request->n_headers, &call->job.row, err);
    return rc;
}

static bool
wants_events(const struct cn_http_request *request)
{
    const struct cn_header *accept =
        cn_http_find(request->headers, request->n_headers, CN_STR("Accept"));

    return accept && cn_http_accepts(accept->value, CN_STR("text/event-stream"));
}

void
cn_predict_handle(struct cn_http_request *request)
{
    static const struct cn_job_ops ops = {on_answer};
    struct predict_call *call = cn_arena_alloc(&request->arena, sizeof(*call));
    const struct cn_model_config *config;
    struct cn_sequence_headers sequence;
    struct cn_model_queue *queue;
    struct cn_error err;

    memset(call, 0, sizeof(*call));
    call->request = request;
    cn_input_headers(request, &call->job.row);
    if (prepare(call, &sequence, &queue, &err)) {
        cn_http_answer_error(request, err.code, err.message, 0);
        return;
    }
    call->job.ops = &ops;
    call->job.named_version = request->match.args[1].len > 0;
    call->job.origin = request->listener->loop;
    call->job.any_version = request->match.args[1].len == 0;
    call->job.connection = request->conn->fd;
    fill_row(call, &sequence);
    config = cn_model_queue_config(queue);
    /* A worker that has to be started first, and then one whole call: nobody waits longer. */
    call->job.deadline_ms =
        cn_loop_now_ms(request->listener->loop) +
        1000 * ((uint64_t)config->response_timeout_s + config->startup_timeout_s);
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
                                           .events = wants_events(request)};
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
