/* frontend/websocket/ws_submit.c - makes the job of a step of a stream, and submits it. Owned by
 * the loop. */
#include <string.h>

#include "access/certificate/certificate.h"
#include "access/key_file.h"
#include "access/keys.h"
#include "config/model/model_io.h"
#include "core/text/number.h"
#include "core/time/clock.h"
#include "frontend/endpoints/typed.h"
#include "frontend/http/http_listener.h"
#include "frontend/websocket/ws_steps_priv.h"
#include "management/management.h"
#include "scheduler/queue/model_queue.h"
#include "scheduler/queue/submit.h"

void
cn_ws_step_refuse(struct step *step, const struct cn_error *why)
{
    step->refused = cn_arena_alloc(&step->arena, sizeof(*why));
    *step->refused = *why;
    step->is_done = true;
}

/* Makes parts of the request for a model that declares no tensors. */
static void
take_parts(struct step *step, const struct cn_ws_request *request)
{
    struct cn_row *row = &step->job.row;
    const uint32_t n = request->has_tensors ? request->n_tensors : 1;

    row->parts = cn_arena_alloc(&step->arena, sizeof(*row->parts) * (n ? n : 1));
    row->n_parts = n;
    if (!request->has_tensors) {
        row->parts[0] = (struct cn_part){CN_STR("body"), request->content_type, request->body};
        return;
    }
    for (uint32_t i = 0; i < n; i++)
        row->parts[i] = cn_tensor_part(&request->tensors[i], &step->arena);
}

static int
take_input(struct step *step, const struct cn_ws_request *request,
           const struct cn_model_queue *queue, struct cn_error *err)
{
    const struct cn_server_config *config = step->stream->site->listener->shared->config;

    if (!cn_model_queue_config(queue)->io) {
        take_parts(step, request);
        return 0;
    }
    if (request->has_tensors) {
        struct cn_v2_request v2 = {.n_inputs = request->n_tensors, .inputs = request->tensors};

        return cn_typed_take(&v2, queue, &step->arena, &step->job.row, err);
    }
    take_parts(step, request);
    return cn_typed_read(&step->arena, config->max_request_bytes, queue, &step->job.row, err);
}

/* Writes the request id of a step: that of the handshake and the number of the step. */
static struct cn_str
make_request_id(struct step *step)
{
    const struct cn_str stem = step->stream->request_id;
    const size_t len = stem.len > CN_REQUEST_ID_MAX ? CN_REQUEST_ID_MAX : stem.len;
    char *end = step->request_id + len;

    if (len)
        memcpy(step->request_id, stem.ptr, len);
    *end++ = '-';
    end = cn_put_uint(step->number, end);
    *end = '\0';
    return (struct cn_str){step->request_id, (size_t)(end - step->request_id)};
}

static int
fill_job(struct step *step, const struct cn_model_queue *queue, const struct cn_ws_request *request,
         struct cn_error *err)
{
    struct cn_ws_stream *stream = step->stream;
    const struct cn_intake intake = {
        .queue = queue,
        .loop = cn_ws_loop(stream),
        .ops = &cn_ws_step_ops,
        .version = stream->version,
        .request_id = make_request_id(step),
        .sequence = {.id = stream->has_sequence ? stream->id : (struct cn_str){NULL, 0},
                     .start = request && request->start,
                     .end = request && request->end},
        .client_deadline_ms = CN_NEVER,
        .left = &stream->left,
        .client = cn_management_client(stream->access, 0),
        .owner = cn_management_owner(stream->site->listener->shared->management, stream->access),
        .account = cn_key_account(stream->access),
        .arena = &step->arena,
    };
    int rc;

    cn_ws_give_headers(stream, request, &step->arena, &step->job.row);
    rc = cn_intake_fill(&step->job, &intake, err);
    if (rc || !stream->has_sequence)
        return rc;
    if (step->kind == CN_WS_STEP_RUNS && stream->keep > 1) {
        step->job.row.flags |= CN_ROW_KEEPS;
        step->job.row.keep = (uint8_t)stream->keep;
    }
    return cn_intake_set_step(&step->job.row, step->number, err);
}

void
cn_ws_step_submit(struct step *step, const struct cn_ws_request *request)
{
    struct cn_ws_stream *stream = step->stream;
    struct cn_management *management = stream->site->listener->shared->management;
    struct cn_model_queue *queue = NULL;
    struct cn_error err;

    if (cn_certificate_check_end(stream->certificate_ends_ms, &err) == 0 &&
        cn_management_check_key(management, stream->access, CN_SCOPE_INFER, &err) == 0 &&
        cn_management_check_model(management, stream->access, stream->model, &err) == 0)
        queue = cn_management_find(management, stream->model, stream->version, &err);
    if (!queue || (request && take_input(step, request, queue, &err)) ||
        fill_job(step, queue, request, &err)) {
        cn_ws_step_refuse(step, &err);
        return;
    }
    if (step->kind != CN_WS_STEP_RUNS)
        step->job.row.flags |= CN_ROW_RECALL;
    step->is_submitted = true;
    cn_model_queue_submit(queue, &step->job);
}
