/* grpc/torchserve/grpc_stream.c - StreamPredictions2: steps of many sequences in one call. On the
 * call's loop.
 *
 * A step is outstanding from its message until the transport has taken its last response;
 * stream_window.h bounds how many there are. The answers of one sequence are sent in the order of
 * its steps, even those of refused steps, because a client may have only the order to tell answers
 * apart. So an answer waits in its step (`boxes`) while an earlier step of the same lane has not
 * been answered. The search for that step looks at the outstanding steps, of which there are at
 * most grpc-stream-steps.
 *
 * Different sequences do not wait for each other.
 */
#include "grpc/torchserve/grpc_stream.h"

#include <stddef.h>

#include "config/server/server_config.h"
#include "frontend/intake/step_headers.h"
#include "grpc/error_status.h"
#include "grpc/protobuf_message.h"
#include "grpc/services.h"
#include "grpc/stream_window.h"
#include "grpc/torchserve/grpc_step.h"
#include "scheduler/queue/submit.h"

struct stream {
    struct cn_rpc_intake intake; /* first */
    struct cn_list steps;        /* outstanding steps in the order of their arrival */
    struct cn_rpc_stream_id id;  /* the sequence of steps that name none */
};
_Static_assert(sizeof(struct stream) <= CN_RPC_STREAM_STATE, "the state's size is too small");

static struct stream *
stream_of(struct cn_grpc_call *call)
{
    return cn_grpc_call_state(call);
}

static void
step_check(struct cn_rpc_step *step)
{
    struct cn_grpc_call *call = step->call;
    struct stream *stream = stream_of(call);

    if (step->owes || step->n_sending)
        return;
    stream->intake.n--;
    cn_grpc_call_hold(call);
    cn_rpc_step_destroy(step);
    cn_rpc_intake_go_on(call);
    cn_grpc_call_release(call);
}

/* --- answers */

/* Returns the step before this one in its sequence that has not been answered yet, or NULL. */
static struct cn_rpc_step *
find_earlier(struct stream *stream, struct cn_rpc_step *step)
{
    struct cn_list *node;

    for (node = step->link.prev; node != &stream->steps; node = node->prev) {
        struct cn_rpc_step *other = cn_container_of(node, struct cn_rpc_step, link);

        if (other->owes && cn_str_eq(other->lane, step->lane))
            return other;
    }
    return NULL;
}

static void
send_failure(struct cn_rpc_step *step, const struct cn_rpc_failure *failure)
{
    struct cn_arena arena;

    cn_arena_init(&arena);
    step->n_sending++;
    cn_rpc_step_send(step, NULL, cn_rpc_status_pack(failure, &arena));
    cn_arena_fini(&arena);
}

/* Sends one piece at once. */
static void
send_box(struct cn_rpc_step *step, struct cn_answer_box *box)
{
    bool is_final = (box->answer.flags & CN_ANSWER_FINAL) != 0;
    struct cn_rpc_failure failure;
    struct cn_arena arena;

    cn_arena_init(&arena);
    if (cn_rpc_step_failed(step, box, &arena, &failure)) {
        if (step->lane.len == 0 && box->sequence_id.len) /* the model queue has opened it */
            step->lane = cn_arena_str(&step->arena, box->sequence_id);
        send_failure(step, &failure);
        if (!step->is_done) /* nothing of it waits for the client, so the handler may go on */
            cn_model_queue_consumed(&step->job, box->answer.body.len);
        cn_answer_box_free(box);
    } else if (is_final && step->sent_some && box->answer.body.len == 0) {
        cn_answer_box_free(box); /* the end of an answer in parts is not a message */
    } else {
        step->sent_some = true;
        step->n_sending++;
        cn_rpc_step_send(step, box, (struct cn_str){NULL, 0});
    }
    cn_arena_fini(&arena);
}

