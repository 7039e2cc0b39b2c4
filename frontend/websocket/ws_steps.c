/* frontend/websocket/ws_steps.c - the steps of a stream: from a message to a job, and from answers
 * to messages. Owned by the loop.
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

#include "access/certificate/certificate.h"
#include "access/key_file.h"
#include "access/keys.h"
#include "config/model/model_io.h"
#include "core/errors/panic.h"
#include "core/text/number.h"
#include "core/time/clock.h"
#include "frontend/endpoints/typed.h"
#include "frontend/http/http_listener.h"
#include "frontend/websocket/ws_stream.h"
#include "management/management.h"
#include "metrics/counters/metrics.h"
#include "scheduler/queue/job.h"
#include "scheduler/queue/model_queue.h"
#include "scheduler/queue/submit.h"

struct waiting {
    struct cn_arena arena; /* has this struct, and then the step that it becomes */
    struct cn_list link;
    bool is_text;
    size_t len;
    _Alignas(16) char bytes[];
};

struct step {
    struct cn_arena arena; /* has this struct */
    struct cn_ws_stream *stream;
    struct cn_list link;
    enum cn_ws_step_kind kind;
    uint64_t number; /* 0: an error answers a message that is not a step */
    bool is_submitted, is_done, sent_some;
    enum cn_ws_body body;
    struct cn_answer_box *boxes, **boxes_end; /* pieces that wait, linked by msg.next */
    struct cn_error *refused;                 /* it did not become a job, and why */
    struct cn_job job;
    char request_id[CN_REQUEST_ID_MAX + 1 + CN_NUMBER_MAX];
};

static void on_answer(struct cn_job *job, struct cn_answer_box *box);

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
        cn_answer_box_free(box);
    }
    cn_list_remove(&step->link);
    step->stream->n_unanswered--;
    cn_arena_fini(&arena);
}

/* --- messages of the client */

void
cn_ws_take_message(struct cn_ws_frames *frames, bool is_text, struct cn_str message)
{
    struct cn_ws_stream *stream = cn_ws_stream_of(frames);
    struct cn_arena arena;
    struct waiting *waiting;

    stream->message_ms = 0;
    if (stream->phase == CN_WS_LEAVING || stream->phase == CN_WS_CLOSING)
        return;
    cn_arena_init(&arena);
    waiting = cn_arena_try_alloc(&arena, sizeof(*waiting) + message.len);
    if (!waiting) {
        cn_ws_close(stream, CN_WS_CLOSE_TRY_AGAIN, CN_STR("not enough memory for the message"));
        return;
    }
    waiting->arena = arena;
    cn_list_init(&waiting->link);
    waiting->is_text = is_text;
    waiting->len = message.len;
    if (message.len)
        memcpy(waiting->bytes, message.ptr, message.len);
    cn_list_push_back(&stream->waiting, &waiting->link);
    stream->n_waiting++;
    frames->is_paused = !cn_ws_steps_has_room(stream);
}

/* --- from a message to a job */

/* The step becomes no job.
 *
 * It stays in the list until its turn, so that its error leaves behind the answers of the steps
 * before it. */
static void
refuse(struct step *step, const struct cn_error *why)
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
    static const struct cn_job_ops ops = {on_answer};
    struct cn_ws_stream *stream = step->stream;
    const struct cn_intake intake = {
        .queue = queue,
        .loop = cn_ws_loop(stream),
        .ops = &ops,
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

/* The model is looked up for each step, and not once for the stream: another version may have
 * become the default since. If the client has named no version, its steps go on there. `request` is
 * NULL for a step of the server's own, which runs no handler. */
static void
submit(struct step *step, const struct cn_ws_request *request)
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
        refuse(step, &err);
        return;
    }
    if (step->kind != CN_WS_STEP_RUNS)
        step->job.row.flags |= CN_ROW_RECALL;
    step->is_submitted = true;
    cn_model_queue_submit(queue, &step->job);
}

void
cn_ws_ask(struct cn_ws_stream *stream, enum cn_ws_step_kind kind, uint64_t number)
{
    struct cn_arena arena;
    struct step *step;

    cn_arena_init(&arena);
    step = step_create(stream, kind, arena);
    step->number = number;
    submit(step, NULL);
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

    if (cn_ws_read(stream->form, waiting->is_text, message, &step->arena, &request, &err)) {
        refuse(step, &err);
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
    submit(step, &request);
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

/* The sequence has ended with this step. */
static void
tell_end(struct step *step)
{
    struct cn_ws_stream *stream = step->stream;
    char text[80];

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
    if (is_final)
        step->is_done = true;
    if (is_final && !stream->conn)
        step_destroy(step);
    cn_ws_go_on(stream);
}

/* A submitted step stays in the list until its job ends, because the job is inside the step. The
 * scheduler answers it as cancelled, or with its result if that came first. */
void
cn_ws_steps_cancel(struct cn_ws_stream *stream)
{
    struct cn_list *node, *tmp;

    while ((node = cn_list_pop_front(&stream->waiting))) {
        struct cn_arena arena = cn_container_of(node, struct waiting, link)->arena;

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
