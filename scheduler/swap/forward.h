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
    unsigned rounds;   /* how often a round was repeated, as the sequence had gone on meanwhile */
    bool by_hint;      /* the first version to ask is the one that ran the last step */
    bool closes;       /* the peer is retired, so its sequence is closed */
    bool stale;        /* the record that was imported must not be used */
    bool take_pending; /* the pending import of the peer is the only copy */
    bool had_pending;  /* our own worker has a pending import */
    bool pass_pending; /* that import is a leftover, which must not be used */
    /* the answers of the versions that were asked in this round */
    struct cn_swap_leftovers leftovers;
    char *version; /* version of the peer whose sequence was exported or reset; NULL: none */
    struct cn_answer_box *exported;
    struct cn_move move;
};

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

#endif
