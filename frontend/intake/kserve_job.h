/* frontend/intake/kserve_job.h - a v2 inference request as a job, and its answer as tensors,
 * whatever transport it came by.
 *
 * The transport fills `request` from its bytes and row.headers from its headers or metadata; the
 * tensors stay where they came in, and each is a part of the row. On the loop of the request.
 */
#ifndef CN_FRONTEND_INTAKE_KSERVE_JOB_H
#define CN_FRONTEND_INTAKE_KSERVE_JOB_H

#include "frontend/intake/intake.h"
#include "kserve/infer_answer.h"
#include "kserve/request.h"
#include "scheduler/queue/job.h"

struct cn_v2_job {
    struct cn_job job;
    struct cn_v2_request request;
    struct cn_model_io *io; /* a reference: an answer may come after its model version is gone */
    const char *model, *version; /* in the arena; that of the queue it was given to */
    bool tensors, over;   /* by cn_v2_job_piece: the answer is made of tensors; it has ended */
    uint64_t n_responses; /* likewise: so far */
    bool traced;          /* its times go into the log (kserve/settings.h) */
    struct cn_answer_box *first; /* by cn_v2_job_complete: a response whose end has not come yet */
    bool several;                /* likewise: there were more responses than that one */
    struct cn_arena *arena;      /* the transport's, which lives as long as this */
    struct cn_str
        echo_name; /* the header that tells its sequence's id; empty: none was asked for */
    bool made_id;  /* the server makes the id, since the request names none */
};

/* For a request to `queue`. A model without declared tensors has no `io`: the transport makes the
 * row's parts, and reads the answer. */
void cn_v2_job_init(struct cn_v2_job *v2, const struct cn_model_queue *queue,
                    struct cn_arena *arena);
/* When it has no job (any more). */
void cn_v2_job_fini(struct cn_v2_job *v2);

/* Checks the request against the model of `from->queue` and fills the job. The caller sets all of
 * `from` but the sequence and the headers, which this function finds in the request and in the row;
 * an id in the request takes the place of from->request_id. CN_E_BAD_REQUEST says what is wrong. */
int cn_v2_job_prepare(struct cn_v2_job *v2, const struct cn_intake *from, struct cn_error *err);
/* Gives the prepared job to the queue that it was prepared for. */
void cn_v2_job_submit(struct cn_v2_job *v2, struct cn_model_queue *queue);

/* The response that an answer without error_code is, in the arena given; its bytes are the
 * answer's. CN_E_HANDLER_FAILED: the handler gave something else than the model declares. */
int cn_v2_job_response(const struct cn_v2_job *v2, const struct cn_answer *answer,
                       struct cn_arena *arena, struct cn_v2_answer *out, struct cn_error *err);

/* What a piece of an answer is to a v2 client. */
enum cn_v2_piece_kind {
    CN_V2_NOTHING,  /* nothing: only its bytes were taken (cn_model_queue_consumed) */
    CN_V2_RESPONSE, /* a response; final: the last one, and its client may be told so */
    CN_V2_END,      /* final: the end, without a response; sent to clients that asked for empty
                     * final responses */
    CN_V2_FAILURE, /* the request has failed; where that is not final the transport cancels the job,
                     * and nothing of what still comes counts */
};

struct cn_v2_piece {
    enum cn_v2_piece_kind kind;
    bool final;
    struct cn_v2_answer response; /* RESPONSE; its bytes are the answer's */
    int code;                     /* FAILURE */
    const char *message;          /* the same; in the arena */
};

/* Each piece of an answer, in order, for clients that take any number of responses: of decoupled
 * models and of others, whose one response is the final one. `arena`: for this piece alone. */
void cn_v2_job_piece(struct cn_v2_job *v2, const struct cn_answer *answer, struct cn_arena *arena,
                     struct cn_v2_piece *out);

/* Each piece of an answer, in order, for transports that carry one response. NULL until the answer
 * is whole; then a final box, which is the caller's. A model may send its one response and the end
 * apart. When there are more responses the job is cancelled, and its answer is an error. Takes the
 * box. */
struct cn_answer_box *cn_v2_job_complete(struct cn_v2_job *v2, struct cn_answer_box *box);

/* What an answer with error_code says to v2 clients: the code, and the message, in the arena. */
const char *cn_v2_job_failure(const struct cn_v2_job *v2, const struct cn_answer *answer,
                              struct cn_arena *arena, int *code);

#endif
