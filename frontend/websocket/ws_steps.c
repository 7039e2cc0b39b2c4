/* frontend/websocket/ws_steps.c - the steps of a stream: from a message to a step, whose job
 * ws_submit.c makes, and from answers to messages. Owned by the loop.
 *
 * A message that was read waits as bytes. It becomes a step when there is room for it: fewer steps
 * than the credit are unanswered, and the client reads its answers. A message waits in an arena of
 * its own, which its step then takes over. The arena lives until the step's job has its final
 * answer and all of its pieces are in frames.out.
 *
 * Answers leave in the order of the steps. The scheduler runs the steps of one sequence one after
 * the other, but without a sequence, or with a handler that still streams, a later step may have
 * its answer first: then the pieces wait in their step. They count as taken when they go to
 * frames.out, so a client that does not read holds up its handler.
 *
 * The server numbers the steps, so a step that comes again after a broken connection is recognised.
 * If a step fails, those behind it have numbers that are too high, and the worker refuses them. So
 * no step is ever done that rests on one that was not done. When all of them are answered, the
 * count goes on with the number that the server expects.
 */
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "frontend/websocket/ws_steps_priv.h"
#include "metrics/counters/metrics.h"
#include "scheduler/queue/job.h"
#include "scheduler/queue/model_queue.h"
#include "scheduler/queue/submit.h"

struct waiting {
    struct cn_arena arena; /* has this struct, and then the step that it becomes */
    struct cn_list link;
    struct cn_request_bytes message_bytes;
    bool is_text;
    size_t len;
    _Alignas(16) char bytes[];
};

/* Makes a step in the arena, which is the step's own from then on. What lies behind the job's
 * members for the front end is set when it is used: by submit, and by make_request_id(). */
static struct step *
step_create(struct cn_ws_stream *stream, enum cn_ws_step_kind kind, struct cn_arena arena)
{
    struct step *step = cn_arena_alloc(&arena, sizeof(*step));

    memset(step, 0, offsetof(struct step, job.queue));
    step->arena = arena;
    step->stream = stream;
    step->kind = kind;
    step->boxes_end = &step->boxes;
    cn_list_push_back(&stream->steps, &step->link);
    stream->n_unanswered++;
    return step;
}

static void
step_destroy(struct step *step)
{
    struct cn_arena arena = step->arena;
    struct cn_answer_box *box;

    while ((box = step->boxes)) {
        step->boxes = (struct cn_answer_box *)box->msg.next;
        step->stream->held_bytes -= box->answer.body.len;
        cn_answer_box_free(box);
    }
    cn_list_remove(&step->link);
    step->stream->n_unanswered--;
    cn_request_bytes_done(&step->message_bytes);
    cn_arena_fini(&arena);
}

/* --- messages of the client */

void
cn_ws_take_message(struct cn_ws_frames *frames, bool is_text, struct cn_str message)
{
    struct cn_ws_stream *stream = cn_ws_stream_of(frames);
    struct cn_request_bytes bytes = {0};
    struct cn_arena arena;
    struct waiting *waiting;

    stream->message_ms = 0;
    if (stream->phase == CN_WS_LEAVING || stream->phase == CN_WS_CLOSING)
        return;
    if (!cn_request_bytes_take(&bytes, message.len)) {
        cn_ws_close(stream, CN_WS_CLOSE_TRY_AGAIN, CN_STR(CN_WS_NO_ROOM));
        return;
    }
    cn_arena_init(&arena);
    waiting = cn_arena_try_alloc(&arena, sizeof(*waiting) + message.len);
    if (!waiting) {
        cn_request_bytes_done(&bytes);
        cn_ws_close(stream, CN_WS_CLOSE_TRY_AGAIN, CN_STR("not enough memory for the message"));
        return;
    }
    waiting->arena = arena;
    waiting->message_bytes = bytes;
    cn_list_init(&waiting->link);
    waiting->is_text = is_text;
    waiting->len = message.len;
    if (message.len)
        memcpy(waiting->bytes, message.ptr, message.len);
    cn_list_push_back(&stream->waiting, &waiting->link);
    stream->n_waiting++;
    frames->is_paused = !cn_ws_steps_has_room(stream);
}

/* --- from a message to a step */

