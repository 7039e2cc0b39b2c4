/* scheduler/swap/forward.h - a step that is forwarded through the other versions of its model. For
 * version_swap.c; on the queue's loop.
 */
#ifndef CN_SCHEDULER_SWAP_FORWARD_H
#define CN_SCHEDULER_SWAP_FORWARD_H

#include "scheduler/queue/job.h"
#include "scheduler/swap/swap_leftovers.h"
#include "scheduler/swap/version_swap.h"

enum cn_forward_stage {
    CN_STAGE_ASK_HERE, /* our own worker looks into its store first */
    CN_STAGE_VISIT,  /* another version is asked; with the policy `pin` it runs the step at once */
    CN_STAGE_STAY,   /* the other version runs the step, whatever the policy says */
    CN_STAGE_IMPORT, /* our own worker writes the record of the other version */
    CN_STAGE_BURY,   /* the other version closes its sequence */
    CN_STAGE_HOME,   /* the sequence lives in no other version: the step runs here like any other */
};

struct cn_forward {
    struct cn_job forwarded;
    struct cn_job *job;
    struct cn_list link; /* in queue->away while the forwarded step is under way */
    enum cn_forward_stage stage;
    uint32_t peer;  /* serial of the version that is or was asked */
    uint32_t below; /* versions with lower serials than this were not asked yet */
    /* the queue of the peer; do not use it after the forwarded step was answered */
    struct cn_model_queue *queue;
    unsigned rounds; /* how often a round was repeated, because the sequence had gone on */
    /* With a shared store: the generation of our own claim or import (resolve_move.c); 0: none. */
    uint64_t own;
    /* The version whose sequence was imported and is not closed yet (0: none), and where it was. */
    uint32_t source;
    uint64_t source_generation, source_step;
    bool by_hint;      /* the first version to ask is the one that ran the last step */
    bool closes;       /* the peer is retired, so its sequence is closed */
    uint8_t told;      /* enum cn_close_reason: what the answer says of the move; 0: nothing */
    bool settled;      /* the sequence's fate is decided; other sequences with this id stay */
    bool take_pending; /* the pending import of the peer is the only copy */
    bool had_pending;  /* our own worker has a pending import */
    bool pass_pending; /* that import is a leftover, which must not be used */
    /* the answer of our own worker, and those of all versions that were asked in this round */
    struct cn_swap_leftovers at_home, leftovers;
    char *version; /* version of the peer whose sequence was exported or reset; NULL: none */
    struct cn_answer_box *exported;
    struct cn_move move;
};

/* The callbacks of the jobs that a version gets from another one. */
extern const struct cn_job_ops cn_swap_forwarded_ops;

/* Takes the job out of its group, as if a worker had it. */
void cn_forward_begin(struct cn_model_queue *queue, struct cn_job *job);
/* Puts the job back, to be sent to one of our own workers before all others of its group. */
void cn_forward_return(struct cn_model_queue *queue, struct cn_job *job,
                       enum cn_forward_stage stage);
/* Answers the client with the box, which it takes. The job is gone then. */
void cn_forward_finish(struct cn_model_queue *queue, struct cn_job *job, struct cn_answer_box *box);
/* Answers the client with an error. The job is gone then; the text may be the job's own memory. */
void cn_forward_give_up(struct cn_model_queue *queue, struct cn_job *job, int code, const char *fmt,
                        ...) __attribute__((format(printf, 4, 5)));

/* In the following functions the job is out of its group, as after cn_forward_begin(). */

/* Sends a forwarded step to `peer`. `op` 0: it is the step itself, to run if the sequence lives
 * there. */
void cn_swap_visit(struct cn_model_queue *queue, struct cn_job *job, struct cn_model_queue *peer,
                   enum cn_move_op op);
/* The operation for a version that may hold the sequence. */
enum cn_move_op cn_swap_first_op(const struct cn_model_queue *queue, struct cn_job *job);
/* Sends the job to the next version that was not asked yet. When all were asked, the step runs
 * here. */
void cn_swap_go_on(struct cn_model_queue *queue, struct cn_job *job);
/* Asks all other versions once more, although some were asked. */
void cn_swap_new_round(struct cn_model_queue *queue, struct cn_job *job);
/* Another node was quicker: what was found out so far may be wrong, and all begins again. */
void cn_swap_begin_again(struct cn_model_queue *queue, struct cn_job *job);
/* Closes the sequence in the version from which it was imported. */
void cn_swap_bury_source(struct cn_model_queue *queue, struct cn_job *job);
/* The sequence is closed where it lived, or never lived elsewhere: the step runs here. */
void cn_swap_go_home(struct cn_model_queue *queue, struct cn_job *job);

#endif
