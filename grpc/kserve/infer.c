/* grpc/kserve/infer.c - ModelInfer: makes a job from a ModelInferRequest, and a ModelInferResponse
 * from the job's answer. On the call's loop.
 *
 * A cn_rpc_infer is one request, in a call of its own or one of many in a stream (infer_stream.c
 * uses the functions at the top of this file). It is allocated in its own arena, together with the
 * bytes of the message, into which the tensors point. It holds the call, so that the call's memory
 * outlives the request. It ends with the final answer of its job; a client that leaves only cancels
 * the job.
 *
 * A request with a mistake never becomes a job: `refused` has the reason then. A model whose YAML
 * declares no tensors (`is_open`) gets the request as one JSON body, as the Open Inference Protocol
 * of TorchServe defines it (open_json.c).
 *
 * The response is not copied into one piece. Its head is written to an arena, and the tensors are
 * sent from the answer's own buffer. The outgoing message owns that buffer from then on, and frees
 * it when gRPC has sent it.
 */
#include "grpc/kserve/infer.h"

#include <stddef.h>

#include "access/keys.h"
#include "config/server/server_config.h"
#include "frontend/intake/headers.h"
#include "grpc/error_status.h"
#include "grpc/kserve/open_json.h"
#include "grpc/services.h"
#include "kserve/access.h"
#include "kserve/models/kserve_models.h"
#include "kserve/shared_memory.h"
#include "management/management.h"
#include "scheduler/queue/submit.h"

/* --- a request's life */

void
cn_rpc_infer_refuse(struct cn_rpc_infer *infer, const struct cn_error *why)
{
    infer->refused = cn_rpc_keep_error(why, &infer->arena);
}

struct cn_rpc_infer *
cn_rpc_infer_create(struct cn_grpc_call *call, const struct cn_grpc_message *message)
{
    struct cn_rpc_infer *infer;
    struct cn_arena arena;
    struct cn_error err;

    cn_arena_init(&arena);
    infer = cn_arena_alloc(&arena, sizeof(*infer));
    memset(infer, 0, sizeof(*infer));
    infer->arena = arena;
    infer->call = call;
    cn_list_init(&infer->link);
    cn_grpc_call_hold(call);
    if (cn_grpc_message_keep(message, &infer->arena, &infer->message, &err) ||
        cn_rpc_infer_scan(infer->message.bytes, &infer->head, &err))
        cn_rpc_infer_refuse(infer, &err);
    return infer;
}

void
cn_rpc_infer_destroy(struct cn_rpc_infer *infer)
{
    struct cn_grpc_call *call = infer->call;
    struct cn_arena arena;

    if (infer->box)
        cn_answer_box_free(infer->box);
    cn_v2_job_fini(&infer->v2);
    cn_list_remove(&infer->link);
    cn_grpc_kept_free(&infer->message);
    arena = infer->arena;
    cn_arena_fini(&arena);
    cn_grpc_call_release(call);
}

/* For a model without declared tensors: writes the whole request as one JSON part named body. */
static int
set_body(struct cn_rpc_infer *infer, struct cn_error *err)
{
    struct cn_row *row = &infer->v2.job.row;
    const struct cn_v2_request *request = &infer->v2.request;
    struct cn_buf json;
    bool shares = false;
    int rc;

    for (uint32_t i = 0; i < request->n_inputs; i++)
        shares = shares || request->windows[i].region.len;
    for (uint32_t i = 0; i < request->n_outputs; i++)
        shares = shares || request->outputs[i].window.region.len;
    if (shares)
        return cn_fail(err, CN_E_UNIMPLEMENTED,
                       "model '%s' declares no inputs and outputs in its YAML, but tensors in "
                       "shared memory need them",
                       infer->v2.model);
    cn_buf_init(&json, 0);
    rc = cn_rpc_open_body(&infer->v2.request, infer->v2.model, &json, err);
    row->n_parts = 1;
    row->parts = cn_arena_alloc(&infer->arena, sizeof(*row->parts));
    row->parts[0] = (struct cn_part){.name = CN_STR("body"),
                                     .content_type = CN_STR("application/json"),
                                     .data = cn_arena_str(&infer->arena, cn_buf_str(&json))};
    cn_buf_fini(&json);
    return rc;
}

