/* frontend/websocket/ws_messages.h - what the messages of a stream say: a client's message as a
 * request, and answers and errors as messages (docs/streams.md). Any thread, no state. */
#ifndef CN_FRONTEND_WEBSOCKET_WS_MESSAGES_H
#define CN_FRONTEND_WEBSOCKET_WS_MESSAGES_H

#include <stdbool.h>
#include <stdint.h>

#include "core/errors/error.h"
#include "core/memory/arena.h"
#include "core/memory/buf.h"
#include "frontend/websocket/ws_handshake.h"
#include "proto/tensor.h"

enum cn_ws_kind { CN_WS_STEP, CN_WS_START, CN_WS_END, CN_WS_CREDIT, CN_WS_PING };

struct cn_ws_request {
    enum cn_ws_kind kind;
    struct cn_str content_type, body; /* of a step */
    bool has_body;
    bool start, end;
    bool has_step;
    uint64_t step;        /* the number that the client has given */
    uint64_t credit;      /* CREDIT */
    bool has_traceparent; /* the two below count in place of the handshake's */
    struct cn_str traceparent, tracestate;
    bool has_tensors;
    uint32_t n_tensors;
    struct cn_tensor *tensors; /* in place of a body */
};

/* Reads a message, which must stay in place as long as the request is used; what must be decoded
 * is in the arena. Returns CN_E_BAD_REQUEST if it is not a message of that form. */
int cn_ws_read(enum cn_ws_form form, bool is_text, struct cn_str message, struct cn_arena *arena,
               struct cn_ws_request *out, struct cn_error *err);

/* What the first piece of an answer says about all of its pieces. */
enum cn_ws_body {
    CN_WS_BODY_OPEN,
    CN_WS_BODY_TEXT,
    CN_WS_BODY_JSON,
    CN_WS_BODY_BYTES,
    CN_WS_BODY_TENSORS
};
enum cn_ws_body cn_ws_body_of(struct cn_str content_type);

struct cn_ws_piece {
    enum cn_ws_body kind;
    uint64_t step;
    uint64_t generation; /* to tell the client; 0: it is not told */
    bool final;
    const struct cn_answer *answer; /* without error */
    struct cn_str traceparent;      /* told with the final piece; empty: the step is not traced */
};
/* Makes a message of a piece of an answer. *message is written into `out`, or it is the body of the
 * answer as it is. *is_text says which kind of message it is. Returns an error if the answer cannot
 * be written in this form. */
int cn_ws_write_answer(enum cn_ws_form form, const struct cn_ws_piece *piece, struct cn_buf *out,
                       struct cn_str *message, bool *is_text, struct cn_error *err);

struct cn_ws_failure {
    uint64_t step; /* 0: the stream failed, and not a step */
    int code;
    unsigned status; /* of the handler; 0: that of the code */
    struct cn_str message;
    uint64_t expected_step;
    struct cn_str traceparent; /* as in a piece */
    uint32_t retry_after_s;
};
/* Writes the members of an error, without the braces and the type. */
void cn_ws_write_failure(const struct cn_ws_failure *failure, struct cn_buf *out);
/* Writes {"type": "error", ...}. */
void cn_ws_write_error(const struct cn_ws_failure *failure, struct cn_buf *out);

#endif