/* Sends everything that the step has, because no earlier step of its lane is unanswered. */
static void
flush_step(struct cn_rpc_step *step)
{
    struct cn_answer_box *box;

    if (step->refused && step->owes) {
        const struct cn_rpc_failure failure = {.code = step->refused->code,
                                               .message = step->refused->message};

        send_failure(step, &failure);
    }
    while ((box = step->boxes)) {
        step->boxes = (struct cn_answer_box *)box->msg.next;
        if (!step->boxes)
            step->boxes_end = &step->boxes;
        send_box(step, box);
    }
    if (step->is_done)
        step->owes = false;
}

static struct cn_rpc_step *
find_next(struct stream *stream, const struct cn_rpc_step *step)
{
    struct cn_list *node;

    for (node = step->link.next; node != &stream->steps; node = node->next) {
        struct cn_rpc_step *other = cn_container_of(node, struct cn_rpc_step, link);

        if (cn_str_eq(other->lane, step->lane))
            return other;
    }
    return NULL;
}

/* Something of `step` has come: sends it, and then the answers that waited for it. */
static void
advance(struct cn_rpc_step *step)
{
    struct cn_grpc_call *call = step->call;
    struct stream *stream = stream_of(call);
    struct cn_rpc_step *next;

    if (find_earlier(stream, step))
        return;
    cn_grpc_call_hold(call);
    while (step) {
        step->n_sending++; /* so that it is not freed in this turn of the loop */
        flush_step(step);
        next = step->is_done ? find_next(stream, step) : NULL;
        step->n_sending--;
        step_check(step);
        step = next;
    }
    cn_grpc_call_release(call);
}

static void
on_answer(struct cn_job *job, struct cn_answer_box *box)
{
    struct cn_rpc_step *step = cn_container_of(job, struct cn_rpc_step, job);

    _Static_assert(offsetof(struct cn_answer_box, msg.next) == 0, "a box is its link");
    box->msg.next = NULL;
    *step->boxes_end = box;
    step->boxes_end = (struct cn_answer_box **)&box->msg.next;
    if (box->answer.flags & CN_ANSWER_FINAL)
        step->is_done = true;
    advance(step);
}

/* --- the call's events */

/* Takes the stream's sequence from the metadata, if they name one. */
void
cn_rpc_stream_open(struct cn_grpc_call *call)
{
    struct stream *stream = stream_of(call);
    struct cn_sequence_headers sequence;
    const struct cn_header *headers;
    struct cn_error err;
    uint32_t n;

    cn_rpc_intake_open(call, "the server is stopping");
    cn_list_init(&stream->steps);
    headers = cn_grpc_call_headers(call, &n);
    if (cn_rpc_step_check_stream(headers, n, &err) ||
        cn_intake_read_sequence(headers, n, &sequence, &err)) {
        cn_rpc_fail(call, err.code, err.message, 0);
    } else if (sequence.id.len) {
        memcpy(stream->id.text, sequence.id.ptr, sequence.id.len);
        stream->id.len = sequence.id.len;
    }
}

void
cn_rpc_stream_message(struct cn_grpc_call *call, const struct cn_grpc_message *message)
{
    static const struct cn_job_ops ops = {on_answer};
    struct stream *stream = stream_of(call);
    struct cn_rpc_step *step = cn_rpc_step_create(call, message);

    cn_rpc_intake_take(call);
    cn_list_push_back(&stream->steps, &step->link);
    step->owes = true;
    if (cn_rpc_step_submit(step, &ops, &stream->id))
        advance(step);
    cn_rpc_intake_go_on(call);
}

void
cn_rpc_stream_sent(struct cn_grpc_call *call, void *owner, size_t bytes)
{
    struct cn_rpc_step *step = owner;

    (void)call;
    step->n_sending--;
    if (!step->is_done)
        cn_model_queue_consumed(&step->job, bytes);
    step_check(step);
}

/* Cancels the stream's steps. Its sequences stay until their time limits have passed. */
void
cn_rpc_stream_gone(struct cn_grpc_call *call)
{
    struct stream *stream = stream_of(call);
    struct cn_list *node;

    cn_list_for_each(node, &stream->steps)
        cn_rpc_step_cancel(cn_container_of(node, struct cn_rpc_step, link));
}
