/* scheduler/swap/forward.h - a step on its detour over the other versions of its model; for
 * version_swap.c. On the queue's loop.
 */
#ifndef CN_SCHEDULER_SWAP_FORWARD_H
#define CN_SCHEDULER_SWAP_FORWARD_H

#include "scheduler/queue/job.h"
#include "scheduler/swap/swap_leftovers.h"
#include "scheduler/swap/version_swap.h"

enum cn_forward_stage {
    CN_STAGE_ASK_HERE, /* our own worker looks first */
    CN_STAGE_VISIT,    /* another version is asked; with policy pin it does the step at once */
    CN_STAGE_STAY,     /* the other version does the step, whatever the policy */
    CN_STAGE_IMPORT,   /* our own worker takes the record */
    CN_STAGE_BURY,     /* the other version closes it */
    CN_STAGE_HOME,     /* lives in no other version: a step like any other */
};

struct cn_forward {
    struct cn_job forwarded;
    struct cn_job *job;
    struct cn_list link; /* in queue->away while the visitor is under way */
    enum cn_forward_stage stage;
    uint32_t peer;                /* serial of the version that is or was visited */
    uint32_t below;               /* those with lower serials were not asked yet */
    struct cn_model_queue *queue; /* the peer's; not to be used once the visitor was answered */
    unsigned rounds;              /* that began again, since the sequence had gone on */
    bool by_hint;                 /* the first visit goes where the last step was done */
    bool closes;                  /* its version is retired, and so is the sequence */
    bool stale;                   /* what was imported is not to be used */
    bool take_pending;            /* the peer's import is the only copy */
    bool had_pending;             /* our own worker has one */
    bool pass_pending;            /* and it is a leftover */
    struct cn_swap_leftovers leftovers; /* of those that were asked since the round began */
    char *version; /* of the peer that was exported from or reset; NULL: none */
    struct cn_answer_box *exported;
    struct cn_move move;
};

/* Out of its group's list, as if a worker had it. */
void cn_forward_begin(struct cn_model_queue *queue, struct cn_job *job);
/* To be sent to one of our own workers, before all others of its group. */
void cn_forward_return(struct cn_model_queue *queue, struct cn_job *job,
                       enum cn_forward_stage stage);
/* The answer for the client; takes the box. The job is gone. */
void cn_forward_finish(struct cn_model_queue *queue, struct cn_job *job, struct cn_answer_box *box);
/* An error for the client. The job is gone; the text may be its own. */
void cn_forward_give_up(struct cn_model_queue *queue, struct cn_job *job, int code, const char *fmt,
                        ...) __attribute__((format(printf, 4, 5)));

#endif
