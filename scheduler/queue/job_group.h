/* scheduler/queue/job_group.h - the jobs of one sequence: a bounded FIFO with one job in flight.
 *
 * A group is embedded in its sequence, or in a stateless job, which is a group by itself. It owns
 * no memory and knows no clock. All of this is on the model queue's loop.
 */
#ifndef CN_SCHEDULER_QUEUE_JOB_GROUP_H
#define CN_SCHEDULER_QUEUE_JOB_GROUP_H

#include <stdbool.h>
#include <stdint.h>

#include "core/containers/list.h"

struct cn_job;

struct cn_job_group {
    struct cn_list jobs;      /* waiting jobs, the next one first */
    struct cn_list ready;     /* node in the list that `place` names */
    struct cn_job *in_flight; /* the job that was sent and has no final answer yet */
    uint32_t waiting;
    uint8_t place; /* enum cn_group_place of scheduler/batch/aggregator.h */
    bool of_job;   /* embedded in a stateless job, not in a sequence */
};

void cn_job_group_init(struct cn_job_group *group);

/* Adds a job at the end. False: `max_waiting` jobs wait already. */
bool cn_job_group_push(struct cn_job_group *group, struct cn_job *job, uint32_t max_waiting);
/* Puts the job in flight back, to be sent again before all others, whatever the limit is. */
void cn_job_group_put_back(struct cn_job_group *group, struct cn_job *job);

/* The job to send next; NULL while one is in flight or none waits. */
struct cn_job *cn_job_group_next(const struct cn_job_group *group);
/* Takes the next job out. It is in flight from here until it is settled or put back. */
struct cn_job *cn_job_group_take(struct cn_job_group *group);
/* The job in flight was answered. */
void cn_job_group_settle(struct cn_job_group *group);

/* Takes a waiting job out of the middle. */
void cn_job_group_remove(struct cn_job_group *group, struct cn_job *job);
/* Has the group neither a waiting job nor one in flight? */
bool cn_job_group_idle(const struct cn_job_group *group);

#endif
