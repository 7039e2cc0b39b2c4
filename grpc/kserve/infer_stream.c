/* grpc/kserve/infer_stream.c - ModelStreamInfer: requests of many models and sequences on one call.
 * On the call's loop.
 *
 * A request is outstanding from its message until the transport took its last response;
 * grpc/stream_window.h limits how many there are. Responses leave in the order of their requests,
 * also across models and sequences, because clients of the protocol rely on it. Responses of
 * decoupled models leave as soon as they come; only those of one request keep their order. A
 * failure is sent as a message, and the stream goes on, unless the client asked for gRPC's statuses
 * (triton_grpc_error: true).
 */
#include "grpc/kserve/infer_stream.h"

#include "frontend/intake/headers.h"
#include "grpc/error_status.h"
#include "grpc/kserve/infer.h"
#include "grpc/stream_window.h"
#include "grpc/torchserve/grpc_step.h"
#include "scheduler/queue/submit.h"

struct stream {
    struct cn_rpc_intake intake; /* first */
    struct cn_list owing;        /* requests in the order of their arrival */
    struct cn_list flowing;      /* requests to decoupled models that have not ended */
    struct cn_list sending;      /* requests whose responses the transport has not taken yet */
    bool is_strict;              /* the first failure of a model ends the call with its status */
};
_Static_assert(sizeof(struct stream) <= CN_RPC_INFER_STREAM_STATE, "the state's size is too small");

static struct stream *
stream_of(struct cn_grpc_call *call)
{
    return cn_grpc_call_state(call);
}

static void
forget(struct cn_rpc_infer *infer)
{
    stream_of(infer->call)->intake.n--;
    cn_rpc_infer_destroy(infer);
}

static void
cancel_all(struct stream *stream)
{
    struct cn_list *node;

    cn_list_for_each(node, &stream->owing)
        cn_rpc_infer_cancel(cn_container_of(node, struct cn_rpc_infer, link));
    cn_list_for_each(node, &stream->flowing)
        cn_rpc_infer_cancel(cn_container_of(node, struct cn_rpc_infer, link));
}

/* --- responses */

/* Returns true if the answer says that the request could not run, and not how it ran. */
static bool
is_refusal(const struct cn_answer *answer)
{
    if (answer->status) /* the handler has chosen a status */
        return false;
    switch (answer->error_code) {
    case CN_E_BAD_REQUEST:
    case CN_E_SEQUENCE_UNKNOWN:
    case CN_E_SEQUENCE_EXPIRED:
    case CN_E_SEQUENCE_ENDED:
    case CN_E_QUEUE_FULL:
    case CN_E_OVERLOADED:
    case CN_E_TOO_MANY_SEQUENCES:
    case CN_E_NO_WORKER:
    case CN_E_DRAINING:
        return true;
    default:
        return false;
    }
}

static void
send(struct cn_rpc_infer *infer, struct cn_grpc_outgoing *out)
{
    out->owner = infer;
    infer->n_sending++;
    cn_grpc_call_send(infer->call, out);
}

/* Sends a failure. With `is_model` the model has had the request, and the message names it;
 * otherwise the message only has the id. */
static void
send_failure(struct cn_rpc_infer *infer, int code, const char *message, bool is_model)
{
    struct stream *stream = stream_of(infer->call);
    struct cn_grpc_outgoing out;
    struct cn_arena arena;

    cn_arena_init(&arena);
    message = cn_rpc_status_text(cn_str_from(message), &arena);
    if (is_model && stream->is_strict) {
        cn_rpc_fail(infer->call, code, message, 0);
        cancel_all(stream);
    } else {
        const struct cn_rpc_infer_failure failure = {
            .message = *message ? message : cn_error_info(code)->word, /* empty: success */
            .id = infer->head.id,
            .model = is_model ? infer->v2.model : NULL,
            .version = infer->v2.version,
            .is_final = true,
        };

        cn_rpc_infer_write_failure(&failure, &arena, &out);
        send(infer, &out);
    }
    cn_arena_fini(&arena);
}

static void
send_answer(struct cn_rpc_infer *infer)
{
    const struct cn_rpc_infer_form form = {.in_stream = true, .is_final = true};
    struct cn_answer_box *box = infer->box;
    struct cn_grpc_outgoing out;
    struct cn_arena arena;
    struct cn_error err;
    const char *message;

    infer->box = NULL;
    cn_arena_init(&arena);
    if (box->answer.error_code) {
        message = cn_v2_job_failure(&infer->v2, &box->answer, &arena, &err.code);
        send_failure(infer, err.code, message, !is_refusal(&box->answer));
        cn_answer_box_free(box);
    } else if (cn_rpc_infer_response(infer, box, &form, &arena, &out, &err)) {
        send_failure(infer, err.code, err.message, true);
        cn_answer_box_free(box);
    } else {
        send(infer, &out);
    }
    cn_arena_fini(&arena);
}

/* Sends the responses whose turn it is, as far as they have come. */
static void
advance(struct cn_grpc_call *call)
{
    struct stream *stream = stream_of(call);
    struct cn_rpc_infer *infer;

    cn_grpc_call_hold(call);
    while (!cn_list_empty(&stream->owing)) {
        infer = cn_container_of(stream->owing.next, struct cn_rpc_infer, link);
        if (!infer->is_done)
            break;
        cn_list_remove(&infer->link);
        cn_list_push_back(&stream->sending, &infer->link);
        infer->n_sending++; /* so that it is not freed before both ways of sending are done */
        if (infer->refused)
            send_failure(infer, infer->refused->code, infer->refused->message, false);
        else
            send_answer(infer);
        if (--infer->n_sending == 0)
            forget(infer);
    }
    cn_rpc_intake_go_on(call);
    cn_grpc_call_release(call);
}

