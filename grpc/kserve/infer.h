/* grpc/kserve/infer.h - a ModelInferRequest on its way: ModelInfer, and what ModelStreamInfer
 * shares with it. On the call's loop.
 *
 * The message is copied once; its tensors stay in that copy, where the row points to them for as
 * long as the job runs. Those of the answer go out as they came from the worker.
 */
#ifndef CN_GRPC_KSERVE_INFER_H
#define CN_GRPC_KSERVE_INFER_H

#include "core/containers/list.h"
#include "frontend/intake/kserve_job.h"
#include "grpc/kserve/infer_read.h"
#include "grpc/kserve/infer_write.h"
#include "grpc/library/grpc_core.h"
#include "grpc/torchserve/grpc_step.h"

struct cn_rpc_infer {
    struct cn_v2_job v2;       /* v2.io is NULL before its model is found */
    struct cn_grpc_call *call; /* held */
    struct cn_str bytes;
    struct cn_rpc_infer_head head;
    struct cn_list link;        /* a stream's */
    struct cn_answer_box *box;  /* a stream's: the answer, while it waits for its turn */
    bool is_open;               /* openinference: its model may be one without declared tensors */
    bool in_stream;             /* its model may be decoupled */
    struct cn_error *refused;   /* what it is answered with, whatever its job (if any) says */
    bool is_submitted, is_done; /* is_done: refused, or its final answer came */
    uint32_t n_sending;         /* a stream's: messages that the transport did not take yet */
    char request_id[CN_REQUEST_ID_MAX];
    struct cn_arena arena;
};

/* Never NULL; holds the call. What is wrong with the message is in `refused` then. */
struct cn_rpc_infer *cn_rpc_infer_create(struct cn_grpc_call *call,
                                         const struct cn_grpc_message *message);
/* Must not be submitted, or have its final answer. */
void cn_rpc_infer_destroy(struct cn_rpc_infer *infer);
/* Gives its job to its model's queue; `ops` get the answers. On failure it is refused and done. */
int cn_rpc_infer_submit(struct cn_rpc_infer *infer, const struct cn_job_ops *ops);
void cn_rpc_infer_refuse(struct cn_rpc_infer *infer, const struct cn_error *why);
/* Nobody waits for its answer any more; it comes all the same. */
void cn_rpc_infer_cancel(struct cn_rpc_infer *infer);

/* The answer as a message that owns the box; what is in it is borrowed. On failure (CN_E_...) the
 * box is the caller's. */
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
