/* scheduler/queue/overload.c - bounds the time that steps wait. On the model queue's loop.
 *
 * The numbers, with T for queueTargetMSec and r for the answers per second:
 * - On: all steps that were sent during T had waited longer than T. Off: one had waited less than
 *   T/4, or nothing waits.
 * - Then r x 2T steps may wait, but always LEAST_BATCHES batches for each worker: so a worker never
 *   runs dry, and a model with slow steps keeps a queue. Steps of sequences that have begun may
 *   wait up to twice that number, because work would be lost with them.
 * - Of these places nobody holds more than are still free. One hot client thus fills half of them,
 *   which is r x T steps, so it waits for T; a quiet one always finds room.
 * - What was let in before the queue was found to stand is refused after 2T, if it can be.
 */
#include "scheduler/queue/overload.h"

#include "core/time/clock.h"
#include "scheduler/queue/model_queue_priv.h"

#define LEAST_BATCHES 4

/* Models whose sequences have slots, or whose jobs have priorities, have limits of their own for
 * the time that a job waits (policy.h). */
static bool
applies(const struct cn_model_queue *queue)
{
    return queue->config.queue_target_ms > 0 && queue->policy.slots == 0 &&
           !queue->policy.by_level && !queue->config.use_job_ticket;
}

void
cn_overload_sent(struct cn_model_queue *queue, const struct cn_job *job)
{
    struct cn_overload *overload = &queue->overload;
    uint64_t target_us = queue->config.queue_target_ms * UINT64_C(1000), now_us, waited_us;
    uint64_t delay_us = (queue->config.max_batch_delay_ms + queue->policy.delay_ms) * 1000;

    if (!applies(queue) || job->ready_us != job->arrived_us)
        return;
    now_us = cn_loop_now_us(queue->loop);
    waited_us = cn_pressure_waited_us(queue, job->ready_us);
    waited_us = waited_us > delay_us ? waited_us - delay_us : 0;
    if (waited_us <= target_us) {
        overload->above_since_us = 0;
        overload->on = overload->on && waited_us > target_us / 4;
    } else if (overload->above_since_us == 0) {
        overload->above_since_us = now_us;
    } else if (now_us - overload->above_since_us >= target_us) {
        overload->on = true;
    }
}

/* The steps of all sequences of an owner count together: otherwise a client with many sequences
 * would have many shares. */
void
cn_overload_count(struct cn_model_queue *queue, const struct cn_job *job, int by)
{
    if (job->client && (!job->sequence || job->owner.len))
        queue->overload.waiting[job->client % CN_OVERLOAD_CLIENTS] += (uint32_t)by;
}

/* How many waiting steps the client, or the sequence, of the job has. If nobody knows whose job it
 * is, the answer is 0, and only the number of all waiting steps bounds it. */
static uint64_t
held_by(const struct cn_model_queue *queue, const struct cn_job *job,
        const struct cn_sequence *sequence)
{
    const uint64_t of_client =
        job->client ? queue->overload.waiting[job->client % CN_OVERLOAD_CLIENTS] : 0;
    const uint64_t of_sequence = sequence ? sequence->group.waiting : 0;

    if (!(job->row.flags & CN_ROW_STATEFUL))
        return of_client;
    return job->owner.len && of_client > of_sequence ? of_client : of_sequence;
}

/* Is it a step of a sequence that has begun, as far as this node can tell? After a restart, and
 * with a shared store, the queue may not know the sequence; a number or the flag MUST_EXIST
 * tells. */
static bool
has_begun(const struct cn_job *job, const struct cn_sequence *sequence)
{
    const struct cn_row *row = &job->row;

    if (!(row->flags & CN_ROW_STATEFUL) || (row->flags & CN_ROW_START))
        return false;
    return (row->flags & (CN_ROW_MUST_EXIST | CN_ROW_END)) ||
           ((row->flags & CN_ROW_NUMBERED) && row->step > 1) || (sequence && sequence->known);
}

/* How many steps may wait while the queue is overloaded. The rate is that of the last seconds, in
 * which the workers were busy, so it is what they can do. If it is too low, only the queue gets
 * shorter: four batches for each worker are enough to keep the workers busy. */
static uint64_t
places(const struct cn_model_queue *queue)
{
    uint64_t least = (uint64_t)LEAST_BATCHES * queue->config.batch_size * (queue->n_links + 1);
    uint64_t timely = (uint64_t)(cn_queue_rate(queue) * 2 * queue->config.queue_target_ms / 1000);

    return timely > least ? timely : least;
}

int
cn_overload_check(struct cn_model_queue *queue, const struct cn_job *job, struct cn_error *err)
{
    const struct cn_sequence *sequence;
    uint64_t waiting = queue->stats.waiting_jobs, room;

    if (waiting == 0) {
        queue->overload.on = false;
        queue->overload.above_since_us = 0;
    }
    if (!queue->overload.on || cn_job_stands_in(job))
        return 0;
    sequence = (job->row.flags & CN_ROW_STATEFUL)
                   ? cn_table_find(queue->sequences, job->row.sequence_id)
                   : NULL;
    room = places(queue) * (has_begun(job, sequence) ? 2 : 1);
    if (waiting < room && held_by(queue, job, sequence) <= room - waiting)
        return 0;
    return cn_fail(err, CN_E_OVERLOADED,
                   "model %s gets more requests than its workers can do: %llu wait, for longer "
                   "than %u ms (queueTargetMSec); try again later",
                   queue->name, (unsigned long long)waiting, queue->config.queue_target_ms);
}

uint64_t
cn_overload_deadline(const struct cn_model_queue *queue, const struct cn_job *job)
{
    return applies(queue) ? job->arrived_ms + UINT64_C(2) * queue->config.queue_target_ms
                          : CN_NEVER;
}

bool
cn_overload_expired(const struct cn_model_queue *queue, const struct cn_job *job)
{
    const struct cn_sequence *sequence = job->sequence;

    if (!queue->overload.on || cn_job_stands_in(job) || job->deaths > 0 ||
        cn_loop_now_ms(queue->loop) < cn_overload_deadline(queue, job))
        return false;
    return !sequence || (sequence->group.waiting == 1 && !sequence->group.in_flight &&
                         !has_begun(job, sequence));
}
