/* scheduler/batch/send.h - sends the next job of a group to a worker that has credit.
 *
 * All of this is on the model queue's loop.
 */
#ifndef CN_SCHEDULER_BATCH_SEND_H
#define CN_SCHEDULER_BATCH_SEND_H

#include <stdbool.h>

struct cn_job_group;
struct cn_model_queue;
struct cn_worker_link;

/* Sends the group's next job; `joined`: another row follows in the same batch. */
void cn_send_next(struct cn_model_queue *queue, struct cn_worker_link *link,
                  struct cn_job_group *group, bool joined);
/* Sends the group's next job in a frame of its own. */
void cn_send_alone(struct cn_model_queue *queue, struct cn_worker_link *link,
                   struct cn_job_group *group);
/* Sends only the question whether the sequence of the group's next job lives. The question needs no
 * slot, and the job counts as sent. */
void cn_send_probe(struct cn_model_queue *queue, struct cn_worker_link *link,
                   struct cn_job_group *group);

#endif
