/* grpc/torchserve/grpc_step.h - makes a job for the scheduler from a PredictionsRequest. On
 * the call's loop.
 *
 * The message is read by hand and copied once. The bytes of the inputs stay in that copy, and a row
 * may point to them as long as the job runs.
 */
#ifndef CN_GRPC_TORCHSERVE_GRPC_STEP_H
#define CN_GRPC_TORCHSERVE_GRPC_STEP_H

#include <stdbool.h>
#include <stdint.h>

#include "core/containers/list.h"
#include "core/errors/error.h"
#include "frontend/intake/intake.h"
#include "frontend/intake/request_bytes.h"
#include "grpc/transport/grpc_call.h"
#include "scheduler/queue/job.h"

#define CN_RPC_INPUTS_MAX 256

/* Pointers to the fields of a PredictionsRequest. */
struct cn_rpc_prediction {
    struct cn_str model_name, model_version, sequence_id;
    bool has_sequence_id;
    uint32_t n_parts, n_controls;
    struct cn_part *parts;      /* inputs for the handler, in the order of their arrival */
    struct cn_header *controls; /* inputs for the server */
};
/* Reads the message. Arrays lie in the arena and point into `bytes`. Returns CN_E_BAD_REQUEST if it
 * is not a valid message, has too many inputs, or has a name that is not UTF-8. */
int cn_rpc_prediction_read(struct cn_str bytes, struct cn_arena *arena,
                           struct cn_rpc_prediction *out, struct cn_error *err);

struct cn_rpc_step {
    struct cn_job job;
    struct cn_grpc_call *call; /* held */
    struct cn_list link;       /* in a list of the owner */
    struct cn_rpc_prediction request;
    struct cn_str lane;          /* the step's sequence, as far as it is known */
    struct cn_grpc_kept message; /* the request's bytes */
    bool is_submitted, is_done;
    bool sent_some, owes; /* used by the owner: a response was sent; one must still be sent */
    uint32_t n_sending;   /* messages that the transport has not taken yet */
    struct cn_answer_box *boxes, **boxes_end; /* pieces that wait, linked by msg.next */
    struct cn_error *refused;                 /* the step did not become a job, and why */
    char request_id[CN_REQUEST_ID_MAX];
    char new_id[CN_GENERATED_ID_BYTES];
    struct cn_arena arena;
};

/* Makes a step, which holds the call. Never returns NULL. If the message has a mistake, `refused`
 * has the reason. */
struct cn_rpc_step *cn_rpc_step_create(struct cn_grpc_call *call,
                                       const struct cn_grpc_message *message);
/* Frees the step. It must not have been submitted, or must have its final answer. */
void cn_rpc_step_destroy(struct cn_rpc_step *step);

/* The sequence of a stream, to which those of its steps belong that name none themselves. */
struct cn_rpc_stream_id {
    char text[CN_SEQUENCE_ID_MAX];
    size_t len; /* 0: not known yet */
};
/* Checks that a stream's metadata describe no single step. Returns 0 or CN_E_BAD_REQUEST. */
int cn_rpc_step_check_stream(const struct cn_header *headers, uint32_t n, struct cn_error *err);
/* Gives the job to its model's queue; `ops` get the answers. If `stream` is NULL, the call has one
 * step, whose metadata may have everything that inputs may have. Otherwise `stream` is the sequence
 * of steps that name none, and the first step sets it. If this fails, the step is refused. */
int cn_rpc_step_submit(struct cn_rpc_step *step, const struct cn_job_ops *ops,
                       struct cn_rpc_stream_id *stream);
void cn_rpc_step_cancel(struct cn_rpc_step *step);

struct cn_rpc_failure;
/* Returns true if the answer is an error, with the error in *out. Its message is in the arena. */
bool cn_rpc_answer_failed(const struct cn_answer_box *box, struct cn_arena *arena,
                          struct cn_rpc_failure *out);
/* Like cn_rpc_answer_failed(), for a step of TorchServe's own services. With --torchserve-errors,
 * `out` has TorchServe's status and message. */
bool cn_rpc_step_failed(const struct cn_rpc_step *step, const struct cn_answer_box *box,
                        struct cn_arena *arena, struct cn_rpc_failure *out);

/* Adds the metadata that say that a new sequence has replaced an expired one. */
void cn_rpc_add_restarted(struct cn_grpc_call *call, const struct cn_answer *answer);

/* Puts the box into the message: its body is the box's bytes, and from then on the message owns the
 * box. */
void cn_rpc_lend(struct cn_grpc_outgoing *out, struct cn_answer_box *box);
/* Sends a PredictionResponse with the step as owner. Takes the box, which may be NULL. `status` is
 * packed and may be empty; with a status there is no prediction. */
void cn_rpc_step_send(struct cn_rpc_step *step, struct cn_answer_box *box, struct cn_str status);
/* Sends the call's only response and ends the call with OK. */
void cn_rpc_step_send_last(struct cn_grpc_call *call, struct cn_answer_box *box);
/* Adds the number of the step that was made, or that should have been sent, as metadata. */
void cn_rpc_tell_step(struct cn_grpc_call *call, const struct cn_answer *answer);
/* Adds the metadata of the answer to a call with one step: request id, sequence, whether it was
 * replayed, its number. */
void cn_rpc_step_add_headers(struct cn_rpc_step *step, const struct cn_answer_box *box);

#endif
