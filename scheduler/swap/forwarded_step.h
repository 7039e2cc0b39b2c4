/* scheduler/swap/forwarded_step.h - a step of another version comes to the version in which its
 * sequence may live. On the queue's loop.
 */
#ifndef CN_SCHEDULER_SWAP_FORWARDED_STEP_H
#define CN_SCHEDULER_SWAP_FORWARDED_STEP_H

#include <stdbool.h>

struct cn_job;
struct cn_model_queue;

/* Answers a forwarded step at once, and returns true, if its sequence cannot be here. */
bool cn_swap_send_back(struct cn_model_queue *queue, struct cn_job *forwarded);

#endif
