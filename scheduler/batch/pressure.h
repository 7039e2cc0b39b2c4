/* scheduler/batch/pressure.h - how long jobs wait for workers, and how sequences are spread over
 * the workers.
 *
 * The owner of the workers learns that jobs wait, and for how long, and starts workers accordingly
 * (docs/decisions/0025-workers-follow-queue-time.md). Sequences stay with the worker that has their
 * state in memory. If a step has waited too long there while another worker has room, its sequence
 * moves to that one, which reads the state from the store. All of this is on the model queue's
 * loop.
 */
#ifndef CN_SCHEDULER_BATCH_PRESSURE_H
#define CN_SCHEDULER_BATCH_PRESSURE_H

#include <stdbool.h>
#include <stdint.h>

struct cn_model_queue;
struct cn_worker_link;

/* Why workers must not come and go with the load, because something that a sequence needs would go
 * with them; NULL: they may. */
const char *cn_model_queue_fixed_for(const struct cn_model_queue *queue);

/* Calls `on_wait(ctx)` at the end of each turn that leaves jobs waiting; it must not call the
 * queue. A sequence moves when a step of it has waited for `spread_ms`; 0: never. */
void cn_model_queue_set_pressure(struct cn_model_queue *queue, void (*on_wait)(void *ctx),
                                 void *ctx, uint32_t spread_ms);

/* The longest time in ms that a job which could run has waited for a worker since the last call,
 * those that wait now included. The delays that the model asks for (maxBatchDelay) and the time
 * before the last worker came do not count. */
uint64_t cn_model_queue_take_wait(struct cn_model_queue *queue);

/* Did something other than a step need a worker since the last call? */
bool cn_model_queue_take_wanted(struct cn_model_queue *queue);

/* The functions below are for the queue's own files. */

/* A job that could run since `ready_us` is sent. */
void cn_pressure_sent(struct cn_model_queue *queue, uint64_t ready_us);
void cn_pressure_worker_came(struct cn_model_queue *queue);
void cn_pressure_turn_end(struct cn_model_queue *queue);
/* Something that needs a worker came while there is none. It counts like a waiting job. */
void cn_pressure_wanted(struct cn_model_queue *queue);
/* How long a job has waited since it could run, and since the last worker came. */
uint64_t cn_pressure_waited_us(const struct cn_model_queue *queue, uint64_t ready_us);
/* spread.c: sends steps that have waited too long to workers with room. */
void cn_pressure_spread(struct cn_model_queue *queue);

#endif
