/* frontend/intake/kserve_job.c - makes jobs from v2 requests, and v2 responses from their answers,
 * for HTTP and gRPC. On the loop of the request.
 *
 * The front ends read a body or a message into a cn_v2_request. From there on both protocols are
 * the same: the request is checked against the model's declaration, the sequence is taken from the
 * request or from headers, and tensors become parts of a row. The answer's tensors are checked, put
 * into the order that the client wants, classified if the request asks for that, and written to
 * shared memory if the request names a region.
 *
 * The types, messages and limits follow the protocol and Triton's server, and docs/v2.md lists the
 * differences. Two rules of sequences differ from /predictions. An id in the request's parameters
 * must have been opened with a start flag, while an id that only a header names opens its sequence
 * by itself. And 0 or an empty text means that there is no id.
 */
#include "frontend/intake/kserve_job.h"

#include "core/log/log.h"
#include "core/text/number.h"
#include "core/time/clock.h"
#include "kserve/classify.h"
#include "kserve/settings.h"
#include "kserve/shared_memory.h"
#include "scheduler/queue/model_queue.h"
#include "scheduler/queue/submit.h"

#define SESSION_HEADER "Inference-Session-Id"

void
cn_v2_job_init(struct cn_v2_job *v2, const struct cn_model_queue *queue, struct cn_arena *arena)
{
    memset(v2, 0, sizeof(*v2));
    v2->arena = arena;
    if (cn_model_queue_config(queue)->io)
        v2->io = cn_model_io_ref(cn_model_queue_config(queue)->io);
    v2->model = cn_arena_str(arena, cn_str_from(cn_model_queue_name(queue))).ptr;
    v2->version = cn_arena_str(arena, cn_str_from(cn_model_queue_version(queue))).ptr;
}

/* Logs how long a traced request took since it came to the queue. The model's statistics use the
 * same times. */
static void
log_trace(const struct cn_v2_job *v2)
{
    const struct cn_job *job = &v2->job;
    char quoted[300];

    cn_log(CN_LOG_INFO,
           "event=trace model=%s version=%s request_id=%s arrived_us=%llu queue_us=%llu "
           "compute_input_us=%llu compute_infer_us=%llu compute_output_us=%llu answered_us=%llu",
           v2->model, v2->version,
           cn_log_quote(job->row.request_id.ptr, job->row.request_id.len, quoted, sizeof(quoted)),
           (unsigned long long)job->arrived_us, (unsigned long long)job->queued_us,
           (unsigned long long)job->phase_us[CN_INFER_INPUT],
           (unsigned long long)job->phase_us[CN_INFER_HANDLER],
           (unsigned long long)job->phase_us[CN_INFER_OUTPUT], (unsigned long long)cn_now_us());
}

void
cn_v2_job_fini(struct cn_v2_job *v2)
{
    if (v2->traced)
        log_trace(v2);
    v2->traced = false;
    cn_model_io_unref(v2->io);
    v2->io = NULL;
    if (v2->first)
        cn_answer_box_free(v2->first);
    v2->first = NULL;
    cn_shm_release(&v2->request);
}

/* Checks that the id in a header equals the one in the request. A proxy that chooses a server by a
 * header may need the id there, too. A number is compared by its digits. */
static int
check_same_id(struct cn_str id, const struct cn_sequence_headers *headers, struct cn_error *err)
{
    const bool is_number = id.ptr[0] == CN_SEQUENCE_NUMBER;
    const struct cn_header own = {CN_STR("sequence_id"), {id.ptr + is_number, id.len - is_number}};

    if (headers->id.len == 0 || cn_str_eq(own.value, headers->id))
        return 0;
    return cn_intake_refuse_two_ids(headers, &own, err);
}

/* Sets the sequence. An id in the request's parameters needs a START first, as v2 clients know it.
 * An id that only a header names opens its sequence by itself. */
