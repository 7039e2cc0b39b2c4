/* frontend/endpoints/typed.h - predictions of typed models: a body becomes tensors, tensors become
 * JSON.
 *
 * On the loop of the request.
 */
#ifndef CN_FRONTEND_ENDPOINTS_TYPED_H
#define CN_FRONTEND_ENDPOINTS_TYPED_H

#include <stdbool.h>

#include "core/errors/error.h"
#include "proto/message.h"

struct cn_answer_box;
struct cn_http_request;
struct cn_model_queue;

/* The row's one body becomes the inputs that the model declares: from JSON, {name: values}, or else
 * from the bytes of its only input. CN_E_BAD_REQUEST: no such body, or not what the model takes. */
int cn_typed_read(struct cn_http_request *request, const struct cn_model_queue *queue,
                  struct cn_row *row, struct cn_error *err);
/* How an answer goes out; `tensors` and `lines` are found out. */
struct cn_typed_answer {
    bool declared;  /* the model is typed */
    bool decoupled; /* each response is a line, though there be one */
    bool events;    /* server-sent events in place of lines */
    bool tensors, lines;
};

/* Takes a piece of an answer, gives what goes out in its place; NULL: nothing, its bytes count as
 * taken (cn_model_queue_consumed). Tensors become JSON, {name: values}: a whole answer as it is,
 * one in pieces a line a piece. What can't become JSON is an error, and the last piece. Other
 * answers stay as they are. */
struct cn_answer_box *cn_typed_write(struct cn_typed_answer *typed, struct cn_answer_box *box);

#endif
