/* frontend/endpoints/kserve/kserve_stream.c - any number of v2 responses over HTTP, as events or
 * as lines of JSON. On the request's loop.
 *
 * The handler's pieces are rewritten one by one: on_answer() gets a piece with raw tensors, writes
 * it as the protocol's JSON, and passes it on in the same box with other bytes. So http_answer.c
 * streams it like any other answer, and its credit works as usual: a slow client holds up its
 * handler.
 *
 * The first response decides the status. An error before it has a status of its own; an error
 * after it can only be an event in the stream.
 */
#include "frontend/endpoints/kserve/kserve_http_priv.h"
#include "frontend/http/http_answer.h"
#include "frontend/http/http_request.h"
#include "kserve/generate.h"
#include "scheduler/queue/submit.h"

#define EVENTS_TYPE "text/event-stream; charset=utf-8"
#define LINES_TYPE "application/x-ndjson"

static const char *
type_of(const struct cn_v2_http_call *call)
{
    return call->form == CN_V2_FORM_LINES ? LINES_TYPE : EVENTS_TYPE;
}

static void
begin_event(const struct cn_v2_http_call *call, struct cn_buf *out)
{
    cn_buf_puts(out, call->form == CN_V2_FORM_LINES ? "" : "data: ");
}

static void
end_event(const struct cn_v2_http_call *call, struct cn_buf *out)
{
    cn_buf_puts(out, call->form == CN_V2_FORM_LINES ? "\n" : "\n\n");
}

static int
write_response(const struct cn_v2_http_call *call, const struct cn_v2_answer *response,
               struct cn_buf *out, struct cn_error *err)
{
    const struct cn_v2_request *request = &call->v2.request;
    size_t json_len;
    int rc;

    begin_event(call, out);
    rc = call->form == CN_V2_FORM_GENERATED
             ? cn_v2_write_generate(response, request, out, err)
             : cn_v2_write(response, request, out, &json_len, NULL, err);
    end_event(call, out);
    if (!rc && out->failed)
        rc = cn_fail(err, CN_E_OUT_OF_MEMORY, "not enough memory for the response");
    return rc;
}

static void
write_failure(const struct cn_v2_http_call *call, const char *message, struct cn_buf *out)
{
    cn_buf_reset(out);
    begin_event(call, out);
    cn_v2_write_error(message, out);
    end_event(call, out);
}

/* Sends the box with the text in place of the handler's bytes. Takes over the box. */
static void
send(struct cn_v2_http_call *call, struct cn_answer_box *box, struct cn_buf *text)
{
    call->begun = true;
    box->answer.status = 0;
    box->answer.error_code = 0;
    cn_http_answer_piece(call->request,
                         cn_answer_box_remake(box, cn_str_from(type_of(call)), cn_buf_str(text)));
}

/* Refuses a request of which nothing has been sent yet, so the status can still report the
 * error. */
static void
refuse(struct cn_v2_http_call *call, int code, const char *message, struct cn_buf *text)
{
    if (call->form != CN_V2_FORM_GENERATED) {
        cn_v2_http_error(call->request, code, message);
        return;
    }
    write_failure(call, message, text);
    cn_http_answer_bytes(call->request, (unsigned)cn_error_info(code)->http_status, EVENTS_TYPE,
                         cn_buf_str(text));
}

/* Reports an error: as the answer if nothing has been sent, or else as the last event. */
static void
fail(struct cn_v2_http_call *call, struct cn_answer_box *box, int code, const char *message,
     struct cn_buf *text)
{
    const bool final = (box->answer.flags & CN_ANSWER_FINAL) != 0;

    if (!call->begun) {
        cn_http_answer_echo(call->request, box);
        refuse(call, code, message, text);
        cn_answer_box_free(box);
    } else {
        write_failure(call, message, text);
        box->answer.flags |= CN_ANSWER_FINAL;
        send(call, box, text);
    }
    if (!final)
        cn_v2_http_call_give_up(call);
}

/* Decides what becomes of one piece: a response, an error, or nothing that the client must see. */
static void
take(struct cn_v2_http_call *call, struct cn_answer_box *box, struct cn_arena *arena,
     struct cn_buf *text)
{
    struct cn_v2_piece piece;
    struct cn_error err;

    cn_v2_job_piece(&call->v2, &box->answer, arena, &piece);
    if (piece.kind == CN_V2_RESPONSE && write_response(call, &piece.response, text, &err)) {
        call->v2.over = true;
        fail(call, box, err.code, err.message, text);
    } else if (piece.kind == CN_V2_FAILURE) {
        fail(call, box, piece.code, piece.message, text);
    } else if (call->answered || (piece.kind == CN_V2_NOTHING && !piece.final)) {
        cn_model_queue_consumed(&call->v2.job, box->answer.body.len);
        cn_answer_box_free(box);
    } else {
        send(call, box, text);
    }
}

static void
on_answer(struct cn_job *job, struct cn_answer_box *box)
{
    struct cn_v2_http_call *call = cn_container_of(job, struct cn_v2_http_call, v2.job);
    const bool final = (box->answer.flags & CN_ANSWER_FINAL) != 0;
    struct cn_arena arena;
    struct cn_buf text;

    if (final) /* there is nothing left to cancel or to hold up */
        call->request->on_gone = NULL, call->request->on_taken = NULL;
    cn_arena_init(&arena);
    cn_buf_init(&text, 0);
    take(call, box, &arena, &text);
    cn_buf_fini(&text);
    cn_arena_fini(&arena);
    if (final)
        cn_v2_http_call_end(call);
}

static void
on_taken(struct cn_http_request *request, size_t bytes)
{
    struct cn_v2_http_call *call = request->call;

    cn_model_queue_consumed(&call->v2.job, bytes);
}

void
cn_v2_http_stream_submit(struct cn_v2_http_call *call, struct cn_model_queue *queue)
{
    static const struct cn_job_ops ops = {on_answer};

    call->request->on_taken = on_taken;
    call->request->plain = true;
    cn_v2_http_call_submit(call, queue, &ops);
}