static int
set_sequence(struct cn_v2_job *v2, const struct cn_model_config *config,
             struct cn_sequence_headers *out, struct cn_error *err)
{
    const struct cn_v2_request *request = &v2->request;
    struct cn_row *row = &v2->job.row;
    struct cn_sequence_headers headers;
    int rc = cn_intake_read_sequence(row->headers, row->n_headers, &headers, err);

    if (rc || !config->sequence_batching)
        return rc;
    rc = cn_v2_check_corrid(request, v2->io, v2->model,
                            request->sequence_kind == CN_V2_ID_TEXT ||
                                (request->sequence_kind == CN_V2_NO_ID && headers.id.len),
                            err);
    if (rc)
        return rc;
    if (request->batch > 1)
        return cn_fail(err, CN_E_BAD_REQUEST,
                       "inference request to model '%s' must specify batch-size 1 due to "
                       "requirements of sequence batcher",
                       v2->model);
    if ((rc = cn_v2_sequence_id(request, v2->arena, &out->id, err)))
        return rc;
    out->start = request->start || headers.start;
    out->end = request->end || headers.end;
    if (out->id.len) {
        if ((rc = check_same_id(out->id, &headers, err)))
            return rc;
        row->flags |= request->start ? 0u : CN_ROW_MUST_EXIST;
    } else {
        out->id = headers.id;
        v2->echo_name =
            headers.id.len ? cn_arena_str(v2->arena, headers.id_name) : CN_STR(SESSION_HEADER);
        v2->made_id = headers.id.len == 0;
    }
    if (out->id.len == 0 && !config->sequence_implicit_start)
        return cn_fail(err, CN_E_BAD_REQUEST,
                       "inference request to model '%s' must specify a non-zero or non-empty "
                       "correlation ID",
                       v2->model);
    return request->has_step ? cn_intake_set_step(row, request->step, err) : 0;
}

/* Makes a part of a parameter that the protocol does not define. It comes after the tensors, as
 * text, and its content type tells the handler which type it had. */
static struct cn_part
param_part(const struct cn_v2_param *param, struct cn_arena *arena)
{
    struct cn_part part = {.name = param->name};
    char *number;

    switch (param->kind) {
    case CN_V2_BOOL:
        part.content_type = CN_STR("parameter/bool");
        part.data = param->boolean ? CN_STR("true") : CN_STR("false");
        break;
    case CN_V2_INT:
        part.content_type = CN_STR("parameter/int64");
        part.data = cn_str_from(cn_arena_printf(arena, "%lld", (long long)param->integer));
        break;
    case CN_V2_DOUBLE:
        part.content_type = CN_STR("parameter/double");
        part.data.ptr = number = cn_arena_alloc(arena, CN_NUMBER_MAX);
        part.data.len = (size_t)(cn_put_double(param->number, number) - number);
        break;
    case CN_V2_STRING:
        part.content_type = CN_STR("parameter/string");
        part.data = param->text;
        break;
    }
    return part;
}

int
cn_v2_job_count_shared(const struct cn_v2_job *v2, struct cn_request_bytes *held, size_t bytes,
                       struct cn_error *err)
{
    return cn_request_bytes_take(held, bytes + cn_shm_input_bytes(&v2->request))
               ? 0
               : cn_request_bytes_refuse(err);
}

