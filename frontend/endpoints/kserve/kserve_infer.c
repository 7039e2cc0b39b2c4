/* frontend/endpoints/kserve/kserve_infer.c - v2 inference over HTTP: makes requests from bodies,
 * and bodies from responses. Owned by the loop thread.
 *
 * A body is JSON, or JSON followed by the tensors' bytes; the header Inference-Header-Content-
 * Length says where the JSON ends. With length 0 the body is the bytes of a single input. A body
 * may be compressed. The result is a cn_v2_request, from which kserve_job.c (frontend/intake)
 * makes the job, as it does for gRPC.
 *
 * The Accept header decides about the form of the answer: one response, server-sent events, or
 * lines of JSON. Decoupled models answer in the last two forms only, which kserve_stream.c writes.
 * Binary outputs are refused there, because text cannot contain arbitrary bytes.
 *
 * The call lies in the request's arena and holds the request. It ends with the job's final answer,
 * even if the client has left.
 */
#include "access/keys.h"
#include "core/memory/mem.h"
#include "core/text/number.h"
#include "core/time/clock.h"
#include "frontend/endpoints/kserve/kserve_http.h"
#include "frontend/endpoints/kserve/kserve_http_priv.h"
#include "frontend/endpoints/predictions.h"
#include "frontend/endpoints/row_input.h"
#include "frontend/http/http_answer.h"
#include "frontend/http/http_request.h"
#include "frontend/intake/client_addresses.h"
#include "frontend/intake/compress.h"
#include "frontend/intake/headers.h"
#include "frontend/intake/kserve_job.h"
#include "frontend/intake/step_headers.h"
#include "kserve/access.h"
#include "kserve/infer_answer.h"
#include "kserve/models/kserve_models.h"
#include "kserve/plain.h"
#include "kserve/shared_memory.h"
#include "management/management.h"
#include "scheduler/queue/model_queue.h"
#include "scheduler/queue/submit.h"

#define LENGTH_HEADER "Inference-Header-Content-Length"
#define REDIRECTED "continuo-redirected" /* the query parameter of a request that was redirected */

/* --- a call --- */

static void
on_gone(struct cn_http_request *request)
{
    struct cn_v2_http_call *call = request->call;

    cn_model_queue_cancel(call->v2.job.queue, &call->v2.job);
}

struct cn_v2_http_call *
cn_v2_http_call_create(struct cn_http_request *request, const struct cn_model_queue *queue)
{
    struct cn_v2_http_call *call = cn_arena_alloc(&request->arena, sizeof(*call));

    memset(call, 0, sizeof(*call));
    cn_v2_job_init(&call->v2, queue, &request->arena);
    call->request = request;
    cn_buf_init(&call->first, 0);
    cn_input_headers(request, &call->v2.job.row);
    return call;
}

/* Sends the client to the node that is to get the sequence's steps. This is for sequences that only
 * the body names; for others, a proxy has chosen the node by a header. A request that has been
 * redirected is served in any case, so nodes whose lists differ cannot send a client round in
 * circles. */
static bool
redirect(struct cn_v2_http_call *call)
{
    struct cn_http_request *request = call->request;
    const struct cn_row *row = &call->v2.job.row;
    struct cn_sequence_headers named;
    char url[CN_MANAGEMENT_URL_MAX];
    struct cn_buf body;

    if (!request->listener->shared->config->redirect_sequences || !row->sequence_id.len ||
        call->v2.request.sequence_kind == CN_V2_NO_ID ||
        cn_header_find(request->query, request->n_query, CN_STR(REDIRECTED)) ||
        cn_intake_read_sequence(row->headers, row->n_headers, &named, NULL) || named.id.len ||
        !cn_management_redirects(request->listener->shared->management,
                                 cn_job_client_id(&call->v2.job), url))
        return false;
    request->location = cn_arena_printf(&request->arena, "%s%.*s?" REDIRECTED "=true", url,
                                        CN_STR_ARG(request->path));
    cn_buf_init(&body, 0);
    cn_v2_write_error("this sequence belongs to another node; the header Location has its address",
                      &body);
    cn_http_answer_json(request, 307, 0, cn_buf_str(&body));
    cn_buf_fini(&body);
    return true;
}

