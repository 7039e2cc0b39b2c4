/* scheduler/swap/version_swap.h - a step without version whose sequence may live in another version
 * of the model.
 *
 * Such a step comes to the default version's queue. When that doesn't know the sequence, the step
 * makes a detour: the stores and queues of the versions are asked, its own first, then the others
 * from the youngest; where the sequence lives, sequence.swapPolicy of the default version decides.
 * Meanwhile the step is in flight as far as its group is concerned, so that the order holds.
 *
 * At the other version a visitor stands for the step: a job like any other, in that queue's job
 * group. So both queues see the steps of a sequence one by one.
 *
 * On the queue's loop. Nothing here is met by a model with a single version.
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

/* May the job's sequence live in another version? Then bounds of this one may not concern it. */
bool cn_swap_may_leave(const struct cn_model_queue *queue, const struct cn_job *job);
/* The group's next job begins its detour, if it needs one. True: it is at another version's queue
 * now; the group is in no list. */
bool cn_swap_divert(struct cn_model_queue *queue, struct cn_job_group *group);
/* What a row says more than its job, on the way to one of our own workers. */
void cn_swap_dress(const struct cn_job *job, struct cn_row *row);
/* Our worker answered a job on its detour, which is out of the link's list. False: that was the
 * answer for the client. True: the detour goes on; the sequence may be gone. */
bool cn_swap_on_answer(struct cn_model_queue *queue, struct cn_job *job,
                       const struct cn_answer *answer);
/* The job's client took bytes of an answer that another version streams. */
void cn_swap_consumed(struct cn_job *job, uint64_t bytes);
/* The job's client is gone while the job is at another version. */
void cn_swap_cancel(struct cn_job *job);

/* Was it sent by another version's queue? */
bool cn_swap_is_forwarded(const struct cn_job *job);
/* A visitor whose sequence can't be here is answered so at once: true. */
bool cn_swap_send_back(struct cn_model_queue *queue, struct cn_job *forwarded);

/* With the job's final answer. */
void cn_forward_free(struct cn_job *job);
/* The group of the job of a detour in queue->away. */
struct cn_job_group *cn_forward_group(struct cn_list *node);

#endif