void
cn_ws_ask(struct cn_ws_stream *stream, enum cn_ws_step_kind kind, uint64_t number)
{
    struct cn_arena arena;
    struct step *step;

    cn_arena_init(&arena);
    step = step_create(stream, kind, arena);
    step->number = number;
    cn_ws_step_submit(step, NULL);
}

/* Gives the step its number. A START is always the first step.
 *
 * A client may give a number itself, for example after it has connected again; further steps then
 * count on from there. */
static void
number_step(struct step *step, struct cn_ws_request *request)
{
    struct cn_ws_stream *stream = step->stream;

    request->start = request->start || stream->start_next;
    stream->start_next = false;
    step->number = request->has_step                        ? request->step
                   : request->start && stream->has_sequence ? 1
                                                            : stream->next;
    stream->next = step->number + 1;
}

static void
answer_control(struct cn_ws_stream *stream, const struct cn_ws_request *request)
{
    char text[64];

    if (request->kind == CN_WS_START) {
        stream->start_next = true;
        return;
    }
    if (request->kind == CN_WS_CREDIT)
        cn_ws_set_credit(stream, request->credit);
    snprintf(text, sizeof(text),
             request->kind == CN_WS_PING ? "{\"type\":\"pong\"}"
                                         : "{\"type\":\"credit\",\"credit\":%u}",
             stream->credit);
    cn_ws_frames_send(&stream->frames, true, cn_str_from(text));
    cn_ws_io_send_soon(stream);
}

/* Makes a step of the message, or does what it asks for.
 *
 * The step is made before the message is read, because what is read goes into the step's arena. A
 * control message needs no step in the end, and its answer may overtake answers of steps that came
 * before it. */
static void
take_waiting(struct cn_ws_stream *stream, struct waiting *waiting)
{
    const struct cn_str message = {waiting->bytes, waiting->len};
    struct step *step = step_create(stream, CN_WS_STEP_RUNS, waiting->arena);
    struct cn_ws_request request;
    struct cn_error err;

    cn_request_bytes_move(&step->message_bytes, &waiting->message_bytes);
    if (cn_ws_read(stream->form, waiting->is_text, message, &step->arena, &request, &err)) {
        cn_ws_step_refuse(step, &err);
        return;
    }
    if (request.kind != CN_WS_STEP && request.kind != CN_WS_END) {
        answer_control(stream, &request);
        step_destroy(step);
        return;
    }
    request.end = request.end || request.kind == CN_WS_END;
    number_step(step, &request);
    cn_metrics_add(cn_loop_metrics(cn_ws_loop(stream)), CN_M_STREAM_STEPS, 1);
    cn_ws_step_submit(step, &request);
}

static bool
may_submit(const struct cn_ws_stream *stream)
{
    return stream->phase == CN_WS_OPEN && stream->n_waiting > 0 &&
           stream->n_unanswered < stream->credit && !cn_ws_io_is_full(stream);
}

static void
submit_waiting(struct cn_ws_stream *stream)
{
    while (may_submit(stream)) {
        struct cn_list *node = cn_list_pop_front(&stream->waiting);
        struct waiting *waiting = cn_container_of(node, struct waiting, link);

        stream->n_waiting--;
        take_waiting(stream, waiting);
    }
}

/* --- from answers to messages */

static void
send_failure(struct step *step, const struct cn_ws_failure *failure)
{
    struct cn_ws_stream *stream = step->stream;
    struct cn_buf text;

    if (failure->step) { /* a message that is not a step has no number */
        stream->failed = true;
        stream->expected = failure->expected_step;
    }
    if (stream->form == CN_WS_PLAIN) {
        cn_ws_fail(stream, cn_ws_close_of(failure->code), failure);
        return;
    }
    cn_buf_init(&text, 0);
    cn_ws_write_error(failure, &text);
    cn_ws_frames_send(&stream->frames, true, cn_buf_str(&text));
    cn_buf_fini(&text);
}

static void
send_error(struct step *step, const struct cn_answer_box *box)
{
    const struct cn_answer *answer = &box->answer;
    const struct cn_ws_failure failure = {.step = step->number,
                                          .code = answer->error_code,
                                          .status = answer->status,
                                          .message = answer->body,
                                          .expected_step = answer->step,
                                          .traceparent = box->traceparent,
                                          .retry_after_s = box->retry_after_s};

    if (step->kind == CN_WS_STEP_RECALLS)
        cn_ws_recall_failed(step->stream, step->number, answer, box->retry_after_s);
    else
        send_failure(step, &failure);
}