void
cn_v2_http_call_submit(struct cn_v2_http_call *call, struct cn_model_queue *queue,
                       const struct cn_job_ops *ops)
{
    struct cn_http_request *request = call->request;
    const struct cn_intake intake = {
        .queue = queue,
        .loop = request->listener->loop,
        .ops = ops,
        .version = request->match.args[1],
        .request_id = {request->id, sizeof(request->id) - 1},
        .client_deadline_ms = CN_NEVER,
        .connection = request->conn->fd,
        .client = cn_management_client(request->key, cn_client_address_number(request->conn->from)),
        .begun_us = request->begun_us,
        .owner = cn_management_owner(request->listener->shared->management, request->key),
        .account = cn_key_account(request->key),
        .arena = &request->arena,
    };
    struct cn_error err;

    /* Regions are the server's: a key that is limited to some models may not use them. */
    if ((cn_shm_is_used(&call->v2.request) &&
         (cn_management_check_model(request->listener->shared->management, request->key, CN_STR(""),
                                    &err) ||
          cn_v2_job_count_shared(&call->v2, &request->body_bytes, request->body_len, &err))) ||
        cn_v2_job_prepare(&call->v2, &intake, &err)) {
        cn_v2_http_error(request, err.code, err.message);
        cn_v2_job_fini(&call->v2);
        return;
    }
    if (redirect(call)) {
        cn_v2_job_fini(&call->v2);
        return;
    }
    request->echo_name = call->v2.echo_name;
    request->echo_short = call->v2.made_id;
    cn_http_request_hold(request, call, on_gone);
    cn_v2_job_submit(&call->v2, queue);
}

void
cn_v2_http_call_end(struct cn_v2_http_call *call)
{
    call->request->on_gone = NULL;
    call->request->on_taken = NULL;
    cn_buf_fini(&call->first);
    cn_v2_job_fini(&call->v2);
    cn_http_request_release(call->request);
}

void
cn_v2_http_call_give_up(struct cn_v2_http_call *call)
{
    call->answered = true;
    cn_model_queue_cancel(call->v2.job.queue, &call->v2.job);
}

/* --- infer --- */

static void
answer_binary(struct cn_http_request *request, struct cn_buf *body)
{
    if (!body->failed) {
        cn_http_answer_taken(request, "application/octet-stream", body);
        return;
    }
    request->json_length = NULL;
    cn_v2_http_error(request, CN_E_OUT_OF_MEMORY, "not enough memory for the response");
}

static const char *
number_text(struct cn_arena *arena, size_t number)
{
    char text[CN_NUMBER_MAX];

    return cn_arena_strndup(arena, text, (size_t)(cn_put_uint(number, text) - text));
}

/* Answers with the tensors of the box. Returns false if the request has taken the box over. */
static bool
answer_tensors(struct cn_v2_http_call *call, struct cn_answer_box *box)
{
    struct cn_http_request *request = call->request;
    struct cn_str last = CN_STR("");
    struct cn_v2_answer response;
    struct cn_error err;
    struct cn_buf body;
    size_t json_len;

    cn_buf_init(&body, 0);
    if (cn_v2_job_response(&call->v2, &box->answer, &request->arena, &response, &err) ||
        cn_v2_write(&response, &call->v2.request, &body, &json_len, &last, &err)) {
        cn_v2_http_error(request, err.code, err.message);
    } else if (body.failed) {
        cn_v2_http_error(request, CN_E_OUT_OF_MEMORY, "not enough memory for the response");
    } else if (json_len == 0) {
        cn_http_answer_taken(request, "application/json", &body);
    } else {
        request->json_length = number_text(&request->arena, json_len);
        if (last.len &&
            cn_http_answer_with_box(request, "application/octet-stream", &body, last, box))
            return false;
        answer_binary(request, &body);
    }
    cn_buf_fini(&body);
    return true;
}

static void
answer_error(struct cn_v2_http_call *call, const struct cn_answer *answer)
{
    int code;
    const char *message = cn_v2_job_failure(&call->v2, answer, &call->request->arena, &code);

    cn_v2_http_error(call->request, code, message);
}

static void
on_answer(struct cn_job *job, struct cn_answer_box *box)
{
    struct cn_v2_http_call *call = cn_container_of(job, struct cn_v2_http_call, v2.job);
    struct cn_http_request *request = call->request;

    box = cn_v2_job_complete(&call->v2, box);
    if (!box)
        return;
    cn_http_answer_echo(request, box);
    if (box->answer.error_code)
        answer_error(call, &box->answer);
    if (box->answer.error_code || answer_tensors(call, box))
        cn_answer_box_free(box);
    cn_v2_http_call_end(call);
}

/* Decompresses the body in place. It is done in one go: that takes less time than parsing the JSON
 * within, and max-v2-request-size bounds the size of both. */
static int
decompress(struct cn_http_request *request, struct cn_error *err)
{
    const struct cn_header *coding =
        cn_header_find(request->headers, request->n_headers, CN_STR("Content-Encoding"));
    struct cn_buf plain;
    int rc;

    if (!coding || coding->value.len == 0 || cn_str_eq(coding->value, CN_STR("identity")))
        return 0;
    if (!cn_str_eq(coding->value, CN_STR("gzip")) && !cn_str_eq(coding->value, CN_STR("deflate"))) {
        request->codings = "gzip, deflate";
        return cn_fail(err, CN_E_UNIMPLEMENTED, "Unsupported compression type");
    }
    cn_buf_init(&plain, 0);
    rc = cn_inflate(cn_http_request_body_str(request),
                    request->listener->shared->config->max_v2_request_bytes, &plain, err);
    if (rc) {
        cn_buf_fini(&plain);
        return rc;
    }
    if (!cn_request_bytes_take(&request->body_bytes, plain.len)) {
        cn_buf_fini(&plain);
        return cn_request_bytes_refuse(err);
    }
    if (request->body_on_heap)
        cn_free(request->body);
    request->body = cn_buf_take(&plain, &request->body_len);
    request->body_cap = request->body_len;
    request->body_on_heap = true;
    return 0;
}

