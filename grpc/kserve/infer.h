/* grpc/kserve/infer.h - a ModelInferRequest on its way, for ModelInfer and ModelStreamInfer. On the
 * call's loop.
 *
 * The message is copied once. Its tensors stay in that copy, and the row points to them as long as
 * the job runs. The answer's tensors are sent from the buffer in which they came from the worker.
 */
#ifndef CN_GRPC_KSERVE_INFER_H
#define CN_GRPC_KSERVE_INFER_H

#include "core/containers/list.h"
#include "frontend/intake/kserve_job.h"
#include "frontend/intake/request_bytes.h"
#include "grpc/kserve/infer_read.h"
#include "grpc/kserve/infer_write.h"
#include "grpc/torchserve/grpc_step.h"
#include "grpc/transport/grpc_call.h"

struct cn_rpc_infer {
    struct cn_v2_job v2;         /* v2.io is NULL until its model is found */
    struct cn_grpc_call *call;   /* held */
    struct cn_grpc_kept message; /* the request */
    struct cn_rpc_infer_head head;
    struct cn_list link;        /* in a list of the stream */
    struct cn_answer_box *box;  /* in a stream: the answer, while it waits for its turn */
    bool is_open;               /* openinference: the model may be without declared tensors */
    bool in_stream;             /* in a stream, so its model may be decoupled */
    struct cn_error *refused;   /* the error that the client gets, even if there is a job */
    bool is_submitted, is_done; /* is_done: it was refused, or its final answer came */
    uint32_t n_sending;         /* in a stream: messages that the transport has not taken yet */
    char request_id[CN_REQUEST_ID_MAX];
    struct cn_arena arena;
};

/* Makes a request, which holds the call. Never returns NULL. If the message has a mistake,
 * `refused` has the reason. */
struct cn_rpc_infer *cn_rpc_infer_create(struct cn_grpc_call *call,
                                         const struct cn_grpc_message *message);
/* Frees the request. It must not have been submitted, or must have its final answer. */
void cn_rpc_infer_destroy(struct cn_rpc_infer *infer);
/* Gives its job to its model's queue; `ops` get the answers. If that fails, the request is refused
 * and done. */
int cn_rpc_infer_submit(struct cn_rpc_infer *infer, const struct cn_job_ops *ops);
void cn_rpc_infer_refuse(struct cn_rpc_infer *infer, const struct cn_error *why);
/* Cancels the job, because nobody waits for its answer any more. The final answer still comes. */
void cn_rpc_infer_cancel(struct cn_rpc_infer *infer);

/* Makes a message of the answer. The message owns the box, and its parts point into the box. On
 * failure (CN_E_...) the box stays the caller's. */
int cn_rpc_infer_response(struct cn_rpc_infer *infer, struct cn_answer_box *box,
                          const struct cn_rpc_infer_form *form, struct cn_arena *arena,
                          struct cn_grpc_outgoing *out, struct cn_error *err);

/* --- ModelInfer, for the tables of grpc/grpc_methods.c */

#define CN_RPC_INFER_STATE 32 /* bytes of state, at least */

void cn_rpc_infer_message(struct cn_grpc_call *call, const struct cn_grpc_message *message);
/* ModelInfer of the Open Inference Protocol: answers have typed contents, and models need not
 * declare their tensors. */
void cn_rpc_infer_open(struct cn_grpc_call *call, const struct cn_grpc_message *message);
void cn_rpc_infer_gone(struct cn_grpc_call *call);

#endif
