/* frontend/predict.c - a request becomes a job, its answer goes back. Owned by the loop thread.
 *
 * The row's bytes lie in the request's arena and body buffer, copied out of libmicrohttpd's memory:
 * a streaming client may go away while the job still runs and may be sent to a worker again.
 */
#include "frontend/predict.h"

#include "frontend/answer.h"
#include "frontend/http_request.h"
#include "management/management.h"
#include "scheduler/job.h"
#include "scheduler/model_queue.h"

struct predict_call {
    struct cn_job job;
    struct cn_part part;
    struct cn_http_request *request;
};

static int
read_flag(const struct cn_header *header, bool *out, struct cn_error *err)
{
    if (cn_str_eq_nocase(header->value, CN_STR("true"))) {
        *out = true;
        return 0;
    }
    if (header->value.len == 0 || cn_str_eq_nocase(header->value, CN_STR("false")))
        return 0;
    return cn_fail(err, CN_E_BAD_REQUEST, "header %.*s must be true or false",
                   CN_STR_ARG(header->name));
}

static int
read_id(const struct cn_header *header, struct cn_sequence_headers *out, struct cn_error *err)
{
    if (header->value.len == 0)
        return 0;
    if (header->value.len > CN_SEQUENCE_ID_MAX)
        return cn_fail(err, CN_E_BAD_REQUEST, "sequence id of %zu bytes, the limit is %d",
                       header->value.len, CN_SEQUENCE_ID_MAX);
    if (!cn_http_is_printable(header->value))
        return cn_fail(err, CN_E_BAD_REQUEST,
                       "a sequence id must be UTF-8 without control characters");
    if (out->id.len > 0 && !cn_str_eq(out->id, header->value))
        return cn_fail(err, CN_E_BAD_REQUEST, "two different sequence ids in one request");
    if (out->id.len == 0)
        out->id_name = header->name;
    out->id = header->value;
    return 0;
}

int
cn_predict_read_sequence(const struct cn_header *headers, uint32_t n,
                         struct cn_sequence_headers *out, struct cn_error *err)
{
    const struct cn_str prefix = CN_STR("ts_request_sequence_");
    uint32_t i;
    int rc;

    *out = (struct cn_sequence_headers){.id_name = CN_STR(CN_SEQUENCE_HEADER)};
    for (i = 0; i < n; i++) {
        struct cn_str name = headers[i].name, rest;

        if (name.len <= prefix.len ||
            !cn_str_eq_header((struct cn_str){name.ptr, prefix.len}, prefix))
            continue;
        rest = (struct cn_str){name.ptr + prefix.len, name.len - prefix.len};
        rc = 0;
        if (cn_str_eq_header(rest, CN_STR("id")))
            rc = read_id(&headers[i], out, err);
        else if (cn_str_eq_header(rest, CN_STR("start")))
            rc = read_flag(&headers[i], &out->start, err);
        else if (cn_str_eq_header(rest, CN_STR("end")))
            rc = read_flag(&headers[i], &out->end, err);
        if (rc)
            return rc;
    }
    return 0;
}

static bool
is_printable_ascii(struct cn_str text)
{
    for (size_t i = 0; i < text.len; i++)
        if (text.ptr[i] < ' ' || text.ptr[i] > '~')
            return false;
    return true;
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
                           "Idempotency-Key of %zu bytes, it must have 1 to %d", value.len,
                           CN_IDEMPOTENCY_KEY_MAX);
        if (!is_printable_ascii(value))
            return cn_fail(err, CN_E_BAD_REQUEST, "Idempotency-Key must be printable ASCII");
        if (out->len > 0 && !cn_str_eq(*out, value))
            return cn_fail(err, CN_E_BAD_REQUEST, "two different Idempotency-Keys in one request");
        *out = value;
    }
    return 0;
}

struct cn_str
cn_predict_mime_type(struct cn_str content_type)
{
    size_t len = 0;

    while (len < content_type.len && content_type.ptr[len] != ';')
        len++;
    return cn_http_trim((struct cn_str){content_type.ptr, len});
}

