/* scheduler/batch/aggregator.h - which job group goes to which worker, and when.
 *
 * A group is ready when its next job can be sent. Ready groups wait in one of four kinds of lists
 * (ready_lists.h):
 * - at their home worker
 * - in the queue's shared list, if they have no home yet
 * - in the list of suspects, if a worker died with their job
 * - in the list of unknown ones, where sequences need slots
 *
 * All of this is on the model queue's loop.
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
    /* needs no slot: a worker is asked first if its sequence lives, or it has no sequence */
    CN_PLACE_UNKNOWN,
};

/* Ready jobs of one priority. */
struct cn_level {
    /* groups; `delayed` has those that waited too long, which go last */
    struct cn_list ready, delayed;
    uint32_t n; /* groups in both lists */
};

struct cn_aggregator {
    struct cn_list shared, suspects, unknown; /* struct cn_job_group, linked by `ready` */
    /* groups in `shared`. With slots this is the backlog, and those that get a slot in this turn */
    uint32_t n_shared;
    /* used in place of `shared` where priorities count; [0] has jobs without a priority */
    struct cn_level *levels;
    struct cn_timer delay; /* ends when maxBatchDelay of the oldest row that is held back is over */
};

/* Sends all jobs that can be sent; called once a turn. */
void cn_aggregator_dispatch(struct cn_model_queue *queue);

#endif
