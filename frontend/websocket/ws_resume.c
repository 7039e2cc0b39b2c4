/* frontend/websocket/ws_resume.c - where a stream begins: the hello, and the answers that a client
 * has missed. Owned by the loop.
 *
 * The server asks its worker where the sequence is with a row that runs nothing (CN_ROW_RECALL). It
 * goes the way of a step, so it comes behind the steps that an older connection has sent, and it
 * finds a sequence that lives in another version. A client that resumes then gets the missing
 * answers in the same way, one row for each step.
 *
 * Between the hello and the client's next step, a step of the older connection may still be
 * committed by another node. That is harmless: the client sends the same step with the same number,
 * and the worker answers it from the record. Two clients that send different steps to one sequence
 * cannot both be right, and the one that is too late gets 409 step_done.
 */
#include <inttypes.h>
#include <stdio.h>

#include "frontend/http/http_listener.h"
#include "frontend/websocket/ws_stream.h"
#include "kserve/infer_answer.h"
#include "metrics/counters/metrics.h"

#define RECALLS_MAX 64 /* the largest credit: further answers are not kept */

/* Writes the hello. `closed`: the error that a plain step would get; NULL: none. */
static void
send_hello(struct cn_ws_stream *stream, const struct cn_ws_failure *closed)
{
    struct cn_buf text;

    if (stream->form == CN_WS_PLAIN)
        return;
    cn_buf_init(&text, 0);
    cn_buf_puts(&text, "{\"type\":\"hello\",\"model\":");
    cn_v2_write_text(stream->model, &text);
    if (stream->version.len) {
        cn_buf_puts(&text, ",\"version\":");
        cn_v2_write_text(stream->version, &text);
    }
    cn_buf_puts(&text, ",\"sequence\":");
    cn_v2_write_text(stream->id, &text);
    cn_buf_printf(&text,
                  ",\"generation\":%" PRIu64 ",\"step\":%" PRIu64 ",\"next\":%" PRIu64
                  ",\"credit\":%u",
                  stream->generation, stream->committed, stream->next, stream->credit);
    if (closed) {
        cn_buf_puts(&text, ",\"closed\":{");
        cn_ws_write_failure(closed, &text);
        cn_buf_puts(&text, "}");
    }
    cn_buf_puts(&text, "}");
    cn_ws_frames_send(&stream->frames, true, cn_buf_str(&text));
    cn_buf_fini(&text);
}

void
cn_ws_hello_begin(struct cn_ws_stream *stream)
{
    stream->phase = CN_WS_OPENING;
    if (stream->has_sequence) {
        cn_ws_ask(stream, CN_WS_STEP_LOOKS, CN_RECALL_LAST);
        return;
    }
    send_hello(stream, NULL);
    stream->phase = CN_WS_OPEN;
}

static void
cannot_resume(struct cn_ws_stream *stream, struct cn_ws_failure failure, const char *message)
{
    failure.message = cn_str_from(message);
    cn_ws_fail(stream, CN_WS_CLOSE_CANNOT_RESUME, &failure);
}

/* Compares what the client has seen with what the record has. Returns false if the stream cannot be
 * resumed; then it is closed. `closed`: the sequence is closed, with this error. */
static bool
check_resume(struct cn_ws_stream *stream, const struct cn_ws_failure *closed)
{
    const uint64_t next = stream->committed + 1;
    char message[200];

    if (stream->wanted_generation && stream->wanted_generation != stream->generation) {
        if (closed || !stream->generation) {
            snprintf(message, sizeof(message), "there is no sequence of generation %" PRIu64,
                     stream->wanted_generation);
            cannot_resume(stream, (struct cn_ws_failure){.code = CN_E_SEQUENCE_UNKNOWN}, message);
        } else {
            snprintf(message, sizeof(message),
                     "generation %" PRIu64 " is over: the sequence has begun anew as generation "
                     "%" PRIu64,
                     stream->wanted_generation, stream->generation);
            cannot_resume(stream, (struct cn_ws_failure){.code = CN_E_SEQUENCE_ENDED}, message);
        }
        return false;
    }
    if (stream->last > stream->committed && !stream->generation) {
        cannot_resume(stream, (struct cn_ws_failure){.code = CN_E_SEQUENCE_UNKNOWN},
                      "there is no state under this id");
        return false;
    }
    if (stream->last > stream->committed) {
        snprintf(message, sizeof(message),
                 "the client has seen the answer of step %" PRIu64
                 ", but the record ends with step "
                 "%" PRIu64 "; send the steps from %" PRIu64 " on again",
                 stream->last, stream->committed, next);
        cannot_resume(stream,
                      (struct cn_ws_failure){.code = CN_E_STEPS_LOST, .expected_step = next},
                      message);
        return false;
    }
    if (stream->committed - stream->last > RECALLS_MAX) {
        snprintf(message, sizeof(message),
                 "the answers of the steps %" PRIu64 " to %" PRIu64 " are no longer kept",
                 stream->last + 1, stream->committed - 1);
        cannot_resume(stream,
                      (struct cn_ws_failure){.code = CN_E_ANSWER_NOT_KEPT,
                                             .step = stream->last + 1,
                                             .expected_step = next},
                      message);
        return false;
    }
    return true;
}

