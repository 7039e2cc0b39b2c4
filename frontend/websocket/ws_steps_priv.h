/* frontend/websocket/ws_steps_priv.h - a step of a stream. Owned by the loop. */
#ifndef CN_FRONTEND_WEBSOCKET_WS_STEPS_PRIV_H
#define CN_FRONTEND_WEBSOCKET_WS_STEPS_PRIV_H

#include "core/text/number.h"
#include "frontend/intake/request_bytes.h"
#include "frontend/websocket/ws_stream.h"
#include "scheduler/queue/job.h"

struct step {
    struct cn_arena arena; /* has this struct */
    struct cn_ws_stream *stream;
    struct cn_list link;
    struct cn_request_bytes message_bytes;
    enum cn_ws_step_kind kind;
    uint64_t number; /* 0: an error answers a message that is not a step */
    bool is_submitted, is_done, sent_some;
    enum cn_ws_body body;
    struct cn_answer_box *boxes, **boxes_end; /* pieces that wait, linked by msg.next */
    struct cn_error *refused;                 /* it did not become a job, and why */
    struct cn_job job;
    char request_id[CN_REQUEST_ID_MAX + 1 + CN_NUMBER_MAX];
};

/* ws_steps.c: gets the answers of a step's job. */
extern const struct cn_job_ops cn_ws_step_ops;

/* The step becomes no job.
 *
 * It stays in the list until its turn, so that its error leaves behind the answers of the steps
 * before it. */
void cn_ws_step_refuse(struct step *step, const struct cn_error *why);
/* Makes the step's job and submits it, or refuses the step. The model is looked up for each step,
 * and not once for the stream: another version may have become the default since. If the client has
 * named no version, its steps go on there. `request` is NULL for a step of the server's own, which
 * runs no handler. */
void cn_ws_step_submit(struct step *step, const struct cn_ws_request *request);

#endif
