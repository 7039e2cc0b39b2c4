/* frontend/endpoints/typed.h - predictions of typed models: makes tensors from a body, and JSON
 * from tensors. On the loop of the request. */
#ifndef CN_FRONTEND_ENDPOINTS_TYPED_H
#define CN_FRONTEND_ENDPOINTS_TYPED_H

#include <stdbool.h>

#include "core/errors/error.h"
#include "kserve/request.h"
#include "proto/message.h"

struct cn_answer_box;
struct cn_model_queue;

/* Makes the inputs that the model declares from the row's one body, which is JSON, {name: values},
 * or else the bytes of the only input. `json_bytes`: the most that JSON may have. All bytes are in
 * the row or in the arena. Returns CN_E_BAD_REQUEST if the body is not of this kind, or is not what
 * the model takes. */
int cn_typed_read(struct cn_arena *arena, uint64_t json_bytes, const struct cn_model_queue *queue,
                  struct cn_row *row, struct cn_error *err);
/* Makes the row's parts from tensors that were read already. */
int cn_typed_take(struct cn_v2_request *v2, const struct cn_model_queue *queue,
                  struct cn_arena *arena, struct cn_row *row, struct cn_error *err);
/* The form of an answer. `tensors` and `lines` are set when the first piece comes. */
struct cn_typed_answer {
    bool declared;  /* the model is typed */
    bool decoupled; /* each response is a line, even if there is only one */
    bool is_whole;  /* each piece is a JSON object without the end of a line */
    bool tensors, lines;
};

/* Takes a piece of an answer and returns the box to send in its place. Returns NULL if nothing is
 * to be sent; its bytes then count as taken (cn_model_queue_consumed). Tensors become JSON, {name:
 * values}: a whole answer becomes one object, and a streamed one becomes a line for each piece.
 * Tensors that JSON cannot express become an error, which is the last piece. Other answers stay as
 * they are. */
struct cn_answer_box *cn_typed_write(struct cn_typed_answer *typed, struct cn_answer_box *box);

#endif