/* Has the client sent a step behind this one that got a number? */
static bool
has_next_step(const struct step *step)
{
    const struct cn_list *node = step->link.next;

    while (node != &step->stream->steps && !cn_container_of(node, struct step, link)->number)
        node = node->next;
    return node != &step->stream->steps;
}

/* The sequence has ended with this step. If the client has begun the next one already, that has its
 * numbers. */
static void
tell_end(struct step *step)
{
    struct cn_ws_stream *stream = step->stream;
    char text[80];

    if (!has_next_step(step))
        stream->next = 1;
    stream->generation = 0;
    if (stream->form == CN_WS_PLAIN) {
        cn_ws_close(stream, CN_WS_CLOSE_NORMAL, CN_STR("the sequence has ended"));
        return;
    }
    snprintf(text, sizeof(text), "{\"type\":\"end\",\"step\":%llu}",
             (unsigned long long)step->number);
    cn_ws_frames_send(&stream->frames, true, cn_str_from(text));
}

/* Notes what a final answer says about the sequence. */
static void
note_final(struct step *step, const struct cn_answer *answer)
{
    struct cn_ws_stream *stream = step->stream;

    stream->committed = step->number;
    stream->expected = 0; /* of a failure before it: the sequence has moved on since */
    if (answer->generation)
        stream->generation = answer->generation;
    if (answer->flags & CN_ANSWER_ENDED)
        tell_end(step);
}

/* Only the first piece has the content type, so it is kept in the step for the others. A piece
 * without bytes says nothing unless it is the final one. In the plain form even a final piece
 * without bytes is left out if the client has already got pieces of this answer, because it would
 * look like one more answer. */
static void
send_piece(struct step *step, const struct cn_answer_box *box)
{
    struct cn_ws_stream *stream = step->stream;
    const struct cn_answer *answer = &box->answer;
    const bool is_final = answer->flags & CN_ANSWER_FINAL;
    struct cn_ws_piece piece = {
        .step = step->number, .final = is_final, .answer = answer, .traceparent = box->traceparent};
    struct cn_buf *buf = &stream->site->message;
    struct cn_str message;
    struct cn_error err;
    bool is_text;

    if (answer->content_type.len)
        step->body = cn_ws_body_of(answer->content_type);
    piece.kind = step->body;
    if (answer->generation != stream->generation && stream->has_sequence && is_final)
        piece.generation = answer->generation;
    if (answer->body.len == 0 && (!is_final || (stream->form == CN_WS_PLAIN && step->sent_some)))
        return;
    step->sent_some = true;
    if (cn_ws_write_answer(stream->form, &piece, buf, &message, &is_text, &err)) {
        const struct cn_ws_failure failure = {
            .step = step->number, .code = CN_E_HANDLER_FAILED, .message = cn_str_from(err.message)};

        cn_ws_fail(stream, CN_WS_CLOSE_FAILED, &failure);
    } else {
        cn_ws_frames_send(&stream->frames, is_text, message);
    }
    if (buf->cap > CN_WS_SCRATCH_BYTES)
        cn_buf_fini(buf);
    cn_buf_reset(buf);
}

/* Sends one piece of the first step. Takes the box. */
static void
send_box(struct step *step, struct cn_answer_box *box)
{
    const struct cn_answer *answer = &box->answer;
    const bool is_final = answer->flags & CN_ANSWER_FINAL;

    if (step->stream->phase != CN_WS_CLOSING) {
        if (step->kind == CN_WS_STEP_LOOKS) {
            cn_ws_hello_found(step->stream, answer);
        } else if (answer->error_code) {
            send_error(step, box);
        } else {
            send_piece(step, box);
            if (is_final)
                note_final(step, answer);
        }
    }
    if (!is_final)
        cn_model_queue_consumed(&step->job, answer->body.len);
    cn_answer_box_free(box);
}