/* --- decoupled models */

/* Sends a response, or the end of all responses of a request. On failure the box stays the
 * caller's. */
static int
send_response(struct cn_rpc_infer *infer, const struct cn_v2_piece *piece,
              struct cn_answer_box *box, struct cn_arena *arena, struct cn_error *err)
{
    const struct cn_rpc_infer_form form = {.in_stream = true, .is_final = piece->final};
    struct cn_grpc_outgoing out;

    if (cn_rpc_infer_write(&piece->response, &infer->v2.request, &form, arena, &out, err))
        return err->code;
    cn_rpc_lend(&out, box);
    send(infer, &out);
    return 0;
}

/* Sends a piece. Takes the box. */
static void
send_piece(struct cn_rpc_infer *infer, struct cn_answer_box *box)
{
    struct cn_v2_piece piece;
    struct cn_arena arena;
    struct cn_error err;
    bool is_sent;
    int rc = 0;

    cn_arena_init(&arena);
    cn_v2_job_piece(&infer->v2, &box->answer, &arena, &piece);
    is_sent =
        piece.kind == CN_V2_RESPONSE || (piece.kind == CN_V2_END && infer->v2.request.empty_final);
    if (piece.kind == CN_V2_END)
        piece.response =
            (struct cn_v2_answer){.model = infer->v2.model, .version = infer->v2.version};
    if (is_sent)
        rc = send_response(infer, &piece, box, &arena, &err);
    if (piece.kind == CN_V2_FAILURE)
        send_failure(infer, piece.code, piece.message, !is_refusal(&box->answer));
    else if (rc)
        send_failure(infer, rc, err.message, true);
    if (piece.kind == CN_V2_FAILURE || rc) {
        infer->v2.over = true;
        cn_rpc_infer_cancel(infer);
    }
    if (rc || !is_sent) { /* there is no message that owns it */
        if (!infer->is_done)
            cn_model_queue_consumed(&infer->v2.job, box->answer.body.len);
        cn_answer_box_free(box);
    }
    cn_arena_fini(&arena);
}

static void
flow(struct cn_rpc_infer *infer, struct cn_answer_box *box)
{
    struct cn_grpc_call *call = infer->call;

    cn_grpc_call_hold(call);
    infer->n_sending++; /* so that it is not freed within this function */
    infer->is_done = (box->answer.flags & CN_ANSWER_FINAL) != 0;
    if (infer->is_done) {
        cn_list_remove(&infer->link);
        cn_list_push_back(&stream_of(call)->sending, &infer->link);
    }
    send_piece(infer, box);
    if (--infer->n_sending == 0 && infer->is_done)
        forget(infer);
    cn_rpc_intake_go_on(call);
    cn_grpc_call_release(call);
}

/* --- answers */

static void
on_answer(struct cn_job *job, struct cn_answer_box *box)
{
    struct cn_rpc_infer *infer = cn_container_of(job, struct cn_rpc_infer, v2.job);

    if (infer->v2.io->decoupled) {
        flow(infer, box);
        return;
    }
    box = cn_v2_job_complete(&infer->v2, box);
    if (!box)
        return;
    infer->is_done = true;
    infer->box = box;
    advance(infer->call);
}

/* --- the call's events */

void
cn_rpc_infer_stream_open(struct cn_grpc_call *call)
{
    struct stream *stream = stream_of(call);
    const struct cn_header *headers, *strict;
    struct cn_error err;
    uint32_t n;

    cn_rpc_intake_open(call,
                       "GRPC server is shutting down and has stopped accepting new requests.");
    cn_list_init(&stream->owing);
    cn_list_init(&stream->flowing);
    cn_list_init(&stream->sending);
    headers = cn_grpc_call_headers(call, &n);
    strict = cn_header_find(headers, n, CN_STR("triton_grpc_error"));
    stream->is_strict = strict && cn_str_eq(strict->value, CN_STR("true"));
    if (cn_rpc_step_check_stream(headers, n, &err))
        cn_rpc_fail(call, err.code, err.message, 0);
}

void
cn_rpc_infer_stream_message(struct cn_grpc_call *call, const struct cn_grpc_message *message)
{
    static const struct cn_job_ops ops = {on_answer};
    struct stream *stream = stream_of(call);
    struct cn_rpc_infer *infer = cn_rpc_infer_create(call, message);

    cn_rpc_intake_take(call);
    cn_list_push_back(&stream->owing, &infer->link);
    infer->in_stream = true;
    if (cn_rpc_infer_submit(infer, &ops) == 0 && infer->v2.io->decoupled) {
        cn_list_remove(&infer->link);
        cn_list_push_back(&stream->flowing, &infer->link);
    }
    advance(call);
}

void
cn_rpc_infer_stream_sent(struct cn_grpc_call *call, void *owner, size_t bytes)
{
    struct cn_rpc_infer *infer = owner;

    if (!infer->is_done)
        cn_model_queue_consumed(&infer->v2.job, bytes);
    if (--infer->n_sending > 0 || !infer->is_done)
        return;
    cn_grpc_call_hold(call);
    forget(infer);
    cn_rpc_intake_go_on(call);
    cn_grpc_call_release(call);
}

/* Cancels the stream's requests. Its sequences stay until their time limits have passed. */
void
cn_rpc_infer_stream_gone(struct cn_grpc_call *call)
{
    cancel_all(stream_of(call));
}