static int
read_body(struct cn_v2_http_call *call, struct cn_error *err)
{
    struct cn_http_request *request = call->request;
    struct cn_v2_job *v2 = &call->v2;
    const struct cn_v2_limits limits = {
        .json_bytes = request->listener->shared->config->max_v2_request_bytes};
    const struct cn_header *length =
        cn_header_find(request->headers, request->n_headers, CN_STR(LENGTH_HEADER));
    size_t json_len;
    struct cn_str body;
    int rc = decompress(request, err);

    body = cn_http_request_body_str(request);
    json_len = body.len;
    if (!rc && length)
        rc = cn_v2_read_json_length(length->value, body.len, &json_len, err);
    if (!rc && json_len == 0)
        rc = cn_v2_read_raw(body, v2->io, v2->model, &request->arena, &v2->request, err);
    else if (!rc)
        rc = cn_v2_read(body, json_len, v2->model, &limits, &request->arena, &v2->request, err);
    if (json_len == 0 && call->form != CN_V2_FORM_ONE)
        v2->request.binary_by_default = false; /* the request did not ask for binary outputs */
    return rc;
}

/* Returns the form of the answer. The client must name a stream's type: one that accepts every
 * type, as many do by default, does not want a stream. */
static enum cn_v2_http_form
wanted_form(const struct cn_http_request *request)
{
    const struct cn_header *accept =
        cn_header_find(request->headers, request->n_headers, CN_STR("Accept"));

    if (!accept)
        return CN_V2_FORM_ONE;
    if (cn_http_accepts(accept->value, CN_STR("text/event-stream")))
        return CN_V2_FORM_EVENTS;
    return cn_http_accepts(accept->value, CN_STR("application/x-ndjson")) ? CN_V2_FORM_LINES
                                                                          : CN_V2_FORM_ONE;
}

/* Refuses binary outputs, because events and lines are text. */
static int
forbid_binary(const struct cn_v2_request *request, struct cn_error *err)
{
    bool binary = request->binary_by_default && request->n_outputs == 0;

    for (uint32_t i = 0; i < request->n_outputs; i++)
        binary = binary || request->outputs[i].binary;
    return binary ? cn_fail(err, CN_E_BAD_REQUEST,
                            "binary outputs cannot be streamed as text: request JSON (binary_data "
                            "or binary_data_output: false), or do not ask for a stream (Accept)")
                  : 0;
}

void
cn_v2_http_infer(struct cn_http_request *request)
{
    static const struct cn_job_ops ops = {on_answer};
    struct cn_v2_http_call *call;
    struct cn_model_queue *queue;
    struct cn_error err;
    int rc;

    queue = cn_v2_find(request->listener->shared->management, request->match.args[0],
                       request->match.args[1], &err);
    if (!queue) {
        cn_v2_http_error(request, err.code, err.message);
        return;
    }
    call = cn_v2_http_call_create(request, queue);
    call->form = wanted_form(request);
    if (call->form == CN_V2_FORM_ONE && call->v2.io->decoupled)
        rc = cn_fail(&err, CN_E_UNIMPLEMENTED,
                     "HTTP end point doesn't support models with decoupled transaction policy; use "
                     "generate_stream, or say Accept: text/event-stream");
    else
        rc = read_body(call, &err);
    if (!rc)
        rc = cn_v2_access_forward(CN_V2_HTTP, call->v2.job.row.headers, call->v2.job.row.n_headers,
                                  &request->arena, &call->v2.request, &err);
    if (!rc && call->form != CN_V2_FORM_ONE)
        rc = forbid_binary(&call->v2.request, &err);
    if (rc) {
        cn_v2_http_error(request, err.code, err.message);
        cn_v2_job_fini(&call->v2);
    } else if (call->form == CN_V2_FORM_ONE) {
        cn_v2_http_call_submit(call, queue, &ops);
    } else {
        cn_v2_http_stream_submit(call, queue);
    }
}

void
cn_v2_http_torchserve(struct cn_http_request *request)
{
    struct cn_model_queue *queue =
        cn_management_find(request->listener->shared->management, request->match.args[0],
                           request->match.args[1], &(struct cn_error){0});

    if (queue && cn_model_queue_config(queue)->io)
        cn_v2_http_infer(request);
    else
        cn_predict_handle(request);
}