/* The sequence is found, or there is none. */
static void
open_stream(struct cn_ws_stream *stream, const struct cn_ws_failure *closed)
{
    if (!stream->sends_lost) {
        send_hello(stream, closed);
        stream->phase = CN_WS_OPEN;
        return;
    }
    if (!check_resume(stream, closed))
        return;
    cn_metrics_add(cn_loop_metrics(stream->site->listener->loop), CN_M_STREAM_RESUMES, 1);
    send_hello(stream, closed);
    stream->phase = CN_WS_RESUMING;
    for (uint64_t number = stream->last + 1; number <= stream->committed; number++)
        cn_ws_ask(stream, CN_WS_STEP_RECALLS, number);
}

/* Does the error say that the sequence is closed, and not that nobody knows? */
static bool
says_closed(int error_code)
{
    return error_code == CN_E_SEQUENCE_ENDED || error_code == CN_E_SEQUENCE_EXPIRED ||
           error_code == CN_E_STEP_DONE || error_code == CN_E_STEP_MISMATCH;
}

/* Nobody knows where the sequence is, or the store has lost a part of it. A client that resumes
 * learns from the code 4004 that this stream does not come back. */
static void
cannot_begin(struct cn_ws_stream *stream, const struct cn_answer *answer,
             struct cn_ws_failure *failure)
{
    const bool is_lost =
        answer->error_code == CN_E_STEPS_LOST || answer->error_code == CN_E_SEQUENCE_LOST;

    if (is_lost)
        failure->expected_step = answer->step;
    cn_ws_fail(stream,
               is_lost && stream->sends_lost ? CN_WS_CLOSE_CANNOT_RESUME
                                             : cn_ws_close_of(answer->error_code),
               failure);
}

void
cn_ws_hello_found(struct cn_ws_stream *stream, const struct cn_answer *answer)
{
    struct cn_ws_failure failure = {
        .code = answer->error_code, .status = answer->status, .message = answer->body};

    stream->generation = answer->generation;
    if (answer->error_code == 0) {
        stream->committed = answer->step;
        stream->next = answer->step + 1;
        open_stream(stream, NULL);
    } else if (says_closed(answer->error_code)) {
        stream->committed = answer->step ? answer->step - 1 : 0;
        stream->next = 1;
        /* A plain client cannot say START. Where a step over HTTP begins a new sequence without it,
         * its first step does so here. */
        stream->start_next =
            stream->form == CN_WS_PLAIN &&
            (answer->error_code == CN_E_STEP_DONE || answer->error_code == CN_E_STEP_MISMATCH);
        open_stream(stream, &failure);
    } else {
        cannot_begin(stream, answer, &failure);
    }
}

void
cn_ws_recall_failed(struct cn_ws_stream *stream, uint64_t number, const struct cn_answer *answer,
                    uint32_t retry_after_s)
{
    const bool is_gone =
        answer->error_code == CN_E_ANSWER_NOT_KEPT || says_closed(answer->error_code);
    const struct cn_ws_failure failure = {
        .code = is_gone ? CN_E_ANSWER_NOT_KEPT : answer->error_code,
        .step = number,
        .message = answer->body,
        .expected_step = is_gone ? stream->next : 0,
        .retry_after_s = retry_after_s,
    };

    cn_ws_fail(stream, is_gone ? CN_WS_CLOSE_CANNOT_RESUME : cn_ws_close_of(answer->error_code),
               &failure);
}
