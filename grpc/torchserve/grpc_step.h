/* grpc/torchserve/grpc_step.h - a PredictionsRequest as a job of the scheduler. On the call's loop.
 *
 * The message is read by hand and copied once: the inputs' bytes stay in that copy, where a row
 * may point to them for as long as the job runs.
 */
#ifndef CN_GRPC_TORCHSERVE_GRPC_STEP_H
#define CN_GRPC_TORCHSERVE_GRPC_STEP_H

#include <stdbool.h>
#include <stdint.h>

#include "core/containers/list.h"
#include "core/errors/error.h"
#include "frontend/intake/intake.h"
#include "grpc/library/grpc_core.h"
#include "scheduler/queue/job.h"

#define CN_RPC_INPUTS_MAX 256

/* Where PredictionsRequest's fields are. */
struct cn_rpc_prediction {
    struct cn_str model_name, model_version, sequence_id;
    bool has_sequence_id;
    uint32_t n_parts, n_controls;
    struct cn_part *parts;      /* inputs for the handler, in the order they came */
    struct cn_header *controls; /* inputs for the server */
};
/* Reads the message. Arrays lie in the arena and point into `bytes`. CN_E_BAD_REQUEST: it is not a
 * valid message, has too many inputs, or a name that is not UTF-8. */
int cn_rpc_prediction_read(struct cn_str bytes, struct cn_arena *arena,
                           struct cn_rpc_prediction *out, struct cn_error *err);

struct cn_rpc_step {
    struct cn_job job;
    struct cn_grpc_call *call; /* held */
    struct cn_list link;       /* the owner's */
    struct cn_rpc_prediction request;
    struct cn_str lane; /* the sequence it belongs to, as far as it is known */
    bool is_submitted, is_done;
    bool sent_some, owes; /* for its owner: a response went out; one must still go out */
    uint32_t n_sending;   /* messages that the transport did not take yet */
    struct cn_answer_box *boxes, **boxes_end; /* pieces that wait; linked by msg.next */
    struct cn_error *refused;                 /* it never became a job */
    char request_id[CN_REQUEST_ID_MAX];
    char new_id[CN_GENERATED_ID_BYTES];
    struct cn_arena arena;
};

/* Makes a step, which holds the call. It is never NULL; if the message is wrong, `refused` says
 * why. */
struct cn_rpc_step *cn_rpc_step_create(struct cn_grpc_call *call,
                                       const struct cn_grpc_message *message);
/* Call it only if the step was not submitted, or has its final answer. */
void cn_rpc_step_destroy(struct cn_rpc_step *step);

/* The sequence of a stream's steps that name none. */
struct cn_rpc_stream_id {
    char text[CN_SEQUENCE_ID_MAX];
    size_t len; /* 0: none yet */
};
/* A stream's metadata must not say what belongs to one step: CN_E_BAD_REQUEST. */
int cn_rpc_step_check_stream(const struct cn_header *headers, uint32_t n, struct cn_error *err);
/* Gives the job to its model's queue; `ops` get the answers. `stream` NULL: a call with one step,
 * whose metadata may say what inputs may. With `stream`, it is the sequence of steps that name
 * none, and is set by the first step. On failure the step is refused. */
int cn_rpc_step_submit(struct cn_rpc_step *step, const struct cn_job_ops *ops,
                       struct cn_rpc_stream_id *stream);
void cn_rpc_step_cancel(struct cn_rpc_step *step);

struct cn_rpc_failure;
/* Does the answer say that something went wrong, and what? `message` is in the arena. */
bool cn_rpc_answer_failed(const struct cn_answer_box *box, struct cn_arena *arena,
                          struct cn_rpc_failure *out);
/* Asks the same about a step of TorchServe's own services. With --torchserve-errors, `out` has
 * TorchServe's status and message. */
bool cn_rpc_step_failed(const struct cn_rpc_step *step, const struct cn_answer_box *box,
                        struct cn_arena *arena, struct cn_rpc_failure *out);

/* The metadata that say that a new sequence took the place of an expired one. */
void cn_rpc_add_restarted(struct cn_grpc_call *call, const struct cn_answer *answer);

/* The message owns the box from here on, whose body is in it. */
void cn_rpc_lend(struct cn_grpc_outgoing *out, struct cn_answer_box *box);
/* Sends a PredictionResponse with the step as owner; takes the box, which may be NULL. `status`:
 * packed, may be empty; with one there is no prediction. */
void cn_rpc_step_send(struct cn_rpc_step *step, struct cn_answer_box *box, struct cn_str status);
/* The call's only response, and its end with OK. */
void cn_rpc_step_send_last(struct cn_grpc_call *call, struct cn_answer_box *box);
/* The number of the step that was made, or that should have been, as a header of the call. */
void cn_rpc_tell_step(struct cn_grpc_call *call, const struct cn_answer *answer);
/* Metadata of the answer to a call with one step: request id, sequence, was it replayed, its
 * number. */
void cn_rpc_step_add_headers(struct cn_rpc_step *step, const struct cn_answer_box *box);

#endif
