/* grpc/torchserve/grpc_predict.c - calls with one step: Ping, Predictions, StreamPredictions. On
 * the call's loop.
 *
 * Predictions has one response. If the handler streams its answer, the pieces are kept in the order
 * of their arrival and joined when the final one comes; each piece is acknowledged at once, because
 * nothing of it waits for the client. A joined answer is bounded by max-response-size.
 * StreamPredictions sends a response for each piece, and acknowledges it when gRPC has sent it, so
 * that a slow client slows its own handler down.
 *
 * The step is freed by check_step, when the final answer has come and no message of it is being
 * sent. Sending may end within the function that begins it, so `n_sending` is raised for the time
 * of on_answer. */
#include <stddef.h>

#include "config/server/server_config.h"
#include "core/errors/panic.h"
#include "core/memory/mem.h"
#include "grpc/error_status.h"
#include "grpc/protobuf_message.h"
#include "grpc/services.h"
#include "grpc/torchserve/grpc_predict.h"
#include "grpc/torchserve/grpc_step.h"
#include "management/management.h"
#include "scheduler/queue/submit.h"

struct predict {
    struct cn_rpc_step *step;
    bool is_stream; /* StreamPredictions */
    bool sent_some;
    uint64_t joined_bytes; /* Predictions: total size of the pieces that have come */
};

_Static_assert(sizeof(struct predict) <= CN_RPC_PREDICT_STATE, "the state's size is too small");

static void
fail(const struct cn_rpc_step *step, const struct cn_answer_box *box)
{
    struct cn_rpc_failure failure;

    if (cn_rpc_step_failed(step, box, cn_grpc_call_arena(step->call), &failure))
        cn_rpc_fail_with(step->call, &failure);
}

/* Joins all pieces into one body, which replaces the body of the last piece. Returns NULL if there
 * is not enough memory. */
static struct cn_answer_box *
join(struct predict *predict, struct cn_answer_box *last)
{
    struct cn_rpc_step *step = predict->step;
    size_t len = (size_t)predict->joined_bytes;
    struct cn_answer_box *all, *box;
    char *at;

    if (!step->boxes)
        return last;
    all = cn_try_alloc(sizeof(*all) + len + last->sequence_id.len);
    if (!all)
        return NULL;
    *all = *last;
    all->read = NULL; /* the memory in which the last piece lies stays that piece's own */
    at = all->bytes;
    all->answer.body = (struct cn_str){at, len};
    all->answer.n_headers = 0;
    for (box = step->boxes; box; box = (struct cn_answer_box *)box->msg.next) {
        if (box->answer.body.len)
            memcpy(at, box->answer.body.ptr, box->answer.body.len);
        at += box->answer.body.len;
    }
    if (last->answer.body.len)
        memcpy(at, last->answer.body.ptr, last->answer.body.len);
    at += last->answer.body.len;
    if (last->sequence_id.len)
        memcpy(at, last->sequence_id.ptr, last->sequence_id.len);
    all->sequence_id.ptr = at;
    cn_answer_box_free(last);
    return all;
}

static void
keep(struct cn_rpc_step *step, struct cn_answer_box *box)
{
    _Static_assert(offsetof(struct cn_answer_box, msg.next) == 0, "a box is its link");
    box->msg.next = NULL;
    *step->boxes_end = box;
    step->boxes_end = (struct cn_answer_box **)&box->msg.next;
}

/* Predictions: sends one response. */
static void
answer_whole(struct cn_grpc_call *call, struct predict *predict, struct cn_answer_box *box)
{
    struct cn_rpc_step *step = predict->step;
    const struct cn_rpc_host *host = cn_grpc_call_host(call);
    bool is_final = (box->answer.flags & CN_ANSWER_FINAL) != 0;
    bool fits;
    struct cn_answer_box *all;

    predict->joined_bytes += box->answer.body.len;
    fits = predict->joined_bytes <= host->config->max_response_bytes;
    if (!is_final && box->answer.status < 400 && fits) {
        keep(step, box);
        cn_model_queue_consumed(&step->job, box->answer.body.len);
        return;
    }
    if (!is_final && box->answer.status < 400) {
        cn_rpc_fail(call, CN_E_TOO_LARGE,
                    "the streamed answer exceeds max-response-size; use StreamPredictions", 0);
        cn_rpc_step_cancel(step);
    }
    cn_rpc_step_add_headers(step, box);
    fail(step, box);
    if (!is_final) { /* the answer has failed already; this is the rest of it */
        cn_model_queue_consumed(&step->job, box->answer.body.len);
        cn_answer_box_free(box);
        return;
    }
    all = join(predict, box);
    if (all) {
        cn_rpc_step_send_last(call, all); /* has no effect if joining has failed */
        return;
    }
    cn_answer_box_free(box);
    cn_rpc_fail(call, CN_E_OUT_OF_MEMORY, "not enough memory for the answer", 0);
}

