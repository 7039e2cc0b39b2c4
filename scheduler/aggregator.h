/* scheduler/aggregator.h - which job group goes to which worker, and when.
 *
 * Ready groups wait in one of three kinds of lists: at their home worker, in the
 * queue's shared list (no home yet), or, when a worker died with their job, in
 * the list of suspects. On the model queue's loop.
 */
#ifndef CN_SCHEDULER_AGGREGATOR_H
#define CN_SCHEDULER_AGGREGATOR_H

#include <stdint.h>

#include "core/list.h"
#include "core/timer_wheel.h"
#include "scheduler/job_group.h"

struct cn_model_queue;
struct cn_worker_link;

enum cn_group_place {
    CN_PLACE_NONE, /* no job waits, or one is in flight */
    CN_PLACE_SHARED,
    CN_PLACE_HOME,
    CN_PLACE_SUSPECT,
    CN_PLACE_CLOSING, /* the sequence is in a link's to_close or closing list */
    CN_PLACE_HELD,    /* in queue->held: a worker writes its record */
};

struct cn_aggregator {
    struct cn_list shared, suspects; /* groups by `ready` */
    uint32_t n_shared;
    struct cn_timer delay; /* maxBatchDelay of the oldest row that is held back */
};

void cn_aggregator_init(struct cn_model_queue *queue);
/* Puts the group into the list it belongs in now, or into none. */
void cn_aggregator_place(struct cn_model_queue *queue, struct cn_job_group *group);
/* Takes it out of its list, whichever. */
void cn_aggregator_unplace(struct cn_model_queue *queue, struct cn_job_group *group);
/* The link is nobody's home any more: what waits for it may go anywhere. */
void cn_aggregator_unhome(struct cn_model_queue *queue, struct cn_worker_link *link);
/* Sends what can be sent; once a turn. */
void cn_aggregator_dispatch(struct cn_model_queue *queue);

#endif
