/* scheduler/batch/ready_lists.h - puts groups into the list where they wait, and takes them out.
 *
 * enum cn_group_place in aggregator.h names the lists. All of this is on the model queue's loop.
 */
#ifndef CN_SCHEDULER_BATCH_READY_LISTS_H
#define CN_SCHEDULER_BATCH_READY_LISTS_H

#include <stdbool.h>

struct cn_job;
struct cn_job_group;
struct cn_model_queue;
struct cn_sequence;
struct cn_worker_link;

void cn_ready_init(struct cn_model_queue *queue);
void cn_ready_fini(struct cn_model_queue *queue);
/* Puts the group into the list where it belongs now, or into none. */
void cn_ready_place(struct cn_model_queue *queue, struct cn_job_group *group);
/* Takes the group out of the list that it is in, if it is in one. */
void cn_ready_unplace(struct cn_model_queue *queue, struct cn_job_group *group);
/* The link is no longer a home, so the groups that wait for it may go to any worker. */
void cn_ready_unhome(struct cn_model_queue *queue, struct cn_worker_link *link);

/* Does the sequence wait for its first slot (slots.h)? */
bool cn_ready_in_backlog(const struct cn_sequence *sequence);
/* Did the group's sequence have a slot at a worker that is gone? Then it goes before sequences that
 * never had one. */
bool cn_ready_is_homeless(const struct cn_model_queue *queue, struct cn_job_group *group);

#endif
