/* worker/stream_input/window_answers.h - joins the answers to the windows of a request. Worker's
 * thread.
 *
 * - stream.answers: list. JSON answers become the elements of a JSON list, and text becomes its
 *   strings. An answer in several pieces is one text, or a list of its JSON pieces.
 * - stream.answers: bytes. The bodies follow each other, under the first one's content type.
 * - Tensors are joined in the model's batch dimension, or in a new first dimension if it has none.
 *
 * A request without a whole window is answered with an empty list, no bytes, or tensors of 0
 * windows.
 */
#ifndef CN_WORKER_STREAM_INPUT_WINDOW_ANSWERS_H
#define CN_WORKER_STREAM_INPUT_WINDOW_ANSWERS_H

#include "config/model/model_io.h"
#include "handlers/runtime.h"
#include "worker/stream_input/chunk.h"

struct cn_answer_column;

struct cn_window_answers {
    enum cn_stream_answers form;
    const struct cn_model_io *io; /* NULL: the model is not typed */
    uint64_t max_bytes;           /* answerMaxBytes */
    uint32_t n;                   /* windows that were answered */
    bool tensors;                 /* their answers are tensors */
    uint16_t status;              /* the last one that a handler chose */
    struct cn_buf headers;        /* those of the last window that has any, as in a reply */
    uint32_t n_headers;
    struct cn_buf type;   /* with BYTES: the first content type */
    struct cn_buf body;   /* with LIST: the elements so far, after "["; with BYTES: the bytes */
    struct cn_buf pieces; /* pieces of the present window's answer: JSON or text */
    uint32_t n_pieces;
    struct cn_answer_column *columns; /* one for each output */
    uint32_t n_columns;
};

void cn_answers_init(struct cn_window_answers *answers, enum cn_stream_answers form,
                     const struct cn_model_io *io, uint64_t max_bytes);
void cn_answers_fini(struct cn_window_answers *answers);

/* Takes the pieces that a handler has given before it goes on with its window, and removes them
 * from the reply. Returns 0 or CN_E_HANDLER_FAILED. */
int cn_answers_take_pieces(struct cn_window_answers *answers, struct cn_reply *reply,
                           struct cn_error *err);
/* Takes the whole answer to a window, and makes the reply ready for the next one. Returns 0 or
 * CN_E_HANDLER_FAILED with the window and the reason. */
int cn_answers_take(struct cn_window_answers *answers, struct cn_reply *reply,
                    struct cn_error *err);
/* Puts the joined answer into the reply. */
int cn_answers_finish(struct cn_window_answers *answers, struct cn_reply *reply,
                      struct cn_error *err);

#endif
