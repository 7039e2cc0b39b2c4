/* frontend/v2_infer.c - a v2 inference request becomes a job, its tensors an answer.
 *
 * The tensors stay where they came in (the request's body or arena); each is a part of the row. Owned
 * by the loop thread.
 */
#include "core/clock.h"
#include "core/mem.h"
#include "frontend/answer.h"
#include "frontend/compress.h"
#include "frontend/http_request.h"
#include "frontend/input.h"
#include "frontend/predict.h"
#include "frontend/v2_http.h"
#include "frontend/v2_http_priv.h"
#include "scheduler/job.h"
#include "scheduler/model_queue.h"
#include "v2/answer.h"
#include "v2/classify.h"
#include "v2/plain.h"

#define SESSION_HEADER "Inference-Session-Id"
#define LENGTH_HEADER "Inference-Header-Content-Length"

struct infer_call {
    struct cn_job job;
    struct cn_http_request *request;
    struct cn_v2_request v2;
    struct cn_model_io *io; /* a reference: an answer may come after its model version is gone */
    const char *model, *version; /* in the arena */
};

static const struct cn_header *
find_header(const struct cn_http_request *request, struct cn_str name)
{
    for (uint32_t i = 0; i < request->n_headers; i++)
        if (cn_str_eq_header(request->headers[i].name, name))
            return &request->headers[i];
    return NULL;
}

static void
answer_tensors(struct infer_call *call, const struct cn_answer *answer)
{
    struct cn_http_request *request = call->request;
    struct cn_v2_answer v2 = {.model = call->model, .version = call->version};
    struct cn_tensor *tensors;
    struct cn_error err;
    struct cn_buf body;
    size_t json_len;

    if (!cn_str_eq(answer->content_type, CN_STR(CN_TENSORS_TYPE))) {
        cn_v2_http_error(request, CN_E_HANDLER_FAILED,
                         "the handler answered without outputs; a v2 client needs "
                         "{ outputs = { NAME = { datatype, shape, data } } }");
        return;
    }
    if (cn_tensors_get(answer->body, &request->arena, &tensors, &v2.n_tensors, &err)) {
        cn_v2_http_error(request, CN_E_HANDLER_FAILED, err.message);
        return;
    }
    v2.tensors = tensors;
    if (cn_v2_classify(&call->v2, call->io, &request->arena, tensors, v2.n_tensors, &err)) {
        cn_v2_http_error(request, err.code, err.message);
        return;
    }
    cn_buf_init(&body, 0);
    if (cn_v2_write(&v2, &call->v2, call->io, &body, &json_len, &err)) {
        cn_v2_http_error(request, err.code, err.message);
    } else if (body.failed) {
        cn_v2_http_error(request, CN_E_OUT_OF_MEMORY, "no memory for the response");
    } else if (json_len == 0) {
        cn_http_answer_json(request, 200, 0, cn_buf_str(&body));
    } else {
        request->json_length = cn_arena_printf(&request->arena, "%zu", json_len);
        cn_http_answer_bytes(request, 200, "application/octet-stream", cn_buf_str(&body));
    }
    cn_buf_fini(&body);
}

static const char *
id_text(const struct infer_call *call)
{
    struct cn_arena *arena = &call->request->arena;

    if (call->v2.sequence_kind == CN_V2_ID_NUMBER)
        return cn_arena_printf(arena, "%llu", (unsigned long long)call->v2.sequence_number);
    return cn_arena_str(arena, call->job.row.sequence_id).ptr;
}

/* What v2 clients match on first, then what happened. */
static void
answer_error(struct infer_call *call, const struct cn_answer *answer)
{
    struct cn_arena *arena = &call->request->arena;
    const char *message = cn_arena_strndup(arena, answer->body.ptr, answer->body.len);
    int code = answer->error_code;

    if (code == CN_E_SEQUENCE_UNKNOWN || code == CN_E_SEQUENCE_EXPIRED ||
        code == CN_E_SEQUENCE_ENDED) {
        message =
            cn_arena_printf(arena,
                            "inference request for sequence %s to model '%s' must specify the "
                            "START flag on the first request of the sequence (%s)",
                            id_text(call), call->model, message);
        code = CN_E_BAD_REQUEST;
    }
    cn_v2_http_error(call->request, code, message);
}

static void
on_answer(struct cn_job *job, struct cn_answer_box *box)
{
    struct infer_call *call = cn_container_of(job, struct infer_call, job);
    struct cn_http_request *request = call->request;

    if (!(box->answer.flags & CN_ANSWER_FINAL)) {
        cn_model_queue_consumed(job, box->answer.body.len);
        cn_v2_http_error(request, CN_E_UNIMPLEMENTED,
                         "this model answers in pieces, which the infer endpoint can't carry; use "
                         "generate_stream or /predictions");
        cn_model_queue_cancel(job->queue, job);
        cn_answer_box_free(box);
        return;
    }
    request->on_gone = NULL;
    if (request->echo_name.len && box->sequence_id.len)
        request->echo_value = cn_arena_str(&request->arena, box->sequence_id);
    if (box->answer.error_code)
        answer_error(call, &box->answer);
    else
        answer_tensors(call, &box->answer);
    cn_answer_box_free(box);
    cn_model_io_unref(call->io);
    cn_http_request_release(request);
}

static void
on_gone(struct cn_http_request *request)
{
    struct infer_call *call = request->call;

    cn_model_queue_cancel(call->job.queue, &call->job);
}

/* The body as it was before its client compressed it. In one go: it takes less time than the JSON that
 * it holds, and max-request-size bounds both. */