int
cn_v2_job_prepare(struct cn_v2_job *v2, const struct cn_intake *from, struct cn_error *err)
{
    const struct cn_model_config *config = cn_model_queue_config(from->queue);
    struct cn_v2_request *request = &v2->request;
    struct cn_intake intake = *from;
    struct cn_row *row = &v2->job.row;
    int rc = cn_shm_read(request, v2->arena, err);

    if (!rc && v2->io)
        rc = cn_v2_check(request, v2->io, v2->model, v2->arena, err);
    if (!rc && v2->io)
        rc = cn_v2_check_writable(request, v2->io, config->sequence_batching, err);
    if (!rc)
        rc = set_sequence(v2, config, &intake.sequence, err);
    intake.headers = row->headers;
    intake.n_headers = row->n_headers;
    if (request->id.len) {
        intake.request_id = request->id;
        row->flags |= CN_ROW_NAMED;
    }
    if (!rc)
        rc = cn_intake_fill(&v2->job, &intake, err);
    if (rc)
        return rc;
    v2->job.named_version = false; /* TorchServe's metrics count v2 requests without a version */
    v2->job.timeout_us = request->timeout_us;
    v2->job.priority = request->priority;
    if (!v2->io)
        return 0;
    row->n_parts = request->n_inputs + request->n_params;
    row->parts = cn_arena_alloc(v2->arena, sizeof(*row->parts) * (row->n_parts ? row->n_parts : 1));
    for (uint32_t i = 0; i < request->n_inputs; i++)
        row->parts[i] = cn_tensor_part(&request->inputs[i], v2->arena);
    for (uint32_t i = 0; i < request->n_params; i++)
        row->parts[request->n_inputs + i] = param_part(&request->params[i], v2->arena);
    return 0;
}

void
cn_v2_job_submit(struct cn_v2_job *v2, struct cn_model_queue *queue)
{
    v2->traced = cn_trace_pick(cn_str_from(v2->model));
    cn_model_queue_submit(queue, &v2->job);
}

static int
response_of(const struct cn_v2_job *v2, const struct cn_answer *answer, bool is_tensors,
            struct cn_arena *arena, struct cn_v2_answer *out, struct cn_error *err)
{
    struct cn_tensor *tensors;
    struct cn_error why;
    int rc;

    *out = (struct cn_v2_answer){.model = v2->model, .version = v2->version};
    if (answer->status >= 400) /* the handler's own message */
        return cn_fail(err, CN_E_HANDLER_FAILED, "%.*s", CN_STR_ARG(answer->body));
    if (!is_tensors)
        return cn_fail(err, CN_E_HANDLER_FAILED,
                       "the handler answered without outputs; a v2 client needs "
                       "{ outputs = { NAME = { datatype, shape, data } } }");
    if (cn_tensors_get(answer->body, arena, &tensors, &out->n_tensors, &why))
        return cn_fail(err, CN_E_HANDLER_FAILED, "%s", why.message);
    out->tensors = tensors;
    rc = cn_v2_answer_check(out, &v2->request, v2->io, err);
    if (!rc)
        cn_v2_answer_order(tensors, out->n_tensors, &v2->request, v2->io);
    if (!rc)
        rc = cn_v2_classify(&v2->request, v2->io, arena, tensors, out->n_tensors, err);
    if (!rc)
        rc = cn_shm_store(&v2->request, tensors, out->n_tensors, err);
    return rc;
}

int
cn_v2_job_response(const struct cn_v2_job *v2, const struct cn_answer *answer,
                   struct cn_arena *arena, struct cn_v2_answer *out, struct cn_error *err)
{
    return response_of(v2, answer, cn_str_eq(answer->content_type, CN_STR(CN_TENSORS_TYPE)), arena,
                       out, err);
}

static const char *
id_text(const struct cn_v2_job *v2, struct cn_arena *arena)
{
    if (v2->request.sequence_kind == CN_V2_ID_NUMBER)
        return cn_arena_printf(arena, "%llu", (unsigned long long)v2->request.sequence_number);
    return cn_arena_str(arena, cn_job_client_id(&v2->job)).ptr;
}

/* Returns the message without the mark with which integer sequence ids begin. */
static const char *
message_of(const struct cn_answer *answer, struct cn_arena *arena)
{
    char *message = cn_arena_strndup(arena, answer->body.ptr, answer->body.len), *to = message;

    for (const char *from = message; *from; from++)
        if (*from != CN_SEQUENCE_NUMBER)
            *to++ = *from;
    *to = '\0';
    return message;
}

