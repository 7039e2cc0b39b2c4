/* frontend/events/events.h - the answers of predictions as server-sent events. On the loop of
 * the request.
 *
 * A client that accepts text/event-stream gets an event for each piece of the answer, whatever the
 * handler is, then an event `end`, or an event `error` if the answer breaks off. docs/events.md
 * describes the events. The id of an event is "STEP-PIECE", and that of the last one "STEP-end". A
 * client whose connection broke sends the same request again, with the last id that it saw
 * (Last-Event-ID), and gets the pieces behind it if the step is committed.
 */
#ifndef CN_FRONTEND_EVENTS_EVENTS_H
#define CN_FRONTEND_EVENTS_EVENTS_H

#include <stdbool.h>
#include <stdint.h>

#include "core/errors/error.h"
#include "core/text/str.h"
#include "proto/message.h"

struct cn_answer_box;
struct cn_http_request;

#define CN_EVENTS_TYPE "text/event-stream; charset=utf-8"
#define CN_EVENTS_CUT_MAX 3 /* bytes of a character that a piece can end in */

/* What a client says with Last-Event-ID. */
struct cn_event_id {
    bool given, is_end;
    uint64_t step, piece;
};

/* Whether the bytes of an answer are text. */
enum cn_event_body {
    CN_EVENT_OPEN, /* the handler does not say: UTF-8 without NUL is text */
    CN_EVENT_TEXT,
    CN_EVENT_JSON, /* text in which a carriage return means no more than a line feed */
    CN_EVENT_BYTES,
};

/* One answer that becomes events. All zero: it does not. */
struct cn_events {
    struct cn_http_request *request;
    bool wanted;
    struct cn_event_id last;
    /* Since the first piece. */
    bool begun, is_own, begins_anew; /* own: the handler writes events itself */
    enum cn_event_body body;
    struct cn_str type; /* the handler's content type, in the arena */
    uint64_t step, pieces;
    uint32_t n_cut; /* the beginning of a character that the last piece ended in */
    char cut[CN_EVENTS_CUT_MAX];
};

/* Reads the value of a header Last-Event-ID. Returns CN_E_BAD_REQUEST if no event has that id. */
int cn_event_id_read(struct cn_str value, struct cn_event_id *out, struct cn_error *err);
/* Reads from the request's headers whether its client wants events, and what it has seen of them.
 */
int cn_events_begin(struct cn_http_request *request, struct cn_events *events,
                    struct cn_error *err);
/* If the client wants the rest of an answer, checks that the request can be told from a new step.
 * `is_stateful`: the model has sequences. */
int cn_events_check(const struct cn_events *events, bool is_stateful, const struct cn_row *row,
                    struct cn_error *err);
/* Takes a piece of an answer and returns the box to send in its place: as it is if the client does
 * not want events, or if the answer is an error and nothing was sent yet. */
struct cn_answer_box *cn_events_write(struct cn_events *events, struct cn_answer_box *box);

#endif