/* Makes all checks that come before there is a job, and fills the job. */
static int
prepare(struct cn_rpc_infer *infer, const struct cn_job_ops *ops, struct cn_model_queue **out,
        struct cn_error *err)
{
    const struct cn_rpc_host *host = cn_grpc_call_host(infer->call);
    struct cn_row *row = &infer->v2.job.row;
    struct cn_model_queue *queue;
    struct cn_intake intake;
    int rc;

    if (cn_rpc_check_model(infer->call, infer->head.model, err))
        return err->code;
    queue = (infer->is_open ? cn_v2_find_any : cn_v2_find)(host->management, infer->head.model,
                                                           infer->head.version, err);
    if (!queue)
        return err->code;
    *out = queue;
    cn_v2_job_init(&infer->v2, queue, &infer->arena);
    row->headers =
        (struct cn_header *)(uintptr_t)cn_grpc_call_headers(infer->call, &row->n_headers);
    cn_intake_choose_request_id(
        cn_header_find(row->headers, row->n_headers, CN_STR("x-request-id")), infer->request_id);
    if (infer->v2.io && infer->v2.io->decoupled && !infer->in_stream)
        return cn_fail(err, CN_E_UNIMPLEMENTED,
                       "ModelInfer RPC doesn't support models with decoupled transaction policy");
    rc = cn_rpc_infer_read(infer->message.bytes, &infer->head, infer->v2.model,
                           host->config->max_v2_request_bytes, &infer->arena, &infer->v2.request,
                           err);
    if (!rc)
        rc = cn_v2_access_forward(CN_V2_GRPC, row->headers, row->n_headers, &infer->arena,
                                  &infer->v2.request, err);
    if (!rc && !infer->v2.io)
        rc = set_body(infer, err);
    intake = (struct cn_intake){
        .queue = queue,
        .loop = cn_grpc_call_loop(infer->call),
        .ops = ops,
        .version = infer->head.version,
        .request_id = cn_str_from(infer->request_id),
        .client_deadline_ms = cn_grpc_call_deadline_ms(infer->call),
        .connection = cn_grpc_call_connection(infer->call),
        .left = cn_grpc_call_left(infer->call),
        .client =
            cn_management_client(cn_grpc_call_key(infer->call), cn_grpc_call_client(infer->call)),
        .owner = cn_management_owner(host->management, cn_grpc_call_key(infer->call)),
        .account = cn_key_account(cn_grpc_call_key(infer->call)),
        .arena = &infer->arena,
    };
    /* Only keys for all models may use regions. */
    if (!rc && cn_shm_is_used(&infer->v2.request) &&
        (cn_rpc_check_model(infer->call, CN_STR(""), err) ||
         cn_v2_job_count_shared(&infer->v2, &infer->message.held, infer->message.bytes.len, err)))
        rc = err->code;
    return rc ? rc : cn_v2_job_prepare(&infer->v2, &intake, err);
}

int
cn_rpc_infer_submit(struct cn_rpc_infer *infer, const struct cn_job_ops *ops)
{
    struct cn_model_queue *queue = NULL;
    struct cn_error err;

    if (!infer->refused && prepare(infer, ops, &queue, &err))
        cn_rpc_infer_refuse(infer, &err);
    if (infer->refused) {
        infer->is_done = true;
        return infer->refused->code;
    }
    infer->is_submitted = true;
    cn_v2_job_submit(&infer->v2, queue);
    return 0;
}

void
cn_rpc_infer_cancel(struct cn_rpc_infer *infer)
{
    if (infer->is_submitted && !infer->is_done)
        cn_model_queue_cancel(infer->v2.job.queue, &infer->v2.job);
}

int
cn_rpc_infer_response(struct cn_rpc_infer *infer, struct cn_answer_box *box,
                      const struct cn_rpc_infer_form *form, struct cn_arena *arena,
                      struct cn_grpc_outgoing *out, struct cn_error *err)
{
    const struct cn_rpc_host *host = cn_grpc_call_host(infer->call);
    struct cn_v2_answer response = {.model = infer->v2.model, .version = infer->v2.version};