/* Returns the text that v2 clients compare first, followed by what happened. */
const char *
cn_v2_job_failure(const struct cn_v2_job *v2, const struct cn_answer *answer,
                  struct cn_arena *arena, int *code)
{
    const char *message = message_of(answer, arena);

    *code = answer->error_code;
    if (*code == CN_E_HANDLER_FAILED && answer->status == 503) /* the handler has chosen it */
        *code = CN_E_UNAVAILABLE;
    else if (*code == CN_E_HANDLER_FAILED && answer->status == 501)
        *code = CN_E_UNIMPLEMENTED;
    if (*code != CN_E_SEQUENCE_UNKNOWN && *code != CN_E_SEQUENCE_EXPIRED &&
        *code != CN_E_SEQUENCE_ENDED)
        return message;
    *code = CN_E_BAD_REQUEST;
    return cn_arena_printf(arena,
                           "inference request for sequence %s to model '%s' must specify the "
                           "START flag on the first request of the sequence (%s)",
                           id_text(v2, arena), v2->model, message);
}

/* The end came after the response `first`: makes one answer of both. */
static struct cn_answer_box *
join(const struct cn_v2_job *v2, struct cn_answer_box *first, struct cn_answer_box *end)
{
    if (v2->several || (end->answer.body.len && !end->answer.error_code)) {
        end->answer.error_code = CN_E_HANDLER_FAILED;
        end->answer.status = 0;
        return cn_answer_box_remake(end, CN_STR(""),
                                    CN_STR("expected a single response, got 2; this model answers "
                                           "in pieces, so use a stream"));
    }
    if (end->answer.error_code)
        return end;
    first->answer.flags |= end->answer.flags;
    return first;
}

struct cn_answer_box *
cn_v2_job_complete(struct cn_v2_job *v2, struct cn_answer_box *box)
{
    struct cn_answer_box *const first = v2->first, *whole;

    if (!(box->answer.flags & CN_ANSWER_FINAL)) {
        cn_model_queue_consumed(&v2->job, box->answer.body.len);
        if (box->answer.body.len && !first) {
            v2->first = box;
            return NULL;
        }
        if (box->answer.body.len && !v2->several) {
            v2->several = true;
            cn_model_queue_cancel(v2->job.queue, &v2->job);
        }
        cn_answer_box_free(box); /* or the handler pauses, or answers later */
        return NULL;
    }
    if (!first)
        return box;
    v2->first = NULL;
    whole = join(v2, first, box);
    cn_answer_box_free(whole == first ? box : first);
    return whole;
}

/* Only the first piece has the answer's head. It may have no data. */
void
cn_v2_job_piece(struct cn_v2_job *v2, const struct cn_answer *answer, struct cn_arena *arena,
                struct cn_v2_piece *out)
{
    struct cn_error err;

    *out = (struct cn_v2_piece){.kind = CN_V2_NOTHING,
                                .final = (answer->flags & CN_ANSWER_FINAL) != 0};
    if (v2->over)
        return;
    v2->over = out->final;
    if (answer->error_code) {
        out->kind = CN_V2_FAILURE;
        out->message = cn_v2_job_failure(v2, answer, arena, &out->code);
        return;
    }
    if (answer->content_type.len)
        v2->tensors = cn_str_eq(answer->content_type, CN_STR(CN_TENSORS_TYPE));
    if (answer->body.len == 0 && !out->final)
        return;
    if (answer->body.len == 0 && ((v2->io && v2->io->decoupled) || v2->n_responses)) {
        out->kind = CN_V2_END;
        return;
    }
    out->kind = CN_V2_RESPONSE;
    if (response_of(v2, answer, v2->tensors, arena, &out->response, &err)) {
        out->kind = CN_V2_FAILURE;
        out->code = err.code;
        out->message = cn_arena_str(arena, cn_str_from(err.message)).ptr;
        v2->over = true;
        return;
    }
    v2->n_responses++;
    out->response.streamed = true;
    out->response.final = out->final;
}
