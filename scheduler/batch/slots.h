/* scheduler/batch/slots.h - models whose sequences need a slot of a worker (policy.h), and the
 * backlog of those without one.
 *
 * A slot is a home: a sequence that has a home worker has one of that worker's slots. The backlog
 * is the queue's list of ready groups without a home. All of this is on the model queue's loop. All
 * functions but the last are called only if the policy has slots.
 */
#ifndef CN_SCHEDULER_BATCH_SLOTS_H
#define CN_SCHEDULER_BATCH_SLOTS_H

#include <stdbool.h>

struct cn_answer;
struct cn_job;
struct cn_model_queue;

/* Asks workers whether the sequences of unknown steps live. A job without a sequence is sent as
 * it is. */
void cn_slots_send_probes(struct cn_model_queue *queue);
/* Handles the answer to such a question. True: the sequence lives, so the job waits again. False:
 * the answer is for the client. */
bool cn_slots_on_probe(struct cn_model_queue *queue, struct cn_job *job,
                       const struct cn_answer *answer);
/* Gives free slots to sequences of the backlog; the one that waits longest is first. */
void cn_slots_give(struct cn_model_queue *queue);

/* Returns true while jobs are held back for a test of batches (cn_policy_hold). */
bool cn_slots_held_back(struct cn_model_queue *queue);

#endif