    if ((infer->v2.io
             ? cn_v2_job_response(&infer->v2, &box->answer, arena, &response, err)
             : cn_rpc_open_outputs(box->answer.body, (size_t)host->config->max_response_bytes,
                                   arena, &response, err)) ||
        cn_rpc_infer_write(&response, &infer->v2.request, form, arena, out, err))
        return err->code;
    cn_rpc_lend(out, box);
    return 0;
}

/* --- ModelInfer */

struct call {
    struct cn_rpc_infer *infer;
};
_Static_assert(sizeof(struct call) <= CN_RPC_INFER_STATE, "the state's size is too small");

static void
add_headers(struct cn_rpc_infer *infer, const struct cn_answer_box *box)
{
    const bool as_session = cn_str_eq_header(infer->v2.echo_name, CN_STR("inference-session-id"));

    cn_grpc_call_add_header(infer->call, "x-request-id", cn_str_from(infer->request_id));
    if (infer->v2.echo_name.len && box->sequence_id.len && cn_header_is_printable(box->sequence_id))
        cn_grpc_call_add_header(infer->call,
                                as_session ? "inference-session-id" : CN_SEQUENCE_HEADER,
                                box->sequence_id);
    if (box->answer.flags & CN_ANSWER_REPLAYED)
        cn_grpc_call_add_header(infer->call, "continuo-replayed", CN_STR("true"));
    if (box->traceparent.len)
        cn_grpc_call_add_header(infer->call, "traceparent", box->traceparent);
    cn_rpc_add_restarted(infer->call, &box->answer);
    cn_rpc_tell_step(infer->call, &box->answer);
}

static void
answer_final(struct cn_rpc_infer *infer, struct cn_answer_box *box)
{
    const struct cn_rpc_infer_form form = {.is_typed = infer->is_open};
    struct cn_rpc_failure failure;
    const struct cn_grpc_status ok = {0};
    struct cn_grpc_outgoing out;
    struct cn_error err;
    const char *message;

    add_headers(infer, box);
    if (box->answer.error_code) {
        message = cn_v2_job_failure(&infer->v2, &box->answer, &infer->arena, &err.code);
        cn_rpc_fail(infer->call, err.code, cn_rpc_status_text(cn_str_from(message), &infer->arena),
                    box->retry_after_s);
    } else if (cn_rpc_answer_failed(box, &infer->arena, &failure)) {
        cn_rpc_fail_with(infer->call, &failure);
    } else if (cn_rpc_infer_response(infer, box, &form, &infer->arena, &out, &err)) {
        cn_rpc_fail(infer->call, err.code, err.message, 0);
    } else {
        cn_grpc_call_finish(infer->call, &out, &ok);
        return; /* the message owns the box now */
    }
    cn_answer_box_free(box);
}

static void
on_answer(struct cn_job *job, struct cn_answer_box *box)
{
    struct cn_rpc_infer *infer = cn_container_of(job, struct cn_rpc_infer, v2.job);
    struct call *call = cn_grpc_call_state(infer->call);

    box = cn_v2_job_complete(&infer->v2, box);
    if (!box)
        return;
    infer->is_done = true;
    call->infer = NULL;
    answer_final(infer, box);
    cn_rpc_infer_destroy(infer);
}

static void
submit(struct cn_grpc_call *grpc_call, const struct cn_grpc_message *message, bool is_open)
{
    static const struct cn_job_ops ops = {on_answer};
    struct call *call = cn_grpc_call_state(grpc_call);
    struct cn_rpc_infer *infer = cn_rpc_infer_create(grpc_call, message);

    call->infer = infer;
    infer->is_open = is_open;
    if (cn_rpc_infer_submit(infer, &ops) == 0)
        return;
    call->infer = NULL;
    cn_rpc_fail(grpc_call, infer->refused->code, infer->refused->message, 0);
    cn_rpc_infer_destroy(infer);
}

void
cn_rpc_infer_message(struct cn_grpc_call *call, const struct cn_grpc_message *message)
{
    submit(call, message, false);
}

void
cn_rpc_infer_open(struct cn_grpc_call *call, const struct cn_grpc_message *message)
{
    submit(call, message, true);
}

void
cn_rpc_infer_gone(struct cn_grpc_call *grpc_call)
{
    struct call *call = cn_grpc_call_state(grpc_call);

    if (call->infer)
        cn_rpc_infer_cancel(call->infer);
}
