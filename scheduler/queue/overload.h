/* scheduler/queue/overload.h - bounds the time that steps wait when more come than the workers can
 * do.
 *
 * A queue that is only bounded by a count answers steps whose clients have given up
 * (docs/decisions/0051-the-queue-is-bounded-by-time.md). So the queue notices a standing queue, as
 * CoDel does: every step that was sent during queueTargetMSec had waited longer than
 * queueTargetMSec for a worker. Then it refuses new steps at once, so that the others do not wait
 * much longer than that, until the waiting time is short again. All of this is on the model queue's
 * loop.
 */
#ifndef CN_SCHEDULER_QUEUE_OVERLOAD_H
#define CN_SCHEDULER_QUEUE_OVERLOAD_H

#include <stdbool.h>
#include <stdint.h>

#include "core/errors/error.h"

struct cn_job;
struct cn_model_queue;

/* The waiting steps of stateless models are counted for each client; clients share one of these
 * counts by chance only. */
#define CN_OVERLOAD_CLIENTS 1024

struct cn_overload {
    bool on;
    uint64_t above_since_us; /* since then all steps that were sent had waited too long; 0: none */
    uint32_t waiting[CN_OVERLOAD_CLIENTS];
};

/* The step is sent. One that waited behind a step of its own sequence says nothing about the
 * workers and does not count. */
void cn_overload_sent(struct cn_model_queue *queue, const struct cn_job *job);
/* A step begins (`by` 1) or ends (-1) to wait. */
void cn_overload_count(struct cn_model_queue *queue, const struct cn_job *job, int by);

/* May the step wait? CN_E_OVERLOADED: no, because it would wait too long, or its client or its
 * sequence has its share of the waiting steps already. Steps of sequences that have begun may fill
 * the queue twice as far as others. */
int cn_overload_check(struct cn_model_queue *queue, const struct cn_job *job, struct cn_error *err);
/* The time at which cn_overload_expired() should be asked about a waiting step; CN_NEVER: never. */
uint64_t cn_overload_deadline(const struct cn_model_queue *queue, const struct cn_job *job);
/* Has the step waited so long that it is refused, although it was let in? This concerns only steps
 * on which no other step depends: those of stateless models, and the first one of a sequence. */
bool cn_overload_expired(const struct cn_model_queue *queue, const struct cn_job *job);

#endif