static void
on_answer(struct cn_job *job, struct cn_answer_box *box)
{
    struct predict_call *call = cn_container_of(job, struct predict_call, job);
    struct cn_http_request *request = call->request;
    bool final = (box->answer.flags & CN_ANSWER_FINAL) != 0;

    if (final)
        request->on_gone = NULL; /* nothing is left to cancel */
    cn_http_answer_piece(request, box);
    if (final)
        cn_http_request_release(request);
}

static void
on_gone(struct cn_http_request *request)
{
    struct predict_call *call = request->call;

    cn_model_queue_cancel(call->job.queue, &call->job);
}

/* All headers with their bytes in one block. */
static struct cn_header *
copy_headers(struct cn_http_request *request)
{
    uint32_t n = request->n_headers, i;
    size_t bytes = sizeof(struct cn_header) * n;
    struct cn_header *copies;
    char *at;

    for (i = 0; i < n; i++)
        bytes += request->headers[i].name.len + request->headers[i].value.len;
    copies = cn_arena_alloc(&request->arena, bytes);
    at = (char *)(copies + n);
    for (i = 0; i < n; i++) {
        const struct cn_header *from = &request->headers[i];

        memcpy(at, from->name.ptr, from->name.len);
        copies[i].name = (struct cn_str){at, from->name.len};
        at += from->name.len;
        if (from->value.len)
            memcpy(at, from->value.ptr, from->value.len);
        copies[i].value = (struct cn_str){at, from->value.len};
        at += from->value.len;
    }
    return copies;
}

static void
fill_row(struct predict_call *call, const struct cn_sequence_headers *sequence)
{
    struct cn_http_request *request = call->request;
    struct cn_row *row = &call->job.row;
    const struct cn_header *type;

    row->flags = (sequence->start ? CN_ROW_START : 0u) | (sequence->end ? CN_ROW_END : 0u);
    row->sequence_id = sequence->id; /* points into the copied headers */
    row->request_id = (struct cn_str){request->id, sizeof(request->id) - 1};
    row->n_headers = request->n_headers;
    row->headers = request->headers;
    call->part.name = CN_STR("body");
    type = cn_http_find(row->headers, row->n_headers, CN_STR("content-type"));
    if (type)
        call->part.content_type = cn_predict_mime_type(type->value);
    call->part.data = cn_http_request_body_str(request);
    row->n_parts = 1;
    row->parts = &call->part;
}

void
cn_predict_handle(struct cn_http_request *request)
{
    static const struct cn_job_ops ops = {on_answer};
    const struct cn_http_shared *shared = request->listener->shared;
    const struct cn_model_config *config;
    struct cn_sequence_headers sequence;
    struct cn_str key = {NULL, 0};
    struct cn_model_queue *queue;
    struct predict_call *call;
    struct cn_error err;

    request->headers = copy_headers(request);
    if (cn_predict_read_sequence(request->headers, request->n_headers, &sequence, &err)) {
        cn_http_answer_error(request, err.code, err.message, 0);
        return;
    }
    queue = cn_management_find(shared->management, request->match.args[0], request->match.args[1],
                               &err);
    if (!queue) {
        cn_http_answer_error(request, err.code, err.message, 0);
        return;
    }
    config = cn_model_queue_config(queue);
    /* Without state a step may run twice: there the header means nothing. */
    if (config->sequence_batching &&
        cn_predict_read_key(request->headers, request->n_headers, &key, &err)) {
        cn_http_answer_error(request, err.code, err.message, 0);
        return;
    }
    call = cn_arena_alloc(&request->arena, sizeof(*call));
    memset(call, 0, sizeof(*call));
    call->request = request;
    call->job.ops = &ops;
    call->job.origin = request->listener->loop;
    fill_row(call, &sequence);
    call->job.row.idempotency_key = key;
    /* A worker that has to be started first, and then one whole call: nobody waits longer. */
    call->job.deadline_ms =
        cn_loop_now_ms(request->listener->loop) +
        1000 * ((uint64_t)config->response_timeout_s + config->startup_timeout_s);
    request->echo_name = sequence.id_name;
    cn_http_request_hold(request, call, on_gone);
    cn_model_queue_submit(queue, &call->job);
}
