/* frontend/intake/kserve_job.h - makes a job from a v2 inference request, and tensors from its
 * answer, for every transport. On the loop of the request.
 *
 * The transport fills `request` from its bytes, and row.headers from its headers or metadata. The
 * tensors stay where they arrived, and each is a part of the row.
 */
#ifndef CN_FRONTEND_INTAKE_KSERVE_JOB_H
#define CN_FRONTEND_INTAKE_KSERVE_JOB_H

#include "frontend/intake/intake.h"
#include "frontend/intake/request_bytes.h"
#include "kserve/infer_answer.h"
#include "kserve/request.h"
#include "scheduler/queue/job.h"

struct cn_v2_job {
    struct cn_job job;
    struct cn_v2_request request;
    struct cn_model_io *io;      /* a reference, because the model may go before the answer comes */
    const char *model, *version; /* in the arena; of the model version that got the job */
    bool tensors, over;          /* set by cn_v2_job_piece: the answer is tensors; it has ended */
    uint64_t n_responses;        /* set by cn_v2_job_piece: responses so far */
    bool traced;                 /* its times are logged (kserve/settings.h) */
    struct cn_answer_box *first; /* set by cn_v2_job_complete: a response whose end is missing */
    bool several;                /* set by cn_v2_job_complete: there were several responses */
    struct cn_arena *arena;      /* belongs to the transport and lives as long as this struct */
    struct cn_str echo_name;     /* the answer's header with the sequence id; empty: none */
    bool made_id;                /* the server makes the id, since the request names none */
};

/* Prepares for a request to `queue`. A model without declared tensors has no `io`; then the
 * transport makes the row's parts and reads the answer. */
void cn_v2_job_init(struct cn_v2_job *v2, const struct cn_model_queue *queue,
                    struct cn_arena *arena);
/* Frees everything. It must have no job, or the final answer. */
void cn_v2_job_fini(struct cn_v2_job *v2);

/* Counts the inputs that cn_v2_job_prepare() reads from shared memory, besides the `bytes` of the
 * request itself, which `held` counts already. CN_E_UNAVAILABLE: there is no room for them. */
int cn_v2_job_count_shared(const struct cn_v2_job *v2, struct cn_request_bytes *held, size_t bytes,
                           struct cn_error *err);
/* Checks the request against the model of `from->queue` and fills the job. The caller sets all of
 * `from` except the sequence and the headers, which this function finds in the request and in the
 * row. An id in the request replaces from->request_id. Returns CN_E_BAD_REQUEST with a message that
 * says what is wrong. */
int cn_v2_job_prepare(struct cn_v2_job *v2, const struct cn_intake *from, struct cn_error *err);
/* Gives the prepared job to the queue that it was prepared for. */
void cn_v2_job_submit(struct cn_v2_job *v2, struct cn_model_queue *queue);

/* Reads the response in an answer without error_code, in the given arena. Its bytes are those of
 * the answer. Returns CN_E_HANDLER_FAILED if the handler returned something else than the model
 * declares. */
int cn_v2_job_response(const struct cn_v2_job *v2, const struct cn_answer *answer,
                       struct cn_arena *arena, struct cn_v2_answer *out, struct cn_error *err);

/* What a piece of an answer means to a v2 client. */
enum cn_v2_piece_kind {
    CN_V2_NOTHING,  /* nothing is sent; its bytes count as taken (cn_model_queue_consumed) */
    CN_V2_RESPONSE, /* a response; `final`: it is the last one, which its client may be told */
    CN_V2_END,      /* `final`: the end, without a response; for clients that want to get it */
    CN_V2_FAILURE,  /* if it is not final, the transport cancels the job and ignores the rest */
};

struct cn_v2_piece {
    enum cn_v2_piece_kind kind;
    bool final;
    struct cn_v2_answer response; /* RESPONSE; its bytes are the answer's */
    int code;                     /* FAILURE */
    const char *message;          /* for a FAILURE, too; in the arena */
};

/* Reads the pieces of an answer one by one, in order, for clients that accept any number of
 * responses. A model that is not decoupled has one response, which is the final one. `arena` is
 * used for this piece only. */
void cn_v2_job_piece(struct cn_v2_job *v2, const struct cn_answer *answer, struct cn_arena *arena,
                     struct cn_v2_piece *out);

/* Collects the pieces of an answer, in order, for transports that carry one response. Returns NULL
 * until the answer is complete, and then a final box, which is the caller's. A model may send its
 * one response and the end separately. If there are more responses, the job is cancelled, and the
 * answer is an error. Takes the box. */
struct cn_answer_box *cn_v2_job_complete(struct cn_v2_job *v2, struct cn_answer_box *box);

/* Returns the code that an answer with error_code has for v2 clients, and its message, in the
 * arena. */
const char *cn_v2_job_failure(const struct cn_v2_job *v2, const struct cn_answer *answer,
                              struct cn_arena *arena, int *code);

#endif