static int
decompress(struct cn_http_request *request, struct cn_error *err)
{
    const struct cn_header *coding = find_header(request, CN_STR("Content-Encoding"));
    struct cn_buf plain;
    int rc;

    if (!coding || coding->value.len == 0 || cn_str_eq(coding->value, CN_STR("identity")))
        return 0;
    if (!cn_str_eq(coding->value, CN_STR("gzip")) && !cn_str_eq(coding->value, CN_STR("deflate")))
        return cn_fail(err, CN_E_UNIMPLEMENTED, "Unsupported compression type");
    cn_buf_init(&plain, 0);
    rc = cn_inflate(cn_http_request_body_str(request),
                    request->listener->shared->config->max_request_bytes, &plain, err);
    if (rc) {
        cn_buf_fini(&plain);
        return rc;
    }
    if (request->body_on_heap)
        cn_free(request->body);
    request->body = cn_buf_take(&plain, &request->body_len);
    request->body_cap = request->body_len;
    request->body_on_heap = true;
    return 0;
}

static int
read_body(struct infer_call *call, struct cn_error *err)
{
    struct cn_http_request *request = call->request;
    const struct cn_v2_limits limits = {.json_bytes =
                                            request->listener->shared->config->max_request_bytes};
    const struct cn_header *length = find_header(request, CN_STR(LENGTH_HEADER));
    size_t json_len;
    struct cn_str body;
    int rc = decompress(request, err);

    body = cn_http_request_body_str(request);
    json_len = body.len;
    if (!rc && length)
        rc = cn_v2_read_json_length(length->value, body.len, &json_len, err);
    if (!rc && json_len == 0)
        rc = cn_v2_read_raw(body, call->io, call->model, &request->arena, &call->v2, err);
    else if (!rc)
        rc = cn_v2_read(body, json_len, call->model, &limits, &request->arena, &call->v2, err);
    if (!rc)
        rc = cn_v2_check(&call->v2, call->io, call->model, &request->arena, err);
    return rc;
}

/* The body's sequence_id wins over the header. An id from the body needs a START once, as v2 clients
 * know it; one from the header opens its sequence by itself. */
static int
set_sequence(struct infer_call *call, const struct cn_model_config *config, struct cn_error *err)
{
    struct cn_http_request *request = call->request;
    struct cn_row *row = &call->job.row;
    struct cn_sequence_headers headers;
    int rc = cn_predict_read_sequence(request->headers, request->n_headers, &headers, err);

    if (rc || !config->sequence_batching)
        return rc;
    if (call->v2.batch > 1)
        return cn_fail(err, CN_E_BAD_REQUEST,
                       "inference request to model '%s' must specify batch-size 1 due to "
                       "requirements of sequence batcher",
                       call->model);
    if ((rc = cn_v2_sequence_id(&call->v2, &request->arena, &row->sequence_id, err)))
        return rc;
    row->flags |= (call->v2.start || headers.start ? CN_ROW_START : 0u) |
                  (call->v2.end || headers.end ? CN_ROW_END : 0u);
    if (row->sequence_id.len) {
        row->flags |= call->v2.start ? 0u : CN_ROW_MUST_EXIST;
    } else {
        row->sequence_id = headers.id;
        request->echo_name = headers.id.len ? cn_arena_str(&request->arena, headers.id_name)
                                            : CN_STR(SESSION_HEADER);
    }
    if (row->sequence_id.len == 0 && !config->sequence_implicit_start)
        return cn_fail(err, CN_E_BAD_REQUEST,
                       "inference request to model '%s' must specify a non-zero or non-empty "
                       "correlation ID",
                       call->model);
    return cn_predict_read_key(request->headers, request->n_headers, &row->idempotency_key, err);
}

static void
set_parts(struct infer_call *call)
{
    struct cn_arena *arena = &call->request->arena;
    struct cn_row *row = &call->job.row;

    row->n_parts = call->v2.n_inputs;
    row->parts = cn_arena_alloc(arena, sizeof(*row->parts) * (row->n_parts ? row->n_parts : 1));
    for (uint32_t i = 0; i < row->n_parts; i++)
        row->parts[i] = cn_tensor_part(&call->v2.inputs[i], arena);
    row->request_id = call->v2.id.len
                          ? call->v2.id
                          : (struct cn_str){call->request->id, sizeof(call->request->id) - 1};
}

void
cn_v2_http_infer(struct cn_http_request *request)
{
    static const struct cn_job_ops ops = {on_answer};
    struct infer_call *call = cn_arena_alloc(&request->arena, sizeof(*call));
    const struct cn_model_config *config;
    struct cn_model_queue *queue;
    struct cn_error err;

    memset(call, 0, sizeof(*call));
    call->request = request;
    queue = cn_v2_http_find(request, &err);
    if (!queue) {
        cn_v2_http_error(request, err.code, err.message);
        return;
    }
    config = cn_model_queue_config(queue);
    call->io = cn_model_io_ref(config->io);
    call->model = cn_arena_str(&request->arena, cn_str_from(cn_model_queue_name(queue))).ptr;
    call->version = cn_arena_str(&request->arena, cn_str_from(cn_model_queue_version(queue))).ptr;
    cn_input_headers(request, &call->job.row);
    if (read_body(call, &err) || set_sequence(call, config, &err)) {
        cn_v2_http_error(request, err.code, err.message);
        cn_model_io_unref(call->io);
        return;
    }
    set_parts(call);
    call->job.ops = &ops;
    call->job.origin = request->listener->loop;
    call->job.any_version = request->match.args[1].len == 0;
    call->job.deadline_ms =
        cn_loop_now_ms(request->listener->loop) +
        1000 * ((uint64_t)config->response_timeout_s + config->startup_timeout_s);
    cn_http_request_hold(request, call, on_gone);
    cn_model_queue_submit(queue, &call->job);
}
