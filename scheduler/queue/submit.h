/* scheduler/queue/submit.h - how a front end gives jobs to a model queue (model_queue.h).
 *
 * All of this is called on the job's origin, which may be any loop.
 */
#ifndef CN_SCHEDULER_QUEUE_SUBMIT_H
#define CN_SCHEDULER_QUEUE_SUBMIT_H

#include <stddef.h>

#include "scheduler/queue/job.h"

struct cn_model_queue;

/* Gives the job to the queue. The queue owns the job until its final answer, which may be a
 * refusal, for example because the queue is full, there are too many sequences, no worker can come,
 * the server drains or the deadline has passed.
 */
void cn_model_queue_submit(struct cn_model_queue *queue, struct cn_job *job);
/* Says that the client has left. A waiting job is answered with CN_E_CANCELLED soon. A job in
 * flight is answered when its worker answers, because its step may be committed already. A second
 * call does nothing, and nor does one after the final piece. */
void cn_model_queue_cancel(struct cn_model_queue *queue, struct cn_job *job);

/* Says that the client took `bytes` of the pieces. It is cheap to call often: the bytes are added
 * up until a message is worth sending. After the final piece it does nothing. */
void cn_model_queue_consumed(struct cn_job *job, size_t bytes);

#endif
