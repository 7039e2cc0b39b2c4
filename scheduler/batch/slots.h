/* scheduler/batch/slots.h - sequences that need a slot of a worker (policy.h): the backlog of those
 * without one.
 *
 * A slot is a home: a sequence that has a worker has one of its slots. The backlog is the queue's
 * list of ready groups without a home. On the model queue's loop; all but the last are asked only
 * where the policy has slots.
 */
#ifndef CN_SCHEDULER_BATCH_SLOTS_H
#define CN_SCHEDULER_BATCH_SLOTS_H

#include <stdbool.h>

struct cn_answer;
struct cn_job;
struct cn_job_group;
struct cn_model_queue;
struct cn_sequence;

/* A step that can't open its sequence must not wait for a slot only to learn that there is none. */
bool cn_slots_is_unknown(const struct cn_model_queue *queue, const struct cn_job *next);
/* Does the sequence wait for its first slot? */
bool cn_slots_in_backlog(const struct cn_sequence *sequence);
/* It had a slot at a worker that went, and goes before those that never had one. */
bool cn_slots_is_homeless(const struct cn_model_queue *queue, struct cn_job_group *group);

/* Asks workers for the sequences of unknown steps; what is no sequence goes as it is. */
void cn_slots_send_probes(struct cn_model_queue *queue);
/* The worker's word on a job that only asked. True: its sequence lives, so the job waits again.
 * False: the answer is the client's. */
bool cn_slots_on_probe(struct cn_model_queue *queue, struct cn_job *job,
                       const struct cn_answer *answer);
/* From the backlog to slots, who waits longest first. */
void cn_slots_give(struct cn_model_queue *queue);

/* Is it a test's wish that nothing is sent yet (cn_policy_hold)? */
bool cn_slots_held_back(struct cn_model_queue *queue);

#endif