/* StreamPredictions: sends a response for each piece that is not empty. */
static void
answer_piece(struct cn_grpc_call *call, struct predict *predict, struct cn_answer_box *box)
{
    const struct cn_grpc_status ok = {0};
    struct cn_rpc_step *step = predict->step;
    bool is_final = (box->answer.flags & CN_ANSWER_FINAL) != 0;

    cn_rpc_step_add_headers(step, box);
    fail(step, box);
    if (box->answer.error_code || box->answer.status >= 400 ||
        (is_final && predict->sent_some && box->answer.body.len == 0)) {
        if (!is_final) /* nothing of it waits for the client, so the handler may go on */
            cn_model_queue_consumed(&step->job, box->answer.body.len);
        cn_answer_box_free(box);
    } else {
        predict->sent_some = true;
        step->n_sending++;
        cn_rpc_step_send(step, box, (struct cn_str){NULL, 0});
    }
    if (is_final)
        cn_grpc_call_finish(call, NULL, &ok);
}

static void
check_step(struct predict *predict)
{
    struct cn_rpc_step *step = predict->step;

    if (!step || !step->is_done || step->n_sending)
        return;
    predict->step = NULL;
    cn_rpc_step_destroy(step);
}

static void
on_answer(struct cn_job *job, struct cn_answer_box *box)
{
    struct cn_rpc_step *step = cn_container_of(job, struct cn_rpc_step, job);
    struct cn_grpc_call *call = step->call;
    struct predict *predict = cn_grpc_call_state(call);
    bool is_final = (box->answer.flags & CN_ANSWER_FINAL) != 0;

    step->is_done = is_final;
    step->n_sending++; /* so that it is not freed within this function */
    if (predict->is_stream)
        answer_piece(call, predict, box);
    else
        answer_whole(call, predict, box);
    step->n_sending--;
    check_step(predict);
}

static void
submit(struct cn_grpc_call *call, const struct cn_grpc_message *message, bool is_stream)
{
    static const struct cn_job_ops ops = {on_answer};
    struct predict *predict = cn_grpc_call_state(call);
    struct cn_rpc_step *step = cn_rpc_step_create(call, message);
    const struct cn_rpc_host *host = cn_grpc_call_host(call);
    struct cn_rpc_failure refusal = {0};

    predict->step = step;
    predict->is_stream = is_stream;
    if (cn_rpc_step_submit(step, &ops, NULL) == 0)
        return;
    /* TorchServe uses INTERNAL for everything that it refuses here. */
    refusal.code = step->refused->code;
    refusal.message = step->refused->message;
    refusal.grpc_status = host->config->dialect == CN_DIALECT_TORCHSERVE ? CN_GRPC_INTERNAL : 0;
    cn_rpc_fail_with(call, &refusal);
    check_step(predict);
}

void
cn_rpc_predictions(struct cn_grpc_call *call, const struct cn_grpc_message *message)
{
    submit(call, message, false);
}

void
cn_rpc_stream_predictions(struct cn_grpc_call *call, const struct cn_grpc_message *message)
{
    submit(call, message, true);
}

void
cn_rpc_predict_sent(struct cn_grpc_call *call, void *owner, size_t bytes)
{
    struct predict *predict = cn_grpc_call_state(call);
    struct cn_rpc_step *step = owner;

    if (!step)
        return; /* Predictions sends one response only */
    step->n_sending--;
    if (!step->is_done)
        cn_model_queue_consumed(&step->job, bytes);
    check_step(predict);
}

void
cn_rpc_predict_gone(struct cn_grpc_call *call)
{
    struct predict *predict = cn_grpc_call_state(call);

    if (predict->step)
        cn_rpc_step_cancel(predict->step);
}

void
cn_rpc_ping(struct cn_grpc_call *call, const struct cn_grpc_message *message)
{
    static const char healthy[] = "{\n  \"status\": \"Healthy\"\n}";
    static const char unhealthy[] = "{\n  \"status\": \"Unhealthy\"\n}";
    const struct cn_rpc_host *host = cn_grpc_call_host(call);
    const char *text = cn_management_healthy(host->management) ? healthy : unhealthy;
    const struct cn_grpc_status ok = {0};
    char head[CN_RPC_FIELD_MAX];
    struct cn_grpc_outgoing out = {.body = cn_str_from(text)};

    (void)message; /* Empty */
    out.head = (struct cn_str){head, (size_t)(cn_rpc_put_head(head, 1, strlen(text)) - head)};
    cn_grpc_call_finish(call, &out, &ok);
}