/* Sends what the first step has. Returns true if the step is done. */
static bool
flush_step(struct step *step)
{
    struct cn_ws_stream *stream = step->stream;
    struct cn_answer_box *box;

    if (step->refused && stream->phase != CN_WS_CLOSING) {
        const struct cn_ws_failure failure = {.step = step->number,
                                              .code = step->refused->code,
                                              .message = cn_str_from(step->refused->message)};

        if (step->kind == CN_WS_STEP_RUNS)
            send_failure(step, &failure);
        else
            cn_ws_fail(stream, cn_ws_close_of(failure.code), &failure);
    }
    while ((box = step->boxes) && (!cn_ws_io_is_full(stream) || stream->phase == CN_WS_CLOSING)) {
        step->boxes = (struct cn_answer_box *)box->msg.next;
        if (!step->boxes)
            step->boxes_end = &step->boxes;
        stream->held_bytes -= box->answer.body.len;
        send_box(step, box);
    }
    return step->is_done && !step->boxes;
}

/* After a failure, when nothing is under way any more: the count goes on where the server is.
 *
 * Example: the client sends three messages, which become the steps 5, 6 and 7, and the handler
 * fails in step 5. The worker refuses 6 and 7, since it still expects 5. When all three are
 * answered, the next message becomes step 5 again. */
static void
settle_count(struct cn_ws_stream *stream)
{
    if (!stream->failed || stream->n_unanswered)
        return;
    stream->failed = false;
    if (stream->has_sequence)
        stream->next = stream->expected ? stream->expected : stream->committed + 1;
    stream->expected = 0;
}

/* Sending an answer makes room for a waiting message, and that message may be refused at once and
 * have its error ready. So the two are done in turns, as long as the first step is one that was
 * refused. */
void
cn_ws_steps_go_on(struct cn_ws_stream *stream)
{
    const size_t before = stream->frames.out.len;

    do {
        while (!cn_list_empty(&stream->steps)) {
            struct step *step = cn_container_of(stream->steps.next, struct step, link);

            if (!flush_step(step))
                break;
            step_destroy(step);
        }
        settle_count(stream);
        if (stream->phase == CN_WS_RESUMING && cn_list_empty(&stream->steps))
            stream->phase = CN_WS_OPEN;
        submit_waiting(stream);
    } while (!cn_list_empty(&stream->steps) &&
             cn_container_of(stream->steps.next, struct step, link)->refused);
    if (stream->frames.out.len != before || stream->frames.failed)
        cn_ws_io_send_soon(stream);
}

/* The scheduler calls this on the stream's loop, once for each piece of an answer. The step owns
 * the box from then on. If the connection is gone, nobody will read the pieces: they are only
 * counted as taken, so that the handler is not held up, and the final one frees the step. */
static void
on_answer(struct cn_job *job, struct cn_answer_box *box)
{
    struct step *step = cn_container_of(job, struct step, job);
    struct cn_ws_stream *stream = step->stream;
    const bool is_final = box->answer.flags & CN_ANSWER_FINAL;

    _Static_assert(offsetof(struct cn_answer_box, msg.next) == 0, "a box is its link");
    if (!stream->conn && !is_final) {
        cn_model_queue_consumed(job, box->answer.body.len);
        cn_answer_box_free(box);
        return;
    }
    box->msg.next = NULL;
    *step->boxes_end = box;
    step->boxes_end = (struct cn_answer_box **)&box->msg.next;
    stream->held_bytes += box->answer.body.len;
    if (is_final)
        step->is_done = true;
    if (is_final && !stream->conn)
        step_destroy(step);
    cn_ws_go_on(stream);
}

const struct cn_job_ops cn_ws_step_ops = {on_answer};

/* A submitted step stays in the list until its job ends, because the job is inside the step. The
 * scheduler answers it as cancelled, or with its result if that came first. */
void
cn_ws_steps_cancel(struct cn_ws_stream *stream)
{
    struct cn_list *node, *tmp;

    while ((node = cn_list_pop_front(&stream->waiting))) {
        struct waiting *waiting = cn_container_of(node, struct waiting, link);
        struct cn_arena arena = waiting->arena;

        cn_request_bytes_done(&waiting->message_bytes);
        cn_arena_fini(&arena);
    }
    stream->n_waiting = 0;
    cn_list_for_each_safe(node, tmp, &stream->steps) {
        struct step *step = cn_container_of(node, struct step, link);

        if (step->is_submitted && !step->is_done)
            cn_model_queue_cancel(step->job.queue, &step->job);
        else if (!stream->conn)
            step_destroy(step);
    }
}
