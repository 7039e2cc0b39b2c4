/* scheduler/swap/version_swap.h - a step without a version whose sequence may live in another
 * version of the model.
 *
 * Such a step comes to the default version's queue. If that queue does not know the sequence, the
 * step is forwarded: the stores and queues of the versions are asked, those of the default version
 * first, then the others from the youngest to the oldest. When one of them has the sequence,
 * sequence.swapPolicy of the default version decides what happens (docs/sequences.md, "Versions").
 * Meanwhile the step counts as in flight in its group, so the steps of the sequence stay in order.
 *
 * The other version's queue gets a job of its own for the step. That job waits in a job group of
 * that queue like any other, so both queues see the steps of a sequence one by one.
 *
 * All of this is on the queue's loop. A model with a single version never gets here.
 */
#ifndef CN_SCHEDULER_SWAP_VERSION_SWAP_H
#define CN_SCHEDULER_SWAP_VERSION_SWAP_H

#include <stdbool.h>

#include "core/containers/list.h"
#include "proto/message.h"

struct cn_forward;
struct cn_job;
struct cn_job_group;
struct cn_model_queue;

/* Forwards the group's next job if that is necessary. True: it is at another version's queue now,
 * and the group is in no list. */
bool cn_swap_divert(struct cn_model_queue *queue, struct cn_job_group *group);
/* Adds to `row` what our own worker must know of the job's way through the versions. */
void cn_swap_dress(const struct cn_job *job, struct cn_row *row);
/* Our worker answered a job that is being forwarded and that is out of the link's list. False: this
 * is the answer for the client. True: the job goes on to other versions; the sequence may be freed.
 */
bool cn_swap_on_answer(struct cn_model_queue *queue, struct cn_job *job,
                       const struct cn_answer *answer);
/* Does our worker import the record of another version for this job? */
bool cn_swap_imports(const struct cn_job *job);
/* Was it sent by another version's queue? */
bool cn_swap_is_forwarded(const struct cn_job *job);

/* Frees what forwarding the job needed, with the job's final answer. */
void cn_forward_free(struct cn_job *job);
/* The job group of the job whose struct cn_forward is at this node of queue->away. */
struct cn_job_group *cn_forward_group(struct cn_list *node);
/* The job of a node of queue->away. */
struct cn_job *cn_forward_job(struct cn_list *node);

#endif
