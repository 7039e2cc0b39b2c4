/* scheduler/swap/peers.h - the other versions of a model, in which the sequence of a step may live.
 * On the queue's loop.
 */
#ifndef CN_SCHEDULER_SWAP_PEERS_H
#define CN_SCHEDULER_SWAP_PEERS_H

#include <stdbool.h>
#include <stdint.h>

struct cn_error;
struct cn_job;
struct cn_model_queue;

/* Finds the stateful version with the highest serial below `below`, or, if `exactly` is not 0, the
 * one with that serial. `*out` is NULL if there is none; it is valid until the end of the turn.
 * Returns an error if the versions are not known yet. */
int cn_swap_find_peer(const struct cn_model_queue *queue, uint32_t below, uint32_t exactly,
                      struct cn_model_queue **out, struct cn_error *err);
/* May the job's sequence live in another version? Then bounds of this version may not apply to
 * it. */
bool cn_swap_may_leave(const struct cn_model_queue *queue, const struct cn_job *job);

#endif
