/* scheduler/batch/aggregator.h - which job group goes to which worker, and when.
 *
 * Ready groups wait in one of four kinds of lists: at their home worker, in the
 * queue's shared list (no home yet), when a worker died with their job, in the
 * list of suspects, or, where sequences need slots, in the list of unknown ones.
 * On the model queue's loop.
 */
#ifndef CN_SCHEDULER_BATCH_AGGREGATOR_H
#define CN_SCHEDULER_BATCH_AGGREGATOR_H

#include <stdbool.h>
#include <stdint.h>

#include "core/containers/list.h"
#include "core/time/timer_wheel.h"
#include "scheduler/queue/job_group.h"

struct cn_model_queue;
struct cn_sequence;
struct cn_worker_link;

enum cn_group_place {
    CN_PLACE_NONE, /* no job waits, or one is in flight */
    CN_PLACE_SHARED,
    CN_PLACE_HOME,
    CN_PLACE_SUSPECT,
    CN_PLACE_CLOSING, /* the sequence is in a link's to_close or closing list */
    CN_PLACE_HELD,    /* in queue->held: a worker writes its record */
    CN_PLACE_UNKNOWN, /* takes no slot: whether it lives is to be asked first, or it is no sequence */
};

/* Ready jobs of one priority. */
struct cn_level {
    struct cn_list ready, delayed; /* groups; those that have waited for too long go last */
    uint32_t n;                    /* both */
};

struct cn_aggregator {
    struct cn_list shared, suspects, unknown; /* groups by `ready` */
    uint32_t
        n_shared; /* with slots this is the backlog, but for those that this turn finds a slot */
    struct cn_level *levels; /* in place of `shared` where priorities count; [0] without any */
    struct cn_timer delay;   /* maxBatchDelay of the oldest row that is held back */
};

void cn_aggregator_init(struct cn_model_queue *queue);
void cn_aggregator_fini(struct cn_model_queue *queue);
/* Puts the group into the list it belongs in now, or into none. */
void cn_aggregator_place(struct cn_model_queue *queue, struct cn_job_group *group);
/* Takes it out of its list, whichever. */
void cn_aggregator_unplace(struct cn_model_queue *queue, struct cn_job_group *group);
/* The link is nobody's home any more: what waits for it may go anywhere. */
void cn_aggregator_unhome(struct cn_model_queue *queue, struct cn_worker_link *link);
/* Sends what can be sent; once a turn. */
void cn_aggregator_dispatch(struct cn_model_queue *queue);

/* The rest is for batch_builder.c and slots.c. */

/* How many rows the link may get now. */
uint32_t cn_aggregator_credit(const struct cn_model_queue *queue,
                              const struct cn_worker_link *link);
/* May a batch go to the link? */
bool cn_aggregator_is_free(const struct cn_model_queue *queue, const struct cn_worker_link *link);
/* The group's next job, or a row that nobody sent; `joined`: another one follows in the same
 * batch. */
void cn_aggregator_send(struct cn_model_queue *queue, struct cn_worker_link *link,
                        struct cn_job_group *group, bool joined);
void cn_aggregator_send_pad(struct cn_model_queue *queue, struct cn_worker_link *link);

/* In a frame of its own: the next job, or only the question whether its sequence lives, which takes
 * no slot: it is as if the job were sent. */
void cn_aggregator_send_alone(struct cn_model_queue *queue, struct cn_worker_link *link,
                              struct cn_job_group *group);
void cn_aggregator_send_probe(struct cn_model_queue *queue, struct cn_worker_link *link,
                              struct cn_job_group *group);

#endif
