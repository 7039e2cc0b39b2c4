/* scheduler/batch/pressure.h - how long jobs wait for workers, and the spreading of sequences over
 * them.
 *
 * Whoever owns the workers learns when jobs wait and for how long, and adds workers by that.
 * Sequences stay with the worker that has their state; where one of them has waited for too long
 * beside a worker with room, it moves there: its state is read from the store. On the model queue's
 * loop.
 */
#ifndef CN_SCHEDULER_BATCH_PRESSURE_H
#define CN_SCHEDULER_BATCH_PRESSURE_H

#include <stdbool.h>
#include <stdint.h>

struct cn_model_queue;
struct cn_worker_link;

/* NULL, or why workers must not come and go with the load: what a sequence needs would go with
 * them. */
const char *cn_model_queue_fixed_for(const struct cn_model_queue *queue);

/* `on_wait(ctx)` at the end of each turn that leaves jobs waiting; it must leave the queue alone.
 * Sequences move when a step of them has waited for `spread_ms`; 0: never. */
void cn_model_queue_set_pressure(struct cn_model_queue *queue, void (*on_wait)(void *ctx),
                                 void *ctx, uint32_t spread_ms);

/* The longest time in ms that a job which could run has waited for a worker since the last call,
 * those that wait now included. The delays that the model asks for (maxBatchDelay) and the time
 * before the last worker came do not count. */
uint64_t cn_model_queue_take_wait(struct cn_model_queue *queue);

/* Was something besides a step in want of a worker since the last call? */
bool cn_model_queue_take_wanted(struct cn_model_queue *queue);

/* For the queue's own files. */

/* A job that could run for so long is sent. */
void cn_pressure_sent(struct cn_model_queue *queue, uint64_t ready_us);
void cn_pressure_worker_came(struct cn_model_queue *queue);
void cn_pressure_turn_end(struct cn_model_queue *queue);
/* Something that needs a worker came while there is none: as if a job waited. */
void cn_pressure_wanted(struct cn_model_queue *queue);
/* Sends steps that have waited for too long by workers with room. */
void cn_pressure_spread(struct cn_model_queue *queue);

#endif
