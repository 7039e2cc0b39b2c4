/* scheduler/queue/stages.c - how long each step was in each stage, for /metrics (docs/metrics.md).
 * On the queue's loop.
 *
 * All times are there anyway, for traces and the list of slow steps, except one: the clock is read
 * when the queue takes the jobs of a turn. Most times are those of turns, so a stage that begins
 * and ends in the same turn took 0. The stages of a step follow each other without a gap or an
 * overlap, so their times add up to the time until its answer was committed.
 */
#include "core/time/clock.h"
#include "core/tuning/tuning.h"
#include "metrics/counters/metrics.h"
#include "scheduler/queue/model_queue_priv.h"

void
cn_stages_take(struct cn_model_queue *queue, const struct cn_list *jobs)
{
    if (!cn_list_empty(jobs))
        queue->taken_us = cn_tuned(CN_TUNING_STAGE_TIMES) ? cn_now_us() : 0;
}

/* The queue reads the clock in the middle of a turn, so the time of a turn may lie before it. */
static uint64_t
between(uint64_t from_us, uint64_t to_us)
{
    return to_us > from_us ? to_us - from_us : 0;
}

void
cn_stages_count(struct cn_model_queue *queue, const struct cn_job *job)
{
    const struct cn_step_times *at = &job->times;
    const uint64_t sent_us = at->sent_us > at->taken_us ? at->sent_us : at->taken_us;
    const bool called = at->n_calls > 0;

    if (!at->taken_us)
        return;
    cn_metrics_observe_stages(
        &queue->metrics, CN_M_STAGE_TIMES,
        (const uint64_t[CN_N_STAGES]){
            [CN_STAGE_READ] =
                job->begun_us ? between(job->begun_us, at->submitted_us) : CN_STAGE_NONE,
            [CN_STAGE_PARSE] = between(at->submitted_us, at->taken_us),
            [CN_STAGE_QUEUE] = between(at->taken_us, sent_us),
            [CN_STAGE_BATCH_WAIT] = called ? between(sent_us, at->handler_us) : CN_STAGE_NONE,
            [CN_STAGE_HANDLER] = called ? between(at->handler_us, at->handled_us) : CN_STAGE_NONE,
            [CN_STAGE_COMMIT] = called ? between(at->handled_us, at->called_us) : CN_STAGE_NONE,
        });
}
